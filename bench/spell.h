/* Spell a JSON document as a constraint writes it: with the members in an order
 * that the automaton admits, and with its spelling of numbers and strings. The
 * automaton is asked for each part. */
#ifndef BENCH_SPELL_H
#define BENCH_SPELL_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "file/json.h"
#include "text/grammar/automaton.h"

/* Members that may be refused before the document is. */
enum { SPELL_TRIES = 500 };

struct spell {
    struct automaton *a;
    struct buf *text;
    uint32_t state; /* after text */
    unsigned tries;
};

/* A text to which spelling can return. */
struct spell_mark {
    size_t len;
    uint32_t state;
};

static struct spell_mark spell_mark(const struct spell *s)
{
    return (struct spell_mark){s->text->len, s->state};
}

/* Go back to a mark. Returns false. */
static bool spell_return(struct spell *s, struct spell_mark m)
{
    s->text->len = m.len;
    s->state = m.state;
    return false;
}

static bool spell_put(struct spell *s, const char *p, size_t n)
{
    uint32_t state = s->state;
    for (size_t i = 0; i < n && state != AUTOMATON_DEAD; i++)
        state = automaton_advance(s->a, state, (unsigned char)p[i]);
    if (state == AUTOMATON_DEAD)
        return false;
    if (buf_append(s->text, p, n))
        exit(1);
    s->state = state;
    return true;
}

/* ---- numbers ---- */

static bool spell_can_end(const struct spell *s)
{
    unsigned char bytes[256];
    automaton_bytes(s->a, s->state, bytes);
    return automaton_accepts(s->a, s->state) || bytes[','] || bytes['}'] ||
           bytes[']'];
}

static bool spell_digits(struct spell *s, const char *p, size_t n)
{
    struct spell_mark m = spell_mark(s);
    return spell_put(s, p, n) && (spell_can_end(s) || spell_return(s, m));
}

/* Write a number without an exponent and without zeros at its end. Returns the
 * length, or 0 if it is too long. */
static size_t spell_plain(const char *p, size_t n, char *out, size_t size)
{
    char digits[400];
    size_t n_digits = 0, i = p[0] == '-', len = 0;
    long point = -1, exponent = 0;
    for (; i < n && p[i] != 'e' && p[i] != 'E'; i++) {
        if (p[i] == '.')
            point = (long)n_digits;
        else if (n_digits == sizeof digits)
            return 0;
        else
            digits[n_digits++] = p[i];
    }
    if (i < n)
        exponent = strtol(p + i + 1, NULL, 10);
    if (exponent > 300 || exponent < -300)
        return 0;
    point = (point < 0 ? (long)n_digits : point) + exponent;
    size_t from = 0;
    while (n_digits && digits[n_digits - 1] == '0' && (long)n_digits > point)
        n_digits--;
    while (from < n_digits && digits[from] == '0')
        from++;
    point -= (long)from;
    if (n_digits - from + (size_t)labs(point) + 4 > size)
        return 0;
    if (p[0] == '-' && from < n_digits)
        out[len++] = '-';
    if (point <= 0 || from == n_digits)
        out[len++] = '0';
    if (from == n_digits)
        return len;
    for (long k = 0; k < point; k++)
        out[len++] =
            (size_t)k + from < n_digits ? digits[(size_t)k + from] : '0';
    if (point < (long)(n_digits - from))
        out[len++] = '.';
    for (long k = point; k < (long)(n_digits - from); k++)
        out[len++] = k < 0 ? '0' : digits[(size_t)k + from];
    return len;
}

static bool spell_number(struct spell *s, const struct json_value *v)
{
    char plain[800];
    if (spell_digits(s, v->str, v->len))
        return true;
    size_t n = spell_plain(v->str, v->len, plain, sizeof plain - 2);
    if (n == 0)
        return false;
    if (spell_digits(s, plain, n))
        return true;
    memcpy(plain + n, ".0", 2);
    return !memchr(plain, '.', n) && spell_digits(s, plain, n + 2);
}

/* ---- strings ---- */

static bool spell_escape(struct spell *s, unsigned char c)
{
    static const char from[] = "\"\\/\b\f\n\r\t", to[] = "\"\\/bfnrt";
    const char *p = c ? strchr(from, c) : NULL;
    char text[8];
    if (p) {
        snprintf(text, sizeof text, "\\%c", to[p - from]);
        if (spell_put(s, text, 2))
            return true;
    }
    snprintf(text, sizeof text, "\\u%04x", c);
    if (spell_put(s, text, 6))
        return true;
    snprintf(text, sizeof text, "\\u%04X", c);
    return spell_put(s, text, 6);
}

static bool spell_string(struct spell *s, const struct json_value *v)
{
    struct spell_mark m = spell_mark(s);
    bool good = spell_put(s, "\"", 1);
    for (size_t i = 0, n; good && i < v->len; i += n) {
        unsigned char c = (unsigned char)v->str[i];
        n = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
        bool plain = c >= 0x20 && c != '"' && c != '\\';
        good = (plain && spell_put(s, v->str + i, n)) ||
               (n == 1 && spell_escape(s, c));
    }
    return (good && spell_put(s, "\"", 1)) || spell_return(s, m);
}

/* ---- arrays and objects ---- */

static bool spell_value(struct spell *s, const struct json_value *v);

static bool spell_array(struct spell *s, const struct json_value *v)
{
    struct spell_mark m = spell_mark(s);
    bool good = spell_put(s, "[", 1);
    for (size_t i = 0; good && i < v->len; i++)
        good = (i == 0 || spell_put(s, ",", 1)) && spell_value(s, &v->items[i]);
    return (good && spell_put(s, "]", 1)) || spell_return(s, m);
}

/* The members of an object while it is spelled. */
struct spell_members {
    const struct json_value *v;
    bool *used; /* [v->len] */
    size_t left;
};

static bool spell_key(struct spell *s, const struct spell_members *x, size_t i)
{
    struct spell_mark m = spell_mark(s);
    return ((x->left == x->v->len || spell_put(s, ",", 1)) &&
            spell_string(s, &x->v->keys[i]) && spell_put(s, ":", 1)) ||
           spell_return(s, m);
}

static bool spell_member(struct spell *s, const struct spell_members *x,
                         size_t i)
{
    struct spell_mark m = spell_mark(s);
    return spell_key(s, x, i) &&
           (spell_value(s, &x->v->items[i]) || spell_return(s, m));
}

/* Whether the name of a member may come next. */
static bool spell_admits(struct spell *s, const struct spell_members *x,
                         size_t i)
{
    struct spell_mark m = spell_mark(s);
    bool good = spell_key(s, x, i);
    spell_return(s, m);
    return good;
}

/* What is left to do with a member that is not written yet. */
enum spell_choice {
    SPELL_NO,    /* it may not come next, or failed */
    SPELL_LATER, /* another member must come first, unless that fails */
    SPELL_OPEN
};

/* Return a member that may come next, but not after member i, which was just
 * written; x->v->len: there is none. */
static size_t spell_earlier(struct spell *s, struct spell_members *x, size_t i,
                            const unsigned char *choice)
{
    size_t k = 0;
    x->left--;
    while (k < x->v->len &&
           (k == i || choice[k] != SPELL_OPEN || spell_admits(s, x, k)))
        k++;
    x->left++;
    return k;
}

static size_t spell_choose(const unsigned char *choice, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (choice[i] == SPELL_OPEN)
            return i;
    for (size_t i = 0; i < n; i++)
        if (choice[i] == SPELL_LATER)
            return i;
    return n;
}

static bool spell_members(struct spell *s, struct spell_members *x);

/* Write all members that are left after member i. */
static bool spell_after(struct spell *s, struct spell_members *x, size_t i)
{
    x->used[i] = true;
    x->left--;
    bool good = spell_members(s, x);
    x->left++;
    x->used[i] = false;
    return good;
}

/* Write one of the members that are left, and then the others. Of two members
 * that may both come next, the one goes first after which the other may still
 * come. */
static bool spell_choices(struct spell *s, struct spell_members *x,
                          unsigned char *choice)
{
    struct spell_mark m = spell_mark(s);
    size_t n = x->v->len, i = spell_choose(choice, n), earlier;
    while (i < n && s->tries) {
        bool good = spell_member(s, x, i);
        if (good && choice[i] == SPELL_OPEN &&
            (earlier = spell_earlier(s, x, i, choice)) < n) {
            choice[i] = SPELL_LATER;
            i = earlier;
        } else {
            if (good && spell_after(s, x, i))
                return true;
            s->tries -= s->tries > 0;
            choice[i] = SPELL_NO;
            i = spell_choose(choice, n);
        }
        spell_return(s, m);
    }
    return false;
}

static bool spell_members(struct spell *s, struct spell_members *x)
{
    if (x->left == 0)
        return spell_put(s, "}", 1);
    unsigned char *choice = calloc(x->v->len, 1);
    if (!choice)
        exit(1);
    for (size_t i = 0; i < x->v->len; i++)
        if (!x->used[i] && spell_admits(s, x, i))
            choice[i] = SPELL_OPEN;
    bool good = spell_choices(s, x, choice);
    free(choice);
    return good;
}

static bool spell_object(struct spell *s, const struct json_value *v)
{
    struct spell_mark m = spell_mark(s);
    struct spell_members x = {.v = v, .left = v->len};
    x.used = calloc(v->len + 1, sizeof *x.used);
    if (!x.used)
        exit(1);
    bool good = spell_put(s, "{", 1) && spell_members(s, &x);
    free(x.used);
    return good || spell_return(s, m);
}

static bool spell_value(struct spell *s, const struct json_value *v)
{
    switch (v->type) {
    case JSON_NULL:
        return spell_put(s, "null", 4);
    case JSON_BOOL:
        return v->boolean ? spell_put(s, "true", 4) : spell_put(s, "false", 5);
    case JSON_NUMBER:
        return spell_number(s, v);
    case JSON_STRING:
        return spell_string(s, v);
    case JSON_ARRAY:
        return spell_array(s, v);
    default:
        return spell_object(s, v);
    }
}

/* Spell a document from the start of an automaton. Returns whether there is
 * such a text. */
static bool spell_document(struct automaton *a, const struct json_value *v,
                           struct buf *text)
{
    struct spell s = {.a = a,
                      .text = text,
                      .state = automaton_start(a),
                      .tries = SPELL_TRIES};
    text->len = 0;
    return spell_value(&s, v) && automaton_accepts(a, s.state);
}

#endif
