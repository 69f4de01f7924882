/* Quantized sources, and weights into which adapters are merged: their tensors as
 * if the file had floats. The plans know nothing else, and elements are widened
 * when they are written. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "convert/quantize.h"
#include "file/checkpoint.h"
#include "model/affine.h"
#include "model/arch.h"
#include "model/transposed.h"

enum { MXFP4_GROUP = 32 };

static bool tail_is(const char *name, size_t n, const char *tail)
{
    size_t m = strlen(tail);
    return n > m && memcmp(name + n - m, tail, m) == 0;
}

/* ---- opening ------------------------------------------------------------- */

/* Modules beside those in MXFP4 may be in MLX's affine format. */
static int check_modules(const struct quant *q, const char *path,
                         struct qwick_err *e)
{
    for (size_t i = 0; i < q->n; i++) {
        const struct quant_params *p = &q->v[i].params;
        if (p->bits && p->mode == QUANT_AFFINE)
            return err_set(e, QWICK_ERR_MODEL,
                           "%s/config.json: %s: %.*s is quantized already (%d "
                           "bits): start from the original",
                           path, q->key, (int)q->v[i].len, q->v[i].module,
                           p->bits);
    }
    return 0;
}

/* Set *out to the matrices in a tensor of quantized elements. */
static bool find_shape(const struct quant *q, const struct st_tensor *t,
                       struct matrix_shape *out)
{
    char module[NAMES_BYTES];
    size_t rank = t->rank, each = 1, n = t->name_len;
    if (n >= NAMES_BYTES || strlen(t->name) != n || !t->n_bytes)
        return false;
    if (t->dtype >= DT_BLOCKS) {
        ; /* of a GGUF file, which counts elements */
    } else if (t->dtype == DT_U8 && tail_is(t->name, n, NAMES_BLOCKS)) {
        rank--;
        each = MXFP4_GROUP;
    } else if (q->stored.groups && t->dtype != DT_F8_E4M3) {
        return quant_stored_shape(q, t, out);
    } else if (t->dtype == DT_U32) {
        n = names_module(t->name);
        memcpy(module, t->name, n);
        module[n] = '\0';
        const struct quant_params p = quant_find(q, module);
        each = p.bits == 8 ? 4 : 8;
        if (p.mode == QUANT_AFFINE)
            return false;
    } else if (tail_is(t->name, n, NAMES_QWEIGHT)) {
        return transposed_shape(q, t, out);
    } else if (t->dtype != DT_F8_E4M3 || tail_is(t->name, n, ".weight_scale")) {
        return false; /* NVFP4's scales have this type, too */
    }
    if (rank != 2 && rank != 3)
        return false;
    *out = (struct matrix_shape){.stack = rank == 3 ? t->shape[0] : 0,
                                 .rows = t->shape[rank - 2],
                                 .cols = t->shape[rank - 1] * each};
    return true;
}

/* The set of floats while it is filled. */
struct packer {
    struct quantize_source *s;
    enum dtype dtype; /* of what is widened */
    const char *path;
    struct matrix *matrices; /* [st_count(s->stored)]; format NULL: none */
    struct matrix_shape *shapes;
};

const struct st_tensor *quantize_factors(const struct quantize_source *s,
                                         const struct st_tensor *t)
{
    char name[NAMES_BYTES];
    int n = snprintf(name, sizeof name, "%.*s.scale",
                     (int)names_module(t->name), t->name);
    return n < NAMES_BYTES ? st_find(s->stored, name) : NULL;
}

/* The factors of a matrix m in blocks are a tensor that the model reads by
 * itself where experts have factors of their own: they then stay beside m. */
static void keep_factors(struct packer *p, const struct st_tensor *t,
                         struct matrix *m)
{
    struct quantize_source *s = p->s;
    const struct config *c = &s->m.config;
    const struct naming *naming = &s->packing.naming;
    char name[NAMES_BYTES];
    for (size_t i = 0; c->arch->blocks.experts_beside && i < c->n_layers; i++) {
        const struct weight_ref ref = {.id = WEIGHT_EXPERT_SCALES, .layer = i};
        names_expand(name, naming->names, naming->prefix, ref, 0);
        const struct st_tensor *own = st_find(s->stored, name);
        if (!own || own != quantize_factors(s, t))
            continue;
        m->factors = NULL;
        s->packing.used[own - st_at(s->stored, 0)] = WEIGHT_UNUSED;
    }
}

/* Whether an adapter is merged into tensor i, which has floats. */
static bool is_merged(const struct quantize_source *s, const struct st_tensor *t,
                      size_t i, struct matrix_shape *out)
{
    if (!s->merges || !s->merges[i].n || t->rank != 2)
        return false;
    *out = (struct matrix_shape){.rows = t->shape[0], .cols = t->shape[1]};
    return true;
}

static int bind_all(struct packer *p, struct qwick_err *e)
{
    struct quantize_source *s = p->s;
    for (size_t i = 0; i < st_count(s->stored); i++) {
        const struct st_tensor *t = st_at(s->stored, i);
        bool found;
        if (!find_shape(&s->m.config.quant, t, &p->shapes[i]) &&
            !is_merged(s, t, i, &p->shapes[i]))
            continue;
        if (weights_named(&s->packing, &p->matrices[i], t->name, &p->shapes[i],
                          &found, e))
            return -1;
        if (p->matrices[i].factors)
            keep_factors(p, t, &p->matrices[i]);
        if (found && p->shapes[i].cols > QUANTIZE_COLS)
            return quantize_err(p->path, t, "rows are too long", e);
    }
    return 0;
}

/* Add tensor `name`, which has the matrices m of the tensor t. */
static int add_floats(struct packer *p, const struct st_tensor *t,
                      const char *name, const struct matrix_shape *shape,
                      const struct matrix *m, struct qwick_err *e)
{
    const size_t dims[] = {shape->stack, shape->rows, shape->cols};
    size_t n = m->rows * m->cols; /* at most two of a byte in the file */
    struct st_tensor new = *t;
    new.name = name;
    new.name_len = strlen(name);
    /* of AWQ and GPTQ, F16 keeps more of codes times scales than BF16 */
    bool f16 = m->stored && m->dtype == DT_F16 && p->dtype == DT_BF16;
    bool floats = t->dtype < DT_N_FLOAT;
    new.dtype = floats && p->dtype != DT_F32 ? t->dtype
                : f16                        ? DT_F16
                                             : p->dtype;
    new.rank = shape->stack ? 3 : 2;
    new.n_bytes = n * dtype_bytes(new.dtype);
    memcpy(new.shape, dims + 3 - new.rank, new.rank * sizeof *dims);
    p->s->packed[st_count(p->s->set)] = *m;
    if (p->s->merges) {
        const struct quantize_merge *merge =
            &p->s->merges[t - st_at(p->s->stored, 0)];
        p->s->merge_of[st_count(p->s->set)] = merge->n ? merge : NULL;
    }
    return st_set_add(p->s->set, &new, p->path, e);
}

/* Whether t has the rows of gate_proj and up_proj of a layer by turns. */
static bool has_turns(const struct packer *p, const struct st_tensor *t,
                      size_t *layer)
{
    const struct config *c = &p->s->m.config;
    const struct naming *naming = &p->s->packing.naming;
    char name[NAMES_BYTES];
    size_t n = names_module(t->name);
    for (*layer = 0; c->arch->alternate_experts && *layer < c->n_layers;
         ++*layer) {
        const struct weight_ref ref = {.id = WEIGHT_EXPERTS_GATE_UP,
                                       .layer = *layer};
        names_expand(name, naming->names, naming->prefix, ref, 0);
        if (n == strlen(name) && memcmp(name, t->name, n) == 0)
            return true;
    }
    return false;
}

/* Add gate_proj and up_proj, as MLX's checkpoints have them. */
static int add_turns(struct packer *p, size_t i, size_t layer,
                     struct qwick_err *e)
{
    static const enum weight_id ids[] = {WEIGHT_EXPERTS_GATE,
                                         WEIGHT_EXPERTS_UP};
    const struct st_tensor *t = st_at(p->s->stored, i);
    const struct naming *naming = &p->s->packing.naming;
    struct matrix_shape half = p->shapes[i];
    half.rows /= 2;
    if (p->shapes[i].rows % 2)
        return quantize_err(p->path, t, "its rows are no pairs", e);
    for (size_t k = 0; k < 2; k++) {
        const struct weight_ref ref = {.id = ids[k], .layer = layer};
        char name[NAMES_BYTES];
        struct matrix m;
        matrix_view(&m, &p->matrices[i], k, p->matrices[i].rows / 2);
        m.step = 2;
        names_expand(name, naming->names, naming->prefix, ref, 0);
        const char *copy =
            arena_copy(st_set_text(p->s->set), name, strlen(name));
        if (!copy)
            return err_oom(e, NAMES_BYTES);
        if (add_floats(p, t, copy, &half, &m, e))
            return -1;
    }
    return 0;
}

/* Whether t says how activations or the cache are rounded to FP8. */
static bool is_activation_scale(const struct quantize_source *s,
                                const struct st_tensor *t)
{
    static const char *const tails[] = {
        ".activation_scale", ".input_scale", ".input_global_scale",
        ".output_scale",     ".q_scale",     ".k_scale",
        ".v_scale"};
    for (size_t i = 0;
         (s->m.config.quant.fp8 || s->m.config.quant.stored.groups) &&
         i < sizeof tails / sizeof *tails;
         i++)
        if (tail_is(t->name, t->name_len, tails[i]))
            return true;
    return false;
}

/* The name that a tensor has where its weights are floats. */
static const char *float_name(const struct quantize_source *s,
                              const struct st_tensor *t)
{
    char name[NAMES_BYTES + 8];
    size_t n = names_module(t->name);
    const char *tail = t->name + n;
    if (!*tail || strcmp(tail, ".weight") == 0)
        return t->name;
    snprintf(name, sizeof name, "%.*s%s", (int)n, t->name,
             strcmp(tail, NAMES_BLOCKS) == 0 ? "" : ".weight");
    return arena_copy(st_set_text(s->set), name, strlen(name));
}

/* Add what tensor i of the file is as floats: nothing, if it has scales. */
static int add_tensor(struct packer *p, size_t i, struct qwick_err *e)
{
    struct quantize_source *s = p->s;
    const struct st_tensor *t = st_at(s->stored, i);
    const struct matrix *m = &p->matrices[i];
    size_t layer;
    if (!m->format && s->merges && s->merges[i].n)
        return quantize_err(p->path, t,
                            "no adapter can be merged into it: start from the "
                            "original",
                            e);
    if (!m->format)
        return s->packing.used[i] || is_activation_scale(s, t)
                   ? 0
                   : st_set_add(s->set, t, p->path, e);
    if (t->dtype == DT_U8 && has_turns(p, t, &layer))
        return add_turns(p, i, layer, e);
    const char *name = t->dtype >= DT_BLOCKS ? t->name : float_name(s, t);
    return name ? add_floats(p, t, name, &p->shapes[i], m, e)
                : err_oom(e, NAMES_BYTES);
}

/* Stacks of floats are transposed in some families, and stacks of blocks are
 * not: a layer has all experts in one form. */
static int check_experts(const struct packer *p, struct qwick_err *e)
{
    const struct config *c = &p->s->m.config;
    const struct weights *w = &p->s->packing;
    for (size_t i = 0; c->arch->transposed_experts && i < c->n_layers; i++) {
        const struct weight_ref both = {WEIGHT_EXPERTS_GATE_UP, i, 0},
                                down = {WEIGHT_EXPERTS_DOWN, i, 0};
        if (weights_has(w, both) &&
            weights_in_blocks(w, both) != weights_in_blocks(w, down))
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: layer %zu: only some experts are in MXFP4",
                           p->path, i);
    }
    return 0;
}

static int fill_set(struct packer *p, struct qwick_err *e)
{
    struct quantize_source *s = p->s;
    const char *file = NULL;
    for (size_t i = 0; i < st_count(s->stored); i++) {
        const struct st_tensor *t = st_at(s->stored, i);
        struct map none = {0};
        if (t->file != file && st_set_shard(s->set, t->file, &none, e))
            return -1;
        file = t->file;
        if (add_tensor(p, i, e))
            return -1;
    }
    return 0;
}

int quantize_open_set(struct quantize_source *s, enum dtype dtype,
                      const struct lora_spec *loras, size_t n_loras,
                      struct qwick_err *e)
{
    const struct config *c = &s->m.config;
    struct packer p = {.s = s, .dtype = dtype, .path = checkpoint_dir(s->ck)};
    if (check_modules(&c->quant, p.path, e) || st_open(&s->stored, s->ck, e))
        return -1;
    size_t n = st_count(s->stored) + 1;
    p.matrices = calloc(n, sizeof *p.matrices);
    p.shapes = calloc(n, sizeof *p.shapes);
    s->packed = calloc(n, 2 * sizeof *s->packed);
    s->merge_of = calloc(n, 2 * sizeof(*s->merge_of));
    int rc = p.matrices && p.shapes && s->packed && s->merge_of
                 ? 0
                 : err_oom(e, n * sizeof *p.matrices);
    if (!rc)
        rc = weights_open(&s->packing, s->stored, p.path, c->arch->names,
                          kernels_best(), true, e);
    s->packing.quant = &c->quant;
    if (!rc && n_loras)
        rc = quantize_open_merges(s, loras, n_loras, e);
    if (!rc)
        rc = st_set_new(&s->set, e) || check_experts(&p, e) ||
                     bind_all(&p, e) || fill_set(&p, e)
                 ? -1
                 : 0;
    free(p.matrices);
    free(p.shapes);
    return rc;
}

void quantize_close_set(struct quantize_source *s)
{
    quantize_close_merges(s);
    free(s->merge_of);
    weights_close(&s->packing);
    st_close(s->set);
    st_close(s->stored);
    free(s->packed);
}

const struct matrix *quantize_packed(const struct quantize_source *s,
                                     const struct st_tensor *t)
{
    const struct st_tensor *in = st_find_n(s->set, t->name, t->name_len);
    const struct matrix *m = in == t ? &s->packed[in - st_at(s->set, 0)] : NULL;
    return m && m->format ? m : NULL;
}

const struct quantize_merge *quantize_merge_of(const struct quantize_source *s,
                                               const struct st_tensor *t)
{
    return quantize_packed(s, t) ? s->merge_of[t - st_at(s->set, 0)] : NULL;
}

bool quantize_is_mxfp4(const struct quantize_source *s,
                       const struct st_tensor *t)
{
    const struct matrix *m = quantize_packed(s, t);
    return m && m->dtype == DT_MXFP4 && !quantize_merge_of(s, t);
}

bool quantize_has_mxfp4(const struct quantize_source *s)
{
    for (size_t i = 0; i < st_count(s->set); i++)
        if (quantize_is_mxfp4(s, st_at(s->set, i)))
            return true;
    return false;
}

/* The largest group of MLX's format that divides the groups of m. */
static int group_of(const struct matrix *m)
{
    return m->group % 128 == 0 ? 128 : m->group % 64 == 0 ? 64 : 32;
}

/* The codes of a tensor; NULL: it has none, or their groups have no order. */
static const struct matrix *codes_of(const struct quantize_source *s,
                                     const struct st_tensor *t)
{
    const struct matrix *m = quantize_packed(s, t);
    return m && !quantize_merge_of(s, t) && m->format->codes &&
                   (!m->stored || transposed_in_order(m->stored))
               ? m
               : NULL;
}

bool quantize_find_codes(const struct quantize_source *s, int *bits, int *group)
{
    bool found = false;
    for (size_t i = 0; i < st_count(s->set); i++) {
        const struct matrix *m = codes_of(s, st_at(s->set, i));
        if (!m || (found && m->bits != *bits))
            continue;
        *group = found && *group < group_of(m) ? *group : group_of(m);
        *bits = m->bits;
        found = true;
    }
    return found;
}

/* Whether no bias of m is rounded by the type of its scales. */
static bool biases_fit(const struct matrix *m)
{
    const struct kernels *k = kernels_best();
    const size_t groups = m->cols / m->group;
    float *v = m->dtype == DT_F32 ? NULL : malloc(4 * groups * sizeof *v);
    bool fit = v;
    for (size_t r = 0; r < m->rows && fit; r++) {
        m->format->codes(k, m, r, NULL, v, v + groups);
        k->from_f32[m->dtype](v + 3 * groups, v + groups, groups);
        k->to_f32[m->dtype](v + 2 * groups, v + 3 * groups, groups);
        fit = memcmp(v + groups, v + 2 * groups, groups * sizeof *v) == 0;
    }
    free(v);
    return fit;
}

bool quantize_has_codes(const struct quantize_source *s,
                        const struct st_tensor *t, int bits, int group,
                        enum dtype *scales)
{
    const struct matrix *m = codes_of(s, t);
    if (!m || m->bits != bits || m->group % (size_t)group)
        return false;
    *scales = biases_fit(m) ? m->dtype : DT_F32;
    return true;
}

size_t quantize_stored_bytes(const struct matrix *packed,
                             const struct st_tensor *t, size_t n)
{
    size_t row = 0;
    if (!packed)
        return n / dtype_block(t->dtype) * dtype_bytes(t->dtype);
    for (size_t i = 0; i < packed->format->n_arrays; i++)
        row += packed->format->row_bytes(packed, i);
    return n / packed->cols * row + n % packed->cols * row / packed->cols;
}

static void note_modules(const struct quantize_plan *p, size_t n,
                         const char *why)
{
    char what[64];
    snprintf(what, sizeof what, "%zu modules", n);
    if (n)
        quantize_note(p, what, why);
}

void quantize_note_kept(const struct quantize_plan *p)
{
    size_t n_kept = 0, n_codes = 0, n_rounded = 0;
    for (size_t i = 0; i < p->n_modules; i++) {
        const struct quantize_module *m = &p->modules[i];
        const struct matrix *from = quantize_packed(p->s, m->t);
        n_kept += m->kept;
        n_codes += m->codes;
        n_rounded += m->bits && !m->codes && from && from->format->codes;
    }
    note_modules(p, n_kept, "stay in MXFP4");
    note_modules(p, n_codes, "keep the codes of the source: nothing is lost");
    note_modules(p, n_rounded,
                 "are rounded again: the source has other bits or groups, or "
                 "another order of columns (g_idx)");
}

/* ---- elements ------------------------------------------------------------ */

const unsigned char *quantize_data(const struct quantize_job *job, size_t i,
                                   size_t begin, size_t n, size_t *n_bytes)
{
    const struct st_tensor *t = job->from.src;
    const struct matrix *m = job->packed;
    const size_t at = quantize_place(&job->from, begin);
    *n_bytes = quantize_stored_bytes(NULL, t, n);
    if (i >= (m ? m->format->n_arrays : 1) || (m && m->stored))
        return NULL; /* transposed: a piece shares all pages with others */
    if (!m)
        return t->data + quantize_stored_bytes(NULL, t, at);
    const size_t row = m->format->row_bytes(m, i), step = m->step * row;
    size_t from = at / m->cols * step;
    *n_bytes = (at + n - 1) / m->cols * step + row - from;
    return m->data[i] + from;
}

/* A row of a packed tensor. Consecutive calls often ask for one row. */
static const float *widen_row(const struct quantize_job *job, size_t row,
                              const struct kernels *k,
                              struct quantize_room *room)
{
    struct matrix one;
    if (room->row_of != job->packed || room->row != row) {
        matrix_view(&one, job->packed, row, 1);
        one.ops->to_f32(k, room->floats, &one, 0, 1);
        if (job->merge)
            quantize_merge_row(job->merge, room->floats, row, k, room->merged);
        room->row_of = job->packed;
        room->row = row;
    }
    return room->floats;
}

const unsigned char *quantize_elements(const struct quantize_job *job,
                                       size_t begin, size_t n,
                                       const struct kernels *k,
                                       struct quantize_room *room)
{
    const struct quantize_part *p = &job->from;
    const size_t bytes = dtype_bytes(p->src->dtype);
    if (job->packed) {
        size_t at = quantize_place(p, begin), cols = job->packed->cols;
        for (size_t i = 0, run; i < n; i += run) {
            size_t col = (at + i) % cols;
            run = cols - col < n - i ? cols - col : n - i;
            k->from_f32[p->src->dtype](
                room->gathered + i * bytes,
                widen_row(job, (at + i) / cols, k, room) + col, run);
        }
        return room->gathered;
    }
    if (!p->stride)
        return p->src->data + quantize_place(p, begin) * bytes;
    for (size_t i = 0; i < n; i++)
        memcpy(room->gathered + i * bytes,
               p->src->data + quantize_place(p, begin + i) * bytes, bytes);
    return room->gathered;
}

/* Scales and biases of elements [col, col + n) of a row, whose groups have
 * `from` elements, for groups of `to` elements. */
static void spread(float *out, const float *in, size_t col, size_t n,
                   size_t from, size_t to)
{
    for (size_t i = 0; i < n / to; i++)
        out[i] = in[(col + i * to) / from];
}

int quantize_codes(const struct quantize_work *w,
                   const struct quantize_job *job, size_t begin, size_t n,
                   size_t group, enum dtype type, struct quantize_room *room,
                   struct qwick_err *e)
{
    enum { MOST = QUANTIZE_COLS / 32 };
    const struct matrix *m = job->packed;
    const size_t at = quantize_place(&job->from, begin), bits = (size_t)m->bits;
    float *scales = room->floats, *biases = scales + MOST;
    float *out = biases + MOST; /* two times the groups of a piece */
    unsigned char *q = room->q;
    room->row_of = NULL; /* its floats are used here */
    for (size_t i = 0, run; i < n; i += run) {
        size_t row = (at + i) / m->cols, col = (at + i) % m->cols;
        run = m->cols - col < n - i ? m->cols - col : n - i;
        (void)m->format->codes(w->k, m, row, room->gathered, scales, biases);
        affine_pack(q + i / 8 * bits, room->gathered + col, run, m->bits);
        spread(out + i / group, scales, col, run, m->group, group);
        spread(out + (n + i) / group, biases, col, run, m->group, group);
    }
    for (size_t i = 0; i < 2 * (n / group); i++)
        if (!isfinite(out[i]))
            return quantize_bad_value(w, job->from.src,
                                      at + i % (n / group) * group, e);
    w->k->from_f32[type](room->scales, out, n / group);
    w->k->from_f32[type](room->biases, out + n / group, n / group);
    return 0;
}

int quantize_mxfp4(const struct quantize_work *w,
                   const struct quantize_job *job, size_t begin, size_t n,
                   unsigned char *numbers, unsigned char *scales,
                   struct qwick_err *e)
{
    const struct matrix *m = job->packed;
    const size_t at = quantize_place(&job->from, begin);
    for (size_t i = 0, run; i < n; i += run) {
        size_t row = (at + i) / m->cols, col = (at + i) % m->cols;
        run = m->cols - col < n - i ? m->cols - col : n - i;
        memcpy(numbers + i / 2, matrix_row(m, 0, row) + col / 2, run / 2);
        memcpy(scales + i / MXFP4_GROUP,
               matrix_row(m, 1, row) + col / MXFP4_GROUP, run / MXFP4_GROUP);
    }
    for (size_t i = 0; i < n / MXFP4_GROUP; i++)
        if (scales[i] == 255) /* NaN */
            return quantize_bad_value(w, job->from.src, at + i * MXFP4_GROUP,
                                      e);
    return 0;
}
