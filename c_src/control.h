/* SPDX-License-Identifier: Apache-2.0
 *
 * The session as Erlang controls it: NIFs that begin and end it, and the lock that all
 * others hold while they use it.
 */
#ifndef EMBER_CONTROL_H
#define EMBER_CONTROL_H

#include "compensation.h"
#include "session.h"
#include "term.h"

/* Opens the resource type; from load and upgrade. */
bool ember_control_init(ErlNifEnv *env);

/* The session that is on, or NULL. It stays so until it is unlocked. */
struct ember_session *ember_control_lock(void);
void ember_control_unlock(void);

/* What was set last; for who holds the lock. */
const struct ember_costs *ember_control_costs(void);

ember_nif ember_control_nif_start;
ember_nif ember_control_nif_stop;
ember_nif ember_control_nif_set_costs;

#endif
