/* SPDX-License-Identifier: Apache-2.0
 *
 * Trace events in JSON, for Perfetto and Chrome's viewer: a thread a process. Where a
 * timeline was recorded and time is asked for, what happened when, tracing's own cost
 * included. Else its stacks one after the other, each as long as what it has of a
 * metric: sums, not what happened when, and the file says so.
 *
 * Frames are pairs of begin and end, not complete events: a complete event's end is a
 * sum of fractions that readers round, and then it overlaps its neighbour.
 */
#include "json.h"
#include "outline.h"
#include "view_timeline.h"

#include <inttypes.h>
#include <stdlib.h>

/* Viewers take about a million events, and Perfetto 512 frames in a stack. */
static const struct ember_outline_limits common_limits = {
    .stacks = 300000,
    .processes = 2000,
    .depth = 500,
    .values = 400000,
    .frames = UINT64_MAX,
};

enum { MAX_EDGES = 1000000 };

static const char *const scales[] = {
    [EMBER_METRIC_OWN_TIME] = "a microsecond is a microsecond",
    [EMBER_METRIC_WORDS] = "a microsecond is a word of heap",
    [EMBER_METRIC_CALLS] = "a microsecond is a call",
    [EMBER_METRIC_BINARIES] = "a microsecond is a byte of binaries",
};

struct trace {
    struct ember_outline outline;
    struct ember_sink *sink;
    struct ember_sink text;
    enum ember_metric metric;
    uint64_t *inclusive; /* of each row */
    uint64_t *calls;     /* these two: the same, of other metrics */
    uint64_t *words;
    uint64_t *end; /* of each row, and where its next callee begins: */
    uint64_t *next;
    uint32_t *path;   /* rows that are open */
    uint32_t depth;   /* how many */
    uint32_t process; /* counted from 1 */
    struct ember_edges edges;
    bool timeline; /* that is written, not sums */
};

/* ---- Events -------------------------------------------------------------- */

static void write_time(struct trace *trace, uint64_t at)
{
    uint64_t rest = at % 1000;
    if (trace->metric != EMBER_METRIC_OWN_TIME) {
        ember_sink_unsigned(trace->sink, at);
        return;
    }
    const char fraction[4] = {'.', (char)('0' + rest / 100), (char)('0' + rest / 10 % 10),
                              (char)('0' + rest % 10)};
    ember_sink_unsigned(trace->sink, at / 1000);
    if (rest > 0)
        ember_sink_bytes(trace->sink, fraction, sizeof fraction);
}

static void begin_event(struct trace *trace, const char *phase, const char *name)
{
    ember_sink_text(trace->sink, ",\n{\"ph\":\"");
    ember_sink_text(trace->sink, phase);
    ember_sink_text(trace->sink, "\",\"pid\":1,\"tid\":");
    ember_sink_unsigned(trace->sink, trace->process);
    ember_sink_text(trace->sink, ",\"name\":");
    ember_json_string(trace->sink, name);
}

static void write_edge(struct trace *trace, const char *phase, const char *name, uint64_t at)
{
    begin_event(trace, phase, name);
    ember_sink_text(trace->sink, ",\"ts\":");
    write_time(trace, at);
}

/* An event that says something of the process. */
static void write_about(struct trace *trace, const char *name, const char *key, const char *value)
{
    begin_event(trace, "M", name);
    ember_sink_text(trace->sink, ",\"args\":{\"");
    ember_sink_text(trace->sink, key);
    ember_sink_text(trace->sink, "\":");
    if (value)
        ember_json_string(trace->sink, value);
    else
        ember_sink_unsigned(trace->sink, trace->process);
    ember_sink_text(trace->sink, "}}");
}

/* ---- Rows ---------------------------------------------------------------- */

static const char *name_of(struct trace *trace, uint32_t row)
{
    const struct ember_profile *profile = trace->outline.profile;
    if (trace->outline.rows[row].depth == 0)
        return ember_outline_title(&trace->outline, row, &trace->text);
    return profile->functions[profile->nodes[trace->outline.rows[row].node].function].text;
}

static void write_pseudo_frames(struct trace *trace, uint32_t row)
{
    struct ember_slice slices[EMBER_MAX_SLICES];
    unsigned count = ember_outline_slices(&trace->outline, row, trace->metric, slices);
    uint64_t at = trace->end[row];
    for (unsigned i = 0; i < count; i++)
        at -= slices[i].frame ? slices[i].value : 0;
    for (unsigned i = 0; i < count; i++) {
        if (!slices[i].frame)
            continue;
        write_edge(trace, "B", slices[i].frame, at);
        ember_sink_text(trace->sink, "}");
        at += slices[i].value;
        write_edge(trace, "E", slices[i].frame, at);
        ember_sink_text(trace->sink, "}");
    }
}

static void close_rows(struct trace *trace, uint32_t depth)
{
    while (trace->depth > depth) {
        uint32_t row = trace->path[--trace->depth];
        if (trace->inclusive[row] == 0)
            continue;
        write_pseudo_frames(trace, row);
        write_edge(trace, "E", name_of(trace, row), trace->end[row]);
        ember_sink_text(trace->sink, "}");
    }
}

static void open_row(struct trace *trace, uint32_t row)
{
    uint32_t parent = trace->outline.rows[row].parent;
    uint64_t start = parent == EMBER_NONE ? 0 : trace->next[parent];
    trace->next[row] = start;
    trace->end[row] = start + trace->inclusive[row];
    if (parent != EMBER_NONE)
        trace->next[parent] = trace->end[row];
    trace->path[trace->depth++] = row;
    if (trace->inclusive[row] == 0)
        return;
    write_edge(trace, "B", name_of(trace, row), start);
    ember_sink_text(trace->sink, ",\"args\":{\"calls\":");
    ember_sink_unsigned(trace->sink, trace->calls[row]);
    ember_sink_text(trace->sink, ",\"words\":");
    ember_sink_unsigned(trace->sink, trace->words[row]);
    ember_sink_text(trace->sink, "}}");
}

static void write_rows(struct trace *trace)
{
    for (uint32_t row = 0; row < trace->outline.count; row++) {
        close_rows(trace, trace->outline.rows[row].depth);
        if (trace->outline.rows[row].depth == 0) {
            trace->process++;
            write_about(trace, "thread_name", "name", name_of(trace, row));
            write_about(trace, "thread_sort_index", "sort_index", NULL);
        }
        open_row(trace, row);
    }
    close_rows(trace, 0);
}

/* ---- Timelines ----------------------------------------------------------- */

static void write_timeline_edge(void *context, const struct ember_edge *edge)
{
    struct trace *trace = context;
    write_edge(trace, edge->opens ? "B" : "E",
               edge->frame ? edge->frame : name_of(trace, edge->row), edge->at);
    ember_sink_text(trace->sink, "}");
}

static uint32_t count_timelines(const struct trace *trace)
{
    uint32_t count = 0;
    for (uint32_t row = 0; row < trace->outline.count; row++)
        count += trace->outline.rows[row].depth == 0 && ember_edges_has(&trace->edges, row);
    return count;
}

/* A mark where viewers' limits end it. */
static void write_cut(struct trace *trace, uint64_t at)
{
    write_edge(trace, "i", "timeline cut: too many events for viewers", at);
    ember_sink_text(trace->sink, ",\"s\":\"t\"}");
}

static void write_timelines(struct trace *trace)
{
    uint32_t count = count_timelines(trace);
    for (uint32_t row = 0; row < trace->outline.count; row++) {
        if (trace->outline.rows[row].depth > 0 || !ember_edges_has(&trace->edges, row))
            continue;
        trace->process++;
        write_about(trace, "thread_name", "name", name_of(trace, row));
        write_about(trace, "thread_sort_index", "sort_index", NULL);
        struct ember_extent extent =
            ember_edges_walk(&trace->edges, row, MAX_EDGES / count, write_timeline_edge, trace);
        if (extent.cut)
            write_cut(trace, extent.end);
    }
}

/* ---- File ---------------------------------------------------------------- */

static void write_head(struct trace *trace)
{
    const struct ember_profile *profile = trace->outline.profile;
    struct ember_sink *sink = trace->sink;
    ember_sink_text(sink,
                    "{\"displayTimeUnit\":\"ns\",\n\"otherData\":{\"exporter\":\"emberl\",\n");
    ember_json_string_field(sink, "profiled", ember_view_heading(profile, &trace->text));
    const char *caveats = ember_view_caveats(profile, &trace->outline, &trace->text);
    if (caveats[0])
        ember_json_string_field(sink, "mind", caveats);
    ember_sink_text(sink, "\n\"layout\":\"");
    ember_sink_text(sink, trace->timeline
                              ? "a timeline: what happened when, the cost of tracing included; "
                              : "an aggregate, not a timeline: stacks of a process one "
                                "after the other; ");
    ember_sink_text(sink, scales[trace->metric]);
    ember_sink_text(sink,
                    "\"},\n\"traceEvents\":[\n"
                    "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"");
    ember_json_part(sink, profile->info.target ? profile->info.target : "profile");
    ember_sink_text(sink, trace->timeline ? "\"}}" : " (sums, not a timeline)\"}}");
}

static bool reserve(struct trace *trace)
{
    size_t rows = (size_t)trace->outline.count + 1;
    trace->inclusive = ember_outline_inclusive(&trace->outline, trace->metric);
    trace->calls = ember_outline_inclusive(&trace->outline, EMBER_METRIC_CALLS);
    trace->words = ember_outline_inclusive(&trace->outline, EMBER_METRIC_WORDS);
    trace->end = calloc(rows, sizeof trace->end[0]);
    trace->next = calloc(rows, sizeof trace->next[0]);
    trace->path = calloc((size_t)trace->outline.depth + 1, sizeof trace->path[0]);
    return ember_edges_init(&trace->edges, &trace->outline) && trace->inclusive && trace->calls &&
           trace->words && trace->end && trace->next && trace->path;
}

static void write_view(const struct ember_profile *profile,
                       const struct ember_view_options *options, struct ember_sink *sink)
{
    struct trace trace = {.sink = sink, .metric = options->metric};
    struct ember_outline_limits limits = common_limits;
    limits.metrics = 1u << options->metric;
    if (ember_outline_init(&trace.outline, profile, &limits) && reserve(&trace)) {
        trace.timeline = trace.metric == EMBER_METRIC_OWN_TIME && count_timelines(&trace) > 0;
        write_head(&trace);
        if (trace.timeline)
            write_timelines(&trace);
        else
            write_rows(&trace);
        ember_sink_text(sink, "]}\n");
    } else {
        sink->failed = true;
    }
    sink->failed |= trace.text.failed;
    free(trace.inclusive);
    free(trace.calls);
    free(trace.words);
    free(trace.end);
    free(trace.next);
    free(trace.path);
    ember_edges_fini(&trace.edges);
    ember_outline_fini(&trace.outline);
    ember_sink_fini(&trace.text);
}

const struct ember_view ember_view_chrome = {
    .name = "chrome",
    .extension = "trace.json",
    .write = write_view,
};
