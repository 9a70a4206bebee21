/* SPDX-License-Identifier: Apache-2.0
 *
 * The processed format of the Firefox Profiler, in version 56: its loader brings it up
 * to date. A process is a thread, a stack's time one sample with an exact weight, laid
 * out one after the other; words are native allocations, in bytes.
 *
 * Frames of a thread: the process, the pseudo-frames, then its functions. A stack
 * that has time in collections, waiting or preempted, or callees left out, has a stack
 * below it for each of these.
 */
#include "json.h"
#include "outline.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROCESSES = 500, WORD_BYTES = 8 };

enum { PSEUDO_FRAMES = EMBER_PSEUDO_FRAMES, FIRST_FUNCTION = 1 + PSEUDO_FRAMES };

/* Categories, by index; the first has to be grey. */
enum { OTHER, ERLANG, COLLECTION, WAITING, PREEMPTED, OFF_CPU };
static const struct {
    const char *name;
    const char *colour;
} categories[] = {
    [OTHER] = {"Other", "grey"},
    [ERLANG] = {"Erlang", "green"},
    [COLLECTION] = {"Garbage collection", "orange"},
    [WAITING] = {"Waiting", "blue"},
    [PREEMPTED] = {"Preempted", "purple"},
    [OFF_CPU] = {"Off CPU", "lightblue"},
};
static const int pseudo_categories[EMBER_PSEUDO_FRAMES] = {
    [EMBER_PSEUDO_GC] = COLLECTION,       [EMBER_PSEUDO_WAITING] = WAITING,
    [EMBER_PSEUDO_PREEMPTED] = PREEMPTED, [EMBER_PSEUDO_OFF_CPU] = OFF_CPU,
    [EMBER_PSEUDO_PRUNED] = OTHER,
};

struct file {
    struct ember_outline outline;
    struct ember_names names;
    struct ember_names modules;
    struct ember_sink *sink;
    struct ember_sink text;
    enum ember_metric metric;
    uint32_t *frame_of; /* of each name, in the thread that is written; 0: none */
    uint32_t *used;     /* names in the order of their frames */
    uint32_t *stack_of; /* of each row, in its thread */
    uint32_t processes;
};

struct thread {
    uint32_t first; /* row */
    uint32_t end;
    uint32_t process;
    uint32_t frames;
    uint32_t stacks;
};

/* ---- Columns ------------------------------------------------------------- */

static void begin_column(struct file *file, const char *name)
{
    ember_sink_text(file->sink, "\"");
    ember_sink_text(file->sink, name);
    ember_sink_text(file->sink, "\":[");
}

static void write_item(struct file *file, bool first, uint32_t value)
{
    if (!first)
        ember_sink_text(file->sink, ",");
    if (value == EMBER_NONE)
        ember_sink_text(file->sink, "null");
    else
        ember_sink_unsigned(file->sink, value);
}

static void write_same(struct file *file, const char *name, uint32_t count, const char *value)
{
    begin_column(file, name);
    for (uint32_t i = 0; i < count; i++) {
        ember_sink_text(file->sink, i > 0 ? "," : "");
        ember_sink_text(file->sink, value);
    }
    ember_sink_text(file->sink, "],\n");
}

static void end_column(struct file *file)
{
    ember_sink_text(file->sink, "],\n");
}

/* Nanoseconds as milliseconds, exactly. */
static void write_ms(struct ember_sink *sink, uint64_t ns)
{
    uint64_t rest = ns % 1000000;
    ember_sink_unsigned(sink, ns / 1000000);
    if (rest == 0)
        return;
    char digits[8] = ".";
    for (int i = 6; i > 0; i--, rest /= 10)
        digits[i] = (char)('0' + rest % 10);
    int size = 7;
    while (digits[size - 1] == '0')
        size--;
    ember_sink_bytes(sink, digits, (size_t)size);
}

/* ---- Strings: pseudo-frames, processes, functions, modules --------------- */

static void write_strings(struct file *file)
{
    const struct ember_profile *profile = file->outline.profile;
    ember_sink_text(file->sink, "\"shared\":{\"stringArray\":[\n");
    for (uint32_t i = 0; i < PSEUDO_FRAMES; i++) {
        ember_sink_text(file->sink, i > 0 ? ",\n" : "");
        ember_json_string(file->sink, ember_pseudo_frames[i]);
    }
    for (uint32_t row = 0; row < file->outline.count; row++) {
        if (file->outline.rows[row].depth > 0)
            continue;
        ember_sink_text(file->sink, ",\n");
        ember_json_string(file->sink, ember_outline_title(&file->outline, row, &file->text));
        file->processes++;
    }
    for (uint32_t i = 0; i < file->names.count; i++) {
        ember_sink_text(file->sink, ",\n");
        ember_json_string(file->sink, profile->functions[file->names.function[i]].text);
    }
    for (uint32_t i = 0; i < file->modules.count; i++) {
        ember_sink_text(file->sink, ",\n");
        ember_json_string(file->sink, profile->functions[file->modules.function[i]].module);
    }
    ember_sink_text(file->sink, "]},\n");
}

/* Frames are as many as functions: what they and their files are called. */
static uint32_t name_of_frame(const struct file *file, const struct thread *thread, uint32_t frame)
{
    if (frame == 0)
        return PSEUDO_FRAMES + thread->process;
    if (frame < FIRST_FUNCTION)
        return frame - 1;
    return PSEUDO_FRAMES + file->processes + file->used[frame - FIRST_FUNCTION];
}

static uint32_t file_of_frame(const struct file *file, uint32_t frame)
{
    if (frame < FIRST_FUNCTION)
        return EMBER_NONE;
    uint32_t function = file->names.function[file->used[frame - FIRST_FUNCTION]];
    return PSEUDO_FRAMES + file->processes + file->names.count + file->modules.id[function];
}

static void write_frame_table(struct file *file, const struct thread *thread)
{
    uint32_t count = thread->frames;
    ember_sink_text(file->sink, "\"frameTable\":{");
    write_same(file, "address", count, "-1");
    write_same(file, "inlineDepth", count, "0");
    begin_column(file, "category");
    for (uint32_t i = 0; i < count; i++) {
        bool pseudo = i > 0 && i < FIRST_FUNCTION;
        write_item(file, i == 0, pseudo ? (uint32_t)pseudo_categories[i - 1] : ERLANG);
    }
    end_column(file);
    write_same(file, "subcategory", count, "0");
    begin_column(file, "func");
    for (uint32_t i = 0; i < count; i++)
        write_item(file, i == 0, i);
    end_column(file);
    write_same(file, "nativeSymbol", count, "null");
    write_same(file, "innerWindowID", count, "null");
    write_same(file, "line", count, "null");
    write_same(file, "column", count, "null");
    ember_sink_printf(file->sink, "\"length\":%" PRIu32 "},\n", count);
}

static void write_func_table(struct file *file, const struct thread *thread)
{
    uint32_t count = thread->frames;
    ember_sink_text(file->sink, "\"funcTable\":{");
    begin_column(file, "name");
    for (uint32_t i = 0; i < count; i++)
        write_item(file, i == 0, name_of_frame(file, thread, i));
    end_column(file);
    write_same(file, "isJS", count, "false");
    write_same(file, "relevantForJS", count, "false");
    write_same(file, "resource", count, "-1");
    begin_column(file, "fileName");
    for (uint32_t i = 0; i < count; i++)
        write_item(file, i == 0, file_of_frame(file, i));
    end_column(file);
    write_same(file, "lineNumber", count, "null");
    write_same(file, "columnNumber", count, "null");
    ember_sink_printf(file->sink, "\"length\":%" PRIu32 "},\n", count);
}

/* ---- Stacks -------------------------------------------------------------- */

static bool has_pseudo(const struct file *file, uint32_t row, unsigned pseudo)
{
    struct ember_slice slices[EMBER_MAX_SLICES];
    unsigned count = ember_outline_slices(&file->outline, row, EMBER_METRIC_OWN_TIME, slices);
    if (pseudo == EMBER_PSEUDO_PRUNED)
        return file->outline.rows[row].pruned_stacks > 0;
    for (unsigned i = 0; i < count; i++)
        if (slices[i].frame == ember_pseudo_frames[pseudo])
            return true;
    return false;
}

/* The stack of a row, or of a pseudo-frame below it. */
static uint32_t stack_of(const struct file *file, uint32_t row, const char *pseudo)
{
    uint32_t stack = file->stack_of[row];
    for (unsigned i = 0; pseudo && i < PSEUDO_FRAMES; i++) {
        stack += has_pseudo(file, row, i);
        if (strcmp(ember_pseudo_frames[i], pseudo) == 0)
            break;
    }
    return stack;
}

static uint32_t name_id(const struct file *file, uint32_t row)
{
    return file->names.id[file->outline.profile->nodes[file->outline.rows[row].node].function];
}

/* Numbers the thread's stacks and frames. */
static struct thread begin_thread(struct file *file, uint32_t first, uint32_t process)
{
    struct thread thread = {
        .first = first,
        .end = first + ember_outline_extent(&file->outline, first),
        .process = process,
        .frames = FIRST_FUNCTION,
    };
    for (uint32_t row = first; row < thread.end; row++) {
        file->stack_of[row] = thread.stacks++;
        for (unsigned i = 0; i < PSEUDO_FRAMES; i++)
            thread.stacks += has_pseudo(file, row, i);
        if (row == first)
            continue;
        uint32_t name = name_id(file, row);
        if (file->frame_of[name] == 0) {
            file->used[thread.frames - FIRST_FUNCTION] = name;
            file->frame_of[name] = thread.frames++;
        }
    }
    return thread;
}

static void end_thread(struct file *file, const struct thread *thread)
{
    for (uint32_t i = FIRST_FUNCTION; i < thread->frames; i++)
        file->frame_of[file->used[i - FIRST_FUNCTION]] = 0;
}

static void write_stack_table(struct file *file, const struct thread *thread)
{
    ember_sink_text(file->sink, "\"stackTable\":{");
    begin_column(file, "frame");
    for (uint32_t row = thread->first; row < thread->end; row++) {
        bool process = row == thread->first;
        write_item(file, process, process ? 0 : file->frame_of[name_id(file, row)]);
        for (unsigned i = 0; i < PSEUDO_FRAMES; i++)
            if (has_pseudo(file, row, i))
                write_item(file, false, i + 1);
    }
    end_column(file);
    begin_column(file, "prefix");
    for (uint32_t row = thread->first; row < thread->end; row++) {
        bool process = row == thread->first;
        write_item(file, process,
                   process ? EMBER_NONE : file->stack_of[file->outline.rows[row].parent]);
        for (unsigned i = 0; i < PSEUDO_FRAMES; i++)
            if (has_pseudo(file, row, i))
                write_item(file, false, file->stack_of[row]);
    }
    end_column(file);
    ember_sink_printf(file->sink, "\"length\":%" PRIu32 "},\n", thread->stacks);
}

/* ---- Samples ------------------------------------------------------------- */

enum column { STACKS, TIMES, WEIGHTS };

static void write_value(struct file *file, enum column column, enum ember_metric metric,
                        uint32_t stack, uint64_t start, uint64_t value)
{
    if (column == STACKS)
        ember_sink_unsigned(file->sink, stack);
    else if (column == TIMES)
        write_ms(file->sink, start);
    else if (metric == EMBER_METRIC_OWN_TIME)
        write_ms(file->sink, value);
    else
        ember_sink_unsigned(file->sink,
                            value * (metric == EMBER_METRIC_WORDS ? (uint64_t)WORD_BYTES : 1));
}

static uint64_t sum_of(const struct ember_slice *slices, unsigned count)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < count; i++)
        sum += slices[i].value;
    return sum;
}

/* One column of the values of a metric. Whatever it is, a row begins when those before
 * it have had what the samples show of them. */
static uint32_t write_values(struct file *file, const struct thread *thread, const char *name,
                             enum column column, enum ember_metric metric)
{
    uint32_t length = 0;
    uint64_t start = 0;
    begin_column(file, name);
    for (uint32_t row = thread->first; row < thread->end; row++) {
        struct ember_slice slices[EMBER_MAX_SLICES];
        unsigned count = ember_outline_slices(&file->outline, row, metric, slices);
        for (unsigned i = 0; i < count; i++) {
            uint64_t before = metric == file->metric ? sum_of(slices, i) : 0;
            ember_sink_text(file->sink, length++ > 0 ? "," : "");
            write_value(file, column, metric, stack_of(file, row, slices[i].frame), start + before,
                        slices[i].value);
        }
        count = ember_outline_slices(&file->outline, row, file->metric, slices);
        start += sum_of(slices, count);
    }
    end_column(file);
    return length;
}

static void write_samples(struct file *file, const struct thread *thread, const char *table,
                          enum ember_metric metric)
{
    static const char *const types[] = {
        [EMBER_METRIC_OWN_TIME] = "tracing-ms",
        [EMBER_METRIC_WORDS] = "bytes",
        [EMBER_METRIC_CALLS] = "samples",
        [EMBER_METRIC_BINARIES] = "bytes",
    };
    ember_sink_printf(file->sink, "\"%s\":{", table);
    write_values(file, thread, "stack", STACKS, metric);
    write_values(file, thread, "time", TIMES, metric);
    uint32_t length = write_values(file, thread, "weight", WEIGHTS, metric);
    ember_sink_printf(file->sink, "\"weightType\":\"%s\",\"length\":%" PRIu32 "},\n", types[metric],
                      length);
}

/* ---- Threads ------------------------------------------------------------- */

static void write_pid(struct file *file, const struct thread *thread)
{
    const struct ember_profile *profile = file->outline.profile;
    uint32_t node = file->outline.rows[thread->first].node;
    ember_json_string_field(
        file->sink, "pid",
        node == EMBER_NONE ? "others" : profile->processes[profile->nodes[node].process].pid_text);
}

static void write_thread(struct file *file, const struct thread *thread)
{
    struct ember_sink *sink = file->sink;
    const char *title = ember_outline_title(&file->outline, thread->first, &file->text);
    ember_sink_text(sink, thread->process > 0 ? ",\n{" : "{");
    ember_json_string_field(sink, "name", title);
    ember_json_string_field(sink, "processName", title);
    write_pid(file, thread);
    ember_sink_printf(sink, "\"tid\":%" PRIu32 ",", thread->process + 1);
    ember_sink_text(sink, "\"processType\":\"default\",\"isMainThread\":true,"
                          "\"processStartupTime\":0,\"processShutdownTime\":null,"
                          "\"registerTime\":0,\"unregisterTime\":null,\"pausedRanges\":[],\n");
    write_samples(file, thread, "samples", file->metric);
    write_samples(file, thread, "nativeAllocations", EMBER_METRIC_WORDS);
    write_stack_table(file, thread);
    write_frame_table(file, thread);
    write_func_table(file, thread);
    ember_sink_text(sink, "\"markers\":{\"data\":[],\"name\":[],\"startTime\":[],\"endTime\":[],"
                          "\"phase\":[],\"category\":[],\"length\":0},\n"
                          "\"resourceTable\":{\"lib\":[],\"name\":[],\"host\":[],\"type\":[],"
                          "\"length\":0},\n"
                          "\"nativeSymbols\":{\"libIndex\":[],\"address\":[],\"name\":[],"
                          "\"functionSize\":[],\"length\":0}}");
}

static void write_threads(struct file *file)
{
    uint32_t process = 0;
    ember_sink_text(file->sink, "\"threads\":[\n");
    for (uint32_t row = 0; row < file->outline.count;) {
        struct thread thread = begin_thread(file, row, process++);
        write_thread(file, &thread);
        end_thread(file, &thread);
        row = thread.end;
    }
    ember_sink_text(file->sink, "]}\n");
}

/* ---- File ---------------------------------------------------------------- */

static void write_extra(struct file *file)
{
    struct ember_sink *sink = file->sink;
    const struct ember_profile *profile = file->outline.profile;
    ember_sink_text(sink, "\"extra\":[{\"label\":\"emberl\",\"entries\":[\n"
                          "{\"label\":\"Profiled\",\"format\":\"string\",\"value\":");
    ember_json_string(sink, ember_view_heading(profile, &file->text));
    ember_sink_text(sink, "},\n{\"label\":\"Layout\",\"format\":\"string\",\"value\":"
                          "\"Stacks one after the other: sums, not when they ran\"}");
    const char *caveats = ember_view_caveats(profile, &file->outline, &file->text);
    if (caveats[0]) {
        ember_sink_text(sink, ",\n{\"label\":\"Mind\",\"format\":\"string\",\"value\":");
        ember_json_string(sink, caveats);
        ember_sink_text(sink, "}");
    }
    ember_sink_text(sink, "]}],\n");
}

static void write_meta(struct file *file)
{
    struct ember_sink *sink = file->sink;
    const struct ember_info *info = &file->outline.profile->info;
    ember_sink_text(sink, "{\"meta\":{\"interval\":1,\"startTime\":");
    write_ms(sink, info->start_us > 0 ? (uint64_t)info->start_us * 1000 : 0);
    ember_sink_text(sink, ",\"processType\":0,");
    ember_json_string_field(sink, "product", info->target ? info->target : "emberl");
    ember_sink_text(sink, "\"stackwalk\":1,\"version\":30,\"preprocessedProfileVersion\":56,"
                          "\"symbolicated\":true,\"symbolicationNotSupported\":true,"
                          "\"importedFrom\":\"emberl\",\"markerSchema\":[],\n"
                          "\"sampleUnits\":{\"time\":\"ms\",\"eventDelay\":\"ms\","
                          "\"threadCPUDelta\":\"ns\"},\n");
    write_extra(file);
    ember_sink_text(sink, "\"categories\":[");
    for (size_t i = 0; i < sizeof categories / sizeof categories[0]; i++)
        ember_sink_printf(sink,
                          "%s{\"name\":\"%s\",\"color\":\"%s\",\"subcategories\":[\"Other\"]}",
                          i > 0 ? "," : "", categories[i].name, categories[i].colour);
    ember_sink_text(sink, "]},\n\"libs\":[],\"pages\":[],\n");
}

static bool open_file(struct file *file, const struct ember_profile *profile)
{
    struct ember_outline_limits limits = ember_outline_unlimited;
    limits.processes = MAX_PROCESSES;
    if (!ember_outline_init(&file->outline, profile, &limits) ||
        !ember_names_init(&file->names, &file->outline, EMBER_NAMING_TEXT) ||
        !ember_names_init(&file->modules, &file->outline, EMBER_NAMING_MODULE))
        return false;
    file->frame_of = calloc((size_t)file->names.count + 1, sizeof file->frame_of[0]);
    file->used = calloc((size_t)file->names.count + 1, sizeof file->used[0]);
    file->stack_of = calloc((size_t)file->outline.count + 1, sizeof file->stack_of[0]);
    return file->frame_of && file->used && file->stack_of;
}

static void write_view(const struct ember_profile *profile,
                       const struct ember_view_options *options, struct ember_sink *sink)
{
    struct file file = {.sink = sink, .metric = options->metric};
    if (open_file(&file, profile)) {
        write_meta(&file);
        write_strings(&file);
        write_threads(&file);
    } else {
        sink->failed = true;
    }
    sink->failed |= file.text.failed;
    free(file.frame_of);
    free(file.used);
    free(file.stack_of);
    ember_names_fini(&file.names);
    ember_names_fini(&file.modules);
    ember_outline_fini(&file.outline);
    ember_sink_fini(&file.text);
}

const struct ember_view ember_view_firefox = {
    .name = "firefox",
    .extension = "firefox.json",
    .write = write_view,
};
