/* SPDX-License-Identifier: Apache-2.0 */
#include "vm_heap.h"

#include <string.h>

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
    static bool binaries[SEARCHED_WORDS];
    for (uint32_t i = 1; i + 1 < SEARCHED_WORDS; i++) {
        stack[i] = (first || stack[i]) && is_stack(process + i, tops);
        block[i] = (first || block[i]) && is_block(process + i, tops, sizes.block_words);
        fragments[i] = (first || fragments[i]) && process[i] == sizes.fragment_words;
        binaries[i] = (first || binaries[i]) && process[i] == sizes.binary_words;
    }
    if (count(binaries, &ember_vm_heap.binaries) != 1)
        ember_vm_heap.binaries = 0;
    return count(stack, &ember_vm_heap.stack) == 1 && count(block, &ember_vm_heap.block) == 1 &&
           count(fragments, &ember_vm_heap.fragments) == 1;
}

/* Terms have tags, but for the headers of what is on the heap, and return addresses
 * lie elsewhere. The oldest frame points nowhere. */
static bool has_frame_pointers(const uint64_t *process)
{
    const uint64_t *end = (const uint64_t *)process[ember_vm_heap.block + 1];
    for (const uint64_t *at = (const uint64_t *)process[ember_vm_heap.stack]; at < end; at++)
        if (at[0] % sizeof *at == 0 && at[0] > (uint64_t)at && at[0] <= (uint64_t)end)
            return true;
    return false;
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
    ember_vm_heap.frame_pointers = ember_vm_heap.exact &&
                                   has_frame_pointers(ember_vm_process_words(env));
    ember_vm_heap.tuples = words && tuples_hold(env, self);
}

/* ---- waiting or runnable ---- */

/* In each half word, the bits that were set whenever the process was runnable, and
 * clear whenever it waited. */
static uint32_t candidates[2 * SEARCHED_WORDS];

void ember_vm_status_begin(void)
{
    memset(candidates, 0xff, sizeof candidates);
    ember_vm_heap.runnable = 0;
}

void ember_vm_status_see(const ErlNifEnv *env, bool waiting)
{
    const uint32_t *halves = (const uint32_t *)(const void *)ember_vm_process_words(env);
    for (uint32_t i = 0; i < 2 * SEARCHED_WORDS; i++)
        candidates[i] &= waiting ? ~halves[i] : halves[i];
}

bool ember_vm_status_end(void)
{
    int bits = 0;
    for (uint32_t i = 0; i < 2 * SEARCHED_WORDS; i++) {
        bits += __builtin_popcount(candidates[i]);
        if (candidates[i])
            ember_vm_heap.status = i;
    }
    ember_vm_heap.runnable = bits == 1 ? candidates[ember_vm_heap.status] : 0;
    return bits == 1;
}

/* ---- walking stacks ---- */

/* "<module:function/arity+offset>", with atoms of 255 characters, quoted. */
#define MOST_ATOM 1020
#define MOST_TEXT (2 * (MOST_ATOM + 2) + 64)
#define MOST_OFFSET (UINT64_C(1) << 31)

struct ember_vm_walk ember_vm_walk_begin(const ErlNifEnv *env)
{
    const uint64_t *process = ember_vm_process_words(env);
    struct ember_vm_walk walk = {NULL, NULL};
    memcpy(&walk.at, &process[ember_vm_heap.stack], sizeof walk.at);
    memcpy(&walk.end, &process[ember_vm_heap.block + 1], sizeof walk.end);
    return walk;
}

/* Of UTF-8. Before OTP 26 the library can make atoms of Latin-1 alone. */
static bool existing_atom(ErlNifEnv *env, const char *text, size_t length, uint64_t *atom)
{
    ERL_NIF_TERM found;
    bool exists = false;
#if ERL_NIF_MAJOR_VERSION > 2 || ERL_NIF_MINOR_VERSION >= 17
    exists = enif_make_existing_atom_len(env, text, length, &found, ERL_NIF_UTF8);
#else
    char latin[MOST_ATOM];
    size_t count = 0;
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte >= 0xc4)
            return false;
        if (byte >= 0xc2)
            byte = (unsigned char)(byte << 6 | ((unsigned char)text[++i] & 0x3f));
        latin[count++] = (char)byte;
    }
    exists = enif_make_existing_atom_len(env, latin, count, &found, ERL_NIF_LATIN1);
#endif
    *atom = exists ? found : 0;
    return exists;
}

/* The atom that `*text` begins with, up to `end`, which it is moved behind. */
static bool read_atom(ErlNifEnv *env, const char **text, char end, uint64_t *atom)
{
    bool quoted = **text == '\'';
    const char *start = *text + quoted;
    const char *stop = strchr(start, quoted ? '\'' : end);
    if (!stop || stop[quoted] != end || stop - start > MOST_ATOM)
        return false;
    *text = stop + quoted + 1;
    size_t length = (size_t)(stop - start);
    return !memchr(start, '\\', length) && existing_atom(env, start, length, atom);
}

static bool read_number(const char **text, char end, uint64_t most, uint64_t *number)
{
    const char *start = *text;
    for (*number = 0; **text >= '0' && **text <= '9' && *number <= most; ++*text)
        *number = *number * 10 + (uint64_t)(**text - '0');
    return *text > start && *number <= most && *(*text)++ == end;
}

/* What the VM prints of a return address. Where the VM's own frames refer to functions,
 * that is to what stands before their code. */
static bool read_return(ErlNifEnv *env, const char *text, struct ember_vm_return *found)
{
    uint64_t arity;
    uint64_t offset;
    if (*text++ != '<' || !read_atom(env, &text, ':', &found->module) ||
        !read_atom(env, &text, '/', &found->function) || !read_number(&text, '+', 255, &arity) ||
        !read_number(&text, '>', MOST_OFFSET, &offset))
        return false;
    found->arity = (uint8_t)arity;
    return true;
}

/* Terms have tags, and frame pointers point into the stack. */
static bool is_pointer_elsewhere(const struct ember_vm_walk *walk, uint64_t word)
{
    enum { TAG_MASK = 3, FIRST_PAGE = 4096 };
    bool inside = word >= (uint64_t)walk->at && word <= (uint64_t)walk->end;
    return (word & TAG_MASK) == 0 && word >= FIRST_PAGE && !inside;
}

bool ember_vm_walk_next(ErlNifEnv *env, struct ember_vm_walk *walk, struct ember_vm_return *found)
{
    char text[MOST_TEXT];
    while (walk->at < walk->end && !is_pointer_elsewhere(walk, *walk->at))
        walk->at++;
    if (walk->at >= walk->end)
        return false;
    *found = (struct ember_vm_return){.at = walk->at};
    int length = enif_snprintf(text, sizeof text, "%T", (ERL_NIF_TERM)*walk->at++);
    bool whole = length > 0 && (size_t)length < sizeof text;
    if (!whole || !read_return(env, text, found))
        found->module = found->function = 0;
    return true;
}

/* On top of the stack, behind the frame pointer. */
static const uint64_t *return_address(const struct ember_vm_walk *walk)
{
    return walk->at + ember_vm_heap.frame_pointers;
}

uint32_t ember_vm_trace_words(const ErlNifEnv *env, uint32_t most)
{
    if (!ember_vm_heap.exact)
        return 0;
    struct ember_vm_walk walk = ember_vm_walk_begin(env);
    const uint64_t *address = return_address(&walk);
    for (uint32_t words = 1; words <= most && address + words < walk.end; words++)
        if (address[words] == address[0])
            return words;
    return 0;
}

uint64_t ember_vm_trace_session(const ErlNifEnv *env)
{
    enum { SMALL_TAG = 15 };
    struct ember_vm_walk walk = ember_vm_walk_begin(env);
    uint64_t number = walk.at[0];
    return (number & SMALL_TAG) == SMALL_TAG ? number : 0;
}

bool ember_vm_trace_words_have(const ErlNifEnv *env, uint32_t words, uint64_t session)
{
    struct ember_vm_walk walk = ember_vm_walk_begin(env);
    const uint64_t *address = return_address(&walk);
    for (uint32_t i = 1; i < words; i++)
        if (address[i] == session)
            return true;
    return false;
}

void ember_vm_heap_forget(bool exact, bool tuples)
{
    ember_vm_heap.exact &= !exact;
    ember_vm_heap.binaries = exact ? 0 : ember_vm_heap.binaries;
    ember_vm_heap.runnable = exact ? 0 : ember_vm_heap.runnable;
    ember_vm_heap.walks &= !exact;
    ember_vm_heap.tuples &= !tuples;
}
