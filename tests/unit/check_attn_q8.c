/* attn_block and attn_tile of each level for KV_I8 against double arithmetic on the
 * widened numbers of an int8 block, and for attn_block on the rounded
 * queries; attn_blocks_bf16[KV_I8] against [KV_BF16]. check_table.h has the
 * options. */
#include "check_attn.h"

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

/* Return the step of which attn_block rounds a query to multiples. */
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

static void set_range(struct attention *a, size_t i, enum ranges ranges)
{
    int lo = 0, hi = KV_BLOCK;

    if (ranges == EMPTY) {
        lo = (int)below(KV_BLOCK + 1);
        hi = (int)below((size_t)lo + 1);
    } else if (ranges == CAUSAL) { /* two rows per token */
        hi = (int)(i / 2 + 1 < KV_BLOCK ? i / 2 + 1 : KV_BLOCK);
    }
    a->lo[i] = lo;
    a->hi[i] = hi;
    if (ranges == RANDOM)
        random_range(a, i);
}

/* Make blocks misaligned by 1 to 10 bytes, or aligned. Positions that no row
 * attends to are spoilt. */
static struct attention attention_new(size_t n, size_t d, enum kind kind,
                                      enum ranges ranges)
{
    struct attention a = attention_areas(n, d, 4, block_bytes(d), 1 + below(5),
                                         attn_scratch(n, d));

    fill_queries(a.q.p, &a, kind, 1);
    fill_block(&a.k, d, kind);
    fill_block(&a.v, d, kind);
    for (size_t i = 0; i < n; i++)
        set_range(&a, i, ranges);
    for (size_t j = 0; j < KV_BLOCK; j++) {
        bool attended = false;

        for (size_t i = 0; i < n; i++)
            attended = attended || attends(&a, i, j);
        if (!attended) {
            spoil(&a.k, d, j);
            spoil(&a.v, d, j);
        }
    }
    return attention_ready(a);
}

static void attention_call(const struct kernels *k, const struct attention *a,
                           size_t i, size_t n, const struct results *out)
{
    struct attn_rows rows = f32_rows_from(a, i, n, out);

    k->attn_block[KV_I8](&rows, a->k.p, a->v.p, a->d, a->scratch.p);
}

/* Widen the keys to [KV_BLOCK, d], followed by the values. */
static float *widened_block(const struct attention *a)
{
    const size_t n = KV_BLOCK * a->d;
    float *kv = must(malloc(8 * n));

    for (size_t i = 0; i < n; i++) {
        kv[i] = value_at(&a->k, a->d, i / a->d, i % a->d);
        kv[n + i] = value_at(&a->v, a->d, i / a->d, i % a->d);
    }
    return kv;
}

/* attn_tile_i8, or attn_tile on the widened block. */
static void tile_call(const struct kernels *k, const struct attention *a,
                      bool widened, const struct results *out)
{
    struct area scratch = area_new(4 * attn_tile_scratch(a->n, a->d), 0);
    struct attn_rows rows = rows_from(a, 0, a->n, out);
    float *kv = widened_block(a);

    rows.q = a->q.p;
    if (widened)
        k->attn_tile[DT_F32](&rows, kv, kv + KV_BLOCK * a->d, a->d, scratch.p);
    else
        k->attn_tile[KV_I8](&rows, a->k.p, a->v.p, a->d, scratch.p);
    area_check(&scratch, "attn_tile_i8");
    area_free(&scratch);
    free(kv);
}

static void rows_near(const struct attention *a, const char *what)
{
    float *kv = widened_block(a);
    double *q = must(malloc(a->d * sizeof *q));

    for (size_t i = 0; i < a->n; i++) {
        const float *from = (const float *)a->q.p + i * a->ldq;
        const double step = step_of(from, a->d);

        if (a->lo[i] >= a->hi[i]) {
            row_unchanged(a, i, what);
            continue;
        }
        for (size_t e = 0; e < a->d; e++)
            q[e] = rint((double)from[e] / step) * step;
        row_near(a, i, q, kv, kv + KV_BLOCK * a->d,
                 (struct f32_rules){.lanes = 8}, what);
    }
    free(kv);
    free(q);
}

static const size_t dims[] = {1, 2, 31, 32, 33, 48, 64, 96, 127, 128, 130, 256};
static const size_t counts[] = {1, 2,  3,  4,  5,  6,  7,  8,
                                9, 10, 11, 12, 13, 64, 512};

enum {
    N_DIMS = sizeof dims / sizeof *dims,
    N_COUNTS = sizeof counts / sizeof *counts
};

/* Count i, or 1 where so many rows would take long. */
static size_t rows_at(size_t i, size_t d)
{
    return counts[i] > 64 && d != 33 && d != 128 ? 1 : counts[i];
}

static void check_sizes(const struct kernels *k, enum dtype type)
{
    for (size_t c = 0; c < N_DIMS * N_COUNTS * N_RANGES; c++) {
        size_t d = dims[c % N_DIMS], n = rows_at(c / N_DIMS % N_COUNTS, d);
        enum ranges ranges = (enum ranges)(c / N_DIMS / N_COUNTS);
        enum kind kind = (enum kind)below(N_KINDS);
        struct attention a = attention_new(n, d, kind, ranges);
        struct results r = results_in(&a);
        size_t step = 2 + below(n);
        char what[96];

        snprintf(what, sizeof what,
                 "%zu rows, head_dim %zu, %s, ranges %d, cap %g", n, d,
                 kind_names[kind], (int)ranges, (double)a.cap);
        attention_call(k, &a, 0, n, &r);
        attention_untouched(&a, what);
        rows_near(&a, what);
        same_by(k, &a, attention_call, 1, 1, what);
        same_by(k, &a, attention_call, step, step, what);
        attention_free(&a);
    }
}

/* A NaN affects exactly the rows that attend to its position, not their
 * neighbours. */
static void check_mask(const struct kernels *k, enum dtype type)
{
    for (size_t n = 1; n <= 20; n++) {
        const size_t d = 40, at = 17;
        struct attention a = attention_new(n, d, NORMAL, FULL);
        struct results before = results_new(&a), r = results_in(&a);

        ranges_around(&a, at);
        attention_call(k, &a, 0, n, &before);
        spoil(&a.k, d, at);
        spoil(&a.v, d, at);
        attention_call(k, &a, 0, n, &r);
        bad_value_stays(&a, &before, at, NAN, same_bits);
        results_free(&before);
        attention_free(&a);
    }
}

/* A query with an element that is not finite makes its row NaN, and no other
 * row. */
static void check_query(const struct kernels *k, enum dtype type)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};

    for (size_t c = 0; c < 3 * 20; c++) {
        size_t n = c / 3 + 1, d = 1 + below(140), at = below(n);
        struct attention a = attention_new(n, d, NORMAL, FULL);
        struct results before = results_new(&a), r = results_in(&a);

        attention_call(k, &a, 0, n, &before);
        ((float *)a.q.p)[at * a.ldq + below(d)] = bad[c % 3];
        attention_call(k, &a, 0, n, &r);
        for (size_t i = 0; i < n; i++) {
            const float *acc = r.acc + i * d;

            if (i == at) {
                if (!isnan(r.l[i]) || !isnan(acc[0]) || !isnan(acc[d - 1]))
                    fail_msg("row %zu of %zu is finite", i, n);
                continue;
            }
            same_bits("l beside NaN", before.l + i, r.l + i, 1);
            same_bits("acc beside NaN", before.acc + i * d, acc, d);
        }
        results_free(&before);
        attention_free(&a);
    }
}

static void check_tiles(const struct kernels *k, enum dtype type)
{
    for (size_t c = 0; c < N_DIMS * N_COUNTS * N_RANGES; c++) {
        size_t d = dims[c % N_DIMS], n = rows_at(c / N_DIMS % N_COUNTS, d);
        struct attention a =
            attention_new(n, d, (enum kind)below(N_KINDS),
                          (enum ranges)(c / N_DIMS / N_COUNTS));
        struct results wide = results_new(&a), r = results_in(&a);

        tile_call(k, &a, true, &wide);
        tile_call(k, &a, false, &r);
        attention_untouched(&a, "attn_tile_i8");
        same_rows(&a, &wide, 0, n, "attn_tile_i8");
        results_free(&wide);
        attention_free(&a);
    }
}

/* attn_blocks_bf16_i8, or attn_blocks_bf16 on the blocks widened and rounded to
 * bf16, for blocks k and v and, if n_blocks is 2, v and k. */
static void blocks_call(const struct kernels *kernels,
                        const struct attention *a, size_t n_blocks,
                        bool widened, const uint16_t *q16,
                        const struct results *out)
{
    const size_t n = KV_BLOCK * a->d;
    const size_t floats = widened ? attn_bf16_scratch(a->n, a->d)
                                  : attn_bf16_i8_scratch(a->n, a->d);
    const void *k[2] = {a->k.p, a->v.p}, *v[2] = {a->v.p, a->k.p};
    struct area scratch = area_new(4 * floats, 0);
    struct attn_rows rows = rows_from(a, 0, a->n, out);
    float *kv = widened_block(a);
    uint16_t *kv16 = must(malloc(4 * n));

    rows.q16 = q16;
    kernels->from_f32[DT_BF16](kv16, kv, 2 * n);
    if (widened) {
        k[0] = v[1] = kv16;
        v[0] = k[1] = kv16 + n;
    }
    (widened ? kernels->attn_blocks_bf16[DT_BF16]
             : kernels->attn_blocks_bf16[KV_I8])(&rows, k, v, n_blocks, a->d,
                                             scratch.p);
    area_check(&scratch, "attn_blocks_bf16_i8");
    area_free(&scratch);
    free(kv);
    free(kv16);
}

static void check_blocks_bf16(const struct kernels *k, enum dtype type)
{
    if (!k->attn_blocks_bf16[KV_I8]) { /* a level without bf16 */
        assert_null(k->attn_blocks_bf16[DT_BF16]);
        return;
    }
    for (size_t c = 0; c < N_DIMS * N_COUNTS * N_RANGES; c++) {
        size_t d = dims[c % N_DIMS], n = rows_at(c / N_DIMS % N_COUNTS, d);
        size_t n_blocks = 1 + below(2);
        struct attention a =
            attention_new(n, d, (enum kind)below(N_KINDS),
                          (enum ranges)(c / N_DIMS / N_COUNTS));
        struct results wide = results_new(&a), r = results_in(&a);
        uint16_t *q16 = must(malloc(2 * n * a.ldq));

        for (size_t i = 0; n_blocks == 2 && i < n; i++)
            if (a.lo[i] < a.hi[i])
                a.hi[i] += KV_BLOCK;
        k->from_f32[DT_BF16](q16, a.q.p, n * a.ldq);
        blocks_call(k, &a, n_blocks, true, q16, &wide);
        blocks_call(k, &a, n_blocks, false, q16, &r);
        attention_untouched(&a, "attn_blocks_bf16_i8");
        same_bits("maxima of blocks", wide.m, r.m, n);
        same_bits("sums of blocks", wide.l, r.l, n);
        for (size_t i = 0; i < n; i++) /* otherwise acc is undefined */
            if (r.m[i] != -INFINITY)
                same_bits("blocks", wide.acc + i * d, r.acc + i * d, d);
        free(q16);
        results_free(&wide);
        attention_free(&a);
    }
}

/* A block that to_kv_i8 wrote is near the original: within half a step of the
 * group, plus the roundings of scale, quotient and product. */
static void check_stored(const struct kernels *k, enum dtype type)
{
    for (size_t c = 0; c < N_DIMS; c++) {
        size_t d = dims[c], groups = kv_i8_groups(d);
        struct area block = area_new(block_bytes(d), 0);
        float *x = must(malloc(4 * d));

        for (size_t j = 0; j < KV_BLOCK; j++) {
            unsigned char *p = block.p;

            fill(x, d, j % 2 ? NORMAL : ONE_HUGE, 50);
            k->to_kv_i8((int8_t *)p + j * d,
                        (float *)(void *)(p + KV_BLOCK * d) + j * groups, x, d);
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

static const struct check_row rows[] = {
    {"attn_block_i8", DT_F32, DT_F32, check_sizes, NULL},
    {"attn_block_i8_masks", DT_F32, DT_F32, check_mask, NULL},
    {"attn_block_i8_queries", DT_F32, DT_F32, check_query, NULL},
    {"attn_tile_i8", DT_F32, DT_F32, check_tiles, NULL},
    {"attn_blocks_bf16_i8", DT_F32, DT_F32, check_blocks_bf16, NULL},
    {"to_kv_i8", DT_F32, DT_F32, check_stored, NULL},
};

int main(int argc, char **argv)
{
    return check_main(argc, argv, "attention on int8", rows,
                      sizeof rows / sizeof *rows, NULL, 0);
}
