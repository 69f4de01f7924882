/* Principal components of vectors. */
#ifndef CLI_PCA_H
#define CLI_PCA_H

#include <stddef.h>

#include "base/err.h"

enum { PCA_AXES = 2 };

struct pca {
    double *at; /* [n, PCA_AXES] places of the vectors along the axes */
    double share[PCA_AXES]; /* of the variance, 0 to 1 */
};

/* Find the axes of the largest variance around the mean of x [n, dim], by power
 * iteration with a fixed start. Equal vectors give equal results. An axis has
 * the sign that makes its largest component positive. Without variance, all
 * places are 0. Returns 0, or -1 with *e set when out of memory. Free r->at
 * with free(). */
int pca_find(const float *x, size_t n, size_t dim, struct pca *r,
             struct qwick_err *e);

#endif
