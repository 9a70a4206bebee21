%% SPDX-License-Identifier: Apache-2.0
%% @private
%% One window of a sampler: which processes are recorded and with which chance, what they
%% did, what that counts, and what it has cost. Runs in a process of its own, so that the
%% sampler answers meanwhile and none of this stays on its heap.
-module(emberl_sample_window).

-export([run/1, select/2, leave_out/2]).
-export_type([task/0, result/0, busy/0]).

-define(BUSIEST, 50).         % processes that are recorded whenever there are many
-define(SCANNED, 300).        % others that are looked at in each window for that
-define(LOOK_MS, 20).
-define(LONGEST_MS, 60).      % until all processes are traced, and what was asked for
-define(TOLD_APART, 1000).    % processes of a slice

%% The busiest that were found, with the reductions of each a second; and what part of the
%% list was looked at last.
-type busy() :: #{pids := #{pid() => float()}, offset := non_neg_integer()}.
-type task() :: #{options := emberl_sample_options:options(),
                  length := pos_integer(),                  % milliseconds
                  sum := none | emberl_profile:profile(),   % that it is added to
                  since := none | integer(),                % end of the one before, ns
                  busy := busy(),
                  holder := pid(),                          % the sampler
                  budget_ppm := pos_integer()}.
-type result() :: #{sum := emberl_profile:profile(), busy := busy(),
                    fixed := float(), variable := float(),  % cost: see emberl_governor
                    length := float(), ended := integer(),  % ns
                    events := non_neg_integer(), lost := non_neg_integer(),
                    seen := non_neg_integer(), present := non_neg_integer()}.

-spec run(task()) -> {ok, result()} | {error, term()}.
run(#{options := Options, length := Length, holder := Holder, busy := Busy} = Task) ->
    Start = emberl_sample_cost:clocks(),
    Active = emberl_sample_cost:active(),
    #{pids := Pids, chances := Chances, present := Present, all := All} =
        select(Options, [Holder, self()], Busy),
    Readings = readings(All, Busy),
    case emberl_control:start_window(request(Pids, Length, Holder, Options)) of
        {ok, Ref} ->
            Open = emberl_sample_cost:clocks(),
            receive close -> ok after Length -> ok end,
            Closing = emberl_sample_cost:clocks(),
            Outcome = emberl_control:finish(Ref),
            Ended = emberl_sample_cost:clocks(),
            Measured = #{start => Start, open => Open, closing => Closing, ended => Ended,
                         active => Active, present => Present, chances => Chances,
                         seen => length(Pids),
                         busy => busier(Busy, Readings, emberl_sample_cost:wall(Start, Ended))},
            added(Outcome, Measured, Task);
        {error, Reason} ->
            {error, Reason}
    end.

request(Pids, Length, Holder,
        #{modules := Modules, metrics := Metrics, memory_limit := Limit, max_events := Events}) ->
    {ok, Options} = emberl_options:parse(capture, #{return => profile, timeout => 1000,
                                                    memory_limit => max(1 bsl 20, Limit)}),
    #{processes => Pids, holder => Holder, collections => Metrics -- [calls, binaries] =/= [],
      duration => infinity, counted => Length, look => ?LOOK_MS, target => <<"sample">>,
      bounds => {Events, ?LONGEST_MS}, options => Options#{modules := Modules}}.

%% ---- which processes ----

-spec select(emberl_sample_options:options(), [pid()]) ->
          #{pids := [pid()], chances := #{pid() => float()}, present := non_neg_integer(),
            all := [pid()]}.
select(Options, Except) ->
    select(Options, Except, #{pids => #{}, offset => 0}).

%% `chances' has those whose chance is not 1; then `all' has all there are.
select(#{processes := all, most_processes := Most}, Except, #{pids := Busy}) ->
    Present = processes() -- Except,
    Count = length(Present),
    case Count =< Most of
        true -> #{pids => Present, chances => #{}, present => Count, all => []};
        false -> some_of(Present, Count, Most, Busy)
    end;
select(#{processes := Given}, Except, _Busy) ->
    Pids = [Pid || Name <- Given, Pid <- [pid_of(Name)], is_pid(Pid)] -- Except,
    #{pids => Pids, chances => #{}, present => length(Pids), all => []}.

pid_of(Pid) when is_pid(Pid) -> Pid;
pid_of(Name) -> whereis(Name).

%% The busiest, and of every so many others one at random.
some_of(Present, Count, Most, Busy) ->
    Others = [Pid || Pid <- Present, not is_map_key(Pid, Busy)],
    Step = max(2, ceil(Count / Most)),
    Chosen = one_of_each(Others, Step, rand:uniform(Step)),
    Known = [Pid || Pid <- Present, is_map_key(Pid, Busy)],
    #{pids => Known ++ Chosen, present => Count, all => Present,
      chances => maps:from_list([{Pid, 1 / Step} || Pid <- Chosen])}.

one_of_each([], _Step, _Skip) -> [];
one_of_each(Pids, Step, Skip) when length(Pids) < Step ->
    [lists:nth(Skip, Pids) || Skip =< length(Pids)];
one_of_each(Pids, Step, Skip) ->
    {Some, Others} = lists:split(Step, Pids),
    [lists:nth(Skip, Some) | one_of_each(Others, Step, rand:uniform(Step))].

%% ---- the busiest ----

%% Of some processes at a time, in their turn; of none where all are recorded anyway.
readings([], _Busy) ->
    [];
readings(All, #{pids := Busy, offset := Offset}) ->
    Scanned = lists:sublist(All, Offset rem length(All) + 1, ?SCANNED),
    [{Pid, Reductions} || Pid <- lists:usort(maps:keys(Busy) ++ Scanned),
                          {reductions, Reductions} <- [reductions(Pid)]].

reductions(Pid) ->
    process_info(Pid, reductions).

busier(Busy, [], _Time) ->
    Busy;
busier(#{offset := Offset}, Readings, Time) ->
    Rates = [{(Now - Before) / Time, Pid} || {Pid, Before} <- Readings,
                                             {reductions, Now} <- [reductions(Pid)]],
    Busiest = lists:sublist(lists:reverse(lists:sort(Rates)), ?BUSIEST),
    #{pids => maps:from_list([{Pid, Rate} || {Rate, Pid} <- Busiest, Rate > 0]),
      offset => Offset + ?SCANNED}.

%% ---- what it counts ----

added({error, Reason}, _Measured, _Task) ->
    {error, Reason};
added({_Why, [{{error, Reason}, _}], _Request}, _Measured, _Task) ->
    {error, Reason};
added({_Why, [{Profile, _}], #{before := Before}}, Measured,
      #{options := #{metrics := Metrics}, sum := Sum, since := Since, budget_ppm := Budget}) ->
    #{duration_ns := Duration, events := Events, lost := Lost, compensated_ns := Compensated} =
        emberl_profile:info(Profile),
    Traced = Compensated * (Before + Events) / max(1, Events),
    #{ended := {Ended, _, _} = Then, seen := Seen, present := Present, chances := Chances} =
        Measured,
    Span = max(Duration, Ended - since(Since, Measured)),
    Weights = weights(emberl_profile:processes(Profile), Span / max(1, Duration), Chances),
    Untraced = 1 - Seen / max(1, max(Seen, Present)),
    Variable = emberl_sample_cost:variable(Measured, Traced, Untraced),
    Schedulers = erlang:system_info(schedulers_online),
    NewSum = emberl_nif:profile_add_window(
               Sum, Profile, Weights,
               {Duration, Span,
                round((emberl_sample_cost:fixed(Measured, Then) + Variable) * 1.0e6),
                Schedulers, Budget, Seen, max(Seen, Present)}, ?TOLD_APART),
    leave_out(NewSum, Metrics),
    {ok, #{sum => NewSum, busy => maps:get(busy, Measured),
           fixed => emberl_sample_cost:fixed(Measured, emberl_sample_cost:clocks()),
           variable => Variable, length => Duration / 1.0e6,
           ended => Ended, events => Events, lost => Lost, seen => Seen, present => Present}};
added({_Why, [], _Request}, _Measured, _Task) ->
    {error, nothing_recorded}.

%% What was before the first window nobody knows: not even how long it took to calibrate.
since(none, #{start := {Start, _, _}}) -> Start;
since(Since, _Measured) -> Since.

%% A process that was spawned in the window is there with the chance of its parent.
weights(Processes, Scale, Chances) ->
    {Weights, _} = lists:mapfoldl(
                     fun(#{pid := Pid, parent := Parent}, Known) ->
                             Chance = maps:get(Pid, Chances, maps:get(Parent, Known, 1.0)),
                             {Scale / Chance, Known#{Pid => Chance}}
                     end, #{}, Processes),
    Weights.

%% What a profile is not to have of what was measured.
-spec leave_out(emberl_profile:profile(), [emberl_profile:metric()]) -> ok.
leave_out(Profile, Metrics) ->
    Others = [own_time, words, calls, binaries] -- Metrics,
    emberl_nif:profile_leave_out(Profile, [emberl_report:absence(Metric) || Metric <- Others]).
