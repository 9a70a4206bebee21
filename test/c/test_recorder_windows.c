/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes that are recorded from the middle of what they do, for a while.
 */
#include "recorder_test.h"

enum { WINDOW = 3 };

static void open_window(void)
{
    struct ember_capture options = vm_options(MAIN);
    vm_open_window(&vm, WINDOW, &options);
}

/* A process that is in A, called by MAIN, and scheduled out. */
static void start_in_the_middle(const struct ember_stack_layout *layout)
{
    start(layout);
    vm_call(&vm, p, MAIN);
    vm_call(&vm, p, A);
    vm_out(&vm, p);
    work(100);
    open_window();
    work(20);
}

static void close_window(void)
{
    vm_close(&vm, WINDOW);
    cr_assert_eq(vm.finished_count, 1);
    cr_assert_eq(vm.finished->outcome, EMBER_OUTCOME_RECORDED);
}

Test(recorder_windows, a_process_that_does_nothing_is_there)
{
    ON_EACH_VM(layout)
    {
        start_in_the_middle(layout);
        close_window();
        cr_assert_eq(vm.finished->process_count, 1);
        cr_assert_eq(VM_NODE(&vm, 0, EMBER_UNKNOWN).off_cpu_ticks, 20);
    }
}

Test(recorder_windows, stacks_are_known_when_it_runs)
{
    ON_EACH_VM(layout)
    {
        start_in_the_middle(layout);
        vm_in(&vm, p);
        work(5);
        call(B);
        back();
        close_window();
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).off_cpu_ticks, 20, "from the window's begin on");
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).own_ticks, 6);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).calls, 0);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B).calls, 1);
        cr_assert_eq(VM_NODE(&vm, 0, EMBER_UNKNOWN).own_ticks, 0);
    }
}

/* No event tells of the return: it shows at the next call. */
Test(recorder_windows, old_frames_return)
{
    ON_EACH_VM(layout)
    {
        start_in_the_middle(layout);
        vm_in(&vm, p);
        vm_return(&vm, p);
        vm_call_from(&vm, p, 1, B);
        work(7);
        close_window();
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, B).calls, 1);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, B).own_ticks, 7);
    }
}

Test(recorder_windows, old_frames_that_wait_are_cut_by_the_stack)
{
    ON_EACH_VM(layout)
    {
        start_in_the_middle(layout);
        vm_in(&vm, p);
        vm_return(&vm, p);
        vm_out(&vm, p);
        work(30);
        close_window();
        cr_assert_eq(VM_NODE(&vm, 0, MAIN).off_cpu_ticks, 30);
    }
}

/* At the depth of an old frame its tail call looks like a call of its caller; where it
 * was one, the name shows when the callee returns. */
Test(recorder_windows, a_call_in_place_of_an_old_frame_is_put_right)
{
    ON_EACH_VM(layout)
    {
        start_in_the_middle(layout);
        vm.compare = false;
        vm_in(&vm, p);
        vm_return(&vm, p);
        call(B);
        back();
        call(C);
        back();
        close_window();
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B).calls, 1);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, C).calls, 1);
    }
}

Test(recorder_windows, old_frames_are_left_by_tail_calls)
{
    ON_EACH_VM(layout)
    {
        start_in_the_middle(layout);
        vm_in(&vm, p);
        tail(B);
        tail(C);
        back();
        call(D);
        back();
        close_window();
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B, C).calls, 1);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, D).calls, 1);
    }
}

Test(recorder_windows, captures_of_the_same_process_are_right)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm_open(&vm, SLOT, MAIN, 1);
        vm_call(&vm, p, MAIN);
        work(3);
        call(A);
        vm_out(&vm, p);
        work(50);
        open_window();
        work(20);
        vm_in(&vm, p);
        leaf();
        close_window();
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).off_cpu_ticks, 20, "since the window began");
        call(B);
        back();
        back();
        vm_return(&vm, p);
        cr_assert_eq(vm.finished_count, 2);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).off_cpu_ticks, 70);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B).calls, 1);
    }
}

Test(recorder_windows, children_take_part)
{
    ON_EACH_VM(layout)
    {
        start_in_the_middle(layout);
        vm_in(&vm, p);
        struct vm_process *child = vm_spawn(&vm, p, 2);
        run_child(child, C, 9);
        vm_exit(&vm, child);
        close_window();
        cr_assert_eq(vm.finished->process_count, 2);
        cr_assert(vm.finished->processes[1].exited);
        cr_assert_eq(VM_NODE(&vm, 1, C).own_ticks, 9);
    }
}

Test(recorder_windows, a_member_that_dies_leaves_the_others)
{
    ON_EACH_VM(layout)
    {
        start_in_the_middle(layout);
        vm_in(&vm, p);
        vm_exit(&vm, p);
        work(10);
        close_window();
        cr_assert(vm.finished->processes[0].exited);
    }
}

/* Without frames of a walk, what runs is named by how it is scheduled, and by returns. */
Test(recorder_windows, names_are_found_without_a_walk)
{
    ON_EACH_VM(layout)
    {
        start_in_the_middle(layout);
        vm.compare = false;
        p->arrives = false;
        vm_in(&vm, p);
        work(4);
        call(B);
        back();
        close_window();
        cr_assert_eq(VM_NODE(&vm, 0, EMBER_UNKNOWN).off_cpu_ticks, 20);
        cr_assert_eq(VM_NODE(&vm, 0, EMBER_UNKNOWN, A).own_ticks, 5);
        cr_assert_eq(VM_NODE(&vm, 0, EMBER_UNKNOWN, A, B).calls, 1);
    }
}

/* Frames that were lost make all of them doubtful. */
Test(recorder_windows, a_walk_with_losses_is_not_believed)
{
    ON_EACH_VM(layout)
    {
        start_in_the_middle(layout);
        vm.compare = false;
        vm.lose = 3; /* two of the block, one frame */
        vm_in(&vm, p);
        call(B);
        close_window();
        cr_assert_eq(VM_NODE(&vm, 0, EMBER_UNKNOWN, A, B).calls, 1);
    }
}

/* ---- What windows leave behind ------------------------------------------------ */

static void start_after_a_window(const struct ember_stack_layout *layout, bool anew)
{
    start_in_the_middle(layout);
    vm_in(&vm, p);
    tail(B);
    vm_out(&vm, p);
    close_window();
    if (anew)
        vm_new_session(&vm);
}

/* The VM pushes no frame for the returns of the tail calls, since it is there; or, where it
 * is another session's, one more. */
static void capture_after_a_window(bool anew)
{
    ON_EACH_VM(layout)
    {
        start_after_a_window(layout, anew);
        vm_open(&vm, SLOT, C, 1);
        vm_in(&vm, p);
        vm_tail(&vm, p, C);
        tail(D);
        vm_call_from(&vm, p, 0, A);
        work(5);
        vm_return(&vm, p);
        tail(B);
        vm_return(&vm, p);
        cr_assert_eq(vm.finished_count, 2);
        cr_assert_eq(VM_NODE(&vm, 0, C, D, A).own_ticks, 5);
        cr_assert_eq(VM_NODE(&vm, 0, C, D, B).calls, 1);
    }
}

Test(recorder_windows, a_call_is_captured_in_a_chain_that_was_traced_before)
{
    capture_after_a_window(false);
    capture_after_a_window(true);
}

static void record_after_a_window(bool anew)
{
    ON_EACH_VM(layout)
    {
        start_after_a_window(layout, anew);
        open_window();
        vm_in(&vm, p);
        tail(C);
        tail(D);
        vm_call_from(&vm, p, 1, A);
        vm_return(&vm, p);
        tail(MAIN);
        vm_close(&vm, WINDOW);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, B, C, D, A).calls, 1);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, B, C, D, MAIN).calls, 1);
    }
}

Test(recorder_windows, a_chain_that_was_traced_before_is_found_again)
{
    record_after_a_window(false);
    record_after_a_window(true);
}

/* It has a frame for the end of the captured call, and none for return_to. */
Test(recorder_windows, an_old_captured_call_returns)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm_call(&vm, p, MAIN);
        vm_open(&vm, SLOT, A, 1);
        vm_call(&vm, p, A);
        vm_out(&vm, p);
        open_window();
        vm_in(&vm, p);
        vm_return(&vm, p);
        work(8);
        call(B);
        vm_close(&vm, WINDOW);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN).own_ticks, 8);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, B).calls, 1);
    }
}

/* ---- Losses ------------------------------------------------------------------- */

static void lossy_window(const struct ember_stack_layout *layout)
{
    start_in_the_middle(layout);
    vm.compare = false;
}

/* Calls that were lost are found by the walk. */
Test(recorder_windows, a_walk_tells_what_was_lost_before_it)
{
    ON_EACH_VM(layout)
    {
        lossy_window(layout);
        vm_in(&vm, p);
        vm.lose = 4; /* the call, the block and that it is scheduled out */
        call(B);
        vm_out(&vm, p);
        close_window();
        open_window();
        vm_in(&vm, p);
        call(C);
        vm_close(&vm, WINDOW);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B, C).calls, 1);
    }
}

/* The frames were told of, but not the event that they belong to. */
Test(recorder_windows, a_walk_without_its_event_is_none)
{
    ON_EACH_VM(layout)
    {
        lossy_window(layout);
        vm_tell_block(&vm, p);
        vm_emit_stack(&vm, p);
        p->arrives = false;
        vm.lose = 6; /* two of the block each time */
        vm_in(&vm, p);
        vm_return(&vm, p);
        vm_out(&vm, p);
        vm_in(&vm, p);
        call(B);
        vm_close(&vm, WINDOW);
        cr_assert_eq(VM_NODE(&vm, 0, EMBER_UNKNOWN, MAIN, B).calls, 1);
    }
}

/* At the depth of an old frame something was called, by it or after its return. */
Test(recorder_windows, old_frames_are_doubtful_after_losses)
{
    ON_EACH_VM(layout)
    {
        lossy_window(layout);
        vm_in(&vm, p);
        vm_return(&vm, p);
        vm.lose = 2;
        call(B);
        back();
        call(C);
        vm_close(&vm, WINDOW);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, EMBER_UNKNOWN, C).calls, 1);
    }
}

/* ---- What counts begins later -------------------------------------------- */

Test(recorder_windows, what_was_before_it_began_again_is_forgotten)
{
    ON_EACH_VM(layout)
    {
        start_in_the_middle(layout);
        vm.compare = false;
        vm_in(&vm, p);
        call(B);
        work(30);
        cr_assert_eq(ember_recorder_restart_window(&vm.recorder, WINDOW, vm.now, UINT64_MAX), 2);
        work(4);
        back();
        call(C);
        back();
        close_window();
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).off_cpu_ticks, 0);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B).calls, 0);
        cr_assert_geq(VM_NODE(&vm, 0, MAIN, A, B).own_ticks, 4);
        cr_assert_lt(VM_NODE(&vm, 0, MAIN, A, B).own_ticks, 30);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, C).calls, 1);
        cr_assert_lt(vm.finished->duration_ticks, 30);
    }
}

Test(recorder_windows, it_lasts_as_long_as_is_said_then)
{
    ON_EACH_VM(layout)
    {
        start_in_the_middle(layout);
        vm.compare = false;
        vm_in(&vm, p);
        work(1000);
        ember_recorder_restart_window(&vm.recorder, WINDOW, vm.now, 50);
        work(20);
        call(B);
        ember_recorder_check_memory(&vm.recorder);
        cr_assert_eq(vm.finished_count, 0);
        work(40);
        back();
        ember_recorder_check_memory(&vm.recorder);
        cr_assert_eq(vm.finished_count, 1);
    }
}

Test(recorder_windows, no_window_begins_again)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        cr_assert_eq(ember_recorder_restart_window(&vm.recorder, WINDOW, vm.now, 50), 0);
    }
}
