/* attn_tile, over the SIMD shim: attention of prefill in f32. It multiplies a
 * tile of many query rows by a block of keys, applies the softmax, and
 * multiplies by the block of values (FlashAttention, Dao et al. 2022). Included
 * by k_f32.h.
 *
 * Keys are packed into panels of GEMM_NR positions, and values into panels of
 * GEMM_NR elements, so that no sum crosses the lanes of a vector. */
#ifndef KERNEL_K_F32_ATTN_TILE_H
#define KERNEL_K_F32_ATTN_TILE_H

#if !defined KERNEL_K_F32_GEMM_H || !defined KERNEL_K_F32_ATTN_H
#error "uses gemm_pack and gemm_micro, attn_softmax and attn_block"
#endif

_Static_assert(KV_BLOCK % GEMM_NR == 0 && GEMM_NR <= 32, "whole panels");
_Static_assert(GEMM_MC <= ATTN_TILE_BATCH, "the caller's memory");

/* The parts of a call's scratch. */
struct attn_panels {
    float *keys;   /* [panel of positions][element][GEMM_NR] */
    float *values; /* [panel of elements][position][GEMM_NR] */
    float *p;      /* [GEMM_MC][KV_BLOCK] scores */
};

/* Positions [lo, hi); none if lo >= hi. */
struct visible {
    size_t lo, hi;
};

/* Return the positions that at least one of rows [i, i + n) attends to. */
INLINE struct visible rows_visible(const struct attn_rows *rows, size_t i,
                                   size_t n)
{
    int lo = KV_BLOCK, hi = 0;

    for (; n > 0; i++, n--)
        if (rows->lo[i] < rows->hi[i]) {
            lo = rows->lo[i] < lo ? rows->lo[i] : lo;
            hi = rows->hi[i] > hi ? rows->hi[i] : hi;
        }
    return (struct visible){(size_t)lo, (size_t)hi};
}

/* Pack the values of positions `in`, and zeros for all other positions. Returns
 * whether all values are finite: if one is not, 0 times it can be NaN. */
INLINE bool attn_pack_values(float *out, const char *v, size_t d,
                             struct visible in, enum dtype type)
{
    const size_t bytes = type_bytes(type);
    vec sum = vec_zero();

    for (size_t e0 = 0; e0 < d; e0 += GEMM_NR) {
        for (size_t j = 0; j < KV_BLOCK; j++, out += GEMM_NR) {
            UNROLL
            for (size_t e = e0; e < e0 + GEMM_NR; e += VEC_LANES) {
                const char *at = v + (j * d + e) * bytes;
                vec x = vec_zero();

                if (j >= in.lo && j < in.hi && e < d)
                    x = vec_load_as(at, d - e, type);
                sum = vec_fma(x, vec_zero(), sum);
                vec_store(out + e - e0, x, VEC_LANES);
            }
        }
    }
    return !vec_any_nan(sum);
}

/* Compute the scores of the R rows from first + i on. */
INLINE void attn_tile_scores(const struct attn_rows *rows,
                             const struct attn_panels *t, size_t d, size_t i,
                             size_t first, int R)
{
    const struct visible in = rows_visible(rows, first + i, (size_t)R);

    for (size_t j = in.lo / GEMM_NR * GEMM_NR; j < in.hi; j += GEMM_NR)
        gemm_micro(t->p + i * KV_BLOCK + j, KV_BLOCK,
                   rows->q + (first + i) * rows->ldq, rows->ldq,
                   t->keys + j * d, d, GEMM_NR, R, true);
}

/* Add the exponentials times the values to acc, for the R rows from first + i
 * on. */
INLINE void attn_tile_values(const struct attn_rows *rows,
                             const struct attn_panels *t, size_t d, size_t i,
                             size_t first, int R)
{
    const struct visible in = rows_visible(rows, first + i, (size_t)R);

    for (size_t e = 0; in.lo < in.hi && e < d; e += GEMM_NR)
        gemm_micro(rows->acc + (first + i) * d + e, d,
                   t->p + i * KV_BLOCK + in.lo, KV_BLOCK,
                   t->values + e * KV_BLOCK + in.lo * GEMM_NR, in.hi - in.lo,
                   d - e, R, false);
}

/* Attend with rows [first, first + n), at most GEMM_MC. */
static void attn_tile_batch(const struct attn_rows *rows,
                            const struct attn_panels *t, size_t d, size_t first,
                            size_t n)
{
    size_t i = 0;

    for (; n - i >= GEMM_MR; i += GEMM_MR)
        attn_tile_scores(rows, t, d, i, first, GEMM_MR);
    for (; n - i >= GEMM_MID; i += GEMM_MID)
        attn_tile_scores(rows, t, d, i, first, GEMM_MID);
    for (; i < n; i++)
        attn_tile_scores(rows, t, d, i, first, 1);
    for (i = 0; i < n; i++)
        if (rows->lo[first + i] < rows->hi[first + i])
            attn_softmax(rows, first + i, t->p + i * KV_BLOCK, 1, d, true);
        else /* positions of other rows of the batch count 0 */
            memset(t->p + i * KV_BLOCK, 0, KV_BLOCK * sizeof *t->p);
    i = 0;
    for (; n - i >= GEMM_MR; i += GEMM_MR)
        attn_tile_values(rows, t, d, i, first, GEMM_MR);
    for (; n - i >= GEMM_MID; i += GEMM_MID)
        attn_tile_values(rows, t, d, i, first, GEMM_MID);
    for (; i < n; i++)
        attn_tile_values(rows, t, d, i, first, 1);
}

/* Attend with all rows. Returns false, with nothing done, if a value is not
 * finite: a tile multiplies it by 0 for the rows that do not attend to it. */
INLINE bool attn_tile_of(const struct attn_rows *rows, const char *k,
                         const char *v, size_t d, float *scratch,
                         enum dtype type)
{
    const struct visible all = rows_visible(rows, 0, rows->n);
    struct attn_panels t = {.p = scratch};

    t.keys = t.p + GEMM_MC * KV_BLOCK;
    t.values = t.keys + KV_BLOCK * d;
    if (all.lo >= all.hi)
        return true;
    if (!attn_pack_values(t.values, v, d, all, type))
        return false;
    gemm_pack(t.keys, k, d * type_bytes(type), KV_BLOCK, d, type);
    for (size_t i = 0; i < rows->n; i += GEMM_MC)
        attn_tile_batch(rows, &t, d, i,
                        rows->n - i < GEMM_MC ? rows->n - i : GEMM_MC);
    return true;
}

#define ATTN_TILE(name, type)                                             \
    static void KERNEL(attn_tile_##name)(const struct attn_rows *rows,    \
                                         const void *k, const void *v,    \
                                         size_t head_dim, float *scratch) \
    {                                                                     \
        if (!attn_tile_of(rows, k, v, head_dim, scratch, type))           \
            KERNEL(attn_block_##name)(rows, k, v, head_dim, scratch);     \
    }

ATTN_TILE(f32, DT_F32)
ATTN_TILE(f16, DT_F16)
ATTN_TILE(bf16, DT_BF16)

static void KERNEL(attn_tile_i8)(const struct attn_rows *rows, const void *k,
                                 const void *v, size_t d, float *scratch)
{
    size_t n = KV_BLOCK * d;

    attn_widen_i8(scratch, k, d);
    attn_widen_i8(scratch + n, v, d);
    KERNEL(attn_tile_f32)(rows, scratch, scratch + n, d, scratch + 2 * n);
}

#endif
