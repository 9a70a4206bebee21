/* SPDX-License-Identifier: Apache-2.0
 *
 * The library as the VM sees it: loading, the table of functions, and the NIFs
 * that control the session. They are called by emberl_server alone, one at a
 * time; the mutex is for whoever calls them by hand.
 */
#include "clock.h"
#include "profile_build.h"
#include "profile_nif.h"
#include "session.h"
#include "term.h"
#include "tracer.h"
#include "vm_heap.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static struct {
    pthread_mutex_t mutex; /* protects the rest, but for what the consumer reads */
    unsigned loads;        /* instances of the module that use this library */
    uint64_t generation;   /* of the last session */
    struct ember_session *session;
    ErlNifPid owner;  /* set before the session's consumer starts */
    ErlNifEnv *atoms; /* consumer thread: to look at atoms */
    double cost_ns[EMBER_COST_KINDS];
} control = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- what the consumer thread hands out ---- */

static char *atom_name(uint64_t atom)
{
    return ember_term_atom_name(control.atoms, (ERL_NIF_TERM)atom);
}

static char *pid_text(uint64_t pid)
{
    char text[64];
    enif_snprintf(text, sizeof text, "%T", (ERL_NIF_TERM)pid);
    return strdup(text);
}

static uint32_t fallbacks_in_use(void)
{
    return (ember_vm_heap.exact ? 0u : EMBER_FALLBACK_STACK | EMBER_FALLBACK_HEAP) |
           (ember_clock_uses_counter ? 0u : EMBER_FALLBACK_CLOCK);
}

static int64_t utc_us_at(uint64_t ticks, double ns_per_tick)
{
    struct timespec now;
    uint64_t origin = control.session ? control.session->origin_ticks : 0;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t us = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
    return us - (int64_t)((double)(ember_clock_ticks() - origin - ticks) * ns_per_tick / 1000);
}

static struct ember_profile *build_profile(const struct ember_run *run,
                                           const struct ember_capture *capture,
                                           const struct ember_function_table *functions)
{
    struct ember_build build = {
        .functions = functions,
        .ns_per_tick = ember_clock_ns_per_tick(),
        .fallbacks = fallbacks_in_use(),
        .atom_name = atom_name,
        .pid_text = pid_text,
    };
    if (capture->compensate)
        memcpy(build.cost_ns, control.cost_ns, sizeof build.cost_ns);
    build.end_us = utc_us_at(run->end_ticks, build.ns_per_tick);
    return ember_profile_build(run, &build);
}

static void send_owner(ErlNifEnv *env, ERL_NIF_TERM message)
{
    enif_send(NULL, &control.owner, env, message);
    enif_free_env(env);
}

/* {emberl_run, Capture, Run, Profile | out_of_memory} */
static void on_run(void *context, struct ember_run *run, const struct ember_capture *capture,
                   const struct ember_function_table *functions)
{
    (void)context;
    struct ember_profile *profile = build_profile(run, capture, functions);
    ErlNifEnv *env = enif_alloc_env();
    ERL_NIF_TERM term = profile ? ember_profile_nif_term(env, profile)
                                : ember_term_atom(env, "out_of_memory");
    send_owner(env, enif_make_tuple4(env, ember_term_atom(env, "emberl_run"),
                                     enif_make_uint(env, run->capture),
                                     enif_make_uint64(env, run->id), term));
    ember_run_destroy(run);
}

/* {emberl_limit, Capture} */
static void on_limit(void *context, uint32_t capture)
{
    (void)context;
    ErlNifEnv *env = enif_alloc_env();
    send_owner(env, enif_make_tuple2(env, ember_term_atom(env, "emberl_limit"),
                                     enif_make_uint(env, capture)));
}

static uint64_t lost_until_now(void *context)
{
    (void)context;
    return control.session ? ember_session_lost(control.session) : 0;
}

/* ---- the session ---- */

/* Every thread that may run callbacks: schedulers of all kinds and a few more
 * for ports. */
static uint32_t thread_count(void)
{
    ErlNifSysInfo info;
    enif_system_info(&info, sizeof info);
    enum { DIRTY_IO = 64, SPARE = 4 };
    return (uint32_t)info.scheduler_threads * 2 + DIRTY_IO + SPARE;
}

static void end_session(void)
{
    struct ember_session *session = control.session;
    ember_session_destroy(session);
    control.session = NULL;
    if (control.atoms)
        enif_free_env(control.atoms);
    control.atoms = NULL;
}

/* start(Owner, ReturnToWords, BeginWords, BeginBeforeCall) -> {ok, Generation} */
static ERL_NIF_TERM start_session(ErlNifEnv *env, const ErlNifPid *owner,
                                  struct ember_stack_layout layout)
{
    if (control.session)
        return ember_term_error(env, "already_started");
    struct ember_consumer_options options = {
        .layout = layout,
        .outlet = {NULL, on_run, on_limit, lost_until_now},
    };
    control.owner = *owner;
    control.atoms = enif_alloc_env();
    ember_tracer_set_owner(owner);
    control.session = ember_session_create(++control.generation, thread_count(), &options);
    if (!control.session) {
        end_session();
        return ember_term_error(env, "out_of_memory");
    }
    ember_session_publish(control.session);
    return enif_make_tuple2(env, ember_term_atom(env, "ok"),
                            enif_make_uint64(env, control.generation));
}

static ERL_NIF_TERM nif_start(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    ErlNifPid owner;
    struct ember_stack_layout layout;
    (void)argc;
    if (!enif_get_local_pid(env, argv[0], &owner) ||
        !enif_get_uint(env, argv[1], &layout.return_to_words) ||
        !enif_get_uint(env, argv[2], &layout.begin_words) ||
        !ember_term_get_bool(env, argv[3], &layout.begin_before_call))
        return enif_make_badarg(env);
    pthread_mutex_lock(&control.mutex);
    ERL_NIF_TERM result = start_session(env, &owner, layout);
    pthread_mutex_unlock(&control.mutex);
    return result;
}

/* stop() -> ok: ends the session, if any. */
static ERL_NIF_TERM nif_stop(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    (void)argv;
    pthread_mutex_lock(&control.mutex);
    end_session();
    pthread_mutex_unlock(&control.mutex);
    return ember_term_atom(env, "ok");
}

/* ---- captures ---- */

static bool get_mfa(ErlNifEnv *env, ERL_NIF_TERM term, struct ember_capture *capture)
{
    int arity;
    unsigned target_arity;
    const ERL_NIF_TERM *words;
    if (!enif_get_tuple(env, term, &arity, &words) || arity != 3 || !enif_is_atom(env, words[0]) ||
        !enif_is_atom(env, words[1]) || !enif_get_uint(env, words[2], &target_arity) ||
        target_arity > 255 || (words[0] | words[1]) >> 32)
        return false;
    capture->target = (struct ember_mfa){(uint32_t)words[0], (uint32_t)words[1]};
    capture->target_arity = (uint8_t)target_arity;
    return true;
}

static int compare_words(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* all | [Module] */
static bool get_modules(ErlNifEnv *env, ERL_NIF_TERM term, struct ember_capture *capture)
{
    unsigned count;
    ERL_NIF_TERM head;
    capture->modules = NULL;
    capture->module_count = 0;
    if (!enif_get_list_length(env, term, &count))
        return enif_is_atom(env, term);
    capture->modules = malloc((count + 1u) * sizeof *capture->modules);
    while (capture->modules && enif_get_list_cell(env, term, &head, &term))
        capture->modules[capture->module_count++] = (uint32_t)head;
    if (capture->modules)
        qsort(capture->modules, count, sizeof *capture->modules, compare_words);
    return capture->modules != NULL;
}

static bool get_limit(ErlNifEnv *env, ERL_NIF_TERM term, size_t *limit)
{
    ErlNifUInt64 bytes;
    *limit = SIZE_MAX;
    if (enif_is_atom(env, term))
        return true;
    if (!enif_get_uint64(env, term, &bytes))
        return false;
    *limit = bytes;
    return true;
}

/* {MFA, Hidden, Fold, Spawned, Compensate, MemoryLimit, Modules} */
static bool get_capture(ErlNifEnv *env, ERL_NIF_TERM term, struct ember_capture *capture)
{
    int arity;
    const ERL_NIF_TERM *words;
    return enif_get_tuple(env, term, &arity, &words) && arity == 7 &&
           get_mfa(env, words[0], capture) &&
           ember_term_get_bool(env, words[1], &capture->hide_target) &&
           ember_term_get_bool(env, words[2], &capture->fold_recursion) &&
           ember_term_get_bool(env, words[3], &capture->spawned) &&
           ember_term_get_bool(env, words[4], &capture->compensate) &&
           get_limit(env, words[5], &capture->memory_limit) &&
           get_modules(env, words[6], capture);
}

/* {Target, Calls, Pid | any, WantsValue} */
static bool get_intake(ErlNifEnv *env, ERL_NIF_TERM term, struct ember_intake *intake)
{
    int arity;
    const ERL_NIF_TERM *words;
    ErlNifSInt64 calls;
    if (!enif_get_tuple(env, term, &arity, &words) || arity != 4 ||
        !enif_get_uint(env, words[0], &intake->target) || intake->target >= EMBER_MAX_TARGETS ||
        !enif_get_int64(env, words[1], &calls) || calls < 1 ||
        !ember_term_get_bool(env, words[3], &intake->wants_value))
        return false;
    intake->calls = calls;
    intake->only_pid = enif_is_pid(env, words[2]) ? (uint64_t)words[2] : 0;
    return true;
}

static ERL_NIF_TERM open_capture(ErlNifEnv *env, const struct ember_capture *capture,
                                 const struct ember_intake *intake)
{
    int slot = control.session ? ember_admission_reserve(control.session->admission) : -1;
    if (slot < 0) {
        free(capture->modules);
        return ember_term_error(env, control.session ? "too_many_captures" : "not_started");
    }
    ember_consumer_open(control.session->consumer, (uint32_t)slot, capture);
    ember_admission_open(control.session->admission, (uint32_t)slot, intake);
    return enif_make_tuple2(env, ember_term_atom(env, "ok"), enif_make_int(env, slot));
}

/* open(Capture, Intake) -> {ok, Slot} | {error, Reason} */
static ERL_NIF_TERM nif_open(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    struct ember_capture capture;
    struct ember_intake intake;
    (void)argc;
    if (!get_intake(env, argv[1], &intake) || !get_capture(env, argv[0], &capture))
        return enif_make_badarg(env);
    intake.spawned = capture.spawned;
    pthread_mutex_lock(&control.mutex);
    ERL_NIF_TERM result = open_capture(env, &capture, &intake);
    pthread_mutex_unlock(&control.mutex);
    return result;
}

/* No callback may still act for the capture when its last events are drained,
 * nor when its slot is given to another. */
static void close_capture(uint32_t slot)
{
    if (!control.session)
        return;
    ember_admission_close(control.session->admission, slot);
    ember_session_wait_for_callbacks();
    ember_consumer_close(control.session->consumer, slot);
    ember_admission_reuse(control.session->admission, slot);
}

/* close(Slot) -> ok: the messages of its runs have been sent when it returns. */
static ERL_NIF_TERM nif_close(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    unsigned slot;
    (void)argc;
    if (!enif_get_uint(env, argv[0], &slot) || slot >= EMBER_MAX_CAPTURES)
        return enif_make_badarg(env);
    pthread_mutex_lock(&control.mutex);
    close_capture(slot);
    pthread_mutex_unlock(&control.mutex);
    return ember_term_atom(env, "ok");
}

/* ---- costs, statistics, checks ---- */

/* set_costs(Call, Return, Switch, Gc) in ns: while no session is on. */
static ERL_NIF_TERM nif_set_costs(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    double cost_ns[EMBER_COST_KINDS] = {0};
    for (int i = 0; i < EMBER_COST_KINDS && i < argc; i++)
        if (!enif_get_double(env, argv[i], &cost_ns[i]) || cost_ns[i] < 0)
            return enif_make_badarg(env);
    pthread_mutex_lock(&control.mutex);
    memcpy(control.cost_ns, cost_ns, sizeof cost_ns);
    pthread_mutex_unlock(&control.mutex);
    return ember_term_atom(env, "ok");
}

/* stats() -> #{running, rings, events, lost} */
static ERL_NIF_TERM nif_stats(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    (void)argv;
    struct ember_term_map map = ember_term_map_new(env);
    pthread_mutex_lock(&control.mutex);
    struct ember_session *session = control.session;
    ember_term_map_put(&map, "running", ember_term_atom(env, session ? "true" : "false"));
    ember_term_map_put_number(&map, "rings", session ? atomic_load(&session->rings_claimed) : 0);
    ember_term_map_put_number(&map, "events",
                              session ? ember_consumer_events(session->consumer) : 0);
    ember_term_map_put_number(&map, "lost", session ? ember_session_lost(session) : 0);
    pthread_mutex_unlock(&control.mutex);
    return map.map;
}

static ERL_NIF_TERM layout_result(ErlNifEnv *env)
{
    return ember_term_atom(env, ember_vm_heap.exact ? "exact" : "fallback");
}

static void check_layout(ErlNifEnv *env, struct ember_vm_sizes sizes, bool first)
{
    ErlNifPid self;
    if (enif_self(env, &self))
        ember_vm_heap_check(env, enif_make_pid(env, &self), sizes, first);
}

/* check_layout(BlockWords, FragmentWords, First) -> exact | fallback: see
 * vm_heap.h. Not while a session is on. */
static ERL_NIF_TERM nif_check_layout(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    ErlNifUInt64 block;
    ErlNifUInt64 fragments;
    bool first;
    (void)argc;
    if (!enif_get_uint64(env, argv[0], &block) || !enif_get_uint64(env, argv[1], &fragments) ||
        !ember_term_get_bool(env, argv[2], &first))
        return enif_make_badarg(env);
    pthread_mutex_lock(&control.mutex);
    if (!control.session)
        check_layout(env, (struct ember_vm_sizes){block, fragments}, first);
    pthread_mutex_unlock(&control.mutex);
    return layout_result(env);
}

/* forget_layout(Exact, Tuples) -> exact | fallback: do without, for tests. */
static ERL_NIF_TERM nif_forget_layout(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    bool exact;
    bool tuples;
    (void)argc;
    if (!ember_term_get_bool(env, argv[0], &exact) || !ember_term_get_bool(env, argv[1], &tuples))
        return enif_make_badarg(env);
    pthread_mutex_lock(&control.mutex);
    if (!control.session)
        ember_vm_heap_forget(exact, tuples);
    pthread_mutex_unlock(&control.mutex);
    return layout_result(env);
}

/* ---- loading ---- */

static int begin_use(ErlNifEnv *env)
{
    if (control.loads++ == 0)
        ember_clock_init();
    ember_tracer_init(env);
    return ember_profile_nif_init(env);
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

/* The last instance of the module is gone: nothing of ours may go on. */
static void unload(ErlNifEnv *env, void *priv)
{
    (void)env;
    (void)priv;
    pthread_mutex_lock(&control.mutex);
    if (--control.loads == 0)
        end_session();
    pthread_mutex_unlock(&control.mutex);
}

static ErlNifFunc functions[] = {
    {"enabled", 3, ember_tracer_enabled, 0},
    {"trace", 5, ember_tracer_trace, 0},
    {"start", 4, nif_start, ERL_NIF_DIRTY_JOB_IO_BOUND},
    {"stop", 0, nif_stop, ERL_NIF_DIRTY_JOB_IO_BOUND},
    {"open", 2, nif_open, ERL_NIF_DIRTY_JOB_IO_BOUND},
    {"close", 1, nif_close, ERL_NIF_DIRTY_JOB_IO_BOUND},
    {"set_costs", 4, nif_set_costs, 0},
    {"stats", 0, nif_stats, ERL_NIF_DIRTY_JOB_IO_BOUND},
    {"check_layout", 3, nif_check_layout, 0},
    {"forget_layout", 2, nif_forget_layout, 0},
    {"profile_info", 1, ember_profile_nif_info, 0},
    {"profile_processes", 1, ember_profile_nif_processes, 0},
    {"profile_functions", 2, ember_profile_nif_functions, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"profile_stacks", 1, ember_profile_nif_stacks, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"profile_merge", 1, ember_profile_nif_merge, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"profile_annotate", 4, ember_profile_nif_annotate, 0},
    {"profile_encode", 1, ember_profile_nif_encode, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"profile_decode", 1, ember_profile_nif_decode, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"profile_format", 4, ember_profile_nif_format, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"views", 0, ember_profile_nif_views, 0},
};

ERL_NIF_INIT(emberl_nif, functions, load, NULL, upgrade, unload)
