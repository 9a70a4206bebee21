/* SPDX-License-Identifier: Apache-2.0
 *
 * The recorder takes any events without harm, and whatever they say, the times
 * of a run add up to its length, its tree is one, and so does its timeline.
 *
 * An input is a byte of options and events of 16 bytes: kind, process, ticks
 * since the last event, function, arity, 3 bytes unused, and two words of
 * which the meaning is the kind's. Every 64th event captures are opened, closed
 * and their memory checked.
 */
#include "../c/timeline_sums.h"
#include "recorder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVENT_BYTES = 16, PROCESSES = 7, FUNCTIONS = 16, CAPTURES = 4, CHECK_EVERY = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct fuzz {
    struct ember_recorder recorder;
    uint64_t ticks;
    uint64_t lost;
    bool open[CAPTURES];
    bool held_up; /* some time is in no metric */
};

static void check(bool held, const char *what)
{
    if (held)
        return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static uint64_t ticks_of(const struct ember_call_tree *tree, uint32_t process)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < tree->count; i++)
        if (tree->nodes[i].process == process)
            sum += tree->nodes[i].own_ticks + tree->rare[i].off_cpu_ticks + tree->rare[i].gc_ticks;
    return sum;
}

static void check_tree(const struct ember_run *run, const struct ember_function_table *functions)
{
    const struct ember_call_tree *tree = &run->tree;
    for (uint32_t i = 0; i < tree->count; i++) {
        const struct ember_tree_node *node = &tree->nodes[i];
        bool root = node->parent == EMBER_NONE;
        check(root || node->parent < i, "a node stands before its parent");
        check(root == (node->function == EMBER_NONE), "a root has a function, or a node none");
        check(root || node->function < functions->count || node->function >= EMBER_UNKNOWN,
              "a function is unknown");
        check(node->process < run->process_count, "a process is unknown");
        check(root || tree->nodes[node->parent].process == node->process, "stacks are mixed up");
        check(node->depth == (root ? 0 : tree->nodes[node->parent].depth + 1), "a depth is wrong");
    }
}

static size_t on_run(void *context, struct ember_run *run, const struct ember_capture *capture,
                     const struct ember_function_table *functions)
{
    const struct fuzz *fuzz = context;
    check(capture->memory_limit > 0, "the capture is not the run's");
    check(run->tracks == NULL && run->track_bytes == 0, "stacks are left over");
    check(run->process_count > 0 && run->processes[0].root == 0, "nobody has begun the run");
    check_tree(run, functions);
    check(!run->recording.budget || !timeline_fault(run), "a timeline does not add up");
    uint64_t length = run->id == 0 ? run->duration_ticks : run->end_ticks - run->begin_ticks;
    uint64_t first = ticks_of(&run->tree, 0);
    bool shorter = fuzz->held_up || (run->window && run->processes[0].exited);
    check(run->id == 0 || first == length || (shorter && first < length),
          "the first process's time does not add up");
    for (uint32_t i = 1; i < run->process_count; i++)
        check(ticks_of(&run->tree, i) <= length, "a process took longer than the run");
    ember_run_destroy(run);
    return 0;
}

static void on_merged(void *context, const struct ember_run *run)
{
    (void)context;
    (void)run;
}

static void on_limit(void *context, uint32_t capture)
{
    ((struct fuzz *)context)->open[capture] = false;
}

static uint64_t lost(void *context)
{
    return ((struct fuzz *)context)->lost++;
}

/* Some have, and are told to have later. */
static bool ended(void *context, uint64_t run)
{
    return (((struct fuzz *)context)->lost + ember_run_of(run)) % 5 == 0;
}

static struct ember_mfa mfa_of(uint8_t function)
{
    uint32_t number = function % FUNCTIONS;
    return (struct ember_mfa){number / 4 + 1, number + 100};
}

/* Half of the functions' modules, for captures that show some only. */
static uint32_t *some_modules(void)
{
    uint32_t *modules = malloc(2 * sizeof *modules);
    modules[0] = 1;
    modules[1] = 3;
    return modules;
}

/* Of the first processes, that do different things. */
static void open_window(struct fuzz *fuzz, uint32_t slot, const struct ember_capture *capture)
{
    struct ember_function_key frames[] = {{mfa_of(1), 1}, {mfa_of(5), 2}};
    struct ember_window_process processes[] = {
        {.pid = 1, .activity = EMBER_ACTIVE},
        {.pid = 2, .activity = EMBER_READY, .frames = 1, .frame_count = 1},
        {.pid = 3, .activity = EMBER_IDLE, .complete = true, .frame_count = 2}};
    struct ember_window window = {.run = ember_run_value(1000 + slot, slot),
                                  .processes = processes,
                                  .count = 1 + slot % 3,
                                  .frames = frames};
    ember_recorder_open_window(&fuzz->recorder, slot, capture, &window, fuzz->ticks);
    fuzz->open[slot] = true;
}

static void open_capture(struct fuzz *fuzz, uint32_t slot, uint8_t options)
{
    struct ember_capture capture = {
        .target = mfa_of((uint8_t)slot),
        .hide_target = options & 1,
        .fold_recursion = options & 2,
        .spawned = !(options & 4),
        .memory_limit = options & 8 ? 30000 : SIZE_MAX,
        .merge = options & 32,
        .timeline = options & 64,
    };
    if (options & 16) {
        capture.modules = some_modules();
        capture.module_count = 2;
    }
    if (options & 128) {
        open_window(fuzz, slot, &capture);
        return;
    }
    ember_recorder_open(&fuzz->recorder, slot, &capture);
    fuzz->open[slot] = true;
}

static void change_captures(struct fuzz *fuzz, uint8_t choice)
{
    uint32_t slot = choice % CAPTURES;
    ember_recorder_check_ends(&fuzz->recorder);
    ember_recorder_check_memory(&fuzz->recorder);
    if (fuzz->open[slot])
        ember_recorder_close(&fuzz->recorder, slot, fuzz->ticks);
    open_capture(fuzz, slot, choice);
}

static struct ember_event read_event(struct fuzz *fuzz, const uint8_t *bytes)
{
    uint32_t words[2];
    enum ember_event_kind kind = bytes[0] % EMBER_EVENT_KINDS;
    memcpy(words, bytes + 8, sizeof words);
    fuzz->ticks += bytes[2];
    fuzz->held_up |= kind == EMBER_EVENT_HELD_UP;
    struct ember_event event = {.stamp = ember_event_stamp(fuzz->ticks, bytes[4], kind),
                                .pid = bytes[1] % PROCESSES + 1};
    switch (kind) {
    case EMBER_EVENT_SPAWN:
        event.value = bytes[3] % PROCESSES + 1;
        break;
    case EMBER_EVENT_BEGIN:
    case EMBER_EVENT_RETURN:
    case EMBER_EVENT_RAISE:
        event.value = ember_run_value(bytes[3] % 32, bytes[4] % CAPTURES);
        break;
    case EMBER_EVENT_HELD_UP:
        event.value = words[0];
        fuzz->held_up |= words[0] > 0;
        return event;
    case EMBER_EVENT_GAP:
        event.least = (int32_t)(words[0] >> bytes[3] % 32);
        event.open = bytes[3] & 32 ? EMBER_ANY_DEPTH : (int32_t)(words[1] >> bytes[3] % 32);
        event.hp = bytes[3] & 64 ? words[1] % 4 : 0;
        fuzz->held_up |= event.hp > 0;
        return event;
    case EMBER_EVENT_HEAP:
        event.heap_start = words[0];
        event.stack_base = words[1];
        return event;
    case EMBER_EVENT_FRAGMENTS:
        event.value = words[0];
        return event;
    case EMBER_EVENT_FRAME:
        if (bytes[3] > 64)
            event.mfa = mfa_of(bytes[3]);
        event.hp = words[0] % 4;
        event.sp = words[1];
        return event;
    default:
        if (bytes[3] > 0)
            event.mfa = mfa_of(bytes[3]);
        break;
    }
    event.hp = words[0];
    event.sp = words[1];
    return event;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct ember_stack_layout layouts[] = {{1, 3, 1, false}, {2, 4, 1, true}};
    struct fuzz fuzz = {.ticks = 0};
    struct ember_outlet outlet = {&fuzz, on_run, on_merged, on_limit, lost, ended};
    if (size == 0)
        return 0;
    check(ember_recorder_init(&fuzz.recorder, &outlet, &layouts[data[0] & 1]), "no memory");
    for (uint32_t slot = 0; slot < CAPTURES; slot++)
        open_capture(&fuzz, slot, (uint8_t)(data[0] >> slot));
    for (size_t i = 0; (i + 1) * EVENT_BYTES < size; i++) {
        struct ember_event event = read_event(&fuzz, data + 1 + i * EVENT_BYTES);
        ember_recorder_event(&fuzz.recorder, &event);
        if (i % CHECK_EVERY == CHECK_EVERY - 1)
            change_captures(&fuzz, data[1 + i * EVENT_BYTES + 5]);
    }
    ember_recorder_fini(&fuzz.recorder);
    return 0;
}
