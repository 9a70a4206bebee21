/* SPDX-License-Identifier: Apache-2.0 */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup */
#include "view_test.h"

extern const struct ember_view ember_view_pprof;

enum { TYPES = 8 };

/* ---- a reader ------------------------------------------------------------ */

struct bytes {
    const unsigned char *at;
    const unsigned char *end;
};

struct field {
    uint32_t number;
    uint64_t value;     /* of a number */
    struct bytes bytes; /* of anything else */
};

static uint64_t read_varint(struct bytes *in)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        cr_assert_lt(in->at, in->end);
        value |= (uint64_t)(*in->at & 0x7f) << shift;
        if (*in->at++ < 0x80)
            return value;
    }
    cr_assert_fail("a number that does not end");
    return 0;
}

static bool next_field(struct bytes *in, struct field *field)
{
    if (in->at == in->end)
        return false;
    uint64_t key = read_varint(in);
    *field = (struct field){.number = (uint32_t)(key >> 3), .value = read_varint(in)};
    if ((key & 7) == 2) {
        cr_assert_leq(field->value, (uint64_t)(in->end - in->at));
        field->bytes = (struct bytes){in->at, in->at + field->value};
        in->at += field->value;
    } else {
        cr_assert_eq(key & 7, 0);
    }
    return true;
}

static struct ember_sink file;

static struct bytes whole(void)
{
    const unsigned char *data = (const unsigned char *)file.data;
    return (struct bytes){data, data + file.size};
}

/* The index-th field of this number. */
static struct field find(struct bytes in, uint32_t number, uint64_t index)
{
    struct field field;
    while (next_field(&in, &field))
        if (field.number == number && index-- == 0)
            return field;
    cr_assert_fail("field %u is missing", number);
    return field;
}

static uint32_t count(uint32_t number)
{
    struct bytes in = whole();
    struct field field;
    uint32_t found = 0;
    while (next_field(&in, &field))
        found += field.number == number;
    return found;
}

/* In a buffer that the next call uses too. */
static const char *string(uint64_t index)
{
    static char text[4096];
    struct bytes bytes = find(whole(), 6, index).bytes;
    size_t size = (size_t)(bytes.end - bytes.at);
    cr_assert_lt(size, sizeof text);
    memcpy(text, bytes.at, size);
    text[size] = '\0';
    return text;
}

static uint32_t read_all(struct bytes in, uint64_t *numbers, uint32_t most)
{
    uint32_t found = 0;
    while (in.at < in.end) {
        cr_assert_lt(found, most);
        numbers[found++] = read_varint(&in);
    }
    return found;
}

/* What every reader asks of a sample. */
static void check_sample(struct bytes sample, uint64_t *sums, uint32_t locations)
{
    static uint64_t stack[4096];
    uint64_t values[TYPES];
    uint32_t depth = read_all(find(sample, 1, 0).bytes, stack, 4096);
    cr_assert_eq(read_all(find(sample, 2, 0).bytes, values, TYPES), TYPES);
    cr_assert_gt(depth, 0);
    for (uint32_t i = 0; i < depth; i++)
        cr_assert(stack[i] > 0 && stack[i] <= locations);
    for (int i = 0; i < TYPES; i++)
        sums[i] += values[i];
}

static void write_pprof(const char *sample, enum ember_metric metric)
{
    make_sample(sample);
    file = written_sink(&ember_view_pprof, metric);
}

static void drop(void)
{
    ember_sink_fini(&file);
    sample_free();
}

static void cr_assert_totals(const char *sample)
{
    write_pprof(sample, EMBER_METRIC_OWN_TIME);
    struct ember_metrics total = {0};
    for (uint32_t i = 0; i < profile.node_count; i++) {
        const struct ember_metrics *own = &profile.nodes[i].own;
        total.calls += own->calls;
        total.own_ns += own->own_ns;
        total.off_cpu_ns += own->off_cpu_ns;
        total.waiting_ns += own->waiting_ns;
        total.binary_bytes += own->binary_bytes;
        total.gc_ns += own->gc_ns;
        total.words += own->words > 0 ? own->words : 0;
    }
    uint64_t expected[TYPES] = {total.calls,
                                total.own_ns + total.off_cpu_ns + total.gc_ns,
                                total.own_ns,
                                total.off_cpu_ns,
                                total.waiting_ns,
                                total.gc_ns,
                                (uint64_t)total.words * 8,
                                total.binary_bytes};
    uint64_t sums[TYPES] = {0};
    uint32_t locations = count(4);
    struct bytes in = whole();
    struct field field;
    while (next_field(&in, &field))
        if (field.number == 2)
            check_sample(field.bytes, sums, locations);
    cr_assert_arr_eq(sums, expected, sizeof sums);
    drop();
}

/* ---- tests --------------------------------------------------------------- */

Test(view_pprof, values_add_up)
{
    cr_assert_totals("small");
}

Test(view_pprof, values_of_many_stacks)
{
    cr_assert_totals("large");
}

Test(view_pprof, values_of_left_out_stacks)
{
    cr_assert_totals("deep");
}

Test(view_pprof, values_of_nothing)
{
    cr_assert_totals("empty");
}

Test(view_pprof, a_sample)
{
    write_pprof("small", EMBER_METRIC_OWN_TIME);
    uint64_t stack[4];
    uint64_t values[TYPES];
    struct bytes sample = find(whole(), 2, 1).bytes;
    cr_assert_eq(read_all(find(sample, 1, 0).bytes, stack, 4), 2);
    cr_assert_arr_eq(stack, ((uint64_t[]){2, 1}), 2 * sizeof stack[0]);
    read_all(find(sample, 2, 0).bytes, values, TYPES);
    cr_assert_arr_eq(values, ((uint64_t[]){50, 30000000, 20000000, 0, 0, 10000000, 32000, 0}),
                     sizeof values);
    struct bytes label = find(sample, 3, 0).bytes;
    cr_assert_str_eq(string(find(label, 1, 0).value), "pid");
    cr_assert_str_eq(string(find(label, 2, 0).value), "<0.100.0>");
    drop();
}

Test(view_pprof, functions_have_names_and_modules_and_no_system_name)
{
    write_pprof("small", EMBER_METRIC_OWN_TIME);
    struct bytes function = find(whole(), 5, 3).bytes;
    struct field field;
    cr_assert_str_eq(string(find(function, 2, 0).value), "Jason.encode!/2");
    cr_assert_str_eq(string(find(function, 4, 0).value), "Elixir.Jason");
    while (next_field(&function, &field))
        cr_assert_neq(field.number, 3);
    struct bytes line = find(find(whole(), 4, 3).bytes, 4, 0).bytes;
    cr_assert_eq(find(line, 1, 0).value, 4);
    drop();
}

Test(view_pprof, the_table_of_strings_begins_with_none)
{
    write_pprof("small", EMBER_METRIC_OWN_TIME);
    cr_assert_str_eq(string(0), "");
    drop();
}

Test(view_pprof, time_is_shown)
{
    write_pprof("small", EMBER_METRIC_OWN_TIME);
    cr_assert_str_eq(string(find(whole(), 14, 0).value), "time");
    drop();
}

Test(view_pprof, metric_asked_for_is_shown)
{
    write_pprof("small", EMBER_METRIC_WORDS);
    cr_assert_str_eq(string(find(whole(), 14, 0).value), "alloc_space");
    drop();
}

Test(view_pprof, losses_are_told)
{
    write_pprof("trouble", EMBER_METRIC_OWN_TIME);
    cr_assert_has(string(find(whole(), 13, 0).value), "shop:checkout/1, 2026-01-02");
    cr_assert_has(string(find(whole(), 13, 1).value), "1789 events lost; 12 calls below");
    drop();
}

Test(view_pprof, strings_are_utf8)
{
    write_pprof("hostile", EMBER_METRIC_OWN_TIME);
    bool found = false;
    for (uint32_t i = 0; i < count(6); i++)
        found |= strcmp(string(i), "\xef\xbf\xbd\xef\xbf\xbd not utf-8 "
                                   "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd") == 0;
    cr_assert(found);
    drop();
}

Test(view_pprof, a_process_by_itself_has_a_stack)
{
    make_sample("merge");
    profile.nodes[0].own.own_ns = 77;
    file = written_sink(&ember_view_pprof, EMBER_METRIC_OWN_TIME);
    uint64_t location;
    cr_assert_eq(read_all(find(find(whole(), 2, 0).bytes, 1, 0).bytes, &location, 1), 1);
    struct bytes function = find(whole(), 5, location - 1).bytes;
    cr_assert_str_eq(string(find(function, 2, 0).value), "[no function]");
    drop();
}

Test(view_pprof, lack_of_memory_is_reported)
{
    make_sample("recursive");
    cr_assert_reports_lack_of_memory(&ember_view_pprof);
    cr_assert_failed_sink_stays_failed(&ember_view_pprof);
    sample_free();
}
