%% SPDX-License-Identifier: Apache-2.0
%% What docs/security.md says of files, names and options. Damaged profiles are in
%% emberl_profile_file_tests, names in the other views in the C and browser tests.
-module(emberl_security_tests).

-include_lib("eunit/include/eunit.hrl").
-include_lib("kernel/include/file.hrl").

-import(emberl_test, [with_directory/1, profile/1]).

%% {Name, what writes a file of that name}: each way that files are written.
writers() ->
    [{"write", fun(File) -> emberl_profile:write(pair(), html, File) end},
     {"write perf", fun(File) -> emberl_profile:write(pair(), perf, File) end},
     {"save", fun(File) -> emberl_profile:save(pair(), File) end}].

pair() -> profile({emberl_work, pair, [1]}).

%% What is there already stays, and so does what a symbolic link points to or would make.
taken_test_() ->
    [{lists:flatten([Name, ", ", Kind]),
      fun() -> with_directory(fun(D) -> taken(D, Kind, Write) end) end}
     || {Name, Write} <- writers(), Kind <- ["file", "link", "dangling link", "directory"]].

taken(Directory, Kind, Write) ->
    File = filename:join(Directory, "file"),
    Other = filename:join(Directory, "other"),
    occupy(Kind, File, Other),
    Before = content(Directory),
    ?assertEqual({error, eexist}, Write(File)),
    ?assertEqual(Before, content(Directory)).

occupy("file", File, _) -> ok = file:write_file(File, "mine");
occupy("link", File, Other) ->
    ok = file:write_file(Other, "mine"), ok = file:make_symlink(Other, File);
occupy("dangling link", File, Other) -> ok = file:make_symlink(Other, File);
occupy("directory", File, _) -> ok = file:make_dir(File).

content(Directory) ->
    {ok, Names} = file:list_dir(Directory),
    [{Name, file:read_link(Path), file:read_file(Path)}
     || Name <- lists:sort(Names), Path <- [filename:join(Directory, Name)]].

%% Through the options too: another name is taken.
output_file_is_a_link_test() ->
    with_directory(fun(Directory) ->
        Other = filename:join(Directory, "other"),
        ok = file:make_symlink(Other, filename:join(Directory, "graph.html")),
        File = emberl:apply({emberl_work, pair, [1]},
                            #{output_directory => Directory, output_file => "graph", quiet => true,
                              output_format => html, return => filename}),
        ?assertEqual("graph-2.html", filename:basename(binary_to_list(File))),
        ?assertEqual({error, enoent}, file:read_file(Other))
    end).

umask_test_() ->
    [{Name, fun() -> with_directory(fun(D) -> umask(filename:join(D, "file"), Write) end) end}
     || {Name, Write} <- writers()].

umask(File, Write) ->
    ok = Write(File),
    {ok, #file_info{mode = Mode}} = file:read_file_info(File),
    Umask = list_to_integer(string:trim(os:cmd("umask")), 8),
    ?assertEqual(8#666 band bnot Umask, Mode band 8#777).

%% Whatever the function is called, it names no other place and controls no terminal.
function_name_is_text_test() ->
    with_directory(fun(Directory) ->
        Name = '../../x; rm -rf $(y) `z` \n\e[2J',
        Code = emberl_test:compile(emberl_hostile,
                                   [lists:flatten(io_lib:format("~tp() -> ok.", [Name]))]),
        {module, emberl_hostile} = code:load_binary(emberl_hostile, "none", Code),
        {#{file := File, profile := Profile}, Printed} = emberl_test:quiet(fun() ->
            emberl:apply({emberl_hostile, Name, []},
                         #{output_directory => Directory, return => all})
        end),
        ?assertEqual(Directory, filename:dirname(binary_to_list(File))),
        ?assertEqual(nomatch, re:run(filename:basename(File), "[^A-Za-z0-9_.-]")),
        {_, Table} = emberl_test:quiet(fun() -> emberl:print(Profile) end),
        ?assertMatch({_, _}, binary:match(Table, <<"rm -rf">>)),
        [?assertEqual(nomatch, binary:match(Text, <<"\e">>)) || Text <- [Printed, Table]],
        emberl_test:unload(emberl_hostile)
    end).

%% Whatever is given as options: a refusal with a text, before anything is touched.
hostile_options_test_() ->
    [{lists:flatten(io_lib:format("~0p", [Key])), fun() -> refused(Key) end} || Key <- keys()].

keys() ->
    {ok, Options} = emberl_options:parse(apply, #{}),
    maps:keys(Options).

refused(Key) ->
    Bad = [self(), make_ref(), fun() -> ok end, {}, {a, b, c}, [a | b], <<1:3>>, -1,
           1 bsl 80, 1.0e300, "a\0b", <<"a\0b">>, [16#d800], #{}, [[[]]]],
    [?assertMatch({Key, Value, _}, {Key, Value, answer(#{Key => Value, quiet => true})})
     || Value <- Bad],
    ?assertNot(emberl_test:running()).

answer(Options) ->
    case emberl_options:parse(apply, Options) of
        {ok, Parsed} when is_map(Parsed) -> ok;
        {error, {_Tag, _Term, Text}} when is_binary(Text) -> refused
    end.

%% Reading makes no atom.
no_atoms_test() ->
    with_directory(fun(Directory) ->
        File = filename:join(Directory, "p.ember"),
        ok = emberl_profile:save(pair(), File),
        {ok, First} = emberl_profile:load(File),
        use(First),
        Before = erlang:system_info(atom_count),
        [begin {ok, Profile} = emberl_profile:load(File), use(Profile) end
         || _ <- lists:seq(1, 20)],
        ?assertEqual(Before, erlang:system_info(atom_count))
    end).

use(Profile) ->
    [emberl_profile:functions(Profile), emberl_profile:stacks(Profile),
     emberl_profile:info(Profile), emberl_profile:processes(Profile)].
