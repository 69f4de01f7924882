#include "model/format.h"

const struct format *const formats[N_FORMATS] = {
    &format_affine, &format_bf16,   &format_f16,  &format_f32,
    &format_q4_0,   &format_q4_1,   &format_q5_0, &format_q5_1,
    &format_q8_0,   &format_iq4_nl, &format_q2_k, &format_q3_k,
    &format_q4_k,   &format_q5_k,   &format_q6_k, &format_iq4_xs};

size_t matrix_bytes(const struct matrix *w)
{
    size_t sum = 0;
    for (size_t i = 0; i < w->format->n_arrays; i++)
        sum += w->rows * w->format->row_bytes(w, i);
    return sum;
}
