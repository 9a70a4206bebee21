/* SPDX-License-Identifier: Apache-2.0 */
#include "utf8.h"

#include <criterion/criterion.h>
#include <string.h>

typedef void writer(struct ember_sink *, const char *);

static void cr_assert_written(writer *write, const char *text, const char *expected)
{
    struct ember_sink sink;
    ember_sink_init(&sink);
    write(&sink, text);
    ember_sink_bytes(&sink, "", 1);
    cr_assert_str_eq(sink.data, expected);
    ember_sink_fini(&sink);
}

static void write_all(struct ember_sink *sink, const char *text)
{
    cr_assert_eq(ember_utf8_written_size(text, strlen(text)),
                 (ember_utf8_write(sink, text, strlen(text)), sink->size));
}

static size_t size_of(const char *text)
{
    uint32_t character;
    return ember_utf8_decode(text, &character);
}

Test(utf8, characters_have_one_to_four_bytes)
{
    uint32_t character;
    cr_assert_eq(ember_utf8_decode("a", &character), 1);
    cr_assert_eq(ember_utf8_decode("\xc3\xa5", &character), 2);
    cr_assert_eq(character, 0xe5);
    cr_assert_eq(ember_utf8_decode("\xe6\x97\xa5", &character), 3);
    cr_assert_eq(ember_utf8_decode("\xf0\x9f\x94\xa5", &character), 4);
    cr_assert_eq(character, 0x1f525);
}

Test(utf8, what_is_none_has_no_size)
{
    static const char *const bad[] = {"\x80",
                                      "\xff",
                                      "\xc3",
                                      "\xc3 ",
                                      "\xc0\xaf",
                                      "\xe0\x80\xaf",
                                      "\xed\xa0\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xf8\x88\x80\x80\x80"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_assert_eq(size_of(bad[i]), 0, "%zu", i);
}

Test(utf8, bad_bytes_are_replaced_one_by_one)
{
    cr_assert_written(write_all, "a\xff\xc3\xa5\xe2\x80",
                      "a\xef\xbf\xbd\xc3\xa5\xef\xbf\xbd\xef\xbf\xbd");
}

Test(utf8, a_prefix_ends_between_characters)
{
    cr_assert_eq(ember_utf8_prefix("a\xc3\xa5z", 4, 2), 1);
    cr_assert_eq(ember_utf8_prefix("a\xc3\xa5z", 4, 3), 3);
    cr_assert_eq(ember_utf8_prefix("a\xc3\xa5z", 4, 9), 4);
    cr_assert_eq(ember_utf8_prefix("\xff", 1, 2), 0);
    cr_assert_eq(ember_utf8_prefix("\xff", 1, 3), 1);
    cr_assert_eq(ember_utf8_prefix("\xc3\xa5", 1, 2), 0);
}

Test(utf8, lines_and_words)
{
    cr_assert_written(ember_utf8_write_line, "a b\n\x7f\xc2\x85\xe2\x80\xa8",
                      "a b\\x0a\\x7f\\x85\\x2028");
    cr_assert_written(ember_utf8_write_word, "a b\t\xc2\xa0\xe3\x80\x80 \xc3\xa5",
                      "a_b\\x09___\xc3\xa5");
    cr_assert_written(ember_utf8_write_word, "\xff", "\xef\xbf\xbd");
}
