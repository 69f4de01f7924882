/* The blocks of GGUF files (ggml's quantized types). A block holds 32 or 256
 * consecutive elements of a row and their scales. Numbers are little-endian; d,
 * m and dmin are f16. Blocks need no alignment.
 *
 * The value of an element is code * scale, or code * scale - min. The code is a
 * small integer, called q below. Each run of 16 or 32 elements has its scale
 * and its min. Each product is rounded to f32, and then the difference is
 * rounded.
 *
 * "Bits 2r of x" below stands for bits 2r and 2r + 1. */
#ifndef KERNEL_BLOCKS_H
#define KERNEL_BLOCKS_H

#include <stdint.h>
#include <string.h>

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

_Static_assert(sizeof(struct q4_0) == 18 && sizeof(struct q4_1) == 20 &&
                   sizeof(struct q5_0) == 22 && sizeof(struct q5_1) == 24 &&
                   sizeof(struct q8_0) == 34 && sizeof(struct iq4_nl) == 18 &&
                   sizeof(struct mxfp4) == 17,
               "as stored");
_Static_assert(sizeof(struct q2_k) == 84 && sizeof(struct q3_k) == 110 &&
                   sizeof(struct q4_k) == 144 && sizeof(struct q5_k) == 176 &&
                   sizeof(struct q6_k) == 210 && sizeof(struct iq4_xs) == 136,
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
    DEFINE(q2_k, DT_Q2_K)       \
    DEFINE(q3_k, DT_Q3_K)       \
    DEFINE(q4_k, DT_Q4_K)       \
    DEFINE(q5_k, DT_Q5_K)       \
    DEFINE(q6_k, DT_Q6_K)       \
    DEFINE(iq4_xs, DT_IQ4_XS)

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

#endif
