%% SPDX-License-Identifier: Apache-2.0
%% The library's functions called by hand with arguments of every wrong kind. Only
%% emberl's own modules call them, so a badarg is all the answer there need be; but the
%% node must live, and work afterwards. In a VM of its own, with freed memory overwritten.
-module(emberl_nif_tests).

-include_lib("eunit/include/eunit.hrl").

-export([idle/2, in_session/2]).

-define(CALLS, 4000).

%% Idle: every wrong term in every place among right ones, then whatever comes.
wrong_arguments_test_() ->
    [{atom_to_list(Phase), {timeout, 60, fun() -> survives(Phase) end}}
     || Phase <- [idle, in_session]].

survives(Phase) ->
    emberl_test:strict_node(fun(Peer) ->
        Calls = emberl_test:rounds(?CALLS),
        Seed = erlang:unique_integer([positive]),
        ?assertEqual([], peer:call(Peer, ?MODULE, Phase, [Calls, Seed], infinity)),
        ?assertEqual({ok, {1, 1}}, peer:call(Peer, emberl_test, works, [], infinity))
    end).

%% What is no local process is not remembered, since only its word would be.
only_processes_test() ->
    _ = emberl_test:profile({emberl_work, pair, [1]}),
    ok = emberl:stop(),
    {ok, Generation} = apply(emberl_nif, start, right(start, 5)),
    try only_processes(Generation)
    after emberl_nif:stop(), flush()
    end.

only_processes(Generation) ->
    State = fun(Target) -> Generation * 128 + Target end,
    {ok, 0} = emberl_nif:open(capture(), {0, 10, any, false, 1, false}),
    [?assertEqual(discard, emberl_nif:enabled(call, State(0), Term))
     || Term <- [{1, 2, 3}, [1], 1, x, remote(pid), make_ref(), hd(erlang:ports())]],
    ?assertEqual(trace, emberl_nif:enabled(call, State(0), self())),
    emberl_nif:trace(spawn, State(127), self(), {1, 2, 3}, #{}),
    ?assertEqual(discard, emberl_nif:enabled(call, State(127), {1, 2, 3})).

lists_are_proper_test() ->
    Profile = emberl_test:profile({emberl_work, pair, [1]}),
    [?assertError(badarg, emberl_nif:profile_filter(Profile, Processes, Modules))
     || {Processes, Modules} <- [{[0 | x], all}, {x, all}, {0, all}, {all, [<<"a">> | x]},
                                 {all, <<"a">>}]].

slower_than_is_a_time_test() ->
    ?assertEqual({error, not_started}, emberl_nif:open(capture(), {0, 1, any, true, 1, true})),
    [?assertError(badarg,
                  emberl_nif:open(setelement(10, capture(), {1, Ms}), {0, 1, any, true, 1, true}))
     || Ms <- [-1.0, 1.0e300, 1]].

%% ---- what runs over there: the answers that are neither a result nor an error to expect ----

idle(Calls, Seed) ->
    rand:seed(exsss, Seed),
    put(generation, 0),
    Pool = pool(),
    Found = [answer(F, put_at(N, Wrong, right(F, A)))
             || {F, A} <- functions(), N <- lists:seq(1, A), Wrong <- Pool]
        ++ [random_answer(Pool) || _ <- lists:seq(1, Calls)],
    emberl_nif:stop(),
    lists:usort(lists:append(Found)).

%% Where callbacks would do something.
in_session(Calls, Seed) ->
    rand:seed(exsss, Seed),
    Found = [in_one_session(40) || _ <- lists:seq(1, max(1, Calls div 40))],
    lists:usort(lists:append(Found)).

in_one_session(Calls) ->
    _ = profile(),
    {ok, Generation} = apply(emberl_nif, start, right(start, 5)),
    put(generation, Generation),
    {ok, 0} = emberl_nif:open(capture(), {0, 1000, any, true, 1, false}),
    Pool = pool(),
    Found = [random_answer(Pool) || _ <- lists:seq(1, Calls)],
    emberl_nif:stop(),
    flush(),
    lists:append(Found).

flush() ->
    receive _ -> flush() after 0 -> ok end.

functions() ->
    [{F, A} || {F, A} <- emberl_nif:module_info(exports), F =/= module_info].

%% Half of the calls are callbacks.
random_answer(Pool) ->
    {F, A} = one_of([{trace, 5}, one_of([{enabled, 3}, {trace, 5}]), one_of(functions()),
                     one_of(functions())]),
    Arguments = [case rand:uniform(2) of
                     1 -> Right;
                     2 -> one_of(Pool)
                 end || Right <- right(F, A)],
    answer(F, Arguments).

answer(Function, Arguments) ->
    try apply(emberl_nif, Function, Arguments) of
        _ -> []
    catch
        error:badarg -> [];
        error:{no_comparison, _View} -> [];
        Class:Reason -> [{Function, Arguments, Class, Reason}]
    end.

put_at(N, Term, List) ->
    {Before, [_ | After]} = lists:split(N - 1, List),
    Before ++ [Term | After].

one_of(List) ->
    lists:nth(rand:uniform(length(List)), List).

%% Arguments that are right as far as they are known here.
right(start, 5) -> [self(), 2, 4, true, [emberl_nif]];
right(open, 2) -> [capture(), {0, 1, any, false, 1, false}];
right(open_window, 2) -> [capture(), [{self(), active, true, [{lists, seq, 2}]}]];
right(restart_window, 2) -> [0, 10];
right(disarm, 2) -> [0, 0];
right(check_layout, 4) -> [1231, 577, 811, true];
right(forget_layout, 2) -> [false, false];
right(probe, 1) -> [runnable];
right(trace, 5) -> [one_of(tags()), state(), self(), {lists, seq, 2}, #{}];
right(enabled, 3) -> [one_of([trace_status | tags()]), state(), self()];
right(profile_functions, 2) -> [profile(), all];
right(profile_total, 2) -> [profile(), all];
right(profile_merge, 1) -> [[profile(), profile()]];
right(profile_filter, 3) -> [profile(), all, [<<"emberl_work">>]];
right(profile_add_window, 5) -> [none, profile(), [1.0], {0, 1, 2, 3, 4, 5, 6}, 10];
right(profile_diff, 3) -> [profile(), profile(), time];
right(profile_annotate, 4) -> [profile(), <<"t">>, <<"r">>, [{0, <<"name">>, undefined}]];
right(profile_cut, 2) -> [profile(), stopped];
right(profile_format, 5) -> [profile(), one_of([View || {View, _} <- emberl_nif:views()]),
                             calls, 'after', undefined];
right(mfa_text, 3) -> [lists, seq, 2];
right(_, Arity) -> lists:duplicate(Arity, profile()).

%% Of a tracer: of the one target, or of the processes.
state() -> get(generation) * 128 + one_of([0, 127]).

capture() ->
    {{lists, seq, 2}, false, true, true, true, infinity, all, false, true, {3, 0.5}, infinity}.

tags() ->
    [call, return_to, return_from, exception_from, in, out, gc_minor_start, gc_minor_end,
     gc_major_start, gc_major_end, spawn, exit, register, link].

%% A new one, since some change it.
profile() ->
    Bytes = case get(bytes) of
                undefined ->
                    Profile = emberl_test:profile({emberl_work, pair, [1]}),
                    {ok, Encoded} = emberl_nif:profile_encode(Profile),
                    ok = emberl:stop(),
                    put(bytes, Encoded),
                    Encoded;
                Known -> Known
            end,
    {ok, New} = emberl_nif:profile_decode(Bytes),
    New.

pool() ->
    Dead = spawn(fun() -> ok end),
    emberl_test:wait_dead(Dead),
    Profile = profile(),
    numbers() ++
        [self(), Dead, remote(pid), hd(erlang:ports()), remote(port), make_ref(), remote(reference),
         atomics:new(1, []), Profile, emberl_nif:profile_diff(Profile, profile(), none),
         '', all, true, false, undefined, call, trace_status,
         list_to_atom(lists:duplicate(255, 1078)),
         <<>>, <<1:3>>, <<0, 1, 255>>, binary:copy(<<"x">>, 100000), <<"emberl_work">>,
         [], [0], [0 | 1], [Profile | Profile], [Profile, make_ref()], lists:seq(1, 1000), "text",
         [<<"a">> | <<"b">>], [{0, <<"a">>, undefined} | x], [{4294967295, <<"a">>, <<"b">>}],
         [{heap_size, -1}, {mbuf_size, 1 bsl 70}, heap_size | heap_size],
         [{self(), active, true, [{lists, seq, 2} | x]} | y], [{self(), idle, true, [{a, b, 300}]}],
         [{remote(pid), ready, false, []}], [{self(), x, y, z}],
         {}, {1}, {lists, seq, 2}, {lists, seq, 256}, {lists, seq, -1}, {1, 2, 3},
         {0, 1, any, false},
         {0, -1, any, true, 1, true}, {64, 1, any, true, 1, true},
         {0, 1, remote(pid), true, 0, true},
         setelement(10, capture(), {1, -1.0e300}), setelement(10, capture(), {1, 1.0e300}),
         setelement(7, capture(), [a | b]), setelement(7, capture(), [1, <<"x">>]),
         setelement(1, capture(), {lists, seq, 256}), setelement(6, capture(), 0),
         setelement(11, capture(), -1), setelement(11, capture(), 0),
         #{}, #{extra => [a | b]}, #{extra => {proc_lib, init_p, [1, 2, 3, 4 | 5]}},
         #{extra => {lists, seq, lists:seq(1, 300)}}, #{1 => 2}, fun() -> ok end, fun lists:seq/2].

numbers() ->
    [0, 1, -1, 15, 63, 64, 255, 256, 1 bsl 31, 1 bsl 32, 1 bsl 59, 1 bsl 63, 1 bsl 64, -(1 bsl 63),
     1 bsl 1000, -(1 bsl 1000), 0.0, -1.5, 1.0e308, -1.0e308, 5.0e-324].

%% Of another node.
remote(pid) -> external(<<88, (node_name())/binary, 7:32, 8:32, 9:32>>);
remote(port) -> external(<<89, (node_name())/binary, 7:32, 9:32>>);
remote(reference) -> external(<<90, 2:16, (node_name())/binary, 9:32, 7:32, 8:32>>).

node_name() -> <<119, 7, "x@there">>.

external(Bytes) -> binary_to_term(<<131, Bytes/binary>>).
