/* SPDX-License-Identifier: Apache-2.0
 *
 * Says whether a text is JSON.
 */
#ifndef EMBER_TEST_JSON_READER_H
#define EMBER_TEST_JSON_READER_H

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

struct json {
    const char *at;
    bool valid;
};

static void skip_space(struct json *json)
{
    while (*json->at == ' ' || *json->at == '\n')
        json->at++;
}

static bool accept(struct json *json, char c)
{
    skip_space(json);
    if (*json->at != c)
        return false;
    json->at++;
    return true;
}

static void expect(struct json *json, bool held)
{
    json->valid = json->valid && held;
}

static void read_escape(struct json *json)
{
    if (*json->at == 'u')
        for (int i = 0; i < 4; i++)
            expect(json, isxdigit((unsigned char)*++json->at));
    else
        expect(json, strchr("\"\\/bfnrt", *json->at) != NULL);
    json->at++;
}

static void read_string(struct json *json)
{
    expect(json, accept(json, '"'));
    while (json->valid && *json->at != '"') {
        expect(json, (unsigned char)*json->at >= 0x20);
        if (*json->at++ == '\\')
            read_escape(json);
    }
    expect(json, accept(json, '"'));
}

static void read_digits(struct json *json)
{
    size_t count = strspn(json->at, "0123456789");
    expect(json, count > 0);
    json->at += count;
}

static void read_word_or_number(struct json *json)
{
    const char *begin = json->at;
    static const char *const words[] = {"null", "true", "false"};
    for (int i = 0; i < 3; i++)
        if (strncmp(json->at, words[i], strlen(words[i])) == 0)
            json->at += strlen(words[i]);
    if (json->at == begin) {
        json->at += *json->at == '-';
        read_digits(json);
        if (*json->at == '.' && json->at++)
            read_digits(json);
    }
}

static void read_value(struct json *json);

static void read_items(struct json *json, char end, bool named)
{
    if (accept(json, end))
        return;
    do {
        if (named) {
            read_string(json);
            expect(json, accept(json, ':'));
        }
        read_value(json);
    } while (json->valid && accept(json, ','));
    expect(json, accept(json, end));
}

static void read_value(struct json *json)
{
    skip_space(json);
    if (accept(json, '{'))
        read_items(json, '}', true);
    else if (accept(json, '['))
        read_items(json, ']', false);
    else if (*json->at == '"')
        read_string(json);
    else
        read_word_or_number(json);
}

static bool is_json(const char *text)
{
    struct json json = {text, true};
    read_value(&json);
    skip_space(&json);
    return json.valid && *json.at == '\0';
}

#endif
