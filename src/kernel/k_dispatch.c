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

/* Tokens from which on a way of multiplying is not slower than the skinny
 * kernels, which widen weights in registers. bf16 wins from 2 tokens on (1.2
 * times as fast there, twice at 8). sgemm_nt overtakes between 16 and 24 (0.9
 * times as fast at 16, 1.05 at 24, 1.3 at 128). OpenBLAS is level at 64, and a
 * pass of fewer operations ends before it is loaded. Below AVX-512 sgemm_nt
 * takes few tokens by eights, which pays where few are missing to the next
 * eight (7 tokens 1.00 times as fast, 8 1.11, 12 1.12, 16 1.30). OpenBLAS's
 * kernels outrun ours below AVX-512 except on Intel's CPUs. Its release 0.3.21
 * (Debian 12) takes CPUs that it does not know for their ancestors: on a Zen 5
 * its Haswell kernels run at half the speed of SkylakeX's. */
static struct kernel_tuning tuning(enum isa level)
{
    struct kernel_tuning t = {
        .bf16 = level >= ISA_AVX512BF16,
        .bf16_min_tokens = 2,
        .blas = level == ISA_REF || (level < ISA_AVX512 && !cpu_is_intel()),
        .blas_min_tokens = 64,
        .blas_min_flops = 8e9,
        .blas_coretype = level == ISA_REF      ? NULL
                         : level >= ISA_AVX512 ? "SkylakeX"
                                               : "Haswell",
        .sgemm = level != ISA_REF,
        .sgemm_min_tokens = level >= ISA_AVX512 ? 24 : 8,
        .sgemm_any_tokens = 24,
        .attn_tile_rows = level >= ISA_AMX ? 1024 : 256,
        .row_cost = level == ISA_REF     ? 0
                    : level < ISA_AVX512 ? 2
                                         : 1,
    };
    return t;
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
        k->name = isa_name(level);
        k->tune = tuning(level);
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

const struct kernels *kernels_best(void)
{
    return kernels_get(cpu_best());
}

const struct kernels *kernels_ref(void)
{
    return kernels_get(ISA_REF);
}

const struct kernels *kernels_named(const char *name, bool *known)
{
    enum isa level;

    *known = isa_parse(name, &level) == 0;
    return *known ? kernels_get(level) : NULL;
}

const char *kernels_names(void)
{
    return "ref, avx2, avxvnni, avx512, avx512bf16, amx";
}
