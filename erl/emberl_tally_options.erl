%% SPDX-License-Identifier: Apache-2.0
%% @private
%% Checks what the user asks for of tallies, before anything is touched.
-module(emberl_tally_options).

-export([profile/1, record/1, server/1, filters/1, sort_by/1, sort_by/2, tracing/1, processes/1,
         process/1, pattern/1, milliseconds/1]).
-export_type([profile/0]).

-type profile() ::
        #{type := all | emberl_tally:measure(),
          stacks := boolean() | auto, % auto: record alone
          engine := auto | emberl_tally:engine(),
          pattern := [emberl_counters:pattern()],
          set_on_spawn := boolean(),
          rootset := all | new | existing | [pid() | atom()]
                   | {children | all_children, pid() | atom()},
          timeout := timeout(),
          report := process | total | return | {process | total, emberl_tally:sort_by()},
          device := io:device()}.

%% Modules in patterns are loaded.
-spec profile(map() | [term()]) -> {ok, profile()} | {error, emberl_options:refusal()}.
profile(Given) ->
    emberl_options:parse(Given, (defaults())#{rootset => [], timeout => infinity}, fun check/2).

%% Those of tallies, and those of profiles that were given, for the tracer.
-spec record(map() | [term()]) ->
          {ok, {profile(), Given :: map(), emberl_options:options()}} |
          {error, emberl_options:refusal()}.
record(Given) ->
    Defaults = (defaults())#{rootset => existing, stacks => auto},
    try
        All = emberl_options:to_map(Given),
        known(maps:keys(All), maps:keys(Defaults) ++ emberl_options:keys(record)),
        ForProfile = maps:with(emberl_options:keys(record), All),
        Tally = emberl_options:parse(maps:without(maps:keys(ForProfile), All), Defaults,
                                     fun check/2),
        recorded(Tally, ForProfile, emberl_options:parse(record, ForProfile))
    catch
        throw:{bad_option, _, _} = Refusal -> {error, Refusal}
    end.

known(Keys, Known) ->
    [refuse(Key, ["unknown option; there are ",
                  lists:join(", ", [atom_to_list(K) || K <- lists:sort(Known)])])
     || Key <- Keys -- Known],
    ok.

recorded({ok, _}, #{return := value}, _Profile) ->
    {error,
     emberl_options:refusal(bad_option, return,
                            "there is no value: filename, flamegraph, profile, data or all")};
recorded({ok, Tally}, Given, {ok, Profile}) ->
    {ok, {Tally, Given, Profile}};
recorded({error, Refusal}, _Given, _Profile) ->
    {error, Refusal};
recorded(_Tally, _Given, {error, Refusal}) ->
    {error, Refusal}.

defaults() ->
    #{type => all, stacks => false, engine => auto, pattern => [{'_', '_', '_'}],
      set_on_spawn => true, report => process, device => standard_io}.

-spec server(map() | [term()]) -> {ok, map()} | {error, emberl_options:refusal()}.
server(Given) ->
    emberl_options:parse(Given, #{type => all, session => undefined}, fun check_counter/2).

check_counter(type, Type) -> counted(check(type, Type));
check_counter(Key, Value) -> check(Key, Value).

counted(all) -> all;
counted(Type) ->
    lists:member(Type, emberl_counters:supported())
        orelse refuse(type, "the VM counts words from OTP 26 on"),
    Type.

%% Of enable_trace and disable_trace.
-spec tracing(map() | [term()]) ->
          {ok, #{set_on_spawn := boolean()}} | {error, emberl_options:refusal()}.
tracing(Given) ->
    emberl_options:parse(Given, #{set_on_spawn => true}, fun check/2).

-spec filters(emberl_tally:filters()) ->
          {ok, #{modules := all | [module()], process := all | pid() | atom()}}
              | {error, emberl_options:refusal()}.
filters(Given) ->
    emberl_options:parse(Given, #{modules => all, process => all}, fun check/2).

-spec sort_by(term()) ->
          {ok, {emberl_tally:column(), ascending | descending}} | {error, emberl_options:refusal()}.
sort_by({Column, Direction}) ->
    case lists:member(Column, columns()) andalso lists:member(Direction, [ascending, descending]) of
        true -> {ok, {Column, Direction}};
        false -> {error, emberl_options:refusal(bad_option, sort, sort_text({Column, Direction}))}
    end;
sort_by(Column) ->
    sort_by({Column, ascending}).

%% Of what was measured, or will be.
-spec sort_by(term(), [emberl_tally:measure()]) ->
          {ok, {emberl_tally:column(), ascending | descending}} | {error, emberl_options:refusal()}.
sort_by(Sort, Measures) ->
    case sort_by(Sort) of
        {ok, {Column, _}} when Column =:= time; Column =:= words ->
            measured(Column, Sort, Measures);
        Result -> Result
    end.

measured(Column, Sort, Measures) ->
    case lists:member(case Column of time -> call_time; words -> call_memory end, Measures) of
        true -> sort_by(Sort);
        false -> {error, emberl_options:refusal(bad_option, sort,
                                                [atom_to_list(Column), " was not measured"])}
    end.

columns() ->
    [module, function, calls, time, words, measurement, measurement_per_call, percent].

sort_text(Value) ->
    [io_lib:format("~0tp is not a column, or {Column, ascending | descending}; there are ",
                   [Value]),
     lists:join(", ", [atom_to_list(Column) || Column <- columns()])].

-spec milliseconds(term()) -> {ok, pos_integer()} | {error, emberl_options:refusal()}.
milliseconds(Ms) when is_integer(Ms), Ms > 0, Ms =< 16#ffffffff -> {ok, Ms};
milliseconds(Ms) ->
    {error, emberl_options:refusal(bad_timeout, Ms,
                                   "how long to record is a number of milliseconds above 0")}.

%% ---- values ----

check(type, Value) ->
    one_of(type, Value, [all, call_count, call_time, call_memory]);
check(engine, Value) -> one_of(engine, Value, [auto, counters, tracer]);
check(pattern, {_, _, _} = Pattern) -> [checked_pattern(Pattern)];
check(pattern, [_ | _] = Patterns) when length(Patterns) > 0 ->
    [checked_pattern(P) || P <- Patterns];
check(pattern, _) -> refuse(pattern, "a pattern is {Module, Function, Arity}, or a list of these");
check(rootset, Value) -> rootset(Value);
check(timeout, infinity) -> infinity;
check(timeout, Ms) when is_integer(Ms), Ms > 0, Ms =< 16#ffffffff -> Ms;
check(timeout, _) -> refuse(timeout, "a number of milliseconds above 0, or infinity");
check(report, Value) when Value =:= process; Value =:= total; Value =:= return -> Value;
check(report, {Kind, Sort}) when Kind =:= process; Kind =:= total ->
    case sort_by(Sort) of
        {ok, _} -> {Kind, Sort};
        {error, {_, _, Text}} -> refuse(report, Text)
    end;
check(report, _) -> refuse(report, "process, total, return, {process, Sort} or {total, Sort}");
check(device, []) -> standard_io;
check(device, Value) ->
    is_device(Value)
        orelse refuse(device, io_lib:format("~0tp is no io device that is open", [Value])),
    Value;
check(session, Value) when is_atom(Value) -> Value;
check(session, _) -> refuse(session, "an atom");
check(process, Value) when is_pid(Value); is_atom(Value) -> Value;
check(process, _) -> refuse(process, "all, a pid or the registered name of a process");
check(modules, Value) -> modules(Value);
check(_Flag, Value) when is_boolean(Value) -> Value;
check(Flag, _) -> refuse(Flag, "true or false").

is_device(Name) when Name =:= standard_io; Name =:= standard_error -> true;
is_device(Name) when is_atom(Name) -> whereis(Name) =/= undefined;
is_device(Pid) when is_pid(Pid), node(Pid) =:= node() -> is_process_alive(Pid);
is_device(Device) ->
    is_pid(Device) orelse is_tuple(Device) andalso element(1, Device) =:= file_descriptor.

one_of(Key, Value, Values) ->
    lists:member(Value, Values)
        orelse refuse(Key, lists:join(" or ", [atom_to_list(V) || V <- Values])),
    Value.

modules(all) -> all;
modules({app, Name}) when is_atom(Name) ->
    case application:get_key(Name, modules) of
        {ok, Modules} -> Modules;
        undefined -> refuse(modules, "the application is not loaded")
    end;
modules([_ | _] = Modules) when length(Modules) > 0 ->
    lists:all(fun is_atom/1, Modules) orelse refuse(modules, "a list of modules"),
    Modules;
modules(_) ->
    refuse(modules, "all, a list of modules or {app, Name}").

%% ---- patterns ----

%% Loads the module, so that there is something to count.
-spec pattern(term()) -> {ok, emberl_counters:pattern()} | {error, emberl_options:refusal()}.
pattern(Pattern) ->
    try {ok, checked_pattern(Pattern)}
    catch throw:{bad_option, _, _} = Refusal -> {error, Refusal}
    end.

checked_pattern({'_', '_', '_'} = Pattern) ->
    Pattern;
checked_pattern({'_', _, _}) ->
    refuse(pattern, "with '_' for the module, function and arity are '_' too");
checked_pattern({Module, '_', Arity}) when is_atom(Module), Arity =/= '_' ->
    refuse(pattern, "with '_' for the function, the arity is '_' too");
checked_pattern({Module, Function, Arity} = Pattern)
  when is_atom(Module), is_atom(Function), Arity =:= '_' orelse is_integer(Arity) ->
    lists:member(Module, emberl_trace:own_modules())
        andalso refuse(pattern, "emberl does not profile itself"),
    loaded(code:ensure_loaded(Module), Pattern),
    Pattern;
checked_pattern(_) ->
    refuse(pattern, "a pattern is {Module, Function, Arity}, each of them '_' or given").

loaded({error, Reason}, {Module, _, _}) ->
    refuse(pattern, io_lib:format("module ~tp cannot be loaded: ~tp", [Module, Reason]));
loaded({module, Module}, {Module, Function, Arity}) ->
    [] =/= [F || {F, A} <- emberl_counters:functions(Module),
                 Function =:= '_' orelse Function =:= F, Arity =:= '_' orelse Arity =:= A]
        orelse refuse(pattern,
                      io_lib:format("there is no function ~tp:~tp/~tp", [Module, Function, Arity])).

%% ---- processes ----

%% Of what there is to be counted: all of it must be there.
-spec processes(term()) ->
          {ok, all | new | existing | [pid()] | {children | all_children, pid()}} |
          {error, emberl_options:refusal()}.
processes(Value) ->
    try {ok, rootset(Value)}
    catch throw:{bad_option, _, _} = Refusal -> {error, Refusal}
    end.

%% A pid or a name, whether there is such a process or not.
-spec process(term()) -> {ok, pid() | atom()} | {error, emberl_options:refusal()}.
process(Process) when is_atom(Process); is_pid(Process), node(Process) =:= node() -> {ok, Process};
process(Other) -> {error, emberl_options:refusal(bad_option, rootset, not_a_process(Other))}.

not_a_process(Term) ->
    io_lib:format("~0tp is neither a pid of this node nor a registered name", [Term]).

rootset(Value) when Value =:= all; Value =:= new; Value =:= existing -> Value;
rootset({Kind, Process}) when Kind =:= children; Kind =:= all_children ->
    {Kind, existing_process(Process)};
rootset(Processes) when length(Processes) >= 0 -> [existing_process(P) || P <- Processes];
rootset(Process) when is_pid(Process); is_atom(Process) -> [existing_process(Process)];
rootset(_) ->
    refuse(rootset,
           "a list of pids and names, all, new, existing, {children, P} or {all_children, P}").

existing_process(Pid) when is_pid(Pid), node(Pid) =:= node() ->
    is_process_alive(Pid) orelse refuse(rootset, [pid_to_list(Pid), " is not alive"]),
    Pid;
existing_process(Name) when is_atom(Name) ->
    case whereis(Name) of
        Pid when is_pid(Pid) -> Pid;
        _ -> refuse(rootset, ["there is no process called ", atom_to_binary(Name)])
    end;
existing_process(Other) ->
    refuse(rootset, not_a_process(Other)).

-spec refuse(atom(), iodata()) -> no_return().
refuse(Key, Text) ->
    emberl_options:refuse(bad_option, Key, Text).
