%% SPDX-License-Identifier: Apache-2.0
%% Stacks where events were lost: each is right again at the next event, or what is not
%% known of it is marked. See emberl_lossy for the programs.
-module(emberl_losses_tests).

-include_lib("eunit/include/eunit.hrl").

-define(UNKNOWN, {'', '[unknown]'}).

losses_test_() ->
    [{atom_to_list(Name), {timeout, 60, fun() -> ?assertEqual(Shape, shape(profile(Target))) end}}
     || can_stall(), {Name, Target, Shape} <- scenarios()].

%% See emberl_test_nif: by a signal to one thread.
can_stall() -> os:type() =:= {unix, linux}.

%% The compiler knows that dig/1 and climb/1 do not return: they call by tail calls.
scenarios() ->
    [{deep_recursion, {main, [40, 20]}, deep()},
     {tail_loop, {loop, [2000, 1000]},
      #{[loop] => 1501, [loop, leaf] => 1500, [loop, ?UNKNOWN] => 0}},
     {exception_unseen, {caught, []},
      #{[caught] => 1, [caught, dig] => 6, [caught, leaf] => 2, [caught, ?UNKNOWN] => 0}},
     {exception_past_unknown_functions, {thrown_back, []},
      #{[thrown_back] => 1, [thrown_back, climb] => 4, [thrown_back, leaf] => 2,
        [thrown_back, climb, ?UNKNOWN] => 0}}].

%% Levels 40 to 20 are seen, and all returns; of levels 19 to 0 the calls of leaf/1 are.
deep() ->
    Known = [[main | lists:duplicate(N, deep)] || N <- lists:seq(1, 21)],
    Unknown = lists:last(Known) ++ [?UNKNOWN],
    maps:from_list([{[main], 1}, {Unknown, 0}, {Unknown ++ [leaf], 20}]
                   ++ [{Stack, 1} || Stack <- Known] ++ [{Stack ++ [leaf], 1} || Stack <- Known]).

%% Each scheduler has a ring of its own: some are full, others are not. Whatever is seen
%% of the recursion is marked; then all is seen.
migrations_test_() ->
    [{timeout, 60, fun migrations/0} || can_stall()].

migrations() ->
    {Recursion, Rest} = lists:partition(fun({Stack, _}) -> lists:member(?UNKNOWN, Stack) end,
                                        maps:to_list(shape(profile({moved, [10]})))),
    ?assertEqual([{[moved], 1}, {[moved, called], 1}, {[moved, called, leaf], 1},
                  {[moved, leaf], 2}],
                 lists:sort(Rest)),
    [?assertMatch({[moved, ?UNKNOWN | _], _, []},
                  {Stack, Calls, Stack -- ([moved, leaf] ++ lists:duplicate(11, on_all_schedulers)
                                           ++ lists:duplicate(12, ?UNKNOWN))})
     || {Stack, Calls} <- Recursion].

losses_are_shown_test_() ->
    [{timeout, 60, fun losses_are_shown/0} || can_stall()].

losses_are_shown() ->
    Profile = profile({loop, [2000, 1000]}),
    #{lost := Lost, complete := false, outcome := returned, duration_ns := Duration} = Info =
        emberl_profile:info(Profile),
    ?assert(Lost >= 1000),
    ?assert(lists:sum([maps:get(Key, Row) || Row <- emberl_profile:stacks(Profile),
                                             Key <- [own_ns, off_cpu_ns, gc_ns]]) =< Duration),
    ?assertMatch({match, _},
                 re:run(emberl_report:notes(Info), [emberl_table:count(Lost), " events lost"])),
    ?assertMatch({match, _},
                 re:run(emberl_profile:format(Profile, brendan_gregg), "\\[unknown\\] [0-9]+")).

%% The capture does not wait for an end that is never told, nor for its time limit.
lost_end_test_() ->
    [{timeout, 60, fun lost_end/0} || can_stall()].

lost_end() ->
    {ok, Capture} = emberl:start_capture({emberl_lossy, ending, 0}, 1,
                                         #{return => profile, timeout => infinity,
                                           modules => [emberl_lossy]}),
    emberl_test:in_process(fun() -> emberl_lossy:ending(), emberl_test_nif:resume() end),
    {ok, [Profile]} = emberl:await(Capture, infinity),
    #{outcome := unfinished, cut_by := lost, complete := false} = Info =
        emberl_profile:info(Profile),
    ?assertMatch({match, _}, re:run(emberl_report:notes(Info), "the call's end was lost")),
    ?assertMatch(#{[ending] := 1, [ending, leaf] := 1}, shape(Profile)).

profile({Function, Arguments}) ->
    code:ensure_modules_loaded([emberl_lossy, emberl_test_nif, emberl_test]),
    Target = {emberl_lossy, Function, Arguments},
    Options = #{modules => [emberl_lossy], fold_recursion => false, compensate => false},
    try emberl_test:in_process(fun() -> emberl_test:profile(Target, Options) end)
    after emberl_test_nif:resume()
    end.

%% Without what makes the losses.
shape(Profile) ->
    Named = [{lists:map(fun name/1, Stack), Calls}
             || {Stack, Calls} <- maps:to_list(emberl_test:shape(Profile))],
    maps:from_list([Row || {Stack, _} = Row <- Named,
                           Stack -- [lose, keep, {'fun', keep}, seen] =:= Stack]).

name({emberl_lossy, Name}) -> Name;
name(Name) -> Name.
