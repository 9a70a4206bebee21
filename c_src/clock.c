/* SPDX-License-Identifier: Apache-2.0 */
#include "clock.h"

#include <stdio.h>
#include <string.h>

#define MIN_BASELINE_NS 10000000

bool ember_clock_uses_counter;
static uint64_t start_ticks;
static uint64_t start_ns;

uint64_t ember_clock_monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#if defined(__x86_64__) && defined(__linux__)
static bool file_has_word(const char *path, const char *word)
{
    char line[8192];
    bool found = false;
    FILE *file = fopen(path, "r");
    while (file && !found && fgets(line, sizeof line, file))
        found = strstr(line, word) != NULL;
    if (file)
        fclose(file);
    return found;
}

/* The kernel falls back to another clock source when it sees the counter go
 * wrong, whatever the processor promises. */
static bool counter_is_invariant(void)
{
    const char *source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    return file_has_word("/proc/cpuinfo", " nonstop_tsc") && !file_has_word(source, "hpet") &&
           !file_has_word(source, "acpi_pm");
}
#elif defined(__aarch64__)
static bool counter_is_invariant(void)
{
    return true; /* the generic timer's frequency is fixed by the architecture */
}
#else
static bool counter_is_invariant(void)
{
    return false;
}
#endif

void ember_clock_init(void)
{
    ember_clock_uses_counter = counter_is_invariant();
    start_ns = ember_clock_monotonic_ns();
    start_ticks = ember_clock_ticks();
}

double ember_clock_ns_per_tick(void)
{
    if (!ember_clock_uses_counter)
        return 1.0;
    uint64_t ns = ember_clock_monotonic_ns() - start_ns;
    if (ns < MIN_BASELINE_NS) {
        struct timespec rest = {.tv_nsec = (long)(MIN_BASELINE_NS - ns)};
        nanosleep(&rest, NULL);
        ns = ember_clock_monotonic_ns() - start_ns;
    }
    return (double)ns / (double)(ember_clock_ticks() - start_ticks);
}
