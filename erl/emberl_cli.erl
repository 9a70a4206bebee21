%% SPDX-License-Identifier: Apache-2.0
%% @private
%% The command line, started by bin/emberl. Results go to standard output, all else
%% to standard error; it ends with 0 when done, 1 when it failed, 2 when it was
%% called wrongly.
-module(emberl_cli).

-export([start/0, main/1]).

-import(emberl_cli_files, [load/1, output/2, write/3]).

-define(DONE, 0).
-define(FAILED, 1).
-define(USAGE, 2).

%% From erl -s, which is not to wait.
-spec start() -> pid().
start() ->
    ok = io:setopts(standard_error, [{encoding, unicode}]), % whatever the locale
    spawn(fun() -> halt(main(init:get_plain_arguments())) end).

%% The exit code.
-spec main([string()]) -> 0..2.
main(Arguments) ->
    try
        dispatch(Arguments)
    catch
        throw:{failed, Text} ->
            message(Text),
            ?FAILED;
        throw:{usage, Verb, Text} ->
            message([Text, "\nSee: emberl ", see(Verb)]),
            ?USAGE
    end.

dispatch([]) -> usage("help", "nothing to do");
dispatch(["help"]) -> output(overview());
dispatch(["help", Flag | _]) when Flag =:= "--help"; Flag =:= "-h" -> output(overview());
dispatch(["help", Name | _]) -> help(Name);
dispatch([Flag | _]) when Flag =:= "--help"; Flag =:= "-h" -> output(overview());
dispatch([Flag | _]) when Flag =:= "--version"; Flag =:= "-V"; Flag =:= "version" ->
    output(version());
dispatch([Name | Arguments]) -> verb(find_verb(Name), Arguments).

see("help") -> "help";
see(Verb) -> [Verb, " --help"].

help(Name) ->
    output(help_text(find_verb(Name))).

verb({Name, _, _, Options, Do}, Arguments) ->
    case emberl_arguments:parse(Options ++ common(), Arguments) of
        {ok, #{options := #{help := true}}} -> help(Name);
        {ok, Parsed} -> Do(with_rest(Name, Parsed));
        {error, Text} -> usage(Name, Text)
    end.

%% What stands after -- is the program's arguments, or operands like the others.
with_rest(Name, #{rest := Rest} = Parsed) when Name =:= "run"; Rest =:= none -> Parsed;
with_rest(_Name, #{operands := Operands, rest := Rest} = Parsed) ->
    Parsed#{operands := Operands ++ Rest, rest := none}.

find_verb(Name) ->
    case lists:keyfind(Name, 1, verbs()) of
        false -> usage("help", ["unknown command ", Name]);
        Verb -> Verb
    end.

%% ---- what there is -----------------------------------------------------------

%% {Name, Operands, What it does, Options, Fun}
verbs() ->
    [{"run", "[OPTIONS] (-e EXPRESSION | MODULE:FUNCTION | SCRIPT) [-- ARGUMENTS]",
      "Runs something in a new node and profiles it, with the processes it spawns.\n"
      "A script is an escript, or a module with main/1. ARGUMENTS are given to main/1\n"
      "or to the function as a list of strings. Ctrl-C and SIGTERM end it with the\n"
      "profile of what was done until then, and status 1; twice, without. What ends the\n"
      "node from inside, such as halt/1, leaves no profile: the status is 1 too.",
      run_options(), fun run/1},
     {"convert", "[OPTIONS] PROFILE OUTPUT",
      "Writes a profile in another format.",
      [format(), metric(), force()], fun convert/1},
     {"top", "[OPTIONS] PROFILE",
      "Prints the functions that matter most.",
      top_options(), fun top/1},
     {"diff", "[OPTIONS] BEFORE AFTER",
      "Compares two profiles.\n"
      "Prints what changed most, or writes a graph of the changes.",
      [{output, $o, "output", {"FILE", text}, "write the comparison there, print nothing"},
       {normalise, none, "normalise", {"HOW", {one_of, [calls, time, none]}},
        "calls (default): as many captured calls on both\nsides; time: as much time; none"},
       {width, none, "width", {"SIDE", {one_of, ['after', before]}},
        "what frames are as wide as; default after"},
       format(emberl_cli_files:formats_of_comparisons()), metric(), force() | top_options()],
      fun diff/1},
     {"merge", "[OPTIONS] PROFILE... -o OUTPUT",
      "Adds profiles up.",
      [{output, $o, "output", {"FILE", text}, "where to; required"}, format(), metric(), force()],
      fun merge/1},
     {"query", "[OPTIONS] DIRECTORY --from TIME",
      "Adds up what a sampler has stored of a time.\n"
      "Prints the functions that matter most, or writes the profile. TIME is in UTC:\n"
      "2026-12-31T23:59:59, or without the seconds or the time; now; or how long ago:\n"
      "-90s, -10m, -2h, -1d. Two times are compared by emberl diff, of two profiles.",
      query_options(), fun query/1},
     {"info", "PROFILE",
      "Prints what was measured, and what is missing.",
      [], fun info/1}].

run_options() ->
    [{expression, $e, "eval", {"EXPRESSION", many, text},
      "an Erlang expression; several are one after\nthe other"},
     {output, $o, "output", {"FILE", many, text},
      "where to; may be repeated; default: a file .html of\nthe time and what was run, here. "
      "Never -: standard\noutput is for what the program prints"},
     format(), metric(),
     {modules, $m, "modules", {"M1,M2", modules},
      "show these modules alone; others' time and\nwords are their callers'"},
     {path, none, "pa", {"DIR", many, text}, "look for code there"},
     {timeout, $d, "duration", {"SECONDS", milliseconds}, "record this long at most"},
     {timeline, $t, "timeline", flag, "keep what happened when too"},
     {alone, none, "no-spawned", flag, "do not follow processes spawned inside"},
     {print, $p, "print", flag, "print a summary to standard error"},
     {quiet, $q, "quiet", flag, "do not tell the names of files"},
     force()].

top_options() ->
    [{count, $n, "count", {"N", number}, "how many functions; default 20"},
     {sort, $s, "sort", {"WHAT", {one_of, [own_time, total_time, waiting, words, calls,
                                               binaries]}},
      "own_time (default, if it was asked for), total_time\n"
      "(with what they called), waiting, words, calls,\nbinaries"},
     {process, none, "process", {"PID", text}, "of one process: <0.1.0> or its name"},
     {modules, $m, "modules", {"M1,M2", modules}, "show these modules alone"}].

query_options() ->
    [{from, none, "from", {"TIME", time}, "where it begins; required"},
     {to, none, "to", {"TIME", time}, "where it ends; default now"},
     {output, $o, "output", {"FILE", text}, "write the profile there, print nothing"},
     {app, none, "app", {"NAME", text}, "show the modules of this application alone"},
     {path, none, "pa", {"DIR", many, text}, "look for it there"},
     format(), metric(), force() | top_options()].

format() -> format(emberl_cli_files:formats()).

format(Formats) ->
    {format, $f, "format", {"FORMAT", {one_of, Formats}},
     "default: by the name of the output"}.

metric() ->
    {metric, none, "metric", {"METRIC", {one_of, [own_time, words, calls, binaries]}},
     "what a format with one value shows"}.

force() -> {force, none, "force", flag, "overwrite files that exist"}.

common() -> [{help, $h, "help", flag, "this text"}].

overview() ->
    [usage(), "\n",
     [["  ", string:pad(Name, 9), hd(string:split(What, "\n")), "\n"]
      || {Name, _, What, _, _} <- verbs()],
     "  help     The same of one of these: emberl help run\n"
     "\n"
     "PROFILE is a file .ember, or - for standard input. OUTPUT - is standard output.\n"
     "Ends with 0 when done, 1 when it failed, 2 when it was called wrongly.\n"].

usage() ->
    "Usage: emberl COMMAND [OPTIONS] ...\n"
    "       emberl --help | --version\n".

help_text({Name, Operands, What, Options, _}) ->
    ["Usage: emberl ", Name, " ", Operands, "\n\n", What, "\n\n",
     emberl_arguments:help(Options ++ common()),
     [["\nFormats, with the names of files that mean them:\n",
       [["  ", string:pad(atom_to_list(Format), 16),
          lists:join(", ", emberl_cli_files:endings(Format)), "\n"]
        || Format <- Formats]] || {format, _, _, {_, {one_of, Formats}}, _} <- Options]].

version() ->
    _ = application:load(emberl),
    {ok, Version} = application:get_key(emberl, vsn),
    ["emberl ", Version, ", OTP ", erlang:system_info(otp_release), "\n"].

%% ---- run -----------------------------------------------------------------------

run(#{options := Options, operands := Operands, rest := Rest}) ->
    code:add_pathsa(lists:reverse(maps:get(path, Options, []))),
    Outputs = run_outputs(Options),
    Target = target(Options, Operands, Rest),
    case emberl_cli_run:profile(Target, apply_options(Options)) of
        {ok, Profile, Outcome} ->
            Files = [write(Profile, Output, Options) || Output <- Outputs],
            report(Profile, Files, Options),
            run_result(Outcome);
        {error, Reason} ->
            failed(refusal(Reason))
    end.

%% Checked before the program runs: it may run for long.
run_outputs(#{output := Names} = Options) ->
    Outputs = [output(Name, Options) || Name <- Names],
    lists:keymember(standard_io, 2, Outputs)
        andalso usage("run", "standard output is for what the program prints"),
    lists:usort(Names) =:= lists:sort(Names) orelse usage("run", "an output is given twice"),
    [emberl_cli_files:check_new(File, Options) || {_, File} <- Outputs],
    Outputs;
run_outputs(Options) ->
    emberl_cli_files:check_directory(filename:absname("")),
    [{maps:get(format, Options, html), none}].

target(#{expression := Texts}, [], none) -> prepared(emberl_program:expression(Texts));
target(#{expression := _}, _, _) -> usage("run", "an expression takes no arguments");
target(_Options, [Name], Rest) -> prepared(emberl_program:named(Name, Rest));
target(_Options, [], _) -> usage("run", "nothing to run");
target(_Options, [_ | _], _) -> usage("run", "arguments of what is run stand after --").

prepared({ok, Target}) -> Target;
prepared({error, Text}) -> failed(Text).

apply_options(Options) ->
    maps:merge(#{return => data, quiet => true, spawned => not maps:is_key(alone, Options)},
               maps:with([timeout, modules, timeline], Options)).

run_result({ok, _Value}) ->
    ?DONE;
run_result({signal, sigterm}) ->
    message("it was ended from outside: the profile is of what was done until then"),
    ?FAILED;
run_result({killed, Reason}) ->
    message(["the process of what was run was ended from outside: ",
             io_lib:format("~tp", [Reason])]),
    ?FAILED;
run_result({Class, Reason, Stack}) ->
    message(["what was run ended with ",
             erl_error:format_exception(Class, Reason, without_us(Stack))]),
    ?FAILED.

without_us(Stack) ->
    [Frame || Frame <- Stack, not lists:member(element(1, Frame), emberl_trace:own_modules())].

report(Profile, Files, Options) ->
    [message(["wrote ", File]) || File <- Files, not maps:is_key(quiet, Options)],
    maps:is_key(print, Options) andalso print(Profile).

print(Profile) ->
    Device = emberl_table:device(standard_error),
    io:format(standard_error, "~ts", [emberl_report:summary(Profile, top_defaults(#{}), Device)]).

%% ---- convert, merge, diff ------------------------------------------------------

convert(#{options := Options, operands := [Input, Name], rest := none}) ->
    Output = output(Name, Options),
    put_out(progress("converting", fun() -> write(load(Input), Output, Options) end));
convert(_) ->
    usage("convert", "a profile and an output are needed").

merge(#{options := #{output := Name} = Options, operands := [_ | _] = Inputs, rest := none}) ->
    Output = output(Name, Options),
    at_most_one_is_standard_input(Inputs, "merge"),
    put_out(progress("merging", fun() ->
        write(emberl_profile:merge([load(Input) || Input <- Inputs]), Output, Options) end));
merge(#{options := #{output := _}}) ->
    usage("merge", "no profiles are given");
merge(_) ->
    usage("merge", "where to? --output is needed").

diff(#{options := Options, operands := [Before, After] = Inputs, rest := none}) ->
    at_most_one_is_standard_input(Inputs, "diff"),
    Output = outputs("diff", Options),
    Diff = progress("comparing", fun() ->
        emberl_profile:diff(load(Before), load(After), maps:with([normalise], Options)) end),
    case Output of
        [] -> print_result(fun(Device) ->
                  emberl_report:summary(Diff, top_defaults(Options), Device) end);
        [To] -> put_out(progress("writing", fun() -> write(Diff, To, Options) end))
    end;
diff(_) ->
    usage("diff", "two profiles are needed").

%% What is printed instead has no format.
outputs(_Verb, #{output := Name} = Options) -> [output(Name, Options)];
outputs(Verb, #{format := _}) -> usage(Verb, "where to? --format is of what --output names");
outputs(_Verb, _Options) -> [].

at_most_one_is_standard_input(Inputs, Verb) ->
    length([Input || "-" = Input <- Inputs]) < 2
        orelse usage(Verb, "standard input is one profile").

%% What written/3 made, where it is not in a file yet.
put_out({standard_io, Data}) -> put_bytes(Data);
put_out(_File) -> ?DONE.

%% ---- query ---------------------------------------------------------------------

query(#{options := #{from := From} = Options, operands := [Directory], rest := none}) ->
    code:add_pathsa(lists:reverse(maps:get(path, Options, []))),
    Output = outputs("query", Options),
    Profile = progress("adding up", fun() ->
        queried(emberl:query(Directory, From, maps:get(to, Options, "now"), filter(Options))) end),
    case Output of
        [] -> print_result(fun(Device) ->
                  emberl_report:summary(Profile,
                                        top_defaults(maps:without([process, modules], Options)),
                                        Device) end);
        [To] -> put_out(progress("writing", fun() -> write(Profile, To, Options) end))
    end;
query(#{operands := [_], rest := none}) ->
    usage("query", "of what time? --from is needed");
query(_) ->
    usage("query", "one directory is needed").

filter(#{app := Name} = Options) ->
    Application = list_to_atom(Name),
    case application:load(Application) of
        {error, {Reason, _}} when Reason =/= already_loaded ->
            usage("query", ["there is no application ", Name,
                            " on the code path: --pa names its ebin"]);
        _ ->
            (filter(maps:remove(app, Options)))#{modules => {app, Application}}
    end;
filter(Options) ->
    (maps:with([process, modules], Options))#{details => true}.

queried({ok, Profile, #{skipped := Skipped}}) ->
    [message([File, " is left out: ", Text]) || {File, Text} <- Skipped],
    Profile;
queried({error, {bad_time, _Term, Text}}) ->
    usage("query", Text);
queried({error, {_Tag, _Term, Text}}) ->
    failed(Text).

%% ---- top, info -------------------------------------------------------------------

top(#{options := Options, operands := [Input], rest := none}) ->
    Profile = load(Input),
    print_result(fun(Device) ->
        emberl_report:functions(Profile, top_defaults(Options), Device) end);
top(_) ->
    usage("top", "one profile is needed").

top_defaults(Options) ->
    {ok, Defaults} = emberl_options:top(maps:with([count, sort, process, modules], Options)),
    Defaults.

info(#{operands := [Input], rest := none}) ->
    Profile = load(Input),
    print_result(fun(Device) -> emberl_report:details(Profile, Device) end);
info(_) ->
    usage("info", "one profile is needed").

print_result(Fun) ->
    try Fun(stdout()) of
        Text -> output(Text)
    catch
        error:{bad_option, Key, Text} -> failed([atom_to_list(Key), ": ", Text])
    end.

%% ---- what people see -------------------------------------------------------------

stdout() ->
    case string:to_integer(os:getenv("EMBERL_COLUMNS", "")) of
        {Width, ""} when Width > 0 -> emberl_table:terminal(Width);
        _ -> emberl_table:device(standard_io)
    end.

output(Text) ->
    put_bytes(unicode:characters_to_binary(Text)).

put_bytes(Bytes) ->
    ok = emberl_cli_files:put(Bytes),
    ?DONE.

message(Text) ->
    io:format(standard_error, "emberl: ~ts~n", [Text]).

-spec failed(unicode:chardata()) -> no_return().
failed(Text) -> throw({failed, Text}).

-spec usage(string(), unicode:chardata()) -> no_return().
usage(Verb, Text) -> throw({usage, Verb, Text}).

refusal({bad_option, Key, Text}) -> [atom_to_list(Key), ": ", Text];
refusal({bad_target, _, Text}) -> Text;
refusal(Reason) -> io_lib:format("~tp", [Reason]).

-define(PATIENCE, 1000).

%% What takes long says so, on a terminal.
progress(Text, Fun) ->
    Ticker = case os:getenv("EMBERL_TERMINAL", "") of
                 "" -> none;
                 _ -> spawn_link(fun() -> tick(Text, 1) end)
             end,
    try Fun()
    after stop_ticker(Ticker)
    end.

tick(Text, Seconds) ->
    receive
        {stop, From} ->
            Seconds > 1 andalso io:put_chars(standard_error, "\r\e[K"),
            From ! {self(), stopped}
    after ?PATIENCE ->
            io:format(standard_error, "\remberl: ~ts, ~b s", [Text, Seconds]),
            tick(Text, Seconds + 1)
    end.

stop_ticker(none) -> ok;
stop_ticker(Ticker) ->
    Ticker ! {stop, self()},
    receive {Ticker, stopped} -> ok end.
