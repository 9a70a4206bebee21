%% SPDX-License-Identifier: Apache-2.0
%% @private
%% What `emberl run' runs: an expression, an escript, a module's source or a function
%% that exists already. All of it is loaded before anything is profiled.
-module(emberl_program).

-export([expression/1, named/2]).
-export_type([target/0]).

-type target() :: {module(), atom(), [term()]}.

-define(EXPRESSION, expression).

%% Compiled, so that it runs as code in a module does.
-spec expression([string()]) -> {ok, target()} | {error, unicode:chardata()}.
expression(Texts) ->
    Text = lists:join(",\n", [string:trim(string:trim(Text), trailing, ".") || Text <- Texts]),
    case parsed(lists:flatten(["run() ->\n", Text, ".\n"])) of
        {ok, Form} ->
            Anno = erl_anno:new(1),
            Head = [{attribute, Anno, module, ?EXPRESSION}, {attribute, Anno, export, [{run, 0}]}],
            loaded(Head ++ [Form], fun(Module) -> {ok, {Module, run, []}} end);
        {error, {Line, Module, Reason}} ->
            {error, located("expression", [{Line, Module, Reason}])}
    end.

%% The expression begins in line 1.
parsed(Text) ->
    case erl_scan:string(Text, 0) of
        {ok, Tokens, _} -> erl_parse:parse_form(Tokens);
        {error, Reason, _} -> {error, Reason}
    end.

loaded(Source, Target) ->
    case compile:forms(Source, [binary, return]) of
        {ok, Module, Code, _Warnings} -> load(Module, Code, Target);
        {error, Errors, _Warnings} ->
            {error, [located("expression", Found) || {_, Found} <- Errors]}
    end.

load(Module, Code, Target) ->
    case code:load_binary(Module, atom_to_list(Module), Code) of
        {module, Module} -> Target(Module);
        {error, Reason} -> {error, io_lib:format("cannot load ~ts: ~tp", [Module, Reason])}
    end.

located(Where, Errors) ->
    lists:join("\n", [[Where, $:, place(Place), Module:format_error(Reason)]
                      || {Place, Module, Reason} <- Errors]).

place(none) -> " ";
place({Line, _Column}) -> place(Line);
place(Line) -> [integer_to_list(Line), ": "].

%% A file, or MODULE:FUNCTION, which may have its arity too.
-spec named(string(), none | [string()]) -> {ok, target()} | {error, unicode:chardata()}.
named(Name, Arguments) ->
    case filelib:is_regular(Name) of
        true -> script(Name, given(Arguments));
        false -> function(string:split(Name, ":", trailing), Name, Arguments)
    end.

given(none) -> [];
given(Arguments) -> Arguments.

%% With arguments, they are one list; without, it takes none if it can.
function([Module, Function], _Name, Arguments) when Module =/= "", Function =/= "" ->
    M = emberl_arguments:module(Module),
    {Text, Arities} = wanted(string:split(Function, "/", trailing), Function, Arguments),
    F = list_to_atom(Text),
    _ = code:ensure_loaded(M),
    case [A || A <- Arities, erlang:function_exported(M, F, A)] of
        [0 | _] -> {ok, {M, F, []}};
        [1 | _] -> {ok, {M, F, [given(Arguments)]}};
        [] -> {error, ["there is no ", Module, $:, Text, $/,
                       lists:join(" or /", [integer_to_list(A) || A <- Arities])]}
    end;
function(_, Name, _Arguments) ->
    {error, [Name, " is neither a file nor MODULE:FUNCTION"]}.

wanted([Function, "0"], _Whole, none) -> {Function, [0]};
wanted([Function, "1"], _Whole, _Arguments) -> {Function, [1]};
wanted(_, Whole, Arguments) -> {Whole, arities(Arguments)}.

arities(none) -> [0, 1];
arities(_Arguments) -> [1].

%% ---- scripts ----

script(File, Arguments) ->
    case file:read_file(File) of
        {ok, <<"#!", _/binary>>} -> escript(File, Arguments);
        {ok, _} -> source(File, Arguments);
        {error, Reason} -> {error, [File, ": ", file:format_error(Reason)]}
    end.

source(File, Arguments) ->
    case compile:file(File, [binary, return]) of
        {ok, Module, Code, _Warnings} -> load(Module, Code, fun(M) -> main(M, File, Arguments) end);
        {error, Errors, _Warnings} ->
            {error, lists:join("\n", [located(Name, Found) || {Name, Found} <- Errors])}
    end.

escript(File, Arguments) ->
    try escript:extract(File, [compile_source]) of
        {ok, Sections} -> body(lists:keyfind(source, 1, Sections), Sections, File, Arguments);
        {error, Reason} -> {error, io_lib:format("~ts: not an escript: ~tp", [File, Reason])}
    catch
        _:Reason -> {error, io_lib:format("~ts: not an escript: ~tp", [File, Reason])}
    end.

body({source, Code}, _Sections, File, Arguments) ->
    beam(Code, File, Arguments);
body(false, Sections, File, Arguments) ->
    case {lists:keyfind(beam, 1, Sections), lists:keyfind(archive, 1, Sections)} of
        {{beam, Code}, _} -> beam(Code, File, Arguments);
        {_, {archive, Archive}} -> archive(Archive, main_module(Sections, File), File, Arguments);
        _ -> {error, [File, ": an escript of a kind that is not known"]}
    end.

beam(Code, File, Arguments) ->
    case beam_lib:info(Code) of
        {error, beam_lib, _} -> {error, [File, ": no code in the escript"]};
        Info ->
            Module = proplists:get_value(module, Info),
            load(Module, Code, fun(_) -> main(Module, File, Arguments) end)
    end.

main_module(Sections, File) ->
    {emu_args, Text} = lists:keyfind(emu_args, 1, Sections),
    case string:lexemes(emulator_arguments(Text), " ") of
        ["-escript", "main", Module | _] -> list_to_atom(Module);
        _ -> list_to_atom(filename:basename(File, filename:extension(File)))
    end.

emulator_arguments(undefined) -> "";
emulator_arguments(Text) ->
    case string:find(Text, "-escript main ") of
        nomatch -> "";
        Found -> Found
    end.

%% Loaded from the archive itself, so nothing is left on disk.
archive(Archive, Module, File, Arguments) ->
    case zip:unzip(Archive, [memory]) of
        {ok, Files} ->
            Beams = [Code || {Name, Code} <- Files, filename:extension(Name) =:= ".beam"],
            [_ = code:load_binary(proplists:get_value(module, beam_lib:info(Code)), File, Code)
             || Code <- Beams],
            main(Module, File, Arguments);
        {error, Reason} ->
            {error, io_lib:format("~ts: the archive cannot be read: ~tp", [File, Reason])}
    end.

main(Module, File, Arguments) ->
    case erlang:function_exported(Module, main, 1) of
        true -> {ok, {Module, main, [Arguments]}};
        false -> {error, [File, ": exports no main/1"]}
    end.
