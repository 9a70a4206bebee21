/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is recorded. Three tables of fixed size, which callbacks on any thread
 * read and change without allocating, locking or waiting:
 *
 *   target   a function with a meta breakpoint; which captures wait for it
 *   capture  how many calls it still takes, and from whom
 *   watch    by pid: which runs a process takes part in
 *
 * and for each window, which is a capture of no target, its members: processes that
 * are recorded whatever they do, in a table that is complete before anyone sees it.
 *
 * A run is one captured call, or all of a window, from its begin to its end. Its id is never used
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
    uint64_t begin_ticks; /* of one that has ended: see ember_admission_stamp */
};

struct ember_admission *ember_admission_create(void);

/* No callback may be at work. NULL is allowed. */
void ember_admission_destroy(struct ember_admission *admission);

/* What a capture takes. */
struct ember_intake {
    uint32_t target;
    int64_t calls;              /* how many */
    uint64_t only_pid;          /* from this process alone; 0: from any */
    uint64_t every;             /* the first call and each so-manieth after it; 0: each one */
    bool spawned;               /* children of a caller take part */
    bool wants_value;           /* what the call returned is asked for ... */
    uint64_t value_after_ticks; /* ... where it took as long */
    bool disarmed;              /* takes no calls yet: see ember_admission_arm */
};

/* Takes a slot for a capture, or -1 when all are taken. Control thread only. */
int ember_admission_reserve(struct ember_admission *admission);

/* From now on calls are captured. */
void ember_admission_open(struct ember_admission *admission, uint32_t capture,
                          const struct ember_intake *intake);

/* A capture that is disarmed takes no calls, but makes known that there was one. Arming
 * begins with the next call. Control thread only. */
void ember_admission_arm(struct ember_admission *admission, uint32_t capture);
void ember_admission_disarm(struct ember_admission *admission, uint32_t capture);

/* Captures, as bits, that were called while they were disarmed and have not been told of
 * here before. Any thread. */
uint64_t ember_admission_called(struct ember_admission *admission);

/* Calls to the target that the capture could have taken. */
uint64_t ember_admission_seen(struct ember_admission *admission, uint32_t capture);

/* Whether a call is being captured now. */
bool ember_admission_is_active(struct ember_admission *admission, uint32_t capture);
/* The processes of a window; NULL when out of memory. */
struct ember_members *ember_members_create(const uint64_t *pids, uint32_t count);
void ember_members_destroy(struct ember_members *members);

/* Makes a reserved capture a window. Returns its run, or 0 when there are too many.
 * Then, when its events can be taken, the members are watched; they are the window's
 * from then on. Control thread only. */
uint64_t ember_admission_begin_window(struct ember_admission *admission, uint32_t capture,
                                      bool spawned);
void ember_admission_open_window(struct ember_admission *admission, uint32_t capture,
                                 struct ember_members *members);

/* A traced process runs: whether it is a member of a window that has not seen it
 * before. */
bool ember_admission_arrive(struct ember_admission *admission, uint64_t pid);

/* Ends a capture and its runs. The slot is free for another once no callback
 * can still see the old one: call ember_admission_reuse after a grace period. */
void ember_admission_close(struct ember_admission *admission, uint32_t capture);
void ember_admission_reuse(struct ember_admission *admission, uint32_t capture);

/* Whether `pid` takes part in an active run or is a window's member. */
bool ember_admission_watched(struct ember_admission *admission, uint64_t pid);

/* `pid` calls `target`: takes one call from each capture that wants it and is
 * not at work in `pid` already. Fills `admitted`, returns how many. */
unsigned ember_admission_enter(struct ember_admission *admission, uint32_t target, uint64_t pid,
                               struct ember_admitted admitted[EMBER_MAX_MEMBERSHIPS]);

/* When a run began, for ember_admission_leave to give back. */
void ember_admission_stamp(struct ember_admission *admission, uint64_t run, uint64_t ticks);

/* Whether `pid` has taken part in a run and has not been forgotten since, or has
 * arrived in a window: the VM has it traced. */
bool ember_admission_known(struct ember_admission *admission, uint64_t pid);

/* The innermost captured call of `pid` to `target` ends: fills `ended` with its
 * runs, one for each capture that took the call. They are active until
 * ember_admission_end: whoever sees that they are not, can see what was written before. */
unsigned ember_admission_leave(struct ember_admission *admission, uint32_t target, uint64_t pid,
                               struct ember_admitted ended[EMBER_MAX_MEMBERSHIPS]);
void ember_admission_end(struct ember_admission *admission, const struct ember_admitted *ended);

/* The call that was admitted could not be written down: the next one is, instead. */
void ember_admission_give_back(struct ember_admission *admission, uint64_t pid,
                               const struct ember_admitted *admitted);

/* Whether the run is active no longer, and not since its capture was closed. */
bool ember_admission_has_ended(struct ember_admission *admission, uint64_t run, uint32_t capture);

/* `parent` has spawned `child`, which has not run yet. */
void ember_admission_inherit(struct ember_admission *admission, uint64_t parent, uint64_t child);

/* `pid` is traced no longer. Frees its entry when it takes part in no active run. */
void ember_admission_forget(struct ember_admission *admission, uint64_t pid);

/* `pid` is dead: its runs end, its entry is free. */
void ember_admission_exit(struct ember_admission *admission, uint64_t pid);

/* What events of a process were lost, until that is told; see track.h for the depths. */
struct ember_gap {
    uint32_t events;
    uint32_t waited; /* for room, in units of ticks */
    int32_t least;
    int32_t open;
};

/* The process's, where it is a window's member or has an entry, or NULL. One writer at a
 * time, as the entry. */
struct ember_gap *ember_admission_gap(struct ember_admission *admission, uint64_t pid);

/* Where the VM has a process, as its callbacks note it; of another `pid`: not known. */
struct ember_place {
    uint64_t pid;
    const uint64_t *words;
};

/* Likewise. */
struct ember_place *ember_admission_place(struct ember_admission *admission, uint64_t pid);

/* Counts a lost event; whoever looks at the process next is told of it. */
void ember_admission_note_loss(struct ember_admission *admission, uint64_t pid);

/* Whether the capture asked for what a call returns that has `ended` at `ticks`. */
bool ember_admission_wants_value(const struct ember_admission *admission,
                                 const struct ember_admitted *ended, uint64_t ticks);

/* Calls and children that found no room in a table. */
uint64_t ember_admission_refused(struct ember_admission *admission);

/* Changes whenever the answer of ember_admission_watched may. */
extern _Atomic uint64_t ember_admission_epoch;

#endif
