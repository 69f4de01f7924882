/* Blocks of FP8 weights (struct fp8) that have one scale, for products in bf16:
 * they add up the columns of a block before its scale. */
#ifndef KERNEL_FP8_BLOCKS_H
#define KERNEL_FP8_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>

#include "kernel/kernel.h"
#include "kernel/simd.h"

/* Whether sums of a block's columns must be multiplied by a scale. */
INLINE bool fp8_scaled(const struct fp8 *w)
{
    return w && !w->mx;
}

/* Columns from k on that have the same scales, `most` of them at most. */
INLINE size_t fp8_depth(const struct fp8 *w, size_t k, size_t n_cols,
                        size_t most)
{
    const size_t left = n_cols - k < most ? n_cols - k : most;
    const size_t in_block = w->mx ? most : w->cols - k % w->cols;

    return left < in_block ? left : in_block;
}

/* Write the scales of rows [r, r + n) in the block of columns with column k. */
INLINE void fp8_row_scales(float *out, const struct fp8 *w, size_t r, size_t n,
                           size_t k)
{
    const float *scale = fp8_scales(w, r) + k / w->cols;
    size_t left = w->rows - (w->first + r) % w->rows;

    for (size_t i = 0; i < n; i++) {
        out[i] = *scale;
        if (--left == 0) {
            scale += w->ld;
            left = w->rows;
        }
    }
}

#endif
