%% SPDX-License-Identifier: Apache-2.0
%% @private
%% Tells the library how this VM lays out what it has to look at; see vm_heap.h.
-module(emberl_layout).

-export([check/0, check/1]).

%% Sizes that no other word of a process is likely to have, and not all of them.
-define(SIZES, [1231, 577, 2039, 811]).

-spec check() -> ok.
check() ->
    check(none).

%% `Force' leaves a part off, for tests: pointers, tuples, fragments or all. Not
%% while anything is captured. In a process whose heap has room and whose
%% messages stay in fragments until it is collected.
-spec check(none | pointers | tuples | fragments | all) -> ok.
check(Force) ->
    Options = [monitor, {min_heap_size, 20000}, {message_queue_data, off_heap}],
    {Pid, Monitor} = spawn_opt(fun() -> look(Force) end, Options),
    receive {'DOWN', Monitor, process, Pid, _} -> ok end.

look(Force) ->
    emberl_nif:layout(Force),
    Force =:= fragments orelse find_fragments(?SIZES, true).

find_fragments([], _Restart) ->
    ok;
find_fragments([Size | Sizes], Restart) ->
    Self = self(),
    spawn(fun() -> Self ! lists:seq(1, Size) end),
    receive List when is_list(List) -> ok end,
    {_, Info} = erlang:process_info(self(), garbage_collection_info),
    emberl_nif:find_fragments(proplists:get_value(mbuf_size, Info), Restart),
    find_fragments(Sizes, false).
