%% SPDX-License-Identifier: Apache-2.0
%% A server as there are many, to capture calls in.
-module(emberl_test_server).
-behaviour(gen_server).

-export([start_link/0, init/1, handle_call/3, handle_cast/2]).

start_link() ->
    gen_server:start_link(?MODULE, [], []).

init([]) ->
    {ok, 0}.

handle_call(crash, _From, _State) ->
    error(crashed);
handle_call({add, N}, _From, Sum) ->
    {reply, emberl_work:leaf(Sum + N), Sum + N}.

handle_cast(_Message, Sum) ->
    {noreply, Sum}.
