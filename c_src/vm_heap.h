/* SPDX-License-Identifier: Apache-2.0
 *
 * All we know of the VM's insides, in one place.
 *
 * While a callback runs, the words of its ErlNifEnv after the module and the
 * process pointer are the heap top of the process and its heap limit, which is
 * the stack top less a red zone, but not below the heap top. The process itself
 * has in two words in a row heap top and stack top, in two others the start and
 * the end of the block that holds both, and in one word it counts what it has in
 * heap fragments beside the block.
 *
 * None of this is a public interface, so it is looked for before use, and used
 * only if all of it is found. Where it is not, the heap top is taken from the
 * tuple that the VM has just built there, and there is no stack pointer.
 */
#ifndef EMBER_VM_HEAP_H
#define EMBER_VM_HEAP_H

#include "event.h"

#include <erl_nif.h>
#include <stdbool.h>

struct ember_vm_heap {
    bool exact;         /* all of the above was found */
    bool tuples;        /* a boxed tuple is a tagged pointer to its header */
    uint32_t stack;     /* index in the process: stack top; heap top is before it */
    uint32_t block;     /* index in the process: start of the block, then its end */
    uint32_t fragments; /* index in the process: words in fragments */
};

/* Set by ember_vm_heap_check before any callback reads it. */
extern struct ember_vm_heap ember_vm_heap;

/* What process_info(self(), garbage_collection_info) has just called
 * heap_block_size and mbuf_size. */
struct ember_vm_sizes {
    uint64_t block_words;
    uint64_t fragment_words;
};

/* Looks at `env`, the environment of a running NIF of the process `self`. Call
 * it several times with several sizes, `first` the first time: a place counts
 * only if it matched every time. */
void ember_vm_heap_check(ErlNifEnv *env, ERL_NIF_TERM self, struct ember_vm_sizes sizes, bool first);

/* For tests: do without. */
void ember_vm_heap_forget(bool exact, bool tuples);

enum { EMBER_ENV_PROCESS = 1, EMBER_ENV_HEAP_TOP = 2, EMBER_ENV_HEAP_LIMIT = 3 };

static inline const uint64_t *ember_vm_env_words(const ErlNifEnv *env)
{
    return (const uint64_t *)(const void *)env;
}

static inline const uint64_t *ember_vm_process_words(const ErlNifEnv *env)
{
    return (const uint64_t *)ember_vm_env_words(env)[EMBER_ENV_PROCESS];
}

/* Words of a tuple behind its header, or NULL when `term` is no tuple of `arity`. */
static inline const ERL_NIF_TERM *ember_vm_tuple(ErlNifEnv *env, ERL_NIF_TERM term, int arity)
{
    enum { BOXED_TAG = 2, TAG_MASK = 3 };
    if (__builtin_expect(ember_vm_heap.tuples, 1) && (term & TAG_MASK) == BOXED_TAG) {
        const ERL_NIF_TERM *words = (const ERL_NIF_TERM *)(term - BOXED_TAG);
        return words[0] == (ERL_NIF_TERM)arity << 6 ? words + 1 : NULL;
    }
    int found;
    const ERL_NIF_TERM *elements;
    if (!enif_get_tuple(env, term, &found, &elements) || found != arity)
        return NULL;
    return elements;
}

static inline uint32_t ember_vm_word_address(uint64_t address)
{
    return (uint32_t)(address >> 3);
}

/* Where the heap and the stack of the process in `env` end now. `mfa` is the
 * {M,F,A} that the VM built for this event last, or no tuple. */
static inline void ember_vm_heap_read(const ErlNifEnv *env, ERL_NIF_TERM mfa,
                                      struct ember_event *event)
{
    if (__builtin_expect(ember_vm_heap.exact, 1)) {
        const uint64_t *process = ember_vm_process_words(env);
        event->hp = ember_vm_word_address(ember_vm_env_words(env)[EMBER_ENV_HEAP_TOP]);
        event->sp = ember_vm_word_address(process[ember_vm_heap.stack]);
    } else {
        enum { BOXED_TAG = 2, TAG_MASK = 3, MFA_WORDS = 4 };
        bool boxed = ember_vm_heap.tuples && (mfa & TAG_MASK) == BOXED_TAG;
        event->hp = boxed ? ember_vm_word_address(mfa - BOXED_TAG) + MFA_WORDS : 0;
        event->sp = 0;
    }
}

/* What of a process changes rarely. */
struct ember_vm_block {
    uint64_t start;
    uint64_t end;
    uint64_t fragments;
};

static inline struct ember_vm_block ember_vm_block_read(const ErlNifEnv *env)
{
    if (!__builtin_expect(ember_vm_heap.exact, 1))
        return (struct ember_vm_block){0, 0, 0};
    const uint64_t *process = ember_vm_process_words(env);
    return (struct ember_vm_block){
        .start = process[ember_vm_heap.block],
        .end = process[ember_vm_heap.block + 1],
        .fragments = process[ember_vm_heap.fragments],
    };
}

#endif
