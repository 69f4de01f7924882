/* Fill the table of each level: first with the reference kernels, then with the
 * kernels of the lower levels, then with its own. */
#include <pthread.h>

#include "kernel/kernel.h"

static struct kernels tables[ISA_COUNT];
static bool usable[ISA_COUNT];
struct kernel_sweep kernel_sweep;

/* Intel's cores have buffers for 16 outstanding lines in L1 and 48 in L2, so
 * decode is a fifth faster with prefetches into L2. On AMD's Zen, prefetches
 * into L1 are the fastest. */
static struct kernel_sweep best_sweep(void)
{
    return (struct kernel_sweep){.ahead = 8192, .to_l2 = cpu_is_intel()};
}

/* Speeds below are relative to matmul_f32, which widens weights in registers.
 *
 *   bf16      1.2 times as fast for 2 tokens, twice for 8
 *   gemm_f32  with AVX-512, 0.9 times as fast for 16 tokens, 1.05 for 24, 1.3
 *             for 128. Below AVX-512 it takes up to GEMM_F32_SMALL_M tokens in
 *             groups of 8, so it pays just below multiples of 8: 1.00 for 7
 *             tokens, 1.11 for 8, 1.12 for 12, 1.30 for 16.
 *   bf16      pairs, where f32 takes 1: in passes of Qwen3-30B-A3B's shape
 * whose pairs     experts have 2, 4 or 8 tokens, 0.85, 0.81 and 0.66 on amx; on
 *             avx512bf16 1.27 for 4.
 *   OpenBLAS  equal for 64 tokens. A pass with fewer operations than
 *             blas_min_flops ends before the library is loaded. Its kernels are
 *             faster than ours below AVX-512, except on Intel's CPUs.
 *
 * OpenBLAS 0.3.21 (Debian 12) treats a CPU that it does not know as an older
 * one: on a Zen 5 its Haswell kernels run at half the speed of its SkylakeX
 * kernels. */
static struct kernel_tuning tuning(enum isa level)
{
    struct kernel_tuning t = {
        .bf16 = level >= ISA_AVX512BF16,
        .bf16_min_tokens = 2,
        .bf16_pairs = level >= ISA_AMX,
        .blas = level == ISA_REF || (level < ISA_AVX512 && !cpu_is_intel()),
        .blas_min_tokens = 64,
        .blas_min_flops = 8e9,
        .blas_coretype = level == ISA_REF      ? NULL
                         : level >= ISA_AVX512 ? "SkylakeX"
                                               : "Haswell",
        .gemm_f32 = level != ISA_REF,
        .gemm_f32_min_tokens = level >= ISA_AVX512 ? 24 : 8,
        .gemm_f32_any_tokens = 24,
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
        /* All code in a level's files is compiled for that level. Even the
           functions that fill its table may contain instructions that this CPU
           lacks. */
        if (!usable[i])
            continue;
        k->level = level;
        k->name = isa_name(level);
        k->tune = tuning(level);
        k_ref_init(k);
        k_delta_ref_init(k);
        k_q8_ref_init(k);
        k_blocks_ref_init(k);
        k_cpu_init(k, level);
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

const char *kernels_level(size_t i)
{
    for (int l = 0; l < ISA_COUNT; l++) {
        const struct kernels *k = kernels_get((enum isa)l);
        if (k && i-- == 0)
            return k->name;
    }
    return NULL;
}

const char *kernels_names(void)
{
    return "ref, avx2, avxvnni, avx512, avx512bf16, amx";
}
