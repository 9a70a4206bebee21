%% SPDX-License-Identifier: Apache-2.0
%% @doc Exact call-stack profiles of running Erlang and Elixir systems: time,
%% calls and heap words of every stack.
%%
%% ```
%% 1> emberl:apply(fun() -> lists:sort(L) end).
%% 2> emberl:capture({my_server, handle_call, 3}, 10).
%% '''
%%
%% <h2>Options</h2>
%% A map, or a proplist with the same keys.
%% <dl>
%% <dt>`return'</dt><dd>`value' (default of apply), `filename' (default of
%%   capture), `flamegraph' (iodata of the format, no file), `profile' (see
%%   {@link emberl_profile}, no file), `data' (a map with `result' and `profile', no
%%   file) or `all' (the same, and `file').</dd>
%% <dt>`output_format'</dt><dd>`html' (default) or another
%%     {@link emberl_profile:format()}.</dd>
%% <dt>`output_directory'</dt><dd>Default `"."'; made when missing.</dd>
%% <dt>`output_file'</dt><dd>A base name; default made from the UTC time, the
%%   target and a number. A file that exists is never overwritten.</dd>
%% <dt>`open'</dt><dd>`browser', `speedscope', `hotspot' or a program, started
%%   with the file and not waited for.</dd>
%% <dt>`metric'</dt><dd>What a format with one value shows: `own_time' (default),
%%   `words', `calls' or `binaries'.</dd>
%% <dt>`modules'</dt><dd>What is seen: `all' (default), a list of modules, or
%%   `{app, Name}'. Time and words of others are their visible callers'.</dd>
%% <dt>`spawned'</dt><dd>Follow processes spawned inside (default `true').</dd>
%% <dt>`merge'</dt><dd>capture: one result for all calls (default `false').</dd>
%% <dt>`timeout'</dt><dd>Milliseconds or `infinity', from the start on. Default
%%   60000 for capture, `infinity' for apply (whose function is not stopped by it,
%%   only its recording).</dd>
%% <dt>`memory_limit'</dt><dd>Bytes for call trees, or `infinity'; default 256
%%   MiB. Beyond it the result so far is given.</dd>
%% <dt>`fold_recursion'</dt><dd>A function that calls itself is one frame (default
%%   `true').</dd>
%% <dt>`compensate'</dt><dd>Subtract the cost of tracing from own times (default
%%   `true').</dd>
%% <dt>`timeline'</dt><dd>Keep what happened when (default `false'): for each process
%%   the spans of time its stack did not change, for the formats `speedscope', `chrome'
%%   and `ember'. It takes up to half of `memory_limit'; then it ends, and the profile's
%%   info says where. Merged profiles have none.</dd>
%% <dt>`keep'</dt><dd>capture: `all' (default), or `{slower_than, Milliseconds}': only
%%   calls that took longer, tracing's cost subtracted, count and are kept. The others
%%   cost their tracing and vanish; so do those that are still under way at the end, if
%%   they have not taken so long.</dd>
%% <dt>`every'</dt><dd>capture: of the calls to the target, the first and each so-manieth
%%   after it; others are not traced (default 1). Of M calls, one in K are M/K, rounded up.
%%   Calls within a captured call are part of it.</dd>
%% <dt>`arm'</dt><dd>capture: `eager' (default) has all breakpoints set while it waits,
%%   so that the first call is captured. `lazy' sets the target's alone until it is called;
%%   that sets the others, and calls are captured that begin some milliseconds later.
%%   When there were none for ten seconds, or as many milliseconds as `{lazy, Milliseconds}'
%%   says, it waits likewise again. It is for functions that are called rarely and yet more
%%   than once, on busy nodes.</dd>
%% <dt>`quiet'</dt><dd>Print no file names (default `false').</dd>
%% </dl>
-module(emberl).

-export([apply/1, apply/2, capture/1, capture/2, capture/3]).
-export([start_capture/1, start_capture/2, start_capture/3, await/2, stop/1, stop/0]).
-export([profile/1, profile/2, profile/3, profile/4, record/1, record/2]).
-export([sample/0, sample/1, status/1, pause/1, resume/1, snapshot/1, query/3, query/4]).
-export([print/1, print/2, top/1, top/2]).
-export_type([applied/0, options/0, result/0, results/0, failure/0, capture/0, top_options/0,
              time/0, query_options/0, query_details/0, sampler/0, sample_options/0,
              sampler_status/0]).

-type applied() :: {module(), atom(), [term()]} | {fun(), [term()]} | fun(() -> term()).
-type options() :: map() | [{atom(), term()} | atom()].
-type result() :: term() | file:filename_all() | iodata() | emberl_profile:profile() | failure()
                | #{result := {ok, term()} | {atom(), term(), list()} | unfinished | unknown,
                    profile := emberl_profile:profile() | failure(),
                    file => file:filename_all() | failure()}.
%% What `return' asks for.
-type failure() :: {error, {write_failed | format_failed | out_of_memory | not_traced |
                            unknown_capture | unavailable, term(), Text :: binary()}}.
%% In place of what could not be had: a file that could not be written, a profile that
%% could not be made. It costs that call alone.
-type results() :: {ok, [result()]}
                 | {incomplete, timeout | stopped | limit, [result()]}
                 | {error, term()}.
-type top_options() :: #{count => pos_integer() | all,
                         sort => own_time | total_time | waiting | words | calls | binaries,
                         process => all | pid() | atom() | unicode:chardata(),
                         modules => all | [module()] | {app, atom()}}
                     | [{atom(), term()}].
-opaque capture() :: reference().

-type sampler() :: pid() | emberl_sampler.
-type sample_options() :: #{budget => number(), window => pos_integer(),
                            min_interval => non_neg_integer(),
                            processes => all | [pid() | atom()], most_processes => pos_integer(),
                            modules => all | [module()] | {app, atom()},
                            store => none | file:filename_all(), slice => pos_integer(),
                            retention => #{max_bytes => pos_integer() | infinity,
                                           max_age => pos_integer() | infinity},
                            memory_limit => pos_integer(), max_events => pos_integer(),
                            run_queue_limit => pos_integer() | infinity,
                            kill_file => none | file:filename_all()}
                        | [{atom(), term()}].
-type sampler_status() ::
        #{state := sampling | paused | stopped,
          reason := none | stopped | budget | memory | run_queues | kill_file,
          budget := float(), cost_minute := float(), cost_hour := float(), cost_life := float(),
          windows := non_neg_integer(), events := non_neg_integer(), lost := non_neg_integer(),
          coverage := float(), memory := non_neg_integer(), forgotten := non_neg_integer(),
          errors := non_neg_integer(), error := term(), store := none | map()}.
-type time() :: calendar:datetime() | integer() | now | unicode:chardata().
%% In UTC. An integer is in seconds since 1970. A text is as RFC 3339 has it, and the
%% zone, the seconds or the time may be left out: `"2026-12-31T23:59"'; or it is how long
%% ago: `"-90s"', `"-10m"', `"-2h"', `"-1d"'. What no clock shows (25:00) is refused, as are
%% years beyond 9999: milliseconds in place of seconds.
-type query_options() :: #{process => all | pid() | atom() | unicode:chardata(),
                           modules => all | [module()] | {app, atom()},
                           details => boolean()}
                       | [{atom(), term()} | atom()].
-type query_details() :: #{slices := non_neg_integer(), % how many files it is of
                           from := integer(), to := integer(), % their times: ms since 1970
                           skipped := [{file:filename_all(), Text :: binary()}]}.

%% @equiv apply(Target, #{})
-spec apply(applied()) -> result().
apply(Target) ->
    ?MODULE:apply(Target, #{}).

%% @doc Runs a function in the calling process and profiles it.
%%
%% Returns what the option `return' asks for, by default the function's value.
%% What the function raises is raised here, after the output has been written;
%% with `return => all' or `data' it is returned instead, as `{Class, Reason, Stack}'.
%%
%% With `profile', `flamegraph' and `filename' an exception costs you these.
%%
%% Fails before the function is run with `{bad_option, Key, Text}', `{bad_target,
%% Target, Text}' (also when the calling process is flagged sensitive, which the VM
%% does not trace), `{too_many_captures, Target, Text}', `{unavailable, emberl, Text}'
%% or `{other_tracer, Who}': before OTP 27.1 when somebody else traces, and since then when
%% another session traces the collections of the process or of all new ones, which the VM
%% does not survive.
%%
%% When the function has been run and yet there is no profile of it, its value is
%% returned and a warning logged; `all' and `data' have `{error, Reason}' for what is
%% missing, and where the profile is all that was asked for it fails with the reason:
%% `{not_traced, Target, Text}' (the process has made itself sensitive, or takes part in
%% seven captured calls already), `{unknown_capture, _, Text}' or `{unavailable, _,
%% Text}' (emberl was stopped or restarted inside).
-spec apply(applied(), options()) -> result().
apply(Target, Given) ->
    Options = accepted(emberl_options:parse(apply, Given)),
    Call = accepted(emberl_options:applied(Target)),
    accepted(emberl_options:caller()),
    accepted(emberl_output:check(Options)),
    Text = emberl_call:text(Call),
    emberl_calibrate:ensure(),
    Ref = accepted(emberl_control:start_capture(emberl_call:request(self(), Text, Options))),
    Result = emberl_call:result(Call),
    applied_result(emberl_control:finish(Ref), Result, Text, Options).

accepted(ok) -> ok;
accepted({ok, Value}) -> Value;
accepted({error, Reason}) -> erlang:error(Reason).

applied_result(Outcome, Result, Text, #{return := Return} = Options) ->
    [Output] = emberl_output:results([{applied_profile(Outcome, Text), Result}], Text, Options),
    case {Return, Result, Output} of
        {_, _, _} when Return =:= all; Return =:= data -> Output;
        {_, {Class, Reason, Stack}, _} -> erlang:raise(Class, Reason, Stack);
        {value, {ok, _Value}, _} -> Output;
        {_, {ok, _Value}, {error, Reason}} -> erlang:error(Reason);
        _ -> Output
    end.

applied_profile({_Why, [{Profile, _} | _], _Request}, _Text) -> Profile;
applied_profile({_Why, [], _Request}, Text) ->
    {error, emberl_options:refusal(not_traced, Text, not_traced())};
applied_profile({error, Reason}, _Text) -> {error, Reason}.

not_traced() ->
    "its process has made itself sensitive, or takes part in seven captured calls already".

%% @equiv capture(MFA, 1, #{})
-spec capture(mfa()) -> results().
capture(MFA) ->
    capture(MFA, 1, #{}).

%% @equiv capture(MFA, Calls, #{})
-spec capture(mfa(), pos_integer()) -> results().
capture(MFA, Calls) ->
    capture(MFA, Calls, #{}).

%% @doc Waits for the next calls to a function, whoever makes them, and profiles
%% each from its start to its end.
%%
%% Local calls count as well; the function's code is not changed. A call within
%% a captured one is part of that. Results are in the order in which the calls
%% ended. `{incomplete, Why, Results}' has what was finished by then, and the
%% calls that were under way, whose profiles say `outcome => unfinished'.
%% Nothing was touched when `{error, Reason}' is returned.
%%
%% The target's module has to be loaded (`code:ensure_loaded/1' does that); when it is
%% loaded again its new code is captured. Functions that are instructions in compiled
%% code, as `erlang:self/0' and operators, are refused. With `return => value', `data',
%% `profile' or `flamegraph' no files are written. A result that could not be had is
%% a `failure()' in its place.
-spec capture(mfa(), pos_integer(), options()) -> results().
capture(MFA, Calls, Options) ->
    case start_capture(MFA, Calls, Options) of
        {ok, Capture} -> await(Capture, infinity);
        {error, Reason} -> {error, Reason}
    end.

%% @equiv start_capture(MFA, 1, #{})
-spec start_capture(mfa()) -> {ok, capture()} | {error, term()}.
start_capture(MFA) ->
    start_capture(MFA, 1, #{}).

%% @equiv start_capture(MFA, Calls, #{})
-spec start_capture(mfa(), pos_integer()) -> {ok, capture()} | {error, term()}.
start_capture(MFA, Calls) ->
    start_capture(MFA, Calls, #{}).

%% @doc Like {@link capture/3}, but returns when the capture is ready for the
%% first call. It belongs to the calling process and ends with it: over rpc or erpc that
%% is a process of the call's own, so start and await it in one call.
-spec start_capture(mfa(), pos_integer(), options()) -> {ok, capture()} | {error, term()}.
start_capture(MFA, Calls, Given) ->
    maybe_start(emberl_options:target(MFA), emberl_options:calls(Calls),
                emberl_options:parse(capture, Given)).

maybe_start({error, Reason}, _Calls, _Options) -> {error, Reason};
maybe_start(_MFA, {error, Reason}, _Options) -> {error, Reason};
maybe_start(_MFA, _Calls, {error, Reason}) -> {error, Reason};
maybe_start({ok, MFA}, {ok, Calls}, {ok, Options}) ->
    case emberl_output:check(Options) of
        ok -> start(MFA, Calls, Options);
        {error, Reason} -> {error, Reason}
    end.

start(MFA, Calls, Options) ->
    emberl_calibrate:ensure(),
    Text = emberl_table:mfa(MFA),
    emberl_control:start_capture(#{mfa => MFA, calls => Calls, from => any, hidden => false,
                                   target => Text, options => Options}).

%% @doc Waits for the results of a capture. `{error, timeout}' leaves it as it
%% is: it can be awaited again. One process may wait: another gets `{error,
%% already_awaited}'. Results are given out once, after that it is `{error,
%% {unknown_capture, _, Text}}'; so it is when the process that started it has ended.
%% A wrong timeout is `{error, {bad_timeout, Timeout, Text}}'.
-spec await(capture(), timeout()) -> results().
await(Capture, Timeout) ->
    case {emberl_options:capture(Capture), emberl_options:wait(Timeout)} of
        {ok, ok} -> results(emberl_control:await(Capture, Timeout));
        {{error, Reason}, _} -> {error, Reason};
        {_, {error, Reason}} -> {error, Reason}
    end.

%% @doc Ends a capture; returns what it has. Where another process awaits it, that
%% one gets the results, and this returns `{error, already_awaited}'.
%%
%% Ends a sampler, too; what it has not yet stored is stored, and when this returns nothing of
%% a window is left in the VM. One of a supervisor of yours
%% is not started again, unless that is told to.
-spec stop(capture()) -> results();
          (sampler()) -> ok | {error, emberl_options:refusal()}.
stop(Sampler) when is_pid(Sampler); Sampler =:= emberl_sampler ->
    emberl_sampler:stop(Sampler);
stop(Capture) ->
    case emberl_options:capture(Capture) of
        ok -> results(emberl_control:stop(Capture));
        {error, Reason} -> {error, Reason}
    end.

%% @doc Ends all captures on this node, stops every {@link emberl_server}, and takes
%% everything of ours out of the VM's tracing. Who waits for a capture, a recording or a
%% profile by the tracer gets what it has; what counters have counted is lost, which a note
%% in the tally says. Stopping the application does the same. A sampler samples no longer,
%% until {@link resume/1}.
-spec stop() -> ok | {error, emberl_options:refusal()}.
stop() ->
    emberl_sampler:halt_all(),
    emberl_control:stop_all().

results({error, Reason}) ->
    {error, Reason};
results({Why, Calls, #{target := Text, options := Options}}) ->
    Results = emberl_output:results(merged(Calls, Options), Text, Options),
    case Why of
        done -> {ok, Results};
        _ -> {incomplete, Why, Results}
    end.

merged([_ | _] = Calls, #{merge := true}) ->
    [{merged_profile(Calls), {ok, lists:append([Values || {_, Values} <- Calls])}}];
merged(Calls, _Options) ->
    Calls.

merged_profile([{First, _} | _] = Calls) ->
    case [Profile || {Profile, _} = Call <- Calls, has_profile(Call)] of
        [] -> First; % why there is none
        Profiles -> emberl_profile:merge(Profiles)
    end.

has_profile({{error, _Reason}, _Value}) -> false;
has_profile(_Call) -> true.

%% ---- tables instead of stacks ----

%% @equiv profile(Fun, #{})
-spec profile(fun(() -> Value)) -> Value.
profile(Fun) ->
    profile(Fun, #{}).

%% @doc Runs a function in a process of its own and prints what every function it called
%% did: calls, time and heap words, by process. Returns its value, and raises what it
%% raises, after that has been printed.
%%
%% <dl>
%% <dt>`type'</dt><dd>`all' (default), `call_count' (calls in all processes of the node),
%%   `call_time' or `call_memory'.</dd>
%% <dt>`stacks'</dt><dd>`true': call stacks as well, see {@link emberl_tally:profile/1}
%%   (default `false').</dd>
%% <dt>`engine'</dt><dd>`counters': the VM's own; `tracer': what {@link apply/2} uses;
%%   `auto' (default): counters for one type, tracer for all and for stacks, unless
%%   `rootset' or `pattern' ask for what it cannot do. The tally says which it was.</dd>
%% <dt>`pattern'</dt><dd>`{Module, Function, Arity}' with `_' for any, or a list of these:
%%   the functions that are counted. Default all. Modules are loaded; where there is
%%   nothing to count it is refused. The tracer takes whole modules.</dd>
%% <dt>`set_on_spawn'</dt><dd>Count in processes spawned inside too (default `true').</dd>
%% <dt>`rootset'</dt><dd>Other processes to count in, as in {@link
%%   emberl_server:enable_trace/3}; default none. Counters only.</dd>
%% <dt>`timeout'</dt><dd>Milliseconds after which the process that runs the function is
%%   killed, also when it traps exits; the tally has what there was. Default
%%   `infinity'.</dd>
%% <dt>`report'</dt><dd>`process' (default) or `total' (all processes together), or
%%   `{process | total, Sort}' (see {@link emberl_tally:inspect/3}); `return': print
%%   nothing, and return `{Value, Tally}', see {@link emberl_tally}. Where the function
%%   has no value that is ``{{'EXIT', Reason}, Tally}''.</dd>
%% <dt>`device'</dt><dd>Where to print; default standard output.</dd>
%% </dl>
%% Fails with `{bad_option, Key, Text}', `{bad_target, Target, Text}', `{other_tracer,
%% Who}' (when somebody else traces, see {@link apply/2}), before the function is run; with
%% `{timeout, Milliseconds}' after a timeout; exits with what has killed the function's
%% process.
-spec profile(fun(() -> term()), map() | [{atom(), term()}]) -> term().
profile(Fun, Options) ->
    emberl_adhoc:profile(Fun, Options).

%% @equiv profile(Module, Function, Arguments, #{})
-spec profile(module(), atom(), [term()]) -> term().
profile(Module, Function, Arguments) ->
    profile(Module, Function, Arguments, #{}).

%% @doc Like {@link profile/2}, of `apply(Module, Function, Arguments)'.
-spec profile(module(), atom(), [term()], map() | [{atom(), term()}]) -> term().
profile(Module, Function, Arguments, Options) ->
    emberl_adhoc:profile({Module, Function, Arguments}, Options).

%% @equiv record(Milliseconds, #{})
-spec record(pos_integer()) -> ok.
record(Milliseconds) ->
    record(Milliseconds, #{}).

%% @doc Records for a while what processes do anyhow, from wherever they are, and prints it:
%% for endless loops and whole subsystems.
%%
%% <dl>
%% <dt>`rootset'</dt><dd>Which processes: `existing' (default: all there are, but for the
%%   caller), a pid, a registered name, a list of these, `{children, P}' (those P has spawned
%%   and that live) or `{all_children, P}' (and theirs, and so on). Counters take `new' and
%%   `all' too.</dd>
%% <dt>`stacks'</dt><dd>`true': what {@link apply/2} uses, with call stacks; `false': the VM's
%%   counters, at less cost. Default: `true', unless only counters can do what is asked:
%%   patterns of functions, `new' and `all'. So can `engine' be given.</dd>
%% <dt>`return'</dt><dd>Instead of printing: `filename', `flamegraph', `profile', `data' or
%%   `all', as in {@link apply/2}. So are `output_format', `output_directory', `output_file',
%%   `open', `metric', `modules', `memory_limit', `fold_recursion', `compensate', `timeline'
%%   and `quiet'. All of them ask for stacks.</dd>
%% </dl>
%% Other options are those of {@link profile/2} but `timeout'. With `report => return' it
%% returns the tally, from which {@link emberl_tally:profile/1} gives the profile.
%%
%% With stacks, each process has all of that time: what it waited, too. A process is seen in
%% the middle of calls. The functions that have called it are found on its stack when it
%% runs first, and stand in its stacks without calls; frames that cannot be found are
%% `[unknown]': those beyond 512, and those that the VM does not show of a process that has
%% not run at all (it shows the newest 8, see `erlang:system_flag(backtrace_depth, _)').
%% When such an older function returns nothing tells; that shows at the process's next call,
%% return or wait, and its time is counted for the older one until then.
%%
%% Nobody waits for a process that is in a native function for long. It is recorded from
%% when it lets go of its scheduler; a note in the tally says how many were not all the time.
%% Before OTP 27.1, processes that somebody else traces are left alone, and counted there.
%%
%% Fails like {@link profile/2}, and with `{bad_timeout, Value, Text}'.
-spec record(pos_integer(), map() | [{atom(), term()}]) -> ok | emberl_tally:tally() | result().
record(Milliseconds, Options) ->
    emberl_adhoc:record(Milliseconds, Options).

%% ---- sampling ----

%% @equiv sample(#{})
-spec sample() -> {ok, sampler()} | {error, term()}.
sample() ->
    sample(#{}).

%% @doc Starts to sample what the node does, at a stated cost, until it is stopped.
%%
%% Now and then, for some milliseconds, processes are traced: a window. How often follows
%% from what windows cost, so that over any minute all of that is within the budget.
%% {@link snapshot/1} and {@link query/4} give what it estimates from that for all the time
%% between. docs/production.md has more of it. There is one sampler on a node. It belongs
%% to the application emberl; {@link emberl_sampler:child_spec/1} has one for a supervisor
%% of yours, and the environment `{sample, Options}' of emberl starts one with that.
%%
%% <dl>
%% <dt>`budget'</dt><dd>What it may cost: a share of the time of all schedulers (default
%%   0.01).</dd>
%% <dt>`window'</dt><dd>How long windows are at most, in milliseconds, as all times here
%%   (default 10, at most 50); with `targets', how long a call is waited for (default 1000).</dd>
%% <dt>`min_interval'</dt><dd>From the beginning of one to that of the next (default
%%   100).</dd>
%% <dt>`processes'</dt><dd>`all' (default), or a list of pids and registered names, which are
%%   looked up for each window.</dd>
%% <dt>`most_processes'</dt><dd>When there are more than this (default 1000), the busiest
%%   and others at random are recorded, which count for all.</dd>
%% <dt>`modules'</dt><dd>As of captures.</dd>
%% <dt>`metrics'</dt><dd>Which numbers are gathered: `all' (default), or a list of `own_time'
%%   (all times), `words', `calls' and `binaries'. Others are absent from profiles, not
%%   zero.</dd>
%% <dt>`targets'</dt><dd>At most 16 functions, `{Module, Function, Arity}': their calls are
%%   sampled instead of time. Some are captured from beginning to end, and each counts for
%%   all calls there were for each captured one.</dd>
%% <dt>`every'</dt><dd>With `targets': of how many calls one is captured (default 1000). Fewer
%%   are, where the budget is too small.</dd>
%% <dt>`store'</dt><dd>A directory for profiles of slices of time, which is this node's
%%   alone; `none' (default): there are snapshots alone.</dd>
%% <dt>`slice'</dt><dd>How much time is in a file (default 60000).</dd>
%% <dt>`retention'</dt><dd>What is kept of them: a map with `max_bytes' (default 256 MiB) and
%%   `max_age' (default seven days), either may be `infinity'.</dd>
%% <dt>`memory_limit'</dt><dd>Bytes for what is not stored yet (default 64 MiB). Beyond, the
%%   slice ends; without a store it is forgotten.</dd>
%% <dt>`max_events'</dt><dd>After as many a window ends (default 200000).</dd>
%% <dt>`run_queue_limit'</dt><dd>When more processes than this wait for each scheduler, no
%%   window is opened (default `infinity').</dd>
%% <dt>`kill_file'</dt><dd>When there is a file of this name it stops (default `none').</dd>
%% </dl>
%% It stops itself, says why in its status and in the log, and leaves nothing in the VM: when
%% the budget is too small for any window; when less than 3 % of the machine's memory is
%% available or run queues are too long, for three seconds; when there is the kill file.
%%
%% Fails with `{error, {bad_option, Key, Text}}' before anything is touched, and with
%% `{error, {already_started, Pid}}'.
-spec sample(sample_options()) -> {ok, sampler()} | {error, term()}.
sample(Options) ->
    emberl_sampler:sample(Options).

%% @doc What a sampler does and has cost.
%%
%% `cost_minute', `cost_hour' and `cost_life' are shares of the time of all schedulers, as
%% `budget' is. `windows' is how many there were, but for `errors' that failed, the last of
%% them because of `error'. `coverage' is the share of processes that were recorded;
%% `requests' how often each target was called, captured, and not captured to its end (`cut');
%% `forgotten' how often memory was full; `store' what is in the directory, and what went wrong
%% there.
-spec status(sampler()) -> sampler_status() | {error, emberl_options:refusal()}.
status(Sampler) ->
    emberl_sampler:status(Sampler).

%% @doc Opens no windows, until {@link resume/1}. What it has is stored.
-spec pause(sampler()) -> ok | {error, emberl_options:refusal()}.
pause(Sampler) ->
    emberl_sampler:pause(Sampler).

%% @doc Samples again, after a pause or when it has stopped itself.
-spec resume(sampler()) -> ok | {error, emberl_options:refusal()}.
resume(Sampler) ->
    emberl_sampler:resume(Sampler).

%% @doc What is not stored yet, as a profile; without a store, all since it was started.
-spec snapshot(sampler()) -> emberl_profile:profile() | {error, emberl_options:refusal()}.
snapshot(Sampler) ->
    emberl_sampler:snapshot(Sampler).

%% ---- what a sampler has stored ----

%% @equiv query(Directory, From, To, #{})
-spec query(file:filename_all(), time(), time()) ->
          {ok, emberl_profile:profile()} | {error, emberl_options:refusal()}.
query(Directory, From, To) ->
    query(Directory, From, To, #{}).

%% @doc What a sampler has stored of a time, as one profile.
%%
%% The store has a file for each slice of time; slices that are partly within the time
%% are taken whole. `details => true' returns `{ok, Profile, Details}', which tell what
%% time the profile is of, and which files were damaged and left out. Without that, a
%% warning is logged of these. The other options are those of {@link
%% emberl_profile:filter/2}. To compare two times see {@link emberl_profile:diff/2}.
%%
%% `{error, {no_data, _, Text}}': there are no slices of that time. `{error, {unreadable,
%% Directory, Text}}', `{bad_time, Given, Text}', `{bad_option, Key, Text}' likewise.
-spec query(file:filename_all(), time(), time(), query_options()) ->
          {ok, emberl_profile:profile()} |
          {ok, emberl_profile:profile(), query_details()} |
          {error, emberl_options:refusal()}.
query(Directory, From, To, Options) ->
    emberl_query:run(Directory, From, To, Options).

%% ---- profiles as text ----

%% @equiv print(Profile, #{})
-spec print(emberl_profile:profile()) -> ok.
print(Profile) ->
    print(Profile, #{}).

%% @doc Prints what was measured and what is missing, then as {@link top/2} the
%% functions that matter most. Of a comparison (see {@link emberl_profile:diff/3}) it
%% prints both sides.
-spec print(emberl_profile:profile(), top_options()) -> ok.
print(Profile, Given) ->
    Options = accepted(emberl_options:top(Given)),
    io:format("~ts", [emberl_report:summary(Profile, Options, emberl_table:device(standard_io))]).

%% @equiv top(Profile, 20)
-spec top(emberl_profile:profile()) -> ok.
top(Profile) ->
    top(Profile, 20).

%% @doc Prints the functions that matter most: their calls, times and heap words, and
%% what share of all that is. Of a comparison, those that changed most.
%%
%% <dl>
%% <dt>`count'</dt><dd>How many, or `all'; default 20. A number alone means this.</dd>
%% <dt>`sort'</dt><dd>`own_time', `total_time' (of all three kinds, with
%%   what they called), `waiting' (scheduled out with nothing to do), `words', `calls' or
%%   `binaries' (bytes outside the heap). Default `own_time', or where that was not asked for
%%   when the profile was made `calls', `words' or `binaries'.</dd>
%% <dt>`process'</dt><dd>`all' (default), or one process by its pid, the pid's text
%%   or its registered name.</dd>
%% <dt>`modules'</dt><dd>Show these alone: `all' (default), a list of modules or `{app,
%%   Name}'. Shares are of all functions nevertheless.</dd>
%% </dl>
%% Fails with `{bad_option, Key, Text}'. {@link emberl_profile:top/2} has the same as
%% data.
-spec top(emberl_profile:profile(), pos_integer() | top_options()) -> ok.
top(Profile, Given) ->
    Options = accepted(emberl_options:top(Given)),
    io:format("~ts", [emberl_report:functions(Profile, Options, emberl_table:device(standard_io))]).
