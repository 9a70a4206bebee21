/* SPDX-License-Identifier: Apache-2.0
 *
 * A self-contained page with an interactive flame graph: the template
 * view_html.html with the profile in it as JSON.
 *
 * The page stays light whatever the size of the profile: it holds the
 * `max_stacks` largest stacks. What is left out is summed up in "pruned" rows
 * below the stacks it was called from, so every total stays what it was.
 * A stack's size is its largest share of the total of any metric, callees
 * included; so none is larger than its caller, and what is kept is a tree.
 *
 * Rows are numbers in one flat array, callers first: how many rows before it
 * the caller stands (0: none), what it is, calls, own ns, off-CPU ns, GC ns,
 * words. What it is: an index of `functions`; without a caller an index of
 * `processes`; from row `pruned.first_row` on the number of stacks summed up.
 */
#include "json.h"
#include "view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "view_html_page.h"

static const char marker[] = "@PROFILE@";
static const uint32_t max_stacks = 50000;

struct entry {
    uint64_t time; /* these three with all callees, none below zero */
    uint64_t words;
    uint64_t calls;
    double share;                /* largest of the three as a part of the whole */
    struct ember_metrics pruned; /* sum of the stacks left out below this one */
    uint32_t pruned_stacks;
    uint32_t row; /* EMBER_NONE: left out */
};

struct page {
    const struct ember_profile *profile;
    struct ember_sink *sink;
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

static void sum_callees(struct page *page)
{
    for (uint32_t node = page->profile->node_count; node-- > 0;) {
        const struct ember_metrics *own = &page->profile->nodes[node].own;
        struct entry *entry = &page->entries[node];
        struct entry *caller = caller_entry(page, node);
        entry->time += own->own_ns + own->off_cpu_ns + own->gc_ns;
        entry->words += own->words > 0 ? (uint64_t)own->words : 0;
        entry->calls += own->calls;
        caller->time += entry->time;
        caller->words += entry->words;
        caller->calls += entry->calls;
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

static void measure_shares(struct page *page)
{
    const struct entry *whole = &page->entries[page->profile->node_count];
    for (uint32_t node = 0; node < page->profile->node_count; node++) {
        struct entry *entry = &page->entries[node];
        entry->share = share_of(entry->time, whole->time);
        entry->share = largest(entry->share, share_of(entry->words, whole->words));
        entry->share = largest(entry->share, share_of(entry->calls, whole->calls));
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
        ember_metrics_add(&caller->pruned, &page->profile->nodes[node].own);
        ember_metrics_add(&caller->pruned, &entry->pruned);
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
    case EMBER_METRIC_OWN_TIME:
        break;
    }
    return "time";
}

static void write_fallbacks(struct ember_sink *sink, uint32_t fallbacks)
{
    const char *separator = "";
    ember_sink_text(sink, "\"fallbacks\":[");
    static const struct {
        uint32_t bit;
        const char *name;
    } names[] = {
        {EMBER_FALLBACK_STACK, "stack"},
        {EMBER_FALLBACK_HEAP, "heap"},
        {EMBER_FALLBACK_CLOCK, "clock"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!(fallbacks & names[i].bit))
            continue;
        ember_sink_printf(sink, "%s\"%s\"", separator, names[i].name);
        separator = ",";
    }
    ember_sink_text(sink, "]");
}

static void write_info(struct ember_sink *sink, const struct ember_info *info)
{
    ember_sink_text(sink, "\"info\":{");
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
    ember_json_string_field(sink, "outcome", outcome_name(info->outcome));
    write_fallbacks(sink, info->fallbacks);
    ember_sink_text(sink, "},\n");
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

static void write_row(struct page *page, uint32_t caller_row, uint32_t what,
                      const struct ember_metrics *own)
{
    uint32_t row = page->next_row++;
    const uint64_t numbers[] = {
        caller_row == EMBER_NONE ? 0 : row - caller_row,
        what,
        own->calls,
        own->own_ns,
        own->off_cpu_ns,
        own->gc_ns,
    };
    if (row > 0)
        ember_sink_text(page->sink, ",\n");
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        ember_sink_unsigned(page->sink, numbers[i]);
        ember_sink_text(page->sink, ",");
    }
    ember_sink_signed(page->sink, own->words);
}

static void write_kept_row(struct page *page, const struct ember_node *node)
{
    if (node->parent == EMBER_NONE)
        write_row(page, EMBER_NONE, page->processes[node->process], &node->own);
    else
        write_row(page, page->entries[node->parent].row, page->functions[node->function],
                  &node->own);
}

static void write_rows(struct page *page)
{
    uint32_t count = page->profile->node_count;
    page->entries[count].row = EMBER_NONE;
    ember_sink_text(page->sink, "\"rows\":[\n");
    for (uint32_t node = 0; node < count; node++)
        if (page->entries[node].row != EMBER_NONE)
            write_kept_row(page, &page->profile->nodes[node]);
    for (uint32_t i = 0; i <= count; i++) {
        const struct entry *entry = &page->entries[i];
        bool kept = i == count || entry->row != EMBER_NONE;
        if (kept && entry->pruned_stacks > 0)
            write_row(page, entry->row, entry->pruned_stacks, &entry->pruned);
    }
    ember_sink_text(page->sink, "]}\n");
}

/* ---- Page ---------------------------------------------------------------- */

static bool open_page(struct page *page, const struct ember_profile *profile,
                      struct ember_sink *sink)
{
    *page = (struct page){.profile = profile, .sink = sink};
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

static void write_json(struct page *page, enum ember_metric metric)
{
    sum_callees(page);
    measure_shares(page);
    keep_largest(page);
    fold_pruned(page);
    name_used(page);
    ember_sink_printf(page->sink, "{\"version\":1,\"metric\":\"%s\",\n", metric_name(metric));
    write_info(page->sink, &page->profile->info);
    write_pruned(page);
    write_functions(page);
    write_processes(page);
    write_rows(page);
}

static size_t marker_offset(void)
{
    size_t at = 0;
    while (memcmp(ember_html_page + at, marker, sizeof marker - 1) != 0)
        at++;
    return at;
}

static void write_view(const struct ember_profile *profile,
                       const struct ember_view_options *options, struct ember_sink *sink)
{
    struct page page;
    if (!open_page(&page, profile, sink)) {
        sink->failed = true;
    } else {
        size_t before = marker_offset();
        size_t after = before + sizeof marker - 1;
        ember_sink_bytes(sink, ember_html_page, before);
        write_json(&page, options->metric);
        ember_sink_bytes(sink, ember_html_page + after, ember_html_page_size - after);
    }
    close_page(&page);
}

const struct ember_view ember_view_html = {
    .name = "html",
    .extension = "html",
    .write = write_view,
};
