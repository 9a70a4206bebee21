/* SPDX-License-Identifier: Apache-2.0
 *
 * A model of the VM as far as the recorder sees it: processes whose stacks and
 * heaps move as the real ones do, and the events a tracer would write. It
 * keeps naive trees beside and compares every finished run with them.
 *
 * Depths are words below the base of the stack. A body call pushes the frame
 * of the caller and a return address; a tail call runs where its caller ran.
 * Where a traced call finds no return_to frame above the return address, the
 * VM pushes one after the event; a captured call gets a frame of its own.
 */
#ifndef EMBER_TEST_SYNTHETIC_VM_H
#define EMBER_TEST_SYNTHETIC_VM_H

#include "timeline_sums.h"
#include "naive_tree.h"
#include "recorder.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum {
    VM_FUNCTIONS = 64,
    VM_MOST_STACKS = 8,
    VM_MOST_TRACE_FRAMES = 12,
    VM_MOST_PROCESSES = 64,
    VM_MFA_WORDS = 4,
    VM_TRACER_WORDS = 2,
    VM_STACK_WORDS = 1000,
    VM_SOMEBODY = VM_FUNCTIONS - 1, /* an untraced function */
};

struct vm_trace_frame {
    bool return_to;   /* else of a captured call */
    uint32_t session; /* that it was pushed for; from OTP 27 on it is told of to no other */
    uint32_t run_count;
    uint64_t runs[VM_MOST_STACKS]; /* ids */
};

struct vm_frame {
    uint32_t function;
    uint64_t ran;       /* bits of the functions that have run in it */
    int64_t depth;      /* of the stack, trace frames included, the own frame not */
    uint32_t size;      /* of the own frame */
    bool sized;         /* it has one, so it is never larger */
    bool left_silently; /* its callee has returned, of which no event tells */
    uint32_t trace_frame_count;
    struct vm_trace_frame trace_frames[VM_MOST_TRACE_FRAMES];
};

/* What a tracer remembers of a process whose events were lost. */
struct vm_gap {
    uint32_t events;
    int32_t least;
    int32_t open;
    bool block; /* the record of the block was lost: so is the next event */
};

struct vm_process {
    uint64_t pid;
    struct vm_gap gap;
    uint32_t start; /* the block: word addresses, which may wrap */
    uint32_t end;
    uint32_t limit; /* of the heap; the rest is left to the stack */
    uint32_t hp;
    uint32_t fragments;
    enum ember_out why_out; /* the last time */
    bool block_told;        /* and nothing of it has changed since */
    struct vm_frame *frames;
    uint32_t frame_count;
    uint32_t frame_capacity;
    struct naive_stack stacks[VM_MOST_STACKS];
    uint32_t stack_count;
    uint64_t time;          /* of the last event */
    int64_t new_words;      /* since the last event */
    int64_t new_heap_words; /* of these, not in fragments */
    bool new_tracer_words;  /* tracing has allocated too */
    bool new_block;         /* a collection has been put off */
    bool displaced;         /* and has not been made up for */
    uint32_t left_used;     /* words of the block that was left */
    int64_t left_words;     /* of these, since the event before */
    bool traced;            /* also for a while after its last run */
    bool out;
    bool collecting;
    bool unclear; /* the recorder cannot know the stack until the next step */
    bool arrives; /* in a window: its stack is told when it runs next */
    uint32_t
        left_from; /* frames from here on are gone, of which no event has told; or EMBER_NONE */
};

struct vm_capture {
    bool open;
    uint32_t target;
    uint32_t calls;
    struct ember_capture options;
};

struct vm {
    struct ember_recorder recorder;
    struct ember_stack_layout layout;
    bool exact; /* block and stack pointer are known */
    uint64_t now;
    uint64_t next_run;
    uint32_t session;   /* of tracing */
    uint64_t allocated; /* words, by all processes, tracing included */
    uint64_t lose;      /* events still to be lost */
    uint64_t held_up;   /* ticks in which processes waited for room: nobody's */
    uint64_t lost;
    bool compare; /* finished runs with the naive trees */
    bool print;   /* events; set by EMBER_PRINT in the environment */
    bool untraced[VM_FUNCTIONS];
    struct vm_capture captures[EMBER_MAX_CAPTURES];
    struct vm_process *processes[VM_MOST_PROCESSES];
    uint32_t process_count;
    struct naive_run *runs[64]; /* that are going on */
    uint32_t run_count;
    struct ember_run *finished; /* the last; freed with the next */
    uint32_t finished_count;
    uint32_t merged_count;
    uint32_t limit_count;
    size_t kept_bytes; /* of each finished run */
    const char *doing; /* for messages */
    uint64_t seed;
};

/* Modules of functions that are never traced: our own. */
static const uint32_t vm_own_modules[] = {103 << 6 | 11, 107 << 6 | 11};

static const struct ember_stack_layout vm_layout_25 = {1, 3, 1, false};
static const struct ember_stack_layout vm_layout_27 = {2, 4, 1, true};

static inline struct ember_mfa vm_mfa(uint32_t function)
{
    return (struct ember_mfa){(100 + function / 8) << 6 | 11, (500 + function) << 6 | 11};
}

static inline uint32_t vm_arity(uint32_t function)
{
    return function % 5;
}

static inline uint32_t vm_function_of(const struct ember_recorder *recorder, uint32_t id)
{
    return id >= EMBER_UNKNOWN ? id : (recorder->functions.keys[id].mfa.function >> 6) - 500;
}

/* ---- Comparing ----------------------------------------------------------- */

/* A node of a run, its parts together. */
static inline struct naive_node vm_node_at(const struct vm *vm, const struct ember_run *run,
                                           uint32_t i)
{
    const struct ember_tree_node *node = &run->tree.nodes[i];
    return (struct naive_node){
        .parent = node->parent,
        .function = vm_function_of(&vm->recorder, node->function),
        .depth = node->depth,
        .calls = node->calls,
        .own_ticks = node->own_ticks,
        .off_cpu_ticks = run->tree.rare[i].off_cpu_ticks,
        .waiting_ticks = run->tree.rare[i].waiting_ticks,
        .gc_ticks = run->tree.rare[i].gc_ticks,
        .words = node->words,
    };
}

#define VM_SAME(field) \
    cr_assert_eq(found->field, expected->field, \
                 "seed %lu %s: node %u (function %d, depth %u): " #field " %ld, expected %ld", \
                 (unsigned long)vm->seed, vm->doing ? vm->doing : "", i, (int)expected->function, \
                 expected->depth, (long)found->field, (long)expected->field)

static inline void vm_compare_node(const struct vm *vm, const struct naive_node *found,
                                   const struct naive_node *expected, uint32_t i)
{
    VM_SAME(depth);
    VM_SAME(calls);
    VM_SAME(own_ticks);
    VM_SAME(off_cpu_ticks);
    VM_SAME(waiting_ticks);
    VM_SAME(gc_ticks);
    if (vm->exact)
        VM_SAME(words);
}

/* Processes take part in the same order, so their roots correspond. */
static inline void vm_compare(const struct vm *vm, const struct ember_run *run,
                              const struct naive_run *naive)
{
    uint32_t *map = calloc(run->tree.count, sizeof *map);
    uint32_t root = 0;
    cr_assert_eq(run->tree.count, naive->count, "seed %lu %s: %u nodes, expected %u",
                 (unsigned long)vm->seed, vm->doing ? vm->doing : "", run->tree.count,
                 naive->count);
    for (uint32_t i = 0; i < run->tree.count; i++) {
        struct naive_node node = vm_node_at(vm, run, i);
        if (node.parent == EMBER_NONE) {
            while (naive->nodes[root].parent != EMBER_NONE)
                root++;
            map[i] = root++;
        } else {
            map[i] = naive_find_child(naive, map[node.parent], node.function);
            cr_assert_neq(map[i], EMBER_NONE, "seed %lu %s: function %d should not be there",
                          (unsigned long)vm->seed, vm->doing ? vm->doing : "", (int)node.function);
        }
        vm_compare_node(vm, &node, &naive->nodes[map[i]], i);
    }
    free(map);
}

static inline void vm_free_naive(struct naive_run *naive)
{
    free(naive->nodes);
    free(naive);
}

/* Nobody takes part in the run any longer. */
static inline void vm_end_naive(struct vm *vm, struct naive_run *naive)
{
    for (uint32_t p = 0; p < vm->process_count; p++) {
        struct vm_process *process = vm->processes[p];
        for (uint32_t i = process->stack_count; i > 0; i--) {
            if (process->stacks[i - 1].run != naive)
                continue;
            free(process->stacks[i - 1].entries);
            memmove(&process->stacks[i - 1], &process->stacks[i],
                    (--process->stack_count - (i - 1)) * sizeof process->stacks[0]);
        }
    }
    for (uint32_t i = 0; i < vm->run_count; i++)
        if (vm->runs[i] == naive)
            vm->runs[i] = vm->runs[--vm->run_count];
    vm_free_naive(naive);
}

static inline struct naive_run *vm_find_run(struct vm *vm, uint64_t value)
{
    for (uint32_t i = 0; i < vm->run_count; i++)
        if (ember_run_value(vm->runs[i]->id, vm->runs[i]->capture) == value)
            return vm->runs[i];
    return NULL;
}

/* Ticks of all nodes of a process of the run, and what they must add up to:
 * for the first process, all the time from begin to end. */
static inline uint64_t vm_process_ticks(const struct ember_run *run, uint32_t process)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < run->tree.count; i++)
        if (run->tree.nodes[i].process == process)
            sum += run->tree.nodes[i].own_ticks + run->tree.rare[i].off_cpu_ticks +
                   run->tree.rare[i].gc_ticks;
    return sum;
}

static inline void vm_check_ticks(const struct vm *vm, const struct ember_run *run)
{
    uint64_t length = run->end_ticks - run->begin_ticks;
    for (uint32_t i = 0; i < (run->window ? run->process_count : 1); i++) {
        uint64_t ticks = vm_process_ticks(run, i) + vm->held_up;
        bool shorter = run->window &&
                       (run->processes[i].exited || run->processes[i].parent != EMBER_NONE);
        cr_assert(shorter ? ticks <= length + vm->held_up : ticks == length,
                  "seed %lu: process %u: ticks %lu of %lu", (unsigned long)vm->seed, i,
                  (unsigned long)ticks, (unsigned long)length);
    }
}

/* However events are lost, a process has not allocated more than all have. */
static inline void vm_check_words(const struct vm *vm, const struct ember_run *run)
{
    int64_t most = (int64_t)(vm->allocated + run->events * (VM_MFA_WORDS + VM_TRACER_WORDS));
    for (uint32_t i = 0; i < run->tree.count; i++)
        cr_assert(run->tree.nodes[i].words <= most && run->tree.nodes[i].words >= -most,
                  "seed %lu: node %u has %ld words", (unsigned long)vm->seed, i,
                  (long)run->tree.nodes[i].words);
}

static inline size_t vm_on_run(void *context, struct ember_run *run,
                               const struct ember_capture *capture,
                               const struct ember_function_table *functions)
{
    struct vm *vm = context;
    (void)functions;
    ember_run_destroy(vm->finished);
    vm->finished = run;
    vm->finished_count++;
    if (run->id == 0)
        return vm->kept_bytes; /* several, merged */
    cr_assert_eq(capture->target.function, vm->captures[run->capture].options.target.function);
    vm_check_ticks(vm, run);
    vm_check_words(vm, run);
    cr_assert_null(run->recording.budget ? timeline_fault(run) : NULL, "seed %lu: %s",
                   (unsigned long)vm->seed, timeline_fault(run));
    struct naive_run *naive = vm_find_run(vm, run->id);
    cr_assert(naive);
    if (vm->compare)
        vm_compare(vm, run, naive);
    vm_end_naive(vm, naive);
    return vm->kept_bytes;
}

static inline void vm_on_merged(void *context, const struct ember_run *run)
{
    struct vm *vm = context;
    vm_end_naive(vm, vm_find_run(vm, run->id));
    vm->merged_count++;
}

static inline void vm_on_limit(void *context, uint32_t capture)
{
    struct vm *vm = context;
    vm->captures[capture].open = false;
    vm->limit_count++;
}

static inline uint64_t vm_lost(void *context)
{
    return ((struct vm *)context)->lost;
}

static inline bool vm_ended(void *context, uint64_t run)
{
    const struct naive_run *naive = vm_find_run(context, run);
    return naive && naive->ended;
}

/* ---- Set up -------------------------------------------------------------- */

static inline void vm_init(struct vm *vm, const struct ember_stack_layout *layout)
{
    *vm =
        (struct vm){.layout = *layout, .exact = true, .compare = true, .now = 1000, .next_run = 1};
    vm->print = getenv("EMBER_PRINT") != NULL;
    vm->untraced[VM_SOMEBODY] = true;
    struct ember_outlet outlet = {vm, vm_on_run, vm_on_merged, vm_on_limit, vm_lost, vm_ended};
    cr_assert(ember_recorder_init(&vm->recorder, &outlet, layout));
    vm->recorder.own_modules = vm_own_modules;
    vm->recorder.own_module_count = sizeof vm_own_modules / sizeof *vm_own_modules;
}

static inline void vm_fini(struct vm *vm)
{
    vm->compare = false;
    for (uint32_t i = 0; i < EMBER_MAX_CAPTURES; i++)
        if (vm->captures[i].open)
            ember_recorder_close(&vm->recorder, i, vm->now);
    ember_recorder_fini(&vm->recorder);
    ember_run_destroy(vm->finished);
    while (vm->run_count)
        vm_end_naive(vm, vm->runs[0]);
    for (uint32_t i = 0; i < vm->process_count; i++) {
        free(vm->processes[i]->frames);
        free(vm->processes[i]);
    }
}

/* A capture of the next `calls` calls of `target`. */
static inline struct ember_capture vm_options(uint32_t target)
{
    return (struct ember_capture){.target = vm_mfa(target),
                                  .target_arity = (uint8_t)vm_arity(target),
                                  .fold_recursion = true,
                                  .spawned = true,
                                  .memory_limit = SIZE_MAX};
}

static inline void vm_open_with(struct vm *vm, uint32_t slot, uint32_t target, uint32_t calls,
                                const struct ember_capture *options)
{
    vm->captures[slot] = (struct vm_capture){true, target, calls, *options};
    ember_recorder_open(&vm->recorder, slot, options);
}

static inline void vm_open(struct vm *vm, uint32_t slot, uint32_t target, uint32_t calls)
{
    struct ember_capture options = vm_options(target);
    vm_open_with(vm, slot, target, calls, &options);
}

static inline struct vm_frame *vm_top(struct vm_process *p)
{
    return &p->frames[p->frame_count - 1];
}

static inline void vm_push_frame(struct vm_process *p, struct vm_frame frame)
{
    if (p->frame_count == p->frame_capacity) {
        p->frame_capacity = p->frame_capacity ? p->frame_capacity * 2 : 8;
        p->frames = realloc(p->frames, p->frame_capacity * sizeof *p->frames);
    }
    p->frames[p->frame_count++] = frame;
}

static inline void vm_place_block(struct vm_process *p, uint32_t start, uint32_t words)
{
    p->start = start;
    p->limit = start + words;
    p->end = p->limit + VM_STACK_WORDS;
    p->hp = start;
    p->block_told = false;
}

/* A process in the middle of some untraced function. */
static inline struct vm_process *vm_new_process(struct vm *vm, uint64_t pid)
{
    struct vm_process *p = calloc(1, sizeof *p);
    p->pid = pid << 4 | 3;
    p->time = vm->now;
    p->left_from = EMBER_NONE;
    vm_place_block(p, (uint32_t)pid * 7777777 + 100, 100000);
    vm_push_frame(p, (struct vm_frame){.function = VM_SOMEBODY, .depth = 17});
    vm->processes[vm->process_count++] = p;
    return p;
}

/* ---- Events -------------------------------------------------------------- */

static inline int64_t vm_depth(struct vm_process *p)
{
    return vm_top(p)->depth + vm_top(p)->size;
}

/* Whether there was room on the heap; else they are in a fragment. */
static inline bool vm_put_words(struct vm *vm, struct vm_process *p, uint32_t words)
{
    vm->allocated += words;
    if (words <= p->limit - p->hp) {
        p->hp += words;
        return true;
    }
    p->fragments += words;
    p->block_told = false;
    return false;
}

static inline void vm_print(const struct ember_event *event)
{
    static const char *const kinds[] = {
        "call",     "return_to", "in",    "out",     "fragments", "binaries", "heap",
        "gc_start", "gc_end",    "spawn", "initial", "ancestor",  "exit",     "register",
        "held_up",  "gap",       "frame", "begin",   "return",    "raise"};
    static_assert(sizeof kinds / sizeof *kinds == EMBER_EVENT_KINDS, "each kind has a name");
    fprintf(stderr, "%8lu pid %lu %-9s value %lx function %d hp %u sp %u\n",
            (unsigned long)ember_event_ticks(event), (unsigned long)event->pid >> 4,
            kinds[ember_event_kind(event) % EMBER_EVENT_KINDS], (unsigned long)event->value,
            (int)(event->mfa.function >> 6) - 500, event->hp, event->sp);
}

static inline struct ember_event vm_event(const struct vm *vm, const struct vm_process *p,
                                          enum ember_event_kind kind)
{
    return (struct ember_event){.stamp = ember_event_stamp(vm->now, 0, kind), .pid = p->pid};
}

static inline struct vm_process *vm_find_process(struct vm *vm, uint64_t pid)
{
    for (uint32_t i = vm->process_count; i > 0; i--)
        if (vm->processes[i - 1]->pid == pid)
            return vm->processes[i - 1];
    return NULL;
}

static inline int32_t vm_depth_of(const struct vm *vm, const struct vm_process *p,
                                  const struct ember_event *event)
{
    if (!vm->exact)
        return EMBER_NO_DEPTH;
    return event->sp ? (int32_t)(p->end - event->sp) : EMBER_ANY_DEPTH;
}

static inline void vm_note_depth(const struct vm *vm, struct vm_gap *gap,
                                 enum ember_event_kind kind, int32_t depth)
{
    if (kind == EMBER_EVENT_RETURN || kind == EMBER_EVENT_RAISE)
        depth--;
    else if (kind > EMBER_EVENT_OUT && kind != EMBER_EVENT_BEGIN)
        return;
    bool scheduled = kind == EMBER_EVENT_IN || kind == EMBER_EVENT_OUT;
    int32_t pushed = scheduled ? 0 : (int32_t)vm->layout.return_to_words;
    gap->least = depth < gap->least ? depth : gap->least;
    if (kind == EMBER_EVENT_CALL || kind == EMBER_EVENT_BEGIN)
        gap->open = depth < gap->open ? depth : gap->open;
    else if (gap->open != EMBER_ANY_DEPTH && depth < gap->open + pushed)
        gap->open = EMBER_ANY_DEPTH;
}

static inline void vm_lose(struct vm *vm, struct vm_process *p, const struct ember_event *event)
{
    enum ember_event_kind kind = ember_event_kind(event);
    vm->lost++;
    if (p->gap.events++ == 0)
        p->gap = (struct vm_gap){1, EMBER_ANY_DEPTH, EMBER_ANY_DEPTH, false};
    p->gap.block = kind == EMBER_EVENT_HEAP || kind == EMBER_EVENT_FRAGMENTS;
    vm_note_depth(vm, &p->gap, kind, vm_depth_of(vm, p, event));
}

static inline void vm_tell_gap(struct vm *vm, struct vm_process *p, int32_t depth)
{
    struct ember_event event = vm_event(vm, p, EMBER_EVENT_GAP);
    event.least = depth < p->gap.least ? depth : p->gap.least;
    event.open = p->gap.open;
    event.sp = p->gap.events;
    p->gap.events = 0;
    p->block_told = false;
    if (vm->print)
        vm_print(&event);
    ember_recorder_event(&vm->recorder, &event);
}

static inline void vm_tell_block(struct vm *vm, struct vm_process *p);

/* Before the event come what was lost, and then the block; but frames are of the next one.
 * False: it is lost itself. */
static inline bool vm_send(struct vm *vm, const struct ember_event *event)
{
    enum ember_event_kind kind = ember_event_kind(event);
    struct vm_process *p = vm_find_process(vm, event->pid);
    bool of_block = kind == EMBER_EVENT_HEAP || kind == EMBER_EVENT_FRAGMENTS;
    bool settles = p && p->gap.events && kind != EMBER_EVENT_FRAME;
    if (vm->print)
        vm_print(event);
    if (p && (vm->lose > 0 || (settles && p->gap.block))) {
        vm->lose -= vm->lose > 0;
        vm_lose(vm, p, event);
        return false;
    }
    if (settles) {
        vm_tell_gap(vm, p, vm_depth_of(vm, p, event));
        if (!of_block && event->sp)
            vm_tell_block(vm, p);
    }
    ember_recorder_event(&vm->recorder, event);
    return true;
}

static inline void vm_tell_block(struct vm *vm, struct vm_process *p)
{
    if (p->block_told || !vm->exact)
        return;
    struct ember_event heap = vm_event(vm, p, EMBER_EVENT_HEAP);
    heap.heap_start = p->start;
    heap.stack_base = p->end;
    vm_send(vm, &heap);
    struct ember_event fragments = vm_event(vm, p, EMBER_EVENT_FRAGMENTS);
    fragments.value = p->fragments;
    vm_send(vm, &fragments);
    p->block_told = true;
}

/* What comes before an event at `depth`. */
static inline void vm_settle(struct vm *vm, struct vm_process *p, int64_t depth)
{
    if (vm->exact && p->gap.events && !p->gap.block && vm->lose == 0)
        vm_tell_gap(vm, p, (int32_t)depth);
    vm_tell_block(vm, p);
}

/* The time since the last event, and the words, are of the tops as they are. */
static inline void naive_pause(struct naive_node *node, uint64_t ticks, bool waiting)
{
    node->off_cpu_ticks += ticks;
    node->waiting_ticks += waiting ? ticks : 0;
}

static inline void vm_charge(struct vm *vm, struct vm_process *p, bool words)
{
    uint64_t ticks = vm->now - p->time;
    for (uint32_t i = 0; i < p->stack_count; i++) {
        struct naive_node *node = naive_top_node(&p->stacks[i]);
        if (p->collecting)
            node->gc_ticks += ticks;
        else if (p->out)
            naive_pause(node, ticks, p->why_out == EMBER_OUT_WAITING);
        else
            node->own_ticks += ticks;
        node->words += words ? p->new_words : 0;
    }
    p->time = vm->now;
    if (!words)
        return;
    p->new_words = p->new_heap_words = 0;
    p->new_tracer_words = p->new_block = false;
}

static inline bool vm_is_watched(const struct vm_process *p)
{
    bool watched = false;
    for (uint32_t i = 0; i < p->stack_count; i++)
        watched |= !p->stacks[i].run->ended;
    return watched;
}

static inline void vm_set_pointers(const struct vm *vm, const struct vm_process *p,
                                   struct ember_event *event, int64_t depth)
{
    bool tuple = event->mfa.module != 0 || ember_event_kind(event) >= EMBER_EVENT_BEGIN;
    event->hp = vm->exact || tuple ? p->hp : 0;
    event->sp = vm->exact ? p->end - (uint32_t)depth : 0;
}

/* The pointers of a step show what is left of the stack. */
static inline void vm_leave_late(struct vm_process *p)
{
    for (uint32_t i = 0; p->left_from != EMBER_NONE && i < p->stack_count; i++)
        if (p->stacks[i].window)
            naive_leave(&p->stacks[i], p->left_from);
    p->left_from = EMBER_NONE;
}

static inline bool vm_is_shown(const struct vm *vm, const struct naive_stack *stack,
                               uint32_t function)
{
    const struct ember_capture *options = &vm->captures[stack->run->capture].options;
    bool shown = options->modules == NULL;
    for (uint32_t i = 0; i < options->module_count; i++)
        shown |= options->modules[i] == vm_mfa(function).module;
    return shown;
}

static inline bool vm_is_mark(const struct vm *vm, const struct vm_trace_frame *frame)
{
    return frame->return_to && frame->session == vm->session;
}

static inline bool vm_is_marked(const struct vm *vm, const struct vm_frame *frame)
{
    for (uint32_t i = 0; i < frame->trace_frame_count; i++)
        if (vm_is_mark(vm, &frame->trace_frames[i]))
            return true;
    return false;
}

/* One return address or trace frame, at `depth`. None comes after one that was lost. */
static inline void vm_emit_frame(struct vm *vm, struct vm_process *p, uint32_t *index,
                                 int64_t depth, uint32_t function, uint32_t kind)
{
    struct ember_event event = vm_event(vm, p, EMBER_EVENT_FRAME);
    if (*index == EMBER_NONE)
        return;
    event.hp = (*index)++;
    event.sp = p->end - (uint32_t)depth;
    if (function != EMBER_NONE)
        event.mfa = vm_mfa(function);
    event.stamp = ember_event_stamp(vm->now, function == EMBER_NONE ? kind : vm_arity(function),
                                    EMBER_EVENT_FRAME);
    if (!vm_send(vm, &event))
        *index = EMBER_NONE;
}

/* The trace frames of a frame stand above its return address, the last on top. */
static inline void vm_emit_trace_frames(struct vm *vm, struct vm_process *p, uint32_t *index,
                                        const struct vm_frame *frame, int64_t *depth)
{
    for (uint32_t i = frame->trace_frame_count; i > 0; i--) {
        bool mark = vm->layout.begin_before_call && vm_is_mark(vm, &frame->trace_frames[i - 1]);
        vm_emit_frame(vm, p, index, *depth, EMBER_NONE,
                      mark ? EMBER_FRAME_MARK : EMBER_FRAME_OTHER);
        *depth -= frame->trace_frames[i - 1].return_to ? vm->layout.return_to_words
                                                       : vm->layout.begin_words;
    }
}

static inline void vm_emit_stack(struct vm *vm, struct vm_process *p)
{
    uint32_t index = 0;
    for (uint32_t f = p->frame_count; f > 0; f--) {
        const struct vm_frame *frame = &p->frames[f - 1];
        int64_t depth = frame->depth;
        vm_emit_trace_frames(vm, p, &index, frame, &depth);
        vm_emit_frame(vm, p, &index, depth, f > 1 ? p->frames[f - 2].function : EMBER_NONE,
                      EMBER_FRAME_OTHER);
    }
    vm_emit_frame(vm, p, &index, 0, EMBER_NONE, EMBER_FRAME_LAST);
}

/* What is on the stack; that is where the process waited. */
static inline void vm_uncover_naive(const struct vm *vm, struct vm_process *p,
                                    struct naive_stack *stack)
{
    uint32_t unknown = stack->entries[0].node;
    stack->count = stack->base = 0;
    for (uint32_t f = 0; f < p->frame_count; f++) {
        uint32_t function = p->frames[f].function;
        if (vm_is_shown(vm, stack, function) && !vm->untraced[function])
            naive_push(stack, naive_callee(stack, function), function, f);
    }
    struct naive_node *nodes = stack->run->nodes;
    nodes[naive_top(stack)].off_cpu_ticks += nodes[unknown].off_cpu_ticks;
    nodes[naive_top(stack)].waiting_ticks += nodes[unknown].waiting_ticks;
    nodes[unknown].off_cpu_ticks = nodes[unknown].waiting_ticks = 0;
}

static inline void vm_arrive(struct vm *vm, struct vm_process *p)
{
    p->arrives = false;
    if (!vm->exact || !vm_is_watched(p))
        return;
    vm_emit_stack(vm, p);
    p->left_from = EMBER_NONE;
    for (uint32_t i = 0; i < p->stack_count; i++)
        if (p->stacks[i].window && p->stacks[i].count &&
            p->stacks[i].entries[0].function == EMBER_UNKNOWN)
            vm_uncover_naive(vm, p, &p->stacks[i]);
}

/* An event that names a function, or none (EMBER_NONE). */
static inline void vm_emit_step(struct vm *vm, struct vm_process *p, enum ember_event_kind kind,
                                uint32_t function, int64_t depth)
{
    struct ember_event event = vm_event(vm, p, kind);
    if (function != EMBER_NONE) {
        vm_put_words(vm, p, VM_MFA_WORDS);
        event.stamp = ember_event_stamp(vm->now, vm_arity(function), kind);
        event.mfa = vm_mfa(function);
    }
    if (kind == EMBER_EVENT_OUT)
        event.stamp = ember_event_stamp(vm->now, (uint32_t)p->why_out, kind);
    vm_settle(vm, p, depth);
    if (kind == EMBER_EVENT_IN && p->arrives)
        vm_arrive(vm, p);
    vm_set_pointers(vm, p, &event, depth);
    vm_charge(vm, p, true);
    vm_leave_late(p);
    vm_send(vm, &event);
}

/* What the stack tells of the call on top. Where a function calls itself, that is not sure. */
static inline enum ember_marking vm_marking(const struct vm *vm, struct vm_process *p)
{
    bool self = p->frame_count > 1 && p->frames[p->frame_count - 2].function == vm_top(p)->function;
    if (self && vm->exact && !vm->compare)
        return EMBER_MARKED_MAYBE;
    return vm->exact && vm_is_marked(vm, vm_top(p)) ? EMBER_MARKED : EMBER_UNMARKED;
}

/* One event for each run that begins or ends here; the VM builds one tuple. A run whose
 * begin is lost is none. Returns how many are left. A run that ends may be gone already:
 * the recorder knows when it is told of losses. */
static inline uint32_t vm_emit_runs(struct vm *vm, struct vm_process *p, enum ember_event_kind kind,
                                    struct naive_run **runs, uint32_t count)
{
    uint64_t values[VM_MOST_STACKS];
    uint32_t left = 0;
    for (uint32_t i = 0; i < count; i++)
        values[i] = ember_run_value(runs[i]->id, runs[i]->capture);
    vm_put_words(vm, p, kind == EMBER_EVENT_BEGIN ? VM_TRACER_WORDS + VM_MFA_WORDS : VM_MFA_WORDS);
    vm_settle(vm, p, vm_depth(p));
    for (uint32_t i = 0; i < count; i++) {
        struct ember_event event = vm_event(vm, p, kind);
        if (kind == EMBER_EVENT_BEGIN)
            event.stamp |= (uint64_t)ember_begin_arity(p->traced, vm_marking(vm, p))
                           << EMBER_EVENT_ARITY_SHIFT;
        event.value = values[i];
        vm_set_pointers(vm, p, &event, vm_depth(p));
        vm_charge(vm, p, true);
        if (vm_send(vm, &event)) {
            runs[left++] = runs[i];
        } else if (kind == EMBER_EVENT_BEGIN) {
            vm->captures[runs[i]->capture].calls++;
            vm_end_naive(vm, runs[i]);
        }
    }
    return left;
}

/* ---- What a process does ------------------------------------------------- */

static inline void vm_work(struct vm *vm, struct vm_process *p, uint64_t ticks)
{
    if (!p->unclear)
        vm->now += ticks;
}

static inline void vm_allocate(struct vm *vm, struct vm_process *p, uint32_t words)
{
    if (p->unclear)
        return;
    bool on_heap = vm_put_words(vm, p, words);
    if (!vm_is_watched(p))
        return;
    p->new_words += words;
    p->new_heap_words += on_heap ? words : 0;
}

static inline bool vm_takes_part(const struct vm_process *p, uint32_t capture)
{
    for (uint32_t i = 0; i < p->stack_count; i++)
        if (p->stacks[i].run->capture == capture && !p->stacks[i].run->ended)
            return true;
    return false;
}

/* The traced call itself, seen by all stacks but the `begun` last. */
static inline void vm_traced_call(struct vm *vm, struct vm_process *p, bool traced, uint32_t begun)
{
    struct vm_frame *top = vm_top(p);
    if (vm->untraced[top->function] || !traced)
        return;
    p->traced = vm_is_watched(p);
    if (!p->traced)
        return;
    vm_emit_step(vm, p, EMBER_EVENT_CALL, top->function, vm_depth(p));
    if (!vm_is_marked(vm, top) && top->trace_frame_count < VM_MOST_TRACE_FRAMES) {
        top->trace_frames[top->trace_frame_count++] =
            (struct vm_trace_frame){.return_to = true, .session = vm->session};
        top->depth += vm->layout.return_to_words;
    }
    p->unclear = false;
    for (uint32_t i = 0; i + begun < p->stack_count; i++)
        if (vm_is_shown(vm, &p->stacks[i], top->function))
            naive_call(&p->stacks[i], top->function, p->frame_count - 1);
}

static inline struct naive_run *vm_new_run(struct vm *vm, uint32_t capture)
{
    struct naive_run *naive = calloc(1, sizeof *naive);
    naive->id = vm->next_run++ << 1;
    naive->capture = capture;
    naive->fold_recursion = vm->captures[capture].options.fold_recursion;
    naive->begin_ticks = vm->now;
    vm->runs[vm->run_count++] = naive;
    return naive;
}

static inline struct naive_stack *vm_join(struct vm_process *p, struct naive_run *naive)
{
    struct naive_stack *stack = &p->stacks[p->stack_count++];
    *stack = (struct naive_stack){.run = naive, .displaced = EMBER_NONE};
    p->displaced &= p->stack_count > 1;
    stack->root = naive_add_node(naive, EMBER_NONE, EMBER_NONE);
    return stack;
}

static inline void vm_start_stack(struct vm *vm, struct vm_process *p, struct naive_run *naive)
{
    struct naive_stack *stack = vm_join(p, naive);
    uint32_t function = vm_top(p)->function;
    if (vm->captures[naive->capture].options.hide_target)
        naive_push(stack, stack->root, EMBER_NONE, p->frame_count - 1);
    else
        naive_call(stack, function, p->frame_count - 1);
    stack->base = stack->count;
}

/* Where captures wait for the function on top, it is captured: in so many runs. */
static inline uint32_t vm_captured_call(struct vm *vm, struct vm_process *p)
{
    struct vm_frame *top = vm_top(p);
    struct naive_run *runs[VM_MOST_STACKS];
    struct vm_trace_frame frame = {.return_to = false};
    for (uint32_t i = 0; i < EMBER_MAX_CAPTURES; i++) {
        struct vm_capture *capture = &vm->captures[i];
        if (!capture->open || capture->target != top->function || capture->calls == 0 ||
            vm_takes_part(p, i) || p->stack_count + frame.run_count == VM_MOST_STACKS - 1)
            continue;
        capture->calls--;
        runs[frame.run_count++] = vm_new_run(vm, i);
    }
    if (frame.run_count == 0)
        return 0;
    frame.run_count = vm_emit_runs(vm, p, EMBER_EVENT_BEGIN, runs, frame.run_count);
    for (uint32_t i = 0; i < frame.run_count; i++)
        frame.runs[i] = runs[i]->id;
    if (!vm_is_watched(p))
        p->time = vm->now;
    top->trace_frames[top->trace_frame_count++] = frame;
    top->depth += vm->layout.begin_words;
    for (uint32_t i = 0; i < frame.run_count; i++)
        vm_start_stack(vm, p, runs[i]);
    p->block_told = false;
    vm_tell_block(vm, p);
    vm_put_words(vm, p, VM_TRACER_WORDS);
    p->new_tracer_words = true;
    p->traced = true;
    return frame.run_count;
}

static inline void vm_entered(struct vm *vm, struct vm_process *p)
{
    bool traced = p->traced;
    vm_top(p)->ran |= UINT64_C(1) << vm_top(p)->function;
    if (vm->layout.begin_before_call) {
        uint32_t begun = vm_captured_call(vm, p);
        vm_traced_call(vm, p, traced, begun);
    } else {
        vm_traced_call(vm, p, traced, 0);
        vm_captured_call(vm, p);
    }
}

/* The function on top, whose frame is of `size` words, calls another. */
static inline void vm_call_from(struct vm *vm, struct vm_process *p, uint32_t size,
                                uint32_t function)
{
    vm_top(p)->size = size;
    vm_top(p)->sized = true;
    vm_top(p)->left_silently = false;
    vm_push_frame(p, (struct vm_frame){.function = function, .depth = vm_depth(p) + 1});
    vm_entered(vm, p);
}

static inline void vm_call(struct vm *vm, struct vm_process *p, uint32_t function)
{
    vm_call_from(vm, p, 2, function);
}

static inline void vm_tail(struct vm *vm, struct vm_process *p, uint32_t function)
{
    vm_top(p)->size = 0;
    vm_top(p)->sized = false;
    vm_top(p)->function = function;
    vm_entered(vm, p);
}

static inline void vm_leave_frame(struct vm_process *p, uint32_t frame)
{
    for (uint32_t i = 0; i < p->stack_count; i++)
        naive_leave(&p->stacks[i], frame);
}

static inline void vm_leave_silently(struct vm_process *p, uint32_t frame)
{
    for (uint32_t i = 0; i < p->stack_count; i++)
        if (!p->stacks[i].window)
            naive_leave(&p->stacks[i], frame);
    p->left_from = frame < p->left_from ? frame : p->left_from;
    p->frames[frame - 1].left_silently = true;
}

static inline void vm_return_to(struct vm *vm, struct vm_process *p, uint32_t function,
                                int64_t depth)
{
    if (!vm_is_watched(p))
        return;
    vm_emit_step(vm, p, EMBER_EVENT_RETURN_TO, function, depth);
    p->unclear = false;
}

static inline bool vm_end_runs(struct vm *vm, struct vm_process *p, enum ember_event_kind kind,
                               const struct vm_trace_frame *frame)
{
    struct naive_run *runs[VM_MOST_STACKS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < frame->run_count; i++)
        for (uint32_t r = 0; r < vm->run_count; r++)
            if (vm->runs[r]->id == frame->runs[i])
                runs[count++] = vm->runs[r];
    for (uint32_t i = 0; i < vm->process_count; i++)
        if (vm->processes[i] != p)
            vm_charge(vm, vm->processes[i], false);
    for (uint32_t i = 0; i < count; i++)
        runs[i]->ended = true;
    if (count)
        vm_emit_runs(vm, p, kind, runs, count);
    return count > 0;
}

/* The trace frames of the frame on top go, the last first. */
static inline void vm_return(struct vm *vm, struct vm_process *p)
{
    struct vm_frame *top = vm_top(p);
    uint32_t caller = p->frames[p->frame_count - 2].function;
    bool silent = true;
    top->size = 0;
    while (top->trace_frame_count) {
        struct vm_trace_frame *frame = &top->trace_frames[--top->trace_frame_count];
        if (frame->return_to) {
            if (vm_is_mark(vm, frame)) {
                silent = false;
                vm_return_to(vm, p, caller, top->depth - 1);
            }
            top->depth -= vm->layout.return_to_words;
            if (!silent)
                vm_leave_frame(p, p->frame_count - 1);
        } else {
            silent &= !vm_end_runs(vm, p, EMBER_EVENT_RETURN, frame);
            top->depth -= vm->layout.begin_words;
        }
    }
    if (silent)
        vm_leave_silently(p, p->frame_count - 1);
    else
        vm_leave_frame(p, p->frame_count - 1);
    p->frame_count--;
}

/* Whether the recorder can tell from the name where the exception was caught. */
static inline bool vm_is_clear(const struct vm_process *p, uint32_t frame, uint32_t function)
{
    bool clear = true;
    for (uint32_t f = frame + 1; f < p->frame_count; f++)
        clear &= !(p->frames[f].ran >> function & 1);
    for (uint32_t s = 0; s < p->stack_count; s++) {
        const struct naive_stack *stack = &p->stacks[s];
        uint32_t i = stack->count;
        while (i > 0 && stack->entries[i - 1].frame > frame)
            i--;
        clear &= i > 0 && stack->entries[i - 1].function == function;
    }
    return clear;
}

/* An exception, caught in `frame`; some VMs do not tell. */
static inline void vm_throw(struct vm *vm, struct vm_process *p, uint32_t frame, bool told)
{
    int64_t raised_at = vm_depth(p);
    bool traced = false;
    for (uint32_t f = p->frame_count - 1; f > frame; f--) {
        for (uint32_t i = p->frames[f].trace_frame_count; i > 0; i--) {
            traced |= vm_is_mark(vm, &p->frames[f].trace_frames[i - 1]);
            if (!p->frames[f].trace_frames[i - 1].return_to)
                vm_end_runs(vm, p, EMBER_EVENT_RAISE, &p->frames[f].trace_frames[i - 1]);
        }
    }
    uint32_t function = p->frames[frame].function;
    bool clear = vm->compare && told && traced && !p->unclear && vm_is_clear(p, frame, function);
    if (told && traced)
        vm_return_to(vm, p, function, raised_at);
    vm_charge(vm, p, true);
    vm_leave_frame(p, frame + 1);
    p->frames[frame].left_silently = !vm_is_marked(vm, &p->frames[frame + 1]);
    p->frame_count = frame + 1;
    p->unclear = !clear && vm_is_watched(p);
}

/* For each reason in turn. */
static inline void vm_out(struct vm *vm, struct vm_process *p)
{
    p->why_out = (p->why_out + 1) % 3;
    p->block_told = false;
    if (vm_is_watched(p))
        vm_emit_step(vm, p, EMBER_EVENT_OUT, vm_top(p)->function, vm_depth(p));
    p->out = true;
}

static inline void vm_in(struct vm *vm, struct vm_process *p)
{
    p->block_told = false;
    if (vm_is_watched(p))
        vm_emit_step(vm, p, EMBER_EVENT_IN, vm_top(p)->function, vm_depth(p));
    p->out = false;
    p->traced = vm_is_watched(p);
}

/* What was allocated in a block before it was left. */
static inline void vm_charge_left(struct vm_process *p)
{
    for (uint32_t i = 0; p->displaced && i < p->stack_count; i++)
        if (p->stacks[i].displaced != EMBER_NONE)
            p->stacks[i].run->nodes[p->stacks[i].displaced].words += p->left_words;
    p->displaced = false;
}

static inline void vm_emit_gc(struct vm *vm, struct vm_process *p, enum ember_event_kind kind)
{
    if (!vm_is_watched(p))
        return;
    p->block_told = false;
    vm_settle(vm, p, vm_depth(p));
    struct ember_event event = vm_event(vm, p, kind);
    vm_set_pointers(vm, p, &event, vm_depth(p));
    event.heap_words = p->displaced ? p->left_used : p->hp - p->start;
    event.fragment_words = p->fragments;
    if (!vm->exact)
        event.hp = event.sp = 0;
    vm_charge(vm, p, !p->collecting);
    vm_charge_left(p);
    vm_send(vm, &event);
}

/* A collection, after which `live` words are left at another place. */
static inline void vm_collect(struct vm *vm, struct vm_process *p, uint64_t ticks, uint32_t start,
                              uint32_t words, uint32_t live)
{
    vm_emit_gc(vm, p, EMBER_EVENT_GC_START);
    p->collecting = true;
    vm_work(vm, p, ticks);
    vm_place_block(p, start, words);
    p->hp += live;
    p->fragments = 0;
    vm_emit_gc(vm, p, EMBER_EVENT_GC_END);
    p->collecting = false;
}

/* The VM puts a collection off: a small block, the stack copied to it. How far
 * the heap top had moved in the old block shows at the collection; that of a small
 * block that is left is a fragment from now on. */
static inline void vm_displace(struct vm_process *p, uint32_t start, uint32_t room)
{
    if (p->displaced) {
        p->fragments += p->hp - p->start;
    } else {
        p->displaced = vm_is_watched(p);
        p->left_used = p->hp - p->start;
        p->left_words = p->new_heap_words;
        p->new_words -= p->new_heap_words;
        for (uint32_t i = 0; i < p->stack_count; i++)
            p->stacks[i].displaced = naive_top(&p->stacks[i]);
    }
    p->new_heap_words = 0;
    p->new_block = true;
    vm_place_block(p, start, room);
}

static inline struct vm_process *vm_spawn(struct vm *vm, struct vm_process *p, uint64_t pid)
{
    struct vm_process *child = vm_new_process(vm, pid);
    struct ember_event event = vm_event(vm, p, EMBER_EVENT_SPAWN);
    event.value = child->pid;
    child->out = true;
    if (!vm_is_watched(p))
        return child;
    vm_put_words(vm, p, VM_MFA_WORDS);
    p->new_tracer_words = true;
    vm_charge(vm, p, false);
    vm_send(vm, &event);
    for (uint32_t i = p->stack_count; i > 0; i--)
        if (vm->captures[p->stacks[i - 1].run->capture].options.spawned)
            vm_join(child, p->stacks[i - 1].run);
    return child;
}

static inline void vm_unwind(struct vm_process *p)
{
    p->frame_count = 1;
    p->frames[0] = (struct vm_frame){.function = VM_SOMEBODY, .depth = 17};
}

/* The runs that the process began end with it. */
static inline void vm_exit(struct vm *vm, struct vm_process *p)
{
    struct ember_event event = vm_event(vm, p, EMBER_EVENT_EXIT);
    for (uint32_t i = 0; i < vm->process_count; i++)
        vm_charge(vm, vm->processes[i], false);
    if (vm_is_watched(p))
        vm_send(vm, &event);
    for (uint32_t i = 0; i < p->stack_count; i++)
        p->stacks[i].run->ended |= p->stacks[i].base > 0;
    while (p->stack_count)
        free(p->stacks[--p->stack_count].entries);
    p->traced = false;
    vm_unwind(p);
}

static inline void vm_enter_naive(struct vm_process *p, struct naive_run *naive)
{
    struct naive_stack *stack = vm_join(p, naive);
    stack->window = true;
    naive_push(stack, naive_child(naive, stack->root, EMBER_UNKNOWN), EMBER_UNKNOWN, 0);
    stack->base = stack->count;
}

/* All processes, none of which runs; they do again soon. */
static inline void vm_open_window(struct vm *vm, uint32_t slot, const struct ember_capture *options)
{
    struct ember_window_process seen[VM_MOST_PROCESSES];
    struct ember_window window = {.processes = seen, .count = 0};
    vm->captures[slot] = (struct vm_capture){true, EMBER_NONE, 0, *options};
    struct naive_run *naive = vm_new_run(vm, slot);
    window.run = ember_run_value(naive->id, naive->capture);
    for (uint32_t i = 0; i < vm->process_count; i++) {
        struct vm_process *p = vm->processes[i];
        enum ember_activity activity = p->why_out == EMBER_OUT_WAITING ? EMBER_IDLE : EMBER_READY;
        seen[window.count++] = (struct ember_window_process){.pid = p->pid, .activity = activity};
        vm_charge(vm, p, !vm_is_watched(p));
        p->out = true;
    }
    ember_recorder_open_window(&vm->recorder, slot, options, &window, vm->now);
    for (uint32_t i = 0; i < vm->process_count; i++) {
        struct vm_process *p = vm->processes[i];
        p->arrives = true;
        vm_enter_naive(p, naive);
    }
}

/* What was pushed until now is of another session, where the VM has several. */
static inline void vm_new_session(struct vm *vm)
{
    vm->session += vm->layout.begin_before_call;
}

static inline void vm_close(struct vm *vm, uint32_t slot)
{
    for (uint32_t i = 0; i < vm->process_count; i++)
        vm_charge(vm, vm->processes[i], false);
    ember_recorder_close(&vm->recorder, slot, vm->now);
    vm->captures[slot].open = false;
}

/* ---- Looking at the last finished run ------------------------------------ */

/* The node behind functions called one by the other. */
static inline struct naive_node vm_node(const struct vm *vm, uint32_t process, const uint32_t *path,
                                        uint32_t length)
{
    const struct ember_run *run = vm->finished;
    uint32_t at = run->processes[process].root;
    for (uint32_t i = 0; i < length; i++) {
        uint32_t next = EMBER_NONE;
        for (uint32_t n = 0; n < run->tree.count; n++)
            if (run->tree.nodes[n].parent == at &&
                vm_function_of(&vm->recorder, run->tree.nodes[n].function) == path[i])
                next = n;
        cr_assert_neq(next, EMBER_NONE, "no function %u at depth %u", path[i], i + 1);
        at = next;
    }
    return vm_node_at(vm, run, at);
}

#define VM_NODE(vm, process, ...) \
    vm_node(vm, process, (const uint32_t[]){__VA_ARGS__}, \
            sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

#endif
