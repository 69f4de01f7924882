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
    DT_COUNT
};

/* The name in safetensors headers, "BF16". */
const char *dtype_name(enum dtype t);
/* Bytes an element. */
size_t dtype_bytes(enum dtype t);
/* From name[0..n); -1 when unknown. */
int dtype_parse(const char *name, size_t n, enum dtype *out);

#endif
