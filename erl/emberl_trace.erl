%% SPDX-License-Identifier: Apache-2.0
%% @private
%% The VM's tracing, the same on every release.
%%
%% From ERTS 15.1 on (OTP 27.1) we trace in sessions of our own and see nothing
%% of others. One session traces processes: when the collections of a process are traced
%% in two, the VM crashes (erlang/otp#11624), so we refuse where another does. Each
%% target has a second session, which traces no process: its meta breakpoint tells us
%% that the target is called and when that call ends. Two sessions, since the tracer's
%% state is the session's, and tells the targets apart.
%%
%% Before that there is one trace for the node. Meta breakpoints there have
%% tracers of their own, so one breakpoint does both. We refuse to start when
%% somebody else traces, and clear what we set. A persistent term is there while
%% anything of ours may be set: when all of us were killed, what is left is known
%% as ours by that, and not taken for another's.
-module(emberl_trace).

-export([uses_sessions/0, other_tracer/0, other_collector/1, stack_layout/0, own_modules/0, open/1,
         close/1, hold/0, let_go/1, count/2, end_counts/1, clear_remains/0, probe/1, set_modules/2,
         set_all_modules/2, clear_modules/1, is_disturbed/2, set_target/3, renew_targets/1,
         clear_target/3, set_process/2, clear_process/2, without_collections/1]).
-export_type([trace/0, counts/0]).

-define(TRACER, emberl_nif).
-define(MAIN, 127).
-define(SESSION, emberl).
-define(LOOK_MS, 100).
-define(MARK, emberl_trace_is_set).
-define(COUNTED, emberl_trace_counts). % likewise, those that are counted
%% What sets breakpoints in the VM, whoever asks for them. (The native function below them
%% loses its breakpoint when those of all functions are cleared, and still says it has it.)
-define(SETTERS, [{erlang, trace_pattern, 2}, {erlang, trace_pattern, 3}]).
-define(FLAGS, [call, return_to, arity, running, garbage_collection, procs, set_on_spawn]).

-type target() :: 0..63.
-opaque trace() :: #{generation := pos_integer(),
                     main := term(),
                     targets := #{target() => term()},
                     flags := [atom()]}. % of processes of windows

-opaque counts() :: {Session :: term(), [mfa()]}.

-spec uses_sessions() -> boolean().
uses_sessions() ->
    erts_version() >= [15, 1].

erts_version() ->
    [list_to_integer(Part) || Part <- string:lexemes(erlang:system_info(version), ".-rc"),
                              Part =/= []].

%% {words pushed for return_to, words pushed for the return of a captured call,
%% whether a nested captured call is seen before the call itself}
-spec stack_layout() -> {non_neg_integer(), non_neg_integer(), boolean()}.
stack_layout() ->
    case uses_sessions() of
        true -> {2, 4, true};
        false -> {1 + session_words(), 3 + session_words(), false}
    end.

%% ERTS 15.0 has session identifiers on the stack, whether we use them or not.
session_words() ->
    case erts_version() >= [15] of
        true -> 1;
        false -> 0
    end.

-spec open(pos_integer()) -> {ok, trace()} | {error, {other_tracer, term()}}.
open(Generation) ->
    case uses_sessions() of
        true -> {ok, new(Generation, create(main_session, state(Generation, ?MAIN)))};
        false -> open_legacy(Generation, other_than_held())
    end.

open_legacy(Generation, none) ->
    persistent_term:put(?MARK, true),
    {ok, new(Generation, legacy)};
open_legacy(_Generation, Other) ->
    {error, {other_tracer, Other}}.

%% ---- between windows, where the node has one trace ----

%% To look whether somebody else has breakpoints takes a tenth of a second: some
%% microseconds for each function of the node. So while windows are opened again and again
%% the VM's function that sets them has a breakpoint that tells us when others call it, and
%% we look when they have. Nobody else is in the way of that, nor is it in theirs.
-spec hold() -> ok.
hold() ->
    uses_sessions() orelse hold_legacy(),
    ok.

hold_legacy() ->
    persistent_term:put(?MARK, true),
    emberl_nif:watch(self()),
    [erlang:trace_pattern(Setter, [], [{meta, ?TRACER, watch}]) || Setter <- ?SETTERS].

%% Whether a trace is open just now.
-spec let_go(boolean()) -> ok.
let_go(IsOpen) ->
    uses_sessions() orelse let_go_legacy(IsOpen),
    ok.

let_go_legacy(IsOpen) ->
    [erlang:trace_pattern(Setter, false, [meta]) || Setter <- ?SETTERS],
    IsOpen orelse persistent_term:erase(?MARK).

is_held() ->
    not lists:any(fun(Setter) -> is_lost(legacy, Setter) end, ?SETTERS).

other_than_held() ->
    case is_held() andalso not emberl_nif:take_change() of
        true -> first([fun counters/0, fun new_process_flags/0, fun traced_process/0]);
        false -> known_other(other_tracer())
    end.

%% It is looked for again as long as it is there.
known_other(none) ->
    none;
known_other(Other) ->
    is_held() andalso hold_legacy(),
    Other.

%% Without forgetting it.
have_others_set() ->
    not is_held() orelse (emberl_nif:take_change() andalso hold_legacy() =/= []).

%% ---- how often functions are called, whether anything is traced or not ----

%% A module that is loaded again has no counters: they begin anew.
-spec count([mfa()], none | counts()) -> {[non_neg_integer()], counts()}.
count(MFAs, none) ->
    count(MFAs, begin_counts(MFAs, uses_sessions()));
count(MFAs, {Session, _} = Counts) ->
    {[count_of(Session, MFA) || MFA <- MFAs], Counts}.

begin_counts(MFAs, true) ->
    {trace:session_create(emberl_calls, self(), []), MFAs};
begin_counts(MFAs, false) ->
    persistent_term:put(?COUNTED, MFAs),
    {legacy, MFAs}.

count_of(Session, MFA) ->
    case info(Session, MFA, call_count) of
        {call_count, Count} when is_integer(Count) -> Count;
        _ -> _ = pattern(Session, MFA, true, [call_count]),
             0
    end.

-spec end_counts(none | counts()) -> ok.
end_counts(none) ->
    ok;
end_counts({legacy, []}) ->
    ok;
end_counts({legacy, MFAs}) ->
    [erlang:trace_pattern(MFA, false, [call_count]) || MFA <- MFAs],
    persistent_term:erase(?COUNTED),
    ok;
end_counts({Session, _MFAs}) ->
    destroy(Session).

new(Generation, Main) ->
    #{generation => Generation, main => Main, targets => #{}, flags => ?FLAGS}.

state(Generation, Target) ->
    Generation * 128 + Target.

-spec close(trace()) -> ok.
close(#{main := legacy, targets := Targets}) ->
    clear_legacy(maps:values(Targets));
close(#{main := Main, targets := Targets}) ->
    lists:foreach(fun destroy/1, [Session || {Session, _MFA} <- maps:values(Targets)]),
    destroy(Main).

%% Traces when the process is scheduled, with the tracer state `probe', until the
%% fun is called.
-spec probe(pid()) -> {ok, fun(() -> term())} | error.
probe(Pid) ->
    case uses_sessions() of
        true ->
            Session = trace:session_create(emberl_probe, {?TRACER, probe}, []),
            trace:process(Session, Pid, true, [running]),
            {ok, fun() -> trace:session_destroy(Session) end};
        false ->
            probe_legacy(Pid)
    end.

%% Not where somebody else traces it.
probe_legacy(Pid) ->
    try erlang:trace(Pid, true, [running, {tracer, ?TRACER, probe}]) of
        1 -> {ok, fun() -> clear_flags(Pid) end}
    catch
        error:badarg -> error
    end.

%% What a server that was killed has left. Sessions end with their owner.
-spec clear_remains() -> ok.
clear_remains() ->
    case persistent_term:get(?MARK, false) of
        true -> clear_legacy([MFA || MFA <- all_functions(), not is_lost(legacy, MFA)]);
        false -> ok
    end,
    end_counts({legacy, persistent_term:get(?COUNTED, [])}).

clear_legacy(Targets) ->
    [erlang:trace_pattern(MFA, false, [meta]) || MFA <- Targets],
    erlang:trace_pattern(on_load, false, [local]), % first: else a module loaded now would keep some
    erlang:trace_pattern({'_', '_', '_'}, false, [local]),
    lists:foreach(fun untrace/1, processes()),
    is_held() orelse persistent_term:erase(?MARK),
    ok.

%% The type of trace_info/2 does not have tracer modules.
-dialyzer({nowarn_function, [untrace/1, clear_flags/1, process_tracer/1, is_lost/2]}).

%% Processes that have had no event since their run ended.
untrace(Pid) ->
    case erlang:trace_info(Pid, tracer) of
        {tracer, {?TRACER, _State}} -> clear_flags(Pid);
        _ -> ok
    end.

%% It may have died meanwhile.
clear_flags(Pid) ->
    try erlang:trace(Pid, false, [all])
    catch error:badarg -> 0
    end.

%% Breakpoints on every function of these modules, and of modules loaded later,
%% but for our own. The set only grows until it is cleared.
-spec set_modules(trace(), all | [module()]) -> ok.
set_modules(#{main := Main}, Modules) ->
    pattern(Main, on_load, true, [local]),
    set_loaded(Main, Modules).

set_loaded(Main, all) ->
    pattern(Main, {'_', '_', '_'}, true, [local]),
    [pattern(Main, {Module, '_', '_'}, false, [local])
     || Module <- [emberl_calibrate | own_modules()]],
    ok;
set_loaded(Main, Modules) ->
    [pattern(Main, {Module, '_', '_'}, true, [local]) || Module <- Modules -- own_modules()],
    ok.

%% The same for a sampler's window, in one step. None of the processes that sample is traced;
%% one that calls emberl shows that.
-spec set_all_modules(trace(), all | [module()]) -> ok.
set_all_modules(#{main := Main}, all) ->
    pattern(Main, on_load, true, [local]),
    pattern(Main, {'_', '_', '_'}, true, [local]),
    ok;
set_all_modules(Trace, Modules) ->
    set_modules(Trace, Modules).

%% on_load first: else a module loaded now would keep some.
-spec clear_modules(trace()) -> ok.
clear_modules(#{main := Main}) ->
    pattern(Main, on_load, false, [local]),
    pattern(Main, {'_', '_', '_'}, false, [local]),
    ok.

%% Where the node has one trace: whether others have taken away breakpoints of ours.
-spec is_disturbed(trace(), all | [module()]) -> boolean().
is_disturbed(#{main := legacy}, Modules) ->
    have_others_set() andalso are_missing(Modules);
is_disturbed(_Sessions, _Modules) ->
    false.

are_missing(Modules) ->
    erlang:trace_info(on_load, traced) =/= {traced, local}
        orelse lists:any(fun(MFA) -> function_pattern(MFA) =:= none end, functions_in(Modules)).

functions_in(all) ->
    functions_in([Module || {Module, _File} <- code:all_loaded(), Module =/= emberl_calibrate]);
functions_in(Modules) ->
    [{Module, F, A} || Module <- Modules -- own_modules(), erlang:module_loaded(Module),
                        {F, A} <- functions(Module)].

-spec own_modules() -> [module()].
own_modules() ->
    [emberl, emberl_adhoc, emberl_app, emberl_arguments, emberl_call, emberl_cli, emberl_cli_files,
     emberl_cli_run, emberl_control, emberl_counters, emberl_governor, emberl_janitor,
     emberl_layout, emberl_nif, emberl_options, emberl_output, emberl_process, emberl_profile,
     emberl_program, emberl_query, emberl_report, emberl_sample_cost, emberl_sample_guard,
     emberl_sample_options, emberl_sample_requests, emberl_sample_window, emberl_sampler,
     emberl_server, emberl_store, emberl_sup, emberl_table, emberl_tally, emberl_tally_options,
     emberl_tally_report, emberl_time, emberl_trace, emberl_window, emberl_worker].

%% {error, undefined} when there is no such function to set a breakpoint on.
-spec set_target(trace(), target(), mfa()) -> {ok, trace()} | {error, undefined}.
set_target(#{generation := Generation, main := legacy, targets := Targets} = Trace, Target, MFA) ->
    set_result(set_meta(Generation, Target, MFA), Trace#{targets := Targets#{Target => MFA}});
set_target(#{generation := Generation, main := Main, targets := Targets} = Trace, Target, MFA) ->
    Session = create(target_session, state(Generation, Target)),
    set_result(set_meta(Main, Session, MFA), Trace#{targets := Targets#{Target => {Session, MFA}}}).

%% The number of functions it was set on. Where there are sessions: the target's own
%% breakpoint last, since the one that was set last is asked first. A process whose run
%% is over has to come to a local breakpoint of the main session before its other one.
set_meta(Generation, Target, MFA) when is_integer(Generation) ->
    Main = {{tracer, ?TRACER, state(Generation, ?MAIN)}},
    Spec = [{'_', [], [{trace, [], ?FLAGS ++ [Main]}, {exception_trace}]}],
    erlang:trace_pattern(MFA, Spec, [{meta, ?TRACER, state(Generation, Target)}]);
set_meta(Main, Session, {Module, _, _} = MFA) ->
    lists:member(Module, own_modules()) orelse pattern(Main, MFA, true, [local]),
    Count = pattern(Main, MFA, [{'_', [], [{trace, [], ?FLAGS}, {message, false}]}], [meta]),
    pattern(Session, MFA, [{'_', [], [{exception_trace}]}], [meta]),
    Count.

%% A module that is loaded again has no breakpoints of targets: they are set again,
%% as soon as there is such a function.
-spec renew_targets(trace()) -> ok.
renew_targets(#{generation := Generation, main := legacy, targets := Targets}) ->
    [set_meta(Generation, Target, MFA)
     || {Target, MFA} <- maps:to_list(Targets), is_lost(legacy, MFA)],
    ok;
renew_targets(#{main := Main, targets := Targets}) ->
    [renew(Main, Session, MFA) || {Session, MFA} <- maps:values(Targets),
                                  is_lost(Main, MFA) orelse is_lost(Session, MFA)],
    ok.

renew(Main, Session, MFA) ->
    [pattern(Each, MFA, false, [meta]) || Each <- [Main, Session]],
    set_meta(Main, Session, MFA).

is_lost(Session, MFA) ->
    case info(Session, MFA, meta) of
        {meta, {?TRACER, _State}} -> false;
        _ -> true
    end.

set_result(0, _Trace) -> {error, undefined};
set_result(_Count, Trace) -> {ok, Trace}.

-spec clear_target(trace(), target(), mfa()) -> trace().
clear_target(#{main := legacy, targets := Targets} = Trace, Target, MFA) ->
    erlang:trace_pattern(MFA, false, [meta]),
    Trace#{targets := maps:remove(Target, Targets)};
clear_target(#{main := Main, targets := Targets} = Trace, Target, MFA) ->
    pattern(Main, MFA, false, [meta]),
    {Session, MFA} = maps:get(Target, Targets),
    destroy(Session),
    Trace#{targets := maps:remove(Target, Targets)}.

%% ---- processes of windows ----

%% Where nobody asks for times or words.
-spec without_collections(trace()) -> trace().
without_collections(Trace) ->
    Trace#{flags := ?FLAGS -- [garbage_collection]}.

%% Waits until the process is scheduled out. Refused: somebody else traces it.
-spec set_process(trace(), pid()) -> traced | gone | refused.
set_process(#{generation := Generation, main := legacy, flags := Flags}, Pid) ->
    try erlang:trace(Pid, true, Flags ++ [{tracer, ?TRACER, state(Generation, ?MAIN)}]) of
        1 -> traced
    catch
        error:badarg -> why_not(Pid)
    end;
set_process(#{main := Main, flags := Flags}, Pid) ->
    case collector_of(Pid) of
        none -> set_in_session(Main, Pid, Flags);
        _ -> refused
    end.

set_in_session(Main, Pid, Flags) ->
    try trace:process(Main, Pid, true, Flags) of
        1 -> traced
    catch
        error:badarg -> gone % it, or the session
    end.

why_not(Pid) ->
    case is_process_alive(Pid) of
        true -> refused;
        false -> gone
    end.

-spec clear_process(trace(), pid()) -> ok.
clear_process(#{main := legacy}, Pid) ->
    untrace(Pid);
clear_process(#{main := Main}, Pid) ->
    try trace:process(Main, Pid, false, ?FLAGS) of
        _ -> ok
    catch
        error:badarg -> ok
    end.

%% ---- sessions ----

create(main_session, State) -> trace:session_create(?SESSION, {?TRACER, State}, []);
create(target_session, State) -> trace:session_create(emberl_target, {?TRACER, State}, []).

destroy(Session) ->
    trace:session_destroy(Session),
    ok.

pattern(legacy, MFA, Spec, Options) -> erlang:trace_pattern(MFA, Spec, Options);
pattern(Session, MFA, Spec, Options) -> trace:function(Session, MFA, Spec, Options).

info(legacy, What, Item) -> erlang:trace_info(What, Item);
info(Session, What, Item) -> trace:info(Session, What, Item).

%% ---- others that trace collections, where there are sessions ----

%% Who has collections traced of one of these processes, or of all new ones, which ours may
%% come to be. Each look at a process may have to wait for it, so of very many only some are
%% looked at.
-spec other_collector([pid()]) -> none | {process, pid(), term()} | {new_processes, term()}.
other_collector(Pids) ->
    case uses_sessions() of
        true -> other_collector(collector_of_new(), Pids,
                                erlang:monotonic_time(millisecond) + ?LOOK_MS);
        false -> none
    end.

other_collector(none, [Pid | Pids], Until) ->
    case erlang:monotonic_time(millisecond) < Until of
        true -> other_collector(collector_of(Pid), Pids, Until);
        false -> none
    end;
other_collector(Found, _Pids, _Until) ->
    Found.

collector_of_new() ->
    case collectors(new) of
        [] -> none;
        [Session | _] -> {new_processes, Session}
    end.

collector_of(Pid) ->
    case collectors(Pid) of
        [] -> none;
        [Session | _] -> {process, Pid, Session}
    end.

%% The process may have died, and a session may be gone.
collectors(Whom) ->
    try [Session || {Name, _} = Session <- trace:session_info(Whom), Name =/= ?SESSION,
                    lists:member(garbage_collection, flags_in(Session, Whom))]
    catch error:_ -> []
    end.

flags_in({legacy, _}, new) -> flags(erlang:trace_info(new_processes, flags));
flags_in({legacy, _}, Pid) -> flags(erlang:trace_info(Pid, flags));
flags_in(Session, Whom) -> flags(trace:info(Session, Whom, flags)).

flags({flags, Flags}) -> Flags;
flags(undefined) -> [].

%% ---- other tracers, where the node has one trace ----

%% Who traces, where the node has one trace.
-spec other_tracer() -> none | tuple().
other_tracer() ->
    first([fun counters/0, fun new_process_flags/0, fun traced_process/0, fun traced_function/0]).

%% Our own, which need not trace any process.
counters() ->
    case whereis(emberl_counters) of
        undefined -> none;
        Pid -> {process, Pid}
    end.

first([]) -> none;
first([Check | Checks]) ->
    case Check() of
        none -> first(Checks);
        Found -> Found
    end.

new_process_flags() ->
    case erlang:trace_info(new_processes, flags) of
        {flags, []} -> none;
        {flags, Flags} -> {new_processes, Flags}
    end.

traced_process() ->
    first([fun() -> process_tracer(Pid) end || Pid <- processes()]).

process_tracer(Pid) ->
    case erlang:trace_info(Pid, tracer) of
        {tracer, []} -> none;
        {tracer, {?TRACER, _State}} -> none;
        {tracer, Tracer} -> {process, Pid, Tracer};
        undefined -> none
    end.

traced_function() ->
    first([fun() -> function_pattern(MFA) end || MFA <- all_functions()]).

all_functions() ->
    [{Module, F, A} || {Module, _File} <- code:all_loaded(), {F, A} <- functions(Module)].

functions(Module) ->
    try Module:module_info(functions)
    catch error:_ -> []
    end.

function_pattern(MFA) ->
    case erlang:trace_info(MFA, traced) of
        {traced, Traced} when Traced =:= false; Traced =:= undefined -> none;
        {traced, _} -> {function, MFA}
    end.
