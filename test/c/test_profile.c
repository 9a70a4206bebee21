/* SPDX-License-Identifier: Apache-2.0 */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup */
#include "failing_malloc.h"
#include "made_profiles.h"
#include "random.h"

/* ---- Totals and checks --------------------------------------------------- */

Test(profile, total_sums_a_process_or_all)
{
    struct ember_profile *profile = small_profile(10);
    cr_assert_metrics(ember_profile_total(profile, EMBER_NONE), 30);
    cr_assert_metrics(ember_profile_total(profile, 0), 20);
    cr_assert_metrics(ember_profile_total(profile, 1), 10);
    ember_profile_destroy(profile);
}

Test(profile, empty_profile_is_sound)
{
    struct ember_profile *profile = ember_profile_create();
    cr_assert(ember_profile_check(profile));
    cr_assert_metrics(ember_profile_total(profile, EMBER_NONE), 0);
    ember_profile_destroy(profile);
    ember_profile_destroy(NULL);
}

/* Sets a field of a sound profile wrong, sees that, puts it right. */
#define CR_ASSERT_UNSOUND(profile, field, wrong) \
    do { \
        __typeof__((profile)->field) right = (profile)->field; \
        (profile)->field = (wrong); \
        cr_assert_not(ember_profile_check(profile)); \
        (profile)->field = right; \
        cr_assert(ember_profile_check(profile)); \
    } while (0)

Test(profile, wrong_indices_are_found)
{
    struct ember_profile *profile = small_profile(1);
    CR_ASSERT_UNSOUND(profile, nodes[2].parent, 2);
    CR_ASSERT_UNSOUND(profile, nodes[1].parent, 2);
    CR_ASSERT_UNSOUND(profile, nodes[4].parent, 99);
    CR_ASSERT_UNSOUND(profile, nodes[4].parent, 1); /* another process's */
    CR_ASSERT_UNSOUND(profile, nodes[1].parent, EMBER_NONE);
    CR_ASSERT_UNSOUND(profile, nodes[1].function, 2);
    CR_ASSERT_UNSOUND(profile, nodes[1].function, EMBER_NONE);
    CR_ASSERT_UNSOUND(profile, nodes[0].function, 0);
    CR_ASSERT_UNSOUND(profile, nodes[2].process, 1);
    CR_ASSERT_UNSOUND(profile, nodes[2].process, 2);
    CR_ASSERT_UNSOUND(profile, processes[1].root, 0);
    CR_ASSERT_UNSOUND(profile, processes[1].root, 5);
    CR_ASSERT_UNSOUND(profile, processes[1].parent, 2);
    CR_ASSERT_UNSOUND(profile, processes[1].pid_text, NULL);
    ember_profile_destroy(profile);
}

/* ---- Merging ------------------------------------------------------------- */

Test(profile, merging_one_changes_nothing)
{
    struct ember_profile *one = small_profile(5);
    struct ember_profile *same = merged(&one, 1);
    cr_assert_eq(same->node_count, one->node_count);
    cr_assert_eq(same->function_count, one->function_count);
    cr_assert_eq(same->processes[1].parent, 0);
    cr_assert_str_eq(same->processes[0].name, "main");
    cr_assert_null(same->processes[1].name);
    cr_assert_str_eq(same->functions[1].text, "text1");
    cr_assert_metrics(ember_profile_total(same, 0), 10);
    ember_profile_destroy(same);
    ember_profile_destroy(one);
}

Test(profile, merging_none_is_empty)
{
    struct ember_profile *none = merged(NULL, 0);
    cr_assert_eq(none->node_count, 0);
    cr_assert_eq(none->info.calls, 0);
    ember_profile_destroy(none);
}

Test(profile, equal_stacks_are_summed)
{
    struct ember_profile *parts[] = {small_profile(1), small_profile(10), small_profile(100)};
    struct ember_profile *sum = merged(parts, 3);
    cr_assert_eq(sum->node_count, parts[0]->node_count);
    for (uint32_t i = 0; i < sum->node_count; i++)
        cr_assert_metrics(sum->nodes[i].own, sum->nodes[i].parent == EMBER_NONE ? 0 : 111);
    ember_profile_destroy(sum);
    destroy_all(parts, 3);
}

Test(profile, equal_functions_may_have_other_numbers)
{
    struct ember_profile *parts[] = {small_profile(1), start_profile()};
    uint32_t inner = add_function(parts[1], 1);
    uint32_t outer = add_function(parts[1], 0);
    uint32_t root = add_process(parts[1], 1, "main", EMBER_NONE);
    add_node(parts[1], add_node(parts[1], root, outer, 7), inner, 7);
    struct ember_profile *sum = merged(parts, 2);
    cr_assert_eq(sum->function_count, 2);
    cr_assert_eq(sum->node_count, parts[0]->node_count);
    cr_assert_metrics(ember_profile_total(sum, 0), 2 * 8);
    ember_profile_destroy(sum);
    destroy_all(parts, 2);
}

Test(profile, functions_differ_by_module_name_and_arity)
{
    struct ember_profile *parts[] = {start_profile(), start_profile()};
    for (uint32_t i = 0; i < MOST_FUNCTIONS; i++)
        add_function(parts[i % 2], i);
    struct ember_profile *sum = merged(parts, 2);
    cr_assert_eq(sum->function_count, MOST_FUNCTIONS);
    ember_profile_destroy(sum);
    destroy_all(parts, 2);
}

/* A pid that was used again; so it is in both parts. */
Test(profile, processes_of_one_pid_in_one_profile_stay_apart)
{
    struct ember_profile *parts[] = {start_profile(), start_profile()};
    for (int i = 0; i < 2; i++) {
        add_process(parts[i], 1, NULL, EMBER_NONE);
        add_process(parts[i], 2, NULL, 0);
        add_process(parts[i], 2, NULL, 0);
    }
    struct ember_profile *same = merged(parts, 1);
    struct ember_profile *sum = merged(parts, 2);
    cr_assert_eq(same->process_count, 3);
    cr_assert_eq(sum->process_count, 3);
    ember_profile_destroy(same);
    ember_profile_destroy(sum);
    destroy_all(parts, 2);
}

Test(profile, processes_differ_by_pid_and_name)
{
    struct ember_profile *parts[] = {start_profile(), start_profile()};
    add_process(parts[0], 1, NULL, EMBER_NONE);
    add_process(parts[0], 2, NULL, 0);
    add_process(parts[1], 2, NULL, EMBER_NONE);
    add_process(parts[1], 2, "named", 0);
    parts[1]->processes[0].pid = 0; /* as in a profile that was loaded */
    parts[1]->processes[0].exited = true;
    struct ember_profile *sum = merged(parts, 2);
    cr_assert_eq(sum->process_count, 3);
    cr_assert_eq(sum->processes[1].parent, 0);
    cr_assert_eq(sum->processes[1].pid, 2);
    cr_assert(sum->processes[1].exited);
    cr_assert_not(sum->processes[0].exited);
    cr_assert_str_eq(sum->processes[2].name, "named");
    cr_assert_eq(sum->processes[2].parent, 1);
    ember_profile_destroy(sum);
    destroy_all(parts, 2);
}

Test(profile, processes_of_one_pid_differ_by_name)
{
    struct ember_profile *parts[] = {start_profile(), start_profile()};
    for (uint32_t i = 0; i < 2 * MOST_PROCESSES; i++) {
        char *name = numbered("name", i);
        add_process(parts[i % 2], 1, name, EMBER_NONE);
        free(name);
    }
    struct ember_profile *sum = merged(parts, 2);
    cr_assert_eq(sum->process_count, 2 * MOST_PROCESSES);
    ember_profile_destroy(sum);
    destroy_all(parts, 2);
}

Test(profile, parts_are_told_together)
{
    struct ember_profile *parts[] = {small_profile(1), small_profile(1), small_profile(1)};
    for (uint32_t i = 0; i < 3; i++)
        parts[i]->info =
            (struct ember_info){.target = parts[i]->info.target,
                                .otp_release = parts[i]->info.otp_release,
                                .start_us = 30 - 10 * (int64_t)i,
                                .duration_ns = i + 1,
                                .events = 10 * i + 1,
                                .lost = 20 * i + 1,
                                .compensated_ns = 30 * i + 1,
                                .raw_ns = 40 * i + 1,
                                .depth_cut = 50 * i + 1,
                                .calls = i + 1,
                                .fallbacks = 1u << i,
                                .outcome = i == 1 ? EMBER_OUTCOME_RAISED : EMBER_OUTCOME_RETURNED};
    struct ember_profile *sum = merged(parts, 3);
    cr_assert_str_eq(sum->info.target, "m0:f0/0");
    cr_assert_str_eq(sum->info.otp_release, "27");
    cr_assert_eq(sum->info.start_us, 10);
    cr_assert_eq(sum->info.duration_ns, 6);
    cr_assert_eq(sum->info.events, 33);
    cr_assert_eq(sum->info.lost, 63);
    cr_assert_eq(sum->info.compensated_ns, 93);
    cr_assert_eq(sum->info.raw_ns, 123);
    cr_assert_eq(sum->info.depth_cut, 153);
    cr_assert_eq(sum->info.calls, 6);
    cr_assert_eq(sum->info.fallbacks, 7);
    cr_assert_eq(sum->info.outcome, EMBER_OUTCOME_RAISED);
    ember_profile_destroy(sum);
    destroy_all(parts, 3);
}

/* Random trees over few functions, so that many stacks are equal. */
static struct ember_profile *random_profile(struct random *random)
{
    struct ember_profile *profile = start_profile();
    uint32_t first = random_below(random, 10);
    for (uint32_t i = 0; i < 10; i++)
        add_function(profile, (first + i) % 10);
    for (uint32_t i = 0; i < 5; i++) {
        uint32_t root = add_process(profile, random_below(random, 3) * 5 + i, NULL, EMBER_NONE);
        for (uint32_t n = 0; n < 100; n++)
            add_node(profile, root + random_below(random, n + 1), random_below(random, 10),
                     random_below(random, 1000));
    }
    cr_assert(ember_profile_check(profile));
    return profile;
}

static void cr_assert_no_stack_twice(const struct ember_profile *profile)
{
    for (uint32_t i = 0; i < profile->node_count; i++)
        for (uint32_t j = 0; j < i; j++)
            cr_assert(profile->nodes[i].parent != profile->nodes[j].parent ||
                      profile->nodes[i].function != profile->nodes[j].function ||
                      profile->nodes[i].parent == EMBER_NONE);
}

Test(profile, merging_keeps_all_sums)
{
    struct random random = {1};
    struct ember_profile *parts[8];
    uint64_t weight = 0;
    for (int i = 0; i < 8; i++) {
        parts[i] = random_profile(&random);
        weight += ember_profile_total(parts[i], EMBER_NONE).calls;
    }
    struct ember_profile *sum = merged(parts, 8);
    cr_assert_metrics(ember_profile_total(sum, EMBER_NONE), weight);
    cr_assert_eq(sum->function_count, 10);
    cr_assert_leq(sum->process_count, 15);
    cr_assert_no_stack_twice(sum);
    ember_profile_destroy(sum);
    destroy_all(parts, 8);
}

Test(profile, order_of_merging_makes_no_difference)
{
    struct random random = {2};
    struct ember_profile *parts[] = {random_profile(&random), random_profile(&random),
                                     random_profile(&random)};
    struct ember_profile *at_once = merged(parts, 3);
    struct ember_profile *two = merged(parts, 2);
    struct ember_profile *in_steps = merged((struct ember_profile *[]){parts[2], two}, 2);
    cr_assert_eq(at_once->node_count, in_steps->node_count);
    cr_assert_eq(at_once->process_count, in_steps->process_count);
    cr_assert_eq(ember_profile_total(at_once, EMBER_NONE).own_ns,
                 ember_profile_total(in_steps, EMBER_NONE).own_ns);
    destroy_all((struct ember_profile *[]){at_once, two, in_steps}, 3);
    destroy_all(parts, 3);
}

/* Each allocation fails in turn, until none does. */
Test(profile, out_of_memory_leaves_nothing_behind)
{
    struct ember_profile *parts[] = {small_profile(1), small_profile(2)};
    struct ember_profile *sum = NULL;
    uint64_t succeed = 0;
    for (; !sum; succeed++) {
        allocations_left = succeed;
        sum = ember_profile_merge((const struct ember_profile *const *)parts, 2);
    }
    allocations_left = UINT64_MAX;
    cr_assert_gt(succeed, 15);
    cr_assert(ember_profile_check(sum));
    ember_profile_destroy(sum);
    destroy_all(parts, 2);
}
