/* Codes by error feedback: the sum of d^T A d is that of D_j times the square
 * of d_j + sum of U_ij d_i over earlier columns i, so that each column is
 * rounded to what makes its own square least. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "convert/calibrate.h"
#include "convert/feedback_tile.h"

int feedback_room_init(struct feedback_room *r, size_t block,
                       struct qwick_err *e)
{
    size_t n = (FEEDBACK_ROWS * block + 15) / 16 * 16;
    size_t wide = block > FEEDBACK_UNIT ? block : FEEDBACK_UNIT;
    size_t work = KERNEL_WORK + FEEDBACK_ROWS * wide;
    *r = (struct feedback_room){0};
    r->errors = aligned_alloc(64, 3 * n * sizeof *r->errors);
    r->work = aligned_alloc(64, work * sizeof *r->work);
    r->tile = aligned_alloc(64, FEEDBACK_UNIT * sizeof *r->tile);
    if (!r->errors || !r->work || !r->tile) {
        feedback_room_free(r);
        return err_oom(e, 3 * n * sizeof *r->errors);
    }
    r->made = r->errors + n;
    r->pull = r->made + n;
    return 0;
}

void feedback_room_free(struct feedback_room *r)
{
    free(r->errors);
    free(r->work);
    free(r->tile);
    *r = (struct feedback_room){0};
}

/* Read columns order[0..n) of f->n rows; other rows get zeros. */
static void gather(struct tile *t, const struct feedback *f,
                   const uint32_t *order, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        t[j].w = t[j].step = t[j].base = (column){0};
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

/* Round column col of the matrix. error: weights minus results; made: the same
 * with what earlier columns add. */
static void round_column(const struct feedback *f, const struct tile *t,
                         size_t col, column *error, column *made)
{
    vec q[VECS];
    for (size_t i = 0; i < VECS; i++) {
        vec to =
            nearest_result(t->to.v[i], t->step.v[i], t->base.v[i], f->g, &q[i]);
        error->v[i] = t->w.v[i] - to;
        made->v[i] = t->to.v[i] - to;
    }
    put_codes(f, col, q);
}

/* Round n columns of a block of w columns; they begin at `from` in its order.
 * u: the factor from row `from` and its column `from` on. */
static void round_unit(const struct feedback *f, struct tile *t, const float *u,
                       size_t w, const uint32_t *order, size_t from, size_t n)
{
    float *errors = f->room->errors + from, *made = f->room->made + from;
    for (size_t j = 0; j < n; j++, u += w + 1) {
        column error, whole;
        round_column(f, &t[j], order[j], &error, &whole);
        for (size_t r = 0; r < FEEDBACK_ROWS; r++) {
            errors[r * w + j] = numbers(&error)[r];
            made[r * w + j] = numbers(&whole)[r];
        }
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
        if (f->read)
            feedback_descend(f, at);
    }
    return 0;
}
