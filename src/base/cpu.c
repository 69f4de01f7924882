#include "base/cpu.h"

#include <string.h>

static const char *const names[ISA_COUNT] = {
    "ref", "avx2", "avxvnni", "avx512", "avx512bf16",
    "amx", "neon", "dotprod", "i8mm",   "bf16"};

const char *isa_name(enum isa l)
{
    return names[l];
}

int isa_parse(const char *name, enum isa *out)
{
    for (int i = 0; i < ISA_COUNT; i++) {
        if (!strcmp(name, names[i])) {
            *out = (enum isa)i;
            return 0;
        }
    }
    return -1;
}

enum isa cpu_best(void)
{
    for (int l = ISA_COUNT - 1; l > 0; l--)
        if (cpu_has((enum isa)l))
            return (enum isa)l;
    return ISA_REF;
}
