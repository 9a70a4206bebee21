/* SPDX-License-Identifier: Apache-2.0 */
#include "call_tree.h"

#include "hash.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_NODES 8

static size_t bytes_for(uint32_t nodes)
{
    return nodes * (sizeof(struct ember_tree_node) + sizeof(struct ember_tree_rare) +
                    2 * sizeof(struct ember_tree_edge));
}

static struct ember_tree_edge *find_edge(struct ember_tree_edge *edges, uint32_t mask, uint64_t key)
{
    for (uint32_t i = ember_hash(key);; i++) {
        struct ember_tree_edge *edge = &edges[i & mask];
        if (edge->node == EMBER_NONE || edge->key == key)
            return edge;
    }
}

static struct ember_tree_edge *create_edges(uint32_t count)
{
    struct ember_tree_edge *edges = malloc(count * sizeof *edges);
    if (!edges)
        return NULL;
    for (uint32_t i = 0; i < count; i++)
        edges[i].node = EMBER_NONE;
    return edges;
}

/* realloc knows no alignment. */
static bool resize_nodes(struct ember_call_tree *tree, uint32_t capacity)
{
    struct ember_tree_node *nodes = aligned_alloc(sizeof *nodes, capacity * sizeof *nodes);
    if (!nodes)
        return false;
    if (tree->count > 0)
        memcpy(nodes, tree->nodes, tree->count * sizeof *nodes);
    free(tree->nodes);
    tree->nodes = nodes;
    return true;
}

static bool resize_rare(struct ember_call_tree *tree, uint32_t capacity)
{
    struct ember_tree_rare *rare = realloc(tree->rare, capacity * sizeof *rare);
    if (!rare)
        return false;
    tree->rare = rare;
    return true;
}

/* Room for `capacity` nodes and twice as many edges. */
static bool resize(struct ember_call_tree *tree, uint32_t capacity)
{
    assert(capacity > tree->count);
    if (!resize_nodes(tree, capacity) || !resize_rare(tree, capacity))
        return false;
    struct ember_tree_edge *edges = create_edges(capacity * 2);
    if (!edges)
        return false;
    for (uint32_t i = 0; tree->edges && i <= tree->edge_mask; i++)
        if (tree->edges[i].node != EMBER_NONE)
            *find_edge(edges, capacity * 2 - 1, tree->edges[i].key) = tree->edges[i];
    free(tree->edges);
    tree->edges = edges;
    tree->edge_mask = capacity * 2 - 1;
    tree->capacity = capacity;
    tree->bytes = bytes_for(capacity);
    return true;
}

bool ember_call_tree_init(struct ember_call_tree *tree)
{
    *tree = (struct ember_call_tree){0};
    return resize(tree, FIRST_NODES);
}

void ember_call_tree_fini(struct ember_call_tree *tree)
{
    free(tree->nodes);
    free(tree->rare);
    free(tree->edges);
    *tree = (struct ember_call_tree){0};
}

static uint32_t add_node(struct ember_call_tree *tree, struct ember_tree_node node)
{
    bool full = tree->count == tree->capacity;
    if (full && (tree->capacity > UINT32_MAX / 8 || !resize(tree, tree->capacity * 2)))
        return EMBER_NONE;
    node.recent_child = EMBER_NONE;
    tree->nodes[tree->count] = node;
    tree->rare[tree->count] = (struct ember_tree_rare){0};
    return tree->count++;
}

void ember_call_tree_reset(struct ember_call_tree *tree)
{
    memset(tree->rare, 0, tree->count * sizeof *tree->rare);
    for (uint32_t i = 0; i < tree->count; i++) {
        struct ember_tree_node *node = &tree->nodes[i];
        memset(node->events, 0, sizeof node->events);
        node->calls = node->own_ticks = 0;
        node->words = 0;
    }
}

uint32_t ember_call_tree_root(struct ember_call_tree *tree, uint32_t process)
{
    return add_node(tree, (struct ember_tree_node){
                              .parent = EMBER_NONE, .function = EMBER_NONE, .process = process});
}

static uint32_t add_child(struct ember_call_tree *tree, uint32_t node, uint32_t function,
                          uint64_t key)
{
    uint32_t child = add_node(tree, (struct ember_tree_node){
                                        .parent = node,
                                        .function = function,
                                        .process = tree->nodes[node].process,
                                        .depth = tree->nodes[node].depth + 1,
                                    });
    if (child != EMBER_NONE)
        *find_edge(tree->edges, tree->edge_mask, key) = (struct ember_tree_edge){key, child};
    return child;
}

uint32_t ember_call_tree_find_child(struct ember_call_tree *tree, uint32_t node, uint32_t function)
{
    uint64_t key = (uint64_t)node << 32 | function;
    uint32_t child = find_edge(tree->edges, tree->edge_mask, key)->node;
    if (child == EMBER_NONE)
        child = add_child(tree, node, function, key);
    tree->nodes[node].recent_child = child;
    return child;
}
