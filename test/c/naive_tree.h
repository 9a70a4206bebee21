/* SPDX-License-Identifier: Apache-2.0
 *
 * What the recorder should have found, kept in the plainest way: the model of
 * the VM tells which function was entered in which frame of the real stack, so
 * nothing has to be guessed from depths.
 */
#ifndef EMBER_TEST_NAIVE_TREE_H
#define EMBER_TEST_NAIVE_TREE_H

#include "call_tree.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

enum { NAIVE_MAX_NODE_DEPTH = 512 };

struct naive_node {
    uint32_t parent;
    uint32_t function;
    uint32_t depth;
    uint64_t calls;
    uint64_t own_ticks;
    uint64_t off_cpu_ticks;
    uint64_t waiting_ticks; /* of these */
    uint64_t gc_ticks;
    int64_t words;
};

struct naive_run {
    uint64_t id;
    uint32_t capture;
    bool fold_recursion;
    bool ended; /* its call is over, whether the recorder knows or not */
    struct naive_node *nodes;
    uint32_t count;
    uint32_t capacity;
    uint64_t begin_ticks;
};

/* A function as it is shown, and the real frame it runs in. */
struct naive_entry {
    uint32_t node;
    uint32_t function;
    uint32_t frame;
};

/* One process within one run. */
struct naive_stack {
    struct naive_run *run;
    uint32_t root;
    uint32_t base;      /* entries that stay: the captured call's */
    bool window;        /* recorded from the middle: returns of old frames show later */
    uint32_t displaced; /* the node on top when the process left its block */
    struct naive_entry *entries;
    uint32_t count;
    uint32_t capacity;
};

static inline uint32_t naive_add_node(struct naive_run *run, uint32_t parent, uint32_t function)
{
    if (run->count == run->capacity) {
        run->capacity = run->capacity ? run->capacity * 2 : 16;
        run->nodes = realloc(run->nodes, run->capacity * sizeof *run->nodes);
    }
    run->nodes[run->count] = (struct naive_node){
        .parent = parent,
        .function = function,
        .depth = parent == EMBER_NONE ? 0 : run->nodes[parent].depth + 1,
    };
    return run->count++;
}

static inline uint32_t naive_find_child(const struct naive_run *run, uint32_t parent,
                                        uint32_t function)
{
    for (uint32_t i = 0; i < run->count; i++)
        if (run->nodes[i].parent == parent && run->nodes[i].function == function)
            return i;
    return EMBER_NONE;
}

static inline uint32_t naive_top(const struct naive_stack *stack)
{
    return stack->count ? stack->entries[stack->count - 1].node : stack->root;
}

static inline struct naive_node *naive_top_node(const struct naive_stack *stack)
{
    return &stack->run->nodes[naive_top(stack)];
}

static inline void naive_push(struct naive_stack *stack, uint32_t node, uint32_t function,
                              uint32_t frame)
{
    if (stack->count == stack->capacity) {
        stack->capacity = stack->capacity ? stack->capacity * 2 : 16;
        stack->entries = realloc(stack->entries, stack->capacity * sizeof *stack->entries);
    }
    stack->entries[stack->count++] = (struct naive_entry){node, function, frame};
}

static inline uint32_t naive_child(struct naive_run *run, uint32_t parent, uint32_t function)
{
    uint32_t child = naive_find_child(run, parent, function);
    return child == EMBER_NONE ? naive_add_node(run, parent, function) : child;
}

/* Beyond the depth limit each function stands once, whatever called it. */
static inline uint32_t naive_callee(const struct naive_stack *stack, uint32_t function)
{
    struct naive_run *run = stack->run;
    uint32_t top = naive_top(stack);
    if (run->fold_recursion && run->nodes[top].function == function)
        return top;
    if (run->nodes[top].depth == NAIVE_MAX_NODE_DEPTH)
        top = naive_child(run, top, EMBER_DEEPER);
    else if (run->nodes[top].depth > NAIVE_MAX_NODE_DEPTH)
        top = run->nodes[top].parent;
    return naive_child(run, top, function);
}

/* A function entered in `frame`: where others have run in this very frame, by
 * a chain of tail calls, each stands once. */
static inline void naive_call(struct naive_stack *stack, uint32_t function, uint32_t frame)
{
    bool again = false;
    for (uint32_t i = stack->count; i > 0 && stack->entries[i - 1].frame == frame && !again; i--) {
        again = stack->entries[i - 1].function == function;
        if (again)
            stack->count = i;
    }
    if (!again)
        naive_push(stack, naive_callee(stack, function), function, frame);
    naive_top_node(stack)->calls++;
}

/* `frame` and all above it are gone. */
static inline void naive_leave(struct naive_stack *stack, uint32_t frame)
{
    while (stack->count > stack->base && stack->entries[stack->count - 1].frame >= frame)
        stack->count--;
}

#endif
