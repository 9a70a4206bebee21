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

#define EMBER_NONE UINT32_MAX

/* What was measured of one stack, or of a sum of stacks.
 * Times exclude each other: own time is neither off-CPU nor GC time. */
struct ember_metrics {
    uint64_t calls;
    uint64_t own_ns;     /* running, the tracer's own cost subtracted */
    uint64_t off_cpu_ns; /* scheduled out: waiting or preempted */
    uint64_t gc_ns;      /* in garbage collection */
    int64_t words;       /* heap words allocated */
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
    uint64_t pid;   /* the VM's word for the pid; 0 where unknown */
    char *pid_text; /* <0.123.0> */
    char *name;     /* registered name, or NULL */
    char *label;    /* label or initial call, or NULL */
    uint32_t parent; /* index of the process that spawned it, or EMBER_NONE */
    uint32_t root;   /* index of its root node */
    bool exited;     /* died while it was profiled */
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
};

/* Bits of ember_info.fallbacks: what had to be done in a less exact way. */
enum {
    EMBER_FALLBACK_STACK = 1, /* no stack pointer: stacks from return_to alone */
    EMBER_FALLBACK_HEAP = 2,  /* words in fragments are seen at collections only */
    EMBER_FALLBACK_CLOCK = 4, /* no invariant time-stamp counter */
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
    uint64_t depth_cut;      /* calls below the depth limit */
    uint32_t calls;          /* captured calls in it: 1, or more when merged */
    uint32_t fallbacks;
    enum ember_outcome outcome;
};

struct ember_profile {
    struct ember_info info;
    struct ember_function *functions;
    struct ember_process *processes;
    struct ember_node *nodes;
    uint32_t function_count;
    uint32_t process_count;
    uint32_t node_count;
};

/* All fields zero; NULL when out of memory. */
struct ember_profile *ember_profile_create(void);

/* Any state; NULL is allowed. */
void ember_profile_destroy(struct ember_profile *profile);

/* Adds `more` to `sum`. */
void ember_metrics_add(struct ember_metrics *sum, const struct ember_metrics *more);

/* Sum of the nodes of one process, or of all (EMBER_NONE). */
struct ember_metrics ember_profile_total(const struct ember_profile *profile, uint32_t process);

/* true when every index is in range and every parent stands before its child. */
bool ember_profile_check(const struct ember_profile *profile);

/* A new profile with the sums of `count` others: stacks are equal when their
 * process and their functions are. Processes are equal when pid and name are.
 * NULL when out of memory. */
struct ember_profile *ember_profile_merge(const struct ember_profile *const *profiles,
                                          uint32_t count);

#endif
