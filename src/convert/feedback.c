/* Codes by error feedback: the sum of d^T A d is that of D_j times the square of
 * d_j + sum of U_ij d_i over earlier columns i, so that each column is rounded
 * to what makes its own square least. */
#include <stdlib.h>

#include "base/buf.h"
#include "convert/calibrate.h"
#include "model/lanes.h"

/* Columns between products; vectors of a column's rows. */
enum { STEP = 64, VECS = FEEDBACK_ROWS / LANES };

/* Adding and subtracting it rounds |v| < 2^22 to nearest even. */
#define ROUNDER 12582912.0f

/* A number of each row. */
typedef struct {
    vec v[VECS];
} column;

/* Columns in the order of the block, all rows of the tile beside each other. */
struct tile {
    column w;          /* weights */
    column to;         /* weights, and what earlier columns add */
    column step, base;
};

int feedback_room_init(struct feedback_room *r, size_t block,
                       struct qwick_err *e)
{
    size_t n = FEEDBACK_ROWS * block, work = KERNEL_WORK + FEEDBACK_ROWS * STEP;
    *r = (struct feedback_room){0};
    r->errors = aligned_alloc(64, (n + 15) / 16 * 16 * sizeof *r->errors);
    r->work = aligned_alloc(64, work * sizeof *r->work);
    if (r->errors && r->work)
        return 0;
    feedback_room_free(r);
    return err_oom(e, n * sizeof *r->errors);
}

void feedback_room_free(struct feedback_room *r)
{
    free(r->errors);
    free(r->work);
    *r = (struct feedback_room){0};
}

/* Read column `col` of n rows; the other rows get zeros. */
static void gather(struct tile *t, const float *w, const float *step,
                   const float *base, size_t cols, size_t col, size_t n)
{
    *t = (struct tile){0};
    for (size_t r = 0; r < n; r++) {
        ((float *)&t->w)[r] = w[r * cols + col];
        ((float *)&t->step)[r] = step[r * cols + col];
        ((float *)&t->base)[r] = base[r * cols + col];
    }
    t->to = t->w;
}

/* Add what the columns of earlier steps say: y [FEEDBACK_ROWS, STEP]. */
static void add_earlier(struct tile *t, const float *y, size_t n)
{
    for (size_t j = 0; j < n; j++)
        for (size_t r = 0; r < FEEDBACK_ROWS; r++)
            ((float *)&t[j].to)[r] += y[r * STEP + j];
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

/* Round n columns from `from` on, in the order of the block, whose factor is f
 * [w, w]. */
static void round_step(const struct feedback_room *room, struct tile *t,
                       const struct grid *g, const float *f, size_t w,
                       const uint32_t *order, size_t from, size_t n,
                       unsigned char *codes, size_t cols, size_t n_rows)
{
    for (size_t j = 0; j < n; j++) {
        column error = round_column(&t[j], g, codes + order[from + j], cols,
                                    n_rows);
        for (size_t r = 0; r < FEEDBACK_ROWS; r++)
            room->errors[r * w + from + j] = ((const float *)&error)[r];
        const float *u = f + (from + j) * w + from + j;
        for (size_t k = j + 1; k < n; k++) {
            u += w;
            for (size_t i = 0; i < VECS; i++)
                t[k].to.v[i] += error.v[i] * *u;
        }
    }
}

void feedback_codes(const struct moments *m, const struct kernels *k,
                    const struct feedback_room *r, const struct grid *g,
                    const float *w, const float *step, const float *base,
                    unsigned char *codes, size_t n)
{
    struct tile t[STEP];
    float *y = r->work + KERNEL_WORK;
    for (size_t at = 0, width; at < m->cols; at += width) {
        const float *f = moments_factor(m, at, &width);
        const uint32_t *order = m->order + at;
        for (size_t from = 0, cols; from < width; from += cols) {
            cols = width - from < STEP ? width - from : STEP;
            for (size_t j = 0; j < cols; j++)
                gather(&t[j], w, step, base, m->cols, order[from + j], n);
            if (from) {
                k->gemm_f32[DT_F32](y, STEP, r->errors, width, f + from * width,
                                    width, FEEDBACK_ROWS, cols, from, r->work);
                add_earlier(t, y, cols);
            }
            round_step(r, t, g, f, width, order, from, cols, codes, m->cols, n);
        }
    }
}
