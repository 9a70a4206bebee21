/* SPDX-License-Identifier: Apache-2.0
 *
 * See emberl_test_nif.erl. Built by `make check-erl` to build/test, beside the
 * compiled tests: cc -shared -fPIC -I<erts include> -o emberl_test_nif.so.
 */
#include <dirent.h>
#include <erl_nif.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

static ERL_NIF_TERM echo(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)env;
    (void)argc;
    return argv[0];
}

static ERL_NIF_TERM rescheduled(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    return enif_schedule_nif(env, "rescheduled", ERL_NIF_DIRTY_JOB_CPU_BOUND, echo, argc, argv);
}

/* ---- a consumer that rests for longer than it should ---- */

static _Atomic bool stalled;
static _Atomic bool inside;

static void rest(void)
{
    struct timespec millisecond = {.tv_nsec = 1000000};
    nanosleep(&millisecond, NULL);
}

#ifdef __linux__
static void handle(int signal)
{
    (void)signal;
    atomic_store(&inside, true);
    while (atomic_load(&stalled))
        rest();
    atomic_store(&inside, false);
}

static bool is_consumer(const char *task)
{
    char path[300];
    char name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", task);
    FILE *file = fopen(path, "r");
    bool found = file && fgets(name, sizeof name, file) && strcmp(name, "emberl\n") == 0;
    if (file)
        fclose(file);
    return found;
}

/* The id of the consumer's thread, or 0. */
static long consumer(void)
{
    long id = 0;
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    while (tasks && (entry = readdir(tasks)))
        if (entry->d_name[0] != '.' && is_consumer(entry->d_name))
            id = strtol(entry->d_name, NULL, 10);
    if (tasks)
        closedir(tasks);
    return id;
}

static bool signal_consumer(void)
{
    struct sigaction action = {.sa_handler = handle};
    long thread = consumer();
    return thread && sigaction(SIGRTMIN + 7, &action, NULL) == 0 &&
           syscall(SYS_tgkill, getpid(), thread, SIGRTMIN + 7) == 0;
}
#else
static bool signal_consumer(void)
{
    return false;
}
#endif

/* stall() -> whether the consumer does nothing from now on */
static ERL_NIF_TERM stall(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    (void)argv;
    atomic_store(&stalled, true);
    bool sent = signal_consumer();
    while (sent && !atomic_load(&inside))
        rest();
    return enif_make_atom(env, sent ? "true" : "false");
}

static ERL_NIF_TERM resume(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    (void)argv;
    atomic_store(&stalled, false);
    while (atomic_load(&inside))
        rest();
    return enif_make_atom(env, "ok");
}

/* Keeps its scheduler for so many milliseconds. */
static ERL_NIF_TERM hold(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    unsigned ms;
    (void)argc;
    if (!enif_get_uint(env, argv[0], &ms))
        return enif_make_badarg(env);
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&time, NULL);
    return argv[0];
}

static ErlNifFunc functions[] = {
    {"plain", 1, echo, 0},
    {"dirty_cpu", 1, echo, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"dirty_io", 1, echo, ERL_NIF_DIRTY_JOB_IO_BOUND},
    {"rescheduled", 1, rescheduled, 0},
    {"stall", 0, stall, 0},
    {"resume", 0, resume, 0},
    {"hold", 1, hold, 0},
};

ERL_NIF_INIT(emberl_test_nif, functions, NULL, NULL, NULL, NULL)
