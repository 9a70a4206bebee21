/* SPDX-License-Identifier: Apache-2.0 */
#include "view_timeline.h"

#include <stdlib.h>
#include <string.h>

static const char *frame_of_state(const struct ember_profile *profile, enum ember_state state)
{
    switch (state) {
    case EMBER_WAITING:
        return ember_pseudo_frames[EMBER_PSEUDO_WAITING];
    case EMBER_PREEMPTED:
        return ember_pseudo_frames[ember_pseudo_not_waiting(profile)];
    case EMBER_COLLECTING:
        return ember_pseudo_frames[EMBER_PSEUDO_GC];
    case EMBER_HELD_UP:
        return "[held up]";
    case EMBER_RUNNING:
    case EMBER_STATES:
        break;
    }
    return NULL;
}

bool ember_edges_init(struct ember_edges *edges, const struct ember_outline *outline)
{
    size_t nodes = outline->profile->node_count;
    *edges = (struct ember_edges){.outline = outline};
    edges->rows = malloc((nodes + 1) * sizeof *edges->rows);
    edges->path = calloc((size_t)outline->depth + 1, sizeof *edges->path);
    edges->open = calloc((size_t)outline->depth + 2, sizeof *edges->open);
    if (!edges->rows || !edges->path || !edges->open)
        return false;
    memset(edges->rows, 0xff, (nodes + 1) * sizeof *edges->rows);
    for (uint32_t row = 0; row < outline->count; row++)
        if (outline->rows[row].node != EMBER_NONE)
            edges->rows[outline->rows[row].node] = row;
    return true;
}

void ember_edges_fini(struct ember_edges *edges)
{
    free(edges->rows);
    free(edges->path);
    free(edges->open);
}

static const struct ember_timeline *timeline_of(const struct ember_edges *edges, uint32_t row)
{
    const struct ember_profile *profile = edges->outline->profile;
    uint32_t node = edges->outline->rows[row].node;
    if (!profile->timelines || node == EMBER_NONE)
        return NULL;
    return &profile->timelines->processes[profile->nodes[node].process];
}

bool ember_edges_has(const struct ember_edges *edges, uint32_t row)
{
    const struct ember_timeline *timeline = timeline_of(edges, row);
    return timeline && timeline->spans > 0;
}

/* ---- frames ---- */

static void tell(struct ember_edges *edges, struct ember_edge edge, bool opens, uint64_t at)
{
    edge.opens = opens;
    edge.at = at;
    if (edges->on_edge)
        edges->on_edge(edges->context, &edge);
}

static void close_to(struct ember_edges *edges, uint32_t count, uint64_t at)
{
    while (edges->open_count > count)
        tell(edges, edges->open[--edges->open_count], false, at);
}

static void open_frame(struct ember_edges *edges, uint32_t row, const char *frame, uint64_t at)
{
    struct ember_edge edge = {.row = row, .frame = frame};
    edges->open[edges->open_count++] = edge;
    tell(edges, edge, true, at);
}

/* The nearest row of the node, and its frame: that of the state, or of what was left out. */
static uint32_t find_row(const struct ember_edges *edges, const struct ember_span *span,
                         const char **frame)
{
    uint32_t node = span->node;
    *frame = frame_of_state(edges->outline->profile, span->state);
    while (edges->rows[node] == EMBER_NONE) {
        node = edges->outline->profile->nodes[node].parent;
        *frame = EMBER_PRUNED_FRAME;
    }
    return edges->rows[node];
}

/* Rows from the process to this one; how many. */
static uint32_t find_path(struct ember_edges *edges, uint32_t row)
{
    const struct ember_row *rows = edges->outline->rows;
    uint32_t count = rows[row].depth + 1;
    for (uint32_t i = count; i-- > 0; row = rows[row].parent)
        edges->path[i] = row;
    return count;
}

static bool is_open(const struct ember_edges *edges, uint32_t i, uint32_t row, const char *frame)
{
    return i < edges->open_count && edges->open[i].row == row && edges->open[i].frame == frame;
}

/* How many of the open frames are on the path, and the frame below it. */
static uint32_t count_same(const struct ember_edges *edges, uint32_t count, uint32_t row,
                           const char *frame)
{
    uint32_t same = 0;
    while (same < count && is_open(edges, same, edges->path[same], NULL))
        same++;
    return same == count && frame && is_open(edges, same, row, frame) ? same + 1 : same;
}

/* Closes and opens what is between the last span and this one, which begins at `at`.
 * How many edges that are; UINT64_MAX, and nothing is done, where they and those that
 * close all again would be more than `most`. */
static uint64_t change_to(struct ember_edges *edges, const struct ember_span *span, uint64_t at,
                          uint64_t most)
{
    const char *frame;
    uint32_t row = find_row(edges, span, &frame);
    uint32_t count = find_path(edges, row);
    uint32_t wanted = count + (frame != NULL);
    uint32_t same = count_same(edges, count, row, frame);
    uint64_t changes = (uint64_t)(edges->open_count - same) + (wanted - same);
    if (changes + wanted > most)
        return UINT64_MAX;
    close_to(edges, same, at);
    for (uint32_t i = same; i < count; i++)
        open_frame(edges, edges->path[i], NULL, at);
    if (same <= count && frame)
        open_frame(edges, row, frame, at);
    return changes;
}

struct ember_extent ember_edges_walk(struct ember_edges *edges, uint32_t row, uint64_t most,
                                     void (*on_edge)(void *context, const struct ember_edge *edge),
                                     void *context)
{
    const struct ember_timeline *timeline = timeline_of(edges, row);
    if (!timeline)
        return (struct ember_extent){0};
    struct ember_timeline_reader reader = ember_timeline_read(timeline);
    struct ember_extent extent = {.start = timeline->start, .end = timeline->start};
    struct ember_span span;
    edges->on_edge = on_edge;
    edges->context = context;
    edges->open_count = 0;
    while (!extent.cut && ember_timeline_next(&reader, &span)) {
        uint64_t changes = change_to(edges, &span, extent.end, most);
        extent.cut = changes == UINT64_MAX;
        most -= extent.cut ? 0 : changes;
        extent.end = extent.cut ? extent.end : reader.time;
    }
    close_to(edges, 0, extent.end);
    return extent;
}
