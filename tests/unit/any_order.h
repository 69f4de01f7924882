/* Whether an automaton admits a document whose members may come in any order.
 * Validators see a document as a value; a grammar may write its members in one
 * order only, and numbers in one spelling. So the search tries, at each place
 * of an object, the members whose text leads on, and goes back where that ends
 * nowhere. */
#ifndef TEST_ANY_ORDER_H
#define TEST_ANY_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "file/json.h"
#include "text/grammar/automaton.h"

enum {
    ORDER_STEPS = 20000000, /* bytes of one search */
    ORDER_DEPTH = 40000,    /* values of a document */
    ORDER_FAILED = 1 << 18, /* places that are remembered as failed */
    ORDER_DIGITS = 400,     /* of a number without its exponent */
    ORDER_TAIL = 80         /* bytes that show where a search ended */
};

/* An array or object around the current value. */
struct order_frame {
    const struct order_frame *up;
    const struct json_value *v;
    size_t n_done;   /* items or members before the current one */
    bool *used;      /* [v->len] members that are written */
    uint64_t path;   /* a hash of what is written, without its order */
    uint32_t at;     /* the state before the current member */
    bool *came_back; /* set when a member led back to `at` */
};

struct order_search {
    struct automaton *a;
    struct buf text; /* of the current path */
    struct buf best; /* the end of the longest text that was admitted */
    size_t longest;  /* its length */
    size_t steps, depth;
    uint64_t *failed; /* [ORDER_FAILED] hashes of places; 0: free */
    size_t n_failed;
    bool gave_up;
};

static bool order_value(struct order_search *s, const struct json_value *v,
                        uint32_t state, const struct order_frame *up);

/* Append bytes. Returns the state after them, or AUTOMATON_DEAD. */
static uint32_t order_write(struct order_search *s, uint32_t state,
                            const char *p, size_t n)
{
    for (size_t i = 0; i < n && state != AUTOMATON_DEAD; i++) {
        state = automaton_advance(s->a, state, (unsigned char)p[i]);
        if (state != AUTOMATON_DEAD && buf_putc(&s->text, p[i]))
            s->gave_up = true;
    }
    s->steps += n + 1;
    if (s->text.len > s->longest) {
        size_t tail = s->text.len < ORDER_TAIL ? s->text.len : ORDER_TAIL;
        s->longest = s->text.len;
        s->best.len = 0;
        if (buf_append(&s->best, s->text.data + s->text.len - tail, tail))
            s->gave_up = true;
    }
    if (s->steps > ORDER_STEPS)
        s->gave_up = true;
    return s->gave_up ? AUTOMATON_DEAD : state;
}

static uint32_t order_write_string(struct order_search *s, uint32_t state,
                                   const struct json_value *v)
{
    state = order_write(s, state, "\"", 1);
    for (size_t i = 0; i < v->len && state != AUTOMATON_DEAD; i++) {
        char c = v->str[i], escape[8] = {c};
        if (c == '"' || c == '\\')
            snprintf(escape, sizeof escape, "\\%c", c);
        else if ((unsigned char)c < 0x20)
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)c);
        state = order_write(s, state, escape, c ? strlen(escape) : 6);
    }
    return order_write(s, state, "\"", 1);
}

/* Look a place up among the failed ones; with `add`, put it there. */
static bool order_failed(struct order_search *s, uint64_t place, bool add)
{
    place |= 1;
    size_t i = place >> 20 & (ORDER_FAILED - 1);
    for (; s->failed[i]; i = (i + 1) & (ORDER_FAILED - 1))
        if (s->failed[i] == place)
            return true;
    if (!add)
        return false;
    if (s->n_failed++ > ORDER_FAILED / 2)
        s->gave_up = true;
    else
        s->failed[i] = place;
    return false;
}

/* ---- arrays and objects -------------------------------------------------- */

/* Write one of the members that are left, and what comes after it. */
static bool order_member(struct order_search *s, uint32_t state,
                         const struct order_frame *f)
{
    uint64_t place = hash_mix(f->path ^ state, 0xe7037ed1a0b428dbu);
    size_t begin = s->text.len;
    bool came_back = false;
    if (order_failed(s, place, false))
        return false;
    /* A member that leads back to this state may as well be written now. */
    for (size_t i = 0; i < f->v->len && !came_back && !s->gave_up; i++) {
        if (f->used[i])
            continue;
        struct order_frame next = *f;
        next.path += hash_mix((uintptr_t)&f->v->keys[i], 0x9e3779b97f4a7c15u);
        next.n_done++;
        next.at = state;
        next.came_back = &came_back;
        uint32_t to = order_write_string(s, state, &f->v->keys[i]);
        to = order_write(s, to, ":", 1);
        f->used[i] = true;
        if (to != AUTOMATON_DEAD && order_value(s, &f->v->items[i], to, &next))
            return true;
        f->used[i] = false;
        s->text.len = begin;
    }
    order_failed(s, place, true);
    return false;
}

/* Go on after a value. */
static bool order_next(struct order_search *s, uint32_t state,
                       const struct order_frame *f)
{
    if (!f)
        return automaton_accepts(s->a, state);
    bool object = f->v->type == JSON_OBJECT;
    if (f->n_done == f->v->len) {
        state = order_write(s, state, object ? "}" : "]", 1);
        return state != AUTOMATON_DEAD && order_next(s, state, f->up);
    }
    state = order_write(s, state, ",", 1);
    if (state == AUTOMATON_DEAD)
        return false;
    if (object) {
        if (state == f->at)
            *f->came_back = true;
        return order_member(s, state, f);
    }
    struct order_frame next = *f;
    next.n_done++;
    next.path = hash_mix(f->path, (uintptr_t)&f->v->items[f->n_done]);
    return order_value(s, &f->v->items[f->n_done], state, &next);
}

static bool order_container(struct order_search *s, const struct json_value *v,
                            uint32_t state, const struct order_frame *up)
{
    bool object = v->type == JSON_OBJECT, found;
    struct order_frame f = {.up = up, .v = v};
    f.path = hash_mix(up ? up->path : 1, (uintptr_t)v ^ 0xa0761d6478bd642fu);
    state = order_write(s, state, object ? "{" : "[", 1);
    if (state == AUTOMATON_DEAD)
        return false;
    if (v->len == 0)
        return order_next(s, state, &f);
    if (!object) {
        f.n_done = 1;
        return order_value(s, &v->items[0], state, &f);
    }
    f.used = calloc(v->len, sizeof *f.used);
    s->gave_up |= !f.used;
    found = f.used && order_member(s, state, &f);
    free(f.used);
    return found;
}

/* ---- values -------------------------------------------------------------- */

/* Write the digits of a number without its exponent to out[ORDER_DIGITS + 8].
 * Returns false if there are too many. */
static bool order_plain_number(const struct json_value *v, char *out)
{
    char digits[ORDER_DIGITS + 1], *o = out;
    const char *p = v->str + (v->str[0] == '-');
    long n = 0, point = 0, i = 0;
    bool fraction = false;
    for (; *p && *p != 'e' && *p != 'E'; p++) {
        if (*p == '.') {
            fraction = true;
        } else if (n == ORDER_DIGITS) {
            return false;
        } else {
            digits[n++] = *p;
            point += !fraction;
        }
    }
    if (*p) {
        long e = strtol(p + 1, NULL, 10);
        point += e > 10000 ? 10000 : e < -10000 ? -10000 : e;
    }
    while (i < n && digits[i] == '0')
        i++;
    while (n > i && digits[n - 1] == '0')
        n--;
    if (i == n) {
        strcpy(out, "0");
        return true;
    }
    if (point - i > ORDER_DIGITS / 2 || point - i < -ORDER_DIGITS / 4 ||
        n - i > ORDER_DIGITS / 2)
        return false;
    if (v->str[0] == '-')
        *o++ = '-';
    if (point <= i)
        *o++ = '0';
    for (long k = i; k < point; k++)
        *o++ = k < n ? digits[k] : '0';
    if (point < n)
        *o++ = '.';
    for (long k = point; k < n; k++)
        *o++ = k < i ? '0' : digits[k];
    *o = '\0';
    return true;
}

/* Try the spellings of a number that a grammar may have. */
static bool order_number(struct order_search *s, const struct json_value *v,
                         uint32_t state, const struct order_frame *up)
{
    char plain[ORDER_DIGITS + 8];
    size_t begin = s->text.len;
    uint32_t to = order_write(s, state, v->str, v->len);
    if (to != AUTOMATON_DEAD && order_next(s, to, up))
        return true;
    s->text.len = begin;
    if (s->gave_up || !order_plain_number(v, plain))
        return false;
    if (strcmp(plain, v->str) != 0) {
        to = order_write(s, state, plain, strlen(plain));
        if (to != AUTOMATON_DEAD && order_next(s, to, up))
            return true;
        s->text.len = begin;
    }
    if (s->gave_up || strchr(plain, '.'))
        return false;
    to = order_write(s, state, plain, strlen(plain));
    to = to == AUTOMATON_DEAD ? to : order_write(s, to, ".0", 2);
    return to != AUTOMATON_DEAD && order_next(s, to, up);
}

static bool order_value(struct order_search *s, const struct json_value *v,
                        uint32_t state, const struct order_frame *up)
{
    bool found = false;
    if (++s->depth > ORDER_DEPTH)
        s->gave_up = true;
    if (s->gave_up) {
        found = false;
    } else if (v->type == JSON_NUMBER) {
        found = order_number(s, v, state, up);
    } else if (v->type == JSON_ARRAY || v->type == JSON_OBJECT) {
        found = order_container(s, v, state, up);
    } else {
        const char *word = v->type == JSON_NULL ? "null"
                           : v->boolean         ? "true"
                                                : "false";
        if (v->type == JSON_STRING)
            state = order_write_string(s, state, v);
        else
            state = order_write(s, state, word, strlen(word));
        found = state != AUTOMATON_DEAD && order_next(s, state, up);
    }
    s->depth--;
    return found;
}

/* Return 1 if the automaton admits the document with its members in some order,
 * 0 if not, and -1 if the search took too long or the automaton failed. Append
 * to *text the text that is admitted, or the end of the longest one that begins
 * a text of the automaton. */
static int any_order_find(struct automaton *a, const struct json_value *doc,
                          struct buf *text)
{
    struct order_search s = {.a = a};
    s.failed = calloc(ORDER_FAILED, sizeof *s.failed);
    s.gave_up = !s.failed;
    bool found = order_value(&s, doc, automaton_start(a), NULL);
    const struct buf *shown = found ? &s.text : &s.best;
    bool lost = shown->len && buf_append(text, shown->data, shown->len);
    if (lost || automaton_error(a, NULL))
        s.gave_up = true;
    free(s.failed);
    buf_free(&s.text);
    buf_free(&s.best);
    return found && !lost ? 1 : s.gave_up ? -1 : 0;
}

#endif
