/* SPDX-License-Identifier: Apache-2.0 */
#include "timeline.h"

#include <stdlib.h>
#include <string.h>

enum { LARGEST_SPAN = 20, FIRST_CAPACITY = 256 }; /* bytes */

/* ---- spans as bytes ---- */

static void put(struct ember_timeline *timeline, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        timeline->bytes[timeline->size++] = (unsigned char)(value | 0x80);
    timeline->bytes[timeline->size++] = (unsigned char)value;
}

static uint64_t get(struct ember_timeline_reader *reader)
{
    uint64_t value = 0;
    unsigned shift = 0;
    for (; *reader->at >= 0x80; shift += 7)
        value |= (uint64_t)(*reader->at++ & 0x7f) << shift;
    return value | (uint64_t)*reader->at++ << shift;
}

static bool make_room(struct ember_timeline *timeline, size_t more)
{
    if (timeline->capacity - timeline->size >= LARGEST_SPAN)
        return true;
    size_t wanted = timeline->capacity > 0 ? timeline->capacity : FIRST_CAPACITY;
    size_t capacity = timeline->capacity + (wanted < more ? wanted : more);
    if (capacity - timeline->size < LARGEST_SPAN)
        return false;
    unsigned char *bytes = realloc(timeline->bytes, capacity);
    if (!bytes)
        return false;
    timeline->bytes = bytes;
    timeline->capacity = capacity;
    return true;
}

bool ember_timeline_add(struct ember_timeline *timeline, struct ember_span span, size_t more)
{
    if (!make_room(timeline, more))
        return false;
    put(timeline, (uint64_t)span.node * EMBER_STATES + span.state);
    put(timeline, span.length);
    timeline->spans++;
    return true;
}

void ember_timeline_trim(struct ember_timeline *timeline)
{
    unsigned char *bytes = timeline->size > 0 ? realloc(timeline->bytes, timeline->size) : NULL;
    if (!bytes)
        return;
    timeline->bytes = bytes;
    timeline->capacity = timeline->size;
}

void ember_timeline_fini(struct ember_timeline *timeline)
{
    free(timeline->bytes);
    *timeline = (struct ember_timeline){0};
}

struct ember_timelines *ember_timelines_create(uint32_t count)
{
    struct ember_timelines *timelines = calloc(1, sizeof *timelines);
    if (!timelines)
        return NULL;
    timelines->count = count;
    timelines->processes = calloc((size_t)count + 1, sizeof *timelines->processes);
    if (timelines->processes)
        return timelines;
    free(timelines);
    return NULL;
}

void ember_timelines_destroy(struct ember_timelines *timelines)
{
    if (!timelines)
        return;
    for (uint32_t i = 0; i < timelines->count; i++)
        ember_timeline_fini(&timelines->processes[i]);
    free(timelines->processes);
    free(timelines);
}

struct ember_timeline_reader ember_timeline_read(const struct ember_timeline *timeline)
{
    return (struct ember_timeline_reader){
        .at = timeline->bytes,
        .end = timeline->size > 0 ? timeline->bytes + timeline->size : timeline->bytes,
        .time = timeline->start,
    };
}

bool ember_timeline_next(struct ember_timeline_reader *reader, struct ember_span *span)
{
    if (reader->at == reader->end)
        return false;
    uint64_t where = get(reader);
    span->node = (uint32_t)(where / EMBER_STATES);
    span->state = (enum ember_state)(where % EMBER_STATES);
    span->length = get(reader);
    reader->time += span->length;
    return true;
}

/* ---- recording ---- */

struct ember_recorded *ember_recorded_create(struct ember_recording *recording, uint64_t start)
{
    struct ember_recorded *recorded = calloc(1, sizeof *recorded);
    if (!recorded) {
        recording->cut = recording->cut ? recording->cut : start + 1;
        return NULL;
    }
    recorded->recording = recording;
    recorded->timeline.start = recorded->time = start;
    recording->bytes += sizeof *recorded;
    recording->budget->used += sizeof *recorded;
    return recorded;
}

void ember_recorded_end(struct ember_recorded *recorded)
{
    struct ember_recording *recording = recorded->recording;
    struct ember_timeline_budget *budget = recording->budget;
    size_t before = recorded->timeline.capacity;
    if (recorded->span.length == 0 || recording->cut)
        return;
    size_t left = budget->limit > budget->used ? budget->limit - budget->used : 0;
    if (!ember_timeline_add(&recorded->timeline, recorded->span, left))
        recording->cut = recorded->time - recorded->span.length + 1;
    recorded->span.length = 0;
    recording->bytes += recorded->timeline.capacity - before;
    budget->used += recorded->timeline.capacity - before;
}

void ember_recorded_destroy(struct ember_recorded *recorded)
{
    if (!recorded)
        return;
    size_t bytes = sizeof *recorded + recorded->timeline.capacity;
    recorded->recording->bytes -= bytes;
    ember_timeline_fini(&recorded->timeline);
    free(recorded);
}

void ember_recorded_note(struct ember_recorded *recorded, uint32_t node, enum ember_state state,
                         uint64_t ticks)
{
    struct ember_span *span = &recorded->span;
    if (ticks == 0 || recorded->recording->cut)
        return;
    if (span->node != node || span->state != state) {
        ember_recorded_end(recorded);
        *span = (struct ember_span){node, state, 0};
    }
    span->length += ticks;
    recorded->time += ticks;
}
