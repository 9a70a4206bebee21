/* SPDX-License-Identifier: Apache-2.0 */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup */
#include "view_test.h"

extern const struct ember_view ember_view_perf_script;

static char *write_sample(const char *name, enum ember_metric metric)
{
    make_sample(name);
    return written(&ember_view_perf_script, metric);
}

static void drop(char *text)
{
    free(text);
    sample_free();
}

Test(view_perf_script, a_stack_is_sampled_at_its_begin_and_its_end)
{
    char *text = write_sample("merge", EMBER_METRIC_OWN_TIME);
    const char expected[] =
        "# ========\n# captured on    : Fri Jan  2 03:04:05 2026\n"
        "# emberl         : work:start/0, 2026-01-02 03:04:05 UTC, 1234.567 ms, OTP 27\n"
        "# layout         : stacks one after the other: sums, not when they ran\n"
        "# ========\n#\n\n"
        "<0.1.0>_work:run/0     1/1     [000]     0.000000000:        500 time-ns: \n"
        "\t      10 work:run/0 (work)\n\n"
        "<0.1.0>_work:run/0     1/1     [000]     0.000001000:        500 time-ns: \n"
        "\t      10 work:run/0 (work)\n\n"
        "<0.2.0>_work:run/0     2/2     [000]     0.000001000:        250 time-ns: \n"
        "\t      10 work:run/0 (work)\n\n"
        "<0.2.0>_work:run/0     2/2     [000]     0.000001500:        250 time-ns: \n"
        "\t      10 work:run/0 (work)\n\n"
        "<0.2.0>_work:run/0     2/2     [000]     0.000001500:        750 time-ns: \n"
        "\t      20 work:step/1 (work)\n\t      10 work:run/0 (work)\n\n"
        "<0.2.0>_work:run/0     2/2     [000]     0.000003000:        750 time-ns: \n"
        "\t      20 work:step/1 (work)\n\t      10 work:run/0 (work)\n\n";
    cr_assert_str_eq(text, expected);
    drop(text);
}

Test(view_perf_script, collections_and_waiting_are_frames)
{
    char *text = write_sample("recursive", EMBER_METRIC_OWN_TIME);
    cr_assert_has(text, ":          2 time-ns: \n\t       1 [preempted] ([emberl])\n"
                        "\t      10 tree:walk/1 (tree)\n\t      10 tree:walk/1 (tree)\n\n");
    drop(text);
}

Test(view_perf_script, other_metrics)
{
    char *text = write_sample("merge", EMBER_METRIC_WORDS);
    cr_assert_has(text, "     0.000000000:          5 words: \n");
    free(text);
    text = written(&ember_view_perf_script, EMBER_METRIC_CALLS);
    cr_assert_has(text, "     0.000000000:          1 calls: \n");
    drop(text);
}

Test(view_perf_script, time_outside_any_function)
{
    make_sample("merge");
    profile.nodes[0].own.own_ns = 9;
    char *text = written(&ember_view_perf_script, EMBER_METRIC_OWN_TIME);
    cr_assert_has(text, ":          5 time-ns: \n\t       1 [no function] ([emberl])\n\n");
    drop(text);
}

Test(view_perf_script, names_stay_on_their_line_and_modules_one_word)
{
    char *text = write_sample("hostile", EMBER_METRIC_OWN_TIME);
    cr_assert_has(text, " line\\x0abreak\\x0d\\x09tab \\x01\\x1f\\x7f "
                        "(line\\x0abreak\\x0d\\x09tab_\\x01\\x1f\\x7f)\n");
    cr_assert_has(text, " a;b;c 12 (a;b;c_12)\n");
    cr_assert_has(text,
                  "(\xef\xbf\xbd\xef\xbf\xbd_not_utf-8_\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd)\n");
    drop(text);
}

Test(view_perf_script, deep_stacks_and_losses)
{
    char *text = write_sample("deep", EMBER_METRIC_OWN_TIME);
    cr_assert_has(text, "# mind           : ");
    cr_assert_has(text, "\t       1 [pruned] ([emberl])\n");
    drop(text);
}

Test(view_perf_script, an_empty_profile_has_a_header)
{
    char *text = write_sample("empty", EMBER_METRIC_OWN_TIME);
    cr_assert_has(text, "# ========\n#\n\n");
    drop(text);
}

Test(view_perf_script, lack_of_memory_is_reported)
{
    make_sample("recursive");
    cr_assert_reports_lack_of_memory(&ember_view_perf_script);
    cr_assert_failed_sink_stays_failed(&ember_view_perf_script);
    sample_free();
}
