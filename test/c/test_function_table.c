/* SPDX-License-Identifier: Apache-2.0 */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup */
#include "failing_malloc.h"
#include "function_table.h"
#include "profile.h"

#include <criterion/criterion.h>

enum { MANY = 300000 };

static struct ember_function_table table;

static void set_up(void)
{
    cr_assert(ember_function_table_init(&table));
}

static void tear_down(void)
{
    allocations_left = UINT64_MAX;
    ember_function_table_fini(&table);
}

TestSuite(function_table, .init = set_up, .fini = tear_down);

static uint32_t id(uint32_t module, uint32_t function, uint32_t arity)
{
    return ember_function_table_id(&table, (struct ember_mfa){module, function}, arity);
}

Test(function_table, ids_count_up_from_zero)
{
    cr_assert_eq(id(11, 27, 0), 0);
    cr_assert_eq(id(11, 43, 0), 1);
    cr_assert_eq(id(59, 27, 0), 2);
    cr_assert_eq(table.count, 3);
}

Test(function_table, the_same_function_has_the_same_id)
{
    uint32_t first = id(11, 27, 3);
    id(11, 27, 4);
    cr_assert_eq(id(11, 27, 3), first);
    cr_assert_eq(table.count, 2);
}

Test(function_table, module_function_and_arity_all_tell)
{
    uint32_t ids[] = {id(1, 2, 3), id(2, 2, 3), id(1, 3, 3), id(1, 2, 4), id(2, 1, 3)};
    for (uint32_t i = 0; i < 5; i++)
        cr_assert_eq(ids[i], i);
}

/* Different parts of the key that give the same sum, and so the same hash. */
Test(function_table, equal_hashes_are_told_apart)
{
    cr_assert_eq(id(5, 100, 0), 0);
    cr_assert_eq(id(5, 99, 1), 1);
    cr_assert_eq(id(5, 0, 100), 2);
    cr_assert_eq(id(5, 99, 1), 1);
}

Test(function_table, keys_are_found_by_id)
{
    uint32_t known = id(UINT32_MAX, UINT32_MAX - 1, 255);
    cr_assert_eq(table.keys[known].mfa.module, UINT32_MAX);
    cr_assert_eq(table.keys[known].mfa.function, UINT32_MAX - 1);
    cr_assert_eq(table.keys[known].arity, 255);
}

/* Functions that share all but one part with many others. Atoms are multiples
 * of 64 plus a tag. */
static uint32_t id_of_many(uint32_t i)
{
    return id(i % 100 << 6 | 11, i / 100 % 100 << 6 | 11, i / 10000);
}

Test(function_table, ids_and_keys_survive_growth)
{
    for (uint32_t i = 0; i < MANY; i++)
        cr_assert_eq(id_of_many(i), i);
    for (uint32_t i = 0; i < MANY; i++) {
        cr_assert_eq(id_of_many(i), i);
        cr_assert_eq(table.keys[i].mfa.function, i / 100 % 100 << 6 | 11);
        cr_assert_eq(table.keys[i].arity, i / 10000);
    }
    cr_assert_eq(table.count, MANY);
}

static uint32_t fill_until_failure(void)
{
    uint32_t count = 0;
    while (count < MANY && id_of_many(count) != EMBER_NONE)
        count++;
    return count;
}

Test(function_table, out_of_memory_keeps_what_is_there)
{
    for (uint64_t succeed = 0; succeed < 2; succeed++) {
        allocations_left = succeed; /* the slots fail, or the keys */
        uint32_t count = fill_until_failure();
        cr_assert_gt(count, 0);
        cr_assert_lt(count, MANY);
        for (uint32_t i = 0; i < count; i++)
            cr_assert_eq(id_of_many(i), i);
        cr_assert_eq(id_of_many(count), EMBER_NONE);
    }
}

Test(function_table, grows_again_when_there_is_memory)
{
    allocations_left = 0;
    uint32_t count = fill_until_failure();
    allocations_left = UINT64_MAX;
    for (uint32_t i = count; i < count * 4; i++)
        cr_assert_eq(id_of_many(i), i);
    for (uint32_t i = 0; i < count * 4; i++)
        cr_assert_eq(id_of_many(i), i);
}

Test(function_table, init_fails_without_memory)
{
    for (uint64_t succeed = 0; succeed < 2; succeed++) {
        struct ember_function_table other;
        allocations_left = succeed;
        cr_assert_not(ember_function_table_init(&other));
        ember_function_table_fini(&other);
    }
}
