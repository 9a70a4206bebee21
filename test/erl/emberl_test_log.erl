%% SPDX-License-Identifier: Apache-2.0
%% A logger handler that sends what is logged to a test.
-module(emberl_test_log).

-export([log/2]).

log(Event, #{config := #{test := Test}, formatter := {Formatter, Config}}) ->
    Test ! {logged, unicode:characters_to_binary(Formatter:format(Event, Config))}.
