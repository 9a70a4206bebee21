%% SPDX-License-Identifier: Apache-2.0
%% @doc Exact call-stack profiles of running Erlang and Elixir systems: time,
%% calls and heap words of every stack.
%%
%% ```
%% 1> emberl:apply(fun() -> lists:sort(L) end).
%% 2> emberl:capture({my_server, handle_call, 3}, 10).
%% '''
%%
%% <h2>Options</h2>
%% A map, or a proplist with the same keys.
%% <dl>
%% <dt>`return'</dt><dd>`value' (default of apply), `filename' (default of
%%   capture), `flamegraph' (iodata of the format, no file), `profile' (see
%%   {@link emberl_profile}, no file) or `all' (a map with `result', `profile' and
%%   `file').</dd>
%% <dt>`output_format'</dt><dd>`html' (default) or another
%%     {@link emberl_profile:format()}.</dd>
%% <dt>`output_directory'</dt><dd>Default `"."'; made when missing.</dd>
%% <dt>`output_file'</dt><dd>A base name; default made from the UTC time, the
%%   target and a number. A file that exists is never overwritten.</dd>
%% <dt>`open'</dt><dd>`browser', `speedscope', `hotspot' or a program, started
%%   with the file and not waited for.</dd>
%% <dt>`metric'</dt><dd>What a format with one value shows: `own_time' (default),
%%   `words' or `calls'.</dd>
%% <dt>`modules'</dt><dd>What is seen: `all' (default), a list of modules, or
%%   `{app, Name}'. Time and words of others are their visible callers'.</dd>
%% <dt>`spawned'</dt><dd>Follow processes spawned inside (default `true').</dd>
%% <dt>`merge'</dt><dd>capture: one result for all calls (default `false').</dd>
%% <dt>`timeout'</dt><dd>Milliseconds or `infinity', from the start on. Default
%%   60000 for capture, `infinity' for apply (whose function is not stopped by it,
%%   only its recording).</dd>
%% <dt>`memory_limit'</dt><dd>Bytes for call trees, or `infinity'; default 256
%%   MiB. Beyond it the result so far is given.</dd>
%% <dt>`fold_recursion'</dt><dd>A function that calls itself is one frame (default
%%   `true').</dd>
%% <dt>`compensate'</dt><dd>Subtract the cost of tracing from own times (default
%%   `true').</dd>
%% <dt>`quiet'</dt><dd>Print no file names (default `false').</dd>
%% </dl>
-module(emberl).

-export([apply/1, apply/2, capture/1, capture/2, capture/3]).
-export([start_capture/1, start_capture/2, start_capture/3, await/2, stop/1, stop/0]).
-export_type([applied/0, options/0, result/0, results/0, capture/0]).

-type applied() :: {module(), atom(), [term()]} | {fun(), [term()]} | fun(() -> term()).
-type options() :: map() | [{atom(), term()} | atom()].
-type result() :: term() | file:filename_all() | iodata() | emberl_profile:profile()
                | #{result := {ok, term()} | {atom(), term(), list()} | unfinished | unknown,
                    profile := emberl_profile:profile(),
                    file := file:filename_all()}.
-type results() :: {ok, [result()]}
                 | {incomplete, timeout | stopped | limit, [result()]}
                 | {error, term()}.
-opaque capture() :: {reference(), binary(), emberl_options:options()}.

%% @equiv apply(Target, #{})
-spec apply(applied()) -> result().
apply(Target) ->
    ?MODULE:apply(Target, #{}).

%% @doc Runs a function in the calling process and profiles it.
%%
%% Returns what the option `return' asks for, by default the function's value.
%% What the function raises is raised here, after the output has been written;
%% with `return => all' it is returned instead, as `{Class, Reason, Stack}'.
%%
%% Fails with `{bad_option, Key, Text}', `{bad_target, Target, Text}',
%% `{other_tracer, Who}' (before OTP 27.1, when somebody else traces),
%% `too_many_captures' or `not_traced' (the calling process is sensitive); only
%% in the last case has the function been run.
-spec apply(applied(), options()) -> result().
apply(Target, Given) ->
    Options = accepted(emberl_options:parse(apply, Given)),
    Call = accepted(emberl_options:applied(Target)),
    accepted(emberl_output:check(Options)),
    Text = applied_text(Call),
    emberl_calibrate:ensure(),
    Ref = accepted(emberl_server:start_capture(apply_request(Text, Options))),
    Result = run(Call),
    applied_result(emberl_server:finish(Ref), Result, Text, Options).

apply_request(Text, Options) ->
    #{mfa => emberl_call:target(), calls => 1, from => self(), hidden => true, target => Text,
      options => Options}.

accepted(ok) -> ok;
accepted({ok, Value}) -> Value;
accepted({error, Reason}) -> erlang:error(Reason).

run(Call) ->
    try
        {ok, emberl_call:run(Call)}
    catch
        Class:Reason:Stack -> {Class, Reason, without_us(Stack)}
    end.

without_us(Stack) ->
    [Frame || Frame <- Stack, element(1, Frame) =/= ?MODULE, element(1, Frame) =/= emberl_call].

applied_result({_Why, [{Profile, _} | _]}, Result, Text, #{return := Return} = Options) ->
    [Output] = emberl_output:results([{Profile, Result}], Text, Options),
    case Result of
        {Class, Reason, Stack} when Return =/= all -> erlang:raise(Class, Reason, Stack);
        _ -> Output
    end;
applied_result({_Why, []}, {ok, _Value}, _Text, _Options) ->
    erlang:error(not_traced);
applied_result({error, Reason}, {ok, _Value}, _Text, _Options) ->
    erlang:error(Reason);
applied_result(_, {Class, Reason, Stack}, _Text, _Options) ->
    erlang:raise(Class, Reason, Stack).

applied_text({Module, Function, Arguments}) ->
    mfa_text({Module, Function, length(Arguments)});
applied_text({Fun, _Arguments}) ->
    [{module, M}, {name, F}, {arity, A}] = [erlang:fun_info(Fun, Key) || Key <- [module, name, arity]],
    mfa_text({M, F, A}).

mfa_text({Module, Function, Arity}) ->
    unicode:characters_to_binary(io_lib:format("~tp:~tp/~b", [Module, Function, Arity])).

%% @equiv capture(MFA, 1, #{})
-spec capture(mfa()) -> results().
capture(MFA) ->
    capture(MFA, 1, #{}).

%% @equiv capture(MFA, Calls, #{})
-spec capture(mfa(), pos_integer()) -> results().
capture(MFA, Calls) ->
    capture(MFA, Calls, #{}).

%% @doc Waits for the next calls to a function, whoever makes them, and profiles
%% each from its start to its end.
%%
%% Local calls count as well; the function's code is not changed. A call within
%% a captured one is part of that. Results are in the order in which the calls
%% ended. `{incomplete, Why, Results}' has what was finished by then, and the
%% calls that were under way, whose profiles say `outcome => unfinished'.
%% Nothing was touched when `{error, Reason}' is returned.
-spec capture(mfa(), pos_integer(), options()) -> results().
capture(MFA, Calls, Options) ->
    case start_capture(MFA, Calls, Options) of
        {ok, Capture} -> await(Capture, infinity);
        {error, Reason} -> {error, Reason}
    end.

%% @equiv start_capture(MFA, 1, #{})
-spec start_capture(mfa()) -> {ok, capture()} | {error, term()}.
start_capture(MFA) ->
    start_capture(MFA, 1, #{}).

%% @equiv start_capture(MFA, Calls, #{})
-spec start_capture(mfa(), pos_integer()) -> {ok, capture()} | {error, term()}.
start_capture(MFA, Calls) ->
    start_capture(MFA, Calls, #{}).

%% @doc Like {@link capture/3}, but returns when the capture is ready for the
%% first call. It belongs to the calling process and ends with it.
-spec start_capture(mfa(), pos_integer(), options()) -> {ok, capture()} | {error, term()}.
start_capture(MFA, Calls, Given) ->
    maybe_start(emberl_options:target(MFA), emberl_options:calls(Calls),
                emberl_options:parse(capture, Given)).

maybe_start({error, Reason}, _Calls, _Options) -> {error, Reason};
maybe_start(_MFA, {error, Reason}, _Options) -> {error, Reason};
maybe_start(_MFA, _Calls, {error, Reason}) -> {error, Reason};
maybe_start({ok, MFA}, {ok, Calls}, {ok, Options}) ->
    case emberl_output:check(Options) of
        ok -> start(MFA, Calls, Options);
        {error, Reason} -> {error, Reason}
    end.

start(MFA, Calls, Options) ->
    emberl_calibrate:ensure(),
    Text = mfa_text(MFA),
    Request = #{mfa => MFA, calls => Calls, from => any, hidden => false, target => Text,
                options => Options},
    case emberl_server:start_capture(Request) of
        {ok, Ref} -> {ok, {Ref, Text, Options}};
        {error, Reason} -> {error, Reason}
    end.

%% @doc Waits for the results of a capture. `{error, timeout}' leaves it as it
%% is: it can be awaited again.
-spec await(capture(), timeout()) -> results().
await({Ref, _Text, _Options} = Capture, Timeout) ->
    results(emberl_server:await(Ref, Timeout), Capture).

%% @doc Ends a capture; returns what it has. Where another process awaits it, that
%% one gets the results, and this returns `{error, already_awaited}'.
-spec stop(capture()) -> results().
stop({Ref, _Text, _Options} = Capture) ->
    results(emberl_server:stop(Ref), Capture).

%% @doc Ends all captures on this node and takes everything of ours out of the
%% VM's tracing. Who waits for a capture gets what it has.
-spec stop() -> ok.
stop() ->
    emberl_server:stop_all().

results({error, Reason}, _Capture) ->
    {error, Reason};
results({Why, Calls}, {_Ref, Text, Options}) ->
    Results = emberl_output:results(merged(Calls, Options), Text, Options),
    case Why of
        done -> {ok, Results};
        _ -> {incomplete, Why, Results}
    end.

merged([_ | _] = Calls, #{merge := true}) ->
    [{emberl_profile:merge([Profile || {Profile, _} <- Calls, Profile =/= out_of_memory]),
      {ok, [Value || {_, Value} <- Calls]}}];
merged(Calls, _Options) ->
    Calls.
