%% SPDX-License-Identifier: Apache-2.0
%% @private
-module(emberl_app).
-behaviour(application).

-export([start/2, prep_stop/1, stop/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Args) ->
    emberl_sup:start_link().

%% A sampler of somebody else's supervisor would start us again.
-spec prep_stop(State) -> State.
prep_stop(State) ->
    emberl_sampler:halt_all(),
    State.

-spec stop(term()) -> ok.
stop(_State) ->
    ok.
