/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of compensation, on trees whose times are made up.
 */
#include "compensation.h"

#include <criterion/criterion.h>

static const double NS_PER_TICK = 0.5;
static const struct ember_costs costs = {.event_ns = {400, 200, 100, 1500, 150},
                                         .gc_inside_ns = 1000,
                                         .least_ns = 2,
                                         .word_ns = 3,
                                         .spread = 0.1};

static struct ember_call_tree tree;
static struct ember_compensation compensation;

static void set_up(void)
{
    cr_assert(ember_call_tree_init(&tree));
    ember_call_tree_root(&tree, 0);
}

static void tear_down(void)
{
    ember_call_tree_fini(&tree);
}

TestSuite(compensation, .init = set_up, .fini = tear_down);

/* A node with so many intervals that calls and returns end, of so many ns each. */
static uint32_t node(uint32_t calls, double call_ns, uint32_t returns, double return_ns)
{
    uint32_t index = ember_call_tree_child(&tree, 0, tree.count);
    struct ember_tree_node *made = &tree.nodes[index];
    made->events[EMBER_COST_CALL] = calls;
    made->events[EMBER_COST_RETURN] = returns;
    made->own_ticks = (uint64_t)((calls * call_ns + returns * return_ns) / NS_PER_TICK);
    return index;
}

static void look(double stolen_ns)
{
    compensation = ember_compensation_of(&tree, &costs, NS_PER_TICK, stolen_ns);
}

static struct ember_own_time time_of(uint32_t index)
{
    return ember_compensation_apply(&compensation, &tree, index);
}

static bool about(double value, double expected)
{
    return value > expected * 0.99 - 1 && value < expected * 1.01 + 1;
}

Test(compensation, a_short_run_is_compensated_as_calibrated)
{
    uint32_t busy = node(10, 1000, 10, 500);
    look(0);
    cr_assert(about(time_of(busy).own_ns, 10 * 600 + 10 * 300));
    cr_assert(about(time_of(busy).uncertainty_ns, 0.25 * (10 * 400 + 10 * 200)));
    cr_assert_not(compensation.doubtful);
}

Test(compensation, switches_and_collections_cost_too)
{
    uint32_t index = node(0, 0, 0, 0);
    tree.nodes[index].own_ticks = 40000;
    tree.nodes[index].events[EMBER_COST_SWITCH] = 3;
    tree.nodes[index].events[EMBER_COST_GC] = 2;
    tree.rare[index].gc_ticks = 10000;
    look(0);
    cr_assert(about(time_of(index).own_ns, 20000 - 3 * 100 - 2 * 1500));
    cr_assert(about(time_of(index).gc_ns, 5000 - 2 * 1000));
}

Test(compensation, time_is_never_negative)
{
    uint32_t small = node(10, 300, 0, 0);
    tree.rare[small].gc_ticks = 10;
    tree.nodes[small].events[EMBER_COST_GC] = 1;
    look(0);
    cr_assert(about(time_of(small).own_ns, 10 * 2));
    cr_assert_eq(time_of(small).gc_ns, 0);
    tree.nodes[small].own_ticks = 0;
    cr_assert_eq(time_of(small).own_ns, 0);
    cr_assert_eq(time_of(small).uncertainty_ns, 0);
}

Test(compensation, the_run_tells_how_fast_the_machine_is)
{
    uint32_t tiny = node(100000, 602, 0, 0);
    uint32_t leaf = node(0, 0, 100000, 152);
    uint32_t busy = node(20000, 1602, 0, 0);
    look(0);
    cr_assert(about(compensation.scale[EMBER_COST_CALL], 1.5));
    cr_assert(about(compensation.scale[EMBER_COST_RETURN] * 100, 75));
    cr_assert(about(time_of(tiny).own_ns, 100000 * 2));
    cr_assert(about(time_of(leaf).own_ns, 100000 * 2));
    cr_assert(about(time_of(busy).own_ns, 20000 * 1002));
    cr_assert_not(compensation.doubtful);
}

Test(compensation, what_cannot_be_told_from_the_cost_counts_as_the_least)
{
    node(100000, 402, 0, 0);
    uint32_t small = node(10000, 490, 0, 0);
    uint32_t builder = node(10000, 450, 0, 0);
    uint32_t large = node(10000, 600, 0, 0);
    tree.nodes[builder].words = 80000;
    look(0);
    cr_assert(about(time_of(small).own_ns, 10000 * 2));
    cr_assert(about(time_of(small).uncertainty_ns, 10000 * 100));
    cr_assert(about(time_of(builder).own_ns, 10000 * 2 + 80000 * 3));
    cr_assert(about(time_of(large).own_ns, 10000 * 200.0));
}

Test(compensation, the_spread_is_what_calibration_and_run_tell)
{
    node(10000, 162, 0, 0); /* the least of them: three fifths below */
    node(90000, 402, 0, 0);
    look(0);
    cr_assert_float_eq(compensation.spread, 0.6, 0.01);
    cr_assert(compensation.doubtful);
    tree.nodes[1].own_ticks = (uint64_t)(10000 * 402 / NS_PER_TICK);
    struct ember_costs unsteady = costs;
    unsteady.spread = 0.35;
    compensation = ember_compensation_of(&tree, &unsteady, NS_PER_TICK, 0);
    cr_assert_float_eq(compensation.spread, 0.35, 0.01);
    cr_assert_not(compensation.doubtful);
}

Test(compensation, events_beside_a_full_heap_cost_more)
{
    uint32_t index = node(10, 1000, 10, 500);
    tree.nodes[index].events[EMBER_COST_BESIDE] = 12;
    look(0);
    cr_assert(about(time_of(index).own_ns, 10 * 600 + 10 * 300 - 12 * 150));
}

Test(compensation, a_run_that_does_not_fit_is_doubtful)
{
    node(100000, 402 * 3, 0, 0);
    look(0);
    cr_assert(compensation.doubtful);
    cr_assert_eq(compensation.scale[EMBER_COST_CALL], 2);
}

Test(compensation, stolen_time_is_nobodys)
{
    node(100000, 402, 0, 0);
    uint32_t tiny = node(100000, 402, 0, 0);
    tree.nodes[tiny].own_ticks += 30000000;
    tree.rare[tiny].long_own = (struct ember_long_intervals){30000000, 3};
    look(15000000);
    cr_assert(about(time_of(tiny).own_ns, 100000 * 2));
    look(0); /* then it was the function itself */
    cr_assert(about(time_of(tiny).own_ns, 15000000 + 100000 * 2));
}

Test(compensation, half_is_stolen_where_the_system_says_so)
{
    uint32_t tiny = node(100000, 402, 0, 0);
    tree.nodes[tiny].own_ticks += 3000000;
    tree.rare[tiny].long_own = (struct ember_long_intervals){3000000, 3};
    look(750000);
    cr_assert_float_eq(compensation.stolen, 0.5, 0.01);
}

Test(compensation, a_function_that_takes_long_keeps_its_time)
{
    uint32_t large = node(20, 1000000, 0, 0);
    tree.rare[large].long_own = (struct ember_long_intervals){tree.nodes[large].own_ticks, 20};
    look(1e9);
    cr_assert(about(time_of(large).own_ns, 20 * 999600.0));
}

Test(compensation, collections_that_tracing_has_caused_are_nobodys)
{
    uint32_t half = node(10, 1000, 0, 0);
    uint32_t all = node(10, 1000, 0, 0);
    uint32_t none = node(10, 1000, 0, 0);
    for (uint32_t i = half; i <= none; i++) {
        tree.rare[i].gc_ticks = 104000;
        tree.nodes[i].events[EMBER_COST_GC] = 2;
    }
    tree.rare[half].caused_gc_ticks = 52000;
    tree.rare[all].caused_gc_ticks = 104000;
    look(0);
    cr_assert(about(time_of(half).gc_ns, 25000));
    cr_assert_eq(time_of(all).gc_ns, 0);
    cr_assert(about(time_of(none).gc_ns, 50000));
}

Test(compensation, nothing_is_subtracted_without_costs)
{
    uint32_t tiny = node(100000, 402, 100000, 202);
    tree.rare[tiny].gc_ticks = 1000;
    compensation = ember_compensation_of(&tree, &(struct ember_costs){0}, NS_PER_TICK, 0);
    cr_assert(about(time_of(tiny).own_ns, 100000 * 604.0));
    cr_assert_eq(time_of(tiny).uncertainty_ns, 0);
    cr_assert_eq(time_of(tiny).gc_ns, 500);
}
