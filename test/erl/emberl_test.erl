%% SPDX-License-Identifier: Apache-2.0
%% What the tests share: profiles in a form that can be compared, the VM's own
%% call counters, processes to work on, and what must not be left behind.
-module(emberl_test).

-include_lib("eunit/include/eunit.hrl").

-export([profile/1, profile/2, shape/1, shape/2, calls/1, calls/2, outcome/1, total_calls/1]).
-export([counted/2, counted_in_process/2, has_sessions/0, release/0]).
-export([in_process/1, busy/1, stop/1, wait_until/1, wait_dead/1, running/0]).
-export([with_directory/1, in_directory/2, works/0, compile/2, unload/1]).
-export([node/1, node/2, node/3, strict_node/1, quiet/1, logged/1, rounds/1]).

%% ---- profiles ----

profile(Target) ->
    profile(Target, #{}).

profile(Target, Options) ->
    emberl:apply(Target, Options#{return => profile}).

%% #{Stack => Calls}: functions of emberl_work by their names, all others as
%% {Module, Name}; what the compiler makes of a fun or comprehension in f/1 as
%% {'fun', f}.
shape(Profile) ->
    shape(Profile, all).

shape(Profile, Process) ->
    lists:foldl(fun add_stack/2, #{},
                [Row || #{process := P} = Row <- emberl_profile:stacks(Profile),
                        Process =:= all orelse Process =:= P]).

add_stack(#{stack := []}, Shape) ->
    Shape;
add_stack(#{stack := Stack, calls := Calls}, Shape) ->
    maps:update_with([frame(MFA) || MFA <- Stack], fun(Before) -> Before + Calls end, Calls, Shape).

frame({emberl_work, Name, _}) -> short(atom_to_list(Name), Name);
frame({Module, Name, _}) -> {Module, short(atom_to_list(Name), Name)}.

short("-" ++ Rest, _Name) ->
    [Function | _] = string:split(Rest, "/"),
    {'fun', list_to_atom(Function)};
short(_, Name) ->
    Name.

%% #{MFA => Calls}
calls(Profile) ->
    maps:from_list([{MFA, Calls}
                    || #{mfa := MFA, calls := Calls} <- emberl_profile:functions(Profile)]).

%% ... of these modules
calls(Profile, Modules) ->
    maps:filter(fun({Module, _, _}, Calls) -> Calls > 0 andalso lists:member(Module, Modules) end,
                calls(Profile)).

outcome(Profile) ->
    maps:get(outcome, emberl_profile:info(Profile)).

total_calls(Profile) ->
    lists:sum(maps:values(calls(Profile))).

%% ---- the VM's counters ----

%% #{MFA => Calls} of the modules' functions by call_count, while Fun runs. In a
%% session of its own where there are any, so that Fun may be profiled.
counted(Modules, Fun) ->
    MFAs = [MFA || Module <- Modules, MFA <- functions(Module)],
    Session = counters_on(Modules),
    Result = Fun(),
    Counts = [{MFA, count(Session, MFA)} || MFA <- MFAs],
    counters_off(Session, Modules),
    {Result,
     maps:from_list([{MFA, Count} || {MFA, Count} <- Counts, is_integer(Count), Count > 0])}.

functions(Module) ->
    [{Module, F, A} || {F, A} <- Module:module_info(functions)].

counters_on(Modules) ->
    Session = case has_sessions() of
                  true -> trace:session_create(counters, self(), []);
                  false -> none
              end,
    [pattern(Session, {Module, '_', '_'}, true) || Module <- Modules],
    Session.

counters_off(none, Modules) ->
    [pattern(none, {Module, '_', '_'}, false) || Module <- Modules];
counters_off(Session, _Modules) ->
    trace:session_destroy(Session).

pattern(none, MFA, On) -> erlang:trace_pattern(MFA, On, [call_count]);
pattern(Session, MFA, On) -> trace:function(Session, MFA, On, [call_count]).

count(none, MFA) -> element(2, erlang:trace_info(MFA, call_count));
count(Session, MFA) -> element(2, trace:info(Session, MFA, call_count)).

%% The same, of the calling process alone: by call_time, which tells of each
%% process how often it called.
counted_in_process(Modules, Fun) ->
    MFAs = [MFA || Module <- Modules, MFA <- functions(Module)],
    Session = timers_on(Modules),
    Result = Fun(),
    Times = [{MFA, times(Session, MFA)} || MFA <- MFAs], % nothing here may be counted
    timers_off(Session, Modules),
    Counts = [{MFA, calls_of(self(), Listed)}
              || {MFA, {call_time, Listed}} <- Times, is_list(Listed)],
    {Result, maps:from_list([{MFA, Count} || {MFA, Count} <- Counts, Count > 0])}.

calls_of(Pid, Times) ->
    lists:sum([Calls || {P, Calls, _, _} <- Times, P =:= Pid]).

timers_on(Modules) ->
    case has_sessions() of
        true ->
            Session = trace:session_create(timers, self(), []),
            [trace:function(Session, {Module, '_', '_'}, true, [call_time]) || Module <- Modules],
            trace:process(Session, self(), true, [call]),
            Session;
        false ->
            [erlang:trace_pattern({Module, '_', '_'}, true, [call_time]) || Module <- Modules],
            erlang:trace(self(), true, [call]),
            none
    end.

timers_off(none, Modules) ->
    erlang:trace(self(), false, [call]),
    [erlang:trace_pattern({Module, '_', '_'}, false, [call_time]) || Module <- Modules];
timers_off(Session, _Modules) ->
    trace:session_destroy(Session).

times(none, MFA) -> erlang:trace_info(MFA, call_time);
times(Session, MFA) -> trace:info(Session, MFA, call_time).

%% Trace sessions that can be relied upon: OTP 27.1 and later.
has_sessions() ->
    emberl_trace:uses_sessions().

release() ->
    list_to_integer(erlang:system_info(otp_release)).

%% ---- processes ----

%% What Fun returns in a new process.
in_process(Fun) ->
    {Pid, Monitor} = spawn_monitor(fun() -> exit({returned, Fun()}) end),
    receive
        {'DOWN', Monitor, process, Pid, {returned, Result}} -> Result;
        {'DOWN', Monitor, process, Pid, Reason} -> error({died, Reason})
    end.

%% A process that calls Call without end; it has called it once.
busy(Call) ->
    Pid = spawn_link(emberl_work, busy, [self(), Call]),
    receive {Pid, busy} -> Pid end.

stop(Pid) ->
    Monitor = monitor(process, Pid),
    unlink(Pid),
    Pid ! stop,
    receive {'DOWN', Monitor, process, Pid, _} -> ok end.

wait_dead(Pid) ->
    Monitor = monitor(process, Pid),
    receive {'DOWN', Monitor, process, Pid, Reason} -> Reason end.

%% For what nobody sends a message about.
wait_until(Condition) ->
    wait_until(Condition, 500).

wait_until(Condition, 0) ->
    error({never_true, Condition});
wait_until(Condition, Tries) ->
    case Condition() of
        true -> ok;
        false ->
            receive after 20 -> ok end,
            wait_until(Condition, Tries - 1)
    end.

running() ->
    maps:get(running, emberl_nif:stats()).

%% The texts of what is logged meanwhile.
logged(Fun) ->
    Formatter = {logger_formatter, #{template => [msg], single_line => true}},
    ok = logger:add_handler(?MODULE, emberl_test_log,
                            #{config => #{test => self()}, formatter => Formatter}),
    try Fun() of
        _ -> texts()
    after
        logger:remove_handler(?MODULE)
    end.

texts() ->
    receive {logged, Text} -> [Text | texts()] after 0 -> [] end.

%% ---- files and modules ----

%% A new directory of a name that nobody else has.
directory() ->
    Name = lists:concat(["emberl-test-", os:getpid(), "-", erlang:unique_integer([positive])]),
    Directory = filename:join(os:getenv("TMPDIR", "/tmp"), Name),
    ok = file:make_dir(Directory),
    Directory.

with_directory(Fun) ->
    Directory = directory(),
    try Fun(Directory)
    after file:del_dir_r(Directory)
    end.

%% Fun gets the options with such a directory in them.
in_directory(Options, Fun) ->
    with_directory(fun(Directory) ->
                           Fun(maps:merge(#{output_directory => Directory, quiet => true}, Options))
                   end).

%% Whether all is as it should be: {ok, {1, 1}}.
works() ->
    in_directory(#{return => all}, fun(Options) ->
        #{result := Result} = emberl:apply({emberl_work, pair, [1]}, Options),
        Result
    end).

%% The code of a module with these functions, all of them exported.
compile(Module, Functions) ->
    Forms = [form(F) || F <- [lists:flatten(io_lib:format("-module(~tp).", [Module])) | Functions]],
    {ok, Module, Code} = compile:forms(Forms, [export_all, nowarn_export_all]),
    Code.

form(Text) ->
    {ok, Tokens, _} = erl_scan:string(Text),
    {ok, Form} = erl_parse:parse_form(Tokens),
    Form.

unload(Module) ->
    code:purge(Module),
    code:delete(Module),
    code:purge(Module).

%% How often something is tried: more often by make torture-erl.
rounds(Default) ->
    list_to_integer(os:getenv("EMBERL_ROUNDS", integer_to_list(Default))).

%% ---- other nodes ----

%% Runs Fun with the name of a new VM, which has our code. What crashes it fails
%% the test.
node(Fun) ->
    node([], Fun).

%% ... started with more arguments.
node(Arguments, Fun) ->
    node(Arguments, [], Fun).

%% ... in which freed memory is overwritten (by the GNU library), so that whoever
%% still uses it crashes.
strict_node(Fun) ->
    node(["+Mea", "min"], [{"GLIBC_TUNABLES", "glibc.malloc.perturb=165"}], Fun).

node(Arguments, Environment, Fun) ->
    Paths = [filename:absname(filename:dirname(code:which(M))) || M <- [emberl, ?MODULE]],
    {ok, Peer, _Node} = peer:start_link(#{connection => standard_io, env => Environment,
                                          args => Arguments
                                              ++ lists:append([["-pa", P] || P <- Paths])}),
    try Fun(Peer)
    after is_process_alive(Peer) andalso peer:stop(Peer)
    end.

%% Runs Fun and returns {Result, what was printed}.
quiet(Fun) ->
    Leader = group_leader(),
    Recorder = spawn_link(fun() -> record_output([]) end),
    group_leader(Recorder, self()),
    try Fun() of
        Result -> {Result, printed(Recorder)}
    after
        group_leader(Leader, self())
    end.

printed(Recorder) ->
    Recorder ! {self(), printed},
    receive {Recorder, Text} -> unicode:characters_to_binary(Text) end.

record_output(Text) ->
    receive
        {io_request, From, ReplyAs, Request} ->
            From ! {io_reply, ReplyAs, ok},
            record_output([Text, output(Request)]);
        {From, printed} ->
            From ! {self(), Text}
    end.

output({put_chars, _Encoding, Text}) -> Text;
output({put_chars, _Encoding, Module, Function, Arguments}) -> apply(Module, Function, Arguments);
output(_) -> [].
