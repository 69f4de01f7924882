/* Functions that the AVX-512 levels share: masks, and a transposition of
 * vectors of sixteen 32-bit lanes. Each file that includes this header compiles
 * its own copy with its own instruction set. */
#ifndef KERNEL_X86_K_ZMM_H
#define KERNEL_X86_K_ZMM_H

#include <immintrin.h>
#include <stddef.h>

#include "kernel/x86/k_avx.h"

/* Return a mask of the first n lanes; of all 16 if n is larger. */
INLINE __mmask16 first_lanes(size_t n)
{
    return (__mmask16)(n >= 16 ? 0xffff : (1u << n) - 1);
}

/* Add lanes l and l + 8. */
INLINE __m256 fold16(__m512 v)
{
    return _mm256_add_ps(_mm512_castps512_ps256(v),
                         _mm512_extractf32x8_ps(v, 1));
}

/* Compute e8m0_half (kernel/blocks.h) of 16 bytes. */
INLINE __m512 e8m0_halves512(__m128i bytes)
{
    const __m512i e = _mm512_cvtepu8_epi32(bytes);
    __m512i v =
        _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);

    v = _mm512_mask_sllv_epi32(v,
                               _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2)),
                               _mm512_set1_epi32(0x00200000), e);
    /* all ones are a NaN */
    return _mm512_castsi512_ps(_mm512_mask_set1_epi32(
        v, _mm512_cmpeq_epi32_mask(e, _mm512_set1_epi32(255)), -1));
}

/* Transpose 16 x 16 lanes. Works on pairs, quadruples and 128-bit lanes. */
INLINE void transpose16(__m512i v[16])
{
    __m512i s[16];

    UNROLL
    for (int i = 0; i < 16; i += 2) {
        s[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        s[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    UNROLL
    for (int i = 0; i < 16; i += 4) {
        v[i] = _mm512_unpacklo_epi64(s[i], s[i + 2]);
        v[i + 1] = _mm512_unpackhi_epi64(s[i], s[i + 2]);
        v[i + 2] = _mm512_unpacklo_epi64(s[i + 1], s[i + 3]);
        v[i + 3] = _mm512_unpackhi_epi64(s[i + 1], s[i + 3]);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        UNROLL
        for (int h = 0; h < 16; h += 8) {
            s[i + h] = _mm512_shuffle_i32x4(v[i + h], v[i + h + 4], 0x88);
            s[i + h + 4] = _mm512_shuffle_i32x4(v[i + h], v[i + h + 4], 0xdd);
        }
    }
    UNROLL
    for (int i = 0; i < 8; i++) {
        v[i] = _mm512_shuffle_i32x4(s[i], s[i + 8], 0x88);
        v[i + 8] = _mm512_shuffle_i32x4(s[i], s[i + 8], 0xdd);
    }
}

#endif
