/* SPDX-License-Identifier: Apache-2.0
 *
 * consumer.c: what other threads ask of the consumer thread. Each command is obeyed once,
 * as it was given, before who asked goes on; the thread ends with STOP, and nobody waits
 * for ever. The look without the mutex may see an old value; a store is seen some time.
 *
 * Broken on purpose: SIGNAL_ONE, NO_TURNS, CLEAR_UNLOCKED, NO_MUTEX.
 */
#define NONE 0
#define CLOSE 1
#define STOP 2

bool locked;
byte command = NONE;  /* as the mutex's owner sees it */
byte hint = NONE;     /* as it may be seen without */
byte parameter;
bool waits[3];        /* on the condition variable */
byte obeyed[3];       /* by parameter: how often */
bool consumer_ended;
byte askers_left = 2;

#define LOCK atomic { !locked -> locked = true }
#define UNLOCK locked = false

inline wait_changed(me)
{
    atomic { waits[me] = true; UNLOCK };
    !waits[me];
    LOCK
}

inline broadcast()
{
#ifdef SIGNAL_ONE
    atomic {
        if
        :: waits[0] -> waits[0] = false
        :: waits[1] -> waits[1] = false
        :: waits[2] -> waits[2] = false
        :: else
        fi
    }
#else
    atomic { waits[0] = false; waits[1] = false; waits[2] = false }
#endif
}

inline ask(me, what)
{
    LOCK;
#ifndef NO_TURNS
    do
    :: command != NONE -> wait_changed(me)
    :: else -> break
    od;
#endif
    parameter = me;
    command = what;
    do
    :: command != NONE -> wait_changed(me)
    :: else -> break
    od;
    assert(obeyed[me] == 1);
    UNLOCK
}

proctype asker(byte me)
{
    ask(me, CLOSE);
    askers_left--
}

/* Makes stores visible, in its own time. */
active proctype memory()
{
    do
    :: atomic { hint != command -> hint = command }
    :: consumer_ended && hint == command -> break
    od
}

active proctype consumer()
{
    bool stop;
    do
    :: hint == NONE -> skip /* drains and rests */
    :: hint != NONE ->
#ifndef NO_MUTEX
        LOCK;
#endif
        if
        :: command != NONE -> obeyed[parameter]++
        :: else
        fi;
        stop = (command == STOP);
#ifdef CLEAR_UNLOCKED
        broadcast();
        UNLOCK;
        command = NONE;
#else
        command = NONE;
        broadcast();
#ifndef NO_MUTEX
        UNLOCK;
#endif
#endif
        if
        :: stop -> break
        :: else
        fi
    od;
    consumer_ended = true
}

active proctype owner()
{
    run asker(0);
    run asker(1);
    askers_left == 0;
    ask(2, STOP);
    consumer_ended; /* join */
    assert(obeyed[0] == 1 && obeyed[1] == 1 && obeyed[2] == 1)
}

ltl ends { <> consumer_ended }
