%% SPDX-License-Identifier: Apache-2.0
%% @private
%% Cleans up after a server that was killed: whatever it had set in the VM and
%% in the library goes, so that nothing is traced for nobody. A janitor that was
%% killed itself is told again.
-module(emberl_janitor).
-behaviour(gen_server).

-export([start_link/0, clean_up/0, watch/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-spec start_link() -> gen_server:start_ret().
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% The caller is a new server. What the one before has left goes now, rather than
%% when its death becomes known, since that would take the new one's things.
-spec clean_up() -> ok.
clean_up() ->
    gen_server:call(?MODULE, clean_up, infinity).

%% The caller has opened this trace, or `none` when it has closed it.
-spec watch(emberl_trace:trace() | none) -> ok.
watch(Trace) ->
    gen_server:call(?MODULE, {watch, self(), Trace}, infinity).

-spec init([]) -> {ok, none}.
init([]) ->
    process_flag(sensitive, true),
    emberl_server:tell_janitor(),
    {ok, none}.

-spec handle_call(term(), gen_server:from(), term()) -> {reply, term(), term()}.
handle_call(clean_up, _From, State) ->
    forget(State),
    close(State),
    {reply, ok, none};
handle_call({watch, _Pid, none}, _From, State) ->
    forget(State),
    {reply, ok, none};
handle_call({watch, Pid, Trace}, _From, State) ->
    forget(State),
    {reply, ok, {erlang:monitor(process, Pid), Trace}}.

forget(none) -> true;
forget({Monitor, _Trace}) -> erlang:demonitor(Monitor, [flush]).

-spec handle_cast(term(), term()) -> {noreply, term()}.
handle_cast(_Message, State) ->
    {noreply, State}.

-spec handle_info(term(), term()) -> {noreply, term()}.
handle_info({'DOWN', Monitor, process, _Pid, _Reason}, {Monitor, _Trace} = State) ->
    close(State),
    {noreply, none};
handle_info(_Message, State) ->
    {noreply, State}.

close(none) ->
    emberl_nif:stop();
close({_Monitor, Trace}) ->
    emberl_trace:close(Trace),
    emberl_nif:stop().
