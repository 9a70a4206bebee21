/* SPDX-License-Identifier: Apache-2.0
 *
 * Captures whose calls are merged as they end.
 */
#include "recorder_test.h"

static void start_merging(const struct ember_stack_layout *layout, uint32_t calls)
{
    struct ember_capture options = vm_options(MAIN);
    options.merge = true;
    start(layout);
    vm_open_with(&vm, SLOT, MAIN, calls, &options);
}

static void call_main(uint32_t leaves)
{
    vm_call(&vm, p, MAIN);
    for (uint32_t i = 0; i < leaves; i++)
        leaf();
    vm_return(&vm, p);
}

Test(recorder_merge, calls_of_a_capture_are_one_run)
{
    ON_EACH_VM(layout)
    {
        start_merging(layout, 3);
        uint64_t ticks = 0;
        for (uint32_t leaves = 1; leaves <= 3; leaves++) {
            uint64_t begin = vm.now;
            call_main(leaves);
            ticks += vm.now - begin;
            work(1000); /* between the calls: nobody's */
        }
        cr_assert_eq(vm.merged_count, 3);
        cr_assert_eq(vm.finished_count, 0);
        vm_close(&vm, SLOT);
        cr_assert_eq(vm.finished_count, 1);
        cr_assert_eq(vm.finished->calls, 3);
        cr_assert_eq(vm.finished->tree.count, 3, "root, MAIN, A");
        cr_assert_eq(vm.finished->duration_ticks, ticks);
        cr_assert_eq(vm_process_ticks(vm.finished, 0), ticks);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN).calls, 3);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).calls, 6);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).own_ticks, 66);
        cr_assert_eq(vm.finished->outcome, EMBER_OUTCOME_RETURNED);
    }
}

Test(recorder_merge, what_is_unfinished_stays_apart)
{
    ON_EACH_VM(layout)
    {
        start_merging(layout, 2);
        call_main(1);
        vm_call(&vm, p, MAIN);
        leaf();
        vm_close(&vm, SLOT);
        cr_assert_eq(vm.finished_count, 2);
        cr_assert_eq(vm.finished->outcome, EMBER_OUTCOME_UNFINISHED);
        cr_assert_eq(vm.finished->calls, 1);
    }
}

Test(recorder_merge, processes_stand_apart)
{
    ON_EACH_VM(layout)
    {
        enum { PROCESSES = 20 };
        start_merging(layout, 2 * PROCESSES);
        for (uint32_t i = 0; i < 2 * PROCESSES; i++) {
            p = i < PROCESSES ? vm_new_process(&vm, 10 + i) : vm.processes[1 + i - PROCESSES];
            call_main(i % PROCESSES == 7 ? 2 : 1);
        }
        vm_close(&vm, SLOT);
        cr_assert_eq(vm.finished->process_count, PROCESSES);
        cr_assert_eq(VM_NODE(&vm, 7, MAIN, A).calls, 4);
        cr_assert_eq(VM_NODE(&vm, 8, MAIN, A).calls, 2);
    }
}

static void call_with_child(uint64_t pid)
{
    vm_call(&vm, p, MAIN);
    struct vm_process *child = vm_spawn(&vm, p, pid);
    run_child(child, B, 30);
    vm_exit(&vm, child);
    vm_return(&vm, p);
    work(1);
}

/* The pid is used again, after its first process has died. */
Test(recorder_merge, processes_of_one_pid_stand_apart)
{
    ON_EACH_VM(layout)
    {
        start_merging(layout, 3);
        call_with_child(20);
        call_with_child(20);
        call_with_child(21);
        vm_close(&vm, SLOT);
        cr_assert_eq(vm.finished->process_count, 4);
        for (uint32_t child = 1; child < 4; child++) {
            cr_assert_eq(vm.finished->processes[child].parent, 0);
            cr_assert_eq(VM_NODE(&vm, child, B).calls, 1);
        }
    }
}

Test(recorder_merge, losses_count_once)
{
    ON_EACH_VM(layout)
    {
        struct vm_process *processes[10];
        start_merging(layout, 10);
        for (int i = 0; i < 10; i++) {
            processes[i] = vm_new_process(&vm, 10 + (uint64_t)i);
            vm_call(&vm, processes[i], MAIN);
        }
        vm.lost += 5;
        for (int i = 0; i < 10; i++)
            vm_return(&vm, processes[i]);
        vm_close(&vm, SLOT);
        cr_assert_eq(vm.finished->lost, 5);
    }
}

Test(recorder_merge, memory_is_by_stacks_and_not_by_calls)
{
    ON_EACH_VM(layout)
    {
        start_merging(layout, 10000);
        vm.kept_bytes = 1000;
        vm.recorder.captures[SLOT].memory_limit = 10000;
        for (uint32_t i = 0; i < 1000; i++)
            call_main(1);
        ember_recorder_check_memory(&vm.recorder);
        cr_assert_eq(vm.limit_count, 0);
    }
}

Test(recorder_merge, what_was_given_out_counts_for_the_limit)
{
    ON_EACH_VM(layout)
    {
        struct ember_capture options = vm_options(MAIN);
        start(layout);
        options.memory_limit = 10000;
        vm_open_with(&vm, SLOT, MAIN, 100, &options);
        vm.kept_bytes = 1000;
        for (uint32_t i = 0; i < 10; i++)
            call_main(1);
        ember_recorder_check_memory(&vm.recorder);
        cr_assert_eq(vm.limit_count, 0);
        call_main(1);
        ember_recorder_check_memory(&vm.recorder);
        cr_assert_eq(vm.limit_count, 1);
    }
}
