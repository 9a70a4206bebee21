/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a profile as a profile file: docs/profile-format.md.
 */
#ifndef EMBER_PROFILE_WRITE_H
#define EMBER_PROFILE_WRITE_H

#include "profile.h"
#include "sink.h"

/* 0, -ENOMEM, -EFBIG when the profile is beyond what a file may hold, -EINVAL when
 * it is a comparison: the two profiles can be kept. */
int ember_profile_write(const struct ember_profile *profile, struct ember_sink *sink);

#endif
