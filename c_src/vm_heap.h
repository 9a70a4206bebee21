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
 * Where the VM makes frames with frame pointers (+JPperf true), words of the stack
 * point to others of them; terms and return addresses never do.
 *
 * None of this is a public interface, so it is looked for before use, and used
 * only if all of it is found. Where it is not, the heap top is taken from the
 * tuple that the VM has just built there, and there is no stack pointer.
 *
 * Words of the stack that are aligned as pointers to code are return addresses, or
 * belong to frames of the VM's own. Printed as a term, one shows the function that it
 * returns to. Whether that finds the callers of a known function is tried before it is
 * relied on.
 *
 * Two more things are looked for apart: the word that counts the binaries outside
 * the heap that the process refers to (its virtual binary heap, in words), which
 * the VM hides from callbacks and shows to other NIFs; and the bit that is set while
 * a process is runnable and clear while it waits.
 */
#ifndef EMBER_VM_HEAP_H
#define EMBER_VM_HEAP_H

#include "event.h"

#include <erl_nif.h>
#include <stdbool.h>

struct ember_vm_heap {
    bool exact;          /* all of the above was found */
    bool frame_pointers; /* every frame has one beside the return address: +JPperf true */
    bool tuples;         /* a boxed tuple is a tagged pointer to its header */
    uint32_t stack;      /* index in the process: stack top; heap top is before it */
    uint32_t block;      /* index in the process: start of the block, then its end */
    uint32_t fragments;  /* index in the process: words in fragments */
    uint32_t binaries;   /* index in the process: words of binaries; 0: not found */
    uint32_t status;     /* index in the process, of half words */
    uint32_t runnable;   /* the bit in it; 0: not found */
    bool walks;          /* stacks can be walked */
};

/* Set by ember_vm_heap_check before any callback reads it. */
extern struct ember_vm_heap ember_vm_heap;

/* What process_info(self(), garbage_collection_info) has just called
 * heap_block_size, mbuf_size and bin_vheap_size. */
struct ember_vm_sizes {
    uint64_t block_words;
    uint64_t fragment_words;
    uint64_t binary_words;
};

/* Looks at `env`, the environment of a running NIF of the process `self`. Call
 * it several times with several sizes, `first` the first time: a place counts
 * only if it matched every time. */
void ember_vm_heap_check(ErlNifEnv *env, ERL_NIF_TERM self, struct ember_vm_sizes sizes,
                         bool first);

/* Looks for the bit that says runnable: begin, then a process is seen when it is
 * scheduled out, of which is known whether it waits; then end. */
void ember_vm_status_begin(void);
void ember_vm_status_see(const ErlNifEnv *env, bool waiting);
bool ember_vm_status_end(void);

/* A return address on the stack. */
struct ember_vm_return {
    const uint64_t *at;
    uint64_t module; /* 0: no function of a module */
    uint64_t function;
    uint8_t arity;
};

/* A walk over the return addresses of a process, from the top on. */
struct ember_vm_walk {
    const uint64_t *at;
    const uint64_t *end;
};

/* Of the process in `env`; only where ember_vm_heap.exact. */
struct ember_vm_walk ember_vm_walk_begin(const ErlNifEnv *env);

/* False at the end of the stack. On threads of normal schedulers alone: others may
 * see code that is being purged. */
bool ember_vm_walk_next(ErlNifEnv *env, struct ember_vm_walk *walk, struct ember_vm_return *found);

/* While a call is told of, the VM shows the address that it returns to in place of the first
 * of the frames that it has pushed for tracing in the chain of tail calls that the call stands
 * in. So the address is there once more, so many words deeper; 0: not within `most`. It may
 * also be there twice since a function has called itself. */
uint32_t ember_vm_trace_words(const ErlNifEnv *env, uint32_t most);

/* From OTP 27 on, a return_to frame has the number of its trace session behind its address, and
 * the VM tells of it in that session alone; others push frames of their own. While a return_to is
 * told of, the number is on top of the stack. */
uint64_t ember_vm_trace_session(const ErlNifEnv *env);

/* Whether the session's number is in these words. */
bool ember_vm_trace_words_have(const ErlNifEnv *env, uint32_t words, uint64_t session);

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

/* Whether the VM may find no room on the heap of a process for the tuple that it builds for
 * an event; but not of one that hibernates, which has nothing on its heap. Only where
 * ember_vm_heap.exact, of a process that runs on this thread. */
static inline bool ember_vm_heap_is_full(const uint64_t *process)
{
    enum { TUPLE = 4, MOST_RED_ZONE = 8 };
    const uint64_t *words = process + ember_vm_heap.stack;
    bool used = words[-1] != process[ember_vm_heap.block];
    return used && words[0] < words[-1] + (TUPLE + MOST_RED_ZONE) * sizeof(uint64_t);
}

/* The environment that a callback of such a process would have, for the functions of this
 * file that read one. */
struct ember_vm_env {
    uint64_t words[EMBER_ENV_HEAP_LIMIT + 1];
};

static inline struct ember_vm_env ember_vm_env_of(const uint64_t *process)
{
    const uint64_t *words = process + ember_vm_heap.stack;
    return (struct ember_vm_env){{
        [EMBER_ENV_PROCESS] = (uint64_t)process,
        [EMBER_ENV_HEAP_TOP] = words[-1],
        [EMBER_ENV_HEAP_LIMIT] = words[0],
    }};
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

/* Whether the process in `env`, which is scheduled out, waits for something. Ask
 * only where ember_vm_heap.runnable is not 0. */
static inline bool ember_vm_is_waiting(const ErlNifEnv *env)
{
    const uint32_t *halves = (const uint32_t *)(const void *)ember_vm_process_words(env);
    return (halves[ember_vm_heap.status] & ember_vm_heap.runnable) == 0;
}

/* Words of binaries outside the heap, in a NIF that is no callback. Ask only where
 * ember_vm_heap.binaries is not 0. */
static inline uint64_t ember_vm_binary_words(const ErlNifEnv *env)
{
    return ember_vm_process_words(env)[ember_vm_heap.binaries];
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
