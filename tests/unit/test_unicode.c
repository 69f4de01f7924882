/* Classes and NFC, compared with utf8proc's complete NFC function, which
 * unicode.c does not use. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "random_text.h"
#include "text/unicode.h"

/* Code points to skip: surrogates, which are not characters; and U+11A7, which
 * utf8proc 2.8 treats as trailing consonant number 0 and drops after a Hangul
 * syllable. */
static bool skipped(uint32_t cp)
{
    return (cp >= 0xD800 && cp <= 0xDFFF) || cp == 0x11A7;
}

/* out = utf8proc's NFC of p[0..n), valid UTF-8. */
static void reference(struct buf *out, const char *p, size_t n, bool nfd)
{
    utf8proc_uint8_t *s;
    utf8proc_ssize_t len = utf8proc_map(
        (const utf8proc_uint8_t *)p, (utf8proc_ssize_t)n, &s,
        (utf8proc_option_t)(UTF8PROC_STABLE |
                            (nfd ? UTF8PROC_DECOMPOSE : UTF8PROC_COMPOSE)));
    assert_true(len >= 0);
    out->len = 0;
    assert_int_equal(buf_append(out, s, (size_t)len), 0);
    free(s);
}

/* Check that unicode_nfc equals the reference, and that unicode_is_nfc is true
 * only for NFC. */
static void check(const char *p, size_t n)
{
    struct buf want = {0}, have = {0};
    struct qwick_err e;
    reference(&want, p, n, false);
    assert_int_equal(buf_puts(&have, "before"), 0);
    assert_int_equal(unicode_nfc(&have, p, n, &e), 0);
    assert_int_equal(have.len, 6 + want.len);
    assert_memory_equal(have.data + 6, want.data, want.len);
    if (unicode_is_nfc(p, n)) {
        assert_int_equal(want.len, n);
        assert_memory_equal(want.data, p, n);
    }
    buf_free(&want);
    buf_free(&have);
}

static void test_classes(void **state)
{
    static const struct {
        uint32_t cp;
        enum uclass class;
    } t[] = {
        {'a', UC_LETTER},     {'Z', UC_LETTER},     {'0', UC_NUMBER},
        {' ', UC_SPACE},      {'\t', UC_SPACE},     {0x0B, UC_SPACE},
        {0x1C, UC_OTHER},     {0, UC_OTHER},        {'_', UC_OTHER},
        {0x7F, UC_OTHER},     {0x85, UC_SPACE},     {0xA0, UC_SPACE},
        {0xAA, UC_LETTER},    {0xB2, UC_NUMBER},    {0xDF, UC_LETTER},
        {0x300, UC_OTHER},    {0x660, UC_NUMBER},   {0x180E, UC_OTHER},
        {0x200B, UC_OTHER},   {0x2003, UC_SPACE},   {0x2028, UC_SPACE},
        {0x2160, UC_NUMBER},  {0x3000, UC_SPACE},   {0x4E00, UC_LETTER},
        {0xAC00, UC_LETTER},  {0xD800, UC_OTHER},   {0xFEFF, UC_OTHER},
        {0x1D7D8, UC_NUMBER}, {0x1F600, UC_OTHER},  {0x20000, UC_LETTER},
        {0x10FFFF, UC_OTHER}, {0x110000, UC_OTHER}, {UINT32_MAX, UC_OTHER},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        if (unicode_class(t[i].cp) != t[i].class)
            fail_msg("U+%04X: class %d", (unsigned)t[i].cp,
                     (int)unicode_class(t[i].cp));
    }
    size_t spaces = 0;
    for (uint32_t cp = 0; cp < 0x110000; cp++)
        spaces += unicode_class(cp) == UC_SPACE;
    assert_int_equal(spaces, 25); /* White_Space has 25 characters */
    /* Mn, Mc, Me; none of them is a letter, a number or a space */
    static const uint32_t marks[] = {0x300, 0x36F, 0x903, 0x20DD, 0xFE0F};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        assert_true(unicode_traits(marks[i]) & UC_MARK);
    for (size_t i = 0; i < sizeof t / sizeof *t; i++)
        assert_int_equal(unicode_traits(t[i].cp) == UC_MARK, t[i].cp == 0x300);
}

/* Fixed test vectors, which also detect a change of utf8proc. */
static void test_vectors(void **state)
{
    static const char *const t[][2] = {
        {"", ""},
        {"plain ascii, longer than a word", "plain ascii, longer than a word"},
        {"e\xCC\x81", "\xC3\xA9"},                  /* e + acute */
        {"\xC3\xA9", "\xC3\xA9"},                   /* é stays */
        {"A\xCC\x8A", "\xC3\x85"},                  /* A + ring */
        {"\xE2\x84\xAB", "\xC3\x85"},               /* Angstrom sign */
        {"\xE2\x84\xA6", "\xCE\xA9"},               /* Ohm sign */
        {"q\xCC\x87\xCC\xA3", "q\xCC\xA3\xCC\x87"}, /* marks change places */
        {"\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", "\xED\x95\x9C"}, /* Hangul */
        {"\xEA\xB0\x80\xE1\x86\xA8", "\xEA\xB0\x81"},             /* LV + T */
        {"\xEA\xB0\x80\xE1\x86\xA7", "\xEA\xB0\x80\xE1\x86\xA7"},
        {"\xE0\xA5\x98",
         "\xE0\xA4\x95\xE0\xA4\xBC"},     /* excluded: stays apart */
        {"\xEF\xAC\x81", "\xEF\xAC\x81"}, /* fi ligature: not NFKC */
        {"\xC3\xA9\xCC\xA3", "\xE1\xBA\xB9\xCC\x81"}, /* é + dot below */
        {"x\xCC\x81", "x\xCC\x81"},                   /* no composite */
        {"\xCC\x81"
         "e",
         "\xCC\x81"
         "e"},                              /* mark first */
        {"e\xFF\xCC\x81", "e\xFF\xCC\x81"}, /* invalid byte ends the run */
        {"\xCC\xCC\x81", "\xCC\xCC\x81"},
        {"e\xCC\x81\xCC", "\xC3\xA9\xCC"},
        {"\xED\xA0\x80 e\xCC\x81", "\xED\xA0\x80 \xC3\xA9"},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct buf out = {0};
        assert_int_equal(unicode_nfc(&out, t[i][0], strlen(t[i][0]), NULL), 0);
        assert_int_equal(out.len, strlen(t[i][1]));
        assert_memory_equal(out.len ? out.data : "", t[i][1], out.len);
        if (unicode_is_nfc(t[i][0], strlen(t[i][0])))
            assert_string_equal(t[i][0], t[i][1]);
        buf_free(&out);
    }
    assert_true(unicode_is_nfc("", 0));
    assert_true(unicode_is_nfc("ascii\0nul and more of it", 24));
    assert_true(unicode_is_nfc("caf\xC3\xA9 \xE4\xBD\xA0\xE5\xA5\xBD", 12));
    assert_true(unicode_is_nfc("\xFF", 1));
    assert_false(unicode_is_nfc("ascii ascii e\xCC\x81", 15));
    struct buf nul = {0};
    assert_int_equal(unicode_nfc(&nul, "a\0e\xCC\x81", 5, NULL), 0);
    assert_int_equal(nul.len, 4);
    assert_memory_equal(nul.data, "a\0\xC3\xA9", 4);
    buf_free(&nul);
}

/* Every character: alone, after a letter, before a mark, and decomposed. The
 * decomposed form covers every pair that composes. */
static void test_every_character(void **state)
{
    struct buf b = {0}, nfd = {0};
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        if (skipped(cp))
            continue;
        char u[4];
        size_t n = utf8_encode(cp, u);
        b.len = 0;
        put(&b, 'e');
        put(&b, cp);
        put(&b, 0x301);
        /* Most characters are inert. To save time, compare only the others and
         * every 16th character with the reference. */
        reference(&nfd, u, n, true);
        bool plain = nfd.len == n && !memcmp(nfd.data, u, n);
        if (!plain || !unicode_is_nfc(u, n) || cp % 16 == 0) {
            check(u, n);
            check(nfd.data, nfd.len);
            check(b.data, b.len);
        } else {
            assert_true(unicode_is_nfc(b.data, 1 + n));
        }
    }
    buf_free(&b);
    buf_free(&nfd);
}

/* A text that is cut has the same form. */
static void check_cut(const char *p, size_t n, size_t least)
{
    struct buf whole = {0}, parts = {0};
    size_t at = unicode_nfc_part(p, n, least);
    assert_true(at <= n && (at == n || at >= least));
    assert_int_equal(unicode_nfc(&whole, p, n, NULL), 0);
    assert_int_equal(unicode_nfc(&parts, p, at, NULL), 0);
    assert_int_equal(unicode_nfc(&parts, p + at, n - at, NULL), 0);
    assert_int_equal(parts.len, whole.len);
    if (whole.len)
        assert_memory_equal(parts.data, whole.data, whole.len);
    buf_free(&whole);
    buf_free(&parts);
}

static void test_random(void **state)
{
    static const uint32_t base[] = {'a',    'e',    0xE9,  0x41,  0x1EA0,
                                    0x1100, 0xAC00, 0x915, 0x9C7, 0x1025,
                                    0x4E2D, 0xDD9,  0x3B1, ' '};
    static const uint32_t mark[] = {0x300, 0x301, 0x323,  0x327,  0x345,  0x338,
                                    0x93C, 0x9BE, 0x1161, 0x11A8, 0x102E, 0xDCF,
                                    0xDCA, 0x5B0, 0x64B,  0x1D165};
    struct buf b = {0};
    for (int round = 0; round < 20000; round++) {
        b.len = 0;
        uint32_t n = 1 + draw(12);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t r = draw(10);
            if (r < 3)
                put(&b, base[draw(sizeof base / sizeof *base)]);
            else if (r < 9)
                put(&b, mark[draw(sizeof mark / sizeof *mark)]);
            else if (!skipped(r = draw(0xD800)))
                put(&b, r);
        }
        check(b.data, b.len);
        check_cut(b.data, b.len, draw((uint32_t)b.len + 1));
        if (b.len)
            b.data[draw((uint32_t)b.len)] = (char)(0x80 + draw(0x80));
        check_cut(b.data, b.len, draw((uint32_t)b.len + 1));
    }
    buf_free(&b);
}

/* Long runs of unordered marks. With quadratic time this test would not end. */
static void test_long_runs(void **state)
{
    enum { N = 500000 };
    struct buf b = {0}, out = {0};
    put(&b, 'q');
    for (int i = 0; i < N; i++)
        put(&b, i % 2 ? 0x323 : 0x301); /* classes 220, 230 */
    assert_int_equal(unicode_nfc(&out, b.data, b.len, NULL), 0);
    assert_int_equal(out.len, b.len);
    assert_memory_equal(out.data + 1, "\xCC\xA3\xCC\xA3", 4);
    assert_memory_equal(out.data + out.len - 4, "\xCC\x81\xCC\x81", 4);
    b.len = 300;
    check(b.data, 299);
    buf_free(&b);
    buf_free(&out);
}

static void test_out_of_room(void **state)
{
    struct buf out = {.max = 8};
    struct qwick_err e = {0};
    assert_int_equal(buf_puts(&out, "abc"), 0);
    assert_int_equal(unicode_nfc(&out, "0123e\xCC\x81xyz", 10, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_MEMORY);
    assert_string_equal(out.data, "abc");
    buf_free(&out);
}

static void test_runs(void **state)
{
    size_t n, k = 0;
    const struct unicode_run *runs = unicode_runs(&n);
    assert_int_equal(runs[0].first, 0);
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        const char *want = utf8proc_category_string((utf8proc_int32_t)cp);
        if (k + 1 < n && runs[k + 1].first == cp)
            k++;
        assert_memory_equal(runs[k].category, want, 2);
    }
    assert_int_equal(k, n - 1);
}

int main(void)
{
    draw_state = 20240607;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_every_character),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_long_runs),
        cmocka_unit_test(test_out_of_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
