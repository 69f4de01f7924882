/* compressed-tensors' integers (quant_stored.h), in two layouts:
 *
 *   pack-quantized   NAME.weight_packed I32 [rows, cols * bits / 32], a row's
 *                    codes as one stream of bits, as MLX has them;
 *                    NAME.weight_scale [rows, groups]; if asymmetric,
 *                    NAME.weight_zero_point I32 [rows * bits / 32, groups],
 *                    packed along rows; NAME.weight_shape I64 [2]
 *   int-quantized    NAME.weight I8 [rows, cols], NAME.weight_scale as above,
 * or one number for the matrix
 *
 * An element is (code - zero point) * scale, and the zero point of symmetric
 * weights is 2^(bits - 1): that is affine (format_affine.h), with codes and
 * scales in place. Only zero points are copied, to one byte each, and scales of
 * whole rows are repeated for each of the kernels' groups. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "model/format_affine.h"
#include "model/quant_stored.h"
#include "model/weights.h"

enum { CODES, SCALES, ZEROS };

struct source {
    struct weights *w;
    const struct matrix_shape *shape;
    const struct stored_group *g;
    const char *module;
    size_t span; /* columns that share a scale */
    char why[64];
};

/* Columns that share a scale, for the kernels: 32, 64 or 128. */
static size_t kernel_group(size_t span)
{
    return span % 128 == 0 ? 128 : span % 64 == 0 ? 64 : 32;
}

/* The tensor NAME + tail with this type and these rows and columns. NULL with
 * *e set: it is missing, or has others. */
static const struct st_tensor *need_tensor(const struct source *s,
                                           const char *tail, enum dtype type,
                                           size_t rows, size_t cols,
                                           struct qwick_err *e)
{
    const struct matrix_shape want = {s->shape->stack, rows, cols};
    char name[NAMES_BYTES + 32];
    snprintf(name, sizeof name, "%s%s", s->module, tail);
    const struct st_tensor *t = weights_find(s->w, name, &want, s->why, e);
    if (!t || type == DT_COUNT || t->dtype == type)
        return t;
    err_set(e, QWICK_ERR_MODEL,
            "%s: %s: tensor %s: dtype %s in the file, must be %s%s", s->w->path,
            t->file, name, dtype_name(t->dtype), dtype_name(type), s->why);
    return NULL;
}

static const struct st_tensor *find_tensor(const struct source *s,
                                           const char *tail)
{
    char name[NAMES_BYTES + 32];
    snprintf(name, sizeof name, "%s%s", s->module, tail);
    return st_find(s->w->set, name);
}

/* The matrix has the shape that weight_shape says, if it is there. */
static int check_shape(const struct source *s, struct qwick_err *e)
{
    const struct st_tensor *t = find_tensor(s, ".weight_shape");
    int64_t v[2];
    if (t)
        weights_use(s->w, t, 0, s->g->bits);
    if (!t || s->shape->stack || s->w->sizes_only)
        return 0;
    if (t->dtype != DT_I64 || t->n_bytes != sizeof v)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: tensor %s: must be two numbers of type I64, is "
                       "%zu bytes of %s",
                       s->w->path, t->file, t->name, t->n_bytes,
                       dtype_name(t->dtype));
    memcpy(v, t->data, sizeof v);
    if (v[0] == (int64_t)s->shape->rows && v[1] == (int64_t)s->shape->cols)
        return 0;
    return err_set(
        e, QWICK_ERR_MODEL,
        "%s: %s: tensor %s: is [%lld, %lld], but the matrix is [%zu, "
        "%zu] by %s",
        s->w->path, t->file, t->name, (long long)v[0], (long long)v[1],
        s->shape->rows, s->shape->cols, s->w->naming.names->config);
}

/* Tensors that say other things than the group. */
static int check_others(const struct source *s, struct qwick_err *e)
{
    const struct st_tensor *zeros = find_tensor(s, ".weight_zero_point");
    const struct st_tensor *g_idx = find_tensor(s, ".weight_g_idx");
    if (g_idx)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: tensor %s: an order of columns (actorder "
                       "\"group\") is not supported",
                       s->w->path, g_idx->file, g_idx->name);
    if (zeros && s->g->symmetric)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: tensor %s: is there, but config.json's %s has "
                       "\"symmetric\": true",
                       s->w->path, zeros->file, zeros->name, s->g->in);
    return check_shape(s, e);
}

/* Repeat each of n scales. */
static void repeat(unsigned char *out, const unsigned char *in, size_t n,
                   size_t times, size_t size)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < times; k++, out += size)
            memcpy(out, in + i * size, size);
}

static int bind_scales(const struct source *s, struct matrix *out,
                       struct qwick_err *e)
{
    const size_t rows = out->rows, groups = out->cols / out->group;
    const bool one = s->g->by_matrix && !s->shape->stack;
    const struct st_tensor *t = find_tensor(s, ".weight_scale");
    bool is_one = t && one && t->n_bytes == dtype_bytes(t->dtype);
    if (!is_one)
        t = need_tensor(s, ".weight_scale", DT_COUNT, one ? 1 : s->shape->rows,
                        out->cols / s->span, e);
    if (!t || weights_need_float(s->w, t, "scales", e))
        return -1;
    const size_t size = dtype_bytes(t->dtype);
    size_t n = is_one ? 1 : rows * (out->cols / s->span);
    out->dtype = t->dtype;
    out->data[SCALES] = t->data;
    bool counted = weights_use(s->w, t, 0, out->bits);
    if (n == rows * groups)
        return 0;
    s->w->n_bytes += counted ? rows * groups * size : 0;
    unsigned char *all = weights_block(s->w, rows * groups * size, e);
    if (all && !s->w->sizes_only)
        repeat(all, t->data, n, rows * groups / n, size);
    out->data[SCALES] = all;
    return all ? 0 : -1;
}

/* Zero points, one byte each, repeated as scales are. A zero point has the bits
 * of a code, at the same place along the rows. */
static int bind_zeros(const struct source *s, struct matrix *out,
                      struct qwick_err *e)
{
    const size_t bits = (size_t)out->bits, rows = s->shape->rows;
    const size_t stored = out->cols / s->span, groups = out->cols / out->group;
    const struct st_tensor *t = need_tensor(s, ".weight_zero_point", DT_I32,
                                            (rows * bits + 31) / 32, stored, e);
    if (!t)
        return -1;
    unsigned char *all = weights_block(s->w, out->rows * groups, e);
    if (weights_use(s->w, t, 0, out->bits))
        s->w->n_bytes += out->rows * groups;
    out->data[ZEROS] = all;
    if (!all)
        return -1;
    for (size_t r = 0; r < out->rows && !s->w->sizes_only; r++)
        for (size_t g = 0; g < groups; g++) {
            size_t at = r % rows * bits, from = g * stored / groups;
            size_t word = r / rows * ((rows * bits + 31) / 32) + at / 32;
            uint32_t v;
            memcpy(&v, t->data + 4 * (word * stored + from), sizeof v);
            all[r * groups + g] =
                (unsigned char)(v >> at % 32 & ((1u << bits) - 1));
        }
    return 0;
}

static int bind_all(struct source *s, struct matrix *out, bool packed,
                    struct qwick_err *e)
{
    const size_t cols = s->shape->cols, bits = (size_t)s->g->bits;
    s->span = s->g->group ? s->g->group : cols;
    if (s->g->group)
        snprintf(s->why, sizeof s->why, " (%zu bits, group %zu)", bits,
                 s->g->group);
    else
        snprintf(s->why, sizeof s->why, " (%zu bits, a scale for each %s)",
                 bits, s->g->by_matrix ? "matrix" : "row");
    if (cols % 32 || cols % s->span)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: tensor %s.weight: %zu columns by %s are not a "
                       "multiple of %zu%s",
                       s->w->path, s->module, cols, s->w->naming.names->config,
                       cols % 32 ? 32 : s->span, s->why);
    const struct st_tensor *t =
        packed ? need_tensor(s, NAMES_PACKED, DT_I32, s->shape->rows,
                             cols / 32 * bits, e)
               : need_tensor(s, ".weight", DT_I8, s->shape->rows, cols, e);
    if (!t || check_others(s, e))
        return -1;
    *out = (struct matrix){.codes = packed ? AFFINE_UNSIGNED : AFFINE_SIGNED,
                           .rows = shape_rows(s->shape),
                           .cols = cols,
                           .bits = s->g->bits,
                           .group = kernel_group(s->span),
                           .bias_dtype = DT_U8,
                           .zero = s->g->symmetric ? 1 << (bits - 1) : 0,
                           .data = {t->data}};
    weights_use(s->w, t, out->rows * cols, out->bits);
    if (bind_scales(s, out, e))
        return -1;
    out->data[ZEROS] = out->data[SCALES];
    return s->g->symmetric ? 0 : bind_zeros(s, out, e);
}

/* Whether the elements `name` are of one of the layouts. */
static bool has_layout(const struct weights *w, const char *name,
                       const char *module, bool packed)
{
    const struct st_tensor *t = st_find(w->set, name);
    char scales[NAMES_BYTES + 32];
    snprintf(scales, sizeof scales, "%s.weight_scale", module);
    return t && (packed ? t->dtype != DT_U8
                        : t->dtype == DT_I8 &&
                              (st_find(w->set, scales) ||
                               (w->quant && w->quant->stored.groups)));
}

static int bind(struct weights *w, struct matrix *out, const char *name,
                const struct matrix_shape *shape, bool *found,
                struct qwick_err *e)
{
    const size_t n = names_module(name);
    const bool packed = strcmp(name + n, NAMES_PACKED) == 0;
    char module[NAMES_BYTES];
    snprintf(module, sizeof module, "%.*s", (int)n, name);
    *found = name[n] && has_layout(w, name, module, packed);
    if (!*found)
        return 0;
    struct source s = {.w = w, .shape = shape, .module = module};
    struct matrix m;
    s.g = quant_stored_find(w->quant, module,
                            packed ? STORED_PACKED : STORED_INT8, w->path, name,
                            e);
    if (!s.g || bind_all(&s, &m, packed, e))
        return -1;
    *out = m;
    return 0;
}

/* Codes in place, one byte each. */
static void unpack(const struct matrix *w, size_t row, unsigned char *codes)
{
    const unsigned char *q = matrix_row(w, CODES, row);
    const size_t bits = (size_t)w->bits; /* 2, 4 or 8 */
    const unsigned char flip = w->codes == AFFINE_SIGNED ? 128 : 0;
    for (size_t c = 0; c < w->cols; c++)
        codes[c] = (unsigned char)((q[c * bits / 8] >> c * bits % 8 &
                                    ((1u << bits) - 1)) ^
                                   flip);
}

static bool row_codes(const struct kernels *k, const struct matrix *w,
                      size_t row, unsigned char *codes, float *scales,
                      float *biases)
{
    const size_t groups = w->cols / w->group;
    const unsigned char *zeros = w->zero ? NULL : matrix_row(w, ZEROS, row);
    if (codes)
        unpack(w, row, codes);
    k->to_f32[w->dtype](scales, matrix_row(w, SCALES, row), groups);
    for (size_t g = 0; g < groups; g++)
        biases[g] = -(float)(zeros ? zeros[g] : w->zero) * scales[g];
    return true;
}

const struct format format_packed = {.name = "compressed-tensors",
                                     .steps = true,
                                     .n_arrays = 3,
                                     .row_bytes = affine_row_bytes,
                                     .fill = affine_fill,
                                     .bind = bind,
                                     .codes = row_codes};
