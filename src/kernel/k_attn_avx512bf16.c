/* Attention of prefill for AVX512_BF16: both products by vdpbf16ps, which
 * multiplies pairs of bf16 and adds both products to an f32.
 *
 * Rows go in batches: all their scores, then all their exponentials, then the
 * values. So latencies do not add up, and what there is one of a row (maximum,
 * sum, scale) is worked out for 16 rows at a time.
 *
 * Order of sums: a score goes through the pairs of elements, acc through the
 * pairs of positions. What a row does not see adds 0 * v, that is nothing. */
#include <immintrin.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernel/k_zmm.h"
#include "kernel/kernel.h"

/* A tile is ROWS rows by VECTORS * 16 positions (scores) or elements of the
 * head (values): 24 accumulators, as in k_avx512bf16.c. */
enum { VECTORS = 4, LANES = 16 * VECTORS, ROWS = 6, PAIRS = KV_BLOCK / 2 };

_Static_assert(LANES == KV_BLOCK, "a tile of scores is as wide as a block");

/* Where the parts of scratch are. */
struct parts {
    /* keys[pair of elements][position] */
    uint32_t *keys;
    /* values[element / LANES][pair of positions][element % LANES] */
    uint32_t *values;
    /* of a row of the batch: scores[KV_BLOCK], then their exponentials in
     * bf16, in the first half; lanes[16], of which the maximum or sum is
     * wanted; what is subtracted from scores; what acc and l are scaled by */
    float *scores, *lanes, *shift, *keep;
};

/* ---- ranges ------------------------------------------------------------- */

/* What some rows see. */
struct range {
    size_t lo, hi; /* any of them; lo >= hi: nothing */
    bool whole;    /* all of them the whole block */
};

static struct range range_of(const struct attn_rows *rows, size_t i, size_t n)
{
    __m512i first = _mm512_set1_epi32(KV_BLOCK);
    __m512i end = _mm512_setzero_si512();
    const __m512i none = end, all = first;
    bool whole = true;

    for (size_t t = i; t < i + n; t += 16) {
        const __mmask16 m = first_lanes(i + n - t);
        const __m512i lo = _mm512_maskz_loadu_epi32(m, rows->lo + t);
        const __m512i hi = _mm512_maskz_loadu_epi32(m, rows->hi + t);
        const __mmask16 some = _mm512_mask_cmplt_epi32_mask(m, lo, hi);

        first = _mm512_mask_min_epi32(first, some, first, lo);
        end = _mm512_mask_max_epi32(end, some, end, hi);
        whole &= !_mm512_mask_cmpneq_epi32_mask(m, lo, none) &&
                 !_mm512_mask_cmpneq_epi32_mask(m, hi, all);
    }
    return (struct range){.lo = (size_t)_mm512_reduce_min_epi32(first),
                          .hi = (size_t)_mm512_reduce_max_epi32(end),
                          .whole = whole};
}

/* How many of rows [i, i + n) follow each other before one sees nothing. */
static size_t seeing(const struct attn_rows *rows, size_t i, size_t n)
{
    size_t run = 0;

    while (run < n && rows->lo[i + run] < rows->hi[i + run])
        run++;
    return run;
}

/* ---- panels ------------------------------------------------------------- */

/* The first n of 16 elements, zeros behind them. */
INLINE __m256i load16_bits(const char *p, size_t n)
{
    if (__builtin_constant_p(n) && n >= 16) /* masks cost time */
        return _mm256_loadu_si256((const __m256i_u *)(const void *)p);
    return _mm256_maskz_loadu_epi16(first_lanes(n), p);
}

INLINE __m512 load16(const char *p, size_t n, enum dtype type)
{
    if (type == DT_F32)
        return _mm512_maskz_loadu_ps(first_lanes(n), p);
    return _mm512_cvtph_ps(load16_bits(p, n));
}

/* The first n of 32 elements in bf16, zeros behind them. */
INLINE __m512i load32(const char *p, size_t n, enum dtype type)
{
    const char *half = p + 16 * type_bytes(type);

    if (type == DT_BF16)
        return _mm512_maskz_loadu_epi16(n >= 32 ? 0xffffffff : (1u << n) - 1,
                                        p);
    return (__m512i)_mm512_cvtne2ps_pbh(load16(half, n < 16 ? 0 : n - 16, type),
                                        load16(p, n, type));
}

/* Positions [lo, hi), and their neighbours up to 16: each has a lane of its
 * own, so that it does not matter what those hold. Meanwhile fetches the
 * values, which lie behind the keys in the cache. even: d is a multiple of
 * 32. */
INLINE void pack_keys(uint32_t *out, const char *k, size_t d, size_t lo,
                      size_t hi, enum dtype type, bool even)
{
    const size_t bytes = type_bytes(type);

    for (size_t j = lo / 16 * 16; j < hi; j += 16)
        for (size_t e = 0; e < d; e += 32) {
            uint32_t *to = out + e / 2 * KV_BLOCK + j;
            __m512i v[16];

            UNROLL
            for (size_t r = 0; r < 16; r++) {
                const char *from = k + ((j + r) * d + e) * bytes;

                _mm_prefetch(from + KV_BLOCK * d * bytes, _MM_HINT_T1);
                v[r] = load32(from, even ? 32 : d - e, type);
            }
            transpose16(v);
            UNROLL
            for (size_t p = 0; p < 16; p++)
                _mm512_store_si512(to + p * KV_BLOCK, v[p]);
        }
}

/* The first n of 16 elements of two positions as pairs; NULL stands for
 * zeros. */
INLINE __m512i load_pairs(const char *a, const char *b, size_t n,
                          enum dtype type)
{
    /* element l of a, then of b */
    const __m512i order = _mm512_add_epi32(
        _mm512_set1_epi32(16 << 16),
        _mm512_mullo_epi32(_mm512_set1_epi32(0x10001),
                           _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
                                             11, 12, 13, 14, 15)));
    const __m512 none = _mm512_setzero_ps();
    __m512i both;

    if (type == DT_BF16) {
        const __m256i zero = _mm256_setzero_si256();

        both = _mm512_inserti64x4(
            _mm512_castsi256_si512(a ? load16_bits(a, n) : zero),
            b ? load16_bits(b, n) : zero, 1);
    } else {
        both = (__m512i)_mm512_cvtne2ps_pbh(b ? load16(b, n, type) : none,
                                            a ? load16(a, n, type) : none);
    }
    return _mm512_permutexvar_epi16(order, both);
}

/* Positions [lo, hi), zeros up to the next multiples of 4. Returns whether all
 * are finite. even: d is a multiple of 16. */
INLINE bool pack_values(uint32_t *out, const char *v, size_t d, size_t lo,
                        size_t hi, enum dtype type, bool even)
{
    const size_t bytes = type_bytes(type);
    const __m512i abs = _mm512_set1_epi16(0x7fff);
    __m512i top = _mm512_setzero_si512();

    for (size_t j = lo / 4 * 4; j < (hi + 3) / 4 * 4; j += 2) {
        const char *a = v + j * d * bytes, *b = a + d * bytes;
        const bool has_a = j >= lo && j < hi, has_b = j + 1 >= lo && j + 1 < hi;

        for (size_t e = 0; e < d; e += 16) {
            uint32_t *to =
                out + (e / LANES * PAIRS + j / 2) * LANES + e % LANES;
            __m512i w = load_pairs(has_a ? a + e * bytes : NULL,
                                   has_b ? b + e * bytes : NULL,
                                   even ? 16 : d - e, type);

            top = _mm512_max_epu16(top, _mm512_and_si512(w, abs));
            _mm512_store_si512(to, w);
        }
    }
    return !_mm512_cmpge_epu16_mask(top, _mm512_set1_epi16(0x7f80));
}

/* ---- scores ------------------------------------------------------------- */

struct scores {
    const uint32_t *keys; /* at the first vector of positions */
    const uint16_t *q;
    size_t ldq, d;
    float *scores, *lanes; /* of the first row */
    size_t first;          /* vector of positions */
    const int *lo, *hi;
    bool whole; /* all rows see all positions */
};

/* One pair of elements; alone: its second is not there. */
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

/* Scores of T rows, -INFINITY where a row does not look, and what is left of
 * their maxima once lanes are compared. */
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
            const uint64_t in = (~(uint64_t)0 >> (KV_BLOCK - s->hi[t]) &
                                 ~(uint64_t)0 << s->lo[t]) >>
                                16 * first;

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

/* ---- exponentials ------------------------------------------------------- */

/* 2^n times a polynomial of r, where x = (n + r) ln 2 and |r| <= 1/2: minimax
 * but for being 1 at 0, off by 9.2e-8. -INFINITY gives 0, as vscalefps has it
 * (r is NaN then). */
INLINE __m512 exp16(__m512 x)
{
    const __m512 t = _mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p0f));
    const __m512 n =
        _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 r = _mm512_sub_ps(t, n);
    __m512 p = _mm512_set1_ps(0x1.5bba14p-10f);

    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.3cea88p-7f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.c6b752p-5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.ebf9bcp-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.62e42ap-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
    return _mm512_scalef_ps(p, n);
}

INLINE __m512 combine(__m512 a, __m512 b, bool sums)
{
    return sums ? _mm512_add_ps(a, b) : _mm512_max_ps(a, b);
}

/* Lane i becomes the sum or maximum of the lanes of row i of in, in one order.
 * Each step halves the lanes of a row and puts two rows in a vector. */
INLINE __m512 over_lanes(const float *in, bool sums)
{
    __m512 v[16], s[16];

    UNROLL
    for (int i = 0; i < 16; i++)
        v[i] = _mm512_load_ps(in + 16 * i);
    UNROLL
    for (int h = 0; h < 16; h += 8) {
        UNROLL
        for (int i = h; i < h + 4; i++)
            s[i] = combine(_mm512_shuffle_f32x4(v[i], v[i + 4], 0x44),
                           _mm512_shuffle_f32x4(v[i], v[i + 4], 0xee), sums);
    }
    UNROLL
    for (int i = 0; i < 4; i++)
        v[i] = combine(_mm512_shuffle_f32x4(s[i], s[i + 8], 0x88),
                       _mm512_shuffle_f32x4(s[i], s[i + 8], 0xdd), sums);
    UNROLL
    for (int i = 0; i < 2; i++)
        s[i] = combine(_mm512_unpacklo_ps(v[i], v[i + 2]),
                       _mm512_unpackhi_ps(v[i], v[i + 2]), sums);
    return combine(_mm512_unpacklo_ps(s[0], s[1]),
                   _mm512_unpackhi_ps(s[0], s[1]), sums);
}

/* One row's scores become bf16 of exp(score - shift); returns lanes of their
 * sum. */
INLINE __m512 exp_row(float *scores, float shift)
{
    const __m512bh ones = (__m512bh)_mm512_set1_epi32(0x3f803f80);
    const __m512 sh = _mm512_set1_ps(shift);
    __m512 sum = _mm512_setzero_ps(), s[VECTORS];
    __m512bh p[VECTORS / 2];

    UNROLL
    for (int v = 0; v < VECTORS; v++)
        s[v] = exp16(_mm512_sub_ps(_mm512_load_ps(scores + 16 * v), sh));
    UNROLL
    for (int v = 0; v < VECTORS / 2; v++) {
        p[v] = _mm512_cvtne2ps_pbh(s[2 * v + 1], s[2 * v]);
        sum = _mm512_dpbf16_ps(sum, p[v], ones);
        _mm512_store_si512(scores + 16 * v, (__m512i)p[v]);
    }
    return sum;
}

/* Rows [i, i + n) of a batch; m and l take them in. l adds up the rounded
 * exponentials: those that weigh the values. Returns whether any acc has to be
 * scaled by keep. */
static bool softmax(const struct attn_rows *rows, const struct parts *s,
                    size_t i, size_t n)
{
    bool rescale = false;

    for (size_t b = 0; b < n; b += 16) {
        const __mmask16 in = first_lanes(n - b);
        const size_t end = n - b < 16 ? n : b + 16;
        float *m = rows->m + i + b, *l = rows->l + i + b;
        const __m512 none = _mm512_set1_ps(-INFINITY);
        __m512 old = _mm512_maskz_loadu_ps(in, m);
        __m512 top = over_lanes(s->lanes + 16 * b, false), shift, keep, sum;
        __mmask16 more;

        top = _mm512_max_ps(top, old);
        more = _mm512_mask_cmp_ps_mask(in, top, old, _CMP_NEQ_UQ);
        /* all -INFINITY so far: exp(-INFINITY) is wanted, not exp(NaN) */
        shift =
            _mm512_mask_mov_ps(top, _mm512_cmp_ps_mask(top, none, _CMP_EQ_OQ),
                               _mm512_setzero_ps());
        keep = _mm512_mask_mov_ps(_mm512_set1_ps(1), more,
                                  exp16(_mm512_sub_ps(old, shift)));
        _mm512_store_ps(s->shift + b, shift);
        _mm512_store_ps(s->keep + b, keep);
        _mm512_mask_storeu_ps(m, in, top);
        rescale |= more != 0;
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
    const uint32_t *values; /* at the first pair of positions */
    const uint32_t *p;      /* the same of the rows, KV_BLOCK apart */
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

/* One row and no other position than those it sees, for blocks with infinite
 * values or NaN: 0 times those is not 0. */
static void value_row(const struct values *s, size_t lo, size_t hi)
{
    for (size_t e = 0; e < s->d; e += 16) {
        const uint32_t *values =
            s->values + e / LANES * PAIRS * LANES + e % LANES;
        const __mmask16 in = first_lanes(s->d - e);
        __m512 a = _mm512_maskz_loadu_ps(in, s->acc + e);

        a = _mm512_mul_ps(a, _mm512_set1_ps(*s->keep));
        for (size_t j = lo / 2; 2 * j < hi; j++) {
            const uint32_t seen =
                (2 * j >= lo ? 0xffff : 0) | (2 * j + 1 < hi ? 0xffff0000 : 0);
            const __m512i v =
                _mm512_and_si512(_mm512_load_si512(values + j * LANES),
                                 _mm512_set1_epi32((int)seen));

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
#define TILES(V) \
    TILE(V, 1)   \
    TILE(V, 2)   \
    TILE(V, 3)   \
    TILE(V, 4)   \
    TILE(V, 5)   \
    TILE(V, 6)
#define TILE_ROW(of, V)                                             \
    {                                                               \
        of##_tile_##V##_1, of##_tile_##V##_2, of##_tile_##V##_3,    \
            of##_tile_##V##_4, of##_tile_##V##_5, of##_tile_##V##_6 \
    }

TILES(1)
TILES(2)
TILES(3)
TILES(4)

static void (*const score_tiles[VECTORS][ROWS])(const struct scores *) = {
    TILE_ROW(score, 1), TILE_ROW(score, 2), TILE_ROW(score, 3),
    TILE_ROW(score, 4)};
static void (*const value_tiles[VECTORS][ROWS])(const struct values *) = {
    TILE_ROW(value, 1), TILE_ROW(value, 2), TILE_ROW(value, 3),
    TILE_ROW(value, 4)};

/* ---- batches ------------------------------------------------------------ */

/* Rows of the next tile of n: tiles of one size, nearly. */
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
        r = all.whole ? all : range_of(rows, i + b, T);
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
        r = all.whole ? all : range_of(rows, i + b, T);
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

/* ---- a block ------------------------------------------------------------ */

/* Rows [i, i + n) take their part in fetching what follows the values: the keys
 * of the next head. */
INLINE void fetch_ahead(const struct attn_rows *rows, const char *v,
                        size_t bytes, size_t i, size_t n)
{
    const char *at = v + bytes + bytes * i / rows->n;

    for (size_t b = 0; b < bytes * n / rows->n; b += 64)
        _mm_prefetch(at + b, _MM_HINT_T1);
}

INLINE void attn_block(const struct attn_rows *rows, const char *k,
                       const char *v, size_t d, float *scratch, enum dtype type)
{
    const size_t panel = (d + LANES - 1) / LANES * LANES * PAIRS;
    const struct range all = range_of(rows, 0, rows->n);
    struct parts s;
    bool finite;

    if (all.lo >= all.hi)
        return;
    s.keys = (uint32_t *)(void *)scratch;
    s.values = s.keys + panel;
    s.scores = scratch + 2 * panel;
    s.lanes = s.scores + ATTN_BF16_BATCH * KV_BLOCK;
    s.shift = s.lanes + ATTN_BF16_BATCH * 16;
    s.keep = s.shift + ATTN_BF16_BATCH;
    if (d % 32 == 0) {
        pack_keys(s.keys, k, d, all.lo, all.hi, type, true);
        finite = pack_values(s.values, v, d, all.lo, all.hi, type, true);
    } else {
        pack_keys(s.keys, k, d, all.lo, all.hi, type, false);
        finite = pack_values(s.values, v, d, all.lo, all.hi, type, false);
    }
    /* rows that see something, as many at a time as follow each other */
    for (size_t i = 0, n; i < rows->n; i += n ? n : 1) {
        bool rescale;

        n = rows->n - i < ATTN_BF16_BATCH ? rows->n - i : ATTN_BF16_BATCH;
        if (!all.whole)
            n = seeing(rows, i, n);
        if (n == 0)
            continue;
        fetch_ahead(rows, v, KV_BLOCK * d * type_bytes(type), i, n);
        batch_scores(rows, &s, d, i, n, all);
        rescale = softmax(rows, &s, i, n);
        if (finite)
            batch_values(rows, &s, d, i, n, all, rescale);
        else
            batch_rows(rows, &s, d, i, n);
    }
}

#define ATTN_BLOCK(name, type)                                      \
    static void k_attn_block_bf16_##name##_avx512bf16(              \
        const struct attn_rows *rows, const void *k, const void *v, \
        size_t head_dim, float *scratch)                            \
    {                                                               \
        attn_block(rows, k, v, head_dim, scratch, type);            \
    }

ATTN_BLOCK(f32, DT_F32)
ATTN_BLOCK(f16, DT_F16)
ATTN_BLOCK(bf16, DT_BF16)

void k_attn_avx512bf16_init(struct kernels *k)
{
    k->attn_block_bf16[DT_F32] = k_attn_block_bf16_f32_avx512bf16;
    k->attn_block_bf16[DT_F16] = k_attn_block_bf16_f16_avx512bf16;
    k->attn_block_bf16[DT_BF16] = k_attn_block_bf16_bf16_avx512bf16;
}
