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
    io:format("~nThe compiler, compiling ~ts; without a profiler that took ~.1f ms.~n~n",
              [Source, Untraced]),
    emberl:print(Profile, #{count => ?ROWS}),
    io:format("~nFlame graph: ~ts~n", [filename:absname(File)]),
    halt(0).

%% The second time, when all code is loaded.
untraced_ms(Source) ->
    [_, Time] = [element(1, timer:tc(compile, file, [Source, [binary]])) || _ <- [1, 2]],
    Time / 1.0e3.
