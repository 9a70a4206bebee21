/* SPDX-License-Identifier: Apache-2.0
 *
 * The oracle of timelines: the spans of a node add up to what the tree has of it.
 */
#ifndef EMBER_TEST_TIMELINE_SUMS_H
#define EMBER_TEST_TIMELINE_SUMS_H

#include "run.h"

#include <stdlib.h>

/* NULL where all is right, else what is wrong. */
static inline const char *timeline_fault(const struct ember_run *run)
{
    uint64_t(*sums)[EMBER_STATES] = calloc(run->tree.count + 1u, sizeof *sums);
    const char *fault = NULL;
    for (uint32_t i = 0; i < run->process_count; i++) {
        const struct ember_recorded *recorded = run->processes[i].recorded;
        struct ember_timeline_reader reader = {0};
        struct ember_span span;
        if (recorded)
            reader = ember_timeline_read(&recorded->timeline);
        while (ember_timeline_next(&reader, &span)) {
            if (span.node >= run->tree.count || run->tree.nodes[span.node].process != i)
                fault = "a span is on a stack of another process";
            else
                sums[span.node][span.state] += span.length;
        }
    }
    for (uint32_t i = 0; i < run->tree.count; i++) {
        bool same = sums[i][EMBER_RUNNING] == run->tree.nodes[i].own_ticks &&
                    sums[i][EMBER_WAITING] == run->tree.rare[i].waiting_ticks &&
                    sums[i][EMBER_WAITING] + sums[i][EMBER_PREEMPTED] ==
                        run->tree.rare[i].off_cpu_ticks &&
                    sums[i][EMBER_COLLECTING] == run->tree.rare[i].gc_ticks;
        bool less = sums[i][EMBER_RUNNING] <= run->tree.nodes[i].own_ticks &&
                    sums[i][EMBER_WAITING] <= run->tree.rare[i].waiting_ticks &&
                    sums[i][EMBER_WAITING] + sums[i][EMBER_PREEMPTED] <=
                        run->tree.rare[i].off_cpu_ticks &&
                    sums[i][EMBER_COLLECTING] <= run->tree.rare[i].gc_ticks;
        if (run->recording.cut ? !less : !same)
            fault = "spans do not add up to the tree";
    }
    free(sums);
    return fault;
}

#endif
