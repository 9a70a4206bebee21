%% SPDX-License-Identifier: Apache-2.0
%% @private
%% What is done with a finished profile: written to a file, shown in a viewer,
%% returned in the form the user asked for. All of it in a process of its own,
%% so that the profiled process neither waits for memory nor keeps it.
-module(emberl_output).

-export([results/3, check/1]).
-export_type([call/0]).

%% A captured call: its profile, and what it returned where that was asked for.
-type call() :: {emberl_profile:profile(), {ok, term()} | {atom(), term(), list()} | unfinished | unknown}.

%% The directory can be made and written to. Nothing is left behind.
-spec check(emberl_options:options()) -> ok | {error, emberl_options:refusal()}.
check(#{return := Return}) when Return =:= flamegraph; Return =:= profile ->
    ok;
check(#{output_directory := Directory} = Options) ->
    case filelib:ensure_path(Directory) of
        ok -> check_file(Options);
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
    Probe = filename:join(Directory, probe_name()),
    case file:write_file(Probe, <<>>, [exclusive]) of
        ok -> file:delete(Probe);
        {error, Reason} -> refuse(output_directory, file:format_error(Reason))
    end.

probe_name() ->
    ".emberl-" ++ os:getpid() ++ "-" ++ integer_to_list(erlang:unique_integer([positive])).

refuse(Key, Text) ->
    {error, {bad_option, Key, unicode:characters_to_binary(Text)}}.

%% The results of the calls, in their order.
-dialyzer({no_return, results/3}). % the process that makes them exits with them
-spec results([call()], iodata(), emberl_options:options()) -> [term()].
results(Calls, Target, Options) ->
    Work = fun() -> exit({done, [result(Call, N, Target, Options) || {N, Call} <- number(Calls)]}) end,
    {Pid, Monitor} = spawn_opt(fun() -> process_flag(sensitive, true), Work() end, [monitor]),
    receive
        {'DOWN', Monitor, process, Pid, {done, Results}} -> Results;
        {'DOWN', Monitor, process, Pid, Reason} -> erlang:error({output_failed, Reason})
    end.

number(Calls) ->
    lists:zip(lists:seq(1, length(Calls)), Calls).

result({out_of_memory, _Value}, _N, _Target, _Options) ->
    {error, out_of_memory};
result({Profile, _Value}, _N, _Target, #{return := profile}) ->
    Profile;
result({Profile, _Value}, _N, _Target, #{return := flamegraph} = Options) ->
    formatted(Profile, Options);
result({Profile, Value}, N, Target, #{return := Return} = Options) ->
    File = write(Profile, N, Target, Options),
    case Return of
        filename -> File;
        value -> plain(Value);
        all -> #{result => Value, profile => Profile, file => File}
    end.

plain({ok, Value}) -> Value;
plain(Other) -> Other.

formatted(Profile, #{output_format := Format, metric := Metric}) ->
    emberl_profile:format(Profile, Format, #{metric => Metric}).

%% ---- files ----

%% A name that is taken meanwhile is not overwritten: the next number is tried.
write(Profile, N, Target, #{output_format := Format, metric := Metric} = Options) ->
    File = unicode:characters_to_binary(file_name(Options, Target, N)),
    case emberl_profile:write(Profile, Format, File, #{metric => Metric}) of
        ok -> announce(File, Options);
        {error, eexist} -> write(Profile, N + 1, Target, Options);
        {error, Reason} -> failed(File, Reason)
    end.

failed(File, Reason) ->
    logger:error("emberl: cannot write ~ts: ~ts", [File, file:format_error(Reason)]),
    {error, Reason}.

announce(File, #{quiet := Quiet} = Options) ->
    Quiet orelse io:format("Output filename: ~ts~n", [File]),
    open(File, Options),
    File.

file_name(#{output_directory := Directory, output_file := undefined} = Options, Target, N) ->
    Name = [timestamp(), "-", safe(Target), "-", integer_to_list(N), ".", extension(Options)],
    filename:join(Directory, lists:flatten(Name));
file_name(#{output_directory := Directory, output_file := Name} = Options, _Target, N) ->
    filename:join(Directory, lists:flatten(numbered(unicode:characters_to_list(Name), N, extension(Options)))).

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
