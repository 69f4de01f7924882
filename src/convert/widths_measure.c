/* What rounding costs: the divergence of a running model whose matrices are
 * replaced by rounded ones in memory. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/flag.h"
#include "base/par.h"
#include "convert/widths.h"
#include "engine/core/engine.h"
#include "engine/tasks/divergence.h"
#include "engine/tasks/score_pass.h"

/* SAMPLES: tiles of FEEDBACK_ROWS rows of an item whose errors are measured. */
enum { SAMPLES = 4 };

/* MAX_PIECE tokens of a text are measured, at most. WORK: products of weights
 * and tokens, in all passes; on two cores of 2024, about ten minutes. Rows of
 * logits of the original are kept, at most LOGITS_BYTES. */
enum { MAX_PIECE = 256, MIN_TOKENS = 1024, MAX_TOKENS = 4096 };
static const double WORK = 4.6e13;
static const size_t LOGITS_BYTES = (size_t)1 << 30;

/* An item in a width, in memory. */
struct rounded {
    unsigned char *data; /* its matrices, one after the other, array by array */
};

struct widths_measure {
    struct widths *w;
    const struct calibration *c;
    struct rounded *rounded; /* [w->n, w->n_widths] */
    struct matrix *old;      /* [matrices of the engine] as they were */
    const struct moments **moments; /* likewise, of their inputs; NULL: unknown */
    struct matrix head;      /* likewise */
    struct quantize_rows **rooms; /* [n_rooms] of threads */
    size_t n_rooms, room_cols;
    struct qwick_score_item *items; /* [n_items] */
    size_t n_items;
    size_t *first; /* [n_items] their first rows of `rows` and `kl` */
    float *rows;   /* [n_rows, vocab_size] logits of the original */
    double *kl;    /* [n_rows] */
    size_t n_rows;
    bool is_reference; /* rows are being written */
};

/* ---- rounding ------------------------------------------------------------ */

/* Some rows of an item, which all threads round. */
struct task {
    struct widths_measure *q;
    const struct widths_item *item;
    const struct quantize_width *width;
    struct matrix *to; /* [item->n_matrices] */
    size_t *first;     /* [item->n_matrices + 1] their first tiles */
    size_t stride;     /* of tiles that are rounded; 1: all */
    double *errors;    /* [tiles / stride] of a sample; NULL: to is written */
    double *norms;     /* likewise, of the rows themselves */
    bool failed;
};

/* The moments of the inputs of a matrix; NULL: unknown. */
static const struct moments *find_moments(const struct widths_measure *q,
                                          const struct matrix *m)
{
    const struct st_set *set = q->w->eng->weights;
    size_t i = 0, n = st_count(set);
    while (i < n && (m->data[0] < st_at(set, i)->data ||
                     m->data[0] >= st_at(set, i)->data + st_at(set, i)->n_bytes))
        i++;
    if (i == n)
        return NULL;
    const struct st_tensor *t = st_at(set, i);
    size_t each = t->rank > 2 ? t->n_bytes / t->shape[0] : t->n_bytes;
    const struct moments *h = calibration_find(
        q->c, t->name, each ? (size_t)(m->data[0] - t->data) / each : 0);
    return h && h->cols == m->cols ? h : NULL;
}

static double square_of(const struct moments *h, const float *d, size_t rows,
                        size_t cols)
{
    double sum = 0;
    if (h)
        return moments_error(h, d, rows);
    for (size_t i = 0; i < rows * cols; i++)
        sum += (double)d[i] * (double)d[i];
    return sum;
}

/* Read rows of the original into a room. */
static void read_rows(const struct task *t, struct quantize_rows *r,
                      const struct matrix *m, size_t row, size_t rows)
{
    const struct kernels *k = t->q->w->eng->model.k;
    r->cols = m->cols;
    for (size_t i = 0; i < rows; i++)
        m->ops->to_f32(k, r->w + i * m->cols, m, row + i, 1);
    for (size_t i = 0; i < m->cols; i++)
        r->weights[i] = r->moments ? r->moments->diagonal[i] : 1;
}

/* Round a tile of matrix i of the item. d: room for a tile of a sample. */
static int round_tile(struct task *t, size_t i, size_t tile, float *d,
                      unsigned char *bytes, struct quantize_rows *r)
{
    struct widths_measure *q = t->q;
    const struct kernels *k = q->w->eng->model.k;
    const struct matrix *m = &q->old[t->item->matrices[i]];
    size_t row = tile * FEEDBACK_ROWS, left = m->rows - row;
    size_t rows = left < FEEDBACK_ROWS ? left : FEEDBACK_ROWS;
    struct matrix to = t->to[i];
    unsigned char *out[FORMAT_ARRAYS] = {NULL};
    for (size_t a = 0, at = 0; a < to.format->n_arrays; a++) {
        size_t size = to.format->row_bytes(&to, a);
        if (t->errors)
            to.data[a] = bytes + at;
        out[a] = (unsigned char *)(uintptr_t)to.data[a] +
                 (t->errors ? 0 : row * size);
        at += (rows * size + 63) / 64 * 64;
    }
    r->moments = q->moments[t->item->matrices[i]];
    read_rows(t, r, m, row, rows);
    if (q->w->plan->form->round(q->w->plan, k, r, &to, rows, out))
        return -1;
    if (!t->errors)
        return 0;
    read_rows(t, r, m, row, rows); /* a search may have changed them */
    to.rows = rows;
    to.ops->to_f32(k, d, &to, 0, rows);
    for (size_t c = 0; c < rows * m->cols; c++)
        d[c] -= r->w[c];
    size_t at = (t->first[i] + tile) / t->stride;
    t->errors[at] = square_of(r->moments, d, rows, m->cols);
    t->norms[at] = square_of(r->moments, r->w, rows, m->cols);
    return 0;
}

static void task_body(void *ctx, struct par_team *team, int tid, int n_threads)
{
    struct task *t = ctx;
    size_t n = t->item->n_matrices, i = 0, begin, end, cols = t->item->cols;
    size_t n_tiles = t->first[n];
    float *d = t->errors ? malloc(FEEDBACK_ROWS * cols * sizeof *d) : NULL;
    unsigned char *bytes =
        t->errors ? malloc(FEEDBACK_ROWS * (4 * cols + 64)) : NULL;
    bool bad = t->errors && (!d || !bytes);
    (void)n_threads;
    while (par_next(team, (n_tiles + t->stride - 1) / t->stride, 1, &begin,
                    &end)) {
        size_t tile = begin * t->stride;
        while (tile >= t->first[i + 1]) /* they come in order */
            i++;
        if (bad || round_tile(t, i, tile - t->first[i], d, bytes,
                              t->q->rooms[tid]))
            __atomic_store_n(&t->failed, true, __ATOMIC_RELAXED);
    }
    free(d);
    free(bytes);
}

/* Let *to be matrix m in a width, without data. Returns the bytes of its
 * arrays. */
static size_t shape_of(const struct widths_measure *q, struct matrix *to,
                       const struct matrix *m, const struct widths_item *item,
                       const struct quantize_width *width)
{
    const struct weights *weights = &q->w->eng->model.weights;
    size_t i = 0;
    *to = (struct matrix){.rows = m->rows,
                          .cols = m->cols,
                          .step = 1,
                          .f32_only = m->f32_only,
                          .lora = m->lora};
    q->w->plan->form->shape(q->w->plan, to, width, item->type);
    while (formats[i] != to->format)
        i++;
    to->ops = &weights->ops[i];
    return matrix_bytes(to);
}

/* Point the matrices of an item in a width to their data. to [n_matrices]. */
static void find_data(const struct widths_measure *q, struct matrix *to,
                      const struct widths_item *item,
                      const struct quantize_width *width, unsigned char *data)
{
    for (size_t i = 0; i < item->n_matrices; i++) {
        shape_of(q, &to[i], &q->old[item->matrices[i]], item, width);
        for (size_t a = 0; a < to[i].format->n_arrays; a++) {
            to[i].data[a] = data;
            data += to[i].rows * to[i].format->row_bytes(&to[i], a);
        }
    }
}

static size_t bytes_of(const struct widths_measure *q,
                       const struct widths_item *item,
                       const struct quantize_width *width)
{
    struct matrix to;
    size_t sum = 0;
    for (size_t i = 0; i < item->n_matrices; i++)
        sum += shape_of(q, &to, &q->old[item->matrices[i]], item, width);
    return sum;
}

/* Rooms for rows of so many columns. */
static int need_rooms(struct widths_measure *q, size_t cols,
                      struct qwick_err *e)
{
    if (cols <= q->room_cols)
        return 0;
    for (size_t i = 0; i < q->n_rooms; i++) {
        quantize_rows_free(q->rooms[i]);
        q->rooms[i] = quantize_rows_new(cols);
        if (!q->rooms[i])
            return err_oom(e, cols);
    }
    q->room_cols = cols;
    return 0;
}

/* The first matrix of the result that an item has. */
static const char *name_of(const struct widths *w,
                           const struct widths_item *item)
{
    size_t i = 0, at = (size_t)(item - w->items);
    while (i < w->n_entries && w->entries[i].item != at)
        i++;
    return i < w->n_entries ? w->entries[i].name : "a matrix";
}

/* Run a task whose item, width and errors are set. data: where its result
 * goes. */
static int run_task(struct task *t, unsigned char *data, struct qwick_err *e)
{
    struct widths_measure *q = t->q;
    size_t n = t->item->n_matrices;
    t->to = calloc(n + 1, sizeof *t->to);
    t->first = calloc(n + 1, sizeof *t->first);
    int rc = t->to && t->first ? need_rooms(q, t->item->cols, e)
                               : err_oom(e, n * sizeof *t->to);
    for (size_t i = 0; i < n && !rc; i++)
        t->first[i + 1] = t->first[i] + (q->old[t->item->matrices[i]].rows +
                                         FEEDBACK_ROWS - 1) /
                                            FEEDBACK_ROWS;
    if (!rc) {
        find_data(q, t->to, t->item, t->width, data);
        if (t->errors)
            t->stride = t->first[n] / SAMPLES + 1;
        par_run(q->w->eng->pool, task_body, t);
    }
    if (t->failed)
        rc = err_set(e, QWICK_ERR_MODEL,
                     "%s: %s: cannot be rounded: it holds NaN, infinities or "
                     "values too large, or memory is short",
                     checkpoint_dir(q->w->eng->ck), name_of(q->w, t->item));
    free(t->to);
    free(t->first);
    return rc;
}

int widths_measure_shares(struct widths_measure *q, struct widths_item *item,
                          struct qwick_err *e)
{
    for (size_t b = 0; b < q->w->n_widths && item->n_matrices; b++) {
        double errors[SAMPLES] = {0}, norms[SAMPLES] = {0}, error = 0, norm = 0;
        struct task t = {.q = q,
                         .item = item,
                         .width = &q->w->widths[b],
                         .errors = errors,
                         .norms = norms};
        if (run_task(&t, NULL, e))
            return -1;
        for (size_t i = 0; i < SAMPLES; i++) {
            error += errors[i];
            norm += norms[i];
        }
        item->share[b] = norm > 0 ? error / norm : 0;
    }
    return 0;
}

/* ---- a model with these widths ------------------------------------------- */

static int replace_item(struct widths_measure *q, size_t i, size_t b,
                        struct qwick_err *e)
{
    struct widths *w = q->w;
    const struct widths_item *item = &w->items[i];
    const struct quantize_width *width = &w->widths[b];
    struct rounded *r = &q->rounded[i * w->n_widths + b];
    struct model *model = &w->eng->model;
    if (!r->data) {
        size_t n = bytes_of(q, item, width);
        struct task t = {.q = q, .item = item, .width = width, .stride = 1};
        r->data = malloc(n + 64);
        if (!r->data)
            return err_oom(e, n);
        if (run_task(&t, r->data, e))
            return -1;
    }
    struct matrix *to = calloc(item->n_matrices + 1, sizeof *to);
    if (!to)
        return err_oom(e, item->n_matrices * sizeof *to);
    find_data(q, to, item, width, r->data);
    for (size_t k = 0; k < item->n_matrices; k++) {
        struct matrix *at = model->weights.matrices[item->matrices[k]];
        /* a copy of the embedding */
        if (q->head.data[0] == q->old[item->matrices[k]].data[0])
            model->head = to[k];
        *at = to[k];
    }
    free(to);
    return 0;
}

static void restore(struct widths_measure *q)
{
    struct model *model = &q->w->eng->model;
    for (size_t i = 0; q->old && i < model->weights.n_matrices; i++)
        *model->weights.matrices[i] = q->old[i];
    model->head = q->head;
}

/* ---- passes -------------------------------------------------------------- */

static int take_row(void *ctx, size_t item, size_t at, const float *logits,
                    struct qwick_err *e)
{
    struct widths_measure *q = ctx;
    const struct qwick_engine *eng = q->w->eng;
    size_t n = eng->model.config.vocab_size;
    size_t i = q->first[item] + at - q->items[item].n_given;
    (void)e;
    if (q->is_reference)
        memcpy(q->rows + i * n, logits, n * sizeof *logits);
    else
        q->kl[i] = divergence(logits, q->rows + i * n, n, eng->pool).kl;
    return 0;
}

static int run_pass(struct widths_measure *q, struct qwick_err *e)
{
    struct qwick_score_options o = qwick_score_defaults();
    struct qwick_scorer *s;
    bool more = true;
    o.interrupt = q->w->o.interrupt;
    if (qwick_scorer_create(&s, q->w->eng, q->items, q->n_items, &o, e))
        return -1;
    scorer_on_row(s, take_row, q);
    int rc = 0;
    while (more && !rc)
        rc = qwick_scorer_step(s, &more, e);
    qwick_scorer_free(s);
    return rc;
}

int widths_measure_kl(struct widths_measure *q, const unsigned char *widths,
                      double *kl, struct qwick_err *e)
{
    double sum = 0;
    for (size_t i = 0; i < q->w->n; i++) {
        if (flag_is_set(q->w->o.interrupt))
            return err_set(e, QWICK_ERR_INTERRUPTED, "interrupted");
        if (q->w->items[i].n_matrices && replace_item(q, i, widths[i], e))
            return -1;
    }
    if (run_pass(q, e))
        return -1;
    for (size_t i = 0; i < q->n_rows; i++)
        sum += q->kl[i];
    *kl = sum / (double)q->n_rows;
    return 0;
}

/* ---- texts --------------------------------------------------------------- */

static double n_weights(const struct widths *w)
{
    double n = 0;
    for (size_t i = 0; i < w->n; i++)
        n += (double)w->items[i].n;
    return n + 1;
}

/* Tokens of all pieces, so that the passes take the time that they should. */
static size_t choose_tokens(const struct widths *w, size_t n_passes)
{
    double n = WORK / n_weights(w) / (double)n_passes;
    return n < MIN_TOKENS ? MIN_TOKENS : n > MAX_TOKENS ? MAX_TOKENS : (size_t)n;
}

/* Take texts at equal distances. */
static int choose_pieces(struct widths_measure *q, size_t n_tokens,
                         struct qwick_err *e)
{
    size_t n, total = 0, taken = 0, seen = 0;
    size_t row = q->w->eng->model.config.vocab_size * sizeof *q->rows;
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
            .tokens = texts[i].tokens, .n = m, .n_given = 1};
        it->logprobs = calloc(m + 1, sizeof *it->logprobs);
        if (!it->logprobs)
            return err_oom(e, m * sizeof *it->logprobs);
        q->first[q->n_items++] = q->n_rows;
        q->n_rows += m - 1;
        taken += m;
    }
    q->rows = malloc(q->n_rows * row + 1);
    q->kl = calloc(q->n_rows + 1, sizeof *q->kl);
    if (!q->rows || !q->kl)
        return err_oom(e, q->n_rows * row);
    q->w->n_rows = q->n_rows;
    return q->n_rows ? 0 : err_usage(e, "calibrate: no text has two tokens");
}

/* ---- the whole ----------------------------------------------------------- */

static int keep_matrices(struct widths_measure *q, struct qwick_err *e)
{
    const struct model *model = &q->w->eng->model;
    size_t n = model->weights.n_matrices;
    q->old = calloc(n + 1, sizeof *q->old);
    q->moments = calloc(n + 1, sizeof *q->moments);
    q->rounded = calloc(q->w->n * q->w->n_widths + 1, sizeof *q->rounded);
    q->n_rooms = (size_t)par_threads(q->w->eng->pool);
    q->rooms = calloc(q->n_rooms, sizeof *q->rooms);
    if (!q->old || !q->moments || !q->rounded || !q->rooms)
        return err_oom(e, n * sizeof *q->old);
    for (size_t i = 0; i < n; i++) {
        q->old[i] = *model->weights.matrices[i];
        q->moments[i] = find_moments(q, &q->old[i]);
    }
    return 0;
}

int widths_measure_open(struct widths_measure **out, struct widths *w,
                        const struct calibration *c, size_t n_passes,
                        struct qwick_err *e)
{
    struct widths_measure *q = calloc(1, sizeof *q);
    *out = q;
    if (!q)
        return err_oom(e, sizeof *q);
    q->w = w;
    q->c = c;
    q->head = w->eng->model.head;
    if (keep_matrices(q, e) || choose_pieces(q, choose_tokens(w, n_passes), e))
        return -1;
    q->is_reference = true;
    int rc = run_pass(q, e);
    q->is_reference = false;
    return rc;
}

void widths_measure_close(struct widths_measure *q)
{
    if (!q)
        return;
    restore(q);
    for (size_t i = 0; i < q->n_items; i++)
        free(q->items[i].logprobs);
    for (size_t i = 0; q->rounded && i < q->w->n * q->w->n_widths; i++)
        free(q->rounded[i].data);
    for (size_t i = 0; q->rooms && i < q->n_rooms; i++)
        quantize_rows_free(q->rooms[i]);
    free(q->rooms);
    free(q->rounded);
    free(q->old);
    free(q->moments);
    free(q->items);
    free(q->first);
    free(q->rows);
    free(q->kl);
    free(q);
}
