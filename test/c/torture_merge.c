/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads hand processes on to each other, each writing events to a ring of
 * its own, while one thread merges: the events of a process come out in the
 * order of its hand-overs, every one of them.
 */
#include "merge.h"
#include "random.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>

enum { THREADS = 4, PROCESSES = 6, HOPS = 6000, RINGS = 256, CAPACITY = 1024, BURST = 4 };

/* A process runs on one thread at a time. */
struct process {
    _Atomic uint32_t on; /* the thread; release hands it over, acquire takes it */
    uint64_t sequence;   /* the thread it is on */
    uint32_t hops;
};

struct checker {
    uint64_t expected[PROCESSES];
    uint64_t wrong;
};

static struct ember_ring *rings[RINGS];
static struct process processes[PROCESSES];
static _Atomic uint64_t clock_ticks;
static _Atomic uint32_t running;

/* A thread's ring lies among many that stay empty, so that reading all tails
 * takes a while. */
static struct ember_ring *ring_of(uint32_t thread)
{
    return rings[(thread * 2 + 1) * RINGS / (THREADS * 2)];
}

static void sometimes_yield(struct random *random, uint32_t one_in)
{
    if (random_below(random, one_in) == 0)
        sched_yield();
}

static void write_event(struct ember_ring *ring, struct random *random, uint64_t pid,
                        uint64_t sequence)
{
    struct ember_event *event;
    while (!(event = ember_ring_reserve(ring)))
        sched_yield();
    /* relaxed: what happens before has a smaller number all the same */
    uint64_t now = atomic_fetch_add_explicit(&clock_ticks, 1, memory_order_relaxed);
    sometimes_yield(random, 100); /* the time is old when others see the event */
    *event = (struct ember_event){
        .stamp = ember_event_stamp(now, 0, EMBER_EVENT_CALL), .pid = pid, .value = sequence};
    ember_ring_commit(ring);
}

static bool run_process(uint32_t thread, uint64_t pid, struct random *random)
{
    struct process *process = &processes[pid];
    if (atomic_load_explicit(&process->on, memory_order_acquire) != thread)
        return false;
    if (process->hops == HOPS)
        return true;
    for (uint32_t i = random_below(random, BURST) + 1; i > 0; i--)
        write_event(ring_of(thread), random, pid, process->sequence++);
    uint32_t next = process->hops++ + 1 < HOPS ? random_below(random, THREADS) : 0;
    atomic_store_explicit(&process->on, next, memory_order_release);
    return false;
}

/* Thread 0 keeps the processes that are done and tells the others. */
static void *run_thread(void *argument)
{
    uint32_t thread = (uint32_t)(uintptr_t)argument;
    struct random random = {thread};
    while (atomic_load(&running)) {
        uint32_t done = 0;
        for (uint64_t pid = 0; pid < PROCESSES; pid++)
            done += run_process(thread, pid, &random);
        if (done == PROCESSES)
            atomic_store(&running, 0);
        sometimes_yield(&random, 4);
    }
    return NULL;
}

static void check(void *context, const struct ember_event *event)
{
    struct checker *checker = context;
    checker->wrong += event->value != checker->expected[event->pid];
    checker->expected[event->pid] = event->value + 1;
}

int main(void)
{
    struct ember_merge merge;
    struct checker checker = {{0}, 0};
    pthread_t threads[THREADS];
    for (uint32_t i = 0; i < RINGS; i++)
        rings[i] = ember_ring_create(CAPACITY);
    if (!ember_merge_init(&merge, rings, RINGS))
        return 1;
    atomic_store(&running, 1);
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, run_thread, (void *)i);
    while (atomic_load(&running))
        ember_merge_drain(&merge, check, &checker);
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ember_merge_drain(&merge, check, &checker);
    for (uint32_t i = 0; i < PROCESSES; i++)
        checker.wrong += checker.expected[i] != processes[i].sequence;
    if (checker.wrong)
        fprintf(stderr, "%" PRIu64 " events out of order or missing\n", checker.wrong);
    ember_merge_fini(&merge);
    for (uint32_t i = 0; i < RINGS; i++)
        ember_ring_destroy(rings[i]);
    return checker.wrong != 0;
}
