/* Records of 64-bit ARM cores: part numbers as MIDR_EL1 has them
 * (base/cpu_arm.c), and choices.
 *
 * Every choice is a guess: no such CPU was at hand. The guesses follow from
 * numbers of instructions (docs/performance.md). `qwick bench --tune` measures
 * the choices of the machine that it runs on and prints a row for this table.
 */
#include <arm_neon.h>
#include <stdint.h>

#include "kernel/cores.h"

/* OpenBLAS has its own kernels for each of these cores, so it may be faster
 * than a product written for all of them. The choices of x86's kernels have
 * values within their limits, which nothing reads. */
#define MOST                                                                \
    .sweep_ahead = 4096, .sweep_l2 = 0, .blas = 1, .blas_min = 64,          \
    .gemm_f32_min = 8, .arm_panels_min = 2, .bf16 = 1, .bf16_min = 2,       \
    .avx_panels4_min = 9, .avx_panels8_min = 13, .gemm_f32_avx512_min = 24, \
    .q8_panels_min = 5, .q8_batch_min = 5, .q8_batch_max = 32,              \
    .blocks_panels_min = 7, .blocks_batch_max = 1, .bf16_rows_max = 5,      \
    .bf16_strips_max = 32, .bf16_panel_cols = 256,                          \
    .amx_rows_max = 2, .amx_few_max = 64, .amx_vnni_max = 12,               \
    .amx_affine_bf16_min = 192, .amx_blocks_bf16_min = 64

#define PART(label, number, ...)                                          \
    {                                                                     \
        .name = (label), .vendor = "ARM", .family = 8,                    \
        .models = {{(number), (number)}}, .choices = {MOST, __VA_ARGS__}, \
        .guess = "from instruction counts; nothing was measured"          \
    }

/* Rows name a choice again that MOST has. */
#pragma GCC diagnostic ignored "-Woverride-init"

/* Small cores have small buffers for outstanding lines, and prefetch less far
 * ahead. */
const struct core cores[] = {
    PART("Cortex-A53", 0xd03, .sweep_ahead = 512),
    PART("Cortex-A72", 0xd08, .sweep_ahead = 1024),
    PART("Cortex-A76", 0xd0b, .sweep_ahead = 2048),
    PART("Neoverse N1", 0xd0c, .sweep_ahead = 4096),
    PART("Neoverse V1", 0xd40, .sweep_ahead = 4096),
    PART("Neoverse N2", 0xd49, .sweep_ahead = 4096),
    PART("Neoverse V2", 0xd4f, .sweep_ahead = 4096),
    {.name = "unknown core",
     .vendor = "",
     .choices = {MOST},
     .guess = "from instruction counts; nothing was measured"},
};
const size_t n_cores = sizeof cores / sizeof *cores;

/* stnp: a pair of vectors that will not be read soon. */
void core_copy_uncached(void *dst, const void *src, size_t n)
{
    const uint8_t *from = src;
    uint8_t *to = dst;

    for (size_t i = 0; i < n; i += 32) {
        const uint8x16_t a = vld1q_u8(from + i), b = vld1q_u8(from + i + 16);

        __asm__ volatile("stnp %q0, %q1, [%2]" ::"w"(a), "w"(b), "r"(to + i)
                         : "memory");
    }
}
