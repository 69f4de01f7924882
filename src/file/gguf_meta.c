/* The metadata of GGUF files. */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "file/gguf_int.h"

static const struct {
    const char *name;
    size_t bytes; /* 0: of any length */
} types[GGUF_N_TYPES] = {
    [GGUF_U8] = {"u8", 1},         [GGUF_I8] = {"i8", 1},
    [GGUF_U16] = {"u16", 2},       [GGUF_I16] = {"i16", 2},
    [GGUF_U32] = {"u32", 4},       [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},       [GGUF_BOOL] = {"bool", 1},
    [GGUF_STRING] = {"string", 0}, [GGUF_ARRAY] = {"array", 0},
    [GGUF_U64] = {"u64", 8},       [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

const char *gguf_type_name(enum gguf_type type)
{
    return types[type].name;
}

/* ---- bytes ----------------------------------------------------------------
 */

const unsigned char *gguf_take(struct gguf_reader *r, size_t n,
                               const char *what)
{
    if (n > r->n - r->at) {
        err_incomplete(r->e, "%s: truncated: %s at byte %zu has %zu bytes, the file ends after %zu",
                r->path, what, r->at, n, r->n);
        return NULL;
    }
    const unsigned char *p = r->data + r->at;
    r->at += n;
    return p;
}

static uint64_t load_le(const unsigned char *p, size_t n)
{
    uint64_t v = 0;
    while (n-- > 0)
        v = v << 8 | p[n];
    return v;
}

int gguf_u32(struct gguf_reader *r, uint32_t *out, const char *what)
{
    const unsigned char *p = gguf_take(r, 4, what);
    *out = p ? (uint32_t)load_le(p, 4) : 0;
    return p ? 0 : -1;
}

int gguf_u64(struct gguf_reader *r, uint64_t *out, const char *what)
{
    const unsigned char *p = gguf_take(r, 8, what);
    *out = p ? load_le(p, 8) : 0;
    return p ? 0 : -1;
}

int gguf_string(struct gguf_reader *r, const char **s, size_t *n,
                const char *what)
{
    uint64_t len;
    *s = "";
    *n = 0;
    if (gguf_u64(r, &len, what))
        return -1;
    const unsigned char *p = gguf_take(r, (size_t)len, what);
    if (!p)
        return -1;
    *s = (const char *)p;
    *n = (size_t)len;
    return 0;
}

/* ---- values ---------------------------------------------------------------
 */

static int err_key(const struct gguf_reader *r, const struct gguf_value *v,
                   const char *why, uint64_t number)
{
    return err_set(r->e, QWICK_ERR_MODEL, "%s: %s: %s %llu", r->path,
                   ERR_SHOW(v->key, v->key_len), why,
                   (unsigned long long)number);
}

/* The number of this type at p, which has types[type].bytes bytes. */
static int read_number(const struct gguf_reader *r, struct gguf_value *v,
                       const unsigned char *p)
{
    size_t n = types[v->type].bytes;
    uint64_t bits = load_le(p, n);
    float f;
    switch (v->type) {
    case GGUF_BOOL:
        if (bits > 1)
            return err_key(r, v, "a bool must be 0 or 1, is", bits);
        v->u = bits;
        return 0;
    case GGUF_F32:
        memcpy(&f, &(uint32_t){(uint32_t)bits}, sizeof f);
        v->f = (double)f;
        return 0;
    case GGUF_F64:
        memcpy(&v->f, &bits, sizeof v->f);
        return 0;
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64:
        /* sign-extend */
        v->i = (int64_t)(bits << (64 - 8 * n)) >> (64 - 8 * n);
        return 0;
    default:
        v->u = bits;
        return 0;
    }
}

/* Skip n strings. A tokenizer has several 100,000. */
static int skip_strings(struct gguf_reader *r, size_t n, const char *what)
{
    const unsigned char *p = r->data;
    size_t at = r->at, end = r->n;
    for (; n > 0 && end - at >= 8; n--) {
        uint64_t len;
        memcpy(&len, p + at, 8);
        len = le64toh(len);
        if (len > end - at - 8)
            break;
        at += 8 + (size_t)len;
    }
    r->at = at;
    const char *s;
    size_t len;
    /* the first that does not fit has the message */
    return n > 0 ? gguf_string(r, &s, &len, what) : 0;
}

static int read_array(struct gguf_reader *r, struct gguf_value *v,
                      const char *what)
{
    uint32_t element;
    uint64_t n;
    if (gguf_u32(r, &element, what) || gguf_u64(r, &n, what))
        return -1;
    if (element >= GGUF_N_TYPES)
        return err_key(r, v, "an array of an unknown type,", element);
    if (element == GGUF_ARRAY)
        return err_set(r->e, QWICK_ERR_MODEL,
                       "%s: %s: an array of arrays is not supported", r->path,
                       ERR_SHOW(v->key, v->key_len));
    /* a string takes at least its length */
    size_t least = element == GGUF_STRING ? 8 : types[element].bytes;
    if (n > (r->n - r->at) / least)
        return err_incomplete(r->e, "%s: %s: truncated: an array of %llu %s, but only %zu bytes are left",
                       r->path, ERR_SHOW(v->key, v->key_len),
                       (unsigned long long)n, types[element].name,
                       r->n - r->at);
    v->element = (enum gguf_type)element;
    v->n = (size_t)n;
    v->data = r->data + r->at;
    const unsigned char *begin = v->data;
    if (element != GGUF_STRING)
        (void)gguf_take(r, v->n * least, what);
    else if (skip_strings(r, v->n, what))
        return -1;
    v->n_bytes = (size_t)(r->data + r->at - begin);
    return 0;
}

static int read_value(struct gguf_reader *r, struct gguf_value *v)
{
    uint32_t type;
    char what[ERR_SHOWN];
    const char *s;
    if (gguf_string(r, &v->key, &v->key_len, "a key"))
        return -1;
    err_show(what, v->key, v->key_len);
    if (gguf_u32(r, &type, what))
        return -1;
    if (type >= GGUF_N_TYPES)
        return err_key(r, v, "unknown type of value,", type);
    v->type = (enum gguf_type)type;
    if (v->type == GGUF_ARRAY)
        return read_array(r, v, what);
    if (v->type == GGUF_STRING) {
        if (gguf_string(r, &s, &v->n_bytes, what))
            return -1;
        v->data = (const unsigned char *)s;
        return 0;
    }
    v->n_bytes = types[type].bytes;
    v->data = gguf_take(r, v->n_bytes, what);
    return v->data ? read_number(r, v, v->data) : -1;
}

int gguf_read_meta(struct gguf_meta *m, struct gguf_reader *r, uint64_t n)
{
    size_t other;
    for (uint64_t i = 0; i < n; i++) {
        struct gguf_value v = {0};
        if (read_value(r, &v))
            return -1;
        if (ARRAY_RESERVE(m->values, m->cap, m->n + 1, r->e))
            return -1;
        int fresh = name_table_add(&m->keys, v.key, v.key_len, &other);
        if (fresh < 0)
            return err_oom(r->e, m->n * sizeof(struct name));
        if (!fresh)
            return err_set(r->e, QWICK_ERR_MODEL, "%s: %s: repeated key",
                           r->path, ERR_SHOW(v.key, v.key_len));
        m->values[m->n++] = v;
    }
    return 0;
}

void gguf_free_meta(struct gguf_meta *m)
{
    free(m->values);
    name_table_free(&m->keys);
    *m = (struct gguf_meta){0};
}

const struct gguf_value *gguf_meta_find(const struct gguf_meta *m,
                                        const char *key)
{
    size_t i;
    return name_table_find(&m->keys, key, strlen(key), &i) ? NULL
                                                           : &m->values[i];
}

int gguf_meta_uint(const struct gguf_meta *m, const char *path, const char *key,
                   uint64_t dflt, uint64_t max, uint64_t *out,
                   struct qwick_err *e)
{
    const struct gguf_value *v = gguf_meta_find(m, key);
    *out = dflt;
    if (!v)
        return 0;
    bool is_signed = v->type == GGUF_I8 || v->type == GGUF_I16 ||
                     v->type == GGUF_I32 || v->type == GGUF_I64;
    bool is_unsigned = v->type == GGUF_U8 || v->type == GGUF_U16 ||
                       v->type == GGUF_U32 || v->type == GGUF_U64;
    if (!is_signed && !is_unsigned)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: must be an integer, is of type %s", path, key,
                       gguf_type_name(v->type));
    if (is_signed && v->i < 0)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: must be from 0 to %llu, is %lld", path, key,
                       (unsigned long long)max, (long long)v->i);
    uint64_t n = is_signed ? (uint64_t)v->i : v->u;
    if (n > max)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: must be from 0 to %llu, is %llu", path, key,
                       (unsigned long long)max, (unsigned long long)n);
    *out = n;
    return 0;
}

float gguf_f32_at(const struct gguf_value *v, size_t i)
{
    uint32_t bits = (uint32_t)load_le(v->data + i * sizeof bits, sizeof bits);
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

int64_t gguf_int_at(const struct gguf_value *v, size_t i)
{
    size_t n = types[v->element].bytes;
    uint64_t bits = load_le(v->data + i * n, n);
    bool is_signed = v->element == GGUF_I8 || v->element == GGUF_I16 ||
                     v->element == GGUF_I32 || v->element == GGUF_I64;
    return is_signed ? (int64_t)(bits << (64 - 8 * n)) >> (64 - 8 * n)
                     : (int64_t)bits;
}
