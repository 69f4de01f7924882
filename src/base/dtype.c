#include "base/dtype.h"

#include <string.h>

static const struct {
    const char *name;
    size_t bytes; /* bytes of an element or a block */
    size_t block; /* elements of a block */
} dtypes[DT_COUNT] = {
    [DT_F32] = {"F32", 4, 1},
    [DT_F16] = {"F16", 2, 1},
    [DT_BF16] = {"BF16", 2, 1},
    [DT_F64] = {"F64", 8, 1},
    [DT_I8] = {"I8", 1, 1},
    [DT_U8] = {"U8", 1, 1},
    [DT_I16] = {"I16", 2, 1},
    [DT_U16] = {"U16", 2, 1},
    [DT_I32] = {"I32", 4, 1},
    [DT_U32] = {"U32", 4, 1},
    [DT_I64] = {"I64", 8, 1},
    [DT_U64] = {"U64", 8, 1},
    [DT_BOOL] = {"BOOL", 1, 1},
    [DT_F8_E4M3] = {"F8_E4M3", 1, 1},
    [DT_F8_E5M2] = {"F8_E5M2", 1, 1},
    [DT_Q4_0] = {"Q4_0", 18, 32},
    [DT_Q4_1] = {"Q4_1", 20, 32},
    [DT_Q5_0] = {"Q5_0", 22, 32},
    [DT_Q5_1] = {"Q5_1", 24, 32},
    [DT_Q8_0] = {"Q8_0", 34, 32},
    [DT_IQ4_NL] = {"IQ4_NL", 18, 32},
    [DT_MXFP4] = {"MXFP4", 17, 32},
    [DT_NVFP4] = {"NVFP4", 36, 64},
    [DT_Q2_K] = {"Q2_K", 84, 256},
    [DT_Q3_K] = {"Q3_K", 110, 256},
    [DT_Q4_K] = {"Q4_K", 144, 256},
    [DT_Q5_K] = {"Q5_K", 176, 256},
    [DT_Q6_K] = {"Q6_K", 210, 256},
    [DT_IQ4_XS] = {"IQ4_XS", 136, 256},
    [DT_IQ3_XXS] = {"IQ3_XXS", 98, 256},
    [DT_IQ3_S] = {"IQ3_S", 110, 256},
    [DT_IQ2_XXS] = {"IQ2_XXS", 66, 256},
    [DT_IQ2_XS] = {"IQ2_XS", 74, 256},
    [DT_IQ2_S] = {"IQ2_S", 82, 256},
    [DT_IQ1_S] = {"IQ1_S", 50, 256},
    [DT_IQ1_M] = {"IQ1_M", 56, 256},
    [DT_TQ1_0] = {"TQ1_0", 54, 256},
    [DT_TQ2_0] = {"TQ2_0", 66, 256},
};

const char *dtype_name(enum dtype t)
{
    return dtypes[t].name;
}

size_t dtype_bytes(enum dtype t)
{
    return dtypes[t].bytes;
}

size_t dtype_block(enum dtype t)
{
    return dtypes[t].block;
}

int dtype_parse(const char *name, size_t n, enum dtype *out)
{
    for (int i = 0; i < DT_BLOCKS; i++) {
        if (strlen(dtypes[i].name) == n && !memcmp(dtypes[i].name, name, n)) {
            *out = (enum dtype)i;
            return 0;
        }
    }
    return -1;
}
