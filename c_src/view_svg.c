/* SPDX-License-Identifier: Apache-2.0
 *
 * A flame graph in one SVG file: callers above callees, as wide as what they and
 * their callees have of one metric. It is drawn without a script; the script in it
 * (view_svg.js) lets the reader zoom and search.
 *
 * Positions are parts of the width, so the graph fits any window.
 *
 * Of a comparison the colour is the change, and each frame has its place on both
 * sides, so that the reader can switch; a frame without width is not drawn.
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

enum { SIDES = 2 }; /* by ember_side; the second one of comparisons alone */

struct graph {
    struct ember_outline outline;
    struct ember_sink *sink;
    struct ember_sink text;
    enum ember_metric metric;
    enum ember_side width; /* the side that is drawn */
    int sides;
    uint64_t *inclusive[SIDES][EMBER_METRICS]; /* by metric, of each row */
    uint64_t *start[SIDES];                    /* of each row: where it begins */
    uint64_t *end[SIDES];                      /* where its next callee begins */
    uint64_t total[SIDES];
};

struct frame {
    uint64_t start[SIDES];
    uint64_t width[SIDES];
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
        ember_sink_text(sink, metric == EMBER_METRIC_WORDS   ? " words"
                              : metric == EMBER_METRIC_CALLS ? " calls"
                                                             : " bytes of binaries");
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

/* A part of the width, in per cent. */
static void write_part(struct graph *graph, uint64_t value, int side)
{
    double whole = graph->total[side] > 0 ? (double)graph->total[side] : 1;
    uint64_t part = (uint64_t)((double)value / whole * 1e9 + 0.5);
    ember_sink_printf(graph->sink, "%" PRIu64 ".%07" PRIu64, part / 10000000, part % 10000000);
}

static void write_position(struct graph *graph, const char *name, uint64_t value)
{
    ember_sink_printf(graph->sink, " %s=\"", name);
    write_part(graph, value, (int)graph->width);
    ember_sink_text(graph->sink, "%\"");
}

/* What it was before, as a part of which it grew or shrank. */
static void write_growth(struct ember_sink *sink, uint64_t before, uint64_t after)
{
    if (before == after) {
        ember_sink_text(sink, "same");
    } else if (before == 0) {
        ember_sink_text(sink, "new");
    } else if (after == 0) {
        ember_sink_text(sink, "vanished");
    } else {
        ember_sink_text(sink, after > before ? "+" : "\xe2\x88\x92");
        write_share(sink, after > before ? after - before : before - after, before);
    }
}

static void write_change(struct ember_sink *sink, enum ember_metric metric, uint64_t before,
                         uint64_t after)
{
    write_amount(sink, metric, before);
    ember_sink_text(sink, " \xe2\x86\x92 ");
    write_amount(sink, metric, after);
    ember_sink_text(sink, " (");
    write_growth(sink, before, after);
    ember_sink_text(sink, ")");
}

/* ---- Colours ------------------------------------------------------------- */

enum { GREY = 0xb8b8b8 };

static const uint32_t pseudo_colours[EMBER_PSEUDO_FRAMES] = {
    [EMBER_PSEUDO_GC] = 0xe0a050,        [EMBER_PSEUDO_WAITING] = 0xb4c6d6,
    [EMBER_PSEUDO_PREEMPTED] = 0xb9a3d3, [EMBER_PSEUDO_OFF_CPU] = 0x9db4c8,
    [EMBER_PSEUDO_PRUNED] = 0xd4d4d4,
};

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
        {255, rising, 0},  {falling, 255, 0}, {0, 255, rising},
        {0, falling, 255}, {rising, 0, 255},  {255, 0, falling},
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

/* Red has grown, blue has shrunk: the two that every kind of colour vision tells
 * apart. The more, the stronger; what is new or vanished has stripes. */
enum { SAME = 0xebe7e3, GROWN = 0xee7f6b, SHRUNK = 0x7faaf0 };

static uint32_t mix(uint32_t from, uint32_t to, double part)
{
    uint32_t colour = 0;
    for (int shift = 16; shift >= 0; shift -= 8) {
        double low = (double)(from >> shift & 0xff);
        double high = (double)(to >> shift & 0xff);
        colour = colour << 8 | (uint32_t)(low + (high - low) * part + 0.5);
    }
    return colour;
}

static uint32_t colour_of_change(uint64_t before, uint64_t after)
{
    uint64_t larger = before > after ? before : after;
    uint64_t smaller = before > after ? after : before;
    return mix(SAME, after > before ? GROWN : SHRUNK, (double)(larger - smaller) / (double)larger);
}

static void write_fill(struct graph *graph, const struct frame *frame)
{
    uint64_t after = frame->width[EMBER_AFTER];
    uint64_t before = frame->width[EMBER_BEFORE];
    if (graph->sides == 1 || frame->depth < 2)
        ember_sink_printf(graph->sink, "#%06" PRIx32, frame->colour);
    else if (before == 0)
        ember_sink_text(graph->sink, "url(#emberl-new)");
    else if (after == 0)
        ember_sink_text(graph->sink, "url(#emberl-vanished)");
    else
        ember_sink_printf(graph->sink, "#%06" PRIx32, colour_of_change(before, after));
}

/* ---- Frames -------------------------------------------------------------- */

static void write_values(struct graph *graph, const struct frame *frame)
{
    uint64_t shown = frame->width[graph->width];
    if (graph->sides == 1)
        write_amount(graph->sink, graph->metric, shown);
    else
        write_change(graph->sink, graph->metric, frame->width[EMBER_BEFORE],
                     frame->width[EMBER_AFTER]);
    ember_sink_text(graph->sink, ", ");
    write_share(graph->sink, shown, graph->total[graph->width]);
}

/* A frame's place on one side, for the script. */
static void write_side(struct graph *graph, const struct frame *frame, const char *name, int side)
{
    ember_sink_printf(graph->sink, " data-%s=\"", name);
    write_part(graph, frame->start[side], side);
    ember_sink_text(graph->sink, " ");
    write_part(graph, frame->width[side], side);
    ember_sink_text(graph->sink, "\"");
}

static void begin_frame(struct graph *graph, const struct frame *frame)
{
    ember_sink_text(graph->sink, "<g");
    if (graph->sides > 1) {
        write_side(graph, frame, "after", EMBER_AFTER);
        write_side(graph, frame, "before", EMBER_BEFORE);
        if (frame->width[graph->width] == 0)
            ember_sink_text(graph->sink, " style=\"display:none\"");
    }
    ember_sink_text(graph->sink, "><title>");
    write_text(graph->sink, frame->name, SIZE_MAX);
    ember_sink_text(graph->sink, "\n");
    write_values(graph, frame);
}

static void write_label(struct graph *graph, const struct frame *frame)
{
    double part = (double)frame->width[graph->width] / (double)graph->total[graph->width];
    size_t pixels = (size_t)(part * WIDTH);
    if (pixels / CHARACTER < 4)
        return;
    ember_sink_text(graph->sink, "<text");
    write_position(graph, "x", frame->start[graph->width]);
    ember_sink_printf(graph->sink, " dx=\"3\" y=\"%u\">", frame->depth * ROW + 13);
    write_text(graph->sink, frame->name, (pixels - 6) / CHARACTER);
    ember_sink_text(graph->sink, "</text>");
}

static void end_frame(struct graph *graph, const struct frame *frame)
{
    struct ember_sink *sink = graph->sink;
    ember_sink_text(sink, "</title><rect");
    write_position(graph, "x", frame->start[graph->width]);
    write_position(graph, "width", frame->width[graph->width]);
    ember_sink_printf(sink, " y=\"%u\" height=\"%d\" fill=\"", frame->depth * ROW, ROW - 1);
    write_fill(graph, frame);
    ember_sink_text(sink, "\"/>");
    if (graph->total[graph->width] > 0)
        write_label(graph, frame);
    ember_sink_text(sink, "</g>\n");
}

static void write_own(struct graph *graph, uint32_t row, uint64_t width)
{
    struct ember_slice slices[EMBER_MAX_SLICES];
    unsigned count =
        ember_outline_slices_of(&graph->outline, row, graph->metric, graph->width, slices);
    uint64_t own = count > 0 && !slices[0].frame ? slices[0].value : 0;
    if (own == width)
        return;
    ember_sink_text(graph->sink, ", ");
    write_amount(graph->sink, graph->metric, own);
    ember_sink_text(graph->sink, " of its own");
}

/* Most stacks have no binaries, and need not say so. */
static bool is_told(const struct graph *graph, enum ember_metric metric, uint32_t row)
{
    uint64_t any = graph->inclusive[EMBER_AFTER][metric][row];
    if (graph->sides > 1)
        any |= graph->inclusive[EMBER_BEFORE][metric][row];
    return metric != graph->metric && (metric != EMBER_METRIC_BINARIES || any > 0);
}

static void write_metric(struct graph *graph, enum ember_metric metric, uint32_t row)
{
    uint64_t after = graph->inclusive[EMBER_AFTER][metric][row];
    if (graph->sides == 1)
        write_amount(graph->sink, metric, after);
    else
        write_change(graph->sink, metric, graph->inclusive[EMBER_BEFORE][metric][row], after);
}

static void write_row_frame(struct graph *graph, uint32_t row, const struct frame *frame)
{
    const char *separator = "\n";
    begin_frame(graph, frame);
    write_own(graph, row, frame->width[graph->width]);
    for (int metric = 0; metric < EMBER_METRICS; metric++) {
        if (!is_told(graph, (enum ember_metric)metric, row))
            continue;
        ember_sink_text(graph->sink, separator);
        separator = ", ";
        write_metric(graph, (enum ember_metric)metric, row);
    }
    end_frame(graph, frame);
}

/* Time off the CPU and the like, at the right end of a row's frame. */
static void write_pseudo_frames(struct graph *graph, uint32_t row)
{
    struct ember_change changes[EMBER_MAX_SLICES];
    unsigned count = ember_outline_changes(&graph->outline, row, graph->metric, changes);
    uint64_t end[SIDES] = {0};
    for (int side = 0; side < graph->sides; side++)
        end[side] = graph->start[side][row] + graph->inclusive[side][graph->metric][row];
    while (count > 0 && changes[count - 1].frame) {
        const struct ember_change *change = &changes[--count];
        end[EMBER_AFTER] -= change->after;
        end[EMBER_BEFORE] -= change->before; /* 0 where nothing is compared */
        struct frame frame = {
            .start = {[EMBER_AFTER] = end[EMBER_AFTER], [EMBER_BEFORE] = end[EMBER_BEFORE]},
            .width = {[EMBER_AFTER] = change->after, [EMBER_BEFORE] = change->before},
            .depth = graph->outline.rows[row].depth + 2,
            .colour = pseudo_colours[ember_pseudo_frame(change->frame)],
            .name = change->frame,
        };
        begin_frame(graph, &frame);
        end_frame(graph, &frame);
    }
}

/* Takes the row's place from its caller. true when it has a width. */
static bool place(struct graph *graph, uint32_t i, uint64_t *next, struct frame *frame)
{
    uint32_t parent = graph->outline.rows[i].parent;
    bool wide = false;
    for (int side = 0; side < graph->sides; side++) {
        uint64_t *start = parent == EMBER_NONE ? &next[side] : &graph->end[side][parent];
        frame->start[side] = *start;
        frame->width[side] = graph->inclusive[side][graph->metric][i];
        graph->start[side][i] = graph->end[side][i] = *start;
        *start += frame->width[side];
        wide |= frame->width[side] > 0;
    }
    return wide;
}

static void write_row(struct graph *graph, uint32_t i, uint64_t *next)
{
    const struct ember_profile *profile = graph->outline.profile;
    const struct ember_row *row = &graph->outline.rows[i];
    struct frame frame = {.depth = row->depth + 1, .colour = GREY};
    if (!place(graph, i, next, &frame))
        return;
    if (row->depth == 0) {
        frame.name = ember_outline_title(&graph->outline, i, &graph->text);
    } else {
        const struct ember_function *function =
            &profile->functions[profile->nodes[row->node].function];
        frame.name = function->text;
        frame.colour = colour_of(function);
    }
    write_row_frame(graph, i, &frame);
    write_pseudo_frames(graph, i);
}

static void write_frames(struct graph *graph)
{
    uint64_t next[SIDES] = {0};
    struct frame all = {.colour = GREY, .name = "all"};
    memcpy(all.width, graph->total, sizeof all.width);
    begin_frame(graph, &all);
    end_frame(graph, &all);
    for (uint32_t i = 0; i < graph->outline.count; i++)
        write_row(graph, i, next);
}

/* ---- File ---------------------------------------------------------------- */

static const char style[] =
    "<style>\n"
    "svg { font: 12px monospace; } .heading { font-size: 15px; font-weight: bold; }\n"
    "text { fill: #111; pointer-events: none; } .button { fill: #04c; pointer-events: all; cursor: "
    "pointer; }\n"
    ".caveats { fill: #a00; } #emberl-background { fill: #fff; }\n"
    "#emberl-frames g { cursor: pointer; } #emberl-frames rect { stroke: #fff; stroke-width: 0.6; "
    "}\n"
    "#emberl-frames g:hover rect, #emberl-frames .current rect { stroke: #000; stroke-width: 1; }\n"
    ".above { opacity: 0.5; } .hit rect { fill: #e600e6; }\n"
    "@media (prefers-color-scheme: dark) { #emberl-background { fill: #222; } #emberl-frames rect "
    "{ stroke: #222; }\n"
    "  #emberl-frames g:hover rect, #emberl-frames .current rect { stroke: #fff; }\n"
    "  #emberl-head text { fill: #eee; } #emberl-head .button { fill: #8bf; } #emberl-head "
    ".caveats { fill: #f99; } }\n"
    "</style>\n";

/* Of a comparison. */
static const char legend[] =
    "<defs><linearGradient id=\"emberl-scale\"><stop offset=\"0\" stop-color=\"#b5c9ea\"/>"
    "<stop offset=\".5\" stop-color=\"#ebe7e3\"/><stop offset=\"1\" "
    "stop-color=\"#edb3a7\"/></linearGradient>\n"
    "<pattern id=\"emberl-new\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
    "patternTransform=\"rotate(45)\">"
    "<rect width=\"6\" height=\"6\" fill=\"#ee7f6b\"/><rect width=\"2\" height=\"6\" "
    "fill=\"#f7bfb4\"/></pattern>\n"
    "<pattern id=\"emberl-vanished\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
    "patternTransform=\"rotate(-45)\">"
    "<rect width=\"6\" height=\"6\" fill=\"#7faaf0\"/><rect width=\"2\" height=\"6\" "
    "fill=\"#bfd4f8\"/></pattern></defs>\n"
    "<g id=\"emberl-legend\"><rect x=\"8\" y=\"83\" width=\"16\" height=\"10\" "
    "fill=\"url(#emberl-vanished)\"/>"
    "<text x=\"28\" y=\"92\">vanished</text><text x=\"106\" y=\"92\">half</text>"
    "<rect x=\"140\" y=\"83\" width=\"90\" height=\"10\" fill=\"url(#emberl-scale)\"/><text "
    "x=\"236\" y=\"92\">twice</text>"
    "<rect x=\"292\" y=\"83\" width=\"16\" height=\"10\" fill=\"url(#emberl-new)\"/><text "
    "x=\"312\" y=\"92\">new</text></g>\n";
enum { LEGEND = 18 };

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
    ember_sink_printf(
        sink,
        "<text x=\"8\" y=\"56\" id=\"emberl-details\" role=\"status\" data-hint=\"%s\"></text>\n",
        hint);
    ember_sink_text(sink, "<text x=\"8\" y=\"74\"><tspan class=\"button\" role=\"button\" "
                          "tabindex=\"0\" id=\"emberl-search\"></tspan>"
                          "<tspan dx=\"16\" class=\"button\" role=\"button\" tabindex=\"0\" "
                          "id=\"emberl-case\"></tspan>"
                          "<tspan dx=\"16\" class=\"button\" role=\"button\" tabindex=\"0\" "
                          "id=\"emberl-width\"></tspan>"
                          "<tspan dx=\"16\" id=\"emberl-matched\" role=\"status\"></tspan>"
                          "<tspan dx=\"16\" class=\"button\" role=\"button\" tabindex=\"0\" "
                          "id=\"emberl-reset\" style=\"display:none\">"
                          "Reset zoom</tspan></text>\n");
    if (graph->sides > 1)
        ember_sink_text(sink, legend);
    ember_sink_text(sink, "</g>\n");
}

/* Rows of frames, the one for all and those below the deepest included. */
static void write_file(struct graph *graph)
{
    struct ember_sink *sink = graph->sink;
    unsigned top = TOP + (graph->sides > 1 ? LEGEND : 0);
    unsigned height = top + (graph->outline.depth + 3) * ROW;
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
    ember_sink_printf(sink,
                      "<svg id=\"emberl-frames\" data-width=\"%s\" y=\"%u\" width=\"100%%\" "
                      "height=\"%u\">\n",
                      graph->width == EMBER_BEFORE ? "before" : "after", top, height - top);
    if (graph->total[EMBER_AFTER] > 0 || graph->total[EMBER_BEFORE] > 0)
        write_frames(graph);
    ember_sink_text(sink, "</svg>\n<script><![CDATA[\n");
    ember_sink_bytes(sink, ember_svg_script, ember_svg_script_size);
    ember_sink_text(sink, "]]></script>\n</svg>\n");
}

static bool reserve_side(struct graph *graph, int side)
{
    size_t rows = (size_t)graph->outline.count + 1;
    for (int metric = 0; metric < EMBER_METRICS; metric++) {
        graph->inclusive[side][metric] = ember_outline_inclusive_of(
            &graph->outline, (enum ember_metric)metric, (enum ember_side)side);
        if (!graph->inclusive[side][metric])
            return false;
    }
    graph->start[side] = calloc(rows, sizeof graph->start[side][0]);
    graph->end[side] = calloc(rows, sizeof graph->end[side][0]);
    for (uint32_t i = 0; i < graph->outline.count; i++)
        if (graph->outline.rows[i].depth == 0)
            graph->total[side] += graph->inclusive[side][graph->metric][i];
    return graph->start[side] && graph->end[side];
}

static bool reserve(struct graph *graph)
{
    bool done = true;
    for (int side = 0; done && side < graph->sides; side++)
        done = reserve_side(graph, side);
    return done;
}

static void release(struct graph *graph)
{
    for (int side = 0; side < graph->sides; side++) {
        for (int metric = 0; metric < EMBER_METRICS; metric++)
            free(graph->inclusive[side][metric]);
        free(graph->start[side]);
        free(graph->end[side]);
    }
    ember_outline_fini(&graph->outline);
    ember_sink_fini(&graph->text);
}

static void write_view(const struct ember_profile *profile,
                       const struct ember_view_options *options, struct ember_sink *sink)
{
    struct graph graph = {
        .sink = sink, .metric = options->metric, .sides = profile->before ? 2 : 1};
    graph.width = profile->before ? options->width : EMBER_AFTER;
    struct ember_outline_limits limits = ember_outline_unlimited;
    limits.stacks = MAX_STACKS;
    limits.depth = MAX_DEPTH;
    limits.metrics = 1u << options->metric;
    if (ember_outline_init(&graph.outline, profile, &limits) && reserve(&graph))
        write_file(&graph);
    else
        sink->failed = true;
    sink->failed |= graph.text.failed;
    release(&graph);
}

const struct ember_view ember_view_svg = {
    .name = "svg",
    .extension = "svg",
    .compares = true,
    .write = write_view,
};
