%% SPDX-License-Identifier: Apache-2.0
%% Our processes killed at any moment, alone and together, some hundreds of times,
%% while captures and applies begin and end. In a VM of its own: its crash fails
%% the test.
-module(emberl_killer_tests).

-include_lib("eunit/include/eunit.hrl").

-export([rounds/1, all_at_once/0]).

-import(emberl_test, [wait_until/1]).

-define(ROUNDS, 45).
-define(ALL, [emberl_sup, emberl_control, emberl_janitor]).

killer_test_() ->
    [{lists:flatten(io_lib:format("~0p", [Victims])),
      {timeout, 300, fun() -> kill_often(Victims) end}}
     || Victims <- [[emberl_sup], [emberl_control], [emberl_janitor],
                    [emberl_sup, emberl_control], [emberl_sup, emberl_janitor],
                    [emberl_control, emberl_janitor], ?ALL]].

kill_often(Victims) ->
    emberl_test:node(fun(Peer) ->
        ?assertEqual(ok, peer:call(Peer, ?MODULE, rounds, [Victims], infinity))
    end).

%% The library's session ends by itself where nobody is left to end it.
session_ends_with_its_owner_test_() ->
    {timeout, 60, fun() ->
        emberl_test:node(fun(Peer) ->
            ?assertEqual({ok, {1, 1}}, peer:call(Peer, ?MODULE, all_at_once, [], 60000))
        end)
    end}.

%% ---- what runs over there ----

all_at_once() ->
    logger:set_primary_config(level, none),
    {module, _} = code:ensure_loaded(emberl_work),
    {ok, _} = emberl:start_capture({emberl_work, pair, 1}),
    true = emberl_test:running(),
    [Sup, Control, Janitor] = [whereis(Name) || Name <- ?ALL],
    [true = erlang:suspend_process(Pid) || Pid <- [Control, Sup]],
    [kill(Pid) || Pid <- [Janitor, Sup, Control]],
    wait_until(fun() -> not emberl_test:running() end),
    [] = [Name || Name <- ?ALL, is_pid(whereis(Name))],
    works().

rounds(Victims) ->
    logger:set_primary_config(level, none),
    {module, _} = code:ensure_loaded(emberl_work),
    works(),
    Before = emberl_cleanup_tests:state(),
    [round(Victims, Before) || _ <- lists:seq(1, emberl_test:rounds(?ROUNDS))],
    ok.

round(Victims, Before) ->
    Busy = emberl_test:busy(fun() -> emberl_work:pair(1) end),
    Users = [spawn_monitor(fun() -> use(User) end)
             || User <- [fun apply_one/0, fun capture_some/0]],
    timer:sleep(rand:uniform(30) - 1),
    [kill(whereis(Victim)) || Victim <- Victims],
    timer:sleep(rand:uniform(5) - 1),
    [stop(User) || User <- Users],
    settle(Before),
    nothing_left(Before),
    emberl_test:stop(Busy),
    works().

kill(undefined) -> true;
kill(Pid) -> exit(Pid, kill).

%% Who uses emberl meanwhile gets an error, as documented, and no exit.
use(User) ->
    _ = try User() catch error:{_Tag, _Term, <<_/binary>>} -> ok end,
    receive stop -> ok after 0 -> use(User) end.

stop({Pid, Monitor}) ->
    Pid ! stop,
    receive {'DOWN', Monitor, process, Pid, normal} -> ok end.

apply_one() ->
    emberl:apply({emberl_work, pairs, [20]}, #{return => profile}).

capture_some() ->
    case emberl:capture({emberl_work, pair, 1}, 20, #{return => profile, timeout => 50}) of
        {ok, [_ | _]} -> ok;
        {incomplete, _, _} -> ok;
        {error, {_Tag, _Term, <<_/binary>>}} -> ok
    end.

%% Where nobody was left to clean up, whoever is called next does.
settle(Before) ->
    wait_until(fun() -> is_down() orelse left(Before) =:= #{} end),
    is_down() andalso (ok = emberl:stop()).

is_down() ->
    [] =:= [Name || Name <- ?ALL, is_pid(whereis(Name))].

nothing_left(Before) ->
    Left = fun() -> left(Before) end,
    try wait_until(fun() -> Left() =:= #{} end)
    catch error:_ -> error({left, Left()})
    end.

left(Before) ->
    maps:filter(fun(Key, Value) -> Key =/= processes andalso maps:get(Key, Before) =/= Value end,
                emberl_cleanup_tests:state()).

works() ->
    {ok, {1, 1}} = emberl_test:works().
