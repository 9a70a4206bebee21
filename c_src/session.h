/* SPDX-License-Identifier: Apache-2.0
 *
 * The data plane while anything is profiled: rings, admission, consumer. It
 * exists from the first capture's start to the last one's end and leaves
 * nothing behind.
 *
 * Callbacks find it through one RCU-protected pointer and use it inside a
 * read section. Taking it away is: clear the pointer, wait for a grace period
 * (no callback is inside any more), stop the consumer, free.
 */
#ifndef EMBER_SESSION_H
#define EMBER_SESSION_H

#include "admission.h"
#include "consumer.h"
#include "ring.h"

/* Small enough for the cache, large enough for some milliseconds of a busy
 * scheduler (docs/architecture.md has the measurement). */
#define EMBER_RING_CAPACITY (1u << 14)

struct ember_session {
    uint64_t generation;   /* names the session in tracer states and thread-locals */
    uint64_t origin_ticks; /* events count from here */
    struct ember_stack_layout layout;
    struct ember_admission *admission;
    struct ember_consumer *consumer;
    struct ember_ring **rings;
    uint32_t ring_count;
    _Atomic uint32_t rings_claimed; /* may exceed ring_count: the rest found none */
    _Atomic uint64_t lost_no_ring;  /* counted by threads that found no ring */
    _Atomic uint64_t lost_bad_term; /* events we could not write down */
    _Atomic uint64_t trace_session; /* its number, a term, as return_to frames have it; 0: not
                                       known yet, so that none has been told of */
};

/* The published session; read it inside an RCU read section only. */
extern struct ember_session *ember_session_current;

/* `threads`: how many may ever run callbacks. NULL when out of memory. */
struct ember_session *ember_session_create(uint64_t generation, uint32_t threads,
                                           const struct ember_consumer_options *options);
void ember_session_publish(struct ember_session *session);

/* Unpublishes, waits for callbacks, lets the consumer finish what is in the
 * rings, frees. Not on a scheduler thread that may not wait. */
void ember_session_destroy(struct ember_session *session);

/* Waits until every callback that is running now has returned. */
void ember_session_wait_for_callbacks(void);

/* Events lost so far, for any reason. */
uint64_t ember_session_lost(struct ember_session *session);

#endif
