/* SPDX-License-Identifier: Apache-2.0
 *
 * Captures, what they show, and their limits.
 */
#include "recorder_test.h"

/* ---- Captures ------------------------------------------------------------ */

static void capture_inside(void)
{
    vm_open(&vm, 1, B, 9);
    call(A);
    call(B);
    call(C);
    back();
    back();
    tail(B);
    call(B); /* not counted again */
    back();
    tail(C);
    back();
}

Test(recorder_captures, captures_overlap)
{
    ON_EACH_VM(layout)
    {
        struct ember_capture options = vm_options(MAIN);
        start(layout);
        vm_open_with(&vm, SLOT, MAIN, 1, &options);
        vm_call(&vm, p, MAIN);
        capture_inside();
        cr_assert_eq(vm.finished_count, 2, "two calls of B");
        cr_assert_eq(VM_NODE(&vm, 0, B).calls, 2);
        cr_assert_eq(VM_NODE(&vm, 0, B, C).calls, 1);
        vm_return(&vm, p);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B).calls, 3);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B, C).calls, 2);
    }
}

Test(recorder_captures, captures_of_one_call_are_each_exact)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        for (uint32_t slot = 0; slot < 3; slot++)
            vm_open(&vm, slot, MAIN, 1);
        vm_call(&vm, p, MAIN);
        allocate(5);
        chain();
        vm_return(&vm, p);
        cr_assert_eq(vm.finished_count, 3);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN).words, 5);
    }
}

Test(recorder_captures, each_call_has_a_run_of_its_own)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm_open(&vm, SLOT, MAIN, 3);
        for (uint32_t i = 1; i <= 5; i++) {
            vm_call(&vm, p, MAIN);
            leaf();
            vm_return(&vm, p);
            cr_assert_eq(vm.finished_count, i < 3 ? i : 3);
        }
    }
}

Test(recorder_captures, close_cuts_what_is_going_on)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm_open(&vm, SLOT, MAIN, 1);
        vm_call(&vm, p, MAIN);
        call(A);
        work(9);
        vm_close(&vm, SLOT);
        cr_assert_eq(vm.finished_count, 1);
        cr_assert_eq(vm.finished->outcome, EMBER_OUTCOME_UNFINISHED);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).own_ticks, 10);
    }
}

static void call_other_module(void)
{
    call(OTHER_MODULE);
    work(10);
    call(A);
    back();
    tail(B); /* of a function that is not shown */
    tail(OTHER_MODULE);
    tail(C);
    back();
}

Test(recorder_captures, only_the_modules_asked_for_are_shown)
{
    ON_EACH_VM(layout)
    {
        struct ember_capture options = vm_options(MAIN);
        options.modules = malloc(sizeof *options.modules);
        options.modules[0] = vm_mfa(A).module;
        options.module_count = 1;
        start(layout);
        capture_with(call_other_module, &options);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN).own_ticks, 13);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).calls, 1);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, B, C).calls, 1);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, B).own_ticks, 2);
    }
}

static void catch_in_hidden_target(void)
{
    call(OTHER_MODULE);
    tail(MAIN); /* not shown, other than the captured call */
    call(D);
    vm_throw(&vm, p, 2, true);
    work(7);
    call(OTHER_MODULE + 1);
    back();
    back();
}

Test(recorder_captures, function_not_shown_may_catch_where_its_callers_stand)
{
    ON_EACH_VM(layout)
    {
        struct ember_capture options = vm_options(MAIN);
        options.modules = malloc(sizeof *options.modules);
        options.modules[0] = vm_mfa(OTHER_MODULE).module;
        options.module_count = 1;
        start(layout);
        capture_with(catch_in_hidden_target, &options);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, OTHER_MODULE, OTHER_MODULE + 1).calls, 1);
    }
}

static void tail_call_hidden_target(void)
{
    call(OTHER_MODULE);
    tail(MAIN);
    tail(OTHER_MODULE);
    back();
}

Test(recorder_captures, functions_not_shown_do_not_part_a_chain)
{
    ON_EACH_VM(layout)
    {
        struct ember_capture options = vm_options(MAIN);
        options.modules = malloc(sizeof *options.modules);
        options.modules[0] = vm_mfa(OTHER_MODULE).module;
        options.module_count = 1;
        options.fold_recursion = false;
        start(layout);
        capture_with(tail_call_hidden_target, &options);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, OTHER_MODULE).calls, 2);
    }
}

static void call_untraced(void)
{
    vm_call(&vm, p, VM_SOMEBODY);
    call(A);
    back();
    tail(B);
    vm_tail(&vm, p, VM_SOMEBODY);
    work(10);
    call(C);
    back();
    back();
}

Test(recorder_captures, untraced_functions_belong_to_their_callers)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        capture(call_untraced);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).calls, 1);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, B).own_ticks, 12);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, B, C).calls, 1);
    }
}

Test(recorder_captures, our_own_target_is_not_shown)
{
    ON_EACH_VM(layout)
    {
        struct ember_capture options = vm_options(MAIN);
        options.hide_target = true;
        start(layout);
        vm.untraced[MAIN] = true;
        capture_with(chain, &options);
        cr_assert_eq(VM_NODE(&vm, 0, A, B, C).own_ticks, 101);
        cr_assert_eq(vm.finished->tree.nodes[0].own_ticks, 6);
        cr_assert_eq(vm.finished->tree.nodes[0].calls, 0);
    }
}

/* ---- Limits -------------------------------------------------------------- */

Test(recorder_captures, capture_over_its_memory_limit_is_closed)
{
    struct ember_capture options = vm_options(MAIN);
    options.memory_limit = 100000;
    start(&vm_layout_27);
    vm_open_with(&vm, SLOT, MAIN, 1, &options);
    vm_open(&vm, 1, A, 1);
    vm_call(&vm, p, MAIN);
    ember_recorder_check_memory(&vm.recorder);
    cr_assert_eq(vm.limit_count, 0);
    for (uint32_t i = 0; i < 2000; i++)
        call(1 + i % 40);
    vm_call(&vm, p, A);
    ember_recorder_check_memory(&vm.recorder);
    cr_assert_eq(vm.limit_count, 1);
    cr_assert_eq(vm.finished_count, 1);
    cr_assert_eq(vm.finished->outcome, EMBER_OUTCOME_UNFINISHED);
    cr_assert_not(vm.recorder.open[SLOT]);
    cr_assert(vm.recorder.open[1], "the other capture has no such limit");
    vm_fini(&vm);
}

static void spawn_many(void)
{
    for (uint32_t i = 0; i < 5000; i++) {
        struct vm_process *next = vm_spawn(&vm, p, 100 + i);
        run_child(next, A, 1);
        vm_exit(&vm, next);
        free(next->frames);
        free(next);
        vm.process_count--;
    }
}

Test(recorder_captures, dead_children_take_no_memory_for_their_stacks)
{
    start(&vm_layout_27);
    vm.compare = false; /* the naive tree is slow with so many */
    capture(spawn_many);
    cr_assert_eq(vm.finished->track_bytes, 0);
    cr_assert_eq(vm.finished->process_count, 5001);
    vm_fini(&vm);
}
