/* SPDX-License-Identifier: Apache-2.0 */
#include "traced.h"

#define MFA_WORDS 4   /* the {M,F,Arity} the VM builds on the traced heap */
#define BEGIN_WORDS 2 /* the tracer term it keeps in a return trace frame */

void ember_traced_init(struct ember_traced *traced, uint64_t pid, uint64_t time)
{
    *traced = (struct ember_traced){.pid = pid, .time = time};
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

int64_t ember_traced_depth(struct ember_traced *traced, const struct ember_event *event)
{
    if (event->sp == 0 || traced->displaced)
        return EMBER_NO_DEPTH;
    if (traced->stack_base == 0)
        traced->stack_base = event->sp;
    return (int32_t)(traced->stack_base - event->sp);
}

/* ---- words ---- */

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

/* Whether the heap top is elsewhere than it could have grown to: a delayed
 * collection goes on on a fragment, with a stack pointer of its own. */
static bool is_displaced(const struct ember_traced *traced, const struct ember_event *event)
{
    uint32_t room = traced->stack_base ? traced->stack_base - traced->hp : INT32_MAX;
    return traced->hp != 0 && event->hp - traced->hp > room;
}

static int64_t heap_growth(const struct ember_traced *traced, const struct ember_event *event)
{
    if (traced->hp == 0 || is_displaced(traced, event))
        return 0;
    return event->hp - traced->hp;
}

static int64_t fragment_growth(struct ember_traced *traced)
{
    int64_t grown = traced->fragments_next - traced->fragments;
    traced->fragments = traced->fragments_next;
    return grown;
}

/* What tracing itself has allocated since the last event. Where the VM does not
 * tell of fragments, a tuple for which the heap had no room is found at the next
 * collection. */
static int64_t tracing_words(struct ember_traced *traced, const struct ember_event *event,
                             int64_t grown)
{
    int64_t words = 0;
    if (has_mfa_tuple(event) && traced->hp != 0) {
        if (traced->fragments_known || grown >= MFA_WORDS)
            words += MFA_WORDS;
        else
            traced->hidden_words += MFA_WORDS;
    }
    if (traced->fragments_known || words + traced->begin_words <= grown) {
        words += traced->begin_words;
        traced->begin_words = 0;
    }
    return words;
}

/* Words of the process's own since the last event. */
static int64_t own_words(struct ember_traced *traced, const struct ember_event *event)
{
    int64_t grown = heap_growth(traced, event) + fragment_growth(traced);
    traced->explained += grown;
    return grown - tracing_words(traced, event, grown);
}

/* The words since the last collection that the events did not show. */
static int64_t unexplained_words(const struct ember_traced *traced, const struct ember_event *event)
{
    if (!traced->heap_size_known)
        return 0; /* what stood in fragments before the first event is not ours */
    int64_t size = (int64_t)event->heap_words + event->fragment_words;
    return size - traced->heap_size - traced->explained - traced->hidden_words;
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
    case EMBER_EVENT_STACK:
        return EMBER_COST_GC;
    default:
        return EMBER_COST_SWITCH;
    }
}

static void charge_ticks(const struct ember_traced *traced, struct ember_tree_node *node,
                         uint64_t ticks)
{
    if (traced->collecting)
        node->gc_ticks += ticks;
    else if (traced->out)
        node->off_cpu_ticks += ticks;
    else
        node->own_ticks += ticks;
}

static void charge(struct ember_traced *traced, const struct ember_event *event, int64_t words)
{
    uint64_t now = ember_event_ticks(event);
    uint64_t ticks = now > traced->time ? now - traced->time : 0;
    bool running = !traced->collecting && !traced->out;
    for (struct ember_track *t = traced->tracks; t; t = t->next_in_process) {
        struct ember_tree_node *node = ember_track_top(t);
        charge_ticks(traced, node, ticks);
        node->words += words;
        node->events[cost_of(event)] += running;
        t->run->events++;
    }
}

void ember_traced_close(const struct ember_traced *traced, struct ember_track *track,
                        uint64_t ticks)
{
    if (ticks > traced->time)
        charge_ticks(traced, ember_track_top(track), ticks - traced->time);
}

/* ---- events ---- */

/* The true base of the stack; depths so far counted from a provisional one. */
static void learn_stack_base(struct ember_traced *traced, uint32_t base)
{
    int32_t shift = (int32_t)(base - traced->stack_base);
    for (struct ember_track *t = traced->tracks; t && traced->stack_base; t = t->next_in_process)
        for (uint32_t i = 0; i < t->depth; i++)
            t->frames[i].depth += shift;
    traced->stack_base_known = true;
    traced->stack_base = base;
}

static void start_collection(struct ember_traced *traced, const struct ember_event *event)
{
    traced->collecting = true;
    if (!traced->stack_base_known && event->sp && !traced->displaced)
        learn_stack_base(traced, event->sp + traced->stack_words);
}

static void end_collection(struct ember_traced *traced, const struct ember_event *event)
{
    traced->collecting = false;
    traced->displaced = false;
    traced->heap_size_known = true;
    traced->heap_size = (int64_t)event->heap_words + event->fragment_words;
    traced->explained = 0;
    traced->hidden_words = 0;
    traced->fragments = event->fragment_words;
    traced->fragments_next = event->fragment_words;
    if (event->sp && traced->stack_base_known)
        traced->stack_base = event->sp + traced->stack_words;
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
    int64_t depth = ember_traced_depth(traced, event);
    for (struct ember_track *t = traced->tracks; t; t = t->next_in_process)
        if (is_shown(t->capture, event->mfa))
            ember_track_call(t, function, depth);
}

static void return_all(struct ember_traced *traced, const struct ember_event *event,
                       uint32_t function)
{
    int64_t depth = ember_traced_depth(traced, event);
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
    case EMBER_EVENT_STACK:
        traced->stack_words = (uint32_t)event->value;
        break;
    case EMBER_EVENT_GC_START:
        start_collection(traced, event);
        break;
    case EMBER_EVENT_GC_END:
        end_collection(traced, event);
        break;
    case EMBER_EVENT_BEGIN:
        traced->begin_words += BEGIN_WORDS;
        break;
    default:
        break;
    }
}

static void note_fragments(struct ember_traced *traced, int64_t words)
{
    if (!traced->fragments_known)
        traced->fragments = words;
    traced->fragments_next = words;
    traced->fragments_known = true;
}

void ember_traced_event(struct ember_traced *traced, const struct ember_event *event,
                        uint32_t function)
{
    int64_t words = 0;
    if (ember_event_kind(event) == EMBER_EVENT_FRAGMENTS) {
        note_fragments(traced, (int64_t)event->value);
        return;
    }
    if (event->hp && !traced->collecting) {
        traced->displaced |= is_displaced(traced, event);
        words = own_words(traced, event);
    }
    if (ember_event_kind(event) == EMBER_EVENT_GC_START && !traced->collecting)
        words += unexplained_words(traced, event);
    charge(traced, event, words);
    step(traced, event, function);
    traced->time = ember_event_ticks(event);
    if (event->hp) {
        traced->hp = event->hp;
        traced->sp = event->sp;
    }
}
