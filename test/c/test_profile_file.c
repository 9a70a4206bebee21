/* SPDX-License-Identifier: Apache-2.0 */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup */
#include "failing_malloc.h"
#include "profile_blocks.h"
#include "profile_read.h"
#include "profile_write.h"
#include "random.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>

/* ---- profiles ------------------------------------------------------------ */

static void cr_assert_same_text(const char *a, const char *b)
{
    if (a && b)
        cr_assert_str_eq(a, b);
    else
        cr_assert_eq(a, b);
}

static void cr_assert_same_info(const struct ember_info *a, const struct ember_info *b)
{
    cr_assert_same_text(a->target, b->target);
    cr_assert_same_text(a->otp_release, b->otp_release);
    cr_assert_eq(a->start_us, b->start_us);
    cr_assert_eq(a->duration_ns, b->duration_ns);
    cr_assert_eq(a->events, b->events);
    cr_assert_eq(a->lost, b->lost);
    cr_assert_eq(a->compensated_ns, b->compensated_ns);
    cr_assert_eq(a->raw_ns, b->raw_ns);
    cr_assert_eq(a->depth_cut, b->depth_cut);
    cr_assert_eq(a->calls, b->calls);
    cr_assert_eq(a->fallbacks, b->fallbacks);
    cr_assert_eq(a->outcome, b->outcome);
    cr_assert_eq(a->cut_by, b->cut_by);
}

static void cr_assert_same_process(const struct ember_process *a, const struct ember_process *b)
{
    cr_assert_same_text(a->pid_text, b->pid_text);
    cr_assert_same_text(a->name, b->name);
    cr_assert_same_text(a->label, b->label);
    cr_assert_eq(a->parent, b->parent);
    cr_assert_eq(a->root, b->root);
    cr_assert_eq(a->exited, b->exited);
    cr_assert_same_text(a->ancestors, b->ancestors);
    cr_assert_eq(b->pid, 0);
}

static void cr_assert_same_node(const struct ember_node *a, const struct ember_node *b)
{
    cr_assert_eq(a->parent, b->parent);
    cr_assert_eq(a->function, b->function);
    cr_assert_eq(a->process, b->process);
    cr_assert_arr_eq(&a->own, &b->own, sizeof a->own);
}

/* `a` and what was read of its file. */
static void cr_assert_same(const struct ember_profile *a, const struct ember_profile *b)
{
    cr_assert_same_info(&a->info, &b->info);
    cr_assert_eq(a->function_count, b->function_count);
    cr_assert_eq(a->process_count, b->process_count);
    cr_assert_eq(a->node_count, b->node_count);
    for (uint32_t i = 0; i < a->function_count; i++) {
        cr_assert_same_text(a->functions[i].module, b->functions[i].module);
        cr_assert_same_text(a->functions[i].name, b->functions[i].name);
        cr_assert_same_text(a->functions[i].text, b->functions[i].text);
        cr_assert_eq(a->functions[i].arity, b->functions[i].arity);
    }
    for (uint32_t i = 0; i < a->process_count; i++)
        cr_assert_same_process(&a->processes[i], &b->processes[i]);
    for (uint32_t i = 0; i < a->node_count; i++)
        cr_assert_same_node(&a->nodes[i], &b->nodes[i]);
}

static void cr_assert_same_timelines(const struct ember_profile *a, const struct ember_profile *b)
{
    if (!a->timelines) {
        cr_assert_null(b->timelines);
        return;
    }
    cr_assert(b->timelines);
    cr_assert_eq(a->timelines->count, b->timelines->count);
    cr_assert_eq(a->timelines->cut_ns, b->timelines->cut_ns);
    for (uint32_t i = 0; i < a->timelines->count; i++) {
        const struct ember_timeline *of_a = &a->timelines->processes[i];
        const struct ember_timeline *of_b = &b->timelines->processes[i];
        cr_assert_eq(of_a->spans, of_b->spans);
        cr_assert_eq(of_a->size, of_b->size);
        cr_assert(of_a->spans == 0 || of_a->start == of_b->start);
        cr_assert(of_a->size == 0 || memcmp(of_a->bytes, of_b->bytes, of_a->size) == 0);
    }
}

static struct ember_sink write_to_sink(const struct ember_profile *profile)
{
    struct ember_sink sink;
    ember_sink_init(&sink);
    cr_assert_eq(ember_profile_write(profile, &sink), 0);
    return sink;
}

static struct ember_profile *read_sink(const struct ember_sink *sink)
{
    struct ember_read_error error;
    struct ember_profile *profile = ember_profile_read(sink->data, sink->size, &error);
    cr_assert(profile, "%s", error.text);
    return profile;
}

static void cr_assert_round_trip(const struct ember_profile *profile)
{
    struct ember_sink sink = write_to_sink(profile);
    struct ember_profile *read = read_sink(&sink);
    cr_assert_same(profile, read);
    cr_assert_same_timelines(profile, read);
    ember_profile_destroy(read);
    ember_sink_fini(&sink);
}

static struct ember_function two_functions[] = {
    {"lists", "map", "lists:map/2", 2},
    {"Elixir.Enum", "map", "Enum.map/2", 255},
};

static struct ember_process two_processes[] = {
    {7, "<0.1.0>", "main", "init:boot/1", 1, 0, true},
    {0, "", NULL, "", EMBER_NONE, 2, false},
};

static struct ember_node four_nodes[] = {
    {EMBER_NONE, EMBER_NONE, 0, {0, 0, 0, 0, 0}},
    {0, 1, 0, {2, 100, 20, 3, 40}},
    {EMBER_NONE, EMBER_NONE, 1, {1, (uint64_t)1 << 59, 0, 0, -5}},
    {1, 0, 0, {7, 1000, ((uint64_t)1 << 60) - 20, 0, -(int64_t)((uint64_t)1 << 59)}},
};

static struct ember_profile small_profile(void)
{
    return (struct ember_profile){
        .info = {.target = "lists:map/2",
                 .otp_release = "27",
                 .start_us = -1,
                 .duration_ns = UINT64_MAX,
                 .events = 2,
                 .lost = 3,
                 .compensated_ns = 4,
                 .raw_ns = 5,
                 .depth_cut = 6,
                 .calls = UINT32_MAX,
                 .fallbacks = 7,
                 .outcome = EMBER_OUTCOME_UNFINISHED,
                 .cut_by = EMBER_CUT_MEMORY_LIMIT},
        .functions = two_functions,
        .function_count = 2,
        .processes = two_processes,
        .process_count = 2,
        .nodes = four_nodes,
        .node_count = 4,
    };
}

/* Some blocks of every kind. */
enum { MANY_NODES = 200000, MANY_FUNCTIONS = 3000, MANY_PROCESSES = 30000 };

static struct ember_profile *many(void)
{
    struct random random = {random_setting("EMBER_SEED", 1)};
    struct ember_profile *profile = ember_profile_create();
    char text[1100];
    memset(text, 'x', sizeof text);
    profile->functions = calloc(MANY_FUNCTIONS, sizeof *profile->functions);
    profile->processes = calloc(MANY_PROCESSES, sizeof *profile->processes);
    profile->nodes = calloc(MANY_NODES, sizeof *profile->nodes);
    for (uint32_t i = 0; i < MANY_FUNCTIONS; i++) {
        snprintf(text + 1000, 100, ":%u/3", i);
        profile->functions[i] =
            (struct ember_function){strdup("x"), strdup(text + 1000), strdup(text), 3};
    }
    for (uint32_t i = 0; i < MANY_PROCESSES; i++) {
        snprintf(text, sizeof text, "<0.%u.0>", i);
        profile->processes[i] =
            (struct ember_process){.pid_text = strdup(text), .parent = i - 1, .root = i};
        profile->nodes[i] = (struct ember_node){EMBER_NONE, EMBER_NONE, i, {0}};
    }
    for (uint32_t i = MANY_PROCESSES; i < MANY_NODES; i++) {
        uint32_t parent = random_below(&random, i);
        profile->nodes[i] = (struct ember_node){
            parent,
            random_below(&random, MANY_FUNCTIONS),
            profile->nodes[parent].process,
            {random_next(&random) >> 60, random_next(&random) >> (24 + random_below(&random, 40)),
             random_next(&random) >> 40, 0, (int64_t)random_next(&random) >> 40}};
    }
    profile->function_count = MANY_FUNCTIONS;
    profile->process_count = MANY_PROCESSES;
    profile->node_count = MANY_NODES;
    return profile;
}

/* ---- round trips --------------------------------------------------------- */

Test(profile_file, small)
{
    struct ember_profile profile = small_profile();
    cr_assert_round_trip(&profile);
}

Test(profile_file, ancestors)
{
    struct ember_profile profile = small_profile();
    two_processes[1].ancestors = strdup("sup\n<0.0.0>");
    cr_assert_round_trip(&profile);
    struct ember_sink sink = write_to_sink(&profile);
    cr_assert_eq(ember_format_get((const unsigned char *)sink.data + 10, 2), 3);
    ember_sink_fini(&sink);
    free(two_processes[1].ancestors);
}

Test(profile_file, empty)
{
    struct ember_profile profile = {0};
    cr_assert_round_trip(&profile);
}

Test(profile_file, several_blocks)
{
    struct ember_profile *profile = many();
    cr_assert_round_trip(profile);
    ember_profile_destroy(profile);
}

/* ---- timelines ---- */

static void add_spans(struct ember_timelines *timelines, uint32_t process, uint32_t node,
                      uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct ember_span span = {node, (enum ember_state)(i % EMBER_STATES), 1 + i % 1000};
        cr_assert(ember_timeline_add(&timelines->processes[process], span, SIZE_MAX));
    }
}

Test(profile_file, timeline)
{
    struct ember_profile profile = small_profile();
    profile.timelines = ember_timelines_create(2);
    profile.timelines->processes[0].start = 12345;
    add_spans(profile.timelines, 0, 3, 5);
    cr_assert_round_trip(&profile);
    add_spans(profile.timelines, 1, 2, 1);
    profile.timelines->cut_ns = (uint64_t)1 << 40;
    cr_assert_round_trip(&profile);
    struct ember_sink sink = write_to_sink(&profile);
    cr_assert_eq(ember_format_get((const unsigned char *)sink.data + 10, 2), 1);
    ember_sink_fini(&sink);
    ember_timelines_destroy(profile.timelines);
}

Test(profile_file, timeline_of_many_blocks)
{
    struct ember_profile profile = small_profile();
    profile.timelines = ember_timelines_create(2);
    add_spans(profile.timelines, 0, 1, 2000000);
    add_spans(profile.timelines, 1, 2, 1000000);
    cr_assert_round_trip(&profile);
    ember_timelines_destroy(profile.timelines);
}

Test(profile_file, timeline_that_was_all_cut_is_none)
{
    struct ember_profile profile = small_profile();
    profile.timelines = ember_timelines_create(2);
    struct ember_sink sink = write_to_sink(&profile);
    struct ember_profile *read = read_sink(&sink);
    cr_assert_null(read->timelines);
    ember_profile_destroy(read);
    ember_sink_fini(&sink);
    ember_timelines_destroy(profile.timelines);
}

Test(profile_file, texts_stay_readable)
{
    struct ember_profile profile = small_profile();
    char *huge = malloc(200001);
    memset(huge, 'a', 200000);
    memcpy(huge + 65534, "\xc3\xa5", 2); /* would be cut in two */
    huge[200000] = '\0';
    struct ember_function functions[] = {{"\xff", "a\xe2\x80", huge, 0}, two_functions[1]};
    profile.functions = functions;
    struct ember_sink sink = write_to_sink(&profile);
    struct ember_profile *read = read_sink(&sink);
    cr_assert_str_eq(read->functions[0].module, "\xef\xbf\xbd");
    cr_assert_str_eq(read->functions[0].name, "a\xef\xbf\xbd\xef\xbf\xbd");
    cr_assert_eq(strlen(read->functions[0].text), 65534);
    ember_profile_destroy(read);
    ember_sink_fini(&sink);
    free(huge);
}

Test(profile_file, bytes_are_as_documented)
{
    struct ember_profile profile = {0};
    struct ember_sink sink = write_to_sink(&profile);
    const unsigned char *bytes = (const unsigned char *)sink.data;
    static const unsigned char begin[] = {0x89, 'E', 'M', 'B', 'E', 'R', 0x0d, 0x0a,
                                          1,    0,   0,   0,   2,   0,   0,    0};
    cr_assert_arr_eq(bytes, begin, sizeof begin);
    cr_assert_eq(ember_format_get(bytes + 16, 4), sink.size);
    cr_assert_eq(ember_format_get(bytes + 20, 4), 0);
    cr_assert_arr_eq(bytes + 32, "INFO", 4);
    static const unsigned char magic[] = {0x28, 0xb5, 0x2f, 0xfd};
    cr_assert_arr_eq(bytes + 56, magic, 4);
    ember_sink_fini(&sink);
}

Test(profile_file, crc_is_castagnolis)
{
    cr_assert_eq(ember_format_crc((const unsigned char *)"123456789", 9), 0xE3069283);
}

Test(profile_file, too_much_for_a_file)
{
    struct ember_profile profile = {.node_count = EMBER_FORMAT_MAX_NODES + 1};
    struct ember_sink sink;
    ember_sink_init(&sink);
    cr_assert_eq(ember_profile_write(&profile, &sink), -EFBIG);
}

/* ---- damaged files ------------------------------------------------------- */

static void cr_assert_refused(const void *data, size_t size, const char *reason)
{
    struct ember_read_error error;
    struct ember_profile *profile = ember_profile_read(data, size, &error);
    cr_assert_null(profile, "was read, instead of: %s", reason);
    cr_assert(!error.out_of_memory);
    cr_assert(strstr(error.text, reason), "%s, instead of: %s", error.text, reason);
}

/* A frame has bits that mean nothing: then what is read is the same. */
static void cr_assert_harmless(const struct ember_sink *sink, const struct ember_profile *profile)
{
    struct ember_read_error error;
    struct ember_profile *read = ember_profile_read(sink->data, sink->size, &error);
    if (read)
        cr_assert_same(profile, read);
    else
        cr_assert(strlen(error.text) > 0 && !error.out_of_memory);
    ember_profile_destroy(read);
}

Test(profile_file, no_changed_bit_changes_the_profile)
{
    struct ember_profile profile = small_profile();
    struct ember_sink sink = write_to_sink(&profile);
    for (size_t i = 0; i < sink.size; i++) {
        for (int bit = 0; bit < 8; bit++) {
            sink.data[i] ^= (char)(1 << bit);
            cr_assert_harmless(&sink, &profile);
            sink.data[i] ^= (char)(1 << bit);
        }
    }
    ember_sink_fini(&sink);
}

Test(profile_file, every_cut_is_noticed)
{
    struct ember_profile profile = small_profile();
    struct ember_sink sink = write_to_sink(&profile);
    for (size_t size = 0; size < sink.size; size++) {
        char *cut = malloc(size + 1); /* so that reading on is seen */
        memcpy(cut, sink.data, size);
        cr_assert_refused(cut, size, size < 32 ? "not a profile file" : "the file has");
        ember_format_put((unsigned char *)cut + 16, size < 32 ? 0 : 8, size);
        if (size >= 32)
            put_crc((unsigned char *)cut, 32);
        cr_assert_refused(cut, size, "");
        free(cut);
    }
    ember_sink_bytes(&sink, "x", 1);
    cr_assert_refused(sink.data, sink.size, "the file has");
    ember_sink_fini(&sink);
}

/* ---- files made to harm -------------------------------------------------- */

#define CONTENT(...) \
    (const unsigned char[]){__VA_ARGS__}, sizeof((const unsigned char[]){__VA_ARGS__})
#define NO_CONTENT "", 0

/* Two functions and two processes, calls and words. */
static void put_begin(struct ember_sink *sink)
{
    begin_file(sink);
    put_block(sink, "INFO", 0, NO_CONTENT);
    put_block(sink, "METR", 2,
              CONTENT(5, 'c', 'a', 'l', 'l', 's', 5, 'c', 'o', 'u', 'n', 't', 0, 5, 'w', 'o', 'r',
                      'd', 's', 5, 'w', 'o', 'r', 'd', 's', 1));
    put_block(sink, "FUNC", 2, CONTENT(1, 'm', 1, 'f', 3, 'm', ':', 'f', 0, 0, 0, 0, 255, 1));
}

static void put_processes(struct ember_sink *sink)
{
    put_block(sink, "PROC", 2, CONTENT(1, 'p', 0, 0, 2, 0, 0, 1, 'q', 1, 2, 'l', 0, 1, 1));
}

static void end_with(struct ember_sink *sink, const char *reason)
{
    struct ember_read_error error;
    end_file(sink);
    if (reason) {
        cr_assert_refused(sink->data, sink->size, reason);
    } else {
        struct ember_profile *profile = ember_profile_read(sink->data, sink->size, &error);
        cr_assert(profile, "%s", error.text);
        ember_profile_destroy(profile);
    }
    ember_sink_fini(sink);
}

static void cr_assert_nodes(const char *reason, uint32_t items, const void *content, size_t size)
{
    struct ember_sink sink;
    put_begin(&sink);
    put_processes(&sink);
    put_block(&sink, "NODE", items, content, size);
    end_with(&sink, reason);
}

Test(profile_file, stacks)
{
    cr_assert_nodes(NULL, 3, CONTENT(0, 0, 1, 0, 1, 1, 1, 2, 3, 1, 2, 3));
    cr_assert_nodes("byte 2 of its content: distance 3, at most 2", 3,
                    CONTENT(0, 0, 3, 0, 1, 1, 1, 2, 3, 1, 2, 3));
    cr_assert_nodes("process 2, at most 1", 3, CONTENT(0, 0, 1, 0, 2, 1, 1, 2, 3, 1, 2, 3));
    cr_assert_nodes("function 2, at most 1", 3, CONTENT(0, 0, 1, 0, 1, 2, 1, 2, 3, 1, 2, 3));
    cr_assert_nodes("1 bytes are left over", 3, CONTENT(0, 0, 1, 0, 1, 1, 1, 2, 3, 1, 2, 3, 4));
    cr_assert_nodes("no number", 3, CONTENT(0, 0, 1, 0, 1, 1, 1, 2, 3, 1, 2, 0x83));
    cr_assert_nodes("stack 1 is not the root of process 1", 2, CONTENT(0, 1, 0, 0, 1, 1, 1, 1));
    cr_assert_nodes("stack 1 is not the root of process 1", 2, CONTENT(0, 0, 0, 0, 1, 1, 1, 1));
    cr_assert_nodes("4 items in 3 bytes", 4, CONTENT(0, 0, 0));
    cr_assert_nodes("root 1, at most 0", 1, CONTENT(0, 0, 1, 1));
}

Test(profile_file, numbers)
{
    enum { F = 0xff };
    cr_assert_nodes(NULL, 2, CONTENT(0, 0, 0, 0x81, 0, 1, 1, 1, 1)); /* longer than need be */
    cr_assert_nodes("no number", 2, CONTENT(0, 0, 0, 1, F, F, F, F, F, F, F, F, F, 2, 1, 1, 1));
    cr_assert_nodes("no number", 2, CONTENT(0, 0, 0, 1, F, F, F, F, F, F, F, F, F, F, 1, 1, 1));
    cr_assert_nodes("sum of metric calls is too large", 2,
                    CONTENT(0, 0, 0, 1, F, F, F, F, F, F, F, F, F, 1, 1, 1, 1));
    cr_assert_nodes("sum of metric words is too large", 2,
                    CONTENT(0, 0, 0, 1, 1, 1, F, F, F, F, F, F, F, F, F, 1, 1));
    cr_assert_nodes("sum of metric words is too large", 2,
                    CONTENT(0, 0, 0, 1, 1, 1, F, F, F, F, F, F, F, F, 0x1f, 1));
}

/* Stack 0 is the root of process 0, stack 1 that of process 1, stack 2 is called by that. */
static void put_stacks(struct ember_sink *sink)
{
    put_begin(sink);
    put_processes(sink);
    put_block(sink, "NODE", 3, CONTENT(0, 0, 1, 0, 1, 1, 1, 2, 3, 1, 2, 3));
}

static void cr_assert_time(const char *reason, uint32_t items, const void *content, size_t size)
{
    struct ember_sink sink;
    put_stacks(&sink);
    put_block(&sink, "time", items, content, size);
    end_with(&sink, reason);
}

Test(profile_file, time)
{
    enum { F = 0xff };
    cr_assert_time(NULL, 2, CONTENT(1, 5, 10, 1, 5, 0x80, 1));
    cr_assert_time("process 2, at most 1", 1, CONTENT(2, 5, 10, 1));
    cr_assert_time("span 15, at most 14", 1, CONTENT(1, 5, 15, 1));
    cr_assert_time("another process", 1, CONTENT(0, 5, 5, 1));
    cr_assert_time("without a length", 1, CONTENT(0, 5, 0, 0));
    cr_assert_time("no number", 2, CONTENT(0, 5, 0, 1));
    cr_assert_time("1 bytes are left over", 1, CONTENT(0, 5, 0, 1, 7));
    cr_assert_time("9 items in 4 bytes", 9, CONTENT(0, 5, 0, 1));
    cr_assert_time("length", 1, CONTENT(0, 5, 0, F, F, F, F, F, F, F, F, F, 1));
    cr_assert_time("start", 1, CONTENT(0, F, F, F, F, F, F, F, F, F, 1, 0, 1));
    cr_assert_time("a timeline of nothing", 0, CONTENT(0, 5));
}

static void cr_assert_over(const char *reason, uint32_t items, const void *content, size_t size)
{
    struct ember_sink sink;
    put_stacks(&sink);
    put_block(&sink, "over", items, content, size);
    end_with(&sink, reason);
}

Test(profile_file, over)
{
    cr_assert_over(NULL, 2, CONTENT(1, 2, 'a', 'b', 0, 1, 'c'));
    cr_assert_over("process 2, at most 1", 1, CONTENT(2, 1, 'a'));
    cr_assert_over("has ancestors already", 2, CONTENT(1, 1, 'a', 1, 1, 'b'));
    cr_assert_over("no UTF-8", 1, CONTENT(1, 1, 0xff));
    cr_assert_over("left over", 1, CONTENT(1, 1, 'a', 7));
    struct ember_sink sink;
    put_begin(&sink);
    put_block(&sink, "over", 1, CONTENT(0, 1, 'a'));
    end_with(&sink, "ancestors of nobody");
}

static void cr_assert_two_times(const char *reason, const void *first, size_t first_size,
                                const void *second, size_t second_size)
{
    struct ember_sink sink;
    put_stacks(&sink);
    put_block(&sink, "time", 1, first, first_size);
    put_block(&sink, "time", 1, second, second_size);
    end_with(&sink, reason);
}

Test(profile_file, times_follow_one_another)
{
    cr_assert_two_times(NULL, CONTENT(0, 5, 0, 7), CONTENT(0, 12, 1, 1));
    cr_assert_two_times(NULL, CONTENT(0, 5, 0, 7), CONTENT(1, 2, 5, 1));
    cr_assert_two_times("a gap in the timeline of process 0", CONTENT(0, 5, 0, 7),
                        CONTENT(0, 13, 1, 1));
    cr_assert_two_times("a gap in the timeline of process 0", CONTENT(0, 5, 0, 7),
                        CONTENT(0, 11, 1, 1));
    cr_assert_two_times("process 0 after that of process 1", CONTENT(1, 5, 5, 7),
                        CONTENT(0, 12, 1, 1));
}

Test(profile_file, time_stands_after_the_stacks)
{
    struct ember_sink sink;
    put_begin(&sink);
    put_processes(&sink);
    put_block(&sink, "time", 1, CONTENT(0, 5, 0, 7));
    put_block(&sink, "NODE", 3, CONTENT(0, 0, 1, 0, 1, 1, 1, 2, 3, 1, 2, 3));
    end_with(&sink, "block NODE after time");
    put_begin(&sink);
    put_block(&sink, "time", 1, CONTENT(0, 5, 0, 7));
    end_with(&sink, "a timeline of nothing");
}

static void cr_assert_processes(const char *reason, uint32_t items, const void *content,
                                size_t size)
{
    struct ember_sink sink;
    put_begin(&sink);
    put_block(&sink, "PROC", items, content, size);
    put_block(&sink, "NODE", 2, CONTENT(0, 0, 0, 1, 1, 1, 1, 1));
    end_with(&sink, reason);
}

Test(profile_file, processes)
{
    cr_assert_processes(NULL, 2, CONTENT(0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 1, 0xff, 1));
    cr_assert_processes("descends from itself", 2, CONTENT(0, 0, 0, 2, 0, 0, 0, 0, 0, 1, 1, 0));
    cr_assert_processes("descends from itself", 2, CONTENT(0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0));
    cr_assert_processes("parent 3, at most 2", 2, CONTENT(0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 1, 0));
    cr_assert_processes("root 2, at most 1", 2, CONTENT(0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1, 0));
    cr_assert_processes("a text of 100 bytes", 2, CONTENT(100, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1, 0));
    cr_assert_processes("no UTF-8", 2, CONTENT(1, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0));
    cr_assert_processes("no UTF-8", 2, CONTENT(1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0));
    cr_assert_processes("no UTF-8", 2, CONTENT(1, 0xc3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0));
}

static void cr_assert_info(const char *reason, uint32_t items, const void *content, size_t size)
{
    struct ember_sink sink;
    begin_file(&sink);
    put_block(&sink, "INFO", items, content, size);
    put_block(&sink, "METR", 0, NO_CONTENT);
    end_with(&sink, reason);
}

Test(profile_file, fields)
{
    cr_assert_info(NULL, 3, CONTENT(1, 1, 'x', 99, 2, 0, 0, 12, 1, 3));
    cr_assert_info("outcome 5, at most 4", 1, CONTENT(12, 1, 5));
    cr_assert_info("reason 6, at most 5", 1, CONTENT(14, 1, 6));
    cr_assert_info("field 4 stands twice", 2, CONTENT(4, 1, 4, 4, 1, 4));
    cr_assert_info("field 1 stands twice", 2, CONTENT(1, 0, 1, 0));
    cr_assert_info("field 4 is not of its size", 1, CONTENT(4, 2, 4, 4));
    cr_assert_info("field 4 is not of its size", 1, CONTENT(4, 1, 0x84, 0));
    cr_assert_info("a field of 9 bytes", 1, CONTENT(99, 9, 4));
    cr_assert_info("no UTF-8", 1, CONTENT(1, 1, 0xff));
    cr_assert_info("start", 1, CONTENT(3, 9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1));
}

static void cr_assert_metrics(const char *reason, uint32_t items, const void *content, size_t size)
{
    struct ember_sink sink;
    begin_file(&sink);
    put_block(&sink, "INFO", 0, NO_CONTENT);
    put_block(&sink, "METR", items, content, size);
    end_with(&sink, reason);
}

Test(profile_file, metrics)
{
    cr_assert_metrics(NULL, 1, CONTENT(3, 'n', 'e', 'w', 0, 1));
    cr_assert_metrics("sign 2, at most 1", 1, CONTENT(3, 'n', 'e', 'w', 0, 2));
    cr_assert_metrics("metric gc in an unknown unit", 1, CONTENT(2, 'g', 'c', 1, 's', 0));
    cr_assert_metrics("metric gc stands twice", 2,
                      CONTENT(2, 'g', 'c', 11, 'n', 'a', 'n', 'o', 's', 'e', 'c', 'o', 'n', 'd',
                              's', 0, 2, 'g', 'c', 0, 0));
    unsigned char many_metrics[17 * 3] = {0};
    cr_assert_metrics(NULL, 16, many_metrics, 16 * 3);
    cr_assert_metrics("17 items in METR are too many", 17, many_metrics, 17 * 3);
}

Test(profile_file, metrics_that_are_not_known_are_skipped)
{
    struct ember_sink sink;
    begin_file(&sink);
    put_block(&sink, "INFO", 0, NO_CONTENT);
    put_block(
        &sink, "METR", 2,
        CONTENT(3, 'n', 'e', 'w', 0, 1, 5, 'c', 'a', 'l', 'l', 's', 5, 'c', 'o', 'u', 'n', 't', 0));
    put_block(&sink, "tick", 1000, "?", 1);
    put_block(&sink, "PROC", 1, CONTENT(0, 0, 0, 0, 0, 0));
    put_block(&sink, "NODE", 1, CONTENT(0, 0, 77, 7));
    end_file(&sink);
    struct ember_profile *profile = read_sink(&sink);
    cr_assert_eq(profile->nodes[0].own.calls, 7);
    cr_assert_eq(profile->nodes[0].own.words, 0);
    ember_profile_destroy(profile);
    ember_sink_fini(&sink);
}

static void cr_assert_kinds(const char *reason, const char *const *kinds)
{
    struct ember_sink sink;
    begin_file(&sink);
    for (; *kinds; kinds++)
        put_block(&sink, *kinds, 0, NO_CONTENT);
    end_with(&sink, reason);
}

#define KINDS(...) \
    (const char *const[]) \
    { \
        __VA_ARGS__, NULL \
    }

Test(profile_file, blocks)
{
    cr_assert_kinds(NULL, KINDS("INFO", "METR", "FUNC", "FUNC", "PROC", "NODE", "NODE"));
    cr_assert_kinds(NULL, KINDS("what", "INFO", "ever", "METR", "info"));
    cr_assert_kinds("2 blocks METR", KINDS("INFO", "METR", "METR"));
    cr_assert_kinds("0 blocks INFO", KINDS("METR"));
    cr_assert_kinds("0 blocks METR", KINDS("INFO"));
    cr_assert_kinds("block PROC after NODE", KINDS("INFO", "METR", "NODE", "PROC"));
    cr_assert_kinds("a block of an unknown kind", KINDS("INFO", "METR", "What"));
    cr_assert_kinds("a block of an unknown kind", KINDS("INFO", "METR", "\0\0\0"));
}

/* A frame of the size that is asked for, whose own size is another. */
static void cr_assert_size(const char *reason, uint32_t stated, size_t actual)
{
    struct ember_sink sink;
    unsigned char *content = calloc(actual + 1, 1);
    begin_file(&sink);
    put_block(&sink, "INFO", 0, NO_CONTENT);
    size_t at = sink.size;
    put_block(&sink, "METR", 0, content, actual);
    unsigned char *header = (unsigned char *)sink.data + at;
    ember_format_put(header + 12, 4, stated);
    put_crc(header, EMBER_FORMAT_BLOCK_HEADER_SIZE);
    free(content);
    end_with(&sink, reason);
}

Test(profile_file, frames_of_another_size)
{
    cr_assert_size(NULL, 0, 0);
    cr_assert_size("the frame's size is another", 100, 1000);
    cr_assert_size("the frame's size is another", 1000, 100);
    cr_assert_size("a block with a content of 16777217 bytes", (1 << 24) + 1, (1 << 24) + 1);
    cr_assert_size("16777216 bytes are left over", 1 << 24, 1 << 24);
}

/* A megabyte of file that would be terabytes of stacks. */
Test(profile_file, bombs_are_seen_before_memory_is_taken)
{
    struct ember_sink sink;
    put_begin(&sink);
    unsigned char *zeros = calloc(1 << 24, 1);
    for (int i = 0; i < 5; i++)
        put_block(&sink, "NODE", (1 << 24) / 4, zeros, 1 << 24);
    free(zeros);
    uint64_t before = allocations_made;
    end_with(&sink, "items in NODE are too many");
    cr_assert_leq(allocations_made - before, 1);
}

/* ---- memory that runs out ------------------------------------------------ */

Test(profile_file, writing_without_memory)
{
    struct ember_profile profile = small_profile();
    for (uint64_t most = 0;; most++) {
        struct ember_sink sink;
        ember_sink_init(&sink);
        allocations_left = most;
        int error = ember_profile_write(&profile, &sink);
        bool enough = allocations_left > 0;
        allocations_left = UINT64_MAX;
        ember_sink_fini(&sink);
        if (enough) {
            cr_assert_eq(error, 0);
            break;
        }
        cr_assert(error == -ENOMEM || error == 0);
    }
}

Test(profile_file, reading_without_memory)
{
    struct ember_profile profile = small_profile();
    struct ember_sink sink = write_to_sink(&profile);
    for (uint64_t most = 0;; most++) {
        struct ember_read_error error;
        allocations_left = most;
        struct ember_profile *read = ember_profile_read(sink.data, sink.size, &error);
        bool enough = allocations_left > 0;
        allocations_left = UINT64_MAX;
        cr_assert(read || error.out_of_memory, "%s", error.text);
        ember_profile_destroy(read);
        if (enough) {
            cr_assert(read);
            break;
        }
    }
    ember_sink_fini(&sink);
}
