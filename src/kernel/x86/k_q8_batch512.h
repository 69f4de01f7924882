/* Products of codes of 4 and 8 bits with a batch of tokens, in 512-bit vectors
 * of integers. k_q8_many512.h stores a panel of codes and loads it again for
 * each tile of tokens. On a Zen 5 that takes as long as the products of eight
 * tokens: it stores one vector a cycle, and loads none in that cycle. Here a
 * block of 16 rows by 32 bytes is transposed in registers and multiplied from
 * there. The activations are memory operands. The core overlaps the products of
 * a block with the transposition of the next.
 *
 * The order of sums is that of k_q8_many512.h, so both give the same bits. */
#ifndef KERNEL_X86_K_Q8_BATCH512_H
#define KERNEL_X86_K_Q8_BATCH512_H

#include "kernel/x86/k_batch512.h"
#include "kernel/x86/k_q8_many512.h"

/* A tile has BATCH_LEAST to BATCH_TILE tokens; 15 sums and a block take 23
 * registers. With up to BATCH_MIXED tokens, the instructions that transpose the
 * next block stand among the products. */
enum { BATCH_LEAST = CORE_Q8_BATCH_LEAST, BATCH_MIXED = 8 };

_Static_assert((int)NUMBERS == 16, "a vector of numbers");
_Static_assert(2 * (int)BATCH_LEAST <= (int)BATCH_TILE + 1,
               "tokens that need two tiles are enough for two");

/* Kinds of codes in memory: bytes, signed bytes, nibbles, and nibbles in groups
 * of 32, of which a block has two; and E2M1 in groups of 32 and of 16. */
enum batch_kind {
    BATCH_BYTES,
    BATCH_SIGNED,
    BATCH_NIBBLES,
    BATCH_NIBBLES32,
    BATCH_E2M1,
    BATCH_E2M1_16,
    BATCH_KINDS
};

/* Multiply BATCH_ROWS rows by T tokens. */
struct batch_tile {
    const unsigned char *q;
    size_t stride;
    const float *scales, *biases; /* [group][PANEL_ROWS] */
    size_t n_groups, group;
    const int8_t *x;              /* [column / 4][T][4] */
    const float *x_scale, *x_sum; /* [group][T] */
    float *y;
    size_t ldy;
    bool resume; /* sums start with y, else with 0 */
    struct fetch *fetch;
};

INLINE void batch_zero(sums d[BATCH_TILE], int T)
{
    UNROLL
    for (int t = 0; t < T; t++)
        d[t] = no_sums();
}

/* Scale the sums of a group. */
INLINE void batch_scale(__m512 a[BATCH_TILE], sums d[BATCH_TILE],
                        const float *scales, const float *biases,
                        const float *x_scale, const float *x_sum, int T)
{
    const __m512 scale = _mm512_load_ps(scales), bias = _mm512_load_ps(biases);

    UNROLL
    for (int t = 0; t < T; t++) {
        const __m512 by = _mm512_mul_ps(scale, _mm512_set1_ps(x_scale[t]));

        a[t] = _mm512_fmadd_ps(to_floats(d[t]), by, a[t]);
        a[t] = _mm512_fmadd_ps(bias, _mm512_set1_ps(x_sum[t]), a[t]);
    }
}

INLINE void batch_run(const struct batch_tile *s, int T, enum batch_kind kind)
{
    const __m512i mask = _mm512_set1_epi8(0x0f);
    const bool mixed = T <= BATCH_MIXED;
    const bool bytes = kind == BATCH_BYTES || kind == BATCH_SIGNED;
    const bool e2m1 = kind == BATCH_E2M1 || kind == BATCH_E2M1_16;
    /* columns of words of a group, if a block has several */
    const int words = kind == BATCH_E2M1_16                           ? 2
                      : kind == BATCH_NIBBLES32 || kind == BATCH_E2M1 ? 4
                                                                      : 8;
    const size_t stride = s->stride;
    const size_t blocks = bytes                   ? s->group / 32
                          : kind == BATCH_NIBBLES ? s->group / 64
                                                  : 1;
    const unsigned char *q = s->q;
    const unsigned char *const last =
        q + s->n_groups * s->group / (bytes ? 1 : 2) - 32;
    const int8_t *x = s->x;
    const float *scales = s->scales, *biases = s->biases;
    const float *x_scale = s->x_scale, *x_sum = s->x_sum;
    struct fetch f = *s->fetch;
    __m512 a[BATCH_TILE];
    __m512i v[8], next[8];

    UNROLL
    for (int part = 0; part < 8 && mixed; part++)
        batch_part(next, q, stride, part);
    UNROLL
    for (int t = 0; t < T; t++) {
        const float *y = s->y + (size_t)t * s->ldy;

        _mm_prefetch((const char *)(y + BATCH_ROWS), _MM_HINT_T0);
        a[t] = _mm512_maskz_loadu_ps(s->resume ? 0xffff : 0, y);
    }
    for (size_t g = 0; g < s->n_groups; g += 8 / (size_t)words) {
        sums d[BATCH_TILE];

        fetch_lines(&f);
        batch_zero(d, T);
        for (size_t i = 0; i < blocks; i++) {
            if (mixed)
                q += q < last ? 32 : 0;
            UNROLL
            for (int c = 0; c < 8; c++)
                if (mixed)
                    v[c] = next[c];
                else
                    batch_part(v, q, stride, c);
            if (!mixed)
                q += 32;
            UNROLL
            for (int c = 0; c < 8; c++, x += 4 * T) {
                if (mixed) {
                    batch_part(next, q, stride, c);
                    PIN(next[c]);
                }
                if (bytes) {
                    batch_dots(d, kind == BATCH_SIGNED ? unsign(v[c]) : v[c], x,
                               T);
                    continue;
                }
                __m512i even = _mm512_and_si512(v[c], mask);
                __m512i odd =
                    _mm512_and_si512(_mm512_srli_epi16(v[c], 4), mask);

                batch_dots(d, e2m1 ? e2m1_bytes(even) : even, x, T);
                x += 4 * T;
                batch_dots(d, e2m1 ? e2m1_bytes(odd) : odd, x, T);
                if (c % words == words - 1 && c < 7) {
                    batch_scale(a, d, scales, biases, x_scale, x_sum, T);
                    batch_zero(d, T);
                    scales += PANEL_ROWS;
                    biases += PANEL_ROWS;
                    x_scale += T;
                    x_sum += T;
                }
            }
        }
        batch_scale(a, d, scales, biases, x_scale, x_sum, T);
        scales += PANEL_ROWS;
        biases += PANEL_ROWS;
        x_scale += T;
        x_sum += T;
    }
    UNROLL
    for (int t = 0; t < T; t++)
        _mm512_storeu_ps(s->y + (size_t)t * s->ldy, a[t]);
    *s->fetch = f;
}

#define BATCH(T)                                                \
    static void batch_bytes_##T(const struct batch_tile *s)     \
    {                                                           \
        batch_run(s, T, BATCH_BYTES);                           \
    }                                                           \
    static void batch_signed_##T(const struct batch_tile *s)    \
    {                                                           \
        batch_run(s, T, BATCH_SIGNED);                          \
    }                                                           \
    static void batch_nibbles_##T(const struct batch_tile *s)   \
    {                                                           \
        batch_run(s, T, BATCH_NIBBLES);                         \
    }                                                           \
    static void batch_nibbles32_##T(const struct batch_tile *s) \
    {                                                           \
        batch_run(s, T, BATCH_NIBBLES32);                       \
    }                                                           \
    static void batch_e2m1_16_##T(const struct batch_tile *s)   \
    {                                                           \
        batch_run(s, T, BATCH_E2M1_16);                         \
    }                                                           \
    static void batch_e2m1_##T(const struct batch_tile *s)      \
    {                                                           \
        batch_run(s, T, BATCH_E2M1);                            \
    }

BATCH(4)
BATCH(5)
BATCH(6)
BATCH(7)
BATCH(8)
BATCH(9)
BATCH(10)
BATCH(11)
BATCH(12)
BATCH(13)
BATCH(14)
BATCH(15)

#define BATCH_FNS(T)                                                           \
    {                                                                          \
        [BATCH_BYTES] = batch_bytes_##T, [BATCH_NIBBLES] = batch_nibbles_##T,  \
        [BATCH_SIGNED] = batch_signed_##T,                                     \
        [BATCH_E2M1_16] = batch_e2m1_16_##T,                                   \
        [BATCH_NIBBLES32] = batch_nibbles32_##T, [BATCH_E2M1] = batch_e2m1_##T \
    }

/* [tokens - BATCH_LEAST][kind] */
static void (*const batches[BATCH_TILE - BATCH_LEAST + 1][BATCH_KINDS])(
    const struct batch_tile *) = {BATCH_FNS(4),  BATCH_FNS(5),  BATCH_FNS(6),
                                  BATCH_FNS(7),  BATCH_FNS(8),  BATCH_FNS(9),
                                  BATCH_FNS(10), BATCH_FNS(11), BATCH_FNS(12),
                                  BATCH_FNS(13), BATCH_FNS(14), BATCH_FNS(15)};

/* ---- the product -------------------------------------------------------- */

/* A product with n tokens. The tokens of a tile follow each other in x, x_scale
 * and x_sum. */
struct batch {
    const struct affine *w;
    enum batch_kind kind;
    size_t n_cols, n;
    int8_t *x;
    float *x_scale, *x_sum, *scales, *biases;
};

INLINE size_t batch_tiles(size_t n)
{
    return (n + BATCH_TILE - 1) / BATCH_TILE;
}

/* Return the tokens of tile i: numbers differ by at most one. */
INLINE size_t batch_tile_tokens(size_t n, size_t i)
{
    return n / batch_tiles(n) + (i < n % batch_tiles(n));
}

/* Multiply BATCH_ROWS rows from row r on, groups from column k on. */
static void batch_rows(const struct batch *b, float *y, size_t ldy, size_t r,
                       size_t k, size_t n_groups, bool resume,
                       struct fetch *fetch)
{
    const size_t all = b->n_cols / b->w->group, g = k / b->w->group;

    for (size_t i = 0, t = 0; t < b->n; i++) {
        const size_t T = batch_tile_tokens(b->n, i);
        const struct batch_tile s = {.q = row_at(b->w, r, k).q,
                                     .stride = b->w->q_stride,
                                     .scales = b->scales + r % PANEL_ROWS,
                                     .biases = b->biases + r % PANEL_ROWS,
                                     .n_groups = n_groups,
                                     .group = b->w->group,
                                     .x = b->x + t * b->n_cols + k * T,
                                     .x_scale = b->x_scale + t * all + g * T,
                                     .x_sum = b->x_sum + t * all + g * T,
                                     .y = y + t * ldy + r,
                                     .ldy = ldy,
                                     .resume = resume,
                                     .fetch = fetch};

        batches[T - BATCH_LEAST][b->kind](&s);
        t += T;
    }
}

/* Widen 16 rows of 16 numbers in bf16: out[number][PANEL_ROWS]. A transposition
 * of pairs takes half the shuffles of one of floats. */
INLINE void widen_numbers(float *out, const unsigned char *from, size_t stride)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    __m512i v[8];

    UNROLL
    for (int part = 0; part < 8; part++)
        batch_part(v, from, stride, part);
    UNROLL
    for (int i = 0; i < 8; i++, out += 2 * PANEL_ROWS) {
        _mm512_store_si512(out, _mm512_slli_epi32(v[i], 16));
        _mm512_store_si512(out + PANEL_ROWS, _mm512_and_si512(v[i], upper));
    }
}

/* Do the work of panel_numbers. nr is a multiple of BATCH_ROWS. */
static void batch_numbers(const struct batch *b, size_t r, size_t k, size_t nr,
                          size_t n_groups)
{
    const struct affine *w = b->w;

    if (n_groups < 16 || w->zero || w->s_type != DT_BF16 ||
        w->b_type != DT_BF16) {
        panel_numbers(b->scales, b->biases, w, r, k, nr, n_groups);
        return;
    }
    for (size_t i = 0; i < nr; i += BATCH_ROWS) {
        const struct row row = row_at(w, r + i, k);

        widen_numbers(b->scales + i, row.scales, w->s_stride);
        widen_numbers(b->biases + i, row.biases, w->b_stride);
    }
}

/* Multiply nr rows from row r on. r is a multiple of PANEL_ROWS, nr one of
 * BATCH_ROWS. */
static void batch_panel(const struct batch *b, float *y, size_t ldy, size_t r,
                        size_t nr, bool add)
{
    const struct affine *w = b->w;
    const size_t span = NUMBERS * w->group;
    /* the first panel is fetched too, but for its first block */
    const size_t from = r == 0 ? BATCH_ROWS : PANEL_ROWS;
    const size_t lines = (2 * PANEL_ROWS - from) * w->q_stride / 64;
    const size_t steps =
        b->n_cols / w->group * batch_tiles(b->n) * (PANEL_ROWS / BATCH_ROWS);
    struct fetch fetch = {.next = row_at(w, r + from, 0).q,
                          .lines = (lines + steps - 1) / steps,
                          .left = lines};

    for (size_t k = 0; k < b->n_cols; k += span) {
        const size_t nk = b->n_cols - k < span ? b->n_cols - k : span;
        const struct row next = row_at(w, r + PANEL_ROWS, k);

        fetch_numbers(next.scales, w->s_stride,
                      NUMBERS * type_bytes(w->s_type));
        fetch_numbers(next.biases, w->b_stride,
                      NUMBERS * type_bytes(w->b_type));
        batch_numbers(b, r, k, nr, nk / w->group);
        for (size_t i = 0; i < nr; i += BATCH_ROWS)
            batch_rows(b, y, ldy, r + i, k, nk / w->group, add || k > 0,
                       &fetch);
    }
}

/* Prefetch the first block of rows, and the first scales and biases. */
static void batch_fetch_first(const struct affine *w, size_t n_cols)
{
    const size_t groups = n_cols / w->group;
    const size_t n = groups < NUMBERS ? groups : NUMBERS;

    for (size_t i = 0; i < BATCH_ROWS * w->q_stride; i += 64)
        _mm_prefetch(w->q + i, _MM_HINT_T1);
    fetch_numbers(w->scales, w->s_stride, n * type_bytes(w->s_type));
    fetch_numbers(w->biases, w->b_stride, n * type_bytes(w->b_type));
}

/* Floats of memory beside x: scales and biases of a panel, and those of the
 * tokens. */
INLINE size_t batch_floats(size_t n_groups, size_t n)
{
    return 2 * PANEL_ROWS * NUMBERS + 2 * n_groups * n;
}

/* Whether q8_batch takes a product. */
static bool q8_batch_takes(const struct affine *w, size_t n_cols, size_t n)
{
    const size_t floats = batch_floats(n_cols / w->group, n);

    return n >= kernel_core.q8_batch_min && n <= kernel_core.q8_batch_max &&
           (w->bits == 8 || (w->bits == 4 && n_cols % 64 == 0)) &&
           floats * sizeof(float) + n_cols * n <= KERNEL_WORK * sizeof(float);
}

static enum batch_kind batch_kind_of(const struct affine *w)
{
    switch (code_width(w)) {
    case E2M1:
        return w->group == 16 ? BATCH_E2M1_16 : BATCH_E2M1;
    case SIGNED:
        return BATCH_SIGNED;
    case 8:
        return BATCH_BYTES;
    default:
        return w->group == 32 ? BATCH_NIBBLES32 : BATCH_NIBBLES;
    }
}

static void q8_batch(float *y, size_t ldy, const struct affine *w,
                     const struct q8 *x, size_t n_rows, size_t n_cols, size_t n,
                     bool add, float *work)
{
    const size_t n_groups = n_cols / w->group;
    const size_t whole = n_rows / BATCH_ROWS * BATCH_ROWS;
    struct batch b = {.w = w,
                      .kind = batch_kind_of(w),
                      .n_cols = n_cols,
                      .n = n,
                      .scales = work,
                      .biases = work + PANEL_ROWS * NUMBERS};

    batch_fetch_first(w, n_cols);
    b.x_scale = b.biases + PANEL_ROWS * NUMBERS;
    b.x_sum = b.x_scale + n_groups * n;
    b.x = (int8_t *)(b.x_sum + n_groups * n);
    for (size_t i = 0, t = 0; t < n; i++) {
        const size_t T = batch_tile_tokens(n, i), g = t * n_groups;

        batch_words(b.x + t * n_cols, x->q + t * x->ldq, x->ldq, n_cols / 4, T,
                    w->bits == 4);
        batch_words(b.x_scale + g, x->scale + t * x->ldg, 4 * x->ldg, n_groups,
                    T, false);
        batch_words(b.x_sum + g, x->sum + t * x->ldg, 4 * x->ldg, n_groups, T,
                    false);
        t += T;
    }
    for (size_t r = 0; r < whole; r += PANEL_ROWS)
        batch_panel(&b, y, ldy, r,
                    whole - r < PANEL_ROWS ? whole - r : PANEL_ROWS, add);
    if (whole < n_rows)
        many_rows(y, ldy, w, whole, n_rows - whole, x, n, n_cols, add, false,
                  (struct panel *)(void *)work);
}

#endif
