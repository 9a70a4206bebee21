/* SPDX-License-Identifier: Apache-2.0
 *
 * The record a tracer callback writes and the consumer reads: what happened,
 * to which process, when, and where its heap and stack ended.
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
    EMBER_EVENT_GC_START,
    EMBER_EVENT_GC_END,
    EMBER_EVENT_SPAWN,    /* value: the child's pid */
    EMBER_EVENT_INITIAL,  /* pid: that child; mfa: its first function */
    EMBER_EVENT_EXIT,
    EMBER_EVENT_REGISTER, /* value: the name, an atom's word */
    EMBER_EVENT_BEGIN,    /* a captured call begins; value: run id */
    EMBER_EVENT_RETURN,   /* ... returned; value: run id */
    EMBER_EVENT_RAISE,    /* ... raised; value: run id */
};

/* The function of an event. Atoms are kept as the low half of their word; an
 * atom that needs more is a counted loss. */
struct ember_mfa {
    uint32_t module; /* 0: no function */
    uint32_t function;
};

struct ember_event {
    uint64_t time; /* clock ticks */
    uint64_t pid;  /* the VM's word */
    uint64_t hp;   /* heap top, byte address; 0 where unknown */
    uint64_t sp;   /* stack top, byte address; 0 where unknown */
    union {
        struct ember_mfa mfa;
        struct {
            uint32_t heap_words; /* GC: used of the young heap */
            uint32_t fragment_words;
        };
        uint64_t value;
    };
    uint32_t extra; /* GC: stack size in words; BEGIN, RETURN, RAISE: capture slot */
    uint8_t kind;
    uint8_t arity;
    uint16_t reserved;
};

static_assert(sizeof(struct ember_event) == 48, "an event is three quarters of a cache line");

#endif
