/* SPDX-License-Identifier: Apache-2.0
 *
 * What each function took by itself, and with all it called.
 */
#ifndef EMBER_FUNCTION_SUMS_H
#define EMBER_FUNCTION_SUMS_H

#include "outline.h"

struct ember_function_sum {
    struct ember_metrics own;
    struct ember_metrics total; /* where it is in a stack more than once: counted once */
};

/* One a function of the profile, to be freed; NULL when out of memory. `wanted` is
 * by process; NULL: all of them. */
struct ember_function_sum *ember_function_sums(const struct ember_profile *profile,
                                               const bool *wanted, enum ember_side side);

#endif
