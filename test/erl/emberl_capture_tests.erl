%% SPDX-License-Identifier: Apache-2.0
%% The next N calls to a function, whoever makes them.
-module(emberl_capture_tests).

-include_lib("eunit/include/eunit.hrl").

-import(emberl_test, [shape/1, outcome/1, in_process/1, wait_until/1]).

-define(MFA(Function, Arity), {emberl_work, Function, Arity}).

%% Profiles of calls, or all there is to know of them.
profiles() -> #{return => profile, modules => [emberl_work]}.
values() -> #{return => value, modules => [emberl_work], quiet => true}.

start(MFA, Calls, Options) ->
    {ok, Capture} = emberl:start_capture(MFA, Calls, Options),
    Capture.

captured(Capture) ->
    {ok, Results} = emberl:await(Capture, infinity),
    Results.

capture_and(MFA, Calls, Fun) ->
    Capture = start(MFA, Calls, profiles()),
    Fun(),
    captured(Capture).

setup() ->
    code:ensure_modules_loaded([emberl_work, emberl_work_other, emberl_test_nif,
                                emberl_test_server]).

all_test_() ->
    {setup, fun setup/0, [counts(), targets(), ends(), several(), waiting(), refusals()]}.

%% ---- how many ----

counts() ->
    [{"exactly N of many concurrent calls",
      [{integer_to_list(N), {timeout, 60, fun() -> concurrent(N) end}} || N <- [1, 10, 1000]]},
     {"calls beyond N are not captured", fun beyond/0},
     {"fewer than N", fun fewer/0},
     {"a recursive call is one", fun recursion/0},
     {"tail recursion is one", fun tail_recursion/0},
     {"results in order of completion", fun order/0}].

%% More calls than asked for, from many processes at once.
concurrent(N) ->
    emberl_test:with_directory(
      fun(Directory) ->
              Capture = start(?MFA(pair, 1), N, (values())#{output_directory => Directory,
                                                           output_format => brendan_gregg}),
              Pids = [spawn_link(fun() -> [emberl_work:pair({I, J}) || J <- lists:seq(1, 60)] end)
                      || I <- lists:seq(1, 50)],
              Values = captured(Capture),
              [emberl_test:wait_dead(Pid) || Pid <- Pids],
              ?assertEqual(N, length(Values)),
              ?assertEqual(N, length(lists:usort(Values)))
      end).

beyond() ->
    Profiles = capture_and(?MFA(pair, 1), 2,
                           fun() -> [emberl_work:pair(I) || I <- [1, 2, 3, 4]] end),
    ?assertEqual([#{[pair] => 1, [pair, leaf] => 2}, #{[pair] => 1, [pair, leaf] => 2}],
                 [shape(P) || P <- Profiles]).

fewer() ->
    Capture = start(?MFA(pair, 1), 3, profiles()),
    emberl_work:pair(1),
    ?assertMatch({incomplete, stopped, [_]}, emberl:stop(Capture)).

recursion() ->
    Profiles = capture_and(?MFA(deep_leaf, 1), 2,
                           fun() -> emberl_work:deep_leaf(3), emberl_work:deep_leaf(1) end),
    ?assertEqual([#{[deep_leaf] => 4, [deep_leaf, leaf] => 3},
                  #{[deep_leaf] => 2, [deep_leaf, leaf] => 1}],
                 [shape(P) || P <- Profiles]).

tail_recursion() ->
    [Profile] = capture_and(?MFA(loop, 1), 1, fun() -> emberl_work:loop(100) end),
    ?assertEqual(#{[loop] => 101, [loop, leaf] => 100}, shape(Profile)).

order() ->
    emberl_test:in_directory((values())#{return => all}, fun(Options) ->
        Capture = start(?MFA(wait_for, 1), 2, Options),
        First = waiting_for(first),
        Second = waiting_for(second),
        Second ! second,
        emberl_test:wait_dead(Second),
        First ! first,
        ?assertEqual([{ok, second}, {ok, first}],
                     [Result || #{result := Result} <- captured(Capture)])
    end).

waiting_for(Message) ->
    Pid = spawn_link(emberl_work, wait_for, [Message]),
    wait_until(fun() -> process_info(Pid, status) =:= {status, waiting} end),
    Pid.

%% ---- what can be captured ----

targets() ->
    [{"a function that is called by its module only", fun local_only/0},
     {"a BIF", fun bif/0},
     {"a BIF that yields", fun yielding_bif/0},
     [{"a NIF: " ++ atom_to_list(Name), fun() -> nif(Name) end}
      || Name <- [plain, dirty_cpu, dirty_io, rescheduled]],
     {"a running gen_server", fun running_server/0},
     {"a loop that is under way", fun running_loop/0},
     {"a fun's own function", fun fun_function/0}].

local_only() ->
    [Profile] = capture_and(?MFA(local_only, 1), 1, fun() -> emberl_work:work(1) end),
    ?assertEqual(#{[local_only] => 1, [local_only, leaf] => 1}, shape(Profile)).

bif() ->
    Capture = start({lists, reverse, 2}, 1, #{return => profile}),
    emberl_work:bifs([1, 2]),
    [Profile] = captured(Capture),
    ?assertEqual(#{[{lists, reverse}] => 1}, shape(Profile)).

yielding_bif() ->
    Capture = start({lists, reverse, 2}, 1, #{return => profile}),
    emberl_work:bifs(lists:seq(1, 200000)),
    [Profile] = captured(Capture),
    ?assertEqual(returned, outcome(Profile)),
    ?assertMatch(#{[{lists, reverse}] := 1}, shape(Profile)).

nif(Name) ->
    Capture = start({emberl_test_nif, Name, 1}, 2, #{return => profile}),
    emberl_work:nifs(1),
    emberl_work:nifs(2),
    Profiles = captured(Capture),
    ?assertEqual([returned, returned], [outcome(P) || P <- Profiles]),
    ?assertEqual([#{[{emberl_test_nif, Name}] => 1}, #{[{emberl_test_nif, Name}] => 1}],
                 [shape(P) || P <- Profiles]).

running_server() ->
    {ok, Server} = emberl_test_server:start_link(),
    Capture = start({emberl_test_server, handle_call, 3}, 2,
                    #{return => profile, modules => [emberl_work, emberl_test_server]}),
    [gen_server:call(Server, {add, N}) || N <- [1, 2, 3]],
    Handle = {emberl_test_server, handle_call},
    Profiles = captured(Capture),
    ?assertEqual([#{[Handle] => 1, [Handle, leaf] => 1}, #{[Handle] => 1, [Handle, leaf] => 1}],
                 [shape(P) || P <- Profiles]),
    ?assertEqual(6, gen_server:call(Server, {add, 0})),
    gen_server:stop(Server).

%% From its next call on.
running_loop() ->
    Server = spawn_link(emberl_work, wait, []),
    Capture = start(?MFA(wait, 0), 1, profiles()),
    [send(Server, N) || N <- [1, 2, 3]],
    {incomplete, stopped, [Profile]} = emberl:stop(Capture),
    ?assertEqual(unfinished, outcome(Profile)),
    ?assertMatch(#{[wait] := Waits, [wait, leaf] := 2} when Waits >= 2, shape(Profile)),
    send(Server, stop).

send(Server, Message) ->
    Server ! {self(), Message},
    receive {Server, _} -> ok end.

fun_function() ->
    Capture = start(?MFA('-call_fun/1-fun-0-', 2), 2, profiles()),
    emberl_work:call_fun(1),
    ?assertEqual([#{[{'fun', call_fun}] => 1, [{'fun', call_fun}, leaf] => 1}],
                 lists:usort([shape(P) || P <- captured(Capture)])).

%% ---- how calls end ----

ends() ->
    [[{"raises " ++ atom_to_list(Class), fun() -> raises(Class) end}
      || Class <- [throw, error, exit]],
     {"never returns", fun never_returns/0},
     {"timeout before any call", fun no_call/0},
     {"memory limit", {timeout, 60, fun memory_limit/0}},
     {"the crash of a server", fun server_crash/0}].

raises(Class) ->
    emberl_test:in_directory(
      (values())#{return => all},
      fun(Options) ->
              Capture = start(?MFA(uncaught, 1), 1, Options),
              ?assertException(Class, raised, emberl_work:uncaught(Class)),
              [#{result := Result, profile := Profile, file := File}] = captured(Capture),
              ?assertMatch({Class, raised, _}, Result),
              ?assert(filelib:is_regular(File)),
              ?assertEqual(raised, outcome(Profile)),
              ?assertEqual(#{[uncaught] => 1, [uncaught, dig] => 3, [uncaught, dig, raise] => 1},
                           shape(Profile))
      end).

never_returns() ->
    Capture = start(?MFA(forever, 0), 1, (profiles())#{timeout => 300}),
    Pid = spawn_link(emberl_work, forever, []),
    {incomplete, timeout, [Profile]} = emberl:await(Capture, infinity),
    unlink(Pid),
    exit(Pid, kill),
    ?assertMatch(#{outcome := unfinished, complete := false}, emberl_profile:info(Profile)),
    #{[forever] := N, [forever, leaf] := Leaves} = shape(Profile),
    ?assert(N > 1 andalso abs(N - Leaves) =< 1).

no_call() ->
    ?assertEqual({incomplete, timeout, []},
                 emberl:capture(?MFA(forever, 0), 1, (profiles())#{timeout => 50})).

%% More stacks than a MiB can hold.
memory_limit() ->
    Capture = start(?MFA(forest, 1), 1,
                    (profiles())#{memory_limit => 1 bsl 20, fold_recursion => false}),
    Pid = spawn_link(emberl_work, forest, [20]),
    {incomplete, limit, [Profile]} = emberl:await(Capture, infinity),
    unlink(Pid),
    exit(Pid, kill),
    ?assertEqual(unfinished, outcome(Profile)),
    ?assert(maps:get(stacks, emberl_profile:info(Profile)) > 1000).

server_crash() ->
    {ok, Server} = gen_server:start(emberl_test_server, [], []),
    Capture = start({emberl_test_server, handle_call, 3}, 1, #{return => profile}),
    quietly(fun() -> ?assertExit(_, gen_server:call(Server, crash)) end),
    [Profile] = captured(Capture),
    ?assertEqual(raised, outcome(Profile)).

quietly(Fun) ->
    logger:set_primary_config(level, none),
    try Fun()
    after logger:set_primary_config(level, notice)
    end.

%% ---- several at once ----

several() ->
    [{"overlapping captures on one process", fun overlapping/0},
     {"words while another capture waits", fun words_beside_another/0},
     {"many calls", {timeout, 60, fun many_calls/0}},
     {"two captures of one function", fun two_of_one/0},
     {"inside apply", fun inside_apply/0},
     {"the same function inside apply of it", fun same_inside_apply/0},
     {"apply inside apply", fun apply_inside_apply/0},
     {"no more than there is room for", fun too_many/0}].

overlapping() ->
    Outer = start(?MFA(fork, 1), 1, profiles()),
    Inner = start(?MFA(pair, 1), 3, profiles()),
    Leaf = start(?MFA(leaf, 1), 1, profiles()),
    emberl_work:fork(1),
    emberl_work:pair(2),
    ?assertEqual([#{[fork] => 1, [fork, pair] => 2, [fork, pair, leaf] => 4, [fork, leaf] => 1}],
                 [shape(P) || P <- captured(Outer)]),
    Pair = #{[pair] => 1, [pair, leaf] => 2},
    ?assertEqual([Pair, Pair, Pair], [shape(P) || P <- captured(Inner)]),
    ?assertEqual([#{[leaf] => 1}], [shape(P) || P <- captured(Leaf)]).

%% What is kept of each call counts for the limit, and merged calls are kept once.
many_calls() ->
    Options = (profiles())#{memory_limit => 1 bsl 20},
    Each = start(?MFA(leaf, 1), 100000, Options),
    Merged = start(?MFA(leaf, 1), 100000, Options#{merge => true}),
    [emberl_work:leaf(N) || N <- lists:seq(1, 100000)],
    ?assertMatch({incomplete, limit, [_ | _]}, emberl:await(Each, infinity)),
    [Profile] = captured(Merged),
    ?assertEqual(#{[leaf] => 100000}, shape(Profile)),
    ?assertMatch(#{calls := 100000, lost := 0, complete := true}, emberl_profile:info(Profile)).

words_beside_another() ->
    Capture = start(?MFA(pair, 1), 100, profiles()),
    Profile = emberl:apply(?MFA(fork, [1]), profiles()),
    emberl:stop(Capture),
    Words = [{F, W} || #{mfa := {_, F, _}, words := W} <- emberl_profile:functions(Profile)],
    ?assertEqual([{fork, 0}, {leaf, 0}, {pair, 2 * 3}], lists:sort(Words)).

two_of_one() ->
    One = start(?MFA(deep_leaf, 1), 1, profiles()),
    Two = start(?MFA(deep_leaf, 1), 2, profiles()),
    emberl_work:deep_leaf(2),
    emberl_work:deep_leaf(1),
    Shapes = [#{[deep_leaf] => 3, [deep_leaf, leaf] => 2},
              #{[deep_leaf] => 2, [deep_leaf, leaf] => 1}],
    ?assertEqual(lists:sublist(Shapes, 1), [shape(P) || P <- captured(One)]),
    ?assertEqual(Shapes, [shape(P) || P <- captured(Two)]).

inside_apply() ->
    Capture = start(?MFA(pair, 1), 2, profiles()),
    Profile = emberl:apply(?MFA(fork, [1]), profiles()),
    ?assertEqual(#{[fork] => 1, [fork, pair] => 2, [fork, pair, leaf] => 4, [fork, leaf] => 1},
                 shape(Profile)),
    Pair = #{[pair] => 1, [pair, leaf] => 2},
    ?assertEqual([Pair, Pair], [shape(P) || P <- captured(Capture)]).

same_inside_apply() ->
    Capture = start(?MFA(deep_leaf, 1), 1, profiles()),
    Profile = emberl:apply(?MFA(deep_leaf, [2]), profiles()),
    Shape = #{[deep_leaf] => 3, [deep_leaf, leaf] => 2},
    ?assertEqual(Shape, shape(Profile)),
    ?assertEqual([Shape], [shape(P) || P <- captured(Capture)]).

apply_inside_apply() ->
    Test = self(),
    Outer = emberl:apply(fun() ->
                                 emberl_work:leaf(1),
                                 Test ! {inner, emberl:apply(?MFA(pair, [1]), profiles())},
                                 emberl_work:leaf(2)
                         end, profiles()),
    Inner = receive {inner, Profile} -> Profile end,
    ?assertEqual(#{[pair] => 1, [pair, leaf] => 2}, shape(Inner)),
    ?assertEqual(#{[leaf] => 2, [pair] => 1, [pair, leaf] => 2}, shape(Outer)).

too_many() ->
    Captures = [start(?MFA(leaf, 1), 1, profiles()) || _ <- lists:seq(1, 64)],
    ?assertMatch({error, {too_many_captures, ?MFA(leaf, 1), <<_/binary>>}},
                 emberl:start_capture(?MFA(leaf, 1), 1, profiles())),
    [?assertEqual({incomplete, stopped, []}, emberl:stop(C)) || C <- Captures],
    ?assertNot(emberl_test:running()).

%% ---- waiting and stopping ----

waiting() ->
    [{"await times out and can be repeated", fun await_again/0},
     {"await of another process", fun await_elsewhere/0},
     {"await with a wrong timeout", fun await_wrongly/0},
     {"await of something else", fun no_capture/0},
     {"after the result it is unknown", fun await_twice/0},
     {"two that wait", fun two_wait/0},
     {"a stop of what another awaits", fun stop_awaited/0},
     {"the target's module is loaded again", {timeout, 60, fun loaded_again/0}},
     {"the target's module is gone for a while", {timeout, 60, fun gone_and_loaded/0}},
     {"stop has what is under way", fun stop_under_way/0},
     {"stop/0 ends all and answers who waits", fun stop_all/0},
     {"the end of who started it", fun owner_dies/0},
     {"capture/1 and its file", fun capture_1/0},
     {"results are kept until they are asked for", fun kept/0}].

await_again() ->
    Capture = start(?MFA(pair, 1), 1, profiles()),
    ?assertEqual({error, timeout}, emberl:await(Capture, 0)),
    ?assertEqual({error, timeout}, emberl:await(Capture, 20)),
    emberl_work:pair(1),
    ?assertMatch([_], captured(Capture)).

%% Refused to the caller; the capture, and everybody else's, goes on.
await_wrongly() ->
    Capture = start(?MFA(pair, 1), 1, profiles()),
    [?assertMatch({error, {bad_timeout, Timeout, <<_/binary>>}}, emberl:await(Capture, Timeout))
     || Timeout <- [foo, -1, 1.5, 1 bsl 32, 1 bsl 100]],
    emberl_work:pair(1),
    ?assertMatch([_], captured(Capture)).

%% What else is handed to await and stop; what they take is small enough to be shown.
no_capture() ->
    [?assertMatch({error, {bad_capture, Other, <<_/binary>>}}, Call)
     || Other <- [foo, 1, {}], Call <- [emberl:await(Other, 1), emberl:stop(Other)]],
    ?assertMatch({error, {bad_capture, _, <<_/binary>>}}, emberl:await(self(), 1)),
    ?assertMatch({error, {unknown_sampler, _, <<_/binary>>}}, emberl:stop(self())),
    Capture = start(?MFA(pair, 1), 1, profiles()),
    ?assert(length(io_lib:format("~p", [Capture])) < 80),
    emberl:stop(Capture).

await_elsewhere() ->
    Capture = start(?MFA(pair, 1), 1, profiles()),
    emberl_work:pair(1),
    ?assertMatch([_], in_process(fun() -> captured(Capture) end)).

await_twice() ->
    Capture = start(?MFA(pair, 1), 1, profiles()),
    emberl_work:pair(1),
    captured(Capture),
    ?assertMatch({error, {unknown_capture, _, <<_/binary>>}}, emberl:await(Capture, 0)),
    ?assertMatch({error, {unknown_capture, _, <<_/binary>>}}, emberl:stop(Capture)).

%% A process that awaits the capture, and exits with what it gets.
awaited(Capture) ->
    {Pid, Monitor} = spawn_monitor(fun() -> exit(emberl:await(Capture, infinity)) end),
    wait_until(fun() -> process_info(Pid, status) =:= {status, waiting} end),
    %% the other's request may still be on its way
    wait_until(fun() -> emberl:await(Capture, 1) =:= {error, already_awaited} end),
    {Pid, Monitor}.

two_wait() ->
    Capture = start(?MFA(pair, 1), 1, profiles()),
    {Pid, Monitor} = awaited(Capture),
    emberl_work:pair(1),
    receive {'DOWN', Monitor, process, Pid, Result} -> ?assertMatch({ok, [_]}, Result) end.

%% The one who waits gets what there is, and the server lives on.
stop_awaited() ->
    Capture = start(?MFA(pair, 1), 1, profiles()),
    Server = whereis(emberl_control),
    {Pid, Monitor} = awaited(Capture),
    ?assertEqual({error, already_awaited}, emberl:stop(Capture)),
    receive
        {'DOWN', Monitor, process, Pid, Result} -> ?assertEqual({incomplete, stopped, []}, Result)
    end,
    ?assertEqual(Server, whereis(emberl_control)).

%% The new code is captured, with two captures of the function and more calls to come.
loaded_again() ->
    with_versions(fun(Load) ->
        Load(1),
        Captures = [start({emberl_versions, version, 0}, N, values()) || N <- [2, 3]],
        emberl_versions:version(),
        Load(2),
        ?assertEqual([[1, 2], [1, 2, 2]], while_called(fun() -> [captured(C) || C <- Captures] end))
    end).

gone_and_loaded() ->
    with_versions(fun(Load) ->
        Load(1),
        Capture = start({emberl_versions, version, 0}, 1, values()),
        emberl_test:unload(emberl_versions),
        timer:sleep(500), % longer than it takes to look for it
        Load(2),
        ?assertEqual([2], while_called(fun() -> captured(Capture) end))
    end).

with_versions(Fun) ->
    try Fun(fun load_version/1)
    after emberl_test:unload(emberl_versions)
    end.

load_version(N) ->
    Text = lists:flatten(io_lib:format("version() -> ~b.", [N])),
    code:purge(emberl_versions),
    {module, _} = code:load_binary(emberl_versions, "",
                                   emberl_test:compile(emberl_versions, [Text])).

while_called(Fun) ->
    Busy = emberl_test:busy(fun() -> emberl_versions:version() end),
    Result = Fun(),
    emberl_test:stop(Busy),
    Result.

stop_under_way() ->
    Capture = start(?MFA(wait_for, 1), 2, profiles()),
    emberl_test:stop(emberl_test:busy(fun() -> self() ! x, emberl_work:wait_for(x) end)),
    Pid = spawn_link(emberl_work, wait_for, [go]),
    wait_until(fun() -> process_info(Pid, status) =:= {status, waiting} end),
    Result = emberl:stop(Capture),
    Pid ! go,
    case Result of
        {ok, Profiles} -> ?assertEqual([returned, returned], [outcome(P) || P <- Profiles]);
        {incomplete, stopped, Profiles} ->
            ?assertEqual([returned, unfinished], [outcome(P) || P <- Profiles])
    end.

stop_all() ->
    Test = self(),
    Capture = start(?MFA(forever, 0), 1, profiles()),
    Pid = spawn_link(fun() ->
                             Own = start(?MFA(forever, 0), 1, profiles()),
                             Test ! {self(), started},
                             Test ! {self(), emberl:await(Own, infinity)}
                     end),
    receive {Pid, started} -> ok end,
    ?assertEqual(ok, emberl:stop()),
    receive {Pid, Result} -> ?assertEqual({incomplete, stopped, []}, Result) end,
    ?assertEqual({incomplete, stopped, []}, emberl:await(Capture, 0)),
    ?assertNot(emberl_test:running()),
    ?assertEqual(ok, emberl:stop()).

owner_dies() ->
    Capture = in_process(fun() -> start(?MFA(pair, 1), 1, profiles()) end),
    wait_until(fun() -> element(1, element(2, emberl:await(Capture, 0))) =:= unknown_capture end),
    ?assertNot(emberl_test:running()).

capture_1() ->
    emberl_test:with_directory(
      fun(Directory) ->
              {ok, Before} = file:get_cwd(),
              ok = file:set_cwd(Directory),
              try
                  Busy = emberl_test:busy(fun() -> emberl_work:pair(1) end),
                  {{ok, [File]}, Printed} =
                      emberl_test:quiet(fun() -> emberl:capture(?MFA(pair, 1)) end),
                  emberl_test:stop(Busy),
                  ?assertEqual(<<"Output filename: ", File/binary, "\n">>, Printed),
                  ?assert(filelib:is_regular(File)),
                  ?assertEqual(<<".html">>, filename:extension(File))
              after file:set_cwd(Before)
              end
      end).

kept() ->
    Capture = start(?MFA(pair, 1), 1, profiles()),
    emberl_work:pair(1),
    wait_until(fun() -> not emberl_test:running() end),
    ?assertEqual([#{[pair] => 1, [pair, leaf] => 2}], [shape(P) || P <- captured(Capture)]).

%% ---- refusals ----

refusals() ->
    [[{lists:flatten(io_lib:format("~p", [Calls])),
       fun() -> refused(bad_count, ?MFA(leaf, 1), Calls) end}
      || Calls <- [0, -1, 1.0, many, 1 bsl 62, []]],
     [{lists:flatten(io_lib:format("~p", [Target])),
       fun() -> refused(bad_target, Target, 1) end}
      || Target <- [?MFA(leaf, 2), ?MFA(no_such_function, 0), {no_such_module, f, 0},
                    ?MFA(leaf, [1]), ?MFA(leaf, -1), ?MFA(leaf, 256), ?MFA("leaf", 1),
                    {'_', '_', '_'}, {emberl_work, '_', '_'}, leaf, [], fun() -> ok end,
                    {emberl, apply, 2}, {emberl_nif, stats, 0}]],
     {"a module that could be loaded, but is not", fun not_loaded/0}].

refused(Kind, Target, Calls) ->
    {error, {Kind, Term, Text}} = Refusal = emberl:capture(Target, Calls),
    ?assert(Term =:= Target orelse Term =:= Calls),
    ?assertEqual(Refusal, emberl:start_capture(Target, Calls)),
    ?assert(is_binary(Text) andalso byte_size(Text) > 10),
    ?assertNot(emberl_test:running()).

not_loaded() ->
    Module = emberl_work_other,
    emberl_test:unload(Module),
    ?assertMatch({error, {bad_target, {Module, leaf, 1}, _}}, emberl:capture({Module, leaf, 1})),
    ?assertNot(erlang:module_loaded(Module)),
    code:ensure_loaded(Module).
