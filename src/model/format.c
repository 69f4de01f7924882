#include "model/format.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

const struct format *const formats[N_FORMATS] = {
    &format_transposed, &format_mxfp4_split, &format_nvfp4_split, &format_mxfp8,   &format_packed,
    &format_affine,      &format_bf16,        &format_f16,     &format_f32,
    &format_q4_0,        &format_q4_1,        &format_q5_0,    &format_q5_1,
    &format_q8_0,        &format_iq4_nl,      &format_q2_k,    &format_q3_k,
    &format_q4_k,        &format_q5_k,        &format_q6_k,    &format_iq4_xs,
    &format_iq3_xxs,     &format_iq3_s,       &format_iq2_xxs, &format_iq2_xs,
    &format_iq2_s,       &format_iq1_s,       &format_iq1_m,   &format_tq1_0,
    &format_tq2_0,       &format_mxfp4,       &format_nvfp4,   &format_fp8};

void matrix_view(struct matrix *out, const struct matrix *stack, size_t row,
                 size_t n)
{
    *out = *stack;
    out->rows = n;
    for (size_t i = 0; i < stack->format->n_arrays; i++)
        out->data[i] = matrix_row(stack, i, row);
    if (stack->format->view)
        stack->format->view(out, stack, row);
}

size_t matrix_bytes(const struct matrix *w)
{
    size_t sum = 0;
    for (size_t i = 0; i < w->format->n_arrays; i++)
        sum += w->rows * w->format->row_bytes(w, i);
    return sum;
}

int matrix_compare(const struct kernels *k, const struct matrix *a,
                   const struct matrix *b, size_t n, bool *differ,
                   struct qwick_err *e)
{
    size_t bytes, last = a->rows - 1;
    *differ = false;
    float *rows =
        size_mul(a->cols, 2 * sizeof *rows, &bytes) ? NULL : malloc(bytes);
    if (!rows)
        return err_oom(e, a->cols * 2 * sizeof *rows);
    n = n < a->rows ? n : a->rows;
    for (size_t i = 0; i < n && !*differ; i++) {
        size_t row = n > 1 ? i * last / (n - 1) : 0; /* rows < 2^28 */
        a->ops->to_f32(k, rows, a, row, 1);
        b->ops->to_f32(k, rows + a->cols, b, row, 1);
        *differ = memcmp(rows, rows + a->cols, bytes / 2) != 0;
    }
    free(rows);
    return 0;
}
