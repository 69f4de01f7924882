/* Records of x86 cores: families and models as CPUID has them, and choices.
 *
 * `qwick bench --tune` measures the choices of the machine that it runs on and
 * prints a row for this table. Change a choice only with figures, and keep these
 * in bench/LOG.md. */
#include <emmintrin.h>

#include "kernel/cores.h"

/* The choices of most cores, where measurements found no difference. Rows name
 * different choices after this macro.
 *
 *   sweep_ahead   4 to 16 KiB are within 2% of each other on a Xeon.
 *   sweep_l2      Intel's cores have buffers for 16 outstanding lines in L1 and
 *                 48 in L2, so decode is a fifth faster with prefetches into L2.
 *                 On a Zen 5, prefetches into L1 are the fastest. On a Zen 4
 *                 prefetches into L2 are: by 10 to 47% with one thread.
 *   blas          On a Xeon our product is 1.07 times as fast as OpenBLAS 0.3.21
 *                 at 512 tokens. That release treats a CPU that it does not know
 *                 as an older one: on a Zen 5 its Haswell kernels run at half
 *                 the speed of its SkylakeX kernels.
 *   blas_min      OpenBLAS is equal for 64 tokens.
 *   gemm_f32_avx512_min
 *                 relative to matmul_f32 0.9 for 16 tokens, 1.05 for 24, 1.3 for
 *                 128.
 *   gemm_f32_min
 *                 groups of 8 tokens: 1.00 for 7 tokens, 1.11 for 8, 1.12 for 12,
 *                 1.30 for 16.
 *   avx_panels4_min, avx_panels8_min
 *                 Row by row, a token's speed does not depend on their number.
 *                 With 4 bits, 5 to 9 are within 2% of each other on an Emerald
 *                 Rapids; on a Zen 5 with AVX-VNNI 5 is faster than 9 by 11%.
 *                 With 8 bits, 9 to 17 are within 3% on both.
 *   q8_batch_min, q8_batch_max
 *                 On a Zen 5, relative to the faster of rows and panels, with 4
 *                 and 8 bits: 1.0 to 1.1 and 0.75 times as fast for 4 tokens,
 *                 1.3 to 1.4 and 1.1 for 5, 1.3 for 8, 1.1 for 16, 1.02 to 1.05
 *                 for 32, 1.0 and 0.97 to 1.0 for 48. In whole models, 1.08 and
 *                 0.93 to 0.99 for 32. An Emerald Rapids: from 4, 5, 6 and 7
 *                 tokens on 68, 67, 61 and 58% of the limit.
 *   blocks_panels_min
 *                 On a Zen 5, rows one by one are 1.4 times as fast as panels
 *                 for 5 tokens, 1.2 times for 6, and equal for 7.
 *   blocks_batch_max
 *                 On a Zen 4, of the slower limit with one thread, panels and
 *                 registers: 8 tokens of Q4_K 33 and 56 to 60%, of Q8_0 33 and
 *                 68%; 32 tokens 52 and 64%, 52 and 62%.
 *   q8_0_once     Rows of GGUF files mostly begin 32 bytes after a line, so each
 *                 64-byte load touches two lines. On a Zen 5, one core then
 *                 reads 23 GB/s if each is loaded twice, and 38 if once. A Zen
 *                 4 loads halves of 32 bytes; there, with rows at the start of
 *                 a line, loading twice was faster by 7%.
 *   permute_pairs On a Zen 4, a permutation of the bytes of two vectors
 *                 (vpermi2b) takes one cycle, as that of one (vpermb). Intel's
 *                 cores need three operations for it. A Zen 5 was not measured.
 *   bf16_min      relative to matmul_f32 1.2 for 2 tokens, 2 for 8.
 *   bf16_strips_l2
 *                 On a Zen 4, of the slower limit with one thread, 8 tokens: 45
 *                 to 53% into L1, 82 to 93% into L2; 16 tokens: 60 to 70% and
 *                 85 to 88%.
 *   bf16_panel_cols
 *                 Panels of 256 columns, 32 KiB, fit into L1. On a Zen 4, deeper
 *                 ones are faster from L2 than more sums through memory: of the
 *                 peak, 1,536 columns 92% with 256, 94% with 512, 96% with 768
 *                 and 1,024. Other cores were not measured.
 *   amx_affine_bf16_min
 *                 Prefills of Qwen3-0.6B's shape in bf16 take 1.25 times as long
 *                 as in int8 with 64 tokens, 1.0 to 1.3 times with 128, and 0.75
 *                 to 0.9 times with 256 and 512: int8 products scale the sums of
 *                 each group, which takes a constant time per token. */
#define MOST                                                            \
    .sweep_ahead = 8192, .sweep_l2 = 0, .blas = 1, .blas_min = 64,      \
    .gemm_f32_min = 8, .avx_panels4_min = 9, .avx_panels8_min = 13,     \
    .gemm_f32_avx512_min = 24,                                          \
    .q8_panels_min = 5, .q8_batch_min = 5, .q8_batch_max = 32,          \
    .blocks_panels_min = 7, .blocks_batch_max = 1, .q8_0_once = 1,      \
    .permute_pairs = 0, .bf16 = 1, .bf16_min = 2, .bf16_rows_max = 5,   \
    .bf16_strips_max = 32, .bf16_strips_l2 = 0, .bf16_panel_cols = 256, \
    .amx_rows_max = 2, .amx_few_max = 64, .amx_vnni_max = 12,           \
    .amx_affine_bf16_min = 192, .amx_blocks_bf16_min = 64,              \
    .arm_panels_min = 2
#define INTEL_MOST MOST, .sweep_l2 = 1, .blas = 0

#define AMD   "AuthenticAMD"
#define INTEL "GenuineIntel"
#define HYGON "HygonGenuine"

/* Rows name a choice again that MOST has. */
#pragma GCC diagnostic ignored "-Woverride-init"

const struct core cores[] = {
    {.name = "Zen",
     .vendor = AMD,
     .family = 0x17,
     .models = {{0x00, 0x2f}},
     .choices = {MOST},
     .guess = "as Zen 5"},
    {.name = "Dhyana",
     .vendor = HYGON,
     .family = 0x18,
     .models = {{0x00, 0xff}},
     .choices = {MOST},
     .guess = "as Zen"},
    {.name = "Zen 2",
     .vendor = AMD,
     .family = 0x17,
     .models = {{0x30, 0x4f}, {0x60, 0xaf}},
     .choices = {MOST},
     .guess = "as Zen 5"},
    {.name = "Zen 3",
     .vendor = AMD,
     .family = 0x19,
     .models = {{0x00, 0x0f}, {0x20, 0x5f}},
     .choices = {MOST},
     .guess = "as Zen 5"},
    {.name = "Zen 4",
     .vendor = AMD,
     .family = 0x19,
     .models = {{0x10, 0x1f}, {0x60, 0xaf}},
     .choices = {MOST, .sweep_l2 = 1, .gemm_f32_avx512_min = 48,
                 .blocks_batch_max = 32, .q8_0_once = 0, .permute_pairs = 1,
                 .bf16_min = 3, .bf16_rows_max = 6, .bf16_strips_l2 = 1,
                 .bf16_panel_cols = 768},
     .measured = "sweep_ahead sweep_l2 gemm_f32_avx512_min q8_panels_min "
                 "blocks_batch_max q8_0_once permute_pairs bf16 bf16_min "
                 "bf16_rows_max bf16_strips_max bf16_strips_l2 "
                 "bf16_panel_cols",
     .machine = "EPYC, 2 cores, 2026-11-24 and 2026-11-27",
     .guess = "as Zen 5"},
    {.name = "Zen 5",
     .vendor = AMD,
     .family = 0x1a,
     .models = {{0x00, 0x2f}, {0x40, 0x4f}, {0x60, 0x7f}},
     .choices = {MOST, .avx_panels4_min = 5, .gemm_f32_avx512_min = 48,
                 .q8_panels_min = 7},
     .measured = "sweep_ahead sweep_l2 blas blas_min avx_panels4_min "
                 "avx_panels8_min gemm_f32_avx512_min q8_panels_min "
                 "q8_batch_min q8_batch_max blocks_panels_min q8_0_once bf16 "
                 "bf16_min bf16_rows_max bf16_strips_max",
     .machine = "EPYC, 2 cores, 2026-11-21 and 2026-11-25",
     .guess = "as Sapphire Rapids"},

    {.name = "Haswell, Broadwell",
     .vendor = INTEL,
     .family = 6,
     .models = {{0x3c, 0x3d}, {0x3f, 0x3f}, {0x45, 0x47}, {0x4f, 0x4f},
                {0x56, 0x56}},
     .choices = {INTEL_MOST},
     .guess = "as Sapphire Rapids"},
    {.name = "Skylake, Comet Lake",
     .vendor = INTEL,
     .family = 6,
     .models = {{0x4e, 0x4e}, {0x5e, 0x5e}, {0x8e, 0x8e}, {0x9e, 0x9e},
                {0xa5, 0xa6}},
     .choices = {INTEL_MOST},
     .guess = "as Sapphire Rapids"},
    {.name = "Skylake-X, Cascade Lake",
     .vendor = INTEL,
     .family = 6,
     .models = {{0x55, 0x55}},
     .choices = {INTEL_MOST},
     .guess = "as Sapphire Rapids"},
    {.name = "Ice Lake, Tiger Lake",
     .vendor = INTEL,
     .family = 6,
     .models = {{0x6a, 0x6a}, {0x6c, 0x6c}, {0x7d, 0x7e}, {0x8c, 0x8d},
                {0xa7, 0xa7}},
     .choices = {INTEL_MOST},
     .guess = "as Sapphire Rapids"},
    {.name = "Sapphire Rapids",
     .vendor = INTEL,
     .family = 6,
     .models = {{0x8f, 0x8f}},
     .choices = {INTEL_MOST},
     .measured = "sweep_ahead sweep_l2 blas gemm_f32_min "
                 "gemm_f32_avx512_min q8_panels_min amx_rows_max amx_few_max "
                 "amx_vnni_max amx_affine_bf16_min",
     .machine = "Xeon with AMX, 2 cores, 2026-11-22",
     .guess = "as Zen 5"},
    {.name = "Emerald Rapids, Granite Rapids",
     .vendor = INTEL,
     .family = 6,
     .models = {{0xad, 0xae}, {0xcf, 0xcf}},
     .choices = {INTEL_MOST, .amx_affine_bf16_min = 256},
     .measured = "sweep_ahead sweep_l2 blas blas_min "
                 "gemm_f32_min avx_panels4_min avx_panels8_min "
                 "gemm_f32_avx512_min q8_panels_min q8_batch_min q8_batch_max "
                 "blocks_panels_min q8_0_once bf16_min bf16_rows_max "
                 "amx_rows_max amx_few_max amx_vnni_max amx_affine_bf16_min "
                 "amx_blocks_bf16_min",
     .machine = "Emerald Rapids, 1 of 16 cores of a Xeon, 2026-11-24 and "
                "2026-11-25",
     .guess = "as Sapphire Rapids"},
    {.name = "Alder Lake to Arrow Lake",
     .vendor = INTEL,
     .family = 6,
     .models = {{0x97, 0x97}, {0x9a, 0x9a}, {0xaa, 0xaa}, {0xac, 0xac},
                {0xb5, 0xb5}, {0xb7, 0xb7}, {0xba, 0xba}, {0xbd, 0xbf},
                {0xc5, 0xc6}},
     .choices = {INTEL_MOST},
     .guess = "as Sapphire Rapids"},

    {.name = "unknown core of Intel",
     .vendor = INTEL,
     .choices = {INTEL_MOST},
     .guess = "as Sapphire Rapids"},
    {.name = "unknown core of AMD",
     .vendor = AMD,
     .choices = {MOST},
     .guess = "as Zen 5"},
    {.name = "unknown core",
     .vendor = "",
     .choices = {MOST},
     .guess = "as Zen 5"},
};
const size_t n_cores = sizeof cores / sizeof *cores;

void core_copy_uncached(void *dst, const void *src, size_t n)
{
    const __m128i_u *from = src;
    __m128i *to = dst;

    for (size_t i = 0; i < n / sizeof *to; i++)
        _mm_stream_si128(to + i, _mm_loadu_si128(from + i));
    _mm_sfence();
}
