/* Columns of the rows that are rounded together. */
#ifndef CONVERT_FEEDBACK_TILE_H
#define CONVERT_FEEDBACK_TILE_H

#include "convert/calibrate.h"
#include "model/lanes.h"

/* Vectors of a column. */
enum { VECS = FEEDBACK_ROWS / LANES };

/* Adding and subtracting it rounds |v| < 2^22 to nearest even. */
#define ROUNDER 12582912.0f

/* A number of each row. */
typedef struct {
    vec v[VECS];
} column;

/* A column of the rows that are rounded together. */
struct tile {
    column w;  /* weights */
    column to; /* weights, and what earlier columns add */
    column step, base;
    column error; /* weights minus results */
    column made;  /* error, and U_ij times those of earlier columns i */
    column slope; /* sum of A_ij times the errors of columns i */
    column old;   /* error, as it was read */
};

static inline float *numbers(column *c)
{
    return (float *)(void *)c;
}

/* The nearest multiple to v, and its code. */
static inline vec nearest(vec v, const struct grid *g, vec *code)
{
    vec q = lanes_splat((float)g->low);
    if (!g->table) {
        q = lanes_smaller(lanes_larger(v, q), lanes_splat((float)g->high));
        return *code = (q + ROUNDER) - ROUNDER;
    }
    vec to = lanes_splat(g->table[0]);
    for (int i = 0; i < g->high; i++) {
        float here = g->table[i], next = g->table[i + 1];
        ivec above = (ivec)(v > 0.5f * (here + next));
        to += lanes_choose(above, lanes_splat(next - here), lanes_splat(0));
        q += lanes_choose(above, lanes_splat(1), lanes_splat(0));
    }
    *code = q;
    return to;
}

/* The nearest result to `to`, and its code. */
static inline vec nearest_result(vec to, vec step, vec base,
                                 const struct grid *g, vec *code)
{
    ivec is_zero = step == lanes_splat(0);
    vec inverse = 1 / lanes_choose(is_zero, lanes_splat(1), step);
    vec v = (to - base) * inverse;
    v = lanes_choose(is_zero, lanes_splat(0), v);
    return base + nearest(v, g, code) * step;
}

/* Write the codes of column col. */
static inline void put_codes(const struct feedback *f, size_t col,
                             const vec q[VECS])
{
    for (size_t r = 0; r < f->n; r++)
        f->codes[r * f->m->cols + col] =
            (unsigned char)(int)((const float *)q)[r];
}

#endif
