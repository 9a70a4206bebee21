/* SPDX-License-Identifier: Apache-2.0
 *
 * ring.h: one producer, one consumer, slots that are no atomics.
 *
 * An index may be read as any value from the one this thread has seen to the newest:
 * stores become visible late. What a thread may touch follows from what it knows, and
 * it learns only by an acquire of what was released: `knows` counts the other's steps
 * that happened before. A slot that is touched without that is a race.
 *
 * Indices wrap at WRAP; `wrote` and `took` count on, for the assertions alone.
 *
 * Broken on purpose: RELAXED_A_STORE, RELAXED_A_LOAD, RELAXED_B_STORE, RELAXED_B_LOAD,
 * COMMIT_FIRST, ONE_TOO_MANY.
 */
#define CAPACITY 2
#define WRAP 8
#define EVENTS 12

#ifdef ONE_TOO_MANY
#define ROOM (CAPACITY + 1)
#else
#define ROOM CAPACITY
#endif

byte slot[CAPACITY];
byte tail; /* as published, without wrap */
byte head;
byte told_by_tail[EVENTS + 1]; /* the producer's steps that an acquire of it shows */
byte told_by_head[EVENTS + 1];
bool was_head[EVENTS + 1]; /* values that head has had */

#define DISTANCE(a, b) (((a) - (b) + WRAP) % WRAP)

/* value: itself or any that was stored since */
inline read_some(value, newest, was)
{
    do
    :: value < newest -> value++
    :: was -> break
    od
}

inline fill(index)
{
    assert(index < CAPACITY || knows >= index - CAPACITY + 1);
    slot[index % CAPACITY] = index + 1;
}

inline publish_tail(index)
{
#ifdef RELAXED_A_STORE
    told_by_tail[index] = 0;
#else
    told_by_tail[index] = index;
#endif
    tail = index
}

active proctype producer()
{
    byte wrote, head_seen, knows;
    was_head[0] = true;
    do
    :: wrote == EVENTS -> break
    :: wrote < EVENTS ->
        if
        :: DISTANCE(wrote % WRAP, head_seen % WRAP) >= ROOM ->
            atomic {
                read_some(head_seen, head, was_head[head_seen]);
#ifndef RELAXED_B_LOAD
                if
                :: told_by_head[head_seen] > knows -> knows = told_by_head[head_seen]
                :: else
                fi
#endif
            }
        :: else
        fi;
        if
        :: DISTANCE(wrote % WRAP, head_seen % WRAP) >= ROOM /* full */
        :: else ->
#ifdef COMMIT_FIRST
            publish_tail(wrote + 1);
            atomic { fill(wrote); wrote++ }
#else
            fill(wrote);
            atomic { wrote++; publish_tail(wrote) }
#endif
        fi
    od
}

active proctype consumer()
{
    byte took, tail_seen, knows;
    do
    :: took == EVENTS -> break
    :: took < EVENTS ->
        atomic {
            read_some(tail_seen, tail, true);
#ifndef RELAXED_A_LOAD
            if
            :: told_by_tail[tail_seen] > knows -> knows = told_by_tail[tail_seen]
            :: else
            fi
#endif
        }
        do
        :: took < tail_seen ->
            atomic {
                assert(knows > took);
                assert(slot[took % CAPACITY] == took + 1);
                took++
            }
        :: took == tail_seen -> break
        :: break /* it need not take all */
        od;
#ifndef RELAXED_B_STORE
        told_by_head[took] = took;
#endif
        atomic { head = took; was_head[took] = true }
    od;
    assert(head == EVENTS && tail == EVENTS)
}
