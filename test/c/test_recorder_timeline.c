/* SPDX-License-Identifier: Apache-2.0 */
#include "profile_build.h"
#include "recorder_test.h"

#include <criterion/criterion.h>

/* The model holds every run's timeline against its tree; see vm_on_run. */

static struct ember_capture timed(void)
{
    struct ember_capture options = vm_options(MAIN);
    options.timeline = true;
    return options;
}

static const struct ember_recorded *recorded_of(uint32_t process)
{
    return vm.finished->processes[process].recorded;
}

static void cr_assert_spans(uint32_t process, const uint64_t *lengths, const char *states)
{
    struct ember_timeline_reader reader = ember_timeline_read(&recorded_of(process)->timeline);
    struct ember_span span;
    for (size_t i = 0; states[i]; i++) {
        cr_assert(ember_timeline_next(&reader, &span), "%s: only %zu spans", vm.doing, i);
        cr_assert_eq("rog"[span.state], states[i], "%s: span %zu", vm.doing, i);
        cr_assert_eq(span.length, lengths[i], "%s: span %zu: %lu", vm.doing, i,
                     (unsigned long)span.length);
    }
    cr_assert_not(ember_timeline_next(&reader, &span), "%s: more spans", vm.doing);
}

static void work_wait_and_call(void)
{
    work(100);
    vm_out(&vm, p);
    vm.now += 70;
    vm_in(&vm, p);
    work(30);
    call(A);
    work(9);
    back();
    work(4);
}

Test(recorder_timeline, spans_are_what_happened_when)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        struct ember_capture options = timed();
        capture_with(work_wait_and_call, &options);
        cr_assert_spans(0, (const uint64_t[]){100, 70, 30, 10, 5}, "rorrr");
        cr_assert_eq(recorded_of(0)->timeline.start, 0);
    }
}

static void spawn_one(void)
{
    struct vm_process *child = vm_spawn(&vm, p, 2);
    work(10);
    run_child(child, B, 50);
    work(5);
}

Test(recorder_timeline, each_process_has_its_own)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        struct ember_capture options = timed();
        capture_with(spawn_one, &options);
        cr_assert_eq(vm.finished->process_count, 2);
        cr_assert_gt(recorded_of(0)->timeline.spans, 0);
        cr_assert_gt(recorded_of(1)->timeline.spans, 1);
    }
}

Test(recorder_timeline, none_where_none_is_wanted)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        capture(work_wait_and_call);
        cr_assert_null(recorded_of(0));
        cr_assert_eq(vm.finished->recording.bytes, 0);
    }
}

static void many_spans(void)
{
    for (int i = 0; i < 20000; i++)
        leaf();
}

Test(recorder_timeline, memory_bounds_it_and_the_run_goes_on)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        struct ember_capture options = timed();
        options.memory_limit = 1 << 16;
        capture_with(many_spans, &options);
        ember_recorder_check_memory(&vm.recorder);
        cr_assert_eq(vm.limit_count, 0);
        cr_assert_eq(vm.finished->outcome, EMBER_OUTCOME_RETURNED);
        cr_assert_gt(vm.finished->recording.cut, 0);
        cr_assert_leq(vm.finished->recording.bytes, 1 << 15);
        cr_assert_gt(recorded_of(0)->timeline.spans, 1000);
        cr_assert_leq(vm.recorder.budgets[SLOT].used, 1 << 15);
    }
}

static void wait_for_room(void)
{
    work(50);
    struct ember_event wait = vm_event(&vm, p, EMBER_EVENT_HELD_UP);
    vm.now += 1000;
    vm.held_up = 990;
    wait.stamp = ember_event_stamp(vm.now, 0, EMBER_EVENT_HELD_UP);
    wait.value = 990;
    vm_send(&vm, &wait);
    work(7);
}

/* In the tree it is nowhere, and the others still add up. */
Test(recorder_timeline, waiting_for_the_consumer_has_a_span_of_its_own)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm.compare = false;
        struct ember_capture options = timed();
        capture_with(wait_for_room, &options);
        uint64_t waited = 0;
        struct ember_timeline_reader reader = ember_timeline_read(&recorded_of(0)->timeline);
        struct ember_span span;
        while (ember_timeline_next(&reader, &span))
            waited += span.state == EMBER_HELD_UP ? span.length : 0;
        cr_assert_eq(waited, 990);
        cr_assert_eq(reader.time, vm.finished->end_ticks - vm.finished->begin_ticks);
    }
}

static char *some_name(uint64_t word)
{
    char text[32];
    snprintf(text, sizeof text, "n%lu", (unsigned long)word);
    return strdup(text);
}

static void cr_assert_total(const struct ember_profile *profile, double ns_per_tick)
{
    struct ember_metrics total = ember_profile_total(profile, EMBER_NONE);
    uint64_t sums[EMBER_STATES] = {0};
    uint64_t spans = profile->timelines->processes[0].spans;
    struct ember_timeline_reader reader = ember_timeline_read(&profile->timelines->processes[0]);
    struct ember_span span;
    while (ember_timeline_next(&reader, &span))
        sums[span.state] += span.length;
    const uint64_t expected[EMBER_STATES] = {total.own_ns, total.waiting_ns,
                                             total.off_cpu_ns - total.waiting_ns, total.gc_ns};
    for (int state = 0; state < EMBER_STATES; state++)
        cr_assert_leq(llabs((long long)(sums[state] - expected[state])),
                      ns_per_tick == 1 ? 0 : (long long)spans, "state %d: %lu of %lu", state,
                      (unsigned long)sums[state], (unsigned long)expected[state]);
}

Test(recorder_timeline, a_profile_has_it_in_nanoseconds)
{
    static const double rates[] = {1, 0.37, 3.1};
    ON_EACH_VM(layout)
    {
        start(layout);
        struct ember_capture options = timed();
        capture_with(work_wait_and_call, &options);
        for (int i = 0; i < 3; i++) {
            struct ember_build build = {.functions = &vm.recorder.functions,
                                        .ns_per_tick = rates[i],
                                        .atom_name = some_name,
                                        .pid_text = some_name};
            struct ember_profile *profile = ember_profile_build(vm.finished, &build);
            cr_assert(profile && profile->timelines);
            cr_assert_eq(profile->timelines->cut_ns, 0);
            cr_assert_total(profile, rates[i]);
            ember_profile_destroy(profile);
        }
    }
}
