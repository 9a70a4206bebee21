/* SPDX-License-Identifier: Apache-2.0 */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup */
#include "json_reader.h"
#include "view_test.h"

extern const struct ember_view ember_view_firefox;

static char *write_sample(const char *name, enum ember_metric metric)
{
    make_sample(name);
    char *text = written(&ember_view_firefox, metric);
    return text;
}

static void drop(char *text)
{
    free(text);
    sample_free();
}

Test(view_firefox, samples_lie_one_after_the_other)
{
    char *text = write_sample("merge", EMBER_METRIC_OWN_TIME);
    cr_assert_has(text, "\"samples\":{\"stack\":[1,2],\n\"time\":[0,0.0005],\n"
                        "\"weight\":[0.0005,0.0015],\n\"weightType\":\"tracing-ms\",\"length\":2}");
    cr_assert_has(text, "\"nativeAllocations\":{\"stack\":[1,2],\n\"time\":[0,0.0005],\n"
                        "\"weight\":[80,80],\n\"weightType\":\"bytes\",\"length\":2}");
    cr_assert_has(text,
                  "\"stackTable\":{\"frame\":[0,6,7],\n\"prefix\":[null,0,1],\n\"length\":3}");
    drop(text);
}

Test(view_firefox, whole_milliseconds_have_no_fraction)
{
    char *text = write_sample("small", EMBER_METRIC_OWN_TIME);
    cr_assert_has(text, "\"weight\":[10,20,10,40,5,12,3,1],\n");
    drop(text);
}

Test(view_firefox, collections_and_waiting_are_stacks_of_their_own)
{
    char *text = write_sample("recursive", EMBER_METRIC_OWN_TIME);
    cr_assert_has(text, "\"stackTable\":{\"frame\":[0,6,1,6,3,7,6,1,8,3,7,8,7,7,8],\n"
                        "\"prefix\":[null,0,1,1,3,3,5,6,6,8,6,10,1,12,0],\n\"length\":15}");
    cr_assert_has(text, "\"category\":[1,2,3,4,5,0,1,1,1],\n");
    drop(text);
}

Test(view_firefox, other_metrics)
{
    char *calls = write_sample("merge", EMBER_METRIC_CALLS);
    cr_assert_has(calls, "\"weight\":[1,1],\n\"weightType\":\"samples\",");
    free(calls);
    char *words = written(&ember_view_firefox, EMBER_METRIC_WORDS);
    cr_assert_has(words, "\"weight\":[80,80],\n\"weightType\":\"bytes\",");
    drop(words);
}

static void cr_assert_is_json(const char *sample)
{
    char *text = write_sample(sample, EMBER_METRIC_OWN_TIME);
    cr_assert(is_json(text), "not JSON: %.2000s", text);
    drop(text);
}

Test(view_firefox, names_cannot_leave_their_string)
{
    cr_assert_is_json("hostile");
}

Test(view_firefox, deep_stacks)
{
    cr_assert_is_json("deep");
}

Test(view_firefox, an_empty_profile)
{
    cr_assert_is_json("empty");
}

Test(view_firefox, of_many_processes_the_largest_stay)
{
    make_sample("empty");
    reserve(1000, 1000);
    for (uint32_t i = 0; i < 1000; i++)
        nodes[add_process("<0.1.0>", NULL, NULL, EMBER_NONE)].own.own_ns = i + 1;
    char *text = written(&ember_view_firefox, EMBER_METRIC_OWN_TIME);
    cr_assert_has(text, "500 of 1000 stacks are too small to show");
    cr_assert_has(text, "{\"name\":\"[other processes]\",\"processName\":\"[other processes]\","
                        "\"pid\":\"others\",\"tid\":501,");
    cr_assert_has(text, "\"weight\":[0.12525],\n");
    drop(text);
}

Test(view_firefox, losses_are_told)
{
    char *text = write_sample("trouble", EMBER_METRIC_OWN_TIME);
    cr_assert_has(text, "\"label\":\"Mind\",\"format\":\"string\",\"value\":\"1789 events lost; ");
    drop(text);
}

Test(view_firefox, lack_of_memory_is_reported)
{
    make_sample("recursive");
    cr_assert_reports_lack_of_memory(&ember_view_firefox);
    cr_assert_failed_sink_stays_failed(&ember_view_firefox);
    sample_free();
}
