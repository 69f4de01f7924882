#include "file/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/buf.h"
#include "base/utf8.h"
#include "file/gguf.h"
#include "file/json.h"
#include "file/map.h"
#include "file/name_table.h"

static const char index_name[] = "model.safetensors.index.json";
static const char single_name[] = "model.safetensors";

enum { MAX_HEADER_BYTES = 100000000 };

/* ---- headers ------------------------------------------------------------- */

enum field { FIELD_DTYPE, FIELD_SHAPE, FIELD_OFFSETS, FIELD_OTHER };

struct entry {
    struct st_tensor t;
    size_t begin, end;
    bool seen[FIELD_OTHER];
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
                               "the end of what is before it (%zu)",
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
        return err_set(h->e, QWICK_ERR_MODEL,
                       "%s: truncated: tensor %s needs %zu bytes of file, "
                       "there are %zu: incomplete download?",
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
        return err_set(h->e, QWICK_ERR_MODEL,
                       "%s: %zu bytes are too few for a safetensors file: "
                       "incomplete download?",
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
        return err_set(h->e, QWICK_ERR_MODEL,
                       "%s: truncated: a header of %llu bytes, but the file "
                       "has %zu: incomplete download?",
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

/* Read the header of a new shard of the set, whose mapping m the set has taken
 * over; path is for messages. */
static int read_shard(struct st_set *set, const struct map *m, const char *path,
                      struct qwick_err *e)
{
    struct header h = {.path = path, .e = e, .text = st_set_text(set)};
    int rc = -1;

    if (read_header(&h, m))
        goto done;
    size_t first = st_count(set);
    for (size_t i = 0; i < h.n; i++)
        if (st_set_add(set, &h.v[i].t, path, e))
            goto done;
    /* Repeated names first: where offsets are equal too, they say more. */
    size_t n_head = 8;
    for (int i = 7; i >= 0; i--)
        n_head += (size_t)m->data[i] << 8 * i;
    if (check_layout(&h, n_head, m->size - n_head))
        goto done;
    for (size_t i = 0; i < h.n; i++)
        st_set_data(set, first + i, m->data + n_head + h.v[i].begin);
    rc = 0;
done:
    free(h.v);
    return rc;
}

/* ---- the index ----------------------------------------------------------- */

struct placement {
    const char *tensor;
    size_t n;
    size_t shard;
};

struct index {
    const char *path;
    struct qwick_err *e;
    struct arena text;
    struct placement *v;
    size_t n, cap;
    struct name_table shards;
    int depth;
    bool in_map, map_seen;
    const char *tensor; /* the last key of the map */
    size_t tensor_len;
};

static int err_index(const struct index *x, const char *why)
{
    return err_set(x->e, QWICK_ERR_MODEL, "%s: %s", x->path, why);
}

static const char bad_map[] = "weight_map: must be an object of strings";

static int index_scalar(struct index *x)
{
    if (x->depth == 0)
        return err_index(x, "is not a JSON object");
    return x->in_map ? err_index(x, bad_map) : 0;
}

static int index_null(void *ctx)
{
    return index_scalar(ctx);
}

static int index_boolean(void *ctx, bool v)
{
    (void)v;
    return index_scalar(ctx);
}

static int index_number(void *ctx, const char *s, size_t n)
{
    (void)s;
    (void)n;
    return index_scalar(ctx);
}

static int index_begin_object(void *ctx)
{
    struct index *x = ctx;
    if (x->in_map && x->depth != 1)
        return err_index(x, bad_map);
    x->depth++;
    return 0;
}

static int index_begin_array(void *ctx)
{
    struct index *x = ctx;
    if (index_scalar(x))
        return -1;
    x->depth++;
    return 0;
}

static int index_end(void *ctx)
{
    struct index *x = ctx;
    if (--x->depth == 1)
        x->in_map = false;
    return 0;
}

static int index_key(void *ctx, const char *s, size_t n)
{
    struct index *x = ctx;
    if (x->depth == 1) {
        x->in_map = n == 10 && memcmp(s, "weight_map", 10) == 0;
        if (!x->in_map)
            return 0;
        if (x->map_seen)
            return err_index(x, "repeated weight_map");
        x->map_seen = true;
        return 0;
    }
    if (!x->in_map)
        return 0;
    x->tensor = arena_copy(&x->text, s, n);
    x->tensor_len = n;
    return x->tensor ? 0 : err_oom(x->e, n + 1);
}

static bool is_plain_name(const char *s, size_t n)
{
    return n > 0 && !memchr(s, '/', n) && !memchr(s, '\0', n) &&
           !(n == 1 && s[0] == '.') && !(n == 2 && s[0] == '.' && s[1] == '.');
}

static int err_shard(const struct index *x, const char *s, size_t n,
                     const char *why)
{
    char tensor[ERR_SHOWN], shard[ERR_SHOWN];
    return err_set(x->e, QWICK_ERR_MODEL, "%s: tensor %s: the shard \"%s\" %s",
                   x->path, err_show(tensor, x->tensor, x->tensor_len),
                   err_show(shard, s, n), why);
}

static int index_string(void *ctx, const char *s, size_t n)
{
    static const char suffix[] = ".safetensors";
    const size_t n_suffix = sizeof suffix - 1;
    struct index *x = ctx;
    if (x->depth != 2 || !x->in_map)
        return index_scalar(x);
    if (!is_plain_name(s, n))
        return err_shard(x, s, n, "is not a plain file name");
    if (n <= n_suffix || memcmp(s + n - n_suffix, suffix, n_suffix) != 0)
        return err_shard(x, s, n, "is not named *.safetensors");
    if (ARRAY_RESERVE(x->v, x->cap, x->n + 1, x->e))
        return -1;
    size_t shard;
    if (name_table_find(&x->shards, s, n, &shard)) {
        const char *copy = arena_copy(&x->text, s, n);
        if (!copy || name_table_add(&x->shards, copy, n, &shard) < 0)
            return err_oom(x->e, n + 1);
    }
    x->v[x->n++] = (struct placement){x->tensor, x->tensor_len, shard};
    return 0;
}

static int read_index(struct index *x, const struct map *m)
{
    static const struct json_handler events = {
        .null = index_null,
        .boolean = index_boolean,
        .number = index_number,
        .string = index_string,
        .begin_object = index_begin_object,
        .key = index_key,
        .end_object = index_end,
        .begin_array = index_begin_array,
        .end_array = index_end,
    };
    if (json_events(x->path, (const char *)m->data, m->size, QWICK_ERR_MODEL,
                    &events, x, x->e))
        return -1;
    if (!x->map_seen)
        return err_index(x, "weight_map is missing");
    if (x->n == 0)
        return err_index(x, "weight_map is empty");
    return 0;
}

/* Every tensor of the index is in its shard, and named once. */
static int check_index(const struct index *x, const struct st_set *set,
                       struct qwick_err *e)
{
    char name[ERR_SHOWN], shard[ERR_SHOWN];
    struct name_table seen = {0};
    int rc = 0;
    for (size_t i = 0; i < x->n && !rc; i++) {
        const struct placement *p = &x->v[i];
        const struct name *file = &x->shards.names[p->shard];
        size_t at;
        int fresh = name_table_add(&seen, p->tensor, p->n, &at);
        if (fresh < 0) {
            rc = err_oom(e, x->n * sizeof(struct name));
            continue;
        }
        const struct st_tensor *here = st_find_n(set, p->tensor, p->n);
        if (fresh && here && strcmp(here->file, file->s) == 0)
            continue;
        err_show(name, p->tensor, p->n);
        err_show(shard, file->s, file->n);
        if (!fresh)
            rc = err_set(e, QWICK_ERR_MODEL, "%s: tensor %s: repeated", x->path,
                         name);
        else if (!here)
            rc = err_set(e, QWICK_ERR_MODEL,
                         "%s: tensor %s: is not in the shard %s", x->path, name,
                         shard);
        else
            rc = err_set(e, QWICK_ERR_MODEL,
                         "%s: tensor %s: is not in the shard %s but in %s",
                         x->path, name, shard, here->file);
    }
    name_table_free(&seen);
    return rc;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int open_file(struct st_set *set, const struct checkpoint *ck,
                     const char *name, bool *found, struct qwick_err *e)
{
    struct map map;
    char path[4200];
    if (checkpoint_map(ck, name, &map, found, e))
        return -1;
    if (!*found)
        return 0;
    checkpoint_path(ck, name, path, sizeof path);
    if (st_set_shard(set, name, &map, e))
        return -1;
    return read_shard(set, &map, path, e);
}

static int open_by_index(struct st_set *set, const struct checkpoint *ck,
                         const struct map *m, struct qwick_err *e)
{
    char path[4200];
    checkpoint_path(ck, index_name, path, sizeof path);
    struct index x = {.path = path, .e = e};
    const char **names = NULL;
    int rc = read_index(&x, m);
    if (rc)
        goto done;
    names = calloc(x.shards.n, sizeof *names);
    if (!names) {
        rc = err_oom(e, x.shards.n * sizeof *names);
        goto done;
    }
    for (size_t i = 0; i < x.shards.n; i++)
        names[i] = x.shards.names[i].s;
    qsort(names, x.shards.n, sizeof *names, by_text);
    for (size_t i = 0; i < x.shards.n && !rc; i++) {
        bool found;
        rc = open_file(set, ck, names[i], &found, e);
        if (!rc && !found) {
            char shard[ERR_SHOWN];
            rc = err_set(e, QWICK_ERR_MODEL,
                         "%s: the shard %s is missing in %s: incomplete "
                         "download?",
                         path, err_show(shard, names[i], strlen(names[i])),
                         checkpoint_dir(ck));
        }
    }
    if (!rc)
        rc = check_index(&x, set, e);
done:
    free(names);
    free(x.v);
    name_table_free(&x.shards);
    arena_free(&x.text);
    return rc;
}

/* Files with weights in formats that we do not read. */
static const struct {
    const char *suffix, *format;
} others[] = {
    {".bin", "PyTorch's"},  {".pth", "PyTorch's"}, {".pt", "PyTorch's"},
    {".ckpt", "PyTorch's"}, {".onnx", "ONNX"},     {".h5", "TensorFlow's"},
    {".msgpack", "Flax's"}, {".npz", "NumPy's"},
};

static int err_no_weights(const struct checkpoint *ck, struct qwick_err *e)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char **names, shown[ERR_SHOWN];
        size_t n;
        if (checkpoint_list(ck, others[i].suffix, &names, &n, e))
            return -1;
        if (n)
            err_show(shown, names[0], strlen(names[0]));
        checkpoint_list_free(names, n);
        if (n)
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: no weights in safetensors format: %s is in %s "
                           "format, which is not supported",
                           checkpoint_dir(ck), shown, others[i].format);
    }
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: no weights: none of %s, %s, *.safetensors is there",
                   checkpoint_dir(ck), index_name, single_name);
}

static int open_all(struct st_set *set, const struct checkpoint *ck,
                    struct qwick_err *e)
{
    char **names;
    size_t n;
    if (checkpoint_list(ck, ".safetensors", &names, &n, e))
        return -1;
    int rc = 0;
    bool found;
    for (size_t i = 0; i < n && !rc; i++)
        rc = open_file(set, ck, names[i], &found, e);
    if (n == 0)
        rc = err_no_weights(ck, e);
    checkpoint_list_free(names, n);
    return rc;
}

int st_open(struct st_set **out, const struct checkpoint *ck,
            struct qwick_err *e)
{
    const struct gguf *g = checkpoint_gguf(ck);
    *out = NULL;
    if (g) {
        *out = st_set_share(gguf_tensors(g));
        return 0;
    }
    struct st_set *set;
    if (st_set_new(&set, e))
        return -1;
    struct map index;
    bool found;
    int rc = checkpoint_map_small(ck, index_name, &index, &found, e);
    if (!rc && found) {
        rc = open_by_index(set, ck, &index, e);
        map_close(&index);
    } else if (!rc) {
        rc = open_file(set, ck, single_name, &found, e);
        if (!rc && !found)
            rc = open_all(set, ck, e);
    }
    if (rc) {
        st_close(set);
        return -1;
    }
    *out = set;
    return 0;
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
        read_shard(set, &map, path, e)) {
        st_close(set);
        return -1;
    }
    *out = set;
    return 0;
}
