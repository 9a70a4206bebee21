%% SPDX-License-Identifier: Apache-2.0
%% Calls and words against somebody else who knows them: the VM's call_count and,
%% from OTP 27 on, its call_memory counters (through tprof); and sizes known by
%% arithmetic, on every release.
-module(emberl_oracle_tests).

-include_lib("eunit/include/eunit.hrl").

%% ---- known sizes ----

known_sizes_test_() ->
    [{atom_to_list(Name), fun() -> ?assertEqual(Words, words_of(MFA, Fun)) end}
     || {Name, Fun, MFA, Words} <- known_sizes()].

%% A list cell is 2 words, a tuple of N is N + 1, a float 2, a fun of the
%% environment [X] some more; a heap that is collected meanwhile changes nothing.
known_sizes() ->
    [{seq_small, fun() -> lists:seq(1, 5) end, {lists, seq_loop, 3}, 10},
     {seq, fun() -> lists:seq(1, 1000) end, {lists, seq_loop, 3}, 2000},
     {seq_collected, fun() -> lists:seq(1, 100000) end, {lists, seq_loop, 3}, 200000},
     {tuple, fun() -> list_to_tuple(lists:seq(1, 100)) end, {erlang, list_to_tuple, 1}, 101},
     {pairs, fun() -> pairs(1000) end, {?MODULE, pairs, 1}, 5000},
     {deep_pairs, fun() -> pairs(50000) end, {?MODULE, pairs, 1}, 250000},
     {floats, fun() -> lists:map(fun math:sqrt/1, lists:seq(1, 100)) end, {math, sqrt, 1}, 200},
     {reverse, fun() -> lists:reverse(lists:seq(1, 400), []) end, {lists, reverse, 2}, 800},
     {nothing, fun() -> lists:member(x, [a, b]) end, {lists, member, 2}, 0}].

pairs(0) -> [];
pairs(N) -> [{N, N} | pairs(N - 1)].

words_of(MFA, Fun) ->
    lists:sum([W || #{mfa := F, words := W} <- functions(Fun), F =:= MFA]).

functions(Fun) ->
    emberl_profile:functions(profile(Fun)).

profile(Fun) ->
    emberl_test:in_process(fun() -> emberl:apply(Fun, #{return => profile}) end).

%% All of a process's words are some stack's.
sum_of_stacks_is_sum_of_functions_test() ->
    Profile = profile(fun() -> pairs(3000) end),
    Functions = lists:sum([W || #{words := W} <- emberl_profile:functions(Profile)]),
    Stacks = lists:sum([W || #{words := W} <- emberl_profile:stacks(Profile)]),
    ?assertEqual(Functions, Stacks).

%% ---- the VM's counters ----

calls_test_() ->
    {timeout, 120,
     [{atom_to_list(Name), fun() -> compare_calls(Fun) end}
      || emberl_trace:uses_sessions(), {Name, Fun} <- works() ++ compiler()]}.

%% The same work twice, once counted by the VM and once profiled: in one run the
%% counters, which are the node's, would count the profiler's calls too.
compare_calls(Fun) ->
    Fun(),
    Ours = calls(profile(Fun)),
    Counted = counted(Fun, [MFA || MFA <- maps:keys(Ours), not is_wrapper(MFA)]),
    Wrong = [{MFA, {ours, maps:get(MFA, Ours)}, {counted, N}}
             || {MFA, N} <- Counted, N =/= maps:get(MFA, Ours)],
    ?assertEqual([], Wrong).

counted(Fun, MFAs) ->
    Session = trace:session_create(oracle, self(), []),
    try
        trace:function(Session, {'_', '_', '_'}, true, [call_count]),
        emberl_test:in_process(Fun),
        trace:function(Session, {'_', '_', '_'}, pause, [call_count]),
        [{MFA, count(Session, MFA)} || MFA <- MFAs]
    after
        trace:session_destroy(Session)
    end.

count(Session, MFA) ->
    {call_count, N} = trace:info(Session, MFA, call_count),
    N.

%% Called by whoever makes the process for the work, too.
is_wrapper({erlang, Function, _}) ->
    lists:member(Function, [apply, spawn_monitor, spawn_opt, exit]);
is_wrapper(_) ->
    false.

calls(Profile) ->
    maps:from_list([{MFA, C} || #{mfa := MFA, calls := C} <- emberl_profile:functions(Profile)]).

%% call_memory may be trusted from ERTS 15.2.6 on.
words_test_() ->
    {timeout, 120,
     [{atom_to_list(Name), fun() -> compare_words(Fun) end}
      || emberl_trace:uses_sessions(), {Name, Fun} <- works()]}.

%% The VM counts a fragment as a whole, also what it asked for too much. Which
%% allocations meet a full heap differs from run to run in so large a work, so
%% a few functions may differ by a few words.
compiler_words_test_() ->
    {timeout, 60,
     [fun() ->
              Wrong = wrong_words(Fun),
              Words = lists:sum([abs(Ours - Theirs) || {_, {ours, Ours}, {_, Theirs}} <- Wrong]),
              ?assert(length(Wrong) =< 4),
              ?assert(Words =< 40)
      end || emberl_trace:uses_sessions(), {compile, Fun} <- compiler()]}.

compare_words(Fun) ->
    ?assertEqual([], wrong_words(Fun)).

wrong_words(Fun) ->
    Fun(),
    Theirs = call_memory(Fun),
    Ours = maps:from_list([{MFA, W} || #{mfa := MFA, words := W} <- functions(Fun)]),
    Keys = lists:usort(maps:keys(Theirs) ++ maps:keys(Ours)) -- named_differences(),
    [{MFA, {ours, maps:get(MFA, Ours, 0)}, {call_memory, maps:get(MFA, Theirs, 0)}}
     || MFA <- Keys, maps:get(MFA, Ours, 0) =/= maps:get(MFA, Theirs, 0)].

%% call_memory counts the arguments that spawn copied to a child as words of its
%% first function.
named_differences() -> [{erlang, apply, 2}].

call_memory(Fun) ->
    {_, {call_memory, Rows}} = tprof:profile(Fun, #{type => call_memory, report => return}),
    maps:from_list([{{M, F, A}, lists:sum([W || {_, _, W} <- Processes])}
                    || {M, F, A, Processes} <- Rows]).

%% ---- work of many kinds, the same every time ----

works() ->
    [{seq, fun() -> lists:seq(1, 1000) end},
     {sort, fun() -> lists:sort([(I * 7919) rem 1009 || I <- lists:seq(1, 2000)]) end},
     {maps_put, fun() -> lists:foldl(fun(I, M) -> M#{I => {I, I}} end, #{}, lists:seq(1, 500)) end},
     {maps_map, fun() -> maps:map(fun(_, V) -> V + 1 end,
                                  maps:from_list([{I, I} || I <- lists:seq(1, 300)])) end},
     {maps_fold, fun() -> maps:fold(fun(K, V, A) -> [{K, V} | A] end, [],
                                    maps:from_list([{I, I} || I <- lists:seq(1, 200)])) end},
     {iolist, fun() -> iolist_to_binary([integer_to_binary(I) || I <- lists:seq(1, 500)]) end},
     {append, fun() -> lists:foldl(fun(I, B) -> <<B/binary, I:32>> end, <<>>,
                                   lists:seq(1, 500)) end},
     {match, fun() -> [X || <<X:16>> <= binary:copy(<<1, 2>>, 400)] end},
     {re_run,
      fun() -> re:run(lists:duplicate(200, $a) ++ "b", "(a+)b", [{capture, all, list}]) end},
     {re_split, fun() -> re:split("a,b,c,d,e,f,g,h", ",", [{return, list}]) end},
     {string_split, fun() -> string:split("a b c d e f", " ", all) end},
     {uppercase, fun() -> string:uppercase("hello, world of words") end},
     {format,
      fun() -> lists:flatten(io_lib:format("~p ~w ~s", [{a, [1, 2]}, #{a => 1}, "hi"])) end},
     {tuples,
      fun() -> [tuple_to_list(list_to_tuple(lists:seq(1, I))) || I <- lists:seq(1, 100)] end},
     {dict, fun() -> lists:foldl(fun(I, D) -> dict:store(I, I, D) end, dict:new(),
                                 lists:seq(1, 200)) end},
     {gb_trees, fun() -> lists:foldl(fun(I, T) -> gb_trees:enter(I, I, T) end, gb_trees:empty(),
                                     lists:seq(1, 200)) end},
     {queue, fun() -> lists:foldl(fun queue:in/2, queue:new(), lists:seq(1, 200)) end},
     {array, fun() -> array:to_list(array:from_list(lists:seq(1, 300))) end},
     {external, fun() -> binary_to_term(term_to_binary(lists:seq(1, 2000))) end},
     {ets, fun ets_work/0},
     {scan_parse, fun scan_and_parse/0},
     {funs, fun() -> [F(1) || F <- [fun(X) -> X + I end || I <- lists:seq(1, 300)]] end},
     {floats, fun() -> [math:sqrt(I * 1.5) || I <- lists:seq(1, 300)] end},
     {bignums, fun() -> lists:foldl(fun(I, A) -> A * I end, 1, lists:seq(1, 200)) end},
     {collect,
      fun() -> L = lists:seq(1, 20000), erlang:garbage_collect(), [X || X <- L, X rem 2 =:= 0] end},
     {body_recursion, fun() -> pairs(5000) end}].

ets_work() ->
    Table = ets:new(work, []),
    [ets:insert(Table, {I, lists:seq(1, 5)}) || I <- lists:seq(1, 200)],
    Rows = ets:tab2list(Table),
    ets:delete(Table),
    Rows.

scan_and_parse() ->
    {ok, Tokens, _} = erl_scan:string("f(X) -> X + 1, [a | b], {1, 2, 3}."),
    erl_parse:parse_form(Tokens).

compiler() ->
    [{compile, fun() -> {ok, _, _} = compile:forms(forms(), [binary]) end}].

forms() ->
    [{attribute, 1, module, compiled}, {attribute, 1, export, [{f, 1}]},
     {function, 1, f, 1, [{clause, 1, [{var, 1, 'X'}], [],
                           [{op, 1, '+', {var, 1, 'X'}, {integer, 1, 1}}]}]}].
