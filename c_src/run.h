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
#include "timeline.h"

/* What a capture asks of its runs. */
struct ember_capture {
    struct ember_mfa target;
    uint8_t target_arity;
    bool hide_target;    /* the target is our own: its frame is not shown */
    bool fold_recursion; /* f called by f is the same stack */
    bool spawned;        /* follow children */
    bool compensate;     /* subtract the cost of tracing */
    bool merge;          /* all finished calls together are one run */
    bool timeline;       /* keep what happened when; not of merged calls */
    size_t memory_limit; /* bytes, all its runs */
    uint64_t max_events; /* of a window; 0: any number, likewise: */
    uint64_t max_ticks;  /* of its length */
    uint64_t keep;       /* so many calls, of those that took longer; 0: all calls */
    double slower_ticks; /* than this, tracing's cost subtracted */
    double event_ticks[EMBER_COST_KINDS]; /* that cost, of an event */
    uint64_t stolen_ns;                   /* when it began: see stolen.h */
    uint32_t *modules;                    /* only these are shown, sorted; NULL: all */
    uint32_t module_count;
};

/* Whether sorted `modules` have this one. */
bool ember_modules_have(const uint32_t *modules, uint32_t count, uint32_t module);

static inline bool ember_capture_shows(const struct ember_capture *capture, struct ember_mfa mfa)
{
    return !capture->modules ||
           ember_modules_have(capture->modules, capture->module_count, mfa.module);
}

/* Those above a process that was started by proc_lib. */
enum { EMBER_MOST_ANCESTORS = 8 };

struct ember_ancestor {
    uint64_t word; /* pid, or atom */
    bool named;
};

struct ember_run_process {
    uint64_t pid;
    uint32_t parent;          /* index, or EMBER_NONE */
    uint32_t root;            /* node */
    uint64_t name;            /* atom word of a name registered meanwhile, or 0 */
    struct ember_mfa initial; /* first function, where the spawn told */
    uint8_t initial_arity;
    uint8_t ancestor_count;
    bool exited;
    uint64_t exit_ticks;
    struct ember_ancestor ancestors[EMBER_MOST_ANCESTORS];
    struct ember_recorded *recorded; /* its timeline, or NULL */
};

struct ember_track;

struct ember_run {
    uint64_t id;
    uint32_t capture; /* slot */
    struct ember_call_tree tree;
    struct ember_run_process *processes;
    uint32_t process_count;
    uint32_t process_capacity;
    uint32_t *process_slots; /* where others are merged in: index + 1 by pid; 0: free */
    uint32_t process_mask;
    struct ember_track *tracks; /* list by next_in_run */
    struct ember_run *next;     /* the consumer's list */
    uint64_t begin_ticks;
    uint64_t end_ticks;
    uint64_t duration_ticks; /* of all its calls */
    uint32_t calls;
    uint64_t events;
    uint64_t lost_at_begin;
    uint64_t lost;      /* during the run */
    uint64_t lost_told; /* of its processes, as their events tell */
    uint64_t depth_cut;
    size_t track_bytes;
    struct ember_recording recording; /* of its timelines */
    enum ember_outcome outcome;
    bool window;    /* not a call, but what processes did for a while */
    bool untraced;  /* not to its end */
    bool end_lost;  /* when it ended is not known exactly */
    uint8_t missed; /* times it was seen to have ended, without an event that says so */
    bool out_of_memory;
};

struct ember_run *ember_run_create(uint64_t id, uint32_t capture);

/* Frees the tree too; its tracks must be gone. NULL is allowed. */
void ember_run_destroy(struct ember_run *run);

/* Adds a process with a root of its own; its index or EMBER_NONE. */
uint32_t ember_run_add_process(struct ember_run *run, uint64_t pid, uint32_t parent);

/* Adds a finished run to one that others were added to before, or to a new one.
 * Its losses are those from the first call's begin to the last one's end. False
 * when out of memory; then `into` may have a part of it. */
bool ember_run_merge(struct ember_run *into, const struct ember_run *from);

/* Whether a finished run took longer than those that its capture keeps. */
bool ember_run_is_slow(const struct ember_run *run, const struct ember_capture *capture);

size_t ember_run_bytes(const struct ember_run *run);

#endif
