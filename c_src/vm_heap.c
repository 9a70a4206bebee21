/* SPDX-License-Identifier: Apache-2.0 */
#include "vm_heap.h"

/* The process structure is larger than this on every release; what we look for
 * lies within. */
#define SEARCHED_WORDS 96

struct ember_vm_heap ember_vm_heap;

/* The process pointer leads to the process's own id; consing moves the heap
 * top by two words; the stack lies above it within one heap block. */
static bool environment_holds(ErlNifEnv *env, ERL_NIF_TERM self)
{
    const uint64_t *words = ember_vm_env_words(env);
    const uint64_t *process = ember_vm_process_words(env);
    if (!process || ((uintptr_t)process & 7) != 0 || process[0] != self)
        return false;
    uint64_t before = words[EMBER_ENV_HEAP_TOP];
    enif_make_list_cell(env, self, self);
    if (words[EMBER_ENV_HEAP_TOP] != before + 2 * sizeof(ERL_NIF_TERM))
        return false;
    uint64_t hp = words[EMBER_ENV_HEAP_TOP];
    uint64_t sp = words[EMBER_ENV_STACK_TOP];
    return (hp & 7) == 0 && (sp & 7) == 0 && sp >= hp && sp - hp < UINT64_C(1) << 32;
}

/* The block's size is known, and heap top and stack top lie within. */
static bool is_block(const uint64_t *words, const uint64_t *top, uint64_t block_words)
{
    return words[1] - words[0] == block_words * sizeof(uint64_t) && words[0] <= top[0] &&
           top[1] <= words[1];
}

static uint32_t count(const bool *candidates, uint32_t *last)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < SEARCHED_WORDS; i++) {
        left += candidates[i];
        *last = candidates[i] ? i : *last;
    }
    return left;
}

/* Narrows the candidates for both places down; true when each is down to one. */
static bool find_places(const uint64_t *process, const uint64_t *top, struct ember_vm_sizes sizes,
                        bool first)
{
    static bool block[SEARCHED_WORDS];
    static bool fragments[SEARCHED_WORDS];
    for (uint32_t i = 1; i + 1 < SEARCHED_WORDS; i++) {
        fragments[i] = (first || fragments[i]) && process[i] == sizes.fragment_words;
        block[i] = (first || block[i]) && is_block(process + i, top, sizes.block_words);
    }
    return count(block, &ember_vm_heap.block) == 1 &&
           count(fragments, &ember_vm_heap.fragments) == 1;
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

void ember_vm_heap_check(ErlNifEnv *env, ERL_NIF_TERM self, struct ember_vm_sizes sizes, bool first)
{
    bool words = sizeof(ERL_NIF_TERM) == sizeof(uint64_t);
    ember_vm_heap.exact = words && environment_holds(env, self) &&
                          find_places(ember_vm_process_words(env),
                                      ember_vm_env_words(env) + EMBER_ENV_HEAP_TOP, sizes, first);
    ember_vm_heap.tuples = words && tuples_hold(env, self);
}

void ember_vm_heap_forget(bool exact, bool tuples)
{
    ember_vm_heap.exact &= !exact;
    ember_vm_heap.tuples &= !tuples;
}
