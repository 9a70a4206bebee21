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
#define MOST_FRAMES 512       /* told of a process that arrives in a window */
#define LONG_WAIT_TICKS 20000 /* some microseconds; a claim of a ring is no wait */

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
    X(bin_vheap_size) \
    X(bin_vheap_block_size) \
    X(extra) \
    X(undefined) \
    X(emberl_value) \
    X(probe) \
    X(watch) \
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
    struct ember_ring *ring;     /* NULL: every ring was taken */
    uint64_t generation;         /* of `ring`; 0: none yet */
    struct ember_vm_block block; /* of `pid`, as written last */
} mine;

/* The call that this thread has just admitted: written down before the match
 * specification runs, so that no more calls than asked for get a return trace.
 * trace/5 follows on this thread and gives the event; see write_begin. */
static _Thread_local EMBER_TLS_MODEL struct {
    uint64_t pid;
    bool traced; /* it was before */
    enum ember_marking marking;
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

/* Whether events of the process were lost, which its next event must tell first. */
static bool has_gap(struct ember_session *session, uint64_t pid)
{
    const struct ember_gap *gap = ember_admission_gap(session->admission, pid);
    return gap && gap->events > 0;
}

static bool is_watched(struct ember_session *session, ERL_NIF_TERM state, uint64_t pid)
{
    uint64_t epoch = atomic_load_explicit(&ember_admission_epoch, memory_order_acquire);
    if (!ember_admission_watched(session->admission, pid))
        return false;
    if (mine.pid != pid)
        forget_block();
    mine.pid = has_gap(session, pid) ? 0 : pid;
    mine.state = state;
    mine.epoch = epoch;
    return true;
}

/* A local process, in one word: other terms must not outlive the callback. The VM passes
 * none; whoever calls this by hand may. */
static bool is_process(ERL_NIF_TERM term)
{
    enum { PID_TAG = 3 };
    return (term & 15) == PID_TAG;
}

/* Whether an event of this thread would be lost, and will not be waited for. A call that
 * is admitted then would not begin, and so would every call by which it calls itself: each
 * would have the VM push what tells of its return, where a tail call pushes nothing. */
static bool is_stalled(const struct ember_session *session)
{
    if (mine.generation != session->generation)
        return false;
    return !mine.ring || (mine.ring->producer.stalled && !ember_ring_reserve(mine.ring));
}

static ERL_NIF_TERM target_enabled(struct ember_session *session, ERL_NIF_TERM tag, uint32_t target,
                                   uint64_t pid)
{
    if (tag == atom_trace_status)
        return atom_trace;
    if (!is_process(pid) || is_stalled(session))
        return atom_discard;
    admitted.traced = ember_admission_known(session->admission, pid);
    admitted.count = ember_admission_enter(session->admission, target, pid, admitted.runs);
    admitted.pid = pid;
    return admitted.count ? atom_trace : atom_discard;
}

/* A process that takes part in nothing: its last run has ended, or it calls a
 * target that captures nothing of it. A target's own breakpoint is asked before
 * the one that turns tracing on, since it was set later. That one asks for the
 * status too, and would be without a tracer for ever if it were told to remove it:
 * so that is told to processes alone that are traced, and to each once. They ask
 * when they come to a local breakpoint, which is before this one. */
static ERL_NIF_TERM unknown_enabled(struct ember_session *session, ERL_NIF_TERM tag, uint64_t pid)
{
    if (tag != atom_trace_status || !ember_admission_known(session->admission, pid))
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

/* ---- who sets breakpoints, where the node has one trace ---- */

static _Atomic uint64_t watcher;     /* a pid; the rest are others */
static _Atomic bool others_have_set; /* since it was asked */

void ember_tracer_watch(uint64_t pid)
{
    atomic_store(&watcher, pid);
    atomic_store(&others_have_set, true);
}

bool ember_tracer_take_change(void)
{
    return atomic_exchange(&others_have_set, false);
}

static ERL_NIF_TERM note_setter(const ERL_NIF_TERM argv[])
{
    if (argv[0] == atom_trace_status)
        return atom_trace;
    if (argv[2] != atomic_load(&watcher))
        atomic_store(&others_have_set, true);
    return atom_discard;
}

static RARE ERL_NIF_TERM enabled_slowly(const ERL_NIF_TERM argv[])
{
    if (argv[1] == atom_watch)
        return note_setter(argv);
    bool plain = argv[0] != atom_trace_status && argv[0] != atom_call;
    if (plain || argv[1] == atom_probe)
        return atom_trace;
    rcu_read_lock();
    ERL_NIF_TERM answer = decide(rcu_dereference(ember_session_current), argv);
    rcu_read_unlock();
    return answer;
}

/* ---- rings ---- */

static RARE void claim_ring(struct ember_session *session)
{
    uint32_t index = atomic_fetch_add_explicit(&session->rings_claimed, 1, memory_order_relaxed);
    mine.ring = index < session->ring_count ? session->rings[index] : NULL;
    mine.generation = session->generation;
}

/* A ring that was waited for in vain is not waited for again until there was room in it. */
static RARE struct ember_event *wait_for_room(struct ember_ring *ring)
{
    struct timespec step = {.tv_nsec = WAIT_STEP_NS};
    struct ember_event *slot = ember_ring_reserve(ring);
    for (int i = 0; i < WAIT_STEPS && !slot && !ring->producer.stalled; i++) {
        nanosleep(&step, NULL);
        slot = ember_ring_reserve(ring);
    }
    ring->producer.stalled = !slot;
    return slot;
}

/* The slot after `slot`, where it is told that the process has waited since `start`. */
static RARE struct ember_event *tell_wait(struct ember_session *session, struct ember_event *slot,
                                          uint64_t pid, uint64_t start)
{
    uint64_t now = ember_clock_ticks();
    if (now - start < LONG_WAIT_TICKS)
        return slot;
    slot->stamp = ember_event_stamp(now - session->origin_ticks, 0, EMBER_EVENT_HELD_UP);
    slot->pid = pid;
    slot->value = now - start;
    slot->hp = slot->sp = 0;
    ember_ring_commit(mine.ring);
    return wait_for_room(mine.ring);
}

static void lose(struct ember_session *session, uint64_t pid, uint64_t start)
{
    _Atomic uint64_t *lost = mine.ring ? &mine.ring->producer.lost : &session->lost_no_ring;
    atomic_fetch_add_explicit(lost, 1, memory_order_relaxed);
    ember_admission_note_loss(session->admission, pid);
    struct ember_gap *gap = ember_admission_gap(session->admission, pid);
    if (gap)
        gap->waited += (uint32_t)((ember_clock_ticks() - start) >> EMBER_GAP_TICKS_SHIFT);
}

/* The event that found no room, after waiting for some; NULL: it is lost. */
static RARE struct ember_event *reserve_slowly(struct ember_session *session, uint64_t pid)
{
    uint64_t start = ember_clock_ticks();
    if (mine.generation != session->generation)
        claim_ring(session);
    struct ember_event *slot = mine.ring ? wait_for_room(mine.ring) : NULL;
    if (slot)
        slot = tell_wait(session, slot, pid, start);
    if (!slot)
        lose(session, pid, start);
    return slot;
}

static inline struct ember_event *reserve(struct ember_session *session, uint64_t pid)
{
    struct ember_event *slot = NULL;
    if (LIKELY(mine.generation == session->generation && mine.ring))
        slot = ember_ring_reserve(mine.ring);
    return LIKELY(slot) ? slot : reserve_slowly(session, pid);
}

static RARE void count_bad_term(struct ember_session *session, uint64_t pid)
{
    atomic_fetch_add_explicit(&session->lost_bad_term, 1, memory_order_relaxed);
    ember_admission_note_loss(session->admission, pid);
}

/* ---- trace ---- */

static inline struct ember_event *start_event(struct ember_session *session,
                                              enum ember_event_kind kind, uint64_t pid)
{
    struct ember_event *event = reserve(session, pid);
    if (!LIKELY(event))
        return NULL;
    event->stamp = ember_event_stamp(ember_clock_ticks() - session->origin_ticks, 0, kind);
    event->pid = pid;
    return event;
}

/* An arity in the word of a small integer, and the way from there to its place in
 * a stamp. */
#define ARITY_BITS UINT64_C(0xff0)
#define ARITY_MOVE (EMBER_EVENT_ARITY_SHIFT - 4)

static inline bool write_mfa(struct ember_event *event, const ERL_NIF_TERM mfa[3])
{
    event->mfa = (struct ember_mfa){(uint32_t)mfa[0], (uint32_t)mfa[1]};
    event->stamp |= (mfa[2] & ARITY_BITS) << ARITY_MOVE;
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

static RARE bool write_block(struct ember_session *session, uint64_t pid,
                             const struct ember_vm_block *block)
{
    if (!ember_vm_heap.exact)
        return true;
    bool moved = block->start != mine.block.start || block->end != mine.block.end;
    bool grown = block->fragments != mine.block.fragments;
    bool written = !moved || write_heap(session, pid, block);
    written &= !grown || write_plain(session, EMBER_EVENT_FRAGMENTS, pid, block->fragments);
    if (written)
        mine.block = *block;
    else
        forget_block(); /* no room: the next event tries again */
    return written;
}

/* The block and its fragments change rarely, so they have records of their
 * own, before the event that is the first to see the change. False: there was no room
 * for them, so the event, which says nothing without them, is lost too. */
static inline bool note_block(const ErlNifEnv *env, struct ember_session *session, uint64_t pid)
{
    struct ember_vm_block block = ember_vm_block_read(env);
    return LIKELY(block.start == mine.block.start && block.fragments == mine.block.fragments &&
                  block.end == mine.block.end) ||
           write_block(session, pid, &block);
}

/* ---- gaps ---- */

static int32_t stack_depth(const ErlNifEnv *env)
{
    struct ember_event event;
    if (!ember_vm_heap.exact)
        return INT32_MIN;
    ember_vm_heap_read(env, 0, &event);
    return (int32_t)(ember_vm_word_address(ember_vm_block_read(env).end) - event.sp);
}

static int32_t least_of(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* How deep the stack was at an event that was lost. A call has returned when the stack is less
 * deep than the frame that the VM pushes for its return; where a process is scheduled, that
 * may have been there before. */
static RARE void note_lost_depth(struct ember_session *session, uint64_t pid,
                                 enum ember_event_kind kind, int32_t depth)
{
    struct ember_gap *gap = ember_admission_gap(session->admission, pid);
    if (!gap)
        return;
    bool scheduled = kind == EMBER_EVENT_IN || kind == EMBER_EVENT_OUT;
    int32_t pushed = scheduled ? 0 : (int32_t)session->layout.return_to_words;
    gap->least = least_of(gap->least, depth);
    if (kind == EMBER_EVENT_CALL || kind == EMBER_EVENT_BEGIN)
        gap->open = least_of(gap->open, depth);
    else if (gap->open != INT32_MAX && depth < gap->open + pushed)
        gap->open = INT32_MAX;
}

static RARE void note_lost_step(const ErlNifEnv *env, struct ember_session *session,
                                enum ember_event_kind kind, uint64_t pid)
{
    if (kind <= EMBER_EVENT_OUT)
        note_lost_depth(session, pid, kind, stack_depth(env));
}

/* False: there is no room for it either. */
static RARE bool tell_gap(struct ember_session *session, uint64_t pid, struct ember_gap *gap,
                          int32_t depth)
{
    uint64_t start = ember_clock_ticks();
    if (mine.generation != session->generation)
        claim_ring(session);
    struct ember_event *event = mine.ring ? wait_for_room(mine.ring) : NULL;
    if (!event) {
        lose(session, pid, start);
        return false;
    }
    uint64_t now = ember_clock_ticks();
    event->stamp = ember_event_stamp(now - session->origin_ticks, 0, EMBER_EVENT_GAP);
    event->pid = pid;
    event->least = least_of(gap->least, depth);
    event->open = gap->open;
    event->hp = gap->waited + (uint32_t)((now - start) >> EMBER_GAP_TICKS_SHIFT);
    event->sp = gap->events;
    ember_ring_commit(mine.ring);
    gap->events = 0;
    forget_block();
    return true;
}

/* `env` is NULL for what runs without the process's heap. */
static bool settle_gap(const ErlNifEnv *env, struct ember_session *session, uint64_t pid)
{
    struct ember_gap *gap = ember_admission_gap(session->admission, pid);
    bool told = gap && gap->events > 0;
    return !told || tell_gap(session, pid, gap, env ? stack_depth(env) : INT32_MAX);
}

/* call, return_to, in, out: own heap, and {M,F,Arity} or no function. The event is
 * not committed yet; NULL: it is lost. */
static inline struct ember_event *write_step(ErlNifEnv *env, struct ember_session *session,
                                             enum ember_event_kind kind, const ERL_NIF_TERM argv[])
{
    struct ember_event *event = NULL;
    if (LIKELY(note_block(env, session, argv[2])))
        event = start_event(session, kind, argv[2]);
    if (!LIKELY(event)) {
        note_lost_step(env, session, kind, argv[2]);
        return NULL;
    }
    const ERL_NIF_TERM *mfa = ember_vm_tuple(env, argv[3], 3);
    ember_vm_heap_read(env, argv[3], event);
    event->value = 0;
    if (LIKELY(!mfa || write_mfa(event, mfa)))
        return event;
    count_bad_term(session, argv[2]);
    note_lost_step(env, session, kind, argv[2]);
    return NULL;
}

static inline void trace_step(ErlNifEnv *env, struct ember_session *session,
                              enum ember_event_kind kind, const ERL_NIF_TERM argv[])
{
    if (LIKELY(write_step(env, session, kind, argv)))
        ember_ring_commit(mine.ring);
}

static void trace_out(ErlNifEnv *env, struct ember_session *session, const ERL_NIF_TERM argv[])
{
    enum ember_out out = EMBER_OUT_UNKNOWN;
    struct ember_event *event = write_step(env, session, EMBER_EVENT_OUT, argv);
    if (!event)
        return;
    if (ember_vm_heap.runnable)
        out = ember_vm_is_waiting(env) ? EMBER_OUT_WAITING : EMBER_OUT_PREEMPTED;
    event->stamp = (event->stamp & ~(ARITY_BITS << ARITY_MOVE)) | (uint64_t)out
                                                                      << EMBER_EVENT_ARITY_SHIFT;
    ember_ring_commit(mine.ring);
}

/* From OTP 27 on, where the captured call is told of before the call. */
static bool has_trace_sessions(const struct ember_session *session)
{
    return session->layout.begin_before_call;
}

/* Of a frame of the VM's own; `walk` stands behind its address. */
static enum ember_frame_kind frame_kind(const struct ember_session *session,
                                        const struct ember_vm_walk *walk)
{
    uint64_t number = atomic_load_explicit(&session->trace_session, memory_order_relaxed);
    bool ours = number && walk->at < walk->end && *walk->at == number;
    return ours ? EMBER_FRAME_MARK : EMBER_FRAME_OTHER;
}

static bool write_frame(struct ember_session *session, uint64_t pid, uint32_t index,
                        const struct ember_vm_return *frame, uint32_t arity)
{
    struct ember_event *event = start_event(session, EMBER_EVENT_FRAME, pid);
    if (!event)
        return false;
    event->hp = index;
    event->sp = ember_vm_word_address((uint64_t)frame->at);
    event->mfa = (struct ember_mfa){(uint32_t)frame->module, (uint32_t)frame->function};
    event->stamp |= (uint64_t)arity << EMBER_EVENT_ARITY_SHIFT;
    ember_ring_commit(mine.ring);
    return true;
}

/* All return addresses, or as many as are told. */
static void write_frames(ErlNifEnv *env, struct ember_session *session, uint64_t pid)
{
    struct ember_vm_walk walk = ember_vm_walk_begin(env);
    struct ember_vm_return frame;
    uint32_t index = 0;
    if (!settle_gap(env, session, pid) || !note_block(env, session, pid))
        return;
    while (index < MOST_FRAMES && ember_vm_walk_next(env, &walk, &frame)) {
        bool other = frame.module == 0 || (frame.module | frame.function) >> 32;
        frame.module = other ? 0 : frame.module;
        uint32_t arity = other ? frame_kind(session, &walk) : frame.arity;
        if (!write_frame(session, pid, index++, &frame, arity))
            return;
    }
    frame = (struct ember_vm_return){.at = walk.end};
    if (index < MOST_FRAMES)
        write_frame(session, pid, index, &frame, EMBER_FRAME_LAST);
}

/* A process in a window is traced from the middle of what it does, so its stack is told
 * when it runs first. Flags are set while it does not run. */
static void trace_in(ErlNifEnv *env, struct ember_session *session, const ERL_NIF_TERM argv[])
{
    bool walks = ember_vm_heap.walks && enif_thread_type() == ERL_NIF_THR_NORMAL_SCHEDULER;
    if (ember_admission_arrive(session->admission, argv[2]) && walks)
        write_frames(env, session, argv[2]);
    trace_step(env, session, EMBER_EVENT_IN, argv);
}

static uint64_t small_value(ERL_NIF_TERM tuple_value)
{
    return (int64_t)tuple_value > 0 ? tuple_value >> 4 : 0;
}

struct gc_sizes {
    uint64_t heap;
    uint64_t fragments;
    uint64_t binaries;
    uint64_t binaries_limit;
};

static struct gc_sizes read_gc_sizes(ErlNifEnv *env, ERL_NIF_TERM list)
{
    struct gc_sizes sizes = {0};
    ERL_NIF_TERM head;
    while (enif_get_list_cell(env, list, &head, &list)) {
        const ERL_NIF_TERM *pair = ember_vm_tuple(env, head, 2);
        if (!pair)
            continue;
        if (pair[0] == atom_heap_size)
            sizes.heap = small_value(pair[1]);
        else if (pair[0] == atom_mbuf_size)
            sizes.fragments = small_value(pair[1]);
        else if (pair[0] == atom_bin_vheap_size)
            sizes.binaries = small_value(pair[1]);
        else if (pair[0] == atom_bin_vheap_block_size)
            sizes.binaries_limit = small_value(pair[1]);
    }
    return sizes;
}

static uint32_t saturate(uint64_t words)
{
    return words < UINT32_MAX ? (uint32_t)words : UINT32_MAX;
}

/* `limit`: above it the VM collects. */
static void write_binaries(struct ember_session *session, uint64_t pid, uint64_t words,
                           uint64_t limit)
{
    struct ember_event *event = start_event(session, EMBER_EVENT_BINARIES, pid);
    if (!event)
        return;
    event->hp = 0;
    event->sp = saturate(limit);
    event->value = words;
    ember_ring_commit(mine.ring);
}

void ember_tracer_note_binaries(ErlNifEnv *env, uint64_t pid)
{
    rcu_read_lock();
    struct ember_session *session = rcu_dereference(ember_session_current);
    if (session && ember_vm_heap.binaries && ember_admission_watched(session->admission, pid))
        write_binaries(session, pid, ember_vm_binary_words(env), UINT64_MAX);
    rcu_read_unlock();
}

static void write_gc(ErlNifEnv *env, struct ember_session *session, enum ember_event_kind kind,
                     const ERL_NIF_TERM argv[])
{
    struct gc_sizes sizes = read_gc_sizes(env, argv[3]);
    forget_block();
    if (!note_block(env, session, argv[2]))
        return;
    write_binaries(session, argv[2], sizes.binaries, sizes.binaries_limit);
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

static void write_ancestor(struct ember_session *session, uint64_t child, ERL_NIF_TERM term,
                           bool named)
{
    struct ember_event *event = start_event(session, EMBER_EVENT_ANCESTOR, child);
    if (!event)
        return;
    event->stamp |= (uint64_t)named << EMBER_EVENT_ARITY_SHIFT;
    event->hp = event->sp = 0;
    event->value = term;
    ember_ring_commit(mine.ring);
}

/* A process of proc_lib is told who its parent is and who is above that one. */
static void write_ancestors(ErlNifEnv *env, struct ember_session *session, uint64_t child,
                            ERL_NIF_TERM arguments)
{
    enum { MOST = 8 };
    ERL_NIF_TERM head;
    ERL_NIF_TERM rest;
    if (!enif_get_list_cell(env, arguments, &head, &rest) ||
        !enif_get_list_cell(env, rest, &rest, &arguments))
        return;
    for (int i = 0; i < MOST; i++) {
        bool named = enif_is_atom(env, head);
        if (named || enif_is_pid(env, head))
            write_ancestor(session, child, head, named);
        if (!enif_get_list_cell(env, rest, &head, &rest))
            return;
    }
}

static void write_initial(ErlNifEnv *env, struct ember_session *session, const ERL_NIF_TERM argv[])
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
    event->stamp |= (uint64_t)arity << EMBER_EVENT_ARITY_SHIFT;
    ember_ring_commit(mine.ring);
    const ERL_NIF_TERM *words = ember_vm_tuple(env, extra, 3);
    if (words && words[0] == atom_proc_lib && words[1] == atom_init_p)
        write_ancestors(env, session, argv[3], words[2]);
}

static void write_spawn(ErlNifEnv *env, struct ember_session *session, const ERL_NIF_TERM argv[])
{
    if (!is_process(argv[3]))
        return;
    ember_admission_inherit(session->admission, argv[2], argv[3]);
    write_plain(session, EMBER_EVENT_SPAWN, argv[2], argv[3]);
    write_initial(env, session, argv);
}

static void write_exit(struct ember_session *session, uint64_t pid)
{
    write_plain(session, EMBER_EVENT_EXIT, pid, 0);
    ember_admission_exit(session->admission, pid);
}

static bool write_run(ErlNifEnv *env, struct ember_session *session, enum ember_event_kind kind,
                      const ERL_NIF_TERM argv[], const struct ember_admitted *run)
{
    if (!settle_gap(env, session, argv[2]) || !note_block(env, session, argv[2]))
        return false;
    struct ember_event *event = start_event(session, kind, argv[2]);
    if (!event)
        return false;
    ember_vm_heap_read(env, argv[3], event);
    if (kind == EMBER_EVENT_BEGIN)
        event->stamp |= (uint64_t)ember_begin_arity(admitted.traced, admitted.marking)
                        << EMBER_EVENT_ARITY_SHIFT;
    event->value = ember_run_value(run->run, run->capture);
    ember_ring_commit(mine.ring);
    return true;
}

static RARE void lose_begin(const ErlNifEnv *env, struct ember_session *session,
                            const ERL_NIF_TERM argv[], const struct ember_admitted *run)
{
    note_lost_depth(session, argv[2], EMBER_EVENT_BEGIN, stack_depth(env));
    ember_admission_give_back(session->admission, argv[2], run);
}

/* Whether the call comes from the function that is called, as far as can be told. */
static bool may_call_itself(ErlNifEnv *env, ERL_NIF_TERM mfa)
{
    const ERL_NIF_TERM *callee = ember_vm_tuple(env, mfa, 3);
    struct ember_vm_walk walk = ember_vm_walk_begin(env);
    struct ember_vm_return caller;
    bool known = ember_vm_heap.walks && callee && ember_vm_walk_next(env, &walk, &caller);
    return !known || (caller.module == callee[0] && caller.function == callee[1]);
}

static bool has_our_mark(const ErlNifEnv *env, const struct ember_session *session, uint32_t words)
{
    uint64_t number = atomic_load_explicit(&session->trace_session, memory_order_relaxed);
    return number && ember_vm_trace_words_have(env, words, number);
}

/* Of the chain of tail calls that a captured call stands in: it may have been traced long
 * before. */
static enum ember_marking marking_of(ErlNifEnv *env, const struct ember_session *session,
                                     ERL_NIF_TERM mfa)
{
    enum { MOST_WORDS = 64 };
    uint32_t words = ember_vm_trace_words(env, MOST_WORDS);
    bool marked = has_trace_sessions(session) ? has_our_mark(env, session, words)
                                              : ember_layout_marks(&session->layout, words);
    if (!marked)
        return EMBER_UNMARKED;
    return may_call_itself(env, mfa) ? EMBER_MARKED_MAYBE : EMBER_MARKED;
}

static void note_place(const ErlNifEnv *env, struct ember_session *session, uint64_t pid)
{
    struct ember_place *place = ember_admission_place(session->admission, pid);
    if (place && ember_vm_heap.exact)
        *place = (struct ember_place){pid, ember_vm_process_words(env)};
}

static void write_begin(ErlNifEnv *env, struct ember_session *session, const ERL_NIF_TERM argv[])
{
    if (admitted.pid == argv[2] && admitted.count > 0)
        admitted.marking = marking_of(env, session, argv[3]);
    for (unsigned i = 0; admitted.pid == argv[2] && i < admitted.count; i++) {
        ember_admission_stamp(session->admission, admitted.runs[i].run, ember_clock_ticks());
        if (!write_run(env, session, EMBER_EVENT_BEGIN, argv, &admitted.runs[i]))
            lose_begin(env, session, argv, &admitted.runs[i]);
    }
    admitted.count = 0;
    /* The process may not have been recorded before: what it begins with. */
    forget_block();
    note_block(env, session, argv[2]);
    note_place(env, session, argv[2]);
}

/* The value of a captured call, on request: {emberl_value, Run, Tag, Value}.
 * The one place where a callback allocates, once a captured call. */
static void send_value(ErlNifEnv *env, uint64_t run, const ERL_NIF_TERM argv[])
{
    ERL_NIF_TERM value;
    if (!enif_get_map_value(env, argv[4], atom_extra, &value))
        return;
    ERL_NIF_TERM message =
        enif_make_tuple4(env, atom_emberl_value, enif_make_uint64(env, run), argv[0], value);
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
    enum ember_event_kind kind = argv[0] == atom_return_from ? EMBER_EVENT_RETURN
                                                             : EMBER_EVENT_RAISE;
    for (unsigned i = 0; i < count; i++) {
        if (!write_run(env, session, kind, argv, &ended[i]))
            note_lost_depth(session, argv[2], kind, stack_depth(env) - 1);
        ember_admission_end(session->admission, &ended[i]);
        if (ember_admission_wants_value(session->admission, &ended[i], ember_clock_ticks()))
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
        trace_in(env, session, argv);
    else if (tag == atom_out)
        trace_out(env, session, argv);
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

static bool is_collection(ERL_NIF_TERM tag)
{
    return tag == atom_gc_minor_start || tag == atom_gc_major_start || tag == atom_gc_minor_end ||
           tag == atom_gc_major_end;
}

/* The process runs and the environment is its. Of others, as `spawned', somebody else may
 * tell, in an environment that has a process on the thread's stack, with nothing in it. */
static bool has_heap(ERL_NIF_TERM tag)
{
    return tag == atom_call || tag == atom_return_to || tag == atom_in || tag == atom_out ||
           is_collection(tag);
}

/* Relaxed: all threads find the same number, and it is asked for only where a process may have
 * been told of on another, which its hand-over orders. */
static RARE void learn_trace_session(const ErlNifEnv *env, struct ember_session *session)
{
    if (ember_vm_heap.exact && has_trace_sessions(session))
        atomic_store_explicit(&session->trace_session, ember_vm_trace_session(env),
                              memory_order_relaxed);
}

static inline void trace_return_to(ErlNifEnv *env, struct ember_session *session,
                                   const ERL_NIF_TERM argv[])
{
    if (!LIKELY(atomic_load_explicit(&session->trace_session, memory_order_relaxed)))
        learn_trace_session(env, session);
    trace_step(env, session, EMBER_EVENT_RETURN_TO, argv);
}

/* What an event means for others, which is lost itself. */
static RARE void pass_over(ErlNifEnv *env, struct ember_session *session, const ERL_NIF_TERM argv[])
{
    if (argv[0] == atom_exit)
        ember_admission_exit(session->admission, argv[2]);
    else if (argv[0] == atom_call)
        note_lost_step(env, session, EMBER_EVENT_CALL, argv[2]);
    else if (argv[0] == atom_return_to)
        note_lost_step(env, session, EMBER_EVENT_RETURN_TO, argv[2]);
    else if (argv[0] == atom_in || argv[0] == atom_out)
        note_lost_step(env, session, EMBER_EVENT_IN, argv[2]);
}

static void trace_process(ErlNifEnv *env, struct ember_session *session, const ERL_NIF_TERM argv[])
{
    if (!is_watched(session, argv[1], argv[2]))
        return;
    if (has_heap(argv[0]))
        note_place(env, session, argv[2]);
    if (mine.pid != argv[2] && !settle_gap(has_heap(argv[0]) ? env : NULL, session, argv[2]))
        pass_over(env, session, argv);
    else if (argv[0] == atom_call)
        trace_step(env, session, EMBER_EVENT_CALL, argv);
    else if (argv[0] == atom_return_to)
        trace_return_to(env, session, argv);
    else
        trace_rare(env, session, argv);
}

/* ---- scheduling, where the heap is full ---- */

/* The VM builds a tuple of the process's for in and out, once it is told that they are
 * enabled. When that does not fit on the heap it goes to a fragment of its own, and that is
 * fatal in a builtin that has the latest fragment open while it is scheduled out, as
 * binary:split/3 and binary:matches/2,3 have on OTP 25 to 29: when the builtin closes what
 * it takes for its fragment, the VM miscounts the heap and ends. So such an event is written
 * here, without a function, and not enabled. */
static bool write_switch(struct ember_session *session, const ERL_NIF_TERM argv[])
{
    uint64_t generation;
    uint32_t target;
    if (!decode_state(argv[1], &generation, &target) || generation != session->generation ||
        target != EMBER_STATE_MAIN)
        return false;
    const struct ember_place *place = ember_admission_place(session->admission, argv[2]);
    if (!place || place->pid != argv[2] || !ember_vm_heap_is_full(place->words))
        return false;
    struct ember_vm_env env = ember_vm_env_of(place->words);
    const ERL_NIF_TERM no_function[] = {argv[0], argv[1], argv[2], atom_undefined};
    trace_process((ErlNifEnv *)(void *)&env, session, no_function);
    return true;
}

static RARE ERL_NIF_TERM switch_enabled(const ERL_NIF_TERM argv[])
{
    rcu_read_lock();
    struct ember_session *session = rcu_dereference(ember_session_current);
    bool written = session && write_switch(session, argv);
    rcu_read_unlock();
    return written ? atom_discard : atom_trace;
}

/* enabled(Tag, State, Tracee) */
ERL_NIF_TERM ember_tracer_enabled(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)env;
    (void)argc;
    if (!LIKELY(argv[0] != atom_in && argv[0] != atom_out))
        return switch_enabled(argv);
    return LIKELY(watched_as_before(argv[1], argv[2])) ? atom_trace : enabled_slowly(argv);
}

/* ---- probing ---- */

/* Written and read on behalf of one process, whose hand-overs the VM orders;
 * atomic, since another may have our tracer too. */
static struct {
    _Atomic uint64_t pid;
    _Atomic bool waiting;
} probe;

void ember_tracer_probe(uint64_t pid, bool waiting)
{
    atomic_store_explicit(&probe.waiting, waiting, memory_order_relaxed);
    atomic_store_explicit(&probe.pid, pid, memory_order_relaxed);
}

static void trace_probe(ErlNifEnv *env, const ERL_NIF_TERM argv[])
{
    if (argv[0] == atom_out && argv[1] == atom_probe &&
        argv[2] == atomic_load_explicit(&probe.pid, memory_order_relaxed))
        ember_vm_status_see(env, atomic_load_explicit(&probe.waiting, memory_order_relaxed));
}

static RARE void trace_slowly(ErlNifEnv *env, struct ember_session *session,
                              const ERL_NIF_TERM argv[])
{
    uint64_t generation;
    uint32_t target;
    if (!session) {
        trace_probe(env, argv);
        return;
    }
    if (!decode_state(argv[1], &generation, &target) || generation != session->generation)
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
        trace_step(env, session, call ? EMBER_EVENT_CALL : EMBER_EVENT_RETURN_TO, argv);
    else
        trace_slowly(env, session, argv);
    rcu_read_unlock();
    return atom_ok;
}
