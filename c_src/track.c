/* SPDX-License-Identifier: Apache-2.0 */
#include "track.h"

#include <stdlib.h>
#include <string.h>

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
    track->displaced = EMBER_NONE;
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

static bool grow_frames(struct ember_track *track)
{
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
    if (track->depth < track->capacity || grow_frames(track))
        track->frames[track->depth++] = frame;
    else
        track->run->depth_cut++;
}

/* The child of `parent` for `function`; `parent` itself when out of memory. */
static uint32_t child_node(struct ember_track *track, uint32_t parent, uint32_t function)
{
    uint32_t child = ember_call_tree_child(&track->run->tree, parent, function);
    if (child != EMBER_NONE)
        return child;
    track->run->out_of_memory = true;
    return parent;
}

/* Beyond the depth limit. */
static uint32_t deep_node(struct ember_track *track, const struct ember_tree_node *top,
                          uint32_t function)
{
    bool first = top->depth == MAX_NODE_DEPTH;
    track->run->depth_cut++;
    uint32_t deeper = first ? child_node(track, ember_track_top_index(track), EMBER_DEEPER)
                            : top->parent;
    return child_node(track, deeper, function);
}

/* The node for `function` called on top; the top itself where recursion is
 * folded. */
static uint32_t callee_node(struct ember_track *track, uint32_t function)
{
    const struct ember_tree_node *top = ember_track_top(track);
    if (track->capture->fold_recursion && top->function == function)
        return ember_track_top_index(track);
    if (top->depth >= MAX_NODE_DEPTH)
        return deep_node(track, top, function);
    return child_node(track, ember_track_top_index(track), function);
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

/* The chain of a frame that was there before gets its mark only now. */
static void mark_old(struct ember_track *track, int32_t depth)
{
    struct ember_frame *top = &track->frames[track->depth - 1];
    if (!track->entered || top->marked)
        return;
    top->depth = depth;
    top->marked = true;
}

static void tail_call(struct ember_track *track, uint32_t function, int32_t depth, bool shown)
{
    struct ember_frame old = track->frames[track->depth - 1];
    int32_t entered = depth + (old.marked ? 0 : (int32_t)track->layout->return_to_words);
    mark_old(track, entered);
    uint32_t again = shown ? find_in_chain(track, function) : EMBER_NONE;
    bool known = again != EMBER_NONE;
    if (known)
        track->depth = again + 1;
    uint32_t node = shown && !known ? callee_node(track, function) : ember_track_top_index(track);
    struct ember_frame next = {entered,
                               node,
                               function,
                               .tail = true,
                               .hidden = !shown,
                               .marked = true,
                               .captured = old.captured,
                               .loose = old.maybe};
    struct ember_frame *top = &track->frames[track->depth - 1];
    bool grows = node != top->node || (!shown && !top->hidden);
    if (!known && grows) {
        push(track, next);
    } else { /* below the depth limit, too, or out of sight: chains must not grow for ever */
        next.tail = top->tail;
        *top = next;
    }
}

/* Whether a call at `depth` may be a tail call of somebody unknown. */
static bool is_loose_at(const struct ember_track *track, int32_t depth)
{
    const struct ember_frame *top = track->depth ? &track->frames[track->depth - 1] : NULL;
    return top && (top->function == EMBER_UNKNOWN || (top->loose && top->depth == depth));
}

static void body_call(struct ember_track *track, uint32_t function, int32_t depth, bool shown)
{
    int32_t entered = depth + (int32_t)track->layout->return_to_words;
    bool loose = is_loose_at(track, depth);
    uint32_t node = shown ? callee_node(track, function) : ember_track_top_index(track);
    push(track, (struct ember_frame){entered, node, function, .hidden = !shown, .marked = true,
                                     .loose = loose});
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
                       enum ember_marking marking)
{
    bool shown = !track->capture->hide_target;
    int32_t entered = depth == EMBER_NO_DEPTH ? depth : depth + (int32_t)track->layout->begin_words;
    uint32_t node = shown ? callee_node(track, function) : ember_track_top_index(track);
    bool maybe = marking == EMBER_MARKED_MAYBE;
    bool told = maybe && shown && traced && !track->layout->begin_before_call; /* by its CALL */
    push(track, (struct ember_frame){entered, node, shown ? function : EMBER_NONE, .hidden = !shown,
                                     .marked = marking == EMBER_MARKED || told,
                                     .maybe = maybe && !shown, .loose = maybe && shown && !told});
    track->base = track->depth;
    track->rooted = track->base > 0;
    track->skip_call = track->base > 0 && traced && shown && track->layout->begin_before_call;
    if (shown)
        count_call(track);
}

void ember_track_settle(struct ember_track *track, int32_t depth)
{
    if (track->rooted && track->frames[0].depth == EMBER_NO_DEPTH)
        track->frames[0].depth = depth + (int32_t)track->layout->begin_words;
}

static int32_t least_entry(const struct ember_track *track, const struct ember_frame *frame)
{
    return frame->depth - (frame->loose ? (int32_t)track->layout->return_to_words : 0);
}

static void push_unknown(struct ember_track *track, int32_t depth)
{
    uint32_t node = callee_node(track, EMBER_UNKNOWN);
    push(track, (struct ember_frame){depth, node, EMBER_UNKNOWN, .marked = true});
}

static struct ember_frame *loose_base(const struct ember_track *track)
{
    struct ember_frame *base = track->base ? &track->frames[track->base - 1] : NULL;
    bool top = base && track->depth == track->base;
    return top && (base->loose || base->maybe) ? base : NULL;
}

/* What is above a function that is unknown counts as that function. */
static void cut_to_unknown(struct ember_track *track)
{
    uint32_t depth = track->depth;
    while (track->depth > track->base && track->frames[track->depth - 1].loose)
        track->depth--;
    const struct ember_frame *base = loose_base(track);
    if (base && depth > track->depth)
        push_unknown(track, least_entry(track, base));
}

/* The top may be gone; but the captured call is there in any case. */
static void doubt(struct ember_track *track)
{
    struct ember_frame *base = loose_base(track);
    if (!base || !base->loose) {
        cut_to_unknown(track);
        return;
    }
    base->depth = least_entry(track, base);
    base->loose = false;
}

/* Frames deeper than the stack are gone. Where that is in doubt, all of them are that
 * unknown functions may have called. */
static void cut_deeper(struct ember_track *track, int32_t depth)
{
    while (track->depth > track->base &&
           least_entry(track, &track->frames[track->depth - 1]) > depth)
        track->depth--;
    if (track->depth > 0 && track->frames[track->depth - 1].loose &&
        track->frames[track->depth - 1].depth > depth)
        doubt(track);
}

static inline void cut_to(struct ember_track *track, int32_t depth)
{
    if (track->depth > 0 && track->frames[track->depth - 1].depth > depth)
        cut_deeper(track, depth);
}

/* Where the call is a tail call, or was told of before, it is in the chain on
 * top; then the frame for its return is in that chain too. */
enum ember_marking ember_track_other_begin(struct ember_track *track, int32_t depth)
{
    if (depth == EMBER_NO_DEPTH)
        return EMBER_UNMARKED;
    cut_to(track, depth);
    cut_to_unknown(track);
    struct ember_frame *top = track->depth > 0 ? &track->frames[track->depth - 1] : NULL;
    if (top && top->function == EMBER_UNKNOWN && top->depth != depth)
        return EMBER_MARKED_MAYBE;
    if (!top || top->depth != depth)
        return EMBER_UNMARKED;
    top->depth += (int32_t)track->layout->begin_words;
    top->captured = true;
    return top->marked ? EMBER_MARKED : EMBER_UNMARKED;
}

/* A frame that was there before, of whose return no event tells. */
static bool is_old(const struct ember_track *track, const struct ember_frame *frame)
{
    return track->entered && track->depth > track->base && !frame->marked;
}

/* Nothing else tells of the return of a frame that was there before. */
void ember_track_other_return(struct ember_track *track, int32_t depth)
{
    if (!track->entered || depth == EMBER_NO_DEPTH)
        return;
    cut_to(track, depth);
    if (track->depth > 0 && is_old(track, &track->frames[track->depth - 1]))
        cut_to(track, depth - 1);
}

static bool replaces_top(const struct ember_track *track, int32_t depth)
{
    if (track->depth == 0)
        return false;
    const struct ember_frame *top = &track->frames[track->depth - 1];
    return !top->loose && top->depth >= depth;
}

/* Whether the top is the frame of doubt_old. */
static bool is_doubt(const struct ember_track *track)
{
    if (track->depth <= track->base)
        return false;
    const struct ember_frame *top = &track->frames[track->depth - 1];
    return top->function == EMBER_UNKNOWN && top->maybe;
}

static void enter(struct ember_track *track, uint32_t function, int32_t depth, bool shown)
{
    cut_to(track, depth);
    if (is_doubt(track) && track->frames[track->depth - 1].depth == depth)
        track->depth--;
    if (replaces_top(track, depth))
        tail_call(track, function, depth, shown);
    else
        body_call(track, function, depth, shown);
}

void ember_track_call(struct ember_track *track, uint32_t function, int32_t depth, bool shown)
{
    if (is_own_call(track, function, depth))
        return;
    if (depth != EMBER_NO_DEPTH)
        enter(track, function, depth, shown);
    else if (shown)
        blind_call(track, function);
    if (shown)
        count_call(track);
}

/* What was called at the very depth of an old frame was its tail call, or was called after
 * its return by the frame below, which may be where the process is. */
static void doubt_old(struct ember_track *track, int32_t least)
{
    const struct ember_frame *top = track->depth ? &track->frames[track->depth - 1] : NULL;
    if (!top || !is_old(track, top) || top->depth != least)
        return;
    const struct ember_frame *below = track->depth >= 2 ? top - 1 : NULL;
    bool maybe = !below || below->function != top->function;
    track->depth--;
    push_unknown(track, below ? below->depth : 0);
    track->frames[track->depth - 1].maybe = maybe;
}

void ember_track_gap(struct ember_track *track, int32_t least, int32_t open)
{
    track->skip_call = false;
    cut_to(track, least);
    doubt_old(track, least);
    if (least == EMBER_NO_DEPTH)
        push_unknown(track, least_depth(track));
    else if (open == EMBER_ANY_DEPTH)
        push_unknown(track, open);
    else
        enter(track, EMBER_UNKNOWN, open, true);
    track->unsettled = track->depth;
}

void ember_track_gap_end(struct ember_track *track)
{
    cut_to(track, EMBER_ANY_DEPTH - 1);
}

bool ember_track_is_over(const struct ember_track *track, int32_t least)
{
    int32_t slack = (int32_t)track->layout->return_to_words; /* it may have been marked before */
    return track->rooted && least != EMBER_NO_DEPTH &&
           track->frames[track->base - 1].depth != EMBER_NO_DEPTH &&
           track->frames[track->base - 1].depth - slack > least;
}

/* A caught exception names the function that catches while the stack pointer
 * still shows where it was raised. It may be one of those that are unknown. */
static void unwind_to(struct ember_track *track, uint32_t function)
{
    for (uint32_t i = track->depth; function != EMBER_NONE && i >= track->base && i > 0; i--) {
        if (function_at(track, i - 1) == function || function_at(track, i - 1) == EMBER_UNKNOWN) {
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
    int32_t way =
        (int32_t)track->layout->return_words + (ended ? (int32_t)track->layout->begin_words : 0);
    return frame->depth - depth == way || least_entry(track, frame) - depth == way;
}

/* Whether the frame is gone when something has returned to `depth`. */
static bool is_gone(const struct ember_frame *frame, int32_t depth)
{
    return frame->depth > depth || (frame->depth == depth && !frame->loose);
}

/* No event tells of the return of a frame that was there before. A call at its depth may
 * have come from it or, after that, from its caller; the name shows it. */
static bool top_has_gone(const struct ember_track *track, uint32_t function)
{
    const struct ember_frame *top = track->depth ? &track->frames[track->depth - 1] : NULL;
    return top && is_old(track, top) && !top->hidden && top->function != function;
}

void ember_track_return_to(struct ember_track *track, uint32_t function, int32_t depth)
{
    bool returned = false; /* and not raised */
    track->skip_call = false;
    if (depth == EMBER_NO_DEPTH) {
        blind_return_to(track, function);
        return;
    }
    while (track->depth > track->base && is_gone(&track->frames[track->depth - 1], depth)) {
        returned = is_left_at(track, &track->frames[track->depth - 1], depth);
        track->depth--;
    }
    if (is_doubt(track) && track->depth >= 2 && function_at(track, track->depth - 2) == function)
        track->depth--;
    else if (!returned || top_has_gone(track, function))
        unwind_to(track, function);
}

/* ---- from somewhere in the middle ---- */

/* Shallower than any other. */
static void push_bottom(struct ember_track *track)
{
    push(track, (struct ember_frame){.node = callee_node(track, EMBER_UNKNOWN),
                                     .function = EMBER_UNKNOWN});
    track->base = track->depth;
}

void ember_track_enter(struct ember_track *track, uint64_t ticks)
{
    track->entered = true;
    track->since = ticks;
    push_bottom(track);
}

void ember_track_assume(struct ember_track *track, const uint32_t *functions, uint32_t count,
                        bool complete)
{
    if (track->depth == 0 || count == 0)
        return;
    uint32_t root = track->run->processes[track->process].root;
    uint32_t *node = &track->frames[0].node;
    *node = complete ? root : *node;
    for (uint32_t i = 0; i < count; i++)
        *node = callee_node(track, functions[i]);
    track->assumed = true;
}

void ember_track_forget_assumed(struct ember_track *track)
{
    if (!track->assumed)
        return;
    track->assumed = false;
    track->depth = track->base = 0;
    push_bottom(track);
}

/* A frame that has been there before, wherever it stands now. */
static void push_again(struct ember_track *track, struct ember_frame frame)
{
    frame.node = frame.hidden ? ember_track_top_index(track) : callee_node(track, frame.function);
    push(track, frame);
}

static bool top_is_at(const struct ember_track *track, int32_t depth)
{
    return track->depth > 0 && track->frames[track->depth - 1].depth == depth;
}

static void push_old(struct ember_track *track, const struct ember_old_frame *old)
{
    push_again(track, (struct ember_frame){.depth = old->depth,
                                           .function = old->function,
                                           .hidden = old->function == EMBER_NONE,
                                           .tail = top_is_at(track, old->depth),
                                           .marked = old->marked});
}

static void push_walked(struct ember_track *track, const struct ember_old_frame *frames,
                        uint32_t count, int32_t from, int32_t below)
{
    for (uint32_t i = 0; i < count; i++)
        if (frames[i].depth >= from && frames[i].depth < below)
            push_old(track, &frames[i]);
}

/* Frames above the first, up to where it is not known what was called. */
static uint32_t known_frames(const struct ember_track *track)
{
    uint32_t known = 0;
    while (known + 1 < track->depth && function_at(track, known + 1) != EMBER_UNKNOWN)
        known++;
    return known;
}

/* The frame at the very depth of the last known one is that one, or what it has called by a
 * tail call. */
static int32_t after_known(const struct ember_frame *last, const struct ember_old_frame *frames,
                           uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (frames[i].depth == last->depth && frames[i].function != last->function)
            return last->depth;
    return last->depth + 1;
}

void ember_track_uncover(struct ember_track *track, const struct ember_old_frame *frames,
                         uint32_t count, bool complete)
{
    if (track->depth == 0 || track->frames[0].function != EMBER_UNKNOWN)
        return;
    ember_track_forget_assumed(track);
    uint32_t known = known_frames(track);
    bool all = known + 1 == track->depth;
    struct ember_frame *above = malloc(((size_t)known + 1) * sizeof *above);
    if (!above) {
        track->run->out_of_memory = true;
        return;
    }
    memcpy(above, track->frames + 1, known * sizeof *above);
    track->depth = track->base = complete ? 0 : 1;
    push_walked(track, frames, count, EMBER_NO_DEPTH, known ? above[0].depth : EMBER_ANY_DEPTH);
    for (uint32_t i = 0; i < known; i++)
        push_again(track, above[i]);
    if (known && !all)
        push_walked(track, frames, count, after_known(&above[known - 1], frames, count),
                    EMBER_ANY_DEPTH);
    free(above);
}

void ember_track_show(struct ember_track *track, uint32_t function, int32_t depth)
{
    struct ember_old_frame frame = {function, depth == EMBER_NO_DEPTH ? least_depth(track) : depth,
                                    false};
    push_old(track, &frame);
}

void ember_track_cut(struct ember_track *track, int32_t depth)
{
    if (depth != EMBER_NO_DEPTH)
        cut_to(track, depth);
}
