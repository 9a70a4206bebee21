/* SPDX-License-Identifier: Apache-2.0
 *
 * A finished profile: call trees with their metrics, the names they need and
 * how they came about. It owns everything it points to and never changes
 * after it is handed out, so any thread may read it.
 */
#ifndef EMBER_PROFILE_H
#define EMBER_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "timeline.h"

#define EMBER_NONE UINT32_MAX

/* What was measured of one stack, or of a sum of stacks.
 * Times exclude each other: own time is neither off-CPU nor GC time. */
struct ember_metrics {
    uint64_t calls;
    uint64_t own_ns;         /* running, the tracer's own cost subtracted */
    uint64_t off_cpu_ns;     /* scheduled out: waiting or preempted, that is runnable */
    uint64_t gc_ns;          /* in garbage collection */
    int64_t words;           /* heap words allocated */
    uint64_t uncertainty_ns; /* of own_ns, either way: the cost of tracing is known so exactly */
    uint64_t waiting_ns;   /* the part of off_cpu_ns that it was scheduled out with nothing to do */
    uint64_t binary_bytes; /* of binaries outside the heap that came to be referred to */
};

/* Names are UTF-8; `text` is how the language writes it, quoted where needed:
 * lists:map/2, 'my mod':'a b'/0, Enum.map/2. */
struct ember_function {
    char *module;
    char *name;
    char *text;
    uint8_t arity;
};

/* A process that took part. `root` is its node without a function. */
struct ember_process {
    uint64_t pid;    /* the VM's word for the pid; 0 where unknown */
    char *pid_text;  /* <0.123.0> */
    char *name;      /* registered name, or NULL */
    char *label;     /* label or initial call, or NULL */
    uint32_t parent; /* index of the process that spawned it, or EMBER_NONE */
    uint32_t root;   /* index of its root node */
    bool exited;     /* died while it was profiled */
    char *ancestors; /* those above it, the nearest first, a line each; or NULL */
};

/* One stack: the path from the root to this node. A parent stands before its
 * children. A root has no parent and no function (EMBER_NONE). */
struct ember_node {
    uint32_t parent;
    uint32_t function;
    uint32_t process;
    struct ember_metrics own; /* of this very stack, its callees not included */
};

enum ember_outcome {
    EMBER_OUTCOME_RETURNED,
    EMBER_OUTCOME_RAISED,
    EMBER_OUTCOME_EXITED,     /* the process died inside the call */
    EMBER_OUTCOME_UNFINISHED, /* cut short by a limit or a stop */
    EMBER_OUTCOME_RECORDED,   /* no call, but what processes did for a while */
};

/* Why a profile is not of all that was asked for. */
enum ember_cut {
    EMBER_CUT_NONE,
    EMBER_CUT_TIMEOUT,
    EMBER_CUT_STOPPED,
    EMBER_CUT_MEMORY_LIMIT,
    EMBER_CUT_UNTRACED, /* others took tracing away, or the process did */
    EMBER_CUT_LOST,     /* the event of its end was lost */
    EMBER_CUTS,
};

/* Bits of ember_info.fallbacks: what had to be done in a less exact way. */
enum {
    EMBER_FALLBACK_STACK = 1,     /* no stack pointer: stacks from return_to alone */
    EMBER_FALLBACK_HEAP = 2,      /* words in fragments are seen at collections only */
    EMBER_FALLBACK_CLOCK = 4,     /* no invariant time-stamp counter */
    EMBER_FALLBACK_COST = 8,      /* the cost of tracing varied too much to be subtracted exactly */
    EMBER_FALLBACK_BINARIES = 16, /* binaries outside the heap are not counted */
    EMBER_FALLBACK_WAITING = 32,  /* waiting cannot be told from preempted */
    EMBER_NO_TIMES = 64,          /* not asked for, as the next three; all of them are zero */
    EMBER_NO_WORDS = 128,
    EMBER_NO_CALLS = 256,
    EMBER_NO_BINARIES = 512,
    EMBER_FALLBACKS = 1023, /* all of these */
};
#define EMBER_FALLBACK_KINDS 10

/* Of the bit of the same number. */
extern const char *const ember_fallback_names[EMBER_FALLBACK_KINDS];

/* Of a profile that was sampled: numbers are estimates of all the time, scaled from what
 * happened in windows. All zero: it was not. */
struct ember_sampled {
    uint64_t windows;
    uint64_t window_ns; /* their length in all */
    uint64_t span_ns;   /* of the time that is estimated */
    uint64_t cost_ns;   /* what they have cost, of one scheduler's time */
    uint32_t schedulers;
    uint32_t budget_ppm; /* of all schedulers' time; of a merge, the largest */
    uint64_t seen;       /* processes that were recorded, added up over the windows ... */
    uint64_t present;    /* ... of so many that there were */
};

struct ember_info {
    char *target;      /* what was profiled, as text */
    char *otp_release; /* "27" */
    int64_t start_us;  /* UTC, microseconds since the epoch */
    uint64_t duration_ns;
    uint64_t events;         /* seen by the consumer for this profile */
    uint64_t lost;           /* events lost while it ran */
    uint64_t compensated_ns; /* tracing cost subtracted, all nodes */
    uint64_t raw_ns;         /* own time before that */
    uint64_t beside;         /* events told beside a full heap: for calibration, not in files */
    uint64_t depth_cut;      /* calls below the depth limit */
    uint32_t calls;          /* captured calls in it: 1, or more when merged */
    uint32_t fallbacks;
    enum ember_outcome outcome;
    enum ember_cut cut_by;
    struct ember_sampled sampled;
};

/* What the metrics of the side before were scaled to. */
enum ember_normalise {
    EMBER_NORMALISE_NONE,
    EMBER_NORMALISE_CALLS, /* as many captured calls as after */
    EMBER_NORMALISE_TIME,  /* as much time in all (own, off-CPU and GC) as after */
};

/* The other side of a comparison, whose nodes are the stacks of both. */
struct ember_before {
    struct ember_info info;    /* of the profile before, not scaled */
    struct ember_metrics *own; /* of each node, scaled; all zero: the stack is new */
    double scale;              /* by how much */
    enum ember_normalise normalise;
};

struct ember_profile {
    struct ember_info info;
    struct ember_function *functions;
    struct ember_process *processes;
    struct ember_node *nodes;
    uint32_t function_count;
    uint32_t process_count;
    uint32_t node_count;
    struct ember_before *before; /* NULL: this is no comparison */
    double *squares; /* while windows are added: of each node, of its time in each; or NULL */
    struct ember_timelines *timelines; /* one a process; NULL: none was recorded */
};

/* All fields zero; NULL when out of memory. */
struct ember_profile *ember_profile_create(void);

/* Of memory. */
size_t ember_profile_bytes(const struct ember_profile *profile);

/* Any state; NULL is allowed. */
void ember_profile_destroy(struct ember_profile *profile);

/* Adds `more` to `sum`. */
void ember_metrics_add(struct ember_metrics *sum, const struct ember_metrics *more);

/* Sum of the nodes of one process, or of all (EMBER_NONE). */
struct ember_metrics ember_profile_total(const struct ember_profile *profile, uint32_t process);

/* waiting_ns, which a file may claim to be more than the off_cpu_ns it is a part of.
 * The rest is preempted, unless the two could not be told apart
 * (EMBER_FALLBACK_WAITING). */
uint64_t ember_metrics_waiting(const struct ember_metrics *metrics);

/* true when nothing was measured. */
bool ember_metrics_are_zero(const struct ember_metrics *metrics);

/* true when every index is in range and every parent stands before its child. */
bool ember_profile_check(const struct ember_profile *profile);

/* A new profile with the sums of `count` others: stacks are equal when their
 * process and their functions are. Processes are equal when pid and name are.
 * Timelines are left out, here and below. NULL when out of memory. */
struct ember_profile *ember_profile_merge(const struct ember_profile *const *profiles,
                                          uint32_t count);

/* Adds a window's profile, or a captured call's, to those of others before (NULL: there were none):
 * what a process did counts `weights[process]' times. `sampled' is of this window. When there are
 * `most_processes' already, others are summed up by what they do. A new profile, or NULL
 * when out of memory.
 *
 * Tracing slows processes down, so in a window, but not in a call, they do less than they would.
 * Those that had time to wait have waited less instead. What the others lack of the window's length
 * makes what they did count more, and so what those did that they have spawned. */
struct ember_profile *ember_profile_add_window(const struct ember_profile *sum,
                                               const struct ember_profile *window,
                                               const double *weights,
                                               const struct ember_sampled *sampled,
                                               uint32_t most_processes);

/* Forgets what was not asked for: EMBER_NO_... */
void ember_profile_leave_out(struct ember_profile *profile, uint32_t what);

/* ... with the uncertainty of own times that follows from how they varied from window to
 * window: one standard error, and what the cost of tracing leaves uncertain. */
struct ember_profile *ember_profile_settle(const struct ember_profile *sum);

/* What is kept of a profile. */
struct ember_filter {
    const bool *processes;      /* one a process; NULL: all */
    const char *const *modules; /* NULL: all */
    uint32_t module_count;
};

/* A new profile of some processes, and of the functions of some modules: times and
 * words of others become their callers'. Of what was measured it tells what the whole
 * one does. NULL when out of memory. */
struct ember_profile *ember_profile_filter(const struct ember_profile *profile,
                                           const struct ember_filter *filter);

/* A comparison of two profiles, neither of them one itself: `after` with the
 * stacks that vanished added, all zero, and `before` beside it. Stacks are equal
 * when their functions are and their processes do the same: the captured calls
 * are one process, those spawned within are equal when their name is, or without
 * one their label. NULL when out of memory. */
struct ember_profile *ember_profile_diff(const struct ember_profile *before,
                                         const struct ember_profile *after,
                                         enum ember_normalise normalise);

#endif
