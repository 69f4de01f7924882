/* Matrices in AWQ and GPTQ, whose tensors have the columns of a matrix as rows.
 * Codes have `bits` bits, in words of 32 bits, low bits first:
 *
 *   AWQ   qweight [cols, rows / 8]           8 rows a word
 *   GPTQ  qweight [cols * bits / 32, rows]   consecutive columns of a row
 *   both  qzeros  [groups, rows * bits / 32] packed along rows
 *         scales  [groups, rows]
 *   GPTQ  g_idx   [cols]                     the group of a column
 *
 *   w[r, c] = (code[r, c] - zero[g, r] - zero_plus) * scale[g, r]
 *
 * In AWQ, row 8 i + j is in word i, from bit 4 transposed_awq_place[j] on. Columns of
 * a group follow each other unless g_idx says otherwise (desc_act). */
#ifndef MODEL_TRANSPOSED_H
#define MODEL_TRANSPOSED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/dtype.h"
#include "base/err.h"
#include "file/tensors.h"
#include "model/format.h"
#include "model/quant.h"

struct weights;

/* A stored matrix. */
struct transposed {
    bool awq;
    int bits;
    size_t rows, cols;
    size_t group; /* columns */
    int zero_plus;
    const struct st_tensor *codes, *scales;
    const struct st_tensor *zeros; /* NULL: 2^(bits - 1) everywhere */
    const struct st_tensor *g_idx; /* NULL: groups follow each other */
};

static const int transposed_awq_place[8] = {0, 4, 1, 5, 2, 6, 3, 7};

/* Word i of a tensor, which has any alignment. */
static inline uint32_t transposed_word(const struct st_tensor *t, size_t i)
{
    uint32_t v;
    memcpy(&v, t->data + 4 * i, sizeof v);
    return v;
}

/* format.repack: the codes of *m in the order of products, and the stored
 * scales. The memory is at most a tenth larger than the tensors: each
 * group has a scale and a zero point of one byte, and has at least 32 columns.
 */
int transposed_repack(struct weights *w, struct matrix *m, struct qwick_err *e);

/* Set *out to the shape of the matrix whose qweight t is. Returns false if t
 * cannot be one. */
bool transposed_shape(const struct quant *q, const struct st_tensor *t,
                      struct matrix_shape *out);

/* Whether the groups follow each other along the columns. */
bool transposed_in_order(const struct transposed *t);

/* The zero point of row r in group g. */
int transposed_zero(const struct transposed *t, size_t g, size_t r);

#endif
