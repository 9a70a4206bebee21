%% SPDX-License-Identifier: Apache-2.0
%% Whom a sampler gives how much of the time, beside whom perf does, on the same load in
%% the same VM at the same time: a process that computes all the time, short-lived ones,
%% and a server that is asked. All do the same kind of work, so that tracing slows all alike.
-module(sample_perf).

-export([main/0, work/0, spinner/0, spawner/0, short_life/0, server/0, client/1, unit/0]).

-define(SECONDS, 30).
-define(BUDGET, 0.05).
-define(KINDS, [spinner, short_life, server]).

main() ->
    case os:find_executable("perf") of
        false -> io:format("perf is not there: no comparison with it~n");
        Perf -> compare(accuracy_perf:run(Perf, "--call-graph fp", "+JPperf true", {?MODULE, work}))
    end,
    halt().

compare({_Output, []}) ->
    io:format("perf may not sample here: no comparison with it~n");
compare({Output, Chains}) ->
    {ok, Tokens, _} = erl_scan:string(lists:last(Output)),
    {ok, #{own := Own, windows := Windows, stated := Stated}} = erl_parse:parse_term(Tokens),
    Perf = [length([Chain || Chain <- Chains, is_below(Kind, Chain)]) || Kind <- ?KINDS],
    io:format("~b windows in ~b s, stated cost ~.2f % of a budget of ~.2f %; ~b samples of perf~n"
              "~-28s~8s~8s~n", [Windows, ?SECONDS, 100 * Stated, 100 * ?BUDGET, lists:sum(Perf),
                               "share of the work, %", "perf", "emberl"]),
    [io:format("~-28s~8.1f~8.1f~n", [Kind, P, E])
     || {Kind, P, E} <- lists:zip3(?KINDS, shares(Perf), shares(Own))].

shares(Numbers) -> [100 * N / max(1, lists:sum(Numbers)) || N <- Numbers].

%% Names as the JIT gives them to perf.
is_below(Kind, Chain) ->
    lists:member("$" ++ ?MODULE_STRING ++ ":" ++ atom_to_list(Kind) ++ "/0", Chain).

%% ---- in the VM that perf samples ----

work() ->
    io:format("~s~n", [os:getpid()]),
    {ok, _} = application:ensure_all_started(emberl),
    Server = spawn_link(?MODULE, server, []),
    [spawn_link(?MODULE, Function, Arguments)
     || {Function, Arguments} <- [{spinner, []}, {spawner, []}, {client, [Server]}]],
    {ok, Sampler} = emberl:sample(#{budget => ?BUDGET}),
    timer:sleep(?SECONDS * 1000),
    ok = emberl:pause(Sampler),
    #{windows := Windows, cost_life := Stated} = emberl:status(Sampler),
    Stacks = emberl_profile:stacks(emberl:snapshot(Sampler)),
    io:format("~0p.~n", [#{own => [own_ns(Kind, Stacks) || Kind <- ?KINDS],
                           windows => Windows, stated => Stated}]),
    halt().

own_ns(Kind, Stacks) ->
    lists:sum([Own || #{stack := Stack, own_ns := Own} <- Stacks,
                      lists:member({?MODULE, Kind, 0}, Stack)]).

%% ---- the load ----

spinner() ->
    unit(),
    unit(),
    spinner().

spawner() ->
    {_, Monitor} = spawn_monitor(?MODULE, short_life, []),
    receive {'DOWN', Monitor, process, _, _} -> spawner() end.

short_life() ->
    length([unit() || _ <- [1, 2, 3]]).

server() ->
    receive {From, Ref} -> From ! {Ref, unit()} end,
    server().

client(Server) ->
    Ref = make_ref(),
    Server ! {self(), Ref},
    receive {Ref, _} -> ok end,
    client(Server).

unit() ->
    Numbers = [(I * 7919) rem 1009 || I <- lists:seq(1, 200)],
    length(lists:usort([{N, -N} || N <- Numbers])).
