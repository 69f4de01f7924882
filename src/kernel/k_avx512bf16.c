/* Kernels for AVX512_BF16: vdpbf16ps multiplies pairs of bf16 and adds both
 * products to an f32.
 *
 * Order of sums: one accumulator a row and token goes through all columns, pair
 * by pair. It may rest in y between blocks of columns, which does not change
 * it. */
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernel/kernel.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

/* A tile is VECTORS * 16 rows of weights by TOKENS tokens: 24 accumulators (at
 * latency 6 and two a cycle, 12 would do), the weights and a broadcast pair in
 * registers; 10 loads to 24 products.
 * A panel is those rows by COLS columns, 32 KiB: L1 keeps it for SWEEP tokens,
 * whose part of y stays in L2. */
enum {
    VECTORS = 4,
    PANEL_ROWS = 16 * VECTORS,
    TOKENS = 6,
    COLS = 256,
    SWEEP = 512,
    LINE = 64,
    PANEL_LINES = PANEL_ROWS * COLS * 2 / LINE
};

INLINE __mmask16 first_lanes(size_t n)
{
    return (__mmask16)(n >= 16 ? 0xffff : (1u << n) - 1);
}

/* ---- panels of weights -------------------------------------------------- */

/* 16 x 16 transposition of 32-bit lanes: pairs, quadruples, 128-bit lanes. */
INLINE void transpose16(__m512i v[16])
{
    __m512i s[16];

    UNROLL
    for (int i = 0; i < 16; i += 2) {
        s[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        s[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    UNROLL
    for (int i = 0; i < 16; i += 4) {
        v[i] = _mm512_unpacklo_epi64(s[i], s[i + 2]);
        v[i + 1] = _mm512_unpackhi_epi64(s[i], s[i + 2]);
        v[i + 2] = _mm512_unpacklo_epi64(s[i + 1], s[i + 3]);
        v[i + 3] = _mm512_unpackhi_epi64(s[i + 1], s[i + 3]);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        UNROLL
        for (int h = 0; h < 16; h += 8) {
            s[i + h] = _mm512_shuffle_i32x4(v[i + h], v[i + h + 4], 0x88);
            s[i + h + 4] = _mm512_shuffle_i32x4(v[i + h], v[i + h + 4], 0xdd);
        }
    }
    UNROLL
    for (int i = 0; i < 8; i++) {
        v[i] = _mm512_shuffle_i32x4(s[i], s[i + 8], 0x88);
        v[i + 8] = _mm512_shuffle_i32x4(s[i], s[i + 8], 0xdd);
    }
}

/* Rows of weights, nk columns of each, to out[pair of columns][PANEL_ROWS],
 * zeros beyond nr rows (of their vectors) and nk columns. */
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

/* One panel by T tokens. */
struct tile {
    const uint32_t *panel;
    size_t nr, nk;     /* rows and columns of the panel */
    const char *x;     /* bf16, first token and column of the tile */
    size_t x_bytes;    /* from token to token */
    const char *ahead; /* the same of the next tile */
    float *y;
    size_t ldy;
    bool resume; /* accumulators start with what y holds, else with 0 */
    /* lines of the next panel to fetch for each line of x, from which on */
    const char *w_next;
    size_t w_bytes, n_fetch, fetched;
};

/* One pair of columns; alone: its second is not there. */
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
                s->resume
                    ? _mm512_maskz_loadu_ps(m[v], y + (size_t)t * ldy + 16 * v)
                    : _mm512_setzero_ps();
    }
    for (; pairs - p >= LINE / 4; p += LINE / 4) {
        /* a line of each token, and a token of y, for the next tile */
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
        for (int v = 0; v < V; v++)
            _mm512_mask_storeu_ps(y + (size_t)t * ldy + 16 * v, m[v], a[t][v]);
    }
}

#define TILE(V, T)                                   \
    static void tile_##V##_##T(const struct tile *s) \
    {                                                \
        tile_run(s, V, T);                           \
    }
#define TILES(V) \
    TILE(V, 1)   \
    TILE(V, 2)   \
    TILE(V, 3)   \
    TILE(V, 4)   \
    TILE(V, 5)   \
    TILE(V, 6)
#define TILE_ROW(V)                                                           \
    {                                                                         \
        tile_##V##_1, tile_##V##_2, tile_##V##_3, tile_##V##_4, tile_##V##_5, \
            tile_##V##_6                                                      \
    }

TILES(1)
TILES(2)
TILES(3)
TILES(4)

static void (*const tiles[VECTORS][TOKENS])(const struct tile *) = {
    TILE_ROW(1), TILE_ROW(2), TILE_ROW(3), TILE_ROW(4)};

/* ---- the product -------------------------------------------------------- */

/* One panel by n tokens. Meanwhile fetches the next panel into L2, evenly: its
 * rows lie too far apart for the hardware to see them coming. */
static void panel_run(struct tile s, size_t n)
{
    const size_t steps = s.nk * 2 / LINE;
    const size_t n_steps = (n + TOKENS - 1) / TOKENS * steps;

    s.n_fetch = n_steps ? (PANEL_LINES + n_steps - 1) / n_steps : 0;
    for (size_t t = 0; t < n; t += TOKENS) {
        size_t T = n - t < TOKENS ? n - t : TOKENS;

        s.ahead = s.x + TOKENS * s.x_bytes;
        tiles[(s.nr - 1) / 16][T - 1](&s);
        s.x += TOKENS * s.x_bytes;
        s.y += TOKENS * s.ldy;
        s.fetched += s.n_fetch * steps;
        if (s.fetched >= PANEL_LINES)
            s.n_fetch = 0;
    }
}

static void k_gemm_bf16_avx512bf16(float *y, size_t ldy, const void *w,
                                   size_t w_stride, const void *x, size_t ldx,
                                   size_t n_rows, size_t n_cols,
                                   size_t n_tokens, bool add)
{
    _Alignas(64) uint32_t panel[PANEL_ROWS * COLS / 2];
    const size_t w_bytes = w_stride * 2;

    for (size_t t = 0; n_cols == 0 && !add && t < n_tokens; t++)
        memset(y + t * ldy, 0, n_rows * sizeof *y);
    for (size_t t = 0; t < n_tokens; t += SWEEP)
        for (size_t r = 0; r < n_rows; r += PANEL_ROWS)
            for (size_t k = 0; k < n_cols; k += COLS) {
                const char *at = (const char *)w + r * w_bytes + k * 2;
                size_t next =
                    n_cols - k > COLS ? COLS * 2 : PANEL_ROWS * w_bytes - k * 2;
                struct tile s = {.panel = panel,
                                 .nr = n_rows - r < PANEL_ROWS ? n_rows - r
                                                               : PANEL_ROWS,
                                 .nk = n_cols - k < COLS ? n_cols - k : COLS,
                                 .x = (const char *)x + (t * ldx + k) * 2,
                                 .x_bytes = ldx * 2,
                                 .y = y + t * ldy + r,
                                 .ldy = ldy,
                                 .resume = add || k > 0,
                                 .w_next = at + next,
                                 .w_bytes = w_bytes};

                pack_panel(panel, at, w_bytes, s.nr, s.nk);
                panel_run(s, n_tokens - t < SWEEP ? n_tokens - t : SWEEP);
            }
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
    k->peak_bf16 = k_peak_bf16_avx512bf16;
}
