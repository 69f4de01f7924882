/* Products in bf16 for AVX512_BF16: vdpbf16ps multiplies pairs of bf16 and adds
 * both products to an f32.
 *
 * Order of sums. For many tokens, each row and token has one accumulator that
 * takes all columns pair by pair; between blocks of columns its value is stored
 * in y, exactly. For few tokens, each of 16 lanes takes every 16th pair. The
 * sum of the lanes is added to y after each block of columns; the width of a
 * block depends on the numbers of columns and tokens. */
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernel/kernel.h"
#include "kernel/x86/k_fp8_bf16.h"
#include "kernel/x86/k_zmm.h"

/* A tile is VECTORS * 16 rows of weights by TOKENS tokens. Registers hold its
 * 24 accumulators, the weights and a broadcast pair of x. (12 accumulators
 * would cover the latency of 6 cycles at two products a cycle.) It takes 10
 * loads for 24 products. A panel is the rows of a tile by COLS columns, 32 KiB.
 * It stays in L1 for SWEEP tokens, and their part of y stays in L2. */
enum {
    VECTORS = 4,
    PANEL_ROWS = 16 * VECTORS,
    TOKENS = 6,
    COLS = 256,
    SWEEP = 512,
    LINE = 64
};

/* ---- panels of weights -------------------------------------------------- */

/* Pack nr rows of weights, nk columns of each, to out[pair of columns]
 * [PANEL_ROWS], with zeros for missing columns and up to a multiple of 16
 * rows. */
static void pack_panel(uint32_t *out, const char *w, size_t w_bytes, size_t nr,
                       size_t nk)
{
    for (size_t r0 = 0; r0 < nr; r0 += 16)
        for (size_t k = 0; k < nk; k += 32) {
            const __mmask32 m =
                nk - k >= 32 ? 0xffffffff : (1u << (nk - k)) - 1;
            const char *from = w + r0 * w_bytes + k * 2;
            uint32_t *to = out + k / 2 * PANEL_ROWS + r0;
            __m512i v[16];

            UNROLL
            for (size_t r = 0; r < 16; r++)
                v[r] = r0 + r < nr
                           ? _mm512_maskz_loadu_epi16(m, from + r * w_bytes)
                           : _mm512_setzero_si512();
            transpose16(v);
            UNROLL
            for (size_t p = 0; p < 16; p++)
                _mm512_store_si512(to + p * PANEL_ROWS, v[p]);
        }
}

/* ---- tiles -------------------------------------------------------------- */

/* Multiply one panel by T tokens. */
struct tile {
    const uint32_t *panel;
    size_t nr, nk;     /* rows and columns of the panel */
    const char *x;     /* bf16, first token and column of the tile */
    size_t x_bytes;    /* from token to token */
    const char *ahead; /* x of the next tile, to prefetch */
    float *y;
    size_t ldy;
    const float *scales; /* [nr] of the rows, or NULL */
    bool resume;         /* the results are added to y; without scales, the
                            accumulators start with y */
    const char *w_next; /* next panel, to prefetch */
    size_t w_bytes;     /* from row to row of w_next */
    size_t n_lines;     /* lines of w_next */
    size_t n_fetch;     /* lines of w_next to fetch for each line of x */
    size_t fetched;     /* lines of w_next that were fetched before */
};

/* Add the products of one pair of columns. alone: only its first column
 * exists. */
INLINE void tile_step(__m512 a[TOKENS][VECTORS], const struct tile *s,
                      const uint32_t *panel, const char *x, int V, int T,
                      bool alone)
{
    __m512bh w[VECTORS];

    UNROLL
    for (int v = 0; v < V; v++)
        w[v] = (__m512bh)_mm512_load_si512(panel + 16 * v);
    UNROLL
    for (int t = 0; t < T; t++) {
        uint32_t pair = 0;
        __m512bh xv;

        memcpy(&pair, x + (size_t)t * s->x_bytes, alone ? 2 : 4);
        xv = (__m512bh)_mm512_set1_epi32((int)pair);
        UNROLL
        for (int v = 0; v < V; v++)
            a[t][v] = _mm512_dpbf16_ps(a[t][v], w[v], xv);
    }
}

INLINE void tile_run(const struct tile *s, int V, int T)
{
    const size_t pairs = s->nk / 2, ldy = s->ldy;
    const uint32_t *panel = s->panel;
    const char *x = s->x, *ahead = s->ahead;
    float *const y = s->y;
    __m512 a[TOKENS][VECTORS];
    __mmask16 m[VECTORS];
    size_t p = 0, next = TOKENS, line = s->fetched;

    UNROLL
    for (int v = 0; v < V; v++)
        m[v] = first_lanes(s->nr - 16 * (size_t)v);
    UNROLL
    for (int t = 0; t < T; t++) {
        UNROLL
        for (int v = 0; v < V; v++)
            a[t][v] =
                s->resume && !s->scales
                    ? _mm512_maskz_loadu_ps(m[v], y + (size_t)t * ldy + 16 * v)
                    : _mm512_setzero_ps();
    }
    for (; pairs - p >= LINE / 4; p += LINE / 4) {
        /* prefetch for the next tile: a line of each token, and one token of
         * y */
        UNROLL
        for (int t = 0; t < T; t++)
            _mm_prefetch(ahead + (size_t)t * s->x_bytes, _MM_HINT_T0);
        UNROLL
        for (int v = 0; v < V; v++)
            _mm_prefetch(y + next * ldy + 16 * v, _MM_HINT_T0);
        next += next < 2 * TOKENS - 1;
        for (size_t i = 0; i < s->n_fetch; i++, line++)
            _mm_prefetch(s->w_next + line % PANEL_ROWS * s->w_bytes +
                             line / PANEL_ROWS * LINE,
                         _MM_HINT_T1);
        ahead += LINE;
        for (int i = 0; i < LINE / 4; i += 2) {
            tile_step(a, s, panel, x, V, T, false);
            tile_step(a, s, panel + PANEL_ROWS, x + 4, V, T, false);
            panel += 2 * PANEL_ROWS;
            x += 8;
        }
    }
    for (; p < pairs; p++) {
        tile_step(a, s, panel, x, V, T, false);
        panel += PANEL_ROWS;
        x += 4;
    }
    if (s->nk & 1)
        tile_step(a, s, panel, x, V, T, true);
    UNROLL
    for (int t = 0; t < T; t++) {
        UNROLL
        for (int v = 0; v < V; v++) {
            float *const to = y + (size_t)t * ldy + 16 * v;

            if (s->scales)
                a[t][v] = _mm512_fmadd_ps(
                    a[t][v], _mm512_maskz_loadu_ps(m[v], s->scales + 16 * v),
                    s->resume ? _mm512_maskz_loadu_ps(m[v], to)
                              : _mm512_setzero_ps());
            _mm512_mask_storeu_ps(to, m[v], a[t][v]);
        }
    }
}

#define TILE(V, T)                                   \
    static void tile_##V##_##T(const struct tile *s) \
    {                                                \
        tile_run(s, V, T);                           \
    }

EACH_6(TILE, 1)
EACH_6(TILE, 2)
EACH_6(TILE, 3)
EACH_6(TILE, 4)

static void (*const tiles[VECTORS][TOKENS])(const struct tile *) = {
    ROW_6(tile_1), ROW_6(tile_2), ROW_6(tile_3), ROW_6(tile_4)};

/* ---- few tokens --------------------------------------------------------- */

/* Weights are used in their own layout: the lanes of an accumulator are
 * columns, and they are added up at the end of a row. Memory bandwidth is the
 * limit, or close to it. Measurements on Zen 5 show:
 *
 * - Prefetches in the order of addresses, spread evenly over the work, keep
 *   memory busy. In the order in which a tile of four rows uses the lines, the
 *   bandwidth is a fifth less.
 * - The CPU drops prefetches when about a hundred lines are outstanding. So
 *   lines are prefetched twice, the second time at half the distance.
 * - Loads that keep both load ports busy delay the lines that arrive. A loop
 *   with seven loads for eight products reached less than half of the memory
 *   bandwidth.
 *
 * Therefore up to bf16_rows_max tokens (struct core_choices; 5 where that was
 * measured) sweep single rows in one pass. More tokens use
 * tiles of STRIP rows by up to TOKENS tokens, with half the loads. A strip
 * stays in L1 for all passes; its columns are few enough to leave room in L1
 * for the same columns of all tokens. BLOCK rows use these columns before the
 * next columns follow.
 *
 * With weights in memory, panels take 1.5 to 2.5 times as long for 12 tokens,
 * 1.1 to 1.3 times for 24 and 32, the same time for 36, and less from 42 on. */
enum {
    STRIP = 4,
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
    NEAR_WIDE = 4096     /* and second prefetch */
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

INLINE void strip_step(__m512 a[STRIP][TOKENS], const struct strip *s,
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
    const size_t part = lines / P * P * LINE;
    const char *w = s->w, *x = s->x, *far = s->far, *near = s->near;
    const char *far_end = far + part;
    __m512 a[STRIP][TOKENS];

    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int t = 0; t < T; t++)
            a[r][t] = _mm512_setzero_ps();
    }
    for (size_t i = lines; i > 0; i--) {
        if (P > 1 && far == far_end) {
            far += s->w_bytes - part;
            near += s->w_bytes - part;
            far_end += s->w_bytes;
        }
        UNROLL
        for (size_t p = 0; p < P; p++) {
            if (fetch.twice)
                _mm_prefetch(near + LINE * p, _MM_HINT_T0);
            if (fetch.to_l2)
                sweep_by(far + LINE * p, 0, true);
            else
                _mm_prefetch(far + LINE * p, _MM_HINT_T0);
        }
        far += LINE * P;
        near += LINE * P;
        strip_step(a, s, w, x, 32, R, T);
        w += LINE;
        x += LINE;
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

typedef void strip_fn(const struct strip *s);

/* [to_l2][twice] */
static strip_fn *const row_fns[2][2][TOKENS] = {
    {ROW_6(row_once), ROW_6(row_twice)},
    {ROW_6(row_once_l2), ROW_6(row_twice_l2)}};
/* [rows that are fetched / 2] */
static strip_fn *const strip_fns[3][TOKENS] = {ROW_6(strip_1), ROW_6(strip_2),
                                               ROW_6(strip_4)};

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

/* Multiply all rows by n <= TOKENS tokens, row by row. */
static void rows_single(struct strip s, size_t n_rows, size_t n)
{
    const bool wide = n * s.lines * (LINE / 2) > X_SMALL;

    for (size_t r = 0; r < n_rows; r++) {
        s.far = s.w + (wide ? FAR_WIDE : kernel_core.sweep_ahead);
        s.near = s.w + NEAR_WIDE;
        row_fns[kernel_core.sweep_l2][wide][n - 1](&s);
        s.w += s.w_bytes;
        s.y++;
    }
}

/* Multiply one strip of R rows, STRIP or 1, by n tokens in passes. Only the
 * pass itself reads *pass, member by member. Copying the struct, or adding
 * neighbouring members, would be a vector load, which waits until all earlier
 * stores, also to y, have left the CPU. */
INLINE void strip_passes(struct strip *pass, const struct strip *s,
                         const char *far, const char *near, const char *x,
                         float *y, size_t R, size_t n)
{
    const size_t passes = (n + TOKENS - 1) / TOKENS;
    size_t t = 0, fetched = 0;

    for (size_t i = passes; i > 0; i--) {
        const size_t T = (n - t) / i;
        const size_t share = (R - fetched + i - 1) / i;
        const size_t P = share > 2 ? 4 : share > 1 ? 2 : 1;
        const bool done = fetched >= R;

        pass->far = done ? pass->w : far + fetched * s->w_bytes;
        pass->near = done ? pass->w : near + fetched * s->w_bytes;
        pass->x = x + t * s->x_bytes;
        pass->y = y + t * s->ldy;
        if (R == STRIP)
            strip_fns[P / 2][T - 1](pass);
        else
            row_fns[0][true][T - 1](pass);
        fetched += done ? 0 : P;
        t += T;
    }
}

/* Multiply all rows by n tokens, strip by strip. The number of rows is a multiple of
 * at.rows. */
static void rows_strips(const struct strip *s, struct walk at, size_t n)
{
    const size_t ahead = n > FAR_TOKENS ? FAR_MORE : FAR_SMALL_M;
    struct walk far = walk_ahead(at, ahead), near = walk_ahead(at, ahead / 2);
    struct strip pass = *s;

    do {
        const size_t nk =
            at.n_cols - at.k < at.cols ? at.n_cols - at.k : at.cols;

        pass.w = walk_at(&at);
        pass.lines = nk / 32;
        pass.tail = nk % 32;
        pass.add = s->add || at.k > 0;
        strip_passes(&pass, s, walk_at(&far), walk_at(&near), s->x + at.k * 2,
                     s->y + at.block_at + at.row_at, at.rows, n);
        walk_next(&far);
        walk_next(&near);
    } while (walk_next(&at));
}

static void gemm_small_m(struct strip s, size_t n_rows, size_t n_cols, size_t n)
{
    const size_t most = X_ELEMENTS / n < X_COLS ? X_ELEMENTS / n : X_COLS;
    const size_t blocks = (n_cols + most - 1) / most;
    const size_t strip_rows = n_rows / STRIP * STRIP;
    struct walk at = {.w = s.w,
                      .w_bytes = s.w_bytes,
                      .n_rows = strip_rows,
                      .n_cols = n_cols,
                      .rows = STRIP,
                      .block = BLOCK,
                      .cols = (n_cols / blocks + 31) / 32 * 32};

    if (n <= kernel_core.bf16_rows_max) {
        s.lines = n_cols / 32;
        s.tail = n_cols % 32;
        rows_single(s, n_rows, n);
        return;
    }
    if (strip_rows)
        rows_strips(&s, at, n);
    if (n_rows > strip_rows) {
        at.w += strip_rows * s.w_bytes;
        at.n_rows = n_rows - strip_rows;
        at.rows = 1;
        s.y += strip_rows;
        rows_strips(&s, at, n);
    }
}

/* ---- the product -------------------------------------------------------- */

/* Multiply one panel by n tokens. It also prefetches the next panel into L2,
 * evenly spread, because the rows of a panel are too far apart for the hardware
 * prefetcher. */
static void panel_run(struct tile s, size_t n)
{
    const size_t steps = s.nk * 2 / LINE;
    const size_t n_steps = (n + TOKENS - 1) / TOKENS * steps;

    s.n_fetch = n_steps ? (s.n_lines + n_steps - 1) / n_steps : 0;
    for (size_t t = 0; t < n; t += TOKENS) {
        size_t T = n - t < TOKENS ? n - t : TOKENS;

        s.ahead = s.x + TOKENS * s.x_bytes;
        tiles[(s.nr - 1) / 16][T - 1](&s);
        s.x += TOKENS * s.x_bytes;
        s.y += TOKENS * s.ldy;
        s.fetched += s.n_fetch * steps;
        if (s.fetched >= s.n_lines)
            s.n_fetch = 0;
    }
}

/* A product by panels. The weights are bf16, unless fp8 is set. */
struct product {
    float *y;
    size_t ldy;
    const char *w;
    size_t w_bytes;
    const struct fp8 *fp8;
    const char *x;
    size_t x_bytes;
    size_t n_rows, n_cols, n_tokens;
    bool add;
    uint32_t *panel; /* [COLS / 2][PANEL_ROWS] */
};

/* Do the work of pack_panel for rows [r, r + nr) and columns [k, k + nk) of FP8
 * weights. They are widened to bf16 rows in L1 first. */
static void pack_fp8(uint32_t *panel, const struct fp8 *w, size_t r, size_t k,
                     size_t nr, size_t nk)
{
    enum { ROW = COLS * 2 + LINE };
    _Alignas(64) char rows[16 * ROW];

    for (size_t r0 = 0; r0 < nr; r0 += 16) {
        const size_t n = nr - r0 < 16 ? nr - r0 : 16;

        for (size_t i = 0; i < n; i++)
            fp8_widen(rows + i * ROW, w, r + r0 + i, k, nk);
        pack_panel(panel + r0, rows, ROW, n, nk);
    }
}

/* Multiply one panel, rows from r and columns [k, k + nk), by tokens [t, t + n).
 * next: bytes from its first weight to the next panel. */
static void one_panel(const struct product *p, size_t r, size_t k, size_t nk,
                      size_t t, size_t n, size_t next)
{
    const size_t bytes = p->fp8 ? 1 : 2;
    const char *at = p->w + r * p->w_bytes + k * bytes;
    float scales[PANEL_ROWS];
    struct tile s = {.panel = p->panel,
                     .nr = p->n_rows - r < PANEL_ROWS ? p->n_rows - r
                                                      : PANEL_ROWS,
                     .nk = nk,
                     .x = p->x + t * p->x_bytes + k * 2,
                     .x_bytes = p->x_bytes,
                     .y = p->y + t * p->ldy + r,
                     .ldy = p->ldy,
                     .scales = fp8_scaled(p->fp8) ? scales : NULL,
                     .resume = p->add || k > 0,
                     .w_next = at + next,
                     .w_bytes = p->w_bytes,
                     .n_lines = PANEL_ROWS * (p->fp8 ? nk : COLS * 2) / LINE};

    if (fp8_scaled(p->fp8))
        fp8_row_scales(scales, p->fp8, r, s.nr, k);
    if (p->fp8) {
        pack_fp8(p->panel, p->fp8, r, k, s.nr, nk);
    } else {
        pack_panel(p->panel, at, p->w_bytes, s.nr, nk);
    }
    panel_run(s, n);
}

/* FP8 weights of a panel share their scales. */
static void by_panels(const struct product *p)
{
    const size_t bytes = p->fp8 ? 1 : 2;

    for (size_t t = 0; t < p->n_tokens; t += SWEEP)
        for (size_t r = 0; r < p->n_rows; r += PANEL_ROWS)
            for (size_t k = 0, nk; k < p->n_cols; k += nk) {
                const size_t n = p->n_tokens - t, left = p->n_cols - k;

                nk = p->fp8        ? fp8_depth(p->fp8, k, p->n_cols, COLS)
                     : left < COLS ? left
                                   : COLS;
                one_panel(p, r, k, nk, t, n < SWEEP ? n : SWEEP,
                          left > nk ? nk * bytes
                                    : PANEL_ROWS * p->w_bytes - k * bytes);
            }
}

/* The product of no columns. */
static void set_zero(const struct product *p)
{
    for (size_t t = 0; p->n_cols == 0 && !p->add && t < p->n_tokens; t++)
        memset(p->y + t * p->ldy, 0, p->n_rows * sizeof *p->y);
}

static void k_gemm_bf16_avx512bf16(float *y, size_t ldy, const void *w,
                                   size_t w_stride, const void *x, size_t ldx,
                                   size_t n_rows, size_t n_cols,
                                   size_t n_tokens, bool add, float *work)
{
    const struct product p = {.y = y,
                              .ldy = ldy,
                              .w = w,
                              .w_bytes = w_stride * 2,
                              .x = x,
                              .x_bytes = ldx * 2,
                              .n_rows = n_rows,
                              .n_cols = n_cols,
                              .n_tokens = n_tokens,
                              .add = add,
                              .panel = (uint32_t *)(void *)work};

    set_zero(&p);
    if (n_tokens <= kernel_core.bf16_strips_max && n_rows && n_cols &&
        n_tokens) {
        struct strip s = {.w = w,
                          .w_bytes = p.w_bytes,
                          .x = x,
                          .x_bytes = p.x_bytes,
                          .y = y,
                          .ldy = ldy,
                          .add = add};

        gemm_small_m(s, n_rows, n_cols, n_tokens);
        return;
    }
    by_panels(&p);
}

static void k_gemm_bf16_fp8_avx512bf16(float *y, size_t ldy,
                                       const struct fp8 *w, const void *x,
                                       size_t ldx, size_t n_rows, size_t n_cols,
                                       size_t n_tokens, bool add, float *work)
{
    const struct product p = {.y = y,
                              .ldy = ldy,
                              .w = (const char *)w->q,
                              .w_bytes = w->q_stride,
                              .fp8 = w,
                              .x = x,
                              .x_bytes = ldx * 2,
                              .n_rows = n_rows,
                              .n_cols = n_cols,
                              .n_tokens = n_tokens,
                              .add = add,
                              .panel = (uint32_t *)(void *)work};

    set_zero(&p);
    by_panels(&p);
}

/* ---- measuring ---------------------------------------------------------- */

static double k_peak_bf16_avx512bf16(size_t reps, float *sink)
{
    enum { CHAINS = 24, STEPS = 6510 }; /* 64 * CHAINS * STEPS is near 1e7 */
    const __m512bh w = (__m512bh)_mm512_set1_epi32(0x3f803f00);
    const __m512bh x = (__m512bh)_mm512_set1_epi32(0x3c00bc80);
    __m512 a[CHAINS];

    _Pragma("GCC unroll 24") for (int i = 0; i < CHAINS; i++) a[i] =
        _mm512_set1_ps((float)i);
    for (size_t s = 0; s < reps * STEPS; s++) {
        _Pragma("GCC unroll 24") for (int i = 0; i < CHAINS; i++) a[i] =
            _mm512_dpbf16_ps(a[i], w, x);
    }
    _Pragma("GCC unroll 24") for (int i = 1; i < CHAINS; i++) a[0] =
        _mm512_add_ps(a[0], a[i]);
    *sink = _mm512_reduce_add_ps(a[0]);
    return 64.0 * CHAINS * STEPS * (double)reps;
}

void k_avx512bf16_init(struct kernels *k)
{
    k->gemm_bf16 = k_gemm_bf16_avx512bf16;
    k->gemm_bf16_fp8 = k_gemm_bf16_fp8_avx512bf16;
    k->peak_bf16 = k_peak_bf16_avx512bf16;
}
