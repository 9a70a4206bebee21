/* SPDX-License-Identifier: Apache-2.0
 *
 * All we know of the VM's insides, in one place.
 *
 * While a callback runs, the words of its ErlNifEnv after the module and the
 * process pointer are the heap top and the heap limit of the process, and the
 * limit is where its stack ends. None of this is a public interface, so it is
 * checked before use; where the check fails, the heap top is taken from the
 * tuple that the VM has just built there, and there is no stack pointer.
 *
 * The process also counts the words in its heap fragments. Where, is found by
 * looking for what process_info/2 says; see ember_vm_find_fragments.
 */
#ifndef EMBER_VM_HEAP_H
#define EMBER_VM_HEAP_H

#include "event.h"

#include <erl_nif.h>
#include <stdbool.h>

struct ember_vm_heap {
    bool pointers; /* the environment's words are what we think */
    bool tuples;   /* a boxed tuple is a tagged pointer to its header */
    uint32_t fragments; /* word of the process that counts its fragments' words; 0: unknown */
};

/* Set by ember_vm_heap_check before any callback reads it. */
extern struct ember_vm_heap ember_vm_heap;

/* Tries the layout on `env`, the environment of a running NIF whose calling
 * process is `self`. `force` leaves a part off, for tests: "pointers",
 * "tuples" or "all"; anything else tries all. */
void ember_vm_heap_check(ErlNifEnv *env, ERL_NIF_TERM self, const char *force);

/* Looks in the calling process for a word that is `words`, what
 * process_info(self(), garbage_collection_info) has just called mbuf_size. Call
 * it with several values: only a word that matched every time counts. `restart`
 * forgets earlier calls. Returns how many words are left; when that is one it
 * is used from now on. */
uint32_t ember_vm_find_fragments(ErlNifEnv *env, uint64_t words, bool restart);

/* The environment as words; word 1 is the process, 2 the heap top, 3 the limit. */
enum { EMBER_ENV_PROCESS = 1, EMBER_ENV_HEAP_TOP = 2, EMBER_ENV_STACK_TOP = 3 };

static inline const uint64_t *ember_vm_env_words(const ErlNifEnv *env)
{
    return (const uint64_t *)(const void *)env;
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

/* Where the heap and the stack of the process in `env` end now. `mfa` is the
 * {M,F,A} that the VM built for this event last, or no tuple. */
static inline void ember_vm_heap_read(const ErlNifEnv *env, ERL_NIF_TERM mfa,
                                      struct ember_event *event)
{
    if (__builtin_expect(ember_vm_heap.pointers, 1)) {
        const uint64_t *words = ember_vm_env_words(env);
        event->hp = (uint32_t)(words[EMBER_ENV_HEAP_TOP] >> 3);
        event->sp = (uint32_t)(words[EMBER_ENV_STACK_TOP] >> 3);
    } else {
        enum { BOXED_TAG = 2, TAG_MASK = 3, MFA_WORDS = 4 };
        bool boxed = ember_vm_heap.tuples && (mfa & TAG_MASK) == BOXED_TAG;
        event->hp = boxed ? (uint32_t)((mfa - BOXED_TAG) >> 3) + MFA_WORDS : 0;
        event->sp = 0;
    }
}

static inline uint64_t ember_vm_fragment_words(const ErlNifEnv *env)
{
    if (__builtin_expect(ember_vm_heap.fragments == 0, 0))
        return 0;
    const uint64_t *process = (const uint64_t *)ember_vm_env_words(env)[EMBER_ENV_PROCESS];
    return process[ember_vm_heap.fragments];
}

#endif
