%% SPDX-License-Identifier: Apache-2.0
%% @private
%% What opening a window takes of the processes that it records: a look at each from
%% outside, and the flags that have the VM trace it.
%%
%% Either has to wait until a process that runs is scheduled out, which one in a native
%% function may not be for long. So a process of its own does it for each, and nobody waits
%% for more than a while; flags are set whenever it is possible. Those that have not answered
%% a look by then run, as those do that answer so, or wait for a scheduler, for all that can
%% be seen: where nobody waits for one they are taken for active.
-module(emberl_window).

-export([look/2, names/2, flag/4]).
-export_type([seen/0, counts/0]).

-define(OPEN_MS, 20). % how often it is looked whether a window is still open
-define(PUT_OFF, [binary_find_trap, binary_to_term_trap, merge_trap]).

-type names() :: {binary() | undefined, binary() | undefined}.
-type seen() :: #{processes := [emberl_nif:seen()], names := #{pid() => names()},
                  gone := non_neg_integer()}.
-type counts() :: #{flagged := non_neg_integer(),  % traced
                    gone := non_neg_integer(),     % had died
                    refused := non_neg_integer(),  % somebody else's: before OTP 27.1
                    late := non_neg_integer()}.    % could not be traced in time

%% What processes do now, for so many milliseconds at most.
-spec look([pid()], non_neg_integer()) -> seen().
look(Pids, Within) ->
    Limit = trace_limit(64),
    Answers = emberl_process:ask(Pids, fun(Pid) -> see(Pid, Limit) end, Within),
    Busy = busy(erlang:statistics(total_run_queue_lengths)),
    Seen = [{Pid, maps:get(Pid, Answers, unanswered)} || Pid <- Pids],
    #{processes => [process(Pid, What, Busy) || {Pid, What} <- Seen, What =/= gone],
      names => maps:from_list([{Pid, Names} || {Pid, {_, _, _, Names}} <- Seen]),
      gone => length([gone || {_, gone} <- Seen])}.

busy(0) -> active;
busy(_Waiting) -> ready.

process(Pid, unanswered, Busy) -> {Pid, Busy, false, []};
process(Pid, {active, _Complete, _Frames, _Names}, Busy) -> {Pid, Busy, false, []};
process(Pid, {Activity, Complete, Frames, _Names}, _Busy) -> {Pid, Activity, Complete, Frames}.

see(Pid, Limit) ->
    case erlang:process_info(Pid, [status, current_stacktrace]) of
        undefined -> gone;
        [{status, exiting} | _] -> gone;
        [{status, Status}, {current_stacktrace, Stack}] ->
            Frames = lists:reverse([{M, F, A} || {M, F, A, _} <- Stack]),
            {activity(Status), length(Stack) < Limit, Frames, emberl_process:names(Pid)}
    end.

activity(waiting) -> idle;
activity(suspended) -> idle;
activity(runnable) -> ready;
activity(_Status) -> active.

%% How many frames of a stack the VM shows, if not more than so many.
trace_limit(Deepest) ->
    even(Deepest).

even(0) ->
    {current_stacktrace, Stack} = erlang:process_info(self(), current_stacktrace),
    length(Stack);
even(N) ->
    0 + odd(N - 1).

odd(N) ->
    0 + even(N - 1).

%% What processes are called; only of those that answer in time.
-spec names([pid()], non_neg_integer()) -> #{pid() => names()}.
names(Pids, Within) ->
    emberl_process:ask(Pids, fun emberl_process:names/1, Within).

%% ---- flags ----

%% Has the processes traced, for as long as IsOpen says that there is something to trace
%% them for. Those that are not done within so many milliseconds are done later.
-spec flag(emberl_trace:trace(), [pid()], fun(() -> boolean()), non_neg_integer()) -> counts().
flag(Trace, Pids, IsOpen, Within) ->
    Counters = counters:new(3, []),
    {Flagger, Monitor} = spawn_opt(fun() -> flag_all(Trace, Pids, IsOpen, Counters) end,
                                   [monitor, {priority, high}]),
    receive {'DOWN', Monitor, process, Flagger, _} -> ok
    after Within -> erlang:demonitor(Monitor, [flush])
    end,
    [Flagged, Gone, Refused] = [counters:get(Counters, N) || N <- [1, 2, 3]],
    #{flagged => Flagged, gone => Gone, refused => Refused,
      late => length(Pids) - Flagged - Gone - Refused}.

%% Whoever holds the trace must not outlive who owns it.
flag_all(Trace, Pids, IsOpen, Counters) ->
    process_flag(sensitive, true),
    link(whereis(emberl_control)),
    Flaggers = [spawn_opt(fun() -> flag_one(Trace, Pid, IsOpen, Counters) end,
                          [link, monitor, {priority, high}])
                || Pid <- Pids],
    [receive {'DOWN', Monitor, process, _, _} -> ok end || {_, Monitor} <- Flaggers],
    unlink(whereis(emberl_control)).

%% The VM waits with a whole scheduler until a process that it is to trace does not run. So
%% one that runs, or is about to, is suspended first, which nothing has to wait for. It goes
%% on by itself should this process die.
flag_one(Trace, Pid, IsOpen, Counters) ->
    process_flag(sensitive, true),
    Result = case erlang:process_info(Pid, status) of
                 {status, waiting} -> set(Trace, Pid, IsOpen);
                 {status, suspended} -> set(Trace, Pid, IsOpen);
                 undefined -> gone;
                 _ -> set_suspended(Trace, Pid, IsOpen)
             end,
    Result =:= closed orelse counters:add(Counters, index(Result), 1).

set_suspended(Trace, Pid, IsOpen) ->
    Suspended = make_ref(),
    try erlang:suspend_process(Pid, [{asynchronous, Suspended}]) of
        true -> set_once(Suspended, Trace, Pid, IsOpen)
    catch
        error:badarg -> gone
    end.

%% A process in a native function may be long in coming. One that is told not to be suspended
%% after all, as happens to those in dirty ones, would be later.
set_once(Suspended, Trace, Pid, IsOpen) ->
    receive
        {Suspended, suspended} -> suspended(is_put_off(Pid), Trace, Pid, IsOpen);
        {Suspended, exited} -> gone;
        {Suspended, not_suspended} -> again(Trace, Pid, IsOpen)
    after ?OPEN_MS ->
            case IsOpen() of
                true -> set_once(Suspended, Trace, Pid, IsOpen);
                false -> resumed(Pid, closed)
            end
    end.

%% Some builtins that have been put off in the middle may not survive that the process is
%% traced from then on: see write_switch in c_src/tracer.c.
is_put_off(Pid) ->
    case erlang:process_info(Pid, current_function) of
        {current_function, {_, Function, _}} -> lists:member(Function, ?PUT_OFF);
        _ -> false
    end.

suspended(false, Trace, Pid, IsOpen) -> resumed(Pid, set(Trace, Pid, IsOpen));
suspended(true, Trace, Pid, IsOpen) -> again(Trace, Pid, IsOpen).

%% A little later, if the window is still open then.
again(Trace, Pid, IsOpen) ->
    case resumed(Pid, resumed) of
        gone -> gone;
        resumed ->
            receive after 1 -> ok end,
            case IsOpen() of
                true -> set_suspended(Trace, Pid, IsOpen);
                false -> closed
            end
    end.

resumed(Pid, Result) ->
    try erlang:resume_process(Pid) of
        true -> Result
    catch
        error:badarg -> gone
    end.

%% The window may end just then.
set(Trace, Pid, IsOpen) ->
    Result = case IsOpen() of
                 true -> emberl_trace:set_process(Trace, Pid);
                 false -> closed
             end,
    Result =/= traced orelse IsOpen() orelse emberl_trace:clear_process(Trace, Pid),
    Result.

index(traced) -> 1;
index(gone) -> 2;
index(refused) -> 3.
