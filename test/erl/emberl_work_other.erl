%% SPDX-License-Identifier: Apache-2.0
%% Another module than emberl_work.
-module(emberl_work_other).

-export([adder/1, call_back/1, leaf/1]).

leaf(X) -> X.

adder(X) -> fun(Y) -> leaf(X + Y) end.

call_back(Fun) ->
    leaf(before),
    Fun(),
    leaf(behind).
