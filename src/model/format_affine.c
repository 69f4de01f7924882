/* MLX's affine format: an element is code * scale + bias, with one scale and
 * one bias for each group of a row's elements (see affine.h). Array 0 holds the
 * codes, 1 the scales, 2 the biases. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "model/format_affine.h"
#include "model/weights.h"

enum { CODES, SCALES, BIASES };

size_t affine_row_bytes(const struct matrix *w, size_t i)
{
    const size_t groups = w->cols / w->group;
    return i == CODES    ? w->cols / 8 * (size_t)w->bits
           : i == SCALES ? groups * dtype_bytes(w->dtype)
           : w->zero     ? 0
                         : groups * dtype_bytes(w->bias_dtype);
}

struct affine matrix_affine(const struct matrix *w, size_t row)
{
    const struct format *f = w->format;
    int biases = w->zero ? SCALES : BIASES;
    enum dtype type = w->dtype == DT_MXFP4 ? DT_U8 : w->dtype;
    return (struct affine){.codes = w->codes,
                           .q = matrix_row(w, CODES, row),
                           .q_stride = w->step * f->row_bytes(w, CODES),
                           .scales = matrix_row(w, SCALES, row),
                           .s_stride = w->step * f->row_bytes(w, SCALES),
                           .s_type = type,
                           .by = w->by,
                           .biases = matrix_row(w, (size_t)biases, row),
                           .b_stride =
                               w->step * f->row_bytes(w, (size_t)biases),
                           .b_type = w->zero ? type : w->bias_dtype,
                           .zero = w->zero,
                           .bits = w->bits,
                           .group = w->group};
}

static void to_f32(const struct kernels *k, float *out, const struct matrix *w,
                   size_t row, size_t n_rows)
{
    struct affine a = matrix_affine(w, row);
    k->affine_to_f32(out, &a, n_rows, w->cols);
}

static void mul_f32(const struct kernels *k, const struct row_product *p,
                    const float *x, size_t ldx)
{
    struct affine a = matrix_affine(p->w, p->row);
    k->matmul_f32_affine(p->y, p->ldy, &a, x, ldx, p->n_rows, p->w->cols, p->n,
                         p->work);
}

static void mul_bf16(const struct kernels *k, const struct row_product *p,
                     const uint16_t *x, size_t ldx)
{
    struct affine a = matrix_affine(p->w, p->row);
    k->gemm_bf16_affine(p->y, p->ldy, &a, x, ldx, p->n_rows, p->w->cols, p->n,
                        p->add, p->work);
}

static void mul_i8(const struct kernels *k, const struct row_product *p,
                   const struct q8 *x)
{
    struct affine a = matrix_affine(p->w, p->row);
    k->gemm_q8_affine(p->y, p->ldy, &a, x, p->n_rows, p->w->cols, p->n, p->add,
                      p->work);
}

void affine_fill(struct format_ops *ops, const struct kernels *k, bool exact)
{
    *ops = (struct format_ops){.to_f32 = to_f32, .mul_f32 = mul_f32};
    if (exact)
        return;
    ops->mul_i8 = mul_i8;
    if (k->gemm_bf16_affine) {
        ops->mul_bf16 = mul_bf16;
        ops->bf16_min_tokens = k->tune.affine_bf16_min_tokens;
    }
}

/* The parameters of a module whose scales are in the file. */
static int quant_params(const struct weights *w, const struct st_tensor *scales,
                        const char *module, size_t cols, struct quant_params *p,
                        struct qwick_err *e)
{
    if (!w->quant || !w->quant->key)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: tensor %s: means quantized weights, but "
                       "config.json has no \"quantization\"",
                       w->path, scales->file, scales->name);
    *p = quant_find(w->quant, module);
    if (!p->bits)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: tensor %s: means quantized weights, but "
                       "config.json has %s.%s: false",
                       w->path, scales->file, scales->name, w->quant->key,
                       module);
    if (cols % p->group)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: tensor %s.weight: %zu columns by config.json are "
                       "not a multiple of its %s.group_size, %zu",
                       w->path, module, cols, w->quant->key, p->group);
    return 0;
}

/* Scales and biases: one float dtype, one column for each group. */
static int bind_groups(struct weights *w, struct matrix *out,
                       const struct matrix_shape *shape,
                       const char *scales_name, const char *biases_name,
                       const char *why, struct qwick_err *e)
{
    const struct matrix_shape groups = {shape->stack, shape->rows,
                                        shape->cols / out->group};
    const struct st_tensor *scales =
        weights_find(w, scales_name, &groups, why, e);
    const struct st_tensor *biases =
        scales ? weights_find(w, biases_name, &groups, why, e) : NULL;
    if (!biases || weights_need_float(w, scales, "scales", e))
        return -1;
    if (biases->dtype != scales->dtype)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: tensor %s: dtype %s, but that of %s is %s",
                       w->path, biases->file, biases_name,
                       dtype_name(biases->dtype), scales_name,
                       dtype_name(scales->dtype));
    out->dtype = out->bias_dtype = scales->dtype;
    out->data[SCALES] = scales->data;
    out->data[BIASES] = biases->data;
    weights_use(w, scales, 0, out->bits);
    weights_use(w, biases, 0, out->bits);
    return 0;
}

static int bind_packed(struct weights *w, struct matrix *out,
                       const struct matrix_shape *shape, const char *name,
                       const char *scales_name, const char *biases_name,
                       struct qwick_err *e)
{
    char why[48];
    struct matrix_shape packed = *shape;
    snprintf(why, sizeof why, " (%d bits, group %zu)", out->bits, out->group);
    if (size_mul(shape->cols / 32, (size_t)out->bits, &packed.cols))
        return err_oom(e, SIZE_MAX);
    const struct st_tensor *t = st_find(w->set, name);
    if (t && t->dtype != DT_U32)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: tensor %s: dtype %s in the file, must be U32 "
                       "because of %s",
                       w->path, t->file, name, dtype_name(t->dtype),
                       scales_name);
    t = weights_find(w, name, &packed, why, e);
    if (!t || bind_groups(w, out, shape, scales_name, biases_name, why, e))
        return -1;
    out->rows = shape_rows(shape);
    out->data[CODES] = t->data;
    weights_use(w, t, out->rows * out->cols, out->bits);
    return 0;
}

/* MLX's rule: a module with ".scales" is quantized. Without ".scales" it holds
 * floats, even if config.json says otherwise. */
static int bind(struct weights *w, struct matrix *out, const char *name,
                const struct matrix_shape *shape, bool *found,
                struct qwick_err *e)
{
    char module[NAMES_BYTES], scales[NAMES_BYTES + 8], biases[NAMES_BYTES + 8];
    size_t n = names_module(name);
    *found = false;
    if (!name[n])
        return 0;
    snprintf(module, sizeof module, "%.*s", (int)n, name);
    snprintf(scales, sizeof scales, "%s.scales", module);
    snprintf(biases, sizeof biases, "%s.biases", module);
    const struct st_tensor *s = st_find(w->set, scales);
    if (!s) {
        const struct st_tensor *t = st_find(w->set, name);
        return t && t->dtype == DT_U32
                   ? err_set(e, QWICK_ERR_MODEL,
                             "%s: tensor %s: missing, but %s has dtype U32, as "
                             "packed weights have",
                             w->path, scales, name)
                   : 0;
    }
    *found = true;
    struct quant_params p = {0};
    if (quant_params(w, s, module, shape->cols, &p, e))
        return -1;
    struct matrix m = {.cols = shape->cols, .bits = p.bits, .group = p.group};
    if (bind_packed(w, &m, shape, name, scales, biases, e))
        return -1;
    *out = m;
    return 0;
}

const struct format format_affine = {.name = "affine",
                                     .steps = true,
                                     .n_arrays = 3,
                                     .row_bytes = affine_row_bytes,
                                     .fill = affine_fill,
                                     .bind = bind};
