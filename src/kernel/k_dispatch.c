/* Fill the table of each level: first with the reference kernels, then with the
 * kernels of the lower levels, then with its own. */
#include <pthread.h>

#include "kernel/kernel.h"

static struct kernels tables[ISA_COUNT];
static bool usable[ISA_COUNT];
static const struct core *core_in_use;
struct core_choices kernel_core;

static void use_choices(const struct core_choices *c)
{
    kernel_core = *c;
    for (int i = 0; i < ISA_COUNT; i++)
        if (usable[i])
            tables[i].tune = k_cpu_tuning((enum isa)i, c);
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
    return "ref, avx2, avxvnni, avx512, avx512bf16, amx, neon, dotprod, "
           "i8mm, bf16";
}
