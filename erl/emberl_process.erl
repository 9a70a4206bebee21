%% SPDX-License-Identifier: Apache-2.0
%% @private
%% What a process is called.
-module(emberl_process).

-export([names/1, known/1, chosen/1, ask/3]).
-export_type([known/0]).

%% How long processes are asked whose children they are.
-define(PARENTS_MS, 500).

-type known() :: {Name :: binary() | undefined, Label :: binary() | undefined,
                  Ancestors :: binary() | undefined}.

%% Its registered name, and what it calls itself or was started with; unknown of a dead
%% one. Asking a busy process takes until it is scheduled out.
-spec names(pid()) -> {binary() | undefined, binary() | undefined}.
names(Pid) ->
    {name(Pid), label(Pid)}.

%% ... and who is above it, a line each.
-spec known(pid()) -> known().
known(Pid) ->
    {name(Pid), label(Pid), ancestors(Pid)}.

%% Only where proc_lib has started it.
ancestors(Pid) ->
    case erlang:process_info(Pid, initial_call) of
        {initial_call, {proc_lib, init_p, _}} -> ancestor_lines(listed_ancestors(Pid));
        _ -> undefined
    end.

listed_ancestors(Pid) ->
    case erlang:process_info(Pid, dictionary) of
        {dictionary, Dictionary} -> proplists:get_value('$ancestors', Dictionary, []);
        undefined -> []
    end.

ancestor_lines([]) -> undefined;
ancestor_lines(Ancestors) ->
    iolist_to_binary(lists:join($\n, [ancestor(Ancestor) || Ancestor <- Ancestors])).

ancestor(Name) when is_atom(Name) -> emberl_nif:atom_text(Name);
ancestor(Pid) -> pid_to_list(Pid).

name(Pid) ->
    case erlang:process_info(Pid, registered_name) of
        {registered_name, Name} -> emberl_nif:atom_text(Name);
        _ -> undefined
    end.

label(Pid) ->
    case process_label(Pid) of
        undefined -> initial_call(erlang:process_info(Pid, initial_call), Pid);
        Label -> label_text(Label)
    end.

-dialyzer({no_missing_calls, process_label/1}). % from OTP 27 on
process_label(Pid) ->
    case erlang:function_exported(proc_lib, get_label, 1) of
        true -> proc_lib:get_label(Pid);
        false -> undefined
    end.

%% Elixir's are mostly strings.
label_text(Label) when is_atom(Label) -> emberl_nif:atom_text(Label);
label_text(Label) ->
    case is_binary(Label) andalso Label =/= <<>> andalso io_lib:printable_unicode_list(
                                                           unicode:characters_to_list(Label)) of
        true -> Label;
        false -> unicode:characters_to_binary(io_lib:format("~0tp", [Label]))
    end.

initial_call({initial_call, {proc_lib, init_p, _}}, Pid) ->
    emberl_table:mfa(proc_lib:translate_initial_call(Pid));
initial_call({initial_call, {M, F, A}}, _Pid) when M =/= erlang; F =/= apply ->
    emberl_table:mfa({M, F, A});
initial_call(_, _Pid) ->
    undefined.

%% ---- sets of processes ----

%% Those that are alive; names must be registered.
-spec chosen(existing | [pid() | atom()] | {children | all_children, pid() | atom()}) -> [pid()].
chosen(existing) -> processes();
chosen({children, Process}) -> maps:get(pid(Process), families(), []);
chosen({all_children, Process}) -> descendants([pid(Process)], families());
chosen(Processes) -> [pid(Process) || Process <- Processes].

pid(Pid) when is_pid(Pid) -> Pid;
pid(Name) -> whereis(Name).

%% One that is busy for long is nobody's child.
families() ->
    maps:fold(fun(_Child, undefined, Families) -> Families;
                 (Child, Parent, Families) ->
                      maps:update_with(Parent, fun(Children) -> [Child | Children] end,
                                       [Child], Families)
              end, #{}, ask(processes(), fun parent/1, ?PARENTS_MS)).

descendants(Parents, Families) ->
    case lists:append([maps:get(Parent, Families, []) || Parent <- Parents]) of
        [] -> [];
        Children -> Children ++ descendants(Children, Families)
    end.

%% The VM tells parents from OTP 25 on.
parent(Pid) ->
    case erlang:process_info(Pid, parent) of
        {parent, Parent} -> Parent;
        undefined -> undefined
    end.

%% ---- asking many ----

%% What Ask says of each process that lets itself be asked within so many milliseconds:
%% those that run have to be scheduled out first. What comes later goes to a process that
%% is gone.
-spec ask([pid()], fun((pid()) -> Answer), non_neg_integer()) -> #{pid() => Answer}.
ask([], _Ask, _Within) ->
    #{};
ask(Pids, Ask, Within) ->
    {Asker, Monitor} = spawn_opt(fun() -> exit({asked, gather(Pids, Ask, Within)}) end,
                                 [monitor, {priority, high}]),
    receive
        {'DOWN', Monitor, process, Asker, {asked, Answers}} -> Answers;
        {'DOWN', Monitor, process, Asker, _Reason} -> #{}
    end.

-spec gather([pid()], fun((pid()) -> Answer), non_neg_integer()) -> #{pid() => Answer}.
gather(Pids, Ask, Within) ->
    process_flag(sensitive, true),
    Self = self(),
    [spawn_opt(fun() -> process_flag(sensitive, true), Self ! {Pid, Ask(Pid)} end,
               [{priority, high}])
     || Pid <- Pids],
    gather_until(erlang:monotonic_time(millisecond) + Within, length(Pids), #{}).

gather_until(_End, 0, Answers) ->
    Answers;
gather_until(End, Left, Answers) ->
    receive
        {Pid, Answer} -> gather_until(End, Left - 1, Answers#{Pid => Answer})
    after max(0, End - erlang:monotonic_time(millisecond)) ->
            Answers
    end.
