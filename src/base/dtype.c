#include "base/dtype.h"

#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} dtypes[DT_COUNT] = {
    [DT_F32] = {"F32", 4},         [DT_F16] = {"F16", 2},
    [DT_BF16] = {"BF16", 2},       [DT_F64] = {"F64", 8},
    [DT_I8] = {"I8", 1},           [DT_U8] = {"U8", 1},
    [DT_I16] = {"I16", 2},         [DT_U16] = {"U16", 2},
    [DT_I32] = {"I32", 4},         [DT_U32] = {"U32", 4},
    [DT_I64] = {"I64", 8},         [DT_U64] = {"U64", 8},
    [DT_BOOL] = {"BOOL", 1},       [DT_F8_E4M3] = {"F8_E4M3", 1},
    [DT_F8_E5M2] = {"F8_E5M2", 1},
};

const char *dtype_name(enum dtype t)
{
    return dtypes[t].name;
}

size_t dtype_bytes(enum dtype t)
{
    return dtypes[t].bytes;
}

int dtype_parse(const char *name, size_t n, enum dtype *out)
{
    for (int i = 0; i < DT_COUNT; i++) {
        if (strlen(dtypes[i].name) == n && !memcmp(dtypes[i].name, name, n)) {
            *out = (enum dtype)i;
            return 0;
        }
    }
    return -1;
}
