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
 * A process that is recorded from somewhere in the middle has frames that no event
 * told of. They are found by a walk over its stack when it runs first; [unknown] stands
 * for those that were not.
 *
 * The shown stack is the logical one. A tail callee stands below the function
 * that called it; in a chain of tail calls each function stands once.
 */
#ifndef EMBER_TRACK_H
#define EMBER_TRACK_H

#include "event.h"
#include "run.h"

/* How the VM's own trace frames lie on the stack of a traced process. */
struct ember_stack_layout {
    uint32_t return_to_words; /* pushed once per chain for return_to */
    uint32_t begin_words;     /* pushed for the return of a captured call */
    uint32_t return_words;    /* popped by a return: the address, and a frame pointer */
    bool begin_before_call;   /* a nested captured call: BEGIN comes before CALL */
};

/* Whether there is a return_to frame in so many words of trace frames. */
static inline bool ember_layout_marks(const struct ember_stack_layout *layout, uint32_t words)
{
    return words % layout->begin_words == layout->return_to_words;
}

struct ember_frame {
    int32_t depth; /* of the stack when the function runs */
    uint32_t node;
    uint32_t function; /* id; that of the node, unless it is not shown */
    bool tail : 1;     /* entered by a tail call */
    bool hidden : 1;   /* not shown: the node is its caller's */
    bool marked : 1;   /* the return_to frame of its chain is on the stack ... */
    bool maybe : 1;    /* ... or may be */
    bool captured : 1; /* ... and one for the return of a captured call */
    bool loose : 1;    /* called from unknown functions: it may be that less deep that a
                          return_to frame was there already */
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
    uint32_t depth; /* frames in use */
    uint32_t capacity;
    uint32_t base;                   /* frames that are never popped: the captured call's */
    uint32_t unsettled;              /* without stack pointer: frames called since a return */
    uint32_t process;                /* index in the run */
    uint32_t displaced;              /* the node on top when the process left its block */
    bool rooted;                     /* ... which ends with the process */
    bool skip_call;                  /* the next CALL is of the captured call itself */
    bool entered;                    /* recorded from somewhere in the middle ... */
    bool assumed;                    /* ... and [unknown] is shown as where it was seen to wait */
    uint64_t since;                  /* ... from then on, ticks; else 0 */
    struct ember_recorded *recorded; /* the process's timeline in the run, or NULL */
};

#define EMBER_NO_DEPTH INT32_MIN
#define EMBER_ANY_DEPTH INT32_MAX

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

/* The captured call itself. `traced`: the process was before it. */
void ember_track_begin(struct ember_track *track, uint32_t function, int32_t depth, bool traced,
                       enum ember_marking marking);

/* A frame that was there before the process was recorded. */
struct ember_old_frame {
    uint32_t function; /* id, or EMBER_NONE: not shown */
    int32_t depth;
    bool marked;
};

/* The process is recorded from `ticks` on, from somewhere in the middle. */
void ember_track_enter(struct ember_track *track, uint64_t ticks);

/* Until it runs, it is shown as being there: the ids of functions, the oldest first, all
 * of its stack if `complete`. */
void ember_track_assume(struct ember_track *track, const uint32_t *functions, uint32_t count,
                        bool complete);
void ember_track_forget_assumed(struct ember_track *track);

/* A walk over the stack has shown these frames, the oldest first, all if `complete`.
 * Those that are known already are left as they are. */
void ember_track_uncover(struct ember_track *track, const struct ember_old_frame *frames,
                         uint32_t count, bool complete);

/* Where nothing is known but that `function` runs now. */
void ember_track_show(struct ember_track *track, uint32_t function, int32_t depth);

/* Frames deeper than the stack are gone. */
void ember_track_cut(struct ember_track *track, int32_t depth);

static inline bool ember_track_is_unknown(const struct ember_track *track)
{
    return track->depth == 1 && track->frames[0].function == EMBER_UNKNOWN;
}

/* At which depth the captured call began, where that was not known then. */
void ember_track_settle(struct ember_track *track, int32_t depth);

/* A call at `depth` has been captured for others. */
enum ember_marking ember_track_other_begin(struct ember_track *track, int32_t depth);

/* ... and returns. */
void ember_track_other_return(struct ember_track *track, int32_t depth);

/* `depth` is EMBER_NO_DEPTH where there is no stack pointer. A call that is not
 * `shown` belongs to its caller. */
void ember_track_call(struct ember_track *track, uint32_t function, int32_t depth, bool shown);
void ember_track_return_to(struct ember_track *track, uint32_t function, int32_t depth);

/* Events were lost. The stack was never less deep than `least` (EMBER_NO_DEPTH: it is
 * not known how deep it was). Of the calls that were lost, the least deep that has not
 * returned was made at depth `open` (EMBER_ANY_DEPTH: all have). A frame EMBER_UNKNOWN is
 * on top, until ember_track_gap_end where all have returned. */
void ember_track_gap(struct ember_track *track, int32_t least, int32_t open);
void ember_track_gap_end(struct ember_track *track);

/* Whether the captured call itself has returned where the stack was as deep as that. */
bool ember_track_is_over(const struct ember_track *track, int32_t least);

#endif
