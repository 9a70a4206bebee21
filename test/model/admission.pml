/* SPDX-License-Identifier: Apache-2.0
 *
 * admission.c: a capture takes exactly the calls it was opened for, however many processes
 * call at once and whether or not they find room; and once its slot is given to another
 * capture, no run of the old one is active.
 *
 * Broken on purpose: NO_SWAP, NOT_GIVEN_BACK, NO_GRACE, ONE_CLOSE, NO_CLAIM.
 */
#define CALLERS 3
#define CALLS 2
#define RUNS 1
#define CLAIMED 255

bool waits_at_target; /* the capture's bit */
byte remaining;
byte opened; /* which capture has the slot: 1, then 2 */

byte run_id[RUNS];
byte run_of[RUNS]; /* the capture that was open, for the assertions; likewise: */
byte users[RUNS];
byte last_run;

bool inside[CALLERS];
byte admitted[3]; /* by capture */
byte refused;
byte callers_left = CALLERS;

/* entered: whether the call is taken */
inline take_call()
{
    seen = remaining;
    do
    :: seen == 0 -> break
    :: seen > 0 ->
#ifdef NO_SWAP
        remaining = seen - 1;
        entered = true;
        break
#else
        if
        :: atomic { remaining == seen -> remaining = seen - 1 }; entered = true; break
        :: atomic { remaining != seen -> seen = remaining }
        :: skip /* a weak swap may fail for no reason */
        fi
#endif
    od
}

inline begin_run()
{
    atomic { last_run++; id = last_run; slot = id % RUNS };
    if
#ifdef NO_CLAIM
    :: run_id[slot] == 0 ->
#else
    :: atomic { run_id[slot] == 0 -> run_id[slot] = CLAIMED };
#endif
        run_of[slot] = capture;
        atomic { run_id[slot] = id; users[slot]++; assert(users[slot] == 1) }
    :: atomic { run_id[slot] != 0 -> id = 0 }
    fi
}

inline end_run(place, its_id)
{
    if
    :: atomic { run_id[place] == its_id -> run_id[place] = 0; users[place]-- }
    :: atomic { run_id[place] != its_id -> skip }
    fi
}

inline call()
{
    inside[me] = true;
    atomic { found = waits_at_target; capture = opened };
    if
    :: found ->
        take_call();
        if
        :: entered ->
            begin_run();
            if
            :: id != 0 -> atomic { admitted[capture]++; assert(run_of[slot] == capture) }
            :: else ->
#ifndef NOT_GIVEN_BACK
                atomic { remaining++; refused++ }
#endif
            fi
        :: else
        fi
    :: else
    fi;
    inside[me] = false
}

/* One process: calls, and its call returns. */
proctype caller(byte me)
{
    byte id, slot, seen, capture;
    bool found, entered;
    call();
    if
    :: id != 0 -> end_run(slot, id) /* in a callback of its own */
    :: else
    fi;
    callers_left--
}

inline close()
{
    waits_at_target = false;
    remaining = 0;
    for (i : 0 .. RUNS - 1) {
        id = run_id[i];
        if
        :: id != 0 && id != CLAIMED -> end_run(i, id)
        :: else
        fi
    }
}

inline grace_period()
{
    skip;
#ifndef NO_GRACE
    for (i : 0 .. CALLERS - 1) {
        atomic { was[i] = inside[i] }
    };
    for (i : 0 .. CALLERS - 1) {
        if
        :: was[i] -> !inside[i]
        :: else
        fi
    }
#endif
}

inline open(number, calls)
{
    atomic { opened = number; remaining = calls };
    waits_at_target = true
}

active proctype control()
{
    byte i, id;
    bool was[CALLERS];
    open(1, CALLS);
    atomic { run caller(0); run caller(1); run caller(2) };
    if
    :: callers_left == 0 ->
        assert(admitted[1] + remaining == CALLS);
        assert(refused > 0 || admitted[1] == CALLS)
    :: true ->
        close();
        grace_period();
#ifndef ONE_CLOSE
        close();
#endif
        atomic {
            for (i : 0 .. RUNS - 1) {
                assert(run_id[i] == 0 || run_of[i] != 1)
            }
        };
        open(2, CALLS);
        callers_left == 0;
        assert(admitted[1] <= CALLS && admitted[2] + remaining == CALLS)
    fi
}
