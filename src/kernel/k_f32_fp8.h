/* Products of FP8 weights in f32, over the SIMD shim. Included by k_f32.h.
 *
 * A row is read in one sequential sweep. Weights become floats in few
 * instructions, without their scales: in a matrix with blocks, all rows of a
 * block have the same scales, so the activations are multiplied by them once
 * for these rows. In a matrix with a scale for each row, the result is
 * multiplied.
 *
 * Order of sums. Element k of a row belongs to partial sum k % FP8_STEP. Each
 * partial sum adds its elements in ascending order, and vec_sum adds up the
 * partial sums at the end of each FP8_COLS columns. */
#ifndef KERNEL_K_F32_FP8_H
#define KERNEL_K_F32_FP8_H

#if !defined KERNEL || !defined VEC_LANES
#error "include a SIMD shim first: kernel/simd.h lists what it must define"
#endif

#include "kernel/blocks.h"

/* STEP: weights that are widened together. COLS: columns whose activations the
 * work memory holds for TOKENS tokens. TOKENS: what the registers hold the
 * sums of. */
enum {
    FP8_STEP = 4 * VEC_LANES,
    FP8_TOKENS = VEC_LANES == 16 ? 4 : 2,
    FP8_COLS = KERNEL_WORK / 4,
    FP8_LINE = 64
};

_Static_assert(FP8_COLS *FP8_TOKENS <= KERNEL_WORK, "the caller's memory");
_Static_assert(FP8_COLS % FP8_STEP == 0 && FP8_LINE % FP8_STEP == 0,
               "whole steps");

/* ---- widening ----------------------------------------------------------- */

static void KERNEL(fp8_to_f32)(float *out, const struct fp8 *w, size_t n_rows,
                               size_t n_cols)
{
    for (size_t r = 0; r < n_rows; r++, out += n_cols) {
        const char *q = (const char *)w->q + r * w->q_stride;
        const float *scale = w->mx ? NULL : fp8_scales(w, r);
        const size_t block = w->mx ? MX_GROUP : w->cols;
        size_t k = 0;

        while (k < n_cols) {
            const size_t end = n_cols - k < block ? n_cols : k + block;
            const vec s = vec_set1(
                w->mx ? 2 * e8m0_half(w->mx[r * w->mx_stride + k / MX_GROUP])
                      : *scale++);

            for (; end - k >= VEC_LANES; k += VEC_LANES)
                vec_store(out + k,
                          vec_load_as(q + k, VEC_LANES, DT_F8_E4M3) * s,
                          VEC_LANES);
            if (k < end)
                vec_store(out + k, vec_load_as(q + k, end - k, DT_F8_E4M3) * s,
                          end - k);
            k = end;
        }
    }
}

/* ---- products ----------------------------------------------------------- */

/* Write activations x[0..n), multiplied by the scales of their columns, in the
 * order of vec_load_fp8, and zeros up to a whole step. x[0] is column `from`.
 * scales: NULL for 1. */
INLINE void fp8_prepare(float *out, const float *x, size_t n,
                        const struct fp8 *w, const float *scales, size_t from)
{
    const size_t step = 2 * VEC_LANES;
    size_t k = 0;

    while (k < n) {
        const size_t block = scales ? (from + k) / w->cols : 0;
        const size_t left = scales ? (block + 1) * w->cols - from - k : n - k;
        const size_t end = n - k < left ? n : k + left;
        const vec s = vec_set1(scales ? scales[block] : 1);

        for (; k < end; k += step) {
            const size_t n_b = n - k > VEC_LANES ? n - k - VEC_LANES : 0;
            /* 0 times an infinite scale must not reach the sums */
            const vec a = vec_first(vec_load(x + k, n - k) * s, n - k);
            vec b = vec_zero(), even, odd;

            if (n_b)
                b = vec_first(vec_load(x + k + VEC_LANES, n_b) * s, n_b);
            vec_split_pairs(&even, &odd, a, b);
            vec_store(out + k, even, VEC_LANES);
            vec_store(out + k + VEC_LANES, odd, VEC_LANES);
        }
    }
    for (; k % FP8_STEP; k += VEC_LANES)
        vec_store(out + k, vec_zero(), VEC_LANES);
}

/* scales: of MX_GROUP elements each, or NULL. */
INLINE void fp8_step(vec a[FP8_TOKENS][4], vec_ints *flags,
                     const unsigned char *q, const float *x,
                     const float *scales, int T)
{
    vec w[4];

    vec_load_fp8(w, q, flags);
    UNROLL
    for (size_t c = 0; c < 4 && scales; c++)
        w[c] *= vec_set1(scales[c / 2 * 2 * VEC_LANES / MX_GROUP]);
    UNROLL
    for (size_t t = 0; t < (size_t)T; t++) {
        UNROLL
        for (size_t c = 0; c < 4; c++)
            a[t][c] = vec_fma(
                w[c], vec_load(x + t * FP8_COLS + c * VEC_LANES, VEC_LANES),
                a[t][c]);
    }
}

/* Multiply n elements of a row by T tokens, which fp8_prepare wrote. scales: of
 * MX_GROUP elements each and for whole steps, or NULL. */
INLINE void fp8_dot(float sums[FP8_TOKENS], const unsigned char *q,
                    const float *x, const float *scales, size_t n, size_t ahead,
                    bool to_l2, int T)
{
    vec a[FP8_TOKENS][4];
    vec_ints flags = vec_ints_zero();
    size_t k = 0;

    UNROLL
    for (int t = 0; t < T; t++) {
        UNROLL
        for (int c = 0; c < 4; c++)
            a[t][c] = vec_zero();
    }
    for (; n - k >= FP8_LINE; k += FP8_LINE) {
        sweep_by(q + k, ahead, to_l2);
        UNROLL
        for (size_t i = 0; i < FP8_LINE; i += FP8_STEP)
            fp8_step(a, &flags, q + k + i, x + k + i,
                     scales ? scales + (k + i) / MX_GROUP : NULL, T);
    }
    for (; k < n; k += FP8_STEP) {
        unsigned char last[FP8_STEP] = {0};

        memcpy(last, q + k, n - k < FP8_STEP ? n - k : FP8_STEP);
        fp8_step(a, &flags, last, x + k, scales ? scales + k / MX_GROUP : NULL,
                 T);
    }
    UNROLL
    for (int t = 0; t < T; t++)
        sums[t] = vec_fp8_has_nan(flags)
                      ? NAN
                      : vec_sum((a[t][0] + a[t][1]) + (a[t][2] + a[t][3]));
}

/* A run of rows with the same prepared activations, and columns [from, from +
 * n). */
struct fp8_run {
    const struct fp8 *w;
    size_t row, n_rows;
    size_t from, n;
    const float *x;
    float *y; /* of the first row and token */
    size_t ldy;
    bool by_row; /* results are multiplied by the scale of their row */
};

/* Write the halves of n E8M0 scales, and zeros up to whole vectors. */
INLINE void mx_scales(float *out, const unsigned char *e, size_t n)
{
    unsigned char last[VEC_LANES] = {0};
    size_t i = 0;

    for (; n - i >= VEC_LANES; i += VEC_LANES)
        vec_store(out + i, vec_e8m0_halves(e + i), VEC_LANES);
    if (i == n)
        return;
    memcpy(last, e + i, n - i);
    vec_store(out + i, vec_e8m0_halves(last), VEC_LANES);
}

INLINE void fp8_rows(const struct fp8_run *p, bool mx, bool to_l2, int T)
{
    const size_t ahead = kernel_core.sweep_ahead;
    float halves[FP8_COLS / MX_GROUP];

    for (size_t r = 0; r < p->n_rows; r++) {
        const size_t row = p->row + r;
        const float scale = mx ? 2 : p->by_row ? *fp8_scales(p->w, row) : 1;
        float sums[FP8_TOKENS];

        if (mx)
            mx_scales(halves,
                      p->w->mx + row * p->w->mx_stride + p->from / MX_GROUP,
                      p->n / MX_GROUP);
        fp8_dot(sums, p->w->q + row * p->w->q_stride + p->from, p->x,
                mx ? halves : NULL, p->n, ahead, to_l2, T);
        for (size_t t = 0; t < (size_t)T; t++) {
            const float sum = sums[t] * FP8_UNIT * scale;
            float *y = p->y + t * p->ldy + r;

            *y = p->from ? *y + sum : sum;
        }
    }
}

#define FP8_ROWS(T)                                                    \
    static void fp8_rows_##T(const struct fp8_run *p)                  \
    {                                                                  \
        WITH_FLAG(to_l2, kernel_core.sweep_l2,                         \
                  WITH_FLAG(mx, p->w->mx, fp8_rows(p, mx, to_l2, T))); \
    }

FP8_ROWS(1)
FP8_ROWS(2)
#if VEC_LANES == 16
FP8_ROWS(3)
FP8_ROWS(4)
#endif

/* [tokens - 1] */
static void (*const fp8_rows_of[FP8_TOKENS])(const struct fp8_run *) = {
    fp8_rows_1, fp8_rows_2,
#if VEC_LANES == 16
    fp8_rows_3, fp8_rows_4
#endif
};

static void KERNEL(matmul_f32_fp8)(float *y, size_t ldy, const struct fp8 *w,
                                   const float *x, size_t ldx, size_t n_rows,
                                   size_t n_cols, size_t n_tokens, float *work)
{
    const bool by_row = !w->mx && w->rows == 1 && w->cols >= n_cols;
    const bool by_block = !w->mx && !by_row;
    struct fp8_run p = {.w = w, .x = work, .ldy = ldy, .by_row = by_row};

    do {
        p.n = n_cols - p.from < FP8_COLS ? n_cols - p.from : FP8_COLS;
        for (p.row = 0; p.row < n_rows; p.row += p.n_rows) {
            const float *scales = by_block ? fp8_scales(w, p.row) : NULL;

            p.n_rows = n_rows - p.row;
            if (by_block) {
                const size_t left = w->rows - (w->first + p.row) % w->rows;

                p.n_rows = left < p.n_rows ? left : p.n_rows;
            }
            for (size_t t = 0; t < n_tokens; t += FP8_TOKENS) {
                const size_t T =
                    n_tokens - t < FP8_TOKENS ? n_tokens - t : FP8_TOKENS;

                for (size_t i = 0; i < T; i++)
                    fp8_prepare(work + i * FP8_COLS, x + (t + i) * ldx + p.from,
                                p.n, w, scales, p.from);
                p.y = y + t * ldy + p.row;
                fp8_rows_of[T - 1](&p);
            }
        }
        p.from += FP8_COLS;
    } while (p.from < n_cols);
}

#endif
