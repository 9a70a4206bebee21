/* SPDX-License-Identifier: Apache-2.0
 *
 * Text that should be UTF-8 and may not be. Written, each byte that is part of no
 * character becomes U+FFFD.
 */
#ifndef EMBER_UTF8_H
#define EMBER_UTF8_H

#include "sink.h"

#include <stddef.h>
#include <stdint.h>

/* Stands for what cannot be read. */
#define EMBER_UTF8_REPLACEMENT 0xfffdu

/* Bytes of the character at `text`, which does not end there; 0 where there
 * is none. */
size_t ember_utf8_decode(const char *text, uint32_t *character);

/* Bytes of the longest prefix that has at most `most` bytes when written and ends
 * between characters. */
size_t ember_utf8_prefix(const char *text, size_t size, size_t most);

/* Bytes that ember_utf8_write writes. */
size_t ember_utf8_written_size(const char *text, size_t size);
void ember_utf8_write(struct ember_sink *sink, const char *text, size_t size);

/* Written on one line: control characters become \xNN. */
void ember_utf8_write_line(struct ember_sink *sink, const char *text);

/* Written as one word: blanks become _ as well. */
void ember_utf8_write_word(struct ember_sink *sink, const char *text);

#endif
