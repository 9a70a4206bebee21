/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that call, spawn, die and return while captures open and close:
 * exactly as many calls are admitted as asked for, a run that nobody closed
 * ends where it began, no run id comes twice, and nothing is left behind.
 */
#include "admission.h"
#include "random.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>

enum {
    THREADS = 8,
    ROUNDS = 200,
    CALLS = 100,   /* a capture, where all compete for it */
    STEPS = 20000, /* a thread, while captures come and go */
    STEADY = 0,    /* target of a capture that stays open */
    COMING = 1,    /* target of captures that come and go */
    MOST_IDS = THREADS * STEPS * 2,
};

static struct ember_admission *admission;
static pthread_rwlock_t grace = PTHREAD_RWLOCK_INITIALIZER; /* read: a callback runs */
static pthread_barrier_t barrier;
static _Atomic uint64_t wrong;
static _Atomic uint64_t admitted_count;
static _Atomic uint32_t working;
static uint64_t ids[MOST_IDS];
static _Atomic uint32_t id_count;

static void require(bool held, const char *what)
{
    if (!held && atomic_fetch_add(&wrong, 1) == 0)
        fprintf(stderr, "wrong: %s\n", what);
}

static uint64_t pid_of(uint64_t thread, uint64_t number)
{
    return (number * THREADS + thread + 1) << 4 | 3;
}

static void wait_for_callbacks(void)
{
    pthread_rwlock_wrlock(&grace);
    pthread_rwlock_unlock(&grace);
}

/* ---- What a callback does ------------------------------------------------ */

static unsigned enter(uint32_t target, uint64_t pid, struct ember_admitted *runs)
{
    pthread_rwlock_rdlock(&grace);
    unsigned count = ember_admission_enter(admission, target, pid, runs);
    pthread_rwlock_unlock(&grace);
    for (unsigned i = 0; i < count; i++)
        ids[atomic_fetch_add(&id_count, 1)] = runs[i].run;
    return count;
}

static unsigned leave(uint32_t target, uint64_t pid, struct ember_admitted *runs)
{
    pthread_rwlock_rdlock(&grace);
    unsigned count = ember_admission_leave(admission, target, pid, runs);
    for (unsigned i = 0; i < count; i++)
        ember_admission_end(admission, &runs[i]);
    pthread_rwlock_unlock(&grace);
    return count;
}

static bool watched(uint64_t pid)
{
    pthread_rwlock_rdlock(&grace);
    bool found = ember_admission_watched(admission, pid);
    pthread_rwlock_unlock(&grace);
    return found;
}

static void with_callback(void (*change)(struct ember_admission *, uint64_t), uint64_t pid)
{
    pthread_rwlock_rdlock(&grace);
    change(admission, pid);
    pthread_rwlock_unlock(&grace);
}

/* ---- All at once for the same calls -------------------------------------- */

static void *compete(void *argument)
{
    uint64_t thread = (uintptr_t)argument;
    struct ember_admitted runs[EMBER_MAX_MEMBERSHIPS];
    for (uint64_t round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&barrier);
        for (uint64_t i = 0; i < CALLS; i++) {
            unsigned count = enter(STEADY, pid_of(thread, i % 3), runs);
            atomic_fetch_add(&admitted_count, count);
            require(leave(STEADY, pid_of(thread, i % 3), runs) == count, "entered, so left");
        }
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static uint32_t open_at(uint32_t target, int64_t calls)
{
    int capture = ember_admission_reserve(admission);
    require(capture >= 0, "a slot for a capture");
    struct ember_intake intake = {.target = target, .calls = calls, .spawned = true};
    ember_admission_open(admission, (uint32_t)capture, &intake);
    return (uint32_t)capture;
}

static void close_capture(uint32_t capture)
{
    ember_admission_close(admission, capture);
    wait_for_callbacks();
    ember_admission_reuse(admission, capture);
}

static void start(pthread_t threads[THREADS], void *(*run)(void *))
{
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, run, (void *)i);
}

static void join(pthread_t threads[THREADS])
{
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void all_compete(void)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    start(threads, compete);
    for (int round = 0; round < ROUNDS; round++) {
        atomic_store(&admitted_count, 0);
        uint32_t capture = open_at(STEADY, CALLS);
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        require(atomic_load(&admitted_count) == CALLS, "as many calls as asked for");
        close_capture(capture);
    }
    join(threads);
    pthread_barrier_destroy(&barrier);
    require(ember_admission_refused(admission) == 0, "nothing refused");
    atomic_store(&id_count, 0);
}

/* ---- Captures come and go ------------------------------------------------ */

/* One captured call with another inside, a child, sometimes a death. */
static void live(struct random *random, uint64_t thread, uint64_t step)
{
    uint64_t pid = pid_of(thread, random_below(random, 5));
    uint64_t child = pid_of(thread, 1000 + step);
    struct ember_admitted outer[EMBER_MAX_MEMBERSHIPS];
    struct ember_admitted inner[EMBER_MAX_MEMBERSHIPS];
    unsigned outer_count = enter(STEADY, pid, outer);
    uint64_t run = outer[0].run;
    require(outer_count == 1 && watched(pid), "the steady capture takes every call");
    unsigned inner_count = enter(COMING, pid, inner);
    require(inner_count <= 1, "one capture at a time");
    pthread_rwlock_rdlock(&grace);
    ember_admission_inherit(admission, pid, child);
    pthread_rwlock_unlock(&grace);
    require(watched(child), "a child takes part");
    if (random_below(random, 4) == 0)
        sched_yield();
    if (random_below(random, 3) == 0) {
        with_callback(ember_admission_exit, pid);
        require(!watched(pid), "the dead take part in nothing");
    } else {
        require(leave(COMING, pid, inner) <= inner_count, "no more left than entered");
        require(leave(STEADY, pid, outer) == 1 && outer[0].run == run, "the run ends that began");
        require(!watched(pid), "nothing goes on after the last call");
    }
    require(!watched(child), "a child takes part no longer than the run");
    with_callback(ember_admission_forget, child);
}

static void *live_on(void *argument)
{
    uint64_t thread = (uintptr_t)argument;
    struct random random = {thread};
    for (uint64_t step = 0; step < STEPS; step++)
        live(&random, thread, step);
    atomic_fetch_sub(&working, 1);
    return NULL;
}

static int compare_ids(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void require_unique_ids(void)
{
    uint32_t count = atomic_load(&id_count);
    qsort(ids, count, sizeof ids[0], compare_ids);
    for (uint32_t i = 1; i < count; i++)
        require(ids[i] != ids[i - 1], "no run id comes twice");
}

/* Only if no run and no entry is still taken is there room for these. */
static void require_empty_tables(void)
{
    struct ember_admitted runs[EMBER_MAX_MEMBERSHIPS];
    uint32_t capture = open_at(STEADY, EMBER_MAX_RUNS);
    for (uint64_t i = 0; i < EMBER_MAX_RUNS; i++)
        require(ember_admission_enter(admission, STEADY, pid_of(0, i), runs) == 1,
                "all tables are empty again");
    close_capture(capture);
}

static void captures_come_and_go(void)
{
    pthread_t threads[THREADS];
    uint32_t steady = open_at(STEADY, INT64_MAX);
    struct random random = {99};
    atomic_store(&working, THREADS);
    start(threads, live_on);
    while (atomic_load(&working) > 0) {
        uint32_t capture = open_at(COMING, 1 + random_below(&random, 50));
        for (uint32_t i = random_below(&random, 20); i > 0; i--)
            sched_yield();
        close_capture(capture);
    }
    join(threads);
    close_capture(steady);
    require(ember_admission_refused(admission) == 0, "nothing refused");
}

int main(void)
{
    admission = ember_admission_create();
    all_compete();
    captures_come_and_go();
    require_unique_ids();
    require_empty_tables();
    ember_admission_destroy(admission);
    if (wrong)
        fprintf(stderr, "%" PRIu64 " things wrong\n", atomic_load(&wrong));
    return wrong != 0;
}
