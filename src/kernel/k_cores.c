/* Records of cores: the knobs, and the search for a row. */
#include <stdio.h>
#include <string.h>

#include "kernel/cores.h"

#define ONLY(l)    (1u << (l))
#define FROM(l)    (ONLY(ISA_AMX + 1) - ONLY(l)) /* of x86 */
#define VECTORS    ~ONLY(ISA_REF)
#define ARM        (ONLY(ISA_ARMBF16 + 1) - ONLY(ISA_NEON))
#define BELOW_512  (ONLY(ISA_AVX2) | ONLY(ISA_AVXVNNI))
#define MAX_TOKENS 65536 /* a threshold that no pass reaches */

#define KNOB(member, users, low, high, text, ...)                           \
    {                                                                       \
        .name = #member, .about = text,                                     \
        .offset = offsetof(struct core_choices, member), .levels = (users), \
        .least = (low), .limit = (high), .variants = {__VA_ARGS__},         \
        .n_variants = sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)  \
    }

static const struct core_knob knobs[] = {
    KNOB(sweep_ahead, VECTORS, 64, 1 << 20,
         "bytes by which prefetches of weights are ahead", 4096, 8192, 16384),
    KNOB(sweep_l2, VECTORS, 0, 1, "prefetches go into L2, not into L1", 0, 1),
    KNOB(blas, BELOW_512 | ARM, 0, 1, "OpenBLAS in long prefills of floats", 0,
         1),
    KNOB(blas_min, BELOW_512 | ARM, 1, MAX_TOKENS,
         "OpenBLAS from so many tokens on", 32, 64, 128),
    KNOB(gemm_f32_min, BELOW_512 | ARM, 1, MAX_TOKENS,
         "packed f32 products from so many tokens on", 8, 16, 32),
    KNOB(avx_panels4_min, BELOW_512, 5, CORE_AVX_SMALL_M_LIMIT + 1,
         "panels of codes of 2 to 4 bits from so many tokens on", 5, 7, 9, 13),
    KNOB(avx_panels8_min, BELOW_512, 5, CORE_AVX_SMALL_M_LIMIT + 1,
         "panels of codes of 5 to 8 bits from so many tokens on", 5, 7, 9, 13,
         17),
    KNOB(gemm_f32_avx512_min, FROM(ISA_AVX512), 1, MAX_TOKENS,
         "packed f32 products from so many tokens on", 8, 16, 24, 32, 48),
    KNOB(q8_panels_min, FROM(ISA_AVX512), 2, MAX_TOKENS,
         "int8 products by panels from so many tokens on", 3, 4, 5, 7, 9),
    KNOB(q8_batch_min, FROM(ISA_AVX512), CORE_Q8_BATCH_LEAST, MAX_TOKENS,
         "codes of 4 and 8 bits from registers from so many tokens on", 4, 5, 6,
         7),
    KNOB(q8_batch_max, FROM(ISA_AVX512), 1, MAX_TOKENS,
         "codes of 4 and 8 bits from registers up to so many tokens", 16, 24,
         32, 40, 48, 64),
    KNOB(blocks_panels_min, FROM(ISA_AVX512), 5, MAX_TOKENS,
         "panels of GGUF's blocks from so many tokens on", 5, 6, 7, 8, 9),
    KNOB(blocks_batch_max, FROM(ISA_AVX512), 1, MAX_TOKENS,
         "Q8_0 and Q4_K from registers up to so many tokens", 1, 8, 16, 24, 32,
         48),
    KNOB(q8_0_once, FROM(ISA_AVX512), 0, 1,
         "a row of Q8_0 is loaded once for one token", 0, 1),
    KNOB(permute_pairs, FROM(ISA_AVX512), 0, 1,
         "bytes of two vectors are permuted as fast as of one", 0, 1),
    KNOB(bf16, ONLY(ISA_AVX512BF16) | ONLY(ISA_ARMBF16), 0, 1,
         "bf16 products of floats, not f32", 0, 1),
    KNOB(bf16_min, FROM(ISA_AVX512BF16) | ONLY(ISA_ARMBF16), 2, MAX_TOKENS,
         "bf16 products from so many tokens on", 2, 3, 4),
    KNOB(bf16_rows_max, FROM(ISA_AVX512BF16), 1, CORE_BF16_ROWS_LIMIT,
         "bf16 products row by row up to so many tokens", 3, 4, 5, 6),
    KNOB(bf16_strips_max, ONLY(ISA_AVX512BF16), 1, 64,
         "bf16 products by strips up to so many tokens", 16, 24, 32, 40, 48),
    KNOB(bf16_strips_l2, ONLY(ISA_AVX512BF16), 0, 1,
         "strips of bf16 are prefetched into L2 first", 0, 1),
    KNOB(bf16_panel_cols, ONLY(ISA_AVX512BF16), 64, CORE_BF16_PANEL_LIMIT,
         "most columns of a panel of bf16", 256, 384, 512, 768, 1024),
    KNOB(amx_rows_max, ONLY(ISA_AMX), 1, CORE_AMX_SMALL_M_LIMIT,
         "bf16 products by vectors up to so many tokens", 1, 2, 3, 4),
    KNOB(amx_few_max, ONLY(ISA_AMX), 1, CORE_AMX_SMALL_M_LIMIT,
         "bf16 products pack tokens up to so many", 32, 48, 64),
    KNOB(amx_vnni_max, ONLY(ISA_AMX), 1, MAX_TOKENS,
         "int8 products by vectors up to so many tokens", 4, 8, 12, 16),
    KNOB(amx_affine_bf16_min, ONLY(ISA_AMX), 1, MAX_TOKENS,
         "affine weights by bf16 from so many tokens on", 64, 128, 192, 256),
    KNOB(amx_blocks_bf16_min, ONLY(ISA_AMX), 1, MAX_TOKENS,
         "GGUF's blocks by bf16 from so many tokens on", 32, 64, 128),
    KNOB(arm_panels_min, ARM, 2, MAX_TOKENS,
         "int8 products by panels from so many tokens on", 2, 3, 4, 5),
};

_Static_assert(sizeof knobs / sizeof *knobs ==
                   sizeof(struct core_choices) / sizeof(uint32_t),
               "each choice has a knob");

const struct core_knob *core_knob(size_t i)
{
    return i < sizeof knobs / sizeof *knobs ? &knobs[i] : NULL;
}

uint32_t core_get(const struct core_choices *c, const struct core_knob *k)
{
    uint32_t v;

    memcpy(&v, (const char *)c + k->offset, sizeof v);
    return v;
}

void core_set(struct core_choices *c, const struct core_knob *k, uint32_t v)
{
    memcpy((char *)c + k->offset, &v, sizeof v);
}

static bool has_model(const struct core *c, unsigned model)
{
    const size_t n = sizeof c->models / sizeof *c->models;

    for (size_t i = 0; i < n && (i == 0 || c->models[i].last); i++)
        if (model >= c->models[i].first && model <= c->models[i].last)
            return true;
    return false;
}

bool core_is_unknown(const struct core *c)
{
    return c->family == 0;
}

const struct core *core_find(const struct cpu_id *id)
{
    size_t i = 0;

    for (; i + 1 < n_cores; i++) {
        const struct core *c = &cores[i];

        if (!strcmp(c->vendor, id->vendor) &&
            (core_is_unknown(c) ||
             (c->family == id->family && has_model(c, id->model))))
            break;
    }
    return &cores[i];
}

const struct core *core_named(const char *name)
{
    for (size_t i = 0; i < n_cores; i++)
        if (!strcmp(cores[i].name, name))
            return &cores[i];
    return NULL;
}

void core_cpu_text(char *out, size_t size)
{
    struct cpu_id id;

    (void)cpu_identify(&id);
    (void)snprintf(out, size, "%s %u %u", id.vendor, id.family, id.model);
}

bool core_measured(const struct core *c, const struct core_knob *k)
{
    const size_t n = strlen(k->name);
    const char *p = c->measured ? c->measured : "";

    for (; *p; p += strcspn(p, " ")) {
        p += strspn(p, " ");
        if (strcspn(p, " ") == n && !strncmp(p, k->name, n))
            return true;
    }
    return false;
}
