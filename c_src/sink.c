/* SPDX-License-Identifier: Apache-2.0 */
#include "sink.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ember_sink_init(struct ember_sink *sink)
{
    *sink = (struct ember_sink){0};
}

void ember_sink_fini(struct ember_sink *sink)
{
    free(sink->data);
    ember_sink_init(sink);
}

static bool ensure_room(struct ember_sink *sink, size_t more)
{
    if (sink->failed)
        return false;
    if (more <= sink->capacity - sink->size)
        return true;
    size_t capacity = (sink->size + more) * 2;
    char *data = realloc(sink->data, capacity);
    if (!data) {
        sink->failed = true;
        return false;
    }
    sink->data = data;
    sink->capacity = capacity;
    return true;
}

void ember_sink_bytes(struct ember_sink *sink, const void *bytes, size_t size)
{
    if (size == 0 || !ensure_room(sink, size))
        return;
    memcpy(sink->data + sink->size, bytes, size);
    sink->size += size;
}

void ember_sink_text(struct ember_sink *sink, const char *text)
{
    ember_sink_bytes(sink, text, strlen(text));
}

void ember_sink_printf(struct ember_sink *sink, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int size = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (size < 0 || !ensure_room(sink, (size_t)size + 1)) {
        sink->failed = true;
        return;
    }
    va_start(args, format);
    vsnprintf(sink->data + sink->size, (size_t)size + 1, format, args);
    va_end(args);
    sink->size += (size_t)size;
}

void ember_sink_unsigned(struct ember_sink *sink, uint64_t value)
{
    char digits[20];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    ember_sink_bytes(sink, digits + at, sizeof digits - at);
}

void ember_sink_signed(struct ember_sink *sink, int64_t value)
{
    if (value < 0)
        ember_sink_text(sink, "-");
    ember_sink_unsigned(sink, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}
