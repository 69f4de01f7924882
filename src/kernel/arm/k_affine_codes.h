/* Codes, scales and biases of affine weights (kernel.h), for 64-bit ARM. */
#ifndef KERNEL_ARM_K_AFFINE_CODES_H
#define KERNEL_ARM_K_AFFINE_CODES_H

#include "kernel/arm/k_neon_common.h"
#include "kernel/blocks.h"

/* ---- scales and biases -------------------------------------------------- */

/* Load the first n of four bytes, widened, with zeros in the other lanes. */
INLINE uint32x4_t first_bytes4(const unsigned char *p, size_t n)
{
    unsigned char some[16];

    if (n >= 4)
        return load_bytes4(p);
    vst1q_u8(some, first_bytes(p, n));
    return load_bytes4(some);
}

/* Return the scales of groups g to g + 3 of row r, or only of the first n. */
INLINE float32x4_t affine_scales(const struct affine *w, size_t r, size_t g,
                                 size_t n)
{
    const unsigned char *p = w->scales + r * w->s_stride;
    const char *at = (const char *)p;

    switch (w->s_type) {
    case DT_U8:
        return e8m0_halves4(first_bytes4(p + g, n));
    case DT_F8_E4M3:
        return vmulq_n_f32(load4(at + g, n, DT_F8_E4M3), w->by);
    case DT_F32:
        return load4(at + 4 * g, n, DT_F32);
    case DT_F16:
        return load4(at + 2 * g, n, DT_F16);
    default:
        return load4(at + 2 * g, n, DT_BF16);
    }
}

/* Return the biases, which zero points give from the scales s. Codes of E2M1
 * have none. */
INLINE float32x4_t affine_biases(const struct affine *w, size_t r, size_t g,
                                 size_t n, float32x4_t s)
{
    const unsigned char *p = w->biases + r * w->b_stride;
    const char *at = (const char *)p;

    if (w->codes == AFFINE_E2M1)
        return vdupq_n_f32(0);
    if (w->zero)
        return vmulq_n_f32(s, (float)-w->zero);
    switch (w->b_type) {
    case DT_U8:
        return s * vcvtq_f32_s32(vnegq_s32(
                       vreinterpretq_s32_u32(first_bytes4(p + g, n))));
    case DT_F32:
        return load4(at + 4 * g, n, DT_F32);
    case DT_F16:
        return load4(at + 2 * g, n, DT_F16);
    default:
        return load4(at + 2 * g, n, DT_BF16);
    }
}

/* ---- codes -------------------------------------------------------------- */

/* Bytes that hold code i of eight codes of b bits. */
#define TWO_BYTES(b, i) (i) * (b) / 8, (i) * (b) / 8 + 1
#define ALL_BYTES(b)                                                           \
    {                                                                          \
        TWO_BYTES(b, 0), TWO_BYTES(b, 1), TWO_BYTES(b, 2), TWO_BYTES(b, 3),    \
            TWO_BYTES(b, 4), TWO_BYTES(b, 5), TWO_BYTES(b, 6), TWO_BYTES(b, 7) \
    }
#define ALL_SHIFTS(b)                                                        \
    {                                                                        \
        0, -(b) % 8, -2 * (b) % 8, -3 * (b) % 8, -4 * (b) % 8, -5 * (b) % 8, \
            -6 * (b) % 8, -7 * (b) % 8                                       \
    }

/* Unpack eight codes of 2, 3, 5 or 6 bits, which begin at byte `from` of q, to
 * words. */
INLINE uint16x8_t words8(uint8x16_t q, int from, int bits)
{
    static const uint8_t bytes[7][16] = {[2] = ALL_BYTES(2),
                                         [3] = ALL_BYTES(3),
                                         [5] = ALL_BYTES(5),
                                         [6] = ALL_BYTES(6)};
    static const int16_t shifts[7][8] = {[2] = ALL_SHIFTS(2),
                                         [3] = ALL_SHIFTS(3),
                                         [5] = ALL_SHIFTS(5),
                                         [6] = ALL_SHIFTS(6)};
    const uint8x16_t at =
        vaddq_u8(vld1q_u8(bytes[bits]), vdupq_n_u8((uint8_t)from));
    const uint16x8_t w = vreinterpretq_u16_u8(vqtbl1q_u8(q, at));

    return vandq_u16(vshlq_u16(w, vld1q_s16(shifts[bits])),
                     vdupq_n_u16((uint16_t)((1u << bits) - 1)));
}

/* Values of E2M1 numbers, doubled. */
INLINE int8x16_t e2m1_values(uint8x16_t nibbles)
{
    const int8x16_t values = vsubq_s8(vreinterpretq_s8_u8(vld1q_u8(e2m1_codes)),
                                      vdupq_n_s8(E2M1_OFFSET));

    return vqtbl1q_s8(values, nibbles);
}

/* Unpack 32 codes of 4 bits: v[0] gets the ones of even index, v[1] the ones of
 * odd index. */
INLINE void signed_nibbles(int8x16_t v[2], const unsigned char *p, int bits)
{
    const uint8x16_t q = vld1q_u8(p);
    const uint8x16_t low = vandq_u8(q, vdupq_n_u8(15)), high = vshrq_n_u8(q, 4);

    v[0] = bits == E2M1 ? e2m1_values(low) : vreinterpretq_s8_u8(low);
    v[1] = bits == E2M1 ? e2m1_values(high) : vreinterpretq_s8_u8(high);
}

/* Unpack 16 codes in their order, as signed bytes: codes of 8 bits minus 128,
 * those of E2M1 as numbers. Reads no byte beyond them. */
INLINE int8x16_t signed16(const unsigned char *p, int bits)
{
    uint64_t half[2] = {0};
    uint8x16_t q;

    if (bits == SIGNED)
        return load16(p);
    if (bits == 8)
        return vreinterpretq_s8_u8(veorq_u8(vld1q_u8(p), vdupq_n_u8(0x80)));
    if (width_bits(bits) == 4) {
        const uint8x8_t n = vld1_u8(p);

        q = vcombine_u8(vand_u8(n, vdup_n_u8(15)), vshr_n_u8(n, 4));
        q = vzip1q_u8(q, vextq_u8(q, q, 8));
        return bits == E2M1 ? e2m1_values(q) : vreinterpretq_s8_u8(q);
    }
    memcpy(half, p, 2 * (size_t)bits);
    q = vreinterpretq_u8_u64(
        vcombine_u64(vcreate_u64(half[0]), vcreate_u64(half[1])));
    return vreinterpretq_s8_u8(
        vuzp1q_u8(vreinterpretq_u8_u16(words8(q, 0, bits)),
                  vreinterpretq_u8_u16(words8(q, bits, bits))));
}

#endif
