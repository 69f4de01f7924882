/* Products of GGUF's blocks for AVX2 with AVX-VNNI. */
#include <immintrin.h>

#define KERNEL(name) k_##name##_avxvnni
#define LEVEL        ISA_AVXVNNI

static inline __attribute__((always_inline)) __m256i
add_fours(__m256i sum, __m256i w, __m256i x)
{
    return _mm256_dpbusd_avx_epi32(sum, w, x);
}

#include "kernel/x86/k_blocks_avx.h"

EACH_BLOCK_TYPE(GEMM)

void k_blocks_avxvnni_init(struct kernels *k)
{
    EACH_BLOCK_TYPE(ENTER_GEMM)
}
