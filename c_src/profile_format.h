/* SPDX-License-Identifier: Apache-2.0
 *
 * The numbers of the profile file, for its writer, its reader and their tests;
 * docs/profile-format.md tells what they mean.
 */
#ifndef EMBER_PROFILE_FORMAT_H
#define EMBER_PROFILE_FORMAT_H

#include "profile.h"

#include <stddef.h>
#include <stdint.h>

#define EMBER_FORMAT_MAGIC \
    "\x89" \
    "EMBER\r\n"

enum {
    EMBER_FORMAT_MAJOR = 1,
    EMBER_FORMAT_MINOR = 0,
    EMBER_FORMAT_MINOR_TIMELINE = 1,  /* of a file with a timeline */
    EMBER_FORMAT_MINOR_SAMPLED = 2,   /* of a profile that was sampled */
    EMBER_FORMAT_MINOR_ANCESTORS = 3, /* of a file that tells who is over a process */
    EMBER_FORMAT_HEADER_SIZE = 32,
    EMBER_FORMAT_BLOCK_HEADER_SIZE = 24,
};

/* Limits, for writers and readers. */
#define EMBER_FORMAT_MAX_FILE ((uint64_t)1 << 30)
#define EMBER_FORMAT_MAX_CONTENT ((uint32_t)1 << 24)
#define EMBER_FORMAT_MAX_BLOCKS ((uint32_t)1 << 16)
#define EMBER_FORMAT_MAX_TEXT UINT32_C(65535)
#define EMBER_FORMAT_MAX_FUNCTIONS ((uint32_t)1 << 20)
#define EMBER_FORMAT_MAX_PROCESSES ((uint32_t)1 << 22)
#define EMBER_FORMAT_MAX_NODES ((uint32_t)1 << 24)
#define EMBER_FORMAT_MAX_METRICS UINT32_C(16)
#define EMBER_FORMAT_MAX_SUM ((uint64_t)1 << 60)
#define EMBER_FORMAT_MAX_TIMELINE ((uint64_t)1 << 28)
#define EMBER_FORMAT_MAX_START_US ((int64_t)1 << 53)

/* In the order of the blocks. */
enum ember_format_kind {
    EMBER_FORMAT_INFO,
    EMBER_FORMAT_METRICS,
    EMBER_FORMAT_FUNCTIONS,
    EMBER_FORMAT_PROCESSES,
    EMBER_FORMAT_NODES,
    EMBER_FORMAT_TIMELINE,
    EMBER_FORMAT_ANCESTORS,
    EMBER_FORMAT_KINDS,
};

static const char ember_format_kinds[EMBER_FORMAT_KINDS][5] = {"INFO", "METR", "FUNC", "PROC",
                                                               "NODE", "time", "over"};

/* Tags of the fields of INFO. */
enum ember_format_tag {
    EMBER_FORMAT_TARGET = 1,
    EMBER_FORMAT_OTP_RELEASE,
    EMBER_FORMAT_START_US,
    EMBER_FORMAT_DURATION_NS,
    EMBER_FORMAT_EVENTS,
    EMBER_FORMAT_LOST,
    EMBER_FORMAT_COMPENSATED_NS,
    EMBER_FORMAT_RAW_NS,
    EMBER_FORMAT_DEPTH_CUT,
    EMBER_FORMAT_CALLS,
    EMBER_FORMAT_FALLBACKS,
    EMBER_FORMAT_OUTCOME,
    EMBER_FORMAT_TIMELINE_CUT,
    EMBER_FORMAT_CUT_BY,
    EMBER_FORMAT_WINDOWS,
    EMBER_FORMAT_WINDOW_NS,
    EMBER_FORMAT_SPAN_NS,
    EMBER_FORMAT_COST_NS,
    EMBER_FORMAT_SCHEDULERS,
    EMBER_FORMAT_BUDGET_PPM,
    EMBER_FORMAT_SEEN,
    EMBER_FORMAT_PRESENT,
    EMBER_FORMAT_TAGS,
};

enum { EMBER_FORMAT_UNSIGNED, EMBER_FORMAT_SIGNED };

struct ember_format_metric {
    const char *name;
    const char *unit;
    size_t offset; /* in struct ember_metrics: 64 bits, of this sign */
    uint8_t sign;
};

enum { EMBER_FORMAT_KNOWN_METRICS = 8 };

static const struct ember_format_metric ember_format_metrics[EMBER_FORMAT_KNOWN_METRICS] = {
    {"calls", "count", offsetof(struct ember_metrics, calls), EMBER_FORMAT_UNSIGNED},
    {"own", "nanoseconds", offsetof(struct ember_metrics, own_ns), EMBER_FORMAT_UNSIGNED},
    {"off_cpu", "nanoseconds", offsetof(struct ember_metrics, off_cpu_ns), EMBER_FORMAT_UNSIGNED},
    {"waiting", "nanoseconds", offsetof(struct ember_metrics, waiting_ns), EMBER_FORMAT_UNSIGNED},
    {"gc", "nanoseconds", offsetof(struct ember_metrics, gc_ns), EMBER_FORMAT_UNSIGNED},
    {"words", "words", offsetof(struct ember_metrics, words), EMBER_FORMAT_SIGNED},
    {"own_uncertainty", "nanoseconds", offsetof(struct ember_metrics, uncertainty_ns),
     EMBER_FORMAT_UNSIGNED},
    {"binaries", "bytes", offsetof(struct ember_metrics, binary_bytes), EMBER_FORMAT_UNSIGNED},
};

static inline uint32_t ember_format_get(const unsigned char *at, int size)
{
    uint32_t value = 0;
    for (int i = size - 1; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

static inline void ember_format_put(unsigned char *at, int size, uint64_t value)
{
    for (int i = 0; i < size; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

/* CRC-32C; of headers alone, so bit by bit will do. */
static inline uint32_t ember_format_crc(const unsigned char *bytes, size_t size)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82F63B78) : 0);
    }
    return ~crc;
}

/* Either way: the sign goes to the lowest bit, so small numbers stay short. */
static inline uint64_t ember_format_zigzag(int64_t value)
{
    return (uint64_t)value << 1 ^ (value < 0 ? UINT64_MAX : 0);
}

static inline int64_t ember_format_unzigzag(uint64_t value)
{
    return (int64_t)(value >> 1 ^ (value & 1 ? UINT64_MAX : 0));
}

#endif
