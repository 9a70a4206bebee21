%% SPDX-License-Identifier: Apache-2.0
%% @doc A sampler as a part of an application's supervision tree: see {@link
%% emberl:sample/1}. There is one on a node.
%%
%% ```
%% init([]) ->
%%     Options = #{budget => 0.01, store => "/var/lib/app/profiles"},
%%     {ok, {#{}, [emberl_sampler:child_spec(Options)]}}.
%% '''
-module(emberl_sampler).
-behaviour(gen_server).

-export([child_spec/1, start_link/1]).
-export([sample/1, status/1, pause/1, resume/1, stop/1, snapshot/1, halt_all/0, work/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).
-export_type([sampler/0, options/0, status/0]).

-define(LATER_MS, 500).   % after something was in the way
-define(CALLS_MS, 100).   % between looks how many calls there were
-define(PATIENCE, 6).      % how often in a row, until it stops itself
-define(CLOSE_MS, 2000).   % a window, when it is not to go on
-define(FAILED_MS, 50).    % what one that failed counts as at most
-define(LONGEST_MS, 10000). % a window, with all that goes with it

-type sampler() :: pid() | ?MODULE.
-type options() :: map() | [{atom(), term()}].
-type status() :: #{state := sampling | paused | stopped, reason := atom(), atom() => term()}.

-record(state,
        {options :: emberl_sample_options:options(),
         state = sampling :: sampling | paused | stopped,
         reason = none :: atom(),
         governor :: emberl_governor:governor(),
         timer :: undefined | reference(),
         worker :: undefined | {pid(), reference(), From :: integer()}, % a window that is open
         obstacles = 0 :: non_neg_integer(),   % in a row
         sum = none :: none | emberl_profile:profile(),
         from :: emberl_time:milliseconds(),   % of this slice
         since :: none | integer(),            % end of the last window, ns
         busy = #{pids => #{}, offset => 0} :: emberl_sample_window:busy(),
         requests = #{} :: emberl_sample_requests:requests(),
         store :: none | emberl_store:store(),
         windows = 0 :: non_neg_integer(),     % that were recorded
         events = 0 :: non_neg_integer(),
         lost = 0 :: non_neg_integer(),
         seen = 0 :: non_neg_integer(),        % processes, added up
         present = 0 :: non_neg_integer(),
         forgotten = 0 :: non_neg_integer(),   % windows, for want of memory
         errors = 0 :: non_neg_integer(),
         error = none :: term()}).

%% @doc For a supervisor's list of children.
-spec child_spec(options()) -> supervisor:child_spec().
child_spec(Options) ->
    #{id => ?MODULE, start => {?MODULE, start_link, [Options]}, restart => transient,
      shutdown => 10000}.

%% @doc Starts a sampler that belongs to the caller, usually a supervisor.
-spec start_link(options()) ->
          {ok, pid()} | {error, emberl_options:refusal() | {already_started, pid()}}.
start_link(Given) ->
    case emberl_sample_options:parse(Given) of
        {ok, Options} -> gen_server:start_link({local, ?MODULE}, ?MODULE, Options, []);
        {error, Refusal} -> {error, Refusal}
    end.

%% @private
-spec sample(options()) -> {ok, pid()} | {error, term()}.
sample(Given) ->
    case emberl_sample_options:parse(Given) of
        {ok, #{store := Store}} -> start(check_store(Store), Given);
        {error, Refusal} -> {error, Refusal}
    end.

check_store(none) ->
    ok;
check_store(Directory) ->
    case filelib:ensure_path(Directory) of
        ok -> emberl_output:probe(Directory);
        {error, Reason} -> {error, [Directory, ": ", file:format_error(Reason)]}
    end.

start(ok, Given) ->
    case emberl_control:of_supervisor(fun() -> start_child(Given) end) of
        {error, {{already_started, Pid}, _Child}} -> {error, {already_started, Pid}}; % not ours
        Result -> Result
    end;
start({error, Text}, _Given) ->
    {error, emberl_options:refusal(bad_option, store, Text)}.

start_child(Given) ->
    _ = forget(),
    supervisor:start_child(emberl_sup, child_spec(Given)).

%% One that has ended by itself.
forget() ->
    supervisor:delete_child(emberl_sup, ?MODULE).

%% @private
-spec status(sampler()) -> status() | {error, emberl_options:refusal()}.
status(Sampler) -> call(Sampler, status).

%% @private
-spec pause(sampler()) -> ok | {error, emberl_options:refusal()}.
pause(Sampler) -> call(Sampler, pause).

%% @private
-spec resume(sampler()) -> ok | {error, emberl_options:refusal()}.
resume(Sampler) -> call(Sampler, resume).

%% @private
-spec snapshot(sampler()) -> emberl_profile:profile() | {error, emberl_options:refusal()}.
snapshot(Sampler) -> call(Sampler, snapshot).

call(Sampler, Request) ->
    try gen_server:call(Sampler, Request, infinity)
    catch exit:_ ->
        {error, emberl_options:refusal(unknown_sampler, Sampler, "there is no such sampler")}
    end.

%% @private
-spec stop(sampler()) -> ok | {error, emberl_options:refusal()}.
stop(Sampler) ->
    case call(Sampler, status) of
        {error, _} = Error -> Error;
        _ -> stop_child(Sampler)
    end.

%% Others may stop it at the same time, and supervisors be killed, which ends it as well.
stop_child(Sampler) ->
    try stop_child(is_ours(Sampler), Sampler)
    catch exit:_ -> wait_gone(Sampler)
    end.

stop_child(true, _Sampler) ->
    _ = supervisor:terminate_child(emberl_sup, ?MODULE),
    _ = forget(),
    ok;
stop_child(false, Sampler) ->
    gen_server:stop(Sampler).

wait_gone(Sampler) ->
    try gen_server:stop(Sampler)
    catch exit:_ -> ok
    end.

is_ours(Sampler) ->
    Pid = case Sampler of ?MODULE -> whereis(?MODULE); _ -> Sampler end,
    lists:any(fun({?MODULE, P, _, _}) -> P =:= Pid; (_) -> false end,
              supervisor:which_children(emberl_sup)).

%% @private
%% What emberl:stop/0 ends, and the end of the application.
-spec halt_all() -> ok.
halt_all() ->
    case whereis(?MODULE) of
        undefined -> ok;
        Pid -> _ = call(Pid, halt), ok
    end.

%% ---- callbacks ----

%% @private
-spec init(emberl_sample_options:options()) -> {ok, #state{}}.
init(#{store := Directory, retention := Retention, targets := Targets} = Options) ->
    process_flag(trap_exit, true),
    process_flag(sensitive, true),
    process_flag(priority, high),
    Given = maps:with([budget, window, min_interval], Options),
    Limits = Given#{schedulers => erlang:system_info(schedulers_online)},
    Store = case Directory of
                none -> none;
                _ -> emberl_store:open(Directory, Retention)
            end,
    {ok, timed(0, #state{options = Options, governor = emberl_governor:new(Limits, now_ms()),
                         requests = emberl_sample_requests:new(Targets), store = Store,
                         from = utc_ms(), since = none})}.

now_ms() -> erlang:monotonic_time(millisecond).
utc_ms() -> erlang:system_time(millisecond).

timed(Ms, #state{timer = Timer} = State) ->
    _ = Timer =:= undefined orelse erlang:cancel_timer(Timer),
    State#state{timer = erlang:start_timer(Ms, self(), window)}.

untimed(#state{timer = undefined} = State) -> State;
untimed(#state{timer = Timer} = State) ->
    _ = erlang:cancel_timer(Timer),
    State#state{timer = undefined}.

%% @private
-spec handle_call(atom(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(status, _From, State) ->
    {reply, status_of(State), State};
handle_call(snapshot, _From, #state{sum = none} = State) ->
    {reply, {error, emberl_options:refusal(no_data, ?MODULE, "there was no window yet")}, State};
handle_call(snapshot, _From, State) ->
    {reply, settled(State), State};
handle_call(pause, _From, #state{state = sampling} = State) ->
    {reply, ok, end_slice((at_rest(State))#state{state = paused})};
handle_call(resume, _From, #state{state = Old} = State) when Old =/= sampling ->
    {reply, ok, timed(0, State#state{state = sampling, reason = none, obstacles = 0,
                                     from = utc_ms(), since = none})};
handle_call(halt, _From, State) ->
    {reply, ok, halt_for(stopped, State)};
handle_call(_PauseOrResume, _From, State) ->
    {reply, ok, State}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_Message, State) ->
    {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_info({timeout, Timer, window}, #state{timer = Timer, worker = undefined} = State) ->
    {noreply, next(emberl_sample_guard:check(State#state.options), State#state{timer = undefined})};
handle_info({timeout, Timer, window}, #state{timer = Timer, worker = {Pid, _, _}} = State) ->
    exit(Pid, kill), % it has taken too long
    {noreply, State#state{timer = undefined}};
handle_info({'DOWN', Monitor, process, _, Reason}, #state{worker = {_, Monitor, From}} = State) ->
    {noreply, window_ended(Reason, From, State#state{worker = undefined})};
handle_info({'EXIT', _Pid, _Reason}, State) -> % of workers; a supervisor's ends us
    {noreply, State};
handle_info(_Message, State) ->
    {noreply, State}.

%% @private
-spec terminate(term(), #state{}) -> ok.
terminate(Reason, State) ->
    Without = case is_told(Reason) of
                  true -> at_rest(State);
                  false -> killed_window(State) % nobody waits, and ours may be gone
              end,
    _ = end_slice(Without),
    ok.

%% Who has told it to stop finds the VM clean.
is_told(normal) -> true;
is_told(shutdown) -> true;
is_told({shutdown, _}) -> true;
is_told(_) -> false.

%% ---- windows ----

next(kill_file, State) ->
    halt_for(kill_file, State);
next(ok, State) ->
    asked(State#state{obstacles = 0});
next(Obstacle, #state{obstacles = N} = State) when N + 1 >= ?PATIENCE ->
    halt_for(Obstacle, State);
next(_Obstacle, #state{obstacles = N} = State) ->
    timed(?LATER_MS, State#state{obstacles = N + 1}).

%% Where calls are sampled: whether there were enough.
asked(#state{options = #{targets := []}} = State) ->
    planned(State);
asked(#state{requests = Requests, options = #{every := Every}} = State) ->
    case emberl_sample_requests:count(Requests) of
        {ok, Counted} -> asked(emberl_sample_requests:is_wanted(Counted, Every),
                               State#state{requests = Counted});
        {error, Reason} -> timed(?LATER_MS, State#state{error = Reason})
    end.

asked(true, State) -> planned(State);
asked(false, State) -> timed(?CALLS_MS, State).

planned(#state{governor = Governor0} = State) ->
    {Plan, Governor} = emberl_governor:plan(Governor0, now_ms(), rand:uniform()),
    case Plan of
        {wait, Ms} -> timed(min(Ms, ?LATER_MS), State#state{governor = Governor});
        {window, Ms} -> open(Ms, State#state{governor = Governor});
        {stop, Reason} -> halt_for(Reason, State)
    end.

open(Length, #state{options = #{budget := Budget} = Options, sum = Sum, since = Since,
                    busy = Busy} = State) ->
    Task = #{options => Options, length => Length, sum => Sum, since => Since, busy => Busy,
             requests => State#state.requests,
             holder => self(), budget_ppm => round(Budget * 1000000)},
    {Pid, Monitor} = spawn_opt(?MODULE, work, [Task], [link, monitor, {priority, high}]),
    timed(?LONGEST_MS, State#state{worker = {Pid, Monitor, now_ms()}}).

%% @private
-spec work(emberl_sample_window:task() | emberl_sample_requests:task()) -> no_return().
work(#{options := #{targets := Targets}} = Task) ->
    process_flag(sensitive, true),
    emberl_calibrate:ensure_once(),
    exit({window, run(Targets, Task)}).

run([], Task) -> emberl_sample_window:run(Task);
run(_Targets, Task) -> emberl_sample_requests:run(Task).

window_ended({window, {ok, Result}}, From, #state{governor = Governor} = State) ->
    #{sum := Sum, fixed := Fixed, variable := Variable, length := Length,
      ended := Ended, events := Events, lost := Lost, seen := Seen, present := Present} = Result,
    Spent = #{from => From, to => now_ms(), length => Length, fixed => Fixed, variable => Variable},
    Recorded = State#state{governor = emberl_governor:record(Spent, Governor), sum = Sum,
                           windows = State#state.windows + 1,
                           busy = maps:get(busy, Result, State#state.busy),
                           requests = maps:get(requests, Result, State#state.requests),
                           since = Ended, events = State#state.events + Events,
                           lost = State#state.lost + Lost, seen = State#state.seen + Seen,
                           present = State#state.present + Present, error = none},
    timed(0, bounded(sliced(Recorded)));
window_ended(Failed, From, #state{governor = Governor, errors = Errors} = State) ->
    Wall = min(?FAILED_MS, now_ms() - From), % most of it we have waited
    Spent = #{from => From, to => now_ms(), length => 1, fixed => float(Wall), variable => 0.0},
    timed(?LATER_MS,
          State#state{governor = emberl_governor:record(Spent, Governor), errors = Errors + 1,
                      error = why(Failed)}).

why({window, {error, Reason}}) -> Reason;
why(Reason) -> Reason.

at_rest(State) ->
    Without = without_window(State),
    _ = emberl_control:let_go(),
    Without#state{requests = emberl_sample_requests:at_rest(Without#state.requests)}.

without_window(#state{worker = undefined} = State) ->
    untimed(State);
without_window(#state{worker = {Pid, Monitor, From}} = State) ->
    Pid ! close,
    receive
        {'DOWN', Monitor, process, _, Reason} ->
            untimed(window_ended(Reason, From, State#state{worker = undefined}))
    after ?CLOSE_MS ->
            killed_window(State)
    end.

killed_window(#state{worker = undefined} = State) ->
    untimed(State);
killed_window(#state{worker = {Pid, Monitor, _From}} = State) ->
    exit(Pid, kill),
    receive {'DOWN', Monitor, process, _, _} -> ok end,
    untimed(State#state{worker = undefined}).

halt_for(Reason, State) ->
    Reason =:= stopped
        orelse logger:warning("emberl: the sampler has stopped itself: ~ts", [text(Reason)]),
    end_slice((at_rest(State))#state{state = stopped, reason = Reason}).

text(budget) -> "it cannot keep its budget";
text(memory) -> "memory is short";
text(run_queues) -> "run queues are long";
text(kill_file) -> "there is a kill file".

%% ---- slices ----

sliced(#state{from = From, options = #{slice := Slice}, store = Store} = State) ->
    case Store =/= none andalso utc_ms() - From >= Slice of
        true -> end_slice(State);
        false -> State
    end.

%% With a store a slice ends early; without one it is forgotten.
bounded(#state{sum = none} = State) ->
    State;
bounded(#state{sum = Sum, options = #{memory_limit := Limit}, store = Store,
               forgotten = Forgotten} = State) ->
    case {emberl_nif:profile_bytes(Sum) > Limit, Store} of
        {false, _} -> State;
        {true, none} -> State#state{sum = none, from = utc_ms(), forgotten = Forgotten + 1};
        {true, _} -> end_slice(State)
    end.

%% Where there is no store it is kept for snapshots.
end_slice(#state{sum = none} = State) -> State#state{from = utc_ms()};
end_slice(#state{store = none} = State) -> State;
end_slice(#state{store = Store, from = From} = State) ->
    Now = utc_ms(),
    State#state{store = emberl_store:add(settled(State), From, Now, Store), sum = none, from = Now}.

settled(#state{sum = Sum}) ->
    Profile = emberl_nif:profile_settle(Sum),
    Target = iolist_to_binary(["sample of ", atom_to_list(node())]),
    emberl_nif:profile_annotate(Profile, Target,
                                list_to_binary(erlang:system_info(otp_release)), []),
    Profile.

%% ---- status ----

status_of(#state{governor = Governor, sum = Sum, store = Store} = State) ->
    maps:merge(emberl_governor:status(Governor, now_ms()),
               #{state => State#state.state, reason => State#state.reason,
                 windows => State#state.windows, % the governor counts failed ones too
                 events => State#state.events, lost => State#state.lost,
                 requests => emberl_sample_requests:status(State#state.requests),
                 coverage => State#state.seen / max(1, State#state.present),
                 memory => case Sum of none -> 0; _ -> emberl_nif:profile_bytes(Sum) end,
                 forgotten => State#state.forgotten,
                 errors => State#state.errors, error => State#state.error,
                 store => case Store of none -> none; _ -> emberl_store:status(Store) end}).
