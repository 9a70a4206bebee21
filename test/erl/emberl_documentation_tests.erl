%% SPDX-License-Identifier: Apache-2.0
%% What h/1,2 and ht/1,2 of the shell find.
-module(emberl_documentation_tests).

-include_lib("eunit/include/eunit.hrl").

-define(MODULES, [emberl, emberl_profile, emberl_tally, emberl_server]).

%% What is exported for our own modules and for the VM.
private(emberl_tally) -> [{new, 1}, {named, 1}, {told, 2}, {label, 3}];
private(emberl_server) ->
    [{start_adhoc, 2}, {counters, 1}, {init, 1}, {handle_call, 3}, {handle_cast, 2},
     {handle_info, 2}, {terminate, 2}];
private(_) -> [].

%% A text for the module and for each function; types, with what their fields mean.
all_test_() ->
    [{atom_to_list(Module), fun() -> documented(Module) end} || Module <- ?MODULES].

documented(Module) ->
    {ok, {docs_v1, _, erlang, _, #{<<"en">> := [_ | _]}, _, Entries}} = code:get_doc(Module),
    Functions = [{F, A} || {F, A} <- Module:module_info(exports), F =/= module_info],
    ?assertEqual([], (Functions -- private(Module))
                     -- [{F, A} || {{function, F, A}, _, _, Doc, _} <- Entries, has_text(Doc)]),
    ?assertEqual([], types(Module) -- [{T, A} || {{type, T, A}, _, _, _, _} <- Entries]).

has_text(#{<<"en">> := Text}) -> Text =/= [];
has_text(_) -> false.

types(Module) ->
    {ok, {Module, [{attributes, Attributes}]}} = beam_lib:chunks(code:which(Module), [attributes]),
    lists:append([Types || {export_type, Types} <- Attributes]).

shown_test_() ->
    [{atom_to_list(Module),
      fun() -> ?assertMatch({match, _}, re:run(shown(Module, Function), Expected, [unicode])) end}
     || {Module, Function, Expected} <- [{emberl, apply, "Runs a function in the calling process"},
                                         {emberl, profile, "\\{\\{'EXIT', Reason\\}, Tally\\}\\."},
                                         {emberl_profile, info, "What was profiled"}]].

%% As the shell does it, whose output tells its encoding; a test's does not.
shown(Module, Function) ->
    {ok, Docs} = code:get_doc(Module),
    emberl_test:in_process(fun() ->
        group_leader(whereis(user), self()),
        unicode:characters_to_binary(shell_docs:render(Module, Function, Docs, #{ansi => false}))
    end).
