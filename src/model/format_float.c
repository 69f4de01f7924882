/* Weights stored as floats: f32, f16 and bf16. */
#include "model/weights.h"

static size_t row_bytes(const struct matrix *w, size_t i)
{
    (void)i;
    return w->cols * dtype_bytes(w->dtype);
}

static void to_f32(const struct kernels *k, float *out, const struct matrix *w,
                   size_t row, size_t n_rows)
{
    k->to_f32[w->dtype](out, matrix_row(w, 0, row), n_rows * w->cols);
}

static void mul_f32(const struct kernels *k, const struct row_product *p,
                    const float *x, size_t ldx)
{
    const struct matrix *w = p->w;
    k->matmul_f32[w->dtype](p->y, p->ldy, matrix_row(w, 0, p->row), w->cols, x,
                            ldx, p->n_rows, w->cols, p->n, p->work);
}

static void gemm_f32(const struct kernels *k, const struct row_product *p,
                     const float *x, size_t ldx)
{
    const struct matrix *w = p->w;
    k->gemm_f32[w->dtype](p->y, p->ldy, x, ldx, matrix_row(w, 0, p->row),
                          w->cols, p->n, p->n_rows, w->cols, p->work);
}

static void mul_bf16(const struct kernels *k, const struct row_product *p,
                     const uint16_t *x, size_t ldx)
{
    const struct matrix *w = p->w;
    k->gemm_bf16(p->y, p->ldy, matrix_row(w, 0, p->row), w->cols, x, ldx,
                 p->n_rows, w->cols, p->n, p->add, p->work);
}

static void fill(struct format_ops *ops, const struct kernels *k, bool exact)
{
    (void)k;
    *ops = (struct format_ops){.to_f32 = to_f32,
                               .mul_f32 = mul_f32,
                               .gemm_f32 = exact ? NULL : gemm_f32};
}

/* Decode, with one token, goes through mul_f32, which streams the weights as
 * fast and rounds nothing. */
static void fill_bf16(struct format_ops *ops, const struct kernels *k,
                      bool exact)
{
    fill(ops, k, exact);
    if (exact || !k->tune.bf16)
        return;
    ops->mul_bf16 = mul_bf16;
    ops->bf16_min_tokens = k->tune.bf16_min_tokens;
}

#define FLOATS(NAME, TYPE, FILL)                                               \
    static int bind_##NAME(struct weights *w, struct matrix *out,              \
                           const char *name, const struct matrix_shape *shape, \
                           bool *found, struct qwick_err *e)                   \
    {                                                                          \
        return weights_bind_type(w, out, name, shape, TYPE, 0, found, e);      \
    }                                                                          \
    const struct format format_##NAME = {.name = #NAME,                        \
                                         .is_float = true,                     \
                                         .n_arrays = 1,                        \
                                         .row_bytes = row_bytes,               \
                                         .fill = FILL,                         \
                                         .bind = bind_##NAME}

FLOATS(f32, DT_F32, fill);
FLOATS(f16, DT_F16, fill);
FLOATS(bf16, DT_BF16, fill_bf16);
