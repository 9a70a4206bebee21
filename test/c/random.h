/* SPDX-License-Identifier: Apache-2.0
 *
 * Repeatable random numbers for tests. EMBER_SEED in the environment chooses
 * another sequence, EMBER_ROUNDS how many.
 */
#ifndef EMBER_TEST_RANDOM_H
#define EMBER_TEST_RANDOM_H

#include <stdint.h>
#include <stdlib.h>

struct random {
    uint64_t state;
};

/* splitmix64 */
static inline uint64_t random_next(struct random *random)
{
    uint64_t z = random->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static inline uint32_t random_below(struct random *random, uint32_t limit)
{
    return (uint32_t)(random_next(random) >> 33) % limit;
}

static inline uint64_t random_setting(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text ? strtoull(text, NULL, 0) : otherwise;
}

#endif
