/* SPDX-License-Identifier: Apache-2.0 */
#include "stolen.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The beginning of a small file. */
static bool read_text(int directory, const char *task, const char *file, char *text, size_t size)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", task, file);
    int fd = openat(directory, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t length = read(fd, text, size - 1);
    close(fd);
    text[length > 0 ? length : 0] = '\0';
    return length > 0;
}

/* Called 1_scheduler or erts_sched_1. The second number is the time in a run queue. */
static uint64_t stolen_from(int directory, const char *task)
{
    char text[128];
    if (!read_text(directory, task, "comm", text, sizeof text) || !strstr(text, "_sched") ||
        !read_text(directory, task, "schedstat", text, sizeof text))
        return 0;
    const char *waited = strchr(text, ' ');
    return waited ? strtoull(waited, NULL, 10) : 0;
}

uint64_t ember_stolen_ns(void)
{
    uint64_t sum = 0;
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks)
        return 0;
    struct dirent *entry;
    while ((entry = readdir(tasks))) /* NOLINT(concurrency-mt-unsafe): the stream is ours */
        if (entry->d_name[0] != '.')
            sum += stolen_from(dirfd(tasks), entry->d_name);
    closedir(tasks);
    return sum;
}
