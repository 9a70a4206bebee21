/* SPDX-License-Identifier: Apache-2.0 */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup */
#include "failing_malloc.h"
#include "made_profiles.h"
#include "profile_read.h"
#include "profile_write.h"
#include "random.h"

#include <math.h>

enum { NS = 1000000 };

static const double once[MOST_PROCESSES] = {[0 ... MOST_PROCESSES - 1] = 1};

static struct ember_sampled one_window(uint64_t span_ns)
{
    return (struct ember_sampled){1, NS, span_ns, 500, 2, 10000, 3, 4};
}

/* Takes over both. */
static struct ember_profile *added(struct ember_profile *sum, struct ember_profile *window,
                                   const double *weights, uint64_t span_ns, uint32_t most)
{
    struct ember_sampled sampled = one_window(span_ns);
    struct ember_profile *next = ember_profile_add_window(sum, window, weights, &sampled, most);
    cr_assert(next);
    cr_assert(ember_profile_check(next));
    ember_profile_destroy(sum);
    ember_profile_destroy(window);
    return next;
}

/* Takes it over. */
static struct ember_profile *settled(struct ember_profile *sum)
{
    struct ember_profile *profile = ember_profile_settle(sum);
    cr_assert(profile);
    cr_assert(ember_profile_check(profile));
    cr_assert_null(profile->squares);
    ember_profile_destroy(sum);
    return profile;
}

Test(profile_window, numbers_are_weighed_by_process)
{
    const double weights[] = {10, 2.5};
    struct ember_profile *sum = added(NULL, small_profile(4), weights, 10 * NS, 0);
    cr_assert_metrics(ember_profile_total(sum, 0), 80);
    cr_assert_metrics(ember_profile_total(sum, 1), 10);
    sum = added(sum, small_profile(4), once, NS, 0);
    cr_assert_metrics(ember_profile_total(sum, 0), 88);
    cr_assert_metrics(ember_profile_total(sum, 1), 14);
    cr_assert_eq(sum->process_count, 2);
    ember_profile_destroy(sum);
}

Test(profile_window, it_tells_how_it_was_sampled)
{
    struct ember_profile *window = small_profile(1);
    window->info.raw_ns = 100;
    window->info.events = 7;
    window->info.lost = 3;
    struct ember_profile *sum = added(NULL, window, once, 10 * NS, 0);
    sum = settled(added(sum, small_profile(1), once, 5 * NS, 0));
    const struct ember_sampled *sampled = &sum->info.sampled;
    cr_assert_eq(sampled->windows, 2);
    cr_assert_eq(sampled->window_ns, 2 * NS);
    cr_assert_eq(sampled->span_ns, 15 * NS);
    cr_assert_eq(sampled->cost_ns, 1000);
    cr_assert_eq(sampled->schedulers, 2);
    cr_assert_eq(sampled->budget_ppm, 10000);
    cr_assert_eq(sampled->seen, 6);
    cr_assert_eq(sampled->present, 8);
    cr_assert_eq(sum->info.duration_ns, 15 * NS);
    cr_assert_eq(sum->info.raw_ns, 1000);
    cr_assert_eq(sum->info.events, 7);
    cr_assert_eq(sum->info.lost, 3);
    ember_profile_destroy(sum);
}

/* ---- Uncertainty --------------------------------------------------------- */

static uint64_t uncertainty_of(const uint64_t *weights, int windows)
{
    struct ember_profile *sum = NULL;
    for (int i = 0; i < windows; i++)
        sum = added(sum, small_profile(weights[i]), once, NS, 0);
    sum = settled(sum);
    uint64_t uncertainty = sum->nodes[sum->node_count - 1].own.uncertainty_ns;
    ember_profile_destroy(sum);
    return uncertainty;
}

Test(profile_window, what_is_always_the_same_is_certain)
{
    const uint64_t same[] = {5000, 5000, 5000, 5000};
    cr_assert_eq(uncertainty_of(same, 4), 0);
}

/* Own times are 2 * 1000 and 2 * 3000: their spread is 2828, of the sum of two 4000. */
Test(profile_window, what_varies_is_uncertain)
{
    const uint64_t varying[] = {1000, 3000};
    cr_assert_eq(uncertainty_of(varying, 2), 4000);
}

Test(profile_window, one_window_tells_nothing)
{
    const uint64_t single[] = {1000};
    cr_assert_eq(uncertainty_of(single, 1), 2000);
}

/* Estimates from random windows are as far off as they say. */
Test(profile_window, the_error_is_what_it_is_said_to_be)
{
    enum { ROUNDS = 400, WINDOWS = 30, RANGE = 1000 };
    struct random random = {3};
    int within = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct ember_profile *sum = NULL;
        for (int i = 0; i < WINDOWS; i++)
            sum = added(sum, small_profile(random_below(&random, RANGE)), once, NS, 0);
        sum = settled(sum);
        const struct ember_metrics *own = &sum->nodes[sum->node_count - 1].own;
        double mean = 2.0 * WINDOWS * (RANGE - 1) / 2;
        within += fabs((double)own->own_ns - mean) <= (double)own->uncertainty_ns;
        ember_profile_destroy(sum);
    }
    cr_assert_gt(within, ROUNDS * 60 / 100);
    cr_assert_lt(within, ROUNDS * 76 / 100);
}

Test(profile_window, errors_of_slices_add_up_as_such)
{
    struct ember_profile *slices[2];
    for (int slice = 0; slice < 2; slice++) {
        struct ember_profile *sum = added(NULL, small_profile(1000), once, NS, 0);
        slices[slice] = settled(added(sum, small_profile(3000), once, NS, 0));
    }
    struct ember_profile *both = merged(slices, 2);
    cr_assert_eq(both->nodes[both->node_count - 1].own.uncertainty_ns, 5657); /* 4000 * sqrt 2 */
    cr_assert_eq(both->info.sampled.windows, 4);
    ember_profile_destroy(both);
    destroy_all(slices, 2);
}

/* ---- Slowed down --------------------------------------------------------- */

/* What the first process did, all in its root; and what its child did. */
static struct ember_profile *slowed(struct ember_metrics did, struct ember_metrics child)
{
    struct ember_profile *profile = start_profile();
    uint32_t root = add_process(profile, 1, NULL, EMBER_NONE);
    profile->nodes[root].own = did;
    root = add_process(profile, 2, NULL, 0);
    profile->nodes[root].own = child;
    profile->info.duration_ns = NS;
    profile->info.outcome = EMBER_OUTCOME_RECORDED;
    return profile;
}

static const struct ember_metrics short_life = {.calls = 1, .own_ns = NS / 100};

static void cr_assert_stretched(struct ember_metrics did, uint64_t own, uint64_t childs_calls)
{
    struct ember_profile *sum = added(NULL, slowed(did, short_life), once, NS, 0);
    cr_assert_eq(ember_profile_total(sum, 0).own_ns, own);
    cr_assert_eq(ember_profile_total(sum, 1).calls, childs_calls);
    ember_profile_destroy(sum);
}

Test(profile_window, who_never_waits_has_done_less_by_the_cost_of_tracing)
{
    cr_assert_stretched((struct ember_metrics){.own_ns = NS / 5}, NS, 5);
    cr_assert_stretched((struct ember_metrics){.own_ns = NS / 10, .off_cpu_ns = NS / 10}, NS / 2,
                        5);
}

Test(profile_window, who_waits_has_waited_less)
{
    struct ember_metrics server = {.own_ns = NS / 5, .off_cpu_ns = NS / 2, .waiting_ns = NS / 2};
    cr_assert_stretched(server, NS / 5, 1);
}

/* Both schedulers were busy, most of the time with tracing. */
Test(profile_window, where_nobody_was_idle_all_have_done_less)
{
    struct ember_metrics server = {.own_ns = NS / 5, .off_cpu_ns = NS / 2, .waiting_ns = NS / 2};
    struct ember_profile *window = slowed(server, short_life);
    window->info.compensated_ns = 2 * NS - NS / 5 - NS / 100;
    struct ember_profile *sum = added(NULL, window, once, NS, 0);
    cr_assert_eq(ember_profile_total(sum, 0).own_ns, 1904762); /* 2 * 20 / 21 */
    cr_assert_eq(ember_profile_total(sum, 1).calls, 10);
    ember_profile_destroy(sum);
}

Test(profile_window, calls_take_their_time)
{
    struct ember_metrics did = {.own_ns = NS / 5};
    struct ember_profile *call = slowed(did, short_life);
    call->info.outcome = EMBER_OUTCOME_RETURNED;
    struct ember_profile *sum = added(NULL, call, once, NS, 0);
    cr_assert_eq(ember_profile_total(sum, 0).own_ns, NS / 5);
    ember_profile_destroy(sum);
}

Test(profile_window, nothing_is_made_less)
{
    cr_assert_stretched((struct ember_metrics){.own_ns = 2 * NS}, 2 * NS, 1);
    cr_assert_stretched((struct ember_metrics){.own_ns = 0}, 0, 100);
}

/* ---- Many processes ------------------------------------------------------ */

static struct ember_profile *many_processes(uint32_t first, uint32_t count, const char *label)
{
    struct ember_profile *profile = start_profile();
    uint32_t function = add_function(profile, 0);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t root = add_process(profile, first + i, NULL, EMBER_NONE);
        profile->processes[i].label = strdup(label);
        add_node(profile, root, function, 1);
    }
    return profile;
}

Test(profile_window, beyond_so_many_they_are_told_apart_by_what_they_do)
{
    struct ember_profile *sum = NULL;
    for (uint32_t i = 0; i < 20; i++)
        sum = added(sum, many_processes(i * 10, 10, i % 2 ? "a:b/1" : "c:d/2"), once, NS, 15);
    cr_assert_leq(sum->process_count, 17);
    cr_assert_eq(ember_profile_total(sum, EMBER_NONE).calls, 200);
    const struct ember_process *last = &sum->processes[sum->process_count - 1];
    cr_assert_str_eq(last->pid_text, "others");
    cr_assert(strcmp(last->name, "a:b/1") == 0 || strcmp(last->name, "c:d/2") == 0);
    ember_profile_destroy(sum);
}

/* ---- Files and memory ---------------------------------------------------- */

Test(profile_window, a_file_keeps_it)
{
    struct ember_profile *sum = settled(added(NULL, small_profile(7), once, 9 * NS, 0));
    struct ember_sink sink = {0};
    struct ember_read_error error;
    cr_assert_eq(ember_profile_write(sum, &sink), 0);
    struct ember_profile *read = ember_profile_read(sink.data, sink.size, &error);
    cr_assert(read, "%s", error.text);
    cr_assert_eq(memcmp(&read->info.sampled, &sum->info.sampled, sizeof sum->info.sampled), 0);
    cr_assert_eq((unsigned char)sink.data[10], 2, "minor version");
    free(sink.data);
    destroy_all((struct ember_profile *[]){sum, read}, 2);
}

Test(profile_window, out_of_memory_leaves_nothing_behind)
{
    struct ember_profile *parts[] = {small_profile(1), small_profile(2)};
    struct ember_sampled sampled = one_window(NS);
    struct ember_profile *sum = NULL;
    uint64_t succeed = 0;
    for (; !sum; succeed++) {
        allocations_left = succeed;
        sum = ember_profile_add_window(parts[0], parts[1], once, &sampled, 1);
    }
    allocations_left = UINT64_MAX;
    cr_assert_gt(succeed, 15);
    cr_assert(ember_profile_check(sum));
    ember_profile_destroy(sum);
    destroy_all(parts, 2);
}
