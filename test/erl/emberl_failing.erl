%% SPDX-License-Identifier: Apache-2.0
%% Memory, and threads, that the library asks for in vain. In a VM that has it preloaded.
-module(emberl_failing).

-export([library/0, fail/2, succeed/0, live/0]).
-nifs([fail/2, succeed/0, live/0]).
-on_load(load/0).

load() ->
    erlang:load_nif(filename:rootname(library()), 0).

%% What is to be preloaded.
-spec library() -> file:filename().
library() ->
    filename:absname(filename:join(filename:dirname(code:which(?MODULE)), ?MODULE_STRING ".so")).

%% The N-th allocation from now on fails, alone or with all that follow.
-spec fail(pos_integer(), boolean()) -> ok.
fail(_N, _Alone) -> erlang:nif_error(not_loaded).

%% None fails; how many there were since then.
-spec succeed() -> non_neg_integer().
succeed() -> erlang:nif_error(not_loaded).

%% How many there are that have not been freed.
-spec live() -> non_neg_integer().
live() -> erlang:nif_error(not_loaded).
