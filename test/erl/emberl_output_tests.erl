%% SPDX-License-Identifier: Apache-2.0
%% Files, their names, viewers, merged results, and profiles as values.
-module(emberl_output_tests).

-include_lib("eunit/include/eunit.hrl").

-import(emberl_test, [with_directory/1, in_directory/2, shape/1]).

-define(PAIR, {emberl_work, pair, [1]}).

files(Directory) ->
    lists:sort(filelib:wildcard("**", Directory)).

text() ->
    #{output_format => brendan_gregg, metric => calls, quiet => true, modules => [emberl_work]}.

%% ---- names ----

default_name_test() ->
    in_directory((text())#{return => filename}, fun(#{output_directory := Directory} = Options) ->
        File = emberl:apply(?PAIR, Options),
        ?assertEqual(Directory, binary_to_list(filename:dirname(File))),
        ?assertMatch({match, _}, re:run(filename:basename(File),
                                        "^\\d{8}T\\d{6}\\.\\d{3}Z-emberl_work-pair-1-1\\.[a-z.]+$"))
    end).

%% Signs that a shell or a file system would take amiss are not in it.
odd_name_test() ->
    Module = 'emberl odd;$(x)/module',
    {module, Module} = code:load_binary(Module, "", emberl_test_odd(Module)),
    in_directory((text())#{return => filename, modules => [Module]}, fun(Options) ->
        File = emberl:apply({Module, 'run it', []}, Options),
        ?assertMatch({match, _}, re:run(filename:basename(File), "^[A-Za-z0-9_.-]+$")),
        {ok, Text} = file:read_file(File),
        ?assertMatch({match, [_]}, re:run(Text, "^[^; ]+;[^; ]+ [0-9]+$", [multiline, global]))
    end),
    emberl_test:unload(Module).

emberl_test_odd(Module) ->
    Forms = [{attribute, 1, module, Module},
             {function, 1, 'run it', 0, [{clause, 1, [], [], [{atom, 1, ok}]}]}],
    {ok, Module, Code} = compile:forms(Forms, [export_all, nowarn_export_all]),
    Code.

extension_test_() ->
    [{atom_to_list(Format),
      fun() ->
              in_directory(#{return => filename, output_format => Format, metric => calls},
                           fun(Options) ->
                  File = emberl:apply(?PAIR, Options),
                  ?assertEqual(Extension, filename:extension(File)),
                  ?assert(filelib:file_size(File) > 0)
              end)
      end} || {Format, Extension} <- [{html, <<".html">>}, {brendan_gregg, <<".bggg">>}]].

directory_is_made_test_() ->
    [fun() ->
             with_directory(fun(Directory) ->
                 Deep = filename:join([Directory, "a", "b c"]),
                 Options = (text())#{output_directory => Form(Deep), return => filename},
                 ?assert(filelib:is_regular(emberl:apply(?PAIR, Options)))
             end)
     end || Form <- [fun(D) -> D end, fun list_to_binary/1]].

output_file_test_() ->
    [fun() ->
             in_directory((text())#{return => filename, output_file => Name},
                          fun(#{output_directory := Directory} = Options) ->
                 emberl:apply(?PAIR, Options),
                 ?assertEqual([Expected], files(Directory))
             end)
     end || {Name, Expected} <- [{"graph", "graph.bggg"},
                                 {<<"graph">>, "graph.bggg"},
                                 {"graph.bggg", "graph.bggg"},
                                 {"graph.v1", "graph.v1.bggg"},
                                 {[$g, 16#e9], [$g, 16#e9 | ".bggg"]}]].

%% A file that is there is refused before the function is run, and left alone.
existing_file_test() ->
    in_directory((text())#{output_file => "graph"},
                 fun(#{output_directory := Directory} = Options) ->
        File = filename:join(Directory, "graph.bggg"),
        ok = file:write_file(File, "precious"),
        Test = self(),
        ?assertError({bad_option, output_file, _}, emberl:apply(fun() -> Test ! run end, Options)),
        ?assertMatch({error, {bad_option, output_file, _}},
                     emberl:start_capture({emberl_work, pair, 1}, 1, Options)),
        ?assertEqual({ok, <<"precious">>}, file:read_file(File)),
        ?assertEqual(["graph.bggg"], files(Directory)),
        receive run -> error(was_run)
        after 0 -> ok
        end
    end).

%% One that comes while the function runs is left alone too.
file_that_comes_meanwhile_test() ->
    in_directory((text())#{output_file => "graph", return => filename},
                 fun(#{output_directory := Directory} = Options) ->
        File = filename:join(Directory, "graph.bggg"),
        Name = emberl:apply(fun() -> file:write_file(File, "precious") end, Options),
        ?assertEqual(list_to_binary(filename:join(Directory, "graph-2.bggg")), Name),
        ?assertEqual({ok, <<"precious">>}, file:read_file(File))
    end).

numbered_files_test_() ->
    [fun() ->
             in_directory((text())#{output_file => "graph"},
                          fun(#{output_directory := Directory} = Options) ->
                 {ok, Capture} = emberl:start_capture({emberl_work, pair, 1}, 3, Options),
                 [emberl_work:pair(N) || N <- [1, 2, 3]],
                 {ok, Files} = emberl:await(Capture, infinity),
                 ?assertEqual(["graph-2.bggg", "graph-3.bggg", "graph.bggg"], files(Directory)),
                 ?assertEqual(["graph.bggg", "graph-2.bggg", "graph-3.bggg"],
                              [filename:basename(binary_to_list(File)) || File <- Files])
             end)
     end].

%% ---- directories that cannot be used: refused, nothing is run or left ----

bad_directory_test_() ->
    [{Name, fun() -> with_directory(fun(Directory) -> bad_directory(Make(Directory)) end) end}
     || {Name, Make} <- [{"a file", fun(D) -> touched(filename:join(D, "file")) end},
                         {"below a file",
                          fun(D) -> filename:join(touched(filename:join(D, "file")), "x") end},
                         {"in /proc", fun(_) -> "/proc/emberl" end}]].

touched(File) ->
    ok = file:write_file(File, ""),
    File.

bad_directory(Directory) ->
    Options = (text())#{output_directory => Directory},
    ?assertError({bad_option, output_directory, _}, emberl:apply(?PAIR, Options)),
    {error, {bad_option, output_directory, Text}} =
        emberl:capture({emberl_work, pair, 1}, 1, Options),
    ?assert(is_binary(Text) andalso byte_size(Text) > 0),
    ?assertNot(emberl_test:running()).

%% One that goes away while the function runs costs the file, not the value.
directory_that_goes_test() ->
    with_directory(fun(Directory) ->
        Inner = filename:join(Directory, "inner"),
        logger:set_primary_config(level, none),
        #{result := Result, file := File, profile := Profile} =
            emberl:apply(fun() -> file:del_dir_r(Inner) end,
                         (text())#{output_directory => Inner, return => all}),
        logger:set_primary_config(level, notice),
        ?assertEqual({ok, ok}, Result),
        ?assertMatch({error, {write_failed, _, <<_/binary>>}}, File),
        ?assertMatch(#{complete := true}, emberl_profile:info(Profile))
    end).

%% The same of captured calls: each has its profile.
directory_that_goes_in_capture_test() ->
    with_directory(fun(Directory) ->
        Inner = filename:join(Directory, "inner"),
        {ok, Capture} = emberl:start_capture({emberl_work, pair, 1}, 2,
                                             (text())#{output_directory => Inner, return => all}),
        [emberl_work:pair(N) || N <- [1, 2]],
        ok = file:del_dir_r(Inner),
        logger:set_primary_config(level, none),
        {ok, Results} = emberl:await(Capture, infinity),
        logger:set_primary_config(level, notice),
        ?assertMatch([#{result := {ok, {1, 1}}, file := {error, {write_failed, _, _}}},
                      #{result := {ok, {2, 2}}, file := {error, {write_failed, _, _}}}], Results)
    end).

%% Nothing is left of a file that the disk has no room for. Takes root, to mount one.
full_disk_test_() ->
    {setup, fun mounted/0, fun unmount/1,
     fun({Directory, 0}) -> [{atom_to_list(Format), fun() -> full_disk(Directory, Format) end}
                             || Format <- [html, perf, speedscope]];
        ({_Directory, _Status}) -> []
     end}.

mounted() ->
    Directory = filename:join("/tmp", "emberl-full-" ++ os:getpid()),
    ok = filelib:ensure_path(Directory),
    {Directory, status("mount -t tmpfs -o size=8k emberl " ++ Directory)}.

unmount({Directory, Status}) ->
    Status =:= 0 andalso (0 = status("umount " ++ Directory)),
    ok = file:del_dir(Directory).

status(Command) ->
    list_to_integer(string:trim(os:cmd(Command ++ " >/dev/null 2>&1; echo $?"))).

full_disk(Directory, Format) ->
    Profile = emberl_test:profile(fun() -> emberl_work:grove(10) end, #{fold_recursion => false}),
    File = filename:join(Directory, "file"),
    ?assertEqual({error, enospc}, emberl_profile:write(Profile, Format, File)),
    ?assertEqual([], files(Directory)).

%% ---- what is printed and started ----

%% Where no file is asked for, there is none, and no name of one.
capture_without_files_test_() ->
    [{atom_to_list(Return),
      fun() -> in_directory((text())#{return => Return, quiet => false}, fun no_files/1) end}
     || Return <- [value, data, profile, flamegraph]].

no_files(#{output_directory := Directory} = Options) ->
    {ok, Capture} = emberl:start_capture({emberl_work, pair, 1}, 2, Options),
    [emberl_work:pair(N) || N <- [1, 2]],
    {{ok, [_, _]}, Printed} = emberl_test:quiet(fun() -> emberl:await(Capture, infinity) end),
    ?assertEqual({<<>>, []}, {Printed, files(Directory)}).

quiet_test_() ->
    [fun() ->
             in_directory((text())#{quiet => Quiet}, fun(Options) ->
                 {_, Printed} = emberl_test:quiet(fun() -> emberl:apply(?PAIR, Options) end),
                 ?assertEqual(Quiet, Printed =:= <<>>)
             end)
     end || Quiet <- [true, false]].

%% The program gets the file's name, through no shell, and is not waited for.
open_test() ->
    in_directory((text())#{return => filename}, fun(#{output_directory := Directory} = Options) ->
        Viewer = filename:join(Directory, "my viewer"),
        Seen = filename:join(Directory, "seen"),
        Script = ["#!/bin/sh\nprintf '%s' \"$*\" > '", Seen, ".new' && mv '", Seen, ".new' '", Seen,
                  "'\nexec sleep 1000\n"],
        ok = file:write_file(Viewer, Script),
        ok = file:change_mode(Viewer, 8#755),
        File = emberl:apply(?PAIR, Options#{open => Viewer, output_file => "a $(b) 'c'"}),
        emberl_test:wait_until(fun() -> filelib:is_regular(Seen) end),
        ?assertEqual({ok, File}, file:read_file(Seen)),
        stop_viewer(Viewer)
    end).

%% The process that runs the program is the only one with such a port.
stop_viewer(Viewer) ->
    [Port] = [P || P <- erlang:ports(), erlang:port_info(P, name) =:= {name, Viewer}],
    {os_pid, Pid} = erlang:port_info(Port, os_pid),
    os:cmd("kill " ++ integer_to_list(Pid)),
    emberl_test:wait_until(fun() -> erlang:port_info(Port) =:= undefined end).

missing_viewer_test_() ->
    [fun() ->
             in_directory((text())#{open => Viewer}, fun(Options) ->
                 Warnings =
                     warnings(fun() -> ?assertEqual({1, 1}, emberl:apply(?PAIR, Options)) end),
                 ?assertMatch({match, _}, re:run(Warnings, ["cannot open .*", Name])),
                 ?assertMatch([_], files(maps:get(output_directory, Options)))
             end)
     end || {Viewer, Name} <- [{"no-such-viewer", "no-such-viewer"},
                               {<<"/no/such/viewer">>, "viewer"}, {speedscope, "speedscope"},
                               {hotspot, "hotspot"}],
            os:find_executable(lists:concat([Name])) =:= false].

%% What is logged as a warning while Fun runs.
warnings(Fun) ->
    Config = #{level => warning, config => #{test => self()}, formatter => {logger_formatter, #{}}},
    {ok, #{level := Level}} = logger:get_handler_config(default),
    logger:set_handler_config(default, level, none),
    ok = logger:add_handler(?MODULE, emberl_test_log, Config),
    try
        Fun(),
        receive {logged, Text} -> Text after 0 -> <<>> end
    after
        logger:remove_handler(?MODULE),
        logger:set_handler_config(default, level, Level)
    end.

%% ---- merged results ----

merge_test() ->
    in_directory((text())#{merge => true, return => all},
                 fun(#{output_directory := Directory} = Options) ->
        {ok, Capture} = emberl:start_capture({emberl_work, pair, 1}, 3, Options),
        [emberl_work:pair(N) || N <- [1, 2, 3]],
        {ok, [#{result := Result, profile := Profile, file := _}]} =
            emberl:await(Capture, infinity),
        ?assertMatch([_], files(Directory)),
        ?assertEqual({ok, [{ok, {1, 1}}, {ok, {2, 2}}, {ok, {3, 3}}]}, Result),
        ?assertMatch(#{calls := 3, complete := true}, emberl_profile:info(Profile)),
        ?assertEqual(#{[pair] => 3, [pair, leaf] => 6}, shape(Profile))
    end).

merge_of_processes_test() ->
    Profiles = [emberl_test:in_process(fun() ->
                    emberl_test:profile(?PAIR, #{modules => [emberl_work]})
                end) || _ <- [1, 2, 3]],
    Merged = emberl_profile:merge(Profiles),
    ?assertEqual(3, length(emberl_profile:processes(Merged))),
    ?assertEqual(#{[pair] => 3, [pair, leaf] => 6}, shape(Merged)),
    Infos = [emberl_profile:info(P) || P <- Profiles],
    #{duration_ns := Duration, events := Events} = emberl_profile:info(Merged),
    ?assertEqual(lists:sum([D || #{duration_ns := D} <- Infos]), Duration),
    ?assertEqual(lists:sum([E || #{events := E} <- Infos]), Events),
    ?assertEqual(shape(hd(Profiles)), shape(emberl_profile:merge([hd(Profiles)]))).

merge_of_no_calls_test() ->
    {ok, Capture} = emberl:start_capture({emberl_work, pair, 1}, 3, #{merge => true}),
    ?assertEqual({incomplete, stopped, []}, emberl:stop(Capture)).

%% ---- profiles ----

write_test() ->
    with_directory(fun(Directory) ->
        Profile = emberl_test:profile(?PAIR),
        File = filename:join(Directory, "graph"),
        ?assertEqual(ok, emberl_profile:write(Profile, html, File)),
        {ok, Written} = file:read_file(File),
        ?assertEqual(iolist_to_binary(emberl_profile:format(Profile, html)), Written),
        ?assertEqual({error, eexist}, emberl_profile:write(Profile, html, File)),
        ?assertEqual({error, enotdir}, emberl_profile:write(Profile, html, File ++ "/no/where"))
    end).

format_test_() ->
    Profile = emberl_test:in_process(
                fun() ->
                        emberl_test:profile({emberl_work, fork, [1]}, #{modules => [emberl_work]})
                end),
    [{lists:flatten(io_lib:format("~p by ~p", [Format, Metric])),
      fun() ->
              ?assert(is_binary(iolist_to_binary(
                                  emberl_profile:format(Profile, Format, #{metric => Metric}))))
      end} || Format <- [html, brendan_gregg], Metric <- [own_time, words, calls, binaries]]
    ++ [fun() -> collapsed(Profile) end,
        ?_assertError({bad_option, output_format, <<"no_such_format is not html or ", _/binary>>},
                      emberl_profile:format(Profile, no_such_format)),
        ?_assertError({bad_option, output_format, _},
                      emberl_profile:write(Profile, foo, "/tmp/emberl-none")),
        ?_assertError({bad_option, calls, _}, emberl_profile:format(Profile, brendan_gregg, calls)),
        ?_assertError({bad_option, width, _}, emberl_profile:format(Profile, html, #{width => 1})),
        ?_assertError({bad_profile, [], _}, emberl_profile:merge([])),
        ?_assertError({bad_option, metric, _},
                      emberl_profile:format(Profile, html, #{metric => no_such_metric})),
        ?_assertError({bad_profile, _, <<_/binary>>}, emberl_profile:format(not_a_profile, html)),
        ?_assertError({bad_profile, _, <<_/binary>>}, emberl_profile:info(make_ref())),
        ?_assertError(_, emberl_profile:merge([])),
        ?_assertError({bad_profile, _, <<_/binary>>},
                      emberl_profile:merge([Profile, not_a_profile]))].

%% A line is a process, its stack, and the number of calls.
collapsed(Profile) ->
    Text = iolist_to_binary(emberl_profile:format(Profile, brendan_gregg, #{metric => calls})),
    Lines = string:lexemes(binary_to_list(Text), "\n"),
    Parsed = [string:split(Line, " ", trailing) || Line <- Lines],
    Stacks = #{"emberl_work:fork/1" => 1,
               "emberl_work:fork/1;emberl_work:leaf/1" => 1,
               "emberl_work:fork/1;emberl_work:pair/1" => 2,
               "emberl_work:fork/1;emberl_work:pair/1;emberl_work:leaf/1" => 4},
    ?assertEqual(Stacks, maps:from_list([{without_process(Stack), list_to_integer(Calls)}
                                         || [Stack, Calls] <- Parsed])).

without_process(Stack) ->
    [_Process, Frames] = string:split(Stack, ";"),
    Frames.
