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
 * from that block's start. What was allocated in the old block after the last
 * event shows at the collection, which tells how much of it was used, and belongs
 * to what ran then.
 *
 * Where the VM's block is not known (see vm_heap.h), words in fragments show
 * at the next collection:  heap and fragments at its start - those at the last
 * one's end = words allocated in between; what the events did not explain
 * belongs to the function that runs when it starts.
 *
 * Collections. Tracing allocates on the process's heap and pushes frames on its stack, so
 * the process collects more often. A collection is caused by tracing in the proportion in
 * which its words have filled heap and stack since the last one; less where what the
 * program itself has allocated survives, since that is copied in any case.
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
    int64_t binaries;           /* words outside the heap, when last told; -1: unknown */
    bool steady;                /* it runs, and its block is as at the last event */
    bool timed;                 /* a track of it has a timeline: it is never taken for steady */
    uint64_t since;   /* the last track that was added in the middle of it is from then on */
    uint32_t entered; /* tracks that were */
    bool fresh;       /* only seen from outside: no event has told what it does */
    bool out;         /* scheduled out ... */
    bool waiting;     /* ... with nothing to do */
    bool collecting;
    bool was_traced;            /* before the last BEGIN ... */
    enum ember_marking marking; /* ... of the chain of its call */
    int64_t abandoned;          /* used of the block that was left; -1: none was */
    int64_t tracer_words;       /* tracing's own, allocated since the last event */
    int64_t hidden_words;       /* the last three: where the block is unknown. */
    int64_t heap_size;          /* words after the last collection; -1: none yet */
    int64_t explained;          /* words the heap top and fragments have moved since */
    int64_t told;               /* of these: tracing's own */
    int32_t collected_depth;    /* of the stack at the last collection ... */
    uint32_t collected_frames;  /* ... and frames on it */
    double caused;              /* share of this collection that tracing's words have caused */
};

/* What a process does, as far as can be seen from outside. */
enum ember_activity { EMBER_ACTIVE, EMBER_READY, EMBER_IDLE };

void ember_traced_init(struct ember_traced *traced, uint64_t pid, uint64_t time);

void ember_traced_add_track(struct ember_traced *traced, struct ember_track *track);
void ember_traced_remove_track(struct ember_traced *traced, struct ember_track *track);

/* From now on the track counts: events before have told where its process is. */
void ember_traced_restart_track(struct ember_track *track, uint64_t ticks);

/* Whether `event` tells of another run that begins or ends with the same call
 * as the last event did: the VM has built nothing new for it. */
bool ember_traced_is_repeat(const struct ember_traced *traced, const struct ember_event *event);

/* Charges the time up to `event`, and the words, to the tracks; then takes the
 * event into account. `function` is the event's function id or EMBER_NONE. */
void ember_traced_event(struct ember_traced *traced, const struct ember_event *event);
void ember_traced_call(struct ember_traced *traced, const struct ember_event *event,
                       uint32_t function);
void ember_traced_return_to(struct ember_traced *traced, const struct ember_event *event,
                            uint32_t function);

/* HEAP and FRAGMENTS: how the block is from the next event on. */
void ember_traced_block(struct ember_traced *traced, const struct ember_event *event);

/* HELD_UP: of the time since the last event, so much was waiting for the consumer,
 * which is nobody's. */
void ember_traced_held_up(struct ember_traced *traced, const struct ember_event *event);
/* GAP: what was done since the last event is of an unknown function. */
void ember_traced_gap(struct ember_traced *traced, const struct ember_event *event);

/* BINARIES: charges what has come to be referred to since the last one. */
void ember_traced_binaries(struct ember_traced *traced, const struct ember_event *event);

/* A process of which nothing is known but that. */
void ember_traced_enter(struct ember_traced *traced, enum ember_activity activity);

/* Charges the time up to `ticks` to one track that ends then. */
void ember_traced_close(const struct ember_traced *traced, struct ember_track *track,
                        uint64_t ticks);

/* How deep the stack is at this event; EMBER_NO_DEPTH where unknown. */
int32_t ember_traced_depth(const struct ember_traced *traced, const struct ember_event *event);

#endif
