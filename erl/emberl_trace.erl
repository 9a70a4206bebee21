%% SPDX-License-Identifier: Apache-2.0
%% @private
%% The VM's tracing, the same on every release.
%%
%% From ERTS 15.1 on (OTP 27.1) we trace in sessions of our own and see nothing
%% of others. One session traces processes; collections may be traced in one
%% session only, or the VM crashes (erlang/otp#11624). Each target has a second
%% session, which traces no process: its meta breakpoint tells us that the
%% target is called and when that call ends. Two sessions, since the tracer's
%% state is the session's, and tells the targets apart.
%%
%% Before that there is one trace for the node. Meta breakpoints there have
%% tracers of their own, so one breakpoint does both. We refuse to start when
%% somebody else traces, and clear what we set.
-module(emberl_trace).

-export([uses_sessions/0, stack_layout/0, own_modules/0, open/1, close/1, set_modules/2, set_target/3,
         clear_target/3]).
-export_type([trace/0]).

-define(TRACER, emberl_nif).
-define(MAIN, 127).
-define(FLAGS, [call, return_to, arity, running, garbage_collection, procs, set_on_spawn]).

-type target() :: 0..63.
-opaque trace() :: #{generation := pos_integer(),
                     main := term(),
                     targets := #{target() => term()}}.

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
        false -> open_legacy(Generation, other_tracer())
    end.

open_legacy(Generation, none) -> {ok, new(Generation, legacy)};
open_legacy(_Generation, Other) -> {error, {other_tracer, Other}}.

new(Generation, Main) ->
    #{generation => Generation, main => Main, targets => #{}}.

state(Generation, Target) ->
    Generation * 128 + Target.

-spec close(trace()) -> ok.
close(#{main := legacy, targets := Targets}) ->
    [erlang:trace_pattern(MFA, false, [meta]) || MFA <- maps:values(Targets)],
    erlang:trace_pattern(on_load, false, [local]), % first: else a module loaded now would keep some
    erlang:trace_pattern({'_', '_', '_'}, false, [local]),
    lists:foreach(fun untrace/1, processes()),
    ok;
close(#{main := Main, targets := Targets}) ->
    lists:foreach(fun destroy/1, [Session || {Session, _MFA} <- maps:values(Targets)]),
    destroy(Main).

%% The type of trace_info/2 does not have tracer modules.
-dialyzer({nowarn_function, [untrace/1, clear_flags/1, process_tracer/1]}).

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
%% but for our own. The set only grows while a trace is open.
-spec set_modules(trace(), all | [module()]) -> ok.
set_modules(#{main := Main}, Modules) ->
    pattern(Main, on_load, true, [local]),
    set_loaded(Main, Modules).

set_loaded(Main, all) ->
    pattern(Main, {'_', '_', '_'}, true, [local]),
    [pattern(Main, {Module, '_', '_'}, false, [local]) || Module <- [emberl_calibrate | own_modules()]],
    ok;
set_loaded(Main, Modules) ->
    [pattern(Main, {Module, '_', '_'}, true, [local]) || Module <- Modules -- own_modules()],
    ok.

-spec own_modules() -> [module()].
own_modules() ->
    [emberl, emberl_app, emberl_sup, emberl_nif, emberl_trace, emberl_server, emberl_janitor,
     emberl_call, emberl_layout, emberl_options, emberl_output, emberl_profile].

%% {error, undefined} when there is no such function to set a breakpoint on.
-spec set_target(trace(), target(), mfa()) -> {ok, trace()} | {error, undefined}.
set_target(#{generation := Generation, main := legacy, targets := Targets} = Trace, Target, MFA) ->
    Main = {{tracer, ?TRACER, state(Generation, ?MAIN)}},
    Spec = [{'_', [], [{trace, [], ?FLAGS ++ [Main]}, {exception_trace}]}],
    Meta = [{meta, ?TRACER, state(Generation, Target)}],
    set_result(erlang:trace_pattern(MFA, Spec, Meta), Trace#{targets := Targets#{Target => MFA}});
set_target(#{generation := Generation, main := Main, targets := Targets} = Trace, Target, MFA) ->
    Session = create(target_session, state(Generation, Target)),
    Start = [{'_', [], [{trace, [], ?FLAGS}, {message, false}]}],
    Count = pattern(Main, MFA, Start, [meta]),
    pattern(Session, MFA, [{'_', [], [{exception_trace}]}], [meta]),
    set_result(Count, Trace#{targets := Targets#{Target => {Session, MFA}}}).

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

%% ---- sessions ----

create(main_session, State) -> trace:session_create(emberl, {?TRACER, State}, []);
create(target_session, State) -> trace:session_create(emberl_target, {?TRACER, State}, []).

destroy(Session) ->
    trace:session_destroy(Session),
    ok.

pattern(legacy, MFA, Spec, Options) -> erlang:trace_pattern(MFA, Spec, Options);
pattern(Session, MFA, Spec, Options) -> trace:function(Session, MFA, Spec, Options).

%% ---- other tracers, where the node has one trace ----

other_tracer() ->
    first([fun new_process_flags/0, fun traced_process/0, fun traced_function/0]).

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
    first([fun() -> module_pattern(Module) end || {Module, _File} <- code:all_loaded()]).

module_pattern(Module) ->
    first([fun() -> function_pattern({Module, F, A}) end || {F, A} <- functions(Module)]).

functions(Module) ->
    try Module:module_info(functions)
    catch error:_ -> []
    end.

function_pattern(MFA) ->
    case erlang:trace_info(MFA, traced) of
        {traced, Traced} when Traced =:= false; Traced =:= undefined -> none;
        {traced, _} -> {function, MFA}
    end.
