%% SPDX-License-Identifier: Apache-2.0
%% @private
%% What is done with a finished profile: written to a file, shown in a viewer,
%% returned in the form the user asked for. All of it in a process of its own,
%% so that the profiled process neither waits for memory nor keeps it.
-module(emberl_output).

-export([results/3, check/1, probe/1, write/4]).
-export_type([call/0]).

%% A captured call: its profile, or why there is none, and what it returned where that
%% was asked for.
-type call() :: {emberl_profile:profile() | {error, emberl_options:refusal()},
                 {ok, term()} | {atom(), term(), list()} | unfinished | unknown}.

%% The directory can be made and written to. Nothing is left behind.
-spec check(emberl_options:options()) -> ok | {error, emberl_options:refusal()}.
check(#{writes := false}) ->
    ok;
check(#{output_directory := Directory} = Options) ->
    case filelib:ensure_path(Directory) of
        ok -> check_file(Options);
        {error, eexist} ->
            refuse(output_directory, "there is a file of that name, and no directory");
        {error, Reason} -> refuse(output_directory, file:format_error(Reason))
    end.

check_file(#{output_file := undefined, output_directory := Directory}) ->
    case file:read_file_info(Directory) of
        {ok, _} -> check_writable(Directory);
        {error, Reason} -> refuse(output_directory, file:format_error(Reason))
    end;
check_file(#{output_directory := Directory} = Options) ->
    File = file_name(Options, "", 1),
    case filelib:is_file(File) of
        true -> refuse(output_file, ["there is a file ", File, " already"]);
        false -> check_writable(Directory)
    end.

check_writable(Directory) ->
    case probe(Directory) of
        ok -> ok;
        {error, Text} -> refuse(output_directory, Text)
    end.

%% Files can be made in the directory. Nothing is left behind.
-spec probe(file:filename_all()) -> ok | {error, unicode:chardata()}.
probe(Directory) ->
    Probe = filename:join(Directory, probe_name()),
    case file:write_file(Probe, <<>>, [exclusive]) of
        ok -> file:delete(Probe), ok;
        {error, Reason} -> {error, [filename:absname(Directory), ": ", file:format_error(Reason)]}
    end.

probe_name() ->
    ".emberl-" ++ os:getpid() ++ "-" ++ integer_to_list(erlang:unique_integer([positive])).

refuse(Key, Text) ->
    {error, {bad_option, Key, unicode:characters_to_binary(Text)}}.

%% The results of the calls, in their order.
-dialyzer({no_return, results/3}). % the process that makes them exits with them
-spec results([call()], iodata(), emberl_options:options()) -> [term()].
results(Calls, Target, Options) ->
    Work = fun() ->
                   exit({done, [result(Call, N, Target, Options) || {N, Call} <- number(Calls)]})
           end,
    {Pid, Monitor} = spawn_opt(fun() -> process_flag(sensitive, true), Work() end, [monitor]),
    receive
        {'DOWN', Monitor, process, Pid, {done, Results}} -> Results;
        {'DOWN', Monitor, process, Pid, Reason} -> erlang:error({output_failed, Reason})
    end.

number(Calls) ->
    lists:zip(lists:seq(1, length(Calls)), Calls).

%% Where there is no profile, {error, Reason} stands for it and for what is made of it.
result({Profile, Value}, N, Target, #{return := Return} = Options) ->
    warn(Profile, Target),
    case Return of
        value -> write_if_asked(Profile, N, Target, Options), plain(Value);
        filename -> write(Profile, N, Target, Options);
        flamegraph -> formatted(Profile, Options);
        profile -> Profile;
        data -> #{result => Value, profile => Profile};
        all -> #{result => Value, profile => Profile, file => write(Profile, N, Target, Options)}
    end.

write_if_asked(_Profile, _N, _Target, #{writes := false}) -> none;
write_if_asked(Profile, N, Target, Options) -> write(Profile, N, Target, Options).

warn({error, Reason}, Target) ->
    logger:warning("emberl: there is no profile of ~ts: ~ts", [Target, reason(Reason)]);
warn(_Profile, _Target) ->
    ok.

reason({_Tag, _Term, Text}) -> Text;
reason(Reason) -> io_lib:format("~0tp", [Reason]).

plain({ok, Value}) -> Value;
plain(Other) -> Other.

formatted({error, _} = Missing, _Options) ->
    Missing;
formatted(Profile, #{output_format := Format, metric := Metric}) ->
    guarded(fun() -> emberl_profile:format(Profile, Format, #{metric => Metric}) end).

%% What fails for one call must not cost the others.
guarded(Fun) ->
    try Fun()
    catch error:Reason -> {error, emberl_options:refusal(format_failed, Reason, reason(Reason))}
    end.

%% ---- files ----

%% To a new file, whose name is returned. A name that is taken meanwhile is not overwritten:
%% the next number is tried.
-spec write(emberl_profile:profile() | {error, emberl_options:refusal()}, pos_integer(), iodata(),
            emberl_options:options()) ->
          binary() | {error, emberl_options:refusal()}.
write({error, _} = Missing, _N, _Target, _Options) ->
    Missing;
write(Profile, N, Target, #{output_format := Format, metric := Metric} = Options) ->
    File = unicode:characters_to_binary(file_name(Options, Target, N)),
    case guarded(fun() -> emberl_profile:write(Profile, Format, File, #{metric => Metric}) end) of
        ok -> announce(File, Options);
        {error, eexist} -> write(Profile, N + 1, Target, Options);
        {error, {format_failed, _, _}} = Error -> Error;
        {error, Reason} -> failed(File, Reason)
    end.

failed(File, Reason) ->
    Text = file:format_error(Reason),
    logger:error("emberl: cannot write ~ts: ~ts", [File, Text]),
    {error, emberl_options:refusal(write_failed, File, Text)}.

announce(File, #{quiet := Quiet} = Options) ->
    Quiet orelse io:format("Output filename: ~ts~n", [File]),
    open(File, Options),
    File.

file_name(#{output_directory := Directory, output_file := undefined} = Options, Target, N) ->
    Name = [timestamp(), "-", safe(Target), "-", integer_to_list(N), ".", extension(Options)],
    filename:join(Directory, lists:flatten(Name));
file_name(#{output_directory := Directory, output_file := Name} = Options, _Target, N) ->
    filename:join(Directory,
                  lists:flatten(numbered(unicode:characters_to_list(Name), N, extension(Options)))).

%% graph.html, graph-2.html, ...; the extension is added where it is missing
numbered(Name, N, Extension) ->
    Dotted = [$. | Extension],
    Root = case lists:suffix(Dotted, Name) of
               true -> lists:sublist(Name, length(Name) - length(Dotted));
               false -> Name
           end,
    [Root, [["-", integer_to_list(N)] || N > 1], Dotted].

extension(#{output_format := Format}) ->
    {Format, Extension} = lists:keyfind(Format, 1, emberl_nif:views()),
    binary_to_list(Extension).

timestamp() ->
    Text = calendar:system_time_to_rfc3339(erlang:system_time(millisecond),
                                           [{unit, millisecond}, {offset, "Z"}]),
    [C || C <- Text, C =/= $:, C =/= $-].

%% Letters, digits and a few signs; at most 100 of them.
safe(Target) ->
    Text = unicode:characters_to_list(Target),
    lists:sublist([safe_char(C) || C <- Text], 100).

safe_char(C) when C >= $a, C =< $z; C >= $A, C =< $Z; C >= $0, C =< $9; C =:= $_; C =:= $. -> C;
safe_char(_) -> $-.

%% ---- viewers ----

open(_File, #{open := none}) ->
    ok;
open(File, #{open := Viewer}) ->
    case find(Viewer) of
        false -> logger:warning("emberl: cannot open ~ts: no program ~ts is on the path",
                                [File, program(Viewer)]);
        Path -> start(Path, File)
    end.

find(Viewer) ->
    os:find_executable(program(Viewer)).

program(browser) ->
    case os:type() of
        {unix, darwin} -> "open";
        _ -> "xdg-open"
    end;
program(Viewer) when is_atom(Viewer) -> atom_to_list(Viewer);
program(Viewer) -> unicode:characters_to_list(Viewer).

%% The port's owner lives as long as the program, so that closing a port does
%% not end it; nobody waits for either.
start(Path, File) ->
    spawn(fun() ->
                  Options = [{args, [File]}, exit_status, stderr_to_stdout, binary, hide],
                  outlive(open_port({spawn_executable, Path}, Options))
          end),
    ok.

outlive(Port) ->
    receive
        {Port, {data, _}} -> outlive(Port);
        {Port, {exit_status, _}} -> ok
    end.
