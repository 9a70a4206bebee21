/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a made-up profile in an output format, and prints as JSON what a reader of
 * the file should find in it: view_sample SAMPLE FORMAT FILE [METRIC]
 *
 * Words below zero count as none: no format can show them.
 */
#include "sample_profiles.h"
#include "view.h"

#include <inttypes.h>
#include <sys/resource.h>
#include <time.h>

static void add_own(struct ember_metrics *sum, const struct ember_metrics *own)
{
    sum->own_ns += own->own_ns;
    sum->off_cpu_ns += own->off_cpu_ns;
    sum->waiting_ns += own->waiting_ns;
    sum->gc_ns += own->gc_ns;
    sum->calls += own->calls;
    sum->words += own->words > 0 ? own->words : 0;
    sum->binary_bytes += own->binary_bytes;
}

static void print_string(const char *text)
{
    putchar('"');
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == '"' || *c == '\\' || *c == 0x7f)
            printf("\\u%04x", (unsigned)*c);
        else
            putchar(*c);
    putchar('"');
}

static void print_metrics(const struct ember_metrics *own)
{
    printf("{\"time\":%" PRIu64 ",\"own_ns\":%" PRIu64 ",\"off_cpu_ns\":%" PRIu64
           ",\"waiting_ns\":%" PRIu64 ",\"gc_ns\":%" PRIu64 ",\"calls\":%" PRIu64
           ",\"words\":%" PRId64 ",\"binaries\":%" PRIu64 "}",
           own->own_ns + own->off_cpu_ns + own->gc_ns, own->own_ns, own->off_cpu_ns,
           own->waiting_ns, own->gc_ns, own->calls, own->words, own->binary_bytes);
}

/* Each node counts for every function on its path, once. */
static void sum_functions(struct ember_metrics *self, struct ember_metrics *inclusive)
{
    uint32_t *seen = calloc(profile.function_count + 1, sizeof *seen);
    for (uint32_t i = 0; seen && i < profile.node_count; i++) {
        const struct ember_metrics *own = &profile.nodes[i].own;
        if (profile.nodes[i].parent != EMBER_NONE)
            add_own(&self[profile.nodes[i].function], own);
        for (uint32_t at = i; profile.nodes[at].parent != EMBER_NONE;
             at = profile.nodes[at].parent) {
            uint32_t function = profile.nodes[at].function;
            if (seen[function] != i + 1)
                add_own(&inclusive[function], own);
            seen[function] = i + 1;
        }
    }
    free(seen);
}

static void print_functions(void)
{
    struct ember_metrics *self = calloc(profile.function_count + 1, sizeof *self);
    struct ember_metrics *inclusive = calloc(profile.function_count + 1, sizeof *inclusive);
    sum_functions(self, inclusive);
    for (uint32_t i = 0; i < profile.function_count; i++) {
        printf("%s\n{\"name\":", i > 0 ? "," : "");
        print_string(profile.functions[i].text);
        printf(",\"self\":");
        print_metrics(&self[i]);
        printf(",\"inclusive\":");
        print_metrics(&inclusive[i]);
        putchar('}');
    }
    free(self);
    free(inclusive);
}

static void print_expected(double seconds, size_t bytes)
{
    struct ember_metrics total = {0};
    struct rusage usage;
    for (uint32_t i = 0; i < profile.node_count; i++)
        add_own(&total, &profile.nodes[i].own);
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"seconds\":%.3f,\"bytes\":%zu,\"peak_kib\":%ld,\"stacks\":%" PRIu32 ",\"total\":",
           seconds, bytes, usage.ru_maxrss, profile.node_count);
    print_metrics(&total);
    printf(",\"processes\":[");
    for (uint32_t p = 0; p < profile.process_count; p++) {
        struct ember_metrics own = {0};
        for (uint32_t i = 0; i < profile.node_count; i++)
            if (profile.nodes[i].process == p)
                add_own(&own, &profile.nodes[i].own);
        printf("%s\n{\"pid\":", p > 0 ? "," : "");
        print_string(profile.processes[p].pid_text);
        printf(",\"total\":");
        print_metrics(&own);
        putchar('}');
    }
    printf("],\"functions\":[");
    print_functions();
    printf("]}\n");
}

static enum ember_metric metric_named(const char *name)
{
    if (strcmp(name, "words") == 0)
        return EMBER_METRIC_WORDS;
    if (strcmp(name, "binaries") == 0)
        return EMBER_METRIC_BINARIES;
    return strcmp(name, "calls") == 0 ? EMBER_METRIC_CALLS : EMBER_METRIC_OWN_TIME;
}

static bool write_file(const char *path, const struct ember_sink *sink)
{
    FILE *file = fopen(path, "wb");
    bool written = file && !sink->failed && fwrite(sink->data, 1, sink->size, file) == sink->size;
    return file && fclose(file) == 0 && written;
}

/* Of this program, whatever else runs. */
static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    const struct ember_view *view = argc > 3 ? ember_view_find(argv[2]) : NULL;
    if (!view || !sample_make(argv[1])) {
        fputs("usage: view_sample SAMPLE FORMAT FILE [METRIC]\n", stderr);
        return 2;
    }
    struct ember_sink sink;
    ember_sink_init(&sink);
    double start = now();
    view->write(&profile,
                &(struct ember_view_options){.metric = metric_named(argc > 4 ? argv[4] : "time"),
                                             .symbols = argc > 5 ? argv[5] : NULL},
                &sink);
    double seconds = now() - start;
    bool written = write_file(argv[3], &sink);
    print_expected(seconds, sink.size);
    ember_sink_fini(&sink);
    sample_free();
    return written ? 0 : 1;
}
