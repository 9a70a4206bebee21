%% SPDX-License-Identifier: Apache-2.0
%% What a sampler costs a load, with it and without it by turns: throughput, latency, and
%% the cost that its status states beside the throughput that is missing.
%%
%% The load: servers that answer requests with some work and terms, clients that ask them as
%% fast as they can, and a process that spawns others.
%%
%% ROUNDS: pairs (default 11).
-module(sample_bench).

-export([main/0, server/0, client/3, spawner/1, short_life/1]).

-define(MEASURE_MS, 5000).
-define(BUDGETS, [0.01, 0.05]).

-spec main() -> no_return().
main() ->
    {ok, _} = application:ensure_all_started(emberl),
    emberl_calibrate:ensure_once(),
    Load = start(),
    _ = measure(Load, 1000), % warm up
    Pairs = list_to_integer(os:getenv("ROUNDS", "11")),
    [report(Budget, [pair(Load, Budget, N) || N <- lists:seq(1, Pairs)]) || Budget <- ?BUDGETS],
    halt().

start() ->
    Requests = counters:new(1, [write_concurrency]),
    Servers = [spawn_link(?MODULE, server, []) || _ <- lists:seq(1, 4)],
    Latencies = ets:new(latencies, [public, duplicate_bag, {write_concurrency, true}]),
    [spawn_link(?MODULE, client, [Server, Requests, Latencies])
     || Server <- Servers, _ <- lists:seq(1, 5)],
    spawn_link(?MODULE, spawner, [Requests]),
    {Requests, Latencies}.

%% Which of both comes first changes.
pair(Load, Budget, N) when N rem 2 =:= 1 ->
    Without = measure(Load, ?MEASURE_MS),
    {Without, with_sampler(Load, Budget)};
pair(Load, Budget, _N) ->
    With = with_sampler(Load, Budget),
    {measure(Load, ?MEASURE_MS), With}.

with_sampler(Load, Budget) ->
    {ok, Sampler} = emberl:sample(#{budget => Budget}),
    Measured = measure(Load, ?MEASURE_MS),
    #{cost_life := Stated, windows := Windows} = emberl:status(Sampler),
    ok = emberl:stop(Sampler),
    Measured#{stated => Stated, windows => Windows}.

measure({Requests, Latencies}, Ms) ->
    ets:delete_all_objects(Latencies),
    Before = counters:get(Requests, 1),
    Start = erlang:monotonic_time(microsecond),
    timer:sleep(Ms),
    Done = counters:get(Requests, 1) - Before,
    Time = erlang:monotonic_time(microsecond) - Start,
    Sorted = lists:sort([Us || {latency, Us} <- ets:tab2list(Latencies)]),
    #{rate => Done / Time * 1.0e6, p50 => nth(0.5, Sorted), p99 => nth(0.99, Sorted)}.

nth(_Share, []) -> 0;
nth(Share, Sorted) -> lists:nth(max(1, ceil(Share * length(Sorted))), Sorted).

report(Budget, Pairs) ->
    io:format("~nbudget ~.1f %, medians of ~b pairs (and half of them)~n",
              [100 * Budget, length(Pairs)]),
    line("throughput lost",
         [100 * (1 - With / Without) || {#{rate := Without}, #{rate := With}} <- Pairs]),
    line("p50 longer by", [longer(p50, Pair) || Pair <- Pairs]),
    line("p99 longer by", [longer(p99, Pair) || Pair <- Pairs]),
    line("stated cost", [100 * Stated || {_, #{stated := Stated}} <- Pairs]),
    io:format("~-18s ~8.1f~n",
              ["windows a second",
               lists:sum([Windows || {_, #{windows := Windows}} <- Pairs])
                   / (length(Pairs) * ?MEASURE_MS / 1000)]).

longer(Key, {Without, With}) ->
    100 * (maps:get(Key, With) / max(1, maps:get(Key, Without)) - 1).

line(What, Numbers0) ->
    Numbers = lists:sort(Numbers0),
    Count = length(Numbers),
    io:format("~-18s ~8.2f %  (~.2f to ~.2f)~n",
              [What, lists:nth(Count div 2 + 1, Numbers), lists:nth(Count div 4 + 1, Numbers),
               lists:nth(Count - Count div 4, Numbers)]).

%% ---- the load ----

-spec server() -> no_return().
server() ->
    receive
        {From, Ref, List} ->
            Sorted = lists:sort(fun(A, B) -> A =< B end, List),
            Text = iolist_to_binary(lists:join($,, [integer_to_list(N) || N <- Sorted])),
            From ! {Ref, maps:from_list([{N, byte_size(Text)} || N <- Sorted])},
            server()
    end.

%% One latency in a hundred is kept.
-spec client(pid(), counters:counters_ref(), ets:table()) -> no_return().
client(Server, Requests, Latencies) ->
    Start = erlang:monotonic_time(microsecond),
    Ref = make_ref(),
    Server ! {self(), Ref, [rand:uniform(1000) || _ <- lists:seq(1, 30)]},
    receive {Ref, _} -> ok end,
    counters:add(Requests, 1, 1),
    Us = erlang:monotonic_time(microsecond) - Start,
    rand:uniform(100) =:= 1 andalso ets:insert(Latencies, {latency, Us}),
    client(Server, Requests, Latencies).

-spec spawner(counters:counters_ref()) -> no_return().
spawner(Requests) ->
    {_, Monitor} = spawn_monitor(?MODULE, short_life, [100]),
    receive {'DOWN', Monitor, process, _, _} -> ok end,
    receive after 1 -> spawner(Requests) end.

-spec short_life(pos_integer()) -> [integer()].
short_life(N) -> [X * X || X <- lists:seq(1, N)].
