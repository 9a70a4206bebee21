%% SPDX-License-Identifier: Apache-2.0
%% @private
%% Profiles that the command line reads and what it writes: files, or the standard
%% ones. What fails is thrown as {failed, Text}.
-module(emberl_cli_files).

-include_lib("kernel/include/file.hrl").

-export([load/1, formats/0, formats_of_comparisons/0, endings/1, output/2, check_new/2,
         check_directory/1, write/3, put/1]).
-export_type([output/0]).

-type output() :: {emberl_profile:format(), file:filename() | standard_io | none}.

-spec failed(unicode:chardata()) -> no_return().
failed(Text) -> throw({failed, Text}).

%% ---- profiles in -----------------------------------------------------------------

-spec load(file:filename()) -> emberl_profile:profile().
load("-") -> loaded(standard_input(), "standard input");
load(File) -> loaded(emberl_profile:load(File), File).

loaded({ok, Profile}, _Name) -> Profile;
loaded({error, {bad_profile, Text}}, Name) -> failed([Name, ": ", Text]);
loaded({error, Reason}, Name) -> failed([Name, ": ", file:format_error(Reason)]).

-define(CHUNK, 1 bsl 20).
-define(MAX_INPUT, 1 bsl 30).

standard_input() ->
    case file:open("/dev/stdin", [read, raw, binary]) of
        {ok, File} -> read(File, [], 0);
        {error, _} = Error -> Error
    end.

read(_File, _Chunks, Size) when Size > ?MAX_INPUT ->
    {error, {bad_profile, <<"too large">>}};
read(File, Chunks, Size) ->
    case file:read(File, ?CHUNK) of
        {ok, Chunk} -> read(File, [Chunk | Chunks], Size + byte_size(Chunk));
        eof -> emberl_profile:from_binary(iolist_to_binary(lists:reverse(Chunks)));
        {error, _} = Error -> Error
    end.

%% ---- files out -------------------------------------------------------------------

-spec formats() -> [emberl_profile:format()].
formats() ->
    [Format || {Format, _} <- emberl_nif:views(), Format =/= perf_symbols].

%% Those that have a place for both sides.
-spec formats_of_comparisons() -> [emberl_profile:format()].
formats_of_comparisons() -> [html, svg, brendan_gregg].

%% The format by the end of the file's name where none is given.
-spec output(file:filename(), map()) -> output().
output("-", #{format := Format}) -> {Format, standard_io};
output("-", _Options) -> failed("standard output does not tell the format: --format is needed");
output(Name, #{format := Format}) -> {Format, Name};
output(Name, _Options) ->
    Found = [{length(Ending), Format} || Format <- formats(), Ending <- endings(Format),
                                         ends_in(Name, Ending)],
    case lists:reverse(lists:sort(Found)) of
        [{_, Format} | _] -> {Format, Name};
        [] ->
            failed(["no format has files called ", filename:basename(Name), ": --format names one"])
    end.

ends_in(Name, Ending) ->
    filename:basename(Name) =:= Ending orelse lists:suffix([$. | Ending], Name).

%% Of the names of its files.
-spec endings(emberl_profile:format()) -> [string()].
endings(Format) ->
    {Format, Extension} = lists:keyfind(Format, 1, emberl_nif:views()),
    [binary_to_list(Extension) | others(Format)].

others(brendan_gregg) -> ["folded", "collapsed"];
others(html) -> ["htm"];
others(pprof) -> ["pprof"];
others(_) -> [].

%% The name of the file, or what put/1 takes. With `none' for a file, its name is made
%% of the time and of what was profiled.
-spec write(emberl_profile:profile(), output(), map()) ->
          file:filename_all() | {standard_io, iodata()}.
write(Profile, {Format, none}, Options) ->
    Given = (maps:with([metric], Options))#{output_format => Format, quiet => true},
    {ok, Accepted} = emberl_options:parse(apply, Given),
    #{target := Target} = emberl_profile:info(Profile),
    case emberl_output:write(Profile, 1, Target, Accepted) of
        {error, {_Tag, _Term, Text}} -> failed(Text);
        File -> File
    end;
write(Profile, {Format, standard_io}, Options) ->
    try {standard_io, emberl_profile:format(Profile, Format, drawn(Options))}
    catch error:{no_comparison, _} -> failed(no_comparison(Format))
    end;
write(Profile, {Format, File}, Options) ->
    case write_file(Profile, Format, File, Options) of
        ok -> File;
        {error, eexist} -> failed(exists(File));
        {error, {no_comparison, _}} -> failed(no_comparison(Format));
        {error, comparison} -> failed(no_comparison(Format));
        {error, Reason} -> failed([File, ": ", file:format_error(Reason)])
    end.

write_file(Profile, Format, File, #{force := true} = Options) ->
    Others = maps:remove(force, Options),
    case file:read_link_info(File) of
        {ok, #file_info{type = regular}} -> replace(Profile, Format, File, Others);
        {ok, _} -> write_into(Profile, Format, File, Others);
        {error, _} -> write_file(Profile, Format, File, Others)
    end;
write_file(Profile, ember, File, _Options) ->
    emberl_profile:save(Profile, File);
write_file(Profile, Format, File, Options) ->
    emberl_profile:write(Profile, Format, File, drawn(Options)).

%% Devices and links stay what they are.
write_into(Profile, Format, File, Options) ->
    {standard_io, Data} = write(Profile, {Format, standard_io}, Options),
    file:write_file(File, Data).

drawn(Options) ->
    maps:with([metric, width], Options).

%% What is there stays until the new one is whole. perf's two files name each other.
replace(Profile, perf, File, Options) ->
    [file:delete(Name) || Name <- [File, File ++ ".symbols"]],
    write_file(Profile, perf, File, Options);
replace(Profile, Format, File, Options) ->
    Temporary = File ++ ".emberl-" ++ os:getpid(),
    try write_file(Profile, Format, Temporary, Options) of
        ok -> file:rename(Temporary, File);
        {error, _} = Error -> Error
    after
        file:delete(Temporary)
    end.

exists(File) -> ["there is a file ", File, " already: --force overwrites it"].

no_comparison(Format) ->
    [atom_to_list(Format), " has no place for both sides of a comparison"].

%% Before long work. What is there stays, unless `force' is among the options.
-spec check_new(file:filename(), map()) -> true.
check_new(File, Options) ->
    case {maps:is_key(force, Options), file:read_link_info(File)} of
        {false, {ok, _}} -> failed(exists(File));
        {true, {ok, #file_info{type = Type}}} when Type =/= regular -> true; % written into
        _ -> check_directory(filename:dirname(File))
    end.

-spec check_directory(file:filename()) -> true.
check_directory(Directory) ->
    filelib:is_dir(Directory) orelse failed(["there is no directory ", Directory]),
    case emberl_output:probe(Directory) of
        ok -> true;
        {error, Text} -> failed(Text)
    end.

%% As they are, whatever the locale, and all of them: standard_io would tell nothing of
%% what could not be written.
-spec put(iodata()) -> ok.
put(Bytes) ->
    process_flag(trap_exit, true),
    Port = open_port({fd, 0, 1}, [out, binary]),
    try erlang:port_command(Port, Bytes) of
        true -> written(Port)
    catch
        error:badarg -> written(Port) % it has failed already
    end.

written(Port) ->
    case erlang:port_info(Port, queue_size) of
        {queue_size, 0} -> erlang:port_close(Port), ok;
        {queue_size, _} -> timer:sleep(1), written(Port);
        undefined -> receive {'EXIT', Port, Reason} -> not_written(Reason) end
    end.

-spec not_written(term()) -> no_return().
not_written(epipe) -> failed("standard output was closed");
not_written(Reason) -> failed(["standard output: ", file:format_error(Reason)]).
