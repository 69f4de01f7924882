/* Attention of prefill for AVX512_BF16. Both products use vdpbf16ps, which
 * multiplies pairs of bf16 and adds both products to an f32.
 *
 * Compute all scores of a batch of rows, then all exponentials, then the
 * values. So latencies overlap, and the numbers per row (maximum, sum, scale)
 * are computed for 16 rows at a time.
 *
 * Order of sums: a score takes pairs of elements, acc takes pairs of positions.
 * Positions that a row does not attend to add 0 * v, which changes nothing. */

#define VALUE_STEP  4
#define GROUP_PAIRS 32

#include "kernel/x86/k_attn_bf16.h"

/* A tile is ROWS rows by VECTORS * 16 positions (scores) or elements of the
 * head (values): 24 accumulators, as in k_avx512bf16.c. */
enum { ROWS = 6, BATCH = 48 };

_Static_assert(BATCH <= ATTN_BF16_BATCH, "scratch is for that many");

/* The parts of scratch. */
struct parts {
    uint32_t *keys, *values; /* panels */
    float *scores; /* [BATCH][KV_BLOCK]; later the exponentials in bf16, in the
                      first half of a row */
    float *lanes;  /* [BATCH][16] lanes of maxima or sums, before their
                      reduction */
    float *shift;  /* [BATCH], subtracted from scores */
    float *keep;   /* [BATCH], factor of acc and l */
    int *lo, *hi;  /* [rows], positions in the current block */
};

/* ---- scores ------------------------------------------------------------- */

struct scores {
    const uint32_t *keys; /* panel, at the first vector of positions */
    const uint16_t *q;
    size_t ldq, d;
    float *scores, *lanes; /* of the first row */
    size_t first;          /* number of the first vector of positions */
    const int *lo, *hi;
    bool whole; /* all rows attend to all positions */
};

/* Add the products of one pair of elements. alone: only its first element
 * exists. */
INLINE void score_step(__m512 a[ROWS][VECTORS], const uint32_t *keys,
                       const uint16_t *q, size_t ldq, int V, int T, bool alone)
{
    __m512bh k[VECTORS];

    UNROLL
    for (int v = 0; v < V; v++)
        k[v] = (__m512bh)_mm512_load_si512(keys + 16 * v);
    UNROLL
    for (int t = 0; t < T; t++) {
        uint32_t pair = 0;
        __m512bh qv;

        memcpy(&pair, q + (size_t)t * ldq, alone ? 2 : 4);
        qv = (__m512bh)_mm512_set1_epi32((int)pair);
        UNROLL
        for (int v = 0; v < V; v++)
            a[t][v] = _mm512_dpbf16_ps(a[t][v], k[v], qv);
    }
}

/* Return a mask of positions [lo, hi), of which there is at least one. */
INLINE uint64_t positions(int lo, int hi)
{
    return ~(uint64_t)0 >> (KV_BLOCK - hi) & ~(uint64_t)0 << lo;
}

/* Compute the scores of T rows, -INFINITY for positions that a row does not
 * attend to, and their maxima, lane by lane. */
INLINE void score_tile(const struct scores *s, int V, int T)
{
    const __m512 none = _mm512_set1_ps(-INFINITY);
    const size_t ldq = s->ldq, first = s->first;
    const bool whole = s->whole;
    float *const scores = s->scores, *const lanes = s->lanes;
    const uint32_t *keys = s->keys;
    const uint16_t *q = s->q;
    __m512 a[ROWS][VECTORS];
    size_t e = 0;

    UNROLL
    for (int t = 0; t < T; t++) {
        UNROLL
        for (int v = 0; v < V; v++)
            a[t][v] = _mm512_setzero_ps();
    }
    for (; s->d - e >= 4; e += 4) {
        score_step(a, keys, q, ldq, V, T, false);
        score_step(a, keys + KV_BLOCK, q + 2, ldq, V, T, false);
        keys += 2 * KV_BLOCK;
        q += 4;
    }
    for (; s->d - e >= 2; e += 2) {
        score_step(a, keys, q, ldq, V, T, false);
        keys += KV_BLOCK;
        q += 2;
    }
    if (e < s->d)
        score_step(a, keys, q, ldq, V, T, true);
    UNROLL
    for (int t = 0; t < T; t++) {
        float *to = scores + t * KV_BLOCK;
        __m512 top = none;

        if (!whole) {
            const uint64_t in = positions(s->lo[t], s->hi[t]) >> 16 * first;

            UNROLL
            for (int v = 0; v < VECTORS; v++)
                _mm512_store_ps(to + 16 * v, none);
            UNROLL
            for (int v = 0; v < V; v++)
                a[t][v] = _mm512_mask_mov_ps(none, (__mmask16)(in >> 16 * v),
                                             a[t][v]);
        }
        UNROLL
        for (int v = 0; v < V; v++) {
            top = _mm512_max_ps(top, a[t][v]);
            _mm512_store_ps(to + 16 * ((size_t)v + first), a[t][v]);
        }
        _mm512_store_ps(lanes + 16 * t, top);
    }
}

/* Cap the scores of rows [i, i + n), one batch, and set the lanes of their
 * maxima anew. */
static void cap_scores(const struct attn_rows *rows, const struct parts *s,
                       size_t i, size_t n)
{
    const __m512 none = _mm512_set1_ps(-INFINITY);
    const struct cap cap = cap_of(rows->cap);

    for (size_t t = 0; t < n; t++) {
        const uint64_t in = positions(rows->lo[i + t], rows->hi[i + t]);
        float *scores = s->scores + t * KV_BLOCK;
        __m512 top = none;

        UNROLL
        for (int v = 0; v < VECTORS; v++) {
            const __m512 x = vec_cap(_mm512_load_ps(scores + 16 * v), cap);
            const __m512 a =
                _mm512_mask_mov_ps(none, (__mmask16)(in >> 16 * v), x);

            top = _mm512_max_ps(top, a);
            _mm512_store_ps(scores + 16 * v, a);
        }
        _mm512_store_ps(s->lanes + 16 * t, top);
    }
}

/* Replace one row's scores by exp(score - shift) in bf16. Returns their sum,
 * lane by lane. */
INLINE __m512 exp_row(float *scores, float shift)
{
    const __m512bh ones = (__m512bh)_mm512_set1_epi32(0x3f803f80);
    const __m512 sh = _mm512_set1_ps(shift);
    __m512 sum = _mm512_setzero_ps(), s[VECTORS];
    __m512bh p[VECTORS / 2];

    UNROLL
    for (int v = 0; v < VECTORS; v++)
        s[v] = exp_for_f32(_mm512_sub_ps(_mm512_load_ps(scores + 16 * v), sh));
    UNROLL
    for (int v = 0; v < VECTORS / 2; v++) {
        p[v] = _mm512_cvtne2ps_pbh(s[2 * v + 1], s[2 * v]);
        sum = _mm512_dpbf16_ps(sum, p[v], ones);
        _mm512_store_si512(scores + 16 * v, (__m512i)p[v]);
    }
    return sum;
}

/* Compute the exponentials of rows [i, i + n), one batch, and update m and l. l
 * sums the rounded exponentials, because these weight the values. Returns
 * whether some acc must be scaled by keep. */
static bool softmax(const struct attn_rows *rows, const struct parts *s,
                    size_t i, size_t n)
{
    bool rescale = false;

    for (size_t b = 0; b < n; b += 16) {
        const __mmask16 in = first_lanes(n - b);
        const size_t end = n - b < 16 ? n : b + 16;
        float *l = rows->l + i + b;
        __m512 keep, sum;

        rescale |= raise_maxima(rows->m + i + b, in,
                                over_lanes(s->lanes + 16 * b, false),
                                s->shift + b, &keep) != 0;
        _mm512_store_ps(s->keep + b, keep);
        for (size_t t = b; t < end; t++)
            _mm512_store_ps(s->lanes + 16 * t,
                            exp_row(s->scores + t * KV_BLOCK, s->shift[t]));
        sum = over_lanes(s->lanes + 16 * b, true);
        _mm512_mask_storeu_ps(
            l, in, _mm512_fmadd_ps(_mm512_maskz_loadu_ps(in, l), keep, sum));
    }
    return rescale;
}

/* ---- values ------------------------------------------------------------- */

struct values {
    const uint32_t *values; /* panel, at the first pair of positions */
    const uint32_t *p;      /* exponentials of these positions, rows KV_BLOCK
                               apart */
    size_t n_pairs;         /* even */
    float *acc;
    size_t d;
    const float *keep; /* NULL: all 1 */
    __mmask16 last;    /* lanes of the last vector */
};

INLINE void value_step(__m512 a[ROWS][VECTORS], const uint32_t *values,
                       const uint32_t *p, int V, int T)
{
    __m512bh v[VECTORS];

    UNROLL
    for (int u = 0; u < V; u++)
        v[u] = (__m512bh)_mm512_load_si512(values + 16 * u);
    UNROLL
    for (int t = 0; t < T; t++) {
        const __m512bh pv = (__m512bh)_mm512_set1_epi32((int)p[t * KV_BLOCK]);

        UNROLL
        for (int u = 0; u < V; u++)
            a[t][u] = _mm512_dpbf16_ps(a[t][u], v[u], pv);
    }
}

/* acc = acc * keep + p v for T rows and LANES elements or fewer. */
INLINE void value_tile(const struct values *s, int V, int T)
{
    const uint32_t *values = s->values, *p = s->p;
    float *const acc = s->acc;
    const size_t d = s->d;
    const __mmask16 last = s->last;
    __m512 a[ROWS][VECTORS];

    UNROLL
    for (int t = 0; t < T; t++) {
        UNROLL
        for (int u = 0; u < V; u++)
            a[t][u] = _mm512_maskz_loadu_ps(u == V - 1 ? last : 0xffff,
                                            acc + (size_t)t * d + 16 * u);
    }
    if (s->keep) {
        UNROLL
        for (int t = 0; t < T; t++) {
            const __m512 keep = _mm512_set1_ps(s->keep[t]);

            UNROLL
            for (int u = 0; u < V; u++)
                a[t][u] = _mm512_mul_ps(a[t][u], keep);
        }
    }
    for (size_t j = 0; j < s->n_pairs; j += 2) {
        value_step(a, values, p, V, T);
        value_step(a, values + LANES, p + 1, V, T);
        values += 2 * LANES;
        p += 2;
    }
    UNROLL
    for (int t = 0; t < T; t++) {
        UNROLL
        for (int u = 0; u < V; u++)
            _mm512_mask_storeu_ps(acc + (size_t)t * d + 16 * u,
                                  u == V - 1 ? last : 0xffff, a[t][u]);
    }
}

/* Process one row, with only the positions it attends to. For blocks with
 * infinite values or NaN, because 0 times these is not 0. */
static void value_row(const struct values *s, size_t lo, size_t hi)
{
    for (size_t e = 0; e < s->d; e += 16) {
        const uint32_t *values =
            s->values + e / LANES * PAIRS * LANES + e % LANES;
        const __mmask16 in = first_lanes(s->d - e);
        __m512 a = _mm512_maskz_loadu_ps(in, s->acc + e);

        a = _mm512_mul_ps(a, _mm512_set1_ps(*s->keep));
        for (size_t j = lo / 2; 2 * j < hi; j++) {
            const uint32_t visible =
                (2 * j >= lo ? 0xffff : 0) | (2 * j + 1 < hi ? 0xffff0000 : 0);
            const __m512i v =
                _mm512_and_si512(_mm512_load_si512(values + j * LANES),
                                 _mm512_set1_epi32((int)visible));

            a = _mm512_dpbf16_ps(a, (__m512bh)v,
                                 (__m512bh)_mm512_set1_epi32((int)s->p[j]));
        }
        _mm512_mask_storeu_ps(s->acc + e, in, a);
    }
}

/* ---- tiles -------------------------------------------------------------- */

#define TILE(V, T)                                           \
    static void score_tile_##V##_##T(const struct scores *s) \
    {                                                        \
        score_tile(s, V, T);                                 \
    }                                                        \
    static void value_tile_##V##_##T(const struct values *s) \
    {                                                        \
        value_tile(s, V, T);                                 \
    }

EACH_6(TILE, 1)
EACH_6(TILE, 2)
EACH_6(TILE, 3)
EACH_6(TILE, 4)

static void (*const score_tiles[VECTORS][ROWS])(const struct scores *) = {
    ROW_6(score_tile_1), ROW_6(score_tile_2), ROW_6(score_tile_3),
    ROW_6(score_tile_4)};
static void (*const value_tiles[VECTORS][ROWS])(const struct values *) = {
    ROW_6(value_tile_1), ROW_6(value_tile_2), ROW_6(value_tile_3),
    ROW_6(value_tile_4)};

/* ---- batches ------------------------------------------------------------ */

/* Rows of the next tile if n rows are left. Tiles get nearly equal sizes. */
INLINE size_t tile_rows(size_t n)
{
    size_t tiles = (n + ROWS - 1) / ROWS;

    return (n + tiles - 1) / tiles;
}

static void batch_scores(const struct attn_rows *rows, const struct parts *s,
                         size_t d, size_t i, size_t n, struct range all)
{
    for (size_t b = 0, T; b < n; b += T) {
        struct scores t = {.q = rows->q16 + (i + b) * rows->ldq,
                           .ldq = rows->ldq,
                           .d = d,
                           .scores = s->scores + b * KV_BLOCK,
                           .lanes = s->lanes + b * 16,
                           .lo = rows->lo + i + b,
                           .hi = rows->hi + i + b};
        struct range r;

        T = tile_rows(n - b);
        r = all.whole ? all : range_of(rows, i + b, T, KV_BLOCK);
        t.first = r.lo / 16;
        t.keys = s->keys + 16 * t.first;
        t.whole = r.whole;
        score_tiles[(r.hi - 1) / 16 - t.first][T - 1](&t);
    }
}

static void batch_values(const struct attn_rows *rows, const struct parts *s,
                         size_t d, size_t i, size_t n, struct range all,
                         bool rescale)
{
    for (size_t b = 0, T; b < n; b += T) {
        struct values t = {.d = d, .keep = rescale ? s->keep + b : NULL};
        struct range r;
        size_t pair;

        T = tile_rows(n - b);
        r = all.whole ? all : range_of(rows, i + b, T, KV_BLOCK);
        pair = r.lo / 4 * 2;
        t.n_pairs = (r.hi + 3) / 4 * 2 - pair;
        t.p = (const uint32_t *)(const void *)(s->scores + b * KV_BLOCK) + pair;
        for (size_t e = 0; e < d; e += LANES) {
            const size_t left = d - e < LANES ? d - e : LANES;

            t.values = s->values + (e / LANES * PAIRS + pair) * LANES;
            t.acc = rows->acc + (i + b) * d + e;
            t.last = first_lanes(left - (left - 1) / 16 * 16);
            value_tiles[(left - 1) / 16][T - 1](&t);
        }
    }
}

static void batch_rows(const struct attn_rows *rows, const struct parts *s,
                       size_t d, size_t i, size_t n)
{
    for (size_t b = 0; b < n; b++) {
        struct values t = {
            .values = s->values,
            .p = (const uint32_t *)(const void *)(s->scores + b * KV_BLOCK),
            .acc = rows->acc + (i + b) * d,
            .d = d,
            .keep = s->keep + b};

        value_row(&t, (size_t)rows->lo[i + b], (size_t)rows->hi[i + b]);
    }
}

/* ---- blocks ------------------------------------------------------------- */

/* Clear acc of rows without positions so far. */
static void clear_new(const struct attn_rows *rows, size_t i, size_t n,
                      size_t d)
{
    for (; n > 0; i++, n--)
        if (rows->m[i] == -INFINITY)
            memset(rows->acc + i * d, 0, d * sizeof *rows->acc);
}

INLINE void attn_block(const struct attn_rows *rows, const struct parts *s,
                       const char *k, const char *v, size_t d, enum dtype type)
{
    const struct range all = range_of(rows, 0, rows->n, KV_BLOCK);
    bool finite;

    if (all.lo >= all.hi)
        return;
    if (d % 32 == 0) {
        pack_keys(s->keys, k, d, all.lo, all.hi, type, true);
        finite = pack_values(s->values, v, NULL, d, all.lo, all.hi, type, true);
    } else {
        pack_keys(s->keys, k, d, all.lo, all.hi, type, false);
        finite =
            pack_values(s->values, v, NULL, d, all.lo, all.hi, type, false);
    }
    /* process runs of rows that attend to at least one position */
    for (size_t i = 0, n; i < rows->n; i += n ? n : 1) {
        bool rescale;

        n = rows->n - i < BATCH ? rows->n - i : BATCH;
        if (!all.whole)
            n = visible_rows(rows, i, n);
        if (n == 0)
            continue;
        prefetch_next(rows, v, KV_BLOCK * d * type_bytes(type), i, n);
        clear_new(rows, i, n, d);
        batch_scores(rows, s, d, i, n, all);
        if (rows->cap > 0)
            cap_scores(rows, s, i, n);
        rescale = softmax(rows, s, i, n);
        if (finite)
            batch_values(rows, s, d, i, n, all, rescale);
        else
            batch_rows(rows, s, d, i, n);
    }
}

/* A position as an offset in one block, clamped to [0, KV_BLOCK]. */
INLINE int in_block(int position, int block)
{
    const int p = position - block * KV_BLOCK;

    return p < 0 ? 0 : p < KV_BLOCK ? p : KV_BLOCK;
}

INLINE void attn_blocks(const struct attn_rows *rows, const void *const *k,
                        const void *const *v, size_t n_blocks, size_t d,
                        float *scratch, enum dtype type)
{
    const size_t panel = panel_size(d);
    struct attn_rows one = *rows;
    struct parts s;

    s.keys = (uint32_t *)(void *)scratch;
    s.values = s.keys + panel;
    s.scores = scratch + 2 * panel;
    s.lanes = s.scores + BATCH * KV_BLOCK;
    s.shift = s.lanes + BATCH * 16;
    s.keep = s.shift + BATCH;
    s.lo = (int *)(void *)(s.keep + BATCH);
    s.hi = s.lo + rows->n;
    for (size_t b = 0; b < n_blocks; b++) {
        if (n_blocks > 1) {
            for (size_t i = 0; i < rows->n; i++) {
                s.lo[i] = in_block(rows->lo[i], (int)b);
                s.hi[i] = in_block(rows->hi[i], (int)b);
            }
            one.lo = s.lo;
            one.hi = s.hi;
        }
        one.next = b + 1 < n_blocks ? k[b + 1] : rows->next;
        attn_block(&one, &s, k[b], v[b], d, type);
    }
}

ATTN_LEVEL(avx512bf16)

void k_attn_blocks_bf16_avx512bf16(const struct attn_rows *rows,
                                   const void *const *k, const void *const *v,
                                   size_t n_blocks, size_t d, float *scratch,
                                   enum dtype type)
{
    if (type == DT_F32)
        k_attn_blocks_bf16_f32_avx512bf16(rows, k, v, n_blocks, d, scratch);
    else if (type == DT_F16)
        k_attn_blocks_bf16_f16_avx512bf16(rows, k, v, n_blocks, d, scratch);
    else
        k_attn_blocks_bf16_bf16_avx512bf16(rows, k, v, n_blocks, d, scratch);
}

void k_attn_avx512bf16_init(struct kernels *k)
{
    ENTER_ATTN(avx512bf16);
}
