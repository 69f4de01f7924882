/* CPUs without kernels of their own: nothing to choose from. */
#include <string.h>

#include "kernel/cores.h"

const struct core cores[] = {
    {.name = "unknown",
     .vendor = "",
     .choices = {.sweep_ahead = 8192,
                 .blas_min = 64,
                 .gemm_f32_min = 8,
                 .avx_panels4_min = 9,
                 .avx_panels8_min = 13,
                 .gemm_f32_avx512_min = 24,
                 .q8_panels_min = 5,
                 .q8_batch_min = 5,
                 .q8_batch_max = 32,
                 .blocks_panels_min = 7,
                 .blocks_batch_max = 1,
                 .bf16 = 1,
                 .bf16_min = 2,
                 .bf16_rows_max = 5,
                 .bf16_strips_max = 32,
                 .bf16_panel_cols = 256,
                 .amx_rows_max = 2,
                 .amx_few_max = 64,
                 .amx_vnni_max = 12,
                 .amx_affine_bf16_min = 192,
                 .amx_blocks_bf16_min = 64,
                 .arm_panels_min = 2},
     .guess = "the reference kernels use none of them"},
};
const size_t n_cores = sizeof cores / sizeof *cores;

void core_copy_uncached(void *dst, const void *src, size_t n)
{
    memcpy(dst, src, n);
}
