/* AMX tile registers, for the kernels of level amx. There are eight tile
 * registers; each holds up to 16 rows of up to 64 bytes. */
#ifndef KERNEL_X86_K_AMX_TILES_H
#define KERNEL_X86_K_AMX_TILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* Maximum number of tokens of k_gemm_bf16_few_amx. */
enum { AMX_FEW_MAX = 64 };

/* Do the work of gemm_bf16 (struct kernels) for 1 to AMX_FEW_MAX tokens and at
 * least one column. */
void k_gemm_bf16_few_amx(float *y, size_t ldy, const void *w, size_t w_stride,
                         const void *x, size_t ldx, size_t n_rows,
                         size_t n_cols, size_t n_tokens, bool add, float *work);

#endif
