/* Values in a schema's text (enum, const, not): their equality, and how they
 * are written. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/hash.h"
#include "text/schema/schema_int.h"

int schema_read_number(struct schema *s, const struct json_value *v,
                       struct decimal *out)
{
    int rc = decimal_read(out, v->str, v->len, &s->mem);
    if (rc < 0)
        return err_oom(s->e, v->len);
    if (rc > 0)
        return schema_refuse(s, v, NULL, "%s has more than %d digits",
                             ERR_SHOW(v->str, v->len), DECIMAL_MAX_DIGITS);
    return 0;
}

/* ---- equality ------------------------------------------------------------ */

static int equal_numbers(struct schema *s, const struct json_value *a,
                         const struct json_value *b)
{
    struct decimal x, y;
    if (schema_read_number(s, a, &x) || schema_read_number(s, b, &y))
        return -1;
    return decimal_compare(&x, &y) == 0;
}

static int equal_parts(struct schema *s, const struct json_value *a,
                       const struct json_value *b)
{
    for (size_t i = 0; i < a->len; i++) {
        const struct json_value *other =
            a->type == JSON_ARRAY
                ? &b->items[i]
                : json_get_n(b, a->keys[i].str, a->keys[i].len);
        int rc = other ? schema_equal(s, &a->items[i], other) : 0;
        if (rc <= 0)
            return rc;
    }
    return 1;
}

int schema_equal(struct schema *s, const struct json_value *a,
                 const struct json_value *b)
{
    if (a->type != b->type)
        return 0;
    if (schema_step(s, 1 + a->len / 8))
        return -1;
    switch (a->type) {
    case JSON_NULL:
        return 1;
    case JSON_BOOL:
        return a->boolean == b->boolean;
    case JSON_NUMBER:
        return equal_numbers(s, a, b);
    case JSON_STRING:
        return a->len == b->len && memcmp(a->str, b->str, a->len) == 0;
    default:
        return a->len == b->len ? equal_parts(s, a, b) : 0;
    }
}

/* Hash the parts of an array or an object. The order of members does not
 * matter. */
static int hash_parts(struct schema *s, const struct json_value *v,
                      uint64_t *out)
{
    uint64_t sum = 0, h;
    for (size_t i = 0; i < v->len; i++) {
        if (schema_hash(s, &v->items[i], &h))
            return -1;
        if (v->type == JSON_OBJECT)
            sum += hash_mix(hash_bytes(0, v->keys[i].str, v->keys[i].len), h);
        else
            sum = hash_mix(sum + 0x9e3779b97f4a7c15u, h);
    }
    *out += sum;
    return 0;
}

int schema_hash(struct schema *s, const struct json_value *v, uint64_t *out)
{
    struct decimal d;
    *out = hash_mix((uint64_t)v->type + 1, 0x9e3779b97f4a7c15u + v->boolean);
    if (v->type == JSON_STRING)
        *out = hash_bytes(*out, v->str, v->len);
    if (v->type == JSON_ARRAY || v->type == JSON_OBJECT)
        return schema_step(s, 1 + v->len) ? -1 : hash_parts(s, v, out);
    if (v->type != JSON_NUMBER)
        return 0;
    if (schema_read_number(s, v, &d))
        return -1;
    *out = hash_bytes(*out + d.negative, d.whole, d.n_whole);
    *out = hash_bytes(*out, d.frac, d.n_frac);
    return 0;
}

unsigned schema_type_of(struct schema *s, const struct json_value *v)
{
    struct decimal d;
    switch (v->type) {
    case JSON_NULL:
        return T_NULL;
    case JSON_BOOL:
        return T_BOOLEAN;
    case JSON_NUMBER:
        if (schema_read_number(s, v, &d))
            return 0;
        return decimal_is_integer(&d) ? T_INTEGER : T_NUMBER;
    case JSON_STRING:
        return T_STRING;
    case JSON_ARRAY:
        return T_ARRAY;
    default:
        return T_OBJECT;
    }
}

/* ---- writing ------------------------------------------------------------- */

/* The nodes of a value's text, one after the other, and the bytes that follow
 * them. */
struct pieces {
    struct schema *s;
    struct buf bytes;
    uint32_t *nodes;
    size_t n, cap;
    bool failed;
};

static void flush_bytes(struct pieces *p, uint32_t more)
{
    if (ARRAY_RESERVE(p->nodes, p->cap, p->n + 2, p->s->e)) {
        p->failed = true;
        return;
    }
    if (p->bytes.len)
        p->nodes[p->n++] = grammar_bytes(p->s->g, p->bytes.data, p->bytes.len);
    p->bytes.len = 0;
    if (more != GRAMMAR_EMPTY)
        p->nodes[p->n++] = more;
}

static void put_bytes(struct pieces *p, const char *s, size_t n)
{
    if (buf_append(&p->bytes, s, n)) {
        err_oom(p->s->e, n);
        p->failed = true;
    }
}

static void put_newline(struct pieces *p, int level)
{
    if (p->s->free_space)
        flush_bytes(p, schema_space(p->s));
    else if (schema_newline(p->s, &p->bytes, level))
        p->failed = true;
}

static bool is_plain_text(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || (unsigned char)s[i] >= 0x7F ||
            s[i] == '"' || s[i] == '\\' || s[i] == '/')
            return false;
    return true;
}

static void put_string(struct pieces *p, const char *s, size_t n)
{
    if ((p->s->form == SCHEMA_PARAMETERS || p->s->form == SCHEMA_BARE) &&
        schema_has_tag(p->s, s, n)) {
        p->failed = true; /* cannot be written */
    } else if (p->s->form == SCHEMA_BARE) {
        flush_bytes(p, schema_emit_word(p->s, s, n));
    } else if (is_plain_text(s, n)) {
        put_bytes(p, "\"", 1);
        put_bytes(p, s, n);
        put_bytes(p, "\"", 1);
    } else {
        flush_bytes(p, schema_emit_word(p->s, s, n));
    }
}

static void put_name(struct pieces *p, const char *s, size_t n)
{
    if (p->s->form != SCHEMA_BARE)
        put_string(p, s, n);
    else if (schema_is_bare_name(s, n))
        put_bytes(p, s, n);
    else
        p->failed = true; /* cannot be written */
}

/* Write a number as in the schema's text, a zero without its minus. */
static void put_number(struct pieces *p, const struct json_value *v)
{
    size_t minus = v->str[0] == '-';
    char end = v->str[minus + strspn(v->str + minus, "0.")];
    if (end != '\0' && end != 'e' && end != 'E')
        minus = 0;
    put_bytes(p, v->str + minus, v->len - minus);
}

static void put_value(struct pieces *p, const struct json_value *v, int level)
{
    static const char *const brackets[] = {"[", "]", "{", "}"};
    const char *const *b = brackets + (v->type == JSON_OBJECT ? 2 : 0);
    switch (v->type) {
    case JSON_NULL:
        put_bytes(p, "null", 4);
        return;
    case JSON_BOOL:
        put_bytes(p, v->boolean ? "true" : "false", v->boolean ? 4 : 5);
        return;
    case JSON_NUMBER:
        put_number(p, v);
        return;
    case JSON_STRING:
        put_string(p, v->str, v->len);
        return;
    default:
        break;
    }
    put_bytes(p, b[0], 1);
    for (size_t i = 0; i < v->len && !p->failed; i++) {
        if (i > 0)
            put_bytes(p, ", ", p->s->spaced && !p->s->indent ? 2 : 1);
        put_newline(p, level + 1);
        if (v->type == JSON_OBJECT) {
            put_name(p, v->keys[i].str, v->keys[i].len);
            if (p->s->free_space)
                flush_bytes(p, schema_colon(p->s));
            else
                put_bytes(p, ": ", p->s->indent || p->s->spaced ? 2 : 1);
        }
        put_value(p, &v->items[i], level + 1);
    }
    if (v->len > 0)
        put_newline(p, level);
    put_bytes(p, b[1], 1);
}

uint32_t schema_literal(struct schema *s, const struct json_value *v, int level)
{
    struct pieces p = {.s = s};
    uint32_t node = GRAMMAR_NOTHING;
    put_value(&p, v, level);
    flush_bytes(&p, GRAMMAR_EMPTY);
    if (!p.failed)
        node = grammar_seq(s->g, p.nodes, p.n);
    buf_free(&p.bytes);
    free(p.nodes);
    return node;
}
