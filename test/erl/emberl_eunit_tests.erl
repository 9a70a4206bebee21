%% SPDX-License-Identifier: Apache-2.0
-module(emberl_eunit_tests).

-include_lib("eunit/include/eunit.hrl").

%% Each test has the limit that its author gave it, or EUnit's, times ten.
scaled_test() ->
    F = fun() -> ok end,
    [?assertEqual(Scaled, emberl_eunit:scaled(Test, 10))
     || {Test, Scaled} <- [{F, {timeout, 50, F}},
                           {{7, F}, {timeout, 50, {7, F}}},
                           {{timeout, 60, F}, {timeout, 600, F}},
                           {{"title", {timeout, 60, F}}, {"title", {timeout, 600, F}}},
                           {{timeout, 60, {"title", F}}, {timeout, 600, {"title", F}}},
                           {{timeout, 60, [F]}, {timeout, 600, [{timeout, 50, F}]}},
                           {{setup, F, [F]}, {setup, F, [{timeout, 50, F}]}}]].

instantiators_test() ->
    {foreach, setup, cleanup, [Scaled]} =
        emberl_eunit:scaled({foreach, setup, cleanup, [fun(X) -> {m, X} end]}, 2),
    ?assertEqual({timeout, 10, {m, f}}, Scaled(f)).

%% A test that fails, and one that takes longer than it may, are told of.
failures_test() ->
    [?assertEqual(error, run(Name)) || Name <- [failing, slow]],
    ?assertEqual(ok, run(passing)).

run(Name) ->
    Body = #{failing => "exit(no)", slow => "timer:sleep(infinity)", passing => "ok"},
    Texts = ["-module(emberl_eunit_made).", "-export([a_test_/0]).",
             "a_test_() -> {timeout, 0.05, fun() -> " ++ maps:get(Name, Body) ++ " end}."],
    {ok, Module, Binary} = compile:forms([form(Text) || Text <- Texts]),
    {module, Module} = code:load_binary(Module, "", Binary),
    Result = emberl_eunit:run([Module], 2, [no_tty]),
    code:purge(Module),
    code:delete(Module),
    Result.

form(Text) ->
    {ok, Tokens, _} = erl_scan:string(Text),
    {ok, Form} = erl_parse:parse_form(Tokens),
    Form.
