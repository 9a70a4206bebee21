%% SPDX-License-Identifier: Apache-2.0
%% @doc A tally: calls, time and heap words of every function, by process. It is what
%% {@link emberl:profile/2}, {@link emberl:record/2} and {@link emberl_server:collect/0}
%% give, whichever engine measured it.
%%
%% ```
%% 1> {_, Tally} = emberl:profile(fun my_mod:work/0, #{report => return}).
%% 2> emberl_tally:format(emberl_tally:inspect(Tally, total, {words, descending})).
%% 3> emberl_tally:rows(emberl_tally:filter(Tally, #{modules => [my_mod]})).
%% '''
%%
%% A function's numbers are its own, without what it called; those of a function that
%% was not counted are its nearest counted caller's. `time_ns' is time running, garbage
%% collection included, waiting excluded. `words' are words of the process's heap.
-module(emberl_tally).

-export([info/1, rows/1, processes/1, profile/1, filter/2, add/1, compare/2, inspect/1, inspect/3,
         format/1, format/2]).
-export([new/1, named/1, told/2, label/3]).
-export_type([tally/0, info/0, measure/0, engine/0, outcome/0, row/0, process/0, filters/0,
              sums/0, change/0, column/0, sort_by/0, section/0, line/0, inspected/0]).

-type measure() :: emberl_counters:measure().
-type engine() :: counters | tracer.
%% The VM's counters, or the tracer that {@link emberl:apply/2} uses too.
-type outcome() :: {ok, term()}
                 | {error | exit | throw, term(), list()} % raised: class, reason, stack
                 | {killed, term()}                       % by an exit signal
                 | timeout                                % stopped by us
                 | none.                                  % no function was run
-type info() ::
        #{engine := engine(),
          measures := [measure()],
          target := binary(),                 % what was run, or what was profiled
          outcome := outcome(),
          otp_release := binary(),
          start_us := integer(),              % UTC, microseconds since the epoch
          duration_ns := non_neg_integer(),   % wall time; of a sum, of all
          notes := [binary()]}.               % what is missing or estimated
-type row() ::
        #{process := pid() | all,             % `all' where only calls were counted
          mfa := emberl_profile:function_name(),
          calls := non_neg_integer(),
          time_ns => non_neg_integer(),       % these two where they were measured
          words => integer()}.
-type process() :: #{name := binary() | undefined, label := binary() | undefined}.
-opaque tally() ::
        #{info := info(), rows := [row()], processes := #{pid() => process()},
          profile := emberl_profile:profile() | none}.
-type filters() :: #{modules => all | [module()] | {app, atom()},
                     process => all | pid() | atom()}
                 | [{atom(), term()}].
-type sums() :: #{calls := integer(), time_ns => integer(), words => integer()}.
-type change() :: #{mfa := emberl_profile:function_name(), before := sums(), 'after' := sums(),
                    delta := sums()}.
-type column() :: module | function | calls | time | words | measurement | measurement_per_call
                | percent.
-type sort_by() :: column() | {column(), ascending | descending}.
-type line() ::
        #{mfa := emberl_profile:function_name(),
          calls := non_neg_integer(), calls_percent := float(),
          time_ns => non_neg_integer(), time_ns_per_call => float(), time_ns_percent => float(),
          words => integer(), words_per_call => float(), words_percent => float()}.
-type section() ::
        #{process := pid() | all, name := binary() | undefined, label := binary() | undefined,
          engine := engine(), measures := [measure()],
          total := sums(),
          percent := #{calls := float(), time_ns => float(), words => float()}, % of all sections
          lines := [line()]}.
-type inspected() :: #{pid() | all => section()}.

%% @private
-spec new(#{info := info(), rows := [row()], processes := #{pid() => process()},
            profile := emberl_profile:profile() | none}) -> tally().
new(Parts) ->
    Parts.

%% @private
%% The names of the processes in rows.
-spec named([row()]) -> #{pid() => process()}.
named(Rows) ->
    maps:from_list([{Pid, #{name => Name, label => Label}}
                    || Pid <- lists:usort([P || #{process := P} <- Rows]), is_pid(Pid),
                       {Name, Label} <- [emberl_process:names(Pid)]]).

%% @private
%% With more information, or other.
-spec told(tally(), map()) -> tally().
told(#{info := Info} = Tally, More) ->
    Tally#{info := maps:merge(Info, More)}.

%% @private
%% Of a process that is in it.
-spec label(tally(), pid(), binary()) -> tally().
label(#{processes := Processes} = Tally, Pid, Label) ->
    case Processes of
        #{Pid := Names} -> Tally#{processes := Processes#{Pid := Names#{label := Label}}};
        #{} -> Tally
    end.

%% @doc What was measured, by which engine, and how far the numbers go.
-spec info(tally()) -> info().
info(#{info := Info}) -> Info.

%% @doc One row a function and process, in no special order.
-spec rows(tally()) -> [row()].
rows(#{rows := Rows}) -> Rows.

%% @doc The names of the processes, where they are known: registered name, and label or
%% initial call.
-spec processes(tally()) -> #{pid() => process()}.
processes(#{processes := Processes}) -> Processes.

%% @doc The profile with the stacks; `{error, no_stacks}' where none were asked for.
-spec profile(tally()) -> {ok, emberl_profile:profile()} | {error, no_stacks}.
profile(#{profile := none}) -> {error, no_stacks};
profile(#{profile := Profile}) -> {ok, Profile}.

%% @doc The rows of some modules or of one process, given by its pid or registered name.
%% Fails with `{bad_option, Key, Text}'.
-spec filter(tally(), filters()) -> tally().
filter(#{rows := Rows} = Tally, Given) ->
    #{modules := Modules, process := Process} = accepted(emberl_tally_options:filters(Given)),
    Pids = pids(Process, Tally),
    Tally#{rows := [Row || #{process := P, mfa := {M, _, _}} = Row <- Rows,
                           Modules =:= all orelse lists:member(M, Modules),
                           Pids =:= all orelse lists:member(P, Pids)]}.

accepted({ok, Value}) -> Value;
accepted({error, Refusal}) -> erlang:error(Refusal).

pids(all, _Tally) -> all;
pids(Pid, _Tally) when is_pid(Pid) -> [Pid];
pids(Name, #{processes := Processes}) ->
    Text = emberl_nif:atom_text(Name),
    [Pid || {Pid, #{name := Known}} <- maps:to_list(Processes), Known =:= Text].

%% @doc The sums of several tallies, by process and function. Fails with `{bad_tally, Term,
%% Text}' where they measured different things, or by different engines.
-spec add([tally(), ...]) -> tally().
add(Tallies) when length(Tallies) > 0 ->
    [is_tally(Tally) orelse bad_tally(Tally, "a tally is expected") || Tally <- Tallies],
    add_up(Tallies);
add(Other) ->
    bad_tally(Other, "a list of at least one tally is expected").

add_up([#{info := Info} = First | _] = Tallies) ->
    #{engine := Engine, measures := Measures} = Info,
    [bad_tally({Engine, Measures, E, M}, different(Info, Other))
     || #{info := #{engine := E, measures := M} = Other} <- Tallies,
        E =/= Engine orelse M =/= Measures],
    Rows = [Row || #{rows := Rows} <- Tallies, Row <- Rows],
    First#{info := summed_info(Info, [I || #{info := I} <- Tallies]),
           rows := [sum(Group) || Group <- groups([process, mfa], Rows)],
           processes := lists:foldl(fun merge_names/2, #{}, [P || #{processes := P} <- Tallies]),
           profile := none}.

%% One that has died since may have been known before.
merge_names(More, Known) ->
    maps:merge_with(fun(_Pid, #{name := undefined, label := undefined}, New) -> New;
                       (_Pid, Old, _New) -> Old
                    end, Known, More).

summed_info(Info, Infos) ->
    Info#{outcome := none,
          start_us := lists:min([S || #{start_us := S} <- Infos]),
          duration_ns := lists:sum([D || #{duration_ns := D} <- Infos]),
          notes := lists:usort(lists:append([N || #{notes := N} <- Infos]))}.

is_tally(Tally) ->
    is_map(Tally) andalso is_map_key(info, Tally) andalso is_map_key(rows, Tally).

different(#{engine := Engine, measures := Measures}, #{engine := Other, measures := Others}) ->
    io_lib:format("~ts of the ~ts and ~ts of the ~ts do not go together",
                  [listed(Measures), Engine, listed(Others), Other]).

listed(Measures) ->
    lists:join(", ", [atom_to_list(Measure) || Measure <- Measures]).

-spec bad_tally(term(), iodata()) -> no_return().
bad_tally(Term, Text) ->
    erlang:error(emberl_options:refusal(bad_tally, Term, Text)).

%% @doc What changed from one tally to another: one row a function, over all processes;
%% in no special order. Those that only one has have zeros in the other. {@link format/2}
%% prints it. Fails with `{bad_tally, Term, Text}' where they measured different things.
-spec compare(tally(), tally()) -> [change()].
compare(Before, After) ->
    [is_tally(Tally) orelse bad_tally(Tally, "a tally is expected") || Tally <- [Before, After]],
    changes(Before, After).

changes(#{info := #{measures := Measures}} = Before, #{info := #{measures := Measures}} = After) ->
    Sides = [maps:from_list([{MFA, maps:without([mfa, process], sum(Group))}
                             || [#{mfa := MFA} | _] = Group <- groups([mfa], Rows)])
             || #{rows := Rows} <- [Before, After]],
    MFAs = lists:usort(lists:append([maps:keys(Side) || Side <- Sides])),
    [change(MFA, [maps:get(MFA, Side, zeros(Measures)) || Side <- Sides]) || MFA <- MFAs];
changes(#{info := Before}, #{info := After}) ->
    bad_tally({maps:get(measures, Before), maps:get(measures, After)}, different(Before, After)).

change(MFA, [Before, After]) ->
    #{mfa => MFA, before => Before, 'after' => After,
      delta => maps:map(fun(Key, Value) -> Value - maps:get(Key, Before) end, After)}.

%% ---- sums ----

groups(Keys, Rows) ->
    maps:values(lists:foldl(fun(Row, Groups) ->
                                    Key = [maps:get(K, Row) || K <- Keys],
                                    maps:update_with(Key, fun(Group) -> [Row | Group] end,
                                                     [Row], Groups)
                            end, #{}, Rows)).

sum([Row | Rows]) ->
    lists:foldl(fun plus/2, Row, Rows).

plus(Row, Sum) ->
    maps:map(fun(Key, Value) when Key =:= calls; Key =:= time_ns; Key =:= words ->
                     Value + maps:get(Key, Row);
                (_Key, Value) ->
                     Value
             end, Sum).

zeros(Measures) ->
    maps:from_list([{Key, 0} || Key <- keys(Measures)]).

keys(Measures) ->
    [calls] ++ [time_ns || lists:member(call_time, Measures)]
        ++ [words || lists:member(call_memory, Measures)].

%% ---- inspecting ----

%% @equiv inspect(Tally, process, percent)
-spec inspect(tally()) -> inspected().
inspect(Tally) ->
    inspect(Tally, process, percent).

%% @doc Sums, means and shares: a map from each process to its section, or from `all' to
%% the only one, for `total' or where only calls were counted.
%%
%% Lines are sorted by a column, ascending unless `{Column, descending}' is given.
%% `measurement', `measurement_per_call' and `percent' are of time where it was
%% measured, else of words, else of calls. Where only words were measured, functions
%% that took none are left out, unless none took any. Fails with `{bad_option, sort,
%% Text}' for a column that there is not.
-spec inspect(tally(), process | total, sort_by()) -> inspected().
inspect(#{info := #{measures := Measures}, rows := Rows0} = Tally, By, Sort) ->
    Order = accepted(emberl_tally_options:sort_by(Sort, Measures)),
    Rows = shown(Measures, Rows0),
    Whole = total(Measures, Rows),
    maps:from_list([section(Process, Group, Whole, Order, Tally)
                    || {Process, Group} <- sections(By, Rows)]).

shown([call_memory], Rows) ->
    case [Row || #{words := Words} = Row <- Rows, Words =/= 0] of
        [] -> Rows;
        Some -> Some
    end;
shown(_Measures, Rows) ->
    Rows.

sections(_By, []) -> [];
sections(total, Rows) -> [{all, [sum(Group) || Group <- groups([mfa], Rows)]}];
sections(process, Rows) ->
    [{Process, Group} || [#{process := Process} | _] = Group <- groups([process], Rows)].

total(Measures, Rows) ->
    lists:foldl(fun plus/2, zeros(Measures), Rows).

section(Process, Rows, Whole, Order, #{info := Info, processes := Processes}) ->
    #{engine := Engine, measures := Measures} = Info,
    Total = total(Measures, Rows),
    Names = maps:get(Process, Processes, #{name => undefined, label => undefined}),
    {Process,
     Names#{process => Process, engine => Engine, measures => Measures, total => Total,
            percent => maps:map(fun(Key, Sum) -> percent(Sum, maps:get(Key, Whole)) end, Total),
            lines => sorted([line(Row, Total) || Row <- Rows], Order, main(Measures))}}.

line(#{mfa := MFA, calls := Calls} = Row, Total) ->
    maps:fold(fun(calls, Whole, Line) ->
                      Line#{calls_percent => percent(Calls, Whole)};
                 (time_ns, Whole, Line) ->
                      Time = maps:get(time_ns, Row),
                      Line#{time_ns => Time, time_ns_per_call => ratio(Time, Calls),
                            time_ns_percent => percent(Time, Whole)};
                 (words, Whole, Line) ->
                      Words = maps:get(words, Row),
                      Line#{words => Words, words_per_call => ratio(Words, Calls),
                            words_percent => percent(Words, Whole)}
              end, #{mfa => MFA, calls => Calls}, Total).

percent(Part, Whole) -> ratio(100 * Part, Whole).

ratio(_Part, 0) -> 0.0;
ratio(Part, Whole) -> Part / Whole.

main(Measures) ->
    case {lists:member(call_time, Measures), lists:member(call_memory, Measures)} of
        {true, _} -> time_ns;
        {false, true} -> words;
        {false, false} -> calls
    end.

sorted(Lines, {Column, Direction}, Main) ->
    Key = key(Column, Main),
    Keyed = lists:sort([{Key(Line), MFA, Line} || #{mfa := MFA} = Line <- Lines]),
    Ascending = [Line || {_, _, Line} <- Keyed],
    case Direction of
        ascending -> Ascending;
        descending -> lists:reverse(Ascending)
    end.

key(module, _Main) -> fun(#{mfa := {M, _, _}}) -> M end;
key(function, _Main) -> fun(#{mfa := {_, F, A}}) -> {F, A} end;
key(calls, _Main) -> fun(#{calls := Calls}) -> Calls end;
key(time, _Main) -> value(time_ns);
key(words, _Main) -> value(words);
key(measurement_per_call, calls) -> fun(_Line) -> 1 end;
key(measurement_per_call, time_ns) -> value(time_ns_per_call);
key(measurement_per_call, words) -> value(words_per_call);
key(_Measurement, Main) -> value(Main).

value(Key) -> fun(Line) -> maps:get(Key, Line) end.

%% ---- printing ----

%% @equiv format(standard_io, Inspected)
-spec format(tally() | inspected() | section() | [change()]) -> ok.
format(Inspected) ->
    format(standard_io, Inspected).

%% @doc Prints what {@link inspect/3} gave, or one section of it, or a tally as it is by
%% default, to a device: a table for each process. Of what {@link compare/2} gave, one
%% table, the largest change first.
-spec format(io:device(), tally() | inspected() | section() | [change()]) -> ok.
format(Device, Changes) when is_list(Changes) ->
    io:put_chars(Device, emberl_tally_report:changes(Changes, emberl_table:device(Device)));
format(Device, #{info := _, rows := _} = Tally) ->
    format(Device, inspect(Tally));
format(Device, Inspected) ->
    io:put_chars(Device, emberl_tally_report:text(Inspected, emberl_table:device(Device))).
