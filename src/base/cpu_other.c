/* CPUs without kernels of their own: the reference kernels serve them. */
#include "base/cpu.h"

bool cpu_has(enum isa l)
{
    return l == ISA_REF;
}

bool cpu_identify(struct cpu_id *out)
{
    *out = (struct cpu_id){0};
    return false;
}

void cpu_pause(void)
{
}
