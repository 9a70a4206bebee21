%% SPDX-License-Identifier: Apache-2.0
%% @private
%% A profile, or a comparison of two, as text for people: a header that says what
%% was measured and what is missing, and the functions that matter most.
-module(emberl_report).

-export([summary/3, details/2, functions/3, notes/1, top/2, has/2, absence/1]).
-export_type([options/0]).

-type options() :: #{count := pos_integer() | all,
                     sort := default | own_time | total_time | waiting | words | calls | binaries,
                     process := all | pid() | atom() | unicode:chardata(),
                     modules := all | [module()]}.

-spec summary(emberl_profile:profile(), options(), emberl_table:options()) -> unicode:chardata().
summary(Profile, Options, Device) ->
    [header(emberl_profile:info(Profile), emberl_profile:processes(Profile), Device), $\n,
     function_table(Profile, Options, Device)].

%% The header, and all processes.
-spec details(emberl_profile:profile(), emberl_table:options()) -> unicode:chardata().
details(Profile, Device) ->
    Processes = emberl_profile:processes(Profile),
    [header(emberl_profile:info(Profile), Processes, Device), $\n,
     emberl_table:table([{Title, text}
                         || Title <- ["process", "name", "label", "parent", "above", ""]],
                        [process_row(Process) || Process <- Processes], Device)].

process_row(#{pid := Pid, name := Name, label := Label, parent := Parent, ancestors := Ancestors,
              exited := Exited}) ->
    [pid_text(Pid), Name, Label, pid_text(Parent), lists:join(" < ", Ancestors),
     ["exited" || Exited]].

%% ---- what matters most ----

%% The rows of {@link emberl_profile:functions/1} that the options ask for, first
%% those that have most, or that changed most.
-spec top(emberl_profile:profile(), options()) ->
          [emberl_profile:function_metrics()] | [emberl_profile:function_change()].
top(Profile, #{count := Count} = Options) ->
    Sort = sort(Profile, Options),
    first(Count, sorted(chosen(Profile, Options), Sort)).

%% What is asked for, or else the first that the profile has.
sort(Profile, #{sort := Sort}) ->
    Wanted = case Sort of
                 default -> [own_time, calls, words, binaries];
                 _ -> [Sort]
             end,
    case [Metric || Metric <- Wanted, has(Metric, Profile)] of
        [Metric | _] -> Metric;
        [] -> erlang:error({bad_option, sort,
                            <<"it was not asked for when the profile was made">>})
    end.

%% Of a comparison: both sides.
-spec has(atom(), emberl_profile:profile()) -> boolean().
has(Metric, Profile) ->
    Info = emberl_profile:info(Profile),
    not lists:any(fun(#{fallbacks := Absent}) -> lists:member(absence(Metric), Absent) end,
                  [Info | maps:values(maps:with([before], Info))]).

%% How info/1 says that it was not asked for.
-spec absence(atom()) -> no_times | no_words | no_calls | no_binaries.
absence(words) -> no_words;
absence(calls) -> no_calls;
absence(binaries) -> no_binaries;
absence(_Time) -> no_times.

chosen(Profile, #{process := Process, modules := Modules}) ->
    of_modules(emberl_nif:profile_functions(Profile, process(Process, Profile)), Modules).

of_modules(Rows, all) -> Rows;
of_modules(Rows, Modules) ->
    Names = [name(Module) || Module <- Modules],
    case [Row || #{mfa := {Module, _, _}} = Row <- Rows, lists:member(name(Module), Names)] of
        [] -> erlang:error({bad_option, modules, <<"none of them has functions in the profile">>});
        Shown -> Shown
    end.

%% A profile that was loaded may have binaries where this node has no atoms.
name(Module) when is_atom(Module) -> atom_to_binary(Module);
name(Module) -> Module.

sorted(Rows, Sort) ->
    Key = key(Sort),
    Weighed = [{-weight(Key, Row), MFA, Row} || #{mfa := MFA} = Row <- Rows],
    [Row || {_, _, Row} <- lists:sort(Weighed)].

key(own_time) -> own_ns;
key(total_time) -> total_ns;
key(waiting) -> waiting_ns;
key(binaries) -> binary_bytes;
key(words) -> words;
key(calls) -> calls.

weight(Key, #{delta := Delta}) -> abs(maps:get(Key, Delta));
weight(Key, Row) -> maps:get(Key, Row).

first(all, Rows) -> Rows;
first(Count, Rows) -> lists:sublist(Rows, Count).

%% As the library wants it, from a pid, its text or a name.
process(all, _Profile) -> all;
process(Wanted, Profile) ->
    case [Pid || #{pid := Pid, name := Name} <- emberl_profile:processes(Profile),
                 is_process(Wanted, Pid, Name)] of
        [Pid | _] -> Pid;
        [] -> erlang:error({bad_option, process, <<"no such process in the profile">>})
    end.

is_process(Wanted, Pid, _Name) when is_pid(Wanted) ->
    pid_text(Wanted) =:= pid_text(Pid);
is_process(Wanted, _Pid, Name) when is_atom(Wanted) ->
    emberl_nif:atom_text(Wanted) =:= Name;
is_process(Wanted, Pid, Name) ->
    lists:member(unicode:characters_to_binary(Wanted), [pid_text(Pid), Name]).

pid_text(Pid) when is_pid(Pid) -> list_to_binary(pid_to_list(Pid));
pid_text(Text) -> Text. % or undefined

%% ---- the table of functions ----

-spec functions(emberl_profile:profile(), options(), emberl_table:options()) -> unicode:chardata().
functions(Profile, Options, Device) ->
    [notes(emberl_profile:info(Profile)), function_table(Profile, Options, Device)].

function_table(Profile, Options, Device) ->
    Sort = sort(Profile, Options),
    Shown = chosen(Profile, Options),
    Rows = first(maps:get(count, Options), sorted(Shown, Sort)),
    case maps:is_key(before, emberl_profile:info(Profile)) of
        true -> changes(Rows, length(Shown), key(Sort), has(calls, Profile), Device);
        false -> metrics(Rows, Shown, whole(Profile, Options), Device)
    end.

whole(Profile, #{process := Process}) ->
    emberl_nif:profile_total(Profile, process(Process, Profile)).

%% Shares are of all that was measured, whichever functions are shown, as in graphs.
metrics(Rows, Shown, Sums, Device) ->
    Columns = [Column || {_, Key, _} = Column <- metric_columns(Sums), is_shown(Key, Sums)],
    Cells = [[Cell(Row) || {_, _, Cell} <- Columns] || Row <- Rows],
    Last = [last(Column, Shown) || Column <- Columns],
    emberl_table:table([Column || {Column, _, _} <- Columns], Cells ++ [Last], Device).

metric_columns(Sums) ->
    [Own, OffCpu, Gc, Words] = [maps:get(Key, Sums, 0)
                                || Key <- [own_ns, off_cpu_ns, gc_ns, words]],
    Get = fun(Key) -> fun(Row) -> maps:get(Key, Row) end end,
    Share = fun(Key, Whole) -> fun(Row) -> {maps:get(Key, Row), Whole} end end,
    [{{"calls", count}, calls, Get(calls)},
     {{"own", time}, own_ns, Get(own_ns)},
     {{"own %", percent}, own_ns, Share(own_ns, Own)},
     {{"off-cpu", time, 2}, off_cpu_ns, Get(off_cpu_ns)},
     {{"waiting", time, 5}, waiting_ns, Get(waiting_ns)},
     {{"gc", time, 3}, gc_ns, Get(gc_ns)},
     {{"total", time}, total_ns, Get(total_ns)},
     {{"total %", percent, 1}, total_ns, Share(total_ns, Own + OffCpu + Gc)},
     {{"words", words}, words, Get(words)},
     {{"words %", percent, 4}, words, Share(words, Words)},
     {{"binaries", bytes, 6}, binary_bytes, Get(binary_bytes)},
     {{"function", text}, mfa, fun(#{mfa := MFA}) -> emberl_table:mfa(MFA) end}].

%% What nothing has, or was not asked for, needs no column.
is_shown(Key, Sums) when Key =:= off_cpu_ns; Key =:= waiting_ns; Key =:= gc_ns;
                         Key =:= binary_bytes ->
    maps:get(Key, Sums, 0) > 0;
is_shown(total_ns, Sums) -> is_map_key(own_ns, Sums);
is_shown(mfa, _Sums) -> true;
is_shown(Key, Sums) -> is_map_key(Key, Sums).

last({_Column, mfa, _Cell}, Shown) -> all_of(length(Shown));
last({_Column, total_ns, _Cell}, _Shown) -> undefined;
last({_Column, Key, Cell}, Shown) -> Cell(#{Key => sum(Key, Shown)}).

all_of(1) -> "the only function";
all_of(N) -> ["all ", emberl_table:count(N), " functions"].

sum(Key, Rows) ->
    lists:sum([maps:get(Key, Row) || Row <- Rows]).

%% One metric with both sides; calls beside it tell whether a function is slower or
%% called more often.
changes(Rows, Count, Key, HasCalls, Device) ->
    Beside = HasCalls andalso Key =/= calls,
    {Title, Kind} = metric(Key),
    Columns = [{[Title, " before"], Kind}, {"after", Kind}, {"change", {change, Kind}},
               {"change %", figure}]
        ++ [{Side, count, 1} || Beside, Side <- ["calls before", "calls after"]]
        ++ [{"function", text}],
    Total = [[undefined || _ <- tl(Columns)] ++ [all_of(Count)]],
    emberl_table:table(Columns, [change(Row, Key, Beside) || Row <- Rows] ++ Total, Device).

metric(own_ns) -> {"own", time};
metric(total_ns) -> {"total", time};
metric(waiting_ns) -> {"waiting", time};
metric(binary_bytes) -> {"binaries", bytes};
metric(words) -> {"words", words};
metric(calls) -> {"calls", count}.

change(#{mfa := MFA, before := Before, 'after' := After, delta := Delta}, Key, Beside) ->
    [Was, Is, Change] = [maps:get(Key, Side) || Side <- [Before, After, Delta]],
    [Was, Is, Change, change_text(Was, Is, Before, After)]
        ++ [maps:get(calls, Side) || Beside, Side <- [Before, After]]
        ++ [emberl_table:mfa(MFA)].

change_text(Was, Is, Before, After) ->
    case {is_nothing(Before), is_nothing(After)} of
        {true, false} -> "new";
        {false, true} -> "gone";
        _ when Was > 0 -> signed(Is - Was, Was);
        _ -> undefined
    end.

is_nothing(Side) ->
    lists:all(fun(Value) -> Value =:= 0 end, maps:values(Side)).

signed(Change, Was) when Change > 0 -> [$+ | emberl_table:percent(Change, Was)];
signed(Change, Was) -> emberl_table:percent(Change, Was).

%% ---- the header ----

header(#{before := Before} = Info, Processes, Device) ->
    [title(Info, Device), "before     ", measured(Before), scale(Info), $\n,
     "after      ", measured(Info), $\n,
     "processes  ", processes(Processes), $\n,
     notes(Info)];
header(Info, Processes, Device) ->
    [title(Info, Device), "duration   ", measured(Info), $\n,
     sampled(Info),
     "events     ", emberl_table:count(maps:get(events, Info)), ", ", lost(Info), $\n,
     "processes  ", processes(Processes), $\n,
     "stacks     ", emberl_table:count(maps:get(stacks, Info)), $\n,
     timeline(Info),
     notes(Info)].

title(#{target := Target, otp_release := Release, start_us := Start}, Device) ->
    Text = [text(Target), ", ", start(Start), ", OTP ", text(Release)],
    [emberl_table:title(Text, maps:get(colour, Device, false)), $\n].

text(undefined) -> "?";
text(Text) -> emberl_table:printable(Text).

start(Us) ->
    try calendar:system_time_to_universal_time(Us, microsecond) of
        {{Year, Month, Day}, {Hour, Minute, Second}} ->
            io_lib:format("~4..0b-~2..0b-~2..0b ~2..0b:~2..0b:~2..0b UTC",
                          [Year, Month, Day, Hour, Minute, Second])
    catch error:_ -> "?"
    end.

%% Of calls.
sampled(#{outcome := Outcome,
          sampled := #{windows := Calls, window_ns := Within, cost_ns := Cost, present := Present}})
  when Outcome =/= recorded ->
    io_lib:format("sampled    estimates from ~ts, ~ts in all, of ~b~n"
                  "cost       ~ts~n",
                  [counted(Calls, " call", " calls"), emberl_table:time(Within), Present,
                   emberl_table:time(Cost)]);
sampled(#{sampled := #{windows := Windows, window_ns := Within, span_ns := Span, cost_ns := Cost,
                       schedulers := Schedulers, budget := Budget, seen := Seen,
                       present := Present}}) ->
    io_lib:format("sampled    estimates from ~ts, ~ts in all; of the processes ~.1f %~n"
                  "cost       ~.2f % of all schedulers' time, budget ~.2f %~n",
                  [counted(Windows, " window", " windows"), emberl_table:time(Within),
                   100 * Seen / max(1, Present), 100 * Cost / max(1, Span * Schedulers),
                   100 * Budget]);
sampled(_Info) ->
    [].

measured(#{duration_ns := Duration, sampled := #{}}) ->
    emberl_table:time(Duration);
measured(#{duration_ns := Duration, outcome := recorded}) ->
    emberl_table:time(Duration);
measured(#{duration_ns := Duration, calls := Calls, outcome := Outcome}) ->
    [emberl_table:time(Duration), ", ", counted(Calls, " call", " calls"), ", ",
     atom_to_list(Outcome)].

scale(#{normalise := none}) -> "";
scale(#{scale := Scale}) when Scale == 1 -> "";
scale(#{scale := Scale, normalise := Normalise}) ->
    io_lib:format("; numbers below are times ~.4g, for as ~s",
                  [Scale, case Normalise of calls -> "many calls"; time -> "much time" end]).

timeline(#{timeline := none}) -> [];
timeline(#{timeline := complete}) -> "timeline   complete\n";
timeline(#{timeline := {cut, Ns}}) -> ["timeline   of the first ", emberl_table:time(Ns), $\n].

lost(#{lost := 0}) -> "none lost";
lost(#{lost := Lost}) -> [emberl_table:count(Lost), " lost"].

counted(1, One, _Many) -> ["1", One];
counted(N, _One, Many) -> [emberl_table:count(N), Many].

-define(NAMED, 3).

processes(Processes) ->
    Names = [process_name(Process) || Process <- lists:sublist(Processes, ?NAMED)],
    [emberl_table:count(length(Processes)), [": " || Names =/= []], lists:join(", ", Names),
     [", ..." || length(Processes) > ?NAMED]].

process_name(#{pid := Pid, name := undefined, label := undefined}) -> pid_text(Pid);
process_name(#{pid := Pid, name := undefined, label := Label}) -> [pid_text(Pid), $\s, text(Label)];
process_name(#{pid := Pid, name := Name}) -> [pid_text(Pid), $\s, text(Name)].

%% What to keep in mind of the numbers; nothing where there is nothing to say.
-spec notes(emberl_profile:info()) -> unicode:chardata().
notes(#{before := Before} = Info) ->
    [caveat(" before", Before), caveat(" after", Info),
     ["note: differences of times within their uncertainty_ns mean nothing\n"
      || lists:any(fun(#{doubtful := Doubtful}) -> Doubtful end, [Before, Info])]];
notes(Info) ->
    caveat("", Info).

caveat(When, #{lost := Lost, depth_cut := Cut, fallbacks := Fallbacks} = Info) ->
    Said = [[counted(Lost, " event", " events"), " lost"] || Lost > 0]
        ++ [[counted(Cut, " call", " calls"), " below the depth limit"] || Cut > 0]
        ++ unfinished(Info)
        ++ [fallback(Fallback) || Fallback <- Fallbacks],
    [[note(When, lists:join("; ", Said)) || Said =/= []],
     [note(When, "times are doubtful, the cost of tracing varied") || maps:get(doubtful, Info)]].

note(When, Text) -> ["note", When, ": ", Text, $\n].

unfinished(#{cut_by := timeout} = Info) -> [[what(Info), " was cut by its timeout"]];
unfinished(#{cut_by := stopped} = Info) -> [[what(Info), " was stopped"]];
unfinished(#{cut_by := memory_limit} = Info) -> [[what(Info), " was cut by its memory_limit"]];
unfinished(#{cut_by := lost}) -> ["the call's end was lost"];
unfinished(#{cut_by := untraced} = Info) -> [[what(Info), " was not traced to its end"]];
unfinished(#{outcome := unfinished}) -> ["the call is unfinished"];
unfinished(_Info) -> [].

what(#{outcome := recorded}) -> "the recording";
what(_Info) -> "the call".

fallback(stack) -> "stacks are estimates";
fallback(heap) -> "words are estimates";
fallback(clock) -> "times are estimates";
fallback(binaries) -> "binaries are not counted";
fallback(no_times) -> "times were not asked for";
fallback(no_words) -> "words were not asked for";
fallback(no_calls) -> "numbers of calls were not asked for";
fallback(no_binaries) -> "binaries were not asked for";
fallback(waiting) -> "waiting and preempted are not told apart".
