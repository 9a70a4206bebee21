/* SPDX-License-Identifier: Apache-2.0 */
#include "profile_build.h"

#include "mfa_text.h"

#include <stdlib.h>

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

/* Index in the profile of a function of the session, new if need be. `map` is
 * by the session's id. */
static uint32_t map_function(struct ember_profile *profile, uint32_t *map, uint32_t id,
                             const struct ember_build *build)
{
    if (id == EMBER_NONE)
        return EMBER_NONE;
    if (map[id] != EMBER_NONE)
        return map[id];
    struct ember_function *function = &profile->functions[profile->function_count];
    map[id] = profile->function_count++;
    if (!name_function(function, build->functions->keys[id], build))
        return EMBER_NONE;
    return map[id];
}

static uint64_t to_ns(uint64_t ticks, const struct ember_build *build)
{
    return (uint64_t)((double)ticks * build->ns_per_tick + 0.5);
}

static double cost_of(const struct ember_tree_node *node, const struct ember_build *build)
{
    double cost = 0;
    for (int kind = 0; kind < EMBER_COST_KINDS; kind++)
        cost += node->events[kind] * build->cost_ns[kind];
    return cost;
}

/* What is left of a node's own time when the cost of its events is taken off. */
static double left_of(const struct ember_tree_node *node, const struct ember_build *build)
{
    return (double)node->own_ticks * build->ns_per_tick - cost_of(node, build);
}

/* The cost of an event is a mean, so for some nodes less than nothing is left.
 * They get nothing, and the others get that much less, in proportion: so the
 * sum is right. 1 where nothing would be left in all. */
static double share_of_left(const struct ember_call_tree *tree, const struct ember_build *build)
{
    double sum = 0;
    double positive = 0;
    for (uint32_t i = 0; i < tree->count; i++) {
        double left = left_of(&tree->nodes[i], build);
        sum += left;
        positive += left > 0 ? left : 0;
    }
    return sum > 0 ? sum / positive : 1;
}

static struct ember_metrics measure(const struct ember_call_tree *tree, uint32_t index,
                                    double share, const struct ember_build *build)
{
    const struct ember_tree_node *node = &tree->nodes[index];
    double left = left_of(node, build);
    return (struct ember_metrics){
        .calls = node->calls,
        .own_ns = left > 0 ? (uint64_t)(left * share + 0.5) : 0,
        .off_cpu_ns = to_ns(tree->pauses[index].off_cpu_ticks, build),
        .gc_ns = to_ns(tree->pauses[index].gc_ticks, build),
        .words = node->words,
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
    uint32_t *map = malloc((known + 1) * sizeof *map);
    if (!map)
        return false;
    for (uint32_t i = 0; i < known; i++)
        map[i] = EMBER_NONE;
    bool named = true;
    double share = share_of_left(&run->tree, build);
    for (uint32_t i = 0; named && i < run->tree.count; i++) {
        const struct ember_tree_node *from = &run->tree.nodes[i];
        struct ember_node *to = &profile->nodes[profile->node_count++];
        to->parent = from->parent;
        to->process = from->process;
        to->function = map_function(profile, map, from->function, build);
        to->own = measure(&run->tree, i, share, build);
        count_time(&profile->info, from, to, build);
        named = from->function == EMBER_NONE || to->function != EMBER_NONE;
    }
    free(map);
    return named;
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

static void build_info(struct ember_info *info, const struct ember_run *run,
                       const struct ember_build *build)
{
    info->duration_ns = to_ns(run->end_ticks - run->begin_ticks, build);
    info->start_us = build->end_us - (int64_t)(info->duration_ns / 1000);
    info->events = run->events;
    info->lost = run->lost;
    info->depth_cut = run->depth_cut;
    info->calls = 1;
    info->fallbacks = build->fallbacks;
    info->outcome = run->outcome;
}

struct ember_profile *ember_profile_build(const struct ember_run *run,
                                          const struct ember_build *build)
{
    struct ember_profile *profile = ember_profile_create();
    if (!profile)
        return NULL;
    size_t most_functions = run->tree.count < build->functions->count ? run->tree.count
                                                                      : build->functions->count;
    profile->functions = calloc(most_functions + 1, sizeof *profile->functions);
    profile->processes = calloc(run->process_count + 1u, sizeof *profile->processes);
    profile->nodes = calloc(run->tree.count + 1u, sizeof *profile->nodes);
    build_info(&profile->info, run, build);
    if (profile->functions && profile->processes && profile->nodes &&
        build_processes(profile, run, build) && build_nodes(profile, run, build))
        return profile;
    ember_profile_destroy(profile);
    return NULL;
}
