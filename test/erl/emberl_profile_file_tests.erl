%% SPDX-License-Identifier: Apache-2.0
%% Profiles in files: what was saved is what is loaded, and nothing else is.
-module(emberl_profile_file_tests).

-include_lib("eunit/include/eunit.hrl").

-export([make_strange/1]).

-import(emberl_test, [with_directory/1]).

profile() ->
    emberl_test:profile({emberl_work, spawn_and_wait, [fun erlang:spawn/1]}).

in(Directory) ->
    filename:join(Directory, "a profile.ember").

%% Everything that can be asked of a profile, processes named by their texts.
content(Profile) ->
    #{info => emberl_profile:info(Profile),
      processes => [named(P) || P <- emberl_profile:processes(Profile)],
      functions => lists:sort(emberl_profile:functions(Profile)),
      stacks => [S#{process := text(P)} || #{process := P} = S <- emberl_profile:stacks(Profile)],
      views => [emberl_profile:format(Profile, View, #{metric => Metric})
                || View <- [html, brendan_gregg], Metric <- [own_time, words, calls]]}.

named(#{pid := Pid, parent := Parent} = Process) ->
    Process#{pid := text(Pid), parent := text(Parent)}.

text(Pid) when is_pid(Pid) -> list_to_binary(pid_to_list(Pid));
text(Other) -> Other.

%% ---- round trip ----

round_trip_test() ->
    Profile = profile(),
    with_directory(fun(Directory) ->
        ok = emberl_profile:save(Profile, in(Directory)),
        {ok, Loaded} = emberl_profile:load(in(Directory)),
        ?assertEqual(content(Profile), content(Loaded)),
        [#{pid := <<"<", _/binary>>} | _] = emberl_profile:processes(Loaded),
        ?assertEqual(["a profile.ember"], filenames(Directory))
    end).

saved_again_test() ->
    {ok, Binary} = emberl_profile:to_binary(profile()),
    {ok, Loaded} = emberl_profile:from_binary(Binary),
    ?assertEqual({ok, Binary}, emberl_profile:to_binary(Loaded)).

functions_of_a_loaded_process_test() ->
    Profile = profile(),
    {ok, Binary} = emberl_profile:to_binary(Profile),
    {ok, Loaded} = emberl_profile:from_binary(Binary),
    [#{pid := Parent} | _] = emberl_profile:processes(Profile),
    ?assertEqual(lists:sort(emberl_profile:functions(Profile, Parent)),
                 lists:sort(emberl_profile:functions(Loaded, text(Parent)))).

merged_test() ->
    {ok, Binary} = emberl_profile:to_binary(profile()),
    {ok, Loaded} = emberl_profile:from_binary(Binary),
    {ok, Merged} = emberl_profile:to_binary(emberl_profile:merge([Loaded, Loaded])),
    {ok, Twice} = emberl_profile:from_binary(Merged),
    ?assertEqual(2 * emberl_test:total_calls(Loaded), emberl_test:total_calls(Twice)),
    ?assertEqual(length(emberl_profile:processes(Loaded)),
                 length(emberl_profile:processes(Twice))).

binary_file_name_test() ->
    with_directory(fun(Directory) ->
        File = filename:join(list_to_binary(Directory), <<"å"/utf8>>),
        ok = emberl_profile:save(profile(), File),
        {ok, _} = emberl_profile:load(File)
    end).

%% ---- files ----

filenames(Directory) ->
    {ok, Names} = file:list_dir_all(Directory),
    Names.

nothing_is_overwritten_test() ->
    with_directory(fun(Directory) ->
        ok = file:write_file(in(Directory), <<"precious">>),
        ?assertEqual({error, eexist}, emberl_profile:save(profile(), in(Directory))),
        ?assertEqual({ok, <<"precious">>}, file:read_file(in(Directory))),
        ?assertEqual(1, length(filenames(Directory)))
    end).

cannot_be_written_test() ->
    with_directory(fun(Directory) ->
        Nowhere = filename:join([Directory, "nowhere", "file"]),
        ?assertEqual({error, enoent}, emberl_profile:save(profile(), Nowhere))
    end).

cannot_be_read_test() ->
    with_directory(fun(Directory) ->
        ?assertEqual({error, enoent}, emberl_profile:load(in(Directory))),
        ?assertEqual({error, eisdir}, emberl_profile:load(Directory))
    end),
    ?assertMatch({error, {bad_profile, <<"not a regular file">>}},
                 emberl_profile:load("/dev/zero")).

not_a_profile_test() ->
    with_directory(fun(Directory) ->
        ok = file:write_file(in(Directory), <<"<html>">>),
        ?assertEqual({error, {bad_profile, <<"byte 0: not a profile file">>}},
                     emberl_profile:load(in(Directory))),
        {ok, File} = file:open(in(Directory), [write, read]),
        {ok, _} = file:position(File, 1 bsl 30 + 1),
        ok = file:truncate(File),
        ok = file:close(File),
        ?assertEqual({error, {bad_profile, <<"the file is too large">>}},
                     emberl_profile:load(in(Directory)))
    end).

%% ---- perf.data, which has a second file ----

perf_test() ->
    Profile = profile(),
    with_directory(fun(Directory) ->
        File = filename:join(Directory, "work.perf.data"),
        ok = emberl_profile:write(Profile, perf, File),
        {ok, <<"PERFILE2", _/binary>> = Data} = file:read_file(File),
        {ok, <<127, "ELF", _/binary>>} = file:read_file(File ++ ".symbols"),
        Path = unicode:characters_to_binary(File ++ ".symbols"),
        ?assertMatch({_, _}, binary:match(Data, binary:part(Path, 1, byte_size(Path) - 1))),
        ?assertEqual({error, eexist}, emberl_profile:write(Profile, perf, list_to_binary(File))),
        ?assertEqual(2, length(filenames(Directory)))
    end).

no_second_file_without_the_first_test() ->
    with_directory(fun(Directory) ->
        ok = file:write_file(in(Directory), <<"precious">>),
        ?assertEqual({error, eexist}, emberl_profile:write(profile(), perf, in(Directory))),
        ?assertEqual(["a profile.ember"], filenames(Directory))
    end).

%% ---- damage ----

damaged_test() ->
    {ok, Binary} = emberl_profile:to_binary(profile()),
    [damaged(damage(Binary, At)) || At <- lists:seq(0, byte_size(Binary) - 1, 7)],
    [damaged(binary:part(Binary, 0, Size)) || Size <- lists:seq(0, byte_size(Binary) - 1, 7)],
    damaged(<<Binary/binary, 0>>).

%% All bits of a byte.
damage(Binary, At) ->
    <<Before:At/binary, Byte, After/binary>> = Binary,
    <<Before/binary, (255 - Byte), After/binary>>.

damaged(Binary) ->
    {error, {bad_profile, Text}} = emberl_profile:from_binary(Binary),
    ?assert(is_binary(Text) andalso Text =/= <<>>).

%% ---- atoms ----

%% A profile of a function that another node has, and we have not.
strange_profile() ->
    emberl_test:node(fun(Peer) ->
        Strange = "emberl_not_known_" ++ os:getpid(),
        peer:call(Peer, emberl_profile_file_tests, make_strange, [Strange], 60000)
    end).

%% On the other node.
make_strange(Name) ->
    Module = list_to_atom(Name),
    Forms = [{attribute, 1, module, Module},
             {attribute, 1, export, [{Module, 0}]},
             {function, 1, Module, 0, [{clause, 1, [], [], [{atom, 1, ok}]}]}],
    {ok, Module, Code} = compile:forms(Forms),
    {module, Module} = code:load_binary(Module, "", Code),
    {ok, _} = application:ensure_all_started(emberl),
    Profile = emberl:apply({Module, Module, []}, #{return => profile}),
    {ok, Binary} = emberl_profile:to_binary(Profile),
    Binary.

no_atoms_test_() ->
    {timeout, 90, fun no_atoms/0}.

no_atoms() ->
    Binary = strange_profile(),
    {ok, Warm} = emberl_profile:from_binary(element(2, emberl_profile:to_binary(profile()))),
    _ = content(Warm),
    Before = erlang:system_info(atom_count),
    {ok, Loaded} = emberl_profile:from_binary(Binary),
    Functions = emberl_profile:functions(Loaded),
    _ = content(Loaded),
    ?assertEqual(Before, erlang:system_info(atom_count)),
    Name = iolist_to_binary(["emberl_not_known_", os:getpid()]),
    ?assert(lists:any(fun(#{mfa := MFA}) -> MFA =:= {Name, Name, 0} end, Functions)).
