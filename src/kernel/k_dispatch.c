/* Fill the table of each level: first with the reference kernels, then with the
 * kernels of the lower levels, then with its own. */
#include <pthread.h>

#include "kernel/kernel.h"

static struct kernels tables[ISA_COUNT];
static bool usable[ISA_COUNT];
static const struct core *core_in_use;
struct core_choices kernel_core;

/* Speeds below are relative to matmul_f32, which widens weights in registers.
 * The other choices come from the record of the core.
 *
 *   gemm_f32  Below AVX-512 it takes up to GEMM_F32_SMALL_M tokens in groups of
 *             8, so it pays just below multiples of 8: 1.00 for 7 tokens, 1.11
 *             for 8.
 *   bf16      pairs, where f32 takes 1: in passes of Qwen3-30B-A3B's shape whose
 *   pairs     experts have 2, 4 or 8 tokens, 0.85, 0.81 and 0.66 on amx; on
 *             avx512bf16 1.27 for 4.
 *   OpenBLAS  A pass with fewer operations than blas_min_flops ends before the
 *             library is loaded. */
static struct kernel_tuning tuning(enum isa level, const struct core_choices *c)
{
    struct kernel_tuning t = {
        .bf16 = level >= ISA_AMX || (level == ISA_AVX512BF16 && c->bf16),
        .bf16_min_tokens = c->bf16_min,
        .affine_bf16_min_tokens = c->amx_affine_bf16_min,
        .blocks_bf16_min_tokens = c->amx_blocks_bf16_min,
        .bf16_pairs = level >= ISA_AMX,
        .blas = level == ISA_REF || (level < ISA_AVX512 && c->blas_avx2),
        .blas_min_tokens = c->blas_min,
        .blas_min_flops = 8e9,
        .blas_coretype = level == ISA_REF      ? NULL
                         : level >= ISA_AVX512 ? "SkylakeX"
                                               : "Haswell",
        .gemm_f32 = level != ISA_REF,
        .gemm_f32_min_tokens = level >= ISA_AVX512 ? c->gemm_f32_avx512_min
                                                   : c->gemm_f32_avx2_min,
        .gemm_f32_any_tokens = 24,
        .attn_tile_rows = level >= ISA_AMX ? 1024 : 256,
        .row_cost = level == ISA_REF     ? 0
                    : level < ISA_AVX512 ? 2
                                         : 1,
    };
    return t;
}

static void use_choices(const struct core_choices *c)
{
    kernel_core = *c;
    for (int i = 0; i < ISA_COUNT; i++)
        if (usable[i])
            tables[i].tune = tuning((enum isa)i, c);
}

static void fill_tables(void)
{
    struct cpu_id id;

    (void)cpu_identify(&id);
    core_in_use = core_find(&id);
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
        k_ref_init(k);
        k_delta_ref_init(k);
        k_q8_ref_init(k);
        k_kv_q4_ref_init(k);
        k_blocks_ref_init(k);
        k_fp8_ref_init(k);
        k_cpu_init(k, level);
    }
    use_choices(&core_in_use->choices);
}

static void fill_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, fill_tables);
}

const struct kernels *kernels_get(enum isa level)
{
    if ((int)level < 0 || level >= ISA_COUNT)
        return NULL;
    fill_once();
    return usable[level] ? &tables[level] : NULL;
}

const struct core *kernels_core(void)
{
    fill_once();
    return core_in_use;
}

bool kernels_use(const struct kernels *k, const struct core_knob *knob)
{
    return knob->levels >> k->level & 1;
}

void kernels_choose(const struct core_choices *c)
{
    fill_once();
    use_choices(c);
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
