#include "file/gguf_write.h"

#include <stdlib.h>
#include <string.h>

#include "file/gguf_int.h"

enum { VERSION = 3, ALIGNMENT = 32 };

_Static_assert((int)ALIGNMENT <= (int)ST_MAX_PAD, "padding behind a tensor");

/* ---- numbers --------------------------------------------------------------
 */

static int put_le(struct buf *b, uint64_t v, size_t n)
{
    char bytes[8];
    for (size_t i = 0; i < n; i++)
        bytes[i] = (char)(v >> 8 * i);
    return buf_append(b, bytes, n);
}

static int put_text(struct buf *b, const char *s, size_t n)
{
    return put_le(b, n, 8) || buf_append(b, s, n) ? -1 : 0;
}

static uint32_t bits_of(double v)
{
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* ---- metadata -------------------------------------------------------------
 */

static void put_key_n(struct gguf_out *o, const char *key, size_t n,
                      enum gguf_type type)
{
    o->bad |= put_text(&o->entries, key, n) || put_le(&o->entries, type, 4);
    o->n++;
}

static void put_key(struct gguf_out *o, const char *key, enum gguf_type type)
{
    put_key_n(o, key, strlen(key), type);
}

static void put_number(struct gguf_out *o, const char *key, enum gguf_type type,
                       uint64_t v, size_t n)
{
    put_key(o, key, type);
    o->bad |= put_le(&o->entries, v, n) != 0;
}

void gguf_put_u32(struct gguf_out *o, const char *key, uint32_t v)
{
    put_number(o, key, GGUF_U32, v, 4);
}

void gguf_put_i32(struct gguf_out *o, const char *key, int32_t v)
{
    put_number(o, key, GGUF_I32, (uint32_t)v, 4);
}

void gguf_put_f32(struct gguf_out *o, const char *key, double v)
{
    put_number(o, key, GGUF_F32, bits_of(v), 4);
}

void gguf_put_bool(struct gguf_out *o, const char *key, bool v)
{
    put_number(o, key, GGUF_BOOL, v, 1);
}

void gguf_put_string(struct gguf_out *o, const char *key, const char *s,
                     size_t n)
{
    put_key(o, key, GGUF_STRING);
    gguf_put_element_string(o, s, n);
}

void gguf_put_array(struct gguf_out *o, const char *key, enum gguf_type type,
                    size_t n)
{
    put_key(o, key, GGUF_ARRAY);
    o->bad |= put_le(&o->entries, type, 4) || put_le(&o->entries, n, 8);
}

void gguf_put_element_i32(struct gguf_out *o, int32_t v)
{
    o->bad |= put_le(&o->entries, (uint32_t)v, 4) != 0;
}

void gguf_put_element_f32(struct gguf_out *o, double v)
{
    o->bad |= put_le(&o->entries, bits_of(v), 4) != 0;
}

void gguf_put_element_bool(struct gguf_out *o, bool v)
{
    o->bad |= put_le(&o->entries, v, 1) != 0;
}

void gguf_put_element_string(struct gguf_out *o, const char *s, size_t n)
{
    o->bad |= put_text(&o->entries, s, n) != 0;
}

void gguf_put_value(struct gguf_out *o, const struct gguf_value *v)
{
    put_key_n(o, v->key, v->key_len, v->type);
    if (v->type == GGUF_STRING)
        o->bad |= put_le(&o->entries, v->n_bytes, 8) != 0;
    if (v->type == GGUF_ARRAY)
        o->bad |=
            put_le(&o->entries, v->element, 4) || put_le(&o->entries, v->n, 8);
    o->bad |= buf_append(&o->entries, (const char *)v->data, v->n_bytes) != 0;
}

void gguf_out_free(struct gguf_out *o)
{
    buf_free(&o->entries);
    *o = (struct gguf_out){0};
}

/* ---- the file -------------------------------------------------------------
 */

/* Bytes from `at` to the next multiple of the alignment. */
static size_t padding(size_t at)
{
    return (ALIGNMENT - at % ALIGNMENT) % ALIGNMENT;
}

/* Place a tensor's data behind the data that end at *end. */
static int place(const struct st_out_tensor *t, const char *path, size_t *end,
                 struct st_piece *out, struct qwick_err *e)
{
    size_t n = dtype_bytes(t->dtype), block = dtype_block(t->dtype);
    if (t->rank == 0 || t->rank > GGUF_MAX_DIMS ||
        t->shape[t->rank - 1] % block)
        return err_usage(e,
                         "%s: tensor %s: %zu dimensions, rows of %zu elements: "
                         "GGUF has no such tensor of type %s",
                         path, t->name, t->rank,
                         t->rank ? t->shape[t->rank - 1] : 0,
                         dtype_name(t->dtype));
    for (size_t i = 0; i < t->rank; i++)
        if (size_mul(n, t->shape[i] / (i + 1 == t->rank ? block : 1), &n))
            return err_usage(e, "%s: tensor %s: shape: its size overflows",
                             path, t->name);
    *out = (struct st_piece){.begin = *end, .size = n, .pad = padding(n)};
    if (size_add(*end, n, end) || size_add(*end, out->pad, end))
        return err_usage(e, "%s: tensor %s: its end overflows", path, t->name);
    return 0;
}

static int put_entry(struct buf *b, const struct st_out_tensor *t,
                     size_t offset)
{
    if (put_text(b, t->name, strlen(t->name)) || put_le(b, t->rank, 4))
        return -1;
    for (size_t i = t->rank; i-- > 0;)
        if (put_le(b, t->shape[i], 8))
            return -1;
    return put_le(b, gguf_type_number(t->dtype), 4) || put_le(b, offset, 8) ? -1
                                                                            : 0;
}

static int put_head(struct buf *b, const struct gguf_out *o,
                    const struct st_out_tensor *tensors,
                    const struct st_piece *pieces, size_t n)
{
    if (buf_puts(b, "GGUF") || put_le(b, VERSION, 4) || put_le(b, n, 8) ||
        put_le(b, o->n, 8) || buf_append(b, o->entries.data, o->entries.len))
        return -1;
    for (size_t i = 0; i < n; i++)
        if (put_entry(b, &tensors[i], pieces[i].begin))
            return -1;
    return buf_append(b, (char[ALIGNMENT]){0}, padding(b->len));
}

int gguf_writer_open(struct st_writer **out, const char *path,
                     const struct gguf_out *o,
                     const struct st_out_tensor *tensors, size_t n,
                     struct qwick_err *e)
{
    struct buf head = {0};
    size_t end = 0;
    struct st_piece *pieces = calloc(n + 1, sizeof *pieces);
    int rc = pieces && !o->bad ? 0 : err_oom(e, n * sizeof *pieces);
    *out = NULL;
    for (size_t i = 0; i < n && !rc; i++)
        rc = place(&tensors[i], path, &end, &pieces[i], e);
    if (!rc && put_head(&head, o, tensors, pieces, n))
        rc = err_oom(e, head.len);
    if (!rc)
        rc =
            st_writer_begin(out, path, head.data, head.len, pieces, n, true, e);
    buf_free(&head);
    free(pieces);
    return rc;
}
