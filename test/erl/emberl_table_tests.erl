%% SPDX-License-Identifier: Apache-2.0
%% Numbers, names and tables as people read them.
-module(emberl_table_tests).

-include_lib("eunit/include/eunit.hrl").

-define(PLAIN, #{width => infinity, colour => false}).

text(Chars) -> unicode:characters_to_list(Chars).

lines(Columns, Rows, Options) ->
    string:split(string:trim(text(emberl_table:table(Columns, Rows, Options)), trailing, "\n"),
                 "\n", all).

%% ---- numbers ----

counts_are_grouped_test() ->
    [?assertEqual(Text, text(emberl_table:count(N)))
     || {N, Text} <- [{0, "0"}, {999, "999"}, {1000, "1,000"}, {1234567, "1,234,567"},
                      {1000001, "1,000,001"}, {-1, "-1"}, {-1234, "-1,234"}]].

times_have_the_unit_that_fits_test() ->
    [?assertEqual(Text, text(emberl_table:time(Ns)))
     || {Ns, Text} <- [{0, "0 ns"}, {999, "999 ns"}, {1000, "1.00 us"}, {1234, "1.23 us"},
                       {1235, "1.24 us"}, {999994, "999.99 us"}, {999995, "1.00 ms"},
                       {12345678, "12.35 ms"}, {60000000000, "60.00 s"},
                       {1234567000000000, "1,234,567.00 s"}, {-1500, "-1.50 us"}]].

bytes_have_the_unit_that_fits_test() ->
    [?assertEqual(Text, text(emberl_table:bytes(N)))
     || {N, Text} <- [{0, "0 B"}, {1023, "1023 B"}, {1024, "1.00 KiB"}, {1536, "1.50 KiB"},
                      {1048575, "1.00 MiB"}, {5 bsl 40, "5.00 TiB"}, {-2048, "-2.00 KiB"}]].

percentages_test() ->
    ?assertEqual("12.5 %", text(emberl_table:percent(1, 8))),
    ?assertEqual("100.0 %", text(emberl_table:percent(3, 3))),
    ?assertEqual("", text(emberl_table:percent(0, 0))).

changes_have_a_sign_test() ->
    ?assertEqual("+1.00 us", text(emberl_table:change(time, 1000))),
    ?assertEqual("-1.00 us", text(emberl_table:change(time, -1000))),
    ?assertEqual("0 ns", text(emberl_table:change(time, 0))),
    ?assertEqual("+1,000", text(emberl_table:change(words, 1000))),
    ?assertEqual("+1.00 KiB", text(emberl_table:change(bytes, 1024))).

%% ---- names ----

functions_are_written_as_their_language_does_test() ->
    ?assertEqual(<<"lists:map/2">>, emberl_table:mfa({lists, map, 2})),
    ?assertEqual(<<"'my mod':'A'/0">>, emberl_table:mfa({'my mod', 'A', 0})),
    ?assertEqual(<<"Enum.map/2">>, emberl_table:mfa({'Elixir.Enum', map, 2})),
    ?assertEqual(<<"Enum.map/2">>, emberl_table:mfa({<<"Elixir.Enum">>, <<"map">>, 2})),
    ?assertEqual(<<"'å':'→'/255"/utf8>>, emberl_table:mfa({'å', '→', 255})),
    ?assertEqual(<<"MyApp.Pool">>, emberl_nif:atom_text('Elixir.MyApp.Pool')),
    ?assertEqual(<<"'a b'">>, emberl_nif:atom_text(<<"a b">>)).

%% Targets are written here, frames by the library.
targets_and_frames_are_written_alike_test() ->
    Module = 'Elixir.EmberlText.Sample',
    Code = emberl_test:compile(Module, ["'run!'(F) -> F().", "inner() -> fun() -> 1 end."]),
    {module, Module} = code:load_binary(Module, "sample", Code),
    try
        [?assertEqual(Text, maps:get(target, emberl_profile:info(emberl_test:profile(Target))))
         || {Target, Text} <- [{{Module, 'run!', [fun() -> 1 end]}, <<"EmberlText.Sample.run!/1">>},
                               {{Module:inner(), []},
                                <<"anonymous fn/0 in EmberlText.Sample.inner/0">>}]],
        Folded = emberl_profile:format(emberl_test:profile({Module, 'run!', [fun() -> 1 end]}),
                                       brendan_gregg, #{metric => calls}),
        ?assertMatch({_, _}, binary:match(Folded, <<";EmberlText.Sample.run!/1 1\n">>))
    after
        emberl_test:unload(Module)
    end.

processes_are_written_as_their_language_does_test() ->
    Name = 'Elixir.EmberlText.Server',
    Profile = emberl_test:in_process(fun() ->
                                             register(Name, self()),
                                             emberl_test:profile({erlang, abs, [1]})
                                     end),
    ?assertMatch([#{name := <<"EmberlText.Server">>}], emberl_profile:processes(Profile)).

what_is_no_name_is_refused_test() ->
    [?assertError(badarg, emberl_nif:mfa_text(M, F, A))
     || {M, F, A} <- [{"m", f, 1}, {m, 1, 1}, {m, f, a}, {m, f, -1}]],
    ?assertError(badarg, emberl_nif:atom_text("list")).

%% A terminal obeys what it is sent.
texts_cannot_order_a_terminal_about_test() ->
    ?assertEqual("a\\x{1B}[2Jb", text(emberl_table:printable("a\e[2Jb"))),
    ?assertEqual("\\x{A}\\x{7F}\\x{9B}\\x{61C}\\x{202E}",
                 text(emberl_table:printable([10, 127, 16#9b, 16#61c, 16#202e]))),
    ?assertEqual("å\\x{..}", text(emberl_table:printable(<<"å"/utf8, 255>>))).

%% ---- tables ----

numbers_stand_right_and_text_left_test() ->
    ?assertEqual(["calls  own      function   share",
                  "    1  5 ns     f         50.0 %",
                  "1,000  1.00 ms  a longer   0.1 %"],
                 [string:trim(L, trailing)
                  || L <- lines([{"calls", count}, {"own", text}, {"function", text},
                                 {"share", percent}],
                                [[1, "5 ns", "f", {1, 2}],
                                 [1000, "1.00 ms", "a longer", {1, 1000}]],
                                ?PLAIN)]).

empty_cells_and_no_rows_test() ->
    ?assertEqual(["n  name", "   x"],
                 lines([{"n", count}, {"name", text}], [[undefined, "x"]], ?PLAIN)),
    ?assertEqual(["n  name"], lines([{"n", count}, {"name", text}], [], ?PLAIN)).

the_longest_text_is_cut_to_the_width_test() ->
    Rows = [[1, "short", "abcdefghijklmnopqrstuvwxyz"]],
    Columns = [{"n", count}, {"s", text}, {"name", text}],
    ?assertEqual(["n  s      name", "1  short  abcdefg...tuvwxyz"],
                 lines(Columns, Rows, #{width => 27})),
    ?assertEqual(["n  s      name", "1  short  abcdefghijklmnopqrstuvwxyz"],
                 lines(Columns, Rows, #{width => 36})).

no_text_is_cut_to_nothing_test() ->
    [_, Line] = lines([{"name", text}, {"n", count}], [["abcdefghijklmnopqrstuvwxyz", 1]],
                      #{width => 5}),
    ?assertEqual("abcd...vwxyz  1", Line).

%% So that 32 letters of the text are left.
columns_of_high_rank_are_left_out_first_test() ->
    Columns = [{"a", count}, {"b", count, 2}, {"c", count, 1}, {"name", text}],
    Rows = [[1, 2, 3, lists:duplicate(40, $x)]],
    Titles = fun(Width) -> [hd(Lines) || Lines <- [lines(Columns, Rows, #{width => Width})]] end,
    ?assertEqual(["a  b  c  name"], Titles(41)),
    ?assertEqual(["a  c  name"], Titles(40)),
    ?assertEqual(["a  c  name"], Titles(38)),
    ?assertEqual(["a  name"], Titles(37)),
    ?assertEqual(["a  name"], Titles(1)),
    ?assertEqual("There is no room for: b, c", lists:last(lines(Columns, Rows, #{width => 37}))),
    ?assertEqual(2, length(lines(Columns, Rows, ?PLAIN))).

letters_are_counted_not_bytes_test() ->
    ?assertEqual(["å   1", "åå  2"],
                 tl(lines([{"", text}, {"", count}], [[<<"å"/utf8>>, 1], ["åå", 2]], ?PLAIN))).

colours_only_where_they_show_test() ->
    Table = fun(Colour) ->
                    text(emberl_table:table([{"change", {change, count}}], [[1], [-1], [0]],
                                            #{width => infinity, colour => Colour}))
            end,
    ?assertEqual("change\n    +1\n    -1\n     0\n", Table(false)),
    ?assertEqual("\e[1mchange\e[0m\n\e[31m    +1\e[0m\n\e[32m    -1\e[0m\n     0\n", Table(true)).

%% A device that answers as a terminal of 60 columns, or as none.
device(Answer) ->
    spawn_link(fun() -> answer(Answer) end).

answer(Answer) ->
    receive
        {io_request, From, ReplyAs, _Request} ->
            From ! {io_reply, ReplyAs, Answer},
            answer(Answer)
    end.

in_environment(Variables, Fun) ->
    Before = [{Name, os:getenv(Name)} || {Name, _} <- Variables],
    lists:foreach(fun set/1, Variables),
    try Fun()
    after lists:foreach(fun set/1, Before)
    end.

set({Name, false}) -> os:unsetenv(Name);
set({Name, Value}) -> os:putenv(Name, Value).

devices_test() ->
    Shown = fun(Term, NoColour, Answer) ->
                    in_environment([{"TERM", Term}, {"NO_COLOR", NoColour}],
                                   fun() -> emberl_table:device(device(Answer)) end)
            end,
    ?assertEqual(#{width => 60, colour => true}, Shown("xterm", false, 60)),
    ?assertEqual(#{width => 60, colour => true}, Shown("xterm", "", 60)),
    ?assertEqual(#{width => 60, colour => false}, Shown("xterm", "1", 60)),
    ?assertEqual(#{width => 60, colour => false}, Shown("dumb", false, 60)),
    ?assertEqual(#{width => 60, colour => false}, Shown(false, false, 60)),
    ?assertEqual(#{width => infinity, colour => false}, Shown("xterm", false, {error, enotsup})).
