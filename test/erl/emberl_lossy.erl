%% SPDX-License-Identifier: Apache-2.0
%% Work in the middle of which events are lost: all between lose/0 and keep/0.
-module(emberl_lossy).

-export([deep/3, loop/2, caught/0, thrown_back/0, moved/1, called/1, leaf/1, main/2,
         ending/0]).

leaf(X) -> X.

%% Nobody takes the events any longer, and then the ring is full.
lose() ->
    true = emberl_test_nif:stall(),
    flood(40000).

flood(0) -> ok;
flood(N) -> flood(N - 1).

keep() ->
    emberl_test_nif:resume(),
    Seen = seen(),
    emberl_test:wait_until(fun() -> seen() > Seen end).

seen() -> maps:get(events, emberl_nif:stats()).

%% Recursion: of the calls from level Lost on, down to the last, there are no events.
deep(0, _Lost, _) ->
    keep(),
    leaf(0);
deep(N, Lost, Lose) ->
    _ = N =:= Lost andalso Lose(),
    X = deep(N - 1, Lost, Lose),
    leaf(X + 1).

main(N, Lost) ->
    deep(N, Lost, fun lose/0).

%% Tail calls, some hundred of which are lost in the middle.
loop(0, _) -> done;
loop(N, Lost) ->
    leaf(N),
    _ = N =:= Lost andalso lose(),
    _ = N =:= Lost - 500 andalso keep(),
    loop(N - 1, Lost).

%% An exception that is raised and caught while nothing is seen.
caught() ->
    try dig(5)
    catch throw:found -> keep()
    end,
    leaf(1),
    leaf(2).

dig(0) ->
    lose(),
    throw(found);
dig(N) ->
    leaf(dig(N - 1)).

%% One that is seen, and passes functions that were not.
thrown_back() ->
    try climb(0)
    catch throw:found -> leaf(1)
    end,
    leaf(2).

climb(N) ->
    _ = N =:= 3 andalso lose(),
    _ = N =:= 6 andalso keep(),
    _ = N =:= 6 andalso throw(found),
    leaf(climb(N + 1)).

%% The process goes from scheduler to scheduler meanwhile.
moved(N) ->
    leaf(0),
    lose(),
    X = on_all_schedulers(N),
    keep(),
    leaf(X),
    called(X).

on_all_schedulers(0) -> 0;
on_all_schedulers(N) ->
    process_flag(scheduler, 1 + N rem erlang:system_info(schedulers_online)),
    erlang:yield(),
    leaf(on_all_schedulers(N - 1)) + 1.

called(X) ->
    leaf(X),
    ok.

ending() ->
    leaf(1),
    lose(),
    ended.
