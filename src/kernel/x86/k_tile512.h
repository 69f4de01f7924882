/* Tiles of sums in 512-bit vectors, for k_q8_avx512.c and k_blocks_panel.h: up
 * to TILE_VECTORS * 16 rows of weights by up to TILE_TOKENS tokens. Registers
 * hold 12 sums of the current group, 12 of all groups, the weights and four
 * activations. */
#ifndef KERNEL_X86_K_TILE512_H
#define KERNEL_X86_K_TILE512_H

#include <stdbool.h>

#include "kernel/x86/k_zmm.h"

enum { TILE_VECTORS = 4, TILE_TOKENS = 3, TILE_ROWS = 16 * TILE_VECTORS };

/* gcc 12 runs out of registers in the loops over tiles if it may move code.
 * KEEP makes it hold a vector in a register, FORGET makes it compute addresses
 * anew. */
#define KEEP(v)   __asm__("" : "+v"(v))
#define FORGET(p) __asm__("" : "+r"(p))

/* The part of y that a tile computes: nr rows, of the tokens from y on. */
struct tile_y {
    float *y;
    size_t ldy, nr;
    bool resume; /* sums start with y, else with 0 */
};

/* Set the sums of T tokens and V vectors to y, or to 0 unless o.resume.
 * Prefetches y of the next tile. */
INLINE void tile_load(__m512 a[TILE_TOKENS][TILE_VECTORS], struct tile_y o,
                      int V, int T)
{
    UNROLL
    for (int t = 0; t < T; t++) {
        UNROLL
        for (int v = 0; v < V; v++) {
            const float *y = o.y + (size_t)t * o.ldy + 16 * v;
            __mmask16 m = first_lanes(o.nr - 16 * (size_t)v);

            _mm_prefetch((const char *)(y + (size_t)T * o.ldy), _MM_HINT_T0);
            a[t][v] = _mm512_maskz_loadu_ps(o.resume ? m : 0, y);
        }
    }
}

/* Store the sums in y. */
INLINE void tile_store(__m512 a[TILE_TOKENS][TILE_VECTORS], struct tile_y o,
                       int V, int T)
{
    UNROLL
    for (int t = 0; t < T; t++) {
        UNROLL
        for (int v = 0; v < V; v++)
            _mm512_mask_storeu_ps(o.y + (size_t)t * o.ldy + 16 * v,
                                  first_lanes(o.nr - 16 * (size_t)v), a[t][v]);
    }
}

#endif
