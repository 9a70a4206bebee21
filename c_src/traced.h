/* SPDX-License-Identifier: Apache-2.0
 *
 * A process while it is recorded: what it did between its last event and this
 * one, charged to the top of each of its tracks. Consumer thread only.
 *
 * Words. The heap top's way between two events is what was allocated between
 * them, with what the VM allocated for tracing. Part of it goes to fragments
 * beside the heap, which show at the next collection; per collection
 *
 *   heap and fragments at its start - heap and fragments at the last one's end
 *     = words allocated in between
 *
 * and what the events in between did not explain belongs to the function that
 * runs when the collection starts.
 */
#ifndef EMBER_TRACED_H
#define EMBER_TRACED_H

#include "event.h"
#include "track.h"

struct ember_traced {
    uint64_t pid;
    struct ember_track *tracks; /* list by next_in_process */
    uint64_t time;              /* of the last event, ticks */
    uint32_t hp;                /* at the last event; 0: unknown */
    uint32_t sp;
    uint32_t stack_base;        /* word address the depths count down from */
    uint32_t stack_words;       /* as told last */
    bool stack_base_known;      /* it is the true base of the stack */
    bool out;                   /* scheduled out */
    bool collecting;
    bool displaced;             /* hp and sp point into a fragment */
    int64_t fragments;          /* words in fragments at the last event */
    int64_t fragments_next;     /* ... at the next */
    bool fragments_known;       /* the VM tells; else the next two lines guess */
    int64_t hidden_words;       /* tracing's own, that the next collection will find */
    int64_t begin_words;        /* tracing's own, allocated after a BEGIN */
    bool heap_size_known;
    int64_t heap_size;          /* words after the last collection */
    int64_t explained;          /* words the heap top has moved since */
};

void ember_traced_init(struct ember_traced *traced, uint64_t pid, uint64_t time);

void ember_traced_add_track(struct ember_traced *traced, struct ember_track *track);
void ember_traced_remove_track(struct ember_traced *traced, struct ember_track *track);

/* Charges the time up to `event`, and the words, to the tracks; then takes the
 * event into account. `function` is the event's function id or EMBER_NONE. */
void ember_traced_event(struct ember_traced *traced, const struct ember_event *event,
                        uint32_t function);

/* Charges the time up to `ticks` to one track that ends then. */
void ember_traced_close(const struct ember_traced *traced, struct ember_track *track,
                        uint64_t ticks);

/* How deep the stack is at this event; EMBER_NO_DEPTH where unknown. */
int64_t ember_traced_depth(struct ember_traced *traced, const struct ember_event *event);

#endif
