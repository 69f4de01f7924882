/* All f32 kernels of one level, written over the SIMD shim (kernel/simd.h), and
 * the function that enters them into a table:
 *
 *   static void fill_f32(struct kernels *k)
 *
 * A level's file includes its shim, may define GEMM_SMALL_M and
 * MATMUL_ROWS_BF16 (explained in k_f32_gemm.h and k_f32_matmul.h), and includes
 * this header once. */
#ifndef KERNEL_K_F32_H
#define KERNEL_K_F32_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernel/kernel.h"
#include "kernel/simd.h"

#include "kernel/k_f32_elements.h"

#include "kernel/k_f32_matmul.h"

#include "kernel/k_f32_fp8.h"

#include "kernel/k_f32_gemm.h"

#include "kernel/k_f32_attn.h"

#include "kernel/k_f32_attn_tile.h"

#include "kernel/k_f32_delta.h"

#define CONVERSIONS(name, type)                                               \
    static void KERNEL(to_f32_##name)(float *out, const void *in, size_t n)   \
    {                                                                         \
        to_f32(out, in, n, type);                                             \
    }                                                                         \
    static void KERNEL(from_f32_##name)(void *out, const float *in, size_t n) \
    {                                                                         \
        from_f32(out, in, n, type);                                           \
    }

CONVERSIONS(f16, DT_F16)
CONVERSIONS(bf16, DT_BF16)

static void fill_f32(struct kernels *k)
{
    k->matmul_f32[DT_F32] = KERNEL(matmul_f32_f32);
    k->matmul_f32[DT_F16] = KERNEL(matmul_f32_f16);
    k->matmul_f32[DT_BF16] = KERNEL(matmul_f32_bf16);
    k->fp8_to_f32 = KERNEL(fp8_to_f32);
    k->matmul_f32_fp8 = KERNEL(matmul_f32_fp8);
    k->to_f32[DT_F16] = KERNEL(to_f32_f16);
    k->to_f32[DT_BF16] = KERNEL(to_f32_bf16);
    k->from_f32[DT_F16] = KERNEL(from_f32_f16);
    k->from_f32[DT_BF16] = KERNEL(from_f32_bf16);
    k->rmsnorm = KERNEL(rmsnorm);
    k->layernorm = KERNEL(layernorm);
    k->rope = KERNEL(rope);
    k->rope_pairs = KERNEL(rope_pairs);
    k->swiglu = KERNEL(swiglu);
    k->geglu = KERNEL(geglu);
    k->geglu_erf = KERNEL(geglu_erf);
    k->clamped_swiglu = KERNEL(clamped_swiglu);
    k->glu = KERNEL(glu);
    k->add = KERNEL(add);
    k->mul = KERNEL(mul);
    k->scale = KERNEL(scale);
    k->cap = KERNEL(cap);
    k->hadamard = KERNEL(hadamard);
    k->attn_block[DT_F32] = KERNEL(attn_block_f32);
    k->attn_block[DT_F16] = KERNEL(attn_block_f16);
    k->attn_block[DT_BF16] = KERNEL(attn_block_bf16);
    k->attn_block[KV_I8] = KERNEL(attn_block_i8);
    k->attn_tile[DT_F32] = KERNEL(attn_tile_f32);
    k->attn_tile[DT_F16] = KERNEL(attn_tile_f16);
    k->attn_tile[DT_BF16] = KERNEL(attn_tile_bf16);
    k->attn_tile[KV_I8] = KERNEL(attn_tile_i8);
    k->max = KERNEL(max);
    k->exp_sum = KERNEL(exp_sum);
    k->gemm_f32[DT_F32] = KERNEL(gemm_f32_f32);
    k->gemm_f32[DT_F16] = KERNEL(gemm_f32_f16);
    k->gemm_f32[DT_BF16] = KERNEL(gemm_f32_bf16);
    k->l2norm = KERNEL(l2norm);
    k->conv_silu = KERNEL(conv_silu);
    k->conv_gated = KERNEL(conv_gated);
    k->delta_rows = KERNEL(delta_rows);
    k->delta_state = KERNEL(delta_state);
    k->read_sum = KERNEL(read_sum);
    k->peak_flops = KERNEL(peak_flops);
}

#endif
