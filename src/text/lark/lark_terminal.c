/* Strings and regular expressions of Lark's grammars, and the terminals that
 * can be imported. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "text/lark/lark_int.h"
#include "text/grammar/regex.h"

/* ---- strings ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* Read the n hexadecimal digits of an escape. */
static uint32_t read_hex(struct lark *x, const char *at, int n)
{
    uint32_t v = 0;
    for (int i = 0; i < n; i++, x->p++) {
        int digit = x->p < x->end ? hex_digit(*x->p) : -1;
        if (digit < 0)
            return lark_fail(x, at, "the escape needs %d hexadecimal digits",
                             n);
        v = v << 4 | (uint32_t)digit;
    }
    if (v > 0x10FFFF || (v >= 0xD800 && v < 0xE000))
        lark_fail(x, at, "the escape is not a code point");
    return v;
}

/* Read a character of a string. */
static uint32_t read_character(struct lark *x)
{
    static const char plain[] = "\\\"'/", names[] = "nrtfvb0",
                      meant[] = "\n\r\t\f\v\b";
    const char *at = x->p, *s;
    uint32_t cp = 0;
    x->p += utf8_decode(x->p, (size_t)(x->end - x->p), &cp, NULL);
    if (cp != '\\' || x->p == x->end)
        return cp;
    char c = *x->p++;
    if (c && strchr(plain, c))
        return (unsigned char)c;
    if (c && (s = strchr(names, c)) != NULL)
        return (unsigned char)meant[s - names];
    if (c == 'x' || c == 'u' || c == 'U')
        return read_hex(x, at, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    return lark_fail(x, at, "unknown escape");
}

/* Read a string into b. */
static int read_string(struct lark *x, struct buf *b)
{
    const char *open = x->p++;
    while (x->p < x->end && *x->p != '"' && *x->p != '\n') {
        char utf8[4];
        uint32_t cp = read_character(x);
        if (x->g->err.code)
            return -1;
        if (buf_append(b, utf8, utf8_encode(cp, utf8))) {
            grammar_oom(x->g, b->len);
            return -1;
        }
    }
    if (x->p == x->end || *x->p == '\n') {
        lark_fail(x, open, "the string has no closing quote");
        return -1;
    }
    x->p++;
    return 0;
}

/* The text in upper and lower case, ASCII letters only. */
static uint32_t any_case(struct grammar *g, const struct buf *b)
{
    struct grammar_list l = {0};
    uint32_t node = GRAMMAR_NOTHING;
    for (size_t i = 0; i < b->len; i++) {
        char c = b->data[i];
        char both[2] = {c, (char)(c ^ 32)};
        bool letter = (c | 32) >= 'a' && (c | 32) <= 'z';
        uint32_t part = grammar_bytes(g, both, 1);
        if (letter)
            part = grammar_alt2(g, part, grammar_bytes(g, both + 1, 1));
        if (grammar_list_add(g, &l, part))
            break;
    }
    if (!g->err.code)
        node = grammar_seq(g, l.v, l.n);
    free(l.v);
    return node;
}

/* The characters from a to b, each a string of one character. */
static uint32_t read_range(struct lark *x, const char *at, const struct buf *a)
{
    struct buf b = {0};
    struct grammar_range r = {0, 0};
    uint32_t node = GRAMMAR_NOTHING;
    if (x->p == x->end || *x->p != '"') {
        lark_fail(x, x->p, "expected a string after \"..\"");
    } else if (!read_string(x, &b)) {
        if (!a->len || utf8_decode(a->data, a->len, &r.lo, NULL) != a->len ||
            !b.len || utf8_decode(b.data, b.len, &r.hi, NULL) != b.len)
            lark_fail(x, at, "a range is between two characters");
        else if (r.hi < r.lo)
            lark_fail(x, at, "the range goes backwards");
        else
            node = grammar_class(x->g, &r, 1, false);
    }
    buf_free(&b);
    return node;
}

uint32_t lark_string(struct lark *x)
{
    struct buf b = {0};
    const char *at = x->p;
    uint32_t node = GRAMMAR_NOTHING;
    if (!read_string(x, &b)) {
        if (x->p < x->end && *x->p == 'i') {
            x->p++;
            node = any_case(x->g, &b);
        } else if (x->end - x->p >= 2 && x->p[0] == '.' && x->p[1] == '.') {
            x->p += 2;
            node = read_range(x, at, &b);
        } else {
            node = grammar_bytes(x->g, b.data, b.len);
        }
    }
    buf_free(&b);
    return node;
}

/* ---- regular expressions ---- */

/* Flags, as bits. */
enum { ANY_CASE = 1, DOT_ALL = 2 };

static unsigned read_flags(struct lark *x)
{
    unsigned flags = 0;
    for (; x->p < x->end && *x->p >= 'a' && *x->p <= 'z'; x->p++) {
        if (*x->p == 'i')
            flags |= ANY_CASE;
        else if (*x->p == 's')
            flags |= DOT_ALL;
        else if (*x->p != 'u')
            lark_fail(x, x->p,
                      "the flag \"%c\" of a regular expression is not "
                      "supported",
                      *x->p);
    }
    return flags;
}

static bool is_letter(unsigned char c)
{
    return (c | 32) >= 'a' && (c | 32) <= 'z';
}

/* Copy a part of a class, a character or a range at p, and the other case of
 * its ASCII letters. Returns the end of the part; NULL: memory ran out. */
static const char *copy_both_cases(struct buf *out, const char *p,
                                   const char *end)
{
    bool is_range = end - p > 2 && p[1] == '-' && p[2] != ']' && p[2] != '\\';
    unsigned lo = (unsigned char)p[0], hi = lo;
    size_t n = is_range ? 3 : 1;
    if (is_range)
        hi = (unsigned char)p[2];
    while (p + n < end && (p[n] & 0xC0) == 0x80)
        n++; /* the rest of a character beyond ASCII */
    if (buf_append(out, p, n))
        return NULL;
    for (unsigned c = lo; c <= hi && c < 128; c++)
        if (is_letter((unsigned char)c) && buf_putc(out, (char)(c ^ 32)))
            return NULL;
    return p + n;
}

/* The length of what is copied as it is at p: an escape, or the start of a
 * group; 0: nothing. */
static size_t verbatim(const char *p, const char *end, bool in_class)
{
    const char *close;
    if (*p == '\\' && end - p > 1)
        return 2;
    if (in_class || end - p < 4 || memcmp(p, "(?<", 3) != 0 || p[3] == '=' ||
        p[3] == '!')
        return 0;
    close = memchr(p, '>', (size_t)(end - p));
    return close ? (size_t)(close - p) : 3;
}

/* Copy the expression. With DOT_ALL, "." becomes a class of all characters,
 * with ANY_CASE, a letter becomes one of both cases. Returns -1 if memory ran
 * out. */
static int copy_regex(struct buf *out, const char *p, const char *end,
                      unsigned flags)
{
    bool in_class = false, any_case = flags & ANY_CASE;
    while (p < end) {
        size_t n = verbatim(p, end, in_class);
        if (n) {
            if (buf_append(out, p, n))
                return -1;
        } else if (in_class && any_case && *p != ']') {
            const char *rest = copy_both_cases(out, p, end);
            if (!rest)
                return -1;
            n = (size_t)(rest - p);
        } else if (*p == '.' && !in_class && flags & DOT_ALL) {
            n = 1;
            if (buf_puts(out, "[\\0-\\u{10FFFF}]"))
                return -1;
        } else if (any_case && is_letter((unsigned char)*p)) {
            n = 1;
            if (buf_printf(out, "[%c%c]", *p, *p ^ 32))
                return -1;
        } else {
            n = *p == '[' && !in_class && end - p > 1 && p[1] == '^' ? 2 : 1;
            in_class = in_class ? *p != ']' : *p == '[';
            if (buf_append(out, p, n))
                return -1;
        }
        p += n;
    }
    return 0;
}

/* Whether an expression has an escape that stands for letters of one case. */
static bool has_case_escape(const char *p, const char *end)
{
    for (; p < end; p++)
        if (*p == '\\' && ++p < end && strchr("xucpP", *p))
            return true;
    return false;
}

uint32_t lark_regex(struct lark *x)
{
    const char *at = x->p++, *from = x->p;
    struct buf re = {0};
    uint32_t node = GRAMMAR_NOTHING;
    while (x->p < x->end && *x->p != '/' && *x->p != '\n')
        x->p += *x->p == '\\' && x->end - x->p > 1 ? 2 : 1;
    const char *end = x->p;
    if (x->p >= x->end || *x->p != '/')
        return lark_fail(x, at, "the regular expression has no closing \"/\"");
    x->p++;
    unsigned flags = read_flags(x);
    if (x->g->err.code)
        return GRAMMAR_NOTHING;
    if (flags & ANY_CASE && has_case_escape(from, end))
        return lark_fail(x, at,
                         "the escapes \\x \\u \\c \\p \\P are not supported "
                         "with the flag \"i\"");
    if (copy_regex(&re, from, end, flags) || buf_reserve(&re, 0)) {
        grammar_oom(x->g, re.len);
    } else {
        struct qwick_err where;
        struct lark_place place = lark_place(x, at);
        err_usage(&where, "line %zu, column %zu", place.line, place.column);
        node = regex_compile(x->g, where.msg, re.data, re.len, REGEX_WHOLE);
    }
    buf_free(&re);
    return node;
}

/* ---- terminals of "common" ---- */

static const struct {
    const char *name, *expression;
} common[] = {
    {"DIGIT", "\"0\"..\"9\""},
    {"HEXDIGIT", "\"a\"..\"f\" | \"A\"..\"F\" | DIGIT"},
    {"INT", "DIGIT+"},
    {"SIGNED_INT", "[\"+\" | \"-\"] INT"},
    {"DECIMAL", "INT \".\" INT? | \".\" INT"},
    {"EXPONENT", "\"e\"i SIGNED_INT"},
    {"FLOAT", "INT EXPONENT | DECIMAL EXPONENT?"},
    {"SIGNED_FLOAT", "[\"+\" | \"-\"] FLOAT"},
    {"NUMBER", "FLOAT | INT"},
    {"SIGNED_NUMBER", "[\"+\" | \"-\"] NUMBER"},
    {"ESCAPED_STRING", "\"\\\"\" /([^\"\\\\\\n]|\\\\[^\\n])*/ \"\\\"\""},
    {"LCASE_LETTER", "\"a\"..\"z\""},
    {"UCASE_LETTER", "\"A\"..\"Z\""},
    {"LETTER", "UCASE_LETTER | LCASE_LETTER"},
    {"WORD", "LETTER+"},
    {"CNAME", "(\"_\" | LETTER) (\"_\" | LETTER | DIGIT)*"},
    {"WS_INLINE", "(\" \" | \"\\t\")+"},
    {"WS", "/[ \\t\\f\\r\\n]/+"},
    {"CR", "\"\\r\""},
    {"LF", "\"\\n\""},
    {"NEWLINE", "(CR? LF)+"},
    {"SH_COMMENT", "/#[^\\n]*/"},
    {"CPP_COMMENT", "/\\/\\/[^\\n]*/"},
    {"C_COMMENT", "/\\/\\*([^*]|\\*+[^*\\/])*\\*+\\//"},
    {"SQL_COMMENT", "/--[^\\n]*/"},
};

enum { N_COMMON = sizeof common / sizeof *common };

uint32_t lark_common(struct lark *x, const char *name, size_t n)
{
    struct buf full = {0};
    struct grammar *g = x->g;
    size_t i = 0;
    while (i < N_COMMON && (strlen(common[i].name) != n ||
                            memcmp(common[i].name, name, n) != 0))
        i++;
    if (i == N_COMMON) {
        lark_fail(x, name, "\"common\" has no terminal \"%s\"",
                  ERR_SHOW(name, n));
        return 0;
    }
    if (buf_printf(&full, "common.%s", common[i].name)) {
        grammar_oom(g, n);
        return 0;
    }
    uint32_t rule = grammar_rule(g, full.data, full.len);
    if (!g->err.code && !grammar_is_defined(g, rule)) {
        const char *text = common[i].expression;
        struct lark inner = {.g = g,
                             .text = text,
                             .p = text,
                             .end = text + strlen(text),
                             .in_terminal = true,
                             .module = full.data};
        grammar_define(g, rule, lark_expression(&inner, GRAMMAR_NOTHING));
    }
    buf_free(&full);
    return rule;
}
