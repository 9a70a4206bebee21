/* SPDX-License-Identifier: Apache-2.0
 *
 * A profile of pprof's, as `go tool pprof`, speedscope, Pyroscope, Parca and others
 * read it: github.com/google/pprof/proto/profile.proto.
 *
 * The protocol buffer is written plainly: readers take it with or without gzip.
 * One sample a stack has all metrics. Processes are labels, not frames: `-tagroot=pid`
 * makes frames of them, `-tagfocus=pid=...` chooses.
 *
 * Strings, functions and locations are numbered so that nothing has to be looked up:
 * a function's location and its own number are its index + 1, and the texts of functions
 * and processes follow in the table of strings after the fixed ones. system_name stays
 * empty: where it is the name, pprof takes the name for a C++ one and cuts it at "<".
 */
#include "outline.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>

static const struct ember_outline_limits limits = {
    .stacks = UINT32_MAX,
    .processes = UINT32_MAX,
    .depth = 2000,
    .values = UINT64_MAX,
    .frames = 60000000,
    .metrics = EMBER_ALL_METRICS,
};

enum { BYTES_PER_WORD = 8 };

/* Field numbers of profile.proto. */
enum {
    PROFILE_SAMPLE_TYPE = 1,
    PROFILE_SAMPLE,
    PROFILE_MAPPING,
    PROFILE_LOCATION,
    PROFILE_FUNCTION,
    PROFILE_STRING,
    PROFILE_TIME_NANOS = 9,
    PROFILE_DURATION_NANOS,
    PROFILE_PERIOD_TYPE,
    PROFILE_PERIOD,
    PROFILE_COMMENT,
    PROFILE_DEFAULT_SAMPLE_TYPE
};
enum { TYPE_TYPE = 1, TYPE_UNIT };
enum { SAMPLE_LOCATION = 1, SAMPLE_VALUE, SAMPLE_LABEL };
enum { LABEL_KEY = 1, LABEL_STRING };
enum {
    MAPPING_ID = 1,
    MAPPING_FILENAME = 5,
    MAPPING_HAS_FUNCTIONS = 7,
    MAPPING_HAS_FILENAMES,
    MAPPING_HAS_LINES,
    MAPPING_HAS_INLINES
};
enum { LOCATION_ID = 1, LOCATION_MAPPING, LOCATION_LINE = 4 };
enum { LINE_FUNCTION = 1 };
enum { FUNCTION_ID = 1, FUNCTION_NAME, FUNCTION_FILENAME = 4 };
enum { WIRE_VARINT = 0, WIRE_BYTES = 2 };

enum string {
    S_NONE,
    S_CALLS,
    S_COUNT,
    S_TIME,
    S_NANOSECONDS,
    S_OWN,
    S_OFF_CPU,
    S_WAITING,
    S_GC,
    S_ALLOC_SPACE,
    S_BYTES,
    S_BINARY_SPACE,
    S_PID,
    S_NAME,
    S_LABEL,
    S_BEAM,
    S_PRUNED,
    S_NO_FUNCTION,
    S_PRUNED_PROCESS,
    FIXED_STRINGS
};

static const char *const fixed_strings[FIXED_STRINGS] = {"",
                                                         "calls",
                                                         "count",
                                                         "time",
                                                         "nanoseconds",
                                                         "own",
                                                         "off_cpu",
                                                         "waiting",
                                                         "gc",
                                                         "alloc_space",
                                                         "bytes",
                                                         "binary_space",
                                                         "pid",
                                                         "name",
                                                         "label",
                                                         "beam.smp",
                                                         EMBER_PRUNED_FRAME,
                                                         "[no function]",
                                                         EMBER_PRUNED_PROCESS};

/* After the functions. */
enum { PRUNED, NO_FUNCTION, PSEUDO_FUNCTIONS };

/* In the order of a sample's values. `time` is the sum of own, off_cpu and gc; waiting
 * is a part of off_cpu. */
enum { CALLS, TIME, OWN, OFF_CPU, WAITING, GC, ALLOC_SPACE, BINARY_SPACE, SAMPLE_TYPES };

static const struct {
    enum string type;
    enum string unit;
} sample_types[SAMPLE_TYPES] = {
    [CALLS] = {S_CALLS, S_COUNT},
    [TIME] = {S_TIME, S_NANOSECONDS},
    [OWN] = {S_OWN, S_NANOSECONDS},
    [OFF_CPU] = {S_OFF_CPU, S_NANOSECONDS},
    [WAITING] = {S_WAITING, S_NANOSECONDS},
    [GC] = {S_GC, S_NANOSECONDS},
    [ALLOC_SPACE] = {S_ALLOC_SPACE, S_BYTES},
    [BINARY_SPACE] = {S_BINARY_SPACE, S_BYTES},
};

static const enum string shown_types[] = {
    [EMBER_METRIC_OWN_TIME] = S_TIME,
    [EMBER_METRIC_WORDS] = S_ALLOC_SPACE,
    [EMBER_METRIC_CALLS] = S_CALLS,
    [EMBER_METRIC_BINARIES] = S_BINARY_SPACE,
};

/* Long enough for all but texts and stacks. */
struct message {
    unsigned char bytes[192];
    size_t size;
};

struct file {
    struct ember_outline outline;
    struct ember_sink *sink;
    struct ember_sink text;
    uint64_t *path;    /* locations of the row's stack, by depth - 1 */
    size_t *path_size; /* of the depth's first ones, encoded */
};

/* ---- protocol buffers ---- */

static size_t encode(unsigned char *bytes, uint64_t value)
{
    size_t size = 0;
    for (; value >= 0x80; value >>= 7)
        bytes[size++] = (unsigned char)(value | 0x80);
    bytes[size++] = (unsigned char)value;
    return size;
}

static size_t encoded_size(uint64_t value)
{
    size_t size = 1;
    for (; value >= 0x80; value >>= 7)
        size++;
    return size;
}

static void put(struct message *message, uint64_t value)
{
    message->size += encode(message->bytes + message->size, value);
}

static void put_number(struct message *message, unsigned field, uint64_t value)
{
    put(message, field << 3 | WIRE_VARINT);
    put(message, value);
}

static void put_message(struct message *message, unsigned field, const struct message *inner)
{
    put(message, field << 3 | WIRE_BYTES);
    put(message, inner->size);
    memcpy(message->bytes + message->size, inner->bytes, inner->size);
    message->size += inner->size;
}

static void write_varint(struct ember_sink *sink, uint64_t value)
{
    unsigned char bytes[10];
    ember_sink_bytes(sink, bytes, encode(bytes, value));
}

static void write_number(struct ember_sink *sink, unsigned field, uint64_t value)
{
    write_varint(sink, field << 3 | WIRE_VARINT);
    write_varint(sink, value);
}

static void write_message(struct ember_sink *sink, unsigned field, const struct message *message)
{
    write_varint(sink, field << 3 | WIRE_BYTES);
    write_varint(sink, message->size);
    ember_sink_bytes(sink, message->bytes, message->size);
}

static void write_string(struct ember_sink *sink, const char *text)
{
    size_t size = strlen(text);
    write_varint(sink, PROFILE_STRING << 3 | WIRE_BYTES);
    write_varint(sink, ember_utf8_written_size(text, size));
    ember_utf8_write(sink, text, size);
}

/* ---- strings ---- */

enum { STRINGS_PER_FUNCTION = 2, STRINGS_PER_PROCESS = 3 };

static uint64_t function_strings(uint32_t function)
{
    return FIXED_STRINGS + (uint64_t)STRINGS_PER_FUNCTION * function;
}

static uint64_t process_strings(const struct ember_profile *profile, uint32_t process)
{
    return function_strings(profile->function_count) + (uint64_t)STRINGS_PER_PROCESS * process;
}

static uint64_t comment_strings(const struct ember_profile *profile)
{
    return process_strings(profile, profile->process_count);
}

static const char *or_none(const char *text)
{
    return text ? text : "";
}

static void write_comment(struct file *file, uint64_t string, const char *text)
{
    if (text[0]) {
        write_string(file->sink, text);
        write_number(file->sink, PROFILE_COMMENT, string);
    }
}

static void write_strings(struct file *file)
{
    const struct ember_profile *profile = file->outline.profile;
    for (int i = 0; i < FIXED_STRINGS; i++)
        write_string(file->sink, fixed_strings[i]);
    for (uint32_t i = 0; i < profile->function_count; i++) {
        write_string(file->sink, profile->functions[i].text);
        write_string(file->sink, or_none(profile->functions[i].module));
    }
    for (uint32_t i = 0; i < profile->process_count; i++) {
        write_string(file->sink, or_none(profile->processes[i].pid_text));
        write_string(file->sink, or_none(profile->processes[i].name));
        write_string(file->sink, or_none(profile->processes[i].label));
    }
    write_comment(file, comment_strings(profile), ember_view_heading(profile, &file->text));
    write_comment(file, comment_strings(profile) + 1,
                  ember_view_caveats(profile, &file->outline, &file->text));
}

/* ---- functions ---- */

static void write_function(struct file *file, uint32_t index, uint64_t name, uint64_t filename)
{
    struct message function = {0};
    struct message line = {0};
    struct message location = {0};
    uint64_t id = (uint64_t)index + 1;
    put_number(&function, FUNCTION_ID, id);
    put_number(&function, FUNCTION_NAME, name);
    put_number(&function, FUNCTION_FILENAME, filename);
    put_number(&line, LINE_FUNCTION, id);
    put_number(&location, LOCATION_ID, id);
    put_number(&location, LOCATION_MAPPING, 1);
    put_message(&location, LOCATION_LINE, &line);
    write_message(file->sink, PROFILE_FUNCTION, &function);
    write_message(file->sink, PROFILE_LOCATION, &location);
}

static void write_functions(struct file *file)
{
    uint32_t count = file->outline.profile->function_count;
    for (uint32_t i = 0; i < count; i++)
        write_function(file, i, function_strings(i), function_strings(i) + 1);
    write_function(file, count + PRUNED, S_PRUNED, S_NONE);
    write_function(file, count + NO_FUNCTION, S_NO_FUNCTION, S_NONE);
}

/* pprof asks for the names of what has no mapping, or one without them. */
static void write_mapping(struct file *file)
{
    struct message mapping = {0};
    put_number(&mapping, MAPPING_ID, 1);
    put_number(&mapping, MAPPING_FILENAME, S_BEAM);
    for (unsigned field = MAPPING_HAS_FUNCTIONS; field <= MAPPING_HAS_INLINES; field++)
        put_number(&mapping, field, 1);
    write_message(file->sink, PROFILE_MAPPING, &mapping);
}

/* ---- samples ---- */

static uint64_t pseudo_location(const struct file *file, int pseudo)
{
    return (uint64_t)file->outline.profile->function_count + (unsigned)pseudo + 1;
}

static void put_values(struct message *message, const struct ember_metrics *own)
{
    struct message values = {0};
    put(&values, own->calls);
    put(&values, own->own_ns + own->off_cpu_ns + own->gc_ns);
    put(&values, own->own_ns);
    put(&values, own->off_cpu_ns);
    put(&values, ember_metrics_waiting(own));
    put(&values, own->gc_ns);
    put(&values, own->words > 0 ? (uint64_t)own->words * BYTES_PER_WORD : 0);
    put(&values, own->binary_bytes);
    put_message(message, SAMPLE_VALUE, &values);
}

static void put_label(struct message *message, enum string key, uint64_t string)
{
    struct message label = {0};
    put_number(&label, LABEL_KEY, key);
    put_number(&label, LABEL_STRING, string);
    put_message(message, SAMPLE_LABEL, &label);
}

static void put_labels(struct message *message, const struct file *file,
                       const struct ember_row *row)
{
    const struct ember_profile *profile = file->outline.profile;
    if (row->node == EMBER_NONE) {
        put_label(message, S_PID, S_PRUNED_PROCESS);
        return;
    }
    uint32_t index = profile->nodes[row->node].process;
    const struct ember_process *process = &profile->processes[index];
    put_label(message, S_PID, process_strings(profile, index));
    if (process->name)
        put_label(message, S_NAME, process_strings(profile, index) + 1);
    if (process->label)
        put_label(message, S_LABEL, process_strings(profile, index) + 2);
}

static bool is_nothing(const struct ember_metrics *own)
{
    return own->calls == 0 && own->own_ns == 0 && own->off_cpu_ns == 0 && own->gc_ns == 0 &&
           own->words <= 0 && own->binary_bytes == 0;
}

/* `leaf`: a location above the row's own, or 0. */
static void write_sample(struct file *file, const struct ember_row *row,
                         const struct ember_metrics *own, uint64_t leaf)
{
    struct message rest = {0};
    if (is_nothing(own))
        return;
    put_values(&rest, own);
    put_labels(&rest, file, row);
    size_t stack = file->path_size[row->depth] + (leaf ? encoded_size(leaf) : 0);
    write_varint(file->sink, PROFILE_SAMPLE << 3 | WIRE_BYTES);
    write_varint(file->sink, 1 + encoded_size(stack) + stack + rest.size);
    write_varint(file->sink, SAMPLE_LOCATION << 3 | WIRE_BYTES);
    write_varint(file->sink, stack);
    if (leaf)
        write_varint(file->sink, leaf);
    for (uint32_t depth = row->depth; depth > 0; depth--)
        write_varint(file->sink, file->path[depth - 1]);
    ember_sink_bytes(file->sink, rest.bytes, rest.size);
}

static void write_samples(struct file *file)
{
    const struct ember_profile *profile = file->outline.profile;
    for (uint32_t i = 0; i < file->outline.count; i++) {
        const struct ember_row *row = &file->outline.rows[i];
        if (row->depth > 0) {
            uint64_t location = (uint64_t)profile->nodes[row->node].function + 1;
            file->path[row->depth - 1] = location;
            file->path_size[row->depth] = file->path_size[row->depth - 1] + encoded_size(location);
        }
        if (row->node != EMBER_NONE)
            write_sample(file, row, &profile->nodes[row->node].own,
                         row->depth == 0 ? pseudo_location(file, NO_FUNCTION) : 0);
        write_sample(file, row, &row->pruned, pseudo_location(file, PRUNED));
    }
}

/* ---- the file ---- */

static void write_type(struct ember_sink *sink, unsigned field, enum string name, enum string unit)
{
    struct message type = {0};
    put_number(&type, TYPE_TYPE, name);
    put_number(&type, TYPE_UNIT, unit);
    write_message(sink, field, &type);
}

static void write_header(struct file *file, enum ember_metric shown)
{
    const struct ember_info *info = &file->outline.profile->info;
    uint64_t duration = info->duration_ns < INT64_MAX ? info->duration_ns : INT64_MAX;
    for (int i = 0; i < SAMPLE_TYPES; i++)
        write_type(file->sink, PROFILE_SAMPLE_TYPE, sample_types[i].type, sample_types[i].unit);
    write_number(file->sink, PROFILE_TIME_NANOS, (uint64_t)info->start_us * 1000);
    write_number(file->sink, PROFILE_DURATION_NANOS, duration);
    write_type(file->sink, PROFILE_PERIOD_TYPE, S_TIME, S_NANOSECONDS);
    write_number(file->sink, PROFILE_PERIOD, 1);
    write_number(file->sink, PROFILE_DEFAULT_SAMPLE_TYPE, shown_types[shown]);
}

static bool prepare(struct file *file, const struct ember_profile *profile)
{
    if (!ember_outline_init(&file->outline, profile, &limits))
        return false;
    size_t depths = (size_t)file->outline.depth + 1;
    file->path = calloc(depths, sizeof file->path[0]);
    file->path_size = calloc(depths, sizeof file->path_size[0]);
    return file->path && file->path_size;
}

static void write_view(const struct ember_profile *profile,
                       const struct ember_view_options *options, struct ember_sink *sink)
{
    struct file file = {.sink = sink};
    if (prepare(&file, profile)) {
        write_header(&file, options->metric);
        write_mapping(&file);
        write_functions(&file);
        write_samples(&file);
        write_strings(&file);
    } else {
        sink->failed = true;
    }
    sink->failed |= file.text.failed;
    free(file.path);
    free(file.path_size);
    ember_outline_fini(&file.outline);
    ember_sink_fini(&file.text);
}

const struct ember_view ember_view_pprof = {
    .name = "pprof",
    .extension = "pb",
    .write = write_view,
};
