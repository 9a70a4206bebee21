%% SPDX-License-Identifier: Apache-2.0
%% @private
%% The C library: the callbacks of an erl_tracer and the functions that control
%% it. Only the modules of emberl call these.
-module(emberl_nif).

-export([enabled/3, trace/5]).
-export([start/5, stop/0, open/2, open_window/2, restart_window/2, arm/1, disarm/2, close/1,
         watch/1, take_change/0, set_costs/9, stats/0, check_layout/4, probe/1, note_binaries/0,
         walk/0, use_walks/1, forget_layout/2, owe_profile/1]).
-export([profile_info/1, profile_beside/1, profile_processes/1, profile_functions/2,
         profile_total/2, profile_stacks/1, profile_merge/1, profile_filter/3, profile_add_window/5,
         profile_settle/1, profile_bytes/1, profile_diff/3, profile_annotate/4, profile_cut/2,
         profile_leave_out/2, profile_encode/1, profile_decode/1, profile_format/5, views/0,
         mfa_text/3, atom_text/1]).
-export_type([profile/0, slot/0, capture/0, intake/0, seen/0]).

-nifs([enabled/3, trace/5, start/5, stop/0, open/2, open_window/2, restart_window/2, arm/1,
       disarm/2, close/1, watch/1, take_change/0, set_costs/9, stats/0, check_layout/4, probe/1,
       note_binaries/0,
       walk/0, use_walks/1, forget_layout/2, owe_profile/1, profile_info/1, profile_beside/1,
       profile_processes/1, profile_functions/2, profile_total/2, profile_stacks/1, profile_merge/1,
       profile_filter/3, profile_add_window/5, profile_settle/1, profile_bytes/1, profile_diff/3,
       profile_annotate/4, profile_cut/2, profile_leave_out/2, profile_encode/1, profile_decode/1,
       profile_format/5, views/0, mfa_text/3, atom_text/1]).
-on_load(load/0).

-opaque profile() :: reference().
-type slot() :: 0..63.
-type capture() :: {mfa(), Hidden :: boolean(), Fold :: boolean(), Spawned :: boolean(),
                    Compensate :: boolean(), MemoryLimit :: pos_integer() | infinity,
                    all | [module()], Merge :: boolean(), Timeline :: boolean(),
                    all | {Calls :: pos_integer(), SlowerThanMs :: float()},
                    none | {MaxEvents :: pos_integer(), LongestMs :: pos_integer()}}.
-type intake() :: {Target :: 0..63, Calls :: pos_integer(), pid() | any, WantsValue :: boolean(),
                   Every :: pos_integer(), Disarmed :: boolean()}.
%% What a process does, and its stack: the oldest function first; whether that is all.
-type seen() :: {pid(), active | ready | idle, Complete :: boolean(), [mfa()]}.

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

-spec start(pid(), non_neg_integer(), non_neg_integer(), boolean(), OwnModules :: [module()]) ->
          {ok, pos_integer()} | {error, already_started | owner_is_dead | out_of_memory}.
start(_Owner, _ReturnToWords, _BeginWords, _BeginBeforeCall, _OwnModules) ->
    erlang:nif_error(not_loaded).

-spec stop() -> ok.
stop() -> erlang:nif_error(not_loaded).

-spec open(capture(), intake()) ->
          {ok, slot()} | {error, not_started | too_many_captures | out_of_memory}.
open(_Capture, _Intake) -> erlang:nif_error(not_loaded).

%% A window counts from now on, for so many milliseconds at most, which waits for no
%% scheduler; so many events have been until then.
-spec restart_window(slot(), pos_integer()) -> Events :: non_neg_integer().
restart_window(_Slot, _Ms) -> erlang:nif_error(not_loaded).

-spec arm(slot()) -> ok.
arm(_Slot) -> erlang:nif_error(not_loaded).

%% Unless there were calls since it was asked, with the number that it gave then.
-spec disarm(slot(), Seen :: non_neg_integer()) -> disarmed | (Seen :: non_neg_integer()).
disarm(_Slot, _Seen) -> erlang:nif_error(not_loaded).

-spec open_window(capture(), [seen()]) ->
          {ok, slot()} | {error, not_started | too_many_captures | out_of_memory}.
open_window(_Capture, _Processes) -> erlang:nif_error(not_loaded).

-spec close(slot()) -> ok.
close(_Slot) -> erlang:nif_error(not_loaded).

%% Before OTP 27.1: whether others than this process may have set or cleared breakpoints
%% since the last answer; see emberl_trace:hold/0.
-spec watch(pid()) -> ok.
watch(_Pid) -> erlang:nif_error(not_loaded).

-spec take_change() -> boolean().
take_change() -> erlang:nif_error(not_loaded).

-spec set_costs(float(), float(), float(), float(), float(), float(), float(), float(), float()) ->
          ok.
set_costs(_Call, _Return, _Switch, _Gc, _Beside, _GcInside, _Least, _Word, _Spread) ->
    erlang:nif_error(not_loaded).

-spec stats() -> #{running := boolean(), rings := non_neg_integer(),
                   events := non_neg_integer(), lost := non_neg_integer(),
                   consumer_cpu_ns := non_neg_integer(),
                   cpu_ns := non_neg_integer(), atom() => term()}.
stats() -> erlang:nif_error(not_loaded).

-spec check_layout(non_neg_integer(), non_neg_integer(), non_neg_integer(), boolean()) ->
          exact | fallback.
check_layout(_BlockWords, _FragmentWords, _BinaryWords, _First) -> erlang:nif_error(not_loaded).

-spec note_binaries() -> ok.
note_binaries() -> erlang:nif_error(not_loaded).

%% The stack of the caller as the library finds it.
-spec walk() -> [mfa()] | unavailable.
walk() -> erlang:nif_error(not_loaded).

-spec use_walks(Right :: boolean()) -> ok.
use_walks(_Right) -> erlang:nif_error(not_loaded).

-spec probe('begin' | waiting | runnable | 'end') -> ok.
probe(_Step) -> erlang:nif_error(not_loaded).

-spec forget_layout(boolean(), boolean()) -> exact | fallback.
forget_layout(_Exact, _Tuples) -> erlang:nif_error(not_loaded).

%% Until it is no more, the end of the node is told of and its status is 1.
-spec owe_profile(boolean()) -> ok.
owe_profile(_Owed) -> erlang:nif_error(not_loaded).

-spec profile_beside(profile()) -> non_neg_integer().
profile_beside(_Profile) -> erlang:nif_error(not_loaded).

-spec profile_info(profile()) -> map().
profile_info(_Profile) -> erlang:nif_error(not_loaded).

-spec profile_processes(profile()) -> [map()].
profile_processes(_Profile) -> erlang:nif_error(not_loaded).

-spec profile_functions(profile(), pid() | binary() | all) -> [map()].
profile_functions(_Profile, _Process) -> erlang:nif_error(not_loaded).

-spec profile_total(profile(), pid() | binary() | all) -> map().
profile_total(_Profile, _Process) -> erlang:nif_error(not_loaded).

-spec profile_stacks(profile()) -> [map()].
profile_stacks(_Profile) -> erlang:nif_error(not_loaded).

-spec profile_merge([profile()]) -> profile().
profile_merge(_Profiles) -> erlang:nif_error(not_loaded).

%% Processes by their places among profile_processes/1, from 0; modules as text.
-spec profile_filter(profile(), all | [non_neg_integer()], all | [binary()]) -> profile().
profile_filter(_Profile, _Processes, _Modules) -> erlang:nif_error(not_loaded).

%% Sampled: {WindowNs, SpanNs, CostNs, Schedulers, BudgetPpm, Seen, Present} of this window.
-spec profile_add_window(profile() | none, profile(), Weights :: [float()],
                         {non_neg_integer(), non_neg_integer(), non_neg_integer(), pos_integer(),
                          pos_integer(), non_neg_integer(), non_neg_integer()},
                         MostProcesses :: non_neg_integer()) -> profile().
profile_add_window(_Sum, _Window, _Weights, _Sampled, _MostProcesses) ->
    erlang:nif_error(not_loaded).

-spec profile_settle(profile()) -> profile().
profile_settle(_Profile) -> erlang:nif_error(not_loaded).

-spec profile_bytes(profile()) -> pos_integer().
profile_bytes(_Profile) -> erlang:nif_error(not_loaded).

-spec profile_annotate(profile(), binary(), binary(),
                       [{non_neg_integer(), Name, Label, Ancestors}]) -> ok
          when Name :: binary() | undefined, Label :: binary() | undefined,
               Ancestors :: binary() | undefined.
profile_annotate(_Profile, _Target, _Release, _Processes) -> erlang:nif_error(not_loaded).

-spec profile_cut(profile(), timeout | stopped | memory_limit | untraced | lost) -> ok.
profile_cut(_Profile, _By) -> erlang:nif_error(not_loaded).

%% Forgets numbers that were not asked for, of a profile that nobody else has.
-spec profile_leave_out(profile(), [no_times | no_words | no_calls | no_binaries]) -> ok.
profile_leave_out(_Profile, _What) -> erlang:nif_error(not_loaded).

-spec profile_diff(profile(), profile(), none | calls | time) -> profile().
profile_diff(_Before, _After, _Normalise) -> erlang:nif_error(not_loaded).

-spec profile_encode(profile()) -> {ok, binary()} | {error, efbig | comparison}.
profile_encode(_Profile) -> erlang:nif_error(not_loaded).

-spec profile_decode(binary()) -> {ok, profile()} | {error, {bad_profile, binary()} | enomem}.
profile_decode(_Binary) -> erlang:nif_error(not_loaded).

-spec profile_format(profile(), atom(), own_time | words | calls | binaries,
                     Width :: 'after' | before, Symbols :: binary() | undefined) -> binary().
profile_format(_Profile, _View, _Metric, _Width, _Symbols) -> erlang:nif_error(not_loaded).

-spec views() -> [{atom(), binary()}].
views() -> erlang:nif_error(not_loaded).

%% Names as their language writes them; of atoms or of their UTF-8.
-spec mfa_text(module() | binary(), atom() | binary(), arity()) -> binary().
mfa_text(_Module, _Function, _Arity) -> erlang:nif_error(not_loaded).

-spec atom_text(atom() | binary()) -> binary().
atom_text(_Name) -> erlang:nif_error(not_loaded).
