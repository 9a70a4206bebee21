/* SPDX-License-Identifier: Apache-2.0 */
#include "profile.h"

#include "hash.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const ember_fallback_names[EMBER_FALLBACK_KINDS] = {
    "stack",   "heap",     "clock",    "cost",     "binaries",
    "waiting", "no_times", "no_words", "no_calls", "no_binaries",
};

struct ember_profile *ember_profile_create(void)
{
    return calloc(1, sizeof(struct ember_profile));
}

static void destroy_info(struct ember_info *info)
{
    free(info->target);
    free(info->otp_release);
}

/* What the allocator adds to a text. */
#define TEXT_OVERHEAD 16

static size_t text_bytes(const char *text)
{
    return text ? strlen(text) + TEXT_OVERHEAD : 0;
}

size_t ember_profile_bytes(const struct ember_profile *profile)
{
    size_t bytes = sizeof *profile + profile->node_count * sizeof *profile->nodes;
    for (uint32_t i = 0; i < profile->function_count; i++) {
        const struct ember_function *function = &profile->functions[i];
        bytes += sizeof *function + text_bytes(function->module) + text_bytes(function->name) +
                 text_bytes(function->text);
    }
    for (uint32_t i = 0; i < profile->process_count; i++) {
        const struct ember_process *process = &profile->processes[i];
        bytes += sizeof *process + text_bytes(process->pid_text) + text_bytes(process->name) +
                 text_bytes(process->label) + text_bytes(process->ancestors);
    }
    for (uint32_t i = 0; profile->timelines && i < profile->timelines->count; i++)
        bytes += sizeof *profile->timelines->processes + profile->timelines->processes[i].capacity;
    return bytes;
}

void ember_profile_destroy(struct ember_profile *profile)
{
    if (!profile)
        return;
    for (uint32_t i = 0; i < profile->function_count; i++) {
        free(profile->functions[i].module);
        free(profile->functions[i].name);
        free(profile->functions[i].text);
    }
    for (uint32_t i = 0; i < profile->process_count; i++) {
        free(profile->processes[i].pid_text);
        free(profile->processes[i].name);
        free(profile->processes[i].label);
        free(profile->processes[i].ancestors);
    }
    if (profile->before) {
        free(profile->before->own);
        destroy_info(&profile->before->info);
        free(profile->before);
    }
    ember_timelines_destroy(profile->timelines);
    free(profile->functions);
    free(profile->processes);
    free(profile->nodes);
    free(profile->squares);
    destroy_info(&profile->info);
    free(profile);
}

void ember_metrics_add(struct ember_metrics *sum, const struct ember_metrics *more)
{
    sum->calls += more->calls;
    sum->own_ns += more->own_ns;
    sum->off_cpu_ns += more->off_cpu_ns;
    sum->waiting_ns += more->waiting_ns;
    sum->binary_bytes += more->binary_bytes;
    sum->gc_ns += more->gc_ns;
    sum->words += more->words;
    sum->uncertainty_ns += more->uncertainty_ns;
}

uint64_t ember_metrics_waiting(const struct ember_metrics *metrics)
{
    return metrics->waiting_ns < metrics->off_cpu_ns ? metrics->waiting_ns : metrics->off_cpu_ns;
}

bool ember_metrics_are_zero(const struct ember_metrics *m)
{
    return (m->calls | m->own_ns | m->off_cpu_ns | m->gc_ns | (uint64_t)m->words |
            m->binary_bytes) == 0;
}

struct ember_metrics ember_profile_total(const struct ember_profile *profile, uint32_t process)
{
    struct ember_metrics total = {0};
    for (uint32_t i = 0; i < profile->node_count; i++)
        if (process == EMBER_NONE || profile->nodes[i].process == process)
            ember_metrics_add(&total, &profile->nodes[i].own);
    return total;
}

static bool check_node(const struct ember_profile *profile, uint32_t i)
{
    const struct ember_node *node = &profile->nodes[i];
    bool root = node->parent == EMBER_NONE;
    return node->process < profile->process_count && (root || node->parent < i) &&
           (root ? node->function == EMBER_NONE : node->function < profile->function_count) &&
           (root || profile->nodes[node->parent].process == node->process);
}

bool ember_profile_check(const struct ember_profile *profile)
{
    for (uint32_t i = 0; i < profile->process_count; i++) {
        const struct ember_process *process = &profile->processes[i];
        if (process->root >= profile->node_count || !process->pid_text ||
            profile->nodes[process->root].process != i ||
            (process->parent != EMBER_NONE && process->parent >= profile->process_count))
            return false;
    }
    for (uint32_t i = 0; i < profile->node_count; i++)
        if (!check_node(profile, i))
            return false;
    return true;
}

/* ---- merge ---- */

/* Open addressing from what makes a thing equal to its index. */
struct index_map {
    uint32_t *slots; /* index + 1; 0: free */
    uint32_t mask;
};

struct merge {
    struct ember_profile *into;
    struct ember_metrics *sums; /* of each node; NULL: its own */
    const double *weights;      /* of the processes that are merged; NULL: 1 */
    uint32_t most_processes;    /* that are told apart; 0: any number */
    bool roles;                 /* processes of one name are one, in one profile too */
    uint32_t part;              /* the profile that is merged: 1, 2, ... */
    uint32_t *seen_in;          /* of each process: the part that has it, last */
    struct index_map functions;
    struct index_map processes;
    struct index_map nodes;
};

static bool create_map(struct index_map *map, size_t entries)
{
    uint32_t capacity = 16;
    while (capacity < entries * 2)
        capacity *= 2;
    map->mask = capacity - 1;
    map->slots = calloc(capacity, sizeof *map->slots);
    return map->slots != NULL;
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; text && *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return hash * UINT64_C(0x9E3779B97F4A7C15);
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool copy_text(char **to, const char *from)
{
    *to = from ? strdup(from) : NULL;
    return !from || *to;
}

/* EMBER_NONE when out of memory, here and below. */
static uint32_t merge_function(struct merge *merge, const struct ember_function *from)
{
    struct ember_profile *into = merge->into;
    uint64_t hash = hash_text(hash_text(from->arity, from->module), from->name);
    for (uint64_t i = hash >> 32;; i++) {
        uint32_t *slot = &merge->functions.slots[i & merge->functions.mask];
        if (*slot == 0) {
            struct ember_function *to = &into->functions[into->function_count];
            *slot = ++into->function_count;
            to->arity = from->arity;
            bool copied = copy_text(&to->module, from->module) &&
                          copy_text(&to->name, from->name) && copy_text(&to->text, from->text);
            return copied ? *slot - 1 : EMBER_NONE;
        }
        const struct ember_function *known = &into->functions[*slot - 1];
        if (known->arity == from->arity && same_text(known->module, from->module) &&
            same_text(known->name, from->name))
            return *slot - 1;
    }
}

static uint32_t add_root(struct ember_profile *into, uint32_t process)
{
    into->nodes[into->node_count] =
        (struct ember_node){.parent = EMBER_NONE, .function = EMBER_NONE, .process = process};
    return into->node_count++;
}

/* EMBER_NONE when out of memory. */
static uint32_t add_process(struct ember_profile *into, const struct ember_process *from,
                            uint32_t parent)
{
    uint32_t index = into->process_count++;
    struct ember_process *to = &into->processes[index];
    to->pid = from->pid;
    to->parent = parent;
    to->exited = from->exited;
    to->root = add_root(into, index);
    bool copied = copy_text(&to->pid_text, from->pid_text) && copy_text(&to->name, from->name) &&
                  copy_text(&to->label, from->label) && copy_text(&to->ancestors, from->ancestors);
    return copied ? index : EMBER_NONE;
}

/* Those beyond the most that are told apart: one for all that do the same. */
static struct ember_process role_of(const struct ember_process *process)
{
    static char others[] = "others";
    return (struct ember_process){.pid_text = others,
                                  .name = process->name ? process->name : process->label,
                                  .parent = EMBER_NONE};
}

/* A pid that is twice in one profile was used again: these are two processes. */
static bool is_one_in_part(const struct merge *merge, uint32_t known)
{
    return merge->roles || merge->seen_in[known] != merge->part;
}

/* Its place, which is 0 where it is not known yet. */
static uint32_t *find_process(const struct merge *merge, const struct ember_process *from)
{
    uint64_t hash = hash_text(hash_text(0, from->pid_text), from->name);
    for (uint64_t i = hash >> 32;; i++) {
        uint32_t *slot = &merge->processes.slots[i & merge->processes.mask];
        if (*slot == 0)
            return slot;
        const struct ember_process *known = &merge->into->processes[*slot - 1];
        if (same_text(known->pid_text, from->pid_text) && same_text(known->name, from->name) &&
            is_one_in_part(merge, *slot - 1))
            return slot;
    }
}

static uint32_t put_process(struct merge *merge, uint32_t *slot, const struct ember_process *from,
                            uint32_t parent)
{
    if (*slot == 0) {
        *slot = merge->into->process_count + 1;
        if (add_process(merge->into, from, parent) == EMBER_NONE)
            return EMBER_NONE;
    }
    merge->into->processes[*slot - 1].exited |= from->exited;
    merge->seen_in[*slot - 1] = merge->part;
    return *slot - 1;
}

static uint32_t merge_role(struct merge *merge, const struct ember_process *from)
{
    struct ember_process role = role_of(from);
    merge->roles = true;
    uint32_t index = put_process(merge, find_process(merge, &role), &role, EMBER_NONE);
    merge->roles = false;
    return index;
}

static uint32_t merge_process(struct merge *merge, const struct ember_process *from,
                              uint32_t parent)
{
    uint32_t *slot = find_process(merge, from);
    bool full = merge->most_processes && merge->into->process_count >= merge->most_processes;
    return *slot == 0 && full ? merge_role(merge, from) : put_process(merge, slot, from, parent);
}

static uint32_t merge_child(struct merge *merge, uint32_t parent, uint32_t function)
{
    struct ember_profile *into = merge->into;
    uint64_t key = (uint64_t)parent << 32 | function;
    for (uint32_t i = ember_hash(key);; i++) {
        uint32_t *slot = &merge->nodes.slots[i & merge->nodes.mask];
        if (*slot == 0) {
            into->nodes[into->node_count] = (struct ember_node){
                .parent = parent, .function = function, .process = into->nodes[parent].process};
            *slot = ++into->node_count;
            return *slot - 1;
        }
        const struct ember_node *known = &into->nodes[*slot - 1];
        if (known->parent == parent && known->function == function)
            return *slot - 1;
    }
}

static bool merge_functions(struct merge *merge, const struct ember_profile *from, uint32_t *map)
{
    for (uint32_t i = 0; i < from->function_count; i++)
        if ((map[i] = merge_function(merge, &from->functions[i])) == EMBER_NONE)
            return false;
    return true;
}

/* A parent may stand after its child in a profile that was read or merged. */
static bool merge_processes(struct merge *merge, const struct ember_profile *from, uint32_t *map)
{
    for (uint32_t i = 0; i < from->process_count; i++) {
        map[i] = merge_process(merge, &from->processes[i], EMBER_NONE);
        if (map[i] == EMBER_NONE)
            return false;
    }
    for (uint32_t i = 0; i < from->process_count; i++)
        if (from->processes[i].parent != EMBER_NONE)
            merge->into->processes[map[i]].parent = map[from->processes[i].parent];
    return true;
}

static uint64_t scaled(uint64_t value, double scale)
{
    return (uint64_t)((double)value * scale + 0.5);
}

static int64_t scaled_words(int64_t words, double scale)
{
    return words < 0 ? -(int64_t)scaled((uint64_t)-words, scale)
                     : (int64_t)scaled((uint64_t)words, scale);
}

static struct ember_metrics weighed(const struct ember_metrics *own, double weight)
{
    return (struct ember_metrics){
        .calls = scaled(own->calls, weight),
        .own_ns = scaled(own->own_ns, weight),
        .off_cpu_ns = scaled(own->off_cpu_ns, weight),
        .gc_ns = scaled(own->gc_ns, weight),
        .words = scaled_words(own->words, weight),
        .uncertainty_ns = scaled(own->uncertainty_ns, weight),
        .waiting_ns = scaled(own->waiting_ns, weight),
        .binary_bytes = scaled(own->binary_bytes, weight),
    };
}

static double square(double value)
{
    return value * value;
}

/* Those of samples are independent. */
static void add_sampled(struct ember_metrics *sum, const struct ember_metrics *more)
{
    double uncertainty =
        sqrt(square((double)sum->uncertainty_ns) + square((double)more->uncertainty_ns));
    ember_metrics_add(sum, more);
    sum->uncertainty_ns = (uint64_t)(uncertainty + 0.5);
}

static void merge_metrics(struct merge *merge, uint32_t index, const struct ember_profile *from,
                          uint32_t i)
{
    struct ember_profile *into = merge->into;
    const struct ember_node *node = &from->nodes[i];
    struct ember_metrics own = merge->weights ? weighed(&node->own, merge->weights[node->process])
                                              : node->own;
    if (into->squares)
        into->squares[index] += from->squares ? from->squares[i] : square((double)own.own_ns);
    struct ember_metrics *sum = merge->sums ? &merge->sums[index] : &into->nodes[index].own;
    if (from->info.sampled.windows && !into->squares)
        add_sampled(sum, &own);
    else
        ember_metrics_add(sum, &own);
}

static void merge_nodes(struct merge *merge, const struct ember_profile *from,
                        const uint32_t *functions, const uint32_t *processes, uint32_t *map)
{
    for (uint32_t i = 0; i < from->node_count; i++) {
        const struct ember_node *node = &from->nodes[i];
        if (node->parent == EMBER_NONE)
            map[i] = merge->into->processes[processes[node->process]].root;
        else
            map[i] = merge_child(merge, map[node->parent], functions[node->function]);
        merge_metrics(merge, map[i], from, i);
    }
}

typedef bool map_processes(struct merge *, const struct ember_profile *, uint32_t *);

static bool merge_one(struct merge *merge, const struct ember_profile *from, map_processes *map)
{
    size_t count = (size_t)from->function_count + from->process_count + from->node_count;
    uint32_t *maps = malloc((count + 1) * sizeof *maps);
    uint32_t *processes = maps ? maps + from->function_count : NULL;
    merge->part++;
    bool merged = maps && merge_functions(merge, from, maps) && map(merge, from, processes);
    if (merged)
        merge_nodes(merge, from, maps, processes, processes + from->process_count);
    free(maps);
    return merged;
}

static void merge_sampled(struct ember_sampled *into, const struct ember_sampled *from)
{
    into->windows += from->windows;
    into->window_ns += from->window_ns;
    into->span_ns += from->span_ns;
    into->cost_ns += from->cost_ns;
    into->seen += from->seen;
    into->present += from->present;
    if (from->schedulers > into->schedulers)
        into->schedulers = from->schedulers;
    if (from->budget_ppm > into->budget_ppm)
        into->budget_ppm = from->budget_ppm;
}

/* RETURNED only when every part returned; else the first outcome that is not. */
static void merge_info(struct ember_info *into, const struct ember_info *from)
{
    into->duration_ns += from->duration_ns;
    into->events += from->events;
    into->lost += from->lost;
    into->compensated_ns += from->compensated_ns;
    into->raw_ns += from->raw_ns;
    into->depth_cut += from->depth_cut;
    into->calls += from->calls;
    into->fallbacks |= from->fallbacks;
    merge_sampled(&into->sampled, &from->sampled);
    if (from->start_us < into->start_us)
        into->start_us = from->start_us;
    if (into->outcome == EMBER_OUTCOME_RETURNED)
        into->outcome = from->outcome;
    if (into->cut_by == EMBER_CUT_NONE)
        into->cut_by = from->cut_by;
}

static bool merge_all_info(struct ember_profile *into, const struct ember_profile *const *profiles,
                           uint32_t count)
{
    if (count == 0)
        return true;
    into->info.start_us = profiles[0]->info.start_us;
    for (uint32_t i = 0; i < count; i++)
        merge_info(&into->info, &profiles[i]->info);
    return copy_text(&into->info.target, profiles[0]->info.target) &&
           copy_text(&into->info.otp_release, profiles[0]->info.otp_release);
}

static bool allocate_merge(struct merge *merge, const struct ember_profile *const *profiles,
                           uint32_t count)
{
    size_t functions = 0;
    size_t processes = 0;
    size_t nodes = 0;
    for (uint32_t i = 0; i < count; i++) {
        functions += profiles[i]->function_count;
        processes += profiles[i]->process_count;
        nodes += profiles[i]->node_count;
    }
    if (nodes >= UINT32_MAX / 4)
        return false;
    merge->into->functions = calloc(functions + 1, sizeof *merge->into->functions);
    merge->into->processes = calloc(processes + 1, sizeof *merge->into->processes);
    merge->into->nodes = calloc(nodes + 1, sizeof *merge->into->nodes);
    merge->seen_in = calloc(processes + 1, sizeof *merge->seen_in);
    return merge->into->functions && merge->into->processes && merge->into->nodes &&
           merge->seen_in && create_map(&merge->functions, functions) &&
           create_map(&merge->processes, processes) && create_map(&merge->nodes, nodes);
}

static bool create_squares(struct merge *merge, size_t nodes)
{
    merge->into->squares = calloc(nodes + 1, sizeof *merge->into->squares);
    return merge->into->squares != NULL;
}

static struct ember_profile *end_merge(struct merge *merge, bool merged)
{
    free(merge->functions.slots);
    free(merge->processes.slots);
    free(merge->seen_in);
    free(merge->nodes.slots);
    if (merged)
        return merge->into;
    ember_profile_destroy(merge->into);
    return NULL;
}

struct ember_profile *ember_profile_merge(const struct ember_profile *const *profiles,
                                          uint32_t count)
{
    struct merge merge = {.into = ember_profile_create()};
    if (!merge.into)
        return NULL;
    bool merged =
        allocate_merge(&merge, profiles, count) && merge_all_info(merge.into, profiles, count) &&
        (count != 1 || !profiles[0]->squares || create_squares(&merge, profiles[0]->node_count));
    for (uint32_t i = 0; merged && i < count; i++)
        merged = merge_one(&merge, profiles[i], merge_processes);
    return end_merge(&merge, merged);
}

static bool copy_info(struct ember_info *to, const struct ember_info *from)
{
    *to = *from;
    to->target = to->otp_release = NULL;
    return copy_text(&to->target, from->target) && copy_text(&to->otp_release, from->otp_release);
}

/* ---- windows ---- */

/* Own times are estimates, so what was subtracted from them is one, too. */
static void scale_info(struct ember_info *info, const struct ember_info *before,
                       const struct ember_sampled *sampled)
{
    double scale = (double)sampled->span_ns / (double)(sampled->window_ns ? sampled->window_ns : 1);
    info->raw_ns = before->raw_ns + scaled(info->raw_ns - before->raw_ns, scale);
    info->compensated_ns =
        before->compensated_ns + scaled(info->compensated_ns - before->compensated_ns, scale);
    info->duration_ns = before->duration_ns + sampled->span_ns;
    merge_sampled(&info->sampled, sampled);
}

#define MOST_STRETCH 100

/* By how much a process that was there all the time was slowed down. */
static double stretch_of(const struct ember_metrics *all, double length)
{
    double told = (double)all->own_ns + (double)all->off_cpu_ns + (double)all->gc_ns;
    double missing = length - told - (double)ember_metrics_waiting(all);
    if (missing <= 0)
        return 1;
    double stretch = length / (length - missing);
    return stretch > 0 && stretch < MOST_STRETCH ? stretch : MOST_STRETCH;
}

/* Where no scheduler was idle, all have done less: also those that have waited for others
 * who were slowed down. 0 where one was. */
static double common_stretch(const struct ember_profile *window, const struct ember_metrics *sums,
                             uint32_t schedulers)
{
    enum { BUSY_PERCENT = 85 };
    struct ember_metrics all = {0};
    for (uint32_t i = 0; i < window->process_count; i++)
        ember_metrics_add(&all, &sums[i]);
    double did = (double)all.own_ns + (double)all.gc_ns;
    double busy = did + (double)window->info.compensated_ns;
    double most = (double)window->info.duration_ns * schedulers;
    if (busy * 100 < most * BUSY_PERCENT)
        return 0;
    return busy < MOST_STRETCH * did ? busy / did : MOST_STRETCH;
}

static double own_stretch(const struct ember_profile *window, uint32_t index,
                          const struct ember_metrics *all)
{
    bool whole = !window->processes[index].exited && window->info.outcome == EMBER_OUTCOME_RECORDED;
    return whole ? stretch_of(all, (double)window->info.duration_ns) : 1;
}

/* Spawned processes stand behind their parents, and have their stretch. */
static void find_stretches(const struct ember_profile *window, const struct ember_metrics *sums,
                           uint32_t schedulers, double *stretches)
{
    double common = common_stretch(window, sums, schedulers);
    for (uint32_t i = 0; i < window->process_count; i++) {
        uint32_t parent = window->processes[i].parent;
        double own = parent < i ? stretches[parent] : own_stretch(window, i, &sums[i]);
        stretches[i] = common > 0 ? common : own;
    }
}

/* With the weights. Out of memory: NULL. */
static double *stretched(const struct ember_profile *window, const double *weights,
                         uint32_t schedulers)
{
    struct ember_metrics *sums = calloc(window->process_count + 1u, sizeof *sums);
    double *stretches = calloc(window->process_count + 1u, sizeof *stretches);
    for (uint32_t i = 0; sums && i < window->node_count; i++)
        ember_metrics_add(&sums[window->nodes[i].process], &window->nodes[i].own);
    if (sums && stretches)
        find_stretches(window, sums, schedulers, stretches);
    for (uint32_t i = 0; stretches && i < window->process_count; i++)
        stretches[i] *= weights[i];
    if (!sums) {
        free(stretches);
        stretches = NULL;
    }
    free(sums);
    return stretches;
}

static struct ember_profile *add_window(const struct ember_profile *sum,
                                        const struct ember_profile *window, const double *weights,
                                        const struct ember_sampled *sampled,
                                        uint32_t most_processes)
{
    static const struct ember_info none;
    const struct ember_profile *parts[] = {sum ? sum : window, window};
    uint32_t count = sum ? 2 : 1;
    struct merge merge = {.into = ember_profile_create(), .most_processes = most_processes};
    if (!merge.into)
        return NULL;
    bool merged =
        allocate_merge(&merge, parts, count) && merge_all_info(merge.into, parts, count) &&
        create_squares(&merge, (size_t)window->node_count + (sum ? sum->node_count : 0)) &&
        (!sum || merge_one(&merge, sum, merge_processes));
    merge.weights = weights;
    merged = merged && merge_one(&merge, window, merge_processes);
    if (merged)
        scale_info(&merge.into->info, sum ? &sum->info : &none, sampled);
    return end_merge(&merge, merged);
}

struct ember_profile *ember_profile_add_window(const struct ember_profile *sum,
                                               const struct ember_profile *window,
                                               const double *weights,
                                               const struct ember_sampled *sampled,
                                               uint32_t most_processes)
{
    double *stretches = stretched(window, weights, sampled->schedulers);
    struct ember_profile *added =
        stretches ? add_window(sum, window, stretches, sampled, most_processes) : NULL;
    free(stretches);
    return added;
}

static void leave_out(struct ember_metrics *own, uint32_t what)
{
    if (what & EMBER_NO_TIMES)
        own->own_ns = own->off_cpu_ns = own->gc_ns = own->waiting_ns = own->uncertainty_ns = 0;
    if (what & EMBER_NO_WORDS)
        own->words = 0;
    if (what & EMBER_NO_CALLS)
        own->calls = 0;
    if (what & EMBER_NO_BINARIES)
        own->binary_bytes = 0;
}

void ember_profile_leave_out(struct ember_profile *profile, uint32_t what)
{
    profile->info.fallbacks |= what;
    for (uint32_t i = 0; i < profile->node_count; i++) {
        leave_out(&profile->nodes[i].own, what);
        if (profile->squares && (what & EMBER_NO_TIMES))
            profile->squares[i] = 0;
    }
}

/* Of the sum of `windows` numbers, from their squares: as far as one tells. */
static double standard_error(double sum, double squares, double windows)
{
    if (windows < 2)
        return sum;
    double variance = (squares - sum * sum / windows) * windows / (windows - 1);
    return variance > 0 ? sqrt(variance) : 0;
}

struct ember_profile *ember_profile_settle(const struct ember_profile *sum)
{
    struct ember_profile *settled = ember_profile_merge(&sum, 1);
    for (uint32_t i = 0; settled && sum->squares && i < settled->node_count; i++) {
        struct ember_metrics *own = &settled->nodes[i].own;
        double error = standard_error((double)own->own_ns, settled->squares[i],
                                      (double)sum->info.sampled.windows);
        own->uncertainty_ns += (uint64_t)(error + 0.5);
    }
    if (settled) {
        free(settled->squares);
        settled->squares = NULL;
    }
    return settled;
}

/* ---- filter ---- */

/* Those that are left out, and their absent parents, are EMBER_NONE. */
static bool filter_processes(struct merge *merge, const struct ember_profile *from,
                             const struct ember_filter *filter, uint32_t *map)
{
    for (uint32_t i = 0; i < from->process_count; i++) {
        bool kept = !filter->processes || filter->processes[i];
        map[i] = kept ? merge_process(merge, &from->processes[i], EMBER_NONE) : EMBER_NONE;
        if (kept && map[i] == EMBER_NONE)
            return false;
    }
    for (uint32_t i = 0; i < from->process_count; i++)
        if (map[i] != EMBER_NONE && from->processes[i].parent != EMBER_NONE)
            merge->into->processes[map[i]].parent = map[from->processes[i].parent];
    return true;
}

static bool has_module(const struct ember_filter *filter, const struct ember_function *function)
{
    for (uint32_t i = 0; i < filter->module_count; i++)
        if (same_text(filter->modules[i], function->module))
            return true;
    return filter->modules == NULL;
}

/* In place of the index of a function that is not shown. */
#define LEFT_OUT (EMBER_NONE - 1)

static bool filter_functions(struct merge *merge, const struct ember_profile *from,
                             const struct ember_filter *filter, uint32_t *map)
{
    for (uint32_t i = 0; i < from->function_count; i++) {
        bool kept = has_module(filter, &from->functions[i]);
        map[i] = kept ? merge_function(merge, &from->functions[i]) : LEFT_OUT;
        if (map[i] == EMBER_NONE)
            return false;
    }
    return true;
}

static void filter_nodes(struct merge *merge, const struct ember_profile *from,
                         const uint32_t *functions, const uint32_t *processes, uint32_t *map)
{
    for (uint32_t i = 0; i < from->node_count; i++) {
        struct ember_node node = from->nodes[i];
        uint32_t process = processes[node.process];
        if (process == EMBER_NONE)
            continue;
        if (node.parent == EMBER_NONE) {
            map[i] = merge->into->processes[process].root;
        } else if (functions[node.function] == LEFT_OUT) {
            map[i] = map[node.parent];
            node.own.calls = 0;
        } else {
            map[i] = merge_child(merge, map[node.parent], functions[node.function]);
        }
        ember_metrics_add(&merge->into->nodes[map[i]].own, &node.own);
    }
}

static bool filter_all(struct merge *merge, const struct ember_profile *from,
                       const struct ember_filter *filter)
{
    size_t count = (size_t)from->function_count + from->process_count + from->node_count;
    uint32_t *functions = malloc((count + 1) * sizeof *functions);
    uint32_t *processes = functions ? functions + from->function_count : NULL;
    bool filtered = functions && filter_functions(merge, from, filter, functions) &&
                    filter_processes(merge, from, filter, processes);
    if (filtered)
        filter_nodes(merge, from, functions, processes, processes + from->process_count);
    free(functions);
    return filtered;
}

struct ember_profile *ember_profile_filter(const struct ember_profile *profile,
                                           const struct ember_filter *filter)
{
    struct merge merge = {.into = ember_profile_create()};
    if (!merge.into)
        return NULL;
    bool filtered = allocate_merge(&merge, &profile, 1) &&
                    copy_info(&merge.into->info, &profile->info) &&
                    filter_all(&merge, profile, filter);
    return end_merge(&merge, filtered);
}

/* ---- diff ---- */

/* What processes do, in place of who they are. */
static bool merge_roles(struct merge *merge, const struct ember_profile *from, uint32_t *map)
{
    static char caller[] = "caller";
    static char spawned[] = "spawned";
    for (uint32_t i = 0; i < from->process_count; i++) {
        const struct ember_process *process = &from->processes[i];
        struct ember_process role = {.pid_text = caller, .exited = process->exited};
        if (process->parent != EMBER_NONE) {
            role.pid_text = spawned;
            role.name = process->name ? process->name : process->label;
        }
        map[i] = merge_process(merge, &role, EMBER_NONE);
        if (map[i] == EMBER_NONE)
            return false;
    }
    return true;
}

static bool create_before(struct merge *merge, const struct ember_info *info, size_t nodes)
{
    struct ember_before *before = calloc(1, sizeof *before);
    merge->into->before = before;
    if (!before)
        return false;
    before->own = calloc(nodes + 1, sizeof *before->own);
    return copy_info(&before->info, info) && before->own;
}

/* A number as large as any sum in a profile, so that none overflows. */
#define MOST 0x1p60

static double ratio(double after, double before)
{
    return after > 0 && before > 0 ? after / before : 1;
}

static double find_scale(const struct ember_metrics *sum_before, const struct ember_profile *diff,
                         enum ember_normalise normalise)
{
    const struct ember_metrics sum_after = ember_profile_total(diff, EMBER_NONE);
    switch (normalise) {
    case EMBER_NORMALISE_CALLS:
        return ratio(diff->info.calls, diff->before->info.calls);
    case EMBER_NORMALISE_TIME:
        return ratio((double)(sum_after.own_ns + sum_after.off_cpu_ns + sum_after.gc_ns),
                     (double)(sum_before->own_ns + sum_before->off_cpu_ns + sum_before->gc_ns));
    case EMBER_NORMALISE_NONE:
        break;
    }
    return 1;
}

/* What `value` adds to the scaled sum. */
static uint64_t scaled_share(uint64_t value, uint64_t *sum, double scale)
{
    uint64_t without = scaled(*sum, scale);
    *sum += value;
    return scaled(*sum, scale) - without;
}

/* `sum` is of the nodes before with this function: that is what is scaled and rounded,
 * once. Were each node's number rounded, few calls in each of many stacks would be
 * doubled, or none. */
static void scale_metrics(struct ember_metrics *metrics, struct ember_metrics *sum, double scale)
{
    int64_t without = scaled_words(sum->words, scale);
    sum->words += metrics->words;
    metrics->words = scaled_words(sum->words, scale) - without;
    metrics->calls = scaled_share(metrics->calls, &sum->calls, scale);
    metrics->own_ns = scaled_share(metrics->own_ns, &sum->own_ns, scale);
    metrics->off_cpu_ns = scaled_share(metrics->off_cpu_ns, &sum->off_cpu_ns, scale);
    metrics->waiting_ns = scaled_share(metrics->waiting_ns, &sum->waiting_ns, scale);
    metrics->binary_bytes = scaled_share(metrics->binary_bytes, &sum->binary_bytes, scale);
    metrics->gc_ns = scaled_share(metrics->gc_ns, &sum->gc_ns, scale);
}

/* The nodes of processes, which have no function, are summed up last. */
static bool scale_before(struct ember_profile *diff)
{
    struct ember_metrics *sums = calloc((size_t)diff->function_count + 1, sizeof *sums);
    for (uint32_t i = 0; sums && i < diff->node_count; i++) {
        uint32_t function = diff->nodes[i].function;
        scale_metrics(&diff->before->own[i],
                      &sums[function == EMBER_NONE ? diff->function_count : function],
                      diff->before->scale);
    }
    bool done = sums;
    free(sums);
    return done;
}

static bool normalise_before(struct ember_profile *diff, enum ember_normalise normalise)
{
    struct ember_before *before = diff->before;
    struct ember_metrics sum = {0};
    double largest = 1;
    for (uint32_t i = 0; i < diff->node_count; i++)
        ember_metrics_add(&sum, &before->own[i]);
    before->normalise = normalise;
    before->scale = find_scale(&sum, diff, normalise);
    if (before->scale == 1)
        return true;
    for (uint32_t i = 0; i < diff->node_count; i++)
        largest += before->own[i].words < 0 ? -(double)before->own[i].words
                                            : (double)before->own[i].words;
    largest += (double)sum.calls + (double)sum.own_ns + (double)sum.off_cpu_ns + (double)sum.gc_ns;
    largest += (double)sum.waiting_ns + (double)sum.binary_bytes;
    if (before->scale > MOST / largest)
        before->scale = MOST / largest;
    return scale_before(diff);
}

struct ember_profile *ember_profile_diff(const struct ember_profile *before,
                                         const struct ember_profile *after,
                                         enum ember_normalise normalise)
{
    const struct ember_profile *sides[] = {after, before};
    struct merge merge = {.into = ember_profile_create(), .roles = true};
    if (!merge.into)
        return NULL;
    bool joined =
        allocate_merge(&merge, sides, 2) && copy_info(&merge.into->info, &after->info) &&
        create_before(&merge, &before->info, (size_t)after->node_count + before->node_count) &&
        merge_one(&merge, after, merge_roles);
    if (joined) {
        merge.sums = merge.into->before->own;
        joined = merge_one(&merge, before, merge_roles);
    }
    return end_merge(&merge, joined && normalise_before(merge.into, normalise));
}
