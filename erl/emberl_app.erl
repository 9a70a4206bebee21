%% SPDX-License-Identifier: Apache-2.0
%% @private
-module(emberl_app).
-behaviour(application).

-export([start/2, stop/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Args) ->
    emberl_sup:start_link().

-spec stop(term()) -> ok.
stop(_State) ->
    ok.
