/* Integer products of quantized weights with sdot, and for panels with smmla: a
 * product of two rows and two columns of eight bytes. */
#define KERNEL(name) k_##name##_i8mm
#define DOTPROD      1
#define I8MM         1

#include "kernel/arm/k_int8_affine.h"

#include "kernel/arm/k_int8_blocks.h"

void k_int8_i8mm_init(struct kernels *k)
{
    enter_int8(k);
}
