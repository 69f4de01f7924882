/* Records of cores: which of the kernels that do the same work is the fastest.
 *
 * The instruction set gives a level (base/cpu.h), and the level gives most
 * kernels. The rest are choices between variants: how far ahead to prefetch, and
 * from how many tokens on another kernel takes over. The best choice depends on
 * the core. Each known core has a row with its choices, and says which of them
 * were measured. A core without a row starts with the row of an unknown core of
 * its vendor; the engine may then measure some choices (engine/core/tuning.h).
 *
 * Choices change speed. In exact mode they change no bit of a result. Otherwise
 * another product may round differently, as between two levels. */
#ifndef KERNEL_CORES_H
#define KERNEL_CORES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"

/* The choices. A name that ends with min is the number of tokens from which on
 * a kernel is used, and one that ends with max the number up to which it is
 * used. Flags are 0 or 1. */
struct core_choices {
    /* Kernels that read weights sequentially prefetch them: hardware
       prefetchers stop at each page. */
    uint32_t sweep_ahead; /* bytes from the line in use to the one that is
                             prefetched */
    uint32_t sweep_l2;    /* flag: prefetch into L2; 0: into L1 */
    /* Below AVX-512, and on ARM. */
    uint32_t blas;         /* flag: OpenBLAS is faster than gemm_f32 */
    uint32_t blas_min;     /* OpenBLAS instead of matmul_f32 */
    uint32_t gemm_f32_min; /* gemm_f32 instead of matmul_f32 */
    /* Below AVX-512. */
    /* gemm_q8_affine packs panels of codes: of up to 4 bits, of more */
    uint32_t avx_panels4_min, avx_panels8_min;
    /* With AVX-512. */
    uint32_t gemm_f32_avx512_min; /* gemm_f32 instead of matmul_f32 */
    uint32_t q8_panels_min;       /* gemm_q8_affine packs panels of codes */
    /* gemm_q8_affine multiplies codes of 4 and 8 bits from registers, in place
       of rows or panels */
    uint32_t q8_batch_min, q8_batch_max;
    uint32_t blocks_panels_min; /* gemm_q8_blocks packs panels of codes */
    uint32_t blocks_batch_max;  /* gemm_q8_blocks multiplies codes of Q8_0 and
                                   Q4_K from registers, from 5 tokens on */
    uint32_t q8_0_once;         /* flag: a row of Q8_0 is loaded once for one
                                   token, not twice */
    uint32_t permute_pairs; /* flag: permutations of bytes of two vectors are as
                               fast as of one */
    /* With AVX512_BF16; bf16 and bf16_min also with BF16 of ARM. */
    uint32_t bf16;            /* flag: bf16 is faster than f32, without AMX */
    uint32_t bf16_min;        /* gemm_bf16 instead of matmul_f32 */
    uint32_t bf16_rows_max;   /* gemm_bf16 reads row by row */
    uint32_t bf16_strips_max; /* gemm_bf16 reads strips of rows, then panels */
    uint32_t bf16_strips_l2;  /* flag: strips are prefetched into L2 first */
    uint32_t bf16_panel_cols; /* most columns of a panel */
    /* With AMX. */
    uint32_t amx_rows_max;        /* gemm_bf16 by vectors, not by tiles */
    uint32_t amx_few_max;         /* gemm_bf16 packs tokens, not weights */
    uint32_t amx_vnni_max;        /* gemm_q8_affine by vectors, not by tiles */
    uint32_t amx_affine_bf16_min; /* affine weights are widened to bf16 */
    uint32_t amx_blocks_bf16_min; /* blocks are widened to bf16 */
    /* On ARM. */
    uint32_t arm_panels_min; /* gemm_q8_affine and gemm_q8_blocks expand panels
                                of rows */
};

/* The memory of the kernel behind amx_few_max holds this many tokens. */
enum { CORE_AMX_SMALL_M_LIMIT = 64 };
/* And that of the kernel before avx_panels4_min and avx_panels8_min. */
enum { CORE_AVX_SMALL_M_LIMIT = 16 };
/* The kernel behind q8_batch_min takes this many tokens at least. */
enum { CORE_Q8_BATCH_LEAST = 4 };
/* The kernel behind bf16_rows_max takes this many tokens at once. */
enum { CORE_BF16_ROWS_LIMIT = 6 };

/* The panel of gemm_bf16 has room for this many columns. */
enum { CORE_BF16_PANEL_LIMIT = 1024 };

/* What is known about a choice. */
struct core_knob {
    const char *name; /* of the member */
    const char *about;
    size_t offset;         /* of the member */
    unsigned levels;       /* bit l: the kernels of level l use it */
    uint32_t least, limit; /* valid values: least to limit */
    uint32_t variants[6];  /* values worth measuring, the smallest first */
    size_t n_variants;
};

/* Return knob i = 0, 1, …, in the order of struct core_choices; NULL when there
 * is no knob i. */
const struct core_knob *core_knob(size_t i);
uint32_t core_get(const struct core_choices *c, const struct core_knob *k);
void core_set(struct core_choices *c, const struct core_knob *k, uint32_t v);

/* A range of models within a family. */
struct core_models {
    uint16_t first, last;
};

struct core {
    const char *name;   /* "Zen 4" */
    const char *vendor; /* as in struct cpu_id; "": any */
    unsigned family;    /* 0: the row of an unknown core */
    struct core_models models[12]; /* ranges end with {0, 0} after the first */
    struct core_choices choices;
    /* Names of the choices that were measured on this core, with blanks
       between; NULL: none. */
    const char *measured;
    const char *machine; /* the machine and the date; NULL: none */
    const char *guess;   /* where the other choices come from */
};

/* The rows: cores of x86 in x86/k_cores_x86.c, of ARM in arm/k_cores_arm.c. The
 * last one, the only one of k_cores_other.c, is for an unknown core of any
 * vendor. */
extern const struct core cores[];
extern const size_t n_cores;

/* Return the row of a core; if it has none, the row of an unknown core of its
 * vendor. */
const struct core *core_find(const struct cpu_id *id);
/* Return the row with this name; NULL if there is none. */
const struct core *core_named(const char *name);
bool core_is_unknown(const struct core *c);
/* Return whether a choice was measured on the core. */
bool core_measured(const struct core *c, const struct core_knob *k);

/* Write the vendor, family and model of this CPU to out[size], size > 0, as
 * "GenuineIntel 6 143"; " 0 0" if they are unknown. */
void core_cpu_text(char *out, size_t size);

/* Copy n bytes, a multiple of 64, from src to dst, which is 64-byte aligned,
 * without leaving dst in the caches, if the CPU has such stores. */
void core_copy_uncached(void *dst, const void *src, size_t n);

#endif
