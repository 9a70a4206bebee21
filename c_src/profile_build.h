/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a profile of a finished run: names for numbers, nanoseconds for ticks,
 * the cost of tracing subtracted.
 */
#ifndef EMBER_PROFILE_BUILD_H
#define EMBER_PROFILE_BUILD_H

#include "compensation.h"
#include "function_table.h"
#include "profile.h"
#include "run.h"

struct ember_build {
    const struct ember_function_table *functions;
    double ns_per_tick;
    uint64_t stolen_ns;       /* see stolen.h: while it ran, or a little longer */
    struct ember_costs costs; /* all 0: nothing is subtracted */
    int64_t end_us;           /* UTC of the run's end */
    uint32_t fallbacks;
    /* New strings, NULL when out of memory. */
    char *(*atom_name)(uint64_t atom);
    char *(*pid_text)(uint64_t pid);
};

/* NULL when out of memory. */
struct ember_profile *ember_profile_build(const struct ember_run *run,
                                          const struct ember_build *build);

#endif
