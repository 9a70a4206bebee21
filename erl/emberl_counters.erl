%% SPDX-License-Identifier: Apache-2.0
%% @private
%% The VM's counters: breakpoints that count calls, time and heap words by
%% themselves. From ERTS 15.1 on (OTP 27.1) they stand in a trace session of their
%% own; before that in the node's one trace, which is refused when somebody else
%% has it.
%%
%% To read a time or words counter the VM stops the whole node, once a function. So
%% calls are always counted too, which are read without that, and the others only of
%% functions that were called.
%%
%% Counters belong to the process that opens them and end with it.
-module(emberl_counters).

-export([supported/0, open/1, close/1, set/2, clear/2, ignore_loaded/1, pause/2, restart/1, trace/4,
         read/2, watch_loading/1, functions/1, shares_words/2]).
-export_type([counters/0, measure/0, pattern/0, reading/0]).

-type measure() :: call_count | call_time | call_memory.
-type pattern() :: {module() | '_', atom(), arity() | '_'}.
-type reading() ::
        {mfa(), [{pid() | all, Calls :: pos_integer(), Us :: non_neg_integer() | undefined,
                  Words :: non_neg_integer() | undefined}]}.
-opaque counters() :: #{session := term(), measures := [measure()], flags := [measure()]}.

-define(LOCK, emberl_counters).

%% What this release can count.
-spec supported() -> [measure()].
supported() ->
    case list_to_integer(erlang:system_info(otp_release)) >= 26 of
        true -> [call_count, call_time, call_memory];
        false -> [call_count, call_time]
    end.

-spec open([measure()]) -> {ok, counters()} | {error, {other_tracer, term()}}.
open(Measures) ->
    ok = code:ensure_modules_loaded(emberl_trace:own_modules()),
    case emberl_trace:uses_sessions() of
        true -> {ok, new(trace:session_create(?LOCK, self(), []), Measures)};
        false -> open_legacy(Measures)
    end.

new(Session, Measures) ->
    #{session => Session, measures => Measures, flags => lists:usort([call_count | Measures])}.

%% Whether another session counts words of one of these functions too. In a process that
%% both trace the VM gives one of them right numbers, and the other the words of functions
%% as those of the ones they call (OTP 27 and 29).
-spec shares_words(counters(), [mfa()]) -> boolean().
shares_words(#{session := {legacy, _}}, _MFAs) -> false;
shares_words(#{measures := Measures}, MFAs) ->
    lists:member(call_memory, Measures) andalso lists:any(fun has_words_twice/1, MFAs).

has_words_twice(MFA) ->
    case trace:session_info(MFA) of
        [_, _ | _] = Sessions -> length([S || S <- Sessions, has_words(S, MFA)]) > 1;
        _ -> false
    end.

%% It may be gone by now.
has_words(Session, MFA) ->
    try trace:info(Session, MFA, call_memory) of
        {call_memory, Words} -> is_list(Words)
    catch
        error:badarg -> false
    end.

-spec close(counters()) -> ok.
close(#{session := {legacy, Janitor}}) ->
    Monitor = erlang:monitor(process, Janitor),
    Janitor ! {close, self()},
    receive {'DOWN', Monitor, process, Janitor, _} -> ok end;
close(#{session := Session}) ->
    trace:session_destroy(Session),
    ok.

%% ---- where the node has one trace ----

%% A process that holds the name, so that there is one, and that outlives its owner
%% to clean up.
open_legacy(Measures) ->
    Owner = self(),
    Flags = maps:get(flags, new(none, Measures)),
    {Janitor, Monitor} = spawn_monitor(fun() -> hold(Owner, Flags) end),
    receive
        {Janitor, ready} ->
            erlang:demonitor(Monitor, [flush]),
            {ok, new({legacy, Janitor}, Measures)};
        {'DOWN', Monitor, process, Janitor, Other} ->
            {error, {other_tracer, Other}}
    end.

hold(Owner, Flags) ->
    process_flag(sensitive, true),
    process_flag(priority, high), % each question waits for whoever loads code or sets breakpoints
    [exit(Other) || Other <- [emberl_trace:other_tracer(), other_counter()], Other =/= none],
    process_flag(priority, normal),
    take(),
    Monitor = erlang:monitor(process, Owner),
    Owner ! {self(), ready},
    receive
        {close, Owner} -> ok;
        {'DOWN', Monitor, process, Owner, _} -> ok
    end,
    clean_up(Flags).

%% Others may count calls while we trace, but not while we count them.
other_counter() ->
    case [MFA || {Module, _} <- code:all_loaded(), {F, A} <- functions(Module),
                 MFA <- [{Module, F, A}],
                 {call_count, Count} <- [erlang:trace_info(MFA, call_count)], is_integer(Count)] of
        [MFA | _] -> {function, MFA};
        [] -> none
    end.

take() ->
    try register(?LOCK, self())
    catch error:badarg -> exit({process, whereis(?LOCK)})
    end.

clean_up(Flags) ->
    [erlang:trace_pattern(MFA, false, [meta]) || MFA <- loaders()],
    erlang:trace_pattern(on_load, false, Flags),
    erlang:trace_pattern({'_', '_', '_'}, false, Flags).

%% ---- functions ----

%% Counts calls to functions that are loaded, and with three '_' to those of modules
%% loaded later, from zero on; returns how many there are. Our own are left out.
-spec set(counters(), pattern()) -> non_neg_integer().
set(#{flags := Flags} = Counters, {'_', '_', '_'} = All) ->
    pattern(Counters, on_load, true, Flags),
    Count = pattern(Counters, All, true, Flags),
    Count - lists:sum([pattern(Counters, {Module, '_', '_'}, false, Flags) || Module <- hidden()]);
set(#{flags := Flags} = Counters, {Module, _, _} = Pattern) ->
    case lists:member(Module, hidden()) of
        true -> 0;
        false -> pattern(Counters, Pattern, true, Flags)
    end.

%% Theirs is the work of profiling itself.
hidden() ->
    [trace, emberl_calibrate | emberl_trace:own_modules()].

-spec clear(counters(), pattern()) -> non_neg_integer().
clear(#{flags := Flags} = Counters, {'_', '_', '_'} = All) ->
    pattern(Counters, on_load, false, Flags),
    pattern(Counters, All, false, Flags);
clear(#{flags := Flags} = Counters, Pattern) ->
    pattern(Counters, Pattern, false, Flags).

%% Not those of modules loaded later.
-spec ignore_loaded(counters()) -> ok.
ignore_loaded(#{flags := Flags} = Counters) ->
    _ = pattern(Counters, on_load, false, Flags),
    ok.

%% Functions without counters are left alone.
-spec pause(counters(), pattern()) -> ok.
pause(#{flags := Flags} = Counters, Pattern) ->
    _ = pattern(Counters, Pattern, pause, Flags),
    ok.

%% From zero again, for those that only count calls: the VM must not lose a counter of
%% the other kinds during a call (before ERTS 15.1).
-spec restart(counters()) -> ok.
restart(#{measures := [call_count]} = Counters) ->
    _ = pattern(Counters, {'_', '_', '_'}, restart, [call_count]),
    ok.

%% erlang:trace_pattern/3 would call others, which would be counted.
pattern(#{session := {legacy, _}}, MFA, Spec, Flags) ->
    erts_internal:trace_pattern(MFA, Spec, Flags);
pattern(#{session := Session}, MFA, Spec, Flags) -> trace:function(Session, MFA, Spec, Flags).

%% ---- processes ----

%% Time and words are counted of these; returns how many there were.
-spec trace(counters(), pid() | all | new | existing, boolean(), Spawned :: boolean()) ->
          non_neg_integer().
trace(#{session := Session}, Processes, How, Spawned) ->
    Flags = [call, silent | [set_on_spawn || Spawned orelse not How]],
    try
        case Session of
            {legacy, _} -> erlang:trace(Processes, How, Flags);
            _ -> trace:process(Session, Processes, How, Flags)
        end
    catch
        error:badarg when is_pid(Processes) -> 0
    end.

%% ---- loading ----

%% The owner gets trace messages when code is asked for, when it is prepared and when it is
%% put in place, of calls to these functions and of their ends.
-spec watch_loading(counters()) -> ok.
watch_loading(Counters) ->
    Spec = [{'_', [], [{return_trace}]}],
    lists:foreach(fun(MFA) -> meta(Counters, MFA, Spec) end, loaders()).

loaders() ->
    [{code, load_file, 1}, {code, load_binary, 3},
     {erts_internal, prepare_loading, 2}, {erlang, finish_loading, 1}].

meta(#{session := {legacy, _}}, MFA, Spec) -> erlang:trace_pattern(MFA, Spec, [{meta, self()}]);
meta(#{session := Session}, MFA, Spec) -> trace:function(Session, MFA, Spec, [meta]).

%% ---- reading ----

%% The functions of a module; none when it is not loaded.
-spec functions(module()) -> [{atom(), arity()}].
functions(Module) ->
    try erlang:get_module_info(Module, functions)
    catch error:badarg -> []
    end.

%% Of those functions that were called.
-spec read(counters(), [mfa()]) -> [reading()].
read(Counters, MFAs) ->
    [{MFA, Rows} || MFA <- MFAs, Calls <- [calls(Counters, MFA)], Calls > 0,
                    Rows <- [rows(Counters, MFA, Calls)], Rows =/= []].

calls(Counters, MFA) ->
    case info(Counters, MFA, call_count) of
        {call_count, Calls} when is_integer(Calls) -> Calls;
        _ -> 0
    end.

rows(#{measures := [call_count]}, _MFA, Calls) ->
    [{all, Calls, undefined, undefined}];
rows(#{measures := Measures} = Counters, MFA, _Calls) ->
    Times = [{Pid, Calls, S * 1000000 + Us}
             || lists:member(call_time, Measures),
                {Pid, Calls, S, Us} <- values(Counters, MFA, call_time)],
    Words = [Row || lists:member(call_memory, Measures), Row <- values(Counters, MFA, call_memory)],
    joined(lists:sort(Times), lists:sort(Words), lists:member(call_time, Measures),
           lists:member(call_memory, Measures)).

joined(Times, _, true, false) -> [{Pid, Calls, Us, undefined} || {Pid, Calls, Us} <- Times];
joined(_, Words, false, true) -> [{Pid, Calls, undefined, W} || {Pid, Calls, W} <- Words];
joined(Times, Words, true, true) -> joined(Times, Words).

%% The two are not read at the same moment: a process may be in one of them only.
joined([{Pid, N, Us} | Times], [{Pid, M, W} | Words]) ->
    [{Pid, max(N, M), Us, W} | joined(Times, Words)];
joined([{P, N, Us} | Times], [{Q, _, _} | _] = Words) when P < Q ->
    [{P, N, Us, 0} | joined(Times, Words)];
joined(Times, [{Pid, N, W} | Words]) -> [{Pid, N, 0, W} | joined(Times, Words)];
joined(Times, []) -> [{Pid, N, Us, 0} || {Pid, N, Us} <- Times].

values(Counters, MFA, Measure) ->
    case info(Counters, MFA, Measure) of
        {Measure, Rows} when is_list(Rows) -> Rows;
        _ -> []
    end.

info(#{session := {legacy, _}}, MFA, Key) -> erlang:trace_info(MFA, Key);
info(#{session := Session}, MFA, Key) -> trace:info(Session, MFA, Key).
