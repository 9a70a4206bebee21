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
#include <stdbool.h>
#include <stdint.h>

enum ember_event_kind {
    EMBER_EVENT_CALL, /* this and the next three: steps, of which all is told */
    EMBER_EVENT_RETURN_TO,
    EMBER_EVENT_IN,
    EMBER_EVENT_OUT,       /* arity: enum ember_out */
    EMBER_EVENT_FRAGMENTS, /* value: words in heap fragments, from the next event on */
    EMBER_EVENT_BINARIES,  /* value: words in binaries outside the heap, now; sp: above
                              how many the VM collects */
    EMBER_EVENT_HEAP,      /* heap_start, stack_base: the heap block, from the next event on */
    EMBER_EVENT_GC_START,
    EMBER_EVENT_GC_END,
    EMBER_EVENT_SPAWN,    /* value: the child's pid */
    EMBER_EVENT_INITIAL,  /* pid: that child; mfa: its first function */
    EMBER_EVENT_ANCESTOR, /* pid: that child; value: a pid or, with arity 1, the name of one that
                             is above it, the nearest first */
    EMBER_EVENT_EXIT,
    EMBER_EVENT_REGISTER, /* value: the name, an atom's word */
    EMBER_EVENT_HELD_UP,  /* value: ticks the process waited until now, for room in a ring */
    EMBER_EVENT_GAP,      /* events of the process were lost; least, open: see track.h; hp: ticks
                             that were waited meanwhile, in units; sp: how many were lost */
    EMBER_EVENT_FRAME,    /* before an IN, from the top of the stack on: a return address at sp,
                             into mfa or, without one, arity: enum ember_frame_kind; hp: how
                             many came before */
    EMBER_EVENT_BEGIN,    /* a captured call begins; value: see ember_run_value; arity: see
                             ember_begin_arity */
    EMBER_EVENT_RETURN,   /* ... returned */
    EMBER_EVENT_RAISE,    /* ... raised */
    EMBER_EVENT_KINDS,
};

/* Whether the chain of tail calls that a call stands in has a return_to frame. */
enum ember_marking { EMBER_UNMARKED, EMBER_MARKED, EMBER_MARKED_MAYBE };

/* Why a process was scheduled out. */
enum ember_out { EMBER_OUT_UNKNOWN, EMBER_OUT_WAITING, EMBER_OUT_PREEMPTED };

/* What a FRAME without a function is. */
enum ember_frame_kind {
    EMBER_FRAME_OTHER, /* of the VM's own: for tracing, or where a process ends */
    EMBER_FRAME_LAST,  /* none: the stack ends here */
    EMBER_FRAME_MARK,  /* a return_to frame, where it has its trace session's number: of ours */
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
        struct {
            int32_t least; /* GAP: depths of the stack */
            int32_t open;
        };
        uint64_t value;
    };
    uint32_t hp; /* heap top, low half of its word address; 0: unknown */
    uint32_t sp; /* stack top, likewise */
};

static_assert(sizeof(struct ember_event) == 32, "two events a cache line");
static_assert(EMBER_EVENT_KINDS <= 32, "five bits of the stamp");

#define EMBER_EVENT_ARITY_SHIFT 5
#define EMBER_GAP_TICKS_SHIFT 10

/* 51 bits of clock ticks since the session began: 34 days of a 3 GHz processor. */
static inline uint64_t ember_event_stamp(uint64_t ticks, uint32_t arity, enum ember_event_kind kind)
{
    return ticks << 13 | (uint64_t)arity << EMBER_EVENT_ARITY_SHIFT | (uint64_t)kind;
}

static inline uint64_t ember_event_ticks(const struct ember_event *event)
{
    return event->stamp >> 13;
}

static inline uint32_t ember_event_arity(const struct ember_event *event)
{
    return (uint32_t)(event->stamp >> EMBER_EVENT_ARITY_SHIFT) & 255;
}

static inline enum ember_event_kind ember_event_kind(const struct ember_event *event)
{
    return (enum ember_event_kind)(event->stamp & 31);
}

/* What BEGIN tells: whether the process was traced before, and how the stack looked. */
static inline uint32_t ember_begin_arity(bool traced, enum ember_marking marking)
{
    return (uint32_t)traced | (uint32_t)marking << 1;
}

/* A run's id and the slot of its capture (below 64), in one value. */
static inline uint64_t ember_run_value(uint64_t run, uint32_t capture)
{
    return run << 6 | capture;
}

static inline uint64_t ember_run_of(uint64_t value)
{
    return value >> 6;
}

static inline uint32_t ember_capture_of(uint64_t value)
{
    return value & 63;
}

#endif
