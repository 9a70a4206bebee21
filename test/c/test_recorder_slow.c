/* SPDX-License-Identifier: Apache-2.0
 *
 * Captures that keep slow calls only.
 */
#include "recorder.h"

#include <criterion/criterion.h>

enum { PID = 1, TICKS_OF_EVENT = 10 };

static struct ember_recorder recorder;
static uint64_t ticks;
static uint64_t next_run;
static uint32_t kept_count;
static uint32_t merged_count;

static size_t on_run(void *context, struct ember_run *run, const struct ember_capture *capture,
                     const struct ember_function_table *functions)
{
    (void)context;
    (void)capture;
    (void)functions;
    kept_count += run->calls;
    ember_run_destroy(run);
    return 0;
}

static void on_merged(void *context, const struct ember_run *run)
{
    (void)context;
    (void)run;
    merged_count++;
}

static uint64_t lost(void *context)
{
    (void)context;
    return 0;
}

static void start(const struct ember_capture *asked)
{
    static const struct ember_stack_layout layout = {2, 4, true};
    struct ember_outlet outlet = {NULL, on_run, on_merged, NULL, lost};
    struct ember_capture capture = *asked;
    capture.target = (struct ember_mfa){1, 1};
    capture.memory_limit = SIZE_MAX;
    cr_assert(ember_recorder_init(&recorder, &outlet, &layout));
    ember_recorder_open(&recorder, 0, &capture);
}

static void end(void)
{
    ember_recorder_fini(&recorder);
}

static void send(enum ember_event_kind kind, uint64_t value)
{
    uint32_t traced_before = kind == EMBER_EVENT_BEGIN;
    struct ember_event event = {
        .stamp = ember_event_stamp(ticks, traced_before, kind), .pid = PID, .value = value};
    ember_recorder_event(&recorder, &event);
}

/* A captured call that takes `length` ticks and makes `calls` others, as they come. */
static uint64_t begin_call(uint64_t length, uint32_t calls)
{
    struct ember_mfa mfa = {1, 2};
    uint64_t value;
    memcpy(&value, &mfa, sizeof value);
    uint64_t run = ember_run_value(++next_run, 0);
    send(EMBER_EVENT_BEGIN, run);
    ticks += length;
    for (uint32_t i = 0; i < calls; i++)
        send(EMBER_EVENT_CALL, value);
    return run;
}

static void call(uint64_t length, uint32_t calls)
{
    send(EMBER_EVENT_RETURN, begin_call(length, calls));
}

Test(recorder_slow, only_slow_calls_are_kept_and_counted)
{
    start(&(struct ember_capture){.keep = 3, .slower_ticks = 100});
    for (int i = 0; i < 10; i++) {
        call(100, 2);
        call(101, 2);
        cr_assert_eq(kept_count, i < 3 ? i + 1 : 3);
    }
    end();
    cr_assert_eq(kept_count, 3);
}

Test(recorder_slow, the_cost_of_tracing_does_not_make_a_call_slow)
{
    start(&(struct ember_capture){
        .keep = 9, .slower_ticks = 100, .event_ticks = {[EMBER_COST_CALL] = TICKS_OF_EVENT}});
    call(100 + 20 * TICKS_OF_EVENT, 20);
    cr_assert_eq(kept_count, 0);
    call(101 + 20 * TICKS_OF_EVENT, 20);
    cr_assert_eq(kept_count, 1);
    end();
}

Test(recorder_slow, fast_calls_leave_nothing_behind)
{
    start(&(struct ember_capture){.keep = 1, .slower_ticks = 1000});
    for (int i = 0; i < 100; i++)
        call(10, 5);
    cr_assert_null(recorder.runs);
    cr_assert_eq(recorder.process_count, 0);
    cr_assert_eq(recorder.kept[0], 0);
    end();
    cr_assert_eq(kept_count, 0);
}

Test(recorder_slow, what_is_under_way_is_kept_where_it_is_slow)
{
    start(&(struct ember_capture){.keep = 9, .slower_ticks = 100});
    begin_call(50, 1);
    ember_recorder_close(&recorder, 0, ticks);
    cr_assert_eq(kept_count, 0);
    end();
    start(&(struct ember_capture){.keep = 9, .slower_ticks = 100});
    begin_call(500, 1);
    ember_recorder_close(&recorder, 0, ticks);
    cr_assert_eq(kept_count, 1);
    end();
}

Test(recorder_slow, slow_calls_are_merged)
{
    start(&(struct ember_capture){.keep = 2, .slower_ticks = 100, .merge = true});
    call(50, 1);
    call(500, 1);
    call(500, 1);
    call(500, 1);
    cr_assert_eq(merged_count, 2);
    cr_assert_eq(kept_count, 0);
    ember_recorder_close(&recorder, 0, ticks);
    cr_assert_eq(kept_count, 2);
    end();
}

Test(recorder_slow, no_more_than_asked_for)
{
    start(&(struct ember_capture){.keep = 5, .slower_ticks = 100});
    for (int i = 0; i < 50; i++)
        call(500, 1);
    end();
    cr_assert_eq(kept_count, 5);
}
