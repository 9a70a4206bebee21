%% SPDX-License-Identifier: Apache-2.0
%% @private
-module(emberl_sup).
-behaviour(supervisor).

-export([start_link/0, init/1]).

-spec start_link() -> supervisor:startlink_ret().
start_link() ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, []).

-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    Flags = #{strategy => one_for_one, intensity => 10, period => 1},
    {ok, {Flags, [child(emberl_janitor), child(emberl_server)]}}.

child(Module) ->
    #{id => Module, start => {Module, start_link, []}, shutdown => 5000}.
