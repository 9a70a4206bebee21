/* SPDX-License-Identifier: Apache-2.0
 *
 * See emberl_failing.erl. Preloaded into a VM, where it stands between the library under
 * test, with zstd, and the C library: its allocations are counted, fail when they are to,
 * and are known until they are freed. What others allocate is left alone. The VM loads it
 * as a library of NIFs too, which gives the same one.
 */
#include <dlfcn.h>
#include <erl_nif.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *memory);

#define EXPORTED __attribute__((visibility("default")))
#define MOST_LIVE (1 << 16)

static atomic_bool watching;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* protects the rest */
static uint64_t made;                                     /* since the last order */
static uint64_t failing = UINT64_MAX;                     /* the first that fails, from 1 on */
static bool alone;                                        /* no other fails */
static const void *live[MOST_LIVE];
static size_t live_count;

static bool is_ours(const void *caller)
{
    Dl_info info;
    const char *name = dladdr(caller, &info) && info.dli_fname ? strrchr(info.dli_fname, '/')
                                                               : NULL;
    return name && (strcmp(name, "/emberl_nif.so") == 0 || strncmp(name, "/libzstd.so", 11) == 0);
}

/* Whether what `caller` asks for is to fail now. */
static bool fails(const void *caller, bool *ours)
{
    *ours = atomic_load(&watching) && is_ours(caller);
    if (!*ours)
        return false;
    pthread_mutex_lock(&mutex);
    made++;
    bool fail = alone ? made == failing : made >= failing;
    pthread_mutex_unlock(&mutex);
    if (fail)
        errno = ENOMEM;
    return fail;
}

static void *remember(void *memory)
{
    pthread_mutex_lock(&mutex);
    if (memory && live_count < MOST_LIVE)
        live[live_count++] = memory;
    pthread_mutex_unlock(&mutex);
    return memory;
}

static void forget(const void *memory)
{
    if (!memory || !atomic_load(&watching))
        return;
    pthread_mutex_lock(&mutex);
    for (size_t i = live_count; i > 0; i--) {
        if (live[i - 1] == memory) {
            live[i - 1] = live[--live_count];
            break;
        }
    }
    pthread_mutex_unlock(&mutex);
}

/* ---- in place of the C library's ---- */

#define ALLOCATE(Call) \
    do { \
        bool ours; \
        if (fails(__builtin_return_address(0), &ours)) \
            return NULL; \
        void *memory = Call; \
        return ours ? remember(memory) : memory; \
    } while (0)

EXPORTED void *malloc(size_t size)
{
    ALLOCATE(__libc_malloc(size));
}

EXPORTED void *calloc(size_t count, size_t size)
{
    ALLOCATE(__libc_calloc(count, size));
}

EXPORTED void *aligned_alloc(size_t alignment, size_t size)
{
    ALLOCATE(__libc_memalign(alignment, size));
}

static char *copy(const char *text, size_t size)
{
    char *copied = __libc_malloc(size + 1);
    if (copied) {
        memcpy(copied, text, size);
        copied[size] = '\0';
    }
    return copied;
}

#undef strdup
EXPORTED char *strdup(const char *text)
{
    ALLOCATE(copy(text, strlen(text)));
}

#undef strndup
EXPORTED char *strndup(const char *text, size_t most)
{
    ALLOCATE(copy(text, strnlen(text, most)));
}

EXPORTED void *realloc(void *memory, size_t size)
{
    bool ours;
    if (fails(__builtin_return_address(0), &ours))
        return NULL;
    forget(memory); /* first: it may be another's as soon as it is free */
    void *moved = __libc_realloc(memory, size);
    return ours ? remember(moved ? moved : memory) && moved ? moved : NULL : moved;
}

EXPORTED void free(void *memory)
{
    forget(memory);
    __libc_free(memory);
}

EXPORTED void *mmap(void *at, size_t size, int protection, int flags, int file, off_t offset)
{
    bool ours;
    if (fails(__builtin_return_address(0), &ours))
        return MAP_FAILED;
    void *memory = (void *)syscall(SYS_mmap, at, size, protection, flags, file, offset);
    return ours && memory != MAP_FAILED ? remember(memory) : memory;
}

EXPORTED int munmap(void *memory, size_t size)
{
    forget(memory);
    return (int)syscall(SYS_munmap, memory, size);
}

EXPORTED int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                            void *(*run)(void *), void *argument)
{
    static int (*_Atomic real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    bool ours;
    if (fails(__builtin_return_address(0), &ours))
        return EAGAIN;
    if (!real)
        real = (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(
            RTLD_NEXT, "pthread_create");
    return real(thread, attributes, run, argument);
}

/* ---- NIFs ---- */

static void order(uint64_t first, bool only)
{
    pthread_mutex_lock(&mutex);
    made = 0;
    failing = first;
    alone = only;
    pthread_mutex_unlock(&mutex);
    atomic_store(&watching, true);
}

/* fail(N, Alone) -> ok */
static ERL_NIF_TERM fail(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    ErlNifUInt64 first;
    (void)argc;
    if (!enif_get_uint64(env, argv[0], &first))
        return enif_make_badarg(env);
    order(first, enif_is_identical(argv[1], enif_make_atom(env, "true")));
    return enif_make_atom(env, "ok");
}

/* succeed() -> allocations since it was last told what to do */
static ERL_NIF_TERM succeed(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    (void)argv;
    uint64_t count = made;
    order(UINT64_MAX, true);
    return enif_make_uint64(env, count);
}

/* live() -> allocations that have not been freed */
static ERL_NIF_TERM count_live(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    (void)argv;
    return enif_make_uint64(env, live_count);
}

static ErlNifFunc functions[] = {
    {"fail", 2, fail, 0},
    {"succeed", 0, succeed, 0},
    {"live", 0, count_live, 0},
};

ERL_NIF_INIT(emberl_failing, functions, NULL, NULL, NULL, NULL)
