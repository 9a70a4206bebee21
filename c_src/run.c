/* SPDX-License-Identifier: Apache-2.0 */
#include "run.h"

#include <stdlib.h>

struct ember_run *ember_run_create(uint64_t id, uint32_t capture)
{
    struct ember_run *run = calloc(1, sizeof *run);
    if (!run)
        return NULL;
    run->id = id;
    run->capture = capture;
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
    free(run->processes);
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

size_t ember_run_bytes(const struct ember_run *run)
{
    return run->tree.bytes + run->track_bytes + run->process_capacity * sizeof *run->processes;
}
