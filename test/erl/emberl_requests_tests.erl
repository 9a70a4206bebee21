%% SPDX-License-Identifier: Apache-2.0
%% Sampling of calls: each captured one counts for as many as there were, and nothing is left
%% behind.
-module(emberl_requests_tests).

-include_lib("eunit/include/eunit.hrl").

-export([request/1, slow/0, fast/0, unit/1, deep/1, raising/1]).

-import(emberl_test, [wait_until/1]).

-define(FAST, #{budget => 0.5, min_interval => 1}).
-define(REQUEST, {?MODULE, request, 1}).

%% ---- what is sampled ----

%% One in ten is slow, for a hundred units of work.
request(N) when N rem 10 =:= 0 -> ?MODULE:slow();
request(_N) -> ?MODULE:fast().

slow() -> [?MODULE:unit(N) || N <- lists:seq(1, 100)].
fast() -> [?MODULE:unit(1)].

unit(N) -> N * N.

deep(0) -> 0;
deep(N) -> 1 + ?MODULE:deep(N - 1).

raising(N) when N rem 2 =:= 0 -> error(even);
raising(N) -> N.

%% Calls it until it is stopped, and counts how often.
caller(Function, Counter) ->
    spawn_link(fun() -> call(Function, Counter, 1) end).

call(Function, Counter, N) ->
    try Function(N) catch error:even -> ok end,
    counters:add(Counter, 1, 1),
    N rem 20 =:= 0 andalso receive after 1 -> ok end,
    call(Function, Counter, N + 1).

sampled(Target, Options, Function, Enough) ->
    _ = emberl:stop(emberl_sampler), % of a test that has failed
    Counter = counters:new(1, []),
    Caller = caller(Function, Counter),
    {ok, Sampler} = emberl:sample(maps:merge(?FAST, Options#{targets => [Target]})),
    wait_until(fun() -> Enough(request_status(Target, Sampler)) end),
    ok = emberl:pause(Sampler),
    Status = request_status(Target, Sampler),
    Profile = emberl:snapshot(Sampler),
    ok = emberl:stop(Sampler),
    unlink(Caller),
    exit(Caller, kill),
    {Status, Profile, counters:get(Counter, 1)}.

request_status(Target, Sampler) ->
    #{requests := #{Target := Status}} = emberl:status(Sampler),
    Status.

captured(Least) -> fun(#{captured := Captured}) -> Captured >= Least end.

calls(MFA, Profile) ->
    lists:sum([Calls || #{mfa := Function, calls := Calls} <- emberl_profile:functions(Profile),
                        Function =:= MFA]).

cases(Cases) ->
    {setup, fun() -> emberl:apply(fun() -> ok end, #{return => profile}) end,
     [{Name, {timeout, 60, Fun}} || {Name, Fun} <- Cases]}.

%% ---- options ----

bad_options_test_() ->
    [?_assertMatch({error, {bad_option, Key, _}}, emberl:sample(Options))
     || {Key, Options} <- [{every, #{every => 10}}, {every, #{every => 0, targets => [?REQUEST]}},
                           {targets, #{targets => []}}, {targets, #{targets => ?REQUEST}},
                           {targets, #{targets => [{?MODULE, request, 7}]}},
                           {targets, #{targets => [{no_such_module, request, 1}]}},
                           {targets, #{targets => [{emberl, sample, 1}]}},
                           {targets, #{targets => [request | improper]}},
                           {targets, #{targets => lists:duplicate(17, ?REQUEST)}},
                           {processes, #{targets => [?REQUEST], processes => [self()]}},
                           {window, #{window => 51}},
                           {window, #{window => 60001, targets => [?REQUEST]}}]].

%% ---- numbers ----

numbers_test_() ->
    cases([{"shares", fun shares/0}, {"nested", fun nested/0}, {"raising", fun raises/0},
           {"no budget", fun rests/0}, {"slices", fun slices/0},
           {"pause", fun counts_after_a_pause/0}]).

%% Shares are those of all calls, though few were captured.
shares() ->
    {#{calls := Calls, captured := Captured, probability := P}, Profile, Called} =
        sampled(?REQUEST, #{every => 10}, fun ?MODULE:request/1, captured(150)),
    ?assert(Calls =< Called),
    ?assert(P =< 0.11, P),
    #{sampled := #{windows := Captured, seen := Captured, present := Present}} =
        emberl_profile:info(Profile),
    ?assert(Present =< Calls),
    Requests = calls(?REQUEST, Profile),
    ?assert(abs(Requests - Present) =< Captured, {Requests, Present}), % they are rounded
    Slow = calls({?MODULE, slow, 0}, Profile) / Requests,
    ?assert(Slow > 0.03 andalso Slow < 0.25, Slow),
    Units = calls({?MODULE, unit, 1}, Profile) / Requests, % 10.9
    ?assert(Units > 4 andalso Units < 25, Units).

%% Each call is counted, also those within a captured one.
nested() ->
    Target = {?MODULE, deep, 1},
    {#{calls := Calls}, Profile, Called} =
        sampled(Target, #{every => 50}, fun(_) -> ?MODULE:deep(9) end, captured(20)),
    ?assert(Calls > 5 * Called),
    #{sampled := #{present := Present, windows := Captured}} = emberl_profile:info(Profile),
    ?assert(abs(calls(Target, Profile) - Present) =< 10 * Captured).

raises() ->
    Target = {?MODULE, raising, 1},
    {#{calls := Calls, captured := Captured}, Profile, Called} =
        sampled(Target, #{every => 10}, fun ?MODULE:raising/1, captured(30)),
    ?assert(Captured >= 30 andalso Calls =< Called),
    ?assertMatch(#{outcome := raised, complete := _}, emberl_profile:info(Profile)).

%% All calls are asked for; there is budget for few.
rests() ->
    {#{probability := P, captured := Captured}, Profile, _Called} =
        sampled(?REQUEST, #{every => 1, budget => 0.02}, fun ?MODULE:request/1,
                fun(#{captured := C, calls := Calls}) -> C > 0 andalso Calls > 2000 end),
    ?assert(P < 1, P),
    #{sampled := #{present := Present}} = emberl_profile:info(Profile),
    ?assert(Present >= Captured).

slices() ->
    emberl_test:with_directory(fun(Directory) ->
        {#{captured := Captured}, _, _} =
            sampled_in(Directory, #{every => 10, slice => 200}, fun ?MODULE:request/1,
                       captured(40)),
        {ok, Profile} = emberl:query(Directory, "-1d", now),
        ?assertMatch(#{sampled := #{windows := Captured}}, emberl_profile:info(Profile)),
        ?assert(calls({?MODULE, fast, 0}, Profile) > 0)
    end).

%% There is no snapshot of what is stored.
sampled_in(Directory, Options, Function, Enough) ->
    Counter = counters:new(1, []),
    Caller = caller(Function, Counter),
    {ok, Sampler} =
        emberl:sample(maps:merge(?FAST, Options#{targets => [?REQUEST], store => Directory})),
    wait_until(fun() -> Enough(request_status(?REQUEST, Sampler)) end),
    ok = emberl:pause(Sampler),
    Status = request_status(?REQUEST, Sampler),
    ok = emberl:stop(Sampler),
    unlink(Caller),
    exit(Caller, kill),
    {Status, none, counters:get(Counter, 1)}.

counts_after_a_pause() ->
    Caller = caller(fun ?MODULE:request/1, counters:new(1, [])),
    {ok, Sampler} = emberl:sample(maps:merge(?FAST, #{targets => [?REQUEST], every => 10})),
    wait_until(fun() -> (captured(10))(request_status(?REQUEST, Sampler)) end),
    ok = emberl:pause(Sampler),
    #{calls := Calls, captured := Captured} = request_status(?REQUEST, Sampler),
    receive after 200 -> ok end,
    ?assertMatch(#{calls := Calls}, request_status(?REQUEST, Sampler)),
    ok = emberl:resume(Sampler),
    wait_until(fun() -> (captured(Captured + 10))(request_status(?REQUEST, Sampler)) end),
    ok = emberl:stop(Sampler),
    unlink(Caller),
    exit(Caller, kill).

%% ---- nothing is left behind ----

cleanup_test_() ->
    cases([{Name, fun() -> nothing_left(End) end}
           || {Name, End} <- [{"stopped", fun emberl:stop/1},
                              {"paused",
                               fun(Sampler) -> emberl:pause(Sampler), emberl:stop(Sampler) end},
                              {"all stopped",
                               fun(Sampler) -> emberl:stop(), emberl:stop(Sampler) end},
                              {"sampler killed", fun sampler_killed/1},
                              {"control killed", fun control_killed/1},
                              {"all killed", fun all_killed/1},
                              {"application stopped",
                               fun(_) ->
                                       application:stop(emberl),
                                       application:ensure_all_started(emberl)
                               end}]]).

nothing_left(End) ->
    Caller = caller(fun ?MODULE:request/1, counters:new(1, [])),
    Before = state(),
    [begin
         {ok, Sampler} = emberl:sample(maps:merge(?FAST, #{targets => [?REQUEST], every => 10})),
         wait_until(fun() -> (captured(3))(request_status(?REQUEST, Sampler)) end),
         End(Sampler)
     end || _ <- [1, 2]],
    wait_until(fun() -> state() =:= Before end),
    ?assertEqual(Before, state()),
    unlink(Caller),
    exit(Caller, kill),
    ?assertEqual({ok, {1, 1}}, emberl_test:works()).

state() ->
    {emberl_cleanup_tests:state(), whereis(emberl_sampler), is_pid(whereis(emberl_control))}.

%% Its supervisor starts another.
sampler_killed(Sampler) ->
    exit(Sampler, kill),
    wait_until(fun() -> not lists:member(whereis(emberl_sampler), [undefined, Sampler]) end),
    ok = emberl:stop(emberl_sampler).

control_killed(Sampler) ->
    #{captured := Captured} = request_status(?REQUEST, Sampler),
    exit(whereis(emberl_control), kill),
    wait_until(fun() -> (captured(Captured + 3))(request_status(?REQUEST, Sampler)) end),
    ok = emberl:stop(Sampler).

all_killed(_Sampler) ->
    Pids = [whereis(Name) || Name <- [emberl_control, emberl_sampler]],
    [exit(Pid, kill) || Pid <- Pids],
    [emberl_test:wait_dead(Pid) || Pid <- Pids],
    wait_until(fun() -> is_pid(whereis(emberl_control)) end),
    wait_until(fun() -> emberl:stop(emberl_sampler) =:= ok end).
