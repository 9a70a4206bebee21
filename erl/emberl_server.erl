%% SPDX-License-Identifier: Apache-2.0
%% @doc Counting on a running system: calls, time and heap words of the functions and
%% processes you choose, for as long as you like, by the VM's own counters.
%%
%% ```
%% 1> {ok, _} = emberl_server:start(#{type => call_memory}).
%% 2> emberl_server:enable_trace({all_children, kernel_sup}).
%% 3> emberl_server:set_pattern('_', '_', '_').
%% 4> Tally = emberl_server:collect().
%% 5> emberl_server:format(emberl_server:inspect(Tally)).
%% 6> emberl_server:stop().
%% '''
%%
%% `type' is `call_count', `call_time', `call_memory' or `all' (default: all of these
%% that the release has; words from OTP 26 on). Calls alone are counted of all
%% processes, whichever are enabled.
%%
%% From OTP 27.1 on each server has a trace session of its own: there may be several, and
%% none disturbs another or any other tracer; but for words, which the VM counts wrongly where
%% two sessions count them of the same functions in the same process. A note in the tally
%% says so. Before that a node has one trace: starting
%% gives `{error, {other_tracer, Who}}' when somebody has it.
%%
%% Code that is loaded anew keeps the numbers it had, but for those of some last moments,
%% and is counted on; a note in the tally tells how long these were.
%%
%% `emberl:stop/0' and stopping the application `emberl' stop all servers.
%%
%% Functions without a server use the one that is registered as `emberl_server': one that
%% was started without `session'.
-module(emberl_server).
-behaviour(gen_server).

-export([start/0, start/1, start_link/0, start_link/1, stop/0, stop/1]).
-export([set_pattern/3, set_pattern/4, clear_pattern/3, clear_pattern/4, get_trace_map/0,
         get_trace_map/1]).
-export([enable_trace/1, enable_trace/2, enable_trace/3, disable_trace/1, disable_trace/2,
         disable_trace/3]).
-export([pause/0, pause/1, continue/0, continue/1, restart/0, restart/1, collect/0, collect/1]).
-export([inspect/1, inspect/3, format/1, format/2]).
-export([start_adhoc/2, counters/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).
-export_type([server/0, start_options/0, rootset/0, trace_options/0, trace_map/0]).

-type server() :: pid() | atom().
-type start_options() :: #{type => all | emberl_tally:measure(), session => atom()}
                       | [{atom(), term()}].
-type process() :: pid() | atom().
-type rootset() :: process() | [process()] | all | new | existing
                 | {children | all_children, process()}.
-type trace_options() :: #{set_on_spawn => boolean()} | [{atom(), term()}].
-type trace_map() :: all | #{module() => [{atom(), arity()}]}.
-type numbers() :: {non_neg_integer(), non_neg_integer() | undefined, integer() | undefined}.
-type counted() :: #{{mfa(), pid() | all} => numbers()}.
-type reading() :: {Us :: integer(), counted()}.

-record(state,
        {counters :: emberl_counters:counters(),
         measures :: [emberl_tally:measure()],
         owner :: reference() | undefined,              % monitor of an ad hoc run's caller
         control :: reference() | undefined,            % monitor; undefined: it will be back
         functions = #{} :: #{module() => [{atom(), arity()}]},
         all = false :: boolean(),                      % those of all modules
         paused = false :: boolean(),
         start_us :: integer(),
         start_ns :: integer(),
         %% Counted before the VM's counters began anew.
         kept = #{} :: counted(),
         readings = [] :: [reading()],                  % of all, the newest first
         loaded :: #{module() => true},
         asked = #{} :: #{module() => reading()},       % where loading begins
         preparing = #{} :: #{pid() => {module(), reading()}},
         prepared = #{} :: #{term() => {module(), reading()}},
         finishing = #{} :: #{pid() => {[term()], integer()}},
         reloaded = [] :: [{module(), LostUs :: non_neg_integer()}]}).

%% Between what the VM's time stamps of trace messages and our own may say.
-define(MARGIN_US, 100).
-define(READ_EVERY_MS, 1000).
-define(KNOWN_AFTER_MS, 50).

%% ---- starting and stopping ----

%% @equiv start(#{})
-spec start() -> {ok, pid()} | {error, term()}.
start() ->
    start(#{}).

%% @doc Starts a server that nothing supervises. With `session => Name' it is not
%% registered, and its pid has to be given to the other functions. Errors: `{bad_option,
%% Key, Text}', `{other_tracer, Who}', `{already_started, Pid}'.
-spec start(start_options()) -> {ok, pid()} | {error, term()}.
start(Given) ->
    start_with(Given, fun gen_server:start/3, fun gen_server:start/4).

%% @equiv start_link(#{})
-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    start_link(#{}).

%% @doc Like {@link start/1}, and links the server to the caller.
-spec start_link(start_options()) -> {ok, pid()} | {error, term()}.
start_link(Given) ->
    start_with(Given, fun gen_server:start_link/3, fun gen_server:start_link/4).

start_with(Given, Unnamed, Named) ->
    case emberl_tally_options:server(Given) of
        {ok, #{session := undefined, type := Type}} ->
            started(Named({local, ?MODULE}, ?MODULE, {measures(Type), none}, []));
        {ok, #{type := Type}} -> started(Unnamed(?MODULE, {measures(Type), none}, []));
        {error, Refusal} -> {error, Refusal}
    end.

started({error, {shutdown, Reason}}) -> {error, Reason};
started(Other) -> Other.

measures(all) -> emberl_counters:supported();
measures(Type) -> [Type].

%% @private
%% Ends with its owner.
-spec start_adhoc([emberl_tally:measure()], pid()) -> {ok, pid()} | {error, term()}.
start_adhoc(Measures, Owner) ->
    started(gen_server:start(?MODULE, {Measures, Owner}, [])).

%% @equiv stop(emberl_server)
-spec stop() -> ok.
stop() ->
    stop(?MODULE).

%% @doc Stops a server and all its counting.
-spec stop(server()) -> ok.
stop(Server) ->
    gen_server:stop(Server).

%% ---- functions ----

%% @equiv set_pattern(emberl_server, Module, Function, Arity)
-spec set_pattern(module() | '_', atom(), arity() | '_') -> non_neg_integer() | {error, term()}.
set_pattern(Module, Function, Arity) ->
    set_pattern(?MODULE, Module, Function, Arity).

%% @doc Counts these functions too; returns how many they are. `_' stands for any, from
%% the right on. A module that is not loaded is loaded; where there is nothing to count
%% the result is `{error, {bad_option, pattern, Text}}'. Three times `_' includes modules
%% that are loaded later.
-spec set_pattern(server(), module() | '_', atom(), arity() | '_') ->
          non_neg_integer() | {error, term()}.
set_pattern(Server, Module, Function, Arity) ->
    case emberl_tally_options:pattern({Module, Function, Arity}) of
        {ok, Pattern} -> gen_server:call(Server, {set_pattern, Pattern}, infinity);
        {error, Refusal} -> {error, Refusal}
    end.

%% @equiv clear_pattern(emberl_server, Module, Function, Arity)
-spec clear_pattern(module() | '_', atom(), arity() | '_') -> non_neg_integer() | {error, term()}.
clear_pattern(Module, Function, Arity) ->
    clear_pattern(?MODULE, Module, Function, Arity).

%% @doc Counts these functions no more and forgets their numbers; returns how many they
%% are, or `{error, {not_traced, Module, Function, Arity}}'.
-spec clear_pattern(server(), module() | '_', atom(), arity() | '_') ->
          non_neg_integer() | {error, term()}.
clear_pattern(Server, Module, Function, Arity) ->
    gen_server:call(Server, {clear_pattern, {Module, Function, Arity}}, infinity).

%% @equiv get_trace_map(emberl_server)
-spec get_trace_map() -> trace_map().
get_trace_map() ->
    get_trace_map(?MODULE).

%% @doc The functions that are counted, by module; `all' when no one is left out.
-spec get_trace_map(server()) -> trace_map().
get_trace_map(Server) ->
    gen_server:call(Server, get_trace_map, infinity).

%% ---- processes ----

%% @equiv enable_trace(Processes, #{})
-spec enable_trace(rootset()) -> non_neg_integer() | {non_neg_integer(), [process()]}.
enable_trace(Processes) ->
    enable_trace(?MODULE, Processes, #{}).

%% @equiv enable_trace(emberl_server, Processes, Options)
-spec enable_trace(rootset(), trace_options()) ->
          non_neg_integer() | {non_neg_integer(), [process()]}.
enable_trace(Processes, Options) ->
    enable_trace(?MODULE, Processes, Options).

%% @doc Counts time and words of these processes: a pid, a registered name, a list of
%% both, `{children, P}' (those P has spawned and that live), `{all_children, P}' (and
%% theirs, and so on), `existing', `new' (those to come) or `all' (both). Processes they
%% spawn are included unless `set_on_spawn => false' is given.
%%
%% Returns how many there were; of a list or of children, `{Count, Failed}' where some
%% are no longer there. One process that is not there is an error. With many processes,
%% `all' and `existing' stop the node for a moment: some 70 ms for 100,000. Fails with
%% `{bad_option, Key, Text}'.
-spec enable_trace(server(), rootset(), trace_options()) ->
          non_neg_integer() | {non_neg_integer(), [process()]}.
enable_trace(Server, Processes, Options) ->
    trace(Server, Processes, true, Options).

%% @equiv disable_trace(Processes, #{})
-spec disable_trace(rootset()) -> non_neg_integer() | {non_neg_integer(), [process()]}.
disable_trace(Processes) ->
    disable_trace(?MODULE, Processes, #{}).

%% @equiv disable_trace(emberl_server, Processes, Options)
-spec disable_trace(rootset(), trace_options()) ->
          non_neg_integer() | {non_neg_integer(), [process()]}.
disable_trace(Processes, Options) ->
    disable_trace(?MODULE, Processes, Options).

%% @doc Counts these processes no more; their numbers remain. See {@link enable_trace/3}.
-spec disable_trace(server(), rootset(), trace_options()) ->
          non_neg_integer() | {non_neg_integer(), [process()]}.
disable_trace(Server, Processes, Options) ->
    trace(Server, Processes, false, Options).

trace(Server, Processes, How, Given) ->
    case emberl_tally_options:tracing(Given) of
        {ok, #{set_on_spawn := Spawned}} ->
            gen_server:call(Server, {trace, chosen(Processes, How), How, Spawned}, infinity);
        {error, Refusal} ->
            erlang:error(Refusal)
    end.

%% Of a list, the server tells which are no longer there.
chosen({Kind, _} = Children, _How) when Kind =:= children; Kind =:= all_children ->
    emberl_process:chosen(accepted(emberl_tally_options:processes(Children)));
chosen(Processes, _How) when length(Processes) >= 0 ->
    [accepted(emberl_tally_options:process(Process)) || Process <- Processes];
chosen(Process, false) when is_pid(Process); is_atom(Process) ->
    accepted(emberl_tally_options:process(Process));
chosen(Process, _How) ->
    case accepted(emberl_tally_options:processes(Process)) of
        [Pid] -> Pid;
        Set -> Set
    end.

accepted({ok, Value}) -> Value;
accepted({error, Refusal}) -> erlang:error(Refusal).

%% ---- numbers ----

%% @equiv pause(emberl_server)
-spec pause() -> ok | not_running.
pause() ->
    pause(?MODULE).

%% @doc Counts nothing until {@link continue/1}; the numbers remain.
-spec pause(server()) -> ok | not_running.
pause(Server) ->
    gen_server:call(Server, pause, infinity).

%% @equiv continue(emberl_server)
-spec continue() -> ok | not_paused.
continue() ->
    continue(?MODULE).

%% @doc Goes on counting after {@link pause/1}.
-spec continue(server()) -> ok | not_paused.
continue(Server) ->
    gen_server:call(Server, continue, infinity).

%% @equiv restart(emberl_server)
-spec restart() -> ok.
restart() ->
    restart(?MODULE).

%% @doc Forgets all numbers and counts from zero on, also when paused.
-spec restart(server()) -> ok.
restart(Server) ->
    gen_server:call(Server, restart, infinity).

%% @equiv collect(emberl_server)
-spec collect() -> emberl_tally:tally().
collect() ->
    collect(?MODULE).

%% @doc The numbers so far; counting goes on. Functions are read one after the other, so
%% numbers of a busy system belong to slightly different moments, unless it is paused.
%%
%% If time or words are counted, the VM stops the node for each function that was called,
%% for as long as all schedulers take to come to rest: some microseconds where it has
%% little to do (on OTP 29 half a millisecond), a millisecond where it is busy.
-spec collect(server()) -> emberl_tally:tally().
collect(Server) ->
    gen_server:call(Server, collect, infinity).

%% @equiv emberl_tally:inspect(Tally)
-spec inspect(emberl_tally:tally()) -> emberl_tally:inspected().
inspect(Tally) ->
    emberl_tally:inspect(Tally).

%% @equiv emberl_tally:inspect(Tally, By, Sort)
-spec inspect(emberl_tally:tally(), process | total, emberl_tally:sort_by()) ->
          emberl_tally:inspected().
inspect(Tally, By, Sort) ->
    emberl_tally:inspect(Tally, By, Sort).

%% @equiv emberl_tally:format(Inspected)
-spec format(emberl_tally:tally() | emberl_tally:inspected() | emberl_tally:section()) -> ok.
format(Inspected) ->
    emberl_tally:format(Inspected).

%% @equiv emberl_tally:format(Device, Inspected)
-spec format(io:device(),
             emberl_tally:tally() | emberl_tally:inspected() | emberl_tally:section()) -> ok.
format(Device, Inspected) ->
    emberl_tally:format(Device, Inspected).

%% @private
-spec counters(server()) -> emberl_counters:counters().
counters(Server) ->
    gen_server:call(Server, counters, infinity).

%% ---- the server ----

%% @private
-spec init({[emberl_tally:measure()], pid() | none}) -> {ok, #state{}} | {stop, {shutdown, term()}}.
init({Measures, Owner}) ->
    process_flag(trap_exit, true),
    process_flag(sensitive, true),
    process_flag(priority, high), % to read counters before new code replaces the old
    case emberl_counters:open(Measures) of
        {ok, Counters} ->
            ok = emberl_counters:watch_loading(Counters),
            {ok, read_later(?READ_EVERY_MS,
                            #state{counters = Counters, measures = Measures,
                                   owner = monitor_owner(Owner),
                                   control = emberl_control:add_server(),
                                   loaded = maps:from_list([{M, true}
                                                            || {M, _} <- code:all_loaded()]),
                                   start_us = erlang:system_time(microsecond),
                                   start_ns = erlang:monotonic_time(nanosecond)})};
        {error, Reason} ->
            {stop, {shutdown, Reason}}
    end.

%% It was killed: there is another soon.
known_later(State) ->
    erlang:send_after(?KNOWN_AFTER_MS, self(), be_known),
    State.

monitor_owner(none) -> undefined;
monitor_owner(Owner) -> erlang:monitor(process, Owner).

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call({set_pattern, Pattern}, _From, State) ->
    set(Pattern, State);
handle_call({clear_pattern, Pattern}, _From, State) ->
    clear(Pattern, State);
handle_call(get_trace_map, _From, #state{all = true} = State) ->
    {reply, all, State};
handle_call(get_trace_map, _From, #state{functions = Functions} = State) ->
    {reply, Functions, State};
handle_call({trace, Processes, How, Spawned}, _From, #state{counters = Counters} = State) ->
    {reply, trace_all(Processes, fun(P) -> emberl_counters:trace(Counters, P, How, Spawned) end),
     State};
handle_call(pause, _From, #state{paused = true} = State) ->
    {reply, not_running, State};
handle_call(pause, _From, State) ->
    {reply, ok, pause_all(State)};
handle_call(continue, _From, #state{paused = false} = State) ->
    {reply, not_paused, State};
handle_call(continue, _From, State) ->
    {reply, ok, start_all(keep_all(State))};
handle_call(restart, _From, State) ->
    {reply, ok, forget_all(start_all(pause_all(State)))};
handle_call(collect, _From, State) ->
    {reply, tally(State), State};
handle_call(counters, _From, #state{counters = Counters} = State) ->
    {reply, Counters, State}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}} | {stop, normal, #state{}}.
handle_cast(stop, State) ->
    {stop, normal, State};
handle_cast(_Message, State) ->
    {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, normal, #state{}}.
handle_info({'DOWN', Monitor, process, _Pid, _Reason}, #state{owner = Monitor} = State) ->
    {stop, normal, State};
handle_info({'DOWN', Monitor, process, _Pid, _Reason}, #state{control = Monitor} = State) ->
    {noreply, known_later(State#state{control = undefined})};
handle_info(be_known, State) ->
    {noreply, State#state{control = emberl_control:add_server()}};
handle_info(read, State) ->
    {noreply, read_now(State)};
handle_info({trace_ts, Pid, call, Call, Time}, State) ->
    {noreply, loading(Pid, Call, Time, State)};
handle_info({trace_ts, Pid, return_from, {_, Function, _}, Result, _Time}, State) ->
    {noreply, loaded(Pid, Function, Result, State)};
handle_info(_Message, State) ->
    {noreply, State}.

%% @private
-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, #state{counters = Counters}) ->
    emberl_counters:close(Counters).

%% ---- which functions ----

%% Counters that are set again begin anew, so what they had is kept.
set(Pattern, State0) ->
    State1 = keep(covered(Pattern, State0), State0),
    Count = emberl_counters:set(State1#state.counters, Pattern),
    State1#state.paused andalso emberl_counters:pause(State1#state.counters, Pattern),
    {reply, Count, added(Pattern, State1)}.

covered({'_', '_', '_'}, State) -> all_functions(State);
covered({Module, _, _} = Pattern, State) ->
    [MFA || MFA <- module_functions(Module, State), matches(Pattern, MFA)].

matches({M, F, A}, {Module, Function, Arity}) ->
    M =:= Module andalso (F =:= '_' orelse F =:= Function) andalso (A =:= '_' orelse A =:= Arity).

added({'_', '_', '_'}, State) ->
    State#state{all = true, functions = #{}};
added({Module, _, _} = Pattern, #state{all = All, functions = Functions} = State) ->
    Added = [{F, A}
             || {F, A} <- emberl_counters:functions(Module), matches(Pattern, {Module, F, A})],
    Known = maps:get(Module, Functions, []),
    case All of
        true -> State;
        false -> State#state{functions = Functions#{Module => lists:usort(Added ++ Known)}}
    end.

clear({'_', '_', '_'} = Pattern, #state{counters = Counters} = State) ->
    {reply, emberl_counters:clear(Counters, Pattern),
     State#state{all = false, functions = #{}, kept = #{}}};
clear({M, F, A} = Pattern, #state{counters = Counters} = State) ->
    case covered(Pattern, State) of
        [] ->
            {reply, {error, {not_traced, M, F, A}}, State};
        MFAs ->
            ok = emberl_counters:ignore_loaded(Counters),
            {reply, emberl_counters:clear(Counters, Pattern), without(MFAs, State)}
    end.

%% From here on not all are counted, but those that are loaded now.
without(MFAs, #state{kept = Kept} = State) ->
    Left = maps:groups_from_list(fun({M, _, _}) -> M end, fun({_, F, A}) -> {F, A} end,
                                 all_functions(State) -- MFAs),
    State#state{all = false, functions = Left,
                kept = maps:filter(fun({MFA, _}, _) -> not lists:member(MFA, MFAs) end, Kept)}.

all_functions(#state{all = true}) ->
    [{Module, F, A}
     || {Module, _} <- code:all_loaded(), {F, A} <- emberl_counters:functions(Module)];
all_functions(#state{functions = Functions}) ->
    [{Module, F, A} || {Module, FAs} <- maps:to_list(Functions), {F, A} <- FAs].

module_functions(Module, #state{all = true}) ->
    [{Module, F, A} || {F, A} <- emberl_counters:functions(Module)];
module_functions(Module, #state{functions = Functions}) ->
    [{Module, F, A} || {F, A} <- maps:get(Module, Functions, [])].

patterns(#state{all = true}) -> [{'_', '_', '_'}];
patterns(#state{functions = Functions}) ->
    lists:append([module_patterns(Module, FAs) || {Module, FAs} <- maps:to_list(Functions)]).

%% One order for a whole module is one stop of the VM instead of many.
module_patterns(Module, FAs) ->
    case lists:sort(emberl_counters:functions(Module)) =:= lists:sort(FAs) of
        true -> [{Module, '_', '_'}];
        false -> [{Module, F, A} || {F, A} <- FAs]
    end.

%% ---- which processes ----

trace_all(Processes, Trace) when Processes =:= all; Processes =:= new; Processes =:= existing ->
    Trace(Processes);
trace_all(Processes, Trace) when is_list(Processes) ->
    Results = [{Process, trace_one(Process, Trace)} || Process <- Processes],
    Count = lists:sum([N || {_, N} <- Results]),
    case [Process || {Process, 0} <- Results] of
        [] -> Count;
        Failed -> {Count, Failed}
    end;
trace_all(Process, Trace) ->
    trace_one(Process, Trace).

trace_one(Pid, Trace) when is_pid(Pid) -> Trace(Pid);
trace_one(Name, Trace) ->
    case whereis(Name) of
        Pid when is_pid(Pid) -> Trace(Pid);
        _ -> 0
    end.

%% ---- the numbers ----

pause_all(#state{counters = Counters} = State) ->
    [emberl_counters:pause(Counters, Pattern) || Pattern <- patterns(State)],
    State#state{paused = true}.

start_all(#state{counters = Counters} = State) ->
    [emberl_counters:set(Counters, Pattern) || Pattern <- patterns(State)],
    State#state{paused = false}.

forget_all(State) ->
    State#state{kept = #{}, readings = [], asked = #{}, preparing = #{}, prepared = #{},
                reloaded = [], start_us = erlang:system_time(microsecond),
                start_ns = erlang:monotonic_time(nanosecond)}.

keep_all(State) ->
    keep(all_functions(State), State).

keep(MFAs, #state{kept = Kept} = State) ->
    State#state{kept = plus(Kept, numbers(MFAs, State)), readings = [], asked = #{},
                preparing = #{}, prepared = #{}}.

numbers(MFAs, #state{counters = Counters}) ->
    maps:from_list([{{MFA, Process}, {Calls, Us, Words}}
                    || {MFA, Rows} <- emberl_counters:read(Counters, MFAs),
                       {Process, Calls, Us, Words} <- Rows]).

plus(Some, More) ->
    maps:merge_with(fun(_Key, {C1, T1, W1}, {C2, T2, W2}) ->
                            {C1 + C2, plus_one(T1, T2), plus_one(W1, W2)}
                    end, Some, More).

plus_one(undefined, undefined) -> undefined;
plus_one(A, B) -> A + B.

tally(#state{measures = Measures, kept = Kept, start_us = Start, start_ns = StartNs,
             reloaded = Reloaded} = State) ->
    Numbers = plus(Kept, numbers(all_functions(State), State)),
    Rows = [row(Key, Values) || {Key, Values} <- maps:to_list(Numbers), not is_ours(Key)],
    emberl_tally:new(#{info => #{engine => counters, measures => Measures, target => <<"counters">>,
                                 outcome => none, start_us => Start,
                                 otp_release => list_to_binary(erlang:system_info(otp_release)),
                                 duration_ns => erlang:monotonic_time(nanosecond) - StartNs,
                                 notes => [note(Reload) || Reload <- lists:reverse(Reloaded)]
                                     ++ no_words(Measures)
                                     ++ shared_words(Rows, State)},
                       rows => Rows, profile => none,
                       processes => emberl_tally:named(Rows)}).

row({MFA, Process}, {Calls, Us, Words}) ->
    Row = #{process => Process, mfa => MFA, calls => Calls},
    maps:merge(Row, maps:from_list([{time_ns, Us * 1000} || Us =/= undefined]
                                   ++ [{words, Words} || Words =/= undefined])).

%% What reading and setting counters calls.
is_ours({{erts_internal, trace_pattern, _}, all}) -> true;
is_ours({{erts_internal, trace_info, _}, all}) -> true;
is_ours({{erlang, trace_info, _}, all}) -> true;
is_ours({{erlang, get_module_info, _}, all}) -> true;
is_ours(_Key) -> false.

%% All that the VM counts were asked for.
no_words([call_count, call_time]) -> [<<"there are no words: the VM counts them from OTP 26 on">>];
no_words(_Measures) -> [].

shared_words(Rows, #state{counters = Counters}) ->
    case emberl_counters:shares_words(Counters,
                                      lists:usort([MFA || #{mfa := MFA, words := _} <- Rows])) of
        true -> [<<"words are doubtful: another trace session counts them of the same functions, "
                   "and in processes that both trace the VM puts them on the wrong ones">>];
        false -> []
    end.

note({Module, LostUs}) ->
    unicode:characters_to_binary(["module ", emberl_nif:atom_text(Module),
                                  " was loaded anew; what it did in the ",
                                  emberl_table:time(LostUs * 1000), " before is missing"]).

%% ---- loading ----

%% Putting code in place takes its counters away, so they are read when it is prepared.
%% Word of that may come too late, when the loading process had no reason to be scheduled
%% out before. Then what was read last in time is kept: all is read now and then, in no
%% more than a hundredth of the time.

loading(_Pid, {code, _Load, [Module | _]}, _Time, #state{asked = Asked} = State)
  when is_atom(Module) ->
    State#state{asked = Asked#{Module => read_before(Module, State)}};
loading(Pid, {erts_internal, prepare_loading, [Module | _]}, _Time,
        #state{preparing = Preparing} = State) ->
    State#state{preparing = Preparing#{Pid => {Module, read_before(Module, State)}}};
loading(Pid, {erlang, finish_loading, [Prepared]}, Time, #state{finishing = Finishing} = State) ->
    State#state{finishing = Finishing#{Pid => {Prepared, microseconds(Time)}}};
loading(_Pid, _Call, _Time, State) ->
    State.

read_before(Module, State) ->
    hold_code_server(fun() -> reading(module_functions(Module, State), State) end).

%% It puts in place what others have prepared. Should we die meanwhile the VM lets it go.
hold_code_server(Read) ->
    Pid = whereis(code_server),
    Held = is_pid(Pid) andalso erlang:suspend_process(Pid, [unless_suspending]),
    Result = Read(),
    Held andalso erlang:resume_process(Pid),
    Result.

reading(MFAs, State) ->
    Numbers = numbers(MFAs, State),
    {microseconds(os:timestamp()), Numbers}.

microseconds({Mega, Seconds, Micro}) ->
    (Mega * 1000000 + Seconds) * 1000000 + Micro.

loaded(Pid, prepare_loading, Reference, #state{preparing = Preparing, prepared = Prepared} = State)
  when is_map_key(Pid, Preparing), is_reference(Reference) ->
    {Reading, Left} = maps:take(Pid, Preparing),
    State#state{preparing = Left, prepared = Prepared#{Reference => Reading}};
loaded(Pid, finish_loading, Result, #state{finishing = Finishing} = State)
  when is_map_key(Pid, Finishing) ->
    {{References, Time}, Left} = maps:take(Pid, Finishing),
    lists:foldl(fun(Reference, S) -> replaced(Reference, Result, Time, S) end,
                State#state{finishing = Left}, References);
loaded(_Pid, _Function, _Result, State) ->
    State.

replaced(Reference, ok, Time,
         #state{prepared = Prepared, asked = Asked, readings = Readings} = State)
  when is_map_key(Reference, Prepared) ->
    {{Module, Reading}, Left} = maps:take(Reference, Prepared),
    Known = [Reading | [maps:get(Module, Asked) || is_map_key(Module, Asked)]] ++ Readings,
    Before = [R || {At, _} = R <- Known, At + ?MARGIN_US < Time],
    count_on(Module, kept_before(Module, Time, Before,
                                 State#state{prepared = Left, asked = maps:remove(Module, Asked)}));
replaced(Reference, _Failed, _Time, #state{prepared = Prepared} = State) ->
    State#state{prepared = maps:remove(Reference, Prepared)}.

kept_before(Module, Time, Before,
            #state{kept = Kept, reloaded = Reloaded, readings = Readings} = State) ->
    {At, Numbers} = case Before of
                        [] -> {State#state.start_us, #{}};
                        [Reading | _] -> Reading
                    end,
    Of = maps:filter(fun({{M, _, _}, _}, _) -> M =:= Module end, Numbers),
    State#state{kept = plus(Kept, Of), loaded = (State#state.loaded)#{Module => true},
                reloaded = [{Module, max(0, Time - At)} || loses(Module, State)] ++ Reloaded,
                readings = [{A, maps:filter(fun({{M, _, _}, _}, _) -> M =/= Module end, N)}
                            || {A, N} <- Readings]}.

%% One that is loaded for the first time does not.
loses(Module, #state{all = All, functions = Functions, loaded = Loaded}) ->
    is_map_key(Module, Loaded) andalso (All orelse is_map_key(Module, Functions)).

%% Of all modules the VM does it by itself.
count_on(Module,
         #state{all = false, counters = Counters, functions = Functions, paused = Paused} = State)
  when is_map_key(Module, Functions) ->
    [begin
         emberl_counters:set(Counters, {Module, F, A}),
         Paused andalso emberl_counters:pause(Counters, {Module, F, A})
     end || {F, A} <- maps:get(Module, Functions)],
    State;
count_on(Module, #state{paused = true, counters = Counters} = State) ->
    emberl_counters:pause(Counters, {Module, '_', '_'}),
    State;
count_on(_Module, State) ->
    State.

%% ---- reading now and then ----

read_now(#state{paused = true} = State) ->
    read_later(?READ_EVERY_MS, State);
read_now(#state{readings = Readings} = State) ->
    {Us, Reading} = timer:tc(fun() -> reading(all_functions(State), State) end),
    read_later(max(?READ_EVERY_MS, Us div 10),
               State#state{readings = lists:sublist([Reading | Readings], 2)}).

read_later(Ms, State) ->
    erlang:send_after(Ms, self(), read),
    State.
