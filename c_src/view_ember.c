/* SPDX-License-Identifier: Apache-2.0
 *
 * The profile file itself, as a view among the others.
 */
#include "profile_write.h"
#include "view.h"

static void write_view(const struct ember_profile *profile,
                       const struct ember_view_options *options, struct ember_sink *sink)
{
    (void)options;
    if (ember_profile_write(profile, sink) != 0)
        sink->failed = true;
}

const struct ember_view ember_view_ember = {
    .name = "ember",
    .extension = "ember",
    .write = write_view,
};
