/* The split patterns of Qwen's tokenizers, compared with a slow and simple
 * matcher. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "random_text.h"
#include "text/split.h"
#include "text/unicode.h"

struct letter { /* a character for the slow matcher */
    uint32_t cp;
    enum uclass class;
    size_t len;
};

static bool crlf(const struct letter *l)
{
    return l->cp == '\r' || l->cp == '\n';
}

static bool fold(const struct letter *l, char c)
{
    return l->cp == (uint32_t)c || l->cp == (uint32_t)c - 32 ||
           (c == 's' && l->cp == 0x17F);
}

/* [\p{L}], or [\p{L}\p{M}] of Qwen3.5. */
static bool in_word(enum split split, const struct letter *l)
{
    return l->class == UC_LETTER ||
           (split == SPLIT_QWEN35 && unicode_is_mark(l->cp));
}

/* Match the pattern, alternative by alternative, like a backtracking engine.
 * Returns the number of characters matched at l[0..n). */
static size_t slow_match(enum split split, const struct letter *l, size_t n)
{
    static const char *const suffix[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    for (size_t k = 0; k < 7; k++) {
        size_t m = strlen(suffix[k]);
        if (l[0].cp == '\'' && n > m && fold(&l[1], suffix[k][0]) &&
            (m == 1 || fold(&l[2], suffix[k][1])))
            return m + 1;
    }
    for (size_t opt = 2; opt-- > 0;) { /* [^\r\n\p{L}\p{N}]?[\p{L}...]+ */
        if (opt &&
            (crlf(&l[0]) || l[0].class == UC_LETTER || l[0].class == UC_NUMBER))
            continue;
        size_t i = opt;
        while (i < n && in_word(split, &l[i]))
            i++;
        if (i > opt)
            return i;
    }
    if (l[0].class == UC_NUMBER)
        return 1;
    for (size_t opt = 2; opt-- > 0;) { /*  ?[^\s\p{L}\p{N}...]+[\r\n]* */
        if (opt && l[0].cp != ' ')
            continue;
        size_t i = opt;
        while (i < n && l[i].class == UC_OTHER && !in_word(split, &l[i]))
            i++;
        if (i == opt)
            continue;
        while (i < n && crlf(&l[i]))
            i++;
        return i;
    }
    size_t spaces = 0;
    while (spaces < n && l[spaces].class == UC_SPACE)
        spaces++;
    for (size_t k = spaces + 1; k-- > 0;) { /* \s*[\r\n]+ */
        size_t i = k;
        while (i < n && crlf(&l[i]))
            i++;
        if (i > k)
            return i;
    }
    for (size_t k = spaces; k > 0; k--) /* \s+(?!\S) */
        if (k == n || l[k].class == UC_SPACE)
            return k;
    assert_true(spaces > 0);
    return spaces; /* \s+ */
}

static void check_split(enum split split)
{
    static const uint32_t some[] = {
        ' ',   ' ',    ' ',    '\n',   '\r',   '\t',   'a',    'S',
        's',   't',    'l',    'r',    'e',    'v',    'm',    'D',
        '\'',  '\'',   '1',    '9',    '.',    '!',    '_',    0xE9,
        0xA0,  0x85,   0x3000, 0x4E2D, 0x17F,  0x2167, 0x301,  0x1F600,
        0x903, 0x20DD, 0x0B,   0,      0x200B, 0x2029, 0x1D7D8};
    struct buf b = {0};
    for (int round = 0; round < 50000; round++) {
        struct letter l[24];
        uint32_t n = 1 + draw(24), kinds = 1 + draw(sizeof some / sizeof *some);
        b.len = 0;
        for (uint32_t i = 0; i < n; i++) {
            l[i].cp = some[draw(kinds)];
            /* Sometimes a byte that is not UTF-8. It counts as a character that
             * is neither letter, number nor space. */
            if (draw(40) == 0) {
                l[i] = (struct letter){0xFFFFFF, UC_OTHER, 1};
                assert_int_equal(buf_putc(&b, '\xFF'), 0);
                continue;
            }
            size_t before = b.len;
            put(&b, l[i].cp);
            l[i].class = unicode_class(l[i].cp);
            l[i].len = b.len - before;
        }
        size_t at = 0;
        for (size_t i = 0; i < n;) {
            size_t k = slow_match(split, l + i, n - i), bytes = 0;
            for (; k > 0; k--)
                bytes += l[i++].len;
            assert_int_equal(split_next(split, b.data + at, b.len - at), bytes);
            at += bytes;
        }
        assert_int_equal(at, b.len);
    }
    buf_free(&b);
}

static void test_split(void **state)
{
    check_split(SPLIT_QWEN2);
    check_split(SPLIT_QWEN35);
}

int main(void)
{
    draw_state = 7;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
