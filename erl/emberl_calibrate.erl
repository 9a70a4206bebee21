%% SPDX-License-Identifier: Apache-2.0
%% @private
%% What an event of each kind costs the traced process, on this machine and VM,
%% now: loops of known calls, traced and untraced. The machine's speed drifts,
%% so this is done again when it was long ago; what is left of the drift, the
%% library finds out from each run (compensation.h).
-module(emberl_calibrate).

-export([ensure/0, ensure_once/0, run/0]).
-export([calls/1, pairs/1, leaf/0, terms/1, collections/1]).

-define(KEY, {?MODULE, measured_at}).
-define(VALID_MS, 60000).
-define(LOOPS, 2000).
-define(ROUNDS, 7).
-define(TERM_WORDS, 8).
-define(LARGE_HEAP, 28000). %% words: all loops of a round fit in

%% Tail calls only: one event a round.
-spec calls(non_neg_integer()) -> ok.
calls(0) -> ok;
calls(N) -> calls(N - 1).

%% Two calls and a return.
-spec pairs(non_neg_integer()) -> ok.
pairs(0) -> ok;
pairs(N) ->
    leaf(),
    pairs(N - 1).

-spec leaf() -> ok.
leaf() -> ok.

%% A term of so many words a round.
-spec terms(non_neg_integer()) -> ok.
terms(N) -> terms(N, nothing).

terms(0, _) -> ok;
terms(N, _) -> terms(N - 1, {N, N, N, N, N, N, N}).

%% A call and a collection of next to nothing.
-spec collections(non_neg_integer()) -> ok.
collections(0) -> ok;
collections(N) ->
    erlang:garbage_collect(self(), [{type, minor}]),
    collections(N - 1).

%% Measures unless that was done a short while ago. Not again while something is
%% captured: the caller may take part in it, and our loops with it.
-spec ensure() -> ok.
ensure() ->
    case persistent_term:get(?KEY, never) of
        never -> run();
        Then -> run_if_old(erlang:monotonic_time(millisecond) - Then)
    end.

%% However long ago it was.
-spec ensure_once() -> ok.
ensure_once() ->
    case persistent_term:get(?KEY, never) of
        never -> run();
        _Then -> ok
    end.

run_if_old(Age) when Age > ?VALID_MS -> run_if_idle(emberl_nif:stats());
run_if_old(_Age) -> ok.

run_if_idle(#{running := false}) -> run();
run_if_idle(#{running := true}) -> ok.

-spec run() -> ok.
run() ->
    try costs() of
        #{call := Call, return := Return, gc := Gc, beside := Beside, gc_inside := GcInside,
          least := Least, word := Word, spread := Spread} ->
            emberl_nif:set_costs(Call, Return, Return, Gc, Beside, GcInside, Least, Word, Spread),
            persistent_term:put(?KEY, erlang:monotonic_time(millisecond)),
            ok
    catch
        throw:failed -> ok
    end.

%% A call's and a return's from the own times of the loops' functions, which
%% their own work hardly adds to.
costs() ->
    Rounds = [costs_of_round() || _ <- lists:seq(1, ?ROUNDS)],
    #{call := Call, return := Return, least := Least, term := Term, bare := Bare,
      gc := Gc, gc_inside := GcInside, beside := Beside} =
        maps:map(fun(Key, _) -> quarter(Key, Rounds) end, hd(Rounds)),
    Spread = max(spread(call, Rounds), spread(return, Rounds)),
    #{call => max(0.0, Call - Least), return => max(0.0, Return - Least), gc => max(0.0, Gc),
      gc_inside => max(0.0, GcInside), beside => max(0.0, Beside), least => Least,
      word => max(0.0, Term - Bare) / ?TERM_WORDS, spread => Spread}.

costs_of_round() ->
    Untraced = in_process([{min_heap_size, ?LARGE_HEAP}], fun untraced_loops/0),
    Roomy = with_room(),
    maps:merge(Untraced, maps:merge(Roomy, without_room(Roomy))).

%% A process of its own has nothing else on its heap.
in_process(Options, Fun) ->
    {_, Monitor} = spawn_opt(fun() -> exit({measured, Fun()}) end, [monitor | Options]),
    receive
        {'DOWN', Monitor, process, _, {measured, Costs}} -> Costs;
        {'DOWN', Monitor, process, _, _Reason} -> throw(failed)
    end.

untraced_loops() ->
    #{bare => per_loop(untraced(calls)),
      term => per_loop(untraced(terms)),
      least => per_loop(untraced(pairs)) / 3}.

with_room() ->
    Calls = profile(calls, [{min_heap_size, ?LARGE_HEAP}]),
    Pairs = profile(pairs, [{min_heap_size, ?LARGE_HEAP}]),
    #{call => per_loop(own(calls, 1, Calls) + own(pairs, 1, Pairs)) / 3,
      return => per_loop(own(leaf, 0, Pairs))}.

%% A loop that needs no room lets the heap become full.
without_room(#{call := Call}) ->
    Calls = profile(calls, []),
    Collections = profile(collections, []),
    Collection = in_process([], fun() -> per_loop(untraced(collections)) end),
    #{beside => (own(calls, 1, Calls) - ?LOOPS * Call) / max(1, emberl_nif:profile_beside(Calls)),
      gc => per_loop(own(collections, 1, Collections)) - Call,
      gc_inside => per_loop(time(gc_ns, collections, 1, Collections)) - Collection}.

per_loop(Time) -> Time / ?LOOPS.

own(Function, Arity, Profile) -> time(own_ns, Function, Arity, Profile).

time(Key, Function, Arity, Profile) ->
    lists:sum([maps:get(Key, Row)
               || #{mfa := {?MODULE, F, A}} = Row <- emberl_profile:functions(Profile),
                  F =:= Function, A =:= Arity]).

%% Where nothing else disturbed: a busy machine only adds.
quarter(Key, Rounds) -> quantile(1 + ?ROUNDS div 4, Key, Rounds).

%% From the least to the most but one, relative.
spread(Key, Rounds) ->
    Least = quantile(1, Key, Rounds),
    Most = quantile(?ROUNDS - 1, Key, Rounds),
    case Most > 0 of
        true -> (Most - Least) / Most;
        false -> 1.0
    end.

quantile(Nth, Key, Rounds) ->
    lists:nth(Nth, lists:sort([maps:get(Key, Round) || Round <- Rounds])).

untraced(Loop) ->
    Start = erlang:monotonic_time(nanosecond),
    ?MODULE:Loop(?LOOPS),
    erlang:monotonic_time(nanosecond) - Start.

profile(Loop, Options) -> in_process(Options, fun() -> traced(Loop) end).

traced(Loop) ->
    {ok, Options} = emberl_options:parse(apply, #{modules => [?MODULE], compensate => false}),
    Request = #{mfa => {?MODULE, Loop, 1}, calls => 1, from => self(), hidden => false,
                target => <<"calibration">>, options => Options#{return := profile}},
    case emberl_control:start_capture(Request) of
        {ok, Ref} ->
            ?MODULE:Loop(?LOOPS),
            captured(emberl_control:finish(Ref));
        {error, _Refused} ->
            exit(failed)
    end.

%% Nothing is told of a process that exits.
captured({_, [{Profile, _}], _}) -> Profile;
captured(_Otherwise) -> exit(failed).
