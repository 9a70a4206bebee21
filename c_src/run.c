/* SPDX-License-Identifier: Apache-2.0 */
#include "run.h"

#include "hash.h"

#include <stdlib.h>
#include <string.h>

bool ember_modules_have(const uint32_t *modules, uint32_t count, uint32_t module)
{
    uint32_t low = 0;
    uint32_t high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (modules[middle] == module)
            return true;
        if (modules[middle] < module)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

struct ember_run *ember_run_create(uint64_t id, uint32_t capture)
{
    struct ember_run *run = calloc(1, sizeof *run);
    if (!run)
        return NULL;
    run->id = id;
    run->capture = capture;
    run->calls = 1;
    if (ember_call_tree_init(&run->tree))
        return run;
    ember_run_destroy(run);
    return NULL;
}

void ember_run_destroy(struct ember_run *run)
{
    if (!run)
        return;
    ember_call_tree_fini(&run->tree);
    for (uint32_t i = 0; i < run->process_count; i++)
        ember_recorded_destroy(run->processes[i].recorded);
    free(run->processes);
    free(run->process_slots);
    free(run);
}

static bool ensure_process_room(struct ember_run *run)
{
    if (run->process_count < run->process_capacity)
        return true;
    uint32_t capacity = run->process_capacity ? run->process_capacity * 2 : 4;
    struct ember_run_process *processes = realloc(run->processes, capacity * sizeof *processes);
    if (!processes)
        return false;
    run->processes = processes;
    run->process_capacity = capacity;
    return true;
}

uint32_t ember_run_add_process(struct ember_run *run, uint64_t pid, uint32_t parent)
{
    if (!ensure_process_room(run))
        return EMBER_NONE;
    uint32_t root = ember_call_tree_root(&run->tree, run->process_count);
    if (root == EMBER_NONE)
        return EMBER_NONE;
    run->processes[run->process_count] =
        (struct ember_run_process){.pid = pid, .parent = parent, .root = root};
    return run->process_count++;
}

/* ---- merging ---- */

static uint32_t *find_process(const struct ember_run *run, uint64_t pid)
{
    for (uint32_t i = ember_hash(pid);; i++) {
        uint32_t *slot = &run->process_slots[i & run->process_mask];
        if (*slot == 0 || run->processes[*slot - 1].pid == pid)
            return slot;
    }
}

/* Twice as many slots as there may be processes. */
static bool ensure_process_slots(struct ember_run *run)
{
    uint32_t capacity = run->process_slots ? run->process_mask + 1 : 4;
    if (run->process_slots && run->process_count < capacity / 2)
        return true;
    uint32_t *slots = calloc((size_t)capacity * 2, sizeof *slots);
    if (!slots)
        return false;
    free(run->process_slots);
    run->process_slots = slots;
    run->process_mask = capacity * 2 - 1;
    for (uint32_t i = 0; i < run->process_count; i++) /* the last of a pid */
        *find_process(run, run->processes[i].pid) = i + 1;
    return true;
}

/* Whether a process of a run that began then had another's pid after it. */
static bool is_other(const struct ember_run *into, uint32_t slot, uint64_t begin_ticks)
{
    const struct ember_run_process *known = &into->processes[slot - 1];
    return known->exited && known->exit_ticks < begin_ticks;
}

static void copy_origin(struct ember_run_process *to, const struct ember_run_process *from)
{
    to->initial = from->initial;
    to->initial_arity = from->initial_arity;
    to->ancestor_count = from->ancestor_count;
    memcpy(to->ancestors, from->ancestors, sizeof to->ancestors);
}

static uint32_t merge_process(struct ember_run *into, const struct ember_run_process *from,
                              uint32_t parent, uint64_t begin_ticks)
{
    if (!ensure_process_slots(into))
        return EMBER_NONE;
    uint32_t *slot = find_process(into, from->pid);
    if (*slot == 0 || is_other(into, *slot, begin_ticks)) {
        if (ember_run_add_process(into, from->pid, parent) == EMBER_NONE)
            return EMBER_NONE;
        *slot = into->process_count;
        copy_origin(&into->processes[*slot - 1], from);
    }
    struct ember_run_process *to = &into->processes[*slot - 1];
    to->name = from->name ? from->name : to->name;
    to->exited |= from->exited;
    if (from->exited)
        to->exit_ticks = from->exit_ticks;
    return *slot - 1;
}

static void add_node(struct ember_call_tree *into, uint32_t index,
                     const struct ember_call_tree *from, uint32_t i)
{
    struct ember_tree_node *to = &into->nodes[index];
    to->calls += from->nodes[i].calls;
    to->own_ticks += from->nodes[i].own_ticks;
    to->words += from->nodes[i].words;
    for (int kind = 0; kind < EMBER_COST_KINDS; kind++)
        to->events[kind] += from->nodes[i].events[kind];
    into->rare[index].off_cpu_ticks += from->rare[i].off_cpu_ticks;
    into->rare[index].waiting_ticks += from->rare[i].waiting_ticks;
    into->rare[index].gc_ticks += from->rare[i].gc_ticks;
    into->rare[index].binary_words += from->rare[i].binary_words;
    into->rare[index].caused_gc_ticks += from->rare[i].caused_gc_ticks;
    into->rare[index].long_own.ticks += from->rare[i].long_own.ticks;
    into->rare[index].long_own.count += from->rare[i].long_own.count;
}

/* Parents, of processes and of nodes, stand before their children. */
static bool merge_trees(struct ember_run *into, const struct ember_run *from, uint32_t *processes,
                        uint32_t *nodes)
{
    for (uint32_t i = 0; i < from->process_count; i++) {
        uint32_t parent = from->processes[i].parent;
        processes[i] = merge_process(into, &from->processes[i],
                                     parent == EMBER_NONE ? parent : processes[parent],
                                     from->begin_ticks);
        if (processes[i] == EMBER_NONE)
            return false;
    }
    for (uint32_t i = 0; i < from->tree.count; i++) {
        const struct ember_tree_node *node = &from->tree.nodes[i];
        nodes[i] = node->parent == EMBER_NONE
                       ? into->processes[processes[node->process]].root
                       : ember_call_tree_child(&into->tree, nodes[node->parent], node->function);
        if (nodes[i] == EMBER_NONE)
            return false;
        add_node(&into->tree, nodes[i], &from->tree, i);
    }
    return true;
}

static void merge_account(struct ember_run *into, const struct ember_run *from)
{
    bool first = into->calls == 0;
    uint64_t lost_at_end = from->lost_at_begin + from->lost;
    if (first || from->begin_ticks < into->begin_ticks)
        into->begin_ticks = from->begin_ticks;
    if (first || from->lost_at_begin < into->lost_at_begin)
        into->lost_at_begin = from->lost_at_begin;
    if (first || into->outcome == EMBER_OUTCOME_RETURNED)
        into->outcome = from->outcome;
    into->end_ticks = from->end_ticks;
    into->lost = lost_at_end - into->lost_at_begin;
    into->duration_ticks += from->duration_ticks;
    into->calls += from->calls;
    into->events += from->events;
    into->depth_cut += from->depth_cut;
    into->untraced |= from->untraced;
    into->end_lost |= from->end_lost;
}

bool ember_run_merge(struct ember_run *into, const struct ember_run *from)
{
    size_t count = (size_t)from->process_count + from->tree.count;
    uint32_t *maps = malloc((count + 1) * sizeof *maps);
    bool merged = maps && merge_trees(into, from, maps, maps + from->process_count);
    free(maps);
    if (merged)
        merge_account(into, from);
    return merged;
}

/* Of the process that made the call. */
static double cost_ticks(const struct ember_run *run, const double *event_ticks)
{
    double cost = 0;
    for (uint32_t i = 0; i < run->tree.count; i++)
        for (int kind = 0; run->tree.nodes[i].process == 0 && kind < EMBER_COST_KINDS; kind++)
            cost += run->tree.nodes[i].events[kind] * event_ticks[kind];
    return cost;
}

bool ember_run_is_slow(const struct ember_run *run, const struct ember_capture *capture)
{
    double ticks = (double)run->duration_ticks;
    return ticks > capture->slower_ticks &&
           ticks - cost_ticks(run, capture->event_ticks) > capture->slower_ticks;
}

size_t ember_run_bytes(const struct ember_run *run)
{
    size_t slots = run->process_slots ? run->process_mask + 1u : 0;
    return run->tree.bytes + run->track_bytes + run->recording.bytes +
           run->process_capacity * sizeof *run->processes + slots * sizeof *run->process_slots;
}
