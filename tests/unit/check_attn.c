/* Attention of f32, f16 and bf16 caches, on every level of this CPU, against
 * double arithmetic (check_attn.h). check_table.h has the options. */
#include "check_attn.h"

/* ---- attention ---------------------------------------------------------- */

/* Whether to test attn_tile in place of attn_block. */
static bool by_tiles;

static void fill_numbers(const struct attention *a, const struct area *block,
                         enum kind kind)
{
    float *f = must(malloc(4 * KV_BLOCK * a->d));

    fill(f, KV_BLOCK * a->d, kind, 1e4f);
    ref->from_f32[a->type](block->p, f, KV_BLOCK * a->d);
    free(f);
}

static struct attention attention_new(size_t n, size_t d, enum kind kind,
                                      enum dtype type)
{
    const size_t bytes = dtype_bytes(type);
    struct attention a = attention_areas(n, d, 4, bytes * KV_BLOCK * d, bytes,
                                         by_tiles ? attn_tile_scratch(n, d)
                                                  : attn_scratch(n, d));

    a.type = type;
    fill_queries(a.q.p, &a, kind, 1);
    for (size_t i = 0; i < n; i++)
        random_range(&a, i);
    fill_numbers(&a, &a.k, kind);
    fill_numbers(&a, &a.v, kind);
    hide_positions(&a, d * bytes);
    return attention_ready(a);
}

static void attention_call(const struct kernels *k, const struct attention *a,
                           size_t i, size_t n, const struct results *out)
{
    struct attn_rows rows = f32_rows_from(a, i, n, out);

    (by_tiles ? k->attn_tile : k->attn_block)[a->type](&rows, a->k.p, a->v.p,
                                                       a->d, a->scratch.p);
}

static void attention_near(const struct attention *a, const char *what)
{
    /* attn_tile sums a score in one lane, attn_block in 8 or more */
    const struct f32_rules rules = {by_tiles ? 1 : 8, by_tiles};
    const size_t d = a->d;
    float *keys = must(malloc(4 * KV_BLOCK * d));
    float *values = must(malloc(4 * KV_BLOCK * d));
    double *q = must(malloc(d * sizeof *q));

    ref->to_f32[a->type](keys, a->k.p, KV_BLOCK * d);
    ref->to_f32[a->type](values, a->v.p, KV_BLOCK * d);
    for (size_t i = 0; i < a->n; i++) {
        if (a->lo[i] >= a->hi[i]) {
            row_unchanged(a, i, what);
            continue;
        }
        for (size_t e = 0; e < d; e++)
            q[e] = (double)((const float *)a->q.p)[i * a->ldq + e];
        row_near(a, i, q, keys, values, rules, what);
    }
    free(keys);
    free(values);
    free(q);
}

static void check_attn(const struct kernels *k, enum dtype type)
{
    static const size_t dims[] = {1,  2,  7,   8,   9,   15,  16,
                                  17, 31, 32,  33,  63,  64,  65,
                                  80, 96, 127, 128, 129, 256, 257};
    static const size_t counts[] = {1, 2, 3,  4,  5,  6,  7,
                                    8, 9, 10, 17, 64, 97, 512};
    char what[96];

    for (size_t di = 0; di < sizeof dims / sizeof *dims; di++)
        for (size_t ci = 0; ci < sizeof counts / sizeof *counts; ci++) {
            /* of the many rows, one head_dim in eight */
            if (counts[ci] > 97 && di % 8)
                continue;
            enum kind kind = (enum kind)below(N_KINDS);
            struct attention a =
                attention_new(counts[ci], dims[di], kind, type);
            struct results r = results_in(&a);

            snprintf(what, sizeof what, "%zu rows, head_dim %zu, %s, cap %g",
                     a.n, a.d, kind_names[kind], (double)a.cap);
            attention_call(k, &a, 0, a.n, &r);
            attention_untouched(&a, what);
            attention_near(&a, what);
            same_by(k, &a, attention_call, 1, 1, what);
            attention_free(&a);
        }
}

/* Compare values that should be equal: bit by bit, except for attn_tile. It
 * uses another order of sums if a value is not finite, and then differs by a
 * few roundings of 24 products or 64 exponentials. */
static void same_beside(const char *what, const float *a, const float *b,
                        size_t n)
{
    if (!by_tiles) {
        same_bits(what, a, b, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-4f * (1 + fabsf(a[i]))) && a[i] != b[i])
            fail_msg("%s: %g for %g", what, (double)b[i], (double)a[i]);
}

/* Set all elements of a position. */
static void spoil(const struct attention *a, const struct area *block,
                  size_t at, float bad)
{
    const size_t bytes = dtype_bytes(a->type);
    float *f = must(malloc(4 * a->d));

    for (size_t e = 0; e < a->d; e++)
        f[e] = bad;
    ref->from_f32[a->type]((char *)block->p + at * a->d * bytes, f, a->d);
    free(f);
}

/* An infinite or NaN value affects exactly the rows that attend to its
 * position, not their neighbours. */
static void check_attn_mask(const struct kernels *k, enum dtype type)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};

    for (size_t n = 1; n <= 20; n++)
        for (size_t b = 0; b < 3; b++) {
            const size_t at = 17;
            struct attention a = attention_new(n, 24, NORMAL, type);
            struct results before = results_new(&a), r = results_in(&a);

            ranges_around(&a, at);
            fill_numbers(&a, &a.k, NORMAL);
            fill_numbers(&a, &a.v, NORMAL);
            attention_call(k, &a, 0, n, &before);
            spoil(&a, &a.k, at, bad[b]);
            spoil(&a, &a.v, at, bad[b]);
            attention_call(k, &a, 0, n, &r);
            bad_value_stays(&a, &before, at, bad[b], same_beside);
            results_free(&before);
            attention_free(&a);
        }
}

static void check_attn_inf(const struct kernels *k, enum dtype type)
{
    struct attention a = attention_new(1, 8, ZEROS, type);

    a.lo[0] = 0;
    a.hi[0] = 5;
    for (size_t e = 0; e < a.d; e++)
        ((float *)a.q.p)[e] = -1;
    for (size_t j = 0; j < KV_BLOCK; j++) {
        spoil(&a, &a.k, j, INFINITY);
        spoil(&a, &a.v, j, 1);
    }
    *(float *)a.m.p = -INFINITY;
    *(float *)a.l.p = 0;
    memset(a.acc.p, 0, 4 * a.d);
    capped_inf_scores(k, &a, attention_call);
    *(float *)a.m.p = -INFINITY;
    *(float *)a.l.p = 0;
    memset(a.acc.p, 0, 4 * a.d);
    inf_scores(k, &a, attention_call);
    attention_free(&a);
}

static void check_attn_all(const struct kernels *k, enum dtype type)
{
    check_attn(k, type);
    check_attn_mask(k, type);
    check_attn_inf(k, type);
}

static void check_attn_tile(const struct kernels *k, enum dtype type)
{
    by_tiles = true;
    check_attn_all(k, type);
    by_tiles = false;
}

/* ---- benches ------------------------------------------------------------ */

static void bench_attn(const struct kernels *k, enum dtype type)
{
    static const size_t counts[] = {1, 2, 4, 8, 512};

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        size_t n = counts[i], d = 128;
        struct attention a = attention_new(n, d, NORMAL, type);
        struct attn_rows rows = {.q = a.q.p,
                                 .ldq = a.ldq,
                                 .n = n,
                                 .lo = a.lo,
                                 .hi = a.hi,
                                 .m = a.m.p,
                                 .l = a.l.p,
                                 .acc = a.acc.p};
        char shape[64];
        double ms;

        for (size_t j = 0; j < n; j++) {
            a.lo[j] = 0;
            a.hi[j] = KV_BLOCK;
        }
        fill_numbers(&a, &a.k, NORMAL);
        fill_numbers(&a, &a.v, NORMAL);
        TIME(ms, (by_tiles ? k->attn_tile : k->attn_block)[type](
                     &rows, a.k.p, a.v.p, d, a.scratch.p));
        snprintf(shape, sizeof shape, "%zu rows, head_dim %zu", n, d);
        bench_line(benched, shape, ms, 4.0 * (double)(n * KV_BLOCK * d),
                   "GFLOP/s");
        attention_free(&a);
    }
}

static void bench_attn_tile(const struct kernels *k, enum dtype type)
{
    by_tiles = true;
    bench_attn(k, type);
    by_tiles = false;
}

/* ---- main --------------------------------------------------------------- */

static const struct check_row rows[] = {
    {"attn_block", DT_F32, DT_BF16, check_attn_all, bench_attn},
    {"attn_tile", DT_F32, DT_BF16, check_attn_tile, bench_attn_tile},
};

int main(int argc, char **argv)
{
    return check_main(argc, argv, "attention", rows, sizeof rows / sizeof *rows,
                      NULL, 0);
}
