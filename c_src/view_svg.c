/* SPDX-License-Identifier: Apache-2.0
 *
 * A flame graph in one SVG file: callers above callees, as wide as what they and
 * their callees have of one metric. It is drawn without a script; the script in it
 * (view_svg.js) lets the reader zoom and search.
 *
 * Positions are parts of the width, so the graph fits any window.
 */
#include "outline.h"
#include "utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "view_svg_script.h"

/* More frames than this make browsers slow, and could not be told apart. */
enum { MAX_STACKS = 15000, MAX_DEPTH = 1000 };

/* In pixels. The width is only guessed: labels are fitted to it until the script does. */
enum { TOP = 84, ROW = 18, WIDTH = 1200, CHARACTER = 7 };

struct graph {
    struct ember_outline outline;
    struct ember_sink *sink;
    struct ember_sink text;
    enum ember_metric metric;
    uint64_t *inclusive[3]; /* by metric, of each row */
    uint64_t *start;        /* of each row: where it begins */
    uint64_t *end;          /* where its next callee begins */
    uint64_t total;
};

struct frame {
    uint64_t start;
    uint64_t width;
    uint32_t depth;
    uint32_t colour;
    const char *name;
};

/* ---- Text ---------------------------------------------------------------- */

static bool is_xml(uint32_t character)
{
    return character >= 0x20 && (character < 0x7f || character > 0x9f) && character != 0x2028 &&
           character != 0x2029 && (character & 0xfffe) != 0xfffe;
}

static void write_character(struct ember_sink *sink, const char *text, size_t size,
                            uint32_t character)
{
    switch (character) {
    case '&':
        ember_sink_text(sink, "&amp;");
        break;
    case '<':
        ember_sink_text(sink, "&lt;");
        break;
    case '>':
        ember_sink_text(sink, "&gt;");
        break;
    case '"':
        ember_sink_text(sink, "&quot;");
        break;
    default:
        if (is_xml(character))
            ember_sink_bytes(sink, text, size);
        else
            ember_sink_printf(sink, "\\x%02x", (unsigned)character);
    }
}

/* At most so many characters; where there are more, an ellipsis is the last. */
static void write_text(struct ember_sink *sink, const char *text, size_t most)
{
    while (*text && most-- > 0) {
        uint32_t character = EMBER_UTF8_REPLACEMENT;
        size_t size = ember_utf8_decode(text, &character);
        size_t step = size > 0 ? size : 1;
        if (size == 0)
            ember_sink_text(sink, "\xef\xbf\xbd");
        else if (most == 0 && text[step])
            ember_sink_text(sink, "\xe2\x80\xa6");
        else
            write_character(sink, text, size, character);
        text += step;
    }
}

static void write_grouped(struct ember_sink *sink, uint64_t value)
{
    uint64_t unit = 1;
    while (value / unit >= 1000)
        unit *= 1000;
    ember_sink_unsigned(sink, value / unit);
    for (unit /= 1000; unit > 0; unit /= 1000)
        ember_sink_printf(sink, ",%03u", (unsigned)(value / unit % 1000));
}

static void write_amount(struct ember_sink *sink, enum ember_metric metric, uint64_t value)
{
    static const char *const units[] = {" ns", " \xc2\xb5s", " ms", " s"};
    if (metric != EMBER_METRIC_OWN_TIME) {
        write_grouped(sink, value);
        ember_sink_text(sink, metric == EMBER_METRIC_WORDS ? " words" : " calls");
        return;
    }
    uint64_t factor = 1;
    unsigned unit = 0;
    for (; unit < 3 && value / factor >= 1000; unit++)
        factor *= 1000;
    write_grouped(sink, value / factor);
    if (unit > 0)
        ember_sink_printf(sink, ".%03u", (unsigned)(value % factor / (factor / 1000)));
    ember_sink_text(sink, units[unit]);
}

static void write_share(struct ember_sink *sink, uint64_t part, uint64_t whole)
{
    uint64_t share = whole ? (uint64_t)((double)part / (double)whole * 1e4 + 0.5) : 0;
    ember_sink_printf(sink, "%" PRIu64 ".%02" PRIu64 " %%", share / 100, share % 100);
}

/* A part of the width. */
static void write_position(struct graph *graph, const char *name, uint64_t value)
{
    uint64_t part = (uint64_t)((double)value / (double)graph->total * 1e9 + 0.5);
    ember_sink_printf(graph->sink, " %s=\"%" PRIu64 ".%07" PRIu64 "%%\"", name, part / 10000000,
                      part % 10000000);
}

/* ---- Colours ------------------------------------------------------------- */

enum { GREY = 0xb8b8b8, GC = 0xe0a050, OFF_CPU = 0x9db4c8, PRUNED = 0xd4d4d4 };

static uint32_t hash_of(const char *text)
{
    uint32_t hash = 2166136261u;
    for (; text && *text; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash ^ hash >> 15;
}

/* A hue of six times 256 steps, pale enough to be read on. */
static uint32_t paint(uint32_t hue, uint32_t light)
{
    uint32_t rising = hue % 256;
    uint32_t falling = 255 - rising;
    const uint32_t wheel[6][3] = {
        {255, rising, 0}, {falling, 255, 0}, {0, 255, rising},
        {0, falling, 255}, {rising, 0, 255}, {255, 0, falling},
    };
    uint32_t colour = 0;
    for (int i = 0; i < 3; i++)
        colour = colour << 8 | (light + wheel[hue / 256 % 6][i] * (250 - light) / 255);
    return colour;
}

/* Functions of a module look alike. */
static uint32_t colour_of(const struct ember_function *function)
{
    uint32_t hue = hash_of(function->module) % (6 * 256);
    return paint(hue, 120 + hash_of(function->text) % 50);
}

static uint32_t pseudo_colour(const char *name)
{
    if (strcmp(name, "[gc]") == 0)
        return GC;
    return strcmp(name, "[off-cpu]") == 0 ? OFF_CPU : PRUNED;
}

/* ---- Frames -------------------------------------------------------------- */

static void begin_frame(struct graph *graph, const struct frame *frame)
{
    ember_sink_text(graph->sink, "<g><title>");
    write_text(graph->sink, frame->name, SIZE_MAX);
    ember_sink_text(graph->sink, "\n");
    write_amount(graph->sink, graph->metric, frame->width);
    ember_sink_text(graph->sink, ", ");
    write_share(graph->sink, frame->width, graph->total);
}

static void end_frame(struct graph *graph, const struct frame *frame)
{
    struct ember_sink *sink = graph->sink;
    unsigned y = frame->depth * ROW;
    size_t pixels = (size_t)((double)frame->width / (double)graph->total * WIDTH);
    ember_sink_text(sink, "</title><rect");
    write_position(graph, "x", frame->start);
    write_position(graph, "width", frame->width);
    ember_sink_printf(sink, " y=\"%u\" height=\"%d\" fill=\"#%06" PRIx32 "\"/>", y, ROW - 1,
                      frame->colour);
    if (pixels / CHARACTER >= 4) {
        ember_sink_text(sink, "<text");
        write_position(graph, "x", frame->start);
        ember_sink_printf(sink, " dx=\"3\" y=\"%u\">", y + 13);
        write_text(sink, frame->name, (pixels - 6) / CHARACTER);
        ember_sink_text(sink, "</text>");
    }
    ember_sink_text(sink, "</g>\n");
}

static void write_own(struct graph *graph, uint32_t row, uint64_t width)
{
    struct ember_slice slices[EMBER_MAX_SLICES];
    unsigned count = ember_outline_slices(&graph->outline, row, graph->metric, slices);
    uint64_t own = count > 0 && !slices[0].frame ? slices[0].value : 0;
    if (own == width)
        return;
    ember_sink_text(graph->sink, ", ");
    write_amount(graph->sink, graph->metric, own);
    ember_sink_text(graph->sink, " of its own");
}

static void write_row_frame(struct graph *graph, uint32_t row, const struct frame *frame)
{
    const char *separator = "\n";
    begin_frame(graph, frame);
    write_own(graph, row, frame->width);
    for (int metric = 0; metric < 3; metric++) {
        if (metric == (int)graph->metric)
            continue;
        ember_sink_text(graph->sink, separator);
        separator = ", ";
        write_amount(graph->sink, (enum ember_metric)metric, graph->inclusive[metric][row]);
    }
    end_frame(graph, frame);
}

/* Time off the CPU and the like, at the right end of a row's frame. */
static void write_pseudo_frames(struct graph *graph, uint32_t row)
{
    struct ember_slice slices[EMBER_MAX_SLICES];
    unsigned count = ember_outline_slices(&graph->outline, row, graph->metric, slices);
    uint64_t end = graph->start[row] + graph->inclusive[graph->metric][row];
    while (count > 0 && slices[count - 1].frame) {
        const struct ember_slice *slice = &slices[--count];
        struct frame frame = {
            .start = end - slice->value,
            .width = slice->value,
            .depth = graph->outline.rows[row].depth + 2,
            .colour = pseudo_colour(slice->frame),
            .name = slice->frame,
        };
        begin_frame(graph, &frame);
        end_frame(graph, &frame);
        end = frame.start;
    }
}

static void write_row(struct graph *graph, uint32_t i, uint64_t *next)
{
    const struct ember_profile *profile = graph->outline.profile;
    const struct ember_row *row = &graph->outline.rows[i];
    uint64_t *start = row->parent == EMBER_NONE ? next : &graph->end[row->parent];
    struct frame frame = {
        .start = *start,
        .width = graph->inclusive[graph->metric][i],
        .depth = row->depth + 1,
        .colour = GREY,
    };
    graph->start[i] = graph->end[i] = *start;
    *start += frame.width;
    if (frame.width == 0)
        return;
    if (row->depth == 0) {
        frame.name = ember_outline_title(&graph->outline, i, &graph->text);
    } else {
        const struct ember_function *function = &profile->functions[profile->nodes[row->node].function];
        frame.name = function->text;
        frame.colour = colour_of(function);
    }
    write_row_frame(graph, i, &frame);
    write_pseudo_frames(graph, i);
}

static void write_frames(struct graph *graph)
{
    uint64_t next = 0;
    struct frame all = {.width = graph->total, .colour = GREY, .name = "all"};
    begin_frame(graph, &all);
    end_frame(graph, &all);
    for (uint32_t i = 0; i < graph->outline.count; i++)
        write_row(graph, i, &next);
}

/* ---- File ---------------------------------------------------------------- */

static const char style[] =
    "<style>\n"
    "svg { font: 12px monospace; } .heading { font-size: 15px; font-weight: bold; }\n"
    "text { fill: #111; pointer-events: none; } .button { fill: #04c; pointer-events: all; cursor: pointer; }\n"
    ".caveats { fill: #a00; } #emberl-background { fill: #fff; }\n"
    "#emberl-frames g { cursor: pointer; } #emberl-frames g:hover rect, .current rect { stroke: #000; }\n"
    ".above { opacity: 0.5; } .hit rect { fill: #e600e6; }\n"
    "@media (prefers-color-scheme: dark) { #emberl-background { fill: #222; }\n"
    "  #emberl-head text { fill: #eee; } #emberl-head .button { fill: #8bf; } #emberl-head .caveats { fill: #f99; } }\n"
    "</style>\n";

static const char hint[] = "Click a frame to zoom; Escape: back; Ctrl-F: search";

static void write_line(struct graph *graph, int y, const char *class, const char *text)
{
    ember_sink_printf(graph->sink, "<text x=\"8\" y=\"%d\" class=\"%s\">", y, class);
    write_text(graph->sink, text, SIZE_MAX);
    ember_sink_text(graph->sink, "</text>\n");
}

static void write_head(struct graph *graph)
{
    struct ember_sink *sink = graph->sink;
    ember_sink_text(sink, "<g id=\"emberl-head\">\n");
    write_line(graph, 20, "heading", ember_view_heading(graph->outline.profile, &graph->text));
    write_line(graph, 38, "caveats",
               ember_view_caveats(graph->outline.profile, &graph->outline, &graph->text));
    ember_sink_printf(sink, "<text x=\"8\" y=\"56\" id=\"emberl-details\" data-hint=\"%s\"></text>\n", hint);
    ember_sink_text(sink,
                    "<text x=\"8\" y=\"74\"><tspan class=\"button\" id=\"emberl-search\"></tspan>"
                    "<tspan dx=\"16\" class=\"button\" id=\"emberl-case\"></tspan>"
                    "<tspan dx=\"16\" id=\"emberl-matched\"></tspan>"
                    "<tspan dx=\"16\" class=\"button\" id=\"emberl-reset\" style=\"display:none\">"
                    "Reset zoom</tspan></text>\n</g>\n");
}

/* Rows of frames, the one for all and those below the deepest included. */
static void write_file(struct graph *graph)
{
    struct ember_sink *sink = graph->sink;
    unsigned height = TOP + (graph->outline.depth + 3) * ROW;
    ember_sink_text(sink, "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?>\n");
    ember_sink_printf(sink,
                      "<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" "
                      "id=\"emberl-graph\" width=\"100%%\" height=\"%u\">\n<title>",
                      height);
    write_text(sink, ember_view_heading(graph->outline.profile, &graph->text), SIZE_MAX);
    ember_sink_text(sink, "</title>\n");
    ember_sink_text(sink, style);
    ember_sink_text(sink, "<rect id=\"emberl-background\" width=\"100%\" height=\"100%\"/>\n");
    write_head(graph);
    ember_sink_printf(sink, "<svg id=\"emberl-frames\" y=\"%d\" width=\"100%%\" height=\"%u\">\n",
                      TOP, height - TOP);
    if (graph->total > 0)
        write_frames(graph);
    ember_sink_text(sink, "</svg>\n<script><![CDATA[\n");
    ember_sink_bytes(sink, ember_svg_script, ember_svg_script_size);
    ember_sink_text(sink, "]]></script>\n</svg>\n");
}

static bool reserve(struct graph *graph)
{
    size_t rows = (size_t)graph->outline.count + 1;
    for (int metric = 0; metric < 3; metric++) {
        graph->inclusive[metric] =
            ember_outline_inclusive(&graph->outline, (enum ember_metric)metric);
        if (!graph->inclusive[metric])
            return false;
    }
    graph->start = calloc(rows, sizeof graph->start[0]);
    graph->end = calloc(rows, sizeof graph->end[0]);
    for (uint32_t i = 0; i < graph->outline.count; i++)
        if (graph->outline.rows[i].depth == 0)
            graph->total += graph->inclusive[graph->metric][i];
    return graph->start && graph->end;
}

static void write_view(const struct ember_profile *profile,
                       const struct ember_view_options *options, struct ember_sink *sink)
{
    struct graph graph = {.sink = sink, .metric = options->metric};
    struct ember_outline_limits limits = ember_outline_unlimited;
    limits.stacks = MAX_STACKS;
    limits.depth = MAX_DEPTH;
    limits.metrics = 1u << options->metric;
    if (ember_outline_init(&graph.outline, profile, &limits) && reserve(&graph))
        write_file(&graph);
    else
        sink->failed = true;
    sink->failed |= graph.text.failed;
    for (int metric = 0; metric < 3; metric++)
        free(graph.inclusive[metric]);
    free(graph.start);
    free(graph.end);
    ember_outline_fini(&graph.outline);
    ember_sink_fini(&graph.text);
}

const struct ember_view ember_view_svg = {
    .name = "svg",
    .extension = "svg",
    .write = write_view,
};
