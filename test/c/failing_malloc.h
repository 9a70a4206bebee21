/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that runs out when a test wants it to. The test links with
 * -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup and counts on
 * one thread.
 */
#ifndef EMBER_TEST_FAILING_MALLOC_H
#define EMBER_TEST_FAILING_MALLOC_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Allocations that still succeed; UINT64_MAX: all. */
static uint64_t allocations_left = UINT64_MAX;

/* The one after them fails, and then no other. */
static bool fail_once;

/* Allocations made, whether they succeeded or not. */
static uint64_t allocations_made;

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size) __attribute__((weak)); /* if asked for */
void *__wrap_aligned_alloc(size_t alignment, size_t size);
char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);

static bool may_allocate(void)
{
    allocations_made++;
    if (allocations_left == 0) {
        allocations_left = fail_once ? UINT64_MAX : 0;
        return false;
    }
    allocations_left -= allocations_left != UINT64_MAX;
    return true;
}

void *__wrap_malloc(size_t size)
{
    return may_allocate() ? __real_malloc(size) : NULL;
}

void *__wrap_calloc(size_t count, size_t size)
{
    return may_allocate() ? __real_calloc(count, size) : NULL;
}

void *__wrap_realloc(void *memory, size_t size)
{
    return may_allocate() ? __real_realloc(memory, size) : NULL;
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return may_allocate() ? __real_aligned_alloc(alignment, size) : NULL;
}

char *__wrap_strdup(const char *text)
{
    return may_allocate() ? __real_strdup(text) : NULL;
}

#endif
