%% SPDX-License-Identifier: Apache-2.0
%% @private
%% Has the library find out how this VM lays out what it has to look at; see
%% vm_heap.h.
-module(emberl_layout).

-export([check/0]).

%% Sizes that no other word of a process is likely to have, and not all of them.
-define(SIZES, [1231, 577, 2039, 811]).

%% Not while anything is captured. In a process whose heap has room and whose
%% messages stay in fragments until it is collected.
-spec check() -> ok.
check() ->
    Options = [monitor, {min_heap_size, 20000}, {message_queue_data, off_heap}],
    {Pid, Monitor} = spawn_opt(fun() -> check(?SIZES, true) end, Options),
    receive {'DOWN', Monitor, process, Pid, _} -> ok end.

check([], _First) ->
    ok;
check([Size | Sizes], First) ->
    Self = self(),
    spawn(fun() -> Self ! lists:seq(1, Size) end),
    receive List when is_list(List) -> ok end,
    {_, Info} = erlang:process_info(self(), garbage_collection_info),
    emberl_nif:check_layout(proplists:get_value(heap_block_size, Info),
                            proplists:get_value(mbuf_size, Info), First),
    check(Sizes, false).
