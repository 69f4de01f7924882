/* Kernels for AVX-512 (F, BW, VL, DQ).
 *
 * Order of sums of a product, that of k_avx2.c: lanes 0..7 and 8..15 of
 * accumulator 0 are its accumulators 0 and 1, those of accumulator 1 are 2
 * and 3. Attention has its own, 16 lanes in one accumulator. */
#include <immintrin.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernel/x86/k_avx.h"
#include "kernel/x86/k_zmm.h"
#include "kernel/kernel.h"

/* What k_tiles.h and k_sgemm.h ask for. */
#define KERNEL(name) k_##name##_avx512

typedef __m512 vec;

enum {
    LANES = 16,
    TILE_SUMS = 2,
    MAX_T = 6,
    GEMM_MR = 12,
    GEMM_MID = 4,
    GEMM_NR = 32
};

/* ---- loads of a vector or its first lanes ------------------------------ */

INLINE __m512 widen(__m256i h, enum dtype type)
{
    if (type == DT_F16)
        return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* 16 elements of the type from any address. */
INLINE __m512 load16(const char *p, enum dtype type)
{
    if (type == DT_F32)
        return _mm512_loadu_ps(p);
    if (type == DT_I8)
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(
            _mm_loadu_si128((const __m128i_u *)(const void *)p)));
    return widen(_mm256_loadu_si256((const __m256i_u *)(const void *)p), type);
}

/* Those that m selects, zeros elsewhere; the rest is not touched. */
INLINE __m512 load16_part(const char *p, __mmask16 m, enum dtype type)
{
    if (type == DT_F32)
        return _mm512_maskz_loadu_ps(m, p);
    if (type == DT_I8)
        return _mm512_cvtepi32_ps(
            _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(m, p)));
    return widen(_mm256_maskz_loadu_epi16(m, p), type);
}

/* ---- reductions, in one order ------------------------------------------ */

INLINE float max_lanes(__m512 v)
{
    return max_lanes8(
        _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)));
}

INLINE double sum_lanes_pd(__m512d v)
{
    return sum_lanes4_pd(
        _mm256_add_pd(_mm512_castpd512_pd256(v), _mm512_extractf64x4_pd(v, 1)));
}

INLINE __m512d widen_lo(__m512 v)
{
    return _mm512_cvtps_pd(_mm512_castps512_ps256(v));
}

INLINE __m512d widen_hi(__m512 v)
{
    return _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
}

/* ---- exp ---------------------------------------------------------------- */

/* exp8 of k_avx2.c, operation by operation; vscalefps rounds subnormal results
 * once by itself. */
INLINE __m512 exp16(__m512 x)
{
    const __m512 ln2_hi = _mm512_set1_ps(0x1.62e4p-1f); /* n * it is exact */
    const __m512 ln2_lo = _mm512_set1_ps(0x1.7f7d1cp-20f);
    __m512 n, r, p;

    x = _mm512_min_ps(_mm512_set1_ps(89), x);
    x = _mm512_max_ps(_mm512_set1_ps(-104), x);
    n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p0f)),
                             _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    r = _mm512_fnmadd_ps(n, ln2_hi, x);
    r = _mm512_fnmadd_ps(n, ln2_lo, r);
    p = _mm512_set1_ps(0.00138148398f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.00836859923f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.0416683778f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.166665211f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.49999994f));
    p = _mm512_fmadd_ps(_mm512_mul_ps(r, r), p, r);
    p = _mm512_add_ps(p, _mm512_set1_ps(1));
    return _mm512_scalef_ps(p, n);
}

INLINE float exp1(float x)
{
    return _mm512_cvtss_f32(exp16(_mm512_set1_ps(x)));
}

/* ---- products ----------------------------------------------------------- */

/* One row, one token: a straight sweep, which memory delivers fastest. */
INLINE float dot_row(const char *w, const float *x, size_t n, enum dtype type)
{
    const size_t bytes = type_bytes(type);
    __m512 a0 = _mm512_setzero_ps(), a1 = a0;
    size_t k = 0;

    for (; n - k >= 32; k += 32) {
        const char *p = w + k * bytes;

        sweep(p);
        if (type == DT_F32)
            sweep(p + 64);
        a0 = _mm512_fmadd_ps(load16(p, type), _mm512_loadu_ps(x + k), a0);
        a1 = _mm512_fmadd_ps(load16(p + 16 * bytes, type),
                             _mm512_loadu_ps(x + k + 16), a1);
    }
    if (k < n) {
        __mmask16 m = first_lanes(n - k);

        a0 = _mm512_fmadd_ps(load16_part(w + k * bytes, m, type),
                             _mm512_maskz_loadu_ps(m, x + k), a0);
        k += 16;
    }
    if (k < n) {
        __mmask16 m = first_lanes(n - k);

        a1 = _mm512_fmadd_ps(load16_part(w + k * bytes, m, type),
                             _mm512_maskz_loadu_ps(m, x + k), a1);
    }
    return sum_lanes(_mm256_add_ps(fold16(a0), fold16(a1)));
}

/* Elements of x that are rearranged for rows of bf16 at a time, and rows from
 * which on that pays. */
enum { PAIRS_MAX = 32768, PAIRS_MIN_ROWS = 16 };

_Static_assert(PAIRS_MAX <= KERNEL_WORK, "the caller's memory");

/* x[0..n) by runs of 32, in each the even ones before the odd ones; zeros up to
 * a whole run. */
static void split_pairs(float *out, const float *x, size_t n)
{
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18,
                                           20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));

    for (size_t k = 0; k < n; k += 32) {
        const size_t left = n - k;
        __m512 a = _mm512_maskz_loadu_ps(first_lanes(left), x + k);
        __m512 b = left > 16 ? _mm512_maskz_loadu_ps(first_lanes(left - 16),
                                                     x + k + 16)
                             : _mm512_setzero_ps();

        _mm512_store_ps(out + k, _mm512_permutex2var_ps(a, even, b));
        _mm512_store_ps(out + k + 16, _mm512_permutex2var_ps(a, odd, b));
    }
}

/* 32 elements of a row times x, as split_pairs left it. */
INLINE void add_pairs(__m512 *even, __m512 *odd, __m512i w, const float *x)
{
    const __m512i high = _mm512_set1_epi32((int)0xffff0000);
    __m512 e, o;

    __asm__("" : "+v"(w)); /* one load for both */
    e = _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
    o = _mm512_castsi512_ps(_mm512_and_si512(w, high));
    *even = _mm512_fmadd_ps(e, _mm512_load_ps(x), *even);
    *odd = _mm512_fmadd_ps(o, _mm512_load_ps(x + 16), *odd);
}

/* dot_row on bf16, to the bit: an accumulator's lane sums the same columns,
 * modulo 32, but lies elsewhere until the end. Fewer instructions a line: what
 * a core has under way then reaches further ahead. */
INLINE float dot_pairs(const char *w, const float *x, size_t n, size_t ahead,
                       bool to_l2)
{
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5,
                                          21, 6, 22, 7, 23);
    const __m512i up = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    __m512 even = _mm512_setzero_ps(), odd = even, a0, a1;
    size_t k = 0;

    for (; n - k >= 128; k += 128) {
        UNROLL
        for (size_t i = 0; i < 128; i += 32) {
            const char *p = w + (k + i) * 2;

            sweep_by(p, ahead, to_l2);
            add_pairs(&even, &odd, _mm512_loadu_si512(p), x + k + i);
        }
    }
    for (; n - k >= 32; k += 32) {
        sweep_by(w + k * 2, ahead, to_l2);
        add_pairs(&even, &odd, _mm512_loadu_si512(w + k * 2), x + k);
    }
    if (k < n) {
        const __mmask32 m = ((__mmask32)1 << (n - k)) - 1;

        add_pairs(&even, &odd, _mm512_maskz_loadu_epi16(m, w + k * 2), x + k);
    }
    a0 = _mm512_permutex2var_ps(even, low, odd);
    a1 = _mm512_permutex2var_ps(even, up, odd);
    return sum_lanes(_mm256_add_ps(fold16(a0), fold16(a1)));
}

static void rows_in_pairs(float *y, const char *w, size_t w_bytes,
                          const float *x, size_t n_rows, size_t n, float *pairs)
{
    const size_t ahead = kernel_sweep.ahead;

    split_pairs(pairs, x, n);
    if (kernel_sweep.to_l2)
        for (size_t r = 0; r < n_rows; r++)
            y[r] = dot_pairs(w + r * w_bytes, pairs, n, ahead, true);
    else
        for (size_t r = 0; r < n_rows; r++)
            y[r] = dot_pairs(w + r * w_bytes, pairs, n, ahead, false);
}

/* One token by all rows. */
INLINE void rows_by_one(float *y, const char *w, size_t w_bytes, const float *x,
                        size_t n_rows, size_t n, enum dtype type, float *work)
{
    if (type == DT_BF16 && n_rows >= PAIRS_MIN_ROWS && n <= PAIRS_MAX) {
        rows_in_pairs(y, w, w_bytes, x, n_rows, n, work);
        return;
    }
    for (size_t r = 0; r < n_rows; r++)
        y[r] = dot_row(w + r * w_bytes, x, n, type);
}

/* R rows of w (4 or 1) by T tokens (1 to 3): R * T * TILE_SUMS <= 24 registers.
 * ahead: fetch what follows these rows, for the next ones; NULL: don't. */
INLINE void tile(float *y, size_t ldy, const char *w, size_t w_bytes,
                 const float *x, size_t ldx, size_t n, int R, int T,
                 enum dtype type, const char *ahead)
{
    const size_t bytes = type_bytes(type), step = 16 * TILE_SUMS;
    __m512 a[TILE_SUMS][4][3], xv[3], wv;
    size_t k = 0;

    UNROLL
    for (int c = 0; c < TILE_SUMS; c++) {
        UNROLL
        for (int r = 0; r < R; r++) {
            UNROLL
            for (int t = 0; t < T; t++)
                a[c][r][t] = _mm512_setzero_ps();
        }
    }
    for (; n - k >= step; k += step) {
        if (ahead) {
            UNROLL
            for (size_t i = 0; i < (size_t)R * step * bytes; i += 64)
                _mm_prefetch(ahead + i, _MM_HINT_T0);
            ahead += (size_t)R * step * bytes;
        }
        UNROLL
        for (int c = 0; c < TILE_SUMS; c++) {
            const size_t at = k + 16 * (size_t)c;

            UNROLL
            for (int t = 0; t < T; t++)
                xv[t] = _mm512_loadu_ps(x + (size_t)t * ldx + at);
            UNROLL
            for (int r = 0; r < R; r++) {
                wv = load16(w + (size_t)r * w_bytes + at * bytes, type);
                UNROLL
                for (int t = 0; t < T; t++)
                    a[c][r][t] = _mm512_fmadd_ps(wv, xv[t], a[c][r][t]);
            }
        }
    }
    UNROLL
    for (int c = 0; c < TILE_SUMS; c++) {
        const size_t at = k + 16 * (size_t)c;
        __mmask16 m;

        if (at >= n)
            continue;
        m = first_lanes(n - at);
        UNROLL
        for (int t = 0; t < T; t++)
            xv[t] = _mm512_maskz_loadu_ps(m, x + (size_t)t * ldx + at);
        UNROLL
        for (int r = 0; r < R; r++) {
            wv = load16_part(w + (size_t)r * w_bytes + at * bytes, m, type);
            UNROLL
            for (int t = 0; t < T; t++)
                a[c][r][t] = _mm512_fmadd_ps(wv, xv[t], a[c][r][t]);
        }
    }
    UNROLL
    for (int t = 0; t < T; t++) {
        __m256 v[4];

        UNROLL
        for (int r = 0; r < R; r++) {
            v[r] = _mm256_add_ps(fold16(a[0][r][t]), fold16(a[1][r][t]));
        }
        store_sums(y + (size_t)t * ldy, v, R);
    }
}

/* ---- prefill's product without BLAS ------------------------------------- */

/* The first n <= 8 elements, zeros above. */
INLINE __m256 load8_part(const char *p, size_t n, enum dtype type)
{
    return _mm512_castps512_ps256(load16_part(p, first_lanes(n), type));
}

INLINE __m256 load8(const char *p, enum dtype type)
{
    return type == DT_F32 ? _mm256_loadu_ps((const float *)(const void *)p)
                          : load8_part(p, 8, type);
}

#include "kernel/k_sgemm.h"

INLINE void gemm_micro(float *c, size_t ldc, const float *a, size_t lda,
                       const float *panel, size_t kc, size_t nr, int R,
                       bool first)
{
    __m512 s[GEMM_MR][2];
    __mmask16 m[2] = {first_lanes(nr), first_lanes(nr > 16 ? nr - 16 : 0)};

    UNROLL
    for (int i = 0; i < R; i++) {
        s[i][0] = s[i][1] = _mm512_setzero_ps();
        gemm_fetch(c + (size_t)i * ldc, nr);
    }
    UNROLL_SOME
    for (size_t p = 0; p < kc; p++) {
        __m512 b0 = _mm512_load_ps(panel + p * GEMM_NR);
        __m512 b1 = _mm512_load_ps(panel + p * GEMM_NR + 16);

        UNROLL
        for (int i = 0; i < R; i++) {
            __m512 av = _mm512_set1_ps(a[(size_t)i * lda + p]);

            s[i][0] = _mm512_fmadd_ps(av, b0, s[i][0]);
            s[i][1] = _mm512_fmadd_ps(av, b1, s[i][1]);
        }
    }
    UNROLL
    for (int i = 0; i < R; i++) {
        UNROLL
        for (size_t h = 0; h < 2; h++) {
            float *to = c + (size_t)i * ldc + 16 * h;

            if (!first)
                s[i][h] =
                    _mm512_add_ps(s[i][h], _mm512_maskz_loadu_ps(m[h], to));
            _mm512_mask_storeu_ps(to, m[h], s[i][h]);
        }
    }
}

/* ---- conversions -------------------------------------------------------- */

INLINE void to_f32(float *out, const char *in, size_t n, enum dtype type)
{
    size_t i = 0;

    for (; n - i >= 16; i += 16)
        _mm512_storeu_ps(out + i, load16(in + 2 * i, type));
    if (i < n) {
        __mmask16 m = first_lanes(n - i);

        _mm512_mask_storeu_ps(out + i, m, load16_part(in + 2 * i, m, type));
    }
}

INLINE __m256i narrow(__m512 v, enum dtype type)
{
    __m512i u, odd, rounded;

    if (type == DT_F16)
        return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
    u = _mm512_castps_si512(v);
    odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    rounded =
        _mm512_add_epi32(_mm512_add_epi32(u, odd), _mm512_set1_epi32(0x7fff));
    rounded =
        _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), u,
                             _mm512_set1_epi32(0x00400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

INLINE void from_f32(char *out, const float *in, size_t n, enum dtype type)
{
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 m = first_lanes(n - i);

        _mm256_mask_storeu_epi16(
            out + 2 * i, m, narrow(_mm512_maskz_loadu_ps(m, in + i), type));
    }
}

/* ---- element-wise ------------------------------------------------------- */

/* Tails go through the same vector operations, so that the place of an element
 * in the call does not change its value. */

static void k_rmsnorm_avx512(float *out, const float *x, const float *w,
                             size_t n_rows, size_t d, float eps)
{
    for (size_t r = 0; r < n_rows; r++, x += d, out += d) {
        /* squares in double: none overflows */
        __m512d a0 = _mm512_setzero_pd(), a1 = a0;
        __m512 scale;

        for (size_t i = 0; i < d; i += 16) {
            __m512 v = _mm512_maskz_loadu_ps(first_lanes(d - i), x + i);
            __m512d lo = widen_lo(v), hi = widen_hi(v);

            a0 = _mm512_fmadd_pd(lo, lo, a0);
            a1 = _mm512_fmadd_pd(hi, hi, a1);
        }
        scale = _mm512_set1_ps(
            (float)(1 / sqrt(sum_lanes_pd(_mm512_add_pd(a0, a1)) / (double)d +
                             (double)eps)));
        for (size_t i = 0; i < d; i += 16) {
            __mmask16 m = first_lanes(d - i);
            __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + i), scale);

            _mm512_mask_storeu_ps(
                out + i, m, _mm512_mul_ps(_mm512_maskz_loadu_ps(m, w + i), v));
        }
    }
}

static void k_rope_avx512(float *x, size_t n_rows, size_t d, const float *cos,
                          const float *sin)
{
    size_t h = d / 2;

    for (size_t r = 0; r < n_rows; r++, x += d)
        for (size_t i = 0; i < h; i += 16) {
            __mmask16 m = first_lanes(h - i);
            __m512 a = _mm512_maskz_loadu_ps(m, x + i);
            __m512 b = _mm512_maskz_loadu_ps(m, x + i + h);
            __m512 c = _mm512_maskz_loadu_ps(m, cos + i);
            __m512 s = _mm512_maskz_loadu_ps(m, sin + i);

            _mm512_mask_storeu_ps(x + i, m,
                                  _mm512_fnmadd_ps(b, s, _mm512_mul_ps(a, c)));
            _mm512_mask_storeu_ps(x + i + h, m,
                                  _mm512_fmadd_ps(a, s, _mm512_mul_ps(b, c)));
        }
}

static void k_swiglu_avx512(float *out, const float *gate, const float *up,
                            size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 m = first_lanes(n - i);
        __m512 z = _mm512_maskz_loadu_ps(m, gate + i);
        __m512 e = exp16(_mm512_xor_ps(z, _mm512_set1_ps(-0.0f)));
        __m512 v = _mm512_div_ps(z, _mm512_add_ps(_mm512_set1_ps(1), e));

        _mm512_mask_storeu_ps(
            out + i, m, _mm512_mul_ps(v, _mm512_maskz_loadu_ps(m, up + i)));
    }
}

static void k_add_avx512(float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 m = first_lanes(n - i);

        _mm512_mask_storeu_ps(x + i, m,
                              _mm512_add_ps(_mm512_maskz_loadu_ps(m, x + i),
                                            _mm512_maskz_loadu_ps(m, y + i)));
    }
}

static void k_scale_avx512(float *x, float a, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 m = first_lanes(n - i);

        _mm512_mask_storeu_ps(
            x + i, m,
            _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + i), _mm512_set1_ps(a)));
    }
}

/* ---- softmax ------------------------------------------------------------ */

static float k_max_avx512(const float *x, size_t n)
{
    const __m512 none = _mm512_set1_ps(-INFINITY);
    __m512 m[4] = {none, none, none, none};
    size_t i = 0;

    /* vmaxps returns its second operand where either is NaN */
    for (; n - i >= 64; i += 64) {
        UNROLL
        for (size_t c = 0; c < 4; c++)
            m[c] = _mm512_max_ps(_mm512_loadu_ps(x + i + 16 * c), m[c]);
    }
    for (; i < n; i += 16)
        m[0] = _mm512_max_ps(
            _mm512_mask_loadu_ps(none, first_lanes(n - i), x + i), m[0]);
    return max_lanes(
        _mm512_max_ps(_mm512_max_ps(m[0], m[1]), _mm512_max_ps(m[2], m[3])));
}

static double k_exp_sum_avx512(float *out, const float *x, size_t n,
                               float shift, float scale)
{
    const __m512 none = _mm512_set1_ps(-INFINITY);
    const __m512 sh = _mm512_set1_ps(shift), sc = _mm512_set1_ps(scale);
    __m512d lo = _mm512_setzero_pd(), hi = lo;

    for (size_t i = 0; i < n; i += 16) {
        __mmask16 m = first_lanes(n - i);
        __m512 v = _mm512_mask_loadu_ps(none, m, x + i);
        __mmask16 some = _mm512_cmp_ps_mask(v, none, _CMP_NEQ_UQ);
        __m512 e = exp16(_mm512_mul_ps(_mm512_sub_ps(v, sh), sc));

        /* said apart, so that scale 0 does not make NaN of -INFINITY */
        e = _mm512_maskz_mov_ps(some, e);
        lo = _mm512_add_pd(lo, widen_lo(e));
        hi = _mm512_add_pd(hi, widen_hi(e));
        if (out)
            _mm512_mask_storeu_ps(out + i, m, e);
    }
    return sum_lanes_pd(_mm512_add_pd(lo, hi));
}

/* ---- attention ---------------------------------------------------------- */

/* v, with the group's scale where the type has one. */
INLINE __m512 scaled(__m512 v, __m512 scale, enum dtype type)
{
    return type == DT_I8 ? _mm512_mul_ps(v, scale) : v;
}

/* sum_lanes(fold16()) of 16 vectors, one a lane. */
INLINE __m512 sum_lanes16(const __m512 *v)
{
    const __m512i order =
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512 s[4], lo, hi;

    UNROLL
    for (int i = 0; i < 4; i++, v += 4) {
        lo = _mm512_add_ps(_mm512_shuffle_f32x4(v[0], v[1], 0x44),
                           _mm512_shuffle_f32x4(v[0], v[1], 0xee));
        hi = _mm512_add_ps(_mm512_shuffle_f32x4(v[2], v[3], 0x44),
                           _mm512_shuffle_f32x4(v[2], v[3], 0xee));
        s[i] = _mm512_add_ps(_mm512_shuffle_f32x4(lo, hi, 0x88),
                             _mm512_shuffle_f32x4(lo, hi, 0xdd));
    }
    lo = _mm512_add_ps(_mm512_unpacklo_ps(s[0], s[1]),
                       _mm512_unpackhi_ps(s[0], s[1]));
    hi = _mm512_add_ps(_mm512_unpacklo_ps(s[2], s[3]),
                       _mm512_unpackhi_ps(s[2], s[3]));
    s[0] = _mm512_castpd_ps(
        _mm512_unpacklo_pd(_mm512_castps_pd(lo), _mm512_castps_pd(hi)));
    s[1] = _mm512_castpd_ps(
        _mm512_unpackhi_pd(_mm512_castps_pd(lo), _mm512_castps_pd(hi)));
    return _mm512_permutexvar_ps(order, _mm512_add_ps(s[0], s[1]));
}

/* Of P positions by T rows to s[t * KV_BLOCK + r], v[t * P + r] being theirs.
 */
INLINE void store_scores(float *s, const __m512 *v, int P, int T)
{
    if (P * T == 16) {
        __m512 sums = sum_lanes16(v);

        if (T == 1)
            _mm512_storeu_ps(s, sums);
        if (T == 2) {
            _mm256_storeu_ps(s, _mm512_castps512_ps256(sums));
            _mm256_storeu_ps(s + KV_BLOCK, _mm512_extractf32x8_ps(sums, 1));
        }
        if (T == 4) {
            _mm_storeu_ps(s, _mm512_castps512_ps128(sums));
            _mm_storeu_ps(s + KV_BLOCK, _mm512_extractf32x4_ps(sums, 1));
            _mm_storeu_ps(s + 2 * KV_BLOCK, _mm512_extractf32x4_ps(sums, 2));
            _mm_storeu_ps(s + 3 * KV_BLOCK, _mm512_extractf32x4_ps(sums, 3));
        }
        return;
    }
    UNROLL
    for (int t = 0; t < T; t++) {
        __m256 f[4];

        UNROLL
        for (int r = 0; r < P; r++)
            f[r] = fold16(v[t * P + r]);
        store_sums(s + t * KV_BLOCK, f, P);
    }
}

/* s[t * KV_BLOCK + r] = q_t . k_(j + r) for P positions (1, 4 or what makes 16
 * products) and T rows. */
INLINE void attn_tile(float *s, const float *q, size_t ldq, const char *k,
                      size_t j, size_t d, int P, int T, enum dtype type,
                      struct ahead *ahead)
{
    const size_t bytes = type_bytes(type), row = d * bytes;
    const char *kj = k + j * row;
    struct ahead part = {ahead->at, ahead->step * KV_Q8_GROUP / d,
                         ahead->to_l2};
    __m512 a[4 * MAX_T], scale[16], qv[MAX_T], kv;
    size_t e = 0;

    UNROLL
    for (int i = 0; i < P * T; i++)
        a[i] = _mm512_setzero_ps();
    for (; e + KV_Q8_GROUP <= d; e += KV_Q8_GROUP) {
        if (type == DT_I8) {
            UNROLL
            for (size_t r = 0; r < (size_t)P; r++)
                scale[r] = _mm512_set1_ps(kv_scale(k, d, j + r, e));
        }
        UNROLL
        for (size_t h = e; h < e + KV_Q8_GROUP; h += 16) {
            UNROLL
            for (int t = 0; t < T; t++)
                qv[t] = _mm512_loadu_ps(q + (size_t)t * ldq + h);
            UNROLL
            for (int r = 0; r < P; r++) {
                if (h == e)
                    fetch(&part, 1);
                kv = scaled(load16(kj + (size_t)r * row + h * bytes, type),
                            scale[r], type);
                UNROLL
                for (int t = 0; t < T; t++)
                    a[t * P + r] = _mm512_fmadd_ps(kv, qv[t], a[t * P + r]);
            }
        }
    }
    for (; e < d; e += 16) {
        __mmask16 m = first_lanes(d - e);

        UNROLL
        for (int t = 0; t < T; t++)
            qv[t] = _mm512_maskz_loadu_ps(m, q + (size_t)t * ldq + e);
        UNROLL
        for (int r = 0; r < P; r++) {
            kv = load16_part(kj + (size_t)r * row + e * bytes, m, type);
            if (type == DT_I8) /* no -0 of a negative scale beyond the head */
                kv = _mm512_maskz_mul_ps(
                    m, kv, _mm512_set1_ps(kv_scale(k, d, j + (size_t)r, e)));
            UNROLL
            for (int t = 0; t < T; t++)
                a[t * P + r] = _mm512_fmadd_ps(kv, qv[t], a[t * P + r]);
        }
    }
    ahead->at += (size_t)P * ahead->step;
    store_scores(s, a, P, T);
}

/* scores[t * KV_BLOCK + j] = q_t . k_j for T rows of q and j in [lo, hi). */
INLINE void attn_scores(float *scores, const float *q, size_t ldq,
                        const char *k, size_t d, int lo, int hi, int T,
                        enum dtype type, struct ahead *ahead)
{
    const size_t most = T <= 4 && 16 % T == 0 ? 16 / (size_t)T : 4;
    size_t j = (size_t)lo, end = (size_t)hi;

    for (; j + most <= end; j += most)
        attn_tile(scores + j, q, ldq, k, j, d, (int)most, T, type, ahead);
    for (; most > 4 && j + 4 <= end; j += 4)
        attn_tile(scores + j, q, ldq, k, j, d, 4, T, type, ahead);
    for (; j < end; j++)
        attn_tile(scores + j, q, ldq, k, j, d, 1, T, type, ahead);
}

/* KV_BLOCK scores to s, -INFINITY outside [lo, hi); their maximum.
 * 0 <= lo < hi <= 64 */
INLINE float attn_mask(__m512 *s, const float *scores, int lo, int hi)
{
    const __m512 none = _mm512_set1_ps(-INFINITY);
    const uint64_t in = ~(uint64_t)0 >> (KV_BLOCK - hi) & ~(uint64_t)0 << lo;
    __m512 m = none;

    UNROLL
    for (int c = 0; c < 4; c++) {
        s[c] = _mm512_mask_loadu_ps(none, (__mmask16)(in >> 16 * c),
                                    scores + 16 * c);
        m = _mm512_max_ps(s[c], m); /* skips NaN */
    }
    return max_lanes(m);
}

/* scores = exp(s - shift); their sum. */
INLINE float attn_exp(float *scores, __m512 *s, float shift, bool flush)
{
    (void)flush; /* saves nothing here */
    UNROLL
    for (int c = 0; c < 4; c++) {
        s[c] = exp16(_mm512_sub_ps(s[c], _mm512_set1_ps(shift)));
        _mm512_store_ps(scores + 16 * c, s[c]);
    }
    return sum_lanes(fold16(
        _mm512_add_ps(_mm512_add_ps(s[0], s[1]), _mm512_add_ps(s[2], s[3]))));
}

/* acc += sum over j in [lo, hi), ascending, of p_j v_j, for R rows; elements
 * [e, e + 16 NV) of the head, m of the last 16. Groups of an int8 cache begin
 * at e. */
INLINE void attn_values(float *acc, size_t d, const float *p, const char *v,
                        size_t e, int lo, int hi, int R, int NV, __mmask16 m,
                        enum dtype type, struct ahead *ahead)
{
    const size_t bytes = type_bytes(type), end = (size_t)hi;
    __m512 a[MAX_T][8], vv[8], scale = _mm512_setzero_ps();

    UNROLL
    for (int i = 0; i < R; i++) {
        UNROLL
        for (int u = 0; u < NV; u++)
            a[i][u] =
                _mm512_maskz_loadu_ps(u == NV - 1 ? m : 0xffff,
                                      acc + (size_t)i * d + e + 16 * (size_t)u);
    }
    for (size_t j = (size_t)lo; j < end; j++) {
        const char *vj = v + (j * d + e) * bytes;

        fetch(ahead, 1);
        UNROLL
        for (int u = 0; u < NV; u++) {
            if (type == DT_I8 && u % 2 == 0)
                scale = _mm512_set1_ps(kv_scale(v, d, j, e + 16 * (size_t)u));
            vv[u] = scaled(load16_part(vj + 16 * (size_t)u * bytes,
                                       u == NV - 1 ? m : 0xffff, type),
                           scale, type);
        }
        UNROLL
        for (int i = 0; i < R; i++) {
            __m512 pj = _mm512_set1_ps(p[(size_t)i * KV_BLOCK + j]);

            UNROLL
            for (int u = 0; u < NV; u++)
                a[i][u] = _mm512_fmadd_ps(pj, vv[u], a[i][u]);
        }
    }
    UNROLL
    for (int i = 0; i < R; i++) {
        UNROLL
        for (int u = 0; u < NV; u++)
            _mm512_mask_storeu_ps(acc + (size_t)i * d + e + 16 * (size_t)u,
                                  u == NV - 1 ? m : 0xffff, a[i][u]);
    }
}

/* The same for whole heads. */
INLINE void attn_value_rows(float *acc, size_t d, const float *p, const char *v,
                            int lo, int hi, int R, enum dtype type,
                            struct ahead *ahead)
{
    struct ahead part = {ahead->at, 0, ahead->to_l2};
    size_t e = 0;

    if (lo >= hi)
        return;
    part.step = ahead->step * 128 / d;
    for (; R <= 2 && e + 128 <= d; e += 128)
        attn_values(acc, d, p, v, e, lo, hi, R, 8, 0xffff, type, &part);
    part.step = ahead->step * 64 / d;
    for (; e + 64 <= d; e += 64)
        attn_values(acc, d, p, v, e, lo, hi, R, 4, 0xffff, type, &part);
    part.step = ahead->step * 16 / d;
    for (; e < d; e += 16)
        attn_values(acc, d, p, v, e, lo, hi, R, 1, first_lanes(d - e), type,
                    &part);
    ahead->at = part.at;
}

/* An int8 block to f32. */
static void attn_widen_q8(float *out, const char *block, size_t d)
{
    for (size_t j = 0; j < KV_BLOCK; j++)
        for (size_t e = 0; e < d; e += 16) {
            __mmask16 m = first_lanes(d - e);
            __m512 v = load16_part(block + j * d + e, m, DT_I8);

            v = _mm512_mul_ps(v, _mm512_set1_ps(kv_scale(block, d, j, e)));
            _mm512_mask_storeu_ps(out + j * d + e, m, v);
        }
}

/* ---- measuring ---------------------------------------------------------- */

static unsigned long long k_read_sum_avx512(const void *p, size_t n)
{
    const char *c = p;
    __m512i s = _mm512_setzero_si512();
    uint64_t words[8], sum = 0;
    size_t i = 0;

    /* one line at a time: more in a bunch, and memory delivers less */
    for (; n - i >= 64; i += 64) {
        sweep(c + i);
        s = _mm512_add_epi64(s, _mm512_loadu_si512(c + i));
    }
    if (i < n) {
        __mmask64 m = ~(__mmask64)0 >> (64 - (n - i));

        s = _mm512_add_epi64(s, _mm512_maskz_loadu_epi8(m, c + i));
    }
    _mm512_storeu_si512(words, s);
    for (int j = 0; j < 8; j++)
        sum += words[j];
    return sum;
}

static double k_peak_flops_avx512(size_t reps, float *sink)
{
    enum { CHAINS = 16, STEPS = 19531 }; /* 32 * CHAINS * STEPS is near 1e7 */
    const __m512 mul = _mm512_set1_ps(0.999f), add = _mm512_set1_ps(0.001f);
    __m512 a[CHAINS];

    UNROLL
    for (int i = 0; i < CHAINS; i++)
        a[i] = _mm512_set1_ps((float)i);
    for (size_t s = 0; s < reps * STEPS; s++) {
        UNROLL
        for (int i = 0; i < CHAINS; i++)
            a[i] = _mm512_fmadd_ps(a[i], mul, add);
    }
    for (int i = 1; i < CHAINS; i++)
        a[0] = _mm512_add_ps(a[0], a[i]);
    *sink = sum_lanes(fold16(a[0]));
    return 32.0 * CHAINS * STEPS * (double)reps;
}

#include "kernel/k_tiles.h"

void k_avx512_init(struct kernels *k)
{
    fill_table(k);
}
