/* SPDX-License-Identifier: Apache-2.0 */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup,--wrap=aligned_alloc */
#include "failing_malloc.h"
#include "random.h"
#include "timeline.h"

#include <criterion/criterion.h>

enum { SPANS = 5000 };

static struct ember_span any_span(struct random *random)
{
    uint32_t node = random_below(random, 3) ? random_below(random, 300)
                                            : UINT32_MAX - random_below(random, 2);
    uint64_t length = random_next(random) >> random_below(random, 64);
    return (struct ember_span){node, (enum ember_state)random_below(random, EMBER_STATES),
                               length ? length : 1};
}

Test(timeline, spans_are_read_as_they_were_added)
{
    struct random random = {random_setting("EMBER_SEED", 1)};
    static struct ember_span spans[SPANS];
    struct ember_timeline timeline = {.start = 7};
    for (int i = 0; i < SPANS; i++) {
        spans[i] = any_span(&random);
        cr_assert(ember_timeline_add(&timeline, spans[i], SIZE_MAX));
    }
    struct ember_timeline_reader reader = ember_timeline_read(&timeline);
    uint64_t time = 7;
    struct ember_span span;
    for (int i = 0; i < SPANS; i++) {
        cr_assert(ember_timeline_next(&reader, &span));
        cr_assert_eq(span.node, spans[i].node);
        cr_assert_eq(span.state, spans[i].state);
        cr_assert_eq(span.length, spans[i].length);
        time += span.length;
        cr_assert_eq(reader.time, time);
    }
    cr_assert_not(ember_timeline_next(&reader, &span));
    cr_assert_eq(timeline.spans, SPANS);
    ember_timeline_fini(&timeline);
}

Test(timeline, nothing_is_read_of_an_empty_one)
{
    struct ember_timeline timeline = {0};
    struct ember_timeline_reader reader = ember_timeline_read(&timeline);
    struct ember_span span;
    cr_assert_not(ember_timeline_next(&reader, &span));
}

static struct ember_recorded *record(struct ember_recording *recording)
{
    struct ember_recorded *recorded = ember_recorded_create(recording, 100);
    cr_assert(recorded);
    return recorded;
}

Test(timeline, what_goes_on_is_one_span)
{
    struct ember_timeline_budget budget = {.limit = 100000};
    struct ember_recording recording = {.budget = &budget};
    struct ember_recorded *recorded = record(&recording);
    ember_recorded_note(recorded, 5, EMBER_RUNNING, 10);
    ember_recorded_note(recorded, 5, EMBER_RUNNING, 3);
    ember_recorded_note(recorded, 6, EMBER_RUNNING, 0);
    ember_recorded_note(recorded, 5, EMBER_RUNNING, 1);
    ember_recorded_note(recorded, 5, EMBER_WAITING, 20);
    ember_recorded_note(recorded, 6, EMBER_RUNNING, 2);
    ember_recorded_end(recorded);
    const struct ember_span expected[] = {
        {5, EMBER_RUNNING, 14}, {5, EMBER_WAITING, 20}, {6, EMBER_RUNNING, 2}};
    struct ember_timeline_reader reader = ember_timeline_read(&recorded->timeline);
    cr_assert_eq(reader.time, 100);
    for (int i = 0; i < 3; i++) {
        struct ember_span span;
        cr_assert(ember_timeline_next(&reader, &span));
        cr_assert(span.node == expected[i].node && span.state == expected[i].state &&
                      span.length == expected[i].length,
                  "span %d", i);
    }
    cr_assert_eq(reader.time, 136);
    cr_assert_eq(recording.cut, 0);
    ember_recorded_destroy(recorded);
    cr_assert_eq(recording.bytes, 0);
}

/* One process uses the budget up; then no process of the run is noted any longer. */
Test(timeline, a_used_up_budget_cuts_all)
{
    struct ember_timeline_budget budget = {.limit = 4000};
    struct ember_recording recording = {.budget = &budget};
    struct ember_recorded *first = record(&recording);
    struct ember_recorded *other = record(&recording);
    ember_recorded_note(other, 1, EMBER_RUNNING, 50);
    uint32_t noted = 0;
    for (; !recording.cut && noted < 100000; noted++)
        ember_recorded_note(first, noted, EMBER_RUNNING, 1);
    cr_assert_lt(noted, 4000);
    cr_assert_leq(budget.used, 4000);
    cr_assert_eq(budget.used, recording.bytes);
    uint64_t spans = first->timeline.spans;
    ember_recorded_note(first, 1, EMBER_WAITING, 9);
    ember_recorded_note(other, 2, EMBER_WAITING, 9);
    ember_recorded_end(first);
    ember_recorded_end(other);
    cr_assert_eq(first->timeline.spans, spans);
    cr_assert_eq(other->timeline.spans, 0);
    cr_assert_eq(recording.cut, 100 + spans + 1, "kept until %lu, cut at %lu",
                 (unsigned long)(100 + spans), (unsigned long)recording.cut);
    ember_recorded_destroy(first);
    ember_recorded_destroy(other);
    cr_assert_eq(recording.bytes, 0);
}

Test(timeline, without_memory_it_is_cut)
{
    struct ember_timeline_budget budget = {.limit = SIZE_MAX};
    struct ember_recording recording = {.budget = &budget};
    struct ember_recorded *recorded = record(&recording);
    allocations_left = 0;
    ember_recorded_note(recorded, 1, EMBER_RUNNING, 5);
    ember_recorded_note(recorded, 2, EMBER_RUNNING, 5);
    cr_assert_eq(recording.cut, 101);
    cr_assert_null(ember_recorded_create(&recording, 200));
    cr_assert_null(ember_timelines_create(3));
    allocations_left = UINT64_MAX;
    ember_recorded_destroy(recorded);
    ember_recorded_destroy(NULL);
    ember_timelines_destroy(NULL);
}
