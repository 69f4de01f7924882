#include "model/format.h"

const struct format *const formats[N_FORMATS] = {&format_affine, &format_bf16,
                                                 &format_f16, &format_f32};

size_t matrix_bytes(const struct matrix *w)
{
    size_t sum = 0;
    for (size_t i = 0; i < w->format->n_arrays; i++)
        sum += w->rows * w->format->row_bytes(w, i);
    return sum;
}
