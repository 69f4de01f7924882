/* Attention of f32, f16 and bf16 caches, on every level of this CPU, against
 * double arithmetic in this file. check_table.h has the options. */
#include "check_table.h"

/* ---- attention ---------------------------------------------------------- */

struct attention {
    size_t n, d, ldq;
    struct area q, k, v, acc, m, l, scratch;
    int *lo, *hi;
    enum dtype type;
};

/* Whether to test attn_tile in place of attn_block. */
static bool by_tiles;

static struct attention attention_new(size_t n, size_t d, enum kind kind,
                                      enum dtype type)
{
    struct attention a = {.n = n, .d = d, .ldq = d + below(4), .type = type};
    size_t nk = KV_BLOCK * d, bytes = dtype_bytes(type);
    float *f = must(malloc(nk * sizeof *f));
    double scale = 3 / sqrt((double)d);
    int first = KV_BLOCK, last = 0;

    a.q = area_new(4 * n * a.ldq, 4 * below(3));
    a.k = area_new(bytes * nk, bytes * below(3));
    a.v = area_new(bytes * nk, bytes * below(3));
    a.acc = area_new(4 * n * d, 4 * below(3));
    a.m = area_new(4 * n, 4 * below(3));
    a.l = area_new(4 * n, 4 * below(3));
    a.scratch = area_new(
        4 * (by_tiles ? attn_tile_scratch(n, d) : attn_scratch(n, d)), 0);
    a.lo = must(malloc(n * sizeof *a.lo));
    a.hi = must(malloc(n * sizeof *a.hi));
    fill(a.q.p, n * a.ldq, kind, 1e4f);
    for (size_t i = 0; i < n * a.ldq; i++)
        ((float *)a.q.p)[i] *= (float)scale;
    for (size_t i = 0; i < n; i++) {
        /* full, empty, or cut at one end or both; lo > hi means empty */
        a.lo[i] = below(2) ? 0 : (int)below(KV_BLOCK + 1);
        a.hi[i] = below(2) ? KV_BLOCK : (int)below(KV_BLOCK + 1);
        if (a.lo[i] < a.hi[i]) {
            first = a.lo[i] < first ? a.lo[i] : first;
            last = a.hi[i] > last ? a.hi[i] : last;
        }
    }
    fill(f, nk, kind, 1e4f);
    ref->from_f32[type](a.k.p, f, nk);
    fill(f, nk, kind, 1e4f);
    ref->from_f32[type](a.v.p, f, nk);
    /* no row attends to these positions: set all bits, which is NaN */
    for (size_t j = 0; j < KV_BLOCK; j++)
        if ((int)j < first || (int)j >= last) {
            memset((char *)a.k.p + j * d * bytes, 0xff, d * bytes);
            memset((char *)a.v.p + j * d * bytes, 0xff, d * bytes);
        }
    /* half of the rows have attended to a block before */
    for (size_t i = 0; i < n; i++) {
        bool fresh = below(2);

        ((float *)a.m.p)[i] = fresh ? -INFINITY : (float)(4 * uniform() - 2);
        ((float *)a.l.p)[i] = fresh ? 0 : (float)(1 + uniform());
        for (size_t e = 0; e < d; e++)
            ((float *)a.acc.p)[i * d + e] =
                fresh ? 0 : (float)(uniform() - 0.5);
    }
    area_keep(&a.q);
    area_keep(&a.k);
    area_keep(&a.v);
    area_keep(&a.acc); /* kept as the state before the call */
    area_keep(&a.m);
    area_keep(&a.l);
    free(f);
    return a;
}

static void attention_free(struct attention *a)
{
    area_free(&a->q);
    area_free(&a->k);
    area_free(&a->v);
    area_free(&a->acc);
    area_free(&a->m);
    area_free(&a->l);
    area_free(&a->scratch);
    free(a->lo);
    free(a->hi);
}

/* Run rows [i, i + n) on new copies of the state. */
static void attention_call(const struct kernels *k, const struct attention *a,
                           size_t i, size_t n, float *m, float *l, float *acc)
{
    struct attn_rows rows = {.q = (const float *)a->q.p + i * a->ldq,
                             .ldq = a->ldq,
                             .n = n,
                             .lo = a->lo + i,
                             .hi = a->hi + i,
                             .m = m,
                             .l = l,
                             .acc = acc};

    memcpy(m, a->m.copy + 4 * i, 4 * n);
    memcpy(l, a->l.copy + 4 * i, 4 * n);
    memcpy(acc, a->acc.copy + 4 * i * a->d, 4 * n * a->d);
    (by_tiles ? k->attn_tile : k->attn_block)[a->type](&rows, a->k.p, a->v.p,
                                                       a->d, a->scratch.p);
}

/* Compare with double arithmetic. A score has an error of ds = (d / 8 + 5) u
 * sum |q k| (8 lanes or more; attn_tile has one, so d in place of d / 8), and
 * so has the maximum. Then exp(s - m) has a relative error of 2 ds + u |s - m|
 * + 4 u; attn_tile may flush results below exp(-87) to 0. The sums over the
 * block add 64 u. */
static void attention_near(const struct attention *a, const char *what)
{
    const float *q = a->q.p, *m = a->m.p, *l = a->l.p, *acc = a->acc.p;
    float *kf = must(malloc(4 * KV_BLOCK * a->d));
    float *vf = must(malloc(4 * KV_BLOCK * a->d));
    double *p = must(malloc(KV_BLOCK * sizeof *p));
    double *off = must(malloc(KV_BLOCK * sizeof *off));

    ref->to_f32[a->type](kf, a->k.p, KV_BLOCK * a->d);
    ref->to_f32[a->type](vf, a->v.p, KV_BLOCK * a->d);
    for (size_t i = 0; i < a->n; i++) {
        float m0, l0;
        double top, ds = 0, keep, keep_off, sum, sum_off;

        memcpy(&m0, a->m.copy + 4 * i, 4);
        memcpy(&l0, a->l.copy + 4 * i, 4);
        if (a->lo[i] >= a->hi[i]) {
            if (memcmp(&m0, m + i, 4) || memcmp(&l0, l + i, 4) ||
                memcmp(a->acc.copy + 4 * i * a->d, acc + i * a->d, 4 * a->d))
                fail_msg("%s: a row without positions changed", what);
            continue;
        }
        top = (double)m0;
        for (size_t j = (size_t)a->lo[i]; j < (size_t)a->hi[i]; j++) {
            double dot = 0, mag = 0, x;

            for (size_t e = 0; e < a->d; e++) {
                x = (double)q[i * a->ldq + e] * (double)kf[j * a->d + e];
                dot += x;
                mag += fabs(x);
            }
            p[j] = dot;
            top = dot > top ? dot : top;
            x = ceil((double)a->d / (by_tiles ? 1 : 8)) + 5;
            x = x * U * mag + (double)a->d * TINY;
            ds = x > ds ? x : ds;
        }
        keep = exp((double)m0 - top);
        keep_off = keep * expm1(ds + U * fabs(top - (double)m0) + 6 * U);
        if (m0 == -INFINITY)
            keep_off = 0;
        sum = keep * (double)l0;
        sum_off = keep_off * (double)l0;
        for (size_t j = (size_t)a->lo[i]; j < (size_t)a->hi[i]; j++) {
            double s = p[j];

            p[j] = exp(s - top);
            off[j] = p[j] * expm1(2 * ds + U * (top - s + 2 * ds) + 4 * U) +
                     64 * TINY;
            if (by_tiles && top - s > 87 - 2 * ds && off[j] < p[j])
                off[j] = p[j];
            sum += p[j];
            sum_off += off[j];
        }
        near(what, i, a->n, (double)m[i], top, ds + U * fabs(top));
        near(what, i, a->n, (double)l[i], sum, sum_off + 66 * U * sum);
        for (size_t e = 0; e < a->d; e++) {
            float a0;
            double want, bound, mag;

            memcpy(&a0, a->acc.copy + 4 * (i * a->d + e), 4);
            want = keep * (double)a0;
            bound = keep_off * fabs((double)a0);
            mag = fabs(want);
            for (size_t j = (size_t)a->lo[i]; j < (size_t)a->hi[i]; j++) {
                double v = (double)vf[j * a->d + e];

                want += p[j] * v;
                mag += fabs(p[j] * v);
                bound += off[j] * fabs(v);
            }
            near(what, i * a->d + e, a->n * a->d, (double)acc[i * a->d + e],
                 want, bound + 66 * U * mag + 64 * TINY);
        }
    }
    free(kf);
    free(vf);
    free(p);
    free(off);
}

static void check_attn(const struct kernels *k, enum dtype type)
{
    static const size_t dims[] = {1,  2,  7,   8,   9,   15,  16,
                                  17, 31, 32,  33,  63,  64,  65,
                                  80, 96, 127, 128, 129, 256, 257};
    static const size_t counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 17, 64, 97};
    char what[96];

    for (size_t di = 0; di < sizeof dims / sizeof *dims; di++)
        for (size_t ci = 0; ci < sizeof counts / sizeof *counts; ci++) {
            enum kind kind = (enum kind)below(N_KINDS);
            struct attention a =
                attention_new(counts[ci], dims[di], kind, type);
            size_t n = a.n, d = a.d;
            float *m = must(malloc(4 * n)), *l = must(malloc(4 * n));
            float *acc = must(malloc(4 * n * d));

            snprintf(what, sizeof what, "%zu rows, head_dim %zu, %s", n, d,
                     kind_names[kind]);
            attention_call(k, &a, 0, n, a.m.p, a.l.p, a.acc.p);
            area_check(&a.m, what);
            area_check(&a.l, what);
            area_check(&a.acc, what);
            area_check(&a.scratch, what);
            area_same(&a.q, what);
            area_same(&a.k, what);
            area_same(&a.v, what);
            attention_near(&a, what);
            /* single rows, and all rows except the first */
            for (size_t i = 0; i < n; i++)
                attention_call(k, &a, i, 1, m + i, l + i, acc + i * d);
            same_bits(what, m, a.m.p, n);
            same_bits(what, l, a.l.p, n);
            same_bits(what, acc, a.acc.p, n * d);
            if (n > 1) {
                attention_call(k, &a, 1, n - 1, m + 1, l + 1, acc + d);
                same_bits(what, m, a.m.p, n);
                same_bits(what, l, a.l.p, n);
                same_bits(what, acc, a.acc.p, n * d);
            }
            free(m);
            free(l);
            free(acc);
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

/* An infinite or NaN value affects exactly the rows that attend to its
 * position, not their neighbours. */
static void check_attn_mask(const struct kernels *k, enum dtype type)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};

    for (size_t n = 1; n <= 20; n++)
        for (size_t b = 0; b < 3; b++) {
            size_t d = 24, at = 17;
            struct attention a = attention_new(n, d, NORMAL, type);
            float *f = must(malloc(4 * KV_BLOCK * d));
            float *m = must(malloc(4 * n)), *l = must(malloc(4 * n));
            float *acc = must(malloc(4 * n * d));

            for (size_t i = 0; i < n; i++) {
                a.lo[i] = below(3) ? 0 : (int)at + 1;
                a.hi[i] = below(2) ? (int)at + 1 + (int)below(9) : (int)at;
            }
            fill(f, KV_BLOCK * d, NORMAL, 0);
            ref->from_f32[type](a.k.p, f, KV_BLOCK * d);
            fill(f, KV_BLOCK * d, NORMAL, 0);
            ref->from_f32[type](a.v.p, f, KV_BLOCK * d);
            attention_call(k, &a, 0, n, m, l, acc);
            ref->to_f32[type](f, a.k.p, KV_BLOCK * d);
            for (size_t e = 0; e < d; e++)
                f[at * d + e] = bad[b];
            ref->from_f32[type](a.k.p, f, KV_BLOCK * d);
            ref->to_f32[type](f, a.v.p, KV_BLOCK * d);
            for (size_t e = 0; e < d; e++)
                f[at * d + e] = bad[b];
            ref->from_f32[type](a.v.p, f, KV_BLOCK * d);
            attention_call(k, &a, 0, n, a.m.p, a.l.p, a.acc.p);
            for (size_t i = 0; i < n; i++) {
                const float *li = (const float *)a.l.p + i;
                const float *ai = (const float *)a.acc.p + i * d;

                if (a.lo[i] <= (int)at && a.hi[i] > (int)at) {
                    if (b == 0 && !(isnan(*li) && isnan(ai[0])))
                        fail_msg("NaN was lost (%zu rows)", n);
                    continue;
                }
                same_beside("m beside a bad value", m + i,
                            (const float *)a.m.p + i, 1);
                same_beside("l beside a bad value", l + i, li, 1);
                same_beside("acc beside a bad value", acc + i * d, ai, d);
            }
            free(f);
            free(m);
            free(l);
            free(acc);
            attention_free(&a);
        }
}

/* Scores that are all -INFINITY have no weight, in this block and after the
 * next. */
static void check_attn_inf(const struct kernels *k, enum dtype type)
{
    float q[8], m = -INFINITY, l = 0, acc[8] = {0}, f[KV_BLOCK * 8];
    struct area kv = area_new(sizeof f, 0);
    struct area scratch = area_new(4 * attn_tile_scratch(1, 8), 0);
    void (*attn)(const struct attn_rows *, const void *, const void *, size_t,
                 float *) = (by_tiles ? k->attn_tile : k->attn_block)[type];
    int lo = 0, hi = 5;
    struct attn_rows rows = {.q = q,
                             .ldq = 8,
                             .n = 1,
                             .lo = &lo,
                             .hi = &hi,
                             .m = &m,
                             .l = &l,
                             .acc = acc};

    for (int i = 0; i < 8; i++)
        q[i] = -1;
    for (int i = 0; i < KV_BLOCK * 8; i++)
        f[i] = INFINITY;
    ref->from_f32[type](kv.p, f, KV_BLOCK * 8);
    /* f has finite numbers for the values; keys are infinite */
    for (int i = 0; i < KV_BLOCK * 8; i++)
        f[i] = 1;
    {
        struct area v = area_new(sizeof f, 0);

        ref->from_f32[type](v.p, f, KV_BLOCK * 8);
        attn(&rows, kv.p, v.p, 8, scratch.p);
        if (m != -INFINITY || l != 0 || acc[0] != 0)
            fail_msg("scores of -inf: m %g, l %g, acc %g", (double)m, (double)l,
                     (double)acc[0]);
        attn(&rows, v.p, v.p, 8, scratch.p);
        if (m != -8 || l != 5 || acc[7] != 5)
            fail_msg("after scores of -inf: m %g, l %g, acc %g", (double)m,
                     (double)l, (double)acc[7]);
        area_free(&v);
    }
    area_free(&kv);
    area_free(&scratch);
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
        float *f = must(malloc(4 * KV_BLOCK * d));
        char shape[64];
        double ms;

        for (size_t j = 0; j < n; j++) {
            a.lo[j] = 0;
            a.hi[j] = KV_BLOCK;
        }
        fill(f, KV_BLOCK * d, NORMAL, 0);
        ref->from_f32[type](a.k.p, f, KV_BLOCK * d);
        ref->from_f32[type](a.v.p, f, KV_BLOCK * d);
        TIME(ms, (by_tiles ? k->attn_tile : k->attn_block)[type](
                     &rows, a.k.p, a.v.p, d, a.scratch.p));
        snprintf(shape, sizeof shape, "%zu rows, head_dim %zu", n, d);
        bench_line(benched, shape, ms, 4.0 * (double)(n * KV_BLOCK * d),
                   "GFLOP/s");
        free(f);
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
