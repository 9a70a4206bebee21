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

#define LIMIT(field, most)                                                                         \
    Test(outline, totals_survive_a_limit_on_##field)                                               \
    {                                                                                              \
        struct ember_outline_limits limits = ember_outline_unlimited;                              \
        limits.field = (most);                                                                     \
        make_sample("large");                                                                      \
        outline_within(limits);                                                                    \
        cr_assert_gt(outline.left_out, 0);                                                         \
        cr_assert_complete();                                                                      \
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
