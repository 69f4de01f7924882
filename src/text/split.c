#include "text/split.h"

#include <stdbool.h>
#include <stdint.h>

#include "base/utf8.h"
#include "text/unicode.h"

#define O UC_OTHER
#define L UC_LETTER
#define N UC_NUMBER
#define S UC_SPACE
static const uint8_t ascii_class[128] = {
    O, O, O, O, O, O, O, O, O, S, S, S, S, S, O, O, /* 00 */
    O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, /* 10 */
    S, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, /* 20 */
    N, N, N, N, N, N, N, N, N, N, O, O, O, O, O, O, /* 30 */
    O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, /* 40 */
    L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O, /* 50 */
    O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, /* 60 */
    L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O, /* 70 */
};
#undef O
#undef L
#undef N
#undef S

/* Class and length of the character at p. */
static inline enum uclass peek(const char *p, size_t n, size_t *len)
{
    unsigned char c = (unsigned char)*p;
    if (c < 0x80) {
        *len = 1;
        return (enum uclass)ascii_class[c];
    }
    uint32_t cp;
    *len = utf8_decode(p, n, &cp, NULL);
    if (*len == 0) {
        *len = 1;
        return UC_OTHER;
    }
    return unicode_class(cp);
}

/* The end of a run of characters of one class that continues at p[i]. */
static inline size_t run_end(const char *p, size_t n, size_t i,
                             enum uclass class)
{
    size_t len;
    while (i < n && peek(p + i, n - i, &len) == class)
        i += len;
    return i;
}

static inline bool is_newline(char c)
{
    return c == '\n' || c == '\r';
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d) at p, which starts with an apostrophe. Returns
 * the length, or 0. Case folding adds U+017F, the long s, to s and S. */
static size_t contraction(const char *p, size_t n)
{
    if (n < 2)
        return 0;
    char a = (char)(p[1] | 0x20), b = n > 2 ? (char)(p[2] | 0x20) : '\0';
    switch (a) {
    case 's':
    case 't':
    case 'm':
    case 'd':
        return 2;
    case 'r':
    case 'v':
        return b == 'e' ? 3 : 0;
    case 'l':
        return b == 'l' ? 3 : 0;
    default:
        return n > 2 && p[1] == '\xC5' && p[2] == '\xBF' ? 3 : 0;
    }
}

/* The alternatives that start with white space and are not followed by a
 * letter: \s*[\r\n]+ | \s+(?!\S) | \s+. Each takes the whole run of white
 * space and then backs off: to the last newline; else, before a \S, by one
 * character, unless that leaves nothing. */
static size_t spaces(const char *p, size_t n)
{
    size_t i = 0, last = 0, newline = 0, len;
    while (i < n && peek(p + i, n - i, &len) == UC_SPACE) {
        last = i;
        if (is_newline(p[i]))
            newline = i + 1;
        i += len;
    }
    if (newline)
        return newline;
    return i < n && last > 0 ? last : i;
}

size_t split_next(const char *p, size_t n)
{
    size_t len, next_len;
    enum uclass class = peek(p, n, &len);
    if (class == UC_LETTER)
        return run_end(p, n, len, UC_LETTER);
    if (class == UC_NUMBER)
        return len;
    if (*p == '\'') {
        size_t k = contraction(p, n);
        if (k)
            return k;
    }
    if (len < n && !is_newline(*p)) {
        enum uclass next = peek(p + len, n - len, &next_len);
        if (next == UC_LETTER)
            return run_end(p, n, len + next_len, UC_LETTER);
        if (*p == ' ' && next == UC_OTHER)
            class = UC_OTHER;
    }
    if (class == UC_SPACE)
        return spaces(p, n);
    size_t i = run_end(p, n, len, UC_OTHER);
    while (i < n && is_newline(p[i]))
        i++;
    return i;
}
