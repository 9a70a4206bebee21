/* SPDX-License-Identifier: Apache-2.0
 *
 * The hash of all our tables: Fibonacci hashing, whose high bits are the good
 * ones.
 */
#ifndef EMBER_HASH_H
#define EMBER_HASH_H

#include <stdint.h>

static inline uint32_t ember_hash(uint64_t key)
{
    return (uint32_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> 32);
}

#endif
