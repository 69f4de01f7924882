#include "file/json.h"

#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yajl/yajl_parse.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/hashmap.h"
#include "base/rng.h"
#include "base/utf8.h"

/* ---- what yajl lets pass ------------------------------------------------- */

/* yajl takes overlong forms and surrogates for UTF-8, turns lone surrogate
 * escapes into '?', and skips vertical tabs and form feeds as white space. So
 * the text is checked before yajl sees it, and yajl's own UTF-8 check, which
 * would cost as much again, is switched off. Work goes by blocks that stay in
 * the first-level cache. */
enum { SCAN_BLOCK = 16384 };

static int hex_digit(unsigned char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Value of the escape \uXXXX at p, -1 when it is none. */
static int unicode_escape(const unsigned char *p, size_t n)
{
    if (n < 6 || p[0] != '\\' || p[1] != 'u')
        return -1;
    int v = 0;
    for (int i = 2; i < 6; i++) {
        int d = hex_digit(p[i]);
        if (d < 0)
            return -1;
        v = v * 16 + d;
    }
    return v;
}

/* Check that \u escapes of surrogates that start in [*at, end) come in pairs;
 * moves *at behind the last escape. Other faults of escapes are yajl's. */
static int check_escapes(const unsigned char *p, size_t n, size_t end,
                         size_t *at)
{
    size_t i = *at;
    while (i < end) {
        const unsigned char *q = memchr(p + i, '\\', end - i);
        if (!q) {
            i = end;
            break;
        }
        i = (size_t)(q - p);
        int v = unicode_escape(q, n - i);
        if (v >= 0xd800 && v <= 0xdfff) {
            int low = v < 0xdc00 ? unicode_escape(q + 6, n - i - 6) : -1;
            if (low < 0xdc00 || low > 0xdfff) {
                *at = i;
                return -1;
            }
            i += 12;
        } else {
            i += 2;
        }
    }
    *at = i;
    return 0;
}

/* NULL when p[0..n) passes, else why not, with *at the offset. */
static const char *check_text(const unsigned char *p, size_t n, size_t *at)
{
    size_t chars = 0, escapes = 0;
    for (size_t i = 0; i < n;) {
        size_t end = n - i > SCAN_BLOCK ? i + SCAN_BLOCK : n;
        if (chars < end)
            chars += utf8_valid((const char *)p + chars, end - chars);
        if (chars < end) { /* unless the block's end cuts a character */
            size_t k =
                utf8_decode((const char *)p + chars, n - chars, NULL, NULL);
            if (k == 0) {
                *at = chars;
                return "invalid UTF-8";
            }
            chars += k;
        }
        if (escapes < end && check_escapes(p, n, end, &escapes)) {
            *at = escapes;
            return "lone surrogate in a \\u escape";
        }
        const unsigned char *q = memchr(p + i, '\v', end - i);
        if (!q)
            q = memchr(p + i, '\f', end - i);
        if (q) {
            *at = (size_t)(q - p);
            return "invalid control character";
        }
        i = end;
    }
    return NULL;
}

/* ---- events -------------------------------------------------------------- */

/* Memory that yajl holds. It does not check what it gets from its allocator,
 * so a failed allocation jumps out of it, and everything is freed here. */
struct block {
    _Alignas(16) struct block *next;
    struct block *prev;
};

enum stop { STOP_NOT, STOP_HANDLER, STOP_DEPTH };

struct parser {
    const struct json_handler *h;
    void *ctx;
    size_t depth;
    enum stop stop;
    const char *name;
    const char *text;
    size_t n;
    const struct json_gap *gaps;
    size_t n_gaps;
    size_t piece; /* offset of the piece that yajl reads now */
    size_t bad;   /* the offset that the error names */
    enum qwick_err_code code;
    struct qwick_err *e;
    yajl_handle yajl;
    struct block blocks; /* ring */
    size_t oom_bytes;
    jmp_buf oom;
};

static void block_link(struct parser *p, struct block *b)
{
    b->next = p->blocks.next;
    b->prev = &p->blocks;
    b->next->prev = b;
    p->blocks.next = b;
}

static void block_unlink(struct block *b)
{
    b->next->prev = b->prev;
    b->prev->next = b->next;
}

static void *y_realloc(void *ctx, void *ptr, size_t n)
{
    struct parser *p = ctx;
    struct block *old = NULL;
    size_t total;
    if (ptr) {
        old = (struct block *)ptr - 1;
        block_unlink(old);
    }
    struct block *b = NULL;
    if (!size_add(n, sizeof *b, &total))
        b = realloc(old, total);
    if (!b) {
        if (old)
            block_link(p, old);
        p->oom_bytes = n;
        longjmp(p->oom, 1);
    }
    block_link(p, b);
    return b + 1;
}

static void *y_malloc(void *ctx, size_t n)
{
    return y_realloc(ctx, NULL, n);
}

static void y_free(void *ctx, void *ptr)
{
    (void)ctx;
    if (!ptr)
        return;
    struct block *b = (struct block *)ptr - 1;
    block_unlink(b);
    free(b);
}

static void blocks_free(struct parser *p)
{
    for (struct block *b = p->blocks.next, *next; b != &p->blocks; b = next) {
        next = b->next;
        free(b);
    }
}

/* yajl's callbacks return nonzero to go on. */
static int go_on(struct parser *p, int rc)
{
    if (rc)
        p->stop = STOP_HANDLER;
    return !rc;
}

static int on_null(void *ctx)
{
    struct parser *p = ctx;
    return go_on(p, p->h->null(p->ctx));
}

static int on_boolean(void *ctx, int v)
{
    struct parser *p = ctx;
    return go_on(p, p->h->boolean(p->ctx, v != 0));
}

static int on_number(void *ctx, const char *s, size_t n)
{
    struct parser *p = ctx;
    return go_on(p, p->h->number(p->ctx, s, n));
}

static int on_string(void *ctx, const unsigned char *s, size_t n)
{
    struct parser *p = ctx;
    return go_on(p, p->h->string(p->ctx, (const char *)s, n));
}

static int on_key(void *ctx, const unsigned char *s, size_t n)
{
    struct parser *p = ctx;
    return go_on(p, p->h->key(p->ctx, (const char *)s, n));
}

static int deeper(struct parser *p)
{
    if (p->depth == JSON_MAX_DEPTH) {
        p->stop = STOP_DEPTH;
        return 0;
    }
    p->depth++;
    return 1;
}

static int on_begin_object(void *ctx)
{
    struct parser *p = ctx;
    if (!deeper(p))
        return 0;
    return !p->h->begin_object || go_on(p, p->h->begin_object(p->ctx));
}

static int on_end_object(void *ctx)
{
    struct parser *p = ctx;
    p->depth--;
    return !p->h->end_object || go_on(p, p->h->end_object(p->ctx));
}

static int on_begin_array(void *ctx)
{
    struct parser *p = ctx;
    if (!deeper(p))
        return 0;
    return !p->h->begin_array || go_on(p, p->h->begin_array(p->ctx));
}

static int on_end_array(void *ctx)
{
    struct parser *p = ctx;
    p->depth--;
    return !p->h->end_array || go_on(p, p->h->end_array(p->ctx));
}

static int err_at(struct parser *p, size_t offset, const char *why)
{
    p->bad = offset;
    return err_set(p->e, p->code, "%s: offset %zu: %s", p->name, offset, why);
}

/* Report yajl's description of the error, on one line. */
static int err_yajl(struct parser *p, size_t offset)
{
    unsigned char *y = yajl_get_error(p->yajl, 0, NULL, 0);
    char why[160];
    snprintf(why, sizeof why, "%s", (const char *)y);
    size_t len = strlen(why);
    while (len > 0 && (why[len - 1] == '\n' || why[len - 1] == '.'))
        why[--len] = '\0';
    return err_at(p, offset, why);
}

/* Set *begin and *end to the i-th piece of the text between gaps. Returns false
 * if there is none. A byte order mark is not part of the first one. */
static bool piece_at(const struct parser *p, size_t i, size_t *begin,
                     size_t *end)
{
    if (i > p->n_gaps)
        return false;
    bool mark = p->n >= 3 && memcmp(p->text, "\xef\xbb\xbf", 3) == 0;
    *begin = i > 0 ? p->gaps[i - 1].end : mark ? 3 : 0;
    *end = i < p->n_gaps ? p->gaps[i].begin : p->n;
    return true;
}

/* Feed the pieces, and an empty container for each gap. */
static yajl_status feed_yajl(struct parser *p)
{
    size_t begin, end;
    yajl_status st = yajl_status_ok;
    for (size_t i = 0; st == yajl_status_ok && piece_at(p, i, &begin, &end);
         i++) {
        p->piece = begin;
        st = yajl_parse(p->yajl, (const unsigned char *)p->text + begin,
                        end - begin);
        if (i < p->n_gaps && st == yajl_status_ok)
            st = yajl_parse(
                p->yajl,
                (const unsigned char *)(p->text[end] == '{' ? "{}" : "[]"), 2);
    }
    return st;
}

/* The part in which yajl may jump out; locals do not change after setjmp. */
static int run_yajl(struct parser *p, const yajl_callbacks *cb)
{
    yajl_alloc_funcs alloc = {y_malloc, y_realloc, y_free, p};

    if (setjmp(p->oom))
        return err_oom(p->e, p->oom_bytes);
    p->yajl = yajl_alloc(cb, &alloc, p);
    yajl_config(p->yajl, yajl_dont_validate_strings, 1);
    yajl_status st = feed_yajl(p);
    bool whole = st == yajl_status_ok;
    if (whole)
        st = yajl_complete_parse(p->yajl);
    /* A string that begins after the value and has no end passes for white
     * space; a line break cannot be in it. */
    if (st == yajl_status_ok)
        st = yajl_parse(p->yajl, (const unsigned char *)"\n", 1);
    if (st == yajl_status_ok)
        return 0;
    /* The end is parsed as one more chunk; its offsets mean nothing. */
    size_t offset = whole ? p->n : p->piece + yajl_get_bytes_consumed(p->yajl);
    if (offset > p->n)
        offset = p->n;
    if (p->stop == STOP_HANDLER)
        return -1;
    if (p->stop == STOP_DEPTH) {
        char why[64];
        snprintf(why, sizeof why, "nested deeper than %d levels",
                 JSON_MAX_DEPTH);
        return err_at(p, offset > 0 ? offset - 1 : 0, why);
    }
    return err_yajl(p, offset);
}

static int parse(struct parser *p)
{
    const struct json_handler *h = p->h;
    yajl_callbacks cb = {
        .yajl_null = h->null ? on_null : NULL,
        .yajl_boolean = h->boolean ? on_boolean : NULL,
        .yajl_number = h->number ? on_number : NULL,
        .yajl_string = h->string ? on_string : NULL,
        .yajl_map_key = h->key ? on_key : NULL,
        .yajl_start_map = on_begin_object,
        .yajl_end_map = on_end_object,
        .yajl_start_array = on_begin_array,
        .yajl_end_array = on_end_array,
    };
    size_t begin, end, at;

    if (p->n >= 2 && (memcmp(p->text, "\xff\xfe", 2) == 0 ||
                      memcmp(p->text, "\xfe\xff", 2) == 0))
        return err_at(p, 0, "UTF-16 is not supported, JSON is UTF-8");
    for (size_t i = 0; piece_at(p, i, &begin, &end); i++) {
        const char *why = check_text((const unsigned char *)p->text + begin,
                                     end - begin, &at);
        if (why)
            return err_at(p, begin + at, why);
    }
    p->blocks.next = p->blocks.prev = &p->blocks;
    int rc = run_yajl(p, &cb);
    blocks_free(p);
    return rc;
}

int json_events(const char *name, const char *text, size_t n,
                enum qwick_err_code code, const struct json_handler *h,
                void *ctx, struct qwick_err *e)
{
    struct parser p = {
        .h = h,
        .ctx = ctx,
        .name = name,
        .text = text,
        .n = n,
        .code = code,
        .e = e,
    };
    return parse(&p);
}

int json_check(const char *name, const char *text, size_t n,
               enum qwick_err_code code, size_t *at, struct qwick_err *e)
{
    static const struct json_handler ignore_all = {.null = NULL};
    struct parser p = {
        .h = &ignore_all,
        .name = name,
        .text = text,
        .n = n,
        .code = code,
        .e = e,
    };
    int rc = parse(&p);
    *at = p.bad;
    return rc;
}

/* ---- trees --------------------------------------------------------------- */

struct json_doc {
    struct json_value root;
    struct arena arena;
};

/* A value whose container is still open. */
struct pending {
    struct json_value v;
    size_t end; /* offset behind it, keys only */
};

struct builder {
    struct parser *p;
    struct json_doc *doc;
    struct pending *stack;
    size_t len, cap;
    size_t start[JSON_MAX_DEPTH]; /* where each open container begins */
    size_t depth;
    struct hashmap keys; /* scratch of check_keys */
    uint64_t seed;
};

static struct pending *push(struct builder *b, enum json_type type)
{
    if (ARRAY_RESERVE(b->stack, b->cap, b->len + 1, b->p->e))
        return NULL;
    struct pending *v = &b->stack[b->len++];
    memset(v, 0, sizeof *v);
    v->v.type = type;
    return v;
}

static int push_text(struct builder *b, enum json_type type, const char *s,
                     size_t n)
{
    struct pending *v = push(b, type);
    if (!v)
        return -1;
    char *copy = arena_copy(&b->doc->arena, s, n);
    if (!copy)
        return err_oom(b->p->e, n + 1);
    v->v.str = copy;
    v->v.len = n;
    return 0;
}

static int tree_null(void *ctx)
{
    return push(ctx, JSON_NULL) ? 0 : -1;
}

static int tree_boolean(void *ctx, bool value)
{
    struct pending *v = push(ctx, JSON_BOOL);
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
    b->stack[b->len - 1].end =
        b->p->piece + yajl_get_bytes_consumed(b->p->yajl);
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
    /* Back from the closing quote to the opening one: the quote with an even
     * number of backslashes before it. */
    const char *text = b->p->text;
    size_t at = key->end > 0 ? key->end - 1 : 0;
    while (at > 0) {
        size_t slashes = 0;
        at--;
        if (text[at] != '"')
            continue;
        while (slashes < at && text[at - 1 - slashes] == '\\')
            slashes++;
        if (slashes % 2 == 0)
            break;
    }
    struct buf msg = {0};
    int rc =
        buf_puts(&msg, "repeated key ") ||
        buf_json_string(&msg, key->v.str, key->v.len > 200 ? 200 : key->v.len);
    rc = rc ? err_oom(b->p->e, key->v.len) : err_at(b->p, at, msg.data);
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
    if (hashmap_init(&b->keys, n, n, b->p->e))
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
        items = arena_alloc(&b->doc->arena, bytes, _Alignof(struct json_value));
        if (!items)
            return err_oom(b->p->e, bytes);
        for (size_t i = 0; i < n; i++)
            items[i] = m[step * i + step - 1].v;
        if (type == JSON_OBJECT) {
            keys = items + n;
            for (size_t i = 0; i < n; i++)
                keys[i] = m[2 * i].v;
        }
    }
    b->len = start;
    struct pending *v = push(b, type);
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

int json_parse_around(struct json_doc **out, const char *name, const char *text,
                      size_t n, const struct json_gap *gaps, size_t n_gaps,
                      enum qwick_err_code code, struct qwick_err *e)
{
    static const struct json_handler tree = {
        tree_null, tree_boolean,    tree_number, tree_string,    tree_begin,
        tree_key,  tree_end_object, tree_begin,  tree_end_array,
    };
    *out = NULL;
    struct json_doc *doc = calloc(1, sizeof *doc);
    struct builder *b = calloc(1, sizeof *b);
    struct parser p = {
        .h = &tree,
        .ctx = b,
        .name = name,
        .text = text,
        .n = n,
        .gaps = gaps,
        .n_gaps = n_gaps,
        .code = code,
        .e = e,
    };
    int rc;
    if (!doc || !b) {
        rc = err_oom(e, sizeof *doc + sizeof *b);
    } else {
        b->p = &p;
        b->doc = doc;
        rc = parse(&p);
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

const struct json_value *json_root(const struct json_doc *doc)
{
    return &doc->root;
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

static bool is_integer_text(const struct json_value *v)
{
    return strcspn(v->str, ".eE") == v->len;
}

int json_int(const struct json_value *v, int64_t min, int64_t max, int64_t *out)
{
    if (!json_is(v, JSON_NUMBER) || !is_integer_text(v))
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

/* strtod with the point as the decimal separator, in any locale. */
static int read_double(const char *s, double *out)
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
    if (!json_is(v, JSON_NUMBER) || read_double(v->str, &d) || !isfinite(d))
        return -1;
    *out = d;
    return 0;
}

/* ---- Python's json.dumps ------------------------------------------------- */

struct decimal {
    char digits[20]; /* d1 d2 …, no leading zero */
    int n;
    int exp10; /* of d1 */
};

static void decimal_add_one(struct decimal *d)
{
    int i = d->n - 1;
    while (i >= 0 && d->digits[i] == '9')
        d->digits[i--] = '0';
    if (i >= 0) {
        d->digits[i]++;
    } else {
        d->digits[0] = '1'; /* 999 to 1000: one more digit before the point */
        d->exp10++;
    }
}

static bool decimal_reads_as(const struct decimal *d, double v)
{
    char text[40];
    double back;
    snprintf(text, sizeof text, "%.*se%d", d->n, d->digits,
             d->exp10 - d->n + 1);
    return read_double(text, &back) == 0 && back == v;
}

/* The decimal of n digits that is next to v, or if that one does not read
 * back, the one above: next to a power of two the interval that rounds to v is
 * wider above than below. */
static bool decimal_try(struct decimal *d, double v, int n)
{
    char text[64];
    snprintf(text, sizeof text, "%.*e", n - 1, v);
    d->n = 0;
    const char *s = text;
    for (; *s && *s != 'e'; s++) /* the separator is the locale's */
        if (*s >= '0' && *s <= '9' && d->n < n)
            d->digits[d->n++] = *s;
    d->exp10 = *s ? (int)strtol(s + 1, NULL, 10) : 0;
    if (decimal_reads_as(d, v))
        return true;
    decimal_add_one(d);
    return decimal_reads_as(d, v);
}

/* The fewest digits that read back as v > 0, the nearest such. */
static void decimal_shortest(struct decimal *d, double v)
{
    /* 15 digits or fewer are unique for normal numbers, so the 15 digits
     * without their trailing zeros are the shortest. */
    int n = v < 2.2250738585072014e-308 ? 1 : 15;
    while (n < 17 && !decimal_try(d, v, n))
        n++;
    if (n == 17)
        decimal_try(d, v, n);
    while (d->n > 1 && d->digits[d->n - 1] == '0')
        d->n--;
}

static int dump_double(struct buf *out, const char *s)
{
    double v;
    if (read_double(s, &v))
        return -1;
    if (signbit(v) && buf_putc(out, '-'))
        return -1;
    v = fabs(v);
    if (isinf(v))
        return buf_puts(out, "Infinity");
    if (v == 0)
        return buf_puts(out, "0.0");
    struct decimal d;
    decimal_shortest(&d, v);
    if (d.exp10 < -4 || d.exp10 >= 16) {
        char sign = d.exp10 < 0 ? '-' : '+';
        int x = d.exp10 < 0 ? -d.exp10 : d.exp10;
        if (d.n == 1)
            return buf_printf(out, "%ce%c%02d", d.digits[0], sign, x);
        return buf_printf(out, "%c.%.*se%c%02d", d.digits[0], d.n - 1,
                          d.digits + 1, sign, x);
    }
    if (d.exp10 < 0)
        return buf_printf(out, "0.%.*s%.*s", -d.exp10 - 1, "000", d.n,
                          d.digits);
    int whole = d.exp10 + 1; /* digits before the point */
    if (d.n <= whole)
        return buf_printf(out, "%.*s%.*s.0", d.n, d.digits, whole - d.n,
                          "000000000000000");
    return buf_printf(out, "%.*s.%.*s", whole, d.digits, d.n - whole,
                      d.digits + whole);
}

static int dump_number(struct buf *out, const struct json_value *v)
{
    if (!is_integer_text(v))
        return dump_double(out, v->str);
    if (strcmp(v->str, "-0") == 0) /* an int in Python */
        return buf_putc(out, '0');
    return buf_append(out, v->str, v->len);
}

static int dump_string(struct buf *out, const struct json_value *v)
{
    const char *s = v->str, *end = s + v->len;
    if (buf_putc(out, '"'))
        return -1;
    while (s < end) {
        const char *run = s;
        while (s < end && (unsigned char)*s >= 0x20 && *s != '"' && *s != '\\')
            s++;
        if (s > run && buf_append(out, run, (size_t)(s - run)))
            return -1;
        if (s == end)
            break;
        static const char plain[] = "\"\\\n\r\t\f\b",
                          short_form[] = "\"\\nrtfb";
        unsigned char c = (unsigned char)*s++;
        const char *at = c ? strchr(plain, c) : NULL;
        int rc = at ? buf_printf(out, "\\%c", short_form[at - plain])
                    : buf_printf(out, "\\u%04x", c);
        if (rc)
            return -1;
    }
    return buf_putc(out, '"');
}

/* Recursion is as deep as the tree, at most JSON_MAX_DEPTH. */
int json_dump_python(struct buf *out, const struct json_value *v)
{
    size_t before = out->len;
    int rc = 0;
    switch (v->type) {
    case JSON_NULL:
        rc = buf_puts(out, "null");
        break;
    case JSON_BOOL:
        rc = buf_puts(out, v->boolean ? "true" : "false");
        break;
    case JSON_NUMBER:
        rc = dump_number(out, v);
        break;
    case JSON_STRING:
        rc = dump_string(out, v);
        break;
    case JSON_ARRAY:
    case JSON_OBJECT: {
        bool object = v->type == JSON_OBJECT;
        rc = buf_putc(out, object ? '{' : '[');
        for (size_t i = 0; i < v->len && !rc; i++) {
            if (i > 0)
                rc = buf_puts(out, ", ");
            if (!rc && object)
                rc = dump_string(out, &v->keys[i]) || buf_puts(out, ": ");
            if (!rc)
                rc = json_dump_python(out, &v->items[i]);
        }
        if (!rc)
            rc = buf_putc(out, object ? '}' : ']');
        break;
    }
    }
    if (rc && out->data) {
        out->len = before;
        out->data[before] = '\0';
    }
    return rc ? -1 : 0;
}
