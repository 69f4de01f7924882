/* The f32 kernels for Advanced SIMD. */
#include "kernel/arm/simd_neon.h"

#include "kernel/k_f32.h"

void k_neon_init(struct kernels *k)
{
    fill_f32(k);
}
