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
