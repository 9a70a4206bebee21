/* SPDX-License-Identifier: Apache-2.0
 *
 * Each kind's content grows in a sink of its own; where it is long enough it is
 * compressed straight into the file. The file's header is filled in at the end.
 */
#include "profile_write.h"

#include "profile_format.h"
#include "utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum { NODES_PER_BLOCK = 1 << 16, BYTES_PER_BLOCK = 1 << 20 };

struct writer {
    const struct ember_profile *profile;
    struct ember_sink *sink;
    struct ember_sink content; /* of the block under construction */
    uint32_t items;            /* in it */
    uint32_t blocks;           /* written */
    ZSTD_CCtx *zstd;
    int error;
};

static void fail(struct writer *writer, int error)
{
    if (writer->error == 0)
        writer->error = error;
}

/* ---- blocks ---- */

/* Room for `size` bytes at the end of the sink, which are not counted yet. */
static char *reserve(struct ember_sink *sink, size_t size)
{
    static const char zeros[4096];
    size_t before = sink->size;
    while (!sink->failed && sink->size - before < size) {
        size_t missing = size - (sink->size - before);
        ember_sink_bytes(sink, zeros, missing < sizeof zeros ? missing : sizeof zeros);
    }
    if (sink->failed)
        return NULL;
    sink->size = before;
    return sink->data + before;
}

static void put_block_header(char *at, enum ember_format_kind kind, const struct writer *writer,
                             size_t stored)
{
    unsigned char *header = (unsigned char *)at;
    memcpy(header, ember_format_kinds[kind], 4);
    ember_format_put(header + 4, 4, writer->items);
    ember_format_put(header + 8, 4, stored);
    ember_format_put(header + 12, 4, writer->content.size);
    ember_format_put(header + 16, 4, 0);
    ember_format_put(header + 20, 4, ember_format_crc(header, 20));
}

static void end_block(struct writer *writer, enum ember_format_kind kind)
{
    struct ember_sink *content = &writer->content;
    size_t bound = ZSTD_compressBound(content->size);
    char *at = reserve(writer->sink, EMBER_FORMAT_BLOCK_HEADER_SIZE + bound);
    if (!at || content->failed) {
        fail(writer, -ENOMEM);
        return;
    }
    size_t stored = ZSTD_compress2(writer->zstd, at + EMBER_FORMAT_BLOCK_HEADER_SIZE, bound,
                                   content->data, content->size);
    if (ZSTD_isError(stored)) {
        fail(writer, -ENOMEM);
        return;
    }
    put_block_header(at, kind, writer, stored);
    writer->sink->size += EMBER_FORMAT_BLOCK_HEADER_SIZE + stored;
    writer->blocks++;
    writer->items = 0;
    content->size = 0;
}

static void end_item(struct writer *writer, enum ember_format_kind kind)
{
    writer->items++;
    if (writer->content.size >= BYTES_PER_BLOCK)
        end_block(writer, kind);
}

/* ---- contents ---- */

static void put_varint(struct ember_sink *content, uint64_t value)
{
    unsigned char bytes[10];
    size_t size = 0;
    for (; value >= 0x80; value >>= 7)
        bytes[size++] = (unsigned char)(value | 0x80);
    bytes[size++] = (unsigned char)value;
    ember_sink_bytes(content, bytes, size);
}

/* `extra` is added to the size: see put_maybe_text. */
static void put_sized_text(struct ember_sink *content, const char *text, uint64_t extra)
{
    size_t size = ember_utf8_prefix(text, strlen(text), EMBER_FORMAT_MAX_TEXT);
    put_varint(content, ember_utf8_written_size(text, size) + extra);
    ember_utf8_write(content, text, size);
}

static void put_text(struct ember_sink *content, const char *text)
{
    put_sized_text(content, text, 0);
}

static void put_maybe_text(struct ember_sink *content, const char *text)
{
    if (text)
        put_sized_text(content, text, 1);
    else
        put_varint(content, 0);
}

static void put_text_field(struct writer *writer, enum ember_format_tag tag, const char *text)
{
    if (!text)
        return;
    put_varint(&writer->content, tag);
    put_text(&writer->content, text);
    writer->items++;
}

static void put_number_field(struct writer *writer, enum ember_format_tag tag, uint64_t number)
{
    uint64_t size = 1;
    for (uint64_t rest = number; rest >= 0x80; rest >>= 7)
        size++;
    put_varint(&writer->content, tag);
    put_varint(&writer->content, size);
    put_varint(&writer->content, number);
    writer->items++;
}

static void write_sampled(struct writer *writer, const struct ember_sampled *sampled)
{
    put_number_field(writer, EMBER_FORMAT_WINDOWS, sampled->windows);
    put_number_field(writer, EMBER_FORMAT_WINDOW_NS, sampled->window_ns);
    put_number_field(writer, EMBER_FORMAT_SPAN_NS, sampled->span_ns);
    put_number_field(writer, EMBER_FORMAT_COST_NS, sampled->cost_ns);
    put_number_field(writer, EMBER_FORMAT_SCHEDULERS, sampled->schedulers);
    put_number_field(writer, EMBER_FORMAT_BUDGET_PPM, sampled->budget_ppm);
    put_number_field(writer, EMBER_FORMAT_SEEN, sampled->seen);
    put_number_field(writer, EMBER_FORMAT_PRESENT, sampled->present);
}

static void write_info(struct writer *writer)
{
    const struct ember_info *info = &writer->profile->info;
    put_text_field(writer, EMBER_FORMAT_TARGET, info->target);
    put_text_field(writer, EMBER_FORMAT_OTP_RELEASE, info->otp_release);
    put_number_field(writer, EMBER_FORMAT_START_US, ember_format_zigzag(info->start_us));
    put_number_field(writer, EMBER_FORMAT_DURATION_NS, info->duration_ns);
    put_number_field(writer, EMBER_FORMAT_EVENTS, info->events);
    put_number_field(writer, EMBER_FORMAT_LOST, info->lost);
    put_number_field(writer, EMBER_FORMAT_COMPENSATED_NS, info->compensated_ns);
    put_number_field(writer, EMBER_FORMAT_RAW_NS, info->raw_ns);
    put_number_field(writer, EMBER_FORMAT_DEPTH_CUT, info->depth_cut);
    put_number_field(writer, EMBER_FORMAT_CALLS, info->calls);
    put_number_field(writer, EMBER_FORMAT_FALLBACKS, info->fallbacks);
    put_number_field(writer, EMBER_FORMAT_OUTCOME, info->outcome);
    if (writer->profile->timelines && writer->profile->timelines->cut_ns > 0)
        put_number_field(writer, EMBER_FORMAT_TIMELINE_CUT, writer->profile->timelines->cut_ns);
    if (info->cut_by != EMBER_CUT_NONE)
        put_number_field(writer, EMBER_FORMAT_CUT_BY, info->cut_by);
    if (info->sampled.windows > 0)
        write_sampled(writer, &info->sampled);
    end_block(writer, EMBER_FORMAT_INFO);
}

static void write_metrics(struct writer *writer)
{
    for (int i = 0; i < EMBER_FORMAT_KNOWN_METRICS; i++) {
        put_text(&writer->content, ember_format_metrics[i].name);
        put_text(&writer->content, ember_format_metrics[i].unit);
        put_varint(&writer->content, ember_format_metrics[i].sign);
        writer->items++;
    }
    end_block(writer, EMBER_FORMAT_METRICS);
}

static void write_functions(struct writer *writer)
{
    const struct ember_profile *profile = writer->profile;
    for (uint32_t i = 0; i < profile->function_count && writer->error == 0; i++) {
        const struct ember_function *function = &profile->functions[i];
        put_text(&writer->content, function->module);
        put_text(&writer->content, function->name);
        put_text(&writer->content, function->text);
        put_varint(&writer->content, function->arity);
        end_item(writer, EMBER_FORMAT_FUNCTIONS);
    }
    if (writer->items > 0)
        end_block(writer, EMBER_FORMAT_FUNCTIONS);
}

static void write_processes(struct writer *writer)
{
    const struct ember_profile *profile = writer->profile;
    for (uint32_t i = 0; i < profile->process_count && writer->error == 0; i++) {
        const struct ember_process *process = &profile->processes[i];
        put_text(&writer->content, process->pid_text);
        put_maybe_text(&writer->content, process->name);
        put_maybe_text(&writer->content, process->label);
        put_varint(&writer->content,
                   process->parent == EMBER_NONE ? 0 : (uint64_t)process->parent + 1);
        put_varint(&writer->content, process->root);
        put_varint(&writer->content, process->exited);
        end_item(writer, EMBER_FORMAT_PROCESSES);
    }
    if (writer->items > 0)
        end_block(writer, EMBER_FORMAT_PROCESSES);
}

static void put_metric_column(struct writer *writer, const struct ember_format_metric *metric,
                              uint32_t begin, uint32_t end)
{
    for (uint32_t i = begin; i < end; i++) {
        uint64_t bits;
        memcpy(&bits, (const char *)&writer->profile->nodes[i].own + metric->offset, sizeof bits);
        put_varint(&writer->content,
                   metric->sign == EMBER_FORMAT_SIGNED ? ember_format_zigzag((int64_t)bits) : bits);
    }
}

static void write_node_block(struct writer *writer, uint32_t begin, uint32_t end)
{
    const struct ember_node *nodes = writer->profile->nodes;
    for (uint32_t i = begin; i < end; i++)
        put_varint(&writer->content, nodes[i].parent == EMBER_NONE ? 0 : i - nodes[i].parent);
    for (uint32_t i = begin; i < end; i++)
        put_varint(&writer->content,
                   nodes[i].parent == EMBER_NONE ? nodes[i].process : nodes[i].function);
    for (int i = 0; i < EMBER_FORMAT_KNOWN_METRICS; i++)
        put_metric_column(writer, &ember_format_metrics[i], begin, end);
    writer->items = end - begin;
    end_block(writer, EMBER_FORMAT_NODES);
}

static void write_nodes(struct writer *writer)
{
    uint32_t count = writer->profile->node_count;
    for (uint32_t begin = 0; begin < count && writer->error == 0; begin += NODES_PER_BLOCK) {
        uint32_t left = count - begin;
        write_node_block(writer, begin, begin + (left < NODES_PER_BLOCK ? left : NODES_PER_BLOCK));
    }
}

static void begin_timeline_block(struct writer *writer, uint32_t process, uint64_t start)
{
    put_varint(&writer->content, process);
    put_varint(&writer->content, start);
}

static void write_timeline(struct writer *writer, uint32_t process)
{
    struct ember_timeline_reader reader =
        ember_timeline_read(&writer->profile->timelines->processes[process]);
    struct ember_span span;
    while (writer->error == 0 && ember_timeline_next(&reader, &span)) {
        if (writer->items == 0)
            begin_timeline_block(writer, process, reader.time - span.length);
        put_varint(&writer->content, (uint64_t)span.node * EMBER_STATES + span.state);
        put_varint(&writer->content, span.length);
        end_item(writer, EMBER_FORMAT_TIMELINE);
    }
    if (writer->items > 0)
        end_block(writer, EMBER_FORMAT_TIMELINE);
}

static void write_timelines(struct writer *writer)
{
    const struct ember_timelines *timelines = writer->profile->timelines;
    for (uint32_t i = 0; timelines && i < timelines->count; i++)
        write_timeline(writer, i);
}

static void write_ancestors(struct writer *writer)
{
    const struct ember_profile *profile = writer->profile;
    for (uint32_t i = 0; i < profile->process_count && writer->error == 0; i++) {
        if (!profile->processes[i].ancestors)
            continue;
        put_varint(&writer->content, i);
        put_text(&writer->content, profile->processes[i].ancestors);
        end_item(writer, EMBER_FORMAT_ANCESTORS);
    }
    if (writer->items > 0)
        end_block(writer, EMBER_FORMAT_ANCESTORS);
}

/* ---- the file ---- */

static uint64_t timeline_size(const struct ember_profile *profile)
{
    const struct ember_timelines *timelines = profile->timelines;
    uint64_t size = 0;
    for (uint32_t i = 0; timelines && i < timelines->count; i++)
        size += timelines->processes[i].size;
    return size;
}

static bool has_timeline(const struct ember_profile *profile)
{
    return timeline_size(profile) > 0;
}

static uint64_t minor_version(const struct ember_profile *profile)
{
    for (uint32_t i = 0; i < profile->process_count; i++)
        if (profile->processes[i].ancestors)
            return EMBER_FORMAT_MINOR_ANCESTORS;
    if (profile->info.sampled.windows > 0)
        return EMBER_FORMAT_MINOR_SAMPLED;
    return has_timeline(profile) ? EMBER_FORMAT_MINOR_TIMELINE : EMBER_FORMAT_MINOR;
}

static void put_file_header(struct writer *writer, size_t begin)
{
    unsigned char *header = (unsigned char *)writer->sink->data + begin;
    memcpy(header, EMBER_FORMAT_MAGIC, 8);
    ember_format_put(header + 8, 2, EMBER_FORMAT_MAJOR);
    ember_format_put(header + 10, 2, minor_version(writer->profile));
    ember_format_put(header + 12, 4, writer->blocks);
    ember_format_put(header + 16, 8, writer->sink->size - begin);
    ember_format_put(header + 24, 4, 0);
    ember_format_put(header + 28, 4, ember_format_crc(header, 28));
}

static bool fits(const struct ember_profile *profile)
{
    return profile->function_count <= EMBER_FORMAT_MAX_FUNCTIONS &&
           profile->process_count <= EMBER_FORMAT_MAX_PROCESSES &&
           profile->node_count <= EMBER_FORMAT_MAX_NODES &&
           timeline_size(profile) <= EMBER_FORMAT_MAX_TIMELINE / 2;
}

static void write_file(struct writer *writer)
{
    size_t begin = writer->sink->size;
    if (!reserve(writer->sink, EMBER_FORMAT_HEADER_SIZE)) {
        fail(writer, -ENOMEM);
        return;
    }
    writer->sink->size += EMBER_FORMAT_HEADER_SIZE;
    write_info(writer);
    write_metrics(writer);
    write_functions(writer);
    write_processes(writer);
    write_nodes(writer);
    write_timelines(writer);
    write_ancestors(writer);
    if (writer->error == 0 && writer->sink->size - begin > EMBER_FORMAT_MAX_FILE)
        fail(writer, -EFBIG);
    if (writer->error == 0)
        put_file_header(writer, begin);
}

int ember_profile_write(const struct ember_profile *profile, struct ember_sink *sink)
{
    struct writer writer = {.profile = profile, .sink = sink};
    if (profile->before)
        return -EINVAL;
    if (!fits(profile))
        return -EFBIG;
    ember_sink_init(&writer.content);
    writer.zstd = ZSTD_createCCtx();
    if (writer.zstd) {
        ZSTD_CCtx_setParameter(writer.zstd, ZSTD_c_checksumFlag, 1);
        write_file(&writer);
    } else {
        fail(&writer, -ENOMEM);
    }
    ZSTD_freeCCtx(writer.zstd);
    ember_sink_fini(&writer.content);
    return writer.error;
}
