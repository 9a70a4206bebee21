/* SPDX-License-Identifier: Apache-2.0 */
#include "resource.h"

#include <stdatomic.h>

/* The VM frees a type when its module is purged and its last resource is gone. But
 * the consumer thread, and a dirty NIF whose process was killed, go on after that
 * and may make another. So each type has a resource that stays for ever. The VM
 * leaves the library in place then, and never tells it to unload. */
bool ember_resource_open(ErlNifEnv *env, const char *name, const ErlNifResourceTypeInit *callbacks,
                         ember_resource_type *type)
{
    ErlNifResourceFlags flags = ERL_NIF_RT_CREATE | ERL_NIF_RT_TAKEOVER;
    ErlNifResourceType *opened = enif_open_resource_type_x(env, name, callbacks, flags, NULL);
    if (opened && opened != atomic_exchange(type, opened))
        (void)!enif_alloc_resource(opened, 1);
    return opened != NULL;
}
