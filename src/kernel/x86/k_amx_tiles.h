/* AMX tile registers, for the kernels of level amx. There are eight tile
 * registers; each holds up to 16 rows of up to 64 bytes. */
#ifndef KERNEL_X86_K_AMX_TILES_H
#define KERNEL_X86_K_AMX_TILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel/cores.h"

enum {
    SIDE = 16,  /* rows of a tile, and columns of a tile of f32 */
    DEPTH = 32, /* columns of a tile of bf16 */
    LINE = 64,  /* bytes of a tile's row */
    TILE_BYTES = SIDE * LINE
};

/* These are assembly, because gcc's intrinsics do not declare that they access
 * memory. */
#define TILE_LOAD(t, p, stride)                                      \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t                 \
                     :                                               \
                     : "r"((const void *)(p)), "r"((size_t)(stride)) \
                     : "memory")
/* TILE_LOAD with a hint not to evict other lines from L1. */
#define TILE_STREAM(t, p, stride)                                    \
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm" #t               \
                     :                                               \
                     : "r"((const void *)(p)), "r"((size_t)(stride)) \
                     : "memory")
#define TILE_STORE(t, p, stride)                               \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)"       \
                     :                                         \
                     : "r"((void *)(p)), "r"((size_t)(stride)) \
                     : "memory")
#define TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #t ::)
/* Add the product of tiles a and b, in bf16, to tile c. */
#define TILE_DOT(c, a, b) \
    __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)
/* Add the product of tiles a, signed bytes, and b, unsigned bytes, to tile c of
 * int32. */
#define TILE_DOT_I8(c, a, b) \
    __asm__ volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)
#define TILE_CONFIGURE(c) __asm__ volatile("ldtilecfg %0" : : "m"(c))
#define TILE_RELEASE()    __asm__ volatile("tilerelease" ::)

/* The operand of LDTILECFG, as in Intel's manual. */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Give a tile n_rows rows and n_columns columns of 16 bits. If one of them is
 * 0, both become 0. */
static inline void tile_shape(struct tile_config *c, int tile, int n_rows,
                              int n_columns)
{
    c->rows[tile] = (uint8_t)(n_columns ? n_rows : 0);
    c->row_bytes[tile] = (uint16_t)(n_rows ? 2 * n_columns : 0);
}

/* Run `rounds` rounds of four products of full tiles of zeros: int8 products if
 * bytes, otherwise bf16. Configures the tiles, and releases them at the end.
 * Sets *sink to an element of the sums, so that the compiler cannot remove the
 * work. bytes must be a constant. */
static inline void tile_peak(size_t rounds, bool bytes, float *sink)
{
    _Alignas(64) float zeros[SIDE * SIDE] = {0};
    struct tile_config c = {.palette = 1};

    for (int i = 0; i < 8; i++)
        tile_shape(&c, i, SIDE, LINE / 2);
    TILE_CONFIGURE(c);
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    TILE_LOAD(4, zeros, LINE);
    TILE_LOAD(5, zeros, LINE);
    TILE_LOAD(6, zeros, LINE);
    TILE_LOAD(7, zeros, LINE);
    for (size_t i = 0; i < rounds; i++) {
        if (bytes) {
            TILE_DOT_I8(0, 4, 6);
            TILE_DOT_I8(1, 4, 7);
            TILE_DOT_I8(2, 5, 6);
            TILE_DOT_I8(3, 5, 7);
        } else {
            TILE_DOT(0, 4, 6);
            TILE_DOT(1, 4, 7);
            TILE_DOT(2, 5, 6);
            TILE_DOT(3, 5, 7);
        }
    }
    TILE_STORE(0, zeros, LINE);
    TILE_RELEASE();
    *sink = zeros[0];
}

/* Maximum number of tokens of k_gemm_bf16_small_m_amx: what its memory holds.
 */
enum { AMX_SMALL_M_MAX = CORE_AMX_SMALL_M_LIMIT };

/* Do the work of gemm_bf16 (struct kernels) for 1 to AMX_SMALL_M_MAX tokens and
 * at least one column. */
void k_gemm_bf16_small_m_amx(float *y, size_t ldy, const void *w,
                             size_t w_stride, const void *x, size_t ldx,
                             size_t n_rows, size_t n_cols, size_t n_tokens,
                             bool add, float *work);

#endif
