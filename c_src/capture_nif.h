/* SPDX-License-Identifier: Apache-2.0
 *
 * NIFs that open and close captures and windows.
 */
#ifndef EMBER_CAPTURE_NIF_H
#define EMBER_CAPTURE_NIF_H

#include "term.h"

ember_nif ember_capture_nif_open;
ember_nif ember_capture_nif_open_window;
ember_nif ember_capture_nif_restart_window;
ember_nif ember_capture_nif_arm;
ember_nif ember_capture_nif_disarm;
ember_nif ember_capture_nif_close;

#endif
