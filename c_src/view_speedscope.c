/* SPDX-License-Identifier: Apache-2.0
 *
 * speedscope's own format: one sampled profile for each process and metric, with
 * exact weights. It can be chosen in the title bar which is shown.
 *
 * Where a timeline was recorded there is an evented profile for each process, too:
 * what happened when, tracing's own cost included.
 *
 * All stacks of a process start with a frame for the process. The viewer reads a
 * file of many or deep stacks slowly or not at all, so the smallest are left out;
 * the file's name says so, as it does what else the reader should know.
 */
#include "json.h"
#include "outline.h"
#include "view_timeline.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct ember_outline_limits limits = {
    .stacks = 50000,
    .processes = 300,
    .depth = 1000,
    .values = 150000,
    .frames = 5000000,
    .metrics = EMBER_ALL_METRICS,
};

/* The viewer keeps each; of all timelines together. */
enum { MAX_EDGES = 400000 };

static const struct metric {
    const char *name;
    const char *unit;
    uint64_t factor;
} metrics[] = {
    [EMBER_METRIC_OWN_TIME] = {"time", "nanoseconds", 1},
    [EMBER_METRIC_WORDS] = {"words", "bytes", 8},
    [EMBER_METRIC_CALLS] = {"calls", "none", 1},
    [EMBER_METRIC_BINARIES] = {"binaries", "bytes", 1},
};
enum { METRICS = sizeof metrics / sizeof metrics[0] };

/* Frames that are no function come first in the file, then the processes, then functions. */
enum { PSEUDO_FRAMES = EMBER_PSEUDO_FRAMES };

struct file {
    struct ember_outline outline;
    struct ember_names names;
    struct ember_sink *sink;
    struct ember_sink text; /* for texts that are put together */
    uint32_t *path;         /* frames of the stack that is written, from the root */
    uint32_t processes;
    uint32_t profiles;
    uint32_t active; /* profile that is shown first */
    uint64_t active_total;
    struct ember_edges edges;
    uint32_t timeline_process; /* whose timeline is written */
    bool first_edge;
};

/* ---- Frames -------------------------------------------------------------- */

static void write_frame(struct file *file, const char *name, const char *module)
{
    ember_sink_text(file->sink, "{\"name\":");
    ember_json_string(file->sink, name);
    if (module) {
        ember_sink_text(file->sink, ",\"file\":");
        ember_json_string(file->sink, module);
    }
    ember_sink_text(file->sink, "}");
}

static void write_frames(struct file *file)
{
    ember_sink_text(file->sink, "\"shared\":{\"frames\":[\n");
    for (uint32_t i = 0; i < PSEUDO_FRAMES; i++) {
        ember_sink_text(file->sink, i > 0 ? ",\n" : "");
        write_frame(file, ember_pseudo_frames[i], NULL);
    }
    for (uint32_t row = 0; row < file->outline.count; row++) {
        if (file->outline.rows[row].depth > 0)
            continue;
        ember_sink_text(file->sink, ",\n");
        write_frame(file, ember_outline_title(&file->outline, row, &file->text), NULL);
        file->processes++;
    }
    for (uint32_t i = 0; i < file->names.count; i++) {
        const struct ember_function *function =
            &file->outline.profile->functions[file->names.function[i]];
        ember_sink_text(file->sink, ",\n");
        write_frame(file, function->text, function->module);
    }
    if (file->outline.profile->timelines) { /* the last one, and in these alone */
        ember_sink_text(file->sink, ",\n");
        write_frame(file, "[held up]", NULL);
    }
    ember_sink_text(file->sink, "]},\n");
}

/* ---- Profiles ------------------------------------------------------------ */

static void write_sample(struct file *file, uint32_t depth, const char *pseudo)
{
    struct ember_sink *sink = file->sink;
    for (uint32_t i = 0; i <= depth; i++) {
        ember_sink_text(sink, i > 0 ? "," : "[");
        ember_sink_unsigned(sink, file->path[i]);
    }
    if (pseudo) {
        ember_sink_text(sink, ",");
        ember_sink_unsigned(sink, ember_pseudo_frame(pseudo));
    }
    ember_sink_text(sink, "]");
}

static void write_samples(struct file *file, uint32_t first, uint32_t rows, uint32_t process,
                          enum ember_metric metric)
{
    const struct ember_profile *profile = file->outline.profile;
    const char *separator = "";
    for (uint32_t i = first; i < first + rows; i++) {
        const struct ember_row *row = &file->outline.rows[i];
        struct ember_slice slices[EMBER_MAX_SLICES];
        unsigned count = ember_outline_slices(&file->outline, i, metric, slices);
        file->path[row->depth] = row->depth == 0
                                     ? PSEUDO_FRAMES + process
                                     : PSEUDO_FRAMES + file->processes +
                                           file->names.id[profile->nodes[row->node].function];
        for (unsigned j = 0; j < count; j++) {
            ember_sink_text(file->sink, separator);
            write_sample(file, row->depth, slices[j].frame);
            separator = ",\n";
        }
    }
}

static void write_weights(struct file *file, uint32_t first, uint32_t rows,
                          enum ember_metric metric)
{
    const char *separator = "";
    for (uint32_t i = first; i < first + rows; i++) {
        struct ember_slice slices[EMBER_MAX_SLICES];
        unsigned count = ember_outline_slices(&file->outline, i, metric, slices);
        for (unsigned j = 0; j < count; j++) {
            ember_sink_text(file->sink, separator);
            ember_sink_unsigned(file->sink, slices[j].value * metrics[metric].factor);
            separator = ",";
        }
    }
}

static uint64_t total_of(struct file *file, uint32_t first, uint32_t rows, enum ember_metric metric)
{
    uint64_t total = 0;
    for (uint32_t i = first; i < first + rows; i++) {
        struct ember_slice slices[EMBER_MAX_SLICES];
        unsigned count = ember_outline_slices(&file->outline, i, metric, slices);
        for (unsigned j = 0; j < count; j++)
            total += slices[j].value;
    }
    return total;
}

static void write_profile_name(struct file *file, uint32_t row, const char *metric)
{
    ember_sink_text(file->sink, "{\"type\":\"sampled\",\"name\":\"");
    ember_sink_text(file->sink, metric);
    ember_sink_text(file->sink, " ");
    ember_json_part(file->sink, ember_outline_title(&file->outline, row, &file->text));
    ember_sink_text(file->sink, "\",");
}

static void write_profile(struct file *file, uint32_t first, uint32_t rows, uint32_t process,
                          enum ember_metric metric, uint64_t total)
{
    ember_sink_text(file->sink, file->profiles++ > 0 ? ",\n" : "");
    write_profile_name(file, first, metrics[metric].name);
    ember_sink_text(file->sink, "\"unit\":\"");
    ember_sink_text(file->sink, metrics[metric].unit);
    ember_sink_text(file->sink, "\",\"startValue\":0,\"endValue\":");
    ember_sink_unsigned(file->sink, total * metrics[metric].factor);
    ember_sink_text(file->sink, ",\n\"samples\":[");
    write_samples(file, first, rows, process, metric);
    ember_sink_text(file->sink, "],\n\"weights\":[");
    write_weights(file, first, rows, metric);
    ember_sink_text(file->sink, "]}");
}

static void write_metric(struct file *file, enum ember_metric metric, enum ember_metric shown)
{
    uint32_t process = 0;
    for (uint32_t row = 0; row < file->outline.count;) {
        uint32_t rows = ember_outline_extent(&file->outline, row);
        uint64_t total = total_of(file, row, rows, metric);
        if (metric == shown && total > file->active_total) {
            file->active = file->profiles;
            file->active_total = total;
        }
        if (total > 0)
            write_profile(file, row, rows, process, metric, total);
        process++;
        row += rows;
    }
}

/* ---- Timelines ----------------------------------------------------------- */

static uint32_t frame_of(const struct file *file, uint32_t row, uint32_t process)
{
    const struct ember_row *at = &file->outline.rows[row];
    if (at->depth == 0)
        return PSEUDO_FRAMES + process;
    return PSEUDO_FRAMES + file->processes +
           file->names.id[file->outline.profile->nodes[at->node].function];
}

static uint32_t frame_of_edge(const struct file *file, const struct ember_edge *edge)
{
    if (!edge->frame)
        return frame_of(file, edge->row, file->timeline_process);
    if (strcmp(edge->frame, "[held up]") == 0)
        return PSEUDO_FRAMES + file->processes + file->names.count;
    return ember_pseudo_frame(edge->frame);
}

static void write_edge(void *context, const struct ember_edge *edge)
{
    struct file *file = context;
    ember_sink_text(file->sink, file->first_edge ? "" : ",\n");
    file->first_edge = false;
    ember_sink_text(file->sink,
                    edge->opens ? "{\"type\":\"O\",\"frame\":" : "{\"type\":\"C\",\"frame\":");
    ember_sink_unsigned(file->sink, frame_of_edge(file, edge));
    ember_sink_text(file->sink, ",\"at\":");
    ember_sink_unsigned(file->sink, edge->at);
    ember_sink_text(file->sink, "}");
}

static void write_timeline_name(struct file *file, uint32_t row, const struct ember_extent *extent)
{
    ember_sink_text(file->sink, "{\"type\":\"evented\",\"name\":\"timeline ");
    ember_json_part(file->sink, ember_outline_title(&file->outline, row, &file->text));
    if (extent->cut)
        ember_sink_printf(file->sink, " (first %" PRIu64 " \xc2\xb5s)",
                          (extent->end - extent->start) / 1000);
    ember_sink_text(file->sink, "\",\"unit\":\"nanoseconds\",\"startValue\":");
    ember_sink_unsigned(file->sink, extent->start);
    ember_sink_text(file->sink, ",\"endValue\":");
    ember_sink_unsigned(file->sink, extent->end);
    ember_sink_text(file->sink, ",\n\"events\":[");
}

static void write_timeline(struct file *file, uint32_t row, uint32_t process, uint64_t most)
{
    struct ember_extent extent = ember_edges_walk(&file->edges, row, most, NULL, NULL);
    ember_sink_text(file->sink, file->profiles++ > 0 ? ",\n" : "");
    write_timeline_name(file, row, &extent);
    file->timeline_process = process;
    file->first_edge = true;
    ember_edges_walk(&file->edges, row, most, write_edge, file);
    ember_sink_text(file->sink, "]}");
}

static uint32_t count_timelines(const struct file *file)
{
    uint32_t count = 0;
    for (uint32_t row = 0; row < file->outline.count; row++)
        count += file->outline.rows[row].depth == 0 && ember_edges_has(&file->edges, row);
    return count;
}

static void write_timelines(struct file *file)
{
    uint32_t count = count_timelines(file);
    uint32_t process = 0;
    for (uint32_t row = 0; count > 0 && row < file->outline.count; row++) {
        if (file->outline.rows[row].depth > 0)
            continue;
        if (ember_edges_has(&file->edges, row))
            write_timeline(file, row, process, MAX_EDGES / count);
        process++;
    }
}

static void write_empty_profile(struct file *file)
{
    ember_sink_text(file->sink, "{\"type\":\"sampled\",\"name\":\"nothing was measured\","
                                "\"unit\":\"none\",\"startValue\":0,\"endValue\":0,"
                                "\"samples\":[],\"weights\":[]}");
}

/* ---- File ---------------------------------------------------------------- */

static void write_name(struct file *file)
{
    const struct ember_profile *profile = file->outline.profile;
    ember_sink_text(file->sink, "\"name\":\"");
    ember_json_part(file->sink, ember_view_heading(profile, &file->text));
    const char *caveats = ember_view_caveats(profile, &file->outline, &file->text);
    ember_sink_text(file->sink, caveats[0] ? " (" : "");
    ember_json_part(file->sink, caveats);
    ember_sink_text(file->sink, caveats[0] ? ")\"," : "\",");
}

static void write_file(struct file *file, enum ember_metric shown)
{
    ember_sink_text(file->sink,
                    "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\n"
                    "\"exporter\":\"emberl\",");
    write_name(file);
    write_frames(file);
    ember_sink_text(file->sink, "\"profiles\":[\n");
    for (int metric = 0; metric < METRICS; metric++)
        write_metric(file, (enum ember_metric)metric, shown);
    write_timelines(file);
    if (file->profiles == 0)
        write_empty_profile(file);
    ember_sink_text(file->sink, "],\n\"activeProfileIndex\":");
    ember_sink_unsigned(file->sink, file->active);
    ember_sink_text(file->sink, "}\n");
}

static void write_view(const struct ember_profile *profile,
                       const struct ember_view_options *options, struct ember_sink *sink)
{
    struct file file = {.sink = sink};
    if (ember_outline_init(&file.outline, profile, &limits) &&
        ember_names_init(&file.names, &file.outline, EMBER_NAMING_TEXT) &&
        ember_edges_init(&file.edges, &file.outline) &&
        (file.path = calloc((size_t)file.outline.depth + 1, sizeof file.path[0])))
        write_file(&file, options->metric);
    else
        sink->failed = true;
    sink->failed |= file.text.failed;
    free(file.path);
    ember_edges_fini(&file.edges);
    ember_names_fini(&file.names);
    ember_outline_fini(&file.outline);
    ember_sink_fini(&file.text);
}

const struct ember_view ember_view_speedscope = {
    .name = "speedscope",
    .extension = "speedscope.json",
    .write = write_view,
};
