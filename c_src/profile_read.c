/* SPDX-License-Identifier: Apache-2.0
 *
 * Two passes. The first walks over the headers of the blocks and sums up their
 * items, so that memory is taken once and for what is really there. The second
 * decompresses one block after the other and reads its content.
 *
 * The first error stays and everything after it does nothing, so code reads
 * straight on and loops ask `ok`.
 */
#include "profile_read.h"

#include "profile_format.h"
#include "utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define NO_OFFSET SIZE_MAX
enum { LARGEST_VARINT = 10, FRAME_MAGIC = 0xFD2FB528, FRAME_HAS_CHECKSUM = 1 << 2 };

struct block {
    enum ember_format_kind kind;
    bool skipped; /* of a kind that we need not know */
    uint32_t items;
    uint32_t stored;
    uint32_t size; /* of the content */
    const unsigned char *frame;
};

struct reader {
    const unsigned char *data;
    size_t size;
    struct ember_profile *profile;
    struct ember_read_error *error;
    ZSTD_DCtx *zstd;
    bool ok;

    /* for errors: in the file and in the content, or NO_OFFSET */
    size_t block_at;
    size_t content_at;
    struct block block;

    /* the first pass */
    uint32_t block_count;
    uint32_t largest_content;
    uint64_t timeline_bytes;
    uint64_t items[EMBER_FORMAT_KINDS];
    uint32_t blocks[EMBER_FORMAT_KINDS];

    /* the content that is read */
    unsigned char *content;
    const unsigned char *at;
    const unsigned char *end;

    /* INFO, METR */
    uint32_t fields_seen;
    uint32_t metric_count;
    uint64_t metric_signs;
    const struct ember_format_metric *metrics[EMBER_FORMAT_MAX_METRICS]; /* NULL: not known */
    uint64_t sums[EMBER_FORMAT_MAX_METRICS];

    /* time */
    uint64_t timeline_cut;
    uint32_t timeline_process; /* of the last block */
    uint64_t timeline_end;     /* likewise */
};

/* ---- errors ---- */

static void __attribute__((format(printf, 2, 3)))
fail(struct reader *reader, const char *format, ...)
{
    char what[80];
    va_list args;
    if (!reader->ok)
        return;
    reader->ok = false;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    char *text = reader->error->text;
    if (reader->block_at == NO_OFFSET)
        snprintf(text, EMBER_READ_ERROR_SIZE, "%s", what);
    else if (reader->content_at == NO_OFFSET)
        snprintf(text, EMBER_READ_ERROR_SIZE, "byte %zu: %s", reader->block_at, what);
    else
        snprintf(text, EMBER_READ_ERROR_SIZE, "byte %zu, block %s, byte %zu of its content: %s",
                 reader->block_at, ember_format_kinds[reader->block.kind], reader->content_at,
                 what);
}

static void fail_memory(struct reader *reader)
{
    fail(reader, "out of memory");
    reader->error->out_of_memory = true;
}

/* ---- numbers and texts ---- */

static uint64_t read_varint(struct reader *reader)
{
    uint64_t value = 0;
    reader->content_at = (size_t)(reader->at - reader->content);
    for (unsigned i = 0; i < LARGEST_VARINT && reader->at + i < reader->end; i++) {
        uint64_t bits = reader->at[i] & 0x7fu;
        if (i == LARGEST_VARINT - 1 && bits > 1)
            break;
        value |= bits << (7 * i);
        if (reader->at[i] < 0x80) {
            reader->at += i + 1;
            return value;
        }
    }
    fail(reader, "no number");
    return 0;
}

static uint64_t read_number(struct reader *reader, uint64_t limit, const char *what)
{
    uint64_t value = read_varint(reader);
    if (value <= limit)
        return value;
    fail(reader, "%s %llu, at most %llu", what, (unsigned long long)value,
         (unsigned long long)limit);
    return 0;
}

static uint32_t read_small(struct reader *reader, uint32_t limit, const char *what)
{
    return (uint32_t)read_number(reader, limit, what);
}

/* `size` bytes of text, and a zero byte after them. */
static bool is_text(const char *text, size_t size)
{
    uint32_t character;
    for (size_t at = 0, length; at < size; at += length) {
        length = ember_utf8_decode(text + at, &character);
        if (length == 0 || text[at] == '\0')
            return false;
    }
    return true;
}

static char *read_bytes_as_text(struct reader *reader, size_t size)
{
    if (!reader->ok)
        return NULL;
    if (size > EMBER_FORMAT_MAX_TEXT || size > (size_t)(reader->end - reader->at)) {
        fail(reader, "a text of %zu bytes", size);
        return NULL;
    }
    char *text = malloc(size + 1);
    if (!text) {
        fail_memory(reader);
        return NULL;
    }
    memcpy(text, reader->at, size);
    text[size] = '\0';
    reader->at += size;
    if (is_text(text, size))
        return text;
    fail(reader, "a text that is no UTF-8");
    free(text);
    return NULL;
}

static char *read_text(struct reader *reader)
{
    return read_bytes_as_text(reader, read_varint(reader));
}

static char *read_maybe_text(struct reader *reader)
{
    uint64_t size = read_varint(reader);
    return size > 0 ? read_bytes_as_text(reader, size - 1) : NULL;
}

/* ---- the first pass: headers ---- */

static bool is_checked(const unsigned char *header, size_t size)
{
    return ember_format_crc(header, size - 4) == ember_format_get(header + size - 4, 4);
}

static uint64_t get_file_size(const unsigned char *header)
{
    return ember_format_get(header + 16, 4) | (uint64_t)ember_format_get(header + 20, 4) << 32;
}

static void check_file_header(struct reader *reader)
{
    const unsigned char *header = reader->data;
    size_t known = sizeof EMBER_FORMAT_MAGIC - 1;
    if (reader->size < EMBER_FORMAT_HEADER_SIZE || memcmp(header, EMBER_FORMAT_MAGIC, known) != 0)
        fail(reader, "not a profile file");
    else if (!is_checked(header, EMBER_FORMAT_HEADER_SIZE))
        fail(reader, "the header's checksum does not match");
    else if (ember_format_get(header + 8, 2) != EMBER_FORMAT_MAJOR)
        fail(reader, "version %u, which this reader does not know",
             ember_format_get(header + 8, 2));
    else if (get_file_size(header) != reader->size)
        fail(reader, "the file has %zu bytes of %llu", reader->size,
             (unsigned long long)get_file_size(header));
    else if (reader->size > EMBER_FORMAT_MAX_FILE)
        fail(reader, "the file is too large");
    else
        reader->block_count = ember_format_get(header + 12, 4);
    if (reader->block_count > EMBER_FORMAT_MAX_BLOCKS)
        fail(reader, "%u blocks are too many", reader->block_count);
}

static void name_kind(struct reader *reader, const unsigned char *name)
{
    struct block *block = &reader->block;
    block->skipped = false;
    for (int i = 0; i < EMBER_FORMAT_KINDS; i++) {
        if (memcmp(name, ember_format_kinds[i], 4) == 0) {
            block->kind = (enum ember_format_kind)i;
            return;
        }
    }
    block->skipped = name[0] >= 'a' && name[0] <= 'z';
    if (!block->skipped)
        fail(reader, "a block of an unknown kind");
}

/* Finds the block at `block_at` and returns where the next begins. */
static size_t find_block(struct reader *reader)
{
    struct block *block = &reader->block;
    const unsigned char *header = reader->data + reader->block_at;
    size_t left = reader->size - reader->block_at;
    reader->content_at = NO_OFFSET;
    if (left < EMBER_FORMAT_BLOCK_HEADER_SIZE) {
        fail(reader, "the file ends within a block's header");
        return reader->size;
    }
    left -= EMBER_FORMAT_BLOCK_HEADER_SIZE;
    if (!is_checked(header, EMBER_FORMAT_BLOCK_HEADER_SIZE))
        fail(reader, "the checksum of the block's header does not match");
    else
        name_kind(reader, header);
    block->items = ember_format_get(header + 4, 4);
    block->stored = ember_format_get(header + 8, 4);
    block->size = ember_format_get(header + 12, 4);
    block->frame = header + EMBER_FORMAT_BLOCK_HEADER_SIZE;
    if (block->stored > left)
        fail(reader, "a block of %u bytes where %zu are left", block->stored, left);
    else if (!block->skipped && block->size > EMBER_FORMAT_MAX_CONTENT)
        fail(reader, "a block with a content of %u bytes", block->size);
    else if (!block->skipped && block->items > block->size)
        fail(reader, "%u items in %u bytes", block->items, block->size);
    return reader->block_at + EMBER_FORMAT_BLOCK_HEADER_SIZE + (reader->ok ? block->stored : 0);
}

static void count_block(struct reader *reader, enum ember_format_kind *last)
{
    static const uint32_t most_items[] = {
        [EMBER_FORMAT_INFO] = EMBER_FORMAT_MAX_CONTENT,
        [EMBER_FORMAT_METRICS] = EMBER_FORMAT_MAX_METRICS,
        [EMBER_FORMAT_FUNCTIONS] = EMBER_FORMAT_MAX_FUNCTIONS,
        [EMBER_FORMAT_PROCESSES] = EMBER_FORMAT_MAX_PROCESSES,
        [EMBER_FORMAT_NODES] = EMBER_FORMAT_MAX_NODES,
        [EMBER_FORMAT_TIMELINE] = EMBER_FORMAT_MAX_TIMELINE,
        [EMBER_FORMAT_ANCESTORS] = EMBER_FORMAT_MAX_PROCESSES,
    };
    const struct block *block = &reader->block;
    enum ember_format_kind kind = block->kind;
    if (block->skipped || !reader->ok)
        return;
    if (kind < *last)
        fail(reader, "block %s after %s", ember_format_kinds[kind], ember_format_kinds[*last]);
    *last = kind;
    reader->items[kind] += block->items;
    reader->blocks[kind]++;
    if (reader->items[kind] > most_items[kind])
        fail(reader, "%llu items in %s are too many", (unsigned long long)reader->items[kind],
             ember_format_kinds[kind]);
    reader->timeline_bytes += kind == EMBER_FORMAT_TIMELINE ? block->size : 0;
    if (reader->timeline_bytes > EMBER_FORMAT_MAX_TIMELINE)
        fail(reader, "a timeline of %llu bytes is too large",
             (unsigned long long)reader->timeline_bytes);
    if (block->size > reader->largest_content)
        reader->largest_content = block->size;
}

static void survey(struct reader *reader)
{
    enum ember_format_kind last = EMBER_FORMAT_INFO;
    check_file_header(reader);
    size_t next = EMBER_FORMAT_HEADER_SIZE;
    for (uint32_t i = 0; reader->ok && i < reader->block_count; i++) {
        reader->block_at = next;
        next = find_block(reader);
        count_block(reader, &last);
    }
    if (!reader->ok)
        return;
    reader->block_at = next;
    if (next != reader->size)
        fail(reader, "%zu bytes after the last block", reader->size - next);
    for (int kind = EMBER_FORMAT_INFO; kind <= EMBER_FORMAT_METRICS; kind++)
        if (reader->blocks[kind] != 1)
            fail(reader, "%u blocks %s", reader->blocks[kind], ember_format_kinds[kind]);
}

static void allocate(struct reader *reader)
{
    struct ember_profile *profile = reader->profile = ember_profile_create();
    reader->zstd = ZSTD_createDCtx();
    reader->content = malloc(reader->largest_content + 1u);
    if (profile) {
        profile->functions =
            calloc(reader->items[EMBER_FORMAT_FUNCTIONS] + 1, sizeof *profile->functions);
        profile->processes =
            calloc(reader->items[EMBER_FORMAT_PROCESSES] + 1, sizeof *profile->processes);
        profile->nodes = calloc(reader->items[EMBER_FORMAT_NODES] + 1, sizeof *profile->nodes);
        if (reader->items[EMBER_FORMAT_TIMELINE] > 0)
            profile->timelines =
                ember_timelines_create((uint32_t)reader->items[EMBER_FORMAT_PROCESSES]);
    }
    if (!profile || !reader->zstd || !reader->content || !profile->functions ||
        !profile->processes || !profile->nodes ||
        (reader->items[EMBER_FORMAT_TIMELINE] > 0 && !profile->timelines))
        fail_memory(reader);
}

/* ---- contents ---- */

static uint64_t read_sum(struct reader *reader, const char *what)
{
    return read_number(reader, EMBER_FORMAT_MAX_SUM, what);
}

/* False: it is none. */
static bool read_sampled_field(struct reader *reader, uint64_t tag)
{
    struct ember_sampled *sampled = &reader->profile->info.sampled;
    switch (tag) {
    case EMBER_FORMAT_WINDOWS:
        sampled->windows = read_sum(reader, "windows");
        break;
    case EMBER_FORMAT_WINDOW_NS:
        sampled->window_ns = read_sum(reader, "windows' time");
        break;
    case EMBER_FORMAT_SPAN_NS:
        sampled->span_ns = read_sum(reader, "sampled time");
        break;
    case EMBER_FORMAT_COST_NS:
        sampled->cost_ns = read_sum(reader, "cost");
        break;
    case EMBER_FORMAT_SCHEDULERS:
        sampled->schedulers = read_small(reader, UINT16_MAX, "schedulers");
        break;
    case EMBER_FORMAT_BUDGET_PPM:
        sampled->budget_ppm = read_small(reader, 1000000, "budget");
        break;
    case EMBER_FORMAT_SEEN:
        sampled->seen = read_sum(reader, "processes");
        break;
    case EMBER_FORMAT_PRESENT:
        sampled->present = read_sum(reader, "processes");
        break;
    default:
        return false;
    }
    return true;
}

static void read_info_field(struct reader *reader, uint64_t tag, size_t size)
{
    struct ember_info *info = &reader->profile->info;
    switch (tag) {
    case EMBER_FORMAT_TARGET:
        info->target = read_bytes_as_text(reader, size);
        break;
    case EMBER_FORMAT_OTP_RELEASE:
        info->otp_release = read_bytes_as_text(reader, size);
        break;
    case EMBER_FORMAT_START_US:
        info->start_us = ember_format_unzigzag(
            read_number(reader, 2 * (uint64_t)EMBER_FORMAT_MAX_START_US, "start"));
        break;
    case EMBER_FORMAT_DURATION_NS:
        info->duration_ns = read_varint(reader);
        break;
    case EMBER_FORMAT_EVENTS:
        info->events = read_varint(reader);
        break;
    case EMBER_FORMAT_LOST:
        info->lost = read_varint(reader);
        break;
    case EMBER_FORMAT_COMPENSATED_NS:
        info->compensated_ns = read_varint(reader);
        break;
    case EMBER_FORMAT_RAW_NS:
        info->raw_ns = read_varint(reader);
        break;
    case EMBER_FORMAT_DEPTH_CUT:
        info->depth_cut = read_varint(reader);
        break;
    case EMBER_FORMAT_CALLS:
        info->calls = read_small(reader, UINT32_MAX, "calls");
        break;
    case EMBER_FORMAT_FALLBACKS:
        info->fallbacks = (uint32_t)read_varint(reader) & EMBER_FALLBACKS;
        break;
    case EMBER_FORMAT_OUTCOME:
        info->outcome = read_small(reader, EMBER_OUTCOME_RECORDED, "outcome");
        break;
    case EMBER_FORMAT_TIMELINE_CUT:
        reader->timeline_cut = read_number(reader, EMBER_FORMAT_MAX_SUM, "timeline cut");
        break;
    case EMBER_FORMAT_CUT_BY:
        info->cut_by = read_small(reader, EMBER_CUTS - 1, "reason");
        break;
    default:
        if (!read_sampled_field(reader, tag))
            reader->at += size;
        break;
    }
}

static void read_field(struct reader *reader)
{
    uint64_t tag = read_varint(reader);
    uint64_t size = read_varint(reader);
    if (!reader->ok)
        return;
    if (size > (uint64_t)(reader->end - reader->at)) {
        fail(reader, "a field of %llu bytes", (unsigned long long)size);
        return;
    }
    if (tag < EMBER_FORMAT_TAGS && reader->fields_seen & 1u << tag) {
        fail(reader, "field %llu stands twice", (unsigned long long)tag);
        return;
    }
    if (tag < EMBER_FORMAT_TAGS)
        reader->fields_seen |= 1u << tag;
    const unsigned char *end = reader->at + size;
    read_info_field(reader, tag, size);
    if (reader->at != end)
        fail(reader, "field %llu is not of its size", (unsigned long long)tag);
}

static const struct ember_format_metric *find_metric(const char *name)
{
    for (int i = 0; name && i < EMBER_FORMAT_KNOWN_METRICS; i++)
        if (strcmp(ember_format_metrics[i].name, name) == 0)
            return &ember_format_metrics[i];
    return NULL;
}

static void read_metric(struct reader *reader)
{
    char *name = read_text(reader);
    char *unit = read_text(reader);
    uint32_t sign = read_small(reader, EMBER_FORMAT_SIGNED, "sign");
    const struct ember_format_metric *metric = find_metric(name);
    for (uint32_t i = 0; metric && i < reader->metric_count; i++)
        if (reader->metrics[i] == metric)
            fail(reader, "metric %s stands twice", metric->name);
    if (metric && unit && (metric->sign != sign || strcmp(metric->unit, unit) != 0))
        fail(reader, "metric %s in an unknown unit", metric->name);
    free(name);
    free(unit);
    reader->metrics[reader->metric_count] = metric;
    reader->metric_signs |= (uint64_t)sign << reader->metric_count++;
}

static void read_function(struct reader *reader)
{
    struct ember_function *function =
        &reader->profile->functions[reader->profile->function_count++];
    function->module = read_text(reader);
    function->name = read_text(reader);
    function->text = read_text(reader);
    function->arity = (uint8_t)read_small(reader, UINT8_MAX, "arity");
}

static uint32_t last_index(const struct reader *reader, enum ember_format_kind kind)
{
    return (uint32_t)reader->items[kind] - 1;
}

static void read_process(struct reader *reader)
{
    struct ember_process *process = &reader->profile->processes[reader->profile->process_count++];
    process->pid_text = read_text(reader);
    process->name = read_maybe_text(reader);
    process->label = read_maybe_text(reader);
    process->parent =
        read_small(reader, (uint32_t)reader->items[EMBER_FORMAT_PROCESSES], "parent") - 1;
    if (reader->items[EMBER_FORMAT_NODES] == 0)
        fail(reader, "a process without a root");
    else
        process->root = read_small(reader, last_index(reader, EMBER_FORMAT_NODES), "root");
    process->exited = read_varint(reader) & 1;
}

static void read_ancestors(struct reader *reader)
{
    if (reader->items[EMBER_FORMAT_PROCESSES] == 0) {
        fail(reader, "ancestors of nobody");
        return;
    }
    uint32_t process = read_small(reader, last_index(reader, EMBER_FORMAT_PROCESSES), "process");
    char *text = read_text(reader);
    if (reader->ok && reader->profile->processes[process].ancestors)
        fail(reader, "process %u has ancestors already", process);
    if (reader->ok)
        reader->profile->processes[process].ancestors = text;
    else
        free(text);
}

static void read_parents(struct reader *reader, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; reader->ok && i < first + count; i++) {
        uint32_t distance = read_small(reader, i, "distance");
        reader->profile->nodes[i].parent = distance == 0 ? EMBER_NONE : i - distance;
    }
}

static uint32_t read_subject(struct reader *reader, enum ember_format_kind kind, const char *what)
{
    if (reader->items[kind] > 0)
        return read_small(reader, last_index(reader, kind), what);
    fail(reader, "a stack without a %s", what);
    return 0;
}

static void read_subjects(struct reader *reader, uint32_t first, uint32_t count)
{
    struct ember_node *nodes = reader->profile->nodes;
    for (uint32_t i = first; reader->ok && i < first + count; i++) {
        struct ember_node *node = &nodes[i];
        bool root = node->parent == EMBER_NONE;
        node->process = root ? read_subject(reader, EMBER_FORMAT_PROCESSES, "process")
                             : nodes[node->parent].process;
        node->function = root ? EMBER_NONE
                              : read_subject(reader, EMBER_FORMAT_FUNCTIONS, "function");
    }
}

static uint64_t magnitude(uint64_t bits, bool is_signed)
{
    return is_signed && (int64_t)bits < 0 ? -bits : bits;
}

static void read_column(struct reader *reader, uint32_t column, uint32_t first, uint32_t count)
{
    const struct ember_format_metric *metric = reader->metrics[column];
    bool is_signed = reader->metric_signs >> column & 1;
    for (uint32_t i = first; reader->ok && i < first + count; i++) {
        uint64_t bits = read_varint(reader);
        if (!metric)
            continue;
        if (is_signed)
            bits = (uint64_t)ember_format_unzigzag(bits);
        uint64_t room = EMBER_FORMAT_MAX_SUM - reader->sums[column];
        if (magnitude(bits, is_signed) > room) {
            fail(reader, "the sum of metric %s is too large", metric->name);
            return;
        }
        reader->sums[column] += magnitude(bits, is_signed);
        memcpy((char *)&reader->profile->nodes[i].own + metric->offset, &bits, sizeof bits);
    }
}

static void read_nodes(struct reader *reader)
{
    uint32_t first = reader->profile->node_count;
    uint32_t count = reader->block.items;
    read_parents(reader, first, count);
    read_subjects(reader, first, count);
    for (uint32_t column = 0; column < reader->metric_count; column++)
        read_column(reader, column, first, count);
    reader->profile->node_count += count;
}

/* Adds a span to the process's timeline and returns when it ends. */
static uint64_t read_span(struct reader *reader, uint32_t process, uint64_t time)
{
    const struct ember_profile *profile = reader->profile;
    uint64_t most = (uint64_t)profile->node_count * EMBER_STATES;
    uint64_t where = read_number(reader, most > 0 ? most - 1 : 0, "span");
    uint64_t length = read_number(reader, EMBER_FORMAT_MAX_SUM - time, "length");
    if (reader->ok && length == 0)
        fail(reader, "a span without a length");
    if (reader->ok && profile->nodes[where / EMBER_STATES].process != process)
        fail(reader, "a span on a stack of another process");
    struct ember_span span = {(uint32_t)(where / EMBER_STATES),
                              (enum ember_state)(where % EMBER_STATES), length};
    if (reader->ok && !ember_timeline_add(&profile->timelines->processes[process], span, SIZE_MAX))
        fail_memory(reader);
    return time + length;
}

/* The blocks of a process follow one another, in place and in time. */
static void read_timeline(struct reader *reader)
{
    if (reader->block.items == 0 || reader->items[EMBER_FORMAT_PROCESSES] == 0 ||
        reader->profile->node_count == 0) {
        fail(reader, "a timeline of nothing");
        return;
    }
    uint32_t process = read_small(reader, last_index(reader, EMBER_FORMAT_PROCESSES), "process");
    uint64_t time = read_number(reader, EMBER_FORMAT_MAX_SUM, "start");
    if (!reader->ok)
        return;
    struct ember_timeline *timeline = &reader->profile->timelines->processes[process];
    if (process < reader->timeline_process)
        fail(reader, "the timeline of process %u after that of process %u", process,
             reader->timeline_process);
    else if (timeline->spans > 0 && reader->timeline_end != time)
        fail(reader, "a gap in the timeline of process %u", process);
    if (timeline->spans == 0)
        timeline->start = time;
    reader->timeline_process = process;
    for (uint32_t i = 0; reader->ok && i < reader->block.items; i++)
        time = read_span(reader, process, time);
    reader->timeline_end = time;
}

/* ---- the second pass ---- */

/* Leaves the content in `content`, from `at` to `end`. */
static void decompress(struct reader *reader)
{
    const struct block *block = &reader->block;
    const unsigned char *frame = block->frame;
    reader->content_at = NO_OFFSET;
    if (block->stored < 6 || ember_format_get(frame, 4) != FRAME_MAGIC ||
        ZSTD_findFrameCompressedSize(frame, block->stored) != block->stored) {
        fail(reader, "the block is not one zstd frame");
        return;
    }
    if (!(frame[4] & FRAME_HAS_CHECKSUM) ||
        ZSTD_getFrameContentSize(frame, block->stored) != block->size) {
        fail(reader, "the frame's size is another than the block's, or it has no checksum");
        return;
    }
    size_t size =
        ZSTD_decompressDCtx(reader->zstd, reader->content, block->size, frame, block->stored);
    if (ZSTD_isError(size))
        fail(reader, "the block does not decompress: %s", ZSTD_getErrorName(size));
    else if (size != block->size)
        fail(reader, "the block decompresses to %zu bytes of %u", size, block->size);
    reader->at = reader->content;
    reader->end = reader->content + block->size;
}

static void read_items(struct reader *reader, void (*read_item)(struct reader *))
{
    for (uint32_t i = 0; reader->ok && i < reader->block.items; i++)
        read_item(reader);
}

static void read_content(struct reader *reader)
{
    switch (reader->block.kind) {
    case EMBER_FORMAT_INFO:
        read_items(reader, read_field);
        break;
    case EMBER_FORMAT_METRICS:
        read_items(reader, read_metric);
        break;
    case EMBER_FORMAT_FUNCTIONS:
        read_items(reader, read_function);
        break;
    case EMBER_FORMAT_PROCESSES:
        read_items(reader, read_process);
        break;
    case EMBER_FORMAT_NODES:
        read_nodes(reader);
        break;
    case EMBER_FORMAT_ANCESTORS:
        read_items(reader, read_ancestors);
        break;
    case EMBER_FORMAT_TIMELINE:
    case EMBER_FORMAT_KINDS:
        read_timeline(reader);
        break;
    }
    if (reader->at != reader->end)
        fail(reader, "%zu bytes are left over", (size_t)(reader->end - reader->at));
}

static void read_blocks(struct reader *reader)
{
    size_t next = EMBER_FORMAT_HEADER_SIZE;
    for (uint32_t i = 0; reader->ok && i < reader->block_count; i++) {
        reader->block_at = next;
        next = find_block(reader);
        if (reader->block.skipped)
            continue;
        decompress(reader);
        if (reader->ok)
            read_content(reader);
    }
}

/* ---- what concerns more than one block ---- */

/* Walks from each process to its ancestors, up to where a walk has been. */
static bool has_cycle(const struct ember_profile *profile, uint32_t *walks)
{
    for (uint32_t i = 0; i < profile->process_count; i++) {
        uint32_t at = i;
        for (; at != EMBER_NONE && walks[at] == 0; at = profile->processes[at].parent)
            walks[at] = i + 1;
        if (at != EMBER_NONE && walks[at] == i + 1)
            return true;
    }
    return false;
}

static void check_processes(struct reader *reader)
{
    const struct ember_profile *profile = reader->profile;
    for (uint32_t i = 0; i < profile->process_count; i++) {
        const struct ember_node *root = &profile->nodes[profile->processes[i].root];
        if (root->parent != EMBER_NONE || root->process != i)
            fail(reader, "stack %u is not the root of process %u", profile->processes[i].root, i);
    }
    uint32_t *walks = calloc(profile->process_count + 1u, sizeof *walks);
    if (!walks)
        fail_memory(reader);
    else if (has_cycle(profile, walks))
        fail(reader, "a process descends from itself");
    free(walks);
    if (reader->ok && !ember_profile_check(profile))
        fail(reader, "an index is out of range");
}

struct ember_profile *ember_profile_read(const void *data, size_t size,
                                         struct ember_read_error *error)
{
    struct reader reader = {
        .data = data, .size = size, .error = error, .ok = true, .content_at = NO_OFFSET};
    *error = (struct ember_read_error){0};
    survey(&reader);
    if (reader.ok)
        allocate(&reader);
    if (reader.ok)
        read_blocks(&reader);
    reader.block_at = reader.content_at = NO_OFFSET;
    if (reader.ok)
        check_processes(&reader);
    if (reader.ok && reader.profile->timelines)
        reader.profile->timelines->cut_ns = reader.timeline_cut;
    ZSTD_freeDCtx(reader.zstd);
    free(reader.content);
    if (reader.ok)
        return reader.profile;
    ember_profile_destroy(reader.profile);
    return NULL;
}
