%% SPDX-License-Identifier: Apache-2.0
%% @private
%% Has the library find out how this VM lays out what it has to look at; see
%% vm_heap.h.
-module(emberl_layout).

-export([check/0]).

%% Sizes that no other word of a process is likely to have, and not all of them.
-define(SIZES, [1231, 577, 2039, 811]).
-define(ROUNDS, 3).

%% Not while anything is captured.
-spec check() -> ok.
check() ->
    in_process(fun() -> check(?SIZES, true) end),
    in_process(fun probe/0),
    in_process(fun() -> emberl_nif:use_walks(finds_callers()) end).

%% Whose heap has room, and whose messages stay in fragments until it is collected.
in_process(Work) ->
    Options = [monitor, {min_heap_size, 20000}, {message_queue_data, off_heap}],
    {Pid, Monitor} = spawn_opt(Work, Options),
    receive {'DOWN', Monitor, process, Pid, _} -> ok end.

check([], _First) ->
    ok;
check([Size | Sizes], First) ->
    Self = self(),
    spawn(fun() -> Self ! lists:seq(1, Size) end),
    receive List when is_list(List) -> ok end,
    Binary = binary:copy(<<1>>, 8 * (Size + 100)),
    {_, Info} = erlang:process_info(self(), garbage_collection_info),
    [Block, Fragments, Binaries] =
        [proplists:get_value(Key, Info) || Key <- [heap_block_size, mbuf_size, bin_vheap_size]],
    emberl_nif:check_layout(Block, Fragments, Binaries, First),
    erlang:external_size(Binary), % is still referred to
    check(Sizes, false).

%% ---- walks over stacks ----

%% Whether the library finds the very callers that the VM does, in several stacks with
%% terms of many kinds on them.
finds_callers() ->
    lists:all(fun(Depth) -> callers_agree(Depth, {Depth, <<"binary">>}, 1.5) end, [1, 2, 3]).

callers_agree(0, Term, Number) ->
    Found = emberl_nif:walk(),
    {current_stacktrace, Stack} = erlang:process_info(self(), current_stacktrace),
    Right = is_list(Found)
        andalso once_each(Found) =:= once_each([{M, F, A} || {M, F, A, _} <- Stack]),
    Right andalso is_tuple(Term) andalso is_float(Number);
callers_agree(Depth, Term, Number) ->
    Agree = try callers_agree(Depth - 1, {Term, self()}, Number + Depth)
            catch error:badarg -> false
            end,
    Agree andalso is_tuple(Term) andalso Number > 1.

%% A stack trace leaves repetitions out.
once_each([Same, Same | Rest]) -> once_each([Same | Rest]);
once_each([First | Rest]) -> [First | once_each(Rest)];
once_each([]) -> [].

%% ---- waiting or runnable ----

%% A process that is traced, waits and is runnable by turns, in the same places of
%% many functions, at all depths of its stack and after more or less work, so that
%% only what says which it does goes with it. Where it cannot be traced, nothing is
%% found.
probe() ->
    emberl_nif:probe('begin'),
    case emberl_trace:probe(self()) of
        {ok, Stop} ->
            deeper(?ROUNDS, {}),
            emberl_nif:probe('end'),
            Stop();
        error ->
            emberl_nif:probe('end')
    end.

%% Stack and heap grow by an odd number of words each time.
deeper(0, _) -> 0;
deeper(N, Term) ->
    [begin
         Turn(wait_briefly, 37 * N),
         Turn(yield, N),
         Turn(wait, 53 * N),
         Turn(spin, 5000 + N),
         Turn(yield, {Term, N})
     end || Turn <- [fun a/2, fun b/2, fun c/2, fun d/2, fun e/2, fun f/2]],
    1 + deeper(N - 1, {Term, N}) + tuple_size(Term) + N.

%% What is told to the library before a wait must be true: after a yield the time
%% slice is too long to end sooner.
-define(TURN(Turn),
        Turn(wait_briefly, N) ->
               Turn(yield, []),
               Turn(work, N),
               emberl_nif:probe(waiting),
               receive never -> ok after 1 -> emberl_nif:probe(runnable) end;
        Turn(wait, N) ->
               erlang:send_after(1, self(), {go_on, N}),
               Turn(yield, N),
               Turn(work, N),
               emberl_nif:probe(waiting),
               receive {go_on, N} -> emberl_nif:probe(runnable) end;
        Turn(yield, _) ->
               emberl_nif:probe(runnable),
               erlang:yield();
        Turn(spin, N) -> % to the end of the time slice, and beyond
               emberl_nif:probe(runnable),
               Turn(work, N);
        Turn(work, 0) ->
               ok;
        Turn(work, N) ->
               Turn(work, N - 1)).

?TURN(a).
?TURN(b).
?TURN(c).
?TURN(d).
?TURN(e).
?TURN(f).
