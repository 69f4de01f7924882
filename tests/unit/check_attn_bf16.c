/* Attention of prefill in bf16 (attn_blocks_bf16), on every level that has it,
 * against double arithmetic on the numbers rounded to bf16. check_table.h has
 * the options. */
#include "check_attn.h"

/* ---- ranges of rows ----------------------------------------------------- */

enum ranges { FULL, CAUSAL, WINDOW, EMPTY, ANY, N_RANGES };

static const char *const range_names[N_RANGES] = {"full", "causal", "window",
                                                  "empty", "any"};

static void fill_ranges(struct attention *a, enum ranges kind)
{
    const int group = 1 + (int)below(4), all = (int)a->positions;
    const int first = (int)below(a->positions);
    const int from = (int)below(a->positions) - 32;

    for (size_t i = 0; i < a->n; i++) {
        int t = (int)i / group, lo = 0, hi = all;

        if (kind == CAUSAL || kind == WINDOW)
            hi = first + t - 8 < all ? first + t - 8 : all;
        if (kind == WINDOW)
            lo = from + t < all ? from + t : all;
        if (kind == EMPTY)
            hi = 0;
        a->lo[i] = lo < 0 ? 0 : lo;
        a->hi[i] = hi < 0 ? 0 : hi;
        if (kind == ANY)
            random_range(a, i);
    }
}

/* ---- operands ----------------------------------------------------------- */

/* Make new keys and values. Positions before the first and after the last that
 * rows attend to have all bits set, which is NaN. */
static void fill_block(struct attention *a, enum kind kind)
{
    const size_t n = a->positions * a->d;
    float *f = must(malloc(n * sizeof *f));

    fill(f, n, kind, 1e4f);
    ref->from_f32[a->type](a->k.p, f, n);
    fill(f, n, kind, 1e4f);
    ref->from_f32[a->type](a->v.p, f, n);
    hide_positions(a, a->d * dtype_bytes(a->type));
    free(f);
}

/* Make queries whose scores are about `size`, and rows without positions so
 * far. */
static struct attention attention_new(size_t n, size_t d, enum kind kind,
                                      double size, size_t n_blocks,
                                      enum dtype type)
{
    const size_t bytes = dtype_bytes(type), positions = n_blocks * KV_BLOCK;
    struct attention a = attention_areas(n, d, 2, bytes * positions * d, bytes,
                                         attn_bf16_scratch(n, d));
    const size_t nq = n * a.ldq;
    float *f = must(malloc((nq + 1) * sizeof *f));

    a.type = type;
    a.positions = positions;
    fill_queries(f, &a, kind, size);
    ref->from_f32[DT_BF16](a.q.p, f, nq);
    /* the gaps between rows must not affect results: fill them with NaN */
    for (size_t i = 0; i < n; i++)
        memset((uint16_t *)a.q.p + i * a.ldq + d, 0xff, 2 * (a.ldq - d));
    for (size_t i = 0; i < n; i++) {
        ((float *)a.m.p)[i] = -INFINITY;
        ((float *)a.l.p)[i] = 0;
    }
    free(f);
    return a;
}

static void attention_call(const struct kernels *k, const struct attention *a,
                           size_t i, size_t n, const struct results *out)
{
    const size_t block = KV_BLOCK * a->d * dtype_bytes(a->type);
    struct attn_rows rows = rows_from(a, i, n, out);

    rows.q16 = (const uint16_t *)a->q.p + i * a->ldq;
    k->attn_blocks_bf16[a->type](
        &rows, (const void *const[]){a->k.p, (char *)a->k.p + block},
        (const void *const[]){a->v.p, (char *)a->v.p + block},
        a->positions / KV_BLOCK, a->d, a->scratch.p);
}

enum { MAX_POSITIONS = ATTN_BF16_BLOCKS * KV_BLOCK };

/* ---- against double arithmetic ------------------------------------------ */

/* n stored values rounded to bf16. */
static float *rounded(const void *p, size_t n, enum dtype type)
{
    float *f = must(malloc((n + 1) * sizeof *f));
    uint16_t *h = must(malloc((n + 1) * sizeof *h));

    if (type == DT_F32)
        memcpy(f, p, n * sizeof *f);
    else
        ref->to_f32[type](f, p, n);
    ref->from_f32[DT_BF16](h, f, n);
    ref->to_f32[DT_BF16](f, h, n);
    free(h);
    return f;
}

/* A product as vdpbf16ps computes it. It takes subnormal operands as 0; then
 * the lost amount is added to *lost, otherwise the magnitude to *mag. */
static double term(double a, double b, double *mag, double *lost)
{
    double x = a * b;

    if (fabs(a) < (double)FLT_MIN || fabs(b) < (double)FLT_MIN)
        *lost += fabs(x);
    else
        *mag += fabs(x);
    return x;
}

/* A row's scores s. Returns the maximum of them and `before`. *off: the bound
 * of each score's error. Products are exact; each addition rounds, and can
 * flush the product and the sum to 0. */
static double row_scores(const struct attention *a, size_t i, const float *q,
                         const float *k, double before, double *s, double *off)
{
    double top = before;

    *off = 0;
    for (size_t j = 0; j < a->positions; j++) {
        double mag = 0, lost = 0, x;

        s[j] = 0;
        if (!attends(a, i, j))
            continue;
        for (size_t e = 0; e < a->d; e++)
            s[j] += term((double)q[i * a->ldq + e], (double)k[j * a->d + e],
                         &mag, &lost);
        x = (double)a->d * U * mag + lost + 2 * (double)a->d * (double)FLT_MIN;
        s[j] = capped(a, s[j], &x);
        top = s[j] > top ? s[j] : top;
        *off = x > *off ? x : *off;
    }
    return top;
}

/* The error bound of exp(x) if x has the error dx. Roundings: s - m, log2(e),
 * and their product. The polynomial has an error of 1.6 u, its last addition u,
 * the earlier ones less than 1.4 u. exp(x) is at most 1. */
static double exp_off(double x, double dx)
{
    const double e = dx + 3 * U * (fabs(x) + dx) + 4 * U;

    return fmin(exp(x + e) * -expm1(-e), 1) + (double)FLT_MIN;
}

static void bf16_row_near(const struct attention *a, size_t i, const float *q,
                          const float *k, const float *v, const char *what)
{
    const float *m = a->m.p, *l = a->l.p, *acc = a->acc.p;
    double p[MAX_POSITIONS], off[MAX_POSITIONS], ds, top, keep, keep_off = 0;
    double sum, sum_off;
    const size_t n = a->positions;
    const float m0 = state_before(&a->m, i), l0 = state_before(&a->l, i);

    top = row_scores(a, i, q, k, (double)m0, p, &ds);
    keep = exp((double)m0 - top);
    if (m0 > -INFINITY)
        keep_off = exp_off((double)m0 - top, ds);
    sum = keep * (double)l0;
    sum_off = keep_off * (double)l0;
    for (size_t j = 0; j < n; j++) {
        if (!attends(a, i, j))
            continue;
        /* the maximum also has an error; rounding to 8 bits adds half a unit of
         * the last bit */
        off[j] = exp_off(p[j] - top, 2 * ds);
        p[j] = exp(p[j] - top);
        off[j] += (p[j] + off[j]) * 0x1p-8;
        sum += p[j];
        sum_off += off[j];
    }
    near(what, i, a->n, (double)m[i], top, ds);
    /* roundings: two times four additions, four foldings, and the addition to
     * the old sum */
    near(what, i, a->n, (double)l[i], sum,
         sum_off + 14 * U * (sum + sum_off) + (double)n * (double)FLT_MIN);
    for (size_t e = 0; e < a->d; e++) {
        double want, mag, lost = 0, bound;
        float a0 = state_before(&a->acc, i * a->d + e);

        a0 = m0 > -INFINITY ? a0 : 0; /* the old acc counts 0, even if it is
                                         NaN */
        want = keep * (double)a0;
        mag = fabs(want);
        bound = keep_off * fabs((double)a0);
        for (size_t j = 0; j < n; j++) {
            double x = (double)v[j * a->d + e];

            if (!attends(a, i, j))
                continue;
            want += term(p[j], x, &mag, &lost);
            bound += off[j] * fabs(x);
        }
        /* roundings: the scaling, and an addition per position */
        near(what, i * a->d + e, a->n * a->d, (double)acc[i * a->d + e], want,
             bound + lost + (double)(n + 1) * U * (mag + bound) +
                 (double)(2 * n + 1) * (double)FLT_MIN);
    }
}

static void attention_near(const struct attention *a, const char *what)
{
    const size_t d = a->d;
    float *q = rounded(a->q.p, a->n * a->ldq, DT_BF16);
    float *k = rounded(a->k.p, a->positions * d, a->type);
    float *v = rounded(a->v.p, a->positions * d, a->type);

    for (size_t i = 0; i < a->n; i++) {
        if (a->lo[i] < a->hi[i])
            bf16_row_near(a, i, q, k, v, what);
        else
            row_unchanged(a, i, what);
    }
    free(q);
    free(k);
    free(v);
}

/* ---- checks ------------------------------------------------------------- */

/* Add one call after the other to the same rows. */
static void attention_case(const struct kernels *k, size_t n, size_t d,
                           enum dtype type)
{
    const enum kind kind = (enum kind)below(N_KINDS);
    const double size = below(4) ? 1 : 1e4;
    const size_t n_blocks = 1 + below(ATTN_BF16_BLOCKS);
    struct attention a = attention_new(n, d, kind, size, n_blocks, type);
    struct results r = results_in(&a);
    char what[128];

    for (size_t call = 0; call < 3; call++) {
        const enum ranges ranges = (enum ranges)below(N_RANGES);

        snprintf(what, sizeof what,
                 "%zu rows, head_dim %zu, %s, scores of %g, cap %g, %zu "
                 "blocks, call %zu, %s",
                 n, d, kind_names[kind], size, (double)a.cap, n_blocks, call,
                 range_names[ranges]);
        fill_ranges(&a, ranges);
        fill_block(&a, kind);
        attention_keep(&a);
        attention_call(k, &a, 0, n, &r);
        attention_untouched(&a, what);
        attention_near(&a, what);
        same_by(k, &a, attention_call, 1, 1 + n / 16, what);
    }
    attention_free(&a);
}

static void check_blocks(const struct kernels *k, enum dtype type)
{
    static const size_t dims[] = {1,  2,  7,  15, 16, 17,  31,  32,  33,
                                  63, 64, 65, 80, 96, 127, 128, 130, 256};
    static const size_t counts[] = {16, 17, 47, 48, 49, 64, 100, 256, 512};

    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (size_t n = 1; n <= 13; n++)
            attention_case(k, n, dims[i], type);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        attention_case(k, counts[i], 128, type);
        attention_case(k, counts[i], dims[below(sizeof dims / sizeof *dims)],
                       type);
    }
}

static void spoil(const struct attention *a, void *p, size_t at, float bad)
{
    const size_t n = KV_BLOCK * a->d;
    float *f = must(malloc(n * sizeof *f));

    if (a->type == DT_F32)
        memcpy(f, p, n * sizeof *f);
    else
        ref->to_f32[a->type](f, p, n);
    for (size_t e = 0; e < a->d; e++)
        f[at * a->d + e] = bad;
    ref->from_f32[a->type](p, f, n);
    free(f);
}

/* An infinite or NaN value affects exactly the rows that attend to its
 * position, not their neighbours. */
static void mask_case(const struct kernels *k, size_t n, float bad,
                      enum dtype type)
{
    const size_t at = below(2) ? 17 : 18;
    struct attention a = attention_new(n, 24, NORMAL, 1, 1, type);
    struct results before = results_new(&a), r = results_in(&a);

    ranges_around(&a, at);
    a.lo[0] = 0;
    a.hi[0] = KV_BLOCK;
    fill_block(&a, NORMAL);
    attention_keep(&a);
    attention_call(k, &a, 0, n, &before);
    spoil(&a, a.k.p, at, bad);
    spoil(&a, a.v.p, at, bad);
    attention_call(k, &a, 0, n, &r);
    bad_value_stays(&a, &before, at, bad, same_bits);
    results_free(&before);
    attention_free(&a);
}

static void check_mask(const struct kernels *k, enum dtype type)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};

    for (size_t n = 1; n <= 20; n++)
        for (size_t b = 0; b < 3; b++)
            mask_case(k, n, bad[b], type);
}

static void check_inf(const struct kernels *k, enum dtype type)
{
    enum { D = 8 };
    struct attention a = attention_new(1, D, ZEROS, 1, 1, type);
    float f[KV_BLOCK * D];

    a.lo[0] = 0;
    a.hi[0] = 5;
    for (size_t i = 0; i < D; i++)
        f[i] = -1;
    ref->from_f32[DT_BF16](a.q.p, f, D);
    for (size_t i = 0; i < KV_BLOCK * D; i++)
        f[i] = INFINITY;
    ref->from_f32[type](a.k.p, f, KV_BLOCK * D);
    for (size_t i = 0; i < KV_BLOCK * D; i++)
        f[i] = 1;
    ref->from_f32[type](a.v.p, f, KV_BLOCK * D);
    capped_inf_scores(k, &a, attention_call);
    *(float *)a.m.p = -INFINITY;
    *(float *)a.l.p = 0;
    memset(a.acc.p, 0, 4 * a.d);
    inf_scores(k, &a, attention_call);
    attention_free(&a);
}

/* No rows, or rows without positions: the kernel reads and writes nothing. */
static void check_nothing(const struct kernels *k, enum dtype type)
{
    struct attn_rows rows = {.n = 0};
    const int zero[3] = {0, 0, 0};

    for (size_t n = 0; n <= 3; n += 3) {
        rows.n = n;
        rows.lo = rows.hi = zero;
        k->attn_blocks_bf16[type](&rows, (const void *const[2]){NULL},
                                  (const void *const[2]){NULL}, 1, 128, NULL);
    }
}

/* Levels without the instruction have no such kernel. */
static void check_all(const struct kernels *k, enum dtype type)
{
    if (!k->attn_blocks_bf16[type] == x86_from(k, ISA_AVX512BF16))
        fail_msg("%s: attn_blocks_bf16[%s]", k->name, dtype_name(type));
    if (!k->attn_blocks_bf16[type])
        return;
    check_blocks(k, type);
    check_mask(k, type);
    check_inf(k, type);
    check_nothing(k, type);
}

/* ---- measuring ---------------------------------------------------------- */

/* Operations per millisecond, the best of several rounds of at least 2 ms.
 * Rounds that measure the peak alternate with them. */
static double attention_rate(const struct kernels *k, const struct attention *a,
                             double *peak)
{
    const double ops = 4.0 * (double)(a->n * KV_BLOCK * a->d);
    const struct results r = results_in(a);
    struct attn_rows rows = rows_from(a, 0, a->n, &r);
    size_t reps = (size_t)(1e9 / ops) + 1;
    double best = 0, rate, t;
    float sink;

    rows.q16 = a->q.p;
    for (int round = 0; round < 50; round++) {
        t = clock_ms();
        rate = k->peak_bf16(5, &sink);
        rate /= clock_ms() - t;
        *peak = rate > *peak ? rate : *peak;
        t = clock_ms();
        for (size_t i = 0; i < reps; i++)
            k->attn_blocks_bf16[a->type](&rows, (const void *const[]){a->k.p},
                                         (const void *const[]){a->v.p}, 1, a->d,
                                         a->scratch.p);
        rate = ops * (double)reps / (clock_ms() - t);
        best = rate > best ? rate : best;
    }
    return best;
}

static void bench_blocks(const struct kernels *k, enum dtype type)
{
    static const size_t counts[] = {64, 128, 256, 512};

    if (!k->attn_blocks_bf16[type])
        return;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct attention a = attention_new(counts[i], 128, NORMAL, 1, 1, type);
        double peak = 0, rate;

        a.ldq = a.d;
        fill_ranges(&a, FULL);
        fill_block(&a, NORMAL);
        /* clear the gaps between the spread-out rows */
        memset(a.q.p, 0, 2 * a.n * a.d);
        attention_keep(&a);
        rate = attention_rate(k, &a, &peak);
        printf("%-28s %4zu rows, head_dim 128 %9.2f GFLOP/s, %.1f %% of "
               "peak_bf16 %.2f\n",
               benched->name, a.n, rate * 1e-6, 100 * rate / peak, peak * 1e-6);
        attention_free(&a);
    }
}

static const struct check_row rows[] = {
    {"attn_blocks_bf16", DT_F32, DT_BF16, check_all, bench_blocks},
};

int main(int argc, char **argv)
{
    return check_main(argc, argv, "attention in bf16", rows, 1, NULL, 0);
}
