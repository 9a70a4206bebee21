/* SPDX-License-Identifier: Apache-2.0 */
/* LDFLAGS: -Wl,--wrap=mmap,--wrap=aligned_alloc */
#include "ring.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { CAPACITY = 8 };

static bool fail_mmap;
static bool fail_aligned_alloc;

void *__real_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset)
{
    return fail_mmap ? MAP_FAILED : __real_mmap(at, size, protection, flags, file, offset);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fail_aligned_alloc ? NULL : __real_aligned_alloc(alignment, size);
}

/* A ring whose indices have run up to `index`. */
static struct ember_ring *ring_at(uint64_t index)
{
    struct ember_ring *ring = ember_ring_create(CAPACITY);
    cr_assert(ring);
    atomic_store(&ring->producer.tail, index);
    ring->producer.head_seen = index;
    atomic_store(&ring->consumer.head, index);
    return ring;
}

static bool push(struct ember_ring *ring, uint64_t value)
{
    struct ember_event *event = ember_ring_reserve(ring);
    if (!event)
        return false;
    event->value = value;
    ember_ring_commit(ring);
    return true;
}

static uint64_t head_of(struct ember_ring *ring)
{
    return atomic_load(&ring->consumer.head);
}

static uint64_t readable(struct ember_ring *ring)
{
    return ember_ring_tail(ring) - head_of(ring);
}

static uint64_t pop(struct ember_ring *ring)
{
    uint64_t value = ember_ring_at(ring, head_of(ring))->value;
    ember_ring_release(ring, head_of(ring) + 1);
    return value;
}

Test(ring, new_ring_is_empty)
{
    struct ember_ring *ring = ember_ring_create(CAPACITY);
    cr_assert_eq(readable(ring), 0);
    cr_assert_eq(atomic_load(&ring->producer.lost), 0);
    ember_ring_destroy(ring);
}

Test(ring, sides_and_constants_do_not_share_a_cache_line)
{
    cr_assert_eq(offsetof(struct ember_ring, producer) % EMBER_CACHE_LINE, 0);
    cr_assert_geq(offsetof(struct ember_ring, consumer),
                  offsetof(struct ember_ring, producer.lost) + sizeof(uint64_t));
    cr_assert_eq(offsetof(struct ember_ring, consumer) % EMBER_CACHE_LINE, 0);
    cr_assert_eq(offsetof(struct ember_ring, constant) % EMBER_CACHE_LINE, 0);
    cr_assert_geq(offsetof(struct ember_ring, constant) - offsetof(struct ember_ring, consumer),
                  EMBER_CACHE_LINE);
    struct ember_ring *ring = ember_ring_create(1);
    cr_assert_eq((uintptr_t)ring % EMBER_CACHE_LINE, 0);
    ember_ring_destroy(ring);
}

Test(ring, events_come_out_in_order)
{
    struct ember_ring *ring = ring_at(0);
    for (uint64_t i = 0; i < 5; i++)
        cr_assert(push(ring, 100 + i));
    cr_assert_eq(readable(ring), 5);
    for (uint64_t i = 0; i < 5; i++)
        cr_assert_eq(pop(ring), 100 + i);
    cr_assert_eq(readable(ring), 0);
    ember_ring_destroy(ring);
}

Test(ring, reserved_slot_is_not_visible_before_commit)
{
    struct ember_ring *ring = ring_at(0);
    struct ember_event *event = ember_ring_reserve(ring);
    cr_assert(event);
    cr_assert_eq(readable(ring), 0);
    cr_assert_eq(ember_ring_reserve(ring), event, "an abandoned slot is given out again");
    ember_ring_commit(ring);
    cr_assert_eq(readable(ring), 1);
    cr_assert_neq(ember_ring_reserve(ring), event);
    ember_ring_destroy(ring);
}

Test(ring, takes_exactly_its_capacity)
{
    struct ember_ring *ring = ring_at(0);
    for (uint64_t i = 0; i < CAPACITY; i++)
        cr_assert(push(ring, i));
    cr_assert_not(push(ring, CAPACITY));
    cr_assert_eq(readable(ring), CAPACITY);
    ember_ring_destroy(ring);
}

Test(ring, full_ring_keeps_what_it_holds)
{
    struct ember_ring *ring = ring_at(0);
    for (uint64_t i = 0; i < 3 * CAPACITY; i++)
        cr_assert_eq(push(ring, i), i < CAPACITY);
    for (uint64_t i = 0; i < CAPACITY; i++)
        cr_assert_eq(pop(ring), i);
    ember_ring_destroy(ring);
}

Test(ring, each_release_makes_room_for_one)
{
    struct ember_ring *ring = ring_at(0);
    while (push(ring, 0))
        ;
    for (int i = 0; i < 3 * CAPACITY; i++) {
        pop(ring);
        cr_assert(push(ring, 1));
        cr_assert_not(push(ring, 2));
    }
    ember_ring_destroy(ring);
}

Test(ring, unread_event_blocks_the_ring_though_others_were_read)
{
    struct ember_ring *ring = ring_at(0);
    while (push(ring, 0))
        ;
    ember_ring_at(ring, 3); /* reading frees nothing, releasing does */
    cr_assert_not(push(ring, 1));
    ember_ring_release(ring, CAPACITY);
    for (int i = 0; i < CAPACITY; i++)
        cr_assert(push(ring, 1));
    cr_assert_not(push(ring, 1));
    ember_ring_destroy(ring);
}

/* Every index from some before 2^64 to some after 0, empty and full there. */
Test(ring, indices_may_wrap)
{
    for (uint64_t before = 0; before <= 2 * CAPACITY; before++) {
        struct ember_ring *ring = ring_at(-before);
        for (uint64_t round = 0; round < 3 * CAPACITY; round++) {
            cr_assert_eq(readable(ring), 0);
            for (uint64_t i = 0; i < CAPACITY; i++)
                cr_assert(push(ring, round + i), "%" PRIu64 " before the wrap", before);
            cr_assert_not(push(ring, 99), "%" PRIu64 " before the wrap", before);
            for (uint64_t i = 0; i < CAPACITY; i++)
                cr_assert_eq(pop(ring), round + i);
            cr_assert(push(ring, 7)); /* shifts the next round by one */
            cr_assert_eq(pop(ring), 7);
        }
        ember_ring_destroy(ring);
    }
}

Test(ring, of_one_slot_works)
{
    struct ember_ring *ring = ember_ring_create(1);
    for (uint64_t i = 0; i < 10; i++) {
        cr_assert(push(ring, i));
        cr_assert_not(push(ring, i));
        cr_assert_eq(pop(ring), i);
    }
    ember_ring_destroy(ring);
}

Test(ring, create_fails_without_memory)
{
    fail_aligned_alloc = true;
    cr_assert_null(ember_ring_create(CAPACITY));
    fail_aligned_alloc = false;
    fail_mmap = true;
    cr_assert_null(ember_ring_create(CAPACITY));
    fail_mmap = false;
}

Test(ring, destroy_takes_null)
{
    ember_ring_destroy(NULL);
}

Test(ring, event_stamp_holds_its_three_parts)
{
    struct ember_event event = {
        .stamp = ember_event_stamp((UINT64_C(1) << 51) - 1, 255, EMBER_EVENT_RAISE)};
    cr_assert_eq(ember_event_ticks(&event), (UINT64_C(1) << 51) - 1);
    cr_assert_eq(ember_event_arity(&event), 255);
    cr_assert_eq(ember_event_kind(&event), EMBER_EVENT_RAISE);
    event.stamp = ember_event_stamp(0, 1, EMBER_EVENT_CALL);
    cr_assert_eq(ember_event_ticks(&event), 0);
    cr_assert_eq(ember_event_arity(&event), 1);
    cr_assert_eq(ember_event_kind(&event), EMBER_EVENT_CALL);
}
