/* SPDX-License-Identifier: Apache-2.0
 *
 * The callbacks the VM runs for traced processes, on any scheduler thread.
 * They allocate nothing, take no lock, and wait only for the consumer, for a
 * bounded time, when the thread's ring is full.
 */
#ifndef EMBER_TRACER_H
#define EMBER_TRACER_H

#include <erl_nif.h>
#include <stdint.h>

/* The tracer state given to the VM is a small integer: generation * 128 +
 * target, or + EMBER_STATE_MAIN for processes. */
#define EMBER_STATE_MAIN 127

/* Atoms the callbacks compare with; call before any of them runs. */
void ember_tracer_init(ErlNifEnv *env);

/* Who is told what a captured call returned, where that is asked for. Call
 * while no session is published. */
void ember_tracer_set_owner(const ErlNifPid *owner);

ERL_NIF_TERM ember_tracer_enabled(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[]);
ERL_NIF_TERM ember_tracer_trace(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[]);

#endif
