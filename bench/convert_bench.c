/* SPDX-License-Identifier: Apache-2.0
 *
 * What it takes to read a profile of 200,000 stacks and write it in each format: time
 * and memory of a process that does nothing else. With arguments FORMAT and FILE it is
 * that process. Once with stacks of about 15 functions, once of about 100 and up to 512.
 */
#include "profile_read.h"
#include "profile_write.h"
#include "sample_profiles.h"
#include "view.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "convert_bench: %s\n", what);
    exit(1);
}

static unsigned char *read_file(const char *name, size_t *size)
{
    FILE *file = fopen(name, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0)
        fail("cannot read");
    *size = (size_t)ftell(file);
    unsigned char *bytes = malloc(*size);
    rewind(file);
    if (!bytes || fread(bytes, 1, *size, file) != *size)
        fail("cannot read");
    fclose(file);
    return bytes;
}

static void convert(const char *format, const char *name)
{
    size_t size;
    struct ember_sink sink;
    struct rusage usage;
    struct ember_read_error error;
    unsigned char *bytes = read_file(name, &size);
    ember_sink_init(&sink);
    double start = seconds();
    struct ember_profile *read = ember_profile_read(bytes, size, &error);
    if (!read)
        fail(error.text);
    double middle = seconds();
    ember_view_find(format)->write(read, &(struct ember_view_options){0}, &sink);
    double end = seconds();
    if (sink.failed)
        fail("out of memory");
    getrusage(RUSAGE_SELF, &usage);
    printf("%-14s %6.2f s %6.2f s %8.1f MB %8.1f MiB\n", format, middle - start, end - middle,
           (double)sink.size / 1e6, (double)usage.ru_maxrss / 1024);
    ember_sink_fini(&sink);
    ember_profile_destroy(read);
    free(bytes);
}

/* The file, a new one. */
static void save_profile(const char *sample, char *name)
{
    struct ember_sink sink;
    ember_sink_init(&sink);
    if (!sample_make(sample) || ember_profile_write(&profile, &sink) != 0)
        fail("no profile");
    int file = mkstemp(name);
    if (file < 0 || write(file, sink.data, sink.size) != (ssize_t)sink.size || close(file) != 0)
        fail("cannot write");
    ember_sink_fini(&sink);
}

static bool convert_in_child(char *self, const char *format, char *file)
{
    int status = 1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        char *arguments[] = {self, strdup(format), file, NULL};
        execv(self, arguments);
        _exit(1);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(int argc, char **argv)
{
    char file[] = "/tmp/emberl-bench-XXXXXX";
    bool all = true;
    if (argc == 3) {
        convert(argv[1], argv[2]);
        return 0;
    }
    save_profile(argc > 1 ? argv[1] : "large", file);
    printf("%-14s %8s %8s %11s %12s\n", "format", "read", "write", "file", "peak memory");
    for (unsigned i = 0; ember_view_at(i); i++)
        all = convert_in_child(argv[0], ember_view_at(i)->name, file) && all;
    unlink(file);
    sample_free();
    return all ? 0 : 1;
}
