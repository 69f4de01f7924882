/* Functions that the bf16 attention kernels for prefill share: ranges of
 * positions that rows attend to, packing keys and values into panels, and the
 * state of the softmax. Each file that includes this header compiles its own
 * copy with its own instruction set. It first defines two macros:
 *
 *   VALUE_STEP    positions that a product with values takes at a time
 *   GROUP_PAIRS   pairs of positions in a panel of values: those of one block,
 *                 or of all blocks of a call */
#ifndef KERNEL_X86_K_ATTN_BF16_H
#define KERNEL_X86_K_ATTN_BF16_H

#if !defined VALUE_STEP || !defined GROUP_PAIRS
#error "define VALUE_STEP and GROUP_PAIRS first"
#endif

#include <immintrin.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernel/kernel.h"
#include "kernel/x86/simd_avx512.h"

#include "kernel/k_f32_exp.h"

enum { VECTORS = 4, LANES = 16 * VECTORS, PAIRS = KV_BLOCK / 2 };

_Static_assert(LANES == KV_BLOCK, "a tile of scores is as wide as a block");

/* Return the number of elements in a block's panel of keys or values, for heads
 * of d elements. The layouts are
 *   keys[pair of elements][position]
 *   values[element / LANES][pair of positions][element % LANES] */
INLINE size_t panel_size(size_t d)
{
    return (d + LANES - 1) / LANES * LANES * PAIRS;
}

/* ---- ranges ------------------------------------------------------------- */

/* The positions that a set of rows attends to. */
struct range {
    size_t lo, hi; /* positions of at least one of the rows; none if lo >= hi */
    bool whole;    /* each row attends to all positions of the call */
};

/* Return the range of rows [i, i + n) in a call with n_positions. */
static struct range range_of(const struct attn_rows *rows, size_t i, size_t n,
                             size_t n_positions)
{
    __m512i first = _mm512_set1_epi32((int)n_positions);
    __m512i end = _mm512_setzero_si512();
    const __m512i none = end, all = first;
    bool whole = true;

    for (size_t t = i; t < i + n; t += 16) {
        const __mmask16 m = first_lanes(i + n - t);
        const __m512i lo = _mm512_maskz_loadu_epi32(m, rows->lo + t);
        const __m512i hi = _mm512_maskz_loadu_epi32(m, rows->hi + t);
        const __mmask16 some = _mm512_mask_cmplt_epi32_mask(m, lo, hi);

        first = _mm512_mask_min_epi32(first, some, first, lo);
        end = _mm512_mask_max_epi32(end, some, end, hi);
        whole &= !_mm512_mask_cmpneq_epi32_mask(m, lo, none) &&
                 !_mm512_mask_cmpneq_epi32_mask(m, hi, all);
    }
    return (struct range){.lo = (size_t)_mm512_reduce_min_epi32(first),
                          .hi = (size_t)_mm512_reduce_max_epi32(end),
                          .whole = whole};
}

/* Count the rows from row i on, at most n, up to the first row that attends to
 * no position. */
static size_t visible_rows(const struct attn_rows *rows, size_t i, size_t n)
{
    size_t run = 0;

    while (run < n && rows->lo[i + run] < rows->hi[i + run])
        run++;
    return run;
}

/* ---- panels ------------------------------------------------------------- */

/* Load the first n of 16 elements of 16 bits, followed by zeros. */
INLINE __m256i load16_bits(const char *p, size_t n)
{
    if (__builtin_constant_p(n) && n >= 16) /* a masked load is slower */
        return _mm256_loadu_si256((const __m256i_u *)(const void *)p);
    return _mm256_maskz_loadu_epi16(first_lanes(n), p);
}

INLINE __m512 load16(const char *p, size_t n, enum dtype type)
{
    if (type == DT_F32)
        return _mm512_maskz_loadu_ps(first_lanes(n), p);
    return _mm512_cvtph_ps(load16_bits(p, n));
}

/* Load the first n of 32 elements, rounded to bf16, followed by zeros. */
INLINE __m512i load32(const char *p, size_t n, enum dtype type)
{
    const char *half = p + 16 * type_bytes(type);

    if (type == DT_BF16)
        return _mm512_maskz_loadu_epi16(n >= 32 ? 0xffffffff : (1u << n) - 1,
                                        p);
    return (__m512i)_mm512_cvtne2ps_pbh(load16(half, n < 16 ? 0 : n - 16, type),
                                        load16(p, n, type));
}

/* Pack the keys of positions [lo, hi), extended to multiples of 16: each
 * position has its own lane, so the contents of the added positions do not
 * matter. Prefetches the values, which follow the keys in the cache. even: d is
 * a multiple of 32. */
INLINE void pack_keys(uint32_t *out, const char *k, size_t d, size_t lo,
                      size_t hi, enum dtype type, bool even)
{
    const size_t bytes = type_bytes(type);

    for (size_t j = lo / 16 * 16; j < hi; j += 16)
        for (size_t e = 0; e < d; e += 32) {
            uint32_t *to = out + e / 2 * KV_BLOCK + j;
            __m512i v[16];

            UNROLL
            for (size_t r = 0; r < 16; r++) {
                const char *from = k + ((j + r) * d + e) * bytes;

                _mm_prefetch(from + KV_BLOCK * d * bytes, _MM_HINT_T1);
                v[r] = load32(from, even ? 32 : d - e, type);
            }
            transpose16(v);
            UNROLL
            for (size_t p = 0; p < 16; p++)
                _mm512_store_si512(to + p * KV_BLOCK, v[p]);
        }
}

/* Load the first n of 16 elements of positions a and b, as pairs in bf16. NULL
 * stands for a position of zeros. */
INLINE __m512i load_pairs(const char *a, const char *b, size_t n,
                          enum dtype type)
{
    /* element l of a, then of b */
    const __m512i order = _mm512_add_epi32(
        _mm512_set1_epi32(16 << 16),
        _mm512_mullo_epi32(_mm512_set1_epi32(0x10001),
                           _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
                                             11, 12, 13, 14, 15)));
    const __m512 none = _mm512_setzero_ps();
    __m512i both;

    if (type == DT_BF16) {
        const __m256i zero = _mm256_setzero_si256();

        both = _mm512_inserti64x4(
            _mm512_castsi256_si512(a ? load16_bits(a, n) : zero),
            b ? load16_bits(b, n) : zero, 1);
    } else {
        both = (__m512i)_mm512_cvtne2ps_pbh(b ? load16(b, n, type) : none,
                                            a ? load16(a, n, type) : none);
    }
    return _mm512_permutexvar_epi16(order, both);
}

INLINE size_t value_floor(size_t lo)
{
    return lo / VALUE_STEP * VALUE_STEP;
}

INLINE size_t value_ceil(size_t hi)
{
    return (hi + VALUE_STEP - 1) / VALUE_STEP * VALUE_STEP;
}

/* Pack the values of positions [lo, hi), with zeros up to the next multiples of
 * VALUE_STEP. Returns whether all values are finite. Prefetches as many bytes
 * from `next` on as it reads, unless next is NULL. even: d is a multiple of
 * 16. */
INLINE bool pack_values(uint32_t *out, const char *v, const char *next,
                        size_t d, size_t lo, size_t hi, enum dtype type,
                        bool even)
{
    const size_t bytes = type_bytes(type);
    const __m512i abs = _mm512_set1_epi16(0x7fff);
    __m512i top = _mm512_setzero_si512();

    for (size_t j = value_floor(lo); j < value_ceil(hi); j += 2) {
        const char *a = v + j * d * bytes, *b = a + d * bytes;
        const bool has_a = j >= lo && j < hi, has_b = j + 1 >= lo && j + 1 < hi;

        for (size_t e = 0; e < d; e += 16) {
            uint32_t *to =
                out + (e / LANES * GROUP_PAIRS + j / 2) * LANES + e % LANES;
            __m512i w = load_pairs(has_a ? a + e * bytes : NULL,
                                   has_b ? b + e * bytes : NULL,
                                   even ? 16 : d - e, type);

            if (next)
                _mm_prefetch(next + (j * d + 2 * e) * bytes, _MM_HINT_T1);
            top = _mm512_max_epu16(top, _mm512_and_si512(w, abs));
            _mm512_store_si512(to, w);
        }
    }
    return !_mm512_cmpge_epu16_mask(top, _mm512_set1_epi16(0x7f80));
}

/* ---- exponentials ------------------------------------------------------- */

/* Compute exp(x) with a relative error of at most 9.2e-8, as 2^n times a
 * polynomial of r, where x = (n + r) ln 2 and |r| <= 1/2. The polynomial is the
 * minimax polynomial with value 1 at 0. For x = -INFINITY, r is NaN and
 * vscalefps returns 0. */
INLINE __m512 exp_for_f32(__m512 x)
{
    const __m512 t = _mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p0f));
    const __m512 n =
        _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 r = _mm512_sub_ps(t, n);
    __m512 p = _mm512_set1_ps(0x1.5bba14p-10f);

    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.3cea88p-7f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.c6b752p-5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.ebf9bcp-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.62e42ap-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
    return _mm512_scalef_ps(p, n);
}

INLINE __m512 combine(__m512 a, __m512 b, bool sums)
{
    return sums ? _mm512_add_ps(a, b) : _mm512_max_ps(a, b);
}

/* Lane i of the result is the sum (sums) or the maximum of row i of in, 16 rows
 * of 16 floats. The order of additions is fixed: each step folds every row to
 * half its width and packs two of the resulting vectors into one. */
INLINE __m512 over_lanes(const float *in, bool sums)
{
    __m512 v[16], s[16];

    UNROLL
    for (int i = 0; i < 16; i++)
        v[i] = _mm512_load_ps(in + 16 * i);
    UNROLL
    for (int h = 0; h < 16; h += 8) {
        UNROLL
        for (int i = h; i < h + 4; i++)
            s[i] = combine(_mm512_shuffle_f32x4(v[i], v[i + 4], 0x44),
                           _mm512_shuffle_f32x4(v[i], v[i + 4], 0xee), sums);
    }
    UNROLL
    for (int i = 0; i < 4; i++)
        v[i] = combine(_mm512_shuffle_f32x4(s[i], s[i + 8], 0x88),
                       _mm512_shuffle_f32x4(s[i], s[i + 8], 0xdd), sums);
    UNROLL
    for (int i = 0; i < 2; i++)
        s[i] = combine(_mm512_unpacklo_ps(v[i], v[i + 2]),
                       _mm512_unpackhi_ps(v[i], v[i + 2]), sums);
    return combine(_mm512_unpacklo_ps(s[0], s[1]),
                   _mm512_unpackhi_ps(s[0], s[1]), sums);
}

/* Update the running maxima m of the rows that `in` selects, up to 16, with the
 * maxima `top` of their new scores. Stores the values that must be subtracted
 * from the scores in shift, and the factors for acc and l in *keep. Returns a
 * mask of the rows whose maximum changed. */
INLINE __mmask16 raise_maxima(float *m, __mmask16 in, __m512 top, float *shift,
                              __m512 *keep)
{
    const __m512 none = _mm512_set1_ps(-INFINITY);
    const __m512 old = _mm512_maskz_loadu_ps(in, m);
    __mmask16 more;
    __m512 sh;

    top = _mm512_max_ps(top, old);
    more = _mm512_mask_cmp_ps_mask(in, top, old, _CMP_NEQ_UQ);
    /* if all scores so far are -INFINITY, weights are exp(-INFINITY) and not
     * exp(NaN) */
    sh = _mm512_mask_mov_ps(top, _mm512_cmp_ps_mask(top, none, _CMP_EQ_OQ),
                            _mm512_setzero_ps());
    *keep = _mm512_mask_mov_ps(_mm512_set1_ps(1), more,
                               exp_for_f32(_mm512_sub_ps(old, sh)));
    _mm512_store_ps(shift, sh);
    _mm512_mask_storeu_ps(m, in, top);
    return more;
}

/* ---- prefetches --------------------------------------------------------- */

/* Prefetch the share of rows [i, i + n) in the keys of the next call, which
 * take `bytes` bytes. values: the values of this call's last block; if
 * rows->next is NULL, the next keys follow them. */
INLINE void prefetch_next(const struct attn_rows *rows, const char *values,
                          size_t bytes, size_t i, size_t n)
{
    const char *at = rows->next ? rows->next : values + bytes;

    at += bytes * i / rows->n;
    for (size_t x = 0; x < bytes * n / rows->n; x += 64)
        _mm_prefetch(at + x, _MM_HINT_T1);
}

/* ---- the other level ---------------------------------------------------- */

/* ---- an int8 cache ------------------------------------------------------ */

/* Widen an int8 block of keys or values, and round it to bf16. */
static void block_to_bf16(uint16_t *out, const char *block, size_t d)
{
    const char *scale = block + KV_BLOCK * d;

    for (size_t j = 0; j < KV_BLOCK; j++)
        for (size_t e = 0; e < d; e += 32, scale += KV_I8_GROUP / 32 * 4) {
            const size_t at = j * d + e;
            const __mmask32 m =
                d - e >= 32 ? 0xffffffff : (1u << (d - e)) - 1;
            const __m256i v = _mm256_maskz_loadu_epi8(m, block + at);
            const __m512 by = _mm512_set1_ps(load_float(scale));
            const __m512 low = _mm512_cvtepi32_ps(
                _mm512_cvtepi8_epi32(_mm256_castsi256_si128(v)));
            const __m512 high = _mm512_cvtepi32_ps(
                _mm512_cvtepi8_epi32(_mm256_extracti128_si256(v, 1)));

            _mm512_mask_storeu_epi16(
                out + at, m,
                (__m512i)_mm512_cvtne2ps_pbh(_mm512_mul_ps(high, by),
                                             _mm512_mul_ps(low, by)));
        }
}

_Static_assert(KV_I8_GROUP == 32, "block_to_bf16");

/* attn_blocks_bf16[KV_I8], by a level's attn_blocks_bf16[KV_BF16]. */
INLINE void attn_blocks_i8(const struct attn_rows *rows, const void *const *k,
                           const void *const *v, size_t n_blocks, size_t d,
                           float *scratch,
                           void (*by)(const struct attn_rows *,
                                      const void *const *, const void *const *,
                                      size_t, size_t, float *))
{
    const void *keys[ATTN_BF16_BLOCKS], *values[ATTN_BF16_BLOCKS];
    uint16_t *to = (uint16_t *)(void *)scratch;

    for (size_t b = 0; b < n_blocks; b++) {
        keys[b] = to;
        block_to_bf16(to, k[b], d);
        to += KV_BLOCK * d;
        values[b] = to;
        block_to_bf16(to, v[b], d);
        to += KV_BLOCK * d;
    }
    by(rows, keys, values, n_blocks, d,
       scratch + ATTN_BF16_BLOCKS * KV_BLOCK * d);
}

/* Define a level's attn_blocks_bf16 for each type of cache, as calls of its
 * attn_blocks. */
#define ATTN_BLOCKS(name, type, level)                              \
    static void k_attn_blocks_bf16_##name##_##level(                \
        const struct attn_rows *rows, const void *const *k,         \
        const void *const *v, size_t n_blocks, size_t head_dim,     \
        float *scratch)                                             \
    {                                                               \
        attn_blocks(rows, k, v, n_blocks, head_dim, scratch, type); \
    }
#define ATTN_LEVEL(level)                                       \
    ATTN_BLOCKS(f32, DT_F32, level)                             \
    ATTN_BLOCKS(f16, DT_F16, level)                             \
    ATTN_BLOCKS(bf16, DT_BF16, level)                           \
    static void k_attn_blocks_bf16_i8_##level(                  \
        const struct attn_rows *rows, const void *const *k,     \
        const void *const *v, size_t n_blocks, size_t head_dim, \
        float *scratch)                                         \
    {                                                           \
        attn_blocks_i8(rows, k, v, n_blocks, head_dim, scratch, \
                       k_attn_blocks_bf16_bf16_##level);        \
    }

/* Enter them into the table k. */
#define ENTER_ATTN(level)                                               \
    do {                                                                \
        k->attn_blocks_bf16[DT_F32] = k_attn_blocks_bf16_f32_##level;   \
        k->attn_blocks_bf16[DT_F16] = k_attn_blocks_bf16_f16_##level;   \
        k->attn_blocks_bf16[DT_BF16] = k_attn_blocks_bf16_bf16_##level; \
        k->attn_blocks_bf16[KV_I8] = k_attn_blocks_bf16_i8_##level;     \
    } while (0)

/* attn_blocks_bf16 of level avx512bf16. Level amx uses it for head sizes that
 * its own kernel does not support. */
void k_attn_blocks_bf16_avx512bf16(const struct attn_rows *rows,
                                   const void *const *k, const void *const *v,
                                   size_t n_blocks, size_t d, float *scratch,
                                   enum dtype type);

#endif
