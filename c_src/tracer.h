/* SPDX-License-Identifier: Apache-2.0
 *
 * The callbacks the VM runs for traced processes, on any scheduler thread.
 * They allocate nothing, take no lock, and wait only for the consumer, for a
 * bounded time, when the thread's ring is full.
 */
#ifndef EMBER_TRACER_H
#define EMBER_TRACER_H

#include <erl_nif.h>
#include <stdbool.h>
#include <stdint.h>

/* The tracer state given to the VM is a small integer: generation * 128 +
 * target, or + EMBER_STATE_MAIN for processes. */
#define EMBER_STATE_MAIN 127

/* Atoms the callbacks compare with; call before any of them runs. */
void ember_tracer_init(ErlNifEnv *env);

/* Who is told what a captured call returned, where that is asked for. Call
 * while no session is published. */
void ember_tracer_set_owner(const ErlNifPid *owner);

/* While no session is on, a process whose tracer state is the atom probe is traced
 * to find out how one looks that waits: whether `pid` does when it is scheduled out
 * next. `pid` 0: no process. */
void ember_tracer_probe(uint64_t pid, bool waiting);

/* Tells the consumer what binaries the caller, `pid`, refers to; in a NIF that is
 * no callback. */
void ember_tracer_note_binaries(ErlNifEnv *env, uint64_t pid);

/* Where the node has one trace, the VM's own function that sets breakpoints may have one
 * whose tracer state is the atom watch: then it is known whether others than `pid` may have
 * set or cleared any since that was last asked, or since this. Any thread. */
void ember_tracer_watch(uint64_t pid);
bool ember_tracer_take_change(void);

ERL_NIF_TERM ember_tracer_enabled(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[]);
ERL_NIF_TERM ember_tracer_trace(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[]);

#endif
