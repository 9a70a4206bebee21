/* SPDX-License-Identifier: Apache-2.0
 *
 * Where neither the stack pointer nor the heap block is known.
 */
#include "recorder_test.h"

static void loop_blindly(void)
{
    for (int i = 0; i < 1000; i++) {
        call(A);
        back();
        call(B);
        call(C);
        back();
        back();
        tail(MAIN);
    }
}

Test(recorder_blind, stacks_follow_return_to_where_there_is_no_stack_pointer)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm.exact = vm.compare = false;
        capture(loop_blindly);
        cr_assert_eq(vm.finished->tree.count, 5);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN).calls, 1001);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).calls, 1000);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, B).own_ticks, 2000);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, B, C).calls, 1000);
    }
}

static void tail_call_blindly(void)
{
    call(A);
    for (int i = 0; i < MANY / 10; i++) {
        tail(B);
        tail(A);
    }
    back();
    call(C);
    back();
}

Test(recorder_blind, loops_do_not_grow_where_there_is_no_stack_pointer)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm.exact = vm.compare = false;
        capture(tail_call_blindly);
        cr_assert_eq(vm.finished->tree.count, 5);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, C).calls, 1);
        cr_assert_lt(ember_run_bytes(vm.finished), 20000);
    }
}

static void recurse_blindly(void)
{
    call(A);
    call(B);
    back();
    call(MAIN); /* by A, which has returned nothing yet */
    work(10);
    back();
    back();
}

Test(recorder_blind, recursion_after_a_return_is_no_loop)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm.exact = vm.compare = false;
        capture(recurse_blindly);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, MAIN).own_ticks, 11);
    }
}

static void send_call(uint32_t function, uint64_t arity)
{
    struct ember_event event = vm_event(&vm, p, EMBER_EVENT_CALL);
    event.stamp |= arity << EMBER_EVENT_ARITY_SHIFT;
    event.mfa = vm_mfa(function);
    vm_send(&vm, &event);
    event.stamp = ember_event_stamp(vm.now, vm_arity(MAIN), EMBER_EVENT_RETURN_TO);
    event.mfa = vm_mfa(MAIN);
    vm_send(&vm, &event);
}

Test(recorder_blind, functions_differ_by_arity)
{
    start(&vm_layout_27);
    vm.exact = vm.compare = false;
    vm_open(&vm, SLOT, MAIN, 1);
    vm_call(&vm, p, MAIN);
    for (int i = 0; i < 10; i++)
        for (uint64_t arity = 0; arity < 256; arity += 85)
            send_call(A, arity);
    vm_return(&vm, p);
    cr_assert_eq(vm.finished->tree.count, 2 + 4);
    for (uint32_t i = 2; i < 6; i++)
        cr_assert_eq(vm.finished->tree.nodes[i].calls, 10);
    vm_fini(&vm);
}

/* Words in fragments show at collections only; the sum is right after each. */
static void allocate_blindly(void)
{
    call(A);
    collect_at(5000);
    for (int i = 0; i < 30; i++) {
        allocate(90);
        call(B);
        back();
        if (i % 10 == 9)
            collect_at(5000 + 20000 * (uint32_t)i);
    }
    back();
}

Test(recorder_blind, words_are_balanced_at_collections_where_the_block_is_unknown)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm.exact = vm.compare = false;
        capture(allocate_blindly);
        int64_t sum = 0;
        for (uint32_t i = 0; i < vm.finished->tree.count; i++)
            sum += vm.finished->tree.nodes[i].words;
        cr_assert_eq(sum, 30 * 90, "%s: %ld", vm.doing, (long)sum);
    }
}
