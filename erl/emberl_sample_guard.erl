%% SPDX-License-Identifier: Apache-2.0
%% @private
%% What a sampler looks at before each window: whether the node has better things to do.
-module(emberl_sample_guard).

-export([check/1]).

-define(LEAST_MEMORY, 0.03). % of the machine's, available

%% A reason not to open a window.
-spec check(emberl_sample_options:options()) -> ok | kill_file | memory | run_queues.
check(#{kill_file := File, run_queue_limit := Limit}) ->
    Checks = [{kill_file, fun() -> File =/= none andalso filelib:is_file(File) end},
              {memory, fun() -> is_memory_short(file:read_file("/proc/meminfo")) end},
              {run_queues, fun() -> Limit =/= infinity andalso are_long(Limit) end}],
    first([Why || {Why, Check} <- Checks, Check()]).

first([]) -> ok;
first([Why | _]) -> Why.

are_long(Limit) ->
    erlang:statistics(total_run_queue_lengths) > Limit * erlang:system_info(schedulers_online).

is_memory_short({error, _}) ->
    false;
is_memory_short({ok, Text}) ->
    Total = kilobytes(<<"MemTotal:">>, Text),
    Available = kilobytes(<<"MemAvailable:">>, Text),
    is_integer(Total) andalso is_integer(Available) andalso Available < ?LEAST_MEMORY * Total.

kilobytes(Name, Text) ->
    case binary:split(Text, Name) of
        [_, Rest] ->
            Near = string:trim(binary:part(Rest, 0, min(40, byte_size(Rest))), leading),
            element(1, string:to_integer(Near));
        _ -> unknown
    end.
