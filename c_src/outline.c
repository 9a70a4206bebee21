/* SPDX-License-Identifier: Apache-2.0
 *
 * A stack's size is its largest share of the total of any metric shown, on either
 * side of a comparison, callees included: none is larger than its caller, so what
 * is kept is a tree.
 */
#include "outline.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const struct ember_outline_limits ember_outline_unlimited = {
    .stacks = UINT32_MAX,
    .processes = UINT32_MAX,
    .depth = UINT32_MAX,
    .values = UINT64_MAX,
    .frames = UINT64_MAX,
    .text = UINT64_MAX,
    .metrics = EMBER_ALL_METRICS,
};

/* ---- Values -------------------------------------------------------------- */

const char *const ember_pseudo_frames[EMBER_PSEUDO_FRAMES] = {
    [EMBER_PSEUDO_GC] = "[gc]",
    [EMBER_PSEUDO_WAITING] = "[waiting]",
    [EMBER_PSEUDO_PREEMPTED] = "[preempted]",
    [EMBER_PSEUDO_OFF_CPU] = "[off-cpu]",
    [EMBER_PSEUDO_PRUNED] = EMBER_PRUNED_FRAME,
};

enum ember_pseudo_frame ember_pseudo_frame(const char *name)
{
    int i = 0;
    while (i + 1 < EMBER_PSEUDO_FRAMES && strcmp(ember_pseudo_frames[i], name) != 0)
        i++;
    return (enum ember_pseudo_frame)i;
}

enum ember_pseudo_frame ember_pseudo_not_waiting(const struct ember_profile *profile)
{
    uint32_t fallbacks = profile->info.fallbacks;
    if (profile->before)
        fallbacks |= profile->before->info.fallbacks;
    return fallbacks & EMBER_FALLBACK_WAITING ? EMBER_PSEUDO_OFF_CPU : EMBER_PSEUDO_PREEMPTED;
}

static uint64_t time_of(const struct ember_metrics *metrics)
{
    return metrics->own_ns + metrics->off_cpu_ns + metrics->gc_ns;
}

static uint64_t words_of(const struct ember_metrics *metrics)
{
    return metrics->words > 0 ? (uint64_t)metrics->words : 0;
}

static uint64_t value_of(const struct ember_metrics *metrics, enum ember_metric metric)
{
    switch (metric) {
    case EMBER_METRIC_WORDS:
        return words_of(metrics);
    case EMBER_METRIC_CALLS:
        return metrics->calls;
    case EMBER_METRIC_BINARIES:
        return metrics->binary_bytes;
    case EMBER_METRIC_OWN_TIME:
    case EMBER_METRICS:
        break;
    }
    return time_of(metrics);
}

static const struct ember_metrics none;

static const struct ember_metrics *own_of(const struct ember_profile *profile, uint32_t node,
                                          enum ember_side side)
{
    if (node == EMBER_NONE || (side == EMBER_BEFORE && !profile->before))
        return &none;
    return side == EMBER_BEFORE ? &profile->before->own[node] : &profile->nodes[node].own;
}

static struct ember_slice slice(enum ember_pseudo_frame frame, uint64_t value)
{
    return (struct ember_slice){ember_pseudo_frames[frame], value};
}

/* Every kind of slice, those of 0 too. */
static void fill_slices(const struct ember_profile *profile, const struct ember_metrics *own,
                        const struct ember_metrics *pruned, enum ember_metric metric,
                        struct ember_slice *slices)
{
    bool time = metric == EMBER_METRIC_OWN_TIME;
    const struct ember_metrics *timed = time ? own : &none;
    slices[0] = (struct ember_slice){NULL, time ? own->own_ns : value_of(own, metric)};
    slices[1] = slice(EMBER_PSEUDO_GC, timed->gc_ns);
    slices[2] = slice(EMBER_PSEUDO_WAITING, ember_metrics_waiting(timed));
    slices[3] =
        slice(ember_pseudo_not_waiting(profile), timed->off_cpu_ns - ember_metrics_waiting(timed));
    slices[4] = slice(EMBER_PSEUDO_PRUNED, value_of(pruned, metric));
}

static void fill_row(const struct ember_outline *outline, uint32_t row, enum ember_metric metric,
                     enum ember_side side, struct ember_slice *slices)
{
    const struct ember_row *at = &outline->rows[row];
    fill_slices(outline->profile, own_of(outline->profile, at->node, side),
                side == EMBER_BEFORE ? &at->pruned_before : &at->pruned, metric, slices);
}

/* Takes out those of 0. */
static unsigned pack(struct ember_slice *slices)
{
    unsigned count = 0;
    for (unsigned i = 0; i < EMBER_MAX_SLICES; i++)
        if (slices[i].value > 0)
            slices[count++] = slices[i];
    return count;
}

unsigned ember_outline_slices(const struct ember_outline *outline, uint32_t row,
                              enum ember_metric metric, struct ember_slice *slices)
{
    return ember_outline_slices_of(outline, row, metric, EMBER_AFTER, slices);
}

unsigned ember_outline_slices_of(const struct ember_outline *outline, uint32_t row,
                                 enum ember_metric metric, enum ember_side side,
                                 struct ember_slice *slices)
{
    fill_row(outline, row, metric, side, slices);
    return pack(slices);
}

unsigned ember_outline_changes(const struct ember_outline *outline, uint32_t row,
                               enum ember_metric metric, struct ember_change *changes)
{
    struct ember_slice before[EMBER_MAX_SLICES];
    struct ember_slice after[EMBER_MAX_SLICES];
    unsigned count = 0;
    fill_row(outline, row, metric, EMBER_BEFORE, before);
    fill_row(outline, row, metric, EMBER_AFTER, after);
    for (unsigned i = 0; i < EMBER_MAX_SLICES; i++)
        if (before[i].value > 0 || after[i].value > 0)
            changes[count++] =
                (struct ember_change){after[i].frame, before[i].value, after[i].value};
    return count;
}

uint64_t *ember_outline_inclusive(const struct ember_outline *outline, enum ember_metric metric)
{
    return ember_outline_inclusive_of(outline, metric, EMBER_AFTER);
}

uint64_t *ember_outline_inclusive_of(const struct ember_outline *outline, enum ember_metric metric,
                                     enum ember_side side)
{
    uint64_t *values = calloc((size_t)outline->count + 1, sizeof *values);
    for (uint32_t i = outline->count; values && i-- > 0;) {
        struct ember_slice slices[EMBER_MAX_SLICES];
        unsigned count = ember_outline_slices_of(outline, i, metric, side, slices);
        for (unsigned j = 0; j < count; j++)
            values[i] += slices[j].value;
        if (outline->rows[i].parent != EMBER_NONE)
            values[outline->rows[i].parent] += values[i];
    }
    return values;
}

/* ---- Which stacks are kept ----------------------------------------------- */

struct size {
    uint64_t values[2][EMBER_METRICS]; /* by side and metric, with all callees */
    double share;
    uint64_t text; /* bytes of the names in the stack */
    uint32_t node;
    uint32_t depth;
};

struct choice {
    const struct ember_profile *profile;
    struct ember_outline_limits limits;
    struct size *sizes; /* one a node */
    bool *kept;
    uint32_t stacks; /* this and the rest: kept so far */
    uint32_t processes;
    uint64_t values;
    uint64_t frames;
    uint64_t text;
};

static void measure_stack(struct choice *choice, uint32_t i)
{
    const struct ember_profile *profile = choice->profile;
    const struct ember_node *node = &profile->nodes[i];
    struct size *size = &choice->sizes[i];
    size->node = i;
    if (node->parent == EMBER_NONE) {
        const struct ember_process *process = &profile->processes[node->process];
        const char *name = process->name ? process->name : process->label;
        size->text =
            (process->pid_text ? strlen(process->pid_text) : 0) + (name ? strlen(name) : 0);
        return;
    }
    size->depth = choice->sizes[node->parent].depth + 1;
    size->text = choice->sizes[node->parent].text + strlen(profile->functions[node->function].text);
}

/* `whole` gets the sums. */
static void sum_callees(struct choice *choice, enum ember_side side, uint64_t *whole)
{
    const struct ember_profile *profile = choice->profile;
    for (uint32_t i = profile->node_count; i-- > 0;) {
        uint32_t parent = profile->nodes[i].parent;
        uint64_t *above = parent == EMBER_NONE ? whole : choice->sizes[parent].values[side];
        for (int metric = 0; metric < EMBER_METRICS; metric++) {
            uint64_t *value = &choice->sizes[i].values[side][metric];
            *value += value_of(own_of(profile, i, side), (enum ember_metric)metric);
            above[metric] += *value;
        }
    }
}

static void find_share(struct choice *choice, struct size *size, enum ember_side side,
                       const uint64_t *whole)
{
    for (int metric = 0; metric < EMBER_METRICS; metric++) {
        if (!(choice->limits.metrics & 1u << metric) || whole[metric] == 0)
            continue;
        double share = (double)size->values[side][metric] / (double)whole[metric];
        size->share = share > size->share ? share : size->share;
    }
}

static void measure(struct choice *choice)
{
    uint64_t whole[2][EMBER_METRICS] = {{0}};
    sum_callees(choice, EMBER_AFTER, whole[EMBER_AFTER]);
    if (choice->profile->before)
        sum_callees(choice, EMBER_BEFORE, whole[EMBER_BEFORE]);
    for (uint32_t i = 0; i < choice->profile->node_count; i++) {
        measure_stack(choice, i);
        find_share(choice, &choice->sizes[i], EMBER_AFTER, whole[EMBER_AFTER]);
        find_share(choice, &choice->sizes[i], EMBER_BEFORE, whole[EMBER_BEFORE]);
    }
}

/* Larger ones first, of equals callers first. */
static int by_size(const void *left, const void *right)
{
    const struct size *a = left;
    const struct size *b = right;
    if (a->share != b->share)
        return a->share < b->share ? 1 : -1;
    return (a->node > b->node) - (a->node < b->node);
}

static unsigned count_side(const struct choice *choice, const struct ember_metrics *own)
{
    struct ember_slice slices[EMBER_MAX_SLICES];
    unsigned count = 0;
    for (int metric = 0; metric < EMBER_METRICS; metric++) {
        if (!(choice->limits.metrics & 1u << metric))
            continue;
        fill_slices(choice->profile, own, &none, (enum ember_metric)metric, slices);
        count += pack(slices);
    }
    return count;
}

static unsigned count_values(const struct choice *choice, uint32_t node)
{
    return count_side(choice, own_of(choice->profile, node, EMBER_AFTER)) +
           count_side(choice, own_of(choice->profile, node, EMBER_BEFORE));
}

/* false when it would be too much. */
static bool keep(struct choice *choice, const struct size *size)
{
    const struct ember_node *node = &choice->profile->nodes[size->node];
    const struct ember_outline_limits *limits = &choice->limits;
    bool process = node->parent == EMBER_NONE;
    unsigned values = count_values(choice, size->node);
    uint64_t frames = (uint64_t)values * (size->depth + 1);
    uint64_t text = values * size->text;
    if ((process ? choice->processes >= limits->processes : !choice->kept[node->parent]) ||
        choice->stacks >= limits->stacks || size->depth > limits->depth ||
        values > limits->values - choice->values || frames > limits->frames - choice->frames ||
        text > limits->text - choice->text)
        return false;
    choice->kept[size->node] = true;
    choice->stacks++;
    choice->processes += process;
    choice->values += values;
    choice->frames += frames;
    choice->text += text;
    return true;
}

static bool keep_all(struct choice *choice)
{
    bool all = true;
    for (uint32_t i = 0; all && i < choice->profile->node_count; i++)
        all = keep(choice, &choice->sizes[i]);
    return all;
}

static void choose(struct choice *choice)
{
    size_t count = choice->profile->node_count;
    measure(choice);
    if (count == 0 || keep_all(choice))
        return;
    memset(choice->kept, 0, count * sizeof choice->kept[0]);
    choice->stacks = choice->processes = 0;
    choice->values = choice->frames = choice->text = 0;
    qsort(choice->sizes, count, sizeof choice->sizes[0], by_size);
    for (size_t i = 0; i < count; i++)
        keep(choice, &choice->sizes[i]);
}

/* ---- Their order --------------------------------------------------------- */

struct links {
    uint32_t first_callee;
    uint32_t next; /* called from the same stack, or the next process */
    uint32_t row;
};

/* The first process. */
static uint32_t link_nodes(const struct choice *choice, struct links *links)
{
    const struct ember_profile *profile = choice->profile;
    uint32_t first = EMBER_NONE;
    for (uint32_t i = 0; i < profile->node_count; i++)
        links[i] = (struct links){EMBER_NONE, EMBER_NONE, EMBER_NONE};
    for (uint32_t i = profile->node_count; i-- > 0;) {
        if (!choice->kept[i])
            continue;
        uint32_t parent = profile->nodes[i].parent;
        uint32_t *list = parent == EMBER_NONE ? &first : &links[parent].first_callee;
        links[i].next = *list;
        *list = i;
    }
    return first;
}

static uint32_t next_node(const struct ember_profile *profile, const struct links *links,
                          uint32_t node)
{
    if (links[node].first_callee != EMBER_NONE)
        return links[node].first_callee;
    while (links[node].next == EMBER_NONE && profile->nodes[node].parent != EMBER_NONE)
        node = profile->nodes[node].parent;
    return links[node].next;
}

static void lay_out(struct ember_outline *outline, struct links *links, uint32_t first)
{
    const struct ember_profile *profile = outline->profile;
    for (uint32_t node = first; node != EMBER_NONE; node = next_node(profile, links, node)) {
        uint32_t parent = profile->nodes[node].parent;
        struct ember_row *row = &outline->rows[outline->count];
        *row = (struct ember_row){.node = node, .parent = EMBER_NONE};
        if (parent != EMBER_NONE) {
            row->parent = links[parent].row;
            row->depth = outline->rows[row->parent].depth + 1;
        }
        outline->depth = row->depth > outline->depth ? row->depth : outline->depth;
        links[node].row = outline->count++;
    }
}

static void prune(struct ember_metrics *pruned, struct ember_metrics own)
{
    own.words = own.words > 0 ? own.words : 0;
    ember_metrics_add(pruned, &own);
}

/* What was left out goes to the nearest caller that was not. */
static void fold(struct ember_outline *outline, struct links *links)
{
    const struct ember_profile *profile = outline->profile;
    uint32_t others = outline->count;
    outline->rows[others] = (struct ember_row){.node = EMBER_NONE, .parent = EMBER_NONE};
    for (uint32_t i = 0; i < profile->node_count; i++) {
        if (links[i].row != EMBER_NONE)
            continue;
        uint32_t parent = profile->nodes[i].parent;
        links[i].row = parent == EMBER_NONE ? others : links[parent].row;
        struct ember_row *row = &outline->rows[links[i].row];
        prune(&row->pruned, *own_of(profile, i, EMBER_AFTER));
        prune(&row->pruned_before, *own_of(profile, i, EMBER_BEFORE));
        row->pruned_stacks++;
        outline->left_out++;
    }
    outline->count += outline->rows[others].pruned_stacks > 0;
}

bool ember_outline_init(struct ember_outline *outline, const struct ember_profile *profile,
                        const struct ember_outline_limits *limits)
{
    size_t count = (size_t)profile->node_count + 1;
    struct choice choice = {.profile = profile, .limits = *limits};
    if (choice.limits.text == 0)
        choice.limits.text = UINT64_MAX;
    choice.sizes = calloc(count, sizeof choice.sizes[0]);
    choice.kept = calloc(count, sizeof choice.kept[0]);
    if (choice.sizes && choice.kept)
        choose(&choice);
    free(choice.sizes);

    struct links *links = choice.sizes ? calloc(count, sizeof *links) : NULL;
    *outline = (struct ember_outline){.profile = profile};
    outline->rows = calloc((size_t)choice.stacks + 1, sizeof outline->rows[0]);
    bool made = choice.kept && links && outline->rows;
    if (made) {
        lay_out(outline, links, link_nodes(&choice, links));
        fold(outline, links);
    }
    free(links);
    free(choice.kept);
    return made;
}

void ember_outline_fini(struct ember_outline *outline)
{
    free(outline->rows);
    *outline = (struct ember_outline){0};
}

uint32_t ember_outline_extent(const struct ember_outline *outline, uint32_t row)
{
    uint32_t end = row + 1;
    while (end < outline->count && outline->rows[end].depth > 0)
        end++;
    return end - row;
}

/* ---- Texts --------------------------------------------------------------- */

static const char *finish(struct ember_sink *text)
{
    ember_sink_bytes(text, "", 1);
    return text->failed ? "" : text->data;
}

const char *ember_outline_title(const struct ember_outline *outline, uint32_t row,
                                struct ember_sink *text)
{
    uint32_t node = outline->rows[row].node;
    text->size = 0;
    if (node == EMBER_NONE) {
        ember_sink_text(text, EMBER_PRUNED_PROCESS);
        return finish(text);
    }
    const struct ember_process *process =
        &outline->profile->processes[outline->profile->nodes[node].process];
    const char *name = process->name ? process->name : process->label;
    ember_sink_text(text, process->pid_text ? process->pid_text : "");
    if (name) {
        ember_sink_text(text, " ");
        ember_sink_text(text, name);
    }
    return finish(text);
}

static int by_text(const void *left, const void *right)
{
    const struct ember_function *const *a = left;
    const struct ember_function *const *b = right;
    return strcmp((*a)->text, (*b)->text);
}

static int by_module(const void *left, const void *right)
{
    const struct ember_function *const *a = left;
    const struct ember_function *const *b = right;
    return strcmp((*a)->module, (*b)->module);
}

typedef int compare_functions(const void *, const void *);

static void number(struct ember_names *names, const struct ember_profile *profile,
                   const struct ember_function **sorted, uint32_t used, compare_functions *compare)
{
    qsort(sorted, used, sizeof(struct ember_function *), compare);
    for (uint32_t i = 0; i < used; i++) {
        if (i == 0 || compare(&sorted[i], &sorted[i - 1]) != 0)
            names->function[names->count++] = (uint32_t)(sorted[i] - profile->functions);
        names->id[sorted[i] - profile->functions] = names->count - 1;
    }
}

bool ember_names_init(struct ember_names *names, const struct ember_outline *outline,
                      enum ember_naming naming)
{
    const struct ember_profile *profile = outline->profile;
    size_t count = (size_t)profile->function_count + 1;
    const struct ember_function **sorted = calloc(count, sizeof(struct ember_function *));
    *names = (struct ember_names){
        .id = malloc(count * sizeof names->id[0]),
        .function = calloc(count, sizeof names->function[0]),
    };
    bool made = sorted && names->id && names->function;
    if (made) {
        uint32_t used = 0;
        memset(names->id, 0xff, count * sizeof names->id[0]);
        for (uint32_t i = 0; i < outline->count; i++)
            if (outline->rows[i].depth > 0)
                names->id[profile->nodes[outline->rows[i].node].function] = 0;
        for (uint32_t i = 0; i < profile->function_count; i++)
            if (names->id[i] != EMBER_NONE)
                sorted[used++] = &profile->functions[i];
        number(names, profile, sorted, used, naming == EMBER_NAMING_MODULE ? by_module : by_text);
    }
    free(sorted);
    return made;
}

void ember_names_fini(struct ember_names *names)
{
    free(names->id);
    free(names->function);
    *names = (struct ember_names){0};
}

static void say(struct ember_sink *text, uint64_t count, const char *what)
{
    if (count == 0)
        return;
    if (text->size > 0)
        ember_sink_text(text, "; ");
    ember_sink_unsigned(text, count);
    ember_sink_text(text, what);
}

static void say_estimates(struct ember_sink *text, const struct ember_info *info, const char *when)
{
    static const struct {
        uint32_t fallback;
        const char *what;
        const char *how;
    } estimates[] = {
        {EMBER_FALLBACK_STACK, "stacks", "are estimated"},
        {EMBER_FALLBACK_HEAP, "words", "are estimated"},
        {EMBER_FALLBACK_CLOCK, "times", "are estimated"},
        {EMBER_FALLBACK_COST, "own times", "are estimated"},
        {EMBER_FALLBACK_BINARIES, "binaries", "are not counted"},
        {EMBER_FALLBACK_WAITING, "waiting and preempted", "are not told apart"},
        {EMBER_NO_TIMES, "times", "were not asked for"},
        {EMBER_NO_WORDS, "words", "were not asked for"},
        {EMBER_NO_CALLS, "calls", "were not asked for"},
        {EMBER_NO_BINARIES, "binaries", "were not asked for"},
    };
    static const char *const cuts[EMBER_CUTS] = {"is unfinished",
                                                 "was cut by its timeout",
                                                 "was stopped",
                                                 "was cut by its memory_limit",
                                                 "was not traced to its end",
                                                 "ended, which was lost"};
    if (info->outcome == EMBER_OUTCOME_UNFINISHED || info->cut_by != EMBER_CUT_NONE)
        ember_sink_printf(text, "%s %s%s %s", text->size > 0 ? "; the" : "The",
                          info->outcome == EMBER_OUTCOME_RECORDED ? "recording" : "call", when,
                          cuts[info->cut_by]);
    for (size_t i = 0; i < sizeof estimates / sizeof estimates[0]; i++)
        if (info->fallbacks & estimates[i].fallback)
            ember_sink_printf(text, "%s%s%s %s", text->size > 0 ? "; " : "", estimates[i].what,
                              when, estimates[i].how);
}

const char *ember_view_caveats(const struct ember_profile *profile,
                               const struct ember_outline *outline, struct ember_sink *text)
{
    const struct ember_info *info = &profile->info;
    text->size = 0;
    say(text, info->lost, " events lost");
    say(text, info->depth_cut, " calls below the depth limit");
    if (profile->timelines && profile->timelines->cut_ns > 0)
        say(text, profile->timelines->cut_ns / 1000,
            " \xc2\xb5s of timeline kept, then memory_limit was reached");
    if (profile->before) {
        say(text, profile->before->info.lost, " events lost before");
        say(text, profile->before->info.depth_cut, " calls before below the depth limit");
    }
    say(text, outline ? outline->left_out : 0, " of ");
    if (outline && outline->left_out > 0)
        ember_sink_printf(
            text, "%" PRIu32 " stacks are too small to show, summed up as " EMBER_PRUNED_FRAME,
            profile->node_count);
    say_estimates(text, info, "");
    if (profile->before)
        say_estimates(text, &profile->before->info, " before");
    return finish(text);
}

static void head(struct ember_sink *text, const struct ember_info *info)
{
    int64_t seconds = info->start_us / 1000000 - (info->start_us % 1000000 < 0);
    time_t start = (time_t)seconds;
    char when[64] = "";
    struct tm tm;
    if (gmtime_r(&start, &tm))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S UTC", &tm);
    ember_sink_text(text, info->target ? info->target : "profile");
    ember_sink_printf(text, ", %s, %" PRIu64 ".%03" PRIu64 " ms", when, info->duration_ns / 1000000,
                      info->duration_ns / 1000 % 1000);
    const struct ember_sampled *sampled = &info->sampled;
    if (sampled->windows > 0)
        ember_sink_printf(
            text, ", estimated from %" PRIu64 " %s of %" PRIu64 ".%03" PRIu64 " ms in all",
            sampled->windows, info->outcome == EMBER_OUTCOME_RECORDED ? "windows" : "calls",
            sampled->window_ns / 1000000, sampled->window_ns / 1000 % 1000);
    else if (info->calls > 1)
        ember_sink_printf(text, ", %" PRIu32 " calls", info->calls);
    if (info->otp_release)
        ember_sink_printf(text, ", OTP %s", info->otp_release);
}

const char *ember_view_heading(const struct ember_profile *profile, struct ember_sink *text)
{
    text->size = 0;
    head(text, &profile->info);
    if (profile->before) {
        ember_sink_text(text, "; before: ");
        head(text, &profile->before->info);
        if (profile->before->normalise != EMBER_NORMALISE_NONE)
            ember_sink_printf(text, ", times %.4g %s", profile->before->scale,
                              profile->before->normalise == EMBER_NORMALISE_CALLS
                                  ? "for as many calls"
                                  : "for as much time");
    }
    return finish(text);
}
