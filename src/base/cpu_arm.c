/* 64-bit ARM: capabilities of the CPU, as Linux reports them. */
#include <asm/hwcap.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>

#include "base/cpu.h"

/* Older headers do not have them. */
#ifndef HWCAP_ASIMDDP
#define HWCAP_ASIMDDP (1ul << 20)
#endif
#ifndef HWCAP2_I8MM
#define HWCAP2_I8MM (1ul << 13)
#endif
#ifndef HWCAP2_BF16
#define HWCAP2_BF16 (1ul << 14)
#endif

bool cpu_has(enum isa l)
{
    const unsigned long first = getauxval(AT_HWCAP);
    const unsigned long second = getauxval(AT_HWCAP2);
    const bool neon = first & HWCAP_ASIMD;
    const bool dotprod = neon && (first & HWCAP_ASIMDDP);
    const bool i8mm = dotprod && (second & HWCAP2_I8MM);

    return l == ISA_REF       ? true
           : l == ISA_NEON    ? neon
           : l == ISA_DOTPROD ? dotprod
           : l == ISA_I8MM    ? i8mm
           : l == ISA_ARMBF16 ? i8mm && (second & HWCAP2_BF16)
                              : false;
}

/* Implementers of cores (Arm Architecture Reference Manual, MIDR_EL1). */
static const struct {
    unsigned code;
    char name[13];
} implementers[] = {{0x41, "ARM"},       {0x42, "Broadcom"},
                    {0x43, "Cavium"},    {0x46, "Fujitsu"},
                    {0x48, "HiSilicon"}, {0x4e, "NVIDIA"},
                    {0x51, "Qualcomm"},  {0x61, "Apple"},
                    {0x6d, "Microsoft"}, {0xc0, "Ampere"}};

/* Linux lets programs read MIDR_EL1 and reports that by HWCAP_CPUID. It is the
 * register behind the lines "CPU implementer" and "CPU part" of
 * /proc/cpuinfo. */
bool cpu_identify(struct cpu_id *out)
{
    uint64_t midr;

    *out = (struct cpu_id){0};
    if (!(getauxval(AT_HWCAP) & HWCAP_CPUID))
        return false;
    __asm__("mrs %0, midr_el1" : "=r"(midr));
    for (size_t i = 0; i < sizeof implementers / sizeof *implementers; i++)
        if (implementers[i].code == (midr >> 24 & 0xff)) {
            memcpy(out->vendor, implementers[i].name, sizeof out->vendor);
            out->family = 8;
            out->model = midr >> 4 & 0xfff;
            return true;
        }
    return false;
}

void cpu_pause(void)
{
    __asm__ volatile("yield");
}
