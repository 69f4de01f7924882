/* The products of k_blocks_avx.h for all types of blocks, for the levels that
 * have no others: k_blocks_avx2.c and k_blocks_avxvnni.c. */
#ifndef KERNEL_X86_K_BLOCKS_AVX_ALL_H
#define KERNEL_X86_K_BLOCKS_AVX_ALL_H

#include "kernel/x86/k_blocks_avx.h"

GEMM(q4_0, DT_Q4_0)
GEMM(q4_1, DT_Q4_1)
GEMM(q5_0, DT_Q5_0)
GEMM(q5_1, DT_Q5_1)
GEMM(q8_0, DT_Q8_0)
GEMM(iq4_nl, DT_IQ4_NL)
GEMM(q2_k, DT_Q2_K)
GEMM(q3_k, DT_Q3_K)
GEMM(q4_k, DT_Q4_K)
GEMM(q5_k, DT_Q5_K)
GEMM(q6_k, DT_Q6_K)
GEMM(iq4_xs, DT_IQ4_XS)

static void enter_products(struct kernels *k)
{
    k->gemm_q8_blocks[DT_Q4_0 - DT_BLOCKS] = KERNEL(gemm_q8_q4_0);
    k->gemm_q8_blocks[DT_Q4_1 - DT_BLOCKS] = KERNEL(gemm_q8_q4_1);
    k->gemm_q8_blocks[DT_Q5_0 - DT_BLOCKS] = KERNEL(gemm_q8_q5_0);
    k->gemm_q8_blocks[DT_Q5_1 - DT_BLOCKS] = KERNEL(gemm_q8_q5_1);
    k->gemm_q8_blocks[DT_Q8_0 - DT_BLOCKS] = KERNEL(gemm_q8_q8_0);
    k->gemm_q8_blocks[DT_IQ4_NL - DT_BLOCKS] = KERNEL(gemm_q8_iq4_nl);
    k->gemm_q8_blocks[DT_Q2_K - DT_BLOCKS] = KERNEL(gemm_q8_q2_k);
    k->gemm_q8_blocks[DT_Q3_K - DT_BLOCKS] = KERNEL(gemm_q8_q3_k);
    k->gemm_q8_blocks[DT_Q4_K - DT_BLOCKS] = KERNEL(gemm_q8_q4_k);
    k->gemm_q8_blocks[DT_Q5_K - DT_BLOCKS] = KERNEL(gemm_q8_q5_k);
    k->gemm_q8_blocks[DT_Q6_K - DT_BLOCKS] = KERNEL(gemm_q8_q6_k);
    k->gemm_q8_blocks[DT_IQ4_XS - DT_BLOCKS] = KERNEL(gemm_q8_iq4_xs);
}

#endif
