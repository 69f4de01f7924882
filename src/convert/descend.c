/* Coordinate descent: each code in turn becomes the best one, given all others,
 * and steps and bases are fitted to the codes.
 *
 * Let d be the errors of a row in the order of the moments, and m = d (U + I),
 * so that d A d^T = sum of D_j m_j^2. The slope of column k, half of the
 * derivative, is
 *     (d A)_k = D_k m_k + sum over j > k of U_kj D_j m_j
 * and d_k - (d A)_k / A_kk is the best d_k. Units are taken from the last one
 * to the first. m is known from error feedback, and only later columns depend
 * on what changes: so the products need U alone, not A. */
#include <math.h>
#include <string.h>

#include "convert/feedback_tile.h"

/* PASSES: over all units. SWEEPS: over the columns of a unit. Of what could be
 * gained, 3 passes gain all but 2% (demo model, 3 bits). All rows get all of
 * them, so that none depends on the rows beside it. */
enum { PASSES = 3, SWEEPS = 2 };

/* A unit of a block of moments. */
struct place {
    const struct feedback *f;
    struct tile *t;        /* [n] its columns */
    const float *u;        /* the factor, from its first row and column on */
    const float *near;     /* A of its columns, rows FEEDBACK_UNIT apart */
    const uint32_t *order; /* [n] of its columns */
    float *error, *made;   /* [rows, w] from its first column on */
    float *pull;           /* [rows, w] D_j m_j, likewise */
    size_t w, n, rest;     /* columns: of the block, its own, after it */
    size_t first;          /* column of the matrix */
};

static void add_product(column *to, const column *x, float times)
{
    for (size_t i = 0; i < VECS; i++)
        to->v[i] += x->v[i] * times;
}

/* Read the unit's columns. */
static void gather(const struct place *p)
{
    const struct feedback *f = p->f;
    float step[FEEDBACK_UNIT], base[FEEDBACK_UNIT];
    memset(p->t, 0, p->n * sizeof *p->t);
    for (size_t r = 0; r < f->n; r++) {
        f->read(f->ctx, r, p->first, step, base);
        for (size_t j = 0; j < p->n; j++) {
            struct tile *t = &p->t[j];
            size_t c = p->order[j];
            numbers(&t->w)[r] = f->w[r * f->m->cols + c];
            numbers(&t->step)[r] = step[c - p->first];
            numbers(&t->base)[r] = base[c - p->first];
            numbers(&t->error)[r] = p->error[r * p->w + j];
            numbers(&t->made)[r] = p->made[r * p->w + j];
        }
    }
    for (size_t j = 0; j < p->n; j++)
        p->t[j].old = p->t[j].error;
}

static void find_slopes(const struct place *p)
{
    const struct feedback *f = p->f;
    float *work = f->room->work, *y = work + KERNEL_WORK;
    if (p->rest)
        f->k->gemm_f32[DT_F32](y, p->n, p->pull + p->n, p->w, p->u + p->n, p->w,
                               FEEDBACK_ROWS, p->n, p->rest, work);
    for (size_t k = 0; k < p->n; k++) {
        const float *u = p->u + k * p->w;
        column sum = {0};
        for (size_t r = 0; p->rest && r < FEEDBACK_ROWS; r++)
            numbers(&sum)[r] = y[r * p->n + k];
        for (size_t j = k; j < p->n; j++)
            add_product(&sum, &p->t[j].made,
                        (j == k ? 1 : u[j]) * p->u[j * (p->w + 1)]);
        p->t[k].slope = sum;
    }
}

/* Give column j its best codes. */
static void improve(const struct place *p, size_t j)
{
    const struct feedback *f = p->f;
    struct tile *t = &p->t[j];
    const float *a = p->near + j * FEEDBACK_UNIT;
    float inverse = 1 / a[j];
    vec q[VECS];
    column change;
    ivec any = {0};
    for (size_t i = 0; i < VECS; i++) {
        vec to = t->w.v[i] - t->error.v[i] + t->slope.v[i] * inverse;
        to = nearest_result(to, t->step.v[i], t->base.v[i], f->g, &q[i]);
        change.v[i] = t->w.v[i] - to - t->error.v[i];
        any |= change.v[i] != 0;
    }
    if (!(any[0] | any[1] | any[2] | any[3]))
        return;
    add_product(&t->error, &change, 1);
    for (size_t k = 0; k < p->n; k++)
        add_product(&p->t[k].slope, &change, a[k]);
    put_codes(f, p->order[j], q);
}

/* ---- steps and bases ----------------------------------------------------- */

/* Of a row: if its step rises by s and its base by b, the error changes by
 * ss s^2 + 2 sb s b + bb b^2 - 2 (slope_s s + slope_b b). */
struct form {
    double ss, sb, bb, slope_s, slope_b;
};

/* The multiples of a column's codes. */
static column multiples(const struct feedback *f, size_t col)
{
    column x = {0};
    for (size_t r = 0; r < f->n; r++) {
        unsigned char code = f->codes[r * f->m->cols + col];
        int q = f->g->low < 0 ? (signed char)code : code;
        numbers(&x)[r] = (float)(f->g->table ? f->g->table[q] : q);
    }
    return x;
}

/* The unit's columns that share a step and a base. */
struct sharing {
    size_t at[FEEDBACK_UNIT]; /* [n] their places */
    size_t n, col;            /* col: the first one of the matrix */
    column x[FEEDBACK_UNIT];  /* [n] multiples */
};

static void find_sharing(const struct place *p, size_t group, struct sharing *g)
{
    g->n = 0;
    g->col = p->first + group * p->f->group;
    for (size_t j = 0; j < p->n; j++)
        if ((p->order[j] - p->first) / p->f->group == group) {
            g->x[g->n] = multiples(p->f, p->order[j]);
            g->at[g->n++] = j;
        }
}

static void find_forms(const struct place *p, const struct sharing *g,
                       struct form forms[FEEDBACK_ROWS])
{
    memset(forms, 0, FEEDBACK_ROWS * sizeof *forms);
    for (size_t j = 0; j < g->n; j++) {
        const float *a = p->near + g->at[j] * FEEDBACK_UNIT;
        column ax = {0};
        double ones = 0;
        for (size_t k = 0; k < g->n; k++) {
            add_product(&ax, &g->x[k], a[g->at[k]]);
            ones += (double)a[g->at[k]];
        }
        for (size_t r = 0; r < p->f->n; r++) {
            struct form *m = &forms[r];
            double q = (double)((const float *)&g->x[j])[r];
            double slope = (double)numbers(&p->t[g->at[j]].slope)[r];
            m->ss += q * (double)numbers(&ax)[r];
            m->sb += q * ones;
            m->bb += ones;
            m->slope_s += q * slope;
            m->slope_b += slope;
        }
    }
}

/* Take the best step of row r, rounded, and the best base for it, if that
 * lowers the error. col: the first one that has them. Returns whether it does.
 */
static bool refit_row(const struct feedback *f, const struct form *m, size_t r,
                      size_t col, float *step, float *base)
{
    bool based = !f->no_bases;
    double den = based ? m->ss * m->bb - m->sb * m->sb : m->ss;
    float s = *step, b = *base;
    if (!(den > (based ? 1e-6 * m->ss * m->bb : 0)))
        return false; /* the codes are all the same, or 0 */
    s +=
        (float)((based ? m->slope_s * m->bb - m->slope_b * m->sb : m->slope_s) /
                den);
    f->write(f->ctx, r, col, &s, &b, false);
    double ds = (double)s - (double)*step;
    b = based ? *base + (float)((m->slope_b - ds * m->sb) / m->bb) : b;
    f->write(f->ctx, r, col, &s, &b, false);
    double db = (double)b - (double)*base;
    double change = m->ss * ds * ds + 2 * m->sb * ds * db + m->bb * db * db -
                    2 * (m->slope_s * ds + m->slope_b * db);
    if (!isfinite(s) || !isfinite(b) || s == 0 || !(change < 0))
        return false;
    f->write(f->ctx, r, col, &s, &b, true);
    *step = s;
    *base = b;
    return true;
}

/* Give columns new steps and bases. */
static void take_steps(const struct place *p, const struct sharing *g,
                       const column *step, const column *base)
{
    column change[FEEDBACK_UNIT];
    for (size_t j = 0; j < g->n; j++) {
        struct tile *t = &p->t[g->at[j]];
        t->step = *step;
        t->base = *base;
        for (size_t i = 0; i < VECS; i++) {
            vec error = t->w.v[i] - (base->v[i] + g->x[j].v[i] * step->v[i]);
            change[j].v[i] = error - t->error.v[i];
            t->error.v[i] = error;
        }
    }
    for (size_t j = 0; j < p->n; j++)
        for (size_t k = 0; k < g->n; k++)
            add_product(&p->t[j].slope, &change[k],
                        p->near[j * FEEDBACK_UNIT + g->at[k]]);
}

/* Fit the unit's steps and bases to its codes. */
static void refit(const struct place *p)
{
    struct sharing g;
    struct form forms[FEEDBACK_ROWS];
    for (size_t i = 0; i < p->n / p->f->group; i++) {
        bool changed = false;
        find_sharing(p, i, &g);
        column step = p->t[g.at[0]].step, base = p->t[g.at[0]].base;
        find_forms(p, &g, forms);
        for (size_t r = 0; r < p->f->n; r++)
            changed = refit_row(p->f, &forms[r], r, g.col, &numbers(&step)[r],
                                &numbers(&base)[r]) ||
                      changed;
        if (changed)
            take_steps(p, &g, &step, &base);
    }
}

/* ---- */

/* Write the unit's errors, and what depends on them. */
static void spread(const struct place *p)
{
    const struct feedback *f = p->f;
    float *work = f->room->work, *y = work + KERNEL_WORK;
    float change[FEEDBACK_ROWS * FEEDBACK_UNIT];
    for (size_t j = 0; j < p->n; j++) {
        struct tile *t = &p->t[j];
        const float *u = p->u + j * p->w;
        for (size_t r = 0; r < FEEDBACK_ROWS; r++)
            p->error[r * p->w + j] = numbers(&t->error)[r];
        add_product(&t->error, &t->old, -1);
        for (size_t i = 0; i < j; i++)
            add_product(&t->made, &p->t[i].error, u[i]);
        add_product(&t->made, &t->error, 1);
        for (size_t r = 0; r < FEEDBACK_ROWS; r++) {
            float made = numbers(&t->made)[r];
            change[r * p->n + j] = numbers(&t->error)[r];
            p->made[r * p->w + j] = made;
            p->pull[r * p->w + j] = made * u[j];
        }
    }
    if (!p->rest)
        return;
    f->k->gemm_f32[DT_F32](y, p->rest, change, p->n, p->u + p->n * p->w, p->w,
                           FEEDBACK_ROWS, p->rest, p->n, work);
    for (size_t r = 0; r < FEEDBACK_ROWS; r++)
        for (size_t j = 0; j < p->rest; j++) {
            size_t at = r * p->w + p->n + j;
            p->made[at] += y[r * p->rest + j];
            p->pull[at] = p->made[at] * p->u[(p->n + j) * (p->w + 1)];
        }
}

static void descend(const struct place *p)
{
    gather(p);
    find_slopes(p);
    for (int i = 0; i < SWEEPS; i++) {
        for (size_t j = 0; j < p->n; j++)
            improve(p, j);
        if (p->f->write)
            refit(p);
    }
    spread(p);
}

static struct place find_place(const struct feedback *f, size_t at,
                               const float *factor, size_t w, size_t end)
{
    size_t from = (end - 1) / f->unit * f->unit;
    const struct moments *m = f->m;
    return (struct place){.f = f,
                          .t = f->room->tile,
                          .u = factor + from * (w + 1),
                          .near = m->near + (at + from) * FEEDBACK_UNIT +
                                  from % FEEDBACK_UNIT,
                          .order = m->order + at + from,
                          .error = f->room->errors + from,
                          .made = f->room->made + from,
                          .pull = f->room->pull + from,
                          .w = w,
                          .n = end - from,
                          .rest = w - end,
                          .first = m->order[at + from] / f->unit * f->unit};
}

void feedback_descend(const struct feedback *f, size_t at)
{
    size_t w;
    const float *factor = moments_factor(f->m, at, &w);
    for (size_t r = 0; r < FEEDBACK_ROWS; r++)
        for (size_t j = 0; j < w; j++)
            f->room->pull[r * w + j] =
                f->room->made[r * w + j] * factor[j * (w + 1)];
    for (int pass = 0; pass < PASSES; pass++)
        for (size_t end = w; end > 0;) {
            struct place p = find_place(f, at, factor, w, end);
            descend(&p);
            end -= p.n;
        }
}
