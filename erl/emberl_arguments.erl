%% SPDX-License-Identifier: Apache-2.0
%% @private
%% The arguments of a command line, and the help that tells of them: both from the
%% same table of options.
-module(emberl_arguments).

-export([parse/2, help/1, module/1]).
-export_type([option/0, parsed/0]).

%% A value is given as `--name VALUE', `--name=VALUE', `-n VALUE' or `-nVALUE'. `many'
%% may be repeated: its value is a list.
-type option() :: {Key :: atom(), Short :: char() | none, Long :: string(), kind(),
                   Help :: string()}.
-type kind() :: flag
              | {Name :: string(), value()}
              | {Name :: string(), many, value()}.
-type value() :: text | number | milliseconds | time | modules | {one_of, [atom()]}.
-type parsed() :: #{options := #{atom() => term()}, operands := [string()],
                    rest := none | [string()]}.

%% `rest' is what stands after `--'.
-spec parse([option()], [string()]) -> {ok, parsed()} | {error, unicode:chardata()}.
parse(Specs, Arguments) ->
    try
        {ok, parse(Arguments, Specs, #{options => #{}, operands => [], rest => none})}
    catch
        throw:{usage, Text} -> {error, Text}
    end.

parse(["--" | Rest], _Specs, Parsed) ->
    finished(Parsed#{rest := Rest});
parse(["--" ++ Text | Arguments], Specs, Parsed) ->
    {Name, Value} = case string:split(Text, "=") of
                        [Long, Given] -> {Long, {given, Given}};
                        [Long] -> {Long, none}
                    end,
    option(find(Name, 3, Specs, ["--", Name]), Value, Arguments, Specs, Parsed);
parse([[$-, Short | Text] | Arguments], Specs, Parsed) ->
    Spec = find(Short, 2, Specs, [$-, Short]),
    case {Spec, Text} of
        {_, ""} -> option(Spec, none, Arguments, Specs, Parsed);
        {{_, _, _, flag, _}, _} -> option(Spec, none, [[$- | Text] | Arguments], Specs, Parsed);
        _ -> option(Spec, {given, Text}, Arguments, Specs, Parsed)
    end;
parse([Operand | Arguments], Specs, #{operands := Operands} = Parsed) ->
    parse(Arguments, Specs, Parsed#{operands := [Operand | Operands]});
parse([], _Specs, Parsed) ->
    finished(Parsed).

finished(#{operands := Operands} = Parsed) ->
    Parsed#{operands := lists:reverse(Operands)}.

find(Name, Position, Specs, Text) ->
    case lists:keyfind(Name, Position, Specs) of
        false -> usage(["unknown option ", Text]);
        Spec -> Spec
    end.

option({Key, _, _, flag, _}, none, Arguments, Specs, Parsed) ->
    parse(Arguments, Specs, put(Key, true, Parsed));
option({_, _, Long, flag, _}, {given, _}, _Arguments, _Specs, _Parsed) ->
    usage(["--", Long, " takes no value"]);
option(Spec, {given, Text}, Arguments, Specs, Parsed) ->
    parse(Arguments, Specs, put_value(Spec, Text, Parsed));
option(Spec, none, [Text | Arguments], Specs, Parsed) ->
    parse(Arguments, Specs, put_value(Spec, Text, Parsed));
option({_, _, Long, _, _}, none, [], _Specs, _Parsed) ->
    usage(["--", Long, " needs a value"]).

put_value({Key, _, Long, {_Name, many, Kind}, _}, Text, #{options := Options} = Parsed) ->
    put(Key, maps:get(Key, Options, []) ++ [value(Kind, Text, Long)], Parsed);
put_value({Key, _, Long, {_Name, Kind}, _}, Text, Parsed) ->
    put(Key, value(Kind, Text, Long), Parsed).

put(Key, Value, #{options := Options} = Parsed) ->
    Parsed#{options := Options#{Key => Value}}.

value(text, Text, _Long) ->
    Text;
value(number, Text, Long) ->
    positive(Text, Long, "a whole number above 0");
value(milliseconds, Text, Long) ->
    1000 * positive(Text, Long, "whole seconds, 1 or more");
value(time, Text, Long) ->
    case emberl_time:parse(Text) of
        {ok, _} -> Text;
        {error, _} -> usage(["--", Long, " takes a time in UTC as 2026-12-31T23:59:59Z, without "
                             "the zone, the seconds or the time, now, or as -10m, not ", Text])
    end;
value(modules, Text, _Long) ->
    [module(Name) || Name <- string:lexemes(Text, ", ")];
value({one_of, Atoms}, Text, Long) ->
    case [Atom || Atom <- Atoms, atom_to_list(Atom) =:= Text] of
        [Atom] -> Atom;
        [] -> usage(["--", Long, " takes ", lists:join(", ", [atom_to_list(A) || A <- Atoms]),
                     ", not ", Text])
    end.

positive(Text, Long, Wanted) ->
    case string:to_integer(Text) of
        {Number, ""} when Number > 0 -> Number;
        _ -> usage(["--", Long, " takes ", Wanted, ", not ", Text])
    end.

%% Enum is a module of Elixir, as people write it there.
-spec module(string()) -> module().
module([First | _] = Name) when First >= $A, First =< $Z -> list_to_atom("Elixir." ++ strip(Name));
module(Name) -> list_to_atom(Name).

strip("Elixir." ++ Name) -> Name;
strip(Name) -> Name.

-spec usage(unicode:chardata()) -> no_return().
usage(Text) ->
    throw({usage, Text}).

%% ---- help ----

-define(INDENT, 26).

%% A line or two for each option.
-spec help([option()]) -> unicode:chardata().
help(Specs) ->
    [[option_help(Left, Help)] || {_, _, _, _, Help} = Spec <- Specs, Left <- [left(Spec)]].

left({_, Short, Long, Kind, _}) ->
    Name = case Kind of
               flag -> "";
               {Value, _} -> [$\s | Value];
               {Value, many, _} -> [$\s | Value]
           end,
    Dash = case Short of
               none -> "    ";
               _ -> [$-, Short, $,, $\s]
           end,
    lists:flatten(["  ", Dash, "--", Long, Name]).

option_help(Left, Help) when length(Left) < ?INDENT ->
    [string:pad(Left, ?INDENT), help_lines(Help)];
option_help(Left, Help) ->
    [Left, $\n, lists:duplicate(?INDENT, $\s), help_lines(Help)].

help_lines(Help) ->
    [lists:join([$\n, lists:duplicate(?INDENT, $\s)], string:split(Help, "\n", all)), $\n].
