/* attn_block_i8 and attn_tile_i8 of each level against double arithmetic on the
 * widened numbers of an int8 block, and for attn_block_i8 on the rounded
 * queries; attn_blocks_bf16_i8 against attn_blocks_bf16. QWICK_TEST_SEED is the
 * seed. */
#include "check.h"

static const struct kernels *tested;

struct q8_attention {
    size_t n, d, ldq;
    struct area q, k, v, acc, m, l, scratch;
    int *lo, *hi;
};

static size_t block_bytes(size_t d)
{
    return KV_BLOCK * (d + kv_i8_groups(d) * sizeof(float));
}

/* Element e of position j, widened and rounded once, as in the kernels. */
static float value_at(const struct area *block, size_t d, size_t j, size_t e)
{
    const unsigned char *p = block->p;
    size_t at = j * kv_i8_groups(d) + e / KV_I8_GROUP;
    float scale;

    memcpy(&scale, p + KV_BLOCK * d + 4 * at, sizeof scale);
    return (float)(int8_t)p[j * d + e] * scale;
}

/* Return the step of which attn_block_i8 rounds a query to multiples. */
static double step_of(const float *q, size_t d)
{
    double top = 0;

    for (size_t e = 0; e < d; e++)
        top = fmax(top, fabs((double)q[e]));
    return ldexp(1, (top < 0x1p-112 ? -112 : ilogb(top)) - 13);
}

/* Fill a block: bytes of all 256 values, and scales of one kind, some
 * negative. */
static void fill_block(struct area *block, size_t d, enum kind kind)
{
    size_t n = KV_BLOCK * kv_i8_groups(d);
    unsigned char *p = block->p;
    float *f = must(malloc(n * sizeof *f));

    for (size_t i = 0; i < KV_BLOCK * d; i++)
        p[i] = (unsigned char)below(256);
    fill(f, n, kind, 100);
    for (size_t i = 0; i < n; i++)
        f[i] /= 64;
    memcpy(p + KV_BLOCK * d, f, n * sizeof *f);
    free(f);
}

/* Set all bits of a position, so that its scales are NaN. */
static void spoil(struct area *block, size_t d, size_t j)
{
    const size_t row = kv_i8_groups(d) * sizeof(float);
    unsigned char *p = block->p;

    memset(p + j * d, 0xff, d);
    memset(p + KV_BLOCK * d + j * row, 0xff, row);
}

enum ranges { RANDOM, FULL, EMPTY, CAUSAL, N_RANGES };

static void set_range(struct q8_attention *a, size_t i, enum ranges ranges)
{
    int lo = 0, hi = KV_BLOCK;

    if (ranges == RANDOM) { /* cut at one end or both; lo > hi means empty */
        lo = below(2) ? 0 : (int)below(KV_BLOCK + 1);
        hi = below(2) ? KV_BLOCK : (int)below(KV_BLOCK + 1);
    } else if (ranges == EMPTY) {
        lo = (int)below(KV_BLOCK + 1);
        hi = (int)below((size_t)lo + 1);
    } else if (ranges == CAUSAL) { /* two rows per token */
        hi = (int)(i / 2 + 1 < KV_BLOCK ? i / 2 + 1 : KV_BLOCK);
    }
    a->lo[i] = lo;
    a->hi[i] = hi;
}

/* Make rows misaligned by multiples of 4 bytes, and blocks misaligned by any
 * number of bytes. Positions that no row attends to are spoilt. */
static struct q8_attention attention_new(size_t n, size_t d, enum kind kind,
                                         enum ranges ranges)
{
    struct q8_attention a = {.n = n, .d = d, .ldq = d + below(4)};
    const double scale = 3 / sqrt((double)d);

    a.q = area_new(4 * n * a.ldq, 4 * below(3));
    a.k = area_new(block_bytes(d), below(8));
    a.v = area_new(block_bytes(d), below(8));
    a.acc = area_new(4 * n * d, 4 * below(3));
    a.m = area_new(4 * n, 4 * below(3));
    a.l = area_new(4 * n, 4 * below(3));
    a.scratch = area_new(4 * attn_scratch(n, d), 0);
    a.lo = must(malloc(n * sizeof *a.lo));
    a.hi = must(malloc(n * sizeof *a.hi));
    fill(a.q.p, n * a.ldq, kind, 1e4f);
    for (size_t i = 0; i < n * a.ldq; i++)
        ((float *)a.q.p)[i] *= (float)scale;
    fill_block(&a.k, d, kind);
    fill_block(&a.v, d, kind);
    for (size_t i = 0; i < n; i++)
        set_range(&a, i, ranges);
    for (size_t j = 0; j < KV_BLOCK; j++) {
        bool seen = false;

        for (size_t i = 0; i < n; i++)
            seen = seen || (a.lo[i] <= (int)j && (int)j < a.hi[i]);
        if (!seen) {
            spoil(&a.k, d, j);
            spoil(&a.v, d, j);
        }
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
    return a;
}

static void attention_free(struct q8_attention *a)
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

/* Rows [i, i + n) with new copies of the state. */
static struct attn_rows rows_of(const struct q8_attention *a, size_t i,
                                size_t n, float *m, float *l, float *acc)
{
    memcpy(m, a->m.copy + 4 * i, 4 * n);
    memcpy(l, a->l.copy + 4 * i, 4 * n);
    memcpy(acc, a->acc.copy + 4 * i * a->d, 4 * n * a->d);
    return (struct attn_rows){.q = (const float *)a->q.p + i * a->ldq,
                              .ldq = a->ldq,
                              .n = n,
                              .lo = a->lo + i,
                              .hi = a->hi + i,
                              .m = m,
                              .l = l,
                              .acc = acc};
}

static void attention_call(const struct q8_attention *a, size_t i, size_t n,
                           float *m, float *l, float *acc)
{
    struct attn_rows rows = rows_of(a, i, n, m, l, acc);

    tested->attn_block_i8(&rows, a->k.p, a->v.p, a->d, a->scratch.p);
}

/* attn_tile on the widened block. */
static void tile_call(const struct q8_attention *a, float *m, float *l,
                      float *acc)
{
    const size_t n = KV_BLOCK * a->d;
    float *kv = must(malloc(8 * n));
    struct area scratch = area_new(4 * attn_tile_scratch(a->n, a->d), 0);
    struct attn_rows rows = rows_of(a, 0, a->n, m, l, acc);

    for (size_t i = 0; i < n; i++) {
        kv[i] = value_at(&a->k, a->d, i / a->d, i % a->d);
        kv[n + i] = value_at(&a->v, a->d, i / a->d, i % a->d);
    }
    tested->attn_tile[DT_F32](&rows, kv, kv + n, a->d, scratch.p);
    free(kv);
    area_free(&scratch);
}

/* attn_tile_i8 on the int8 block; results go to a->m, a->l and a->acc. */
static void tile_q8_call(const struct q8_attention *a)
{
    struct area scratch = area_new(4 * attn_tile_scratch(a->n, a->d), 0);
    struct attn_rows rows = rows_of(a, 0, a->n, a->m.p, a->l.p, a->acc.p);

    tested->attn_tile_i8(&rows, a->k.p, a->v.p, a->d, scratch.p);
    area_check(&scratch, "attn_tile_i8");
    area_free(&scratch);
}

/* One row against double arithmetic on the widened block. A score has an error
 * of ds = (d / 8 + 5) u sum |q k| (8 lanes or more), and so has the maximum.
 * Then exp(s - m) has a relative error of 2 ds + u |s - m| + 4 u, and the sums
 * over the block add 64 u. */
static void row_near(const struct q8_attention *a, size_t i, const char *what)
{
    const size_t d = a->d, lo = (size_t)a->lo[i], hi = (size_t)a->hi[i];
    const float *q = (const float *)a->q.p + i * a->ldq;
    const double step = step_of(q, d);
    double p[KV_BLOCK], off[KV_BLOCK], top, ds = 0, keep, keep_off, sum, slack;
    float m0, l0;

    memcpy(&m0, a->m.copy + 4 * i, 4);
    memcpy(&l0, a->l.copy + 4 * i, 4);
    top = (double)m0;
    for (size_t j = lo; j < hi; j++) {
        double mag = 0, x;

        p[j] = 0;
        for (size_t e = 0; e < d; e++) {
            x = rint((double)q[e] / step) * step *
                (double)value_at(&a->k, d, j, e);
            p[j] += x;
            mag += fabs(x);
        }
        top = p[j] > top ? p[j] : top;
        x = (ceil((double)d / 8) + 5) * U * mag + (double)d * TINY;
        ds = x > ds ? x : ds;
    }
    keep = exp((double)m0 - top);
    keep_off = m0 == -INFINITY
                   ? 0
                   : keep * expm1(ds + U * fabs(top - (double)m0) + 6 * U);
    sum = keep * (double)l0;
    slack = keep_off * (double)l0;
    for (size_t j = lo; j < hi; j++) {
        double below_top = top - p[j];

        p[j] = exp(-below_top);
        off[j] =
            p[j] * expm1(2 * ds + U * (below_top + 2 * ds) + 4 * U) + 64 * TINY;
        sum += p[j];
        slack += off[j];
    }
    near(what, i, a->n, (double)((float *)a->m.p)[i], top, ds + U * fabs(top));
    near(what, i, a->n, (double)((float *)a->l.p)[i], sum,
         slack + 66 * U * sum);
    for (size_t e = 0; e < d; e++) {
        double want, bound, mag;
        float a0;

        memcpy(&a0, a->acc.copy + 4 * (i * d + e), 4);
        want = keep * (double)a0;
        bound = keep_off * fabs((double)a0);
        mag = fabs(want);
        for (size_t j = lo; j < hi; j++) {
            double v = (double)value_at(&a->v, d, j, e);

            want += p[j] * v;
            mag += fabs(p[j] * v);
            bound += off[j] * fabs(v);
        }
        near(what, i * d + e, a->n * d, (double)((float *)a->acc.p)[i * d + e],
             want, bound + 66 * U * mag + 64 * TINY);
    }
}

static void rows_near(const struct q8_attention *a, const char *what)
{
    for (size_t i = 0; i < a->n; i++) {
        if (a->lo[i] < a->hi[i]) {
            row_near(a, i, what);
            continue;
        }
        same_bits(what, (float *)a->m.p + i,
                  (float *)(void *)(a->m.copy + 4 * i), 1);
        same_bits(what, (float *)a->l.p + i,
                  (float *)(void *)(a->l.copy + 4 * i), 1);
        same_bits(what, (float *)a->acc.p + i * a->d,
                  (float *)(void *)(a->acc.copy + 4 * i * a->d), a->d);
    }
}

static void untouched(const struct q8_attention *a, const char *what)
{
    area_check(&a->m, what);
    area_check(&a->l, what);
    area_check(&a->acc, what);
    area_check(&a->scratch, what);
    area_same(&a->q, what);
    area_same(&a->k, what);
    area_same(&a->v, what);
}

/* Calls of `step` rows give the same bits as one call of all rows. */
static void same_by(const struct q8_attention *a, size_t step, const char *what)
{
    float *m = must(malloc(4 * a->n)), *l = must(malloc(4 * a->n));
    float *acc = must(malloc(4 * a->n * a->d));

    for (size_t i = 0; i < a->n; i += step)
        attention_call(a, i, a->n - i < step ? a->n - i : step, m + i, l + i,
                       acc + i * a->d);
    same_bits(what, m, a->m.p, a->n);
    same_bits(what, l, a->l.p, a->n);
    same_bits(what, acc, a->acc.p, a->n * a->d);
    free(m);
    free(l);
    free(acc);
}

static const size_t dims[] = {1, 2, 31, 32, 33, 48, 64, 96, 127, 128, 130, 256};
static const size_t counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 64};

enum {
    N_DIMS = sizeof dims / sizeof *dims,
    N_COUNTS = sizeof counts / sizeof *counts
};

static void check_sizes(void **state)
{
    tested = *state;
    for (size_t c = 0; c < N_DIMS * N_COUNTS * N_RANGES; c++) {
        size_t d = dims[c % N_DIMS], n = counts[c / N_DIMS % N_COUNTS];
        enum ranges ranges = (enum ranges)(c / N_DIMS / N_COUNTS);
        enum kind kind = (enum kind)below(N_KINDS);
        struct q8_attention a = attention_new(n, d, kind, ranges);
        char what[96];

        snprintf(what, sizeof what, "%zu rows, head_dim %zu, %s, ranges %d", n,
                 d, kind_names[kind], (int)ranges);
        attention_call(&a, 0, n, a.m.p, a.l.p, a.acc.p);
        untouched(&a, what);
        rows_near(&a, what);
        same_by(&a, 1, what);
        same_by(&a, 2 + below(n), what);
        attention_free(&a);
    }
}

/* A NaN affects exactly the rows that attend to its position, not their
 * neighbours. */
static void check_mask(void **state)
{
    tested = *state;
    for (size_t n = 1; n <= 20; n++) {
        size_t d = 40, at = 17;
        struct q8_attention a = attention_new(n, d, NORMAL, FULL);
        float *m = must(malloc(4 * n)), *l = must(malloc(4 * n));
        float *acc = must(malloc(4 * n * d));

        for (size_t i = 0; i < n; i++) {
            a.lo[i] = below(3) ? 0 : (int)at + 1;
            a.hi[i] = below(2) ? (int)at + 1 + (int)below(9) : (int)at;
        }
        attention_call(&a, 0, n, m, l, acc);
        spoil(&a.k, d, at);
        spoil(&a.v, d, at);
        attention_call(&a, 0, n, a.m.p, a.l.p, a.acc.p);
        for (size_t i = 0; i < n; i++) {
            const float *li = (const float *)a.l.p + i;
            const float *ai = (const float *)a.acc.p + i * d;

            if (a.lo[i] <= (int)at && a.hi[i] > (int)at) {
                if (!isnan(*li) || !isnan(ai[0]) || !isnan(ai[d - 1]))
                    fail_msg("NaN was lost (%zu rows)", n);
                continue;
            }
            same_bits("m beside NaN", m + i, (const float *)a.m.p + i, 1);
            same_bits("l beside NaN", l + i, li, 1);
            same_bits("acc beside NaN", acc + i * d, ai, d);
        }
        free(m);
        free(l);
        free(acc);
        attention_free(&a);
    }
}

/* A query with an element that is not finite makes its row NaN, and no other
 * row. */
static void check_query(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};

    tested = *state;
    for (size_t c = 0; c < 3 * 20; c++) {
        size_t n = c / 3 + 1, d = 1 + below(140), at = below(n);
        struct q8_attention a = attention_new(n, d, NORMAL, FULL);
        float *m = must(malloc(4 * n)), *l = must(malloc(4 * n));
        float *acc = must(malloc(4 * n * d));

        attention_call(&a, 0, n, m, l, acc);
        ((float *)a.q.p)[at * a.ldq + below(d)] = bad[c % 3];
        attention_call(&a, 0, n, a.m.p, a.l.p, a.acc.p);
        for (size_t i = 0; i < n; i++) {
            const float *li = (const float *)a.l.p + i;
            const float *ai = (const float *)a.acc.p + i * d;

            if (i == at) {
                if (!isnan(*li) || !isnan(ai[0]) || !isnan(ai[d - 1]))
                    fail_msg("row %zu of %zu is finite", i, n);
                continue;
            }
            same_bits("l beside NaN", l + i, li, 1);
            same_bits("acc beside NaN", acc + i * d, ai, d);
        }
        free(m);
        free(l);
        free(acc);
        attention_free(&a);
    }
}

static void check_tiles(void **state)
{
    tested = *state;
    for (size_t c = 0; c < N_DIMS * N_COUNTS * N_RANGES; c++) {
        size_t d = dims[c % N_DIMS], n = counts[c / N_DIMS % N_COUNTS];
        struct q8_attention a =
            attention_new(n, d, (enum kind)below(N_KINDS),
                          (enum ranges)(c / N_DIMS / N_COUNTS));
        float *m = must(malloc(4 * n)), *l = must(malloc(4 * n));
        float *acc = must(malloc(4 * n * d));

        tile_call(&a, m, l, acc);
        tile_q8_call(&a);
        untouched(&a, "attn_tile_i8");
        same_bits("maxima of tiles", m, a.m.p, n);
        same_bits("sums of tiles", l, a.l.p, n);
        same_bits("tiles", acc, a.acc.p, n * d);
        free(m);
        free(l);
        free(acc);
        attention_free(&a);
    }
}

/* attn_blocks_bf16_i8, or attn_blocks_bf16 on the blocks widened and rounded to
 * bf16, for blocks k and v and, if n_blocks is 2, v and k. */
static void blocks_call(const struct q8_attention *a, size_t n_blocks,
                        bool widened, const uint16_t *q16, float *m, float *l,
                        float *acc)
{
    const size_t n = KV_BLOCK * a->d;
    const size_t floats = widened ? attn_bf16_scratch(a->n, a->d)
                                  : attn_bf16_i8_scratch(a->n, a->d);
    const void *k[2] = {a->k.p, a->v.p}, *v[2] = {a->v.p, a->k.p};
    struct area scratch = area_new(4 * floats, 0);
    struct attn_rows rows = rows_of(a, 0, a->n, m, l, acc);
    float *kv = must(malloc(8 * n));
    uint16_t *kv16 = must(malloc(4 * n));

    rows.q = NULL;
    rows.q16 = q16;
    for (size_t i = 0; i < n; i++) {
        kv[i] = value_at(&a->k, a->d, i / a->d, i % a->d);
        kv[n + i] = value_at(&a->v, a->d, i / a->d, i % a->d);
    }
    tested->from_f32[DT_BF16](kv16, kv, 2 * n);
    if (widened) {
        k[0] = v[1] = kv16;
        v[0] = k[1] = kv16 + n;
    }
    (widened ? tested->attn_blocks_bf16[DT_BF16] : tested->attn_blocks_bf16_i8)(
        &rows, k, v, n_blocks, a->d, scratch.p);
    area_check(&scratch, "attn_blocks_bf16_i8");
    area_free(&scratch);
    free(kv);
    free(kv16);
}

static void check_blocks_bf16(void **state)
{
    tested = *state;
    if (!tested->attn_blocks_bf16_i8) { /* a level without bf16 */
        assert_null(tested->attn_blocks_bf16[DT_BF16]);
        return;
    }
    for (size_t c = 0; c < N_DIMS * N_COUNTS * N_RANGES; c++) {
        size_t d = dims[c % N_DIMS], n = counts[c / N_DIMS % N_COUNTS];
        size_t n_blocks = 1 + below(2);
        struct q8_attention a =
            attention_new(n, d, (enum kind)below(N_KINDS),
                          (enum ranges)(c / N_DIMS / N_COUNTS));
        float *m = must(malloc(4 * n)), *l = must(malloc(4 * n));
        float *acc = must(malloc(4 * n * d));
        uint16_t *q16 = must(malloc(2 * n * a.ldq));

        for (size_t i = 0; n_blocks == 2 && i < n; i++)
            if (a.lo[i] < a.hi[i])
                a.hi[i] += KV_BLOCK;
        tested->from_f32[DT_BF16](q16, a.q.p, n * a.ldq);
        blocks_call(&a, n_blocks, true, q16, m, l, acc);
        blocks_call(&a, n_blocks, false, q16, a.m.p, a.l.p, a.acc.p);
        untouched(&a, "attn_blocks_bf16_i8");
        same_bits("maxima of blocks", m, a.m.p, n);
        same_bits("sums of blocks", l, a.l.p, n);
        for (size_t i = 0; i < n; i++) /* otherwise acc is undefined */
            if (m[i] != -INFINITY)
                same_bits("blocks", acc + i * d, (float *)a.acc.p + i * d, d);
        free(q16);
        free(m);
        free(l);
        free(acc);
        attention_free(&a);
    }
}

/* A block that to_kv_i8 wrote is near the original: within half a step of the
 * group, plus the roundings of scale, quotient and product. */
static void check_stored(void **state)
{
    tested = *state;
    for (size_t c = 0; c < N_DIMS; c++) {
        size_t d = dims[c], groups = kv_i8_groups(d);
        struct area block = area_new(block_bytes(d), 0);
        float *x = must(malloc(4 * d));

        for (size_t j = 0; j < KV_BLOCK; j++) {
            unsigned char *p = block.p;

            fill(x, d, j % 2 ? NORMAL : ONE_HUGE, 50);
            tested->to_kv_i8((int8_t *)p + j * d,
                             (float *)(void *)(p + KV_BLOCK * d) + j * groups,
                             x, d);
            for (size_t e = 0; e < d; e++) {
                size_t g = e / KV_I8_GROUP * KV_I8_GROUP;
                float top = 0;

                for (size_t i = g; i < d && i < g + KV_I8_GROUP; i++)
                    top = fmaxf(top, fabsf(x[i]));
                near("stored", e, d, (double)value_at(&block, d, j, e),
                     (double)x[e], (double)top * (0.5 / 127 + 4 * U));
            }
        }
        area_check(&block, "to_kv_i8");
        area_free(&block);
        free(x);
    }
}

static void run_missing(void **state)
{
    printf("    SKIP: this CPU has no %s\n", (const char *)*state);
    skip();
}

int main(void)
{
    static const struct {
        const char *name;
        CMUnitTestFunction run;
    } all[] = {{"attn_block_i8", check_sizes},
               {"attn_block_i8 masks", check_mask},
               {"attn_block_i8 queries", check_query},
               {"attn_tile_i8", check_tiles},
               {"attn_blocks_bf16_i8", check_blocks_bf16},
               {"to_kv_i8 into blocks", check_stored}};
    enum { N_ALL = sizeof all / sizeof *all };
    static struct CMUnitTest units[N_ALL * ISA_COUNT];
    static char names[N_ALL * ISA_COUNT][64];
    const char *env = getenv("QWICK_TEST_SEED");
    size_t n = 0;

    if (env && *env)
        seed = strtoull(env, NULL, 0);
    printf("seed %llu\n", (unsigned long long)seed);
    ref = kernels_get(ISA_REF);
    for (int l = 0; l < ISA_COUNT; l++) {
        const struct kernels *k = kernels_get((enum isa)l);
        const char *isa = isa_name((enum isa)l);

        if (!k) {
            units[n++] =
                (struct CMUnitTest){.name = isa,
                                    .test_func = run_missing,
                                    .initial_state = (void *)(uintptr_t)isa};
            continue;
        }
        for (size_t i = 0; i < N_ALL; i++) {
            snprintf(names[n], sizeof names[n], "%s/%s", isa, all[i].name);
            units[n] =
                (struct CMUnitTest){.name = names[n],
                                    .test_func = all[i].run,
                                    .initial_state = (void *)(uintptr_t)k};
            n++;
        }
    }
    return _cmocka_run_group_tests("attention on int8", units, n, NULL, NULL);
}
