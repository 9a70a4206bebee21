%% SPDX-License-Identifier: Apache-2.0
%% Whether shares of time are true. Each work has two parts, whose times are
%% measured untraced; the share that a tool gives to the first should
%% be that part's. All in turn in every round, so that the machine's drift hits
%% all alike; medians over the rounds.
%%
%% ROUNDS: of emberl (default 7). SLOW_ROUNDS: of the other tools (1); 0 leaves
%% them out. WORK: only works with this in their name. PERF: 0 leaves perf out.
%% EFLAMBE_EBIN: where eflambe and meck are, to have it measured too.
-module(accuracy).

-export([main/0, report/1]).

-define(WORKS, accuracy_work).

main() ->
    _ = [code:ensure_loaded(M) || M <- [?WORKS, emberl_work, lists, fprof, eprof, tprof]],
    _ = [code:add_path(Path) || Path <- string:lexemes(os:getenv("EFLAMBE_EBIN", ""), ":")],
    {ok, _} = application:ensure_all_started(emberl),
    io:format("OTP ~s, ERTS ~s, ~b schedulers~n~n",
              [erlang:system_info(otp_release), erlang:system_info(version),
               erlang:system_info(schedulers_online)]),
    Tools = tools(),
    io:format("~-28s~8s" ++ lists:append([column(T) || {T, _} <- Tools]) ++ "~n",
              ["share of the first part, %", "true" | [heading(T) || {T, _} <- Tools]]),
    Rows = [print(measure(Name, Parts, Tools), Tools) || {Name, Parts} <- works()],
    report(Rows),
    _ = number("PERF", 1) =:= 1 andalso accuracy_perf:main(),
    erlang:halt(0).

number(Name, Default) ->
    list_to_integer(os:getenv(Name, integer_to_list(Default))).

works() ->
    [Work || {Name, _} = Work <- ?WORKS:works(),
             string:find(Name, os:getenv("WORK", "")) =/= nomatch].

%% {Tool, rounds}
tools() ->
    Slow = number("SLOW_ROUNDS", 1),
    Others = [fprof, eprof] ++ [tprof || code:is_loaded(tprof) =/= false]
        ++ [eflambe || code:ensure_loaded(eflambe) =:= {module, eflambe}],
    [{Tool, number("ROUNDS", 7)} || Tool <- [emberl, raw]]
        ++ [{Tool, Slow} || Tool <- Others, Slow > 0].

heading(raw) -> "raw";
heading(emberl) -> "emberl       ";
heading(Tool) -> atom_to_list(Tool).

column(emberl) -> "~17s";
column(_) -> "~10s".

%% ---- measuring ----

%% {Name, true share, [{Tool, share, deviation}]}
measure(Name, Parts, Tools) ->
    Owners = owners(Parts),
    Rounds = lists:max([N || {_, N} <- Tools]),
    Shares = [round_of(Parts, Owners, [T || {T, N} <- Tools, N >= Round])
              || Round <- lists:seq(1, Rounds)],
    True = quantile(0.5, [T || {T, _} <- Shares]),
    {Name, True, [{Tool, middle(of_tool(Tool, Shares))} || {Tool, _} <- Tools]}.

of_tool(Tool, Rounds) -> [Share || {_, Shares} <- Rounds, {T, Share} <- Shares, T =:= Tool].

%% {Share, plus or minus}: medians over the rounds. Of a tool that cannot do it: none.
middle(Shares) ->
    case [S || {_, _} = S <- Shares] of
        [] -> none;
        Known -> {quantile(0.5, [S || {S, _} <- Known]), quantile(0.5, [U || {_, U} <- Known])}
    end.

round_of(Parts, Owners, Tools) ->
    Before = alone(Parts),
    Shares = [{Tool, try_share(Tool, Parts, Owners)} || Tool <- Tools],
    {(Before + alone(Parts)) / 2, Shares}.

%% Of the first part's time, in that of both: untraced, one after the other in one process
%% as the tools see them, since what the first leaves on the heap is collected in the second.
alone({{F, X}, {G, Y}}) ->
    Times = [in_process(fun() -> ?WORKS:timed(F, X, G, Y) end) || _ <- lists:seq(1, 15)],
    quantile(0.5, [share(A, B) || {A, B} <- Times]).

share(A, B) when A + B > 0 -> 100 * A / (A + B);
share(_, _) -> 0.0.

in_process(Fun) ->
    {_, Monitor} = spawn_monitor(fun() -> exit({result, Fun()}) end),
    receive
        {'DOWN', Monitor, process, _, {result, Result}} -> Result;
        {'DOWN', Monitor, process, _, Reason} -> error(Reason)
    end.

quantile(Q, List) ->
    lists:nth(max(1, round(Q * length(List))), lists:sort(List)).

both({{F, X}, {G, Y}}) ->
    fun() -> ?WORKS:both(F, X, G, Y) end.

%% ---- by tool ----

%% Only emberl says how sure it is.
try_share(Tool, Parts, Owners) ->
    try share_by(Tool, Parts, Owners) of
        {Share, Uncertainty} -> {Share, Uncertainty};
        Share -> {Share, none}
    catch
        Class:Reason ->
            io:format(standard_error, "~p: ~p ~0P~n", [Tool, Class, Reason, 12]),
            none
    end.

share_by(emberl, Parts, Owners) -> of_profile(profile(Parts, true), Owners);
share_by(raw, Parts, Owners) -> of_profile(profile(Parts, false), Owners);
share_by(tprof, Parts, Owners) ->
    {_, {call_time, Rows}} = tprof:profile(both(Parts), #{type => call_time, report => return}),
    of_functions([{{M, F, A}, lists:sum([T || {_, _, T} <- Processes])}
                  || {M, F, A, Processes} <- Rows], Owners);
share_by(eprof, Parts, Owners) -> of_functions(eprof_times(both(Parts)), Owners);
share_by(fprof, Parts, Owners) -> of_functions(fprof_times(both(Parts)), Owners);
share_by(eflambe, Parts, Owners) -> of_stacks(eflambe_stacks(both(Parts)), Owners).

profile(Parts, Compensate) ->
    in_process(fun() ->
                       emberl:apply(both(Parts), #{return => profile, compensate => Compensate})
               end).

%% Which stacks are the first part's, which the second's: those with its function.
of_profile(Profile, _Owners) ->
    Rows = [{side(Stack), Own + Gc, Uncertainty}
            || #{stack := Stack, own_ns := Own, gc_ns := Gc, uncertainty_ns := Uncertainty}
                   <- emberl_profile:stacks(Profile)],
    {A, B} = {sum(a, [{S, T} || {S, T, _} <- Rows]), sum(b, [{S, T} || {S, T, _} <- Rows])},
    {Ua, Ub} = {sum(a, [{S, U} || {S, _, U} <- Rows]), sum(b, [{S, U} || {S, _, U} <- Rows])},
    {share(A, B), (share(A + Ua, max(0, B - Ub)) - share(max(0, A - Ua), B + Ub)) / 2}.

side(Stack) ->
    Names = [F || {?WORKS, F, _} <- Stack],
    case {lists:any(fun ?WORKS:is_first/1, Names), lists:any(fun ?WORKS:is_second/1, Names)} of
        {true, _} -> a;
        {_, true} -> b;
        _ -> none
    end.

sum(Side, Rows) -> lists:sum([T || {S, T} <- Rows, S =:= Side]).

%% For tools without stacks: whose function it is, if only one part calls it.
owners(Parts) ->
    Rows = [{MFA, side(Stack)} || #{stack := Stack} <- emberl_profile:stacks(profile(Parts, true)),
                                  MFA <- Stack],
    Sides = maps:groups_from_list(fun({MFA, _}) -> MFA end, fun({_, Side}) -> Side end, Rows),
    maps:filtermap(fun(_, List) -> owner(lists:usort(List)) end, Sides).

owner([Side]) when Side =/= none -> {true, Side};
owner(_) -> false.

of_functions(Times, Owners) ->
    Rows = [{maps:get(MFA, Owners, none), T} || {MFA, T} <- Times],
    share(sum(a, Rows), sum(b, Rows)).

of_stacks(Rows, _Owners) ->
    Sides = [{side(Stack), T} || {Stack, T} <- Rows],
    share(sum(a, Sides), sum(b, Sides)).

scratch(Name) ->
    filename:join(os:getenv("TMPDIR", "/tmp"), Name ++ os:getpid()).

eprof_times(Fun) ->
    quietly(fun() ->
                    {ok, _} = eprof:profile(Fun),
                    File = scratch("eprof"),
                    ok = eprof:log(File),
                    eprof:analyze(total, [{sort, time}]),
                    eprof:stop(),
                    {ok, Text} = file:read_file(File),
                    file:delete(File),
                    [{mfa(MFA), list_to_integer(T)}
                     || Line <- string:lexemes(binary_to_list(Text), "\n"),
                        {match, [MFA, T]}
                            <- [re:run(Line, "^(\\S+/\\d+)\\s+\\d+\\s+\\S+\\s+(\\d+)\\s",
                                       [{capture, all_but_first, list}])]]
            end).

mfa(Text) ->
    {ok, Tokens, _} = erl_scan:string("fun " ++ Text ++ "."),
    {ok, [{'fun', _, {function, {atom, _, M}, {atom, _, F}, {integer, _, A}}}]} =
        erl_parse:parse_exprs(Tokens),
    {M, F, A}.

fprof_times(Fun) ->
    quietly(fun() ->
                    Trace = scratch("fprof.trace"),
                    File = scratch("fprof"),
                    fprof:apply(Fun, [], [{file, Trace}]),
                    fprof:profile(file, Trace),
                    fprof:analyse([{dest, File}, {totals, true}, {details, false}, no_callers]),
                    fprof:stop(),
                    {ok, Terms} = file:consult(File),
                    _ = [file:delete(F) || F <- [Trace, File]],
                    [{MFA, Own} || {{_, _, _} = MFA, _Calls, _Total, Own} <- Terms]
            end).

eflambe_stacks(Fun) ->
    Directory = scratch("eflambe"),
    ok = filelib:ensure_dir(filename:join(Directory, "x")),
    quietly(fun() ->
                    eflambe:apply({Fun, []},
                                  [{output_directory, Directory}, {output_format, brendan_gregg}]),
                    [File] = filelib:wildcard(filename:join(Directory, "*")),
                    {ok, Text} = file:read_file(File),
                    file:del_dir_r(Directory),
                    [eflambe_stack(Line) || Line <- string:lexemes(binary_to_list(Text), "\n")]
            end).

eflambe_stack(Line) ->
    [Time | Name] = lists:reverse(string:lexemes(Line, " ")),
    Frames = string:lexemes(lists:append(lists:join(" ", lists:reverse(Name))), ";"),
    {[frame(F) || F <- Frames], list_to_integer(Time)}.

frame(Text) ->
    try mfa(Text)
    catch _:_ -> {none, none, 0}
    end.

quietly(Fun) ->
    in_process(fun() ->
                       {ok, Null} = file:open("/dev/null", [write]),
                       group_leader(Null, self()),
                       Fun()
               end).

%% ---- the table ----

print({Name, True, Shares}, Tools) ->
    io:format("~-28s~8.1f", [Name, True]),
    _ = [io:format("~10s~s",
                   [share_text(proplists:get_value(Tool, Shares)), plus_minus(Tool, Shares)])
         || {Tool, _} <- Tools],
    io:format("~n"),
    {Name, True, Shares}.

share_text(none) -> "-";
share_text({Share, _}) -> io_lib:format("~.1f", [Share]).

plus_minus(emberl, Shares) ->
    case proplists:get_value(emberl, Shares) of
        {_, Uncertainty} -> io_lib:format(" +-~4.1f", [Uncertainty]);
        none -> "       "
    end;
plus_minus(_, _) -> "".

report(Rows) ->
    io:format("~n"),
    Tools = lists:usort([Tool || {_, _, Shares} <- Rows, {Tool, _} <- Shares]),
    _ = [report(Tool, [{abs(Share - True), Name} || {Name, True, Shares} <- Rows,
                                                    {T, {Share, _}} <- Shares, T =:= Tool])
         || Tool <- Tools],
    ok.

report(Tool, []) ->
    io:format("~s has given nothing~n", [Tool]);
report(Tool, Errors) ->
    {Worst, Name} = lists:max(Errors),
    io:format("~s is off by ~.1f points at most (~s), ~.1f in the median~n",
              [Tool, Worst, Name, quantile(0.5, [E || {E, _} <- Errors])]).
