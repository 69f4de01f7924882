/* The f32 kernels for AVX2, FMA and F16C. */
#include "kernel/x86/simd_avx2.h"

#define GEMM_SMALL_M GEMM_F32_SMALL_M
#include "kernel/x86/k_gemm_small.h"

#include "kernel/k_f32.h"

void k_avx2_init(struct kernels *k)
{
    fill_f32(k);
}
