%% SPDX-License-Identifier: Apache-2.0
%% The command line, as it is called from a shell.
-module(emberl_cli_tests).

-include_lib("eunit/include/eunit.hrl").

-define(CALLS, "io:format(\"out~n\"), "
        "lists:foreach(fun(N) -> lists:seq(1, N) end, lists:seq(1, 20))").

%% ---- calling it ----

program() ->
    Ebin = filename:absname(filename:dirname(code:which(emberl))),
    filename:join([filename:dirname(Ebin), "bin", "emberl"]).

%% {ExitCode, StandardOutput, StandardError} of a shell command in the directory, where
%% `emberl' is the program.
shell(Directory, Command) ->
    Text = unicode:characters_to_list(["{ emberl() { \"$EMBERL\" \"$@\"; }\n", Command,
                                       "\n} 2>.stderr"]),
    Port = open_port({spawn_executable, "/bin/sh"},
                     [{args, ["-c", Text]}, {cd, Directory}, binary, exit_status,
                      {env, [{"EMBERL", program()}, {"NO_COLOR", false}, {"ERL_FLAGS", false}]}]),
    {Code, Out} = collect(Port, []),
    {ok, Err} = file:read_file(filename:join(Directory, ".stderr")),
    {Code, Out, Err}.

collect(Port, Chunks) ->
    receive
        {Port, {data, Chunk}} -> collect(Port, [Chunks, Chunk]);
        {Port, {exit_status, Code}} -> {Code, iolist_to_binary(Chunks)}
    end.

has(Text, Part) ->
    case binary:match(Text, Part) of
        nomatch -> ?assertEqual({has, Part}, Text);
        _ -> ok
    end.

files(Directory) ->
    {ok, Names} = file:list_dir(Directory),
    lists:sort(Names -- [".stderr"]).

%% A directory with the profiles a.ember and b.ember.
with_profiles(Fun) ->
    emberl_test:with_directory(fun(Directory) ->
        [ok = emberl_profile:save(profile(Many), filename:join(Directory, Name))
         || {Name, Many} <- [{"a.ember", 10}, {"b.ember", 30}]],
        Fun(Directory)
    end).

profile(Many) ->
    emberl_test:profile({lists, foreach, [fun(N) -> lists:seq(1, N) end, lists:seq(1, Many)]}).

loaded(Directory, Name) ->
    {ok, Profile} = emberl_profile:load(filename:join(Directory, Name)),
    Profile.

cases(Setup, Cases) ->
    [{Name, {timeout, 60, fun() -> Setup(Fun) end}} || {Name, Fun} <- Cases].

%% ---- run ----

run_test_() ->
    cases(fun emberl_test:with_directory/1,
          [{"expression", fun an_expression/1}, {"default name", fun default_name/1},
           {"raises", fun what_raises/1}, {"refused", fun what_cannot_run/1},
           {"function", fun a_function/1}, {"scripts", fun scripts/1},
           {"archive", fun an_archive/1},
           {"options", fun run_options/1}, {"existing", fun existing_files_stay/1},
           {"end of the node", fun what_ends_the_node/1},
           {"signals", fun signals_leave_a_profile/1},
           {"standard input", fun standard_input_is_the_programs/1}]).

an_expression(Directory) ->
    {0, <<"out\n">>, Err} = shell(Directory, ["emberl run -e '", ?CALLS,
                                              ".' -e ok --metric calls -o a.ember -o a.folded"]),
    ?assertEqual(<<"emberl: wrote a.ember\nemberl: wrote a.folded\n">>, Err),
    ?assertEqual(21, maps:get({lists, seq, 2}, emberl_test:calls(loaded(Directory, "a.ember")))),
    {ok, Folded} = file:read_file(filename:join(Directory, "a.folded")),
    has(Folded, <<";expression:run/0;lists:foreach/2;">>).

default_name(Directory) ->
    {0, <<"out\n">>, <<>>} = shell(Directory, "emberl run -q -e '" ++ ?CALLS ++ "'"),
    [Name] = files(Directory),
    ?assertMatch({match, _}, re:run(Name, "^[0-9TZ.]+-expression-run-0-1\\.html$")).

what_raises(Directory) ->
    {1, <<>>, Err} = shell(Directory, "emberl run -e 'error(oh)' -o a.ember"),
    has(Err, <<"exception error: oh">>),
    ?assertEqual(nomatch, binary:match(Err, <<"emberl_cli">>)),
    ?assertMatch(#{outcome := raised}, emberl_profile:info(loaded(Directory, "a.ember"))).

what_cannot_run(Directory) ->
    [begin
         {Code, <<>>, Err} = shell(Directory, "emberl run " ++ Arguments),
         has(Err, Text)
     end || {Arguments, Code, Text} <-
                [{"-e 'X = '", 1, <<"expression:1: syntax error">>},
                 {"-e 'X + Y'", 1, <<"variable 'X' is unbound">>},
                 {"no_such:function", 1, <<"there is no no_such:function/0 or /1">>},
                 {"erlang:date/1", 1, <<"there is no erlang:date/1">>},
                 {"no_such_file", 1, <<"no_such_file is neither a file nor MODULE:FUNCTION">>},
                 {"", 2, <<"nothing to run">>},
                 {"lists:sort a", 2, <<"stand after --">>},
                 {"-e ok -o -", 1, <<"--format is needed">>},
                 {"-e ok -o - -f html", 2, <<"standard output is for what the program prints">>},
                 {"-e ok -o no/such/a.html", 1, <<"there is no directory no/such">>},
                 {"-e 'io:put_chars(\"ran\")' -o /proc/a.html", 1, <<"/proc: ">>},
                 {"-e ok -o a.ember -o a.ember", 2, <<"an output is given twice">>},
                 {"-e ok -o a.xyz", 1, <<"no format has files called a.xyz">>},
                 {"-e ok --memory 3", 2, <<"unknown option --memory">>},
                 {"-e", 2, <<"--eval needs a value">>}]],
    {1, <<>>, Unwritable} = shell(Directory, "cd /proc; emberl run -e 'io:put_chars(\"ran\")'"),
    has(Unwritable, <<"emberl: /proc: ">>),
    ?assertEqual([], files(Directory)).

a_function(Directory) ->
    {0, _, <<>>} = shell(Directory, "emberl run lists:sort -q -o a.ember -- c b"),
    ?assertMatch(#{target := <<"lists:sort/1">>},
                 emberl_profile:info(loaded(Directory, "a.ember"))),
    {0, _, <<>>} = shell(Directory, "emberl run -q -o b.ember erlang:date/0"),
    ?assertMatch(#{target := <<"erlang:date/0">>},
                 emberl_profile:info(loaded(Directory, "b.ember"))).

scripts(Directory) ->
    Body = "main(Arguments) -> io:format(\"~p~n\", [Arguments]).\n",
    [ok = file:write_file(filename:join(Directory, Name), Text)
     || {Name, Text} <- [{"a script", ["#!/usr/bin/env escript\n", Body]},
                         {"named.erl", ["-module(named).\n-export([main/1]).\n", Body]},
                         {"wrong.erl", "-module(wrong).\nmain() -> .\n"}]],
    {0, <<"[\"x\",\"-e\"]\n">>, <<>>} =
        shell(Directory, "emberl run -q -o a.ember 'a script' -- x -e"),
    {0, <<"[]\n">>, <<>>} = shell(Directory, "emberl run -q -o b.ember named.erl"),
    ?assertMatch(#{target := <<"named:main/1">>},
                 emberl_profile:info(loaded(Directory, "b.ember"))),
    {1, <<>>, Err} = shell(Directory, "emberl run -q wrong.erl"),
    has(Err, <<"wrong.erl:2: syntax error">>).

an_archive(Directory) ->
    {ok, packed, Code} = compile:forms(forms(["-module(packed).", "-export([main/1]).",
                                              "main(A) -> io:format(\"packed ~s~n\", A)."]), []),
    ok = escript:create(filename:join(Directory, "packed"),
                        [shebang, {emu_args, "-escript main packed"},
                         {archive, [{"packed/ebin/packed.beam", Code}], []}]),
    {0, <<"packed x\n">>, <<>>} = shell(Directory, "emberl run -q -o a.ember packed -- x"),
    ?assertMatch(#{target := <<"packed:main/1">>},
                 emberl_profile:info(loaded(Directory, "a.ember"))).

forms(Texts) ->
    [begin
         {ok, Tokens, _} = erl_scan:string(Text),
         {ok, Form} = erl_parse:parse_form(Tokens),
         Form
     end || Text <- Texts].

run_options(Directory) ->
    {0, <<"out\n">>, Err} = shell(Directory, ["emberl run -pqt -m expression --no-spawned -d 60 "
                                              "-o a.ember -e '", ?CALLS, "'"]),
    has(Err, <<"events ">>),
    has(Err, <<"timeline   complete\n">>),
    has(Err, <<"expression:run/0">>),
    Calls = emberl_test:calls(loaded(Directory, "a.ember")),
    ?assertEqual([expression], lists:usort([Module || {Module, _, _} <- maps:keys(Calls)])).

standard_input_is_the_programs(Directory) ->
    Copy = "emberl run -q -o a.ember -e 'io:put_chars(io:get_line([]))'",
    ?assertEqual({0, <<"a line\n">>, <<>>}, shell(Directory, "echo 'a line' | " ++ Copy)).

what_ends_the_node(Directory) ->
    Told = <<"emberl: the node was ended inside, so there is no profile\n">>,
    [begin
         {1, <<>>, Err} = shell(Directory, ["emberl run -o a.ember -e '", Expression, "'"]),
         has(Err, Told)
     end || Expression <- ["halt(0)", "halt(3)", "init:stop(), timer:sleep(infinity)"]],
    {0, <<>>, <<>>} = shell(Directory, "emberl run -q -o a.ember -e ok"),
    ?assertEqual(["a.ember"], files(Directory)).

%% To the node itself; to the command, as Ctrl-C and others do.
signals_leave_a_profile(Directory) ->
    Node = "os:getpid()",
    Command = "os:cmd(\"cut -d \\\" \\\" -f 4 /proc/\" ++ os:getpid() ++ \"/stat\")",
    [begin
         Kill = ["os:cmd(\"kill -", Signal, " \" ++ ", Whom, ")"],
         {1, <<>>, Err} = shell(Directory,
                                ["emberl run --force -o a.ember -e 'lists:seq(1, 9), ", Kill,
                                 ", timer:sleep(infinity)'"]),
         has(Err, <<"emberl: wrote a.ember\nemberl: it was ended from outside">>),
         ?assertMatch(#{{lists, seq, 2} := 1}, emberl_test:calls(loaded(Directory, "a.ember")))
     end || {Signal, Whom} <- [{"TERM", Node}, {"TERM", Command}, {"INT", Command}]].

existing_files_stay(Directory) ->
    ok = file:write_file(filename:join(Directory, "a.ember"), "mine"),
    {1, <<>>, Err} = shell(Directory, "emberl run -e '" ++ ?CALLS ++ "' -o a.ember"),
    has(Err, <<"there is a file a.ember already">>),
    ?assertEqual({ok, <<"mine">>}, file:read_file(filename:join(Directory, "a.ember"))),
    {0, <<"out\n">>, _} = shell(Directory, "emberl run --force -e '" ++ ?CALLS ++ "' -o a.ember"),
    _ = loaded(Directory, "a.ember").

%% ---- profiles ----

profiles_test_() ->
    cases(fun with_profiles/1,
          [{"formats", fun all_formats/1}, {"standard files", fun standard_files/1},
           {"force", fun force_overwrites/1}, {"top", fun top_functions/1},
           {"diff", fun differences/1},
           {"merge", fun merging/1}, {"info", fun information/1},
           {"query", fun a_query/1}, {"query refused", fun refused_queries/1},
           {"refused", fun refusals/1},
           {"closed output", fun closed_output/1}, {"full output", fun full_output/1},
           {"errors", fun errors_are_utf8/1}]).

%% Each by the name of its files, and each as the library writes it.
all_formats(Directory) ->
    Profile = loaded(Directory, "a.ember"),
    Formats = [{F, E} || {F, E} <- emberl_nif:views(), F =/= perf_symbols, F =/= perf],
    Names = ["x." ++ binary_to_list(Extension) || {_, Extension} <- Formats],
    Each = [["emberl convert a.ember ", Name, " && "] || Name <- Names],
    {0, <<>>, <<>>} = shell(Directory, [Each, "true"]),
    [?assertEqual({ok, iolist_to_binary(emberl_profile:format(Profile, Format))},
                  file:read_file(filename:join(Directory, Name)))
     || {{Format, _}, Name} <- lists:zip(Formats, Names), Format =/= html],
    {0, <<>>, <<>>} = shell(Directory, "emberl convert a.ember perf.data"),
    true = filelib:is_regular(filename:join(Directory, "perf.data.symbols")).

standard_files(Directory) ->
    {ok, Bytes} = file:read_file(filename:join(Directory, "a.ember")),
    ?assertEqual({0, Bytes, <<>>}, shell(Directory, "emberl convert - - -f ember <a.ember")),
    ?assertEqual({0, Bytes, <<>>},
                 shell(Directory, "cat a.ember | emberl convert -fember - - | cat")),
    {0, Html, <<>>} = shell(Directory, "emberl convert a.ember - --format=html --metric=words"),
    Written = emberl_profile:format(loaded(Directory, "a.ember"), html, #{metric => words}),
    ?assertEqual(iolist_to_binary(Written), Html).

force_overwrites(Directory) ->
    {1, <<>>, Err} = shell(Directory, "emberl convert a.ember b.ember"),
    has(Err, <<"there is a file b.ember already: --force overwrites it">>),
    {0, <<>>, <<>>} = shell(Directory, "emberl convert a.ember b.ember --force && "
                            "emberl convert --force a.ember perf.data && "
                            "emberl convert --force a.ember perf.data"),
    [A, B] = [file:read_file(filename:join(Directory, Name)) || Name <- ["a.ember", "b.ember"]],
    ?assertEqual(A, B),
    ?assertEqual(["a.ember", "b.ember", "perf.data", "perf.data.symbols"], files(Directory)),
    {0, <<>>, <<>>} = shell(Directory, "ln -s b.ember link && "
                            "emberl convert a.ember link -f brendan_gregg --metric calls --force"),
    {ok, <<"<", _/binary>>} = file:read_file(filename:join(Directory, "b.ember")),
    {ok, Link} = file:read_link(filename:join(Directory, "link")),
    ?assertEqual("b.ember", Link).

top_functions(Directory) ->
    {0, Out, <<>>} = shell(Directory, "emberl top a.ember -n2 --sort calls"),
    [Titles, _, _, Sum] = [Line || Line <- string:lexemes(Out, "\n"), not is_note(Line)],
    has(Titles, <<"words %  function">>),
    has(Sum, <<"all ">>),
    {1, <<>>, Nothing} = shell(Directory, "emberl top -m nothing -n 5 - <a.ember"),
    has(Nothing, <<"modules: none of them has functions in the profile">>),
    ?assertEqual({0, Out, <<>>}, shell(Directory, "emberl top -n2 --sort calls -- a.ember")),
    {1, <<>>, Err} = shell(Directory, "emberl top a.ember --process nobody"),
    has(Err, <<"process: no such process">>).

is_note(Line) -> binary:part(Line, 0, 4) =:= <<"note">>.

differences(Directory) ->
    {0, Out, <<>>} = shell(Directory, "emberl diff a.ember b.ember -s calls"),
    has(Out, <<"lists:seq/2">>),
    has(Out, <<"+20">>),
    {0, <<>>, <<>>} = shell(Directory, "emberl diff a.ember b.ember -o c.folded "
                            "--normalise none --metric calls"),
    Diff = emberl_profile:diff(loaded(Directory, "a.ember"), loaded(Directory, "b.ember"),
                               #{normalise => none}),
    ?assertEqual({ok, emberl_profile:format(Diff, brendan_gregg, #{metric => calls})},
                 file:read_file(filename:join(Directory, "c.folded"))),
    {0, Html, <<>>} = shell(Directory, "emberl diff a.ember b.ember -o - -f html --width before"),
    ?assertEqual(emberl_profile:format(emberl_profile:diff(loaded(Directory, "a.ember"),
                                                           loaded(Directory, "b.ember")),
                                       html, #{width => before}), Html),
    {1, <<>>, Err} = shell(Directory, "emberl diff a.ember b.ember -o c.ember"),
    has(Err, <<"ember has no place for both sides">>),
    ?assertEqual(lists:sort([Format || Format <- emberl_cli_files:formats(),
                                       compares(Diff, Format)]),
                 lists:sort(emberl_cli_files:formats_of_comparisons())),
    {0, Help, <<>>} = shell(Directory, "emberl diff --help"),
    has(Help, <<"html, htm">>),
    ?assertEqual(nomatch, binary:match(Help, <<"pprof">>)).

compares(Diff, Format) ->
    try emberl_profile:format(Diff, Format) of
        _ -> true
    catch
        error:{no_comparison, Format} -> false
    end.

merging(Directory) ->
    {0, <<>>, <<>>} = shell(Directory, "emberl merge a.ember - -o c.ember <b.ember"),
    [A, B, C] = [emberl_test:total_calls(loaded(Directory, Name))
                 || Name <- ["a.ember", "b.ember", "c.ember"]],
    ?assertEqual(A + B, C).

information(Directory) ->
    {0, Out, <<>>} = shell(Directory, "emberl info a.ember"),
    #{events := Events} = emberl_profile:info(loaded(Directory, "a.ember")),
    has(Out, <<"lists:foreach/2, 20">>),
    has(Out, iolist_to_binary(["events     ", emberl_table:count(Events), ", none lost"])),
    has(Out, <<"\nprocess ">>).

refusals(Directory) ->
    ok = file:write_file(filename:join(Directory, "wrong.ember"), "garbage"),
    [begin
         {Code, <<>>, Err} = shell(Directory, "emberl " ++ Arguments),
         has(Err, Text)
     end || {Arguments, Code, Text} <-
                [{"top wrong.ember", 1, <<"wrong.ember: byte 0">>},
                 {"top none.ember", 1, <<"none.ember: no such file">>},
                 {"top - </dev/null", 1, <<"standard input: ">>},
                 {"top .", 1, <<".: ">>},
                 {"top a.ember b.ember", 2, <<"one profile is needed\nSee: emberl top --help">>},
                 {"convert a.ember", 2, <<"See: emberl convert --help">>},
                 {"convert a.ember -", 1, <<"--format is needed">>},
                 {"convert a.ember x.html -f pdf", 2, <<"--format takes ">>},
                 {"diff a.ember", 2, <<"two profiles">>},
                 {"diff - - <a.ember", 2, <<"standard input is one profile">>},
                 {"merge a.ember", 2, <<"--output is needed">>},
                 {"merge -o x.ember", 2, <<"no profiles">>},
                 {"info", 2, <<"one profile">>},
                 {"frobnicate", 2, <<"unknown command frobnicate">>},
                 {"", 2, <<"See: emberl help">>}]].

errors_are_utf8(Directory) ->
    [{1, <<>>, <<"emberl: größe→.ember: no such file or directory\n"/utf8>>} =
         shell(Directory, ["LC_ALL=", Locale, " emberl info größe→.ember"])
     || Locale <- ["C.UTF-8", "C"]].

%% It ends, and says so in no more than a line.
closed_output(Directory) ->
    {_, Out, Err} = shell(Directory, "emberl convert a.ember - -f html | head -c 15"),
    ?assertEqual(<<"<!DOCTYPE html>">>, Out),
    ?assert(length(binary:split(Err, <<"\n">>, [global])) =< 2).

full_output(Directory) ->
    [begin
         {1, <<>>, Full} = shell(Directory, ["emberl ", Arguments, " >/dev/full"]),
         has(Full, <<"standard output: no space left on device">>),
         {1, <<>>, Closed} = shell(Directory, ["emberl ", Arguments, " >&-"]),
         has(Closed, <<"standard output is closed">>)
     end || Arguments <- ["convert a.ember - -f html", "top a.ember", "info a.ember",
                          "diff a.ember b.ember", "help", "--version"]].

%% The two profiles as slices of the last two minutes.
store(Directory) ->
    Now = erlang:system_time(millisecond),
    Store = emberl_store:open(filename:join(Directory, "store"),
                              #{max_bytes => infinity, max_age => infinity}),
    Add = fun(Name, Minutes, S) ->
                  From = Now - Minutes * 60000,
                  emberl_store:add(loaded(Directory, Name), From, From + 50000, S)
          end,
    Add("b.ember", 10, Add("a.ember", 30, Store)).

a_query(Directory) ->
    store(Directory),
    {0, <<>>, <<>>} = shell(Directory, "emberl query store --from -1h -o both.ember"),
    ?assertEqual(40, maps:get({lists, seq, 2}, emberl_test:calls(loaded(Directory, "both.ember")))),
    {0, <<>>, <<>>} = shell(Directory, "emberl query store --from=-1h --to -20m -o first.ember"),
    ?assertEqual(10,
                 maps:get({lists, seq, 2}, emberl_test:calls(loaded(Directory, "first.ember")))),
    {0, Table, <<>>} = shell(Directory, "emberl query store --from -1h --app stdlib"),
    has(Table, <<"lists:seq/2">>),
    {0, Other, <<>>} = shell(Directory, "emberl query store --from -1h -m maps -n 5"),
    ?assertEqual(nomatch, binary:match(Other, <<"lists:seq/2">>)),
    [Slice | _] = filelib:wildcard(filename:join(Directory, "store/*.ember")),
    ok = file:write_file(Slice, "damaged"),
    {0, _, Err} = shell(Directory, "emberl query store --from -1h"),
    has(Err, <<"is left out: ">>).

refused_queries(Directory) ->
    store(Directory),
    [begin
         {Code, <<>>, Err} = shell(Directory, Command),
         ?assertMatch({Command, Code}, {Command, Expected}),
         has(Err, Text)
     end || {Expected, Command, Text} <-
                [{2, "emberl query store", <<"--from">>},
                 {2, "emberl query --from -1h", <<"one directory">>},
                 {2, "emberl query store --from soon", <<"not soon">>},
                 {2, "emberl query store --from -1h --to 2026-12-01T25:00", <<"--to takes">>},
                 {2, "emberl query store --from -1h --format html", <<"--output">>},
                 {2, "emberl diff a.ember b.ember --format html", <<"--output">>},
                 {1, "emberl query store --from -2m", <<"there is nothing">>},
                 {2, "emberl query store --from -1h --to -2h", <<"is not before">>},
                 {1, "emberl query nowhere --from -1h", <<"nowhere">>},
                 {2, "emberl query store --from -1h --app nosuchapp", <<"no application">>}]].

%% ---- help ----

help_test_() ->
    cases(fun emberl_test:with_directory/1, [{"help", fun helps/1}]).

helps(Directory) ->
    {0, Overview, <<>>} = shell(Directory, "emberl help"),
    ?assertEqual({0, Overview, <<>>}, shell(Directory, "emberl --help")),
    [begin
         has(Overview, <<"\n  ", Verb/binary, " ">>),
         {0, Help, <<>>} = shell(Directory, [<<"emberl ">>, Verb, <<" --help">>]),
         has(Help, <<"Usage: emberl ", Verb/binary, " ">>)
     end || Verb <- [<<"run">>, <<"convert">>, <<"top">>, <<"diff">>, <<"merge">>, <<"info">>]],
    ?assertEqual({0, Overview, <<>>}, shell(Directory, "emberl help --help")),
    {0, Version, <<>>} = shell(Directory, "emberl --version"),
    ?assertEqual({0, Version, <<>>}, shell(Directory, "emberl version")),
    ok = application:ensure_started(emberl),
    {ok, Number} = application:get_key(emberl, vsn),
    has(Version, list_to_binary(["emberl ", Number])).

%% ---- arguments ----

-define(SPECS, [{flag, $f, "flag", flag, "a flag"}, {other, $g, "other", flag, ""},
                {text, $t, "text", {"TEXT", text}, "a text\nof two lines"},
                {many, none, "many-of-a-long-name", {"TEXT", many, text}, "several"},
                {number, $n, "number", {"N", number}, ""},
                {modules, $m, "modules", {"M1,M2", modules}, ""},
                {seconds, $d, "seconds", {"SECONDS", milliseconds}, ""},
                {choice, none, "choice", {"WHAT", {one_of, [this, that]}}, ""}]).

arguments_test() ->
    [?assertEqual({ok, #{options => Options, operands => Operands, rest => Rest}},
                  emberl_arguments:parse(?SPECS, Arguments))
     || {Arguments, Options, Operands, Rest} <-
            [{[], #{}, [], none},
             {["a", "-f", "b"], #{flag => true}, ["a", "b"], none},
             {["-fg", "-"], #{flag => true, other => true}, ["-"], none},
             {["-fn3", "-t", "-x"], #{flag => true, number => 3, text => "-x"}, [], none},
             {["--text=a=b", "--many-of-a-long-name", "1", "--many-of-a-long-name=2"],
              #{text => "a=b", many => ["1", "2"]}, [], none},
             {["a", "--", "-f", "--"], #{}, ["a"], ["-f", "--"]},
             {["-m", "lists,Enum,Elixir.Map"], #{modules => [lists, 'Elixir.Enum', 'Elixir.Map']},
              [], none},
             {["--choice", "that", ""], #{choice => that}, [""], none}]].

wrong_arguments_test() ->
    [begin
         {error, Found} = emberl_arguments:parse(?SPECS, Arguments),
         ?assertEqual(Text, lists:flatten(Found))
     end || {Arguments, Text} <-
                [{["-x"], "unknown option -x"}, {["--flags"], "unknown option --flags"},
                 {["--flag=1"], "--flag takes no value"}, {["-t"], "--text needs a value"},
                 {["-n", "0"], "--number takes a whole number above 0, not 0"},
                 {["-n1x"], "--number takes a whole number above 0, not 1x"},
                 {["-d", "0.01"], "--seconds takes whole seconds, 1 or more, not 0.01"},
                 {["--choice=x"], "--choice takes this, that, not x"}]].

options_are_told_in_help_test() ->
    ?assertEqual("  -f, --flag              a flag\n"
                 "  -t, --text TEXT         a text\n"
                 "                          of two lines\n"
                 "      --many-of-a-long-name TEXT\n"
                 "                          several\n",
                 lists:flatten(emberl_arguments:help([lists:nth(N, ?SPECS) || N <- [1, 3, 4]]))).
