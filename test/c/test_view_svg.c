/* SPDX-License-Identifier: Apache-2.0 */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup */
#include "view_test.h"

extern const struct ember_view ember_view_svg;

static char *write_sample(const char *name, enum ember_metric metric)
{
    make_sample(name);
    return written(&ember_view_svg, metric);
}

static void drop(char *text)
{
    free(text);
    sample_free();
}

Test(view_svg, a_frame_has_its_place_and_its_numbers)
{
    char *text = write_sample("merge", EMBER_METRIC_OWN_TIME);
    cr_assert_has(text, "<g><title>all\n3.000 \xc2\xb5s, 100.00 %</title>"
                        "<rect x=\"0.0000000%\" width=\"100.0000000%\" y=\"0\" height=\"17\" ");
    cr_assert_has(text, "<g><title>work:run/0\n2.000 \xc2\xb5s, 66.67 %, 500 ns of its own\n"
                        "20 words, 2 calls</title>"
                        "<rect x=\"33.3333333%\" width=\"66.6666667%\" y=\"36\" height=\"17\" ");
    cr_assert_has(text, "<g><title>work:step/1\n1.500 \xc2\xb5s, 50.00 %\n10 words, 1 calls</title>"
                        "<rect x=\"33.3333333%\" width=\"50.0000000%\" y=\"54\" height=\"17\" ");
    drop(text);
}

Test(view_svg, time_off_the_cpu_and_in_collections_stands_at_the_end)
{
    char *text = write_sample("recursive", EMBER_METRIC_OWN_TIME);
    cr_assert_has(text, "<g><title>[gc]\n1 ns, 0.00 %</title>");
    cr_assert_has(text, "<g><title>[preempted]\n3 ns, 0.00 %</title>");
    drop(text);
}

Test(view_svg, other_metrics)
{
    char *text = write_sample("merge", EMBER_METRIC_WORDS);
    cr_assert_has(text, "<g><title>work:run/0\n20 words, 66.67 %, 10 words of its own\n"
                        "2.000 \xc2\xb5s, 2 calls</title>");
    cr_assert_null(strstr(text, "<title>[gc]"));
    drop(text);
}

Test(view_svg, names_stay_text)
{
    char *text = write_sample("hostile", EMBER_METRIC_OWN_TIME);
    cr_assert_has(text, "<title>&lt;/script&gt;&lt;script&gt;window.hacked = 1&lt;/script&gt;\n");
    cr_assert_has(text, "<title>line\\x0abreak\\x0d\\x09tab \\x01\\x1f\\x7f\n");
    cr_assert_has(text, "<title>&quot;];window.hacked = 3;//\n");
    cr_assert_has(text, "<title>\xef\xbf\xbd\xef\xbf\xbd not utf-8 ");
    cr_assert_eq(strstr(text, "<script"), strstr(text, "<script><![CDATA["));
    cr_assert_null(strstr(strstr(text, "<script") + 1, "<script"));
    drop(text);
}

Test(view_svg, long_labels_are_cut_between_characters)
{
    char name[255 * 4 + 1] = "";
    for (int i = 0; i < 255; i++)
        memcpy(name + i * 4, "\xf0\x9f\x94\xa5", 5);
    make_sample("merge");
    profile.functions[1].text = name;
    char *text = written(&ember_view_svg, EMBER_METRIC_OWN_TIME);
    cr_assert_has(text, name);
    cr_assert_has(text, "\xf0\x9f\x94\xa5\xe2\x80\xa6</text>");
    drop(text);
}

Test(view_svg, deep_and_losses)
{
    char *text = write_sample("deep", EMBER_METRIC_OWN_TIME);
    cr_assert_has(text, "class=\"caveats\">9000 of 10001 stacks are too small to show, "
                        "summed up as [pruned]</text>");
    cr_assert_has(text, "<title>[pruned]\n9.000 ms, 90.00 %</title>");
    drop(text);
}

Test(view_svg, a_profile_without_anything_has_no_frames)
{
    char *text = write_sample("empty", EMBER_METRIC_OWN_TIME);
    cr_assert_null(strstr(text, "<g><title>"));
    drop(text);
}

Test(view_svg, lack_of_memory_is_reported)
{
    make_sample("recursive");
    cr_assert_reports_lack_of_memory(&ember_view_svg);
    cr_assert_failed_sink_stays_failed(&ember_view_svg);
    sample_free();
}
