/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a profile file: docs/profile-format.md. Nothing in it is trusted; what
 * does not hold is an error that tells the place.
 */
#ifndef EMBER_PROFILE_READ_H
#define EMBER_PROFILE_READ_H

#include "profile.h"

enum { EMBER_READ_ERROR_SIZE = 160 };

struct ember_read_error {
    bool out_of_memory;
    char text[EMBER_READ_ERROR_SIZE]; /* "byte 56, block NODE, byte 3 of its content: ..." */
};

/* NULL and `error` when it cannot be read. The profile keeps nothing of `data`. */
struct ember_profile *ember_profile_read(const void *data, size_t size,
                                         struct ember_read_error *error);

#endif
