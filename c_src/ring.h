/* SPDX-License-Identifier: Apache-2.0
 *
 * A bounded queue of events with one producer thread and one consumer thread.
 *
 * head and tail run freely and are compared by unsigned difference only, so
 * wrapping is harmless. Each side keeps a copy of the other's index on its own
 * cache line and reads the original only when the copy says full or empty.
 *
 * Edges:
 *   A  producer publishes tail (release)  -> consumer reads tail (acquire):
 *      the event's bytes are there before it is counted.
 *   B  consumer publishes head (release)  -> producer reads head (acquire):
 *      the consumer is done with a slot before it is written again.
 */
#ifndef EMBER_RING_H
#define EMBER_RING_H

#include "event.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define EMBER_CACHE_LINE 64

struct ember_ring {
    struct { /* written by the producer thread only */
        alignas(EMBER_CACHE_LINE) _Atomic uint64_t tail;
        uint64_t head_seen;
        bool stalled;          /* room was waited for in vain */
        _Atomic uint64_t lost; /* events that found no room; read by anyone */
    } producer;
    struct { /* written by the consumer thread only */
        alignas(EMBER_CACHE_LINE) _Atomic uint64_t head;
    } consumer;
    struct {
        alignas(EMBER_CACHE_LINE) uint64_t mask;
        struct ember_event *slots;
    } constant;
};

/* `capacity` is a power of two. NULL when out of memory. */
struct ember_ring *ember_ring_create(size_t capacity);

/* Neither side may be at work. NULL is allowed. */
void ember_ring_destroy(struct ember_ring *ring);

/* Producer: the slot to fill, or NULL when the ring is full. */
static inline struct ember_event *ember_ring_reserve(struct ember_ring *ring)
{
    /* relaxed: only this thread writes tail */
    uint64_t tail = atomic_load_explicit(&ring->producer.tail, memory_order_relaxed);
    if (tail - ring->producer.head_seen > ring->constant.mask) {
        /* acquire: edge B */
        ring->producer.head_seen = atomic_load_explicit(&ring->consumer.head, memory_order_acquire);
        if (tail - ring->producer.head_seen > ring->constant.mask)
            return NULL;
    }
    return &ring->constant.slots[tail & ring->constant.mask];
}

/* Producer: makes the slot that was reserved last visible. */
static inline void ember_ring_commit(struct ember_ring *ring)
{
    uint64_t tail = atomic_load_explicit(&ring->producer.tail, memory_order_relaxed);
    /* release: edge A */
    atomic_store_explicit(&ring->producer.tail, tail + 1, memory_order_release);
}

/* Consumer: one past the last event that may be read. */
static inline uint64_t ember_ring_tail(struct ember_ring *ring)
{
    /* acquire: edge A */
    return atomic_load_explicit(&ring->producer.tail, memory_order_acquire);
}

static inline const struct ember_event *ember_ring_at(const struct ember_ring *ring, uint64_t index)
{
    return &ring->constant.slots[index & ring->constant.mask];
}

/* Consumer: everything below `head` has been read. */
static inline void ember_ring_release(struct ember_ring *ring, uint64_t head)
{
    /* release: edge B */
    atomic_store_explicit(&ring->consumer.head, head, memory_order_release);
}

#endif
