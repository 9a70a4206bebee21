/* SPDX-License-Identifier: Apache-2.0
 *
 * A view turns a profile into one output format. Each view is one file and one
 * row of the table in view.c; nothing else knows it.
 */
#ifndef EMBER_VIEW_H
#define EMBER_VIEW_H

#include "profile.h"
#include "sink.h"

enum ember_metric {
    EMBER_METRIC_OWN_TIME, /* own, off-CPU and GC time, in ns */
    EMBER_METRIC_WORDS,
    EMBER_METRIC_CALLS,
    EMBER_METRIC_BINARIES, /* bytes outside the heap */
    EMBER_METRICS,
};

/* Of a comparison. Any other profile has nothing before. */
enum ember_side { EMBER_AFTER, EMBER_BEFORE };

struct ember_view_options {
    enum ember_metric metric; /* what a format with one value shows, and html shows first */
    enum ember_side width;    /* of a comparison: what frames are as wide as */
    const char *symbols;      /* perf: path of the file of perf_symbols; NULL: none */
};

struct ember_view {
    const char *name;      /* value of the option output_format */
    const char *extension; /* of its files, without a dot */
    bool compares;         /* it shows both sides of a comparison; others are not given any */
    void (*write)(const struct ember_profile *, const struct ember_view_options *,
                  struct ember_sink *);
};

/* The view of this name, or NULL. */
const struct ember_view *ember_view_find(const char *name);

/* The i-th view, or NULL past the last. */
const struct ember_view *ember_view_at(unsigned i);

#endif
