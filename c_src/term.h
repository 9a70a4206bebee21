/* SPDX-License-Identifier: Apache-2.0
 *
 * Small helpers between C and Erlang terms, the same on every release.
 */
#ifndef EMBER_TERM_H
#define EMBER_TERM_H

#include <erl_nif.h>
#include <stdbool.h>
#include <stdint.h>

/* A function of the library as Erlang calls it. */
typedef ERL_NIF_TERM ember_nif(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[]);

/* An atom's name in UTF-8, to be freed; NULL when `term` is no atom. */
char *ember_term_atom_name(ErlNifEnv *env, ERL_NIF_TERM term);

/* The atom of this UTF-8 name if there is one, else the name as a binary: no
 * atom is ever made. */
ERL_NIF_TERM ember_term_existing_atom(ErlNifEnv *env, const char *name);

/* A binary with this text; NULL gives the atom undefined. */
ERL_NIF_TERM ember_term_text(ErlNifEnv *env, const char *text);

ERL_NIF_TERM ember_term_atom(ErlNifEnv *env, const char *name);

/* {error, Reason} */
ERL_NIF_TERM ember_term_error(ErlNifEnv *env, const char *reason);

bool ember_term_get_bool(ErlNifEnv *env, ERL_NIF_TERM term, bool *value);

/* The atoms of a list, sorted, but no more than `most`; how many there are. */
uint32_t ember_term_sorted_atoms(ErlNifEnv *env, ERL_NIF_TERM list, uint32_t *atoms, uint32_t most);

/* A map under construction. */
struct ember_term_map {
    ErlNifEnv *env;
    ERL_NIF_TERM map;
};

struct ember_term_map ember_term_map_new(ErlNifEnv *env);
void ember_term_map_put(struct ember_term_map *map, const char *key, ERL_NIF_TERM value);
void ember_term_map_put_number(struct ember_term_map *map, const char *key, uint64_t value);

#endif
