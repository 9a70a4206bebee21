/* SPDX-License-Identifier: Apache-2.0
 *
 * Made-up profiles for the tests of the views: `profile`, filled in by
 * sample_make and emptied by sample_free, once in a program.
 */
#ifndef EMBER_TEST_SAMPLE_PROFILES_H
#define EMBER_TEST_SAMPLE_PROFILES_H

#include "profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FUNCTIONS = 4096 };

static struct ember_function functions[MAX_FUNCTIONS];
static struct ember_process *processes;
static struct ember_node *nodes;
static struct ember_profile profile = {.functions = functions};
static char *buffers[MAX_FUNCTIONS];

static uint32_t add_function(char *module, char *name, uint8_t arity, char *text)
{
    functions[profile.function_count] = (struct ember_function){module, name, text, arity};
    return profile.function_count++;
}

static uint32_t add_node(uint32_t parent, uint32_t function, struct ember_metrics own)
{
    uint32_t process = parent == EMBER_NONE ? profile.process_count - 1 : nodes[parent].process;
    nodes[profile.node_count] = (struct ember_node){parent, function, process, own};
    return profile.node_count++;
}

static uint32_t add_process(char *pid, char *name, char *label, uint32_t parent)
{
    struct ember_process *process = &processes[profile.process_count++];
    *process = (struct ember_process){
        .pid = profile.process_count,
        .pid_text = pid,
        .name = name,
        .label = label,
        .parent = parent,
        .root = profile.node_count,
    };
    add_node(EMBER_NONE, EMBER_NONE, (struct ember_metrics){0});
    return process->root;
}

static void reserve(uint32_t process_count, uint32_t node_count)
{
    processes = calloc(process_count, sizeof *processes);
    nodes = calloc(node_count, sizeof *nodes);
    if (!processes || !nodes)
        exit(1);
    profile.processes = processes;
    profile.nodes = nodes;
}

static void describe(char *target)
{
    profile.info = (struct ember_info){
        .target = target,
        .otp_release = "27",
        .start_us = 1767323045123456,
        .duration_ns = 1234567890,
        .events = 48211,
        .compensated_ns = 250000000,
        .raw_ns = 1000000000,
        .calls = 1,
    };
}

/* ---- small: every number is known to the tests -------------------------- */

static void make_small(void)
{
    describe("shop:checkout/1");
    reserve(2, 16);
    uint32_t checkout = add_function("shop", "checkout", 1, "shop:checkout/1");
    uint32_t map = add_function("lists", "map", 2, "lists:map/2");
    uint32_t price = add_function("shop", "price", 1, "shop:price/1");
    uint32_t encode = add_function("Elixir.Jason", "encode!", 2, "Jason.encode!/2");
    uint32_t call = add_function("gen_server", "call", 3, "gen_server:call/3");

    uint32_t client = add_process("<0.100.0>", NULL, "shop:checkout/1", EMBER_NONE);
    uint32_t top = add_node(client, checkout, (struct ember_metrics){1, 10000000, 0, 0, 100});
    uint32_t loop = add_node(top, map, (struct ember_metrics){50, 20000000, 0, 10000000, 4000});
    add_node(loop, price, (struct ember_metrics){1000, 40000000, 0, 0, 900});
    uint32_t wait = add_node(top, call,
                             (struct ember_metrics){.calls = 10,
                                                    .own_ns = 5000000,
                                                    .off_cpu_ns = 15000000,
                                                    .waiting_ns = 12000000,
                                                    .words = -300});
    add_node(wait, map, (struct ember_metrics){9, 1000000, 0, 0, 0});

    uint32_t server = add_process("<0.101.0>", "pricing", "pricing:init/1", 0);
    uint32_t json = add_node(server, encode, (struct ember_metrics){30, 60000000, 0, 0, 5000});
    add_node(json, map, (struct ember_metrics){300, 39000000, 0, 0, 20000, .binary_bytes = 65536});
    processes[1].exited = true;
}

/* ---- untold: small, where waiting and binaries were not found ---------------- */

static void make_untold(void)
{
    make_small();
    profile.info.fallbacks = EMBER_FALLBACK_BINARIES | EMBER_FALLBACK_WAITING;
    for (uint32_t i = 0; i < profile.node_count; i++)
        nodes[i].own.waiting_ns = nodes[i].own.binary_bytes = 0;
}

/* ---- comparison: small, beside how it was before ------------------------- */

static struct ember_metrics metrics_before[16];
static struct ember_before before = {
    .own = metrics_before, .scale = 2, .normalise = EMBER_NORMALISE_CALLS};

/* price is new, call was faster, encode slower, the map below it as it is now. */
static void make_comparison(void)
{
    make_small();
    uint32_t total = add_function("shop", "total", 2, "shop:total/2");
    uint32_t vanished = add_node(1, total, (struct ember_metrics){0});
    for (uint32_t i = 0; i < profile.node_count; i++)
        metrics_before[i] = nodes[i].own;
    metrics_before[3] = (struct ember_metrics){0};
    metrics_before[4] = (struct ember_metrics){
        .calls = 4, .own_ns = 1000000, .off_cpu_ns = 3000000, .waiting_ns = 3000000, .words = -20};
    metrics_before[7] = (struct ember_metrics){30, 90000000, 0, 2000000, 7000};
    metrics_before[vanished] = (struct ember_metrics){2, 30000000, 0, 0, 600};
    before.info = profile.info;
    before.info.start_us -= 86400000000;
    before.info.lost = 3;
    profile.before = &before;
}

/* ---- timeline: small, with times that add up to it ------------------------ */

static void add_span(uint32_t node, enum ember_state state, uint64_t length)
{
    struct ember_span span = {node, state, length};
    if (length > 0 &&
        !ember_timeline_add(&profile.timelines->processes[nodes[node].process], span, SIZE_MAX))
        exit(1);
}

/* What a node has, in so many parts, of which this is one. */
static void add_part(uint32_t node, uint32_t part, uint32_t parts)
{
    const struct ember_metrics *own = &nodes[node].own;
    const uint64_t all[EMBER_STATES] = {own->own_ns, own->waiting_ns,
                                        own->off_cpu_ns - own->waiting_ns, own->gc_ns};
    for (int state = 0; state < EMBER_STATES; state++)
        add_span(node, (enum ember_state)state,
                 all[state] / parts + (part == 0 ? all[state] % parts : 0));
}

static void add_timeline(uint32_t parts)
{
    profile.timelines = ember_timelines_create(profile.process_count);
    if (!profile.timelines)
        exit(1);
    for (uint32_t i = 0; i < profile.process_count; i++)
        profile.timelines->processes[i].start = 1000 * i;
    for (uint32_t part = 0; part < parts; part++)
        for (uint32_t node = 0; node < profile.node_count; node++)
            add_part(node, part, parts);
}

static void make_timeline(void)
{
    make_small();
    add_timeline(7);
}

static void make_cut_timeline(void)
{
    make_timeline();
    profile.timelines->cut_ns = 123456789;
}

/* ---- merge: two processes that do the same ------------------------------- */

static void make_merge(void)
{
    describe("work:start/0");
    reserve(2, 5);
    uint32_t run = add_function("work", "run", 0, "work:run/0");
    uint32_t step = add_function("work", "step", 1, "work:step/1");
    uint32_t first = add_process("<0.1.0>", NULL, "work:run/0", EMBER_NONE);
    add_node(first, run, (struct ember_metrics){1, 1000, 0, 0, 10});
    uint32_t second = add_process("<0.2.0>", NULL, "work:run/0", EMBER_NONE);
    uint32_t again = add_node(second, run, (struct ember_metrics){1, 500, 0, 0, 10});
    add_node(again, step, (struct ember_metrics){1, 1500, 0, 0, 10});
}

/* ---- recursive: a function in itself, directly and through others -------- */

static void make_recursive(void)
{
    describe("tree:walk/1");
    reserve(1, 12);
    uint32_t walk = add_function("tree", "walk", 1, "tree:walk/1");
    uint32_t fold = add_function("lists", "foldl", 3, "lists:foldl/3");
    uint32_t leaf = add_function("tree", "leaf", 1, "tree:leaf/1");
    uint32_t root = add_process("<0.1.0>", "walker", NULL, EMBER_NONE);
    uint32_t one = add_node(root, walk, (struct ember_metrics){1, 1000, 0, 1, 10});
    uint32_t two = add_node(one, walk, (struct ember_metrics){2, 200, 3, 0, 20});
    uint32_t three = add_node(two, fold, (struct ember_metrics){3, 30, 0, 0, 30});
    uint32_t four = add_node(three, walk, (struct ember_metrics){4, 4000, 0, 5, 40});
    add_node(four, leaf, (struct ember_metrics){5, 500, 7, 0, 50});
    uint32_t five = add_node(four, fold, (struct ember_metrics){6, 60, 0, 0, 60});
    add_node(five, leaf, (struct ember_metrics){7, 70000, 0, 0, 70});
    add_node(root, leaf, (struct ember_metrics){8, 80, 0, 0, 80});
    uint32_t six = add_node(one, fold, (struct ember_metrics){9, 9, 0, 0, 90});
    add_node(six, fold, (struct ember_metrics){10, 11, 0, 0, 100});
}

/* ---- trouble: all that calls for a banner -------------------------------- */

static void make_trouble(void)
{
    make_small();
    profile.info.lost = 1789;
    profile.info.depth_cut = 12;
    profile.info.outcome = EMBER_OUTCOME_UNFINISHED;
    profile.info.fallbacks = EMBER_FALLBACK_STACK | EMBER_FALLBACK_HEAP | EMBER_FALLBACK_CLOCK;
}

/* ---- hostile: names that try to get out of their place ------------------- */

static void make_hostile(void)
{
    static char *const names[] = {
        "</script><script>window.hacked = 1</script>",
        "<img src=x onerror='window.hacked = 2'>",
        "\"];window.hacked = 3;//",
        "<!--<script>",
        "line\nbreak\r\ttab \x01\x1f\x7f",
        "a;b;c 12",
        "\xe2\x80\xa8\xe2\x80\xa9 separators",
        "\xc3\xa5\xc3\xa4\xc3\xb6 \xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e \xf0\x9f\x94\xa5",
        "\xff\xfe not utf-8 \xed\xa0\x80",
        "__proto__",
        "\xe2\x80\xaereversed",
        "(3)",
        "# comment",
        "<0.1.0> [x] (y) (z)+0x1f",
    };
    enum { COUNT = sizeof names / sizeof names[0] };
    describe("</title><script>window.hacked = 4</script>");
    reserve(1, COUNT + 1);
    uint32_t root = add_process("<0.1.0>", "</script>", "<b>label</b>", EMBER_NONE);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t function = add_function(names[i], names[i], 1, names[i]);
        add_node(root, function, (struct ember_metrics){1, 1000 + i, 0, 0, 10});
    }
}

static void make_empty(void)
{
    profile.info.outcome = EMBER_OUTCOME_UNFINISHED;
}

static void make_deep(void)
{
    describe("deep:down/1");
    reserve(1, 10001);
    uint32_t function = add_function("deep", "down", 1, "deep:down/1");
    uint32_t at = add_process("<0.1.0>", NULL, NULL, EMBER_NONE);
    for (uint32_t i = 0; i < 10000; i++)
        at = add_node(at, function, (struct ember_metrics){1, 1000, 0, 0, 2});
}

/* ---- large: random stacks, of a few large and many small ----------------- */

static uint64_t seed = 88172645463325252u;

static uint32_t any(uint32_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)((seed >> 16) % below);
}

static char *format(const char *pattern, const char *a, const char *b, unsigned c)
{
    static unsigned used;
    char *text = malloc(96);
    if (!text)
        exit(1);
    snprintf(text, 96, pattern, a, b, c);
    return buffers[used++] = text;
}

static void add_functions(void)
{
    static char *const modules[] = {
        "lists",          "maps",         "gen_server",     "ets",           "binary",
        "io_lib",         "compile",      "v3_core",        "sys_core_fold", "beam_ssa_opt",
        "beam_validator", "erl_parse",    "erl_scan",       "file_server",   "proplists",
        "string",         "unicode_util", "ssl_connection", "tls_record",    "cowboy_stream",
    };
    static char *const names[] = {"map",   "fold",  "handle_call", "lookup", "parse",  "format",
                                  "walk",  "opt",   "rewrite",     "scan",   "loop",   "expr",
                                  "merge", "split", "encode",      "decode", "do_send"};
    for (uint32_t i = 0; i < 1000; i++) {
        char *module = modules[i % 20];
        char *name = format("%s%s_%u", names[any(17)], "", i / 20);
        uint8_t arity = (uint8_t)any(5);
        add_function(module, name, arity, format("%s:%s/%u", module, name, arity));
    }
}

static void add_random_node(uint32_t first, uint32_t recent)
{
    uint32_t count = profile.node_count - first;
    uint32_t back = any(3) ? any(count) : any(count < recent ? count : recent);
    uint32_t parent = profile.node_count - 1 - back;
    uint32_t weight = 1 + any(1000) * any(1000) / (1 + any(500));
    uint32_t node = add_node(parent, any(1000),
                             (struct ember_metrics){
                                 .calls = 1 + any(weight),
                                 .own_ns = (uint64_t)weight * (20 + any(100)),
                                 .off_cpu_ns = any(20) ? 0 : (uint64_t)weight * 40,
                                 .gc_ns = any(30) ? 0 : (uint64_t)weight * 30,
                                 .words = (int64_t)(any(weight + 1)) * 3 - 5,
                             });
    nodes[node].own.waiting_ns = nodes[node].own.off_cpu_ns / (1 + weight % 3);
    nodes[node].own.binary_bytes = weight % 10 ? 0 : (uint64_t)weight * 100;
}

static void make_large(uint32_t process_count, uint32_t node_count)
{
    describe("compile:file/2");
    reserve(process_count, node_count);
    add_functions();
    for (uint32_t i = 0; i < process_count; i++) {
        char *pid = format("<0.%s%s%u.0>", "", "", 200 + i);
        uint32_t first =
            add_process(pid, i ? NULL : "compiler", "compile:worker/1", i ? 0 : EMBER_NONE);
        while (profile.node_count < node_count / process_count * (i + 1))
            add_random_node(first, 40);
    }
}

/* More than viewers take, of more stacks than they take. */
static void make_large_timeline(void)
{
    make_large(4, 200000);
    add_timeline(10);
}

/* ---- tall: stacks of some hundred functions, up to the recorder's limit ------ */

static void make_tall(uint32_t node_count)
{
    enum { MOST = 512 };
    describe("compile:file/2");
    reserve(1, node_count);
    add_functions();
    uint32_t at = add_process("<0.1.0>", "compiler", NULL, EMBER_NONE);
    uint32_t depth = 0;
    while (profile.node_count < node_count) {
        for (uint32_t up = any(20) == 0 || depth == MOST ? any(depth + 1) : 0; up > 0;
             up--, depth--)
            at = nodes[at].parent;
        uint32_t weight = 1 + any(1000) * any(1000) / (1 + any(500));
        at = add_node(at, any(1000),
                      (struct ember_metrics){1 + any(weight), (uint64_t)weight * 50, any(20),
                                             any(30), any(weight)});
        depth++;
    }
}

/* false when there is no sample of this name. */
static bool sample_make(const char *name)
{
    if (strcmp(name, "small") == 0)
        make_small();
    else if (strcmp(name, "untold") == 0)
        make_untold();
    else if (strcmp(name, "comparison") == 0)
        make_comparison();
    else if (strcmp(name, "timeline") == 0)
        make_timeline();
    else if (strcmp(name, "cut_timeline") == 0)
        make_cut_timeline();
    else if (strcmp(name, "large_timeline") == 0)
        make_large_timeline();
    else if (strcmp(name, "merge") == 0)
        make_merge();
    else if (strcmp(name, "recursive") == 0)
        make_recursive();
    else if (strcmp(name, "trouble") == 0)
        make_trouble();
    else if (strcmp(name, "hostile") == 0)
        make_hostile();
    else if (strcmp(name, "empty") == 0)
        make_empty();
    else if (strcmp(name, "deep") == 0)
        make_deep();
    else if (strcmp(name, "medium") == 0)
        make_large(3, 2000);
    else if (strcmp(name, "large") == 0)
        make_large(4, 200000);
    else if (strcmp(name, "tall") == 0)
        make_tall(200000);
    else
        return false;
    return true;
}

static void sample_free(void)
{
    for (uint32_t i = 0; i < MAX_FUNCTIONS; i++)
        free(buffers[i]);
    ember_timelines_destroy(profile.timelines);
    free(processes);
    free(nodes);
}

#endif
