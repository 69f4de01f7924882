/* Second moments of inputs: their sums, and what rounding needs of them. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "convert/calibrate.h"

/* TILE: rows of a block that are computed at a time; of factors, also rows that
 * are eliminated at a time. WIDE: columns. */
enum { TILE = 64, WIDE = 512, WORK = KERNEL_WORK + TILE * WIDE };

typedef float loose __attribute__((vector_size(16), may_alias, aligned(4)));

static size_t block_width(const struct moments *m, size_t at)
{
    return m->cols - at < m->block ? m->cols - at : m->block;
}

size_t moments_floats(size_t cols, size_t block)
{
    size_t whole = cols / block, rest = cols % block;
    return block == 1 ? 0 : whole * block * block + rest * rest;
}

int moments_init(struct moments *m, size_t cols, size_t block,
                 struct qwick_err *e)
{
    size_t n = moments_floats(cols, block);
    *m = (struct moments){.cols = cols, .block = block};
    m->diagonal = calloc(cols + 1, sizeof *m->diagonal);
    m->order = calloc(cols + 1, sizeof *m->order);
    m->factor = calloc(n + 1, sizeof *m->factor);
    m->near = calloc(block == 1 ? 1 : cols * FEEDBACK_UNIT, sizeof *m->near);
    if (m->diagonal && m->order && m->factor && m->near)
        return 0;
    moments_free(m);
    return err_oom(e, n * sizeof *m->factor);
}

void moments_free(struct moments *m)
{
    free(m->diagonal);
    free(m->order);
    free(m->factor);
    free(m->near);
    *m = (struct moments){0};
}

const float *moments_factor(const struct moments *m, size_t at, size_t *w)
{
    *w = block_width(m, at);
    return m->factor + at / m->block * m->block * m->block;
}

int moments_room_init(struct moments_room *r, const struct kernels *k,
                      size_t cols, int n_threads, struct qwick_err *e)
{
    size_t n = cols * MOMENTS_LD;
    *r = (struct moments_room){.k = k};
    r->xt = aligned_alloc(64, n * sizeof *r->xt);
    r->work = aligned_alloc(64, (size_t)n_threads * WORK * sizeof *r->work);
    if (r->xt && r->work)
        return 0;
    moments_room_free(r);
    return err_oom(e, n * sizeof *r->xt);
}

void moments_room_free(struct moments_room *r)
{
    free(r->xt);
    free(r->work);
    *r = (struct moments_room){0};
}

/* ---- sums ---------------------------------------------------------------- */

static void add_to(float *to, const float *x, size_t n, float factor)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        *(loose *)(to + i) += *(const loose *)(x + i) * factor;
    for (; i < n; i++)
        to[i] += x[i] * factor;
}

/* Columns [begin, end) of the rows become rows of xt. */
static void transpose(const struct moments_room *r, const float *x, size_t ld,
                      const uint32_t *rows, size_t n, size_t begin, size_t end)
{
    for (size_t t = 0; t < n; t++) {
        const float *row = x + (rows ? rows[t] : t) * ld;
        for (size_t c = begin; c < end; c++)
            r->xt[c * MOMENTS_LD + t] = row[c];
    }
}

static void add_diagonal(struct moments *m, const struct moments_room *r,
                         size_t n, size_t begin, size_t end)
{
    for (size_t c = begin; c < end; c++) {
        const float *v = r->xt + c * MOMENTS_LD;
        double sum = 0;
        for (size_t t = 0; t < n; t++)
            sum += (double)v[t] * (double)v[t];
        m->diagonal[c] += (float)sum;
    }
}

/* Add the tile of rows from `row` on, counted in the block that begins at
 * column at, up to its diagonal. */
static void add_tile(struct moments *m, const struct moments_room *r, size_t at,
                     size_t row, size_t n, float *work)
{
    size_t w = block_width(m, at), rows = w - row < TILE ? w - row : TILE;
    float *h = m->factor + at * m->block, *tmp = work + KERNEL_WORK;
    const float *xt = r->xt + at * MOMENTS_LD;
    for (size_t c = 0, cols; c < row + rows; c += cols) {
        cols = row + rows - c < WIDE ? row + rows - c : WIDE;
        r->k->gemm_f32[DT_F32](tmp, WIDE, xt + row * MOMENTS_LD, MOMENTS_LD,
                               xt + c * MOMENTS_LD, MOMENTS_LD, rows, cols, n,
                               work);
        for (size_t i = 0; i < rows; i++)
            add_to(h + (row + i) * w + c, tmp + i * WIDE, cols, 1);
    }
}

void moments_add(struct moments *m, const struct moments_room *r,
                 const float *x, size_t ld, const uint32_t *rows, size_t n,
                 struct par_team *team, int tid, int n_threads)
{
    size_t begin, end, tile = 0;
    float *work = r->work + (size_t)tid * WORK;
    par_split(m->cols, 16, tid, n_threads, &begin, &end);
    transpose(r, x, ld, rows, n, begin, end);
    par_barrier(team, tid);
    add_diagonal(m, r, n, begin, end);
    for (size_t at = 0; at < m->cols && m->block > 1; at += m->block)
        for (size_t row = 0; row < block_width(m, at); row += TILE)
            if (tile++ % (size_t)n_threads == (size_t)tid)
                add_tile(m, r, at, row, n, work);
    par_barrier(team, tid);
    if (tid == 0)
        m->n_tokens += n;
}

void moments_merge(struct moments *m, const struct moments *other)
{
    add_to(m->diagonal, other->diagonal, m->cols, 1);
    add_to(m->factor, other->factor, moments_floats(m->cols, m->block), 1);
    m->n_tokens += other->n_tokens;
}

/* ---- factors ------------------------------------------------------------- */

/* Units whose columns stay together, from the largest one down to a column. */
static const size_t units[] = {256, 128, 64, 32, 1};
enum { N_UNITS = sizeof units / sizeof *units };

/* A column with the means of the diagonal in the units that it is in. */
struct ranked {
    float h[N_UNITS];
    uint32_t col;
};

static int by_size(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    for (size_t i = 0; i < N_UNITS; i++) {
        uint32_t p = x->col / (uint32_t)units[i],
                 q = y->col / (uint32_t)units[i];
        if (p != q)
            return x->h[i] != y->h[i] ? (x->h[i] > y->h[i] ? -1 : 1)
                                      : (p > q ? 1 : -1);
    }
    return 0;
}

/* Write the order of the block's columns. */
static int sort_columns(struct moments *m, size_t at, size_t w,
                        struct qwick_err *e)
{
    struct ranked *r = calloc(w, sizeof *r);
    if (!r)
        return err_oom(e, w * sizeof *r);
    for (size_t i = 0; i < w; i++)
        r[i].col = (uint32_t)(at + i);
    for (size_t u = 0; u < N_UNITS; u++)
        for (size_t i = 0, n; i < w; i += n) {
            float sum = 0;
            n = w - i < units[u] ? w - i : units[u];
            for (size_t j = 0; j < n; j++)
                sum += m->diagonal[at + i + j] / (float)n;
            for (size_t j = 0; j < n; j++)
                r[i + j].h[u] = sum;
        }
    qsort(r, w, sizeof *r, by_size);
    for (size_t i = 0; i < w; i++)
        m->order[at + i] = r[i].col;
    free(r);
    return 0;
}

/* Subtract the panel of rows [p0, p1) of a [w, w], which are done, from the
 * rows before it: a_ki -= a_jk / D_j a_ji. pt, scaled [p0, TILE]: of the
 * panel's columns. */
static void eliminate(const struct kernels *k, float *a, size_t w, size_t p0,
                      size_t p1, float *pt, float *scaled, float *work)
{
    size_t n = p1 - p0;
    float *tmp = work + KERNEL_WORK;
    for (size_t j = 0; j < n; j++) {
        const float *row = a + (p0 + j) * w;
        float inverse = 1 / row[p0 + j];
        for (size_t i = 0; i < p0; i++) {
            pt[i * TILE + j] = row[i];
            scaled[i * TILE + j] = row[i] * inverse;
        }
    }
    for (size_t r = 0, rows; r < p0; r += rows) {
        rows = p0 - r < TILE ? p0 - r : TILE;
        for (size_t c = 0, cols; c < r + rows; c += cols) {
            cols = r + rows - c < WIDE ? r + rows - c : WIDE;
            k->gemm_f32[DT_F32](tmp, WIDE, scaled + r * TILE, TILE,
                                pt + c * TILE, TILE, rows, cols, n, work);
            for (size_t i = 0; i < rows; i++)
                add_to(a + (r + i) * w + c, tmp + i * WIDE, cols, -1);
        }
    }
}

/* a [w, w], of which the lower triangle counts: A = (U + I) D (U + I)^T
 * from the last column on. Row j gets U_ij in column i < j, D_j, and U_jk in
 * column k > j. D is at least `least`, which all eigenvalues of A are. */
static void factorise(const struct kernels *k, float *a, size_t w, float least,
                      float *pt, float *scaled, float *work)
{
    for (size_t p1 = w, p0; p1 > 0; p1 = p0) {
        p0 = (p1 - 1) / TILE * TILE;
        for (size_t j = p1; j-- > p0;) {
            float *row = a + j * w;
            row[j] = row[j] > least ? row[j] : least;
            for (size_t i = p0; i < j; i++)
                add_to(a + i * w, row, i + 1, -row[i] / row[j]);
        }
        eliminate(k, a, w, p0, p1, pt, scaled, work);
    }
    for (size_t j = 0; j < w; j++)
        for (size_t i = 0; i < j; i++)
            a[i * w + j] = a[j * w + i] /= a[j * w + j];
}

/* A block: its mean diagonal, the order, the addition, and the factor. */
static int finish_block(struct moments *m, const struct kernels *k, size_t at,
                        double damping, struct qwick_err *e)
{
    size_t w = block_width(m, at), n = w * (w + 2 * TILE) + WORK;
    float *h = m->factor + at * m->block;
    double mean = 0;
    if (sort_columns(m, at, w, e))
        return -1;
    float *work = aligned_alloc(64, (n + 15) / 16 * 16 * sizeof *work);
    if (!work)
        return err_oom(e, n * sizeof *work);
    float *a = work + WORK, *pt = a + w * w, *scaled = pt + w * TILE;
    for (size_t i = 0; i < w; i++)
        mean += (double)h[i * w + i] / (double)w;
    float add = mean > 0 ? (float)(damping * mean) : 1;
    for (size_t j = 0; j < w; j++)
        for (size_t i = 0; i < w; i++) {
            size_t p = m->order[at + j] - at, q = m->order[at + i] - at;
            a[j * w + i] =
                (p > q ? h[p * w + q] : h[q * w + p]) + (i == j ? add : 0);
        }
    for (size_t j = 0; j < w; j++) {
        size_t first = j / FEEDBACK_UNIT * FEEDBACK_UNIT;
        size_t n_near = w - first < FEEDBACK_UNIT ? w - first : FEEDBACK_UNIT;
        memcpy(m->near + (at + j) * FEEDBACK_UNIT, a + j * w + first,
               n_near * sizeof *a);
    }
    factorise(k, a, w, add, pt, scaled, work);
    memcpy(h, a, w * w * sizeof *h);
    free(work);
    return 0;
}

int moments_finish(struct moments *m, const struct kernels *k, double damping,
                   struct qwick_err *e)
{
    float inverse = m->n_tokens ? 1 / (float)m->n_tokens : 0;
    double mean = 0;
    for (size_t i = 0; i < m->cols; i++) {
        m->diagonal[i] *= inverse;
        mean += (double)m->diagonal[i] / (double)m->cols;
    }
    for (size_t i = 0, n = moments_floats(m->cols, m->block); i < n; i++)
        m->factor[i] *= inverse;
    for (size_t at = 0; at < m->cols && m->block > 1; at += m->block)
        if (finish_block(m, k, at, damping, e))
            return -1;
    for (size_t i = 0; i < m->cols; i++)
        m->diagonal[i] += mean > 0 ? (float)(damping * mean) : 1;
    return 0;
}

/* d^T A d of a block: the sum of D_j times the square of d_j + sum of U_ij d_i
 * over i < j. */
static double block_error(const struct moments *m, size_t at, const float *d)
{
    size_t w;
    const float *f = moments_factor(m, at, &w);
    const uint32_t *order = m->order + at;
    double sum = 0;
    for (size_t j = 0; j < w; j++) {
        double v = (double)d[order[j]];
        for (size_t i = 0; i < j; i++)
            v += (double)f[j * w + i] * (double)d[order[i]];
        sum += (double)f[j * w + j] * v * v;
    }
    return sum;
}

double moments_error(const struct moments *m, const float *d, size_t n)
{
    double sum = 0;
    for (size_t r = 0; r < n; r++, d += m->cols) {
        for (size_t at = 0; at < m->cols && m->block > 1; at += m->block)
            sum += block_error(m, at, d);
        for (size_t i = 0; i < m->cols && m->block == 1; i++)
            sum += (double)m->diagonal[i] * (double)d[i] * (double)d[i];
    }
    return sum;
}
