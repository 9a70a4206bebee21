%% SPDX-License-Identifier: Apache-2.0
%% Random programs of two modules, and what they do: a model runs a program in
%% its head, with the stack it should be shown with, and knows how often each
%% stack was called and, but for a few, how many words it allocated.
%%
%% A function is given fuel, which every call takes one from, so all ends:
%%
%%   f3(N) when N =< 0 -> N;
%%   f3(N) -> <statements>, <end>.
-module(emberl_random_program).

-export([generate/1, code/1, text/1, run/1, simpler/1, modules/0]).
-export_type([program/0, tree/0]).

-type id() :: non_neg_integer().
-type fuel() :: less | pos_integer().     % one less than one's own, or so much
-type body() :: {[statement()], 'end'()}.
-type statement() ::
        {call | external_fun | dynamic, id(), fuel()} |
        {'fun', id()} |
        {comprehension, id(), non_neg_integer()} |
        {tuple | list, pos_integer()} |   % elements
        {'try', [statement()], [statement()]} |
        {'catch' | 'after', [statement()]} |
        {'if', pos_integer(), non_neg_integer(), [statement()], raise | value} |
        {spawn, mfa | 'fun', id(), [statement()]} |
        send | sleep | yield | collect.
-type class() :: throw | error | exit | badmatch | badarg | function_clause.
-type 'end'() ::
        value | {tail | tail_fun, id()} | {raise, class()} |
        {branch, pos_integer(), non_neg_integer(), body(), body()} |
        {'try', [statement()], body(), body()}.
-type program() ::
        #{functions := #{id() => {module(), body()}}, % 0 is called first
          fuel := pos_integer(),
          fold := boolean(),
          shown := [module()]}.
-type tree() :: {#{[frame()] => {pos_integer(), integer() | unknown}}, [tree()]}. % of children
-type frame() :: {module(), atom()}.      % a fun or comprehension in f: {Module, {'fun', f}}

-define(A, emberl_random_a).
-define(B, emberl_random_b).
-define(MAX_CALLS, 3000).
-define(MAX_PROCESSES, 12).
-define(MAX_NODE_DEPTH, 512).

-spec modules() -> [module()].
modules() -> [?A, ?B].

%% ---- generating ----

%% The program of a seed; always the same.
-spec generate(integer()) -> program().
generate(Seed) ->
    rand:seed(exsss, Seed),
    new_program().

%% One that is neither trivial nor too long to run.
new_program() ->
    Program = random_program(),
    try run(Program) of
        _ -> Program
    catch
        throw:Reason when Reason =:= too_large; Reason =:= unclear -> new_program()
    end.

random_program() ->
    Last = 1 + rand:uniform(7),
    Functions = maps:from_list([{Id, {one_of([?A, ?A, ?B]), random_body(Id, Last)}}
                                || Id <- lists:seq(1, Last)]),
    #{functions => Functions#{0 => {?A, {[{'try', [{call, 1, less}], []}], value}}},
      fuel => 2 + rand:uniform(6),
      fold => one_of([true, false]),
      shown => one_of([[?A, ?B], [?A]])}.

one_of(List) -> lists:nth(rand:uniform(length(List)), List).

%% The last function calls itself alone, once, so it can go deep.
random_body(Last, Last) ->
    Before = random_simple(2),
    After = random_simple(2),
    one_of([{Before ++ [{call, Last, less} | After], value},
            {Before, {tail, Last}},
            {Before ++ [{'if', 7, 1, [], raise}, {call, Last, less} | After], value},
            {Before ++ [{'if', 5, 2, [], raise}], {tail, Last}},
            {[{'try', Before ++ [{call, Last, less}], After}], value}]);
random_body(_Id, Last) ->
    random_body_of(2, Last).

random_body_of(Nesting, Last) ->
    {random_statements(Nesting, Last), random_end(Nesting, Last)}.

random_statements(Nesting, Last) ->
    [random_statement(Nesting, Last) || _ <- lists:seq(1, rand:uniform(4) - 1)].

random_simple(Most) ->
    [random_simple() || _ <- lists:seq(1, rand:uniform(Most + 1) - 1)].

random_simple() ->
    one_of([{tuple, rand:uniform(20)}, {list, rand:uniform(9)}, {tuple, rand:uniform(200)}, send]).

random_statement(0, Last) ->
    case rand:uniform(10) of
        1 -> {call, Last, rand:uniform(60)};
        2 -> {external_fun, rand:uniform(Last), less};
        3 -> {dynamic, rand:uniform(Last), less};
        4 -> {'fun', rand:uniform(Last)};
        5 -> {comprehension, rand:uniform(Last), rand:uniform(4) - 1};
        6 -> one_of([sleep, yield, collect]);
        7 -> random_simple();
        _ -> {call, rand:uniform(Last), less}
    end;
random_statement(Nesting, Last) ->
    case rand:uniform(14) of
        1 -> {'try', random_statements(Nesting - 1, Last), random_statements(Nesting - 1, Last)};
        2 -> {'catch', random_statements(Nesting - 1, Last)};
        3 -> {'after', random_statements(Nesting - 1, Last)};
        4 -> {'if', 1 + rand:uniform(3), rand:uniform(2) - 1,
              random_statements(Nesting - 1, Last), one_of([raise, value])};
        5 -> {spawn, one_of([mfa, 'fun']), rand:uniform(Last), random_simple(2)};
        _ -> random_statement(0, Last)
    end.

random_end(0, Last) ->
    case rand:uniform(8) of
        1 -> {raise, one_of([throw, error, exit, badmatch, badarg, function_clause])};
        2 -> {tail_fun, rand:uniform(Last)};
        N when N < 6 -> {tail, rand:uniform(Last)};
        _ -> value
    end;
random_end(Nesting, Last) ->
    case rand:uniform(6) of
        1 -> {branch, 1 + rand:uniform(3), rand:uniform(2) - 1,
              random_body_of(Nesting - 1, Last), random_body_of(Nesting - 1, Last)};
        2 -> {'try', random_statements(Nesting - 1, Last), random_body_of(Nesting - 1, Last),
              random_body_of(Nesting - 1, Last)};
        _ -> random_end(0, Last)
    end.

%% ---- as code ----

%% Both modules, compiled.
-spec code(program()) -> [{module(), binary()}].
code(Program) ->
    [{Module, emberl_test:compile(Module, Texts)} || {Module, Texts} <- texts(Program)].

-spec text(program()) -> iolist().
text(Program) ->
    [[io_lib:format("-module(~s).~n", [Module]), [[Text, $\n] || Text <- Texts]]
     || {Module, Texts} <- texts(Program)].

texts(#{functions := Functions}) ->
    [{Module, common() ++ [function_text(Module, Id, Body, Functions)
                           || {Id, {M, Body}} <- lists:sort(maps:to_list(Functions)), M =:= Module]}
     || Module <- [?A, ?B]].

%% Exported, so that the compiler knows nothing of the arguments.
common() ->
    ["sink(X) -> X.",
     "call_fun(F, X) -> F(X).",
     "no_clause([]) -> [].",
     "child(Parent, Module, Function, N) ->"
     "    try Module:Function(N) catch _:_ -> N end,"
     "    Parent ! self().",
     "starter(Parent, Module, Function, N) ->"
     "    fun() -> child(Parent, Module, Function, N) end.",
     "await(Pid, _) -> receive Pid -> Pid end."].

function_text(Module, Id, Body, Functions) ->
    text("~s(N) when N =< 0 -> N;\n~s(N) ->\n    ~s.",
         [name(Id), name(Id), body_text(Body, {Module, Functions})]).

text(Format, Arguments) ->
    lists:flatten(io_lib:format(Format, Arguments)).

name(Id) -> lists:concat([f, Id]).

body_text({Statements, End}, Where) ->
    sequence([statement_text(S, Where) || S <- Statements] ++ [end_text(End, Where)]).

sequence(Texts) -> lists:join(",\n    ", Texts).

%% What is not at the end gives a value that nobody returns.
block_text(Statements, Where) ->
    body_text({Statements, value}, Where).

end_text(value, _Where) -> "N";
end_text({tail, Id}, Where) -> call_text(Id, less, Where);
end_text({tail_fun, Id}, Where) -> statement_text({'fun', Id}, Where);
end_text({raise, Class}, _Where) -> raise_text(Class);
end_text({branch, K, R, Yes, No}, Where) ->
    text("if N rem ~b =:= ~b -> ~s; true -> ~s end",
         [K, R, body_text(Yes, Where), body_text(No, Where)]);
end_text({'try', Statements, Of, Catch}, Where) ->
    text("try ~s of _ -> ~s catch _:_ -> ~s end",
         [block_text(Statements, Where), body_text(Of, Where), body_text(Catch, Where)]).

raise_text(badmatch) -> "[] = N";
raise_text(badarg) -> "element(N, N)";
raise_text(function_clause) -> "no_clause(N)";
raise_text(Class) -> text("erlang:~s(N)", [Class]).

statement_text({call, Id, Fuel}, Where) ->
    call_text(Id, Fuel, Where);
statement_text({external_fun, Id, Fuel}, {_, Functions}) ->
    text("call_fun(fun ~s:~s/1, ~s)", [module(Id, Functions), name(Id), fuel_text(Fuel)]);
statement_text({dynamic, Id, Fuel}, {_, Functions}) ->
    text("(sink(~s)):~s(~s)", [module(Id, Functions), name(Id), fuel_text(Fuel)]);
statement_text({'fun', Id}, Where) ->
    text("call_fun(fun(X) -> sink({N}), ~s end, N)", [called_text(Id, "X - 1", Where)]);
statement_text({comprehension, Id, Length}, Where) ->
    text("sink([~s || _ <- sink(~w)])", [call_text(Id, less, Where), lists:duplicate(Length, x)]);
statement_text({tuple, Size}, _Where) ->
    text("sink({~s})", [lists:join(",", lists:duplicate(Size, "N"))]);
statement_text({list, Size}, _Where) ->
    text("sink([~s])", [lists:join(",", lists:duplicate(Size, "N"))]);
statement_text({'try', Statements, Handler}, Where) ->
    text("try ~s catch _:_ -> ~s end", [block_text(Statements, Where), block_text(Handler, Where)]);
statement_text({'catch', Statements}, Where) ->
    text("sink(catch begin ~s end)", [block_text(Statements, Where)]);
statement_text({'after', Statements}, Where) ->
    text("try ~s after sink(N) end", [block_text(Statements, Where)]);
statement_text({'if', K, R, Statements, raise}, Where) ->
    text("if N rem ~b =:= ~b -> ~s; true -> N end",
         [K, R, body_text({Statements, {raise, throw}}, Where)]);
statement_text({'if', K, R, Statements, value}, Where) ->
    text("if N rem ~b =:= ~b -> ~s; true -> N end", [K, R, block_text(Statements, Where)]);
statement_text({spawn, How, Id, Meanwhile}, {Module, Functions} = Where) ->
    text("await(~s, begin ~s end)",
         [text(spawn_text(How), [Module, module(Id, Functions), name(Id)]),
          block_text(Meanwhile, Where)]);
statement_text(send, _Where) -> "begin self() ! x, receive x -> N end end";
statement_text(sleep, _Where) -> "receive after 1 -> N end";
statement_text(yield, _Where) -> "erlang:yield()";
statement_text(collect, _Where) -> "erlang:garbage_collect()".

spawn_text(mfa) -> "spawn(~s, child, [self(), ~s, ~s, N - 1])";
spawn_text('fun') -> "spawn(~s:starter(self(), ~s, ~s, N - 1))".

call_text(Id, Fuel, Where) -> called_text(Id, fuel_text(Fuel), Where).

called_text(Id, Argument, {Module, Functions}) ->
    case module(Id, Functions) of
        Module -> text("~s(~s)", [name(Id), Argument]);
        Other -> text("~s:~s(~s)", [Other, name(Id), Argument])
    end.

fuel_text(less) -> "N - 1";
fuel_text(Fuel) -> integer_to_list(Fuel).

module(Id, Functions) -> element(1, maps:get(Id, Functions)).

%% ---- the model ----

%% An entry of the stack: what was called, the shown stack from there on (top
%% first), and the real frame, which a chain of tail calls shares.
-record(entry,
        {frame :: frame(), path :: [frame()], real :: reference() | base, hidden :: boolean()}).

-record(model, {program :: program(),
                calls = #{} :: #{[frame()] => pos_integer()},
                words = #{} :: #{[frame()] => integer() | unknown},
                children = [] :: [tree()],
                total = 0 :: non_neg_integer()}).

%% The tree of the first process, with those of its children, in no order.
-spec run(program()) -> tree().
run(#{fuel := Fuel} = Program) ->
    put(processes, 0),
    process(Program, fun(Model) -> call(0, Fuel, [], Model) end).

process(Program, Run) ->
    put(processes, get(processes) + 1),
    get(processes) > ?MAX_PROCESSES andalso throw(too_large),
    {_, #model{calls = Calls, words = Words, children = Children}} = Run(#model{program = Program}),
    {maps:map(fun(Path, N) -> {N, maps:get(Path, Words, 0)} end, Calls), lists:sort(Children)}.

%% Enters a function, by a body call or, in the caller's frame, by a tail call.
enter_body(Frame, Stack, Model) ->
    push(Frame, make_ref(), Stack, Model).

enter_tail(Frame, [#entry{real = Real} | _] = Stack, Model) ->
    case in_chain(Frame, Real, Stack) of
        [#entry{hidden = false} | _] = Again -> {Again, count(Again, Model)};
        _ -> push(Frame, Real, Stack, Model)
    end.

in_chain(Frame, Real, [#entry{frame = Frame, real = Real} | _] = Stack) -> Stack;
in_chain(Frame, Real, [#entry{real = Real} | Stack]) -> in_chain(Frame, Real, Stack);
in_chain(_Frame, _Real, _Stack) -> [].

push(Frame, Real, Stack, #model{program = Program} = Model) ->
    Path = path(Stack),
    case is_shown(Frame, Program) of
        true ->
            Pushed = [#entry{frame = Frame, path = callee(Frame, Path, Program), real = Real,
                             hidden = false} | Stack],
            {Pushed, count(Pushed, Model)};
        false ->
            {[#entry{frame = Frame, path = Path, real = Real, hidden = true} | Stack], Model}
    end.

is_shown({Module, _}, #{shown := Shown}) -> lists:member(Module, Shown).

callee(Frame, [Frame | _] = Path, #{fold := true}) -> Path;
callee(_Frame, Path, _Program) when length(Path) >= ?MAX_NODE_DEPTH -> throw(too_large);
callee(Frame, Path, _Program) -> [Frame | Path].

path([]) -> [];
path([#entry{path = Path} | _]) -> Path.

count(Stack, #model{calls = Calls, total = Total} = Model) ->
    Total >= ?MAX_CALLS andalso throw(too_large),
    Model#model{total = Total + 1,
                calls = maps:update_with(path(Stack), fun(N) -> N + 1 end, 1, Calls)}.

allocate(Words, Stack, #model{words = Known} = Model) ->
    Path = path(Stack),
    Model#model{words = Known#{Path => plus(maps:get(Path, Known, 0), Words)}}.

plus(A, B) when is_integer(A), is_integer(B) -> A + B;
plus(_, _) -> unknown.

%% Every function of ours gives {value, Model} or {raised, Model}.
call(Id, Fuel, Stack, Model) ->
    in(Id, Fuel, enter_body(frame(Id, Model), Stack, Model)).

tail(Id, Fuel, Stack, Model) ->
    in(Id, Fuel, enter_tail(frame(Id, Model), Stack, Model)).

frame(Id, Model) -> {module_of(Id, Model), list_to_atom(name(Id))}.

module_of(Id, #model{program = #{functions := Functions}}) -> module(Id, Functions).

in(_Id, Fuel, {_Stack, Model}) when Fuel =< 0 -> {value, Model};
in(Id, Fuel, {Stack, #model{program = #{functions := Functions}} = Model}) ->
    {Module, Body} = maps:get(Id, Functions),
    body(Body, Fuel, Module, Stack, Model).

body({Statements, End}, N, Module, Stack, Model0) ->
    case statements(Statements, N, Module, Stack, Model0) of
        {value, Model} -> finish(End, N, Module, Stack, Model);
        Raised -> Raised
    end.

statements([], _N, _Module, _Stack, Model) -> {value, Model};
statements([S | Statements], N, Module, Stack, Model0) ->
    case statement(S, N, Module, Stack, Model0) of
        {value, Model} -> statements(Statements, N, Module, Stack, Model);
        Raised -> Raised
    end.

finish(value, _N, _Module, _Stack, Model) -> {value, Model};
finish({tail, Id}, N, _Module, Stack, Model) -> tail(Id, N - 1, Stack, Model);
finish({tail_fun, Id}, N, Module, Stack, Model) ->
    call_fun(Id, N, Module, Stack, enter_tail({Module, call_fun}, Stack, fun_words(Stack, Model)));
finish({raise, function_clause}, _N, Module, Stack, Model0) ->
    {Callee, Model} = enter_tail({Module, no_clause}, Stack, Model0),
    {raised, allocate(unknown, Callee, Model)};
finish({raise, _Class}, _N, _Module, Stack, Model) ->
    {raised, allocate(unknown, Stack, Model)};
finish({branch, K, R, Yes, _No}, N, Module, Stack, Model) when N rem K =:= R ->
    body(Yes, N, Module, Stack, Model);
finish({branch, _K, _R, _Yes, No}, N, Module, Stack, Model) ->
    body(No, N, Module, Stack, Model);
finish({'try', Statements, Of, Catch}, N, Module, Stack, Model0) ->
    case statements(Statements, N, Module, Stack, Model0) of
        {value, Model} -> body(Of, N, Module, Stack, Model);
        {raised, Model} -> body(Catch, N, Module, Stack, caught(Stack, Model))
    end.

statement({call, Id, Fuel}, N, _Module, Stack, Model) ->
    call(Id, fuel(Fuel, N), Stack, Model);
statement({external_fun, Id, Fuel}, N, Module, Stack, Model0) ->
    {Inside, Model} = enter_body({Module, call_fun}, Stack, Model0),
    tail(Id, fuel(Fuel, N), Inside, Model);
statement({dynamic, Id, Fuel}, N, Module, Stack, Model) ->
    call(Id, fuel(Fuel, N), Stack, sink(Module, Stack, Model));
statement({'fun', Id}, N, Module, Stack, Model) ->
    call_fun(Id, N, Module, Stack, enter_body({Module, call_fun}, Stack, fun_words(Stack, Model)));
statement({comprehension, Id, Length}, N, Module, Stack, Model0) ->
    Model1 = sink(Module, Stack, Model0),
    case comprehension(Length, Id, N, {Module, {'fun', own(Stack)}}, Stack, Model1) of
        {value, Model} -> {value, sink(Module, Stack, Model)};
        Raised -> Raised
    end;
statement({tuple, Size}, _N, Module, Stack, Model) ->
    {value, sink(Module, Stack, allocate(Size + 1, Stack, Model))};
statement({list, Size}, _N, Module, Stack, Model) ->
    {value, sink(Module, Stack, allocate(2 * Size, Stack, Model))};
statement({'try', Statements, Handler}, N, Module, Stack, Model0) ->
    case statements(Statements, N, Module, Stack, Model0) of
        {value, _} = Value -> Value;
        {raised, Model} -> statements(Handler, N, Module, Stack, caught(Stack, Model))
    end;
statement({'catch', Statements}, N, Module, Stack, Model0) ->
    case statements(Statements, N, Module, Stack, Model0) of
        {value, Model} -> {value, sink(Module, Stack, Model)};
        {raised, Model} -> {value, sink(Module, Stack, caught(Stack, Model))}
    end;
statement({'after', Statements}, N, Module, Stack, Model0) ->
    case statements(Statements, N, Module, Stack, Model0) of
        {value, Model} -> {value, sink(Module, Stack, Model)};
        {raised, Model} -> {raised, sink(Module, Stack, caught(Stack, Model))}
    end;
statement({'if', K, R, Statements, End}, N, Module, Stack, Model0) when N rem K =:= R ->
    case {statements(Statements, N, Module, Stack, Model0), End} of
        {{value, Model}, raise} -> {raised, allocate(unknown, Stack, Model)};
        {Result, _} -> Result
    end;
statement({'if', _K, _R, _Statements, _End}, _N, _Module, _Stack, Model) ->
    {value, Model};
statement({spawn, How, Id, Meanwhile}, N, Module, Stack, #model{program = Program} = Model0) ->
    Child = process(Program, fun(Fresh) -> run_child(How, Id, N, Module, Fresh) end),
    Model1 = add_child(Child, starter(How, Module, Stack, allocate(unknown, Stack, Model0))),
    {value, Model2} = statements(Meanwhile, N, Module, Stack, Model1),
    {_, Model} = enter_body({Module, await}, Stack, Model2),
    {value, Model};
statement(_Simple, _N, _Module, _Stack, Model) ->
    {value, Model}.

%% Where a function catches that is not seen, nobody can tell how far the stack
%% was unwound.
caught([#entry{hidden = true} | _], _Model) -> throw(unclear);
caught(Stack, Model) -> allocate(unknown, Stack, Model).

fuel(less, N) -> N - 1;
fuel(Fuel, _N) -> Fuel.

%% A tail call of the fun, which calls something, then tail-calls the function.
call_fun(Id, N, Module, Caller, {Stack, Model0}) ->
    {Inside, Model1} = enter_tail({Module, {'fun', own(Caller)}}, Stack, Model0),
    Model2 = sink(Module, Inside, allocate(2, Inside, Model1)),
    tail(Id, N - 1, Inside, Model2).

%% The function whose code this is.
own([#entry{frame = {_, Name}} | _]) -> Name.

fun_words(Stack, Model) ->
    N = erlang:unique_integer(), % no literal, or the fun would be one
    Flat = erts_debug:flat_size(fun(X) -> X + N end),
    allocate(Flat - shared_fun_words(emberl_test:release()), Stack, Model).

%% The size tells of a reference, too, that all funs share.
shared_fun_words(27) -> 3;
shared_fun_words(_) -> 0.

%% Body recursion: a cell is made when the rest is there.
comprehension(0, _Id, _N, Frame, Stack, Model0) ->
    {_, Model} = enter_body(Frame, Stack, Model0),
    {value, Model};
comprehension(Length, Id, N, Frame, Stack, Model0) ->
    {Inside, Model1} = enter_body(Frame, Stack, Model0),
    case call(Id, N - 1, Inside, Model1) of
        {value, Model2} -> cell(comprehension(Length - 1, Id, N, Frame, Inside, Model2), Inside);
        Raised -> Raised
    end.

cell({value, Model}, Stack) -> {value, allocate(2, Stack, Model)};
cell(Raised, _Stack) -> Raised.

sink(Module, Stack, Model0) ->
    {_, Model} = enter_body({Module, sink}, Stack, Model0),
    Model.

starter(mfa, _Module, _Stack, Model) -> Model;
starter('fun', Module, Stack, Model0) ->
    {Inside, Model} = enter_body({Module, starter}, Stack, Model0),
    allocate(unknown, Inside, Model).

add_child(Child, #model{children = Children} = Model) ->
    Model#model{children = [Child | Children]}.

%% A process that calls a function and tells when that is done, however.
run_child(mfa, Id, N, Module, Model) ->
    child_body(Id, N, enter_body({Module, child}, [], Model));
run_child('fun', Id, N, Module, Model0) ->
    {Stack, Model} = enter_body({Module, {'fun', starter}}, [], Model0),
    child_body(Id, N, enter_tail({Module, child}, Stack, allocate(unknown, Stack, Model))).

child_body(Id, N, {Stack, Model0}) ->
    {_, Model} = call(Id, N - 1, Stack, Model0),
    {value, allocate(unknown, Stack, Model)}.

%% ---- simpler ones ----

%% Programs with one thing less.
-spec simpler(program()) -> [program()].
simpler(#{functions := Functions, fuel := Fuel} = Program) ->
    [Program#{functions := Functions#{Id := {Module, Simpler}}}
     || {Id, {Module, Body}} <- maps:to_list(Functions), Id > 0, Simpler <- simpler_body(Body)]
        ++ [Program#{fuel := Fuel - 1} || Fuel > 1]
        ++ [Program#{functions := Functions#{Id := {?A, Body}}}
            || {Id, {?B, Body}} <- maps:to_list(Functions)].

simpler_body({Statements, End}) ->
    [{S, End} || S <- simpler_list(Statements)] ++ [{Statements, E} || E <- simpler_end(End)].

simpler_list(List) ->
    [Before ++ After || {Before, _, After} <- splits(List)] ++
        [Before ++ S ++ After || {Before, X, After} <- splits(List), S <- simpler_statement(X)].

splits(List) ->
    [{lists:sublist(List, I - 1), lists:nth(I, List), lists:nthtail(I, List)}
     || I <- lists:seq(1, length(List))].

simpler_statement({'try', A, B}) ->
    [A, B] ++ [[{'try', S, B}] || S <- simpler_list(A)]
        ++ [[{'try', A, S}] || S <- simpler_list(B)];
simpler_statement({Kind, A}) when Kind =:= 'catch'; Kind =:= 'after' ->
    [A] ++ [[{Kind, S}] || S <- simpler_list(A)];
simpler_statement({'if', K, R, A, End}) ->
    [A] ++ [[{'if', K, R, S, End}] || S <- simpler_list(A)];
simpler_statement({spawn, How, Id, A}) ->
    [[{call, Id, less}]] ++ [[{spawn, How, Id, S}] || S <- simpler_list(A)];
simpler_statement({Kind, Id, _})
  when Kind =:= external_fun; Kind =:= dynamic; Kind =:= comprehension ->
    [[{call, Id, less}]];
simpler_statement({'fun', Id}) -> [[{call, Id, less}]];
simpler_statement({call, Id, Fuel}) when is_integer(Fuel), Fuel > 1 -> [[{call, Id, Fuel div 2}]];
simpler_statement({Kind, Size}) when Kind =:= tuple, Size > 1; Kind =:= list, Size > 1 ->
    [[{Kind, 1}]];
simpler_statement(_) -> [].

simpler_end(value) -> [];
simpler_end({branch, K, R, Yes, No}) ->
    [value] ++ [{branch, K, R, S, No} || S <- simpler_body(Yes)]
        ++ [{branch, K, R, Yes, S} || S <- simpler_body(No)];
simpler_end({'try', A, Of, Catch}) ->
    [value] ++ [{'try', S, Of, Catch} || S <- simpler_list(A)]
        ++ [{'try', A, S, Catch} || S <- simpler_body(Of)]
        ++ [{'try', A, Of, S} || S <- simpler_body(Catch)];
simpler_end({tail_fun, Id}) -> [value, {tail, Id}];
simpler_end(_) -> [value].
