#include "file/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/buf.h"
#include "file/json.h"
#include "file/map.h"
#include "file/safetensors_int.h"

enum { MAX_HEADER_BYTES = 100000000 };

/* ---- headers ------------------------------------------------------------- */

enum field { FIELD_DTYPE, FIELD_SHAPE, FIELD_OFFSETS, FIELD_OTHER };

struct entry {
    struct st_tensor t;
    size_t begin, end;
    bool seen[FIELD_OTHER];
    bool dropped; /* the set does not keep it */
};

/* Where the events are: depth 1 in the header's object, 2 in a tensor's or
 * __metadata__, 3 in an array of a tensor. */
struct header {
    const char *path; /* for messages */
    struct qwick_err *e;
    struct arena *text;
    struct entry *v;
    size_t n, cap;
    int depth;
    size_t skip; /* depth inside the value of a field that is not ours */
    bool in_metadata, metadata_seen;
    enum field field;
    size_t n_offsets;
};

static int err_tensor(const struct header *h, const char *why)
{
    char name[ERR_SHOWN];
    const struct st_tensor *t = &h->v[h->n - 1].t;
    return err_set(h->e, QWICK_ERR_MODEL, "%s: tensor %s: %s", h->path,
                   err_show(name, t->name, t->name_len), why);
}

/* A value of the wrong type, or in the wrong place. */
static int err_value(const struct header *h)
{
    if (h->depth == 0)
        return err_set(h->e, QWICK_ERR_MODEL, "%s: header is not a JSON object",
                       h->path);
    if (h->in_metadata)
        return err_set(h->e, QWICK_ERR_MODEL,
                       "%s: __metadata__: must be an object of strings",
                       h->path);
    if (h->depth == 1)
        return err_tensor(h, "must be an object");
    switch (h->field) {
    case FIELD_DTYPE:
        return err_tensor(h, "dtype: must be a string");
    case FIELD_SHAPE:
        return err_tensor(h, "shape: must be an array of integers >= 0");
    case FIELD_OFFSETS:
        return err_tensor(h, "data_offsets: must be two integers >= 0");
    case FIELD_OTHER:
        break;
    }
    return err_tensor(h, "ill-formed");
}

static int on_scalar(struct header *h)
{
    return h->skip > 0 ||
                   (h->depth == 2 && !h->in_metadata && h->field == FIELD_OTHER)
               ? 0
               : err_value(h);
}

static int on_null(void *ctx)
{
    return on_scalar(ctx);
}

static int on_boolean(void *ctx, bool v)
{
    (void)v;
    return on_scalar(ctx);
}

/* Digits only, as the format's writers put them. */
static int read_size(const char *s, size_t n, size_t *out)
{
    size_t v = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9' || size_mul(v, 10, &v) ||
            size_add(v, (size_t)(s[i] - '0'), &v))
            return -1;
    }
    *out = v;
    return 0;
}

static int on_number(void *ctx, const char *s, size_t n)
{
    struct header *h = ctx;
    size_t v;
    if (h->skip > 0 || h->depth != 3)
        return on_scalar(h);
    if (read_size(s, n, &v))
        return err_value(h);
    struct entry *t = &h->v[h->n - 1];
    if (h->field == FIELD_OFFSETS) {
        if (h->n_offsets == 2)
            return err_value(h);
        *(h->n_offsets++ == 0 ? &t->begin : &t->end) = v;
        return 0;
    }
    if (t->t.rank == ST_MAX_RANK)
        return err_tensor(h, "shape: more than 8 dimensions");
    t->t.shape[t->t.rank++] = v;
    return 0;
}

static int on_string(void *ctx, const char *s, size_t n)
{
    struct header *h = ctx;
    if (h->skip > 0 || (h->depth == 2 && h->in_metadata))
        return 0;
    if (h->depth != 2 || h->field != FIELD_DTYPE)
        return on_scalar(h);
    if (dtype_parse(s, n, &h->v[h->n - 1].t.dtype)) {
        char why[ERR_SHOWN + 32], name[ERR_SHOWN];
        snprintf(why, sizeof why, "unknown dtype %s", err_show(name, s, n));
        return err_tensor(h, why);
    }
    return 0;
}

static int on_begin_object(void *ctx)
{
    struct header *h = ctx;
    if (h->skip > 0 || (h->depth == 2 && on_scalar(h) == 0)) {
        h->skip++;
        return 0;
    }
    if (h->depth >= 2)
        return err_value(h);
    h->depth++;
    return 0;
}

static int on_begin_array(void *ctx)
{
    struct header *h = ctx;
    if (h->skip > 0) {
        h->skip++;
        return 0;
    }
    if (h->depth == 2 && !h->in_metadata &&
        (h->field == FIELD_SHAPE || h->field == FIELD_OFFSETS)) {
        h->depth++;
        h->n_offsets = 0;
        return 0;
    }
    if (h->depth == 2 && on_scalar(h) == 0) {
        h->skip++;
        return 0;
    }
    return err_value(h);
}

static int on_end_array(void *ctx)
{
    struct header *h = ctx;
    if (h->skip > 0) {
        h->skip--;
        return 0;
    }
    h->depth--;
    if (h->field == FIELD_OFFSETS && h->n_offsets != 2)
        return err_value(h);
    return 0;
}

static int add_tensor(struct header *h, const char *s, size_t n)
{
    if (ARRAY_RESERVE(h->v, h->cap, h->n + 1, h->e))
        return -1;
    struct entry *t = &h->v[h->n];
    *t = (struct entry){0};
    t->t.name = arena_copy(h->text, s, n);
    t->t.name_len = n;
    if (!t->t.name)
        return err_oom(h->e, n + 1);
    h->n++;
    return 0;
}

static int on_key(void *ctx, const char *s, size_t n)
{
    static const char metadata[] = "__metadata__";
    static const char *const fields[] = {"dtype", "shape", "data_offsets"};
    struct header *h = ctx;

    if (h->skip > 0)
        return 0;
    if (h->depth == 1) {
        h->in_metadata =
            n == sizeof metadata - 1 && memcmp(s, metadata, n) == 0;
        if (!h->in_metadata)
            return add_tensor(h, s, n);
        if (h->metadata_seen)
            return err_set(h->e, QWICK_ERR_MODEL, "%s: repeated __metadata__",
                           h->path);
        h->metadata_seen = true;
        return 0;
    }
    if (h->in_metadata)
        return 0;
    h->field = FIELD_DTYPE;
    while (h->field < FIELD_OTHER && (strlen(fields[h->field]) != n ||
                                      memcmp(fields[h->field], s, n) != 0))
        h->field++;
    if (h->field == FIELD_OTHER)
        return 0;
    bool *seen = &h->v[h->n - 1].seen[h->field];
    if (*seen) {
        char why[64];
        snprintf(why, sizeof why, "repeated %s", fields[h->field]);
        return err_tensor(h, why);
    }
    *seen = true;
    return 0;
}

/* All of a tensor but its place in the file has been read. */
static int finish_tensor(struct header *h)
{
    struct entry *t = &h->v[h->n - 1];
    char why[160], shape[96];
    size_t bytes = dtype_bytes(t->t.dtype), at = 0;
    bool overflow = false, empty = false;

    if (!t->seen[FIELD_DTYPE])
        return err_tensor(h, "dtype is missing");
    if (!t->seen[FIELD_SHAPE])
        return err_tensor(h, "shape is missing");
    if (!t->seen[FIELD_OFFSETS])
        return err_tensor(h, "data_offsets is missing");
    /* Zeros last, so that no order of multiplying by shape can overflow. */
    for (size_t i = 0; i < t->t.rank; i++) {
        if (t->t.shape[i] == 0)
            empty = true;
        else if (size_mul(bytes, t->t.shape[i], &bytes))
            overflow = true;
    }
    if (empty)
        bytes = 0;
    if (overflow)
        return err_tensor(h, "shape: its size overflows");
    if (t->end < t->begin) {
        snprintf(why, sizeof why, "data_offsets: end %zu before begin %zu",
                 t->end, t->begin);
        return err_tensor(h, why);
    }
    if (t->end - t->begin != bytes) {
        for (size_t i = 0; i < t->t.rank && at < sizeof shape; i++)
            at += (size_t)snprintf(shape + at, sizeof shape - at, "%s%zu",
                                   i ? ", " : "", t->t.shape[i]);
        snprintf(why, sizeof why,
                 "shape [%.64s] of %s is %zu bytes, data_offsets are %zu",
                 t->t.rank ? shape : "", dtype_name(t->t.dtype), bytes,
                 t->end - t->begin);
        return err_tensor(h, why);
    }
    t->t.n_bytes = bytes;
    return 0;
}

static int on_end_object(void *ctx)
{
    struct header *h = ctx;
    if (h->skip > 0) {
        h->skip--;
        return 0;
    }
    if (--h->depth != 1)
        return 0;
    if (!h->in_metadata)
        return finish_tensor(h);
    h->in_metadata = false;
    return 0;
}

static int by_offset(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    /* Empty tensors at one place: any order, but always the same. */
    size_t n = x->t.name_len < y->t.name_len ? x->t.name_len : y->t.name_len;
    int d = memcmp(x->t.name, y->t.name, n);
    if (d == 0 && x->t.name_len != y->t.name_len)
        return x->t.name_len < y->t.name_len ? -1 : 1;
    return d;
}

/* The tensors, sorted, must fill the n_data bytes behind the header. */
static int check_layout(const struct header *h, size_t n_head, size_t n_data)
{
    char name[ERR_SHOWN], before[ERR_SHOWN] = "";
    size_t at = 0;
    for (size_t i = 0; i < h->n; i++) {
        const struct entry *t = &h->v[i];
        if (t->begin != at) {
            const struct st_tensor *p = i > 0 ? &h->v[i - 1].t : NULL;
            err_show(name, t->t.name, t->t.name_len);
            if (t->begin > at)
                return err_set(h->e, QWICK_ERR_MODEL,
                               "%s: tensor %s: begins at %zu, %zu bytes after "
                               "the end of the data before it (%zu)",
                               h->path, name, t->begin, t->begin - at, at);
            return err_set(h->e, QWICK_ERR_MODEL,
                           "%s: tensor %s: begins at %zu and overlaps tensor "
                           "%s, which ends at %zu",
                           h->path, name, t->begin,
                           p ? err_show(before, p->name, p->name_len) : "", at);
        }
        at = t->end;
    }
    if (at == n_data)
        return 0;
    err_show(name, h->n ? h->v[h->n - 1].t.name : "",
             h->n ? h->v[h->n - 1].t.name_len : 0);
    size_t expected;
    if (size_add(n_head, at, &expected))
        return err_set(h->e, QWICK_ERR_MODEL,
                       "%s: tensor %s: ends at %zu, outside any file", h->path,
                       name, at);
    if (at > n_data)
        return err_incomplete(h->e, "%s: truncated: tensor %s needs %zu bytes of file, there are %zu",
                       h->path, name, expected, n_head + n_data);
    return err_set(h->e, QWICK_ERR_MODEL,
                   "%s: %zu bytes after the end of the last tensor %s: the "
                   "file should have %zu bytes and has %zu",
                   h->path, n_data - at, name, expected, n_head + n_data);
}

static int read_header(struct header *h, const struct map *m)
{
    static const struct json_handler events = {
        .null = on_null,
        .boolean = on_boolean,
        .number = on_number,
        .string = on_string,
        .begin_object = on_begin_object,
        .key = on_key,
        .end_object = on_end_object,
        .begin_array = on_begin_array,
        .end_array = on_end_array,
    };
    if (m->size < 8)
        return err_incomplete(h->e, "%s: %zu bytes are too few for a safetensors file",
                       h->path, m->size);
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | m->data[i];
    if (n > MAX_HEADER_BYTES)
        return err_set(h->e, QWICK_ERR_MODEL,
                       "%s: header length %llu is above the limit of %d: not "
                       "a safetensors file?",
                       h->path, (unsigned long long)n, MAX_HEADER_BYTES);
    if (n > m->size - 8)
        return err_incomplete(h->e, "%s: truncated: a header of %llu bytes, but the file has %zu",
                       h->path, (unsigned long long)n, m->size);
    if (n < 2)
        return err_set(h->e, QWICK_ERR_MODEL,
                       "%s: header length %llu is too short for JSON", h->path,
                       (unsigned long long)n);
    /* json_events would skip it; the format does not have it. */
    if (n >= 3 && memcmp(m->data + 8, "\xef\xbb\xbf", 3) == 0)
        return err_set(h->e, QWICK_ERR_MODEL,
                       "%s: header begins with a byte order mark", h->path);
    char name[4200];
    snprintf(name, sizeof name, "%s: header", h->path);
    if (json_events(name, (const char *)m->data + 8, (size_t)n, QWICK_ERR_MODEL,
                    &events, h, h->e))
        return -1;
    if (h->n > 0)
        qsort(h->v, h->n, sizeof *h->v, by_offset);
    return 0;
}

int st_read_shard(struct st_set *set, const struct map *m, const char *path,
                  st_keep_fn keep, void *ctx, struct qwick_err *e)
{
    struct header h = {.path = path, .e = e, .text = st_set_text(set)};
    int rc = -1;

    if (read_header(&h, m))
        goto done;
    size_t at = st_count(set);
    for (size_t i = 0; i < h.n; i++) {
        const struct st_tensor *t = &h.v[i].t;
        h.v[i].dropped = keep && !keep(ctx, t->name, t->name_len);
        if (!h.v[i].dropped && st_set_add(set, t, path, e))
            goto done;
    }
    /* Repeated names first: where offsets are equal too, they say more. */
    size_t n_head = 8;
    for (int i = 7; i >= 0; i--)
        n_head += (size_t)m->data[i] << 8 * i;
    if (check_layout(&h, n_head, m->size - n_head))
        goto done;
    for (size_t i = 0; i < h.n; i++)
        if (!h.v[i].dropped)
            st_set_data(set, at++, m->data + n_head + h.v[i].begin);
    rc = 0;
done:
    free(h.v);
    return rc;
}

int st_open_file(struct st_set **out, const char *path, struct qwick_err *e)
{
    *out = NULL;
    struct st_set *set;
    if (st_set_new(&set, e))
        return -1;
    const char *slash = strrchr(path, '/');
    struct map map;
    if (map_open(&map, path, e) ||
        st_set_shard(set, slash ? slash + 1 : path, &map, e) ||
        st_read_shard(set, &map, path, NULL, NULL, e)) {
        st_close(set);
        return -1;
    }
    *out = set;
    return 0;
}
