%% SPDX-License-Identifier: Apache-2.0
%% The budget holds over any minute, whatever the load does: simulated, hours in a moment.
-module(emberl_governor_tests).

-include_lib("eunit/include/eunit.hrl").

-define(MINUTE, 60000).

limits(Budget, Schedulers) ->
    #{budget => Budget, schedulers => Schedulers, window => 10, min_interval => 100}.

%% ---- a simulated node ----

%% Runs a sampler until Until; Load tells at each time {Fixed, Rate}: what it costs to open
%% a window, and what it costs a millisecond. Returns {[{Start, End, Cost}], Governor, End}.
run(Limits, Load, Until) ->
    loop(emberl_governor:new(Limits, 0), Load, 0, Until, []).

loop(Governor, _Load, Now, Until, Windows) when Now >= Until ->
    {lists:reverse(Windows), Governor, Now};
loop(Governor0, Load, Now, Until, Windows) ->
    case emberl_governor:plan(Governor0, Now, rand:uniform()) of
        {{wait, Wait}, Governor} ->
            ?assert(Wait > 0),
            loop(Governor, Load, Now + Wait, Until, Windows);
        {{window, Length}, Governor} ->
            ?assert(Length >= 1),
            {Fixed, Rate} = Load(Now),
            End = Now + Length + ceil(Fixed),
            Spent = #{from => Now, to => End, length => Length, fixed => float(Fixed),
                      variable => float(Length * Rate)},
            loop(emberl_governor:record(Spent, Governor), Load, End, Until,
                 [{Now, End, Fixed + Length * Rate} | Windows]);
        {{stop, budget}, Governor} ->
            {lists:reverse(Windows), Governor, stopped}
    end.

%% The most that any minute cost, as a share of all schedulers' time: it suffices to look
%% at minutes that end with a window.
dearest_minute(Windows, Schedulers) ->
    Costs = [{End, Cost} || {_, End, Cost} <- Windows],
    most(Costs, Costs, 0.0, 0.0) / (?MINUTE * Schedulers).

%% Those of the minute before each end: from First on.
most(_First, [], _Sum, Most) ->
    Most;
most([{Old, Cost} | First], [{End, _} | _] = Next, Sum, Most) when Old =< End - ?MINUTE ->
    most(First, Next, Sum - Cost, Most);
most(First, [{_, Cost} | Next], Sum, Most) ->
    most(First, Next, Sum + Cost, max(Most, Sum + Cost)).

total(Windows) -> lists:sum([Cost || {_, _, Cost} <- Windows]).

%% ---- loads ----

steady(Fixed, Rate) -> fun(_) -> {Fixed, Rate} end.

%% From one moment to the next, as it pleases; no scheduler can lose more than all time.
jumping(Schedulers) ->
    fun(_) -> {5 + 25 * rand:uniform(), (Schedulers + 1) * math:pow(rand:uniform(), 4)} end.

%% Idle for minutes, then as busy as can be.
bursts(Schedulers) ->
    fun(Now) when Now div (3 * ?MINUTE) rem 2 =:= 0 -> {5, 0.01};
       (_) -> {25, Schedulers + 1}
    end.

%% ---- what must hold ----

any_load_test_() ->
    [{lists:flatten(io_lib:format("~p of ~p, ~s", [Budget, Schedulers, Name])),
      fun() -> holds(Budget, Schedulers, Load) end}
     || Budget <- [0.002, 0.01, 0.1], Schedulers <- [1, 2, 16],
        {Name, Load} <- [{"steady", steady(15, 1)}, {"jumping", jumping(Schedulers)},
                         {"bursts", bursts(Schedulers)}],
        Budget * Schedulers > 0.002]. % less is not enough for one window a minute

holds(Budget, Schedulers, Load) ->
    {Windows, _, End} = run(limits(Budget, Schedulers), Load, 8 * ?MINUTE),
    ?assert(is_integer(End)),
    ?assert(length(Windows) > 10),
    ?assert(dearest_minute(Windows, Schedulers) =< Budget + 1.0e-9).

%% The dearest jump there is, when the minute's budget is nearly used up.
jump_test() ->
    Load = fun(Now) when Now < 2 * ?MINUTE -> {20, 0.1}; (_) -> {22, 3} end,
    {Windows, _, _} = run(limits(0.01, 2), Load, 5 * ?MINUTE),
    ?assert(dearest_minute(Windows, 2) =< 0.01 + 1.0e-9).

%% Most of the budget is used where there is use for it.
budget_is_used_test_() ->
    [?_assert(used(Budget, Schedulers) > 0.8 * Budget)
     || {Budget, Schedulers} <- [{0.01, 2}, {0.01, 8}, {0.05, 2}]].

used(Budget, Schedulers) ->
    Until = 10 * ?MINUTE,
    {Windows, _, _} = run((limits(Budget, Schedulers))#{min_interval => 0}, steady(15, 1), Until),
    total(Windows) / (Until * Schedulers).

windows_are_spread_test() ->
    {Windows, _, _} = run(limits(0.01, 2), steady(15, 1), 10 * ?MINUTE),
    Gaps = gaps(Windows),
    Mean = lists:sum(Gaps) / length(Gaps),
    ?assert(lists:min(Gaps) > 0.3 * Mean),
    % Now and then the last minute has no room for one more.
    ?assert(length([long || Gap <- Gaps, Gap >= 2 * Mean]) =< length(Gaps) div 100),
    ?assert(lists:max(Gaps) < 10 * Mean),
    ?assert(length(lists:usort(Gaps)) > length(Gaps) div 10). % no rhythm of their own

gaps(Windows) ->
    Starts = [Start || {Start, _, _} <- Windows],
    lists:zipwith(fun(A, B) -> B - A end, lists:droplast(Starts), tl(Starts)).

least_interval_test() ->
    Limits = (limits(0.1, 16))#{min_interval => 5000},
    {Windows, _, _} = run(Limits, steady(5, 0.1), 10 * ?MINUTE),
    ?assert(lists:min(gaps(Windows)) >= 5000).

%% A scheduler that is slow to wake must not count as saving.
late_test() ->
    Governor = emberl_governor:new(limits(0.01, 2), 0),
    {{window, 10}, Governor1} = emberl_governor:plan(Governor, 100000, 0.5),
    {{wait, Wait}, _} = emberl_governor:plan(Governor1, 100001, 0.5),
    ?assert(Wait > 500).

dear_windows_are_shorter_test() ->
    {[{0, _, _} | Later], _, _} = run((limits(0.002, 2))#{window => 50}, steady(60, 1),
                                      20 * ?MINUTE),
    ?assert(length(Later) > 10),
    ?assert(lists:all(fun({Start, End, _}) -> End - Start - 60 < 60 end, Later)),
    ?assert(dearest_minute(Later, 2) =< 0.002 + 1.0e-9).

too_small_a_budget_stops_test() ->
    ?assertMatch({[], _, stopped}, run(limits(0.0001, 1), steady(15, 1), ?MINUTE)),
    {Windows, _, stopped} = run(limits(0.002, 1), steady(150, 1), 10 * ?MINUTE),
    ?assertMatch([_], Windows).

%% One window that was dear for some other reason is not the end.
one_dear_window_test() ->
    Load = fun(Now) when Now > 2 * ?MINUTE, Now < 2 * ?MINUTE + 3000 -> {900, 1};
              (_) -> {15, 1}
           end,
    {Windows, _, End} = run(limits(0.01, 2), Load, 20 * ?MINUTE),
    ?assert(is_integer(End)),
    ?assert(length([Start || {Start, _, _} <- Windows, Start > 10 * ?MINUTE]) > 100).

%% ---- status ----

status_test() ->
    Until = 200 * ?MINUTE,
    {Windows, Governor, End} = run(limits(0.01, 2), steady(15, 1), Until),
    #{budget := 0.01, windows := Count, cost_minute := Minute, cost_hour := Hour,
      cost_life := Life} =
        emberl_governor:status(Governor, End),
    ?assertEqual(length(Windows), Count),
    ?assert(abs(Life - total(Windows) / (2 * End)) < 1.0e-9),
    ?assert(abs(Hour - Life) < 0.05 * Life),
    ?assert(Minute > 0.5 * Life andalso Minute =< 0.01),
    #{cost_minute := Later} = emberl_governor:status(Governor, End + ?MINUTE),
    ?assertEqual(0.0, Later / 1).

status_of_nothing_test() ->
    #{windows := 0, cost_minute := None, cost_life := None} =
        emberl_governor:status(emberl_governor:new(limits(0.01, 2), 7), 7),
    ?assertEqual(0.0, None).
