%% SPDX-License-Identifier: Apache-2.0
%% Memory that runs out in the library while a VM uses it: each of its allocations, and of
%% zstd's, and each start of a thread fails in turn, alone or with all that follow. What was
%% asked for is there or an error tells, our server lives, and nothing is left behind, no
%% block of memory either. See emberl_failing.
-module(emberl_memory_tests).

-include_lib("eunit/include/eunit.hrl").

-export([run/2, settled/0]).

-import(emberl_test, [wait_until/1]).

%% How many of a scenario's allocations fail, spread over all; all of them in long runs.
-define(ROUNDS, 12).

memory_test_() ->
    [{lists:concat([Scenario, case Alone of true -> " alone"; false -> "" end]),
      {timeout, 120, fun() -> survives(Scenario, Alone) end}}
     || can_fail(), Scenario <- scenarios(), Alone <- [true, false]].

scenarios() ->
    [applied, captured, lazily_captured, merged, window, timeline, written, read, shown,
     combined, sampled, owner_dies].

%% See emberl_failing: with the GNU library, and where no sanitizer stands in its place.
can_fail() ->
    lists:suffix("-linux-gnu", erlang:system_info(system_architecture))
        andalso os:getenv("LD_PRELOAD") =:= false.

survives(Scenario, Alone) ->
    emberl_test:node([], [{"LD_PRELOAD", emberl_failing:library()}], fun(Peer) ->
        ?assertMatch(Times when Times > 0,
                     peer:call(Peer, ?MODULE, run, [Scenario, Alone], infinity))
    end).

%% ---- what runs over there ----

%% How many allocations failed.
run(Scenario, Alone) ->
    logger:set_primary_config(level, none),
    {module, _} = code:ensure_loaded(emberl_work),
    {ok, {1, 1}} = emberl_test:works(),
    Task = prepare(Scenario),
    emberl_failing:succeed(),
    once(Task),
    Count = emberl_failing:succeed(),
    wait_until(fun() -> settled(), emberl_failing:live() =:= 0 end),
    Before = settled(),
    Step = max(1, Count div emberl_test:rounds(?ROUNDS)),
    length([failed(N, Alone, Task, Before) || N <- lists:seq(rand:uniform(Step), Count, Step)]).

failed(N, Alone, Task, Before) ->
    Control = whereis(emberl_control),
    emberl_failing:fail(N, Alone),
    once(Task),
    emberl_failing:succeed(),
    {N, Control} = {N, whereis(emberl_control)},
    try wait_until(fun() -> settled() =:= Before end)
    catch error:_ -> error({left, N, Before, settled()})
    end,
    {ok, {1, 1}} = emberl_test:works().

%% In a process of its own, so that what it refers to goes with it.
once(Task) ->
    emberl_test:in_process(fun() -> answered(Task) end).

answered(Task) ->
    try Task() of
        {error, Reason} -> told(Reason);
        _ -> ok
    catch
        error:Reason -> told(Reason)
    end.

told({_Tag, _Term, Text}) when is_binary(Text) -> ok;
told(out_of_memory) -> ok;
told(enomem) -> ok.

settled() ->
    is_pid(whereis(emberl_control)) andalso erlang:garbage_collect(whereis(emberl_control)),
    (emberl_cleanup_tests:state())#{live => emberl_failing:live()}.

small() -> #{return => profile, modules => [emberl_work]}.

profile() -> emberl:apply({emberl_work, pairs, [20]}, small()).

%% Done beforehand is what is not to fail.
prepare(written) ->
    Profile = profile(),
    fun() -> emberl_profile:to_binary(Profile) end;
prepare(read) ->
    {ok, Bytes} = emberl_profile:to_binary(profile()),
    fun() -> emberl_profile:from_binary(Bytes) end;
prepare(shown) ->
    Profile = profile(),
    fun() ->
            [answered(fun() -> emberl_profile:format(Profile, View) end)
             || {View, _} <- emberl_nif:views()]
    end;
prepare(combined) ->
    [One, Other] = [profile(), profile()],
    fun() -> [answered(Task) || Task <- combinations(One, Other)] end;
prepare(sampled) ->
    Profile = profile(),
    Weights = [1.0 || _ <- emberl_profile:processes(Profile)],
    fun() ->
            Sum = emberl_nif:profile_add_window(none, Profile, Weights, {1, 2, 3, 4, 5, 6, 7}, 10),
            emberl_nif:profile_settle(emberl_nif:profile_add_window(Sum, Profile, Weights,
                                                                    {1, 2, 3, 4, 5, 6, 7}, 10))
    end;
prepare(Live) ->
    fun() -> live(Live) end.

combinations(One, Other) ->
    [fun() -> emberl_profile:merge([One, Other]) end,
     fun() -> emberl_profile:diff(One, Other) end,
     fun() -> emberl_profile:filter(One, #{modules => [emberl_work]}) end,
     fun() -> emberl_profile:functions(One) end,
     fun() -> emberl_profile:stacks(One) end,
     fun() -> emberl_profile:top(One, 3) end,
     fun() -> emberl_nif:mfa_text(lists, seq, 2) end,
     fun() -> emberl_nif:atom_text('an atom') end].

live(applied) ->
    profile();
live(captured) ->
    captured(small());
live(lazily_captured) ->
    captured((small())#{arm => lazy});
live(merged) ->
    captured((small())#{merge => true});
live(timeline) ->
    emberl:apply({emberl_work, pairs, [20]}, (small())#{timeline => true});
live(window) ->
    emberl:record(10, small());
live(owner_dies) ->
    {Pid, Monitor} = spawn_monitor(fun() ->
        answered(fun() -> emberl:capture({emberl_work, forever, 0}, 1, small()) end)
    end),
    timer:sleep(20),
    exit(Pid, kill),
    receive {'DOWN', Monitor, process, Pid, _} -> emberl:stop() end.

captured(Options) ->
    Busy = emberl_test:busy(fun() -> emberl_work:pair(1) end),
    Result = emberl:capture({emberl_work, pair, 1}, 3, Options#{timeout => 300}),
    emberl_test:stop(Busy),
    case Result of
        {ok, Profiles} -> [checked(Profile) || Profile <- Profiles];
        {incomplete, _, _} -> ok;
        {error, _} -> Result
    end.

checked({error, Reason}) -> told(Reason);
checked(Profile) -> emberl_profile:info(Profile).
