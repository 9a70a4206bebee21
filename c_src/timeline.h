/* SPDX-License-Identifier: Apache-2.0
 *
 * What a process did when: spans of time, one after the other without a gap, each
 * on one stack and in one state. Some bytes a span, in the order of time; the
 * profile file has the same bytes.
 */
#ifndef EMBER_TIMELINE_H
#define EMBER_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ember_state {
    EMBER_RUNNING,
    EMBER_WAITING,
    EMBER_PREEMPTED, /* or waiting, where the two could not be told apart */
    EMBER_COLLECTING,
    EMBER_HELD_UP, /* waited for room in a ring; in no metric */
    EMBER_STATES,
};

struct ember_span {
    uint32_t node;
    enum ember_state state;
    uint64_t length; /* not 0 */
};

/* Times count from the run's begin: ticks while it is recorded, ns in a profile. */
struct ember_timeline {
    unsigned char *bytes; /* each span: node * EMBER_STATES + state, length; both as varints */
    size_t size;
    size_t capacity;
    uint64_t start; /* of the first span */
    uint64_t spans;
};

/* Of a profile. */
struct ember_timelines {
    struct ember_timeline *processes; /* one a process, some without spans */
    uint32_t count;
    uint64_t cut_ns; /* when memory ran out and none was kept any longer; 0: it did not */
};

/* `more`: how many bytes may be allocated on top. false: there was no memory, or no
 * more may be taken. */
bool ember_timeline_add(struct ember_timeline *timeline, struct ember_span span, size_t more);
/* Gives back what is allocated and not used. */
void ember_timeline_trim(struct ember_timeline *timeline);
void ember_timeline_fini(struct ember_timeline *timeline);

/* For all NULL is allowed, or returned when out of memory. */
struct ember_timelines *ember_timelines_create(uint32_t count);
void ember_timelines_destroy(struct ember_timelines *timelines);

struct ember_timeline_reader {
    const unsigned char *at;
    const unsigned char *end;
    uint64_t time; /* when the next span begins */
};

struct ember_timeline_reader ember_timeline_read(const struct ember_timeline *timeline);

/* false at the end. */
bool ember_timeline_next(struct ember_timeline_reader *reader, struct ember_span *span);

/* ---- while it is recorded: consumer thread only ---- */

/* What the timelines of all runs of a capture may take together. */
struct ember_timeline_budget {
    size_t limit;
    size_t used;
};

/* Of a run. */
struct ember_recording {
    struct ember_timeline_budget *budget; /* NULL: no timeline is wanted */
    size_t bytes;                         /* allocated by the run */
    uint64_t cut; /* ticks from its begin when the budget was used up; 0: it was not */
};

/* Of a process in a run. */
struct ember_recorded {
    struct ember_timeline timeline;
    struct ember_recording *recording;
    struct ember_span span; /* goes on; its length is 0 before the first */
    uint64_t time;          /* when that ends */
};

/* From `start`, in ticks after the run's begin. NULL when out of memory: then the
 * process has no timeline, and the run's is cut there. */
struct ember_recorded *ember_recorded_create(struct ember_recording *recording, uint64_t start);

/* The last span is known. */
void ember_recorded_end(struct ember_recorded *recorded);

/* Also gives back what it has of the recording's bytes. NULL is allowed. */
void ember_recorded_destroy(struct ember_recorded *recorded);

/* The process was on `node` for so many more ticks. */
void ember_recorded_note(struct ember_recorded *recorded, uint32_t node, enum ember_state state,
                         uint64_t ticks);

#endif
