/* x86: capabilities of the CPU and the operating system. */
#include "base/cpu.h"

#include <cpuid.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint64_t read_xcr0(void)
{
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

/* Linux grants the tiles' large state only on request (arch_prctl(2)). Threads
 * created later inherit it. */
static bool get_tiles(void)
{
    enum { REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
    return (read_xcr0() & 0x60000) == 0x60000 &&
           !syscall(SYS_arch_prctl, REQ_XCOMP_PERM, XTILEDATA);
}

/* Register names follow Intel's manual, volume 2, CPUID. */
bool cpu_has(enum isa l)
{
    unsigned a, b, c, d;
    if (l == ISA_REF)
        return true;
    if (l > ISA_AMX || !__get_cpuid(1, &a, &b, &c, &d))
        return false;
    const unsigned fma = 1u << 12, osxsave = 1u << 27, avx = 1u << 28,
                   f16c = 1u << 29;
    const unsigned need = fma | osxsave | avx | f16c;
    if ((c & need) != need || (read_xcr0() & 0x6) != 0x6)
        return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & 1u << 5))
        return false;
    if (l == ISA_AVX2)
        return true;
    bool avx512 = (read_xcr0() & 0xE6) == 0xE6 && (b & 1u << 16) /* F */ &&
                  (b & 1u << 17) /* DQ */ && (b & 1u << 30) /* BW */ &&
                  (b & 1u << 31) /* VL */ && (c & 1u << 11) /* VNNI */;
    if (l == ISA_AVX512)
        return avx512;
    const unsigned amx =
        1u << 22 /* AMX-BF16 */ | 1u << 24 /* -TILE */ | 1u << 25 /* -INT8 */;
    bool tiles = (d & amx) == amx;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d))
        return false;
    if (l == ISA_AVXVNNI)
        return a & 1u << 4;
    bool bf16 = avx512 && (a & 1u << 5);
    return l == ISA_AMX ? bf16 && tiles && get_tiles() : bf16;
}

bool cpu_has_vbmi(void)
{
    const unsigned vbmi = 1u << 1, gfni = 1u << 8, bitalg = 1u << 12;
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return false;
    const unsigned need = vbmi | gfni | bitalg;
    return (c & need) == need && (b & 1u << 8) /* BMI2 */;
}

/* Family 15 adds the extended family; families 6 and 15 have extended models
 * (Intel's manual, CPUID leaf 1; AMD's has no extended model in family 6). */
bool cpu_identify(struct cpu_id *out)
{
    unsigned a, b, c, d, name[3];
    *out = (struct cpu_id){0};
    if (!__get_cpuid(0, &a, &name[0], &name[2], &name[1]) ||
        !__get_cpuid(1, &a, &b, &c, &d))
        return false;
    memcpy(out->vendor, name, sizeof name);
    out->family = a >> 8 & 15;
    out->model = a >> 4 & 15;
    if (out->family == 6 || out->family == 15)
        out->model += (a >> 16 & 15) << 4;
    if (out->family == 15)
        out->family += a >> 20 & 255;
    return true;
}

void cpu_pause(void)
{
    __builtin_ia32_pause();
}
