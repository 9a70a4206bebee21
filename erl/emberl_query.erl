%% SPDX-License-Identifier: Apache-2.0
%% @private
%% Questions to a store: see emberl:query/4.
-module(emberl_query).

-export([run/4]).

-spec run(file:filename_all(), emberl:time(), emberl:time(), emberl:query_options()) ->
          {ok, emberl_profile:profile()} |
          {ok, emberl_profile:profile(), emberl_store:details()} |
          {error, emberl_options:refusal()}.
run(Directory, From, To, Given) ->
    case not is_atom(Directory) andalso emberl_options:is_name(Directory) of
        true -> maybe_read(Directory, emberl_time:parse(From), emberl_time:parse(To),
                           emberl_options:query(Given));
        false -> {error, emberl_options:refusal(
                           unreadable, Directory,
                           io_lib:format("~0tp is not the name of a directory", [Directory]))}
    end.

maybe_read(_Directory, {error, _} = Error, _To, _Options) -> Error;
maybe_read(_Directory, _From, {error, _} = Error, _Options) -> Error;
maybe_read(_Directory, _From, _To, {error, _} = Error) -> Error;
maybe_read(_Directory, {ok, From}, {ok, To}, _Options) when From >= To ->
    {error, emberl_options:refusal(bad_time, {From, To}, [emberl_time:text(From), " is not before ",
                                                          emberl_time:text(To)])};
maybe_read(Directory, {ok, From}, {ok, To}, {ok, Options}) ->
    Filter = filter(maps:with([process, modules], Options)),
    answer(emberl_store:read(Directory, From, To, Filter), {Directory, From, To}, Options).

filter(#{process := all, modules := all}) -> fun(Profile) -> Profile end;
filter(Filter) -> fun(Profile) -> emberl_profile:filter(Profile, Filter) end.

answer({ok, Profile, Details}, _Asked, #{details := true}) ->
    {ok, Profile, Details};
answer({ok, Profile, #{skipped := Skipped}}, _Asked, _Options) ->
    [logger:warning("emberl: ~ts is left out: ~ts", [File, Text]) || {File, Text} <- Skipped],
    {ok, Profile};
answer({none, #{skipped := Skipped}}, {Directory, From, To}, _Options) ->
    Damaged = [["; left out: ", File, ": ", Text] || {File, Text} <- Skipped],
    {error, emberl_options:refusal(no_data, {Directory, From, To},
                                   ["there is nothing from ", emberl_time:text(From), " to ",
                                    emberl_time:text(To), Damaged])};
answer({error, Reason}, {Directory, _, _}, _Options) ->
    {error, emberl_options:refusal(unreadable, Directory,
                                   [Directory, ": ", file:format_error(Reason)])}.
