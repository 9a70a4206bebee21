%% SPDX-License-Identifier: Apache-2.0
%% A tracer that does nothing; see noop_tracer.c.
-module(noop_tracer).

-export([enabled/3, trace/5]).
-nifs([enabled/3, trace/5]).
-on_load(load/0).

load() ->
    erlang:load_nif(filename:join(filename:dirname(code:which(?MODULE)), "noop_tracer"), 0).

enabled(_Tag, _State, _Tracee) -> erlang:nif_error(not_loaded).

trace(_Tag, _State, _Tracee, _Term, _Opts) -> erlang:nif_error(not_loaded).
