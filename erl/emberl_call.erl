%% SPDX-License-Identifier: Apache-2.0
%% @private
%% What `emberl:apply/2` captures: the call that runs the user's function in
%% the calling process.
-module(emberl_call).

-export([run/1, target/0]).

%% Calling a fun through erlang:apply/2 would show a frame the user did not
%% write, so the usual arities are called as such.
-spec run({module(), atom(), [term()]} | {fun(), [term()]}) -> term().
run({Module, Function, Arguments}) -> apply(Module, Function, Arguments);
run({Fun, []}) -> Fun();
run({Fun, [A]}) -> Fun(A);
run({Fun, [A, B]}) -> Fun(A, B);
run({Fun, [A, B, C]}) -> Fun(A, B, C);
run({Fun, Arguments}) -> apply(Fun, Arguments).

-spec target() -> mfa().
target() -> {?MODULE, run, 1}.
