#include "text/grammar/gbnf.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/grammar/grammar_int.h"

/* Groups inside groups. The parser recurses once for each. */
enum { MAX_GROUPS = 200 };

struct parser {
    struct grammar *g;
    const char *p, *end; /* text that is not read yet */
    size_t line;
    unsigned depth;
};

/* ---- reading ---- */

static uint32_t fail(struct parser *x, const char *what)
{
    return grammar_fail(x->g, "line %zu: %s", x->line, what);
}

static bool failed(const struct parser *x)
{
    return x->g->err.code != QWICK_OK;
}

static bool peek(const struct parser *x, char c)
{
    return x->p < x->end && *x->p == c;
}

static bool gbnf_skip(struct parser *x, char c)
{
    if (!peek(x, c))
        return false;
    x->p++;
    return true;
}

/* Skip blanks and comments; with `lines`, also line ends. */
static void skip_space(struct parser *x, bool lines)
{
    while (x->p < x->end) {
        char c = *x->p;
        if (c == '#')
            while (x->p < x->end && *x->p != '\n')
                x->p++;
        else if (c == ' ' || c == '\t' || c == '\r')
            x->p++;
        else if (c == '\n' && lines) {
            x->p++;
            x->line++;
        } else
            return;
    }
}

static bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* Read the name of a rule. Returns its length; 0: there is none. */
static size_t name(struct parser *x, const char **from)
{
    *from = x->p;
    while (x->p < x->end && name_char(*x->p))
        x->p++;
    return (size_t)(x->p - *from);
}

/* ---- characters ---- */

static uint32_t hex(struct parser *x, size_t n)
{
    uint32_t v = 0;
    for (size_t i = 0; i < n; i++) {
        char c = x->p < x->end ? *x->p : 0;
        if (c >= '0' && c <= '9')
            v = v << 4 | (uint32_t)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            v = v << 4 | (uint32_t)((c | 32) - 'a' + 10);
        else
            return fail(x, "expected a hexadecimal digit");
        x->p++;
    }
    if (v > 0x10FFFF || (v >= 0xD800 && v < 0xE000))
        fail(x, "the escape is not a code point");
    return v;
}

/* Read a character of a literal or a class, up to its end at `close`. */
static uint32_t character(struct parser *x, char close)
{
    uint32_t cp = 0;
    size_t n;
    if (x->p == x->end || *x->p == '\n')
        return fail(x, close == '"' ? "the literal has no closing quote"
                                    : "the class has no \"]\"");
    n = utf8_decode(x->p, (size_t)(x->end - x->p), &cp, NULL);
    if (n == 0)
        return fail(x, "is not valid UTF-8");
    x->p += n;
    if (cp != '\\')
        return cp;
    char c = x->p < x->end ? *x->p++ : 0;
    switch (c) {
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'x':
        return hex(x, 2);
    case 'u':
        return hex(x, 4);
    case 'U':
        return hex(x, 8);
    case '\\':
    case '"':
    case '[':
    case ']':
    case '-':
    case '^':
        return (unsigned char)c;
    default:
        return fail(x, "unknown escape");
    }
}

/* The literal whose quote was just read. */
static uint32_t literal(struct parser *x)
{
    struct buf b = {0};
    uint32_t node = GRAMMAR_NOTHING;
    while (!failed(x) && !gbnf_skip(x, '"')) {
        char utf8[4];
        uint32_t cp = character(x, '"');
        if (!failed(x) && buf_append(&b, utf8, utf8_encode(cp, utf8)))
            grammar_oom(x->g, b.len);
    }
    if (!failed(x))
        node = grammar_bytes(x->g, b.data, b.len);
    buf_free(&b);
    return node;
}

/* The class whose "[" was just read. */
static uint32_t class(struct parser *x)
{
    struct grammar_ranges r = {0};
    bool negated = gbnf_skip(x, '^');
    uint32_t node = GRAMMAR_NOTHING;
    while (!failed(x) && !gbnf_skip(x, ']')) {
        uint32_t lo = character(x, ']'), hi = lo;
        if (x->end - x->p > 1 && *x->p == '-' && x->p[1] != ']') {
            x->p++;
            hi = character(x, ']');
        }
        if (failed(x))
            break;
        if (hi < lo)
            fail(x, "the range goes backwards");
        else
            grammar_ranges_add(x->g, &r, lo, hi);
    }
    if (!failed(x))
        node = grammar_class(x->g, r.v, r.n, negated);
    free(r.v);
    return node;
}

/* ---- items ---- */

static uint32_t alternatives(struct parser *x);

static uint32_t group(struct parser *x)
{
    size_t line = x->line;
    if (x->depth == MAX_GROUPS)
        return fail(x, "groups are nested too deeply");
    x->depth++;
    skip_space(x, true);
    uint32_t node = alternatives(x);
    x->depth--;
    if (!failed(x) && !gbnf_skip(x, ')'))
        return grammar_fail(x->g, "line %zu: the group has no \")\"", line);
    return node;
}

/* A token: "<[ID]>" or its text, which begins with "<"; "!" before it: another
 * one. */
static uint32_t token(struct parser *x)
{
    bool negated = gbnf_skip(x, '!');
    const char *from = x->p;
    char at[32];
    if (!peek(x, '<'))
        return fail(x, "expected a token after \"!\"");
    while (x->p < x->end && *x->p != '>' && *x->p != '\n')
        x->p++;
    if (!gbnf_skip(x, '>'))
        return fail(x, "the token has no \">\"");
    snprintf(at, sizeof at, "line %zu: ", x->line);
    return grammar_token(x->g, at, from, (size_t)(x->p - from), negated);
}

/* Read an item without its repetition. *is_item: false if there is none. */
static uint32_t item(struct parser *x, bool *is_item)
{
    const char *from;
    size_t n;
    *is_item = true;
    if (gbnf_skip(x, '"'))
        return literal(x);
    if (gbnf_skip(x, '['))
        return class(x);
    if (gbnf_skip(x, '('))
        return group(x);
    if (gbnf_skip(x, '.'))
        return grammar_class(x->g, NULL, 0, true);
    if (peek(x, '<') || peek(x, '!'))
        return token(x);
    if ((n = name(x, &from)) > 0)
        return grammar_ref(x->g, grammar_rule(x->g, from, n));
    *is_item = false;
    return GRAMMAR_NOTHING;
}

/* Read a number. Returns false if there is none. */
static bool number(struct parser *x, uint32_t *v)
{
    int found = grammar_read_count(&x->p, x->end, v);
    if (found < 0)
        fail(x, "the number of repetitions is too large");
    return found != 0;
}

/* The inside of braces, whose "{" was just read. */
static void braces(struct parser *x, uint32_t *min, uint32_t *max)
{
    skip_space(x, false);
    if (!number(x, min))
        fail(x, "expected a number");
    skip_space(x, false);
    *max = *min;
    if (gbnf_skip(x, ',')) {
        skip_space(x, false);
        if (!number(x, max))
            *max = GRAMMAR_UNBOUNDED;
        skip_space(x, false);
    }
    if (!failed(x) && !gbnf_skip(x, '}'))
        fail(x, "expected \"}\"");
    else if (!failed(x) && *max < *min)
        fail(x, "the repetition has a maximum below its minimum");
}

/* Read the repetitions after an item. */
static uint32_t read_repeats(struct parser *x, uint32_t node)
{
    while (!failed(x)) {
        uint32_t min = 0, max = GRAMMAR_UNBOUNDED;
        if (gbnf_skip(x, '+'))
            min = 1;
        else if (gbnf_skip(x, '?'))
            max = 1;
        else if (gbnf_skip(x, '{'))
            braces(x, &min, &max);
        else if (!gbnf_skip(x, '*'))
            break;
        if (!failed(x))
            node = grammar_repeat(x->g, node, min, max);
        skip_space(x, x->depth > 0);
    }
    return node;
}

static uint32_t sequence(struct parser *x)
{
    struct grammar_list l = {0};
    uint32_t node = GRAMMAR_NOTHING;
    bool more = true;
    while (!failed(x)) {
        uint32_t part = item(x, &more);
        if (!more || failed(x))
            break;
        skip_space(x, x->depth > 0);
        if (grammar_list_add(x->g, &l, read_repeats(x, part)))
            break;
    }
    if (!failed(x))
        node = grammar_seq(x->g, l.v, l.n);
    free(l.v);
    return node;
}

static uint32_t alternatives(struct parser *x)
{
    struct grammar_list l = {0};
    uint32_t node = GRAMMAR_NOTHING;
    do {
        if (l.n)
            skip_space(x, true);
        if (grammar_list_add(x->g, &l, sequence(x)))
            break;
    } while (!failed(x) && gbnf_skip(x, '|'));
    if (!failed(x))
        node = grammar_alt(x->g, l.v, l.n);
    free(l.v);
    return node;
}

/* ---- rules ---- */

static void rule(struct parser *x)
{
    const char *from;
    size_t n = name(x, &from), line = x->line;
    if (n == 0) {
        fail(x, "expected the name of a rule");
        return;
    }
    skip_space(x, false);
    if (x->end - x->p < 3 || memcmp(x->p, "::=", 3) != 0) {
        fail(x, "expected \"::=\" after the name of a rule");
        return;
    }
    x->p += 3;
    skip_space(x, true);
    uint32_t number_of = grammar_rule(x->g, from, n);
    uint32_t node = alternatives(x);
    if (!failed(x) && x->p < x->end && *x->p != '\n')
        fail(x, peek(x, ')') ? "\")\" without \"(\""
                             : "expected an item or the end of the line");
    if (failed(x))
        return;
    if (grammar_is_defined(x->g, number_of))
        grammar_fail(x->g, "line %zu: rule \"%s\" is defined twice", line,
                     ERR_SHOW(from, n));
    else
        grammar_define(x->g, number_of, node);
}

uint32_t gbnf_compile(struct grammar *g, const char *text, size_t n)
{
    struct parser x = {.g = g, .p = text, .end = text + n, .line = 1};
    for (skip_space(&x, true); !failed(&x) && x.p < x.end; skip_space(&x, true))
        rule(&x);
    uint32_t root = grammar_rule(g, "root", 4);
    if (!failed(&x) && !grammar_is_defined(g, root))
        grammar_fail(g, "has no rule \"root\"");
    return root;
}
