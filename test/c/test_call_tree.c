/* SPDX-License-Identifier: Apache-2.0 */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup,--wrap=aligned_alloc */
#include "failing_malloc.h"
#include "call_tree.h"
#include "profile.h"
#include "random.h"
#include "run.h"

#include <criterion/criterion.h>

enum { MANY = 300000, WIDE = 50000 };

static struct ember_call_tree tree;
static uint32_t root;

static void set_up(void)
{
    cr_assert(ember_call_tree_init(&tree));
    root = ember_call_tree_root(&tree, 0);
}

static void tear_down(void)
{
    allocations_left = UINT64_MAX;
    ember_call_tree_fini(&tree);
}

TestSuite(call_tree, .init = set_up, .fini = tear_down);

static uint32_t child(uint32_t node, uint32_t function)
{
    return ember_call_tree_child(&tree, node, function);
}

Test(call_tree, a_root_has_no_parent_and_no_function)
{
    uint32_t second = ember_call_tree_root(&tree, 7);
    cr_assert_neq(second, root);
    cr_assert_eq(tree.nodes[second].parent, EMBER_NONE);
    cr_assert_eq(tree.nodes[second].function, EMBER_NONE);
    cr_assert_eq(tree.nodes[second].process, 7);
    cr_assert_eq(tree.nodes[second].depth, 0);
}

Test(call_tree, a_child_knows_where_it_stands)
{
    uint32_t other = ember_call_tree_root(&tree, 7);
    uint32_t node = child(child(other, 3), 4);
    cr_assert_eq(tree.nodes[node].function, 4);
    cr_assert_eq(tree.nodes[tree.nodes[node].parent].function, 3);
    cr_assert_eq(tree.nodes[tree.nodes[node].parent].parent, other);
    cr_assert_eq(tree.nodes[node].process, 7);
    cr_assert_eq(tree.nodes[node].depth, 2);
}

Test(call_tree, a_new_node_has_measured_nothing)
{
    struct ember_tree_node *node = &tree.nodes[child(root, 1)];
    cr_assert_eq(node->calls + node->own_ticks + tree.rare[root].off_cpu_ticks +
                     tree.rare[root].gc_ticks,
                 0);
    cr_assert_eq(node->words, 0);
    for (int kind = 0; kind < EMBER_COST_KINDS; kind++)
        cr_assert_eq(node->events[kind], 0);
}

Test(call_tree, the_same_stack_is_the_same_node)
{
    uint32_t first = child(root, 1);
    uint32_t second = child(root, 2);
    cr_assert_neq(first, second);
    cr_assert_eq(child(root, 1), first);
    cr_assert_eq(child(root, 2), second);
    cr_assert_eq(child(root, 2), second, "the child found last");
    cr_assert_neq(child(second, 1), first);
    cr_assert_neq(child(ember_call_tree_root(&tree, 1), 1), first);
}

Test(call_tree, a_node_may_have_many_children)
{
    for (uint32_t i = 0; i < WIDE; i++)
        cr_assert_eq(child(root, i), root + 1 + i);
    for (uint32_t i = 0; i < WIDE; i++)
        cr_assert_eq(child(root, i), root + 1 + i);
    cr_assert_eq(tree.count, WIDE + 1);
}

/* Against a list of what was asked for: every node found again, parents first. */
Test(call_tree, nodes_survive_growth)
{
    static uint32_t parents[MANY];
    struct random random = {1};
    while (tree.count < MANY) {
        uint32_t parent = random_below(&random, tree.count);
        uint32_t before = tree.count;
        uint32_t node = child(parent, random_below(&random, 50));
        if (node == before)
            parents[node] = parent;
        else
            cr_assert_lt(node, before);
    }
    for (uint32_t i = 1; i < MANY; i++) {
        cr_assert_eq(tree.nodes[i].parent, parents[i]);
        cr_assert_lt(parents[i], i);
        cr_assert_eq(tree.nodes[i].depth, tree.nodes[parents[i]].depth + 1);
        cr_assert_eq(child(parents[i], tree.nodes[i].function), i);
    }
    cr_assert_eq(tree.count, MANY);
}

Test(call_tree, bytes_grow_with_the_nodes)
{
    size_t before = tree.bytes;
    cr_assert_geq(before, tree.capacity * sizeof tree.nodes[0]);
    for (uint32_t i = 0; i < MANY; i++)
        child(root, i);
    cr_assert_geq(tree.bytes, MANY * sizeof tree.nodes[0]);
    cr_assert_gt(tree.bytes, before);
}

static uint32_t fill_until_failure(void)
{
    uint32_t count = 0;
    while (count < MANY && child(root, count) != EMBER_NONE)
        count++;
    return count;
}

Test(call_tree, out_of_memory_keeps_what_is_there)
{
    for (uint64_t succeed = 0; succeed < 3; succeed++) {
        allocations_left = succeed; /* the nodes fail, or the pauses, or the edges */
        uint32_t count = fill_until_failure();
        cr_assert_lt(count, MANY);
        for (uint32_t i = 0; i < count; i++)
            cr_assert_eq(child(root, i), root + 1 + i);
        cr_assert_eq(child(root, count), EMBER_NONE);
        cr_assert_eq(ember_call_tree_root(&tree, 1), EMBER_NONE);
    }
}

Test(call_tree, grows_again_when_there_is_memory)
{
    allocations_left = 1;
    uint32_t count = fill_until_failure();
    allocations_left = UINT64_MAX;
    for (uint32_t i = 0; i < count * 4; i++)
        cr_assert_eq(child(root, i), root + 1 + i);
}

Test(call_tree, init_fails_without_memory)
{
    for (uint64_t succeed = 0; succeed < 3; succeed++) {
        struct ember_call_tree other;
        allocations_left = succeed;
        cr_assert_not(ember_call_tree_init(&other));
        ember_call_tree_fini(&other);
    }
}

/* ---- Runs, which hold a tree --------------------------------------------- */

Test(run, each_process_has_a_root)
{
    struct ember_run *run = ember_run_create(77, 5);
    cr_assert_eq(run->id, 77);
    cr_assert_eq(run->capture, 5);
    for (uint32_t i = 0; i < 100; i++)
        cr_assert_eq(ember_run_add_process(run, i + 1000, i ? i - 1 : EMBER_NONE), i);
    for (uint32_t i = 0; i < 100; i++) {
        cr_assert_eq(run->processes[i].pid, i + 1000);
        cr_assert_eq(run->processes[i].parent, i ? i - 1 : EMBER_NONE);
        cr_assert_eq(run->tree.nodes[run->processes[i].root].process, i);
    }
    ember_run_destroy(run);
    ember_run_destroy(NULL);
}

Test(run, bytes_count_tree_and_processes)
{
    struct ember_run *run = ember_run_create(1, 0);
    size_t before = ember_run_bytes(run);
    for (uint32_t i = 0; i < 1000; i++)
        ember_run_add_process(run, i, EMBER_NONE);
    cr_assert_geq(ember_run_bytes(run) - before,
                  1000 * sizeof(struct ember_run_process) + 900 * sizeof(struct ember_tree_node));
    ember_run_destroy(run);
}

Test(run, out_of_memory_is_told)
{
    for (uint64_t succeed = 0; succeed < 4; succeed++) {
        allocations_left = succeed;
        cr_assert_null(ember_run_create(1, 0));
    }
    allocations_left = UINT64_MAX;
    struct ember_run *run = ember_run_create(1, 0);
    allocations_left = 0;
    cr_assert_eq(ember_run_add_process(run, 1, EMBER_NONE), EMBER_NONE);
    cr_assert_eq(run->process_count, 0);
    allocations_left = UINT64_MAX;
    ember_run_destroy(run);
}
