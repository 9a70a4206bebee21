%% SPDX-License-Identifier: Apache-2.0
%% Whatever way a run ends, nothing of ours is left in the VM or in the
%% operating system's process.
-module(emberl_cleanup_tests).

-include_lib("eunit/include/eunit.hrl").

-export([state/0]).

-import(emberl_test, [wait_until/1, wait_dead/1]).

-define(FOREVER, {emberl_work, forever, 0}).

%% {Name, what is done}; each leaves the VM as it was.
ends() ->
    [{"apply returns", fun() -> emberl:apply({emberl_work, pair, [1]}, profile()) end},
     {"apply raises",
      fun() ->
              catch_all(fun() -> emberl:apply({emberl_work, uncaught, [exit]}, profile()) end)
      end},
     {"apply is refused",
      fun() -> catch_all(fun() -> emberl:apply({emberl_work, leaf, []}, profile()) end) end},
     {"apply times out", fun apply_timeout/0},
     {"the caller of apply is killed", fun() -> killed(fun forever_in_apply/0) end},
     {"a child of apply lives on", fun child_of_apply/0},
     {"capture has its calls", fun capture_done/0},
     {"the captured function raises", fun capture_raises/0},
     {"the captured process is killed", fun captured_killed/0},
     {"capture is stopped", fun() -> emberl:stop(forever_captured()) end},
     {"capture times out", fun() -> emberl:capture(?FOREVER, 1, (profile())#{timeout => 30}) end},
     {"all are stopped", fun() -> forever_captured(), forever_captured(), emberl:stop() end},
     {"capture is refused", fun() -> emberl:capture({emberl_work, leaf, 7}) end},
     {"who waits for a capture is killed",
      fun() -> killed(fun() -> emberl:capture(?FOREVER) end) end},
     {"who started a capture ends", fun() -> emberl_test:in_process(fun forever_captured/0) end},
     {"the server is killed", fun() -> server_killed(fun forever_captured/0) end},
     {"the server is killed in apply", fun server_killed_in_apply/0},
     {"the janitor is killed", fun() -> janitor_killed(forever_captured()) end},
     {"both are killed", fun both_killed/0},
     {"the supervisor is killed", fun supervisor_killed/0},
     {"all are killed", fun() -> all_killed(fun forever_captured/0) end},
     {"the application is stopped", fun application_stopped/0},
     {"a window ends", fun() -> emberl_control:await(window(1), infinity) end},
     {"a window is stopped", fun() -> emberl_control:stop(window(infinity)) end},
     {"who opened a window is killed",
      fun() -> killed(fun() -> window(infinity), emberl_work:forever() end) end},
     {"all it records is killed", fun window_killed/0},
     {"the server is killed in a window",
      fun() -> server_killed(fun() -> window(infinity) end) end},
     {"the janitor is killed in a window", fun() -> janitor_killed(window(infinity)) end},
     {"all are killed in a window", fun() -> all_killed(fun() -> window(infinity) end) end}].

profile() -> #{return => profile, modules => all}.

catch_all(Fun) ->
    try Fun() catch _:_ -> ok end.

end_test_() ->
    {setup, fun() -> emberl:apply(fun() -> ok end, profile()) end,
     [{Name, {timeout, 60, fun() -> nothing_left(End) end}} || {Name, End} <- ends()]}.

%% While a process calls what is captured, and after it has had time to see that
%% it is not.
nothing_left(End) ->
    Busy = emberl_test:busy(fun() -> emberl_work:pair(1) end),
    Before = state(),
    End(),
    wait_until(fun() -> not is_running() end),
    wait_until(fun() -> state() =:= Before end),
    ?assertEqual(Before, state()),
    emberl_test:stop(Busy),
    ?assertEqual({ok, {1, 1}}, emberl_test:works()).

is_running() ->
    emberl_test:running() orelse not lists:member(emberl_control, registered()).

%% ---- what there is in the VM ----

state() ->
    #{flags => [{P, F} || P <- processes(), {flags, F} <- [erlang:trace_info(P, flags)], F =/= []],
      new => erlang:trace_info(new_processes, flags),
      on_load => erlang:trace_info(on_load, all),
      patterns => patterns(),
      sessions => sessions(),
      threads => length(filelib:wildcard("/proc/self/task/*")),
      processes => length(ours()),
      running => maps:get(running, emberl_nif:stats())}.

patterns() ->
    [MFA || {Module, _} <- code:all_loaded(), {F, A} <- Module:module_info(functions),
            MFA <- [{Module, F, A}], has_pattern(MFA)].

has_pattern(MFA) ->
    case erlang:trace_info(MFA, all) of
        {all, false} -> false;
        {all, undefined} -> false;
        {all, All} -> lists:any(fun({_, Value}) -> Value =/= false end, All)
    end.

sessions() ->
    case emberl_test:has_sessions() of
        true -> length(trace:session_info(all));
        false -> 0
    end.

%% Processes that run our code.
ours() ->
    [P || P <- processes(), {current_stacktrace, Stack} <- [process_info(P, current_stacktrace)],
          lists:any(fun({M, _, _, _}) -> lists:member(M, emberl_trace:own_modules()) end, Stack)].

%% ---- ways to end ----

%% Kills a process once it is under way.
killed(Fun) ->
    {Pid, _} = spawn_monitor(Fun),
    wait_until(fun emberl_test:running/0),
    exit(Pid, kill),
    receive {'DOWN', _, process, Pid, killed} -> ok end.

forever_in_apply() ->
    emberl:apply({emberl_work, forever, []}, profile()).

apply_timeout() ->
    emberl:apply(fun() -> wait_until(fun() -> not emberl_test:running() end) end,
                 (profile())#{timeout => 30}).

child_of_apply() ->
    Pid = emberl_test:in_directory(#{return => value}, fun(Options) ->
        emberl:apply(fun() -> spawn_link(emberl_work, wait_for, [go]) end, Options)
    end),
    ?assertEqual({flags, []}, erlang:trace_info(Pid, flags)),
    Pid ! go,
    wait_dead(Pid).

forever_captured() ->
    {ok, Capture} = emberl:start_capture(?FOREVER, 1, profile()),
    Capture.

capture_done() ->
    {ok, Capture} = emberl:start_capture({emberl_work, pair, 1}, 100, profile()),
    {ok, _} = emberl:await(Capture, infinity).

capture_raises() ->
    {ok, Capture} = emberl:start_capture({emberl_work, uncaught, 1}, 1, profile()),
    catch_all(fun() -> emberl_work:uncaught(error) end),
    {ok, _} = emberl:await(Capture, infinity).

%% Of processes that wait, and of one that does not.
window(Duration) ->
    window(Duration, processes()).

window(Duration, Pids) ->
    {ok, Options} = emberl_options:parse(capture, profile()),
    {ok, Window} = emberl_control:start_window(#{processes => Pids, duration => Duration,
                                                 target => <<"window">>, options => Options}),
    Window.

window_killed() ->
    {Pid, _} = spawn_monitor(emberl_work, forever, []),
    Window = window(infinity, [Pid]),
    exit(Pid, kill),
    receive {'DOWN', _, process, Pid, killed} -> ok end,
    {stopped, [_], _} = emberl_control:stop(Window).

captured_killed() ->
    {ok, Capture} = emberl:start_capture(?FOREVER, 1, profile()),
    {Pid, _} = spawn_monitor(emberl_work, forever, []),
    exit(Pid, kill),
    receive {'DOWN', _, process, Pid, killed} -> ok end,
    emberl:stop(Capture).

server_killed(Start) ->
    logger:set_primary_config(level, none),
    Start(),
    kill(emberl_control),
    logger:set_primary_config(level, notice).

server_killed_in_apply() ->
    logger:set_primary_config(level, none),
    catch_all(fun() ->
                      emberl:apply(fun() -> kill(emberl_control), emberl_work:pair(1) end,
                                   profile())
              end),
    logger:set_primary_config(level, notice).

janitor_killed(Capture) ->
    logger:set_primary_config(level, none),
    kill(emberl_janitor),
    emberl_control:stop(Capture),
    logger:set_primary_config(level, notice).

both_killed() ->
    logger:set_primary_config(level, none),
    forever_captured(),
    exit(whereis(emberl_janitor), kill),
    kill(emberl_control),
    logger:set_primary_config(level, notice).

%% The application stops with it.
supervisor_killed() ->
    logger:set_primary_config(level, none),
    forever_captured(),
    exit(whereis(emberl_sup), kill),
    wait_until(fun() -> not emberl_test:running() end),
    {ok, _} = application:ensure_all_started(emberl),
    logger:set_primary_config(level, notice).

%% Nobody is left to clean up, until we are called again.
all_killed(Start) ->
    logger:set_primary_config(level, none),
    Start(),
    [exit(whereis(Name), kill) || Name <- [emberl_sup, emberl_control, emberl_janitor]],
    wait_until(fun() -> not lists:keymember(emberl, 1, application:which_applications()) end),
    ok = emberl:stop(),
    logger:set_primary_config(level, notice).

application_stopped() ->
    logger:set_primary_config(level, none),
    forever_captured(),
    ok = application:stop(emberl),
    ?assertNot(emberl_test:running()),
    ?assertEqual([], ours()),
    {ok, _} = application:ensure_all_started(emberl),
    logger:set_primary_config(level, notice).

%% Waits until a supervisor has put another in its place.
kill(Name) ->
    Pid = whereis(Name),
    exit(Pid, kill),
    wait_until(fun() -> is_pid(whereis(Name)) andalso whereis(Name) =/= Pid end).

%% ---- memory ----

%% Rings and tables are a hundred times larger than what a VM's own mappings vary.
memory_test_() ->
    {timeout, 60, fun memory/0}.

memory() ->
    [emberl:apply({emberl_work, pair, [1]}, small()) || _ <- lists:seq(1, 20)],
    Before = mapped_kb(),
    [emberl:apply({emberl_work, pair, [1]}, small()) || _ <- lists:seq(1, 100)],
    [killed(fun forever_in_apply/0) || _ <- lists:seq(1, 5)],
    wait_until(fun() -> not emberl_test:running() end),
    ?assert(mapped_kb() - Before < 100 * 1024).

small() -> #{return => profile, modules => [emberl_work]}.

mapped_kb() ->
    {ok, Text} = file:read_file("/proc/self/status"),
    {match, [Size]} = re:run(Text, "VmSize:\\s+(\\d+) kB", [{capture, all_but_first, list}]),
    list_to_integer(Size).

%% ---- under load ----

%% Captures that begin and end while processes are born, work and die.
hasty_test_() ->
    {timeout, 60, fun hasty/0}.

hasty() ->
    Churn = spawn_link(fun Loop() ->
                               {Pid, Monitor} = spawn_monitor(emberl_work, work, [50]),
                               exit(Pid, kill),
                               receive {'DOWN', Monitor, process, Pid, _} -> ok end,
                               Loop()
                       end),
    [begin
         {ok, Capture} = emberl:start_capture({emberl_work, work, 1}, 5, small()),
         emberl:stop(Capture)
     end || _ <- lists:seq(1, 100)],
    unlink(Churn),
    exit(Churn, kill),
    wait_until(fun() -> not emberl_test:running() end),
    ?assertEqual({ok, {1, 1}}, emberl_test:works()).
