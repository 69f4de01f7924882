/* The reference kernels for quantized weights: plain C, with sums in double
 * that are rounded once at the end. */
#include <math.h>
#include <string.h>

#include "kernel/blocks.h"
#include "kernel/kernel.h"
#include "kernel/ref/k_fp8_ref.h"

/* Code k of a row. */
static unsigned code_at(const unsigned char *row, size_t k, int bits)
{
    size_t at = k * (size_t)bits;
    unsigned byte = row[at / 8], shift = (unsigned)(at % 8);
    unsigned code = byte >> shift;

    if (shift + (unsigned)bits > 8)
        code |= (unsigned)row[at / 8 + 1] << (8 - shift);
    return code & ((1u << bits) - 1);
}

/* Return the integer that code k of row r stands for. */
static int integer_at(const struct affine *w, size_t r, size_t k)
{
    unsigned code = code_at(w->q + r * w->q_stride, k, w->bits);

    return w->codes == AFFINE_E2M1     ? e2m1_codes[code] - E2M1_OFFSET
           : w->codes == AFFINE_SIGNED ? (int)(code ^ 0x80)
                                       : (int)code;
}

static float number_at(const unsigned char *row, size_t g, enum dtype type)
{
    float f;

    kernels_get(ISA_REF)->to_f32[type](&f, row + g * dtype_bytes(type), 1);
    return f;
}

/* Return the scale of group g of row r. */
static float scale_at(const struct affine *w, size_t r, size_t g)
{
    const unsigned char *row = w->scales + r * w->s_stride;

    return w->s_type == DT_U8        ? e8m0_half(row[g])
           : w->s_type == DT_F8_E4M3 ? fp8_value(row[g]) * w->by
                                     : number_at(row, g, w->s_type);
}

/* Return the number to add to the elements of group g of row r. */
static float bias_at(const struct affine *w, size_t r, size_t g)
{
    const unsigned char *row = w->biases + r * w->b_stride;

    if (w->codes == AFFINE_E2M1)
        return 0;
    if (w->zero || w->b_type == DT_U8)
        return (float)-(w->zero ? w->zero : row[g]) * scale_at(w, r, g);
    return number_at(row, g, w->b_type);
}

static void k_affine_to_f32_ref(float *out, const struct affine *w,
                                size_t n_rows, size_t n_cols)
{
    for (size_t r = 0; r < n_rows; r++)
        for (size_t k = 0; k < n_cols; k++) {
            const size_t g = k / w->group;
            float product = (float)integer_at(w, r, k) * scale_at(w, r, g);

            out[r * n_cols + k] =
                w->codes == AFFINE_E2M1 ? product : product + bias_at(w, r, g);
        }
}

static void k_matmul_f32_affine_ref(float *y, size_t ldy,
                                    const struct affine *w, const float *x,
                                    size_t ldx, size_t n_rows, size_t n_cols,
                                    size_t n_tokens, float *work)
{
    (void)work;
    for (size_t r = 0; r < n_rows; r++)
        for (size_t t = 0; t < n_tokens; t++) {
            double sum = 0;

            for (size_t g = 0; g < n_cols / w->group; g++) {
                float s = scale_at(w, r, g), b = bias_at(w, r, g);

                for (size_t k = g * w->group; k < (g + 1) * w->group; k++)
                    sum += (integer_at(w, r, k) * (double)s + (double)b) *
                           (double)x[t * ldx + k];
            }
            y[t * ldy + r] = (float)sum;
        }
}

/* Return the largest magnitude; NaN if one is NaN. As integers, magnitudes have
 * the same order, and NaN are above infinity. */
static float largest(const float *x, size_t n)
{
    uint32_t top = 0;
    float v;

    for (size_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffff;
        top = bits > top ? bits : top;
    }
    memcpy(&v, &top, sizeof v);
    return v;
}

/* Round one group of n values whose largest magnitude, or that of the group paired with it, is
 * top. Sets its scale, and scale times the sum of the rounded values. */
static void round_group(int8_t *q, float *scale, float *sum, const float *x,
                        size_t n, float top)
{
    int total = 0;

    *scale = top / 127;
    for (size_t i = 0; i < n; i++) {
        float v = top > 0 ? x[i] * (127 / top) : 0;

        v = v > 127 ? 127 : v < -127 ? -127 : v;
        q[i] = (int8_t)(v == v ? lrintf(v) : 0);
        total += q[i];
    }
    *sum = *scale * (float)total;
}

static void k_to_q8_ref(const struct q8 *out, const float *x, size_t ldx,
                        size_t n_cols, size_t n_tokens)
{
    for (size_t t = 0; t < n_tokens; t++) {
        int8_t *q = out->q + t * out->ldq;
        const float *xt = x + t * ldx;
        const size_t unit = q8_unit(out);

        for (size_t k = 0; k < n_cols; k += out->group) {
            const size_t from = k / unit * unit,
                         g = t * out->ldg + k / out->group;
            const size_t n = n_cols - from < unit ? n_cols - from : unit;

            round_group(q + k, out->scale + g, out->sum + g, xt + k, out->group,
                        largest(xt + from, n));
        }
        memset(q + n_cols, 0, out->ldq - n_cols);
    }
}

static void k_gemm_q8_affine_ref(float *y, size_t ldy, const struct affine *w,
                                 const struct q8 *x, size_t n_rows,
                                 size_t n_cols, size_t n_tokens, bool add,
                                 float *work)
{
    (void)work;
    for (size_t r = 0; r < n_rows; r++)
        for (size_t t = 0; t < n_tokens; t++) {
            double sum = add ? (double)y[t * ldy + r] : 0;

            for (size_t g = 0; g < n_cols / w->group; g++) {
                float s = scale_at(w, r, g), b = bias_at(w, r, g);
                long dot = 0;

                for (size_t k = g * w->group; k < (g + 1) * w->group; k++)
                    dot += (long)integer_at(w, r, k) * x->q[t * x->ldq + k];
                sum +=
                    (double)s * (double)x->scale[t * x->ldg + g] * (double)dot +
                    (double)b * (double)x->sum[t * x->ldg + g];
            }
            y[t * ldy + r] = (float)sum;
        }
}

static double k_peak_q8_ref(size_t reps, float *sink)
{
    enum { STEPS = 5000000 };
    volatile int w = 3, x = -2;
    int a = w, b = x, sum = 0;

    for (size_t i = 0; i < reps * STEPS; i++)
        sum = (int)((unsigned)sum + (unsigned)(a * b) + (unsigned)i);
    *sink = (float)sum;
    return 2.0 * STEPS * (double)reps;
}

static void k_to_kv_i8_ref(int8_t *q, float *scales, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i += KV_I8_GROUP) {
        size_t m = n - i < KV_I8_GROUP ? n - i : KV_I8_GROUP;
        float sum;

        round_group(q + i, scales + i / KV_I8_GROUP, &sum, x + i, m,
                    largest(x + i, m));
    }
}

void k_q8_ref_init(struct kernels *k)
{
    k->affine_to_f32 = k_affine_to_f32_ref;
    k->matmul_f32_affine = k_matmul_f32_affine_ref;
    k->to_q8 = k_to_q8_ref;
    k->gemm_q8_affine = k_gemm_q8_affine_ref;
    k->peak_q8 = k_peak_q8_ref;
    k->to_kv_i8 = k_to_kv_i8_ref;
}
