#include "kernel/kernel.h"

void k_cpu_init(struct kernels *k, enum isa level)
{
    if (level == ISA_REF)
        return;
    k->gemm_bf16 = NULL; /* matmul_f32 is faster than the reference gemm_bf16 */
    k->gemm_bf16_fp8 = NULL;
    k_neon_init(k);
    k_int8_neon_init(k);
    if (level >= ISA_DOTPROD)
        k_int8_dotprod_init(k);
    if (level >= ISA_I8MM)
        k_int8_i8mm_init(k);
    if (level >= ISA_ARMBF16)
        k_bf16_init(k);
}

/* All of them are guesses from the numbers of instructions: nothing was
 * measured on such a CPU. */
struct kernel_tuning k_cpu_tuning(enum isa level, const struct core_choices *c)
{
    return (struct kernel_tuning){
        .bf16 = level >= ISA_ARMBF16 && c->bf16,
        .bf16_min_tokens = c->bf16_min,
        .affine_bf16_min_tokens = c->amx_affine_bf16_min,
        .blocks_bf16_min_tokens = c->amx_blocks_bf16_min,
        .blas = level == ISA_REF || c->blas,
        .blas_min_tokens = c->blas_min,
        .blas_min_flops = 8e9,
        .gemm_f32 = level != ISA_REF,
        .gemm_f32_min_tokens = c->gemm_f32_min,
        .gemm_f32_any_tokens = 24,
        .attn_tile_rows = 256,
        .row_cost = level == ISA_REF   ? 0
                    : level < ISA_I8MM ? 2
                                       : 1,
    };
}
