/* The split functions, compared with their patterns, which a slow and simple
 * matcher reads. */
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
    bool begins; /* a part begins here */
};

/* ---- a backtracking matcher of regular expressions ----
 *
 * It knows what the patterns use: alternatives of atoms, which may have a
 * quantifier; (?i:...) around literal alternatives; and (?!\S). */

#define NONE SIZE_MAX

static uint32_t next_cp(const char **re)
{
    uint32_t cp;
    *re += utf8_decode(*re, strlen(*re), &cp, NULL);
    return cp;
}

/* Whether the letter is in the category, as in \p{Lu}. */
static bool in_category(const char *name, const struct letter *l)
{
    unsigned traits = unicode_traits(l->cp);
    bool letter = l->class == UC_LETTER;
    switch (name[0]) {
    case 'L':
        return letter &&
               (name[1] == '}'   ? true
                : name[1] == 'u' ? traits & UC_UPPER
                : name[1] == 'l'
                    ? traits & UC_LOWER
                    /* Lt is in Lu, and Lm in Lo, beside which they are */
                    : !(traits & (UC_UPPER | UC_LOWER)));
    case 'N':
        return l->class == UC_NUMBER;
    case 'M':
        return traits & UC_MARK;
    default: /* P and S, which are side by side */
        assert_true(name[0] == 'P' || name[0] == 'S');
        return traits & UC_SIGN;
    }
}

/* Whether the letter is the character or class at *re, and move past that. *c:
 * the character, or 0 for a class. */
static bool is_item(const char **re, const struct letter *l, uint32_t *c)
{
    *c = next_cp(re);
    if (*c != '\\')
        return l->cp == *c;
    uint32_t kind = next_cp(re);
    const char *name = *re + 1;
    *c = 0;
    switch (kind) {
    case 'p':
        *re = strchr(*re, '}') + 1;
        return in_category(name, l);
    case 's':
        return l->class == UC_SPACE;
    case 'r':
    case 'n':
        return l->cp == (kind == 'r' ? '\r' : '\n');
    default:
        *c = kind;
        return l->cp == kind;
    }
}

/* The same for an atom. */
static bool is_atom(const char **re, const struct letter *l)
{
    uint32_t c, to;
    if (**re != '[')
        return is_item(re, l, &c);
    bool not = *++*re == '^', found = false;
    for (*re += not ; **re != ']';) {
        found |= is_item(re, l, &c);
        if (c && **re == '-') {
            ++*re;
            (void)is_item(re, l, &to);
            found |= l->cp >= c && l->cp <= to;
        }
    }
    ++*re;
    return found != not ;
}

static void read_quantifier(const char **re, size_t *min, size_t *max)
{
    *min = *max = 1;
    switch (**re) {
    case '?':
    case '*':
        *min = 0;
        *max = **re == '*' ? NONE : 1;
        break;
    case '+':
        *max = NONE;
        break;
    case '{':
        *max = (size_t)(strchr(*re, '}')[-1] - '0');
        *re = strchr(*re, '}');
        break;
    default:
        return;
    }
    ++*re;
}

/* The number of letters of the literal at re if l[0..n) begins with it, else 0.
 * Case is ignored. */
static size_t literal(const char *re, const struct letter *l, size_t n)
{
    size_t i = 0;
    for (; *re != '|' && *re != ')'; re++, i++)
        if (i == n || (l[i].cp != (uint32_t)*re &&
                       (*re == '\'' || l[i].cp != (uint32_t)*re - 32) &&
                       !(*re == 's' && l[i].cp == 0x17F)))
            return 0;
    return i;
}

/* The end of the match of an alternative from re on at l[i], or NONE. */
static size_t match(const char *re, const struct letter *l, size_t n, size_t i)
{
    size_t min, max, k = 0, end = NONE;
    const char *rest = re;
    if (!*re || *re == '|')
        return i;
    if (strncmp(re, "(?!\\S)", 6) == 0)
        return i == n || l[i].class == UC_SPACE ? match(re + 6, l, n, i) : NONE;
    if (strncmp(re, "(?i:", 4) == 0) {
        rest = strchr(re, ')') + 1;
        read_quantifier(&rest, &min, &max);
        for (re += 4; end == NONE && re < rest; re += strcspn(re, "|)") + 1)
            if ((k = literal(re, l + i, n - i)) > 0)
                end = match(rest, l, n, i + k);
        return end == NONE && min == 0 ? match(rest, l, n, i) : end;
    }
    (void)is_atom(&rest, l);
    read_quantifier(&rest, &min, &max);
    for (const char *p = re; k < max && i + k < n && is_atom(&p, &l[i + k]);
         p = re)
        k++;
    for (; end == NONE && k >= min; k--) {
        end = match(rest, l, n, i + k);
        if (k == 0)
            break;
    }
    return end;
}

/* The same for all alternatives. */
static size_t match_any(const char *re, const struct letter *l, size_t n,
                        size_t i)
{
    size_t end = match(re, l, n, i);
    for (int depth = 0; end == NONE && *re; re++) {
        depth += *re == '(' || *re == '[';
        depth -= *re == ')' || *re == ']';
        if (*re == '|' && depth == 0)
            end = match(re + 1, l, n, i);
        re += *re == '\\'; /* what it escapes is no operator */
    }
    return end;
}

/* Mark where parts begin in l[0..n), which is a part of what the patterns
 * before this one split. */
static void mark_parts(const char *const *patterns, size_t k, struct letter *l,
                       size_t n)
{
    if (n)
        l[0].begins = true;
    if (k == SPLIT_MAX_PATTERNS || !patterns[k])
        return;
    size_t done = 0;
    for (size_t i = 0; i < n;) {
        size_t end = match_any(patterns[k], l, n, i);
        if (end == NONE) {
            i++;
            continue;
        }
        mark_parts(patterns, k + 1, l + done, i - done);
        mark_parts(patterns, k + 1, l + i, end - i);
        done = i = end;
    }
    mark_parts(patterns, k + 1, l + done, n - done);
}

/* ---- the comparison ---- */

static void check_split(enum split split)
{
    static const uint32_t some[] = {
        ' ',    ' ',    ' ',    '\n',   '\r',   '\t',   'a',    'S',
        's',    't',    'l',    'r',    'e',    'v',    'm',    'D',
        'L',    'Q',    '\'',   '\'',   '1',    '9',    '.',    '!',
        '_',    '/',    '/',    0xE9,   0xC9,   0xA0,   0x85,   0x3000,
        0x4E2D, 0x9FA6, 0x30AB, 0x3042, 0x17F,  0x2167, 0x301,  0x1F600,
        0x903,  0x20DD, 0x0B,   0,      0x200B, 0x200B, 0x2029, 0x1D7D8,
        0x1C5,  0x2B0,  0xAA,   0x7F,   0xE000};
    struct buf b = {0};
    for (int round = 0; round < 20000; round++) {
        struct letter l[24];
        uint32_t n = 1 + draw(24), kinds = 1 + draw(sizeof some / sizeof *some);
        uint32_t first = draw(sizeof some / sizeof *some);
        b.len = 0;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t cp =
                some[(first + draw(kinds)) % (sizeof some / sizeof *some)];
            size_t before = b.len;
            if (draw(40) == 0) { /* a byte that is not UTF-8 */
                cp = 0xFFFD;
                assert_int_equal(buf_putc(&b, '\xFF'), 0);
            } else {
                put(&b, cp);
            }
            l[i] =
                (struct letter){cp, unicode_class(cp), b.len - before, false};
        }
        mark_parts(splits[split].patterns, 0, l, n);
        size_t at = 0;
        for (size_t i = 0; i < n;) {
            size_t bytes = 0;
            do
                bytes += l[i++].len;
            while (i < n && !l[i].begins);
            size_t got = split_next(split, b.data + at, b.len - at);
            if (got != bytes)
                fail_msg("%s: \"%.*s\": %zu bytes, must be %zu",
                         splits[split].name, (int)(b.len - at), b.data + at,
                         got, bytes);
            at += bytes;
        }
        assert_int_equal(at, b.len);
    }
    buf_free(&b);
}

static void test_split(void **state)
{
    for (size_t i = 0; i < N_SPLITS; i++)
        check_split((enum split)i);
}

int main(void)
{
    draw_state = 7;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
