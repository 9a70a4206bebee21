%% SPDX-License-Identifier: Apache-2.0
%% Windows: processes are recorded from the middle of what they do, for a while.
-module(emberl_window_tests).

-include_lib("eunit/include/eunit.hrl").

-import(emberl_test, [wait_until/1]).

-export([stand/1, ask/1, outer/1, middle/1, inner/1, count/1, sum/1, linked/1, first/1, second/1,
         third/1, read_files/1]).

window_test_() ->
    {setup, fun() -> code:ensure_modules_loaded([?MODULE, emberl_work, emberl_test_nif]) end,
     [{Name, {timeout, 60, Test}}
      || {Name, Test} <- [{"a process that waits throughout", fun waits_throughout/0},
                          {"a process in the middle of calls", fun in_the_middle/0},
                          {"frames that return one after the other", fun unwinds/0},
                          {"an endless loop", fun endless_loop/0},
                          {"deep recursion", fun deep/0},
                          {"times add up", fun adds_up/0},
                          {"children", fun children/0},
                          {"no children", fun no_children/0},
                          {"a process that dies", fun dies/0},
                          {"processes that are dead", fun dead/0},
                          {"a native function", fun native/0},
                          {"hibernation", fun hibernates/0},
                          {"the caller itself", fun caller/0},
                          {"a captured call in it", fun captured/0},
                          {"within a captured call", fun within_captured/0},
                          {"a call in a chain that was recorded before", fun captured_after/0},
                          {"a chain that was recorded before", fun recorded_after/0},
                          {"two windows", fun two/0},
                          {"many processes", fun many/0},
                          {"it is stopped", fun stopped/0},
                          {"a limit", fun limit/0},
                          {"modules", fun modules/0},
                          {"a timeline", fun timeline/0},
                          {"it is told of as what it is", fun told/0},
                          {"names", fun names/0},
                          {"where stacks cannot be walked", fun no_walks/0}]]}.

%% ---- what is recorded ----

stand(Parent) ->
    receive
        {Parent, call, Fun} -> Parent ! {self(), Fun()}, stand(Parent);
        {Parent, return} -> Parent ! {self(), returned}
    end.

outer(Parent) -> {middle(Parent), outer}.
middle(Parent) -> [inner(Parent)].
inner(Parent) -> {stand(Parent), inner}.

ask(Pid) -> ask(Pid, fun() -> ok end).

ask(Pid, Fun) ->
    Pid ! {self(), call, Fun},
    receive {Pid, Result} -> Result end.

back(Pid) ->
    Pid ! {self(), return},
    receive {Pid, returned} -> ok end.

count(N) -> sum(lists:seq(1, 10)), count(N + 1).
sum(List) -> lists:foldl(fun erlang:'+'/2, 0, List).

%% A process that stands there.
standing() ->
    Self = self(),
    start(fun() -> outer(Self) end).

%% ... and has called receive.
start(Fun) ->
    Pid = spawn_link(Fun),
    wait_until(fun() -> {status, waiting} =:= process_info(Pid, status) end),
    Pid.

%% Too few events for anyone to wait for room, which is nobody's time.
ticking() ->
    spawn_link(fun Tick() -> sum(lists:seq(1, 100)), receive after 1 -> Tick() end end).

looping() ->
    spawn_link(fun() -> count(0) end).

%% ---- windows ----

options() -> #{return => profile}.

open(Pids) -> open(Pids, #{}).

open(Pids, Given) ->
    {ok, Options} = emberl_options:parse(capture, maps:merge(options(), Given)),
    {ok, Ref} = emberl_control:start_window(#{processes => Pids, duration => infinity,
                                              target => <<"window">>, options => Options}),
    Ref.

close(Ref) ->
    {stopped, [{Profile, unknown}], _} = emberl_control:stop(Ref),
    Profile.

record(Pids, Work) -> record(Pids, #{}, Work).

record(Pids, Options, Work) ->
    Ref = open(Pids, Options),
    Work(),
    close(Ref).

%% Stacks of a process, of our own functions and some others, and what was measured.
stacks(Profile, Pid) ->
    [{[F || {M, F, _} <- Stack, M =:= ?MODULE orelse M =:= '' orelse M =:= emberl_work], Row}
     || #{process := P, stack := Stack} = Row <- emberl_profile:stacks(Profile), P =:= Pid].

functions(Profile, Pid) ->
    lists:usort(lists:append([Stack || {Stack, _} <- stacks(Profile, Pid)])).

sum(Key, Stack, Profile, Pid) ->
    lists:sum([maps:get(Key, Row) || {S, Row} <- stacks(Profile, Pid), S =:= Stack]).

total(Profile, Pid) ->
    lists:sum([Own + Off + Gc
               || {_, #{own_ns := Own, off_cpu_ns := Off, gc_ns := Gc}} <- stacks(Profile, Pid)]).

%% Each stack is rounded by itself.
assert_whole(Profile, Pid) ->
    #{duration_ns := Duration} = emberl_profile:info(Profile),
    ?assert(abs(total(Profile, Pid) - Duration) =< length(stacks(Profile, Pid))).

end_all(Pids) ->
    [begin unlink(Pid), exit(Pid, kill), emberl_test:wait_dead(Pid) end || Pid <- Pids].

%% ---- stacks ----

-define(STANDS, [outer, middle, inner, stand]).

waits_throughout() ->
    Pid = standing(),
    Profile = record([Pid], fun() -> ok end),
    ?assertMatch(#{outcome := recorded, cut_by := stopped, lost := 0},
                 emberl_profile:info(Profile)),
    ?assertMatch([Row | _] when Row =/= [],
                 [S || {S, #{waiting_ns := W}} <- stacks(Profile, Pid), W > 0]),
    ?assertEqual([?STANDS], [S || {S, #{waiting_ns := W}} <- stacks(Profile, Pid), W > 0]),
    ?assertEqual(0, lists:sum([C || {_, #{calls := C}} <- stacks(Profile, Pid)])),
    assert_whole(Profile, Pid),
    end_all([Pid]).

%% Its calls stand below those that it had made before.
in_the_middle() ->
    Pid = standing(),
    Profile = record([Pid], fun() -> ask(Pid, fun() -> sum([1, 2, 3]) end) end),
    ?assertEqual(1, sum(calls, ?STANDS ++ ['-in_the_middle/0-fun-0-'], Profile, Pid)),
    ?assert(lists:member(sum, functions(Profile, Pid))),
    ?assertNot(lists:member('[unknown]', functions(Profile, Pid))),
    ?assertEqual(1, sum(calls, ?STANDS, Profile, Pid)),
    end_all([Pid]).

%% No event tells of their returns.
unwinds() ->
    Self = self(),
    Pid = start(fun() -> unwinding(Self) end),
    Profile = record([Pid], fun() -> back(Pid), ask(Pid, fun() -> emberl_work:leaf(1) end) end),
    [Leaf] = [S || {S, #{calls := C}} <- stacks(Profile, Pid), C > 0, lists:last(S) =:= leaf],
    ?assertEqual([unwinding, stand, '-unwinds/0-fun-1-', leaf], Leaf),
    end_all([Pid]).

unwinding(Parent) ->
    outer(Parent),
    stand(Parent).

endless_loop() ->
    Pid = looping(),
    Profile = record([Pid], fun() -> timer:sleep(30) end),
    [Loop] = lists:usort([S || {S, #{calls := C}} <- stacks(Profile, Pid), C > 0,
                               lists:last(S) =:= count]),
    ?assertEqual([count], Loop),
    ?assert(sum(calls, Loop, Profile, Pid) > 0),
    end_all([Pid]).

%% More frames than are looked at.
deep() ->
    Self = self(),
    Pid = start(fun() -> deep(2000, Self) end),
    Profile = record([Pid], #{fold_recursion => true}, fun() -> ask(Pid) end),
    ?assertEqual([['[unknown]', deep, stand]],
                 lists:usort([S || {S, #{calls := C}} <- stacks(Profile, Pid), C > 0,
                                   lists:last(S) =:= stand])),
    end_all([Pid]).

deep(0, Parent) -> stand(Parent);
deep(N, Parent) -> [deep(N - 1, Parent)].

hibernates() ->
    Self = self(),
    Pid = start(fun() -> erlang:hibernate(?MODULE, stand, [Self]) end),
    Profile = record([Pid], fun() -> ask(Pid) end),
    ?assert(sum(calls, [stand], Profile, Pid) > 0),
    ?assertNot(lists:member('[unknown]', functions(Profile, Pid))),
    assert_whole(record([Pid], #{compensate => false}, fun() -> ok end), Pid),
    end_all([Pid]).

%% Some are in native functions of dirty schedulers when a window wants to begin with them.
nobody_stays_suspended_test_() ->
    {timeout, 60, fun nobody_stays_suspended/0}.

nobody_stays_suspended() ->
    Readers = [{spawn_link(?MODULE, read_files, [Count]), Count} || _ <- [1, 2, 3],
                                                                    Count <- [counters:new(1, [])]],
    [begin
         emberl:record(3, #{rootset => [Pid || {Pid, _} <- Readers], return => profile}),
         [goes_on(Count) || {_, Count} <- Readers]
     end || _ <- lists:seq(1, emberl_test:rounds(10))],
    end_all([Pid || {Pid, _} <- Readers]).

goes_on(Count) ->
    Before = counters:get(Count, 1),
    emberl_test:wait_until(fun() -> counters:get(Count, 1) > Before end).

read_files(Count) ->
    {ok, _} = prim_file:read_file(code:which(?MODULE)),
    counters:add(Count, 1, 1),
    read_files(Count).

%% ---- times ----

%% Of so few events that a ring has room for them: what a process waits for the consumer
%% is nobody's time.
adds_up() ->
    Pids = [standing(), standing(), ticking(), ticking()],
    Profile = record(Pids, #{compensate => false},
                     fun() ->
                             [ask(hd(Pids), fun() -> lists:seq(1, 100) end)
                              || _ <- lists:seq(1, 100)]
                     end),
    ?assertEqual(lists:sort(Pids),
                 lists:sort([Pid || #{pid := Pid} <- emberl_profile:processes(Profile)])),
    [assert_whole(Profile, Pid) || Pid <- Pids],
    end_all(Pids).

%% ---- processes ----

children() ->
    Pid = standing(),
    Profile = record([Pid], fun() -> ask(Pid, fun fork/0) end),
    [#{pid := Child}] = [P || #{parent := Parent} = P <- emberl_profile:processes(Profile),
                              Parent =:= Pid],
    ?assertNot(lists:member('[unknown]', functions(Profile, Child))),
    ?assert(sum(calls, ['-fork/0-fun-0-', leaf], Profile, Child) > 0),
    end_all([Pid]).

no_children() ->
    Pid = standing(),
    Profile = record([Pid], #{spawned => false}, fun() -> ask(Pid, fun fork/0) end),
    ?assertMatch([#{pid := Pid}], emberl_profile:processes(Profile)),
    end_all([Pid]).

fork() ->
    {Child, Monitor} = spawn_monitor(fun() -> emberl_work:leaf(1) end),
    receive {'DOWN', Monitor, process, Child, _} -> ok end.

dies() ->
    [Pid, Other] = [standing(), standing()],
    Profile = record([Pid, Other],
                     fun() -> end_all([Pid]), ask(Other, fun() -> emberl_work:leaf(1) end) end),
    ?assertMatch([#{exited := true}],
                 [P || #{pid := P0} = P <- emberl_profile:processes(Profile), P0 =:= Pid]),
    ?assert(total(Profile, Pid) < maps:get(duration_ns, emberl_profile:info(Profile))),
    ?assert(lists:member(leaf, functions(Profile, Other))),
    end_all([Other]).

dead() ->
    Pid = standing(),
    Dead = spawn(fun() -> ok end),
    emberl_test:wait_dead(Dead),
    Ref = open([Pid, Dead, whereis(emberl_control)]),
    {stopped, [{Profile, _}], #{counts := Counts}} = emberl_control:stop(Ref),
    ?assertEqual(#{flagged => 1, gone => 1, refused => 0, late => 0}, Counts),
    ?assertMatch([#{pid := Pid}], emberl_profile:processes(Profile)),
    end_all([Pid]).

%% It keeps its scheduler, so that nobody may wait for it.
native() ->
    Self = self(),
    Pid = spawn_link(fun() -> Self ! {self(), ready}, emberl_test_nif:hold(300), stand(Self) end),
    receive {Pid, ready} -> ok end,
    Profile = record([Pid], #{compensate => false}, fun() -> ok end),
    assert_whole(Profile, Pid),
    end_all([Pid]).

%% Its own frames are seen, ours are not.
caller() ->
    Profile = record([self()], fun() -> sum([1, 2, 3]) end),
    ?assertNotEqual([], [S || {S, #{calls := C}} <- stacks(Profile, self()), C > 0,
                              lists:last(S) =:= sum]),
    Modules =
        lists:usort([M || #{stack := Stack} <- emberl_profile:stacks(Profile), {M, _, _} <- Stack]),
    ?assertEqual([], [M || M <- Modules, lists:member(M, emberl_trace:own_modules())]).

%% Any number of them, and it takes no time that grows with what they do.
many() ->
    Pids = [start_fast() || _ <- lists:seq(1, 2000)],
    Ref = open(Pids),
    [ask(Pid, fun() -> emberl_work:leaf(1) end) || Pid <- lists:sublist(Pids, 1, 100)],
    {stopped, [{Profile, _}], #{counts := Counts}} = emberl_control:stop(Ref),
    ?assertMatch(#{flagged := 2000, late := 0}, Counts),
    ?assertEqual(2000, length(emberl_profile:processes(Profile))),
    ?assertEqual(100, lists:sum([C || #{stack := S, calls := C} <- emberl_profile:stacks(Profile),
                                      S =/= [], lists:last(S) =:= {emberl_work, leaf, 1}])),
    end_all(Pids).

start_fast() ->
    Self = self(),
    spawn_link(fun() -> stand(Self) end).

%% ---- beside captures ----

captured() ->
    Pid = standing(),
    Ref = open([Pid]),
    {ok, Capture} = emberl:start_capture({emberl_work, pair, 1}, 1, options()),
    ask(Pid, fun() -> emberl_work:pair(1), emberl_work:pair(2) end),
    {ok, [Captured]} = emberl:await(Capture, infinity),
    Profile = close(Ref),
    ?assertEqual(emberl_test:shape(emberl_test:profile({emberl_work, pair, [1]})),
                 emberl_test:shape(Captured)),
    ?assertEqual(2, sum(calls, ?STANDS ++ ['-captured/0-fun-0-', pair], Profile, Pid)),
    ?assertEqual(4, sum(calls, ?STANDS ++ ['-captured/0-fun-0-', pair, leaf], Profile, Pid)),
    end_all([Pid]).

within_captured() ->
    Self = self(),
    {ok, Capture} = emberl:start_capture({?MODULE, outer, 1}, 1, options()),
    Pid = start(fun() -> outer(Self), stand(Self) end),
    Profile = record([Pid], #{compensate => false},
                     fun() -> ask(Pid, fun() -> emberl_work:pair(1) end), back(Pid),
                              ask(Pid, fun() -> emberl_work:bare() end)
                     end),
    {ok, [Captured]} = emberl:await(Capture, infinity),
    assert_whole(Profile, Pid),
    ?assertMatch(#{outcome := returned, lost := 0}, emberl_profile:info(Captured)),
    ?assertEqual(1, sum(calls, [outer, middle, inner, stand, '-within_captured/0-fun-1-', pair],
                        Captured, Pid)),
    Root = '-within_captured/0-fun-0-',
    ?assertEqual(1, sum(calls, [Root, outer, middle, inner, stand, '-within_captured/0-fun-1-',
                                pair], Profile, Pid)),
    ?assertEqual(1, sum(calls, [Root, stand, '-within_captured/0-fun-2-', bare], Profile, Pid)),
    end_all([Pid]).

%% What the VM has pushed for tracing stays on the stack after a window.
linked(Parent) ->
    receive
        {Parent, call, _} -> Parent ! {self(), ok}, linked(Parent);
        {Parent, return} -> first(Parent)
    end.

first(Parent) -> second(Parent).
second(Parent) -> emberl_work:leaf(1), third(Parent).
third(Parent) -> Parent ! {self(), returned}.

recorded_chain() ->
    Self = self(),
    Pid = start(fun() -> {linked(Self), stand(Self)} end),
    record([Pid], fun() -> ask(Pid) end),
    Pid.

captured_after() ->
    Pid = recorded_chain(),
    {ok, Capture} = emberl:start_capture({?MODULE, first, 1}, 1, options()),
    back(Pid),
    {ok, [Captured]} = emberl:await(Capture, infinity),
    [?assertEqual(1, sum(calls, Stack, Captured, Pid))
     || Stack <- [[first], [first, second], [first, second, leaf], [first, second, third]]],
    ?assertEqual([first, leaf, second, third], functions(Captured, Pid)),
    end_all([Pid]).

recorded_after() ->
    Pid = recorded_chain(),
    Profile = record([Pid],
                     fun() -> ask(Pid), back(Pid), ask(Pid, fun() -> emberl_work:leaf(1) end) end),
    Chain = ['-recorded_chain/0-fun-0-', linked, first, second],
    [?assert(sum(calls, Stack, Profile, Pid) > 0)
     || Stack <- [Chain, Chain ++ [leaf], Chain ++ [third], ['-recorded_chain/0-fun-0-', stand]]],
    end_all([Pid]).

two() ->
    Pid = standing(),
    First = open([Pid]),
    ask(Pid, fun() -> emberl_work:leaf(1) end),
    Second = open([Pid]),
    ask(Pid, fun() -> emberl_work:pair(1) end),
    [assert_twice(Profile, Pid) || Profile <- [close(First), close(Second)]],
    end_all([Pid]).

assert_twice(Profile, Pid) ->
    ?assertEqual(1, sum(calls, ?STANDS ++ ['-two/0-fun-1-', pair], Profile, Pid)).

%% ---- ends and options ----

stopped() ->
    Pid = standing(),
    {ok, Options} = emberl_options:parse(capture, options()),
    Request = #{processes => [Pid], duration => 1, target => <<"window">>, options => Options},
    {ok, Ref} = emberl_control:start_window(Request),
    {done, [{Profile, _}], _} = emberl_control:await(Ref, infinity),
    ?assertMatch(#{complete := true, cut_by := none, outcome := recorded},
                 emberl_profile:info(Profile)),
    {ok, Timed} = emberl_control:start_window(Request#{duration := infinity,
                                                       options := Options#{timeout := 1}}),
    {timeout, [{Cut, _}], _} = emberl_control:await(Timed, infinity),
    ?assertMatch(#{complete := false, cut_by := timeout}, emberl_profile:info(Cut)),
    wait_until(fun() -> not emberl_test:running() end),
    end_all([Pid]).

limit() ->
    Self = self(),
    Pid = start(fun() -> stand(Self) end),
    Ref = open([Pid], #{memory_limit => 1024 * 1024, fold_recursion => false}),
    ask(Pid, fun grow_stacks/0),
    {limit, [{Profile, _}], _} = emberl_control:await(Ref, infinity),
    ?assertMatch(#{cut_by := memory_limit}, emberl_profile:info(Profile)),
    end_all([Pid]).

%% Each way through is a stack of its own.
grow_stacks() -> grow_stacks(12).

grow_stacks(0) -> ok;
grow_stacks(N) -> {left(N - 1), right(N - 1)}.

left(N) -> [grow_stacks(N)].
right(N) -> [grow_stacks(N)].

modules() ->
    Pid = standing(),
    Profile = record([Pid], #{modules => [emberl_work]},
                     fun() -> ask(Pid, fun() -> emberl_work:pair(1) end) end),
    ?assertEqual([leaf, pair], functions(Profile, Pid)),
    assert_whole(record([Pid], #{modules => [emberl_work], compensate => false},
                        fun() -> ask(Pid) end), Pid),
    end_all([Pid]).

timeline() ->
    Pid = standing(),
    Profile = record([Pid], #{timeline => true}, fun() -> ask(Pid) end),
    ?assertMatch(#{timeline := complete}, emberl_profile:info(Profile)),
    end_all([Pid]).

told() ->
    Pid = standing(),
    Profile = record([Pid], fun() -> ok end),
    {ok, Text} = emberl_test:quiet(fun() -> emberl:print(Profile) end),
    ?assertMatch({_, _}, binary:match(Text, <<"the recording was stopped">>)),
    ?assertEqual(nomatch, binary:match(Text, <<"1 call">>)),
    ?assertMatch({_, _}, binary:match(iolist_to_binary(emberl_profile:format(Profile, svg)),
                                      <<"The recording was stopped">>)),
    end_all([Pid]).

names() ->
    Pid = standing(),
    register(window_tests_named, Pid),
    Profile = record([Pid], fun() -> end_all([Pid]) end),
    ?assertMatch([#{name := <<"window_tests_named">>}], emberl_profile:processes(Profile)).

%% Where the library has not found how stacks can be walked.
no_walks() ->
    emberl:stop(),
    emberl_nif:use_walks(false),
    Pid = standing(),
    Profile = record([Pid], fun() -> ask(Pid, fun() -> emberl_work:pair(1) end), back(Pid) end),
    emberl_layout:check(),
    Pair = [S || {S, #{calls := 1}} <- stacks(Profile, Pid), lists:last(S) =:= pair],
    ?assertMatch([['[unknown]' | _]], Pair),
    ?assert(maps:get(walks, emberl_nif:stats())),
    end_all([Pid]).
