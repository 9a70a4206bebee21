/* SPDX-License-Identifier: Apache-2.0 */
#include "profile_build.h"

#include "mfa_text.h"
#include "sink.h"

#include <stdlib.h>
#include <string.h>

enum { PSEUDO_FUNCTIONS = 2 };

static bool name_function(struct ember_function *function, struct ember_function_key key,
                          const struct ember_build *build)
{
    function->module = build->atom_name(key.mfa.module);
    function->name = build->atom_name(key.mfa.function);
    function->arity = (uint8_t)key.arity;
    if (!function->module || !function->name)
        return false;
    function->text = ember_mfa_text(function->module, function->name, key.arity);
    return function->text != NULL;
}

static bool name_pseudo(struct ember_function *function, const char *name)
{
    function->module = strdup("");
    function->name = strdup(name);
    function->text = strdup(name);
    return function->module && function->name && function->text;
}

/* Index in the profile of a function of the session, new if need be. `map` is
 * by the session's id, and last for EMBER_DEEPER and EMBER_UNKNOWN. */
static uint32_t map_function(struct ember_profile *profile, uint32_t *map, uint32_t id,
                             const struct ember_build *build)
{
    if (id == EMBER_NONE)
        return EMBER_NONE;
    const char *pseudo = id == EMBER_DEEPER ? "[deeper]" : id == EMBER_UNKNOWN ? "[unknown]" : NULL;
    uint32_t *index = &map[pseudo ? build->functions->count + EMBER_DEEPER - id : id];
    if (*index != EMBER_NONE)
        return *index;
    struct ember_function *function = &profile->functions[profile->function_count];
    *index = profile->function_count++;
    bool named = pseudo ? name_pseudo(function, pseudo)
                        : name_function(function, build->functions->keys[id], build);
    return named ? *index : EMBER_NONE;
}

static uint64_t to_ns(uint64_t ticks, const struct ember_build *build)
{
    return (uint64_t)((double)ticks * build->ns_per_tick + 0.5);
}

static struct ember_metrics measure(const struct ember_call_tree *tree, uint32_t index,
                                    const struct ember_compensation *compensation,
                                    const struct ember_build *build)
{
    const struct ember_tree_node *node = &tree->nodes[index];
    struct ember_own_time time = ember_compensation_apply(compensation, tree, index);
    return (struct ember_metrics){
        .calls = node->calls,
        .own_ns = (uint64_t)(time.own_ns + 0.5),
        .off_cpu_ns = to_ns(tree->rare[index].off_cpu_ticks, build),
        .waiting_ns = to_ns(tree->rare[index].waiting_ticks, build),
        .gc_ns = (uint64_t)(time.gc_ns + 0.5),
        .binary_bytes = tree->rare[index].binary_words * sizeof(uint64_t),
        .words = node->words,
        .uncertainty_ns = (uint64_t)(time.uncertainty_ns + 0.5),
    };
}

static void count_time(struct ember_info *info, const struct ember_tree_node *from,
                       const struct ember_node *to, const struct ember_build *build)
{
    uint64_t raw = to_ns(from->own_ticks, build);
    info->raw_ns += raw;
    info->compensated_ns += raw > to->own.own_ns ? raw - to->own.own_ns : 0;
}

static bool build_nodes(struct ember_profile *profile, const struct ember_run *run,
                        const struct ember_build *build)
{
    uint32_t known = build->functions->count;
    uint32_t *map = malloc((known + PSEUDO_FUNCTIONS) * sizeof *map);
    if (!map)
        return false;
    for (uint32_t i = 0; i < known + PSEUDO_FUNCTIONS; i++)
        map[i] = EMBER_NONE;
    bool named = true;
    struct ember_compensation compensation = ember_compensation_of(
        &run->tree, &build->costs, build->ns_per_tick, (double)build->stolen_ns);
    if (compensation.doubtful)
        profile->info.fallbacks |= EMBER_FALLBACK_COST;
    for (uint32_t i = 0; named && i < run->tree.count; i++) {
        const struct ember_tree_node *from = &run->tree.nodes[i];
        struct ember_node *to = &profile->nodes[profile->node_count++];
        to->parent = from->parent;
        to->process = from->process;
        to->function = map_function(profile, map, from->function, build);
        to->own = measure(&run->tree, i, &compensation, build);
        count_time(&profile->info, from, to, build);
        profile->info.beside += from->events[EMBER_COST_BESIDE];
        named = from->function == EMBER_NONE || to->function != EMBER_NONE;
    }
    free(map);
    return named;
}

/* Its text; NULL when out of memory. */
static char *ancestor_text(const struct ember_ancestor *ancestor, const struct ember_build *build)
{
    if (!ancestor->named)
        return build->pid_text(ancestor->word);
    char *name = build->atom_name(ancestor->word);
    char *text = name ? ember_atom_text(name) : NULL;
    free(name);
    return text;
}

static void build_ancestors(struct ember_process *to, const struct ember_run_process *from,
                            const struct ember_build *build)
{
    struct ember_sink text;
    ember_sink_init(&text);
    for (uint32_t i = 0; i < from->ancestor_count; i++) {
        char *name = ancestor_text(&from->ancestors[i], build);
        ember_sink_printf(&text, "%s%s", i > 0 ? "\n" : "", name ? name : "?");
        free(name);
    }
    if (text.size > 0 && !text.failed)
        to->ancestors = strndup(text.data, text.size);
    ember_sink_fini(&text);
}

static bool build_process(struct ember_process *to, const struct ember_run_process *from,
                          const struct ember_build *build)
{
    to->pid = from->pid;
    to->parent = from->parent;
    to->root = from->root;
    to->exited = from->exited;
    to->pid_text = build->pid_text(from->pid);
    if (from->name) {
        char *name = build->atom_name(from->name);
        to->name = name ? ember_atom_text(name) : NULL;
        free(name);
    }
    if (from->initial.module) {
        struct ember_function initial = {0};
        if (name_function(&initial, (struct ember_function_key){from->initial, from->initial_arity},
                          build))
            to->label = initial.text;
        free(initial.module);
        free(initial.name);
    }
    build_ancestors(to, from, build);
    return to->pid_text != NULL;
}

static bool build_processes(struct ember_profile *profile, const struct ember_run *run,
                            const struct ember_build *build)
{
    for (uint32_t i = 0; i < run->process_count; i++) {
        profile->process_count++;
        if (!build_process(&profile->processes[i], &run->processes[i], build))
            return false;
    }
    return true;
}

/* Ends of spans are rounded, not lengths, so that they add up. */
static bool build_timeline(struct ember_timeline *to, const struct ember_timeline *from,
                           const struct ember_build *build)
{
    struct ember_timeline_reader reader = ember_timeline_read(from);
    struct ember_span span;
    uint64_t end = to->start = to_ns(from->start, build);
    while (ember_timeline_next(&reader, &span)) {
        uint64_t begin = end;
        end = to_ns(reader.time, build);
        span.length = end - begin;
        if (span.length > 0 && !ember_timeline_add(to, span, SIZE_MAX))
            return false;
    }
    ember_timeline_trim(to);
    return true;
}

static bool build_timelines(struct ember_profile *profile, const struct ember_run *run,
                            const struct ember_build *build)
{
    if (!run->recording.budget)
        return true;
    profile->timelines = ember_timelines_create(run->process_count);
    bool built = profile->timelines != NULL;
    for (uint32_t i = 0; built && i < run->process_count; i++)
        if (run->processes[i].recorded)
            built = build_timeline(&profile->timelines->processes[i],
                                   &run->processes[i].recorded->timeline, build);
    if (built && run->recording.cut)
        profile->timelines->cut_ns = to_ns(run->recording.cut, build) + 1;
    return built;
}

static void build_info(struct ember_info *info, const struct ember_run *run,
                       const struct ember_build *build)
{
    info->duration_ns = to_ns(run->duration_ticks, build);
    info->start_us =
        build->end_us - (int64_t)(to_ns(run->end_ticks - run->begin_ticks, build) / 1000);
    info->events = run->events;
    info->lost = run->lost;
    info->depth_cut = run->depth_cut;
    info->calls = run->calls;
    info->fallbacks = build->fallbacks;
    info->outcome = run->outcome;
    info->cut_by = run->end_lost   ? EMBER_CUT_LOST
                   : run->untraced ? EMBER_CUT_UNTRACED
                                   : EMBER_CUT_NONE;
}

struct ember_profile *ember_profile_build(const struct ember_run *run,
                                          const struct ember_build *build)
{
    struct ember_profile *profile = ember_profile_create();
    if (!profile)
        return NULL;
    size_t most_functions = run->tree.count < build->functions->count ? run->tree.count
                                                                      : build->functions->count;
    profile->functions = calloc(most_functions + PSEUDO_FUNCTIONS, sizeof *profile->functions);
    profile->processes = calloc(run->process_count + 1u, sizeof *profile->processes);
    profile->nodes = calloc(run->tree.count + 1u, sizeof *profile->nodes);
    build_info(&profile->info, run, build);
    if (profile->functions && profile->processes && profile->nodes &&
        build_processes(profile, run, build) && build_nodes(profile, run, build) &&
        build_timelines(profile, run, build))
        return profile;
    ember_profile_destroy(profile);
    return NULL;
}
