/* SPDX-License-Identifier: Apache-2.0 */
#include "profile_nif.h"

#include "profile_read.h"
#include "profile_write.h"
#include "term.h"
#include "view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct holder {
    struct ember_profile *profile;
};

static ErlNifResourceType *resource_type;

static void destroy(ErlNifEnv *env, void *object)
{
    (void)env;
    ember_profile_destroy(((struct holder *)object)->profile);
}

int ember_profile_nif_init(ErlNifEnv *env)
{
    ErlNifResourceFlags flags = ERL_NIF_RT_CREATE | ERL_NIF_RT_TAKEOVER;
    resource_type = enif_open_resource_type(env, NULL, "emberl_profile", destroy, flags, NULL);
    return resource_type ? 0 : 1;
}

ERL_NIF_TERM ember_profile_nif_term(ErlNifEnv *env, struct ember_profile *profile)
{
    struct holder *holder = enif_alloc_resource(resource_type, sizeof *holder);
    holder->profile = profile;
    ERL_NIF_TERM term = enif_make_resource(env, holder);
    enif_release_resource(holder);
    return term;
}

static bool get_profile(ErlNifEnv *env, ERL_NIF_TERM term, struct ember_profile **profile)
{
    void *holder;
    if (!enif_get_resource(env, term, resource_type, &holder))
        return false;
    *profile = ((struct holder *)holder)->profile;
    return true;
}

static ERL_NIF_TERM out_of_memory(ErlNifEnv *env)
{
    return enif_raise_exception(env, ember_term_atom(env, "out_of_memory"));
}

/* ---- info ---- */

static const char *outcome_name(enum ember_outcome outcome)
{
    static const char *const names[] = {"returned", "raised", "exited", "unfinished"};
    return names[outcome];
}

static ERL_NIF_TERM fallback_list(ErlNifEnv *env, uint32_t fallbacks)
{
    ERL_NIF_TERM list = enif_make_list(env, 0);
    if (fallbacks & EMBER_FALLBACK_CLOCK)
        list = enif_make_list_cell(env, ember_term_atom(env, "clock"), list);
    if (fallbacks & EMBER_FALLBACK_HEAP)
        list = enif_make_list_cell(env, ember_term_atom(env, "heap"), list);
    if (fallbacks & EMBER_FALLBACK_STACK)
        list = enif_make_list_cell(env, ember_term_atom(env, "stack"), list);
    return list;
}

static ERL_NIF_TERM bool_term(ErlNifEnv *env, bool value)
{
    return ember_term_atom(env, value ? "true" : "false");
}

static bool is_complete(const struct ember_info *info)
{
    bool ended = info->outcome == EMBER_OUTCOME_RETURNED || info->outcome == EMBER_OUTCOME_RAISED;
    return ended && info->lost == 0;
}

ERL_NIF_TERM ember_profile_nif_info(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    struct ember_profile *profile;
    (void)argc;
    if (!get_profile(env, argv[0], &profile))
        return enif_make_badarg(env);
    const struct ember_info *info = &profile->info;
    struct ember_term_map map = ember_term_map_new(env);
    ember_term_map_put(&map, "target", ember_term_text(env, info->target));
    ember_term_map_put(&map, "otp_release", ember_term_text(env, info->otp_release));
    ember_term_map_put(&map, "start_us", enif_make_int64(env, info->start_us));
    ember_term_map_put_number(&map, "duration_ns", info->duration_ns);
    ember_term_map_put_number(&map, "events", info->events);
    ember_term_map_put_number(&map, "lost", info->lost);
    ember_term_map_put_number(&map, "compensated_ns", info->compensated_ns);
    ember_term_map_put_number(&map, "raw_ns", info->raw_ns);
    ember_term_map_put_number(&map, "depth_cut", info->depth_cut);
    ember_term_map_put_number(&map, "calls", info->calls);
    ember_term_map_put_number(&map, "stacks", profile->node_count);
    ember_term_map_put(&map, "outcome", ember_term_atom(env, outcome_name(info->outcome)));
    ember_term_map_put(&map, "complete", bool_term(env, is_complete(info)));
    ember_term_map_put(&map, "fallbacks", fallback_list(env, info->fallbacks));
    return map.map;
}

/* ---- processes ---- */

/* The pid itself where this node knows it, else its text. */
static ERL_NIF_TERM process_term(ErlNifEnv *env, const struct ember_process *process)
{
    return process->pid ? (ERL_NIF_TERM)process->pid : ember_term_text(env, process->pid_text);
}

static ERL_NIF_TERM parent_term(ErlNifEnv *env, const struct ember_profile *profile,
                                const struct ember_process *process)
{
    if (process->parent == EMBER_NONE)
        return ember_term_atom(env, "undefined");
    return process_term(env, &profile->processes[process->parent]);
}

ERL_NIF_TERM ember_profile_nif_processes(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    struct ember_profile *profile;
    (void)argc;
    if (!get_profile(env, argv[0], &profile))
        return enif_make_badarg(env);
    ERL_NIF_TERM list = enif_make_list(env, 0);
    for (uint32_t i = profile->process_count; i > 0; i--) {
        const struct ember_process *process = &profile->processes[i - 1];
        struct ember_term_map map = ember_term_map_new(env);
        ember_term_map_put(&map, "pid", process_term(env, process));
        ember_term_map_put(&map, "name", ember_term_text(env, process->name));
        ember_term_map_put(&map, "label", ember_term_text(env, process->label));
        ember_term_map_put(&map, "parent", parent_term(env, profile, process));
        ember_term_map_put(&map, "exited", bool_term(env, process->exited));
        list = enif_make_list_cell(env, map.map, list);
    }
    return list;
}

/* ---- metrics ---- */

static void put_metrics(struct ember_term_map *map, const struct ember_metrics *metrics)
{
    ember_term_map_put_number(map, "calls", metrics->calls);
    ember_term_map_put_number(map, "own_ns", metrics->own_ns);
    ember_term_map_put_number(map, "off_cpu_ns", metrics->off_cpu_ns);
    ember_term_map_put_number(map, "gc_ns", metrics->gc_ns);
    ember_term_map_put(map, "words", enif_make_int64(map->env, metrics->words));
}

static bool is_zero(const struct ember_metrics *m)
{
    return (m->calls | m->own_ns | m->off_cpu_ns | m->gc_ns | (uint64_t)m->words) == 0;
}

/* {M,F,A} of every function; to be freed. */
static ERL_NIF_TERM *mfa_terms(ErlNifEnv *env, const struct ember_profile *profile)
{
    ERL_NIF_TERM *terms = malloc((profile->function_count + 1u) * sizeof *terms);
    for (uint32_t i = 0; terms && i < profile->function_count; i++) {
        const struct ember_function *function = &profile->functions[i];
        terms[i] = enif_make_tuple3(env, ember_term_existing_atom(env, function->module),
                                    ember_term_existing_atom(env, function->name),
                                    enif_make_uint(env, function->arity));
    }
    return terms;
}

/* process_term of every process, each made once; to be freed. */
static ERL_NIF_TERM *process_terms(ErlNifEnv *env, const struct ember_profile *profile)
{
    ERL_NIF_TERM *terms = malloc((profile->process_count + 1u) * sizeof *terms);
    for (uint32_t i = 0; terms && i < profile->process_count; i++)
        terms[i] = process_term(env, &profile->processes[i]);
    return terms;
}

/* Sums by function; to be freed. */
static struct ember_metrics *sum_functions(ErlNifEnv *env, const struct ember_profile *profile,
                                           ERL_NIF_TERM process, bool all)
{
    struct ember_metrics *sums = calloc(profile->function_count + 1u, sizeof *sums);
    ERL_NIF_TERM *terms = process_terms(env, profile);
    if (!terms) {
        free(sums);
        return NULL;
    }
    for (uint32_t i = 0; sums && i < profile->node_count; i++) {
        const struct ember_node *node = &profile->nodes[i];
        bool wanted = all || enif_compare(process, terms[node->process]) == 0;
        if (node->function != EMBER_NONE && wanted)
            ember_metrics_add(&sums[node->function], &node->own);
    }
    free(terms);
    return sums;
}

/* functions(Profile, Process | all) */
ERL_NIF_TERM ember_profile_nif_functions(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    struct ember_profile *profile;
    (void)argc;
    if (!get_profile(env, argv[0], &profile))
        return enif_make_badarg(env);
    bool all = enif_is_identical(argv[1], ember_term_atom(env, "all"));
    ERL_NIF_TERM *terms = mfa_terms(env, profile);
    struct ember_metrics *sums = sum_functions(env, profile, argv[1], all);
    ERL_NIF_TERM list = enif_make_list(env, 0);
    bool ready = terms && sums;
    for (uint32_t i = 0; ready && i < profile->function_count; i++) {
        if (is_zero(&sums[i]))
            continue;
        struct ember_term_map map = ember_term_map_new(env);
        ember_term_map_put(&map, "mfa", terms[i]);
        put_metrics(&map, &sums[i]);
        list = enif_make_list_cell(env, map.map, list);
    }
    free(terms);
    free(sums);
    return ready ? list : out_of_memory(env);
}

static ERL_NIF_TERM stack_term(ErlNifEnv *env, const struct ember_profile *profile, uint32_t node,
                               const ERL_NIF_TERM *terms)
{
    ERL_NIF_TERM list = enif_make_list(env, 0);
    for (; profile->nodes[node].parent != EMBER_NONE; node = profile->nodes[node].parent)
        list = enif_make_list_cell(env, terms[profile->nodes[node].function], list);
    return list;
}

ERL_NIF_TERM ember_profile_nif_stacks(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    struct ember_profile *profile;
    (void)argc;
    if (!get_profile(env, argv[0], &profile))
        return enif_make_badarg(env);
    ERL_NIF_TERM *terms = mfa_terms(env, profile);
    ERL_NIF_TERM *processes = process_terms(env, profile);
    ERL_NIF_TERM list = enif_make_list(env, 0);
    bool ready = terms && processes;
    for (uint32_t i = profile->node_count; ready && i > 0; i--) {
        const struct ember_node *node = &profile->nodes[i - 1];
        if (is_zero(&node->own))
            continue;
        struct ember_term_map map = ember_term_map_new(env);
        ember_term_map_put(&map, "process", processes[node->process]);
        ember_term_map_put(&map, "stack", stack_term(env, profile, i - 1, terms));
        put_metrics(&map, &node->own);
        list = enif_make_list_cell(env, map.map, list);
    }
    free(terms);
    free(processes);
    return ready ? list : out_of_memory(env);
}

/* ---- merge, annotate ---- */

/* merge([Profile]) */
ERL_NIF_TERM ember_profile_nif_merge(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    unsigned count;
    ERL_NIF_TERM head;
    ERL_NIF_TERM rest = argv[0];
    (void)argc;
    if (!enif_get_list_length(env, rest, &count))
        return enif_make_badarg(env);
    struct ember_profile **profiles = malloc((count + 1u) * sizeof(struct ember_profile *));
    if (!profiles)
        return out_of_memory(env);
    for (unsigned i = 0; enif_get_list_cell(env, rest, &head, &rest); i++) {
        if (!get_profile(env, head, &profiles[i])) {
            free(profiles);
            return enif_make_badarg(env);
        }
    }
    struct ember_profile *merged =
        ember_profile_merge((const struct ember_profile *const *)profiles, count);
    free(profiles);
    return merged ? ember_profile_nif_term(env, merged) : out_of_memory(env);
}

/* A new string from a binary, for `field`; false when it is none. */
static bool set_text(ErlNifEnv *env, ERL_NIF_TERM term, char **field)
{
    ErlNifBinary binary;
    if (!enif_inspect_binary(env, term, &binary))
        return false;
    char *text = strndup((const char *)binary.data, binary.size);
    if (text) {
        free(*field);
        *field = text;
    }
    return text != NULL;
}

static bool get_process(ErlNifEnv *env, struct ember_profile *profile, ERL_NIF_TERM term,
                        struct ember_process **process)
{
    unsigned index;
    if (!enif_get_uint(env, term, &index) || index >= profile->process_count)
        return false;
    *process = &profile->processes[index];
    return true;
}

/* annotate(Profile, Target, Release, [{Index, Name | undefined, Label | undefined}]):
 * what only Erlang knows. Called once, before the profile is handed out. */
ERL_NIF_TERM ember_profile_nif_annotate(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    struct ember_profile *profile;
    ERL_NIF_TERM head;
    ERL_NIF_TERM rest = argv[3];
    (void)argc;
    if (!get_profile(env, argv[0], &profile) || !enif_is_list(env, rest) ||
        !set_text(env, argv[1], &profile->info.target) ||
        !set_text(env, argv[2], &profile->info.otp_release))
        return enif_make_badarg(env);
    while (enif_get_list_cell(env, rest, &head, &rest)) {
        int arity;
        const ERL_NIF_TERM *words;
        struct ember_process *process;
        if (!enif_get_tuple(env, head, &arity, &words) || arity != 3 ||
            !get_process(env, profile, words[0], &process))
            return enif_make_badarg(env);
        set_text(env, words[1], &process->name);
        set_text(env, words[2], &process->label);
    }
    return ember_term_atom(env, "ok");
}

/* ---- profile files ---- */

/* A binary of what is in the sink, which is emptied. */
static ERL_NIF_TERM take_binary(ErlNifEnv *env, struct ember_sink *sink)
{
    ERL_NIF_TERM binary;
    unsigned char *data = enif_make_new_binary(env, sink->size, &binary);
    if (sink->size > 0)
        memcpy(data, sink->data, sink->size);
    ember_sink_fini(sink);
    return binary;
}

/* encode(Profile) -> {ok, Binary} | {error, efbig} */
ERL_NIF_TERM ember_profile_nif_encode(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    struct ember_profile *profile;
    struct ember_sink sink;
    (void)argc;
    if (!get_profile(env, argv[0], &profile))
        return enif_make_badarg(env);
    ember_sink_init(&sink);
    int error = ember_profile_write(profile, &sink);
    if (error == 0)
        return enif_make_tuple2(env, ember_term_atom(env, "ok"), take_binary(env, &sink));
    ember_sink_fini(&sink);
    return error == -EFBIG ? ember_term_error(env, "efbig") : out_of_memory(env);
}

static ERL_NIF_TERM bad_profile(ErlNifEnv *env, const struct ember_read_error *error)
{
    ERL_NIF_TERM reason = enif_make_tuple2(env, ember_term_atom(env, "bad_profile"),
                                           ember_term_text(env, error->text));
    return enif_make_tuple2(env, ember_term_atom(env, "error"), reason);
}

/* decode(Binary) -> {ok, Profile} | {error, {bad_profile, Text} | enomem} */
ERL_NIF_TERM ember_profile_nif_decode(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    ErlNifBinary binary;
    struct ember_read_error error;
    (void)argc;
    if (!enif_inspect_binary(env, argv[0], &binary))
        return enif_make_badarg(env);
    struct ember_profile *profile = ember_profile_read(binary.data, binary.size, &error);
    if (profile)
        return enif_make_tuple2(env, ember_term_atom(env, "ok"),
                                ember_profile_nif_term(env, profile));
    return error.out_of_memory ? ember_term_error(env, "enomem") : bad_profile(env, &error);
}

/* ---- views ---- */

static bool get_metric(ErlNifEnv *env, ERL_NIF_TERM term, enum ember_metric *metric)
{
    static const char *const names[] = {"own_time", "words", "calls"};
    for (int i = 0; i < 3; i++) {
        if (enif_is_identical(term, ember_term_atom(env, names[i]))) {
            *metric = (enum ember_metric)i;
            return true;
        }
    }
    return false;
}

/* A binary as a string to be freed, or NULL for an atom; false when it is neither. */
static bool get_maybe_text(ErlNifEnv *env, ERL_NIF_TERM term, char **text)
{
    *text = NULL;
    return enif_is_atom(env, term) || set_text(env, term, text);
}

/* format(Profile, ViewAtom, MetricAtom, SymbolsPath | undefined) -> binary */
ERL_NIF_TERM ember_profile_nif_format(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    struct ember_profile *profile;
    struct ember_view_options options = {0};
    struct ember_sink sink;
    char name[64];
    char *symbols;
    (void)argc;
    if (!get_profile(env, argv[0], &profile) ||
        !enif_get_atom(env, argv[1], name, sizeof name, ERL_NIF_LATIN1) ||
        !ember_view_find(name) || !get_metric(env, argv[2], &options.metric) ||
        !get_maybe_text(env, argv[3], &symbols))
        return enif_make_badarg(env);
    options.symbols = symbols;
    ember_sink_init(&sink);
    ember_view_find(name)->write(profile, &options, &sink);
    free(symbols);
    if (!sink.failed)
        return take_binary(env, &sink);
    ember_sink_fini(&sink);
    return out_of_memory(env);
}

/* views() -> [{Name, Extension}] */
ERL_NIF_TERM ember_profile_nif_views(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    (void)argv;
    ERL_NIF_TERM list = enif_make_list(env, 0);
    for (unsigned i = 0; ember_view_at(i); i++) {
        const struct ember_view *view = ember_view_at(i);
        ERL_NIF_TERM pair = enif_make_tuple2(env, ember_term_atom(env, view->name),
                                             ember_term_text(env, view->extension));
        list = enif_make_list_cell(env, pair, list);
    }
    return list;
}
