%% SPDX-License-Identifier: Apache-2.0
%% Slices of time in a directory: what was written is found, whatever happened to the
%% node, the disk and the other files.
-module(emberl_store_tests).

-include_lib("eunit/include/eunit.hrl").

-export([write_for_ever/1]).

-import(emberl_test, [with_directory/1]).

-define(START, 1798761600000). % 2027-01-01T00:00:00Z

unlimited() -> #{max_bytes => infinity, max_age => infinity}.

profile() ->
    emberl_test:profile({emberl_work, spawn_and_wait, [fun erlang:spawn/1]}).

%% N slices of a minute, from START on.
stored(Directory, Profiles) ->
    {Store, _} = lists:foldl(fun(Profile, {Store, From}) ->
                                     {emberl_store:add(Profile, From, From + 60000, Store),
                                      From + 60000}
                             end, {emberl_store:open(Directory, unlimited()), ?START}, Profiles),
    Store.

seconds(Minutes) -> ?START div 1000 + Minutes * 60.

query(Directory, From, To) -> query(Directory, From, To, #{}).

query(Directory, From, To, Options) ->
    emberl:query(Directory, seconds(From), seconds(To), Options#{details => true}).

files(Directory) ->
    {ok, Names} = file:list_dir(Directory),
    lists:sort(Names).

%% ---- what is written is found ----

range_test() ->
    Profiles = [profile() || _ <- lists:seq(1, 5)],
    with_directory(fun(Directory) ->
        #{files := 5, written := 5, dropped := 0, error := none, from := ?START} =
            emberl_store:status(stored(Directory, Profiles)),
        {ok, Sum, #{slices := 3, skipped := [], from := From, to := To}} = query(Directory, 1, 4),
        ?assertEqual({?START + 60000, ?START + 240000}, {From, To}),
        ?assertEqual(calls(lists:sublist(Profiles, 2, 3)), calls([Sum])),
        {ok, _, #{slices := 5}} = query(Directory, -5, 50),
        {error, {no_data, _, _}} = query(Directory, 5, 50)
    end).

calls(Profiles) ->
    lists:sum([emberl_test:total_calls(Profile) || Profile <- Profiles]).

partly_within_test() ->
    with_directory(fun(Directory) ->
        stored(Directory, [profile(), profile()]),
        At = ?START div 1000,
        {ok, _, #{slices := 1}} = emberl:query(Directory, At + 20, At + 21, [details]),
        {ok, _, #{slices := 2}} = emberl:query(Directory, At + 59, At + 61, [details])
    end).

%% More than are merged at a time.
many_slices_test() ->
    Profile = profile(),
    with_directory(fun(Directory) ->
        stored(Directory, lists:duplicate(40, Profile)),
        {ok, Sum} = emberl:query(Directory, {{2027, 1, 1}, {0, 0, 0}}, "2027-01-01T00:40"),
        ?assertEqual(40 * emberl_test:total_calls(Profile), emberl_test:total_calls(Sum))
    end).

empty_slice_test() ->
    with_directory(fun(Directory) ->
        Empty = emberl_profile:filter(profile(), #{process => "nobody"}),
        stored(Directory, [Empty]),
        {ok, Sum, #{slices := 1}} = query(Directory, 0, 1),
        ?assertEqual([], emberl_profile:processes(Sum))
    end).

%% The clock was set back: nothing is overwritten, and nothing is lost to see.
same_time_test() ->
    Profile = profile(),
    with_directory(fun(Directory) ->
        Store = emberl_store:add(Profile, ?START, ?START - 5, stored(Directory, [Profile])),
        #{files := 2} = emberl_store:status(Store),
        Again = emberl_store:add(Profile, ?START, ?START + 60000, Store),
        #{files := 2, dropped := 1, error := {_, eexist, _}} = emberl_store:status(Again)
    end).

%% ---- filters ----

filter_test() ->
    Profile = profile(),
    with_directory(fun(Directory) ->
        stored(Directory, [Profile, Profile]),
        #{pid := Child} = lists:last(emberl_profile:processes(Profile)),
        ?assertEqual([text(Child)], pids(Directory, #{process => pid_to_list(Child)})),
        ?assertEqual([text(Child)], pids(Directory, #{process => Child})),
        ?assertEqual([], pids(Directory, #{process => nobody})),
        ?assertEqual([emberl_work], modules(Directory, #{modules => [emberl_work]})),
        ?assertEqual([], modules(Directory, #{modules => {app, stdlib}})),
        ?assertMatch({error, {bad_option, modules, _}},
                     query(Directory, 0, 2, #{modules => all_of_them}))
    end).

pids(Directory, Options) ->
    {ok, Profile, _} = query(Directory, 0, 2, Options),
    [Pid || #{pid := Pid} <- emberl_profile:processes(Profile)].

text(Pid) -> list_to_binary(pid_to_list(Pid)).

modules(Directory, Options) ->
    {ok, Profile, _} = query(Directory, 0, 2, Options),
    lists:usort([Module || #{mfa := {Module, _, _}} <- emberl_profile:functions(Profile)]).

%% Nothing is lost: what others did is their callers'.
filter_keeps_sums_test() ->
    Profile = profile(),
    Some = emberl_profile:filter(Profile, #{modules => [emberl_work]}),
    None = emberl_profile:filter(Profile, #{modules => [no_such_module]}),
    [?assertEqual(words(Profile), words(Part)) || Part <- [Some, None]],
    ?assertEqual([], emberl_profile:functions(None)).

words(Profile) ->
    lists:sum([Words || #{words := Words} <- emberl_profile:stacks(Profile)]).

%% ---- times ----

time_test_() ->
    [?_assertEqual({Text, {ok, ?START + Ms}}, {Text, emberl_time:parse(Text)})
     || {Text, Ms} <- [{"2027-01-01T00:00:00Z", 0}, {<<"2027-01-01T00:00:00.250Z">>, 250},
                       {"2027-01-01T01:00:00+01:00", 0}, {"2027-01-01 00:01", 60000},
                       {"2027-01-01T00:01Z", 60000}, {"2027-01-01T00:31+00:30", 60000},
                       {"2026-12-31t23:30:01.5z", -1799000 + 500}, {"2026-12-31T22:00-02:00", 0},
                       {" 2027-01-01", 0}, {{{2027, 1, 1}, {0, 0, 1}}, 1000},
                       {?START div 1000, 0}]].

ago_test() ->
    {ok, Now} = emberl_time:parse(now),
    {ok, Then} = emberl_time:parse("-2h"),
    ?assert(Then =< Now - 7200000 + 60000),
    ?assert(Then > Now - 7200000 - 60000).

bad_time_test_() ->
    [?_assertMatch({error, {bad_time, Bad, _}}, emberl:query("/nowhere", Bad, now))
     || Bad <- ["", "soon", "-10", "-10x", "--5m", "2027-13-01", {{2027, 2, 30}, {0, 0, 0}}, 1.5,
                [a], self(), 1796142937142, 1 bsl 100, -(1 bsl 100), {{99999, 1, 1}, {0, 0, 0}},
                "-99999999d", {a, b}, {{2026, 12, 1}, {25, 0, 0}}, {{2026, 12, 1}, {0, 0.5, 0}},
                "2026-12-01T25:00", "2026-12-01T24:00", "2026-12-01T16:60", "2026-12-01T16:35:99",
                "2026-12-01T16:35:00+24:00", "2026-12-01T16", "2026-02-29", "2026-12-01Z",
                "2026-12-01T16:35:00.", "2026-12-01T16:35 UTC"]].

bad_time_is_named_test() ->
    {error, {bad_time, _, Text}} = emberl:query("/nowhere", "2026-12-01T25:00", now),
    ?assertNotEqual(nomatch, binary:match(Text, <<"2026-12-01T25:00">>)).

bad_directory_test_() ->
    [?_assertMatch({error, {unreadable, Bad, <<_/binary>>}}, emberl:query(Bad, "-1h", now))
     || Bad <- [a_name, 17, "", [a | b], self(), <<0>>]].

wrong_order_test() ->
    ?assertMatch({error, {bad_time, _, _}}, emberl:query("/nowhere", now, "-1h")),
    ?assertMatch({error, {unreadable, "/nowhere", _}}, emberl:query("/nowhere", "-1h", now)).

names_of_files_test() ->
    {ok, ?START} = emberl_time:from_name(emberl_time:name(?START)),
    with_directory(fun(Directory) ->
        [ok = file:write_file(filename:join(Directory, Name), "nothing")
         || Name <- ["emberl-a-b.ember", "emberl-.ember", "emberl-20270101T000000.000Z.ember",
                     "x-20270101T000000.000Z-20270101T000100.000Z.ember",
                     "emberl-20270101T000100.000Z-20270101T000000.000Z.ember",
                     "emberl-20270101T000000.000Z-20270101T000100.000Z.html"]],
        ?assertEqual({ok, []}, emberl_store:slices(Directory))
    end).

%% ---- limits ----

size_limit_test() ->
    Profile = profile(),
    {ok, Binary} = emberl_profile:to_binary(Profile),
    Limit = 3 * byte_size(Binary),
    with_directory(fun(Directory) ->
        stored(Directory, lists:duplicate(10, Profile)),
        Store = emberl_store:open(Directory, (unlimited())#{max_bytes => Limit}),
        #{files := 3, bytes := Limit, deleted := 7} = emberl_store:status(Store),
        More = emberl_store:add(Profile, ?START + 600000, ?START + 660000, Store),
        #{files := 3, from := From} = emberl_store:status(More),
        ?assertEqual(?START + 8 * 60000, From),
        ?assertEqual(3, length(files(Directory)))
    end).

larger_than_all_test() ->
    with_directory(fun(Directory) ->
        Store = emberl_store:open(Directory, (unlimited())#{max_bytes => 10}),
        #{files := 0, dropped := 1, error := {_, too_large, _}} =
            emberl_store:status(emberl_store:add(profile(), ?START, ?START + 1, Store)),
        ?assertEqual([], files(Directory))
    end).

age_limit_test() ->
    Now = erlang:system_time(millisecond),
    Profile = profile(),
    with_directory(fun(Directory) ->
        lists:foldl(fun(Age, Store) ->
                            emberl_store:add(Profile, Now - Age - 1, Now - Age, Store)
                    end, emberl_store:open(Directory, unlimited()), [7200000, 3700000, 60000]),
        Store = emberl_store:open(Directory, (unlimited())#{max_age => 3600000}),
        #{files := 1, deleted := 2} = emberl_store:status(Store)
    end).

%% ---- what goes wrong ----

unfinished_files_are_cleared_test() ->
    with_directory(fun(Directory) ->
        stored(Directory, [profile()]),
        [ok = file:write_file(filename:join(Directory, Name), "half")
         || Name <- [".emberl-17-3.tmp", "notes.tmp", ".emberl-rc"]],
        #{files := 1} = emberl_store:status(emberl_store:open(Directory, unlimited())),
        ?assertMatch([".emberl-rc", "emberl-" ++ _, "notes.tmp"], files(Directory))
    end).

damaged_slices_are_left_out_test() ->
    with_directory(fun(Directory) ->
        Profile = profile(),
        stored(Directory, lists:duplicate(4, Profile)),
        [_, Cut, Changed, Empty] = [filename:join(Directory, Name) || Name <- files(Directory)],
        {ok, Bytes} = file:read_file(Cut),
        ok = file:write_file(Cut, binary:part(Bytes, 0, byte_size(Bytes) - 1)),
        ok = file:write_file(Changed, flip(byte_size(Bytes) div 2, Bytes)),
        ok = file:write_file(Empty, <<>>),
        {ok, Sum, #{slices := 1, skipped := Skipped}} = query(Directory, 0, 4),
        ?assertEqual(emberl_test:total_calls(Profile), emberl_test:total_calls(Sum)),
        ?assertEqual([Cut, Changed, Empty], [File || {File, Text} <- Skipped, is_binary(Text)]),
        {error, {no_data, _, Text}} = query(Directory, 1, 4),
        ?assertNotEqual(nomatch, binary:match(Text, list_to_binary(filename:basename(Empty))))
    end).

flip(At, Bytes) ->
    <<Before:At/binary, Byte, After/binary>> = Bytes,
    <<Before/binary, (Byte bxor 1), After/binary>>.

full_disk_test() ->
    Profile = profile(),
    Full = (unlimited())#{save => fun(_, _) -> {error, enospc} end},
    with_directory(fun(Directory) ->
        stored(Directory, [Profile]),
        Store = emberl_store:add(Profile, ?START + 60000, ?START + 120000,
                                 emberl_store:open(Directory, Full)),
        #{files := 1, dropped := 1, error := {_, enospc, _}} = emberl_store:status(Store),
        {ok, _, #{slices := 1, skipped := []}} = query(Directory, 0, 5)
    end).

%% Once, and again after one was written.
failures_are_logged_test() ->
    Profile = profile(),
    with_directory(fun(Directory) ->
        File = filename:join(Directory, "store"),
        ok = file:write_file(File, "in the way"),
        Logged = emberl_test:logged(fun() ->
            Add = fun(Minute, Store) ->
                          From = ?START + Minute * 60000,
                          emberl_store:add(Profile, From, From + 60000, Store)
                  end,
            Failed = Add(1, Add(0, emberl_store:open(File, unlimited()))),
            ok = file:delete(File),
            Written = Add(2, Failed),
            ok = file:del_dir_r(File),
            ok = file:write_file(File, "in the way"),
            Add(4, Add(3, Written))
        end),
        ?assertMatch([_, _], [Text || Text <- Logged, has(Text, "cannot store"),
                                      has(Text, "file already exists")])
    end).

has(Text, Part) -> string:find(Text, Part) =/= nomatch.

vanished_directory_test() ->
    Profile = profile(),
    with_directory(fun(Directory) ->
        Store = stored(Directory, [Profile]),
        ok = file:del_dir_r(Directory),
        ok = file:write_file(Directory, "in the way"),
        Failed = emberl_store:add(Profile, ?START + 60000, ?START + 120000, Store),
        #{dropped := 1, error := {_, Reason, _}} = emberl_store:status(Failed),
        ?assert(is_atom(Reason)),
        ok = file:delete(Directory),
        #{dropped := 1, error := none, written := 2} =
            emberl_store:status(emberl_store:add(Profile, ?START + 120000, ?START + 180000,
                                                 Failed)),
        ?assertMatch([_], files(Directory))
    end).

%% A node killed at any moment: every slice but the one under way is whole.
killed_node_test_() ->
    {timeout, 60, fun() -> with_directory(fun(Directory) ->
        [killed_node(Directory, Slices) || Slices <- [1, 4, 9]]
    end) end}.

killed_node(Directory, Slices) ->
    Before = length(slices(Directory)),
    emberl_test:node(fun(Peer) ->
        OsPid = peer:call(Peer, os, getpid, []),
        peer:cast(Peer, ?MODULE, write_for_ever, [Directory]),
        emberl_test:wait_until(fun() -> length(slices(Directory)) >= Before + Slices end),
        Monitor = monitor(process, Peer),
        unlink(Peer),
        os:cmd("kill -9 " ++ OsPid),
        receive {'DOWN', Monitor, process, Peer, _} -> ok end
    end),
    Found = slices(Directory),
    ?assert(length(Found) >= Before + Slices),
    [?assertMatch({ok, _}, emberl_profile:load(File)) || #{file := File} <- Found],
    _ = emberl_store:open(Directory, unlimited()),
    ?assertEqual(length(Found), length(files(Directory))).

slices(Directory) ->
    {ok, Slices} = emberl_store:slices(Directory),
    Slices.

write_for_ever(Directory) ->
    write_for_ever(profile(), emberl_store:open(Directory, unlimited())).

write_for_ever(Profile, Store) ->
    Now = erlang:system_time(millisecond),
    timer:sleep(1), % a name of its own
    write_for_ever(Profile, emberl_store:add(Profile, Now, Now + 1, Store)).
