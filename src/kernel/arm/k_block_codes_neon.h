/* Codes and scales of GGUF's blocks (kernel/blocks.h), for 64-bit ARM. A run is
 * 32 elements. A chunk is up to CHUNK_RUNS runs: a superblock, or consecutive
 * blocks. */
#ifndef KERNEL_ARM_K_BLOCK_CODES_NEON_H
#define KERNEL_ARM_K_BLOCK_CODES_NEON_H

#include "kernel/arm/k_affine_codes.h"

enum { RUN = 32, CHUNK_RUNS = 8 };

/* ---- types -------------------------------------------------------------- */

/* dtype_bytes and dtype_block, as constants. */
INLINE size_t bytes_of(enum dtype type)
{
#define BYTES_OF(name, TYPE) \
    case TYPE:               \
        return sizeof(struct name);
    switch (type) {
        EACH_BLOCK_TYPE(BYTES_OF)
    default:
        return 0;
    }
#undef BYTES_OF
}

INLINE size_t elements_of(enum dtype type)
{
    return type >= DT_Q2_K ? SUPER : type == DT_NVFP4 ? 2 * RUN : RUN;
}

/* Whether each 16 elements have a scale, not each run. */
INLINE bool has_halves(enum dtype type)
{
    return type == DT_Q2_K || type == DT_Q3_K || type == DT_Q6_K ||
           type == DT_NVFP4 || type == DT_IQ2_XS || type == DT_IQ2_S ||
           type == DT_IQ1_M;
}

INLINE bool has_min(enum dtype type)
{
    return type == DT_Q4_1 || type == DT_Q5_1 || type == DT_Q2_K ||
           type == DT_Q4_K || type == DT_Q5_K;
}

/* What run_codes adds to the codes. The products subtract it as a min. */
INLINE int offset_of(enum dtype type)
{
    return type == DT_Q4_0 ? 8 : type == DT_Q5_0 ? 16 : 0;
}

/* Return the bytes of n runs, an even number for NVFP4. */
INLINE size_t runs_bytes(enum dtype type, size_t n)
{
    return n * RUN / elements_of(type) * bytes_of(type);
}

/* ---- codes -------------------------------------------------------------- */

/* The low nibbles of 16 bytes, then the high ones. */
INLINE void nibbles(uint8x16_t v[2], const unsigned char *p)
{
    const uint8x16_t q = vld1q_u8(p);

    v[0] = vandq_u8(q, vdupq_n_u8(15));
    v[1] = vshrq_n_u8(q, 4);
}

/* `value` in the bytes of v[i] whose bit of h is 1, 0 in the others. */
INLINE void fifth_bits(uint8x16_t v[2], const unsigned char *h, uint8_t value)
{
    const uint8x8_t bit = vcreate_u8(0x8040201008040201u);
    const uint8x16_t bits = vcombine_u8(bit, bit);

    UNROLL
    for (int i = 0; i < 2; i++) {
        const uint8x16_t b =
            vcombine_u8(vdup_n_u8(h[2 * i]), vdup_n_u8(h[2 * i + 1]));

        v[i] = vandq_u8(vtstq_u8(b, bits), vdupq_n_u8(value));
    }
}

/* Shift 16 bytes to the right, or to the left if `right` is negative. Shifts by
 * a constant need no vector of counts. */
INLINE uint8x16_t moved(uint8x16_t v, int right)
{
    if (!__builtin_constant_p(right))
        return vshlq_u8(v, vdupq_n_s8((int8_t)-right));
    return right == -4   ? vshlq_n_u8(v, 4)
           : right == -2 ? vshlq_n_u8(v, 2)
           : right == 2  ? vshrq_n_u8(v, 2)
           : right == 4  ? vshrq_n_u8(v, 4)
           : right == 6  ? vshrq_n_u8(v, 6)
                         : v;
}

/* 16 bytes, shifted, and the bits of a mask. */
INLINE uint8x16_t bits_at(const unsigned char *p, size_t right, uint8_t mask)
{
    const uint8x16_t v = moved(vld1q_u8(p), (int)right);
    const bool whole = __builtin_constant_p(right) && 255 >> right == mask;

    return whole ? v : vandq_u8(v, vdupq_n_u8(mask));
}

/* `value` in the bytes whose bit is 1. */
INLINE uint8x16_t where_bit(const unsigned char *p, size_t bit, uint8_t value)
{
    return vandq_u8(vtstq_u8(vld1q_u8(p), vdupq_n_u8((uint8_t)(1u << bit))),
                    vdupq_n_u8(value));
}

/* Give eight numbers signs: bit i of s makes number i negative. */
INLINE int8x8_t with_signs(uint64_t grid, unsigned s)
{
    const int8x8_t minus = vreinterpret_s8_u8(
        vtst_u8(vdup_n_u8((uint8_t)s), vcreate_u8(0x8040201008040201u)));

    return vsub_s8(veor_s8(vcreate_s8(grid), minus), minus);
}

INLINE uint64_t two_words(uint32_t low, uint32_t high)
{
    return low | (uint64_t)high << 32;
}

/* The codes of run r of types with grids, eight at a time. */
INLINE int8x8_t grid_codes(enum dtype type, const unsigned char *p, size_t r,
                           size_t l)
{
    if (type == DT_IQ2_XXS) {
        const unsigned char *q = ((const struct iq2_xxs *)p)->q + r * 8;

        return with_signs(iq2_xxs_grid[q[l]],
                          iq_signs(load_u32(q + 4) >> (7 * l)));
    }
    if (type == DT_IQ2_XS) {
        const unsigned q =
            load_u16(((const struct iq2_xs *)p)->q + r * 8 + 2 * l);

        return with_signs(iq2_xs_grid[q & 511], iq_signs(q >> 9));
    }
    if (type == DT_IQ2_S) {
        const struct iq2_s *b = (const void *)p;

        return with_signs(iq2_s_grid[iq2_s_index(b, r, l)],
                          b->signs[r * 4 + l]);
    }
    if (type == DT_IQ3_XXS) {
        const struct iq3_xxs *b = (const void *)p;
        const unsigned char *q = b->q + r * 8 + 2 * l;

        return with_signs(two_words(iq3_xxs_grid[q[0]], iq3_xxs_grid[q[1]]),
                          iq_signs(load_u32(b->s + r * 4) >> (7 * l)));
    }
    const struct iq3_s *b = (const void *)p;

    return with_signs(two_words(iq3_s_grid[iq3_s_index(b, r, 2 * l)],
                                iq3_s_grid[iq3_s_index(b, r, 2 * l + 1)]),
                      b->signs[4 * r + l]);
}

/* The codes of run r of types that kernel/blocks.h unpacks. */
INLINE void table_codes(enum dtype type, uint8x16_t v[2],
                        const unsigned char *p, size_t r)
{
    uint8_t codes[RUN];

    if (type == DT_IQ1_S)
        iq1_s_codes(codes, (const void *)p, r);
    else if (type == DT_IQ1_M)
        iq1_m_codes(codes, (const void *)p, r);
    else
        tq1_0_codes(codes, (const void *)p, r);
    v[0] = vld1q_u8(codes);
    v[1] = vld1q_u8(codes + 16);
}

/* The unsigned codes of half h of run r of types with superblocks. */
INLINE uint8x16_t super_codes(enum dtype type, const unsigned char *p, size_t r,
                              size_t h)
{
    const size_t k = 16 * h;

    if (type == DT_Q2_K)
        return bits_at(((const struct q2_k *)p)->q + r / 4 * 32 + k, r % 4 * 2,
                       3);
    if (type == DT_TQ2_0)
        return bits_at(((const struct tq2_0 *)p)->q + r / 4 * 32 + k, r % 4 * 2,
                       3);
    if (type == DT_Q3_K) {
        const struct q3_k *b = (const void *)p;

        return vorrq_u8(bits_at(b->q + r / 4 * 32 + k, r % 4 * 2, 3),
                        where_bit(b->h + k, r, 4));
    }
    if (type == DT_Q4_K)
        return bits_at(((const struct q4_k *)p)->q + r / 2 * 32 + k, r % 2 * 4,
                       15);
    if (type == DT_Q5_K) {
        const struct q5_k *b = (const void *)p;

        return vorrq_u8(bits_at(b->q + r / 2 * 32 + k, r % 2 * 4, 15),
                        where_bit(b->h + k, r, 16));
    }
    const struct q6_k *b = (const void *)p;

    return vorrq_u8(
        bits_at(b->l + r / 4 * 64 + r % 2 * 32 + k, r % 4 / 2 * 4, 15),
        vandq_u8(moved(vld1q_u8(b->h + r / 4 * 32 + k), (int)(r % 4 * 2) - 4),
                 vdupq_n_u8(0x30)));
}

/* What to subtract from unsigned codes. */
INLINE int8_t minus_of(enum dtype type)
{
    return type == DT_Q3_K                        ? 4
           : type == DT_Q6_K                      ? 32
           : type == DT_IQ1_S || type == DT_IQ1_M ? IQ1_OFFSET
           : type == DT_TQ1_0 || type == DT_TQ2_0 ? 1
                                                  : 0;
}

/* The nibbles of run r, and what has to be added to them. */
INLINE void nibble_codes(enum dtype type, uint8x16_t v[2],
                         const unsigned char *p, size_t r)
{
    const unsigned char *b = p + (type == DT_IQ4_XS ? 0 : r * bytes_of(type));
    uint8x16_t high[2];

    if (type == DT_IQ4_XS)
        nibbles(v, ((const struct iq4_xs *)b)->q + 16 * r);
    else
        nibbles(v, b + bytes_of(type) - 16);
    if (type != DT_Q5_0 && type != DT_Q5_1)
        return;
    fifth_bits(high, b + bytes_of(type) - 20, 16);
    v[0] = vorrq_u8(v[0], high[0]);
    v[1] = vorrq_u8(v[1], high[1]);
}

INLINE bool is_super(enum dtype type)
{
    return type == DT_Q2_K || type == DT_Q3_K || type == DT_Q4_K ||
           type == DT_Q5_K || type == DT_Q6_K || type == DT_TQ2_0;
}

INLINE bool has_grid(enum dtype type)
{
    return type == DT_IQ2_XXS || type == DT_IQ2_XS || type == DT_IQ2_S ||
           type == DT_IQ3_XXS || type == DT_IQ3_S;
}

/* Unpack the 32 codes of run r of the chunk at p, plus offset_of, as signed
 * bytes. */
INLINE void run_codes(enum dtype type, int8x16_t v[2], const unsigned char *p,
                      size_t r)
{
    uint8x16_t u[2];

    if (type == DT_Q8_0) {
        const int8_t *q = ((const struct q8_0 *)p)[r].q;

        v[0] = load16(q);
        v[1] = load16(q + 16);
        return;
    }
    if (type == DT_NVFP4) {
        nibbles(u, ((const struct nvfp4 *)p)[r / 2].q + r % 2 * 16);
        v[0] = e2m1_values(vcombine_u8(vget_low_u8(u[0]), vget_low_u8(u[1])));
        v[1] = e2m1_values(vcombine_u8(vget_high_u8(u[0]), vget_high_u8(u[1])));
        return;
    }
    if (has_grid(type)) {
        UNROLL
        for (size_t h = 0; h < 2; h++)
            v[h] = vcombine_s8(grid_codes(type, p, r, 2 * h),
                               grid_codes(type, p, r, 2 * h + 1));
        return;
    }
    if (type == DT_IQ1_S || type == DT_IQ1_M || type == DT_TQ1_0) {
        table_codes(type, u, p, r);
    } else if (is_super(type)) {
        u[0] = super_codes(type, p, r, 0);
        u[1] = super_codes(type, p, r, 1);
    } else {
        nibble_codes(type, u, p, r);
    }
    UNROLL
    for (int h = 0; h < 2; h++) {
        v[h] = vreinterpretq_s8_u8(u[h]);
        if (type == DT_IQ4_NL || type == DT_IQ4_XS)
            v[h] = vqtbl1q_s8(vld1q_s8(iq4_values), u[h]);
        if (type == DT_MXFP4)
            v[h] = e2m1_values(u[h]);
        if (minus_of(type))
            v[h] = vsubq_s8(v[h], vdupq_n_s8(minus_of(type)));
    }
}

/* ---- scales ------------------------------------------------------------- */

INLINE float half_float(const unsigned char *p)
{
    __fp16 h;

    memcpy(&h, p, sizeof h);
    return (float)h;
}

/* Multiply n unsigned bytes, a multiple of 8, by d. */
INLINE void times_bytes(float *out, const uint8_t *q, float d, size_t n)
{
    for (size_t i = 0; i < n; i += 4)
        vst1q_f32(out + i, vmulq_n_f32(vcvtq_f32_u32(load_bytes4(q + i)), d));
}

INLINE void times_signed(float *out, const int8_t *q, float d, size_t n)
{
    for (size_t i = 0; i < n; i += 4)
        vst1q_f32(out + i,
                  vmulq_n_f32(load4((const char *)q + i, 4, DT_I8), d));
}

/* As k_scales_mins of kernel/blocks.h, four bytes at a time. */
INLINE void scales_mins(uint8_t scales[8], uint8_t mins[8],
                        const unsigned char *sc)
{
    const uint32_t a = load_u32(sc), b = load_u32(sc + 4), c = load_u32(sc + 8);
    const uint32_t s[2] = {a & 0x3f3f3f3f,
                           (c & 0x0f0f0f0f) | (a >> 6 & 0x03030303) << 4};
    const uint32_t m[2] = {b & 0x3f3f3f3f,
                           (c >> 4 & 0x0f0f0f0f) | (b >> 6 & 0x03030303) << 4};

    memcpy(scales, s, 8);
    memcpy(mins, m, 8);
}

/* 2 s + 1 for each nibble of n bytes. */
INLINE void odd_scales(uint8_t *out, const unsigned char *sc, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = (uint8_t)((sc[i] & 15) * 2 + 1);
        out[2 * i + 1] = (uint8_t)((sc[i] >> 4) * 2 + 1);
    }
}

/* The scales of a superblock of the types IQ. */
INLINE void grid_scales(enum dtype type, float *scale, const unsigned char *p)
{
    const float d = half_float(p);
    uint8_t odd[16];
    uint16_t bits;

    switch (type) {
    case DT_IQ2_XXS:
        for (size_t r = 0; r < 8; r++)
            odd[r] = (uint8_t)((p[2 + 8 * r + 7] >> 4) * 2 + 1);
        times_bytes(scale, odd, d / 8, 8);
        break;
    case DT_IQ3_XXS:
        for (size_t r = 0; r < 8; r++)
            odd[r] = (uint8_t)((p[66 + 4 * r + 3] >> 4) * 2 + 1);
        times_bytes(scale, odd, d / 4, 8);
        break;
    case DT_IQ3_S:
        odd_scales(odd, ((const struct iq3_s *)p)->sc, 4);
        times_bytes(scale, odd, d, 8);
        break;
    case DT_IQ1_S:
        for (size_t r = 0; r < 8; r++)
            odd[r] =
                (uint8_t)((((const struct iq1_s *)p)->h[2 * r + 1] >> 4 & 7) *
                              2 +
                          1);
        times_bytes(scale, odd, d / 8, 8);
        break;
    case DT_IQ1_M:
        bits = iq1_m_d((const void *)p);
        iq1_m_scales(odd, (const void *)p);
        times_bytes(scale, odd, half_float((const unsigned char *)&bits) / 8,
                    16);
        break;
    default: /* IQ2_XS, IQ2_S */
        odd_scales(odd,
                   type == DT_IQ2_XS ? ((const struct iq2_xs *)p)->sc
                                     : ((const struct iq2_s *)p)->sc,
                   8);
        times_bytes(scale, odd, d / 8, 16);
    }
}

/* The scales and mins of a superblock. */
INLINE void super_scales(enum dtype type, float *scale, float *min,
                         const unsigned char *p)
{
    uint8_t s[16], m[16];
    int8_t q[16];

    if (type == DT_Q2_K) {
        const struct q2_k *b = (const void *)p;

        vst1q_u8(s, bits_at(b->sc, 0, 15));
        vst1q_u8(m, bits_at(b->sc, 4, 15));
        times_bytes(scale, s, half_float(b->d), 16);
        times_bytes(min, m, half_float(b->dmin), 16);
    } else if (type == DT_Q3_K) {
        const struct q3_k *b = (const void *)p;

        q3_k_scales(q, b->sc);
        times_signed(scale, q, half_float(b->d), 16);
    } else if (type == DT_Q4_K || type == DT_Q5_K) {
        const struct q4_k *b = (const void *)p; /* q5_k begins as it does */

        scales_mins(s, m, b->sc);
        times_bytes(scale, s, half_float(b->d), 8);
        times_bytes(min, m, half_float(b->dmin), 8);
    } else if (type == DT_Q6_K) {
        const struct q6_k *b = (const void *)p;

        times_signed(scale, b->sc, half_float(b->d), 16);
    } else if (type == DT_IQ4_XS) {
        const struct iq4_xs *b = (const void *)p;

        iq4_xs_scales(q, b);
        times_signed(scale, q, half_float(b->d), 8);
    } else {
        grid_scales(type, scale, p);
    }
}

/* The scales, and the mins of types that have them, of n runs of a chunk at p:
 * one for each run, or for each half. */
INLINE void chunk_scales(enum dtype type, float scale[2 * CHUNK_RUNS],
                         float min[2 * CHUNK_RUNS], const unsigned char *p,
                         size_t n)
{
    const size_t bytes = bytes_of(type);

    if (type == DT_TQ1_0 || type == DT_TQ2_0) {
        for (size_t r = 0; r < n; r++)
            scale[r] = half_float(p + bytes - 2);
        return;
    }
    if (elements_of(type) == SUPER) {
        super_scales(type, scale, min, p);
        return;
    }
    if (type == DT_NVFP4) {
        for (size_t g = 0; g < 2 * n; g++)
            scale[g] = ue4m3_half(p[g / 4 * bytes + g % 4]);
        return;
    }
    for (size_t r = 0; r < n; r++, p += bytes) {
        scale[r] = type == DT_MXFP4 ? e8m0_half(*p) : half_float(p);
        if (has_min(type))
            min[r] = -half_float(p + 2);
    }
}

#endif
