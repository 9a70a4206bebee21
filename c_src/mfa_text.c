/* SPDX-License-Identifier: Apache-2.0 */
#include "mfa_text.h"

#include "sink.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define ELIXIR_PREFIX "Elixir."

static bool is_lower(char c)
{
    return c >= 'a' && c <= 'z';
}

static bool is_name_char(char c)
{
    return is_lower(c) || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '@';
}

static bool is_reserved(const char *name)
{
    static const char *const words[] = {
        "after", "and",   "andalso", "band",    "begin", "bnot", "bor",  "bsl", "bsr",   "bxor",
        "case",  "catch", "cond",    "div",     "end",   "fun",  "if",   "let", "maybe", "not",
        "of",    "or",    "orelse",  "receive", "rem",   "try",  "when", "xor", "else"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(name, words[i]) == 0)
            return true;
    return false;
}

static bool is_plain_atom(const char *name)
{
    if (!is_lower(name[0]) || is_reserved(name))
        return false;
    while (is_name_char(*name))
        name++;
    return *name == '\0';
}

static void write_quoted(struct ember_sink *sink, const char *name, char quote)
{
    ember_sink_bytes(sink, &quote, 1);
    for (; *name; name++) {
        if (*name == '\n')
            ember_sink_text(sink, "\\n");
        else if ((unsigned char)*name < ' ' || *name == 0x7f)
            ember_sink_printf(sink, "\\x{%X}", (unsigned char)*name);
        else if (*name == quote || *name == '\\')
            ember_sink_printf(sink, "\\%c", *name);
        else
            ember_sink_bytes(sink, name, 1);
    }
    ember_sink_bytes(sink, &quote, 1);
}

static void write_atom(struct ember_sink *sink, const char *name)
{
    if (is_plain_atom(name))
        ember_sink_text(sink, name);
    else
        write_quoted(sink, name, '\'');
}

/* Each part begins with a capital; other atoms are no aliases to Elixir. */
static bool is_elixir_module(const char *module)
{
    if (strncmp(module, ELIXIR_PREFIX, strlen(ELIXIR_PREFIX)) != 0)
        return false;
    const char *c = module + strlen("Elixir");
    while (*c == '.') {
        c++;
        if (*c < 'A' || *c > 'Z')
            return false;
        while (is_name_char(*c) && *c != '@')
            c++;
    }
    return *c == '\0';
}

/* Elixir writes foo, foo? and foo! and operators plainly. */
static bool is_plain_elixir_name(const char *name)
{
    size_t operator_length = strspn(name, "+-*/<>=!&|^~@.");
    if (operator_length > 0 && name[operator_length] == '\0')
        return true;
    if (!is_lower(name[0]) && name[0] != '_')
        return false;
    while (is_name_char(*name) && *name != '@')
        name++;
    return *name == '\0' || ((*name == '?' || *name == '!') && name[1] == '\0');
}

static void write_elixir_name(struct ember_sink *sink, const char *name)
{
    if (is_plain_elixir_name(name))
        ember_sink_text(sink, name);
    else
        write_quoted(sink, name, '"');
}

/* -foo/1-fun-0- of a fun within foo/1: length of the "foo" part, or 0. */
static size_t outer_name_length(const char *name)
{
    const char *fun = strstr(name, "-fun-");
    if (name[0] != '-' || !fun)
        return 0;
    const char *slash = fun;
    while (slash > name && *slash != '/')
        slash--;
    return slash > name + 1 ? (size_t)(slash - name - 1) : 0;
}

static void write_elixir(struct ember_sink *sink, const char *module, const char *name,
                         uint32_t arity)
{
    size_t outer = outer_name_length(name);
    module += strlen(ELIXIR_PREFIX);
    if (outer == 0) {
        ember_sink_printf(sink, "%s.", module);
        write_elixir_name(sink, name);
        ember_sink_printf(sink, "/%u", arity);
        return;
    }
    const char *outer_arity = name + 1 + outer + 1;
    char plain[1024] = "";
    if (outer < sizeof plain)
        memcpy(plain, name + 1, outer);
    ember_sink_printf(sink, "anonymous fn/%u in %s.", arity, module);
    write_elixir_name(sink, plain);
    ember_sink_printf(sink, "/%.*s", (int)strcspn(outer_arity, "-"), outer_arity);
}

static char *take_text(struct ember_sink *sink)
{
    ember_sink_bytes(sink, "", 1);
    if (sink->failed)
        ember_sink_fini(sink);
    return sink->data;
}

char *ember_mfa_text(const char *module, const char *function, uint32_t arity)
{
    struct ember_sink sink;
    ember_sink_init(&sink);
    if (is_elixir_module(module)) {
        write_elixir(&sink, module, function, arity);
    } else {
        write_atom(&sink, module);
        ember_sink_text(&sink, ":");
        write_atom(&sink, function);
        ember_sink_printf(&sink, "/%u", arity);
    }
    return take_text(&sink);
}

char *ember_atom_text(const char *name)
{
    struct ember_sink sink;
    ember_sink_init(&sink);
    if (is_elixir_module(name))
        ember_sink_text(&sink, name + strlen(ELIXIR_PREFIX));
    else
        write_atom(&sink, name);
    return take_text(&sink);
}
