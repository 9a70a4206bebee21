/* SPDX-License-Identifier: Apache-2.0 */
/* LDFLAGS: -Wl,--wrap=calloc */
#include "merge.h"
#include "random.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_RINGS = 6, CAPACITY = 4096, MOST_TAKEN = 100000 };

static bool fail_calloc;
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);

void *__wrap_calloc(size_t count, size_t size)
{
    return fail_calloc ? NULL : __real_calloc(count, size);
}

/* ---- Rings and what was taken from them ---------------------------------- */

static struct ember_ring *rings[MOST_RINGS];
static struct ember_merge merge;
static struct ember_event taken[MOST_TAKEN];
static uint32_t taken_count;
static void (*during_take)(void);

static void set_up(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        cr_assert(rings[i] = ember_ring_create(CAPACITY));
    cr_assert(ember_merge_init(&merge, rings, count));
    taken_count = 0;
}

static void tear_down(void)
{
    for (uint32_t i = 0; i < merge.count; i++)
        ember_ring_destroy(rings[i]);
    ember_merge_fini(&merge);
}

static bool push(uint32_t ring, uint64_t pid, uint64_t time, uint64_t value)
{
    struct ember_event *event = ember_ring_reserve(rings[ring]);
    if (!event)
        return false;
    *event = (struct ember_event){
        .stamp = ember_event_stamp(time, 0, EMBER_EVENT_CALL), .pid = pid, .value = value};
    ember_ring_commit(rings[ring]);
    return true;
}

static void take(void *context, const struct ember_event *event)
{
    cr_assert_eq(context, taken);
    cr_assert_lt(taken_count, MOST_TAKEN);
    taken[taken_count++] = *event;
    if (during_take)
        during_take();
}

static uint64_t drain(void)
{
    return ember_merge_drain(&merge, take, taken);
}

static void cr_assert_taken(uint32_t count, const uint64_t *values)
{
    cr_assert_eq(taken_count, count);
    for (uint32_t i = 0; i < count; i++)
        cr_assert_eq(taken[i].value, values[i], "event %u", i);
}

/* ---- Order --------------------------------------------------------------- */

Test(merge, empty_rings_give_nothing)
{
    set_up(3);
    cr_assert_eq(drain(), 0);
    cr_assert_eq(taken_count, 0);
    tear_down();
}

Test(merge, rings_become_one_sequence_in_time)
{
    set_up(3);
    push(0, 1, 10, 0);
    push(0, 1, 40, 3);
    push(0, 1, 41, 4);
    push(1, 2, 20, 1);
    push(1, 2, 50, 5);
    push(2, 3, 30, 2);
    cr_assert_eq(drain(), 6);
    cr_assert_taken(6, (uint64_t[]){0, 1, 2, 3, 4, 5});
    tear_down();
}

Test(merge, time_is_compared_without_arity_and_kind)
{
    set_up(2);
    push(0, 1, 10, 0);
    push(0, 1, 10, 1);
    push(1, 2, 10, 2);
    ((struct ember_event *)ember_ring_at(rings[0], 0))->stamp |= 0xfff;
    drain();
    cr_assert_taken(3, (uint64_t[]){0, 1, 2});
    tear_down();
}

Test(merge, drained_slots_are_free_again)
{
    set_up(2);
    for (uint64_t round = 0; round < 3; round++) {
        for (uint64_t i = 0; i < CAPACITY; i++)
            cr_assert(push(1, 1, round * CAPACITY + i, i));
        cr_assert_not(push(1, 1, 0, 0));
        cr_assert_eq(drain(), CAPACITY);
    }
    tear_down();
}

static bool room_seen;

static void look_for_room(void)
{
    room_seen |= push(0, 1, 1000000, 0);
}

Test(merge, a_waiting_producer_gets_room_before_the_drain_is_over)
{
    set_up(1);
    for (uint64_t i = 0; i < CAPACITY; i++)
        push(0, 1, i, i);
    during_take = look_for_room;
    drain();
    cr_assert(room_seen);
    tear_down();
}

static void push_early_event(void)
{
    during_take = NULL;
    push(0, 1, 1, 99);
}

Test(merge, an_event_written_during_the_drain_waits_for_the_next)
{
    set_up(2);
    push(1, 2, 10, 1);
    push(1, 2, 20, 2);
    during_take = push_early_event;
    cr_assert_eq(drain(), 2);
    cr_assert_eq(drain(), 1);
    cr_assert_taken(3, (uint64_t[]){1, 2, 99});
    tear_down();
}

/* ---- Processes that migrate ---------------------------------------------- */

/* Random processes hop between random rings; drains come at random moments. */
static void migrate(uint64_t seed)
{
    struct random random = {seed};
    uint32_t ring_count = 1 + random_below(&random, MOST_RINGS);
    uint64_t sequence[8] = {0};
    uint64_t time = 0;
    set_up(ring_count);
    for (int i = 0; i < 2000; i++) {
        uint64_t pid = random_below(&random, 8);
        time += random_below(&random, 3) + 1;
        push(random_below(&random, ring_count), pid, time, sequence[pid]++);
        if (random_below(&random, 50) == 0)
            drain();
    }
    drain();
    uint64_t expected[8] = {0};
    for (uint32_t i = 0; i < taken_count; i++) {
        cr_assert(i == 0 || ember_event_ticks(&taken[i]) > ember_event_ticks(&taken[i - 1]));
        cr_assert_eq(taken[i].value, expected[taken[i].pid]++, "seed %lu", (unsigned long)seed);
    }
    cr_assert_eq(taken_count, 2000);
    tear_down();
}

Test(merge, a_process_keeps_its_order_over_many_rings)
{
    for (uint64_t seed = 0; seed < 100; seed++)
        migrate(seed);
}

/* ---- The two readings ---------------------------------------------------- */

static struct ember_ring *guarded;
static size_t page_size;

/* The first touch of the guarded ring: the consumer has read the tail of ring
 * 0, and here a process writes one event to ring 0, moves, and writes its next
 * to the guarded one. */
static void write_behind_the_reader(int signal)
{
    (void)signal;
    mprotect(guarded, page_size, PROT_READ | PROT_WRITE);
    push(0, 7, 10, 1);
    push(1, 7, 20, 2);
}

/* Puts ring 1 on a page of its own that faults when it is touched first. */
static struct ember_ring *guard_second_ring(void (*on_touch)(int))
{
    page_size = (size_t)sysconf(_SC_PAGESIZE);
    guarded = mmap(NULL, page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(guarded, MAP_FAILED);
    struct ember_ring *original = rings[1];
    memcpy((void *)guarded, (void *)original, sizeof *original);
    rings[1] = merge.sources[1].ring = guarded;
    signal(SIGSEGV, on_touch);
    mprotect(guarded, page_size, PROT_NONE);
    return original;
}

Test(merge, an_event_only_the_second_reading_saw_is_not_overtaken)
{
    set_up(2);
    struct ember_ring *original = guard_second_ring(write_behind_the_reader);
    uint64_t first = drain();
    signal(SIGSEGV, SIG_DFL);
    cr_assert_eq(ember_ring_tail(guarded), 1, "both were written between the readings");
    cr_assert_eq(first, 0, "the second event must wait for the first");
    cr_assert_eq(drain(), 2);
    cr_assert_taken(2, (uint64_t[]){1, 2});
    rings[1] = original;
    munmap(guarded, page_size);
    tear_down();
}

Test(merge, what_comes_before_the_unsafe_event_is_taken)
{
    set_up(2);
    push(0, 3, 5, 0);
    struct ember_ring *original = guard_second_ring(write_behind_the_reader);
    cr_assert_eq(drain(), 1);
    signal(SIGSEGV, SIG_DFL);
    cr_assert_eq(drain(), 2);
    cr_assert_taken(3, (uint64_t[]){0, 1, 2});
    rings[1] = original;
    munmap(guarded, page_size);
    tear_down();
}

/* Its time was taken before that of what is in ring 1. */
static void write_late(int signal)
{
    (void)signal;
    mprotect(guarded, page_size, PROT_READ | PROT_WRITE);
    push(0, 7, 10, 1);
}

Test(merge, what_was_asked_for_is_taken_when_a_late_event_was_before_it)
{
    set_up(2);
    push(1, 3, 50, 2);
    ember_merge_ask(&merge);
    cr_assert_not(ember_merge_has_taken(&merge));
    struct ember_ring *original = guard_second_ring(write_late);
    cr_assert_eq(drain(), 0, "it waits for the late one");
    signal(SIGSEGV, SIG_DFL);
    cr_assert_not(ember_merge_has_taken(&merge));
    cr_assert_eq(drain(), 2);
    cr_assert(ember_merge_has_taken(&merge));
    push(0, 7, 60, 3);
    cr_assert(ember_merge_has_taken(&merge), "what came later was not asked for");
    rings[1] = original;
    munmap(guarded, page_size);
    tear_down();
}

Test(merge, init_fails_without_memory)
{
    fail_calloc = true;
    cr_assert_not(ember_merge_init(&merge, rings, 1));
    fail_calloc = false;
    ember_merge_fini(&merge);
}
