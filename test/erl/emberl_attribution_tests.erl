%% SPDX-License-Identifier: Apache-2.0
%% Time belongs to what ran: programs that spend nearly all of theirs in one
%% place. Shares of a run, never times.
-module(emberl_attribution_tests).

-include_lib("eunit/include/eunit.hrl").

share_test_() ->
    [{lists:flatten(io_lib:format("~s of ~0p", [Metric, Stack])),
      {timeout, 30, fun() -> ?assert(share(Metric, Stack, Function, Argument) > 0.9) end}}
     || {Metric, Stack, Function, Argument} <-
            [%% before a call, and behind it
             {own_ns, [burn_then_call], burn_then_call, 1},
             {own_ns, [call_then_burn], call_then_burn, 1},
             %% at the end of a tail chain, which the others have left
             {own_ns, [tail_to_burn, tail_to_burn_b, burn], tail_to_burn, 1},
             %% on the way back from a recursion
             {own_ns, [call_unwind, unwind], call_unwind, 200},
             %% waiting is not running, and that of the function that waits
             {off_cpu_ns, [wait_between, wait_for], wait_between, 200}]].

share(Metric, Stack, Function, Argument) ->
    Profile = emberl_test:profile({emberl_work, Function, [Argument]}, #{modules => [emberl_work]}),
    Rows = emberl_profile:stacks(Profile),
    Own = [maps:get(Metric, Row) || #{stack := MFAs} = Row <- Rows, [F || {_, F, _} <- MFAs] =:= Stack],
    lists:sum(Own) / lists:sum([maps:get(Metric, Row) || Row <- Rows]).

%% A collection's time is told apart, where it happened.
collection_test() ->
    Profile = emberl_test:in_process(
                fun() -> emberl_test:profile({emberl_work, collect, []}, #{modules => [emberl_work]}) end),
    Functions = emberl_profile:functions(Profile),
    [Collect] = [Gc || #{mfa := {emberl_work, collect, 0}, gc_ns := Gc} <- Functions],
    ?assert(Collect > 0).

%% Preemption and waiting give no frames of their own, nor nested ones.
no_pseudo_frames_test() ->
    Profile = emberl_test:profile({emberl_work, wait_between, [20]}, #{modules => [emberl_work]}),
    ?assertEqual(#{[wait_between] => 1, [wait_between, leaf] => 2, [wait_between, wait_for] => 1,
                   [wait_between, wait_for, leaf] => 1},
                 emberl_test:shape(Profile)).
