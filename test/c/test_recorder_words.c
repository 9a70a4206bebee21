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
    allocate(3);
    vm_displace(p, 123456, 50);
    allocate(20);
    call(B);
    allocate(60); /* the small block is full */
    tail(C);
    allocate(5);
    vm_displace(p, 234567, 50);
    allocate(7);
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
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).words, 23);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B).words, 60);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B, C).words, 12);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, D).calls, 1);
    }
}

static void leave_a_block_that_was_as_full(void)
{
    call(A);
    allocate(30);
    vm_displace(p, 123456, 500);
    call(B);
    allocate(p->left_used - (p->hp - p->start));
    collect_at(777);
    back();
    back();
}

Test(recorder_words, a_block_that_is_left_may_be_as_full_as_the_next)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        capture(leave_a_block_that_was_as_full);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).words, 30);
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

/* ---- Binaries outside the heap ---------------------------------------------- */

static void tell_binaries(uint64_t words, uint32_t limit)
{
    struct ember_event event = vm_event(&vm, p, EMBER_EVENT_BINARIES);
    event.value = words;
    event.sp = limit;
    vm_send(&vm, &event);
}

static uint64_t binary_words(uint32_t node)
{
    return vm.finished->tree.rare[node].binary_words;
}

/* What is there when a collection begins was made since the last one ended. */
static void collect_binaries(uint64_t before, uint64_t after)
{
    tell_binaries(before, 500);
    vm_emit_gc(&vm, p, EMBER_EVENT_GC_START);
    tell_binaries(after, 500);
    vm_emit_gc(&vm, p, EMBER_EVENT_GC_END);
}

static void make_binaries(void)
{
    tell_binaries(100, UINT32_MAX);
    call(A);
    collect_binaries(1100, 0); /* which go to an old heap */
    collect_binaries(0, 1000); /* and come back from there */
    collect_binaries(1020, 900);
    back();
    tell_binaries(907, UINT32_MAX);
}

Test(recorder_words, binaries_belong_to_who_made_them)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm.compare = false;
        capture(make_binaries);
        cr_assert_eq(binary_words(1), 7);
        cr_assert_eq(binary_words(2), 1000 + 20);
    }
}

static void make_first_binaries(void)
{
    collect_binaries(400, 400);
    collect_binaries(1400, 0);
}

static void make_large_binary(void)
{
    collect_binaries(1400, 0);
}

/* Before the first collection it is not known what there was; no more than the limit. */
Test(recorder_words, binaries_from_before_are_not_counted)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm.compare = false;
        capture(make_first_binaries);
        cr_assert_eq(binary_words(1), 1000);
        vm_fini(&vm);
        start(layout);
        vm.compare = false;
        capture(make_large_binary);
        cr_assert_eq(binary_words(1), 900);
    }
}

/* A, in a heap of its own, allocates thrice tracing's words. */
static void fill(void)
{
    call(A);
    collect_at(1);
    for (int i = 0; i < 10; i++) {
        leaf();
        allocate(24);
    }
    collect_at(1);
    leaf();
    back();
}

Test(recorder_words, a_collection_is_caused_by_tracing_as_far_as_its_words_are)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        capture(fill);
        const struct ember_tree_rare *rare = vm.finished->tree.rare;
        cr_assert_eq(vm.finished->tree.nodes[2].events[EMBER_COST_GC], 2);
        cr_assert_eq(rare[2].gc_ticks, 60);
        cr_assert_geq(rare[2].caused_gc_ticks, 4);
        cr_assert_leq(rare[2].caused_gc_ticks, 30 + 8);
    }
}

/* Messages that wait are moved to the heap by a collection, which tells of them. */
static void collect_messages(void)
{
    call(A);
    vm_emit_gc(&vm, p, EMBER_EVENT_GC_START);
    p->collecting = true;
    vm_place_block(p, 5000, 1000);
    p->hp += 40;
    vm_emit_gc(&vm, p, EMBER_EVENT_GC_END);
    p->collecting = false;
    struct ember_event event = vm_event(&vm, p, EMBER_EVENT_GC_START);
    vm_set_pointers(&vm, p, &event, vm_depth(p));
    event.heap_words = p->hp - p->start;
    event.fragment_words = p->fragments + 77;
    vm_send(&vm, &event);
    p->collecting = true;
    p->hp += 77;
    vm_emit_gc(&vm, p, EMBER_EVENT_GC_END);
    p->collecting = false;
    call(B);
    back();
    back();
}

Test(recorder_words, messages_that_a_collection_brings_in_are_counted)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm.compare = false;
        capture(collect_messages);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).words, 77);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B).words, 0);
    }
}
