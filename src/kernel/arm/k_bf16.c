/* Products in bf16 with the instructions of FEAT_BF16: bfdot, which adds two
 * products in each of four lanes, and bfmmla, which multiplies four columns of
 * two rows by four columns of two tokens. Both flush subnormal numbers to 0.
 *
 * Order of sums. With one token, column k of a row belongs to partial sum
 * k / 8 % ONE_CHAINS. With more, columns are added in ascending order, four at
 * a time, and runs of BF16_COLS columns one after another. */
#include "kernel/arm/k_neon_common.h"
#include "kernel/blocks.h"
#include "kernel/fp8_blocks.h"

/* ---- one token ---------------------------------------------------------- */

enum { ONE_CHAINS = 4 };

/* Load the first n of eight bf16, with zeros in the other lanes. */
INLINE bfloat16x8_t load_bf16(const uint16_t *p, size_t n)
{
    return vreinterpretq_bf16_u8(n >= 8 ? vld1q_u8((const uint8_t *)p)
                                        : first_bytes(p, n * sizeof *p));
}

INLINE float dot_bf16(const uint16_t *w, const uint16_t *x, size_t n)
{
    enum { STEP = 8 * ONE_CHAINS };
    float32x4_t a[ONE_CHAINS];
    size_t k = 0;

    UNROLL
    for (int c = 0; c < ONE_CHAINS; c++)
        a[c] = vdupq_n_f32(0);
    for (; n - k >= STEP; k += STEP) {
        sweep(w + k);
        UNROLL
        for (size_t c = 0; c < ONE_CHAINS; c++)
            a[c] = vbfdotq_f32(a[c], load_bf16(w + k + 8 * c, 8),
                               load_bf16(x + k + 8 * c, 8));
    }
    for (size_t c = 0; k < n; k += 8, c++)
        a[c] =
            vbfdotq_f32(a[c], load_bf16(w + k, n - k), load_bf16(x + k, n - k));
    return sum_lanes((a[0] + a[1]) + (a[2] + a[3]));
}

static void rows_by_one(float *y, const uint16_t *w, size_t w_stride,
                        const uint16_t *x, size_t n_rows, size_t n_cols,
                        bool add)
{
    for (size_t r = 0; r < n_rows; r++) {
        const float sum = dot_bf16(w + r * w_stride, x, n_cols);

        y[r] = add ? y[r] + sum : sum;
    }
}

/* ---- more tokens -------------------------------------------------------- */

/* ROWS, TOKENS: of a tile, in pairs. COLS, MANY: what the caller's memory
 * holds of the tokens. */
enum {
    ROW_PAIRS = 2,
    TOKEN_PAIRS = 4,
    TILE_ROWS = 2 * ROW_PAIRS,
    TILE_TOKENS = 2 * TOKEN_PAIRS,
    BF16_COLS = 2048,
    BF16_TOKENS = 64
};

/* Columns [k, k + nk) of some tokens. For each pair of tokens and each eight
 * columns there are two vectors: four columns of both, and the next four. */
struct bf16_work {
    _Alignas(64) uint16_t x[BF16_TOKENS * BF16_COLS];
    _Alignas(64) uint16_t w[TILE_ROWS][BF16_COLS]; /* widened rows */
};

_Static_assert(sizeof(struct bf16_work) <= KERNEL_WORK * sizeof(float),
               "the caller's memory");

/* Put the first halves of a and b into v[0], and the second ones into v[1]. */
INLINE void pair_up(bfloat16x8_t v[2], bfloat16x8_t a, bfloat16x8_t b)
{
    const uint64x2_t x = vreinterpretq_u64_bf16(a);
    const uint64x2_t y = vreinterpretq_u64_bf16(b);

    v[0] = vreinterpretq_bf16_u64(vzip1q_u64(x, y));
    v[1] = vreinterpretq_bf16_u64(vzip2q_u64(x, y));
}

/* Return the columns as they are packed: whole vectors. */
INLINE size_t packed_cols(size_t nk)
{
    return (nk + 7) / 8 * 8;
}

/* Pack columns [0, nk) of n tokens at x. A missing token of a pair is zeros. */
static void pack_tokens(struct bf16_work *m, const uint16_t *x, size_t ldx,
                        size_t n, size_t nk)
{
    uint16_t *out = m->x;

    for (size_t t = 0; t < n; t += 2) {
        const uint16_t *a = x + t * ldx;

        for (size_t k = 0; k < nk; k += 8, out += 16) {
            bfloat16x8_t v[2];

            pair_up(v, load_bf16(a + k, nk - k),
                    load_bf16(a + ldx + k, t + 1 < n ? nk - k : 0));
            vst1q_u16(out, vreinterpretq_u16_bf16(v[0]));
            vst1q_u16(out + 8, vreinterpretq_u16_bf16(v[1]));
        }
    }
}

/* Rows of a tile: nr rows from w on. Rows that do not exist repeat the first.
 */
struct bf16_rows {
    const uint16_t *w[TILE_ROWS];
    size_t nr;
    const float *scale; /* of each row, or NULL */
};

/* Multiply eight columns from k on, of which n exist, by P pairs of tokens. */
INLINE void tile_step(float32x4_t a[ROW_PAIRS][TOKEN_PAIRS],
                      const struct bf16_rows *rows, const uint16_t *x,
                      size_t ld, size_t k, size_t n, int P)
{
    bfloat16x8_t w[ROW_PAIRS][2];

    UNROLL
    for (size_t r = 0; r < ROW_PAIRS; r++)
        pair_up(w[r], load_bf16(rows->w[2 * r] + k, n),
                load_bf16(rows->w[2 * r + 1] + k, n));
    UNROLL
    for (size_t h = 0; h < 2; h++) {
        UNROLL
        for (size_t t = 0; t < (size_t)P; t++) {
            const bfloat16x8_t xt = load_bf16(x + t * ld + 2 * k + 8 * h, 8);

            UNROLL
            for (size_t r = 0; r < ROW_PAIRS; r++)
                a[r][t] = vbfmmlaq_f32(a[r][t], w[r][h], xt);
        }
    }
}

/* Store the sums of four rows of a token. */
INLINE void store_token(float *y, float32x4_t v, const struct bf16_rows *rows,
                        bool add)
{
    float some[TILE_ROWS];

    vst1q_f32(some, v);
    for (size_t r = 0; r < rows->nr; r++) {
        const float sum = rows->scale ? some[r] * rows->scale[r] : some[r];

        y[r] = add ? y[r] + sum : sum;
    }
}

/* Multiply a tile by P pairs of packed tokens, of which n tokens exist. */
INLINE void tile(float *y, size_t ldy, const struct bf16_rows *rows,
                 const uint16_t *x, size_t nk, size_t n, bool add, int P)
{
    const size_t ld = 2 * packed_cols(nk);
    float32x4_t a[ROW_PAIRS][TOKEN_PAIRS];
    size_t k = 0;

    UNROLL
    for (int r = 0; r < ROW_PAIRS; r++) {
        UNROLL
        for (int t = 0; t < P; t++)
            a[r][t] = vdupq_n_f32(0);
    }
    for (; nk - k >= 8; k += 8)
        tile_step(a, rows, x, ld, k, 8, P);
    if (k < nk)
        tile_step(a, rows, x, ld, k, nk - k, P);
    UNROLL
    for (size_t t = 0; t < (size_t)P; t++) {
        store_token(y + 2 * t * ldy, vuzp1q_f32(a[0][t], a[1][t]), rows, add);
        if (2 * t + 1 < n)
            store_token(y + (2 * t + 1) * ldy, vuzp2q_f32(a[0][t], a[1][t]),
                        rows, add);
    }
}

/* Multiply a tile by n packed tokens. */
static void tile_tokens(float *y, size_t ldy, const struct bf16_rows *rows,
                        const struct bf16_work *m, size_t nk, size_t n,
                        bool add)
{
    const size_t ld = 2 * packed_cols(nk);

    for (size_t t = 0; t < n; t += TILE_TOKENS) {
        const size_t left = n - t < TILE_TOKENS ? n - t : TILE_TOKENS;

        WITH_TOKENS((left + 1) / 2, tile(y + t * ldy, ldy, rows,
                                         m->x + t / 2 * ld, nk, left, add, T));
    }
}

static void k_gemm_bf16_bf16(float *y, size_t ldy, const void *w,
                             size_t w_stride, const void *x, size_t ldx,
                             size_t n_rows, size_t n_cols, size_t n_tokens,
                             bool add, float *work)
{
    struct bf16_work *m = (struct bf16_work *)(void *)work;
    const uint16_t *wr = w, *xt = x;
    size_t n, nk;

    if (n_tokens == 1) {
        rows_by_one(y, wr, w_stride, xt, n_rows, n_cols, add);
        return;
    }
    for (size_t t = 0; t < n_tokens; t += n) {
        size_t k = 0;

        n = n_tokens - t < BF16_TOKENS ? n_tokens - t : BF16_TOKENS;
        do {
            nk = n_cols - k < BF16_COLS ? n_cols - k : BF16_COLS;
            pack_tokens(m, xt + t * ldx + k, ldx, n, nk);
            for (size_t r = 0; r < n_rows; r += TILE_ROWS) {
                struct bf16_rows rows = {
                    .nr = n_rows - r < TILE_ROWS ? n_rows - r : TILE_ROWS};

                for (size_t i = 0; i < TILE_ROWS; i++)
                    rows.w[i] = wr + (r + (i < rows.nr ? i : 0)) * w_stride + k;
                tile_tokens(y + t * ldy + r, ldy, &rows, m, nk, n,
                            add || k > 0);
            }
            k += nk;
        } while (k < n_cols);
    }
}

/* ---- FP8 ---------------------------------------------------------------- */

/* Widen columns [k, k + n) of row r, without scales, or with those of MXFP8;
 * exactly, unless the result is subnormal. */
static void widen_row(uint16_t *out, const struct fp8 *w, size_t r, size_t k,
                      size_t n)
{
    const char *q = (const char *)w->q + r * w->q_stride + k;

    for (size_t i = 0; i < n; i += 4) {
        float32x4_t v = load4(q + i, n - i, DT_F8_E4M3);

        if (w->mx)
            v = vmulq_n_f32(
                v, 2 * e8m0_half(w->mx[r * w->mx_stride + (k + i) / MX_GROUP]));
        vst1_u16(out + i, vshrn_n_u32(vreinterpretq_u32_f32(v), 16));
    }
}

static void k_gemm_bf16_fp8_bf16(float *y, size_t ldy, const struct fp8 *w,
                                 const void *x, size_t ldx, size_t n_rows,
                                 size_t n_cols, size_t n_tokens, bool add,
                                 float *work)
{
    struct bf16_work *m = (struct bf16_work *)(void *)work;
    size_t n, nk;

    for (size_t t = 0; t < n_tokens; t += n) {
        size_t k = 0;

        n = n_tokens - t < BF16_TOKENS ? n_tokens - t : BF16_TOKENS;
        do {
            nk = fp8_depth(w, k, n_cols, BF16_COLS);
            pack_tokens(m, (const uint16_t *)x + t * ldx + k, ldx, n, nk);
            for (size_t r = 0; r < n_rows; r += TILE_ROWS) {
                float scale[TILE_ROWS];
                struct bf16_rows rows = {
                    .nr = n_rows - r < TILE_ROWS ? n_rows - r : TILE_ROWS,
                    .scale = fp8_scaled(w) ? scale : NULL};

                if (rows.scale)
                    fp8_row_scales(scale, w, r, rows.nr, k);
                for (size_t i = 0; i < TILE_ROWS; i++)
                    rows.w[i] = m->w[i < rows.nr ? i : 0];
                for (size_t i = 0; i < rows.nr; i++)
                    widen_row(m->w[i], w, r + i, k, nk);
                tile_tokens(y + t * ldy + r, ldy, &rows, m, nk, n,
                            add || k > 0);
            }
            k += nk;
        } while (k < n_cols);
    }
}

/* ---- measuring ---------------------------------------------------------- */

static double k_peak_bf16_bf16(size_t reps, float *sink)
{
    enum { CHAINS = 16, STEPS = 10000000 / (32 * CHAINS) };
    const bfloat16x8_t w = vreinterpretq_bf16_u16(vdupq_n_u16(0x3f01));
    const bfloat16x8_t x = vreinterpretq_bf16_u16(vdupq_n_u16(0x3e81));
    float32x4_t a[CHAINS];

    UNROLL
    for (int i = 0; i < CHAINS; i++)
        a[i] = vdupq_n_f32((float)i);
    for (size_t s = 0; s < reps * STEPS; s++) {
        UNROLL
        for (int i = 0; i < CHAINS; i++)
            a[i] = vbfmmlaq_f32(a[i], w, x);
    }
    for (int i = 1; i < CHAINS; i++)
        a[0] += a[i];
    *sink = sum_lanes(a[0]);
    return 32.0 * CHAINS * STEPS * (double)reps;
}

void k_bf16_init(struct kernels *k)
{
    k->gemm_bf16 = k_gemm_bf16_bf16;
    k->gemm_bf16_fp8 = k_gemm_bf16_fp8_bf16;
    k->peak_bf16 = k_peak_bf16_bf16;
}
