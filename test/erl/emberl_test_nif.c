/* SPDX-License-Identifier: Apache-2.0
 *
 * See emberl_test_nif.erl. Built by `make check-erl` to build/test, beside the
 * compiled tests: cc -shared -fPIC -I<erts include> -o emberl_test_nif.so.
 */
#include <erl_nif.h>

static ERL_NIF_TERM echo(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    (void)env;
    (void)argc;
    return argv[0];
}

static ERL_NIF_TERM rescheduled(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
    return enif_schedule_nif(env, "rescheduled", ERL_NIF_DIRTY_JOB_CPU_BOUND, echo, argc, argv);
}

static ErlNifFunc functions[] = {
    {"plain", 1, echo, 0},
    {"dirty_cpu", 1, echo, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"dirty_io", 1, echo, ERL_NIF_DIRTY_JOB_IO_BOUND},
    {"rescheduled", 1, rescheduled, 0},
};

ERL_NIF_INIT(emberl_test_nif, functions, NULL, NULL, NULL, NULL)
