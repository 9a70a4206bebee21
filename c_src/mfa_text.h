/* SPDX-License-Identifier: Apache-2.0
 *
 * Function names as their language writes them: lists:map/2, 'my mod':'a b'/0,
 * Enum.map/2, "anonymous fn/1 in Enum.map/2".
 */
#ifndef EMBER_MFA_TEXT_H
#define EMBER_MFA_TEXT_H

#include <stdint.h>

/* A new string, to be freed; NULL when out of memory. Names are UTF-8. */
char *ember_mfa_text(const char *module, const char *function, uint32_t arity);

/* An atom as Erlang writes it, quoted where needed; to be freed. */
char *ember_atom_text(const char *name);

#endif
