%% SPDX-License-Identifier: Apache-2.0
%% @private
%% A tally as tables for people, in the shape of tprof's: a header for each process, one
%% line a function, and the totals.
-module(emberl_tally_report).

-export([text/2, changes/2, remarks/1]).

%% ---- tables ----

-spec text(emberl_tally:inspected() | emberl_tally:section(), emberl_table:options()) ->
          unicode:chardata().
text(Inspected, _Device) when Inspected =:= #{} -> "Nothing was counted.\n";
text(#{lines := _} = Section, Device) -> table(Section, Device);
text(#{all := Section}, Device) -> [$\n, table(Section, Device)];
text(Inspected, Device) ->
    [[header(Section, Device), table(Section, Device)]
     || {_, Section} <- lists:sort(maps:to_list(Inspected))].

header(#{process := Pid, name := Name, label := Label} = Section, Device) ->
    Text = ["****** Process ", pid_to_list(Pid), named(Name), named(Label), "  --  ",
            share(Section), " ***"],
    [$\n, emberl_table:title(Text, maps:get(colour, Device, false)), $\n].

named(undefined) -> "";
named(Text) -> [$\s, emberl_table:printable(Text)].

%% Of all that was measured; calls only where nothing else was.
share(#{percent := Percent}) ->
    case maps:without([calls], Percent) of
        #{time_ns := Time, words := Words} ->
            [decimal(Time), "% of time, ", decimal(Words), "% of words"];
        #{time_ns := Time} -> [decimal(Time), "% of total"];
        #{words := Words} -> [decimal(Words), "% of total"];
        #{} -> [decimal(maps:get(calls, Percent)), "% of total"]
    end.

table(#{lines := Lines} = Section, Device) ->
    Columns = columns(Section),
    Cells = [[Cell(Line) || {_, Cell, _} <- Columns] || Line <- Lines],
    Last = [Total || {_, _, Total} <- Columns],
    {Titles, Rows} = bracketed([Title || {Title, _, _} <- Columns], Cells ++ [Last]),
    emberl_table:table([{"FUNCTION", text} | [{Title, figure} || Title <- Titles]],
                       [[name(Line) | Row] || {Line, Row} <- lists:zip(Lines ++ [none], Rows)],
                       Device).

name(none) -> "";
name(#{mfa := MFA}) -> emberl_table:mfa(MFA).

%% Title, cell of a line, cell of the total.
columns(#{measures := Measures, total := Total, engine := Engine}) ->
    Several = Measures =/= [call_count],
    [{"CALLS", fun(#{calls := Calls}) -> integer_to_list(Calls) end,
      [integer_to_list(maps:get(calls, Total)) || not Several]}]
        ++ [percent_column(calls_percent) || not Several]
        ++ lists:append([measure_columns(Title, Key, Per, Percent, Total, Engine)
                         || {Title, Key, Per, Percent} <-
                                [{"TIME (us)", time_ns, time_ns_per_call, time_ns_percent},
                                 {"WORDS", words, words_per_call, words_percent}],
                            maps:is_key(Key, Total)]).

measure_columns(Title, Key, Per, Percent, Total, Engine) ->
    [{Title, fun(Line) -> amount(Key, maps:get(Key, Line), Engine) end,
      amount(Key, maps:get(Key, Total), Engine)},
     {"PER CALL", fun(Line) -> mean(Key, maps:get(Per, Line)) end, ""},
     percent_column(Percent)].

percent_column(Key) ->
    {{percent, "%"}, fun(Line) -> {percent, decimal(maps:get(Key, Line))} end, {percent, "100.0"}}.

%% The VM's counters count whole microseconds.
amount(words, Words, _Engine) -> integer_to_list(Words);
amount(time_ns, Ns, counters) -> integer_to_list(Ns div 1000);
amount(time_ns, Ns, tracer) -> decimal(Ns / 1000).

mean(words, Words) -> decimal(Words);
mean(time_ns, Ns) -> decimal(Ns / 1000).

decimal(Value) -> io_lib:format("~.2f", [float(Value)]).

%% Percentages stand in brackets, aligned within them.
bracketed(Titles, Rows) ->
    Width = lists:max([5 | [string:length(Text) || Row <- Rows, {percent, Text} <- Row]]),
    {[bracket(Title, Width) || Title <- Titles],
     [[bracket(Cell, Width) || Cell <- Row] || Row <- Rows]}.

bracket({percent, Text}, Width) -> [$[, string:pad(Text, Width, leading), $]];
bracket(Text, _Width) -> Text.

%% ---- comparisons ----

%% Calls, time and words, before and after; by how much the main one has changed.
-spec changes([emberl_tally:change()], emberl_table:options()) -> unicode:chardata().
changes([], _Device) ->
    "Nothing was counted.\n";
changes([#{delta := Delta} | _] = Changes, Device) ->
    Shown = [{Title, Key}
             || {Title, Key} <- [{"CALLS", calls}, {"TIME (us)", time_ns}, {"WORDS", words}],
                is_map_key(Key, Delta)],
    {_, Main} = lists:last([{none, calls} | [Column || {_, Key} = Column <- lists:reverse(Shown),
                                                       Key =/= calls]]),
    emberl_table:table([{"FUNCTION", text}
                        | lists:append([change_columns(Title) || {Title, _} <- Shown])],
                       [[name(Change)
                         | lists:append([change_cells(Key, Change) || {_, Key} <- Shown])]
                        || Change <- by_change(Main, Changes)], Device).

by_change(Key, Changes) ->
    Sorted = lists:sort([{-abs(maps:get(Key, Delta)), MFA, Change}
                         || #{mfa := MFA, delta := Delta} = Change <- Changes]),
    [Change || {_, _, Change} <- Sorted].

change_columns(Title) ->
    [{[Title, " BEFORE"], figure}, {"AFTER", figure}, {"CHANGE", figure}].

change_cells(Key, #{before := Before, 'after' := After, delta := Delta}) ->
    [plain(Key, maps:get(Key, Before)), plain(Key, maps:get(Key, After)),
     signed(Key, maps:get(Key, Delta))].

plain(time_ns, Ns) -> decimal(Ns / 1000);
plain(_Key, Number) -> integer_to_list(Number).

signed(Key, Change) when Change > 0 -> [$+ | plain(Key, Change)];
signed(Key, Change) -> plain(Key, Change).

%% ---- what else there is to say ----

%% By which engine it was measured, what more would cost, and what is missing.
-spec remarks(emberl_tally:info()) -> unicode:chardata().
remarks(#{engine := Engine, measures := Measures, outcome := Outcome, notes := Notes}) ->
    [["engine ", atom_to_list(Engine), ": ", told(Engine, Measures), $\n],
     outcome(Outcome),
     [["note: ", Note, $\n] || Note <- Notes]].

told(tracer, _Measures) ->
    "0.5 us a call, subtracted from times";
told(counters, [call_count]) ->
    "0.01 us a call; time or words: 0.3 us each; stacks: 0.5 us in all";
told(counters, [call_time]) ->
    "0.3 us a call, which is in times; words too: 0.6 us; stacks: 0.5 us in all";
told(counters, [call_memory]) ->
    "0.3 us a call; time too: 0.6 us; stacks: 0.5 us in all";
told(counters, _Measures) ->
    "0.3 us a call and measure, which is in times".

outcome(none) -> [];
outcome({ok, _Value}) -> [];
outcome(timeout) -> "it was stopped by the timeout\n";
outcome({killed, Reason}) -> io_lib:format("it was killed by an exit signal: ~0tp~n", [Reason]);
outcome({Class, Reason, _Stack}) -> io_lib:format("it raised ~s: ~0tp~n", [Class, Reason]).
