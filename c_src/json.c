/* SPDX-License-Identifier: Apache-2.0 */
#include "json.h"
#include "utf8.h"

#include <stdbool.h>
#include <string.h>

/* Besides what JSON asks for, all that could end or open a tag. */
static bool is_plain(uint32_t character)
{
    if (character < 0x20 || (character >= 0x7f && character < 0xa0))
        return false;
    return character != 0x2028 && character != 0x2029 &&
           (character >= 0x80 || !strchr("\"\\<>&", (int)character));
}

static void write_escaped(struct ember_sink *sink, uint32_t character)
{
    ember_sink_printf(sink, "\\u%04x", (unsigned)character);
}

void ember_json_part(struct ember_sink *sink, const char *text)
{
    const char *plain = text; /* written up to here */
    while (*text) {
        uint32_t character = EMBER_UTF8_REPLACEMENT;
        size_t size = ember_utf8_decode(text, &character);
        if (size > 0 && is_plain(character)) {
            text += size;
            continue;
        }
        ember_sink_bytes(sink, plain, (size_t)(text - plain));
        write_escaped(sink, size > 0 ? character : EMBER_UTF8_REPLACEMENT);
        text += size > 0 ? size : 1;
        plain = text;
    }
    ember_sink_bytes(sink, plain, (size_t)(text - plain));
}

void ember_json_string(struct ember_sink *sink, const char *string)
{
    if (!string) {
        ember_sink_text(sink, "null");
        return;
    }
    ember_sink_text(sink, "\"");
    ember_json_part(sink, string);
    ember_sink_text(sink, "\"");
}

static void write_name(struct ember_sink *sink, const char *name)
{
    ember_sink_text(sink, "\"");
    ember_sink_text(sink, name);
    ember_sink_text(sink, "\":");
}

void ember_json_string_field(struct ember_sink *sink, const char *name, const char *value)
{
    write_name(sink, name);
    ember_json_string(sink, value);
    ember_sink_text(sink, ",");
}

void ember_json_number_field(struct ember_sink *sink, const char *name, uint64_t value)
{
    write_name(sink, name);
    ember_sink_unsigned(sink, value);
    ember_sink_text(sink, ",");
}
