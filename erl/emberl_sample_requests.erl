%% SPDX-License-Identifier: Apache-2.0
%% @private
%% Sampling of calls instead of time: of the calls to some functions, one in so many is
%% captured from its beginning to its end.
%%
%% All calls are counted, by the VM's own counters, which cost next to nothing. When there
%% were enough since the last captures, and the governor allows, breakpoints are set and the
%% next calls captured: as many as one in so many makes of those that were counted. Each
%% counts for all the calls there were for each captured one, since the captures before. So
%% a rest for want of budget makes them count more, and estimates stay unbiased.
-module(emberl_sample_requests).

-export([new/1, count/1, is_wanted/2, at_rest/1, run/1, status/1]).
-export_type([requests/0, task/0]).

-define(MOST_AT_ONCE, 50).    % captures of a target
-define(LOOK_MS, 5).          % whether they have ended
-define(TOLD_APART, 1000).    % processes of a slice

-type requests() :: #{mfa() => #{counter := non_neg_integer(),  % as it was read last
                                 calls := non_neg_integer(),    % in all
                                 waiting := non_neg_integer(),  % no captured one counts for yet
                                 captured := non_neg_integer(),
                                 cut := non_neg_integer()}}.    % of these: not to their end
-type task() :: #{options := emberl_sample_options:options(),
                  length := pos_integer(),                  % milliseconds
                  sum := none | emberl_profile:profile(),
                  holder := pid(),
                  requests := requests(),
                  budget_ppm := pos_integer(), atom() => term()}.

-spec new([mfa()]) -> requests().
new(Targets) ->
    maps:from_list([{MFA, #{counter => 0, calls => 0, waiting => 0, captured => 0, cut => 0}}
                    || MFA <- Targets]).

%% How often they were called meanwhile; `Holder' is the sampler.
-spec count(requests()) -> {ok, requests()} | {error, term()}.
count(Requests) ->
    count(self(), Requests).

count(Holder, Requests) ->
    MFAs = lists:sort(maps:keys(Requests)),
    case emberl_control:count(Holder, MFAs) of
        {ok, Counters} ->
            {ok, lists:foldl(fun({MFA, Counter}, R) ->
                                     maps:update_with(MFA, fun(One) -> counted(Counter, One) end, R)
                             end, Requests, lists:zip(MFAs, Counters))};
        {error, Reason} ->
            {error, Reason}
    end.

%% A counter begins anew when its module is loaded again.
counted(Counter, #{counter := Before, calls := Calls, waiting := Waiting} = Request) ->
    New = case Counter >= Before of
              true -> Counter - Before;
              false -> Counter
          end,
    Request#{counter := Counter, calls := Calls + New, waiting := Waiting + New}.

-spec is_wanted(requests(), pos_integer()) -> boolean().
is_wanted(Requests, Every) ->
    wanted(Requests, Every) =/= [].

wanted(Requests, Every) ->
    [{MFA, min(?MOST_AT_ONCE, Waiting div Every)}
     || {MFA, #{waiting := Waiting}} <- maps:to_list(Requests), Waiting >= Every].

%% Nothing is counted for now.
-spec at_rest(requests()) -> requests().
at_rest(Requests) ->
    maps:map(fun(_MFA, Request) -> Request#{counter := 0} end, Requests).

-spec status(requests()) -> #{mfa() => #{atom() => number()}}.
status(Requests) ->
    maps:map(fun(_MFA, #{calls := Calls, captured := Captured} = Request) ->
                     Counts = maps:with([calls, captured, cut], Request),
                     Counts#{probability => Captured / max(1, Calls)}
             end, Requests).

%% ---- some captures ----

-spec run(task()) -> {ok, map()} | {error, term()}.
run(#{options := #{every := Every} = Options, length := Length, holder := Holder,
      requests := Requests} = Task) ->
    Start = emberl_sample_cost:clocks(),
    Active = emberl_sample_cost:active(),
    Started = start(wanted(Requests, Every), Holder, Options),
    Open = emberl_sample_cost:clocks(),
    Deadline = erlang:monotonic_time(millisecond) + Length,
    [wait(Ref, Deadline) || {_MFA, {ok, Ref}} <- Started],
    Closing = emberl_sample_cost:clocks(),
    Outcomes = [{MFA, emberl_control:stop(Ref)} || {MFA, {ok, Ref}} <- Started],
    Ended = emberl_sample_cost:clocks(),
    Measured = #{start => Start, open => Open, closing => Closing, ended => Ended,
                 active => Active},
    case {[Reason || {_, {error, Reason}} <- Started], count(Holder, Requests)} of
        {[], {ok, Counted}} -> {ok, result(Outcomes, Measured, Task#{requests := Counted})};
        {[], {error, Reason}} -> {error, Reason};
        {[Reason | _], _} -> {error, Reason}
    end.

%% The first sets the breakpoints that all of them need.
start([], _Holder, _Options) ->
    [];
start([First | Others], Holder, Options) ->
    [start(First, Holder, Options, set)
     | [start(Other, Holder, Options, there) || Other <- Others]].

start({MFA, Calls}, Holder, #{modules := Modules, memory_limit := Limit}, Breakpoints) ->
    {ok, Options} = emberl_options:parse(capture, #{return => profile, timeout => infinity,
                                                    memory_limit => max(1 bsl 20, Limit)}),
    {MFA, emberl_control:start_capture(#{mfa => MFA, calls => Calls, from => any, hidden => false,
                                         holder => Holder, breakpoints => Breakpoints,
                                         target => emberl_table:mfa(MFA),
                                         options => Options#{modules := Modules}})}.

%% Until it has its calls, or there is no more time, or the sampler says so. It stays what
%% it is: results are asked for at the end.
wait(Ref, Deadline) ->
    Left = Deadline - erlang:monotonic_time(millisecond),
    case Left > 0 andalso not is_told_to_close() andalso not emberl_control:has_ended(Ref) of
        true ->
            receive after min(Left, ?LOOK_MS) -> ok end,
            wait(Ref, Deadline);
        false ->
            ok
    end.

is_told_to_close() ->
    receive
        close -> self() ! close, true
    after 0 ->
            false
    end.

%% ---- what they count ----

result(Outcomes, Measured,
       #{sum := Sum, requests := Requests, options := #{budget := Budget, metrics := Metrics}}) ->
    #{open := Open, closing := Closing, ended := {Ended, _, _} = Then} = Measured,
    Captured = [{MFA, profiles(Outcome)} || {MFA, Outcome} <- Outcomes],
    Infos = [emberl_profile:info(Profile) || {_, Profiles} <- Captured, Profile <- Profiles],
    Variable = emberl_sample_cost:variable(Measured, sum_of(compensated_ns, Infos), 1.0),
    Cost = emberl_sample_cost:fixed(Measured, Then) + Variable,
    {NewSum, NewRequests} = add_all(Captured, Cost, Budget, Sum, Requests),
    NewSum =:= none orelse emberl_sample_window:leave_out(NewSum, Metrics),
    #{sum => NewSum, requests => NewRequests, variable => Variable,
      fixed => emberl_sample_cost:fixed(Measured, emberl_sample_cost:clocks()),
      length => emberl_sample_cost:wall(Open, Closing) / 1.0e6, ended => Ended,
      events => sum_of(events, Infos), lost => lists:max([0 | [Lost || #{lost := Lost} <- Infos]]),
      seen => length(Infos),
      present => lists:sum([maps:get(waiting, maps:get(MFA, Requests))
                            || {MFA, [_ | _]} <- Captured])}.

sum_of(Key, Infos) -> lists:sum([maps:get(Key, Info) || Info <- Infos]).

profiles({_Why, Calls, _Request}) -> [Profile || {Profile, _Value} <- Calls, is_reference(Profile)];
profiles({error, _}) -> [].

%% The first has the cost of all.
add_all(Captured, Cost, Budget, Sum, Requests) ->
    {NewSum, NewRequests, _} =
        lists:foldl(fun({_MFA, []}, Before) -> Before;
                       ({MFA, Profiles}, {S, R, C}) ->
                            Request = maps:get(MFA, R),
                            {add_calls(MFA, Profiles, Request, C, Budget, S),
                             R#{MFA := accounted(Profiles, Request)}, 0.0}
                    end, {Sum, Requests, Cost}, Captured),
    {NewSum, NewRequests}.

accounted(Profiles, #{captured := Captured, cut := Cut} = Request) ->
    Unfinished = [P || P <- Profiles, maps:get(outcome, emberl_profile:info(P)) =:= unfinished],
    Request#{waiting := 0, captured := Captured + length(Profiles),
             cut := Cut + length(Unfinished)}.

%% A captured call has those to the same function in it.
add_calls(MFA, Profiles, #{waiting := Calls}, Cost, Budget, Sum) ->
    Weight = Calls / lists:sum([max(1, calls_of(MFA, Profile)) || Profile <- Profiles]),
    Shares = shares(Calls, length(Profiles)),
    {NewSum, _} = lists:foldl(fun({Profile, Share}, {S, C}) ->
                                      {add_call(Profile, Weight, Share, C, Budget, S), 0.0}
                              end, {Sum, Cost}, lists:zip(Profiles, Shares)),
    NewSum.

calls_of(MFA, Profile) ->
    lists:sum([Calls || #{mfa := Function, calls := Calls} <- emberl_profile:functions(Profile),
                        Function =:= MFA]).

%% So many whole numbers of that sum.
shares(Sum, Count) ->
    [Sum * N div Count - Sum * (N - 1) div Count || N <- lists:seq(1, Count)].

add_call(Profile, Weight, Share, Cost, Budget, Sum) ->
    #{duration_ns := Duration} = emberl_profile:info(Profile),
    Weights = [Weight || _ <- emberl_profile:processes(Profile)],
    emberl_nif:profile_add_window(Sum, Profile, Weights,
                                  {Duration, round(Duration * Weight), round(Cost * 1.0e6),
                                   erlang:system_info(schedulers_online), round(Budget * 1000000),
                                   1, max(1, Share)},
                                  ?TOLD_APART).
