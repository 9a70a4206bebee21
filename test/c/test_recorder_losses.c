/* SPDX-License-Identifier: Apache-2.0
 *
 * Lost events, and the way back after them.
 */
#include "recorder_test.h"

static void lose_a_subtree(void)
{
    call(A);
    vm.lose = 5; /* B, C and D called, two returns */
    call(B);
    call(C);
    call(D);
    back();
    back();
    work(100);
    tail(D); /* of B, which nobody has seen */
    back();
    work(10);
    call(C);
    back();
    back();
}

Test(recorder_losses, stack_is_right_again_after_a_loss)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm.compare = false;
        capture(lose_a_subtree);
        cr_assert_eq(vm.finished->lost, 5);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, D).calls, 1, "seen below who is known to be there");
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, C).calls, 1);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN).calls, 1);
    }
}

static void lose_the_returns(void)
{
    for (int i = 0; i < 50; i++)
        call(i % 2 ? A : B);
    vm.lose = 45;
    for (int i = 0; i < 45; i++)
        back();
    call(C);
    back();
    while (p->frame_count > 2)
        back();
}

Test(recorder_losses, frames_whose_returns_were_lost_are_gone)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm.compare = false;
        capture(lose_the_returns);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, B, A, B, A, B, C).calls, 1);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN).own_ticks, 1);
    }
}

static void lose_the_end_of_a_collection(void)
{
    call(A);
    vm_emit_gc(&vm, p, EMBER_EVENT_GC_START);
    p->collecting = true;
    work(30);
    vm_place_block(p, 5000, 1000);
    vm.lose = 3;
    vm_emit_gc(&vm, p, EMBER_EVENT_GC_END);
    p->collecting = false;
    allocate(10);
    call(B);
    allocate(20);
    work(50);
    back();
    vm_out(&vm, p);
    work(7);
    vm.lose = 3;
    vm_in(&vm, p);
    call(C);
    work(40);
    back();
    back();
}

Test(recorder_losses, process_that_calls_is_neither_collecting_nor_out)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm.compare = false;
        capture(lose_the_end_of_a_collection);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).gc_ticks, 30);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B).own_ticks, 51);
        cr_assert_leq(VM_NODE(&vm, 0, MAIN, A, B).words, 30);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, C).own_ticks, 41);
    }
}

/* B calls A again, which is lost; who returns to A must not unwind B. */
static void lose_a_recursion(void)
{
    call(A);
    call(B);
    vm.lose = 1;
    call(A);
    call(C);
    tail(C);
    back();
    call(D);
    back();
    back();
    back();
    back();
}

Test(recorder_losses, return_is_not_taken_for_an_exception)
{
    for (int captured = 0; captured < 2; captured++) {
        ON_EACH_VM(layout)
        {
            struct ember_capture options = vm_options(MAIN);
            start(layout);
            vm.compare = false;
            vm_open_with(&vm, SLOT, MAIN, 1, &options);
            if (captured)
                vm_open(&vm, 1, C, 1);
            vm_call(&vm, p, MAIN);
            lose_a_recursion();
            vm_return(&vm, p);
            cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B, D).calls, 1);
        }
    }
}

static void lose_a_block(void)
{
    call(A);
    vm.lose = 6;
    collect_at(50000);
    cr_assert_eq(vm.lose, 0);
    call(B);
    call(C);
    vm_out(&vm, p); /* the block is told again */
    vm_in(&vm, p);
    back();
    vm_throw(&vm, p, 2, false);
    tail(D); /* of A */
    work(10);
    back();
}

Test(recorder_losses, frames_seen_without_a_block_go_with_their_callers)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm.compare = false;
        capture(lose_a_block);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B, C).calls, 1);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, D).own_ticks, 11);
    }
}

static void lose_a_collection_in_place(void)
{
    uint32_t block = p->start;
    allocate(600);
    call(A);
    vm.lose = 6;
    vm_collect(&vm, p, 30, block, p->end - block, 0);
    call(B);
    back();
    back();
}

Test(recorder_losses, heap_top_that_went_back_is_no_growth)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm.compare = false;
        capture(lose_a_collection_in_place);
        cr_assert_leq(VM_NODE(&vm, 0, MAIN, A).words, 0);
    }
}

static void lose_the_start_of_a_collection(void)
{
    call(A);
    vm.lose = 3;
    collect_at(50000); /* 40 words live */
    call(B);
    back();
    back();
}

Test(recorder_losses, what_lives_after_a_collection_is_not_allocated)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm.compare = false;
        capture(lose_the_start_of_a_collection);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).words, 0);
    }
}

Test(recorder_losses, stack_pointer_outside_the_block_tells_nothing)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm.compare = false;
        vm_open(&vm, SLOT, MAIN, 1);
        vm_call(&vm, p, MAIN);
        call(A);
        struct ember_event event = vm_event(&vm, p, EMBER_EVENT_CALL);
        event.mfa = vm_mfa(B);
        event.hp = p->hp + VM_MFA_WORDS;
        event.sp = p->end + 50;
        vm_send(&vm, &event);
        back();
        vm_return(&vm, p);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B).calls, 1);
    }
}

Test(recorder_losses, pid_that_is_spawned_again_is_another_process)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm.compare = false;
        vm_open(&vm, SLOT, MAIN, 1);
        vm_call(&vm, p, MAIN);
        struct vm_process *child = vm_spawn(&vm, p, 20);
        run_child(child, B, 30);
        vm.lose = 1;
        vm_exit(&vm, child);
        run_child(vm_spawn(&vm, p, 20), C, 5);
        vm_return(&vm, p);
        cr_assert_eq(vm.finished->process_count, 3);
        cr_assert(vm.finished->processes[1].exited);
        cr_assert_not(vm.finished->processes[2].exited);
        cr_assert_eq(VM_NODE(&vm, 2, C).own_ticks, 5);
    }
}

Test(recorder_losses, losses_before_a_run_are_not_its_own)
{
    start(&vm_layout_27);
    vm.lost = 1000;
    vm.compare = false;
    capture(lose_a_subtree);
    cr_assert_eq(vm.finished->lost, 5);
    vm_fini(&vm);
}
