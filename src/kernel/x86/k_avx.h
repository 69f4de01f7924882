/* Functions that all x86 levels share: prefetches, and sums, loads and
 * transpositions in vectors of eight floats. Each file that includes this
 * header compiles its own copy with its own instruction set. */
#ifndef KERNEL_X86_K_AVX_H
#define KERNEL_X86_K_AVX_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/dtype.h"
#include "kernel/kernel.h"
#include "kernel/simd.h"

/* ---- prefetches --------------------------------------------------------- */

INLINE void prefetch_near(const void *p)
{
    _mm_prefetch(p, _MM_HINT_T0);
}

/* Fetch the line of p into the cache level that suits this CPU. */
INLINE void fetch_line(const void *p)
{
    if (kernel_core.sweep_l2)
        _mm_prefetch(p, _MM_HINT_T1);
    else
        _mm_prefetch(p, _MM_HINT_T0);
}

/* Prefetch for a sweep over weights that has come to p. */
INLINE void sweep(const void *p)
{
    fetch_line((const char *)p + kernel_core.sweep_ahead);
}

/* Do the work of sweep with a constant hint. The prefetch is assembly, so that
 * it stays in its place: gcc would group the prefetches of several lines, which
 * costs bandwidth. */
INLINE void sweep_by(const void *p, size_t ahead, bool to_l2)
{
    const char *line = (const char *)p + ahead;

    if (to_l2)
        __asm__ volatile("prefetcht1 %0" ::"m"(*line));
    else
        __asm__ volatile("prefetcht0 %0" ::"m"(*line));
}

/* ---- loads -------------------------------------------------------------- */

/* Return a mask of the first n <= 8 lanes. */
INLINE __m256i first_lanes8(size_t n)
{
    static const int32_t mask[16] = {-1, -1, -1, -1, -1, -1, -1, -1};

    return _mm256_loadu_si256((const __m256i_u *)(mask + 8 - n));
}

/* Widen eight FP8 numbers. In f16 their exponent has another bias, so that
 * subnormals need no care. */
INLINE __m256 widen_fp8(__m128i q)
{
    const __m128i top = _mm_set1_epi16(0x3f80);
    __m128i h = _mm_slli_epi16(_mm_cvtepi8_epi16(q), 7), nan;

    nan = _mm_cmpeq_epi16(_mm_and_si128(h, top), top);
    h = _mm_and_si128(h, _mm_set1_epi16((short)0xbf80));
    h = _mm_or_si128(h, _mm_and_si128(nan, _mm_set1_epi16(0x7c00)));
    return _mm256_mul_ps(_mm256_cvtph_ps(h), _mm256_set1_ps(FP8_UNIT));
}

/* Load eight elements of the type, widened to f32. */
INLINE __m256 load8_all(const char *p, enum dtype type)
{
    __m128i h;

    if (type == DT_F32)
        return _mm256_castsi256_ps(
            _mm256_loadu_si256((const __m256i_u *)(const void *)p));
    if (type == DT_I8)
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(
            _mm_loadl_epi64((const __m128i_u *)(const void *)p)));
    if (type == DT_F8_E4M3)
        return widen_fp8(_mm_loadl_epi64((const __m128i_u *)(const void *)p));
    h = _mm_loadu_si128((const __m128i_u *)(const void *)p);
    if (type == DT_F16)
        return _mm256_cvtph_ps(h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

/* Load the first n of eight elements, widened to f32, with zeros in the other
 * lanes. Reads no byte beyond these elements. */
INLINE __m256 load8(const char *p, size_t n, enum dtype type)
{
    char some[16] = {0};

    if (n >= 8)
        return load8_all(p, type);
    if (type == DT_F32)
        return _mm256_castsi256_ps(_mm256_maskload_epi32(
            (const int *)(const void *)p, first_lanes8(n)));
    memcpy(some, p, n * type_bytes(type));
    return load8_all(some, type);
}

/* Compute e8m0_half (kernel/blocks.h) of eight integers. */
INLINE __m256 e8m0_halves(__m256i e)
{
    const __m256i two = _mm256_set1_epi32(2), nan = _mm256_set1_epi32(255);
    const __m256i normal =
        _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    const __m256i v =
        _mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(two, e));

    /* all ones are a NaN */
    return _mm256_castsi256_ps(_mm256_or_si256(v, _mm256_cmpeq_epi32(e, nan)));
}

/* ---- sums in a fixed order ---------------------------------------------- */

/* Add lanes l and l + 4. */
INLINE __m128 fold8(__m256 v)
{
    return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
}

/* Return the sum of all lanes. Adds lanes l and l + 4 first, then l and l + 2,
 * then l and l + 1. */
INLINE float sum_lanes(__m256 v)
{
    __m128 s = fold8(v);

    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

/* Do the work of sum_lanes for four vectors at once: one result in each
 * lane. */
INLINE __m128 sum_lanes4(__m256 a, __m256 b, __m256 c, __m256 d)
{
    __m128 fa = fold8(a), fb = fold8(b), fc = fold8(c), fd = fold8(d);
    __m128 ab = _mm_add_ps(_mm_unpacklo_ps(fa, fb), _mm_unpackhi_ps(fa, fb));
    __m128 cd = _mm_add_ps(_mm_unpacklo_ps(fc, fd), _mm_unpackhi_ps(fc, fd));

    return _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab));
}

INLINE float max_lanes8(__m256 v)
{
    __m128 m =
        _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

INLINE double sum_lanes4_pd(__m256d v)
{
    __m128d s =
        _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));

    return _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)));
}

/* Store y[r] = sum_lanes(v[r]) for R rows; R = 4 is the fastest. */
INLINE void store_sums(float *y, const __m256 *v, int R)
{
    if (R == 4) {
        _mm_storeu_ps(y, sum_lanes4(v[0], v[1], v[2], v[3]));
    } else {
        UNROLL
        for (int r = 0; r < R; r++)
            y[r] = sum_lanes(v[r]);
    }
}

/* ---- transposition ------------------------------------------------------ */

/* Transpose: v[p][j] becomes v[j][p]. Works on pairs, quadruples and halves. */
INLINE void transpose8(__m256 v[8])
{
    __m256 s[8], t[8];

    UNROLL
    for (int j = 0; j < 8; j += 2) {
        s[j] = _mm256_unpacklo_ps(v[j], v[j + 1]);
        s[j + 1] = _mm256_unpackhi_ps(v[j], v[j + 1]);
    }
    UNROLL
    for (int j = 0; j < 8; j += 4) {
        t[j] = _mm256_shuffle_ps(s[j], s[j + 2], 0x44);
        t[j + 1] = _mm256_shuffle_ps(s[j], s[j + 2], 0xee);
        t[j + 2] = _mm256_shuffle_ps(s[j + 1], s[j + 3], 0x44);
        t[j + 3] = _mm256_shuffle_ps(s[j + 1], s[j + 3], 0xee);
    }
    UNROLL
    for (int j = 0; j < 4; j++) {
        v[j] = _mm256_permute2f128_ps(t[j], t[j + 4], 0x20);
        v[j + 4] = _mm256_permute2f128_ps(t[j], t[j + 4], 0x31);
    }
}

/* Store out[p * ldo + j] = v[j][p] for p < n. out is 32-byte aligned, ldo a
 * multiple of 8. Overwrites v. */
INLINE void store_transposed8(float *out, size_t ldo, __m256 v[8], size_t n)
{
    transpose8(v);
    UNROLL
    for (size_t p = 0; p < 8; p++)
        if (p < n)
            _mm256_store_ps(out + p * ldo, v[p]);
}

/* kernel/simd.h documents pack_8x8 and pack_8x16_bf16. */
INLINE void pack_8x8(float *out, size_t ldo, const char *p, size_t stride,
                     size_t n_rows, size_t n_cols, enum dtype type)
{
    __m256 v[8];

    UNROLL
    for (size_t j = 0; j < 8; j++)
        v[j] = j < n_rows ? load8(p + j * stride, n_cols, type)
                          : _mm256_setzero_ps();
    store_transposed8(out, ldo, v, n_cols);
}

/* This function transposes pairs of bf16 and then widens them. */
INLINE void pack_8x16_bf16(float *out, size_t ldo, const char *p, size_t stride)
{
    const __m256 high = _mm256_castsi256_ps(_mm256_set1_epi32((int)0xffff0000));
    __m256 v[8];

    UNROLL
    for (size_t j = 0; j < 8; j++)
        v[j] = load8_all(p + j * stride, DT_F32);
    transpose8(v);
    UNROLL
    for (size_t c = 0; c < 8; c++) {
        __m256i even = _mm256_slli_epi32(_mm256_castps_si256(v[c]), 16);

        _mm256_store_ps(out + 2 * c * ldo, _mm256_castsi256_ps(even));
        _mm256_store_ps(out + (2 * c + 1) * ldo, _mm256_and_ps(v[c], high));
    }
}

#endif
