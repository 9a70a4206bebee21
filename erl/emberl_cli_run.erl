%% SPDX-License-Identifier: Apache-2.0
%% @private
%% Profiles what `emberl run' runs, to its end or to a signal.
-module(emberl_cli_run).
-behaviour(gen_event).

-export([profile/2]).
-export([init/1, handle_event/2, handle_call/2, handle_info/2]).

-type outcome() :: emberl_worker:outcome() | {signal, sigterm}.

%% Where the node is ended inside, it says that there is no profile.
-spec profile(emberl_program:target(), map()) ->
          {ok, emberl_profile:profile(), outcome()} | {error, term()}.
profile(Call, Given) ->
    emberl_nif:owe_profile(true),
    try started(emberl_options:parse(apply, Given), Call)
    after emberl_nif:owe_profile(false)
    end.

started({error, Reason}, _Call) ->
    {error, Reason};
started({ok, Options}, Call) ->
    Text = emberl_call:text(Call),
    emberl_calibrate:ensure(),
    Worker = emberl_worker:start(Call),
    case emberl_control:start_capture(emberl_call:request(emberl_worker:pid(Worker), Text,
                                                          Options)) of
        {ok, Capture} ->
            Outcome = outcome(Worker),
            finished(emberl_control:finish(Capture), Outcome);
        {error, Reason} ->
            {error, Reason}
    end.

%% The VM's own handler would end the node.
outcome(Worker) ->
    ok = gen_event:swap_handler(erl_signal_server, {erl_signal_handler, replaced},
                                {?MODULE, {self(), emberl_worker:pid(Worker)}}),
    Outcome = emberl_worker:run(Worker, infinity),
    receive {?MODULE, Signal} -> {signal, Signal}
    after 0 -> Outcome
    end.

finished({_Why, [{Profile, _} | _], _Request}, Outcome) when Profile =/= out_of_memory ->
    {ok, Profile, Outcome};
finished({error, Reason}, _Outcome) ->
    {error, Reason};
finished(_Nothing, _Outcome) ->
    {error, emberl_options:refusal(not_traced, emberl, "nothing was recorded")}.

%% ---- signals ----

-type state() :: {pid(), pid()} | ending. % to be told, to be ended

-spec init({{pid(), pid()}, term()}) -> {ok, state()}.
init({Processes, _FromTheOther}) ->
    {ok, Processes}.

-spec handle_event(atom(), state()) -> {ok, state()}.
handle_event(sigterm, {Runner, Worker}) ->
    Runner ! {?MODULE, sigterm},
    exit(Worker, kill),
    {ok, ending};
handle_event(sigterm, ending) ->
    halt(1, [{flush, false}]);
handle_event(_Signal, State) ->
    {ok, State}.

-spec handle_call(term(), state()) -> {ok, ok, state()}.
handle_call(_Request, State) ->
    {ok, ok, State}.

-spec handle_info(term(), state()) -> {ok, state()}.
handle_info(_Message, State) ->
    {ok, State}.
