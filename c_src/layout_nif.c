/* SPDX-License-Identifier: Apache-2.0
 *
 * What is found out about the VM's data before any session: see vm_heap.h.
 */
#include "layout_nif.h"

#include "control.h"
#include "term.h"
#include "tracer.h"
#include "vm_heap.h"

static ERL_NIF_TERM layout_result(ErlNifEnv *env)
{
    return ember_term_atom(env, ember_vm_heap.exact ? "exact" : "fallback");
}

static void check_layout(ErlNifEnv *env, struct ember_vm_sizes sizes, bool first)
{
    ErlNifPid self;
    if (enif_self(env, &self))
        ember_vm_heap_check(env, enif_make_pid(env, &self), sizes, first);
}

/* check_layout(BlockWords, FragmentWords, BinaryWords, First) -> exact | fallback:
 * see vm_heap.h. Not while a session is on. */
ERL_NIF_TERM ember_layout_nif_check(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    ErlNifUInt64 block;
    ErlNifUInt64 fragments;
    ErlNifUInt64 binaries;
    bool first;
    (void)argc;
    if (!enif_get_uint64(env, argv[0], &block) || !enif_get_uint64(env, argv[1], &fragments) ||
        !enif_get_uint64(env, argv[2], &binaries) || !ember_term_get_bool(env, argv[3], &first))
        return enif_make_badarg(env);
    if (!ember_control_lock())
        check_layout(env, (struct ember_vm_sizes){block, fragments, binaries}, first);
    ember_control_unlock();
    return layout_result(env);
}

static void probe(ErlNifEnv *env, ERL_NIF_TERM step)
{
    ErlNifPid self;
    bool waiting = enif_is_identical(step, ember_term_atom(env, "waiting"));
    if (enif_is_identical(step, ember_term_atom(env, "begin")))
        ember_vm_status_begin();
    if (waiting || enif_is_identical(step, ember_term_atom(env, "runnable")))
        ember_tracer_probe(enif_self(env, &self) ? enif_make_pid(env, &self) : 0, waiting);
    else
        ember_tracer_probe(0, false);
    if (enif_is_identical(step, ember_term_atom(env, "end")))
        ember_vm_status_end();
}

/* probe(begin | waiting | runnable | end) -> ok: what the caller, which has the
 * tracer state probe, will be when it is scheduled out next; see vm_heap.h. Not
 * while a session is on. */
ERL_NIF_TERM ember_layout_nif_probe(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)argc;
    if (!ember_control_lock())
        probe(env, argv[0]);
    ember_control_unlock();
    return ember_term_atom(env, "ok");
}

/* note_binaries() -> ok: lets those who profile the caller know of its binaries. */
ERL_NIF_TERM ember_layout_nif_note_binaries(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    ErlNifPid self;
    (void)argc;
    (void)argv;
    if (enif_self(env, &self))
        ember_tracer_note_binaries(env, enif_make_pid(env, &self));
    return ember_term_atom(env, "ok");
}

/* walk() -> [MFA] | unavailable: the callers of the caller, it the first, as walks over
 * stacks will find them. */
ERL_NIF_TERM ember_layout_nif_walk(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    struct ember_vm_return found;
    ERL_NIF_TERM list = enif_make_list(env, 0);
    (void)argc;
    (void)argv;
    if (!ember_vm_heap.exact)
        return ember_term_atom(env, "unavailable");
    struct ember_vm_walk walk = ember_vm_walk_begin(env);
    while (ember_vm_walk_next(env, &walk, &found))
        if (found.module != 0)
            list = enif_make_list_cell(env,
                                       enif_make_tuple3(env, (ERL_NIF_TERM)found.module,
                                                        (ERL_NIF_TERM)found.function,
                                                        enif_make_uint(env, found.arity)),
                                       list);
    enif_make_reverse_list(env, list, &list);
    return list;
}

/* use_walks(Right) -> ok: whether what walk() gave was right. Not while a session is on. */
ERL_NIF_TERM ember_layout_nif_use_walks(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    bool right;
    (void)argc;
    if (!ember_term_get_bool(env, argv[0], &right))
        return enif_make_badarg(env);
    if (!ember_control_lock())
        ember_vm_heap.walks = right && ember_vm_heap.exact;
    ember_control_unlock();
    return ember_term_atom(env, "ok");
}

/* forget_layout(Exact, Tuples) -> exact | fallback: do without, for tests. */
ERL_NIF_TERM ember_layout_nif_forget(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    bool exact;
    bool tuples;
    (void)argc;
    if (!ember_term_get_bool(env, argv[0], &exact) || !ember_term_get_bool(env, argv[1], &tuples))
        return enif_make_badarg(env);
    if (!ember_control_lock())
        ember_vm_heap_forget(exact, tuples);
    ember_control_unlock();
    return layout_result(env);
}
