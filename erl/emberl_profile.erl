%% SPDX-License-Identifier: Apache-2.0
%% @doc A profile: what {@link emberl:apply/2} and {@link emberl:capture/3}
%% measured. All times are in nanoseconds, words are machine words of heap.
%%
%% The times of a stack exclude each other and its callees': `own_ns' it ran
%% (the cost of tracing subtracted), `off_cpu_ns' it was scheduled out, `gc_ns'
%% its process was collected. What is subtracted is known to `uncertainty_ns', so
%% `own_ns' is true to as much either way; of functions that do little and are
%% called often it may be all of it.
%%
%% What is given in place of a profile fails with `{bad_profile, Term, Text}', an
%% unknown format or option with `{bad_option, Key, Text}'.
-module(emberl_profile).

-include_lib("kernel/include/file.hrl").

-export([info/1, processes/1, functions/1, functions/2, stacks/1, format/2, format/3, write/3,
         write/4, merge/1, filter/2, diff/2, diff/3, top/2, save/2, load/1, to_binary/1,
         from_binary/1]).
-export_type([profile/0, info/0, process/0, function_name/0, function_metrics/0, stack_metrics/0,
              function_change/0, stack_change/0, format/0, format_options/0, metric/0,
              diff_options/0, filter_options/0]).

-type profile() :: emberl_nif:profile().
-type format() :: html | svg | brendan_gregg | speedscope | callgrind | firefox | perf_script
                | chrome | pprof | perf | perf_symbols | ember.
-type metric() :: own_time | words | calls | binaries.
%% What a format with a single value shows; `own_time' is all three times, `binaries'
%% bytes of binaries outside the heap.
-type info() ::
        #{target := binary(),              % what was profiled
          otp_release := binary(),
          start_us := integer(),           % UTC, microseconds since the epoch
          duration_ns := non_neg_integer(),% wall time of the call; of a merge, their sum
          events := non_neg_integer(),     % seen by the profiler
          lost := non_neg_integer(),       % events lost on the node meanwhile
          complete := boolean(),           % it ended by itself, and nothing was lost
          outcome := returned | raised | exited | unfinished | recorded,
          cut_by := none | timeout | stopped | memory_limit | untraced | lost, % why not of all
          compensated_ns := non_neg_integer(), % tracing cost subtracted from own time
          raw_ns := non_neg_integer(),     % own time before that
          depth_cut := non_neg_integer(),  % calls deeper than 512 frames, see [deeper]
          calls := pos_integer(),          % captured calls in it
          stacks := non_neg_integer(),
          fallbacks := [stack | heap | clock | binaries | waiting | % measured in a less exact way
                        no_times | no_words | no_calls | no_binaries], % or not asked for
          doubtful := boolean(),             % the cost of tracing varied: see uncertainty_ns
          before => map(),                   % of a comparison: the same of the profile before,
          normalise => none | calls | time,  % how its numbers were made comparable,
          scale => float(),                  % and what they were multiplied by
          sampled := none |                  % or it is estimated from windows
                     #{windows := pos_integer(), window_ns := non_neg_integer(),
                       span_ns := non_neg_integer(), cost_ns := non_neg_integer(),
                       schedulers := pos_integer(), budget := float(),
                       seen := non_neg_integer(), present := non_neg_integer()},
          timeline := none | complete | {cut, Ns :: pos_integer()}}. % cut: kept up to there
-type process() ::
        #{pid := pid() | binary(),
          name := binary() | undefined,    % registered name
          label := binary() | undefined,   % label or initial call
          ancestors := [binary()],         % supervisors and so on, the nearest first
          parent := pid() | binary() | undefined,
          exited := boolean()}.
-type function_name() :: {module() | binary(), atom() | binary(), arity()}.
%% Binaries where a profile was loaded and the node has no such atom. The frame
%% {'', '[deeper]', 0} stands for all beyond the 512th: below it each function stands
%% once, whatever called it; {'', '[unknown]', 0} for calls whose events were lost.
%% What was not asked for (see `metrics' of {@link emberl:sample/1}) has no key.
-type function_metrics() ::
        #{mfa := function_name(), calls => non_neg_integer(), own_ns => non_neg_integer(),
          off_cpu_ns => non_neg_integer(),
          waiting_ns => non_neg_integer(), % the latter of the former
          gc_ns => non_neg_integer(), words => integer(), binary_bytes => non_neg_integer(),
          uncertainty_ns => non_neg_integer(), % of own_ns, either way
          total_ns => non_neg_integer(), % all three times, of all it called too; where
          total_words => integer()}.     % it is in a stack twice, counted once
-type stack_metrics() ::
        #{process := pid() | binary(), stack := [function_name()], % root first
          calls => non_neg_integer(), own_ns => non_neg_integer(),
          off_cpu_ns => non_neg_integer(),
          waiting_ns => non_neg_integer(), % the latter of the former
          gc_ns => non_neg_integer(), words => integer(), binary_bytes => non_neg_integer(),
          uncertainty_ns => non_neg_integer()}.

-type metrics() ::
        #{calls => integer(), own_ns => integer(), off_cpu_ns => integer(), waiting_ns => integer(),
          gc_ns => integer(), words => integer(), binary_bytes => integer(),
          uncertainty_ns => non_neg_integer()}.
-type sums() ::
        #{calls => integer(), own_ns => integer(), off_cpu_ns => integer(), waiting_ns => integer(),
          gc_ns => integer(), words => integer(), binary_bytes => integer(),
          uncertainty_ns => non_neg_integer(), total_ns => integer(),
          total_words => integer()}.
-type function_change() ::
        #{mfa := function_name(), before := sums(), 'after' := sums(), delta := sums()}.
-type stack_change() ::
        #{process := binary(), stack := [function_name()],
          before := metrics(), 'after' := metrics(), delta := metrics()}.
%% Of a comparison; `delta' is after less before.
-type format_options() :: #{metric => metric(), width => 'after' | before}.
-type filter_options() :: #{process => all | pid() | atom() | unicode:chardata(),
                            modules => all | [module()] | {app, atom()}}
                        | [{atom(), term()}].
-type diff_options() :: #{normalise => calls | time | none}.

%% The library takes nothing but profiles.
-define(OF_PROFILE(Given, Call), try Call catch error:badarg -> bad_profile(Given) end).

%% @doc What was profiled, how long it took, and how far the numbers go.
%%
%% <dl>
%% <dt>`target', `otp_release', `calls'</dt><dd>What was profiled, on which release, and
%%   how many captured calls are in it.</dd>
%% <dt>`start_us', `duration_ns'</dt><dd>When the call began (UTC, microseconds since
%%   1970) and its wall time; of a merge the earliest begin and the sum.</dd>
%% <dt>`outcome'</dt><dd>The call has `returned', `raised', its process has `exited', or
%%   it is `unfinished'; or processes were `recorded' for a while.</dd>
%% <dt>`complete'</dt><dd>It returned or raised, or was recorded to the end of its time,
%%   nothing was lost, and it was traced to its end.</dd>
%% <dt>`cut_by'</dt><dd>Why it is not of all that was asked for: `timeout' and
%%   `memory_limit' are the options that ended it, which may be raised; `stopped' by
%%   {@link emberl:stop/0}, {@link emberl:stop/1} or the end of who started it;
%%   `untraced': its process has made itself sensitive, or another tracer has taken away
%%   what we had set (before OTP 27.1); `lost': the event of its end was lost; or
%%   `none'.</dd>
%% <dt>`events', `lost'</dt><dd>Events seen for this profile, and lost on the node
%%   meanwhile: then calls, times and words are too low. What was called while events
%%   of a process were lost, and the time it took, are below `[unknown]'.</dd>
%% <dt>`depth_cut'</dt><dd>Calls deeper than 512 frames; they are below `[deeper]'.</dd>
%% <dt>`raw_ns', `compensated_ns', `doubtful'</dt><dd>Own time of all stacks before the
%%   cost of tracing was subtracted, and how much that was; `doubtful' when the cost
%%   varied.</dd>
%% <dt>`stacks'</dt><dd>Distinct stacks.</dd>
%% <dt>`fallbacks'</dt><dd>What was measured in a less exact way: `stack', `heap' (words)
%%   and `clock'; `binaries': they are not counted; `waiting': it is not told from
%%   preempted, all of `off_cpu_ns' is of either kind; `no_times', `no_words', `no_calls'
%%   and `no_binaries': the sampler was not asked for them.</dd>
%% <dt>`sampled'</dt><dd>Of a sampler's profile, whose numbers are estimates for all the
%%   time of `span_ns' (where calls are sampled, and `outcome' is not `recorded': of all calls
%%   together, and what follows is of calls instead of windows and processes): windows and
%%   their length in all; what they have cost, of one scheduler's time; the number of
%%   schedulers; the budget, as a share of all schedulers' time; processes recorded and
%%   processes there were, added up over the windows. A stack's `uncertainty_ns' has one
%%   standard error of the estimate in it.</dd>
%% <dt>`timeline'</dt><dd>Whether it has one, and up to when.</dd>
%% <dt>`before', `normalise', `scale'</dt><dd>Of a comparison: the same of the other
%%   side, how that was made comparable, and what its numbers were multiplied by.</dd>
%% </dl>
-spec info(profile()) -> info().
info(Profile) ->
    ?OF_PROFILE(Profile, emberl_nif:profile_info(Profile)).

%% @doc The processes that took part, in the order in which they joined. `parent' is the
%% one that spawned it, where it took part too; `exited': it died meanwhile. `ancestors' has
%% the names or pids of those above a process that `proc_lib' has started. A pid that is
%% used again stands for two processes.
-spec processes(profile()) -> [process()].
processes(Profile) ->
    ?OF_PROFILE(Profile, emberl_nif:profile_processes(Profile)).

%% @doc One row a function, over all processes; in no special order. Of a
%% comparison, the functions of both sides.
-spec functions(profile()) -> [function_metrics()] | [function_change()].
functions(Profile) ->
    ?OF_PROFILE(Profile, emberl_nif:profile_functions(Profile, all)).

%% @doc One row a function, of one process: a pid, or its text as {@link processes/1}
%% gives it. An unknown one has none.
-spec functions(profile(), pid() | binary()) -> [function_metrics()] | [function_change()].
functions(Profile, Process) ->
    ?OF_PROFILE(Profile, emberl_nif:profile_functions(Profile, Process)).

%% @doc One row a stack of a process. The empty stack is what the process did
%% outside any function we saw. Of a comparison, the stacks of both sides.
-spec stacks(profile()) -> [stack_metrics()] | [stack_change()].
stacks(Profile) ->
    ?OF_PROFILE(Profile, emberl_nif:profile_stacks(Profile)).

%% @equiv format(Profile, Format, #{})
-spec format(profile(), format()) -> iodata().
format(Profile, Format) ->
    format(Profile, Format, #{}).

%% @doc The profile in an output format, as {@link write/4} writes it. `perf_symbols' is
%% the second file of `perf', which `write' makes by itself. Names in `brendan_gregg'
%% have `:' for `;' and `_' for a blank, since these separate there. Option `metric'
%% (default `own_time'): what a format with a single value shows, and html shows first.
%% Option `width' (default `after'): the side of a comparison that frames are as wide as.
%%
%% A comparison can be had as `html', `svg' and `brendan_gregg' (with two numbers a
%% line, as difffolded.pl writes them); others fail with `{no_comparison, Format}'.
-spec format(profile(), format(), format_options()) -> iodata().
format(Profile, Format, Options) ->
    format(Profile, Format, Options, undefined).

format(Profile, Format, Options, Symbols) ->
    case emberl_options:format(Format, Options) of
        {ok, #{metric := Metric, width := Width}} ->
            ?OF_PROFILE(Profile,
                        emberl_nif:profile_format(
                          Profile, Format, shown(Metric, Profile, emberl_options:to_map(Options)),
                          Width, Symbols));
        {error, Refusal} ->
            erlang:error(Refusal)
    end.

%% Where it was not asked for when the profile was made: another one, unless it is now.
shown(Metric, Profile, Options) ->
    Metrics = [own_time, words, calls, binaries],
    case [M || M <- [Metric | Metrics], emberl_report:has(M, Profile)] of
        [Metric | _] -> Metric;
        [Other | _] when not is_map_key(metric, Options) -> Other;
        _ ->
            erlang:error({bad_option, metric, <<"it was not asked for when the profile was made">>})
    end.

%% {error, {no_comparison, Format}} where the format has but one side.
formatted(Profile, Format, Options, Symbols) ->
    try
        {ok, format(Profile, Format, Options, Symbols)}
    catch
        error:{no_comparison, Format} -> {error, {no_comparison, Format}}
    end.

%% @equiv write(Profile, Format, File, #{})
-spec write(profile(), format(), file:filename_all()) ->
          ok | {error, file:posix() | badarg | terminated | system_limit |
                       {no_comparison, format()}}.
write(Profile, Format, File) ->
    write(Profile, Format, File, #{}).

%% @doc Writes an output format to a new file; an existing one is left alone
%% and gives `{error, eexist}'. The file is there when it is whole: nothing is left
%% where the disk is full.
%%
%% Format `perf' makes two files: perf finds all in the first, hotspot looks for
%% names in the second, which is called the same with `.symbols' at the end and
%% has to stay where it is. perf shows 127 frames of a stack; `--max-stack' more.
-spec write(profile(), format(), file:filename_all(), format_options()) ->
          ok | {error, file:posix() | badarg | terminated | system_limit |
                       {no_comparison, format()}}.
write(Profile, perf, File, Options) ->
    Symbols = symbols_file(File),
    case write_new(Symbols, formatted(Profile, perf_symbols, Options, undefined)) of
        ok -> write_perf(Profile, File, Symbols, Options);
        {error, {no_comparison, _}} -> {error, {no_comparison, perf}};
        {error, _} = Error -> Error
    end;
write(Profile, Format, File, Options) ->
    write_new(File, formatted(Profile, Format, Options, undefined)).

write_new(File, {ok, Data}) -> write_whole(File, Data, []);
write_new(_File, {error, _} = Error) -> Error.

write_perf(Profile, File, Symbols, Options) ->
    Path = path_text(filename:absname(Symbols)),
    case write_new(File, formatted(Profile, perf, Options, Path)) of
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

%% @doc One profile with the sums of all: by process and stack. Processes of the same
%% pid and name are one, in whichever node they were. Where targets differ, the `target'
%% of {@link info/1} tells of them all. Comparisons cannot be merged.
-spec merge([profile(), ...]) -> profile().
merge(Profiles) ->
    ?OF_PROFILE(Profiles, merge_some(Profiles)).

merge_some([]) -> erlang:error(badarg);
merge_some(Profiles) ->
    Merged = emberl_nif:profile_merge(Profiles),
    merged_target(Merged, lists:usort([maps:get(target, info(Profile)) || Profile <- Profiles])).

merged_target(Merged, [_Target]) ->
    Merged;
merged_target(Merged, Targets) ->
    Text = unicode:characters_to_binary(["merge of ", lists:join("; ", Targets)]),
    #{otp_release := Release} = info(Merged),
    ok = emberl_nif:profile_annotate(Merged, Text, Release, []),
    Merged.

%% @doc A part of a profile: of the processes with this pid, pid's text, registered name
%% or label (option `process'), and of these `modules': a list or `{app, Name}'. Time and
%% words of other modules' functions become their callers'. What {@link info/1} tells is
%% of the whole still, but for its stacks. A timeline is left out. Fails with `{bad_option,
%% Key, Text}'.
-spec filter(profile(), filter_options()) -> profile().
filter(Profile, Given) ->
    case emberl_options:filter(Given) of
        {ok, #{process := Process, modules := Modules}} ->
            Indices = process_indices(Process, Profile),
            ?OF_PROFILE(Profile, emberl_nif:profile_filter(Profile, Indices, texts(Modules)));
        {error, Refusal} -> erlang:error(Refusal)
    end.

texts(all) -> all;
texts(Modules) -> [atom_to_binary(Module) || Module <- Modules].

process_indices(all, _Profile) ->
    all;
process_indices(Process, Profile) ->
    Processes = processes(Profile),
    [Index || {Index, Row} <- lists:zip(lists:seq(0, length(Processes) - 1), Processes),
              is_process(process_text(Process), Row)].

is_process(Text, #{pid := Pid, name := Name, label := Label}) ->
    lists:member(Text, [process_text(Pid), Name, Label]).

process_text(Pid) when is_pid(Pid) -> list_to_binary(pid_to_list(Pid));
process_text(Name) when is_atom(Name) -> atom_to_binary(Name);
process_text(Text) -> unicode:characters_to_binary(Text).

%% @equiv diff(Before, After, #{})
-spec diff(profile(), profile()) -> profile().
diff(Before, After) ->
    diff(Before, After, #{}).

%% @doc A comparison of two profiles: a profile with two sides, for {@link
%% functions/1}, {@link stacks/1}, {@link format/3} and {@link emberl:top/2}.
%%
%% It has the stacks of both; those that are new have zeros before, those that
%% vanished have zeros after. Processes are put together by what they do: those that
%% made the captured calls are `<<"caller">>', those spawned within are
%% `<<"spawned">>' with the same name, or label where they have none.
%%
%% Option `normalise': `calls' (default) multiplies the numbers before so that both
%% sides have as many captured calls, `time' so that both have as much time in all
%% (own, off-CPU and GC time of all processes), `none' leaves them. Neither may be a
%% comparison. A comparison is not saved; the two profiles can be.
-spec diff(profile(), profile(), diff_options()) -> profile().
diff(Before, After, Given) ->
    case emberl_options:diff(Given) of
        {ok, #{normalise := Normalise}} ->
            ?OF_PROFILE({Before, After}, emberl_nif:profile_diff(Before, After, Normalise));
        {error, Refusal} -> erlang:error(Refusal)
    end.

%% @doc The functions that matter most, as {@link emberl:top/2} shows them.
-spec top(profile(), pos_integer() | emberl:top_options()) ->
          [function_metrics()] | [function_change()].
top(Profile, Given) ->
    case emberl_options:top(Given) of
        {ok, Options} -> emberl_report:top(Profile, Options);
        {error, Refusal} -> erlang:error(Refusal)
    end.

-spec bad_profile(term()) -> no_return().
bad_profile(Given) ->
    erlang:error({bad_profile, Given,
                  <<"a profile is expected; to merge, a list of at least one; to "
                    "merge or compare, none that is a comparison">>}).

%% ---- files ----

-define(MAX_FILE, (1 bsl 30)).

%% @doc Writes the profile itself, with all that is in it, to a new file, for
%% {@link load/1}; its name usually ends in `.ember'. The file is there when it
%% is whole. An existing one is left alone and gives `{error, eexist}'.
-spec save(profile(), file:filename_all()) ->
          ok | {error, comparison | efbig | file:posix() | badarg | terminated | system_limit}.
save(Profile, File) ->
    case to_binary(Profile) of
        {ok, Binary} -> write_whole(File, Binary, [sync]);
        {error, _} = Error -> Error
    end.

write_whole(File, Data, Modes) ->
    Temporary = temporary_name(File),
    try
        case file:write_file(Temporary, Data, [exclusive | Modes]) of
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
%% `efbig': more stacks than a file may hold, 2^24, or a timeline of more than
%% 128 MiB. A comparison is refused: save
%% the two profiles.
-spec to_binary(profile()) -> {ok, binary()} | {error, efbig | comparison}.
to_binary(Profile) ->
    ?OF_PROFILE(Profile, emberl_nif:profile_encode(Profile)).

%% @doc The profile in a binary of {@link to_binary/1}; see {@link load/1}.
-spec from_binary(binary()) -> {ok, profile()} | {error, {bad_profile, binary()} | enomem}.
from_binary(Binary) when is_binary(Binary) ->
    emberl_nif:profile_decode(Binary);
from_binary(Given) ->
    erlang:error({bad_profile, Given, <<"a binary is expected, of to_binary/1">>}).
