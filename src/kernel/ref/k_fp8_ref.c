/* The reference kernels for FP8 weights: plain C, with sums in double that are
 * rounded once at the end. */
#include <math.h>

#include "kernel/blocks.h"
#include "kernel/kernel.h"
#include "kernel/ref/k_fp8_ref.h"

float fp8_value(unsigned char code)
{
    const int exponent = code >> 3 & 15, fraction = code & 7;
    const float sign = code & 0x80 ? -1 : 1;

    if ((code & 0x7f) == 0x7f)
        return NAN;
    if (exponent == 0)
        return sign * (float)fraction * 0x1p-9f;
    return sign * ldexpf((float)(8 + fraction), exponent - 10);
}

/* The scale of element k of row r. */
static float scale_at(const struct fp8 *w, size_t r, size_t k)
{
    return w->mx ? 2 * e8m0_half(w->mx[r * w->mx_stride + k / MX_GROUP])
                 : fp8_scales(w, r)[k / w->cols];
}

static void k_fp8_to_f32_ref(float *out, const struct fp8 *w, size_t n_rows,
                             size_t n_cols)
{
    for (size_t r = 0; r < n_rows; r++)
        for (size_t k = 0; k < n_cols; k++)
            out[r * n_cols + k] =
                fp8_value(w->q[r * w->q_stride + k]) * scale_at(w, r, k);
}

static void k_matmul_f32_fp8_ref(float *y, size_t ldy, const struct fp8 *w,
                                 const float *x, size_t ldx, size_t n_rows,
                                 size_t n_cols, size_t n_tokens, float *work)
{
    (void)work;
    for (size_t r = 0; r < n_rows; r++) {
        const unsigned char *q = w->q + r * w->q_stride;

        for (size_t t = 0; t < n_tokens; t++) {
            double sum = 0;

            for (size_t k = 0; k < n_cols; k++)
                sum += (double)fp8_value(q[k]) * (double)scale_at(w, r, k) *
                       (double)x[t * ldx + k];
            y[t * ldy + r] = (float)sum;
        }
    }
}

void k_fp8_ref_init(struct kernels *k)
{
    k->fp8_to_f32 = k_fp8_to_f32_ref;
    k->matmul_f32_fp8 = k_matmul_f32_fp8_ref;
}
