/* SPDX-License-Identifier: Apache-2.0
 *
 * Words and collections.
 */
#include "recorder_test.h"

static void collect_deep(void)
{
    call(A);
    allocate(100);
    call(B);
    allocate(7);
    collect_at(1);
    allocate(3);
    back();
    collect_at(UINT32_MAX - 500); /* word addresses may wrap */
    allocate(700);
    tail(C);
    allocate(1000); /* does not fit: a fragment */
    call(D);
    back();
    back();
}

Test(recorder_words, stack_and_words_survive_collections)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        capture(collect_deep);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B).words, 10);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B).gc_ticks, 30);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).words, 800);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).gc_ticks, 30);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, C).words, 1000);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, C, D).words, 0);
    }
}

static void go_on_elsewhere(void)
{
    call(A);
    vm_displace(p, 123456, 50);
    allocate(20);
    call(B);
    allocate(60); /* the small block is full */
    tail(C);
    back();
    collect_at(777);
    call(D);
    back();
    back();
}

Test(recorder_words, collection_put_off_loses_neither_words_nor_stack)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        capture(go_on_elsewhere);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).words, 20);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B).words, 60);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, D).calls, 1);
    }
}

Test(recorder_words, events_of_each_cost_are_counted)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        capture(collect_deep);
        const struct ember_tree_node *nodes = vm.finished->tree.nodes;
        cr_assert_eq(nodes[1].events[EMBER_COST_CALL], 1); /* MAIN: call of A, return from MAIN */
        cr_assert_eq(nodes[1].events[EMBER_COST_RETURN], 1);
        cr_assert_eq(nodes[2].events[EMBER_COST_CALL], 2); /* A: B, C, a collection */
        cr_assert_eq(nodes[2].events[EMBER_COST_GC], 1);
        cr_assert_eq(nodes[2].events[EMBER_COST_SWITCH], 0);
    }
}

Test(recorder_words, words_of_a_trace_frame_are_not_missed_in_another_block)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm_open(&vm, SLOT, MAIN, 1);
        vm_call(&vm, p, MAIN);
        vm_displace(p, 123456, 500);
        allocate(20);
        leaf();
        vm_return(&vm, p);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN).words, 20);
    }
}
