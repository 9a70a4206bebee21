/* SPDX-License-Identifier: Apache-2.0
 *
 * The library as the VM sees it: loading and the table of functions.
 */
#include "capture_nif.h"
#include "clock.h"
#include "control.h"
#include "layout_nif.h"
#include "profile_nif.h"
#include "session.h"
#include "term.h"
#include "tracer.h"
#include "vm_heap.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void put_bool(struct ember_term_map *map, const char *key, bool value)
{
    ember_term_map_put(map, key, ember_term_atom(map->env, value ? "true" : "false"));
}

static uint64_t process_cpu_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

/* stats() -> #{running, rings, events, lost, consumer_cpu_ns, cpu_ns, ...} */
static ERL_NIF_TERM nif_stats(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    (void)argv;
    struct ember_term_map map = ember_term_map_new(env);
    struct ember_session *session = ember_control_lock();
    put_bool(&map, "running", session != NULL);
    ember_term_map_put_number(&map, "rings", session ? atomic_load(&session->rings_claimed) : 0);
    ember_term_map_put_number(&map, "events",
                              session ? ember_consumer_events(session->consumer) : 0);
    ember_term_map_put_number(&map, "lost", session ? ember_session_lost(session) : 0);
    ember_control_unlock();
    ember_term_map_put_number(&map, "consumer_cpu_ns", ember_consumer_cpu_ns());
    ember_term_map_put_number(&map, "cpu_ns", process_cpu_ns());
    put_bool(&map, "heaps", ember_vm_heap.exact);
    put_bool(&map, "binaries", ember_vm_heap.binaries != 0);
    put_bool(&map, "waiting", ember_vm_heap.runnable != 0);
    put_bool(&map, "walks", ember_vm_heap.walks);
    return map.map;
}

/* ---- who sets breakpoints ---- */

/* watch(Pid) -> ok: see tracer.h. */
static ERL_NIF_TERM nif_watch(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    if (!enif_is_pid(env, argv[0]))
        return enif_make_badarg(env);
    ember_tracer_watch(argv[0]);
    return ember_term_atom(env, "ok");
}

/* take_change() -> boolean(): whether others may have set or cleared breakpoints. */
static ERL_NIF_TERM nif_take_change(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    (void)argv;
    return ember_term_atom(env, ember_tracer_take_change() ? "true" : "false");
}

/* ---- the end of the node, for the command line ---- */

static atomic_bool profile_is_owed;

/* Nothing in Erlang sees a halt; the status it was given is not known here. */
static void tell_of_no_profile(void)
{
    static const char text[] = "emberl: the node was ended inside, so there is no profile\n";
    if (!atomic_load(&profile_is_owed))
        return;
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(EXIT_FAILURE);
}

static void register_end(void)
{
    (void)atexit(tell_of_no_profile);
}

/* owe_profile(Owed) -> ok: while it is, the node ends with a message and status 1. */
static ERL_NIF_TERM nif_owe_profile(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    bool owed;
    (void)argc;
    if (!ember_term_get_bool(env, argv[0], &owed))
        return enif_make_badarg(env);
    pthread_once(&once, register_end);
    atomic_store(&profile_is_owed, owed);
    return ember_term_atom(env, "ok");
}

/* ---- loading ---- */

static pthread_once_t clock_once = PTHREAD_ONCE_INIT;

static int begin_use(ErlNifEnv *env)
{
    pthread_once(&clock_once, ember_clock_init);
    ember_tracer_init(env);
    ember_term_atom(env, "[deeper]"); /* names of frames are atoms where there are such */
    ember_term_atom(env, "[unknown]");
    return ember_control_init(env) ? ember_profile_nif_init(env) : 1;
}

static int load(ErlNifEnv *env, void **priv, ERL_NIF_TERM info)
{
    (void)priv;
    (void)info;
    return begin_use(env);
}

static int upgrade(ErlNifEnv *env, void **priv, void **old_priv, ERL_NIF_TERM info)
{
    (void)priv;
    (void)old_priv;
    (void)info;
    return begin_use(env);
}

static ErlNifFunc functions[] = {
    {"enabled", 3, ember_tracer_enabled, 0},
    {"trace", 5, ember_tracer_trace, 0},
    {"start", 5, ember_control_nif_start, ERL_NIF_DIRTY_JOB_IO_BOUND},
    {"stop", 0, ember_control_nif_stop, ERL_NIF_DIRTY_JOB_IO_BOUND},
    {"open", 2, ember_capture_nif_open, ERL_NIF_DIRTY_JOB_IO_BOUND},
    {"arm", 1, ember_capture_nif_arm, ERL_NIF_DIRTY_JOB_IO_BOUND},
    {"disarm", 2, ember_capture_nif_disarm, ERL_NIF_DIRTY_JOB_IO_BOUND},
    {"open_window", 2, ember_capture_nif_open_window, ERL_NIF_DIRTY_JOB_IO_BOUND},
    {"restart_window", 2, ember_capture_nif_restart_window, ERL_NIF_DIRTY_JOB_IO_BOUND},
    {"close", 1, ember_capture_nif_close, ERL_NIF_DIRTY_JOB_IO_BOUND},
    {"watch", 1, nif_watch, 0},
    {"take_change", 0, nif_take_change, 0},
    {"set_costs", 9, ember_control_nif_set_costs, 0},
    {"stats", 0, nif_stats, ERL_NIF_DIRTY_JOB_IO_BOUND},
    {"check_layout", 4, ember_layout_nif_check, 0},
    {"probe", 1, ember_layout_nif_probe, 0},
    {"note_binaries", 0, ember_layout_nif_note_binaries, 0},
    {"walk", 0, ember_layout_nif_walk, 0},
    {"use_walks", 1, ember_layout_nif_use_walks, 0},
    {"forget_layout", 2, ember_layout_nif_forget, 0},
    {"owe_profile", 1, nif_owe_profile, 0},
    {"profile_info", 1, ember_profile_nif_info, 0},
    {"profile_beside", 1, ember_profile_nif_beside, 0},
    {"profile_processes", 1, ember_profile_nif_processes, 0},
    {"profile_functions", 2, ember_profile_nif_functions, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"profile_total", 2, ember_profile_nif_total, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"profile_stacks", 1, ember_profile_nif_stacks, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"profile_merge", 1, ember_profile_nif_merge, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"profile_filter", 3, ember_profile_nif_filter, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"profile_add_window", 5, ember_profile_nif_add_window, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"profile_settle", 1, ember_profile_nif_settle, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"profile_bytes", 1, ember_profile_nif_bytes, 0},
    {"profile_diff", 3, ember_profile_nif_diff, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"profile_annotate", 4, ember_profile_nif_annotate, 0},
    {"profile_cut", 2, ember_profile_nif_cut, 0},
    {"profile_leave_out", 2, ember_profile_nif_leave_out, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"profile_encode", 1, ember_profile_nif_encode, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"profile_decode", 1, ember_profile_nif_decode, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"profile_format", 5, ember_profile_nif_format, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"views", 0, ember_profile_nif_views, 0},
    {"mfa_text", 3, ember_profile_nif_mfa_text, 0},
    {"atom_text", 1, ember_profile_nif_atom_text, 0},
};

ERL_NIF_INIT(emberl_nif, functions, load, NULL, upgrade, NULL)
