/* SPDX-License-Identifier: Apache-2.0 */
/* LDFLAGS: -Wl,--wrap=mmap */
#include "admission.h"

#include <criterion/criterion.h>
#include <sys/mman.h>

enum { PID = 0x1003, OTHER = 0x2003, MANY_CALLS = 1000000 };

static bool fail_mmap;
void *__real_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset);

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset)
{
    return fail_mmap ? MAP_FAILED : __real_mmap(at, size, protection, flags, file, offset);
}

static struct ember_admission *admission;
static struct ember_admitted runs[EMBER_MAX_MEMBERSHIPS];

static void set_up(void)
{
    cr_assert(admission = ember_admission_create());
}

static void tear_down(void)
{
    ember_admission_destroy(admission);
}

TestSuite(admission, .init = set_up, .fini = tear_down);

static uint32_t open_with(const struct ember_intake *intake)
{
    int capture = ember_admission_reserve(admission);
    cr_assert_geq(capture, 0);
    ember_admission_open(admission, (uint32_t)capture, intake);
    return (uint32_t)capture;
}

static uint32_t open_at(uint32_t target, int64_t calls)
{
    return open_with(&(struct ember_intake){.target = target, .calls = calls, .spawned = true});
}

static unsigned enter(uint32_t target, uint64_t pid)
{
    return ember_admission_enter(admission, target, pid, runs);
}

static unsigned leave(uint32_t target, uint64_t pid)
{
    unsigned count = ember_admission_leave(admission, target, pid, runs);
    for (unsigned i = 0; i < count; i++)
        ember_admission_end(admission, &runs[i]);
    return count;
}

static bool watched(uint64_t pid)
{
    return ember_admission_watched(admission, pid);
}

static uint64_t refused(void)
{
    return ember_admission_refused(admission);
}

/* ---- One capture --------------------------------------------------------- */

Test(admission, nobody_is_admitted_without_a_capture)
{
    cr_assert_eq(enter(0, PID), 0);
    cr_assert_not(watched(PID));
}

Test(admission, as_many_calls_as_asked_for_are_admitted)
{
    uint32_t capture = open_at(3, 2);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(enter(3, PID), 1);
        cr_assert_eq(runs[0].capture, capture);
        cr_assert_eq(leave(3, PID), 1);
    }
    cr_assert_eq(enter(3, PID), 0);
    cr_assert_eq(refused(), 0);
}

Test(admission, calls_to_other_targets_are_not_admitted)
{
    open_at(3, 2);
    cr_assert_eq(enter(2, PID), 0);
    cr_assert_eq(enter(3, PID), 1);
}

Test(admission, a_process_is_watched_while_its_call_lasts)
{
    open_at(0, 5);
    enter(0, PID);
    cr_assert(watched(PID));
    cr_assert_not(watched(OTHER));
    leave(0, PID);
    cr_assert_not(watched(PID));
}

Test(admission, leave_gives_the_run_that_enter_gave)
{
    uint32_t capture = open_at(0, 1);
    enter(0, PID);
    uint64_t run = runs[0].run;
    cr_assert_eq(leave(0, OTHER), 0);
    cr_assert_eq(leave(1, PID), 0);
    cr_assert_eq(leave(0, PID), 1);
    cr_assert_eq(runs[0].run, run);
    cr_assert_eq(runs[0].capture, capture);
    cr_assert_eq(leave(0, PID), 0);
}

Test(admission, only_the_process_asked_for_is_admitted)
{
    open_with(&(struct ember_intake){.target = 0, .calls = 1, .only_pid = PID});
    cr_assert_eq(enter(0, OTHER), 0);
    cr_assert_eq(enter(0, PID), 1);
}

Test(admission, a_nested_call_of_the_target_is_not_counted_again)
{
    open_at(0, 2);
    cr_assert_eq(enter(0, PID), 1);
    cr_assert_eq(enter(0, PID), 0);
    cr_assert_eq(leave(0, PID), 1);
    cr_assert_eq(enter(0, PID), 1);
    cr_assert_eq(refused(), 0);
}

static bool wants_value(uint32_t capture, uint64_t begin, uint64_t end)
{
    struct ember_admitted ended = {.capture = capture, .begin_ticks = begin};
    return ember_admission_wants_value(admission, &ended, end);
}

Test(admission, the_value_is_wanted_where_asked_for)
{
    uint32_t without = open_at(0, 1);
    uint32_t with = open_with(&(struct ember_intake){.target = 0, .calls = 1, .wants_value = true});
    cr_assert_not(wants_value(without, 0, 1));
    cr_assert(wants_value(with, 1, 1));
}

Test(admission, the_value_of_a_fast_call_is_not_wanted)
{
    uint32_t capture = open_with(&(struct ember_intake){
        .target = 0, .calls = 1, .wants_value = true, .value_after_ticks = 100});
    cr_assert_eq(enter(0, PID), 1);
    ember_admission_stamp(admission, runs[0].run, 5000);
    cr_assert_eq(leave(0, PID), 1);
    cr_assert_eq(runs[0].begin_ticks, 5000);
    cr_assert_not(wants_value(capture, runs[0].begin_ticks, 5099));
    cr_assert(wants_value(capture, runs[0].begin_ticks, 5100));
}

/* ---- One call in so many ------------------------------------------------- */

Test(admission, one_in_so_many_is_admitted)
{
    for (uint64_t every = 1; every < 6; every++) {
        uint32_t capture =
            open_with(&(struct ember_intake){.target = 0, .calls = 99, .every = every});
        for (uint64_t call = 0; call < 20; call++) {
            bool taken = enter(0, PID) == 1;
            cr_assert_eq(taken, call % every == 0);
            leave(0, PID);
        }
        cr_assert_eq(ember_admission_seen(admission, capture), 20);
        ember_admission_close(admission, capture);
    }
}

Test(admission, of_so_many_each_capture_counts_by_itself)
{
    open_with(&(struct ember_intake){.target = 0, .calls = 99, .every = 2});
    open_with(&(struct ember_intake){.target = 0, .calls = 99, .every = 3});
    unsigned taken = 0;
    for (int call = 0; call < 6; call++) {
        taken += enter(0, PID);
        leave(0, PID);
    }
    cr_assert_eq(taken, 5);
}

Test(admission, what_others_call_or_is_nested_does_not_count)
{
    uint32_t capture =
        open_with(&(struct ember_intake){.target = 0, .calls = 99, .every = 2, .only_pid = PID});
    cr_assert_eq(enter(0, OTHER), 0);
    cr_assert_eq(enter(0, PID), 1);
    cr_assert_eq(enter(0, PID), 0);
    leave(0, PID);
    cr_assert_eq(ember_admission_seen(admission, capture), 1);
}

/* ---- Disarmed captures --------------------------------------------------- */

Test(admission, a_disarmed_capture_tells_of_calls_and_takes_none)
{
    uint32_t capture = open_with(&(struct ember_intake){.target = 0, .calls = 2, .disarmed = true});
    cr_assert_eq(ember_admission_called(admission), 0);
    cr_assert_eq(enter(0, PID), 0);
    cr_assert_eq(enter(0, OTHER), 0);
    cr_assert_eq(ember_admission_called(admission), UINT64_C(1) << capture);
    cr_assert_eq(ember_admission_called(admission), 0);
    cr_assert_eq(ember_admission_seen(admission, capture), 0);
    cr_assert_not(watched(PID));
    ember_admission_arm(admission, capture);
    cr_assert_eq(enter(0, PID), 1);
    cr_assert_eq(ember_admission_called(admission), 0);
}

Test(admission, a_capture_can_be_disarmed_again)
{
    uint32_t capture = open_at(0, 2);
    cr_assert_eq(enter(0, PID), 1);
    cr_assert(ember_admission_is_active(admission, capture));
    leave(0, PID);
    cr_assert_not(ember_admission_is_active(admission, capture));
    ember_admission_disarm(admission, capture);
    cr_assert_eq(enter(0, PID), 0);
    cr_assert_eq(ember_admission_called(admission), UINT64_C(1) << capture);
    ember_admission_arm(admission, capture);
    cr_assert_eq(enter(0, PID), 1, "the second of two");
}

Test(admission, epoch_changes_with_every_answer)
{
    open_at(0, 9);
    uint64_t before = atomic_load(&ember_admission_epoch);
    enter(0, PID);
    uint64_t entered = atomic_load(&ember_admission_epoch);
    ember_admission_inherit(admission, PID, OTHER);
    uint64_t inherited = atomic_load(&ember_admission_epoch);
    leave(0, PID);
    uint64_t left = atomic_load(&ember_admission_epoch);
    enter(0, PID);
    uint64_t again = atomic_load(&ember_admission_epoch);
    ember_admission_exit(admission, PID);
    cr_assert(before < entered && entered < inherited && inherited < left && left < again);
    cr_assert_gt(atomic_load(&ember_admission_epoch), again);
}

/* ---- Several captures ---------------------------------------------------- */

Test(admission, one_call_begins_a_run_for_each_capture_of_its_target)
{
    uint32_t first = open_at(0, 1);
    uint32_t second = open_at(0, 1);
    cr_assert_eq(enter(0, PID), 2);
    cr_assert_eq(runs[0].capture, first);
    cr_assert_eq(runs[1].capture, second);
    cr_assert_neq(runs[0].run, runs[1].run);
    cr_assert_eq(leave(0, PID), 2);
    cr_assert_not(watched(PID));
}

Test(admission, leave_ends_the_innermost_call)
{
    open_at(0, 1);
    enter(0, PID);
    uint64_t outer = runs[0].run;
    open_at(0, 1);
    cr_assert_eq(enter(0, PID), 1);
    uint64_t inner = runs[0].run;
    cr_assert_eq(leave(0, PID), 1);
    cr_assert_eq(runs[0].run, inner);
    cr_assert(watched(PID));
    cr_assert_eq(leave(0, PID), 1);
    cr_assert_eq(runs[0].run, outer);
    cr_assert_not(watched(PID));
}

/* The slot in the table says nothing of what is inside: the third call takes
 * the first one's place. */
Test(admission, innermost_is_told_by_age_and_not_by_place)
{
    open_at(1, 1);
    open_at(0, 1);
    enter(1, PID);
    enter(0, PID);
    uint64_t outer = runs[0].run;
    leave(1, PID);
    open_at(0, 1);
    enter(0, PID);
    uint64_t inner = runs[0].run;
    leave(0, PID);
    cr_assert_eq(runs[0].run, inner);
    leave(0, PID);
    cr_assert_eq(runs[0].run, outer);
}

Test(admission, captures_of_different_targets_end_apart)
{
    uint32_t outer = open_at(0, 1);
    uint32_t inner = open_at(1, 1);
    enter(0, PID);
    enter(1, PID);
    cr_assert_eq(leave(1, PID), 1);
    cr_assert_eq(runs[0].capture, inner);
    cr_assert(watched(PID));
    cr_assert_eq(leave(0, PID), 1);
    cr_assert_eq(runs[0].capture, outer);
}

Test(admission, captures_run_out_of_slots)
{
    for (int i = 0; i < EMBER_MAX_CAPTURES; i++)
        cr_assert_eq(ember_admission_reserve(admission), i);
    cr_assert_eq(ember_admission_reserve(admission), -1);
    ember_admission_reuse(admission, 17);
    cr_assert_eq(ember_admission_reserve(admission), 17);
}

/* ---- Closing ------------------------------------------------------------- */

Test(admission, close_ends_the_runs_and_admits_no_more)
{
    uint32_t capture = open_at(0, 5);
    uint32_t other = open_at(1, 5);
    enter(0, PID);
    enter(1, OTHER);
    ember_admission_close(admission, capture);
    cr_assert_not(watched(PID));
    cr_assert_eq(enter(0, PID), 0);
    cr_assert_eq(leave(0, PID), 0);
    cr_assert(watched(OTHER), "the other capture goes on");
    ember_admission_close(admission, other);
}

Test(admission, a_reused_slot_does_not_see_old_runs)
{
    uint32_t capture = open_at(0, 5);
    enter(0, PID);
    ember_admission_close(admission, capture);
    ember_admission_reuse(admission, capture);
    cr_assert_eq(open_at(0, 1), capture);
    cr_assert_not(watched(PID));
    cr_assert_eq(enter(0, PID), 1);
}

/* ---- Processes ----------------------------------------------------------- */

Test(admission, children_take_part_until_the_run_ends)
{
    open_at(0, 1);
    enter(0, PID);
    ember_admission_inherit(admission, PID, OTHER);
    ember_admission_inherit(admission, OTHER, OTHER + 16); /* a grandchild */
    cr_assert(watched(OTHER) && watched(OTHER + 16));
    leave(0, PID);
    cr_assert_not(watched(OTHER) || watched(OTHER + 16));
}

Test(admission, children_are_left_alone_where_asked)
{
    open_with(&(struct ember_intake){.target = 0, .calls = 1, .spawned = false});
    enter(0, PID);
    ember_admission_inherit(admission, PID, OTHER);
    cr_assert_not(watched(OTHER));
}

Test(admission, a_child_cannot_end_the_run_of_its_parent)
{
    open_at(0, 1);
    enter(0, PID);
    ember_admission_inherit(admission, PID, OTHER);
    cr_assert_eq(leave(0, OTHER), 0);
    ember_admission_exit(admission, OTHER);
    cr_assert(watched(PID));
    cr_assert_not(watched(OTHER));
}

Test(admission, a_call_in_a_child_is_a_nested_one)
{
    open_at(0, 2);
    enter(0, PID);
    ember_admission_inherit(admission, PID, OTHER);
    cr_assert_eq(enter(0, OTHER), 0);
}

Test(admission, exit_ends_the_runs_rooted_in_the_process)
{
    open_at(0, 2);
    enter(0, PID);
    ember_admission_inherit(admission, PID, OTHER);
    ember_admission_exit(admission, PID);
    cr_assert_not(watched(PID));
    cr_assert_not(watched(OTHER));
    cr_assert_eq(enter(0, PID), 1, "the pid's next owner starts afresh");
}

Test(admission, a_dead_childs_pid_is_a_strangers)
{
    open_at(0, 1);
    open_at(1, 1);
    enter(0, PID);
    ember_admission_inherit(admission, PID, OTHER);
    ember_admission_exit(admission, OTHER);
    cr_assert_eq(enter(1, OTHER), 1);
    leave(1, OTHER);
    cr_assert_not(watched(OTHER));
}

Test(admission, forget_keeps_who_takes_part)
{
    open_at(0, 1);
    enter(0, PID);
    ember_admission_forget(admission, PID);
    cr_assert(watched(PID));
    ember_admission_forget(admission, OTHER);
    cr_assert_eq(leave(0, PID), 1);
}

/* ---- Full tables --------------------------------------------------------- */

Test(admission, a_process_in_too_many_runs_is_refused_and_counted)
{
    for (int i = 0; i < EMBER_MAX_MEMBERSHIPS; i++) {
        open_at((uint32_t)i, 1);
        cr_assert_eq(enter((uint32_t)i, PID), 1);
    }
    open_at(10, 1);
    cr_assert_eq(enter(10, PID), 0);
    cr_assert_eq(refused(), 1);
    cr_assert_eq(enter(10, OTHER), 1, "the call was given back");
}

Test(admission, a_call_wanted_by_too_many_captures_is_counted)
{
    for (int i = 0; i < EMBER_MAX_MEMBERSHIPS + 2; i++)
        open_at(0, 1);
    cr_assert_eq(enter(0, PID), EMBER_MAX_MEMBERSHIPS);
    cr_assert_eq(refused(), 2);
    cr_assert_eq(enter(0, OTHER), 2);
}

Test(admission, captures_that_do_not_want_the_call_refuse_nothing)
{
    for (int i = 0; i < EMBER_MAX_MEMBERSHIPS; i++)
        open_at(0, 2);
    open_at(0, 0);
    open_with(&(struct ember_intake){.target = 0, .calls = 1, .only_pid = OTHER});
    cr_assert_eq(enter(0, PID), EMBER_MAX_MEMBERSHIPS);
    cr_assert_eq(refused(), 0);
}

static uint64_t pid_at(uint64_t i)
{
    return i << 4 | 3;
}

static void fill_runs(void)
{
    for (uint64_t i = 1; i <= EMBER_MAX_RUNS; i++)
        cr_assert_eq(enter(0, pid_at(i)), 1);
}

Test(admission, calls_beyond_the_table_of_runs_are_refused_and_counted)
{
    open_at(0, MANY_CALLS);
    fill_runs();
    cr_assert_eq(enter(0, PID << 8), 0);
    cr_assert_eq(refused(), 1);
    cr_assert_eq(leave(0, pid_at(7)), 1);
    bool admitted = false;
    for (int tries = 0; tries < EMBER_MAX_RUNS && !admitted; tries++)
        admitted = enter(0, PID << 8) == 1;
    cr_assert(admitted, "a run that has ended makes room");
}

Test(admission, refused_processes_leave_nothing_behind)
{
    open_at(0, MANY_CALLS);
    fill_runs();
    for (uint64_t i = 0; i < 2 * EMBER_WATCH_ENTRIES; i++)
        cr_assert_eq(enter(0, pid_at(i + 10000)), 0);
    for (uint64_t i = 1; i <= EMBER_MAX_RUNS; i++)
        cr_assert_eq(leave(0, pid_at(i)), 1);
    for (uint64_t i = 1; i <= EMBER_MAX_RUNS; i++)
        cr_assert_eq(enter(0, pid_at(i + 500000)), 1);
}

Test(admission, children_beyond_the_watch_table_are_counted)
{
    open_at(0, 1);
    enter(0, PID);
    uint64_t lost = 0;
    for (uint64_t i = 0; i < EMBER_WATCH_ENTRIES + 100; i++) {
        ember_admission_inherit(admission, PID, pid_at(i + 10000));
        lost += !watched(pid_at(i + 10000));
    }
    cr_assert_gt(lost, 0);
    cr_assert_eq(refused(), lost);
}

Test(admission, entries_are_freed_for_the_next)
{
    open_at(0, MANY_CALLS);
    for (uint64_t i = 0; i < 4 * EMBER_WATCH_ENTRIES; i++) {
        cr_assert_eq(enter(0, pid_at(i + 1)), 1);
        cr_assert_eq(leave(0, pid_at(i + 1)), 1);
        cr_assert(ember_admission_known(admission, pid_at(i + 1)));
        ember_admission_forget(admission, pid_at(i + 1));
        cr_assert_not(ember_admission_known(admission, pid_at(i + 1)));
    }
    cr_assert_eq(refused(), 0);
}

Test(admission, run_ids_are_never_used_twice)
{
    uint64_t last = 0;
    open_at(0, MANY_CALLS);
    for (uint64_t i = 0; i < 5 * EMBER_MAX_RUNS; i++) {
        cr_assert_eq(enter(0, PID), 1);
        cr_assert_gt(runs[0].run, last);
        last = runs[0].run;
        leave(0, PID);
    }
}

Test(admission, create_fails_without_memory)
{
    fail_mmap = true;
    cr_assert_null(ember_admission_create());
    fail_mmap = false;
    ember_admission_destroy(NULL);
}

/* ---- losses and ends ---- */

static bool has_ended(uint64_t run)
{
    return ember_admission_has_ended(admission, run, runs[0].capture);
}

Test(admission, run_is_active_until_its_end_is_written)
{
    open_at(0, 1);
    enter(0, PID);
    uint64_t run = runs[0].run;
    cr_assert_eq(ember_admission_leave(admission, 0, PID, runs), 1);
    cr_assert(watched(PID));
    cr_assert_not(has_ended(run));
    ember_admission_end(admission, &runs[0]);
    cr_assert_not(watched(PID));
    cr_assert(has_ended(run));
}

Test(admission, run_that_its_capture_has_ended_did_not_end_by_itself)
{
    uint32_t capture = open_at(0, 1);
    enter(0, PID);
    uint64_t run = runs[0].run;
    ember_admission_close(admission, capture);
    cr_assert_not(watched(PID));
    cr_assert_not(has_ended(run));
}

Test(admission, call_that_is_given_back_is_taken_again)
{
    open_at(0, 1);
    enter(0, PID);
    ember_admission_give_back(admission, PID, &runs[0]);
    cr_assert_not(watched(PID));
    cr_assert_eq(refused(), 0);
    cr_assert_eq(enter(0, PID), 1);
    cr_assert_eq(enter(0, PID + 1), 0);
}

Test(admission, losses_are_remembered_with_the_process)
{
    open_at(0, 2);
    ember_admission_note_loss(admission, PID);
    cr_assert_null(ember_admission_gap(admission, PID), "it takes part in nothing");
    enter(0, PID);
    uint64_t epoch = ember_admission_epoch;
    ember_admission_note_loss(admission, PID);
    cr_assert_neq(ember_admission_epoch, epoch, "verdicts that are kept must not hide it");
    ember_admission_note_loss(admission, PID);
    const struct ember_gap *gap = ember_admission_gap(admission, PID);
    cr_assert_eq(gap->events, 2);
    cr_assert_eq(gap->least, INT32_MAX);
    cr_assert_eq(gap->open, INT32_MAX);
    ember_admission_exit(admission, PID);
    enter(0, PID);
    cr_assert_eq(ember_admission_gap(admission, PID)->events, 0, "a new process of this pid");
}

/* ---- windows ---- */

static uint32_t open_window(const uint64_t *pids, uint32_t count, bool spawned, uint64_t *run)
{
    int capture = ember_admission_reserve(admission);
    cr_assert_geq(capture, 0);
    struct ember_members *members = ember_members_create(pids, count);
    cr_assert(members);
    cr_assert(*run = ember_admission_begin_window(admission, (uint32_t)capture, spawned));
    cr_assert_not(watched(pids[0]), "not before its events can be taken");
    ember_admission_open_window(admission, (uint32_t)capture, members);
    return (uint32_t)capture;
}

static void close_window(uint32_t capture)
{
    ember_admission_close(admission, capture);
    ember_admission_reuse(admission, capture);
}

Test(admission, members_are_watched_while_the_window_is_open)
{
    enum { MEMBERS = 3000 };
    uint64_t pids[MEMBERS];
    uint64_t run;
    for (uint64_t i = 0; i < MEMBERS; i++)
        pids[i] = (i + 1) << 4 | 3;
    uint32_t window = open_window(pids, MEMBERS, true, &run);
    for (int i = 0; i < MEMBERS; i++)
        cr_assert(watched(pids[i]));
    cr_assert_not(watched((uint64_t)(MEMBERS + 1) << 4 | 3));
    close_window(window);
    for (int i = 0; i < MEMBERS; i++)
        cr_assert_not(watched(pids[i]));
}

Test(admission, members_arrive_once_in_each_window)
{
    uint64_t run;
    const uint64_t pids[] = {PID};
    uint32_t first = open_window(pids, 1, true, &run);
    cr_assert_not(ember_admission_known(admission, PID), "the VM may not have it traced yet");
    cr_assert(ember_admission_arrive(admission, PID));
    cr_assert_not(ember_admission_arrive(admission, PID));
    cr_assert_not(ember_admission_arrive(admission, OTHER));
    cr_assert(ember_admission_known(admission, PID));
    close_window(first);
    cr_assert_not(ember_admission_known(admission, PID));
}

Test(admission, children_of_members_take_part_where_asked)
{
    enum { CHILD = 0x3003, GRANDCHILD = 0x4003 };
    uint64_t run;
    const uint64_t pids[] = {PID};
    for (int spawned = 0; spawned < 2; spawned++) {
        uint32_t window = open_window(pids, 1, spawned, &run);
        ember_admission_inherit(admission, PID, CHILD);
        ember_admission_inherit(admission, CHILD, GRANDCHILD);
        cr_assert_eq(watched(CHILD), spawned);
        cr_assert_eq(watched(GRANDCHILD), spawned);
        close_window(window);
        cr_assert_not(watched(CHILD));
        ember_admission_forget(admission, CHILD);
        ember_admission_forget(admission, GRANDCHILD);
    }
}

Test(admission, members_are_captured_too)
{
    uint64_t run;
    const uint64_t pids[] = {PID};
    uint32_t window = open_window(pids, 1, true, &run);
    open_at(5, 1);
    cr_assert_eq(enter(5, PID), 1);
    close_window(window);
    cr_assert(watched(PID), "the call goes on");
    cr_assert_eq(leave(5, PID), 1);
}

Test(admission, a_window_outlives_its_members_calls)
{
    uint64_t run;
    const uint64_t pids[] = {PID, OTHER};
    uint32_t window = open_window(pids, 2, true, &run);
    open_at(5, 1);
    cr_assert_eq(enter(5, PID), 1);
    cr_assert_eq(leave(5, PID), 1);
    ember_admission_forget(admission, PID);
    cr_assert(watched(PID));
    ember_admission_exit(admission, OTHER);
    cr_assert(watched(PID));
    close_window(window);
}

Test(admission, losses_of_members_are_counted)
{
    uint64_t run;
    const uint64_t pids[] = {PID};
    uint32_t window = open_window(pids, 1, true, &run);
    ember_admission_note_loss(admission, PID);
    cr_assert_eq(ember_admission_gap(admission, PID)->events, 1);
    close_window(window);
    cr_assert_null(ember_admission_gap(admission, PID));
}
