%% SPDX-License-Identifier: Apache-2.0
%% @private
%% Owns all captures of the node: the VM's tracing (so its death ends that), the
%% library's session, and the results until they are asked for. Both exist from
%% the first capture to the last.
%%
%% A window is a capture that waits for no call: it records the processes it is given,
%% whatever they do, as one run.
%%
%% A capture ends when it has its calls, by its timeout, by its memory limit, when
%% it is stopped, or with the process that started it. Closing it in the library
%% sends us its unfinished runs before it returns, so what is in the mailbox then
%% is all there will be.
-module(emberl_control).
-behaviour(gen_server).

-export([start_link/0, start_capture/1, start_window/1, finish/1, await/2, stop/1, stop_all/0,
         let_go/0, count/2, has_ended/1, add_server/0, of_supervisor/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).
-export_type([request/0, window/0, outcome/0]).

%% How often a target whose module was loaded again is looked for.
-define(RENEWAL_MS, 200).

%% How many values of calls are kept that may turn out not to be slow.
-define(MOST_VALUES, 1000).

%% How long a target is not called until its capture waits without breakpoints again.
-define(PAUSE_MS, 10000).

%% How long processes of a window are looked at before it begins, and how long it takes to
%% have them traced, where some are busy; and how long their names are asked for.
-define(LOOK_MS, 100).
-define(FLAG_MS, 1000).
-define(NAMES_MS, 50).

%% How long servers of counters have to stop.
-define(STOP_MS, 3000).

-type request() :: #{mfa := mfa(),            % what is captured
                     calls := pos_integer(),
                     from := pid() | any,     % whose calls
                     hidden := boolean(),     % the target's own frame is not shown
                     holder => pid(),         % as of windows
                     breakpoints => set | there, % those that are traced, if it is not lazy
                     target := binary(),      % as text
                     options := emberl_options:options()}.
%% Instead of a call: what these processes do for so many milliseconds, until the window
%% is stopped, or until a limit. Which of them are processes of emberl's control does not
%% matter: those are left out. `look' says how long to look at them first, milliseconds:
%% then their names and what they do when it begins are known.
-type window() :: #{processes := [pid()],
                    duration := timeout(),
                    look => non_neg_integer(),
                    % events, and milliseconds from its very beginning, after which it has all
                    % that was asked for; that does not wait for a scheduler
                    bounds => {pos_integer(), pos_integer()},
                    % what counts begins when all are traced, and takes so many milliseconds at
                    % most; that waits for no scheduler either
                    counted => pos_integer(),
                    collections => boolean(), % are traced (default true)
                    holder => pid(),         % who opens windows again and again: see let_go/0
                    target := binary(),
                    options := emberl_options:options(),
                    % in outcomes; and events until it was open, which are not in its profile
                    counts => emberl_window:counts(),
                    before => non_neg_integer()}.
-type outcome() :: {done | timeout | stopped | limit, [emberl_output:call()], request() | window()}.

-record(capture,
        {ref :: reference(),
         slot :: emberl_nif:slot(),
         target :: 0..63 | window,
         request :: request() | window(),
         owner :: reference(),                       % monitor
         timer :: reference() | undefined,
         armed :: eager | {Seen :: non_neg_integer(), Pause :: reference()} | waiting,
         open :: undefined | atomics:atomics_ref(),      % of a window: 1 until it has ended
         runs = [] :: [{non_neg_integer(), term()}],     % newest first; see with_run/3
         finished = 0 :: non_neg_integer(),          % of them
         names = #{} :: #{pid() => {binary() | undefined, binary() | undefined}
                                  | emberl_process:known()},
         values = #{} :: #{pos_integer() => term()}, % by run
         ended :: undefined | done | timeout | stopped | limit,
         waiting :: undefined | {gen_server:from(), reference() | undefined}}).

-record(state,
        {janitor :: reference(),                              % monitor
         trace :: undefined | emberl_trace:trace(),
         renewal :: undefined | reference(),                   % timer
         targets = #{} :: #{mfa() => {0..63, pos_integer()}}, % number, users
         counts = none :: none | emberl_trace:counts(),         % of calls, for a holder
         holders = #{} :: #{pid() => reference()},             % by whom what windows share is held
         servers = #{} :: #{reference() => pid()},             % of counters, by monitor
         captures = #{} :: #{reference() => #capture{}}}).

%% One whose supervisor was killed may still be cleaning up.
-spec start_link() -> gen_server:start_ret().
start_link() ->
    case gen_server:start_link({local, ?MODULE}, ?MODULE, [], []) of
        {error, {already_started, Pid}} ->
            Monitor = erlang:monitor(process, Pid),
            receive {'DOWN', Monitor, process, Pid, _} -> start_link() end;
        Result ->
            Result
    end.

%% The capture belongs to the caller.
-spec start_capture(request()) -> {ok, reference()} | {error, term()}.
start_capture(#{from := From} = Request) ->
    case emberl_trace:other_collector(callers(From)) of
        none -> call({start, self(), Request});
        Other -> {error, {other_tracer, Other}}
    end.

callers(any) -> processes();
callers(Pid) -> [Pid].

%% The window belongs to the caller. It begins before this returns, which is when all its
%% processes are traced but for those that could not be for a second, being busy in native
%% functions; `counts' in the outcome tells.
-spec start_window(window()) -> {ok, reference()} | {error, term()}.
start_window(Request) ->
    case emberl_trace:other_collector([]) of
        none -> start_own_window(Request);
        Other -> {error, {other_tracer, Other}}
    end.

start_own_window(#{processes := Processes} = Request) ->
    Pids = lists:usort(Processes) -- own_processes(),
    #{processes := Seen} = Looked = emberl_window:look(Pids, maps:get(look, Request, ?LOOK_MS)),
    case call({start_window, self(), Request#{processes := Pids}, Looked}) of
        {ok, Ref, Trace, Open} ->
            Counts = emberl_window:flag(traced_for(Request, Trace), [Pid || {Pid, _, _, _} <- Seen],
                                        fun() -> atomics:get(Open, 1) =:= 1 end, ?FLAG_MS),
            _ = ask({flagged, Ref, add_gone(Counts, Looked)}, 1),
            {ok, Ref};
        {error, Reason} ->
            {error, Reason}
    end.

traced_for(#{collections := false}, Trace) -> emberl_trace:without_collections(Trace);
traced_for(_Request, Trace) -> Trace.

add_gone(#{gone := Died} = Counts, #{gone := Before}) ->
    Counts#{gone := Died + Before}.

own_processes() ->
    [Pid || Name <- [?MODULE, emberl_janitor, emberl_sup, emberl_counters],
            Pid <- [whereis(Name)], is_pid(Pid)].

%% The captured call is over: what there is now is all.
-spec finish(reference()) -> outcome() | {error, already_awaited | emberl_options:refusal()}.
finish(Ref) ->
    call({finish, Ref}).

-spec await(reference(), timeout()) ->
          outcome() | {error, timeout | already_awaited | emberl_options:refusal()}.
await(Ref, Timeout) ->
    call({await, Ref, Timeout}).

-spec stop(reference()) -> outcome() | {error, already_awaited | emberl_options:refusal()}.
stop(Ref) ->
    call({stop, Ref}).

-spec stop_all() -> ok | {error, emberl_options:refusal()}.
stop_all() ->
    call(stop_all).

%% The caller opens no windows for now.
-spec let_go() -> ok | {error, emberl_options:refusal()}.
let_go() ->
    case whereis(?MODULE) of
        undefined -> ok;
        _ -> ask({let_go, self()}, 1)
    end.

%% How often each of these was called since it was first asked about, by its sampler, which
%% has let nothing go since.
-spec count(pid(), [mfa()]) -> {ok, [non_neg_integer()]} | {error, emberl_options:refusal()}.
count(Holder, MFAs) ->
    ask({count, Holder, MFAs}, 1).

%% Whether a capture has all that it will have.
-spec has_ended(reference()) -> boolean().
has_ended(Ref) ->
    call({has_ended, Ref}) =/= false.

%% The caller is a server of counters, to be stopped with all else, until it has gone. The
%% monitor tells it that it has to say so again.
-spec add_server() -> reference().
add_server() ->
    _ = application:ensure_all_started(emberl),
    Monitor = erlang:monitor(process, ?MODULE),
    gen_server:cast(?MODULE, {server, self()}),
    Monitor.

%% What a call to emberl's supervisor gives, which may have been killed just now.
-spec of_supervisor(fun(() -> Result)) -> Result | {error, emberl_options:refusal()}.
of_supervisor(Call) ->
    of_supervisor(Call, 100).

of_supervisor(_Call, 0) ->
    unavailable();
of_supervisor(Call, Tries) ->
    when_started(fun() -> asked_supervisor(Call, Tries) end).

asked_supervisor(Call, Tries) ->
    try Call()
    catch
        exit:_ ->
            timer:sleep(10),
            of_supervisor(Call, Tries - 1)
    end.

%% While it is restarted it is waited for.
call(Request) ->
    call(Request, 100).

%% Where it is there nobody is asked: whoever stops the application keeps its controller busy
%% until windows have ended, which ask us.
call(_Request, 0) ->
    unavailable();
call(Request, Tries) ->
    case whereis(?MODULE) of
        undefined -> when_started(fun() -> ask(Request, Tries) end);
        _ -> ask(Request, Tries)
    end.

when_started(Fun) ->
    try application:ensure_all_started(emberl) of
        {ok, _} -> Fun();
        {error, _} -> not_started()
    catch
        exit:_ -> unavailable()
    end.

ask(Request, Tries) ->
    try
        gen_server:call(?MODULE, Request, infinity)
    catch
        exit:{noproc, _} ->
            timer:sleep(10),
            call(Request, Tries - 1);
        exit:_ ->
            unavailable()
    end.

unavailable() ->
    {error, emberl_options:refusal(unavailable, emberl,
                                   "emberl was stopped or restarted meanwhile, "
                                   "which has ended all captures")}.

not_started() ->
    {error, emberl_options:refusal(unavailable, emberl, "the application emberl does not start; "
                                   "the log tells why, for example that its library is not there")}.

%% ---- callbacks ----

%% When the supervisor is killed, the application master kills whoever has it as
%% group leader. We end by ourselves then, and clean up.
-spec init([]) -> {ok, #state{}}.
init([]) ->
    process_flag(trap_exit, true),
    process_flag(sensitive, true),
    process_flag(priority, high), % what is to end must not wait for the processes that it is of
    group_leader(whereis(init), self()),
    Janitor = emberl_janitor:clean_up(),
    emberl_layout:check(),
    {ok, #state{janitor = Janitor}}.

-spec handle_call(term(), gen_server:from(), #state{}) ->
          {reply, term(), #state{}} | {noreply, #state{}}.
handle_call({start, Owner, Request}, _From, State0) ->
    State = hold(Request, State0),
    start_result(start(Owner, Request, State), State);
handle_call({flagged, Ref, Counts}, _From, State) ->
    {reply, ok, flagged(Ref, Counts, State)};
handle_call({start_window, Owner, Request, Looked}, _From, State0) ->
    State = hold(Request, State0),
    start_result(open_window(Owner, Request, Looked, State), State);
handle_call({finish, Ref}, From, State) ->
    end_and_reply(Ref, done, From, State);
handle_call({stop, Ref}, From, State) ->
    end_and_reply(Ref, stopped, From, State);
handle_call({await, Ref, Timeout}, From, State) ->
    wait(maps:find(Ref, State#state.captures), Ref, Timeout, From, State);
handle_call({count, Holder, MFAs}, _From, State0) ->
    #state{counts = Counts} = State = hold(#{holder => Holder}, State0),
    {Numbers, NewCounts} = emberl_trace:count(MFAs, Counts),
    {reply, {ok, Numbers}, State#state{counts = NewCounts}};
handle_call({has_ended, Ref}, _From, #state{captures = Captures} = State) ->
    {reply, not is_open(maps:find(Ref, Captures)), State};
handle_call({let_go, Holder}, _From, State) ->
    {reply, ok, let_go(Holder, State)};
handle_call(stop_all, _From, State) ->
    {reply, ok, end_all(State)}.

is_open({ok, #capture{ended = undefined}}) -> true;
is_open(_) -> false.

end_all(#state{captures = Captures, servers = Servers, holders = Holders} = State) ->
    stop_servers(Servers),
    Ended = lists:foldl(fun(Ref, S) -> end_capture(Ref, stopped, S) end, State#state{servers = #{}},
                        maps:keys(Captures)),
    lists:foldl(fun let_go/2, Ended, maps:keys(Holders)).

%% One that does not stop in time is killed, which takes its counters along.
stop_servers(Servers) ->
    [gen_server:cast(Pid, stop) || Pid <- maps:values(Servers)],
    End = erlang:monotonic_time(millisecond) + ?STOP_MS,
    maps:foreach(fun(Monitor, Pid) ->
                         stop_server(Monitor, Pid, max(0, End - erlang:monotonic_time(millisecond)))
                 end, Servers).

stop_server(Monitor, Pid, Within) ->
    receive
        {'DOWN', Monitor, process, Pid, _} -> ok
    after Within ->
            exit(Pid, kill),
            receive {'DOWN', Monitor, process, Pid, _} -> ok end
    end.

start_result({ok, Ref, State}, _Old) -> {reply, {ok, Ref}, State};
start_result({ok, Ref, Open, State}, _Old) -> {reply, {ok, Ref, State#state.trace, Open}, State};
start_result({error, Reason}, Old) -> {reply, {error, Reason}, Old}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast({server, Pid}, #state{servers = Servers} = State) ->
    {noreply, State#state{servers = Servers#{erlang:monitor(process, Pid) => Pid}}};
handle_cast(_Message, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({emberl_run, Slot, Run, Profile}, State) ->
    {noreply, check_calls(Slot, add_run(Slot, Run, Profile, State))};
handle_info({emberl_value, Run, Tag, Value}, State) ->
    {noreply, add_value(Run, value(Tag, Value), State)};
handle_info({emberl_limit, Slot}, State) ->
    {noreply, end_slot(Slot, limit(by_slot(Slot, State)), State)};
handle_info({emberl_called, Slot}, State) ->
    {noreply, called(by_slot(Slot, State), State)};
handle_info({timeout, Timer, {pause, Ref}}, State) ->
    {noreply, paused(Ref, Timer, State)};
handle_info({timeout, Timer, {capture, Ref}}, State) ->
    {noreply, timed_out(Ref, Timer, timeout, State)};
handle_info({timeout, Timer, {window, Ref}}, State) ->
    {noreply, timed_out(Ref, Timer, done, State)};
handle_info({timeout, Timer, {await, Ref}}, State) ->
    {noreply, await_timed_out(Ref, Timer, State)};
handle_info({timeout, Timer, renew}, #state{trace = Trace, renewal = Timer} = State) ->
    emberl_trace:renew_targets(Trace),
    {noreply, State#state{renewal = start_timer(?RENEWAL_MS, renew)}};
handle_info({'DOWN', Monitor, process, _Pid, _Reason}, #state{janitor = Monitor} = State) ->
    {noreply, State#state{janitor = emberl_janitor:watch()}};
handle_info({'DOWN', Monitor, process, _Pid, _Reason}, #state{servers = Servers} = State)
  when is_map_key(Monitor, Servers) ->
    {noreply, State#state{servers = maps:remove(Monitor, Servers)}};
handle_info({'DOWN', Monitor, process, Pid, _Reason}, #state{holders = Holders} = State)
  when map_get(Pid, Holders) =:= Monitor ->
    {noreply, let_go(Pid, State)};
handle_info({'DOWN', Monitor, process, _Pid, _Reason}, State) ->
    {noreply, owner_died(Monitor, State)};
handle_info(_Message, State) ->
    {noreply, State}.

-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, State) ->
    end_all(State),
    emberl_janitor:release().

%% ---- starting ----

%% What a start that fails has opened is closed again.
start(Owner, Request, State0) ->
    case open_trace(State0) of
        {ok, State1} -> started(start_target(Owner, Request, State1), State1);
        {error, Reason} -> {error, Reason}
    end.

started({error, Reason}, Opened) ->
    _ = close_if_unused(Opened),
    {error, Reason};
started(Started, _Opened) ->
    Started.

open_window(Owner, Request, Looked, State0) ->
    case open_trace(State0) of
        {ok, State1} -> started(open_window_in_library(Owner, Request, Looked, State1), State1);
        {error, Reason} -> {error, Reason}
    end.

open_window_in_library(Owner, #{options := Options, target := Text} = Request, Looked, State) ->
    #{processes := Seen, names := Names} = Looked,
    set_window_modules(Request, Options, State),
    case emberl_nif:open_window(capture({emberl, record, 2}, true, Options, Request), Seen) of
        {ok, Slot} ->
            {Timeout, Timer} = window_timer(Request),
            Open = atomics:new(1, []),
            atomics:put(Open, 1, 1),
            Capture = new_capture(Owner, Slot, window, Request, Timeout, Timer),
            {ok, Capture#capture.ref, Open,
             store(Capture#capture{open = Open, names = Names}, State)};
        {error, Reason} ->
            not_opened(Reason, Text)
    end.

flagged(Ref, Counts, #state{captures = Captures} = State) ->
    case Captures of
        #{Ref := #capture{request = Request} = Capture} ->
            Begun = Request#{counts => Counts, before => restart(Capture)},
            store(Capture#capture{request = Begun}, State);
        #{} ->
            State
    end.

%% To open a window takes processors from those that it is of, and not from all alike.
restart(#capture{slot = Slot, ended = undefined, request = #{counted := Ms}}) ->
    emberl_nif:restart_window(Slot, Ms);
restart(_Capture) ->
    0.

%% What windows share is held until nobody wants any more of them.
hold(#{holder := Holder}, #state{holders = Holders} = State) when not is_map_key(Holder, Holders) ->
    map_size(Holders) > 0 orelse emberl_trace:hold(),
    State#state{holders = Holders#{Holder => erlang:monitor(process, Holder)}};
hold(_Request, State) ->
    State.

let_go(Holder, #state{holders = Holders, trace = Trace, counts = Counts} = State) ->
    case maps:take(Holder, Holders) of
        {Monitor, Others} ->
            erlang:demonitor(Monitor, [flush]),
            emberl_trace:end_counts(Counts),
            map_size(Others) > 0 orelse emberl_trace:let_go(Trace =/= undefined),
            State#state{holders = Others, counts = none};
        error ->
            State
    end.

%% A sampler's many windows are to be cheap.
set_window_modules(#{holder := _}, #{modules := Modules}, #state{trace = Trace}) ->
    emberl_trace:set_all_modules(Trace, Modules);
set_window_modules(_Request, Options, State) ->
    set_modules(Options, State).

set_target_modules(#{breakpoints := there}, _Options, _State) -> ok;
set_target_modules(Request, Options, State) -> set_window_modules(Request, Options, State).

window_timer(#{duration := Duration, options := #{timeout := Timeout}}) when Duration =< Timeout ->
    {Duration, window};
window_timer(#{options := #{timeout := Timeout}}) -> {Timeout, capture}.

open_trace(#state{trace = undefined} = State) ->
    {ReturnTo, Begin, BeginFirst} = emberl_trace:stack_layout(),
    case emberl_nif:start(self(), ReturnTo, Begin, BeginFirst, emberl_trace:own_modules()) of
        {ok, Generation} -> open_trace(Generation, State);
        {error, out_of_memory} -> out_of_memory("a session")
    end;
open_trace(State) ->
    {ok, State}.

open_trace(Generation, State) ->
    case emberl_trace:open(Generation) of
        {ok, Trace} ->
            {ok, State#state{trace = Trace, renewal = start_timer(?RENEWAL_MS, renew)}};
        {error, Reason} ->
            emberl_nif:stop(),
            {error, Reason}
    end.

start_target(Owner, #{mfa := MFA, options := Options} = Request, State) ->
    case take_target(MFA, State) of
        {ok, Target, State1} ->
            is_lazy(Options) orelse set_target_modules(Request, Options, State1),
            start_in_library(Owner, Target, Request, State1);
        {error, Reason} ->
            {error, Reason}
    end.

start_in_library(Owner, Target, Request, State) ->
    case emberl_nif:open(capture(Request), intake(Target, Request)) of
        {ok, Slot} ->
            arm(Owner, Slot, Target, Request, State);
        {error, Reason} ->
            not_opened(Reason, maps:get(mfa, Request))
    end.

not_opened(too_many_captures, Target) -> too_many_captures(Target);
not_opened(out_of_memory, _Target) -> out_of_memory("a capture").

too_many_captures(MFA) ->
    {error, emberl_options:refusal(too_many_captures, MFA, "there are 64 already: stop one")}.

out_of_memory(What) ->
    {error, emberl_options:refusal(out_of_memory, emberl, ["there was no memory for ", What])}.

capture(#{mfa := MFA, hidden := Hidden, options := Options} = Request) ->
    capture(MFA, Hidden, Options, Request).

capture(MFA, Hidden, Options, Request) ->
    #{fold_recursion := Fold, spawned := Spawned, compensate := Compensate,
      memory_limit := Limit, modules := Modules, merge := Merge, timeline := Timeline} = Options,
    {MFA, Hidden, Fold, Spawned, Compensate, Limit, Modules, Merge andalso not Hidden, Timeline,
     keep(Request), maps:get(bounds, Request, none)}.

keep(#{calls := Calls, options := #{keep := {slower_than, Ms}}}) -> {Calls, float(Ms)};
keep(_Request) -> all.

intake(Target, #{from := From, options := Options} = Request) ->
    {Target, admitted_calls(Request), From, wants_values(Request), maps:get(every, Options),
     is_lazy(Options)}.

%% Any number of fast ones may come before the last slow one.
admitted_calls(#{options := #{keep := {slower_than, _Ms}}}) -> 1 bsl 62;
admitted_calls(#{calls := Calls}) -> Calls.

%% The capture is open in the library before the first call can be seen.
arm(Owner, Slot, Target, #{mfa := MFA} = Request, State) ->
    case set_target(Target, MFA, State) of
        {ok, State1} ->
            #{options := #{timeout := Timeout}} = Request,
            Capture = new_capture(Owner, Slot, Target, Request, Timeout, capture),
            {ok, Capture#capture.ref, store(Capture, State1)};
        {error, undefined} ->
            emberl_nif:close(Slot),
            {error, {undefined_function, MFA}}
    end.

new_capture(Owner, Slot, Target, #{options := Options} = Request, Timeout, Message) ->
    Ref = make_ref(),
    Armed = case Target =/= window andalso is_lazy(Options) of true -> waiting; false -> eager end,
    #capture{ref = Ref, slot = Slot, target = Target, request = Request, armed = Armed,
             owner = erlang:monitor(process, Owner), timer = start_timer(Timeout, {Message, Ref})}.

start_timer(infinity, _Message) -> undefined;
start_timer(Timeout, Message) -> erlang:start_timer(Timeout, self(), Message).

cancel_timer(undefined) -> ok;
cancel_timer(Timer) -> erlang:cancel_timer(Timer, [{async, true}, {info, false}]).

store(#capture{ref = Ref} = Capture, #state{captures = Captures} = State) ->
    State#state{captures = Captures#{Ref => Capture}}.

%% ---- targets: one breakpoint for all captures of a function ----

take_target(MFA, #state{targets = Targets} = State) ->
    case Targets of
        #{MFA := {Target, _Users}} -> {ok, Target, State};
        #{} -> free_target(lists:seq(0, 63) -- [T || {T, _} <- maps:values(Targets)], MFA, State)
    end.

free_target([], MFA, _State) -> too_many_captures(MFA);
free_target([Target | _], _MFA, State) -> {ok, Target, State}.

set_target(Target, MFA, #state{trace = Trace, targets = Targets} = State) ->
    case Targets of
        #{MFA := {Target, Users}} ->
            {ok, State#state{targets = Targets#{MFA := {Target, Users + 1}}}};
        #{} ->
            traced(emberl_trace:set_target(Trace, Target, MFA),
                   State#state{targets = Targets#{MFA => {Target, 1}}})
    end.

traced({ok, Trace}, State) -> {ok, State#state{trace = Trace}};
traced({error, Reason}, _State) -> {error, Reason}.

drop_target(MFA, #state{trace = Trace, targets = Targets} = State) ->
    case Targets of
        #{MFA := {Target, 1}} ->
            Left = emberl_trace:clear_target(Trace, Target, MFA),
            State#state{trace = Left, targets = maps:remove(MFA, Targets)};
        #{MFA := {Target, Users}} ->
            State#state{targets = Targets#{MFA := {Target, Users - 1}}}
    end.

%% ---- breakpoints, only while a target is being called ----

is_lazy(#{arm := Arm}) -> Arm =/= eager.

pause(#{arm := lazy}) -> ?PAUSE_MS;
pause(#{arm := {lazy, Pause}}) -> Pause.

set_modules(#{modules := Modules}, #state{trace = Trace}) ->
    emberl_trace:set_modules(Trace, Modules).

called(#capture{armed = waiting, slot = Slot, request = #{options := Options}} = Capture, State) ->
    set_modules(Options, State),
    emberl_nif:arm(Slot),
    store(paused_later(0, Capture), State);
called(_Capture, State) ->
    State.

paused_later(Seen, #capture{ref = Ref, request = #{options := Options}} = Capture) ->
    Capture#capture{armed = {Seen, start_timer(pause(Options), {pause, Ref})}}.

%% A call that was not seen when it was asked tells us again.
paused(Ref, Timer, #state{captures = Captures} = State) ->
    case Captures of
        #{Ref := #capture{armed = {Seen, Timer}, ended = undefined, slot = Slot} = Capture} ->
            disarmed(emberl_nif:disarm(Slot, Seen), Capture, State);
        #{} ->
            State
    end.

disarmed(disarmed, Capture, State) ->
    clear_unused_modules(store(Capture#capture{armed = waiting}, State));
disarmed(Seen, Capture, State) -> store(paused_later(Seen, Capture), State).

clear_unused_modules(#state{trace = Trace, captures = Captures} = State) ->
    case [C || #capture{ended = undefined, armed = Armed} = C <- maps:values(Captures),
               Armed =/= waiting] of
        [] -> emberl_trace:clear_modules(Trace);
        _ -> ok
    end,
    State.

%% ---- results ----

by_slot(Slot, #state{captures = Captures}) ->
    case [C || #capture{slot = S, ended = undefined} = C <- maps:values(Captures), S =:= Slot] of
        [Capture] -> Capture;
        [] -> none
    end.

add_run(Slot, Run, Profile, State) ->
    case by_slot(Slot, State) of
        none -> State;
        Capture -> store(with_run(Run, Profile, Capture), State)
    end.

%% A merged run is remembered only for its value.
with_run(Run, {merged, Pid, HasEnded}, #capture{names = Known, finished = Finished} = Capture0) ->
    Capture = Capture0#capture{names = learn_names(Pid, Known), finished = Finished + 1},
    case wants_values(Capture) of
        true -> Capture#capture{runs = [{Run, {merged, HasEnded}} | Capture#capture.runs]};
        false -> Capture
    end;
%% The profile of all merged runs.
with_run(0, Profile, Capture) ->
    with_profile(0, annotated(Profile, Capture));
with_run(Run, Profile, Capture0) ->
    {Annotated, #capture{finished = Finished} = Capture} = annotated(Profile, Capture0),
    with_profile(Run,
                 {Annotated, Capture#capture{finished = Finished + case is_finished(Annotated) of
                                                                       true -> 1;
                                                                       false -> 0
                                                                   end}}).

with_profile(Run, {Profile, #capture{runs = Runs} = Capture}) ->
    Capture#capture{runs = [{Run, Profile} | Runs]}.

%% The lowest bits of a run are its capture's slot.
add_value(Run, Value, State) ->
    case by_slot(Run band 63, State) of
        #capture{values = Values} = Capture ->
            store(prune(Capture#capture{values = Values#{Run => Value}}), State);
        none ->
            State
    end.

%% Of calls that turned out not to be slow, or will: the older half of those that no
%% result has asked for yet.
prune(#capture{request = #{options := #{keep := {slower_than, _}}}, runs = Runs,
               values = Values} = Capture)
  when map_size(Values) > 2 * length(Runs) + ?MOST_VALUES ->
    Kept = maps:with([Run || {Run, _} <- Runs], Values),
    Pending = lists:sort(maps:keys(maps:without(maps:keys(Kept), Values))),
    Newest = lists:nthtail(length(Pending) div 2, Pending),
    Capture#capture{values = maps:merge(Kept, maps:with(Newest, Values))};
prune(Capture) ->
    Capture.

value(return_from, Value) -> {ok, Value};
value(exception_from, {Class, Reason}) -> {Class, Reason, []}.

%% Each process is asked once; of a dead one the library has what the spawn told.
annotated(out_of_memory, Capture) ->
    {out_of_memory, Capture};
annotated(Profile, #capture{request = #{target := Target}} = Capture) ->
    Pids = [Pid || #{pid := Pid} <- emberl_nif:profile_processes(Profile)],
    Names = learn_all(Pids, Capture),
    Rows = [process_row(N, maps:get(Pid, Names, {undefined, undefined}))
            || {N, Pid} <- lists:zip(lists:seq(0, length(Pids) - 1), Pids)],
    Release = list_to_binary(erlang:system_info(otp_release)),
    try emberl_nif:profile_annotate(Profile, Target, Release, Rows) of
        ok -> {Profile, Capture#capture{names = Names}}
    catch
        error:out_of_memory -> {out_of_memory, Capture}
    end.

process_row(N, {Name, Label}) -> {N, Name, Label, undefined};
process_row(N, {Name, Label, Ancestors}) -> {N, Name, Label, Ancestors}.

%% Of a window's processes, most are known from before it began; nobody waits for others
%% that are busy.
learn_all(Pids, #capture{target = window, names = Known}) ->
    Unknown = [Pid || Pid <- Pids, not is_map_key(Pid, Known)],
    maps:merge(Known, emberl_window:names(Unknown, ?NAMES_MS));
learn_all(Pids, #capture{names = Known}) ->
    lists:foldl(fun learn_names/2, Known, Pids).

learn_names(undefined, Names) -> Names;
learn_names(Pid, Names) when is_map_key(Pid, Names) -> Names;
learn_names(Pid, Names) ->
    try Names#{Pid => emberl_process:known(Pid)}
    catch error:out_of_memory -> Names % it stays without, unless it is asked again
    end.

%% A run that a limit has cut short does not count: why it was cut is still to come.
check_calls(Slot, State) ->
    case by_slot(Slot, State) of
        #capture{ref = Ref, finished = Finished, request = #{calls := Calls, from := any}}
          when Finished >= Calls -> end_capture(Ref, done, State);
        _ -> State
    end.

%% ---- ending ----

timed_out(Ref, Timer, Why, #state{captures = Captures} = State) ->
    case Captures of
        #{Ref := #capture{timer = Timer}} -> end_capture(Ref, Why, State);
        #{} -> State
    end.

limit(#capture{request = #{bounds := _}}) -> done;
limit(_Capture) -> limit.

end_slot(Slot, Why, State) ->
    case by_slot(Slot, State) of
        none -> State;
        #capture{ref = Ref} -> end_capture(Ref, Why, State)
    end.

owner_died(Monitor, #state{captures = Captures} = State) ->
    Orphans = [Ref || #capture{ref = Ref, owner = Owner} <- maps:values(Captures),
                      Owner =:= Monitor],
    lists:foldl(fun(Ref, S) -> forget(Ref, end_capture(Ref, stopped, S)) end, State, Orphans).

forget(Ref, #state{captures = Captures} = State) ->
    State#state{captures = maps:remove(Ref, Captures)}.

end_capture(Ref, Why, #state{captures = Captures} = State) ->
    case maps:get(Ref, Captures) of
        #capture{ended = undefined} = Capture -> end_open(Capture, Why, State);
        #capture{} -> State
    end.

end_open(#capture{ref = Ref, slot = Slot, timer = Timer, request = #{options := Options}} = Open,
         Why, State0) ->
    cancel_timer(Timer),
    Untraced = Open#capture.armed =/= waiting
        andalso emberl_trace:is_disturbed(State0#state.trace, maps:get(modules, Options)),
    State1 = stop_source(Open, State0),
    emberl_nif:close(Slot),
    State2 = take_messages(Slot, State1),
    Capture = maps:get(Ref, State2#state.captures),
    cut(Why, Untraced, Capture),
    Ended = Capture#capture{ended = complete(Why, Capture), timer = undefined},
    close_if_unused(answer(Ended, store(Ended, State2))).

%% Nothing more comes for the capture.
stop_source(#capture{target = window, open = Open}, State) ->
    atomics:put(Open, 1, 0),
    State;
stop_source(#capture{request = #{mfa := MFA}}, State) ->
    drop_target(MFA, State).

%% Marks profiles that are not of all that was asked for.
cut(Why, Untraced, #capture{runs = Runs} = Capture) ->
    [emberl_nif:profile_cut(Profile, cut_by(Why, Untraced, emberl_nif:profile_info(Profile)))
     || {_Run, Profile} <- Runs, is_profile(Profile),
        Untraced orelse is_cut(Why, Profile, Capture)].

is_cut(Why, _Profile, #capture{target = window}) -> Why =/= done;
is_cut(_Why, Profile, _Capture) -> not is_finished(Profile).

cut_by(_Why, true, _Info) -> untraced;
cut_by(limit, false, _Info) -> memory_limit;
cut_by(done, false, #{lost := 0}) -> untraced; % it has returned, and we do not know of it
cut_by(done, false, _Info) -> lost;
cut_by(Why, false, _Info) -> Why.

is_profile(out_of_memory) -> false;
is_profile({merged, _HasEnded}) -> false;
is_profile(_Profile) -> true.

%% A capture that was stopped just as its last call ended has them all.
complete(_Why, #capture{finished = Finished, request = #{calls := Calls}})
  when Finished >= Calls -> done;
complete(Why, _Capture) -> Why.

wants_values(#capture{target = window}) ->
    false;
wants_values(#capture{request = Request}) ->
    wants_values(Request);
wants_values(#{hidden := Hidden, options := #{return := Return}}) ->
    not Hidden andalso lists:member(Return, [value, data, all]).

is_finished(out_of_memory) -> true;
is_finished(Profile) ->
    case emberl_nif:profile_info(Profile) of
        #{cut_by := lost} -> true;
        #{outcome := Outcome} -> Outcome =/= unfinished
    end.

%% What the library has sent for this slot, and values that are still under way:
%% a message from a callback leaves when its scheduler gets to it.
take_messages(Slot, State) ->
    receive
        {emberl_run, Slot, Run, Profile} ->
            take_messages(Slot, add_run(Slot, Run, Profile, State));
        {emberl_limit, Slot} ->
            take_messages(Slot, State);
        {emberl_value, Run, Tag, Value} ->
            take_messages(Slot, add_value(Run, value(Tag, Value), State))
    after missing_values(Slot, State) ->
            State
    end.

missing_values(Slot, State) ->
    #capture{runs = Runs, values = Values} = Capture = by_slot(Slot, State),
    Missing = [Run || {Run, P} <- Runs, Run =/= 0, has_value(P), not maps:is_key(Run, Values)],
    case wants_values(Capture) andalso Missing =/= [] of
        true -> 100;
        false -> 0
    end.

has_value(out_of_memory) -> false;
has_value({merged, HasEnded}) -> HasEnded;
has_value(Profile) ->
    lists:member(maps:get(outcome, emberl_nif:profile_info(Profile)), [returned, raised]).

close_if_unused(#state{trace = undefined} = State) ->
    State;
close_if_unused(#state{trace = Trace, captures = Captures} = State) ->
    case [Ref || #capture{ref = Ref, ended = undefined} <- maps:values(Captures)] of
        [] ->
            emberl_trace:close(Trace),
            emberl_nif:stop(),
            erlang:garbage_collect(), % lets go of profiles that were given out
            cancel_timer(State#state.renewal),
            State#state{trace = undefined, renewal = undefined, targets = #{}};
        _ ->
            clear_unused_modules(State)
    end.

%% ---- answering ----

end_and_reply(Ref, Why, From, #state{captures = Captures} = State) ->
    case maps:is_key(Ref, Captures) of
        true ->
            reply_ended(Ref, From, end_capture(Ref, Why, State));
        false ->
            {reply, unknown_capture(Ref), State}
    end.

%% Where another process awaits it, that one has got the results.
reply_ended(Ref, From, #state{captures = Captures} = State) ->
    case Captures of
        #{Ref := Capture} ->
            {noreply, answer(Capture#capture{waiting = {From, undefined}}, State)};
        #{} ->
            {reply, {error, already_awaited}, State}
    end.

unknown_capture(Ref) ->
    {error, emberl_options:refusal(unknown_capture, Ref, "its results have been given out, or who "
                                   "started it has ended")}.

wait(error, Ref, _Timeout, _From, State) ->
    {reply, unknown_capture(Ref), State};
wait({ok, #capture{ended = undefined, waiting = undefined} = Capture}, Ref, Timeout, From, State) ->
    Timer = start_timer(Timeout, {await, Ref}),
    {noreply, store(Capture#capture{waiting = {From, Timer}}, State)};
wait({ok, #capture{ended = undefined}}, _Ref, _Timeout, _From, State) ->
    {reply, {error, already_awaited}, State};
wait({ok, Capture}, _Ref, _Timeout, From, State) ->
    {noreply, answer(Capture#capture{waiting = {From, undefined}}, State)}.

await_timed_out(Ref, Timer, #state{captures = Captures} = State) ->
    case Captures of
        #{Ref := #capture{waiting = {From, Timer}} = Capture} ->
            gen_server:reply(From, {error, timeout}),
            store(Capture#capture{waiting = undefined}, State);
        #{} ->
            State
    end.

%% Once answered, a capture is forgotten.
answer(#capture{waiting = undefined}, State) ->
    State;
answer(#capture{ref = Ref, owner = Owner, waiting = {From, Timer}, ended = Why} = Capture, State) ->
    cancel_timer(Timer),
    erlang:demonitor(Owner, [flush]),
    gen_server:reply(From, {Why, calls(Capture), Capture#capture.request}),
    forget(Ref, State).

%% Finished calls in the order of their end, then the unfinished. Where calls are
%% merged: profiles with the values of all their calls.
calls(#capture{request = #{hidden := false, options := #{merge := true}}, runs = Runs,
               values = Values}) ->
    Merged = [maps:get(Run, Values, unknown) || {Run, {merged, _}} <- lists:reverse(Runs)],
    [{Profile, Merged} || {0, Profile} <- Runs]
        ++ [{profile(Profile), [unfinished]}
            || {Run, Profile} <- Runs, Run =/= 0, not is_tuple(Profile)];
calls(#capture{runs = Runs, values = Values}) ->
    Calls = [{Profile, maps:get(Run, Values, unknown)} || {Run, Profile} <- lists:reverse(Runs)],
    {Finished, Unfinished} = lists:partition(fun({P, _}) -> is_finished(P) end, Calls),
    [{profile(P), Value} || {P, Value} <- Finished] ++ [{P, unfinished} || {P, _} <- Unfinished].

profile(out_of_memory) ->
    out_of_memory("its profile");
profile(Profile) ->
    Profile.
