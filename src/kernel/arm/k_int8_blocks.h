/* Products of GGUF's blocks and int8 activations. Included by the files that
 * k_int8_panel.h describes.
 *
 * With one token, a row is read in one sequential sweep, with lanes along the
 * row: the integer sums of four runs, or of four halves of runs, become the
 * lanes of one vector. With more tokens, rows are expanded into panels. */
#ifndef KERNEL_ARM_K_INT8_BLOCKS_H
#define KERNEL_ARM_K_INT8_BLOCKS_H

#include "kernel/arm/k_block_codes_neon.h"
#include "kernel/arm/k_int8_panel.h"

/* Rows in blocks. */
struct block_rows {
    const unsigned char *w;
    size_t stride;
};

INLINE size_t groups_of(enum dtype type, size_t n_runs)
{
    return has_halves(type) ? 2 * n_runs : n_runs;
}

INLINE bool has_rest(enum dtype type)
{
    return has_min(type) || offset_of(type);
}

/* chunk_scales, with mins that contain the offset. Those of missing runs are
 * 0. */
INLINE void product_scales(enum dtype type, float scale[2 * CHUNK_RUNS],
                           float min[2 * CHUNK_RUNS], const unsigned char *p,
                           size_t n)
{
    if (n < CHUNK_RUNS) {
        memset(scale, 0, 2 * CHUNK_RUNS * sizeof *scale);
        memset(min, 0, 2 * CHUNK_RUNS * sizeof *min);
    }
    chunk_scales(type, scale, min, p, n);
    for (size_t r = 0; offset_of(type) && r < CHUNK_RUNS; r += 4)
        vst1q_f32(min + r,
                  vmulq_n_f32(vld1q_f32(scale + r), (float)offset_of(type)));
}

/* ---- panels ------------------------------------------------------------- */

INLINE void block_expand(enum dtype type, int8_t *q, float *scale, float *min,
                         const struct block_rows *rows, size_t r, size_t k,
                         size_t n)
{
    const unsigned char *p =
        rows->w + r * rows->stride + runs_bytes(type, k / RUN);
    const size_t n_runs = n / RUN;

    for (size_t c = 0, nr; c < n_runs; c += nr) {
        float s[2 * CHUNK_RUNS], m[2 * CHUNK_RUNS];

        nr = n_runs - c < CHUNK_RUNS ? n_runs - c : CHUNK_RUNS;
        product_scales(type, s, m, p, nr);
        memcpy(scale + groups_of(type, c), s,
               groups_of(type, nr) * sizeof *scale);
        if (has_rest(type))
            memcpy(min + groups_of(type, c), m,
                   groups_of(type, nr) * sizeof *min);
        for (size_t i = 0; i < nr; i++, q += RUN) {
            int8x16_t v[2];

            run_codes(type, v, p, i);
            vst1q_s8(q, v[0]);
            vst1q_s8(q + 16, v[1]);
        }
        p += runs_bytes(type, nr);
    }
}

/* ---- one token ---------------------------------------------------------- */

/* Columns whose sums of 16 activations the caller's memory holds. */
enum { BLOCK_COLS = 65536 };

/* Activations of one token from a column on. */
struct block_token {
    const int8_t *q;
    const float *scale, *sum;
    const float *halves; /* sums of each 16, for types with mins of halves */
};

/* Each of two numbers twice, or 0 for the second if n is 1. */
INLINE float32x4_t halves_scales(const float *p, size_t n)
{
    const float32x4_t v = load4((const char *)p, n < 2 ? n : 2, DT_F32);

    return vzip1q_f32(v, v);
}

/* Add the products of runs r and r + 1 of the chunk, as four halves; only one
 * of them if n is 1. */
INLINE void add_halves(enum dtype type, float32x4_t sums[2],
                       const unsigned char *p, const float *scale,
                       const float *min, const struct block_token *x, size_t c,
                       size_t r, size_t n)
{
    int32x4_t s[4];

    UNROLL
    for (size_t i = 0; i < 2; i++) {
        const int8_t *q = x->q + (c + r + i) * RUN;
        int8x16_t v[2];

        s[2 * i] = s[2 * i + 1] = vdupq_n_s32(0);
        if (i >= n)
            continue;
        run_codes(type, v, p, r + i);
        s[2 * i] = add_any(s[2 * i], v[0], load16(q));
        s[2 * i + 1] = add_any(s[2 * i + 1], v[1], load16(q + 16));
    }
    sums[0] =
        vfmaq_f32(sums[0], vcvtq_f32_s32(reduce4(s)) * vld1q_f32(scale + 2 * r),
                  halves_scales(x->scale + c + r, n));
    if (has_min(type))
        sums[1] = vfmsq_f32(
            sums[1], vld1q_f32(min + 2 * r),
            load4((const char *)(x->halves + 2 * (c + r)), 2 * n, DT_F32));
}

/* Add the products of runs r to r + 3 of the chunk, or of the first n of
 * them. */
INLINE void add_runs(enum dtype type, float32x4_t sums[2],
                     const unsigned char *p, const float *scale,
                     const float *min, const struct block_token *x, size_t c,
                     size_t r, size_t n)
{
    int32x4_t s[4];

    UNROLL
    for (size_t i = 0; i < 4; i++) {
        const int8_t *q = x->q + (c + r + i) * RUN;
        int8x16_t v[2];

        s[i] = vdupq_n_s32(0);
        if (i >= n)
            continue;
        run_codes(type, v, p, r + i);
        s[i] = add_any(s[i], v[0], load16(q));
        s[i] = add_any(s[i], v[1], load16(q + 16));
    }
    sums[0] =
        vfmaq_f32(sums[0], vcvtq_f32_s32(reduce4(s)) * vld1q_f32(scale + r),
                  load4((const char *)(x->scale + c + r), n, DT_F32));
    if (has_rest(type))
        sums[1] = vfmsq_f32(sums[1], vld1q_f32(min + r),
                            load4((const char *)(x->sum + c + r), n, DT_F32));
}

INLINE void add_chunk(enum dtype type, float32x4_t sums[2],
                      const unsigned char *p, const struct block_token *x,
                      size_t c, size_t n)
{
    float scale[2 * CHUNK_RUNS], min[2 * CHUNK_RUNS];

    product_scales(type, scale, min, p, n);
    if (has_halves(type)) {
        UNROLL
        for (size_t r = 0; r < CHUNK_RUNS; r += 2)
            if (r < n)
                add_halves(type, sums, p, scale, min, x, c, r, n - r);
    } else {
        UNROLL
        for (size_t r = 0; r < CHUNK_RUNS; r += 4)
            if (r < n)
                add_runs(type, sums, p, scale, min, x, c, r, n - r);
    }
}

/* Multiply a row of n_runs runs. */
INLINE float block_row(enum dtype type, const unsigned char *p,
                       const struct block_token *x, size_t n_runs)
{
    const size_t bytes = runs_bytes(type, CHUNK_RUNS);
    float32x4_t sums[2] = {vdupq_n_f32(0), vdupq_n_f32(0)};
    size_t c = 0;

    for (; n_runs - c >= CHUNK_RUNS; c += CHUNK_RUNS, p += bytes) {
        UNROLL
        for (size_t i = 0; i < bytes; i += 64)
            sweep(p + i);
        add_chunk(type, sums, p, x, c, CHUNK_RUNS);
    }
    if (c < n_runs && elements_of(type) < SUPER)
        add_chunk(type, sums, p, x, c, n_runs - c);
    return sum_lanes(sums[0] + sums[1]);
}

INLINE void blocks_one(enum dtype type, float *y, const struct block_rows *w,
                       const struct q8 *x, size_t n_rows, size_t n_cols,
                       bool add, float *work)
{
    const unsigned char *p = w->w;
    size_t n;

    for (size_t k = 0; k < n_cols; k += n) {
        n = n_cols - k < BLOCK_COLS ? n_cols - k : BLOCK_COLS;
        const struct block_token at = {.q = x->q + k,
                                       .scale = x->scale + k / RUN,
                                       .sum = x->sum + k / RUN,
                                       .halves = work};

        for (size_t i = 0; has_halves(type) && has_min(type) && i < n; i += 16)
            work[i / 16] = at.scale[i / RUN] * (float)sum_q(at.q + i, 16);
        for (size_t r = 0; r < n_rows; r++) {
            const float sum = block_row(type, p + r * w->stride, &at, n / RUN);

            y[r] = add || k > 0 ? y[r] + sum : sum;
        }
        p += runs_bytes(type, n / RUN);
    }
}

/* ---- kernels ------------------------------------------------------------ */

/* Multiply by n_tokens tokens. */
INLINE void gemm_blocks(enum dtype type, expand_fn *expand, float *y,
                        size_t ldy, const struct block_rows *w,
                        const struct q8 *x, size_t n_rows, size_t n_cols,
                        size_t n_tokens, bool add, float *work)
{
    const struct panel_kind kind = {.group = has_halves(type) ? 16 : RUN,
                                    .min = has_rest(type)};

    if (n_tokens >= kernel_core.arm_panels_min) {
        matmul_panels(y, ldy, w, expand, &kind, x, n_rows, n_cols, n_tokens,
                      add, work);
        return;
    }
    for (size_t t = 0; t < n_tokens; t++) {
        struct q8 one = *x;

        one.q += t * x->ldq;
        one.scale += t * x->ldg;
        one.sum += t * x->ldg;
        blocks_one(type, y + t * ldy, w, &one, n_rows, n_cols, add, work);
    }
}

#define BLOCK_KERNELS(name, TYPE)                                              \
    static void expand_##name(int8_t *q, float *scale, float *min,             \
                              const void *w, size_t r, size_t k, size_t n)     \
    {                                                                          \
        block_expand(TYPE, q, scale, min, w, r, k, n);                         \
    }                                                                          \
    static void KERNEL(gemm_q8_##name)(float *y, size_t ldy, const void *w,    \
                                       size_t w_stride, const struct q8 *x,    \
                                       size_t n_rows, size_t n_cols,           \
                                       size_t n_tokens, bool add, float *work) \
    {                                                                          \
        const struct block_rows rows = {w, w_stride};                          \
                                                                               \
        gemm_blocks(TYPE, expand_##name, y, ldy, &rows, x, n_rows, n_cols,     \
                    n_tokens, add, work);                                      \
    }

EACH_BLOCK_TYPE(BLOCK_KERNELS)

#define ENTER_BLOCKS(name, TYPE) \
    k->gemm_q8_blocks[TYPE - DT_BLOCKS] = KERNEL(gemm_q8_##name);

/* Enter the int8 products of this level. */
static void enter_int8(struct kernels *k)
{
    k->gemm_q8_affine = KERNEL(gemm_q8_affine);
    k->peak_q8 = KERNEL(peak_q8);
    EACH_BLOCK_TYPE(ENTER_BLOCKS)
}

#endif
