%% SPDX-License-Identifier: Apache-2.0
%% @private
%% Owns all captures of the node: the VM's tracing (so its death ends that), the
%% library's session, and the results until they are asked for. Both exist from
%% the first capture to the last.
%%
%% A capture ends when it has its calls, by its timeout, by its memory limit, when
%% it is stopped, or with the process that started it. Closing it in the library
%% sends us its unfinished runs before it returns, so what is in the mailbox then
%% is all there will be.
-module(emberl_server).
-behaviour(gen_server).

-export([start_link/0, start_capture/1, finish/1, await/2, stop/1, stop_all/0, tell_janitor/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).
-export_type([request/0, outcome/0]).

-type request() :: #{mfa := mfa(),            % what is captured
                     calls := pos_integer(),
                     from := pid() | any,     % whose calls
                     hidden := boolean(),     % the target's own frame is not shown
                     target := binary(),      % as text
                     options := emberl_options:options()}.
-type outcome() :: {done | timeout | stopped | limit, [emberl_output:call()]}.

-record(capture,
        {ref :: reference(),
         slot :: emberl_nif:slot(),
         target :: 0..63,
         request :: request(),
         owner :: reference(),                       % monitor
         timer :: reference() | undefined,
         runs = [] :: [{pos_integer(), term()}],     % newest first
         finished = 0 :: non_neg_integer(),          % of them
         names = #{} :: #{pid() => {binary() | undefined, binary() | undefined}},
         values = #{} :: #{pos_integer() => term()}, % by run
         ended :: undefined | done | timeout | stopped | limit,
         waiting :: undefined | {gen_server:from(), reference() | undefined}}).

-record(state,
        {trace :: undefined | emberl_trace:trace(),
         targets = #{} :: #{mfa() => {0..63, pos_integer()}}, % number, users
         captures = #{} :: #{reference() => #capture{}}}).

-spec start_link() -> gen_server:start_ret().
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% The capture belongs to the caller.
-spec start_capture(request()) -> {ok, reference()} | {error, term()}.
start_capture(Request) ->
    call({start, self(), Request}).

%% The captured call is over: what there is now is all.
-spec finish(reference()) -> outcome() | {error, already_awaited | unknown_capture}.
finish(Ref) ->
    call({finish, Ref}).

-spec await(reference(), timeout()) -> outcome() | {error, timeout | already_awaited | unknown_capture}.
await(Ref, Timeout) ->
    call({await, Ref, Timeout}).

-spec stop(reference()) -> outcome() | {error, already_awaited | unknown_capture}.
stop(Ref) ->
    call({stop, Ref}).

-spec stop_all() -> ok.
stop_all() ->
    call(stop_all).

%% There is a new janitor.
-spec tell_janitor() -> ok.
tell_janitor() ->
    gen_server:cast(?MODULE, tell_janitor).

call(Request) ->
    {ok, _} = application:ensure_all_started(emberl),
    gen_server:call(?MODULE, Request, infinity).

%% ---- callbacks ----

-spec init([]) -> {ok, #state{}}.
init([]) ->
    process_flag(trap_exit, true),
    process_flag(sensitive, true),
    ok = emberl_janitor:clean_up(),
    emberl_layout:check(),
    {ok, #state{}}.

-spec handle_call(term(), gen_server:from(), #state{}) ->
          {reply, term(), #state{}} | {noreply, #state{}}.
handle_call({start, Owner, Request}, _From, State) ->
    start_result(start(Owner, Request, State), State);
handle_call({finish, Ref}, From, State) ->
    end_and_reply(Ref, done, From, State);
handle_call({stop, Ref}, From, State) ->
    end_and_reply(Ref, stopped, From, State);
handle_call({await, Ref, Timeout}, From, State) ->
    wait(maps:find(Ref, State#state.captures), Timeout, From, State);
handle_call(stop_all, _From, State) ->
    Refs = maps:keys(State#state.captures),
    {reply, ok, lists:foldl(fun(Ref, S) -> end_capture(Ref, stopped, S) end, State, Refs)}.

start_result({ok, Ref, State}, _Old) -> {reply, {ok, Ref}, State};
start_result({error, Reason}, Old) -> {reply, {error, Reason}, Old}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(tell_janitor, #state{trace = Trace} = State) when Trace =/= undefined ->
    ok = emberl_janitor:watch(Trace),
    {noreply, State};
handle_cast(_Message, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({emberl_run, Slot, Run, Profile}, State) ->
    {noreply, check_calls(Slot, add_run(Slot, Run, Profile, State))};
handle_info({emberl_value, Run, Tag, Value}, State) ->
    {noreply, add_value(Run, value(Tag, Value), State)};
handle_info({emberl_limit, Slot}, State) ->
    {noreply, end_slot(Slot, limit, State)};
handle_info({timeout, Timer, {capture, Ref}}, State) ->
    {noreply, timed_out(Ref, Timer, State)};
handle_info({timeout, Timer, {await, Ref}}, State) ->
    {noreply, await_timed_out(Ref, Timer, State)};
handle_info({'DOWN', Monitor, process, _Pid, _Reason}, State) ->
    {noreply, owner_died(Monitor, State)};
handle_info(_Message, State) ->
    {noreply, State}.

-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, State) ->
    Refs = maps:keys(State#state.captures),
    lists:foldl(fun(Ref, S) -> end_capture(Ref, stopped, S) end, State, Refs),
    ok.

%% ---- starting ----

%% What a start that fails has opened is closed again.
start(Owner, Request, State0) ->
    case open_trace(State0) of
        {ok, State1} -> started(start_target(Owner, Request, State1), State1);
        {error, Reason} -> {error, Reason}
    end.

started({ok, Ref, State}, _Opened) ->
    {ok, Ref, State};
started({error, Reason}, Opened) ->
    _ = close_if_unused(Opened),
    {error, Reason}.

open_trace(#state{trace = undefined} = State) ->
    {ReturnTo, Begin, BeginFirst} = emberl_trace:stack_layout(),
    {ok, Generation} = emberl_nif:start(self(), ReturnTo, Begin, BeginFirst),
    case emberl_trace:open(Generation) of
        {ok, Trace} ->
            ok = emberl_janitor:watch(Trace),
            {ok, State#state{trace = Trace}};
        {error, Reason} ->
            emberl_nif:stop(),
            {error, Reason}
    end;
open_trace(State) ->
    {ok, State}.

start_target(Owner, #{mfa := MFA, options := Options} = Request, State) ->
    case take_target(MFA, State) of
        {ok, Target, State1} ->
            emberl_trace:set_modules(State1#state.trace, maps:get(modules, Options)),
            start_in_library(Owner, Target, Request, State1);
        {error, Reason} ->
            {error, Reason}
    end.

start_in_library(Owner, Target, Request, State) ->
    case emberl_nif:open(capture(Request), intake(Target, Request)) of
        {ok, Slot} ->
            arm(Owner, Slot, Target, Request, State);
        {error, Reason} ->
            {error, Reason}
    end.

capture(#{mfa := MFA, hidden := Hidden, options := Options}) ->
    #{fold_recursion := Fold, spawned := Spawned, compensate := Compensate,
      memory_limit := Limit, modules := Modules} = Options,
    {MFA, Hidden, Fold, Spawned, Compensate, Limit, Modules}.

intake(Target, #{calls := Calls, from := From, hidden := Hidden, options := #{return := Return}}) ->
    {Target, Calls, From, not Hidden andalso (Return =:= value orelse Return =:= all)}.

%% The capture is open in the library before the first call can be seen.
arm(Owner, Slot, Target, #{mfa := MFA} = Request, State) ->
    case set_target(Target, MFA, State) of
        {ok, State1} ->
            Capture = new_capture(Owner, Slot, Target, Request),
            {ok, Capture#capture.ref, store(Capture, State1)};
        {error, undefined} ->
            emberl_nif:close(Slot),
            {error, {undefined_function, MFA}}
    end.

new_capture(Owner, Slot, Target, #{options := #{timeout := Timeout}} = Request) ->
    Ref = make_ref(),
    #capture{ref = Ref, slot = Slot, target = Target, request = Request,
             owner = erlang:monitor(process, Owner), timer = start_timer(Timeout, {capture, Ref})}.

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
        #{} -> free_target(lists:seq(0, 63) -- [T || {T, _} <- maps:values(Targets)], State)
    end.

free_target([], _State) -> {error, too_many_captures};
free_target([Target | _], State) -> {ok, Target, State}.

set_target(Target, MFA, #state{trace = Trace, targets = Targets} = State) ->
    case Targets of
        #{MFA := {Target, Users}} ->
            {ok, State#state{targets = Targets#{MFA := {Target, Users + 1}}}};
        #{} ->
            watched(emberl_trace:set_target(Trace, Target, MFA),
                    State#state{targets = Targets#{MFA => {Target, 1}}})
    end.

watched({ok, Trace}, State) ->
    ok = emberl_janitor:watch(Trace),
    {ok, State#state{trace = Trace}};
watched({error, Reason}, _State) ->
    {error, Reason}.

drop_target(MFA, #state{trace = Trace, targets = Targets} = State) ->
    case Targets of
        #{MFA := {Target, 1}} ->
            Left = emberl_trace:clear_target(Trace, Target, MFA),
            State#state{trace = Left, targets = maps:remove(MFA, Targets)};
        #{MFA := {Target, Users}} ->
            State#state{targets = Targets#{MFA := {Target, Users - 1}}}
    end.

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

with_run(Run, Profile, Capture0) ->
    #capture{runs = Runs, finished = Finished} = Capture = annotate(Profile, Capture0),
    Capture#capture{runs = [{Run, Profile} | Runs],
                    finished = Finished + case is_finished(Profile) of true -> 1; false -> 0 end}.

add_value(Run, Value, #state{captures = Captures} = State) ->
    Waiting = [C || #capture{request = #{hidden := false}, ended = undefined} = C
                        <- maps:values(Captures)],
    lists:foldl(fun(#capture{values = Values} = C, S) ->
                        store(C#capture{values = Values#{Run => Value}}, S)
                end, State, Waiting).

value(return_from, Value) -> {ok, Value};
value(exception_from, {Class, Reason}) -> {Class, Reason, []}.

%% Asking a busy process takes until it is scheduled out, so each is asked once.
annotate(out_of_memory, Capture) ->
    Capture;
annotate(Profile, #capture{request = #{target := Target}, names = Known} = Capture) ->
    Pids = [Pid || #{pid := Pid} <- emberl_nif:profile_processes(Profile)],
    Names = lists:foldl(fun learn_names/2, Known, Pids),
    Rows = [{N, Name, Label} || {N, Pid} <- lists:zip(lists:seq(0, length(Pids) - 1), Pids),
                                {Name, Label} <- [maps:get(Pid, Names)]],
    Release = list_to_binary(erlang:system_info(otp_release)),
    emberl_nif:profile_annotate(Profile, Target, Release, Rows),
    Capture#capture{names = Names}.

learn_names(Pid, Names) when is_map_key(Pid, Names) -> Names;
learn_names(Pid, Names) -> Names#{Pid => {name(Pid), label(Pid)}}.

name(Pid) ->
    case erlang:process_info(Pid, registered_name) of
        {registered_name, Name} -> text("~tp", Name);
        _ -> undefined
    end.

%% What the process calls itself, or what it was started with; of a dead one the
%% library has what the spawn told.
label(Pid) ->
    case process_label(Pid) of
        undefined -> initial_call(erlang:process_info(Pid, initial_call), Pid);
        Label -> text("~tp", Label)
    end.

-dialyzer({no_missing_calls, process_label/1}). % from OTP 27 on
process_label(Pid) ->
    case erlang:function_exported(proc_lib, get_label, 1) of
        true -> proc_lib:get_label(Pid);
        false -> undefined
    end.

initial_call({initial_call, {proc_lib, init_p, _}}, Pid) ->
    {M, F, A} = proc_lib:translate_initial_call(Pid),
    text("~tp:~tp/~b", M, F, A);
initial_call({initial_call, {M, F, A}}, _Pid) when M =/= erlang; F =/= apply ->
    text("~tp:~tp/~b", M, F, A);
initial_call(_, _Pid) ->
    undefined.

text(Format, Term) -> unicode:characters_to_binary(io_lib:format(Format, [Term])).
text(Format, M, F, A) -> unicode:characters_to_binary(io_lib:format(Format, [M, F, A])).

%% A run that a limit has cut short does not count: why it was cut is still to come.
check_calls(Slot, State) ->
    case by_slot(Slot, State) of
        #capture{ref = Ref, finished = Finished, request = #{calls := Calls, from := any}}
          when Finished >= Calls -> end_capture(Ref, done, State);
        _ -> State
    end.

%% ---- ending ----

timed_out(Ref, Timer, #state{captures = Captures} = State) ->
    case Captures of
        #{Ref := #capture{timer = Timer}} -> end_capture(Ref, timeout, State);
        #{} -> State
    end.

end_slot(Slot, Why, State) ->
    case by_slot(Slot, State) of
        none -> State;
        #capture{ref = Ref} -> end_capture(Ref, Why, State)
    end.

owner_died(Monitor, #state{captures = Captures} = State) ->
    Orphans = [Ref || #capture{ref = Ref, owner = Owner} <- maps:values(Captures), Owner =:= Monitor],
    lists:foldl(fun(Ref, S) -> forget(Ref, end_capture(Ref, stopped, S)) end, State, Orphans).

forget(Ref, #state{captures = Captures} = State) ->
    State#state{captures = maps:remove(Ref, Captures)}.

end_capture(Ref, Why, #state{captures = Captures} = State) ->
    case maps:get(Ref, Captures) of
        #capture{ended = undefined} = Capture -> end_open(Capture, Why, State);
        #capture{} -> State
    end.

end_open(#capture{ref = Ref, slot = Slot, timer = Timer, request = #{mfa := MFA}}, Why, State0) ->
    cancel_timer(Timer),
    State1 = drop_target(MFA, State0),
    emberl_nif:close(Slot),
    State2 = take_messages(Slot, State1),
    Capture = maps:get(Ref, State2#state.captures),
    Ended = Capture#capture{ended = complete(Why, Capture), timer = undefined},
    close_if_unused(answer(Ended, store(Ended, State2))).

%% A capture that was stopped just as its last call ended has them all.
complete(_Why, #capture{finished = Finished, request = #{calls := Calls}})
  when Finished >= Calls -> done;
complete(Why, _Capture) -> Why.

is_finished(out_of_memory) -> true;
is_finished(Profile) -> maps:get(outcome, emberl_nif:profile_info(Profile)) =/= unfinished.

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
    case by_slot(Slot, State) of
        #capture{request = #{hidden := false, options := #{return := Return}},
                 runs = Runs, values = Values} when Return =:= value; Return =:= all ->
            case [Run || {Run, P} <- Runs, has_value(P), not maps:is_key(Run, Values)] of
                [] -> 0;
                _ -> 100
            end;
        _ ->
            0
    end.

has_value(out_of_memory) -> false;
has_value(Profile) ->
    lists:member(maps:get(outcome, emberl_nif:profile_info(Profile)), [returned, raised]).

close_if_unused(#state{trace = undefined} = State) ->
    State;
close_if_unused(#state{trace = Trace, captures = Captures} = State) ->
    case [Ref || #capture{ref = Ref, ended = undefined} <- maps:values(Captures)] of
        [] ->
            emberl_trace:close(Trace),
            ok = emberl_janitor:watch(none),
            emberl_nif:stop(),
            State#state{trace = undefined, targets = #{}};
        _ ->
            State
    end.

%% ---- answering ----

end_and_reply(Ref, Why, From, #state{captures = Captures} = State) ->
    case maps:is_key(Ref, Captures) of
        true ->
            reply_ended(Ref, From, end_capture(Ref, Why, State));
        false ->
            {reply, {error, unknown_capture}, State}
    end.

%% Where another process awaits it, that one has got the results.
reply_ended(Ref, From, #state{captures = Captures} = State) ->
    case Captures of
        #{Ref := Capture} ->
            {noreply, answer(Capture#capture{waiting = {From, undefined}}, State)};
        #{} ->
            {reply, {error, already_awaited}, State}
    end.

wait(error, _Timeout, _From, State) ->
    {reply, {error, unknown_capture}, State};
wait({ok, #capture{ended = undefined, waiting = undefined} = Capture}, Timeout, From, State) ->
    Timer = start_timer(Timeout, {await, Capture#capture.ref}),
    {noreply, store(Capture#capture{waiting = {From, Timer}}, State)};
wait({ok, #capture{ended = undefined}}, _Timeout, _From, State) ->
    {reply, {error, already_awaited}, State};
wait({ok, Capture}, _Timeout, From, State) ->
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
    gen_server:reply(From, {Why, calls(Capture)}),
    forget(Ref, State).

%% Finished calls in the order of their end, then the unfinished.
calls(#capture{runs = Runs, values = Values}) ->
    Calls = [{Profile, maps:get(Run, Values, unknown)} || {Run, Profile} <- lists:reverse(Runs)],
    {Finished, Unfinished} = lists:partition(fun({P, _}) -> is_finished(P) end, Calls),
    Finished ++ [{P, unfinished} || {P, _} <- Unfinished].
