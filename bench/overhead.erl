%% SPDX-License-Identifier: Apache-2.0
%% What tracing costs: the same work under each tool, in turn, many times, so
%% that the machine's drift hits all alike. Prints medians and the ratio to a
%% tracer NIF that does nothing.
-module(overhead).

-export([main/0, fib/1]).

-define(FLAGS, [call, return_to, arity, running, garbage_collection, procs, set_on_spawn]).

fib(N) when N < 2 -> 1;
fib(N) -> fib(N - 1) + fib(N - 2).

main() ->
    code:ensure_modules_loaded([noop_tracer, overhead, lists, compile]),
    {ok, _} = application:ensure_all_started(emberl),
    Rounds = rounds(),
    io:format("OTP ~s, ERTS ~s, ~b schedulers, ~b rounds~n",
              [erlang:system_info(otp_release), erlang:system_info(version),
               erlang:system_info(schedulers_online), Rounds]),
    [report(Name, Work, Rounds) || {Name, Work} <- workloads()],
    erlang:halt(0).

rounds() ->
    list_to_integer(os:getenv("ROUNDS", "15")).

workloads() ->
    [{"fib(24), a call-dense loop", fun() -> ?MODULE:fib(24) end},
     {"compile queue.erl", compiler(queue_source())}].

queue_source() ->
    Beam = code:which(queue),
    {ok, {_, [{abstract_code, {_, Forms}}]}} = beam_lib:chunks(Beam, [abstract_code]),
    Forms.

compiler(Forms) ->
    compile:forms(Forms, [binary]),
    fun() -> {ok, _, _} = compile:forms(Forms, [binary]) end.

report(Name, Work, Rounds) ->
    Tools = [untraced, noop, emberl],
    Times = [{Tool, timed(Tool, Work)} || _ <- lists:seq(1, Rounds), Tool <- Tools],
    io:format("~n~s~n", [Name]),
    [print(Tool, [T || {X, T} <- Times, X =:= Tool], [T || {noop, T} <- Times]) || Tool <- Tools].

print(Tool, Times, Floor) ->
    Ratios = [T / F || {T, F} <- lists:zip(Times, Floor)],
    io:format("  ~-10s ~10.2f ms   x noop: median ~.3f, quartiles ~.3f - ~.3f~n",
              [Tool, quantile(0.5, Times) / 1000, quantile(0.5, Ratios), quantile(0.25, Ratios),
               quantile(0.75, Ratios)]).

quantile(Q, List) ->
    lists:nth(max(1, round(Q * length(List))), lists:sort(List)).

%% Each in a fresh process.
timed(Tool, Work) ->
    {_, Monitor} = spawn_monitor(fun() -> exit({time, under(Tool, Work)}) end),
    receive {'DOWN', Monitor, process, _, {time, Time}} -> Time end.

under(untraced, Work) ->
    time(Work);
under(emberl, Work) ->
    Self = self(),
    emberl:apply(fun() -> Self ! {time, time(Work)} end, #{return => profile, timeout => infinity}),
    receive {time, Time} -> Time end;
under(noop, Work) ->
    {Stop} = start_noop(self()),
    Time = time(Work),
    Stop(),
    Time.

start_noop(Pid) ->
    case emberl_trace:uses_sessions() of
        true ->
            Session = trace:session_create(noop, {noop_tracer, 1}, []),
            trace:function(Session, {'_', '_', '_'}, true, [local]),
            trace:process(Session, Pid, true, ?FLAGS),
            {fun() -> trace:session_destroy(Session) end};
        false ->
            erlang:trace_pattern({'_', '_', '_'}, true, [local]),
            erlang:trace(Pid, true, [{tracer, noop_tracer, 1} | ?FLAGS]),
            {fun() ->
                     erlang:trace(Pid, false, [all]),
                     erlang:trace_pattern({'_', '_', '_'}, false, [local])
             end}
    end.

time(Work) ->
    Start = erlang:monotonic_time(microsecond),
    Work(),
    erlang:monotonic_time(microsecond) - Start.
