/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of all views need. The test links as failing_malloc.h says.
 */
#ifndef EMBER_TEST_VIEW_TEST_H
#define EMBER_TEST_VIEW_TEST_H

#include "failing_malloc.h"
#include "sample_profiles.h"
#include "view.h"

#include <criterion/criterion.h>

static void make_sample(const char *name)
{
    cr_assert(sample_make(name));
    cr_assert(ember_profile_check(&profile) || profile.node_count == 0);
}

/* The profile in a format. */
static inline struct ember_sink written_sink(const struct ember_view *view,
                                             enum ember_metric metric)
{
    struct ember_sink sink;
    ember_sink_init(&sink);
    view->write(&profile, &(struct ember_view_options){.metric = metric}, &sink);
    cr_assert(!sink.failed);
    return sink;
}

/* In a format of text, as a string. */
static inline char *written(const struct ember_view *view, enum ember_metric metric)
{
    struct ember_sink sink = written_sink(view, metric);
    char *text = calloc(1, sink.size + 1);
    if (sink.size > 0)
        memcpy(text, sink.data, sink.size);
    cr_assert_eq(strlen(text), sink.size, "a zero byte in the file");
    ember_sink_fini(&sink);
    return text;
}

static inline void cr_assert_has(const char *text, const char *part)
{
    cr_assert(strstr(text, part), "no %s in %.3000s", part, text);
}

/* Tries with memory for 0, 1, 2, ... allocations until the file is written. */
static void cr_assert_reports_lack_of_memory(const struct ember_view *view)
{
    bool failed = true;
    for (uint64_t allocations = 0; failed; allocations++) {
        struct ember_sink sink;
        ember_sink_init(&sink);
        allocations_left = allocations;
        view->write(&profile, &(struct ember_view_options){.metric = EMBER_METRIC_OWN_TIME}, &sink);
        allocations_left = UINT64_MAX;
        failed = sink.failed;
        ember_sink_fini(&sink);
        cr_assert_lt(allocations, 1000);
    }
}

static void cr_assert_failed_sink_stays_failed(const struct ember_view *view)
{
    struct ember_sink sink = {.failed = true};
    view->write(&profile, &(struct ember_view_options){.metric = EMBER_METRIC_OWN_TIME}, &sink);
    cr_assert(sink.failed);
    cr_assert_eq(sink.size, 0);
}

#endif
