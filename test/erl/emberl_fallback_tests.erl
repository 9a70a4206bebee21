%% SPDX-License-Identifier: Apache-2.0
%% What the profiler does where it does not know the VM's layout: it says so,
%% calls are exact, words nearly, and stacks are right but for tail calls and
%% recursion.
-module(emberl_fallback_tests).

-include_lib("eunit/include/eunit.hrl").

-import(emberl_test, [shape/1]).

fallback_test_() ->
    [{Name, {setup,
             fun() -> forget(Exact, Tuples) end,
             fun(_) -> emberl_layout:check() end,
             [{"says so", fun() -> says_so(Fallbacks) end},
              {"calls", fun calls/0},
              {"stacks of body calls", fun stacks/0},
              {"a loop does not grow", fun loops/0},
              {"caught exceptions", fun exceptions/0},
              {"capture", fun capture/0},
              {"sums of words", fun() -> words(Error) end}]}}
     || {Name, Exact, Tuples, Fallbacks, Error}
            <- [{"no layout", true, true, [stack, heap, binaries, waiting], 0.5},
                {"no pointers", true, false, [stack, heap, binaries, waiting], 0.01},
                {"no tuples", false, true, [], 0.0}]].

%% The server looks at the layout when it starts.
forget(Exact, Tuples) ->
    code:ensure_modules_loaded([emberl_work, emberl_work_other]),
    emberl:stop(),
    emberl_nif:forget_layout(Exact, Tuples).

profile(Function, Arguments) ->
    emberl_test:in_process(
      fun() ->
              emberl_test:profile({emberl_work, Function, Arguments}, #{modules => [emberl_work]})
      end).

says_so(Fallbacks) ->
    ?assertMatch(#{fallbacks := Fallbacks, complete := true, lost := 0},
                 emberl_profile:info(profile(pair, [1]))).

calls() ->
    [?assertEqual(element(2, emberl_test:counted([emberl_work],
                                                 fun() -> apply(emberl_work, F, A) end)),
                  emberl_test:calls(profile(F, A), [emberl_work]))
     || {F, A} <- [{deep_leaf, [1000]}, {ping, [10000]}, {mixed, [100]}, {caught_deep, [10, throw]},
                   {fork, [1]}, {grow, [500]}, {comprehension, [[1, 2, 3]]}]].

stacks() ->
    ?assertEqual(#{[bare] => 1, [bare, leaf] => 2, [bare, bare_pair] => 1,
                   [bare, bare_pair, leaf] => 2},
                 shape(profile(bare, []))),
    ?assertEqual(#{[call_fun] => 1,
                   [call_fun, {'fun', call_fun}] => 2,
                   [call_fun, {'fun', call_fun}, leaf] => 2},
                 shape(profile(call_fun, [1]))).

loops() ->
    [?assertMatch(#{stacks := Stacks} when Stacks =< 10, emberl_profile:info(profile(F, [10000])))
     || F <- [loop, ping, mixed]].

exceptions() ->
    Shape = shape(profile(caught_in_loop, [3, throw])),
    ?assertEqual(6, lists:sum([Calls || {Stack, Calls} <- maps:to_list(Shape),
                                        lists:last(Stack) =:= leaf])),
    ?assertMatch(#{[caught_in_loop, caught] := 3, [caught_in_loop, caught, leaf] := 6}, Shape).

capture() ->
    {ok, Capture} = emberl:start_capture({emberl_work, deep_leaf, 1}, 2,
                                         #{return => profile, modules => [emberl_work]}),
    emberl_test:in_process(fun() -> emberl_work:deep_leaf(3) end),
    emberl_test:in_process(fun() -> emberl_work:deep_leaf(3) end),
    {ok, Profiles} = emberl:await(Capture, infinity),
    [?assertEqual(#{{emberl_work, deep_leaf, 1} => 4, {emberl_work, leaf, 1} => 3},
                  emberl_test:calls(P, [emberl_work])) || P <- Profiles].

%% lists:seq/2 allocates two words an element.
words(Error) ->
    Profile = emberl_test:in_process(
                fun() -> emberl_test:profile({lists, seq, [1, 100000]}, #{}) end),
    Words = lists:sum([W || #{words := W} <- emberl_profile:functions(Profile)]),
    ?assert(abs(Words - 200000) =< 200000 * Error).
