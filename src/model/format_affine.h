/* What formats share whose products are those of affine weights
 * (kernel/kernel.h). */
#ifndef MODEL_FORMAT_AFFINE_H
#define MODEL_FORMAT_AFFINE_H

#include "model/format.h"

/* format.row_bytes: of codes, scales, and biases or zero points */
size_t affine_row_bytes(const struct matrix *w, size_t i);

/* format.fill */
void affine_fill(struct format_ops *ops, const struct kernels *k, bool exact);

#endif
