/* SPDX-License-Identifier: Apache-2.0 */
#include "traced.h"

#define MFA_WORDS 4   /* the {M,F,Arity} the VM builds on the traced heap */
#define BEGIN_WORDS 2 /* the tracer term it keeps in a return trace frame */
#define MAX_DEPTH (1u << 30) /* words; no stack is as large */

void ember_traced_init(struct ember_traced *traced, uint64_t pid, uint64_t time)
{
    *traced = (struct ember_traced){
        .pid = pid, .time = time, .next.fragments = -1, .heap_size = -1};
}

void ember_traced_add_track(struct ember_traced *traced, struct ember_track *track)
{
    track->traced = traced;
    track->next_in_process = traced->tracks;
    traced->tracks = track;
}

void ember_traced_remove_track(struct ember_traced *traced, struct ember_track *track)
{
    struct ember_track **link = &traced->tracks;
    while (*link && *link != track)
        link = &(*link)->next_in_process;
    if (*link)
        *link = track->next_in_process;
}

int32_t ember_traced_depth(const struct ember_traced *traced, const struct ember_event *event)
{
    uint32_t depth = traced->block.end - event->sp;
    bool inside = depth <= traced->block.end - traced->block.start && depth <= MAX_DEPTH;
    return event->sp && traced->block.start && inside ? (int32_t)depth : EMBER_NO_DEPTH;
}

/* ---- words ---- */

bool ember_traced_is_repeat(const struct ember_traced *traced, const struct ember_event *event)
{
    return ember_event_kind(event) >= EMBER_EVENT_BEGIN && event->hp != 0 &&
           event->hp == traced->hp && event->sp == traced->sp &&
           traced->next.start == traced->block.start &&
           traced->next.fragments == traced->block.fragments;
}

static bool has_mfa_tuple(const struct ember_event *event)
{
    switch (ember_event_kind(event)) {
    case EMBER_EVENT_CALL:
    case EMBER_EVENT_BEGIN:
    case EMBER_EVENT_RETURN:
    case EMBER_EVENT_RAISE:
        return true;
    case EMBER_EVENT_RETURN_TO:
    case EMBER_EVENT_IN:
    case EMBER_EVENT_OUT:
        return event->mfa.module != 0;
    default:
        return false;
    }
}

static bool is_exact(const struct ember_traced *traced)
{
    return traced->block.start != 0;
}

/* Whether a collection was put off. What tracing had allocated in the old block
 * cannot be seen any more, as little as what the process had. */
static bool is_displaced(const struct ember_traced *traced)
{
    return is_exact(traced) && traced->next.start != traced->block.start;
}

static bool is_inside(const struct ember_block *block, uint32_t hp)
{
    return hp - block->start <= block->end - block->start;
}

/* Words by which the heap top has moved. Where the block is unknown, a long way
 * is taken for a move to elsewhere. */
static int64_t heap_growth(const struct ember_traced *traced, const struct ember_event *event)
{
    enum { LONG_WAY = 4096 };
    uint32_t from = is_displaced(traced) ? traced->next.start : traced->hp;
    uint32_t way = event->hp - from;
    bool moved = is_exact(traced) ? !is_inside(&traced->next, from) || (int32_t)way < 0
                                  : way > LONG_WAY;
    return from == 0 || moved ? 0 : way;
}

/* Takes over what the records since the last event told of the block. */
static int64_t fragment_growth(struct ember_traced *traced)
{
    int64_t grown = is_exact(traced) ? traced->next.fragments - traced->block.fragments : 0;
    traced->block = traced->next;
    return grown;
}

/* What tracing itself has allocated. Where the block is unknown, a tuple for
 * which the heap had no room is found at the next collection. */
static int64_t tracing_words(struct ember_traced *traced, const struct ember_event *event,
                             int64_t grown)
{
    int64_t words = traced->tracer_words;
    bool tuple = has_mfa_tuple(event) && traced->hp != 0;
    traced->tracer_words = 0;
    if (tuple && (is_exact(traced) || grown >= MFA_WORDS))
        words += MFA_WORDS;
    else if (tuple)
        traced->hidden_words += MFA_WORDS;
    return words;
}

/* Words of the process's own since the last event. */
static int64_t own_words(struct ember_traced *traced, const struct ember_event *event)
{
    int64_t grown = heap_growth(traced, event);
    if (is_displaced(traced))
        traced->tracer_words = 0;
    grown += fragment_growth(traced);
    traced->explained += grown;
    return grown - tracing_words(traced, event, grown);
}

static int64_t heap_size(const struct ember_event *event)
{
    return (int64_t)event->heap_words + event->fragment_words;
}

/* The words since the last collection that the events did not show. What stood
 * in fragments before the first event is not ours. */
static int64_t unexplained_words(const struct ember_traced *traced, const struct ember_event *event)
{
    if (is_exact(traced) || traced->heap_size < 0)
        return 0;
    return heap_size(event) - traced->heap_size - traced->explained - traced->hidden_words;
}

/* ---- charging ---- */

static enum ember_cost cost_of(const struct ember_event *event)
{
    switch (ember_event_kind(event)) {
    case EMBER_EVENT_CALL:
    case EMBER_EVENT_BEGIN:
        return EMBER_COST_CALL;
    case EMBER_EVENT_RETURN_TO:
    case EMBER_EVENT_RETURN:
    case EMBER_EVENT_RAISE:
        return EMBER_COST_RETURN;
    case EMBER_EVENT_GC_START:
    case EMBER_EVENT_GC_END:
        return EMBER_COST_GC;
    default:
        return EMBER_COST_SWITCH;
    }
}

static void charge_ticks(const struct ember_traced *traced, struct ember_track *track,
                         uint64_t ticks)
{
    struct ember_tree_pauses *pauses = &track->run->tree.pauses[ember_track_top_index(track)];
    if (traced->collecting)
        pauses->gc_ticks += ticks;
    else if (traced->out)
        pauses->off_cpu_ticks += ticks;
    else
        ember_track_top(track)->own_ticks += ticks;
}

static void charge(struct ember_traced *traced, const struct ember_event *event, int64_t words)
{
    uint64_t now = ember_event_ticks(event);
    uint64_t ticks = now > traced->time ? now - traced->time : 0;
    bool running = !traced->collecting && !traced->out;
    for (struct ember_track *t = traced->tracks; t; t = t->next_in_process) {
        struct ember_tree_node *node = ember_track_top(t);
        charge_ticks(traced, t, ticks);
        node->words += words;
        node->events[cost_of(event)] += running;
        t->run->events++;
    }
}

void ember_traced_close(const struct ember_traced *traced, struct ember_track *track,
                        uint64_t ticks)
{
    if (ticks > traced->time)
        charge_ticks(traced, track, ticks - traced->time);
}

/* ---- events ---- */

static void end_collection(struct ember_traced *traced, const struct ember_event *event)
{
    traced->collecting = false;
    traced->block = traced->next;
    traced->heap_size = heap_size(event);
    traced->explained = 0;
    traced->hidden_words = 0;
}

static bool is_shown(const struct ember_capture *capture, struct ember_mfa mfa)
{
    uint32_t low = 0;
    uint32_t high = capture->module_count;
    if (!capture->modules)
        return true;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (capture->modules[middle] == mfa.module)
            return true;
        if (capture->modules[middle] < mfa.module)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

static void call_all(struct ember_traced *traced, const struct ember_event *event,
                     uint32_t function)
{
    int32_t depth = ember_traced_depth(traced, event);
    for (struct ember_track *t = traced->tracks; t; t = t->next_in_process)
        ember_track_call(t, function, depth, is_shown(t->capture, event->mfa));
}

static void return_all(struct ember_traced *traced, const struct ember_event *event,
                       uint32_t function)
{
    int32_t depth = ember_traced_depth(traced, event);
    for (struct ember_track *t = traced->tracks; t; t = t->next_in_process)
        ember_track_return_to(t, function, depth);
}

static void step(struct ember_traced *traced, const struct ember_event *event, uint32_t function)
{
    switch (ember_event_kind(event)) {
    case EMBER_EVENT_CALL:
        call_all(traced, event, function);
        break;
    case EMBER_EVENT_RETURN_TO:
        return_all(traced, event, function);
        break;
    case EMBER_EVENT_IN:
        traced->out = false;
        break;
    case EMBER_EVENT_OUT:
        traced->out = true;
        break;
    case EMBER_EVENT_GC_START:
        traced->collecting = true;
        break;
    case EMBER_EVENT_GC_END:
        end_collection(traced, event);
        break;
    case EMBER_EVENT_BEGIN:
        traced->tracer_words = BEGIN_WORDS; /* others were charged with this very event */
        break;
    case EMBER_EVENT_SPAWN:
        traced->tracer_words += MFA_WORDS;
        break;
    default:
        break;
    }
}

static void note_heap(struct ember_traced *traced, const struct ember_event *event)
{
    bool first = traced->block.start == 0;
    traced->next.start = event->heap_start;
    traced->next.end = event->stack_base;
    if (!first)
        return;
    traced->block = traced->next;
    for (struct ember_track *t = traced->tracks; t && traced->sp; t = t->next_in_process)
        ember_track_settle(t, (int32_t)(traced->block.end - traced->sp));
}

static void note_fragments(struct ember_traced *traced, const struct ember_event *event)
{
    if (traced->next.fragments < 0)
        traced->block.fragments = (int64_t)event->value;
    traced->next.fragments = (int64_t)event->value;
}

/* Where the heap top lies outside the block, the record of a new one was lost;
 * the next record is like the first. */
static void check_block(struct ember_traced *traced, const struct ember_event *event)
{
    struct ember_block *next = &traced->next;
    if (next->start == 0 || event->hp == 0 || is_inside(next, event->hp))
        return;
    next->start = traced->block.start = 0;
    traced->hp = 0;
}

/* A process that calls or returns runs, whatever was lost. */
static void note_running(struct ember_traced *traced, const struct ember_event *event)
{
    enum ember_event_kind kind = ember_event_kind(event);
    if (kind != EMBER_EVENT_CALL && kind != EMBER_EVENT_RETURN_TO && kind < EMBER_EVENT_BEGIN)
        return;
    if (traced->collecting)
        traced->block = traced->next;
    traced->collecting = false;
    traced->out = false;
}

/* Records that only tell of the block; the first is of how it was before. */
static bool note_block(struct ember_traced *traced, const struct ember_event *event)
{
    if (ember_event_kind(event) == EMBER_EVENT_HEAP)
        note_heap(traced, event);
    else if (ember_event_kind(event) == EMBER_EVENT_FRAGMENTS)
        note_fragments(traced, event);
    else
        return false;
    return true;
}

void ember_traced_event(struct ember_traced *traced, const struct ember_event *event,
                        uint32_t function)
{
    int64_t words = 0;
    if (note_block(traced, event))
        return;
    check_block(traced, event);
    bool collected = traced->collecting || ember_event_kind(event) == EMBER_EVENT_GC_END;
    if (event->hp && !collected && !ember_traced_is_repeat(traced, event))
        words = own_words(traced, event);
    if (ember_event_kind(event) == EMBER_EVENT_GC_START && !collected)
        words += unexplained_words(traced, event);
    charge(traced, event, words);
    note_running(traced, event);
    step(traced, event, function);
    traced->time = ember_event_ticks(event);
    if (event->hp) {
        traced->hp = event->hp;
        traced->sp = event->sp;
    }
}
