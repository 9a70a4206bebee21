%% SPDX-License-Identifier: Apache-2.0
%% Works of two parts for accuracy.erl. No function is called by both.
-module(accuracy_work).

-export([works/0, both/4, timed/4, is_first/1, is_second/1]).
-export([tiny_calls/1, big_bif/1, deep/1, flat/1, funs/1, local_calls/1, map_updates/1,
         arithmetic/1, binary_building/1, list_building/1, processes_calling/1, processes_hashing/1,
         allocate/1, bignums/1, exceptions/1, sorting/1, matching/1, scanning/1, encoding/1,
         child_calling/2, child_hashing/2, small_functions/1, large_functions/1]).

%% {Name, {First, Second}}: functions and their arguments.
works() ->
    Text = lists:append(lists:duplicate(400,
                                        "f(X, Y) -> {X + 1, [Y | g(\"text\", 17.5)], <<1, 2>>}. ")),
    Binary = binary:copy(<<"abcdefgh">>, 65536),
    Term = [{I, integer_to_list(I), [a, b, <<"text">>]} || I <- lists:seq(1, 12000)],
    Numbers = [(I * 7919) rem 10007 || I <- lists:seq(1, 5000)],
    [{"tiny calls, one big BIF", {{tiny_calls, [200000]}, {big_bif, [Binary]}}},
     {"deep recursion, flat loop", {{deep, [50000]}, {flat, [150000]}}},
     {"funs, local calls", {{funs, [50000]}, {local_calls, [60000]}}},
     {"map updates, arithmetic", {{map_updates, [8000]}, {arithmetic, [100000]}}},
     {"binary and list building", {{binary_building, [60000]}, {list_building, [100000]}}},
     {"processes: calls, hashing", {{processes_calling, [3]}, {processes_hashing, [3]}}},
     {"allocation, bignums", {{allocate, [40000]}, {bignums, [1000]}}},
     {"exceptions, sorting", {{exceptions, [10000]}, {sorting, [Numbers]}}},
     {"scanning, encoding", {{scanning, [Text]}, {encoding, [Term]}}},
     {"small and large functions", {{small_functions, [30000]}, {large_functions, [5000]}}}].

both(F, X, G, Y) ->
    apply(?MODULE, F, X),
    apply(?MODULE, G, Y),
    ok.

%% The same, with a clock between the parts: their times in nanoseconds.
timed(F, X, G, Y) ->
    Start = erlang:monotonic_time(nanosecond),
    apply(?MODULE, F, X),
    Middle = erlang:monotonic_time(nanosecond),
    apply(?MODULE, G, Y),
    {Middle - Start, erlang:monotonic_time(nanosecond) - Middle}.

is_first(Function) ->
    lists:member(Function, [tiny_calls, deep, funs, map_updates, binary_building, processes_calling,
                            child_calling, allocate, exceptions, scanning, small_functions]).

is_second(Function) ->
    lists:member(Function,
                 [big_bif, flat, local_calls, arithmetic, list_building, processes_hashing,
                  child_hashing, bignums, sorting, encoding, large_functions]).

%% ---- the parts ----

tiny_calls(0) -> ok;
tiny_calls(N) ->
    tiny(N),
    tiny_calls(N - 1).

tiny(N) -> N.

big_bif(Binary) ->
    erlang:crc32(Binary).

deep(0) -> 0;
deep(N) -> 1 + deep(N - 1).

flat(0) -> ok;
flat(N) -> flat(N - 1).

funs(N) -> funs(N, fun(X) -> X + N end).

funs(0, _) -> ok;
funs(N, F) ->
    F(N),
    funs(N - 1, F).

local_calls(0) -> ok;
local_calls(N) ->
    add(N, 1),
    local_calls(N - 1).

add(X, Y) -> X + Y.

map_updates(N) -> map_updates(N, #{}).

map_updates(0, Map) -> map_size(Map);
map_updates(N, Map) -> map_updates(N - 1, Map#{N rem 500 => N}).

arithmetic(N) -> arithmetic(N, 1).

arithmetic(0, X) -> X;
arithmetic(N, X) -> arithmetic(N - 1, (X * 7919 + N) rem 1000003).

binary_building(N) -> binary_building(N, <<>>).

binary_building(0, Binary) -> byte_size(Binary);
binary_building(N, Binary) -> binary_building(N - 1, <<Binary/binary, N:32, "more">>).

list_building(N) -> list_building(N, []).

list_building(0, List) -> length(List);
list_building(N, List) -> list_building(N - 1, [{N} | List]).

processes_calling(0) -> ok;
processes_calling(N) ->
    Pid = spawn(?MODULE, child_calling, [self(), 100000]),
    receive Pid -> processes_calling(N - 1) end.

child_calling(Parent, N) ->
    counted(N),
    Parent ! self().

counted(0) -> ok;
counted(N) ->
    counted_too(N),
    counted(N - 1).

counted_too(N) -> N.

processes_hashing(0) -> ok;
processes_hashing(N) ->
    Pid = spawn(?MODULE, child_hashing, [self(), 300000]),
    receive Pid -> processes_hashing(N - 1) end.

child_hashing(Parent, N) ->
    erlang:md5(binary:copy(<<1>>, N)),
    Parent ! self().

allocate(N) -> allocate(N, []).

allocate(0, List) -> length(List);
allocate(N, List) -> allocate(N - 1, [{N, N, [N, N], {N, N, N, N}} | List]).

bignums(0) -> ok;
bignums(N) ->
    _ = (1 bsl 20000 + N) * (1 bsl 20000 - N),
    bignums(N - 1).

exceptions(0) -> ok;
exceptions(N) ->
    try raise(N)
    catch throw:_ -> ok
    end,
    exceptions(N - 1).

raise(N) -> throw(N).

sorting(Numbers) -> lists:sort(Numbers).

matching(Binary) -> binary:matches(Binary, <<"h">>).

scanning(Text) -> erl_scan:string(Text).

encoding(Term) -> term_to_binary(Term).

small_functions(0) -> ok;
small_functions(N) ->
    one(two(three(N))),
    small_functions(N - 1).

one(N) -> N.
two(N) -> N + 1.
three(N) -> two(N) + 1.

%% Some 100 instructions without a call.
large_functions(0) -> ok;
large_functions(N) ->
    large(N, N + 1, N + 2),
    large_functions(N - 1).

large(A0, B0, C0) ->
    A = (A0 * 3 + B0) rem 1009, B = (B0 * 5 + C0) rem 1013, C = (C0 * 7 + A) rem 1019,
    D = (A * B + C) rem 2003, E = (B * C + A) rem 2011, F = (C * D + B) rem 2017,
    G = (D * E + F) rem 3001, H = (E * F + D) rem 3011, I = (F * G + E) rem 3019,
    J = (G * H + I) rem 4001, K = (H * I + G) rem 4003, L = (I * J + H) rem 4007,
    M = (J * K + L) rem 5003, N = (K * L + J) rem 5009, O = (L * M + K) rem 5011,
    {M, N, O, A, B, C, D, E, F, G, H, I}.
