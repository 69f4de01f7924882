#include "text/split.h"

#include <stdbool.h>
#include <stdint.h>

#include "base/utf8.h"
#include "text/unicode.h"

/* Qwen3.5's is from the tokenizer.json of its checkpoints, and is the pattern
 * of the pre-tokenizer "qwen35" in llama.cpp (llama-vocab.cpp), which spells
 * (?i:...) out. */
const char *const split_patterns[N_SPLITS] = {
    [SPLIT_QWEN2] =
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
        "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    [SPLIT_QWEN35] =
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
        "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
        "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
};

/* The functions below are compiled once with `marks`, for patterns in which a
 * mark acts as a letter. It does so everywhere: where it matches the optional
 * character in front of a word, the match is the run of letters and marks that
 * it starts. */
#define INLINE static inline __attribute__((always_inline))

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
INLINE enum uclass peek(bool marks, const char *p, size_t n, size_t *len)
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
    enum uclass class = unicode_class(cp);
    return marks && class == UC_OTHER && unicode_is_mark(cp) ? UC_LETTER
                                                             : class;
}

/* The end of a run of characters of one class that continues at p[i]. */
INLINE size_t run_end(bool marks, const char *p, size_t n, size_t i,
                      enum uclass class)
{
    size_t len;
    while (i < n && peek(marks, p + i, n - i, &len) == class)
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
INLINE size_t spaces(bool marks, const char *p, size_t n)
{
    size_t i = 0, last = 0, newline = 0, len;
    while (i < n && peek(marks, p + i, n - i, &len) == UC_SPACE) {
        last = i;
        if (is_newline(p[i]))
            newline = i + 1;
        i += len;
    }
    if (newline)
        return newline;
    return i < n && last > 0 ? last : i;
}

INLINE size_t next(bool marks, const char *p, size_t n)
{
    size_t len, next_len;
    enum uclass class = peek(marks, p, n, &len);
    if (class == UC_LETTER)
        return run_end(marks, p, n, len, UC_LETTER);
    if (class == UC_NUMBER)
        return len;
    if (*p == '\'') {
        size_t k = contraction(p, n);
        if (k)
            return k;
    }
    if (len < n && !is_newline(*p)) {
        enum uclass second = peek(marks, p + len, n - len, &next_len);
        if (second == UC_LETTER)
            return run_end(marks, p, n, len + next_len, UC_LETTER);
        if (*p == ' ' && second == UC_OTHER)
            class = UC_OTHER;
    }
    if (class == UC_SPACE)
        return spaces(marks, p, n);
    size_t i = run_end(marks, p, n, len, UC_OTHER);
    while (i < n && is_newline(p[i]))
        i++;
    return i;
}

size_t split_next(enum split split, const char *p, size_t n)
{
    return split == SPLIT_QWEN35 ? next(true, p, n) : next(false, p, n);
}
