/* SPDX-License-Identifier: Apache-2.0
 *
 * Where functions are said to be in memory, for perf.data and for the file with
 * their symbols.
 */
#ifndef EMBER_VIEW_PERF_H
#define EMBER_VIEW_PERF_H

#include "outline.h"

#define EMBER_PERF_BASE UINT64_C(0xffffffffa0000000)
#define EMBER_PERF_TEXT UINT64_C(0x1000) /* of the first function, after that */

enum { EMBER_PERF_FUNCTION_SIZE = 16, EMBER_PERF_MOST_NAME = 511 };

/* Frames that are no functions stand before the functions: the pseudo-frames, then
 * this one. */
enum { EMBER_PERF_NO_FUNCTION = EMBER_PSEUDO_FRAMES, EMBER_PERF_PSEUDO_FUNCTIONS };

static inline const char *ember_perf_pseudo_name(uint32_t function)
{
    return function == EMBER_PERF_NO_FUNCTION ? "[no function]" : ember_pseudo_frames[function];
}

static inline uint64_t ember_perf_address(uint32_t function)
{
    return EMBER_PERF_BASE + EMBER_PERF_TEXT + (uint64_t)function * EMBER_PERF_FUNCTION_SIZE;
}

static inline uint64_t ember_perf_image_size(const struct ember_profile *profile)
{
    return ember_perf_address(EMBER_PERF_PSEUDO_FUNCTIONS + profile->function_count) -
           EMBER_PERF_BASE;
}

#endif
