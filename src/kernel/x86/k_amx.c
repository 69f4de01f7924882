/* Products in bf16 for AMX: tdpbf16ps multiplies a tile of 16 rows by 32
 * columns with one of 32 by 16, both bf16, and adds the products to a tile of
 * 16 by 16 f32.
 *
 * Order of sums: each row and token has one accumulator that takes all columns,
 * 32 at a time; of these, the even columns and the odd columns are summed
 * first. Between blocks of columns its value is stored in y, exactly. */
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernel/blocks.h"
#include "kernel/kernel.h"
#include "kernel/x86/k_amx_blocks.h"
#include "kernel/x86/k_amx_pack.h"
#include "kernel/x86/k_fp8_bf16.h"
#include "kernel/x86/k_q8_avx512.h"
#include "kernel/x86/k_zmm.h"

/* A step multiplies two tiles of rows by two tiles of columns, in slices of
 * DEPTH: it has four tiles of sums, and needs four loads for four products. The
 * left operand is row-major. The right operand is packed into panels: WIDE
 * columns, in tiles of pairs.
 *
 * Tokens are the left operand and stream from L2 while a panel of weights stays
 * in L1. Their columns, and the sums of BLOCK rows of weights, stay in L2. Few
 * tokens have their own kernel in k_amx_small_m.c. */
enum {
    WIDE = 2 * SIDE, /* rows and columns of a step */
    COLS = 512,      /* depth of a panel of weights */
    BLOCK = 256,
    SWEEP = 512, /* tokens */
    PANEL_BYTES = WIDE * COLS * 2
};

_Static_assert(BLOCK % WIDE == 0 && SWEEP % WIDE == 0, "whole panels");
_Static_assert(PANEL_BYTES <= KERNEL_WORK * sizeof(float),
               "the caller's memory");

/* ---- tiles -------------------------------------------------------------- */

/* Rows and columns of a step, at most WIDE each. */
struct shape {
    size_t rows, columns;
};

/* How many of n rows or columns tile i has. */
static int part(size_t n, int i)
{
    const int left = (int)n - i * SIDE;

    return left < 0 ? 0 : left < SIDE ? left : SIDE;
}

/* Configure the tiles, unless they already have this shape. tmm0 to 3: sums
 * [tile of rows][tile of columns]; 4 and 5: left operand; 6 and 7: right. */
static void configure(struct shape *now, size_t rows, size_t columns)
{
    struct tile_config c = {.palette = 1};

    if (now->rows == rows && now->columns == columns)
        return;
    *now = (struct shape){rows, columns};
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2; j++)
            tile_shape(&c, 2 * i + j, part(rows, i), 2 * part(columns, j));
        tile_shape(&c, 4 + i, part(rows, i), DEPTH);
        tile_shape(&c, 6 + i, SIDE, 2 * part(columns, i));
    }
    TILE_CONFIGURE(c);
}

/* Lines to prefetch, row by row. */
struct fetch {
    const char *at, *end; /* the rest of the current row */
    size_t bytes;         /* bytes of a row, in whole lines */
    size_t stride;        /* bytes from row to row */
    size_t n;             /* lines to fetch for each DEPTH of a step */
};

/* Plan prefetches of `rows` rows of `bytes` bytes from `at` on, spread over
 * `steps` steps of one DEPTH each. */
static struct fetch fetch_rows(const char *at, size_t bytes, size_t stride,
                               size_t rows, size_t steps)
{
    const size_t lines = (bytes + LINE - 1) / LINE;

    return (struct fetch){.at = at,
                          .end = at + lines * LINE,
                          .bytes = lines * LINE,
                          .stride = stride,
                          .n = steps ? (rows * lines + steps - 1) / steps : 0};
}

struct step {
    const char *panel; /* [depth][2][SIDE pairs][SIDE columns] */
    size_t depth;
    const char *left;
    size_t left_bytes; /* from row to row */
    float *sums;
    size_t ld;
    bool resume; /* start with the old sums, else with 0 */
    struct fetch *fetch;
};

#define SUMS(i, j) \
    (s->sums + (i)*SIDE * s->ld + (j)*SIDE), s->ld * sizeof(float)
#define SUMS_LOAD(t, i, j)  TILE_LOAD_(t, SUMS(i, j))
#define SUMS_STORE(t, i, j) TILE_STORE_(t, SUMS(i, j))
#define TILE_LOAD_(...)     TILE_LOAD(__VA_ARGS__)
#define TILE_STORE_(...)    TILE_STORE(__VA_ARGS__)

/* Run a step. The parameters are constants, because an instruction on a tile
 * without rows or columns faults. */
INLINE void step_run(const struct step *s, bool rows2, bool columns2)
{
    const char *right = s->panel, *a = s->left, *b = a + SIDE * s->left_bytes;
    const size_t left_bytes = s->left_bytes, n = s->fetch->n;
    const size_t gap = s->fetch->stride - s->fetch->bytes;
    const char *at = s->fetch->at, *end = s->fetch->end;

    if (s->resume) {
        SUMS_LOAD(0, 0, 0);
        if (columns2)
            SUMS_LOAD(1, 0, 1);
        if (rows2)
            SUMS_LOAD(2, 1, 0);
        if (rows2 && columns2)
            SUMS_LOAD(3, 1, 1);
    } else {
        TILE_ZERO(0);
        if (columns2)
            TILE_ZERO(1);
        if (rows2)
            TILE_ZERO(2);
        if (rows2 && columns2)
            TILE_ZERO(3);
    }
    for (size_t d = s->depth; d > 0; d--) {
        TILE_LOAD(6, right, LINE);
        TILE_STREAM(4, a, left_bytes);
        TILE_DOT(0, 4, 6);
        if (columns2) {
            TILE_LOAD(7, right + TILE_BYTES, LINE);
            TILE_DOT(1, 4, 7);
        }
        if (rows2) {
            TILE_STREAM(5, b, left_bytes);
            TILE_DOT(2, 5, 6);
            if (columns2)
                TILE_DOT(3, 5, 7);
        }
        for (size_t i = 0; i < n; i++, at += LINE)
            _mm_prefetch(at, _MM_HINT_T1);
        if (at >= end) {
            at = end + gap;
            end = at + s->fetch->bytes;
        }
        right += 2 * TILE_BYTES;
        a += LINE;
        b += LINE;
    }
    s->fetch->at = at;
    s->fetch->end = end;
    SUMS_STORE(0, 0, 0);
    if (columns2)
        SUMS_STORE(1, 0, 1);
    if (rows2)
        SUMS_STORE(2, 1, 0);
    if (rows2 && columns2)
        SUMS_STORE(3, 1, 1);
}

#define STEP(rows, columns)                                   \
    static void step_##rows##_##columns(const struct step *s) \
    {                                                         \
        step_run(s, rows == 2, columns == 2);                 \
    }

STEP(1, 1)
STEP(1, 2)
STEP(2, 1)
STEP(2, 2)

/* Run a step of any depth. The panel is padded with zeros. The left operand's
 * columns after its last whole tile come from a padded copy: the memory after
 * them is not ours, and NaN times 0 is not 0. */
static void step_any(struct step *s, const struct shape *shape, size_t depth)
{
    static void (*const of_shape[2][2])(const struct step *) = {
        {step_1_1, step_1_2}, {step_2_1, step_2_2}};
    void (*const run)(const struct step *) =
        of_shape[shape->rows > SIDE][shape->columns > SIDE];
    const size_t tail = depth % DEPTH;
    _Alignas(64) char copy[WIDE * LINE];

    s->depth = depth / DEPTH;
    if (s->depth)
        run(s);
    if (!tail)
        return;
    for (size_t r = 0; r < shape->rows; r++)
        _mm512_store_si512(
            copy + r * LINE,
            load_columns(s->left + r * s->left_bytes + s->depth * LINE, tail));
    s->panel += s->depth * 2 * TILE_BYTES;
    s->left = copy;
    s->left_bytes = LINE;
    s->resume |= s->depth > 0;
    s->depth = 1;
    run(s);
}

/* ---- panels ------------------------------------------------------------- */

/* Pack n <= WIDE rows of nk columns, padded with zeros to whole tiles. */
static void pack_panel(char *out, const char *p, size_t stride, size_t n,
                       size_t nk)
{
    for (size_t k = 0; k < nk; k += DEPTH)
        for (size_t r = 0; r < n; r += SIDE)
            pack_some(out + (k / DEPTH * 2 + r / SIDE) * TILE_BYTES,
                      p + r * stride + k * 2, stride, n - r, nk - k);
}

/* ---- quantized weights -------------------------------------------------- */

/* Widen nk columns of a row to bf16. The first column begins a group. */
INLINE void widen_row(char *out, struct row w, size_t group, size_t nk,
                      int bits)
{
    _Alignas(64) float s[16], b[16];

    for (size_t k0 = 0; k0 < nk; k0 += 16 * group) {
        const size_t end = nk - k0 < 16 * group ? nk : k0 + 16 * group;
        const __mmask16 m = first_lanes((end - k0) / group);

        const __m512 scales = load_scales(&w, m);

        _mm512_store_ps(s, scales);
        _mm512_store_ps(b, load_biases(&w, m, scales));
        next_numbers(&w);
        for (size_t k = k0; k < end; k += 64, w.q += 8 * width_bits(bits)) {
            const size_t g[] = {(k - k0) / group, (k - k0 + 16) / group,
                                (k - k0 + 32) / group, (k - k0 + 48) / group};
            const bool half = end - k < 64;
            const __m512i c = unpack(w.q, bits, half);

            _mm512_store_si512(out + 2 * k,
                               (__m512i)_mm512_cvtne2ps_pbh(
                                   widen_codes(_mm512_extracti32x4_epi32(c, 1),
                                               s[g[1]], b[g[1]], bits),
                                   widen_codes(_mm512_castsi512_si128(c),
                                               s[g[0]], b[g[0]], bits)));
            if (half)
                break;
            _mm512_store_si512(out + 2 * k + LINE,
                               (__m512i)_mm512_cvtne2ps_pbh(
                                   widen_codes(_mm512_extracti32x4_epi32(c, 3),
                                               s[g[3]], b[g[3]], bits),
                                   widen_codes(_mm512_extracti32x4_epi32(c, 2),
                                               s[g[2]], b[g[2]], bits)));
        }
    }
}

#define WIDEN(bits)                                                            \
    static void widen_##bits(char *out, struct row w, size_t group, size_t nk) \
    {                                                                          \
        widen_row(out, w, group, nk, bits);                                    \
    }

EACH_WIDTH(WIDEN)

/* Widen columns [k, k + nk) of row r. k is a multiple of COLS and so of every
 * group. */
static void widen_affine(char *out, const struct affine *w, size_t r, size_t k,
                         size_t nk)
{
    static void (*const of_width[])(char *, struct row, size_t, size_t) = {
        [E2M1] = widen_E2M1,     [2] = widen_2, [3] = widen_3,
        [4] = widen_4,           [5] = widen_5, [6] = widen_6,
        [SIGNED] = widen_SIGNED, [8] = widen_8};

    of_width[code_width(w)](out, row_at(w, r, k), w->group, nk);
}

/* ---- products ----------------------------------------------------------- */

/* The weights are bf16, unless affine, blocks or fp8 is set. */
struct product {
    float *y;
    size_t ldy;
    const char *w; /* NULL for affine and FP8 weights */
    size_t w_bytes;
    const struct affine *affine;
    const struct block_rows *blocks;
    const struct fp8 *fp8;
    const char *x;
    size_t x_bytes;
    size_t n_rows, n_cols, n_tokens;
    bool add;
    char *panel; /* [PANEL_BYTES] */
};

/* Do the work of pack_panel for rows [r, r + n) and columns [k, k + nk) of
 * quantized weights. They are widened to bf16 rows in L1 first. */
static void pack_widened(const struct product *p, size_t r, size_t k, size_t n,
                         size_t nk)
{
    enum { ROW = COLS * 2 + LINE };
    const struct block_rows *b = p->blocks;
    _Alignas(64) char rows[SIDE * ROW];

    for (size_t r0 = 0; r0 < n; r0 += SIDE) {
        const size_t nr = at_most(n - r0, SIDE);

        for (size_t i = 0; i < nr; i++) {
            const size_t at = r + r0 + i;

            if (b)
                b->widen(rows + i * ROW,
                         p->w + at * p->w_bytes + k / b->block * b->bytes, nk);
            else if (p->fp8)
                fp8_widen(rows + i * ROW, p->fp8, at, k, nk);
            else
                widen_affine(rows + i * ROW, p->affine, at, k, nk);
        }
        pack_panel(p->panel + r0 / SIDE * TILE_BYTES, rows, ROW, nr, nk);
    }
}

/* Plan prefetches of the bytes of WIDE rows that packing columns [k, k + nk)
 * reads. */
static struct fetch fetch_panel(const struct product *p, size_t r, size_t k,
                                size_t nk, size_t steps)
{
    const struct affine *a = p->affine;
    const size_t block = p->blocks ? p->blocks->block : 1;
    const size_t bytes = p->blocks ? p->blocks->bytes : 2;

    if (a)
        return fetch_rows((const char *)a->q + r * a->q_stride +
                              k * (size_t)a->bits / 8,
                          nk * (size_t)a->bits / 8, a->q_stride, WIDE, steps);
    if (p->fp8)
        return fetch_rows((const char *)p->fp8->q + r * p->fp8->q_stride + k,
                          nk, p->fp8->q_stride, WIDE, steps);
    return fetch_rows(p->w + r * p->w_bytes + k / block * bytes,
                      nk / block * bytes, p->w_bytes, WIDE, steps);
}

/* Columns of the panels that begin at column k. FP8 weights of a panel share
 * their scales. */
static size_t panel_depth(const struct product *p, size_t k)
{
    return p->fp8 ? fp8_depth(p->fp8, k, p->n_cols, COLS)
                  : at_most(p->n_cols - k, COLS);
}

/* Sums of a step, before they are scaled. */
struct step_sums {
    _Alignas(64) float v[WIDE][WIDE]; /* [token][row] */
};

/* Where the scaled sums of a step go. */
struct scaled_part {
    const struct step_sums *from;
    float *y;
    size_t n_tokens;
};

/* Set y, or with resume add to it, the sums of nr rows times their scales. */
static void put_scaled(const struct scaled_part *s, size_t ldy,
                       const float *scales, size_t nr, bool resume)
{
    for (size_t r = 0; r < nr; r += SIDE) {
        const __mmask16 in = first_lanes(nr - r);
        const __m512 scale = _mm512_maskz_loadu_ps(in, scales + r);

        for (size_t t = 0; t < s->n_tokens; t++) {
            float *to = s->y + t * ldy + r;
            const __m512 old =
                resume ? _mm512_maskz_loadu_ps(in, to) : _mm512_setzero_ps();

            _mm512_mask_storeu_ps(
                to, in,
                _mm512_fmadd_ps(_mm512_load_ps(s->from->v[t] + r), scale, old));
        }
    }
}

/* Multiply one panel of weights by tokens [t0, t0 + n). */
static void panel_run(const struct product *p, struct shape *shape, size_t r,
                      size_t k, size_t t0, size_t n)
{
    char *const panel = p->panel;
    const size_t nr = at_most(p->n_rows - r, WIDE);
    const size_t nk = panel_depth(p, k);
    struct fetch fetch =
        fetch_panel(p, r + WIDE, k, nk, (n + WIDE - 1) / WIDE * (nk / DEPTH));
    struct step_sums held[2];
    float scales[WIDE];
    struct scaled_part last = {.n_tokens = 0};
    const bool scaled = fp8_scaled(p->fp8);

    if (scaled)
        fp8_row_scales(scales, p->fp8, r, nr, k);
    if (p->affine || p->blocks || p->fp8)
        pack_widened(p, r, k, nr, nk);
    else
        pack_panel(panel, p->w + r * p->w_bytes + k * 2, p->w_bytes, nr, nk);
    for (size_t t = t0; t < t0 + n; t += WIDE) {
        const size_t n_tokens = at_most(t0 + n - t, WIDE);
        const bool resume = p->add || k > 0;
        float *const y = p->y + t * p->ldy + r;
        struct step_sums *const now = &held[last.from == held];
        struct step s = {.panel = panel,
                         .left = p->x + t * p->x_bytes + k * 2,
                         .left_bytes = p->x_bytes,
                         .sums = scaled ? now->v[0] : y,
                         .ld = scaled ? WIDE : p->ldy,
                         .resume = resume && !scaled,
                         .fetch = &fetch};

        configure(shape, n_tokens, nr);
        step_any(&s, shape, nk);
        if (!scaled)
            continue;
        /* the tiles are still at work: scale what the last step stored */
        put_scaled(&last, p->ldy, scales, nr, resume);
        last = (struct scaled_part){now, y, n_tokens};
    }
    put_scaled(&last, p->ldy, scales, nr, p->add || k > 0);
}

static void many_tokens(const struct product *p)
{
    struct shape shape = {0, 0};

    for (size_t t = 0; t < p->n_tokens; t += SWEEP)
        for (size_t b = 0; b < p->n_rows; b += BLOCK)
            for (size_t k = 0; k < p->n_cols; k += panel_depth(p, k))
                for (size_t r = b; r < at_most(p->n_rows, b + BLOCK); r += WIDE)
                    panel_run(p, &shape, r, k, t,
                              at_most(p->n_tokens - t, SWEEP));
}

static void multiply(const struct product *p)
{
    for (size_t t = 0; p->n_cols == 0 && !p->add && t < p->n_tokens; t++)
        memset(p->y + t * p->ldy, 0, p->n_rows * sizeof *p->y);
    if (!p->n_tokens)
        return;
    many_tokens(p);
    TILE_RELEASE();
}

/* A product of the parameters that all kernels have, and of the weights, which
 * follow. */
#define PRODUCT(...)                          \
    (&(struct product){.y = y,                \
                       .ldy = ldy,            \
                       .x = x,                \
                       .x_bytes = ldx * 2,    \
                       .n_rows = n_rows,      \
                       .n_cols = n_cols,      \
                       .n_tokens = n_tokens,  \
                       .add = add,            \
                       .panel = (char *)work, \
                       __VA_ARGS__})

/* The vector kernel of the level below. */
static void (*gemm_bf16_rows)(float *y, size_t ldy, const void *w,
                              size_t w_stride, const void *x, size_t ldx,
                              size_t n_rows, size_t n_cols, size_t n_tokens,
                              bool add, float *work);

static void k_gemm_bf16_amx(float *y, size_t ldy, const void *w,
                            size_t w_stride, const void *x, size_t ldx,
                            size_t n_rows, size_t n_cols, size_t n_tokens,
                            bool add, float *work)
{
    if (n_tokens <= kernel_core.amx_rows_max) {
        gemm_bf16_rows(y, ldy, w, w_stride, x, ldx, n_rows, n_cols, n_tokens,
                       add, work);
        return;
    }
    if (n_tokens <= kernel_core.amx_few_max && n_cols > 0) {
        k_gemm_bf16_small_m_amx(y, ldy, w, w_stride, x, ldx, n_rows, n_cols,
                                n_tokens, add, work);
        return;
    }
    multiply(PRODUCT(.w = w, .w_bytes = w_stride * 2));
}

static void k_gemm_bf16_affine_amx(float *y, size_t ldy, const struct affine *w,
                                   const void *x, size_t ldx, size_t n_rows,
                                   size_t n_cols, size_t n_tokens, bool add,
                                   float *work)
{
    multiply(PRODUCT(.affine = w));
}

static void k_gemm_bf16_fp8_amx(float *y, size_t ldy, const struct fp8 *w,
                                const void *x, size_t ldx, size_t n_rows,
                                size_t n_cols, size_t n_tokens, bool add,
                                float *work)
{
    multiply(PRODUCT(.fp8 = w));
}

#define BLOCKS(name, TYPE)                                                   \
    static void k_gemm_bf16_##name##_amx(                                    \
        float *y, size_t ldy, const void *w, size_t w_stride, const void *x, \
        size_t ldx, size_t n_rows, size_t n_cols, size_t n_tokens, bool add, \
        float *work)                                                         \
    {                                                                        \
        multiply(PRODUCT(.w = w, .w_bytes = w_stride,                        \
                         .blocks = &block_rows[TYPE - DT_BLOCKS]));          \
    }

EACH_BLOCK_TYPE(BLOCKS)

/* ---- measuring ---------------------------------------------------------- */

static double k_peak_bf16_amx(size_t reps, float *sink)
{
    enum { STEPS = 153 }; /* 4 * 2 * 16 * 16 * 32 * STEPS is near 1e7 */

    tile_peak(reps * STEPS, false, sink);
    return 4 * 2.0 * SIDE * SIDE * DEPTH * STEPS * (double)reps;
}

void k_amx_init(struct kernels *k)
{
    gemm_bf16_rows = k->gemm_bf16;
    k->gemm_bf16 = k_gemm_bf16_amx;
    k->gemm_bf16_affine = k_gemm_bf16_affine_amx;
    k->gemm_bf16_fp8 = k_gemm_bf16_fp8_amx;
#define ENTER(name, TYPE) \
    k->gemm_bf16_blocks[TYPE - DT_BLOCKS] = k_gemm_bf16_##name##_amx;
    EACH_BLOCK_TYPE(ENTER)
    k->peak_bf16 = k_peak_bf16_amx;
}
