/* SPDX-License-Identifier: Apache-2.0 */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup */
#include "view_test.h"

#include <elf.h>

extern const struct ember_view ember_view_perf;
extern const struct ember_view ember_view_perf_symbols;

enum { LOST = 2, COMM = 3, SAMPLE = 9, MMAP2 = 10, KSYMBOL = 17 };
enum { HEADER = 8, PSEUDO = 6 /* frames that are no functions, before these */ };

static struct ember_sink file;

/* ---- a reader ------------------------------------------------------------ */

static uint64_t number(size_t at, size_t size)
{
    uint64_t value = 0;
    cr_assert_leq(at + size, file.size);
    memcpy(&value, file.data + at, size);
    return value;
}

struct record {
    size_t at;
    size_t end;
    uint32_t type;
};

static struct record first_record(void)
{
    return (struct record){.end = number(40, 8)};
}

static bool next_record(struct record *record)
{
    size_t at = record->end;
    if (at == number(40, 8) + number(48, 8))
        return false;
    *record = (struct record){at, at + number(at + 6, 2), (uint32_t)number(at, 4)};
    cr_assert_gt(record->end, at);
    cr_assert_eq(record->end % 8, 0, "perf wants records aligned");
    return true;
}

static uint32_t count(uint32_t type)
{
    struct record record = first_record();
    uint32_t found = 0;
    while (next_record(&record))
        found += record.type == type;
    return found;
}

static struct record find(uint32_t type, uint32_t index)
{
    struct record record = first_record();
    while (next_record(&record))
        if (record.type == type && index-- == 0)
            return record;
    cr_assert_fail("record %u is missing", type);
    return record;
}

struct sample {
    uint64_t id, time, period, frames;
};

static struct sample sample_at(size_t at)
{
    at += HEADER;
    return (struct sample){number(at, 8), number(at + 24, 8), number(at + 32, 8),
                           number(at + 40, 8)};
}

static void write_perf(const char *sample, struct ember_view_options options)
{
    make_sample(sample);
    ember_sink_init(&file);
    ember_view_perf.write(&profile, &options, &file);
    cr_assert(!file.failed);
}

static void drop(void)
{
    ember_sink_fini(&file);
    sample_free();
}

static void cr_assert_totals(const char *sample)
{
    uint64_t expected[5] = {0};
    uint64_t sums[5] = {0};
    uint64_t time = 0;
    write_perf(sample, (struct ember_view_options){0});
    for (uint32_t i = 0; i < profile.node_count; i++) {
        const struct ember_metrics *own = &profile.nodes[i].own;
        expected[1] += own->own_ns + own->off_cpu_ns + own->gc_ns;
        expected[2] += own->words > 0 ? (uint64_t)own->words * 8 : 0;
        expected[3] += own->calls;
        expected[4] += own->binary_bytes;
    }
    for (struct record record = first_record(); next_record(&record);) {
        if (record.type != SAMPLE)
            continue;
        struct sample s = sample_at(record.at);
        cr_assert(s.id >= 1 && s.id <= 4);
        cr_assert_geq(s.time, time);
        cr_assert_eq(record.end - record.at, HEADER + 48 + 8 * s.frames);
        time = s.time;
        sums[s.id] += s.period;
    }
    cr_assert_arr_eq(sums, expected, sizeof sums);
    drop();
}

/* ---- tests --------------------------------------------------------------- */

Test(view_perf, periods_add_up)
{
    cr_assert_totals("small");
}

Test(view_perf, periods_of_many_stacks)
{
    cr_assert_totals("large");
}

Test(view_perf, periods_of_left_out_stacks)
{
    cr_assert_totals("deep");
}

Test(view_perf, periods_of_nothing)
{
    cr_assert_totals("empty");
}

Test(view_perf, sections_lie_in_the_file)
{
    write_perf("small", (struct ember_view_options){0});
    cr_assert_eq(memcmp(file.data, "PERFILE2", 8), 0);
    size_t table = number(40, 8) + number(48, 8);
    size_t end = table;
    for (int i = 0; i < __builtin_popcountll(number(72, 8)); i++)
        end = number(table + (size_t)i * 16, 8) + number(table + (size_t)i * 16 + 8, 8);
    cr_assert_eq(end, file.size);
    drop();
}

Test(view_perf, a_stack)
{
    write_perf("small", (struct ember_view_options){0});
    struct record record = find(SAMPLE, 4); /* garbage collection in the second stack */
    struct sample s = sample_at(record.at);
    cr_assert_eq(s.period, 10000000);
    cr_assert_eq(s.frames, 4);
    size_t chain = record.at + HEADER + 48;
    uint64_t first = number(find(KSYMBOL, PSEUDO).at + HEADER, 8); /* of the functions */
    cr_assert_eq(number(chain, 8), (uint64_t)-128);
    cr_assert_eq(number(chain + 8, 8), number(find(KSYMBOL, 0).at + HEADER, 8) + 1);
    cr_assert_eq(number(chain + 16, 8), first + 16 + 5);
    cr_assert_eq(number(chain + 24, 8), first + 5);
    cr_assert_eq(number(record.at + HEADER + 8, 8), number(chain + 8, 8));
    drop();
}

Test(view_perf, threads_and_functions_have_names)
{
    write_perf("small", (struct ember_view_options){0});
    cr_assert_eq(count(KSYMBOL), PSEUDO + profile.function_count);
    cr_assert_str_eq(file.data + find(KSYMBOL, PSEUDO + 1).at + HEADER + 16, "lists:map/2");
    cr_assert_eq(count(COMM), 3);
    cr_assert_str_eq(file.data + find(COMM, 2).at + HEADER + 8, "<0.101.0> pricing");
    cr_assert_eq(count(MMAP2), 0);
    drop();
}

Test(view_perf, names_have_a_limit)
{
    make_sample("merge");
    char *longest = calloc(1, 70001);
    memset(longest, 'x', 70000);
    profile.functions[0].text = profile.processes[0].pid_text = longest;
    file = written_sink(&ember_view_perf, EMBER_METRIC_CALLS);
    cr_assert_eq(strlen(file.data + find(KSYMBOL, PSEUDO).at + HEADER + 16), 511);
    cr_assert_eq(strlen(file.data + find(COMM, 1).at + HEADER + 8), 255);
    profile.functions[0].text = "";
    free(longest);
    drop();
}

Test(view_perf, metric_asked_for_is_the_first_event)
{
    write_perf("small", (struct ember_view_options){.metric = EMBER_METRIC_CALLS});
    cr_assert_eq(sample_at(find(SAMPLE, 0).at).id, 2);
    cr_assert_eq(sample_at(find(SAMPLE, 2).at).id, 1);
    cr_assert_eq(sample_at(find(SAMPLE, 2).at).period, 1);
    drop();
}

Test(view_perf, losses_are_told)
{
    write_perf("trouble", (struct ember_view_options){0});
    struct record record = find(LOST, 0);
    cr_assert_eq(number(record.at + HEADER + 8, 8), 1789);
    cr_assert(memmem(file.data, file.size, "1789 events lost; 12 calls", 26));
    drop();
}

Test(view_perf, the_file_of_symbols_is_mapped_by_a_path_that_perf_ignores)
{
    write_perf("small", (struct ember_view_options){.symbols = "/a b/c"});
    struct record record = find(MMAP2, 0);
    const char *path = file.data + record.at + HEADER + 64;
    cr_assert_eq(strncmp(path, "../../", 6), 0);
    cr_assert_str_eq(path + strlen(path) - 8, "../a b/c");
    drop();
}

Test(view_perf_symbols, symbols)
{
    make_sample("small");
    file = written_sink(&ember_view_perf_symbols, EMBER_METRIC_OWN_TIME);
    Elf64_Ehdr header;
    Elf64_Shdr sections[5];
    Elf64_Sym symbol;
    memcpy(&header, file.data, sizeof header);
    cr_assert_eq(memcmp(header.e_ident, ELFMAG, SELFMAG), 0);
    cr_assert_eq(header.e_shoff + sizeof sections, file.size);
    memcpy(sections, file.data + header.e_shoff, sizeof sections);
    cr_assert_eq(sections[2].sh_size, (1 + PSEUDO + profile.function_count) * sizeof symbol);
    memcpy(&symbol, file.data + sections[2].sh_offset + (2 + PSEUDO) * sizeof symbol,
           sizeof symbol);
    cr_assert_str_eq(file.data + sections[3].sh_offset + symbol.st_name, "lists:map/2");
    cr_assert_eq(symbol.st_value, 0x1000 + (PSEUDO + 1) * 16);
    cr_assert_str_eq(file.data + sections[4].sh_offset + sections[2].sh_name, ".symtab");
    drop();
}

Test(view_perf, lack_of_memory_is_reported)
{
    make_sample("recursive");
    cr_assert_reports_lack_of_memory(&ember_view_perf);
    cr_assert_failed_sink_stays_failed(&ember_view_perf);
    sample_free();
}

Test(view_perf_symbols, lack_of_memory_is_reported)
{
    make_sample("recursive");
    cr_assert_reports_lack_of_memory(&ember_view_perf_symbols);
    cr_assert_failed_sink_stays_failed(&ember_view_perf_symbols);
    sample_free();
}
