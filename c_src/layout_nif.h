/* SPDX-License-Identifier: Apache-2.0
 *
 * NIFs that find out about the VM's data, before any session.
 */
#ifndef EMBER_LAYOUT_NIF_H
#define EMBER_LAYOUT_NIF_H

#include "term.h"

ember_nif ember_layout_nif_check;
ember_nif ember_layout_nif_probe;
ember_nif ember_layout_nif_note_binaries;
ember_nif ember_layout_nif_walk;
ember_nif ember_layout_nif_use_walks;
ember_nif ember_layout_nif_forget;

#endif
