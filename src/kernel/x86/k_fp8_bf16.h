/* Rows of FP8 weights, widened to bf16 for the products of AVX512_BF16 and AMX.
 * Each file that includes this header compiles its own copy with its own
 * instruction set. */
#ifndef KERNEL_X86_K_FP8_BF16_H
#define KERNEL_X86_K_FP8_BF16_H

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

/* Widen 16 numbers with the rounding of fp8_to_f32. */
INLINE __m512 fp8_scaled(__m256i f16, __m512 scale)
{
    return _mm512_mul_ps(
        _mm512_mul_ps(_mm512_cvtph_ps(f16), _mm512_set1_ps(FP8_UNIT)), scale);
}

/* Widen columns [k, k + nk) of row r to bf16, followed by zeros up to a
 * multiple of 32. k is a multiple of 32, out 64-byte aligned. */
INLINE void fp8_widen_row(char *out, const struct fp8 *w, size_t r, size_t k,
                          size_t nk)
{
    const unsigned char *q = w->q + r * w->q_stride;
    const float *scales = fp8_scales(w, r);
    const size_t end = k + nk;

    while (k < end) {
        const size_t block = k / w->cols;
        const size_t stop =
            w->cols < end - block * w->cols ? (block + 1) * w->cols : end;
        const __m512 scale = _mm512_set1_ps(scales[block]);

        for (; k < stop; k += 32, out += 64) {
            const __mmask32 m =
                end - k >= 32 ? 0xffffffff : (1u << (end - k)) - 1;
            const __m512i h = fp8_to_f16(_mm256_maskz_loadu_epi8(m, q + k));

            _mm512_store_si512(
                out, (__m512i)_mm512_cvtne2ps_pbh(
                         fp8_scaled(_mm512_extracti64x4_epi64(h, 1), scale),
                         fp8_scaled(_mm512_castsi512_si256(h), scale)));
        }
    }
}

#endif
