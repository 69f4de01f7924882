#include "file/gguf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/buf.h"
#include "file/gguf_int.h"

struct gguf {
    char *path;
    struct gguf_meta meta; /* of the first part */
    struct st_set *set;
};

static const char magic[4] = {'G', 'G', 'U', 'F'};

enum {
    MIN_ALIGNMENT = 8,
    DEFAULT_ALIGNMENT = 32,
    MAX_ALIGNMENT = 1 << 16,
    MAX_PARTS = 1 << 12
};

/* ---- types ----------------------------------------------------------------
 */

/* ggml's numbers. A type without rows here is known by name only, to refuse it.
 */
static const struct {
    uint32_t number;
    const char *name; /* NULL: of dtype */
    enum dtype dtype;
} tensor_types[] = {
    {0, NULL, DT_F32},      {1, NULL, DT_F16},      {2, NULL, DT_Q4_0},
    {3, NULL, DT_Q4_1},     {6, NULL, DT_Q5_0},     {7, NULL, DT_Q5_1},
    {8, NULL, DT_Q8_0},     {10, NULL, DT_Q2_K},    {11, NULL, DT_Q3_K},
    {12, NULL, DT_Q4_K},    {13, NULL, DT_Q5_K},    {14, NULL, DT_Q6_K},
    {20, NULL, DT_IQ4_NL},  {23, NULL, DT_IQ4_XS},  {24, NULL, DT_I8},
    {25, NULL, DT_I16},     {26, NULL, DT_I32},     {27, NULL, DT_I64},
    {28, NULL, DT_F64},     {30, NULL, DT_BF16},    {16, NULL, DT_IQ2_XXS},
    {17, NULL, DT_IQ2_XS},  {18, NULL, DT_IQ3_XXS}, {19, NULL, DT_IQ1_S},
    {21, NULL, DT_IQ3_S},   {22, NULL, DT_IQ2_S},   {29, NULL, DT_IQ1_M},
    {34, NULL, DT_TQ1_0},   {35, NULL, DT_TQ2_0},   {39, NULL, DT_MXFP4},
    {40, NULL, DT_NVFP4},   {9, "Q8_1", DT_COUNT},  {15, "Q8_K", DT_COUNT},
    {41, "Q1_0", DT_COUNT},
};

/* ---- one file -------------------------------------------------------------
 */

struct entry {
    struct st_tensor t;
    size_t offset;
};

/* A file while it is read. */
struct part {
    struct gguf_reader r;
    struct gguf_meta meta;
    struct entry *v;
    size_t n, cap;
    size_t alignment;
};

__attribute__((format(printf, 3, 4))) static int
err_entry(const struct part *p, const struct entry *t, const char *fmt, ...)
{
    char why[160];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    return err_set(p->r.e, QWICK_ERR_MODEL, "%s: tensor %s: %s", p->r.path,
                   ERR_SHOW(t->t.name, t->t.name_len), why);
}

static int read_type(const struct part *p, struct entry *t, uint32_t number)
{
    const size_t n = sizeof tensor_types / sizeof *tensor_types;
    for (size_t i = 0; i < n; i++) {
        if (tensor_types[i].number != number)
            continue;
        t->t.dtype = tensor_types[i].dtype;
        if (!tensor_types[i].name)
            return 0;
        return err_set(p->r.e, QWICK_ERR_MODEL,
                       "%s: tensor %s: type %s is not supported (F32, F16, "
                       "BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, "
                       "IQ1_S to IQ4_XS, TQ1_0, TQ2_0, MXFP4 and NVFP4 are)",
                       p->r.path, ERR_SHOW(t->t.name, t->t.name_len),
                       tensor_types[i].name);
    }
    return err_entry(p, t, "unknown type %u", number);
}

uint32_t gguf_type_number(enum dtype type)
{
    size_t i = 0;
    while (tensor_types[i].name || tensor_types[i].dtype != type)
        i++;
    return tensor_types[i].number;
}

/* The bytes of a tensor whose shape and type are known. */
static int measure(const struct part *p, struct entry *t)
{
    size_t block = dtype_block(t->t.dtype), n = dtype_bytes(t->t.dtype);
    size_t cols = t->t.rank ? t->t.shape[t->t.rank - 1] : 1;
    bool empty = false, overflow = false;
    if (cols % block)
        return err_entry(p, t,
                         "rows of %zu elements are not a multiple of the "
                         "type's block of %zu",
                         cols, block);
    /* Zeros last, so that no order of multiplying by shape can overflow. */
    for (size_t i = 0; i < t->t.rank; i++) {
        size_t d = i + 1 == t->t.rank ? cols / block : t->t.shape[i];
        if (d == 0)
            empty = true;
        else if (size_mul(n, d, &n))
            overflow = true;
    }
    if (overflow)
        return err_entry(p, t, "its size overflows");
    t->t.n_bytes = empty ? 0 : n;
    return 0;
}

static int read_tensor(struct part *p, struct entry *t)
{
    static const char what[] = "a tensor's entry";
    struct gguf_reader *r = &p->r;
    uint32_t rank, type;
    uint64_t dims[GGUF_MAX_DIMS], offset;
    if (gguf_string(r, &t->t.name, &t->t.name_len, "a tensor's name") ||
        gguf_u32(r, &rank, what))
        return -1;
    if (rank > GGUF_MAX_DIMS)
        return err_entry(p, t, "%u dimensions, %d are the most", rank,
                         GGUF_MAX_DIMS);
    for (size_t i = 0; i < rank; i++) {
        if (gguf_u64(r, &dims[i], what))
            return -1;
        if (dims[i] > INT64_MAX)
            return err_entry(p, t, "a dimension of %llu overflows",
                             (unsigned long long)dims[i]);
    }
    if (gguf_u32(r, &type, what) || gguf_u64(r, &offset, what) ||
        read_type(p, t, type))
        return -1;
    t->t.rank = rank;
    for (size_t i = 0; i < rank; i++)
        t->t.shape[i] = (size_t)dims[rank - 1 - i];
    t->offset = (size_t)offset;
    return measure(p, t);
}

static int read_tensors(struct part *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        struct entry t = {0};
        if (read_tensor(p, &t) || ARRAY_RESERVE(p->v, p->cap, p->n + 1, p->r.e))
            return -1;
        p->v[p->n++] = t;
    }
    return 0;
}

static int read_alignment(struct part *p)
{
    uint64_t n;
    if (gguf_meta_uint(&p->meta, p->r.path, "general.alignment",
                       DEFAULT_ALIGNMENT, UINT64_MAX, &n, p->r.e))
        return -1;
    if (n < MIN_ALIGNMENT || n > MAX_ALIGNMENT || (n & (n - 1)))
        return err_set(p->r.e, QWICK_ERR_MODEL,
                       "%s: general.alignment: must be a power of two from %d "
                       "to %d, is %llu",
                       p->r.path, MIN_ALIGNMENT, MAX_ALIGNMENT,
                       (unsigned long long)n);
    p->alignment = (size_t)n;
    return 0;
}

static int read_counts(struct part *p, uint64_t *n_tensors, uint64_t *n_keys)
{
    struct gguf_reader *r = &p->r;
    uint32_t version;
    const unsigned char *head = gguf_take(r, sizeof magic, "the header");
    if (!head)
        return -1;
    if (memcmp(head, magic, sizeof magic) != 0)
        return err_set(r->e, QWICK_ERR_MODEL,
                       "%s: does not begin with GGUF: not a GGUF file",
                       r->path);
    if (gguf_u32(r, &version, "the header"))
        return -1;
    if (version && !(version & 0xFFFF))
        return err_set(r->e, QWICK_ERR_MODEL,
                       "%s: big-endian GGUF is not supported", r->path);
    if (version != 2 && version != 3)
        return err_set(r->e, QWICK_ERR_MODEL,
                       "%s: GGUF version %u is not supported (2 and 3 are)",
                       r->path, version);
    if (gguf_u64(r, n_tensors, "the header") ||
        gguf_u64(r, n_keys, "the header"))
        return -1;
    /* an entry takes 13 bytes at least, a tensor's 24 */
    size_t left = r->n - r->at;
    if (*n_keys > GGUF_MAX_KEYS || *n_keys > left / 13)
        return err_set(r->e, QWICK_ERR_MODEL,
                       "%s: says that it has %llu metadata entries, in %zu "
                       "bytes (%d are the most)",
                       r->path, (unsigned long long)*n_keys, left,
                       GGUF_MAX_KEYS);
    if (*n_tensors > GGUF_MAX_TENSORS || *n_tensors > left / 24)
        return err_set(r->e, QWICK_ERR_MODEL,
                       "%s: says that it has %llu tensors, in %zu bytes (%d "
                       "are the most)",
                       r->path, (unsigned long long)*n_tensors, left,
                       GGUF_MAX_TENSORS);
    return 0;
}

static int by_offset(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    /* empty ones first; then in order of their entries in the file */
    if (!x->t.n_bytes != !y->t.n_bytes)
        return x->t.n_bytes ? 1 : -1;
    return x->t.name < y->t.name ? -1 : x->t.name > y->t.name;
}

/* The next multiple of the alignment; -1 when it overflows. */
static int align(const struct part *p, size_t at, size_t *out)
{
    if (size_add(at, p->alignment - 1, out))
        return -1;
    *out -= *out % p->alignment;
    return 0;
}

/* The tensors, sorted, must fill the file from byte `begin` on. */
static int check_layout(const struct part *p, size_t begin)
{
    size_t at = 0, end = 0, least, most;
    for (size_t i = 0; i < p->n; i++) {
        const struct entry *t = &p->v[i];
        if (t->offset < end)
            return err_entry(p, t,
                             "begins at %zu and overlaps the tensor "
                             "before it, which ends at %zu",
                             t->offset, end);
        if (t->offset != at)
            return err_entry(p, t, "begins at %zu, should begin at %zu",
                             t->offset, at);
        if (size_add(at, t->t.n_bytes, &end) || align(p, end, &at))
            return err_entry(p, t, "its size overflows");
    }
    if (size_add(begin, end, &least) || size_add(begin, at, &most))
        return err_set(p->r.e, QWICK_ERR_MODEL,
                       "%s: its tensors end at %zu, outside any file",
                       p->r.path, end);
    /* Without tensors, the padding before them may also be missing. */
    if (p->n == 0 && p->r.n <= most)
        return 0;
    if (p->r.n < least)
        return err_incomplete(p->r.e, "%s: truncated: its tensors need %zu bytes of file, there are %zu",
                       p->r.path, least, p->r.n);
    if (p->r.n > most)
        return err_set(p->r.e, QWICK_ERR_MODEL,
                       "%s: %zu bytes after the end of the last tensor: the "
                       "file should have %zu bytes and has %zu",
                       p->r.path, p->r.n - most, most, p->r.n);
    return 0;
}

/* Move the tensors of a part to the set, whose last file it is. */
static int add_tensors(struct st_set *set, const struct part *p, size_t begin)
{
    size_t first = st_count(set);
    for (size_t i = 0; i < p->n; i++) {
        struct st_tensor t = p->v[i].t;
        /* a copy ends with NUL */
        t.name = arena_copy(st_set_text(set), t.name, t.name_len);
        if (!t.name)
            return err_oom(p->r.e, t.name_len);
        if (st_set_add(set, &t, p->r.path, p->r.e))
            return -1;
    }
    if (check_layout(p, begin))
        return -1;
    for (size_t i = 0; i < p->n; i++)
        st_set_data(set, first + i, p->r.data + begin + p->v[i].offset);
    return 0;
}

static int read_part(struct st_set *set, struct part *p)
{
    uint64_t n_tensors, n_keys;
    size_t begin;
    if (read_counts(p, &n_tensors, &n_keys) ||
        gguf_read_meta(&p->meta, &p->r, n_keys) || read_alignment(p) ||
        read_tensors(p, n_tensors))
        return -1;
    if (align(p, p->r.at, &begin))
        return err_oom(p->r.e, p->r.at);
    if (p->n > 0)
        qsort(p->v, p->n, sizeof *p->v, by_offset);
    return add_tensors(set, p, begin);
}

/* Map a file into the set and read it. The caller frees p's metadata. */
static int open_part(struct st_set *set, struct part *p, const char *path,
                     struct qwick_err *e)
{
    const char *slash = strrchr(path, '/');
    struct map map;
    *p = (struct part){0};
    if (map_open(&map, path, e) ||
        st_set_shard(set, slash ? slash + 1 : path, &map, e))
        return -1;
    p->r = (struct gguf_reader){
        .data = map.data, .n = map.size, .path = path, .e = e};
    int rc = read_part(set, p);
    free(p->v);
    p->v = NULL;
    return rc;
}

/* ---- files that were split ------------------------------------------------
 */

/* "-00001-of-00003.gguf" */
enum { TAIL = 20 };

/* The name of part i (from 0) of n. */
static void part_tail(char out[TAIL + 1], size_t i, size_t n)
{
    snprintf(out, TAIL + 1, "-%05zu-of-%05zu.gguf", (i + 1) % 100000,
             n % 100000);
}

/* Read the number i of a part, and the number n of parts; n is 0 or 1 if the
 * file is not split. */
static int read_split(const struct gguf_meta *m, const char *path, size_t *i,
                      size_t *n, struct qwick_err *e)
{
    uint64_t no, count;
    if (gguf_meta_uint(m, path, "split.no", 0, MAX_PARTS, &no, e) ||
        gguf_meta_uint(m, path, "split.count", 0, MAX_PARTS, &count, e))
        return -1;
    *i = (size_t)no;
    *n = (size_t)count;
    if (no && no >= count)
        return err_set(
            e, QWICK_ERR_MODEL,
            "%s: split.no: part %llu of %llu, they are numbered from "
            "0",
            path, (unsigned long long)no, (unsigned long long)count);
    return 0;
}

/* Part i of n at path. */
static int open_other(struct gguf *g, const char *path, size_t i, size_t n,
                      struct qwick_err *e)
{
    struct part p;
    size_t no = 0, count = 0;
    int rc = open_part(g->set, &p, path, e);
    if (!rc)
        rc = read_split(&p.meta, path, &no, &count, e);
    if (!rc && (no != i || count != n))
        rc = err_set(e, QWICK_ERR_MODEL,
                     "%s: split.no %zu and split.count %zu, should be %zu and "
                     "%zu by its name",
                     path, no, count, i, n);
    gguf_free_meta(&p.meta);
    return rc;
}

/* The other parts of the file whose first part has been read. */
static int open_others(struct gguf *g, struct qwick_err *e)
{
    size_t i, n, len = strlen(g->path);
    uint64_t total;
    char tail[TAIL + 1];
    if (read_split(&g->meta, g->path, &i, &n, e))
        return -1;
    if (n < 2)
        return 0;
    part_tail(tail, i, n);
    if (len < TAIL || strcmp(g->path + len - TAIL, tail) != 0)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: is part %zu of %zu, but its name does not end in "
                       "%s",
                       g->path, i + 1, n, tail);
    part_tail(tail, 0, n);
    if (i > 0)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: is part %zu of %zu: name the first part, "
                       "%.*s%s",
                       g->path, i + 1, n, (int)(len - TAIL), g->path, tail);
    char *path = strdup(g->path);
    if (!path)
        return err_oom(e, len + 1);
    int rc = 0;
    for (size_t k = 1; k < n && !rc; k++) {
        part_tail(path + len - TAIL, k, n);
        rc = open_other(g, path, k, n, e);
    }
    free(path);
    if (rc || gguf_meta_uint(&g->meta, g->path, "split.tensors.count",
                             st_count(g->set), GGUF_MAX_TENSORS, &total, e))
        return -1;
    if (total != st_count(g->set))
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: split.tensors.count: %llu, but its parts have %zu "
                       "tensors",
                       g->path, (unsigned long long)total, st_count(g->set));
    return 0;
}

/* ---- the whole ------------------------------------------------------------
 */

int gguf_open(struct gguf **out, const char *path, struct qwick_err *e)
{
    *out = NULL;
    struct gguf *g = calloc(1, sizeof *g);
    if (!g)
        return err_oom(e, sizeof *g);
    g->path = strdup(path);
    if (!g->path) {
        err_oom(e, strlen(path) + 1);
        goto fail;
    }
    struct part p = {0};
    if (st_set_new(&g->set, e))
        goto fail;
    int rc = open_part(g->set, &p, g->path, e);
    g->meta = p.meta;
    if (rc || open_others(g, e))
        goto fail;
    *out = g;
    return 0;
fail:
    gguf_close(g);
    return -1;
}

void gguf_close(struct gguf *g)
{
    if (!g)
        return;
    gguf_free_meta(&g->meta);
    st_close(g->set);
    free(g->path);
    free(g);
}

bool gguf_is(const struct map *map)
{
    return map->size >= sizeof magic &&
           memcmp(map->data, magic, sizeof magic) == 0;
}

const char *gguf_path(const struct gguf *g)
{
    return g->path;
}

struct st_set *gguf_tensors(const struct gguf *g)
{
    return g->set;
}

size_t gguf_count(const struct gguf *g)
{
    return g->meta.n;
}

const struct gguf_value *gguf_at(const struct gguf *g, size_t i)
{
    return i < g->meta.n ? &g->meta.values[i] : NULL;
}

const struct gguf_value *gguf_find(const struct gguf *g, const char *key)
{
    return gguf_meta_find(&g->meta, key);
}

const struct gguf_value *gguf_need(const struct gguf *g, const char *key,
                                   enum gguf_type type, enum gguf_type element,
                                   bool *found, struct qwick_err *e)
{
    const struct gguf_value *v = gguf_find(g, key);
    *found = v != NULL;
    if (!v)
        return NULL;
    if (v->type == GGUF_ARRAY && type == GGUF_ARRAY && v->element != element) {
        err_set(e, QWICK_ERR_MODEL, "%s: %s: must be an array of %s, has %s",
                g->path, key, gguf_type_name(element),
                gguf_type_name(v->element));
        return NULL;
    }
    if (v->type != type) {
        err_set(e, QWICK_ERR_MODEL, "%s: %s: must be of type %s, is %s",
                g->path, key, gguf_type_name(type), gguf_type_name(v->type));
        return NULL;
    }
    return v;
}
