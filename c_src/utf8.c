/* SPDX-License-Identifier: Apache-2.0 */
#include "utf8.h"

#include <stdbool.h>

static const char replacement[] = "\xef\xbf\xbd";

size_t ember_utf8_decode(const char *text, uint32_t *character)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *bytes = (const unsigned char *)text;
    if (bytes[0] < 0x80) {
        *character = bytes[0];
        return 1;
    }
    size_t size = bytes[0] >= 0xf0 ? 4 : bytes[0] >= 0xe0 ? 3 : 2;
    if (bytes[0] < 0xc0 || bytes[0] > 0xf7)
        return 0;
    uint32_t code = bytes[0] & (0x7fu >> size);
    for (size_t i = 1; i < size; i++) {
        if ((bytes[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (bytes[i] & 0x3fu);
    }
    *character = code;
    bool valid = code >= least[size] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
    return valid ? size : 0;
}

/* Bytes of the character, or 1 and `bad` for a byte that is part of none. */
static size_t step(const char *text, size_t size, bool *bad)
{
    uint32_t character;
    size_t length = ember_utf8_decode(text, &character);
    *bad = length == 0 || length > size;
    return *bad ? 1 : length;
}

size_t ember_utf8_prefix(const char *text, size_t size, size_t most)
{
    size_t at = 0;
    size_t written = 0;
    while (at < size) {
        bool bad;
        size_t length = step(text + at, size - at, &bad);
        size_t more = bad ? sizeof replacement - 1 : length;
        if (more > most - written)
            break;
        at += length;
        written += more;
    }
    return at;
}

size_t ember_utf8_written_size(const char *text, size_t size)
{
    size_t written = 0;
    for (size_t at = 0; at < size;) {
        bool bad;
        size_t length = step(text + at, size - at, &bad);
        written += bad ? sizeof replacement - 1 : length;
        at += length;
    }
    return written;
}

void ember_utf8_write(struct ember_sink *sink, const char *text, size_t size)
{
    for (size_t at = 0; at < size;) {
        bool bad;
        size_t length = step(text + at, size - at, &bad);
        if (bad)
            ember_sink_bytes(sink, replacement, sizeof replacement - 1);
        else
            ember_sink_bytes(sink, text + at, length);
        at += length;
    }
}

/* What regular expressions take for a blank, but for control characters. */
static bool is_blank(uint32_t character)
{
    return character == ' ' || character == 0xa0 || character == 0x1680 ||
           (character >= 0x2000 && character <= 0x200a) || character == 0x202f ||
           character == 0x205f || character == 0x3000 || character == 0xfeff;
}

static bool is_control(uint32_t character)
{
    return character < 0x20 || (character >= 0x7f && character < 0xa0) || character == 0x2028 ||
           character == 0x2029;
}

static void write_line(struct ember_sink *sink, const char *text, bool word)
{
    while (*text) {
        uint32_t character = EMBER_UTF8_REPLACEMENT;
        size_t size = ember_utf8_decode(text, &character);
        if (size == 0)
            ember_sink_bytes(sink, replacement, sizeof replacement - 1);
        else if (is_control(character))
            ember_sink_printf(sink, "\\x%02x", (unsigned)character);
        else if (word && is_blank(character))
            ember_sink_text(sink, "_");
        else
            ember_sink_bytes(sink, text, size);
        text += size > 0 ? size : 1;
    }
}

void ember_utf8_write_line(struct ember_sink *sink, const char *text)
{
    write_line(sink, text, false);
}

void ember_utf8_write_word(struct ember_sink *sink, const char *text)
{
    write_line(sink, text, true);
}
