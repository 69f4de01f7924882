/* JSON as a tree of values. */
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/hashmap.h"
#include "base/rng.h"
#include "file/json_int.h"

struct json_doc {
    struct json_value root;
    struct arena arena;
};

/* A value whose container is still open. */
struct pending {
    struct json_value v;
    size_t at; /* its offset, keys only */
};

struct builder {
    struct json_input *in;
    struct json_doc *doc;
    struct pending *stack;
    size_t len, cap;
    size_t start[JSON_MAX_DEPTH]; /* where each open container begins */
    size_t depth;
    size_t used;         /* bytes of the arena */
    struct hashmap keys; /* scratch of check_keys */
    uint64_t seed;
};

/* Count n bytes of the arena. */
static int count_bytes(struct builder *b, size_t n)
{
    b->used += n;
    if (!b->in->max_bytes ||
        b->used + b->cap * sizeof *b->stack <= b->in->max_bytes)
        return 0;
    return err_set(b->in->e, b->in->code,
                   "%s: its values need more than %zu MiB of memory",
                   b->in->name, b->in->max_bytes >> 20);
}

static struct pending *push_value(struct builder *b, enum json_type type)
{
    if (count_bytes(b, 0) ||
        ARRAY_RESERVE(b->stack, b->cap, b->len + 1, b->in->e))
        return NULL;
    struct pending *v = &b->stack[b->len++];
    memset(v, 0, sizeof *v);
    v->v.type = type;
    return v;
}

static int push_text(struct builder *b, enum json_type type, const char *s,
                     size_t n)
{
    struct pending *v = push_value(b, type);
    if (!v || count_bytes(b, n + 1))
        return -1;
    char *copy = arena_copy(&b->doc->arena, s, n);
    if (!copy)
        return err_oom(b->in->e, n + 1);
    v->v.str = copy;
    v->v.len = n;
    return 0;
}

static int tree_null(void *ctx)
{
    return push_value(ctx, JSON_NULL) ? 0 : -1;
}

static int tree_boolean(void *ctx, bool value)
{
    struct pending *v = push_value(ctx, JSON_BOOL);
    if (!v)
        return -1;
    v->v.boolean = value;
    return 0;
}

static int tree_number(void *ctx, const char *s, size_t n)
{
    return push_text(ctx, JSON_NUMBER, s, n);
}

static int tree_string(void *ctx, const char *s, size_t n)
{
    return push_text(ctx, JSON_STRING, s, n);
}

static int tree_key(void *ctx, const char *s, size_t n)
{
    struct builder *b = ctx;
    if (push_text(b, JSON_STRING, s, n))
        return -1;
    b->stack[b->len - 1].at = b->in->key_at;
    return 0;
}

static int tree_begin(void *ctx)
{
    struct builder *b = ctx;
    b->start[b->depth++] = b->len;
    return 0;
}

static bool same_text(const struct json_value *a, const struct json_value *b)
{
    return a->len == b->len && memcmp(a->str, b->str, a->len) == 0;
}

static int err_repeated(const struct builder *b, const struct pending *key)
{
    struct buf msg = {0};
    int rc =
        buf_puts(&msg, "repeated key ") ||
        buf_json_string(&msg, key->v.str, key->v.len > 200 ? 200 : key->v.len);
    rc = rc ? err_oom(b->in->e, key->v.len)
            : json_err_at(b->in, key->at, msg.data);
    buf_free(&msg);
    return rc;
}

/* Look for repeated keys among n members: pairs key, value. */
static int check_keys(struct builder *b, const struct pending *m, size_t n)
{
    if (n <= 8) {
        for (size_t i = 1; i < n; i++)
            for (size_t j = 0; j < i; j++)
                if (same_text(&m[2 * i].v, &m[2 * j].v))
                    return err_repeated(b, &m[2 * i]);
        return 0;
    }
    if (!b->seed)
        b->seed = rng_random_seed() | 1;
    if (hashmap_init(&b->keys, n, n, b->in->e))
        return -1;
    for (size_t i = 0; i < n; i++) {
        const struct json_value *k = &m[2 * i].v;
        uint64_t h = hash_bytes(b->seed, k->str, k->len);
        uint32_t at = hashmap_slot(&b->keys, h), other;
        while ((other = hashmap_next(&b->keys, h, &at)) != HASHMAP_NONE)
            if (same_text(k, &m[2 * (size_t)other].v))
                return err_repeated(b, &m[2 * i]);
        hashmap_put(&b->keys, h, (uint32_t)i);
    }
    return 0;
}

/* Close the innermost container: its values move into arrays of their own. */
static int tree_end(struct builder *b, enum json_type type)
{
    size_t start = b->start[--b->depth];
    size_t step = type == JSON_OBJECT ? 2 : 1;
    size_t n = (b->len - start) / step;
    /* An empty document has no stack, and NULL + 0 is undefined in C. */
    const struct pending *m = n > 0 ? b->stack + start : NULL;
    struct json_value *items = NULL, *keys = NULL;

    if (type == JSON_OBJECT && check_keys(b, m, n))
        return -1;
    if (n > 0) {
        /* No overflow: the stack is larger than this. */
        size_t bytes = n * step * sizeof *items;
        if (count_bytes(b, bytes))
            return -1;
        items = arena_alloc(&b->doc->arena, bytes, _Alignof(struct json_value));
        if (!items)
            return err_oom(b->in->e, bytes);
        for (size_t i = 0; i < n; i++)
            items[i] = m[step * i + step - 1].v;
        if (type == JSON_OBJECT) {
            keys = items + n;
            for (size_t i = 0; i < n; i++)
                keys[i] = m[2 * i].v;
        }
    }
    b->len = start;
    struct pending *v = push_value(b, type);
    if (!v)
        return -1;
    v->v.len = n;
    v->v.items = items;
    v->v.keys = keys;
    return 0;
}

static int tree_end_object(void *ctx)
{
    return tree_end(ctx, JSON_OBJECT);
}

static int tree_end_array(void *ctx)
{
    return tree_end(ctx, JSON_ARRAY);
}

static int parse_tree(struct json_doc **out, struct json_input *in)
{
    static const struct json_handler tree = {
        tree_null, tree_boolean,    tree_number, tree_string,    tree_begin,
        tree_key,  tree_end_object, tree_begin,  tree_end_array,
    };
    struct json_doc *doc = calloc(1, sizeof *doc);
    struct builder *b = calloc(1, sizeof *b);
    int rc = -1;
    *out = NULL;
    if (!doc || !b) {
        err_oom(in->e, sizeof *doc + sizeof *b);
    } else {
        b->in = in;
        b->doc = doc;
        rc = json_read(in, &tree, b);
    }
    if (rc == 0) {
        doc->root = b->stack[0].v;
        *out = doc;
        doc = NULL;
    }
    if (b) {
        free(b->stack);
        hashmap_free(&b->keys);
        free(b);
    }
    json_free(doc);
    return rc;
}

int json_parse(struct json_doc **out, const char *name, const char *text,
               size_t n, enum qwick_err_code code, struct qwick_err *e)
{
    return json_parse_around(out, name, text, n, NULL, 0, code, e);
}

int json_parse_python(struct json_doc **out, const char *name, const char *text,
                      size_t n, enum qwick_err_code code, struct qwick_err *e)
{
    struct json_input in = {.name = name,
                            .text = text,
                            .n = n,
                            .python = true,
                            .code = code,
                            .e = e};
    return parse_tree(out, &in);
}

int json_parse_around(struct json_doc **out, const char *name, const char *text,
                      size_t n, const struct json_gap *gaps, size_t n_gaps,
                      enum qwick_err_code code, struct qwick_err *e)
{
    struct json_input in = {.name = name,
                            .text = text,
                            .n = n,
                            .gaps = gaps,
                            .n_gaps = n_gaps,
                            .code = code,
                            .e = e};
    return parse_tree(out, &in);
}

int json_parse_within(struct json_doc **out, const char *name, const char *text,
                      size_t n, size_t max_bytes, enum qwick_err_code code,
                      struct qwick_err *e)
{
    struct json_input in = {.name = name,
                            .text = text,
                            .n = n,
                            .max_bytes = max_bytes,
                            .code = code,
                            .e = e};
    return parse_tree(out, &in);
}

const struct json_value *json_root(const struct json_doc *doc)
{
    return doc ? &doc->root : NULL;
}

void json_free(struct json_doc *doc)
{
    if (!doc)
        return;
    arena_free(&doc->arena);
    free(doc);
}

const struct json_value *json_get_n(const struct json_value *v, const char *key,
                                    size_t n)
{
    if (!json_is(v, JSON_OBJECT))
        return NULL;
    for (size_t i = 0; i < v->len; i++)
        if (v->keys[i].len == n && memcmp(v->keys[i].str, key, n) == 0)
            return &v->items[i];
    return NULL;
}

const struct json_value *json_get(const struct json_value *v, const char *key)
{
    return json_get_n(v, key, strlen(key));
}

const struct json_value *json_member(const struct json_value *v,
                                     const char *key)
{
    const struct json_value *m = json_get(v, key);
    return json_is(m, JSON_NULL) ? NULL : m;
}

bool json_is(const struct json_value *v, enum json_type t)
{
    return v && v->type == t;
}

const char *json_type_name(const struct json_value *v)
{
    if (!v)
        return "missing";
    switch (v->type) {
    case JSON_NULL:
        return "null";
    case JSON_BOOL:
        return "a boolean";
    case JSON_NUMBER:
        return "a number";
    case JSON_STRING:
        return "a string";
    case JSON_ARRAY:
        return "an array";
    case JSON_OBJECT:
        return "an object";
    }
    return "unknown";
}

bool json_equals(const struct json_value *v, const char *s)
{
    return json_is(v, JSON_STRING) && v->len == strlen(s) &&
           memcmp(v->str, s, v->len) == 0;
}

/* ---- numbers ------------------------------------------------------------- */

bool json_is_integer(const struct json_value *v)
{
    size_t sign = *v->str == '-';
    return sign + strspn(v->str + sign, "0123456789") == v->len;
}

int json_int(const struct json_value *v, int64_t min, int64_t max, int64_t *out)
{
    if (!json_is(v, JSON_NUMBER) || !json_is_integer(v))
        return -1;
    const char *s = v->str;
    bool negative = *s == '-';
    uint64_t u = 0;
    for (s += negative; *s; s++) {
        unsigned d = (unsigned)(*s - '0');
        if (__builtin_mul_overflow(u, 10, &u) ||
            __builtin_add_overflow(u, d, &u))
            return -1;
    }
    int64_t i;
    if (negative) {
        if (u > (uint64_t)INT64_MAX + 1)
            return -1;
        i = u == 0 ? 0 : -(int64_t)(u - 1) - 1;
    } else {
        if (u > INT64_MAX)
            return -1;
        i = (int64_t)u;
    }
    if (i < min || i > max)
        return -1;
    *out = i;
    return 0;
}

int json_read_double(const char *s, double *out)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c)
        return -1;
    char *end;
    *out = strtod_l(s, &end, c);
    freelocale(c);
    return *end == '\0' && end != s ? 0 : -1;
}

int json_double(const struct json_value *v, double *out)
{
    double d;
    if (!json_is(v, JSON_NUMBER) || json_read_double(v->str, &d) ||
        !isfinite(d))
        return -1;
    *out = d;
    return 0;
}
