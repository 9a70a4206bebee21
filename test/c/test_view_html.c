/* SPDX-License-Identifier: Apache-2.0 */
#include "json_reader.h"
#include "view.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

extern const struct ember_view ember_view_html;

enum { NUMBERS_PER_ROW = 9, DEEP = 10000, MANY = 200000, MOST_KEPT = 50000 };

/* ---- Pages --------------------------------------------------------------- */

static const char data_begin[] = "<script type=\"application/json\" id=\"profile\">";

/* What stands between the tags of the data, as a browser would see it. */
static char *data_of(const struct ember_sink *sink)
{
    cr_assert(!sink->failed);
    char *page = calloc(1, sink->size + 1);
    memcpy(page, sink->data, sink->size);
    cr_assert_eq(strlen(page), sink->size, "a zero byte in the page");
    char *begin = strstr(page, data_begin);
    cr_assert(begin);
    begin += strlen(data_begin);
    char *end = strstr(begin, "</");
    cr_assert(end);
    *end = '\0';
    char *data = strdup(begin);
    free(page);
    cr_assert(is_json(data), "not JSON: %.2000s", data);
    return data;
}

static char *write_as(const struct ember_profile *profile, enum ember_metric metric)
{
    struct ember_sink sink;
    ember_sink_init(&sink);
    ember_view_html.write(profile, &(struct ember_view_options){.metric = metric}, &sink);
    char *data = data_of(&sink);
    ember_sink_fini(&sink);
    return data;
}

static char *write_page(const struct ember_profile *profile)
{
    return write_as(profile, EMBER_METRIC_OWN_TIME);
}

static void cr_assert_has(const char *data, const char *part)
{
    cr_assert(strstr(data, part), "no %s in %.3000s", part, data);
}

struct rows {
    int64_t *numbers;
    size_t count;
};

static struct rows rows_of(const char *data)
{
    struct rows rows = {calloc(strlen(data), sizeof(int64_t)), 0};
    const char *at = strstr(data, "\"rows\":[");
    cr_assert(at);
    at += strlen("\"rows\":[");
    size_t count = 0;
    for (char *end; strtoll(at, &end, 10), end != at; at = *end == ',' ? end + 1 : end)
        rows.numbers[count++] = strtoll(at, &end, 10);
    cr_assert_eq(count % NUMBERS_PER_ROW, 0);
    rows.count = count / NUMBERS_PER_ROW;
    return rows;
}

static const int64_t *row(const struct rows *rows, size_t i)
{
    return rows->numbers + i * NUMBERS_PER_ROW;
}

static void cr_assert_row(const struct rows *rows, size_t i, const int64_t *expected)
{
    cr_assert_lt(i, rows->count);
    cr_assert_arr_eq(row(rows, i), expected, NUMBERS_PER_ROW * sizeof(int64_t), "row %zu", i);
}

static int64_t sum_column(const struct rows *rows, int column)
{
    int64_t sum = 0;
    for (size_t i = 0; i < rows->count; i++)
        sum += row(rows, i)[column];
    return sum;
}

/* ---- Small profiles ------------------------------------------------------ */

static struct ember_function two_functions[] = {
    {"lists", "map", "lists:map/2", 2},
    {"Elixir.Enum", "map", "Enum.map/2", 2},
};

static struct ember_process one_process[] = {
    {1, "<0.1.0>", "main", "init:boot/1", EMBER_NONE, 0, false},
};

static struct ember_node three_nodes[] = {
    {EMBER_NONE, EMBER_NONE, 0, {0, 0, 0, 0, 0}},
    {0, 1, 0, {2, 100, 20, 3, 40, .waiting_ns = 15, .binary_bytes = 64}},
    {1, 0, 0, {7, 1000, 0, 0, -5}},
};

static struct ember_profile small_profile(void)
{
    return (struct ember_profile){
        .functions = two_functions,
        .function_count = 2,
        .processes = one_process,
        .process_count = 1,
        .nodes = three_nodes,
        .node_count = 3,
    };
}

Test(view_html, rows_name_caller_function_and_metrics)
{
    struct ember_profile profile = small_profile();
    char *data = write_page(&profile);
    struct rows rows = rows_of(data);
    cr_assert_eq(rows.count, 3);
    cr_assert_row(&rows, 0, (int64_t[]){0, 0, 0, 0, 0, 0, 0, 0, 0});
    cr_assert_row(&rows, 1, (int64_t[]){1, 1, 2, 100, 15, 5, 3, 40, 64});
    cr_assert_row(&rows, 2, (int64_t[]){1, 0, 7, 1000, 0, 0, 0, -5, 0});
    cr_assert_has(data, "[\"lists:map/2\",\"lists\",\"map\",2]");
    cr_assert_has(data, "[\"Enum.map/2\",\"Elixir.Enum\",\"map\",2]");
    cr_assert_has(data, "{\"pid\":\"\\u003c0.1.0\\u003e\",\"name\":\"main\"");
    free(rows.numbers);
    free(data);
}

Test(view_html, info_is_told)
{
    struct ember_profile profile = small_profile();
    profile.info = (struct ember_info){
        .target = "shop:buy/1",
        .otp_release = "27",
        .start_us = -1,
        .duration_ns = UINT64_MAX,
        .events = 2,
        .lost = 3,
        .compensated_ns = 4,
        .raw_ns = 5,
        .depth_cut = 6,
        .calls = 7,
        .fallbacks = EMBER_FALLBACK_STACK | EMBER_FALLBACK_CLOCK | EMBER_FALLBACK_BINARIES |
                     EMBER_FALLBACK_WAITING,
        .outcome = EMBER_OUTCOME_EXITED,
        .cut_by = EMBER_CUT_TIMEOUT,
    };
    char *data = write_page(&profile);
    cr_assert_has(data, "\"target\":\"shop:buy/1\",\"otp_release\":\"27\",\"start_us\":-1,"
                        "\"duration_ns\":18446744073709551615,\"events\":2,\"lost\":3,"
                        "\"compensated_ns\":4,\"raw_ns\":5,\"depth_cut\":6,\"calls\":7,"
                        "\"cut_by\":1,\"outcome\":\"exited\",\"fallbacks\":[\"stack\",\"clock\","
                        "\"binaries\",\"waiting\"]");
    free(data);
}

Test(view_html, metric_asked_for_comes_first)
{
    struct ember_profile profile = small_profile();
    char *words = write_as(&profile, EMBER_METRIC_WORDS);
    char *calls = write_as(&profile, EMBER_METRIC_CALLS);
    cr_assert_has(words, "\"metric\":\"words\"");
    cr_assert_has(calls, "\"metric\":\"calls\"");
    free(words);
    free(calls);
}

Test(view_html, empty_profile)
{
    struct ember_profile profile = {0};
    char *data = write_page(&profile);
    cr_assert_has(data, "\"target\":null");
    cr_assert_has(data, "\"functions\":[]");
    cr_assert_has(data, "\"rows\":[\n]");
    free(data);
}

Test(view_html, failed_sink_stays_failed)
{
    struct ember_profile profile = small_profile();
    struct ember_sink sink = {.failed = true};
    ember_view_html.write(&profile, &(struct ember_view_options){0}, &sink);
    cr_assert(sink.failed);
    cr_assert_eq(sink.size, 0);
}

/* ---- Names --------------------------------------------------------------- */

static void cr_assert_written_as(char *name, const char *expected)
{
    struct ember_profile profile = small_profile();
    struct ember_function functions[] = {{name, name, name, 0}, two_functions[1]};
    struct ember_process process = one_process[0];
    process.name = process.label = process.pid_text = name;
    profile.functions = functions;
    profile.processes = &process;
    profile.info.target = name;
    char *data = write_page(&profile);
    cr_assert_has(data, expected);
    free(data);
}

Test(view_html, names_cannot_leave_their_string)
{
    cr_assert_written_as("a\"b\\c", "\"a\\u0022b\\u005cc\"");
    cr_assert_written_as("l\ni\rn\te\x01\x1f\x7f",
                         "\"l\\u000ai\\u000dn\\u0009e\\u0001\\u001f\\u007f\"");
    cr_assert_written_as("'a;b c':d/1", "\"'a;b c':d/1\"");
    cr_assert_written_as("", "\"\"");
}

Test(view_html, names_cannot_open_or_close_a_tag)
{
    cr_assert_written_as("</script><!-- &amp;", "\"\\u003c/script\\u003e\\u003c!-- \\u0026amp;\"");
    cr_assert_written_as("\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xaa", "\"\\u2028\\u2029\xe2\x80\xaa\"");
}

Test(view_html, unicode_names_stay)
{
    cr_assert_written_as("\xc3\xa5 \xe6\x97\xa5 \xf0\x9f\x94\xa5",
                         "\"\xc3\xa5 \xe6\x97\xa5 \xf0\x9f\x94\xa5\"");
}

Test(view_html, bytes_that_are_not_utf8_are_replaced)
{
    cr_assert_written_as("\xff", "\"\\ufffd\"");
    cr_assert_written_as("\xc0\xaf", "\"\\ufffd\\ufffd\""); /* too long a form */
    cr_assert_written_as("\xe0\x80\xaf", "\"\\ufffd\\ufffd\\ufffd\"");
    cr_assert_written_as("\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""); /* half a pair */
    cr_assert_written_as("\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\"");
    cr_assert_written_as("a\xe2\x80", "\"a\\ufffd\\ufffd\""); /* cut short */
}

Test(view_html, longest_atoms_stay_whole)
{
    char name[255 * 4 + 1] = "";
    for (int i = 0; i < 255; i++)
        memcpy(name + i * 4, "\xf0\x9f\x94\xa5", 5);
    cr_assert_written_as(name, name);
}

/* ---- Large profiles ------------------------------------------------------ */

static struct ember_profile reserve(uint32_t node_count)
{
    struct ember_profile profile = small_profile();
    profile.nodes = calloc(node_count, sizeof profile.nodes[0]);
    profile.nodes[0] = three_nodes[0];
    profile.node_count = node_count;
    return profile;
}

Test(view_html, deep_stacks)
{
    struct ember_profile profile = reserve(DEEP + 1);
    for (uint32_t i = 1; i <= DEEP; i++)
        profile.nodes[i] = (struct ember_node){i - 1, i % 2, 0, {1, 2, 3, 4, 5}};
    char *data = write_page(&profile);
    struct rows rows = rows_of(data);
    cr_assert_eq(rows.count, DEEP + 1);
    cr_assert_row(&rows, DEEP, (int64_t[]){1, 0, 1, 2, 0, 3, 4, 5, 0});
    cr_assert_has(data, "\"stacks\":0,");
    free(rows.numbers);
    free(data);
    free(profile.nodes);
}

/* Every stack's callees weigh differently; the last are the heaviest. */
static struct ember_profile many_stacks(void)
{
    struct ember_profile profile = reserve(MANY);
    for (uint32_t i = 1; i < MANY; i++)
        profile.nodes[i] =
            (struct ember_node){i < 1000 ? 0 : i % 1000,
                                i % 2,
                                0,
                                {1, i * UINT64_C(10), i % 7, i % 5, (int64_t)i % 11 - 2,
                                 .waiting_ns = i % 7 / 2, .binary_bytes = i % 3}};
    return profile;
}

static struct ember_metrics sum_of(const struct ember_profile *profile)
{
    struct ember_metrics sum = {0};
    for (uint32_t i = 0; i < profile->node_count; i++) {
        sum.calls += profile->nodes[i].own.calls;
        sum.own_ns += profile->nodes[i].own.own_ns;
        sum.off_cpu_ns += profile->nodes[i].own.off_cpu_ns;
        sum.waiting_ns += profile->nodes[i].own.waiting_ns;
        sum.binary_bytes += profile->nodes[i].own.binary_bytes;
        sum.gc_ns += profile->nodes[i].own.gc_ns;
        sum.words += profile->nodes[i].own.words;
    }
    return sum;
}

Test(view_html, totals_survive_pruning)
{
    struct ember_profile profile = many_stacks();
    struct ember_metrics sum = sum_of(&profile);
    char *data = write_page(&profile);
    struct rows rows = rows_of(data);
    cr_assert_eq(sum_column(&rows, 2), (int64_t)sum.calls);
    cr_assert_eq(sum_column(&rows, 3), (int64_t)sum.own_ns);
    cr_assert_eq(sum_column(&rows, 4), (int64_t)sum.waiting_ns);
    cr_assert_eq(sum_column(&rows, 5), (int64_t)(sum.off_cpu_ns - sum.waiting_ns));
    cr_assert_eq(sum_column(&rows, 6), (int64_t)sum.gc_ns);
    cr_assert_eq(sum_column(&rows, 7), sum.words);
    cr_assert_eq(sum_column(&rows, 8), (int64_t)sum.binary_bytes);
    free(rows.numbers);
    free(data);
    free(profile.nodes);
}

Test(view_html, pruning_is_stated_and_counted)
{
    struct ember_profile profile = many_stacks();
    char *data = write_page(&profile);
    struct rows rows = rows_of(data);
    cr_assert_has(data, "\"pruned\":{\"first_row\":50000,\"stacks\":150000,\"of\":200000,");
    cr_assert_null(strstr(data, "\"largest_ppb\":0}"));
    int64_t counted = 0;
    for (size_t i = MOST_KEPT; i < rows.count; i++)
        counted += row(&rows, i)[1];
    cr_assert_eq(counted, MANY - MOST_KEPT);
    cr_assert_lt(strlen(data), 5000000);
    free(rows.numbers);
    free(data);
    free(profile.nodes);
}

Test(view_html, callers_stand_before_callees)
{
    struct ember_profile profile = many_stacks();
    char *data = write_page(&profile);
    struct rows rows = rows_of(data);
    cr_assert_eq(row(&rows, 0)[0], 0);
    for (size_t i = 1; i < rows.count; i++) {
        cr_assert_gt(row(&rows, i)[0], 0);
        cr_assert_leq(row(&rows, i)[0], (int64_t)i);
        cr_assert_lt((int64_t)i - row(&rows, i)[0], MOST_KEPT, "row %zu below a pruned one", i);
    }
    free(rows.numbers);
    free(data);
    free(profile.nodes);
}

Test(view_html, what_is_large_in_one_metric_stays)
{
    struct ember_profile profile = reserve(MANY);
    for (uint32_t i = 1; i < MANY; i++)
        profile.nodes[i] = (struct ember_node){0, 0, 0, {1000, 1000, 0, 0, 1000}};
    profile.nodes[MANY - 4].own = (struct ember_metrics){.binary_bytes = 6666666};
    profile.nodes[MANY - 3].own = (struct ember_metrics){0, 0, 7777777, 0, 0};
    profile.nodes[MANY - 2].own = (struct ember_metrics){0, 0, 0, 0, 8888888};
    profile.nodes[MANY - 1].own = (struct ember_metrics){9999999, 0, 0, 0, 0};
    char *data = write_page(&profile);
    cr_assert_has(data, ",0,0,0,0,0,0,0,6666666,\n");
    cr_assert_has(data, ",0,0,0,0,7777777,0,0,0,\n");
    cr_assert_has(data, ",0,0,0,0,0,0,8888888,0,\n");
    cr_assert_has(data, ",0,9999999,0,0,0,0,0,0,\n");
    free(data);
    free(profile.nodes);
}

Test(view_html, equal_stacks_are_kept_up_to_the_limit)
{
    struct ember_profile profile = reserve(MANY);
    for (uint32_t i = 1; i < MANY; i++)
        profile.nodes[i] = (struct ember_node){i - 1 - (i - 1) % 2, 0, 0, {1, 1, 0, 0, 1}};
    char *data = write_page(&profile);
    cr_assert_has(data, "\"first_row\":50000,\"stacks\":150000,");
    free(data);
    free(profile.nodes);
}

Test(view_html, whole_processes_can_be_pruned)
{
    struct ember_profile profile = reserve(MANY);
    for (uint32_t i = 0; i < MANY; i++)
        profile.nodes[i] = (struct ember_node){EMBER_NONE, EMBER_NONE, 0, {1, i + 1, 0, 0, 0}};
    char *data = write_page(&profile);
    struct rows rows = rows_of(data);
    cr_assert_eq(rows.count, MOST_KEPT + 1);
    cr_assert_eq(row(&rows, MOST_KEPT)[0], 0);
    cr_assert_eq(row(&rows, MOST_KEPT)[1], MANY - MOST_KEPT);
    free(rows.numbers);
    free(data);
    free(profile.nodes);
}

Test(view_html, only_names_in_use_are_written)
{
    struct ember_profile profile = small_profile();
    profile.node_count = 2;
    char *data = write_page(&profile);
    cr_assert_null(strstr(data, "lists:map/2"));
    cr_assert_has(data, "Enum.map/2");
    free(data);
}

/* ---- Comparisons --------------------------------------------------------- */

Test(view_html, comparison)
{
    struct ember_metrics own[] = {{0}, {3, 50, 0, 0, 9}, {3, 500, 0, 1, 2}};
    struct ember_before before = {
        .info = {.target = "work:old/0", .lost = 5},
        .own = own,
        .scale = 1.5,
        .normalise = EMBER_NORMALISE_TIME,
    };
    struct ember_profile profile = small_profile();
    profile.before = &before;
    struct ember_sink sink;
    ember_sink_init(&sink);
    ember_view_html.write(&profile, &(struct ember_view_options){.width = EMBER_BEFORE}, &sink);
    char *data = data_of(&sink);
    cr_assert_has(data, "\n1,1,2,100,15,5,3,40,64,3,50,0,0,0,9,0");
    cr_assert_has(data, "\n1,0,7,1000,0,0,0,-5,0,3,500,0,0,1,2,0");
    cr_assert_has(data, "\"before\":{\"target\":\"work:old/0\"");
    cr_assert_has(data,
                  "\"scale_millionths\":1500000,\"normalise\":\"by time\"},\n\"width\":\"before\"");
    free(data);
    ember_sink_fini(&sink);
}

/* Large before is reason enough to be kept. */
Test(view_html, vanished_stacks_are_kept_by_what_they_were)
{
    static struct ember_node nodes[MANY + 2];
    static struct ember_metrics own[MANY + 2];
    struct ember_before before = {.own = own, .scale = 1};
    struct ember_profile profile = small_profile();
    profile.nodes = nodes;
    profile.node_count = MANY + 2;
    profile.before = &before;
    nodes[0] = (struct ember_node){EMBER_NONE, EMBER_NONE, 0, {0}};
    for (uint32_t i = 1; i < profile.node_count; i++) {
        nodes[i] = (struct ember_node){0, i % 2, 0, {1, 1000, 0, 0, 10}};
        own[i] = (struct ember_metrics){1, 1000, 0, 0, 10};
    }
    nodes[MANY + 1].own = (struct ember_metrics){0};
    own[MANY + 1] = (struct ember_metrics){77, 5000000, 0, 0, 0};
    char *data = write_page(&profile);
    cr_assert_has(data, ",0,0,0,0,0,0,0,77,5000000,0,0,0,0,0");
    free(data);
}
