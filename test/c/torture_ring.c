/* SPDX-License-Identifier: Apache-2.0
 *
 * Two threads, one ring: every event arrives once, whole and in order, at any
 * size of ring and across the wrap of its indices.
 */
#include "random.h"
#include "ring.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>

enum { EVENTS = 300000, BEFORE_WRAP = 1000 };

static void sometimes_yield(struct random *random, uint32_t one_in)
{
    if (random_below(random, one_in) == 0)
        sched_yield();
}

static uint64_t mix(uint64_t sequence)
{
    return random_next(&(struct random){sequence});
}

static void fill(struct ember_event *event, uint64_t sequence)
{
    event->stamp = mix(sequence);
    event->pid = mix(sequence + 1);
    event->value = sequence;
    event->hp = (uint32_t)mix(sequence + 2);
    event->sp = (uint32_t)mix(sequence + 3);
}

static bool is_whole(const struct ember_event *event, uint64_t sequence)
{
    return event->value == sequence && event->stamp == mix(sequence) &&
           event->pid == mix(sequence + 1) && event->hp == (uint32_t)mix(sequence + 2) &&
           event->sp == (uint32_t)mix(sequence + 3);
}

static void *produce(void *argument)
{
    struct ember_ring *ring = argument;
    struct random random = {1};
    for (uint64_t sequence = 0; sequence < EVENTS; sequence++) {
        struct ember_event *event;
        while (!(event = ember_ring_reserve(ring)))
            sched_yield();
        fill(event, sequence);
        sometimes_yield(&random, 200);
        ember_ring_commit(ring);
    }
    return NULL;
}

/* Takes what is there, gives it back in one step or event by event. */
static uint64_t consume(struct ember_ring *ring)
{
    struct random random = {2};
    uint64_t head = atomic_load(&ring->consumer.head);
    uint64_t wrong = 0;
    for (uint64_t sequence = 0; sequence < EVENTS;) {
        uint64_t tail = ember_ring_tail(ring);
        bool at_once = random_below(&random, 2);
        if (tail == head)
            sched_yield();
        for (; head != tail; sequence++) {
            wrong += !is_whole(ember_ring_at(ring, head), sequence);
            head++;
            sometimes_yield(&random, 200);
            if (!at_once)
                ember_ring_release(ring, head);
        }
        ember_ring_release(ring, head);
    }
    return wrong;
}

static uint64_t run(size_t capacity)
{
    struct ember_ring *ring = ember_ring_create(capacity);
    uint64_t start = (uint64_t)-BEFORE_WRAP;
    atomic_store(&ring->producer.tail, start);
    atomic_store(&ring->consumer.head, start);
    ring->producer.head_seen = start;
    pthread_t producer;
    pthread_create(&producer, NULL, produce, ring);
    uint64_t wrong = consume(ring);
    pthread_join(producer, NULL);
    wrong += ember_ring_tail(ring) != start + EVENTS;
    ember_ring_destroy(ring);
    return wrong;
}

int main(void)
{
    static const size_t capacities[] = {1, 2, 64, 4096};
    uint64_t wrong = 0;
    for (size_t i = 0; i < sizeof capacities / sizeof capacities[0]; i++) {
        uint64_t here = run(capacities[i]);
        if (here)
            fprintf(stderr, "ring of %zu: %" PRIu64 " events wrong\n", capacities[i], here);
        wrong += here;
    }
    return wrong != 0;
}
