/* SPDX-License-Identifier: Apache-2.0 */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup */
#include "failing_malloc.h"
#include "function_sums.h"
#include "sample_profiles.h"

#include <criterion/criterion.h>

static struct ember_function_sum *sums;

static void tear_down(void)
{
    free(sums);
    sample_free();
}

TestSuite(function_sums, .fini = tear_down);

static void sum_sample(const char *name, const bool *wanted, enum ember_side side)
{
    cr_assert(sample_make(name));
    sums = ember_function_sums(&profile, wanted, side);
    cr_assert(sums);
}

static const struct ember_function_sum *sum_of(const char *text)
{
    for (uint32_t i = 0; i < profile.function_count; i++)
        if (strcmp(functions[i].text, text) == 0)
            return &sums[i];
    cr_assert_fail("no %s", text);
    return NULL;
}

static uint64_t time_of(const struct ember_metrics *metrics)
{
    return metrics->own_ns + metrics->off_cpu_ns + metrics->gc_ns;
}

Test(function_sums, own_is_without_callees_total_with_them)
{
    sum_sample("small", NULL, EMBER_AFTER);
    const struct ember_function_sum *checkout = sum_of("shop:checkout/1");
    cr_assert_eq(checkout->own.own_ns, 10000000);
    cr_assert_eq(time_of(&checkout->total), 101000000);
    cr_assert_eq(checkout->total.words, 100 + 4000 + 900 - 300);
    const struct ember_function_sum *map = sum_of("lists:map/2");
    cr_assert_eq(map->own.calls, 50 + 9 + 300);
    cr_assert_eq(time_of(&map->total), 30000000 + 40000000 + 1000000 + 39000000);
}

Test(function_sums, of_the_processes_wanted)
{
    const bool wanted[] = {false, true};
    sum_sample("small", wanted, EMBER_AFTER);
    cr_assert_eq(sum_of("lists:map/2")->own.calls, 300);
    cr_assert_eq(time_of(&sum_of("Jason.encode!/2")->total), 99000000);
    cr_assert(ember_metrics_are_zero(&sum_of("shop:checkout/1")->total));
}

/* Every function of every stack, looked up the long way. */
static void sum_naively(const char *name)
{
    uint64_t *totals = NULL;
    sum_sample(name, NULL, EMBER_AFTER);
    totals = calloc(profile.function_count + 1, sizeof *totals);
    for (uint32_t function = 0; function < profile.function_count; function++)
        for (uint32_t i = 0; i < profile.node_count; i++)
            for (uint32_t at = i; nodes[at].parent != EMBER_NONE; at = nodes[at].parent)
                if (nodes[at].function == function) {
                    totals[function] += time_of(&nodes[i].own);
                    break;
                }
    for (uint32_t function = 0; function < profile.function_count; function++)
        cr_assert_eq(time_of(&sums[function].total), totals[function], "%s",
                     functions[function].text);
    free(totals);
}

Test(function_sums, recursion_counts_once)
{
    sum_naively("recursive");
}

Test(function_sums, many_stacks)
{
    sum_naively("medium");
}

Test(function_sums, side_before)
{
    sum_sample("comparison", NULL, EMBER_BEFORE);
    cr_assert_eq(sum_of("shop:total/2")->own.own_ns, 30000000);
    cr_assert(ember_metrics_are_zero(&sum_of("shop:price/1")->total));
    cr_assert_eq(time_of(&sum_of("Jason.encode!/2")->total), 92000000 + 39000000);
}

Test(function_sums, a_profile_has_nothing_before)
{
    sum_sample("small", NULL, EMBER_BEFORE);
    cr_assert(ember_metrics_are_zero(&sum_of("lists:map/2")->total));
}

Test(function_sums, empty_profile)
{
    sum_sample("empty", NULL, EMBER_AFTER);
}

Test(function_sums, lack_of_memory_is_reported)
{
    cr_assert(sample_make("small"));
    for (uint64_t allocations = 0; !sums; allocations++) {
        allocations_left = allocations;
        sums = ember_function_sums(&profile, NULL, EMBER_AFTER);
        allocations_left = UINT64_MAX;
        cr_assert_lt(allocations, 20);
    }
}
