/* SPDX-License-Identifier: Apache-2.0 */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup */
#include "failing_malloc.h"
#include "outline.h"
#include "sample_profiles.h"

#include <criterion/criterion.h>

static struct ember_outline outline;

static void make_sample(const char *name)
{
    cr_assert(sample_make(name));
}

static void outline_within(struct ember_outline_limits limits)
{
    cr_assert(ember_outline_init(&outline, &profile, &limits));
}

static void tear_down(void)
{
    ember_outline_fini(&outline);
    sample_free();
}

TestSuite(outline, .fini = tear_down);

static uint64_t total(enum ember_metric metric)
{
    uint64_t sum = 0;
    for (uint32_t row = 0; row < outline.count; row++) {
        struct ember_slice slices[EMBER_MAX_SLICES];
        unsigned count = ember_outline_slices(&outline, row, metric, slices);
        for (unsigned i = 0; i < count; i++)
            sum += slices[i].value;
    }
    return sum;
}

static uint64_t total_of_profile(enum ember_metric metric)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < profile.node_count; i++) {
        const struct ember_metrics *own = &profile.nodes[i].own;
        if (metric == EMBER_METRIC_OWN_TIME)
            sum += own->own_ns + own->off_cpu_ns + own->gc_ns;
        else if (metric == EMBER_METRIC_CALLS)
            sum += own->calls;
        else if (metric == EMBER_METRIC_BINARIES)
            sum += own->binary_bytes;
        else
            sum += own->words > 0 ? (uint64_t)own->words : 0;
    }
    return sum;
}

/* Callers stand before callees, and a caller's callees before the next process. */
static void cr_assert_ordered(void)
{
    for (uint32_t row = 0; row < outline.count; row++) {
        const struct ember_row *at = &outline.rows[row];
        cr_assert_eq(at->depth == 0, at->parent == EMBER_NONE);
        if (at->depth == 0)
            continue;
        cr_assert_lt(at->parent, row);
        cr_assert_eq(at->depth, outline.rows[at->parent].depth + 1);
        cr_assert_leq(at->depth, outline.rows[row - 1].depth + 1);
        cr_assert_eq(profile.nodes[at->node].parent, outline.rows[at->parent].node);
    }
}

static void cr_assert_complete(void)
{
    cr_assert_ordered();
    for (int metric = 0; metric < 3; metric++)
        cr_assert_eq(total((enum ember_metric)metric), total_of_profile((enum ember_metric)metric));
}

Test(outline, without_limits_all_is_there)
{
    make_sample("large");
    outline_within(ember_outline_unlimited);
    cr_assert_eq(outline.count, profile.node_count);
    cr_assert_eq(outline.left_out, 0);
    cr_assert_complete();
}

Test(outline, rows_are_depth_first)
{
    make_sample("small");
    outline_within(ember_outline_unlimited);
    const uint32_t expected[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    for (uint32_t i = 0; i < 9; i++)
        cr_assert_eq(outline.rows[i].node, expected[i]);
    cr_assert_eq(ember_outline_extent(&outline, 0), 6);
    cr_assert_eq(ember_outline_extent(&outline, 6), 3);
}

#define LIMIT(field, most) \
    Test(outline, totals_survive_a_limit_on_##field) \
    { \
        struct ember_outline_limits limits = ember_outline_unlimited; \
        limits.field = (most); \
        make_sample("large"); \
        outline_within(limits); \
        cr_assert_gt(outline.left_out, 0); \
        cr_assert_complete(); \
    }

LIMIT(stacks, 1000)
LIMIT(processes, 2)
LIMIT(depth, 5)
LIMIT(values, 1000)
LIMIT(frames, 10000)
LIMIT(text, 100000)

Test(outline, limits_are_kept)
{
    struct ember_outline_limits limits = ember_outline_unlimited;
    limits.stacks = 1000;
    limits.depth = 5;
    make_sample("large");
    outline_within(limits);
    cr_assert_leq(outline.count, 1000);
    cr_assert_leq(outline.depth, 5);
    cr_assert_eq(outline.left_out, profile.node_count - outline.count);
}

Test(outline, what_is_left_out_is_small)
{
    struct ember_outline_limits limits = ember_outline_unlimited;
    limits.stacks = 1000;
    limits.metrics = 1u << EMBER_METRIC_CALLS;
    make_sample("medium");
    outline_within(limits);
    uint64_t *inclusive = ember_outline_inclusive(&outline, EMBER_METRIC_CALLS);
    uint64_t smallest = UINT64_MAX;
    for (uint32_t row = 0; row < outline.count; row++)
        smallest = inclusive[row] < smallest ? inclusive[row] : smallest;
    for (uint32_t row = 0; row < outline.count; row++)
        if (outline.rows[row].pruned_stacks == 1)
            cr_assert_leq(outline.rows[row].pruned.calls, smallest);
    free(inclusive);
}

Test(outline, processes_left_out_are_one_row)
{
    struct ember_outline_limits limits = ember_outline_unlimited;
    struct ember_sink text = {0};
    limits.processes = 1;
    make_sample("small");
    outline_within(limits);
    cr_assert_eq(outline.count, 4);
    cr_assert_str_eq(ember_outline_title(&outline, 0, &text), "<0.101.0> pricing");
    cr_assert_eq(outline.rows[3].node, EMBER_NONE);
    cr_assert_eq(outline.rows[3].pruned_stacks, 6);
    cr_assert_str_eq(ember_outline_title(&outline, 3, &text), "[other processes]");
    cr_assert_complete();
    ember_sink_fini(&text);
}

Test(outline, names_are_numbered_once)
{
    struct ember_names names;
    make_sample("small");
    profile.functions[4].text = profile.functions[0].text;
    outline_within(ember_outline_unlimited);
    cr_assert(ember_names_init(&names, &outline, EMBER_NAMING_TEXT));
    cr_assert_eq(names.count, 4);
    cr_assert_eq(names.id[4], names.id[0]);
    ember_names_fini(&names);
    cr_assert(ember_names_init(&names, &outline, EMBER_NAMING_MODULE));
    cr_assert_eq(names.count, 4);
    cr_assert_eq(names.id[0], names.id[2]);
    ember_names_fini(&names);
}

/* ---- Comparisons ----------------------------------------------------------- */

static uint64_t total_before(enum ember_metric metric)
{
    uint64_t sum = 0;
    for (uint32_t row = 0; row < outline.count; row++) {
        struct ember_slice slices[EMBER_MAX_SLICES];
        unsigned count = ember_outline_slices_of(&outline, row, metric, EMBER_BEFORE, slices);
        for (unsigned i = 0; i < count; i++)
            sum += slices[i].value;
    }
    return sum;
}

Test(outline, a_profile_has_nothing_before)
{
    make_sample("small");
    outline_within(ember_outline_unlimited);
    cr_assert_eq(total_before(EMBER_METRIC_CALLS), 0);
    uint64_t *inclusive = ember_outline_inclusive_of(&outline, EMBER_METRIC_OWN_TIME, EMBER_BEFORE);
    cr_assert_eq(inclusive[0], 0);
    free(inclusive);
}

Test(outline, both_sides_of_a_comparison)
{
    make_sample("comparison");
    outline_within(ember_outline_unlimited);
    cr_assert_complete();
    uint64_t *inclusive = ember_outline_inclusive_of(&outline, EMBER_METRIC_CALLS, EMBER_BEFORE);
    cr_assert_eq(inclusive[0] + inclusive[outline.count - 3], total_before(EMBER_METRIC_CALLS));
    cr_assert_eq(total_before(EMBER_METRIC_CALLS), 1 + 50 + 4 + 9 + 30 + 300 + 2);
    cr_assert_eq(total_before(EMBER_METRIC_WORDS), 100 + 4000 + 7000 + 20000 + 600);
    free(inclusive);
}

Test(outline, changes_are_what_either_side_has)
{
    struct ember_change changes[EMBER_MAX_SLICES];
    make_sample("comparison");
    outline_within(ember_outline_unlimited);
    cr_assert_eq(ember_outline_changes(&outline, 0, EMBER_METRIC_OWN_TIME, changes), 0);
    cr_assert_eq(ember_outline_changes(&outline, 4, EMBER_METRIC_OWN_TIME, changes), 3);
    cr_assert_null(changes[0].frame);
    cr_assert_eq(changes[0].before, 1000000);
    cr_assert_eq(changes[0].after, 5000000);
    cr_assert_str_eq(changes[1].frame, "[waiting]");
    cr_assert_eq(changes[1].before, 3000000);
    cr_assert_eq(changes[1].after, 12000000);
    cr_assert_str_eq(changes[2].frame, "[preempted]");
    cr_assert_eq(changes[2].before, 0);
    cr_assert_eq(changes[2].after, 3000000);
}

/* What is waiting stays that, as in a merge of profiles of which one could not tell. */
Test(outline, where_waiting_is_not_told_apart_the_rest_is_off_cpu)
{
    struct ember_change changes[EMBER_MAX_SLICES];
    make_sample("comparison");
    before.info.fallbacks = EMBER_FALLBACK_WAITING;
    outline_within(ember_outline_unlimited);
    cr_assert_eq(ember_outline_changes(&outline, 4, EMBER_METRIC_OWN_TIME, changes), 3);
    cr_assert_str_eq(changes[1].frame, "[waiting]");
    cr_assert_str_eq(changes[2].frame, "[off-cpu]");
    cr_assert_eq(changes[2].after, 3000000);
}

/* As a file may claim. */
Test(outline, waiting_is_no_more_than_off_cpu_time)
{
    struct ember_slice slices[EMBER_MAX_SLICES];
    make_sample("small");
    nodes[4].own.waiting_ns = UINT64_MAX;
    outline_within(ember_outline_unlimited);
    cr_assert_eq(ember_outline_slices(&outline, 4, EMBER_METRIC_OWN_TIME, slices), 2);
    cr_assert_str_eq(slices[1].frame, "[waiting]");
    cr_assert_eq(slices[1].value, 15000000);
}

/* A stack that vanished is as large as it was. */
Test(outline, large_stacks_of_either_side_are_kept)
{
    struct ember_outline_limits limits = ember_outline_unlimited;
    limits.metrics = 1u << EMBER_METRIC_OWN_TIME;
    limits.stacks = 8;
    make_sample("comparison");
    uint64_t time = 0;
    for (uint32_t i = 0; i < profile.node_count; i++)
        time += metrics_before[i].own_ns + metrics_before[i].off_cpu_ns + metrics_before[i].gc_ns;
    outline_within(limits);
    bool kept = false;
    for (uint32_t row = 0; row < outline.count; row++)
        kept = kept || outline.rows[row].node == profile.node_count - 1;
    cr_assert(kept);
    cr_assert_eq(outline.left_out, 2);
    cr_assert_complete();
    cr_assert_eq(total_before(EMBER_METRIC_OWN_TIME), time);
}

Test(outline, heading_and_caveats_tell_of_both_sides)
{
    struct ember_sink text = {0};
    make_sample("comparison");
    outline_within(ember_outline_unlimited);
    const char *heading = ember_view_heading(&profile, &text);
    cr_assert(strstr(heading, "2026-01-02 03:04:05 UTC"), "%s", heading);
    cr_assert(strstr(heading, "; before: shop:checkout/1, 2026-01-01 03:04:05 UTC"), "%s", heading);
    cr_assert(strstr(heading, ", times 2 for as many calls"), "%s", heading);
    before.info.fallbacks = EMBER_FALLBACK_HEAP;
    profile.info.fallbacks = EMBER_FALLBACK_BINARIES | EMBER_FALLBACK_WAITING;
    const char *caveats = ember_view_caveats(&profile, &outline, &text);
    cr_assert_str_eq(caveats,
                     "3 events lost before; binaries are not counted; waiting and preempted "
                     "are not told apart; words before are estimated");
    ember_sink_fini(&text);
}

Test(outline, lack_of_memory_is_reported)
{
    bool made = false;
    make_sample("small");
    for (uint64_t allocations = 0; !made; allocations++) {
        allocations_left = allocations;
        made = ember_outline_init(&outline, &profile, &ember_outline_unlimited);
        allocations_left = UINT64_MAX;
        if (!made)
            ember_outline_fini(&outline);
        cr_assert_lt(allocations, 10);
    }
}
