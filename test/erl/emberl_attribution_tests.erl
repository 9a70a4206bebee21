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
    Own = [maps:get(Metric, Row)
           || #{stack := MFAs} = Row <- Rows, [F || {_, F, _} <- MFAs] =:= Stack],
    lists:sum(Own) / lists:sum([maps:get(Metric, Row) || Row <- Rows]).

%% Waiting is told from being preempted: what is short of a processor is not waiting.
waiting_test_() ->
    {timeout, 60, fun waiting/0}.

waiting() ->
    ?assertMatch(#{waiting := true}, emberl_nif:stats()),
    Others = [spawn_link(fun emberl_work:forever/0)
              || _ <- lists:seq(1, 2 * erlang:system_info(schedulers))],
    Profile = emberl_test:profile({emberl_work, wait_and_burn, [200]}, #{modules => [emberl_work]}),
    [unlink_and_kill(Pid) || Pid <- Others],
    ByName = maps:from_list([{F, Row}
                             || #{mfa := {_, F, _}} = Row <- emberl_profile:functions(Profile)]),
    #{wait_for := #{off_cpu_ns := Waited, waiting_ns := Waiting},
      count_down := #{off_cpu_ns := Preempted, waiting_ns := 0}} = ByName,
    ?assertEqual(Waited, Waiting),
    ?assert(Waiting >= 200_000_000),
    ?assert(Preempted > 0).

unlink_and_kill(Pid) ->
    unlink(Pid),
    exit(Pid, kill).

%% Binaries outside the heap, by the function that made them.
binaries_test_() ->
    {timeout, 60, fun binaries/0}.

binaries() ->
    ?assertMatch(#{binaries := true}, emberl_nif:stats()),
    Profile = emberl_test:in_process(
                fun() ->
                        emberl_test:profile({emberl_work, binaries, [8000000]},
                                            #{modules => [emberl_work]})
                end),
    Bytes = [{F, B}
             || #{mfa := {_, F, _}, binary_bytes := B} <- emberl_profile:functions(Profile), B > 0],
    ?assertMatch([{large_binary, B}] when B >= 8000000 andalso B < 8001000, Bytes).

%% What there was before the first collection is not known, but not more than what
%% the VM allows.
captured_binaries_test_() ->
    {timeout, 60, fun captured_binaries/0}.

captured_binaries() ->
    {ok, Capture} = emberl:start_capture({emberl_work, binaries, 1}, 1,
                                         #{return => profile, modules => [emberl_work]}),
    emberl_test:in_process(fun() -> emberl_work:binaries(16000000) end),
    {ok, [Profile]} = emberl:await(Capture, infinity),
    [Bytes] = [B || #{mfa := {_, large_binary, _}, binary_bytes := B}
                        <- emberl_profile:functions(Profile)],
    ?assert(Bytes > 15500000 andalso Bytes =< 16000000, Bytes).

%% A collection's time is told apart, where it happened.
collection_test() ->
    Profile = emberl_test:in_process(
                fun() ->
                        emberl_test:profile({emberl_work, collect, []}, #{modules => [emberl_work]})
                end),
    Functions = emberl_profile:functions(Profile),
    [Collect] = [Gc || #{mfa := {emberl_work, collect, 0}, gc_ns := Gc} <- Functions],
    ?assert(Collect > 0).

%% Preemption and waiting give no frames of their own, nor nested ones.
no_pseudo_frames_test() ->
    Profile = emberl_test:profile({emberl_work, wait_between, [20]}, #{modules => [emberl_work]}),
    ?assertEqual(#{[wait_between] => 1, [wait_between, leaf] => 2, [wait_between, wait_for] => 1,
                   [wait_between, wait_for, leaf] => 1},
                 emberl_test:shape(Profile)).
