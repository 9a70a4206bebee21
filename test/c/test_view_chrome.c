/* SPDX-License-Identifier: Apache-2.0 */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup */
#include "json_reader.h"
#include "view_test.h"

extern const struct ember_view ember_view_chrome;

static char *write_sample(const char *name, enum ember_metric metric)
{
    make_sample(name);
    return written(&ember_view_chrome, metric);
}

static void drop(char *text)
{
    free(text);
    sample_free();
}

#define SECOND "\"pid\":1,\"tid\":2,\"name\":"

Test(view_chrome, stacks_lie_one_after_the_other)
{
    char *text = write_sample("merge", EMBER_METRIC_OWN_TIME);
    cr_assert_has(text,
                  "{\"ph\":\"M\"," SECOND "\"thread_name\","
                  "\"args\":{\"name\":\"\\u003c0.2.0\\u003e work:run/0\"}},\n"
                  "{\"ph\":\"M\"," SECOND "\"thread_sort_index\",\"args\":{\"sort_index\":2}},\n"
                  "{\"ph\":\"B\"," SECOND "\"\\u003c0.2.0\\u003e work:run/0\",\"ts\":0,"
                  "\"args\":{\"calls\":2,\"words\":20}},\n"
                  "{\"ph\":\"B\"," SECOND "\"work:run/0\",\"ts\":0,"
                  "\"args\":{\"calls\":2,\"words\":20}},\n"
                  "{\"ph\":\"B\"," SECOND "\"work:step/1\",\"ts\":0,"
                  "\"args\":{\"calls\":1,\"words\":10}},\n"
                  "{\"ph\":\"E\"," SECOND "\"work:step/1\",\"ts\":1.500},\n"
                  "{\"ph\":\"E\"," SECOND "\"work:run/0\",\"ts\":2},\n"
                  "{\"ph\":\"E\"," SECOND "\"\\u003c0.2.0\\u003e work:run/0\",\"ts\":2}]}\n");
    drop(text);
}

Test(view_chrome, it_says_that_it_is_no_timeline)
{
    char *text = write_sample("merge", EMBER_METRIC_OWN_TIME);
    cr_assert_has(text, "\"layout\":\"an aggregate, not a timeline: ");
    cr_assert_has(text, "\"args\":{\"name\":\"work:start/0 (sums, not a timeline)\"}}");
    drop(text);
}

Test(view_chrome, collections_and_waiting_stand_at_the_end)
{
    char *text = write_sample("recursive", EMBER_METRIC_OWN_TIME);
    cr_assert_has(text, "\"name\":\"[preempted]\",\"ts\":0.500},\n");
    cr_assert_has(text, "\"name\":\"[preempted]\",\"ts\":0.507},\n");
    drop(text);
}

Test(view_chrome, other_metrics)
{
    char *text = write_sample("merge", EMBER_METRIC_WORDS);
    cr_assert_has(text, "{\"ph\":\"E\"," SECOND "\"work:run/0\",\"ts\":20},\n");
    cr_assert_has(text, "a microsecond is a word of heap");
    drop(text);
}

static void cr_assert_is_json(const char *sample)
{
    char *text = write_sample(sample, EMBER_METRIC_OWN_TIME);
    cr_assert(is_json(text), "not JSON: %.2000s", text);
    drop(text);
}

Test(view_chrome, names_cannot_leave_their_string)
{
    cr_assert_is_json("hostile");
}

Test(view_chrome, an_empty_profile)
{
    cr_assert_is_json("empty");
}

Test(view_chrome, deep_stacks_are_pruned)
{
    cr_assert_is_json("deep");
}

Test(view_chrome, losses_are_told)
{
    char *text = write_sample("trouble", EMBER_METRIC_OWN_TIME);
    cr_assert_has(text, "\"mind\":\"1789 events lost; ");
    drop(text);
}

Test(view_chrome, lack_of_memory_is_reported)
{
    make_sample("recursive");
    cr_assert_reports_lack_of_memory(&ember_view_chrome);
    cr_assert_failed_sink_stays_failed(&ember_view_chrome);
    sample_free();
}
