%% SPDX-License-Identifier: Apache-2.0
%% The library's module loaded again and purged while captures run, in a VM of
%% its own: its crash fails the test.
-module(emberl_reload_tests).

-include_lib("eunit/include/eunit.hrl").

-export([reload_idle/0, reload_in_capture/0, purge_in_capture/0, reload_under_load/0, restart/0,
         halt_in_capture/0]).

-define(ROUNDS, 10).

reload_test_() ->
    [{atom_to_list(Name), {timeout, 60, fun() -> survives(Name) end}}
     || Name <- [reload_idle, reload_in_capture, purge_in_capture, reload_under_load, restart]].

survives(Name) ->
    emberl_test:strict_node(fun(Peer) ->
        peer:call(Peer, logger, set_primary_config, [level, none]),
        {module, _} = peer:call(Peer, code, ensure_loaded, [emberl_work]),
        ?assertEqual(ok, peer:call(Peer, ?MODULE, Name, [], infinity)),
        ?assertEqual({ok, {1, 1}}, peer:call(Peer, emberl_test, works, [], 60000))
    end).

%% A VM that is halted in the middle of a capture ends as it should.
halt_test_() ->
    {timeout, 60,
     fun() ->
             Paths = lists:append([["-pa", filename:absname(filename:dirname(code:which(M)))]
                                   || M <- [emberl, ?MODULE]]),
             Port = open_port({spawn_executable, os:find_executable("erl")},
                              [exit_status, stderr_to_stdout, binary,
                               {args, ["-noshell" | Paths]
                                ++ ["-s", ?MODULE_STRING, "halt_in_capture"]}]),
             ?assertEqual({7, <<>>}, outcome(Port, <<>>))
     end}.

outcome(Port, Output) ->
    receive
        {Port, {data, Data}} -> outcome(Port, <<Output/binary, Data/binary>>);
        {Port, {exit_status, Status}} -> {Status, Output}
    end.

%% ---- what runs over there ----

profile() -> #{return => profile, modules => [emberl_work]}.

rounds(Fun) ->
    [Fun() || _ <- lists:seq(1, emberl_test:rounds(?ROUNDS))],
    ok.

load() ->
    {module, emberl_nif} = code:load_file(emberl_nif).

reload_idle() ->
    rounds(fun() ->
                   code:purge(emberl_nif),
                   load(),
                   emberl:apply({emberl_work, pair, [1]}, profile())
           end).

%% New code beside the old, then without it; the capture has its calls.
reload_in_capture() ->
    Busy = emberl_test:busy(fun() -> emberl_work:pair(1) end),
    rounds(fun() ->
                   {ok, Capture} = emberl:start_capture({emberl_work, pair, 1}, 1000, profile()),
                   code:purge(emberl_nif),
                   load(),
                   code:purge(emberl_nif),
                   ended(emberl:stop(Capture))
           end),
    emberl_test:stop(Busy).

%% No code at all for a moment: the capture is lost, with its server.
purge_in_capture() ->
    Busy = emberl_test:busy(fun() -> emberl_work:pair(1) end),
    rounds(fun() ->
                   {ok, Capture} = emberl:start_capture({emberl_work, pair, 1}, 1000, profile()),
                   emberl_test:unload(emberl_nif),
                   ended(emberl:stop(Capture)),
                   load()
           end),
    emberl_test:stop(Busy).

ended({ok, [_ | _]}) -> ok;
ended({incomplete, stopped, _}) -> ok;
ended({error, {Why, _, _}}) when Why =:= unknown_capture; Why =:= unavailable -> ok.

%% Purging kills the processes that are at work in the old code: ours as well.
reload_under_load() ->
    Busy = [emberl_test:busy(fun() -> emberl_work:work(20) end) || _ <- lists:seq(1, 4)],
    Test = self(),
    Capturer = spawn_link(fun Loop() ->
                                  emberl:capture({emberl_work, work, 1}, 5, hasty()),
                                  Test ! {self(), captured},
                                  receive stop -> ok after 0 -> Loop() end
                          end),
    rounds(fun() ->
                   code:purge(emberl_nif),
                   load(),
                   receive {Capturer, captured} -> ok end
           end),
    [emberl_test:stop(Pid) || Pid <- [Capturer | Busy]],
    ok.

hasty() -> (profile())#{timeout => 100}.

%% The application, and all its code, with a capture on.
restart() ->
    rounds(fun() ->
                   {ok, _} = application:ensure_all_started(emberl),
                   {ok, _} = emberl:start_capture({emberl_work, pair, 1}, 10, profile()),
                   Busy = emberl_test:busy(fun() -> emberl_work:pair(1) end),
                   ok = application:stop(emberl),
                   {ok, Modules} = application:get_key(emberl, modules),
                   [emberl_test:unload(Module) || Module <- Modules],
                   emberl_test:stop(Busy)
           end).

halt_in_capture() ->
    {module, _} = code:ensure_loaded(emberl_work),
    {ok, _} = emberl:start_capture({emberl_work, forever, 0}, 1, profile()),
    spawn(emberl_work, forever, []),
    emberl_test:wait_until(fun() -> maps:get(events, emberl_nif:stats()) > 10000 end),
    halt(7).
