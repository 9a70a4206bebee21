%% SPDX-License-Identifier: Apache-2.0
%% What tracing costs: the same work under each tool, in turn, many times, so
%% that the machine's drift hits all alike. Prints medians, and per pair the
%% ratio to a tracer NIF that does nothing, with the same flags. Then how soon a
%% profile is ready, and how much memory it took.
%%
%% ROUNDS: pairs (default 15). SLOW_ROUNDS: for the tools that take long (3).
%% EFLAMBE_EBIN: where eflambe and meck are, to have them measured too.
-module(overhead).

-export([main/0, fib/1, queue_source/0]).

-define(FLAGS, [call, return_to, arity, running, garbage_collection, procs, set_on_spawn]).

fib(N) when N < 2 -> 1;
fib(N) -> fib(N - 1) + fib(N - 2).

main() ->
    _ = [code:ensure_loaded(M) || M <- [noop_tracer, lists, compile, fprof, eprof, tprof]],
    _ = [code:add_path(Path) || Path <- string:lexemes(os:getenv("EFLAMBE_EBIN", ""), ":")],
    {ok, _} = application:ensure_all_started(emberl),
    io:format("OTP ~s, ERTS ~s, ~b schedulers~n",
              [erlang:system_info(otp_release), erlang:system_info(version),
               erlang:system_info(schedulers_online)]),
    [compare(Name, Work, [noop, emberl], number("ROUNDS", 15)) || {Name, Work} <- workloads()],
    [compare(Name ++ ", other tools", Work, [noop, emberl | others()], number("SLOW_ROUNDS", 3))
     || {Name, Work} <- small_workloads()],
    result_ready(),
    memory(),
    erlang:halt(0).

number(Name, Default) ->
    list_to_integer(os:getenv(Name, integer_to_list(Default))).

workloads() ->
    [{"fib(24), a call-dense loop", fun() -> ?MODULE:fib(24) end},
     {"compile queue.erl", compiler(queue_source())}].

%% The slow tools take minutes for the large ones.
small_workloads() ->
    [{"fib(20)", fun() -> ?MODULE:fib(20) end},
     {"compile a small module", compiler(small_source())}].

others() ->
    [process_tracer, fprof, eprof] ++ [tprof || code:is_loaded(tprof) =/= false]
        ++ [eflambe || code:ensure_loaded(eflambe) =:= {module, eflambe}].

queue_source() ->
    {ok, {_, [{abstract_code, {_, Forms}}]}} = beam_lib:chunks(code:which(queue), [abstract_code]),
    Forms.

small_source() ->
    [{attribute, 1, module, small}, {attribute, 1, export, [{f, 1}]},
     {function, 1, f, 1, [{clause, 1, [{var, 1, 'X'}], [],
                           [{op, 1, '+', {var, 1, 'X'}, {integer, 1, 1}}]}]}].

compiler(Forms) ->
    fun() -> {ok, _, _} = compile:forms(Forms, [binary]) end.

%% ---- comparing ----

compare(Name, Work, Tools, Rounds) ->
    Work(),
    Times = [{Tool, timed(Tool, Work)} || _ <- lists:seq(1, Rounds), Tool <- [untraced | Tools]],
    io:format("~n~s, ~b rounds~n", [Name, Rounds]),
    [print(Tool, of_tool(Tool, Times), of_tool(noop, Times)) || Tool <- [untraced | Tools]],
    ok.

of_tool(Tool, Times) -> [T || {X, T} <- Times, X =:= Tool].

print(Tool, Times, Floor) ->
    Ratios = [T / F || {T, F} <- lists:zip(Times, Floor)],
    io:format("  ~-15s ~10.2f ms   x noop: median ~8.3f, quartiles ~.3f - ~.3f~n",
              [Tool, quantile(0.5, Times) / 1000, quantile(0.5, Ratios), quantile(0.25, Ratios),
               quantile(0.75, Ratios)]).

quantile(Q, List) ->
    lists:nth(max(1, round(Q * length(List))), lists:sort(List)).

%% Each in a fresh process.
timed(Tool, Work) ->
    {_, Monitor} = spawn_monitor(fun() -> exit({time, under(Tool, Work)}) end),
    receive {'DOWN', Monitor, process, _, {time, Time}} -> Time end.

%% The time of the work itself, without setting up and evaluating, but for the
%% tools that do all in one.
under(untraced, Work) ->
    time(Work);
under(emberl, Work) ->
    inside(Work, fun(Timed) -> emberl:apply(Timed, #{return => profile}) end);
under(noop, Work) ->
    with_tracer({noop_tracer, 1}, [], Work);
under(process_tracer, Work) ->
    Sink = spawn(fun swallow/0),
    Time = with_tracer(Sink, [monotonic_timestamp], Work),
    exit(Sink, kill),
    Time;
under(fprof, Work) ->
    File = scratch("fprof"),
    inside(Work, fun(Timed) -> fprof:apply(Timed, [], [{file, File}]) end);
under(eprof, Work) ->
    inside(Work, fun(Timed) -> eprof:profile(Timed) end);
under(tprof, Work) ->
    inside(Work, fun(Timed) -> tprof:profile(Timed, #{type => call_time, report => return}) end);
under(eflambe, Work) ->
    inside(Work, fun(Timed) -> eflambe:apply({Timed, []}, [{output_directory, scratch("")}]) end).

inside(Work, Profile) ->
    Self = self(),
    _ = Profile(fun() -> Self ! {time, time(Work)} end),
    receive {time, Time} -> Time end.

scratch(Name) ->
    filename:join(os:getenv("TMPDIR", "/tmp"), Name).

swallow() ->
    receive _ -> swallow() end.

with_tracer(Tracer, Flags, Work) ->
    Stop = start_tracer(emberl_trace:uses_sessions(), Tracer, Flags ++ ?FLAGS),
    Time = time(Work),
    Stop(),
    Time.

start_tracer(true, Tracer, Flags) ->
    Session = trace:session_create(bench, Tracer, []),
    trace:function(Session, {'_', '_', '_'}, true, [local]),
    trace:process(Session, self(), true, Flags),
    fun() -> trace:session_destroy(Session) end;
start_tracer(false, Tracer, Flags) ->
    erlang:trace_pattern({'_', '_', '_'}, true, [local]),
    erlang:trace(self(), true, [legacy_tracer(Tracer) | Flags]),
    fun() ->
            erlang:trace(self(), false, [all]),
            erlang:trace_pattern({'_', '_', '_'}, false, [local])
    end.

legacy_tracer({Module, State}) -> {tracer, Module, State};
legacy_tracer(Pid) -> {tracer, Pid}.

time(Work) ->
    Start = erlang:monotonic_time(microsecond),
    Work(),
    erlang:monotonic_time(microsecond) - Start.

%% ---- a result's delay and its memory ----

%% From the return of the profiled call to the return of apply.
result_ready() ->
    Work = compiler(queue_source()),
    Self = self(),
    Delays = [begin
                  emberl:apply(fun() -> Work(), Self ! {done, now_us()} end, #{return => profile}),
                  Ready = now_us(),
                  receive {done, Done} -> Ready - Done end
              end || _ <- lists:seq(1, 5)],
    io:format("~nprofile ready after the call: median ~.1f ms, most ~.1f ms~n",
              [quantile(0.5, Delays) / 1000, lists:max(Delays) / 1000]).

now_us() -> erlang:monotonic_time(microsecond).

%% The library's memory is not the VM's: what the process has grown by, at most.
memory() ->
    Work = compiler(queue_source()),
    Work(),
    Before = peak(fun() -> Work() end),
    Profiled = peak(fun() -> emberl:apply(Work, #{return => profile}) end),
    io:format("memory, peak while compiling: ~b MiB untraced, ~b MiB profiled~n",
              [Before div 1024, Profiled div 1024]).

%% Peak resident set in KiB, reset first.
peak(Work) ->
    erlang:garbage_collect(),
    _ = file:write_file("/proc/self/clear_refs", "5"),
    Work(),
    {ok, Status} = file:read_file("/proc/self/status"),
    {match, [Kib]} = re:run(Status, "VmHWM:\\s+(\\d+)", [{capture, all_but_first, list}]),
    list_to_integer(Kib).
