/* Attention of prefill for AMX. Both products use tdpbf16ps, which multiplies a
 * tile of 16 rows by 32 columns with one of 32 by 16.
 *
 * First compute scores and exponentials of all rows, while keys stay in L1;
 * then multiply all rows by values, while values stay in L1. The tile unit
 * works in parallel with the vector units: products for the scores of the next
 * rows are interleaved with the exponentials of the current rows.
 *
 * Order of sums: a score takes tiles of DEPTH elements, acc takes tiles of
 * DEPTH positions. Within a tile, the hardware sums the products of even
 * columns and of odd columns separately, and adds both sums. l sums
 * exponentials before they are rounded. Positions that a row does not attend to
 * add 0 * v, which changes nothing. */

#define VALUE_STEP  32
#define GROUP_PAIRS 64

#include "kernel/x86/k_amx_tiles.h"
#include "kernel/x86/k_attn_bf16.h"

_Static_assert(VALUE_STEP == (int)DEPTH, "positions of a tile");

enum {
    WIDTH = ATTN_BF16_BLOCKS * KV_BLOCK, /* positions */
    STRIDE = 4 * LANES,                  /* bytes from row to row of a panel */
    /* the head size for which a batch of scores has one step per two rows;
     * softmax_beside needs it */
    BESIDE_D = 128
};

_Static_assert(ATTN_BF16_BLOCKS *BESIDE_D / (int)DEPTH == (int)SIDE / 2,
               "steps and rows");
_Static_assert(2 * SIDE * WIDTH <= ATTN_BF16_BATCH * KV_BLOCK,
               "scores of two batches");

struct task {
    const struct attn_rows *rows;
    size_t d, panel, n_positions;
    struct range all;        /* of all rows */
    uint32_t *keys, *values; /* panels of all blocks */
    float *scores;           /* [2][SIDE][WIDTH] */
    float *lanes;            /* [SIDE][16] lanes of maxima or sums, before their
                                reduction */
    float *shift;            /* [SIDE], subtracted from scores */
    uint16_t *p;             /* [rows][WIDTH] exponentials in bf16 */
    float *keep;             /* [rows], factor of acc */
};

/* The value of keep for a row without positions so far: its acc is undefined,
 * its l is 0. */
#define NOTHING_YET (-1.0f)

/* Rows that are processed together: at most SIDE. */
struct batch {
    size_t i, n; /* first row, number of rows */
    struct range visible;
    float *scores;
};

/* ---- tiles -------------------------------------------------------------- */

/* tmm0 to 3: sums; 4: queries or exponentials of n rows; 6 and 7: keys or
 * values. */
static void configure(size_t n)
{
    struct tile_config c = {.palette = 1};

    for (int t = 0; t < 5; t++)
        tile_shape(&c, t, (int)n, DEPTH);
    for (int t = 6; t < 8; t++)
        tile_shape(&c, t, SIDE, DEPTH);
    TILE_CONFIGURE(c);
}

INLINE void zero_sums(size_t n)
{
    TILE_ZERO(0);
    if (n > 1)
        TILE_ZERO(1);
    if (n > 2)
        TILE_ZERO(2);
    if (n > 3)
        TILE_ZERO(3);
}

INLINE void load_sums(const float *p, size_t stride, size_t n)
{
    TILE_LOAD(0, p, stride);
    if (n > 1)
        TILE_LOAD(1, p + SIDE, stride);
    if (n > 2)
        TILE_LOAD(2, p + 2 * SIDE, stride);
    if (n > 3)
        TILE_LOAD(3, p + 3 * SIDE, stride);
}

INLINE void save_sums(float *p, size_t stride, size_t n)
{
    TILE_STORE(0, p, stride);
    if (n > 1)
        TILE_STORE(1, p + SIDE, stride);
    if (n > 2)
        TILE_STORE(2, p + 2 * SIDE, stride);
    if (n > 3)
        TILE_STORE(3, p + 3 * SIDE, stride);
}

/* Add the products of a and SIDE rows of a panel to n tiles of sums. */
INLINE void add_products(const void *a, size_t stride, const uint32_t *panel,
                         size_t n)
{
    TILE_LOAD(4, a, stride);
    TILE_LOAD(6, panel, STRIDE);
    TILE_DOT(0, 4, 6);
    if (n > 1) {
        TILE_LOAD(7, panel + SIDE, STRIDE);
        TILE_DOT(1, 4, 7);
    }
    if (n > 2) {
        TILE_LOAD(6, panel + 2 * SIDE, STRIDE);
        TILE_DOT(2, 4, 6);
    }
    if (n > 3) {
        TILE_LOAD(7, panel + 3 * SIDE, STRIDE);
        TILE_DOT(3, 4, 7);
    }
}

/* ---- scores ------------------------------------------------------------- */

/* A position as an offset in block b, clamped to [0, KV_BLOCK]. */
INLINE size_t in_block(size_t position, size_t b)
{
    const size_t at = b * KV_BLOCK;

    return position < at              ? 0
           : position > at + KV_BLOCK ? KV_BLOCK
                                      : position - at;
}

/* Compute n tiles of scores. */
INLINE void scores(const struct task *a, const uint16_t *q,
                   const uint32_t *keys, float *to, size_t n)
{
    const size_t ldq = a->rows->ldq;

    zero_sums(n);
    for (size_t e = 0; e < a->d; e += DEPTH) {
        add_products(q + e, 2 * ldq, keys, n);
        keys += SIDE * LANES;
    }
    save_sums(to, 4 * WIDTH, n);
}

static void batch_scores(const struct task *a, const struct batch *t)
{
    const uint16_t *q = a->rows->q16 + t->i * a->rows->ldq;

    for (size_t b = t->visible.lo / KV_BLOCK; b * KV_BLOCK < t->visible.hi;
         b++) {
        const size_t lo = in_block(t->visible.lo, b),
                     hi = in_block(t->visible.hi, b);
        const size_t first = lo / SIDE, n = (hi - 1) / SIDE + 1 - first;
        const uint32_t *keys = a->keys + b * a->panel + first * SIDE;
        float *to = t->scores + b * KV_BLOCK + first * SIDE;

        if (n == VECTORS)
            scores(a, q, keys, to, VECTORS);
        else
            scores(a, q, keys, to, n);
    }
}

/* ---- exponentials ------------------------------------------------------- */

/* exp(x) with a relative error of at most 8.6e-5, enough for a result that is
 * rounded to bf16: 2^n times a polynomial of r, where x = (n + r) ln 2 and
 * 0 <= r <= 1. The polynomial is 1 at 0. -INFINITY gives 0. */
INLINE __m512 exp_for_bf16(__m512 x)
{
    const __m512 t = _mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p0f));
    const __m512 r =
        _mm512_reduce_ps(t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    __m512 p = _mm512_set1_ps(0x1.3baaa6p-4f);

    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.d2378ap-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.63e658p-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
    return _mm512_scalef_ps(p, t); /* uses the integral part of t */
}

/* Cap a batch's scores. Those of positions that a row does not attend to count
 * nothing. */
static void cap_scores(const struct task *a, const struct batch *t)
{
    const struct cap cap = cap_of(a->rows->cap);
    const size_t first = t->visible.lo / DEPTH * 2;
    const size_t end = (t->visible.hi + DEPTH - 1) / DEPTH * 2;

    for (size_t r = 0; r < t->n; r++)
        for (size_t v = first; v < end; v++) {
            float *x = t->scores + r * WIDTH + 16 * v;

            _mm512_store_ps(x, vec_cap(_mm512_load_ps(x), cap));
        }
}

/* In vectors [first, end) of scores, set the scores of positions that a row
 * does not attend to to -INFINITY. */
static void hide_masked(const struct task *a, const struct batch *t,
                        size_t first, size_t end)
{
    const __m512 none = _mm512_set1_ps(-INFINITY);

    for (size_t r = 0; r < t->n; r++) {
        float *scores = t->scores + r * WIDTH;
        const size_t lo = (size_t)a->rows->lo[t->i + r];
        const size_t hi = (size_t)a->rows->hi[t->i + r];

        for (size_t v = first; 16 * v < lo; v++)
            _mm512_mask_store_ps(scores + 16 * v, first_lanes(lo - 16 * v),
                                 none);
        for (size_t v = hi / 16; v < end; v++)
            _mm512_mask_store_ps(
                scores + 16 * v,
                (__mmask16)~first_lanes(hi < 16 * v ? 0 : hi - 16 * v), none);
    }
}

/* The maximum of vectors [first, end) of a row's scores, lane by lane. first
 * and end are even. */
INLINE __m512 row_top(const float *scores, size_t first, size_t end)
{
    __m512 top[2] = {_mm512_load_ps(scores + 16 * first),
                     _mm512_load_ps(scores + 16 * first + 16)};

    UNROLL
    for (size_t v = first + 2; v < end; v++)
        top[v % 2] = _mm512_max_ps(top[v % 2], _mm512_load_ps(scores + 16 * v));
    return _mm512_max_ps(top[0], top[1]);
}

/* Write the exponentials of these scores to p and add them to sum. */
INLINE void row_exps(uint16_t *p, const float *scores, __m512 shift,
                     size_t first, size_t end, __m512 sum[2])
{
    UNROLL
    for (size_t v = first; v < end; v += 2) {
        __m512 s[2];

        UNROLL
        for (size_t h = 0; h < 2; h++) {
            s[h] = _mm512_load_ps(scores + 16 * (v + h));
            s[h] = exp_for_bf16(_mm512_sub_ps(s[h], shift));
            sum[h] = _mm512_add_ps(sum[h], s[h]);
        }
        _mm512_store_si512(p + 16 * v,
                           (__m512i)_mm512_cvtne2ps_pbh(s[1], s[0]));
    }
}

/* Update m from vectors [first, end) of a batch's scores; set shift and
 * keep. */
INLINE void batch_tops(const struct task *a, const struct batch *t,
                       size_t first, size_t end)
{
    const __mmask16 in = first_lanes(t->n);
    float *m = a->rows->m + t->i;
    const __mmask16 started =
        _mm512_mask_cmp_ps_mask(in, _mm512_maskz_loadu_ps(in, m),
                                _mm512_set1_ps(-INFINITY), _CMP_NEQ_UQ);
    __m512 keep;

    for (size_t r = 0; r < t->n; r++)
        _mm512_store_ps(a->lanes + 16 * r,
                        row_top(t->scores + r * WIDTH, first, end));
    raise_maxima(m, in, over_lanes(a->lanes, false), a->shift, &keep);
    keep = _mm512_mask_mov_ps(_mm512_set1_ps(NOTHING_YET), started, keep);
    _mm512_mask_storeu_ps(a->keep + t->i, in, keep);
}

/* Update l from the sums of exponentials in lanes. */
INLINE void batch_sums(const struct task *a, const struct batch *t)
{
    const __mmask16 in = first_lanes(t->n);
    const __m512 keep = _mm512_maskz_loadu_ps(in, a->keep + t->i);
    float *l = a->rows->l + t->i;

    _mm512_mask_storeu_ps(l, in,
                          _mm512_fmadd_ps(_mm512_maskz_loadu_ps(in, l), keep,
                                          over_lanes(a->lanes, true)));
}

/* Turn a batch's scores in vectors [first, end) into exponentials, and update m
 * and l. */
INLINE void softmax(const struct task *a, const struct batch *t, size_t first,
                    size_t end)
{
    batch_tops(a, t, first, end);
    for (size_t r = 0; r < t->n; r++) {
        __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};

        row_exps(a->p + (t->i + r) * WIDTH, t->scores + r * WIDTH,
                 _mm512_set1_ps(a->shift[r]), first, end, sum);
        _mm512_store_ps(a->lanes + 16 * r, _mm512_add_ps(sum[0], sum[1]));
    }
    batch_sums(a, t);
}

/* softmax for SIDE rows that attend to WIDTH positions. Interleaves steps of
 * the next batch's scores. */
static void softmax_beside(const struct task *a, const struct batch *t,
                           const struct batch *next)
{
    const size_t ldq = a->rows->ldq;
    const uint16_t *q = a->rows->q16 + next->i * ldq;
    const uint32_t *keys = a->keys;

    batch_tops(a, t, 0, 2 * VECTORS);
    for (size_t r = 0; r < SIDE; r++) {
        const size_t e = r / 2 * DEPTH % BESIDE_D;
        const float *scores = t->scores + r * WIDTH;
        uint16_t *p = a->p + (t->i + r) * WIDTH;
        const __m512 shift = _mm512_set1_ps(a->shift[r]);
        __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};

        if (r % 2 == 0) {
            if (e == 0)
                zero_sums(VECTORS);
            TILE_LOAD(4, q + e, 2 * ldq);
            TILE_LOAD(6, keys, STRIDE);
            TILE_DOT(0, 4, 6);
        } else {
            TILE_LOAD(6, keys + 2 * SIDE, STRIDE);
            TILE_DOT(2, 4, 6);
        }
        row_exps(p, scores, shift, 0, VECTORS, sum);
        if (r % 2 == 0) {
            TILE_LOAD(7, keys + SIDE, STRIDE);
            TILE_DOT(1, 4, 7);
        } else {
            TILE_LOAD(7, keys + 3 * SIDE, STRIDE);
            TILE_DOT(3, 4, 7);
            keys += SIDE * LANES;
        }
        row_exps(p, scores, shift, VECTORS, 2 * VECTORS, sum);
        _mm512_store_ps(a->lanes + 16 * r, _mm512_add_ps(sum[0], sum[1]));
        if (r % 8 == 7)
            save_sums(next->scores + r / 8 * KV_BLOCK, 4 * WIDTH, VECTORS);
    }
    batch_sums(a, t);
}

/* softmax with a constant number of vectors where possible. */
static void softmax_any(const struct task *a, const struct batch *t)
{
    const size_t first = t->visible.lo / DEPTH * 2;
    const size_t end = (t->visible.hi + DEPTH - 1) / DEPTH * 2;

    if (!t->visible.whole)
        hide_masked(a, t, first, end);
    if (first)
        softmax(a, t, first, end);
    else if (end == 2)
        softmax(a, t, 0, 2);
    else if (end == 4)
        softmax(a, t, 0, 4);
    else if (end == 6)
        softmax(a, t, 0, 6);
    else
        softmax(a, t, 0, 8);
}

static struct batch batch_of(const struct task *a, size_t i, size_t n,
                             size_t buffer)
{
    return (struct batch){
        .i = i,
        .n = n,
        .visible =
            a->all.whole ? a->all : range_of(a->rows, i, n, a->n_positions),
        .scores = a->scores + buffer * SIDE * WIDTH};
}

/* Whether softmax_beside can take the batch, as the current or the next one. */
INLINE bool regular(const struct task *a, const struct batch *t)
{
    return a->d == BESIDE_D && t->n == SIDE && t->visible.whole &&
           t->visible.hi == WIDTH;
}

/* Compute scores and exponentials of n_batches batches of n rows each, from row
 * i on. */
static void batches_exps(const struct task *a, size_t i, size_t n,
                         size_t n_batches)
{
    struct batch t = batch_of(a, i, n, 0), next;

    configure(n);
    batch_scores(a, &t);
    for (size_t b = 1; b < n_batches; b++, t = next) {
        next = batch_of(a, i + b * n, n, b % 2);
        if (a->rows->cap > 0)
            cap_scores(a, &t);
        if (regular(a, &t) && regular(a, &next)) {
            softmax_beside(a, &t, &next);
        } else {
            softmax_any(a, &t);
            batch_scores(a, &next);
        }
    }
    if (a->rows->cap > 0)
        cap_scores(a, &t);
    softmax_any(a, &t);
}

/* ---- values ------------------------------------------------------------- */

/* Scale acc of a batch by keep, and clear it for rows without positions so far.
 * If all rows have none, returns true and leaves acc untouched. */
INLINE bool rescale(const struct task *a, const struct batch *t)
{
    const __mmask16 in = first_lanes(t->n);
    const __m512 keep = _mm512_maskz_loadu_ps(in, a->keep + t->i);
    const __mmask16 fresh = _mm512_mask_cmp_ps_mask(
        in, keep, _mm512_set1_ps(NOTHING_YET), _CMP_EQ_OQ);
    unsigned more =
        _mm512_mask_cmp_ps_mask(in, keep, _mm512_set1_ps(1), _CMP_NEQ_UQ);

    if (fresh == in)
        return true;
    for (; more; more &= more - 1) {
        const size_t r = (size_t)__builtin_ctz(more);
        const __m512 by = _mm512_set1_ps(a->keep[t->i + r]);
        float *acc = a->rows->acc + (t->i + r) * a->d;

        if (fresh >> r & 1)
            memset(acc, 0, a->d * sizeof *acc);
        else
            for (size_t e = 0; e < a->d; e += 16)
                _mm512_storeu_ps(acc + e,
                                 _mm512_mul_ps(_mm512_loadu_ps(acc + e), by));
    }
    return false;
}

/* acc += exponentials times values, for n tiles of elements from e on and steps
 * [first, end) of positions. fresh: acc starts at 0. */
INLINE void values(const struct task *a, size_t i, size_t e, size_t first,
                   size_t end, size_t n, bool fresh)
{
    float *acc = a->rows->acc + i * a->d + e;
    const uint16_t *p = a->p + i * WIDTH;
    const uint32_t *panel = a->values + e / LANES * GROUP_PAIRS * LANES;

    if (fresh)
        zero_sums(n);
    else
        load_sums(acc, 4 * a->d, n);
    for (size_t j = first; j < end; j++)
        add_products(p + j * DEPTH, 2 * WIDTH, panel + j * SIDE * LANES, n);
    save_sums(acc, 4 * a->d, n);
}

/* Call `values` for a batch and all elements of the head. */
static void batch_values(const struct task *a, const struct batch *t)
{
    const size_t first = t->visible.lo / DEPTH;
    const size_t end = (t->visible.hi + DEPTH - 1) / DEPTH;
    const bool fresh = rescale(a, t);

    for (size_t e = 0; e < a->d; e += LANES) {
        const size_t left = (a->d - e) / SIDE;

        if (left >= VECTORS)
            values(a, t->i, e, first, end, VECTORS, fresh);
        else
            values(a, t->i, e, first, end, left, fresh);
    }
}

/* ---- blocks ------------------------------------------------------------- */

struct blocks {
    const void *const *k, *const *v;
    size_t n;
    enum dtype type;
};

/* Pack the keys of block j that are in positions [lo, hi). */
INLINE void block_keys(const struct task *a, const struct blocks *b, size_t j,
                       size_t lo, size_t hi)
{
    pack_keys(a->keys + j * a->panel, b->k[j], a->d, in_block(lo, j),
              in_block(hi, j), b->type, true);
}

/* Pack the values of block j that are in positions [lo, hi). Returns whether
 * all are finite. */
INLINE bool block_values(const struct task *a, const struct blocks *b, size_t j,
                         size_t lo, size_t hi)
{
    return pack_values(a->values + j * PAIRS * LANES, b->v[j],
                       j + 1 < b->n ? b->k[j + 1] : a->rows->next, a->d,
                       in_block(lo, j), in_block(hi, j), b->type, true);
}

/* Process rows one by one, each with only the values it attends to. For blocks
 * with infinite values or NaN, because 0 times these is not 0. */
INLINE void rows_one_by_one(const struct task *a, const struct blocks *b,
                            size_t i, size_t n)
{
    for (; n > 0; i++, n--) {
        const struct batch t = batch_of(a, i, 1, 0);

        batches_exps(a, i, 1, 1);
        for (size_t j = 0; j < b->n; j++)
            block_values(a, b, j, t.visible.lo, t.visible.hi);
        batch_values(a, &t);
    }
}

/* Process rows [i, i + n). Each of them attends to at least one position. */
static void rows_run(const struct task *a, size_t i, size_t n)
{
    const size_t whole = n / SIDE, rest = n % SIDE;

    if (whole)
        batches_exps(a, i, SIDE, whole);
    for (size_t b = 0; b < whole; b++) {
        const struct batch t = batch_of(a, i + b * SIDE, SIDE, 0);

        batch_values(a, &t);
    }
    i += whole * SIDE;
    if (rest) {
        const struct batch t = batch_of(a, i, rest, 0);

        batches_exps(a, i, rest, 1);
        batch_values(a, &t);
    }
}

INLINE void run(const struct task *a, const struct blocks *b)
{
    const struct attn_rows *rows = a->rows;
    bool finite = true;

    for (size_t j = 0; j < b->n; j++) {
        block_keys(a, b, j, a->all.lo, a->all.hi);
        finite &= block_values(a, b, j, a->all.lo, a->all.hi);
    }
    for (size_t i = 0, n; i < rows->n; i += n ? n : 1) {
        n = a->all.whole ? rows->n : visible_rows(rows, i, rows->n - i);
        if (finite && n)
            rows_run(a, i, n);
        else
            rows_one_by_one(a, b, i, n);
    }
    TILE_RELEASE();
}

INLINE void attn_blocks(const struct attn_rows *rows, const void *const *k,
                        const void *const *v, size_t n_blocks, size_t d,
                        float *scratch, enum dtype type)
{
    const struct blocks b = {k, v, n_blocks, type};
    struct task a = {.rows = rows,
                     .d = d,
                     .panel = panel_size(d),
                     .n_positions = n_blocks * KV_BLOCK};
    unsigned csr;

    if (d % DEPTH) {
        k_attn_blocks_bf16_avx512bf16(rows, k, v, n_blocks, d, scratch, type);
        return;
    }
    a.all = range_of(rows, 0, rows->n, a.n_positions);
    if (a.all.lo >= a.all.hi)
        return;
    a.keys = (uint32_t *)(void *)scratch;
    a.values = a.keys + ATTN_BF16_BLOCKS * a.panel;
    a.scores = scratch + 2 * ATTN_BF16_BLOCKS * a.panel;
    a.lanes = a.scores + 2 * SIDE * WIDTH;
    a.shift = a.lanes + SIDE * 16;
    a.p = (uint16_t *)(void *)(a.shift + SIDE);
    a.keep = (float *)(void *)(a.p + rows->n * WIDTH);
    /* Flush subnormal exponentials to 0: each would cost hundreds of cycles,
     * and tile products flush subnormal numbers anyway. */
    csr = _mm_getcsr();
    _mm_setcsr(csr | _MM_FLUSH_ZERO_ON);
    run(&a, &b);
    _mm_setcsr(csr);
}

/* ---- rounding ----------------------------------------------------------- */

/* Round to bf16 with ties to even, also subnormal numbers, which vcvtneps2bf16
 * would flush to 0. */
INLINE __m256i round_subnormal(__m512 x)
{
    const __m512i u = _mm512_castps_si512(x);
    const __m512i odd =
        _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));

    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(
        _mm512_add_epi32(_mm512_add_epi32(u, odd), _mm512_set1_epi32(0x7fff)),
        16));
}

/* Round to bf16. Few vectors have subnormal lanes. */
INLINE __m256i round16(__m512 x)
{
    const __mmask16 subnormal = _mm512_fpclass_ps_mask(x, 0x20);
    const __m256i h = (__m256i)_mm512_cvtneps_pbh(x);

    return subnormal ? _mm256_mask_mov_epi16(h, subnormal, round_subnormal(x))
                     : h;
}

static void k_from_f32_bf16_amx(void *out, const float *in, size_t n)
{
    uint16_t *to = out;
    size_t i = 0;

    for (; n - i >= 16; i += 16)
        _mm256_storeu_si256((__m256i_u *)(void *)(to + i),
                            round16(_mm512_loadu_ps(in + i)));
    if (i < n)
        _mm256_mask_storeu_epi16(
            to + i, first_lanes(n - i),
            round16(_mm512_maskz_loadu_ps(first_lanes(n - i), in + i)));
}

ATTN_LEVEL(amx)

void k_attn_amx_init(struct kernels *k)
{
    ENTER_ATTN(amx);
    k->from_f32[DT_BF16] = k_from_f32_bf16_amx;
}
