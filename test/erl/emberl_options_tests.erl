%% SPDX-License-Identifier: Apache-2.0
%% Every option: what is taken, and what is refused with a text before anything
%% is touched.
-module(emberl_options_tests).

-include_lib("eunit/include/eunit.hrl").

-define(PAIR, {emberl_work, pair, [1]}).
-define(MFA, {emberl_work, pair, 1}).

%% ---- refused ----

bad_values() ->
    [{return, [file, filenames, "value", undefined, []]},
     {output_format, [gif, plain, "html", undefined, 1]},
     {output_directory, [undefined, "", <<>>, 1, ["a", b], [0], "a" ++ [0], <<255, 254>>, {dir}]},
     {output_file, [undefined, "", "a/b", "/a", "a" ++ [0], <<"a/b">>, 1]},
     {open, [firefox, "", undefined, 1, [a], true]},
     {metric, [time, "words", all, 1]},
     {modules, [emberl_work, [], [no_such_module], [emberl_work, no_such_module], [1], ["a"],
                [lists | maps], {app, no_such_app}, {app, "kernel"}, {lists}, {app}, '_', '']},
     {spawned, [yes, 1, undefined]},
     {merge, [yes, 1]},
     {timeout, [0, -1, 1.5, 1 bsl 32, "1", never]},
     {memory_limit, [0, 1000, -1, 1.0e9, 1 bsl 61, unlimited]},
     {fold_recursion, [yes, 1]},
     {compensate, [yes, 1]},
     {timeline, [yes, 1]},
     {keep, [slow, {slower_than, 0}, {slower_than, -1}, {slower_than, "1"}, {faster_than, 1}]},
     {every, [0, -1, 1.0, all]},
     {arm, [true, late, {lazy, 0}, {lazy, 1.5}, {eager, 1}]},
     {quiet, [yes, 1]}].

all_test_() ->
    {setup, fun() -> code:ensure_loaded(emberl_work) end,
     [bad_value(), unknown(), no_options(), texts(), bad_target_texts(), good_value()]}.

bad_value() ->
    [{text({Key, Value}), fun() -> refused(#{Key => Value}, Key) end}
     || {Key, Values} <- bad_values(), Value <- Values].

unknown() ->
    [{text(Options), fun() -> refused(Options, Key) end}
     || {Options, Key} <- [{#{colour => red}, colour},
                           {[{colour, red}], colour},
                           {[colour], colour},
                           {#{"return" => value}, "return"},
                           {#{<<"quiet">> => true}, <<"quiet">>},
                           {#{{a, b} => c}, {a, b}},
                           {[{return, profile}, {returns, value}], returns}]].

no_options() ->
    [{text(Options), fun() -> refused(Options) end}
     || Options <- [html, 1, <<"html">>, {return, value}, [1], ["return"], [{return}],
                    [{return, value, 1}], [{return, value} | quiet]]].

text(Term) -> lists:flatten(io_lib:format("~0p", [Term])).

refused(Options, Key) ->
    ?assertEqual(Key, refused(Options)).

%% The same from everywhere, with a text for people; no file, no trace, no run.
refused(Options) ->
    Test = self(),
    {error, {bad_option, Key, Text}} = Refusal = emberl:start_capture(?MFA, 1, Options),
    ?assertEqual(Refusal, emberl:capture(?MFA, 1, Options)),
    ?assertError({bad_option, Key, Text}, emberl:apply(fun() -> Test ! run end, Options)),
    ?assert(is_binary(Text) andalso byte_size(Text) > 10),
    ?assertNot(emberl_test:running()),
    receive run -> error(was_run)
    after 0 -> Key
    end.

%% The texts say what is allowed.
texts() ->
    [{text(Options),
      fun() ->
              {error, {bad_option, _, Text}} = emberl:capture(?MFA, 1, Options),
              ?assertMatch({match, _}, re:run(Text, Expected))
      end}
     || {Options, Expected} <- [{#{return => file},
                                 "file is not value, filename, flamegraph, profile, data or all"},
                                {#{output_format => gif}, "gif is not html or .*brendan_gregg"},
                                {#{output_directory => "/dev/null"},
                                 "a file of that name, and no directory"},
                                {#{colour => red}, "unknown option.*output_directory.*timeout"},
                                {#{timeout => 0},
                                 "0 is not .* from 1 to 4294967295, or infinity"}]].

bad_target_texts() ->
    [{text(Target),
      fun() ->
              {error, {bad_target, _, Text}} = emberl:capture(Target),
              ?assertMatch({match, _}, re:run(Text, Expected))
      end}
     || {Target, Expected} <- [{{no_such_module, f, 1},
                                "module no_such_module is not loaded; code:ensure_loaded"},
                               {{erlang, self, 0}, "it is an instruction"},
                               {{erlang, '!', 2}, "it is an instruction"},
                               {{erlang, apply, 3}, "it is an instruction"},
                               {{erlang, hibernate, 3}, "it is an instruction"},
                               {{erlang, get, 1}, "it is an instruction"},
                               {{erlang, '+', 2}, "it is an instruction"},
                               {{emberl_work, leaf, 3}, "arity 1"},
                               {{emberl_work, no_such, 0}, "no function of that name"},
                               {{emberl_work, leaf, [x]}, "arity instead of arguments"}]].

%% ---- taken ----

good_values() ->
    [{return, [value, filename, flamegraph, profile, data, all]},
     {output_format, [html, brendan_gregg]},
     {open, [none]},
     {metric, [own_time, words, calls, binaries]},
     {modules, [all, [emberl_work], [emberl_work, xref], {app, kernel}]},
     {spawned, [true, false]},
     {merge, [true, false]},
     {keep, [all]},
     {every, [1, 2, 1 bsl 60]},
     {arm, [eager]},
     {timeout, [1000, infinity, 16#ffffffff]},
     {memory_limit, [1 bsl 20, infinity]},
     {fold_recursion, [true, false]},
     {compensate, [true, false]},
     {timeline, [true, false]},
     {quiet, [true]}].

good_value() ->
    [{text({Key, Value}), fun() -> taken(Key, Value) end}
     || {Key, Values} <- good_values(), Value <- Values].

taken(Key, Value) ->
    emberl_test:in_directory(#{}, fun(Options) ->
        emberl:apply(?PAIR, Options#{Key => Value}),
        {ok, Capture} = emberl:start_capture(?MFA, 1, Options#{Key => Value}),
        emberl_work:pair(1),
        ?assertMatch({ok, [_]}, emberl:await(Capture, infinity))
    end).

%% As eflambe takes them: the first of a key counts, an atom stands for true.
proplist_test() ->
    emberl_test:with_directory(fun(Directory) ->
        Options = [{return, filename}, {return, value}, quiet, {output_directory, Directory},
                   {output_format, brendan_gregg}],
        ?assertMatch(<<_/binary>>, emberl:apply(?PAIR, Options)),
        {ok, Capture} = emberl:start_capture(?MFA, 2, Options),
        emberl_work:pair(1),
        emberl_work:pair(1),
        ?assertMatch({ok, [<<_/binary>>, <<_/binary>>]}, emberl:await(Capture, infinity)),
        ?assertMatch([_, _, _], filelib:wildcard("*.bggg", Directory))
    end).

empty_proplist_test() ->
    emberl_test:with_directory(fun(Directory) ->
        ?assertEqual({1, 1}, emberl:apply(?PAIR, [{quiet, true}, {output_directory, Directory}]))
    end),
    {ok, Capture} = emberl:start_capture(?MFA, 1, []),
    ?assertEqual({incomplete, stopped, []}, emberl:stop(Capture)).

%% ---- what they do to a profile ----

%% Words and calls are the same whether recursion is folded or not.
fold_test() ->
    [Folded, Unfolded] =
        [emberl_test:calls(emberl_test:profile({emberl_work, deep_leaf, [100]},
                                               #{fold_recursion => Fold}))
         || Fold <- [true, false]],
    ?assertEqual(Folded, Unfolded).

app_test() ->
    Profile = emberl_test:profile(fun() ->
        lists:sort(fun(A, B) -> emberl_work:leaf(A) =< B end, [3, 2, 1])
    end, #{modules => {app, stdlib}}),
    ?assertEqual([lists], lists:usort([M || {M, _, _} <- maps:keys(emberl_test:calls(Profile))])).

%% What others do while a list of modules is traced is theirs: calls of a module
%% in another capture's list are not seen in ours.
modules_of_two_captures_test() ->
    {ok, One} = emberl:start_capture({emberl_work, through, 1}, 1,
                                     #{return => profile, modules => [emberl_work]}),
    {ok, Two} = emberl:start_capture({emberl_work, through, 1}, 1,
                                     #{return => profile, modules => [emberl_work_other]}),
    emberl_work:through(1),
    {ok, [First]} = emberl:await(One, infinity),
    {ok, [Second]} = emberl:await(Two, infinity),
    ?assertEqual([emberl_work], modules(First)),
    %% the captured call itself is always shown
    ?assertEqual([emberl_work, emberl_work_other], modules(Second)),
    ?assertEqual(2, maps:get({emberl_work_other, leaf, 1}, emberl_test:calls(Second))),
    ?assertEqual(1, maps:get({emberl_work, through, 1}, emberl_test:calls(Second))),
    ?assertNot(maps:is_key({emberl_work, leaf, 1}, emberl_test:calls(Second))).

modules(Profile) ->
    lists:usort([M || {M, _, _} <- maps:keys(emberl_test:calls(Profile))]).
