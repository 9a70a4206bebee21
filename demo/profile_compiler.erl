%% SPDX-License-Identifier: Apache-2.0
%% Profiles the OTP compiler at work on one of our own modules: writes a flame
%% graph and prints the functions that took most time.
-module(profile_compiler).

-export([main/1]).

-define(ROWS, 20).

main([Source, Directory]) ->
    {ok, _} = application:ensure_all_started(compiler),
    Untraced = untraced_ms(Source),
    #{result := {ok, _}, profile := Profile, file := File} =
        emberl:apply({compile, file, [Source, [binary]]},
                     #{return => all, output_directory => Directory, quiet => true}),
    print_info(Source, Untraced, emberl_profile:info(Profile)),
    print_functions(emberl_profile:functions(Profile)),
    io:format("~nFlame graph: ~ts~n", [filename:absname(File)]),
    halt(0).

%% The second time, when all code is loaded.
untraced_ms(Source) ->
    [_, Time] = [element(1, timer:tc(compile, file, [Source, [binary]])) || _ <- [1, 2]],
    Time / 1.0e3.

print_info(Source, Untraced, Info) ->
    #{duration_ns := Duration, events := Events, lost := Lost, stacks := Stacks} = Info,
    io:format("~nThe compiler, compiling ~ts on OTP ~ts~n~n", [Source, maps:get(otp_release, Info)]),
    io:format("  untraced   ~10.1f ms~n", [Untraced]),
    io:format("  profiled   ~10.1f ms~n", [Duration / 1.0e6]),
    io:format("  events     ~10s, ~s lost~n", [grouped(Events), grouped(Lost)]),
    io:format("  stacks     ~10s~n~n", [grouped(Stacks)]).

print_functions(Functions) ->
    Total = lists:sum([Own || #{own_ns := Own} <- Functions]),
    io:format("~12s  ~10s  ~6s  ~14s  ~s~n", ["calls", "own ms", "own %", "heap words", "function"]),
    lists:foreach(fun(Function) -> print(Function, Total) end,
                  lists:sublist(by_own_time(Functions), ?ROWS)),
    io:format("~12s  ~10.2f  ~6.1f  ~14s  all ~b functions~n",
              [grouped(sum(calls, Functions)), Total / 1.0e6, 100.0,
               grouped(sum(words, Functions)), length(Functions)]).

print(#{mfa := {M, F, A}, calls := Calls, own_ns := Own, words := Words}, Total) ->
    io:format("~12s  ~10.2f  ~6.1f  ~14s  ~tw:~tw/~b~n",
              [grouped(Calls), Own / 1.0e6, 100 * Own / max(1, Total), grouped(Words), M, F, A]).

by_own_time(Functions) ->
    lists:sort(fun(#{own_ns := A}, #{own_ns := B}) -> A >= B end, Functions).

sum(Key, Functions) ->
    lists:sum([maps:get(Key, Function) || Function <- Functions]).

%% 1234567 -> "1,234,567"
grouped(N) when N < 0 -> [$- | grouped(-N)];
grouped(N) when N < 1000 -> integer_to_list(N);
grouped(N) -> grouped(N div 1000) ++ io_lib:format(",~3..0b", [N rem 1000]).
