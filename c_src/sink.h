/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a view writes: a growing buffer. A failed allocation is remembered and
 * later writes do nothing, so a view writes straight on and the caller asks
 * once at the end.
 */
#ifndef EMBER_SINK_H
#define EMBER_SINK_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ember_sink {
    char *data;
    size_t size;
    size_t capacity;
    bool failed;
};

void ember_sink_init(struct ember_sink *sink);
void ember_sink_fini(struct ember_sink *sink);
void ember_sink_bytes(struct ember_sink *sink, const void *bytes, size_t size);
void ember_sink_text(struct ember_sink *sink, const char *text);
void ember_sink_printf(struct ember_sink *sink, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* In decimal. Most of a view is these, and printf would take most of its time. */
void ember_sink_unsigned(struct ember_sink *sink, uint64_t value);
void ember_sink_signed(struct ember_sink *sink, int64_t value);

#endif
