/* SPDX-License-Identifier: Apache-2.0
 *
 * What emberl_control asks of the session: to begin and to end it. Its NIFs are called
 * by that process alone, one at a time; the mutex is for whoever calls them by hand.
 */
#include "control.h"

#include "clock.h"
#include "profile_build.h"
#include "profile_nif.h"
#include "resource.h"
#include "stolen.h"
#include "term.h"
#include "tracer.h"
#include "vm_heap.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MOST_OWN_MODULES 64

static struct {
    pthread_mutex_t mutex; /* protects the rest, but for what the consumer reads */
    uint64_t generation;   /* of the last session */
    _Atomic(struct ember_session *) session; /* set under the mutex; the consumer reads it */
    ErlNifPid owner;                         /* set before the session's consumer starts */
    struct watch *watch;                     /* of the owner */
    ErlNifEnv *atoms;                        /* consumer thread: to look at atoms */
    uint32_t own_modules[MOST_OWN_MODULES];  /* likewise; sorted */
    uint32_t own_module_count;
    struct ember_costs costs;
} control = {.mutex = PTHREAD_MUTEX_INITIALIZER};

struct ember_session *ember_control_lock(void)
{
    pthread_mutex_lock(&control.mutex);
    return control.session;
}

void ember_control_unlock(void)
{
    pthread_mutex_unlock(&control.mutex);
}

const struct ember_costs *ember_control_costs(void)
{
    return &control.costs;
}

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
           (ember_vm_heap.exact && ember_vm_heap.binaries ? 0u : EMBER_FALLBACK_BINARIES) |
           (ember_vm_heap.runnable ? 0u : EMBER_FALLBACK_WAITING) |
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

/* Consumer thread. Runs may end in quick succession, so it may be a little old. */
static uint64_t stolen_until_now(void)
{
    static uint64_t read_at;
    static uint64_t stolen_ns;
    uint64_t now = ember_clock_ticks();
    if ((double)(now - read_at) * ember_clock_ns_per_tick() > 1e7) {
        stolen_ns = ember_stolen_ns();
        read_at = now;
    }
    return stolen_ns;
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
    if (capture->compensate) {
        build.costs = control.costs;
        uint64_t stolen_ns = stolen_until_now();
        build.stolen_ns = stolen_ns > capture->stolen_ns ? stolen_ns - capture->stolen_ns : 0;
    }
    build.end_us = utc_us_at(run->end_ticks, build.ns_per_tick);
    return ember_profile_build(run, &build);
}

static void send_owner(ErlNifEnv *env, ERL_NIF_TERM message)
{
    enif_send(NULL, &control.owner, env, message);
    enif_free_env(env);
}

/* {emberl_run, Capture, Run, Profile | out_of_memory} */
static size_t on_run(void *context, struct ember_run *run, const struct ember_capture *capture,
                     const struct ember_function_table *functions)
{
    (void)context;
    struct ember_profile *profile = build_profile(run, capture, functions);
    size_t bytes = profile ? ember_profile_bytes(profile) : 0;
    ErlNifEnv *env = enif_alloc_env();
    ERL_NIF_TERM term = profile ? ember_profile_nif_term(env, profile)
                                : ember_term_atom(env, "out_of_memory");
    send_owner(env, enif_make_tuple4(env, ember_term_atom(env, "emberl_run"),
                                     enif_make_uint(env, run->capture),
                                     enif_make_uint64(env, run->id), term));
    ember_run_destroy(run);
    return bytes;
}

/* {emberl_run, Capture, Run, {merged, Pid, HasEnded}}; HasEnded: it has a value or
 * an exception. A run that could not be followed has no process. */
static void on_merged(void *context, const struct ember_run *run)
{
    (void)context;
    ErlNifEnv *env = enif_alloc_env();
    bool known = run->process_count > 0;
    bool ended = run->outcome == EMBER_OUTCOME_RETURNED || run->outcome == EMBER_OUTCOME_RAISED;
    ERL_NIF_TERM merged =
        enif_make_tuple3(env, ember_term_atom(env, "merged"),
                         known ? run->processes[0].pid : ember_term_atom(env, "undefined"),
                         ember_term_atom(env, ended ? "true" : "false"));
    send_owner(env, enif_make_tuple4(env, ember_term_atom(env, "emberl_run"),
                                     enif_make_uint(env, run->capture),
                                     enif_make_uint64(env, run->id), merged));
}

/* {emberl_limit, Capture} */
static void on_limit(void *context, uint32_t capture)
{
    (void)context;
    if (control.session)
        ember_admission_close(control.session->admission, capture); /* costs nothing more */
    ErlNifEnv *env = enif_alloc_env();
    send_owner(env, enif_make_tuple2(env, ember_term_atom(env, "emberl_limit"),
                                     enif_make_uint(env, capture)));
}

/* {emberl_called, Capture}: one that waits has been called. The callback that saw it may
 * not send. */
static void on_drained(void *context)
{
    (void)context;
    struct ember_session *session = control.session;
    uint64_t called = session ? ember_admission_called(session->admission) : 0;
    for (; called; called &= called - 1) {
        ErlNifEnv *env = enif_alloc_env();
        send_owner(env, enif_make_tuple2(env, ember_term_atom(env, "emberl_called"),
                                         enif_make_int(env, __builtin_ctzll(called))));
    }
}

static uint64_t lost_until_now(void *context)
{
    (void)context;
    return control.session ? ember_session_lost(control.session) : 0;
}

/* In the consumer's thread, which ends before its session does. */
static bool has_ended(void *context, uint64_t run)
{
    (void)context;
    struct ember_session *session = control.session;
    return session &&
           ember_admission_has_ended(session->admission, ember_run_of(run), ember_capture_of(run));
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
    ember_session_destroy(control.session);
    control.session = NULL;
    if (control.atoms)
        enif_free_env(control.atoms);
    control.atoms = NULL;
    if (control.watch)
        enif_release_resource(control.watch);
    control.watch = NULL;
}

/* A session ends with its owner, even when nobody is left in Erlang to end it. */
struct watch {
    uint64_t generation;
};

static ember_resource_type watch_type;

static void *end_session_of(void *generation)
{
    (void)ember_control_lock();
    if (control.session && control.session->generation == (uintptr_t)generation)
        end_session();
    ember_control_unlock();
    return NULL;
}

/* Scheduler thread, which may not wait for callbacks and the consumer. */
static void owner_died(ErlNifEnv *env, void *watch, ErlNifPid *pid, ErlNifMonitor *monitor)
{
    pthread_t thread;
    void *generation = (void *)(uintptr_t)((struct watch *)watch)->generation;
    (void)env;
    (void)pid;
    (void)monitor;
    if (pthread_create(&thread, NULL, end_session_of, generation) == 0)
        pthread_detach(thread);
}

bool ember_control_init(ErlNifEnv *env)
{
    const ErlNifResourceTypeInit callbacks = {.down = owner_died};
    return ember_resource_open(env, "emberl_watch", &callbacks, &watch_type);
}

/* A process that is killed in a NIF goes on until it returns. It must not start
 * what others have cleaned up after already. */
static bool watch_owner(ErlNifEnv *env)
{
    control.watch = enif_alloc_resource(watch_type, sizeof *control.watch);
    control.watch->generation = ++control.generation;
    return enif_monitor_process(env, control.watch, &control.owner, NULL) == 0;
}

static ERL_NIF_TERM start_failed(ErlNifEnv *env, const char *reason)
{
    end_session();
    return ember_term_error(env, reason);
}

/* start(Owner, ReturnToWords, BeginWords, BeginBeforeCall, OwnModules) -> {ok, Generation} */
static ERL_NIF_TERM start_session(ErlNifEnv *env, const ErlNifPid *owner,
                                  struct ember_stack_layout layout)
{
    if (control.session)
        return ember_term_error(env, "already_started");
    control.owner = *owner;
    if (!watch_owner(env))
        return start_failed(env, "owner_is_dead");
    struct ember_consumer_options options = {
        .layout = layout,
        .outlet = {NULL, on_run, on_merged, on_limit, lost_until_now, has_ended, on_drained},
        .own_modules = control.own_modules,
        .own_module_count = control.own_module_count,
    };
    control.atoms = enif_alloc_env();
    ember_tracer_set_owner(owner);
    control.session = ember_session_create(control.generation, thread_count(), &options);
    if (!control.session)
        return start_failed(env, "out_of_memory");
    ember_session_publish(control.session);
    return enif_make_tuple2(env, ember_term_atom(env, "ok"),
                            enif_make_uint64(env, control.generation));
}

ERL_NIF_TERM ember_control_nif_start(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    ErlNifPid owner;
    uint32_t pointer = ember_vm_heap.frame_pointers;
    struct ember_stack_layout layout = {.return_words = 1 + pointer};
    (void)argc;
    if (!enif_get_local_pid(env, argv[0], &owner) ||
        !enif_get_uint(env, argv[1], &layout.return_to_words) ||
        !enif_get_uint(env, argv[2], &layout.begin_words) ||
        !ember_term_get_bool(env, argv[3], &layout.begin_before_call))
        return enif_make_badarg(env);
    layout.return_to_words += pointer; /* each has one of its own */
    layout.begin_words += pointer;
    (void)ember_control_lock();
    if (!control.session)
        control.own_module_count =
            ember_term_sorted_atoms(env, argv[4], control.own_modules, MOST_OWN_MODULES);
    ERL_NIF_TERM result = start_session(env, &owner, layout);
    ember_control_unlock();
    return result;
}

/* stop() -> ok: ends the session, if any. */
ERL_NIF_TERM ember_control_nif_stop(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    (void)argv;
    (void)ember_control_lock();
    end_session();
    ember_control_unlock();
    return ember_term_atom(env, "ok");
}

/* set_costs(Call, Return, Switch, Gc, Beside, GcInside, Least, Word, Spread): see compensation.h;
 * while no session is on. */
ERL_NIF_TERM ember_control_nif_set_costs(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    struct ember_costs costs = {0};
    double *const numbers[] = {&costs.event_ns[EMBER_COST_CALL],
                               &costs.event_ns[EMBER_COST_RETURN],
                               &costs.event_ns[EMBER_COST_SWITCH],
                               &costs.event_ns[EMBER_COST_GC],
                               &costs.event_ns[EMBER_COST_BESIDE],
                               &costs.gc_inside_ns,
                               &costs.least_ns,
                               &costs.word_ns,
                               &costs.spread};
    for (int i = 0; i < argc; i++)
        if (!enif_get_double(env, argv[i], numbers[i]) || *numbers[i] < 0)
            return enif_make_badarg(env);
    (void)ember_control_lock();
    control.costs = costs;
    ember_control_unlock();
    return ember_term_atom(env, "ok");
}
