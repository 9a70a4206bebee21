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

static struct ember_traced *look_up_process(struct ember_recorder *recorder, uint64_t pid)
{
    struct ember_traced *found = *find_slot(recorder->processes, recorder->process_mask, pid);
    if (found)
        recorder->recent = found;
    return found;
}

static inline struct ember_traced *find_process(struct ember_recorder *recorder, uint64_t pid)
{
    if (recorder->recent && recorder->recent->pid == pid)
        return recorder->recent;
    return look_up_process(recorder, pid);
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

static void end_timelines(struct ember_run *run)
{
    for (uint32_t i = 0; i < run->process_count; i++)
        if (run->processes[i].recorded)
            ember_recorded_end(run->processes[i].recorded);
}

static uint64_t lost_until_now(struct ember_recorder *recorder)
{
    return recorder->outlet.lost(recorder->outlet.context);
}

static void give_out(struct ember_recorder *recorder, struct ember_run *run)
{
    uint32_t slot = run->capture;
    recorder->kept[slot] += recorder->outlet.on_run(
        recorder->outlet.context, run, &recorder->captures[slot], &recorder->functions);
}

/* Where there is no memory for it, the capture ends with a part. */
static void merge_run(struct ember_recorder *recorder, struct ember_run *run)
{
    struct ember_run **merged = &recorder->merged[run->capture];
    if (!*merged && (*merged = ember_run_create(0, run->capture)))
        (*merged)->calls = 0;
    if (!*merged || !ember_run_merge(*merged, run))
        recorder->starved[run->capture] = true;
    recorder->outlet.on_merged(recorder->outlet.context, run);
    ember_run_destroy(run);
}

/* Of a capture that keeps slow calls: whether this is one, and still asked for. */
static bool keep_run(struct ember_recorder *recorder, const struct ember_run *run)
{
    uint32_t slot = run->capture;
    const struct ember_capture *capture = &recorder->captures[slot];
    if (capture->keep == 0)
        return true;
    if (recorder->to_keep[slot] == 0 || !ember_run_is_slow(run, capture))
        return false;
    recorder->to_keep[slot] -= run->outcome != EMBER_OUTCOME_UNFINISHED || run->end_lost;
    return true;
}

/* The events of a run may come so late that what was lost meanwhile counts as lost before
 * its begin. */
static void count_lost(struct ember_recorder *recorder, struct ember_run *run)
{
    uint64_t now = lost_until_now(recorder);
    run->lost = now - run->lost_at_begin;
    if (run->lost < run->lost_told && run->lost_told <= now) {
        run->lost = run->lost_told;
        run->lost_at_begin = now - run->lost;
    }
}

static void finish_run(struct ember_recorder *recorder, struct ember_run *run,
                       enum ember_outcome outcome, uint64_t ticks)
{
    unlink_run(recorder, run);
    run->end_ticks = ticks;
    run->duration_ticks = ticks - run->begin_ticks;
    run->outcome = outcome;
    count_lost(recorder, run);
    detach_tracks(recorder, run);
    end_timelines(run);
    if (!keep_run(recorder, run))
        ember_run_destroy(run);
    else if (recorder->captures[run->capture].merge && !run->window &&
             (outcome != EMBER_OUTCOME_UNFINISHED || run->end_lost))
        merge_run(recorder, run);
    else
        give_out(recorder, run);
}

static uint64_t time_in_run(const struct ember_run *run, const struct ember_traced *process)
{
    return process->time > run->begin_ticks ? process->time - run->begin_ticks : 0;
}

/* Without its process. */
static struct ember_track *new_track(struct ember_recorder *recorder, struct ember_run *run,
                                     struct ember_traced *process, uint32_t parent)
{
    uint32_t index = ember_run_add_process(run, process->pid, parent);
    struct ember_track *track =
        index == EMBER_NONE
            ? NULL
            : ember_track_create(run, &recorder->captures[run->capture], &recorder->layout, index);
    if (track && run->recording.budget)
        track->recorded = run->processes[index].recorded =
            ember_recorded_create(&run->recording, time_in_run(run, process));
    return track;
}

static struct ember_track *add_track(struct ember_recorder *recorder, struct ember_run *run,
                                     struct ember_traced *process, uint32_t parent)
{
    struct ember_track *track = new_track(recorder, run, process, parent);
    if (track)
        ember_traced_add_track(process, track);
    else
        run->out_of_memory = true;
    return track;
}

static uint32_t capture_of(const struct ember_event *event)
{
    return ember_capture_of(event->value);
}

static struct ember_run *start_run(struct ember_recorder *recorder, uint64_t id, uint64_t ticks)
{
    struct ember_run *run = ember_run_create(id, id & (EMBER_MAX_CAPTURES - 1));
    if (!run)
        return NULL;
    run->begin_ticks = ticks;
    run->lost_at_begin = lost_until_now(recorder);
    if (recorder->captures[run->capture].timeline && !recorder->captures[run->capture].merge)
        run->recording.budget = &recorder->budgets[run->capture];
    run->next = recorder->runs;
    recorder->runs = run;
    return run;
}

/* ---- events ---- */

static enum ember_marking surer(enum ember_marking a, enum ember_marking b)
{
    return a == EMBER_MARKED || b == EMBER_UNMARKED ? a : b;
}

/* What the stack tells of a call that is captured and, where it is not sure, the tracks that
 * are there already. */
static void note_captured_call(struct ember_traced *process, const struct ember_event *event)
{
    int32_t depth = ember_traced_depth(process, event);
    enum ember_marking seen = (enum ember_marking)(ember_event_arity(event) >> 1 & 3);
    enum ember_marking known = process->tracks ? EMBER_UNMARKED : EMBER_MARKED_MAYBE;
    for (struct ember_track *t = process->tracks; t; t = t->next_in_process)
        known = surer(known, ember_track_other_begin(t, depth));
    process->was_traced = ember_event_arity(event) & 1;
    process->marking = seen == EMBER_MARKED_MAYBE ? known : seen;
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
    struct ember_run *run = ready ? start_run(recorder, event->value, ember_event_ticks(event))
                                  : NULL;
    if (!run) {
        recorder->starved[capture_of(event)] = true;
        drop_if_unused(recorder, process);
        return;
    }
    bool repeat = ember_traced_is_repeat(process, event);
    ember_traced_event(process, event);
    if (!repeat)
        note_captured_call(process, event);
    struct ember_track *track = add_track(recorder, run, process, EMBER_NONE);
    if (track)
        ember_track_begin(track, function, ember_traced_depth(process, event), process->was_traced,
                          process->marking);
    drop_if_unused(recorder, process);
}

/* Whether a captured call returns from functions that have not: no event told of
 * that, since tracing was taken away. An exception leaves them without one. */
static bool returns_untraced(const struct ember_traced *process, const struct ember_run *run,
                             const struct ember_event *event)
{
    bool deep = false;
    for (struct ember_track *t = process->tracks; t; t = t->next_in_process)
        deep |= t->run == run && t->depth > t->base;
    return deep && ember_event_kind(event) == EMBER_EVENT_RETURN &&
           ember_traced_depth(process, event) != EMBER_NO_DEPTH;
}

static void end(struct ember_recorder *recorder, const struct ember_event *event)
{
    struct ember_traced *process = find_process(recorder, event->pid);
    struct ember_run *run = find_run(recorder, event->value);
    if (!process || !run)
        return;
    run->untraced = returns_untraced(process, run, event) &&
                    lost_until_now(recorder) == run->lost_at_begin;
    ember_traced_event(process, event);
    bool returned = ember_event_kind(event) == EMBER_EVENT_RETURN;
    for (struct ember_track *t = process->tracks; returned && t; t = t->next_in_process)
        ember_track_other_return(t, ember_traced_depth(process, event));
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

static void ancestor(struct ember_recorder *recorder, const struct ember_event *event)
{
    struct ember_traced *process = find_process(recorder, event->pid);
    for (struct ember_track *t = process ? process->tracks : NULL; t; t = t->next_in_process) {
        struct ember_run_process *child = process_of(t);
        if (child->ancestor_count < EMBER_MOST_ANCESTORS)
            child->ancestors[child->ancestor_count++] =
                (struct ember_ancestor){event->value, ember_event_arity(event) != 0};
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
        if (t->rooted)
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

static void note_exit(struct ember_run_process *process, uint64_t ticks)
{
    process->exited = true;
    process->exit_ticks = ticks;
}

/* The process is dead: the runs rooted in it end, it leaves the others. */
static void bury(struct ember_recorder *recorder, uint64_t pid, uint64_t ticks)
{
    struct ember_traced *process = find_process(recorder, pid);
    struct ember_track *track;
    for (struct ember_track *t = process ? process->tracks : NULL; t; t = t->next_in_process)
        note_exit(process_of(t), ticks);
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
    ember_traced_event(process, event);
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
    ember_traced_event(parent, event);
    for (struct ember_track *t = parent->tracks; t; t = t->next_in_process) {
        struct ember_traced *child = t->capture->spawned ? ensure_process(recorder, event->value)
                                                         : NULL;
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
    if (id >= recorder->functions.count) /* none, or no single one */
        return false;
    const struct ember_function_key *key = &recorder->functions.keys[id];
    return key->mfa.function == event->mfa.function && key->mfa.module == event->mfa.module &&
           key->arity == ember_event_arity(event);
}

/* The event's function; mostly it is `likely`, and a look there spares a look-up
 * in the table. */
static uint32_t function_of(struct ember_recorder *recorder, const struct ember_event *event,
                            uint32_t likely)
{
    if (is_function(recorder, likely, event))
        return likely;
    return ember_function_table_id(&recorder->functions, event->mfa, ember_event_arity(event));
}

/* What the caller called last. */
static uint32_t likely_callee(const struct ember_traced *process)
{
    const struct ember_track *track = process->tracks;
    uint32_t child = track ? ember_track_top(track)->recent_child : EMBER_NONE;
    return child == EMBER_NONE ? EMBER_NONE : track->run->tree.nodes[child].function;
}

/* A call of nothing, or no memory for its name: its caller goes on. */
static void call(struct ember_recorder *recorder, const struct ember_event *event)
{
    struct ember_traced *process = find_process(recorder, event->pid);
    if (!process || !event->mfa.module)
        return;
    uint32_t function = function_of(recorder, event, likely_callee(process));
    if (function != EMBER_NONE)
        ember_traced_call(process, event, function);
}

/* The frame below the top. */
static uint32_t likely_caller(const struct ember_traced *process)
{
    const struct ember_track *track = process->tracks;
    return track && track->depth >= 2 ? track->frames[track->depth - 2].function : EMBER_NONE;
}

static void block(struct ember_recorder *recorder, const struct ember_event *event)
{
    struct ember_traced *process = find_process(recorder, event->pid);
    if (process)
        ember_traced_block(process, event);
}

static void held_up(struct ember_recorder *recorder, const struct ember_event *event)
{
    struct ember_traced *process = find_process(recorder, event->pid);
    if (process)
        ember_traced_held_up(process, event);
}

/* Of a run that has ended there was no event of that. */
static void end_without_event(struct ember_recorder *recorder, struct ember_run *run,
                              uint64_t ticks)
{
    run->end_lost = true;
    finish_run(recorder, run, EMBER_OUTCOME_UNFINISHED, ticks);
}

static struct ember_run *run_that_is_over(const struct ember_traced *process, int32_t least)
{
    for (struct ember_track *t = process ? process->tracks : NULL; t; t = t->next_in_process)
        if (ember_track_is_over(t, least))
            return t->run;
    return NULL;
}

/* A walk over the stack whose event is lost is none. */
static void gap(struct ember_recorder *recorder, const struct ember_event *event)
{
    struct ember_traced *process = find_process(recorder, event->pid);
    struct ember_run *run;
    if (recorder->walk.pid == event->pid)
        recorder->walk.count = 0;
    if (process)
        ember_traced_gap(process, event);
    while ((run = run_that_is_over(find_process(recorder, event->pid), event->least)))
        end_without_event(recorder, run, ember_event_ticks(event));
}

static void binaries(struct ember_recorder *recorder, const struct ember_event *event)
{
    struct ember_traced *process = find_process(recorder, event->pid);
    if (process)
        ember_traced_binaries(process, event);
}

/* ---- windows ---- */

static bool is_own(const struct ember_recorder *recorder, struct ember_mfa mfa)
{
    return ember_modules_have(recorder->own_modules, recorder->own_module_count, mfa.module);
}

/* Its id; EMBER_NONE where it is not shown. */
static uint32_t shown_function(struct ember_recorder *recorder, const struct ember_capture *capture,
                               struct ember_mfa mfa, uint32_t arity)
{
    bool shown = mfa.module && !is_own(recorder, mfa) && ember_capture_shows(capture, mfa);
    return shown ? ember_function_table_id(&recorder->functions, mfa, arity) : EMBER_NONE;
}

/* One by one, from the top of the stack on. */
static void frame(struct ember_recorder *recorder, const struct ember_event *event)
{
    uint32_t index = event->hp;
    if (index == 0) {
        recorder->walk.pid = event->pid;
        recorder->walk.count = 0;
        recorder->walk.broken = false;
    }
    bool next = recorder->walk.pid == event->pid && recorder->walk.count == index;
    if (next && index < EMBER_MOST_FRAMES)
        recorder->walk.events[recorder->walk.count++] = *event;
    else
        recorder->walk.broken = true;
}

static bool is_last(const struct ember_event *event)
{
    return event->mfa.module == 0 && ember_event_arity(event) == EMBER_FRAME_LAST;
}

static void turn_around(struct ember_old_frame *frames, uint32_t count)
{
    for (uint32_t i = 0; i < count / 2; i++) {
        struct ember_old_frame other = frames[i];
        frames[i] = frames[count - 1 - i];
        frames[count - 1 - i] = other;
    }
}

/* Whether a return_to frame is among the frames of the VM's own from `first` on, which the
 * address that is returned to follows. */
static bool are_marked(const struct ember_recorder *recorder, uint32_t first, uint32_t address)
{
    const struct ember_event *events = recorder->walk.events;
    if (!recorder->layout.begin_before_call) /* they are not told apart */
        return ember_layout_marks(&recorder->layout, events[address].sp - events[first].sp);
    bool marked = false;
    for (uint32_t i = first; i < address; i++)
        marked |= ember_event_arity(&events[i]) == EMBER_FRAME_MARK;
    return marked;
}

/* The frame that stands on the return addresses from `i` on: its depth is where the
 * function's own stands or, where the VM has put frames of its own there, the first of
 * these. Where the process ends there is one of these anyway. Moves to the next. */
static struct ember_old_frame old_frame(const struct ember_recorder *recorder, uint32_t *i,
                                        uint32_t stack_base)
{
    const struct ember_event *events = recorder->walk.events;
    uint32_t count = recorder->walk.count;
    uint32_t first = *i;
    bool there = first < count && !is_last(&events[first]);
    while (*i < count && !is_last(&events[*i]) && events[*i].mfa.module == 0)
        ++*i;
    bool outermost = *i < count && is_last(&events[*i]);
    uint32_t address = there && outermost ? *i - 1 : *i;
    return (struct ember_old_frame){
        .depth = there ? (int32_t)(stack_base - events[first].sp) : EMBER_NO_DEPTH,
        .marked = address < count && are_marked(recorder, first, address)};
}

/* Of the functions on the stack, the oldest first; `in` names the one on top. */
static uint32_t old_frames(struct ember_recorder *recorder, const struct ember_capture *capture,
                           const struct ember_event *in, uint32_t stack_base,
                           struct ember_old_frame *frames)
{
    const struct ember_event *events = recorder->walk.events;
    uint32_t count = 0;
    uint32_t i = 0;
    for (const struct ember_event *at = in; at; i++) {
        struct ember_old_frame frame = old_frame(recorder, &i, stack_base);
        frame.function = shown_function(recorder, capture, at->mfa, ember_event_arity(at));
        if (frame.depth == EMBER_NO_DEPTH) /* an empty stack, or one that was not told to its end */
            frame.depth = count > 0 ? frames[count - 1].depth - 1 : 1;
        frames[count++] = frame;
        at = i < recorder->walk.count && !is_last(&events[i]) ? &events[i] : NULL;
    }
    turn_around(frames, count);
    return count;
}

/* The stack has been told of, just before this event. */
static void uncover(struct ember_recorder *recorder, const struct ember_traced *process,
                    const struct ember_event *event)
{
    static struct ember_old_frame frames[EMBER_MOST_FRAMES + 1];
    uint32_t total = recorder->walk.count;
    bool complete = total > 0 && is_last(&recorder->walk.events[total - 1]);
    for (struct ember_track *t = process->tracks; t; t = t->next_in_process) {
        if (!t->entered || process->next.start == 0)
            continue;
        uint32_t count = old_frames(recorder, t->capture, event, process->next.end, frames);
        ember_track_uncover(t, frames, count, complete);
    }
}

static void take_walk(struct ember_recorder *recorder, const struct ember_traced *process,
                      const struct ember_event *event)
{
    bool told = recorder->walk.pid == event->pid && recorder->walk.count > 0;
    if (told && !recorder->walk.broken && ember_event_kind(event) == EMBER_EVENT_IN)
        uncover(recorder, process, event);
    if (told)
        recorder->walk.count = 0;
}

/* Where nothing is known but what runs now. */
static void name_unknown(struct ember_recorder *recorder, const struct ember_traced *process,
                         const struct ember_event *event)
{
    for (struct ember_track *t = process->tracks; t; t = t->next_in_process) {
        if (!t->entered || !ember_track_is_unknown(t))
            continue;
        uint32_t function =
            shown_function(recorder, t->capture, event->mfa, ember_event_arity(event));
        if (function != EMBER_NONE)
            ember_track_show(t, function, ember_traced_depth(process, event));
    }
}

static void return_to(struct ember_recorder *recorder, const struct ember_event *event)
{
    struct ember_traced *process = find_process(recorder, event->pid);
    if (!process)
        return;
    uint32_t function = EMBER_NONE;
    if (event->mfa.module)
        function = function_of(recorder, event, likely_caller(process));
    ember_traced_return_to(process, event, function);
    if (process->entered)
        name_unknown(recorder, process, event);
}

/* Where a process stands when it is scheduled. */
static void look(struct ember_recorder *recorder, const struct ember_traced *process,
                 const struct ember_event *event)
{
    int32_t depth = ember_traced_depth(process, event);
    enum ember_event_kind kind = ember_event_kind(event);
    for (struct ember_track *t = process->tracks; t; t = t->next_in_process) {
        if (!t->entered)
            continue;
        ember_track_forget_assumed(t);
        if (kind != EMBER_EVENT_IN && kind != EMBER_EVENT_OUT)
            continue;
        ember_track_cut(t, depth);
    }
    if (kind == EMBER_EVENT_IN && event->mfa.module != 0) /* OUT tells of it no arity */
        name_unknown(recorder, process, event);
}

/* Scheduling and collections. */
static void schedule(struct ember_recorder *recorder, const struct ember_event *event)
{
    struct ember_traced *process = find_process(recorder, event->pid);
    if (!process)
        return;
    if (process->entered)
        take_walk(recorder, process, event);
    ember_traced_event(process, event);
    if (process->entered)
        look(recorder, process, event);
}

void ember_recorder_event(struct ember_recorder *recorder, const struct ember_event *event)
{
    recorder->now = ember_event_ticks(event);
    switch (ember_event_kind(event)) {
    case EMBER_EVENT_CALL:
        call(recorder, event);
        break;
    case EMBER_EVENT_RETURN_TO:
        return_to(recorder, event);
        break;
    case EMBER_EVENT_HEAP:
    case EMBER_EVENT_FRAGMENTS:
        block(recorder, event);
        break;
    case EMBER_EVENT_HELD_UP:
        held_up(recorder, event);
        break;
    case EMBER_EVENT_GAP:
        gap(recorder, event);
        break;
    case EMBER_EVENT_FRAME:
        frame(recorder, event);
        break;
    case EMBER_EVENT_BINARIES:
        binaries(recorder, event);
        break;
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
    case EMBER_EVENT_ANCESTOR:
        ancestor(recorder, event);
        break;
    case EMBER_EVENT_REGISTER:
        name(recorder, event);
        break;
    case EMBER_EVENT_EXIT:
        exited(recorder, event);
        break;
    default:
        schedule(recorder, event);
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
    recorder->kept[slot] = 0;
    recorder->to_keep[slot] = capture->keep;
    recorder->budgets[slot] = (struct ember_timeline_budget){.limit = capture->memory_limit / 2};
}

static void assume(struct ember_recorder *recorder, struct ember_track *track,
                   const struct ember_window *window, const struct ember_window_process *seen)
{
    uint32_t functions[EMBER_MOST_FRAMES];
    uint32_t count = 0;
    for (uint32_t i = 0; i < seen->frame_count && count < EMBER_MOST_FRAMES; i++) {
        const struct ember_function_key *key = &window->frames[seen->frames + i];
        uint32_t id = shown_function(recorder, track->capture, key->mfa, key->arity);
        if (id != EMBER_NONE)
            functions[count++] = id;
    }
    ember_track_assume(track, functions, count, seen->complete);
}

/* A process that others record goes on as it is. */
static bool enter(struct ember_recorder *recorder, struct ember_run *run,
                  const struct ember_window *window, const struct ember_window_process *seen)
{
    struct ember_traced *process = find_process(recorder, seen->pid);
    bool known = process != NULL;
    process = known ? process : add_process(recorder, seen->pid);
    struct ember_track *track = process ? new_track(recorder, run, process, EMBER_NONE) : NULL;
    if (!track) {
        drop_if_unused(recorder, process);
        return false;
    }
    ember_track_enter(track, run->begin_ticks);
    ember_traced_add_track(process, track);
    if (!known)
        ember_traced_enter(process, seen->activity);
    if (!known && seen->activity != EMBER_ACTIVE)
        assume(recorder, track, window, seen);
    return true;
}

void ember_recorder_open_window(struct ember_recorder *recorder, uint32_t slot,
                                const struct ember_capture *capture,
                                const struct ember_window *window, uint64_t ticks)
{
    ember_recorder_open(recorder, slot, capture);
    recorder->now = ticks;
    struct ember_run *run = start_run(recorder, window->run, ticks);
    if (run)
        run->window = true;
    recorder->starved[slot] = run == NULL;
    for (uint32_t i = 0; run && i < window->count; i++)
        if (!enter(recorder, run, window, &window->processes[i]))
            run->out_of_memory = true;
}

static struct ember_run *run_of_capture(struct ember_recorder *recorder, uint32_t slot)
{
    struct ember_run *run = recorder->runs;
    while (run && run->capture != slot)
        run = run->next;
    return run;
}

uint64_t ember_recorder_restart_window(struct ember_recorder *recorder, uint32_t slot,
                                       uint64_t ticks, uint64_t max_ticks)
{
    struct ember_run *run = run_of_capture(recorder, slot);
    if (!run || !run->window)
        return 0;
    uint64_t events = run->events;
    recorder->captures[slot].max_ticks = max_ticks;
    ember_call_tree_reset(&run->tree);
    for (struct ember_track *t = run->tracks; t; t = t->next_in_run)
        ember_traced_restart_track(t, ticks);
    run->begin_ticks = ticks;
    run->lost_at_begin = lost_until_now(recorder);
    run->lost_told = run->events = 0;
    return events;
}

void ember_recorder_close(struct ember_recorder *recorder, uint32_t slot, uint64_t ticks)
{
    struct ember_run *run = recorder->merged[slot];
    recorder->merged[slot] = NULL;
    if (run)
        give_out(recorder, run);
    while ((run = run_of_capture(recorder, slot)))
        finish_run(recorder, run, run->window ? EMBER_OUTCOME_RECORDED : EMBER_OUTCOME_UNFINISHED,
                   ticks);
    recorder->open[slot] = false;
    free(recorder->captures[slot].modules);
    recorder->captures[slot].modules = NULL;
}

/* When somebody of the run was seen last. */
static uint64_t last_seen(const struct ember_run *run)
{
    uint64_t last = run->begin_ticks;
    for (const struct ember_track *t = run->tracks; t; t = t->next_in_run)
        if (t->traced->time > last)
            last = t->traced->time;
    return last;
}

static struct ember_run *run_without_end(struct ember_recorder *recorder)
{
    enum { CALLS = 3 };
    struct ember_run *run = recorder->runs;
    while (run && run->missed < CALLS)
        run = run->next;
    return run;
}

void ember_recorder_check_ends(struct ember_recorder *recorder)
{
    struct ember_run *run = recorder->runs;
    if (!run || lost_until_now(recorder) == 0)
        return;
    for (; run; run = run->next)
        if (!run->window &&
            (run->missed || recorder->outlet.ended(recorder->outlet.context, run->id)))
            run->missed++;
    while ((run = run_without_end(recorder)))
        end_without_event(recorder, run, last_seen(run));
}

static bool has_enough(const struct ember_run *run, const struct ember_capture *capture,
                       uint64_t now)
{
    return run->window && ((capture->max_events && run->events > capture->max_events) ||
                           (capture->max_ticks && now > run->begin_ticks &&
                            now - run->begin_ticks > capture->max_ticks));
}

void ember_recorder_check_memory(struct ember_recorder *recorder)
{
    size_t bytes[EMBER_MAX_CAPTURES];
    bool failed[EMBER_MAX_CAPTURES];
    memcpy(bytes, recorder->kept, sizeof bytes);
    memcpy(failed, recorder->starved, sizeof failed);
    for (struct ember_run *run = recorder->runs; run; run = run->next) {
        bytes[run->capture] += ember_run_bytes(run);
        const struct ember_capture *capture = &recorder->captures[run->capture];
        failed[run->capture] |= run->out_of_memory || has_enough(run, capture, recorder->now);
    }
    for (uint32_t slot = 0; slot < EMBER_MAX_CAPTURES; slot++) {
        if (recorder->merged[slot])
            bytes[slot] += ember_run_bytes(recorder->merged[slot]);
        bool over = failed[slot] || bytes[slot] > recorder->captures[slot].memory_limit;
        if (!recorder->open[slot] || !over)
            continue;
        ember_recorder_close(recorder, slot, recorder->now);
        recorder->outlet.on_limit(recorder->outlet.context, slot);
    }
}
