%% SPDX-License-Identifier: Apache-2.0
%% NIFs that give back what they get: on a normal scheduler, on dirty ones, and
%% one that goes from the first to the second. Two that stop the thread that takes the
%% events, as a busy machine might, and let it go on. And one that keeps its scheduler
%% for some milliseconds.
-module(emberl_test_nif).

-export([plain/1, dirty_cpu/1, dirty_io/1, rescheduled/1, stall/0, resume/0, hold/1]).
-nifs([plain/1, dirty_cpu/1, dirty_io/1, rescheduled/1, stall/0, resume/0, hold/1]).
-on_load(load/0).

load() ->
    Directory = filename:dirname(code:which(?MODULE)),
    erlang:load_nif(filename:join(Directory, ?MODULE_STRING), 0).

plain(_) -> erlang:nif_error(not_loaded).
dirty_cpu(_) -> erlang:nif_error(not_loaded).
dirty_io(_) -> erlang:nif_error(not_loaded).
rescheduled(_) -> erlang:nif_error(not_loaded).
stall() -> erlang:nif_error(not_loaded).
resume() -> erlang:nif_error(not_loaded).
hold(_) -> erlang:nif_error(not_loaded).
