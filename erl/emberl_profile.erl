%% SPDX-License-Identifier: Apache-2.0
%% @doc A profile: what {@link emberl:apply/2} and {@link emberl:capture/3}
%% measured. All times are in nanoseconds, words are machine words of heap.
%%
%% The times of a stack exclude each other and its callees': `own_ns' it ran
%% (the cost of tracing subtracted), `off_cpu_ns' it was scheduled out, `gc_ns'
%% its process was collected.
-module(emberl_profile).

-export([info/1, processes/1, functions/1, functions/2, stacks/1, format/2, format/3, write/3,
         write/4, merge/1]).
-export_type([profile/0, info/0, process/0, function_metrics/0, stack_metrics/0, format/0,
              metric/0]).

-type profile() :: emberl_nif:profile().
-type format() :: html | brendan_gregg | speedscope.
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
-type function_metrics() ::
        #{mfa := mfa(), calls := non_neg_integer(), own_ns := non_neg_integer(),
          off_cpu_ns := non_neg_integer(), gc_ns := non_neg_integer(), words := integer()}.
-type stack_metrics() ::
        #{process := pid() | binary(), stack := [mfa()], % root first
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
    emberl_nif:profile_format(Profile, Format, maps:get(metric, Options, own_time)).

%% @equiv write(Profile, Format, File, #{})
-spec write(profile(), format(), file:filename_all()) -> ok | {error, file:posix()}.
write(Profile, Format, File) ->
    write(Profile, Format, File, #{}).

%% @doc Writes an output format to a new file; an existing one is left alone
%% and gives `{error, eexist}'.
-spec write(profile(), format(), file:filename_all(), #{metric => metric()}) ->
          ok | {error, file:posix() | badarg | terminated | system_limit}.
write(Profile, Format, File, Options) ->
    file:write_file(File, format(Profile, Format, Options), [exclusive]).

%% @doc One profile with the sums of all: by process and stack.
-spec merge([profile(), ...]) -> profile().
merge([_ | _] = Profiles) ->
    emberl_nif:profile_merge(Profiles).
