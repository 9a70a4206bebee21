/* SPDX-License-Identifier: Apache-2.0 */
#include "traced.h"

/* What the VM itself puts on the traced heap. */
#define MFA_WORDS 4          /* the {M,F,Arity} of an event */
#define TRACER_WORDS 2       /* the tracer, for a captured call and for its return trace frame */
#define MAX_DEPTH (1u << 30) /* words; no stack is as large */

void ember_traced_init(struct ember_traced *traced, uint64_t pid, uint64_t time)
{
    *traced = (struct ember_traced){.pid = pid,
                                    .time = time,
                                    .next.fragments = -1,
                                    .binaries = -1,
                                    .abandoned = -1,
                                    .heap_size = -1,
                                    .collected_depth = EMBER_NO_DEPTH};
}

/* Until then the process is not steady: an interval counts for the track in part. */
static void count_from(struct ember_traced *traced, uint64_t since)
{
    traced->since = since > traced->since ? since : traced->since;
    traced->steady = false;
}

void ember_traced_add_track(struct ember_traced *traced, struct ember_track *track)
{
    track->traced = traced;
    track->next_in_process = traced->tracks;
    traced->tracks = track;
    if (track->recorded)
        traced->timed = true;
    if (track->entered) {
        traced->entered++;
        count_from(traced, track->since);
    }
}

void ember_traced_restart_track(struct ember_track *track, uint64_t ticks)
{
    track->since = ticks;
    count_from(track->traced, ticks);
}

void ember_traced_enter(struct ember_traced *traced, enum ember_activity activity)
{
    traced->fresh = true;
    traced->out = activity != EMBER_ACTIVE;
    traced->waiting = activity == EMBER_IDLE;
}

void ember_traced_remove_track(struct ember_traced *traced, struct ember_track *track)
{
    struct ember_track **link = &traced->tracks;
    while (*link && *link != track)
        link = &(*link)->next_in_process;
    if (*link)
        *link = track->next_in_process;
    traced->entered -= track->entered;
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

/* What the VM has allocated to tell of the event. */
static uint32_t event_words(const struct ember_event *event)
{
    switch (ember_event_kind(event)) {
    case EMBER_EVENT_BEGIN:
        return TRACER_WORDS + MFA_WORDS;
    case EMBER_EVENT_CALL:
    case EMBER_EVENT_RETURN:
    case EMBER_EVENT_RAISE:
        return MFA_WORDS;
    case EMBER_EVENT_RETURN_TO:
    case EMBER_EVENT_IN:
    case EMBER_EVENT_OUT:
        return event->mfa.module != 0 ? MFA_WORDS : 0;
    default:
        return 0;
    }
}

static bool is_exact(const struct ember_traced *traced)
{
    return traced->block.start != 0;
}

/* Whether a collection was put off. */
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

/* The process has left its block. What it still allocated there shows at the next
 * collection. A small block that is left too counts as a fragment, all of it: to
 * be added to the words. */
static int64_t leave_block(struct ember_traced *traced)
{
    int64_t used = (int64_t)(traced->hp - traced->block.start);
    if (traced->abandoned >= 0)
        return -used;
    traced->abandoned = traced->hp ? used + traced->tracer_words : -1;
    traced->tracer_words = 0;
    for (struct ember_track *t = traced->tracks; t; t = t->next_in_process)
        t->displaced = ember_track_top_index(t);
    return 0;
}

/* What tracing itself has allocated. Where the block is unknown, a tuple for
 * which the heap had no room is found at the next collection. */
static int64_t tracing_words(struct ember_traced *traced, const struct ember_event *event,
                             int64_t grown)
{
    int64_t words = traced->tracer_words;
    uint32_t told = traced->hp != 0 ? event_words(event) : 0;
    traced->tracer_words = 0;
    if (is_exact(traced) || grown >= told)
        words += told;
    else
        traced->hidden_words += told;
    return words;
}

/* Words of the process's own since the last event. */
static int64_t own_words(struct ember_traced *traced, const struct ember_event *event)
{
    int64_t grown = heap_growth(traced, event);
    if (is_displaced(traced))
        grown += leave_block(traced);
    grown += fragment_growth(traced);
    int64_t told = tracing_words(traced, event, grown);
    traced->explained += grown;
    traced->told += told;
    return grown - told;
}

/* A collection begins: of a block that was left, it tells how much was used. */
static void charge_abandoned(struct ember_traced *traced, const struct ember_event *event)
{
    int64_t words = (int64_t)event->heap_words - traced->abandoned;
    bool known = traced->abandoned >= 0 && words > 0;
    for (struct ember_track *t = traced->tracks; t; t = t->next_in_process) {
        if (known && t->displaced != EMBER_NONE)
            t->run->tree.nodes[t->displaced].words += words;
        t->displaced = EMBER_NONE;
    }
    traced->abandoned = -1;
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

/* Messages that wait to be received and are moved to the heap by the collection that
 * begins: it tells of them as of fragments. */
static int64_t queued_words(struct ember_traced *traced, const struct ember_event *event)
{
    bool known = is_exact(traced) && event->hp && traced->block.fragments >= 0 &&
                 event->heap_words == event->hp - traced->block.start;
    int64_t words = known ? (int64_t)event->fragment_words - traced->block.fragments : 0;
    if (words <= 0)
        return 0;
    traced->explained += words;
    return words;
}

/* ---- charging ---- */

/* At the end of a collection the word says what is left. Where it is not known how
 * much that was before, it was not more than the VM allows without a collection. */
void ember_traced_binaries(struct ember_traced *traced, const struct ember_event *event)
{
    int64_t words = (int64_t)event->value;
    int64_t before = traced->binaries >= 0 ? traced->binaries : (int64_t)event->sp;
    uint64_t grown = words > before && !traced->collecting ? (uint64_t)(words - before) : 0;
    for (struct ember_track *t = traced->tracks; grown > 0 && t; t = t->next_in_process)
        t->run->tree.rare[ember_track_top_index(t)].binary_words += grown;
    traced->binaries = words;
}

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

static bool is_running(const struct ember_traced *traced)
{
    return !traced->collecting && !traced->out;
}

static void note_long(struct ember_long_intervals *intervals, uint64_t ticks)
{
    intervals->ticks += ticks;
    intervals->count++;
}

static void charge_pause(const struct ember_traced *traced, struct ember_track *track,
                         uint64_t ticks)
{
    struct ember_tree_rare *rare = &track->run->tree.rare[ember_track_top_index(track)];
    if (traced->collecting) {
        rare->gc_ticks += ticks;
        rare->caused_gc_ticks += (uint64_t)(traced->caused * (double)ticks);
        return;
    }
    rare->off_cpu_ticks += ticks;
    rare->waiting_ticks += traced->waiting ? ticks : 0;
}

static enum ember_state state_of(const struct ember_traced *traced)
{
    if (traced->collecting)
        return EMBER_COLLECTING;
    if (!traced->out)
        return EMBER_RUNNING;
    return traced->waiting ? EMBER_WAITING : EMBER_PREEMPTED;
}

static void charge_ticks(const struct ember_traced *traced, struct ember_track *track,
                         uint64_t ticks)
{
    if (track->recorded)
        ember_recorded_note(track->recorded, ember_track_top_index(track), state_of(traced), ticks);
    if (!is_running(traced)) {
        charge_pause(traced, track, ticks);
        return;
    }
    ember_track_top(track)->own_ticks += ticks;
    if (__builtin_expect(ticks >= EMBER_LONG_TICKS, 0))
        note_long(&track->run->tree.rare[ember_track_top_index(track)].long_own, ticks);
}

/* From the last event on, or since a later time when the track was added. */
static uint64_t ticks_until(const struct ember_traced *traced, const struct ember_track *track,
                            uint64_t now)
{
    uint64_t from = track->since > traced->time ? track->since : traced->time;
    return now > from ? now - from : 0;
}

static void charge(struct ember_traced *traced, const struct ember_event *event,
                   enum ember_cost cost, int64_t words, bool beside)
{
    uint64_t now = ember_event_ticks(event);
    bool running = is_running(traced);
    for (struct ember_track *t = traced->tracks; t; t = t->next_in_process) {
        struct ember_tree_node *node = ember_track_top(t);
        charge_ticks(traced, t, ticks_until(traced, t, now));
        node->words += words;
        node->events[cost] += running;
        node->events[EMBER_COST_BESIDE] += beside;
        t->run->events++;
    }
}

void ember_traced_close(const struct ember_traced *traced, struct ember_track *track,
                        uint64_t ticks)
{
    charge_ticks(traced, track, ticks_until(traced, track, ticks));
}

/* Of the time that has passed, so much was waiting, at most. */
static void charge_held_up(const struct ember_traced *traced, struct ember_track *track,
                           uint64_t passed, uint64_t waited)
{
    uint64_t held_up = waited < passed ? waited : passed;
    charge_ticks(traced, track, passed - held_up);
    if (track->recorded)
        ember_recorded_note(track->recorded, ember_track_top_index(track), EMBER_HELD_UP, held_up);
}

void ember_traced_held_up(struct ember_traced *traced, const struct ember_event *event)
{
    uint64_t now = ember_event_ticks(event);
    for (struct ember_track *t = traced->tracks; t; t = t->next_in_process) {
        uint64_t passed = ticks_until(traced, t, now);
        charge_held_up(traced, t, passed, event->value);
    }
    traced->time = now;
}

/* Who was lost with how many events of what kinds is not told. */
static void charge_gap(struct ember_traced *traced, const struct ember_event *event)
{
    uint64_t now = ember_event_ticks(event);
    uint64_t waited = (uint64_t)event->hp << EMBER_GAP_TICKS_SHIFT;
    for (struct ember_track *t = traced->tracks; t; t = t->next_in_process) {
        charge_held_up(traced, t, ticks_until(traced, t, now), waited);
        ember_track_top(t)->events[EMBER_COST_CALL] += is_running(traced) ? event->sp : 0;
        t->run->lost_told += event->sp;
    }
    traced->time = now;
}

/* The next records of the block are like the first, and words are counted from the
 * next event on. */
static void forget_heap(struct ember_traced *traced)
{
    traced->hp = 0;
    traced->block.start = traced->next.start = 0;
    traced->next.fragments = -1;
    traced->abandoned = -1;
    traced->tracer_words = 0;
    traced->steady = traced->collecting = traced->out = false;
    for (struct ember_track *t = traced->tracks; t; t = t->next_in_process)
        t->displaced = EMBER_NONE;
}

/* No stack is less deep than that, or as deep. */
static int32_t possible_depth(int32_t depth)
{
    if (depth > (int32_t)MAX_DEPTH)
        return EMBER_ANY_DEPTH;
    return depth < 0 ? EMBER_NO_DEPTH : depth;
}

void ember_traced_gap(struct ember_traced *traced, const struct ember_event *event)
{
    int32_t least = possible_depth(event->least);
    int32_t open = possible_depth(event->open);
    for (struct ember_track *t = traced->tracks; t; t = t->next_in_process)
        ember_track_gap(t, least, open == EMBER_NO_DEPTH ? EMBER_ANY_DEPTH : open);
    charge_gap(traced, event);
    for (struct ember_track *t = traced->tracks; t; t = t->next_in_process)
        ember_track_gap_end(t);
    forget_heap(traced);
}

/* ---- events ---- */

/* Words that the stack has grown by since the last collection. */
static int64_t stack_growth(const struct ember_traced *traced, const struct ember_event *event)
{
    int32_t depth = ember_traced_depth(traced, event);
    bool known = depth != EMBER_NO_DEPTH && traced->collected_depth != EMBER_NO_DEPTH;
    return known && depth > traced->collected_depth ? depth - traced->collected_depth : 0;
}

static uint32_t frames_of(const struct ember_traced *traced)
{
    return traced->tracks ? traced->tracks->depth : 0;
}

/* Of these words, those that the VM pushed for the returns of calls. */
static int64_t marking_words(const struct ember_traced *traced, int64_t stack)
{
    uint32_t frames = frames_of(traced);
    if (frames <= traced->collected_frames)
        return 0;
    int64_t words =
        (int64_t)(frames - traced->collected_frames) * traced->tracks->layout->return_to_words;
    return words < stack ? words : stack;
}

static void note_stack(struct ember_traced *traced, const struct ember_event *event)
{
    traced->collected_depth = ember_traced_depth(traced, event);
    traced->collected_frames = frames_of(traced);
}

/* A process collects when its heap or its stack has grown into what was free. */
static void begin_collection(struct ember_traced *traced, const struct ember_event *event)
{
    int64_t stack = stack_growth(traced, event);
    int64_t all = traced->explained + stack;
    traced->collecting = true;
    if (all <= 0) /* the last one was not enough: the same need goes on */
        return;
    traced->caused = (double)(traced->told + marking_words(traced, stack)) / (double)all;
    if (traced->caused > 1)
        traced->caused = 1;
}

/* What survives is copied once or twice, however often the heap is collected: so fewer
 * collections take less time only as far as little survives. */
static void note_survivors(struct ember_traced *traced, const struct ember_event *event)
{
    int64_t own = traced->explained - traced->told;
    if (!traced->collecting || ember_event_kind(event) != EMBER_EVENT_GC_END || own <= 0)
        return;
    double survived = (double)event->heap_words / (double)own;
    traced->caused *= 1 - (survived < 1 ? survived : 1) / 2;
}

static void end_collection(struct ember_traced *traced, const struct ember_event *event)
{
    traced->told = 0;
    traced->collecting = false;
    traced->block = traced->next;
    note_stack(traced, event);
    traced->abandoned = -1;
    traced->heap_size = heap_size(event);
    traced->explained = 0;
    traced->hidden_words = 0;
}

/* What the event means for the process, beyond its stacks. */
static void step(struct ember_traced *traced, const struct ember_event *event)
{
    switch (ember_event_kind(event)) {
    case EMBER_EVENT_IN:
        traced->out = false;
        break;
    case EMBER_EVENT_OUT:
        traced->out = true;
        traced->waiting = ember_event_arity(event) == EMBER_OUT_WAITING;
        break;
    case EMBER_EVENT_GC_START:
        begin_collection(traced, event);
        break;
    case EMBER_EVENT_GC_END:
        end_collection(traced, event);
        break;
    case EMBER_EVENT_BEGIN:
        traced->tracer_words = TRACER_WORDS; /* others were charged with this very event */
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
    traced->abandoned = -1;
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

/* The first record is of how it was before. */
void ember_traced_block(struct ember_traced *traced, const struct ember_event *event)
{
    traced->steady = false;
    if (ember_event_kind(event) == EMBER_EVENT_HEAP)
        note_heap(traced, event);
    else
        note_fragments(traced, event);
}

static bool is_steady(const struct ember_traced *traced)
{
    return !traced->timed && traced->time >= traced->since && is_exact(traced) && traced->hp &&
           is_running(traced) && traced->tracer_words == 0 &&
           traced->next.start == traced->block.start && traced->next.end == traced->block.end &&
           traced->next.fragments == traced->block.fragments;
}

static void remember(struct ember_traced *traced, const struct ember_event *event)
{
    traced->time = ember_event_ticks(event);
    if (event->hp) {
        traced->hp = event->hp;
        traced->sp = event->sp;
    }
}

/* The heap had no room for what the VM tells of the event, which costs more. */
static bool is_told_beside(const struct ember_traced *traced, const struct ember_event *event,
                           enum ember_cost cost)
{
    return is_exact(traced) && is_running(traced) && event->hp == traced->hp &&
           traced->next.fragments > traced->block.fragments &&
           (cost == EMBER_COST_CALL || cost == EMBER_COST_RETURN);
}

/* The first event of a process that was only seen from outside. If it is not that it is
 * scheduled in, it ran before. */
static void arrive(struct ember_traced *traced, const struct ember_event *event)
{
    bool in = ember_event_kind(event) == EMBER_EVENT_IN;
    traced->fresh = false;
    traced->out &= in;
    for (struct ember_track *t = traced->tracks; t && !in; t = t->next_in_process)
        ember_track_forget_assumed(t);
}

void ember_traced_event(struct ember_traced *traced, const struct ember_event *event)
{
    int64_t words = 0;
    if (traced->fresh)
        arrive(traced, event);
    check_block(traced, event);
    bool collected = traced->collecting || ember_event_kind(event) == EMBER_EVENT_GC_END;
    enum ember_cost cost = cost_of(event);
    bool beside = is_told_beside(traced, event, cost);
    if (event->hp && !collected && !ember_traced_is_repeat(traced, event))
        words = own_words(traced, event);
    if (ember_event_kind(event) == EMBER_EVENT_GC_START && !collected)
        words += unexplained_words(traced, event) + queued_words(traced, event);
    if (ember_event_kind(event) == EMBER_EVENT_GC_START)
        charge_abandoned(traced, event);
    note_survivors(traced, event);
    charge(traced, event, cost, words, beside);
    note_running(traced, event);
    step(traced, event);
    remember(traced, event);
    traced->steady = is_steady(traced);
    if (traced->collected_depth == EMBER_NO_DEPTH) /* the first of all */
        note_stack(traced, event);
}

static void charge_steady(struct ember_traced *traced, const struct ember_event *event,
                          enum ember_cost cost)
{
    uint64_t ticks = ember_event_ticks(event) - traced->time;
    uint32_t grown = event->hp - traced->hp;
    traced->explained += grown;
    traced->told += MFA_WORDS;
    for (struct ember_track *t = traced->tracks; t; t = t->next_in_process) {
        struct ember_tree_node *node = ember_track_top(t);
        node->own_ticks += ticks;
        node->words += (int64_t)grown - MFA_WORDS;
        node->events[cost]++;
        t->run->events++;
    }
    traced->time += ticks;
    traced->hp = event->hp;
    traced->sp = event->sp;
}

/* Most calls and returns; the rest of ember_traced_event would do nothing then. */
static bool stays_steady(const struct ember_traced *traced, const struct ember_event *event)
{
    return traced->steady && event->mfa.module && event->hp >= traced->hp &&
           event->hp <= traced->block.end &&
           ember_event_ticks(event) - traced->time < EMBER_LONG_TICKS;
}

void ember_traced_call(struct ember_traced *traced, const struct ember_event *event,
                       uint32_t function)
{
    if (stays_steady(traced, event))
        charge_steady(traced, event, EMBER_COST_CALL);
    else
        ember_traced_event(traced, event);
    int32_t depth = ember_traced_depth(traced, event);
    for (struct ember_track *t = traced->tracks; t; t = t->next_in_process)
        ember_track_call(t, function, depth, ember_capture_shows(t->capture, event->mfa));
}

void ember_traced_return_to(struct ember_traced *traced, const struct ember_event *event,
                            uint32_t function)
{
    if (stays_steady(traced, event))
        charge_steady(traced, event, EMBER_COST_RETURN);
    else
        ember_traced_event(traced, event);
    int32_t depth = ember_traced_depth(traced, event);
    for (struct ember_track *t = traced->tracks; t; t = t->next_in_process)
        ember_track_return_to(t, function, depth);
}
