/* Time of an exact search in an index of vectors, beside the read bandwidth.
 *
 *   bench_index DIR [ROWS DIM f32|f16] [THREADS]
 *
 * DIR: an index, or an empty directory, in which one with ROWS random vectors
 * of DIM numbers is made. Prints the median of 15 searches in the cached file,
 * for 1, 8 and 64 queries: milliseconds of reading (mapping pages) and of
 * products, GB/s of the products, and these as a percentage of the read
 * bandwidth, which is measured before and after. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/core/engine.h"
#include "engine/core/memory.h"
#include "qwick_tools.h"

enum { RUNS = 15, TOP = 10, MAX_QUERIES = 64, CHUNK = 20000 };

static struct qwick_err e;

static void die(void)
{
    fprintf(stderr, "bench_index: %s\n", e.msg);
    exit(1);
}

static void fill(float *v, size_t n, uint64_t *at)
{
    for (size_t i = 0; i < n; i++)
        v[i] = (float)(rng_uniform(1, (*at)++) - 0.5) / 16;
}

static void make(const char *dir, size_t rows, size_t dim, bool f16)
{
    struct qwick_index_info want = qwick_index_info_defaults();
    struct qwick_index *ix;
    float *v = malloc(dim * sizeof *v);
    uint64_t at = 0;
    char id[32], text[64];
    want.dim = dim;
    want.f16 = f16;
    if (!v || qwick_index_append(&ix, dir, &want, &e))
        die();
    for (size_t i = 0; i < rows; i++) {
        const struct qwick_index_row row = {
            id, text, (size_t)snprintf(id, sizeof id, "%zu", i),
            (size_t)snprintf(text, sizeof text, "text number %zu", i)};
        fill(v, dim, &at);
        if (qwick_index_add(ix, &row, v, &e) ||
            ((i + 1) % CHUNK == 0 && qwick_index_commit(ix, &e)))
            die();
    }
    if (qwick_index_commit(ix, &e))
        die();
    qwick_index_close(ix);
    free(v);
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double rate_now(struct qwick_engine *eng)
{
    double rate;
    if (engine_memory_rate(eng, 1000, &rate, &e))
        die();
    return rate;
}

int main(int argc, char **argv)
{
    struct qwick_engine_options o = qwick_engine_defaults();
    struct qwick_engine *eng;
    struct qwick_index *ix;
    if (argc < 2) {
        fprintf(stderr,
                "Usage: bench_index DIR [ROWS DIM f32|f16] [THREADS]\n");
        return 2;
    }
    bool makes = argc > 4;
    if (makes)
        make(argv[1], strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10),
             strcmp(argv[4], "f16") == 0);
    o.threads = argc > (makes ? 5 : 2) ? atoi(argv[argc - 1]) : 0;
    if (qwick_engine_open(&eng, &o, &e) || qwick_index_open(&ix, argv[1], &e))
        die();
    const struct qwick_index_info *info = qwick_index_get_info(ix);
    double bytes =
        (double)info->n_rows * (double)info->dim * (info->f16 ? 2 : 4);
    float *queries = malloc(MAX_QUERIES * info->dim * sizeof *queries);
    uint64_t at = 1ull << 40;
    if (!queries)
        return 1;
    fill(queries, MAX_QUERIES * info->dim, &at);
    double before = rate_now(eng), rates[3], reads[3], products[3];
    for (size_t k = 0; k < 3; k++) {
        struct qwick_index_query q = qwick_index_query_defaults();
        struct qwick_index_hit hits[MAX_QUERIES * TOP];
        size_t n_hits[MAX_QUERIES];
        double read[RUNS], product[RUNS];
        q.vectors = queries;
        q.n = (size_t)1 << 3 * k;
        q.top = TOP;
        for (int i = -1; i < RUNS; i++) {
            struct qwick_index_times t;
            if (qwick_index_search(ix, eng, &q, hits, n_hits, &t, &e))
                die();
            read[i < 0 ? 0 : i] = t.read_ms;
            product[i < 0 ? 0 : i] = t.product_ms;
        }
        qsort(read, RUNS, sizeof *read, by_value);
        qsort(product, RUNS, sizeof *product, by_value);
        reads[k] = read[RUNS / 2];
        products[k] = product[RUNS / 2];
        rates[k] = bytes / products[k] * 1e3;
    }
    double after = rate_now(eng), most = before > after ? before : after;
    printf(
        "%zu rows of %zu %s, %.2f GB, %d threads; read bandwidth %.2f GB/s\n",
        info->n_rows, info->dim, info->f16 ? "f16" : "f32", bytes / 1e9,
        qwick_engine_info(eng)->threads, most / 1e9);
    for (size_t k = 0; k < 3; k++)
        printf("%3d queries: reading %7.1f ms, products %7.1f ms, %6.2f GB/s, "
               "%.0f%%\n",
               1 << 3 * k, reads[k], products[k], rates[k] / 1e9,
               rates[k] / most * 100);
    qwick_index_close(ix);
    qwick_engine_close(eng);
    free(queries);
    return 0;
}
