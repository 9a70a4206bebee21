%% SPDX-License-Identifier: Apache-2.0
-module(emberl_user).

-export([main/0]).

main() ->
    {ok, _} = application:ensure_all_started(emberl_user),
    #{result := {ok, 5050}, profile := Profile, file := File} =
        emberl:apply({lists, sum, [lists:seq(1, 100)]}, #{return => all, quiet => true}),
    #{calls := 1} = emberl_profile:info(Profile),
    true = filelib:file_size(File) > 0,
    {ok, Modules} = application:get_key(emberl, modules),
    true = lists:member(emberl_nif, Modules),
    {ok, _} = code:get_doc(emberl),
    io:format("emberl works as a dependency: ~ts~n", [code:which(emberl)]),
    halt(0).
