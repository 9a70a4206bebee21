/* SPDX-License-Identifier: Apache-2.0
 *
 * Text as `perf script` prints it, for the viewers that read that. Each stack is
 * sampled where its time begins and where it ends, stacks lie one after the other, and
 * the two periods add up to what the stack has: readers that go by times and those that
 * go by periods find the same.
 *
 * Readers split lines at blanks, so there is none in what stands for the command, a
 * process, and for the object, a module.
 */
#include "outline.h"
#include "utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A line for every frame of every stack, twice: files would grow beyond all use. */
static const struct ember_outline_limits common_limits = {
    .stacks = 100000,
    .processes = 10000,
    .depth = 1000,
    .values = 50000,
    .frames = 400000,
    .text = 20000000,
};

static const char *const events[] = {
    [EMBER_METRIC_OWN_TIME] = "time-ns",
    [EMBER_METRIC_WORDS] = "words",
    [EMBER_METRIC_CALLS] = "calls",
    [EMBER_METRIC_BINARIES] = "binary-bytes",
};

struct file {
    struct ember_outline outline;
    struct ember_sink *sink;
    struct ember_sink text;
    enum ember_metric metric;
    struct ember_sink lines; /* of frames, one after the other */
    size_t *line_of;         /* of each function: where its line is; 0: not yet written */
    uint32_t *path;          /* functions of the stack of a row */
    uint32_t process;        /* counted from 1 */
    uint64_t now;
};

/* ---- Samples ------------------------------------------------------------- */

/* Where in `lines` the frame's line begins. */
static size_t make_line(struct file *file, uint64_t address, const char *name, const char *object)
{
    size_t at = file->lines.size;
    ember_sink_printf(&file->lines, "\t%8" PRIx64 " ", address);
    ember_utf8_write_line(&file->lines, name[0] ? name : "?");
    ember_sink_text(&file->lines, " (");
    ember_utf8_write_word(&file->lines, object);
    ember_sink_text(&file->lines, ")\n");
    return at;
}

static void write_line(struct file *file, size_t at)
{
    if (file->lines.failed)
        return;
    const char *line = file->lines.data + at;
    const char *end = memchr(line, '\n', file->lines.size - at);
    ember_sink_bytes(file->sink, line, (size_t)(end + 1 - line));
}

static void write_function(struct file *file, uint32_t function)
{
    const struct ember_function *named = &file->outline.profile->functions[function];
    if (file->line_of[function] == 0)
        file->line_of[function] =
            make_line(file, ((uint64_t)function + 1) * 16, named->text, named->module);
    write_line(file, file->line_of[function]);
}

static void write_stack(struct file *file, uint32_t depth, const char *pseudo)
{
    if (pseudo || depth == 0)
        ember_sink_printf(file->sink, "\t%8d %s ([emberl])\n", 1,
                          pseudo ? pseudo : "[no function]");
    for (; depth > 0; depth--)
        write_function(file, file->path[depth]);
    ember_sink_text(file->sink, "\n");
}

/* `command` is the process, as one word. */
static void write_sample(struct file *file, const char *command, uint64_t period)
{
    struct ember_sink *sink = file->sink;
    ember_sink_text(sink, command);
    ember_sink_printf(
        sink, " %5" PRIu32 "/%-5" PRIu32 " [000] %5" PRIu64 ".%09" PRIu64 ": %10" PRIu64 " %s: \n",
        file->process, file->process, file->now / 1000000000, file->now % 1000000000, period,
        events[file->metric]);
}

static void write_rows(struct file *file, uint32_t first, uint32_t rows, const char *command)
{
    for (uint32_t i = first; i < first + rows; i++) {
        const struct ember_row *row = &file->outline.rows[i];
        struct ember_slice slices[EMBER_MAX_SLICES];
        unsigned count = ember_outline_slices(&file->outline, i, file->metric, slices);
        if (row->depth > 0)
            file->path[row->depth] = file->outline.profile->nodes[row->node].function;
        for (unsigned j = 0; j < count; j++) {
            write_sample(file, command, slices[j].value - slices[j].value / 2);
            write_stack(file, row->depth, slices[j].frame);
            file->now += slices[j].value;
            write_sample(file, command, slices[j].value / 2);
            write_stack(file, row->depth, slices[j].frame);
        }
    }
}

static void write_processes(struct file *file)
{
    struct ember_sink command = {0};
    for (uint32_t row = 0; row < file->outline.count;) {
        uint32_t rows = ember_outline_extent(&file->outline, row);
        command.size = 0;
        ember_utf8_write_word(&command, ember_outline_title(&file->outline, row, &file->text));
        ember_sink_bytes(&command, "", 1);
        file->process++;
        if (!command.failed)
            write_rows(file, row, rows, command.data);
        row += rows;
    }
    file->sink->failed |= command.failed;
    ember_sink_fini(&command);
}

/* ---- File ---------------------------------------------------------------- */

static void write_comment(struct file *file, const char *name, const char *text)
{
    ember_sink_printf(file->sink, "# %-15s: ", name);
    ember_utf8_write_line(file->sink, text);
    ember_sink_text(file->sink, "\n");
}

/* Readers know the text by the first two lines. */
static void write_header(struct file *file)
{
    const struct ember_profile *profile = file->outline.profile;
    time_t start = (time_t)(profile->info.start_us / 1000000);
    struct tm tm;
    char when[64] = "";
    if (gmtime_r(&start, &tm))
        strftime(when, sizeof when, "%a %b %e %H:%M:%S %Y", &tm);
    ember_sink_text(file->sink, "# ========\n");
    ember_sink_printf(file->sink, "# captured on    : %s\n", when);
    write_comment(file, "emberl", ember_view_heading(profile, &file->text));
    write_comment(file, "layout", "stacks one after the other: sums, not when they ran");
    const char *caveats = ember_view_caveats(profile, &file->outline, &file->text);
    if (caveats[0])
        write_comment(file, "mind", caveats);
    ember_sink_text(file->sink, "# ========\n#\n\n");
}

static void write_view(const struct ember_profile *profile,
                       const struct ember_view_options *options, struct ember_sink *sink)
{
    struct file file = {.sink = sink, .metric = options->metric};
    struct ember_outline_limits limits = common_limits;
    limits.metrics = 1u << options->metric;
    if (ember_outline_init(&file.outline, profile, &limits) &&
        (file.path = calloc((size_t)file.outline.depth + 1, sizeof file.path[0])) &&
        (file.line_of = calloc((size_t)profile->function_count + 1, sizeof file.line_of[0]))) {
        ember_sink_text(&file.lines, "\n"); /* no line begins at 0 */
        write_header(&file);
        write_processes(&file);
    } else {
        sink->failed = true;
    }
    sink->failed |= file.text.failed || file.lines.failed;
    free(file.path);
    free(file.line_of);
    ember_sink_fini(&file.lines);
    ember_outline_fini(&file.outline);
    ember_sink_fini(&file.text);
}

const struct ember_view ember_view_perf_script = {
    .name = "perf_script",
    .extension = "linux-perf.txt",
    .write = write_view,
};
