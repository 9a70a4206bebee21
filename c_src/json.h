/* SPDX-License-Identifier: Apache-2.0
 *
 * What views write in JSON. All of it can stand inside a script element: no
 * string opens or closes a tag.
 */
#ifndef EMBER_JSON_H
#define EMBER_JSON_H

#include "sink.h"

#include <stdint.h>

/* A string with its quotes; null for NULL. */
void ember_json_string(struct ember_sink *sink, const char *string);

/* A part of a string, without quotes. */
void ember_json_part(struct ember_sink *sink, const char *text);

/* "name":"value", and "name":value, with the comma. */
void ember_json_string_field(struct ember_sink *sink, const char *name, const char *value);
void ember_json_number_field(struct ember_sink *sink, const char *name, uint64_t value);

#endif
