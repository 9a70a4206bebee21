%% SPDX-License-Identifier: Apache-2.0
%% @private
%% When a sampler opens its next window, and how long that is, so that its cost over any
%% minute is within the budget. Pure: time is what the caller says it is.
%%
%% All times are in milliseconds, costs in milliseconds of one scheduler. The cost of a
%% window has two parts: what it takes to open and close it (`fixed'), and what happens
%% while it is open. The latter is known afterwards only, but it has a bound: no scheduler
%% loses more than all of the time, and no more does the consumer thread. A window is opened
%% if that bound, twice what others of late have cost to open and close, and the costs of
%% the last minute together are within the budget: so a load that jumps cannot break it.
%% Windows are spaced so that their mean cost is near the budget, and at random, since a
%% load may have a rhythm too.
-module(emberl_governor).

-export([new/2, plan/3, record/2, status/2]).
-export_type([governor/0, limits/0, spent/0, plan/0]).

-define(MINUTE, 60000).
-define(SHORTEST, 1).       % a window
-define(AIM, 0.95).         % of the budget
-define(FIRST_FIXED, 20.0). % before any is known
-define(FIRST_LENGTH, 50.0).
-define(LEAST_RESERVE, 40.0). % for opening and closing a window
-define(RECENT, 8).         % windows that tell what the next may cost

-type limits() :: #{budget := float(),            % share of the time of all schedulers
                    schedulers := pos_integer(),
                    window := pos_integer(),      % how long at most
                    min_interval := non_neg_integer()}.
%% Of a window, from the beginning of its set-up to the end of its clear-down.
-type spent() :: #{from := integer(), to := integer(), length := number(),
                   fixed := float(), variable := float()}.
-type plan() :: {wait, Milliseconds :: pos_integer()}
              | {window, Milliseconds :: pos_integer()}
              | {stop, budget}.

-opaque governor() :: #{limits := limits(), started := integer(),
                        minute := [{integer(), float()}],         % newest first: end, cost
                        hour := [{integer(), float()}],           % by whole minutes since start
                        life := float(),
                        windows := non_neg_integer(),
                        recent := [spent()],                      % newest first
                        next := integer()}.                       % not before

-spec new(limits(), integer()) -> governor().
new(Limits, Now) ->
    #{limits => Limits, started => Now, minute => [], hour => [], life => 0.0, windows => 0,
      recent => [], next => Now}.

%% What now? `Random' is from 0 to 1: of a window that is opened now, when in its turn.
-spec plan(governor(), integer(), float()) -> {plan(), governor()}.
plan(#{next := Next} = Governor, Now, _Random) when Now < Next ->
    {{wait, Next - Now}, Governor};
plan(#{limits := #{window := Window}} = Governor, Now, Random) ->
    Left = minute_budget(Governor) - spent_since(Now - ?MINUTE, Governor),
    case affordable(Left, Governor) of
        Length when Length >= ?SHORTEST -> opened(min(Window, Length), Now, Random, Governor);
        _ -> too_dear(oldest(Now, Governor), Now, Random, Governor)
    end.

opened(Length, Now, Random, Governor) ->
    {{window, Length}, Governor#{next := Now + interval(Length, Random, Governor)}}.

%% How long a window may be, at worst, for this cost.
affordable(Left, #{limits := #{schedulers := Schedulers}} = Governor) ->
    floor((Left - reserve(Governor)) / (Schedulers + 1)).

minute_budget(#{limits := #{budget := Budget, schedulers := Schedulers}}) ->
    Budget * ?MINUTE * Schedulers.

%% Twice as much as of late.
reserve(#{recent := Recent}) ->
    max(?LEAST_RESERVE, 2 * lists:max([0.0 | [Fixed || #{fixed := Fixed} <- Recent]])).

%% Where nothing is left of the last minute, the oldest of its windows has to be longer
%% ago. Where there was none, one tells whether they are still as dear as the dearest of
%% late; unless the cheapest does not fit either.
too_dear(none, Now, Random, #{limits := #{schedulers := Schedulers}} = Governor) ->
    case cheapest(Governor) + (Schedulers + 1) * ?SHORTEST =< minute_budget(Governor) of
        true -> opened(?SHORTEST, Now, Random, Governor);
        false -> {{stop, budget}, Governor}
    end;
too_dear(End, Now, _Random, Governor) ->
    {{wait, max(1, End + ?MINUTE - Now + 1)}, Governor}.

cheapest(#{recent := []}) -> ?LEAST_RESERVE;
cheapest(#{recent := Recent}) -> lists:min([Fixed || #{fixed := Fixed} <- Recent]).

oldest(Now, #{minute := Minute}) ->
    case [End || {End, _} <- Minute, End > Now - ?MINUTE] of
        [] -> none;
        Ends -> lists:last(Ends)
    end.

%% From the beginning of one window to that of the next, on average what the one costs.
interval(Length, Random, #{limits := Limits} = Governor) ->
    #{budget := Budget, schedulers := Schedulers, min_interval := Least} = Limits,
    Mean = expected(Length, Governor) / (?AIM * Budget * Schedulers),
    max(Least, ceil(max(Length, Mean * (0.5 + Random)))).

%% Most may be shorter than they might be.
expected(Length, #{recent := []}) ->
    ?FIRST_FIXED + min(?FIRST_LENGTH, Length);
expected(Most, #{recent := Recent}) ->
    Length = min(Most, lists:sum([L || #{length := L} <- Recent]) / length(Recent)),
    Fixed = lists:sum([Fixed || #{fixed := Fixed} <- Recent]) / length(Recent),
    Rates = [Variable / max(?SHORTEST, L) || #{variable := Variable, length := L} <- Recent],
    Fixed + Length * lists:sum(Rates) / length(Rates).

%% A window that was dearer than it was thought to be is paid for before the next.
-spec record(spent(), governor()) -> governor().
record(#{from := From, to := To, fixed := Fixed, variable := Variable} = Spent, Governor) ->
    #{limits := #{budget := Budget, schedulers := Schedulers}, minute := Minute, life := Life,
      windows := Windows, recent := Recent, next := Next} = Governor,
    Cost = Fixed + Variable,
    Paid = From + floor(0.5 * Cost / (?AIM * Budget * Schedulers)),
    Governor#{minute := [{To, Cost} | [Each || {End, _} = Each <- Minute, End > To - ?MINUTE]],
              hour := by_minutes(To, Cost, Governor), life := Life + Cost,
              windows := Windows + 1, recent := lists:sublist([Spent | Recent], ?RECENT),
              next := max(Next, max(To, Paid))}.

by_minutes(To, Cost, #{started := Started, hour := Hour}) ->
    Minute = Started + (To - Started) div ?MINUTE * ?MINUTE,
    Sums = case Hour of
               [{Minute, Sum} | Others] -> [{Minute, Sum + Cost} | Others];
               _ -> [{Minute, Cost} | Hour]
           end,
    lists:sublist(Sums, 61).

spent_since(Time, #{minute := Minute}) ->
    lists:sum([Cost || {End, Cost} <- Minute, End > Time]).

%% Costs as shares of all schedulers' time: over the last minute, the last hour (by whole
%% minutes) and the whole life, or as much as there was of each.
-spec status(governor(), integer()) -> #{atom() => number()}.
status(#{limits := #{budget := Budget}, started := Started, life := Life,
         windows := Windows} = Governor, Now) ->
    #{budget => Budget, windows => Windows,
      cost_minute => share(spent_since(Now - ?MINUTE, Governor),
                           min(?MINUTE, Now - Started), Governor),
      cost_hour => hour_share(Now, Governor),
      cost_life => share(Life, Now - Started, Governor)}.

hour_share(Now, #{started := Started, hour := Hour} = Governor) ->
    Counted = [Each || {Minute, _} = Each <- Hour, Minute > Now - 60 * ?MINUTE],
    First = max(Started, Now - 60 * ?MINUTE),
    share(lists:sum([Cost || {_, Cost} <- Counted]), Now - First, Governor).

share(_Cost, Time, _Governor) when Time =< 0 -> 0.0;
share(Cost, Time, #{limits := #{schedulers := Schedulers}}) -> Cost / (Time * Schedulers).
