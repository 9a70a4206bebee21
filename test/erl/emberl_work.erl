%% SPDX-License-Identifier: Apache-2.0
%% Small programs whose stacks and calls are known. leaf/1 is what they do.
-module(emberl_work).

-compile(nowarn_deprecated_catch). % old code has it

-export([leaf/1, deep/1, deep_leaf/1, pair/1, pairs/1, bare/0]).
-export([chain/1, chain_after/1, loop/1, ping/1, pong/1, mixed/1, fork/1]).
-export([raise/1, caught/1, caught_deep/2, dig/2, caught_in_loop/2, caught_above/1, uncaught/1,
         old_catch/1, with_after/1, after_raise/1, rethrown/1, raised_by_bif/1]).
-export([call_fun/1, comprehension/1, foreign_fun/1, apply_3/0, call/1, bifs/1, sort/1, through/1]).
-export([collect/0, collect_deep/1, grow/1, wait/0, wait_for/1, hibernate/1, wake/1]).
-export([spawn_and_wait/1, child/1, nested/1, outlive/1, grandchild/2, migrate/1]).
-export([burn_then_call/1, call_then_burn/1, tail_to_burn/1, call_unwind/1, wait_between/1]).
-export([forever/0, work/1, count_down/1, exit_self/1, allocate/1, calls_unloaded/1, nifs/1]).
-export([local_only/1, busy/2, forest/1, grove/1, down/1, up/1, wait_and_burn/1,
         binaries/1]).

leaf(X) -> X.

pair(X) -> {leaf(X), leaf(X)}.

pairs(0) -> ok;
pairs(N) ->
    pair(N),
    pairs(N - 1).

%% Body calls from a frame without variables: the smallest there is.
bare() ->
    leaf(1),
    bare_pair(),
    leaf(2),
    ok.

bare_pair() ->
    leaf(3),
    leaf(4),
    ok.

%% ---- recursion and tail calls ----

deep(0) -> 0;
deep(N) -> 1 + deep(N - 1).

%% A call on the way back, at every depth.
deep_leaf(0) -> 0;
deep_leaf(N) -> leaf(deep_leaf(N - 1)) + 1.

chain(X) -> chain_b(X).
chain_b(X) -> chain_c(X).
chain_c(X) ->
    leaf(X),
    leaf(X) + 1.

chain_after(X) ->
    chain(X),
    leaf(X),
    ok.

loop(0) -> done;
loop(N) ->
    leaf(N),
    loop(N - 1).

ping(0) -> done;
ping(N) -> pong(N - 1).

pong(0) -> done;
pong(N) -> ping(N - 1).

%% A tail call where N is even, a body call where it is odd.
mixed(0) -> 0;
mixed(N) when N rem 2 =:= 0 -> mixed(N - 1);
mixed(N) -> 1 + mixed(N - 1).

%% Body calls, then a tail call to a function that was called before.
fork(X) ->
    pair(X),
    leaf(X),
    pair(X).

%% ---- exceptions ----

raise(throw) -> throw(raised);
raise(error) -> error(raised);
raise(exit) -> exit(raised).

caught(Class) ->
    try dig(0, Class)
    catch Class:raised -> leaf(1)
    end,
    leaf(2),
    ok.

caught_deep(Depth, Class) ->
    try dig(Depth, Class)
    catch Class:raised -> leaf(1)
    end,
    leaf(2),
    ok.

dig(0, Class) -> raise(Class);
dig(N, Class) ->
    dig(N - 1, Class),
    leaf(N).

caught_in_loop(0, _Class) -> ok;
caught_in_loop(N, Class) ->
    caught(Class),
    caught_in_loop(N - 1, Class).

%% Caught by a function in the middle of the stack, which then returns.
caught_above(Class) ->
    caught_deep(3, Class),
    leaf(3),
    ok.

uncaught(Class) ->
    dig(2, Class),
    leaf(1).

old_catch(Class) ->
    Caught = (catch dig(1, Class)),
    leaf(Caught),
    ok.

with_after(X) ->
    try leaf(X)
    after leaf(X)
    end.

after_raise(Class) ->
    try
        try dig(1, Class)
        after pair(1)
        end
    catch Class:raised -> leaf(2)
    end.

rethrown(Class) ->
    try
        try dig(1, Class)
        catch Class:Reason:Stack ->
                leaf(1),
                erlang:raise(Class, Reason, Stack)
        end
    catch Class:raised -> leaf(2)
    end.

raised_by_bif(NotAList) ->
    try lists:reverse(NotAList, [])
    catch error:badarg -> leaf(1)
    end,
    leaf(2).

%% ---- funs, modules, BIFs, NIFs ----

call_fun(X) ->
    Fun = fun(Y) -> leaf(Y + X) end,
    Fun(1) + Fun(2).

comprehension(List) ->
    Leaves = [leaf(X) || X <- List],
    leaf(Leaves).

foreign_fun(X) ->
    Fun = emberl_work_other:adder(X),
    leaf(Fun(1)),
    ok.

apply_3() ->
    {Module, Function, Arguments} = leaf({?MODULE, pair, [1]}),
    Result = apply(Module, Function, Arguments),
    leaf(Result),
    ok.

call({Module, Function, Arguments}) ->
    leaf(apply(Module, Function, Arguments)).

bifs(List) ->
    Copy = lists:reverse(List, []),
    Hash = erlang:phash2(Copy),
    leaf(Hash),
    erlang:make_tuple(3, Hash).

sort(List) ->
    leaf(lists:sort(List)).

%% Our module, another, ours again.
through(X) ->
    emberl_work_other:call_back(fun() -> pair(X) end),
    leaf(X).

nifs(X) ->
    emberl_test_nif:plain(X),
    emberl_test_nif:dirty_cpu(X),
    emberl_test_nif:dirty_io(X),
    emberl_test_nif:rescheduled(X),
    leaf(X).

%% ---- collections, messages, hibernation ----

collect() ->
    leaf(1),
    erlang:garbage_collect(),
    leaf(2),
    ok.

%% A collection far down, and a call at every depth on the way back.
collect_deep(0) ->
    erlang:garbage_collect(),
    0;
collect_deep(N) -> leaf(collect_deep(N - 1)) + 1.

%% Live data at every depth, so that the heap grows and moves.
grow(0) -> [];
grow(N) ->
    Data = lists:duplicate(100, N),
    Rest = grow(N - 1),
    leaf(Data),
    [hd(Data) | Rest].

%% Gives back what it is sent, until told to stop.
wait() ->
    receive
        {From, stop} -> From ! {self(), stopped};
        {From, Message} ->
            From ! {self(), leaf(Message)},
            wait()
    end.

wait_for(Message) ->
    receive Message -> leaf(Message) end.

hibernate(Parent) ->
    leaf(1),
    erlang:hibernate(?MODULE, wake, [Parent]).

wake(Parent) ->
    receive go -> leaf(2) end,
    pair(3),
    Parent ! {self(), awake}.

%% ---- processes ----

spawn_and_wait(Spawn) ->
    Self = self(),
    _ = Spawn(fun() -> child(Self) end),
    receive {child, done} -> ok end,
    leaf(0).

child(Parent) ->
    pair(1),
    Parent ! {child, done}.

%% A line of N processes, each the parent of the next.
nested(0) -> leaf(0);
nested(N) ->
    {Pid, Monitor} = spawn_monitor(?MODULE, nested, [N - 1]),
    receive {'DOWN', Monitor, process, Pid, normal} -> leaf(N) end.

%% The grandchild works when its parent is dead.
outlive(Self) ->
    {Pid, Monitor} = spawn_monitor(fun() -> spawn(?MODULE, grandchild, [Self, self()]) end),
    receive {'DOWN', Monitor, process, Pid, normal} -> ok end,
    receive {grandchild, done} -> leaf(0) end.

grandchild(Grandparent, Parent) ->
    Monitor = monitor(process, Parent),
    receive {'DOWN', Monitor, process, Parent, _} -> ok end,
    pair(1),
    Grandparent ! {grandchild, done}.

%% On another scheduler at every step.
migrate(N) ->
    step(N),
    process_flag(scheduler, 0),
    leaf(0).

step(0) -> 0;
step(N) ->
    process_flag(scheduler, N rem erlang:system_info(schedulers_online) + 1),
    leaf(step(N - 1)) + 1.

%% ---- where time goes: to BIFs, which count as their callers' where these alone
%% are traced ----

burn(X) ->
    _ = erlang:md5(<<0:16000000>>),
    X.

burn_then_call(X) ->
    _ = erlang:md5(<<0:16000000>>),
    leaf(X),
    ok.

call_then_burn(X) ->
    leaf(X),
    _ = erlang:md5(<<0:16000000>>),
    ok.

tail_to_burn(X) -> tail_to_burn_b(X).
tail_to_burn_b(X) -> burn(X).

%% The work is done on the way back.
unwind(0) -> [];
unwind(N) ->
    Rest = unwind(N - 1),
    _ = erlang:md5(<<0:160000>>),
    [N | Rest].

call_unwind(N) ->
    Numbers = unwind(N),
    leaf(Numbers).

%% Waits for a message that comes late, between two calls.
wait_between(Ms) ->
    leaf(1),
    erlang:send_after(Ms, self(), late),
    wait_for(late),
    leaf(2),
    ok.

%% ---- for captures ----

forever() ->
    leaf(1),
    forever().

work(N) ->
    local_only(N),
    deep(N).

%% Called from this module alone, and never by its full name.
local_only(X) -> leaf(X).

count_down(0) -> 0;
count_down(N) -> count_down(N - 1).

exit_self(Reason) ->
    leaf(1),
    exit(self(), Reason),
    wait_for(never).

%% As many stacks as there are ways down, without end.
forest(N) ->
    grove(N),
    forest(N).

grove(0) -> leaf(0);
grove(N) ->
    grove(N - 1),
    thicket(N - 1),
    ok.

thicket(0) -> leaf(0);
thicket(N) ->
    thicket(N - 1),
    grove(N - 1),
    ok.

%% Live data without end.
allocate(List) -> allocate([leaf(1) | List]).

calls_unloaded(Module) ->
    leaf(Module:run()).

%% Calls a function again and again, until told to stop; says when it has begun.
busy(Parent, Call) ->
    Call(),
    Parent ! {self(), busy},
    busy_loop(Call).

busy_loop(Call) ->
    receive stop -> ok
    after 0 ->
            Call(),
            busy_loop(Call)
    end.

%% Two that call each other, and one of them a leaf on the way back.
down(0) -> 0;
down(N) -> leaf(up(N - 1)) + 1.

up(0) -> 0;
up(N) -> 1 + down(N - 1).

wait_and_burn(Ms) ->
    erlang:send_after(Ms, self(), go),
    wait_for(go),
    count_down(100000).

binaries(Size) ->
    Large = large_binary(Size),
    Small = small_binary(Large),
    {byte_size(Large), leaf(Small)}.

%% Off the heap; the last step of it is a BIF.
large_binary(Size) -> binary:copy(<<1>>, Size).

%% A part of another is no new one.
small_binary(<<Part:10/binary, _/binary>>) -> Part.
