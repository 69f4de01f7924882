/* Codes by error feedback: the sum of d^T A d is that of D_j times the square
 * of d_j + sum of U_ij d_i over earlier columns i, so that each column is
 * rounded to what makes its own square least. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
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
};

int feedback_room_init(struct feedback_room *r, size_t block,
                       struct qwick_err *e)
{
    size_t n = FEEDBACK_ROWS * block;
    size_t work = KERNEL_WORK + FEEDBACK_ROWS * FEEDBACK_UNIT;
    *r = (struct feedback_room){0};
    r->errors = aligned_alloc(64, (n + 15) / 16 * 16 * sizeof *r->errors);
    r->work = aligned_alloc(64, work * sizeof *r->work);
    r->tile = aligned_alloc(64, FEEDBACK_UNIT * sizeof *r->tile);
    if (r->errors && r->work && r->tile)
        return 0;
    feedback_room_free(r);
    return err_oom(e, n * sizeof *r->errors);
}

void feedback_room_free(struct feedback_room *r)
{
    free(r->errors);
    free(r->work);
    free(r->tile);
    *r = (struct feedback_room){0};
}

static float *numbers(column *c)
{
    return (float *)(void *)c;
}

/* Read columns order[0..n) of f->n rows; other rows get zeros. */
static void gather(struct tile *t, const struct feedback *f,
                   const uint32_t *order, size_t n)
{
    memset(t, 0, n * sizeof *t);
    for (size_t j = 0; j < n; j++) {
        for (size_t r = 0; r < f->n; r++)
            numbers(&t[j].w)[r] = f->w[r * f->m->cols + order[j]];
        t[j].to = t[j].w;
    }
}

/* Add what the columns of earlier units say: y [FEEDBACK_ROWS, ld]. */
static void add_earlier(struct tile *t, const float *y, size_t ld, size_t n)
{
    for (size_t j = 0; j < n; j++)
        for (size_t r = 0; r < FEEDBACK_ROWS; r++)
            numbers(&t[j].to)[r] += y[r * ld + j];
}

/* Choose the steps and bases of a unit of n columns, which begins at column
 * `first` of the matrix. d: the factor's D, d_ld from one to the next one. */
static int fit_unit(const struct feedback *f, struct tile *t,
                    const uint32_t *order, const float *d, size_t d_ld,
                    size_t n)
{
    _Alignas(64) float x[FEEDBACK_UNIT], h[FEEDBACK_UNIT];
    float step[FEEDBACK_UNIT], base[FEEDBACK_UNIT];
    size_t first = order[0] / f->unit * f->unit;
    for (size_t j = 0; j < n; j++)
        h[order[j] - first] = d[j * d_ld];
    for (size_t r = 0; r < f->n; r++) {
        for (size_t j = 0; j < n; j++)
            x[order[j] - first] = numbers(&t[j].to)[r];
        if (f->fit(f->ctx, r, first, x, h, step, base))
            return -1;
        for (size_t j = 0; j < n; j++) {
            numbers(&t[j].step)[r] = step[order[j] - first];
            numbers(&t[j].base)[r] = base[order[j] - first];
        }
    }
    return 0;
}

/* The nearest multiple to v, and its code. */
static vec nearest(vec v, const struct grid *g, vec *code)
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

/* Round a column; returns weights minus results. codes: those of the column in
 * the first row. */
static column round_column(const struct tile *t, const struct grid *g,
                           unsigned char *codes, size_t cols, size_t n)
{
    column error;
    vec q[VECS];
    for (size_t i = 0; i < VECS; i++) {
        vec step = t->step.v[i], base = t->base.v[i];
        vec is_zero = (vec)(step == lanes_splat(0));
        vec inverse = 1 / lanes_choose((ivec)is_zero, lanes_splat(1), step);
        vec v = (t->to.v[i] - base) * inverse;
        v = lanes_choose((ivec)is_zero, lanes_splat(0), v);
        vec to = nearest(v, g, &q[i]);
        error.v[i] = t->w.v[i] - (base + to * step);
    }
    for (size_t r = 0; r < n; r++)
        codes[r * cols] = (unsigned char)(int)((const float *)q)[r];
    return error;
}

/* Round n columns of a block of w columns; they begin at `from` in its order.
 * u: the factor from row `from` and its column `from` on. */
static void round_unit(const struct feedback *f, struct tile *t, const float *u,
                       size_t w, const uint32_t *order, size_t from, size_t n)
{
    for (size_t j = 0; j < n; j++, u += w + 1) {
        column error =
            round_column(&t[j], f->g, f->codes + order[j], f->m->cols, f->n);
        for (size_t r = 0; r < FEEDBACK_ROWS; r++)
            f->room->errors[r * w + from + j] = numbers(&error)[r];
        for (size_t k = j + 1; k < n; k++)
            for (size_t i = 0; i < VECS; i++)
                t[k].to.v[i] += error.v[i] * u[(k - j) * w];
    }
}

int feedback_codes(const struct feedback *f)
{
    const struct moments *m = f->m;
    struct tile *t = f->room->tile;
    float *work = f->room->work, *y = work + KERNEL_WORK;
    for (size_t at = 0, width; at < m->cols; at += width) {
        const float *factor = moments_factor(m, at, &width);
        for (size_t from = 0, n; from < width; from += n) {
            const uint32_t *order = m->order + at + from;
            const float *u = factor + from * width;
            n = width - from < f->unit ? width - from : f->unit;
            gather(t, f, order, n);
            if (from) {
                f->k->gemm_f32[DT_F32](y, n, f->room->errors, width, u, width,
                                       FEEDBACK_ROWS, n, from, work);
                add_earlier(t, y, n, n);
            }
            if (fit_unit(f, t, order, u + from, width + 1, n))
                return -1;
            round_unit(f, t, u + from, width, order, from, n);
        }
    }
    return 0;
}
