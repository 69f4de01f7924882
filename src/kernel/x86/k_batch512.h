/* What products with a batch of tokens share (k_q8_batch512.h,
 * k_blocks_batch512.h): 16 rows of codes are transposed in registers and
 * multiplied from there, and activations are memory operands. */
#ifndef KERNEL_X86_K_BATCH512_H
#define KERNEL_X86_K_BATCH512_H

#include "kernel/x86/k_q8_avx512.h"

/* Rows of a block, and the most tokens of a tile. */
enum { BATCH_ROWS = 16, BATCH_TILE = 15 };

/* Make gcc compute v at this place. */
#define PIN(v) __asm__ volatile("" : "+v"(v))

/* Do part 0 to 7 of the transposition of 16 rows of eight words. After the last
 * part, v[c] has column c. */
INLINE void batch_part(__m512i v[8], const unsigned char *from, size_t stride,
                       int part)
{
    const int i = part < 4 ? 2 * part : part % 2 * 4;
    __m512i s[4];

    if (part < 4) {
        /* rows i and i + 4, and the same of the last eight */
        UNROLL
        for (int j = 0; j < 2; j++) {
            const unsigned char *row =
                from + (size_t)(i + j + i / 4 * 4) * stride;

            s[j] = _mm512_inserti64x4(
                _mm512_castsi256_si512(_mm256_loadu_si256((const void *)row)),
                _mm256_loadu_si256((const void *)(row + 4 * stride)), 1);
        }
        v[i] = _mm512_unpacklo_epi32(s[0], s[1]);
        v[i + 1] = _mm512_unpackhi_epi32(s[0], s[1]);
        return;
    }
    if (part < 6) {
        s[0] = _mm512_unpacklo_epi64(v[i], v[i + 2]);
        s[1] = _mm512_unpackhi_epi64(v[i], v[i + 2]);
        s[2] = _mm512_unpacklo_epi64(v[i + 1], v[i + 3]);
        s[3] = _mm512_unpackhi_epi64(v[i + 1], v[i + 3]);
        UNROLL
        for (int j = 0; j < 4; j++)
            v[i + j] = s[j];
        return;
    }
    UNROLL
    for (int j = i / 2; j < i / 2 + 2; j++) {
        s[0] = _mm512_shuffle_i32x4(v[j], v[j + 4], 0x88);
        v[j + 4] = _mm512_shuffle_i32x4(v[j], v[j + 4], 0xdd);
        v[j] = s[0];
    }
}

/* Add the products of four columns. The asm is volatile so that gcc keeps these
 * among the parts of a transposition. gcc 12 would also load the operands
 * first. */
INLINE void batch_dots(sums d[BATCH_TILE], __m512i w, const int8_t *x, int T)
{
    UNROLL
    for (int t = 0; t < T; t++)
        __asm__ volatile("vpdpbusd %2%{1to16%}, %1, %0"
                         : "+v"(d[t])
                         : "v"(w),
                           "m"(*(const int32_t *)(const void *)(x + 4 * t)));
}

/* Transpose n words of T tokens: out [n][T]. pairs: bytes of even index of each
 * eight come first. */
static void batch_words(void *out, const void *from, size_t stride, size_t n,
                        size_t T, bool pairs)
{
    const __m512i parted = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
    const __mmask16 lanes = first_lanes(T);

    for (size_t k = 0; k < n; k += 16) {
        const __mmask16 m = first_lanes(n - k);
        const char *words = (const char *)from + 4 * k;
        char *to = (char *)out + 4 * k * T;
        __m512i v[16];

        UNROLL
        for (size_t t = 0; t < 16; t++) {
            v[t] = t < T ? _mm512_maskz_loadu_epi32(m, words + t * stride)
                         : _mm512_setzero_si512();
            if (pairs)
                v[t] = _mm512_shuffle_epi8(v[t], parted);
        }
        transpose16(v);
        UNROLL
        for (size_t i = 0; i < 16; i++)
            if (k + i < n)
                _mm512_mask_storeu_epi32(to + 4 * i * T, lanes, v[i]);
    }
}

#endif
