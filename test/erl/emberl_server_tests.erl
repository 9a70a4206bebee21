%% SPDX-License-Identifier: Apache-2.0
%% Counting on a running system.
-module(emberl_server_tests).

-include_lib("eunit/include/eunit.hrl").

-define(WORK, {emberl_work, '_', '_'}).

server_test_() ->
    {foreach, fun() -> {module, _} = code:ensure_loaded(emberl_work) end, fun(_) -> stop() end,
     [{Name, {timeout, 60, Test}} || {Name, Test} <- tests()]}.

stop() ->
    whereis(emberl_server) =:= undefined orelse emberl_server:stop().

tests() ->
    [{"counts the chosen functions of the chosen processes", fun chosen/0},
     {"patterns add up and are taken back", fun patterns/0},
     {"patterns without functions are refused", fun no_functions/0},
     {"all functions", fun all_functions/0},
     {"a new pattern keeps the numbers", fun new_pattern/0},
     {"pausing and going on", fun pausing/0},
     {"restarting", fun restarting/0},
     {"processes by name, list and family", fun chosen_processes/0},
     {"new processes", fun new_processes/0},
     {"spawned processes or not", fun spawned/0},
     {"a disabled process keeps its numbers", fun disabled/0},
     {"calls alone are of all processes", fun calls_alone/0},
     {"options are checked", fun options/0},
     {"one server of that name", fun one_of_the_name/0},
     {"a killed server leaves nothing", fun killed/0},
     {"code that is loaded anew", fun reloaded/0},
     {"code that is loaded later", fun loaded_later/0},
     {"several at once", fun several/0},
     {"beside captures", fun beside_captures/0},
     {"a name in place of a pid", fun named/0},
     {"words in two sessions", fun words_twice/0},
     {"emberl:stop/0 stops it", fun() -> all_stopped(fun emberl:stop/0) end},
     {"the application's end stops it",
      fun() -> all_stopped(fun() -> application:stop(emberl) end) end},
     {"it is known again", fun known_again/0},
     {"is like tprof", fun like_tprof/0}].

start(Type) ->
    {ok, Server} = emberl_server:start(#{type => Type}),
    Server.

set({M, F, A}) -> emberl_server:set_pattern(M, F, A).

%% {Function, Calls} of emberl_work in this process.
calls() -> calls(self()).

calls(Process) -> calls(Process, emberl_server:collect()).

calls(Process, Tally) ->
    lists:sort([{F, Calls} || #{process := P, mfa := {emberl_work, F, _}, calls := Calls}
                                  <- emberl_tally:rows(Tally), P =:= Process]).

%% ---- functions ----

chosen() ->
    start(call_time),
    ?assertEqual(length(emberl_work:module_info(functions)), set(?WORK)),
    ?assertEqual(1, emberl_server:enable_trace(self())),
    emberl_work:pairs(5),
    emberl_test:in_process(fun() -> emberl_work:pairs(7) end),
    Tally = emberl_server:collect(),
    ?assertEqual([{leaf, 10}, {pair, 5}, {pairs, 6}], calls(self(), Tally)),
    ?assertMatch(#{engine := counters, measures := [call_time], outcome := none, notes := []},
                 emberl_tally:info(Tally)).

patterns() ->
    start(call_time),
    ?assertEqual(#{}, emberl_server:get_trace_map()),
    ?assertEqual(2, set({lists, seq, '_'})),
    ?assertEqual(1, set({lists, keyfind, 3})),
    ?assertEqual(#{lists => [{keyfind, 3}, {seq, 2}, {seq, 3}]}, emberl_server:get_trace_map()),
    ?assertEqual(1, emberl_server:clear_pattern(lists, seq, 3)),
    ?assertEqual(#{lists => [{keyfind, 3}, {seq, 2}]}, emberl_server:get_trace_map()),
    ?assertEqual({error, {not_traced, maps, get, 2}}, emberl_server:clear_pattern(maps, get, 2)),
    emberl_server:clear_pattern('_', '_', '_'),
    ?assertEqual(#{}, emberl_server:get_trace_map()).

no_functions() ->
    start(call_time),
    [?assertMatch({error, {bad_option, pattern, _}}, set(Pattern))
     || Pattern <- [{no_such_module, '_', '_'}, {lists, no_such_function, '_'}, {lists, seq, 9},
                    {'_', seq, 2}, {emberl_server, '_', '_'}, {1, 2, 3}]].

all_functions() ->
    start(call_time),
    ?assert(set({'_', '_', '_'}) > 1000),
    ?assertEqual(all, emberl_server:get_trace_map()),
    emberl_server:enable_trace(self()),
    emberl_work:pair(1),
    ?assertEqual([{leaf, 2}, {pair, 1}], calls()),
    emberl_server:clear_pattern(emberl_work, pair, 1),
    #{emberl_work := Left} = emberl_server:get_trace_map(),
    ?assertNot(lists:member({pair, 1}, Left)),
    emberl_work:pair(1),
    ?assertEqual([{leaf, 4}], calls()).

new_pattern() ->
    start(call_time),
    set({emberl_work, leaf, 1}),
    emberl_server:enable_trace(self()),
    emberl_work:pair(1),
    set(?WORK),
    emberl_work:pair(1),
    set({'_', '_', '_'}),
    emberl_work:pair(1),
    ?assertEqual([{leaf, 6}, {pair, 2}], calls()).

%% ---- the numbers ----

pausing() ->
    start(call_time),
    set(?WORK),
    emberl_server:enable_trace(self()),
    ?assertEqual(not_paused, emberl_server:continue()),
    emberl_work:pair(1),
    ?assertEqual(ok, emberl_server:pause()),
    ?assertEqual(not_running, emberl_server:pause()),
    emberl_work:pair(1),
    ?assertEqual([{leaf, 2}, {pair, 1}], calls()),
    ?assertEqual(ok, emberl_server:continue()),
    emberl_work:pair(1),
    ?assertEqual([{leaf, 4}, {pair, 2}], calls()).

restarting() ->
    start(call_time),
    set(?WORK),
    emberl_server:enable_trace(self()),
    emberl_work:pair(1),
    ?assertEqual(ok, emberl_server:restart()),
    ?assertEqual([], calls()),
    emberl_work:pair(1),
    emberl_server:pause(),
    emberl_server:restart(),
    emberl_work:leaf(1),
    ?assertEqual([{leaf, 1}], calls()).

reloaded() ->
    Code = [emberl_test:compile(emberl_server_reloaded,
                                ["f(X) -> {X, " ++ integer_to_list(N) ++ "}."])
            || N <- [1, 2]],
    Load = fun(C) -> code:purge(emberl_server_reloaded),
                     {module, _} = code:load_binary(emberl_server_reloaded, "nowhere", C) end,
    Load(hd(Code)),
    start(call_time),
    set({emberl_server_reloaded, '_', '_'}),
    emberl_server:enable_trace(self()),
    Call = fun(N) -> [emberl_server_reloaded:f(X) || X <- lists:seq(1, N)] end,
    Calls = fun() ->
                    T = emberl_server:collect(),
                    {[C || #{mfa := {_, f, 1}, calls := C} <- emberl_tally:rows(T)],
                     maps:get(notes, emberl_tally:info(T))}
            end,
    Call(10),
    receive after 2500 -> ok end, % it has been read meanwhile
    Load(lists:last(Code)),
    {[10], [Note]} = Calls(),
    ?assertMatch({_, _}, binary:match(Note, <<"emberl_server_reloaded was loaded anew">>)),
    Call(5),
    ?assertMatch({[15], [_]}, Calls()),
    emberl_test:unload(emberl_server_reloaded).

loaded_later() ->
    emberl_test:unload(emberl_work_other),
    start(call_time),
    set({'_', '_', '_'}),
    emberl_server:enable_trace(self()),
    {module, _} = code:ensure_loaded(emberl_work_other),
    emberl_work_other:module_info(module),
    Tally = emberl_server:collect(),
    ?assertMatch([_],
                 [1 || #{mfa := {emberl_work_other, module_info, 1}} <- emberl_tally:rows(Tally)]),
    ?assertEqual([], maps:get(notes, emberl_tally:info(Tally))).

%% ---- processes ----

worker() ->
    emberl_test:busy(fun() -> emberl_work:pair(1) end).

is_counted(Pid) ->
    emberl_test:wait_until(fun() -> calls(Pid) =/= [] end).

chosen_processes() ->
    start(call_time),
    set(?WORK),
    [A, B] = Workers = [worker(), worker()],
    register(emberl_server_worker, A),
    ?assertEqual(1, emberl_server:enable_trace(emberl_server_worker)),
    is_counted(A),
    ?assertEqual([], calls(B)),
    Dead = spawn(fun() -> ok end),
    emberl_test:wait_dead(Dead),
    ?assertEqual({2, [no_such_process, Dead]},
                 emberl_server:enable_trace([emberl_server_worker, no_such_process, B, Dead])),
    is_counted(B),
    [?assertError({bad_option, rootset, _}, emberl_server:enable_trace(Bad))
     || Bad <- [Dead, no_such_process, {children, no_such_process},
                {all_children, Dead}, "no process", [self() | no_list], [1], 17, #{}]],
    ?assertEqual(0, emberl_server:disable_trace(Dead)),
    ?assertEqual(length(children(self())), emberl_server:disable_trace({children, self()})),
    ?assertMatch(#{A := #{name := <<"emberl_server_worker">>}},
                 emberl_tally:processes(emberl_server:collect())),
    Before = calls(A),
    ?assertEqual(Before, calls(A)),
    Children = length(children(whereis(kernel_sup))),
    ?assertEqual(Children, emberl_server:enable_trace({children, kernel_sup})),
    ?assert(emberl_server:enable_trace({all_children, kernel_sup}) > Children),
    ?assertError({bad_option, rootset, _}, emberl_server:enable_trace({parents, self()})),
    ?assertError({bad_option, _, _}, emberl_server:enable_trace(self(), #{set_on_spwan => true})),
    ?assert(emberl_server:disable_trace(existing) > 2),
    [emberl_test:stop(Pid) || Pid <- Workers].

children(Parent) ->
    [P || P <- erlang:processes(), erlang:process_info(P, parent) =:= {parent, Parent}].

new_processes() ->
    start(call_time),
    set(?WORK),
    Old = worker(),
    emberl_server:enable_trace(new),
    New = worker(),
    is_counted(New),
    ?assertEqual([], calls(Old)),
    emberl_server:disable_trace(new),
    emberl_server:enable_trace(all),
    is_counted(Old),
    [emberl_test:stop(Pid) || Pid <- [Old, New]].

spawned() ->
    start(call_time),
    set(?WORK),
    Fork = fun() -> emberl_test:in_process(fun() -> emberl_work:leaf(1) end) end,
    Processes = fun() ->
                        length([1 || #{mfa := {_, leaf, 1}}
                                         <- emberl_tally:rows(emberl_server:collect())])
                end,
    emberl_server:enable_trace(self(), #{set_on_spawn => false}),
    Fork(),
    ?assertEqual(0, Processes()),
    emberl_server:enable_trace(self()),
    Fork(),
    ?assertEqual(1, Processes()).

disabled() ->
    start(call_time),
    set(?WORK),
    emberl_server:enable_trace(self()),
    emberl_work:pair(1),
    emberl_server:disable_trace(self()),
    emberl_work:pair(1),
    ?assertEqual([{leaf, 2}, {pair, 1}], calls()).

calls_alone() ->
    start(call_count),
    set(?WORK),
    emberl_test:in_process(fun() -> emberl_work:pairs(2) end),
    emberl_work:pairs(3),
    ?assertEqual([{leaf, 10}, {pair, 5}, {pairs, 7}], calls(all)),
    emberl_server:pause(),
    emberl_work:pairs(3),
    emberl_server:continue(),
    emberl_work:leaf(1),
    ?assertEqual([{leaf, 11}, {pair, 5}, {pairs, 7}], calls(all)).

%% ---- servers ----

options() ->
    [?assertMatch({error, {bad_option, Key, _}}, emberl_server:start(#{Key => Value}))
     || {Key, Value} <- [{type, time}, {session, "x"}, {sesion, x}]],
    lists:member(call_memory, emberl_counters:supported())
        orelse ?assertMatch({error, {bad_option, type, _}},
                            emberl_server:start(#{type => call_memory})),
    {ok, _} = emberl_server:start(),
    ?assertEqual(emberl_counters:supported(),
                 maps:get(measures, emberl_tally:info(emberl_server:collect()))).

one_of_the_name() ->
    Server = start(call_count),
    ?assertEqual({error, {already_started, Server}}, emberl_server:start(#{type => call_time})).

killed() ->
    Server = start(call_time),
    set(?WORK),
    emberl_server:enable_trace(self()),
    exit(Server, kill),
    emberl_test:wait_dead(Server),
    emberl_test:wait_until(fun() -> whereis(emberl_counters) =:= undefined end),
    ?assertEqual({call_count, false}, erlang:trace_info({emberl_work, leaf, 1}, call_count)),
    start(call_time),
    set(?WORK),
    emberl_work:pair(1),
    ?assertEqual([], calls()),
    emberl_server:enable_trace(self()),
    emberl_work:pair(1),
    ?assertEqual([{leaf, 2}, {pair, 1}], calls()).

several() ->
    {ok, One} = emberl_server:start(#{type => call_time, session => one}),
    case emberl_test:has_sessions() of
        true -> several(One);
        false -> ?assertMatch({error, {other_tracer, {process, _}}},
                              emberl_server:start(#{type => call_time}))
    end,
    emberl_server:stop(One).

several(One) ->
    {ok, Two} = emberl_server:start(#{type => call_count, session => two}),
    emberl_server:set_pattern(One, emberl_work, leaf, 1),
    emberl_server:set_pattern(Two, emberl_work, pair, 1),
    emberl_server:enable_trace(One, self(), #{}),
    emberl_work:pair(1),
    {_, Profiled} = emberl:profile(fun() -> emberl_work:pair(1) end,
                                   #{type => call_memory, report => return}),
    ?assertEqual([], calls(self(), Profiled)),
    ?assertEqual([{leaf, 2}], calls(self(), emberl_server:collect(One))),
    ?assertEqual([{pair, 2}], calls(all, emberl_server:collect(Two))),
    emberl_server:stop(Two),
    emberl_work:pair(1),
    ?assertEqual([{leaf, 4}], calls(self(), emberl_server:collect(One))).

beside_captures() ->
    emberl_calibrate:ensure(),
    Server = start(call_time),
    set(?WORK),
    emberl_server:enable_trace(self()),
    case emberl_test:has_sessions() of
        true ->
            Profile = emberl_test:profile({emberl_work, pairs, [3]}),
            ?assertEqual(#{leaf => 6, pair => 3, pairs => 4},
                         maps:from_list(in_work(emberl_test:calls(Profile)))),
            ?assertEqual([{leaf, 6}, {pair, 3}, {pairs, 4}], calls());
        false ->
            ?assertError({other_tracer, {process, _}},
                         emberl_test:profile({emberl_work, pairs, [3]})),
            emberl_server:stop(),
            {ok, Capture} = emberl:start_capture({emberl_work, pair, 1}),
            ?assertMatch({error, {other_tracer, _}}, emberl_server:start()),
            emberl:stop(Capture)
    end,
    is_process_alive(Server) orelse start(call_time).

in_work(Calls) ->
    [{F, N} || {{emberl_work, F, _}, N} <- maps:to_list(Calls)].

%% Whatever takes a server takes its registered name.
named() ->
    {ok, Pid} = emberl_server:start(#{type => call_count, session => some_session}),
    register(my_server, Pid),
    1 = emberl_server:set_pattern(my_server, emberl_work, pair, '_'),
    ?assertMatch(#{emberl_work := _}, emberl_server:get_trace_map(my_server)),
    ?assertEqual(1, emberl_server:enable_trace(my_server, self(), #{})),
    emberl_work:pair(1),
    ?assertMatch([#{calls := 1}], emberl_tally:rows(emberl_server:collect(my_server))),
    ?assertEqual(ok, emberl_server:pause(my_server)),
    ?assertEqual(ok, emberl_server:continue(my_server)),
    ?assertEqual(ok, emberl_server:restart(my_server)),
    ?assertEqual(1, emberl_server:disable_trace(my_server, self(), #{})),
    ?assertEqual(1, emberl_server:clear_pattern(my_server, emberl_work, pair, '_')),
    ?assertEqual(ok, emberl_server:stop(my_server)).

%% The VM counts wrongly for the first of them; that is told of both.
words_twice() ->
    emberl_test:has_sessions() andalso words_twice([['_'], ['_']], true),
    emberl_test:has_sessions() andalso words_twice([[pairs], [leaf]], false).

words_twice(Sets, Shared) ->
    Servers = [words_server(Functions) || Functions <- Sets],
    emberl_work:pairs(3),
    Notes = [maps:get(notes, emberl_tally:info(emberl_server:collect(Server)))
             || Server <- Servers],
    [emberl_server:stop(Server) || Server <- Servers],
    [?assertEqual(Shared,
                  [] =/= [N || N <- Each, nomatch =/= binary:match(N, <<"words are doubtful">>)])
     || Each <- Notes].

words_server(Functions) ->
    {ok, Server} = emberl_server:start(#{type => call_memory, session => words_twice}),
    [emberl_server:set_pattern(Server, emberl_work, Function, '_') || Function <- Functions],
    1 = emberl_server:enable_trace(Server, self(), #{}),
    Server.

all_stopped(Stop) ->
    logger:set_primary_config(level, none),
    Servers = [start(call_time) | [element(2, {ok, _} = emberl_server:start(#{session => S}))
                                   || S <- [one, two], emberl_test:has_sessions()]],
    set(?WORK),
    ok = Stop(),
    [?assertNot(is_process_alive(Server)) || Server <- Servers],
    ?assertEqual({call_time, false}, erlang:trace_info({emberl_work, leaf, 1}, call_time)),
    {ok, _} = application:ensure_all_started(emberl),
    logger:set_primary_config(level, notice).

%% A control that was killed has another, which knows the servers too.
known_again() ->
    logger:set_primary_config(level, none),
    Server = start(call_time),
    Control = whereis(emberl_control),
    exit(Control, kill),
    emberl_test:wait_until(fun() ->
        is_pid(whereis(emberl_control)) andalso whereis(emberl_control) =/= Control
    end),
    ?assert(is_process_alive(Server)),
    emberl_test:wait_until(fun() -> ok =:= emberl:stop() andalso not is_process_alive(Server) end),
    logger:set_primary_config(level, notice).

like_tprof() ->
    case code:which(tprof) of
        non_existing -> ok;
        _ -> like_tprof([call_count, call_time, call_memory])
    end.

like_tprof(Types) ->
    [begin
         Work = fun(Server) ->
                        {ok, Pid} = Server:start(#{type => Type, session => like}),
                        Server:set_pattern(Pid, emberl_work, '_', '_'),
                        Server:set_pattern(Pid, lists, '_', '_'),
                        Type =:= call_count orelse Server:enable_trace(Pid, self(), #{}),
                        emberl_work:sort(lists:seq(50, 1, -1)),
                        emberl_work:pairs(3),
                        Server:pause(Pid),
                        Collected = Server:collect(Pid),
                        Server:stop(Pid),
                        Collected
                end,
         %% tprof counts its own look at the modules.
         {Type, Theirs0} = Work(tprof),
         Theirs = [Row || {_, F, _, _} = Row <- Theirs0, F =/= module_info],
         Ours = emberl_tally:rows(Work(emberl_server)),
         %% Calls alone are of all processes, and others call lists too.
         Compared = fun(call_count) -> [emberl_work]; (_) -> [emberl_work, lists] end,
         Value = fun(call_memory, Row) -> maps:get(words, Row);
                    (_, #{calls := Calls}) -> Calls
                 end,
         ?assertEqual([{{M, F, A}, C, case Type of call_memory -> V; _ -> C end}
                       || {M, F, A, [{_, C, V}]} <- lists:sort(Theirs),
                          lists:member(M, Compared(Type))],
                      lists:sort([{MFA, C, Value(Type, Row)}
                                  || #{mfa := {M, _, _} = MFA, calls := C} = Row <- Ours,
                                     lists:member(M, Compared(Type)),
                                     Type =/= call_memory orelse maps:get(words, Row) > 0]))
     end || Type <- Types].
