/* SPDX-License-Identifier: Apache-2.0 */
#include "consumer.h"

#include "clock.h"
#include "merge.h"

#include <pthread.h>
#include <stdlib.h>

/* Rests between looks at empty rings; the longest is shorter than a ring lasts. */
#define REST_MIN_NS 200000
#define REST_MAX_NS 2000000
/* Events in one look that make it look again at once. */
#define BUSY_DRAIN 2048

/* What another thread asks of the consumer thread, one thing at a time. */
enum command {
    COMMAND_NONE,
    COMMAND_OPEN,
    COMMAND_OPEN_WINDOW,
    COMMAND_RESTART_WINDOW,
    COMMAND_CLOSE,
    COMMAND_STOP,
};

/* What goes with a command. */
struct order {
    enum command command;
    uint32_t slot;
    const struct ember_capture *capture;
    const struct ember_window *window;
    uint64_t max_ticks;
};

struct ember_consumer {
    struct ember_merge merge; /* these two: the consumer thread only */
    struct ember_recorder recorder;
    uint64_t origin_ticks;   /* constant */
    _Atomic uint64_t events; /* written by the consumer thread, read by any */
    pthread_mutex_t mutex;   /* protects the fields below */
    pthread_cond_t changed;
    _Atomic enum command command; /* also read without the mutex, as a hint */
    struct order order;
    uint64_t answer;
    pthread_t thread;
};

static void take(void *context, const struct ember_event *event)
{
    struct ember_consumer *consumer = context;
    ember_recorder_event(&consumer->recorder, event);
}

static uint64_t drain(struct ember_consumer *consumer)
{
    uint64_t taken = ember_merge_drain(&consumer->merge, take, consumer);
    ember_recorder_check_ends(&consumer->recorder);
    ember_recorder_check_memory(&consumer->recorder);
    const struct ember_outlet *outlet = &consumer->recorder.outlet;
    if (outlet->on_drained)
        outlet->on_drained(outlet->context);
    /* relaxed: a statistic */
    atomic_fetch_add_explicit(&consumer->events, taken, memory_order_relaxed);
    return taken;
}

/* All that was written before. */
static void drain_all(struct ember_consumer *consumer)
{
    ember_merge_ask(&consumer->merge);
    do
        drain(consumer);
    while (!ember_merge_has_taken(&consumer->merge));
}

static uint64_t now(const struct ember_consumer *consumer)
{
    return ember_clock_ticks() - consumer->origin_ticks;
}

static void obey(struct ember_consumer *consumer)
{
    const struct order *order = &consumer->order;
    switch (atomic_load(&consumer->command)) {
    case COMMAND_OPEN:
        ember_recorder_open(&consumer->recorder, order->slot, order->capture);
        break;
    case COMMAND_OPEN_WINDOW:
        drain_all(consumer);
        ember_recorder_open_window(&consumer->recorder, order->slot, order->capture, order->window,
                                   now(consumer));
        break;
    case COMMAND_RESTART_WINDOW:
        drain_all(consumer);
        consumer->answer = ember_recorder_restart_window(&consumer->recorder, order->slot,
                                                         now(consumer), order->max_ticks);
        break;
    case COMMAND_CLOSE:
        drain_all(consumer);
        ember_recorder_close(&consumer->recorder, order->slot, now(consumer));
        break;
    case COMMAND_STOP:
        drain_all(consumer);
        break;
    case COMMAND_NONE:
        break;
    }
}

/* Does what is asked, if anything; true when that was to stop. */
static bool obey_command(struct ember_consumer *consumer)
{
    if (atomic_load_explicit(&consumer->command, memory_order_relaxed) == COMMAND_NONE)
        return false;
    pthread_mutex_lock(&consumer->mutex);
    obey(consumer);
    bool stop = atomic_load(&consumer->command) == COMMAND_STOP;
    atomic_store(&consumer->command, COMMAND_NONE);
    pthread_cond_broadcast(&consumer->changed);
    pthread_mutex_unlock(&consumer->mutex);
    return stop;
}

static long next_rest(long rest_ns, uint64_t taken)
{
    if (taken > 0)
        return REST_MIN_NS;
    return rest_ns < REST_MAX_NS ? rest_ns * 2 : REST_MAX_NS;
}

static _Atomic uint64_t
    cpu_ns; /* of all consumer threads there were; written by the one there is */

uint64_t ember_consumer_cpu_ns(void)
{
    return atomic_load_explicit(&cpu_ns, memory_order_relaxed);
}

/* `before' is what this thread has counted. */
static uint64_t count_cpu(uint64_t before)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    uint64_t now = (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
    atomic_fetch_add_explicit(&cpu_ns, now - before, memory_order_relaxed);
    return now;
}

static void *run_consumer(void *argument)
{
    struct ember_consumer *consumer = argument;
#ifdef __linux__
    pthread_setname_np(pthread_self(), "emberl");
#endif
    struct timespec rest = {.tv_nsec = REST_MIN_NS};
    uint64_t counted = count_cpu(0);
    while (!obey_command(consumer)) {
        uint64_t taken = drain(consumer);
        rest.tv_nsec = next_rest(rest.tv_nsec, taken);
        counted = count_cpu(counted);
        if (taken < BUSY_DRAIN)
            nanosleep(&rest, NULL);
    }
    count_cpu(counted);
    return NULL;
}

/* Waits for the thread to do it; its answer. */
static uint64_t command(struct ember_consumer *consumer, struct order order)
{
    pthread_mutex_lock(&consumer->mutex);
    while (atomic_load(&consumer->command) != COMMAND_NONE)
        pthread_cond_wait(&consumer->changed, &consumer->mutex);
    consumer->order = order;
    atomic_store(&consumer->command, order.command);
    while (atomic_load(&consumer->command) != COMMAND_NONE)
        pthread_cond_wait(&consumer->changed, &consumer->mutex);
    uint64_t answer = consumer->answer;
    pthread_mutex_unlock(&consumer->mutex);
    return answer;
}

static void free_consumer(struct ember_consumer *consumer)
{
    ember_recorder_fini(&consumer->recorder);
    ember_merge_fini(&consumer->merge);
    pthread_cond_destroy(&consumer->changed);
    pthread_mutex_destroy(&consumer->mutex);
    free(consumer);
}

struct ember_consumer *ember_consumer_start(struct ember_ring **rings, uint32_t ring_count,
                                            uint64_t origin_ticks,
                                            const struct ember_consumer_options *options)
{
    struct ember_consumer *consumer = calloc(1, sizeof *consumer);
    if (!consumer)
        return NULL;
    pthread_mutex_init(&consumer->mutex, NULL);
    pthread_cond_init(&consumer->changed, NULL);
    consumer->origin_ticks = origin_ticks;
    bool ready = ember_recorder_init(&consumer->recorder, &options->outlet, &options->layout) &&
                 ember_merge_init(&consumer->merge, rings, ring_count);
    consumer->recorder.own_modules = options->own_modules;
    consumer->recorder.own_module_count = options->own_module_count;
    ready = ready && pthread_create(&consumer->thread, NULL, run_consumer, consumer) == 0;
    if (ready)
        return consumer;
    free_consumer(consumer);
    return NULL;
}

void ember_consumer_stop(struct ember_consumer *consumer)
{
    if (!consumer)
        return;
    command(consumer, (struct order){.command = COMMAND_STOP});
    pthread_join(consumer->thread, NULL);
    free_consumer(consumer);
}

void ember_consumer_open(struct ember_consumer *consumer, uint32_t slot,
                         const struct ember_capture *capture)
{
    command(consumer, (struct order){.command = COMMAND_OPEN, .slot = slot, .capture = capture});
}

void ember_consumer_open_window(struct ember_consumer *consumer, uint32_t slot,
                                const struct ember_capture *capture,
                                const struct ember_window *window)
{
    command(consumer, (struct order){.command = COMMAND_OPEN_WINDOW,
                                     .slot = slot,
                                     .capture = capture,
                                     .window = window});
}

uint64_t ember_consumer_restart_window(struct ember_consumer *consumer, uint32_t slot,
                                       uint64_t max_ticks)
{
    return command(
        consumer,
        (struct order){.command = COMMAND_RESTART_WINDOW, .slot = slot, .max_ticks = max_ticks});
}

void ember_consumer_close(struct ember_consumer *consumer, uint32_t slot)
{
    command(consumer, (struct order){.command = COMMAND_CLOSE, .slot = slot});
}

uint64_t ember_consumer_events(struct ember_consumer *consumer)
{
    return atomic_load_explicit(&consumer->events, memory_order_relaxed);
}
