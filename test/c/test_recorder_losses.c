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
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, EMBER_UNKNOWN, D).calls, 1, "B is not known");
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
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, EMBER_UNKNOWN).gc_ticks, 30);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B).own_ticks, 51);
        cr_assert_leq(VM_NODE(&vm, 0, MAIN, A, B).words, 30);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, C).own_ticks, 41);
    }
}

/* B calls A again, which is lost; who returns to A must not unwind B, and what that
 * calls is below somebody unknown. */
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
            cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B, EMBER_UNKNOWN, D).calls, 1);
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

/* The consumer comes to the begin when events that followed were lost already. */
Test(recorder_losses, losses_are_a_runs_own_however_late_its_events_come)
{
    start(&vm_layout_27);
    vm.compare = false;
    vm_open(&vm, SLOT, MAIN, 1);
    vm.lost = 5;
    vm_call(&vm, p, MAIN);
    vm.lost = 0;
    lose_a_subtree();
    vm_return(&vm, p);
    cr_assert_eq(vm.finished->lost, 5);
    vm_fini(&vm);
}

/* A wait for the consumer is nobody's time. */
static void wait_for_room(void)
{
    call(A);
    vm_work(&vm, p, 50);
    struct ember_event wait = vm_event(&vm, p, EMBER_EVENT_HELD_UP);
    vm.now += 1000;
    vm.held_up = 1000;
    wait.stamp = ember_event_stamp(vm.now, 0, EMBER_EVENT_HELD_UP);
    wait.value = 1000;
    vm_send(&vm, &wait);
    vm_work(&vm, p, 7);
    back();
}

Test(recorder_losses, waiting_for_the_consumer_is_no_time)
{
    start(&vm_layout_27);
    vm.compare = false;
    capture(wait_for_room);
    uint64_t own = VM_NODE(&vm, 0, MAIN, A).own_ticks;
    cr_assert(own >= 57 && own < 1000, "%lu", (unsigned long)own);
}

/* A loss in a loop of tail calls: from the next event on each stands once again. */
static void lose_in_a_tail_loop(void)
{
    call(A);
    for (int i = 0; i < 10; i++)
        tail(i % 2 ? A : B);
    vm.lose = 7;
    for (int i = 0; i < 31; i++)
        tail(i % 2 ? A : B);
    call(C);
    back();
    back();
}

Test(recorder_losses, a_tail_loop_does_not_grow_by_a_loss)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm.compare = false;
        capture(lose_in_a_tail_loop);
        cr_assert_eq(vm.finished->lost, 7);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).calls + VM_NODE(&vm, 0, MAIN, A, B).calls, 42 - 7);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B, C).calls, 1);
    }
}

/* The process goes on elsewhere, while nothing of it is seen. */
static void lose_across_a_migration(void)
{
    for (int i = 0; i < 20; i++)
        call(i % 2 ? A : B);
    vm.lose = 12;
    for (int i = 0; i < 10; i++)
        back();
    vm_out(&vm, p);
    work(1000);
    vm_in(&vm, p);
    call(C);
    call(D);
    back();
    back();
    back();
    call(D);
    back();
    while (p->frame_count > 2)
        back();
}

Test(recorder_losses, stack_is_right_after_a_loss_across_a_migration)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm.compare = false;
        capture(lose_across_a_migration);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, B, A, B, A, B, A, B, A, B, A, C, D).calls, 1);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, B, A, B, A, B, A, B, A, B, D).calls, 1);
    }
}

/* ---- what is unknown is marked ---- */

static struct ember_capture unfolded(void)
{
    struct ember_capture options = vm_options(MAIN);
    options.fold_recursion = false;
    return options;
}

static uint64_t calls_of(uint32_t function)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < vm.finished->tree.count; i++)
        if (vm_function_of(&vm.recorder, vm.finished->tree.nodes[i].function) == function)
            sum += vm.finished->tree.nodes[i].calls;
    return sum;
}

static void lose_on_the_way_down(void)
{
    for (int i = 0; i < 3; i++)
        call(A);
    vm.lose = 4;
    for (int i = 0; i < 6; i++)
        call(A);
    call(B);
    while (p->frame_count > 7) /* of the lost ones, the two least deep are left */
        back();
    call(C);
    back();
    while (p->frame_count > 5)
        back();
    call(D);
    back();
    while (p->frame_count > 2)
        back();
}

Test(recorder_losses, frames_whose_calls_were_lost_are_unknown)
{
    ON_EACH_VM(layout)
    {
        struct ember_capture options = unfolded();
        start(layout);
        vm.compare = false;
        capture_with(lose_on_the_way_down, &options);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, A, A, EMBER_UNKNOWN, A, A, B).calls, 1);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, A, A, EMBER_UNKNOWN, C).calls, 1);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, A, A, D).calls, 1);
        cr_assert_eq(calls_of(A), 9 - 4);
        cr_assert_eq(calls_of(EMBER_UNKNOWN), 0);
    }
}

static void lose_a_tail_call(void)
{
    call(A);
    vm.lose = 1;
    tail(B);
    work(20);
    call(C);
    back();
    tail(D);
    work(5);
    back();
    call(B);
    back();
}

Test(recorder_losses, tail_call_that_was_lost_is_unknown)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm.compare = false;
        capture(lose_a_tail_call);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, EMBER_UNKNOWN, C).calls, 1);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, EMBER_UNKNOWN).own_ticks, 23, "since A, and after C");
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, EMBER_UNKNOWN, D).own_ticks, 6);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, B).calls, 1);
    }
}

/* Nothing that was lost is still there: only the time is nobody's. */
static void lose_whole_calls(void)
{
    call(A);
    vm.lose = 4;
    for (int i = 0; i < 2; i++) {
        call(B);
        work(10);
        back();
    }
    call(C);
    back();
    back();
}

Test(recorder_losses, time_in_calls_that_were_lost_is_unknown)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm.compare = false;
        capture(lose_whole_calls);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, EMBER_UNKNOWN).own_ticks, 25);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, C).calls, 1);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).own_ticks, 1, "after C");
    }
}

/* The exception may have been caught by one of the unknown functions, or by A. */
static void lose_around_an_exception(bool caught_by_known)
{
    call(A);
    call(B);
    vm.lose = 2;
    call(C);
    call(A);
    call(D);
    vm_throw(&vm, p, caught_by_known ? 2 : 5, true);
    work(10);
    call(C);
    back();
    while (p->frame_count > 2)
        back();
}

static void caught_by_known(void)
{
    lose_around_an_exception(true);
}

static void caught_by_unknown(void)
{
    lose_around_an_exception(false);
}

Test(recorder_losses, exception_that_passes_unknown_functions)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm.compare = false;
        capture(caught_by_known);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, C).calls, 1);
    }
}

Test(recorder_losses, exception_that_unknown_functions_catch)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm.compare = false;
        capture(caught_by_unknown);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B, EMBER_UNKNOWN, C).calls, 1);
    }
}

/* ---- ends that were lost ---- */

static void open_two(const struct ember_stack_layout *layout)
{
    start(layout);
    vm.compare = false;
    vm_open(&vm, SLOT, A, 1);
    vm_open(&vm, 1, MAIN, 1);
    vm_call(&vm, p, MAIN);
    call(A);
    call(B);
    back();
}

static void assert_end_is_lost(void)
{
    cr_assert_eq(vm.finished_count, 1, "%s", vm.doing);
    cr_assert_eq(vm.finished->capture, SLOT);
    cr_assert_eq(vm.finished->outcome, EMBER_OUTCOME_UNFINISHED);
    cr_assert(vm.finished->end_lost);
}

Test(recorder_losses, run_whose_return_was_lost_ends_where_the_stack_shows_it)
{
    ON_EACH_VM(layout)
    {
        open_two(layout);
        vm.lose = 2; /* both ways in which a VM tells of it */
        back();
        call(C);
        assert_end_is_lost();
        back();
        vm_return(&vm, p);
        cr_assert_eq(vm.finished_count, 2);
        cr_assert_eq(vm.finished->outcome, EMBER_OUTCOME_RETURNED);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, C).calls, 1);
    }
}

static void check_ends(int times)
{
    for (int i = 0; i < times; i++)
        ember_recorder_check_ends(&vm.recorder);
}

Test(recorder_losses, run_whose_return_was_lost_ends_without_another_event)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm.compare = false;
        vm_open(&vm, SLOT, A, 1);
        vm_call(&vm, p, A);
        call(B);
        back();
        uint64_t last = vm.now - 1;
        vm.lose = 2;
        check_ends(5);
        back();
        work(1000);
        check_ends(2);
        cr_assert_eq(vm.finished_count, 0, "its end may still be under way");
        check_ends(1);
        assert_end_is_lost();
        cr_assert_eq(vm.finished->end_ticks, last);
    }
}

Test(recorder_losses, run_whose_process_died_unseen_ends)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm.compare = false;
        vm_open(&vm, SLOT, A, 1);
        vm_call(&vm, p, A);
        vm.lose = 1;
        vm_exit(&vm, p);
        check_ends(3);
        assert_end_is_lost();
    }
}

Test(recorder_losses, calls_with_lost_ends_are_merged)
{
    struct ember_capture options = vm_options(A);
    options.merge = true;
    start(&vm_layout_27);
    vm.compare = false;
    vm_open_with(&vm, SLOT, A, 2, &options);
    for (int i = 0; i < 2; i++) {
        vm_call(&vm, p, A);
        vm.lose = i == 0;
        vm_return(&vm, p);
        check_ends(3);
    }
    cr_assert_eq(vm.merged_count, 2);
    vm_close(&vm, SLOT);
    cr_assert_eq(vm.finished->calls, 2);
    cr_assert(vm.finished->end_lost);
    vm_fini(&vm);
}

/* A call whose begin was lost is no run; another is captured instead. */
Test(recorder_losses, call_whose_begin_was_lost_is_made_up_for)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm.compare = false;
        vm_open(&vm, SLOT, A, 1);
        vm.lose = 3;
        vm_call(&vm, p, A);
        vm_return(&vm, p);
        cr_assert_eq(vm.lose, 0);
        vm_call(&vm, p, A);
        vm_return(&vm, p);
        cr_assert_eq(vm.finished_count, 1);
        cr_assert_eq(vm.finished->outcome, EMBER_OUTCOME_RETURNED);
    }
}
