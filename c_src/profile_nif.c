/* SPDX-License-Identifier: Apache-2.0 */
#include "profile_nif.h"

#include "function_sums.h"
#include "mfa_text.h"
#include "profile_read.h"
#include "profile_write.h"
#include "resource.h"
#include "term.h"
#include "view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct holder {
    struct ember_profile *profile;
};

/* What a large binary refers to, so that it is not copied. */
struct bytes {
    char *data;
};

static ember_resource_type profile_type;
static ember_resource_type bytes_type;

static void destroy(ErlNifEnv *env, void *object)
{
    (void)env;
    ember_profile_destroy(((struct holder *)object)->profile);
}

static void free_bytes(ErlNifEnv *env, void *object)
{
    (void)env;
    free(((struct bytes *)object)->data);
}

int ember_profile_nif_init(ErlNifEnv *env)
{
    const ErlNifResourceTypeInit profiles = {.dtor = destroy};
    const ErlNifResourceTypeInit binaries = {.dtor = free_bytes};
    bool opened = ember_resource_open(env, "emberl_profile", &profiles, &profile_type) &&
                  ember_resource_open(env, "emberl_bytes", &binaries, &bytes_type);
    return opened ? 0 : 1;
}

ERL_NIF_TERM ember_profile_nif_term(ErlNifEnv *env, struct ember_profile *profile)
{
    struct holder *holder = enif_alloc_resource(profile_type, sizeof *holder);
    holder->profile = profile;
    ERL_NIF_TERM term = enif_make_resource(env, holder);
    enif_release_resource(holder);
    return term;
}

static bool get_profile(ErlNifEnv *env, ERL_NIF_TERM term, struct ember_profile **profile)
{
    void *holder;
    if (!enif_get_resource(env, term, profile_type, &holder))
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
    static const char *const names[] = {"returned", "raised", "exited", "unfinished", "recorded"};
    return names[outcome];
}

static const char *const cut_names[EMBER_CUTS] = {"none",         "timeout",  "stopped",
                                                  "memory_limit", "untraced", "lost"};

/* The cost of tracing has a key of its own: doubtful. */
#define LISTED_FALLBACKS ((uint32_t)(EMBER_FALLBACKS & ~EMBER_FALLBACK_COST))

static ERL_NIF_TERM fallback_list(ErlNifEnv *env, uint32_t fallbacks)
{
    ERL_NIF_TERM list = enif_make_list(env, 0);
    for (int i = EMBER_FALLBACK_KINDS - 1; i >= 0; i--)
        if (fallbacks & LISTED_FALLBACKS & 1u << i)
            list = enif_make_list_cell(env, ember_term_atom(env, ember_fallback_names[i]), list);
    return list;
}

static ERL_NIF_TERM bool_term(ErlNifEnv *env, bool value)
{
    return ember_term_atom(env, value ? "true" : "false");
}

static bool is_complete(const struct ember_info *info)
{
    bool ended = info->outcome == EMBER_OUTCOME_RETURNED || info->outcome == EMBER_OUTCOME_RAISED ||
                 info->outcome == EMBER_OUTCOME_RECORDED;
    return ended && info->lost == 0 && info->cut_by == EMBER_CUT_NONE;
}

/* none, or the numbers of a profile that was sampled */
static ERL_NIF_TERM sampled_term(ErlNifEnv *env, const struct ember_sampled *sampled)
{
    if (sampled->windows == 0)
        return ember_term_atom(env, "none");
    struct ember_term_map map = ember_term_map_new(env);
    ember_term_map_put_number(&map, "windows", sampled->windows);
    ember_term_map_put_number(&map, "window_ns", sampled->window_ns);
    ember_term_map_put_number(&map, "span_ns", sampled->span_ns);
    ember_term_map_put_number(&map, "cost_ns", sampled->cost_ns);
    ember_term_map_put_number(&map, "schedulers", sampled->schedulers);
    ember_term_map_put(&map, "budget", enif_make_double(env, sampled->budget_ppm / 1e6));
    ember_term_map_put_number(&map, "seen", sampled->seen);
    ember_term_map_put_number(&map, "present", sampled->present);
    return map.map;
}

static struct ember_term_map info_map(ErlNifEnv *env, const struct ember_info *info)
{
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
    ember_term_map_put(&map, "outcome", ember_term_atom(env, outcome_name(info->outcome)));
    ember_term_map_put(&map, "cut_by", ember_term_atom(env, cut_names[info->cut_by]));
    ember_term_map_put(&map, "complete", bool_term(env, is_complete(info)));
    ember_term_map_put(&map, "fallbacks", fallback_list(env, info->fallbacks));
    ember_term_map_put(&map, "sampled", sampled_term(env, &info->sampled));
    ember_term_map_put(&map, "doubtful", bool_term(env, info->fallbacks & EMBER_FALLBACK_COST));
    return map;
}

/* profile_beside(Profile) -> events told beside a full heap: for calibration. */
ERL_NIF_TERM ember_profile_nif_beside(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    struct ember_profile *profile;
    (void)argc;
    if (!get_profile(env, argv[0], &profile))
        return enif_make_badarg(env);
    return enif_make_uint64(env, profile->info.beside);
}

static const char *const normalise_names[] = {"none", "calls", "time"};

static void put_comparison(struct ember_term_map *map, const struct ember_before *before)
{
    ember_term_map_put(map, "before", info_map(map->env, &before->info).map);
    ember_term_map_put(map, "scale", enif_make_double(map->env, before->scale));
    ember_term_map_put(map, "normalise",
                       ember_term_atom(map->env, normalise_names[before->normalise]));
}

static ERL_NIF_TERM timeline_term(ErlNifEnv *env, const struct ember_timelines *timelines)
{
    if (!timelines)
        return ember_term_atom(env, "none");
    if (timelines->cut_ns == 0)
        return ember_term_atom(env, "complete");
    return enif_make_tuple2(env, ember_term_atom(env, "cut"),
                            enif_make_uint64(env, timelines->cut_ns));
}

ERL_NIF_TERM ember_profile_nif_info(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    struct ember_profile *profile;
    (void)argc;
    if (!get_profile(env, argv[0], &profile))
        return enif_make_badarg(env);
    struct ember_term_map map = info_map(env, &profile->info);
    ember_term_map_put_number(&map, "stacks", profile->node_count);
    if (profile->before)
        put_comparison(&map, profile->before);
    ember_term_map_put(&map, "timeline", timeline_term(env, profile->timelines));
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

/* A list with a binary a line. */
static ERL_NIF_TERM lines_term(ErlNifEnv *env, const char *text)
{
    ERL_NIF_TERM list = enif_make_list(env, 0);
    ERL_NIF_TERM reversed = list;
    for (const char *at = text, *end; at; at = *end ? end + 1 : NULL) {
        ERL_NIF_TERM line;
        end = at + strcspn(at, "\n");
        memcpy(enif_make_new_binary(env, (size_t)(end - at), &line), at, (size_t)(end - at));
        reversed = enif_make_list_cell(env, line, reversed);
    }
    enif_make_reverse_list(env, reversed, &list);
    return list;
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
        ember_term_map_put(&map, "ancestors", lines_term(env, process->ancestors));
        ember_term_map_put(&map, "parent", parent_term(env, profile, process));
        ember_term_map_put(&map, "exited", bool_term(env, process->exited));
        list = enif_make_list_cell(env, map.map, list);
    }
    return list;
}

/* ---- metrics ---- */

/* What a profile has no numbers of, of either side. */
static uint32_t without(const struct ember_profile *profile)
{
    return profile->info.fallbacks | (profile->before ? profile->before->info.fallbacks : 0);
}

/* Here and below: not what a profile is `without`. */
static void put_metrics(struct ember_term_map *map, const struct ember_metrics *metrics,
                        uint32_t without)
{
    if (!(without & EMBER_NO_CALLS))
        ember_term_map_put_number(map, "calls", metrics->calls);
    if (!(without & EMBER_NO_WORDS))
        ember_term_map_put(map, "words", enif_make_int64(map->env, metrics->words));
    if (!(without & EMBER_NO_BINARIES))
        ember_term_map_put_number(map, "binary_bytes", metrics->binary_bytes);
    if (without & EMBER_NO_TIMES)
        return;
    ember_term_map_put_number(map, "own_ns", metrics->own_ns);
    ember_term_map_put_number(map, "off_cpu_ns", metrics->off_cpu_ns);
    ember_term_map_put_number(map, "waiting_ns", metrics->waiting_ns);
    ember_term_map_put_number(map, "gc_ns", metrics->gc_ns);
    ember_term_map_put_number(map, "uncertainty_ns", metrics->uncertainty_ns);
}

static ERL_NIF_TERM metrics_map(ErlNifEnv *env, const struct ember_metrics *metrics,
                                uint32_t without)
{
    struct ember_term_map map = ember_term_map_new(env);
    put_metrics(&map, metrics, without);
    return map.map;
}

static ERL_NIF_TERM difference(ErlNifEnv *env, uint64_t before, uint64_t after)
{
    return enif_make_int64(env, (int64_t)(after - before));
}

static ERL_NIF_TERM delta_map(ErlNifEnv *env, const struct ember_metrics *before,
                              const struct ember_metrics *after, uint32_t without)
{
    struct ember_term_map map = ember_term_map_new(env);
    if (!(without & EMBER_NO_CALLS))
        ember_term_map_put(&map, "calls", difference(env, before->calls, after->calls));
    if (!(without & EMBER_NO_WORDS))
        ember_term_map_put(&map, "words", enif_make_int64(env, after->words - before->words));
    if (!(without & EMBER_NO_BINARIES))
        ember_term_map_put(&map, "binary_bytes",
                           difference(env, before->binary_bytes, after->binary_bytes));
    if (without & EMBER_NO_TIMES)
        return map.map;
    ember_term_map_put(&map, "own_ns", difference(env, before->own_ns, after->own_ns));
    ember_term_map_put(&map, "off_cpu_ns", difference(env, before->off_cpu_ns, after->off_cpu_ns));
    ember_term_map_put(&map, "waiting_ns", difference(env, before->waiting_ns, after->waiting_ns));
    ember_term_map_put(&map, "gc_ns", difference(env, before->gc_ns, after->gc_ns));
    return map.map;
}

/* Here and below, `before` is NULL where nothing is compared. */
static void put_sides(struct ember_term_map *map, const struct ember_metrics *before,
                      const struct ember_metrics *after, uint32_t without)
{
    if (!before) {
        put_metrics(map, after, without);
        return;
    }
    ember_term_map_put(map, "before", metrics_map(map->env, before, without));
    ember_term_map_put(map, "after", metrics_map(map->env, after, without));
    ember_term_map_put(map, "delta", delta_map(map->env, before, after, without));
}

static bool is_empty(const struct ember_metrics *before, const struct ember_metrics *after)
{
    return ember_metrics_are_zero(after) && (!before || ember_metrics_are_zero(before));
}

static const struct ember_metrics *before_of(const struct ember_profile *profile, uint32_t node)
{
    return profile->before ? &profile->before->own[node] : NULL;
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

/* Which processes are meant; to be freed. */
static bool *wanted_processes(ErlNifEnv *env, const struct ember_profile *profile,
                              ERL_NIF_TERM process)
{
    bool all = enif_is_identical(process, ember_term_atom(env, "all"));
    bool *wanted = calloc(profile->process_count + 1u, sizeof *wanted);
    for (uint32_t i = 0; wanted && i < profile->process_count; i++)
        wanted[i] = all || enif_compare(process, process_term(env, &profile->processes[i])) == 0;
    return wanted;
}

static uint64_t time_of(const struct ember_metrics *metrics)
{
    return metrics->own_ns + metrics->off_cpu_ns + metrics->gc_ns;
}

static ERL_NIF_TERM sum_map(ErlNifEnv *env, const struct ember_function_sum *sum, uint32_t without)
{
    struct ember_term_map map = ember_term_map_new(env);
    put_metrics(&map, &sum->own, without);
    if (!(without & EMBER_NO_TIMES))
        ember_term_map_put_number(&map, "total_ns", time_of(&sum->total));
    if (!(without & EMBER_NO_WORDS))
        ember_term_map_put(&map, "total_words", enif_make_int64(env, sum->total.words));
    return map.map;
}

static ERL_NIF_TERM sum_delta_map(ErlNifEnv *env, const struct ember_function_sum *before,
                                  const struct ember_function_sum *after, uint32_t without)
{
    struct ember_term_map map = {env, delta_map(env, &before->own, &after->own, without)};
    if (!(without & EMBER_NO_TIMES))
        ember_term_map_put(&map, "total_ns",
                           difference(env, time_of(&before->total), time_of(&after->total)));
    if (!(without & EMBER_NO_WORDS))
        ember_term_map_put(&map, "total_words",
                           enif_make_int64(env, after->total.words - before->total.words));
    return map.map;
}

/* `before` is NULL where nothing is compared. */
static ERL_NIF_TERM function_map(ErlNifEnv *env, ERL_NIF_TERM mfa,
                                 const struct ember_function_sum *before,
                                 const struct ember_function_sum *after, uint32_t without)
{
    struct ember_term_map map = ember_term_map_new(env);
    if (before) {
        ember_term_map_put(&map, "before", sum_map(env, before, without));
        ember_term_map_put(&map, "after", sum_map(env, after, without));
        ember_term_map_put(&map, "delta", sum_delta_map(env, before, after, without));
    } else {
        map.map = sum_map(env, after, without);
    }
    ember_term_map_put(&map, "mfa", mfa);
    return map.map;
}

static ERL_NIF_TERM function_list(ErlNifEnv *env, const struct ember_profile *profile,
                                  const ERL_NIF_TERM *terms,
                                  const struct ember_function_sum *before,
                                  const struct ember_function_sum *after)
{
    ERL_NIF_TERM list = enif_make_list(env, 0);
    for (uint32_t i = 0; i < profile->function_count; i++)
        if (!is_empty(&before[i].own, &after[i].own))
            list =
                enif_make_list_cell(env,
                                    function_map(env, terms[i], profile->before ? &before[i] : NULL,
                                                 &after[i], without(profile)),
                                    list);
    return list;
}

/* functions(Profile, Process | all) */
ERL_NIF_TERM ember_profile_nif_functions(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    struct ember_profile *profile;
    ERL_NIF_TERM result;
    (void)argc;
    if (!get_profile(env, argv[0], &profile))
        return enif_make_badarg(env);
    ERL_NIF_TERM *terms = mfa_terms(env, profile);
    bool *wanted = wanted_processes(env, profile, argv[1]);
    struct ember_function_sum *after = ember_function_sums(profile, wanted, EMBER_AFTER);
    struct ember_function_sum *before = ember_function_sums(profile, wanted, EMBER_BEFORE);
    if (terms && wanted && after && before)
        result = function_list(env, profile, terms, before, after);
    else
        result = out_of_memory(env);
    free(terms);
    free(wanted);
    free(after);
    free(before);
    return result;
}

/* total(Profile, Process | all): of all stacks, also of those without a function. */
ERL_NIF_TERM ember_profile_nif_total(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    struct ember_profile *profile;
    struct ember_metrics total = {0};
    (void)argc;
    if (!get_profile(env, argv[0], &profile))
        return enif_make_badarg(env);
    bool *wanted = wanted_processes(env, profile, argv[1]);
    if (!wanted)
        return out_of_memory(env);
    for (uint32_t i = 0; i < profile->node_count; i++)
        if (wanted[profile->nodes[i].process])
            ember_metrics_add(&total, &profile->nodes[i].own);
    free(wanted);
    return metrics_map(env, &total, without(profile));
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
        if (is_empty(before_of(profile, i - 1), &node->own))
            continue;
        struct ember_term_map map = ember_term_map_new(env);
        ember_term_map_put(&map, "process", processes[node->process]);
        ember_term_map_put(&map, "stack", stack_term(env, profile, i - 1, terms));
        put_sides(&map, before_of(profile, i - 1), &node->own, without(profile));
        list = enif_make_list_cell(env, map.map, list);
    }
    free(terms);
    free(processes);
    return ready ? list : out_of_memory(env);
}

/* ---- merge, diff, annotate ---- */

/* A profile that is no comparison. */
static bool get_plain_profile(ErlNifEnv *env, ERL_NIF_TERM term, struct ember_profile **profile)
{
    return get_profile(env, term, profile) && !(*profile)->before;
}

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
        if (!get_plain_profile(env, head, &profiles[i])) {
            free(profiles);
            return enif_make_badarg(env);
        }
    }
    struct ember_profile *merged =
        ember_profile_merge((const struct ember_profile *const *)profiles, count);
    free(profiles);
    return merged ? ember_profile_nif_term(env, merged) : out_of_memory(env);
}

/* {WindowNs, SpanNs, CostNs, Schedulers, BudgetPpm, Seen, Present} of one window */
static bool get_sampled(ErlNifEnv *env, ERL_NIF_TERM term, struct ember_sampled *sampled)
{
    int arity;
    const ERL_NIF_TERM *words;
    ErlNifUInt64 numbers[7];
    if (!enif_get_tuple(env, term, &arity, &words) || arity != 7)
        return false;
    for (int i = 0; i < 7; i++)
        if (!enif_get_uint64(env, words[i], &numbers[i]))
            return false;
    *sampled = (struct ember_sampled){
        1,          numbers[0], numbers[1], numbers[2], (uint32_t)numbers[3], (uint32_t)numbers[4],
        numbers[5], numbers[6]};
    return true;
}

static bool get_weights(ErlNifEnv *env, ERL_NIF_TERM list, uint32_t count, double *weights)
{
    ERL_NIF_TERM head;
    uint32_t i = 0;
    while (enif_get_list_cell(env, list, &head, &list) && i < count)
        if (!enif_get_double(env, head, &weights[i]) || !(weights[i++] >= 0))
            return false;
    return i == count;
}

/* add_window(Sum | none, Window, [Weight of process], Sampled, MostProcesses) */
ERL_NIF_TERM ember_profile_nif_add_window(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    struct ember_profile *sum = NULL;
    struct ember_profile *window;
    struct ember_sampled sampled;
    unsigned most;
    (void)argc;
    if (!(enif_is_atom(env, argv[0]) || get_plain_profile(env, argv[0], &sum)) ||
        !get_plain_profile(env, argv[1], &window) || !get_sampled(env, argv[3], &sampled) ||
        !enif_get_uint(env, argv[4], &most))
        return enif_make_badarg(env);
    double *weights = malloc((window->process_count + 1u) * sizeof *weights);
    bool fits = weights && get_weights(env, argv[2], window->process_count, weights);
    struct ember_profile *added =
        fits ? ember_profile_add_window(sum, window, weights, &sampled, most) : NULL;
    free(weights);
    if (weights && !fits)
        return enif_make_badarg(env);
    return added ? ember_profile_nif_term(env, added) : out_of_memory(env);
}

/* settle(Profile): with the uncertainty that its windows tell of */
ERL_NIF_TERM ember_profile_nif_settle(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    struct ember_profile *profile;
    (void)argc;
    if (!get_plain_profile(env, argv[0], &profile))
        return enif_make_badarg(env);
    struct ember_profile *settled = ember_profile_settle(profile);
    return settled ? ember_profile_nif_term(env, settled) : out_of_memory(env);
}

/* bytes(Profile): of memory, about */
ERL_NIF_TERM ember_profile_nif_bytes(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    struct ember_profile *profile;
    (void)argc;
    if (!get_profile(env, argv[0], &profile))
        return enif_make_badarg(env);
    return enif_make_uint64(env, ember_profile_bytes(profile));
}

/* all | [Index] */
static bool get_processes(ErlNifEnv *env, ERL_NIF_TERM list, uint32_t count, bool *kept)
{
    ERL_NIF_TERM head;
    unsigned index;
    bool all = enif_is_identical(list, ember_term_atom(env, "all"));
    memset(kept, all, count);
    while (enif_get_list_cell(env, list, &head, &list)) {
        if (!enif_get_uint(env, head, &index) || index >= count)
            return false;
        kept[index] = true;
    }
    return all || enif_is_empty_list(env, list);
}

/* all | [Binary], and how many they are. */
static bool count_texts(ErlNifEnv *env, ERL_NIF_TERM list, unsigned *count)
{
    ERL_NIF_TERM head;
    *count = 0;
    if (enif_is_atom(env, list))
        return true;
    for (; enif_get_list_cell(env, list, &head, &list); ++*count)
        if (!enif_is_binary(env, head))
            return false;
    return enif_is_empty_list(env, list);
}

/* False when out of memory. */
static bool get_texts(ErlNifEnv *env, ERL_NIF_TERM list, char **modules)
{
    ERL_NIF_TERM head;
    ErlNifBinary binary;
    for (; enif_get_list_cell(env, list, &head, &list); modules++)
        if (!enif_inspect_binary(env, head, &binary) ||
            !(*modules = strndup((const char *)binary.data, binary.size)))
            return false;
    return true;
}

static ERL_NIF_TERM filtered(ErlNifEnv *env, const struct ember_profile *profile,
                             const ERL_NIF_TERM argv[], bool *processes, char **modules,
                             unsigned count)
{
    if (!get_processes(env, argv[1], profile->process_count, processes))
        return enif_make_badarg(env);
    if (!get_texts(env, argv[2], modules))
        return out_of_memory(env);
    struct ember_filter filter = {
        processes, enif_is_atom(env, argv[2]) ? NULL : (const char *const *)modules, count};
    struct ember_profile *kept = ember_profile_filter(profile, &filter);
    return kept ? ember_profile_nif_term(env, kept) : out_of_memory(env);
}

/* filter(Profile, all | [ProcessIndex], all | [Module as binary]) */
ERL_NIF_TERM ember_profile_nif_filter(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    struct ember_profile *profile;
    unsigned count;
    (void)argc;
    if (!get_plain_profile(env, argv[0], &profile) || !count_texts(env, argv[2], &count))
        return enif_make_badarg(env);
    bool *processes = malloc(profile->process_count + 1u);
    char **modules = calloc(count + 1u, sizeof *modules);
    ERL_NIF_TERM result = processes && modules
                              ? filtered(env, profile, argv, processes, modules, count)
                              : out_of_memory(env);
    for (unsigned i = 0; modules && i < count; i++)
        free(modules[i]);
    free(modules);
    free(processes);
    return result;
}

/* The index of the name, or -1. */
static int index_of(ErlNifEnv *env, ERL_NIF_TERM term, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (enif_is_identical(term, ember_term_atom(env, names[i])))
            return i;
    return -1;
}

/* diff(Before, After, none | calls | time) */
ERL_NIF_TERM ember_profile_nif_diff(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    struct ember_profile *before;
    struct ember_profile *after;
    int normalise = index_of(env, argv[2], normalise_names, 3);
    (void)argc;
    if (!get_plain_profile(env, argv[0], &before) || !get_plain_profile(env, argv[1], &after) ||
        normalise < 0)
        return enif_make_badarg(env);
    struct ember_profile *diff = ember_profile_diff(before, after, (enum ember_normalise)normalise);
    return diff ? ember_profile_nif_term(env, diff) : out_of_memory(env);
}

/* A new string from a binary, for `field`; false when it is none, or out of memory. */
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

static bool is_name(ErlNifEnv *env, ERL_NIF_TERM term)
{
    return enif_is_atom(env, term) || enif_is_binary(env, term);
}

/* What is no binary leaves the field as it is; false when out of memory. */
static bool set_maybe_text(ErlNifEnv *env, ERL_NIF_TERM term, char **field)
{
    return !enif_is_binary(env, term) || set_text(env, term, field);
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

/* {Index, Name, Label, Ancestors} */
static ERL_NIF_TERM annotate_process(ErlNifEnv *env, struct ember_profile *profile,
                                     ERL_NIF_TERM term)
{
    int arity;
    const ERL_NIF_TERM *words;
    struct ember_process *process;
    if (!enif_get_tuple(env, term, &arity, &words) || arity != 4 ||
        !get_process(env, profile, words[0], &process))
        return enif_make_badarg(env);
    bool set = set_maybe_text(env, words[1], &process->name) &&
               set_maybe_text(env, words[2], &process->label) &&
               set_maybe_text(env, words[3], &process->ancestors);
    return set ? ember_term_atom(env, "ok") : out_of_memory(env);
}

/* annotate(Profile, Target, Release, [{Index, Name, Label, Ancestors}], all maybe undefined):
 * what only Erlang knows. Called once, before the profile is handed out. */
ERL_NIF_TERM ember_profile_nif_annotate(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    struct ember_profile *profile;
    ERL_NIF_TERM head;
    ERL_NIF_TERM rest = argv[3];
    (void)argc;
    if (!get_profile(env, argv[0], &profile) || !enif_is_binary(env, argv[1]) ||
        !enif_is_binary(env, argv[2]) || !enif_is_list(env, rest))
        return enif_make_badarg(env);
    ERL_NIF_TERM result = set_text(env, argv[1], &profile->info.target) &&
                                  set_text(env, argv[2], &profile->info.otp_release)
                              ? ember_term_atom(env, "ok")
                              : out_of_memory(env);
    while (enif_is_atom(env, result) && enif_get_list_cell(env, rest, &head, &rest))
        result = annotate_process(env, profile, head);
    return result;
}

/* cut(Profile, By): likewise. */
ERL_NIF_TERM ember_profile_nif_cut(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    struct ember_profile *profile;
    int cut_by = index_of(env, argv[1], cut_names, EMBER_CUTS);
    (void)argc;
    if (!get_profile(env, argv[0], &profile) || cut_by < 0)
        return enif_make_badarg(env);
    profile->info.cut_by = (enum ember_cut)cut_by;
    return ember_term_atom(env, "ok");
}

/* leave_out(Profile, [no_times | no_words | no_calls | no_binaries]): likewise. */
ERL_NIF_TERM ember_profile_nif_leave_out(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    struct ember_profile *profile;
    ERL_NIF_TERM head;
    ERL_NIF_TERM list = argv[1];
    uint32_t what = 0;
    (void)argc;
    if (!get_profile(env, argv[0], &profile))
        return enif_make_badarg(env);
    while (enif_get_list_cell(env, list, &head, &list))
        for (int i = 0; i < EMBER_FALLBACK_KINDS; i++)
            if (enif_is_identical(head, ember_term_atom(env, ember_fallback_names[i])))
                what |= LISTED_FALLBACKS & 1u << i;
    if (what)
        ember_profile_leave_out(profile, what);
    return ember_term_atom(env, "ok");
}

/* ---- profile files ---- */

/* A binary of what is in the sink, which is emptied. */
static ERL_NIF_TERM take_binary(ErlNifEnv *env, struct ember_sink *sink)
{
    enum { LARGE = 1 << 16 };
    ERL_NIF_TERM binary;
    if (sink->size < LARGE) {
        unsigned char *data = enif_make_new_binary(env, sink->size, &binary);
        if (sink->size > 0)
            memcpy(data, sink->data, sink->size);
        ember_sink_fini(sink);
        return binary;
    }
    struct bytes *bytes = enif_alloc_resource(bytes_type, sizeof *bytes);
    bytes->data = sink->data;
    binary = enif_make_resource_binary(env, bytes, sink->data, sink->size);
    enif_release_resource(bytes);
    ember_sink_init(sink);
    return binary;
}

/* encode(Profile) -> {ok, Binary} | {error, efbig | comparison} */
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
    if (error == -EINVAL)
        return ember_term_error(env, "comparison");
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

static const char *const metric_names[] = {"own_time", "words", "calls", "binaries"};
static const char *const side_names[] = {"after", "before"};

static ERL_NIF_TERM no_comparison(ErlNifEnv *env, ERL_NIF_TERM view)
{
    return enif_raise_exception(env,
                                enif_make_tuple2(env, ember_term_atom(env, "no_comparison"), view));
}

/* format(Profile, View, Metric, 'after' | before, SymbolsPath | undefined) -> binary */
ERL_NIF_TERM ember_profile_nif_format(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    struct ember_profile *profile;
    struct ember_sink sink;
    char name[64];
    char *symbols = NULL;
    const struct ember_view *view;
    int metric = index_of(env, argv[2], metric_names, EMBER_METRICS);
    int width = index_of(env, argv[3], side_names, 2);
    (void)argc;
    if (!get_profile(env, argv[0], &profile) ||
        !enif_get_atom(env, argv[1], name, sizeof name, ERL_NIF_LATIN1) ||
        !(view = ember_view_find(name)) || metric < 0 || width < 0)
        return enif_make_badarg(env);
    if (profile->before && !view->compares)
        return no_comparison(env, argv[1]);
    if (!is_name(env, argv[4]))
        return enif_make_badarg(env);
    if (!set_maybe_text(env, argv[4], &symbols))
        return out_of_memory(env);
    ember_sink_init(&sink);
    view->write(profile,
                &(struct ember_view_options){.metric = (enum ember_metric)metric,
                                             .width = (enum ember_side)width,
                                             .symbols = symbols},
                &sink);
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

/* ---- names ---- */

/* The UTF-8 of a name, to be freed; NULL when out of memory. */
static char *name_of(ErlNifEnv *env, ERL_NIF_TERM term)
{
    char *name = NULL;
    if (enif_is_atom(env, term))
        return ember_term_atom_name(env, term);
    set_text(env, term, &name);
    return name;
}

/* `text` is freed. */
static ERL_NIF_TERM take_text(ErlNifEnv *env, char *text)
{
    ERL_NIF_TERM term = text ? ember_term_text(env, text) : out_of_memory(env);
    free(text);
    return term;
}

/* mfa_text(Module, Function, Arity) -> binary */
ERL_NIF_TERM ember_profile_nif_mfa_text(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    unsigned arity;
    (void)argc;
    if (!is_name(env, argv[0]) || !is_name(env, argv[1]) || !enif_get_uint(env, argv[2], &arity))
        return enif_make_badarg(env);
    char *module = name_of(env, argv[0]);
    char *function = name_of(env, argv[1]);
    ERL_NIF_TERM term =
        take_text(env, module && function ? ember_mfa_text(module, function, arity) : NULL);
    free(module);
    free(function);
    return term;
}

/* atom_text(Name) -> binary */
ERL_NIF_TERM ember_profile_nif_atom_text(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    if (!is_name(env, argv[0]))
        return enif_make_badarg(env);
    char *name = name_of(env, argv[0]);
    ERL_NIF_TERM term = take_text(env, name ? ember_atom_text(name) : NULL);
    free(name);
    return term;
}
