/* Instruction sets of the CPU. cpu_x86.c implements what depends on it, and
 * cpu_other.c for CPUs without kernels of their own; the Makefile picks one. */
#ifndef BASE_CPU_H
#define BASE_CPU_H

#include <stdbool.h>

/* Levels of kernels. Each includes those before it, except AVXVNNI, which adds
 * to AVX2 only. */
enum isa {
    ISA_REF,
    ISA_AVX2,
    ISA_AVXVNNI,
    ISA_AVX512,
    ISA_AVX512BF16,
    ISA_AMX,
    ISA_COUNT
};

const char *isa_name(enum isa l);
/* "avx2" to a level; -1 when unknown. */
int isa_parse(const char *name, enum isa *out);

/* Whether CPU and operating system (xgetbv) support the level:
 *   AVX2        AVX2, FMA, F16C
 *   AVXVNNI     AVX2 level and AVX-VNNI (256 bit)
 *   AVX512      F, BW, VL, DQ, VNNI
 *   AVX512BF16  AVX512 level and AVX512_BF16
 *   AMX         AVX512BF16 level, AMX-TILE and AMX-BF16, and the system gives
 *               this process the tiles' state (asked for on the first call) */
bool cpu_has(enum isa l);
enum isa cpu_best(void);

/* Whether the CPU is Intel's: for what no feature bit tells. */
bool cpu_is_intel(void);

/* Tell the CPU that this thread spins: saves power, and speed of the core's
 * other thread. */
void cpu_pause(void);

#endif
