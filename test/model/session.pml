/* SPDX-License-Identifier: Apache-2.0
 *
 * session.c, tracer.c: sessions that begin and end while callbacks come. No callback
 * touches what is freed, and each event that a callback wrote is drained.
 *
 * The pointer to the session may be read as any value it has had since the one that the
 * thread saw last, but for what RCU grants: a read section that begins after a
 * grace period has begun sees what was set before that.
 *
 * Broken on purpose: NO_GRACE, CLEAR_LATE, STOP_EARLY, ANY_GENERATION, ANY_OWNER.
 */
#define THREADS 2
#define SESSIONS 2
#define CALLBACKS 2

byte pointers[6]; /* values of the session pointer, 0: none, in the order of stores */
byte newest;
byte granted;     /* the newest before the last grace period began */

bool inside[THREADS];
byte section[THREADS];

bool alive[SESSIONS + 1];
typedef session { byte claimed; byte written[THREADS]; byte drained[THREADS] }
session sessions[SESSIONS + 1];

inline begin_section()
{
    atomic {
        inside[me] = true;
        section[me]++;
        if
        :: at < granted -> at = granted
        :: else
        fi
    }
}

inline end_section()
{
    inside[me] = false
}

inline write_event()
{
    if
#ifndef ANY_GENERATION
    :: generation != pointers[at] ->
#else
    :: generation == 0 ->
#endif
        atomic {
            assert(alive[pointers[at]]);
            generation = pointers[at];
            ring = sessions[generation].claimed;
            sessions[generation].claimed++
        }
    :: else
    fi;
    atomic {
        assert(alive[generation]);
        sessions[generation].written[ring]++
    }
}

proctype callbacks(byte me)
{
    byte at, generation, ring, i;
    for (i : 1 .. CALLBACKS) {
        begin_section();
        atomic {
            do
            :: at < newest -> at++
            :: break
            od
        };
        if
        :: pointers[at] != 0 -> write_event()
        :: else
        fi;
        end_section()
    }
}

bool locked;
byte current; /* protected by it */

inline set_pointer(value)
{
    atomic { newest++; pointers[newest] = value }
}

inline wait_for(thread)
{
    !inside[thread] || section[thread] != before[thread]
}

inline grace_period()
{
    skip;
#ifndef NO_GRACE
    atomic {
        granted = newest;
        before[0] = (inside[0] -> section[0] : 0);
        before[1] = (inside[1] -> section[1] : 0)
    };
    wait_for(0);
    wait_for(1)
#endif
}

inline stop_consumer()
{
    atomic {
        sessions[current].drained[0] = sessions[current].written[0];
        sessions[current].drained[1] = sessions[current].written[1]
    }
}

inline free_session()
{
    atomic {
        assert(sessions[current].drained[0] == sessions[current].written[0]);
        assert(sessions[current].drained[1] == sessions[current].written[1]);
        alive[current] = false;
        current = 0
    }
}

inline end_session()
{
#ifdef STOP_EARLY
    stop_consumer();
#endif
#ifdef CLEAR_LATE
    grace_period();
    set_pointer(0);
#else
    set_pointer(0);
    grace_period();
#endif
#ifndef STOP_EARLY
    stop_consumer();
#endif
    free_session()
}

#define LOCK atomic { !locked -> locked = true }
#define UNLOCK locked = false

/* Its session may have been ended, and another begun, before it comes to it. */
proctype owner_died()
{
    byte before[THREADS];
    LOCK;
    if
#ifdef ANY_OWNER
    :: current != 0 -> end_session()
#else
    :: current == 1 -> end_session()
#endif
    :: else
    fi;
    UNLOCK
}

active proctype control()
{
    byte before[THREADS];
    byte generation;
    atomic { run callbacks(0); run callbacks(1) };
    for (generation : 1 .. SESSIONS) {
        LOCK;
        atomic { alive[generation] = true; current = generation };
        set_pointer(generation);
        UNLOCK;
        if
        :: generation == 1 -> run owner_died()
        :: else
        fi;
        LOCK;
        if
        :: current != 0 -> end_session()
        :: else -> assert(generation == 1)
        fi;
        UNLOCK
    }
}
