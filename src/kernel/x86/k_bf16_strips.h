/* Products in bf16 with few tokens, for AVX512_BF16. Included by
 * k_avx512bf16.c.
 *
 * Order of sums. Each of 16 lanes takes every 16th pair of columns. The sum of
 * the lanes is added to y after each block of columns; the width of a block
 * depends on the core and on the numbers of columns and tokens. */
#ifndef KERNEL_X86_K_BF16_STRIPS_H
#define KERNEL_X86_K_BF16_STRIPS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernel/kernel.h"
#include "kernel/x86/k_zmm.h"

/* Weights are used in their own layout: the lanes of an accumulator are
 * columns, and they are added up at the end of a row. Memory bandwidth is the
 * limit, or close to it.
 *
 * Up to bf16_rows_max tokens (struct core_choices) sweep single rows in one
 * pass. More tokens use tiles of STRIP rows by up to STRIP_TOKENS tokens, with
 * half the loads: a loop with seven loads for eight products reached less than
 * half of the memory bandwidth of a Zen 5, because the lines that arrive wait
 * for the load ports. A strip stays in L1 for all passes. If its columns are
 * many, a block of rows uses the first of them before the next columns follow,
 * so that L1 also holds these columns of all tokens.
 *
 * Prefetches in the order of addresses, spread evenly over the work, keep
 * memory busy. In the order in which a tile of four rows uses the lines, the
 * bandwidth of a Zen 5 is a fifth less. Each line is prefetched twice, because
 * the CPU drops prefetches when about a hundred lines are outstanding. There
 * are two ways (bf16_strips_l2):
 *
 * - Both prefetches go into L1, in the order of the strips.
 * - The first one goes into L2, a block of rows ahead, in the order of the
 *   matrix; the second one fetches the next strip into L1. The columns of the
 *   tokens are copied, so that a stride near a multiple of 4 KiB does not place
 *   all of them in the same sets of L1.
 *
 * With weights in memory, panels take 1.5 to 2.5 times as long for 12 tokens,
 * 1.1 to 1.3 times for 24 and 32, the same time for 36, and less from 42 on. */
enum {
    STRIP = 4,
    STRIP_TOKENS = 6,
    STRIP_LINE = 64,
    BLOCK = 128,
    X_COLS = 1024,
    X_ELEMENTS = 12 << 10, /* elements of x that L1 holds: 24 KiB */
    X_SMALL = 8 << 10,     /* up to this many elements of x need only one
                              prefetch */
    FAR_TOKENS = 12,       /* up to this many tokens, memory is the limit */
    /* distances of prefetches in bytes */
    FAR_SMALL_M = 16384, /* strips, up to FAR_TOKENS */
    FAR_MORE = 8192,     /* strips, more tokens */
    FAR_WIDE = 12288,    /* single rows, x large: first prefetch */
    NEAR_WIDE = 4096,    /* and second prefetch */
    /* with bf16_strips_l2 */
    X_ELEMENTS_L2 = 16 << 10,
    FEW_TOKENS = 4,         /* of a pass, up to twice as many: two passes spread
                               prefetches more evenly than one of 5 or 6 tokens */
    BLOCK_BYTES = 64 << 10, /* a block of rows, if columns are cut */
    BLOCK_BYTES_WHOLE = 16 << 10
};

/* Multiply R rows by T tokens. */
struct strip {
    const char *w;
    size_t w_bytes;
    const char *x;
    size_t x_bytes;
    size_t lines; /* whole cache lines of a row */
    size_t tail;  /* columns after the whole lines */
    float *y;
    size_t ldy;
    bool add;
    const char *far;  /* to prefetch for the first time */
    size_t far_bytes; /* from row to row of far */
    const char *near; /* to prefetch for the second time */
};

/* The sums of the lanes of four vectors. */
INLINE __m128 sum_vectors4(__m512 a, __m512 b, __m512 c, __m512 d)
{
    __m512 ab =
        _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    __m512 cd =
        _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    __m512d lo = _mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
    __m512d hi = _mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
    __m512 s = _mm512_add_ps(_mm512_castpd_ps(lo), _mm512_castpd_ps(hi));
    __m256 h =
        _mm256_add_ps(_mm512_castps512_ps256(s), _mm512_extractf32x8_ps(s, 1));

    return _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
}

/* The first n <= 32 columns of a cache line. A masked load reads only these. */
INLINE __m512bh load_line(const char *p, size_t n)
{
    if (n == 32)
        return (__m512bh)_mm512_loadu_si512(p);
    return (__m512bh)_mm512_maskz_loadu_epi16((1u << n) - 1, p);
}

INLINE void strip_step(__m512 a[STRIP][STRIP_TOKENS], const struct strip *s,
                       const char *w, const char *x, size_t n, int R, int T)
{
    __m512bh wv[STRIP];

    UNROLL
    for (int r = 0; r < R; r++)
        wv[r] = load_line(w + (size_t)r * s->w_bytes, n);
    UNROLL
    for (int t = 0; t < T; t++) {
        __m512bh xv = load_line(x + (size_t)t * s->x_bytes, n);

        UNROLL
        for (int r = 0; r < R; r++)
            a[r][t] = _mm512_dpbf16_ps(a[r][t], wv[r], xv);
    }
}

/* How a pass over a strip prefetches: for each line it reads, it prefetches
 * `rows` lines of later rows, in the order of addresses, so `rows` rows in
 * all. */
struct strip_fetch {
    size_t rows;
    bool twice; /* prefetch again, into L1, at half the distance */
    bool to_l2; /* on Intel's CPUs it is faster to prefetch far lines into L2
                   and to keep the prefetch in its place */
};

INLINE void strip_run(const struct strip *s, int R, int T,
                      struct strip_fetch fetch)
{
    const size_t lines = s->lines, P = fetch.rows;
    const size_t part = lines / P * P * STRIP_LINE;
    const char *w = s->w, *x = s->x, *far = s->far, *near = s->near;
    const char *far_end = far + part;
    __m512 a[STRIP][STRIP_TOKENS];

    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int t = 0; t < T; t++)
            a[r][t] = _mm512_setzero_ps();
    }
    for (size_t i = lines; i > 0; i--) {
        if (P > 1 && far == far_end) {
            far += s->far_bytes - part;
            near += s->w_bytes - part;
            far_end += s->far_bytes;
        }
        UNROLL
        for (size_t p = 0; p < P; p++) {
            if (fetch.twice)
                _mm_prefetch(near + STRIP_LINE * p, _MM_HINT_T0);
            if (fetch.to_l2)
                sweep_by(far + STRIP_LINE * p, 0, true);
            else
                _mm_prefetch(far + STRIP_LINE * p, _MM_HINT_T0);
        }
        far += STRIP_LINE * P;
        near += STRIP_LINE * P;
        strip_step(a, s, w, x, 32, R, T);
        w += STRIP_LINE;
        x += STRIP_LINE;
    }
    if (s->tail)
        strip_step(a, s, w, x, s->tail, R, T);
    UNROLL
    for (int t = 0; t < T; t++) {
        const __mmask8 m = (__mmask8)((1 << R) - 1);
        __m128 v = sum_vectors4(a[0][t], a[R > 1 ? 1 : 0][t],
                                a[R > 2 ? 2 : 0][t], a[R > 3 ? 3 : 0][t]);
        float *y = s->y + (size_t)t * s->ldy;

        if (s->add)
            v = _mm_add_ps(v, _mm_maskz_loadu_ps(m, y));
        _mm_mask_storeu_ps(y, m, v);
    }
}

/* Define name_T. fetch: a FETCH, whose parentheses protect its commas. */
#define STRIP_FN(name, R, fetch, T)               \
    static void name##_##T(const struct strip *s) \
    {                                             \
        strip_run(s, R, T, fetch);                \
    }
#define FETCH(...) ((struct strip_fetch){__VA_ARGS__})

EACH_6(STRIP_FN, row_once, 1, FETCH(.rows = 1))
EACH_6(STRIP_FN, row_twice, 1, FETCH(.rows = 1, .twice = true))
EACH_6(STRIP_FN, row_once_l2, 1, FETCH(.rows = 1, .to_l2 = true))
EACH_6(STRIP_FN, row_twice_l2, 1,
       FETCH(.rows = 1, .twice = true, .to_l2 = true))
EACH_6(STRIP_FN, strip_1, 4, FETCH(.rows = 1, .twice = true))
EACH_6(STRIP_FN, strip_2, 4, FETCH(.rows = 2, .twice = true))
EACH_6(STRIP_FN, strip_4, 4, FETCH(.rows = 4, .twice = true))
EACH_6(STRIP_FN, strip_1_l2, 4, FETCH(.rows = 1, .twice = true, .to_l2 = true))
EACH_6(STRIP_FN, strip_2_l2, 4, FETCH(.rows = 2, .twice = true, .to_l2 = true))
EACH_6(STRIP_FN, strip_4_l2, 4, FETCH(.rows = 4, .twice = true, .to_l2 = true))

typedef void strip_fn(const struct strip *s);

/* [to_l2][twice] */
static strip_fn *const row_fns[2][2][STRIP_TOKENS] = {
    {ROW_6(row_once), ROW_6(row_twice)},
    {ROW_6(row_once_l2), ROW_6(row_twice_l2)}};
/* [to_l2][rows that are fetched / 2] */
static strip_fn *const strip_fns[2][3][STRIP_TOKENS] = {
    {ROW_6(strip_1), ROW_6(strip_2), ROW_6(strip_4)},
    {ROW_6(strip_1_l2), ROW_6(strip_2_l2), ROW_6(strip_4_l2)}};

/* A walk over strips of weights: over all strips of a block of rows, then over
 * the next columns of the block, then over the next block. */
struct walk {
    const char *w;
    size_t w_bytes, n_rows, n_cols;
    size_t rows, cols; /* rows and columns of a strip */
    size_t block;      /* rows of a block */
    size_t block_at;   /* first row of the current block */
    size_t k;          /* first column of the current strip */
    size_t row_at;     /* first row of the current strip, in the block */
};

/* Step to the next strip; false if there is none. */
INLINE bool walk_next(struct walk *a)
{
    a->row_at += a->rows;
    if (a->row_at >= a->block || a->block_at + a->row_at >= a->n_rows) {
        a->row_at = 0;
        a->k += a->cols;
        if (a->k >= a->n_cols) {
            a->k = 0;
            a->block_at += a->block;
        }
    }
    return a->block_at < a->n_rows;
}

/* The walk, advanced by `bytes` bytes of weights. */
INLINE struct walk walk_ahead(struct walk a, size_t bytes)
{
    const size_t strip = a.rows * a.cols * 2;

    for (size_t i = 0; i < bytes; i += strip)
        walk_next(&a);
    return a;
}

/* The weights of the current strip. */
INLINE const char *walk_at(const struct walk *a)
{
    return a->w + (a->block_at + a->row_at) * a->w_bytes + a->k * 2;
}

/* Multiply all rows by n <= STRIP_TOKENS tokens, row by row. */
static void rows_single(struct strip s, size_t n_rows, size_t n)
{
    const bool wide = n * s.lines * (STRIP_LINE / 2) > X_SMALL;

    for (size_t r = 0; r < n_rows; r++) {
        s.far = s.w + (wide ? FAR_WIDE : kernel_core.sweep_ahead);
        s.near = s.w + NEAR_WIDE;
        row_fns[kernel_core.sweep_l2][wide][n - 1](&s);
        s.w += s.w_bytes;
        s.y++;
    }
}

/* Where the passes over a strip begin, and what they prefetch. */
struct strip_at {
    const char *x;
    float *y;
    const char *far, *near;
};

/* Multiply one strip of R rows, STRIP or 1, by n tokens in passes. Only the
 * pass itself reads *pass, member by member. Copying the struct, or adding
 * neighbouring members, would be a vector load, which waits until all earlier
 * stores, also to y, have left the CPU. */
INLINE void strip_passes(struct strip *pass, struct strip_at at, size_t w_bytes,
                         size_t far_bytes, size_t x_bytes, size_t ldy, size_t R,
                         size_t n)
{
    const bool to_l2 = kernel_core.bf16_strips_l2;
    const size_t most =
        to_l2 && n <= 2 * FEW_TOKENS ? FEW_TOKENS : STRIP_TOKENS;
    const size_t passes = (n + most - 1) / most;
    size_t t = 0, fetched = 0;

    for (size_t i = passes; i > 0; i--) {
        const size_t T = (n - t) / i;
        const size_t share = (R - fetched + i - 1) / i;
        const size_t P = share > 2 ? 4 : share > 1 ? 2 : 1;
        const bool done = fetched >= R;

        pass->far = done ? pass->w : at.far + fetched * far_bytes;
        pass->near = done ? pass->w : at.near + fetched * w_bytes;
        pass->x = at.x + t * x_bytes;
        pass->y = at.y + t * ldy;
        if (R == STRIP)
            strip_fns[to_l2][P / 2][T - 1](pass);
        else
            row_fns[to_l2][true][T - 1](pass);
        fetched += done ? 0 : P;
        t += T;
    }
}

/* The tokens of a walk: x_bytes from token to token, and block_bytes from the
 * columns of a strip to those of the next. */
struct strip_x {
    const char *x;
    size_t x_bytes, block_bytes;
};

/* Multiply all rows by n tokens, strip by strip. The number of rows is a
 * multiple of at.rows. */
static void rows_strips(const struct strip *s, struct walk at,
                        struct strip_x tokens, size_t n)
{
    const bool to_l2 = kernel_core.bf16_strips_l2;
    const size_t ahead = n > FAR_TOKENS ? FAR_MORE : FAR_SMALL_M;
    const size_t w_bytes = at.w_bytes, ldy = s->ldy;
    struct walk far = walk_ahead(at, ahead), near = walk_ahead(at, ahead / 2);
    const char *line = NULL;
    struct strip pass = *s;

    pass.x_bytes = tokens.x_bytes;
    do {
        const size_t nk =
            at.n_cols - at.k < at.cols ? at.n_cols - at.k : at.cols;
        const size_t far_bytes = to_l2 ? nk * 2 : w_bytes;

        /* each block fetches the lines of the next one */
        if (at.k == 0 && at.row_at == 0)
            line = at.w + (at.block_at + at.block) * w_bytes;
        pass.w = walk_at(&at);
        pass.lines = nk / 32;
        pass.tail = nk % 32;
        pass.far_bytes = far_bytes;
        pass.add = s->add || at.k > 0;
        strip_passes(&pass,
                     (struct strip_at){.x = tokens.x +
                                            at.k / at.cols * tokens.block_bytes,
                                       .y = s->y + at.block_at + at.row_at,
                                       .far = to_l2 ? line : walk_at(&far),
                                       .near = walk_at(&near)},
                     w_bytes, far_bytes, tokens.x_bytes, ldy, at.rows, n);
        line += at.rows * far_bytes;
        walk_next(&far);
        walk_next(&near);
    } while (walk_next(&at));
}

/* Copy blocks of `cols` columns of n tokens to out: in a block, tokens are an
 * odd number of lines apart. cols is a multiple of 32. Returns x if out is too
 * small. */
static struct strip_x copy_tokens(float *out, struct strip_x x, size_t n_cols,
                                  size_t cols, size_t n)
{
    const size_t x_bytes = (cols * 2 / STRIP_LINE | 1) * STRIP_LINE;
    const size_t blocks = (n_cols + cols - 1) / cols;
    char *to = (char *)out;

    if (blocks * n * x_bytes > KERNEL_WORK * sizeof *out)
        return x;
    for (size_t k = 0; k < n_cols; k += cols)
        for (size_t t = 0; t < n; t++, to += x_bytes)
            memcpy(to, x.x + t * x.x_bytes + k * 2,
                   (n_cols - k < cols ? n_cols - k : cols) * 2);
    return (struct strip_x){(const char *)out, x_bytes, n * x_bytes};
}

/* Return the rows that use a block of columns before the next block follows. */
INLINE size_t block_rows(size_t n_cols, size_t blocks)
{
    const size_t bytes = blocks > 1 ? BLOCK_BYTES : BLOCK_BYTES_WHOLE;
    const size_t rows = bytes / (n_cols * 2) / STRIP * STRIP;

    if (!kernel_core.bf16_strips_l2)
        return BLOCK;
    return rows ? rows : STRIP;
}

static void strips_small_m(struct strip s, size_t n_rows, size_t n_cols,
                           size_t n, float *work)
{
    const size_t elements =
        kernel_core.bf16_strips_l2 ? X_ELEMENTS_L2 : X_ELEMENTS;
    const size_t most = elements / n < X_COLS ? elements / n : X_COLS;
    const size_t blocks = (n_cols + most - 1) / most;
    const size_t strip_rows = n_rows / STRIP * STRIP;
    struct walk at = {.w = s.w,
                      .w_bytes = s.w_bytes,
                      .n_rows = strip_rows,
                      .n_cols = n_cols,
                      .rows = STRIP,
                      .block = block_rows(n_cols, blocks),
                      .cols = (n_cols / blocks + 31) / 32 * 32};
    struct strip_x x = {s.x, s.x_bytes, at.cols * 2};

    if (kernel_core.bf16_strips_l2 && blocks > 1)
        x = copy_tokens(work, x, n_cols, at.cols, n);
    if (strip_rows)
        rows_strips(&s, at, x, n);
    if (n_rows > strip_rows) {
        at.w += strip_rows * s.w_bytes;
        at.n_rows = n_rows - strip_rows;
        at.rows = at.block = 1;
        s.y += strip_rows;
        rows_strips(&s, at, x, n);
    }
}

static void gemm_small_m(struct strip s, size_t n_rows, size_t n_cols, size_t n,
                         float *work)
{
    const bool wide = kernel_core.bf16_strips_l2 && n * n_cols > X_ELEMENTS;

    if (n > kernel_core.bf16_rows_max || wide) {
        strips_small_m(s, n_rows, n_cols, n, work);
        return;
    }
    s.lines = n_cols / 32;
    s.tail = n_cols % 32;
    rows_single(s, n_rows, n);
}

#endif
