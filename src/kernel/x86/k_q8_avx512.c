/* Kernels for quantized weights on AVX-512 (F, BW, VL, DQ, VNNI): vpdpbusd
 * multiplies four unsigned codes by four signed integers and adds the products
 * to an int32, exactly.
 *
 * Order of sums. matmul_f32_affine adds up chunks of columns one after
 * another; in a chunk the order is that of k_f32_matmul.h. gemm_q8_affine for
 * few tokens has several vectors of sums, whose lanes take four columns modulo
 * 64, and one sum of biases. For more tokens it has one sum for each row and
 * token. All take groups in order. */
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernel/kernel.h"
#include "kernel/x86/k_avx.h"
#include "kernel/x86/k_q8_avx512.h"
#include "kernel/x86/k_q8_many512.h"
#include "kernel/x86/k_q8_batch512.h"

/* Define functions for each width of codes and size of groups:
 * name_BITS_GROUP. */
#define BY_GROUP(DEFINE, bits) \
    DEFINE(bits, 32)           \
    DEFINE(bits, 64)           \
    DEFINE(bits, 128)
#define BY_WIDTH(DEFINE)     \
    DEFINE(E2M1, 16)         \
    DEFINE(E2M1, 32)         \
    BY_GROUP(DEFINE, 2)      \
    BY_GROUP(DEFINE, 3)      \
    BY_GROUP(DEFINE, 4)      \
    BY_GROUP(DEFINE, 5)      \
    BY_GROUP(DEFINE, 6)      \
    BY_GROUP(DEFINE, SIGNED) \
    BY_GROUP(DEFINE, 8)
#define OF_WIDTH(name, bits) \
    [bits] = {name##_##bits##_32, name##_##bits##_64, name##_##bits##_128}
/* table[code_width][group_index] */
#define TABLE(name)                                                         \
    {                                                                       \
        [E2M1] = {name##_E2M1_32, [3] = name##_E2M1_16}, OF_WIDTH(name, 2), \
        OF_WIDTH(name, 3), OF_WIDTH(name, 4), OF_WIDTH(name, 5),            \
        OF_WIDTH(name, 6), OF_WIDTH(name, SIGNED), OF_WIDTH(name, 8)        \
    }

/* ---- f32 ---------------------------------------------------------------- */

/* Columns and rows that matmul_f32_affine widens at a time. */
enum { CHUNK = 1024, ROWS = 4 };

/* Codes [16 j, 16 j + 16) of 64. */
INLINE __m128i sixteen(__m512i codes, int j)
{
    return j == 0   ? _mm512_castsi512_si128(codes)
           : j == 1 ? _mm512_extracti32x4_epi32(codes, 1)
           : j == 2 ? _mm512_extracti32x4_epi32(codes, 2)
                    : _mm512_extracti32x4_epi32(codes, 3);
}

/* Codes [16 j, 16 j + 16) of 64, widened. scales and biases belong to the 64
 * codes. */
INLINE __m512 widen16(__m512i codes, int j, const float *scales,
                      const float *biases, int bits, size_t group)
{
    const size_t g = 16 * (size_t)j / group;

    return widen_codes(sixteen(codes, j), scales[g], biases[g], bits);
}

/* Widen n columns of a row to out; if dot, add their products with x to a
 * instead. */
INLINE void widen_row(float *out, __m512 a[2], const float *x, struct row w,
                      size_t n, int bits, size_t group, bool dot)
{
    _Alignas(64) float scales[16], biases[16];

    for (size_t k0 = 0; k0 < n; k0 += 16 * group) {
        const size_t end = n - k0 < 16 * group ? n : k0 + 16 * group;
        const __mmask16 m = first_lanes((end - k0) / group);

        const __m512 s = load_scales(&w, m);

        _mm512_store_ps(scales, s);
        _mm512_store_ps(biases, load_biases(&w, m, s));
        next_numbers(&w);
        for (size_t k = k0; k < end; k += 64, w.q += 8 * width_bits(bits)) {
            const size_t g = (k - k0) / group;
            const bool half = end - k < 64;
            const __m512i codes = unpack(w.q, bits, half);

            sweep(w.q);
            UNROLL
            for (int j = 0; j < 4; j++) {
                const size_t at = k + 16 * (size_t)j;
                __m512 v;

                if (j == 2 && half)
                    break;
                v = widen16(codes, j, scales + g, biases + g, bits, group);
                if (!dot)
                    _mm512_storeu_ps(out + at, v);
                else
                    a[j % 2] =
                        _mm512_fmadd_ps(v, _mm512_loadu_ps(x + at), a[j % 2]);
            }
        }
    }
}

/* The sum of a chunk: the last step of k_f32_matmul.h's order. */
INLINE float chunk_sum(const __m512 a[2])
{
    return sum_lanes(_mm256_add_ps(fold16(a[0]), fold16(a[1])));
}

#define WIDEN(bits, group)                                                    \
    static void widen_##bits##_##group(float *out, struct row w, size_t n)    \
    {                                                                         \
        __m512 none[2];                                                       \
                                                                              \
        widen_row(out, none, NULL, w, n, bits, group, false);                 \
    }                                                                         \
    static float dot_##bits##_##group(const float *x, struct row w, size_t n) \
    {                                                                         \
        __m512 a[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};             \
                                                                              \
        widen_row(NULL, a, x, w, n, bits, group, true);                       \
        return chunk_sum(a);                                                  \
    }

BY_WIDTH(WIDEN)

static void (*const wideners[N_WIDTHS][4])(float *, struct row,
                                           size_t) = TABLE(widen);
static float (*const dots[N_WIDTHS][4])(const float *, struct row,
                                        size_t) = TABLE(dot);

static void k_affine_to_f32_avx512(float *out, const struct affine *w,
                                   size_t n_rows, size_t n_cols)
{
    for (size_t r = 0; r < n_rows; r++)
        wideners[code_width(w)][group_index(w->group)](out + r * n_cols,
                                                       row_at(w, r, 0), n_cols);
}

/* Multiply R widened rows of a chunk by T tokens. Adds to y, or overwrites it
 * if `first`. */
INLINE void f32_tile(float *y, size_t ldy, const float *w, const float *x,
                     size_t ldx, size_t n, int R, int T, bool first)
{
    __m512 a[ROWS][3][2];

    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int t = 0; t < T; t++)
            a[r][t][0] = a[r][t][1] = _mm512_setzero_ps();
    }
    for (size_t k = 0; k < n; k += 32) {
        UNROLL
        for (int c = 0; c < 2; c++) {
            const size_t at = k + 16 * (size_t)c;
            __m512 xv[3];

            UNROLL
            for (int t = 0; t < T; t++)
                xv[t] = _mm512_loadu_ps(x + (size_t)t * ldx + at);
            UNROLL
            for (int r = 0; r < R; r++) {
                __m512 wv = _mm512_load_ps(w + r * CHUNK + at);

                UNROLL
                for (int t = 0; t < T; t++)
                    a[r][t][c] = _mm512_fmadd_ps(wv, xv[t], a[r][t][c]);
            }
        }
    }
    UNROLL
    for (int t = 0; t < T; t++) {
        UNROLL
        for (int r = 0; r < R; r++) {
            float *to = y + (size_t)t * ldy + r;

            *to = first ? chunk_sum(a[r][t]) : *to + chunk_sum(a[r][t]);
        }
    }
}

/* Multiply nr widened rows of a chunk by T tokens. */
INLINE void f32_rows(float *y, size_t ldy, const float *w, const float *x,
                     size_t ldx, size_t n, size_t nr, int T, bool first)
{
    if (nr == ROWS)
        f32_tile(y, ldy, w, x, ldx, n, ROWS, T, first);
    else
        for (size_t r = 0; r < nr; r++)
            f32_tile(y + r, ldy, w + r * CHUNK, x, ldx, n, 1, T, first);
}

static void f32_chunk(float *y, size_t ldy, const float *w, const float *x,
                      size_t ldx, size_t n, size_t nr, size_t n_tokens,
                      bool first)
{
    size_t t = 0;

    for (; n_tokens - t >= 3; t += 3)
        f32_rows(y + t * ldy, ldy, w, x + t * ldx, ldx, n, nr, 3, first);
    if (n_tokens - t == 2)
        f32_rows(y + t * ldy, ldy, w, x + t * ldx, ldx, n, nr, 2, first);
    else if (n_tokens - t == 1)
        f32_rows(y + t * ldy, ldy, w, x + t * ldx, ldx, n, nr, 1, first);
}

static void k_matmul_f32_affine_avx512(float *y, size_t ldy,
                                       const struct affine *w, const float *x,
                                       size_t ldx, size_t n_rows, size_t n_cols,
                                       size_t n_tokens, float *work)
{
    float *const wide = work; /* [ROWS * CHUNK] */

    for (size_t t = 0; n_cols == 0 && t < n_tokens; t++)
        memset(y + t * ldy, 0, n_rows * sizeof *y);
    for (size_t r = 0; r < n_rows; r += ROWS) {
        const size_t nr = n_rows - r < ROWS ? n_rows - r : ROWS;

        if (n_tokens == 1) {
            for (size_t i = r; i < r + nr; i++)
                for (size_t k = 0; k < n_cols; k += CHUNK) {
                    const size_t n = n_cols - k < CHUNK ? n_cols - k : CHUNK;
                    float s = dots[code_width(w)][group_index(w->group)](
                        x + k, row_at(w, i, k), n);

                    y[i] = k == 0 ? s : y[i] + s;
                }
            continue;
        }
        for (size_t k = 0; k < n_cols; k += CHUNK) {
            const size_t n = n_cols - k < CHUNK ? n_cols - k : CHUNK;

            for (size_t i = 0; i < nr; i++)
                wideners[code_width(w)][group_index(w->group)](
                    wide + i * CHUNK, row_at(w, r + i, k), n);
            f32_chunk(y + r, ldy, wide, x + k, ldx, n, nr, n_tokens, k == 0);
        }
    }
}

/* ---- rounding activations ----------------------------------------------- */

/* The largest magnitude of n values, a multiple of 16. */
INLINE float largest(const float *x, size_t n)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i top = _mm512_setzero_si512();

    /* as integers: NaN are the largest, so that none is lost */
    for (size_t i = 0; i < n; i += 16)
        top = _mm512_max_epi32(
            _mm512_and_si512(magnitude, _mm512_loadu_si512(x + i)), top);
    return _mm512_cvtss_f32(
        _mm512_castsi512_ps(_mm512_set1_epi32(_mm512_reduce_max_epi32(top))));
}

/* Round one group whose largest magnitude, or that of the group paired with it, is `most`, with
 * the same operations as k_q8_ref.c. */
INLINE void round_group(int8_t *q, float *scale, float *sum, const float *x,
                        size_t n, float most)
{
    const __m512 limit = _mm512_set1_ps(127);
    const __m512 by = _mm512_set1_ps(most > 0 ? 127 / most : 0);
    __m512i total = _mm512_setzero_si512();

    *scale = most / 127;
    for (size_t i = 0; i < n; i += 16) {
        __m512 v = _mm512_mul_ps(_mm512_loadu_ps(x + i), by);
        __m512i c;

        /* max and min return their second operand if one is NaN */
        v = _mm512_min_ps(limit, v);
        v = _mm512_max_ps(_mm512_sub_ps(_mm512_setzero_ps(), limit), v);
        c = _mm512_maskz_cvtps_epi32(_mm512_cmp_ps_mask(v, v, _CMP_ORD_Q), v);
        total = _mm512_add_epi32(total, c);
        _mm_storeu_si128((void *)(q + i), _mm512_cvtepi32_epi8(c));
    }
    *sum = *scale * (float)_mm512_reduce_add_epi32(total);
}

static void k_to_q8_avx512(const struct q8 *out, const float *x, size_t ldx,
                           size_t n_cols, size_t n_tokens)
{
    const size_t group = out->group, unit = q8_unit(out);

    for (size_t t = 0; t < n_tokens; t++) {
        int8_t *q = out->q + t * out->ldq;
        const float *xt = x + t * ldx;
        float *scale = out->scale + t * out->ldg;
        float *sum = out->sum + t * out->ldg;

        for (size_t k = 0; k < n_cols;) {
            const size_t end = k + (n_cols - k < unit ? n_cols - k : unit);
            const float most = largest(xt + k, end - k);

            for (; k < end; k += group)
                round_group(q + k, scale++, sum++, xt + k, group, most);
        }
        memset(q + n_cols, 0, out->ldq - n_cols);
    }
}

/* ---- a few tokens ------------------------------------------------------- */

/* A row is unpacked once for up to SMALL_M tokens. If there are more, BLOCK_L1
 * bytes of rows stay in L1 until all tokens have used them. From q8_batch_min
 * or q8_panels_min tokens on (struct core_choices), rows are transposed. */
enum { SMALL_M = 4, SUMS = 4, BLOCK_L1 = 16 << 10 };

/* Multiply rows by up to SMALL_M tokens. */
typedef void small_m_fn(float *y, size_t ldy, const struct affine *w,
                        const struct q8 *x, size_t n_rows, size_t n,
                        size_t n_tokens, bool add);

/* The factors of the two groups of 32 in 64 columns, each in the lanes of its
 * group. */
INLINE __m512 two_factors(const float *f)
{
    return _mm512_insertf32x8(_mm512_set1_ps(f[0]), _mm256_set1_ps(f[1]), 1);
}

/* The factors of four groups of 16, as two_factors. */
INLINE __m512 four_factors(const float *f)
{
    return _mm512_permutexvar_ps(
        _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
        _mm512_castps128_ps512(_mm_loadu_ps(f)));
}

/* a + integer sums d times factors. d has sums of 64 columns, from column k of
 * 16 groups on; f has the factors of the groups. */
INLINE __m512 add_sums(__m512 a, sums d, const float *f, size_t k, size_t group)
{
    return _mm512_fmadd_ps(to_floats(d),
                           group == 16   ? four_factors(f + k / 16)
                           : group == 32 ? two_factors(f + k / 32)
                                         : _mm512_set1_ps(f[k / group]),
                           a);
}

/* Multiply one row by T tokens, 16 groups at a time, whose factors fill a
 * vector. */
INLINE void q8_row(float *y, size_t ldy, struct row w, const struct q8 *x,
                   size_t n, int T, bool add, int bits, size_t group,
                   size_t ahead, bool to_l2)
{
    _Alignas(64) float f[SMALL_M][16];
    __m512 bias[SMALL_M], a[SMALL_M][SUMS];

    UNROLL
    for (int t = 0; t < T; t++)
        bias[t] = a[t][0] = a[t][1] = a[t][2] = a[t][3] = _mm512_setzero_ps();
    for (size_t k0 = 0; k0 < n; k0 += 16 * group) {
        const size_t left = n - k0 < 16 * group ? n - k0 : 16 * group;
        const __mmask16 m = first_lanes(left / group);
        const __m512 scales = load_scales(&w, m);
        const __m512 biases = load_biases(&w, m, scales);
        const int8_t *q = x->q + k0;
        size_t k = 0;

        sweep_by(w.scales, ahead / 8, to_l2);
        sweep_by(w.biases, ahead / 8, to_l2);
        UNROLL
        for (int t = 0; t < T; t++) {
            const size_t g = (size_t)t * x->ldg + k0 / group;

            _mm512_store_ps(f[t], _mm512_mul_ps(scales, _mm512_maskz_loadu_ps(
                                                            m, x->scale + g)));
            bias[t] = _mm512_fmadd_ps(
                biases, _mm512_maskz_loadu_ps(m, x->sum + g), bias[t]);
        }
        next_numbers(&w);
        /* otherwise gcc 12 gets the factors by shuffling registers, which is
         * slower */
        __asm__("" ::: "memory");
        for (; left - k >= 64 * SUMS;
             k += 64 * SUMS, w.q += 8 * SUMS * width_bits(bits)) {
            sums d[SMALL_M];

            UNROLL
            for (size_t i = 0; i < SUMS; i++) {
                const unsigned char *p = w.q + 8 * i * width_bits(bits);
                const __m512i v = unpack(p, bits, false);

                if (i % 2 == 0 || bits > 4)
                    sweep_by(p, ahead, to_l2);
                UNROLL
                for (int t = 0; t < T; t++) {
                    d[t] = dot4(
                        group == 128 && i % 2 ? d[t] : no_sums(), v,
                        _mm512_load_si512(q + (size_t)t * x->ldq + k + 64 * i));
                    if (group < 128 || i % 2)
                        a[t][i] =
                            add_sums(a[t][i], d[t], f[t], k + 64 * i, group);
                }
            }
        }
        for (; k < left; k += 64, w.q += 8 * width_bits(bits)) {
            const __m512i v = unpack(w.q, bits, left - k < 64);

            UNROLL
            for (int t = 0; t < T; t++) {
                sums d = dot4(no_sums(), v,
                              _mm512_load_si512(q + (size_t)t * x->ldq + k));

                a[t][0] = add_sums(a[t][0], d, f[t], k, group);
            }
        }
    }
    UNROLL
    for (int t = 0; t < T; t++) {
        __m512 even = _mm512_add_ps(a[t][0], a[t][2]);
        __m512 odd = _mm512_add_ps(a[t][1], a[t][3]);
        __m512 all = _mm512_add_ps(_mm512_add_ps(even, bias[t]), odd);
        float s = sum_lanes(fold16(all));
        float *to = y + (size_t)t * ldy;

        *to = add ? *to + s : s;
    }
}

INLINE void q8_rows(float *y, size_t ldy, const struct affine *w,
                    const struct q8 *x, size_t n_rows, size_t n, int T,
                    bool add, int bits, size_t group)
{
    const size_t ahead = kernel_core.sweep_ahead;

    WITH_FLAG(to_l2, kernel_core.sweep_l2,
              for (size_t r = 0; r < n_rows; r++)
                  q8_row(y + r, ldy, row_at(w, r, 0), x, n, T, add, bits, group,
                         ahead, to_l2));
}

/* Define a small_m_fn as a call of `rows` with T tokens. */
#define SMALL_M_FN(name, rows)                                     \
    static void name(float *y, size_t ldy, const struct affine *w, \
                     const struct q8 *x, size_t n_rows, size_t n,  \
                     size_t n_tokens, bool add)                    \
    {                                                              \
        WITH_TOKENS(n_tokens, rows);                               \
    }

#define Q8_SMALL_M(bits, group)             \
    SMALL_M_FN(q8_small_m_##bits##_##group, \
               q8_rows(y, ldy, w, x, n_rows, n, T, add, bits, group))

BY_WIDTH(Q8_SMALL_M)

static small_m_fn *const q8_small_m[N_WIDTHS][4] = TABLE(q8_small_m);

/* ---- a few tokens by 4 bits --------------------------------------------- */

/* 64 bytes have 128 codes of 4 bits: even codes in the lower halves of bytes,
 * odd codes in the upper halves. Two instructions separate them if x has the
 * same order. So x is rearranged first, up to PAIRS_BYTES of it. */
enum { PAIRS_BYTES = 128 << 10 };

_Static_assert(PAIRS_BYTES <= KERNEL_WORK * sizeof(float),
               "the caller's memory");

/* Rearrange q[0..n) of one token in runs of 128: elements of even index, then
 * of odd index, with zeros up to a whole run. q is padded with zeros to a
 * multiple of 64. */
static void split_pairs(int8_t *out, const int8_t *q, size_t n)
{
    const __m512i halves = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    const __m512i parted = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));

    for (size_t k = 0; k < n; k += 128) {
        __m512i a = _mm512_load_si512(q + k);
        __m512i b =
            n - k > 64 ? _mm512_load_si512(q + k + 64) : _mm512_setzero_si512();

        a = _mm512_permutexvar_epi64(halves, _mm512_shuffle_epi8(a, parted));
        b = _mm512_permutexvar_epi64(halves, _mm512_shuffle_epi8(b, parted));
        _mm512_store_si512(out + k, _mm512_shuffle_i64x2(a, b, 0x44));
        _mm512_store_si512(out + k + 64, _mm512_shuffle_i64x2(a, b, 0xee));
    }
}

/* Sums of the products of a row and T tokens. */
struct q4_sums {
    __m512 bias[SMALL_M], a[SMALL_M][2];
};

/* Multiply 128 codes w by T tokens and add to s->a[t][i]. x has the same
 * columns of the first token, in split_pairs's order. f[t] has the factors of
 * 16 groups; `at` selects the group of each lane. */
INLINE void q4_step(struct q4_sums *s, __m512i w, const int8_t *x, size_t ldx,
                    const __m512 *f, __m512i at, int T, int i, int bits)
{
    const __m512i mask = _mm512_set1_epi8(0x0f);
    __m512i even = _mm512_and_si512(w, mask);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi16(w, 4), mask);

    if (bits == E2M1) {
        even = e2m1_bytes(even);
        odd = e2m1_bytes(odd);
    }

    UNROLL
    for (int t = 0; t < T; t++) {
        const int8_t *xt = x + (size_t)t * ldx;
        sums d = dot4(no_sums(), even, _mm512_load_si512(xt));

        d = dot4(d, odd, _mm512_load_si512(xt + 64));
        s->a[t][i] = _mm512_fmadd_ps(
            to_floats(d), _mm512_permutexvar_ps(at, f[t]), s->a[t][i]);
    }
}

/* Multiply one row by T tokens. x->q is in split_pairs's order. */
INLINE void q4_row(float *y, size_t ldy, struct row w, const struct q8 *x,
                   size_t n, int T, bool add, int bits, size_t group,
                   size_t ahead, bool to_l2)
{
    const __m512i lanes =
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i next = _mm512_set1_epi32((int)(128 / group));
    const int steps = group == 16 ? 2 : 4; /* 16 groups have so many at least */
    struct q4_sums s;

    UNROLL
    for (int t = 0; t < T; t++)
        s.bias[t] = s.a[t][0] = s.a[t][1] = _mm512_setzero_ps();
    for (size_t k0 = 0; k0 < n; k0 += 16 * group) {
        const size_t left = n - k0 < 16 * group ? n - k0 : 16 * group;
        const __mmask16 m = first_lanes(left / group);
        const __m512 scales = load_scales(&w, m);
        const __m512 biases = load_biases(&w, m, scales);
        const int8_t *q = x->q + k0;
        __m512i at = _mm512_srli_epi32(lanes, group == 128  ? 4
                                              : group == 64 ? 3
                                              : group == 32 ? 2
                                                            : 1);
        size_t k = 0;
        __m512 f[SMALL_M];

        /* groups of 16 have 16 bytes of scales here, and no biases */
        if (group != 16 || k0 % 1024 == 0)
            sweep_by(w.scales, ahead / 8, to_l2);
        if (group != 16)
            sweep_by(w.biases, ahead / 8, to_l2);
        UNROLL
        for (int t = 0; t < T; t++) {
            const size_t g = (size_t)t * x->ldg + k0 / group;

            f[t] =
                _mm512_mul_ps(scales, _mm512_maskz_loadu_ps(m, x->scale + g));
            s.bias[t] = _mm512_fmadd_ps(
                biases, _mm512_maskz_loadu_ps(m, x->sum + g), s.bias[t]);
        }
        next_numbers(&w);
        for (; left - k >= 128 * (size_t)steps;
             k += 128 * (size_t)steps, w.q += 64 * steps) {
            UNROLL
            for (int i = 0; i < steps; i++) {
                sweep_by(w.q + 64 * i, ahead, to_l2);
                q4_step(&s, _mm512_loadu_si512(w.q + 64 * i),
                        q + k + 128 * (size_t)i, x->ldq, f, at, T, i % 2, bits);
                at = _mm512_add_epi32(at, next);
            }
        }
        for (; k < left; k += 128, w.q += 64) {
            const size_t bytes = left - k < 128 ? (left - k) / 2 : 64;

            q4_step(&s,
                    _mm512_maskz_loadu_epi8(~(__mmask64)0 >> (64 - bytes), w.q),
                    q + k, x->ldq, f, at, T, 0, bits);
            at = _mm512_add_epi32(at, next);
        }
    }
    UNROLL
    for (int t = 0; t < T; t++) {
        __m512 all =
            _mm512_add_ps(_mm512_add_ps(s.a[t][0], s.a[t][1]), s.bias[t]);
        float sum = sum_lanes(fold16(all));
        float *to = y + (size_t)t * ldy;

        *to = add ? *to + sum : sum;
    }
}

INLINE void q4_rows(float *y, size_t ldy, const struct affine *w,
                    const struct q8 *x, size_t n_rows, size_t n, int T,
                    bool add, int bits, size_t group)
{
    const size_t ahead = kernel_core.sweep_ahead;

    WITH_FLAG(to_l2, kernel_core.sweep_l2,
              for (size_t r = 0; r < n_rows; r++)
                  q4_row(y + r, ldy, row_at(w, r, 0), x, n, T, add, bits, group,
                         ahead, to_l2));
}

#define Q4_SMALL_M(bits, group)             \
    SMALL_M_FN(q4_small_m_##bits##_##group, \
               q4_rows(y, ldy, w, x, n_rows, n, T, add, bits, group))

BY_GROUP(Q4_SMALL_M, 4)
Q4_SMALL_M(E2M1, 16)
Q4_SMALL_M(E2M1, 32)

/* [E2M1][group_index] */
static small_m_fn *const q4_small_m[2][4] = {
    {q4_small_m_4_32, q4_small_m_4_64, q4_small_m_4_128},
    {q4_small_m_E2M1_32, [3] = q4_small_m_E2M1_16}};

/* ---- the product -------------------------------------------------------- */

/* Multiply a few tokens, SMALL_M at a time. Blocks of rows stay in L1
 * for all tokens; for at most SMALL_M tokens, one block has all rows. */
static void q8_several(float *y, size_t ldy, const struct affine *w,
                       const struct q8 *x, size_t n_rows, size_t n_cols,
                       size_t n_tokens, bool add, small_m_fn *multiply)
{
    const size_t block =
        n_tokens <= SMALL_M ? n_rows : BLOCK_L1 / (w->q_stride + 1) + 1;

    for (size_t r = 0; r < n_rows; r += block)
        for (size_t t = 0; t < n_tokens; t += SMALL_M) {
            const struct row first = row_at(w, r, 0);
            struct affine rows = *w;
            struct q8 tokens = *x;

            rows.q = first.q;
            rows.scales = first.scales;
            rows.biases = first.biases;
            tokens.q += t * x->ldq;
            tokens.scale += t * x->ldg;
            tokens.sum += t * x->ldg;
            multiply(y + t * ldy + r, ldy, &rows, &tokens,
                     n_rows - r < block ? n_rows - r : block, n_cols,
                     n_tokens - t < SMALL_M ? n_tokens - t : SMALL_M, add);
        }
}

/* q8_several for codes of 4 bits. ld is n_cols rounded up to 128; pairs has
 * PAIRS_BYTES. */
static void q4_several(float *y, size_t ldy, const struct affine *w,
                       const struct q8 *x, size_t n_rows, size_t n_cols,
                       size_t n_tokens, bool add, size_t ld, int8_t *pairs)
{
    struct q8 split = *x;

    split.q = pairs;
    split.ldq = ld;
    for (size_t t = 0; t < n_tokens; t++)
        split_pairs(pairs + t * ld, x->q + t * x->ldq, n_cols);
    q8_several(y, ldy, w, &split, n_rows, n_cols, n_tokens, add,
               q4_small_m[code_width(w) == E2M1][group_index(w->group)]);
}

static void k_gemm_q8_affine_avx512(float *y, size_t ldy,
                                    const struct affine *w, const struct q8 *x,
                                    size_t n_rows, size_t n_cols,
                                    size_t n_tokens, bool add, float *work)
{
    const size_t ld = (n_cols + 127) / 128 * 128;

    for (size_t t = 0; n_cols == 0 && !add && t < n_tokens; t++)
        memset(y + t * ldy, 0, n_rows * sizeof *y);
    if (n_cols == 0)
        return;
    if (q8_batch_takes(w, n_cols, n_tokens))
        q8_batch(y, ldy, w, x, n_rows, n_cols, n_tokens, add, work);
    else if (n_tokens < kernel_core.q8_panels_min && w->bits == 4 &&
             n_tokens * ld <= PAIRS_BYTES)
        q4_several(y, ldy, w, x, n_rows, n_cols, n_tokens, add, ld,
                   (int8_t *)work);
    else if (n_tokens < kernel_core.q8_panels_min)
        q8_several(y, ldy, w, x, n_rows, n_cols, n_tokens, add,
                   q8_small_m[code_width(w)][group_index(w->group)]);
    else
        q8_many(y, ldy, w, x, n_rows, n_cols, n_tokens, add, work);
}

/* ---- measuring ---------------------------------------------------------- */

static double k_peak_q8_avx512(size_t reps, float *sink)
{
    enum { CHAINS = 24, STEPS = 3255 }; /* 128 * CHAINS * STEPS is near 1e7 */
    const __m512i w = _mm512_set1_epi32(0x05040302);
    const __m512i x = _mm512_set1_epi32((int)0xff01fe02);
    sums a[CHAINS];

    _Pragma("GCC unroll 24") for (int i = 0; i < CHAINS; i++) a[i] =
        no_sums() + i;
    for (size_t s = 0; s < reps * STEPS; s++) {
        _Pragma("GCC unroll 24") for (int i = 0; i < CHAINS; i++) a[i] =
            dot4(a[i], w, x);
    }
    _Pragma("GCC unroll 24") for (int i = 1; i < CHAINS; i++) a[0] =
        a[0] + a[i];
    *sink = (float)_mm512_reduce_add_epi32((__m512i)a[0]);
    return 128.0 * CHAINS * STEPS * (double)reps;
}

void k_q8_avx512_init(struct kernels *k)
{
    k->affine_to_f32 = k_affine_to_f32_avx512;
    k->matmul_f32_affine = k_matmul_f32_affine_avx512;
    k->to_q8 = k_to_q8_avx512;
    k->gemm_q8_affine = k_gemm_q8_affine_avx512;
    k->peak_q8 = k_peak_q8_avx512;
}
