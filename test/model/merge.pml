/* SPDX-License-Identifier: Apache-2.0
 *
 * merge.c: events of processes that move between threads, each with its own ring, read
 * twice and taken in the order of time. Of what is taken, all predecessors were taken
 * before; and what was written before a drain_all began has been taken when it ends.
 *
 * A tail may be read as any value from the least that the reader must see to the newest.
 * What must be seen travels as views: a published tail carries its producer's, which has
 * taken over those of the processes it has run. A time is taken before the event
 * is published, and any time may pass in between.
 *
 * With THREE, three threads do less each.
 *
 * Broken on purpose: ONE_READING, PASS_BY, RELAXED_LOAD, RELAXED_STORE, RELAXED_MOVE,
 * ONE_DRAIN, TWO_DRAINS.
 */
#ifdef TWO_DRAINS /* is enough for two threads */
#define THREE
#endif
#ifdef THREE
#define RINGS 3
#define EVENTS_OF(process) 1
#else
#define RINGS 2
#define EVENTS_OF(process) (2 - process)
#endif
#define PROCESSES RINGS
#define EVENTS 3

/* What one is bound to see of each ring. */
typedef view { byte tail[RINGS] }
/* An event: whose, its number there, its time, and what its publication shows. */
typedef event { byte process; byte number; byte time; view shows }
typedef ring { event at[EVENTS]; byte tail }

ring rings[RINGS];
byte now = 1;

bool running[PROCESSES]; /* on some thread */
byte next[PROCESSES];    /* number of its next event */
view known[PROCESSES];
byte written;
byte producers_left = RINGS;

#ifdef THREE /* each has a process of its own, which does not move */
#define IS_DONE (next[me] == EVENTS_OF(me))
#else
#define IS_DONE (written == EVENTS)
#endif
#define IS_READY(p) (!running[p] && next[p] < EVENTS_OF(p))

#define LARGER(a, b) (a > b -> a : b)

inline take_over(to, from)
{
    to.tail[0] = LARGER(to.tail[0], from.tail[0]);
    to.tail[1] = LARGER(to.tail[1], from.tail[1]);
#ifdef THREE
    to.tail[2] = LARGER(to.tail[2], from.tail[2])
#endif
}

inline publish()
{
    rings[me].at[rings[me].tail].process = process;
    rings[me].at[rings[me].tail].number = next[process];
    rings[me].at[rings[me].tail].time = time;
    rings[me].tail++;
    mine.tail[me] = rings[me].tail;
#ifndef RELAXED_STORE
    take_over(rings[me].at[rings[me].tail - 1].shows, mine);
#endif
    next[process]++;
    written++
}

/* One thread: takes a process, records one or more of its events, leaves it. */
proctype producer(byte me)
{
    byte process, time;
    view mine;
    do
    :: atomic {
#ifdef THREE
            IS_READY(me) -> process = me;
#else
            if
            :: IS_READY(0) -> process = 0
            :: IS_READY(1) -> process = 1
            fi;
#endif
            running[process] = true
        };
#ifndef RELAXED_MOVE
        atomic { take_over(mine, known[process]) };
#endif
        do
        :: next[process] < EVENTS_OF(process) ->
            atomic { time = now; now++ };
            atomic { publish() }
        :: break
        od;
        atomic {
#ifndef RELAXED_MOVE
            take_over(known[process], mine);
#endif
            running[process] = false;
            process = 0;
            time = 0
        }
    :: IS_DONE -> break
    od;
    producers_left--
}

byte first[RINGS], last[RINGS], head[RINGS];
byte taken[PROCESSES];
view seen;

inline read_tail(result, index)
{
    atomic {
        result = seen.tail[index];
        do
        :: result < rings[index].tail -> result++
        :: break
        od;
        seen.tail[index] = result;
#ifndef RELAXED_LOAD
        if
        :: result > 0 -> take_over(seen, rings[index].at[result - 1].shows)
        :: else
        fi
#endif
    }
}

#define NEVER 255
#define TIME(r) (head[r] == last[r] -> NEVER : rings[r].at[head[r]].time)

inline take()
{
    assert(rings[best].at[head[best]].number == taken[rings[best].at[head[best]].process]);
    taken[rings[best].at[head[best]].process]++;
    head[best]++
}

inline earliest()
{
    best = (TIME(0) <= TIME(1) -> 0 : 1);
#ifdef THREE
    best = (TIME(best) <= TIME(2) -> best : 2);
#endif
}

#ifdef THREE
#define READ_TAILS(result) \
    read_tail(result[0], 0); read_tail(result[1], 1); read_tail(result[2], 2)
#else
#define READ_TAILS(result) read_tail(result[0], 0); read_tail(result[1], 1)
#endif

inline drain()
{
    READ_TAILS(first);
#ifdef ONE_READING
    atomic { last[0] = first[0]; last[1] = first[1] };
#else
    READ_TAILS(last);
#endif
    atomic {
        do
        :: true ->
            earliest();
            if
            :: TIME(best) == NEVER -> break
            :: TIME(best) != NEVER && head[best] != first[best] -> take()
            :: TIME(best) != NEVER && head[best] == first[best] ->
#ifdef PASS_BY
                best = 1 - best;
                if
                :: head[best] == first[best] -> break
                :: else -> take()
                fi
#else
                break
#endif
            fi
        od;
        best = 0
    }
}

/* Everything up to `asked`: what there was when it was asked. */
inline ask_tail(index)
{
    asked[index] = rings[index].tail;
    seen.tail[index] = asked[index] /* who asks has waited for the callbacks */
}

#ifdef THREE
#define ALL_TAKEN (head[0] >= asked[0] && head[1] >= asked[1] && head[2] >= asked[2])
#else
#define ALL_TAKEN (head[0] >= asked[0] && head[1] >= asked[1])
#endif

inline drain_all()
{
    atomic {
        ask_tail(0);
        ask_tail(1);
#ifdef THREE
        ask_tail(2)
#endif
    };
    drain();
#ifdef TWO_DRAINS
    drain();
#endif
#if !defined(TWO_DRAINS) && !defined(ONE_DRAIN)
    do
    :: !ALL_TAKEN -> drain()
    :: ALL_TAKEN -> break
    od;
#endif
    assert(ALL_TAKEN)
}

active proctype consumer()
{
    byte best;
    byte asked[RINGS];
    atomic {
        run producer(0);
        run producer(1);
#ifdef THREE
        run producer(2)
#endif
    };
#ifndef THREE /* else it would be too much */
    do
    :: producers_left > 0 -> drain()
    :: break
    od;
#endif
    drain_all();
#ifndef THREE
    producers_left == 0;
    drain_all();
    assert(taken[0] == next[0] && taken[1] == next[1])
#endif
}
