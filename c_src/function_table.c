/* SPDX-License-Identifier: Apache-2.0 */
#include "function_table.h"

#include "hash.h"
#include "profile.h"

#include <stdlib.h>

#define FIRST_CAPACITY 1024

static uint32_t hash(struct ember_mfa mfa, uint32_t arity)
{
    uint64_t key = ((uint64_t)mfa.module << 32 | mfa.function) + arity;
    return ember_hash(key);
}

static bool allocate(struct ember_function_table *table, uint32_t capacity)
{
    uint32_t *slots = calloc(capacity, sizeof *slots);
    struct ember_function_key *keys = realloc(table->keys, capacity / 2 * sizeof *keys);
    if (keys)
        table->keys = keys;
    if (!slots || !keys) {
        free(slots);
        return false;
    }
    free(table->slots);
    table->slots = slots;
    table->mask = capacity - 1;
    return true;
}

bool ember_function_table_init(struct ember_function_table *table)
{
    *table = (struct ember_function_table){0};
    return allocate(table, FIRST_CAPACITY);
}

void ember_function_table_fini(struct ember_function_table *table)
{
    free(table->keys);
    free(table->slots);
    *table = (struct ember_function_table){0};
}

static uint32_t *find_slot(struct ember_function_table *table, struct ember_mfa mfa, uint32_t arity)
{
    for (uint32_t i = hash(mfa, arity);; i++) {
        uint32_t *slot = &table->slots[i & table->mask];
        if (*slot == 0)
            return slot;
        const struct ember_function_key *key = &table->keys[*slot - 1];
        if (key->mfa.function == mfa.function && key->mfa.module == mfa.module &&
            key->arity == arity)
            return slot;
    }
}

static bool grow(struct ember_function_table *table)
{
    if (!allocate(table, (table->mask + 1) * 2))
        return false;
    for (uint32_t id = 0; id < table->count; id++)
        *find_slot(table, table->keys[id].mfa, table->keys[id].arity) = id + 1;
    return true;
}

uint32_t ember_function_table_id(struct ember_function_table *table, struct ember_mfa mfa,
                                 uint32_t arity)
{
    uint32_t *slot = find_slot(table, mfa, arity);
    if (*slot)
        return *slot - 1;
    if (table->count + 1 > table->mask / 2) {
        if (!grow(table))
            return EMBER_NONE;
        slot = find_slot(table, mfa, arity);
    }
    table->keys[table->count] = (struct ember_function_key){mfa, arity};
    *slot = ++table->count;
    return table->count - 1;
}
