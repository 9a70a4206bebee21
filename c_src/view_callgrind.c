/* SPDX-License-Identifier: Apache-2.0
 *
 * The call graph that callgrind_annotate, KCachegrind and others read: what each
 * function cost by itself, and for each caller and callee the number of calls and
 * what they cost with all they called.
 *
 * The format has edges, not stacks. Where a function stands in a stack more than
 * once, its cost with callees counts for the outermost call alone: so the calls of a
 * function add up to the time in which it was anywhere on the stack, and no sum is
 * above the total.
 *
 * A process is a function that calls the outermost ones. Modules are both object and
 * file, so that viewers can group by them.
 */
#include "outline.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    const char *meaning;
} events[] = {
    {"Own_ns", "Own time (ns)"},
    {"Off_cpu_ns", "Time off the CPU (ns)"},
    {"Waiting_ns", "Time waiting, a part of that off the CPU (ns)"},
    {"GC_ns", "Time in garbage collection (ns)"},
    {"Words", "Heap words allocated"},
    {"Calls", "Calls"},
    {"Binary_bytes", "Bytes of binaries outside the heap"},
};
enum { EVENTS = sizeof events / sizeof events[0] };

struct cost {
    uint64_t of[EVENTS];
};

/* Functions are what they are in the profile; processes come after them. */
struct edge {
    uint32_t caller;
    uint32_t callee;
    uint64_t calls;
    struct cost inclusive;
};

struct graph {
    struct ember_outline outline;
    struct ember_sink *sink;
    struct ember_sink text;
    struct cost *self;      /* of functions and processes */
    struct cost *inclusive; /* of each row */
    struct edge *edges;
    uint32_t *path;    /* functions of the stack of a row */
    uint32_t *on_path; /* how often a function is there */
    uint32_t *row_of;  /* of each process */
    bool *named;       /* functions and processes whose name was written */
    uint32_t edge_count;
    uint32_t process_count;
};

/* ---- Costs --------------------------------------------------------------- */

static struct cost cost_of(const struct ember_metrics *own)
{
    return (struct cost){{
        own->own_ns,
        own->off_cpu_ns,
        ember_metrics_waiting(own),
        own->gc_ns,
        own->words > 0 ? (uint64_t)own->words : 0,
        own->calls,
        own->binary_bytes,
    }};
}

static void add_cost(struct cost *sum, const struct cost *more)
{
    for (int i = 0; i < EVENTS; i++)
        sum->of[i] += more->of[i];
}

static void sum_rows(struct graph *graph)
{
    for (uint32_t i = graph->outline.count; i-- > 0;) {
        const struct ember_row *row = &graph->outline.rows[i];
        struct cost own = cost_of(&graph->outline.profile->nodes[row->node].own);
        add_cost(&graph->inclusive[i], &own);
        if (row->parent != EMBER_NONE)
            add_cost(&graph->inclusive[row->parent], &graph->inclusive[i]);
    }
}

/* ---- Graph --------------------------------------------------------------- */

static void add_edge(struct graph *graph, uint32_t i, uint32_t callee)
{
    const struct ember_row *row = &graph->outline.rows[i];
    graph->edges[graph->edge_count++] = (struct edge){
        .caller = graph->path[row->depth - 1],
        .callee = callee,
        .calls = graph->outline.profile->nodes[row->node].own.calls,
        .inclusive = graph->on_path[callee] == 0 ? graph->inclusive[i] : (struct cost){{0}},
    };
}

static void add_row(struct graph *graph, uint32_t i)
{
    const struct ember_profile *profile = graph->outline.profile;
    const struct ember_row *row = &graph->outline.rows[i];
    const struct ember_node *node = &profile->nodes[row->node];
    struct cost own = cost_of(&node->own);
    uint32_t function = node->function;
    if (row->depth == 0) {
        graph->row_of[graph->process_count] = i;
        function = profile->function_count + graph->process_count++;
    } else {
        add_edge(graph, i, function);
    }
    graph->path[row->depth] = function;
    graph->on_path[function]++;
    add_cost(&graph->self[function], &own);
}

static void add_rows(struct graph *graph)
{
    uint32_t depth = 0; /* of the path */
    for (uint32_t i = 0; i < graph->outline.count; i++) {
        while (depth > graph->outline.rows[i].depth)
            graph->on_path[graph->path[--depth]]--;
        add_row(graph, i);
        depth++;
    }
}

static int by_functions(const void *left, const void *right)
{
    const struct edge *a = left;
    const struct edge *b = right;
    if (a->caller != b->caller)
        return a->caller < b->caller ? -1 : 1;
    return (a->callee > b->callee) - (a->callee < b->callee);
}

static void join_edges(struct graph *graph)
{
    uint32_t joined = 0;
    if (graph->edge_count > 1)
        qsort(graph->edges, graph->edge_count, sizeof graph->edges[0], by_functions);
    for (uint32_t i = 0; i < graph->edge_count; i++) {
        struct edge *edge = &graph->edges[i];
        if (joined > 0 && by_functions(edge, &graph->edges[joined - 1]) == 0) {
            graph->edges[joined - 1].calls += edge->calls;
            add_cost(&graph->edges[joined - 1].inclusive, &edge->inclusive);
        } else {
            graph->edges[joined++] = *edge;
        }
    }
    graph->edge_count = joined;
}

/* ---- Text ---------------------------------------------------------------- */

static void write_line(struct ember_sink *sink, const char *key, const char *value)
{
    ember_sink_text(sink, key);
    ember_utf8_write_line(sink, value[0] ? value : "?");
    ember_sink_text(sink, "\n");
}

static void write_cost(struct ember_sink *sink, const char *before, const struct cost *cost)
{
    ember_sink_text(sink, before);
    for (int i = 0; i < EVENTS; i++) {
        ember_sink_text(sink, " ");
        ember_sink_unsigned(sink, cost->of[i]);
    }
    ember_sink_text(sink, "\n");
}

static void write_header(struct graph *graph)
{
    const struct ember_profile *profile = graph->outline.profile;
    struct ember_sink *sink = graph->sink;
    ember_sink_text(sink, "# callgrind format\nversion: 1\ncreator: emberl\n");
    write_line(sink, "cmd: ", profile->info.target ? profile->info.target : "");
    write_line(sink, "desc: ", ember_view_heading(profile, &graph->text));
    const char *caveats = ember_view_caveats(profile, NULL, &graph->text);
    if (caveats[0])
        write_line(sink, "desc: ", caveats);
    ember_sink_text(sink, "positions: line\n");
    for (int i = 0; i < EVENTS; i++)
        ember_sink_printf(sink, "event: %s : %s\n", events[i].name, events[i].meaning);
    ember_sink_text(sink, "events:");
    for (int i = 0; i < EVENTS; i++)
        ember_sink_printf(sink, " %s", events[i].name);
    ember_sink_text(sink, "\n");
}

/* A name is written once, with a number that stands for it from then on. */
static void write_name(struct graph *graph, const char *key, uint32_t id, const char *name)
{
    ember_sink_text(graph->sink, key);
    ember_sink_text(graph->sink, "(");
    ember_sink_unsigned(graph->sink, (uint64_t)id + 1);
    if (name) {
        ember_sink_text(graph->sink, ") ");
        ember_utf8_write_line(graph->sink, name[0] ? name : "?");
        ember_sink_text(graph->sink, "\n");
    } else {
        ember_sink_text(graph->sink, ")\n");
    }
}

/* "(" at the start would announce a number. */
static void write_module(struct graph *graph, const char *key, const char *module)
{
    ember_sink_text(graph->sink, key);
    write_line(graph->sink, module[0] == '(' ? "\\x28" : "", module + (module[0] == '('));
}

/* `keys`: of the object, the file and the function. */
static void write_function(struct graph *graph, uint32_t id, const char *const keys[3])
{
    const struct ember_profile *profile = graph->outline.profile;
    bool process = id >= profile->function_count;
    const char *module = process ? "processes" : profile->functions[id].module;
    const char *name = NULL;
    if (!graph->named[id])
        name = process
                   ? ember_outline_title(&graph->outline,
                                         graph->row_of[id - profile->function_count], &graph->text)
                   : profile->functions[id].text;
    write_module(graph, keys[0], module ? module : "");
    write_module(graph, keys[1], module ? module : "");
    write_name(graph, keys[2], id, name);
    graph->named[id] = true;
}

static void write_edge(struct graph *graph, const struct edge *edge)
{
    static const char *const keys[] = {"cob=", "cfi=", "cfn="};
    write_function(graph, edge->callee, keys);
    ember_sink_text(graph->sink, "calls=");
    ember_sink_unsigned(graph->sink, edge->calls);
    ember_sink_text(graph->sink, " 0\n");
    write_cost(graph->sink, "0", &edge->inclusive);
}

static void write_graph(struct graph *graph)
{
    static const char *const keys[] = {"ob=", "fl=", "fn="};
    uint32_t functions = graph->outline.profile->function_count + graph->process_count;
    uint32_t edge = 0;
    struct cost total = {{0}};
    for (uint32_t id = 0; id < functions; id++) {
        bool calls = edge < graph->edge_count && graph->edges[edge].caller == id;
        bool costs = memcmp(&graph->self[id], &(struct cost){{0}}, sizeof(struct cost)) != 0;
        if (!calls && !costs)
            continue;
        ember_sink_text(graph->sink, "\n");
        write_function(graph, id, keys);
        write_cost(graph->sink, "0", &graph->self[id]);
        add_cost(&total, &graph->self[id]);
        for (; edge < graph->edge_count && graph->edges[edge].caller == id; edge++)
            write_edge(graph, &graph->edges[edge]);
    }
    write_cost(graph->sink, "\ntotals:", &total);
}

/* ---- View ---------------------------------------------------------------- */

static bool reserve(struct graph *graph)
{
    size_t rows = (size_t)graph->outline.count + 1;
    size_t functions = (size_t)graph->outline.profile->function_count + rows;
    graph->self = calloc(functions, sizeof graph->self[0]);
    graph->inclusive = calloc(rows, sizeof graph->inclusive[0]);
    graph->edges = calloc(rows, sizeof graph->edges[0]);
    graph->path = calloc((size_t)graph->outline.depth + 1, sizeof graph->path[0]);
    graph->on_path = calloc(functions, sizeof graph->on_path[0]);
    graph->row_of = calloc(rows, sizeof graph->row_of[0]);
    graph->named = calloc(functions, sizeof graph->named[0]);
    return graph->self && graph->inclusive && graph->edges && graph->path && graph->on_path &&
           graph->row_of && graph->named;
}

static void release(struct graph *graph)
{
    free(graph->self);
    free(graph->inclusive);
    free(graph->edges);
    free(graph->path);
    free(graph->on_path);
    free(graph->row_of);
    free(graph->named);
    ember_outline_fini(&graph->outline);
    ember_sink_fini(&graph->text);
}

static void write_view(const struct ember_profile *profile,
                       const struct ember_view_options *options, struct ember_sink *sink)
{
    struct graph graph = {.sink = sink};
    (void)options;
    if (ember_outline_init(&graph.outline, profile, &ember_outline_unlimited) && reserve(&graph)) {
        sum_rows(&graph);
        add_rows(&graph);
        join_edges(&graph);
        write_header(&graph);
        write_graph(&graph);
    } else {
        sink->failed = true;
    }
    sink->failed |= graph.text.failed;
    release(&graph);
}

const struct ember_view ember_view_callgrind = {
    .name = "callgrind",
    .extension = "callgrind.out",
    .write = write_view,
};
