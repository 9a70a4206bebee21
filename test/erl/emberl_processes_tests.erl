%% SPDX-License-Identifier: Apache-2.0
%% Work of several processes, and of processes that move, wait, hibernate, are
%% killed, or whose code is replaced.
-module(emberl_processes_tests).

-include_lib("eunit/include/eunit.hrl").

-import(emberl_test, [profile/1, profile/2, shape/2]).

-define(WORK, (options())).

options() -> #{modules => [emberl_work]}.

work(Function, Arguments) ->
    {emberl_work, Function, Arguments}.

processes(Profile) ->
    emberl_profile:processes(Profile).

%% ---- spawning ----

spawn_test_() ->
    [{atom_to_list(Name), fun() -> spawned(fun erlang:Name/1) end}
     || Name <- [spawn, spawn_link, spawn_monitor]].

spawned(Spawn) ->
    Profile = profile(work(spawn_and_wait, [Spawn]), ?WORK),
    [#{pid := Parent, parent := undefined}, #{pid := Child, parent := Parent}] = processes(Profile),
    ?assertEqual(self(), Parent),
    ?assertEqual(#{[spawn_and_wait] => 1, [spawn_and_wait, leaf] => 1}, shape(Profile, Parent)),
    ?assertEqual(#{[{'fun', spawn_and_wait}] => 1,
                   [{'fun', spawn_and_wait}, child] => 1,
                   [{'fun', spawn_and_wait}, child, pair] => 1,
                   [{'fun', spawn_and_wait}, child, pair, leaf] => 2},
                 shape(Profile, Child)),
    forget_down().

forget_down() ->
    receive {'DOWN', _, process, _, _} -> ok
    after 0 -> ok
    end.

%% Functions of one process, and of all.
functions_of_a_process_test() ->
    Profile = profile(work(spawn_and_wait, [fun erlang:spawn/1]), ?WORK),
    [#{pid := Parent}, #{pid := Child}] = processes(Profile),
    Leaf = fun(Functions) -> [N || #{mfa := {emberl_work, leaf, 1}, calls := N} <- Functions] end,
    ?assertEqual([1], Leaf(emberl_profile:functions(Profile, Parent))),
    ?assertEqual([2], Leaf(emberl_profile:functions(Profile, Child))),
    ?assertEqual([3], Leaf(emberl_profile:functions(Profile))).

not_followed_test() ->
    Profile = profile(work(spawn_and_wait, [fun erlang:spawn/1]), ?WORK#{spawned => false}),
    ?assertMatch([#{parent := undefined}], processes(Profile)),
    ?assertEqual(1, maps:get({emberl_work, leaf, 1}, emberl_test:calls(Profile))).

nested_test() ->
    Profile = profile(work(nested, [5]), ?WORK),
    Processes = processes(Profile),
    ?assertEqual([undefined | [Pid || #{pid := Pid} <- lists:droplast(Processes)]],
                 [Parent || #{parent := Parent} <- Processes]),
    ?assertEqual([false, true, true, true, true, true],
                 [Exited || #{exited := Exited} <- Processes]),
    [?assertEqual(#{[nested] => 1, [nested, leaf] => 1}, shape(Profile, Pid))
     || #{pid := Pid} <- Processes].

%% A process that is dead at the end is told by what it was started with.
label_test() ->
    Profile = profile(work(nested, [1]), ?WORK),
    ?assertMatch([_, #{label := <<"emberl_work:nested/1">>, name := undefined}],
                 processes(Profile)).

%% Who is above a process that proc_lib has started, of one that is dead as well.
ancestors_test() ->
    Work = fun() -> emberl_test:wait_dead(proc_lib:spawn(emberl_work, leaf, [1])) end,
    Profile = emberl_test:in_process(
                fun() ->
                        register(emberl_test_name, self()),
                        put('$ancestors', [emberl_test_sup, whereis(init)]),
                        profile(Work, ?WORK)
                end),
    ?assertMatch([#{ancestors := []},
                  #{ancestors := [<<"emberl_test_name">>, <<"emberl_test_sup">>,
                                  <<"<0.", _/binary>>],
                    exited := true}], processes(Profile)).

ancestors_of_one_that_lives_test() ->
    Test = self(),
    Parent = proc_lib:spawn_link(
               fun() ->
                       register(emberl_test_name, self()),
                       Test ! {child, proc_lib:spawn_link(emberl_work, wait, [])},
                       receive stop -> ok end
               end),
    Server = receive {child, Pid} -> Pid end,
    {ok, Capture} = emberl:start_capture({emberl_work, leaf, 1}, 1, ?WORK#{return => profile}),
    Server ! {self(), 1},
    receive {Server, 1} -> ok end,
    {ok, [Profile]} = emberl:await(Capture, infinity),
    Server ! {self(), stop},
    receive {Server, stopped} -> ok end,
    Parent ! stop,
    ?assertMatch([#{ancestors := [<<"emberl_test_name">>, _]}], processes(Profile)).

registered_name_test() ->
    Profile = emberl_test:in_process(
                fun() ->
                        register(emberl_test_name, self()),
                        profile(work(pair, [1]), ?WORK)
                end),
    ?assertMatch([#{name := <<"emberl_test_name">>}], processes(Profile)).

child_outlives_its_parent_test() ->
    Profile = profile(work(outlive, [self()]), ?WORK),
    [#{pid := First}, #{pid := Second, parent := First, exited := true},
     #{pid := Third, parent := Second}] = processes(Profile),
    ?assertEqual(#{[{'fun', outlive}] => 1}, shape(Profile, Second)),
    ?assertEqual(#{[grandchild] => 1, [grandchild, pair] => 1, [grandchild, pair, leaf] => 2},
                 shape(Profile, Third)).

%% The profile has what was done up to its end; the child goes on untraced.
child_outlives_the_call_test() ->
    Test = self(),
    Spawn = fun() ->
                    Pid = spawn_link(emberl_work, wait, []),
                    Pid ! {Test, 1},
                    receive {Pid, 1} -> Pid end
            end,
    #{result := {ok, Pid}, profile := Profile} =
        emberl_test:in_directory(#{return => all, modules => [emberl_work]}, fun(Options) ->
            emberl:apply(Spawn, Options) end),
    ?assertMatch(#{[wait] := Calls, [wait, leaf] := 1} when Calls =< 2, shape(Profile, Pid)),
    ?assertMatch([_, #{exited := false}], processes(Profile)),
    ?assertEqual({flags, []}, erlang:trace_info(Pid, flags)),
    Pid ! {self(), 2},
    receive {Pid, 2} -> ok end,
    Pid ! {self(), stop},
    receive {Pid, stopped} -> ok end.

%% ---- moving, waiting, hibernating ----

migration_test() ->
    Profile = emberl_test:in_process(fun() -> profile(work(migrate, [50]), ?WORK) end),
    ?assertMatch(#{complete := true, lost := 0}, emberl_profile:info(Profile)),
    ?assertEqual(#{[migrate] => 1,
                   [migrate, leaf] => 1,
                   [migrate, step] => 51,
                   [migrate, step, leaf] => 50},
                 emberl_test:shape(Profile)).

%% Messages larger than the heap of the process that waits for them.
messages_test() ->
    Message = lists:seq(1, 5000),
    Server = spawn_link(emberl_work, wait, []),
    {ok, Capture} = emberl:start_capture({emberl_work, wait, 0}, 1,
                                         ?WORK#{return => profile, timeout => infinity}),
    [begin
         Server ! {self(), Message},
         receive {Server, Message} -> ok end
     end || _ <- lists:seq(1, 20)],
    Server ! {self(), stop},
    receive {Server, stopped} -> ok end,
    {ok, [Profile]} = emberl:await(Capture, infinity),
    %% the first message was received in a call that was under way
    ?assertEqual(#{[wait] => 20, [wait, leaf] => 19}, emberl_test:shape(Profile)).

%% A process that hibernates has no stack afterwards.
hibernate_test() ->
    Test = self(),
    Run = fun() ->
                  Pid = spawn_link(emberl_work, hibernate, [Test]),
                  emberl_test:wait_until(fun() -> is_hibernating(Pid) end),
                  Pid ! go,
                  receive {Pid, awake} -> Pid end
          end,
    Profile = profile(Run, ?WORK),
    [_, #{pid := Pid}] = processes(Profile),
    Shape = shape(Profile, Pid),
    ?assertMatch(#{[hibernate] := 1, [hibernate, leaf] := 1}, Shape),
    ?assertEqual([1, 1, 1, 2], lists:sort([Calls || {Stack, Calls} <- maps:to_list(Shape),
                                                    lists:member(wake, Stack)])),
    ?assertNot(lists:any(fun(Stack) -> lists:prefix([hibernate, leaf, wake], Stack) end,
                         maps:keys(Shape))).

is_hibernating(Pid) ->
    process_info(Pid, current_function) =:= {current_function, {erlang, hibernate, 3}}.

%% ---- ends ----

killed_test() ->
    Profile = captured_end(fun() -> emberl_work:wait_for(never) end, wait_for, 1,
                           fun kill_waiting/1),
    ?assertEqual(exited, emberl_test:outcome(Profile)),
    ?assertEqual(#{[wait_for] => 1}, emberl_test:shape(Profile)).

kill_waiting(Pid) ->
    emberl_test:wait_until(fun() -> process_info(Pid, status) =:= {status, waiting} end),
    exit(Pid, kill).

killed_by_itself_test() ->
    Profile = captured_end(fun() -> emberl_work:exit_self(kill) end, exit_self, 1, fun ignore/1),
    ?assertEqual(exited, emberl_test:outcome(Profile)),
    ?assertMatch(#{[exit_self] := 1, [exit_self, leaf] := 1}, emberl_test:shape(Profile)).

ignore(_Pid) -> ok.

max_heap_size_test() ->
    Limited = fun() ->
                      process_flag(max_heap_size,
                                   #{size => 20000, kill => true, error_logger => false}),
                      emberl_work:allocate([])
              end,
    Profile = captured_end(Limited, allocate, 1, fun ignore/1),
    ?assertEqual(exited, emberl_test:outcome(Profile)),
    #{[allocate] := N, [allocate, leaf] := Leaves} = Shape = emberl_test:shape(Profile),
    ?assert(Leaves =:= N orelse Leaves =:= N - 1),
    ?assertEqual(2, maps:size(Shape)).

%% The profile of one call in a process that does not survive it.
captured_end(Fun, Function, Arity, Kill) ->
    {ok, Capture} = emberl:start_capture({emberl_work, Function, Arity}, 1,
                                         ?WORK#{return => profile}),
    {Pid, Monitor} = spawn_monitor(Fun),
    Kill(Pid),
    receive {'DOWN', Monitor, process, Pid, killed} -> ok end,
    {ok, [Profile]} = emberl:await(Capture, infinity),
    Profile.

%% ---- new code ----

%% A loop that goes on in new code, while the old is purged.
reloaded_test() ->
    load_loop("old"),
    Profile = profile(fun reload/0, #{modules => [emberl_test_loop]}),
    [Pid] = [P || #{pid := P, label := <<"emberl_test_loop:start/1">>} <- processes(Profile)],
    emberl_test:unload(emberl_test_loop),
    Loop = {emberl_test_loop, loop},
    %% two steps in old code, one before it was old: there are no breakpoints in old code
    ?assertEqual(#{[{emberl_test_loop, start}] => 1,
                   [{emberl_test_loop, start}, Loop] => 4,
                   [{emberl_test_loop, start}, Loop, {emberl_test_loop, old}] => 1,
                   [{emberl_test_loop, start}, Loop, {emberl_test_loop, new}] => 1},
                 shape(Profile, Pid)).

reload() ->
    Pid = start_loop(),
    load_loop("new"),
    old = step(Pid),
    new = step(Pid),
    false = code:purge(emberl_test_loop),
    stop_loop(Pid).

%% The VM keeps a captured call's place in its code until the call ends, so the
%% code cannot be purged softly, even when the call has gone on in new code.
a_captured_call_keeps_its_code_test() ->
    Pid = start_loop(),
    {ok, Capture} = emberl:start_capture({emberl_test_loop, loop, 1}, 1, #{return => profile}),
    old = step(Pid),
    load_loop("new"),
    old = step(Pid),
    new = step(Pid),
    ?assertNot(code:soft_purge(emberl_test_loop)),
    stop_loop(Pid),
    {ok, [Profile]} = emberl:await(Capture, infinity),
    ?assert(code:soft_purge(emberl_test_loop)),
    emberl_test:unload(emberl_test_loop),
    ?assertEqual(#{{emberl_test_loop, loop, 1} => 3, {emberl_test_loop, new, 0} => 1},
                 emberl_test:calls(Profile, [emberl_test_loop])).

start_loop() ->
    load_loop("old"),
    Pid = spawn_link(emberl_test_loop, start, [self()]),
    old = step(Pid),
    Pid.

step(Pid) ->
    Pid ! step,
    receive {Pid, Version} -> Version end.

stop_loop(Pid) ->
    Pid ! stop,
    receive {Pid, stopped} -> ok end.

load_loop(Version) ->
    {module, _} = code:load_binary(emberl_test_loop, "", loop_code(Version)).

loop_code(Version) ->
    emberl_test:compile(
      emberl_test_loop,
      ["start(Parent) -> loop(Parent).",
       "loop(Parent) ->"
       "    receive"
       "        step -> Parent ! {self(), " ++ Version ++ "()}, emberl_test_loop:loop(Parent);"
       "        stop -> Parent ! {self(), stopped}"
       "    end.",
       Version ++ "() -> " ++ Version ++ "."]).

%% A module that is loaded in the middle of a call is seen as well.
loaded_while_traced_test() ->
    Code = emberl_test:compile(emberl_test_late, ["run() -> help().", "help() -> late."]),
    Run = fun() ->
                  {module, _} = code:load_binary(emberl_test_late, "", Code),
                  emberl_work:calls_unloaded(emberl_test_late)
          end,
    Profile = profile(Run),
    emberl_test:unload(emberl_test_late),
    ?assertEqual(#{{emberl_test_late, run, 0} => 1, {emberl_test_late, help, 0} => 1},
                 emberl_test:calls(Profile, [emberl_test_late])).
