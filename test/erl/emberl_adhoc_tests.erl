%% SPDX-License-Identifier: Apache-2.0
%% emberl:profile: calls, time and words of functions, by either engine; and
%% emberl:record.
-module(emberl_adhoc_tests).

-include_lib("eunit/include/eunit.hrl").

-export([spawns/0, ends_in/1]).

-define(ALL, [call_count, call_time, call_memory]).

%% What tprof's manual profiles.
spawns() ->
    {Pid, Monitor} = spawn_monitor(fun() -> lists:seq(1, 32) end),
    receive {'DOWN', Monitor, process, Pid, normal} -> done end.

ends_in(value) -> lists:seq(1, 3);
ends_in(Class) -> erlang:raise(Class, oops, []).

engines() -> [counters, tracer].

profile(Fun, Options) ->
    emberl:profile(Fun, Options#{report => return}).

rows(Tally) ->
    lists:sort([{MFA, Calls, Words}
                || #{mfa := MFA, calls := Calls, words := Words} <- emberl_tally:rows(Tally)]).

has_words() -> lists:member(call_memory, emberl_counters:supported()).

%% The types that an engine can count by itself.
types(counters) -> emberl_counters:supported();
types(tracer) -> ?ALL.

%% ---- the same numbers as tprof's manual ----

calls_of_seq_test_() ->
    {timeout, 60, fun calls_of_seq/0}.

calls_of_seq() ->
    {Value, Tally} = emberl:profile(lists, seq, [1, 16], #{type => call_count, report => return}),
    ?assertEqual(lists:seq(1, 16), Value),
    ?assertMatch(#{engine := counters, measures := [call_count], outcome := {ok, Value},
                   target := <<"lists:seq/2">>},
                 emberl_tally:info(Tally)),
    Rows = [Row || #{mfa := {lists, seq_loop, 3}} = Row <- emberl_tally:rows(Tally)],
    ?assertMatch([#{process := all, calls := Calls}] when Calls >= 5, Rows).

words_of_seq_test_() ->
    [{atom_to_list(Engine),
      fun() ->
              {_, Tally} =
                  emberl:profile(lists, seq, [1, 16],
                                 #{type => call_memory, report => return, engine => Engine}),
              ?assertMatch(#{engine := Engine, measures := [call_memory]},
                           emberl_tally:info(Tally)),
              ?assertEqual([{{lists, seq_loop, 3}, 5, 32}],
                           [Row || {_, _, W} = Row <- rows(Tally), W > 0])
      end} || Engine <- engines(), lists:member(call_memory, types(Engine))].

words_of_two_processes_test_() ->
    [{atom_to_list(Engine),
      fun() ->
              {done, Tally} =
                  emberl:profile(?MODULE, spawns, [],
                                 #{type => call_memory, report => return, engine => Engine}),
              ?assertEqual([{{lists, seq_loop, 3}, 9, 64}],
                           [Row || {{lists, seq_loop, 3}, _, _} = Row <- rows(Tally)]),
              [{_, _, Own}] = [Row || {{?MODULE, spawns, 0}, 1, _} = Row <- rows(Tally)],
              ?assert(Own >= 9), % a fun, what it is told of the end
              ?assertEqual(2, maps:size(emberl_tally:inspect(Tally)))
      end} || Engine <- engines(), lists:member(call_memory, types(Engine))].

the_engines_agree_test_() ->
    {timeout, 60, fun() ->
        Run = fun(Engine) ->
                      {_, Tally} = profile(fun() -> emberl_work:pairs(10) end,
                                           #{engine => Engine, pattern => {emberl_work, '_', '_'}}),
                      lists:sort([maps:with([mfa, calls | [words || has_words()]], Row)
                                  || Row <- emberl_tally:rows(Tally)])
              end,
        [ByCounters, ByTracer] = [Run(Engine) || Engine <- engines()],
        ?assertEqual(ByTracer, ByCounters),
        ?assert(lists:member({{emberl_work, leaf, 1}, 20},
                             [{MFA, Calls} || #{mfa := MFA, calls := Calls} <- ByCounters]))
    end}.

%% Compared with tprof itself, where there is one.
like_tprof_test_() ->
    case code:which(tprof) of
        non_existing -> [];
        _ -> [{atom_to_list(Type), fun() -> like_tprof(Type) end} || Type <- ?ALL]
    end.

like_tprof(Type) ->
    Options = #{type => Type, report => return,
                pattern => [{emberl_work, '_', '_'}, {lists, '_', '_'}]},
    Run = fun(Profile, Inspect) ->
                  {_, Data} = Profile(emberl_work, sort, [lists:seq(1, 100)], Options),
                  Inspect(Data)
          end,
    #{all := {Type, _Total, TheirLines}} =
        Run(fun tprof:profile/4, fun(D) -> tprof:inspect(D, total, function) end),
    #{all := #{lines := OurLines}} =
        Run(fun emberl:profile/4, fun(D) -> emberl_tally:inspect(D, total, function) end),
    Theirs = [{{M, F, A}, Calls, measured(Type, Value)}
              || {M, {F, A}, Calls, Value, _, _} <- TheirLines],
    Ours = [{MFA, Calls, measured(Type, maps:get(words, Line, Calls))}
            || #{mfa := MFA, calls := Calls} = Line <- OurLines],
    ?assertEqual(lists:sort(Theirs), lists:sort(Ours)).

%% No two runs take the same time.
measured(call_time, _Value) -> time;
measured(_Type, Value) -> Value.

%% What they print, but for the order of functions with the same share.
like_tprofs_table_test() ->
    case code:which(tprof) of
        non_existing ->
            ok;
        _ ->
            Options = #{type => call_memory, report => total,
                        pattern => [{?MODULE, '_', '_'}, {lists, '_', '_'}]},
            {ok, Theirs} =
                emberl_test:quiet(fun() -> tprof:profile(?MODULE, spawns, [], Options) end),
            {done, Ours} =
                emberl_test:quiet(fun() -> emberl:profile(?MODULE, spawns, [], Options) end),
            ?assertEqual(lists:sort(string:lexemes(Theirs, "\n")),
                         lists:sort([Line || Line <- string:lexemes(Ours, "\n"),
                                             not is_remark(Line)]))
    end.

is_remark(Line) -> string:prefix(Line, "engine") =/= nomatch.

%% ---- which engine ----

all_measures_in_one_run_test() ->
    {_, Tally} = profile(fun() -> lists:seq(1, 16) end, #{}),
    ?assertMatch(#{engine := tracer, measures := ?ALL}, emberl_tally:info(Tally)),
    [Row] = [Row || #{mfa := {lists, seq_loop, 3}} = Row <- emberl_tally:rows(Tally)],
    ?assertMatch(#{calls := 5, words := 32, time_ns := _}, Row),
    ?assertEqual({error, no_stacks}, emberl_tally:profile(Tally)).

stacks_test() ->
    {_, Tally} = profile(fun() -> emberl_work:pair(1) end, #{stacks => true, type => call_count}),
    {ok, Profile} = emberl_tally:profile(Tally),
    ?assertMatch(#{[{?MODULE, {'fun', stacks_test}}, pair, leaf] := 2}, emberl_test:shape(Profile)),
    ?assertMatch(#{engine := tracer, measures := [call_count]}, emberl_tally:info(Tally)).

what_the_tracer_cannot_do_is_counted_test() ->
    {_, Tally} = profile(fun() -> lists:seq(1, 16) end, #{pattern => {lists, seq_loop, 3}}),
    ?assertMatch(#{engine := counters}, emberl_tally:info(Tally)),
    ?assertEqual(emberl_counters:supported(), maps:get(measures, emberl_tally:info(Tally))),
    ?assertMatch([#{mfa := {lists, seq_loop, 3}, calls := 5, time_ns := _}],
                 emberl_tally:rows(Tally)).

one_type_is_counted_by_the_vm_test() ->
    {_, Tally} = profile(fun() -> lists:seq(1, 16) end, #{type => call_time}),
    ?assertMatch(#{engine := counters, measures := [call_time]}, emberl_tally:info(Tally)),
    [?assertEqual([calls, mfa, process, time_ns], lists:sort(maps:keys(Row)))
     || Row <- emberl_tally:rows(Tally)].

words_are_had_on_each_release_test() ->
    {_, Tally} = profile(fun() -> lists:seq(1, 16) end, #{type => call_memory}),
    ?assertEqual(case has_words() of true -> counters; false -> tracer end,
                 maps:get(engine, emberl_tally:info(Tally))),
    ?assertEqual([{{lists, seq_loop, 3}, 5, 32}],
                 [Row || {{lists, _, _}, _, W} = Row <- rows(Tally), W > 0]).

refused(Key, Options) ->
    Flag = make_ref(),
    ?assertError({bad_option, Key, <<_, _/binary>>},
                 emberl:profile(fun() -> self() ! Flag end, Options)),
    receive Flag -> error(was_run) after 0 -> ok end.

contradictions_are_refused_test() ->
    refused(stacks, #{engine => counters, stacks => true}),
    refused(rootset, #{stacks => true, rootset => [init]}),
    refused(pattern, #{engine => tracer, pattern => {lists, seq, 2}}).

%% ---- bad input ----

options_are_checked_test() ->
    [refused(Key, #{Key => Value})
     || {Key, Value} <- [{type, time}, {type, 1}, {stacks, 1}, {engine, eprof}, {pattern, lists},
                         {pattern, []}, {pattern, {'_', seq, '_'}}, {pattern, {lists, '_', 2}},
                         {pattern, {emberl, '_', '_'}},
                         {pattern, [{lists, seq, 2} | x]}, {pattern, {lists, seq, 1.0}},
                         {set_on_spawn, 1}, {rootset, [no_such_process]}, {rootset, 1},
                         {rootset, {parents, init}},
                         {timeout, 0}, {timeout, -1}, {timeout, forever}, {report, all},
                         {report, {process, size}},
                         {device, "x"}, {registered, false}]],
    [refused(Options, Options) || Options <- [not_a_map]].

processes_that_died_are_refused_test() ->
    Pid = spawn(fun() -> ok end),
    emberl_test:wait_dead(Pid),
    refused(rootset, #{rootset => [Pid]}).

what_is_not_there_is_refused_test() ->
    refused(pattern, #{pattern => {no_such_module, '_', '_'}}),
    refused(pattern, #{pattern => {lists, no_such_function, '_'}}),
    refused(pattern, #{pattern => {lists, seq, 17}}).

a_module_of_a_pattern_is_loaded_test() ->
    emberl_test:unload(emberl_work_other),
    ?assertNot(erlang:module_loaded(emberl_work_other)),
    {_, Tally} = profile(fun() -> emberl_work_other:module_info(module) end,
                         #{type => call_time, pattern => {emberl_work_other, '_', '_'}}),
    ?assertMatch([#{mfa := {emberl_work_other, module_info, 1}, calls := 1}],
                 emberl_tally:rows(Tally)).

targets_are_checked_test() ->
    ?assertError({bad_target, _, _}, emberl:profile(fun(X) -> X end)),
    ?assertError({bad_target, _, _}, emberl:profile(lists, no_such_function, [1])),
    ?assertError({bad_target, _, _}, emberl:profile(lists, seq, [1 | 2])).

%% ---- nothing is lost ----

each_engine(Test) ->
    [{atom_to_list(Engine), fun() -> Test(#{engine => Engine, pattern => {?MODULE, '_', '_'}}) end}
     || Engine <- engines()].

values_are_returned_test_() ->
    each_engine(fun(Options) ->
                        {Value, Text} = emberl_test:quiet(fun() ->
                            emberl:profile(?MODULE, ends_in, [value], Options)
                        end),
                        ?assertEqual([1, 2, 3], Value),
                        ?assertMatch({_, _}, binary:match(Text, <<"emberl_adhoc_tests:ends_in/1">>))
                end).

exceptions_are_raised_test_() ->
    each_engine(fun(Options) ->
                        {_, Text} = emberl_test:quiet(
                                      fun() ->
                                              ?assertError(oops, emberl:profile(?MODULE, ends_in,
                                                                                [error], Options)),
                                              ?assertExit(oops, emberl:profile(?MODULE, ends_in,
                                                                               [exit], Options)),
                                              ?assertThrow(oops, emberl:profile(?MODULE, ends_in,
                                                                                [throw], Options))
                                      end),
                        ?assertEqual(3, length(binary:matches(Text, <<"it raised">>)))
                end).

exceptions_are_told_test_() ->
    each_engine(fun(Options) ->
                        Return = Options#{report => return},
                        {Error, Tally} = emberl:profile(?MODULE, ends_in, [error], Return),
                        ?assertMatch({'EXIT', {oops, _}}, Error),
                        ?assertMatch(#{outcome := {error, oops, _}}, emberl_tally:info(Tally)),
                        ?assertMatch({{'EXIT', oops}, _},
                                     emberl:profile(?MODULE, ends_in, [exit], Return)),
                        ?assertMatch({{'EXIT', {{nocatch, oops}, _}}, _},
                                     emberl:profile(?MODULE, ends_in, [throw], Return)),
                        [?assertMatch(#{calls := 1}, Row) || Row <- emberl_tally:rows(Tally)]
                end).

a_killed_process_is_told_test_() ->
    each_engine(fun(Options) ->
                        Killed = fun() -> exit(self(), kill), receive after infinity -> ok end end,
                        {_, Tally} = profile(Killed, Options),
                        ?assertMatch(#{outcome := {killed, killed}}, emberl_tally:info(Tally)),
                        {_, Text} = emberl_test:quiet(fun() ->
                            ?assertExit(killed, emberl:profile(Killed, Options))
                        end),
                        ?assertMatch({_, _}, binary:match(Text, <<"killed">>))
                end).

a_timeout_stops_who_traps_exits_test_() ->
    each_engine(fun(Options) ->
                        Me = self(),
                        Stubborn = fun() ->
                                           process_flag(trap_exit, true),
                                           Me ! {worker, self()},
                                           stay()
                                   end,
                        {{'EXIT', timeout}, Tally} = profile(Stubborn, Options#{timeout => 50}),
                        ?assertMatch(#{outcome := timeout}, emberl_tally:info(Tally)),
                        receive {worker, Pid} -> ?assertNot(is_process_alive(Pid)) end,
                        ?assertNotEqual([], emberl_tally:rows(Tally)),
                        emberl_test:quiet(fun() ->
                            ?assertError({timeout, 50},
                                         emberl:profile(Stubborn, Options#{timeout => 50}))
                        end)
                end).

stay() ->
    receive stop -> ok; _ -> stay() end.

a_device_that_is_gone_loses_no_value_test() ->
    Device = spawn(fun() -> receive stop -> ok end end),
    logger:set_primary_config(level, none),
    ?assertEqual(value, emberl:profile(fun() ->
                                               exit(Device, kill),
                                               emberl_test:wait_dead(Device),
                                               value
                                       end, #{device => Device, type => call_time})),
    logger:set_primary_config(level, notice).

%% ... and is looked at before anything is done.
a_device_is_checked_test() ->
    Dead = spawn(fun() -> ok end),
    emberl_test:wait_dead(Dead),
    Never = fun() -> error(was_run) end,
    [begin
         ?assertError({bad_option, device, _}, emberl:profile(Never, #{device => Device})),
         ?assertError({bad_option, device, _}, emberl:record(1, #{device => Device}))
     end || Device <- [Dead, no_such_device, "file", 17]],
    ?assertError({bad_option, sort, _},
                 emberl:profile(Never, #{type => call_count, report => {total, words}})),
    ?assertError({bad_option, sort, _},
                 emberl:record(1, #{type => call_time, report => {total, words}})).

%% ---- emberl is stopped meanwhile ----

%% The value is there, and a note says what is not.
stopped_meanwhile_test_() ->
    [{atom_to_list(Engine) ++ " " ++ Name,
      {timeout, 60, fun() -> stopped_meanwhile(Options#{engine => Engine}, End) end}}
     || {Engine, Options} <- [{tracer, #{type => all}}, {counters, #{type => call_count}},
                              {counters, #{type => call_time}}],
        {Name, End} <- [{"emberl:stop/0", fun emberl:stop/0},
                        {"application:stop/1", fun() -> application:stop(emberl) end}]]
    ++ [{"the server is killed",
         {timeout, 60, fun() -> stopped_meanwhile(#{engine => tracer}, fun kill_control/0) end}}].

stopped_meanwhile(Options, End) ->
    logger:set_primary_config(level, none),
    Run = fun() ->
                  emberl_work:pair(1),
                  Ended = emberl_test:in_process(End),
                  emberl_work:pair(2),
                  {ended, Ended}
          end,
    {{ended, _}, Tally} = emberl:profile(Run, Options#{report => return}),
    {ok, Text} = emberl_test:quiet(fun() -> {ended, _} = emberl:profile(Run, Options), ok end),
    logger:set_primary_config(level, notice),
    ?assertMatch(#{notes := [_ | _]}, emberl_tally:info(Tally)),
    ?assertMatch({_, _}, binary:match(Text, <<"note: ">>)),
    {ok, _} = application:ensure_all_started(emberl).

kill_control() ->
    Control = whereis(emberl_control),
    exit(Control, kill),
    emberl_test:wait_until(fun() ->
        is_pid(whereis(emberl_control)) andalso whereis(emberl_control) =/= Control
    end).

%% What there was is given.
stopped_profiles_are_marked_test() ->
    {ok, Tally} = emberl:profile(fun() -> emberl_work:pair(1), emberl:stop(), ok end,
                                 #{stacks => true, report => return}),
    {ok, Profile} = emberl_tally:profile(Tally),
    ?assertMatch(#{cut_by := stopped}, emberl_profile:info(Profile)),
    ?assertMatch([_],
                 [C || #{mfa := {emberl_work, pair, 1}, calls := C} <- emberl_tally:rows(Tally),
                       C =:= 1]).

%% Processes that run our own code show none of it.
the_callers_are_not_in_it_test() ->
    Tally = emberl:record(20, #{rootset => [self()], stacks => false, report => return}),
    ?assertEqual([], [M || #{mfa := {M, _, _}} <- emberl_tally:rows(Tally),
                           lists:member(M, emberl_trace:own_modules())]),
    {_, Other} = emberl:profile(fun() -> emberl_work:pair(1) end,
                                #{rootset => [self()], type => call_time, report => return}),
    ?assertEqual([], [M || #{mfa := {M, _, _}} <- emberl_tally:rows(Other),
                           lists:member(M, emberl_trace:own_modules())]).

words_that_the_vm_does_not_count_are_told_of_test() ->
    Notes = maps:get(notes,
                     emberl_tally:info(emberl:record(1, #{stacks => false, report => return}))),
    ?assertEqual(emberl_test:release() < 26,
                 [] =/= [Note || Note <- Notes, nomatch =/= binary:match(Note, <<"words">>)]).

%% ---- which processes ----

not_those_it_spawns_test_() ->
    each_engine(fun(Options) ->
                        Run = fun(Spawned) ->
                                      {_, Tally} =
                                          emberl:profile(?MODULE, spawns, [],
                                                         Options#{report => return,
                                                                  set_on_spawn => Spawned}),
                                      length(lists:usort([P || #{process := P}
                                                                   <- emberl_tally:rows(Tally)]))
                              end,
                        ?assertEqual({1, 2}, {Run(false), Run(true)})
                end).

others_too_test() ->
    {ok, Server} = gen_server:start({local, emberl_adhoc_test_server}, emberl_test_server, [], []),
    {_, Tally} = profile(fun() -> gen_server:call(Server, {add, 1}) end,
                         #{rootset => [emberl_adhoc_test_server], type => call_time,
                           pattern => {gen_server, '_', '_'}}),
    Mine = emberl_tally:rows(emberl_tally:filter(Tally, #{process => emberl_adhoc_test_server})),
    ?assertMatch([_ | _], Mine),
    ?assertEqual(#{name => <<"emberl_adhoc_test_server">>},
                 maps:with([name], maps:get(Server, emberl_tally:processes(Tally)))),
    gen_server:stop(Server).

the_profiler_is_not_in_it_test_() ->
    {timeout, 60, fun() ->
        {_, Tally} = profile(fun() -> emberl_work:pair(1) end, #{type => call_time}),
        ?assertEqual([{?MODULE, '-the_profiler_is_not_in_it_test_/0-fun-0-', 0},
                      {emberl_work, leaf, 1}, {emberl_work, pair, 1}],
                     lists:sort([MFA || #{mfa := MFA} <- emberl_tally:rows(Tally)]))
    end}.

%% ---- nothing is left behind ----

nothing_is_left_behind_test() ->
    profile(fun() -> emberl_work:pair(1) end, #{type => call_time}),
    ?assertEqual({call_count, false}, erlang:trace_info({emberl_work, pair, 1}, call_count)),
    ?assertEqual(undefined, whereis(emberl_counters)),
    ?assertEqual({ok, {1, 1}}, emberl_test:works()).

the_run_ends_with_its_caller_test() ->
    Me = self(),
    Caller = spawn(fun() ->
                           profile(fun() ->
                                           Me ! {lasting, self()},
                                           process_flag(trap_exit, true),
                                           stay()
                                   end, #{type => call_time, pattern => {?MODULE, '_', '_'}})
                   end),
    Worker = receive {lasting, Pid} -> Pid end,
    Monitor = monitor(process, Worker),
    exit(Caller, kill),
    receive {'DOWN', Monitor, process, Worker, Reason} -> ?assertEqual(killed, Reason) end,
    emberl_test:wait_until(fun() -> whereis(emberl_counters) =:= undefined end),
    {ok, _} = profile(fun() -> ok end, #{type => call_time, pattern => {?MODULE, '_', '_'}}).

another_tracer_is_left_alone_test() ->
    Tracer = spawn(fun stay/0),
    Traced = spawn(fun stay/0),
    erlang:trace(Traced, true, [send, {tracer, Tracer}]),
    Profile = fun() -> profile(fun() -> emberl_work:pair(1) end, #{type => call_time}) end,
    case emberl_test:has_sessions() of
        true -> ?assertMatch({{1, 1}, _}, Profile());
        false -> ?assertError({other_tracer, {process, Traced, Tracer}}, Profile())
    end,
    ?assertEqual({tracer, Tracer}, erlang:trace_info(Traced, tracer)),
    [exit(Pid, kill) || Pid <- [Tracer, Traced]].

another_counter_is_left_alone_test() ->
    erlang:trace_pattern({emberl_work, leaf, 1}, true, [call_count]),
    Profile = fun() ->
                      profile(fun() -> emberl_work:pair(1) end,
                              #{type => call_time, pattern => {emberl_work, '_', '_'}})
              end,
    case emberl_test:has_sessions() of
        true ->
            ?assertMatch({{1, 1}, _}, Profile()),
            ?assertEqual({call_count, 2}, erlang:trace_info({emberl_work, leaf, 1}, call_count));
        false ->
            ?assertError({other_tracer, {function, {emberl_work, leaf, 1}}}, Profile()),
            ?assertEqual({call_count, 0}, erlang:trace_info({emberl_work, leaf, 1}, call_count))
    end,
    erlang:trace_pattern({emberl_work, leaf, 1}, false, [call_count]).

%% ---- recording ----

counted_loops_are_recorded_test() ->
    Busy = emberl_test:busy(fun() -> emberl_work:pair(1) end),
    Tally = emberl:record(100,
                          #{rootset => [Busy], report => return, pattern => {emberl_work, '_', '_'},
                            type => call_time, stacks => false}),
    emberl_test:stop(Busy),
    ?assertMatch(#{engine := counters, outcome := none, target := <<"record">>},
                 emberl_tally:info(Tally)),
    ?assert(maps:get(duration_ns, emberl_tally:info(Tally)) >= 100000000),
    is_pairs(Tally, Busy).

is_pairs(Tally, Busy) ->
    Calls = maps:from_list([{F, C} || #{process := P, mfa := {_, F, _}, calls := C}
                                          <- emberl_tally:rows(Tally), P =:= Busy]),
    #{pair := Pairs, leaf := Leaves} = Calls,
    ?assert(Pairs > 0),
    ?assert(abs(Leaves - 2 * Pairs) =< 2).

endless_loops_are_recorded_test() ->
    Busy = emberl_test:busy(fun() -> emberl_work:pair(1) end),
    Tally = emberl:record(50, #{rootset => Busy, report => return}),
    emberl_test:stop(Busy),
    ?assertMatch(#{engine := tracer, outcome := none, target := <<"record">>},
                 emberl_tally:info(Tally)),
    ?assert(maps:get(duration_ns, emberl_tally:info(Tally)) >= 50000000),
    is_pairs(Tally, Busy),
    {ok, Profile} = emberl_tally:profile(Tally),
    Stacks = emberl_profile:stacks(Profile),
    ?assertEqual([], [M || #{stack := Stack} <- Stacks, {M, _, _} <- Stack,
                           lists:member(M, emberl_trace:own_modules())]),
    ?assertMatch([_ | _], [S || #{stack := S, calls := C} <- Stacks, C > 0,
                                lists:suffix([{emberl_work, pair, 1}, {emberl_work, leaf, 1}], S)]).

recordings_are_printed_test() ->
    Busy = emberl_test:busy(fun() -> emberl_work:pair(1) end),
    [begin
         {ok, Text} = emberl_test:quiet(fun() ->
             emberl:record(50, #{pattern => {emberl_work, '_', '_'}, stacks => Stacks})
         end),
         ?assertMatch({_, _}, binary:match(Text, <<"emberl_work:pair/1">>)),
         ?assertMatch(nomatch, binary:match(Text, <<"emberl_control:">>))
     end || Stacks <- [true, false]],
    emberl_test:stop(Busy).

%% A supervisor, what it has started, and theirs; without the caller, who only waits.
trees_are_recorded_test() ->
    Profile = emberl:record(20, #{rootset => {all_children, kernel_sup}, return => profile}),
    Pids = [Pid || #{pid := Pid} <- emberl_profile:processes(Profile)],
    ?assert(lists:member(whereis(code_server), Pids)),
    ?assertNot(lists:member(whereis(kernel_sup), Pids)),
    All =
        [Pid || #{pid := Pid} <- emberl_profile:processes(emberl:record(20, #{return => profile}))],
    ?assert(lists:member(whereis(kernel_sup), All)),
    ?assertNot(lists:member(self(), All)),
    [?assert(Waiting > 0)
     || #{process := Pid, stack := [_ | _], waiting_ns := Waiting}
            <- emberl_profile:stacks(Profile), Pid =:= whereis(kernel_safe_sup)].

recordings_are_returned_test() ->
    Options = #{rootset => [code_server], quiet => true},
    ?assertMatch(#{outcome := recorded, cut_by := none, complete := true},
                 emberl_profile:info(emberl:record(20, Options#{return => profile}))),
    ?assertMatch(#{result := {ok, ok}, profile := _}, emberl:record(20, Options#{return => data})),
    ?assertMatch({_, _}, binary:match(iolist_to_binary(
                                        emberl:record(20,
                                                      Options#{return => flamegraph,
                                                               output_format => brendan_gregg})),
                                      <<"code_server">>)),
    emberl_test:with_directory(
      fun(Directory) ->
              File = emberl:record(20, Options#{return => filename, output_directory => Directory,
                                                output_format => ember}),
              {ok, Read} = emberl_profile:load(File),
              ?assertMatch(#{outcome := recorded, target := <<"record">>},
                           emberl_profile:info(Read))
      end).

recordings_are_checked_test() ->
    [?assertError({bad_timeout, Ms, _}, emberl:record(Ms)) || Ms <- [0, -1, infinity, a]],
    [?assertError({bad_option, Key, _}, emberl:record(1, Options))
     || {Key, Options} <- [{timeout, #{timeout => 1}},
                           {merge, #{merge => true}},
                           {keep, #{keep => {slower_than, 1}}},
                           {return, #{return => value}},
                           {return, #{return => what}},
                           {engine, #{engine => counters, return => profile}},
                           {stacks, #{engine => counters, stacks => true}},
                           {stacks, #{stacks => false, return => profile}},
                           {stacks, #{stacks => perhaps}},
                           {rootset, #{rootset => new, stacks => true}},
                           {rootset, #{rootset => all, engine => tracer}},
                           {rootset, #{rootset => [no_such_process]}},
                           {pattern, #{pattern => {emberl_work, pair, 1}, stacks => true}},
                           {no_such_option, #{no_such_option => 1}}]],
    ?assertMatch(#{engine := counters},
                 emberl_tally:info(emberl:record(1, #{pattern => {emberl_work, pair, 1},
                                                      report => return}))).

%% What is not shown is there, and all of it that is there is not shown.
own_modules_test() ->
    {ok, Files} = file:list_dir(filename:dirname(code:which(emberl))),
    Modules = [list_to_atom(filename:basename(File, ".beam"))
               || File <- Files, filename:extension(File) =:= ".beam"],
    ?assertEqual([emberl_calibrate], lists:sort(Modules) -- emberl_trace:own_modules()),
    ?assertEqual([], emberl_trace:own_modules() -- Modules).
