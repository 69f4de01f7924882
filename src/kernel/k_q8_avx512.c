/* Kernels for quantized weights on AVX-512 (F, BW, VL, DQ, VNNI): vpdpbusd
 * multiplies four unsigned codes by four signed ones and adds the products to
 * an int32, exactly.
 *
 * Orders of sums. matmul_affine: chunks of columns one after another, in each
 * that of k_avx512.c's products. matmul_q8: lanes of four columns for a single
 * token, lanes of four columns modulo 16 in chunks of columns for a few, one
 * sum a row for many; each takes the groups in their order. */
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernel/k_avx.h"
#include "kernel/k_q8_avx512.h"
#include "kernel/kernel.h"

/* Functions by width and group: name_BITS_GROUP. */
#define BY_GROUP(DEFINE, bits) \
    DEFINE(bits, 32)           \
    DEFINE(bits, 64)           \
    DEFINE(bits, 128)
#define BY_WIDTH(DEFINE) \
    BY_GROUP(DEFINE, 2)  \
    BY_GROUP(DEFINE, 3)  \
    BY_GROUP(DEFINE, 4)  \
    BY_GROUP(DEFINE, 5)  \
    BY_GROUP(DEFINE, 6)  \
    BY_GROUP(DEFINE, 8)
#define OF_WIDTH(name, bits) \
    [bits] = {name##_##bits##_32, name##_##bits##_64, name##_##bits##_128}
/* table[bits][group / 64] */
#define TABLE(name)                                                 \
    {                                                               \
        OF_WIDTH(name, 2), OF_WIDTH(name, 3), OF_WIDTH(name, 4),    \
            OF_WIDTH(name, 5), OF_WIDTH(name, 6), OF_WIDTH(name, 8) \
    }

/* ---- f32 ---------------------------------------------------------------- */

/* Columns of matmul_affine that are widened at a time, for ROWS rows. */
enum { CHUNK = 1024, ROWS = 4 };

/* A row from some column on. */
struct row {
    const unsigned char *q, *scales, *biases;
    enum dtype type;
};

INLINE struct row row_at(const struct affine *w, size_t r, size_t k)
{
    const size_t g = k / w->group * type_bytes(w->sb_type);

    return (struct row){w->q + r * w->q_stride + k * (size_t)w->bits / 8,
                        w->scales + r * w->sb_stride + g,
                        w->biases + r * w->sb_stride + g, w->sb_type};
}

/* Codes [16 * j, 16 * j + 16) of 64. */
INLINE __m128i sixteen(__m512i codes, int j)
{
    return j == 0   ? _mm512_castsi512_si128(codes)
           : j == 1 ? _mm512_extracti32x4_epi32(codes, 1)
           : j == 2 ? _mm512_extracti32x4_epi32(codes, 2)
                    : _mm512_extracti32x4_epi32(codes, 3);
}

/* Those as numbers; scales and biases belong to the 64 codes. */
INLINE __m512 widen16(__m512i codes, int j, const float *scales,
                      const float *biases, size_t group)
{
    const size_t g = 16 * (size_t)j / group;
    __m512 v = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(sixteen(codes, j)));

    v = _mm512_mul_ps(v, _mm512_set1_ps(scales[g]));
    return _mm512_add_ps(v, _mm512_set1_ps(biases[g]));
}

/* n columns to out; or, if dot, their products with x to a. */
INLINE void widen_row(float *out, __m512 a[2], const float *x, struct row w,
                      size_t n, int bits, size_t group, bool dot)
{
    _Alignas(64) float scales[16], biases[16];

    for (size_t k0 = 0; k0 < n; k0 += 16 * group) {
        const size_t end = n - k0 < 16 * group ? n : k0 + 16 * group;
        const __mmask16 m = first_lanes((end - k0) / group);

        _mm512_store_ps(scales, load_numbers(w.scales, m, w.type));
        _mm512_store_ps(biases, load_numbers(w.biases, m, w.type));
        w.scales += 16 * type_bytes(w.type);
        w.biases += 16 * type_bytes(w.type);
        for (size_t k = k0; k < end; k += 64, w.q += 8 * bits) {
            const size_t g = (k - k0) / group;
            const bool half = end - k < 64;
            const __m512i codes = unpack(w.q, bits, half);

            _mm_prefetch(w.q + AHEAD, _MM_HINT_T0);
            UNROLL
            for (int j = 0; j < 4; j++) {
                const size_t at = k + 16 * (size_t)j;
                __m512 v;

                if (j == 2 && half)
                    break;
                v = widen16(codes, j, scales + g, biases + g, group);
                if (!dot)
                    _mm512_storeu_ps(out + at, v);
                else
                    a[j % 2] =
                        _mm512_fmadd_ps(v, _mm512_loadu_ps(x + at), a[j % 2]);
            }
        }
    }
}

/* The last step of k_avx512.c's sums. */
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

static void (*const wideners[9][3])(float *, struct row, size_t) = TABLE(widen);
static float (*const dots[9][3])(const float *, struct row,
                                 size_t) = TABLE(dot);

static void k_affine_to_f32_avx512(float *out, const struct affine *w,
                                   size_t n_rows, size_t n_cols)
{
    for (size_t r = 0; r < n_rows; r++)
        wideners[w->bits][w->group / 64](out + r * n_cols, row_at(w, r, 0),
                                         n_cols);
}

/* R widened rows of a chunk by T tokens. */
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

/* nr widened rows of a chunk by T tokens. */
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

static void k_matmul_affine_avx512(float *y, size_t ldy, const struct affine *w,
                                   const float *x, size_t ldx, size_t n_rows,
                                   size_t n_cols, size_t n_tokens)
{
    _Alignas(64) float wide[ROWS * CHUNK];

    for (size_t t = 0; n_cols == 0 && t < n_tokens; t++)
        memset(y + t * ldy, 0, n_rows * sizeof *y);
    for (size_t r = 0; r < n_rows; r += ROWS) {
        const size_t nr = n_rows - r < ROWS ? n_rows - r : ROWS;

        if (n_tokens == 1) {
            for (size_t i = r; i < r + nr; i++)
                for (size_t k = 0; k < n_cols; k += CHUNK) {
                    const size_t n = n_cols - k < CHUNK ? n_cols - k : CHUNK;
                    float s =
                        dots[w->bits][w->group / 64](x + k, row_at(w, i, k), n);

                    y[i] = k == 0 ? s : y[i] + s;
                }
            continue;
        }
        for (size_t k = 0; k < n_cols; k += CHUNK) {
            const size_t n = n_cols - k < CHUNK ? n_cols - k : CHUNK;

            for (size_t i = 0; i < nr; i++)
                wideners[w->bits][w->group / 64](wide + i * CHUNK,
                                                 row_at(w, r + i, k), n);
            f32_chunk(y + r, ldy, wide, x + k, ldx, n, nr, n_tokens, k == 0);
        }
    }
}

/* ---- rounding activations ----------------------------------------------- */

/* One group, operation by operation that of k_q8_ref.c. */
INLINE void round_group(int8_t *q, float *scale, float *sum, const float *x,
                        size_t n)
{
    const __m512 limit = _mm512_set1_ps(127);
    __m512 top = _mm512_setzero_ps(), by;
    __m512i total = _mm512_setzero_si512();
    float most;

    /* of a comparison with NaN both instructions return the second operand */
    for (size_t i = 0; i < n; i += 16)
        top = _mm512_max_ps(_mm512_abs_ps(_mm512_loadu_ps(x + i)), top);
    most = max_lanes8(_mm256_max_ps(_mm512_castps512_ps256(top),
                                    _mm512_extractf32x8_ps(top, 1)));
    *scale = most / 127;
    by = _mm512_set1_ps(most > 0 ? 127 / most : 0);
    for (size_t i = 0; i < n; i += 16) {
        __m512 v = _mm512_mul_ps(_mm512_loadu_ps(x + i), by);
        __m512i c;

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
    const size_t group = out->group;

    for (size_t t = 0; t < n_tokens; t++) {
        int8_t *q = out->q + t * out->ldq;
        const float *xt = x + t * ldx;
        const size_t at = t * out->ldg;

        for (size_t g = 0; g < n_cols / group; g++)
            round_group(q + g * group, out->scale + at + g, out->sum + at + g,
                        xt + g * group, group);
        memset(q + n_cols, 0, out->ldq - n_cols);
    }
}

/* ---- one token ---------------------------------------------------------- */

/* Factors of two groups of 32 for the lanes of 64 columns. */
INLINE __m512 two_factors(const float *f)
{
    return _mm512_insertf32x8(_mm512_set1_ps(f[0]), _mm256_set1_ps(f[1]), 1);
}

/* One row. Groups are taken by 16: their factors fill a vector. */
INLINE float q8_row(struct row w, const int8_t *x, const float *x_scale,
                    const float *x_sum, size_t n, int bits, size_t group)
{
    _Alignas(64) float f[16];
    const size_t number = type_bytes(w.type);
    const __m512i zero = _mm512_setzero_si512();
    __m512 bias = _mm512_setzero_ps(), a[2] = {bias, bias};

    for (size_t k0 = 0; k0 < n; k0 += 16 * group) {
        const size_t left = n - k0 < 16 * group ? n - k0 : 16 * group;
        const __mmask16 m = first_lanes(left / group);
        const size_t g = k0 / group;
        size_t k = 0;

        _mm_prefetch(w.scales + AHEAD / 8, _MM_HINT_T0);
        _mm_prefetch(w.biases + AHEAD / 8, _MM_HINT_T0);
        _mm512_store_ps(f,
                        _mm512_mul_ps(load_numbers(w.scales, m, w.type),
                                      _mm512_maskz_loadu_ps(m, x_scale + g)));
        bias = _mm512_fmadd_ps(load_numbers(w.biases, m, w.type),
                               _mm512_maskz_loadu_ps(m, x_sum + g), bias);
        w.scales += 16 * number;
        w.biases += 16 * number;
        for (; left - k >= 128; k += 128) {
            __m512i d[2];

            UNROLL
            for (size_t i = 0; i < 2; i++) {
                const unsigned char *p = w.q + 8 * i * (size_t)bits;
                const __m512i v = unpack(p, bits, false);

                if (i == 0 || bits > 4)
                    _mm_prefetch(p + AHEAD, _MM_HINT_T0);
                d[i] =
                    _mm512_dpbusd_epi32(group == 128 && i == 1 ? d[0] : zero, v,
                                        _mm512_load_si512(x + k0 + k + 64 * i));
                if (group == 128 && i == 0)
                    continue;
                a[i] = _mm512_fmadd_ps(
                    _mm512_cvtepi32_ps(d[i]),
                    group == 32 ? two_factors(f + (k + 64 * i) / 32)
                                : _mm512_set1_ps(f[(k + 64 * i) / group]),
                    a[i]);
            }
            w.q += 16 * bits;
        }
        for (; k < left; k += 64, w.q += 8 * bits) {
            const __m512i v = unpack(w.q, bits, left - k < 64);
            const __m512i d =
                _mm512_dpbusd_epi32(zero, v, _mm512_load_si512(x + k0 + k));

            a[0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(d),
                                   group == 32 ? two_factors(f + k / 32)
                                               : _mm512_set1_ps(f[k / group]),
                                   a[0]);
        }
    }
    a[0] = _mm512_add_ps(_mm512_add_ps(a[0], a[1]), bias);
    return sum_lanes(fold16(a[0]));
}

#define Q8_ROWS(bits, group)                                                  \
    static void q8_rows_##bits##_##group(float *y, const struct affine *w,    \
                                         const struct q8 *x, size_t n_rows,   \
                                         size_t n_cols, bool add)             \
    {                                                                         \
        for (size_t r = 0; r < n_rows; r++) {                                 \
            float s = q8_row(row_at(w, r, 0), x->q, x->scale, x->sum, n_cols, \
                             bits, group);                                    \
                                                                              \
            y[r] = add ? y[r] + s : s;                                        \
        }                                                                     \
    }

BY_WIDTH(Q8_ROWS)

static void (*const q8_rows[9][3])(float *, const struct affine *,
                                   const struct q8 *, size_t, size_t,
                                   bool) = TABLE(q8_rows);

/* ---- a few tokens ------------------------------------------------------- */

/* FEW_ROWS rows at a time, one in each 128-bit lane; FEW_COLS columns of them
 * are unpacked at a time, for all tokens, FEW_MAX of those at a time. */
enum { FEW_ROWS = 4, FEW_COLS = 2048, FEW_MAX = 8 };

struct few {
    _Alignas(64) uint8_t codes[FEW_ROWS * FEW_COLS]; /* [16 columns][row][16] */
    float scales[FEW_ROWS * FEW_COLS / 32];          /* [4 groups][row][4] */
    float biases[FEW_ROWS * FEW_COLS / 32];
    size_t n_vectors; /* of 16 columns */
    size_t n_groups;
};

INLINE void few_codes(struct few *f, const struct row w[FEW_ROWS],
                      size_t n_cols, const size_t ahead, int bits)
{
    __m512i *to = (__m512i *)f->codes;
    size_t at = 0;

    for (size_t k = 0; k < n_cols; k += 64, to += 4, at += 8 * (size_t)bits) {
        __m512i v[FEW_ROWS];

        UNROLL
        for (int r = 0; r < FEW_ROWS; r++) {
            v[r] = unpack(w[r].q + at, bits, n_cols - k < 64);
            if (bits > 4 || k % 128 == 0)
                _mm_prefetch(w[r].q + at + ahead, _MM_HINT_T0);
        }
        transpose4(v);
        UNROLL
        for (int r = 0; r < FEW_ROWS; r++)
            _mm512_store_si512(to + r, v[r]);
    }
}

#define FEW_CODES(bits)                                                       \
    static void few_codes_##bits(struct few *f, const struct row w[FEW_ROWS], \
                                 size_t n_cols, size_t ahead)                 \
    {                                                                         \
        few_codes(f, w, n_cols, ahead, bits);                                 \
    }

FEW_CODES(2)
FEW_CODES(3)
FEW_CODES(4)
FEW_CODES(5)
FEW_CODES(6)
FEW_CODES(8)

static void (*const few_unpackers[9])(struct few *, const struct row[FEW_ROWS],
                                      size_t, size_t) = {
    [2] = few_codes_2, [3] = few_codes_3, [4] = few_codes_4,
    [5] = few_codes_5, [6] = few_codes_6, [8] = few_codes_8};

/* Scales and biases: rows in lanes, four groups each. */
INLINE void few_numbers(struct few *f, const struct row w[FEW_ROWS])
{
    const size_t number = type_bytes(w->type);

    for (size_t g = 0; g < f->n_groups; g += 16) {
        const __mmask16 m = first_lanes(f->n_groups - g);
        __m512i s[FEW_ROWS], b[FEW_ROWS];

        UNROLL
        for (int r = 0; r < FEW_ROWS; r++) {
            s[r] = _mm512_castps_si512(
                load_numbers(w[r].scales + g * number, m, w->type));
            b[r] = _mm512_castps_si512(
                load_numbers(w[r].biases + g * number, m, w->type));
        }
        transpose4(s);
        transpose4(b);
        UNROLL
        for (size_t i = 0; i < 4; i++) {
            _mm512_store_si512(f->scales + (g + 4 * i) * FEW_ROWS, s[i]);
            _mm512_store_si512(f->biases + (g + 4 * i) * FEW_ROWS, b[i]);
        }
    }
}

/* What meets a chunk: T tokens. */
struct few_x {
    const int8_t *q;
    const float *scale, *sum;
    size_t ldq, ldg;
};

/* Group j of four, of each row to its lane. */
INLINE __m512 lane_factors(__m512 v, size_t j)
{
    return j == 0   ? _mm512_permute_ps(v, 0x00)
           : j == 1 ? _mm512_permute_ps(v, 0x55)
           : j == 2 ? _mm512_permute_ps(v, 0xaa)
                    : _mm512_permute_ps(v, 0xff);
}

/* nr rows of a chunk by T tokens. */
INLINE void few_tile(float *y, size_t ldy, const struct few *f, struct few_x x,
                     size_t nr, int T, bool resume)
{
    const size_t per_group = f->n_vectors / f->n_groups;
    const __m512i *w = (const __m512i *)f->codes;
    __m512 a[FEW_MAX];

    UNROLL
    for (int t = 0; t < T; t++)
        a[t] = _mm512_setzero_ps();
    for (size_t g = 0; g < f->n_groups; g += 4) {
        const __m512 scales = _mm512_load_ps(f->scales + g * FEW_ROWS);
        const __m512 biases = _mm512_load_ps(f->biases + g * FEW_ROWS);
        const __mmask8 m =
            (__mmask8)(f->n_groups - g >= 4 ? 15
                                            : (1 << (f->n_groups - g)) - 1);

        UNROLL
        for (int t = 0; t < T; t++) {
            const float *sum = x.sum + (size_t)t * x.ldg + g;

            a[t] = _mm512_fmadd_ps(
                biases, _mm512_broadcast_f32x4(_mm_maskz_loadu_ps(m, sum)),
                a[t]);
        }
        UNROLL
        for (size_t j = 0; j < 4; j++) {
            const __m512 factors = lane_factors(scales, j);
            __m512i d[FEW_MAX];

            if (g + j >= f->n_groups)
                break;
            UNROLL
            for (int t = 0; t < T; t++)
                d[t] = _mm512_setzero_si512();
            for (size_t i = 0; i < per_group; i++, w++, x.q += 16) {
                const __m512i v = _mm512_load_si512(w);

                UNROLL
                for (int t = 0; t < T; t++)
                    d[t] = _mm512_dpbusd_epi32(
                        d[t], v,
                        _mm512_broadcast_i32x4(_mm_load_si128(
                            (const void *)(x.q + (size_t)t * x.ldq))));
            }
            UNROLL
            for (int t = 0; t < T; t++) {
                const float *scale = x.scale + (size_t)t * x.ldg + g + j;

                a[t] = _mm512_fmadd_ps(
                    _mm512_cvtepi32_ps(d[t]),
                    _mm512_mul_ps(factors, _mm512_set1_ps(*scale)), a[t]);
            }
        }
    }
    UNROLL
    for (int t = 0; t < T; t++) {
        const __m512i lanes =
            _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
        const __mmask8 m = (__mmask8)((1u << nr) - 1);
        float *to = y + (size_t)t * ldy;
        __m512 s = _mm512_add_ps(a[t], _mm512_permute_ps(a[t], 0x4e));
        __m128 v;

        s = _mm512_add_ps(s, _mm512_permute_ps(s, 0xb1));
        v = _mm512_castps512_ps128(_mm512_permutexvar_ps(lanes, s));
        if (resume)
            v = _mm_add_ps(v, _mm_maskz_loadu_ps(m, to));
        _mm_mask_storeu_ps(to, m, v);
    }
}

#define FEW_TILE(T)                                                         \
    static void few_tile_##T(float *y, size_t ldy, const struct few *f,     \
                             const struct few_x *x, size_t nr, bool resume) \
    {                                                                       \
        few_tile(y, ldy, f, *x, nr, T, resume);                             \
    }

FEW_TILE(1)
FEW_TILE(2)
FEW_TILE(3)
FEW_TILE(4)
FEW_TILE(5)
FEW_TILE(6)
FEW_TILE(7)
FEW_TILE(8)

static void (*const few_tiles[FEW_MAX])(float *, size_t, const struct few *,
                                        const struct few_x *, size_t, bool) = {
    few_tile_1, few_tile_2, few_tile_3, few_tile_4,
    few_tile_5, few_tile_6, few_tile_7, few_tile_8};

static void q8_few(float *y, size_t ldy, const struct affine *w,
                   const struct q8 *x, size_t n_rows, size_t n_cols,
                   size_t n_tokens, bool add)
{
    /* whole blocks of rows ahead */
    const size_t block = FEW_ROWS * w->q_stride;
    const size_t ahead = (AHEAD + block - 1) / (block + 1) * block + block;
    struct few f;

    for (size_t r = 0; r < n_rows; r += FEW_ROWS) {
        const size_t nr = n_rows - r < FEW_ROWS ? n_rows - r : FEW_ROWS;

        for (size_t k = 0; k < n_cols; k += FEW_COLS) {
            const size_t n = n_cols - k < FEW_COLS ? n_cols - k : FEW_COLS;
            struct row rows[FEW_ROWS];

            for (size_t i = 0; i < FEW_ROWS; i++)
                rows[i] = row_at(w, i < nr ? r + i : r, k);
            f.n_vectors = n / 16;
            f.n_groups = n / w->group;
            few_unpackers[w->bits](&f, rows, n, ahead);
            few_numbers(&f, rows);
            for (size_t t = 0; t < n_tokens; t += FEW_MAX) {
                const size_t T =
                    n_tokens - t < FEW_MAX ? n_tokens - t : FEW_MAX;
                const size_t g = t * x->ldg + k / w->group;
                struct few_x part = {.q = x->q + t * x->ldq + k,
                                     .scale = x->scale + g,
                                     .sum = x->sum + g,
                                     .ldq = x->ldq,
                                     .ldg = x->ldg};

                few_tiles[T - 1](y + t * ldy + r, ldy, &f, &part, nr,
                                 add || k > 0);
            }
        }
    }
}

/* ---- many tokens -------------------------------------------------------- */

/* A tile is VECTORS * 16 rows of weights by TOKENS tokens: 12 accumulators of
 * a group and 12 of all, weights and one broadcast quadruple in registers.
 * A panel is those rows by COLS columns: 16 KiB and as much as that of scales
 * and biases at most; L1 keeps it for SWEEP tokens. */
enum {
    VECTORS = 4,
    PANEL_ROWS = 16 * VECTORS,
    TOKENS = 3,
    COLS = 256,
    SWEEP = 512
};

struct panel {
    _Alignas(64) uint32_t codes[PANEL_ROWS * COLS / 4]; /* [4 columns][row] */
    float scales[PANEL_ROWS * 16];                      /* [group][row] */
    float biases[PANEL_ROWS * 16];
};

INLINE void panel_codes(uint32_t *out, const struct affine *w, size_t r,
                        size_t k, size_t nr, size_t nk, int bits)
{
    for (size_t r0 = 0; r0 < nr; r0 += 16)
        for (size_t k0 = 0; k0 < nk; k0 += 64) {
            const unsigned char *from = row_at(w, r + r0, k + k0).q;
            uint32_t *to = out + k0 / 4 * PANEL_ROWS + r0;
            __m512i v[16];

            UNROLL
            for (size_t i = 0; i < 16; i++)
                v[i] = r0 + i < nr
                           ? unpack(from + i * w->q_stride, bits, nk - k0 < 64)
                           : _mm512_setzero_si512();
            transpose16(v);
            UNROLL
            for (size_t i = 0; i < 16; i++)
                _mm512_store_si512(to + i * PANEL_ROWS, v[i]);
        }
}

#define PANEL_CODES(bits)                                                    \
    static void panel_codes_##bits(uint32_t *out, const struct affine *w,    \
                                   size_t r, size_t k, size_t nr, size_t nk) \
    {                                                                        \
        panel_codes(out, w, r, k, nr, nk, bits);                             \
    }

PANEL_CODES(2)
PANEL_CODES(3)
PANEL_CODES(4)
PANEL_CODES(5)
PANEL_CODES(6)
PANEL_CODES(8)

static void (*const panel_unpackers[9])(uint32_t *, const struct affine *,
                                        size_t, size_t, size_t, size_t) = {
    [2] = panel_codes_2, [3] = panel_codes_3, [4] = panel_codes_4,
    [5] = panel_codes_5, [6] = panel_codes_6, [8] = panel_codes_8};

/* At most 16 groups. */
static void panel_numbers(float *out, const unsigned char *from,
                          const struct affine *w, size_t nr, size_t n_groups)
{
    const __mmask16 m = first_lanes(n_groups);

    for (size_t r0 = 0; r0 < nr; r0 += 16) {
        __m512i v[16];

        UNROLL
        for (size_t i = 0; i < 16; i++)
            v[i] = _mm512_castps_si512(
                r0 + i < nr ? load_numbers(from + (r0 + i) * w->sb_stride, m,
                                           w->sb_type)
                            : _mm512_setzero_ps());
        transpose16(v);
        UNROLL
        for (size_t i = 0; i < 16; i++)
            if (i < n_groups)
                _mm512_store_si512(out + i * PANEL_ROWS + r0, v[i]);
    }
}

/* One panel by T tokens. */
struct tile {
    const struct panel *panel;
    size_t nr, n_groups, group;
    const int8_t *x;
    const float *x_scale, *x_sum;
    size_t ldq, ldg;
    float *y;
    size_t ldy;
    bool resume; /* sums start with what y holds, else with 0 */
};

INLINE void tile_run(const struct tile *s, int V, int T)
{
    const uint32_t *w = s->panel->codes;
    const float *scales = s->panel->scales, *biases = s->panel->biases;
    const size_t quads = s->group / 4, ldq = s->ldq;
    const int8_t *x = s->x;
    __m512 a[TOKENS][VECTORS];
    __mmask16 m[VECTORS];

    UNROLL
    for (int v = 0; v < V; v++)
        m[v] = first_lanes(s->nr - 16 * (size_t)v);
    UNROLL
    for (int t = 0; t < T; t++) {
        UNROLL
        for (int v = 0; v < V; v++)
            a[t][v] = s->resume ? _mm512_maskz_loadu_ps(
                                      m[v], s->y + (size_t)t * s->ldy + 16 * v)
                                : _mm512_setzero_ps();
    }
    for (size_t g = 0; g < s->n_groups; g++) {
        __m512i d[TOKENS][VECTORS];

        UNROLL
        for (int t = 0; t < T; t++) {
            UNROLL
            for (int v = 0; v < V; v++)
                d[t][v] = _mm512_setzero_si512();
        }
        for (size_t q = 0; q < quads; q++, w += PANEL_ROWS, x += 4) {
            __m512i wv[VECTORS];

            UNROLL
            for (int v = 0; v < V; v++)
                wv[v] = _mm512_load_si512(w + 16 * v);
            UNROLL
            for (int t = 0; t < T; t++) {
                int four;
                __m512i xv;

                memcpy(&four, x + (size_t)t * ldq, 4);
                xv = _mm512_set1_epi32(four);
                UNROLL
                for (int v = 0; v < V; v++)
                    d[t][v] = _mm512_dpbusd_epi32(d[t][v], wv[v], xv);
            }
        }
        UNROLL
        for (int t = 0; t < T; t++) {
            const size_t at = (size_t)t * s->ldg + g;
            const __m512 scale = _mm512_set1_ps(s->x_scale[at]);
            const __m512 sum = _mm512_set1_ps(s->x_sum[at]);

            UNROLL
            for (int v = 0; v < V; v++) {
                __m512 f =
                    _mm512_mul_ps(_mm512_load_ps(scales + 16 * v), scale);

                a[t][v] =
                    _mm512_fmadd_ps(_mm512_cvtepi32_ps(d[t][v]), f, a[t][v]);
                a[t][v] = _mm512_fmadd_ps(_mm512_load_ps(biases + 16 * v), sum,
                                          a[t][v]);
            }
        }
        scales += PANEL_ROWS;
        biases += PANEL_ROWS;
    }
    UNROLL
    for (int t = 0; t < T; t++) {
        UNROLL
        for (int v = 0; v < V; v++)
            _mm512_mask_storeu_ps(s->y + (size_t)t * s->ldy + 16 * v, m[v],
                                  a[t][v]);
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
    TILE(V, 3)

TILES(1)
TILES(2)
TILES(3)
TILES(4)

static void (*const tiles[VECTORS][TOKENS])(const struct tile *) = {
    {tile_1_1, tile_1_2, tile_1_3},
    {tile_2_1, tile_2_2, tile_2_3},
    {tile_3_1, tile_3_2, tile_3_3},
    {tile_4_1, tile_4_2, tile_4_3}};

static void q8_many(float *y, size_t ldy, const struct affine *w,
                    const struct q8 *x, size_t n_rows, size_t n_cols,
                    size_t n_tokens, bool add)
{
    struct panel p;

    for (size_t t0 = 0; t0 < n_tokens; t0 += SWEEP)
        for (size_t r = 0; r < n_rows; r += PANEL_ROWS)
            for (size_t k = 0; k < n_cols; k += COLS) {
                const size_t nk = n_cols - k < COLS ? n_cols - k : COLS;
                const size_t end =
                    n_tokens - t0 < SWEEP ? n_tokens : t0 + SWEEP;
                const struct row first = row_at(w, r, k);
                struct tile s = {.panel = &p,
                                 .nr = n_rows - r < PANEL_ROWS ? n_rows - r
                                                               : PANEL_ROWS,
                                 .n_groups = nk / w->group,
                                 .group = w->group,
                                 .ldq = x->ldq,
                                 .ldg = x->ldg,
                                 .ldy = ldy,
                                 .resume = add || k > 0};

                panel_unpackers[w->bits](p.codes, w, r, k, s.nr, nk);
                panel_numbers(p.scales, first.scales, w, s.nr, s.n_groups);
                panel_numbers(p.biases, first.biases, w, s.nr, s.n_groups);
                for (size_t t = t0; t < end; t += TOKENS) {
                    const size_t T = end - t < TOKENS ? end - t : TOKENS;

                    s.x = x->q + t * x->ldq + k;
                    s.x_scale = x->scale + t * x->ldg + k / w->group;
                    s.x_sum = x->sum + t * x->ldg + k / w->group;
                    s.y = y + t * ldy + r;
                    tiles[(s.nr - 1) / 16][T - 1](&s);
                }
            }
}

/* ---- the product -------------------------------------------------------- */

/* From so many tokens on q8_many is the faster. */
enum { MANY = 32 };

static void k_matmul_q8_avx512(float *y, size_t ldy, const struct affine *w,
                               const struct q8 *x, size_t n_rows, size_t n_cols,
                               size_t n_tokens, bool add)
{
    for (size_t t = 0; n_cols == 0 && !add && t < n_tokens; t++)
        memset(y + t * ldy, 0, n_rows * sizeof *y);
    if (n_cols == 0)
        return;
    if (n_tokens == 1)
        q8_rows[w->bits][w->group / 64](y, w, x, n_rows, n_cols, add);
    else if (n_tokens < MANY)
        q8_few(y, ldy, w, x, n_rows, n_cols, n_tokens, add);
    else
        q8_many(y, ldy, w, x, n_rows, n_cols, n_tokens, add);
}

/* ---- measuring ---------------------------------------------------------- */

static double k_peak_q8_avx512(size_t reps, float *sink)
{
    enum { CHAINS = 24, STEPS = 3255 }; /* 128 * CHAINS * STEPS is near 1e7 */
    const __m512i w = _mm512_set1_epi32(0x05040302);
    const __m512i x = _mm512_set1_epi32((int)0xff01fe02);
    __m512i a[CHAINS];

    _Pragma("GCC unroll 24") for (int i = 0; i < CHAINS; i++) a[i] =
        _mm512_set1_epi32(i);
    for (size_t s = 0; s < reps * STEPS; s++) {
        _Pragma("GCC unroll 24") for (int i = 0; i < CHAINS; i++) a[i] =
            _mm512_dpbusd_epi32(a[i], w, x);
    }
    _Pragma("GCC unroll 24") for (int i = 1; i < CHAINS; i++) a[0] =
        _mm512_add_epi32(a[0], a[i]);
    *sink = (float)_mm512_reduce_add_epi32(a[0]);
    return 128.0 * CHAINS * STEPS * (double)reps;
}

void k_q8_avx512_init(struct kernels *k)
{
    k->affine_to_f32 = k_affine_to_f32_avx512;
    k->matmul_affine = k_matmul_affine_avx512;
    k->to_q8 = k_to_q8_avx512;
    k->matmul_q8 = k_matmul_q8_avx512;
    k->peak_q8 = k_peak_q8_avx512;
}
