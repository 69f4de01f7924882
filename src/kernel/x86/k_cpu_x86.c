#include "kernel/kernel.h"

void k_cpu_init(struct kernels *k, enum isa level)
{
    if (level == ISA_REF)
        return;
    k->gemm_bf16 = NULL; /* matmul_f32 is faster than the reference gemm_bf16 */
    k_avx2_init(k);
    k_q8_avx2_init(k);
    k_kv_q4_avx2_init(k);
    k_blocks_avx2_init(k);
    if (level == ISA_AVXVNNI) {
        k_q8_avxvnni_init(k);
        k_blocks_avxvnni_init(k);
    }
    if (level >= ISA_AVX512) {
        k_avx512_init(k);
        k_q8_avx512_init(k);
        k_kv_q4_avx512_init(k);
        k_blocks_avx512_init(k);
    }
    if (level >= ISA_AVX512BF16) {
        k_avx512bf16_init(k);
        k_attn_avx512bf16_init(k);
        if (cpu_has_vbmi())
            k_blocks_vbmi_init(k);
    }
    if (level >= ISA_AMX) {
        k_amx_init(k);
        k_q8_amx_init(k);
        k_attn_amx_init(k);
    }
}

/* Speeds below are relative to matmul_f32, which widens weights in registers.
 * The other choices come from the record of the core.
 *
 *   gemm_f32  Below AVX-512 it takes up to GEMM_F32_SMALL_M tokens in groups of
 *             8, so it pays just below multiples of 8: 1.00 for 7 tokens, 1.11
 *             for 8.
 *   bf16      pairs, where f32 takes 1: in passes of Qwen3-30B-A3B's shape whose
 *   pairs     experts have 2, 4 or 8 tokens, 0.85, 0.81 and 0.66 on amx; on
 *             avx512bf16 1.27 for 4.
 *   OpenBLAS  A pass with fewer operations than blas_min_flops ends before the
 *             library is loaded. */
struct kernel_tuning k_cpu_tuning(enum isa level, const struct core_choices *c)
{
    return (struct kernel_tuning){
        .bf16 = level >= ISA_AMX || (level == ISA_AVX512BF16 && c->bf16),
        .bf16_min_tokens = c->bf16_min,
        .affine_bf16_min_tokens = c->amx_affine_bf16_min,
        .blocks_bf16_min_tokens = c->amx_blocks_bf16_min,
        .bf16_pairs = level >= ISA_AMX,
        .blas = level == ISA_REF || (level < ISA_AVX512 && c->blas),
        .blas_min_tokens = c->blas_min,
        .blas_min_flops = 8e9,
        .blas_coretype = level == ISA_REF      ? NULL
                         : level >= ISA_AVX512 ? "SkylakeX"
                                               : "Haswell",
        .gemm_f32 = level != ISA_REF,
        .gemm_f32_min_tokens = level >= ISA_AVX512 ? c->gemm_f32_avx512_min
                                                   : c->gemm_f32_min,
        .gemm_f32_any_tokens = 24,
        .attn_tile_rows = level >= ISA_AMX ? 1024 : 256,
        .row_cost = level == ISA_REF     ? 0
                    : level < ISA_AVX512 ? 2
                                         : 1,
    };
}
