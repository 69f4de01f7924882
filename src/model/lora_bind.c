/* Places of LoRA adapters in a model: which matrix each pair of tensors adapts,
 * and in which order it has the rows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/hash.h"
#include "model/layer.h"
#include "model/lora.h"
#include "model/lora_files.h"
#include "model/model.h"

enum { MAX_PARTS = 3, LINE_FLOATS = 16 };

/* A pair of a file, and a matrix that takes rows of its B. */
struct bound {
    size_t place, adapter;
    const struct lora_file *file;
    const struct lora_pair *pair;
    size_t row;   /* of B, where the matrix begins */
    double scale; /* of all factors of the file */
};

struct binder {
    struct model *m;
    struct lora_file *files; /* [n_files] */
    size_t n_files;
    struct bound *v;
    size_t n, cap;
};

/* ---- names --------------------------------------------------------------- */

/* Read the number at *at and move on. */
static bool read_number(const char **at, size_t *out)
{
    const char *p = *at;
    size_t n = 0;
    if (*p < '0' || *p > '9' || (*p == '0' && p[1] >= '0' && p[1] <= '9'))
        return false;
    for (; *p >= '0' && *p <= '9'; p++) {
        n = n * 10 + (size_t)(*p - '0');
        if (n > INT32_MAX)
            return false;
    }
    *at = p;
    *out = n;
    return true;
}

static bool matches(const char *pattern, const char *prefix, const char *name,
                    struct weight_ref *ref)
{
    for (; *pattern; pattern++) {
        size_t n = *pattern == '@' ? strlen(prefix) : 1;
        if (*pattern == '#' || *pattern == '*') {
            if (!read_number(&name,
                             *pattern == '#' ? &ref->layer : &ref->expert))
                return false;
        } else {
            if (strncmp(name, *pattern == '@' ? prefix : pattern, n) != 0)
                return false;
            name += n;
        }
    }
    return !*name;
}

bool lora_find_weight(struct weight_ref *ref, const struct names *names,
                      const char *name)
{
    for (size_t id = 0; id < N_WEIGHTS; id++)
        for (size_t v = 0; v < NAMES_MAX_VARIANTS && names->of[id][v]; v++)
            for (size_t i = 0; names->prefixes[i]; i++) {
                *ref = (struct weight_ref){.id = (enum weight_id)id};
                if (matches(names->of[id][v], names->prefixes[i], name, ref))
                    return true;
            }
    return false;
}

static bool is_gguf_scheme(const struct names *names)
{
    return strcmp(names->config, "config.json") != 0;
}

/* Find the weight of a pair in the schemes of its container. */
static bool find_ref(const struct model *m, const struct lora_file *f,
                     const char *name, struct weight_ref *ref)
{
    const struct arch *a = m->config.arch, *gguf = arch_in_gguf(a);
    for (size_t i = 0; a->names[i]; i++)
        if (is_gguf_scheme(a->names[i]) == f->is_gguf &&
            lora_find_weight(ref, a->names[i], name))
            return true;
    return f->is_gguf && gguf->gguf_names &&
           lora_find_weight(ref, gguf->gguf_names, name);
}

/* ---- places -------------------------------------------------------------- */

static bool is_delta(enum weight_id id)
{
    return id >= WEIGHT_DELTA_QKV && id <= WEIGHT_DELTA_OUT;
}

/* The matrix of a recurrent layer's inputs, which are in this order: QKVZ, or
 * QKV and Z; then BA, or B and A. */
static struct matrix *delta_input(struct delta *d,
                                  const struct delta_config *c,
                                  enum weight_id id)
{
    size_t both = delta_channels(c) + c->n_v_heads * c->d_v;
    bool qkvz = d->n_inputs > 1 && d->inputs[0].rows == both;
    size_t second = qkvz || d->n_inputs == 1 ? 1 : 2;
    bool ba = d->n_inputs == second + 1;
    const struct {
        enum weight_id id;
        size_t i;
        bool has;
    } all[] = {{WEIGHT_DELTA_QKVZ, 0, qkvz},
               {WEIGHT_DELTA_QKV, 0, !qkvz},
               {WEIGHT_DELTA_Z, 1, !qkvz},
               {WEIGHT_DELTA_BA, second, ba},
               {WEIGHT_DELTA_B, second, !ba},
               {WEIGHT_DELTA_A, second + 1, !ba}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].id == id && all[i].has && all[i].i < d->n_inputs)
            return &d->inputs[all[i].i];
    return NULL;
}

/* The matrices whose rows follow each other in a weight. Returns their number;
 * 0: no adapter may have it. */
static size_t list_parts(struct model *m, struct weight_ref ref,
                         struct matrix *out[MAX_PARTS])
{
    struct layer *l = &m->layers[ref.layer];
    struct attention *a = &l->attn;
    struct mlp *mlp = &l->mlp;
    switch (ref.id) {
    case WEIGHT_Q_PROJ:
        return (out[0] = &a->q_proj, 1);
    case WEIGHT_K_PROJ:
        return (out[0] = &a->k_proj, 1);
    case WEIGHT_V_PROJ:
        return (out[0] = &a->v_proj, 1);
    case WEIGHT_O_PROJ:
        return (out[0] = &a->o_proj, 1);
    case WEIGHT_QKV_PROJ:
        out[0] = &a->q_proj;
        out[1] = &a->k_proj;
        out[2] = &a->v_proj;
        return 3;
    case WEIGHT_GATE_PROJ:
        return (out[0] = &mlp->gate_proj, 1);
    case WEIGHT_UP_PROJ:
        return (out[0] = &mlp->up_proj, 1);
    case WEIGHT_DOWN_PROJ:
        return (out[0] = &mlp->down_proj, 1);
    case WEIGHT_GATE_UP_PROJ:
        out[0] = &mlp->gate_proj;
        out[1] = &mlp->up_proj;
        return 2;
    case WEIGHT_DELTA_OUT:
        return (out[0] = &l->delta.out, 1);
    default:
        out[0] = delta_input(&l->delta, &m->config.delta, ref.id);
        return is_delta(ref.id) && out[0] ? 1 : 0;
    }
}

/* The name, in messages, of a weight that no adapter may have. */
static const char *kind_of(enum weight_id id)
{
    if (id == WEIGHT_EMBED || id == WEIGHT_PLE_EMBED || id == WEIGHT_POSITIONS ||
        id == WEIGHT_TYPES)
        return "an embedding";
    if (id == WEIGHT_HEAD)
        return "the head";
    if (id >= WEIGHT_ROUTER && id <= WEIGHT_SHARED_GATE)
        return id == WEIGHT_ROUTER || id == WEIGHT_SHARED_GATE ? "a router"
                                                               : "experts";
    return "such a weight";
}

static int refuse(const struct lora_file *f, const struct lora_pair *p,
                  const char *why, struct qwick_err *e)
{
    return err_set(e, QWICK_ERR_MODEL, "%s: tensor %s: %s", f->path,
                   p->a->name, why);
}

/* Value heads may have another order in the other container. */
static bool other_heads(const struct model *m, const struct lora_file *f,
                        enum weight_id id)
{
    return is_delta(id) && m->config.delta.n_k_heads &&
           is_gguf_scheme(m->weights.naming.names) != f->is_gguf;
}

static int find_parts(struct model *m, const struct lora_file *f,
                      const struct lora_pair *p, struct weight_ref *ref,
                      struct matrix *out[MAX_PARTS], size_t *n,
                      struct qwick_err *e)
{
    char why[160];
    if (!find_ref(m, f, p->name, ref)) {
        snprintf(why, sizeof why, "the model, %.60s, has no such matrix",
                 m->config.model_type);
        return refuse(f, p, why, e);
    }
    if (ref->layer >= m->config.n_layers) {
        snprintf(why, sizeof why, "is of layer %zu, the model has %zu layers",
                 ref->layer, m->config.n_layers);
        return refuse(f, p, why, e);
    }
    if (other_heads(m, f, ref->id))
        return refuse(f, p,
                      "an adapter of linear attention must have the container "
                      "of the model (GGUF or safetensors)",
                      e);
    *n = list_parts(m, *ref, out);
    if (!*n) {
        snprintf(why, sizeof why, "adapts %s, which is not supported",
                 kind_of(ref->id));
        return refuse(f, p, why, e);
    }
    for (size_t i = 0; i < *n; i++)
        if (!out[i]->rows) {
            snprintf(why, sizeof why, "layer %zu has no such matrix",
                     ref->layer);
            return refuse(f, p, why, e);
        }
    return 0;
}

static int check_shape(const struct lora_file *f, const struct lora_pair *p,
                       struct matrix *const *parts, size_t n,
                       struct qwick_err *e)
{
    size_t rows = 0, cols = parts[0]->cols;
    size_t has_cols = p->a->shape[f->transposed ? 0 : 1],
           has_rows = p->b->shape[f->transposed ? 1 : 0];
    for (size_t i = 0; i < n; i++)
        rows += parts[i]->rows;
    if (has_cols != cols)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: tensor %s: takes %zu elements, the model's matrix "
                       "takes %zu",
                       f->path, p->a->name, has_cols, cols);
    return has_rows == rows
               ? 0
               : err_set(e, QWICK_ERR_MODEL,
                         "%s: tensor %s: has %zu rows, the model's matrix has "
                         "%zu",
                         f->path, p->b->name, has_rows, rows);
}

/* The place of a matrix; a new one if it has none yet. */
static int find_place(struct loras *l, struct matrix *w, struct weight_ref ref,
                      size_t *out, struct qwick_err *e)
{
    for (*out = 0; *out < l->n_places; ++*out)
        if (l->places[*out].w == w)
            return 0;
    if (ARRAY_RESERVE(l->places, l->cap_places, l->n_places + 1, e))
        return -1;
    l->places[l->n_places++] = (struct lora_place){.w = w, .ref = ref};
    return 0;
}

static int bind_pair(struct binder *b, const struct lora_file *f,
                     const struct lora_pair *p, const struct lora_spec *spec,
                     struct qwick_err *e)
{
    struct matrix *parts[MAX_PARTS];
    struct weight_ref ref;
    size_t n = 0, row = 0, place;
    if (find_parts(b->m, f, p, &ref, parts, &n, e) ||
        check_shape(f, p, parts, n, e))
        return -1;
    for (size_t i = 0; i < n && spec->scale != 0; row += parts[i++]->rows) {
        if (find_place(&b->m->loras, parts[i], ref, &place, e) ||
            ARRAY_RESERVE(b->v, b->cap, b->n + 1, e))
            return -1;
        b->v[b->n++] = (struct bound){.place = place,
                                      .adapter = spec->adapter,
                                      .file = f,
                                      .pair = p,
                                      .row = row,
                                      .scale = spec->scale};
    }
    return 0;
}

/* ---- values -------------------------------------------------------------- */

/* Add what a file says to the hash of its adapter. */
static void hash_file(uint64_t hash[2], const struct lora_file *f, double scale)
{
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < f->n_pairs; i++) {
            const struct lora_pair *p = &f->pairs[i];
            const double factors[] = {p->factor, scale};
            hash[k] = hash_bytes(hash[k] + k, p->name, strlen(p->name));
            hash[k] = hash_bytes(hash[k], factors, sizeof factors);
            hash[k] = hash_bytes(hash[k], &p->a->dtype, sizeof p->a->dtype);
            hash[k] = hash_bulk(hash[k], p->a->data, p->a->n_bytes);
            hash[k] = hash_bytes(hash[k], &p->b->dtype, sizeof p->b->dtype);
            hash[k] = hash_bulk(hash[k], p->b->data, p->b->n_bytes);
        }
}

static int check_architecture(const struct model *m, const struct lora_file *f,
                              struct qwick_err *e)
{
    const struct arch *gguf = arch_in_gguf(m->config.arch);
    const char *has = gguf->gguf ? gguf->gguf : "none";
    if (!f->architecture || (strlen(has) == f->n_architecture &&
                             !memcmp(has, f->architecture, strlen(has))))
        return 0;
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: general.architecture: is \"%s\", the model's is \"%s\"",
                   f->path, ERR_SHOW(f->architecture, f->n_architecture), has);
}

static int open_file(struct binder *b, const struct lora_spec *spec,
                     struct qwick_err *e)
{
    struct lora_file *f = &b->files[b->n_files];
    struct lora_facts *facts = &b->m->loras.v[spec->adapter];
    if (lora_file_open(f, spec->path, e))
        return -1;
    b->n_files++;
    if (check_architecture(b->m, f, e))
        return -1;
    for (size_t i = 0; i < f->n_pairs; i++)
        if (bind_pair(b, f, &f->pairs[i], spec, e))
            return -1;
    hash_file(facts->hash, f, spec->scale);
    if (!facts->name && !(facts->name = strdup(spec->name)))
        return err_oom(e, strlen(spec->name));
    return 0;
}

/* Memory that the model owns, zeros. */
static void *make_block(struct loras *l, size_t n, size_t size,
                        struct qwick_err *e)
{
    enum { LINE = 64 };
    size_t bytes;
    if (size_mul(n, size, &bytes) || size_add(bytes, LINE, &bytes)) {
        err_oom(e, SIZE_MAX);
        return NULL;
    }
    if (ARRAY_RESERVE(l->blocks, l->cap_blocks, l->n_blocks + 1, e))
        return NULL;
    void *p = aligned_alloc(LINE, bytes / LINE * LINE);
    if (!p) {
        err_oom(e, bytes);
        return NULL;
    }
    memset(p, 0, bytes / LINE * LINE);
    l->blocks[l->n_blocks++] = p;
    l->n_bytes += n * size;
    return p;
}

/* The widened elements of A [rank, cols] or B [rows, rank]. NULL: out of
 * memory. */
static float *read_half(const struct lora_file *f, const struct st_tensor *t)
{
    size_t rows = t->shape[0], cols = t->shape[1];
    float *in = malloc((rows * cols + 1) * sizeof *in), *out;
    if (!in)
        return NULL;
    kernels_ref()->to_f32[t->dtype](in, t->data, rows * cols);
    if (!f->transposed)
        return in;
    out = malloc((rows * cols + 1) * sizeof *out);
    for (size_t i = 0; out && i < rows; i++)
        for (size_t j = 0; j < cols; j++)
            out[j * rows + i] = in[i * cols + j];
    free(in);
    return out;
}

/* The row of B that belongs to row i of the matrix: files of one container have
 * the rows of a head by pairs that rotate together. Files of the other one have
 * the first rows of all pairs, then the second ones. */
static size_t row_in_file(const struct model *m, const struct lora_file *f,
                          const struct lora_place *p, size_t i)
{
    const struct config *c = &m->config;
    bool is_gguf = is_gguf_scheme(m->weights.naming.names);
    bool rotates = p->w == &m->layers[p->ref.layer].attn.q_proj ||
                   p->w == &m->layers[p->ref.layer].attn.k_proj;
    size_t d = c->layers[p->ref.layer].head_dim, half = c->ropes[0].n_rot / 2;
    if (!rotates || is_gguf == f->is_gguf || c->arch->interleaved ||
        !arch_in_gguf(c->arch)->gguf_interleaved || i % d >= 2 * half)
        return i;
    size_t head = i / d * d, k = i % d;
    return head + (is_gguf ? k % 2 * half + k / 2 : k % half * 2 + k / half);
}

/* Copy a pair to the matrices of its adapter, from rank `at` on. */
static int fill_pair(const struct model *m, const struct bound *b,
                     const struct lora_place *p, size_t at,
                     struct qwick_err *e)
{
    const struct kernels *k = kernels_ref();
    struct lora *l = &p->of[b->adapter];
    size_t rank = lora_pair_rank(b->file, b->pair), cols = p->w->cols,
           size = dtype_bytes(l->a.dtype), all = l->a.rows;
    unsigned char *to_a = (unsigned char *)l->a.data[0],
                  *to_b = (unsigned char *)l->b.data[0];
    float *a = read_half(b->file, b->pair->a),
          *bs = read_half(b->file, b->pair->b);
    if (a && bs) {
        k->from_f32[l->a.dtype](to_a + at * cols * size, a, rank * cols);
        for (size_t i = 0; i < p->w->rows; i++) {
            size_t row = b->row + row_in_file(m, b->file, p, i);
            k->from_f32[l->b.dtype](to_b + (i * all + at) * size,
                                    bs + row * rank, rank);
        }
        for (size_t i = 0; i < rank; i++)
            ((float *)l->factors)[at + i] =
                (float)(b->pair->factor * b->scale);
    }
    int rc = a && bs ? 0 : err_oom(e, p->w->rows * rank * sizeof *bs);
    free(a);
    free(bs);
    return rc;
}

/* A matrix of floats in memory. */
static struct matrix dense(const struct model *m, enum dtype type, size_t rows,
                           size_t cols, const void *data)
{
    const struct format *const of[] = {[DT_F32] = &format_f32,
                                       [DT_F16] = &format_f16,
                                       [DT_BF16] = &format_bf16};
    size_t i = 0;
    while (formats[i] != of[type])
        i++;
    return (struct matrix){.format = formats[i],
                           .ops = &m->weights.ops[i],
                           .rows = rows,
                           .cols = cols,
                           .step = 1,
                           .data = {data},
                           .dtype = type};
}

/* Make the matrices of an adapter at a place, and fill them. */
static int fill_place(struct binder *b, size_t place, size_t adapter,
                      struct qwick_err *e)
{
    struct loras *l = &b->m->loras;
    const struct lora_place *p = &l->places[place];
    size_t rank = 0, at = 0;
    enum dtype type = DT_N_FLOAT;
    for (size_t i = 0; i < b->n; i++) {
        const struct bound *v = &b->v[i];
        if (v->place != place || v->adapter != adapter)
            continue;
        bool same = v->pair->a->dtype == v->pair->b->dtype &&
                    (type == DT_N_FLOAT || type == v->pair->a->dtype);
        type = same ? v->pair->a->dtype : DT_F32;
        rank += lora_pair_rank(v->file, v->pair);
    }
    if (!rank)
        return 0;
    struct lora *to = &p->of[adapter];
    size_t size = dtype_bytes(type);
    void *a = make_block(l, rank * p->w->cols, size, e);
    void *bs = a ? make_block(l, rank * p->w->rows, size, e) : NULL;
    to->factors = bs ? make_block(l, rank, sizeof *to->factors, e) : NULL;
    if (!to->factors)
        return -1;
    to->a = dense(b->m, type, rank, p->w->cols, a);
    to->b = dense(b->m, type, p->w->rows, rank, bs);
    l->v[adapter].n_matrices++;
    if (rank > l->v[adapter].max_rank)
        l->v[adapter].max_rank = rank;
    for (size_t i = 0; i < b->n; i++) {
        const struct bound *v = &b->v[i];
        if (v->place != place || v->adapter != adapter)
            continue;
        if (fill_pair(b->m, v, p, at, e))
            return -1;
        at += lora_pair_rank(v->file, v->pair);
    }
    return 0;
}

/* Give each adapted matrix of a layer columns of its own. */
static int lay_out(struct model *m, struct qwick_err *e)
{
    struct loras *l = &m->loras;
    size_t n_layers = m->config.n_layers;
    size_t *used = calloc(n_layers, sizeof *used);
    if (!used)
        return err_oom(e, n_layers * sizeof *used);
    for (size_t i = 0; i < l->n_places; i++) {
        size_t *at = &used[l->places[i].ref.layer], most = 0;
        for (size_t k = 0; k < l->n; k++) {
            l->places[i].of[k].at = *at;
            if (l->places[i].of[k].a.rows > most)
                most = l->places[i].of[k].a.rows;
        }
        *at += (most + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
        if (*at > l->cols)
            l->cols = *at;
    }
    free(used);
    return 0;
}

static int bind_all(struct binder *b, const struct lora_spec *specs, size_t n,
                    struct qwick_err *e)
{
    struct loras *l = &b->m->loras;
    for (size_t i = 0; i < n; i++)
        if (open_file(b, &specs[i], e))
            return -1;
    for (size_t i = 0; i < l->n_places; i++) {
        struct lora_place *p = &l->places[i];
        if (!(p->of = make_block(l, l->n, sizeof *p->of, e)))
            return -1;
        for (size_t k = 0; k < l->n; k++)
            if (fill_place(b, i, k, e))
                return -1;
    }
    if (lay_out(b->m, e))
        return -1;
    for (size_t i = 0; i < l->n_places; i++)
        l->places[i].w->lora = l->places[i].of;
    return 0;
}

int loras_open(struct model *m, const struct lora_spec *specs, size_t n,
               struct qwick_err *e)
{
    struct binder b = {.m = m};
    struct loras *l = &m->loras;
    if (!n)
        return 0;
    l->n = specs[n - 1].adapter + 1;
    l->v = calloc(l->n, sizeof *l->v);
    b.files = calloc(n, sizeof *b.files);
    int rc = l->v && b.files ? bind_all(&b, specs, n, e)
                             : err_oom(e, n * sizeof *b.files);
    for (size_t i = 0; i < b.n_files; i++)
        lora_file_close(&b.files[i]);
    free(b.files);
    free(b.v);
    return rc;
}

void loras_close(struct loras *l)
{
    for (size_t i = 0; i < l->n_blocks; i++)
        free(l->blocks[i]);
    for (size_t i = 0; l->v && i < l->n; i++)
        free((char *)l->v[i].name);
    free(l->blocks);
    free(l->places);
    free(l->v);
    *l = (struct loras){0};
}
