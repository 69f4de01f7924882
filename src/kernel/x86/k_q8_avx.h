/* Products of quantized weights and int8 activations in 256-bit vectors, for
 * k_q8_avx2.c and k_q8_avxvnni.c. Each of these files first defines two macros:
 *
 *   KERNEL(name)    the level's name of a kernel, such as k_##name##_avx2
 *   VNNI            1 if the level has vpdpbusd. If 0, pairs of byte products
 *                   are added in 16-bit words (vpmaddubsw), as many as cannot
 *                   overflow. Then pairs of words are added in 32 bits.
 *
 * A word holds at most 32767. Two products of a code of b bits and an integer
 * of magnitude 127 add up to at most 254 (2^b - 1). So a word can hold the sum
 * of 8 such pairs with codes of 4 bits, 4 pairs with 5 bits, 2 with 6 bits, and
 * not even one with 8 bits.
 *
 * With few tokens, each row is multiplied with lanes along the row. With many
 * tokens, a panel of rows is unpacked to bytes in L1 and multiplied by all
 * tokens, with lanes across rows. */
#ifndef KERNEL_X86_K_Q8_AVX_H
#define KERNEL_X86_K_Q8_AVX_H

#if !defined KERNEL || !defined VNNI
#error "define KERNEL(name) and VNNI first"
#endif

#include <stdbool.h>

#include "kernel/x86/k_q8_codes.h"

/* Keeps a loop rolled: its body is long and there are many copies of it. */
#define ROLLED _Pragma("GCC unroll 1")

/* Multiply unsigned by signed bytes and add pairs of products in words. */
INLINE __m256i pairs16(__m256i w, __m256i x)
{
    return _mm256_maddubs_epi16(w, x);
}

/* Add pairs of words to sum. */
INLINE __m256i add_words(__m256i sum, __m256i words)
{
    return _mm256_add_epi32(sum,
                            _mm256_madd_epi16(words, _mm256_set1_epi16(1)));
}

#if VNNI
/* Multiply bytes and add the products to sum, four in each lane. */
INLINE __m256i add_fours(__m256i sum, __m256i w, __m256i x)
{
    return _mm256_dpbusd_avx_epi32(sum, w, x);
}
#endif

/* ---- few tokens: row by row --------------------------------------------- */

/* SMALL_M: tokens by which a row is multiplied at once. SMALL_M_COLS: columns
 * that are rearranged at a time, summed over all tokens. SMALL_M_GROUPS: groups
 * in SMALL_M_COLS. SMALL_M_ROWS: rows that stay in L1 until all tokens have
 * used them. */
enum {
    SMALL_M = 4,
    SMALL_M_COLS = 32768,
    SMALL_M_GROUPS = SMALL_M_COLS / 16,
    SMALL_M_ROWS = 8
};

/* Activations of up to CORE_AVX_SMALL_M_LIMIT tokens, in the order of
 * unit_codes. */
struct small_m {
    /* bytes; or words of 16 bits (see in_words), in runs of 32 activations:
       first the ones of even index, then the ones of odd index */
    _Alignas(64) int8_t q[2 * SMALL_M_COLS];
    /* for each token: one number per group, then zeros up to a multiple of 8
       groups */
    float scale[SMALL_M_GROUPS + 8 * CORE_AVX_SMALL_M_LIMIT];
    float sum[SMALL_M_GROUPS + 8 * CORE_AVX_SMALL_M_LIMIT];
    size_t ldq; /* bytes from token to token */
    size_t ldg; /* groups from token to token */
};

/* The part of struct small_m for the tokens by which a row is multiplied at
 * once. */
struct small_m_part {
    const int8_t *q;
    const float *scale, *sum;
    size_t ldq, ldg;
};

_Static_assert(sizeof(struct small_m) <= KERNEL_WORK * sizeof(float),
               "the caller's memory");

/* Return whether activations must be words of 16 bits. */
INLINE bool in_words(int bits)
{
    return !VNNI && width_bits(bits) == 8;
}

/* Copy n activations to out in the order of unit_codes. */
static void small_m_order(int8_t *out, const int8_t *q, size_t n, int bits)
{
    for (size_t k = 0; k < n; k += UNIT) {
        __m256i v[2] = {load32(q + k), load32(q + k + 32)};

        unit_order(v, bits);
        for (size_t h = 0; h < 2; h++) {
            __m256i_u *to = (__m256i_u *)(void *)(out + k + 32 * h);

            if (in_words(bits)) {
                to += k / 32 + h;
                _mm256_storeu_si256(
                    to, _mm256_srai_epi16(_mm256_slli_epi16(v[h], 8), 8));
                _mm256_storeu_si256(to + 1, _mm256_srai_epi16(v[h], 8));
            } else {
                _mm256_storeu_si256(to, v[h]);
            }
        }
    }
}

/* Rearrange columns [from, from + n) of T tokens, starting at token t. */
static void small_m_fill(struct small_m *f, const struct q8 *x, size_t t,
                         size_t T, size_t from, size_t n, int bits)
{
    const size_t groups = n / x->group;

    f->ldq = (n + UNIT - 1) / UNIT * UNIT * (in_words(bits) ? 2 : 1);
    f->ldg = (groups + 7) / 8 * 8;
    for (size_t i = 0; i < T; i++, t++) {
        const size_t at = t * x->ldg + from / x->group;

        small_m_order(f->q + i * f->ldq, x->q + t * x->ldq + from, n, bits);
        memset(f->scale + i * f->ldg, 0, f->ldg * sizeof(float));
        memset(f->sum + i * f->ldg, 0, f->ldg * sizeof(float));
        memcpy(f->scale + i * f->ldg, x->scale + at, groups * sizeof(float));
        memcpy(f->sum + i * f->ldg, x->sum + at, groups * sizeof(float));
    }
}

/* Multiply 32 codes by x and return sums in 32-bit lanes. */
INLINE __m256i dot_half(__m256i v, const int8_t *x, int bits)
{
#if VNNI
    (void)bits;
    return add_fours(_mm256_setzero_si256(), v, load32(x));
#else
    if (in_words(bits))
        return _mm256_add_epi32(
            _mm256_madd_epi16(_mm256_and_si256(v, _mm256_set1_epi16(0xff)),
                              load32(x)),
            _mm256_madd_epi16(_mm256_srli_epi16(v, 8), load32(x + 32)));
    return _mm256_madd_epi16(pairs16(v, load32(x)), _mm256_set1_epi16(1));
#endif
}

/* Do the work of dot_half for a unit of 64 codes. */
INLINE __m256i dot_unit(const __m256i v[2], const int8_t *x, int bits)
{
#if VNNI
    (void)bits;
    return add_fours(add_fours(_mm256_setzero_si256(), v[0], load32(x)), v[1],
                     load32(x + 32));
#else
    if (in_words(bits))
        return _mm256_add_epi32(dot_half(v[0], x, bits),
                                dot_half(v[1], x + UNIT, bits));
    return _mm256_madd_epi16(_mm256_add_epi16(pairs16(v[0], load32(x)),
                                              pairs16(v[1], load32(x + 32))),
                             _mm256_set1_epi16(1));
#endif
}

/* Return the scales of a unit's two groups of 32, each in the lanes where
 * unit_codes puts the group's codes. */
INLINE __m256 pair_scales(const float *s, int bits)
{
    double pair; /* the bits of both floats */
    __m256 two;

    memcpy(&pair, s, sizeof pair);
    two = _mm256_castpd_ps(_mm256_set1_pd(pair));
    if (bits == 2)
        return _mm256_permute_ps(two, 0x50);
    return _mm256_permutevar_ps(two, _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
}

/* Return the scales of a unit's four groups of 16, as pair_scales. */
INLINE __m256 four_scales(const float *s)
{
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(s)),
                                    _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
}

/* Return the scales of a unit's groups in the lanes of unit_codes. */
INLINE __m256 unit_scales(const float *s, size_t group, int bits)
{
    return group == 16   ? four_scales(s)
           : group == 32 ? pair_scales(s, bits)
                         : _mm256_broadcast_ss(s);
}

/* Add the products of one unit and T tokens to a[t]. s[t][g] is the scale of
 * the weights times the scale of token t in group g; g is the first group of
 * the unit. */
INLINE void add_unit(__m256 *a, const unsigned char *p, const int8_t *x,
                     size_t ldx, const float (*s)[8], size_t g, size_t group,
                     int T, int bits)
{
    __m256i v[2];

    unit_codes(v, p, bits);
    UNROLL
    for (int t = 0; t < T; t++) {
        const int8_t *xt = x + (size_t)t * ldx;

        if (group == 32 && bits > 4) {
            a[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot_half(v[0], xt, bits)),
                                   _mm256_broadcast_ss(s[t] + g), a[t]);
            xt += in_words(bits) ? 64 : 32;
            a[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot_half(v[1], xt, bits)),
                                   _mm256_broadcast_ss(s[t] + g + 1), a[t]);
        } else {
            a[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot_unit(v, xt, bits)),
                                   unit_scales(s[t] + g, group, bits), a[t]);
        }
    }
}

/* Do the work of add_unit for a group of 128 codes, which is two units. */
INLINE void add_units(__m256 *a, const unsigned char *p, const int8_t *x,
                      size_t ldx, const float (*s)[8], size_t g, int T,
                      int bits)
{
    __m256i v[2], u[2];

    unit_codes(v, p, bits);
    unit_codes(u, p + UNIT_BYTES(bits), bits);
    UNROLL
    for (int t = 0; t < T; t++) {
        const int8_t *xt = x + (size_t)t * ldx;
        __m256i dot = _mm256_add_epi32(
            dot_unit(v, xt, bits),
            dot_unit(u, xt + UNIT * (in_words(bits) ? 2 : 1), bits));

        a[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot),
                               _mm256_broadcast_ss(s[t] + g), a[t]);
    }
}

/* Compute sums[t] = products of the last n < 8 groups of a row. */
INLINE void last_groups(__m256 *sums, const unsigned char *p, const int8_t *x,
                        size_t ldx, const float (*s)[8], size_t n, size_t group,
                        int T, int bits)
{
    const size_t bytes = UNIT_BYTES(bits), xs = in_words(bits) ? 128 : UNIT;
    unsigned char room[UNIT];
    __m256 a[SMALL_M];
    size_t g = 0;

    UNROLL
    for (int t = 0; t < T; t++)
        a[t] = _mm256_setzero_ps();
    if (group == 128) {
        ROLLED
        for (; g < n; g++, p += 2 * bytes, x += 2 * xs)
            add_units(a, p, x, ldx, s, g, T, bits);
    } else if (group == 64) {
        ROLLED
        for (; g < n; g++, p += bytes, x += xs)
            add_unit(a, p, x, ldx, s, g, 64, T, bits);
    } else {
        const size_t groups = UNIT / group; /* rows are multiples of 32 */

        ROLLED
        for (; g < n; g += groups, p += bytes, x += xs)
            add_unit(a, n - g < groups ? half_unit(room, p, bits) : p, x, ldx,
                     s, g, group, T, bits);
    }
    UNROLL
    for (int t = 0; t < T; t++)
        sums[t] = a[t];
}

typedef void last_fn(__m256 *sums, const unsigned char *p, const int8_t *x,
                     size_t ldx, const float (*s)[8], size_t n, size_t group);

/* Add two units, or two groups of 128, starting at group g: the first to a, the
 * second to b. */
INLINE void add_pair(__m256 *a, __m256 *b, const unsigned char *p,
                     const int8_t *x, size_t ldx, const float (*s)[8], size_t g,
                     size_t group, int T, int bits)
{
    const size_t bytes = UNIT_BYTES(bits), xs = in_words(bits) ? 128 : UNIT;

    for (size_t i = 0; i < (group == 128 ? 4 : 2) * bytes; i += 64)
        sweep(p + i);
    if (group == 128) {
        add_units(a, p, x, ldx, s, g, T, bits);
        add_units(b, p + 2 * bytes, x + 2 * xs, ldx, s, g + 1, T, bits);
    } else {
        add_unit(a, p, x, ldx, s, g, group, T, bits);
        add_unit(b, p + bytes, x + xs, ldx, s, g + UNIT / group, group, T,
                 bits);
    }
}

/* Add eight groups, alternately to a and to b. */
INLINE void eight_groups(__m256 *a, __m256 *b, const unsigned char *p,
                         const int8_t *x, size_t ldx, const float (*s)[8],
                         size_t group, int T, int bits)
{
    /* groups and codes of a pair */
    const size_t pair = group == 128 ? 2 : 2 * UNIT / group;
    const size_t codes = pair * group;
    const size_t bytes = codes * width_bits(bits) / 8;
    const size_t xs = codes * (in_words(bits) ? 2 : 1);

    if (T == 1) {
        UNROLL
        for (size_t g = 0; g < 8; g += pair, p += bytes, x += xs)
            add_pair(a, b, p, x, ldx, s, g, group, T, bits);
    } else {
        ROLLED
        for (size_t g = 0; g < 8; g += pair, p += bytes, x += xs)
            add_pair(a, b, p, x, ldx, s, g, group, T, bits);
    }
}

/* Compute sums[t] = product of row r and token t, for T tokens. last is the
 * function for the n / group % 8 groups at the end. */
INLINE void small_m_row(float *sums, const struct affine *w, size_t r,
                        size_t from, size_t n, const struct small_m_part *f,
                        last_fn *last, size_t group, int T, int bits)
{
    const size_t groups = n / group;
    const struct row_numbers row = numbers_at(w, r, from / group);
    const unsigned char *p =
        w->q + r * w->q_stride + from * width_bits(bits) / 8;
    const size_t p_step = group * width_bits(bits); /* of 8 groups */
    const size_t x_step = 8 * group * (in_words(bits) ? 2 : 1);
    const int8_t *x = f->q;
    _Alignas(32) float s[SMALL_M][8];
    __m256 a[SMALL_M], b[SMALL_M], rest[SMALL_M];

    UNROLL
    for (int t = 0; t < T; t++)
        a[t] = b[t] = _mm256_setzero_ps();
    for (size_t g = 0; g < groups; g += 8, p += p_step, x += x_step) {
        const size_t left = groups - g;
        __m256 scale = group_scales(&row, g, left);
        __m256 bias = group_biases(&row, g, left, scale);

        UNROLL
        for (int t = 0; t < T; t++) {
            const size_t i = (size_t)t * f->ldg + g;

            _mm256_store_ps(
                s[t], _mm256_mul_ps(scale, _mm256_loadu_ps(f->scale + i)));
            b[t] = _mm256_fmadd_ps(bias, _mm256_loadu_ps(f->sum + i), b[t]);
        }
        if (left >= 8) {
            eight_groups(a, b, p, x, f->ldq, (const float(*)[8])s, group, T,
                         bits);
        } else {
            last(rest, p, x, f->ldq, (const float(*)[8])s, left, group);
            UNROLL
            for (int t = 0; t < T; t++)
                a[t] = _mm256_add_ps(a[t], rest[t]);
        }
    }
    UNROLL
    for (int t = 0; t < T; t++)
        sums[t] = sum_lanes(_mm256_add_ps(a[t], b[t]));
}

INLINE void small_m_rows(float *y, size_t ldy, const struct affine *w,
                         size_t n_rows, size_t from, size_t n,
                         const struct small_m_part *f, bool add, last_fn *last,
                         size_t group, int T, int bits)
{
    for (size_t r = 0; r < n_rows; r++) {
        float sums[SMALL_M];

        small_m_row(sums, w, r, from, n, f, last, group, T, bits);
        UNROLL
        for (int t = 0; t < T; t++) {
            float *to = y + (size_t)t * ldy + r;

            *to = add ? *to + sums[t] : sums[t];
        }
    }
}

typedef void small_m_fn(float *y, size_t ldy, const struct affine *w,
                        size_t n_rows, size_t from, size_t n,
                        const struct small_m_part *f, bool add);

#define SMALL_M_FN(bits, T)                                                \
    static __attribute__((noinline)) void last_##bits##_##T(               \
        __m256 *sums, const unsigned char *p, const int8_t *x, size_t ldx, \
        const float(*s)[8], size_t n, size_t group)                        \
    {                                                                      \
        last_groups(sums, p, x, ldx, s, n, group, T, bits);                \
    }                                                                      \
    static void small_m_##bits##_##T(                                      \
        float *y, size_t ldy, const struct affine *w, size_t n_rows,       \
        size_t from, size_t n, const struct small_m_part *f, bool add)     \
    {                                                                      \
        last_fn *last = last_##bits##_##T;                                 \
                                                                           \
        if (bits == E2M1 && w->group == 16)                                \
            small_m_rows(y, ldy, w, n_rows, from, n, f, add, last, 16, T,  \
                         bits);                                            \
        else if (w->group == 32 || bits == E2M1)                           \
            small_m_rows(y, ldy, w, n_rows, from, n, f, add, last, 32, T,  \
                         bits);                                            \
        else if (w->group == 64)                                           \
            small_m_rows(y, ldy, w, n_rows, from, n, f, add, last, 64, T,  \
                         bits);                                            \
        else                                                               \
            small_m_rows(y, ldy, w, n_rows, from, n, f, add, last, 128, T, \
                         bits);                                            \
    }

#define SMALL_M_WIDTH(bits) EACH_4(SMALL_M_FN, bits)

EACH_WIDTH(SMALL_M_WIDTH)

static small_m_fn *const small_m_table[N_WIDTHS][SMALL_M] = {
    [E2M1] = ROW_4(small_m_E2M1),     [2] = ROW_4(small_m_2),
    [3] = ROW_4(small_m_3),           [4] = ROW_4(small_m_4),
    [5] = ROW_4(small_m_5),           [6] = ROW_4(small_m_6),
    [SIGNED] = ROW_4(small_m_SIGNED), [8] = ROW_4(small_m_8)};

/* Multiply n_rows <= SMALL_M_ROWS rows, starting at row r, by all tokens of f,
 * in parts of about equal size. */
static void small_m_tokens(float *y, size_t ldy, const struct affine *w,
                           size_t r, size_t n_rows, size_t from, size_t n,
                           const struct small_m *f, size_t n_tokens, bool add)
{
    struct affine rows = *w;

    rows.q += r * w->q_stride;
    rows.scales += r * w->s_stride;
    rows.biases += r * w->b_stride;
    for (size_t t = 0, T; t < n_tokens; t += T) {
        const size_t parts = (n_tokens - t + SMALL_M - 1) / SMALL_M;
        const struct small_m_part part = {.q = f->q + t * f->ldq,
                                          .scale = f->scale + t * f->ldg,
                                          .sum = f->sum + t * f->ldg,
                                          .ldq = f->ldq,
                                          .ldg = f->ldg};

        T = (n_tokens - t + parts - 1) / parts;
        small_m_table[code_width(w)][T - 1](y + t * ldy + r, ldy, &rows, n_rows,
                                            from, n, &part, add);
    }
}

/* Multiply all rows by n_tokens <= CORE_AVX_SMALL_M_LIMIT tokens, starting at
 * token t. A token's sums do not depend on the number of tokens, if
 * SMALL_M_COLS has room for all columns. */
static void matmul_small_m(float *y, size_t ldy, const struct affine *w,
                           const struct q8 *x, size_t n_rows, size_t n_cols,
                           size_t t, size_t n_tokens, bool add,
                           struct small_m *f)
{
    const size_t most = SMALL_M_COLS / n_tokens / 128 * 128;
    const size_t block = n_tokens > SMALL_M ? SMALL_M_ROWS : n_rows;
    size_t from = 0, n, nr;

    do {
        n = n_cols - from < most ? n_cols - from : most;
        small_m_fill(f, x, t, n_tokens, from, n, code_width(w));
        for (size_t r = 0; r < n_rows; r += nr) {
            nr = n_rows - r < block ? n_rows - r : block;
            small_m_tokens(y + t * ldy, ldy, w, r, nr, from, n, f, n_tokens,
                           add || from > 0);
        }
        from += n;
    } while (from < n_cols);
}

/* Return the number of tokens from which on codes are packed into panels. */
static size_t panels_min(int bits)
{
    return bits > 4 ? kernel_core.avx_panels8_min : kernel_core.avx_panels4_min;
}

/* ---- many tokens: panels of rows ---------------------------------------- */

/* A panel has two vectors for every four columns. A vector holds these four
 * bytes of eight rows: the first vector rows 0 to 7, the second rows 8 to 15.
 * If codes of 8 bits are split into halves, so that sums fit into words, the
 * panel has only eight rows: their low halves in one vector and their high
 * halves in the other. */
enum { PANEL_COLS = 1024, PANEL_GROUPS = PANEL_COLS / 16, PANEL_ROWS = 16 };

/* Tokens of a tile, limited by the registers for their sums. */
enum { TILE_TOKENS = VNNI ? 6 : 3 };

/* Tokens whose activations stay in L2 while they are multiplied by one panel
 * after another. */
enum { MANY_TOKENS = 256 };

INLINE bool in_halves(int bits)
{
    return !VNNI && width_bits(bits) == 8;
}

struct panel {
    _Alignas(64) unsigned char q[PANEL_COLS * PANEL_ROWS];
    _Alignas(64) float scale[PANEL_GROUPS * PANEL_ROWS];
    _Alignas(64) float bias[PANEL_GROUPS * PANEL_ROWS];
};

/* Transpose half units of eight rows, and store them in every second vector of
 * out. */
INLINE void store_panel(unsigned char *out, __m256i v[8])
{
    __m256 f[8];

    UNROLL
    for (int j = 0; j < 8; j++)
        f[j] = _mm256_castsi256_ps(v[j]);
    store_transposed8((float *)(void *)out, 16, f, 8);
}

/* Unpack eight rows, starting at row r. Only n_rows of them exist. */
INLINE void pack_codes(unsigned char *out, const struct affine *w, size_t r,
                       size_t n_rows, size_t from, size_t n, int bits)
{
    const __m256i low = _mm256_set1_epi8(15);
    unsigned char room[UNIT];

    for (size_t k = 0; k < n; k += UNIT, out += UNIT * PANEL_ROWS) {
        __m256i v[2][8], high[8];

        UNROLL
        for (size_t j = 0; j < 8; j++) {
            const unsigned char *p = w->q + (r + j) * w->q_stride +
                                     (from + k) * width_bits(bits) / 8;
            const size_t next = in_halves(bits) ? 8 : PANEL_ROWS;
            __m256i u[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};

            if (j < n_rows)
                unit_codes_in_order(
                    u, n - k < UNIT ? half_unit(room, p, bits) : p, bits);
            v[0][j] = u[0];
            v[1][j] = u[1];
            /* the next panel, which is packed after this one is used */
            _mm_prefetch((const char *)p + next * w->q_stride, _MM_HINT_T1);
        }
        UNROLL
        for (size_t h = 0; h < 2; h++) {
            unsigned char *to = out + h * (UNIT / 2 * PANEL_ROWS);

            if (in_halves(bits)) {
                for (size_t j = 0; j < 8; j++) {
                    high[j] =
                        _mm256_and_si256(_mm256_srli_epi16(v[h][j], 4), low);
                    v[h][j] = _mm256_and_si256(v[h][j], low);
                }
                store_panel(to + 32, high);
            }
            store_panel(to, v[h]);
        }
    }
}

/* Pack the scales and the biases of eight rows, starting at row r, of which
 * n_rows exist, from group g0 on: PANEL_ROWS numbers for each group. */
static void pack_numbers(float *scales, float *biases, const struct affine *w,
                         size_t r, size_t n_rows, size_t g0, size_t groups)
{
    for (size_t g = 0; g < groups; g += 8) {
        __m256 s[8], b[8];

        UNROLL
        for (size_t j = 0; j < 8; j++) {
            s[j] = b[j] = _mm256_setzero_ps();
            if (j < n_rows) {
                const struct row_numbers row = numbers_at(w, r + j, g0 + g);

                s[j] = group_scales(&row, 0, groups - g);
                b[j] = group_biases(&row, 0, groups - g, s[j]);
            }
        }
        store_transposed8(scales + g * PANEL_ROWS, PANEL_ROWS, s, 8);
        store_transposed8(biases + g * PANEL_ROWS, PANEL_ROWS, b, 8);
    }
}

static void pack_panel(struct panel *p, const struct affine *w, size_t r,
                       size_t n_rows, size_t from, size_t n)
{
    const size_t groups = n / w->group;

    for (size_t i = 0; i < (in_halves(w->bits) ? 1 : 2); i++, r += 8) {
        const size_t left = n_rows > 8 * i ? n_rows - 8 * i : 0;
        unsigned char *q = p->q + 32 * i;

        WITH_BITS(code_width(w), pack_codes(q, w, r, left, from, n, BITS));
        pack_numbers(p->scale + 8 * i, p->bias + 8 * i, w, r, left,
                     from / w->group, groups);
    }
}

/* Broadcast four bytes of x to all 32-bit lanes. */
INLINE __m256i four_bytes(const int8_t *x)
{
    int32_t four;

    memcpy(&four, x, sizeof four);
    return _mm256_set1_epi32(four);
}

/* Multiply four columns by T tokens. Adds the products with the first vector of
 * the panel (rows 0 to 7, or low halves) to d0[t], and the products with the
 * second to d1[t]. */
INLINE void panel_step(__m256i *d0, __m256i *d1, const unsigned char *q,
                       const int8_t *x, size_t ldx, int T)
{
    const __m256i *w = (const __m256i *)(const void *)q;
    const __m256i w0 = _mm256_load_si256(w), w1 = _mm256_load_si256(w + 1);

    UNROLL
    for (int t = 0; t < T; t++) {
        __m256i xt = four_bytes(x + (size_t)t * ldx);

#if VNNI
        d0[t] = add_fours(d0[t], w0, xt);
        d1[t] = add_fours(d1[t], w1, xt);
#else
        d0[t] = _mm256_add_epi16(d0[t], pairs16(w0, xt));
        d1[t] = _mm256_add_epi16(d1[t], pairs16(w1, xt));
        /* otherwise gcc keeps all products and adds them in another order */
        __asm__("" : "+x"(d0[t]), "+x"(d1[t]));
#endif
    }
}

/* Compute sums[vector][t] = products of one group of a panel and T tokens. */
INLINE void panel_group(__m256i sums[2][TILE_TOKENS], const unsigned char *q,
                        const int8_t *x, size_t ldx, size_t group, int T,
                        int bits)
{
    __m256i d0[TILE_TOKENS], d1[TILE_TOKENS];

    UNROLL
    for (int t = 0; t < T; t++)
        d0[t] = d1[t] = _mm256_setzero_si256();
#if VNNI
    (void)bits;
    for (size_t k = 0; k < group; k += 4, q += 64)
        panel_step(d0, d1, q, x + k, ldx, T);
#else
    const size_t steps = bits == 6 ? 2 : bits == 5 ? 4 : 8;

    for (size_t k = 0; k < group; k += 4 * steps, q += 64 * steps) {
        __m256i w0[TILE_TOKENS], w1[TILE_TOKENS];

        UNROLL
        for (int t = 0; t < T; t++)
            w0[t] = w1[t] = _mm256_setzero_si256();
        UNROLL
        for (size_t j = 0; j < steps; j++)
            panel_step(w0, w1, q + 64 * j, x + k + 4 * j, ldx, T);
        UNROLL
        for (int t = 0; t < T; t++) {
            d0[t] = add_words(d0[t], w0[t]);
            d1[t] = add_words(d1[t], w1[t]);
        }
    }
#endif
    /* Write the sums to memory here, because the code below needs all
     * registers: otherwise gcc stores them at each step of the loop above. */
    UNROLL
    for (int t = 0; t < T; t++) {
        sums[0][t] = d0[t];
        sums[1][t] = d1[t];
        __asm__("" : "+m"(sums[0][t]), "+m"(sums[1][t]));
    }
}

/* Add the integer sums d of one group, times the scales, plus the biases, to y,
 * for eight rows and T tokens. */
INLINE void panel_add(float *y, size_t ldy, const float *scales,
                      const float *biases, const float *scale, const float *sum,
                      size_t ldg, const __m256i *d, int T)
{
    const __m256 s = _mm256_load_ps(scales), b = _mm256_load_ps(biases);

    UNROLL
    for (int t = 0; t < T; t++, y += ldy, scale += ldg, sum += ldg) {
        __m256 a =
            _mm256_fmadd_ps(b, _mm256_broadcast_ss(sum), _mm256_loadu_ps(y));

        a = _mm256_fmadd_ps(_mm256_cvtepi32_ps(d[t]),
                            _mm256_mul_ps(s, _mm256_broadcast_ss(scale)), a);
        _mm256_storeu_ps(y, a);
    }
}

/* Add the products of a panel and T tokens to y. */
INLINE void panel_tile(float *y, size_t ldy, const struct panel *p,
                       const int8_t *x, size_t ldx, const float *scale,
                       const float *sum, size_t ldg, size_t groups,
                       size_t group, int T, int bits)
{
    const unsigned char *q = p->q;
    const float *s = p->scale, *b = p->bias;

    for (size_t g = 0; g < groups; g++, scale++, sum++) {
        __m256i d[2][TILE_TOKENS];

        /* prefetch for the next tile */
        UNROLL
        for (int t = T; t < 2 * T; t++) {
            _mm_prefetch((const char *)x + (size_t)t * ldx, _MM_HINT_T0);
            if (group == 128)
                _mm_prefetch((const char *)x + (size_t)t * ldx + 64,
                             _MM_HINT_T0);
            if (g == 0)
                _mm_prefetch((const char *)(y + (size_t)t * ldy), _MM_HINT_T0);
        }
        panel_group(d, q, x, ldx, group, T, bits);
        if (in_halves(bits)) {
            UNROLL
            for (int t = 0; t < T; t++)
                d[0][t] =
                    _mm256_add_epi32(d[0][t], _mm256_slli_epi32(d[1][t], 4));
        }
        panel_add(y, ldy, s, b, scale, sum, ldg, d[0], T);
        if (!in_halves(bits))
            panel_add(y + 8, ldy, s + 8, b + 8, scale, sum, ldg, d[1], T);
        x += group;
        q += group * PANEL_ROWS;
        s += PANEL_ROWS;
        b += PANEL_ROWS;
    }
}

/* Activations of consecutive tokens, starting at a column. */
struct tile_x {
    const int8_t *q;
    const float *scale, *sum;
    size_t ldq, ldg, group;
};

INLINE void panel_tokens(float *y, size_t ldy, const struct panel *p,
                         const struct tile_x *x, size_t groups, int T, int bits)
{
    panel_tile(y, ldy, p, x->q, x->ldq, x->scale, x->sum, x->ldg, groups,
               x->group, T, bits);
}

typedef void panel_fn(float *y, size_t ldy, const struct panel *p,
                      const struct tile_x *x, size_t groups);

#define PANEL(name, bits, T)                                              \
    static void panel_##name##_##T(float *y, size_t ldy,                  \
                                   const struct panel *p,                 \
                                   const struct tile_x *x, size_t groups) \
    {                                                                     \
        panel_tokens(y, ldy, p, x, groups, T, bits);                      \
    }

#if VNNI
EACH_6(PANEL, any, 8)

static panel_fn *panel_of(int bits, size_t T)
{
    static panel_fn *const table[TILE_TOKENS] = ROW_6(panel_any);

    (void)bits;
    return table[T - 1];
}
#else
EACH_3(PANEL, 4, 4)
EACH_3(PANEL, 5, 5)
EACH_3(PANEL, 6, 6)
EACH_3(PANEL, 8, 8)

static panel_fn *panel_of(int bits, size_t T)
{
    static panel_fn *const table[][TILE_TOKENS] = {
        ROW_3(panel_4), ROW_3(panel_5), ROW_3(panel_6), ROW_3(panel_8)};

    /* the largest code of E2M1 has 5 bits */
    return table[width_bits(bits) == 8 ? 3
                 : bits == E2M1 ? 1
                 : bits < 4 ? 0
                            : bits - 4][T - 1];
}
#endif

/* Add the products of a panel of n_rows and n_tokens tokens to y. Divides the
 * tokens into tiles of about equal size. */
static void panel_many(float *y, size_t ldy, const struct panel *p, int bits,
                       size_t n_rows, const struct tile_x *x, size_t groups,
                       size_t n_tokens)
{
    const size_t full = in_halves(bits) ? PANEL_ROWS / 2 : PANEL_ROWS;
    struct tile_x at = *x;

    for (size_t t = 0, T; t < n_tokens; t += T) {
        const size_t tiles = (n_tokens - t + TILE_TOKENS - 1) / TILE_TOKENS;
        float some[TILE_TOKENS * PANEL_ROWS] = {0};
        float *yt = y + t * ldy;

        T = (n_tokens - t + tiles - 1) / tiles;
        at.q = x->q + t * x->ldq;
        at.scale = x->scale + t * x->ldg;
        at.sum = x->sum + t * x->ldg;
        if (n_rows == full) {
            panel_of(bits, T)(yt, ldy, p, &at, groups);
            continue;
        }
        for (size_t i = 0; i < T * n_rows; i++)
            some[i / n_rows * PANEL_ROWS + i % n_rows] =
                yt[i / n_rows * ldy + i % n_rows];
        panel_of(bits, T)(some, PANEL_ROWS, p, &at, groups);
        for (size_t i = 0; i < T * n_rows; i++)
            yt[i / n_rows * ldy + i % n_rows] =
                some[i / n_rows * PANEL_ROWS + i % n_rows];
    }
}

/* Multiply all rows by n_tokens <= MANY_TOKENS tokens from t on. */
static void matmul_many(float *y, size_t ldy, const struct affine *w,
                        const struct q8 *x, size_t n_rows, size_t n_cols,
                        size_t t, size_t n_tokens, bool add, struct panel *p)
{
    const size_t full = in_halves(w->bits) ? PANEL_ROWS / 2 : PANEL_ROWS;

    for (size_t i = t; i < t + n_tokens && !add; i++)
        memset(y + i * ldy, 0, n_rows * sizeof *y);
    for (size_t k = 0, n; k < n_cols; k += n) {
        const size_t g = t * x->ldg + k / w->group;
        const struct tile_x at = {.q = x->q + t * x->ldq + k,
                                  .scale = x->scale + g,
                                  .sum = x->sum + g,
                                  .ldq = x->ldq,
                                  .ldg = x->ldg,
                                  .group = w->group};

        n = n_cols - k < PANEL_COLS ? n_cols - k : PANEL_COLS;
        for (size_t r = 0, nr; r < n_rows; r += nr) {
            nr = n_rows - r < full ? n_rows - r : full;
            pack_panel(p, w, r, nr, k, n);
            panel_many(y + t * ldy + r, ldy, p, code_width(w), nr, &at,
                       n / w->group, n_tokens);
        }
    }
}

static void KERNEL(gemm_q8_affine)(float *y, size_t ldy, const struct affine *w,
                                   const struct q8 *x, size_t n_rows,
                                   size_t n_cols, size_t n_tokens, bool add,
                                   float *work)
{
    size_t n;

    for (size_t t = 0; t < n_tokens; t += n) {
        n = n_tokens - t;
        if (n <= CORE_AVX_SMALL_M_LIMIT &&
            (n <= SMALL_M || n < panels_min(w->bits))) {
            matmul_small_m(y, ldy, w, x, n_rows, n_cols, t, n, add,
                           (struct small_m *)(void *)work);
            continue;
        }
        n = n < MANY_TOKENS ? n : MANY_TOKENS;
        matmul_many(y, ldy, w, x, n_rows, n_cols, t, n, add,
                    (struct panel *)(void *)work);
    }
}

#endif
