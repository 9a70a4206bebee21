/* SPDX-License-Identifier: Apache-2.0 */
#include "session.h"

#include "clock.h"

#include <stdlib.h>
#include <urcu-bp.h>

struct ember_session *ember_session_current;

static void free_session(struct ember_session *session)
{
    for (uint32_t i = 0; session->rings && i < session->ring_count; i++)
        ember_ring_destroy(session->rings[i]);
    free(session->rings);
    ember_admission_destroy(session->admission);
    free(session);
}

static bool create_rings(struct ember_session *session, uint32_t count)
{
    session->rings = calloc(count, sizeof *session->rings);
    if (!session->rings)
        return false;
    session->ring_count = count;
    for (uint32_t i = 0; i < count; i++)
        if (!(session->rings[i] = ember_ring_create(EMBER_RING_CAPACITY)))
            return false;
    return true;
}

struct ember_session *ember_session_create(uint64_t generation, uint32_t threads,
                                           const struct ember_consumer_options *options)
{
    struct ember_session *session = calloc(1, sizeof *session);
    if (!session)
        return NULL;
    session->generation = generation;
    session->origin_ticks = ember_clock_ticks();
    session->layout = options->layout;
    session->admission = ember_admission_create();
    if (session->admission && create_rings(session, threads))
        session->consumer =
            ember_consumer_start(session->rings, threads, session->origin_ticks, options);
    if (session->consumer)
        return session;
    free_session(session);
    return NULL;
}

void ember_session_publish(struct ember_session *session)
{
    rcu_set_pointer(&ember_session_current, session);
    atomic_fetch_add(&ember_admission_epoch, 1);
}

void ember_session_wait_for_callbacks(void)
{
    synchronize_rcu();
}

void ember_session_destroy(struct ember_session *session)
{
    if (!session)
        return;
    rcu_set_pointer(&ember_session_current, NULL);
    atomic_fetch_add(&ember_admission_epoch, 1);
    ember_session_wait_for_callbacks();
    ember_consumer_stop(session->consumer);
    free_session(session);
}

uint64_t ember_session_lost(struct ember_session *session)
{
    uint64_t lost = atomic_load_explicit(&session->lost_no_ring, memory_order_relaxed) +
                    atomic_load_explicit(&session->lost_bad_term, memory_order_relaxed) +
                    ember_admission_refused(session->admission);
    for (uint32_t i = 0; i < session->ring_count; i++)
        lost += atomic_load_explicit(&session->rings[i]->producer.lost, memory_order_relaxed);
    return lost;
}
