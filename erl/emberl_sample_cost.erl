%% SPDX-License-Identifier: Apache-2.0
%% @private
%% What a window, or what stands in for one, has cost the node, in milliseconds of one
%% scheduler: see emberl_governor.
-module(emberl_sample_cost).

-export([active/0, clocks/0, wall/2, fixed/2, variable/3]).
-export_type([clocks/0, measured/0]).

-define(BREAKPOINTS, 0.25).   % of the time of a process that is not traced, while they are set

%% The time, and what the whole node and the consumer thread have used of processors; ns.
-type clocks() :: {integer(), non_neg_integer(), non_neg_integer()}.
%% When it began to be opened, was open, began to be closed, was closed; and how many
%% schedulers were busy when it began.
-type measured() :: #{start := clocks(), open := clocks(), closing := clocks(), ended := clocks(),
                      active := pos_integer(), atom() => term()}.

-spec active() -> pos_integer().
active() ->
    min(erlang:system_info(schedulers_online), max(1, erlang:statistics(total_active_tasks))).

-spec clocks() -> clocks().
clocks() ->
    #{cpu_ns := Cpu, consumer_cpu_ns := Consumer} = emberl_nif:stats(),
    {erlang:monotonic_time(nanosecond), Cpu, Consumer}.

-spec wall(clocks(), clocks()) -> integer().
wall({From, _, _}, {To, _, _}) -> To - From.

%% What we did ourselves: not longer than it took, and of what the node has used meanwhile
%% not more than our share. The time that the window was open we have waited.
-spec fixed(measured(), clocks()) -> float().
fixed(#{start := Start, open := Open, closing := Closing, active := Active}, Now) ->
    (own(Start, Open, Active) + own(Closing, Now, Active)) / 1.0e6.

own({_, CpuBefore, _} = From, {_, CpuAfter, _} = To, Active) ->
    min(wall(From, To), (CpuAfter - CpuBefore) / Active).

%% What the traced processes have lost, what the thread has used, and what those that were
%% not traced, a share of all, have lost while all breakpoints were set.
-spec variable(measured(), number(), float()) -> float().
variable(Measured, TracedNs, Untraced) ->
    #{start := {_, _, Before} = Start, open := Open, closing := Closing,
      ended := {_, _, After} = Ended, active := Active} = Measured,
    Set = own(Start, Open, Active) + own(Closing, Ended, Active)
        + Untraced * own(Open, Closing, Active),
    (TracedNs + (After - Before) + ?BREAKPOINTS * (Active - 1) * Set) / 1.0e6.
