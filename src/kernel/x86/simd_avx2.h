/* The SIMD shim (kernel/simd.h) for AVX2, FMA and F16C: vectors of eight
 * floats, 16 registers. */
#ifndef KERNEL_X86_SIMD_AVX2_H
#define KERNEL_X86_SIMD_AVX2_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>

#include "kernel/x86/k_avx.h"

#define KERNEL(name)  k_##name##_avx2
#define VEC_LANES     8
#define VEC_MASKS     0
#define VEC_FLUSH_EXP 1
#define MATMUL_CHAINS 1
#define GEMM_MR       6
#define GEMM_MID      2
#define ATTN_ROWS     3
#define ATTN_VALUES   4
#define ATTN_PREFETCH 4
#define DELTA_TOKENS  3
#define DELTA_VALUES  2
#define PEAK_CHAINS   12

typedef __m256 vec;

/* ---- loads and stores --------------------------------------------------- */

INLINE vec vec_load(const float *p, size_t n)
{
    return n >= 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, first_lanes8(n));
}

INLINE vec vec_load_or(const float *p, size_t n, float other)
{
    __m256i part;

    if (n >= 8)
        return _mm256_loadu_ps(p);
    part = first_lanes8(n);
    return _mm256_blendv_ps(_mm256_set1_ps(other), _mm256_maskload_ps(p, part),
                            _mm256_castsi256_ps(part));
}

INLINE vec vec_load_as(const char *p, size_t n, enum dtype type)
{
    return load8(p, n, type);
}

INLINE void vec_store(float *p, vec v, size_t n)
{
    if (n >= 8)
        _mm256_storeu_ps(p, v);
    else
        _mm256_maskstore_ps(p, first_lanes8(n), v);
}

INLINE __m128i narrow(vec v, enum dtype type)
{
    __m256i u, odd, rounded, nan;

    if (type == DT_F16)
        return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
    u = _mm256_castps_si256(v);
    odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    rounded =
        _mm256_add_epi32(_mm256_add_epi32(u, odd), _mm256_set1_epi32(0x7fff));
    nan = _mm256_or_si256(u, _mm256_set1_epi32(0x00400000));
    u = _mm256_blendv_epi8(
        rounded, nan, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
    u = _mm256_srli_epi32(u, 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(u),
                            _mm256_extracti128_si256(u, 1));
}

INLINE void vec_store_as(char *p, vec v, size_t n, enum dtype type)
{
    uint16_t h[8];

    if (n >= 8) {
        _mm_storeu_si128((__m128i_u *)(void *)p, narrow(v, type));
    } else {
        _mm_storeu_si128((__m128i_u *)h, narrow(v, type));
        memcpy(p, h, n * sizeof *h);
    }
}

INLINE void vec_load_range(vec *v, const float *p, int lo, int hi)
{
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i from = _mm256_set1_epi32(lo), to = _mm256_set1_epi32(hi);
    const vec none = _mm256_set1_ps(-INFINITY);

    if (lo == 0 && hi == KV_BLOCK) {
        UNROLL
        for (int c = 0; c < KV_BLOCK / 8; c++)
            v[c] = _mm256_loadu_ps(p + 8 * c);
        return;
    }
    UNROLL
    for (int c = 0; c < KV_BLOCK / 8; c++) {
        __m256i j = _mm256_add_epi32(lanes, _mm256_set1_epi32(8 * c));
        vec in = _mm256_castsi256_ps(_mm256_andnot_si256(
            _mm256_cmpgt_epi32(from, j), _mm256_cmpgt_epi32(to, j)));

        v[c] = _mm256_blendv_ps(none, _mm256_loadu_ps(p + 8 * c), in);
    }
}

INLINE vec vec_spread(const float *p, size_t n)
{
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m128i shift = _mm_cvtsi32_si128(__builtin_ctz((unsigned)n));

    return _mm256_permutevar8x32_ps(_mm256_loadu_ps(p),
                                    _mm256_srl_epi32(lanes, shift));
}

/* ---- arithmetic --------------------------------------------------------- */

INLINE vec vec_zero(void)
{
    return _mm256_setzero_ps();
}

INLINE vec vec_set1(float x)
{
    return _mm256_set1_ps(x);
}

INLINE float vec_lane0(vec v)
{
    return _mm256_cvtss_f32(v);
}

INLINE vec vec_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

INLINE vec vec_fnma(vec a, vec b, vec c)
{
    return _mm256_fnmadd_ps(a, b, c);
}

INLINE vec vec_reciprocal(vec x)
{
    return _mm256_set1_ps(1) / x;
}

INLINE vec vec_min(vec a, vec b)
{
    return _mm256_min_ps(a, b);
}

INLINE vec vec_max(vec a, vec b)
{
    return _mm256_max_ps(a, b);
}

INLINE vec vec_round(vec x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* Scale by 2^n in two steps with half of the exponent each; the first step is
 * exact. */
INLINE vec vec_scale2(vec p, vec n)
{
    __m256i e = _mm256_cvtps_epi32(n), e1 = _mm256_srai_epi32(e, 1);

    e = _mm256_sub_epi32(e, e1);
    e1 = _mm256_slli_epi32(_mm256_add_epi32(e1, _mm256_set1_epi32(127)), 23);
    e = _mm256_slli_epi32(_mm256_add_epi32(e, _mm256_set1_epi32(127)), 23);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(e1));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(e));
}

INLINE vec vec_exponent(vec t)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(t), 23));
}

INLINE vec vec_zero_if_equal(vec v, vec x, vec y)
{
    return _mm256_andnot_ps(_mm256_cmp_ps(x, y, _CMP_EQ_OQ), v);
}

INLINE vec vec_zero_if_less(vec v, vec x, vec y)
{
    return _mm256_andnot_ps(_mm256_cmp_ps(x, y, _CMP_LT_OQ), v);
}

INLINE vec vec_first(vec v, size_t n)
{
    return n >= 8 ? v : _mm256_and_ps(v, _mm256_castsi256_ps(first_lanes8(n)));
}

INLINE vec vec_butterfly(vec v, size_t h)
{
    const vec other = h == 1   ? _mm256_permute_ps(v, 0xb1)
                      : h == 2 ? _mm256_permute_ps(v, 0x4e)
                               : _mm256_permute2f128_ps(v, v, 1);
    const vec sum = _mm256_add_ps(v, other), rest = _mm256_sub_ps(other, v);

    return h == 1   ? _mm256_blend_ps(sum, rest, 0xaa)
           : h == 2 ? _mm256_blend_ps(sum, rest, 0xcc)
                    : _mm256_blend_ps(sum, rest, 0xf0);
}

INLINE bool vec_any_nan(vec v)
{
    return _mm256_movemask_ps(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)) != 0;
}

/* ---- integers ----------------------------------------------------------- */

typedef __m256i vec_ints;

INLINE vec_ints vec_load_i16(const int16_t *p)
{
    return _mm256_loadu_si256((const __m256i_u *)(const void *)p);
}

INLINE void vec_store_i16(int16_t *p, vec a, vec b)
{
    const __m256i i =
        _mm256_packs_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b));

    _mm256_storeu_si256((__m256i_u *)(void *)p,
                        _mm256_permute4x64_epi64(i, 0xd8));
}

INLINE vec_ints vec_widen_i8(const char *p)
{
    return _mm256_cvtepi8_epi16(
        _mm_loadu_si128((const __m128i_u *)(const void *)p));
}

INLINE vec_ints vec_mul_pairs(vec_ints a, vec_ints b)
{
    return _mm256_madd_epi16(a, b);
}

INLINE vec_ints vec_ints_add(vec_ints a, vec_ints b)
{
    return _mm256_add_epi32(a, b);
}

INLINE vec vec_from_ints(vec_ints v)
{
    return _mm256_cvtepi32_ps(v);
}

INLINE vec_ints vec_ints_zero(void)
{
    return _mm256_setzero_si256();
}

INLINE vec_ints vec_max_size(vec_ints a, vec v)
{
    return _mm256_max_epi32(a, _mm256_and_si256(_mm256_castps_si256(v),
                                                _mm256_set1_epi32(INT32_MAX)));
}

INLINE vec vec_exponents(vec_ints a)
{
    return _mm256_cvtepi32_ps(_mm256_srli_epi32(a, 23));
}

/* ---- FP8 ---------------------------------------------------------------- */

/* Add 1 to a byte: bit 7 changes if all other bits are set, which is NaN. */
INLINE void vec_load_fp8(vec v[4], const unsigned char *p, vec_ints *flags)
{
    const __m256i kept = _mm256_set1_epi16((short)0xbf80);
    const __m256i q = _mm256_loadu_si256((const __m256i_u *)(const void *)p);
    const __m256i next = _mm256_add_epi8(q, _mm256_set1_epi8(1));
    __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(q, 8), 1);
    __m256i odd = _mm256_srai_epi16(q, 1);

    *flags = _mm256_or_si256(*flags, _mm256_xor_si256(next, q));
    even = _mm256_and_si256(even, kept);
    odd = _mm256_and_si256(odd, kept);
    v[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(even));
    v[1] = _mm256_cvtph_ps(_mm256_castsi256_si128(odd));
    v[2] = _mm256_cvtph_ps(_mm256_extracti128_si256(even, 1));
    v[3] = _mm256_cvtph_ps(_mm256_extracti128_si256(odd, 1));
}

INLINE vec vec_e8m0_halves(const unsigned char *p)
{
    return e8m0_halves(_mm256_cvtepu8_epi32(
        _mm_loadl_epi64((const __m128i_u *)(const void *)p)));
}

INLINE bool vec_fp8_has_nan(vec_ints flags)
{
    return _mm256_movemask_epi8(flags) != 0;
}

INLINE void vec_split_pairs(vec *even, vec *odd, vec a, vec b)
{
    const __m256d e = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88));
    const __m256d o = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0xdd));

    *even = _mm256_castpd_ps(_mm256_permute4x64_pd(e, 0xd8));
    *odd = _mm256_castpd_ps(_mm256_permute4x64_pd(o, 0xd8));
}

/* ---- sums --------------------------------------------------------------- */

INLINE float vec_sum(vec v)
{
    return sum_lanes(v);
}

INLINE float vec_max_lane(vec v)
{
    return max_lanes8(v);
}

INLINE void vec_sum_chains(float *y, vec a[4][4], int R)
{
    vec v[4];

    UNROLL
    for (int r = 0; r < R; r++)
        v[r] = _mm256_add_ps(_mm256_add_ps(a[r][0], a[r][1]),
                             _mm256_add_ps(a[r][2], a[r][3]));
    store_sums(y, v, R);
}

INLINE void vec_store_dots(float *s, const vec *v, int P, int T)
{
    UNROLL
    for (int t = 0; t < T; t++)
        store_sums(s + t * KV_BLOCK, v + t * P, P);
}

INLINE size_t vec_dots_at_once(int T)
{
    (void)T;
    return 4;
}

struct vec_f64 {
    __m256d lo, hi;
};

INLINE struct vec_f64 vec_f64_zero(void)
{
    return (struct vec_f64){_mm256_setzero_pd(), _mm256_setzero_pd()};
}

INLINE struct vec_f64 vec_f64_of(vec v)
{
    return (struct vec_f64){_mm256_cvtps_pd(_mm256_castps256_ps128(v)),
                            _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1))};
}

INLINE struct vec_f64 vec_f64_add(struct vec_f64 acc, vec v)
{
    const struct vec_f64 d = vec_f64_of(v);

    acc.lo = _mm256_add_pd(acc.lo, d.lo);
    acc.hi = _mm256_add_pd(acc.hi, d.hi);
    return acc;
}

INLINE struct vec_f64 vec_f64_add_squares(struct vec_f64 acc, vec v)
{
    const struct vec_f64 d = vec_f64_of(v);

    acc.lo = _mm256_fmadd_pd(d.lo, d.lo, acc.lo);
    acc.hi = _mm256_fmadd_pd(d.hi, d.hi, acc.hi);
    return acc;
}

INLINE double vec_f64_sum(struct vec_f64 acc)
{
    return sum_lanes4_pd(_mm256_add_pd(acc.lo, acc.hi));
}

typedef struct {
    __m256i v[2];
} vec_words;

INLINE vec_words vec_words_zero(void)
{
    return (vec_words){{_mm256_setzero_si256(), _mm256_setzero_si256()}};
}

INLINE vec_words vec_words_add(vec_words acc, const char *p)
{
    acc.v[0] = _mm256_add_epi64(
        acc.v[0], _mm256_loadu_si256((const __m256i_u *)(const void *)p));
    acc.v[1] = _mm256_add_epi64(
        acc.v[1],
        _mm256_loadu_si256((const __m256i_u *)(const void *)(p + 32)));
    return acc;
}

INLINE uint64_t vec_words_sum(vec_words acc)
{
    uint64_t w[4];

    _mm256_storeu_si256((__m256i_u *)w, _mm256_add_epi64(acc.v[0], acc.v[1]));
    return w[0] + w[1] + w[2] + w[3];
}

#endif
