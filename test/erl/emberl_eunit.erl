%% SPDX-License-Identifier: Apache-2.0
%% EUnit with wider time limits: a busy machine is no failure. EUnit has an option for that,
%% which before OTP 26 it takes and ignores.
-module(emberl_eunit).

-export([run/3, scaled/2]).

-define(DEFAULT_S, 5). % EUnit's own, of a test that names none

run(Modules, Scale, Options) ->
    eunit:test([{atom_to_list(Module), tests(Module, Scale)} || Module <- Modules], Options).

tests(Module, Scale) ->
    [test(kind(atom_to_list(Name)), Module, Name, Scale)
     || {Name, 0} <- Module:module_info(exports), kind(atom_to_list(Name)) =/= none].

kind(Name) ->
    case [Kind || {Suffix, Kind} <- [{"_test", test}, {"_test_", generator}],
                  lists:suffix(Suffix, Name)] of
        [Kind] -> Kind;
        [] -> none
    end.

test(test, Module, Name, Scale) -> scaled({Module, Name}, Scale);
test(generator, Module, Name, Scale) -> {generator, fun() -> scaled(Module:Name(), Scale) end}.

%% Of the representations that EUnit knows, those that are used here.
scaled(Tests, Scale) when is_list(Tests) -> [scaled(Test, Scale) || Test <- Tests];
scaled({timeout, S, Test}, Scale) -> {timeout, S * Scale, within(Test, Scale)};
scaled({setup, Setup, Tests}, Scale) -> {setup, Setup, scaled(Tests, Scale)};
scaled({setup, Setup, Cleanup, Tests}, Scale) ->
    {setup, Setup, Cleanup, scaled(Tests, Scale)};
scaled({foreach, Setup, Cleanup, Tests}, Scale) ->
    {foreach, Setup, Cleanup, scaled(Tests, Scale)};
scaled(Instantiator, Scale) when is_function(Instantiator, 1) ->
    fun(Context) -> scaled(Instantiator(Context), Scale) end;
scaled({Title, Test}, Scale) when is_list(Title) -> {Title, scaled(Test, Scale)};
scaled(Test, Scale) ->
    true = is_simple(Test),
    {timeout, ?DEFAULT_S * Scale, Test}.

%% Tests in a list have limits of their own, whatever the list's is.
within({Title, Test}, Scale) when is_list(Title) -> {Title, within(Test, Scale)};
within(Test, Scale) ->
    case is_simple(Test) of
        true -> Test;
        false -> scaled(Test, Scale)
    end.

is_simple(Test) when is_function(Test, 0) -> true;
is_simple({Line, Test}) when is_integer(Line), is_function(Test, 0) -> true;
is_simple({Module, Name}) when is_atom(Module), is_atom(Name) -> true;
is_simple(_) -> false.
