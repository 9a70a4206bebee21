/* SPDX-License-Identifier: Apache-2.0 */
#include "compensation.h"

#define MOST_RATIO 4 /* of time to calibrated cost */
#define BUCKETS_PER_ONE 1024
#define BUCKETS (MOST_RATIO * BUCKETS_PER_ONE)
#define LEAST_NODE_EVENTS 64
#define LEAST_EVENTS 2048
#define FEW 10 /* one in so many */
#define LEAST_SCALE 0.5
#define MOST_SCALE 2 /* beyond that, the functions do work */
#define MFA_WORDS 4  /* that tracing allocates, an event */
#define LEAST_HEAP_WORDS 233
#define LEAST_SPREAD 0.25
#define MOST_SPREAD 1
#define TRUSTED_SPREAD 0.4

/* Events by the ratio of their node's time to what they should have cost. */
struct histogram {
    uint64_t events[BUCKETS];
    uint64_t sum;
};

static double least(double a, double b)
{
    return a < b ? a : b;
}

static double most(double a, double b)
{
    return a > b ? a : b;
}

static double between(double low, double value, double high)
{
    return most(low, least(value, high));
}

static uint32_t step_events(const struct ember_tree_node *node)
{
    return node->events[EMBER_COST_CALL] + node->events[EMBER_COST_RETURN];
}

static double cost_of(const struct ember_compensation *compensation,
                      const struct ember_tree_node *node)
{
    double cost = 0;
    for (int kind = 0; kind < EMBER_COST_KINDS; kind++)
        cost += node->events[kind] * compensation->scale[kind] * compensation->costs.event_ns[kind];
    return cost;
}

static uint64_t all_events(const struct ember_tree_node *node)
{
    return (uint64_t)step_events(node) + node->events[EMBER_COST_SWITCH] +
           node->events[EMBER_COST_GC];
}

/* By how much the long ones of so many intervals are longer than the others, where
 * they are few. */
static double excess(const struct ember_long_intervals *intervals, uint64_t count, uint64_t ticks)
{
    if (intervals->count == 0 || intervals->count * FEW > count)
        return 0;
    double usual = (double)(ticks - intervals->ticks) / (double)(count - intervals->count);
    return (double)intervals->ticks - usual * (double)intervals->count;
}

static double own_excess(const struct ember_call_tree *tree, uint32_t index)
{
    const struct ember_tree_node *node = &tree->nodes[index];
    return excess(&tree->rare[index].long_own, all_events(node), node->own_ticks);
}

/* The share of what seems to be stolen that the system says is. */
static double stolen_share(const struct ember_call_tree *tree, double stolen_ticks)
{
    double sum = 0;
    for (uint32_t i = 0; i < tree->count; i++)
        sum += own_excess(tree, i);
    return sum > stolen_ticks ? stolen_ticks / sum : 1;
}

static double all_own_ns(const struct ember_call_tree *tree, double ns_per_tick)
{
    double sum = 0;
    for (uint32_t i = 0; i < tree->count; i++)
        sum += (double)tree->nodes[i].own_ticks * ns_per_tick;
    return sum;
}

/* A node's own time, before the cost of tracing is subtracted. */
static double raw_of(const struct ember_compensation *compensation,
                     const struct ember_call_tree *tree, uint32_t index)
{
    double ticks =
        (double)tree->nodes[index].own_ticks - compensation->stolen * own_excess(tree, index);
    return ticks * compensation->ns_per_tick;
}

/* What so many calls that do next to nothing, and so many words, take untraced. */
static double least_of(const struct ember_costs *costs, const struct ember_tree_node *node)
{
    return step_events(node) * costs->least_ns + most((double)node->words, 0) * costs->word_ns;
}

/* The node's events, if nearly all of its steps end like that. */
static void add_node(struct histogram *histogram, const struct ember_compensation *compensation,
                     const struct ember_call_tree *tree, uint32_t index, enum ember_cost kind)
{
    const struct ember_tree_node *node = &tree->nodes[index];
    double raw = raw_of(compensation, tree, index);
    double cost = cost_of(compensation, node);
    double ratio = (raw - least_of(&compensation->costs, node)) / cost;
    uint32_t events = node->events[kind];
    bool clear = events >= LEAST_NODE_EVENTS && events >= 0.9 * step_events(node) &&
                 node->function != EMBER_UNKNOWN;
    if (!clear || cost <= 0 || ratio >= MOST_RATIO)
        return;
    histogram->events[(int)(most(ratio, 0) * BUCKETS_PER_ONE)] += events;
    histogram->sum += events;
}

/* The ratio below which this share of all events lie. */
static double quantile(const struct histogram *histogram, double share)
{
    double wanted = share * (double)histogram->sum;
    double below = 0;
    for (int i = 0; i < BUCKETS; i++) {
        double events = (double)histogram->events[i];
        if (events > 0 && below + events >= wanted)
            return (double)i / BUCKETS_PER_ONE;
        below += events;
    }
    return 1;
}

/* What the run tells of one kind of event; false where it has too few. */
static bool listen(struct ember_compensation *compensation, const struct ember_call_tree *tree,
                   enum ember_cost kind)
{
    struct histogram histogram = {.sum = 0};
    for (uint32_t i = 0; i < tree->count; i++)
        add_node(&histogram, compensation, tree, i, kind);
    if (histogram.sum < LEAST_EVENTS)
        return false;
    double quarter = quantile(&histogram, 0.25);
    double scale = between(quarter, 1, quantile(&histogram, 0.75));
    compensation->spread = most(compensation->spread, 1 - quantile(&histogram, 0.05) / quarter);
    compensation->scale[kind] = between(LEAST_SCALE, scale, MOST_SCALE);
    compensation->doubtful |= compensation->scale[kind] != scale;
    return true;
}

static void listen_to_run(struct ember_compensation *compensation,
                          const struct ember_call_tree *tree)
{
    double *scale = compensation->scale;
    compensation->spread = compensation->costs.spread;
    bool calls = listen(compensation, tree, EMBER_COST_CALL);
    bool returns = listen(compensation, tree, EMBER_COST_RETURN);
    if (!returns)
        scale[EMBER_COST_RETURN] = scale[EMBER_COST_CALL];
    if (!calls)
        scale[EMBER_COST_CALL] = scale[EMBER_COST_RETURN];
    scale[EMBER_COST_SWITCH] = scale[EMBER_COST_RETURN];
    scale[EMBER_COST_GC] = scale[EMBER_COST_CALL];
    scale[EMBER_COST_BESIDE] = scale[EMBER_COST_CALL];
}

/* What a node has taken, above its cost and the least. */
static double left_of(const struct ember_compensation *compensation,
                      const struct ember_call_tree *tree, uint32_t index)
{
    const struct ember_tree_node *node = &tree->nodes[index];
    return raw_of(compensation, tree, index) - cost_of(compensation, node) -
           least_of(&compensation->costs, node);
}

static double error_of(const struct ember_compensation *compensation,
                       const struct ember_tree_node *node)
{
    return compensation->spread * cost_of(compensation, node);
}

struct ember_compensation ember_compensation_of(const struct ember_call_tree *tree,
                                                const struct ember_costs *costs, double ns_per_tick,
                                                double stolen_ns)
{
    struct ember_compensation compensation = {
        .costs = *costs,
        .ns_per_tick = ns_per_tick,
        .scale = {1, 1, 1, 1, 1},
        .stolen = stolen_share(tree, stolen_ns / ns_per_tick),
    };
    listen_to_run(&compensation, tree);
    compensation.spread =
        most(compensation.spread, stolen_ns / most(all_own_ns(tree, ns_per_tick), 1));
    compensation.doubtful |= compensation.spread > TRUSTED_SPREAD;
    compensation.spread = between(LEAST_SPREAD, compensation.spread, MOST_SPREAD);
    return compensation;
}

/* Without the share of each collection that tracing's own words have caused. */
static double gc_of(const struct ember_compensation *compensation,
                    const struct ember_call_tree *tree, uint32_t index)
{
    const struct ember_tree_rare *rare = &tree->rare[index];
    double ticks = (double)rare->gc_ticks;
    double cost = compensation->scale[EMBER_COST_GC] * compensation->costs.gc_inside_ns;
    if (compensation->costs.event_ns[EMBER_COST_CALL] <= 0 || ticks <= 0)
        return ticks * compensation->ns_per_tick;
    double left =
        ticks * compensation->ns_per_tick - cost * tree->nodes[index].events[EMBER_COST_GC];
    return most(left, 0) * (1 - (double)rare->caused_gc_ticks / ticks);
}

struct ember_own_time ember_compensation_apply(const struct ember_compensation *compensation,
                                               const struct ember_call_tree *tree, uint32_t index)
{
    const struct ember_tree_node *node = &tree->nodes[index];
    double raw = raw_of(compensation, tree, index);
    double error = error_of(compensation, node);
    double left = left_of(compensation, tree, index);
    return (struct ember_own_time){
        .own_ns = least(raw, least_of(&compensation->costs, node) + (left > error ? left : 0)),
        .uncertainty_ns = least(error, raw),
        .gc_ns = gc_of(compensation, tree, index),
    };
}
