/* SPDX-License-Identifier: Apache-2.0
 *
 * The clock of events: the time-stamp counter where the kernel calls it
 * invariant, else the monotonic clock. Ticks are turned into nanoseconds here
 * and nowhere else.
 */
#ifndef EMBER_CLOCK_H
#define EMBER_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

/* Set by ember_clock_init before any other thread reads it. */
extern bool ember_clock_uses_counter;

/* Call once, before any other function here. */
void ember_clock_init(void);

uint64_t ember_clock_monotonic_ns(void);

/* Nanoseconds a tick, measured over all the time since ember_clock_init;
 * waits until that is long enough (10 ms). */
double ember_clock_ns_per_tick(void);

static inline uint64_t ember_clock_ticks(void)
{
#if defined(__x86_64__)
    if (__builtin_expect(ember_clock_uses_counter, 1))
        return __rdtsc() >> 2; /* a nanosecond or two is exact enough */
#elif defined(__aarch64__)
    if (__builtin_expect(ember_clock_uses_counter, 1)) {
        uint64_t ticks;
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
        return ticks;
    }
#endif
    return ember_clock_monotonic_ns();
}

#endif
