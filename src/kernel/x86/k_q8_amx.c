/* Products of quantized weights with int8 activations on AMX: tdpbsud
 * multiplies a tile of 16 tokens by 64 columns, signed bytes, by a tile of 64
 * columns by 16 rows of weights, unsigned bytes, and adds the products to a
 * tile of 16 by 16 int32, exactly.
 *
 * Order of sums: each row and token has one f32 sum, which takes groups in
 * order: first the scaled products of a group, then its bias. That is the order
 * of k_q8_avx512.c for many tokens, so both give the same bits. */
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernel/kernel.h"
#include "kernel/x86/k_amx_tiles.h"
#include "kernel/x86/k_q8_panel.h"

/* A panel of weights stays in L1 or L2 for SWEEP tokens at most. Up to
 * amx_vnni_max tokens (struct core_choices) the kernel of the level below is
 * faster, because a tile would be half empty and every code is unpacked for few
 * tokens. */
enum {
    COLS = 512, /* of a panel */
    VECTORS = PANEL_ROWS / SIDE,
    SWEEP = 512,
    MAX_GROUPS = 16 /* of a panel */
};

struct panel {
    _Alignas(64) uint32_t codes[PANEL_ROWS * COLS / 4]; /* [4 columns][row] */
    float scales[PANEL_ROWS * MAX_GROUPS];              /* [group][row] */
    float biases[PANEL_ROWS * MAX_GROUPS];
};

/* The activations' factors of a tile of tokens: [group][token]. */
struct factors {
    _Alignas(64) float scale[SIDE], sum[SIDE];
};

/* The layout of the caller's memory. */
enum { FACTORS = 2048 };
struct memory {
    struct panel panel;
    struct factors factors[FACTORS]; /* [tile of tokens][group] */
};

_Static_assert(sizeof(struct memory) <= KERNEL_WORK * sizeof(float),
               "the caller's memory");

static void (*gemm_q8_small_m)(float *y, size_t ldy, const struct affine *w,
                               const struct q8 *x, size_t n_rows, size_t n_cols,
                               size_t n_tokens, bool add, float *work);

/* ---- activations -------------------------------------------------------- */

/* Transpose the numbers p [n, n_groups], rows ld apart, of n <= SIDE tokens to
 * out[g * sizeof(struct factors)], with zeros for missing tokens. */
static void factors_fill(float *out, const float *p, size_t ld, size_t n,
                         size_t n_groups)
{
    enum { STEP = sizeof(struct factors) / sizeof(float) };

    for (size_t g0 = 0; g0 < n_groups; g0 += 16) {
        const size_t ng = n_groups - g0 < 16 ? n_groups - g0 : 16;
        const __mmask16 m = first_lanes(ng);
        __m512i v[16];

        UNROLL
        for (size_t t = 0; t < SIDE; t++)
            v[t] = t < n ? _mm512_maskz_loadu_epi32(m, p + t * ld + g0)
                         : _mm512_setzero_si512();
        transpose16(v);
        UNROLL
        for (size_t g = 0; g < 16; g++)
            if (g < ng)
                _mm512_store_si512(out + (g0 + g) * STEP, v[g]);
    }
}

/* ---- one tile of tokens by a panel -------------------------------------- */

/* Lines to prefetch while a panel is multiplied: n for each group of each
 * tile. */
struct fetch {
    const unsigned char *at;
    size_t n;
};

struct job {
    const struct panel *panel;
    size_t nr, n_groups, group;
    const int8_t *x;
    size_t ldq;
    const struct factors *factors;
    float *y;
    size_t ldy, n; /* tokens */
    bool resume;   /* sums start with y, else with 0 */
    struct fetch *fetch;
};

/* Configure the tiles for n tokens and groups of this size. tmm0 and 1: sums; 4
 * and 5: activations; 6 and 7: weights. */
static void configure(size_t n, size_t group)
{
    struct tile_config c = {.palette = 1};
    const int bytes = group < LINE ? (int)group : LINE;

    for (int i = 0; i < 2; i++) {
        tile_shape(&c, i, (int)n, LINE / 2);
        tile_shape(&c, 4 + i, (int)n, bytes / 2);
        tile_shape(&c, 6 + i, bytes / 4, LINE / 2);
    }
    TILE_CONFIGURE(c);
}

/* While a group's integer sums are scaled, the sums of the next RING groups are
 * computed and stored. A tile's way through memory to vectors is long, and this
 * hides its latency. */
enum { RING = 4 };

/* The next group whose integer sums will be computed. */
struct cursor {
    const uint32_t *w;
    const int8_t *x;
    size_t v, g;
};

/* Compute the integer sums of a group with tiles c, a and b. */
#define DOTS(c, a, b)                                             \
    do {                                                          \
        TILE_ZERO(c);                                             \
        TILE_LOAD(a, at->x, s->ldq);                              \
        TILE_LOAD(b, at->w, W_BYTES);                             \
        TILE_DOT_I8(c, a, b);                                     \
        if (group > LINE) {                                       \
            TILE_LOAD(a, at->x + LINE, s->ldq);                   \
            TILE_LOAD(b, at->w + LINE / 4 * PANEL_ROWS, W_BYTES); \
            TILE_DOT_I8(c, a, b);                                 \
        }                                                         \
        TILE_STORE(c, out, LINE);                                 \
    } while (0)

/* Compute the integer sums of the group at the cursor, and move it on. */
INLINE void group_dots(int32_t *out, struct cursor *at, const struct job *s,
                       size_t group, bool odd)
{
    enum { W_BYTES = PANEL_ROWS * sizeof(uint32_t) };

    if (SIDE * at->v >= s->nr)
        return;
    if (odd)
        DOTS(1, 5, 7);
    else
        DOTS(0, 4, 6);
    at->x += group;
    at->w += group / 4 * PANEL_ROWS;
    if (++at->g == s->n_groups) {
        at->g = 0;
        at->x = s->x;
        at->w = s->panel->codes + SIDE * ++at->v;
    }
}

/* Scale the sums of a group and add them, and its biases, to a. */
INLINE void group_add(__m512 a[SIDE], const int32_t *d, __m512 scale,
                      __m512 bias, const struct factors *f, int T)
{
    UNROLL
    for (int t = 0; t < T; t++) {
        const __m512 by = _mm512_mul_ps(scale, _mm512_set1_ps(f->scale[t]));

        a[t] = _mm512_fmadd_ps(
            _mm512_cvtepi32_ps(_mm512_load_si512(d + t * SIDE)), by, a[t]);
        a[t] = _mm512_fmadd_ps(bias, _mm512_set1_ps(f->sum[t]), a[t]);
    }
}

/* Multiply a panel by T tokens, of which s->n exist. */
INLINE void tile_run(const struct job *s, int T, size_t group)
{
    _Alignas(64) int32_t d[RING][SIDE * SIDE];
    struct cursor at = {.w = s->panel->codes, .x = s->x};
    size_t u = 0; /* groups so far */
    const int n = (int)s->n;
    const size_t ldy = s->ldy;

    for (int i = 0; i < RING; i++)
        group_dots(d[i], &at, s, group, i % 2);
    for (size_t v = 0; SIDE * v < s->nr; v++) {
        const float *scales = s->panel->scales + SIDE * v;
        const float *biases = s->panel->biases + SIDE * v;
        const __mmask16 m = first_lanes(s->nr - SIDE * v);
        __m512 a[SIDE];

        const float *from = s->y + SIDE * v;
        float *to = s->y + SIDE * v;

        if (s->resume) {
            UNROLL
            for (int t = 0; t < T; t++) {
                a[t] = _mm512_maskz_loadu_ps(m, from);
                from += t + 1 < n ? ldy : 0;
            }
        } else {
            UNROLL
            for (int t = 0; t < T; t++)
                a[t] = _mm512_setzero_ps();
        }
        for (size_t g = 0; g < s->n_groups; g++, u++) {
            int32_t *now = d[u % RING];

            group_add(a, now, _mm512_load_ps(scales + g * PANEL_ROWS),
                      _mm512_load_ps(biases + g * PANEL_ROWS), s->factors + g,
                      T);
            if (u % 2)
                group_dots(now, &at, s, group, true);
            else
                group_dots(now, &at, s, group, false);
            for (size_t i = 0; i < s->fetch->n; i++, s->fetch->at += LINE)
                _mm_prefetch((const char *)s->fetch->at, _MM_HINT_T1);
        }
        UNROLL
        for (int t = 0; t < T; t++) {
            if (t >= n)
                break;
            _mm512_mask_storeu_ps(to, m, a[t]);
            to += ldy;
        }
    }
}

#define TILE(T, group)                                  \
    static void tile_##T##_##group(const struct job *s) \
    {                                                   \
        tile_run(s, T, group);                          \
    }

TILE(8, 16)
TILE(8, 32)
TILE(8, 64)
TILE(8, 128)
TILE(16, 16)
TILE(16, 32)
TILE(16, 64)
TILE(16, 128)

/* [more than 8 tokens][group_index] */
static void (*const tiles[2][4])(const struct job *) = {
    {tile_8_32, tile_8_64, tile_8_128, tile_8_16},
    {tile_16_32, tile_16_64, tile_16_128, tile_16_16}};

/* ---- the product -------------------------------------------------------- */

/* Multiply a panel of at most PANEL_ROWS rows by n tokens. */
static void panel_run(struct job s, size_t n, size_t ld_factors)
{
    for (size_t t = 0; t < n; t += SIDE) {
        const size_t left = n - t < SIDE ? n - t : SIDE;

        if (left != s.n) {
            configure(left, s.group);
            s.n = left;
        }
        tiles[left > SIDE / 2][group_index(s.group)](&s);
        s.x += SIDE * s.ldq;
        s.factors += ld_factors;
        s.y += SIDE * s.ldy;
    }
}

/* Multiply rows [r, r + nr) by tokens [t, t + n), whose factors are in m. */
static void many_rows(float *y, size_t ldy, const struct affine *w, size_t r,
                      size_t nr, const struct q8 *x, size_t t, size_t n,
                      size_t n_cols, bool add, struct memory *m)
{
    const size_t n_groups = n_cols / w->group;
    const size_t cols =
        COLS < MAX_GROUPS * w->group ? COLS : MAX_GROUPS * w->group;
    const size_t units = n_groups * VECTORS * ((n + SIDE - 1) / SIDE);
    struct fetch fetch = {.at = w->q + (r + PANEL_ROWS) * w->q_stride,
                          .n = (PANEL_ROWS * w->q_stride / LINE + units) /
                               units};

    for (size_t k = 0; k < n_cols; k += cols) {
        const size_t nk = n_cols - k < cols ? n_cols - k : cols;
        const struct job s = {.panel = &m->panel,
                              .nr = nr,
                              .n_groups = nk / w->group,
                              .group = w->group,
                              .x = x->q + t * x->ldq + k,
                              .ldq = x->ldq,
                              .factors = m->factors + k / w->group,
                              .y = y + t * ldy + r,
                              .ldy = ldy,
                              .resume = add || k > 0,
                              .fetch = &fetch};

        panel_unpackers[code_width(w)](m->panel.codes, w, r, k, nr, nk);
        panel_numbers(m->panel.scales, m->panel.biases, w, r, k, nr,
                      s.n_groups);
        panel_run(s, n, n_groups);
    }
}

static void k_gemm_q8_affine_amx(float *y, size_t ldy, const struct affine *w,
                                 const struct q8 *x, size_t n_rows,
                                 size_t n_cols, size_t n_tokens, bool add,
                                 float *work)
{
    struct memory *m = (void *)work;
    const size_t n_groups = n_cols / w->group;

    if (n_tokens <= kernel_core.amx_vnni_max || n_groups == 0 || n_groups > FACTORS) {
        gemm_q8_small_m(y, ldy, w, x, n_rows, n_cols, n_tokens, add, work);
        return;
    }
    const size_t fit = FACTORS / n_groups * SIDE;
    const size_t sweep = fit < SWEEP ? fit : SWEEP;
    for (size_t t = 0; t < n_tokens; t += sweep) {
        const size_t n = n_tokens - t < sweep ? n_tokens - t : sweep;

        for (size_t i = 0; i < n; i += SIDE) {
            const size_t left = n - i < SIDE ? n - i : SIDE;
            struct factors *f = m->factors + i / SIDE * n_groups;

            factors_fill(f->scale, x->scale + (t + i) * x->ldg, x->ldg, left,
                         n_groups);
            factors_fill(f->sum, x->sum + (t + i) * x->ldg, x->ldg, left,
                         n_groups);
        }
        for (size_t r = 0; r < n_rows; r += PANEL_ROWS)
            many_rows(y, ldy, w, r,
                      n_rows - r < PANEL_ROWS ? n_rows - r : PANEL_ROWS, x, t,
                      n, n_cols, add, m);
    }
    TILE_RELEASE();
}

/* ---- measuring ---------------------------------------------------------- */

static double k_peak_q8_amx(size_t reps, float *sink)
{
    enum { STEPS = 76 }; /* 4 * 2 * 16 * 16 * 64 * STEPS is near 1e7 */

    tile_peak(reps * STEPS, true, sink);
    return 4 * 2.0 * SIDE * SIDE * LINE * STEPS * (double)reps;
}

void k_q8_amx_init(struct kernels *k)
{
    gemm_q8_small_m = k->gemm_q8_affine;
    k->gemm_q8_affine = k_gemm_q8_affine_amx;
    k->peak_q8 = k_peak_q8_amx;
}
