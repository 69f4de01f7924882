/* Integer products of quantized weights for AVX2 with AVX-VNNI: vpdpbusd adds
 * four products of bytes to a 32-bit sum. */
#include <immintrin.h>

#define KERNEL(name) k_##name##_avxvnni
#define VNNI         1

#include "kernel/x86/k_q8_avx.h"

static double k_peak_q8_avxvnni(size_t reps, float *sink)
{
    enum { CHAINS = 12, STEPS = 13020 }; /* 64 * CHAINS * STEPS is near 1e7 */
    const __m256i w = _mm256_set1_epi8(5), x = _mm256_set1_epi8(-3);
    __m256i a[CHAINS], out[CHAINS];

    UNROLL
    for (int i = 0; i < CHAINS; i++)
        a[i] = _mm256_set1_epi32(i);
    for (size_t s = 0; s < reps * STEPS; s++) {
        UNROLL
        for (int i = 0; i < CHAINS; i++)
            a[i] = _mm256_dpbusd_avx_epi32(a[i], w, x);
    }
    UNROLL
    for (int i = 0; i < CHAINS; i++) {
        out[i] = a[i];
        __asm__("" : "+m"(out[i])); /* as in panel_group */
    }
    for (int i = 1; i < CHAINS; i++)
        out[0] = _mm256_add_epi32(out[0], out[i]);
    *sink = sum_lanes(_mm256_cvtepi32_ps(out[0]));
    return 64.0 * CHAINS * STEPS * (double)reps;
}

void k_q8_avxvnni_init(struct kernels *k)
{
    k->gemm_q8_affine = k_gemm_q8_affine_avxvnni;
    k->peak_q8 = k_peak_q8_avxvnni;
}
