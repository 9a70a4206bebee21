/* SPDX-License-Identifier: Apache-2.0
 *
 * A self-contained page with an interactive flame graph: view_html.html with the
 * style, the script and the profile, as JSON, in their places.
 *
 * The page stays light whatever the size of the profile: it holds the
 * `max_stacks` largest stacks. What is left out is summed up in "pruned" rows
 * below the stacks it was called from, so every total stays what it was.
 * A stack's size is its largest share of the total of any metric, callees
 * included, of a comparison on either side; so none is larger than its caller, and
 * what is kept is a tree.
 *
 * Rows are numbers in one flat array, callers first: how many rows before it
 * the caller stands (0: none), what it is, calls, own ns, waiting ns, other off-CPU
 * ns, GC ns, words, bytes of binaries; of a comparison then the last seven before.
 * What it is: an index of `functions`; without a caller an index of `processes`; from
 * row `pruned.first_row` on the number of stacks summed up.
 */
#include "json.h"
#include "view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "view_html_model.h"
#include "view_html_page.h"
#include "view_html_script.h"
#include "view_html_style.h"

static const uint32_t max_stacks = 50000;

enum { SIDES = 2 };

/* With all callees, none below zero. */
struct size {
    uint64_t time;
    uint64_t words;
    uint64_t calls;
    uint64_t binaries;
};

struct entry {
    struct size size[SIDES];            /* by side */
    double share;                       /* largest of them as a part of the whole */
    struct ember_metrics pruned[SIDES]; /* sum of the stacks left out below this one */
    uint32_t pruned_stacks;
    uint32_t row; /* EMBER_NONE: left out */
};

struct page {
    const struct ember_profile *profile;
    struct ember_sink *sink;
    int sides;             /* 2: a comparison */
    struct entry *entries; /* one a node, and one more for the whole */
    double *shares;
    uint32_t *functions; /* index in the page; EMBER_NONE: not in it */
    uint32_t *processes;
    uint32_t kept;
    uint32_t next_row;
    double largest_pruned;
};

/* ---- Sums ---------------------------------------------------------------- */

static struct entry *caller_entry(struct page *page, uint32_t node)
{
    uint32_t parent = page->profile->nodes[node].parent;
    return &page->entries[parent == EMBER_NONE ? page->profile->node_count : parent];
}

static const struct ember_metrics *own_of(const struct page *page, uint32_t node, int side)
{
    return side == EMBER_BEFORE ? &page->profile->before->own[node]
                                : &page->profile->nodes[node].own;
}

static void add_size(struct size *sum, const struct size *more)
{
    sum->time += more->time;
    sum->words += more->words;
    sum->calls += more->calls;
    sum->binaries += more->binaries;
}

static void sum_callees(struct page *page, int side)
{
    for (uint32_t node = page->profile->node_count; node-- > 0;) {
        const struct ember_metrics *own = own_of(page, node, side);
        struct size *size = &page->entries[node].size[side];
        add_size(size, &(struct size){
                           .time = own->own_ns + own->off_cpu_ns + own->gc_ns,
                           .words = own->words > 0 ? (uint64_t)own->words : 0,
                           .calls = own->calls,
                           .binaries = own->binary_bytes,
                       });
        add_size(&caller_entry(page, node)->size[side], size);
    }
}

static double share_of(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

static double largest(double a, double b)
{
    return a > b ? a : b;
}

static double largest_share(const struct size *part, const struct size *whole)
{
    double share = share_of(part->time, whole->time);
    share = largest(share, share_of(part->words, whole->words));
    share = largest(share, share_of(part->binaries, whole->binaries));
    return largest(share, share_of(part->calls, whole->calls));
}

static void measure_shares(struct page *page)
{
    const struct entry *whole = &page->entries[page->profile->node_count];
    for (uint32_t node = 0; node < page->profile->node_count; node++) {
        struct entry *entry = &page->entries[node];
        for (int side = 0; side < page->sides; side++)
            entry->share =
                largest(entry->share, largest_share(&entry->size[side], &whole->size[side]));
        page->shares[node] = entry->share;
    }
}

/* ---- Pruning ------------------------------------------------------------- */

static int falling(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a < b) - (a > b);
}

/* Of equal shares the first nodes stay: a caller stands before its callees, so
 * this leaves no hole in a stack. */
static void keep_largest(struct page *page)
{
    uint32_t count = page->profile->node_count;
    double cut = -1;
    uint32_t equals = 0;
    if (count > max_stacks) {
        qsort(page->shares, count, sizeof page->shares[0], falling);
        cut = page->shares[max_stacks - 1];
        for (equals = 1; equals < max_stacks && page->shares[max_stacks - 1 - equals] <= cut;)
            equals++;
        page->largest_pruned = page->shares[max_stacks];
    }
    for (uint32_t node = 0; node < count; node++) {
        struct entry *entry = &page->entries[node];
        bool kept = entry->share > cut || (equals > 0 && equals-- > 0);
        entry->row = kept ? page->kept++ : EMBER_NONE;
    }
}

static void fold_pruned(struct page *page)
{
    for (uint32_t node = page->profile->node_count; node-- > 0;) {
        const struct entry *entry = &page->entries[node];
        if (entry->row != EMBER_NONE)
            continue;
        struct entry *caller = caller_entry(page, node);
        for (int side = 0; side < page->sides; side++) {
            ember_metrics_add(&caller->pruned[side], own_of(page, node, side));
            ember_metrics_add(&caller->pruned[side], &entry->pruned[side]);
        }
        caller->pruned_stacks += entry->pruned_stacks + 1;
    }
}

/* ---- Info ---------------------------------------------------------------- */

static const char *outcome_name(enum ember_outcome outcome)
{
    switch (outcome) {
    case EMBER_OUTCOME_RETURNED:
        return "returned";
    case EMBER_OUTCOME_RAISED:
        return "raised";
    case EMBER_OUTCOME_EXITED:
        return "exited";
    case EMBER_OUTCOME_RECORDED:
        return "recorded";
    case EMBER_OUTCOME_UNFINISHED:
        break;
    }
    return "unfinished";
}

static const char *metric_name(enum ember_metric metric)
{
    switch (metric) {
    case EMBER_METRIC_WORDS:
        return "words";
    case EMBER_METRIC_CALLS:
        return "calls";
    case EMBER_METRIC_BINARIES:
        return "binaries";
    case EMBER_METRIC_OWN_TIME:
    case EMBER_METRICS:
        break;
    }
    return "time";
}

static void write_fallbacks(struct ember_sink *sink, uint32_t fallbacks)
{
    const char *separator = "";
    ember_sink_text(sink, "\"fallbacks\":[");
    for (int i = 0; i < EMBER_FALLBACK_KINDS; i++) {
        if (!(fallbacks & 1u << i))
            continue;
        ember_sink_printf(sink, "%s\"%s\"", separator, ember_fallback_names[i]);
        separator = ",";
    }
    ember_sink_text(sink, "]");
}

/* The fields of an object, without its end. */
static void write_info(struct ember_sink *sink, const char *name, const struct ember_info *info)
{
    ember_sink_printf(sink, "\"%s\":{", name);
    ember_json_string_field(sink, "target", info->target);
    ember_json_string_field(sink, "otp_release", info->otp_release);
    ember_sink_printf(sink, "\"start_us\":%" PRId64 ",", info->start_us);
    ember_json_number_field(sink, "duration_ns", info->duration_ns);
    ember_json_number_field(sink, "events", info->events);
    ember_json_number_field(sink, "lost", info->lost);
    ember_json_number_field(sink, "compensated_ns", info->compensated_ns);
    ember_json_number_field(sink, "raw_ns", info->raw_ns);
    ember_json_number_field(sink, "depth_cut", info->depth_cut);
    ember_json_number_field(sink, "calls", info->calls);
    ember_json_number_field(sink, "cut_by", info->cut_by);
    ember_json_string_field(sink, "outcome", outcome_name(info->outcome));
    write_fallbacks(sink, info->fallbacks);
}

static const char *normalise_name(enum ember_normalise normalise)
{
    switch (normalise) {
    case EMBER_NORMALISE_CALLS:
        return "by calls";
    case EMBER_NORMALISE_TIME:
        return "by time";
    case EMBER_NORMALISE_NONE:
        break;
    }
    return "not at all";
}

static void write_before(struct ember_sink *sink, const struct ember_before *before,
                         enum ember_side width)
{
    write_info(sink, "before", &before->info);
    ember_sink_text(sink, ",");
    ember_json_number_field(sink, "scale_millionths", (uint64_t)(before->scale * 1e6 + 0.5));
    ember_sink_printf(sink, "\"normalise\":\"%s\"},\n\"width\":\"%s\",\n",
                      normalise_name(before->normalise),
                      width == EMBER_BEFORE ? "before" : "after");
}

static void write_pruned(struct page *page)
{
    ember_sink_text(page->sink, "\"pruned\":{");
    ember_json_number_field(page->sink, "first_row", page->kept);
    ember_json_number_field(page->sink, "stacks", page->profile->node_count - page->kept);
    ember_json_number_field(page->sink, "of", page->profile->node_count);
    ember_sink_printf(page->sink, "\"largest_ppb\":%" PRIu64 "},\n",
                      (uint64_t)(page->largest_pruned * 1e9));
}

/* ---- Names --------------------------------------------------------------- */

static void name_used(struct page *page)
{
    const struct ember_profile *profile = page->profile;
    memset(page->functions, 0xff, (size_t)profile->function_count * sizeof page->functions[0]);
    memset(page->processes, 0xff, (size_t)profile->process_count * sizeof page->processes[0]);
    for (uint32_t i = 0; i < profile->node_count; i++) {
        const struct ember_node *node = &profile->nodes[i];
        if (page->entries[i].row == EMBER_NONE)
            continue;
        if (node->parent == EMBER_NONE)
            page->processes[node->process] = 0;
        else
            page->functions[node->function] = 0;
    }
}

static void write_functions(struct page *page)
{
    uint32_t used = 0;
    ember_sink_text(page->sink, "\"functions\":[");
    for (uint32_t i = 0; i < page->profile->function_count; i++) {
        if (page->functions[i] == EMBER_NONE)
            continue;
        const struct ember_function *function = &page->profile->functions[i];
        ember_sink_text(page->sink, used ? ",\n[" : "\n[");
        ember_json_string(page->sink, function->text);
        ember_sink_text(page->sink, ",");
        ember_json_string(page->sink, function->module);
        ember_sink_text(page->sink, ",");
        ember_json_string(page->sink, function->name);
        ember_sink_printf(page->sink, ",%u]", (unsigned)function->arity);
        page->functions[i] = used++;
    }
    ember_sink_text(page->sink, "],\n");
}

static void write_process(struct page *page, const struct ember_process *process)
{
    const struct ember_process *parent =
        process->parent == EMBER_NONE ? NULL : &page->profile->processes[process->parent];
    const char *parent_name = parent ? parent->name ? parent->name : parent->label : NULL;
    ember_sink_text(page->sink, "{");
    ember_json_string_field(page->sink, "pid", process->pid_text);
    ember_json_string_field(page->sink, "name", process->name);
    ember_json_string_field(page->sink, "label", process->label);
    ember_json_string_field(page->sink, "parent", parent ? parent->pid_text : NULL);
    ember_json_string_field(page->sink, "parent_name", parent_name);
    ember_sink_printf(page->sink, "\"exited\":%s}", process->exited ? "true" : "false");
}

static void write_processes(struct page *page)
{
    uint32_t used = 0;
    ember_sink_text(page->sink, "\"processes\":[");
    for (uint32_t i = 0; i < page->profile->process_count; i++) {
        if (page->processes[i] == EMBER_NONE)
            continue;
        ember_sink_text(page->sink, used ? ",\n" : "\n");
        write_process(page, &page->profile->processes[i]);
        page->processes[i] = used++;
    }
    ember_sink_text(page->sink, "],\n");
}

/* ---- Rows ---------------------------------------------------------------- */

static void write_metrics(struct ember_sink *sink, const struct ember_metrics *own)
{
    uint64_t waiting = ember_metrics_waiting(own);
    const uint64_t numbers[] = {own->calls, own->own_ns, waiting, own->off_cpu_ns - waiting,
                                own->gc_ns};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        ember_sink_text(sink, ",");
        ember_sink_unsigned(sink, numbers[i]);
    }
    ember_sink_text(sink, ",");
    ember_sink_signed(sink, own->words);
    ember_sink_text(sink, ",");
    ember_sink_unsigned(sink, own->binary_bytes);
}

static void begin_row(struct page *page, uint32_t caller_row, uint32_t what)
{
    uint32_t row = page->next_row++;
    if (row > 0)
        ember_sink_text(page->sink, ",\n");
    ember_sink_unsigned(page->sink, caller_row == EMBER_NONE ? 0 : row - caller_row);
    ember_sink_text(page->sink, ",");
    ember_sink_unsigned(page->sink, what);
}

static void write_kept_row(struct page *page, uint32_t i)
{
    const struct ember_node *node = &page->profile->nodes[i];
    if (node->parent == EMBER_NONE)
        begin_row(page, EMBER_NONE, page->processes[node->process]);
    else
        begin_row(page, page->entries[node->parent].row, page->functions[node->function]);
    for (int side = 0; side < page->sides; side++)
        write_metrics(page->sink, own_of(page, i, side));
}

static void write_pruned_row(struct page *page, const struct entry *entry)
{
    begin_row(page, entry->row, entry->pruned_stacks);
    for (int side = 0; side < page->sides; side++)
        write_metrics(page->sink, &entry->pruned[side]);
}

static void write_rows(struct page *page)
{
    uint32_t count = page->profile->node_count;
    page->entries[count].row = EMBER_NONE;
    ember_sink_text(page->sink, "\"rows\":[\n");
    for (uint32_t node = 0; node < count; node++)
        if (page->entries[node].row != EMBER_NONE)
            write_kept_row(page, node);
    for (uint32_t i = 0; i <= count; i++) {
        const struct entry *entry = &page->entries[i];
        bool kept = i == count || entry->row != EMBER_NONE;
        if (kept && entry->pruned_stacks > 0)
            write_pruned_row(page, entry);
    }
    ember_sink_text(page->sink, "]}\n");
}

/* ---- Page ---------------------------------------------------------------- */

static bool open_page(struct page *page, const struct ember_profile *profile,
                      struct ember_sink *sink)
{
    *page = (struct page){.profile = profile, .sink = sink, .sides = profile->before ? 2 : 1};
    page->entries = calloc((size_t)profile->node_count + 1, sizeof page->entries[0]);
    page->shares = calloc((size_t)profile->node_count + 1, sizeof page->shares[0]);
    page->functions = calloc((size_t)profile->function_count + 1, sizeof page->functions[0]);
    page->processes = calloc((size_t)profile->process_count + 1, sizeof page->processes[0]);
    return page->entries && page->shares && page->functions && page->processes;
}

static void close_page(struct page *page)
{
    free(page->entries);
    free(page->shares);
    free(page->functions);
    free(page->processes);
}

static void prune(struct page *page)
{
    for (int side = 0; side < page->sides; side++)
        sum_callees(page, side);
    measure_shares(page);
    keep_largest(page);
    fold_pruned(page);
    name_used(page);
}

static void write_json(struct page *page, const struct ember_view_options *options)
{
    const struct ember_profile *profile = page->profile;
    prune(page);
    ember_sink_printf(page->sink, "{\"version\":1,\"metric\":\"%s\",\n",
                      metric_name(options->metric));
    write_info(page->sink, "info", &profile->info);
    ember_sink_text(page->sink, "},\n");
    if (profile->before)
        write_before(page->sink, profile->before, options->width);
    write_pruned(page);
    write_functions(page);
    write_processes(page);
    write_rows(page);
}

/* Writes the page from `from` up to a marker; returns where it goes on behind it. */
static size_t write_up_to(struct ember_sink *sink, size_t from, const char *marker)
{
    size_t length = strlen(marker);
    size_t at = from;
    while (memcmp(ember_html_page + at, marker, length) != 0)
        at++;
    ember_sink_bytes(sink, ember_html_page + from, at - from);
    return at + length;
}

static void write_page(struct page *page, const struct ember_view_options *options)
{
    struct ember_sink *sink = page->sink;
    size_t at = write_up_to(sink, 0, "@STYLE@");
    ember_sink_bytes(sink, ember_html_style, ember_html_style_size);
    at = write_up_to(sink, at, "@PROFILE@");
    write_json(page, options);
    at = write_up_to(sink, at, "@SCRIPT@");
    ember_sink_bytes(sink, ember_html_model, ember_html_model_size);
    ember_sink_bytes(sink, ember_html_script, ember_html_script_size);
    ember_sink_bytes(sink, ember_html_page + at, ember_html_page_size - at);
}

static void write_view(const struct ember_profile *profile,
                       const struct ember_view_options *options, struct ember_sink *sink)
{
    struct page page;
    if (open_page(&page, profile, sink))
        write_page(&page, options);
    else
        sink->failed = true;
    close_page(&page);
}

const struct ember_view ember_view_html = {
    .name = "html",
    .extension = "html",
    .compares = true,
    .write = write_view,
};
