/* SPDX-License-Identifier: Apache-2.0 */
#include "function_sums.h"

#include <stdlib.h>

struct walk {
    struct ember_outline outline;
    struct ember_metrics *totals; /* of each row */
    uint32_t *path;               /* functions of the row's stack */
    uint32_t *times;              /* each function is in the path */
};

static const struct ember_node *node_of(const struct walk *walk, uint32_t row)
{
    return &walk->outline.profile->nodes[walk->outline.rows[row].node];
}

static const struct ember_metrics *own_of(const struct walk *walk, uint32_t row,
                                          enum ember_side side)
{
    if (side == EMBER_BEFORE)
        return &walk->outline.profile->before->own[walk->outline.rows[row].node];
    return &node_of(walk, row)->own;
}

static void sum_totals(struct walk *walk, enum ember_side side)
{
    for (uint32_t row = walk->outline.count; row-- > 0;) {
        uint32_t caller = walk->outline.rows[row].parent;
        ember_metrics_add(&walk->totals[row], own_of(walk, row, side));
        if (caller != EMBER_NONE)
            ember_metrics_add(&walk->totals[caller], &walk->totals[row]);
    }
}

static void sum_row(struct walk *walk, uint32_t row, enum ember_side side,
                    struct ember_function_sum *sums)
{
    uint32_t function = node_of(walk, row)->function;
    ember_metrics_add(&sums[function].own, own_of(walk, row, side));
    if (walk->times[function] == 0)
        ember_metrics_add(&sums[function].total, &walk->totals[row]);
}

/* Rows are depth first, so what is deeper than a row's caller is left behind. */
static void sum_functions(struct walk *walk, const bool *wanted, enum ember_side side,
                          struct ember_function_sum *sums)
{
    uint32_t depth = 0;
    for (uint32_t row = 0; row < walk->outline.count; row++) {
        const struct ember_row *at = &walk->outline.rows[row];
        while (depth > 0 && depth >= at->depth)
            walk->times[walk->path[--depth]]--;
        if (at->depth == 0)
            continue;
        if (!wanted || wanted[node_of(walk, row)->process])
            sum_row(walk, row, side, sums);
        walk->path[depth++] = node_of(walk, row)->function;
        walk->times[node_of(walk, row)->function]++;
    }
}

struct ember_function_sum *ember_function_sums(const struct ember_profile *profile,
                                               const bool *wanted, enum ember_side side)
{
    struct walk walk = {0};
    struct ember_function_sum *sums = calloc((size_t)profile->function_count + 1, sizeof *sums);
    if (side == EMBER_BEFORE && !profile->before)
        return sums;
    bool made = ember_outline_init(&walk.outline, profile, &ember_outline_unlimited);
    walk.totals = calloc((size_t)walk.outline.count + 1, sizeof *walk.totals);
    walk.path = calloc((size_t)walk.outline.depth + 1, sizeof *walk.path);
    walk.times = calloc((size_t)profile->function_count + 1, sizeof *walk.times);
    if (made && sums && walk.totals && walk.path && walk.times) {
        sum_totals(&walk, side);
        sum_functions(&walk, wanted, side, sums);
    } else {
        free(sums);
        sums = NULL;
    }
    free(walk.totals);
    free(walk.path);
    free(walk.times);
    ember_outline_fini(&walk.outline);
    return sums;
}
