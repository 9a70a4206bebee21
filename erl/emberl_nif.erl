%% SPDX-License-Identifier: Apache-2.0
%% @private
%% The C library: the callbacks of an erl_tracer and the functions that control
%% it. Only the modules of emberl call these.
-module(emberl_nif).

-export([enabled/3, trace/5]).
-export([start/4, stop/0, open/2, close/1, set_costs/4, stats/0, check_layout/3,
         forget_layout/2]).
-export([profile_info/1, profile_processes/1, profile_functions/2, profile_stacks/1,
         profile_merge/1, profile_annotate/4, profile_encode/1, profile_decode/1, profile_format/4,
         views/0]).
-export_type([profile/0, slot/0, capture/0, intake/0]).

-nifs([enabled/3, trace/5, start/4, stop/0, open/2, close/1, set_costs/4, stats/0, check_layout/3,
       forget_layout/2, profile_info/1, profile_processes/1, profile_functions/2, profile_stacks/1,
       profile_merge/1, profile_annotate/4, profile_encode/1, profile_decode/1, profile_format/4,
       views/0]).
-on_load(load/0).

-opaque profile() :: reference().
-type slot() :: 0..63.
-type capture() :: {mfa(), Hidden :: boolean(), Fold :: boolean(), Spawned :: boolean(),
                    Compensate :: boolean(), MemoryLimit :: pos_integer() | infinity,
                    all | [module()]}.
-type intake() :: {Target :: 0..63, Calls :: pos_integer(), pid() | any, WantsValue :: boolean()}.

load() ->
    erlang:load_nif(filename:join(library_directory(), "emberl_nif"), 0).

%% code:priv_dir/1 needs an application directory of the right name; a plain
%% checkout has its own.
library_directory() ->
    Ebin = filename:dirname(code:which(?MODULE)),
    Beside = filename:join(filename:dirname(Ebin), "priv"),
    case filelib:is_dir(Beside) of
        true -> Beside;
        false -> priv_directory(code:priv_dir(emberl), Beside)
    end.

priv_directory({error, bad_name}, Beside) -> Beside;
priv_directory(Directory, _Beside) -> Directory.

-spec enabled(erl_tracer:trace_tag_call() | trace_status, erl_tracer:tracer_state(),
              erl_tracer:tracee()) -> trace | discard | remove.
enabled(_Tag, _State, _Tracee) -> erlang:nif_error(not_loaded).

-spec trace(atom(), erl_tracer:tracer_state(), erl_tracer:tracee(), term(),
            erl_tracer:trace_opts()) -> any().
trace(_Tag, _State, _Tracee, _Term, _Opts) -> erlang:nif_error(not_loaded).

-spec start(pid(), non_neg_integer(), non_neg_integer(), boolean()) ->
          {ok, pos_integer()} | {error, already_started | out_of_memory}.
start(_Owner, _ReturnToWords, _BeginWords, _BeginBeforeCall) -> erlang:nif_error(not_loaded).

-spec stop() -> ok.
stop() -> erlang:nif_error(not_loaded).

-spec open(capture(), intake()) -> {ok, slot()} | {error, not_started | too_many_captures}.
open(_Capture, _Intake) -> erlang:nif_error(not_loaded).

-spec close(slot()) -> ok.
close(_Slot) -> erlang:nif_error(not_loaded).

-spec set_costs(float(), float(), float(), float()) -> ok.
set_costs(_Call, _Return, _Switch, _Gc) -> erlang:nif_error(not_loaded).

-spec stats() -> #{running := boolean(), rings := non_neg_integer(),
                   events := non_neg_integer(), lost := non_neg_integer()}.
stats() -> erlang:nif_error(not_loaded).

-spec check_layout(non_neg_integer(), non_neg_integer(), boolean()) -> exact | fallback.
check_layout(_BlockWords, _FragmentWords, _First) -> erlang:nif_error(not_loaded).

-spec forget_layout(boolean(), boolean()) -> exact | fallback.
forget_layout(_Exact, _Tuples) -> erlang:nif_error(not_loaded).

-spec profile_info(profile()) -> map().
profile_info(_Profile) -> erlang:nif_error(not_loaded).

-spec profile_processes(profile()) -> [map()].
profile_processes(_Profile) -> erlang:nif_error(not_loaded).

-spec profile_functions(profile(), pid() | binary() | all) -> [map()].
profile_functions(_Profile, _Process) -> erlang:nif_error(not_loaded).

-spec profile_stacks(profile()) -> [map()].
profile_stacks(_Profile) -> erlang:nif_error(not_loaded).

-spec profile_merge([profile()]) -> profile().
profile_merge(_Profiles) -> erlang:nif_error(not_loaded).

-spec profile_annotate(profile(), binary(), binary(),
                       [{non_neg_integer(), binary() | undefined, binary() | undefined}]) -> ok.
profile_annotate(_Profile, _Target, _Release, _Processes) -> erlang:nif_error(not_loaded).

-spec profile_encode(profile()) -> {ok, binary()} | {error, efbig}.
profile_encode(_Profile) -> erlang:nif_error(not_loaded).

-spec profile_decode(binary()) -> {ok, profile()} | {error, {bad_profile, binary()} | enomem}.
profile_decode(_Binary) -> erlang:nif_error(not_loaded).

-spec profile_format(profile(), atom(), own_time | words | calls, Symbols :: binary() | undefined) ->
          binary().
profile_format(_Profile, _View, _Metric, _Symbols) -> erlang:nif_error(not_loaded).

-spec views() -> [{atom(), binary()}].
views() -> erlang:nif_error(not_loaded).
