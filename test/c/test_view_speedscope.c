/* SPDX-License-Identifier: Apache-2.0 */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup */
#include "json_reader.h"
#include "view_test.h"

extern const struct ember_view ember_view_speedscope;

static char *write_sample(const char *name)
{
    make_sample(name);
    char *text = written(&ember_view_speedscope, EMBER_METRIC_OWN_TIME);
    cr_assert(is_json(text), "not JSON: %.2000s", text);
    return text;
}

static void drop(char *text)
{
    free(text);
    sample_free();
}

Test(view_speedscope, a_sample_is_a_stack_from_its_process_down)
{
    char *text = write_sample("merge");
    cr_assert_has(text, "{\"name\":\"[gc]\"},\n{\"name\":\"[waiting]\"},\n{\"name\":\"[preempted]"
                        "\"},\n{\"name\":\"[off-cpu]\"},\n{\"name\":\"[pruned]\"},\n"
                        "{\"name\":\"\\u003c0.1.0\\u003e work:run/0\"},\n"
                        "{\"name\":\"\\u003c0.2.0\\u003e work:run/0\"},\n"
                        "{\"name\":\"work:run/0\",\"file\":\"work\"},\n"
                        "{\"name\":\"work:step/1\",\"file\":\"work\"}]");
    cr_assert_has(text, "\"name\":\"time \\u003c0.2.0\\u003e work:run/0\",\"unit\":\"nanoseconds\","
                        "\"startValue\":0,\"endValue\":2000,\n"
                        "\"samples\":[[6,7],\n[6,7,8]],\n\"weights\":[500,1500]}");
    cr_assert_has(text, "\"unit\":\"bytes\",\"startValue\":0,\"endValue\":160,\n");
    cr_assert_has(text, "\"activeProfileIndex\":1}");
    drop(text);
}

Test(view_speedscope, time_off_the_cpu_and_in_collections_has_frames)
{
    char *text = write_sample("recursive");
    cr_assert_has(text, "\"samples\":[[5,8],\n[5,8,0],\n[5,8,8],\n[5,8,8,2],\n[5,8,8,6],\n");
    cr_assert_has(text, "\"weights\":[1000,1,200,3,30,");
    drop(text);
}

Test(view_speedscope, what_nothing_was_measured_in_is_an_empty_profile)
{
    char *text = write_sample("empty");
    cr_assert_has(text, "\"profiles\":[\n{\"type\":\"sampled\",\"name\":\"nothing was measured\"");
    cr_assert_has(text, "\"name\":\"profile, 1970-01-01 00:00:00 UTC, 0.000 ms "
                        "(The call is unfinished)\"");
    drop(text);
}

Test(view_speedscope, names_that_stand_twice_are_one_frame)
{
    make_sample("merge");
    profile.functions[1] = profile.functions[0];
    char *text = written(&ember_view_speedscope, EMBER_METRIC_CALLS);
    cr_assert_null(strstr(strstr(text, "\"file\":\"work\"") + 1, "\"file\":\"work\""));
    cr_assert_has(text, "[[6,7],\n[6,7,7]]");
    drop(text);
}

Test(view_speedscope, names_cannot_leave_their_string)
{
    drop(write_sample("hostile"));
}

Test(view_speedscope, deep_stacks_are_pruned_and_this_is_said)
{
    char *text = write_sample("deep");
    cr_assert_has(text, "9000 of 10001 stacks are too small to show");
    drop(text);
}

Test(view_speedscope, of_many_processes_the_largest_stay)
{
    make_sample("empty");
    reserve(1000, 1000);
    for (uint32_t i = 0; i < 1000; i++)
        nodes[add_process("<0.1.0>", NULL, NULL, EMBER_NONE)].own.own_ns = i + 1;
    char *text = written(&ember_view_speedscope, EMBER_METRIC_OWN_TIME);
    cr_assert(is_json(text));
    cr_assert_has(text, "700 of 1000 stacks are too small to show");
    cr_assert_has(text, "\"name\":\"time [other processes]\",\"unit\":\"nanoseconds\","
                        "\"startValue\":0,\"endValue\":245350,");
    drop(text);
}

Test(view_speedscope, losses_are_told)
{
    char *text = write_sample("trouble");
    cr_assert_has(text, "1789 events lost; 12 calls below the depth limit; the call is unfinished; "
                        "stacks are estimated; words are estimated; times are estimated)");
    drop(text);
}

Test(view_speedscope, lack_of_memory_is_reported)
{
    make_sample("recursive");
    cr_assert_reports_lack_of_memory(&ember_view_speedscope);
    cr_assert_failed_sink_stays_failed(&ember_view_speedscope);
    sample_free();
}
