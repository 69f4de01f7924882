/* Products of GGUF's blocks for AVX-512 with VNNI. Products of few tokens are
 * limited by memory, so 256-bit vectors are enough for them. Many tokens use
 * the affine product, which has 512-bit vectors. */
#include <immintrin.h>

#define KERNEL(name) k_##name##_avx512
#define LEVEL        ISA_AVX512

static inline __attribute__((always_inline)) __m256i
add_fours(__m256i sum, __m256i w, __m256i x)
{
    return _mm256_dpbusd_epi32(sum, w, x);
}

#include "kernel/x86/k_blocks_avx.h"

void k_blocks_avx512_init(struct kernels *k)
{
    enter_products(k);
}
