/* What rounding costs: shares of outputs, and divergences of groups. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/flag.h"
#include "base/par.h"
#include "convert/widths.h"
#include "engine/core/engine.h"
#include "engine/tasks/divergence.h"
#include "engine/tasks/score_pass.h"
#include "model/affine.h"

/* SAMPLED: rows of a module whose errors are measured. ROWS: of a module that a
 * thread rounds at a time. */
enum { SAMPLED = 64, ROWS = 16 };

/* The passes: MAX_PIECE tokens of a text, of which the second half is measured.
 * WORK: products of weights and tokens, in all passes; on two cores of 2024,
 * about ten minutes. Rows of logits of the original are kept, at most
 * LOGITS_BYTES. */
enum { MAX_PIECE = 256, MIN_TOKENS = 1024, MAX_TOKENS = 16384 };
static const double WORK = 4.6e13;
static const size_t LOGITS_BYTES = (size_t)1 << 30;

/* A matrix that rounding replaces for a while. */
struct replaced {
    struct matrix *at, old;
};

struct measure {
    struct widths *w;
    struct qwick_engine *eng;
    const struct calibration *c;
    struct qwick_score_item *items; /* [n_items] */
    size_t n_items;
    size_t *first; /* [n_items] their first rows of `rows` and `kl` */
    float *rows;   /* [n_rows, vocab_size] logits of the original */
    double *kl;    /* [n_rows] */
    size_t n_rows;
    bool is_reference; /* rows are being written */
    struct replaced *replaced;
    size_t n_replaced;
    unsigned char **memory; /* [n_memory] of rounded modules */
    size_t n_memory;
};

/* ---- rounding ------------------------------------------------------------ */

/* Whether m has rows of the tensor. */
static bool is_part(const struct st_tensor *t, const struct matrix *m)
{
    return m->data[0] >= t->data && m->data[0] < t->data + t->n_bytes;
}

static bool is_plain(const struct matrix *m)
{
    return m->format == &format_bf16 || m->format == &format_f16 ||
           m->format == &format_f32;
}

/* The work of all threads on one module. */
struct rounding {
    const struct measure *q;
    const struct widths_module *m;
    struct affine_format f;
    /* all rows, to these arrays; or: */
    unsigned char *codes, *scales, *biases;
    size_t first, step, n; /* rows of a sample, and its error: */
    const struct moments *moments; /* NULL: unknown */
    double *errors;                /* [n] of each row */
    double *norms;                 /* [n] the same of the row itself */
    bool failed;
};

static const unsigned char *row_of(const struct widths_module *m, size_t row)
{
    return m->t->data + row * m->cols * dtype_bytes(m->t->dtype);
}

static double square_of(const struct moments *h, const float *d, size_t n)
{
    double sum = 0;
    if (h)
        return moments_error(h, d, 1);
    for (size_t i = 0; i < n; i++)
        sum += (double)d[i] * (double)d[i];
    return sum;
}

/* Round one row of the sample. room: [2, cols]. */
static int sample_row(struct rounding *r, size_t i, float *room,
                      unsigned char *codes)
{
    const struct widths_module *m = r->m;
    const struct kernels *k = r->f.k;
    const unsigned char *src = row_of(m, r->first + i * r->step);
    size_t n_groups = m->cols / r->f.group, size = dtype_bytes(m->t->dtype);
    unsigned char *scales = codes + m->cols;
    unsigned char *biases = scales + n_groups * size;
    float *own = room, *rounded = room + m->cols;
    size_t bad;
    if (affine_quantize(&r->f, codes, scales, biases, src, m->cols, &bad))
        return -1;
    const struct affine a = {.codes = AFFINE_UNSIGNED,
                             .q = codes,
                             .scales = scales,
                             .s_type = m->t->dtype,
                             .biases = biases,
                             .b_type = m->t->dtype,
                             .bits = r->f.bits,
                             .group = r->f.group};
    k->affine_to_f32(rounded, &a, 1, m->cols);
    k->to_f32[m->t->dtype](own, src, m->cols);
    for (size_t c = 0; c < m->cols; c++)
        rounded[c] -= own[c];
    r->errors[i] = square_of(r->moments, rounded, m->cols);
    r->norms[i] = square_of(r->moments, own, m->cols);
    return 0;
}

static void sample_body(void *ctx, struct par_team *team, int tid,
                        int n_threads)
{
    struct rounding *r = ctx;
    size_t cols = r->m->cols, i, end;
    float *room = malloc(2 * cols * sizeof *room);
    unsigned char *codes = malloc(2 * cols * sizeof(float));
    (void)tid;
    (void)n_threads;
    while (par_next(team, r->n, 1, &i, &end))
        if (!room || !codes || sample_row(r, i, room, codes))
            __atomic_store_n(&r->failed, true, __ATOMIC_RELAXED);
    free(room);
    free(codes);
}

static struct affine_format format_at(const struct measure *q,
                                      const struct widths_module *m, size_t b)
{
    return (struct affine_format){.bits = widths_bits[b],
                                  .group = (size_t)q->w->o.group,
                                  .type = m->t->dtype,
                                  .search = AFFINE_LSQ,
                                  .k = q->eng->model.k};
}

/* A module cannot be rounded, or memory is short. */
static int failed(const struct measure *q, const struct widths_module *m,
                  struct qwick_err *e)
{
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: %s: cannot be rounded: it holds NaN, infinities or "
                   "values too large, or memory is short",
                   checkpoint_dir(q->eng->ck), m->name);
}

/* Set the shares of a module. */
static int measure_shares(const struct measure *q, struct widths_module *m,
                          struct qwick_err *e)
{
    double errors[SAMPLED], norms[SAMPLED];
    struct rounding r = {.q = q,
                         .m = m,
                         .moments = calibration_find(q->c, m->t->name, 0),
                         .n = m->rows < SAMPLED ? m->rows : SAMPLED,
                         .errors = errors,
                         .norms = norms};
    if (r.moments && r.moments->cols != m->cols)
        r.moments = NULL;
    r.step = m->rows / r.n;
    for (size_t b = 0; b < N_WIDTHS; b++) {
        double error = 0, norm = 0;
        r.f = format_at(q, m, b);
        par_run(q->eng->pool, sample_body, &r);
        if (r.failed)
            return failed(q, m, e);
        for (size_t i = 0; i < r.n; i++) {
            error += errors[i];
            norm += norms[i];
        }
        m->share[b] = norm > 0 ? error / norm : 0;
    }
    return 0;
}

static void round_body(void *ctx, struct par_team *team, int tid,
                       int n_threads)
{
    struct rounding *r = ctx;
    const struct widths_module *m = r->m;
    size_t begin, end, bad, size = dtype_bytes(m->t->dtype);
    (void)tid;
    (void)n_threads;
    while (par_next(team, m->rows, ROWS, &begin, &end)) {
        size_t at = begin * m->cols, groups = at / r->f.group * size;
        if (affine_quantize(&r->f, r->codes + at / 8 * (size_t)r->f.bits,
                            r->scales + groups, r->biases + groups,
                            row_of(m, begin), (end - begin) * m->cols, &bad))
            __atomic_store_n(&r->failed, true, __ATOMIC_RELAXED);
    }
}

/* ---- a model with a rounded group ---------------------------------------- */

static void replace_matrix(struct measure *q, struct matrix *at,
                           const struct rounding *r)
{
    const struct st_tensor *t = r->m->t;
    const struct weights *w = &q->eng->model.weights;
    struct matrix old = *at;
    size_t i = 0;
    while (formats[i] != &format_affine)
        i++;
    q->replaced[q->n_replaced++] = (struct replaced){at, old};
    at->format = &format_affine;
    at->ops = &w->ops[i];
    at->dtype = at->bias_dtype = t->dtype;
    at->codes = AFFINE_UNSIGNED;
    at->bits = r->f.bits;
    at->group = r->f.group;
    size_t row = (size_t)(old.data[0] - t->data) /
                 (r->m->cols * dtype_bytes(t->dtype));
    unsigned char *const arrays[] = {r->codes, r->scales, r->biases};
    for (size_t k = 0; k < 3; k++)
        at->data[k] = arrays[k] + row * format_affine.row_bytes(at, k);
}

/* Round a module to a width, and let the model read it. */
static int replace_module(struct measure *q, const struct widths_module *m,
                          size_t width, struct qwick_err *e)
{
    struct model *model = &q->eng->model;
    struct weights *w = &model->weights;
    size_t n = m->rows * m->cols, size = dtype_bytes(m->t->dtype);
    struct rounding r = {.q = q, .m = m, .f = format_at(q, m, width)};
    size_t n_codes = n / 8 * (size_t)r.f.bits, n_scales = n / r.f.group * size;
    r.codes = malloc(n_codes + 2 * n_scales + 64);
    if (!r.codes)
        return err_oom(e, n_codes + 2 * n_scales);
    q->memory[q->n_memory++] = r.codes;
    r.scales = r.codes + n_codes;
    r.biases = r.scales + n_scales;
    par_run(q->eng->pool, round_body, &r);
    if (r.failed)
        return failed(q, m, e);
    for (size_t i = 0; i < w->n_matrices; i++)
        if (is_part(m->t, w->matrices[i]))
            replace_matrix(q, w->matrices[i], &r);
    if (is_part(m->t, &model->head)) /* a copy of the embedding */
        replace_matrix(q, &model->head, &r);
    return 0;
}

static void restore(struct measure *q)
{
    while (q->n_replaced > 0) {
        const struct replaced *r = &q->replaced[--q->n_replaced];
        *r->at = r->old;
    }
    while (q->n_memory > 0)
        free(q->memory[--q->n_memory]);
}

/* ---- passes -------------------------------------------------------------- */

static int take_row(void *ctx, size_t item, size_t at, const float *logits,
                    struct qwick_err *e)
{
    struct measure *q = ctx;
    size_t n = q->eng->model.config.vocab_size;
    size_t i = q->first[item] + at - q->items[item].n_given;
    (void)e;
    if (q->is_reference)
        memcpy(q->rows + i * n, logits, n * sizeof *logits);
    else
        q->kl[i] =
            divergence(logits, q->rows + i * n, n, q->eng->pool).kl;
    return 0;
}

static int run_pass(struct measure *q, struct qwick_err *e)
{
    struct qwick_score_options o = qwick_score_defaults();
    struct qwick_scorer *s;
    bool more = true;
    o.interrupt = q->w->o.interrupt;
    if (qwick_scorer_create(&s, q->eng, q->items, q->n_items, &o, e))
        return -1;
    scorer_on_row(s, take_row, q);
    int rc = 0;
    while (more && !rc)
        rc = qwick_scorer_step(s, &more, e);
    qwick_scorer_free(s);
    return rc;
}

static int measure_group(struct measure *q, size_t group, size_t width,
                         struct qwick_err *e)
{
    int rc = 0;
    double sum = 0;
    bool any = false;
    for (size_t i = 0; i < q->w->n && !rc; i++)
        if (q->w->v[i].group == group) {
            rc = replace_module(q, &q->w->v[i], width, e);
            any = true;
        }
    if (!rc && any)
        rc = run_pass(q, e);
    restore(q);
    for (size_t i = 0; i < q->n_rows && any; i++)
        sum += q->kl[i];
    q->w->kl[group * N_WIDTHS + width] = sum / (double)q->n_rows;
    return rc;
}

/* ---- texts --------------------------------------------------------------- */

/* Tokens of all pieces, so that the passes take the time that they should. */
static size_t choose_tokens(const struct measure *q)
{
    double n_weights = 0;
    for (size_t i = 0; i < q->w->n; i++)
        n_weights += (double)(q->w->v[i].rows * q->w->v[i].cols);
    double passes = (double)(q->w->n_groups * (q->w->high - q->w->low + 1));
    double n = WORK / (n_weights + 1) / passes;
    return n < MIN_TOKENS ? MIN_TOKENS : n > MAX_TOKENS ? MAX_TOKENS : (size_t)n;
}

/* Take texts at equal distances. */
static int choose_pieces(struct measure *q, struct qwick_err *e)
{
    size_t n, n_tokens = choose_tokens(q), total = 0, taken = 0, seen = 0;
    size_t row = q->eng->model.config.vocab_size * sizeof *q->rows;
    const struct calibration_text *texts = calibration_texts(q->c, &n);
    q->items = calloc(n + 1, sizeof *q->items);
    q->first = calloc(n + 1, sizeof *q->first);
    if (!q->items || !q->first)
        return err_oom(e, n * sizeof *q->items);
    for (size_t i = 0; i < n; i++)
        total += texts[i].n < MAX_PIECE ? texts[i].n : MAX_PIECE;
    for (size_t i = 0; i < n; i++) {
        size_t m = texts[i].n < MAX_PIECE ? texts[i].n : MAX_PIECE;
        seen += m;
        if (m < 2 || (double)taken * (double)total >
                         (double)(seen - m) * (double)n_tokens)
            continue; /* its share of the texts has been taken */
        if ((q->n_rows + m) * row > LOGITS_BYTES && q->n_rows > 0)
            break;
        struct qwick_score_item *it = &q->items[q->n_items];
        *it = (struct qwick_score_item){
            .tokens = texts[i].tokens, .n = m, .n_given = m / 2};
        it->logprobs = calloc(m + 1, sizeof *it->logprobs);
        if (!it->logprobs)
            return err_oom(e, m * sizeof *it->logprobs);
        q->first[q->n_items++] = q->n_rows;
        q->n_rows += m - m / 2;
        taken += m;
    }
    q->rows = malloc(q->n_rows * row + 1);
    q->kl = calloc(q->n_rows + 1, sizeof *q->kl);
    if (!q->rows || !q->kl)
        return err_oom(e, q->n_rows * row);
    return q->n_rows ? 0 : err_usage(e, "calibrate: no text has two tokens");
}

/* ---- the whole ----------------------------------------------------------- */

static int check_matrices(const struct measure *q, struct qwick_err *e)
{
    const struct weights *w = &q->eng->model.weights;
    for (size_t i = 0; i < q->w->n; i++)
        for (size_t k = 0; k < w->n_matrices; k++) {
            const struct matrix *m = w->matrices[k];
            if (!is_part(q->w->v[i].t, m))
                continue;
            if (!is_plain(m) || m->step != 1 || m->cols != q->w->v[i].cols)
                return err_set(e, QWICK_ERR_MODEL,
                               "%s: %s: its form cannot be measured for a "
                               "budget yet",
                               checkpoint_dir(q->eng->ck), q->w->v[i].name);
        }
    return 0;
}

static int measure_all(struct measure *q, struct qwick_err *e)
{
    const struct qwick_quantize_options *o = &q->w->o;
    size_t n_matrices = q->eng->model.weights.n_matrices;
    q->replaced = calloc(n_matrices + 2, sizeof *q->replaced);
    q->memory = calloc(q->w->n + 1, sizeof *q->memory);
    if (!q->replaced || !q->memory)
        return err_oom(e, n_matrices * sizeof *q->replaced);
    if (check_matrices(q, e) || choose_pieces(q, e))
        return -1;
    for (size_t i = 0; i < q->w->n; i++) {
        if (flag_is_set(o->interrupt))
            return err_set(e, QWICK_ERR_INTERRUPTED, "interrupted");
        if (measure_shares(q, &q->w->v[i], e))
            return -1;
    }
    q->is_reference = true;
    if (run_pass(q, e))
        return -1;
    q->is_reference = false;
    size_t n_widths = q->w->high - q->w->low + 1;
    size_t n = q->w->n_groups * n_widths;
    for (size_t i = 0; i < n; i++) {
        if (o->measuring)
            o->measuring(o->progress_ctx, i, n);
        if (measure_group(q, i / n_widths, q->w->low + i % n_widths, e))
            return -1;
    }
    return 0;
}

int widths_measure(struct widths *w, struct qwick_engine *eng,
                   const struct calibration *c, struct qwick_err *e)
{
    struct measure q = {.w = w, .eng = eng, .c = c};
    int rc = measure_all(&q, e);
    restore(&q);
    for (size_t i = 0; i < q.n_items; i++)
        free(q.items[i].logprobs);
    free(q.items);
    free(q.first);
    free(q.rows);
    free(q.kl);
    free(q.replaced);
    free(q.memory);
    return rc;
}
