/* SPDX-License-Identifier: Apache-2.0
 *
 * The reader of profile files takes any bytes without harm; what it accepts is
 * written and read again as the same, can be shown by every view, and compared.
 *
 * Checksums stop a fuzzer, so an input is a mode and
 *   0: a file, or
 *   else: blocks that a file is made of: kind, items (2 bytes), size (2), content.
 */
#include "../c/profile_blocks.h"
#include "function_sums.h"
#include "profile_read.h"
#include "profile_write.h"
#include "view.h"

#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool held, const char *what)
{
    if (held)
        return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static struct ember_sink write_again(const struct ember_profile *profile)
{
    struct ember_sink sink;
    ember_sink_init(&sink);
    check(ember_profile_write(profile, &sink) == 0, "a profile that was read is not written");
    return sink;
}

/* By every view that takes it. */
static void show(const struct ember_profile *profile)
{
    for (unsigned i = 0; ember_view_at(i); i++) {
        if (profile->before && !ember_view_at(i)->compares)
            continue;
        struct ember_view_options options = {.metric = (enum ember_metric)(i % 3)};
        struct ember_sink sink;
        ember_sink_init(&sink);
        ember_view_at(i)->write(profile, &options, &sink);
        check(!sink.failed, "a view failed");
        ember_sink_fini(&sink);
    }
}

/* With twice itself, which makes every number another. */
static void compare(const struct ember_profile *profile)
{
    struct ember_profile *twice =
        ember_profile_merge((const struct ember_profile *[]){profile, profile}, 2);
    for (int normalise = 0; normalise < 3; normalise++) {
        struct ember_profile *diff =
            ember_profile_diff(twice, profile, (enum ember_normalise)normalise);
        check(diff && ember_profile_check(diff), "no sound comparison");
        for (int side = 0; side < 2; side++)
            free(ember_function_sums(diff, NULL, (enum ember_side)side));
        show(diff);
        ember_profile_destroy(diff);
    }
    ember_profile_destroy(twice);
}

static void read_file(const void *data, size_t size, struct ember_sink *written)
{
    struct ember_read_error error;
    struct ember_profile *profile = ember_profile_read(data, size, &error);
    ember_sink_init(written);
    check(profile || error.text[0], "no error is told");
    if (!profile)
        return;
    check(ember_profile_check(profile), "an index is out of range");
    *written = write_again(profile);
    show(profile);
    compare(profile);
    ember_profile_destroy(profile);
}

static void read_twice(const void *data, size_t size)
{
    struct ember_sink first;
    struct ember_sink second;
    read_file(data, size, &first);
    if (first.size > 0) {
        read_file(first.data, first.size, &second);
        check(first.size == second.size && memcmp(first.data, second.data, first.size) == 0,
              "a profile changed when it was written and read");
        ember_sink_fini(&second);
    }
    ember_sink_fini(&first);
}

static void read_blocks(const uint8_t *data, size_t size)
{
    struct ember_sink sink;
    begin_file(&sink);
    while (size >= 5) {
        uint8_t kind = data[0];
        size_t length = ember_format_get(data + 3, 2);
        uint32_t items = ember_format_get(data + 1, 2);
        data += 5;
        size -= 5;
        length = length < size ? length : size;
        put_block(&sink, kind < EMBER_FORMAT_KINDS ? ember_format_kinds[kind] : "more", items, data,
                  length);
        data += length;
        size -= length;
    }
    end_file(&sink);
    read_twice(sink.data, sink.size);
    ember_sink_fini(&sink);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] == 0)
        read_twice(data + 1, size - 1);
    else
        read_blocks(data + 1, size - 1);
    return 0;
}
