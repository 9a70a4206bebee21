/* SPDX-License-Identifier: Apache-2.0 */
#include "merge.h"

#include <stdlib.h>

/* Slots are given back in steps, so that a producer that waits for room need
 * not wait for the whole drain. */
#define RELEASE_STEP 1024

bool ember_merge_init(struct ember_merge *merge, struct ember_ring **rings, uint32_t count)
{
    merge->count = count;
    merge->sources = calloc(count, sizeof *merge->sources);
    for (uint32_t i = 0; merge->sources && i < count; i++)
        merge->sources[i].ring = rings[i];
    return merge->sources != NULL;
}

void ember_merge_fini(struct ember_merge *merge)
{
    free(merge->sources);
    merge->sources = NULL;
}

static void read_tails(struct ember_merge *merge)
{
    for (uint32_t i = 0; i < merge->count; i++)
        merge->sources[i].first = ember_ring_tail(merge->sources[i].ring);
    for (uint32_t i = 0; i < merge->count; i++)
        merge->sources[i].last = ember_ring_tail(merge->sources[i].ring);
}

static uint64_t time_at(const struct ember_merge_source *source)
{
    if (source->head == source->last)
        return UINT64_MAX;
    return ember_event_ticks(ember_ring_at(source->ring, source->head));
}

/* The source with the earliest event, NULL when all are empty, and the time up
 * to which it stays the earliest. */
static struct ember_merge_source *earliest(struct ember_merge *merge, uint64_t *until)
{
    struct ember_merge_source *best = NULL;
    uint64_t best_time = UINT64_MAX;
    *until = UINT64_MAX;
    for (uint32_t i = 0; i < merge->count; i++) {
        uint64_t time = time_at(&merge->sources[i]);
        if (time < best_time) {
            *until = best_time;
            best_time = time;
            best = &merge->sources[i];
        } else if (time < *until) {
            *until = time;
        }
    }
    return best;
}

static uint64_t drain_source(struct ember_merge_source *source, uint64_t until,
                             void (*take)(void *, const struct ember_event *), void *context)
{
    uint64_t start = source->head;
    while (source->head != source->first) {
        const struct ember_event *event = ember_ring_at(source->ring, source->head);
        if (ember_event_ticks(event) > until)
            break;
        take(context, event);
        source->head++;
        if (source->head % RELEASE_STEP == 0)
            ember_ring_release(source->ring, source->head);
    }
    return source->head - start;
}

uint64_t ember_merge_drain(struct ember_merge *merge,
                           void (*take)(void *context, const struct ember_event *), void *context)
{
    uint64_t taken = 0;
    uint64_t until;
    struct ember_merge_source *source;
    read_tails(merge);
    while ((source = earliest(merge, &until)) && source->head != source->first)
        taken += drain_source(source, until, take, context);
    for (uint32_t i = 0; i < merge->count; i++)
        ember_ring_release(merge->sources[i].ring, merge->sources[i].head);
    return taken;
}

void ember_merge_ask(struct ember_merge *merge)
{
    for (uint32_t i = 0; i < merge->count; i++)
        merge->sources[i].asked = ember_ring_tail(merge->sources[i].ring);
}

bool ember_merge_has_taken(const struct ember_merge *merge)
{
    for (uint32_t i = 0; i < merge->count; i++)
        if (merge->sources[i].head < merge->sources[i].asked)
            return false;
    return true;
}
