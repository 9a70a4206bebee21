%% SPDX-License-Identifier: Apache-2.0
%% @private
%% Numbers with their units, names as their language writes them, and tables of
%% both that fit the terminal.
-module(emberl_table).

-export([table/3, device/1, terminal/1, title/2]).
-export([count/1, time/1, bytes/1, percent/2, change/2, mfa/1, printable/1]).
-export_type([column/0, kind/0, options/0]).

%% What the cells of a column hold: `text' and `figure' chardata, `count' and `words' whole
%% numbers, `time' nanoseconds, `bytes' bytes, `percent' {Part, Whole}, `{change,
%% Kind}' a difference of two of that kind. A cell that is `undefined' is empty.
-type kind() :: text | figure | count | words | time | bytes | percent
              | {change, count | words | time | bytes}.
-type column() :: {Title :: unicode:chardata(), kind()}
                | {Title :: unicode:chardata(), kind(), Rank :: pos_integer()}.
-type options() :: #{width => pos_integer() | infinity, colour => boolean()}.

-define(GAP, "  ").
-define(CUT, "...").
-define(NARROWEST, 12).
-define(READABLE, 32).

%% ---- the device ----

%% The width of what is written to and whether it shows colours: a terminal that
%% is not called dumb does, unless NO_COLOR is set (no-color.org). What is no
%% terminal has any width.
-spec device(io:device()) -> options().
device(Device) ->
    case io:columns(Device) of
        {ok, Width} -> terminal(Width);
        {error, _} -> terminal(none)
    end.

%% The same where the width is known; `none': it is no terminal.
-spec terminal(pos_integer() | none) -> options().
terminal(none) -> #{width => infinity, colour => false};
terminal(Width) -> #{width => Width, colour => shows_colours()}.

shows_colours() ->
    os:getenv("NO_COLOR", "") =:= ""
        andalso not lists:member(os:getenv("TERM", "dumb"), ["dumb", ""]).

%% ---- tables ----

%% Text stands to the left, all else to the right. Where the whole is too wide, columns
%% with a rank are left out, the highest first, as long as the longest text has not 32
%% letters, and named below; then that text is cut in the middle, `...' in the gap.
-spec table([column()], [[term()]], options()) -> unicode:chardata().
table(Columns, Rows, Options) ->
    Kinds = [element(2, Column) || Column <- Columns],
    Titles = [{plain, flat(element(1, Column))} || Column <- Columns],
    Cells = [lists:zipwith(fun cell/2, Kinds, Row) || Row <- Rows],
    Width = maps:get(width, Options, infinity),
    Widths = widths([Titles | Cells]),
    Shown = shown(lists:zip([rank(Column) || Column <- Columns], Kinds), Widths, Width),
    Colour = maps:get(colour, Options, false),
    [lines([only(Shown, List) || List <- [Titles | Cells]], only(Shown, Widths), only(Shown, Kinds),
           Width, Colour),
     left_out([Title || {{_, Title}, false} <- lists:zip(Titles, Shown)])].

lines([Titles | Cells], Widths, Kinds, Width, Colour) ->
    Fitted = fitted(Widths, Kinds, Width),
    [title(line(Titles, Fitted, Kinds, false), Colour), $\n,
     [[line(Row, Fitted, Kinds, Colour), $\n] || Row <- Cells]].

rank({_Title, _Kind}) -> 0;
rank({_Title, _Kind, Rank}) -> Rank.

only(Shown, List) ->
    [Element || {Element, true} <- lists:zip(List, Shown)].

left_out([]) -> [];
left_out(Titles) -> ["There is no room for: ", lists:join(", ", Titles), $\n].

%% Which columns are.
shown(Columns, _Widths, infinity) ->
    [true || _ <- Columns];
shown(Columns, Widths, Width) ->
    shown(lists:max([Rank || {Rank, _} <- Columns]), Columns, Widths, Width).

shown(0, Columns, _Widths, _Width) ->
    [Rank =< 0 || {Rank, _} <- Columns];
shown(Most, Columns, Widths, Width) ->
    Shown = [Rank =< Most || {Rank, _} <- Columns],
    Kept = only(Shown, Widths),
    Longest = longest(Kept, only(Shown, [Kind || {_, Kind} <- Columns])),
    case whole(Kept) - max(0, Longest - ?READABLE) > Width of
        true -> shown(Most - 1, Columns, Widths, Width);
        false -> Shown
    end.

whole(Widths) ->
    lists:sum(Widths) + length(?GAP) * (length(Widths) - 1).

longest(Widths, Kinds) ->
    lists:max([0 | [W || {W, text} <- lists:zip(Widths, Kinds)]]).

%% A line that stands out where there are colours.
-spec title(unicode:chardata(), boolean()) -> unicode:chardata().
title(Text, true) -> ["\e[1m", Text, "\e[0m"];
title(Text, false) -> Text.

cell(_Kind, undefined) -> {plain, ""};
cell(Kind, Text) when Kind =:= text; Kind =:= figure -> {plain, flat(Text)};
cell(count, N) -> {plain, flat(count(N))};
cell(words, N) -> {plain, flat(count(N))};
cell(time, Ns) -> {plain, flat(time(Ns))};
cell(bytes, N) -> {plain, flat(bytes(N))};
cell(percent, {Part, Whole}) -> {plain, flat(percent(Part, Whole))};
cell({change, Kind}, N) -> {colour_of(N), flat(change(Kind, N))}.

colour_of(N) when N > 0 -> red;
colour_of(N) when N < 0 -> green;
colour_of(_) -> plain.

flat(Text) ->
    unicode:characters_to_list(printable(Text)).

widths([Titles | _] = Rows) ->
    lists:foldl(fun wider/2, [0 || _ <- Titles], Rows).

wider(Row, Widths) ->
    lists:zipwith(fun({_, Text}, Width) -> max(Width, string:length(Text)) end, Row, Widths).

fitted(Widths, _Kinds, infinity) ->
    Widths;
fitted(Widths, Kinds, Width) ->
    Over = whole(Widths) - Width,
    case longest(Widths, Kinds) of
        Longest when Over > 0, Longest > 0 ->
            narrowed(lists:zip(Widths, Kinds), Longest, max(Longest - Over, ?NARROWEST));
        _ -> Widths
    end.

narrowed([{Longest, text} | Rest], Longest, To) -> [min(Longest, To) | [W || {W, _} <- Rest]];
narrowed([{W, _} | Rest], Longest, To) -> [W | narrowed(Rest, Longest, To)].

line([{Colour, Text}], [Width], [text], Colours) ->
    coloured(cut(Text, Width), Colour, Colours);
line([{Colour, Text} | Cells], [Width | Widths], [Kind | Kinds], Colours) ->
    [coloured(aligned(cut(Text, Width), Width, Kind), Colour, Colours),
     [?GAP || Cells =/= []] | line(Cells, Widths, Kinds, Colours)];
line([], [], [], _Colours) ->
    [].

aligned(Text, Width, text) -> string:pad(Text, Width, trailing);
aligned(Text, Width, _Number) -> string:pad(Text, Width, leading).

coloured(Text, red, true) -> ["\e[31m", Text, "\e[0m"];
coloured(Text, green, true) -> ["\e[32m", Text, "\e[0m"];
coloured(Text, _, _) -> Text.

%% The beginning and the end tell most: lists:...-fun-0-'/1
cut(Text, Width) ->
    Length = string:length(Text),
    Kept = Width - length(?CUT),
    case Length > Width of
        false -> Text;
        true -> [string:slice(Text, 0, Kept div 2), ?CUT,
                 string:slice(Text, Length - (Kept - Kept div 2))]
    end.

%% ---- numbers ----

%% 1234567 is 1,234,567.
-spec count(integer()) -> unicode:chardata().
count(N) when N < 0 -> [$- | count(-N)];
count(N) when N < 1000 -> integer_to_list(N);
count(N) -> [count(N div 1000), io_lib:format(",~3..0b", [N rem 1000])].

%% Nanoseconds, in ns, us, ms or s.
-spec time(integer()) -> unicode:chardata().
time(Ns) -> scaled(Ns, 1000, ["ns", "us", "ms", "s"]).

%% In B, KiB, MiB, GiB or TiB.
-spec bytes(integer()) -> unicode:chardata().
bytes(N) -> scaled(N, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]).

scaled(N, Step, Units) when N < 0 -> [$- | scaled(-N, Step, Units)];
scaled(N, Step, [Unit | _]) when N < Step -> [integer_to_list(N), $\s, Unit];
scaled(N, Step, [_ | Units]) -> scaled(N, Step, Step, Units).

%% By what it is when rounded: 999,999 ns are 1.00 ms.
scaled(N, Size, Step, [Unit | Units]) ->
    Hundredths = (200 * N + Size) div (2 * Size),
    case Hundredths < 100 * Step orelse Units =:= [] of
        true -> [count(Hundredths div 100), io_lib:format(".~2..0b ", [Hundredths rem 100]), Unit];
        false -> scaled(N, Size * Step, Step, Units)
    end.

%% With one decimal; nothing where there is no whole.
-spec percent(number(), number()) -> unicode:chardata().
percent(_Part, Whole) when Whole == 0 -> "";
percent(Part, Whole) -> io_lib:format("~.1f %", [100 * Part / Whole]).

%% With its sign.
-spec change(count | words | time | bytes, integer()) -> unicode:chardata().
change(Kind, N) when N > 0 -> [$+ | amount(Kind, N)];
change(Kind, N) -> amount(Kind, N).

amount(time, N) -> time(N);
amount(bytes, N) -> bytes(N);
amount(_Kind, N) -> count(N).

%% ---- texts ----

%% A function as its language writes it: lists:map/2, Enum.map/2. Names may be
%% binaries, as in a profile that was loaded.
-spec mfa(emberl_profile:function_name()) -> binary().
mfa({Module, Function, Arity}) ->
    emberl_nif:mfa_text(Module, Function, Arity).

%% What a terminal might take for an order is shown as \x{...}: names in a profile
%% can come from anywhere.
-spec printable(unicode:chardata()) -> unicode:chardata().
printable(Text) ->
    case unicode:characters_to_list(Text) of
        List when is_list(List) -> [escaped(C) || C <- List];
        {_, Good, _Rest} -> [printable(Good), "\\x{..}"]
    end.

escaped(C)
  when C < 32; C >= 127, C < 160; C =:= 16#061C; C >= 16#202A, C =< 16#202E;
       C >= 16#2066, C =< 16#2069; C =:= 16#2028; C =:= 16#2029; C =:= 16#200E; C =:= 16#200F ->
    io_lib:format("\\x{~.16B}", [C]);
escaped(C) ->
    C.
