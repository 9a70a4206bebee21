%% SPDX-License-Identifier: Apache-2.0
%% @private
%% Cleans up after a server that was killed: whatever it had set in the VM and
%% in the library goes, so that nothing is traced for nobody.
%%
%% The server starts it, and another when it was killed. It is neither linked to
%% the supervisor nor in its application: either would take it along when it dies.
-module(emberl_janitor).
-behaviour(gen_server).

-export([clean_up/0, watch/0, release/0]).
-define(TRIES, 10).

-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

%% The caller is a new server. What the one before has left goes now, rather than
%% when its death becomes known, since that would take the new one's things.
%% Returns a monitor of the janitor.
-spec clean_up() -> reference().
clean_up() ->
    ask(clean_up).

%% The janitor of the caller has died: there is another now.
-spec watch() -> reference().
watch() ->
    ask(watch).

%% The caller ends and has cleaned up by itself.
-spec release() -> ok.
release() ->
    try gen_server:call(?MODULE, {release, self()}, infinity)
    catch exit:_ -> ok
    end.

%% The one that was found may be about to end. Each dies where the library cannot be
%% loaded, and then so does the caller.
ask(Request) ->
    ask(Request, ?TRIES).

ask(_Request, 0) ->
    exit(no_janitor);
ask(Request, Tries) ->
    Janitor = ensure(gen_server:start({local, ?MODULE}, ?MODULE, [], [])),
    Monitor = erlang:monitor(process, Janitor),
    try gen_server:call(Janitor, {Request, self()}, infinity) of
        ok -> Monitor
    catch
        exit:_ ->
            erlang:demonitor(Monitor, [flush]),
            ask(Request, Tries - 1)
    end.

ensure({ok, Pid}) -> Pid;
ensure({error, {already_started, Pid}}) -> Pid;
ensure({error, killed}) -> ensure(gen_server:start({local, ?MODULE}, ?MODULE, [], [])).

%% ---- callbacks ----

-spec init([]) -> {ok, none}.
init([]) ->
    process_flag(sensitive, true),
    {ok, none}.

-spec handle_call({clean_up | watch | release, pid()}, gen_server:from(), none | reference()) ->
          {reply, ok, reference()} | {stop, normal, ok, none}.
handle_call({Request, Server}, _From, Monitor) ->
    forget(Monitor),
    case Request of
        clean_up ->
            clean(),
            {reply, ok, erlang:monitor(process, Server)};
        watch ->
            {reply, ok, erlang:monitor(process, Server)};
        release ->
            {stop, normal, ok, none}
    end.

forget(none) -> true;
forget(Monitor) -> erlang:demonitor(Monitor, [flush]).

-spec handle_cast(term(), State) -> {noreply, State}.
handle_cast(_Message, State) ->
    {noreply, State}.

-spec handle_info(term(), State) -> {noreply, State} | {stop, normal, none}.
handle_info({'DOWN', Monitor, process, _Pid, _Reason}, Monitor) ->
    clean(),
    {stop, normal, none};
handle_info(_Message, State) ->
    {noreply, State}.

clean() ->
    emberl_trace:clear_remains(),
    emberl_nif:stop().
