/* SPDX-License-Identifier: Apache-2.0 */
#include "recorder.h"

#include "hash.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_PROCESSES 64

/* ---- the table of processes ---- */

static struct ember_traced **find_slot(struct ember_traced **processes, uint32_t mask, uint64_t pid)
{
    for (uint32_t i = ember_hash(pid);; i++) {
        struct ember_traced **slot = &processes[i & mask];
        if (!*slot || (*slot)->pid == pid)
            return slot;
    }
}

static struct ember_traced *find_process(struct ember_recorder *recorder, uint64_t pid)
{
    if (recorder->recent && recorder->recent->pid == pid)
        return recorder->recent;
    struct ember_traced *found = *find_slot(recorder->processes, recorder->process_mask, pid);
    if (found)
        recorder->recent = found;
    return found;
}

static bool resize_processes(struct ember_recorder *recorder, uint32_t capacity)
{
    struct ember_traced **processes = calloc(capacity, sizeof *processes);
    if (!processes)
        return false;
    for (uint32_t i = 0; recorder->processes && i <= recorder->process_mask; i++)
        if (recorder->processes[i])
            *find_slot(processes, capacity - 1, recorder->processes[i]->pid) =
                recorder->processes[i];
    free(recorder->processes);
    recorder->processes = processes;
    recorder->process_mask = capacity - 1;
    return true;
}

static struct ember_traced *add_process(struct ember_recorder *recorder, uint64_t pid)
{
    bool full = recorder->process_count + 1 > recorder->process_mask / 2;
    if (full && !resize_processes(recorder, (recorder->process_mask + 1) * 2))
        return NULL;
    struct ember_traced *process = malloc(sizeof *process);
    if (!process)
        return NULL;
    ember_traced_init(process, pid, recorder->now);
    *find_slot(recorder->processes, recorder->process_mask, pid) = process;
    recorder->process_count++;
    return process;
}

static struct ember_traced *ensure_process(struct ember_recorder *recorder, uint64_t pid)
{
    struct ember_traced *found = find_process(recorder, pid);
    return found ? found : add_process(recorder, pid);
}

/* Open addressing: what follows a freed slot may have to move up. */
static void remove_process(struct ember_recorder *recorder, struct ember_traced *process)
{
    struct ember_traced **slot =
        find_slot(recorder->processes, recorder->process_mask, process->pid);
    uint32_t hole = (uint32_t)(slot - recorder->processes);
    recorder->processes[hole] = NULL;
    recorder->process_count--;
    if (recorder->recent == process)
        recorder->recent = NULL;
    free(process);
    for (uint32_t i = (hole + 1) & recorder->process_mask; recorder->processes[i];
         i = (i + 1) & recorder->process_mask) {
        struct ember_traced *moved = recorder->processes[i];
        recorder->processes[i] = NULL;
        *find_slot(recorder->processes, recorder->process_mask, moved->pid) = moved;
    }
}

/* Where memory ran out, a process may have been added for nothing. */
static void drop_if_unused(struct ember_recorder *recorder, struct ember_traced *process)
{
    if (process && !process->tracks)
        remove_process(recorder, process);
}

/* ---- runs ---- */

static struct ember_run *find_run(struct ember_recorder *recorder, uint64_t id)
{
    struct ember_run *run = recorder->runs;
    while (run && run->id != id)
        run = run->next;
    return run;
}

static void unlink_run(struct ember_recorder *recorder, struct ember_run *run)
{
    struct ember_run **link = &recorder->runs;
    while (*link != run)
        link = &(*link)->next;
    *link = run->next;
}

/* Ends a track that its run has let go, and with the last its process. */
static void drop_track(struct ember_recorder *recorder, struct ember_track *track)
{
    struct ember_traced *process = track->traced;
    ember_traced_remove_track(process, track);
    ember_track_destroy(track);
    drop_if_unused(recorder, process);
}

static void detach_tracks(struct ember_recorder *recorder, struct ember_run *run)
{
    while (run->tracks) {
        struct ember_track *track = run->tracks;
        run->tracks = track->next_in_run;
        ember_traced_close(track->traced, track, run->end_ticks);
        drop_track(recorder, track);
    }
}

static uint64_t lost_until_now(struct ember_recorder *recorder)
{
    return recorder->outlet.lost(recorder->outlet.context);
}

static void finish_run(struct ember_recorder *recorder, struct ember_run *run,
                       enum ember_outcome outcome, uint64_t ticks)
{
    unlink_run(recorder, run);
    run->end_ticks = ticks;
    run->outcome = outcome;
    run->lost = lost_until_now(recorder) - run->lost_at_begin;
    detach_tracks(recorder, run);
    recorder->outlet.on_run(recorder->outlet.context, run, &recorder->captures[run->capture],
                            &recorder->functions);
}

static struct ember_track *add_track(struct ember_recorder *recorder, struct ember_run *run,
                                     struct ember_traced *process, uint32_t parent)
{
    uint32_t index = ember_run_add_process(run, process->pid, parent);
    struct ember_track *track = index == EMBER_NONE
                                    ? NULL
                                    : ember_track_create(run, &recorder->captures[run->capture],
                                                         &recorder->layout, index);
    if (track)
        ember_traced_add_track(process, track);
    else
        run->out_of_memory = true;
    return track;
}

static uint32_t capture_of(const struct ember_event *event)
{
    return event->value & (EMBER_MAX_CAPTURES - 1);
}

static struct ember_run *start_run(struct ember_recorder *recorder, const struct ember_event *event)
{
    struct ember_run *run = ember_run_create(event->value, capture_of(event));
    if (!run)
        return NULL;
    run->begin_ticks = ember_event_ticks(event);
    run->lost_at_begin = lost_until_now(recorder);
    run->next = recorder->runs;
    recorder->runs = run;
    return run;
}

/* ---- events ---- */

/* What the tracks that are there already tell of a call that is captured. */
static void note_captured_call(struct ember_traced *process, const struct ember_event *event)
{
    int32_t depth = ember_traced_depth(process, event);
    process->was_traced = ember_event_arity(event) != 0;
    process->was_marked = false;
    for (struct ember_track *t = process->tracks; t; t = t->next_in_process)
        process->was_marked |= ember_track_other_begin(t, depth);
}

static void begin(struct ember_recorder *recorder, const struct ember_event *event)
{
    if (!recorder->open[capture_of(event)])
        return;
    const struct ember_capture *capture = &recorder->captures[capture_of(event)];
    uint32_t function =
        ember_function_table_id(&recorder->functions, capture->target, capture->target_arity);
    struct ember_traced *process = ensure_process(recorder, event->pid);
    bool ready = process && function != EMBER_NONE;
    struct ember_run *run = ready ? start_run(recorder, event) : NULL;
    if (!run) {
        recorder->starved[capture_of(event)] = true;
        drop_if_unused(recorder, process);
        return;
    }
    bool repeat = ember_traced_is_repeat(process, event);
    ember_traced_event(process, event, EMBER_NONE);
    if (!repeat)
        note_captured_call(process, event);
    struct ember_track *track = add_track(recorder, run, process, EMBER_NONE);
    if (track)
        ember_track_begin(track, function, ember_traced_depth(process, event),
                          process->was_traced, process->was_marked);
    drop_if_unused(recorder, process);
}

static void end(struct ember_recorder *recorder, const struct ember_event *event)
{
    struct ember_traced *process = find_process(recorder, event->pid);
    struct ember_run *run = find_run(recorder, event->value);
    if (!process || !run)
        return;
    ember_traced_event(process, event, EMBER_NONE);
    bool returned = ember_event_kind(event) == EMBER_EVENT_RETURN;
    finish_run(recorder, run, returned ? EMBER_OUTCOME_RETURNED : EMBER_OUTCOME_RAISED,
               ember_event_ticks(event));
}

static struct ember_run_process *process_of(struct ember_track *track)
{
    return &track->run->processes[track->process];
}

static void initial(struct ember_recorder *recorder, const struct ember_event *event)
{
    struct ember_traced *process = find_process(recorder, event->pid);
    for (struct ember_track *t = process ? process->tracks : NULL; t; t = t->next_in_process) {
        process_of(t)->initial = event->mfa;
        process_of(t)->initial_arity = (uint8_t)ember_event_arity(event);
    }
}

static void name(struct ember_recorder *recorder, const struct ember_event *event)
{
    struct ember_traced *process = find_process(recorder, event->pid);
    for (struct ember_track *t = process ? process->tracks : NULL; t; t = t->next_in_process)
        process_of(t)->name = event->value;
}

/* The track of a captured call that dies with `process`, or NULL. */
static struct ember_track *rooted_track(struct ember_traced *process)
{
    for (struct ember_track *t = process->tracks; t; t = t->next_in_process)
        if (t->base > 0)
            return t;
    return NULL;
}

static void leave_run(struct ember_recorder *recorder, struct ember_track *track)
{
    struct ember_track **link = &track->run->tracks;
    while (*link != track)
        link = &(*link)->next_in_run;
    *link = track->next_in_run;
    drop_track(recorder, track);
}

/* The process is dead: the runs rooted in it end, it leaves the others. */
static void bury(struct ember_recorder *recorder, uint64_t pid, uint64_t ticks)
{
    struct ember_traced *process = find_process(recorder, pid);
    struct ember_track *track;
    for (struct ember_track *t = process ? process->tracks : NULL; t; t = t->next_in_process)
        process_of(t)->exited = true;
    while ((process = find_process(recorder, pid)) && (track = rooted_track(process)))
        finish_run(recorder, track->run, EMBER_OUTCOME_EXITED, ticks);
    while ((process = find_process(recorder, pid)) && process->tracks)
        leave_run(recorder, process->tracks);
}

static void exited(struct ember_recorder *recorder, const struct ember_event *event)
{
    struct ember_traced *process = find_process(recorder, event->pid);
    if (!process)
        return;
    ember_traced_event(process, event, EMBER_NONE);
    bury(recorder, event->pid, ember_event_ticks(event));
}

/* The child takes part in the runs of its parent that follow children. It has
 * not run yet, so it starts scheduled out. A process that had the child's pid
 * before is dead, if we have not been told. */
static void spawn(struct ember_recorder *recorder, const struct ember_event *event)
{
    if (event->value == event->pid)
        return;
    bury(recorder, event->value, ember_event_ticks(event));
    struct ember_traced *parent = find_process(recorder, event->pid);
    if (!parent)
        return;
    ember_traced_event(parent, event, EMBER_NONE);
    for (struct ember_track *t = parent->tracks; t; t = t->next_in_process) {
        struct ember_traced *child = t->capture->spawned ? ensure_process(recorder, event->value) : NULL;
        if (!child)
            continue;
        child->out = true;
        add_track(recorder, t->run, child, t->process);
        drop_if_unused(recorder, child);
    }
}

static bool is_function(const struct ember_recorder *recorder, uint32_t id,
                        const struct ember_event *event)
{
    if (id == EMBER_NONE)
        return false;
    const struct ember_function_key *key = &recorder->functions.keys[id];
    return key->mfa.function == event->mfa.function && key->mfa.module == event->mfa.module &&
           key->arity == ember_event_arity(event);
}

/* A function is mostly called by a caller that called it last, and returns to
 * the frame below: a look there spares a look-up in the table. */
static uint32_t likely_function(const struct ember_track *track, enum ember_event_kind kind)
{
    const struct ember_tree_node *nodes = track->run->tree.nodes;
    if (kind == EMBER_EVENT_RETURN_TO)
        return track->depth < 2 ? EMBER_NONE : nodes[track->frames[track->depth - 2].node].function;
    uint32_t child = ember_track_top(track)->recent_child;
    return child == EMBER_NONE ? EMBER_NONE : nodes[child].function;
}

static uint32_t function_of(struct ember_recorder *recorder, const struct ember_traced *process,
                            const struct ember_event *event, enum ember_event_kind kind)
{
    uint32_t likely = process->tracks ? likely_function(process->tracks, kind) : EMBER_NONE;
    if (is_function(recorder, likely, event))
        return likely;
    return ember_function_table_id(&recorder->functions, event->mfa, ember_event_arity(event));
}

static void plain(struct ember_recorder *recorder, const struct ember_event *event)
{
    struct ember_traced *process = find_process(recorder, event->pid);
    if (!process)
        return;
    uint32_t function = EMBER_NONE;
    enum ember_event_kind kind = ember_event_kind(event);
    bool named = kind == EMBER_EVENT_CALL || kind == EMBER_EVENT_RETURN_TO;
    if (named && event->mfa.module)
        function = function_of(recorder, process, event, kind);
    if (kind == EMBER_EVENT_CALL && function == EMBER_NONE)
        return; /* a call of nothing, or no memory for its name: its caller goes on */
    ember_traced_event(process, event, function);
}

void ember_recorder_event(struct ember_recorder *recorder, const struct ember_event *event)
{
    recorder->now = ember_event_ticks(event);
    switch (ember_event_kind(event)) {
    case EMBER_EVENT_BEGIN:
        begin(recorder, event);
        break;
    case EMBER_EVENT_RETURN:
    case EMBER_EVENT_RAISE:
        end(recorder, event);
        break;
    case EMBER_EVENT_SPAWN:
        spawn(recorder, event);
        break;
    case EMBER_EVENT_INITIAL:
        initial(recorder, event);
        break;
    case EMBER_EVENT_REGISTER:
        name(recorder, event);
        break;
    case EMBER_EVENT_EXIT:
        exited(recorder, event);
        break;
    default:
        plain(recorder, event);
        break;
    }
}

/* ---- captures ---- */

bool ember_recorder_init(struct ember_recorder *recorder, const struct ember_outlet *outlet,
                         const struct ember_stack_layout *layout)
{
    *recorder = (struct ember_recorder){.outlet = *outlet, .layout = *layout};
    return ember_function_table_init(&recorder->functions) &&
           resize_processes(recorder, FIRST_PROCESSES);
}

void ember_recorder_fini(struct ember_recorder *recorder)
{
    for (uint32_t slot = 0; slot < EMBER_MAX_CAPTURES; slot++)
        ember_recorder_close(recorder, slot, recorder->now);
    ember_function_table_fini(&recorder->functions);
    free(recorder->processes);
    recorder->processes = NULL;
}

void ember_recorder_open(struct ember_recorder *recorder, uint32_t slot,
                         const struct ember_capture *capture)
{
    recorder->captures[slot] = *capture;
    recorder->open[slot] = true;
    recorder->starved[slot] = false;
}

static struct ember_run *run_of_capture(struct ember_recorder *recorder, uint32_t slot)
{
    struct ember_run *run = recorder->runs;
    while (run && run->capture != slot)
        run = run->next;
    return run;
}

void ember_recorder_close(struct ember_recorder *recorder, uint32_t slot, uint64_t ticks)
{
    struct ember_run *run;
    while ((run = run_of_capture(recorder, slot)))
        finish_run(recorder, run, EMBER_OUTCOME_UNFINISHED, ticks);
    recorder->open[slot] = false;
    free(recorder->captures[slot].modules);
    recorder->captures[slot].modules = NULL;
}

void ember_recorder_check_memory(struct ember_recorder *recorder)
{
    size_t bytes[EMBER_MAX_CAPTURES] = {0};
    bool failed[EMBER_MAX_CAPTURES];
    memcpy(failed, recorder->starved, sizeof failed);
    for (struct ember_run *run = recorder->runs; run; run = run->next) {
        bytes[run->capture] += ember_run_bytes(run);
        failed[run->capture] |= run->out_of_memory;
    }
    for (uint32_t slot = 0; slot < EMBER_MAX_CAPTURES; slot++) {
        bool over = failed[slot] || bytes[slot] > recorder->captures[slot].memory_limit;
        if (!recorder->open[slot] || !over)
            continue;
        ember_recorder_close(recorder, slot, recorder->now);
        recorder->outlet.on_limit(recorder->outlet.context, slot);
    }
}
