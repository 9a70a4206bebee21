/* SPDX-License-Identifier: Apache-2.0
 *
 * Profiles as Erlang terms: the resource that holds one, and the NIFs that
 * read, merge and write it.
 */
#ifndef EMBER_PROFILE_NIF_H
#define EMBER_PROFILE_NIF_H

#include "profile.h"
#include "term.h"

/* Opens the resource type; from load and upgrade. 0 when done. */
int ember_profile_nif_init(ErlNifEnv *env);

/* A term that owns `profile` from now on. */
ERL_NIF_TERM ember_profile_nif_term(ErlNifEnv *env, struct ember_profile *profile);

ember_nif ember_profile_nif_info;
ember_nif ember_profile_nif_beside;
ember_nif ember_profile_nif_processes;
ember_nif ember_profile_nif_functions;
ember_nif ember_profile_nif_total;
ember_nif ember_profile_nif_stacks;
ember_nif ember_profile_nif_merge;
ember_nif ember_profile_nif_filter;
ember_nif ember_profile_nif_add_window;
ember_nif ember_profile_nif_settle;
ember_nif ember_profile_nif_bytes;
ember_nif ember_profile_nif_diff;
ember_nif ember_profile_nif_annotate;
ember_nif ember_profile_nif_cut;
ember_nif ember_profile_nif_leave_out;
ember_nif ember_profile_nif_encode;
ember_nif ember_profile_nif_decode;
ember_nif ember_profile_nif_format;
ember_nif ember_profile_nif_views;
ember_nif ember_profile_nif_mfa_text;
ember_nif ember_profile_nif_atom_text;

#endif
