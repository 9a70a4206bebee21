/* SPDX-License-Identifier: Apache-2.0 */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup */
#include "view_test.h"

extern const struct ember_view ember_view_callgrind;

static char *write_sample(const char *name)
{
    make_sample(name);
    return written(&ember_view_callgrind, EMBER_METRIC_OWN_TIME);
}

static void drop(char *text)
{
    free(text);
    sample_free();
}

Test(view_callgrind, header_events_and_totals)
{
    char *text = write_sample("merge");
    cr_assert_eq(strncmp(text, "# callgrind format\nversion: 1\n", 30), 0);
    cr_assert_has(text, "cmd: work:start/0\ndesc: work:start/0, 2026-01-02 03:04:05 UTC, ");
    cr_assert_has(text, "\nevents: Own_ns Off_cpu_ns Waiting_ns GC_ns Words Calls Binary_bytes\n");
    cr_assert_has(text, "\ntotals: 3000 0 0 0 30 3 0\n");
    drop(text);
}

Test(view_callgrind, calls_of_all_stacks_are_one_edge)
{
    char *text = write_sample("merge");
    cr_assert_has(text,
                  "ob=work\nfl=work\nfn=(1) work:run/0\n0 1500 0 0 0 20 2 0\n"
                  "cob=work\ncfi=work\ncfn=(2) work:step/1\ncalls=1 0\n0 1500 0 0 0 10 1 0\n");
    cr_assert_has(text, "ob=processes\nfl=processes\nfn=(4) <0.2.0> work:run/0\n0 0 0 0 0 0 0 0\n"
                        "cob=work\ncfi=work\ncfn=(1)\ncalls=1 0\n0 2000 0 0 0 20 2 0\n");
    drop(text);
}

Test(view_callgrind, recursion_costs_once)
{
    char *text = write_sample("recursive");
    cr_assert_has(text, "fn=(1) tree:walk/1\n0 5200 3 0 6 70 7 0\n"
                        "cob=tree\ncfi=tree\ncfn=(1)\ncalls=2 0\n0 0 0 0 0 0 0 0\n");
    cr_assert_has(text, "cfn=(2) lists:foldl/3\ncalls=18 0\n0 74610 7 0 5 440 44 0\n");
    drop(text);
}

Test(view_callgrind, words_below_zero_are_none)
{
    char *text = write_sample("small");
    cr_assert_has(text, "gen_server:call/3\ncalls=10 0\n0 6000000 15000000 12000000 0 0 19 0\n");
    drop(text);
}

Test(view_callgrind, names_stay_on_their_line)
{
    char *text = write_sample("hostile");
    cr_assert_has(text, ") line\\x0abreak\\x0d\\x09tab \\x01\\x1f\\x7f\n");
    cr_assert_has(text, "ob=\\x283)\nfl=\\x283)\nfn=(12) (3)\n");
    cr_assert_has(text, ") \\x2028\\x2029 separators\n");
    cr_assert_has(text,
                  ") \xef\xbf\xbd\xef\xbf\xbd not utf-8 \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\n");
    drop(text);
}

Test(view_callgrind, names_may_be_empty)
{
    make_sample("merge");
    profile.functions[1] = (struct ember_function){"", "", "", 0};
    char *text = written(&ember_view_callgrind, EMBER_METRIC_CALLS);
    cr_assert_has(text, "cob=?\ncfi=?\ncfn=(2) ?\n");
    drop(text);
}

Test(view_callgrind, losses_are_told)
{
    char *text = write_sample("trouble");
    cr_assert_has(text, "\ndesc: 1789 events lost; 12 calls below the depth limit; ");
    drop(text);
}

Test(view_callgrind, deep_and_empty_profiles)
{
    char *text = write_sample("deep");
    cr_assert_has(text, "\ntotals: 10000000 0 0 0 20000 10000 0\n");
    drop(text);
}

Test(view_callgrind, an_empty_profile_has_a_header_and_totals)
{
    char *text = write_sample("empty");
    cr_assert_has(text, "\ntotals: 0 0 0 0 0 0 0\n");
    drop(text);
}

Test(view_callgrind, lack_of_memory_is_reported)
{
    make_sample("recursive");
    cr_assert_reports_lack_of_memory(&ember_view_callgrind);
    cr_assert_failed_sink_stays_failed(&ember_view_callgrind);
    sample_free();
}
