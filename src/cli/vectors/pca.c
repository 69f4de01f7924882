#include "cli/vectors/pca.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* A map needs no more digits than a screen has pixels: the iteration ends when
 * a step turns the axis by less than TURN, or after MAX_STEPS. */
#define TURN 1e-6
enum { MAX_STEPS = 300 };

struct pca_work {
    const float *x; /* [n, dim] */
    size_t n, dim;
    double *mean;  /* [dim] */
    double *axes;  /* [PCA_AXES, dim] */
    double *next;  /* [dim] */
    double *along; /* [n] places along the current axis */
};

static double dot(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Scale v to length 1. Returns its length before; 0 leaves it unchanged. */
static double unit(double *v, size_t n)
{
    double len = sqrt(dot(v, v, n));
    for (size_t i = 0; len > 0 && i < n; i++)
        v[i] /= len;
    return len;
}

/* Set w->along to the places of the vectors along v. */
static void project(struct pca_work *w, const double *v)
{
    double mean = dot(w->mean, v, w->dim);
    for (size_t i = 0; i < w->n; i++) {
        const float *row = w->x + i * w->dim;
        double sum = 0;
        for (size_t k = 0; k < w->dim; k++)
            sum += (double)row[k] * v[k];
        w->along[i] = sum - mean;
    }
}

/* Set w->next to the sum of the centred vectors, each times its place, without
 * the parts along the first n_axes axes. */
static void gather(struct pca_work *w, size_t n_axes)
{
    double *out = w->next, sum = 0;
    for (size_t k = 0; k < w->dim; k++)
        out[k] = 0;
    for (size_t i = 0; i < w->n; i++) {
        const float *row = w->x + i * w->dim;
        sum += w->along[i];
        for (size_t k = 0; k < w->dim; k++)
            out[k] += w->along[i] * (double)row[k];
    }
    for (size_t k = 0; k < w->dim; k++)
        out[k] -= sum * w->mean[k];
    for (size_t a = 0; a < n_axes; a++) {
        const double *axis = w->axes + a * w->dim;
        double part = dot(out, axis, w->dim);
        for (size_t k = 0; k < w->dim; k++)
            out[k] -= part * axis[k];
    }
}

/* Fix the sign of an axis. */
static void orient(double *v, size_t n)
{
    size_t most = 0;
    for (size_t k = 1; k < n; k++)
        if (fabs(v[k]) > fabs(v[most]))
            most = k;
    bool turned = n && v[most] < 0;
    for (size_t k = 0; turned && k < n; k++)
        v[k] = -v[k];
}

/* Find axis a. Returns the variance along it, times n; floor: a value that is
 * no more than rounding. */
static double find_axis(struct pca_work *w, size_t a, double floor)
{
    double *v = w->axes + a * w->dim;
    /* different numbers, in a fixed order */
    for (size_t k = 0; k < w->dim; k++)
        v[k] = 1 + (double)(k * 2654435761u % 1024) / 1024;
    unit(v, w->dim);
    for (int step = 0; step < MAX_STEPS; step++) {
        project(w, v);
        gather(w, a);
        if (unit(w->next, w->dim) <= floor) {
            for (size_t k = 0; k < w->dim; k++)
                v[k] = 0;
            break;
        }
        double turn = 0;
        for (size_t k = 0; k < w->dim; k++) {
            turn = fmax(turn, fabs(w->next[k] - v[k]));
            v[k] = w->next[k];
        }
        if (turn < TURN)
            break;
    }
    orient(v, w->dim);
    project(w, v);
    return dot(w->along, w->along, w->n);
}

/* Set the mean. Returns the whole variance, times n. */
static double centre(struct pca_work *w)
{
    double sum = 0;
    for (size_t i = 0; i < w->n; i++)
        for (size_t k = 0; k < w->dim; k++)
            w->mean[k] += (double)w->x[i * w->dim + k];
    for (size_t k = 0; k < w->dim; k++)
        w->mean[k] /= w->n ? (double)w->n : 1;
    for (size_t i = 0; i < w->n; i++)
        for (size_t k = 0; k < w->dim; k++) {
            double d = (double)w->x[i * w->dim + k] - w->mean[k];
            sum += d * d;
        }
    return sum;
}

int pca_find(const float *x, size_t n, size_t dim, struct pca *r,
             struct qwick_err *e)
{
    size_t n_work = (2 + PCA_AXES) * dim + n;
    double *work = calloc(n_work + 1, sizeof(*work));
    struct pca_work w = {x,
                         n,
                         dim,
                         work,
                         work + dim,
                         work + (1 + PCA_AXES) * dim,
                         work + (2 + PCA_AXES) * dim};
    *r = (struct pca){.at = calloc(n * PCA_AXES + 1, sizeof(*r->at))};
    if (!work || !r->at) {
        free(work);
        return err_oom(e, n_work * sizeof(*work));
    }
    double all = centre(&w);
    for (size_t a = 0; a < PCA_AXES; a++) {
        /* float32 vectors are exact to 2^-24 */
        double part = find_axis(&w, a, all * 0x1p-40);
        r->share[a] = all > 0 ? part / all : 0;
        for (size_t i = 0; i < n; i++)
            r->at[i * PCA_AXES + a] = w.along[i];
    }
    free(work);
    return 0;
}
