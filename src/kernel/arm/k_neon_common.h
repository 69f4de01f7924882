/* Functions that all ARM levels share: prefetches, loads and sums in vectors of
 * four floats. Each file that includes this header compiles its own copy with
 * its own instruction set. */
#ifndef KERNEL_ARM_K_NEON_COMMON_H
#define KERNEL_ARM_K_NEON_COMMON_H

#include <arm_neon.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernel/kernel.h"
#include "kernel/simd.h"

/* ---- prefetches --------------------------------------------------------- */

INLINE void prefetch_near(const void *p)
{
    __builtin_prefetch(p, 0, 3);
}

/* The prefetch is assembly, so that it stays in its place. */
INLINE void sweep_by(const void *p, size_t ahead, bool to_l2)
{
    const char *line = (const char *)p + ahead;

    if (to_l2)
        __asm__ volatile("prfm pldl2keep, [%0]" ::"r"(line));
    else
        __asm__ volatile("prfm pldl1keep, [%0]" ::"r"(line));
}

/* Prefetch for a sweep over weights that has come to p. */
INLINE void sweep(const void *p)
{
    sweep_by(p, kernel_core.sweep_ahead, kernel_core.sweep_l2);
}

/* ---- loads -------------------------------------------------------------- */

/* Load n < 8 bytes, followed by zeros. Like first_bytes, it calls nothing: all
 * vectors that live across a call go through memory, in loops before it too. */
INLINE uint64_t first_bytes8(const char *p, size_t n)
{
    uint64_t v = 0;
    uint32_t four;
    uint16_t two;
    size_t at = 0;

    if (n & 4) {
        memcpy(&four, p, 4);
        v = four;
        at = 4;
    }
    if (n & 2) {
        memcpy(&two, p + at, 2);
        v |= (uint64_t)two << (8 * at);
        at += 2;
    }
    if (n & 1)
        v |= (uint64_t)(unsigned char)p[at] << (8 * at);
    return v;
}

/* Load n < 16 bytes, followed by zeros. */
INLINE uint8x16_t first_bytes(const void *from, size_t n)
{
    const char *p = from;
    uint64_t low, high = 0;

    if (n >= 8) {
        memcpy(&low, p, 8);
        high = first_bytes8(p + 8, n - 8);
    } else {
        low = first_bytes8(p, n);
    }
    return vreinterpretq_u8_u64(
        vcombine_u64(vcreate_u64(low), vcreate_u64(high)));
}

/* Load four bytes, widened. */
INLINE uint32x4_t load_bytes4(const unsigned char *p)
{
    uint32_t word;

    memcpy(&word, p, sizeof word);
    return vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(word))));
}

/* Compute e8m0_half (kernel/blocks.h) of four integers. */
INLINE float32x4_t e8m0_halves4(uint32x4_t e)
{
    const uint32x4_t normal = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23);
    const uint32x4_t small =
        vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(e));
    const uint32x4_t v = vbslq_u32(vcltq_u32(e, vdupq_n_u32(2)), small, normal);

    /* all ones are a NaN */
    return vreinterpretq_f32_u32(vorrq_u32(v, vceqq_u32(e, vdupq_n_u32(255))));
}

/* Widen four FP8 numbers. In f16 their exponent has another bias, so that
 * subnormals need no care. */
INLINE float32x4_t widen_fp8(const char *p)
{
    const uint16x4_t top = vdup_n_u16(0x3f80);
    int32_t word;
    uint16x4_t h, nan;

    memcpy(&word, p, sizeof word);
    h = vreinterpret_u16_s16(
        vshl_n_s16(vget_low_s16(vmovl_s8(vcreate_s8((uint32_t)word))), 7));
    nan = vceq_u16(vand_u16(h, top), top);
    h = vand_u16(h, vdup_n_u16(0xbf80));
    h = vorr_u16(h, vand_u16(nan, vdup_n_u16(0x7c00)));
    return vmulq_n_f32(vcvt_f32_f16(vreinterpret_f16_u16(h)), FP8_UNIT);
}

/* Load four elements of the type, widened to f32. */
INLINE float32x4_t load4_all(const char *p, enum dtype type)
{
    int32_t word;
    uint16x4_t h;

    if (type == DT_F32)
        return vreinterpretq_f32_u8(vld1q_u8((const uint8_t *)p));
    if (type == DT_I8) {
        memcpy(&word, p, sizeof word);
        return vcvtq_f32_s32(
            vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8((uint32_t)word)))));
    }
    if (type == DT_F8_E4M3)
        return widen_fp8(p);
    h = vreinterpret_u16_u8(vld1_u8((const uint8_t *)p));
    if (type == DT_F16)
        return vcvt_f32_f16(vreinterpret_f16_u16(h));
    return vreinterpretq_f32_u32(vshll_n_u16(h, 16));
}

/* Load the first n of four elements, widened to f32, with zeros in the other
 * lanes. Reads no byte beyond these elements. */
INLINE float32x4_t load4(const char *p, size_t n, enum dtype type)
{
    char some[16];

    if (n >= 4)
        return load4_all(p, type);
    vst1q_u8((uint8_t *)some, first_bytes(p, n * type_bytes(type)));
    return load4_all(some, type);
}

INLINE int8x16_t load16(const void *p)
{
    return vld1q_s8(p);
}

/* ---- sums in a fixed order ---------------------------------------------- */

/* Return the sum of all lanes. Adds lanes l and l + 2 first. */
INLINE float sum_lanes(float32x4_t v)
{
    const float32x2_t s = vadd_f32(vget_low_f32(v), vget_high_f32(v));

    return vget_lane_f32(vpadd_f32(s, s), 0);
}

/* Add lanes l and l + 2 of a and of b. */
INLINE float32x4_t fold_pair(float32x4_t a, float32x4_t b)
{
    const float64x2_t x = vreinterpretq_f64_f32(a);
    const float64x2_t y = vreinterpretq_f64_f32(b);

    return vreinterpretq_f32_f64(vzip1q_f64(x, y)) +
           vreinterpretq_f32_f64(vzip2q_f64(x, y));
}

/* Do the work of sum_lanes for four vectors at once: one result in each
 * lane. */
INLINE float32x4_t sum_lanes4(const float32x4_t v[4])
{
    return vpaddq_f32(fold_pair(v[0], v[1]), fold_pair(v[2], v[3]));
}

#endif
