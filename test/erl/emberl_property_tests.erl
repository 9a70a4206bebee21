%% SPDX-License-Identifier: Apache-2.0
%% Random programs: what emberl tells of them is what a model knows of them.
%%
%% EMBERL_PROGRAMS: how many (default 200). EMBERL_SEED: the first one's seed, by
%% default another one every time. A failure prints the seed and the program, made
%% as simple as it may be and still fail: `make property PROGRAMS=1 SEED=...`.
-module(emberl_property_tests).

-include_lib("eunit/include/eunit.hrl").

-export([failure/1]).

random_programs_test_() ->
    Programs = number("EMBERL_PROGRAMS", 200),
    First = number("EMBERL_SEED", erlang:system_time(microsecond)),
    {setup, fun() -> ok end, fun(_) -> unload() end,
     {timeout, 60 + Programs, fun() -> check(First, First + Programs) end}}.

unload() ->
    [emberl_test:unload(Module) || Module <- emberl_random_program:modules()].

number(Name, Default) ->
    list_to_integer(os:getenv(Name, integer_to_list(Default))).

check(End, End) -> ok;
check(Seed, End) ->
    Program = emberl_random_program:generate(Seed),
    case failure(Program) of
        none -> check(Seed + 1, End);
        Failure -> report(Seed, shrink(Program, Failure))
    end.

report(Seed, {Program, Failure}) ->
    ?debugFmt("seed ~b~n~p~n~ts~n~p", [Seed, maps:remove(functions, Program),
                                       emberl_random_program:text(Program), Failure]),
    error({wrong, {seed, Seed}, Failure}).

%% ---- one program ----

%% `none', or what was different.
-spec failure(emberl_random_program:program()) -> none | term().
failure(Program) ->
    Model = emberl_random_program:run(Program),
    Code = emberl_random_program:code(Program),
    [{module, M} = code:load_binary(M, "", Binary) || {M, Binary} <- Code],
    Seen = tree(profile(Program)),
    [code:purge(M) || {M, _} <- Code],
    difference(Model, Seen).

profile(#{fuel := Fuel, fold := Fold} = Program) ->
    emberl_test:in_process(
      fun() ->
              emberl_test:profile({emberl_random_a, f0, [Fuel]},
                                  #{modules => maps:get(shown, Program),
                                    fold_recursion => Fold})
      end).

%% A profile in the form of the model's tree.
tree(Profile) ->
    #{lost := 0} = emberl_profile:info(Profile),
    Processes = emberl_profile:processes(Profile),
    [#{pid := First}] = [P || #{parent := undefined} = P <- Processes],
    tree(First, Processes, emberl_profile:stacks(Profile)).

tree(Pid, Processes, Rows) ->
    Stacks = lists:foldl(fun add/2, #{}, [Row || #{process := P} = Row <- Rows, P =:= Pid]),
    Children = [tree(Child, Processes, Rows)
                || #{pid := Child, parent := P} <- Processes, P =:= Pid],
    {Stacks, lists:sort(Children)}.

add(#{stack := []}, Stacks) ->
    Stacks;
add(#{stack := Stack, calls := Calls, words := Words}, Stacks) ->
    maps:update_with([frame(MFA) || MFA <- lists:reverse(Stack)],
                     fun({C, W}) -> {C + Calls, W + Words} end, {Calls, Words}, Stacks).

frame({Module, Name, _Arity}) -> {Module, name(atom_to_list(Name), Name)}.

name("-" ++ Rest, _Name) ->
    [Function | _] = string:split(Rest, "/"),
    {'fun', list_to_atom(Function)};
name(_, Name) -> Name.

%% ---- comparing ----

difference(Model, Seen) ->
    case is_like(Model, Seen) of
        true -> none;
        false -> pairs(Model, Seen)
    end.

%% Children have no order: one with the same calls each.
is_like({Stacks, Children}, {SeenStacks, SeenChildren}) ->
    lists:sort(maps:keys(Stacks)) =:= lists:sort(maps:keys(SeenStacks))
        andalso lists:all(fun({Path, Numbers}) -> are_like(Numbers, maps:get(Path, SeenStacks)) end,
                          maps:to_list(Stacks))
        andalso are_all_like(Children, SeenChildren).

are_like({Calls, unknown}, {Calls, _}) -> true;
are_like(Numbers, Numbers) -> true;
are_like(_, _) -> false.

are_all_like([], []) -> true;
are_all_like([Child | Children], Seen) ->
    case [S || S <- Seen, is_like(Child, S)] of
        [Like | _] -> are_all_like(Children, lists:delete(Like, Seen));
        [] -> false
    end;
are_all_like([], _) -> false.

%% What is different in the first process, or else in its children.
pairs({Stacks, Children}, {SeenStacks, SeenChildren}) ->
    Paths = lists:usort(maps:keys(Stacks) ++ maps:keys(SeenStacks)),
    Wrong = [{lists:reverse([Name || {_, Name} <- Path]), {model, A}, {seen, B}}
             || Path <- Paths,
                {A, B} <- [{maps:get(Path, Stacks, none), maps:get(Path, SeenStacks, none)}],
                A =:= none orelse B =:= none orelse not are_like(A, B)],
    case Wrong of
        [] when length(Children) =/= length(SeenChildren) ->
            {children, {model, length(Children)}, {seen, length(SeenChildren)}};
        [] ->
            {children, [pairs(A, B) || {A, B} <- lists:zip(Children, SeenChildren)]};
        _ ->
            Wrong
    end.

%% ---- shrinking ----

%% The first simpler program that fails, again and again.
shrink(Program, Failure) ->
    case first_failure(emberl_random_program:simpler(Program)) of
        none -> {Program, Failure};
        {Simpler, Next} -> shrink(Simpler, Next)
    end.

first_failure([]) -> none;
first_failure([Program | Programs]) ->
    case failure_of_any(Program) of
        none -> first_failure(Programs);
        Failure -> {Program, Failure}
    end.

failure_of_any(Program) ->
    try failure(Program)
    catch throw:Reason when Reason =:= too_large; Reason =:= unclear -> none
    end.
