%% SPDX-License-Identifier: Apache-2.0
%% Exact stacks, and how often each was called: programs of emberl_work whose
%% stacks are known, run by emberl:apply/2. The functions' calls must besides be
%% what the VM counts.
-module(emberl_stacks_tests).

-include_lib("eunit/include/eunit.hrl").

-import(emberl_test, [profile/2, shape/1]).

%% ---- what is one process's work: {Name, Target, Options, Shape} ----

scenarios() ->
    recursion() ++ tail_calls() ++ exceptions() ++ funs() ++ builtins() ++ collections().

recursion() ->
    [{body_recursion_is_folded, work(deep, [10000]), #{}, #{[deep] => 10001}},
     {calls_of_all_depths_meet_where_recursion_is_folded, work(deep_leaf, [10000]), #{},
      #{[deep_leaf] => 10001, [deep_leaf, leaf] => 10000}},
     {unfolded, work(deep_leaf, [3]), #{fold_recursion => false},
      #{[deep_leaf] => 1,
        [deep_leaf, leaf] => 1,
        [deep_leaf, deep_leaf] => 1,
        [deep_leaf, deep_leaf, leaf] => 1,
        [deep_leaf, deep_leaf, deep_leaf] => 1,
        [deep_leaf, deep_leaf, deep_leaf, leaf] => 1,
        [deep_leaf, deep_leaf, deep_leaf, deep_leaf] => 1}}].

tail_calls() ->
    [{tail_chain, work(chain, [1]), #{}, chain([])},
     {back_from_a_tail_chain, work(chain_after, [1]), #{},
      (chain([chain_after]))#{[chain_after] => 1, [chain_after, leaf] => 1}},
     {server_loop, work(loop, [1000]), #{}, #{[loop] => 1001, [loop, leaf] => 1000}},
     {server_loop_unfolded, work(loop, [1000]), #{fold_recursion => false},
      #{[loop] => 1001, [loop, leaf] => 1000}},
     {two_that_call_each_other, work(ping, [1000000]), #{},
      #{[ping] => 500001, [ping, pong] => 500000}},
     {two_that_call_each_other_unfolded, work(ping, [1000]), #{fold_recursion => false},
      #{[ping] => 501, [ping, pong] => 500}},
     {tail_and_body_calls, work(mixed, [4]), #{}, #{[mixed] => 5}},
     {tail_and_body_calls_unfolded, work(mixed, [4]), #{fold_recursion => false},
      #{[mixed] => 2, [mixed, mixed] => 2, [mixed, mixed, mixed] => 1}},
     {the_same_function_by_body_and_tail_call, work(fork, [1]), #{},
      #{[fork] => 1, [fork, pair] => 2, [fork, pair, leaf] => 4, [fork, leaf] => 1}}].

chain(Root) ->
    #{Root ++ [chain] => 1,
      Root ++ [chain, chain_b] => 1,
      Root ++ [chain, chain_b, chain_c] => 1,
      Root ++ [chain, chain_b, chain_c, leaf] => 2}.

exceptions() ->
    lists:append([exceptions(Class) || Class <- [throw, error, exit]]).

exceptions(Class) ->
    [{{Class, caught_one_level_up}, work(caught, [Class]), #{},
      #{[caught] => 1,
        [caught, dig] => 1,
        [caught, dig, raise] => 1,
        [caught, dig, raise, {erlang, Class}] => 1,
        [caught, leaf] => 2}},
     {{Class, caught_many_levels_up}, work(caught_deep, [100, Class]), #{},
      (dug([caught_deep], 101, Class))#{[caught_deep] => 1, [caught_deep, leaf] => 2}},
     {{Class, caught_again_and_again}, work(caught_in_loop, [3, Class]), #{},
      #{[caught_in_loop] => 4,
        [caught_in_loop, caught] => 3,
        [caught_in_loop, caught, dig] => 3,
        [caught_in_loop, caught, dig, raise] => 3,
        [caught_in_loop, caught, dig, raise, {erlang, Class}] => 3,
        [caught_in_loop, caught, leaf] => 6}},
     {{Class, caught_in_the_middle}, work(caught_above, [Class]), #{},
      (dug([caught_above, caught_deep], 4, Class))
          #{[caught_above] => 1,
            [caught_above, caught_deep] => 1,
            [caught_above, caught_deep, leaf] => 2,
            [caught_above, leaf] => 1}},
     {{Class, old_catch}, work(old_catch, [Class]), #{},
      (dug([old_catch], 2, Class))#{[old_catch] => 1, [old_catch, leaf] => 1}},
     {{Class, after_in_between}, work(after_raise, [Class]), #{},
      (dug([after_raise], 2, Class))
          #{[after_raise] => 1,
            [after_raise, pair] => 1,
            [after_raise, pair, leaf] => 2,
            [after_raise, leaf] => 1}},
     {{Class, caught_and_raised_again}, work(rethrown, [Class]), #{},
      (dug([rethrown], 2, Class))#{[rethrown] => 1, [rethrown, leaf] => 2}}].

%% Digs that end in an exception.
dug(Root, Digs, Class) ->
    #{Root ++ [dig] => Digs,
      Root ++ [dig, raise] => 1,
      Root ++ [dig, raise, {erlang, Class}] => 1}.

funs() ->
    [{a_fun, work(call_fun, [1]), #{},
      #{[call_fun] => 1, [call_fun, {'fun', call_fun}] => 2,
        [call_fun, {'fun', call_fun}, leaf] => 2}},
     {comprehension, work(comprehension, [[1, 2, 3]]), #{},
      #{[comprehension] => 1,
        [comprehension, {'fun', comprehension}] => 4,
        [comprehension, {'fun', comprehension}, leaf] => 3,
        [comprehension, leaf] => 1}},
     {fun_of_another_module, work(foreign_fun, [1]), #{},
      #{[foreign_fun] => 1,
        [foreign_fun, other(adder)] => 1,
        [foreign_fun, other({'fun', adder})] => 1,
        [foreign_fun, other({'fun', adder}), other(leaf)] => 1,
        [foreign_fun, leaf] => 1}},
     {apply_3, work(apply_3, []), #{},
      #{[apply_3] => 1, [apply_3, leaf] => 2, [apply_3, pair] => 1, [apply_3, pair, leaf] => 2}},
     {callbacks, work(through, [1]), #{},
      #{[through] => 1,
        [through, leaf] => 1,
        [through, other(call_back)] => 1,
        [through, other(call_back), other(leaf)] => 2,
        [through, other(call_back), {'fun', through}] => 1,
        [through, other(call_back), {'fun', through}, pair] => 1,
        [through, other(call_back), {'fun', through}, pair, leaf] => 2}},
     {through_a_module_that_is_not_traced, work(through, [1]), #{modules => [emberl_work]},
      #{[through] => 1,
        [through, leaf] => 1,
        [through, {'fun', through}] => 1,
        [through, {'fun', through}, pair] => 1,
        [through, {'fun', through}, pair, leaf] => 2}},
     {from_an_untraced_function, {emberl_work_other, call_back, [fun() -> emberl_work:pair(1) end]},
      #{modules => [emberl_work]},
      #{[pair] => 1, [pair, leaf] => 2}}].

other(Name) -> {emberl_work_other, Name}.

builtins() ->
    [{builtins, work(bifs, [[1, 2, 3]]), #{},
      #{[bifs] => 1,
        [bifs, {lists, reverse}] => 1,
        [bifs, {erlang, phash2}] => 1,
        [bifs, leaf] => 1,
        [bifs, {erlang, make_tuple}] => 1}},
     {a_builtin_raises, work(raised_by_bif, [not_a_list]), #{},
      #{[raised_by_bif] => 1, [raised_by_bif, {lists, reverse}] => 1, [raised_by_bif, leaf] => 2}},
     {a_builtin_yields, work(call, [{lists, reverse, [lists:seq(1, 200000), []]}]), #{},
      #{[call] => 1, [call, {lists, reverse}] => 1, [call, leaf] => 1}},
     {a_builtin_goes_on_in_another, work(call, [{erlang, md5, [<<0:8000000>>]}]), #{},
      #{[call] => 1, [call, {erlang, md5}] => 1, [call, leaf] => 1}},
     {nifs, work(nifs, [1]), #{},
      #{[nifs] => 1,
        [nifs, {emberl_test_nif, plain}] => 1,
        [nifs, {emberl_test_nif, dirty_cpu}] => 1,
        [nifs, {emberl_test_nif, dirty_io}] => 1,
        [nifs, {emberl_test_nif, rescheduled}] => 1,
        [nifs, leaf] => 1}}].

collections() ->
    [{collection_in_the_middle, work(collect, []), #{modules => [emberl_work]},
      #{[collect] => 1, [collect, leaf] => 2}},
     {collection_far_down, work(collect_deep, [3]),
      #{modules => [emberl_work], fold_recursion => false},
      #{[collect_deep] => 1,
        [collect_deep, leaf] => 1,
        [collect_deep, collect_deep] => 1,
        [collect_deep, collect_deep, leaf] => 1,
        [collect_deep, collect_deep, collect_deep] => 1,
        [collect_deep, collect_deep, collect_deep, leaf] => 1,
        [collect_deep, collect_deep, collect_deep, collect_deep] => 1}},
     {the_heap_grows_at_every_depth, work(grow, [3000]), #{modules => [emberl_work]},
      #{[grow] => 3001, [grow, leaf] => 3000}}].

work(Function, Arguments) ->
    {emberl_work, Function, Arguments}.

scenario_test_() ->
    {setup, fun() -> code:ensure_modules_loaded(modules()) end,
     [{text(Name), fun() -> ?assertEqual(Shape, run(Target, Options)) end}
      || {Name, Target, Options, Shape} <- scenarios()]}.

modules() -> [emberl_work, emberl_work_other, emberl_test_nif].

text(Name) -> lists:flatten(io_lib:format("~p", [Name])).

%% In a process with a small heap, so that there are collections.
run(Target, Options) ->
    emberl_test:in_process(
      fun() ->
              Profile = profile(Target, Options),
              ?assertMatch(#{complete := true, lost := 0, depth_cut := 0, outcome := returned},
                           emberl_profile:info(Profile)),
              shape(Profile)
      end).

%% Stacks are cut at a depth, calls are not.
deep_unfolded_test() ->
    Profile = emberl_test:in_process(
                fun() -> profile(work(deep, [10000]), #{fold_recursion => false}) end),
    Shape = shape(Profile),
    ?assertEqual(10001, lists:sum(maps:values(Shape))),
    ?assertEqual(10001, maps:get({emberl_work, deep, 1}, emberl_test:calls(Profile))),
    ?assertEqual(512 + length(['[deeper]', deep]),
                 lists:max([length(Stack) || Stack <- maps:keys(Shape)])),
    ?assertMatch(#{depth_cut := Cut} when Cut > 0, emberl_profile:info(Profile)).

%% Wherever in a run the first collection comes: from heaps filled to all levels.
collected_anywhere_test_() ->
    [{text(Target), {timeout, 60, fun() -> same_at_all_levels(Target, Shape) end}}
     || {Target, Shape} <- collected()].

collected() ->
    [{work(bare, []),
      #{[bare] => 1, [bare, leaf] => 2, [bare, bare_pair] => 1, [bare, bare_pair, leaf] => 2}},
     {work(deep_leaf, [200]), #{[deep_leaf] => 201, [deep_leaf, leaf] => 200}},
     {work(chain_after, [1]),
      (chain([chain_after]))#{[chain_after] => 1, [chain_after, leaf] => 1}},
     {work(caught_above, [throw]),
      #{[caught_above] => 1,
        [caught_above, caught_deep] => 1,
        [caught_above, caught_deep, dig] => 4,
        [caught_above, caught_deep, dig, raise] => 1,
        [caught_above, caught_deep, leaf] => 2,
        [caught_above, leaf] => 1}}].

same_at_all_levels(Target, Shape) ->
    [?assertEqual({Words, Shape}, {Words, from_level(Words, Target)})
     || Words <- lists:seq(0, 240)].

from_level(Words, Target) ->
    emberl_test:in_process(
      fun() ->
              Filling = erlang:make_tuple(Words, 0),
              Profile = profile(Target, #{modules => [emberl_work]}),
              _ = tuple_size(Filling),
              shape(Profile)
      end).

%% The functions' calls are what the VM counts, over the same run where the VM
%% can do both at once.
%% Beyond the depth limit stacks are cut, functions are not.
deeper_than_the_limit_test() ->
    Profile = profile(work(down, [2000]), #{}),
    Calls = [{F, C} || #{mfa := {_, F, _}, calls := C} <- emberl_profile:functions(Profile)],
    ?assertEqual([{down, 1001}, {leaf, 1000}, {up, 1000}], lists:sort(Calls)),
    Stacks = [S || #{stack := S} <- emberl_profile:stacks(Profile)],
    ?assertEqual([{'', '[deeper]', 0}],
                 lists:usort([lists:nth(513, S) || S <- Stacks, length(S) > 513])),
    ?assertMatch(#{depth_cut := Cut} when Cut > 0, emberl_profile:info(Profile)).

counted_test_() ->
    {setup, fun() -> code:ensure_modules_loaded(modules()) end,
     [{text(Name), fun() -> counted(Target, Options) end}
      || {Name, Target, Options, _Shape} <- scenarios()]}.

counted(Target, Options) ->
    Modules = maps:get(modules, Options, modules()),
    {Profile, Counts} = counted_and_profiled(Modules, Target, Options),
    ?assertEqual(Counts, emberl_test:calls(Profile, Modules)).

counted_and_profiled(Modules, {M, F, A} = Target, Options) ->
    case emberl_test:has_sessions() of
        true ->
            emberl_test:counted(Modules, fun() -> profile(Target, Options) end);
        false ->
            {_, Counts} = emberl_test:counted(Modules, fun() -> apply(M, F, A) end),
            {profile(Target, Options), Counts}
    end.

%% A program of the size of real ones, in all modules that it uses.
real_program_test_() ->
    {timeout, 60, fun real_program/0}.

real_program() ->
    compile(),
    Modules = [erl_scan, erl_parse, erl_lint, erl_pp, lists, ordsets, gb_sets, proplists, compile,
               v3_core, sys_core_fold, v3_kernel, beam_ssa_opt, beam_ssa, beam_asm,
               cerl, cerl_sets],
    Loaded = [Module || Module <- Modules, erlang:module_loaded(Module)],
    {Profile, Counts} = emberl_test:in_process(fun() -> counted_compilation(Loaded) end),
    ?assertMatch(#{lost := 0, complete := true}, emberl_profile:info(Profile)),
    Calls = emberl_test:calls(Profile, Loaded),
    ?assert(lists:sum(maps:values(Calls)) > 100000),
    ?assertEqual([], differences(Counts, Calls)).

differences(A, B) ->
    [{MFA, N, M} || MFA <- lists:usort(maps:keys(A) ++ maps:keys(B)),
                    {N, M} <- [{maps:get(MFA, A, 0), maps:get(MFA, B, 0)}], N =/= M].

%% Counted in a run of its own, which does the same, since emberl:apply/2 itself
%% calls functions of the same modules.
counted_compilation(Modules) ->
    {_, Counts} = emberl_test:counted_in_process(Modules, fun compile/0),
    {profile(fun compile/0, #{}), Counts}.

%% The compiler's passes run in this process with no_spawn_compiler_process.
compile() ->
    {ok, {_, [{abstract_code, {_, Forms}}]}} =
        beam_lib:chunks(code:which(emberl_test), [abstract_code]),
    {ok, emberl_test, _} = compile:forms(Forms, [no_spawn_compiler_process, deterministic]).

%% Processes on all schedulers at full speed: nothing is lost.
full_speed_test_() ->
    {timeout, 60, fun full_speed/0}.

full_speed() ->
    Rounds = 50000,
    Profile = profile(fun() ->
                              Pids = [spawn_monitor(emberl_work, loop, [Rounds])
                                      || _ <- lists:seq(1, 8)],
                              [receive {'DOWN', Monitor, process, _, normal} -> ok end
                               || {_, Monitor} <- Pids]
                      end, #{}),
    ?assertMatch(#{lost := 0, complete := true}, emberl_profile:info(Profile)),
    ?assertEqual(9, length(emberl_profile:processes(Profile))),
    ?assertEqual(#{[loop] => 8 * (Rounds + 1), [loop, leaf] => 8 * Rounds},
                 maps:with([[loop], [loop, leaf]], shape(Profile))).

%% Our own functions and processes are not in it, not even where they are called.
hidden_test() ->
    Profile = profile(fun() ->
                              {ok, Capture} = emberl:start_capture({emberl_work, leaf, 1}),
                              emberl:stop(Capture),
                              emberl:apply({emberl_work, pair, [1]}, #{return => profile})
                      end, #{}),
    Modules = lists:usort([M || {M, _, _} <- maps:keys(emberl_test:calls(Profile))]),
    {ok, Ours} = application:get_key(emberl, modules),
    ?assertEqual(Modules -- Ours, Modules),
    ?assertMatch(#{{emberl_work, leaf, 1} := 2}, emberl_test:calls(Profile)).
