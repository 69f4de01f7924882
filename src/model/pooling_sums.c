/* The arithmetic of sentence-transformers' Pooling. Sums are doubles. */
#include <math.h>
#include <string.h>

#include "model/pooling.h"

enum span_rows pooling_rows(const struct pooling_modes *modes,
                            bool bidirectional)
{
    if (modes->n == 1 && modes->v[0] == POOLING_LAST)
        return ROWS_LAST;
    return modes->n == 1 && modes->v[0] == POOLING_CLS && bidirectional
               ? ROWS_FIRST
               : ROWS_ALL;
}

/* Tokens that a mode leaves out. At least one token counts. */
static size_t skipped(const struct pooled *t)
{
    return t->n_skip < t->n ? t->n_skip : t->n - 1;
}

/* A NaN stays. */
static void take_max(double *acc, const float *row, size_t d, bool first)
{
    for (size_t k = 0; k < d; k++)
        if (first || (double)row[k] > acc[k] || isnan(row[k]))
            acc[k] = (double)row[k];
}

static void add_row(double *acc, const float *row, size_t d, double weight)
{
    for (size_t k = 0; k < d; k++)
        acc[k] += weight * (double)row[k];
}

static void set_row(double *acc, const float *row, size_t d)
{
    for (size_t k = 0; k < d; k++)
        acc[k] = (double)row[k];
}

/* Add the state of token i. */
static void add_token(enum pooling_mode mode, double *acc,
                      const struct pooled *t, size_t d, const float *row,
                      size_t i)
{
    switch (mode) {
    case POOLING_CLS:
        if (i == 0)
            set_row(acc, row, d);
        return;
    case POOLING_LAST:
        if (i + 1 == t->n)
            set_row(acc, row, d);
        return;
    case POOLING_MAX:
        if (i >= skipped(t))
            take_max(acc, row, d, i == skipped(t));
        return;
    case POOLING_MEAN:
    case POOLING_MEAN_SQRT:
    case POOLING_WEIGHTED_MEAN:
    case N_POOLING_MODES:
        break;
    }
    if (i >= skipped(t))
        add_row(acc, row, d, mode == POOLING_WEIGHTED_MEAN ? (double)i + 1 : 1);
}

void pooling_add(const struct pooling_modes *modes, struct pooled *t, size_t d,
                 const float *rows, size_t at, size_t n)
{
    for (size_t j = 0; j < modes->n; j++)
        for (size_t i = 0; i < n; i++)
            add_token(modes->v[j], t->acc + j * d, t, d, rows + i * d, at + i);
}

/* The number by which a mode divides its sum. */
static double divisor(enum pooling_mode mode, const struct pooled *t)
{
    double skip = (double)skipped(t), n = (double)t->n;
    switch (mode) {
    case POOLING_MEAN:
        return n - skip;
    case POOLING_MEAN_SQRT:
        return sqrt(n - skip);
    case POOLING_WEIGHTED_MEAN:
        return (n * (n + 1) - skip * (skip + 1)) / 2;
    case POOLING_CLS:
    case POOLING_MAX:
    case POOLING_LAST:
    case N_POOLING_MODES:
        break;
    }
    return 1;
}

void pooling_finish(const struct pooling_modes *modes, const struct pooled *t,
                    size_t d, float *out)
{
    for (size_t j = 0; j < modes->n; j++) {
        double by = divisor(modes->v[j], t);
        for (size_t k = 0; k < d; k++)
            out[j * d + k] = (float)(t->acc[j * d + k] / by);
    }
}
