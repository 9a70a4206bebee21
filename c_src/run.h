/* SPDX-License-Identifier: Apache-2.0
 *
 * A run is one captured call while it is being recorded: its call tree and the
 * processes that take part. Consumer thread only, until it is finished.
 */
#ifndef EMBER_RUN_H
#define EMBER_RUN_H

#include "call_tree.h"
#include "event.h"
#include "profile.h"

/* What a capture asks of its runs. */
struct ember_capture {
    struct ember_mfa target;
    uint8_t target_arity;
    bool hide_target;    /* the target is our own: its frame is not shown */
    bool fold_recursion; /* f called by f is the same stack */
    bool spawned;        /* follow children */
    bool compensate;     /* subtract the cost of tracing */
    size_t memory_limit; /* bytes, all its runs */
    uint32_t *modules;   /* only these are shown, sorted; NULL: all */
    uint32_t module_count;
};

struct ember_run_process {
    uint64_t pid;
    uint32_t parent; /* index, or EMBER_NONE */
    uint32_t root;   /* node */
    uint64_t name;   /* atom word of a name registered meanwhile, or 0 */
    struct ember_mfa initial; /* first function, where the spawn told */
    uint8_t initial_arity;
    bool exited;
};

struct ember_track;

struct ember_run {
    uint64_t id;
    uint32_t capture; /* slot */
    struct ember_call_tree tree;
    struct ember_run_process *processes;
    uint32_t process_count;
    uint32_t process_capacity;
    struct ember_track *tracks; /* list by next_in_run */
    struct ember_run *next;     /* the consumer's list */
    uint64_t begin_ticks;
    uint64_t end_ticks;
    uint64_t events;
    uint64_t lost_at_begin;
    uint64_t lost; /* during the run */
    uint64_t depth_cut;
    size_t track_bytes;
    enum ember_outcome outcome;
    bool out_of_memory;
};

struct ember_run *ember_run_create(uint64_t id, uint32_t capture);

/* Frees the tree too; its tracks must be gone. NULL is allowed. */
void ember_run_destroy(struct ember_run *run);

/* Adds a process with a root of its own; its index or EMBER_NONE. */
uint32_t ember_run_add_process(struct ember_run *run, uint64_t pid, uint32_t parent);

size_t ember_run_bytes(const struct ember_run *run);

#endif
