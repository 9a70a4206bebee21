%% SPDX-License-Identifier: Apache-2.0
%% @private
%% What emberl:sample/1 takes, checked before anything is touched.
-module(emberl_sample_options).

-export([parse/1]).
-export_type([options/0]).

-type options() :: #{budget := float(),
                     window := pos_integer(),
                     min_interval := non_neg_integer(),
                     processes := all | [pid() | atom()],
                     most_processes := pos_integer(),
                     modules := all | [module()],
                     metrics := [emberl_profile:metric()],
                     targets := [mfa()],       % none: windows
                     every := pos_integer(),
                     store := none | file:filename_all(),
                     slice := pos_integer(),
                     retention := emberl_store:retention(),
                     memory_limit := pos_integer(),
                     max_events := pos_integer(),
                     run_queue_limit := pos_integer() | infinity,
                     kill_file := none | file:filename_all()}.

-define(METRICS, [own_time, words, calls, binaries]).
-define(MOST_WINDOW_MS, 50).
-define(MOST_TARGETS, 16).
-define(MIB, (1024 * 1024)).
-define(DAY_MS, 86400000).

-spec parse(map() | [term()]) -> {ok, options()} | {error, emberl_options:refusal()}.
parse(Given) ->
    case emberl_options:parse(Given, defaults(), fun checked/2) of
        {ok, Options} -> found(Options);
        {error, Refusal} -> {error, Refusal}
    end.

defaults() ->
    #{budget => 0.01,
      window => none,
      min_interval => 100,
      processes => all,
      most_processes => 1000,
      modules => all,
      metrics => ?METRICS,
      targets => [],
      every => none,
      store => none,
      slice => 60000,
      retention => retention(),
      memory_limit => 64 * ?MIB,
      max_events => 200000,
      run_queue_limit => infinity,
      kill_file => none}.

retention() -> #{max_bytes => 256 * ?MIB, max_age => 7 * ?DAY_MS}.

%% As captures' modules are: one that was mistyped would show nothing.
found(#{modules := Modules} = Options) ->
    case emberl_options:parse(capture, #{modules => Modules}) of
        {ok, #{modules := Found}} -> completed(Options#{modules := Found});
        {error, Refusal} -> {error, Refusal}
    end.

%% What depends on whether calls are sampled or time.
completed(#{targets := [], every := Every}) when Every =/= none ->
    refusal(every, "it is of targets, and there are none");
completed(#{targets := [_ | _], processes := Processes}) when Processes =/= all ->
    refusal(processes, "calls to targets are sampled in all processes");
completed(#{targets := [], window := Ms}) when is_integer(Ms), Ms > ?MOST_WINDOW_MS ->
    refusal(window, [integer_to_list(Ms), " is not ", allowed(window)]);
completed(#{targets := [], window := Window} = Options) ->
    {ok, Options#{every := 1, window := given(Window, 10)}};
completed(#{every := Every, window := Window} = Options) ->
    {ok, Options#{every := given(Every, 1000), window := given(Window, 1000)}}.

given(none, Default) -> Default;
given(Value, _Default) -> Value.

refusal(Key, Text) -> {error, emberl_options:refusal(bad_option, Key, Text)}.

checked(retention, Given) when is_map(Given) ->
    Unknown = maps:keys(maps:without(maps:keys(retention()), Given)),
    Unknown =:= [] orelse refuse(retention, Given),
    maps:merge(retention(), maps:map(fun limit/2, Given));
checked(metrics, all) ->
    ?METRICS;
checked(targets, Given) ->
    length_of(Given) =< ?MOST_TARGETS orelse refuse(targets, Given),
    lists:usort([target(Each) || Each <- Given]);
checked(budget, Share) ->
    is_allowed(budget, Share) orelse refuse(budget, Share),
    float(Share);
checked(Key, Value) ->
    is_allowed(Key, Value) orelse refuse(Key, Value),
    Value.

target(Given) ->
    case emberl_options:target(Given) of
        {ok, MFA} -> MFA;
        {error, {_, _, Text}} ->
            emberl_options:refuse(bad_option, targets, io_lib:format("~0tp: ~ts", [Given, Text]))
    end.

length_of(List) when length(List) > 0 -> length(List);
length_of(_) -> infinity.

limit(Key, Value) ->
    Value =:= infinity orelse is_natural(Value, 1 bsl 60) orelse refuse(retention, #{Key => Value}),
    Value.

is_allowed(budget, Share) -> is_number(Share) andalso Share >= 0.0001 andalso Share =< 0.5;
is_allowed(metrics, List) -> is_integer(length_of(List)) andalso List -- ?METRICS =:= [];
is_allowed(window, Ms) -> is_natural(Ms, 60000); % see completed/1
is_allowed(every, Count) -> is_natural(Count, 1 bsl 60);
is_allowed(min_interval, Ms) -> is_integer(Ms) andalso Ms >= 0 andalso Ms =< 3600000;
is_allowed(processes, all) -> true;
is_allowed(processes, List) -> is_selection(List);
is_allowed(most_processes, Count) -> is_natural(Count, 100000);
is_allowed(modules, _Modules) -> true; % see found/1
is_allowed(store, Directory) -> Directory =:= none orelse is_name(Directory);
is_allowed(slice, Ms) -> is_natural(Ms, ?DAY_MS) andalso Ms >= 100;
is_allowed(memory_limit, Bytes) -> is_natural(Bytes, 1 bsl 60) andalso Bytes >= 65536;
is_allowed(max_events, Count) -> is_natural(Count, 1 bsl 60) andalso Count >= 1000;
is_allowed(run_queue_limit, Limit) -> Limit =:= infinity orelse is_natural(Limit, 1 bsl 60);
is_allowed(kill_file, Name) -> Name =:= none orelse is_name(Name);
is_allowed(retention, _) -> false.

is_natural(Value, Max) -> is_integer(Value) andalso Value > 0 andalso Value =< Max.

is_selection(List) when length(List) > 0 ->
    lists:all(fun(P) -> is_atom(P) orelse is_pid(P) andalso node(P) =:= node() end, List);
is_selection(_) ->
    false.

is_name(Name) when is_atom(Name) -> false;
is_name(Name) -> emberl_options:is_name(Name).

-spec refuse(atom(), term()) -> no_return().
refuse(Key, Value) ->
    emberl_options:refuse(bad_option, Key, io_lib:format("~0tp is not ~ts", [Value, allowed(Key)])).

allowed(budget) -> "a share of all schedulers' time, from 0.0001 to 0.5";
allowed(window) -> "a number of milliseconds from 1 to 50, or with targets to 60000";
allowed(metrics) -> "all or a list of own_time, words, calls and binaries";
allowed(targets) -> "a list of at most 16 functions {Module, Function, Arity}";
allowed(every) -> "a number above 0";
allowed(min_interval) -> "a number of milliseconds up to 3600000";
allowed(processes) -> "all or a list of local pids and registered names";
allowed(most_processes) -> "a number from 1 to 100000";
allowed(store) -> "none or the name of a directory";
allowed(slice) -> "a number of milliseconds from 100 to 86400000";
allowed(retention) ->
    "a map of max_bytes and max_age in milliseconds, each a number above 0 or infinity";
allowed(memory_limit) -> "a number of bytes, at least 65536";
allowed(max_events) -> "a number from 1000 on";
allowed(run_queue_limit) -> "a number of processes for each scheduler, or infinity";
allowed(kill_file) -> "none or the name of a file".
