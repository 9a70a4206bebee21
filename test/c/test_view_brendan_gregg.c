/* SPDX-License-Identifier: Apache-2.0 */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup */
#include "view_test.h"

extern const struct ember_view ember_view_brendan_gregg;

static char *write_sample(const char *name, enum ember_metric metric)
{
    make_sample(name);
    return written(&ember_view_brendan_gregg, metric);
}

static void drop(char *text)
{
    free(text);
    sample_free();
}

static uint64_t sum_of(const char *text)
{
    uint64_t sum = 0;
    for (const char *end; (end = strchr(text, '\n')); text = end + 1) {
        const char *space = memrchr(text, ' ', (size_t)(end - text));
        cr_assert(space);
        sum += strtoull(space, NULL, 10);
    }
    cr_assert_eq(*text, '\0');
    return sum;
}

Test(view_brendan_gregg, a_line_is_a_stack_and_a_number)
{
    char *text = write_sample("small", EMBER_METRIC_OWN_TIME);
    cr_assert_eq(strncmp(text, "<0.100.0>_shop:checkout/1;shop:checkout/1 10000\n", 48), 0);
    cr_assert_has(text, "\n<0.100.0>_shop:checkout/1;shop:checkout/1;lists:map/2;[gc] 10000\n");
    cr_assert_has(
        text, "\n<0.100.0>_shop:checkout/1;shop:checkout/1;gen_server:call/3;[waiting] 12000\n");
    cr_assert_has(text, ";gen_server:call/3;[preempted] 3000\n");
    cr_assert_has(text, "\n<0.101.0>_pricing;Jason.encode!/2;lists:map/2 39000\n");
    drop(text);
}

/* What is new, what vanished, and a slice that one side alone has. */
Test(view_brendan_gregg, a_comparison_has_two_numbers_a_line)
{
    char *text = write_sample("comparison", EMBER_METRIC_OWN_TIME);
    cr_assert_has(text, ";shop:checkout/1;lists:map/2;shop:price/1 0 40000\n");
    cr_assert_has(text, ";shop:checkout/1;shop:total/2 30000 0\n");
    cr_assert_has(text, ";gen_server:call/3;[waiting] 3000 12000\n");
    cr_assert_has(text, ";gen_server:call/3;[preempted] 0 3000\n");
    cr_assert_has(text, ";Jason.encode!/2 90000 60000\n");
    cr_assert_has(text, ";Jason.encode!/2;[gc] 2000 0\n");
    cr_assert_eq(sum_of(text), 200000);
    drop(text);
}

Test(view_brendan_gregg, other_metrics)
{
    char *text = write_sample("merge", EMBER_METRIC_WORDS);
    cr_assert_str_eq(text, "<0.1.0>_work:run/0;work:run/0 10\n<0.2.0>_work:run/0;work:run/0 10\n"
                           "<0.2.0>_work:run/0;work:run/0;work:step/1 10\n");
    free(text);
    text = written(&ember_view_brendan_gregg, EMBER_METRIC_CALLS);
    cr_assert_eq(sum_of(text), 3);
    drop(text);
}

Test(view_brendan_gregg, time_of_tiny_stacks_is_carried_on)
{
    make_sample("empty");
    reserve(1, 10001);
    uint32_t function = add_function("m", "f", 0, "m:f/0");
    uint32_t root = add_process("<0.1.0>", NULL, NULL, EMBER_NONE);
    for (uint32_t i = 0; i < 10000; i++)
        add_node(root, function, (struct ember_metrics){1, 130, 0, 0, 0});
    char *text = written(&ember_view_brendan_gregg, EMBER_METRIC_OWN_TIME);
    cr_assert_eq(sum_of(text), 1300);
    drop(text);
}

Test(view_brendan_gregg, the_total_is_rounded_once)
{
    make_sample("merge");
    profile.nodes[1].own.own_ns = 499;
    profile.nodes[3].own.own_ns = 0;
    profile.nodes[4].own.own_ns = 0;
    char *text = written(&ember_view_brendan_gregg, EMBER_METRIC_OWN_TIME);
    cr_assert_str_eq(text, "");
    free(text);
    profile.nodes[4].own.gc_ns = 1;
    text = written(&ember_view_brendan_gregg, EMBER_METRIC_OWN_TIME);
    cr_assert_str_eq(text, "<0.2.0>_work:run/0;work:run/0;work:step/1;[gc] 1\n");
    drop(text);
}

Test(view_brendan_gregg, names_cannot_split_a_line)
{
    char *text = write_sample("hostile", EMBER_METRIC_CALLS);
    cr_assert_has(text, ";a:b:c_12 1\n");
    cr_assert_has(text, ";line\\x0abreak\\x0d\\x09tab_\\x01\\x1f\\x7f 1\n");
    cr_assert_has(text, ";\\x2028\\x2029_separators 1\n");
    drop(text);
}

Test(view_brendan_gregg, deep_stacks_stay_below_their_process)
{
    char *text = write_sample("deep", EMBER_METRIC_CALLS);
    cr_assert_eq(sum_of(text), 10000);
    for (const char *line = text; *line; line = strchr(line, '\n') + 1)
        cr_assert_eq(strncmp(line, "<0.1.0>;deep:down/1", 19), 0);
    cr_assert_has(text, ";[pruned] ");
    drop(text);
}

Test(view_brendan_gregg, an_empty_profile_is_an_empty_file)
{
    char *text = write_sample("empty", EMBER_METRIC_OWN_TIME);
    cr_assert_str_eq(text, "");
    drop(text);
}

Test(view_brendan_gregg, lack_of_memory_is_reported)
{
    make_sample("small");
    cr_assert_reports_lack_of_memory(&ember_view_brendan_gregg);
    cr_assert_failed_sink_stays_failed(&ember_view_brendan_gregg);
    sample_free();
}
