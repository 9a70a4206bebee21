/* SPDX-License-Identifier: Apache-2.0 */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup,--wrap=pthread_create */
#include "consumer.h"
#include "failing_malloc.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>

enum { RINGS = 3, CAPACITY = 64, SLOT = 5, PID = 77, TARGET = 9 };

static bool fail_thread;
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument)
{
    return fail_thread ? EAGAIN : __real_pthread_create(thread, attributes, run, argument);
}

/* ---- A consumer and what it gives out: on its thread, read when a command is done ------ */

static struct ember_ring *rings[RINGS];
static uint32_t runs_given;
static uint64_t calls_given;

static size_t on_run(void *context, struct ember_run *run, const struct ember_capture *capture,
                     const struct ember_function_table *functions)
{
    (void)context;
    (void)capture;
    (void)functions;
    runs_given++;
    calls_given += run->events;
    ember_run_destroy(run);
    return 0;
}

static void on_limit(void *context, uint32_t capture)
{
    (void)context;
    (void)capture;
}

static uint64_t lost(void *context)
{
    (void)context;
    return 0;
}

static struct ember_consumer *start(void)
{
    struct ember_consumer_options options = {
        .layout = {.return_to_words = 2, .begin_words = 4, .return_words = 1},
        .outlet = {.on_run = on_run, .on_limit = on_limit, .lost = lost},
    };
    return ember_consumer_start(rings, RINGS, 0, &options);
}

static void set_up(void)
{
    for (int i = 0; i < RINGS; i++)
        cr_assert(rings[i] = ember_ring_create(CAPACITY));
}

static void tear_down(void)
{
    for (int i = 0; i < RINGS; i++)
        ember_ring_destroy(rings[i]);
}

static void push(enum ember_event_kind kind, uint64_t time, uint64_t value)
{
    struct ember_event *event = ember_ring_reserve(rings[1]);
    cr_assert(event);
    *event =
        (struct ember_event){.stamp = ember_event_stamp(time, 1, kind), .pid = PID, .value = value};
    ember_ring_commit(rings[1]);
}

/* ---- Tests ---------------------------------------------------------------------------- */

Test(consumer, start_fails_without_memory_and_leaves_nothing, .init = set_up, .fini = tear_down)
{
    uint64_t before = allocations_made;
    ember_consumer_stop(start());
    uint64_t most = allocations_made - before;
    cr_assert_gt(most, 1);
    for (uint64_t at = 0; at < most; at++) {
        allocations_left = at;
        struct ember_consumer *consumer = start();
        allocations_left = UINT64_MAX;
        if (at == 0)
            cr_assert_null(consumer);
        ember_consumer_stop(consumer);
    }
}

Test(consumer, start_fails_without_a_thread_and_leaves_nothing, .init = set_up, .fini = tear_down)
{
    fail_thread = true;
    cr_assert_null(start());
    fail_thread = false;
    struct ember_consumer *consumer = start();
    cr_assert(consumer);
    ember_consumer_stop(consumer);
    ember_consumer_stop(NULL);
}

Test(consumer, close_gives_out_what_was_written_before, .init = set_up, .fini = tear_down)
{
    struct ember_consumer *consumer = start();
    struct ember_capture capture = {
        .target = {TARGET, TARGET}, .target_arity = 1, .memory_limit = SIZE_MAX};
    for (uint64_t round = 1; round <= 20; round++) {
        runs_given = 0;
        calls_given = 0;
        ember_consumer_open(consumer, SLOT, &capture);
        push(EMBER_EVENT_BEGIN, round * 100, ember_run_value(round << 1, SLOT));
        push(EMBER_EVENT_CALL, round * 100 + 1, TARGET | (uint64_t)TARGET << 32);
        ember_consumer_close(consumer, SLOT);
        cr_assert_eq(runs_given, 1, "round %lu", (unsigned long)round);
        cr_assert_geq(calls_given, 1);
        cr_assert_eq(ember_consumer_events(consumer), 2 * round);
    }
    ember_consumer_stop(consumer);
}

Test(consumer, stop_takes_what_is_in_the_rings, .init = set_up, .fini = tear_down)
{
    struct ember_consumer *consumer = start();
    struct ember_capture capture = {
        .target = {TARGET, TARGET}, .target_arity = 1, .memory_limit = SIZE_MAX};
    ember_consumer_open(consumer, SLOT, &capture);
    push(EMBER_EVENT_BEGIN, 100, ember_run_value(2, SLOT));
    ember_consumer_stop(consumer);
    cr_assert_neq(ember_ring_reserve(rings[1]), NULL);
    cr_assert_eq(atomic_load(&rings[1]->consumer.head), 1);
}
