%% SPDX-License-Identifier: Apache-2.0
%% What tables of a function cost that makes 150,049 calls, all set-up and reading
%% included: emberl:profile/4, and tprof where there is one.
-module(tally_bench).

-export([main/0, fib/1]).

fib(N) when N < 2 -> N;
fib(N) -> fib(N - 1) + fib(N - 2).

main() ->
    emberl_calibrate:ensure(),
    Profilers = [tprof || code:which(tprof) =/= non_existing] ++ [emberl],
    [report(Profiler, Type, Pattern)
     || Pattern <- [{?MODULE, '_', '_'}, {'_', '_', '_'}],
        Type <- [call_count, call_time, call_memory, all],
        Profiler <- Profilers, Profiler =:= emberl orelse Type =/= all],
    halt().

report(Profiler, Type, {Module, _, _} = Pattern) ->
    Times = [milliseconds(Profiler, #{type => Type, pattern => Pattern, report => return})
             || _ <- lists:seq(1, 5)],
    io:format("~-6s  ~-11s  ~-11s  ~6.b ms~n",
              [Profiler, Type, what(Module), lists:nth(3, lists:sort(Times))]).

what('_') -> "all modules";
what(_) -> "one module".

milliseconds(Profiler, Options) ->
    {Us, _} = timer:tc(fun() -> Profiler:profile(?MODULE, fib, [24], Options) end),
    Us div 1000.
