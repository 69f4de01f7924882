/* Calibration: which inputs of a model's matrices matter, and by how much.
 *
 * A model runs over texts. For each set of matrices that multiply the same
 * input x (q, k and v; gate and up; each expert's), the mean of x_i * x_j over
 * all tokens is collected. It is the Hessian of the error of the outputs: if
 * rounding changes a row of weights by d, the mean squared error of its output
 * is d^T H d. docs/calibration.md is the page for users. */
#ifndef CONVERT_CALIBRATE_H
#define CONVERT_CALIBRATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/par.h"
#include "kernel/kernel.h"
#include "qwick_tools.h"

/* Second moments of the inputs of a set of matrices, in blocks of columns. H is
 * 0 outside of the blocks.
 *
 * In a block, columns are taken in the order of falling H_kk. Let A be H in
 * this order, with 1% of its mean diagonal added to the diagonal. Then
 * A = (U + I) D (U + I)^T with U strictly upper and D diagonal. */
struct moments {
    size_t cols;
    size_t block;     /* columns of a block, the last one may have fewer; 1:
                         only the diagonal is known */
    size_t n_tokens;  /* 0: nothing is known */
    float *diagonal;  /* [cols] H_kk; not 0 in all columns */
    /* Unless block is 1: */
    uint32_t *order;  /* [cols] of each block: its columns, the first one to be
                         rounded first; numbers of the matrix's columns */
    float *factor;    /* blocks one after the other (moments_factor): row j of
                         [w, w] has U_ij in its first j elements, and D_j */
};

/* The factor of the block that begins at column `at`, and its width *w. */
const float *moments_factor(const struct moments *m, size_t at, size_t *w);

/* Return the sum over n rows d, f32 [n, m->cols], of d^T H d: the error of the
 * outputs of a matrix whose rows change by d. H has its damping. */
double moments_error(const struct moments *m, const float *d, size_t n);

/* A text of the calibration. */
struct calibration_text {
    int32_t *tokens;
    size_t n;
};

struct calibration;

/* Run the model src over the texts of *o (calibrate, calibrate_self), and
 * collect the moments. on `o->threads` threads. Results do not depend on their
 * number. The caller closes it. */
int calibration_open(struct calibration **out, const char *src,
                     const struct qwick_quantize_options *o,
                     struct qwick_err *e);
void calibration_close(struct calibration *c);

/* Return the moments of the inputs of a matrix: `tensor` is the name of the
 * source's tensor as floats (".../q_proj.weight"), and expert its index in a
 * stack, else 0. NULL: nothing multiplies by it, or it has seen no token. */
const struct moments *calibration_find(const struct calibration *c,
                                       const char *tensor, size_t expert);

/* The texts, as the passes had them. */
const struct calibration_text *calibration_texts(const struct calibration *c,
                                                 size_t *n);

/* ---- rounding with error feedback (feedback.c) ---------------------------- */

/* What the elements of a row may become: those of a group are multiples of a
 * step, plus a base. Arrays [cols]. */
struct grid {
    float *step, *base;
    float low, high;    /* the least and the largest multiple */
    const float *table; /* [high + 1] the multiples, ascending, if they are not
                           all whole numbers from low to high; NULL: they are */
};

#endif
