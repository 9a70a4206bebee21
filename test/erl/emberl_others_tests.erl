%% SPDX-License-Identifier: Apache-2.0
%% Others that trace at the same time. From OTP 27.1 on each has a session of
%% its own and nobody is harmed; before, there is one for all, so we refuse to
%% start while it is taken.
-module(emberl_others_tests).

-include_lib("eunit/include/eunit.hrl").

-import(emberl_test, [shape/1]).

-define(PAIR, {emberl_work, pair, [1]}).
-define(PAIRS, {emberl_work, pairs, [20]}).

profile() -> #{return => profile, modules => all}.

others_test_() ->
    Tests = case emberl_test:has_sessions() of
                true -> together();
                false -> refused()
            end,
    {setup, fun() -> code:ensure_modules_loaded([emberl_work, dbg]) end, Tests}.

%% ---- sessions ----

together() ->
    [{Name, fun() -> together(Others) end}
     || {Name, Others} <- [{"dbg", fun with_dbg/1},
                           {"erlang:trace", fun with_legacy/1},
                           {"a tracer that traces all", fun with_all/1}]]
    ++ [{"tprof " ++ atom_to_list(Type), fun() -> with_tprof(Type) end}
        || Type <- [call_count, call_time, call_memory]]
    ++ [{"dbg starts and stops meanwhile", fun dbg_meanwhile/0}]
    ++ [{"collections are traced by " ++ Name, fun() -> refused(On, Off) end}
        || {Name, On, Off} <- collectors()]
    ++ [{"a window leaves out whose collections are traced",
         fun() -> window_with_collector(On, Off) end}
        || {_, On, Off} <- [hd(collectors()), lists:nth(2, collectors())]].

%% Two that trace the collections of one process crash the VM.
collectors() ->
    [{"a session", fun(Tracer) -> session(Tracer, self()) end, fun end_session/0},
     {"erlang:trace/3",
      fun(Tracer) -> erlang:trace(self(), true, [garbage_collection, {tracer, Tracer}]) end,
      fun() -> erlang:trace(self(), false, [all]) end},
     {"a session, of new processes", fun(Tracer) -> session(Tracer, new) end, fun end_session/0},
     {"erlang:trace/3, of new processes",
      fun(Tracer) -> erlang:trace(new_processes, true, [garbage_collection, {tracer, Tracer}]) end,
      fun() -> erlang:trace(new_processes, false, [all]) end}].

session(Tracer, Whom) ->
    put(session, trace:session_create(other, Tracer, [])),
    trace:process(get(session), Whom, true, [garbage_collection]).

end_session() ->
    trace:session_destroy(erase(session)).

window_with_collector(On, Off) ->
    Busy = emberl_test:busy(fun() -> emberl_work:pair(1), erlang:garbage_collect() end),
    {Tracer, _} = spawn_monitor(fun Drop() -> receive stop -> ok; _ -> Drop() end end),
    On(Tracer),
    Tally = emberl:record(50, #{rootset => [Busy, self()], report => return}),
    Notes = maps:get(notes, emberl_tally:info(Tally)),
    ?assert(lists:member(<<"1 processes are traced by somebody else">>, Notes)),
    ?assertMatch([_ | _], [Row || #{process := Pid, mfa := {emberl_work, pair, 1}} = Row
                                      <- emberl_tally:rows(Tally), Pid =:= Busy]),
    erlang:garbage_collect(),
    Off(),
    Tracer ! stop,
    emberl_test:stop(Busy).

%% Others runs a fun while it traces calls of leaf/1 in this process, and tells
%% how many it has seen.
together(Others) ->
    Shape = shape(emberl:apply(?PAIRS, profile())),
    {Profile, Seen} = Others(fun() -> emberl:apply(?PAIRS, profile()) end),
    ?assertEqual(40, Seen),
    ?assertEqual(Shape, shape(Profile)),
    ?assertNot(emberl_test:running()),
    {_, SeenAfter} = Others(fun() -> emberl_work:pairs(20) end),
    ?assertEqual(40, SeenAfter).

with_dbg(Fun) ->
    Counter = counters:new(1, []),
    Count = fun({trace, _, call, {emberl_work, leaf, _}}, _) -> counters:add(Counter, 1, 1);
               (_, _) -> ok
            end,
    Session = dbg:session_create(test),
    Result = dbg:session(Session, fun() ->
                                          {ok, _} = dbg:tracer(process, {Count, ok}),
                                          {ok, _} = dbg:p(self(), [call, running, procs]),
                                          {ok, _} = dbg:tpl(emberl_work, leaf, []),
                                          Ran = Fun(),
                                          {ok, _} = dbg:p(self(), clear),
                                          Ran
                                  end),
    %% what is on its way to dbg's tracer has been seen when its session is gone
    emberl_test:wait_until(fun() -> counters:get(Counter, 1) >= 40 end),
    dbg:session_destroy(Session),
    {Result, counters:get(Counter, 1)}.

with_legacy(Fun) ->
    erlang:trace_pattern({emberl_work, leaf, 1}, true, [local]),
    with_tracer(fun(Tracer) -> erlang:trace(self(), true, [call, {tracer, Tracer}]) end,
                fun() ->
                        erlang:trace(self(), false, [all]),
                        ?assertEqual({traced, local},
                                     erlang:trace_info({emberl_work, leaf, 1}, traced)),
                        erlang:trace_pattern({emberl_work, leaf, 1}, false, [local])
                end, Fun).

with_all(Fun) ->
    Test = self(),
    Tracer = spawn_link(fun() -> count(Test, 0) end),
    Session = trace:session_create(test, Tracer, []),
    trace:function(Session, {emberl_work, leaf, 1}, true, [local]),
    trace:process(Session, all, true, [call]),
    Result = Fun(),
    trace:session_destroy(Session),
    {Result, seen(Tracer)}.

with_tracer(On, Off, Fun) ->
    Test = self(),
    Tracer = spawn_link(fun() -> count(Test, 0) end),
    On(Tracer),
    Result = Fun(),
    Off(),
    {Result, seen(Tracer)}.

%% Calls traced until now; trace messages of this process are on their way no
%% longer when the VM says that they are delivered.
seen(Tracer) ->
    Delivered = erlang:trace_delivered(self()),
    receive {trace_delivered, _, Delivered} -> ok end,
    Tracer ! {self(), seen},
    receive {Tracer, Seen} -> Seen end.

count(Test, Seen) ->
    receive
        {trace, Test, call, {emberl_work, leaf, _}} -> count(Test, Seen + 1);
        {Test, seen} -> Test ! {self(), Seen}
    end.

with_tprof(Type) ->
    Run = fun() -> emberl:apply(?PAIRS, profile()) end,
    Options = #{type => Type, report => return, pattern => [{emberl_work, '_', '_'}]},
    {Profile, {Type, Traces}} = tprof:profile(Run, Options),
    [{_, Rows}] = [{Arity, Rows} || {emberl_work, leaf, Arity, Rows} <- Traces],
    ?assertEqual(40, lists:sum([Calls || {_, Calls, _} <- Rows])),
    ?assertEqual(#{[pairs] => 21, [pairs, pair] => 20, [pairs, pair, leaf] => 40}, work(Profile)).

work(Profile) ->
    maps:filter(fun(Stack, _) -> lists:all(fun is_atom/1, Stack) end, shape(Profile)).

dbg_meanwhile() ->
    {ok, Capture} = emberl:start_capture({emberl_work, pair, 1}, 2, profile()),
    with_dbg(fun() -> emberl_work:pairs(20) end),
    emberl_work:pair(1),
    {ok, Profiles} = emberl:await(Capture, infinity),
    ?assertEqual(2, length(Profiles)).

%% ---- one for all ----

refused() ->
    [{Name, fun() -> refused(On, Off) end}
     || {Name, On, Off} <-
            [{"a traced process",
              fun(Tracer) -> erlang:trace(self(), true, [call, {tracer, Tracer}]) end,
              fun() -> erlang:trace(self(), false, [all]) end},
             {"another's traced process",
              fun(Tracer) -> erlang:trace(whereis(kernel_sup), true, [procs, {tracer, Tracer}]) end,
              fun() -> erlang:trace(whereis(kernel_sup), false, [all]) end},
             {"new processes to be traced",
              fun(Tracer) -> erlang:trace(new_processes, true, [procs, {tracer, Tracer}]) end,
              fun() -> erlang:trace(new_processes, false, [all]) end},
             {"a traced function",
              fun(_) -> erlang:trace_pattern({emberl_work, leaf, 1}, true, [local]) end,
              fun() -> erlang:trace_pattern({emberl_work, leaf, 1}, false, [local]) end},
             {"an exported function",
              fun(_) -> erlang:trace_pattern({lists, seq, 2}, true, [global]) end,
              fun() -> erlang:trace_pattern({lists, seq, 2}, false, [global]) end},
             {"dbg",
              fun(_) ->
                      {ok, _} = dbg:tracer(process, {fun(_, _) -> ok end, ok}),
                      {ok, _} = dbg:p(self(), [call]),
                      {ok, _} = dbg:tpl(emberl_work, leaf, [])
              end,
              fun() -> {ok, _} = dbg:ctp(), dbg:stop() end}]]
    ++ [{"counters are let be", fun counters/0}]
    ++ [{Name, fun() -> disturbed(Disturb) end}
        || {Name, Disturb} <-
               [{"flags are taken away", fun() -> erlang:trace(all, false, [all]) end},
                {"breakpoints are taken away",
                 fun() -> erlang:trace_pattern({'_', '_', '_'}, false, [local]) end},
                {"those of one function are",
                 fun() -> erlang:trace_pattern({lists, seq, 2}, false, [local]) end},
                {"those to come are", fun() -> erlang:trace_pattern(on_load, false, [local]) end}]].

%% What others do in the middle cannot be prevented, but it is told.
disturbed(Disturb) ->
    Profile = emberl:apply(fun() -> Disturb(), emberl_work:pair(1) end, #{return => profile}),
    ?assertMatch(#{complete := false, cut_by := untraced}, emberl_profile:info(Profile)),
    ?assertMatch(#{complete := true, cut_by := none},
                 emberl_profile:info(emberl:apply(?PAIR, profile()))).

%% Nothing is touched, neither ours nor theirs; and it works when they are gone.
refused(On, Off) ->
    Tracer = spawn_link(fun() -> receive stop -> ok end end),
    On(Tracer),
    Before = traced(),
    ?assertMatch({error, {other_tracer, _}}, emberl:capture({emberl_work, pair, 1}, 1, profile())),
    ?assertMatch({error, {other_tracer, _}}, emberl:start_capture({emberl_work, pair, 1})),
    ?assertError({other_tracer, _}, emberl:apply(?PAIR, profile())),
    ?assertEqual(Before, traced()),
    ?assertNot(emberl_test:running()),
    Off(),
    emberl_test:stop(Tracer),
    ?assertMatch(#{[pair] := 1, [pair, leaf] := 2}, shape(emberl:apply(?PAIR, profile()))).

traced() ->
    [erlang:trace_info(What, Item) || What <- [self(), whereis(kernel_sup), new_processes],
                                      Item <- [flags, tracer]]
    ++ [erlang:trace_info(MFA, all)
        || MFA <- [on_load, {emberl_work, leaf, 1}, {emberl_work, pair, 1}, {lists, seq, 2}]].

%% Counting calls is no tracing: cprof goes on.
counters() ->
    Leaf = {emberl_work, leaf, 1},
    erlang:trace_pattern(Leaf, true, [call_count]),
    Profile = emberl:apply(?PAIRS, profile()),
    ?assertEqual(#{[pairs] => 21, [pairs, pair] => 20, [pairs, pair, leaf] => 40}, work(Profile)),
    ?assertEqual({call_count, 40}, erlang:trace_info(Leaf, call_count)),
    erlang:trace_pattern(Leaf, false, [call_count]).
