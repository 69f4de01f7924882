/* The blocks of GGUF files (ggml's quantized types): a block has 32 or 256
 * consecutive elements of a row, stored together, with common scales. Numbers
 * are little-endian, d and m are f16. No alignment.
 *
 * In all types an element is code * scale, or code * scale - min. The code is a
 * small integer; each run of 16 or 32 elements has its own scale and min. Each
 * product is rounded to f32, and then the difference is rounded. */
#ifndef KERNEL_BLOCKS_H
#define KERNEL_BLOCKS_H

#include <stdint.h>

/* Elements of a superblock. */
enum { SUPER = 256 };

/* (q - 8) * d. Byte j of q holds element j in its low nibble and element j + 16
 * in its high nibble. */
struct q4_0 {
    unsigned char d[2], q[16];
};

/* q * d + m, q as in q4_0 */
struct q4_1 {
    unsigned char d[2], m[2], q[16];
};

/* (q - 16) * d. Bit j of h is the fifth bit of element j. */
struct q5_0 {
    unsigned char d[2], h[4], q[16];
};

/* q * d + m, q as in q5_0 */
struct q5_1 {
    unsigned char d[2], m[2], h[4], q[16];
};

/* q * d */
struct q8_0 {
    unsigned char d[2];
    int8_t q[32];
};

/* iq4_values[q] * d, q as in q4_0 */
struct iq4_nl {
    unsigned char d[2], q[16];
};

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

/* q * (d * low nibble) - dmin * high nibble, of byte g of sc for group g of 16.
 * 128 elements take 32 bytes of q: run r of 32 has bits 2 r and 2 r + 1. */
struct q2_k {
    unsigned char sc[16], q[64], d[2], dmin[2];
};

/* q * (d * (sc - 32)), q from -4 to 3, in groups of 16. q's low bits are as in
 * q2_k; for element i of run r, bit r of h[i] is 0 if 4 must be subtracted.
 * Scale g has its low four bits in nibble g / 8 of sc[g % 8], the high two in
 * bits 2 (g / 4) of sc[8 + g % 4]. */
struct q3_k {
    unsigned char h[32], q[64], sc[12], d[2];
};

/* q * (d * scale) - dmin * min, in groups of 32 with scales and mins of 6 bits
 * (k_scales_mins). 64 elements take 32 bytes of q; the first 32 are in the low
 * nibbles. */
struct q4_k {
    unsigned char d[2], dmin[2], sc[12], q[128];
};

/* Like q4_k. Bit r of h[i] is the fifth bit of element i of run r. */
struct q5_k {
    unsigned char d[2], dmin[2], sc[12], h[32], q[128];
};

/* (q - 32) * (d * sc), in groups of 16. 128 elements take 64 bytes of l and 32
 * of h: run r of 32 has nibble r / 2 of l[32 (r % 2) + i] and bits 2 r of
 * h[i]. */
struct q6_k {
    unsigned char l[128], h[64];
    int8_t sc[16];
    unsigned char d[2];
};

/* iq4_values[q] * (d * (sc - 32)), in groups of 32, 16 bytes of q each, as in
 * q4_0. Scale g has its low four bits in nibble g of sl, the high two in bits
 * 2 g of sh. */
struct iq4_xs {
    unsigned char d[2], sh[2], sl[4], q[128];
};

_Static_assert(sizeof(struct q4_0) == 18 && sizeof(struct q4_1) == 20 &&
                   sizeof(struct q5_0) == 22 && sizeof(struct q5_1) == 24 &&
                   sizeof(struct q8_0) == 34 && sizeof(struct iq4_nl) == 18,
               "as stored");
_Static_assert(sizeof(struct q2_k) == 84 && sizeof(struct q3_k) == 110 &&
                   sizeof(struct q4_k) == 144 && sizeof(struct q5_k) == 176 &&
                   sizeof(struct q6_k) == 210 && sizeof(struct iq4_xs) == 136,
               "as stored");

/* Unpack the eight scales and mins of q4_k and q5_k. Groups 0 to 3 have them in
 * the low six bits of sc[0..4) and sc[4..8). Groups 4 to 7 have their low four
 * bits in the nibbles of sc[8..12), and their high two bits at the top of
 * sc[0..8). */
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

/* Unpack the sixteen scales of q3_k, and subtract their offset. */
static inline void q3_k_scales(int8_t scales[16], const unsigned char sc[12])
{
    for (int g = 0; g < 16; g++)
        scales[g] = (int8_t)(((sc[g % 8] >> (g / 8 * 4) & 15) |
                              (sc[8 + g % 4] >> (g / 4 * 2) & 3) << 4) -
                             32);
}

/* Unpack the eight scales of iq4_xs, and subtract their offset. */
static inline void iq4_xs_scales(int8_t scales[8], const struct iq4_xs *b)
{
    unsigned high = (unsigned)b->sh[0] | (unsigned)b->sh[1] << 8;
    for (int g = 0; g < 8; g++)
        scales[g] = (int8_t)((int)((b->sl[g / 2] >> (g % 2 * 4) & 15u) |
                                   (high >> (2 * g) & 3u) << 4) -
                             32);
}

#endif
