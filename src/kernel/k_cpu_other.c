#include "kernel/kernel.h"

void k_cpu_init(struct kernels *k, enum isa level)
{
    (void)k;
    (void)level;
}
