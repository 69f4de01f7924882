/* Exact search: the product of every row with every query. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/os.h"
#include "base/par.h"
#include "engine/core/engine.h"
#include "engine/core/options.h"
#include "engine/index/index.h"
#include "kernel/kernel.h"

/* A thread reads READ_BYTES of rows at a time, so that the times of reading and
 * of products can be told apart. It multiplies BLOCK_BYTES of them by all
 * queries at a time: they stay in a cache. */
enum { READ_BYTES = 8 << 20, BLOCK_BYTES = 128 << 10 };

void qwick_index_query_init(struct qwick_index_query *o, size_t size)
{
    static const struct qwick_index_query defaults = {
        .top = 10, .min_score = -INFINITY, .skip = SIZE_MAX};
    options_init(o, size, &defaults, sizeof defaults);
}

/* The hits that one thread has found. */
struct finder {
    struct qwick_index_hit *heaps; /* [n, top] of each query, the worst hit of
                                      a heap at its root */
    size_t *n_hits;                /* [n] */
    float *work;                   /* [KERNEL_WORK], then scores
                                      [n, block_rows] */
    struct qwick_index_times times;
};

struct search {
    const struct qwick_index *ix;
    const struct qwick_index_query *q;
    const struct kernels *k;
    size_t top; /* most hits that there can be */
    size_t row_bytes;
    size_t read_rows;  /* rows of READ_BYTES, at least 1 */
    size_t block_rows; /* rows of BLOCK_BYTES, at least 1 */
    struct finder *finders;
    size_t n_finders;
    atomic_size_t bad; /* a row whose product is not finite; SIZE_MAX: none */
};

/* ---- hits ---------------------------------------------------------------- */

/* Of equal scores the later row is worse. */
static bool is_worse(const struct qwick_index_hit *a,
                     const struct qwick_index_hit *b)
{
    return a->score != b->score ? a->score < b->score : a->row > b->row;
}

static void heap_down(struct qwick_index_hit *h, size_t n,
                      struct qwick_index_hit hit)
{
    size_t i = 0, child;
    while ((child = 2 * i + 1) < n) {
        if (child + 1 < n && is_worse(&h[child + 1], &h[child]))
            child++;
        if (!is_worse(&h[child], &hit))
            break;
        h[i] = h[child];
        i = child;
    }
    h[i] = hit;
}

static void heap_up(struct qwick_index_hit *h, size_t i,
                    struct qwick_index_hit hit)
{
    for (; i && is_worse(&hit, &h[(i - 1) / 2]); i = (i - 1) / 2)
        h[i] = h[(i - 1) / 2];
    h[i] = hit;
}

static int hit_best_first(const void *a, const void *b)
{
    return is_worse(a, b) ? 1 : -1; /* no two hits are equal */
}

/* Offer the scores of rows [row, row + n) to the heap of a query. */
static void offer(struct search *s, struct finder *f, size_t query, size_t row,
                  size_t n, const float *scores)
{
    struct qwick_index_hit *h = f->heaps + query * s->top;
    size_t n_hits = f->n_hits[query];
    for (size_t i = 0; i < n; i++) {
        struct qwick_index_hit hit = {row + i, scores[i]};
        if (!isfinite(scores[i]))
            atomic_store(&s->bad, row + i);
        if (n_hits == s->top && !is_worse(h, &hit))
            continue;
        if ((double)scores[i] < s->q->min_score || hit.row == s->q->skip ||
            index_is_dead(s->ix, hit.row))
            continue;
        if (n_hits < s->top)
            heap_up(h, n_hits++, hit);
        else
            heap_down(h, n_hits, hit);
    }
    f->n_hits[query] = n_hits;
}

/* ---- products ------------------------------------------------------------ */

static void find_in(struct search *s, struct finder *f, size_t row, size_t end)
{
    const struct qwick_index_info *info = &s->ix->info;
    const unsigned char *data = s->ix->maps[INDEX_VECTORS].data;
    float *scores = f->work + KERNEL_WORK;
    for (; row < end; row += s->block_rows) {
        size_t n = end - row < s->block_rows ? end - row : s->block_rows;
        s->k->matmul_f32[info->f16 ? DT_F16 : DT_F32](
            scores, n, data + row * s->row_bytes, info->dim, s->q->vectors,
            info->dim, n, info->dim, s->q->n, f->work);
        for (size_t i = 0; i < s->q->n; i++)
            offer(s, f, i, row, n, scores + i * n);
    }
}

static void search_body(void *ctx, struct par_team *team, int tid,
                        int n_threads)
{
    struct search *s = ctx;
    struct finder *f = &s->finders[tid];
    const unsigned char *data = s->ix->maps[INDEX_VECTORS].data;
    size_t row, end;
    double now = clock_ms(), then;
    (void)n_threads;
    while (par_next(team, s->ix->n_rows, s->read_rows, &row, &end)) {
        if (s->q->interrupt && *s->q->interrupt)
            continue;
        (void)os_read_mapping(data + row * s->row_bytes,
                              (end - row) * s->row_bytes);
        then = now;
        now = clock_ms();
        f->times.read_ms += now - then;
        find_in(s, f, row, end);
        then = now;
        now = clock_ms();
        f->times.product_ms += now - then;
    }
}

/* ---- the search ---------------------------------------------------------- */

static void search_free(struct search *s)
{
    for (size_t i = 0; s->finders && i < s->n_finders; i++) {
        free(s->finders[i].heaps);
        free(s->finders[i].n_hits);
        free(s->finders[i].work);
    }
    free(s->finders);
}

static int search_alloc(struct search *s, struct qwick_err *e)
{
    size_t n = s->q->n, hits, floats, bytes;
    if (size_mul(n, s->top, &hits) ||
        size_mul(hits, sizeof(struct qwick_index_hit), &bytes) ||
        size_mul(n, s->block_rows, &floats) ||
        size_add(floats, KERNEL_WORK + 16, &floats) ||
        size_mul(floats, sizeof(float), &floats))
        return err_oom(e, SIZE_MAX);
    s->finders = calloc(s->n_finders, sizeof *s->finders);
    if (!s->finders)
        return err_oom(e, s->n_finders * sizeof *s->finders);
    for (size_t i = 0; i < s->n_finders; i++) {
        struct finder *f = &s->finders[i];
        f->heaps = malloc(bytes + 1);
        f->n_hits = calloc(n, sizeof *f->n_hits);
        f->work = aligned_alloc(64, floats / 64 * 64);
        if (!f->heaps || !f->n_hits || !f->work)
            return err_oom(e, bytes + floats);
    }
    return 0;
}

/* Merge what the threads have found for a query. */
static size_t merge(const struct search *s, size_t query,
                    struct qwick_index_hit *all, struct qwick_index_hit *hits)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_finders; i++) {
        const struct finder *f = &s->finders[i];
        memcpy(all + n, f->heaps + query * s->top,
               f->n_hits[query] * sizeof *all);
        n += f->n_hits[query];
    }
    if (n)
        qsort(all, n, sizeof *all, hit_best_first);
    n = n < s->top ? n : s->top;
    if (n)
        memcpy(hits, all, n * sizeof *hits);
    return n;
}

static int search_merge(const struct search *s, struct qwick_index_hit *hits,
                        size_t *n_hits, struct qwick_err *e)
{
    size_t n = s->n_finders * s->top + 1;
    struct qwick_index_hit *all = malloc(n * sizeof *all);
    if (!all)
        return err_oom(e, n * sizeof *all);
    for (size_t i = 0; i < s->q->n; i++)
        n_hits[i] = merge(s, i, all, hits + i * s->q->top);
    free(all);
    return 0;
}

static int search_run(struct search *s, struct par_pool *pool,
                      struct qwick_index_times *times, struct qwick_err *e)
{
    const struct qwick_index *ix = s->ix;
    if (search_alloc(s, e))
        return -1;
    par_run_rarely(pool, search_body, s);
    for (size_t i = 0; i < s->n_finders; i++) {
        times->read_ms += s->finders[i].times.read_ms / (double)s->n_finders;
        times->product_ms +=
            s->finders[i].times.product_ms / (double)s->n_finders;
    }
    size_t bad = atomic_load(&s->bad);
    if (s->q->interrupt && *s->q->interrupt)
        return err_set(e, QWICK_ERR_INTERRUPTED, "interrupted");
    if (bad != SIZE_MAX)
        return index_bad(ix, index_name(&ix->info, INDEX_VECTORS), e,
                         "row %zu: its product with a query is not finite",
                         bad);
    return 0;
}

/* The threads of a search: eng's, or our own, which are made now. NULL when out
 * of memory. */
static struct par_pool *search_pool(struct qwick_index *ix,
                                    const struct qwick_engine *eng, int threads)
{
    if (!eng && !ix->pool)
        ix->pool = par_create(threads > 0 ? threads : os_default_threads());
    return eng ? eng->pool : ix->pool;
}

int qwick_index_search(struct qwick_index *ix, struct qwick_engine *eng,
                       const struct qwick_index_query *given,
                       struct qwick_index_hit *hits, size_t *n_hits,
                       struct qwick_index_times *times, struct qwick_err *e)
{
    struct qwick_index_query q = qwick_index_query_defaults();
    struct qwick_index_times own;
    if (options_read(&q, sizeof q, given, "query", e))
        return -1;
    if (ix->writes)
        return err_usage(e, "%s: is open for appending", ix->dir);
    size_t live = ix->n_rows - ix->info.n_dead;
    size_t bytes = ix->info.dim * index_number_bytes(&ix->info);
    struct search s = {
        .ix = ix,
        .q = &q,
        .k = eng ? eng->model.k : kernels_best(),
        .top = q.top < live ? q.top : live,
        .row_bytes = bytes,
        .read_rows = READ_BYTES / bytes ? READ_BYTES / bytes : 1,
        .block_rows = BLOCK_BYTES / bytes ? BLOCK_BYTES / bytes : 1,
        .bad = SIZE_MAX,
    };
    if (!times)
        times = &own;
    *times = (struct qwick_index_times){0, 0};
    memset(n_hits, 0, q.n * sizeof *n_hits);
    if (!q.n || !s.top)
        return 0;
    struct par_pool *pool = search_pool(ix, eng, q.threads);
    if (!pool)
        return err_oom(e, sizeof(void *));
    s.n_finders = (size_t)par_threads(pool);
    int rc = search_run(&s, pool, times, e) || search_merge(&s, hits, n_hits, e)
                 ? -1
                 : 0;
    search_free(&s);
    return rc;
}
