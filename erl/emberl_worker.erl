%% SPDX-License-Identifier: Apache-2.0
%% @private
%% A process that runs a function once it is told to. It ends with its caller.
-module(emberl_worker).

-export([start/1, start/2, pid/1, run/2]).
-export_type([worker/0, outcome/0]).

-opaque worker() :: {pid(), reference(), reference()}. % monitor, tag of its messages
-type outcome() :: {ok, term()} | {error | exit | throw, term(), list()}
                 | {killed, term()} | timeout.

-spec start(emberl_call:call()) -> worker().
start(Call) ->
    start(Call, {fun() -> ok end, fun() -> ok end}).

%% What it does right before and after. It is ready, so its start is not counted.
-spec start(emberl_call:call(), {fun(() -> term()), fun(() -> term())}) -> worker().
start(Call, {Before, After}) ->
    Caller = self(),
    Ref = make_ref(),
    {Pid, Monitor} = spawn_monitor(fun() ->
                                           Caller ! {Ref, ready},
                                           receive {Ref, go} -> ok end,
                                           Before(),
                                           Result = emberl_call:result(Call),
                                           After(),
                                           Caller ! {Ref, Result}
                                   end),
    guard(Caller, Pid),
    receive {Ref, ready} -> ok end,
    {Pid, Monitor, Ref}.

guard(Caller, Worker) ->
    spawn(fun() ->
                  process_flag(sensitive, true),
                  Monitor = erlang:monitor(process, Caller),
                  Done = erlang:monitor(process, Worker),
                  receive
                      {'DOWN', Monitor, process, Caller, _} -> exit(Worker, kill);
                      {'DOWN', Done, process, Worker, _} -> ok
                  end
          end).

-spec pid(worker()) -> pid().
pid({Pid, _Monitor, _Ref}) -> Pid.

%% What the function gave; it is dead by then.
-spec run(worker(), timeout()) -> outcome().
run({Pid, Monitor, Ref}, Timeout) ->
    Pid ! {Ref, go},
    receive
        {Ref, Result} ->
            erlang:demonitor(Monitor, [flush]),
            Result;
        {'DOWN', Monitor, process, Pid, Reason} ->
            {killed, Reason}
    after Timeout ->
            exit(Pid, kill),
            receive {'DOWN', Monitor, process, Pid, _} -> ok end,
            receive {Ref, Result} -> Result after 0 -> timeout end
    end.
