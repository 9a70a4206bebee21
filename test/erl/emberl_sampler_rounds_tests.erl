%% SPDX-License-Identifier: Apache-2.0
%% A sampler on a node with very many processes, under a load that jumps, and started and
%% stopped many times. EMBERL_ROUNDS: how many, as `make torture-erl' says.
-module(emberl_sampler_rounds_tests).

-include_lib("eunit/include/eunit.hrl").

-export([request/1]).

-import(emberl_test, [wait_until/1]).

-define(FAST, #{budget => 0.5, min_interval => 1}).
-define(MANY, 100000).
-define(MOST_ATOMS, 50).               % more than before, whatever the number of rounds
-define(MOST_BYTES, 32 * 1024 * 1024). % likewise

request(N) -> emberl_work:pair(N).

started(Options) ->
    _ = emberl:stop(emberl_sampler), % of a test that has failed
    {ok, Sampler} = emberl:sample(maps:merge(?FAST, Options)),
    Sampler.

windows(Sampler) -> maps:get(windows, emberl:status(Sampler)).

wait_more(Sampler, Count) ->
    Now = windows(Sampler),
    [wait_until(fun() -> windows(Sampler) >= Now + N end) || N <- lists:seq(1, Count)].

rounds_test_() ->
    {setup, fun() -> emberl:apply(fun() -> ok end, #{return => profile}) end,
     [{Name, {timeout, 300, Fun}}
      || {Name, Fun} <- [{"100,000 processes", fun many_processes/0},
                         {"a load that jumps", fun jumping_load/0},
                         {"start and stop", fun() -> many_times(#{}) end},
                         {"start and stop, calls",
                          fun() ->
                                  many_times(#{targets => [{?MODULE, request, 1}], every => 1})
                          end}]]}.

%% Few are looked at, and each goes on as before.
many_processes() ->
    Pids = [spawn_link(emberl_work, wait_for, [stop]) || _ <- lists:seq(1, ?MANY)],
    Busy = emberl_test:busy(fun() -> emberl_work:pair(1) end),
    Sampler = started(#{most_processes => 300}),
    wait_more(Sampler, 3),
    #{coverage := Coverage, errors := Errors} = emberl:status(Sampler),
    #{sampled := #{seen := Seen, present := Present}} =
        emberl_profile:info(emberl:snapshot(Sampler)),
    ok = emberl:stop(Sampler),
    ?assertEqual(0, Errors),
    ?assert(Coverage < 0.01, Coverage),
    ?assert(Present >= 3 * ?MANY andalso Seen > 0, {Seen, Present}),
    emberl_test:stop(Busy),
    ?assert(lists:all(fun(Pid) -> process_info(Pid, status) =:= {status, waiting} end, Pids)),
    [begin unlink(Pid), exit(Pid, kill) end || Pid <- Pids],
    wait_until(fun() -> erlang:system_info(process_count) < ?MANY end).

%% From idle to all schedulers busy and back: there are windows in each, within the budget. A
%% window may cost more than any before, which shows when it is over.
jumping_load() ->
    Sampler = started(#{}),
    [begin
         wait_more(Sampler, 2),
         Busy = [emberl_test:busy(fun() -> emberl_work:pair(1) end)
                 || _ <- lists:seq(1, 4 * erlang:system_info(schedulers))],
         wait_more(Sampler, 2),
         [emberl_test:stop(Pid) || Pid <- Busy]
     end || _ <- [1, 2, 3]],
    #{state := State, cost_minute := Cost, errors := Errors} = emberl:status(Sampler),
    ok = emberl:stop(Sampler),
    ?assertEqual({sampling, 0}, {State, Errors}),
    ?assert(Cost > 0 andalso Cost =< 1.1 * 0.5, Cost).

%% The node is as it was after the first half, in which modules are loaded. Each tenth has
%% time for a window.
many_times(Options) ->
    Caller = spawn_link(fun caller/0),
    Half = max(20, emberl_test:rounds(50) div 2),
    [round_of(Options, N) || N <- lists:seq(1, Half)],
    _ = used(),
    Before = settled(state()),
    Used = used(),
    [round_of(Options, N) || N <- lists:seq(1, Half)],
    ?assertEqual(Before, settled(state())),
    [{_, Atoms}, {_, Bytes}] = [{Key, Now - Then}
                                || {{Key, Now}, {Key, Then}} <- lists:zip(used(), Used)],
    ?assert(Atoms =< ?MOST_ATOMS, Atoms),
    ?assert(Bytes =< ?MOST_BYTES, Bytes),
    unlink(Caller),
    exit(Caller, kill).

round_of(Options, N) ->
    Sampler = started(Options),
    N rem 10 =/= 0 orelse wait_more(Sampler, 1),
    ok = emberl:stop(Sampler).

caller() ->
    [?MODULE:request(N) || N <- lists:seq(1, 10)],
    receive after 1 -> caller() end.

%% What ends has time to.
settled(State) ->
    receive after 200 -> ok end,
    case state() of
        State -> State;
        Other -> settled(Other)
    end.

state() ->
    {emberl_cleanup_tests:state(), length(ets:all()), length(erlang:ports()), length(processes()),
     length(filelib:wildcard("/proc/self/fd/*")), map_size(maps:from_list(persistent_term:get()))}.

used() ->
    [erlang:garbage_collect(Pid) || Pid <- processes()],
    [{atoms, erlang:system_info(atom_count)}, {bytes, erlang:memory(total)}].
