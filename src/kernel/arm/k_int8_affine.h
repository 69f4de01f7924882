/* Products of affine weights and int8 activations. Included by the files that
 * k_int8_panel.h describes.
 *
 * With one token, a row is read in one sequential sweep, with lanes along the
 * row: the integer sums of four groups become the lanes of one vector. With
 * more tokens, rows are expanded into panels. */
#ifndef KERNEL_ARM_K_INT8_AFFINE_H
#define KERNEL_ARM_K_INT8_AFFINE_H

#include "kernel/arm/k_affine_codes.h"
#include "kernel/arm/k_int8_panel.h"

/* ---- panels ------------------------------------------------------------- */

INLINE void affine_codes(int8_t *q, const unsigned char *p, size_t n, int bits)
{
    for (size_t k = 0; k < n; k += 16, p += 2 * width_bits(bits))
        vst1q_s8(q + k, signed16(p, bits));
}

static void affine_expand(int8_t *q, float *scale, float *min, const void *of,
                          size_t r, size_t k, size_t n)
{
    const struct affine *w = of;
    const size_t from = k / w->group, groups = n / w->group;
    const unsigned char *p = w->q + r * w->q_stride + k * (size_t)w->bits / 8;

    WITH_BITS(code_width(w), affine_codes(q, p, n, BITS));
    for (size_t g = 0; g < groups; g += 4) {
        const size_t left = groups - g;
        const float32x4_t s = affine_scales(w, r, from + g, left);

        vst1q_f32(scale + g, s);
        vst1q_f32(min + g, -affine_biases(w, r, from + g, left, s));
    }
}

/* ---- one token ---------------------------------------------------------- */

enum { ONE_COLS = 65536 };

/* Activations of one token, in the caller's work memory. */
struct one_token {
    _Alignas(64) int8_t q[ONE_COLS]; /* in the order of the codes */
    /* for each group: 128 times the sum of q */
    _Alignas(64) int32_t plus[ONE_COLS / LEAST_GROUP];
};

_Static_assert(sizeof(struct one_token) <= KERNEL_WORK * sizeof(float),
               "the caller's memory");

/* Whether 32 codes of 4 bits are used as two vectors of nibbles. A group of 16
 * would lie in both. */
INLINE bool is_split(size_t bits, size_t group)
{
    return bits == 4 && group >= 32;
}

static void one_fill(struct one_token *m, const struct affine *w,
                     const int8_t *q, size_t n)
{
    for (size_t k = 0; k < n; k += 32) {
        const int8x16_t a = load16(q + k), b = load16(q + k + 16);
        const bool split = is_split((size_t)w->bits, w->group);

        vst1q_s8(m->q + k, split ? vuzp1q_s8(a, b) : a);
        vst1q_s8(m->q + k + 16, split ? vuzp2q_s8(a, b) : b);
    }
    for (size_t g = 0; w->bits == 8 && g < n / w->group; g++)
        m->plus[g] = 128 * sum_q(q + g * w->group, w->group);
}

/* Add the products of 32 codes: of a whole group or a part, or with groups of
 * 16 to one sum for each half. */
INLINE void add_codes(int32x4_t *a, int32x4_t *b, const unsigned char *p,
                      const int8_t *x, size_t group, int bits)
{
    int8x16_t v[2];

    if (is_split(width_bits(bits), group)) {
        signed_nibbles(v, p, bits);
    } else {
        v[0] = signed16(p, bits);
        v[1] = signed16(p + 2 * width_bits(bits), bits);
    }
    *a = add_any(*a, v[0], load16(x));
    *b = add_any(*b, v[1], load16(x + 16));
}

/* Return the integer sums of n <= 4 groups, one in each lane. */
INLINE int32x4_t four_groups(const unsigned char *p, const int8_t *x, size_t n,
                             size_t group, int bits)
{
    const size_t bytes = 4 * width_bits(bits); /* of 32 codes */
    int32x4_t s[4];

    UNROLL
    for (int i = 0; i < 4; i++)
        s[i] = vdupq_n_s32(0);
    if (group == 16) {
        UNROLL
        for (size_t i = 0; i < 4; i += 2, p += bytes, x += 32)
            if (i < n)
                add_codes(&s[i], &s[i + 1], p, x, group, bits);
        return reduce4(s);
    }
    UNROLL
    for (size_t i = 0; i < 4; i++) {
        if (i >= n)
            continue;
        UNROLL
        for (size_t k = 0; k < group; k += 32, p += bytes, x += 32)
            add_codes(&s[i], &s[i], p, x, group, bits);
    }
    return reduce4(s);
}

/* Add four groups of a row, or the last n of them, to sums. */
INLINE void row_groups(float32x4_t sums[2], const struct affine *w, size_t r,
                       size_t g, size_t n, const unsigned char *p,
                       const int8_t *x, const int32_t *plus, const float *scale,
                       const float *sum, size_t group, int bits)
{
    const float32x4_t s = affine_scales(w, r, g, n);
    int32x4_t dots = four_groups(p, x, n, group, bits);

    if (width_bits(bits) == 8)
        dots = vaddq_s32(dots, n >= 4 ? vld1q_s32(plus)
                                      : vreinterpretq_s32_f32(load4(
                                            (const char *)plus, n, DT_F32)));
    sums[0] = vfmaq_f32(sums[0], vcvtq_f32_s32(dots) * s,
                        load4((const char *)scale, n, DT_F32));
    if (bits != E2M1)
        sums[1] = vfmaq_f32(sums[1], affine_biases(w, r, g, n, s),
                            load4((const char *)sum, n, DT_F32));
}

/* Multiply columns [from, from + n) of row r. */
INLINE float row_by_one(const struct affine *w, const struct one_token *m,
                        const struct q8 *x, size_t r, size_t from, size_t n,
                        size_t group, int bits)
{
    const size_t g0 = from / group, groups = n / group;
    const size_t bytes = group * width_bits(bits) / 2; /* of four groups */
    const unsigned char *p =
        w->q + r * w->q_stride + from * width_bits(bits) / 8;
    float32x4_t sums[2] = {vdupq_n_f32(0), vdupq_n_f32(0)};
    size_t g = 0;

    for (; groups - g >= 4; g += 4, p += bytes) {
        UNROLL
        for (size_t i = 0; i < bytes; i += 64)
            sweep(p + i);
        row_groups(sums, w, r, g0 + g, 4, p, m->q + g * group, m->plus + g,
                   x->scale + g0 + g, x->sum + g0 + g, group, bits);
    }
    if (g < groups)
        row_groups(sums, w, r, g0 + g, groups - g, p, m->q + g * group,
                   m->plus + g, x->scale + g0 + g, x->sum + g0 + g, group,
                   bits);
    return sum_lanes(sums[0] + sums[1]);
}

INLINE void rows_by_one(float *y, const struct affine *w,
                        const struct one_token *m, const struct q8 *x,
                        size_t n_rows, size_t from, size_t n, size_t group,
                        int bits, bool add)
{
    for (size_t r = 0; r < n_rows; r++) {
        const float sum = row_by_one(w, m, x, r, from, n, group, bits);

        y[r] = add ? y[r] + sum : sum;
    }
}

/* Run a statement with GROUP, a constant, in place of `group`. */
#define WITH_GROUP(group, ...)      \
    do {                            \
        if ((group) == 32) {        \
            enum { GROUP = 32 };    \
            __VA_ARGS__;            \
        } else if ((group) == 64) { \
            enum { GROUP = 64 };    \
            __VA_ARGS__;            \
        } else {                    \
            enum { GROUP = 128 };   \
            __VA_ARGS__;            \
        }                           \
    } while (0)

typedef void rows_fn(float *y, const struct affine *w,
                     const struct one_token *m, const struct q8 *x,
                     size_t n_rows, size_t from, size_t n, bool add);

#define ROWS_FN(bits)                                                        \
    static void rows_##bits(float *y, const struct affine *w,                \
                            const struct one_token *m, const struct q8 *x,   \
                            size_t n_rows, size_t from, size_t n, bool add)  \
    {                                                                        \
        WITH_GROUP(w->group, rows_by_one(y, w, m, x, n_rows, from, n, GROUP, \
                                         bits, add));                        \
    }

EACH_WIDTH(ROWS_FN)

/* NVFP4. */
static void rows_of_16(float *y, const struct affine *w,
                       const struct one_token *m, const struct q8 *x,
                       size_t n_rows, size_t from, size_t n, bool add)
{
    rows_by_one(y, w, m, x, n_rows, from, n, 16, E2M1, add);
}

static rows_fn *const rows_of[N_WIDTHS] = {
    [E2M1] = rows_E2M1, [2] = rows_2, [3] = rows_3,           [4] = rows_4,
    [5] = rows_5,       [6] = rows_6, [SIGNED] = rows_SIGNED, [8] = rows_8};

static void matmul_one(float *y, const struct affine *w, const struct q8 *x,
                       size_t n_rows, size_t n_cols, bool add, float *work)
{
    struct one_token *m = (struct one_token *)(void *)work;
    rows_fn *rows = w->group == 16 ? rows_of_16 : rows_of[code_width(w)];
    size_t from = 0, n;

    do {
        n = n_cols - from < ONE_COLS ? n_cols - from : ONE_COLS;
        one_fill(m, w, x->q + from, n);
        rows(y, w, m, x, n_rows, from, n, add || from > 0);
        from += n;
    } while (from < n_cols);
}

/* ---- kernels ------------------------------------------------------------ */

static void KERNEL(gemm_q8_affine)(float *y, size_t ldy, const struct affine *w,
                                   const struct q8 *x, size_t n_rows,
                                   size_t n_cols, size_t n_tokens, bool add,
                                   float *work)
{
    const struct panel_kind kind = {.group = w->group,
                                    .min = w->codes != AFFINE_E2M1,
                                    .plus = w->bits == 8};

    if (n_tokens >= kernel_core.arm_panels_min) {
        matmul_panels(y, ldy, w, affine_expand, &kind, x, n_rows, n_cols,
                      n_tokens, add, work);
        return;
    }
    for (size_t t = 0; t < n_tokens; t++) {
        struct q8 one = *x;

        one.q += t * x->ldq;
        one.scale += t * x->ldg;
        one.sum += t * x->ldg;
        matmul_one(y + t * ldy, w, &one, n_rows, n_cols, add, work);
    }
}

/* Multiply-adds of gemm_q8_affine, on registers only. */
static double KERNEL(peak_q8)(size_t reps, float *sink)
{
    enum {
        CHAINS = 16,
        OPS = I8MM ? 64 : 32, /* of an instruction */
        STEPS = 10000000 / (OPS * CHAINS)
    };
    int8x16_t w = vdupq_n_s8(5);
    const int8x16_t x = vdupq_n_s8(-3);
    int32x4_t a[CHAINS];

    UNROLL
    for (int i = 0; i < CHAINS; i++)
        a[i] = vdupq_n_s32(i);
    for (size_t s = 0; s < reps * STEPS; s++) {
        __asm__("" : "+w"(w)); /* keeps the products in the loop */
        UNROLL
        for (int i = 0; i < CHAINS; i++)
#if I8MM
            a[i] = vmmlaq_s32(a[i], w, x);
#else
            a[i] = add_any(a[i], w, x);
#endif
    }
    for (int i = 1; i < CHAINS; i++)
        a[0] = veorq_s32(a[0], a[i]);
    *sink = (float)vaddvq_s32(a[0]);
    return (double)OPS * CHAINS * STEPS * (double)reps;
}

#endif
