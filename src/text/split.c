#include "text/split.h"

#include <stdbool.h>
#include <stdint.h>

#include "base/utf8.h"
#include "text/unicode.h"

/* The functions below are compiled once for each set of these flags, which say
 * what the patterns of a split have in common with others. */
enum {
    /* A mark acts as a letter. It does so everywhere: where it matches the
       optional character in front of a word, the match is the run of letters
       and marks that it starts. */
    MARKS = 1,
    /* White space ends after its last newline: \s*[\r\n]+ */
    NEWLINES = 2,
    /* Newlines after punctuation belong to it. */
    TRAILING_NEWLINES = 4,
    /* Earlier patterns cut numbers out. To the last pattern, the text ends
       before a number. */
    CUT_NUMBERS = 8,
    /* Earlier patterns cut out Chinese and Japanese, too. These characters
       count as numbers. */
    CUT_CJK = 16
};
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

/* [\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF] */
static inline bool is_cjk(uint32_t cp)
{
    return (cp >= 0x4E00 && cp <= 0x9FA5) || (cp >= 0x3040 && cp <= 0x30FF);
}

/* Class and length of the character at p. */
INLINE enum uclass peek(unsigned flags, const char *p, size_t n, size_t *len)
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
    if (flags & CUT_CJK && is_cjk(cp))
        return UC_NUMBER;
    enum uclass class = unicode_class(cp);
    return flags & MARKS && class == UC_OTHER && unicode_traits(cp) & UC_MARK
               ? UC_LETTER
               : class;
}

/* The end of a run of characters of one class that continues at p[i]. */
INLINE size_t run_end(unsigned flags, const char *p, size_t n, size_t i,
                      enum uclass class)
{
    size_t len;
    while (i < n && peek(flags, p + i, n - i, &len) == class)
        i += len;
    return i;
}

/* The end of at most `most` numbers at p, the first of which has len bytes. */
INLINE size_t numbers_end(const char *p, size_t n, size_t len, int most)
{
    size_t i = len;
    for (int k = 1; k < most && i < n; k++, i += len)
        if (peek(0, p + i, n - i, &len) != UC_NUMBER)
            break;
    return i;
}

static inline bool is_newline(char c)
{
    return c == '\n' || c == '\r';
}

static inline size_t newlines_end(const char *p, size_t n, size_t i)
{
    while (i < n && is_newline(p[i]))
        i++;
    return i;
}

/* 's|'t|'re|'ve|'m|'ll|'d at p, which starts with an apostrophe. Returns the
 * length, or 0. fold: ignore case. This adds U+017F, the long s, to s and S. */
INLINE size_t contraction(bool fold, const char *p, size_t n)
{
    const int to_lower = fold ? 0x20 : 0;
    if (n < 2)
        return 0;
    char a = (char)(p[1] | to_lower);
    char b = n > 2 ? (char)(p[2] | to_lower) : '\0';
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
        return fold && n > 2 && p[1] == '\xC5' && p[2] == '\xBF' ? 3 : 0;
    }
}

/* The alternatives that start with white space and are not followed by a
 * letter: \s*[\r\n]+ | \s+(?!\S) | \s+. Each takes the whole run of white
 * space and then backs off: to the last newline; else, before a \S, by one
 * character, unless that leaves nothing. */
INLINE size_t spaces(unsigned flags, const char *p, size_t n)
{
    size_t i = 0, last = 0, newline = 0, len;
    enum uclass class = UC_SPACE;
    while (i < n && (class = peek(flags, p + i, n - i, &len)) == UC_SPACE) {
        last = i;
        if (is_newline(p[i]))
            newline = i + 1;
        i += len;
    }
    if (flags & NEWLINES && newline)
        return newline;
    bool ends = i == n || (flags & CUT_NUMBERS && class == UC_NUMBER);
    return ends || last == 0 ? i : last;
}

/* ---- Qwen, Llama 3 and Seed-OSS ---- */

INLINE size_t next_word(unsigned flags, int most_digits, const char *p,
                        size_t n)
{
    size_t len, next_len;
    enum uclass class = peek(flags, p, n, &len);
    if (class == UC_LETTER)
        return run_end(flags, p, n, len, UC_LETTER);
    if (class == UC_NUMBER)
        return numbers_end(p, n, len, most_digits);
    if (*p == '\'') {
        size_t k = contraction(true, p, n);
        if (k)
            return k;
    }
    if (len < n && !is_newline(*p)) {
        enum uclass second = peek(flags, p + len, n - len, &next_len);
        if (second == UC_LETTER)
            return run_end(flags, p, n, len + next_len, UC_LETTER);
        if (*p == ' ' && second == UC_OTHER)
            class = UC_OTHER;
    }
    if (class == UC_SPACE)
        return spaces(flags | NEWLINES, p, n);
    size_t i = run_end(flags, p, n, len, UC_OTHER);
    return flags & TRAILING_NEWLINES ? newlines_end(p, n, i) : i;
}

static size_t next_qwen2(const char *p, size_t n)
{
    return next_word(TRAILING_NEWLINES, 1, p, n);
}

static size_t next_qwen35(const char *p, size_t n)
{
    return next_word(TRAILING_NEWLINES | MARKS, 1, p, n);
}

static size_t next_llama3(const char *p, size_t n)
{
    return next_word(TRAILING_NEWLINES, 3, p, n);
}

static size_t next_seed(const char *p, size_t n)
{
    return next_word(0, 1, p, n);
}

/* ---- words that end where the case changes: GPT-4o and Tekken ---- */

/* UC_UPPER, UC_LOWER, or UC_MARK for other letters and marks; 0 if the
 * character at p is none of them. *len: its length. */
INLINE unsigned peek_case(const char *p, size_t n, size_t *len)
{
    unsigned char c = (unsigned char)*p;
    uint32_t cp;
    if (c < 0x80) {
        *len = 1;
        return ascii_class[c] != UC_LETTER ? 0 : c & 0x20 ? UC_LOWER : UC_UPPER;
    }
    *len = utf8_decode(p, n, &cp, NULL);
    if (*len == 0) {
        *len = 1;
        return 0;
    }
    unsigned traits = unicode_traits(cp) & (UC_MARK | UC_UPPER | UC_LOWER);
    return traits || unicode_class(cp) != UC_LETTER ? traits : UC_MARK;
}

/* The end of the word that begins at p[i], i if none does:
 *   [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+ |
 *   [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*
 * If no lower-case letter follows the first class, the first alternative backs
 * off to the last character that is in both classes. Only if there is none does
 * the second alternative match. */
static size_t case_word_end(const char *p, size_t n, size_t i)
{
    size_t len, start = i, end = i; /* end of the first alternative */
    bool lower = false;
    for (unsigned c; i < n && (c = peek_case(p + i, n - i, &len)); i += len) {
        if (c == UC_UPPER && lower)
            break;
        lower = lower || c == UC_LOWER;
        if (c != UC_UPPER)
            end = i + len;
    }
    return end > start ? end : i;
}

INLINE size_t next_case_word(bool contractions, int most_digits, const char *p,
                             size_t n)
{
    size_t len, next_len, i;
    enum uclass class = peek(0, p, n, &len);
    if (class == UC_NUMBER)
        return numbers_end(p, n, len, most_digits);
    /* the optional character in front, unless it is itself of the word */
    size_t start = is_newline(*p) || peek_case(p, n, &len) ? 0 : len;
    i = case_word_end(p, n, start);
    if (i > start && contractions && i < n && p[i] == '\'')
        return i + contraction(true, p + i, n - i);
    if (i > start)
        return i;
    if (*p == ' ' && n > 1 && peek(0, p + 1, n - 1, &next_len) == UC_OTHER)
        class = UC_OTHER;
    if (class == UC_SPACE)
        return spaces(NEWLINES, p, n);
    i = run_end(0, p, n, len, UC_OTHER);
    while (i < n && (is_newline(p[i]) || p[i] == '/'))
        i++;
    return i;
}

static size_t next_gpt4o(const char *p, size_t n)
{
    return next_case_word(true, 3, p, n);
}

static size_t next_tekken(const char *p, size_t n)
{
    return next_case_word(false, 1, p, n);
}

/* ---- GPT-2, and SmolLM, which cuts out single numbers first ---- */

INLINE size_t next_gpt2_word(unsigned flags, const char *p, size_t n)
{
    size_t len, next_len;
    enum uclass class = peek(flags, p, n, &len);
    if (class == UC_NUMBER && flags & CUT_NUMBERS)
        return len;
    if (*p == '\'') {
        size_t k = contraction(false, p, n);
        if (k)
            return k;
    }
    if (*p == ' ' && n > 1) {
        enum uclass second = peek(flags, p + 1, n - 1, &next_len);
        if (second != UC_SPACE &&
            !(second == UC_NUMBER && flags & CUT_NUMBERS)) {
            class = second;
            len += next_len;
        }
    }
    return class == UC_SPACE ? spaces(flags, p, n)
                             : run_end(flags, p, n, len, class);
}

static size_t next_gpt2(const char *p, size_t n)
{
    return next_gpt2_word(0, p, n);
}

static size_t next_smollm(const char *p, size_t n)
{
    return next_gpt2_word(CUT_NUMBERS, p, n);
}

/* ---- DeepSeek ---- */

enum { DEEPSEEK = MARKS | NEWLINES | CUT_NUMBERS | CUT_CJK };

/* [\p{P}\p{S}] */
static bool is_sign(const char *p, size_t n, size_t *len)
{
    uint32_t cp;
    *len = utf8_decode(p, n, &cp, NULL);
    if (*len)
        return unicode_traits(cp) & UC_SIGN;
    *len = 1;
    return true;
}

static inline bool is_ascii_letter(char c)
{
    return (c & 0x80) == 0 && ascii_class[(unsigned char)c] == UC_LETTER;
}

/* The length of what the first two patterns match at p. */
static size_t cut_end(const char *p, size_t n, size_t len)
{
    uint32_t cp;
    size_t i = 0;
    while (i < n && (len = utf8_decode(p + i, n - i, &cp, NULL)) && is_cjk(cp))
        i += len;
    return i ? i : numbers_end(p, n, len, 3);
}

/* The end of the characters from p[i] on at which the last pattern does not
 * match. It matches at letters, marks, signs and white space, and one character
 * before a letter or mark. */
static size_t unmatched_end(const char *p, size_t n, size_t i)
{
    size_t len, next_len;
    for (; i < n; i += len) {
        enum uclass class = peek(DEEPSEEK, p + i, n - i, &len);
        if (class != UC_OTHER || is_sign(p + i, n - i, &len))
            break;
        if (i + len < n &&
            peek(DEEPSEEK, p + i + len, n - i - len, &next_len) == UC_LETTER)
            break;
    }
    return i;
}

static size_t next_deepseek(const char *p, size_t n)
{
    size_t len, next_len, i;
    enum uclass second = UC_NUMBER, class = peek(DEEPSEEK, p, n, &len);
    if (class == UC_NUMBER)
        return cut_end(p, n, len);
    if (class == UC_LETTER)
        return run_end(DEEPSEEK, p, n, len, UC_LETTER);
    bool sign = class == UC_OTHER && is_sign(p, n, &len);
    if (sign && !(*p & 0x80) && n > 1 && is_ascii_letter(p[1])) {
        for (i = 1; i < n && is_ascii_letter(p[i]);)
            i++;
        return i;
    }
    if (len < n)
        second = peek(DEEPSEEK, p + len, n - len, &next_len);
    if (!sign && !is_newline(*p) && second == UC_LETTER)
        return run_end(DEEPSEEK, p, n, len + next_len, UC_LETTER);
    if (*p == ' ' && second == UC_OTHER)
        sign = is_sign(p + 1, n - 1, &next_len);
    if (sign) {
        for (i = len; i < n && peek(DEEPSEEK, p + i, n - i, &len) == UC_OTHER &&
                      is_sign(p + i, n - i, &len);)
            i += len;
        return newlines_end(p, n, i);
    }
    return class == UC_SPACE ? spaces(DEEPSEEK, p, n)
                             : unmatched_end(p, n, len);
}

/* ---- the table ---- */

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES       "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SIGNS        "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define UPPER        "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER        "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define FRONT        "[^\\r\\n\\p{L}\\p{N}]?"
#define GPT2                                                            \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+" \
    "|\\s+(?!\\S)|\\s+"

/* The patterns are from the tokenizer.json of checkpoints. llama.cpp
 * (llama-vocab.cpp) has the same ones, and spells (?i:...) out. */
const struct split_kind splits[N_SPLITS] = {
    [SPLIT_QWEN2] = {"qwen2",
                     {CONTRACTIONS "|" FRONT "\\p{L}+|\\p{N}" SIGNS SPACES},
                     next_qwen2},
    [SPLIT_QWEN35] = {"qwen35",
                      {CONTRACTIONS
                       "|" FRONT "[\\p{L}\\p{M}]+|\\p{N}"
                       "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" SPACES},
                      next_qwen35},
    [SPLIT_LLAMA3] = {"llama3",
                      {CONTRACTIONS "|" FRONT
                                    "\\p{L}+|\\p{N}{1,3}" SIGNS SPACES},
                      next_llama3},
    [SPLIT_GPT4O] = {"gpt-4o",
                     {FRONT UPPER "*" LOWER "+" CONTRACTIONS "?|" FRONT UPPER
                                  "+" LOWER "*" CONTRACTIONS "?|\\p{N}{1,3}"
                                  "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES},
                     next_gpt4o},
    [SPLIT_TEKKEN] = {"tekken",
                      {FRONT UPPER "*" LOWER "+|" FRONT UPPER "+" LOWER
                                   "*|\\p{N}"
                                   "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES},
                      next_tekken},
    [SPLIT_DEEPSEEK] = {"deepseek-v3",
                        {"\\p{N}{1,3}",
                         "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+",
                         "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
                         "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
                         "| ?[\\p{P}\\p{S}]+[\\r\\n]*" SPACES},
                        next_deepseek},
    [SPLIT_SMOLLM] = {"smollm", {"\\p{N}", GPT2}, next_smollm},
    [SPLIT_GPT2] = {"gpt-2", {GPT2}, next_gpt2},
    [SPLIT_SEED] = {"seed-coder",
                    {CONTRACTIONS "|" FRONT "\\p{L}+|\\p{N}{1}"
                                  "| ?[^\\s\\p{L}\\p{N}\\r\\n]+" SPACES},
                    next_seed},
};
