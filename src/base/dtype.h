/* Element types of stored tensors. */
#ifndef BASE_DTYPE_H
#define BASE_DTYPE_H

#include <stddef.h>

enum dtype {
    DT_F32,
    DT_F16,
    DT_BF16,
    DT_N_FLOAT, /* kernels exist for the types above */
    DT_F64 = DT_N_FLOAT,
    DT_I8,
    DT_U8,
    DT_I16,
    DT_U16,
    DT_I32,
    DT_U32,
    DT_I64,
    DT_U64,
    DT_BOOL,
    DT_F8_E4M3,
    DT_F8_E5M2,
    /* GGUF's blocks (kernel/blocks.h): elements of a row that share scales and
       are stored together */
    DT_BLOCKS,
    DT_Q4_0 = DT_BLOCKS,
    DT_Q4_1,
    DT_Q5_0,
    DT_Q5_1,
    DT_Q8_0,
    DT_IQ4_NL,
    DT_MXFP4,
    DT_NVFP4,
    DT_Q2_K,
    DT_Q3_K,
    DT_Q4_K,
    DT_Q5_K,
    DT_Q6_K,
    DT_IQ4_XS,
    DT_IQ3_XXS,
    DT_IQ3_S,
    DT_IQ2_XXS,
    DT_IQ2_XS,
    DT_IQ2_S,
    DT_IQ1_S,
    DT_IQ1_M,
    DT_TQ1_0,
    DT_TQ2_0,
    DT_COUNT,
    DT_N_BLOCKS = DT_COUNT - DT_BLOCKS
};

/* Return the type's name in safetensors headers, such as "BF16"; for blocks the
 * name in GGUF, such as "Q4_K". */
const char *dtype_name(enum dtype t);
/* Return the bytes of an element, or of a block. */
size_t dtype_bytes(enum dtype t);
/* Return the number of elements in a block; 1 for all other types. */
size_t dtype_block(enum dtype t);
/* Parse a type's name[0..n) of a safetensors header; blocks do not occur there.
 * Returns -1 if the name is unknown. */
int dtype_parse(const char *name, size_t n, enum dtype *out);

#endif
