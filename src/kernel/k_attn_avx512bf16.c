#include "kernel/kernel.h"

void k_attn_avx512bf16_init(struct kernels *k)
{
    (void)k;
}
