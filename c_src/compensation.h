/* SPDX-License-Identifier: Apache-2.0
 *
 * How much of a run's own time was tracing's, and how sure that is.
 *
 * The cost of an event is calibrated, but a machine is not always as fast as it
 * was then, and an event does not cost the same everywhere: more where the heap is full
 * and the VM tells of it beside the heap (EMBER_COST_BESIDE), more where caches are cold.
 * So a run has a say: a program has functions that do next to nothing, whose time per
 * event is the cost of tracing and little more. Of the calls, and of the returns, the
 * quarter that came with the least time and three quarters tell between which bounds the
 * cost lies, as a multiple of the calibrated one (`scale`). How far the least of all lie
 * below the quarter, and how far calibration's own rounds lay apart, tell how exact such
 * a cost is (`spread`).
 *
 * A stack whose time is not above the cost of its events by more than that error counts as
 * calls that do nothing: these take `least_ns`, untraced, and `word_ns` for each word that
 * was allocated. So many small functions are shown too small, few too large.
 *
 * A collection counts as far as the program's own words have caused it (traced.h).
 *
 * And the operating system lets other programs run, within an interval that it
 * makes long. It tells how long in all, not when. A stack with many short intervals
 * and a few long ones was running then: the long ones count as short ones, or that
 * share of them that the stolen time explains. What it cost besides, in caches that
 * others have used, makes all less exact: by as much of the time as was stolen.
 */
#ifndef EMBER_COMPENSATION_H
#define EMBER_COMPENSATION_H

#include "call_tree.h"

struct ember_costs {
    double event_ns[EMBER_COST_KINDS]; /* of one event; all 0: nothing is subtracted */
    double gc_inside_ns;               /* ... of a collection, within its own time */
    double least_ns;                   /* what a call that does nothing takes, per event */
    double word_ns;                    /* what it takes to make a word of a term */
    double spread;                     /* of the costs when they were measured, relative */
};

struct ember_compensation {
    struct ember_costs costs;
    double ns_per_tick;
    double scale[EMBER_COST_KINDS]; /* cost in this run / calibrated cost */
    double spread;                  /* relative */
    double stolen;                  /* share of what seems stolen that is */
    bool doubtful;                  /* the run does not bear the calibration out */
};

/* What a node's own time is without tracing. */
struct ember_own_time {
    double own_ns;
    double uncertainty_ns; /* either way */
    double gc_ns;
};

struct ember_compensation ember_compensation_of(const struct ember_call_tree *tree,
                                                const struct ember_costs *costs, double ns_per_tick,
                                                double stolen_ns);

struct ember_own_time ember_compensation_apply(const struct ember_compensation *compensation,
                                               const struct ember_call_tree *tree, uint32_t node);

#endif
