%% SPDX-License-Identifier: Apache-2.0
%% Tallies as data and as tables.
-module(emberl_tally_tests).

-include_lib("eunit/include/eunit.hrl").

tally(Measures, Rows) ->
    emberl_tally:new(#{info => #{engine => counters, measures => Measures, target => <<"t">>,
                                 outcome => none, otp_release => <<"27">>, start_us => 5,
                                 duration_ns => 10, notes => []},
                       rows => Rows,
                       processes => #{self() => #{name => <<"me">>, label => <<"m:f/0">>}},
                       profile => none}).

%% 3 calls, 6 words of one function and 1 call, 2 words of another, here; 1 call, 8 words
%% of the first elsewhere.
words() ->
    tally([call_memory], [row(self(), {m, f, 1}, 3, 6), row(self(), {m, g, 0}, 1, 2),
                          row(other(), {m, f, 1}, 1, 8), row(self(), {n, none, 0}, 7, 0)]).

row(Pid, MFA, Calls, Words) ->
    #{process => Pid, mfa => MFA, calls => Calls, words => Words}.

other() -> list_to_pid("<0.1.0>").

printed(Inspected) ->
    {ok, Text} = emberl_test:quiet(fun() -> emberl_tally:format(Inspected) end),
    string:split(string:trim(unicode:characters_to_list(Text), both, "\n"), "\n", all).

mfas(#{lines := Lines}) -> [MFA || #{mfa := MFA} <- Lines].

%% ---- inspecting ----

processes_have_their_sums_and_shares_test() ->
    #{} = Inspected = emberl_tally:inspect(words()),
    ?assertEqual([self(), other()] -- [], lists:reverse(lists:sort(maps:keys(Inspected)))),
    #{total := Total, percent := Percent, name := <<"me">>, label := <<"m:f/0">>, lines := Lines} =
        maps:get(self(), Inspected),
    ?assertEqual(#{calls => 4, words => 8}, Total),
    ?assertEqual(#{calls => 80.0, words => 50.0}, Percent),
    ?assertEqual([#{mfa => {m, g, 0}, calls => 1, calls_percent => 25.0, words => 2,
                    words_per_call => 2.0, words_percent => 25.0},
                  #{mfa => {m, f, 1}, calls => 3, calls_percent => 75.0, words => 6,
                    words_per_call => 2.0, words_percent => 75.0}], Lines).

total_is_of_all_processes_test() ->
    #{all := Section} = Inspected = emberl_tally:inspect(words(), total, {words, descending}),
    ?assertEqual(1, maps:size(Inspected)),
    ?assertMatch(#{total := #{calls := 5, words := 16}, process := all,
                   lines := [#{mfa := {m, f, 1}, calls := 4, words := 14, words_per_call := 3.5,
                               words_percent := 87.5},
                             #{mfa := {m, g, 0}}]}, Section).

functions_without_words_are_shown_beside_time_test() ->
    Rows = [#{process => self(), mfa => {m, f, 1}, calls => 1, time_ns => 3000, words => 0}],
    #{all := Section} = emberl_tally:inspect(tally([call_count, call_time, call_memory], Rows),
                                             total, percent),
    ?assertMatch(#{lines := [#{time_ns := 3000, time_ns_percent := 100.0, words := 0}]}, Section).

sorts_by_each_column_test() ->
    Rows = [#{process => self(), mfa => MFA, calls => Calls, time_ns => Time, words => Words}
            || {MFA, Calls, Time, Words} <- [{{b, y, 1}, 1, 50, 2}, {{a, z, 2}, 2, 40, 9},
                                             {{c, x, 0}, 3, 30, 1}]],
    Tally = tally([call_count, call_time, call_memory], Rows),
    [begin
         #{all := Up} = emberl_tally:inspect(Tally, total, Column),
         #{all := Down} = emberl_tally:inspect(Tally, total, {Column, descending}),
         ?assertEqual({Column, Order}, {Column, [M || {M, _, _} <- mfas(Up)]}),
         ?assertEqual({Column, lists:reverse(Order)}, {Column, [M || {M, _, _} <- mfas(Down)]})
     end || {Column, Order} <- [{module, [a, b, c]}, {function, [c, b, a]}, {calls, [b, a, c]},
                                {time, [c, a, b]}, {words, [c, b, a]}, {measurement, [c, a, b]},
                                {percent, [c, a, b]}, {measurement_per_call, [c, a, b]}]],
    ?assertError({bad_option, sort, _}, emberl_tally:inspect(Tally, total, size)),
    ?assertError({bad_option, sort, _}, emberl_tally:inspect(Tally, total, {calls, sideways})).

%% ---- printing ----

a_table_a_process_test() ->
    ?assertEqual(["****** Process <0.1.0>  --  50.00% of total ***",
                  "FUNCTION  CALLS  WORDS  PER CALL  [     %]",
                  "m:f/1         1      8      8.00  [100.00]",
                  "                     8            [ 100.0]",
                  "",
                  "****** Process " ++ pid_to_list(self()) ++ " me m:f/0  --  50.00% of total ***",
                  "FUNCTION  CALLS  WORDS  PER CALL  [    %]",
                  "m:g/0         1      2      2.00  [25.00]",
                  "m:f/1         3      6      2.00  [75.00]",
                  "                     8            [100.0]"],
                 printed(words())).

calls_alone_test() ->
    Rows = [#{process => all, mfa => {m, f, 1}, calls => 3},
            #{process => all, mfa => {'Elixir.Enum', map, 2}, calls => 1}],
    ?assertEqual(["FUNCTION    CALLS  [    %]",
                  "Enum.map/2      1  [25.00]",
                  "m:f/1           3  [75.00]",
                  "                4  [100.0]"],
                 printed(emberl_tally:inspect(tally([call_count], Rows)))).

nothing_test() ->
    ?assertEqual(["Nothing was counted."], printed(tally([call_time], []))).

names_cannot_give_orders_to_a_terminal_test() ->
    Tally =
        emberl_tally:new(#{info => emberl_tally:info(words()), rows => emberl_tally:rows(words()),
                           processes => #{self() => #{name => <<"\e[2J">>, label => undefined}},
                           profile => none}),
    ?assertEqual([], [Line || Line <- printed(Tally), lists:member($\e, Line)]).

a_section_is_printed_alone_test() ->
    ?assertMatch(["FUNCTION" ++ _, "m:f/1" ++ _, _],
                 printed(maps:get(other(), emberl_tally:inspect(words())))).

%% ---- more than one ----

tallies_add_up_test() ->
    Sum = emberl_tally:add([words(), words(), words()]),
    ?assertMatch(#{duration_ns := 30, start_us := 5}, emberl_tally:info(Sum)),
    ?assertEqual(lists:sort([row(P, F, 3 * C, 3 * W)
                             || #{process := P, mfa := F, calls := C, words := W}
                                    <- emberl_tally:rows(words())]),
                 lists:sort(emberl_tally:rows(Sum))),
    [?assertError({bad_tally, _, _}, emberl_tally:add(Bad))
     || Bad <- [[words(), tally([call_count], [])], [], words(), [words() | words()],
                [words(), no_tally]]].

%% Of runs of a function, by either engine.
runs_add_up_and_compare_test_() ->
    {timeout, 60, fun() -> [runs_add_up_and_compare(Engine) || Engine <- [tracer, counters]] end}.

runs_add_up_and_compare(Engine) ->
    Run = fun(N) ->
                  {_, Tally} = emberl:profile(emberl_work, pairs, [N],
                                              #{engine => Engine, report => return,
                                                pattern => {emberl_work, '_', '_'}}),
                  Tally
          end,
    Calls = fun(Tally) ->
                    #{all := #{lines := Lines}} = emberl_tally:inspect(Tally, total, calls),
                    maps:from_list([{F, C} || #{mfa := {emberl_work, F, _}, calls := C} <- Lines])
            end,
    ?assertEqual(#{pairs => 3 + 6, pair => 2 + 5, leaf => 4 + 10},
                 Calls(emberl_tally:add([Run(2), Run(5)]))),
    Deltas = maps:from_list([{F, D} || #{mfa := {emberl_work, F, _}, delta := #{calls := D}}
                                           <- emberl_tally:compare(Run(2), Run(5))]),
    ?assertEqual(#{pairs => 3, pair => 3, leaf => 6}, Deltas).

tallies_compare_test() ->
    After = tally([call_memory], [row(self(), {m, f, 1}, 5, 15), row(self(), {m, new, 0}, 1, 1)]),
    ?assertEqual(lists:sort([#{mfa => {m, f, 1}, before => #{calls => 4, words => 14},
                               'after' => #{calls => 5, words => 15},
                               delta => #{calls => 1, words => 1}},
                             #{mfa => {m, g, 0}, before => #{calls => 1, words => 2},
                               'after' => #{calls => 0, words => 0},
                               delta => #{calls => -1, words => -2}},
                             #{mfa => {m, new, 0}, before => #{calls => 0, words => 0},
                               'after' => #{calls => 1, words => 1},
                               delta => #{calls => 1, words => 1}},
                             #{mfa => {n, none, 0}, before => #{calls => 7, words => 0},
                               'after' => #{calls => 0, words => 0},
                               delta => #{calls => -7, words => 0}}]),
                 lists:sort(emberl_tally:compare(words(), After))),
    ?assertEqual(["FUNCTION  CALLS BEFORE  AFTER  CHANGE  WORDS BEFORE  AFTER  CHANGE",
                  "m:g/0                1      0      -1             2      0      -2",
                  "m:f/1                4      5      +1            14     15      +1",
                  "m:new/0              0      1      +1             0      1      +1",
                  "n:none/0             7      0      -7             0      0       0"],
                 printed(emberl_tally:compare(words(), After))),
    ?assertEqual(["Nothing was counted."],
                 printed(emberl_tally:compare(tally([call_time], []), tally([call_time], [])))),
    [?assertError({bad_tally, _, _}, emberl_tally:compare(A, B))
     || {A, B} <- [{words(), tally([call_time], [])}, {words(), none}, {[], words()}]].

calls_that_took_no_words_are_shown_test() ->
    Tally = tally([call_memory], [row(self(), {m, f, 1}, 5, 0), row(self(), {m, g, 0}, 1, 0)]),
    #{all := #{lines := Lines}} = emberl_tally:inspect(Tally, total, calls),
    ?assertEqual([{{m, g, 0}, 1}, {{m, f, 1}, 5}], [{F, C} || #{mfa := F, calls := C} <- Lines]),
    ?assertNotEqual(["Nothing was counted."], printed(Tally)).

columns_that_are_not_there_are_refused_test() ->
    [?assertError({bad_option, sort, _}, emberl_tally:inspect(words(), total, Sort))
     || Sort <- [time, {time, descending}, no_column]],
    [emberl_tally:inspect(words(), total, Sort)
     || Sort <- [words, calls, {words, descending}, measurement]],
    ?assertError({bad_option, sort, _},
                 emberl_tally:inspect(tally([call_count], []), total, words)).

filters_test() ->
    Rows = fun(Filters) ->
                   Tally = emberl_tally:filter(words(), Filters),
                   lists:sort([{P, F} || #{process := P, mfa := F} <- emberl_tally:rows(Tally)])
           end,
    ?assertEqual([{self(), {n, none, 0}}], Rows(#{modules => [n]})),
    ?assertEqual([{other(), {m, f, 1}}], Rows([{process, other()}])),
    ?assertEqual(3, length(Rows(#{process => me}))),
    ?assertEqual([], Rows(#{process => nobody})),
    ?assertEqual([], Rows(#{modules => {app, kernel}})),
    ?assertError({bad_option, modules, _}, Rows(#{modules => {app, no_such_application}})),
    ?assertError({bad_option, module, _}, Rows(#{module => m})).
