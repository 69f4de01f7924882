#include "kernel/kernel.h"

void k_avx512_init(struct kernels *k)
{
    (void)k;
}
