/* SPDX-License-Identifier: Apache-2.0 */
#include "profile.h"

#include "hash.h"

#include <stdlib.h>
#include <string.h>

struct ember_profile *ember_profile_create(void)
{
    return calloc(1, sizeof(struct ember_profile));
}

void ember_profile_destroy(struct ember_profile *profile)
{
    if (!profile)
        return;
    for (uint32_t i = 0; i < profile->function_count; i++) {
        free(profile->functions[i].module);
        free(profile->functions[i].name);
        free(profile->functions[i].text);
    }
    for (uint32_t i = 0; i < profile->process_count; i++) {
        free(profile->processes[i].pid_text);
        free(profile->processes[i].name);
        free(profile->processes[i].label);
    }
    free(profile->functions);
    free(profile->processes);
    free(profile->nodes);
    free(profile->info.target);
    free(profile->info.otp_release);
    free(profile);
}

void ember_metrics_add(struct ember_metrics *sum, const struct ember_metrics *more)
{
    sum->calls += more->calls;
    sum->own_ns += more->own_ns;
    sum->off_cpu_ns += more->off_cpu_ns;
    sum->gc_ns += more->gc_ns;
    sum->words += more->words;
}

struct ember_metrics ember_profile_total(const struct ember_profile *profile, uint32_t process)
{
    struct ember_metrics total = {0};
    for (uint32_t i = 0; i < profile->node_count; i++)
        if (process == EMBER_NONE || profile->nodes[i].process == process)
            ember_metrics_add(&total, &profile->nodes[i].own);
    return total;
}

static bool check_node(const struct ember_profile *profile, uint32_t i)
{
    const struct ember_node *node = &profile->nodes[i];
    bool root = node->parent == EMBER_NONE;
    return node->process < profile->process_count && (root || node->parent < i) &&
           (root ? node->function == EMBER_NONE : node->function < profile->function_count) &&
           (root || profile->nodes[node->parent].process == node->process);
}

bool ember_profile_check(const struct ember_profile *profile)
{
    for (uint32_t i = 0; i < profile->process_count; i++) {
        const struct ember_process *process = &profile->processes[i];
        if (process->root >= profile->node_count || !process->pid_text ||
            profile->nodes[process->root].process != i ||
            (process->parent != EMBER_NONE && process->parent >= profile->process_count))
            return false;
    }
    for (uint32_t i = 0; i < profile->node_count; i++)
        if (!check_node(profile, i))
            return false;
    return true;
}

/* ---- merge ---- */

/* Open addressing from what makes a thing equal to its index. */
struct index_map {
    uint32_t *slots; /* index + 1; 0: free */
    uint32_t mask;
};

struct merge {
    struct ember_profile *into;
    struct index_map functions;
    struct index_map processes;
    struct index_map nodes;
};

static bool create_map(struct index_map *map, size_t entries)
{
    uint32_t capacity = 16;
    while (capacity < entries * 2)
        capacity *= 2;
    map->mask = capacity - 1;
    map->slots = calloc(capacity, sizeof *map->slots);
    return map->slots != NULL;
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; text && *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return hash * UINT64_C(0x9E3779B97F4A7C15);
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool copy_text(char **to, const char *from)
{
    *to = from ? strdup(from) : NULL;
    return !from || *to;
}

/* EMBER_NONE when out of memory, here and below. */
static uint32_t merge_function(struct merge *merge, const struct ember_function *from)
{
    struct ember_profile *into = merge->into;
    uint64_t hash = hash_text(hash_text(from->arity, from->module), from->name);
    for (uint64_t i = hash >> 32;; i++) {
        uint32_t *slot = &merge->functions.slots[i & merge->functions.mask];
        if (*slot == 0) {
            struct ember_function *to = &into->functions[into->function_count];
            *slot = ++into->function_count;
            to->arity = from->arity;
            bool copied = copy_text(&to->module, from->module) &&
                          copy_text(&to->name, from->name) && copy_text(&to->text, from->text);
            return copied ? *slot - 1 : EMBER_NONE;
        }
        const struct ember_function *known = &into->functions[*slot - 1];
        if (known->arity == from->arity && same_text(known->module, from->module) &&
            same_text(known->name, from->name))
            return *slot - 1;
    }
}

static uint32_t add_root(struct ember_profile *into, uint32_t process)
{
    into->nodes[into->node_count] =
        (struct ember_node){.parent = EMBER_NONE, .function = EMBER_NONE, .process = process};
    return into->node_count++;
}

static uint32_t add_process(struct ember_profile *into, const struct ember_process *from,
                            uint32_t parent)
{
    uint32_t index = into->process_count++;
    struct ember_process *to = &into->processes[index];
    to->pid = from->pid;
    to->parent = parent;
    to->exited = from->exited;
    to->root = add_root(into, index);
    bool copied = copy_text(&to->pid_text, from->pid_text) && copy_text(&to->name, from->name) &&
                  copy_text(&to->label, from->label);
    return copied ? index : EMBER_NONE;
}

static uint32_t merge_process(struct merge *merge, const struct ember_process *from,
                              uint32_t parent)
{
    uint64_t hash = hash_text(hash_text(0, from->pid_text), from->name);
    for (uint64_t i = hash >> 32;; i++) {
        uint32_t *slot = &merge->processes.slots[i & merge->processes.mask];
        if (*slot == 0) {
            *slot = merge->into->process_count + 1;
            return add_process(merge->into, from, parent);
        }
        struct ember_process *known = &merge->into->processes[*slot - 1];
        if (same_text(known->pid_text, from->pid_text) && same_text(known->name, from->name)) {
            known->exited |= from->exited;
            return *slot - 1;
        }
    }
}

static uint32_t merge_child(struct merge *merge, uint32_t parent, uint32_t function)
{
    struct ember_profile *into = merge->into;
    uint64_t key = (uint64_t)parent << 32 | function;
    for (uint32_t i = ember_hash(key);; i++) {
        uint32_t *slot = &merge->nodes.slots[i & merge->nodes.mask];
        if (*slot == 0) {
            into->nodes[into->node_count] = (struct ember_node){
                .parent = parent, .function = function, .process = into->nodes[parent].process};
            *slot = ++into->node_count;
            return *slot - 1;
        }
        const struct ember_node *known = &into->nodes[*slot - 1];
        if (known->parent == parent && known->function == function)
            return *slot - 1;
    }
}

static bool merge_functions(struct merge *merge, const struct ember_profile *from, uint32_t *map)
{
    for (uint32_t i = 0; i < from->function_count; i++)
        if ((map[i] = merge_function(merge, &from->functions[i])) == EMBER_NONE)
            return false;
    return true;
}

/* A parent may stand after its child in a profile that was read or merged. */
static bool merge_processes(struct merge *merge, const struct ember_profile *from, uint32_t *map)
{
    for (uint32_t i = 0; i < from->process_count; i++) {
        map[i] = merge_process(merge, &from->processes[i], EMBER_NONE);
        if (map[i] == EMBER_NONE)
            return false;
    }
    for (uint32_t i = 0; i < from->process_count; i++)
        if (from->processes[i].parent != EMBER_NONE)
            merge->into->processes[map[i]].parent = map[from->processes[i].parent];
    return true;
}

static void merge_nodes(struct merge *merge, const struct ember_profile *from,
                        const uint32_t *functions, const uint32_t *processes, uint32_t *map)
{
    for (uint32_t i = 0; i < from->node_count; i++) {
        const struct ember_node *node = &from->nodes[i];
        if (node->parent == EMBER_NONE)
            map[i] = merge->into->processes[processes[node->process]].root;
        else
            map[i] = merge_child(merge, map[node->parent], functions[node->function]);
        ember_metrics_add(&merge->into->nodes[map[i]].own, &node->own);
    }
}

static bool merge_one(struct merge *merge, const struct ember_profile *from)
{
    size_t count = (size_t)from->function_count + from->process_count + from->node_count;
    uint32_t *maps = malloc((count + 1) * sizeof *maps);
    uint32_t *processes = maps ? maps + from->function_count : NULL;
    bool merged = maps && merge_functions(merge, from, maps) &&
                  merge_processes(merge, from, processes);
    if (merged)
        merge_nodes(merge, from, maps, processes, processes + from->process_count);
    free(maps);
    return merged;
}

/* RETURNED only when every part returned; else the first outcome that is not. */
static void merge_info(struct ember_info *into, const struct ember_info *from)
{
    into->duration_ns += from->duration_ns;
    into->events += from->events;
    into->lost += from->lost;
    into->compensated_ns += from->compensated_ns;
    into->raw_ns += from->raw_ns;
    into->depth_cut += from->depth_cut;
    into->calls += from->calls;
    into->fallbacks |= from->fallbacks;
    if (from->start_us < into->start_us)
        into->start_us = from->start_us;
    if (into->outcome == EMBER_OUTCOME_RETURNED)
        into->outcome = from->outcome;
}

static bool merge_all_info(struct ember_profile *into, const struct ember_profile *const *profiles,
                           uint32_t count)
{
    if (count == 0)
        return true;
    into->info.start_us = profiles[0]->info.start_us;
    for (uint32_t i = 0; i < count; i++)
        merge_info(&into->info, &profiles[i]->info);
    return copy_text(&into->info.target, profiles[0]->info.target) &&
           copy_text(&into->info.otp_release, profiles[0]->info.otp_release);
}

static bool allocate_merge(struct merge *merge, const struct ember_profile *const *profiles,
                           uint32_t count)
{
    size_t functions = 0;
    size_t processes = 0;
    size_t nodes = 0;
    for (uint32_t i = 0; i < count; i++) {
        functions += profiles[i]->function_count;
        processes += profiles[i]->process_count;
        nodes += profiles[i]->node_count;
    }
    if (nodes >= UINT32_MAX / 4)
        return false;
    merge->into->functions = calloc(functions + 1, sizeof *merge->into->functions);
    merge->into->processes = calloc(processes + 1, sizeof *merge->into->processes);
    merge->into->nodes = calloc(nodes + 1, sizeof *merge->into->nodes);
    return merge->into->functions && merge->into->processes && merge->into->nodes &&
           create_map(&merge->functions, functions) && create_map(&merge->processes, processes) &&
           create_map(&merge->nodes, nodes);
}

struct ember_profile *ember_profile_merge(const struct ember_profile *const *profiles,
                                          uint32_t count)
{
    struct merge merge = {.into = ember_profile_create()};
    if (!merge.into)
        return NULL;
    bool merged = allocate_merge(&merge, profiles, count) &&
                  merge_all_info(merge.into, profiles, count);
    for (uint32_t i = 0; merged && i < count; i++)
        merged = merge_one(&merge, profiles[i]);
    free(merge.functions.slots);
    free(merge.processes.slots);
    free(merge.nodes.slots);
    if (merged)
        return merge.into;
    ember_profile_destroy(merge.into);
    return NULL;
}
