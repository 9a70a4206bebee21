/* SPDX-License-Identifier: Apache-2.0
 *
 * A process's timeline as viewers of traces want it: frames that open and close,
 * properly nested. What the outline has left out is in a frame of its own.
 */
#ifndef EMBER_VIEW_TIMELINE_H
#define EMBER_VIEW_TIMELINE_H

#include "outline.h"

struct ember_edge {
    bool opens;
    uint32_t row;      /* of the outline */
    const char *frame; /* "[gc]" and the like, below that row; NULL: the row's own */
    uint64_t at;       /* ns after the start of the profile */
};

struct ember_edges {
    const struct ember_outline *outline;
    uint32_t *rows; /* of each node; EMBER_NONE: not in the outline */
    struct ember_edge *open;
    uint32_t *path; /* rows of the span that is written */
    uint32_t open_count;
    void (*on_edge)(void *context, const struct ember_edge *edge);
    void *context;
};

/* false when out of memory. ember_edges_fini afterwards in any case. */
bool ember_edges_init(struct ember_edges *edges, const struct ember_outline *outline);
void ember_edges_fini(struct ember_edges *edges);

/* Has the process whose row this is a timeline? */
bool ember_edges_has(const struct ember_edges *edges, uint32_t row);

struct ember_extent {
    uint64_t start; /* ns */
    uint64_t end;
    bool cut; /* there is more, and the edges were too many */
};

/* Tells of every edge, at most `most` of them. `on_edge` may be NULL: then how far it
 * goes is all one gets. */
struct ember_extent ember_edges_walk(struct ember_edges *edges, uint32_t row, uint64_t most,
                                     void (*on_edge)(void *context, const struct ember_edge *edge),
                                     void *context);

#endif
