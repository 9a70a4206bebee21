/* SPDX-License-Identifier: Apache-2.0
 *
 * How many events a second one core turns into call trees: rings are filled
 * beforehand with the events of a synthetic program, then drained.
 *
 * The program walks up and down in 2,000 functions, 6 to 20 deep, in four
 * processes, each with a ring; half of the events are calls.
 */
#include "clock.h"
#include "merge.h"
#include "recorder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define RINGS 4
#define CAPACITY (1u << 14) /* as in the product */
#define ROUNDS 240
#define MAX_DEPTH 20
#define HEAP_START 16u /* word addresses */
#define HEAP_END (HEAP_START + (1u << 16))
#define STACK_BASE (1u << 20)
#define LAYOUT \
    { \
        .return_to_words = 2, .begin_words = 4, .begin_before_call = true \
    }

struct process {
    uint64_t pid;
    uint32_t depth;
    uint32_t functions[MAX_DEPTH];
    uint32_t sp[MAX_DEPTH];
    uint32_t hp;
};

static uint64_t now;
static uint64_t seed = 1;

static uint32_t random_below(uint32_t limit)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33) % limit;
}

static void write_event(struct ember_ring *ring, struct process *process,
                        enum ember_event_kind kind, uint64_t value, uint32_t sp)
{
    struct ember_event *event = ember_ring_reserve(ring);
    now += 100;
    event->stamp = ember_event_stamp(now, 2, kind);
    event->pid = process->pid;
    event->value = value;
    event->hp = process->hp += 6;
    event->sp = sp;
    ember_ring_commit(ring);
}

/* The heap is full: a collection leaves nothing. */
static void collect(struct ember_ring *ring, struct process *process)
{
    uint32_t sp = process->depth ? process->sp[process->depth - 1] : STACK_BASE;
    write_event(ring, process, EMBER_EVENT_GC_START, process->hp - HEAP_START, sp);
    process->hp = HEAP_START;
    write_event(ring, process, EMBER_EVENT_GC_END, 0, sp);
}

/* Forty functions a module; the words look like atoms'. */
static uint64_t mfa(uint32_t function)
{
    return (uint64_t)(function * 64 + 11) << 32 | (function / 40 * 64 + 11);
}

/* A caller mostly calls the same callee, so stacks repeat as they do in life. */
static void call(struct ember_ring *ring, struct process *process)
{
    uint32_t depth = process->depth++;
    uint32_t caller = depth ? process->functions[depth - 1] : 1;
    process->functions[depth] = (caller * 3 + (random_below(8) == 0)) % 2000;
    process->sp[depth] = (depth ? process->sp[depth - 1] : STACK_BASE) - 6;
    write_event(ring, process, EMBER_EVENT_CALL, mfa(process->functions[depth]),
                process->sp[depth]);
}

static void return_to(struct ember_ring *ring, struct process *process)
{
    uint32_t depth = --process->depth;
    uint32_t caller = depth ? process->functions[depth - 1] : 1;
    write_event(ring, process, EMBER_EVENT_RETURN_TO, mfa(caller), process->sp[depth] - 1);
}

static void step(struct ember_ring *ring, struct process *process)
{
    if (process->hp > HEAP_END)
        collect(ring, process);
    bool down = process->depth < 6 || (process->depth < MAX_DEPTH && random_below(2));
    if (down)
        call(ring, process);
    else
        return_to(ring, process);
}

/* A captured call, and where its process has its heap. */
static void begin(struct ember_ring *ring, struct process *process, uint64_t run)
{
    write_event(ring, process, EMBER_EVENT_BEGIN, ember_run_value(run, 0), STACK_BASE);
    write_event(ring, process, EMBER_EVENT_FRAGMENTS, 0, 0);
    write_event(ring, process, EMBER_EVENT_HEAP, (uint64_t)STACK_BASE << 32 | HEAP_START, 0);
}

static size_t on_run(void *context, struct ember_run *run, const struct ember_capture *capture,
                     const struct ember_function_table *functions)
{
    (void)capture;
    *(uint32_t *)context += run->tree.count;
    printf("%u stacks, %zu KiB, %u functions\n", run->tree.count, ember_run_bytes(run) / 1024,
           functions->count);
    ember_run_destroy(run);
    return 0;
}

static void on_merged(void *context, const struct ember_run *run)
{
    (void)context;
    (void)run;
}

static void on_limit(void *context, uint32_t capture)
{
    (void)context;
    (void)capture;
}

static uint64_t lost(void *context)
{
    (void)context;
    return 0;
}

static bool ended(void *context, uint64_t run)
{
    (void)context;
    (void)run;
    return false;
}

static void take(void *recorder, const struct ember_event *event)
{
    ember_recorder_event(recorder, event);
}

/* Of this thread: what others do on the machine is not counted. */
static uint64_t cpu_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* With an argument, timelines are recorded too. */
int main(int argc, char **argv)
{
    uint32_t stacks = 0;
    struct ember_outlet outlet = {&stacks, on_run, on_merged, on_limit, lost, ended};
    struct ember_stack_layout layout = LAYOUT;
    struct ember_capture capture = {
        .target = {11, 75}, .fold_recursion = true, .memory_limit = SIZE_MAX, .timeline = argc > 1};
    struct ember_recorder recorder;
    struct ember_merge merge;
    struct ember_ring *rings[RINGS];
    struct process processes[RINGS] = {{0}};
    (void)argv;
    ember_clock_init();
    if (!ember_recorder_init(&recorder, &outlet, &layout))
        return 1;
    ember_recorder_open(&recorder, 0, &capture);
    for (uint32_t i = 0; i < RINGS; i++) {
        rings[i] = ember_ring_create(CAPACITY);
        processes[i].pid = 100 + i;
        processes[i].hp = HEAP_START;
        begin(rings[i], &processes[i], i + 1);
    }
    ember_merge_init(&merge, rings, RINGS);
    ember_merge_drain(&merge, take, &recorder);
    double best = 0;
    uint64_t events = 0;
    uint64_t spent = 0;
    for (int round = 0; round < ROUNDS; round++) {
        /* bursts, as processes run for a while before they move */
        for (uint32_t burst = 0; burst < CAPACITY / 256 - 1; burst++)
            for (uint32_t i = 0; i < RINGS; i++)
                for (uint32_t n = 0; n < 256; n++)
                    step(rings[i], &processes[i]);
        uint64_t start = cpu_ns();
        uint64_t taken = ember_merge_drain(&merge, take, &recorder);
        uint64_t ns = cpu_ns() - start;
        events += taken;
        spent += ns;
        double rate = (double)taken * 1000 / (double)ns;
        best = rate > best ? rate : best;
    }
    printf("%" PRIu64 " events: %.1f million a second of processor time, best round %.1f\n", events,
           (double)events * 1000 / (double)spent, best);
    ember_recorder_fini(&recorder);
    ember_merge_fini(&merge);
    for (uint32_t i = 0; i < RINGS; i++)
        ember_ring_destroy(rings[i]);
    return 0;
}
