/* Moments of an embedding from the weights that read it. */
#include <stdlib.h>

#include "base/buf.h"
#include "convert/calibrate.h"
#include "model/model.h"

/* What all threads add. */
struct reading {
    struct moments *m;
    const struct moments_room *room;
    float *x; /* [MOMENTS_ROWS, cols] */
    size_t n;
};

static void add_body(void *ctx, struct par_team *team, int tid, int n_threads)
{
    const struct reading *r = ctx;
    moments_add(r->m, r->room, r->x, r->m->cols, NULL, r->n, team, tid,
                n_threads);
}

/* Add the rows of a matrix, times the norm before it. */
static void add_rows(struct reading *r, struct par_pool *pool,
                     const struct matrix *w, const float *norm)
{
    for (size_t i = 0; i < w->rows; i += r->n) {
        r->n = w->rows - i < MOMENTS_ROWS ? w->rows - i : MOMENTS_ROWS;
        w->ops->to_f32(r->room->k, r->x, w, i, r->n);
        for (size_t j = 0; norm && j < r->n * w->cols; j++)
            r->x[j] *= norm[j % w->cols];
        par_run(pool, add_body, r);
    }
}

int moments_of_readers(struct moments *m, const struct moments_room *room,
                       struct par_pool *pool, const struct layer *l,
                       struct qwick_err *e)
{
    const struct matrix *ws[LAYER_INPUTS + 4];
    struct reading r = {m, room, NULL, 0};
    size_t n_mix = layer_inputs(l, ws), n = n_mix;
    ws[n++] = &l->mlp.gate_proj;
    ws[n++] = &l->mlp.up_proj;
    ws[n++] = &l->experts.shared.gate_proj;
    ws[n++] = &l->experts.shared.up_proj;
    r.x = malloc(MOMENTS_ROWS * m->cols * sizeof *r.x);
    if (!r.x)
        return err_oom(e, MOMENTS_ROWS * m->cols * sizeof *r.x);
    for (size_t i = 0; i < n; i++)
        if (ws[i]->rows && ws[i]->cols == m->cols)
            add_rows(&r, pool, ws[i], i < n_mix ? l->input_norm : l->post_norm);
    free(r.x);
    return 0;
}

/* Their mean H_kk. */
static float mean_of(const struct moments *m)
{
    float sum = 0;
    for (size_t i = 0; i < m->cols; i++)
        sum += m->diagonal[i] / (float)m->cols;
    return sum;
}

void moments_blend(struct moments *m, const struct moments *other, float part)
{
    float own = mean_of(m), others = mean_of(other);
    float times = others > 0 ? part * own / others : 0;
    for (size_t i = 0; i < m->cols; i++)
        m->diagonal[i] += times * other->diagonal[i];
    for (size_t i = 0, n = moments_floats(m->cols, m->block); i < n; i++)
        m->factor[i] += times * other->factor[i];
}
