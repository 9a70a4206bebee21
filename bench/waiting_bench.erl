%% SPDX-License-Identifier: Apache-2.0
%% What a capture costs a busy node while it waits for a function that nobody calls:
%% throughput with it and without it by turns.
-module(waiting_bench).

-export([main/0, never/0]).

-define(MEASURE_MS, 300).

-spec main() -> no_return().
main() ->
    {ok, _} = application:ensure_all_started(emberl),
    Counter = counters:new(1, [write_concurrency]),
    Workers = [spawn_link(fun() -> work(Counter) end)
               || _ <- lists:seq(1, erlang:system_info(schedulers))],
    throughput(Counter), % warm up
    Rounds = [round_of(Counter)
              || _ <- lists:seq(1, list_to_integer(os:getenv("ROUNDS", "21")))],
    [begin unlink(Worker), exit(Worker, kill) end || Worker <- Workers],
    io:format("~-34s ~10s ~20s~n", ["a waiting capture", "slower by", "half of the rounds"]),
    [report(Kind, [maps:get(Kind, Round) || Round <- Rounds]) || Kind <- [none, lazy, eager]],
    halt().

report(Kind, Losses0) ->
    Losses = lists:sort(Losses0),
    Quarter = length(Losses) div 4,
    io:format("~-34s ~8.1f %  ~8.1f to ~.1f %~n",
              [text(Kind), lists:nth(length(Losses) div 2 + 1, Losses),
               lists:nth(Quarter + 1, Losses), lists:nth(length(Losses) - Quarter, Losses)]).

text(none) -> "none (noise)";
text(lazy) -> "arm => lazy";
text(eager) -> "arm => eager (default)".

%% Per cent lost, against the mean of before and after.
round_of(Counter) ->
    Kinds = shuffled([none, lazy, eager]),
    maps:from_list([{Kind, loss(Kind, Counter)} || Kind <- Kinds]).

shuffled(List) ->
    [X || {_, X} <- lists:sort([{rand:uniform(), X} || X <- List])].

loss(Kind, Counter) ->
    Before = throughput(Counter),
    Capture = start(Kind),
    With = throughput(Counter),
    stop(Capture),
    After = throughput(Counter),
    100 * (1 - With / ((Before + After) / 2)).

start(none) -> none;
start(Arm) ->
    {ok, Capture} = emberl:start_capture({?MODULE, never, 0}, 1, #{arm => Arm, return => profile}),
    Capture.

stop(none) -> ok;
stop(Capture) -> emberl:stop(Capture).

throughput(Counter) ->
    Start = counters:get(Counter, 1),
    timer:sleep(?MEASURE_MS),
    counters:get(Counter, 1) - Start.

-spec never() -> ok.
never() -> ok.

%% Calls of small functions of several modules, terms, messages to itself.
work(Counter) ->
    Keys = lists:seq(1, 30),
    Map = lists:foldl(fun(Key, M) -> maps:put(Key, integer_to_binary(Key), M) end, #{}, Keys),
    Found = [maps:get(Key, Map) || Key <- lists:reverse(Keys)],
    self() ! {found, iolist_to_binary(lists:join($,, Found))},
    receive {found, Text} -> [_ | _] = string:lexemes(binary_to_list(Text), ",") end,
    Tree = gb_trees:from_orddict([{Key, Key} || Key <- Keys]),
    30 = length([Key || Key <- Keys, gb_trees:is_defined(Key, Tree)]),
    counters:add(Counter, 1, 1),
    work(Counter).
