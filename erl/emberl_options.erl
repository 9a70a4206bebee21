%% SPDX-License-Identifier: Apache-2.0
%% @private
%% Checks what the user asks for, before anything is touched. Every refusal is
%% a term for programs and a text for people.
-module(emberl_options).

-export([parse/2, parse/3, to_map/1, keys/1, refuse/3, target/1, applied/1, caller/0, calls/1,
         capture/1, wait/1, top/1, diff/1, filter/1, query/1, format/2, is_name/1, refusal/3]).
-export_type([options/0, refusal/0]).

-type options() :: #{return := value | filename | flamegraph | profile | data | all,
                     output_format := atom(),
                     output_directory := file:filename_all(),
                     output_file := undefined | file:filename_all(),
                     open := none | browser | speedscope | hotspot | file:filename_all(),
                     metric := own_time | words | calls | binaries,
                     modules := all | [module()],
                     spawned := boolean(),
                     merge := boolean(),
                     timeout := timeout(),
                     memory_limit := pos_integer() | infinity,
                     fold_recursion := boolean(),
                     compensate := boolean(),
                     timeline := boolean(),
                     quiet := boolean(),
                     keep := all | {slower_than, number()},
                     every := pos_integer(),
                     arm := eager | lazy | {lazy, pos_integer()},
                     writes := boolean()}. % files: follows from the others
-type refusal() :: {bad_option, term(), Text :: binary()}
                 | {bad_target, term(), Text :: binary()}
                 | {bad_count, term(), Text :: binary()}
                 | {bad_timeout, term(), Text :: binary()}
                 | {bad_capture, term(), Text :: binary()}
                 | {bad_tally, term(), Text :: binary()}
                 | {bad_time, term(), Text :: binary()}
                 | {no_data | unreadable | unknown_sampler, term(), Text :: binary()}
                 | {too_many_captures | unknown_capture | unavailable | not_traced | write_failed |
                    format_failed | out_of_memory, term(), Text :: binary()}.

%% ---- options ----

%% A map or a proplist; of a key given twice the first counts, as in eflambe.
%% (Where length/1 is a guard in this module, it keeps improper lists out.)
-spec parse(apply | capture | record, map() | [term()]) -> {ok, options()} | {error, refusal()}.
parse(Kind, Given) ->
    try
        Options = maps:fold(fun check/3, defaults(Kind), to_map(Given)),
        {ok, Options#{modules := found(modules(maps:get(modules, Options))),
                      writes => writes(Kind, maps:get(return, Options))}}
    catch
        throw:Refusal -> {error, Refusal}
    end.

%% As eflambe does, apply writes a file beside the value.
writes(apply, value) -> true;
writes(_Kind, Return) -> Return =:= filename orelse Return =:= all.

%% Options that another module knows: what Check makes of a key's value is taken; it
%% refuses with refuse/3.
-spec parse(map() | [term()], #{atom() => term()}, fun((atom(), term()) -> term())) ->
          {ok, map()} | {error, refusal()}.
parse(Given, Defaults, Check) ->
    try
        {ok, maps:fold(fun(Key, Value, Options) ->
                               known(Key, Options),
                               Options#{Key := Check(Key, Value)}
                       end, Defaults, to_map(Given))}
    catch
        throw:{bad_option, _, _} = Refusal -> {error, Refusal}
    end.

%% What can be asked for.
-spec keys(record) -> [atom()].
keys(record = Kind) -> % there are no calls
    maps:keys(defaults(Kind)) -- [timeout, merge, keep, every, arm].

defaults(record) -> (defaults())#{return => profile, timeout => infinity};
defaults(apply) -> (defaults())#{return => value, timeout => infinity};
defaults(capture) -> (defaults())#{return => filename, timeout => 60000}.

defaults() ->
    #{output_format => html,
      output_directory => ".",
      output_file => undefined,
      open => none,
      metric => own_time,
      modules => all,
      spawned => true,
      merge => false,
      keep => all,
      every => 1,
      arm => eager,
      memory_limit => 256 * 1024 * 1024,
      fold_recursion => true,
      compensate => true,
      timeline => false,
      quiet => false}.

%% What emberl:top/2 and print/2 take: also a number alone.
-spec top(pos_integer() | map() | [term()]) -> {ok, emberl_report:options()} | {error, refusal()}.
top(Count) when is_integer(Count) ->
    top(#{count => Count});
top(Given) ->
    some(Given, #{count => 20, sort => default, process => all, modules => all}).

%% What emberl_profile:format/3 and write/4 take.
-spec format(term(), map() | [term()]) ->
          {ok, #{metric := atom(), width := atom()}} | {error, refusal()}.
format(Format, Given) ->
    case is_allowed(output_format, Format) of
        true ->
            some(Given, #{metric => own_time, width => 'after'});
        false ->
            refused(bad_option, output_format,
                    io_lib:format("~0tp is not ~ts", [Format, allowed(output_format)]))
    end.

%% What emberl_profile:diff/3 takes.
-spec diff(map() | [term()]) -> {ok, #{normalise := calls | time | none}} | {error, refusal()}.
diff(Given) ->
    some(Given, #{normalise => calls}).

%% What emberl_profile:filter/2 takes.
-spec filter(map() | [term()]) ->
          {ok, #{process := term(), modules := all | [module()]}} | {error, refusal()}.
filter(Given) ->
    some(Given, #{process => all, modules => all}).

%% What emberl:query/4 takes.
-spec query(map() | [term()]) ->
          {ok, #{process := term(), modules := all | [module()], details := boolean()}} |
          {error, refusal()}.
query(Given) ->
    some(Given, #{process => all, modules => all, details => false}).

some(Given, Defaults) ->
    try
        Options = maps:fold(fun check/3, Defaults, to_map(Given)),
        {ok, maps:map(fun some_value/2, Options)}
    catch
        throw:Refusal -> {error, Refusal}
    end.

some_value(modules, Modules) -> modules(Modules);
some_value(_Key, Value) -> Value.

%% Refuses what is neither.
-spec to_map(map() | [term()]) -> map().
to_map(Given) when is_map(Given) -> Given;
to_map(Given) when length(Given) >= 0 -> maps:from_list(lists:reverse([pair(P) || P <- Given]));
to_map(Given) -> refuse(bad_option, Given, "options are a map or a proplist").

pair({Key, Value}) -> {Key, Value};
pair(Key) when is_atom(Key) -> {Key, true};
pair(Other) -> refuse(bad_option, Other, "a proplist holds {Key, Value} and Key").

check(Key, Value, Options) ->
    known(Key, Options),
    Options#{Key := checked(Key, Value)}.

known(Key, Options) ->
    maps:is_key(Key, Options)
        orelse refuse(bad_option, Key, ["unknown option; there are ", names(Options)]).

names(Options) ->
    lists:join(", ", [atom_to_list(Key) || Key <- lists:sort(maps:keys(Options))]).

checked(Key, Value) ->
    case is_allowed(Key, Value) of
        true -> Value;
        false -> refuse(bad_option, Key, io_lib:format("~0tp is not ~ts", [Value, allowed(Key)]))
    end.

is_allowed(return, Value) ->
    lists:member(Value, [value, filename, flamegraph, profile, data, all]);
is_allowed(output_format, Value) ->
    lists:keymember(Value, 1, emberl_nif:views());
is_allowed(output_directory, Value) ->
    is_name(Value);
is_allowed(output_file, Value) ->
    is_name(Value) andalso filename:basename(Value) =:= Value;
is_allowed(open, Value) ->
    lists:member(Value, [none, browser, speedscope, hotspot]) orelse is_name(Value);
is_allowed(metric, Value) ->
    lists:member(Value, [own_time, words, calls, binaries]);
is_allowed(modules, Value) ->
    Value =:= all orelse is_application(Value) orelse is_module_list(Value);
is_allowed(count, Value) ->
    Value =:= all orelse is_natural(Value, 16#ffffffff);
is_allowed(sort, Value) ->
    lists:member(Value, [own_time, total_time, waiting, words, calls, binaries]);
is_allowed(process, Value) ->
    is_pid(Value) orelse is_atom(Value) orelse is_name(Value);
is_allowed(width, Value) ->
    lists:member(Value, ['after', before]);
is_allowed(normalise, Value) ->
    lists:member(Value, [calls, time, none]);
is_allowed(timeout, Value) ->
    Value =:= infinity orelse is_natural(Value, 16#ffffffff);
is_allowed(memory_limit, Value) ->
    Value =:= infinity orelse is_natural(Value, 1 bsl 60) andalso Value >= 1024 * 1024;
is_allowed(keep, {slower_than, Ms}) ->
    is_number(Ms) andalso Ms > 0 andalso Ms =< 16#ffffffff;
is_allowed(keep, Value) ->
    Value =:= all;
is_allowed(every, Value) ->
    is_natural(Value, 1 bsl 60);
is_allowed(arm, {lazy, Pause}) ->
    is_natural(Pause, 16#ffffffff);
is_allowed(arm, Value) ->
    lists:member(Value, [eager, lazy]);
is_allowed(_Flag, Value) ->
    is_boolean(Value).

allowed(return) -> "value, filename, flamegraph, profile, data or all";
allowed(output_format) -> lists:join(" or ", formats());
allowed(output_directory) -> "the name of a directory";
allowed(output_file) -> "the base name of a file";
allowed(open) -> "browser, speedscope, hotspot or the name of a program";
allowed(metric) -> "own_time, words, calls or binaries";
allowed(modules) -> "all, a list of modules or {app, Name} of an application that is loaded";
allowed(count) -> "a number above 0, or all";
allowed(sort) -> "own_time, total_time, waiting, words, calls or binaries";
allowed(process) -> "all, a pid or the name of a process";
allowed(width) -> "after or before";
allowed(normalise) -> "calls, time or none";
allowed(timeout) -> "a number of milliseconds from 1 to 4294967295, or infinity";
allowed(memory_limit) -> "a number of bytes, at least 1048576, or infinity";
allowed(keep) -> "all or {slower_than, Milliseconds}";
allowed(every) -> "a number above 0";
allowed(arm) -> "eager, lazy or {lazy, Milliseconds}";
allowed(_Flag) -> "true or false".

formats() ->
    Others = [atom_to_list(V) || {V, _} <- emberl_nif:views(), V =/= html, V =/= perf_symbols],
    ["html" | lists:sort(Others)].

is_natural(Value, Max) ->
    is_integer(Value) andalso Value > 0 andalso Value =< Max.

%% File names: not empty, no zero byte, something the file system can take.
-spec is_name(term()) -> boolean().
is_name(Value) when is_list(Value); is_binary(Value) ->
    try unicode:characters_to_list(Value) of
        Text when is_list(Text) -> Text =/= [] andalso not lists:member(0, Text);
        _ -> false
    catch
        error:badarg -> false
    end;
is_name(_Value) ->
    false.

is_module_list(List) when length(List) > 0 -> lists:all(fun is_atom/1, List);
is_module_list(_) -> false.

is_application({app, Name}) when is_atom(Name) -> application:get_key(Name, modules) =/= undefined;
is_application(_) -> false.

modules({app, Name}) ->
    {ok, Modules} = application:get_key(Name, modules),
    Modules;
modules(Modules) ->
    Modules.

%% A name that was mistyped would show nothing.
found(all) -> all;
found(Modules) -> [found_module(Module) || Module <- Modules].

found_module(Module) ->
    case erlang:module_loaded(Module) orelse code:which(Module) =/= non_existing of
        true -> Module;
        false ->
            refuse(bad_option, modules, ["module ", atom_to_binary(Module),
                                         " is neither loaded nor on the code path"])
    end.

%% ---- what to profile ----

%% A function that a breakpoint can be set on.
-spec target(term()) -> {ok, mfa()} | {error, refusal()}.
target({Module, Function, Arity} = MFA)
  when is_atom(Module), is_atom(Function), is_integer(Arity), Arity >= 0, Arity =< 255 ->
    check_module(erlang:module_loaded(Module), MFA);
target({Module, Function, Arguments}) when is_atom(Module), is_atom(Function), is_list(Arguments) ->
    refused(bad_target, {Module, Function, Arguments},
            "capture takes {Module, Function, Arity}, an arity instead of arguments");
target(Other) ->
    refused(bad_target, Other, "a target is {Module, Function, Arity}").

check_module(false, {Module, _, _} = MFA) ->
    Name = atom_to_binary(Module),
    refused(bad_target, MFA, ["module ", Name, " is not loaded; code:ensure_loaded(", Name,
                              ") loads it, then capture it"]);
check_module(true, {Module, Function, Arity} = MFA) ->
    Own = lists:member(Module, emberl_trace:own_modules()),
    Known = lists:member({Function, Arity}, functions(Module)),
    Instruction = Module =:= erlang andalso is_instruction(Function, Arity),
    if
        Own -> refused(bad_target, MFA, "emberl does not profile itself");
        Instruction -> refused(bad_target, MFA, "it is an instruction where it is written in code, "
                               "which nobody can trace: capture a function that uses it");
        Known -> {ok, MFA};
        true -> refused(bad_target, MFA, missing(Module, Function))
    end.

%% What compiler and loader make no calls of.
is_instruction(Function, Arity) ->
    lists:member({Function, Arity}, [{apply, 2}, {apply, 3}, {get, 1}, {hibernate, 3}])
        orelse lists:any(fun(Kind) -> erl_internal:Kind(Function, Arity) end,
                         [guard_bif, type_test, arith_op, bool_op, comp_op, send_op]).

functions(Module) ->
    Module:module_info(functions).

missing(Module, Function) ->
    case [integer_to_list(A) || {F, A} <- functions(Module), F =:= Function] of
        [] -> "the module has no function of that name";
        Arities -> ["the function exists with arity ", lists:join(", ", lists:sort(Arities))]
    end.

%% What apply runs, as emberl_call takes it.
-spec applied(term()) ->
          {ok, {module(), atom(), [term()]} | {fun(), [term()]}} | {error, refusal()}.
applied(Fun) when is_function(Fun, 0) ->
    {ok, {Fun, []}};
applied({Fun, Arguments}) when is_function(Fun), length(Arguments) >= 0 ->
    case is_function(Fun, length(Arguments)) of
        true -> {ok, {Fun, Arguments}};
        false -> refused(bad_target, Fun, "the fun has another arity than the arguments")
    end;
applied({Module, Function, Arguments})
  when is_atom(Module), is_atom(Function), length(Arguments) >= 0 ->
    Arity = length(Arguments),
    _ = code:ensure_loaded(Module),
    case erlang:function_exported(Module, Function, Arity)
        orelse erlang:is_builtin(Module, Function, Arity) of
        true -> {ok, {Module, Function, Arguments}};
        false -> refused(bad_target, {Module, Function, Arity}, "no such exported function")
    end;
applied(Other) ->
    refused(bad_target, Other, "apply takes {Module, Function, Arguments}, {Fun, Arguments} or a "
            "fun of arity 0").

%% The VM does not trace a process that is flagged sensitive. Setting the flag is the
%% way to ask for it.
-spec caller() -> ok | {error, refusal()}.
caller() ->
    case process_flag(sensitive, false) of
        false ->
            ok;
        true ->
            process_flag(sensitive, true),
            refused(bad_target, self(),
                    "the calling process is flagged sensitive and cannot be traced")
    end.

-spec calls(term()) -> {ok, pos_integer()} | {error, refusal()}.
calls(Calls) when is_integer(Calls), Calls > 0, Calls < 1 bsl 62 ->
    {ok, Calls};
calls(Other) ->
    refused(bad_count, Other, "the number of calls is a whole number above 0").

-spec capture(term()) -> ok | {error, refusal()}.
capture(Capture) when is_reference(Capture) -> ok;
capture(Other) -> refused(bad_capture, Other, "a capture is what start_capture has returned").

%% How long to wait for results.
-spec wait(term()) -> ok | {error, refusal()}.
wait(Timeout) ->
    case Timeout =:= 0 orelse is_allowed(timeout, Timeout) of
        true -> ok;
        false -> refused(bad_timeout, Timeout,
                         "to wait takes from 0 to 4294967295 milliseconds, or infinity")
    end.

%% ---- refusals ----

-spec refuse(atom(), term(), iodata()) -> no_return().
refuse(Tag, Term, Text) ->
    throw(refusal(Tag, Term, Text)).

refused(Tag, Term, Text) ->
    {error, refusal(Tag, Term, Text)}.

-spec refusal(atom(), term(), iodata()) -> {atom(), term(), Text :: binary()}.
refusal(Tag, Term, Text) ->
    {Tag, Term, unicode:characters_to_binary(Text)}.
