%% SPDX-License-Identifier: Apache-2.0
%% @private
%% Points in time as people write them, all of them in UTC.
-module(emberl_time).

-export([parse/1, text/1, name/1, from_name/1]).
-export_type([given/0, milliseconds/0]).

-type milliseconds() :: integer(). % since 1970
-type given() :: calendar:datetime() | integer() | now | unicode:chardata().
%% An integer is in seconds since 1970. Texts are as RFC 3339 has them, and may leave out
%% the zone, the seconds or the time; or `now'; or how long ago: `-90s', `-10m', `-2h',
%% `-1d'.

-define(FIRST, -62167219200000). % 0000-01-01T00:00:00.000Z
-define(LAST, 253402300799999).  % 9999-12-31T23:59:59.999Z

%% Year, month, day, hour, minute, second, fraction, zone.
-define(PATTERN, "^(\\d{4})-(\\d\\d)-(\\d\\d)(?:[Tt ](\\d\\d):(\\d\\d)(?::(\\d\\d)(?:\\.(\\d+))?)?"
        "([Zz]|[-+]\\d\\d:\\d\\d)?)?$").

-spec parse(term()) -> {ok, milliseconds()} | {error, emberl_options:refusal()}.
parse(Given) ->
    try
        {ok, in_range(milliseconds(Given))}
    catch
        _:_ -> {error, emberl_options:refusal(
                         bad_time, Given,
                         [io_lib:format("~0tp is none: ", [Given]),
                          "a time is {{Year, Month, Day}, {Hour, Minute, Second}}, seconds since "
                          "1970, a text as 2026-12-31T23:59:59Z, now, or -10m; all in UTC"])}
    end.

%% What has a text, see text/1: years of four digits.
in_range(Ms) when Ms >= ?FIRST, Ms =< ?LAST -> Ms.

milliseconds(now) -> now_ms();
milliseconds(Seconds) when is_integer(Seconds) -> Seconds * 1000;
milliseconds({{_, _, _} = Date, {Hour, Minute, Second}}) ->
    of_parts(Date, Hour, Minute, Second);
milliseconds(Text) -> of_text(string:trim(unicode:characters_to_list(Text))).

%% The calendar takes a month 13 (OTP 29), an hour 25 and a second 99 for something.
of_parts({_, _, _} = Date, Hour, Minute, Second)
  when Hour >= 0, Hour < 24, Minute >= 0, Minute < 60, Second >= 0, Second < 60 ->
    true = calendar:valid_date(Date),
    DateTime = {Date, {Hour, Minute, Second}},
    (calendar:datetime_to_gregorian_seconds(DateTime) - gregorian_epoch()) * 1000.

of_text("now") -> now_ms();
of_text([$- | Ago]) ->
    {Number, [Unit]} = string:to_integer(Ago),
    true = Number >= 0,
    now_ms() - Number * unit(Unit);
of_text(Text) ->
    [Year, Month, Day, Hour, Minute, Second, Fraction, Zone] = captured(Text),
    of_parts({number(Year), number(Month), number(Day)},
             number(Hour), number(Minute), number(Second))
        + thousandths(Fraction) - offset(Zone).

unit($s) -> 1000;
unit($m) -> 60 * unit($s);
unit($h) -> 60 * unit($m);
unit($d) -> 24 * unit($h).

captured(Text) ->
    {match, Parts} = re:run(Text, ?PATTERN, [{capture, all_but_first, list}]),
    Parts ++ lists:duplicate(8 - length(Parts), "").

number("") -> 0;
number(Digits) -> list_to_integer(Digits).

thousandths(Digits) -> number(lists:sublist(Digits ++ "000", 3)).

offset([Sign, H1, H2, $:, M1, M2]) ->
    Ms = of_parts({1970, 1, 1}, number([H1, H2]), number([M1, M2]), 0),
    case Sign of $+ -> Ms; $- -> -Ms end;
offset(_Utc) ->
    0.

now_ms() -> erlang:system_time(millisecond).

gregorian_epoch() -> calendar:datetime_to_gregorian_seconds({{1970, 1, 1}, {0, 0, 0}}).

%% 2026-12-31T23:59:59.000Z
-spec text(milliseconds()) -> string().
text(Ms) ->
    calendar:system_time_to_rfc3339(Ms, [{unit, millisecond}, {offset, "Z"}]).

%% 20261231T235959.000Z: for names of files, which sort by it.
-spec name(milliseconds()) -> string().
name(Ms) ->
    [C || C <- text(Ms), C =/= $:, C =/= $-].

-spec from_name(string()) -> {ok, milliseconds()} | error.
from_name([Y1, Y2, Y3, Y4, Mo1, Mo2, D1, D2, $T, H1, H2, M1, M2 | Seconds]) ->
    Text = [Y1, Y2, Y3, Y4, $-, Mo1, Mo2, $-, D1, D2, $T, H1, H2, $:, M1, M2, $: | Seconds],
    try {ok, calendar:rfc3339_to_system_time(Text, [{unit, millisecond}])}
    catch error:_ -> error
    end;
from_name(_Name) ->
    error.
