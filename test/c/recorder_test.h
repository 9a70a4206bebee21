/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of the recorder have in common: one process on the model of the
 * VM, in a captured call of MAIN. The model compares each finished run with what
 * it knows; the tests say the rest.
 */
#ifndef EMBER_TEST_RECORDER_TEST_H
#define EMBER_TEST_RECORDER_TEST_H

#include "synthetic_vm.h"

enum { MAIN, A, B, C, D, OTHER_MODULE = 8, DEEP = 10000, MANY = 1000000, SLOT = 0 };

static struct vm vm;
static struct vm_process *p;

/* Both ways in which VMs lay their trace frames. */
static const struct ember_stack_layout *const layouts[] = {&vm_layout_25, &vm_layout_27};

static inline void start(const struct ember_stack_layout *layout)
{
    vm_init(&vm, layout);
    vm.doing = layout->begin_before_call ? "otp 27" : "otp 25";
    p = vm_new_process(&vm, 1);
}

/* Runs `program` inside one captured call of MAIN and returns from it. */
static inline void capture_with(void (*program)(void), const struct ember_capture *options)
{
    vm_open_with(&vm, SLOT, MAIN, 1, options);
    vm_call(&vm, p, MAIN);
    program();
    if (p->frame_count > 1)
        vm_return(&vm, p);
    cr_assert_eq(vm.finished_count, 1, "%s", vm.doing);
}

static inline void capture(void (*program)(void))
{
    struct ember_capture options = vm_options(MAIN);
    capture_with(program, &options);
}

#define ON_EACH_VM(layout) \
    for (size_t layout##_i = 0; layout##_i < 2; layout##_i++, vm_fini(&vm)) \
        for (const struct ember_stack_layout *layout = layouts[layout##_i]; layout; layout = NULL)

static inline void work(uint64_t ticks)
{
    vm_work(&vm, p, ticks);
}

static inline void call(uint32_t function)
{
    vm_call(&vm, p, function);
    work(1);
}

static inline void tail(uint32_t function)
{
    vm_tail(&vm, p, function);
    work(1);
}

static inline void back(void)
{
    vm_return(&vm, p);
    work(1);
}

static inline void leaf(void)
{
    call(A);
    work(10);
    back();
}

static inline void chain(void)
{
    call(A);
    tail(B);
    tail(C);
    work(100);
    back();
    work(5);
}

static inline void allocate(uint32_t words)
{
    vm_allocate(&vm, p, words);
}

static inline void collect_at(uint32_t start_of_block)
{
    vm_collect(&vm, p, 30, start_of_block, 1000, 40);
}

static inline void run_child(struct vm_process *child, uint32_t function, uint64_t ticks)
{
    vm_in(&vm, child);
    vm_call(&vm, child, function);
    vm_work(&vm, child, ticks);
    vm_return(&vm, child);
    vm_out(&vm, child);
}

#endif
