/* SPDX-License-Identifier: Apache-2.0
 *
 * Captures and windows as emberl_control opens and closes them.
 */
#include "capture_nif.h"

#include "clock.h"
#include "control.h"
#include "stolen.h"
#include "term.h"

#include <stdlib.h>

/* ---- captures ---- */

static bool get_mfa(ErlNifEnv *env, ERL_NIF_TERM term, struct ember_function_key *function)
{
    int size;
    const ERL_NIF_TERM *words;
    if (!enif_get_tuple(env, term, &size, &words) || size != 3 || !enif_is_atom(env, words[0]) ||
        !enif_is_atom(env, words[1]) || !enif_get_uint(env, words[2], &function->arity) ||
        function->arity > 255 || (words[0] | words[1]) >> 32)
        return false;
    function->mfa = (struct ember_mfa){(uint32_t)words[0], (uint32_t)words[1]};
    return true;
}

static bool get_target(ErlNifEnv *env, ERL_NIF_TERM term, struct ember_capture *capture)
{
    struct ember_function_key function;
    if (!get_mfa(env, term, &function))
        return false;
    capture->target = function.mfa;
    capture->target_arity = (uint8_t)function.arity;
    return true;
}

static bool is_modules(ErlNifEnv *env, ERL_NIF_TERM term)
{
    unsigned count;
    return enif_is_atom(env, term) || enif_get_list_length(env, term, &count);
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

/* Some weeks. */
#define MOST_MS UINT32_MAX

/* all | {Calls, SlowerThanMs} */
static bool get_keep(ErlNifEnv *env, ERL_NIF_TERM term, struct ember_capture *capture)
{
    int arity;
    const ERL_NIF_TERM *words;
    ErlNifUInt64 calls;
    double ms;
    capture->keep = 0;
    if (enif_is_atom(env, term))
        return true;
    if (!enif_get_tuple(env, term, &arity, &words) || arity != 2 ||
        !enif_get_uint64(env, words[0], &calls) || !enif_get_double(env, words[1], &ms) ||
        !(ms >= 0 && ms <= MOST_MS))
        return false;
    capture->keep = calls;
    capture->slower_ticks = ms * 1e6 / ember_clock_ns_per_tick();
    return true;
}

static uint64_t ticks_of_ms(ErlNifUInt64 ms)
{
    double ticks = (double)ms * 1e6 / ember_clock_ns_per_tick();
    return ticks < 0x1p63 ? (uint64_t)ticks : UINT64_MAX;
}

/* none | {MaxEvents, LongestMs} */
static bool get_bounds(ErlNifEnv *env, ERL_NIF_TERM term, struct ember_capture *capture)
{
    int arity;
    const ERL_NIF_TERM *words;
    ErlNifUInt64 events;
    ErlNifUInt64 ms;
    capture->max_events = capture->max_ticks = UINT64_MAX;
    if (enif_is_atom(env, term))
        return true;
    if (!enif_get_tuple(env, term, &arity, &words) || arity != 2 ||
        !enif_get_uint64(env, words[0], &events) || !enif_get_uint64(env, words[1], &ms))
        return false;
    capture->max_events = events;
    capture->max_ticks = ticks_of_ms(ms);
    return true;
}

/* {MFA, Hidden, Fold, Spawned, Compensate, MemoryLimit, Modules, Merge, Timeline, Keep, Bounds} */
static bool get_capture(ErlNifEnv *env, ERL_NIF_TERM term, struct ember_capture *capture)
{
    int arity;
    const ERL_NIF_TERM *words;
    return enif_get_tuple(env, term, &arity, &words) && arity == 11 &&
           get_target(env, words[0], capture) &&
           ember_term_get_bool(env, words[1], &capture->hide_target) &&
           ember_term_get_bool(env, words[2], &capture->fold_recursion) &&
           ember_term_get_bool(env, words[3], &capture->spawned) &&
           ember_term_get_bool(env, words[4], &capture->compensate) &&
           get_limit(env, words[5], &capture->memory_limit) && is_modules(env, words[6]) &&
           ember_term_get_bool(env, words[7], &capture->merge) &&
           ember_term_get_bool(env, words[8], &capture->timeline) &&
           get_keep(env, words[9], capture) && get_bounds(env, words[10], capture);
}

/* The modules of a term that get_capture has taken; false when out of memory. */
static bool take_modules(ErlNifEnv *env, ERL_NIF_TERM term, struct ember_capture *capture)
{
    int arity;
    unsigned count;
    const ERL_NIF_TERM *words;
    capture->modules = NULL;
    capture->module_count = 0;
    if (!enif_get_tuple(env, term, &arity, &words) || !enif_get_list_length(env, words[6], &count))
        return true;
    capture->modules = malloc((count + 1u) * sizeof *capture->modules);
    if (capture->modules)
        capture->module_count = ember_term_sorted_atoms(env, words[6], capture->modules, count);
    return capture->modules != NULL;
}

/* {Target, Calls, Pid | any, WantsValue, Every, Disarmed} */
static bool get_intake(ErlNifEnv *env, ERL_NIF_TERM term, struct ember_intake *intake)
{
    int arity;
    const ERL_NIF_TERM *words;
    ErlNifSInt64 calls;
    ErlNifUInt64 every;
    if (!enif_get_tuple(env, term, &arity, &words) || arity != 6 ||
        !enif_get_uint(env, words[0], &intake->target) || intake->target >= EMBER_MAX_TARGETS ||
        !enif_get_int64(env, words[1], &calls) || calls < 1 ||
        !ember_term_get_bool(env, words[3], &intake->wants_value) ||
        !enif_get_uint64(env, words[4], &every) ||
        !ember_term_get_bool(env, words[5], &intake->disarmed))
        return false;
    intake->every = every;
    intake->calls = calls;
    intake->only_pid = enif_is_pid(env, words[2]) ? (uint64_t)words[2] : 0;
    return true;
}

static ERL_NIF_TERM open_capture(ErlNifEnv *env, struct ember_session *session,
                                 const struct ember_capture *capture,
                                 const struct ember_intake *intake)
{
    int slot = session ? ember_admission_reserve(session->admission) : -1;
    if (slot < 0) {
        free(capture->modules);
        return ember_term_error(env, session ? "too_many_captures" : "not_started");
    }
    ember_consumer_open(session->consumer, (uint32_t)slot, capture);
    ember_admission_open(session->admission, (uint32_t)slot, intake);
    return enif_make_tuple2(env, ember_term_atom(env, "ok"), enif_make_int(env, slot));
}

/* open(Capture, Intake) -> {ok, Slot} | {error, Reason} */
ERL_NIF_TERM ember_capture_nif_open(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    struct ember_capture capture;
    struct ember_intake intake;
    (void)argc;
    if (!get_intake(env, argv[1], &intake) || !get_capture(env, argv[0], &capture))
        return enif_make_badarg(env);
    if (!take_modules(env, argv[0], &capture))
        return ember_term_error(env, "out_of_memory");
    intake.spawned = capture.spawned;
    intake.value_after_ticks = capture.keep ? (uint64_t)capture.slower_ticks : 0;
    capture.stolen_ns = ember_stolen_ns();
    struct ember_session *session = ember_control_lock();
    const double *costs = ember_control_costs()->event_ns;
    for (int kind = 0; kind < EMBER_COST_KINDS; kind++)
        capture.event_ticks[kind] = capture.compensate ? costs[kind] / ember_clock_ns_per_tick()
                                                       : 0;
    ERL_NIF_TERM result = open_capture(env, session, &capture, &intake);
    ember_control_unlock();
    return result;
}

/* ---- windows ---- */

/* What is left of the room for frames says where the next goes. */
static bool get_frames(ErlNifEnv *env, ERL_NIF_TERM list, struct ember_window *window,
                       struct ember_window_process *process, uint32_t frames)
{
    ERL_NIF_TERM head;
    process->frames = frames;
    while (enif_get_list_cell(env, list, &head, &list))
        if (!get_mfa(env, head, &window->frames[frames + process->frame_count++]))
            return false;
    return true;
}

static bool get_activity(ErlNifEnv *env, ERL_NIF_TERM term, enum ember_activity *activity)
{
    static const char *const names[] = {"active", "ready", "idle"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        *activity = (enum ember_activity)i;
        if (enif_is_identical(term, ember_term_atom(env, names[i])))
            return true;
    }
    return false;
}

/* The elements of {Pid, Activity, Complete, [MFA]}, or NULL. */
static const ERL_NIF_TERM *process_words(ErlNifEnv *env, ERL_NIF_TERM term, unsigned *frames)
{
    int size;
    const ERL_NIF_TERM *words;
    ErlNifPid pid;
    bool fits = enif_get_tuple(env, term, &size, &words) && size == 4 &&
                enif_get_local_pid(env, words[0], &pid) &&
                enif_get_list_length(env, words[3], frames);
    return fits ? words : NULL;
}

static bool get_process(ErlNifEnv *env, ERL_NIF_TERM term, struct ember_window *window,
                        uint32_t *frames)
{
    unsigned count;
    const ERL_NIF_TERM *words = process_words(env, term, &count);
    if (!words)
        return false;
    struct ember_window_process *process = &window->processes[window->count++];
    *process = (struct ember_window_process){.pid = words[0]};
    bool fits = get_activity(env, words[1], &process->activity) &&
                ember_term_get_bool(env, words[2], &process->complete) &&
                get_frames(env, words[3], window, process, *frames);
    *frames += count;
    return fits;
}

/* How many processes the list has and frames they have in all; false where it is none. */
static bool count_processes(ErlNifEnv *env, ERL_NIF_TERM list, uint32_t *count, uint32_t *frames)
{
    ERL_NIF_TERM head;
    if (!enif_is_list(env, list))
        return false;
    for (*count = *frames = 0; enif_get_list_cell(env, list, &head, &list); ++*count) {
        unsigned more;
        if (!process_words(env, head, &more))
            return false;
        *frames += more;
    }
    return true;
}

static void free_window(struct ember_window *window)
{
    free(window->processes);
    free(window->frames);
}

static bool make_room(struct ember_window *window, uint32_t processes, uint32_t frames)
{
    *window = (struct ember_window){
        .processes = calloc(processes + 1u, sizeof *window->processes),
        .frames = calloc(frames + 1u, sizeof *window->frames),
    };
    return window->processes && window->frames;
}

static bool get_processes(ErlNifEnv *env, ERL_NIF_TERM list, struct ember_window *window)
{
    uint32_t frames = 0;
    ERL_NIF_TERM head;
    while (enif_get_list_cell(env, list, &head, &list))
        if (!get_process(env, head, window, &frames))
            return false;
    return true;
}

static struct ember_members *members_of(const struct ember_window *window)
{
    uint64_t *pids = malloc((window->count + 1u) * sizeof *pids);
    for (uint32_t i = 0; pids && i < window->count; i++)
        pids[i] = window->processes[i].pid;
    struct ember_members *members = pids ? ember_members_create(pids, window->count) : NULL;
    free(pids);
    return members;
}

/* First the consumer knows it, then the callbacks. */
static ERL_NIF_TERM open_window_in(ErlNifEnv *env, struct ember_session *session, uint32_t slot,
                                   const struct ember_capture *capture, struct ember_window *window,
                                   struct ember_members *members)
{
    struct ember_admission *admission = session->admission;
    uint64_t run = ember_admission_begin_window(admission, slot, capture->spawned);
    if (run == 0) {
        free(capture->modules);
        ember_members_destroy(members);
        ember_admission_reuse(admission, slot);
        return ember_term_error(env, "too_many_captures");
    }
    window->run = ember_run_value(run, slot);
    ember_consumer_open_window(session->consumer, slot, capture, window);
    ember_admission_open_window(admission, slot, members);
    return enif_make_tuple2(env, ember_term_atom(env, "ok"), enif_make_uint(env, slot));
}

static ERL_NIF_TERM open_window(ErlNifEnv *env, struct ember_session *session,
                                const struct ember_capture *capture, struct ember_window *window)
{
    struct ember_members *members = members_of(window);
    int slot = session && members ? ember_admission_reserve(session->admission) : -1;
    if (slot >= 0)
        return open_window_in(env, session, (uint32_t)slot, capture, window, members);
    free(capture->modules);
    ember_members_destroy(members);
    if (!members)
        return ember_term_error(env, "out_of_memory");
    return ember_term_error(env, session ? "too_many_captures" : "not_started");
}

/* With room for its processes. */
static ERL_NIF_TERM take_window(ErlNifEnv *env, const ERL_NIF_TERM argv[],
                                struct ember_capture *capture, struct ember_window *window)
{
    if (!get_processes(env, argv[1], window))
        return enif_make_badarg(env);
    if (!take_modules(env, argv[0], capture))
        return ember_term_error(env, "out_of_memory");
    capture->stolen_ns = ember_stolen_ns();
    ERL_NIF_TERM result = open_window(env, ember_control_lock(), capture, window);
    ember_control_unlock();
    return result;
}

/* open_window(Capture, [{Pid, active | ready | idle, Complete, [MFA]}]) -> {ok, Slot} |
 * {error, Reason}: what each process did when it was looked at last; of its stack the
 * oldest first. */
ERL_NIF_TERM ember_capture_nif_open_window(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    struct ember_capture capture = {0};
    struct ember_window window;
    uint32_t processes;
    uint32_t frames;
    (void)argc;
    if (!get_capture(env, argv[0], &capture) || !count_processes(env, argv[1], &processes, &frames))
        return enif_make_badarg(env);
    ERL_NIF_TERM result = make_room(&window, processes, frames)
                              ? take_window(env, argv, &capture, &window)
                              : ember_term_error(env, "out_of_memory");
    free_window(&window);
    return result;
}

/* ---- closing ---- */

/* No callback may still act for the capture when its last events are drained,
 * nor when its slot is given to another. */
static void close_capture(struct ember_session *session, uint32_t slot)
{
    ember_admission_close(session->admission, slot);
    ember_session_wait_for_callbacks();
    ember_consumer_close(session->consumer, slot);
    ember_admission_reuse(session->admission, slot);
}

static void arm_capture(struct ember_session *session, uint32_t slot)
{
    ember_admission_arm(session->admission, slot);
}

static bool get_slot(ErlNifEnv *env, ERL_NIF_TERM term, unsigned *slot)
{
    return enif_get_uint(env, term, slot) && *slot < EMBER_MAX_CAPTURES;
}

static ERL_NIF_TERM with_slot(ErlNifEnv *env, ERL_NIF_TERM term,
                              void (*act)(struct ember_session *session, uint32_t slot))
{
    unsigned slot;
    if (!get_slot(env, term, &slot))
        return enif_make_badarg(env);
    struct ember_session *session = ember_control_lock();
    if (session)
        act(session, slot);
    ember_control_unlock();
    return ember_term_atom(env, "ok");
}

/* close(Slot) -> ok: the messages of its runs have been sent when it returns. */
ERL_NIF_TERM ember_capture_nif_close(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    return with_slot(env, argv[0], close_capture);
}

/* restart_window(Slot, Ms) -> Events: from now on it counts, for so long at most; so many
 * events have been. */
ERL_NIF_TERM ember_capture_nif_restart_window(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    unsigned slot;
    ErlNifUInt64 ms;
    (void)argc;
    if (!get_slot(env, argv[0], &slot) || !enif_get_uint64(env, argv[1], &ms))
        return enif_make_badarg(env);
    struct ember_session *session = ember_control_lock();
    uint64_t events =
        session ? ember_consumer_restart_window(session->consumer, slot, ticks_of_ms(ms)) : 0;
    ember_control_unlock();
    return enif_make_uint64(env, events);
}

/* arm(Slot) -> ok: the next call is taken. */
ERL_NIF_TERM ember_capture_nif_arm(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    return with_slot(env, argv[0], arm_capture);
}

/* Not while a call is under way, which would not be seen to its end. */
static bool disarm(struct ember_admission *admission, uint32_t slot, uint64_t seen)
{
    if (ember_admission_seen(admission, slot) != seen)
        return false;
    ember_admission_disarm(admission, slot);
    ember_session_wait_for_callbacks();
    if (!ember_admission_is_active(admission, slot))
        return true;
    ember_admission_arm(admission, slot);
    return false;
}

/* disarm(Slot, Seen) -> disarmed | Seen: takes no calls from now on, if there were none
 * since `Seen' was given. */
ERL_NIF_TERM ember_capture_nif_disarm(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    unsigned slot;
    ErlNifUInt64 seen;
    (void)argc;
    if (!get_slot(env, argv[0], &slot) || !enif_get_uint64(env, argv[1], &seen))
        return enif_make_badarg(env);
    struct ember_session *session = ember_control_lock();
    struct ember_admission *admission = session ? session->admission : NULL;
    bool disarmed = !admission || disarm(admission, slot, seen);
    seen = admission ? ember_admission_seen(admission, slot) : 0;
    ember_control_unlock();
    return disarmed ? ember_term_atom(env, "disarmed") : enif_make_uint64(env, seen);
}
