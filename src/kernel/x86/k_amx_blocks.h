/* Rows of GGUF's blocks, widened to bf16 for the products of AMX. */
#ifndef KERNEL_X86_K_AMX_BLOCKS_H
#define KERNEL_X86_K_AMX_BLOCKS_H

#include <stddef.h>

#include "base/dtype.h"

/* How rows of a type are read. */
struct block_rows {
    /* Widen n elements at p, whole blocks, to f32 with the rounding of
     * blocks_to_f32, and then to bf16. out is 64-byte aligned. */
    void (*widen)(char *out, const void *p, size_t n);
    size_t block, bytes; /* elements and bytes of a block */
};

/* Entry i is for type DT_BLOCKS + i. */
extern const struct block_rows block_rows[DT_N_BLOCKS];

#endif
