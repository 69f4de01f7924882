/* Fill the table of each level: reference first, then what each level below
 * and the level itself bring. */
#include <pthread.h>

#include "kernel/kernel.h"

static struct kernels tables[ISA_COUNT];
static bool usable[ISA_COUNT];
struct kernel_sweep kernel_sweep;

/* Intel's cores can wait for 16 lines in L1 and for 48 in L2; decode is a fifth
 * faster for it there. Zen's deliver most to L1. */
static struct kernel_sweep best_sweep(void)
{
    return (struct kernel_sweep){.ahead = 8192, .to_l2 = cpu_is_intel()};
}

static void fill_tables(void)
{
    kernel_sweep = best_sweep();
    for (int i = 0; i < ISA_COUNT; i++) {
        enum isa level = (enum isa)i;
        struct kernels *k = &tables[i];

        /* once: in a virtual machine cpuid takes tens of microseconds */
        usable[i] = cpu_has(level);
        k->level = level;
        k_ref_init(k);
        k_q8_ref_init(k);
        if (level == ISA_REF)
            continue;
        k->gemm_bf16 = NULL; /* callers have faster ways than the reference */
        k_avx2_init(k);
        k_q8_avx2_init(k);
        if (level == ISA_AVXVNNI)
            k_q8_avxvnni_init(k);
        if (level >= ISA_AVX512) {
            k_avx512_init(k);
            k_q8_avx512_init(k);
        }
        if (level >= ISA_AVX512BF16) {
            k_avx512bf16_init(k);
            k_attn_avx512bf16_init(k);
        }
        if (level >= ISA_AMX) {
            k_amx_init(k);
            k_attn_amx_init(k);
        }
    }
}

const struct kernels *kernels_get(enum isa level)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    if ((int)level < 0 || level >= ISA_COUNT)
        return NULL;
    pthread_once(&once, fill_tables);
    return usable[level] ? &tables[level] : NULL;
}
