/* SPDX-License-Identifier: Apache-2.0 */
#include "term.h"

#include <stdlib.h>
#include <string.h>

/* Tags of the external term format. It is the one way to an atom's UTF-8 name
 * that every supported release has. */
enum { VERSION = 131, ATOM_LATIN1 = 100, ATOM_UTF8 = 118, SMALL_ATOM_UTF8 = 119 };

static char *latin1_to_utf8(const unsigned char *bytes, size_t length)
{
    char *text = malloc(length * 2 + 1);
    size_t at = 0;
    if (!text)
        return NULL;
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] >= 0x80)
            text[at++] = (char)(0xC0 | bytes[i] >> 6);
        text[at++] = (char)(bytes[i] >= 0x80 ? 0x80 | (bytes[i] & 0x3F) : bytes[i]);
    }
    text[at] = '\0';
    return text;
}

char *ember_term_atom_name(ErlNifEnv *env, ERL_NIF_TERM term)
{
    ErlNifBinary external;
    char *name = NULL;
    if (!enif_is_atom(env, term) || !enif_term_to_binary(env, term, &external))
        return NULL;
    const unsigned char *d = external.data;
    if (d[1] == SMALL_ATOM_UTF8)
        name = strndup((const char *)d + 3, d[2]);
    else if (d[1] == ATOM_UTF8)
        name = strndup((const char *)d + 4, (size_t)(d[2] << 8 | d[3]));
    else if (d[1] == ATOM_LATIN1)
        name = latin1_to_utf8(d + 4, (size_t)(d[2] << 8 | d[3]));
    enif_release_binary(&external);
    return name;
}

ERL_NIF_TERM ember_term_existing_atom(ErlNifEnv *env, const char *name)
{
    size_t length = strlen(name);
    unsigned char external[4 + 255 * 4] = {VERSION, ATOM_UTF8};
    ERL_NIF_TERM term;
    if (length > sizeof external - 4)
        return ember_term_text(env, name);
    external[2] = (unsigned char)(length >> 8);
    external[3] = (unsigned char)(length & 255);
    memcpy(external + 4, name, length);
    if (enif_binary_to_term(env, external, length + 4, &term, ERL_NIF_BIN2TERM_SAFE))
        return term;
    return ember_term_text(env, name);
}

ERL_NIF_TERM ember_term_text(ErlNifEnv *env, const char *text)
{
    ERL_NIF_TERM binary;
    if (!text)
        return ember_term_atom(env, "undefined");
    size_t length = strlen(text);
    memcpy(enif_make_new_binary(env, length, &binary), text, length);
    return binary;
}

ERL_NIF_TERM ember_term_atom(ErlNifEnv *env, const char *name)
{
    return enif_make_atom(env, name);
}

ERL_NIF_TERM ember_term_error(ErlNifEnv *env, const char *reason)
{
    return enif_make_tuple2(env, ember_term_atom(env, "error"), ember_term_atom(env, reason));
}

bool ember_term_get_bool(ErlNifEnv *env, ERL_NIF_TERM term, bool *value)
{
    *value = enif_is_identical(term, ember_term_atom(env, "true"));
    return *value || enif_is_identical(term, ember_term_atom(env, "false"));
}

static int compare_words(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

uint32_t ember_term_sorted_atoms(ErlNifEnv *env, ERL_NIF_TERM list, uint32_t *atoms, uint32_t most)
{
    uint32_t count = 0;
    ERL_NIF_TERM head;
    while (count < most && enif_get_list_cell(env, list, &head, &list))
        atoms[count++] = (uint32_t)head;
    qsort(atoms, count, sizeof *atoms, compare_words);
    return count;
}

struct ember_term_map ember_term_map_new(ErlNifEnv *env)
{
    return (struct ember_term_map){env, enif_make_new_map(env)};
}

void ember_term_map_put(struct ember_term_map *map, const char *key, ERL_NIF_TERM value)
{
    enif_make_map_put(map->env, map->map, ember_term_atom(map->env, key), value, &map->map);
}

void ember_term_map_put_number(struct ember_term_map *map, const char *key, uint64_t value)
{
    ember_term_map_put(map, key, enif_make_uint64(map->env, value));
}
