/* Products in bf16 for AVX512_BF16: vdpbf16ps multiplies pairs of bf16 and adds
 * both products to an f32. This file has those with many tokens, and measures
 * the unit; k_bf16_strips.h has those with few.
 *
 * Order of sums. Each row and token has one accumulator that takes all columns
 * pair by pair; between blocks of columns its value is stored in y, exactly. */
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernel/kernel.h"
#include "kernel/x86/k_bf16_strips.h"
#include "kernel/x86/k_fp8_bf16.h"
#include "kernel/x86/k_zmm.h"

/* A tile is VECTORS * 16 rows of weights by TOKENS tokens. Registers hold its
 * 24 accumulators, the weights and a broadcast pair of x. (12 accumulators
 * would cover the latency of 6 cycles at two products a cycle.) It takes 10
 * loads for 24 products. A panel is the rows of a tile by bf16_panel_cols
 * columns at most, or FP8_COLS. It stays in L1 or L2 for SWEEP tokens, and their
 * part of y stays in L2. */
enum {
    VECTORS = 4,
    PANEL_ROWS = 16 * VECTORS,
    TOKENS = 6,
    FP8_COLS = 256,
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
    uint32_t *panel; /* [CORE_BF16_PANEL_LIMIT / 2][PANEL_ROWS] */
};

/* Do the work of pack_panel for rows [r, r + nr) and columns [k, k + nk) of FP8
 * weights. They are widened to bf16 rows in L1 first. */
static void pack_fp8(uint32_t *panel, const struct fp8 *w, size_t r, size_t k,
                     size_t nr, size_t nk)
{
    enum { ROW = FP8_COLS * 2 + LINE };
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
                     .n_lines = PANEL_ROWS * nk * bytes / LINE};

    if (fp8_scaled(p->fp8))
        fp8_row_scales(scales, p->fp8, r, s.nr, k);
    if (p->fp8) {
        pack_fp8(p->panel, p->fp8, r, k, s.nr, nk);
    } else {
        pack_panel(p->panel, at, p->w_bytes, s.nr, nk);
    }
    panel_run(s, n);
}

/* Columns of a panel of bf16 weights: for the fewest panels, of about equal
 * depth, in whole lines. */
static size_t panel_cols(size_t n_cols)
{
    const size_t line = LINE / 2, most = kernel_core.bf16_panel_cols;
    const size_t n_lines = (n_cols + line - 1) / line;
    const size_t n_panels = (n_cols + most - 1) / most;

    return n_panels ? (n_lines + n_panels - 1) / n_panels * line : line;
}

/* FP8 weights of a panel share their scales. */
static void by_panels(const struct product *p)
{
    const size_t bytes = p->fp8 ? 1 : 2, depth = panel_cols(p->n_cols);

    for (size_t t = 0; t < p->n_tokens; t += SWEEP)
        for (size_t r = 0; r < p->n_rows; r += PANEL_ROWS)
            for (size_t k = 0, nk; k < p->n_cols; k += nk) {
                const size_t n = p->n_tokens - t, left = p->n_cols - k;

                nk = p->fp8 ? fp8_depth(p->fp8, k, p->n_cols, FP8_COLS)
                     : left < depth ? left
                                    : depth;
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

        gemm_small_m(s, n_rows, n_cols, n_tokens, work);
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
