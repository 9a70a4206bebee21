/* SPDX-License-Identifier: Apache-2.0
 *
 * Small numbers for functions: {module, function, arity} to id and back.
 * Consumer thread only.
 */
#ifndef EMBER_FUNCTION_TABLE_H
#define EMBER_FUNCTION_TABLE_H

#include "event.h"

#include <stdbool.h>
#include <stddef.h>

struct ember_function_key {
    struct ember_mfa mfa;
    uint32_t arity;
};

struct ember_function_table {
    struct ember_function_key *keys; /* by id */
    uint32_t *slots;                 /* id + 1; 0: free */
    uint32_t count;
    uint32_t mask;
};

bool ember_function_table_init(struct ember_function_table *table);
void ember_function_table_fini(struct ember_function_table *table);

/* The id of a function, new if need be; EMBER_NONE when out of memory. */
uint32_t ember_function_table_id(struct ember_function_table *table, struct ember_mfa mfa,
                                 uint32_t arity);

#endif
