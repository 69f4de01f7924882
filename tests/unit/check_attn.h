/* Shared by the checks of attention: rows and a block of keys and values in
 * guarded memory, calls on copies of the rows' state, and comparisons. */
#ifndef TESTS_CHECK_ATTN_H
#define TESTS_CHECK_ATTN_H

#include "check_table.h"

/* n rows that attend to `positions` positions: one block, or several. Each
 * check fills q, k and v in the layout that its kernel reads. */
struct attention {
    size_t n, d, ldq, positions;
    float cap; /* of scores; 0: none */
    struct area q, k, v, acc, m, l, scratch;
    int *lo, *hi;
    enum dtype type; /* of the block */
};

/* ---- set-up ------------------------------------------------------------- */

/* Allocate areas: q has q_bytes an element; k and v have kv_bytes, and start
 * up to twice kv_step bytes after a multiple of 64. */
static struct attention attention_areas(size_t n, size_t d, size_t q_bytes,
                                        size_t kv_bytes, size_t kv_step,
                                        size_t scratch)
{
    static const float caps[] = {0, 0, 0, 0.5f, 50};
    struct attention a = {.n = n,
                          .d = d,
                          .ldq = d + below(4),
                          .positions = KV_BLOCK,
                          .cap = caps[below(sizeof caps / sizeof *caps)]};

    a.q = area_new(q_bytes * n * a.ldq, q_bytes * below(3));
    a.k = area_new(kv_bytes, kv_step * below(3));
    a.v = area_new(kv_bytes, kv_step * below(3));
    a.acc = area_new(4 * n * d, 4 * below(3));
    a.m = area_new(4 * n, 4 * below(3));
    a.l = area_new(4 * n, 4 * below(3));
    a.scratch = area_new(4 * scratch, 0);
    a.lo = must(malloc(n * sizeof *a.lo));
    a.hi = must(malloc(n * sizeof *a.hi));
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

/* Fill f [n, ldq] with queries whose scores are about `size`. */
static void fill_queries(float *f, const struct attention *a, enum kind kind,
                         double size)
{
    fill(f, a->n * a->ldq, kind, 1e4f);
    for (size_t i = 0; i < a->n * a->ldq; i++)
        f[i] *= (float)(3 * size / sqrt((double)a->d));
}

/* Make row i full, empty, or cut at one end or both; lo > hi means empty. */
static void random_range(struct attention *a, size_t i)
{
    a->lo[i] = below(2) ? 0 : (int)below(a->positions + 1);
    a->hi[i] = below(2) ? (int)a->positions : (int)below(a->positions + 1);
}

/* Make some rows end at position `at`, some attend to it, and some start after
 * it. */
static void ranges_around(struct attention *a, size_t at)
{
    for (size_t i = 0; i < a->n; i++) {
        a->lo[i] = below(3) ? 0 : (int)at + 1;
        a->hi[i] = below(2) ? (int)at + 1 + (int)below(9) : (int)at;
    }
}

static bool attends(const struct attention *a, size_t i, size_t j)
{
    return (int)j >= a->lo[i] && (int)j < a->hi[i];
}

/* Set all bits, which is NaN, of the positions before the first and after the
 * last that a row attends to. row: bytes of a position. */
static __attribute__((unused)) void hide_positions(struct attention *a,
                                                   size_t row)
{
    int first = (int)a->positions, last = 0;

    for (size_t i = 0; i < a->n; i++)
        if (a->lo[i] < a->hi[i]) {
            first = a->lo[i] < first ? a->lo[i] : first;
            last = a->hi[i] > last ? a->hi[i] : last;
        }
    for (size_t j = 0; j < a->positions; j++)
        if ((int)j < first || (int)j >= last) {
            memset((char *)a->k.p + j * row, 0xff, row);
            memset((char *)a->v.p + j * row, 0xff, row);
        }
}

/* Half of the rows have attended to a block before. */
static __attribute__((unused)) void fill_state(struct attention *a)
{
    for (size_t i = 0; i < a->n; i++) {
        bool fresh = below(2);

        ((float *)a->m.p)[i] = fresh ? -INFINITY : (float)(4 * uniform() - 2);
        ((float *)a->l.p)[i] = fresh ? 0 : (float)(1 + uniform());
        for (size_t e = 0; e < a->d; e++)
            ((float *)a->acc.p)[i * a->d + e] =
                fresh ? 0 : (float)(uniform() - 0.5);
    }
}

/* Keep the inputs, and the state of the rows before a call. */
static void attention_keep(struct attention *a)
{
    area_keep(&a->q);
    area_keep(&a->k);
    area_keep(&a->v);
    area_keep(&a->acc);
    area_keep(&a->m);
    area_keep(&a->l);
}

/* The last step of set-up: fill and keep the state of the rows. */
static __attribute__((unused)) struct attention
attention_ready(struct attention a)
{
    fill_state(&a);
    attention_keep(&a);
    return a;
}

/* ---- calls -------------------------------------------------------------- */

/* The state of rows after a call. */
struct results {
    float *m, *l, *acc;
};

static struct results results_new(const struct attention *a)
{
    return (struct results){.m = must(malloc(4 * a->n)),
                            .l = must(malloc(4 * a->n)),
                            .acc = must(malloc(4 * a->n * a->d))};
}

static void results_free(struct results *r)
{
    free(r->m);
    free(r->l);
    free(r->acc);
}

/* The areas of a, where guards are. */
static struct results results_in(const struct attention *a)
{
    return (struct results){.m = a->m.p, .l = a->l.p, .acc = a->acc.p};
}

/* Return rows [i, i + n) with the kept state, which is copied to out. The
 * caller adds the queries. */
static struct attn_rows rows_from(const struct attention *a, size_t i, size_t n,
                                  const struct results *out)
{
    struct attn_rows rows = {.ldq = a->ldq,
                             .n = n,
                             .cap = a->cap,
                             .lo = a->lo + i,
                             .hi = a->hi + i,
                             .m = out->m + i,
                             .l = out->l + i,
                             .acc = out->acc + i * a->d};

    memcpy(rows.m, a->m.copy + 4 * i, 4 * n);
    memcpy(rows.l, a->l.copy + 4 * i, 4 * n);
    memcpy(rows.acc, a->acc.copy + 4 * i * a->d, 4 * n * a->d);
    return rows;
}

/* The same with queries in f32. */
static __attribute__((unused)) struct attn_rows
f32_rows_from(const struct attention *a, size_t i, size_t n,
              const struct results *out)
{
    struct attn_rows rows = rows_from(a, i, n, out);

    rows.q = (const float *)a->q.p + i * a->ldq;
    return rows;
}

/* Call the kernel on rows [i, i + n) from the kept state. */
typedef void call_fn(const struct kernels *k, const struct attention *a,
                     size_t i, size_t n, const struct results *out);

/* ---- comparisons -------------------------------------------------------- */

/* A call wrote to no guard and changed no input. */
static void attention_untouched(const struct attention *a, const char *what)
{
    area_check(&a->m, what);
    area_check(&a->l, what);
    area_check(&a->acc, what);
    area_check(&a->scratch, what);
    area_same(&a->q, what);
    area_same(&a->k, what);
    area_same(&a->v, what);
}

/* Rows [i, i + n) of r have the bits of a's. */
static void same_rows(const struct attention *a, const struct results *r,
                      size_t i, size_t n, const char *what)
{
    const struct results all = results_in(a);

    same_bits(what, r->m + i, all.m + i, n);
    same_bits(what, r->l + i, all.l + i, n);
    same_bits(what, r->acc + i * a->d, all.acc + i * a->d, n * a->d);
}

/* Calls of `step` rows, and a call of all rows except the first, give the bits
 * of a call of all rows. Calls start every `stride` rows. */
static __attribute__((unused)) void same_by(const struct kernels *k,
                                            const struct attention *a,
                                            call_fn *call, size_t step,
                                            size_t stride, const char *what)
{
    struct results r = results_new(a);

    for (size_t i = 0; i < a->n; i += stride) {
        size_t n = a->n - i < step ? a->n - i : step;

        call(k, a, i, n, &r);
        same_rows(a, &r, i, n, what);
    }
    if (a->n > 1) {
        call(k, a, 1, a->n - 1, &r);
        same_rows(a, &r, 1, a->n - 1, what);
    }
    results_free(&r);
}

/* A row without positions keeps its state. */
static void row_unchanged(const struct attention *a, size_t i, const char *what)
{
    const size_t d = a->d;

    if (memcmp(a->m.copy + 4 * i, (float *)a->m.p + i, 4) ||
        memcmp(a->l.copy + 4 * i, (float *)a->l.p + i, 4) ||
        memcmp(a->acc.copy + 4 * i * d, (float *)a->acc.p + i * d, 4 * d))
        fail_msg("%s: a row without positions changed", what);
}

/* The state of row i before the call. */
static float state_before(const struct area *area, size_t i)
{
    float v;

    memcpy(&v, area->copy + 4 * i, sizeof v);
    return v;
}

/* Cap a score and add the error of doing so to *off, which is that of s: the
 * slope of tanh is at most 1. kernels.cap has 8 u; it may lose products with
 * 2 / cap that are subnormal. */
static __attribute__((unused)) double capped(const struct attention *a,
                                             double s, double *off)
{
    const double cap = (double)a->cap;

    if (a->cap == 0)
        return s;
    s = cap * tanh(s / cap);
    *off += 8 * U * fabs(s) + cap * (double)FLT_MIN;
    return s;
}

/* The arithmetic of kernels in f32. lanes: the least number of lanes that sum a
 * score. flush: results of exp below exp(-87) may become 0. */
struct f32_rules {
    size_t lanes;
    bool flush;
};

/* Compare row i with double arithmetic. q [d]; keys, values [KV_BLOCK, d]. A
 * score has an error of ds = (d / lanes + 5) u sum |q k|, and so has the
 * maximum. Then exp(s - m) has a relative error of 2 ds + u |s - m| + 4 u. The
 * sums over the block add 64 u. */
static __attribute__((unused)) void
row_near(const struct attention *a, size_t i, const double *q,
         const float *keys, const float *values, struct f32_rules rules,
         const char *what)
{
    const size_t d = a->d, lo = (size_t)a->lo[i], hi = (size_t)a->hi[i];
    const struct results r = results_in(a);
    const double m0 = (double)state_before(&a->m, i);
    const double l0 = (double)state_before(&a->l, i);
    double p[KV_BLOCK], off[KV_BLOCK];
    double top = m0, ds = 0, keep, keep_off, sum, sum_off;

    for (size_t j = lo; j < hi; j++) {
        double mag = 0, x;

        p[j] = 0;
        for (size_t e = 0; e < d; e++) {
            x = q[e] * (double)keys[j * d + e];
            p[j] += x;
            mag += fabs(x);
        }
        x = (ceil((double)d / (double)rules.lanes) + 5) * U * mag +
            (double)d * TINY;
        p[j] = capped(a, p[j], &x);
        top = p[j] > top ? p[j] : top;
        ds = x > ds ? x : ds;
    }
    keep = exp(m0 - top);
    keep_off = keep * expm1(ds + U * fabs(top - m0) + 6 * U);
    if (isinf(m0))
        keep_off = 0;
    sum = keep * l0;
    sum_off = keep_off * l0;
    for (size_t j = lo; j < hi; j++) {
        double below_top = top - p[j];

        p[j] = exp(-below_top);
        off[j] =
            p[j] * expm1(2 * ds + U * (below_top + 2 * ds) + 4 * U) + 64 * TINY;
        if (rules.flush && below_top > 87 - 2 * ds && off[j] < p[j])
            off[j] = p[j];
        sum += p[j];
        sum_off += off[j];
    }
    near(what, i, a->n, (double)r.m[i], top, ds + U * fabs(top));
    near(what, i, a->n, (double)r.l[i], sum, sum_off + 66 * U * sum);
    for (size_t e = 0; e < d; e++) {
        double a0 = (double)state_before(&a->acc, i * d + e);
        double want = keep * a0, bound = keep_off * fabs(a0), mag = fabs(want);

        for (size_t j = lo; j < hi; j++) {
            double v = (double)values[j * d + e];

            want += p[j] * v;
            mag += fabs(p[j] * v);
            bound += off[j] * fabs(v);
        }
        near(what, i * d + e, a->n * d, (double)r.acc[i * d + e], want,
             bound + 66 * U * mag + 64 * TINY);
    }
}

/* Compare rows before and after position `at` got a bad value: a row that does
 * not attend to it is the same; NaN shows in a row that does. */
static void bad_value_stays(const struct attention *a,
                            const struct results *before, size_t at, float bad,
                            void (*same)(const char *, const float *,
                                         const float *, size_t))
{
    const struct results r = results_in(a);
    const size_t d = a->d;

    for (size_t i = 0; i < a->n; i++) {
        const float *acc = r.acc + i * d;

        if (attends(a, i, at)) {
            if (isnan(bad) &&
                !(isnan(r.l[i]) && isnan(acc[0]) && isnan(acc[d - 1])))
                fail_msg("NaN was lost (%zu rows)", a->n);
            continue;
        }
        same("m beside a bad value", before->m + i, r.m + i, 1);
        same("l beside a bad value", before->l + i, r.l + i, 1);
        same("acc beside a bad value", before->acc + i * d, acc, d);
    }
}

/* Scores that are all -INFINITY have no weight, in this block and after the
 * next. The check has filled row 0, which attends to five positions, with
 * queries of -1, keys with INFINITY and values with 1. */
static __attribute__((unused)) void
inf_scores(const struct kernels *k, struct attention *a, call_fn *call)
{
    const struct results r = results_in(a);
    const size_t d = a->d;

    a->cap = 0;
    attention_keep(a);
    call(k, a, 0, 1, &r);
    if (*r.m != -INFINITY || *r.l != 0 || r.acc[0] != 0)
        fail_msg("scores of -inf: m %g, l %g, acc %g", (double)*r.m,
                 (double)*r.l, (double)r.acc[0]);
    memcpy(a->k.p, a->v.p, a->k.bytes);
    attention_keep(a);
    call(k, a, 0, 1, &r);
    if (*r.m != -(float)d || *r.l != 5 || r.acc[d - 1] != 5)
        fail_msg("after scores of -inf: m %g, l %g, acc %g", (double)*r.m,
                 (double)*r.l, (double)r.acc[d - 1]);
}

/* A cap does not hide infinite scores: they become NaN. Row 0 is as for
 * inf_scores. */
static __attribute__((unused)) void
capped_inf_scores(const struct kernels *k, struct attention *a, call_fn *call)
{
    const struct results r = results_in(a);

    a->cap = 50;
    attention_keep(a);
    call(k, a, 0, 1, &r);
    if (!isnan(*r.l))
        fail_msg("capped scores of -inf: l %g", (double)*r.l);
}

#endif
