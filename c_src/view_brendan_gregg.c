/* SPDX-License-Identifier: Apache-2.0
 *
 * Collapsed stacks: one line a stack, frames root first and joined by ';',
 * a space, a whole number. flamegraph.pl, speedscope and others read it.
 *
 * The readers split at ';' and at the last space, and take "frame 3 10" for a
 * pair of numbers, so these characters cannot stand in a frame. Times are in
 * microseconds: some readers make one sample of each unit. What a stack has below
 * that is carried to the next, so that it is not lost where there are many small
 * stacks: every stack's time with callees is right to a microsecond.
 *
 * A comparison has two numbers a line, before and after, as difffolded.pl writes
 * them and flamegraph.pl draws them.
 */
#include "outline.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>

/* A line has the whole stack in it. */
static const struct ember_outline_limits common_limits = {
    .stacks = UINT32_MAX,
    .processes = UINT32_MAX,
    .depth = 4000,
    .values = UINT64_MAX,
    .frames = UINT64_MAX,
    .text = 80000000,
};

struct file {
    struct ember_outline outline;
    struct ember_sink *sink;
    struct ember_sink text;
    struct ember_sink stack; /* of the row that is written */
    size_t *ends;            /* where the frame at each depth ends in it */
    uint64_t carry[2];       /* ns, by side */
};

static void write_frame(struct ember_sink *stack, const char *name)
{
    size_t start = stack->size;
    ember_utf8_write_word(stack, name);
    for (size_t i = start; i < stack->size; i++)
        if (stack->data[i] == ';')
            stack->data[i] = ':';
}

static void enter_row(struct file *file, uint32_t row)
{
    const struct ember_profile *profile = file->outline.profile;
    uint32_t depth = file->outline.rows[row].depth;
    file->stack.size = depth > 0 ? file->ends[depth - 1] : 0;
    if (depth > 0) {
        ember_sink_text(&file->stack, ";");
        write_frame(&file->stack,
                    profile->functions[profile->nodes[file->outline.rows[row].node].function].text);
    } else {
        write_frame(&file->stack, ember_outline_title(&file->outline, row, &file->text));
    }
    file->ends[depth] = file->stack.size;
}

static void write_line(struct file *file, const char *pseudo, uint64_t before, uint64_t after)
{
    if (before == 0 && after == 0)
        return;
    ember_sink_bytes(file->sink, file->stack.data, file->stack.size);
    if (pseudo) {
        ember_sink_text(file->sink, ";");
        ember_sink_text(file->sink, pseudo);
    }
    if (file->outline.profile->before) {
        ember_sink_text(file->sink, " ");
        ember_sink_unsigned(file->sink, before);
    }
    ember_sink_text(file->sink, " ");
    ember_sink_unsigned(file->sink, after);
    ember_sink_text(file->sink, "\n");
}

static uint64_t in_unit(struct file *file, enum ember_metric metric, enum ember_side side,
                        uint64_t value)
{
    if (metric != EMBER_METRIC_OWN_TIME)
        return value;
    uint64_t sum = file->carry[side] + value;
    file->carry[side] = sum % 1000;
    return sum / 1000;
}

static void write_rows(struct file *file, enum ember_metric metric)
{
    for (uint32_t row = 0; row < file->outline.count; row++) {
        struct ember_change changes[EMBER_MAX_SLICES];
        unsigned count = ember_outline_changes(&file->outline, row, metric, changes);
        enter_row(file, row);
        for (unsigned i = 0; i < count && !file->stack.failed; i++)
            write_line(file, changes[i].frame,
                       in_unit(file, metric, EMBER_BEFORE, changes[i].before),
                       in_unit(file, metric, EMBER_AFTER, changes[i].after));
    }
}

static void write_view(const struct ember_profile *profile,
                       const struct ember_view_options *options, struct ember_sink *sink)
{
    struct file file = {.sink = sink, .carry = {500, 500}};
    struct ember_outline_limits limits = common_limits;
    limits.metrics = 1u << options->metric;
    if (ember_outline_init(&file.outline, profile, &limits) &&
        (file.ends = calloc((size_t)file.outline.depth + 1, sizeof file.ends[0])))
        write_rows(&file, options->metric);
    else
        sink->failed = true;
    sink->failed |= file.text.failed || file.stack.failed;
    free(file.ends);
    ember_outline_fini(&file.outline);
    ember_sink_fini(&file.text);
    ember_sink_fini(&file.stack);
}

const struct ember_view ember_view_brendan_gregg = {
    .name = "brendan_gregg",
    .extension = "bggg",
    .compares = true,
    .write = write_view,
};
