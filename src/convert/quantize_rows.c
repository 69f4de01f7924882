/* Calibrated rounding: whole rows, whose errors are weighed by the moments of
 * their inputs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "convert/calibrate.h"
#include "convert/quantize.h"

size_t quantize_row_cols(const struct quantize_job *job)
{
    const struct st_tensor *t = job->from.src;
    return job->from.stride ? job->from.cols
           : t->rank > 1    ? t->shape[t->rank - 1]
                            : 0;
}

/* The matrix of a stack to which an element of a job belongs, and the elements
 * of a matrix. */
static size_t find_matrix(const struct quantize_job *job, size_t i,
                          size_t *n_each)
{
    const struct st_tensor *t = job->from.src;
    size_t n = 1;
    for (size_t d = 0; d < t->rank; d++)
        n *= t->shape[d]; /* at most the file's */
    *n_each = t->rank > 2 ? n / t->shape[0] : n;
    return *n_each ? quantize_place(&job->from, i) / *n_each : 0;
}

/* The moments for element i of a job; NULL: none. */
static const struct moments *find_moments(const struct quantize_plan *p,
                                          const struct quantize_job *job,
                                          size_t i)
{
    size_t each, expert = find_matrix(job, i, &each);
    const struct moments *m =
        calibration_find(p->calibration, job->from.src->name, expert);
    return m && m->cols == quantize_row_cols(job) ? m : NULL;
}

static bool is_calibrated(const struct quantize_plan *p,
                          const struct quantize_shard *s,
                          const struct quantize_job *job)
{
    size_t cols = quantize_row_cols(job);
    bool rounds = job->bits
                      ? !job->codes && !job->kept
                      : !job->same && blocks_codes(s->out[job->out[0]].dtype);
    return rounds && job->from.n && cols && cols <= QUANTIZE_COLS &&
           job->from.n % cols == 0 && find_moments(p, job, 0);
}

void quantize_mark_jobs(struct quantize_plan *p)
{
    for (size_t i = 0; p->calibration && i < p->n_shards; i++)
        for (size_t j = 0; j < p->shards[i].n_jobs; j++) {
            struct quantize_job *job = &p->shards[i].jobs[j];
            size_t cols = quantize_row_cols(job);
            job->calibrated = is_calibrated(p, &p->shards[i], job);
            if (job->calibrated && cols > p->row_cols)
                p->row_cols = cols;
        }
    if (p->calibration && !p->row_cols)
        quantize_warn(p, "calibrate",
                      "changes nothing: no matrix gets a type with a search "
                      "for scales");
}

/* ---- memory -------------------------------------------------------------- */

struct quantize_rows *quantize_rows_new(size_t cols)
{
    size_t n = (FEEDBACK_ROWS * cols + 15) / 16 * 16;
    struct quantize_rows *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->w = aligned_alloc(64, n * sizeof *r->w);
    r->scales = malloc(2 * n / 32 * sizeof *r->scales);
    r->codes = malloc(n);
    r->weights = aligned_alloc(64, (cols + 15) / 16 * 64);
    r->blocks = calloc(cols / 32 + 1, FEEDBACK_ROWS * sizeof *r->blocks);
    if (!r->w || !r->scales || !r->codes || !r->weights || !r->blocks ||
        feedback_room_init(&r->feedback, cols, NULL)) {
        quantize_rows_free(r);
        return NULL;
    }
    r->biases = r->scales + n / 32;
    return r;
}

void quantize_rows_free(struct quantize_rows *r)
{
    if (!r)
        return;
    free(r->w);
    free(r->scales);
    free(r->codes);
    free(r->weights);
    free(r->blocks);
    feedback_room_free(&r->feedback);
    free(r);
}

/* ---- tiles --------------------------------------------------------------- */

size_t quantize_next_rows(const struct quantize_plan *p,
                          const struct quantize_job *job, size_t begin,
                          size_t n, struct quantize_rows *r)
{
    size_t cols = quantize_row_cols(job), each;
    size_t rows = n / cols < FEEDBACK_ROWS ? n / cols : FEEDBACK_ROWS;
    size_t matrix = find_matrix(job, begin, &each);
    while (rows > 1 &&
           find_matrix(job, begin + (rows - 1) * cols, &each) != matrix)
        rows--;
    r->moments = find_moments(p, job, begin);
    r->cols = cols;
    for (size_t i = 0; i < cols; i++)
        r->weights[i] = r->moments ? r->moments->diagonal[i] : 1;
    return rows;
}

size_t quantize_find_bad(const struct quantize_rows *r, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(r->w[i]))
            return i;
    return 0;
}

/* The nearest code for v = (weight - base) / step. */
static int nearest(float v, const struct grid *g)
{
    int q = g->low;
    if (!g->table)
        return (int)rintf(fminf(fmaxf(v, (float)q), (float)g->high));
    while (q < g->high && v > 0.5f * (float)(g->table[q] + g->table[q + 1]))
        q++;
    return q;
}

/* Without feedback. */
static int round_row(struct quantize_rows *r, const struct grid *g, size_t unit,
                     feedback_fit fit, size_t cols, size_t row)
{
    float step[FEEDBACK_UNIT], base[FEEDBACK_UNIT];
    const float *w = r->w + row * cols;
    unsigned char *codes = r->codes + row * cols;
    for (size_t i = 0; i < cols; i += unit) {
        if (fit(r, row, i, w + i, r->weights + i, step, base))
            return -1;
        for (size_t j = 0; j < unit; j++) {
            float v = step[j] != 0 ? (w[i + j] - base[j]) / step[j] : 0;
            codes[i + j] = (unsigned char)nearest(v, g);
        }
    }
    return 0;
}

int quantize_round_rows(const struct quantize_plan *p, const struct kernels *k,
                        struct quantize_rows *r, const struct feedback *form,
                        size_t cols, size_t n)
{
    struct feedback f = *form;
    int rc = 0;
    f.m = r->moments;
    f.k = k;
    f.room = &r->feedback;
    f.ctx = r;
    f.w = r->w;
    f.codes = r->codes;
    f.n = n;
    if (r->moments && r->moments->block > 1 && p->o->scales != QWICK_SCALES_LSQ)
        return feedback_codes(&f);
    for (size_t i = 0; i < n && !rc; i++)
        rc = round_row(r, f.g, f.unit, f.fit, cols, i);
    return rc;
}
