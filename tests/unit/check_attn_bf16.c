/* Attention of prefill in bf16 (attn_blocks_bf16), against double arithmetic on
 * the numbers rounded to bf16.
 *
 *   check_attn_bf16 [--seed N] [--bench]
 *
 * The seed can also come from QWICK_TEST_SEED. --bench times the kernel
 * instead. */
#include "check.h"

static const struct kernels *kernels;

struct attention {
    size_t n, d, ldq;
    struct area q, k, v, acc, m, l, scratch;
    int *lo, *hi;
    enum dtype type;
};

/* ---- what rows see ------------------------------------------------------ */

enum ranges { FULL, CAUSAL, WINDOW, EMPTY, ANY, N_RANGES };

static const char *const range_names[N_RANGES] = {"full", "causal", "window",
                                                  "empty", "any"};

static void fill_ranges(struct attention *a, enum ranges kind)
{
    const int group = 1 + (int)below(4), first = (int)below(KV_BLOCK);
    const int from = (int)below(KV_BLOCK) - 32;

    for (size_t i = 0; i < a->n; i++) {
        int t = (int)i / group, lo = 0, hi = KV_BLOCK;

        if (kind == CAUSAL || kind == WINDOW)
            hi = first + t - 8 < KV_BLOCK ? first + t - 8 : KV_BLOCK;
        if (kind == WINDOW)
            lo = from + t < KV_BLOCK ? from + t : KV_BLOCK;
        if (kind == EMPTY)
            hi = 0;
        if (kind == ANY) { /* lo > hi means empty */
            lo = below(2) ? 0 : (int)below(KV_BLOCK + 1);
            hi = below(2) ? KV_BLOCK : (int)below(KV_BLOCK + 1);
        }
        a->lo[i] = lo < 0 ? 0 : lo;
        a->hi[i] = hi < 0 ? 0 : hi;
    }
}

static bool sees(const struct attention *a, size_t i, size_t j)
{
    return (int)j >= a->lo[i] && (int)j < a->hi[i];
}

/* ---- operands ----------------------------------------------------------- */

/* Make new keys and values. Positions before the first and after the last that
 * rows see have all bits set, which is NaN. */
static void fill_block(struct attention *a, enum kind kind)
{
    const size_t row = a->d * dtype_bytes(a->type), n = KV_BLOCK * a->d;
    float *f = must(malloc(n * sizeof *f));
    int first = KV_BLOCK, last = 0;

    fill(f, n, kind, 1e4f);
    ref->from_f32[a->type](a->k.p, f, n);
    fill(f, n, kind, 1e4f);
    ref->from_f32[a->type](a->v.p, f, n);
    for (size_t i = 0; i < a->n; i++)
        if (a->lo[i] < a->hi[i]) {
            first = a->lo[i] < first ? a->lo[i] : first;
            last = a->hi[i] > last ? a->hi[i] : last;
        }
    for (size_t j = 0; j < KV_BLOCK; j++)
        if ((int)j < first || (int)j >= last) {
            memset((char *)a->k.p + j * row, 0xff, row);
            memset((char *)a->v.p + j * row, 0xff, row);
        }
    area_keep(&a->k);
    area_keep(&a->v);
    free(f);
}

/* Make queries whose scores are about `size`, and rows without positions so
 * far. */
static struct attention attention_new(size_t n, size_t d, enum kind kind,
                                      double size, enum dtype type)
{
    struct attention a = {.n = n, .d = d, .ldq = d + below(4), .type = type};
    const size_t bytes = dtype_bytes(type), nq = n * a.ldq;
    float *f = must(malloc((nq + 1) * sizeof *f));

    a.q = area_new(2 * nq, 2 * below(3));
    a.k = area_new(bytes * KV_BLOCK * d, bytes * below(3));
    a.v = area_new(bytes * KV_BLOCK * d, bytes * below(3));
    a.acc = area_new(4 * n * d, 4 * below(3));
    a.m = area_new(4 * n, 4 * below(3));
    a.l = area_new(4 * n, 4 * below(3));
    a.scratch = area_new(4 * attn_bf16_scratch(n, d), 0);
    a.lo = must(malloc(n * sizeof *a.lo));
    a.hi = must(malloc(n * sizeof *a.hi));
    fill(f, nq, kind, 1e4f);
    for (size_t i = 0; i < nq; i++)
        f[i] *= (float)(3 * size / sqrt((double)d));
    ref->from_f32[DT_BF16](a.q.p, f, nq);
    /* the gaps between rows must not affect results: fill them with NaN */
    for (size_t i = 0; i < n; i++)
        memset((uint16_t *)a.q.p + i * a.ldq + d, 0xff, 2 * (a.ldq - d));
    area_keep(&a.q);
    for (size_t i = 0; i < n; i++) {
        ((float *)a.m.p)[i] = -INFINITY;
        ((float *)a.l.p)[i] = 0;
    }
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

static void keep_state(struct attention *a)
{
    area_keep(&a->acc);
    area_keep(&a->m);
    area_keep(&a->l);
}

/* Run rows [i, i + n) from the kept state; results go to m, l and acc. */
static void attention_call(const struct attention *a, size_t i, size_t n,
                           float *m, float *l, float *acc)
{
    struct attn_rows rows = {.q16 = (const uint16_t *)a->q.p + i * a->ldq,
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
    kernels->attn_blocks_bf16[a->type](&rows, (const void *const[]){a->k.p},
                                       (const void *const[]){a->v.p}, 1, a->d,
                                       a->scratch.p);
}

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
    for (size_t j = 0; j < KV_BLOCK; j++) {
        double mag = 0, lost = 0, x;

        s[j] = 0;
        if (!sees(a, i, j))
            continue;
        for (size_t e = 0; e < a->d; e++)
            s[j] += term((double)q[i * a->ldq + e], (double)k[j * a->d + e],
                         &mag, &lost);
        top = s[j] > top ? s[j] : top;
        x = (double)a->d * U * mag + lost + 2 * (double)a->d * (double)FLT_MIN;
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

static void row_near(const struct attention *a, size_t i, const float *q,
                     const float *k, const float *v, const char *what)
{
    const float *m = a->m.p, *l = a->l.p, *acc = a->acc.p;
    double p[KV_BLOCK], off[KV_BLOCK], ds, top, keep, keep_off = 0;
    double sum, sum_off;
    float m0, l0;

    memcpy(&m0, a->m.copy + 4 * i, 4);
    memcpy(&l0, a->l.copy + 4 * i, 4);
    top = row_scores(a, i, q, k, (double)m0, p, &ds);
    keep = exp((double)m0 - top);
    if (m0 > -INFINITY)
        keep_off = exp_off((double)m0 - top, ds);
    sum = keep * (double)l0;
    sum_off = keep_off * (double)l0;
    for (size_t j = 0; j < KV_BLOCK; j++) {
        if (!sees(a, i, j))
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
         sum_off + 14 * U * (sum + sum_off) + KV_BLOCK * (double)FLT_MIN);
    for (size_t e = 0; e < a->d; e++) {
        double want, mag, lost = 0, bound;
        float a0;

        memcpy(&a0, a->acc.copy + 4 * (i * a->d + e), 4);
        a0 = m0 > -INFINITY ? a0 : 0; /* the old acc counts 0, even if it is
                                         NaN */
        want = keep * (double)a0;
        mag = fabs(want);
        bound = keep_off * fabs((double)a0);
        for (size_t j = 0; j < KV_BLOCK; j++) {
            double x = (double)v[j * a->d + e];

            if (!sees(a, i, j))
                continue;
            want += term(p[j], x, &mag, &lost);
            bound += off[j] * fabs(x);
        }
        /* roundings: the scaling, and an addition per position */
        near(what, i * a->d + e, a->n * a->d, (double)acc[i * a->d + e], want,
             bound + lost + (KV_BLOCK + 1) * U * (mag + bound) +
                 (2 * KV_BLOCK + 1) * (double)FLT_MIN);
    }
}

static void attention_near(const struct attention *a, const char *what)
{
    const size_t d = a->d;
    float *q = rounded(a->q.p, a->n * a->ldq, DT_BF16);
    float *k = rounded(a->k.p, KV_BLOCK * d, a->type);
    float *v = rounded(a->v.p, KV_BLOCK * d, a->type);

    for (size_t i = 0; i < a->n; i++) {
        if (a->lo[i] < a->hi[i])
            row_near(a, i, q, k, v, what);
        else if (memcmp(a->m.copy + 4 * i, (float *)a->m.p + i, 4) ||
                 memcmp(a->l.copy + 4 * i, (float *)a->l.p + i, 4) ||
                 memcmp(a->acc.copy + 4 * i * d, (float *)a->acc.p + i * d,
                        4 * d))
            fail_msg("%s: a row without positions changed", what);
    }
    free(q);
    free(k);
    free(v);
}

/* ---- checks ------------------------------------------------------------- */

/* Single rows, and all rows except the first, have the same bits as in the
 * whole call. */
static void attention_order(const struct attention *a, const char *what)
{
    const size_t n = a->n, d = a->d;
    const float *am = a->m.p, *al = a->l.p, *aa = a->acc.p;
    float *m = must(malloc(4 * n)), *l = must(malloc(4 * n));
    float *acc = must(malloc(4 * n * d));

    for (size_t i = 0; i < n; i += 1 + n / 16) {
        attention_call(a, i, 1, m + i, l + i, acc + i * d);
        same_bits(what, m + i, am + i, 1);
        same_bits(what, l + i, al + i, 1);
        same_bits(what, acc + i * d, aa + i * d, d);
    }
    if (n > 1) {
        attention_call(a, 1, n - 1, m + 1, l + 1, acc + d);
        same_bits(what, m + 1, am + 1, n - 1);
        same_bits(what, l + 1, al + 1, n - 1);
        same_bits(what, acc + d, aa + d, (n - 1) * d);
    }
    free(m);
    free(l);
    free(acc);
}

/* Add one block after the other to the same rows. */
static void attention_case(size_t n, size_t d, enum dtype type)
{
    const enum kind kind = (enum kind)below(N_KINDS);
    const double size = below(4) ? 1 : 1e4;
    struct attention a = attention_new(n, d, kind, size, type);
    char what[128];

    for (size_t block = 0; block < 3; block++) {
        const enum ranges r = (enum ranges)below(N_RANGES);

        snprintf(what, sizeof what,
                 "%zu rows, head_dim %zu, %s, scores of %g, block %zu, %s", n,
                 d, kind_names[kind], size, block, range_names[r]);
        fill_ranges(&a, r);
        fill_block(&a, kind);
        keep_state(&a);
        attention_call(&a, 0, n, a.m.p, a.l.p, a.acc.p);
        area_check(&a.m, what);
        area_check(&a.l, what);
        area_check(&a.acc, what);
        area_check(&a.scratch, what);
        area_same(&a.q, what);
        area_same(&a.k, what);
        area_same(&a.v, what);
        attention_near(&a, what);
        attention_order(&a, what);
    }
    attention_free(&a);
}

static void check_blocks(enum dtype type)
{
    static const size_t dims[] = {1,  2,  7,  15, 16, 17,  31,  32,  33,
                                  63, 64, 65, 80, 96, 127, 128, 130, 256};
    static const size_t counts[] = {16, 17, 47, 48, 49, 64, 100, 256};

    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (size_t n = 1; n <= 13; n++)
            attention_case(n, dims[i], type);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        attention_case(counts[i], 128, type);
        attention_case(counts[i], dims[below(sizeof dims / sizeof *dims)],
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
static void mask_case(size_t n, float bad, enum dtype type)
{
    const size_t d = 24, at = below(2) ? 17 : 18;
    struct attention a = attention_new(n, d, NORMAL, 1, type);
    float *m = must(malloc(4 * n)), *l = must(malloc(4 * n));
    float *acc = must(malloc(4 * n * d));

    for (size_t i = 0; i < n; i++) {
        a.lo[i] = below(3) ? 0 : (int)at + 1;
        a.hi[i] = below(2) ? (int)at + 1 + (int)below(9) : (int)at;
    }
    a.lo[0] = 0;
    a.hi[0] = KV_BLOCK;
    fill_block(&a, NORMAL);
    keep_state(&a);
    attention_call(&a, 0, n, m, l, acc);
    spoil(&a, a.k.p, at, bad);
    spoil(&a, a.v.p, at, bad);
    attention_call(&a, 0, n, a.m.p, a.l.p, a.acc.p);
    for (size_t i = 0; i < n; i++) {
        const float *li = (const float *)a.l.p + i;
        const float *ai = (const float *)a.acc.p + i * d;

        if (sees(&a, i, at)) {
            if (isnan(bad) && !(isnan(*li) && isnan(ai[0])))
                fail_msg("NaN was lost (%zu rows)", n);
            continue;
        }
        same_bits("m beside a bad value", m + i, (const float *)a.m.p + i, 1);
        same_bits("l beside a bad value", l + i, li, 1);
        same_bits("acc beside a bad value", acc + i * d, ai, d);
    }
    free(m);
    free(l);
    free(acc);
    attention_free(&a);
}

static void check_mask(enum dtype type)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};

    for (size_t n = 1; n <= 20; n++)
        for (size_t b = 0; b < 3; b++)
            mask_case(n, bad[b], type);
}

/* Scores that are all -INFINITY have no weight, in this block and after the
 * next. */
static void check_inf(enum dtype type)
{
    enum { D = 8 };
    struct attention a = attention_new(1, D, ZEROS, 1, type);
    float f[KV_BLOCK * D], *m = a.m.p, *l = a.l.p, *acc = a.acc.p;

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
    keep_state(&a);
    attention_call(&a, 0, 1, m, l, acc);
    if (*m != -INFINITY || *l != 0 || acc[0] != 0)
        fail_msg("scores of -inf: m %g, l %g, acc %g", (double)*m, (double)*l,
                 (double)acc[0]);
    ref->from_f32[type](a.k.p, f, KV_BLOCK * D);
    keep_state(&a);
    attention_call(&a, 0, 1, m, l, acc);
    if (*m != -D || *l != 5 || acc[D - 1] != 5)
        fail_msg("after scores of -inf: m %g, l %g, acc %g", (double)*m,
                 (double)*l, (double)acc[D - 1]);
    attention_free(&a);
}

static bool missing(void)
{
    if (kernels)
        return false;
    printf("    SKIP: this CPU has no %s\n", isa_name(ISA_AVX512BF16));
    return true;
}

static void each_type(void (*check)(enum dtype type))
{
    if (missing())
        skip();
    for (int type = 0; type < DT_N_FLOAT; type++)
        check((enum dtype)type);
}

static void test_blocks(void **state)
{
    (void)state;
    each_type(check_blocks);
}

static void test_mask(void **state)
{
    (void)state;
    each_type(check_mask);
}

static void test_inf(void **state)
{
    (void)state;
    each_type(check_inf);
}

/* No rows, or rows without positions: the kernel reads and writes nothing. */
static void test_nothing(void **state)
{
    struct attn_rows rows = {.n = 0};
    const int zero[3] = {0, 0, 0};

    (void)state;
    if (missing())
        skip();
    for (int type = 0; type < DT_N_FLOAT; type++)
        for (size_t n = 0; n <= 3; n += 3) {
            rows.n = n;
            rows.lo = rows.hi = zero;
            kernels->attn_blocks_bf16[type](&rows, (const void *const[2]){NULL},
                                            (const void *const[2]){NULL}, 1,
                                            128, NULL);
        }
}

/* Levels without the instruction have no such kernel. */
static void test_table(void **state)
{
    (void)state;
    for (int i = 0; i < ISA_COUNT; i++) {
        const struct kernels *k = kernels_get((enum isa)i);

        for (int type = 0; k && type < DT_N_FLOAT; type++)
            if (!k->attn_blocks_bf16[type] != (i < ISA_AVX512BF16))
                fail_msg("%s: attn_blocks_bf16[%s]", isa_name((enum isa)i),
                         dtype_name((enum dtype)type));
    }
}

/* ---- measuring ---------------------------------------------------------- */

/* Operations per millisecond, the best of several rounds of at least 2 ms.
 * Rounds that measure the peak alternate with them. */
static double attention_rate(const struct attention *a, double *peak)
{
    const double ops = 4.0 * (double)(a->n * KV_BLOCK * a->d);
    struct attn_rows rows = {.q16 = a->q.p,
                             .ldq = a->ldq,
                             .n = a->n,
                             .lo = a->lo,
                             .hi = a->hi,
                             .m = a->m.p,
                             .l = a->l.p,
                             .acc = a->acc.p};
    size_t reps = (size_t)(1e9 / ops) + 1;
    double best = 0, rate, t;
    float sink;

    for (int round = 0; round < 50; round++) {
        t = clock_ms();
        rate = kernels->peak_bf16(5, &sink);
        rate /= clock_ms() - t;
        *peak = rate > *peak ? rate : *peak;
        t = clock_ms();
        for (size_t r = 0; r < reps; r++)
            kernels->attn_blocks_bf16[a->type](
                &rows, (const void *const[]){a->k.p},
                (const void *const[]){a->v.p}, 1, a->d, a->scratch.p);
        rate = ops * (double)reps / (clock_ms() - t);
        best = rate > best ? rate : best;
    }
    return best;
}

static void bench(void)
{
    static const size_t counts[] = {64, 128, 256, 512};

    if (missing())
        return;
    for (int type = 0; type < DT_N_FLOAT; type++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            struct attention a =
                attention_new(counts[i], 128, NORMAL, 1, (enum dtype)type);
            double peak = 0, rate;

            a.ldq = a.d;
            fill_ranges(&a, FULL);
            fill_block(&a, NORMAL);
            /* clear the gaps between the spread-out rows */
            memset(a.q.p, 0, 2 * a.n * a.d);
            rate = attention_rate(&a, &peak);
            printf("%-5s %4zu rows, head_dim 128 %9.2f GFLOP/s, %.1f %% of "
                   "peak_bf16 %.2f\n",
                   dtype_name((enum dtype)type), a.n, rate * 1e-6,
                   100 * rate / peak, peak * 1e-6);
            attention_free(&a);
        }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),   cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_mask),    cmocka_unit_test(test_inf),
        cmocka_unit_test(test_nothing),
    };
    const char *env = getenv("QWICK_TEST_SEED");
    bool timing = false;

    if (env && *env)
        seed = strtoull(env, NULL, 0);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--bench")) {
            timing = true;
        } else if (!strcmp(argv[i], "--seed") && i + 1 < argc) {
            seed = strtoull(argv[++i], NULL, 0);
        } else {
            fprintf(stderr, "usage: check_attn_bf16 [--seed N] [--bench]\n");
            return 2;
        }
    }
    ref = kernels_get(ISA_REF);
    kernels = kernels_get(getenv("AMX") ? ISA_AMX : ISA_AVX512BF16);
    if (timing) {
        bench();
        return 0;
    }
    printf("seed %llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
