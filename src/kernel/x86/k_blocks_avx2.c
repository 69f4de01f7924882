/* Kernels for GGUF's blocks on AVX2, FMA and F16C: widening, and products that
 * add pairs of byte products in words. A pair fits a word: unsigned codes have
 * at most 6 bits (2 * 63 * 127), and signed codes of 8 bits are multiplied by
 * their magnitude (2 * 128 * 127 = 32512). */
#include <immintrin.h>

#define KERNEL(name) k_##name##_avx2
#define LEVEL        ISA_AVX2

static inline __attribute__((always_inline)) __m256i
add_fours(__m256i sum, __m256i w, __m256i x)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x),
                                                   _mm256_set1_epi16(1)));
}

#include "kernel/x86/k_blocks_avx.h"

EACH_BLOCK_TYPE(GEMM)

/* ---- widening ----------------------------------------------------------- */

/* Widen eight signed codes: code * scale, rounded, minus min. */
INLINE void widen8(enum dtype type, float *out, __m128i codes, float scale,
                   float min)
{
    __m256 v = _mm256_mul_ps(floats_i8(codes), _mm256_set1_ps(scale));

    if (has_min(type))
        v = _mm256_sub_ps(v, _mm256_set1_ps(min));
    _mm256_storeu_ps(out, v);
}

INLINE void widen(enum dtype type, float *out, const unsigned char *p, size_t n)
{
    for (size_t c = 0; c < n / RUN; c += CHUNK_RUNS) {
        const size_t n_runs =
            n / RUN - c < CHUNK_RUNS ? n / RUN - c : CHUNK_RUNS;
        const struct scales s = chunk_scales(type, p, n_runs);
        float scale[16], min[16];

        _mm256_storeu_ps(scale, s.scale[0]);
        _mm256_storeu_ps(scale + 8, s.scale[1]);
        _mm256_storeu_ps(min, s.min[0]);
        _mm256_storeu_ps(min + 8, s.min[1]);
        for (size_t r = 0; r < n_runs; r++) {
            const size_t g = has_halves(type) ? 2 * r : r;
            const size_t h = has_halves(type) ? g + 1 : g;
            const __m256i v = _mm256_sub_epi8(
                run_codes(type, p, r), _mm256_set1_epi8((char)offset_of(type)));
            const __m128i a = _mm256_castsi256_si128(v),
                          b = _mm256_extracti128_si256(v, 1);

            widen8(type, out, a, scale[g], min[g]);
            widen8(type, out + 8, _mm_srli_si128(a, 8), scale[g], min[g]);
            widen8(type, out + 16, b, scale[h], min[h]);
            widen8(type, out + 24, _mm_srli_si128(b, 8), scale[h], min[h]);
            out += RUN;
        }
        p += chunk_bytes(type, n_runs);
    }
}

#define WIDEN(name, TYPE)                                                   \
    static void k_##name##_to_f32_avx2(float *out, const void *p, size_t n) \
    {                                                                       \
        widen(TYPE, out, p, n);                                             \
    }
#define ENTER_WIDEN(name, TYPE) \
    k->blocks_to_f32[TYPE - DT_BLOCKS] = k_##name##_to_f32_avx2;

EACH_BLOCK_TYPE(WIDEN)

void k_blocks_avx2_init(struct kernels *k)
{
    EACH_BLOCK_TYPE(ENTER_GEMM)
    EACH_BLOCK_TYPE(ENTER_WIDEN)
}
