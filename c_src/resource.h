/* SPDX-License-Identifier: Apache-2.0
 *
 * Types of the VM's reference-counted objects.
 */
#ifndef EMBER_RESOURCE_H
#define EMBER_RESOURCE_H

#include <erl_nif.h>
#include <stdbool.h>

/* Atomic: a new instance of the module replaces it while the consumer thread and
 * NIFs of the old one use it. What it points to does not change. */
typedef _Atomic(ErlNifResourceType *) ember_resource_type;

/* From load and upgrade. Whether it is open. */
bool ember_resource_open(ErlNifEnv *env, const char *name, const ErlNifResourceTypeInit *callbacks,
                         ember_resource_type *type);

#endif
