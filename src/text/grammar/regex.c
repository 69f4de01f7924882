#include "text/grammar/regex.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/grammar/dfa.h"
#include "text/grammar/grammar_int.h"
#include "text/grammar/dfa_text.h"
#include "text/unicode_property.h"

/* Groups inside groups. The parser recurses once for each. */
enum { MAX_GROUPS = 200 };

/* Steps that an automaton may take, see dfa_place. */
enum { MAX_STEPS = 20000000 };

struct parser {
    struct grammar *g;
    const char *where;
    const char *p, *end; /* text that is not read yet */
    size_t at;           /* characters read so far */
    unsigned depth;
    enum regex_mode mode;
    bool looks; /* it has a part that only an automaton holds */
};

static const struct grammar_range digits[] = {{'0', '9'}};
static const struct grammar_range words[] = {
    {'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
/* White space and line ends of ECMAScript. */
static const struct grammar_range spaces[] = {
    {0x09, 0x0D},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
    {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
    {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
static const struct grammar_range line_ends[] = {
    {'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

#define COUNT(v) (sizeof(v) / sizeof *(v))

/* ---- reading ---- */

static uint32_t fail_at(struct parser *x, size_t at, const char *what)
{
    return x->where ? grammar_fail(x->g, "%s: character %zu: %s", x->where,
                                   at + 1, what)
                    : grammar_fail(x->g, "character %zu: %s", at + 1, what);
}

static uint32_t fail(struct parser *x, const char *what)
{
    return fail_at(x, x->at, what);
}

static bool failed(const struct parser *x)
{
    return x->g->err.code != QWICK_OK;
}

static bool peek(const struct parser *x, char c)
{
    return x->p < x->end && *x->p == c;
}

static bool regex_skip(struct parser *x, char c)
{
    if (!peek(x, c))
        return false;
    x->p++;
    x->at++;
    return true;
}

/* Read a character. The text is not at its end. */
static uint32_t regex_next(struct parser *x)
{
    uint32_t cp = 0;
    size_t n = utf8_decode(x->p, (size_t)(x->end - x->p), &cp, NULL);
    if (n == 0) {
        fail(x, "is not valid UTF-8");
        n = 1;
    }
    x->p += n;
    x->at++;
    return cp;
}

/* The node of one code point. */
static uint32_t literal(struct parser *x, uint32_t cp)
{
    char utf8[4];
    return grammar_bytes(x->g, utf8, utf8_encode(cp, utf8));
}

/* The node of a place in the text. */
static uint32_t assertion(struct parser *x, uint32_t what)
{
    x->looks = true;
    return grammar_node(x->g, NODE_ASSERT, &what, sizeof what, 0);
}

/* ---- classes ---- */

struct property {
    struct parser *x;
    struct grammar_ranges all;
};

static int put_property(void *ctx, struct unicode_range r)
{
    struct property *p = ctx;
    return grammar_ranges_add(p->x->g, &p->all, r.lo, r.hi);
}

/* Read the property of \p or, negated, of \P, and add it to r. */
static void add_property(struct parser *x, struct grammar_ranges *r,
                         bool negated)
{
    struct property p = {.x = x};
    size_t at = x->at - 2; /* the backslash */
    bool braces = regex_skip(x, '{');
    const char *name = x->p;
    while (x->p < x->end && (braces ? *x->p != '}' : x->p == name))
        regex_next(x);
    size_t n = (size_t)(x->p - name);
    if (failed(x))
        return;
    if (n == 0 || (braces && !regex_skip(x, '}')))
        fail_at(x, at, "the property has no name, or no \"}\"");
    else if (unicode_property(name, n, put_property, &p) > 0)
        fail_at(x, at, "no Unicode property has this name");
    struct grammar_range *out = malloc((2 * p.all.n + 4) * sizeof *out);
    if (!out)
        grammar_oom(x->g, p.all.n * sizeof *out);
    size_t m = out && !failed(x)
                   ? ranges_normalise(out, p.all.v, p.all.n, negated)
                   : 0;
    for (size_t i = 0; i < m; i++)
        grammar_ranges_add(x->g, r, out[i].lo, out[i].hi);
    free(out);
    free(p.all.v);
}

/* Add the class of the escape \d, \D … to r. Returns false if c is not the
 * letter of a class. */
static bool add_escape_class(struct parser *x, struct grammar_ranges *r,
                             uint32_t c)
{
    static const struct {
        char letter;
        const struct grammar_range *v;
        size_t n;
    } rows[] = {{'d', digits, COUNT(digits)},
                {'w', words, COUNT(words)},
                {'s', spaces, COUNT(spaces)}};
    struct grammar_range out[2 * COUNT(spaces) + 4];
    if (c == 'p' || c == 'P') {
        add_property(x, r, c == 'P');
        return true;
    }
    for (size_t i = 0; i < COUNT(rows); i++) {
        bool negated = c == (uint32_t)(rows[i].letter - 'a' + 'A');
        if (!negated && c != (uint32_t)rows[i].letter)
            continue;
        size_t n = ranges_normalise(out, rows[i].v, rows[i].n, negated);
        for (size_t k = 0; k < n; k++)
            grammar_ranges_add(x->g, r, out[k].lo, out[k].hi);
        return true;
    }
    return false;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Read exactly n hexadecimal digits; n = 0: as many as there are, up to 6. */
static uint32_t hex(struct parser *x, size_t n)
{
    uint32_t v = 0;
    size_t k = 0;
    while (k < (n ? n : 6) && x->p < x->end && hex_digit(*x->p) >= 0) {
        v = v << 4 | (uint32_t)hex_digit(*x->p);
        k++;
        x->p++;
        x->at++;
    }
    if (k == 0 || (n && k < n))
        fail(x, "expected a hexadecimal digit");
    return v;
}

/* The code point of \uHHHH or \u{H…}; two surrogates make one. */
static uint32_t unicode_escape(struct parser *x)
{
    size_t at = x->at;
    uint32_t v, low;
    if (regex_skip(x, '{')) {
        v = hex(x, 0);
        if (!failed(x) && !regex_skip(x, '}'))
            fail(x, "expected \"}\"");
    } else {
        v = hex(x, 4);
        if (v >= 0xD800 && v < 0xDC00 && regex_skip(x, '\\') &&
            regex_skip(x, 'u')) {
            low = hex(x, 4);
            if (low >= 0xDC00 && low < 0xE000)
                return 0x10000 + ((v - 0xD800) << 10) + (low - 0xDC00);
        }
    }
    if (v > 0x10FFFF || (v >= 0xD800 && v < 0xE000))
        fail_at(x, at, "the escape is not a code point");
    return v;
}

/* The character of an escape whose letter is c, which was just read. in_class:
 * \b is a backspace there. */
static uint32_t escape(struct parser *x, uint32_t c, bool in_class)
{
    static const char letters[] = "tnrfv", values[] = "\t\n\r\f\v";
    const char *found = c < 128 && c ? strchr(letters, (int)c) : NULL;
    size_t at = x->at - 2; /* the backslash */
    if (found)
        return (unsigned char)values[found - letters];
    if (c == '0' && !(x->p < x->end && *x->p >= '0' && *x->p <= '9'))
        return 0;
    if (c == 'x')
        return hex(x, 2);
    if (c == 'u')
        return unicode_escape(x);
    if (c == 'b' && in_class)
        return '\b';
    if (c == 'c' && x->p < x->end &&
        ((*x->p | 32) >= 'a' && (*x->p | 32) <= 'z'))
        return regex_next(x) & 31;
    if (c >= '0' && c <= '9')
        return fail_at(x, at, "back references are not supported");
    if (c == 'k')
        return fail_at(x, at, "back references (\\k) are not supported");
    if (c == 'A' || c == 'z' || c == 'Z' || c == 'G')
        return fail_at(x, at,
                       "the anchors \\A \\z \\Z \\G are not supported; the "
                       "whole text matches anyway");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return fail_at(x, at, "unknown escape");
    return c;
}

/* Read an item of a class. Returns true if it is a class itself, which is then
 * already in r. */
static bool class_item(struct parser *x, struct grammar_ranges *r, uint32_t *cp)
{
    uint32_t c = regex_next(x);
    *cp = c;
    if (c != '\\')
        return false;
    if (x->p == x->end) {
        fail(x, "the expression ends after \"\\\"");
        return true;
    }
    c = regex_next(x);
    if (add_escape_class(x, r, c))
        return true;
    *cp = escape(x, c, true);
    return false;
}

/* The class whose "[" was just read. */
static uint32_t parse_class(struct parser *x)
{
    struct grammar_ranges r = {0};
    size_t open = x->at - 1;
    bool negated = regex_skip(x, '^');
    uint32_t node = GRAMMAR_NOTHING, lo, hi;
    if (!negated && peek(x, ']'))
        return fail_at(x, open, "the class is empty; \"\\]\" is a bracket");
    while (x->p < x->end && !peek(x, ']') && !failed(x)) {
        size_t at = x->at;
        if (x->end - x->p > 1 && *x->p == '[' &&
            (x->p[1] == ':' || x->p[1] == '.' || x->p[1] == '=')) {
            fail(x, "POSIX classes such as [:alpha:] are not supported");
            break;
        }
        if (class_item(x, &r, &lo))
            continue;
        if (!(x->end - x->p > 1 && *x->p == '-' && x->p[1] != ']')) {
            grammar_ranges_add(x->g, &r, lo, lo);
            continue;
        }
        regex_skip(x, '-');
        if (class_item(x, &r, &hi)) { /* "-" is a character then */
            grammar_ranges_add(x->g, &r, '-', '-');
            hi = lo;
        }
        if (hi < lo)
            fail_at(x, at, "the range goes backwards");
        grammar_ranges_add(x->g, &r, lo, hi);
    }
    if (!failed(x) && !regex_skip(x, ']'))
        fail_at(x, open, "the class has no \"]\"");
    if (!failed(x))
        node = grammar_class(x->g, r.v, r.n, negated);
    free(r.v);
    return node;
}

/* ---- parts ---- */

static uint32_t parse_alternatives(struct parser *x, bool outermost);

/* What a group is for. */
enum group { GROUP_PLAIN, GROUP_AHEAD, GROUP_NOT_AHEAD };

/* A lookahead. */
static uint32_t look(struct parser *x, uint32_t node, bool negative)
{
    const uint32_t payload[] = {node, negative};
    if (failed(x))
        return GRAMMAR_NOTHING;
    if (node == GRAMMAR_NOTHING)
        return negative ? GRAMMAR_EMPTY : GRAMMAR_NOTHING;
    x->looks = true;
    return grammar_node(x->g, NODE_LOOK, payload, sizeof payload, 1);
}

/* Read what follows the "(?" of a group. */
static void group_kind(struct parser *x, size_t open, enum group *kind)
{
    *kind = GROUP_PLAIN;
    if (regex_skip(x, '=')) {
        *kind = GROUP_AHEAD;
    } else if (regex_skip(x, '!')) {
        *kind = GROUP_NOT_AHEAD;
    } else if (regex_skip(x, '<')) {
        if (peek(x, '=') || peek(x, '!')) {
            fail_at(x, open, "lookbehind is not supported");
            return;
        }
        while (x->p < x->end && !peek(x, '>'))
            regex_next(x);
        if (!regex_skip(x, '>'))
            fail_at(x, open, "the name of the group has no \">\"");
    } else if (!regex_skip(x, ':')) {
        fail_at(x, open, "this kind of group is not supported");
    }
}

/* The group whose "(" was just read. */
static uint32_t parse_group(struct parser *x)
{
    size_t open = x->at - 1;
    enum group kind = GROUP_PLAIN;
    if (regex_skip(x, '?'))
        group_kind(x, open, &kind);
    if (failed(x))
        return GRAMMAR_NOTHING;
    if (x->depth == MAX_GROUPS)
        return fail_at(x, open, "groups are nested too deeply");
    x->depth++;
    uint32_t node = parse_alternatives(x, false);
    x->depth--;
    if (!failed(x) && !regex_skip(x, ')'))
        return fail_at(x, open, "the group has no \")\"");
    return kind == GROUP_PLAIN ? node : look(x, node, kind == GROUP_NOT_AHEAD);
}

/* An escape, whose "\" was just read. */
static uint32_t parse_escape(struct parser *x)
{
    struct grammar_ranges r = {0};
    uint32_t node = GRAMMAR_NOTHING, c;
    if (x->p == x->end)
        return fail(x, "the expression ends after \"\\\"");
    c = regex_next(x);
    if (c == 'b' || c == 'B')
        return assertion(x, c == 'b' ? ASSERT_WORD : ASSERT_NO_WORD);
    if (add_escape_class(x, &r, c)) {
        if (!failed(x))
            node = grammar_class(x->g, r.v, r.n, false);
    } else {
        c = escape(x, c, false);
        if (!failed(x))
            node = literal(x, c);
    }
    free(r.v);
    return node;
}

static uint32_t parse_atom(struct parser *x)
{
    size_t at = x->at;
    uint32_t c = regex_next(x);
    switch (c) {
    case '(':
        return parse_group(x);
    case '[':
        return parse_class(x);
    case '.':
        return grammar_class(x->g, line_ends, COUNT(line_ends), true);
    case '\\':
        return parse_escape(x);
    case '*':
    case '+':
    case '?':
        return fail_at(x, at, "there is nothing to repeat");
    case '^':
        return assertion(x, ASSERT_START);
    case '$':
        return assertion(x, ASSERT_END);
    default:
        return literal(x, c);
    }
}

/* Read a number of a repetition. Returns false if there is none. */
static bool number(struct parser *x, uint32_t *v)
{
    const char *from = x->p;
    int found = grammar_read_count(&x->p, x->end, v);
    x->at += (size_t)(x->p - from);
    if (found < 0)
        fail(x, "the number of repetitions is too large");
    return found != 0;
}

/* Read {m}, {m,} or {m,n}. Returns false, with nothing read, if the text is
 * something else: a lone brace is a character. */
static bool braces(struct parser *x, uint32_t *min, uint32_t *max)
{
    const char *p = x->p;
    size_t at = x->at;
    if (!regex_skip(x, '{'))
        return false;
    if (number(x, min)) {
        *max = *min;
        if (regex_skip(x, ',') && !number(x, max))
            *max = GRAMMAR_UNBOUNDED;
        if (failed(x))
            return true;
        if (regex_skip(x, '}')) {
            if (*max < *min)
                fail_at(x, at,
                        "the repetition has a maximum below its minimum");
            return true;
        }
    }
    x->p = p;
    x->at = at;
    return false;
}

static bool repetition(struct parser *x, uint32_t *min, uint32_t *max)
{
    *min = 0;
    *max = GRAMMAR_UNBOUNDED;
    if (regex_skip(x, '*'))
        return true;
    if (regex_skip(x, '+')) {
        *min = 1;
        return true;
    }
    if (regex_skip(x, '?')) {
        *max = 1;
        return true;
    }
    return braces(x, min, max);
}

/* A part with its repetition. */
static uint32_t parse_part(struct parser *x)
{
    uint32_t node = parse_atom(x), min, max;
    if (failed(x) || !repetition(x, &min, &max))
        return node;
    node = grammar_repeat(x->g, node, min, max);
    regex_skip(x, '?'); /* lazy: the language is the same */
    if (peek(x, '+'))
        return fail(x, "possessive repetitions are not supported");
    if (peek(x, '*') || peek(x, '?'))
        return fail(x, "a repetition cannot be repeated; use a group");
    return node;
}

/* ---- sequences and alternatives ---- */

/* Any text, for the parts around a search. */
static uint32_t anything(struct parser *x)
{
    return grammar_repeat(x->g, grammar_class(x->g, NULL, 0, true), 0,
                          GRAMMAR_UNBOUNDED);
}

static bool at_end(const struct parser *x)
{
    return x->p == x->end || *x->p == '|' || *x->p == ')';
}

/* One alternative, up to "|", ")" or the end. */
static uint32_t parse_sequence(struct parser *x, bool outermost)
{
    struct grammar_list l = {0};
    bool anchored = outermost && regex_skip(x, '^');
    uint32_t node = GRAMMAR_NOTHING;
    if (outermost && !anchored && x->mode == REGEX_SEARCH)
        grammar_list_add(x->g, &l, anything(x));
    anchored = false;
    while (!failed(x) && !at_end(x)) {
        const char *last = x->p + 1;
        if (outermost && *x->p == '$' && (last == x->end || *last == '|')) {
            anchored = regex_skip(x, '$');
            break;
        }
        if (grammar_list_add(x->g, &l, parse_part(x)))
            break;
    }
    if (!failed(x) && outermost && !anchored && x->mode == REGEX_SEARCH)
        grammar_list_add(x->g, &l, anything(x));
    if (!failed(x))
        node = grammar_seq(x->g, l.v, l.n);
    free(l.v);
    return node;
}

static uint32_t parse_alternatives(struct parser *x, bool outermost)
{
    struct grammar_list l = {0};
    uint32_t node = GRAMMAR_NOTHING;
    do {
        if (grammar_list_add(x->g, &l, parse_sequence(x, outermost)))
            break;
    } while (!failed(x) && regex_skip(x, '|'));
    if (!failed(x))
        node = grammar_alt(x->g, l.v, l.n);
    free(l.v);
    return node;
}

uint32_t regex_parse(struct grammar *g, const char *where, const char *re,
                     size_t n, enum regex_mode mode, bool *looks)
{
    struct parser x = {
        .g = g, .where = where, .p = re, .end = re + n, .mode = mode};
    if (failed(&x))
        return GRAMMAR_NOTHING;
    uint32_t node = parse_alternatives(&x, true);
    if (!failed(&x) && x.p < x.end)
        return fail(&x, "\")\" without \"(\"");
    *looks = x.looks;
    return failed(&x) ? GRAMMAR_NOTHING : node;
}

uint32_t regex_compile(struct grammar *g, const char *where, const char *re,
                       size_t n, enum regex_mode mode)
{
    struct arena mem = {0};
    struct qwick_err e = {0};
    size_t steps = MAX_STEPS;
    const struct dfa_place at = {&mem, &steps, &e};
    bool looks = false;
    uint32_t node = regex_parse(g, where, re, n, mode, &looks);
    if (!looks || g->err.code)
        return node;
    const struct dfa *p = dfa_of_node(g, node, &at);
    if (p)
        node = text_body(g, p, TEXT_ESCAPE_NONE, TEXT_ANY_LENGTH);
    else if (e.code == QWICK_ERR_MEMORY)
        node = grammar_oom(g, 0);
    else
        node = grammar_fail(g, "%s%s%s", where ? where : "the expression",
                            where ? ": " : " ", e.msg);
    arena_free(&mem);
    return node;
}
