/* SPDX-License-Identifier: Apache-2.0
 *
 * Time that the operating system took from the VM: its schedulers' threads could
 * have run, but something else did.
 */
#ifndef EMBER_STOLEN_H
#define EMBER_STOLEN_H

#include <stdint.h>

/* The sum over the scheduler threads since they began, in nanoseconds; 0 where the
 * system does not tell. Reads some files: for the beginning and the end of things. */
uint64_t ember_stolen_ns(void);

#endif
