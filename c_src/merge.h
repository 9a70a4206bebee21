/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads many rings as one sequence in the order of time. Consumer thread only.
 *
 * A process's events lie in several rings, since it moves between threads. The
 * VM's hand-over of a process orders its events, so whoever sees one event in
 * a ring sees all that came before it in the others, if it looks there later:
 * all tails are read twice, and the events up to the second reading are merged
 * by time, but only until the first that the second reading alone has seen.
 */
#ifndef EMBER_MERGE_H
#define EMBER_MERGE_H

#include "ring.h"

struct ember_merge_source {
    struct ember_ring *ring;
    uint64_t head;  /* next event to take */
    uint64_t first; /* tail at the first reading: events below are safe */
    uint64_t last;  /* tail at the second */
    uint64_t asked; /* tail at ember_merge_ask */
};

struct ember_merge {
    struct ember_merge_source *sources;
    uint32_t count;
};

bool ember_merge_init(struct ember_merge *merge, struct ember_ring **rings, uint32_t count);
void ember_merge_fini(struct ember_merge *merge);

/* Hands every event that is safe to take to `take`, in order, and frees their
 * slots. Returns how many. */
uint64_t ember_merge_drain(struct ember_merge *merge,
                           void (*take)(void *context, const struct ember_event *), void *context);

/* Remembers what is in the rings now; whether all that has been taken. An event that
 * became visible late may hold up a drain, and so may another the next one. */
void ember_merge_ask(struct ember_merge *merge);
bool ember_merge_has_taken(const struct ember_merge *merge);

#endif
