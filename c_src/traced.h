/* SPDX-License-Identifier: Apache-2.0
 *
 * A process while it is recorded: what it did between its last event and this
 * one, charged to the top of each of its tracks. Consumer thread only.
 *
 * Words. What was allocated between two events is
 *
 *   heap top's way + growth of the fragments beside the heap - tracing's own
 *
 * When the block changes without a collection, the VM has put one off and lets
 * the process go on in a small block of its own: then the heap top's way is
 * from that block's start.
 *
 * Where the VM's block is not known (see vm_heap.h), words in fragments show
 * at the next collection:  heap and fragments at its start - those at the last
 * one's end = words allocated in between; what the events did not explain
 * belongs to the function that runs when it starts.
 */
#ifndef EMBER_TRACED_H
#define EMBER_TRACED_H

#include "event.h"
#include "track.h"

struct ember_block {
    uint32_t start;    /* word address; 0: unknown */
    uint32_t end;      /* where the stack begins */
    int64_t fragments; /* words beside it; -1: unknown */
};

struct ember_traced {
    uint64_t pid;
    struct ember_track *tracks; /* list by next_in_process */
    uint64_t time;              /* of the last event, ticks */
    uint32_t hp;                /* at the last event; 0: unknown */
    uint32_t sp;                /* likewise */
    struct ember_block block;   /* at the last event */
    struct ember_block next;    /* ... from the next event on */
    bool out;                   /* scheduled out */
    bool collecting;
    bool was_traced;            /* before the last BEGIN ... */
    bool was_marked;            /* ... in a chain with a return_to frame */
    int64_t tracer_words;       /* tracing's own, allocated since the last event */
    int64_t hidden_words;       /* the last three: where the block is unknown. */
    int64_t heap_size;          /* words after the last collection; -1: none yet */
    int64_t explained;          /* words the heap top has moved since */
};

void ember_traced_init(struct ember_traced *traced, uint64_t pid, uint64_t time);

void ember_traced_add_track(struct ember_traced *traced, struct ember_track *track);
void ember_traced_remove_track(struct ember_traced *traced, struct ember_track *track);

/* Whether `event` tells of another run that begins or ends with the same call
 * as the last event did: the VM has built nothing new for it. */
bool ember_traced_is_repeat(const struct ember_traced *traced, const struct ember_event *event);

/* Charges the time up to `event`, and the words, to the tracks; then takes the
 * event into account. `function` is the event's function id or EMBER_NONE. */
void ember_traced_event(struct ember_traced *traced, const struct ember_event *event,
                        uint32_t function);

/* Charges the time up to `ticks` to one track that ends then. */
void ember_traced_close(const struct ember_traced *traced, struct ember_track *track,
                        uint64_t ticks);

/* How deep the stack is at this event; EMBER_NO_DEPTH where unknown. */
int32_t ember_traced_depth(const struct ember_traced *traced, const struct ember_event *event);

#endif
