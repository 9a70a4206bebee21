/* SPDX-License-Identifier: Apache-2.0
 *
 * Call trees in one growing array: a node is a stack, its path to the root.
 * Each process of a run has a root of its own in the run's tree. Consumer
 * thread only.
 */
#ifndef EMBER_CALL_TREE_H
#define EMBER_CALL_TREE_H

#include "profile.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Instead of a function's id: the frame that stands for all frames beyond the
 * depth limit. Below it each function stands once, whatever called it. */
#define EMBER_DEEPER (UINT32_MAX - 1)

/* Likewise: the frame that stands for calls whose events were lost, and for those of a
 * process that was recorded from somewhere in the middle, where they are not known. */
#define EMBER_UNKNOWN (UINT32_MAX - 2)

/* The kinds of tracing cost, calibrated apart. An interval between two events
 * of a process is lengthened by the event that ends it. */
enum ember_cost {
    EMBER_COST_CALL,
    EMBER_COST_RETURN,
    EMBER_COST_SWITCH, /* in, out */
    EMBER_COST_GC,     /* start, end */
    EMBER_COST_BESIDE, /* on top, where the heap was full and the VM told of a call or a return
                          in a fragment beside it */
    EMBER_COST_KINDS,
};

/* One cache line: most events touch one node. */
struct ember_tree_node {
    uint32_t parent;   /* EMBER_NONE: a root */
    uint32_t function; /* id; EMBER_NONE: a root */
    uint32_t process;  /* of the run */
    uint32_t depth;
    uint32_t recent_child;             /* the child found last, or EMBER_NONE */
    uint32_t events[EMBER_COST_KINDS]; /* that ended an interval of own time */
    uint64_t calls;
    uint64_t own_ticks;
    int64_t words;
};

static_assert(sizeof(struct ember_tree_node) == 64, "a node is a cache line");

/* Intervals that are as long as a turn of another program on the processor. */
struct ember_long_intervals {
    uint64_t ticks;
    uint64_t count;
};

#define EMBER_LONG_TICKS (UINT64_C(1) << 16) /* some 0.1 ms */

/* What a node rarely has. */
struct ember_tree_rare {
    uint64_t off_cpu_ticks;
    uint64_t waiting_ticks; /* a part of the former */
    uint64_t gc_ticks;
    uint64_t caused_gc_ticks;             /* of these: for tracing's own words */
    struct ember_long_intervals long_own; /* of own_ticks */
    uint64_t binary_words;                /* outside the heap */
};

struct ember_tree_edge {
    uint64_t key;  /* parent << 32 | function */
    uint32_t node; /* EMBER_NONE: free */
};

struct ember_call_tree {
    struct ember_tree_node *nodes;
    struct ember_tree_rare *rare; /* of the node of the same index */
    struct ember_tree_edge *edges;
    uint32_t count;
    uint32_t capacity;
    uint32_t edge_mask;
    size_t bytes; /* allocated */
};

bool ember_call_tree_init(struct ember_call_tree *tree);
void ember_call_tree_fini(struct ember_call_tree *tree);

/* The nodes stay, and what was counted for them does not. */
void ember_call_tree_reset(struct ember_call_tree *tree);

/* A new root, or EMBER_NONE when out of memory. */
uint32_t ember_call_tree_root(struct ember_call_tree *tree, uint32_t process);

/* As ember_call_tree_child, without a look at the child found last. */
uint32_t ember_call_tree_find_child(struct ember_call_tree *tree, uint32_t node, uint32_t function);

/* The child of `node` for `function`, new if need be; EMBER_NONE when out of
 * memory. Pointers into nodes are invalid afterwards. */
static inline uint32_t ember_call_tree_child(struct ember_call_tree *tree, uint32_t node,
                                             uint32_t function)
{
    uint32_t recent = tree->nodes[node].recent_child;
    if (recent != EMBER_NONE && tree->nodes[recent].function == function)
        return recent;
    return ember_call_tree_find_child(tree, node, function);
}

#endif
