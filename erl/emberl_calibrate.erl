%% SPDX-License-Identifier: Apache-2.0
%% @private
%% What an event of each kind costs the traced process, on this machine and VM,
%% now: loops of known calls, traced and untraced. The machine's speed drifts,
%% so this is done again when it was long ago.
-module(emberl_calibrate).

-export([ensure/0, run/0]).
-export([calls/1, pairs/1, leaf/0]).

-define(KEY, {?MODULE, measured_at}).
-define(VALID_MS, 60000).
-define(LOOPS, 2000).
-define(ROUNDS, 7).

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

%% Measures unless that was done a short while ago. Not again while something is
%% captured: the caller may take part in it, and our loops with it.
-spec ensure() -> ok.
ensure() ->
    case persistent_term:get(?KEY, never) of
        never -> run();
        Then -> run_if_old(erlang:monotonic_time(millisecond) - Then)
    end.

run_if_old(Age) when Age > ?VALID_MS -> run_if_idle(emberl_nif:stats());
run_if_old(_Age) -> ok.

run_if_idle(#{running := false}) -> run();
run_if_idle(#{running := true}) -> ok.

%% In a process of its own: a small heap, and nothing else on it.
-spec run() -> ok.
run() ->
    {_, Monitor} = spawn_monitor(fun() -> exit({costs, costs()}) end),
    receive
        {'DOWN', Monitor, process, _, {costs, {Call, Return}}} ->
            emberl_nif:set_costs(Call, Return, Return, 0.0),
            persistent_term:put(?KEY, erlang:monotonic_time(millisecond));
        {'DOWN', Monitor, process, _, _Reason} ->
            ok
    end.

costs() ->
    Call = cost_of(calls),
    Pair = cost_of(pairs),
    {Call, max(0.0, Pair - 2 * Call)}.

cost_of(Loop) ->
    median([traced(Loop) - untraced(Loop) || _ <- lists:seq(1, ?ROUNDS)]).

median(Values) ->
    max(0.0, lists:nth(?ROUNDS div 2 + 1, lists:sort(Values)) / ?LOOPS).

untraced(Loop) ->
    Start = erlang:monotonic_time(nanosecond),
    ?MODULE:Loop(?LOOPS),
    erlang:monotonic_time(nanosecond) - Start.

traced(Loop) ->
    {ok, Options} = emberl_options:parse(apply, #{modules => [?MODULE], compensate => false}),
    Request = #{mfa => {?MODULE, Loop, 1}, calls => 1, from => self(), hidden => false,
                target => <<"calibration">>, options => Options#{return := profile}},
    {ok, Ref} = emberl_server:start_capture(Request),
    ?MODULE:Loop(?LOOPS),
    {_, [{Profile, _}]} = emberl_server:finish(Ref),
    maps:get(duration_ns, emberl_profile:info(Profile)).
