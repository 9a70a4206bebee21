/* SPDX-License-Identifier: Apache-2.0
 *
 * Random programs on the model of the VM: whatever processes do, the trees
 * that the recorder rebuilds from events are those that the model knows.
 * EMBER_SEED chooses the first program, EMBER_ROUNDS how many, EMBER_PRINT
 * shows the events.
 */
#include "lossy_stacks.h"
#include "random.h"

#include <stdio.h>

enum {
    FUNCTIONS = 28,
    STEPS = 120,
    MOST_DEPTH = 40,
    DEFAULT_ROUNDS = 20000,
    UNTRACED_FROM = 24, /* these functions have no breakpoint */
    WINDOW = 8,         /* its slot */
};

struct program {
    struct random random;
    struct vm vm;
    uint32_t functions; /* few of them make recursion likely */
    bool windows;       /* from time to time there is one */
    bool told;          /* this VM tells of caught exceptions */
    struct vm_process *running;
};

static bool one_in(struct program *program, uint32_t n)
{
    return random_below(&program->random, n) == 0;
}

/* Where it is unclear what an exception has left of the stack, a function that
 * is not traced could hide it for ever; and it could stand where a frame was that a
 * window had found. */
static uint32_t any_function(struct program *program)
{
    bool traced = program->running->unclear || program->windows;
    if (!traced && one_in(program, 8))
        return UNTRACED_FROM + random_below(&program->random, FUNCTIONS - UNTRACED_FROM);
    return random_below(&program->random, program->functions);
}

static void time_passes(struct program *program)
{
    vm_work(&program->vm, program->running, random_below(&program->random, 100));
    if (one_in(program, 3))
        vm_allocate(&program->vm, program->running, random_below(&program->random, 60));
}

/* A function may trim its frame but not enlarge it. */
static uint32_t frame_size(struct program *program)
{
    const struct vm_frame *top = vm_top(program->running);
    uint32_t size = top->sized ? top->size : random_below(&program->random, 6);
    return one_in(program, 4) ? random_below(&program->random, size + 1) : size;
}

/* Where a frame of which no event told has returned, a call at its very depth looks like
 * its tail call. */
static bool is_ambiguous(const struct program *program, uint32_t size)
{
    const struct vm_frame *top = vm_top(program->running);
    return top->left_silently && (!top->sized || size == top->size);
}

static void call(struct program *program)
{
    uint32_t size = frame_size(program);
    if (is_ambiguous(program, size) && size-- == 0)
        return;
    if (program->running->frame_count < MOST_DEPTH)
        vm_call_from(&program->vm, program->running, size, any_function(program));
}

static void tail_call(struct program *program)
{
    if (program->running->frame_count > 1)
        vm_tail(&program->vm, program->running, any_function(program));
}

static void return_some(struct program *program, uint32_t most)
{
    struct vm_process *p = program->running;
    for (uint32_t i = random_below(&program->random, most) + 1; i > 0 && p->frame_count > 1; i--) {
        vm_return(&program->vm, p);
        time_passes(program);
    }
}

static void throw(struct program * program)
{
    struct vm_process *p = program->running;
    if (p->frame_count < 2)
        return;
    vm_top(p)->size = frame_size(program);
    vm_throw(&program->vm, p, random_below(&program->random, p->frame_count - 1), program->told);
}

static void collect(struct program *program)
{
    uint32_t words = 100 + random_below(&program->random, 2000);
    uint32_t start = (uint32_t)random_next(&program->random) | 1;
    uint32_t live = random_below(&program->random, 100);
    vm_collect(&program->vm, program->running, random_below(&program->random, 500), start, words,
               live);
}

/* It could not be told in which block tracing has allocated words of its own,
 * here and in spawn. */
static void displace(struct program *program)
{
    if (program->running->new_tracer_words || program->running->unclear)
        return;
    uint32_t start = (uint32_t)random_next(&program->random) | 1;
    vm_displace(program->running, start, random_below(&program->random, 50));
}

static uint32_t *some_modules(struct program *program, uint32_t *count)
{
    uint32_t *modules = malloc(3 * sizeof *modules);
    *count = 0;
    for (uint32_t function = 0; function < UNTRACED_FROM; function += 8)
        if (one_in(program, 2))
            modules[(*count)++] = vm_mfa(function).module;
    return modules;
}

static bool is_clear(const struct vm_process *p)
{
    return !p->unclear && p->stack_count < VM_MOST_STACKS - 2;
}

static bool all_are_clear(const struct vm *vm)
{
    bool clear = true;
    for (uint32_t i = 0; i < vm->process_count; i++)
        clear &= is_clear(vm->processes[i]);
    return clear;
}

/* While no process runs. */
static void open_window(struct program *program)
{
    struct vm *vm = &program->vm;
    if (!program->windows || vm->captures[WINDOW].open || !one_in(program, 2) || !all_are_clear(vm))
        return;
    struct ember_capture options = vm_options(0);
    options.timeline = vm->seed & 1;
    options.fold_recursion = one_in(program, 2);
    options.spawned = !one_in(program, 4);
    if (one_in(program, 4))
        options.modules = some_modules(program, &options.module_count);
    vm_open_window(vm, WINDOW, &options);
}

/* Tracing begins anew when nobody records. */
static void close_window(struct program *program)
{
    struct vm *vm = &program->vm;
    if (vm->captures[WINDOW].open && one_in(program, 2))
        vm_close(vm, WINDOW);
    if (vm->run_count == 0 && one_in(program, 2))
        vm_new_session(vm);
}

/* Another process runs. */
static void reschedule(struct program *program)
{
    struct vm *vm = &program->vm;
    if (program->running->unclear)
        return;
    vm_out(vm, program->running);
    close_window(program);
    open_window(program);
    vm_work(vm, program->running, random_below(&program->random, 1000));
    program->running = vm->processes[random_below(&program->random, vm->process_count)];
    vm_in(vm, program->running);
}

static void spawn(struct program *program)
{
    struct vm *vm = &program->vm;
    if (vm->process_count < 6 && !program->running->unclear && !program->running->new_block)
        vm_spawn(vm, program->running, vm->process_count + 10);
}

static void leave_for_good(struct program *program)
{
    if (program->running->unclear || !program->running->stack_count)
        return;
    vm_out(&program->vm, program->running); /* nothing allocated is left to be seen */
    vm_in(&program->vm, program->running);
    vm_exit(&program->vm, program->running);
}

static void step(struct program *program)
{
    uint32_t dice = random_below(&program->random, 100);
    time_passes(program);
    if (dice < 40)
        call(program);
    else if (dice < 60)
        tail_call(program);
    else if (dice < 80)
        return_some(program, 3);
    else if (dice < 86)
        throw(program);
    else if (dice < 90)
        collect(program);
    else if (dice < 91)
        displace(program);
    else if (dice < 95)
        reschedule(program);
    else if (dice < 97)
        spawn(program);
    else if (dice < 98)
        leave_for_good(program);
    else
        return_some(program, MOST_DEPTH);
}

static void open_captures(struct program *program)
{
    uint32_t count = 1 + random_below(&program->random, 3);
    for (uint32_t slot = 0; slot < count; slot++) {
        bool ours = one_in(program, 5); /* our own function: neither traced nor shown */
        uint32_t target =
            ours ? UNTRACED_FROM + random_below(&program->random, FUNCTIONS - UNTRACED_FROM)
                 : random_below(&program->random, program->functions);
        struct ember_capture options = vm_options(target);
        options.timeline = program->vm.seed & 1;
        options.hide_target = ours;
        options.fold_recursion = one_in(program, 2);
        options.spawned = !one_in(program, 4);
        if (one_in(program, 4))
            options.modules = some_modules(program, &options.module_count);
        vm_open_with(&program->vm, slot, target, 1 + random_below(&program->random, 3), &options);
    }
}

/* Some events are lost now and then, many at once or a few. */
static void lose_some(struct program *program)
{
    if (one_in(program, 20))
        program->vm.lose = random_below(&program->random, one_in(program, 4) ? 60 : 3);
}

/* Every stack that is shown is true, and no run stays open whose call is over. */
static void check_losses(struct program *program)
{
    struct vm *vm = &program->vm;
    lossy_check(vm, program->running);
    if (!one_in(program, 10))
        return;
    for (int calls = 0; calls < 3; calls++)
        ember_recorder_check_ends(&vm->recorder);
    for (uint32_t i = 0; i < vm->run_count; i++)
        cr_assert_not(vm->runs[i]->ended, "seed %lu %s: a run is open", (unsigned long)vm->seed,
                      vm->doing);
}

static uint32_t run_program(uint64_t seed, bool lossy)
{
    static struct program program;
    program.random.state = seed;
    bool old = one_in(&program, 2);
    vm_init(&program.vm, old ? &vm_layout_25 : &vm_layout_27);
    program.vm.seed = seed;
    program.vm.doing = old ? "otp 25" : "otp 27";
    program.functions = 2 + random_below(&program.random, UNTRACED_FROM - 2);
    program.vm.compare = !lossy;
    program.told = !one_in(&program, 4);
    program.windows = one_in(&program, 3);
    for (uint32_t function = UNTRACED_FROM; function < FUNCTIONS; function++)
        program.vm.untraced[function] = true;
    program.running = vm_new_process(&program.vm, 1);
    open_captures(&program);
    for (int i = 0; i < STEPS; i++) {
        if (lossy)
            lose_some(&program);
        step(&program);
        if (lossy)
            check_losses(&program);
    }
    uint32_t finished = program.vm.finished_count;
    vm_fini(&program.vm);
    return finished;
}

static uint64_t run_programs(bool lossy)
{
    uint64_t first = random_setting("EMBER_SEED", 1);
    uint64_t rounds = random_setting("EMBER_ROUNDS", DEFAULT_ROUNDS);
    uint64_t finished = 0;
    for (uint64_t seed = first; seed < first + rounds; seed++)
        finished += run_program(seed, lossy);
    printf("%lu programs from seed %lu: %lu runs\n", (unsigned long)rounds, (unsigned long)first,
           (unsigned long)finished);
    return finished * 4 / rounds;
}

Test(recorder_model, trees_are_those_of_the_model, .timeout = 600)
{
    cr_assert_gt(run_programs(false), 0, "too few runs to tell");
}

/* The model checks besides that the time of each run adds up, and that no words come
 * from nowhere. */
Test(recorder_model, stacks_and_sums_hold_when_events_are_lost, .timeout = 600)
{
    cr_assert_gt(run_programs(true), 0, "too few runs to tell");
}
