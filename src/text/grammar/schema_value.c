/* Values in a schema's text (enum, const, not): their equality, whether schemas
 * admit them, and how they are written. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "text/grammar/schema_int.h"
#include "text/grammar/schema_number.h"

/* Levels of references and allOf inside each other. */
enum { MAX_NESTING = 2000 };

static int read_number(struct schema *s, const struct json_value *v,
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
    if (read_number(s, a, &x) || read_number(s, b, &y))
        return -1;
    return decimal_compare(&x, &y) == 0;
}

static int schema_equal(struct schema *s, const struct json_value *a,
                        const struct json_value *b);

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

/* Whether two values are equal for JSON schema: 1 and 1.0 are, the order of
 * members does not matter. -1 on an error. */
static int schema_equal(struct schema *s, const struct json_value *a,
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

int schema_hash(struct schema *s, const struct json_value *v, uint64_t *out)
{
    struct decimal d;
    *out = hash_mix((uint64_t)v->type + 1, 0x9e3779b97f4a7c15u + v->boolean);
    if (v->type == JSON_STRING)
        *out = hash_bytes(*out, v->str, v->len);
    if (v->type != JSON_NUMBER)
        return 0;
    if (read_number(s, v, &d))
        return -1;
    *out = hash_bytes(*out + d.negative, d.whole, d.n_whole);
    *out = hash_bytes(*out, d.frac, d.n_frac);
    return 0;
}

/* ---- whether a schema admits a value ------------------------------------- */

static int admits(struct schema *s, struct schema_node *node,
                  const struct json_value *v, int depth);

unsigned schema_type_of(struct schema *s, const struct json_value *v)
{
    struct decimal d;
    switch (v->type) {
    case JSON_NULL:
        return T_NULL;
    case JSON_BOOL:
        return T_BOOLEAN;
    case JSON_NUMBER:
        if (read_number(s, v, &d))
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

/* Return 1 if v equals one of the values. */
static int is_among(struct schema *s, const struct json_value *v,
                    const struct json_value *values, size_t n)
{
    if (v >= values && v < values + n)
        return 1; /* it is one of them */
    for (size_t i = 0; i < n; i++) {
        int rc = schema_equal(s, v, &values[i]);
        if (rc)
            return rc;
    }
    return 0;
}

static int admits_number(struct schema *s, struct schema_node *node,
                         const struct json_value *v)
{
    struct number_form f;
    struct decimal d;
    if (!node->min && !node->max && !node->above && !node->below &&
        !node->multiple_of)
        return 1; /* excluded values are checked before */
    if (schema_number_of(s, &node, 1, false, &f) || read_number(s, v, &d))
        return -1;
    return number_fits(&f, &d);
}

static int admits_string(struct schema *s, const struct schema_node *node,
                         const struct json_value *v)
{
    int64_t length = 0;
    for (size_t i = 0; i < v->len; length++)
        i += utf8_decode(v->str + i, v->len - i, NULL, NULL);
    if (length < node->min_length ||
        (node->max_length >= 0 && length > node->max_length))
        return 0;
    if (node->pattern_dfa &&
        !dfa_match(node->pattern_dfa, v->str, v->len))
        return 0;
    if (!node->format)
        return 1;
    const struct dfa *p = schema_format_points(s, node->format);
    return p ? dfa_match(p, v->str, v->len) : -1;
}

static int admits_array(struct schema *s, const struct schema_node *node,
                        const struct json_value *v, int depth)
{
    if ((int64_t)v->len < node->min_items ||
        (node->max_items >= 0 && (int64_t)v->len > node->max_items))
        return 0;
    for (size_t i = 0; i < v->len; i++) {
        struct schema_node *item =
            i < node->prefix.n ? node->prefix.v[i] : node->items;
        int rc = item ? admits(s, item, &v->items[i], depth + 1) : 1;
        if (rc <= 0)
            return rc;
    }
    return 1;
}

static int admits_object(struct schema *s, struct schema_node *node,
                         const struct json_value *v, int depth)
{
    for (size_t i = 0; i < node->required.n; i++) {
        const struct json_value *name = node->required.v[i];
        if (!json_get_n(v, name->str, name->len))
            return 0;
    }
    for (size_t i = 0; i < v->len; i++) {
        const struct json_value *key = &v->keys[i];
        bool met = false;
        int rc = 1;
        for (size_t k = 0; k < node->props.n && rc > 0; k++)
            if (node->names[k].len == key->len &&
                memcmp(node->names[k].str, key->str, key->len) == 0) {
                rc = admits(s, node->props.v[k], &v->items[i], depth + 1);
                met = true;
            }
        for (size_t k = 0; k < node->pattern_props.n && rc > 0; k++)
            if (dfa_match(node->patterns_points[k], key->str, key->len)) {
                rc = admits(s, node->pattern_props.v[k], &v->items[i],
                            depth + 1);
                met = true;
            }
        if (!met && node->additional)
            rc = admits(s, node->additional, &v->items[i], depth + 1);
        if (rc <= 0)
            return rc;
    }
    return 1;
}

/* Check the keywords of a node that do not name other schemas for the same
 * value. */
static int admits_itself(struct schema *s, struct schema_node *node,
                         const struct json_value *v, int depth)
{
    unsigned type = schema_type_of(s, v);
    int rc = 1;
    if (type == 0)
        return -1;
    if (node->never || !(node->types & type))
        return 0;
    if (node->enumeration)
        rc = is_among(s, v, node->enumeration->items, node->enumeration->len);
    if (rc > 0 && node->constant)
        rc = schema_equal(s, v, node->constant);
    for (size_t i = 0; i < node->excluded.n && rc > 0; i++) {
        rc = schema_equal(s, v, node->excluded.v[i]);
        rc = rc < 0 ? rc : !rc;
    }
    if (rc <= 0)
        return rc;
    switch (v->type) {
    case JSON_NUMBER:
        return admits_number(s, node, v);
    case JSON_STRING:
        return admits_string(s, node, v);
    case JSON_ARRAY:
        return admits_array(s, node, v, depth);
    case JSON_OBJECT:
        return admits_object(s, node, v, depth);
    default:
        return 1;
    }
}

/* Count the schemas of a list that admit a value, at most `enough`. */
static int count_admitting(struct schema *s, const struct node_list *list,
                           const struct json_value *v, int enough, int depth)
{
    int count = 0;
    for (size_t i = 0; i < list->n && count < enough; i++) {
        int rc = admits(s, list->v[i], v, depth + 1);
        if (rc < 0)
            return -1;
        count += rc;
    }
    return count;
}

/* Check the keywords of a node, with anyOf and oneOf if asked for, but not its
 * $ref and allOf. */
static int admits_node(struct schema *s, struct schema_node *node, bool any,
                       bool one, const struct json_value *v, int depth)
{
    int rc = schema_step(s, 1) ? -1 : admits_itself(s, node, v, depth);
    if (rc > 0 && any && node->any.n)
        rc = count_admitting(s, &node->any, v, 1, depth);
    if (rc > 0 && one && node->one.n) {
        rc = count_admitting(s, &node->one, v, 2, depth);
        rc = rc < 0 ? rc : rc == 1;
    }
    return rc;
}

static int admits(struct schema *s, struct schema_node *node,
                  const struct json_value *v, int depth)
{
    for (; node; node = node->ref) {
        if (depth > MAX_NESTING)
            return schema_refuse(s, node->at, NULL,
                                 "schemas refer to each other through more "
                                 "than %d levels",
                                 MAX_NESTING);
        int rc = admits_node(s, node, true, true, v, depth);
        for (size_t i = 0; i < node->all.n && rc > 0; i++)
            rc = admits(s, node->all.v[i], v, depth + 1);
        if (rc <= 0)
            return rc;
    }
    return 1;
}

int schema_admits(struct schema *s, struct schema_node *node, bool any,
                  bool one, const struct json_value *v)
{
    return admits_node(s, node, any, one, v, 0);
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
    if (schema_newline(p->s, &p->bytes, level))
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
    if (p->s->form == SCHEMA_PARAMETERS && schema_has_tag(p->s, s, n)) {
        p->failed = true; /* cannot be written */
    } else if (is_plain_text(s, n)) {
        put_bytes(p, "\"", 1);
        put_bytes(p, s, n);
        put_bytes(p, "\"", 1);
    } else {
        flush_bytes(p, schema_emit_word(p->s, s, n));
    }
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
            put_string(p, v->keys[i].str, v->keys[i].len);
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
