/* SPDX-License-Identifier: Apache-2.0
 *
 * The stacks of a profile in the order in which views draw and write them: process
 * by process, each caller followed by its callees. Viewers have limits; beyond them
 * the smallest stacks are left out, and summed up in the stack they were called
 * from, so that all totals stay what they are.
 */
#ifndef EMBER_OUTLINE_H
#define EMBER_OUTLINE_H

#include "profile.h"
#include "sink.h"
#include "view.h"

/* The name of what was left out, and of processes left out. */
#define EMBER_PRUNED_FRAME "[pruned]"
#define EMBER_PRUNED_PROCESS "[other processes]"

/* Frames below a stack's own: of its time in which it did not run, and of what was
 * left out. */
enum ember_pseudo_frame {
    EMBER_PSEUDO_GC,
    EMBER_PSEUDO_WAITING,
    EMBER_PSEUDO_PREEMPTED,
    EMBER_PSEUDO_OFF_CPU,
    EMBER_PSEUDO_PRUNED,
    EMBER_PSEUDO_FRAMES,
};
extern const char *const ember_pseudo_frames[EMBER_PSEUDO_FRAMES];

/* The index of such a frame. */
enum ember_pseudo_frame ember_pseudo_frame(const char *name);

/* What time is that was scheduled out and is not known as waiting: preempted, or in
 * a comparison where either side could not tell, only off the CPU. */
enum ember_pseudo_frame ember_pseudo_not_waiting(const struct ember_profile *profile);

/* How much is kept at most. */
struct ember_outline_limits {
    uint32_t stacks; /* a process counts as one */
    uint32_t processes;
    uint32_t depth;   /* functions in a stack */
    uint64_t values;  /* values that are not zero, of the metrics that are shown */
    uint64_t frames;  /* frames of these values' stacks, the process included */
    uint64_t text;    /* bytes of these frames' names; 0: any number */
    unsigned metrics; /* bits 1 << EMBER_METRIC_...: what is shown */
};

#define EMBER_ALL_METRICS ((1u << EMBER_METRICS) - 1)

struct ember_row {
    uint32_t node;   /* EMBER_NONE: the sum of processes left out, the last row */
    uint32_t parent; /* row, before this one; EMBER_NONE: this is a process */
    uint32_t depth;  /* of a process 0 */
    uint32_t pruned_stacks;
    struct ember_metrics pruned; /* sum of the stacks left out below this one */
    struct ember_metrics pruned_before;
};

struct ember_outline {
    const struct ember_profile *profile;
    struct ember_row *rows;
    uint32_t count;
    uint32_t depth;    /* of the deepest row */
    uint32_t left_out; /* stacks */
};

extern const struct ember_outline_limits ember_outline_unlimited;

/* false when out of memory. ember_outline_fini afterwards in any case. */
bool ember_outline_init(struct ember_outline *outline, const struct ember_profile *profile,
                        const struct ember_outline_limits *limits);
void ember_outline_fini(struct ember_outline *outline);

/* What of a metric a row has by itself; time has several kinds. */
struct ember_slice {
    const char *frame; /* below the row's own frame; NULL: none */
    uint64_t value;    /* not 0: ns, words, calls or bytes */
};
enum { EMBER_MAX_SLICES = 5 };

/* How many there are. Words below zero are none. */
unsigned ember_outline_slices(const struct ember_outline *outline, uint32_t row,
                              enum ember_metric metric, struct ember_slice *slices);
unsigned ember_outline_slices_of(const struct ember_outline *outline, uint32_t row,
                                 enum ember_metric metric, enum ember_side side,
                                 struct ember_slice *slices);

/* The same of both sides of a comparison. */
struct ember_change {
    const char *frame; /* as in ember_slice */
    uint64_t before;
    uint64_t after; /* one of them is not 0 */
};
unsigned ember_outline_changes(const struct ember_outline *outline, uint32_t row,
                               enum ember_metric metric, struct ember_change *changes);

/* Of each row with all it called; free() it. NULL when out of memory. */
uint64_t *ember_outline_inclusive(const struct ember_outline *outline, enum ember_metric metric);
uint64_t *ember_outline_inclusive_of(const struct ember_outline *outline, enum ember_metric metric,
                                     enum ember_side side);

/* Rows of the process whose row this is, itself included. */
uint32_t ember_outline_extent(const struct ember_outline *outline, uint32_t row);

/* The process of a row: its pid and name. Lives in `text`; "" when that failed. */
const char *ember_outline_title(const struct ember_outline *outline, uint32_t row,
                                struct ember_sink *text);

/* What the functions of the rows are called, without repetition. */
enum ember_naming {
    EMBER_NAMING_TEXT,
    EMBER_NAMING_MODULE,
};

struct ember_names {
    uint32_t *id;       /* of each function; EMBER_NONE: not in the outline */
    uint32_t *function; /* of each id: one that has the name */
    uint32_t count;
};

/* false when out of memory. ember_names_fini afterwards in any case. */
bool ember_names_init(struct ember_names *names, const struct ember_outline *outline,
                      enum ember_naming naming);
void ember_names_fini(struct ember_names *names);

/* What a reader should know about the numbers, as one line of text: events lost, stacks left out
 * and so on; "" when there is nothing. Lives in `text`. `outline` may be NULL. */
const char *ember_view_caveats(const struct ember_profile *profile,
                               const struct ember_outline *outline, struct ember_sink *text);

/* What was profiled, when, for how long. Lives in `text`. */
const char *ember_view_heading(const struct ember_profile *profile, struct ember_sink *text);

#endif
