/* Instruction sets of the CPU. cpu_x86.c implements these functions for x86,
 * cpu_arm.c for 64-bit ARM, cpu_other.c for CPUs without kernels of their own;
 * the Makefile picks one. */
#ifndef BASE_CPU_H
#define BASE_CPU_H

#include <stdbool.h>

/* Levels of kernels. Each level includes the levels before it of the same kind
 * of CPU, except AVXVNNI: later levels do not include it, and it adds to AVX2
 * only. */
enum isa {
    ISA_REF,
    /* x86 */
    ISA_AVX2,
    ISA_AVXVNNI,
    ISA_AVX512,
    ISA_AVX512BF16,
    ISA_AMX,
    /* 64-bit ARM */
    ISA_NEON,
    ISA_DOTPROD,
    ISA_I8MM,
    ISA_ARMBF16,
    ISA_COUNT
};

const char *isa_name(enum isa l);
/* Parse the name of a level, such as "avx2". Returns -1 if it is unknown. */
int isa_parse(const char *name, enum isa *out);

/* Return whether both the CPU and the operating system (xgetbv) support a
 * level:
 *   AVX2        AVX2, FMA, F16C
 *   AVXVNNI     AVX2 level and AVX-VNNI (256 bit)
 *   AVX512      F, BW, VL, DQ, VNNI
 *   AVX512BF16  AVX512 level and AVX512_BF16
 *   AMX         AVX512BF16 level, AMX-TILE and AMX-BF16, and the system grants
 *               this process the tiles' state (requested on the first call)
 * or, on ARM, whether the system reports it (getauxval):
 *   NEON        Advanced SIMD, which every 64-bit CPU has
 *   DOTPROD     NEON level and FEAT_DotProd: products of four bytes (sdot)
 *   I8MM        DOTPROD level and FEAT_I8MM: products of matrices of bytes
 *   ARMBF16     I8MM level and FEAT_BF16. Nearly all CPUs with one of I8MM and
 *               BF16 have both; one without I8MM gets the level DOTPROD. */
bool cpu_has(enum isa l);
/* x86 only. Return whether a CPU with level AVX512 also has AVX512_VBMI,
 * AVX512_BITALG, GFNI and BMI2. */
bool cpu_has_vbmi(void);
enum isa cpu_best(void);

/* The core of a CPU, for properties that have no feature bit. */
struct cpu_id {
    char vendor[13]; /* "AuthenticAMD"; "ARM" and others as in cpu_arm.c */
    /* x86: with their extensions, as Linux shows them; ARM: the version of the
       architecture, 8, and the part number */
    unsigned family, model;
};

/* Identify the CPU that this thread runs on. Returns false, and sets an empty
 * vendor and zeros, if it is unknown. */
bool cpu_identify(struct cpu_id *out);

/* Tell the CPU that this thread spins. This saves power, and leaves more of the
 * core to its other hardware thread. */
void cpu_pause(void);

#endif
