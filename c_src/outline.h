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

/* How much is kept at most. */
struct ember_outline_limits {
    uint32_t stacks;    /* a process counts as one */
    uint32_t processes;
    uint32_t depth;     /* functions in a stack */
    uint64_t values;    /* values that are not zero, of the metrics that are shown */
    uint64_t frames;    /* frames of these values' stacks, the process included */
    uint64_t text;      /* bytes of these frames' names; 0: any number */
    unsigned metrics;   /* bits 1 << EMBER_METRIC_...: what is shown */
};

#define EMBER_ALL_METRICS \
    (1u << EMBER_METRIC_OWN_TIME | 1u << EMBER_METRIC_WORDS | 1u << EMBER_METRIC_CALLS)

struct ember_row {
    uint32_t node;   /* EMBER_NONE: the sum of processes left out, the last row */
    uint32_t parent; /* row, before this one; EMBER_NONE: this is a process */
    uint32_t depth;  /* of a process 0 */
    uint32_t pruned_stacks;
    struct ember_metrics pruned; /* sum of the stacks left out below this one */
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
    uint64_t value;    /* not 0: ns, words or calls */
};
enum { EMBER_MAX_SLICES = 4 };

/* How many there are. Words below zero are none. */
unsigned ember_outline_slices(const struct ember_outline *outline, uint32_t row,
                              enum ember_metric metric, struct ember_slice *slices);

/* Of each row with all it called; free() it. NULL when out of memory. */
uint64_t *ember_outline_inclusive(const struct ember_outline *outline, enum ember_metric metric);

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
