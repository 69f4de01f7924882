/* Rows of FP8 weights, widened to bf16 for the products of AVX512_BF16 and AMX.
 * Each file that includes this header compiles its own copy with its own
 * instruction set. */
#ifndef KERNEL_X86_K_FP8_BF16_H
#define KERNEL_X86_K_FP8_BF16_H

#include "kernel/blocks.h"
#include "kernel/fp8_blocks.h"
#include "kernel/x86/k_zmm.h"

/* Widen 32 FP8 numbers to 32 f16 of the same sign and fraction, divided by
 * FP8_UNIT: exponents of f16 have another bias. NaN stay NaN. */
INLINE __m512i fp8_to_f16(__m256i q)
{
    const __m512i top = _mm512_set1_epi16(0x3f80);
    const __m512i h = _mm512_slli_epi16(_mm512_cvtepi8_epi16(q), 7);
    const __mmask32 nan =
        _mm512_cmpeq_epi16_mask(_mm512_and_si512(h, top), top);

    return _mm512_mask_blend_epi16(
        nan, _mm512_and_si512(h, _mm512_set1_epi16((short)0xbf80)),
        _mm512_set1_epi16(0x7e00));
}

/* Widen columns [k, k + n) of row r to bf16, without scales, or with those of
 * MXFP8; exactly, unless the result is subnormal. They are followed by zeros up
 * to a multiple of 32. out is 64-byte aligned. */
INLINE void fp8_widen(char *out, const struct fp8 *w, size_t r, size_t k,
                      size_t n)
{
    const unsigned char *q = w->q + r * w->q_stride + k;
    const unsigned char *mx =
        w->mx ? w->mx + r * w->mx_stride + k / MX_GROUP : NULL;

    for (size_t i = 0; i < n; i += 32, out += 64) {
        const __mmask32 m = n - i >= 32 ? 0xffffffff : (1u << (n - i)) - 1;
        const __m512i h = fp8_to_f16(_mm256_maskz_loadu_epi8(m, q + i));
        const __m512 unit = _mm512_set1_ps(FP8_UNIT);
        __m512 a =
            _mm512_mul_ps(_mm512_cvtph_ps(_mm512_castsi512_si256(h)), unit);
        __m512 b = _mm512_mul_ps(
            _mm512_cvtph_ps(_mm512_extracti64x4_epi64(h, 1)), unit);

        if (mx) {
            const __m512 s = _mm512_set1_ps(2 * e8m0_half(mx[i / MX_GROUP]));

            a = _mm512_mul_ps(a, s);
            b = _mm512_mul_ps(b, s);
        }
        _mm512_store_si512(out, (__m512i)_mm512_cvtne2ps_pbh(b, a));
    }
}

#endif
