%% SPDX-License-Identifier: Apache-2.0
%% What else may go wrong in a node, each in a VM of its own: its crash fails the test. After
%% each nothing of ours is left, and all works.
-module(emberl_faults_tests).

-include_lib("eunit/include/eunit.hrl").

-export([many_captures/1, many_processes/1, modules_replaced/1, server_suspended/1,
         consumer_suspended/1, tracers_meanwhile/1]).
-export([no_library/1, record_for_ever/1]).

-import(emberl_test, [wait_until/1]).

-define(TARGET, emberl_faults_target).

fault_test_() ->
    [{atom_to_list(Name), {timeout, 300, fun() -> survives(Name, Rounds) end}}
     || {Name, Rounds} <- [{many_captures, 20}, {many_processes, 20000}, {modules_replaced, 5},
                           {server_suspended, 2}, {consumer_suspended, 2},
                           {tracers_meanwhile, 10}]].

survives(Name, Rounds) ->
    emberl_test:node(["+P", "300000"], fun(Peer) ->
        peer:call(Peer, logger, set_primary_config, [level, none]),
        {module, _} = peer:call(Peer, code, ensure_loaded, [emberl_work]),
        ?assertEqual({ok, {1, 1}}, peer:call(Peer, emberl_test, works, [], infinity)),
        Before = peer:call(Peer, emberl_cleanup_tests, state, [], infinity),
        ?assertEqual(ok, peer:call(Peer, ?MODULE, Name, [rounds(Name, Rounds)], infinity)),
        After = fun() -> peer:call(Peer, emberl_cleanup_tests, state, [], infinity) end,
        wait_until(fun() -> After() =:= Before end),
        ?assertEqual({ok, {1, 1}}, peer:call(Peer, emberl_test, works, [], infinity))
    end).

rounds(many_processes, Default) -> max(Default, min(100000, emberl_test:rounds(Default) * 100));
rounds(_, Default) -> emberl_test:rounds(Default).

%% A VM that ends, or is killed, while it records and writes. What it has written by then is
%% whole, and it ends as it should.
node_ends_test_() ->
    [{atom_to_list(How), {timeout, 300, fun() -> node_ends(How) end}} || How <- [stop, halt, kill]].

node_ends(How) ->
    [emberl_test:with_directory(fun(Directory) -> node_ends(How, Directory) end)
     || _ <- lists:seq(1, emberl_test:rounds(3))].

node_ends(How, Directory) ->
    emberl_test:node(fun(Peer) ->
        Monitor = monitor(process, Peer),
        unlink(Peer),
        peer:call(Peer, logger, set_primary_config, [level, none]),
        ok = peer:call(Peer, ?MODULE, record_for_ever, [Directory]),
        timer:sleep(rand:uniform(200)),
        end_node(How, Peer),
        receive
            {'DOWN', Monitor, process, Peer, Reason} ->
                ?assert(How =:= kill orelse Reason =:= normal)
        end
    end),
    [?assertMatch({ok, _}, emberl_profile:load(File))
     || File <- filelib:wildcard(filename:join(Directory, "*.ember"))].

end_node(stop, Peer) -> peer:cast(Peer, init, stop, []);
end_node(halt, Peer) -> peer:cast(Peer, erlang, halt, []);
end_node(kill, Peer) -> os:cmd("kill -9 " ++ peer:call(Peer, os, getpid, [])).

%% Where the library is not there, an error says so, and nobody tries for ever.
no_library_test_() ->
    {timeout, 60, fun() ->
        emberl_test:with_directory(fun(Directory) ->
            Ebin = filename:join(Directory, "ebin"),
            ok = file:make_dir(Ebin),
            [{ok, _} = file:copy(File, filename:join(Ebin, filename:basename(File)))
             || File <- filelib:wildcard(filename:join(filename:dirname(code:which(emberl)), "*"))],
            emberl_test:node(fun(Peer) ->
                ?assertMatch({error, {unavailable, emberl, <<_/binary>>}},
                             peer:call(Peer, ?MODULE, no_library, [Ebin]))
            end)
        end)
    end}.

%% Calibration is refused too, and says nothing.
quiet_where_others_trace_test() ->
    {_, Printed} = emberl_test:quiet(fun() ->
        logger:add_handler(?MODULE, emberl_test_log, #{config => #{test => self()}}),
        Tracer = spawn_link(fun() -> receive stop -> ok end end),
        erlang:trace(Tracer, true, [call, {tracer, self()}]),
        _ = emberl_calibrate:run(),
        erlang:trace(Tracer, false, [call]),
        logger:remove_handler(?MODULE),
        Tracer ! stop
    end),
    ?assertEqual(<<>>, Printed),
    receive {logged, Text} -> error({logged, Text}) after 0 -> ok end.

%% ---- what runs over there ----

small() -> #{return => profile, modules => [emberl_work], timeout => 5000}.

many_captures(Rounds) ->
    Atoms = erlang:system_info(atom_count),
    Busy = emberl_test:busy(fun() -> emberl_work:pair(1) end),
    Ports = length(erlang:ports()),
    Before = descriptors(),
    [{ok, [_]} = emberl:capture({emberl_work, pair, 1}, 1, small()) || _ <- lists:seq(1, Rounds)],
    emberl_test:stop(Busy),
    Ports = length(erlang:ports()),
    wait_until(fun() -> descriptors() =< Before end),
    true = erlang:system_info(atom_count) - Atoms < 50,
    ok.

descriptors() ->
    length(filelib:wildcard("/proc/self/fd/*")).

many_processes(Count) ->
    Pids = [spawn(emberl_work, wait_for, [go]) || _ <- lists:seq(1, Count)],
    {ok, {1, 1}} = emberl_test:works(),
    Busy = emberl_test:busy(fun() -> emberl_work:pair(1) end),
    {ok, [_, _, _]} = emberl:capture({emberl_work, pair, 1}, 3, small()),
    Window = emberl:record(50, #{return => profile, modules => [emberl_work], spawned => false}),
    true = length(emberl_profile:processes(Window)) >= Count,
    emberl_test:stop(Busy),
    [Pid ! go || Pid <- Pids],
    [emberl_test:wait_dead(Pid) || Pid <- Pids],
    ok.

%% The target's module, and one it calls, loaded anew and purged while calls are captured.
modules_replaced(Rounds) ->
    load(1),
    Busy = spawn_link(fun busy/0),
    [begin
         {ok, Capture} = emberl:start_capture({?TARGET, run, 1}, 5, #{return => profile}),
         timer:sleep(rand:uniform(5) - 1),
         [load(rand:uniform(100)) || _ <- lists:seq(1, 3)],
         ended(emberl:stop(Capture))
     end || _ <- lists:seq(1, Rounds)],
    unlink(Busy),
    exit(Busy, kill),
    emberl_test:wait_dead(Busy),
    emberl_test:unload(?TARGET),
    ok.

ended({ok, [_ | _]}) -> ok;
ended({incomplete, _, _}) -> ok.

load(N) ->
    code:purge(?TARGET),
    Functions = ["run(X) -> part(X) + part(X).", lists:concat(["part(X) -> X + ", N, "."])],
    {module, ?TARGET} = code:load_binary(?TARGET, "none", emberl_test:compile(?TARGET, Functions)).

busy() ->
    try ?TARGET:run(1) catch error:undef -> ok end,
    busy().

%% It is slow to answer; what it is sent waits, and goes nowhere else.
server_suspended(Rounds) ->
    Busy = emberl_test:busy(fun() -> emberl_work:pair(1) end),
    [begin
         {ok, Capture} = emberl:start_capture({emberl_work, pair, 1}, 50, small()),
         true = erlang:suspend_process(whereis(emberl_control)),
         timer:sleep(20),
         true = erlang:resume_process(whereis(emberl_control)),
         {ok, [_ | _]} = emberl:await(Capture, 60000)
     end || _ <- lists:seq(1, Rounds)],
    emberl_test:stop(Busy),
    ok.

%% The thread that takes events does nothing, and rings fill up: captured processes go on
%% all the same, without growing, and so do others while the server waits for the thread.
consumer_suspended(Rounds) ->
    [begin
         {ok, Capture} = emberl:start_capture({emberl_work, pairs, 1}, 2,
                                              (small())#{timeout := infinity}),
         true = emberl_test_nif:stall(),
         [true = emberl_test:in_process(fun looped/0) < 100000 || _ <- [1, 2]],
         {error, timeout} = emberl:await(Capture, 10),
         {_, Stopping} = spawn_monitor(fun() -> ended(emberl:stop(Capture)) end),
         [ok = emberl_test:in_process(fun() -> emberl_work:pairs(1000) end)
          || _ <- lists:seq(1, 20)],
         emberl_test_nif:resume(),
         receive {'DOWN', Stopping, process, _, Reason} -> normal = Reason end
     end || _ <- lists:seq(1, Rounds), os:type() =:= {unix, linux}],
    ok.

%% Words.
looped() ->
    ok = emberl_work:pairs(100000),
    {total_heap_size, Words} = process_info(self(), total_heap_size),
    Words.

%% Others trace in sessions of their own, where there are any: calls and messages.
tracers_meanwhile(Rounds) ->
    Busy = emberl_test:busy(fun() -> emberl_work:pair(1) end),
    [begin
         {_, Other} = spawn_monitor(fun() -> trace_for_a_while(Busy) end),
         captured(emberl:capture({emberl_work, pair, 1}, 3, small()), emberl_test:has_sessions()),
         receive {'DOWN', Other, process, _, normal} -> ok end
     end || _ <- lists:seq(1, Rounds)],
    emberl_test:stop(Busy),
    ok.

captured({ok, [_, _, _]}, _HasSessions) -> ok;
captured({incomplete, _, _}, false) -> ok;
captured({error, {other_tracer, _}}, false) -> ok.

trace_for_a_while(Pid) ->
    Self = spawn(fun drop/0),
    case emberl_test:has_sessions() of
        true ->
            Session = trace:session_create(other, Self, []),
            trace:process(Session, Pid, true, [call, send, procs, running]),
            trace:function(Session, {emberl_work, leaf, 1}, true, [local]),
            timer:sleep(rand:uniform(3)),
            trace:session_destroy(Session);
        false ->
            trace_sends(Pid, true, [{tracer, Self}]),
            timer:sleep(rand:uniform(3)),
            trace_sends(Pid, false, [])
    end,
    exit(Self, kill).

%% Not where we trace the process.
trace_sends(Pid, On, Flags) ->
    try erlang:trace(Pid, On, [send | Flags])
    catch error:badarg -> refused
    end.

drop() ->
    receive _ -> drop() end.

%% Captures of a process that goes on, and files of short ones, all the time.
record_for_ever(Directory) ->
    {module, _} = code:ensure_loaded(emberl_work),
    {ok, _} = emberl:start_capture({emberl_work, forever, 0}, 1, small()),
    spawn(emberl_work, forever, []),
    spawn(fun() -> write_for_ever(Directory) end),
    wait_until(fun() -> maps:get(events, emberl_nif:stats()) > 1000 end).

write_for_ever(Directory) ->
    emberl:apply({emberl_work, pairs, [10]},
                 #{return => filename, output_format => ember, output_directory => Directory,
                   quiet => true}),
    write_for_ever(Directory).

no_library(Ebin) ->
    logger:set_primary_config(level, none),
    code:del_path(filename:dirname(code:which(emberl))),
    true = code:add_patha(Ebin),
    emberl:stop().
