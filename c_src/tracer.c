/* SPDX-License-Identifier: Apache-2.0 */
#include "tracer.h"

#include "clock.h"
#include "session.h"
#include "vm_heap.h"

#include <string.h>
#define _LGPL_SOURCE /* read sections inline */
#include <urcu-bp.h>

/* Thread-locals at a fixed offset instead of through a function call. Only the
 * GNU loader has room for those of a library that is loaded late. */
#ifdef __GLIBC__
#define EMBER_TLS_MODEL __attribute__((tls_model("initial-exec")))
extern _Thread_local EMBER_TLS_MODEL struct urcu_bp_reader *urcu_bp_reader;
#else
#define EMBER_TLS_MODEL
#endif

/* How long a full ring is waited for, and in what steps. */
#define WAIT_STEP_NS 50000
#define WAIT_STEPS 4000

#define ATOMS(X) \
    X(trace) \
    X(discard) \
    X(remove) \
    X(ok) \
    X(trace_status) \
    X(call) \
    X(return_to) \
    X(return_from) \
    X(exception_from) \
    X(in) \
    X(out) \
    X(gc_minor_start) \
    X(gc_minor_end) \
    X(gc_major_start) \
    X(gc_major_end) \
    X(spawn) \
    X(exit) \
    X(heap_size) \
    X(mbuf_size) \
    X(extra) \
    X(emberl_value) \
    X(proc_lib) \
    X(init_p)
#define X_DECLARE(name) static ERL_NIF_TERM atom_##name;
#define X_MAKE(name) atom_##name = enif_make_atom(env, #name);
ATOMS(X_DECLARE)
static ERL_NIF_TERM atom_register;

/* What this thread knows. `ring` is good for one session; the verdict that
 * `pid` takes part, asked for with `state`, while the epoch stands. */
static _Thread_local EMBER_TLS_MODEL struct {
    uint64_t epoch;
    uint64_t pid;
    ERL_NIF_TERM state;
    struct ember_ring *ring; /* NULL: every ring was taken */
    uint64_t generation;     /* of `ring`; 0: none yet */
    struct ember_vm_block block; /* of `pid`, as written last */
} mine;

/* The call that this thread has just admitted: written down before the match
 * specification runs, so that no more calls than asked for get a return trace.
 * trace/5 follows on this thread and gives the event; see write_begin. */
static _Thread_local EMBER_TLS_MODEL struct {
    uint64_t pid;
    bool traced; /* it was before */
    unsigned count;
    struct ember_admitted runs[EMBER_MAX_MEMBERSHIPS];
} admitted;

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define RARE __attribute__((cold, noinline))

void ember_tracer_init(ErlNifEnv *env)
{
    ATOMS(X_MAKE)
    atom_register = enif_make_atom(env, "register");
}

static ErlNifPid owner;

void ember_tracer_set_owner(const ErlNifPid *pid)
{
    owner = *pid;
}

static bool decode_state(ERL_NIF_TERM state, uint64_t *generation, uint32_t *target)
{
    enum { SMALL_TAG = 15 };
    if ((state & 15) != SMALL_TAG)
        return false;
    uint64_t number = state >> 4;
    *generation = number >> 7;
    *target = (uint32_t)number & 127;
    return true;
}

/* ---- enabled ---- */

/* Whether `pid` takes part. Most events are of the process that had the last
 * one on this thread, so its verdict is kept until anyone's may have changed.
 * Acquire: pairs with the release in advance_epoch. */
static inline bool watched_as_before(ERL_NIF_TERM state, uint64_t pid)
{
    return mine.pid == pid && mine.state == state &&
           mine.epoch == atomic_load_explicit(&ember_admission_epoch, memory_order_acquire);
}

/* What was written last is not sure, so it is written again. */
static inline void forget_block(void)
{
    mine.block = (struct ember_vm_block){.start = 1, .fragments = UINT64_MAX};
}

static bool is_watched(struct ember_session *session, ERL_NIF_TERM state, uint64_t pid)
{
    uint64_t epoch = atomic_load_explicit(&ember_admission_epoch, memory_order_acquire);
    if (!ember_admission_watched(session->admission, pid))
        return false;
    if (mine.pid != pid)
        forget_block();
    mine.pid = pid;
    mine.state = state;
    mine.epoch = epoch;
    return true;
}

static ERL_NIF_TERM target_enabled(struct ember_session *session, ERL_NIF_TERM tag,
                                   uint32_t target, uint64_t pid)
{
    if (tag == atom_trace_status)
        return atom_trace;
    admitted.traced = ember_admission_known(session->admission, pid);
    admitted.count = ember_admission_enter(session->admission, target, pid, admitted.runs);
    admitted.pid = pid;
    return admitted.count ? atom_trace : atom_discard;
}

/* A process that takes part in nothing: its last run has ended, or it calls a
 * target that captures nothing of it. A target's own breakpoint is asked before
 * the one that turns tracing on, since it was set later. */
static ERL_NIF_TERM unknown_enabled(struct ember_session *session, ERL_NIF_TERM tag, uint64_t pid)
{
    if (tag != atom_trace_status)
        return atom_discard;
    ember_admission_forget(session->admission, pid);
    return atom_remove;
}

static ERL_NIF_TERM decide(struct ember_session *session, const ERL_NIF_TERM argv[])
{
    ERL_NIF_TERM tag = argv[0];
    uint64_t generation;
    uint32_t target;
    if (!session || !decode_state(argv[1], &generation, &target) ||
        generation != session->generation)
        return tag == atom_trace_status ? atom_remove : atom_discard;
    if (target != EMBER_STATE_MAIN)
        return target_enabled(session, tag, target, argv[2]);
    if (is_watched(session, argv[1], argv[2]))
        return atom_trace;
    return unknown_enabled(session, tag, argv[2]);
}

static RARE ERL_NIF_TERM enabled_slowly(const ERL_NIF_TERM argv[])
{
    if (argv[0] != atom_trace_status && argv[0] != atom_call)
        return atom_trace;
    rcu_read_lock();
    ERL_NIF_TERM answer = decide(rcu_dereference(ember_session_current), argv);
    rcu_read_unlock();
    return answer;
}

/* enabled(Tag, State, Tracee) */
ERL_NIF_TERM ember_tracer_enabled(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)env;
    (void)argc;
    return LIKELY(watched_as_before(argv[1], argv[2])) ? atom_trace : enabled_slowly(argv);
}

/* ---- rings ---- */

static RARE void claim_ring(struct ember_session *session)
{
    uint32_t index = atomic_fetch_add_explicit(&session->rings_claimed, 1, memory_order_relaxed);
    mine.ring = index < session->ring_count ? session->rings[index] : NULL;
    mine.generation = session->generation;
}

/* A consumer that was waited for in vain is not waited for again until it has
 * moved. */
static RARE struct ember_event *wait_for_room(struct ember_session *session, struct ember_ring *ring)
{
    struct timespec step = {.tv_nsec = WAIT_STEP_NS};
    struct ember_event *slot = ember_ring_reserve(ring);
    if (atomic_load_explicit(&session->stalled, memory_order_relaxed) && !slot)
        return NULL;
    for (int i = 0; i < WAIT_STEPS && !slot; i++) {
        nanosleep(&step, NULL);
        slot = ember_ring_reserve(ring);
    }
    atomic_store_explicit(&session->stalled, !slot, memory_order_relaxed);
    return slot;
}

/* The event that found no room, after waiting for some; NULL: it is lost. */
static RARE struct ember_event *reserve_slowly(struct ember_session *session)
{
    if (mine.generation != session->generation)
        claim_ring(session);
    if (!mine.ring) {
        atomic_fetch_add_explicit(&session->lost_no_ring, 1, memory_order_relaxed);
        return NULL;
    }
    struct ember_event *slot = wait_for_room(session, mine.ring);
    if (!slot)
        atomic_fetch_add_explicit(&mine.ring->producer.lost, 1, memory_order_relaxed);
    return slot;
}

static inline struct ember_event *reserve(struct ember_session *session)
{
    struct ember_event *slot = NULL;
    if (LIKELY(mine.generation == session->generation && mine.ring))
        slot = ember_ring_reserve(mine.ring);
    return LIKELY(slot) ? slot : reserve_slowly(session);
}

static RARE void count_bad_term(struct ember_session *session)
{
    atomic_fetch_add_explicit(&session->lost_bad_term, 1, memory_order_relaxed);
}

/* ---- trace ---- */

static inline struct ember_event *start_event(struct ember_session *session,
                                              enum ember_event_kind kind, uint64_t pid)
{
    struct ember_event *event = reserve(session);
    if (!LIKELY(event))
        return NULL;
    event->stamp = ember_event_stamp(ember_clock_ticks() - session->origin_ticks, 0, kind);
    event->pid = pid;
    return event;
}

/* An arity's place in a stamp, and in the word of a small integer. */
#define ARITY_BITS UINT64_C(0xff0)

static inline bool write_mfa(struct ember_event *event, const ERL_NIF_TERM mfa[3])
{
    event->mfa = (struct ember_mfa){(uint32_t)mfa[0], (uint32_t)mfa[1]};
    event->stamp |= mfa[2] & ARITY_BITS; /* a small integer has its value there */
    return ((mfa[0] | mfa[1]) >> 32) == 0;
}

/* procs events run without the process's heap. Whether it was written. */
static bool write_plain(struct ember_session *session, enum ember_event_kind kind, uint64_t pid,
                        uint64_t value)
{
    struct ember_event *event = start_event(session, kind, pid);
    if (!event)
        return false;
    event->hp = 0;
    event->sp = 0;
    event->value = value;
    ember_ring_commit(mine.ring);
    return true;
}

static bool write_heap(struct ember_session *session, uint64_t pid,
                       const struct ember_vm_block *block)
{
    struct ember_event *event = start_event(session, EMBER_EVENT_HEAP, pid);
    if (!event)
        return false;
    event->hp = 0;
    event->sp = 0;
    event->heap_start = ember_vm_word_address(block->start);
    event->stack_base = ember_vm_word_address(block->end);
    ember_ring_commit(mine.ring);
    return true;
}

static RARE void write_block(struct ember_session *session, uint64_t pid,
                             const struct ember_vm_block *block)
{
    if (!ember_vm_heap.exact)
        return;
    bool moved = block->start != mine.block.start || block->end != mine.block.end;
    bool grown = block->fragments != mine.block.fragments;
    bool written = !moved || write_heap(session, pid, block);
    written &= !grown || write_plain(session, EMBER_EVENT_FRAGMENTS, pid, block->fragments);
    if (written)
        mine.block = *block;
    else
        forget_block(); /* no room: the next event tries again */
}

/* The block and its fragments change rarely, so they have records of their
 * own, before the event that is the first to see the change. */
static inline void note_block(const ErlNifEnv *env, struct ember_session *session, uint64_t pid)
{
    struct ember_vm_block block = ember_vm_block_read(env);
    if (!LIKELY(block.start == mine.block.start && block.fragments == mine.block.fragments &&
                block.end == mine.block.end))
        write_block(session, pid, &block);
}

/* call, return_to, in, out: own heap, and {M,F,Arity} or no function */
static inline void write_step(ErlNifEnv *env, struct ember_session *session,
                              enum ember_event_kind kind, const ERL_NIF_TERM argv[])
{
    note_block(env, session, argv[2]);
    struct ember_event *event = start_event(session, kind, argv[2]);
    if (!LIKELY(event))
        return;
    const ERL_NIF_TERM *mfa = ember_vm_tuple(env, argv[3], 3);
    ember_vm_heap_read(env, argv[3], event);
    event->value = 0;
    if (mfa && !LIKELY(write_mfa(event, mfa)))
        count_bad_term(session);
    else
        ember_ring_commit(mine.ring);
}

static uint64_t small_value(ERL_NIF_TERM tuple_value)
{
    return (int64_t)tuple_value > 0 ? tuple_value >> 4 : 0;
}

struct gc_sizes {
    uint64_t heap;
    uint64_t fragments;
};

static struct gc_sizes read_gc_sizes(ErlNifEnv *env, ERL_NIF_TERM list)
{
    struct gc_sizes sizes = {0, 0};
    ERL_NIF_TERM head;
    while (enif_get_list_cell(env, list, &head, &list)) {
        const ERL_NIF_TERM *pair = ember_vm_tuple(env, head, 2);
        if (!pair)
            continue;
        if (pair[0] == atom_heap_size)
            sizes.heap = small_value(pair[1]);
        else if (pair[0] == atom_mbuf_size)
            sizes.fragments = small_value(pair[1]);
    }
    return sizes;
}

static uint32_t saturate(uint64_t words)
{
    return words < UINT32_MAX ? (uint32_t)words : UINT32_MAX;
}

static void write_gc(ErlNifEnv *env, struct ember_session *session, enum ember_event_kind kind,
                     const ERL_NIF_TERM argv[])
{
    struct gc_sizes sizes = read_gc_sizes(env, argv[3]);
    forget_block();
    note_block(env, session, argv[2]);
    struct ember_event *event = start_event(session, kind, argv[2]);
    if (!event)
        return;
    ember_vm_heap_read(env, 0, event);
    event->heap_words = saturate(sizes.heap);
    event->fragment_words = saturate(sizes.fragments);
    ember_ring_commit(mine.ring);
}

/* A list's length, or -1 where it is longer than any argument list. */
static int arity_of(ErlNifEnv *env, ERL_NIF_TERM arguments)
{
    unsigned length;
    return enif_get_list_length(env, arguments, &length) && length < 256 ? (int)length : -1;
}

/* {M,F,Args} of the function that a new process runs. For a process of
 * proc_lib that is what init_p was told to call: the last three of its five
 * arguments. */
static bool initial_call(ErlNifEnv *env, ERL_NIF_TERM term, ERL_NIF_TERM mfa[3])
{
    const ERL_NIF_TERM *words = ember_vm_tuple(env, term, 3);
    if (!words)
        return false;
    memcpy(mfa, words, 3 * sizeof *mfa);
    ERL_NIF_TERM head;
    ERL_NIF_TERM rest = mfa[2];
    if (mfa[0] != atom_proc_lib || mfa[1] != atom_init_p || arity_of(env, rest) != 5)
        return true;
    for (int i = 0; i < 5 && enif_get_list_cell(env, rest, &head, &rest); i++)
        if (i >= 2)
            mfa[i - 2] = head;
    return true;
}

static void write_initial(ErlNifEnv *env, struct ember_session *session,
                          const ERL_NIF_TERM argv[])
{
    ERL_NIF_TERM extra;
    ERL_NIF_TERM mfa[3];
    if (!enif_get_map_value(env, argv[4], atom_extra, &extra) || !initial_call(env, extra, mfa))
        return;
    int arity = arity_of(env, mfa[2]);
    if (arity < 0 || !enif_is_atom(env, mfa[0]) || !enif_is_atom(env, mfa[1]))
        return;
    struct ember_event *event = start_event(session, EMBER_EVENT_INITIAL, argv[3]);
    if (!event)
        return;
    event->hp = 0;
    event->sp = 0;
    event->mfa = (struct ember_mfa){(uint32_t)mfa[0], (uint32_t)mfa[1]};
    event->stamp |= (uint64_t)arity << 4;
    ember_ring_commit(mine.ring);
}

static void write_spawn(ErlNifEnv *env, struct ember_session *session, const ERL_NIF_TERM argv[])
{
    ember_admission_inherit(session->admission, argv[2], argv[3]);
    write_plain(session, EMBER_EVENT_SPAWN, argv[2], argv[3]);
    write_initial(env, session, argv);
}

static void write_exit(struct ember_session *session, uint64_t pid)
{
    write_plain(session, EMBER_EVENT_EXIT, pid, 0);
    ember_admission_exit(session->admission, pid);
}

static void write_run(ErlNifEnv *env, struct ember_session *session, enum ember_event_kind kind,
                      const ERL_NIF_TERM argv[], const struct ember_admitted *run)
{
    note_block(env, session, argv[2]);
    struct ember_event *event = start_event(session, kind, argv[2]);
    if (!event)
        return;
    ember_vm_heap_read(env, argv[3], event);
    event->stamp |= (uint64_t)(kind == EMBER_EVENT_BEGIN && admitted.traced) << 4;
    event->value = ember_run_value(run->run, run->capture);
    ember_ring_commit(mine.ring);
}

static void write_begin(ErlNifEnv *env, struct ember_session *session, const ERL_NIF_TERM argv[])
{
    for (unsigned i = 0; admitted.pid == argv[2] && i < admitted.count; i++)
        write_run(env, session, EMBER_EVENT_BEGIN, argv, &admitted.runs[i]);
    admitted.count = 0;
    /* The process may not have been recorded before: what it begins with. */
    forget_block();
    note_block(env, session, argv[2]);
}

/* The value of a captured call, on request: {emberl_value, Run, Tag, Value}.
 * The one place where a callback allocates, once a captured call. */
static void send_value(ErlNifEnv *env, uint64_t run, const ERL_NIF_TERM argv[])
{
    ERL_NIF_TERM value;
    if (!enif_get_map_value(env, argv[4], atom_extra, &value))
        return;
    ERL_NIF_TERM message = enif_make_tuple4(env, atom_emberl_value, enif_make_uint64(env, run),
                                            argv[0], value);
    enif_send(env, &owner, NULL, message);
}

/* OTP 25 has a killed process raise {exit, killed}; its exit follows. */
static bool is_dying(ErlNifEnv *env, const ERL_NIF_TERM argv[])
{
    ErlNifPid pid;
    return argv[0] == atom_exception_from && enif_get_local_pid(env, argv[2], &pid) &&
           !enif_is_process_alive(env, &pid);
}

static void write_end(ErlNifEnv *env, struct ember_session *session, uint32_t target,
                      const ERL_NIF_TERM argv[])
{
    struct ember_admitted ended[EMBER_MAX_MEMBERSHIPS];
    unsigned count = ember_admission_leave(session->admission, target, argv[2], ended);
    enum ember_event_kind kind =
        argv[0] == atom_return_from ? EMBER_EVENT_RETURN : EMBER_EVENT_RAISE;
    for (unsigned i = 0; i < count; i++) {
        write_run(env, session, kind, argv, &ended[i]);
        if (ember_admission_wants_value(session->admission, ended[i].capture))
            send_value(env, ember_run_value(ended[i].run, ended[i].capture), argv);
    }
}

static void trace_target(ErlNifEnv *env, struct ember_session *session, uint32_t target,
                         const ERL_NIF_TERM argv[])
{
    if (argv[0] == atom_call)
        write_begin(env, session, argv);
    else if ((argv[0] == atom_return_from || argv[0] == atom_exception_from) &&
             !is_dying(env, argv))
        write_end(env, session, target, argv);
}

static void trace_rare(ErlNifEnv *env, struct ember_session *session, const ERL_NIF_TERM argv[])
{
    ERL_NIF_TERM tag = argv[0];
    if (tag == atom_in || tag == atom_out)
        forget_block();
    if (tag == atom_in)
        write_step(env, session, EMBER_EVENT_IN, argv);
    else if (tag == atom_out)
        write_step(env, session, EMBER_EVENT_OUT, argv);
    else if (tag == atom_gc_minor_start || tag == atom_gc_major_start)
        write_gc(env, session, EMBER_EVENT_GC_START, argv);
    else if (tag == atom_gc_minor_end || tag == atom_gc_major_end)
        write_gc(env, session, EMBER_EVENT_GC_END, argv);
    else if (tag == atom_spawn)
        write_spawn(env, session, argv);
    else if (tag == atom_exit)
        write_exit(session, argv[2]);
    else if (tag == atom_register)
        write_plain(session, EMBER_EVENT_REGISTER, argv[2], argv[3]);
}

static void trace_process(ErlNifEnv *env, struct ember_session *session, const ERL_NIF_TERM argv[])
{
    if (!is_watched(session, argv[1], argv[2]))
        return;
    if (argv[0] == atom_call)
        write_step(env, session, EMBER_EVENT_CALL, argv);
    else if (argv[0] == atom_return_to)
        write_step(env, session, EMBER_EVENT_RETURN_TO, argv);
    else
        trace_rare(env, session, argv);
}

static RARE void trace_slowly(ErlNifEnv *env, struct ember_session *session,
                              const ERL_NIF_TERM argv[])
{
    uint64_t generation;
    uint32_t target;
    if (!session || !decode_state(argv[1], &generation, &target) ||
        generation != session->generation)
        return;
    if (target == EMBER_STATE_MAIN)
        trace_process(env, session, argv);
    else
        trace_target(env, session, target, argv);
}

/* trace(Tag, State, Tracee, Term, Opts) */
ERL_NIF_TERM ember_tracer_trace(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    rcu_read_lock();
    struct ember_session *session = rcu_dereference(ember_session_current);
    bool call = argv[0] == atom_call;
    bool step = call || argv[0] == atom_return_to;
    if (LIKELY(step && session && watched_as_before(argv[1], argv[2])))
        write_step(env, session, call ? EMBER_EVENT_CALL : EMBER_EVENT_RETURN_TO, argv);
    else
        trace_slowly(env, session, argv);
    rcu_read_unlock();
    return atom_ok;
}
