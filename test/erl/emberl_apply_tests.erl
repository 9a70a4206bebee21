%% SPDX-License-Identifier: Apache-2.0
%% What emberl:apply/1,2 returns, raises and refuses.
-module(emberl_apply_tests).

-include_lib("eunit/include/eunit.hrl").

-import(emberl_test, [in_directory/2, shape/1, outcome/1]).

-define(PAIR, {emberl_work, pair, [1]}).

%% ---- targets ----

target_test_() ->
    [{Name, fun() -> ?assertEqual(Shape, shape(emberl:apply(Target, profile()))) end}
     || {Name, Target, Shape} <-
            [{"module, function, arguments", ?PAIR, #{[pair] => 1, [pair, leaf] => 2}},
             {"a function of another module's", {lists, reverse, [[1], []]}, #{}},
             {"a fun without arguments", fun() -> emberl_work:pair(1) end,
              #{[pair] => 1, [pair, leaf] => 2}},
             {"a fun and its arguments", {fun emberl_work:pair/1, [1]},
              #{[pair] => 1, [pair, leaf] => 2}},
             {"a fun of many arguments",
              {fun(A, B, C, D) -> emberl_work:leaf({A, B, C, D}) end, [1, 2, 3, 4]},
              #{[leaf] => 1}}]].

profile() -> #{return => profile, modules => [emberl_work]}.

%% Nothing of ours is on the stack, nor what a fun is applied with.
hidden_test_() ->
    [?_assertEqual([[{?MODULE, {'fun', hidden_test_}}]],
                   maps:keys(shape(emberl:apply({Fun, Arguments}, #{return => profile}))))
     || {Fun, Arguments} <- [{fun() -> ok end, []},
                             {fun(_) -> ok end, [1]},
                             {fun(_, _) -> ok end, [1, 2]},
                             {fun(_, _, _) -> ok end, [1, 2, 3]}]].

target_text_test_() ->
    [?_assertEqual(Text, maps:get(target, emberl_profile:info(emberl:apply(Target, profile()))))
     || {Target, Text} <- [{?PAIR, <<"emberl_work:pair/1">>},
                           {{fun emberl_work:pair/1, [1]}, <<"emberl_work:pair/1">>}]].

%% ---- return ----

value_is_the_default_test() ->
    {Value, Printed} = in_directory(#{}, fun(#{output_directory := Directory}) ->
        Result =
            emberl_test:quiet(fun() -> emberl:apply(?PAIR, #{output_directory => Directory}) end),
        ?assertMatch([_], filelib:wildcard("*.html", Directory)),
        Result
    end),
    ?assertEqual({1, 1}, Value),
    ?assertMatch(<<"Output filename: ", _/binary>>, Printed).

return_test_() ->
    [{atom_to_list(Return), fun() -> in_directory(#{return => Return}, fun returned/1) end}
     || Return <- [value, filename, flamegraph, profile, data, all]].

returned(#{return := Return, output_directory := Directory} = Options) ->
    Result = emberl:apply(?PAIR, Options#{output_format => brendan_gregg, metric => calls}),
    check_returned(Return, Result, filelib:wildcard("*", Directory)).

check_returned(value, Value, Files) ->
    ?assertEqual({1, 1}, Value),
    ?assertMatch([_], Files);
check_returned(filename, File, Files) ->
    ?assert(is_binary(File)),
    ?assertEqual([filename:basename(binary_to_list(File))], Files),
    ?assert(filelib:is_regular(File));
check_returned(flamegraph, Graph, Files) ->
    ?assert(byte_size(iolist_to_binary(Graph)) > 0),
    ?assertEqual([], Files);
check_returned(profile, Profile, Files) ->
    ?assertMatch(#{outcome := returned}, emberl_profile:info(Profile)),
    ?assertEqual([], Files);
check_returned(data, Result, Files) ->
    #{result := {ok, {1, 1}}, profile := Profile} = Result,
    ?assertEqual(returned, outcome(Profile)),
    ?assertEqual([], Files);
check_returned(all, Result, Files) ->
    #{result := {ok, {1, 1}}, profile := Profile, file := File} = Result,
    ?assertEqual(returned, outcome(Profile)),
    ?assertEqual([filename:basename(binary_to_list(File))], Files).

%% The graph that is returned is what is written to the file.
flamegraph_is_the_file_test() ->
    in_directory(#{return => all, output_format => brendan_gregg}, fun(Options) ->
        #{profile := Profile, file := File} = emberl:apply(?PAIR, Options),
        {ok, Written} = file:read_file(File),
        ?assertEqual(iolist_to_binary(emberl_profile:format(Profile, brendan_gregg)), Written)
    end).

%% ---- exceptions ----

exception_test_() ->
    [{atom_to_list(Class),
      fun() -> in_directory(#{}, fun(Options) -> raised(Class, Options) end) end}
     || Class <- [throw, error, exit]].

%% The graph is written first; then class, reason and stack are the function's.
raised(Class, #{output_directory := Directory} = Options) ->
    Plain = stack_of(fun() -> emberl_work:uncaught(Class) end),
    Profiled = stack_of(fun() -> emberl:apply({emberl_work, uncaught, [Class]}, Options) end),
    ?assertMatch([{Class, raised}, {Class, raised}], [element(1, Plain), element(1, Profiled)]),
    Frames = [Frame || {emberl_work, _, _, _} = Frame <- element(2, Plain)],
    ?assertEqual(Frames, lists:sublist(element(2, Profiled), length(Frames))),
    ?assertEqual([], [M || {M, _, _, _} <- element(2, Profiled),
                           lists:member(M, [emberl, emberl_call])]),
    ?assertMatch([_], filelib:wildcard("*.html", Directory)).

stack_of(Fun) ->
    try Fun() of
        Value -> {returned, Value}
    catch
        Class:Reason:Stack -> {{Class, Reason}, Stack}
    end.

exception_returned_test() ->
    in_directory(#{return => all}, fun(Options) ->
        #{result := Result, profile := Profile, file := File} =
            emberl:apply({emberl_work, uncaught, [error]}, Options),
        ?assertMatch({error, raised, [{emberl_work, raise, 1, _} | _]}, Result),
        ?assertEqual(raised, outcome(Profile)),
        ?assertMatch(#{[uncaught] := 1, [uncaught, dig] := 3, [uncaught, dig, raise] := 1},
                     shape(Profile)),
        ?assert(filelib:is_regular(File))
    end).

%% Where the result is a profile, the exception comes instead.
exception_instead_of_a_profile_test() ->
    ?assertThrow(raised, emberl:apply({emberl_work, uncaught, [throw]}, profile())),
    ?assertNot(emberl_test:running()).

undefined_while_running_test() ->
    ?assertError(undef, emberl:apply(fun() -> emberl_work:no_such_function() end, profile())).

%% ---- limits ----

%% The function runs on; the profile has what was seen until then.
timeout_test() ->
    Run = fun() ->
                  emberl_work:leaf(1),
                  emberl_test:wait_until(fun() -> not emberl_test:running() end),
                  emberl_work:leaf(2),
                  done
          end,
    in_directory((profile())#{return => all, timeout => 100}, fun(Options) ->
        #{result := {ok, done}, profile := Profile} = emberl:apply(Run, Options),
        ?assertMatch(#{outcome := unfinished, complete := false}, emberl_profile:info(Profile)),
        ?assertEqual(#{[leaf] => 1}, shape(Profile))
    end).

memory_limit_test_() ->
    {timeout, 60, fun memory_limit/0}.

memory_limit() ->
    Profile = emberl:apply(fun() -> emberl_work:grove(16) end,
                           (profile())#{memory_limit => 1 bsl 20, fold_recursion => false}),
    ?assertMatch(#{outcome := unfinished, complete := false, cut_by := memory_limit},
                 emberl_profile:info(Profile)),
    ?assert(maps:get(stacks, emberl_profile:info(Profile)) > 1000).

%% Why a profile is not of the whole call, also in a file and in html.
cut_by_test_() ->
    [{atom_to_list(Why), {timeout, 60, fun() -> cut_by(Why) end}}
     || Why <- [none, timeout, stopped, memory_limit, untraced]].

cut_by(Why) ->
    Profile = cut(Why),
    ?assertEqual({Why, Why =:= none}, told(Profile)),
    {ok, Binary} = emberl_profile:to_binary(Profile),
    {ok, Read} = emberl_profile:from_binary(Binary),
    ?assertEqual(told(Profile), told(Read)),
    ?assertEqual(told(Profile), told(emberl_profile:merge([cut(none), Profile]))),
    Number = string:str([none, timeout, stopped, memory_limit, untraced], [Why]) - 1,
    Field = io_lib:format("\"cut_by\":~b", [Number]),
    ?assertMatch({match, _}, re:run(emberl_profile:format(Profile, html), Field)).

told(Profile) ->
    #{cut_by := Why, complete := Complete} = emberl_profile:info(Profile),
    {Why, Complete}.

cut(none) ->
    emberl:apply(?PAIR, profile());
cut(timeout) ->
    emberl:apply(fun() -> emberl_test:wait_until(fun() -> not emberl_test:running() end) end,
                 (profile())#{timeout => 30});
cut(stopped) ->
    emberl:apply(fun() -> emberl:stop() end, profile());
cut(memory_limit) ->
    emberl:apply(fun() -> emberl_work:grove(16) end,
                 (profile())#{memory_limit => 1 bsl 20, fold_recursion => false});
cut(untraced) ->
    emberl_test:in_process(fun() ->
        emberl:apply(fun() -> process_flag(sensitive, true), emberl_work:pair(1) end,
                     #{return => profile})
    end).

%% The VM traces no process that has asked for privacy. It keeps that.
sensitive_test() ->
    Result = emberl_test:in_process(
               fun() ->
                       process_flag(sensitive, true),
                       Refused = stack_of(fun() ->
                           emberl:apply(fun() -> exit(was_run) end, profile())
                       end),
                       {Refused, process_flag(sensitive, true)}
               end),
    ?assertMatch({{{error, {bad_target, _, <<_/binary>>}}, _}, true}, Result).

%% ---- there is no profile, though the function has run ----

no_profile_test_() ->
    [{lists:flatten(io_lib:format("~p: ~p", [Why, Return])),
      fun() -> in_directory(#{return => Return}, fun(Options) -> no_profile(Why, Options) end) end}
     || Why <- [too_deep, stopped, killed],
        Return <- [value, all, data, filename, flamegraph, profile]].

no_profile(Why, #{return := Return} = Options) ->
    logger:set_primary_config(level, none),
    Result = stack_of(fun() -> without_profile(Why, Options) end),
    {ok, _} = application:ensure_all_started(emberl),
    logger:set_primary_config(level, notice),
    check_no_profile(Return, Result),
    ?assertEqual({ok, {1, 1}}, emberl_test:works()).

check_no_profile(value, Value) ->
    ?assertEqual({returned, the_value}, Value);
check_no_profile(all, {returned, #{result := Result, profile := Missing, file := Missing}}) ->
    check_missing(Result, Missing);
check_no_profile(data, {returned, #{result := Result, profile := Missing}}) ->
    check_missing(Result, Missing);
check_no_profile(_Return, Raised) ->
    {{error, {Tag, _, <<_/binary>>}}, _} = Raised,
    ?assert(lists:member(Tag, [not_traced, unknown_capture, unavailable])).

check_missing(Result, Missing) ->
    ?assertEqual({ok, the_value}, Result),
    ?assertMatch({error, {_, _, <<_/binary>>}}, Missing).

without_profile(too_deep, Options) ->
    nested(7, fun() -> emberl:apply(fun() -> the_value end, Options) end);
without_profile(stopped, Options) ->
    emberl:apply(fun() -> application:stop(emberl), the_value end, Options);
without_profile(killed, Options) ->
    emberl:apply(fun() -> exit(whereis(emberl_control), kill), the_value end, Options).

%% A call within N others.
nested(0, Fun) ->
    Fun();
nested(N, Fun) ->
    #{result := Result} = emberl:apply(fun() -> nested(N - 1, Fun) end, #{return => data}),
    again(Result).

again({ok, Value}) -> Value;
again({Class, Reason, Stack}) -> erlang:raise(Class, Reason, Stack).

%% ---- refusals: raised, and the function is not run ----

refused_test_() ->
    [{lists:flatten(io_lib:format("~0p", [Target])), fun() -> refused(Target) end}
     || Target <- [{emberl_work, leaf, 1}, {emberl_work, leaf, []}, {emberl_work, no_such, []},
                   {no_such_module, f, []}, {emberl_work, chain_b, [1]},
                   {emberl_work, leaf, [1 | 2]},
                   {"emberl_work", leaf, [1]}, {fun(_) -> ok end, []}, {fun() -> ok end, 1},
                   {fun() -> ok end, [1 | 2]}, fun(_) -> ok end, {leaf, [1]}, emberl_work, [], 1]].

refused(Target) ->
    {{error, {bad_target, _, Text}}, _} = stack_of(fun() -> emberl:apply(Target, profile()) end),
    ?assert(is_binary(Text) andalso byte_size(Text) > 10),
    ?assertNot(emberl_test:running()).

bad_option_test() ->
    Test = self(),
    {{error, {bad_option, colour, _}}, _} =
        stack_of(fun() -> emberl:apply(fun() -> Test ! run end, #{colour => red}) end),
    receive run -> error(was_run)
    after 0 -> ok
    end.

%% ---- numbers ----

info_test() ->
    Before = erlang:system_time(microsecond),
    Profile = emberl:apply({emberl_work, loop, [1000]}, profile()),
    Info = emberl_profile:info(Profile),
    ?assertMatch(#{calls := 1, lost := 0, complete := true, outcome := returned, fallbacks := [],
                   depth_cut := 0}, Info),
    ?assertEqual(list_to_binary(erlang:system_info(otp_release)), maps:get(otp_release, Info)),
    #{start_us := Start, duration_ns := Duration, events := Events, raw_ns := Raw,
      compensated_ns := Compensated} = Info,
    ?assert(Start >= Before - 1000 andalso Start =< erlang:system_time(microsecond)),
    ?assert(Events >= 3001),
    ?assert(Raw =< Duration andalso Compensated =< Raw),
    ?assert(is_boolean(maps:get(doubtful, Info))).

%% The more events, the less sure; nothing is subtracted without compensation.
uncertainty_test() ->
    Uncertainty = fun(Loops, Compensate) ->
                          Profile = emberl:apply({emberl_work, loop, [Loops]},
                                                 (profile())#{compensate => Compensate}),
                          [?assert(U >= 0 andalso Own >= 0)
                           || #{uncertainty_ns := U, own_ns := Own}
                                  <- emberl_profile:stacks(Profile)],
                          lists:sum([U || #{uncertainty_ns := U}
                                              <- emberl_profile:functions(Profile)])
                  end,
    ?assert(Uncertainty(100, true) > 0),
    ?assert(Uncertainty(10000, true) > Uncertainty(100, true)),
    ?assertEqual(0, Uncertainty(1000, false)).

%% Times of all stacks add up to what is told of the whole.
sums_test_() ->
    [{lists:flatten(io_lib:format("compensate ~p", [Compensate])),
      fun() ->
              Profile = emberl:apply({emberl_work, grow, [3000]},
                                     (profile())#{compensate => Compensate}),
              sums(Compensate, Profile)
      end} || Compensate <- [true, false]].

sums(Compensate, Profile) ->
    #{raw_ns := Raw, compensated_ns := Compensated, duration_ns := Duration} =
        emberl_profile:info(Profile),
    Stacks = emberl_profile:stacks(Profile),
    Functions = emberl_profile:functions(Profile),
    Sum = fun(Key, Rows) -> lists:sum([maps:get(Key, Row) || Row <- Rows]) end,
    Own = Sum(own_ns, Stacks),
    ?assertEqual(Raw - Compensated, Own),
    ?assert(Own + Compensated + Sum(gc_ns, Stacks) + Sum(off_cpu_ns, Stacks)
                =< Duration + length(Stacks)),
    [?assertEqual(Sum(Key, Functions), Sum(Key, [S || #{stack := [_ | _]} = S <- Stacks]))
     || Key <- [calls, own_ns, off_cpu_ns, gc_ns, words]],
    Compensate orelse ?assertEqual(0, Compensated).
