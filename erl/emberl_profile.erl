%% SPDX-License-Identifier: Apache-2.0
%% @doc A profile: what {@link emberl:apply/2} and {@link emberl:capture/3}
%% measured. All times are in nanoseconds, words are machine words of heap.
%%
%% The times of a stack exclude each other and its callees': `own_ns' it ran
%% (the cost of tracing subtracted), `off_cpu_ns' it was scheduled out, `gc_ns'
%% its process was collected.
-module(emberl_profile).

-include_lib("kernel/include/file.hrl").

-export([info/1, processes/1, functions/1, functions/2, stacks/1, format/2, format/3, write/3,
         write/4, merge/1, save/2, load/1, to_binary/1, from_binary/1]).
-export_type([profile/0, info/0, process/0, function_name/0, function_metrics/0, stack_metrics/0,
              format/0, metric/0]).

-type profile() :: emberl_nif:profile().
-type format() :: html | svg | brendan_gregg | speedscope | callgrind | firefox | perf_script | chrome | pprof |
                  perf | perf_symbols | ember.
-type metric() :: own_time | words | calls.
%% What a format with a single value shows; `own_time' is all three times.
-type info() ::
        #{target := binary(),              % what was profiled
          otp_release := binary(),
          start_us := integer(),           % UTC, microseconds since the epoch
          duration_ns := non_neg_integer(),% wall time of the call; of a merge, their sum
          events := non_neg_integer(),     % seen by the profiler
          lost := non_neg_integer(),       % events lost on the node meanwhile
          complete := boolean(),           % it ended by itself, and nothing was lost
          outcome := returned | raised | exited | unfinished,
          compensated_ns := non_neg_integer(), % tracing cost subtracted from own time
          raw_ns := non_neg_integer(),     % own time before that
          depth_cut := non_neg_integer(),  % calls below the depth limit of stacks
          calls := pos_integer(),          % captured calls in it
          stacks := non_neg_integer(),
          fallbacks := [stack | heap | clock]}. % measured in a less exact way
-type process() ::
        #{pid := pid() | binary(),
          name := binary() | undefined,    % registered name
          label := binary() | undefined,   % label or initial call
          parent := pid() | binary() | undefined,
          exited := boolean()}.
-type function_name() :: {module() | binary(), atom() | binary(), arity()}.
%% Binaries where a profile was loaded and the node has no such atom.
-type function_metrics() ::
        #{mfa := function_name(), calls := non_neg_integer(), own_ns := non_neg_integer(),
          off_cpu_ns := non_neg_integer(), gc_ns := non_neg_integer(), words := integer()}.
-type stack_metrics() ::
        #{process := pid() | binary(), stack := [function_name()], % root first
          calls := non_neg_integer(), own_ns := non_neg_integer(),
          off_cpu_ns := non_neg_integer(), gc_ns := non_neg_integer(), words := integer()}.

%% @doc What was profiled, how long it took, and how far the numbers go.
-spec info(profile()) -> info().
info(Profile) ->
    emberl_nif:profile_info(Profile).

%% @doc The processes that took part, in the order in which they joined.
-spec processes(profile()) -> [process()].
processes(Profile) ->
    emberl_nif:profile_processes(Profile).

%% @doc One row a function, over all processes; in no special order.
-spec functions(profile()) -> [function_metrics()].
functions(Profile) ->
    emberl_nif:profile_functions(Profile, all).

%% @doc One row a function, of one process.
-spec functions(profile(), pid() | binary()) -> [function_metrics()].
functions(Profile, Process) ->
    emberl_nif:profile_functions(Profile, Process).

%% @doc One row a stack of a process. The empty stack is what the process did
%% outside any function we saw.
-spec stacks(profile()) -> [stack_metrics()].
stacks(Profile) ->
    emberl_nif:profile_stacks(Profile).

%% @equiv format(Profile, Format, #{})
-spec format(profile(), format()) -> iodata().
format(Profile, Format) ->
    format(Profile, Format, #{}).

%% @doc The profile in an output format. Option `metric' (default `own_time'):
%% what a format with a single value shows, and html shows first.
-spec format(profile(), format(), #{metric => metric()}) -> iodata().
format(Profile, Format, Options) ->
    emberl_nif:profile_format(Profile, Format, metric(Options), undefined).

metric(Options) ->
    maps:get(metric, Options, own_time).

%% @equiv write(Profile, Format, File, #{})
-spec write(profile(), format(), file:filename_all()) -> ok | {error, file:posix()}.
write(Profile, Format, File) ->
    write(Profile, Format, File, #{}).

%% @doc Writes an output format to a new file; an existing one is left alone
%% and gives `{error, eexist}'.
%%
%% Format `perf' makes two files: perf finds all in the first, hotspot looks for
%% names in the second, which is called the same with `.symbols' at the end and
%% has to stay where it is. perf shows 127 frames of a stack; `--max-stack' more.
-spec write(profile(), format(), file:filename_all(), #{metric => metric()}) ->
          ok | {error, file:posix() | badarg | terminated | system_limit}.
write(Profile, perf, File, Options) ->
    Symbols = symbols_file(File),
    case file:write_file(Symbols, format(Profile, perf_symbols, Options), [exclusive]) of
        ok -> write_perf(Profile, File, Symbols, Options);
        {error, _} = Error -> Error
    end;
write(Profile, Format, File, Options) ->
    file:write_file(File, format(Profile, Format, Options), [exclusive]).

write_perf(Profile, File, Symbols, Options) ->
    Path = path_text(filename:absname(Symbols)),
    Data = emberl_nif:profile_format(Profile, perf, metric(Options), Path),
    case file:write_file(File, Data, [exclusive]) of
        ok ->
            ok;
        {error, _} = Error ->
            file:delete(Symbols),
            Error
    end.

symbols_file(File) when is_binary(File) -> <<File/binary, ".symbols">>;
symbols_file(File) -> filename:flatten([File, ".symbols"]).

path_text(Path) when is_binary(Path) -> Path;
path_text(Path) -> unicode:characters_to_binary(Path, unicode, file:native_name_encoding()).

%% @doc One profile with the sums of all: by process and stack.
-spec merge([profile(), ...]) -> profile().
merge([_ | _] = Profiles) ->
    emberl_nif:profile_merge(Profiles).

%% ---- files ----

-define(MAX_FILE, (1 bsl 30)).

%% @doc Writes the profile itself, with all that is in it, to a new file, for
%% {@link load/1}; its name usually ends in `.ember'. The file is there when it
%% is whole. An existing one is left alone and gives `{error, eexist}'.
-spec save(profile(), file:filename_all()) ->
          ok | {error, file:posix() | badarg | terminated | system_limit}.
save(Profile, File) ->
    case to_binary(Profile) of
        {ok, Binary} -> save_binary(Binary, File, temporary_name(File));
        {error, _} = Error -> Error
    end.

save_binary(Binary, File, Temporary) ->
    try
        case file:write_file(Temporary, Binary, [exclusive, sync]) of
            ok -> publish(Temporary, File);
            {error, _} = Error -> Error
        end
    after
        file:delete(Temporary)
    end.

%% A link fails where the name is taken. File systems without links have to do
%% with a look first.
publish(Temporary, File) ->
    case file:make_link(Temporary, File) of
        ok -> ok;
        {error, eexist} = Error -> Error;
        {error, _} -> rename_unless_there(Temporary, File, file:read_link_info(File))
    end.

rename_unless_there(Temporary, File, {error, enoent}) -> file:rename(Temporary, File);
rename_unless_there(_Temporary, _File, {error, _} = Error) -> Error;
rename_unless_there(_Temporary, _File, {ok, _}) -> {error, eexist}.

%% In the same directory, so that it is on the same file system.
temporary_name(File) ->
    Unique = integer_to_list(erlang:unique_integer([positive])),
    filename:join(filename:dirname(File), ".emberl-" ++ os:getpid() ++ "-" ++ Unique ++ ".tmp").

%% @doc Reads a file of {@link save/2}. It may come from anywhere: a file that
%% is damaged is refused with a text that tells where. No atom is made for it:
%% modules and functions that this node has no atoms for are named by binaries,
%% and so are all processes.
-spec load(file:filename_all()) ->
          {ok, profile()} |
          {error, {bad_profile, binary()} | file:posix() | badarg | terminated | system_limit}.
load(File) ->
    case file:read_file_info(File) of
        {ok, #file_info{type = regular, size = Size}} when Size =< ?MAX_FILE -> load_file(File);
        {ok, #file_info{type = regular}} -> {error, {bad_profile, <<"the file is too large">>}};
        {ok, #file_info{type = directory}} -> {error, eisdir};
        {ok, _} -> {error, {bad_profile, <<"not a regular file">>}};
        {error, _} = Error -> Error
    end.

load_file(File) ->
    case file:read_file(File) of
        {ok, Binary} -> from_binary(Binary);
        {error, _} = Error -> Error
    end.

%% @doc What {@link save/2} writes: to keep or send it by other means.
%% `efbig': more stacks than a file may hold, 2^24.
-spec to_binary(profile()) -> {ok, binary()} | {error, efbig}.
to_binary(Profile) ->
    emberl_nif:profile_encode(Profile).

%% @doc The profile in a binary of {@link to_binary/1}; see {@link load/1}.
-spec from_binary(binary()) -> {ok, profile()} | {error, {bad_profile, binary()} | enomem}.
from_binary(Binary) ->
    emberl_nif:profile_decode(Binary).
