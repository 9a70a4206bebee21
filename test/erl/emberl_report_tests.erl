%% SPDX-License-Identifier: Apache-2.0
%% Profiles as text and as sorted rows, and comparisons of two.
-module(emberl_report_tests).

-include_lib("eunit/include/eunit.hrl").

-import(emberl_test, [profile/1, quiet/1]).

printed(Fun) ->
    {ok, Text} = quiet(Fun),
    [string:trim(Line) || Line <- string:split(Text, "\n", all), not is_doubt(Line)].

%% A busy machine makes them.
is_doubt(Line) -> string:find(Line, "times are doubtful") =/= nomatch.

%% A profile of calls to two functions, by how often.
sample(Leafs, Spawned) ->
    profile({fun() ->
                     emberl_work:spawn_and_wait(fun(F) -> spawn(F) end),
                     [emberl_work:pair(N) || N <- lists:seq(1, Leafs)],
                     [lists:seq(1, 1) || _ <- lists:seq(1, Spawned)]
             end, []}).

%% ---- sums with callees ----

time(#{own_ns := Own, off_cpu_ns := OffCpu, gc_ns := Gc}) -> Own + OffCpu + Gc.

totals_are_of_all_stacks_with_the_function_test() ->
    Profile = sample(20, 10),
    Stacks = emberl_profile:stacks(Profile),
    Functions = emberl_profile:functions(Profile),
    ?assert(length(Functions) > 5),
    [begin
         Within = [Stack || #{stack := MFAs} = Stack <- Stacks, lists:member(MFA, MFAs)],
         ?assertEqual(lists:sum([time(S) || S <- Within]), Total),
         ?assertEqual(lists:sum([W || #{words := W} <- Within]), Words)
     end || #{mfa := MFA, total_ns := Total, total_words := Words} <- Functions].

recursion_is_counted_once_test() ->
    Profile = emberl_test:profile({emberl_work, deep, [4]}, #{fold_recursion => false}),
    [#{total_ns := Total}] = [Function || #{mfa := {emberl_work, deep, 1}} = Function
                                              <- emberl_profile:functions(Profile)],
    Whole = lists:sum([time(S) || #{stack := [_ | _]} = S <- emberl_profile:stacks(Profile)]),
    ?assertEqual(Whole, Total).

%% ---- top ----

weights(Key, Rows) ->
    [maps:get(Key, Row) || Row <- Rows].

top_sorts_by_what_it_is_asked_for_test() ->
    Profile = sample(20, 10),
    [begin
         Rows = emberl_profile:top(Profile, #{sort => Sort, count => all}),
         ?assertEqual(lists:sort(emberl_profile:functions(Profile)), lists:sort(Rows)),
         ?assertEqual(lists:reverse(lists:sort(weights(Key, Rows))), weights(Key, Rows)),
         ?assertEqual(lists:sublist(Rows, 3),
                      emberl_profile:top(Profile, [{sort, Sort}, {count, 3}]))
     end || {Sort, Key} <- [{own_time, own_ns}, {total_time, total_ns}, {words, words},
                            {calls, calls}]].

%% As a sampler makes them with `metrics'.
without(Absent) ->
    Profile = sample(3, 2),
    ok = emberl_nif:profile_leave_out(Profile, Absent),
    Profile.

what_was_not_asked_for_has_no_key_test() ->
    Profile = without([no_times, no_words, no_binaries]),
    [?assertEqual([calls], maps:keys(Row) -- [mfa, process, stack])
     || Row <- emberl_profile:functions(Profile) ++ emberl_profile:stacks(Profile)],
    [?assertEqual([calls], maps:keys(Side))
     || #{before := B, 'after' := A, delta := D} <-
            emberl_profile:stacks(emberl_profile:diff(Profile, sample(1, 1))),
        Side <- [B, A, D]],
    Lines = printed(fun() -> emberl:print(Profile) end),
    ?assert(lists:any(fun(Line) ->
                              binary:match(Line, <<"binaries were not asked for">>) =/= nomatch
                      end, Lines)).

sorts_by_what_there_is_test() ->
    [begin
         Rows = emberl_profile:top(without(Absent), #{count => all}),
         ?assertEqual(lists:reverse(lists:sort(weights(Key, Rows))), weights(Key, Rows))
     end || {Absent, Key} <- [{[], own_ns}, {[no_times], calls}, {[no_times, no_calls], words},
                              {[no_times, no_calls, no_words], binary_bytes}]].

sorting_by_what_there_is_not_is_refused_test() ->
    Profile = without([no_times, no_calls, no_binaries]),
    Diff = emberl_profile:diff(Profile, sample(1, 1)),
    [begin
         ?assertError({bad_option, sort, _}, emberl_profile:top(Of, #{sort => Sort})),
         ?assertError({bad_option, sort, _}, emberl:print(Of, #{sort => Sort}))
     end || Sort <- [own_time, total_time, waiting, calls, binaries], Of <- [Profile, Diff]],
    [_ | _] = printed(fun() -> emberl:top(Diff) end),
    ?assertError({bad_option, metric, _},
                 emberl_profile:format(Profile, svg, #{metric => binaries})).

top_of_a_number_test() ->
    ?assertEqual(2, length(emberl_profile:top(sample(1, 1), 2))).

top_of_modules_test() ->
    Rows = emberl_profile:top(sample(20, 10), #{modules => [emberl_work, no_such_module]}),
    ?assertEqual([emberl_work], lists:usort([M || #{mfa := {M, _, _}} <- Rows])).

top_of_a_process_test() ->
    Profile = sample(20, 10),
    [#{pid := Caller}, #{pid := Spawned} | _] = emberl_profile:processes(Profile),
    Text = list_to_binary(pid_to_list(Spawned)),
    Rows = emberl_profile:top(Profile, #{process => Spawned, count => all}),
    ?assertEqual(lists:sort(emberl_profile:functions(Profile, Spawned)), lists:sort(Rows)),
    ?assertEqual(Rows, emberl_profile:top(Profile, #{process => Text, count => all})),
    ?assertEqual(Rows,
                 emberl_profile:top(Profile, #{process => pid_to_list(Spawned), count => all})),
    ?assertNotEqual(Rows, emberl_profile:top(Profile, #{process => Caller, count => all})).

top_of_a_named_process_test() ->
    Profile = emberl_test:in_process(fun() ->
                                             register(emberl_report_name, self()),
                                             sample(1, 1)
                                     end),
    ?assertEqual(emberl_profile:top(Profile, #{process => <<"emberl_report_name">>}),
                 emberl_profile:top(Profile, #{process => emberl_report_name})).

top_of_a_loaded_profile_test() ->
    Profile = sample(5, 5),
    {ok, Binary} = emberl_profile:to_binary(Profile),
    {ok, Loaded} = emberl_profile:from_binary(Binary),
    [#{pid := Pid} | _] = emberl_profile:processes(Profile),
    [?assertEqual(emberl_profile:top(Profile, Options), emberl_profile:top(Loaded, Options))
     || Options <- [#{}, #{modules => [lists]}, #{process => Pid}]].

wrong_options_are_refused_test() ->
    Profile = sample(1, 1),
    [?assertError({bad_option, Key, _}, emberl_profile:top(Profile, Options))
     || {Key, Options} <- [{count, 0}, {count, #{count => many}}, {sort, #{sort => name}},
                           {modules, #{modules => lists}}, {process, #{process => 1}},
                           {process, #{process => <<"<9.9.9>">>}}, {process, #{process => nobody}},
                           {width, #{width => 3}}, {no_options, no_options}]],
    ?assertError({bad_option, sort, _}, emberl:print(Profile, #{sort => name})),
    ?assertError({bad_option, count, _}, emberl:top(Profile, -1)).

%% ---- text ----

print_tells_what_was_measured_test() ->
    Profile = profile({emberl_work, pair, [1]}),
    Lines = printed(fun() -> emberl:print(Profile) end),
    #{events := Events, stacks := Stacks} = emberl_profile:info(Profile),
    ?assertMatch(<<"emberl_work:pair/1, 20", _/binary>>, hd(Lines)),
    [?assert(lists:member(unicode:characters_to_binary(Line), Lines), {Line, Lines})
     || Line <- [["events     ", emberl_table:count(Events), ", none lost"],
                 ["stacks     ", emberl_table:count(Stacks)]]],
    ?assertMatch([_], [L || <<"duration   ", L/binary>> <- Lines,
                            binary:match(L, <<", 1 call, returned">>) =/= nomatch]),
    ?assertMatch([_], [L || L <- Lines, binary:match(L, <<"emberl_work:pair/1">>) =/= nomatch,
                            binary:match(L, <<"OTP">>) =:= nomatch]),
    ?assertEqual([], [L || <<"note", _/binary>> = L <- Lines]).

print_notes_what_is_missing_test() ->
    {incomplete, stopped, [Profile]} = unfinished(),
    ?assertEqual([<<"note: the call was stopped">>],
                 [L || <<"note", _/binary>> = L <- printed(fun() -> emberl:print(Profile) end)]).

unfinished() ->
    {module, _} = code:ensure_loaded(emberl_work),
    {ok, Capture} = emberl:start_capture({emberl_work, wait, 0}, 1, #{return => profile}),
    Pid = spawn(emberl_work, wait, []),
    emberl_test:wait_until(fun() -> is_sleeping(Pid) end),
    Results = emberl:stop(Capture),
    exit(Pid, kill),
    Results.

is_sleeping(Pid) ->
    process_info(Pid, [current_function, status])
        =:= [{current_function, {emberl_work, wait, 0}}, {status, waiting}].

top_prints_rows_and_their_sum_test() ->
    Profile = profile({emberl_work, pair, [1]}),
    Calls = emberl_test:total_calls(Profile),
    Lines = printed(fun() -> emberl:top(Profile, 1) end),
    [Titles, _Row, Last, <<>>] = Lines,
    ?assertMatch(<<"calls", _/binary>>, Titles),
    ?assertEqual(integer_to_binary(Calls), hd(string:lexemes(Last, " "))).

shares_are_of_all_stacks_test() ->
    Profile = sample(20, 10),
    Stacks = emberl_profile:stacks(Profile),
    Outside = lists:sum([time(Stack) || #{stack := []} = Stack <- Stacks]),
    ?assert(Outside > 0),
    Whole = lists:sum([time(Stack) || Stack <- Stacks]),
    [#{total_ns := Total}] = emberl_profile:top(Profile, #{sort => total_time, count => 1}),
    [_, Row | _] = printed(fun() -> emberl:top(Profile, #{sort => total_time, count => 1}) end),
    ?assertMatch({_, _}, binary:match(Row, iolist_to_binary(emberl_table:percent(Total, Whole)))).

times_of_nothing_need_no_column_test() ->
    Profile = uncollected({emberl_work, pair, [1]}),
    {ok, Text} = quiet(fun() -> emberl:top(Profile, #{modules => [emberl_work]}) end),
    ?assertEqual(nomatch, binary:match(Text, <<"gc">>)),
    ?assertMatch({_, _}, binary:match(Text, <<"all ">>)),
    ?assertError({bad_option, modules, _}, emberl_profile:top(Profile, #{modules => [nothing]})).

%% Of a call without garbage collection.
uncollected(Target) ->
    {_, Monitor} = spawn_opt(fun() -> exit({done, profile(Target)}) end,
                             [monitor, {min_heap_size, 1000000}]),
    receive {'DOWN', Monitor, process, _, {done, Profile}} -> Profile end.

%% ---- comparisons ----

diff_has_both_sides_test() ->
    Before = sample(10, 0),
    After = sample(30, 5),
    Diff = emberl_profile:diff(Before, After),
    Rows = emberl_profile:functions(Diff),
    Calls = fun(Profile) -> emberl_test:calls(Profile) end,
    [begin
         ?assertEqual(maps:get(MFA, Calls(Before), 0), Was),
         ?assertEqual(maps:get(MFA, Calls(After), 0), Is),
         ?assertEqual(Is - Was, Delta)
     end || #{mfa := MFA, before := #{calls := Was}, 'after' := #{calls := Is},
              delta := #{calls := Delta}} <- Rows],
    ?assertEqual(lists:usort(maps:keys(Calls(Before)) ++ maps:keys(Calls(After))),
                 lists:sort([MFA || #{mfa := MFA} <- Rows])).

diff_of_stacks_test() ->
    [Before, After] = [sample(3, 0), sample(3, 5)],
    Stacks = emberl_profile:stacks(emberl_profile:diff(Before, After)),
    New = [Stack || #{stack := Stack, before := #{calls := 0}, 'after' := #{calls := Calls}}
                        <- Stacks, Calls > 0, lists:last(Stack) =:= {lists, seq, 2}],
    ?assertNotEqual([], New),
    ?assertEqual([<<"caller">>, <<"spawned">>], lists:usort([P || #{process := P} <- Stacks])),
    ?assertEqual(words(Before), lists:sum([W || #{before := #{words := W}} <- Stacks])),
    ?assertEqual(words(After), lists:sum([W || #{'after' := #{words := W}} <- Stacks])).

words(Profile) ->
    lists:sum([W || #{words := W} <- emberl_profile:stacks(Profile)]).

a_merge_tells_of_all_targets_test() ->
    [Pair, Seq] = [profile({emberl_work, pair, [1]}), profile({lists, seq, [1, 3]})],
    Target =
        fun(Profiles) -> maps:get(target, emberl_profile:info(emberl_profile:merge(Profiles))) end,
    [PairText, SeqText] = [Target([Profile]) || Profile <- [Pair, Seq]],
    ?assertEqual(PairText, Target([Pair, Pair])),
    ?assertEqual(<<"merge of ", PairText/binary, "; ", SeqText/binary>>, Target([Pair, Seq, Pair])).

what_is_no_binary_is_no_profile_test() ->
    ?assertError({bad_profile, _, _},
                 emberl_profile:from_binary(
                   emberl_profile:to_binary(profile({emberl_work, pair, [1]})))).

diff_is_per_call_test() ->
    Three = emberl_profile:merge([sample(4, 4) || _ <- [1, 2, 3]]),
    One = sample(4, 4),
    Diff = emberl_profile:diff(One, Three),
    #{scale := 3.0, normalise := calls, calls := 3, before := #{calls := 1}} =
        emberl_profile:info(Diff),
    [?assertEqual(0, Delta) || #{mfa := {emberl_work, _, _}, delta := #{calls := Delta}}
                                   <- emberl_profile:functions(Diff)],
    #{scale := 1.0} = emberl_profile:info(emberl_profile:diff(One, Three, #{normalise => none})).

diff_per_time_test() ->
    Diff = emberl_profile:diff(sample(10, 10), sample(100, 100), #{normalise => time}),
    Sum = fun(Side) -> lists:sum([time(maps:get(Side, S)) || S <- emberl_profile:stacks(Diff)]) end,
    Rounding = length(emberl_profile:stacks(Diff)) * 3,
    ?assert(abs(Sum(before) - Sum('after')) =< Rounding).

top_of_a_diff_is_what_changed_most_test() ->
    Diff = emberl_profile:diff(sample(10, 10), sample(50, 10)),
    Rows = emberl_profile:top(Diff, #{sort => calls, count => all}),
    Changes = [abs(C) || #{delta := #{calls := C}} <- Rows],
    ?assertEqual(lists:reverse(lists:sort(Changes)), Changes),
    Text = printed(fun() -> emberl:print(Diff, #{sort => calls}) end),
    ?assertMatch([_, _], [L || <<Side:6/binary, _/binary>> = L <- Text,
                               lists:member(Side, [<<"before">>, <<"after ">>])]),
    ?assert(lists:any(fun(L) -> binary:match(L, <<"+40">>) =/= nomatch end, Text)).

notes_tell_what_is_doubtful_or_less_exact_test() ->
    Notes = fun(Info) -> unicode:characters_to_binary(emberl_report:notes(Info)) end,
    Exact = (emberl_profile:info(sample(1, 1)))#{doubtful := false},
    Doubtful = Exact#{doubtful := true},
    ?assertEqual(<<>>, Notes(Exact)),
    ?assertEqual(<<"note: times are doubtful, the cost of tracing varied\n">>, Notes(Doubtful)),
    ?assertEqual(<<"note: binaries are not counted; waiting and preempted are not told apart\n">>,
                 Notes(Exact#{fallbacks := [binaries, waiting]})),
    ?assertEqual(<<>>, Notes(Exact#{before => Exact})),
    ?assertEqual(<<"note before: times are doubtful, the cost of tracing varied\n"
                   "note: differences of times within their uncertainty_ns mean nothing\n">>,
                 Notes(Exact#{before => Doubtful})).

every_text_has_the_notes_test() ->
    {incomplete, stopped, [Profile]} = unfinished(),
    {ok, Defaults} = emberl_options:top(#{}),
    [?assertMatch({_, _}, binary:match(unicode:characters_to_binary(Text),
                                       <<"note: the call was stopped">>))
     || Text <- [emberl_report:summary(Profile, Defaults, #{}), emberl_report:details(Profile, #{}),
                 emberl_report:functions(Profile, Defaults, #{})]].

new_and_gone_functions_are_marked_test() ->
    [Before, After] = [profile({emberl_work, pair, [1]}), profile({lists, seq, [1, 3]})],
    Lines = printed(fun() -> emberl:top(emberl_profile:diff(Before, After), #{count => all}) end),
    Line = fun(Name) -> hd([L || L <- Lines, binary:match(L, Name) =/= nomatch]) end,
    ?assertMatch({_, _}, binary:match(Line(<<"emberl_work:pair/1">>), <<" gone ">>)),
    ?assertMatch({_, _}, binary:match(Line(<<"lists:seq/2">>), <<" new ">>)).

a_diff_in_formats_test() ->
    Diff = emberl_profile:diff(sample(3, 3), sample(5, 5)),
    Folded = emberl_profile:format(Diff, brendan_gregg, #{metric => calls}),
    [?assertMatch({match, _}, re:run(Line, "^.* [0-9]+ [0-9]+$"))
     || Line <- string:lexemes(Folded, "\n")],
    ?assertMatch({_, _}, binary:match(iolist_to_binary(emberl_profile:format(Diff, html)),
                                      <<"\"before\":">>)),
    Svg = iolist_to_binary(emberl_profile:format(Diff, svg, #{width => before})),
    ?assertMatch({_, _}, binary:match(Svg, <<"data-width=\"before\"">>)),
    ?assertError({no_comparison, pprof}, emberl_profile:format(Diff, pprof)),
    emberl_test:with_directory(fun(Directory) ->
        File = filename:join(Directory, "file"),
        [?assertEqual({error, {no_comparison, Format}}, emberl_profile:write(Diff, Format, File))
         || Format <- [pprof, perf, ember]],
        ?assertEqual({error, comparison}, emberl_profile:save(Diff, File)),
        ?assertEqual({ok, []}, file:list_dir_all(Directory)),
        ?assertEqual(ok, emberl_profile:write(Diff, brendan_gregg, File))
    end).

comparisons_are_neither_merged_nor_compared_test() ->
    Profile = sample(1, 1),
    Diff = emberl_profile:diff(Profile, Profile),
    ?assertError({bad_profile, _, _}, emberl_profile:merge([Diff])),
    ?assertError({bad_profile, _, _}, emberl_profile:diff(Diff, Profile)),
    ?assertError({bad_profile, _, _}, emberl_profile:diff(Profile, Diff)),
    ?assertError({bad_option, normalise, _},
                 emberl_profile:diff(Profile, Profile, #{normalise => words})),
    ?assertError({bad_option, metric, _},
                 emberl_profile:diff(Profile, Profile, #{metric => words})).

%% What a process waited for and the binaries it made are columns, and can be sorted by.
waiting_and_binaries_test() ->
    Options = #{modules => [emberl_work]},
    Waited = emberl_test:profile({emberl_work, wait_between, [20]}, Options),
    Made = emberl_test:in_process(
             fun() -> emberl_test:profile({emberl_work, binaries, [8000000]}, Options) end),
    ?assertMatch([#{mfa := {_, wait_for, _}} | _], emberl_profile:top(Waited, #{sort => waiting})),
    ?assertMatch([#{mfa := {_, large_binary, _}} | _],
                 emberl_profile:top(Made, #{sort => binaries})),
    Heads = fun(Profile) ->
                    {ok, Parsed} = emberl_options:top(#{}),
                    Text =
                        unicode:characters_to_list(emberl_report:functions(Profile, Parsed, #{})),
                    [Head] = [Line || "calls" ++ Line <- string:lexemes(Text, "\n")],
                    string:lexemes(Head, " ")
            end,
    ?assert(lists:member("waiting", Heads(Waited))),
    ?assertNot(lists:member("binaries", Heads(Waited))),
    ?assert(lists:member("binaries", Heads(Made))),
    Diff = emberl_profile:diff(Made, Made),
    ?assertMatch([_ | _], emberl_profile:top(Diff, #{sort => binaries})),
    Folded = iolist_to_binary(emberl_profile:format(Made, brendan_gregg, #{metric => binaries})),
    ?assertMatch({_, _}, binary:match(Folded, <<"emberl_work:large_binary/">>)).
