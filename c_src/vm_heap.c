/* SPDX-License-Identifier: Apache-2.0 */
#include "vm_heap.h"

#include <string.h>

struct ember_vm_heap ember_vm_heap;

/* The process pointer leads to the process's own id; consing moves the heap
 * top by two words; the stack lies above it within one heap block. */
static bool pointers_hold(ErlNifEnv *env, ERL_NIF_TERM self)
{
    const uint64_t *words = ember_vm_env_words(env);
    const uint64_t *process = (const uint64_t *)words[EMBER_ENV_PROCESS];
    if (!process || ((uintptr_t)process & 7) != 0 || process[0] != self)
        return false;
    for (int i = 0; i < 2; i++) {
        uint64_t before = words[EMBER_ENV_HEAP_TOP];
        enif_make_list_cell(env, self, self);
        if (words[EMBER_ENV_HEAP_TOP] != before + 2 * sizeof(ERL_NIF_TERM))
            return false;
    }
    uint64_t hp = words[EMBER_ENV_HEAP_TOP];
    uint64_t sp = words[EMBER_ENV_STACK_TOP];
    return (hp & 7) == 0 && (sp & 7) == 0 && sp >= hp && sp - hp < UINT64_C(1) << 32;
}

static bool tuples_hold(ErlNifEnv *env, ERL_NIF_TERM self)
{
    ERL_NIF_TERM tuple = enif_make_tuple3(env, self, self, enif_make_int(env, 7));
    ember_vm_heap.tuples = false;
    const ERL_NIF_TERM *slow = ember_vm_tuple(env, tuple, 3);
    ember_vm_heap.tuples = true;
    const ERL_NIF_TERM *fast = ember_vm_tuple(env, tuple, 3);
    return fast && slow == fast && !ember_vm_tuple(env, tuple, 2);
}

/* The process structure is larger than this on every release; the counter lies
 * within. */
#define SEARCHED_WORDS 96

uint32_t ember_vm_find_fragments(ErlNifEnv *env, uint64_t words, bool restart)
{
    static bool candidate[SEARCHED_WORDS];
    uint32_t found = 0;
    uint32_t left = 0;
    const uint64_t *process = (const uint64_t *)ember_vm_env_words(env)[EMBER_ENV_PROCESS];
    ember_vm_heap.fragments = 0;
    if (!ember_vm_heap.pointers)
        return 0;
    for (uint32_t i = 1; i < SEARCHED_WORDS; i++) {
        candidate[i] = (restart || candidate[i]) && process[i] == words;
        left += candidate[i];
        found = candidate[i] ? i : found;
    }
    if (left == 1)
        ember_vm_heap.fragments = found;
    return left;
}

void ember_vm_heap_check(ErlNifEnv *env, ERL_NIF_TERM self, const char *force)
{
    bool none = strcmp(force, "all") == 0;
    ember_vm_heap.fragments = 0;
    ember_vm_heap.pointers = sizeof(ERL_NIF_TERM) == 8 && !none &&
                             strcmp(force, "pointers") != 0 && pointers_hold(env, self);
    ember_vm_heap.tuples = sizeof(ERL_NIF_TERM) == 8 && !none && strcmp(force, "tuples") != 0 &&
                           tuples_hold(env, self);
}
