/* SPDX-License-Identifier: Apache-2.0
 *
 * The record a tracer callback writes and the consumer reads: what happened,
 * to which process, when, and where its heap and stack ended. Half a cache
 * line, since the cost of tracing is mostly the cost of moving these from one
 * core to another.
 */
#ifndef EMBER_EVENT_H
#define EMBER_EVENT_H

#include <assert.h>
#include <stdint.h>

enum ember_event_kind {
    EMBER_EVENT_CALL,
    EMBER_EVENT_RETURN_TO,
    EMBER_EVENT_IN,
    EMBER_EVENT_OUT,
    EMBER_EVENT_FRAGMENTS, /* value: words in heap fragments, from the next event on */
    EMBER_EVENT_HEAP,     /* heap_start, stack_base: the heap block, from the next event on */
    EMBER_EVENT_GC_START,
    EMBER_EVENT_GC_END,
    EMBER_EVENT_SPAWN,    /* value: the child's pid */
    EMBER_EVENT_INITIAL,  /* pid: that child; mfa: its first function */
    EMBER_EVENT_EXIT,
    EMBER_EVENT_REGISTER, /* value: the name, an atom's word */
    EMBER_EVENT_BEGIN,    /* a captured call begins; value: see ember_run_value;
                             arity: 1 when the process was traced before */
    EMBER_EVENT_RETURN,   /* ... returned */
    EMBER_EVENT_RAISE,    /* ... raised */
    EMBER_EVENT_KINDS,
};

/* The function of an event. Atoms are kept as the low half of their word; an
 * atom that needs more is a counted loss. */
struct ember_mfa {
    uint32_t module; /* 0: no function */
    uint32_t function;
};

struct ember_event {
    uint64_t stamp; /* time, arity, kind: see ember_event_stamp */
    uint64_t pid;   /* the VM's word */
    union {
        struct ember_mfa mfa;
        struct {
            uint32_t heap_words; /* GC: used of the young heap */
            uint32_t fragment_words;
        };
        struct {
            uint32_t heap_start; /* HEAP: low halves of word addresses */
            uint32_t stack_base; /* where the stack begins: the block's end */
        };
        uint64_t value;
    };
    uint32_t hp; /* heap top, low half of its word address; 0: unknown */
    uint32_t sp; /* stack top, likewise */
};

static_assert(sizeof(struct ember_event) == 32, "two events a cache line");
static_assert(EMBER_EVENT_KINDS <= 16, "four bits of the stamp");

/* 52 bits of clock ticks since the session began: 17 days at 3 GHz. */
static inline uint64_t ember_event_stamp(uint64_t ticks, uint32_t arity, enum ember_event_kind kind)
{
    return ticks << 12 | (uint64_t)arity << 4 | (uint64_t)kind;
}

static inline uint64_t ember_event_ticks(const struct ember_event *event)
{
    return event->stamp >> 12;
}

static inline uint32_t ember_event_arity(const struct ember_event *event)
{
    return (uint32_t)(event->stamp >> 4) & 255;
}

static inline enum ember_event_kind ember_event_kind(const struct ember_event *event)
{
    return (enum ember_event_kind)(event->stamp & 15);
}

/* A run's id and the slot of its capture (below 64), in one value. */
static inline uint64_t ember_run_value(uint64_t run, uint32_t capture)
{
    return run << 6 | capture;
}

#endif
