%% SPDX-License-Identifier: Apache-2.0
%% Sampling on a real VM: it runs, stops, and stops itself, leaves nothing behind, stores
%% each window once, and gives each process its share.
-module(emberl_sampler_tests).

-include_lib("eunit/include/eunit.hrl").

-behaviour(supervisor).
-export([init/1, unit/1, spinner/2, parent/2, short_life/2, server/2, client/1, driver/3]).

-import(emberl_test, [wait_until/1]).

%% Tests do not wait for windows: their budget is large.
-define(FAST, #{budget => 0.5, min_interval => 1}).

started(Options) ->
    _ = emberl:stop(emberl_sampler), % of a test that has failed
    {ok, Sampler} = emberl:sample(maps:merge(?FAST, Options)),
    Sampler.

status(Key, Sampler) ->
    maps:get(Key, emberl:status(Sampler)).

%% A window takes long on a machine that is busy with other things.
wait_windows(Sampler, Count) ->
    Now = status(windows, Sampler),
    [wait_window(Sampler, Next) || Next <- lists:seq(Now + 1, Count)].

wait_window(Sampler, Count) ->
    wait_until(fun() -> status(windows, Sampler) >= Count end).

sampled(Profile) ->
    #{sampled := Sampled} = emberl_profile:info(Profile),
    Sampled.

cases(Cases) ->
    {setup, fun() -> emberl:apply(fun() -> ok end, #{return => profile}) end,
     [{Name, {timeout, 60, Fun}} || {Name, Fun} <- Cases]}.

%% ---- options ----

bad_options_test_() ->
    [?_assertMatch({error, {bad_option, Key, _}}, emberl:sample(#{Key => Value}))
     || {Key, Values} <- [{budget, [0, 1, "1", -0.1]}, {window, [0, 51, 1.5]},
                          {min_interval, [-1, soon]}, {processes, [[], self(), [1], [a | b]]},
                          {most_processes, [0, all]},
                          {modules, [[no_such_module], []]}, {store, [1, "", a_name]},
                          {slice, [0, 99]},
                          {metrics, [none, [], [time], words]},
                          {retention, [none, #{max_bytes => 0}, #{max_size => 1}]},
                          {memory_limit, [1, 65535, infinity]}, {max_events, [0, 999]},
                          {run_queue_limit, [0, none]}, {kill_file, [1, ""]}, {colour, [red]}],
        Value <- Values].

bad_store_test() ->
    ?assertMatch({error, {bad_option, store, _}}, emberl:sample(#{store => "/dev/null/x"})),
    ?assertEqual(undefined, whereis(emberl_sampler)).

unknown_sampler_test_() ->
    [?_assertMatch({error, {unknown_sampler, emberl_sampler, _}}, Call(emberl_sampler))
     || Call <- [fun emberl:status/1, fun emberl:pause/1, fun emberl:resume/1,
                 fun emberl:snapshot/1, fun emberl:stop/1]].

%% ---- its life ----

life_test_() ->
    cases([{"samples", fun samples/0}, {"one on a node", fun one_on_a_node/0},
           {"pause", fun pauses/0}, {"slices", fun slices_have_each_window_once/0},
           {"memory only", fun without_a_store/0}, {"memory limit", fun memory_is_bounded/0},
           {"some processes", fun some_processes/0}, {"many processes", fun many_processes/0},
           {"modules", fun some_modules/0}, {"environment", fun environment/0},
           {"supervised", fun supervised/0}, {"others", fun others_between_windows/0},
           {"metrics", fun some_metrics/0}, {"stopped by many", fun stopped_by_many/0},
           {"clean", fun clean_when_stopped/0},
           {"failed windows", fun failed_windows/0}, {"no application", fun no_application/0},
           {"no supervisor", fun no_supervisor/0}]).

samples() ->
    Sampler = started(#{}),
    wait_windows(Sampler, 3),
    #{state := sampling, reason := none, budget := 0.5, events := Events, coverage := Coverage,
      cost_minute := Minute, cost_life := Life, memory := Memory,
      store := none} = emberl:status(Sampler),
    ?assert(Events > 0 andalso Coverage > 0.5 andalso Memory > 0),
    ?assert(Minute > 0 andalso Life > 0),
    Snapshot = emberl:snapshot(Sampler),
    #{windows := Windows, window_ns := Within, span_ns := Span, budget := 0.5} = sampled(Snapshot),
    ?assert(Windows >= 3 andalso Within > 0 andalso Span > Within),
    ?assertMatch(#{outcome := recorded, target := <<"sample of ", _/binary>>},
                 emberl_profile:info(Snapshot)),
    ?assertEqual(ok, emberl:stop(Sampler)),
    ?assertMatch({error, {unknown_sampler, _, _}}, emberl:status(Sampler)).

one_on_a_node() ->
    Sampler = started(#{}),
    ?assertMatch({error, {already_started, Sampler}}, emberl:sample(#{budget => 0.02})),
    ok = emberl:stop(emberl_sampler).

pauses() ->
    Sampler = started(#{}),
    wait_windows(Sampler, 1),
    ok = emberl:pause(Sampler),
    Before = status(windows, Sampler),
    ?assertMatch(#{state := paused}, emberl:status(Sampler)),
    wait_until(fun() -> not emberl_test:running() end),
    receive after 300 -> ok end,
    ?assertEqual(Before, status(windows, Sampler)),
    ok = emberl:resume(Sampler),
    wait_windows(Sampler, Before + 1),
    ok = emberl:stop(Sampler).

slices_have_each_window_once() ->
    emberl_test:with_directory(fun(Directory) ->
        Store = filename:join(Directory, "store"),
        Sampler = started(#{store => Store, slice => 300}),
        wait_until(fun() -> maps:get(files, status(store, Sampler)) >= 2 end),
        ok = emberl:pause(Sampler), % what is left is stored, too
        #{windows := Windows, events := Events, store := #{files := Files, error := none}} =
            emberl:status(Sampler),
        {ok, Profile, #{slices := Files, skipped := []}} =
            emberl:query(Store, "-1d", now, [details]),
        ?assertMatch(#{windows := Windows}, sampled(Profile)),
        ?assertMatch(#{events := Events}, emberl_profile:info(Profile)),
        ok = emberl:stop(Sampler),
        {ok, Again} = emberl:query(Store, "-1d", now),
        ?assertEqual(sampled(Profile), sampled(Again))
    end).

without_a_store() ->
    Sampler = started(#{slice => 100}),
    wait_windows(Sampler, 3),
    ok = emberl:pause(Sampler),
    Windows = status(windows, Sampler),
    ?assertMatch(#{windows := Windows}, sampled(emberl:snapshot(Sampler))),
    ok = emberl:stop(Sampler).

%% A window of so many processes is more than that already.
memory_is_bounded() ->
    Pids = [spawn_link(emberl_work, wait_for, [stop]) || _ <- lists:seq(1, 400)],
    Sampler = started(#{memory_limit => 1 bsl 16}),
    wait_until(fun() -> status(forgotten, Sampler) >= 1 end),
    ok = emberl:stop(Sampler),
    [begin unlink(Pid), exit(Pid, kill) end || Pid <- Pids].

some_processes() ->
    Busy = emberl_test:busy(fun() -> emberl_work:pair(1) end),
    Sampler = started(#{processes => [Busy, no_such_name]}),
    wait_windows(Sampler, 2),
    ok = emberl:pause(Sampler),
    ?assertEqual([Busy],
                 [Pid || #{pid := Pid} <- emberl_profile:processes(emberl:snapshot(Sampler))]),
    ok = emberl:stop(Sampler),
    emberl_test:stop(Busy).

%% Some at random and the busiest stand for all.
many_processes() ->
    Pids = [spawn_link(emberl_work, wait_for, [stop]) || _ <- lists:seq(1, 400)],
    Sampler = started(#{most_processes => 50}),
    wait_windows(Sampler, 4),
    Coverage = status(coverage, Sampler),
    ok = emberl:stop(Sampler),
    [begin unlink(Pid), exit(Pid, kill) end || Pid <- Pids],
    ?assert(Coverage > 0.02 andalso Coverage < 0.5).

some_modules() ->
    Busy = emberl_test:busy(fun() -> emberl_work:pair(1) end),
    Sampler = started(#{modules => [emberl_work]}),
    wait_windows(Sampler, 3),
    Functions = emberl_profile:functions(emberl:snapshot(Sampler)),
    ok = emberl:stop(Sampler),
    emberl_test:stop(Busy),
    Modules = lists:usort([Module || #{mfa := {Module, _, _}} <- Functions]) -- [''],
    ?assertEqual([emberl_work], Modules).

%% What was not asked for is not there, rather than zero.
some_metrics() ->
    emberl_test:with_directory(fun(Directory) ->
        Busy = emberl_test:busy(fun() -> emberl_work:pair(1) end),
        Sampler = started(#{metrics => [calls], store => Directory}),
        wait_windows(Sampler, 3),
        ok = emberl:stop(Sampler),
        emberl_test:stop(Busy),
        {ok, Profile} = emberl:query(Directory, "-1d", now),
        #{fallbacks := Absent} = emberl_profile:info(Profile),
        ?assertEqual([], [no_times, no_words, no_binaries] -- Absent),
        [?assertEqual([calls, mfa], lists:sort(maps:keys(Row)))
         || Row <- emberl_profile:functions(Profile)],
        ?assert(lists:any(fun(#{calls := Calls}) -> Calls > 0 end,
                          emberl_profile:functions(Profile))),
        ?assertError({bad_option, metric, _},
                     emberl_profile:format(Profile, svg, #{metric => own_time})),
        ?assertEqual(iolist_to_binary(emberl_profile:format(Profile, brendan_gregg,
                                                            #{metric => calls})),
                     iolist_to_binary(emberl_profile:format(Profile, brendan_gregg, #{}))),
        emberl_test:quiet(fun() -> emberl:print(Profile) end)
    end).

environment() ->
    ok = application:stop(emberl),
    ok = application:set_env(emberl, sample, maps:to_list(?FAST)),
    {ok, _} = application:ensure_all_started(emberl),
    wait_windows(emberl_sampler, 1),
    ok = emberl:stop(emberl_sampler),
    ok = application:stop(emberl),
    ok = application:set_env(emberl, sample, #{budget => too_much}),
    {ok, _} = application:ensure_all_started(emberl),
    ?assertEqual(undefined, whereis(emberl_sampler)),
    ok = application:stop(emberl),
    ok = application:set_env(emberl, sample, foo),
    [Text] = [T || T <- emberl_test:logged(fun() -> application:ensure_all_started(emberl) end),
                   string:find(T, "does not sample") =/= nomatch],
    ?assertNotEqual(nomatch, string:find(Text, "foo")),
    ok = application:unset_env(emberl, sample).

supervised() ->
    {ok, Supervisor} = supervisor:start_link(?MODULE, emberl_sampler:child_spec(?FAST)),
    wait_windows(emberl_sampler, 1),
    Before = whereis(emberl_sampler),
    exit(Before, kill),
    wait_until(fun() -> not lists:member(whereis(emberl_sampler), [undefined, Before]) end),
    wait_windows(emberl_sampler, 1),
    Sampler = whereis(emberl_sampler),
    ?assertEqual({error, {already_started, Sampler}}, emberl:sample(?FAST)),
    ok = stopped_at_once(emberl_sampler),
    ?assertEqual(undefined, whereis(emberl_sampler)),
    unlink(Supervisor),
    exit(Supervisor, shutdown),
    emberl_test:wait_dead(Supervisor).

init(Child) -> {ok, {#{}, [Child]}}.

%% It does not start what was stopped, until it is told to.
no_application() ->
    {ok, Supervisor} = supervisor:start_link(?MODULE, emberl_sampler:child_spec(?FAST)),
    wait_windows(emberl_sampler, 1),
    ok = application:stop(emberl),
    #{state := stopped, reason := stopped, windows := Windows} = emberl:status(emberl_sampler),
    receive after 300 -> ok end,
    ?assertNot(lists:keymember(emberl, 1, application:which_applications())),
    ok = emberl:resume(emberl_sampler),
    wait_windows(emberl_sampler, Windows + 1),
    ok = emberl:stop(emberl_sampler),
    unlink(Supervisor),
    exit(Supervisor, shutdown),
    emberl_test:wait_dead(Supervisor).

%% Whoever is late is told that there is none.
stopped_at_once(Sampler) ->
    Self = self(),
    Pids = [spawn_link(fun() -> Self ! {self(), emberl:stop(Sampler)} end)
            || _ <- lists:seq(1, 10)],
    Results = [receive {Pid, Result} -> Result end || Pid <- Pids],
    [?assertMatch({error, {unknown_sampler, _, _}}, Error) || Error <- Results, Error =/= ok],
    ?assert(lists:member(ok, Results)).

stopped_by_many() ->
    [stopped_at_once(started(#{})) || _ <- lists:seq(1, 10)].

%% They are no windows of the profile, nor of the status.
failed_windows() ->
    Sampler = started(#{window => 50}),
    wait_windows(Sampler, 1),
    wait_until(fun() -> kill_window(Sampler), status(errors, Sampler) >= 1 end),
    ok = emberl:pause(Sampler),
    #{windows := Windows} = sampled(emberl:snapshot(Sampler)),
    ?assertEqual(Windows, status(windows, Sampler)),
    ok = emberl:stop(Sampler).

kill_window(Sampler) ->
    {links, Links} = process_info(Sampler, links),
    [exit(Pid, kill) || Pid <- Links, is_pid(Pid), Pid =/= whereis(emberl_sup)].

%% At once, also where a window is open just then.
clean_when_stopped() ->
    [begin
         started(Options),
         wait_until(fun emberl_test:running/0),
         ok = emberl:stop(emberl_sampler),
         ?assertNot(emberl_test:running())
     end || Options <- [#{window => 50}, #{window => 50, modules => [lists]}],
            _ <- lists:seq(1, 5)].

no_supervisor() ->
    logger:set_primary_config(level, none),
    [begin
         Sampler = started(#{}),
         exit(whereis(emberl_sup), kill),
         Stopped = emberl:stop(Sampler),
         ?assertMatch({_, true}, {Stopped, Stopped =:= ok orelse element(1, Stopped) =:= error}),
         ?assertNot(is_process_alive(Sampler)),
         {ok, _} = emberl:sample(?FAST),
         ok = emberl:stop(emberl_sampler),
         exit(whereis(emberl_sup), kill),
         {ok, _} = emberl:sample(?FAST),
         ok = emberl:stop(emberl_sampler)
     end || _ <- lists:seq(1, 5)],
    logger:set_primary_config(level, notice).


%% Where the node has one trace: nobody's breakpoints are taken away, also those that are set
%% between windows.
others_between_windows() ->
    Sampler = started(#{min_interval => 300}),
    wait_windows(Sampler, 2),
    wait_until(fun() -> not emberl_test:running() end),
    1 = erlang:trace_pattern({emberl_work, pair, 1}, true, [local]),
    case emberl_test:has_sessions() of
        true -> wait_windows(Sampler, status(windows, Sampler) + 2);
        false ->
            wait_until(fun() ->
                status(error, Sampler) =:= {other_tracer, {function, {emberl_work, pair, 1}}}
            end)
    end,
    ?assertEqual({traced, local}, erlang:trace_info({emberl_work, pair, 1}, traced)),
    1 = erlang:trace_pattern({emberl_work, pair, 1}, false, [local]),
    wait_windows(Sampler, status(windows, Sampler) + 2),
    ok = emberl:stop(Sampler).

%% ---- it stops itself ----

stop_test_() ->
    cases([{"budget", fun too_small_a_budget/0}, {"kill file", fun kill_file/0},
           {"run queues", fun run_queues/0}, {"emberl:stop()", fun all_stopped/0},
           {"full disk", fun directory_in_the_way/0}]).

stopped(Reason, Options) ->
    Sampler = started(Options),
    wait_until(fun() -> status(state, Sampler) =:= stopped end),
    ?assertEqual(Reason, status(reason, Sampler)),
    wait_until(fun() -> not emberl_test:running() end),
    Sampler.

too_small_a_budget() ->
    Sampler = stopped(budget, #{budget => 0.0001}),
    ?assertEqual(0, status(windows, Sampler)),
    ok = emberl:stop(Sampler).

kill_file() ->
    emberl_test:with_directory(fun(Directory) ->
        File = filename:join(Directory, "stop"),
        Sampler = started(#{kill_file => File}),
        wait_windows(Sampler, 1),
        ok = file:write_file(File, ""),
        wait_until(fun() -> status(reason, Sampler) =:= kill_file end),
        ok = file:delete(File),
        Windows = status(windows, Sampler),
        ok = emberl:resume(Sampler),
        wait_windows(Sampler, Windows + 1),
        ok = emberl:stop(Sampler)
    end).

run_queues() ->
    Busy = [emberl_test:busy(fun() -> emberl_work:pair(1) end)
            || _ <- lists:seq(1, 10 * erlang:system_info(schedulers))],
    Sampler = stopped(run_queues, #{run_queue_limit => 1}),
    [emberl_test:stop(Pid) || Pid <- Busy],
    ok = emberl:stop(Sampler).

all_stopped() ->
    Sampler = started(#{}),
    wait_windows(Sampler, 1),
    ok = emberl:stop(),
    ?assertMatch(#{state := stopped, reason := stopped}, emberl:status(Sampler)),
    ?assertNot(emberl_test:running()),
    ok = emberl:stop(Sampler).

directory_in_the_way() ->
    emberl_test:with_directory(fun(Directory) ->
        Store = filename:join(Directory, "store"),
        Sampler = started(#{store => Store, slice => 100}),
        wait_windows(Sampler, 1),
        ok = emberl:pause(Sampler),
        ok = file:del_dir_r(Store),
        ok = file:write_file(Store, "in the way"),
        ok = emberl:resume(Sampler),
        wait_until(fun() -> maps:get(dropped, status(store, Sampler)) >= 1 end),
        ?assertMatch({_, _, _}, maps:get(error, status(store, Sampler))),
        ok = file:delete(Store),
        wait_until(fun() -> maps:get(error, status(store, Sampler)) =:= none end),
        ok = emberl:stop(Sampler)
    end).

%% ---- nothing is left behind ----

%% Whatever ends it, also within a window.
cleanup_test_() ->
    cases([{Name, fun() -> nothing_left(End) end}
           || {Name, End} <- [{"stopped", fun emberl:stop/1},
                              {"paused",
                               fun(Sampler) -> emberl:pause(Sampler), emberl:stop(Sampler) end},
                              {"all stopped",
                               fun(Sampler) -> emberl:stop(), emberl:stop(Sampler) end},
                              {"killed", fun killed/1}, {"control killed", fun control_killed/1},
                              {"supervisor killed", fun supervisor_killed/1},
                              {"application stopped",
                               fun(_) ->
                                       application:stop(emberl),
                                       application:ensure_all_started(emberl)
                               end}]]).

nothing_left(End) ->
    Busy = emberl_test:busy(fun() -> emberl_work:pair(1) end),
    Before = state(),
    [begin
         Sampler = started(#{}),
         wait_windows(Sampler, 1),
         End(Sampler)
     end || _ <- [1, 2]],
    wait_until(fun() -> state() =:= Before end),
    ?assertEqual(Before, state()),
    emberl_test:stop(Busy),
    ?assertEqual({ok, {1, 1}}, emberl_test:works()).

state() ->
    {emberl_cleanup_tests:state(), length(filelib:wildcard("/proc/self/fd/*")),
     whereis(emberl_sampler), is_pid(whereis(emberl_control))}.

%% Its supervisor starts another.
killed(Sampler) ->
    exit(Sampler, kill),
    wait_until(fun() -> not lists:member(whereis(emberl_sampler), [undefined, Sampler]) end),
    wait_windows(emberl_sampler, 1),
    ok = emberl:stop(emberl_sampler).

control_killed(Sampler) ->
    exit(whereis(emberl_control), kill),
    Windows = status(windows, Sampler),
    wait_windows(Sampler, Windows + 1),
    ok = emberl:stop(Sampler).

supervisor_killed(Sampler) ->
    Supervisor = whereis(emberl_sup),
    exit(Supervisor, kill),
    emberl_test:wait_dead(Supervisor),
    wait_until(fun() -> not is_process_alive(Sampler) end),
    wait_until(fun() ->
                       not lists:member(emberl,
                                        [App || {App, _, _} <- application:which_applications()])
               end),
    {ok, _} = application:ensure_all_started(emberl).

%% ---- shares ----

%% A unit of work is some ten microseconds within the VM: long beside what it costs to trace
%% it. Each kind of process has functions of its own.
unit(Binary) -> erlang:md5(Binary).

spinner(Counter, Binary) ->
    ?MODULE:unit(Binary),
    counters:add(Counter, 1, 1),
    spinner(Counter, Binary).

%% Many short lives, one after the other.
parent(Counter, Binary) ->
    {_, Monitor} = spawn_monitor(?MODULE, short_life, [Counter, Binary]),
    receive {'DOWN', Monitor, process, _, _} -> parent(Counter, Binary) end.

short_life(Counter, Binary) ->
    [?MODULE:unit(Binary) || _ <- [1, 2, 3]],
    counters:add(Counter, 2, 3).

%% A server that has time to wait.
server(Counter, Binary) ->
    receive
        {ask, From} ->
            ?MODULE:unit(Binary),
            counters:add(Counter, 3, 1),
            From ! answer,
            server(Counter, Binary)
    end.

client(Server) ->
    Server ! {ask, self()},
    receive answer -> ok end,
    receive after 1 -> client(Server) end.

shares_test_() ->
    cases([{"shares", fun shares/0}, {"shares of a full trace", fun shares_of_a_trace/0}]).

-define(KINDS, [spinner, short_life, server]).

start_kinds(Counter) ->
    Binary = binary:copy(<<"emberl">>, 5000),
    Server = spawn_link(?MODULE, server, [Counter, Binary]),
    [Server, spawn_link(?MODULE, spinner, [Counter, Binary]),
     spawn_link(?MODULE, parent, [Counter, Binary]), spawn_link(?MODULE, client, [Server])].

stop_kinds(Pids) ->
    [begin unlink(Pid), exit(Pid, kill) end || Pid <- Pids].

sample_kinds() ->
    Sampler = started(#{}),
    wait_windows(Sampler, 8),
    ok = emberl:pause(Sampler),
    Profile = emberl:snapshot(Sampler),
    ok = emberl:stop(Sampler),
    Profile.

%% What each has done is counted. Calls in windows are to have the same shares, within what
%% chance and a machine that is busy with other things allow for.
shares() ->
    Counter = counters:new(3, []),
    Pids = start_kinds(Counter),
    Before = [counters:get(Counter, N) || N <- [1, 2, 3]],
    Profile = sample_kinds(),
    Done = [counters:get(Counter, N) - Then || {N, Then} <- lists:zip([1, 2, 3], Before)],
    stop_kinds(Pids),
    assert_near(Done, [units(Profile, Below) || Below <- ?KINDS]).

%% A trace of all that is done has the same shares. Here they follow from one another,
%% whoever is slowed down by what: 4, 3 and 1 units a round.
shares_of_a_trace() ->
    Counter = counters:new(3, []),
    Binary = binary:copy(<<"emberl">>, 5000),
    Server = spawn_link(?MODULE, server, [Counter, Binary]),
    Driver = spawn_link(?MODULE, driver, [Server, Counter, Binary]),
    Sampled = sample_kinds(),
    Traced = emberl:record(1000, #{rootset => [Server, Driver], return => profile}),
    stop_kinds([Driver, Server]),
    assert_near([units(Traced, Below) || Below <- [own_part, short_life, server]],
                [units(Sampled, Below) || Below <- [own_part, short_life, server]]).

driver(Server, Counter, Binary) ->
    own_part(Binary),
    {_, Monitor} = spawn_monitor(?MODULE, short_life, [Counter, Binary]),
    receive {'DOWN', Monitor, process, _, _} -> ok end,
    Server ! {ask, self()},
    receive answer -> driver(Server, Counter, Binary) end.

own_part(Binary) -> [?MODULE:unit(Binary) || _ <- [1, 2, 3, 4]].

assert_near(True, Estimated) ->
    [?assert(abs(Share - Estimate) < 0.3, {True, Estimated})
     || {Share, Estimate} <- lists:zip(shares_of(True), shares_of(Estimated))].

shares_of(Numbers) -> [Number / lists:sum(Numbers) || Number <- Numbers].

units(Profile, Below) ->
    lists:sum([Calls || #{stack := Stack, calls := Calls} <- emberl_profile:stacks(Profile),
                        lists:last([none | Stack]) =:= {?MODULE, unit, 1},
                        lists:keymember(Below, 2, Stack)]).
