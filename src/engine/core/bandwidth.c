/* The machine's limits: read bandwidth and arithmetic peak. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/par.h"
#include "engine/core/engine.h"
#include "qwick_tools.h"

/* Smaller weights fit in caches, so reading them does not measure memory. */
enum { MIN_SWEEP = 256 << 20, MAX_SWEEPS = 512 };

struct sweep {
    const struct kernels *k;
    const unsigned char *const *parts;
    const size_t *sizes;
    size_t n_parts;
    bool to_l2;              /* prefetch into L2, not into L1 */
    unsigned long long sink; /* keeps the compiler from dropping the reads */
};

static void sweep_body(void *ctx, struct par_team *team, int tid, int n_threads)
{
    struct sweep *s = ctx;
    unsigned long long sum = 0;
    (void)team;
    for (size_t i = 0; i < s->n_parts; i++) {
        size_t begin, end;
        par_split(s->sizes[i], 4096, tid, n_threads, &begin, &end);
        sum += s->k->read_sum(s->parts[i] + begin, end - begin, s->to_l2);
    }
    __atomic_fetch_add(&s->sink, sum, __ATOMIC_RELAXED);
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Sweep by turns with prefetches into L1 and into L2, as often as the time
 * allows. Return the larger of the two median rates: the limit must not depend
 * on the choice that products make. The first sweep does not count, because it
 * may fault pages in. */
static double measure_sweep(const struct qwick_engine *eng,
                            const unsigned char *const *parts,
                            const size_t *sizes, size_t n_parts, double ms)
{
    struct sweep s = {eng->model.k, parts, sizes, n_parts, false, 0};
    double rates[2][MAX_SWEEPS], bytes = 0;
    size_t n = 0;
    for (size_t i = 0; i < n_parts; i++)
        bytes += (double)sizes[i];
    par_run(eng->pool, sweep_body, &s);
    double start = clock_ms(), now = start;
    do {
        for (int l2 = 0; l2 < 2; l2++) {
            double t = now;
            s.to_l2 = l2;
            par_run(eng->pool, sweep_body, &s);
            now = clock_ms();
            rates[l2][n] = bytes / ((now - t) / 1e3);
        }
        n++;
    } while (now - start < ms && n < MAX_SWEEPS);
    for (int l2 = 0; l2 < 2; l2++)
        qsort(rates[l2], n, sizeof **rates, by_value);
    return fmax(rates[0][n / 2], rates[1][n / 2]);
}

/* Memory that passes read. */
struct extent {
    const unsigned char *data;
    size_t n_bytes;
};

static int by_address(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;
    return x->data < y->data ? -1 : x->data > y->data;
}

/* Sweep over the mapped tensors that the model uses, and over the copies of
 * repacked ones. */
static int sweep_weights(const struct qwick_engine *eng, double ms,
                         double *rate, struct qwick_err *e)
{
    const struct weights *w = &eng->model.weights;
    size_t n = st_count(eng->weights) + w->n_copies, m = 0;
    struct extent *used = malloc(n * sizeof *used);
    const unsigned char **parts = malloc(n * sizeof *parts);
    size_t *sizes = malloc(n * sizeof *sizes);
    bool ok = used && parts && sizes;
    if (ok) {
        for (size_t i = 0; i < st_count(eng->weights); i++) {
            const struct st_tensor *t = st_at(eng->weights, i);
            if (w->used[i] == WEIGHT_READ)
                used[m++] = (struct extent){t->data, t->n_bytes};
        }
        for (size_t i = 0; i < w->n_copies; i++)
            used[m++] =
                (struct extent){w->copies[i].data, w->copies[i].n_bytes};
        qsort(used, m, sizeof *used, by_address);
        for (size_t i = 0; i < m; i++) {
            parts[i] = used[i].data;
            sizes[i] = used[i].n_bytes;
        }
        *rate = measure_sweep(eng, parts, sizes, m, ms);
    }
    free(used);
    free(parts);
    free(sizes);
    return ok ? 0 : err_oom(e, n * 3 * sizeof(void *));
}

static void touch_body(void *ctx, struct par_team *team, int tid, int n_threads)
{
    unsigned char *p = ctx;
    size_t begin, end;
    (void)team;
    par_split(MIN_SWEEP, 4096, tid, n_threads, &begin, &end);
    for (size_t i = begin; i < end; i += 4096)
        p[i] = 1; /* otherwise all pages would map the shared zero page */
}

int engine_memory_rate(const struct qwick_engine *eng, double ms, double *rate,
                       struct qwick_err *e)
{
    size_t n = MIN_SWEEP;
    *rate = 0;
    unsigned char *p = mmap(NULL, n, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return err_oom(e, n);
    /* a hint: with huge pages memory reads fastest, and 65,000 page faults are
       saved */
    (void)madvise(p, n, MADV_HUGEPAGE);
    par_run(eng->pool, touch_body, p);
    const unsigned char *part = p;
    *rate = measure_sweep(eng, &part, &n, 1, ms);
    munmap(p, n);
    return 0;
}

int qwick_bench_bandwidth(struct qwick_engine *eng, double ms, double *rate,
                          struct qwick_err *e)
{
    *rate = 0;
    const struct model *m = &eng->model;
    if (eng->weights && m->preloaded && m->preloaded_bytes >= MIN_SWEEP) {
        const unsigned char *p = m->preloaded;
        *rate = measure_sweep(eng, &p, &m->preloaded_bytes, 1, ms);
        return 0;
    }
    if (eng->weights && m->weights.n_bytes >= MIN_SWEEP)
        return sweep_weights(eng, ms, rate, e);
    return engine_memory_rate(eng, ms, rate, e);
}

struct peak {
    double (*flops_of)(size_t reps, float *sink);
    double ms;
    uint64_t flops; /* summed over threads */
};

static void peak_body(void *ctx, struct par_team *team, int tid, int n_threads)
{
    struct peak *p = ctx;
    float sink = 0;
    (void)n_threads;
    p->flops_of(1, &sink); /* warm up clocks and units */
    par_barrier(team, tid);
    double start = clock_ms(), now, flops = 0;
    do {
        flops += p->flops_of(1, &sink);
        now = clock_ms();
    } while (now - start < p->ms);
    double rate = flops / ((now - start) / 1e3);
    uint64_t whole = (uint64_t)rate + (sink == 1.5f ? 1 : 0);
    __atomic_fetch_add(&p->flops, whole, __ATOMIC_RELAXED);
}

double qwick_bench_peak(struct qwick_engine *eng, double ms)
{
    const struct model *m = &eng->model;
    struct peak p = {.flops_of = model_peak(m), .ms = ms};
    par_run(eng->pool, peak_body, &p);
    return (double)p.flops;
}

double qwick_forward_flops(const struct qwick_engine *eng, size_t pos, size_t n)
{
    return n ? model_cost(&eng->model, pos, n).flops : 0;
}

double qwick_engine_weight_bytes(const struct qwick_engine *eng)
{
    return eng->scratch ? eng->scratch->weight_bytes : 0;
}

double qwick_forward_kv_bytes(const struct qwick_engine *eng, size_t pos,
                              size_t n)
{
    struct kv_cache kv; /* empty: no positions */
    if (n == 0 || kv_init(&kv, eng->kv, &eng->model.config, NULL))
        return 0;
    double bytes = kv_read_bytes(&kv, pos, n);
    kv_free(&kv);
    return bytes;
}
