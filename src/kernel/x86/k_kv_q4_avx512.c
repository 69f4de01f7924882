/* Kernels of a 4-bit cache for AVX-512. */
#include <immintrin.h>

#include "kernel/kernel.h"
#include "kernel/simd.h"

/* Expand n codes of one position, or of positions without gaps. */
INLINE void expand(char *out, const char *codes, size_t n)
{
    const __m512i numbers = _mm512_broadcast_i32x4(_mm_setr_epi8(KV_Q4_CODES));

    for (size_t i = 0; i < n; i += 64) {
        const size_t left = n - i;
        const __mmask64 in = left >= 64 ? ~0ULL : (1ULL << left) - 1;
        const __mmask32 bytes =
            left >= 64 ? ~0u : (__mmask32)((1ULL << (left + 1) / 2) - 1);
        const __m512i v = _mm512_cvtepu8_epi16(
            _mm256_maskz_loadu_epi8(bytes, codes + i / 2));
        const __m512i both = _mm512_and_si512(
            _mm512_or_si512(v, _mm512_slli_epi16(v, 4)), _mm512_set1_epi8(15));

        _mm512_mask_storeu_epi8(out + i, in,
                                _mm512_shuffle_epi8(numbers, both));
    }
}

static void k_kv_q4_to_i8_avx512(void *out, const void *block, size_t d)
{
    const size_t bytes = kv_q4_bytes(d), n = KV_BLOCK * kv_i8_groups(d);
    const char *codes = block, *scales = codes + KV_BLOCK * bytes;
    char *q = out;
    float *to = (float *)(void *)(q + KV_BLOCK * d);

    if (d % 2 == 0)
        expand(q, codes, KV_BLOCK * d);
    for (size_t j = 0; d % 2 && j < KV_BLOCK; j++)
        expand(q + j * d, codes + j * bytes, d);
    for (size_t i = 0; i < n; i += 16)
        _mm512_store_ps(to + i,
                        _mm512_mul_ps(_mm512_cvtph_ps(_mm256_loadu_si256(
                                          (const __m256i_u *)(const void *)(
                                              scales + 2 * i))),
                                      _mm512_set1_ps(0x1p-7f)));
}

void k_kv_q4_avx512_init(struct kernels *k)
{
    k->kv_q4_to_i8 = k_kv_q4_to_i8_avx512;
}
