/* Attention of prefill in f32: a tile of many query rows by a block of keys and
 * values, as two products of k_sgemm.h with the softmax between them
 * (FlashAttention, Dao et al. 2022).
 *
 * Keys become panels of GEMM_NR positions, values panels of GEMM_NR elements,
 * so that no sum crosses the lanes of a vector. Included by k_tiles.h.
 */
#ifndef KERNEL_K_ATTN_F32_H
#define KERNEL_K_ATTN_F32_H

_Static_assert(KV_BLOCK % GEMM_NR == 0 && GEMM_NR <= 32, "whole panels");
_Static_assert(GEMM_MC <= ATTN_TILE_BATCH, "the caller's memory");

/* Where a call's scratch goes. */
struct attn_panels {
    float *keys;   /* [panel of positions][element][GEMM_NR] */
    float *values; /* [panel of elements][position][GEMM_NR] */
    float *p;      /* [GEMM_MC][KV_BLOCK] scores */
};

/* Positions that any of rows [i, i + n) sees; lo >= hi: none. */
struct seen {
    size_t lo, hi;
};

INLINE struct seen rows_see(const struct attn_rows *rows, size_t i, size_t n)
{
    int lo = KV_BLOCK, hi = 0;

    for (; n > 0; i++, n--)
        if (rows->lo[i] < rows->hi[i]) {
            lo = rows->lo[i] < lo ? rows->lo[i] : lo;
            hi = rows->hi[i] > hi ? rows->hi[i] : hi;
        }
    return (struct seen){(size_t)lo, (size_t)hi};
}

/* Values of the positions in s, zeros elsewhere. Returns whether they are
 * finite: x * 0 is NaN otherwise. */
INLINE bool attn_pack_values(float *out, const char *v, size_t d, struct seen s,
                             enum dtype type)
{
    const __m256 zero = _mm256_setzero_ps();
    const size_t bytes = type_bytes(type);
    __m256 sum = zero;

    for (size_t e0 = 0; e0 < d; e0 += GEMM_NR) {
        for (size_t j = 0; j < KV_BLOCK; j++, out += GEMM_NR) {
            UNROLL
            for (size_t e = 0; e < GEMM_NR; e += 8) {
                const char *at = v + (j * d + e0 + e) * bytes;
                __m256 x = zero;

                if (j >= s.lo && j < s.hi && e0 + e < d)
                    x = d - e0 - e >= 8 ? load8(at, type)
                                        : load8_part(at, d - e0 - e, type);
                sum = _mm256_fmadd_ps(x, zero, sum);
                _mm256_store_ps(out + e, x);
            }
        }
    }
    return !_mm256_movemask_ps(_mm256_cmp_ps(sum, sum, _CMP_UNORD_Q));
}

/* Scores of rows [first + i, first + i + R). */
INLINE void attn_tile_scores(const struct attn_rows *rows,
                             const struct attn_panels *t, size_t d, size_t i,
                             size_t first, int R)
{
    const struct seen s = rows_see(rows, first + i, (size_t)R);

    for (size_t j = s.lo / GEMM_NR * GEMM_NR; j < s.hi; j += GEMM_NR)
        gemm_micro(t->p + i * KV_BLOCK + j, KV_BLOCK,
                   rows->q + (first + i) * rows->ldq, rows->ldq,
                   t->keys + j * d, d, GEMM_NR, R, true);
}

/* Add their sums over values to acc. */
INLINE void attn_tile_values(const struct attn_rows *rows,
                             const struct attn_panels *t, size_t d, size_t i,
                             size_t first, int R)
{
    const struct seen s = rows_see(rows, first + i, (size_t)R);

    for (size_t e = 0; s.lo < s.hi && e < d; e += GEMM_NR)
        gemm_micro(rows->acc + (first + i) * d + e, d,
                   t->p + i * KV_BLOCK + s.lo, KV_BLOCK,
                   t->values + e * KV_BLOCK + s.lo * GEMM_NR, s.hi - s.lo,
                   d - e, R, false);
}

/* Rows [first, first + n), at most GEMM_MC. */
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
            attn_softmax(rows, first + i, t->p + i * KV_BLOCK, d, true);
        else /* its neighbours' positions count 0 */
            memset(t->p + i * KV_BLOCK, 0, KV_BLOCK * sizeof *t->p);
    i = 0;
    for (; n - i >= GEMM_MR; i += GEMM_MR)
        attn_tile_values(rows, t, d, i, first, GEMM_MR);
    for (; n - i >= GEMM_MID; i += GEMM_MID)
        attn_tile_values(rows, t, d, i, first, GEMM_MID);
    for (; i < n; i++)
        attn_tile_values(rows, t, d, i, first, 1);
}

INLINE void attn_tile_of(const struct attn_rows *rows, const char *k,
                         const char *v, size_t d, float *scratch,
                         enum dtype type)
{
    const struct seen all = rows_see(rows, 0, rows->n);
    struct attn_panels t = {.p = scratch};

    t.keys = t.p + GEMM_MC * KV_BLOCK;
    t.values = t.keys + KV_BLOCK * d;
    if (all.lo >= all.hi)
        return;
    if (!attn_pack_values(t.values, v, d, all, type)) {
        /* 0 * infinity must not happen */
        attn_all_rows(rows, k, v, d, scratch, type);
        return;
    }
    gemm_pack(t.keys, k, d * type_bytes(type), KV_BLOCK, d, type);
    for (size_t i = 0; i < rows->n; i += GEMM_MC)
        attn_tile_batch(rows, &t, d, i,
                        rows->n - i < GEMM_MC ? rows->n - i : GEMM_MC);
}

#define ATTN_TILE(name, type)                                             \
    static void KERNEL(attn_tile_##name)(const struct attn_rows *rows,    \
                                         const void *k, const void *v,    \
                                         size_t head_dim, float *scratch) \
    {                                                                     \
        attn_tile_of(rows, k, v, head_dim, scratch, type);                \
    }

ATTN_TILE(f32, DT_F32)
ATTN_TILE(f16, DT_F16)
ATTN_TILE(bf16, DT_BF16)

static void KERNEL(attn_tile_q8)(const struct attn_rows *rows, const void *k,
                                 const void *v, size_t d, float *scratch)
{
    size_t n = KV_BLOCK * d;

    attn_widen_q8(scratch, k, d);
    attn_widen_q8(scratch + n, v, d);
    KERNEL(attn_tile_f32)(rows, scratch, scratch + n, d, scratch + 2 * n);
}

#endif
