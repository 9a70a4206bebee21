%% SPDX-License-Identifier: Apache-2.0
%% A node that samples itself for hours at ten times the default budget, under a load, with
%% captures and applied calls beside it. Each minute a line tells what it uses; at the end,
%% whether that has grown, and whether each window is in exactly one slice of the store.
%% MINUTES: how long, 120 if not given.
-module(soak).

-export([main/0, server/1, client/2, spawner/0, work/1]).

-define(BUDGET, 0.1).
-define(SLICE_MS, 10000).
-define(GROWTH, 1.05). % of the last third's median over the first's
-define(SLACK, (2 * 1024 * 1024)).

-spec main() -> no_return().
main() ->
    Minutes = list_to_integer(os:getenv("MINUTES", "120")),
    Store = filename:join(os:getenv("TMPDIR", "/tmp"), "emberl-soak-" ++ os:getpid()),
    {ok, Sampler} = emberl:sample(#{budget => ?BUDGET, store => Store, slice => ?SLICE_MS,
                                    retention => #{max_bytes => infinity, max_age => infinity}}),
    Pid = spawn_link(?MODULE, server, [0]),
    [spawn_link(?MODULE, client, [Pid, N]) || N <- lists:seq(1, 4)],
    spawn_link(?MODULE, spawner, []),
    io:format("~6s ~9s ~9s ~5s ~7s ~6s ~9s ~6s ~5s ~8s ~6s~n",
              ["minute", "rss KiB", "VM KiB", "fds", "threads", "atoms", "processes", "ports",
               "cost", "windows", "errors"]),
    Readings = [minute(N, Sampler) || N <- lists:seq(1, Minutes)],
    ok = emberl:pause(Sampler),
    Status = emberl:status(Sampler),
    ok = emberl:stop(Sampler),
    Verdicts = grown(Readings) ++ slices(Store, Status),
    [io:format("~ts: ~ts~n", [Text, verdict(Good)]) || {Text, Good} <- Verdicts],
    file:del_dir_r(Store),
    halt(case lists:all(fun({_, Good}) -> Good end, Verdicts) of true -> 0; false -> 1 end).

verdict(true) -> "yes";
verdict(false) -> "NO".

%% ---- what the node uses ----

minute(N, Sampler) ->
    Until = erlang:monotonic_time(millisecond) + 60000,
    beside(Until),
    #{cost_minute := Cost, windows := Windows, errors := Errors} = emberl:status(Sampler),
    Reading = reading(),
    #{rss := Rss, memory := Memory, fds := Fds, threads := Threads, atoms := Atoms,
      processes := Processes, ports := Ports} = Reading,
    io:format("~6b ~9b ~9b ~5b ~7b ~6b ~9b ~6b ~5.3f ~8b ~6b~n",
              [N, Rss div 1024, Memory div 1024, Fds, Threads, Atoms, Processes, Ports, Cost,
               Windows, Errors]),
    Reading.

%% Once a second.
beside(Until) ->
    case erlang:monotonic_time(millisecond) < Until of
        true ->
            _ = emberl:apply(fun() -> lists:sort([5, 2, 7]) end, #{return => profile}),
            _ = emberl:capture({?MODULE, work, 1}, 3, #{return => profile, timeout => 500}),
            timer:sleep(1000),
            beside(Until);
        false ->
            ok
    end.

reading() ->
    #{rss => status_number("VmRSS:") * 1024,
      memory => erlang:memory(total),
      threads => status_number("Threads:"),
      fds => length(filelib:wildcard("/proc/self/fd/*")),
      atoms => erlang:system_info(atom_count),
      processes => erlang:system_info(process_count),
      ports => erlang:system_info(port_count)}.

status_number(Key) ->
    {ok, Text} = file:read_file("/proc/self/status"),
    [Number] = [hd(Words) || Line <- string:split(Text, "\n", all),
                             [K | Words] <- [string:lexemes(binary_to_list(Line), "\t ")],
                             K =:= Key],
    list_to_integer(Number).

%% Bytes may vary a little. What is counted comes and goes, so its least is what stays.
grown(Readings) ->
    Third = max(1, length(Readings) div 3),
    First = lists:sublist(Readings, Third),
    Last = lists:nthtail(length(Readings) - Third, Readings),
    [{io_lib:format("~p does not grow: ~b, ~b", [Key, median(Key, First), median(Key, Last)]),
      median(Key, Last) =< median(Key, First) * ?GROWTH + ?SLACK} || Key <- [rss, memory]] ++
        [{io_lib:format("~p do not grow: ~b, ~b", [Key, least(Key, First), least(Key, Last)]),
          least(Key, Last) =< least(Key, First)} || Key <- [fds, threads, atoms, processes, ports]].

median(Key, Readings) ->
    Sorted = lists:sort([maps:get(Key, R) || R <- Readings]),
    lists:nth(length(Sorted) div 2 + 1, Sorted).

least(Key, Readings) ->
    lists:min([maps:get(Key, R) || R <- Readings]).

%% ---- the store ----

slices(Store, #{windows := Windows, errors := Errors,
                store := #{written := Written, dropped := Dropped}}) ->
    {ok, Slices} = emberl_store:slices(Store),
    Stored = lists:sum([windows(File) || #{file := File} <- Slices]),
    [{io_lib:format("each of ~b slices is there, none was dropped", [Written]),
      Dropped =:= 0 andalso length(Slices) =:= Written},
     {"each begins where the one before has ended", follow(Slices)},
     {io_lib:format("the slices have ~b windows, there were ~b and ~b failed",
                    [Stored, Windows, Errors]),
      Stored =:= Windows - Errors}].

windows(File) ->
    {ok, Profile} = emberl_profile:load(File),
    #{sampled := #{windows := Windows}} = emberl_profile:info(Profile),
    Windows.

follow([#{to := To}, #{from := To} = Next | Slices]) -> follow([Next | Slices]);
follow([_]) -> true;
follow(_) -> false.

%% ---- the load ----

-spec server(non_neg_integer()) -> no_return().
server(Count) ->
    receive
        {From, Ref, N} ->
            From ! {Ref, work(N)},
            server(Count + 1)
    end.

-spec client(pid(), pos_integer()) -> no_return().
client(Server, N) ->
    Ref = make_ref(),
    Server ! {self(), Ref, 50 * N},
    receive {Ref, _} -> ok end,
    receive after N -> client(Server, N) end.

-spec spawner() -> no_return().
spawner() ->
    {_, Monitor} = spawn_monitor(?MODULE, work, [500]),
    receive {'DOWN', Monitor, process, _, _} -> ok end,
    receive after 5 -> spawner() end.

-spec work(pos_integer()) -> map().
work(N) ->
    Text = iolist_to_binary(lists:join($,, [integer_to_list(X * X) || X <- lists:seq(1, N)])),
    Parts = binary:split(Text, <<",">>, [global]),
    maps:from_list([{Part, byte_size(Part)} || Part <- Parts]).
