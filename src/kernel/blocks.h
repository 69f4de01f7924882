/* The blocks of GGUF files (ggml's quantized types). A block holds 32, 64 or
 * 256 consecutive elements of a row and their scales. Numbers are
 * little-endian; d, m and dmin are f16. Blocks need no alignment.
 *
 * The value of an element is code * scale, or code * scale - min. The code is a
 * small integer, called q below. Each run of 16 or 32 elements has its scale
 * and its min. Each product is rounded to f32, and then the difference is
 * rounded.
 *
 * "Bits 2r of x" below stands for bits 2r and 2r + 1. */
#ifndef KERNEL_BLOCKS_H
#define KERNEL_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernel/iq_grids.h"

/* Elements of a superblock. */
enum { SUPER = 256 };

/* Value (q - 8) * d. Byte j of q has element j in its low nibble, and in its
 * high nibble element j + 16. */
struct q4_0 {
    unsigned char d[2], q[16];
};

/* Value q * d + m. q is stored as in q4_0. */
struct q4_1 {
    unsigned char d[2], m[2], q[16];
};

/* Value (q - 16) * d. The low four bits of q are stored as in q4_0. Bit j of h
 * is the fifth bit of element j. */
struct q5_0 {
    unsigned char d[2], h[4], q[16];
};

/* Value q * d + m. q is stored as in q5_0. */
struct q5_1 {
    unsigned char d[2], m[2], h[4], q[16];
};

/* Value q * d. */
struct q8_0 {
    unsigned char d[2];
    int8_t q[32];
};

/* Value iq4_values[q] * d. q is stored as in q4_0. */
struct iq4_nl {
    unsigned char d[2], q[16];
};

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

/* Value (e2m1_codes[q] - E2M1_OFFSET) * e8m0_half(e) (the MXFP4 of Open Compute
 * Project, Microscaling Formats 1.0). q is stored as in q4_0. */
struct mxfp4 {
    unsigned char e, q[16];
};

/* Twice the values of E2M1 numbers, plus an offset that makes them unsigned. */
enum { E2M1_OFFSET = 12 };
static const unsigned char e2m1_codes[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                             12, 11, 10, 9,  8,  6,  4,  0};

/* Elements that share an E8M0 scale. */
enum { MX_GROUP = 32 };

/* Half the value of an E8M0 number, which is 2^(e - 127), or NaN for 255. The
 * half makes up for the doubled values of E2M1. It is subnormal for e < 2. */
static inline float e8m0_half(unsigned char e)
{
    uint32_t bits = e == 255 ? 0x7fc00000
                    : e < 2  ? (uint32_t)0x00200000 << e
                             : (uint32_t)(e - 1) << 23;
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Half the value of an unsigned E4M3 number, whose highest bit does not count.
 * 0x7f, which is NaN elsewhere, is 0 here. */
static inline float ue4m3_half(unsigned char x)
{
    const unsigned e = x >> 3 & 15;
    uint32_t bits = (e + 119) << 23 | (uint32_t)(x & 7) << 20;
    float f;

    if (e == 0 || x == 0x7f)
        return x == 0x7f ? 0 : (float)(x & 7) / 1024;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Value q * (d * low) - dmin * high, where low and high are the nibbles of
 * sc[g] for element group g of 16. Each 128 elements take 32 bytes of q:
 * element i of run r of 32 has bits 2r of q[i]. */
struct q2_k {
    unsigned char sc[16], q[64], d[2], dmin[2];
};

/* Value q * (d * (s - 32)), q from -4 to 3, one scale s for each group of 16.
 * The low two bits of q are stored as in q2_k. Bit r of h[i] belongs to element
 * i of run r of 32: if it is 0, 4 is subtracted. Scale g has its low four bits
 * in nibble g / 8 of sc[g % 8]; its high two bits are bits 2(g / 4) of byte
 * sc[8 + g % 4]. */
struct q3_k {
    unsigned char h[32], q[64], sc[12], d[2];
};

/* Value q * (d * scale) - dmin * min, one scale and one min, of 6 bits, for
 * each group of 32 (k_scales_mins). Each 64 elements take 32 bytes of q: the
 * first 32 elements the low nibbles, the others the high nibbles. */
struct q4_k {
    unsigned char d[2], dmin[2], sc[12], q[128];
};

/* As q4_k, but codes have five bits: bit r of h[i] is the fifth bit of element
 * i of run r of 32. */
struct q5_k {
    unsigned char d[2], dmin[2], sc[12], h[32], q[128];
};

/* Value (q - 32) * (d * sc), one sc for each group of 16. Each 128 elements
 * take 64 bytes of l and 32 of h: element i of run r of 32 has its low four
 * bits in nibble r / 2 of l[32 * (r % 2) + i], and its high two bits in bits 2r
 * of h[i]. */
struct q6_k {
    unsigned char l[128], h[64];
    int8_t sc[16];
    unsigned char d[2];
};

/* Value iq4_values[q] * (d * (s - 32)), one scale s for each group of 32. Each
 * group takes 16 bytes of q, stored as in q4_0. Scale g has its low four bits
 * in nibble g of sl, and its high two bits in bits 2g of sh. */
struct iq4_xs {
    unsigned char d[2], sh[2], sl[4], q[128];
};

/* Value (e2m1_codes[q] - E2M1_OFFSET) * ue4m3_half(d[s]) for group s of 16
 * (NVIDIA's NVFP4). Byte j of the eight bytes of q that a group takes has its
 * element j in the low nibble, and in the high nibble element j + 8. */
struct nvfp4 {
    unsigned char d[4], q[32];
};

/* The types IQ2 and IQ3: an index into a grid (iq_grids.h) gives the magnitudes
 * of eight or four elements, and each element has a sign of its own: 1 is
 * minus. Where eight elements have seven bits for their signs, the eighth makes
 * the number of minus signs even (iq_signs).
 *
 * Value of IQ2 +- g * (d / 8 * (2 s + 1)), of IQ3_XXS +- g * (d / 4 * (2 s +
 * 1)), of IQ3_S +- g * (d * (2 s + 1)). Runs have 32 elements. */

/* For each run: four indices, then a number of 32 bits: signs l are bits 7 l to
 * 7 l + 6, and s the highest four. */
struct iq2_xxs {
    unsigned char d[2], q[64];
};

/* Each number of 16 bits in q has an index of nine bits, and above it signs.
 * Nibble g of sc is s of group g of 16. */
struct iq2_xs {
    unsigned char d[2], q[64], sc[8];
};

/* Index l of run r: q[4 r + l], and above it bits 2 l of h[r]. s as in
 * iq2_xs. */
struct iq2_s {
    unsigned char d[2], q[32], signs[32], h[8], sc[8];
};

/* Run r has eight indices in q, and a number in s like those of iq2_xxs. */
struct iq3_xxs {
    unsigned char d[2], q[64], s[32];
};

/* Index l of run r: q[8 r + l], and above it bit l of h[r]. Nibble r of sc is s
 * of run r. */
struct iq3_s {
    unsigned char d[2], q[64], h[8], signs[32], sc[4];
};

/* Value (g +- 1 / 8) * (d * (2 s + 1)). Index l of run r: q[4 r + l], and above
 * it bits 3 l to 3 l + 2 of number r of 16 bits in h; bits 12 to 14 of this
 * number are s, and the highest one is the sign of the eighth. */
struct iq1_s {
    unsigned char d[2], q[32], h[16];
};

/* As iq1_s, but nibble 4 r + l of h has three bits above q[4 r + l] and the
 * sign of its eighth. The numbers of 16 bits in sc have d in their highest
 * nibbles, and below these an s of three bits for each group of 16. */
struct iq1_m {
    unsigned char q[32], h[16], sc[8];
};

/* Value (q - 1) * d. Digit n of byte j, base 3, is the highest digit of
 * j * 3^n modulo 256 as a fraction of 256. 32 bytes have five runs: element i
 * of run n is digit n of byte i. 16 bytes have 80 elements in the same way, and
 * the last four bytes have four digits each. */
struct tq1_0 {
    unsigned char q[52], d[2];
};

/* Value (q - 1) * d. q is stored as in q2_k. */
struct tq2_0 {
    unsigned char q[64], d[2];
};

_Static_assert(sizeof(struct q4_0) == 18 && sizeof(struct q4_1) == 20 &&
                   sizeof(struct q5_0) == 22 && sizeof(struct q5_1) == 24 &&
                   sizeof(struct q8_0) == 34 && sizeof(struct iq4_nl) == 18 &&
                   sizeof(struct mxfp4) == 17 && sizeof(struct nvfp4) == 36,
               "as stored");
_Static_assert(sizeof(struct q2_k) == 84 && sizeof(struct q3_k) == 110 &&
                   sizeof(struct q4_k) == 144 && sizeof(struct q5_k) == 176 &&
                   sizeof(struct q6_k) == 210 && sizeof(struct iq4_xs) == 136,
               "as stored");
_Static_assert(sizeof(struct iq3_xxs) == 98 && sizeof(struct iq3_s) == 110 &&
                   sizeof(struct iq2_xxs) == 66 &&
                   sizeof(struct iq2_xs) == 74 && sizeof(struct iq2_s) == 82 &&
                   sizeof(struct iq1_s) == 50 && sizeof(struct iq1_m) == 56 &&
                   sizeof(struct tq1_0) == 54 && sizeof(struct tq2_0) == 66,
               "as stored");

/* Write DEFINE(name, type) for each type of blocks: the name of its struct, and
 * its dtype. */
#define EACH_BLOCK_TYPE(DEFINE) \
    DEFINE(q4_0, DT_Q4_0)       \
    DEFINE(q4_1, DT_Q4_1)       \
    DEFINE(q5_0, DT_Q5_0)       \
    DEFINE(q5_1, DT_Q5_1)       \
    DEFINE(q8_0, DT_Q8_0)       \
    DEFINE(iq4_nl, DT_IQ4_NL)   \
    DEFINE(mxfp4, DT_MXFP4)     \
    DEFINE(nvfp4, DT_NVFP4)     \
    DEFINE(q2_k, DT_Q2_K)       \
    DEFINE(q3_k, DT_Q3_K)       \
    DEFINE(q4_k, DT_Q4_K)       \
    DEFINE(q5_k, DT_Q5_K)       \
    DEFINE(q6_k, DT_Q6_K)       \
    DEFINE(iq4_xs, DT_IQ4_XS)   \
    DEFINE(iq3_xxs, DT_IQ3_XXS) \
    DEFINE(iq3_s, DT_IQ3_S)     \
    DEFINE(iq2_xxs, DT_IQ2_XXS) \
    DEFINE(iq2_xs, DT_IQ2_XS)   \
    DEFINE(iq2_s, DT_IQ2_S)     \
    DEFINE(iq1_s, DT_IQ1_S)     \
    DEFINE(iq1_m, DT_IQ1_M)     \
    DEFINE(tq1_0, DT_TQ1_0)     \
    DEFINE(tq2_0, DT_TQ2_0)

/* Unpack the eight scales and mins of q4_k and q5_k, which have six bits each.
 * For j < 4:
 *   scale j        low six bits of sc[j]
 *   min j          low six bits of sc[4 + j]
 *   scale 4 + j    low nibble of sc[8 + j]; above it the top two bits of sc[j]
 *   min 4 + j      high nibble of sc[8 + j]; above it the top two bits of
 *                  sc[4 + j] */
static inline void k_scales_mins(uint8_t scales[8], uint8_t mins[8],
                                 const unsigned char sc[12])
{
    for (int j = 0; j < 4; j++) {
        scales[j] = sc[j] & 63;
        mins[j] = sc[j + 4] & 63;
        scales[j + 4] = (uint8_t)((sc[j + 8] & 15) | sc[j] >> 6 << 4);
        mins[j + 4] = (uint8_t)(sc[j + 8] >> 4 | sc[j + 4] >> 6 << 4);
    }
}

/* Unpack the sixteen scales of q3_k, and subtract 32. */
static inline void q3_k_scales(int8_t scales[16], const unsigned char sc[12])
{
    for (int g = 0; g < 16; g++)
        scales[g] = (int8_t)(((sc[g % 8] >> (g / 8 * 4) & 15) |
                              (sc[8 + g % 4] >> (g / 4 * 2) & 3) << 4) -
                             32);
}

/* Unpack the eight scales of iq4_xs, and subtract 32. */
static inline void iq4_xs_scales(int8_t scales[8], const struct iq4_xs *b)
{
    unsigned high = (unsigned)b->sh[0] | (unsigned)b->sh[1] << 8;
    for (int g = 0; g < 8; g++) {
        unsigned low = (unsigned)b->sl[g / 2] >> (g % 2 * 4) & 15u;
        scales[g] = (int8_t)((int)(low | (high >> (2 * g) & 3u) << 4) - 32);
    }
}

/* The numbers to add to codes of the types IQ2 and IQ3, and of IQ1, that make
 * them unsigned. */
enum { IQ_OFFSET = 64, IQ1_OFFSET = 9 };

static inline unsigned load_u16(const unsigned char *p)
{
    return (unsigned)p[0] | (unsigned)p[1] << 8;
}

static inline uint32_t load_u32(const unsigned char *p)
{
    return load_u16(p) | (uint32_t)load_u16(p + 2) << 16;
}

/* Return eight signs: the low seven bits of s, and above them their parity. */
static inline unsigned iq_signs(unsigned s)
{
    unsigned p = s & 127;

    p ^= p >> 4;
    return (s & 127) | (0x6996u >> (p & 15) & 1) << 7;
}

/* The index of grid point l of run r. */
static inline unsigned iq2_s_index(const struct iq2_s *b, size_t r, size_t l)
{
    return b->q[4 * r + l] | (b->h[r] >> (2 * l) & 3u) << 8;
}

static inline unsigned iq3_s_index(const struct iq3_s *b, size_t r, size_t l)
{
    return b->q[8 * r + l] | (b->h[r] >> l & 1u) << 8;
}

/* Unpack d of iq1_m, as f16. */
static inline uint16_t iq1_m_d(const struct iq1_m *b)
{
    return (uint16_t)(b->sc[1] >> 4 | (b->sc[3] & 0xf0) |
                      (b->sc[5] & 0xf0) << 4 | (b->sc[7] & 0xf0) << 8);
}

/* Unpack the sixteen numbers 2 s + 1 of iq1_m. */
static inline void iq1_m_scales(uint8_t scales[16], const struct iq1_m *b)
{
    for (size_t g = 0; g < 16; g++)
        scales[g] =
            (uint8_t)(2 * (load_u16(b->sc + g / 4 * 2) >> (g % 4 * 3) & 7) + 1);
}

/* Write the codes of eight elements of IQ1, 8 times the value plus
 * IQ1_OFFSET. */
static inline void iq1_eight(uint8_t out[8], unsigned index, bool minus)
{
    for (int i = 0; i < 8; i++)
        out[i] =
            (uint8_t)(8 * (iq1_grid[index] >> (2 * i) & 3) + (minus ? 0 : 2));
}

/* Unpack the unsigned codes of run r. */
static inline void iq1_s_codes(uint8_t out[32], const struct iq1_s *b, size_t r)
{
    const unsigned h = load_u16(b->h + 2 * r);

    for (size_t l = 0; l < 4; l++)
        iq1_eight(out + 8 * l, b->q[4 * r + l] | (h >> (3 * l) & 7) << 8,
                  h >> 15);
}

static inline void iq1_m_codes(uint8_t out[32], const struct iq1_m *b, size_t r)
{
    for (size_t l = 0; l < 4; l++) {
        const unsigned h = b->h[2 * r + l / 2] >> (l % 2 * 4) & 15;

        iq1_eight(out + 8 * l, b->q[4 * r + l] | (h & 7) << 8, h >> 3);
    }
}

static inline void tq1_0_codes(uint8_t out[32], const struct tq1_0 *b, size_t r)
{
    static const unsigned char power[5] = {1, 3, 9, 27, 81};

    for (size_t i = 0; i < 32; i++) {
        const size_t k = 32 * r + i, j = k - 160;
        const unsigned char q = k < 160   ? b->q[i]
                                : k < 240 ? b->q[32 + j % 16]
                                          : b->q[48 + j % 4];
        const size_t n = k < 160 ? r : k < 240 ? j / 16 : (k - 240) / 4;

        out[i] = (uint8_t)((unsigned char)(q * power[n]) * 3u >> 8);
    }
}

#endif
