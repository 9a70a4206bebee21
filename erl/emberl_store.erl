%% SPDX-License-Identifier: Apache-2.0
%% @private
%% Profiles of slices of time in a directory, one file each. A file's name tells its
%% time, and it is written under another name until it is whole, so whatever ends the
%% node costs the slice that was being made and no other. Old files are deleted so that
%% the directory stays within its limits. It belongs to one node.
%%
%% Nothing here fails: what cannot be written is dropped. The status says so, and the log:
%% once, and again after something could be written.
-module(emberl_store).

-export([open/2, add/4, status/1, slices/1, read/4]).
-export_type([store/0, retention/0, slice/0, details/0]).

-include_lib("kernel/include/file.hrl").

-define(PREFIX, "emberl-").
-define(SUFFIX, ".ember").
-define(BATCH, 16). % slices that are merged at a time

-type retention() :: #{max_bytes := pos_integer() | infinity,
                       max_age := pos_integer() | infinity,       % milliseconds
                       save => fun((emberl_profile:profile(), file:filename_all()) ->
                                          ok | {error, term()})}.
-type slice() :: #{file := file:filename_all(), bytes := non_neg_integer(),
                   from := emberl_time:milliseconds(), to := emberl_time:milliseconds()}.
%% Without its file, which is named by its times: there may be thousands.
-type kept() :: {From :: emberl_time:milliseconds(), To :: emberl_time:milliseconds(),
                 Bytes :: non_neg_integer()}.
-opaque store() :: #{directory := file:filename_all(),
                     retention := retention(),
                     slices := [kept()],           % oldest first
                     written := non_neg_integer(), % since it was opened, as the next two
                     dropped := non_neg_integer(),
                     deleted := non_neg_integer(),
                     error := none | {file:filename_all(), term(), emberl_time:milliseconds()}}.
-type details() :: #{slices := non_neg_integer(),
                     from := emberl_time:milliseconds(), to := emberl_time:milliseconds(),
                     skipped := [{file:filename_all(), Text :: binary()}]}.

%% ---- writing ----

%% What a node that was killed has left unfinished is deleted.
-spec open(file:filename_all(), retention()) -> store().
open(Directory, Retention) ->
    Store = #{directory => Directory, retention => Retention, slices => [], written => 0,
              dropped => 0, deleted => 0, error => none},
    case prepare(Directory) of
        {ok, Slices} -> retain(0, Store#{slices := [kept(Slice) || Slice <- Slices]});
        {error, Reason} -> failed(Directory, Reason, Store)
    end.

kept(#{from := From, to := To, bytes := Bytes}) -> {From, To, Bytes}.

prepare(Directory) ->
    case filelib:ensure_path(Directory) of
        ok ->
            clear_unfinished(Directory),
            slices(Directory);
        {error, _} = Error ->
            Error
    end.

clear_unfinished(Directory) ->
    [file:delete(filename:join(Directory, Name)) || Name <- names(Directory), is_unfinished(Name)].

is_unfinished(Name) ->
    lists:prefix(".emberl-", Name) andalso lists:suffix(".tmp", Name).

names(Directory) ->
    case file:list_dir(Directory) of
        {ok, Names} -> Names;
        {error, _} -> []
    end.

%% The profile of what happened between two points in time, in milliseconds since 1970.
-spec add(emberl_profile:profile(), emberl_time:milliseconds(), emberl_time:milliseconds(),
          store()) -> store().
add(Profile, From, To0, #{directory := Directory} = Store) ->
    To = max(From, To0), % the clock may have been set back
    case emberl_profile:to_binary(Profile) of
        {ok, Binary} -> write(Profile, byte_size(Binary), From, To, Store);
        {error, Reason} -> dropped(Directory, Reason, Store)
    end.

write(Profile, Bytes, From, To, #{directory := Directory, retention := Retention} = Store0) ->
    Store = retain(Bytes, Store0),
    File = file(Directory, From, To),
    case is_too_large(Bytes, Retention) of
        true -> dropped(File, too_large, Store);
        false -> written(save(Profile, File, Retention), File, Bytes, From, To, Store)
    end.

is_too_large(_Bytes, #{max_bytes := infinity}) -> false;
is_too_large(Bytes, #{max_bytes := Max}) -> Bytes > Max.

file(Directory, From, To) ->
    filename:join(Directory, lists:flatten([?PREFIX, emberl_time:name(From), "-",
                                            emberl_time:name(To), ?SUFFIX])).

%% The directory may have been taken away.
save(Profile, File, Retention) ->
    Save = maps:get(save, Retention, fun emberl_profile:save/2),
    case filelib:ensure_dir(File) of
        ok -> Save(Profile, File);
        {error, _} = Error -> Error
    end.

written(ok, _File, Bytes, From, To, #{slices := Slices, written := Written} = Store) ->
    Store#{slices := Slices ++ [{From, To, Bytes}], written := Written + 1, error := none};
written({error, Reason}, File, _Bytes, _From, _To, Store) ->
    dropped(File, Reason, Store).

dropped(File, Reason, #{dropped := Dropped} = Store) ->
    failed(File, Reason, Store#{dropped := Dropped + 1}).

failed(File, Reason, #{error := Before} = Store) ->
    Before =:= none andalso
        logger:warning("emberl: the sampler cannot store what it has: ~ts: ~ts",
                       [File, reason(Reason)]),
    Store#{error := {File, Reason, erlang:system_time(millisecond)}}.

reason(too_large) -> "the profile of a slice is larger than max_bytes";
reason(efbig) -> "the profile of a slice is too large for a file";
reason(Reason) when is_atom(Reason) -> file:format_error(Reason);
reason(Reason) -> io_lib:format("~0tp", [Reason]).

%% Deletes the oldest until `Room' bytes more are within the limits.
retain(Room, #{slices := [{From, To, _Bytes} | Slices], directory := Directory,
               deleted := Deleted} = Store) ->
    case is_too_old(To, Store) orelse is_too_full(Room, Store) of
        true ->
            _ = file:delete(file(Directory, From, To)),
            retain(Room, Store#{slices := Slices, deleted := Deleted + 1});
        false ->
            Store
    end;
retain(_Room, Store) ->
    Store.

is_too_old(_To, #{retention := #{max_age := infinity}}) -> false;
is_too_old(To, #{retention := #{max_age := Age}}) -> erlang:system_time(millisecond) - To > Age.

is_too_full(_Room, #{retention := #{max_bytes := infinity}}) -> false;
is_too_full(Room, #{retention := #{max_bytes := Max}} = Store) -> bytes(Store) + Room > Max.

bytes(#{slices := Slices}) -> lists:sum([Bytes || {_From, _To, Bytes} <- Slices]).

%% `error': what could not be written last, why and when; `none' once that went well again.
-spec status(store()) -> #{atom() => term()}.
status(#{slices := Slices} = Store) ->
    Range = case Slices of
                [] -> #{from => none, to => none};
                [{From, _, _} | _] -> #{from => From, to => element(2, lists:last(Slices))}
            end,
    maps:merge(Range#{files => length(Slices), bytes => bytes(Store)},
               maps:with([directory, written, dropped, deleted, error], Store)).

%% ---- reading ----

%% By the names of the files, oldest first.
-spec slices(file:filename_all()) -> {ok, [slice()]} | {error, file:posix() | badarg}.
slices(Directory) ->
    case file:list_dir(Directory) of
        {ok, Names} ->
            Slices = [slice(Directory, Name, Range) || Name <- Names, {ok, Range} <- [range(Name)]],
            {ok, lists:sort(fun is_older/2, Slices)};
        {error, _} = Error ->
            Error
    end.

is_older(#{from := FromA, to := ToA}, #{from := FromB, to := ToB}) -> {FromA, ToA} =< {FromB, ToB}.

slice(Directory, Name, {From, To}) ->
    File = filename:join(Directory, Name),
    #{file => File, from => From, to => To, bytes => filelib:file_size(File)}.

range(?PREFIX ++ Name) ->
    case string:split(filename:basename(Name, ?SUFFIX), "-") of
        [From, To] when length(Name) =:= length(From) + 1 + length(To) + length(?SUFFIX) ->
            range(emberl_time:from_name(From), emberl_time:from_name(To));
        _ ->
            error
    end;
range(_Name) ->
    error.

range({ok, From}, {ok, To}) when From =< To -> {ok, {From, To}};
range(_, _) -> error.

%% All slices with a part in the range, merged, after each has gone through the filter.
%% Those that are damaged are left out and told of; those that were deleted meanwhile
%% are not.
-spec read(file:filename_all(), emberl_time:milliseconds(), emberl_time:milliseconds(),
           fun((emberl_profile:profile()) -> emberl_profile:profile())) ->
          {ok, emberl_profile:profile(), details()} | {none, details()} |
          {error, file:posix() | badarg}.
read(Directory, From, To, Filter) ->
    case slices(Directory) of
        {ok, Slices} ->
            Wanted = [Slice || #{from := F, to := T} = Slice <- Slices, F < To, T > From],
            merged(load(Wanted, Filter, #{slices => 0, from => To, to => From, skipped => []}, []));
        {error, _} = Error ->
            Error
    end.

load([], _Filter, Details, Profiles) ->
    {Profiles, Details};
load([#{file := File} = Slice | Slices], Filter, Details, Profiles) ->
    case emberl_profile:load(File) of
        {ok, Profile} ->
            load(Slices, Filter, taken(Slice, Details), batch([Filter(Profile) | Profiles]));
        {error, enoent} ->
            load(Slices, Filter, Details, Profiles);
        {error, Reason} ->
            load(Slices, Filter, skipped(File, Reason, Details), Profiles)
    end.

taken(#{from := F, to := T}, #{slices := N, from := From, to := To} = Details) ->
    Details#{slices := N + 1, from := min(F, From), to := max(T, To)}.

skipped(File, Reason, #{skipped := Skipped} = Details) ->
    Details#{skipped := Skipped ++ [{File, unicode:characters_to_binary(text(Reason))}]}.

text({bad_profile, Text}) -> Text;
text(Reason) -> file:format_error(Reason).

%% A week's slices do not fit into memory side by side.
batch(Profiles) when length(Profiles) < ?BATCH -> Profiles;
batch(Profiles) -> [emberl_profile:merge(Profiles)].

merged({[], Details}) -> {none, Details};
merged({[Profile], Details}) -> {ok, Profile, Details};
merged({Profiles, Details}) -> {ok, emberl_profile:merge(lists:reverse(Profiles)), Details}.
