/* SPDX-License-Identifier: Apache-2.0 */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup */
#include "failing_malloc.h"
#include "profile_build.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>

enum { MODULE = 10, PID = 500, CHILD = 501 };

static struct ember_function_table functions;
static struct ember_run *run;
static struct ember_build build;

static char *number_text(const char *format, uint64_t number)
{
    char *text = malloc(40);
    if (text)
        snprintf(text, 40, format, number);
    return text;
}

static char *atom_name(uint64_t atom)
{
    return number_text("a%" PRIu64, atom);
}

static char *pid_text(uint64_t pid)
{
    return number_text("<0.%" PRIu64 ".0>", pid);
}

static struct ember_mfa mfa(uint32_t function)
{
    return (struct ember_mfa){MODULE, function};
}

static uint32_t id(uint32_t function)
{
    return ember_function_table_id(&functions, mfa(function), function % 3);
}

/* One process in root -> a31 -> a32 and one in root -> a31. */
static void set_up(void)
{
    cr_assert(ember_function_table_init(&functions));
    id(30); /* not in the run */
    cr_assert(run = ember_run_create(1, 0));
    ember_run_add_process(run, PID, EMBER_NONE);
    uint32_t outer = ember_call_tree_child(&run->tree, run->processes[0].root, id(31));
    ember_call_tree_child(&run->tree, outer, id(32));
    ember_run_add_process(run, CHILD, 0);
    ember_call_tree_child(&run->tree, run->processes[1].root, id(31));
    build = (struct ember_build){
        .functions = &functions, .ns_per_tick = 0.5, .atom_name = atom_name, .pid_text = pid_text};
}

static void tear_down(void)
{
    allocations_left = UINT64_MAX;
    ember_run_destroy(run);
    ember_function_table_fini(&functions);
}

TestSuite(profile_build, .init = set_up, .fini = tear_down);

static struct ember_profile *built(void)
{
    struct ember_profile *profile = ember_profile_build(run, &build);
    cr_assert(profile);
    cr_assert(ember_profile_check(profile));
    return profile;
}

Test(profile_build, functions_of_the_run_get_their_names)
{
    struct ember_profile *profile = built();
    cr_assert_eq(profile->function_count, 2);
    cr_assert_str_eq(profile->functions[0].module, "a10");
    cr_assert_str_eq(profile->functions[0].name, "a31");
    cr_assert_str_eq(profile->functions[0].text, "a10:a31/1");
    cr_assert_eq(profile->functions[0].arity, 1);
    cr_assert_str_eq(profile->functions[1].text, "a10:a32/2");
    ember_profile_destroy(profile);
}

Test(profile_build, nodes_keep_their_places)
{
    struct ember_profile *profile = built();
    static const struct ember_node expected[] = {{EMBER_NONE, EMBER_NONE, 0, {0, 0, 0, 0, 0}},
                                                 {0, 0, 0, {0, 0, 0, 0, 0}},
                                                 {1, 1, 0, {0, 0, 0, 0, 0}},
                                                 {EMBER_NONE, EMBER_NONE, 1, {0, 0, 0, 0, 0}},
                                                 {3, 0, 1, {0, 0, 0, 0, 0}}};
    cr_assert_eq(profile->node_count, 5);
    for (uint32_t i = 0; i < 5; i++) {
        cr_assert_eq(profile->nodes[i].parent, expected[i].parent);
        cr_assert_eq(profile->nodes[i].function, expected[i].function);
        cr_assert_eq(profile->nodes[i].process, expected[i].process);
    }
    ember_profile_destroy(profile);
}

Test(profile_build, ticks_become_nanoseconds)
{
    run->tree.nodes[1].calls = 7;
    run->tree.nodes[1].words = -4;
    run->tree.nodes[1].own_ticks = 1001;
    run->tree.rare[1].off_cpu_ticks = 2002;
    run->tree.rare[1].gc_ticks = 3004;
    struct ember_profile *profile = built();
    const struct ember_metrics *own = &profile->nodes[1].own;
    cr_assert_eq(own->calls, 7);
    cr_assert_eq(own->words, -4);
    cr_assert_eq(own->own_ns, 501);
    cr_assert_eq(own->off_cpu_ns, 1001);
    cr_assert_eq(own->gc_ns, 1502);
    cr_assert_eq(profile->info.raw_ns, 501);
    cr_assert_eq(profile->info.compensated_ns, 0);
    ember_profile_destroy(profile);
}

Test(profile_build, cost_of_events_is_subtracted)
{
    struct ember_tree_node *node = &run->tree.nodes[1];
    node->own_ticks = 200000;
    node->events[EMBER_COST_CALL] = 10;
    build.costs = (struct ember_costs){.event_ns = {1000, 0, 0, 0}, .spread = 0.1};
    struct ember_profile *profile = built();
    cr_assert_eq(profile->nodes[1].own.own_ns, 100000 - 10 * 1000);
    cr_assert_eq(profile->nodes[1].own.uncertainty_ns, 2500);
    cr_assert_eq(profile->info.raw_ns, 100000);
    cr_assert_eq(profile->info.compensated_ns, 10000);
    cr_assert_eq(profile->info.fallbacks, 0);
    ember_profile_destroy(profile);
}

Test(profile_build, doubtful_costs_are_told)
{
    build.costs = (struct ember_costs){.event_ns = {1000, 0, 0, 0}, .spread = 0.7};
    struct ember_profile *profile = built();
    cr_assert_eq(profile->info.fallbacks, EMBER_FALLBACK_COST);
    ember_profile_destroy(profile);
}

Test(profile_build, processes_get_their_names)
{
    run->processes[0].name = 70;
    run->processes[0].exited = true;
    run->processes[1].initial = mfa(33);
    run->processes[1].initial_arity = 4;
    run->processes[1].ancestors[0] = (struct ember_ancestor){33, true};
    run->processes[1].ancestors[1] = (struct ember_ancestor){5, false};
    run->processes[1].ancestor_count = 2;
    struct ember_profile *profile = built();
    const struct ember_process *processes = profile->processes;
    cr_assert_eq(profile->process_count, 2);
    cr_assert_eq(processes[0].pid, PID);
    cr_assert_str_eq(processes[0].pid_text, "<0.500.0>");
    cr_assert_str_eq(processes[0].name, "a70");
    cr_assert_null(processes[0].label);
    cr_assert_eq(processes[0].parent, EMBER_NONE);
    cr_assert(processes[0].exited);
    cr_assert_null(processes[1].name);
    cr_assert_str_eq(processes[1].label, "a10:a33/4");
    cr_assert_null(processes[0].ancestors);
    cr_assert_str_eq(processes[1].ancestors, "a33\n<0.5.0>");
    cr_assert_eq(processes[1].parent, 0);
    cr_assert_eq(processes[1].root, 3);
    cr_assert_not(processes[1].exited);
    ember_profile_destroy(profile);
}

Test(profile_build, info_says_what_was_run_and_how)
{
    run->begin_ticks = 1000;
    run->end_ticks = 5000;
    run->duration_ticks = 4000;
    run->events = 11;
    run->lost = 12;
    run->depth_cut = 13;
    run->outcome = EMBER_OUTCOME_EXITED;
    build.end_us = 100;
    build.fallbacks = EMBER_FALLBACK_STACK;
    struct ember_profile *profile = built();
    cr_assert_eq(profile->info.duration_ns, 2000);
    cr_assert_eq(profile->info.start_us, 98);
    cr_assert_eq(profile->info.events, 11);
    cr_assert_eq(profile->info.lost, 12);
    cr_assert_eq(profile->info.depth_cut, 13);
    cr_assert_eq(profile->info.calls, 1);
    cr_assert_eq(profile->info.outcome, EMBER_OUTCOME_EXITED);
    cr_assert_eq(profile->info.fallbacks, EMBER_FALLBACK_STACK);
    ember_profile_destroy(profile);
}

/* Each allocation fails in turn, until none does. */
Test(profile_build, out_of_memory_leaves_nothing_behind)
{
    struct ember_profile *profile = NULL;
    run->processes[0].name = 70;
    run->processes[1].initial = mfa(33);
    for (uint64_t succeed = 0; !profile; succeed++) {
        allocations_left = succeed;
        profile = ember_profile_build(run, &build);
        if (profile)
            cr_assert(ember_profile_check(profile));
        cr_assert_lt(succeed, 1000);
    }
    cr_assert_gt(allocations_made, 20);
    ember_profile_destroy(profile);
}
