/* SPDX-License-Identifier: Apache-2.0 */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup */
#include "failing_malloc.h"
#include "made_profiles.h"
#include "random.h"

static struct ember_profile *filtered(const struct ember_profile *profile,
                                      const struct ember_filter *filter)
{
    struct ember_profile *kept = ember_profile_filter(profile, filter);
    cr_assert(kept);
    cr_assert(ember_profile_check(kept));
    return kept;
}

Test(profile_filter, no_filter_keeps_all)
{
    struct ember_profile *profile = small_profile(3);
    struct ember_profile *kept = filtered(profile, &(struct ember_filter){0});
    cr_assert_eq(kept->node_count, profile->node_count);
    cr_assert_eq(kept->function_count, profile->function_count);
    cr_assert_eq(kept->processes[1].parent, 0);
    cr_assert_str_eq(kept->info.target, "m0:f0/0");
    cr_assert_eq(kept->info.calls, 1);
    cr_assert_metrics(ember_profile_total(kept, EMBER_NONE), 9);
    destroy_all((struct ember_profile *[]){profile, kept}, 2);
}

Test(profile_filter, of_one_process)
{
    struct ember_profile *profile = small_profile(3);
    const bool second[] = {false, true};
    struct ember_profile *kept = filtered(profile, &(struct ember_filter){.processes = second});
    cr_assert_eq(kept->process_count, 1);
    cr_assert_str_eq(kept->processes[0].pid_text, "pid2");
    cr_assert_eq(kept->processes[0].parent, EMBER_NONE);
    cr_assert_eq(kept->node_count, 2);
    cr_assert_metrics(ember_profile_total(kept, EMBER_NONE), 3);
    destroy_all((struct ember_profile *[]){profile, kept}, 2);
}

/* m1:f0/0 stands below m0:f0/0 in one process, alone in the other. */
Test(profile_filter, time_of_other_modules_is_their_callers)
{
    struct ember_profile *profile = small_profile(3);
    const char *outer[] = {"m0"};
    struct ember_profile *kept = filtered(profile, &(struct ember_filter){NULL, outer, 1});
    cr_assert_eq(kept->node_count, 3);
    cr_assert_eq(kept->function_count, 1);
    cr_assert_eq(kept->nodes[2].own.calls, 3);
    cr_assert_eq(kept->nodes[2].own.own_ns, 12);
    uint32_t root = kept->processes[1].root;
    cr_assert_eq(kept->nodes[root].own.calls, 0);
    cr_assert_eq(kept->nodes[root].own.own_ns, 6);
    cr_assert_eq(ember_profile_total(kept, EMBER_NONE).words, -9);
    destroy_all((struct ember_profile *[]){profile, kept}, 2);
}

Test(profile_filter, of_no_module)
{
    struct ember_profile *profile = small_profile(3);
    const char *none[] = {"other"};
    struct ember_profile *kept = filtered(profile, &(struct ember_filter){NULL, none, 1});
    cr_assert_eq(kept->node_count, 2);
    cr_assert_eq(kept->function_count, 0);
    cr_assert_eq(ember_profile_total(kept, EMBER_NONE).own_ns, 18);
    destroy_all((struct ember_profile *[]){profile, kept}, 2);
}

static struct ember_profile *random_profile(struct random *random)
{
    struct ember_profile *profile = start_profile();
    for (uint32_t i = 0; i < 8; i++)
        add_function(profile, i);
    uint32_t processes = 1 + random_below(random, 5);
    for (uint32_t process = 0; process < processes; process++) {
        uint32_t first = add_process(profile, process, NULL, process ? process - 1 : EMBER_NONE);
        uint32_t nodes = random_below(random, 30);
        for (uint32_t i = 0; i < nodes; i++)
            add_node(profile, first + random_below(random, profile->node_count - first),
                     random_below(random, 8), random_below(random, 100));
    }
    return profile;
}

/* What is kept and what is left out are all there is. */
Test(profile_filter, parts_add_up)
{
    struct random random = {7};
    for (int round = 0; round < 200; round++) {
        struct ember_profile *profile = random_profile(&random);
        bool some[MOST_PROCESSES];
        bool others[MOST_PROCESSES];
        for (uint32_t i = 0; i < profile->process_count; i++)
            others[i] = !(some[i] = random_below(&random, 2));
        const char *modules[] = {"m1"};
        struct ember_profile *a = filtered(profile, &(struct ember_filter){some, modules, 1});
        struct ember_profile *b = filtered(profile, &(struct ember_filter){others, modules, 1});
        struct ember_metrics sum = ember_profile_total(a, EMBER_NONE);
        struct ember_metrics rest = ember_profile_total(b, EMBER_NONE);
        struct ember_metrics all = ember_profile_total(profile, EMBER_NONE);
        ember_metrics_add(&sum, &rest);
        cr_assert_eq(sum.own_ns, all.own_ns);
        cr_assert_eq(sum.words, all.words);
        cr_assert_eq(a->process_count + b->process_count, profile->process_count);
        destroy_all((struct ember_profile *[]){profile, a, b}, 3);
    }
}

Test(profile_filter, out_of_memory_leaves_nothing_behind)
{
    struct ember_profile *profile = small_profile(3);
    struct ember_profile *kept = NULL;
    uint64_t succeed = 0;
    for (; !kept; succeed++) {
        allocations_left = succeed;
        kept = ember_profile_filter(profile, &(struct ember_filter){0});
    }
    allocations_left = UINT64_MAX;
    cr_assert_gt(succeed, 15);
    cr_assert(ember_profile_check(kept));
    destroy_all((struct ember_profile *[]){profile, kept}, 2);
}
