%% SPDX-License-Identifier: Apache-2.0
%% @private
%% What `emberl:apply/2' captures: the call that runs the user's function in
%% the calling process. Before and after it the library is told what binaries the
%% process refers to, which it cannot see between collections.
-module(emberl_call).

-export([run/1, result/1, text/1, target/0, request/3]).
-export_type([call/0]).

-type call() :: {module(), atom(), [term()]} | {fun(), [term()]}.

-spec run(call()) -> term().
run(Call) ->
    emberl_nif:note_binaries(),
    Result = call(Call),
    emberl_nif:note_binaries(),
    Result.

%% Calling a fun through erlang:apply/2 would show a frame the user did not
%% write, so the usual arities are called as such.
call({Module, Function, Arguments}) -> apply(Module, Function, Arguments);
call({Fun, []}) -> Fun();
call({Fun, [A]}) -> Fun(A);
call({Fun, [A, B]}) -> Fun(A, B);
call({Fun, [A, B, C]}) -> Fun(A, B, C);
call({Fun, Arguments}) -> apply(Fun, Arguments).

%% Its value, or what it raised.
-spec result(call()) -> {ok, term()} | {error | exit | throw, term(), list()}.
result(Call) ->
    try
        {ok, run(Call)}
    catch
        Class:Reason:Stack -> {Class, Reason, without_us(Stack)}
    end.

without_us(Stack) ->
    [Frame || Frame <- Stack,
              not lists:member(element(1, Frame), [emberl, emberl_worker, ?MODULE])].

-spec text(call()) -> binary().
text({Module, Function, Arguments}) ->
    emberl_table:mfa({Module, Function, length(Arguments)});
text({Fun, _Arguments}) ->
    [{module, M}, {name, F}, {arity, A}] = [erlang:fun_info(Fun, Key)
                                            || Key <- [module, name, arity]],
    emberl_table:mfa({M, F, A}).

-spec target() -> mfa().
target() -> {?MODULE, run, 1}.

%% The capture of the next call of target/0 by that process. There is one alone, so options
%% that choose among calls do not count.
-spec request(pid(), binary(), emberl_options:options()) -> emberl_control:request().
request(Pid, Text, Options) ->
    #{mfa => target(), calls => 1, from => Pid, hidden => true, target => Text,
      options => Options#{keep := all, every := 1, arm := eager}}.
