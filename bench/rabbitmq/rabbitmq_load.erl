%% SPDX-License-Identifier: Apache-2.0
%% Throughput and latency of a RabbitMQ node with and without the sampler inside it, in
%% pairs. Each client publishes to a queue of its own and consumes from it, with so many
%% messages under way; a latency is from publishing to delivery. See bench/rabbitmq/run.
-module(rabbitmq_load).

-include_lib("amqp_client/include/amqp_client.hrl").

-export([main/1, top/1]).

-define(CLIENTS, 4).
-define(UNDER_WAY, 20).
-define(WARM_UP_MS, 2000).
-define(SETTLE_MS, 3000). % the sampler's first windows; without it the same pause

%% The node and its port, rounds, seconds a measurement, and the sampler's options.
main([NodeText, PortText, RoundsText, SecondsText, OptionsText]) ->
    Node = list_to_atom(NodeText),
    persistent_term:put(?MODULE, list_to_integer(PortText)),
    Milliseconds = 1000 * list_to_integer(SecondsText),
    Options = term(OptionsText),
    logger:set_primary_config(level, error), % channels that close drop what is under way
    pong = net_adm:ping(Node),
    {?MODULE, Binary, File} = code:get_object_code(?MODULE),
    {module, ?MODULE} = rpc:call(Node, code, load_binary, [?MODULE, File, Binary]),
    _ = measure(Node, Milliseconds), % warms up
    Pairs = [pair(Node, Milliseconds, Options, Round)
             || Round <- lists:seq(1, list_to_integer(RoundsText))],
    report(Pairs),
    halt().

term(Text) ->
    {ok, Tokens, _} = erl_scan:string(Text ++ "."),
    {ok, Term} = erl_parse:parse_term(Tokens),
    Term.

%% Which of both comes first changes from pair to pair.
pair(Node, Milliseconds, Options, Round) when Round rem 2 =:= 1 ->
    Without = unsampled(Node, Milliseconds),
    told(Round, Without, sampled(Node, Milliseconds, Options));
pair(Node, Milliseconds, Options, Round) ->
    With = sampled(Node, Milliseconds, Options),
    told(Round, unsampled(Node, Milliseconds), With).

told(Round, Without, With) ->
    io:format("~3b  ~ts~n     ~ts~n", [Round, line(Without), line(With)]),
    {Without, With}.

line(#{rate := Rate, p50 := P50, p99 := P99, cpu := Cpu} = Result) ->
    Stated = case Result of
                 #{stated := Share} -> io_lib:format("  sampler says ~.3f %", [100 * Share]);
                 #{} -> ""
             end,
    io_lib:format("~8b messages/s  p50 ~6b us  p99 ~6b us  ~6.2f us of cpu a message~ts",
                  [round(Rate), P50, P99, Cpu, Stated]).

%% ---- one measurement ----

unsampled(Node, Milliseconds) ->
    timer:sleep(?SETTLE_MS),
    measure(Node, Milliseconds).

sampled(Node, Milliseconds, Options) ->
    {ok, Sampler} = rpc:call(Node, emberl, sample, [Options]),
    Start = erlang:monotonic_time(millisecond),
    timer:sleep(?SETTLE_MS),
    {Before, Cost} = cost(Start, Node, Sampler),
    Result = measure(Node, Milliseconds),
    {Now, Costs} = cost(Start, Node, Sampler),
    Status = rpc:call(Node, emberl, status, [Sampler]),
    Top = rpc:call(Node, ?MODULE, top, [Sampler]),
    ok = rpc:call(Node, emberl, stop, [Sampler]),
    Result#{status => Status, top => Top, stated => (Costs - Cost) / (Now - Before)}.

%% Until now: its time, and the cost as a share of one millisecond of all schedulers.
cost(Start, Node, Sampler) ->
    #{cost_life := Share} = rpc:call(Node, emberl, status, [Sampler]),
    Life = erlang:monotonic_time(millisecond) - Start,
    {Life, Share * Life}.

%% In the node: shares of own time.
top(Sampler) ->
    case emberl:snapshot(Sampler) of
        {error, _} -> [];
        Profile ->
            All = lists:sum([Own || #{own_ns := Own} <- emberl_profile:functions(Profile)]),
            [{MFA, Own / max(1, All)}
             || #{mfa := MFA, own_ns := Own} <- emberl_profile:top(Profile, 25)]
    end.

measure(Node, Milliseconds) ->
    Clients = [spawn_monitor(fun() -> exit({latencies, client(Number, Milliseconds)}) end)
               || Number <- lists:seq(1, ?CLIENTS)],
    timer:sleep(?WARM_UP_MS),
    Before = cpu(Node),
    Start = erlang:monotonic_time(millisecond),
    Latencies = lists:sort(lists:append([latencies(Client) || Client <- Clients])),
    Elapsed = erlang:monotonic_time(millisecond) - Start,
    Count = length(Latencies),
    #{rate => 1000 * Count / Elapsed, p50 => quantile(0.5, Count, Latencies),
      p99 => quantile(0.99, Count, Latencies), cpu => 1.0e6 * (cpu(Node) - Before) / max(1, Count)}.

latencies({Pid, Monitor}) ->
    receive {'DOWN', Monitor, process, Pid, {latencies, Latencies}} -> Latencies end.

quantile(Share, Count, Latencies) -> lists:nth(max(1, round(Share * Count)), Latencies).

%% Seconds of processor time, of the whole process, as the system counts them.
cpu(Node) ->
    Pid = rpc:call(Node, os, getpid, []),
    {ok, Stat} = file:read_file(["/proc/", Pid, "/stat"]),
    [_, Rest] = string:split(Stat, ") ", trailing),
    Fields = string:lexemes(Rest, " "),
    (binary_to_integer(lists:nth(12, Fields)) + binary_to_integer(lists:nth(13, Fields))) / 100.

client(Number, Milliseconds) ->
    {ok, Connection} =
        amqp_connection:start(#amqp_params_network{port = persistent_term:get(?MODULE)}),
    {ok, Channel} = amqp_connection:open_channel(Connection),
    Queue = <<"emberl-bench-", (integer_to_binary(Number))/binary>>,
    #'queue.declare_ok'{} =
        amqp_channel:call(Channel, #'queue.declare'{queue = Queue, auto_delete = true}),
    #'basic.consume_ok'{} =
        amqp_channel:subscribe(Channel, #'basic.consume'{queue = Queue}, self()),
    receive #'basic.consume_ok'{} -> ok end,
    [publish(Channel, Queue) || _ <- lists:seq(1, ?UNDER_WAY)],
    _ = consume(Channel, Queue, now_us() + 1000 * ?WARM_UP_MS, []),
    Latencies = consume(Channel, Queue, now_us() + 1000 * Milliseconds, []),
    amqp_connection:close(Connection),
    Latencies.

publish(Channel, Queue) ->
    amqp_channel:cast(Channel, #'basic.publish'{routing_key = Queue},
                      #amqp_msg{payload = <<(now_us()):64, 0:(8 * 200)>>}).

consume(Channel, Queue, Deadline, Latencies) ->
    receive
        {#'basic.deliver'{delivery_tag = Tag}, #amqp_msg{payload = <<Sent:64/signed, _/binary>>}} ->
            Now = now_us(),
            amqp_channel:cast(Channel, #'basic.ack'{delivery_tag = Tag}),
            publish(Channel, Queue),
            case Now < Deadline of
                true -> consume(Channel, Queue, Deadline, [Now - Sent | Latencies]);
                false -> Latencies
            end
    end.

now_us() -> erlang:monotonic_time(microsecond).

%% ---- all pairs ----

report(Pairs) ->
    io:format("~nmedians of ~b pairs, with the sampler against without (quartiles)~n",
              [length(Pairs)]),
    [io:format("~-8s ~ts~n", [Key, changes([maps:get(Key, With) / maps:get(Key, Without)
                                            || {Without, With} <- Pairs])])
     || Key <- [rate, p50, p99, cpu]],
    Stated = [maps:get(stated, With) || {_, With} <- Pairs],
    io:format("stated cost ~.3f %~n", [100 * median(Stated)]),
    Lost = [1 - maps:get(rate, With) / maps:get(rate, Without) || {Without, With} <- Pairs],
    io:format("throughput lost ~.3f %, mean of all pairs ~.3f %, stated mean ~.3f %~n",
              [100 * median(Lost), 100 * lists:sum(Lost) / length(Lost),
               100 * lists:sum(Stated) / length(Stated)]),
    {_, #{status := Status, top := Top}} = lists:last(Pairs),
    io:format("~p~n", [Status]),
    [io:format("~6.2f %  ~p~n", [100 * Share, MFA]) || {MFA, Share} <- Top].

changes(Ratios) ->
    Sorted = lists:sort(Ratios),
    At = fun(Share) -> 100 * (lists:nth(max(1, round(Share * length(Sorted))), Sorted) - 1) end,
    io_lib:format("~7.2f %  (~.2f to ~.2f)", [100 * (median(Ratios) - 1), At(0.25), At(0.75)]).

median(Numbers) -> lists:nth((length(Numbers) + 1) div 2, lists:sort(Numbers)).
