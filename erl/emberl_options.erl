%% SPDX-License-Identifier: Apache-2.0
%% @private
%% Checks what the user asks for, before anything is touched. Every refusal is
%% a term for programs and a text for people.
-module(emberl_options).

-export([parse/2, target/1, applied/1, calls/1]).
-export_type([options/0, refusal/0]).

-type options() :: #{return := value | filename | flamegraph | profile | all,
                     output_format := atom(),
                     output_directory := file:filename_all(),
                     output_file := undefined | file:filename_all(),
                     open := none | browser | speedscope | hotspot | file:filename_all(),
                     metric := own_time | words | calls,
                     modules := all | [module()],
                     spawned := boolean(),
                     merge := boolean(),
                     timeout := timeout(),
                     memory_limit := pos_integer() | infinity,
                     fold_recursion := boolean(),
                     compensate := boolean(),
                     quiet := boolean()}.
-type refusal() :: {bad_option, term(), Text :: binary()}
                 | {bad_target, term(), Text :: binary()}
                 | {bad_count, term(), Text :: binary()}.

%% ---- options ----

%% A map or a proplist; of a key given twice the first counts, as in eflambe.
%% (Where length/1 is a guard in this module, it keeps improper lists out.)
-spec parse(apply | capture, map() | [term()]) -> {ok, options()} | {error, refusal()}.
parse(Kind, Given) ->
    try
        Options = maps:fold(fun check/3, defaults(Kind), to_map(Given)),
        {ok, Options#{modules := modules(maps:get(modules, Options))}}
    catch
        throw:Refusal -> {error, Refusal}
    end.

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
      memory_limit => 256 * 1024 * 1024,
      fold_recursion => true,
      compensate => true,
      quiet => false}.

to_map(Given) when is_map(Given) -> Given;
to_map(Given) when length(Given) >= 0 -> maps:from_list(lists:reverse([pair(P) || P <- Given]));
to_map(Given) -> refuse(bad_option, Given, "options are a map or a proplist").

pair({Key, Value}) -> {Key, Value};
pair(Key) when is_atom(Key) -> {Key, true};
pair(Other) -> refuse(bad_option, Other, "a proplist holds {Key, Value} and Key").

check(Key, Value, Options) ->
    case maps:is_key(Key, Options) of
        true -> Options#{Key := checked(Key, Value)};
        false -> refuse(bad_option, Key, ["unknown option; there are ", known(Options)])
    end.

known(Options) ->
    lists:join(", ", [atom_to_list(Key) || Key <- lists:sort(maps:keys(Options))]).

checked(Key, Value) ->
    case is_allowed(Key, Value) of
        true -> Value;
        false -> refuse(bad_option, Key, io_lib:format("~0tp is not ~ts", [Value, allowed(Key)]))
    end.

is_allowed(return, Value) ->
    lists:member(Value, [value, filename, flamegraph, profile, all]);
is_allowed(output_format, Value) ->
    lists:keymember(Value, 1, emberl_nif:views());
is_allowed(output_directory, Value) ->
    is_name(Value);
is_allowed(output_file, Value) ->
    is_name(Value) andalso filename:basename(Value) =:= Value;
is_allowed(open, Value) ->
    lists:member(Value, [none, browser, speedscope, hotspot]) orelse is_name(Value);
is_allowed(metric, Value) ->
    lists:member(Value, [own_time, words, calls]);
is_allowed(modules, Value) ->
    Value =:= all orelse is_application(Value) orelse is_module_list(Value);
is_allowed(timeout, Value) ->
    Value =:= infinity orelse is_natural(Value, 16#ffffffff);
is_allowed(memory_limit, Value) ->
    Value =:= infinity orelse is_natural(Value, 1 bsl 60) andalso Value >= 1024 * 1024;
is_allowed(_Flag, Value) ->
    is_boolean(Value).

allowed(return) -> "value, filename, flamegraph, profile or all";
allowed(output_format) -> lists:join(" or ", [atom_to_list(V) || {V, _} <- emberl_nif:views()]);
allowed(output_directory) -> "the name of a directory";
allowed(output_file) -> "the base name of a file";
allowed(open) -> "browser, speedscope, hotspot or the name of a program";
allowed(metric) -> "own_time, words or calls";
allowed(modules) -> "all, a list of modules or {app, Name} of an application that is loaded";
allowed(timeout) -> "a number of milliseconds above 0, or infinity";
allowed(memory_limit) -> "a number of bytes, at least 1048576, or infinity";
allowed(_Flag) -> "true or false".

is_natural(Value, Max) ->
    is_integer(Value) andalso Value > 0 andalso Value =< Max.

%% File names: not empty, no zero byte, something the file system can take.
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
    refused(bad_target, MFA, ["module ", atom_to_binary(Module), " is not loaded"]);
check_module(true, {Module, Function, Arity} = MFA) ->
    Own = lists:member(Module, emberl_trace:own_modules()),
    Known = lists:member({Function, Arity}, functions(Module)),
    if
        Own -> refused(bad_target, MFA, "emberl does not profile itself");
        Known -> {ok, MFA};
        true -> refused(bad_target, MFA, missing(Module, Function))
    end.

functions(Module) ->
    Module:module_info(functions).

missing(Module, Function) ->
    case [integer_to_list(A) || {F, A} <- functions(Module), F =:= Function] of
        [] -> "the module has no function of that name";
        Arities -> ["the function exists with arity ", lists:join(", ", lists:sort(Arities))]
    end.

%% What apply runs, as emberl_call takes it.
-spec applied(term()) -> {ok, {module(), atom(), [term()]} | {fun(), [term()]}} | {error, refusal()}.
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

-spec calls(term()) -> {ok, pos_integer()} | {error, refusal()}.
calls(Calls) when is_integer(Calls), Calls > 0, Calls < 1 bsl 62 ->
    {ok, Calls};
calls(Other) ->
    refused(bad_count, Other, "the number of calls is a whole number above 0").

%% ---- refusals ----

-spec refuse(atom(), term(), iodata()) -> no_return().
refuse(Tag, Term, Text) ->
    throw({Tag, Term, unicode:characters_to_binary(Text)}).

refused(Tag, Term, Text) ->
    {error, {Tag, Term, unicode:characters_to_binary(Text)}}.
