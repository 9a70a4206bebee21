/* SPDX-License-Identifier: Apache-2.0 */
#include "vm_heap.h"

/* The process structure is larger than this on every release; what we look for
 * lies within. */
#define SEARCHED_WORDS 96

struct ember_vm_heap ember_vm_heap;

/* The process pointer leads to the process's own id; consing moves the heap
 * top by two words; the limit lies above it. */
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
    uint64_t limit = words[EMBER_ENV_HEAP_LIMIT];
    return (hp & 7) == 0 && (limit & 7) == 0 && limit >= hp && limit - hp < UINT64_C(1) << 32;
}

/* Heap top and limit of the environment, as they were when the NIF was called. */
struct tops {
    uint64_t heap;
    uint64_t limit;
};

/* A stack top stands behind the heap top, and not far above the limit. */
static bool is_stack(const uint64_t *word, struct tops tops)
{
    enum { MOST_RED_ZONE = 8 * sizeof(uint64_t) };
    return word[-1] == tops.heap && word[0] >= tops.limit && word[0] - tops.limit <= MOST_RED_ZONE;
}

/* The block's size is known, and heap top and limit lie within. */
static bool is_block(const uint64_t *words, struct tops tops, uint64_t block_words)
{
    return words[1] - words[0] == block_words * sizeof(uint64_t) && words[0] <= tops.heap &&
           tops.limit <= words[1];
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

/* Narrows the candidates for the places down; true when each is down to one. */
static bool find_places(const uint64_t *process, struct tops tops, struct ember_vm_sizes sizes,
                        bool first)
{
    static bool stack[SEARCHED_WORDS];
    static bool block[SEARCHED_WORDS];
    static bool fragments[SEARCHED_WORDS];
    for (uint32_t i = 1; i + 1 < SEARCHED_WORDS; i++) {
        stack[i] = (first || stack[i]) && is_stack(process + i, tops);
        block[i] = (first || block[i]) && is_block(process + i, tops, sizes.block_words);
        fragments[i] = (first || fragments[i]) && process[i] == sizes.fragment_words;
    }
    return count(stack, &ember_vm_heap.stack) == 1 && count(block, &ember_vm_heap.block) == 1 &&
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
    const uint64_t *environment = ember_vm_env_words(env);
    struct tops tops = {environment[EMBER_ENV_HEAP_TOP], environment[EMBER_ENV_HEAP_LIMIT]};
    ember_vm_heap.exact = words && environment_holds(env, self) &&
                          find_places(ember_vm_process_words(env), tops, sizes, first);
    ember_vm_heap.tuples = words && tuples_hold(env, self);
}

void ember_vm_heap_forget(bool exact, bool tuples)
{
    ember_vm_heap.exact &= !exact;
    ember_vm_heap.tuples &= !tuples;
}
