/* SPDX-License-Identifier: Apache-2.0
 *
 * Collapsed stacks: one line a stack, frames root first and joined by ';',
 * a space, a whole number. flamegraph.pl, speedscope and others read it.
 *
 * The readers split at ';' and at the last space, and take "frame 3 10" for a
 * pair of numbers, so these characters cannot stand in a frame. Times are in
 * microseconds: some readers make one sample of each unit.
 */
#include "view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void write_frame(struct ember_sink *sink, const char *text)
{
    for (const char *c = text; *c; c++) {
        char safe = *c;
        if (safe == ';')
            safe = ':';
        else if ((unsigned char)safe <= ' ' || safe == 0x7f)
            safe = '_';
        ember_sink_bytes(sink, &safe, 1);
    }
}

static void write_process(const struct ember_profile *profile, uint32_t process,
                          struct ember_sink *sink)
{
    const struct ember_process *p = &profile->processes[process];
    write_frame(sink, p->pid_text);
    if (p->name || p->label) {
        ember_sink_text(sink, "_");
        write_frame(sink, p->name ? p->name : p->label);
    }
}

static void write_stack(const struct ember_profile *profile, uint32_t node,
                        struct ember_sink *sink)
{
    uint32_t path[4096];
    uint32_t depth = 0;
    uint32_t at = node;
    for (; profile->nodes[at].parent != EMBER_NONE && depth < 4096; at = profile->nodes[at].parent)
        path[depth++] = profile->nodes[at].function;
    write_process(profile, profile->nodes[node].process, sink);
    while (depth > 0) {
        ember_sink_text(sink, ";");
        write_frame(sink, profile->functions[path[--depth]].text);
    }
}

static void write_line(const struct ember_profile *profile, uint32_t node, const char *pseudo,
                       uint64_t value, struct ember_sink *sink)
{
    if (value == 0)
        return;
    write_stack(profile, node, sink);
    if (pseudo)
        ember_sink_printf(sink, ";%s", pseudo);
    ember_sink_printf(sink, " %" PRIu64 "\n", value);
}

static uint64_t microseconds(uint64_t ns)
{
    return (ns + 500) / 1000;
}

static void write_node(const struct ember_profile *profile, uint32_t node,
                       enum ember_metric metric, struct ember_sink *sink)
{
    const struct ember_metrics *own = &profile->nodes[node].own;
    switch (metric) {
    case EMBER_METRIC_OWN_TIME:
        write_line(profile, node, NULL, microseconds(own->own_ns), sink);
        write_line(profile, node, "[gc]", microseconds(own->gc_ns), sink);
        write_line(profile, node, "[off-cpu]", microseconds(own->off_cpu_ns), sink);
        break;
    case EMBER_METRIC_WORDS:
        write_line(profile, node, NULL, own->words > 0 ? (uint64_t)own->words : 0, sink);
        break;
    case EMBER_METRIC_CALLS:
        write_line(profile, node, NULL, own->calls, sink);
        break;
    }
}

static void write_view(const struct ember_profile *profile,
                       const struct ember_view_options *options, struct ember_sink *sink)
{
    for (uint32_t node = 0; node < profile->node_count; node++)
        write_node(profile, node, options->metric, sink);
}

const struct ember_view ember_view_brendan_gregg = {
    .name = "brendan_gregg",
    .extension = "bggg",
    .write = write_view,
};
