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
    {ok, {Flags, [child(emberl_control) | samplers(application:get_env(emberl, sample))]}}.

%% One that cannot be started is no reason to do without all the rest.
samplers({ok, Options}) ->
    case emberl_sample_options:parse(Options) of
        {ok, _} ->
            [emberl_sampler:child_spec(Options)];
        {error, {bad_option, Key, Text}} ->
            logger:error("emberl: does not sample: ~0tp: ~ts", [Key, Text]),
            []
    end;
samplers(undefined) ->
    [].

child(Module) ->
    #{id => Module, start => {Module, start_link, []}, shutdown => 5000}.
