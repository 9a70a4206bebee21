%% SPDX-License-Identifier: Apache-2.0
%% What emberl takes of the node's resources: memory, events, files, threads, descriptors
%% and atoms, each within what it says. In a VM of its own.
-module(emberl_limits_tests).

-include_lib("eunit/include/eunit.hrl").

-export([memory/0, events/0, file_sizes/0, threads/0, descriptors/0, hostile_files/1]).

-import(emberl_test, [wait_until/1]).

-define(MIB, (1 bsl 20)).

limit_test_() ->
    [{atom_to_list(Name), {timeout, 120, fun() -> holds(Name, []) end}}
     || Name <- [memory, events, file_sizes, threads, descriptors]]
    ++ [{"hostile files",
         {timeout, 120, fun() -> holds(hostile_files, [emberl_test:rounds(500)]) end}}].

holds(Name, Arguments) ->
    emberl_test:node(fun(Peer) ->
        {module, _} = peer:call(Peer, code, ensure_loaded, [emberl_work]),
        ?assertEqual(ok, peer:call(Peer, ?MODULE, Name, Arguments, infinity)),
        ?assertEqual({ok, {1, 1}}, peer:call(Peer, emberl_test, works, [], infinity))
    end).

%% ---- what runs over there ----

%% Of a program with more stacks than there may be, without end.
forest(Limit) ->
    {ok, Capture} = emberl:start_capture({emberl_work, forest, 1}, 1,
                                         #{return => profile, memory_limit => Limit,
                                           fold_recursion => false}),
    Busy = spawn(emberl_work, forest, [20]),
    {incomplete, limit, [Profile]} = emberl:await(Capture, infinity),
    exit(Busy, kill),
    Profile.

%% A profile may be a little more than what it was built from.
memory() ->
    _ = [forest(?MIB) || _ <- lists:seq(1, 3)],
    Before = resident_kb(),
    Sizes = [emberl_nif:profile_bytes(forest(Limit)) || Limit <- [?MIB, 4 * ?MIB]],
    [true, true] = [Size < 2 * Limit || {Size, Limit} <- lists:zip(Sizes, [?MIB, 4 * ?MIB])],
    true = resident_kb() - Before < 64 * 1024,
    ok.

resident_kb() ->
    {ok, Text} = file:read_file("/proc/self/status"),
    {match, [Size]} = re:run(Text, "VmRSS:\\s+(\\d+) kB", [{capture, all_but_first, list}]),
    list_to_integer(Size).

%% As many as a window may have, and those that were in the rings by then.
events() ->
    Busy = emberl_test:busy(fun() -> emberl_work:pair(1) end),
    {ok, Options} = emberl_options:parse(capture, #{return => profile}),
    Request = #{processes => [Busy], duration => infinity, target => <<"window">>,
                options => Options, bounds => {5000, 60000}},
    {ok, Window} = emberl_control:start_window(Request),
    {done, [{Profile, _}], _} = emberl_control:await(Window, infinity),
    emberl_test:stop(Busy),
    #{events := Events} = emberl_profile:info(Profile),
    true = Events >= 5000,
    true = Events =< 5000 + erlang:system_info(schedulers) * 16384,
    ok.

%% The largest format writes each stack with all its callers.
file_sizes() ->
    Profile = forest(2 * ?MIB),
    [{_, true} = {View, iolist_size(emberl_profile:format(Profile, View)) < 16 * 2 * ?MIB}
     || {View, _} <- emberl_nif:views()],
    ok.

%% One more, for as long as there is something to record, and never two.
threads() ->
    {ok, {1, 1}} = emberl_test:works(),
    Before = threads_now(),
    Captures = [begin {ok, C} = emberl:start_capture(MFA, 1, #{return => profile}), C end
                || MFA <- [{emberl_work, forever, 0}, {emberl_work, pair, 1},
                           {emberl_work, leaf, 1}]],
    1 = threads_now() - Before,
    [{incomplete, stopped, _} = emberl:stop(Capture) || Capture <- Captures],
    wait_until(fun() -> threads_now() =:= Before end).

threads_now() ->
    length(filelib:wildcard("/proc/self/task/*")).

descriptors() ->
    {ok, {1, 1}} = emberl_test:works(),
    Before = descriptors_now(),
    {ok, Capture} = emberl:start_capture({emberl_work, forever, 0}, 1, #{return => profile}),
    Before = descriptors_now(),
    {incomplete, stopped, _} = emberl:stop(Capture),
    [{ok, {1, 1}} = emberl_test:works() || _ <- lists:seq(1, 10)],
    wait_until(fun() -> descriptors_now() =:= Before end).

descriptors_now() ->
    length(filelib:wildcard("/proc/self/fd/*")).

%% Whatever stands in them, or is broken in them, no atom is made and little memory kept.
hostile_files(Count) ->
    {ok, Bytes} =
        emberl_profile:to_binary(emberl:apply({emberl_work, pairs, [5]}, #{return => profile})),
    _ = [read(Bytes), read(damaged(Bytes)), read(<<>>)],
    Atoms = erlang:system_info(atom_count),
    Answers = [read(damaged(Bytes)) || _ <- lists:seq(1, Count)],
    Atoms = erlang:system_info(atom_count),
    true = lists:member(refused, Answers),
    ok.

read(Bytes) ->
    case emberl_profile:from_binary(Bytes) of
        {ok, Profile} ->
            [_ = emberl_profile:Part(Profile) || Part <- [functions, stacks, info, processes]],
            read;
        {error, {bad_profile, Text}} when is_binary(Text) ->
            refused
    end.

damaged(Bytes) ->
    At = rand:uniform(byte_size(Bytes)) - 1,
    case {Bytes, rand:uniform(3)} of
        {<<Before:At/binary, _, After/binary>>, 1} ->
            <<Before/binary, (rand:uniform(256) - 1), After/binary>>;
        {<<Before:At/binary, _/binary>>, 2} -> Before;
        {<<Before:At/binary, After/binary>>, 3} ->
            <<Before/binary, (rand:bytes(8))/binary, After/binary>>
    end.
