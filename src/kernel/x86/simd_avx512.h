/* The SIMD shim (kernel/simd.h) for AVX-512 (F, BW, VL, DQ): vectors of 16
 * floats, 32 registers, masks. */
#ifndef KERNEL_X86_SIMD_AVX512_H
#define KERNEL_X86_SIMD_AVX512_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>

#include "kernel/x86/k_avx.h"
#include "kernel/x86/k_zmm.h"

#define KERNEL(name)  k_##name##_avx512
#define VEC_LANES     16
#define VEC_MASKS     1
#define VEC_FLUSH_EXP 0
#define MATMUL_CHAINS 2
#define GEMM_MR       12
#define GEMM_MID      4
#define ATTN_ROWS     6
#define ATTN_VALUES   8
#define ATTN_PREFETCH 1
#define DELTA_TOKENS  3
#define DELTA_VALUES  4
#define PEAK_CHAINS   16

typedef __m512 vec;

/* True if the compiler knows that n covers all lanes. */
#define WHOLE(n) (__builtin_constant_p(n) && (n) >= 16)

/* ---- loads and stores --------------------------------------------------- */

INLINE vec vec_load(const float *p, size_t n)
{
    return WHOLE(n) ? _mm512_loadu_ps(p)
                    : _mm512_maskz_loadu_ps(first_lanes(n), p);
}

INLINE vec vec_load_or(const float *p, size_t n, float other)
{
    return WHOLE(n)
               ? _mm512_loadu_ps(p)
               : _mm512_mask_loadu_ps(_mm512_set1_ps(other), first_lanes(n), p);
}

/* Widen sixteen FP8 numbers: see widen_fp8. */
INLINE vec widen_fp8_16(__m128i q)
{
    const __m256i top = _mm256_set1_epi16(0x3f80);
    __m256i h = _mm256_slli_epi16(_mm256_cvtepi8_epi16(q), 7);
    const __mmask16 nan = _mm256_cmpeq_epi16_mask(_mm256_and_si256(h, top), top);

    h = _mm256_and_si256(h, _mm256_set1_epi16((short)0xbf80));
    h = _mm256_mask_blend_epi16(nan, h, _mm256_set1_epi16(0x7e00));
    return _mm512_mul_ps(_mm512_cvtph_ps(h), _mm512_set1_ps(FP8_UNIT));
}

INLINE vec vec_load_as(const char *p, size_t n, enum dtype type)
{
    const bool whole = WHOLE(n);
    __m256i h;

    if (type == DT_F32)
        return vec_load((const float *)(const void *)p, n);
    if (type == DT_I8)
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(
            whole ? _mm_loadu_si128((const __m128i_u *)(const void *)p)
                  : _mm_maskz_loadu_epi8(first_lanes(n), p)));
    if (type == DT_F8_E4M3)
        return widen_fp8_16(
            whole ? _mm_loadu_si128((const __m128i_u *)(const void *)p)
                  : _mm_maskz_loadu_epi8(first_lanes(n), p));
    h = whole ? _mm256_loadu_si256((const __m256i_u *)(const void *)p)
              : _mm256_maskz_loadu_epi16(first_lanes(n), p);
    if (type == DT_F16)
        return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

INLINE void vec_store(float *p, vec v, size_t n)
{
    if (WHOLE(n))
        _mm512_storeu_ps(p, v);
    else
        _mm512_mask_storeu_ps(p, first_lanes(n), v);
}

INLINE __m256i narrow(vec v, enum dtype type)
{
    __m512i u, odd, rounded;

    if (type == DT_F16)
        return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
    u = _mm512_castps_si512(v);
    odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    rounded =
        _mm512_add_epi32(_mm512_add_epi32(u, odd), _mm512_set1_epi32(0x7fff));
    rounded =
        _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), u,
                             _mm512_set1_epi32(0x00400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

INLINE void vec_store_as(char *p, vec v, size_t n, enum dtype type)
{
    if (WHOLE(n))
        _mm256_storeu_si256((__m256i_u *)(void *)p, narrow(v, type));
    else
        _mm256_mask_storeu_epi16(p, first_lanes(n), narrow(v, type));
}

/* Requires 0 <= lo < hi <= 64. */
INLINE void vec_load_range(vec *v, const float *p, int lo, int hi)
{
    const uint64_t in = ~(uint64_t)0 >> (KV_BLOCK - hi) & ~(uint64_t)0 << lo;

    UNROLL
    for (int c = 0; c < KV_BLOCK / 16; c++)
        v[c] = _mm512_mask_loadu_ps(_mm512_set1_ps(-INFINITY),
                                    (__mmask16)(in >> 16 * c), p + 16 * c);
}

INLINE vec vec_spread(const float *p, size_t n)
{
    const __m512i lanes =
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m128i shift = _mm_cvtsi32_si128(__builtin_ctz((unsigned)n));

    return _mm512_permutexvar_ps(_mm512_srl_epi32(lanes, shift),
                                 _mm512_loadu_ps(p));
}

/* ---- arithmetic --------------------------------------------------------- */

INLINE vec vec_zero(void)
{
    return _mm512_setzero_ps();
}

INLINE vec vec_set1(float x)
{
    return _mm512_set1_ps(x);
}

INLINE float vec_lane0(vec v)
{
    return _mm512_cvtss_f32(v);
}

INLINE vec vec_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

INLINE vec vec_fnma(vec a, vec b, vec c)
{
    return _mm512_fnmadd_ps(a, b, c);
}

/* The estimate is off by 2^-14, the result of a step of Newton's method by
 * 2^-28 before its rounding. A division takes longer than both. */
INLINE vec vec_reciprocal(vec x)
{
    const vec r = _mm512_rcp14_ps(x);

    return _mm512_fmadd_ps(r, _mm512_fnmadd_ps(x, r, _mm512_set1_ps(1)), r);
}

INLINE vec vec_min(vec a, vec b)
{
    return _mm512_min_ps(a, b);
}

INLINE vec vec_max(vec a, vec b)
{
    return _mm512_max_ps(a, b);
}

INLINE vec vec_round(vec x)
{
    return _mm512_roundscale_ps(x,
                                _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

INLINE vec vec_scale2(vec p, vec n)
{
    return _mm512_scalef_ps(p, n);
}

INLINE vec vec_zero_if_equal(vec v, vec x, vec y)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, y, _CMP_NEQ_UQ), v);
}

INLINE vec vec_first(vec v, size_t n)
{
    return WHOLE(n) ? v : _mm512_maskz_mov_ps(first_lanes(n), v);
}

INLINE vec vec_butterfly(vec v, size_t h)
{
    const vec other = h == 1   ? _mm512_permute_ps(v, 0xb1)
                      : h == 2 ? _mm512_permute_ps(v, 0x4e)
                      : h == 4 ? _mm512_shuffle_f32x4(v, v, 0xb1)
                               : _mm512_shuffle_f32x4(v, v, 0x4e);
    const __mmask16 with_bit = h == 1   ? 0xaaaa
                               : h == 2 ? 0xcccc
                               : h == 4 ? 0xf0f0
                                        : 0xff00;

    return _mm512_mask_sub_ps(_mm512_add_ps(v, other), with_bit, other, v);
}

INLINE bool vec_any_nan(vec v)
{
    return _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q) != 0;
}

/* ---- integers ----------------------------------------------------------- */

typedef __m512i vec_ints;

INLINE vec_ints vec_load_i16(const int16_t *p)
{
    return _mm512_loadu_si512(p);
}

INLINE void vec_store_i16(int16_t *p, vec a, vec b)
{
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    const __m512i i =
        _mm512_packs_epi32(_mm512_cvtps_epi32(a), _mm512_cvtps_epi32(b));

    _mm512_storeu_si512(p, _mm512_permutexvar_epi64(order, i));
}

INLINE vec_ints vec_widen_i8(const char *p)
{
    return _mm512_cvtepi8_epi16(
        _mm256_loadu_si256((const __m256i_u *)(const void *)p));
}

INLINE vec_ints vec_mul_pairs(vec_ints a, vec_ints b)
{
    return _mm512_madd_epi16(a, b);
}

INLINE vec_ints vec_ints_add(vec_ints a, vec_ints b)
{
    return _mm512_add_epi32(a, b);
}

INLINE vec vec_from_ints(vec_ints v)
{
    return _mm512_cvtepi32_ps(v);
}

INLINE vec_ints vec_ints_zero(void)
{
    return _mm512_setzero_si512();
}

INLINE vec_ints vec_max_size(vec_ints a, vec v)
{
    return _mm512_max_epi32(a, _mm512_and_si512(_mm512_castps_si512(v),
                                                _mm512_set1_epi32(INT32_MAX)));
}

INLINE vec vec_exponents(vec_ints a)
{
    return _mm512_cvtepi32_ps(_mm512_srli_epi32(a, 23));
}

/* ---- FP8 ---------------------------------------------------------------- */

/* Add 1 to a byte: bit 7 changes if all other bits are set, which is NaN. */
INLINE void vec_load_fp8(vec v[4], const unsigned char *p, vec_ints *flags)
{
    const __m512i kept = _mm512_set1_epi16((short)0xbf80);
    const __m512i q = _mm512_loadu_si512(p);
    const __m512i next = _mm512_add_epi8(q, _mm512_set1_epi8(1));
    __m512i even = _mm512_srai_epi16(_mm512_slli_epi16(q, 8), 1);
    __m512i odd = _mm512_srai_epi16(q, 1);

    *flags = _mm512_ternarylogic_epi64(*flags, next, q, 0xf6); /* | (^) */
    even = _mm512_and_si512(even, kept);
    odd = _mm512_and_si512(odd, kept);
    v[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(even));
    v[1] = _mm512_cvtph_ps(_mm512_castsi512_si256(odd));
    v[2] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(even, 1));
    v[3] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(odd, 1));
}

INLINE vec vec_e8m0_halves(const unsigned char *p)
{
    return e8m0_halves512(_mm_loadu_si128((const void *)p));
}

INLINE bool vec_fp8_has_nan(vec_ints flags)
{
    return _mm512_movepi8_mask(flags) != 0;
}

INLINE void vec_split_pairs(vec *even, vec *odd, vec a, vec b)
{
    const __m512i at = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20,
                                         22, 24, 26, 28, 30);

    *even = _mm512_permutex2var_ps(a, at, b);
    *odd = _mm512_permutex2var_ps(
        a, _mm512_add_epi32(at, _mm512_set1_epi32(1)), b);
}

/* ---- sums --------------------------------------------------------------- */

INLINE float vec_sum(vec v)
{
    return sum_lanes(fold16(v));
}

INLINE float vec_max_lane(vec v)
{
    return max_lanes8(
        _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)));
}

INLINE void vec_sum_chains(float *y, vec a[4][2], int R)
{
    __m256 v[4];

    UNROLL
    for (int r = 0; r < R; r++)
        v[r] = _mm256_add_ps(fold16(a[r][0]), fold16(a[r][1]));
    store_sums(y, v, R);
}

/* Do the work of vec_sum for 16 vectors: one result in each lane. */
INLINE vec sum_lanes16(const vec *v)
{
    const __m512i order =
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    vec s[4], lo, hi;

    UNROLL
    for (int i = 0; i < 4; i++, v += 4) {
        lo = _mm512_add_ps(_mm512_shuffle_f32x4(v[0], v[1], 0x44),
                           _mm512_shuffle_f32x4(v[0], v[1], 0xee));
        hi = _mm512_add_ps(_mm512_shuffle_f32x4(v[2], v[3], 0x44),
                           _mm512_shuffle_f32x4(v[2], v[3], 0xee));
        s[i] = _mm512_add_ps(_mm512_shuffle_f32x4(lo, hi, 0x88),
                             _mm512_shuffle_f32x4(lo, hi, 0xdd));
    }
    lo = _mm512_add_ps(_mm512_unpacklo_ps(s[0], s[1]),
                       _mm512_unpackhi_ps(s[0], s[1]));
    hi = _mm512_add_ps(_mm512_unpacklo_ps(s[2], s[3]),
                       _mm512_unpackhi_ps(s[2], s[3]));
    s[0] = _mm512_castpd_ps(
        _mm512_unpacklo_pd(_mm512_castps_pd(lo), _mm512_castps_pd(hi)));
    s[1] = _mm512_castpd_ps(
        _mm512_unpackhi_pd(_mm512_castps_pd(lo), _mm512_castps_pd(hi)));
    return _mm512_permutexvar_ps(order, _mm512_add_ps(s[0], s[1]));
}

INLINE void vec_store_dots(float *s, const vec *v, int P, int T)
{
    if (P * T == 16) {
        const vec sums = sum_lanes16(v);

        if (T == 1)
            _mm512_storeu_ps(s, sums);
        if (T == 2) {
            _mm256_storeu_ps(s, _mm512_castps512_ps256(sums));
            _mm256_storeu_ps(s + KV_BLOCK, _mm512_extractf32x8_ps(sums, 1));
        }
        if (T == 4) {
            _mm_storeu_ps(s, _mm512_castps512_ps128(sums));
            _mm_storeu_ps(s + KV_BLOCK, _mm512_extractf32x4_ps(sums, 1));
            _mm_storeu_ps(s + 2 * KV_BLOCK, _mm512_extractf32x4_ps(sums, 2));
            _mm_storeu_ps(s + 3 * KV_BLOCK, _mm512_extractf32x4_ps(sums, 3));
        }
        return;
    }
    UNROLL
    for (int t = 0; t < T; t++) {
        __m256 f[4];

        UNROLL
        for (int r = 0; r < P; r++)
            f[r] = fold16(v[t * P + r]);
        store_sums(s + t * KV_BLOCK, f, P);
    }
}

/* Choose P so that P * T fills the 16 vectors of sum_lanes16, if T divides
 * 16. */
INLINE size_t vec_dots_at_once(int T)
{
    return T <= 4 && 16 % T == 0 ? 16 / (size_t)T : 4;
}

struct vec_f64 {
    __m512d lo, hi;
};

INLINE struct vec_f64 vec_f64_zero(void)
{
    return (struct vec_f64){_mm512_setzero_pd(), _mm512_setzero_pd()};
}

INLINE struct vec_f64 vec_f64_of(vec v)
{
    return (struct vec_f64){_mm512_cvtps_pd(_mm512_castps512_ps256(v)),
                            _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1))};
}

INLINE struct vec_f64 vec_f64_add(struct vec_f64 acc, vec v)
{
    const struct vec_f64 d = vec_f64_of(v);

    acc.lo = _mm512_add_pd(acc.lo, d.lo);
    acc.hi = _mm512_add_pd(acc.hi, d.hi);
    return acc;
}

INLINE struct vec_f64 vec_f64_add_squares(struct vec_f64 acc, vec v)
{
    const struct vec_f64 d = vec_f64_of(v);

    acc.lo = _mm512_fmadd_pd(d.lo, d.lo, acc.lo);
    acc.hi = _mm512_fmadd_pd(d.hi, d.hi, acc.hi);
    return acc;
}

INLINE double vec_f64_sum(struct vec_f64 acc)
{
    const __m512d v = _mm512_add_pd(acc.lo, acc.hi);

    return sum_lanes4_pd(
        _mm256_add_pd(_mm512_castpd512_pd256(v), _mm512_extractf64x4_pd(v, 1)));
}

typedef __m512i vec_words;

INLINE vec_words vec_words_zero(void)
{
    return _mm512_setzero_si512();
}

INLINE vec_words vec_words_add(vec_words acc, const char *p)
{
    return _mm512_add_epi64(acc, _mm512_loadu_si512(p));
}

INLINE uint64_t vec_words_sum(vec_words acc)
{
    /* add unsigned numbers: the compiler's reduction adds signed ones, which
     * may overflow */
    uint64_t part[8], sum = 0;

    _mm512_storeu_si512(part, acc);
    for (int i = 0; i < 8; i++)
        sum += part[i];
    return sum;
}

#endif
