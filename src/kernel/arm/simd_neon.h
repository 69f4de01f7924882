/* The SIMD shim (kernel/simd.h) for Advanced SIMD, which every 64-bit ARM CPU
 * has: vectors of four floats, 32 registers. */
#ifndef KERNEL_ARM_SIMD_NEON_H
#define KERNEL_ARM_SIMD_NEON_H

#include <arm_neon.h>
#include <math.h>
#include <stdint.h>

#include "kernel/blocks.h"
#include "kernel/kernel.h"
#include "kernel/simd.h"

#include "kernel/arm/k_neon_common.h"

#define KERNEL(name)  k_##name##_neon
#define VEC_LANES     4
#define VEC_MASKS     0
#define VEC_FLUSH_EXP 1
#define MATMUL_CHAINS 2
#define GEMM_MR       8
#define GEMM_MID      4
#define ATTN_ROWS     6
#define ATTN_VALUES   8
#define ATTN_PREFETCH 4
#define DELTA_TOKENS  3
#define DELTA_VALUES  4
#define PEAK_CHAINS   16

typedef float32x4_t vec;

/* ---- loads and stores --------------------------------------------------- */

/* Return a mask of the first n <= 4 lanes. */
INLINE uint32x4_t first_lanes4(size_t n)
{
    const uint32x4_t lanes = {0, 1, 2, 3};

    return vcltq_u32(lanes, vdupq_n_u32((uint32_t)n));
}

INLINE vec vec_load(const float *p, size_t n)
{
    return n >= 4 ? vld1q_f32(p) : load4((const char *)p, n, DT_F32);
}

INLINE vec vec_load_or(const float *p, size_t n, float other)
{
    if (n >= 4)
        return vld1q_f32(p);
    return vbslq_f32(first_lanes4(n), vec_load(p, n), vdupq_n_f32(other));
}

INLINE vec vec_load_as(const char *p, size_t n, enum dtype type)
{
    return load4(p, n, type);
}

INLINE void vec_store(float *p, vec v, size_t n)
{
    if (n >= 4) {
        vst1q_f32(p, v);
        return;
    }
    if (n & 2) {
        vst1_f32(p, vget_low_f32(v));
        p += 2;
        v = vcombine_f32(vget_high_f32(v), vget_high_f32(v));
    }
    if (n & 1)
        *p = vgetq_lane_f32(v, 0);
}

INLINE uint16x4_t narrow(vec v, enum dtype type)
{
    const uint32x4_t u = vreinterpretq_u32_f32(v);
    uint32x4_t odd, rounded, nan;

    if (type == DT_F16)
        return vreinterpret_u16_f16(vcvt_f16_f32(v));
    odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
    rounded = vaddq_u32(vaddq_u32(u, odd), vdupq_n_u32(0x7fff));
    nan = vorrq_u32(u, vdupq_n_u32(0x00400000));
    return vshrn_n_u32(vbslq_u32(vceqq_f32(v, v), rounded, nan), 16);
}

INLINE void vec_store_as(char *p, vec v, size_t n, enum dtype type)
{
    const uint16x4_t h = narrow(v, type);
    const uint64_t bits = vget_lane_u64(vreinterpret_u64_u16(h), 0);
    const uint32_t two = (uint32_t)bits;
    const uint16_t last = (uint16_t)(n & 2 ? bits >> 32 : bits);

    if (n >= 4) {
        memcpy(p, &bits, 8);
        return;
    }
    if (n & 2)
        memcpy(p, &two, 4);
    if (n & 1)
        memcpy(p + (n & 2) * 2, &last, 2);
}

INLINE void vec_load_range(vec *v, const float *p, int lo, int hi)
{
    const int32x4_t lanes = {0, 1, 2, 3};
    const int32x4_t from = vdupq_n_s32(lo), to = vdupq_n_s32(hi);
    const vec none = vdupq_n_f32(-INFINITY);

    UNROLL
    for (int c = 0; c < KV_BLOCK / 4; c++) {
        const int32x4_t j = vaddq_s32(lanes, vdupq_n_s32(4 * c));
        const uint32x4_t in = vandq_u32(vcgeq_s32(j, from), vcltq_s32(j, to));

        v[c] = vbslq_f32(in, vld1q_f32(p + 4 * c), none);
    }
}

INLINE vec vec_spread(const float *p, size_t n)
{
    const float32x4_t v = vld1q_f32(p);

    return n == 1 ? v : n == 2 ? vzip1q_f32(v, v) : vdupq_laneq_f32(v, 0);
}

/* ---- arithmetic --------------------------------------------------------- */

INLINE vec vec_zero(void)
{
    return vdupq_n_f32(0);
}

INLINE vec vec_set1(float x)
{
    return vdupq_n_f32(x);
}

INLINE float vec_lane0(vec v)
{
    return vgetq_lane_f32(v, 0);
}

INLINE vec vec_fma(vec a, vec b, vec c)
{
    return vfmaq_f32(c, a, b);
}

INLINE vec vec_fnma(vec a, vec b, vec c)
{
    return vfmsq_f32(c, a, b);
}

INLINE vec vec_reciprocal(vec x)
{
    return vdivq_f32(vdupq_n_f32(1), x);
}

/* fmin and fmax return a NaN of either operand, so these select. */
INLINE vec vec_min(vec a, vec b)
{
    return vbslq_f32(vcltq_f32(a, b), a, b);
}

INLINE vec vec_max(vec a, vec b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}

INLINE vec vec_round(vec x)
{
    return vrndnq_f32(x);
}

/* Scale by 2^n in two steps with half of the exponent each; the first step is
 * exact. */
INLINE vec vec_scale2(vec p, vec n)
{
    const int32x4_t bias = vdupq_n_s32(127);
    int32x4_t e = vcvtnq_s32_f32(n), half = vshrq_n_s32(e, 1);

    e = vshlq_n_s32(vaddq_s32(vsubq_s32(e, half), bias), 23);
    half = vshlq_n_s32(vaddq_s32(half, bias), 23);
    return p * vreinterpretq_f32_s32(half) * vreinterpretq_f32_s32(e);
}

INLINE vec vec_exponent(vec t)
{
    return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(t), 23));
}

INLINE vec zero_where(uint32x4_t lanes, vec v)
{
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(v), lanes));
}

INLINE vec vec_zero_if_equal(vec v, vec x, vec y)
{
    return zero_where(vceqq_f32(x, y), v);
}

INLINE vec vec_zero_if_less(vec v, vec x, vec y)
{
    return zero_where(vcltq_f32(x, y), v);
}

INLINE vec vec_first(vec v, size_t n)
{
    return n >= 4 ? v : zero_where(vmvnq_u32(first_lanes4(n)), v);
}

INLINE vec vec_butterfly(vec v, size_t h)
{
    const uint32x4_t lanes = {0, 1, 2, 3};
    const vec other = h == 1 ? vrev64q_f32(v) : vextq_f32(v, v, 2);

    return vbslq_f32(vtstq_u32(lanes, vdupq_n_u32((uint32_t)h)), other - v,
                     v + other);
}

INLINE bool vec_any_nan(vec v)
{
    return vminvq_u32(vceqq_f32(v, v)) == 0;
}

/* ---- integers ----------------------------------------------------------- */

typedef int32x4_t vec_ints;

INLINE vec_ints vec_load_i16(const int16_t *p)
{
    return vreinterpretq_s32_s16(vld1q_s16(p));
}

INLINE void vec_store_i16(int16_t *p, vec a, vec b)
{
    vst1q_s16(p, vcombine_s16(vqmovn_s32(vcvtnq_s32_f32(a)),
                              vqmovn_s32(vcvtnq_s32_f32(b))));
}

INLINE vec_ints vec_widen_i8(const char *p)
{
    return vreinterpretq_s32_s16(
        vmovl_s8(vld1_s8((const int8_t *)(const void *)p)));
}

INLINE vec_ints vec_mul_pairs(vec_ints a, vec_ints b)
{
    const int16x8_t x = vreinterpretq_s16_s32(a), y = vreinterpretq_s16_s32(b);

    return vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)),
                      vmull_high_s16(x, y));
}

INLINE vec_ints vec_ints_add(vec_ints a, vec_ints b)
{
    return vaddq_s32(a, b);
}

INLINE vec vec_from_ints(vec_ints v)
{
    return vcvtq_f32_s32(v);
}

INLINE vec_ints vec_ints_zero(void)
{
    return vdupq_n_s32(0);
}

INLINE vec_ints vec_max_size(vec_ints a, vec v)
{
    return vmaxq_s32(
        a, vandq_s32(vreinterpretq_s32_f32(v), vdupq_n_s32(INT32_MAX)));
}

INLINE vec vec_exponents(vec_ints a)
{
    return vcvtq_f32_s32(vshrq_n_s32(a, 23));
}

/* ---- FP8 ---------------------------------------------------------------- */

INLINE vec floats_f16(int16x4_t h)
{
    return vcvt_f32_f16(vreinterpret_f16_s16(h));
}

/* Add 1 to a byte: bit 7 changes if all other bits are set, which is NaN. */
INLINE void vec_load_fp8(vec v[4], const unsigned char *p, vec_ints *flags)
{
    const int16x8_t kept = vdupq_n_s16((int16_t)0xbf80);
    const uint8x16_t q = vld1q_u8(p);
    const uint8x16_t next = vaddq_u8(q, vdupq_n_u8(1));
    const int16x8_t h = vreinterpretq_s16_u8(q);
    const int16x8_t even = vandq_s16(vshrq_n_s16(vshlq_n_s16(h, 8), 1), kept);
    const int16x8_t odd = vandq_s16(vshrq_n_s16(h, 1), kept);

    *flags = vorrq_s32(*flags, vreinterpretq_s32_u8(veorq_u8(next, q)));
    v[0] = floats_f16(vget_low_s16(even));
    v[1] = floats_f16(vget_low_s16(odd));
    v[2] = floats_f16(vget_high_s16(even));
    v[3] = floats_f16(vget_high_s16(odd));
}

/* kernel/blocks.h has e8m0_half. */
INLINE vec vec_e8m0_halves(const unsigned char *p)
{
    return e8m0_halves4(load_bytes4(p));
}

INLINE bool vec_fp8_has_nan(vec_ints flags)
{
    return vmaxvq_u8(vreinterpretq_u8_s32(flags)) >= 0x80;
}

INLINE void vec_split_pairs(vec *even, vec *odd, vec a, vec b)
{
    *even = vuzp1q_f32(a, b);
    *odd = vuzp2q_f32(a, b);
}

/* ---- sums --------------------------------------------------------------- */

INLINE float vec_sum(vec v)
{
    return sum_lanes(v);
}

INLINE float vec_max_lane(vec v)
{
    return vmaxnmvq_f32(v);
}

INLINE void vec_sum_chains(float *y, vec a[4][8], int R)
{
    vec v[4];

    UNROLL
    for (int r = 0; r < R; r++)
        v[r] = ((a[r][0] + a[r][2]) + (a[r][4] + a[r][6])) +
               ((a[r][1] + a[r][3]) + (a[r][5] + a[r][7]));
    if (R == 4) {
        vst1q_f32(y, sum_lanes4(v));
    } else {
        UNROLL
        for (int r = 0; r < R; r++)
            y[r] = vec_sum(v[r]);
    }
}

INLINE void vec_store_dots(float *s, const vec *v, int P, int T)
{
    UNROLL
    for (int t = 0; t < T; t++) {
        if (P == 4)
            vst1q_f32(s + t * KV_BLOCK, sum_lanes4(v + t * 4));
        else
            s[t * KV_BLOCK] = vec_sum(v[t]);
    }
}

INLINE size_t vec_dots_at_once(int T)
{
    (void)T;
    return 4;
}

struct vec_f64 {
    float64x2_t lo, hi;
};

INLINE struct vec_f64 vec_f64_zero(void)
{
    return (struct vec_f64){vdupq_n_f64(0), vdupq_n_f64(0)};
}

INLINE struct vec_f64 vec_f64_add(struct vec_f64 acc, vec v)
{
    acc.lo = vaddq_f64(acc.lo, vcvt_f64_f32(vget_low_f32(v)));
    acc.hi = vaddq_f64(acc.hi, vcvt_high_f64_f32(v));
    return acc;
}

INLINE struct vec_f64 vec_f64_add_squares(struct vec_f64 acc, vec v)
{
    const float64x2_t lo = vcvt_f64_f32(vget_low_f32(v));
    const float64x2_t hi = vcvt_high_f64_f32(v);

    acc.lo = vfmaq_f64(acc.lo, lo, lo);
    acc.hi = vfmaq_f64(acc.hi, hi, hi);
    return acc;
}

INLINE double vec_f64_sum(struct vec_f64 acc)
{
    return vaddvq_f64(vaddq_f64(acc.lo, acc.hi));
}

typedef struct {
    uint64x2_t v[4];
} vec_words;

INLINE vec_words vec_words_zero(void)
{
    const uint64x2_t zero = vdupq_n_u64(0);

    return (vec_words){{zero, zero, zero, zero}};
}

INLINE vec_words vec_words_add(vec_words acc, const char *p)
{
    const uint8_t *bytes = (const uint8_t *)p;

    UNROLL
    for (int i = 0; i < 4; i++)
        acc.v[i] =
            vaddq_u64(acc.v[i], vreinterpretq_u64_u8(vld1q_u8(bytes + 16 * i)));
    return acc;
}

INLINE uint64_t vec_words_sum(vec_words acc)
{
    return vaddvq_u64(vaddq_u64(vaddq_u64(acc.v[0], acc.v[1]),
                                vaddq_u64(acc.v[2], acc.v[3])));
}

/* ---- transposition ------------------------------------------------------ */

/* Transpose four rows of four columns. */
INLINE void transpose4(vec v[4])
{
    const vec a = vzip1q_f32(v[0], v[2]), b = vzip2q_f32(v[0], v[2]);
    const vec c = vzip1q_f32(v[1], v[3]), d = vzip2q_f32(v[1], v[3]);

    v[0] = vzip1q_f32(a, c);
    v[1] = vzip2q_f32(a, c);
    v[2] = vzip1q_f32(b, d);
    v[3] = vzip2q_f32(b, d);
}

INLINE void pack_8x8(float *out, size_t ldo, const char *p, size_t stride,
                     size_t n_rows, size_t n_cols, enum dtype type)
{
    UNROLL
    for (size_t r = 0; r < 8; r += 4) {
        UNROLL
        for (size_t c = 0; c < 8; c += 4) {
            vec v[4];

            if (c >= n_cols)
                continue;
            UNROLL
            for (size_t j = 0; j < 4; j++)
                v[j] = r + j < n_rows
                           ? load4(p + (r + j) * stride + c * type_bytes(type),
                                   n_cols - c, type)
                           : vec_zero();
            transpose4(v);
            UNROLL
            for (size_t j = 0; j < 4; j++)
                if (c + j < n_cols)
                    vst1q_f32(out + (c + j) * ldo + r, v[j]);
        }
    }
}

INLINE void pack_8x16_bf16(float *out, size_t ldo, const char *p, size_t stride)
{
    pack_8x8(out, ldo, p, stride, 8, 8, DT_BF16);
    pack_8x8(out + 8 * ldo, ldo, p + 16, stride, 8, 8, DT_BF16);
}

#endif
