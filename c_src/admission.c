/* SPDX-License-Identifier: Apache-2.0 */
#include "admission.h"

#include "hash.h"

#include <stdalign.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PROBE_LIMIT 64

/* A run id is  generation | slot << 1 | root?  and never 0. The lowest bit of
 * a *membership* tells a run's root process from one that was spawned in it. */
#define ROOT 1u
#define RUN_SLOT(run) ((uint32_t)((run) >> 1) & (EMBER_MAX_RUNS - 1))

struct run {
    _Atomic uint64_t id; /* 0: free */
    _Atomic uint32_t capture;
    _Atomic uint64_t call; /* equal for the runs of one call, larger for later ones */
    _Atomic uint64_t begin_ticks;
};

struct capture {
    _Atomic int64_t remaining; /* calls still taken */
    _Atomic bool used;
    _Atomic bool armed;
    _Atomic uint64_t seen;      /* calls that could have been taken */
    struct ember_intake intake; /* set before its bit in the target is */
};

/* Of a process that takes part. */
struct tracee {
    struct ember_gap gap;
    struct ember_place place;
};

struct member {
    uint64_t pid; /* 0: free; constant once the window is open */
    _Atomic bool arrived;
    struct tracee tracee;
};

struct ember_members {
    uint32_t mask;
    struct member slots[];
};

struct window {
    _Atomic uint64_t run;
    _Atomic(struct ember_members *) members;
};

/* pid: 0 never used, EMPTY free again. run: 0 free. */
struct watch {
    alignas(64) _Atomic uint64_t pid;
    _Atomic uint64_t run[EMBER_MAX_MEMBERSHIPS];
};

struct ember_admission {
    _Atomic uint64_t next_run;
    _Atomic uint64_t refused;
    _Atomic uint64_t targets[EMBER_MAX_TARGETS]; /* bit c: capture c waits here */
    _Atomic uint64_t called;  /* bit c: capture c was called while it was disarmed */
    _Atomic uint64_t windows; /* bit c: capture c is an open window */
    struct window window[EMBER_MAX_CAPTURES];
    struct capture captures[EMBER_MAX_CAPTURES];
    struct run runs[EMBER_MAX_RUNS];
    struct watch watch[EMBER_WATCH_ENTRIES];
    struct tracee tracees[EMBER_WATCH_ENTRIES]; /* of the watch entry of the same index */
};

#define EMPTY 1u
#define CLAIMED UINT64_MAX /* a run that is being begun; no membership has this id */

_Atomic uint64_t ember_admission_epoch;

/* Mapped, so that the pages of the watch table cost nothing until used. */
struct ember_admission *ember_admission_create(void)
{
    void *memory = mmap(NULL, sizeof(struct ember_admission), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void ember_admission_destroy(struct ember_admission *admission)
{
    if (!admission)
        return;
    for (int i = 0; i < EMBER_MAX_CAPTURES; i++)
        ember_members_destroy(atomic_load(&admission->window[i].members));
    munmap(admission, sizeof *admission);
}

/* Release: pairs with the acquire in the tracer's cached verdict, so whoever
 * sees the new epoch sees what changed before it. */
static void advance_epoch(void)
{
    atomic_fetch_add_explicit(&ember_admission_epoch, 1, memory_order_release);
}

/* ---- captures: the control thread ---- */

int ember_admission_reserve(struct ember_admission *admission)
{
    for (int i = 0; i < EMBER_MAX_CAPTURES; i++)
        if (!atomic_exchange(&admission->captures[i].used, true))
            return i;
    return -1;
}

void ember_admission_open(struct ember_admission *admission, uint32_t index,
                          const struct ember_intake *intake)
{
    struct capture *capture = &admission->captures[index];
    capture->intake = *intake;
    atomic_store(&capture->remaining, intake->calls);
    atomic_store(&capture->seen, 0);
    atomic_store(&capture->armed, !intake->disarmed);
    /* Release: pairs with the acquire in ember_admission_enter; the fields
     * above are there before the bit is. */
    atomic_fetch_or_explicit(&admission->targets[intake->target], UINT64_C(1) << index,
                             memory_order_release);
}

bool ember_admission_wants_value(const struct ember_admission *admission,
                                 const struct ember_admitted *ended, uint64_t ticks)
{
    const struct ember_intake *intake = &admission->captures[ended->capture].intake;
    return intake->wants_value && ticks - ended->begin_ticks >= intake->value_after_ticks;
}

void ember_admission_arm(struct ember_admission *admission, uint32_t capture)
{
    atomic_store(&admission->captures[capture].armed, true);
    atomic_fetch_and(&admission->called, ~(UINT64_C(1) << capture));
}

void ember_admission_disarm(struct ember_admission *admission, uint32_t capture)
{
    atomic_store(&admission->captures[capture].armed, false);
}

uint64_t ember_admission_called(struct ember_admission *admission)
{
    return atomic_load_explicit(&admission->called, memory_order_relaxed)
               ? atomic_exchange(&admission->called, 0)
               : 0;
}

uint64_t ember_admission_seen(struct ember_admission *admission, uint32_t capture)
{
    return atomic_load_explicit(&admission->captures[capture].seen, memory_order_relaxed);
}

bool ember_admission_is_active(struct ember_admission *admission, uint32_t capture)
{
    for (unsigned i = 0; i < EMBER_MAX_RUNS; i++)
        if (atomic_load(&admission->runs[i].id) &&
            atomic_load(&admission->runs[i].capture) == capture)
            return true;
    return false;
}

static void end_run(struct run *run, uint64_t id)
{
    if (atomic_compare_exchange_strong(&run->id, &id, 0))
        advance_epoch();
}

void ember_admission_close(struct ember_admission *admission, uint32_t index)
{
    struct capture *capture = &admission->captures[index];
    atomic_fetch_and(&admission->targets[capture->intake.target], ~(UINT64_C(1) << index));
    atomic_fetch_and(&admission->windows, ~(UINT64_C(1) << index));
    atomic_store(&capture->remaining, 0);
    for (unsigned i = 0; i < EMBER_MAX_RUNS; i++) {
        struct run *run = &admission->runs[i];
        uint64_t id = atomic_load(&run->id);
        if (id && id != CLAIMED && atomic_load(&run->capture) == index)
            end_run(run, id);
    }
    advance_epoch();
}

void ember_admission_reuse(struct ember_admission *admission, uint32_t capture)
{
    ember_admission_close(admission, capture); /* runs begun while it was closed */
    ember_members_destroy(atomic_exchange(&admission->window[capture].members, NULL));
    atomic_store(&admission->captures[capture].used, false);
}

uint64_t ember_admission_refused(struct ember_admission *admission)
{
    return atomic_load_explicit(&admission->refused, memory_order_relaxed);
}

/* ---- runs ---- */

static struct run *active_run(struct ember_admission *admission, uint64_t membership)
{
    struct run *run = &admission->runs[RUN_SLOT(membership)];
    /* Acquire: pairs with the release in begin_run; capture and call are set. */
    bool active = atomic_load_explicit(&run->id, memory_order_acquire) ==
                  (membership & ~(uint64_t)ROOT);
    return membership && active ? run : NULL;
}

/* The id of a new run, or 0 when no slot is free nearby. */
static uint64_t begin_run(struct ember_admission *admission, uint32_t capture, uint64_t call)
{
    for (int tries = 0; tries < PROBE_LIMIT; tries++) {
        uint64_t id = (atomic_fetch_add(&admission->next_run, 1) + 1) << 1;
        struct run *run = &admission->runs[RUN_SLOT(id)];
        uint64_t free_slot = 0;
        if (!atomic_compare_exchange_strong(&run->id, &free_slot, CLAIMED))
            continue;
        atomic_store_explicit(&run->capture, capture, memory_order_relaxed);
        atomic_store_explicit(&run->call, call ? call : id, memory_order_relaxed);
        /* Release: pairs with the acquire in active_run. */
        atomic_store_explicit(&run->id, id, memory_order_release);
        return id;
    }
    return 0;
}

/* ---- windows ---- */

static struct member *member_at(struct ember_members *members, uint64_t pid)
{
    for (uint32_t i = ember_hash(pid);; i++) {
        struct member *member = &members->slots[i & members->mask];
        if (member->pid == pid || member->pid == 0)
            return member;
    }
}

struct ember_members *ember_members_create(const uint64_t *pids, uint32_t count)
{
    uint32_t capacity = 4;
    while (capacity / 2 < count)
        capacity *= 2;
    struct ember_members *members =
        calloc(1, sizeof *members + capacity * sizeof members->slots[0]);
    if (!members)
        return NULL;
    members->mask = capacity - 1;
    for (uint32_t i = 0; i < count; i++)
        member_at(members, pids[i])->pid = pids[i];
    return members;
}

void ember_members_destroy(struct ember_members *members)
{
    free(members);
}

uint64_t ember_admission_begin_window(struct ember_admission *admission, uint32_t index,
                                      bool spawned)
{
    struct capture *capture = &admission->captures[index];
    capture->intake = (struct ember_intake){.spawned = spawned};
    atomic_store(&capture->remaining, 0);
    uint64_t run = begin_run(admission, index, 0);
    atomic_store(&admission->window[index].run, run);
    return run;
}

void ember_admission_open_window(struct ember_admission *admission, uint32_t index,
                                 struct ember_members *members)
{
    atomic_store_explicit(&admission->window[index].members, members, memory_order_relaxed);
    /* Release: pairs with the acquire in next_window; the members are there. */
    atomic_fetch_or_explicit(&admission->windows, UINT64_C(1) << index, memory_order_release);
    advance_epoch();
}

/* The next window of which `pid` is a member, and its place there; `windows` are those
 * still to be looked at. NULL: there is none. */
static struct member *next_window(struct ember_admission *admission, uint64_t pid,
                                  uint64_t *windows, uint32_t *window)
{
    for (; *windows; *windows &= *windows - 1) {
        uint32_t index = (uint32_t)__builtin_ctzll(*windows);
        struct member *member = member_at(
            atomic_load_explicit(&admission->window[index].members, memory_order_relaxed), pid);
        if (member->pid != pid)
            continue;
        *windows &= *windows - 1;
        *window = index;
        return member;
    }
    return NULL;
}

/* Acquire: pairs with the release in ember_admission_open_window. */
static uint64_t open_windows(struct ember_admission *admission)
{
    return atomic_load_explicit(&admission->windows, memory_order_acquire);
}

static bool is_member(struct ember_admission *admission, uint64_t pid)
{
    uint64_t windows = open_windows(admission);
    uint32_t window;
    return next_window(admission, pid, &windows, &window) != NULL;
}

/* relaxed: only callbacks on the process's behalf write and read it (file head) */
bool ember_admission_arrive(struct ember_admission *admission, uint64_t pid)
{
    uint64_t windows = open_windows(admission);
    uint32_t window;
    bool new = false;
    for (struct member *m; (m = next_window(admission, pid, &windows, &window));)
        new |= !atomic_exchange_explicit(&m->arrived, true, memory_order_relaxed);
    return new;
}

static bool has_arrived(struct ember_admission *admission, uint64_t pid)
{
    uint64_t windows = open_windows(admission);
    uint32_t window;
    bool arrived = false;
    for (struct member *m; (m = next_window(admission, pid, &windows, &window));)
        arrived |= atomic_load_explicit(&m->arrived, memory_order_relaxed);
    return arrived;
}

/* ---- the watch table ---- */

static struct watch *slot_at(struct ember_admission *admission, uint64_t pid, unsigned step)
{
    return &admission->watch[(ember_hash(pid) + step) & (EMBER_WATCH_ENTRIES - 1)];
}

static struct watch *find_entry(struct ember_admission *admission, uint64_t pid)
{
    for (unsigned step = 0; step < PROBE_LIMIT; step++) {
        struct watch *entry = slot_at(admission, pid, step);
        /* Acquire: pairs with the release exchange in claim_entry. */
        uint64_t found = atomic_load_explicit(&entry->pid, memory_order_acquire);
        if (found == pid)
            return entry;
        if (found == 0)
            return NULL;
    }
    return NULL;
}

static struct watch *claim_entry(struct ember_admission *admission, uint64_t pid)
{
    struct watch *entry = find_entry(admission, pid);
    for (unsigned step = 0; !entry && step < PROBE_LIMIT; step++) {
        struct watch *candidate = slot_at(admission, pid, step);
        uint64_t found = atomic_load(&candidate->pid);
        if ((found == 0 || found == EMPTY) &&
            atomic_compare_exchange_strong(&candidate->pid, &found, pid))
            entry = candidate;
    }
    return entry;
}

static void free_entry(struct ember_admission *admission, struct watch *entry)
{
    admission->tracees[entry - admission->watch] = (struct tracee){.gap = {.events = 0}};
    for (unsigned i = 0; i < EMBER_MAX_MEMBERSHIPS; i++)
        atomic_store_explicit(&entry->run[i], 0, memory_order_relaxed);
    /* Release: pairs with the acquire side of the exchange in claim_entry; the
     * next owner finds the memberships cleared. */
    atomic_store_explicit(&entry->pid, EMPTY, memory_order_release);
}

/* relaxed throughout: one writer at a time, ordered by the VM (file head) */
static uint64_t membership_at(struct watch *entry, unsigned i)
{
    return atomic_load_explicit(&entry->run[i], memory_order_relaxed);
}

static bool join_run(struct ember_admission *admission, struct watch *entry, uint64_t membership)
{
    for (unsigned i = 0; i < EMBER_MAX_MEMBERSHIPS; i++) {
        if (active_run(admission, membership_at(entry, i)))
            continue;
        atomic_store_explicit(&entry->run[i], membership, memory_order_relaxed);
        return true;
    }
    return false;
}

static bool takes_part(struct ember_admission *admission, struct watch *entry, uint32_t capture)
{
    for (unsigned i = 0; i < EMBER_MAX_MEMBERSHIPS; i++) {
        struct run *run = active_run(admission, membership_at(entry, i));
        if (run && atomic_load_explicit(&run->capture, memory_order_relaxed) == capture)
            return true;
    }
    return false;
}

bool ember_admission_watched(struct ember_admission *admission, uint64_t pid)
{
    struct watch *entry = find_entry(admission, pid);
    for (unsigned i = 0; entry && i < EMBER_MAX_MEMBERSHIPS; i++)
        if (active_run(admission, membership_at(entry, i)))
            return true;
    return is_member(admission, pid);
}

/* ---- callbacks ---- */

/* Whether it is this one's turn, of every so many. */
static bool count_call(struct capture *capture)
{
    uint64_t seen = atomic_fetch_add_explicit(&capture->seen, 1, memory_order_relaxed);
    return capture->intake.every == 0 || seen % capture->intake.every == 0;
}

/* Makes known that it is called. */
static bool is_armed(struct ember_admission *admission, uint32_t index)
{
    uint64_t bit = UINT64_C(1) << index;
    bool armed = atomic_load_explicit(&admission->captures[index].armed, memory_order_relaxed);
    if (!armed && !(atomic_load_explicit(&admission->called, memory_order_relaxed) & bit))
        atomic_fetch_or(&admission->called, bit);
    return armed;
}

static bool take_call(struct capture *capture)
{
    int64_t remaining = atomic_load(&capture->remaining);
    while (remaining > 0)
        if (atomic_compare_exchange_weak(&capture->remaining, &remaining, remaining - 1))
            return true;
    return false;
}

/* Gives the call back, and the entry if it was claimed for it. */
static void give_back(struct ember_admission *admission, struct capture *capture, uint64_t pid)
{
    atomic_fetch_add(&capture->remaining, 1);
    ember_admission_forget(admission, pid);
}

static void refuse_call(struct ember_admission *admission, struct capture *capture, uint64_t pid)
{
    atomic_fetch_add_explicit(&admission->refused, 1, memory_order_relaxed);
    give_back(admission, capture, pid);
}

/* A run of capture `index` for the call that `pid` makes, or 0; `count` others
 * have `admitted` it already. */
static uint64_t enter_capture(struct ember_admission *admission, uint32_t index, uint64_t pid,
                              const struct ember_admitted *admitted, unsigned count)
{
    struct capture *capture = &admission->captures[index];
    struct watch *entry = find_entry(admission, pid);
    if (capture->intake.only_pid && capture->intake.only_pid != pid)
        return 0;
    if ((entry && takes_part(admission, entry, index)) || !is_armed(admission, index) ||
        !count_call(capture) || !take_call(capture))
        return 0;
    if (!entry)
        entry = claim_entry(admission, pid);
    bool room = entry && count < EMBER_MAX_MEMBERSHIPS;
    uint64_t run = room ? begin_run(admission, index, count ? admitted[0].run : 0) : 0;
    if (run && join_run(admission, entry, run | ROOT))
        return run;
    if (run)
        end_run(&admission->runs[RUN_SLOT(run)], run);
    refuse_call(admission, capture, pid);
    return 0;
}

unsigned ember_admission_enter(struct ember_admission *admission, uint32_t target, uint64_t pid,
                               struct ember_admitted admitted[EMBER_MAX_MEMBERSHIPS])
{
    unsigned count = 0;
    /* Acquire: pairs with the release in ember_admission_open. */
    uint64_t waiting = atomic_load_explicit(&admission->targets[target], memory_order_acquire);
    for (; waiting; waiting &= waiting - 1) {
        uint32_t capture = (uint32_t)__builtin_ctzll(waiting);
        uint64_t run = enter_capture(admission, capture, pid, admitted, count);
        if (run)
            admitted[count++] = (struct ember_admitted){.run = run, .capture = capture};
    }
    if (count)
        advance_epoch();
    return count;
}

/* The run behind a membership when `pid` is its root and it waits at `target`. */
static struct run *root_run(struct ember_admission *admission, uint64_t membership, uint32_t target)
{
    struct run *run = membership & ROOT ? active_run(admission, membership) : NULL;
    if (!run)
        return NULL;
    uint32_t capture = atomic_load_explicit(&run->capture, memory_order_relaxed);
    return admission->captures[capture].intake.target == target ? run : NULL;
}

unsigned ember_admission_leave(struct ember_admission *admission, uint32_t target, uint64_t pid,
                               struct ember_admitted ended[EMBER_MAX_MEMBERSHIPS])
{
    struct watch *entry = find_entry(admission, pid);
    uint64_t innermost = 0;
    unsigned count = 0;
    for (unsigned i = 0; entry && i < EMBER_MAX_MEMBERSHIPS; i++) {
        uint64_t membership = membership_at(entry, i);
        struct run *run = root_run(admission, membership, target);
        uint64_t call = run ? atomic_load_explicit(&run->call, memory_order_relaxed) : 0;
        if (call > innermost) {
            innermost = call;
            count = 0;
        }
        if (run && call == innermost)
            ended[count++] = (struct ember_admitted){
                membership & ~(uint64_t)ROOT,
                atomic_load_explicit(&run->capture, memory_order_relaxed),
                atomic_load_explicit(&run->begin_ticks, memory_order_relaxed)};
    }
    return count;
}

void ember_admission_stamp(struct ember_admission *admission, uint64_t run, uint64_t ticks)
{
    atomic_store_explicit(&admission->runs[RUN_SLOT(run)].begin_ticks, ticks, memory_order_relaxed);
}

void ember_admission_end(struct ember_admission *admission, const struct ember_admitted *ended)
{
    end_run(&admission->runs[RUN_SLOT(ended->run)], ended->run);
}

void ember_admission_give_back(struct ember_admission *admission, uint64_t pid,
                               const struct ember_admitted *admitted)
{
    ember_admission_end(admission, admitted);
    give_back(admission, &admission->captures[admitted->capture], pid);
}

/* A capture that is closed takes its bit away before it ends its runs. */
bool ember_admission_has_ended(struct ember_admission *admission, uint64_t run, uint32_t capture)
{
    uint32_t target = admission->captures[capture].intake.target;
    return !active_run(admission, run) && (atomic_load(&admission->targets[target]) >> capture & 1);
}

/* ---- losses ---- */

static struct tracee *find_tracee(struct ember_admission *admission, uint64_t pid)
{
    uint64_t windows = open_windows(admission);
    uint32_t window;
    struct member *member = next_window(admission, pid, &windows, &window);
    struct watch *entry = member ? NULL : find_entry(admission, pid);
    if (member)
        return &member->tracee;
    return entry ? &admission->tracees[entry - admission->watch] : NULL;
}

struct ember_gap *ember_admission_gap(struct ember_admission *admission, uint64_t pid)
{
    struct tracee *tracee = find_tracee(admission, pid);
    return tracee ? &tracee->gap : NULL;
}

struct ember_place *ember_admission_place(struct ember_admission *admission, uint64_t pid)
{
    struct tracee *tracee = find_tracee(admission, pid);
    return tracee ? &tracee->place : NULL;
}

/* Verdicts that threads have kept must not hide it. */
void ember_admission_note_loss(struct ember_admission *admission, uint64_t pid)
{
    struct ember_gap *gap = ember_admission_gap(admission, pid);
    if (!gap)
        return;
    if (gap->events == 0) {
        *gap = (struct ember_gap){.least = INT32_MAX, .open = INT32_MAX};
        advance_epoch();
    }
    gap->events++;
}

bool ember_admission_known(struct ember_admission *admission, uint64_t pid)
{
    return find_entry(admission, pid) || has_arrived(admission, pid);
}

void ember_admission_forget(struct ember_admission *admission, uint64_t pid)
{
    struct watch *entry = find_entry(admission, pid);
    for (unsigned i = 0; entry && i < EMBER_MAX_MEMBERSHIPS; i++)
        if (active_run(admission, membership_at(entry, i)))
            return;
    if (entry)
        free_entry(admission, entry);
}

static bool follows_children(struct ember_admission *admission, struct run *run)
{
    uint32_t capture = atomic_load_explicit(&run->capture, memory_order_relaxed);
    return admission->captures[capture].intake.spawned;
}

/* The child's entry, `to` where it has one already. */
static struct watch *inherit_run(struct ember_admission *admission, uint64_t membership,
                                 uint64_t child, struct watch *to)
{
    struct run *run = active_run(admission, membership);
    if (!run || !follows_children(admission, run))
        return to;
    if (!to)
        to = claim_entry(admission, child);
    if (!to || !join_run(admission, to, membership & ~(uint64_t)ROOT))
        atomic_fetch_add_explicit(&admission->refused, 1, memory_order_relaxed);
    return to;
}

void ember_admission_inherit(struct ember_admission *admission, uint64_t parent, uint64_t child)
{
    struct watch *from = find_entry(admission, parent);
    struct watch *to = NULL;
    uint64_t windows = open_windows(admission);
    uint32_t window;
    for (unsigned i = 0; from && i < EMBER_MAX_MEMBERSHIPS; i++)
        to = inherit_run(admission, membership_at(from, i), child, to);
    while (next_window(admission, parent, &windows, &window))
        to = inherit_run(admission, atomic_load(&admission->window[window].run), child, to);
    if (to)
        advance_epoch();
}

void ember_admission_exit(struct ember_admission *admission, uint64_t pid)
{
    struct watch *entry = find_entry(admission, pid);
    if (!entry)
        return;
    for (unsigned i = 0; i < EMBER_MAX_MEMBERSHIPS; i++) {
        uint64_t membership = membership_at(entry, i);
        if ((membership & ROOT) && active_run(admission, membership))
            end_run(&admission->runs[RUN_SLOT(membership)], membership & ~(uint64_t)ROOT);
    }
    free_entry(admission, entry);
}
