/* SPDX-License-Identifier: Apache-2.0 */
/* LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup */
#include "failing_malloc.h"
#include "mfa_text.h"

#include <criterion/criterion.h>
#include <stdio.h>

static void cr_assert_text(const char *module, const char *function, uint32_t arity,
                           const char *expected)
{
    char *text = ember_mfa_text(module, function, arity);
    cr_assert_str_eq(text, expected);
    free(text);
}

static void cr_assert_atom(const char *name, const char *expected)
{
    char *text = ember_atom_text(name);
    cr_assert_str_eq(text, expected);
    free(text);
}

/* ---- Erlang -------------------------------------------------------------- */

Test(mfa_text, plain_names_stand_plain)
{
    cr_assert_text("lists", "map", 2, "lists:map/2");
    cr_assert_text("my_mod@node1", "aZ_9@", 255, "my_mod@node1:aZ_9@/255");
}

Test(mfa_text, other_names_are_quoted)
{
    cr_assert_atom("", "''");
    cr_assert_atom("Upper", "'Upper'");
    cr_assert_atom("_", "'_'");
    cr_assert_atom("1st", "'1st'");
    cr_assert_atom("@at", "'@at'");
    cr_assert_atom("a b", "'a b'");
    cr_assert_atom("a-b", "'a-b'");
    cr_assert_atom("a.b", "'a.b'");
    cr_assert_text("my mod", "a b", 0, "'my mod':'a b'/0");
    cr_assert_text("erlang", "+", 2, "erlang:'+'/2");
    cr_assert_text("lists", "-map/2-fun-0-", 1, "lists:'-map/2-fun-0-'/1");
}

Test(mfa_text, reserved_words_are_quoted)
{
    static const char *const words[] = {
        "after", "and",   "andalso", "band",   "begin",   "bnot", "bor", "bsl",  "bsr", "bxor",
        "case",  "catch", "cond",    "div",    "else",    "end",  "fun", "if",   "let", "maybe",
        "not",   "of",    "or",      "orelse", "receive", "rem",  "try", "when", "xor"};
    char quoted[16];
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        snprintf(quoted, sizeof quoted, "'%s'", words[i]);
        cr_assert_atom(words[i], quoted);
    }
    cr_assert_atom("ends", "ends");
    cr_assert_atom("en", "en");
}

Test(mfa_text, quotes_and_control_characters_are_escaped)
{
    cr_assert_atom("it's", "'it\\'s'");
    cr_assert_atom("a\\b", "'a\\\\b'");
    cr_assert_atom("a\"b", "'a\"b'");
    cr_assert_atom("two\nlines", "'two\\nlines'");
    cr_assert_atom("\t\x01\x7f", "'\\x{9}\\x{1}\\x{7F}'");
}

Test(mfa_text, unicode_stays)
{
    cr_assert_atom("\xc3\xa5\xe6\x97\xa5\xf0\x9f\x94\xa5",
                   "'\xc3\xa5\xe6\x97\xa5\xf0\x9f\x94\xa5'");
    cr_assert_atom("gr\xc3\xbc\xc3\x9f", "'gr\xc3\xbc\xc3\x9f'");
}

/* ---- Elixir -------------------------------------------------------------- */

Test(mfa_text, elixir_modules_stand_without_prefix)
{
    cr_assert_text("Elixir.Enum", "map", 2, "Enum.map/2");
    cr_assert_text("Elixir.My.App_2.Repo", "get", 3, "My.App_2.Repo.get/3");
    cr_assert_atom("Elixir.My.App", "My.App");
}

Test(mfa_text, what_only_looks_like_an_elixir_module_is_an_atom)
{
    cr_assert_atom("Elixir", "'Elixir'");
    cr_assert_atom("Elixir.", "'Elixir.'");
    cr_assert_atom("Elixir.lower", "'Elixir.lower'");
    cr_assert_atom("Elixir.A.", "'Elixir.A.'");
    cr_assert_atom("Elixir.A..B", "'Elixir.A..B'");
    cr_assert_atom("Elixir.A.b", "'Elixir.A.b'");
    cr_assert_atom("Elixir.A@b", "'Elixir.A@b'");
    cr_assert_atom("Elixir.A b", "'Elixir.A b'");
    cr_assert_atom("Elixir.\xc3\x85", "'Elixir.\xc3\x85'");
    cr_assert_text("Elixir.lower", "f", 0, "'Elixir.lower':f/0");
}

Test(mfa_text, elixir_names_and_operators_stand_plain)
{
    cr_assert_text("Elixir.A", "valid?", 1, "A.valid?/1");
    cr_assert_text("Elixir.A", "save!", 1, "A.save!/1");
    cr_assert_text("Elixir.A", "_private", 0, "A._private/0");
    cr_assert_text("Elixir.A", "__struct__", 0, "A.__struct__/0");
    cr_assert_text("Elixir.Kernel", "<>", 2, "Kernel.<>/2");
    cr_assert_text("Elixir.Kernel", "|>", 2, "Kernel.|>/2");
    cr_assert_text("Elixir.Kernel", "+", 2, "Kernel.+/2");
}

Test(mfa_text, other_elixir_names_are_quoted)
{
    cr_assert_text("Elixir.A", "", 0, "A.\"\"/0");
    cr_assert_text("Elixir.A", "Upper", 0, "A.\"Upper\"/0");
    cr_assert_text("Elixir.A", "a b", 0, "A.\"a b\"/0");
    cr_assert_text("Elixir.A", "what?!", 0, "A.\"what?!\"/0");
    cr_assert_text("Elixir.A", "say \"it's\"", 0, "A.\"say \\\"it's\\\"\"/0");
    cr_assert_text("Elixir.A", "MACRO-if", 3, "A.\"MACRO-if\"/3");
    cr_assert_text("Elixir.A", "-f/1-lc$^0/1-0-", 1, "A.\"-f/1-lc$^0/1-0-\"/1");
    cr_assert_text("Elixir.A", "gr\xc3\xbc\xc3\x9f", 0, "A.\"gr\xc3\xbc\xc3\x9f\"/0");
}

Test(mfa_text, anonymous_functions_name_who_holds_them)
{
    cr_assert_text("Elixir.Enum", "-map/2-fun-0-", 1, "anonymous fn/1 in Enum.map/2");
    cr_assert_text("Elixir.A", "-valid?/12-fun-3-", 0, "anonymous fn/0 in A.valid?/12");
    cr_assert_text("Elixir.A", "-+/2-fun-0-", 1, "anonymous fn/1 in A.+/2");
    cr_assert_text("Elixir.A", "-a b/0-fun-0-", 1, "anonymous fn/1 in A.\"a b\"/0");
    cr_assert_text("Elixir.A", "-fun-", 0, "A.\"-fun-\"/0");
    cr_assert_text("Elixir.A", "foo/2-fun-0-", 0, "A.\"foo/2-fun-0-\"/0");
}

Test(mfa_text, longest_names_are_whole)
{
    char name[255 * 4 + 1] = "-";
    char expected[sizeof name + 64] = "anonymous fn/1 in A.\"";
    for (int i = 0; i < 245; i++)
        strcat(name, "\xf0\x9f\x94\xa5");
    strcat(expected, name + 1);
    strcat(name, "/1-fun-0-");
    strcat(expected, "\"/1");
    cr_assert_text("Elixir.A", name, 1, expected);
}

Test(mfa_text, out_of_memory_is_null)
{
    allocations_left = 0;
    cr_assert_null(ember_mfa_text("lists", "map", 2));
    cr_assert_null(ember_atom_text("lists"));
    allocations_left = UINT64_MAX;
}
