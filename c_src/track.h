/* SPDX-License-Identifier: Apache-2.0
 *
 * A track is the stack of one process within one run, rebuilt from its events.
 *
 * A frame knows how deep in the process's stack its function was entered. The
 * depth tells what the VM does not: a call at the depth of the top frame is a
 * tail call, and frames deeper than a later event are gone, however they went.
 * Depths are words below the base of the stack, so they stay valid when a
 * collection moves it.
 *
 * The shown stack is the logical one. A tail callee stands below the function
 * that called it; in a chain of tail calls each function stands once.
 */
#ifndef EMBER_TRACK_H
#define EMBER_TRACK_H

#include "run.h"

/* How the VM's own trace frames lie on the stack of a traced process. */
struct ember_stack_layout {
    uint32_t return_to_words; /* pushed once per chain for return_to */
    uint32_t begin_words;     /* pushed for the return of a captured call */
    bool begin_before_call;   /* a nested captured call: BEGIN comes before CALL */
};

struct ember_frame {
    int32_t depth; /* of the stack when the function runs */
    uint32_t node;
    uint32_t function; /* id; that of the node, unless it is not shown */
    bool tail;         /* entered by a tail call */
    bool hidden;       /* not shown: the node is its caller's */
    bool marked;       /* the return_to frame of its chain is on the stack ... */
    bool captured;     /* ... and one for the return of a captured call */
};

struct ember_traced;

struct ember_track {
    struct ember_run *run;
    const struct ember_capture *capture;
    const struct ember_stack_layout *layout;
    struct ember_traced *traced;
    struct ember_track *next_in_process;
    struct ember_track *next_in_run;
    struct ember_frame *frames;
    uint32_t depth;     /* frames in use */
    uint32_t capacity;
    uint32_t base;      /* frames that are never popped: the captured call's */
    uint32_t unsettled; /* without stack pointer: frames called since a return */
    uint32_t process;   /* index in the run */
    bool skip_call;     /* the next CALL is of the captured call itself */
};

#define EMBER_NO_DEPTH INT32_MIN

struct ember_track *ember_track_create(struct ember_run *run, const struct ember_capture *capture,
                                       const struct ember_stack_layout *layout, uint32_t process);
void ember_track_destroy(struct ember_track *track);

/* The node on top; the root when no frame is. */
static inline uint32_t ember_track_top_index(const struct ember_track *track)
{
    return track->depth ? track->frames[track->depth - 1].node
                        : track->run->processes[track->process].root;
}

static inline struct ember_tree_node *ember_track_top(const struct ember_track *track)
{
    return &track->run->tree.nodes[ember_track_top_index(track)];
}

/* The captured call itself. `traced`: the process was before it. `marked`: so
 * is the chain of tail calls that it stands in. */
void ember_track_begin(struct ember_track *track, uint32_t function, int32_t depth, bool traced,
                       bool marked);

/* At which depth the captured call began, where that was not known then. */
void ember_track_settle(struct ember_track *track, int32_t depth);

/* A call at `depth` has been captured for others; whether its chain is marked. */
bool ember_track_other_begin(struct ember_track *track, int32_t depth);

/* `depth` is EMBER_NO_DEPTH where there is no stack pointer. A call that is not
 * `shown` belongs to its caller. */
void ember_track_call(struct ember_track *track, uint32_t function, int32_t depth, bool shown);
void ember_track_return_to(struct ember_track *track, uint32_t function, int32_t depth);

#endif
