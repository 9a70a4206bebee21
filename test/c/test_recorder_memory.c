/* SPDX-License-Identifier: Apache-2.0 */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup,--wrap=aligned_alloc */
#include "failing_malloc.h"
#include "recorder.h"

#include <criterion/criterion.h>

enum { PID = 1, CHILD = 2, CALLS = 400 };

static struct ember_recorder recorder;
static uint64_t ticks;
static uint32_t run_count;
static uint32_t limit_count;
static bool timeline; /* is recorded, too */

static uint64_t ticks_of_first(const struct ember_run *run)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < run->tree.count; i++)
        if (run->tree.nodes[i].process == 0)
            sum += run->tree.nodes[i].own_ticks;
    return sum;
}

/* A run that could not be followed has no process, or all of its time. */
static size_t on_run(void *context, struct ember_run *run, const struct ember_capture *capture,
                     const struct ember_function_table *functions)
{
    (void)context;
    (void)capture;
    (void)functions;
    if (run->process_count > 0 && !run->out_of_memory)
        cr_assert_eq(ticks_of_first(run), run->end_ticks - run->begin_ticks);
    run_count++;
    ember_run_destroy(run);
    return 0;
}

static void on_merged(void *context, const struct ember_run *run)
{
    (void)context;
    (void)run;
}

static void on_limit(void *context, uint32_t capture)
{
    (void)context;
    cr_assert_eq(capture, 0);
    limit_count++;
}

static uint64_t lost(void *context)
{
    (void)context;
    return 0;
}

static bool ended(void *context, uint64_t run)
{
    (void)context;
    (void)run;
    return false;
}

static void send(enum ember_event_kind kind, uint64_t pid, uint64_t value)
{
    uint32_t traced_before = kind == EMBER_EVENT_BEGIN;
    ticks += 10;
    struct ember_event event = {
        .stamp = ember_event_stamp(ticks, traced_before, kind), .pid = pid, .value = value};
    ember_recorder_event(&recorder, &event);
}

static void send_call(uint64_t pid, uint32_t function)
{
    struct ember_mfa mfa = {1, function};
    uint64_t value;
    memcpy(&value, &mfa, sizeof value);
    send(EMBER_EVENT_CALL, pid, value);
}

/* Deep enough for every table to grow; the pid of the child is new each time. */
static void record(void)
{
    send(EMBER_EVENT_BEGIN, PID, ember_run_value(2, 0));
    for (uint32_t i = 0; i < CALLS; i++) {
        send_call(PID, i + 10);
        send(EMBER_EVENT_SPAWN, PID, CHILD + i);
        send_call(CHILD + i, i + 1000);
    }
    ember_recorder_check_memory(&recorder);
    send(EMBER_EVENT_RETURN, PID, ember_run_value(2, 0));
}

static bool start_recorder(void)
{
    static const struct ember_stack_layout layout = {2, 4, true};
    struct ember_outlet outlet = {NULL, on_run, on_merged, on_limit, lost, ended};
    struct ember_capture capture = {
        .target = {1, 1}, .spawned = true, .timeline = timeline, .memory_limit = SIZE_MAX};
    run_count = limit_count = 0;
    bool ready = ember_recorder_init(&recorder, &outlet, &layout);
    if (ready)
        ember_recorder_open(&recorder, 0, &capture);
    return ready;
}

static uint64_t allocations_of_a_run(void)
{
    cr_assert(start_recorder());
    uint64_t before = allocations_made;
    record();
    uint64_t made = allocations_made - before;
    cr_assert_eq(run_count, 1);
    cr_assert_eq(limit_count, 0);
    ember_recorder_fini(&recorder);
    return made;
}

/* One allocation fails, or that and all later ones. */
static void record_with_failure(uint64_t at, bool for_good)
{
    cr_assert(start_recorder());
    allocations_left = at;
    fail_once = !for_good;
    record();
    allocations_left = UINT64_MAX;
    cr_assert_leq(run_count, 1);
    cr_assert_leq(limit_count, 1);
    ember_recorder_fini(&recorder);
}

static void survive(void)
{
    uint64_t most = allocations_of_a_run();
    cr_assert_gt(most, CALLS);
    for (uint64_t at = 0; at < most; at += at < 30 ? 1 : 17) {
        record_with_failure(at, true);
        record_with_failure(at, false);
    }
}

Test(recorder_memory, recording_survives_any_lack_of_memory)
{
    survive();
}

Test(recorder_memory, a_timeline_survives_any_lack_of_memory)
{
    timeline = true;
    survive();
    timeline = false;
}

Test(recorder_memory, capture_that_runs_out_of_memory_is_closed)
{
    cr_assert(start_recorder());
    send(EMBER_EVENT_BEGIN, PID, ember_run_value(2, 0));
    allocations_left = 0;
    for (uint32_t i = 0; i < CALLS; i++)
        send_call(PID, i + 10);
    allocations_left = UINT64_MAX;
    ember_recorder_check_memory(&recorder);
    cr_assert_eq(limit_count, 1);
    cr_assert_eq(run_count, 1);
    ember_recorder_fini(&recorder);
}

Test(recorder_memory, capture_without_memory_for_its_run_is_closed)
{
    cr_assert(start_recorder());
    allocations_left = 0;
    send(EMBER_EVENT_BEGIN, PID, ember_run_value(2, 0));
    allocations_left = UINT64_MAX;
    ember_recorder_check_memory(&recorder);
    cr_assert_eq(limit_count, 1);
    ember_recorder_fini(&recorder);
}

Test(recorder_memory, init_fails_without_memory)
{
    for (uint64_t succeed = 0; succeed < 3; succeed++) {
        allocations_left = succeed;
        cr_assert_not(start_recorder());
        ember_recorder_fini(&recorder);
    }
    allocations_left = UINT64_MAX;
}
