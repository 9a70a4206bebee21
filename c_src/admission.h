/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is recorded. Three tables of fixed size, which callbacks on any thread
 * read and change without allocating, locking or waiting:
 *
 *   target   a function with a meta breakpoint; which captures wait for it
 *   capture  how many calls it still takes, and from whom
 *   watch    by pid: which runs a process takes part in
 *
 * A run is one captured call, from its begin to its end. Its id is never used
 * twice and names a slot; a run is active while the slot holds its id, so a
 * membership left behind in the watch table is harmless.
 *
 * Threads: a process runs on one thread at a time, and the VM orders its
 * hand-over from thread to thread. Everything here that concerns one process
 * is called on its behalf, so one watch entry has one writer at a time (a
 * child's is written by its parent before the child first runs).
 */
#ifndef EMBER_ADMISSION_H
#define EMBER_ADMISSION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define EMBER_MAX_CAPTURES 64 /* bits of a target's mask */
#define EMBER_MAX_TARGETS 64
#define EMBER_MAX_RUNS 4096 /* active at the same time */
#define EMBER_MAX_MEMBERSHIPS 7
#define EMBER_WATCH_ENTRIES (1u << 16)

struct ember_admission;

/* A call that is captured now. */
struct ember_admitted {
    uint64_t run;
    uint32_t capture;
};

struct ember_admission *ember_admission_create(void);

/* No callback may be at work. NULL is allowed. */
void ember_admission_destroy(struct ember_admission *admission);

/* What a capture takes. */
struct ember_intake {
    uint32_t target;
    int64_t calls;     /* how many */
    uint64_t only_pid; /* from this process alone; 0: from any */
    bool spawned;      /* children of a caller take part */
    bool wants_value;  /* what the call returned is asked for */
};

/* Takes a slot for a capture, or -1 when all are taken. Control thread only. */
int ember_admission_reserve(struct ember_admission *admission);

/* From now on calls are captured. */
void ember_admission_open(struct ember_admission *admission, uint32_t capture,
                          const struct ember_intake *intake);

/* Ends a capture and its runs. The slot is free for another once no callback
 * can still see the old one: call ember_admission_reuse after a grace period. */
void ember_admission_close(struct ember_admission *admission, uint32_t capture);
void ember_admission_reuse(struct ember_admission *admission, uint32_t capture);

/* Whether `pid` takes part in an active run. */
bool ember_admission_watched(struct ember_admission *admission, uint64_t pid);

/* `pid` calls `target`: takes one call from each capture that wants it and is
 * not at work in `pid` already. Fills `admitted`, returns how many. */
unsigned ember_admission_enter(struct ember_admission *admission, uint32_t target, uint64_t pid,
                               struct ember_admitted admitted[EMBER_MAX_MEMBERSHIPS]);

/* Whether `pid` has taken part in a run and has not been forgotten since: the
 * VM still has it traced. */
bool ember_admission_known(struct ember_admission *admission, uint64_t pid);

/* The innermost captured call of `pid` to `target` ends: fills `ended` with its
 * runs, one for each capture that took the call; they are active no longer. */
unsigned ember_admission_leave(struct ember_admission *admission, uint32_t target, uint64_t pid,
                               struct ember_admitted ended[EMBER_MAX_MEMBERSHIPS]);

/* `parent` has spawned `child`, which has not run yet. */
void ember_admission_inherit(struct ember_admission *admission, uint64_t parent, uint64_t child);

/* `pid` is traced no longer. Frees its entry when it takes part in no active run. */
void ember_admission_forget(struct ember_admission *admission, uint64_t pid);

/* `pid` is dead: its runs end, its entry is free. */
void ember_admission_exit(struct ember_admission *admission, uint64_t pid);

/* Whether the capture asked for what its calls return. */
bool ember_admission_wants_value(const struct ember_admission *admission, uint32_t capture);

/* Calls and children that found no room in a table. */
uint64_t ember_admission_refused(struct ember_admission *admission);

/* Changes whenever the answer of ember_admission_watched may. */
extern _Atomic uint64_t ember_admission_epoch;

#endif
