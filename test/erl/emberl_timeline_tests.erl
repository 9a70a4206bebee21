%% SPDX-License-Identifier: Apache-2.0
%% The option `timeline': what happened when, and that it adds up.
-module(emberl_timeline_tests).

-include_lib("eunit/include/eunit.hrl").

-define(OFF_CPU, [<<"[waiting]">>, <<"[preempted]">>]).

work() ->
    {Pid, Monitor} = spawn_monitor(fun() ->
        timer:sleep(3),
        lists:sort([X rem 7 || X <- lists:seq(1, 2000)])
    end),
    receive {'DOWN', Monitor, process, Pid, _} -> ok end,
    lists:sum(lists:map(fun(X) -> X * X end, lists:seq(1, 300))).

profile(Options) ->
    emberl:apply(fun work/0, maps:merge(#{return => profile, timeline => true}, Options)).

timeline(Profile) ->
    maps:get(timeline, emberl_profile:info(Profile)).

none_unless_it_is_asked_for_test() ->
    Profile = profile(#{timeline => false}),
    ?assertEqual(none, timeline(Profile)),
    ?assertEqual([], evented(Profile)),
    ?assertError({bad_option, timeline, _}, emberl:apply(fun work/0, #{timeline => 1})).

%% Ends of spans are rounded to nanoseconds.
sums_are_the_profiles_test() ->
    Profile = profile(#{compensate => false}),
    ?assertEqual(complete, timeline(Profile)),
    Stacks = emberl_profile:stacks(Profile),
    Sum = fun(Key) -> lists:sum([maps:get(Key, S) || S <- Stacks]) end,
    Spans = [Span || Process <- evented(Profile), Span <- Process],
    Of = fun(Name) -> lists:sum([Ns || {[Last | _], Ns} <- Spans, Last =:= Name]) end,
    All = lists:sum([Ns || {_, Ns} <- Spans]),
    near(Sum(waiting_ns), Of(<<"[waiting]">>), length(Spans)),
    near(Sum(off_cpu_ns), lists:sum([Of(Name) || Name <- ?OFF_CPU]), length(Spans)),
    near(Sum(gc_ns), Of(<<"[gc]">>), length(Spans)),
    Others = [<<"[gc]">>, <<"[held up]">> | ?OFF_CPU],
    near(Sum(own_ns), All - lists:sum([Of(Name) || Name <- Others]), length(Spans)).

%% Tracing's own cost is in the timeline, which is real time.
compensation_leaves_it_alone_test() ->
    Profile = profile(#{}),
    #{raw_ns := Raw} = emberl_profile:info(Profile),
    Spans = [Span || Process <- evented(Profile), Span <- Process],
    Paused = [<<"[gc]">>, <<"[held up]">> | ?OFF_CPU],
    Running = lists:sum([Ns || {[Last | _], Ns} <- Spans, not lists:member(Last, Paused)]),
    near(Raw, Running, length(Spans)).

a_sleeper_waits_before_it_sorts_test() ->
    [_Caller, Child] = evented(profile(#{})),
    Names = [Name || {[Name | _], _} <- Child],
    Before = lists:takewhile(fun(Name) -> binary:match(Name, <<"lists:">>) =:= nomatch end, Names),
    ?assert(lists:member(<<"[waiting]">>, Before)),
    ?assert(length(Before) < length(Names)).

kept_in_files_test() ->
    Profile = profile(#{}),
    {ok, Binary} = emberl_profile:to_binary(Profile),
    {ok, Loaded} = emberl_profile:from_binary(Binary),
    ?assertEqual(complete, timeline(Loaded)),
    ?assertEqual({ok, Binary}, emberl_profile:to_binary(Loaded)),
    [?assertEqual(emberl_profile:format(Profile, Format), emberl_profile:format(Loaded, Format))
     || Format <- [speedscope, chrome]].

not_merged_test() ->
    Profile = profile(#{}),
    ?assertEqual(none, timeline(emberl_profile:merge([Profile, Profile]))),
    ?assertEqual(none, timeline(emberl_profile:diff(Profile, Profile))).

bounded_by_the_memory_limit_test() ->
    Loop = fun() -> [lists:reverse([N]) || N <- lists:seq(1, 400000)], done end,
    Profile = emberl:apply(Loop, #{return => profile, timeline => true, memory_limit => 1 bsl 20}),
    #{outcome := returned, duration_ns := Duration, timeline := {cut, Ns}} =
        emberl_profile:info(Profile),
    ?assert(Ns > 0 andalso Ns =< Duration),
    Speedscope = iolist_to_binary(emberl_profile:format(Profile, speedscope)),
    ?assertMatch({_, _}, binary:match(Speedscope, <<"of timeline kept">>)).

captures_have_it_too_test() ->
    {module, emberl_work} = code:ensure_loaded(emberl_work),
    {ok, Capture} = emberl:start_capture({emberl_work, pair, 1}, 2,
                                         #{return => profile, timeline => true}),
    emberl_work:pair(1),
    emberl_work:pair(2),
    {ok, Profiles} = emberl:await(Capture, 10000),
    ?assertEqual([complete, complete], [timeline(P) || P <- Profiles]).

%% ---- what speedscope would make of it ----

near(Expected, Found, Slack) ->
    ?assert(abs(Expected - Found) =< Slack, {Expected, Found}).

%% Of each process with a timeline: {stack, leaf first, ns} in the order of time.
evented(Profile) ->
    Text = iolist_to_binary(emberl_profile:format(Profile, speedscope)),
    Frames = list_to_tuple(frames(Text)),
    [spans(Events, Frames) || [Events] <- all(Text, "\"events\":\\[(.*?)\\]")].

frames(Text) ->
    [[List]] = all(Text, "\"frames\":\\[(.*?)\\]},\n"),
    [Name || [Name] <- all(List, "{\"name\":\"(.*?)\"")].

spans(Events, Frames) ->
    Edges = [{Type, element(binary_to_integer(Frame) + 1, Frames), binary_to_integer(At)}
             || [Type, Frame, At] <- all(Events,
                                         "\"type\":\"(.)\",\"frame\":([0-9]+),\"at\":([0-9]+)")],
    spans(Edges, [], 0).

spans([{Type, Name, At} | Edges], Open, Before) ->
    Rest = spans(Edges, open(Type, Name, Open), At),
    case Open =:= [] orelse At =:= Before of
        true -> Rest;
        false -> [{Open, At - Before} | Rest]
    end;
spans([], [], _) ->
    [].

open(<<"O">>, Name, Open) -> [Name | Open];
open(<<"C">>, Name, [Name | Open]) -> Open.

all(Text, Pattern) ->
    case re:run(Text, Pattern, [global, dotall, {capture, all_but_first, binary}]) of
        {match, Found} -> Found;
        nomatch -> []
    end.
