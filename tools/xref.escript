#!/usr/bin/env escript
%% SPDX-License-Identifier: Apache-2.0
%% Fails on calls of functions that do not exist, and on functions that nobody
%% calls.

%% There from OTP 27 on; before, we do not call them.
-define(SINCE_27, [{proc_lib, get_label, 1}]).

main([Ebin]) ->
    {ok, _} = xref:start(x),
    ok = xref:set_default(x, [{warnings, false}, {verbose, false}]),
    ok = xref:set_library_path(x, code_path),
    {ok, _} = xref:add_directory(x, Ebin),
    {ok, Undefined} = xref:analyze(x, undefined_function_calls),
    {ok, Unused} = xref:analyze(x, locals_not_used),
    Release = list_to_integer(erlang:system_info(otp_release)),
    Faults = [Call || {_, Callee} = Call <- Undefined, Release >= 27 orelse not is_new(Callee)]
        ++ Unused,
    [io:format("xref: ~tp~n", [Fault]) || Fault <- Faults],
    io:format("xref: ~b faults~n", [length(Faults)]),
    halt(min(1, length(Faults))).

is_new({trace, _, _}) -> true;
is_new(Callee) -> lists:member(Callee, ?SINCE_27).
