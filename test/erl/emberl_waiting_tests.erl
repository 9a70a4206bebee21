%% SPDX-License-Identifier: Apache-2.0
%% Captures that wait: for slow calls, for one in so many, and without breakpoints on
%% everything until their target is called.
-module(emberl_waiting_tests).

-include_lib("eunit/include/eunit.hrl").

-export([handle/1, other/0]).

-import(emberl_test, [wait_until/1]).

-define(TARGET, {?MODULE, handle, 1}).
-define(LIMIT_MS, 400). % no fast call takes as long, even on a busy machine
-define(SLOW_MS, 450).

handle(slow) ->
    receive after ?SLOW_MS -> slow end;
handle(Term) ->
    lists:seq(1, 3),
    Term.

other() -> ok.

start(Calls, Options) ->
    {ok, Capture} = emberl:start_capture(?TARGET, Calls, maps:merge(#{return => data}, Options)),
    Capture.

results(Results) -> [Result || #{result := Result} <- Results].

%% A busy machine takes its time.
waiting_test_() ->
    [{timeout, 60, Test}
     || Test <- [fun slow_calls_alone_are_kept/0,
                 fun fast_calls_are_no_results/0,
                 fun slow_calls_can_be_merged/0,
                 fun the_first_call_arms/0,
                 fun later_calls_are_whole/0,
                 fun never_called/0,
                 fun a_pause_disarms/0,
                 fun a_call_under_way_stays_armed/0,
                 fun others_keep_their_breakpoints/0]].

%% ---- slow calls ----

slow_calls_alone_are_kept() ->
    Capture = start(2, #{keep => {slower_than, ?LIMIT_MS}}),
    [begin
         [?MODULE:handle(N) || N <- lists:seq(1, 100)],
         ?MODULE:handle(slow)
     end || _ <- [1, 2, 3]],
    {ok, Calls} = emberl:await(Capture, infinity),
    ?assertEqual([{ok, slow}, {ok, slow}], results(Calls)),
    [?assertMatch(#{{?MODULE, handle} := 1},
                  #{{?MODULE, handle} => maps:get(?TARGET, emberl_test:calls(Profile))})
     || #{profile := Profile} <- Calls].

fast_calls_are_no_results() ->
    Capture = start(1, #{keep => {slower_than, 60000}}),
    [?MODULE:handle(N) || N <- lists:seq(1, 5000)],
    ?assertEqual({incomplete, stopped, []}, emberl:stop(Capture)).

slow_calls_can_be_merged() ->
    Capture = start(2, #{keep => {slower_than, ?LIMIT_MS}, merge => true}),
    [?MODULE:handle(Term) || Term <- [1, slow, 2, slow, 3]],
    {ok, [#{profile := Profile, result := {ok, Values}}]} = emberl:await(Capture, infinity),
    ?assertEqual([{ok, slow}, {ok, slow}], Values),
    ?assertMatch(#{calls := 2}, emberl_profile:info(Profile)).

%% ---- one in so many ----

one_in_so_many_test_() ->
    [{timeout, 60, fun() -> one_in(Every) end} || Every <- [1, 7, 1000]].

one_in(Every) ->
    Capture = start(1000, #{every => Every, return => profile}),
    Monitors = [element(2, spawn_monitor(fun() -> [?MODULE:handle(N) || N <- lists:seq(1, 50)] end))
                || _ <- lists:seq(1, 10)],
    [receive {'DOWN', Monitor, process, _, normal} -> ok end || Monitor <- Monitors],
    {_, _, Profiles} = emberl:stop(Capture),
    ?assertEqual((500 + Every - 1) div Every, length(Profiles)),
    [?assertEqual(returned, emberl_test:outcome(Profile)) || Profile <- Profiles].

%% ---- lazily ----

%% Whether all functions have breakpoints.
is_armed() ->
    State = sys:get_state(emberl_control),
    [#{main := Main}] = [Map || #{main := _} = Map <- tuple_to_list(State)],
    {traced, Traced} = case Main of
                           legacy -> erlang:trace_info({lists, seq, 2}, traced);
                           _ -> trace:info(Main, {lists, seq, 2}, traced)
                       end,
    Traced =:= local.

the_first_call_arms() ->
    Capture = start(1, #{arm => lazy}),
    ?assertNot(is_armed()),
    ?MODULE:other(),
    ?MODULE:handle(first),
    wait_until(fun is_armed/0),
    wait_until(fun() -> ?MODULE:handle(later), emberl:await(Capture, 0) =/= {error, timeout} end),
    wait_until(fun() -> not emberl_test:running() end).

later_calls_are_whole() ->
    Capture = start(3, #{arm => lazy}),
    Pid = emberl_test:busy(fun() -> ?MODULE:handle(again) end),
    {ok, Calls} = emberl:await(Capture, infinity),
    emberl_test:stop(Pid),
    ?assertEqual(lists:duplicate(3, {ok, again}), results(Calls)),
    [?assertMatch(#{{lists, seq, 2} := 1}, emberl_test:calls(Profile))
     || #{profile := Profile} <- Calls].

never_called() ->
    Capture = start(1, #{arm => lazy}),
    ?assertEqual({incomplete, stopped, []}, emberl:stop(Capture)).

a_pause_disarms() ->
    Capture = start(1000000, #{arm => {lazy, 20}, merge => true}),
    [begin
         wait_until(fun() -> ?MODULE:handle(N), is_armed() end), % as long as it is called
         wait_until(fun() -> not is_armed() end)
     end || N <- [1, 2]],
    {incomplete, stopped, _} = emberl:stop(Capture).

%% What is under way is seen to its end.
a_call_under_way_stays_armed() ->
    Capture = start(1, #{arm => {lazy, 100}, keep => {slower_than, ?LIMIT_MS}}),
    Pid = spawn_link(fun Try() ->
                             [begin ?MODULE:handle(N), timer:sleep(1) end
                              || N <- lists:seq(1, 50)], % arms it
                             ?MODULE:handle(slow),
                             Try()
                     end),
    {ok, [#{result := {ok, slow}, profile := Profile}]} = emberl:await(Capture, infinity),
    unlink(Pid),
    exit(Pid, kill),
    ?assertMatch(#{complete := true}, emberl_profile:info(Profile)).

others_keep_their_breakpoints() ->
    {ok, Eager} = emberl:start_capture({?MODULE, other, 0}, 1, #{return => profile}),
    ?assert(is_armed()),
    Lazy = start(1, #{arm => {lazy, 20}}),
    ?MODULE:handle(1),
    receive after 100 -> ok end,
    ?assert(is_armed()),
    ?MODULE:other(),
    {ok, [_]} = emberl:await(Eager, infinity),
    wait_until(fun() -> not is_armed() end),
    {incomplete, stopped, []} = emberl:stop(Lazy).
