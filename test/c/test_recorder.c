/* SPDX-License-Identifier: Apache-2.0
 *
 * The recorder on programs that every profile must get right. The model of the
 * VM compares each finished run with what it knows; the tests say the rest.
 */
#include "random.h"
#include "synthetic_vm.h"

enum { MAIN, A, B, C, D, OTHER_MODULE = 8, DEEP = 10000, MANY = 1000000, SLOT = 0 };

static struct vm vm;
static struct vm_process *p;

/* Both ways in which VMs lay their trace frames. */
static const struct ember_stack_layout *const layouts[] = {&vm_layout_25, &vm_layout_27};

static void start(const struct ember_stack_layout *layout)
{
    vm_init(&vm, layout);
    vm.doing = layout->begin_before_call ? "otp 27" : "otp 25";
    p = vm_new_process(&vm, 1);
}

/* Runs `program` inside one captured call of MAIN and returns from it. */
static void capture_with(void (*program)(void), const struct ember_capture *options)
{
    vm_open_with(&vm, SLOT, MAIN, 1, options);
    vm_call(&vm, p, MAIN);
    program();
    if (p->frame_count > 1)
        vm_return(&vm, p);
    cr_assert_eq(vm.finished_count, 1, "%s", vm.doing);
}

static void capture(void (*program)(void))
{
    struct ember_capture options = vm_options(MAIN);
    capture_with(program, &options);
}

#define ON_EACH_VM(layout)                                                           \
    for (size_t layout##_i = 0; layout##_i < 2; layout##_i++, vm_fini(&vm))          \
        for (const struct ember_stack_layout *layout = layouts[layout##_i]; layout;  \
             layout = NULL)

static void work(uint64_t ticks)
{
    vm_work(&vm, p, ticks);
}

static void call(uint32_t function)
{
    vm_call(&vm, p, function);
    work(1);
}

static void tail(uint32_t function)
{
    vm_tail(&vm, p, function);
    work(1);
}

static void back(void)
{
    vm_return(&vm, p);
    work(1);
}

/* ---- Calls --------------------------------------------------------------- */

static void leaf(void)
{
    call(A);
    work(10);
    back();
}

Test(recorder, time_belongs_to_the_stack_before_the_event)
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

Test(recorder, recursion_is_folded_and_unwound)
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

Test(recorder, unfolded_recursion_is_cut_at_the_depth_limit)
{
    ON_EACH_VM(layout)
    {
        struct ember_capture options = vm_options(MAIN);
        options.fold_recursion = false;
        start(layout);
        capture_with(recurse, &options);
        cr_assert_eq(vm.finished->tree.count, NAIVE_MAX_NODE_DEPTH + 1);
        cr_assert_eq(vm.finished->depth_cut, DEEP - (NAIVE_MAX_NODE_DEPTH - 1));
    }
}

static void recurse_mutually(void)
{
    for (int i = 0; i < DEEP; i++)
        call(i % 2 ? A : B);
    for (int i = 0; i < DEEP; i++)
        back();
}

Test(recorder, mutual_recursion_is_unwound_below_the_depth_limit)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        capture(recurse_mutually);
        cr_assert_eq(vm.finished->tree.count, NAIVE_MAX_NODE_DEPTH + 1);
    }
}

/* ---- Tail calls ---------------------------------------------------------- */

static void chain(void)
{
    call(A);
    tail(B);
    tail(C);
    work(100);
    back();
    work(5);
}

Test(recorder, tail_callee_stands_below_its_caller)
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

Test(recorder, functions_that_tail_call_each_other_do_not_grow_the_tree)
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

Test(recorder, server_loop_stands_once)
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

Test(recorder, function_may_call_and_tail_call_another)
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

Test(recorder, smallest_frames_are_told_apart)
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

Test(recorder, exception_unwinds_many_frames)
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

Test(recorder, exception_may_be_followed_by_a_tail_call)
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

Test(recorder, uncaught_exception_ends_the_run)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        capture(throw_out);
        cr_assert_eq(vm.finished->outcome, EMBER_OUTCOME_RAISED);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A, B).own_ticks, 11);
    }
}

/* ---- Collections and words ----------------------------------------------- */

static void allocate(uint32_t words)
{
    vm_allocate(&vm, p, words);
}

static void collect_at(uint32_t start_of_block)
{
    vm_collect(&vm, p, 30, start_of_block, 1000, 40);
}

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

Test(recorder, stack_and_words_survive_collections)
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

Test(recorder, collection_put_off_loses_neither_words_nor_stack)
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

Test(recorder, events_of_each_cost_are_counted)
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

Test(recorder, words_of_a_trace_frame_are_not_missed_in_another_block)
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

Test(recorder, captures_overlap)
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

Test(recorder, captures_of_one_call_are_each_exact)
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

Test(recorder, each_call_has_a_run_of_its_own)
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

Test(recorder, close_cuts_what_is_going_on)
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

Test(recorder, only_the_modules_asked_for_are_shown)
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

Test(recorder, function_not_shown_may_catch_where_its_callers_stand)
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

Test(recorder, functions_not_shown_do_not_part_a_chain)
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

Test(recorder, untraced_functions_belong_to_their_callers)
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

Test(recorder, our_own_target_is_not_shown)
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

/* ---- Processes ----------------------------------------------------------- */

static void run_child(struct vm_process *child, uint32_t function, uint64_t ticks)
{
    vm_in(&vm, child);
    vm_call(&vm, child, function);
    vm_work(&vm, child, ticks);
    vm_return(&vm, child);
    vm_out(&vm, child);
}

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

Test(recorder, children_have_trees_of_their_own)
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

Test(recorder, children_are_left_out_where_asked)
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

Test(recorder, process_that_dies_ends_its_run)
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

Test(recorder, processes_are_told_apart_while_others_die)
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

Test(recorder, names_of_processes_are_kept)
{
    start(&vm_layout_27);
    vm_open(&vm, SLOT, MAIN, 1);
    vm_call(&vm, p, MAIN);
    child = vm_spawn(&vm, p, 20);
    struct ember_event initial = vm_event(&vm, child, EMBER_EVENT_INITIAL);
    initial.stamp |= 3 << 4;
    initial.mfa = vm_mfa(B);
    vm_send(&vm, &initial);
    struct ember_event name = vm_event(&vm, p, EMBER_EVENT_REGISTER);
    name.value = 4711;
    vm_send(&vm, &name);
    vm_return(&vm, p);
    cr_assert_eq(vm.finished->processes[0].name, 4711);
    cr_assert_eq(vm.finished->processes[0].initial.module, 0);
    cr_assert_eq(vm.finished->processes[1].initial.function, vm_mfa(B).function);
    cr_assert_eq(vm.finished->processes[1].initial_arity, 3);
    cr_assert_eq(vm.finished->processes[1].name, 0);
    vm_fini(&vm);
}

/* ---- Limits -------------------------------------------------------------- */

Test(recorder, capture_over_its_memory_limit_is_closed)
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

Test(recorder, dead_children_take_no_memory_for_their_stacks)
{
    start(&vm_layout_27);
    vm.compare = false; /* the naive tree is slow with so many */
    capture(spawn_many);
    cr_assert_eq(vm.finished->track_bytes, 0);
    cr_assert_eq(vm.finished->process_count, 5001);
    vm_fini(&vm);
}

/* ---- Losses -------------------------------------------------------------- */

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

Test(recorder, stack_is_right_again_after_a_loss)
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

Test(recorder, frames_whose_returns_were_lost_are_gone)
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

Test(recorder, process_that_calls_is_neither_collecting_nor_out)
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

Test(recorder, return_is_not_taken_for_an_exception)
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

Test(recorder, frames_seen_without_a_block_go_with_their_callers)
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

Test(recorder, heap_top_that_went_back_is_no_growth)
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

Test(recorder, what_lives_after_a_collection_is_not_allocated)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm.compare = false;
        capture(lose_the_start_of_a_collection);
        cr_assert_eq(VM_NODE(&vm, 0, MAIN, A).words, 0);
    }
}

Test(recorder, stack_pointer_outside_the_block_tells_nothing)
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

Test(recorder, pid_that_is_spawned_again_is_another_process)
{
    ON_EACH_VM(layout)
    {
        start(layout);
        vm.compare = false;
        vm_open(&vm, SLOT, MAIN, 1);
        vm_call(&vm, p, MAIN);
        child = vm_spawn(&vm, p, 20);
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

Test(recorder, losses_before_a_run_are_not_its_own)
{
    start(&vm_layout_27);
    vm.lost = 1000;
    vm.compare = false;
    capture(lose_a_subtree);
    cr_assert_eq(vm.finished->lost, 5);
    vm_fini(&vm);
}

/* ---- Without stack pointer and block ------------------------------------- */

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

Test(recorder, stacks_follow_return_to_where_there_is_no_stack_pointer)
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

Test(recorder, loops_do_not_grow_where_there_is_no_stack_pointer)
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

Test(recorder, recursion_after_a_return_is_no_loop)
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
    event.stamp |= arity << 4;
    event.mfa = vm_mfa(function);
    vm_send(&vm, &event);
    event.stamp = ember_event_stamp(vm.now, vm_arity(MAIN), EMBER_EVENT_RETURN_TO);
    event.mfa = vm_mfa(MAIN);
    vm_send(&vm, &event);
}

Test(recorder, functions_differ_by_arity)
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

Test(recorder, words_are_balanced_at_collections_where_the_block_is_unknown)
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
