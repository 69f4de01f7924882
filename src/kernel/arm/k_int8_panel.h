/* Products of panels of int8 codes and int8 activations, for affine weights and
 * for GGUF's blocks. Each file that includes this header first defines
 *
 *   KERNEL(name)  the level's name of a kernel, such as k_##name##_dotprod
 *   DOTPROD       1 if the level has sdot
 *   I8MM          1 if the level has smmla
 *
 * Codes are signed. A row is code * scale - min, with a scale and a min for
 * each group of columns. Where unsigned codes of 8 bits became signed, the
 * caller asks for 128 times the sum of each group's activations to be added to
 * the integer sum, which stays exact.
 *
 * A panel has PANEL_ROWS rows. With smmla, a vector has eight columns of two
 * rows, and a product four sums: of two rows and two tokens. Otherwise a vector
 * has four columns of four rows, and is multiplied by four columns of one
 * token. Integer sums of a group become floats:
 *
 *   sum += (integer sum * scale of the row) * scale of the token
 *   sum -= min of the row * sum of the token's activations */
#ifndef KERNEL_ARM_K_INT8_PANEL_H
#define KERNEL_ARM_K_INT8_PANEL_H

#if !defined KERNEL || !defined DOTPROD || !defined I8MM
#error "define KERNEL(name), DOTPROD and I8MM first"
#endif

#include "kernel/arm/k_neon_common.h"

/* Sum of four products of bytes in each lane, added to s. Without sdot, a word
 * holds two products: 2 * 128 * 127 = 32512. */
INLINE int32x4_t add_fours(int32x4_t s, int8x16_t w, int8x16_t x)
{
#if DOTPROD
    return vdotq_s32(s, w, x);
#else
    const int16x8_t lo = vmull_s8(vget_low_s8(w), vget_low_s8(x));
    const int16x8_t hi = vmull_high_s8(w, x);

    return vpadalq_s16(s, vpaddq_s16(lo, hi));
#endif
}

/* The same, in any order of lanes. */
INLINE int32x4_t add_any(int32x4_t s, int8x16_t w, int8x16_t x)
{
#if DOTPROD
    return vdotq_s32(s, w, x);
#else
    const int16x8_t lo = vmull_s8(vget_low_s8(w), vget_low_s8(x));

    return vpadalq_s16(s, vmlal_high_s8(lo, w, x));
#endif
}

/* Return the sums of the lanes of four vectors. */
INLINE int32x4_t reduce4(const int32x4_t s[4])
{
    return vpaddq_s32(vpaddq_s32(s[0], s[1]), vpaddq_s32(s[2], s[3]));
}

/* ROWS, COLS: of a panel. TOKENS: of a tile. MANY: whose numbers the caller's
 * memory holds. LEAST: the smallest group. */
enum {
    PANEL_ROWS = 8,
    PANEL_COLS = 1024,
    LEAST_GROUP = 16,
    PANEL_GROUPS = PANEL_COLS / LEAST_GROUP,
    TILE_TOKENS = 4,
    MANY_TOKENS = 128
};

/* Rows as they are expanded. */
struct panel_rows {
    _Alignas(64) int8_t q[PANEL_ROWS][PANEL_COLS];
    float scale[PANEL_ROWS][PANEL_GROUPS], min[PANEL_ROWS][PANEL_GROUPS];
};

struct panel {
    _Alignas(64) int8_t q[PANEL_ROWS * PANEL_COLS];
    _Alignas(64) float scale[PANEL_GROUPS][PANEL_ROWS];
    _Alignas(64) float min[PANEL_GROUPS][PANEL_ROWS];
};

/* Numbers of tokens, for each group of the weights. */
struct panel_tokens {
    _Alignas(64) float scale[PANEL_GROUPS][MANY_TOKENS];
    _Alignas(64) float sum[PANEL_GROUPS][MANY_TOKENS];
    /* to add to each integer sum */
    _Alignas(64) int32_t plus[PANEL_GROUPS][MANY_TOKENS];
};

/* In the caller's work memory. */
struct panel_work {
    struct panel_rows rows;
    struct panel panel;
    struct panel_tokens tokens;
};

_Static_assert(sizeof(struct panel_work) <= KERNEL_WORK * sizeof(float),
               "the caller's memory");

/* ---- packing ------------------------------------------------------------ */

/* Transpose 32-bit lanes: out[c * PANEL_ROWS + r] = row r, lane c, for four
 * rows. */
INLINE void store_turned(float *out, const float *rows, size_t ld)
{
    const float32x4_t a = vld1q_f32(rows), b = vld1q_f32(rows + ld);
    const float32x4_t c = vld1q_f32(rows + 2 * ld),
                      d = vld1q_f32(rows + 3 * ld);
    const float32x4_t ac0 = vzip1q_f32(a, c), ac1 = vzip2q_f32(a, c);
    const float32x4_t bd0 = vzip1q_f32(b, d), bd1 = vzip2q_f32(b, d);

    vst1q_f32(out, vzip1q_f32(ac0, bd0));
    vst1q_f32(out + PANEL_ROWS, vzip2q_f32(ac0, bd0));
    vst1q_f32(out + 2 * PANEL_ROWS, vzip1q_f32(ac1, bd1));
    vst1q_f32(out + 3 * PANEL_ROWS, vzip2q_f32(ac1, bd1));
}

/* Copy codes into the order of the panel. n is a multiple of 16. */
static void panel_codes(struct panel *p, const struct panel_rows *rows,
                        size_t n)
{
    for (size_t k = 0; k < n; k += 16) {
        int8_t *out = p->q + k * PANEL_ROWS;
#if I8MM
        UNROLL
        for (size_t r = 0; r < PANEL_ROWS; r += 2) {
            const int64x2_t a = vreinterpretq_s64_s8(load16(rows->q[r] + k));
            const int64x2_t b =
                vreinterpretq_s64_s8(load16(rows->q[r + 1] + k));

            vst1q_s8(out + 8 * r, vreinterpretq_s8_s64(vzip1q_s64(a, b)));
            vst1q_s8(out + 8 * r + 64, vreinterpretq_s8_s64(vzip2q_s64(a, b)));
        }
#else
        UNROLL
        for (size_t r = 0; r < PANEL_ROWS; r += 4)
            store_turned((float *)(void *)out + r,
                         (const float *)(const void *)(rows->q[r] + k),
                         PANEL_COLS / 4);
#endif
    }
}

static void panel_numbers(float (*out)[PANEL_ROWS], float (*rows)[PANEL_GROUPS],
                          size_t n)
{
    for (size_t g = 0; g < n; g += 4) {
        store_turned(out[g], rows[0] + g, PANEL_GROUPS);
        store_turned(out[g] + 4, rows[4] + g, PANEL_GROUPS);
    }
}

/* Fill a panel with expanded rows, of which n_rows exist. */
static void panel_fill(struct panel *p, struct panel_rows *rows, size_t n_rows,
                       size_t n_cols, size_t groups, bool min)
{
    for (size_t r = n_rows; r < PANEL_ROWS; r++) {
        memset(rows->q[r], 0, n_cols);
        memset(rows->scale[r], 0, groups * sizeof(float));
        memset(rows->min[r], 0, groups * sizeof(float));
    }
    panel_codes(p, rows, n_cols);
    panel_numbers(p->scale, rows->scale, groups);
    if (min)
        panel_numbers(p->min, rows->min, groups);
}

/* What a product does beside codes times scales. */
struct panel_kind {
    size_t group; /* of the weights: a multiple of LEAST_GROUP */
    bool min;     /* there are mins */
    bool plus;    /* 128 times each sum of activations is added */
};

/* Return the sum of n activations, a multiple of 16. */
INLINE int32_t sum_q(const int8_t *q, size_t n)
{
    int32x4_t s = vdupq_n_s32(0);

    for (size_t i = 0; i < n; i += 16)
        s = vpadalq_s16(s, vpaddlq_s8(load16(q + i)));
    return vaddvq_s32(s);
}

/* Copy the numbers of n <= MANY_TOKENS tokens from t on, for n_cols columns
 * from k on. Groups of the weights may be halves of groups of the activations.
 */
static void tokens_fill(struct panel_tokens *to, const struct q8 *x, size_t t,
                        size_t n, size_t k, size_t n_cols,
                        const struct panel_kind *kind)
{
    const size_t groups = n_cols / kind->group;
    const bool halves = kind->group < x->group;

    for (size_t i = 0; i < n; i++)
        for (size_t g = 0; g < groups; g++) {
            const size_t from =
                (t + i) * x->ldg + (k + g * kind->group) / x->group;
            const int8_t *q = x->q + (t + i) * x->ldq + k + g * kind->group;

            to->scale[g][i] = x->scale[from];
            if (kind->min)
                to->sum[g][i] =
                    halves ? x->scale[from] * (float)sum_q(q, kind->group)
                           : x->sum[from];
            if (kind->plus)
                to->plus[g][i] = 128 * sum_q(q, kind->group);
        }
    /* a tile may read the numbers of missing tokens */
    for (size_t i = n; i % TILE_TOKENS; i++)
        for (size_t g = 0; g < groups; g++)
            to->scale[g][i] = to->sum[g][i] = (float)(to->plus[g][i] = 0);
}

/* ---- tiles -------------------------------------------------------------- */

/* A tile: the panel, and T tokens from token i on in the numbers of tokens. */
struct tile {
    const struct panel *p;
    const struct panel_tokens *tokens;
    const int8_t *x;
    size_t ldx, i, groups;
};

/* Store sums of four rows from y on, of which n exist, or add them. */
INLINE void store_rows(float *y, float32x4_t v, size_t n, bool add)
{
    float some[4];

    if (n >= 4) {
        vst1q_f32(y, add ? vld1q_f32(y) + v : v);
        return;
    }
    vst1q_f32(some, v);
    for (size_t r = 0; r < n; r++)
        y[r] = add ? y[r] + some[r] : some[r];
}

#if I8MM

/* Pairs of rows, and pairs of tokens of a tile. */
enum { ROW_PAIRS = PANEL_ROWS / 2, TOKEN_PAIRS = TILE_TOKENS / 2 };

/* Two numbers of tokens, twice. */
INLINE float32x4_t two_twice(const float *p)
{
    return vreinterpretq_f32_f64(
        vld1q_dup_f64((const double *)(const void *)p));
}

/* Two numbers of rows, each twice. */
INLINE float32x4_t each_twice(const float *p)
{
    const float32x4_t v = vcombine_f32(vld1_f32(p), vdup_n_f32(0));

    return vzip1q_f32(v, v);
}

INLINE void tile_codes(int32x4_t d[ROW_PAIRS][TOKEN_PAIRS], const int8_t *w,
                       const struct tile *a, size_t k, int P)
{
    int8x16_t x[TOKEN_PAIRS][2];

    UNROLL
    for (size_t t = 0; t < (size_t)P; t++) {
        const int64x2_t u =
            vreinterpretq_s64_s8(load16(a->x + 2 * t * a->ldx + k));
        const int64x2_t v =
            vreinterpretq_s64_s8(load16(a->x + (2 * t + 1) * a->ldx + k));

        x[t][0] = vreinterpretq_s8_s64(vzip1q_s64(u, v));
        x[t][1] = vreinterpretq_s8_s64(vzip2q_s64(u, v));
    }
    UNROLL
    for (size_t h = 0; h < 2; h++) {
        UNROLL
        for (size_t r = 0; r < ROW_PAIRS; r++) {
            const int8x16_t wr = load16(w + 64 * h + 16 * r);

            UNROLL
            for (size_t t = 0; t < (size_t)P; t++)
                d[r][t] = vmmlaq_s32(d[r][t], wr, x[t][h]);
        }
    }
}

/* Multiply the panel by P pairs of tokens. */
INLINE void tile_sums(float32x4_t f[ROW_PAIRS][TOKEN_PAIRS],
                      const struct tile *a, const struct panel_kind *kind,
                      int P)
{
    const int8_t *w = a->p->q;
    size_t k = 0;

    for (size_t g = 0; g < a->groups; g++) {
        int32x4_t d[ROW_PAIRS][TOKEN_PAIRS];

        UNROLL
        for (size_t t = 0; t < (size_t)P; t++) {
            const int32x4_t start =
                kind->plus ? vreinterpretq_s32_f32(
                                 two_twice((const float *)(const void *)&a
                                               ->tokens->plus[g][a->i + 2 * t]))
                           : vdupq_n_s32(0);

            UNROLL
            for (size_t r = 0; r < ROW_PAIRS; r++)
                d[r][t] = start;
        }
        for (size_t end = k + kind->group; k < end; k += 16, w += 128)
            tile_codes(d, w, a, k, P);
        UNROLL
        for (size_t r = 0; r < ROW_PAIRS; r++) {
            const float32x4_t s = each_twice(&a->p->scale[g][2 * r]);
            const float32x4_t m =
                kind->min ? each_twice(&a->p->min[g][2 * r]) : s;

            UNROLL
            for (size_t t = 0; t < (size_t)P; t++) {
                const size_t i = a->i + 2 * t;

                f[r][t] = vfmaq_f32(f[r][t], vcvtq_f32_s32(d[r][t]) * s,
                                    two_twice(&a->tokens->scale[g][i]));
                if (kind->min)
                    f[r][t] =
                        vfmsq_f32(f[r][t], m, two_twice(&a->tokens->sum[g][i]));
            }
        }
    }
}

/* Multiply the panel by n tokens, at most 2 P, and store n_rows results of
 * each. */
INLINE void tile(float *y, size_t ldy, const struct tile *a,
                 const struct panel_kind *kind, size_t n_rows, size_t n,
                 bool add, int P)
{
    float32x4_t f[ROW_PAIRS][TOKEN_PAIRS];

    UNROLL
    for (size_t r = 0; r < ROW_PAIRS; r++) {
        UNROLL
        for (size_t t = 0; t < (size_t)P; t++)
            f[r][t] = vdupq_n_f32(0);
    }
    tile_sums(f, a, kind, P);
    for (size_t r = 0; r < ROW_PAIRS && 2 * r < n_rows; r += 2) {
        UNROLL
        for (size_t t = 0; t < (size_t)P; t++) {
            float *to = y + 2 * t * ldy + 2 * r;

            if (2 * t < n)
                store_rows(to, vuzp1q_f32(f[r][t], f[r + 1][t]), n_rows - 2 * r,
                           add);
            if (2 * t + 1 < n)
                store_rows(to + ldy, vuzp2q_f32(f[r][t], f[r + 1][t]),
                           n_rows - 2 * r, add);
        }
    }
}

/* Multiply the panel by n <= TILE_TOKENS tokens. The last of an odd number is
 * multiplied by itself. */
INLINE void tile_tokens(float *y, size_t ldy, const struct tile *a,
                        const struct panel_kind *kind, size_t n_rows, size_t n,
                        bool add)
{
    struct tile one = *a;

    if (n > 2 && n % 2 == 0) {
        tile(y, ldy, a, kind, n_rows, n, add, 2);
        return;
    }
    if (n >= 2)
        tile(y, ldy, a, kind, n_rows, 2, add, 1);
    if (n % 2 == 0)
        return;
    one.x += (n - 1) * a->ldx;
    one.i += n - 1;
    one.ldx = 0;
    tile(y + (n - 1) * ldy, ldy, &one, kind, n_rows, 1, add, 1);
}

#else

enum { ROW_FOURS = PANEL_ROWS / 4 };

/* Add four columns of four rows times columns 4 j to 4 j + 3 of x. */
INLINE int32x4_t add_lane(int32x4_t d, int8x16_t w, int8x16_t x, int j)
{
#if DOTPROD
    return j == 0 ? vdotq_laneq_s32(d, w, x, 0)
           : j == 1 ? vdotq_laneq_s32(d, w, x, 1)
           : j == 2 ? vdotq_laneq_s32(d, w, x, 2)
                    : vdotq_laneq_s32(d, w, x, 3);
#else
    const int32x4_t v = vreinterpretq_s32_s8(x);

    return add_fours(d, w,
                     vreinterpretq_s8_s32(j == 0   ? vdupq_laneq_s32(v, 0)
                                          : j == 1 ? vdupq_laneq_s32(v, 1)
                                          : j == 2 ? vdupq_laneq_s32(v, 2)
                                                   : vdupq_laneq_s32(v, 3)));
#endif
}

INLINE void tile_codes(int32x4_t d[ROW_FOURS][TILE_TOKENS], const int8_t *w,
                       const struct tile *a, size_t k, int T)
{
    int8x16_t x[TILE_TOKENS];

    UNROLL
    for (size_t t = 0; t < (size_t)T; t++)
        x[t] = load16(a->x + t * a->ldx + k);
    UNROLL
    for (int j = 0; j < 4; j++) {
        UNROLL
        for (int r = 0; r < ROW_FOURS; r++) {
            const int8x16_t wr = load16(w + 32 * j + 16 * r);

            UNROLL
            for (int t = 0; t < T; t++)
                d[r][t] = add_lane(d[r][t], wr, x[t], j);
        }
    }
}

/* Multiply the panel by T tokens. */
INLINE void tile_sums(float32x4_t f[ROW_FOURS][TILE_TOKENS],
                      const struct tile *a, const struct panel_kind *kind,
                      int T)
{
    const int8_t *w = a->p->q;
    size_t k = 0;

    for (size_t g = 0; g < a->groups; g++) {
        int32x4_t d[ROW_FOURS][TILE_TOKENS];

        UNROLL
        for (size_t t = 0; t < (size_t)T; t++)
            d[0][t] = d[1][t] =
                vdupq_n_s32(kind->plus ? a->tokens->plus[g][a->i + t] : 0);
        for (size_t end = k + kind->group; k < end; k += 16, w += 128)
            tile_codes(d, w, a, k, T);
        UNROLL
        for (size_t r = 0; r < ROW_FOURS; r++) {
            const float32x4_t s = vld1q_f32(&a->p->scale[g][4 * r]);
            const float32x4_t m =
                kind->min ? vld1q_f32(&a->p->min[g][4 * r]) : s;

            UNROLL
            for (size_t t = 0; t < (size_t)T; t++) {
                const size_t i = a->i + t;

                f[r][t] = vfmaq_n_f32(f[r][t], vcvtq_f32_s32(d[r][t]) * s,
                                      a->tokens->scale[g][i]);
                if (kind->min)
                    f[r][t] = vfmsq_n_f32(f[r][t], m, a->tokens->sum[g][i]);
            }
        }
    }
}

/* Multiply the panel by T tokens, and store n_rows results of each. */
INLINE void tile(float *y, size_t ldy, const struct tile *a,
                 const struct panel_kind *kind, size_t n_rows, bool add, int T)
{
    float32x4_t f[ROW_FOURS][TILE_TOKENS];

    UNROLL
    for (int r = 0; r < ROW_FOURS; r++) {
        UNROLL
        for (int t = 0; t < T; t++)
            f[r][t] = vdupq_n_f32(0);
    }
    tile_sums(f, a, kind, T);
    for (size_t r = 0; r < ROW_FOURS && 4 * r < n_rows; r++) {
        UNROLL
        for (size_t t = 0; t < (size_t)T; t++)
            store_rows(y + t * ldy + 4 * r, f[r][t], n_rows - 4 * r, add);
    }
}

/* Multiply the panel by n <= TILE_TOKENS tokens. */
INLINE void tile_tokens(float *y, size_t ldy, const struct tile *a,
                        const struct panel_kind *kind, size_t n_rows, size_t n,
                        bool add)
{
    WITH_TOKENS(n, tile(y, ldy, a, kind, n_rows, add, T));
}

#endif

/* ---- products ----------------------------------------------------------- */

/* A function that expands columns [k, k + n) of row r of some weights, w. */
typedef void expand_fn(int8_t *q, float *scale, float *min, const void *w,
                       size_t r, size_t k, size_t n);

/* Multiply the panel by n tokens from token t on, whose first column is k. */
INLINE void panel_many(float *y, size_t ldy, const struct panel_work *m,
                       const struct q8 *x, size_t t, size_t k, size_t n,
                       size_t groups, const struct panel_kind *kind,
                       size_t n_rows, bool add)
{
    struct tile a = {.p = &m->panel,
                     .tokens = &m->tokens,
                     .x = x->q + t * x->ldq + k,
                     .ldx = x->ldq,
                     .groups = groups};

    for (; a.i < n; a.i += TILE_TOKENS) {
        const size_t left = n - a.i;

        tile_tokens(y + (t + a.i) * ldy, ldy, &a, kind, n_rows,
                    left < TILE_TOKENS ? left : TILE_TOKENS, add);
        a.x += TILE_TOKENS * x->ldq;
    }
}

/* One function for each kind, so that tiles are compiled for it. */
#define PANEL_MANY(name, with_min, with_plus)                                 \
    static void panel_many_##name(                                            \
        float *y, size_t ldy, const struct panel_work *m, const struct q8 *x, \
        size_t t, size_t k, size_t n, size_t groups, size_t group,            \
        size_t n_rows, bool add)                                              \
    {                                                                         \
        const struct panel_kind kind = {group, with_min, with_plus};          \
                                                                              \
        panel_many(y, ldy, m, x, t, k, n, groups, &kind, n_rows, add);        \
    }

PANEL_MANY(scaled, false, false)
PANEL_MANY(min, true, false)
PANEL_MANY(min_plus, true, true)

/* Multiply rows that `expand` expands by all tokens. */
static void matmul_panels(float *y, size_t ldy, const void *w,
                          expand_fn *expand, const struct panel_kind *kind,
                          const struct q8 *x, size_t n_rows, size_t n_cols,
                          size_t n_tokens, bool add, float *work)
{
    struct panel_work *m = (struct panel_work *)(void *)work;
    size_t n, nr, nk;

    for (size_t t = 0; t < n_tokens; t += n) {
        n = n_tokens - t < MANY_TOKENS ? n_tokens - t : MANY_TOKENS;
        for (size_t k = 0; k < n_cols; k += nk) {
            nk = n_cols - k < PANEL_COLS ? n_cols - k : PANEL_COLS;
            const size_t groups = nk / kind->group;

            tokens_fill(&m->tokens, x, t, n, k, nk, kind);
            for (size_t r = 0; r < n_rows; r += nr) {
                nr = n_rows - r < PANEL_ROWS ? n_rows - r : PANEL_ROWS;
                for (size_t i = 0; i < nr; i++)
                    expand(m->rows.q[i], m->rows.scale[i], m->rows.min[i], w,
                           r + i, k, nk);
                panel_fill(&m->panel, &m->rows, nr, nk, groups, kind->min);
                (kind->plus  ? panel_many_min_plus
                 : kind->min ? panel_many_min
                             : panel_many_scaled)(y + r, ldy, m, x, t, k, n,
                                                  groups, kind->group, nr,
                                                  add || k > 0);
            }
        }
        if (n_cols == 0)
            for (size_t i = t; i < t + n && !add; i++)
                memset(y + i * ldy, 0, n_rows * sizeof *y);
    }
}

#endif
