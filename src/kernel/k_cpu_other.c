#include "kernel/kernel.h"

void k_cpu_init(struct kernels *k, enum isa level)
{
    (void)k;
    (void)level;
}

struct kernel_tuning k_cpu_tuning(enum isa level, const struct core_choices *c)
{
    (void)level;
    return (struct kernel_tuning){.blas = true,
                                  .blas_min_tokens = c->blas_min,
                                  .blas_min_flops = 8e9,
                                  .attn_tile_rows = 256};
}
