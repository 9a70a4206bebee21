%% SPDX-License-Identifier: Apache-2.0
%% Words where they do not simply come from a heap top that moves: messages, literals,
%% collections that are put off, hibernation, and processes that die. Sizes are known
%% by arithmetic; docs/accuracy.md says what is exact.
-module(emberl_words_tests).

-include_lib("eunit/include/eunit.hrl").

-export([to_itself/1, from_another/2, receive_it/0, literals/1, literal/0, in_turns/1, dying/1,
         last_words/1, sleeper/1, awake/1, until_killed/1,
         split_after/2, split/1, parent/0, busy/0, child/1]).

-define(ELEMENTS, 100).
-define(MESSAGE, 203). % {message, List}
-define(ANSWER, 3).    % {Pid, awake}

%% A message to oneself is not copied.
to_itself_test_() ->
    {timeout, 20, fun to_itself/0}.

to_itself() ->
    ?assertEqual(2 * ?ELEMENTS, sum(profile({?MODULE, to_itself, [?ELEMENTS]}))).

to_itself(N) ->
    List = lists:seq(1, N),
    self() ! List,
    receive Received when is_list(Received) -> true = erts_debug:same(List, Received) end.

%% However a message comes in, it is counted once: on the heap of who waits for it, in a
%% fragment when it is received, or from the queue with a collection. OTP 27 and 29 do not
%% always tell of the latter.
message_test_() ->
    [{lists:concat([Queue, ", ", How]),
      {timeout, 20,
       fun() ->
               Received = received(Queue, How),
               ?assert(lists:member(Received, words(Queue, How, emberl_test:release())), Received)
       end}}
     || Queue <- [on_heap, off_heap], How <- [waiting, queued, collected]].

words(on_heap, collected, Release) when Release >= 27 -> [0, ?MESSAGE];
words(_, _, _) -> [?MESSAGE].

received(Queue, How) ->
    Profile = profile({?MODULE, from_another, [Queue, How]}),
    lists:sum([W - own_words(F, Calls)
               || #{mfa := {_, F, _}, calls := Calls, words := W} <-
                      emberl_profile:functions(Profile),
                  lists:member(F, [receive_it, garbage_collect, in_turns, process_info])]).

%% A message may come while the process is scheduled out in one of them.
own_words(process_info, Calls) -> 3 * Calls; % {message_queue_len, Length}
own_words(_Function, _Calls) -> 0.

from_another(Queue, How) ->
    process_flag(message_queue_data, Queue),
    Self = self(),
    List = lists:seq(1, ?ELEMENTS),
    spawn(fun() -> Self ! {message, List} end),
    How =:= waiting orelse in_turns(0),
    How =:= collected andalso [erlang:garbage_collect() || _ <- [1, 2, 3]],
    ?ELEMENTS = length(receive_it()).

%% Until there is a message: without waiting for one.
in_turns(1) -> ok;
in_turns(0) ->
    erlang:yield(),
    in_turns(element(2, process_info(self(), message_queue_len))).

receive_it() ->
    receive {message, List} -> literals(0), List end.

%% Constants of the code, and persistent terms, are not on any heap.
literals_test() ->
    persistent_term:put(?MODULE, lists:seq(1, 1000)),
    Profile = profile({?MODULE, literals, [10]}),
    persistent_term:erase(?MODULE),
    ?assertEqual(0, sum(Profile)).

literals(0) -> ok;
literals(N) ->
    10 = length(literal()),
    1000 = length(persistent_term:get(?MODULE)),
    literals(N - 1).

literal() -> [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].

%% A builtin that yields puts collections off; it has a few words of its own.
put_off_test() ->
    Binary = term_to_binary(lists:seq(1, 100000)),
    Profile = profile({erlang, binary_to_term, [Binary]}),
    ?assertMatch(State when State >= 0 andalso State < 16, sum(Profile) - 200000).

%% Such a builtin that has a fragment of the heap open, when it is scheduled out with no room
%% left on the heap: where the VM builds a tuple then, it miscounts, and may end. How full the
%% heap is depends on a list; at some lengths it is full. The builtin has some hundred words of
%% its own.
full_heap_test_() ->
    {timeout, 60, fun full_heap/0}.

full_heap() ->
    Text = binary:copy(<<"a,">>, 60000),
    Words = [words_on_full_heap(Text, Length) || Length <- lists:seq(0, 120)],
    ?assertEqual([], [W || W <- Words, abs(W - 5 * 60000) > 1000]).

words_on_full_heap(Text, Length) ->
    {Pid, Monitor} = spawn_monitor(?MODULE, split_after, [Text, Length]),
    {ok, Capture} = emberl:start_capture({?MODULE, split, 1}, 1, #{return => profile}),
    Pid ! go,
    receive {'DOWN', Monitor, process, _, Reason} -> ?assertEqual({parts, 60001}, Reason) end,
    {ok, [Profile]} = emberl:await(Capture, 10000),
    words({binary, split, 3}, Profile) + words({?MODULE, split, 1}, Profile).

split_after(Text, Length) ->
    receive go -> ok end,
    List = lists:duplicate(Length, a),
    erlang:bump_reductions(3800),
    Parts = split(Text),
    exit({parts, length(Parts) + length(List) - Length}).

split(Text) -> binary:split(Text, <<",">>, [global]).

%% The end of a process's work is seen, so what it allocated last is too.
dying_test() ->
    Profile = profile({?MODULE, dying, [1000]}),
    ?assertEqual(1001, words({erlang, make_tuple, 2}, Profile)).

last_words_test() ->
    ?assertEqual(4, words({?MODULE, last_words, 1}, profile({?MODULE, dying, [tuple]}))).

dying(N) ->
    {Pid, Monitor} = spawn_monitor(?MODULE, last_words, [N]),
    receive {'DOWN', Monitor, process, Pid, normal} -> ok end.

last_words(tuple) -> {self(), self(), self()};
last_words(N) -> erlang:make_tuple(N, x).

%% Going to sleep allocates nothing but a list of arguments, nor does waking up; the
%% message that wakes counts, and what is sent then.
hibernation_test() ->
    Profile = profile(fun() ->
                              Pid = spawn_link(?MODULE, sleeper, [self()]),
                              emberl_test:wait_until(fun() -> is_asleep(Pid) end),
                              Pid ! {message, lists:seq(1, ?ELEMENTS)},
                              receive {Pid, awake} -> Pid end
                      end),
    [_, #{pid := Pid}] = emberl_profile:processes(Profile),
    Functions = [{F, W}
                 || #{mfa := {_, F, _}, words := W} <- emberl_profile:functions(Profile, Pid),
                    lists:member(F, [seq_loop, sleeper, hibernate, awake, receive_it])],
    Slept = lists:sum([W || {_, W} <- Functions]) - 2 * 300 - ?MESSAGE - ?ANSWER,
    ?assert(lists:member(Slept, [2, 4])).

is_asleep(Pid) ->
    process_info(Pid, current_function) =:= {current_function, {erlang, hibernate, 3}}.

sleeper(Parent) ->
    300 = length(lists:seq(1, 300)),
    erlang:hibernate(?MODULE, awake, [Parent]).

awake(Parent) ->
    receive_it(),
    Parent ! {self(), awake}.

%% Of a process that is killed for its heap, all calls count but what the last one did.
max_heap_size_test() ->
    {ok, Capture} = emberl:start_capture({?MODULE, until_killed, 1}, 1, #{return => profile}),
    Limit = #{size => 50000, kill => true, error_logger => false},
    {Pid, Monitor} = spawn_opt(?MODULE, until_killed, [[]], [monitor, {max_heap_size, Limit}]),
    receive {'DOWN', Monitor, process, Pid, killed} -> ok end,
    {ok, [Profile]} = emberl:await(Capture, infinity),
    Calls = maps:get({lists, seq, 2}, emberl_test:calls(Profile)),
    Words = words({lists, seq_loop, 3}, Profile),
    ?assert(Calls > 5),
    ?assert(Words =< 2000 * Calls),
    ?assert(Words >= 2000 * (Calls - 1)).

until_killed(Lists) -> until_killed([lists:seq(1, 1000) | Lists]).

%% ---- profiles ----

%% In a process with a small heap, so that there are collections.
profile(Target) ->
    emberl_test:in_process(fun() -> emberl_test:profile(Target) end).

sum(Profile) ->
    lists:sum([W || #{words := W} <- emberl_profile:functions(Profile)]).

words(MFA, Profile) ->
    lists:sum([W || #{mfa := F, words := W} <- emberl_profile:functions(Profile), F =:= MFA]).

%% Of a process that is spawned others tell at first, in environments that have no heap. Its
%% words are those of what it does.
short_lives_test_() ->
    {timeout, 60, fun short_lives/0}.

short_lives() ->
    Pids = [spawn_link(?MODULE, Function, []) || Function <- [parent, busy, busy]],
    Profiles = [emberl:record(200, #{return => profile, modules => [?MODULE]})
                || _ <- lists:seq(1, 10)],
    [begin unlink(Pid), exit(Pid, kill) end || Pid <- Pids],
    Stacks = lists:append([emberl_profile:stacks(Profile) || Profile <- Profiles]),
    ?assertEqual([], [Stack || #{words := Words} = Stack <- Stacks,
                               Words < -1000 orelse Words > 1 bsl 30]).

parent() ->
    [spawn(?MODULE, child, [30]) || _ <- lists:seq(1, 20)],
    receive after 5 -> parent() end.

busy() ->
    child(10),
    busy().

child(0) -> 0;
child(N) -> maps:size(maps:from_list([{I, I} || I <- lists:seq(1, 20)])) + child(N - 1).
