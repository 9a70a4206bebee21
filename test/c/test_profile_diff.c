/* SPDX-License-Identifier: Apache-2.0 */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup */
#include "failing_malloc.h"
#include "made_profiles.h"
#include "profile_write.h"

#include <errno.h>

static struct ember_profile *compared(struct ember_profile *before, struct ember_profile *after,
                                      enum ember_normalise normalise)
{
    struct ember_profile *diff = ember_profile_diff(before, after, normalise);
    cr_assert(diff);
    cr_assert(diff->before);
    cr_assert(ember_profile_check(diff));
    cr_assert_eq(diff->before->normalise, normalise);
    return diff;
}

static struct ember_metrics sum_before(const struct ember_profile *diff)
{
    struct ember_metrics sum = {0};
    for (uint32_t i = 0; i < diff->node_count; i++)
        ember_metrics_add(&sum, &diff->before->own[i]);
    return sum;
}

/* The node below `parent` with this function, by its text. */
static uint32_t child(const struct ember_profile *diff, uint32_t parent, const char *text)
{
    for (uint32_t i = 0; i < diff->node_count; i++)
        if (diff->nodes[i].parent == parent &&
            strcmp(diff->functions[diff->nodes[i].function].text, text) == 0)
            return i;
    cr_assert_fail("no %s below %u", text, parent);
    return EMBER_NONE;
}

Test(profile_diff, equal_profiles_have_equal_sides)
{
    struct ember_profile *parts[] = {small_profile(3), small_profile(3)};
    struct ember_profile *diff = compared(parts[0], parts[1], EMBER_NORMALISE_CALLS);
    cr_assert_eq(diff->node_count, parts[0]->node_count);
    cr_assert_eq(diff->before->scale, 1);
    for (uint32_t i = 0; i < diff->node_count; i++)
        cr_assert_eq(memcmp(&diff->nodes[i].own, &diff->before->own[i], sizeof diff->nodes[i].own),
                     0);
    ember_profile_destroy(diff);
    destroy_all(parts, 2);
}

Test(profile_diff, stacks_of_one_side_have_zeros_on_the_other)
{
    struct ember_profile *parts[] = {small_profile(3), small_profile(5)};
    uint32_t only_before = add_node(parts[0], 2, add_function(parts[0], 2), 7);
    uint32_t only_after = add_node(parts[1], 1, add_function(parts[1], 4), 9);
    struct ember_profile *diff = compared(parts[0], parts[1], EMBER_NORMALISE_NONE);
    uint32_t outer = child(diff, diff->processes[0].root, "text0");
    uint32_t vanished = child(diff, child(diff, outer, "text1"), "text2");
    uint32_t new = child(diff, outer, "text4");
    cr_assert_eq(diff->node_count, parts[0]->node_count + 1);
    cr_assert(ember_metrics_are_zero(&diff->nodes[vanished].own));
    cr_assert_metrics(diff->before->own[vanished], parts[0]->nodes[only_before].own.calls);
    cr_assert_metrics(diff->nodes[new].own, parts[1]->nodes[only_after].own.calls);
    cr_assert(ember_metrics_are_zero(&diff->before->own[new]));
    cr_assert_metrics(diff->nodes[outer].own, 5);
    cr_assert_metrics(diff->before->own[outer], 3);
    ember_profile_destroy(diff);
    destroy_all(parts, 2);
}

Test(profile_diff, sums_of_both_sides_are_kept)
{
    struct ember_profile *parts[] = {small_profile(3), small_profile(5)};
    struct ember_profile *diff = compared(parts[0], parts[1], EMBER_NORMALISE_NONE);
    cr_assert_metrics(ember_profile_total(diff, EMBER_NONE), 15);
    cr_assert_metrics(sum_before(diff), 9);
    ember_profile_destroy(diff);
    destroy_all(parts, 2);
}

/* Callers of a target are put together whatever they are called, spawned processes
 * by name or label; pids mean nothing. */
Test(profile_diff, processes_are_put_together_by_role)
{
    struct ember_profile *parts[] = {start_profile(), start_profile()};
    const char *const names[2][4] = {{"a", NULL, "worker", NULL}, {"b", NULL, "worker", NULL}};
    for (uint32_t side = 0; side < 2; side++) {
        uint32_t function = add_function(parts[side], 0);
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t root =
                add_process(parts[side], 10 * side + i, names[side][i], i < 1 ? EMBER_NONE : 0);
            add_node(parts[side], root, function, 10 * side + i + 1);
        }
        parts[side]->processes[1].label = strdup("job:run/0");
        parts[side]->processes[3].label = strdup("job:run/0");
    }
    struct ember_profile *diff = compared(parts[0], parts[1], EMBER_NORMALISE_NONE);
    cr_assert_eq(diff->process_count, 3);
    cr_assert_str_eq(diff->processes[0].pid_text, "caller");
    cr_assert_null(diff->processes[0].name);
    cr_assert_str_eq(diff->processes[1].pid_text, "spawned");
    cr_assert_str_eq(diff->processes[1].name, "job:run/0");
    cr_assert_str_eq(diff->processes[2].name, "worker");
    uint32_t job = child(diff, diff->processes[1].root, "text0");
    cr_assert_metrics(diff->before->own[job], 2 + 4);
    cr_assert_metrics(diff->nodes[job].own, 12 + 14);
    ember_profile_destroy(diff);
    destroy_all(parts, 2);
}

Test(profile_diff, by_calls_the_side_before_gets_as_many)
{
    struct ember_profile *parts[] = {small_profile(10), small_profile(10)};
    parts[0]->info.calls = 4;
    parts[1]->info.calls = 6;
    struct ember_profile *diff = compared(parts[0], parts[1], EMBER_NORMALISE_CALLS);
    cr_assert_eq(diff->before->scale, 1.5);
    cr_assert_metrics(sum_before(diff), 45);
    cr_assert_metrics(ember_profile_total(diff, EMBER_NONE), 30);
    cr_assert_eq(diff->info.calls, 6);
    cr_assert_eq(diff->before->info.calls, 4);
    ember_profile_destroy(diff);
    destroy_all(parts, 2);
}

Test(profile_diff, rounding_does_not_add_up_over_stacks)
{
    struct ember_profile *parts[] = {small_profile(2), small_profile(2)};
    uint32_t rare = add_function(parts[0], 7);
    for (uint32_t i = 0; i < 10; i++)
        add_node(parts[0], add_node(parts[0], 1, add_function(parts[0], 10 + i), 1), rare, 1);
    parts[0]->info.calls = 2;
    parts[1]->info.calls = 1;
    struct ember_profile *diff = compared(parts[0], parts[1], EMBER_NORMALISE_CALLS);
    struct ember_metrics sum = {0};
    for (uint32_t i = 0; i < diff->node_count; i++)
        if (diff->nodes[i].function != EMBER_NONE &&
            strcmp(diff->functions[diff->nodes[i].function].text, "text7") == 0)
            ember_metrics_add(&sum, &diff->before->own[i]);
    cr_assert_eq(diff->before->scale, 0.5);
    cr_assert_metrics(sum, 5);
    ember_profile_destroy(diff);
    destroy_all(parts, 2);
}

Test(profile_diff, by_time_the_side_before_gets_as_much)
{
    struct ember_profile *parts[] = {small_profile(40), small_profile(10)};
    struct ember_profile *diff = compared(parts[0], parts[1], EMBER_NORMALISE_TIME);
    cr_assert_eq(diff->before->scale, 0.25);
    cr_assert_metrics(sum_before(diff), 30);
    ember_profile_destroy(diff);
    destroy_all(parts, 2);
}

Test(profile_diff, nothing_measured_is_not_scaled)
{
    struct ember_profile *parts[] = {small_profile(0), small_profile(10)};
    parts[0]->info.calls = 0;
    for (int normalise = 0; normalise < 3; normalise++) {
        struct ember_profile *diff = compared(parts[0], parts[1], (enum ember_normalise)normalise);
        cr_assert_eq(diff->before->scale, 1);
        cr_assert(ember_metrics_are_zero(&(struct ember_metrics){0}));
        ember_profile_destroy(diff);
    }
    destroy_all(parts, 2);
}

Test(profile_diff, no_scale_overflows)
{
    struct ember_profile *parts[] = {small_profile(UINT64_C(1) << 50), small_profile(1)};
    parts[1]->info.calls = UINT32_MAX;
    struct ember_profile *diff = compared(parts[0], parts[1], EMBER_NORMALISE_CALLS);
    struct ember_metrics sum = sum_before(diff);
    cr_assert_lt(diff->before->scale, UINT32_MAX);
    cr_assert_gt(diff->before->scale, 1);
    cr_assert_leq(sum.calls + sum.own_ns + sum.off_cpu_ns + sum.gc_ns, (UINT64_C(1) << 60) + 100);
    cr_assert_lt(sum.words, 0);
    ember_profile_destroy(diff);
    destroy_all(parts, 2);
}

Test(profile_diff, both_infos_are_kept)
{
    struct ember_profile *parts[] = {small_profile(1), small_profile(1)};
    parts[0]->info.lost = 7;
    parts[0]->info.target[1] = '9';
    parts[1]->info.duration_ns = 11;
    struct ember_profile *diff = compared(parts[0], parts[1], EMBER_NORMALISE_CALLS);
    cr_assert_eq(diff->before->info.lost, 7);
    cr_assert_str_eq(diff->before->info.target, "m9:f0/0");
    cr_assert_str_eq(diff->before->info.otp_release, "27");
    cr_assert_eq(diff->info.lost, 0);
    cr_assert_str_eq(diff->info.target, "m0:f0/0");
    cr_assert_eq(diff->info.duration_ns, 11);
    destroy_all(parts, 2);
    cr_assert_str_eq(diff->before->info.target, "m9:f0/0");
    ember_profile_destroy(diff);
}

Test(profile_diff, empty_profiles)
{
    struct ember_profile *parts[] = {start_profile(), small_profile(2)};
    struct ember_profile *diff = compared(parts[0], parts[1], EMBER_NORMALISE_CALLS);
    cr_assert_metrics(ember_profile_total(diff, EMBER_NONE), 6);
    ember_profile_destroy(diff);
    diff = compared(parts[1], parts[0], EMBER_NORMALISE_CALLS);
    cr_assert_metrics(sum_before(diff), 6);
    ember_profile_destroy(diff);
    destroy_all(parts, 2);
}

Test(profile_diff, files_do_not_hold_it)
{
    struct ember_profile *parts[] = {small_profile(1), small_profile(1)};
    struct ember_profile *diff = compared(parts[0], parts[1], EMBER_NORMALISE_CALLS);
    struct ember_sink sink = {0};
    cr_assert_eq(ember_profile_write(diff, &sink), -EINVAL);
    cr_assert_eq(sink.size, 0);
    ember_profile_destroy(diff);
    destroy_all(parts, 2);
}

/* Each allocation fails in turn, until none does. */
Test(profile_diff, out_of_memory_leaves_nothing_behind)
{
    struct ember_profile *parts[] = {small_profile(1), small_profile(2)};
    struct ember_profile *diff = NULL;
    uint64_t succeed = 0;
    for (; !diff; succeed++) {
        allocations_left = succeed;
        diff = ember_profile_diff(parts[0], parts[1], EMBER_NORMALISE_CALLS);
    }
    allocations_left = UINT64_MAX;
    cr_assert_gt(succeed, 15);
    cr_assert(ember_profile_check(diff));
    ember_profile_destroy(diff);
    destroy_all(parts, 2);
}
