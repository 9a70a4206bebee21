/* SPDX-License-Identifier: Apache-2.0 */
#include "track.h"

#include <stdlib.h>

#define MAX_NODE_DEPTH 512
#define MAX_FRAMES (1u << 22)
#define MAX_CHAIN 256

struct ember_track *ember_track_create(struct ember_run *run, const struct ember_capture *capture,
                                       const struct ember_stack_layout *layout, uint32_t process)
{
    struct ember_track *track = calloc(1, sizeof *track);
    if (!track)
        return NULL;
    track->run = run;
    track->capture = capture;
    track->layout = layout;
    track->process = process;
    track->next_in_run = run->tracks;
    run->tracks = track;
    return track;
}

void ember_track_destroy(struct ember_track *track)
{
    track->run->track_bytes -= track->capacity * sizeof *track->frames;
    free(track->frames);
    free(track);
}

static uint32_t function_at(const struct ember_track *track, uint32_t frame)
{
    return track->frames[frame].function;
}

static bool ensure_frame_room(struct ember_track *track)
{
    if (track->depth < track->capacity)
        return true;
    if (track->depth >= MAX_FRAMES)
        return false;
    uint32_t capacity = track->capacity ? track->capacity * 2 : 32;
    struct ember_frame *frames = realloc(track->frames, capacity * sizeof *frames);
    if (!frames) {
        track->run->out_of_memory = true;
        return false;
    }
    track->run->track_bytes += (capacity - track->capacity) * sizeof *frames;
    track->frames = frames;
    track->capacity = capacity;
    return true;
}

static void push(struct ember_track *track, struct ember_frame frame)
{
    if (ensure_frame_room(track))
        track->frames[track->depth++] = frame;
    else
        track->run->depth_cut++;
}

/* The node for `function` called on top; the top itself where recursion is
 * folded or the tree would become too deep. */
static uint32_t callee_node(struct ember_track *track, uint32_t function)
{
    struct ember_tree_node *top = ember_track_top(track);
    if (track->capture->fold_recursion && top->function == function)
        return ember_track_top_index(track);
    if (top->depth >= MAX_NODE_DEPTH) {
        track->run->depth_cut++;
        return ember_track_top_index(track);
    }
    uint32_t child = ember_call_tree_child(&track->run->tree, ember_track_top_index(track), function);
    if (child != EMBER_NONE)
        return child;
    track->run->out_of_memory = true;
    return ember_track_top_index(track);
}

static void count_call(struct ember_track *track)
{
    ember_track_top(track)->calls++;
}

/* The frame of `function` in the chain of tail calls on top, or EMBER_NONE. */
static uint32_t find_in_chain(const struct ember_track *track, uint32_t function)
{
    uint32_t searched = 0;
    for (uint32_t i = track->depth; i > 0 && searched < MAX_CHAIN; i--, searched++) {
        if (function_at(track, i - 1) == function)
            return i - 1;
        if (!track->frames[i - 1].tail)
            return EMBER_NONE;
    }
    return EMBER_NONE;
}

static void tail_call(struct ember_track *track, uint32_t function, int32_t depth, bool shown)
{
    struct ember_frame old = track->frames[track->depth - 1];
    int32_t entered = depth + (old.marked ? 0 : (int32_t)track->layout->return_to_words);
    uint32_t again = shown ? find_in_chain(track, function) : EMBER_NONE;
    bool known = again != EMBER_NONE;
    if (known)
        track->depth = again + 1;
    uint32_t node = shown && !known ? callee_node(track, function) : ember_track_top_index(track);
    struct ember_frame next = {entered, node, function, .tail = true, .hidden = !shown,
                               .marked = true, .captured = old.captured};
    struct ember_frame *top = &track->frames[track->depth - 1];
    bool grows = node != top->node || (!shown && !top->hidden);
    if (!known && grows) {
        push(track, next);
    } else { /* below the depth limit, too, or out of sight: chains must not grow for ever */
        next.tail = top->tail;
        *top = next;
    }
}

static void body_call(struct ember_track *track, uint32_t function, int32_t depth, bool shown)
{
    int32_t entered = depth + (int32_t)track->layout->return_to_words;
    uint32_t node = shown ? callee_node(track, function) : ember_track_top_index(track);
    push(track, (struct ember_frame){entered, node, function, .hidden = !shown, .marked = true});
}

/* How deep a callee of the top is at least. */
static int32_t least_depth(const struct ember_track *track)
{
    int32_t top = track->depth ? track->frames[track->depth - 1].depth : EMBER_NO_DEPTH;
    return top == EMBER_NO_DEPTH ? top : top + 1;
}

/* Without a stack pointer every call looks like a body call. A function that
 * was called since the last return and is called again is taken for a loop. */
static void blind_call(struct ember_track *track, uint32_t function)
{
    for (uint32_t i = track->depth; i > track->unsettled; i--) {
        if (function_at(track, i - 1) == function) {
            track->depth = i;
            return;
        }
    }
    push(track, (struct ember_frame){least_depth(track), callee_node(track, function), function,
                                     .marked = true});
}

static void blind_return_to(struct ember_track *track, uint32_t function)
{
    uint32_t depth = track->depth;
    while (depth > track->base && function_at(track, depth - 1) != function)
        depth--;
    bool found = depth > 0 && function_at(track, depth - 1) == function;
    if (found)
        track->depth = depth;
    else if (track->depth > track->base)
        track->depth--;
    track->unsettled = track->depth;
}

static bool is_own_call(struct ember_track *track, uint32_t function, int32_t depth)
{
    if (!track->skip_call)
        return false;
    track->skip_call = false;
    struct ember_frame *base = &track->frames[0];
    bool own = function_at(track, 0) == function && depth <= base->depth;
    if (own && !base->marked) {
        base->depth = depth + (int32_t)track->layout->return_to_words;
        base->marked = true;
    }
    return own;
}

void ember_track_begin(struct ember_track *track, uint32_t function, int32_t depth, bool traced,
                       bool marked)
{
    bool shown = !track->capture->hide_target;
    int32_t entered = depth == EMBER_NO_DEPTH ? depth : depth + (int32_t)track->layout->begin_words;
    uint32_t node = shown ? callee_node(track, function) : ember_track_top_index(track);
    push(track, (struct ember_frame){entered, node, shown ? function : EMBER_NONE,
                                     .hidden = !shown, .marked = marked});
    track->base = track->depth;
    track->skip_call = track->base > 0 && traced && shown && track->layout->begin_before_call;
    if (shown)
        count_call(track);
}

void ember_track_settle(struct ember_track *track, int32_t depth)
{
    if (track->base > 0 && track->frames[0].depth == EMBER_NO_DEPTH)
        track->frames[0].depth = depth + (int32_t)track->layout->begin_words;
}

/* Frames deeper than the stack are gone. */
static void cut_to(struct ember_track *track, int32_t depth)
{
    while (track->depth > track->base && track->frames[track->depth - 1].depth > depth)
        track->depth--;
}

/* Where the call is a tail call, or was told of before, it is in the chain on
 * top; then the frame for its return is in that chain too. */
bool ember_track_other_begin(struct ember_track *track, int32_t depth)
{
    if (depth == EMBER_NO_DEPTH)
        return false;
    cut_to(track, depth);
    struct ember_frame *top = track->depth > 0 ? &track->frames[track->depth - 1] : NULL;
    if (!top || top->depth != depth)
        return false;
    top->depth += (int32_t)track->layout->begin_words;
    top->captured = true;
    return top->marked;
}

void ember_track_call(struct ember_track *track, uint32_t function, int32_t depth, bool shown)
{
    if (is_own_call(track, function, depth))
        return;
    if (depth == EMBER_NO_DEPTH) {
        if (shown)
            blind_call(track, function);
    } else {
        cut_to(track, depth);
        if (track->depth > 0 && track->frames[track->depth - 1].depth >= depth)
            tail_call(track, function, depth, shown);
        else
            body_call(track, function, depth, shown);
    }
    if (shown)
        count_call(track);
}

/* A caught exception names the function that catches while the stack pointer
 * still shows where it was raised. */
static void unwind_to(struct ember_track *track, uint32_t function)
{
    for (uint32_t i = track->depth; function != EMBER_NONE && i >= track->base && i > 0; i--) {
        if (function_at(track, i - 1) == function) {
            track->depth = i;
            return;
        }
    }
}

/* Whether the frame is just what a return to `depth` leaves. */
static bool is_left_at(const struct ember_track *track, const struct ember_frame *frame,
                       int32_t depth)
{
    bool ended = frame->captured && !track->layout->begin_before_call; /* told of before */
    return frame->depth - depth == 1 + (ended ? (int32_t)track->layout->begin_words : 0);
}

void ember_track_return_to(struct ember_track *track, uint32_t function, int32_t depth)
{
    bool returned = false; /* and not raised */
    track->skip_call = false;
    if (depth == EMBER_NO_DEPTH) {
        blind_return_to(track, function);
        return;
    }
    while (track->depth > track->base && track->frames[track->depth - 1].depth >= depth) {
        returned = is_left_at(track, &track->frames[track->depth - 1], depth);
        track->depth--;
    }
    if (!returned)
        unwind_to(track, function);
}
