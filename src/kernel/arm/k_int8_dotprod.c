/* Integer products of quantized weights with sdot: four products of bytes are
 * added in each lane. */
#define KERNEL(name) k_##name##_dotprod
#define DOTPROD      1
#define I8MM         0

#include "kernel/arm/k_int8_affine.h"

#include "kernel/arm/k_int8_blocks.h"

void k_int8_dotprod_init(struct kernels *k)
{
    enter_int8(k);
}
