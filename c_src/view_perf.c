/* SPDX-License-Identifier: Apache-2.0
 *
 * A perf.data file that `perf report`, `perf script` and hotspot read as if perf had
 * recorded it: linux/tools/perf/Documentation/perf.data-file-format.txt.
 *
 *     header | ids | attributes | records | table of features | features
 *
 * A process is a thread with its name as comm; a stack is a sample for each metric it
 * has something of, with that as period. There are three events: time, words (in
 * bytes) and calls. Time goes on from sample to sample by what they took.
 *
 * perf.data has no place for names of functions but one: a KSYMBOL record says which
 * kernel function was loaded where. So the functions are said to be the kernel's, and
 * perf finds them in this very file, on any machine. hotspot does not read KSYMBOL; it
 * looks for an ELF file with symbols, which the view perf_symbols writes (see
 * view_perf_symbols.c). Where the options name that file, it is said to be mapped at
 * the functions' addresses. perf heeds such a mapping only if the path begins with "/"
 * or "[", and then forgets the KSYMBOLs: so the path goes up to the root first.
 */
#include "outline.h"
#include "utf8.h"
#include "view_perf.h"

#include <stdlib.h>
#include <string.h>

static const struct ember_outline_limits limits = {
    .stacks = UINT32_MAX,
    .processes = UINT32_MAX,
    .depth = 2000, /* a record ends at 64 KiB */
    .values = 600000,
    .frames = 8000000,
    .metrics = EMBER_ALL_METRICS,
};

enum { EVENTS = EMBER_METRICS, BYTES_PER_WORD = 8 };

static const struct {
    const char *name;
    uint64_t factor;
} events[EVENTS] = {
    [EMBER_METRIC_OWN_TIME] = {"time-ns", 1},
    [EMBER_METRIC_WORDS] = {"alloc-bytes", BYTES_PER_WORD},
    [EMBER_METRIC_CALLS] = {"calls", 1},
    [EMBER_METRIC_BINARIES] = {"binary-bytes", 1},
};

/* Sizes of the file's parts. */
enum { HEADER_SIZE = 104, ATTRIBUTE_SIZE = 112, SECTION_SIZE = 16, ID_SIZE = 8 };
enum {
    IDS_AT = HEADER_SIZE,
    ATTRIBUTES_AT = IDS_AT + EVENTS * ID_SIZE,
    ATTRIBUTES_SIZE = EVENTS * (ATTRIBUTE_SIZE + SECTION_SIZE),
    RECORDS_AT = ATTRIBUTES_AT + ATTRIBUTES_SIZE
};

/* Of linux/perf_event.h. */
enum { TYPE_SOFTWARE = 1, CONFIG_CPU_CLOCK = 0 };
enum {
    SAMPLE_IP = 1 << 0,
    SAMPLE_TID = 1 << 1,
    SAMPLE_TIME = 1 << 2,
    SAMPLE_CALLCHAIN = 1 << 5,
    SAMPLE_PERIOD = 1 << 8,
    SAMPLE_IDENTIFIER = 1 << 16,
    SAMPLE_TYPE = SAMPLE_IP | SAMPLE_TID | SAMPLE_TIME | SAMPLE_CALLCHAIN | SAMPLE_PERIOD |
                  SAMPLE_IDENTIFIER
};
/* Kernel functions excluded: else perf complains about what it may not know of them. */
enum {
    FLAG_DISABLED = 1 << 0,
    FLAG_EXCLUDE_KERNEL = 1 << 5,
    FLAG_MMAP = 1 << 8,
    FLAG_COMM = 1 << 9,
    FLAG_SAMPLE_ID_ALL = 1 << 18,
    FLAG_MMAP2 = 1 << 23,
    FLAG_KSYMBOL = 1 << 29,
    FLAGS = FLAG_DISABLED | FLAG_EXCLUDE_KERNEL | FLAG_MMAP | FLAG_COMM | FLAG_SAMPLE_ID_ALL |
            FLAG_MMAP2 | FLAG_KSYMBOL
};
enum {
    RECORD_LOST = 2,
    RECORD_COMM = 3,
    RECORD_SAMPLE = 9,
    RECORD_MMAP2 = 10,
    RECORD_KSYMBOL = 17
};
enum { MISC_KERNEL = 1 };
enum { PROTECTION_READ_EXECUTE = 5, MAP_PRIVATE = 2, KSYMBOL_OUT_OF_LINE = 2 };
#define CONTEXT_KERNEL (-(uint64_t)128)
#define KERNEL_PID UINT32_MAX

/* Of perf's header.h, in this order in the file. */
enum {
    FEATURE_OS_RELEASE = 4,
    FEATURE_VERSION = 5,
    FEATURE_ARCH = 6,
    FEATURE_CPUS = 7,
    FEATURE_COMMAND = 11,
    FEATURE_EVENTS = 12
};
static const unsigned features[] = {FEATURE_OS_RELEASE, FEATURE_VERSION, FEATURE_ARCH,
                                    FEATURE_CPUS,       FEATURE_COMMAND, FEATURE_EVENTS};
enum { FEATURES = sizeof features / sizeof features[0] };

enum { PID = 1, MOST_COMM = 255, TEXT_ALIGNMENT = 64, MOST_DIRECTORIES = 32 };

/* perf and hotspot look up a caller's address less one. */
enum { LEAF_OFFSET = 1, CALLER_OFFSET = 5 };

struct file {
    struct ember_outline outline;
    struct ember_sink *sink;
    struct ember_sink text;
    const char *symbols; /* path, or NULL */
    size_t begin;        /* of the file in the sink */
    uint64_t *path;      /* callers' addresses of the row's stack, by depth - 1 */
    uint64_t time_ns;
    uint32_t tid;
    enum ember_metric order[EVENTS]; /* the metric asked for comes first */
};

/* ---- bytes ---- */

static void write_number(struct ember_sink *sink, int size, uint64_t value)
{
    unsigned char bytes[8];
    for (int i = 0; i < size; i++)
        bytes[i] = (unsigned char)(value >> (8 * i));
    ember_sink_bytes(sink, bytes, (size_t)size);
}

static void write_2(struct ember_sink *sink, uint64_t value)
{
    write_number(sink, 2, value);
}
static void write_4(struct ember_sink *sink, uint64_t value)
{
    write_number(sink, 4, value);
}
static void write_8(struct ember_sink *sink, uint64_t value)
{
    write_number(sink, 8, value);
}

/* The size of what was not known when it was begun. */
static void patch(struct ember_sink *sink, size_t at, int size, uint64_t value)
{
    for (int i = 0; i < size && !sink->failed; i++)
        sink->data[at + (size_t)i] = (char)(value >> (8 * i));
}

static void write_zeros(struct ember_sink *sink, size_t count)
{
    static const char zeros[TEXT_ALIGNMENT + 8];
    ember_sink_bytes(sink, zeros, count);
}

/* Text, cut at `most` bytes, and one to `alignment` zeros. Returns the size. */
static size_t write_text(struct ember_sink *sink, const char *text, size_t most, size_t alignment)
{
    size_t size = ember_utf8_prefix(text, strlen(text), most);
    size_t written = ember_utf8_written_size(text, size);
    size_t zeros = alignment - written % alignment;
    ember_utf8_write(sink, text, size);
    write_zeros(sink, zeros);
    return written + zeros;
}

/* ---- records ---- */

static size_t begin_record(struct ember_sink *sink, uint32_t type, uint16_t misc)
{
    size_t at = sink->size;
    write_4(sink, type);
    write_2(sink, misc);
    write_2(sink, 0);
    return at;
}

static void end_record(struct ember_sink *sink, size_t at)
{
    patch(sink, at + 6, 2, sink->size - at);
}

/* At the end of records that are no samples. */
static void write_sample_id(struct file *file, uint32_t tid)
{
    write_4(file->sink, PID);
    write_4(file->sink, tid);
    write_8(file->sink, file->time_ns);
    write_8(file->sink, 1);
}

static void write_ksymbol(struct file *file, uint32_t function, const char *name)
{
    size_t at = begin_record(file->sink, RECORD_KSYMBOL, 0);
    write_8(file->sink, ember_perf_address(function));
    write_4(file->sink, EMBER_PERF_FUNCTION_SIZE);
    write_2(file->sink, KSYMBOL_OUT_OF_LINE);
    write_2(file->sink, 0);
    write_text(file->sink, name[0] ? name : "?", EMBER_PERF_MOST_NAME, 8);
    write_sample_id(file, PID);
    end_record(file->sink, at);
}

static void write_symbols(struct file *file)
{
    const struct ember_profile *profile = file->outline.profile;
    for (uint32_t i = 0; i < EMBER_PERF_PSEUDO_FUNCTIONS; i++)
        write_ksymbol(file, i, ember_perf_pseudo_name(i));
    for (uint32_t i = 0; i < profile->function_count; i++)
        write_ksymbol(file, EMBER_PERF_PSEUDO_FUNCTIONS + i, profile->functions[i].text);
}

static void write_mapping(struct file *file)
{
    struct ember_sink *sink = file->sink;
    if (!file->symbols)
        return;
    file->text.size = 0;
    for (int i = 0; i < MOST_DIRECTORIES; i++)
        ember_sink_text(&file->text, "../");
    ember_sink_text(&file->text, file->symbols + (file->symbols[0] == '/'));
    ember_sink_bytes(&file->text, "", 1);
    size_t at = begin_record(sink, RECORD_MMAP2, MISC_KERNEL);
    write_4(sink, KERNEL_PID);
    write_4(sink, 0);
    write_8(sink, EMBER_PERF_BASE);
    write_8(sink, ember_perf_image_size(file->outline.profile));
    write_zeros(sink, 8 + 4 + 4 + 8 + 8); /* offset, device, inode, generation */
    write_4(sink, PROTECTION_READ_EXECUTE);
    write_4(sink, MAP_PRIVATE);
    write_text(sink, file->text.failed ? "" : file->text.data, 4095, 8);
    write_sample_id(file, PID);
    end_record(sink, at);
}

static void write_comm(struct file *file, uint32_t tid, const char *comm)
{
    size_t at = begin_record(file->sink, RECORD_COMM, 0);
    write_4(file->sink, PID);
    write_4(file->sink, tid);
    write_text(file->sink, comm, MOST_COMM, 8);
    write_sample_id(file, tid);
    end_record(file->sink, at);
}

static void write_lost(struct file *file)
{
    uint64_t lost = file->outline.profile->info.lost;
    if (lost == 0)
        return;
    size_t at = begin_record(file->sink, RECORD_LOST, 0);
    write_8(file->sink, 1);
    write_8(file->sink, lost);
    write_sample_id(file, PID);
    end_record(file->sink, at);
}

/* ---- samples ---- */

/* Ids are 1 to 3, in the order of the attributes. */
static uint64_t event_id(const struct file *file, enum ember_metric metric)
{
    uint64_t id = 1;
    while (id < EVENTS && file->order[id - 1] != metric)
        id++;
    return id;
}

/* The frames from the leaf on; `pseudo` may be NULL. Returns the leaf's address. */
static uint64_t write_chain(struct file *file, const struct ember_row *row, const char *pseudo)
{
    struct ember_sink *sink = file->sink;
    uint32_t depth = row->depth;
    uint64_t leaf;
    if (pseudo)
        leaf = ember_perf_address(ember_pseudo_frame(pseudo)) + LEAF_OFFSET;
    else if (depth == 0)
        leaf = ember_perf_address(EMBER_PERF_NO_FUNCTION) + LEAF_OFFSET;
    else
        leaf = file->path[--depth] - CALLER_OFFSET + LEAF_OFFSET;
    write_8(sink, 2 + (uint64_t)depth);
    write_8(sink, CONTEXT_KERNEL);
    write_8(sink, leaf);
    while (depth > 0)
        write_8(sink, file->path[--depth]);
    return leaf;
}

static void write_sample(struct file *file, const struct ember_row *row, enum ember_metric metric,
                         const struct ember_slice *slice)
{
    struct ember_sink *sink = file->sink;
    size_t at = begin_record(sink, RECORD_SAMPLE, MISC_KERNEL);
    write_8(sink, event_id(file, metric));
    size_t ip_at = sink->size;
    write_8(sink, 0);
    write_4(sink, PID);
    write_4(sink, file->tid);
    write_8(sink, file->time_ns);
    write_8(sink, slice->value * events[metric].factor);
    uint64_t leaf = write_chain(file, row, slice->frame);
    patch(sink, ip_at, 8, leaf);
    end_record(sink, at);
    if (metric == EMBER_METRIC_OWN_TIME)
        file->time_ns += slice->value;
}

static void write_row(struct file *file, uint32_t i)
{
    const struct ember_row *row = &file->outline.rows[i];
    if (row->depth == 0)
        write_comm(file, ++file->tid, ember_outline_title(&file->outline, i, &file->text));
    else
        file->path[row->depth - 1] =
            ember_perf_address(EMBER_PERF_PSEUDO_FUNCTIONS +
                               file->outline.profile->nodes[row->node].function) +
            CALLER_OFFSET;
    for (int metric = 0; metric < EVENTS; metric++) {
        struct ember_slice slices[EMBER_MAX_SLICES];
        unsigned count = ember_outline_slices(&file->outline, i, (enum ember_metric)metric, slices);
        for (unsigned j = 0; j < count; j++)
            write_sample(file, row, (enum ember_metric)metric, &slices[j]);
    }
}

static void write_records(struct file *file)
{
    const struct ember_info *info = &file->outline.profile->info;
    file->time_ns = info->start_us > 0 ? (uint64_t)info->start_us * 1000 : 0;
    file->tid = PID;
    write_comm(file, PID, "beam.smp");
    write_mapping(file);
    write_symbols(file);
    for (uint32_t i = 0; i < file->outline.count; i++)
        write_row(file, i);
    write_lost(file);
}

/* ---- header and features ---- */

static void write_attribute(struct ember_sink *sink)
{
    write_4(sink, TYPE_SOFTWARE);
    write_4(sink, ATTRIBUTE_SIZE);
    write_8(sink, CONFIG_CPU_CLOCK);
    write_8(sink, 1); /* period */
    write_8(sink, SAMPLE_TYPE);
    write_8(sink, 0); /* read format */
    write_8(sink, FLAGS);
    write_zeros(sink, ATTRIBUTE_SIZE - 48);
}

/* Sizes of what follows are patched in at the end. */
static void write_header(struct file *file)
{
    struct ember_sink *sink = file->sink;
    ember_sink_text(sink, "PERFILE2");
    write_8(sink, HEADER_SIZE);
    write_8(sink, ATTRIBUTE_SIZE + SECTION_SIZE);
    write_8(sink, ATTRIBUTES_AT);
    write_8(sink, ATTRIBUTES_SIZE);
    write_8(sink, RECORDS_AT);
    write_8(sink, 0);
    write_zeros(sink, SECTION_SIZE); /* event types: not used any more */
    uint64_t bits = 0;
    for (int i = 0; i < FEATURES; i++)
        bits |= UINT64_C(1) << features[i];
    write_8(sink, bits);
    write_zeros(sink, 24);
    for (uint64_t id = 1; id <= EVENTS; id++)
        write_8(sink, id);
    for (int i = 0; i < EVENTS; i++) {
        write_attribute(sink);
        write_8(sink, IDS_AT + (uint64_t)i * ID_SIZE);
        write_8(sink, ID_SIZE);
    }
}

static void write_feature_text(struct file *file, const char *text)
{
    size_t at = file->sink->size;
    write_4(file->sink, 0);
    patch(file->sink, at, 4, write_text(file->sink, text, 8000, TEXT_ALIGNMENT));
}

static void write_command(struct file *file)
{
    const struct ember_profile *profile = file->outline.profile;
    write_4(file->sink, 3);
    write_feature_text(file, "emberl");
    write_feature_text(file, ember_view_heading(profile, &file->text));
    write_feature_text(file, ember_view_caveats(profile, &file->outline, &file->text));
}

static void write_event_names(struct file *file)
{
    write_4(file->sink, EVENTS);
    write_4(file->sink, ATTRIBUTE_SIZE);
    for (uint64_t i = 0; i < EVENTS; i++) {
        write_attribute(file->sink);
        write_4(file->sink, 1);
        write_feature_text(file, events[file->order[i]].name);
        write_8(file->sink, i + 1);
    }
}

static void write_os_release(struct file *file)
{
    const char *release = file->outline.profile->info.otp_release;
    file->text.size = 0;
    ember_sink_text(&file->text, "OTP ");
    ember_sink_text(&file->text, release ? release : "?");
    ember_sink_bytes(&file->text, "", 1);
    write_feature_text(file, file->text.failed ? "" : file->text.data);
}

static void write_feature(struct file *file, unsigned feature)
{
    switch (feature) {
    case FEATURE_OS_RELEASE:
        write_os_release(file);
        break;
    case FEATURE_VERSION:
        write_feature_text(file, "emberl");
        break;
    case FEATURE_ARCH:
        write_feature_text(file, "x86_64");
        break;
    case FEATURE_CPUS: /* online and available: not known */
        write_4(file->sink, 1);
        write_4(file->sink, 1);
        break;
    case FEATURE_COMMAND:
        write_command(file);
        break;
    default:
        write_event_names(file);
        break;
    }
}

static void write_features(struct file *file)
{
    struct ember_sink *sink = file->sink;
    size_t table_at = sink->size;
    write_zeros(sink, SECTION_SIZE * FEATURES / 2);
    write_zeros(sink, SECTION_SIZE * FEATURES / 2);
    for (size_t i = 0; i < FEATURES; i++) {
        size_t at = sink->size;
        write_feature(file, features[i]);
        patch(sink, table_at + i * SECTION_SIZE, 8, at - file->begin);
        patch(sink, table_at + i * SECTION_SIZE + 8, 8, sink->size - at);
    }
}

static void write_file(struct file *file)
{
    file->begin = file->sink->size;
    write_header(file);
    write_records(file);
    patch(file->sink, file->begin + 48, 8, file->sink->size - file->begin - RECORDS_AT);
    write_features(file);
}

static bool prepare(struct file *file, const struct ember_profile *profile, enum ember_metric shown)
{
    int at = 0;
    file->order[at++] = shown;
    for (int metric = 0; metric < EVENTS; metric++)
        if (metric != (int)shown)
            file->order[at++] = (enum ember_metric)metric;
    if (!ember_outline_init(&file->outline, profile, &limits))
        return false;
    file->path = calloc((size_t)file->outline.depth + 1, sizeof file->path[0]);
    return file->path != NULL;
}

static void write_view(const struct ember_profile *profile,
                       const struct ember_view_options *options, struct ember_sink *sink)
{
    struct file file = {.sink = sink, .symbols = options->symbols};
    if (prepare(&file, profile, options->metric))
        write_file(&file);
    else
        sink->failed = true;
    sink->failed |= file.text.failed;
    free(file.path);
    ember_outline_fini(&file.outline);
    ember_sink_fini(&file.text);
}

const struct ember_view ember_view_perf = {
    .name = "perf",
    .extension = "perf.data",
    .write = write_view,
};
