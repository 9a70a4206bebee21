%% SPDX-License-Identifier: Apache-2.0
%% Stacks on a VM whose frames have frame pointers, as perf wants them.
-module(emberl_frame_pointers_tests).

-include_lib("eunit/include/eunit.hrl").

-export([shapes/0]).

-define(PROGRAMS, lists:seq(1, 15)).

frame_pointers_test_() ->
    [{lists:append(["+JPperf ", Value]), {timeout, 60, fun() -> stacks(Value) end}}
     || erlang:system_info(emu_flavor) =:= jit,
        Value <- ["true"] ++ ["fp" || emberl_test:release() >= 27]].

stacks(Value) ->
    emberl_test:node(["+JPperf", Value], fun(Peer) ->
        OsPid = peer:call(Peer, os, getpid, []),
        try
            ?assertEqual(shapes(), peer:call(Peer, ?MODULE, shapes, [])),
            [?assertEqual({Seed, none}, {Seed, failure(Peer, Seed)}) || Seed <- ?PROGRAMS]
        after
            [file:delete(File) || File <- filelib:wildcard("/tmp/{perf,jit}-" ++ OsPid ++ ".*")]
        end
    end).

failure(Peer, Seed) ->
    Program = peer:call(Peer, emberl_random_program, generate, [Seed]),
    peer:call(Peer, emberl_property_tests, failure, [Program], 30000).

%% Tail calls, exceptions, and a captured call within a captured call.
shapes() ->
    ok = code:ensure_modules_loaded([emberl_work, emberl_work_other]),
    Works = [{chain_after, [1]}, {caught_deep, [10, throw]}, {ping, [100]}, {fork, [1]}],
    [emberl_test:shape(emberl_test:profile({emberl_work, F, A}, #{modules => [emberl_work]}))
     || {F, A} <- Works] ++ [nested()].

nested() ->
    Options = #{modules => [emberl_work], return => profile},
    {ok, Inner} = emberl:start_capture({emberl_work, chain_b, 1}, 1, Options),
    Outer = emberl:apply({emberl_work, chain_after, [1]}, Options),
    {ok, [Profile]} = emberl:await(Inner, 5000),
    {emberl_test:shape(Outer), emberl_test:shape(Profile)}.
