/* What surrounds the vectors of k_avx2.c and k_avx512.c: how products and
 * attention are cut into pieces that fit registers and caches. The cuts decide
 * what is in flight at the same time, never the order of sums.
 *
 * Included once, after k_avx.h, k_sgemm.h and
 *
 *   KERNEL(name)    the level's name of a kernel: k_##name##_avx2
 *   vec             its vector of floats; LANES of them
 *   TILE_SUMS       accumulators of a product
 *   MAX_T           query rows that attention takes at a time: 3, or above 4
 *   rows_by_one(y, w, w_bytes, x, n_rows, n, type, work)
 *                   all rows by one token
 *   tile(y, ldy, w, w_bytes, x, ldx, n, R, T, type, ahead)
 *                   R = 4 or 1 rows of w by T <= 3 tokens, in TILE_SUMS
 *                   accumulators each, fetching what begins at ahead unless
 *                   NULL
 *   to_f32(out, in, n, type), from_f32(out, in, n, type)
 *   exp1(x)         the level's exponential
 *   attn_scores(scores, q, ldq, k, d, lo, hi, T, type, ahead)
 *                   scores[t * KV_BLOCK + j] = q_t . k_j for T <= MAX_T rows
 *                   of q and j in [lo, hi), while fetching ahead
 *   attn_mask(s, scores, lo, hi)
 *                   KV_BLOCK scores to s, -INFINITY outside [lo, hi); their
 *                   maximum, without NaN
 *   attn_exp(scores, s, shift, flush)
 *                   scores = exp(s - shift), which may be 0 below exp(-87) if
 *                   flush; their sum
 *   attn_value_rows(acc, d, p, v, lo, hi, R, type, ahead)
 *                   acc += sum over j in [lo, hi), ascending, of p_j v_j for
 *                   R rows, while fetching ahead
 *   attn_widen_q8(out, block, d)
 *                   an int8 block to f32
 *                   (type may be DT_I8, an int8 block, in these three)
 *   KERNEL(...)     all that the table below takes and this file does not have
 */
#ifndef KERNEL_K_TILES_H
#define KERNEL_K_TILES_H

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "kernel/kernel.h"

/* ---- products ----------------------------------------------------------- */

enum { FEW_TOKENS = 9, BLOCK_L1 = 16 << 10, BLOCK_L2 = 128 << 10 };

/* All rows by T tokens. */
INLINE void tile_rows(float *y, size_t ldy, const char *w, size_t w_bytes,
                      const float *x, size_t ldx, size_t n_rows, size_t n,
                      int T, enum dtype type, bool ahead)
{
    size_t r = 0;

    for (; r + 4 <= n_rows; r += 4)
        tile(y + r, ldy, w + r * w_bytes, w_bytes, x, ldx, n, 4, T, type,
             ahead ? w + (r + 4) * w_bytes : NULL);
    for (; r < n_rows; r++)
        tile(y + r, ldy, w + r * w_bytes, w_bytes, x, ldx, n, 1, T, type, NULL);
}

INLINE void matmul(float *y, size_t ldy, const char *w, size_t w_stride,
                   const float *x, size_t ldx, size_t n_rows, size_t n_cols,
                   size_t n_tokens, enum dtype type, float *work)
{
    const size_t w_bytes = w_stride * type_bytes(type);
    size_t block = n_rows;

    /* More than one pass over the rows: as many at a time as L2 keeps; with
     * few tokens, when memory is the limit, as L1 keeps. */
    if (n_tokens > 3) {
        block = (n_tokens > FEW_TOKENS ? BLOCK_L2 : BLOCK_L1) /
                (n_cols * type_bytes(type) + 1);
        block = block < 4 ? 4 : block & ~(size_t)3;
    }
    for (size_t r = 0; r < n_rows; r += block) {
        size_t nr = n_rows - r < block ? n_rows - r : block, t = 0;
        const char *wr = w + r * w_bytes;

        /* by threes, a rest of four by twos */
        for (; n_tokens - t >= 3 && n_tokens - t != 4; t += 3) {
            if (t == 0)
                tile_rows(y + r, ldy, wr, w_bytes, x, ldx, nr, n_cols, 3, type,
                          true);
            else
                tile_rows(y + t * ldy + r, ldy, wr, w_bytes, x + t * ldx, ldx,
                          nr, n_cols, 3, type, false);
        }
        for (; n_tokens - t >= 2; t += 2)
            tile_rows(y + t * ldy + r, ldy, wr, w_bytes, x + t * ldx, ldx, nr,
                      n_cols, 2, type, t == 0);
        if (n_tokens - t == 1)
            rows_by_one(y + t * ldy + r, wr, w_bytes, x + t * ldx, nr, n_cols,
                        type, work);
    }
}

/* ---- attention ---------------------------------------------------------- */

/* Widening once pays from the third use of a block on: for more rows than
 * these. The exponentials count as so many positions of a sweep that fetches.
 */
enum { FEW_ROWS = 2 * MAX_T, SOFTMAX_FETCH = 16 };

/* Bytes of a block of keys or values. */
INLINE size_t run_bytes(size_t d, enum dtype type)
{
    size_t scales = type == DT_I8 ? kv_q8_groups(d) * sizeof(float) : 0;

    return KV_BLOCK * (d * type_bytes(type) + scales);
}

/* The row's scores become exp(score - m), 0 outside [lo, hi); m, l and acc take
 * the new maximum. flush: as attn_exp has it. */
INLINE void attn_softmax(const struct attn_rows *rows, size_t i, float *scores,
                         size_t d, bool flush)
{
    vec s[KV_BLOCK / LANES];
    float old = rows->m[i], top, shift, sum, keep;

    top = attn_mask(s, scores, rows->lo[i], rows->hi[i]);
    top = top > old ? top : old;
    /* all -INFINITY so far: exp(-INFINITY) is wanted, not exp(NaN) */
    shift = top == -INFINITY ? 0 : top;
    sum = attn_exp(scores, s, shift, flush);
    rows->m[i] = top;
    if (top == old) {
        rows->l[i] += sum;
        return;
    }
    keep = exp1(old - shift);
    rows->l[i] = rows->l[i] * keep + sum;
    KERNEL(scale)(rows->acc + i * d, keep, d);
}

/* Rows [i, i + T), scores in s. Memory is kept busy meanwhile: it delivers the
 * values while keys are read, and what next has from the exponentials on. */
INLINE void attn_rows_tile(const struct attn_rows *rows, size_t i, float *s,
                           const char *k, const char *v, size_t d, int T,
                           enum dtype type, struct ahead *values,
                           struct ahead *next)
{
    const size_t run = type == DT_F32 ? 0 : run_bytes(d, type);
    int lo = KV_BLOCK, hi = 0;       /* of any row */
    int in_lo = 0, in_hi = KV_BLOCK; /* of all rows */
    float *acc = rows->acc + i * d;

    for (size_t t = i; t < i + (size_t)T; t++) {
        if (rows->lo[t] < rows->hi[t]) {
            lo = rows->lo[t] < lo ? rows->lo[t] : lo;
            hi = rows->hi[t] > hi ? rows->hi[t] : hi;
        }
        in_lo = rows->lo[t] > in_lo ? rows->lo[t] : in_lo;
        in_hi = rows->hi[t] < in_hi ? rows->hi[t] : in_hi;
    }
    if (lo >= hi)
        return;
    /* each tile fetches its part */
    values->step = run * (size_t)T / (KV_BLOCK * rows->n);
    next->step = run * (size_t)T / ((KV_BLOCK + SOFTMAX_FETCH) * rows->n);
    attn_scores(s, rows->q + i * rows->ldq, rows->ldq, k, d, lo, hi, T, type,
                values);
    for (size_t t = 0; t < (size_t)T; t++) {
        fetch(next, SOFTMAX_FETCH / (size_t)T);
        if (rows->lo[i + t] < rows->hi[i + t])
            attn_softmax(rows, i + t, s + t * KV_BLOCK, d, false);
    }
    if (T > 1 && in_lo < in_hi) {
        /* each row's own positions before and after the common ones: what is
         * outside of a row's range must not touch it, not even times 0 */
        for (size_t t = 0; t < (size_t)T; t++)
            attn_value_rows(acc + t * d, d, s + t * KV_BLOCK, v,
                            rows->lo[i + t], in_lo, 1, type, next);
        attn_value_rows(acc, d, s, v, in_lo, in_hi, T, type, next);
        for (size_t t = 0; t < (size_t)T; t++)
            attn_value_rows(acc + t * d, d, s + t * KV_BLOCK, v, in_hi,
                            rows->hi[i + t], 1, type, next);
    } else {
        for (size_t t = 0; t < (size_t)T; t++)
            attn_value_rows(acc + t * d, d, s + t * KV_BLOCK, v,
                            rows->lo[i + t], rows->hi[i + t], 1, type, next);
    }
}

INLINE void attn_tiles(const struct attn_rows *rows, const char *k,
                       const char *v, size_t d, float *s, enum dtype type,
                       bool to_l2)
{
    struct ahead values = {v, 0, to_l2};
    struct ahead next = {rows->next ? rows->next : v + run_bytes(d, type), 0,
                         to_l2};
    size_t i = 0;

    for (; rows->n - i >= MAX_T; i += MAX_T)
        attn_rows_tile(rows, i, s, k, v, d, MAX_T, type, &values, &next);
    for (; MAX_T > 4 && rows->n - i >= 4; i += 4)
        attn_rows_tile(rows, i, s, k, v, d, 4, type, &values, &next);
    for (; rows->n - i >= 2; i += 2)
        attn_rows_tile(rows, i, s, k, v, d, 2, type, &values, &next);
    for (; i < rows->n; i++)
        attn_rows_tile(rows, i, s, k, v, d, 1, type, &values, &next);
}

/* Qwen3's heads get code with every distance and the way to fetch in it. */
INLINE void attn_all_rows(const struct attn_rows *rows, const char *k,
                          const char *v, size_t d, float *s, enum dtype type)
{
    if (d != 128)
        attn_tiles(rows, k, v, d, s, type, kernel_sweep.to_l2);
    else if (kernel_sweep.to_l2)
        attn_tiles(rows, k, v, 128, s, type, true);
    else
        attn_tiles(rows, k, v, 128, s, type, false);
}

static void KERNEL(attn_block_f32)(const struct attn_rows *rows, const void *k,
                                   const void *v, size_t d, float *scratch)
{
    attn_all_rows(rows, k, v, d, scratch, DT_F32);
}

INLINE void attn_block_16(const struct attn_rows *rows, const void *k,
                          const void *v, size_t d, float *scratch,
                          enum dtype type)
{
    size_t n = KV_BLOCK * d;

    if (rows->n <= FEW_ROWS) {
        attn_all_rows(rows, k, v, d, scratch, type);
        return;
    }
    to_f32(scratch, k, n, type);
    to_f32(scratch + n, v, n, type);
    KERNEL(attn_block_f32)(rows, scratch, scratch + n, d, scratch + 2 * n);
}

static void KERNEL(attn_block_q8)(const struct attn_rows *rows, const void *k,
                                  const void *v, size_t d, float *scratch)
{
    size_t n = KV_BLOCK * d;

    if (rows->n <= FEW_ROWS) {
        attn_all_rows(rows, k, v, d, scratch, DT_I8);
        return;
    }
    attn_widen_q8(scratch, k, d);
    attn_widen_q8(scratch + n, v, d);
    KERNEL(attn_block_f32)(rows, scratch, scratch + n, d, scratch + 2 * n);
}

#include "kernel/k_attn_f32.h"

/* ---- the table ---------------------------------------------------------- */

#define MATMUL(name, type)                                                    \
    static void KERNEL(matmul_##name)(                                        \
        float *y, size_t ldy, const void *w, size_t w_stride, const float *x, \
        size_t ldx, size_t n_rows, size_t n_cols, size_t n_tokens,            \
        float *work)                                                          \
    {                                                                         \
        matmul(y, ldy, w, w_stride, x, ldx, n_rows, n_cols, n_tokens, type,   \
               work);                                                         \
    }

MATMUL(f32, DT_F32)
MATMUL(f16, DT_F16)
MATMUL(bf16, DT_BF16)

#define ATTN_BLOCK(name, type)                                             \
    static void KERNEL(attn_block_##name)(const struct attn_rows *rows,    \
                                          const void *k, const void *v,    \
                                          size_t head_dim, float *scratch) \
    {                                                                      \
        attn_block_16(rows, k, v, head_dim, scratch, type);                \
    }

ATTN_BLOCK(f16, DT_F16)
ATTN_BLOCK(bf16, DT_BF16)

#define CONVERSIONS(name, type)                                               \
    static void KERNEL(to_f32_##name)(float *out, const void *in, size_t n)   \
    {                                                                         \
        to_f32(out, in, n, type);                                             \
    }                                                                         \
    static void KERNEL(from_f32_##name)(void *out, const float *in, size_t n) \
    {                                                                         \
        from_f32(out, in, n, type);                                           \
    }

CONVERSIONS(f16, DT_F16)
CONVERSIONS(bf16, DT_BF16)

static void fill_table(struct kernels *k)
{
    k->matmul[DT_F32] = KERNEL(matmul_f32);
    k->matmul[DT_F16] = KERNEL(matmul_f16);
    k->matmul[DT_BF16] = KERNEL(matmul_bf16);
    k->to_f32[DT_F16] = KERNEL(to_f32_f16);
    k->to_f32[DT_BF16] = KERNEL(to_f32_bf16);
    k->from_f32[DT_F16] = KERNEL(from_f32_f16);
    k->from_f32[DT_BF16] = KERNEL(from_f32_bf16);
    k->rmsnorm = KERNEL(rmsnorm);
    k->rope = KERNEL(rope);
    k->swiglu = KERNEL(swiglu);
    k->add = KERNEL(add);
    k->scale = KERNEL(scale);
    k->attn_block[DT_F32] = KERNEL(attn_block_f32);
    k->attn_block[DT_F16] = KERNEL(attn_block_f16);
    k->attn_block[DT_BF16] = KERNEL(attn_block_bf16);
    k->attn_block_q8 = KERNEL(attn_block_q8);
    k->attn_tile[DT_F32] = KERNEL(attn_tile_f32);
    k->attn_tile[DT_F16] = KERNEL(attn_tile_f16);
    k->attn_tile[DT_BF16] = KERNEL(attn_tile_bf16);
    k->attn_tile_q8 = KERNEL(attn_tile_q8);
    k->max = KERNEL(max);
    k->exp_sum = KERNEL(exp_sum);
    k->sgemm_nt[DT_F32] = KERNEL(sgemm_nt_f32);
    k->sgemm_nt[DT_F16] = KERNEL(sgemm_nt_f16);
    k->sgemm_nt[DT_BF16] = KERNEL(sgemm_nt_bf16);
    k->read_sum = KERNEL(read_sum);
    k->peak_flops = KERNEL(peak_flops);
}

#endif
