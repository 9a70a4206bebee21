/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes that are spawned, die and have names.
 */
#include "random.h"
#include "recorder_test.h"

static struct vm_process *child;

static void spawn_child(void)
{
    call(A);
    child = vm_spawn(&vm, p, 20);
    vm_out(&vm, p);
    run_child(child, B, 30);
    struct vm_process *grandchild = vm_spawn(&vm, child, 21);
    run_child(grandchild, C, 5);
    vm_exit(&vm, grandchild);
    vm_in(&vm, p);
    back();
    run_child(child, D, 2); /* the run still goes on */
}

Test(recorder_processes, children_have_trees_of_their_own)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        capture(spawn_child);
        const struct ember_run *run = vm.finished;
        cr_assert_eq(run->process_count, 3);
        cr_assert_eq(run->processes[1].parent, 0);
        cr_assert_eq(run->processes[2].parent, 1);
        cr_assert_eq(run->processes[0].exited + run->processes[1].exited, 0);
        cr_assert(run->processes[2].exited);
        cr_assert_eq(VM_NODE(&vm, 1, B).own_ticks, 30);
        cr_assert_eq(VM_NODE(&vm, 1, D).own_ticks, 2);
        cr_assert_eq(VM_NODE(&vm, 2, C).own_ticks, 5);
        run_child(child, B, 1000); /* outlives the run, unseen */
        cr_assert_eq(vm.finished_count, 1);
    }
}

Test(recorder_processes, children_are_left_out_where_asked)
{
    ON_EACH_VM(layout)
    {
        struct ember_capture options = vm_options(MAIN);
        options.spawned = false;
        start(layout);
        capture_with(spawn_child, &options);
        cr_assert_eq(vm.finished->process_count, 1);
    }
}

Test(recorder_processes, process_that_dies_ends_its_run)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm_open(&vm, SLOT, MAIN, 2);
        vm_call(&vm, p, MAIN);
        call(A);
        work(4);
        vm_exit(&vm, p);
        cr_assert_eq(vm.finished_count, 1);
        cr_assert_eq(vm.finished->outcome, EMBER_OUTCOME_EXITED);
        cr_assert(vm.finished->processes[0].exited);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).own_ticks, 5);
        vm_call(&vm, p, MAIN); /* the pid's next owner */
        vm_return(&vm, p);
        cr_assert_eq(vm.finished->outcome, EMBER_OUTCOME_RETURNED);
    }
}

Test(recorder_processes, processes_are_told_apart_while_others_die)
{
    enum { CHILDREN = 60 };
    struct vm_process *children[CHILDREN];
    struct random random = {1};
    start(&vm_layout_27);
    vm_open(&vm, SLOT, MAIN, 1);
    vm_call(&vm, p, MAIN);
    for (uint64_t i = 0; i < CHILDREN; i++) {
        children[i] = vm_spawn(&vm, p, random_below(&random, 1 << 26));
        run_child(children[i], A, 1);
    }
    for (uint64_t i = 0; i < CHILDREN; i += 2) {
        vm_exit(&vm, children[i]);
        for (uint64_t other = 1; other < CHILDREN; other += 2)
            run_child(children[other], B, other);
    }
    vm_return(&vm, p);
    for (uint32_t i = 1; i < CHILDREN; i += 2)
        cr_assert_eq(VM_NODE(&vm, i + 1, B).calls, CHILDREN / 2);
    vm_fini(&vm);
}

Test(recorder_processes, names_of_processes_are_kept)
{
    start(&vm_layout_27);
    vm_open(&vm, SLOT, MAIN, 1);
    vm_call(&vm, p, MAIN);
    child = vm_spawn(&vm, p, 20);
    struct ember_event initial = vm_event(&vm, child, EMBER_EVENT_INITIAL);
    initial.stamp |= 3 << EMBER_EVENT_ARITY_SHIFT;
    initial.mfa = vm_mfa(B);
    vm_send(&vm, &initial);
    for (uint64_t i = 0; i < 10; i++) {
        struct ember_event above = vm_event(&vm, child, EMBER_EVENT_ANCESTOR);
        above.stamp |= (i % 2) << EMBER_EVENT_ARITY_SHIFT;
        above.value = 100 + i;
        vm_send(&vm, &above);
    }
    struct ember_event name = vm_event(&vm, p, EMBER_EVENT_REGISTER);
    name.value = 4711;
    vm_send(&vm, &name);
    vm_return(&vm, p);
    cr_assert_eq(vm.finished->processes[0].name, 4711);
    cr_assert_eq(vm.finished->processes[0].initial.module, 0);
    cr_assert_eq(vm.finished->processes[1].initial.function, vm_mfa(B).function);
    cr_assert_eq(vm.finished->processes[1].initial_arity, 3);
    cr_assert_eq(vm.finished->processes[0].ancestor_count, 0);
    cr_assert_eq(vm.finished->processes[1].ancestor_count, EMBER_MOST_ANCESTORS);
    cr_assert_eq(vm.finished->processes[1].ancestors[2].word, 102);
    cr_assert_not(vm.finished->processes[1].ancestors[2].named);
    cr_assert(vm.finished->processes[1].ancestors[3].named);
    cr_assert_eq(vm.finished->processes[1].name, 0);
    vm_fini(&vm);
}
