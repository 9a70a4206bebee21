%% SPDX-License-Identifier: Apache-2.0
%% The second half of accuracy.erl: the compiler's work as perf sees it, untraced,
%% and as emberl does.
%%
%% perf samples a VM of its own, for which the JIT writes the names of its code. Its
%% chains lead through the VM's C code as long as that has unwind tables, and the
%% collector is found by the name of its entry; which Erlang function a sample in C
%% code belongs to is mostly not seen. So shares of functions are those of their own
%% JIT code, and only their order is compared.
-module(accuracy_perf).

-export([main/0, run/4, work/0]).

-define(SECONDS, 6).
-define(TOP, 10).

main() ->
    case os:find_executable("perf") of
        false -> io:format("~nperf is not there: no comparison with it~n");
        Perf -> compare(run(Perf, "--call-graph dwarf,8192", "+JPperf true +S 1", {?MODULE, work}))
    end.

compare({_Output, []}) ->
    io:format("~nperf may not sample here: no comparison with it~n");
compare({_Output, Samples}) ->
    {Gc, Order} = emberl(),
    io:format("~ncompiling queue.erl       perf    emberl~n"
              "collections, %        ~8.1f  ~8.1f    (~b samples)~n",
              [share(lists:filter(fun is_collection/1, Samples), Samples), Gc, length(Samples)]),
    io:format("largest functions, in perf's order and at which place emberl has them:~n"),
    [io:format("  ~-44ts ~8.1f  ~8b~n", [Name, Percent, place(Name, Order)])
     || {Name, Percent} <- lists:sublist(by_function(Samples), ?TOP)],
    ok.

share(Part, All) -> 100 * length(Part) / max(1, length(All)).

place(Name, Order) -> length(lists:takewhile(fun(N) -> N =/= Name end, Order)) + 1.

%% ---- perf ----

%% What a function prints, the VM's process first, in a VM that perf samples meanwhile; and
%% the schedulers' chains of symbols, innermost first.
run(Perf, PerfOptions, Flags, {Module, Function}) ->
    File = scratch("perf.data"),
    Paths = [filename:dirname(code:which(M)) || M <- [?MODULE, emberl]],
    Record = "~ts record -q -e cpu-clock -F 999 ~ts -o ~ts -- "
             "erl ~ts -noshell -pa ~ts -s ~s ~s 2>&1",
    Output = string:lexemes(command(Record, [Perf, PerfOptions, File, Flags,
                                             lists:join(" ", Paths), Module, Function]), "\n"),
    Text = command("~ts script -i ~ts -F comm,ip,sym 2>/dev/null", [Perf, File]),
    OsPid = hd(Output ++ [""]),
    _ = [file:delete(F) || F <- [File | filelib:wildcard("/tmp/{perf,jit}-" ++ OsPid ++ ".*")]],
    {Output, chains(Text)}.

command(Format, Arguments) ->
    os:cmd(lists:flatten(io_lib:format(Format, Arguments))).

chains(Text) ->
    [[symbol(Line) || Line <- Chain]
     || Sample <- string:split(Text, "\n\n", all),
        [Thread | Chain] <- [string:lexemes(Sample, "\n")],
        re:run(Thread, "_sche?d?|erts_[sd]") =/= nomatch].

%% An address and a name.
symbol(Line) ->
    case string:lexemes(Line, " \t") of
        [_Address, Symbol | _] -> Symbol;
        _ -> ""
    end.

scratch(Name) ->
    filename:join(os:getenv("TMPDIR", "/tmp"), Name ++ os:getpid()).

%% In the VM that perf samples; tells which it is.
work() ->
    io:format("~s~n", [os:getpid()]),
    Forms = overhead:queue_source(),
    repeat(Forms, erlang:monotonic_time(millisecond) + ?SECONDS * 1000),
    halt().

repeat(Forms, End) ->
    compile(Forms),
    erlang:monotonic_time(millisecond) < End andalso repeat(Forms, End).

compile(Forms) ->
    {ok, _, _} = compile:forms(Forms, [binary, no_spawn_compiler_process]).

is_collection(Chain) ->
    lists:any(fun(Symbol) -> string:find(Symbol, "garbage_collect") =/= nomatch end, Chain).

by_function(Samples) ->
    Count = lists:foldl(fun add_sample/2, #{}, Samples),
    lists:reverse(lists:keysort(2, [{Name, 100 * N / length(Samples)}
                                    || {Name, N} <- maps:to_list(Count)])).

add_sample(["$global" ++ _ | _], Count) -> Count;
add_sample(["$" ++ Name | _], Count) -> maps:update_with(Name, fun(N) -> N + 1 end, 1, Count);
add_sample(_, Count) -> Count.

%% ---- emberl ----

%% The share of collections, and functions by own time.
emberl() ->
    Forms = overhead:queue_source(),
    compile(Forms),
    Profile = emberl:apply({fun compile/1, [Forms]}, #{return => profile}),
    Functions = emberl_profile:functions(Profile),
    {Own, Gc} = {sum(own_ns, Functions), sum(gc_ns, Functions)},
    Sorted = lists:reverse(lists:keysort(1, [{T, name(MFA)}
                                             || #{mfa := MFA, own_ns := T} <- Functions])),
    {100 * Gc / (Own + Gc), [Name || {_, Name} <- Sorted]}.

sum(Key, Rows) -> lists:sum([maps:get(Key, Row) || Row <- Rows]).

name({M, F, A}) -> lists:flatten(io_lib:format("~ts:~ts/~b", [M, F, A])).
