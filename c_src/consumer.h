/* SPDX-License-Identifier: Apache-2.0
 *
 * The one thread that drains all rings and drives the recorder.
 */
#ifndef EMBER_CONSUMER_H
#define EMBER_CONSUMER_H

#include "recorder.h"
#include "ring.h"

struct ember_consumer;

struct ember_consumer_options {
    struct ember_stack_layout layout;
    struct ember_outlet outlet;  /* called on the consumer thread */
    const uint32_t *own_modules; /* sorted: never shown. They outlive the thread. */
    uint32_t own_module_count;
};

/* Starts the thread; NULL when it can't. Events count from `origin_ticks`. */
struct ember_consumer *ember_consumer_start(struct ember_ring **rings, uint32_t ring_count,
                                            uint64_t origin_ticks,
                                            const struct ember_consumer_options *options);

/* Lets it drain the rings, ends the thread, frees. NULL is allowed. */
void ember_consumer_stop(struct ember_consumer *consumer);

/* Tells it of a capture before the capture opens. Takes over `modules`. */
void ember_consumer_open(struct ember_consumer *consumer, uint32_t slot,
                         const struct ember_capture *capture);

/* The same for a window, which begins now: before its processes are watched. */
void ember_consumer_open_window(struct ember_consumer *consumer, uint32_t slot,
                                const struct ember_capture *capture,
                                const struct ember_window *window);

/* What the window counts begins now, and lasts `max_ticks` at most. The number of its events
 * until then. */
uint64_t ember_consumer_restart_window(struct ember_consumer *consumer, uint32_t slot,
                                       uint64_t max_ticks);

/* Drains what is in the rings now, gives out the unfinished runs of a capture
 * and forgets it. Returns when that is done. */
void ember_consumer_close(struct ember_consumer *consumer, uint32_t slot);

/* Events taken from the rings so far. */
uint64_t ember_consumer_events(struct ember_consumer *consumer);

/* The processor's time that consumer threads have used since the library was loaded. */
uint64_t ember_consumer_cpu_ns(void);

#endif
