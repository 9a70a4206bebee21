/* SPDX-License-Identifier: Apache-2.0
 *
 * Stacks: calls, tail calls, exceptions.
 */
#include "recorder_test.h"

/* ---- Calls --------------------------------------------------------------- */

Test(recorder_stacks, time_belongs_to_the_stack_before_the_event)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        capture(leaf);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).own_ticks, 11);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN).own_ticks, 1);
        cr_assert_eq(vm.finished->outcome, EMBER_OUTCOME_RETURNED);
        cr_assert_eq(vm.finished->end_ticks - vm.finished->begin_ticks, 12);
    }
}

static void recurse(void)
{
    for (int i = 0; i < DEEP; i++)
        call(A);
    for (int i = 0; i < DEEP; i++)
        back();
}

Test(recorder_stacks, recursion_is_folded_and_unwound)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        capture(recurse);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).calls, DEEP);
        cr_assert_eq(vm.finished->tree.count, 3);
        cr_assert_eq(vm.finished->depth_cut, 0);
    }
}

Test(recorder_stacks, unfolded_recursion_is_cut_at_the_depth_limit)
{
    ON_EACH_VM(layout)
    {
        struct ember_capture options = vm_options(MAIN);
        options.fold_recursion = false;
        start(layout);
        capture_with(recurse, &options);
        cr_assert_eq(vm.finished->tree.count, NAIVE_MAX_NODE_DEPTH + 3); /* root, [deeper], A */
        cr_assert_eq(vm.finished->depth_cut, DEEP - (NAIVE_MAX_NODE_DEPTH - 1));
    }
}

/* In all stacks. */
static uint64_t calls_of(uint32_t function)
{
    const struct ember_call_tree *tree = &vm.finished->tree;
    uint64_t calls = 0;
    for (uint32_t i = 0; i < tree->count; i++)
        if (vm_function_of(&vm.recorder, tree->nodes[i].function) == function)
            calls += tree->nodes[i].calls;
    return calls;
}

static void recurse_mutually(void)
{
    for (int i = 0; i < DEEP; i++)
        call(i % 2 ? A : B);
    for (int i = 0; i < DEEP; i++)
        back();
}

Test(recorder_stacks, mutual_recursion_is_unwound_below_the_depth_limit)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        capture(recurse_mutually);
        cr_assert_eq(vm.finished->tree.count, NAIVE_MAX_NODE_DEPTH + 4);
        cr_assert_eq(calls_of(A), DEEP / 2);
        cr_assert_eq(calls_of(B), DEEP / 2);
    }
}

/* ---- Tail calls ---------------------------------------------------------- */

Test(recorder_stacks, tail_callee_stands_below_its_caller)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        capture(chain);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B, C).own_ticks, 101);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN).own_ticks, 6);
    }
}

static void tail_call_each_other(void)
{
    call(A);
    for (int i = 0; i < MANY / 2; i++) {
        tail(B);
        tail(A);
    }
    back();
}

Test(recorder_stacks, functions_that_tail_call_each_other_do_not_grow_the_tree)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        capture(tail_call_each_other);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).calls, MANY / 2 + 1);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B).calls, MANY / 2);
        cr_assert_eq(vm.finished->tree.count, 4);
        cr_assert_lt(ember_run_bytes(vm.finished), 20000);
    }
}

/* As a server does: the loop is the target itself, and works in a callee. */
static void serve(void)
{
    for (int i = 0; i < 1000; i++) {
        call(A);
        back();
        vm_out(&vm, p);
        work(50);
        vm_in(&vm, p);
        tail(MAIN);
    }
}

Test(recorder_stacks, server_loop_stands_once)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        capture(serve);
        cr_assert_eq(vm.finished->tree.count, 3);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN).calls, 1001);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN).off_cpu_ticks, 50 * 1000);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).calls, 1000);
    }
}

static void mix(void)
{
    call(A);
    call(B);
    back();
    tail(B);
    call(C);
    tail(A);
    back();
    tail(A);
    back();
}

Test(recorder_stacks, function_may_call_and_tail_call_another)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        capture(mix);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).calls, 2);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B).calls, 2);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B, C, A).calls, 1);
    }
}

/* A frame of no words: callee and tail callee enter one word apart. */
static void call_without_frame(void)
{
    vm_call_from(&vm, p, 0, A);
    work(1);
    vm_call_from(&vm, p, 0, B);
    work(1);
    tail(C);
    back();
    back();
}

Test(recorder_stacks, smallest_frames_are_told_apart)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        capture(call_without_frame);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B, C).calls, 1);
    }
}

/* ---- Exceptions ---------------------------------------------------------- */

static bool told;

static void throw_far(void)
{
    call(A);
    for (int i = 0; i < 100; i++)
        call(i % 2 ? B : C);
    vm_throw(&vm, p, 2, told);
    call(D);
    work(10);
    back();
    back();
}

Test(recorder_stacks, exception_unwinds_many_frames)
{
    for (int i = 0; i < 2; i++) {
        told = i;
        ON_EACH_VM(layout)
        {
            start(layout);
            capture(throw_far);
            cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, D).own_ticks, 11);
        }
    }
}

static void throw_and_tail(void)
{
    call(A);
    call(B);
    vm_throw(&vm, p, 2, told);
    tail(C);
    back();
}

Test(recorder_stacks, exception_may_be_followed_by_a_tail_call)
{
    for (int i = 0; i < 2; i++) {
        told = i;
        ON_EACH_VM(layout)
        {
            start(layout);
            capture(throw_and_tail);
            cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, C).calls, 1);
        }
    }
}

static void throw_out(void)
{
    call(A);
    call(B);
    work(10);
    vm_throw(&vm, p, 0, true);
}

Test(recorder_stacks, uncaught_exception_ends_the_run)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        capture(throw_out);
        cr_assert_eq(vm.finished->outcome, EMBER_OUTCOME_RAISED);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B).own_ticks, 11);
    }
}

/* Intervals as long as a turn of another program are noted in whatever way they end. */
static void work_long(void)
{
    call(A);
    leaf();
    call(B);
    back();
    work(EMBER_LONG_TICKS);
    call(B);
    work(EMBER_LONG_TICKS + 5);
    back();
    back();
}

Test(recorder_stacks, long_intervals_are_noted)
{
    start(&vm_layout_27);
    capture(work_long);
    uint64_t count = 0;
    uint64_t ticks = 0;
    for (uint32_t i = 0; i < vm.finished->tree.count; i++) {
        count += vm.finished->tree.rare[i].long_own.count;
        ticks += vm.finished->tree.rare[i].long_own.ticks;
    }
    cr_assert_eq(count, 2);
    cr_assert_eq(ticks, 2 * EMBER_LONG_TICKS + 5 + 2);
    vm_fini(&vm);
}
