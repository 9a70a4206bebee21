%% SPDX-License-Identifier: Apache-2.0
%% @private
%% Runs a function, or waits, and tallies what happens: by the VM's counters or by the
%% tracer, whichever can do what is asked at less cost.
%%
%% The function has a process of its own, which waits until all is set, and which a guard
%% kills when the caller dies.
-module(emberl_adhoc).

-export([profile/2, record/2]).

-type options() :: emberl_tally_options:profile().

-define(RECORD, <<"record">>).

-spec profile(emberl:applied(), map() | [term()]) -> term().
profile(Target, Given) ->
    Call = accepted(emberl_options:applied(Target)),
    Options = accepted(emberl_tally_options:profile(Given)),
    {Engine, Measures} = accepted(plan(Options)),
    accepted(sorted(Options, Measures)),
    Tally = case Engine of
                tracer -> traced(Call, Measures, Options);
                counters -> counted(Call, Measures, Options)
            end,
    report(Tally, Options),
    result(maps:get(outcome, emberl_tally:info(Tally)), Tally, Options).

-spec record(pos_integer(), map() | [term()]) -> ok | emberl_tally:tally() | emberl:result().
record(Given, GivenOptions) ->
    Milliseconds = accepted(emberl_tally_options:milliseconds(Given)),
    {Options, ForProfile, Window} = accepted(emberl_tally_options:record(GivenOptions)),
    {_, Planned} = Plan = accepted(record_plan(Options, maps:keys(ForProfile))),
    accepted(sorted(Options, Planned)),
    case Plan of
        {tracer, Measures} when is_map_key(return, ForProfile) ->
            accepted(emberl_output:check(Window)),
            {Outcome, _} = recorded(Milliseconds, Measures, Options, Window),
            [Result] = emberl_output:results([{profile_of(Outcome), {ok, ok}}], ?RECORD, Window),
            accepted_result(Result);
        {tracer, Measures} ->
            {_, Tally} = recorded(Milliseconds, Measures, Options, Window),
            told(Tally, Options);
        {counters, Measures} ->
            told(counted_for(Milliseconds, Measures, Options), Options)
    end.

%% Whether there will be the column that tables are sorted by.
sorted(#{report := {_, Sort}}, Measures) -> emberl_tally_options:sort_by(Sort, Measures);
sorted(_Options, _Measures) -> ok.

accepted_result({error, Reason}) -> erlang:error(Reason);
accepted_result(Result) -> Result.

told(Tally, Options) ->
    report(Tally, Options),
    case Options of
        #{report := return} -> Tally;
        #{} -> ok
    end.

counted_for(Milliseconds, Measures, Options) ->
    with_server(Measures, fun(Server) ->
                                  set(Server, Options),
                                  receive after Milliseconds -> ok end,
                                  finished(Server, ?RECORD, none, Measures)
                          end).

accepted(ok) -> ok;
accepted({ok, Value}) -> Value;
accepted({error, Reason}) -> erlang:error(Reason).

%% ---- which engine ----

-spec plan(options()) ->
          {ok, {emberl_tally:engine(), [emberl_tally:measure()]}} |
          {error, emberl_options:refusal()}.
plan(#{engine := counters} = Options) ->
    with_engine(counters, counter_plan(Options));
plan(#{engine := tracer} = Options) ->
    with_engine(tracer, tracer_plan(Options));
plan(#{stacks := true} = Options) ->
    with_engine(tracer, tracer_plan(Options));
plan(#{type := Type} = Options) ->
    Cheap = Type =/= all andalso lists:member(Type, emberl_counters:supported()),
    case not Cheap andalso tracer_plan(Options) of
        {ok, Measures} -> {ok, {tracer, Measures}};
        _ -> with_engine(counters, counter_plan(Options))
    end.

%% For a while: by the tracer, unless the VM's counters were asked for or only they can.
record_plan(#{engine := counters} = Options, []) ->
    with_engine(counters, counter_plan(Options));
record_plan(#{engine := Engine, stacks := Stacks} = Options, ForProfile) ->
    Asked = Engine =:= tracer orelse Stacks =:= true orelse ForProfile =/= [],
    case window_plan(Options) of
        {ok, Measures} when Asked; Stacks =:= auto -> {ok, {tracer, Measures}};
        {error, Refusal} when Asked -> {error, Refusal};
        _ -> with_engine(counters, counter_plan(Options))
    end.

window_plan(#{engine := counters}) -> refused(engine, "counters have no stacks, nor files");
window_plan(#{stacks := false, engine := auto}) ->
    refused(stacks, "files and profiles are of stacks");
window_plan(#{rootset := Rootset}) when Rootset =:= all; Rootset =:= new ->
    refused(rootset,
            "the tracer records processes that there are: existing, or some of them; others take "
            "engine => counters");
window_plan(Options) -> tracer_plan(Options#{rootset := []}).

with_engine(Engine, {ok, Measures}) -> {ok, {Engine, Measures}};
with_engine(_Engine, {error, Refusal}) -> {error, Refusal}.

counter_plan(#{stacks := true}) -> refused(stacks, "counters have no stacks");
counter_plan(#{type := all}) -> {ok, emberl_counters:supported()};
counter_plan(#{type := Type}) ->
    case lists:member(Type, emberl_counters:supported()) of
        true -> {ok, [Type]};
        false ->
            refused(type,
                    "the VM counts words from OTP 26 on; the tracer does here too, where it can "
                    "do the rest: no rootset, and patterns of whole modules")
    end.

tracer_plan(#{rootset := Rootset}) when Rootset =/= [] ->
    refused(rootset,
            "the tracer follows the function's own processes; others take engine => counters");
tracer_plan(#{pattern := Patterns, type := Type}) ->
    case [Pattern || {_, Function, _} = Pattern <- Patterns, Function =/= '_'] of
        [] -> {ok, measures(Type)};
        _ -> refused(pattern, "the tracer takes whole modules; functions take engine => counters")
    end.

measures(all) -> [call_count, call_time, call_memory];
measures(Type) -> [Type].

refused(Key, Text) ->
    {error, emberl_options:refusal(bad_option, Key, Text)}.

%% ---- by the VM's counters ----

counted(Call, Measures, #{timeout := Timeout} = Options) ->
    with_server(Measures,
                fun(Server) ->
                        set(Server, Options),
                        Worker = emberl_worker:start(Call, whole(Measures, Server)),
                        follow(Server, Worker, Options),
                        Outcome = emberl_worker:run(Worker, Timeout),
                        Text = emberl_call:text(Call),
                        labelled(Worker, Text, finished(Server, Text, Outcome, Measures))
                end).

%% The function's process is dead by now.
labelled(Worker, Text, Tally) ->
    emberl_tally:label(Tally, emberl_worker:pid(Worker), Text).

%% The server ends with the caller, whatever happens to that.
with_server(Measures, Work) ->
    Server = accepted(emberl_server:start_adhoc(Measures, self())),
    try Work(Server)
    after stopped(Server)
    end.

%% emberl:stop/0 stops it too.
stopped(Server) ->
    try emberl_server:stop(Server)
    catch exit:_ -> ok
    end.

set(Server, #{pattern := Patterns, rootset := Rootset, set_on_spawn := Spawned}) ->
    [accepted(counting(emberl_server:set_pattern(Server, M, F, A))) || {M, F, A} <- Patterns],
    Rootset =/= [] andalso emberl_server:enable_trace(Server, Rootset, #{set_on_spawn => Spawned}).

counting(Count) when is_integer(Count) -> ok;
counting({error, Reason}) -> {error, Reason}.

follow(Server, Worker, #{set_on_spawn := Spawned}) ->
    emberl_server:enable_trace(Server, emberl_worker:pid(Worker), #{set_on_spawn => Spawned}).

%% Calls are counted of all processes, so from the very start to the very end.
whole([call_count], Server) ->
    Counters = emberl_server:counters(Server),
    {fun() -> unless_stopped(fun() -> emberl_counters:restart(Counters) end) end,
     fun() -> unless_stopped(fun() -> emberl_counters:pause(Counters, {'_', '_', '_'}) end) end};
whole(_Measures, _Server) ->
    {fun() -> ok end, fun() -> ok end}.

%% What the function gives must not be lost.
unless_stopped(Do) ->
    try Do()
    catch _:_ -> ok
    end.

finished(Server, Target, Outcome, Measures) ->
    try
        _ = emberl_server:pause(Server),
        emberl_tally:told(emberl_server:collect(Server), #{target => Target, outcome => Outcome})
    catch
        exit:_ ->
            empty_tally(counters, Measures, Target, Outcome,
                        <<"emberl was stopped meanwhile: what was counted is lost">>)
    end.

%% ---- by the tracer ----

traced(Call, Measures, #{timeout := Timeout} = Options) ->
    Text = emberl_call:text(Call),
    emberl_calibrate:ensure(),
    Worker = emberl_worker:start(Call),
    Pid = emberl_worker:pid(Worker),
    case emberl_control:start_capture(request(Pid, Text, Options)) of
        {ok, Capture} ->
            Outcome = emberl_worker:run(Worker, Timeout),
            labelled(Worker, Text,
                     traced_tally(emberl_control:finish(Capture), Text, Outcome, Measures,
                                  Options));
        {error, Reason} ->
            exit(Pid, kill),
            erlang:error(Reason)
    end.

request(Pid, Text, #{pattern := Patterns, set_on_spawn := Spawned}) ->
    {ok, Options} = emberl_options:parse(apply, #{return => profile, spawned => Spawned}),
    emberl_call:request(Pid, Text, Options#{modules := modules(Patterns)}).

modules(Patterns) ->
    case lists:usort([Module || {Module, _, _} <- Patterns]) of
        ['_' | _] -> all;
        Named -> Named
    end.

%% What there is when the time is over, and its tally.
recorded(Milliseconds, Measures, #{rootset := Rootset} = Options, Window) ->
    emberl_calibrate:ensure(),
    Request = #{processes => recorded_processes(Rootset), duration => Milliseconds,
                target => ?RECORD, options => window_options(Options, Window)},
    Ref = accepted(emberl_control:start_window(Request)),
    Outcome = emberl_control:await(Ref, infinity),
    {Outcome, traced_tally(Outcome, ?RECORD, none, Measures, Options#{stacks := true})}.

%% Who waits for it would show that alone.
recorded_processes(existing) -> processes() -- [self()];
recorded_processes(Rootset) -> emberl_process:chosen(Rootset).

window_options(#{pattern := [{'_', '_', '_'}], set_on_spawn := Spawned},
               #{spawned := Children} = Window) ->
    Window#{spawned := Spawned andalso Children};
window_options(#{pattern := Patterns} = Options, Window) ->
    window_options(Options#{pattern := [{'_', '_', '_'}]}, Window#{modules := modules(Patterns)}).

profile_of({_Why, [{Profile, _} | _], _Request}) -> Profile;
profile_of({_Why, [], _Request}) ->
    {error, emberl_options:refusal(not_traced, ?RECORD, "nothing was recorded")};
profile_of({error, Reason}) -> {error, Reason}.

traced_tally({_Why, [{Profile, _} | _], Request}, Text, Outcome, Measures, #{stacks := Stacks})
  when not is_tuple(Profile) ->
    Info = emberl_profile:info(Profile),
    Processes = emberl_profile:processes(Profile),
    emberl_tally:new(#{info => #{engine => tracer, measures => Measures, target => Text,
                                 outcome => Outcome,
                                 otp_release => maps:get(otp_release, Info),
                                 start_us => maps:get(start_us, Info),
                                 duration_ns => maps:get(duration_ns, Info),
                                 notes => notes(Info, Outcome) ++ count_notes(Request)},
                       rows => rows(emberl_profile:stacks(Profile), Measures),
                       processes => maps:from_list([{Pid, maps:with([name, label], Process)}
                                                    || #{pid := Pid} = Process <- Processes]),
                       profile => case Stacks of true -> Profile; false -> none end});
%% What the function gave counts more than what could not be measured.
traced_tally(Nothing, Text, Outcome, Measures, _Options) ->
    empty_tally(tracer, Measures, Text, Outcome, why_nothing(Nothing)).

why_nothing({error, {_Tag, _Term, Text}}) -> <<"nothing was recorded: ", Text/binary>>;
why_nothing(_Outcome) -> <<"nothing was recorded">>.

empty_tally(Engine, Measures, Target, Outcome, Note) ->
    emberl_tally:new(#{info => #{engine => Engine, measures => Measures, target => Target,
                                 outcome => Outcome,
                                 otp_release => list_to_binary(erlang:system_info(otp_release)),
                                 start_us => erlang:system_time(microsecond), duration_ns => 0,
                                 notes => [Note]},
                       rows => [], processes => #{}, profile => none}).

%% What stands on a process itself is no function's.
rows(Stacks, Measures) ->
    Sums = lists:foldl(fun add_stack/2, #{}, Stacks),
    [row(Key, Sum, Measures) || {Key, Sum} <- maps:to_list(Sums), Sum =/= {0, 0, 0}].

add_stack(#{stack := []}, Sums) ->
    Sums;
add_stack(#{process := Pid, stack := Stack, calls := Calls, own_ns := Own, gc_ns := Gc,
            words := Words}, Sums) ->
    Key = {Pid, lists:last(Stack)},
    {Calls0, Time0, Words0} = maps:get(Key, Sums, {0, 0, 0}),
    Sums#{Key => {Calls0 + Calls, Time0 + Own + Gc, Words0 + Words}}.

row({Pid, MFA}, {Calls, Time, Words}, Measures) ->
    maps:merge(#{process => Pid, mfa => MFA, calls => Calls},
               maps:from_list([{time_ns, Time} || lists:member(call_time, Measures)]
                              ++ [{words, Words} || lists:member(call_memory, Measures)])).

notes(#{lost := Lost, fallbacks := Fallbacks, depth_cut := Cut} = Info, Outcome) ->
    [unicode:characters_to_binary(Text)
     || Text <- [["recording was cut by: ", atom_to_list(maps:get(cut_by, Info))]
                 || maps:get(cut_by, Info, none) =/= none, Outcome =/= timeout]
            ++ [[integer_to_list(Lost), " events were lost"] || Lost > 0]
            ++ [[integer_to_list(Cut), " calls were too deep, see [deeper]"] || Cut > 0]
            ++ [[atom_to_list(Fallback), " is an estimate"]
                || Fallback <- Fallbacks, is_in_tables(Fallback)]
            ++ ["times are doubtful, see emberl_profile:info/1"
                || maps:get(doubtful, Info, false)]].

%% Of a window.
count_notes(#{counts := #{refused := Refused, late := Late}}) ->
    [iolist_to_binary([integer_to_list(Count), Text])
     || {Count, Text} <- [{Refused, " processes are traced by somebody else"},
                          {Late, " processes could not be traced, or not from the beginning on"}],
        Count > 0];
count_notes(_Request) ->
    [].

%% Neither waiting nor binaries are.
is_in_tables(Fallback) ->
    not lists:member(Fallback, [waiting, binaries]).

%% ---- what the caller gets ----

report(_Tally, #{report := return}) ->
    ok;
report(Tally, #{report := Report, device := Device}) ->
    {By, Sort} = case Report of
                     {_, _} -> Report;
                     _ -> {Report, percent}
                 end,
    try
        emberl_tally:format(Device, emberl_tally:inspect(Tally, By, Sort)),
        io:put_chars(Device, [$\n, emberl_tally_report:remarks(emberl_tally:info(Tally))])
    catch
        error:Reason -> logger:error("emberl: cannot print to ~tp: ~tp", [Device, Reason])
    end.

result(Outcome, Tally, #{report := return}) ->
    {caught(Outcome), Tally};
result({ok, Value}, _Tally, _Options) -> Value;
result({Class, Reason, Stack}, _Tally, _Options) -> erlang:raise(Class, Reason, Stack);
result({killed, Reason}, _Tally, _Options) -> exit(Reason);
result(timeout, _Tally, #{timeout := Timeout}) -> erlang:error({timeout, Timeout}).

caught({ok, Value}) -> Value;
caught({error, Reason, Stack}) -> {'EXIT', {Reason, Stack}};
caught({exit, Reason, _Stack}) -> {'EXIT', Reason};
caught({throw, Value, Stack}) -> {'EXIT', {{nocatch, Value}, Stack}};
caught({killed, Reason}) -> {'EXIT', Reason};
caught(timeout) -> {'EXIT', timeout}.
