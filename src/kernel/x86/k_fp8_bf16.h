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

INLINE __m512 fp8_to_ps(__m256i f16)
{
    return _mm512_mul_ps(_mm512_cvtph_ps(f16), _mm512_set1_ps(FP8_UNIT));
}

/* Widen n FP8 numbers to bf16, exactly, followed by zeros up to a multiple of
 * 32. out is 64-byte aligned. */
INLINE void fp8_widen(char *out, const unsigned char *q, size_t n)
{
    for (size_t k = 0; k < n; k += 32, out += 64) {
        const __mmask32 m = n - k >= 32 ? 0xffffffff : (1u << (n - k)) - 1;
        const __m512i h = fp8_to_f16(_mm256_maskz_loadu_epi8(m, q + k));

        _mm512_store_si512(out, (__m512i)_mm512_cvtne2ps_pbh(
                                    fp8_to_ps(_mm512_extracti64x4_epi64(h, 1)),
                                    fp8_to_ps(_mm512_castsi512_si256(h))));
    }
}

/* Columns from k on that have the same scales, `most` of them at most. */
INLINE size_t fp8_depth(const struct fp8 *w, size_t k, size_t n_cols,
                        size_t most)
{
    const size_t left = n_cols - k < most ? n_cols - k : most;
    const size_t in_block = w->cols - k % w->cols;

    return left < in_block ? left : in_block;
}

/* Write the scales of rows [r, r + n) in the block of columns with column k. */
INLINE void fp8_row_scales(float *out, const struct fp8 *w, size_t r, size_t n,
                           size_t k)
{
    const float *scale = fp8_scales(w, r) + k / w->cols;
    size_t left = w->rows - (w->first + r) % w->rows;

    for (size_t i = 0; i < n; i++) {
        out[i] = *scale;
        if (--left == 0) {
            scale += w->ld;
            left = w->rows;
        }
    }
}

#endif
