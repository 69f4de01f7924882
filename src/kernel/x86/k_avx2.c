/* Kernels for AVX2, FMA and F16C.
 *
 * Order of sums of a product: element k goes into lane k % 8 of accumulator
 * k / 8 % 4, ascending; then (a0 + a1) + (a2 + a3), then halves of the vector
 * onto each other. Blocking changes which products are in flight at the same
 * time, never that order. k_avx512.c keeps the same order. */
#include <immintrin.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernel/x86/k_avx.h"
#include "kernel/kernel.h"

/* What k_tiles.h and k_sgemm.h ask for. */
#define KERNEL(name) k_##name##_avx2

typedef __m256 vec;

enum {
    LANES = 8,
    TILE_SUMS = 4,
    MAX_T = 3,
    GEMM_MR = 6,
    GEMM_MID = 2,
    GEMM_NR = 16
};

/* ---- loads and stores of parts of a vector ----------------------------- */

/* The first n < 8 lanes. */
INLINE __m256i first_lanes(size_t n)
{
    static const int32_t mask[16] = {-1, -1, -1, -1, -1, -1, -1, -1};

    return _mm256_loadu_si256((const __m256i_u *)(mask + 8 - n));
}

INLINE __m256 load_f32_part(const float *p, size_t n)
{
    return _mm256_maskload_ps(p, first_lanes(n));
}

INLINE __m256 widen(__m128i h, enum dtype type)
{
    if (type == DT_F16)
        return _mm256_cvtph_ps(h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

/* Eight elements of the type from any address. */
INLINE __m256 load8(const char *p, enum dtype type)
{
    if (type == DT_F32)
        return _mm256_castsi256_ps(
            _mm256_loadu_si256((const __m256i_u *)(const void *)p));
    if (type == DT_I8)
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(
            _mm_loadl_epi64((const __m128i_u *)(const void *)p)));
    return widen(_mm_loadu_si128((const __m128i_u *)(const void *)p), type);
}

/* The first n < 8 of them, zeros above. */
INLINE __m256 load8_part(const char *p, size_t n, enum dtype type)
{
    uint16_t h[8] = {0};

    if (type == DT_F32)
        return _mm256_castsi256_ps(_mm256_maskload_epi32(
            (const int *)(const void *)p, first_lanes(n)));
    if (type == DT_I8) {
        memcpy(h, p, n);
        return load8((const char *)h, type);
    }
    memcpy(h, p, n * sizeof *h);
    return widen(_mm_loadu_si128((const __m128i_u *)h), type);
}

/* ---- exp ---------------------------------------------------------------- */

/* exp(x - n ln 2): the rest r after whole powers of two (Cody and Waite 1980),
 * a minimax polynomial for exp(r) on |r| <= ln 2 / 2 (relative error 2^-28.3,
 * found by the Remez exchange). */
INLINE __m256 exp8_rest(__m256 x, __m256 n)
{
    const __m256 ln2_hi = _mm256_set1_ps(0x1.62e4p-1f); /* n * it is exact */
    const __m256 ln2_lo = _mm256_set1_ps(0x1.7f7d1cp-20f);
    __m256 r, p;

    r = _mm256_fnmadd_ps(n, ln2_hi, x);
    r = _mm256_fnmadd_ps(n, ln2_lo, r);
    p = _mm256_set1_ps(0.00138148398f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.00836859923f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.0416683778f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.166665211f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.49999994f));
    p = _mm256_fmadd_ps(_mm256_mul_ps(r, r), p, r);
    return _mm256_add_ps(p, _mm256_set1_ps(1));
}

/* exp(x) within 1 ulp where the result is normal, by 2^n in two steps, so that
 * subnormal results round once. NaN stays NaN. */
INLINE __m256 exp8(__m256 x)
{
    __m256 n, p;
    __m256i e, e1;

    /* beyond, the result is 0 or infinity anyway; the order of the operands
     * lets NaN through */
    x = _mm256_min_ps(_mm256_set1_ps(89), x);
    x = _mm256_max_ps(_mm256_set1_ps(-104), x);
    n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(0x1.715476p0f)),
                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    p = exp8_rest(x, n);
    e = _mm256_cvtps_epi32(n);
    e1 = _mm256_srai_epi32(e, 1);
    e = _mm256_sub_epi32(e, e1);
    e1 = _mm256_slli_epi32(_mm256_add_epi32(e1, _mm256_set1_epi32(127)), 23);
    e = _mm256_slli_epi32(_mm256_add_epi32(e, _mm256_set1_epi32(127)), 23);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(e1));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(e));
}

INLINE float exp1(float x)
{
    return _mm256_cvtss_f32(exp8(_mm256_set1_ps(x)));
}

/* ---- products ----------------------------------------------------------- */

/* One row, one token: a straight sweep, which memory delivers fastest. */
INLINE float dot_row(const char *w, const float *x, size_t n, enum dtype type)
{
    const size_t bytes = type_bytes(type);
    __m256 a[4];
    size_t k = 0;

    UNROLL
    for (int c = 0; c < 4; c++)
        a[c] = _mm256_setzero_ps();
    for (; n - k >= 32; k += 32) {
        const char *p = w + k * bytes;

        sweep(p);
        if (type == DT_F32)
            sweep(p + 64);
        UNROLL
        for (size_t c = 0; c < 4; c++)
            a[c] = _mm256_fmadd_ps(load8(p + 8 * c * bytes, type),
                                   _mm256_loadu_ps(x + k + 8 * c), a[c]);
    }
    UNROLL
    for (int c = 0; c < 4; c++) {
        size_t rest = n - k;

        if (rest >= 8) {
            a[c] = _mm256_fmadd_ps(load8(w + k * bytes, type),
                                   _mm256_loadu_ps(x + k), a[c]);
            k += 8;
        } else if (rest > 0) {
            a[c] = _mm256_fmadd_ps(load8_part(w + k * bytes, rest, type),
                                   load_f32_part(x + k, rest), a[c]);
            k = n;
        }
    }
    return sum_lanes(
        _mm256_add_ps(_mm256_add_ps(a[0], a[1]), _mm256_add_ps(a[2], a[3])));
}

/* One token by all rows. */
INLINE void rows_by_one(float *y, const char *w, size_t w_bytes, const float *x,
                        size_t n_rows, size_t n, enum dtype type, float *work)
{
    (void)work;
    for (size_t r = 0; r < n_rows; r++)
        y[r] = dot_row(w + r * w_bytes, x, n, type);
}

/* R rows of w (4 or 1) by T tokens (1 to 3). The TILE_SUMS accumulators come
 * one after another, so that R * T of them fit the registers; operands come
 * from the cache each time.
 * ahead: fetch what follows these rows, for the next ones; NULL: don't. */
INLINE void tile(float *y, size_t ldy, const char *w, size_t w_bytes,
                 const float *x, size_t ldx, size_t n, int R, int T,
                 enum dtype type, const char *ahead)
{
    const size_t bytes = type_bytes(type), step = 8 * TILE_SUMS;
    __m256 sum[TILE_SUMS][4][3];

    for (int c = 0; c < TILE_SUMS; c++) {
        __m256 a[4][3], xv[3], wv;
        size_t k = 8 * (size_t)c;

        UNROLL
        for (int r = 0; r < R; r++) {
            UNROLL
            for (int t = 0; t < T; t++)
                a[r][t] = _mm256_setzero_ps();
        }
        for (; k + 8 <= n; k += step) {
            if (ahead) {
                _mm_prefetch(ahead, _MM_HINT_T0);
                ahead += 64;
                if (type == DT_F32) {
                    _mm_prefetch(ahead, _MM_HINT_T0);
                    ahead += 64;
                }
            }
            UNROLL
            for (int t = 0; t < T; t++)
                xv[t] = _mm256_loadu_ps(x + (size_t)t * ldx + k);
            UNROLL
            for (int r = 0; r < R; r++) {
                wv = load8(w + (size_t)r * w_bytes + k * bytes, type);
                UNROLL
                for (int t = 0; t < T; t++)
                    a[r][t] = _mm256_fmadd_ps(wv, xv[t], a[r][t]);
            }
        }
        if (k < n) {
            UNROLL
            for (int t = 0; t < T; t++)
                xv[t] = load_f32_part(x + (size_t)t * ldx + k, n - k);
            UNROLL
            for (int r = 0; r < R; r++) {
                wv = load8_part(w + (size_t)r * w_bytes + k * bytes, n - k,
                                type);
                UNROLL
                for (int t = 0; t < T; t++)
                    a[r][t] = _mm256_fmadd_ps(wv, xv[t], a[r][t]);
            }
        }
        UNROLL
        for (int r = 0; r < R; r++) {
            UNROLL
            for (int t = 0; t < T; t++)
                sum[c][r][t] = a[r][t];
        }
    }
    UNROLL
    for (int t = 0; t < T; t++) {
        __m256 v[4];

        UNROLL
        for (int r = 0; r < R; r++) {
            v[r] = _mm256_add_ps(_mm256_add_ps(sum[0][r][t], sum[1][r][t]),
                                 _mm256_add_ps(sum[2][r][t], sum[3][r][t]));
        }
        store_sums(y + (size_t)t * ldy, v, R);
    }
}

/* ---- prefill's product without BLAS ------------------------------------- */

#define GEMM_FEW SGEMM_FEW
#include "kernel/k_sgemm.h"

INLINE void gemm_micro(float *c, size_t ldc, const float *a, size_t lda,
                       const float *panel, size_t kc, size_t nr, int R,
                       bool first)
{
    __m256 s[GEMM_MR][2];

    UNROLL
    for (int i = 0; i < R; i++) {
        s[i][0] = s[i][1] = _mm256_setzero_ps();
        gemm_fetch(c + (size_t)i * ldc, nr);
    }
    UNROLL_SOME
    for (size_t p = 0; p < kc; p++) {
        __m256 b0 = _mm256_load_ps(panel + p * GEMM_NR);
        __m256 b1 = _mm256_load_ps(panel + p * GEMM_NR + 8);

        UNROLL
        for (int i = 0; i < R; i++) {
            __m256 av = _mm256_broadcast_ss(a + (size_t)i * lda + p);

            s[i][0] = _mm256_fmadd_ps(av, b0, s[i][0]);
            s[i][1] = _mm256_fmadd_ps(av, b1, s[i][1]);
        }
    }
    UNROLL
    for (int i = 0; i < R; i++) {
        float *ci = c + (size_t)i * ldc;

        UNROLL
        for (size_t h = 0; h < 2; h++) {
            if (nr >= 8 * h + 8) {
                if (!first)
                    s[i][h] =
                        _mm256_add_ps(s[i][h], _mm256_loadu_ps(ci + 8 * h));
                _mm256_storeu_ps(ci + 8 * h, s[i][h]);
            } else if (nr > 8 * h) {
                if (!first)
                    s[i][h] = _mm256_add_ps(
                        s[i][h], load_f32_part(ci + 8 * h, nr - 8 * h));
                _mm256_maskstore_ps(ci + 8 * h, first_lanes(nr - 8 * h),
                                    s[i][h]);
            }
        }
    }
}

/* ---- conversions -------------------------------------------------------- */

INLINE void to_f32(float *out, const char *in, size_t n, enum dtype type)
{
    size_t i = 0;

    for (; n - i >= 8; i += 8)
        _mm256_storeu_ps(out + i, load8(in + 2 * i, type));
    if (i < n)
        _mm256_maskstore_ps(out + i, first_lanes(n - i),
                            load8_part(in + 2 * i, n - i, type));
}

INLINE __m128i narrow(__m256 v, enum dtype type)
{
    __m256i u, odd, rounded, nan;

    if (type == DT_F16)
        return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
    u = _mm256_castps_si256(v);
    odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    rounded =
        _mm256_add_epi32(_mm256_add_epi32(u, odd), _mm256_set1_epi32(0x7fff));
    nan = _mm256_or_si256(u, _mm256_set1_epi32(0x00400000));
    u = _mm256_blendv_epi8(
        rounded, nan, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
    u = _mm256_srli_epi32(u, 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(u),
                            _mm256_extracti128_si256(u, 1));
}

INLINE void from_f32(char *out, const float *in, size_t n, enum dtype type)
{
    size_t i = 0;

    for (; n - i >= 8; i += 8)
        _mm_storeu_si128((__m128i_u *)(void *)(out + 2 * i),
                         narrow(_mm256_loadu_ps(in + i), type));
    if (i < n) {
        uint16_t h[8];

        _mm_storeu_si128((__m128i_u *)h,
                         narrow(load_f32_part(in + i, n - i), type));
        memcpy(out + 2 * i, h, (n - i) * sizeof *h);
    }
}

/* ---- element-wise ------------------------------------------------------- */

/* Tails go through the same vector operations, so that the place of an element
 * in the call does not change its value. */

static void k_rmsnorm_avx2(float *out, const float *x, const float *w,
                           size_t n_rows, size_t d, float eps)
{
    for (size_t r = 0; r < n_rows; r++, x += d, out += d) {
        /* squares in double: none overflows */
        __m256d a[2] = {_mm256_setzero_pd(), _mm256_setzero_pd()};
        __m256 scale;
        size_t i = 0;

        for (; i < d; i += 8) {
            __m256 v = d - i >= 8 ? _mm256_loadu_ps(x + i)
                                  : load_f32_part(x + i, d - i);
            __m256d lo = _mm256_cvtps_pd(_mm256_castps256_ps128(v));
            __m256d hi = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));

            a[0] = _mm256_fmadd_pd(lo, lo, a[0]);
            a[1] = _mm256_fmadd_pd(hi, hi, a[1]);
        }
        scale = _mm256_set1_ps(
            (float)(1 /
                    sqrt(sum_lanes4_pd(_mm256_add_pd(a[0], a[1])) / (double)d +
                         (double)eps)));
        for (i = 0; d - i >= 8; i += 8)
            _mm256_storeu_ps(
                out + i,
                _mm256_mul_ps(_mm256_loadu_ps(w + i),
                              _mm256_mul_ps(_mm256_loadu_ps(x + i), scale)));
        if (i < d)
            _mm256_maskstore_ps(
                out + i, first_lanes(d - i),
                _mm256_mul_ps(
                    load_f32_part(w + i, d - i),
                    _mm256_mul_ps(load_f32_part(x + i, d - i), scale)));
    }
}

static void k_rope_avx2(float *x, size_t n_rows, size_t d, const float *cos,
                        const float *sin)
{
    size_t h = d / 2;

    for (size_t r = 0; r < n_rows; r++, x += d)
        for (size_t i = 0; i < h; i += 8) {
            size_t n = h - i;
            bool full = n >= 8;
            __m256i part = first_lanes(full ? 0 : n);
            __m256 a, b, c, s, u, v;

            if (full) {
                a = _mm256_loadu_ps(x + i);
                b = _mm256_loadu_ps(x + i + h);
                c = _mm256_loadu_ps(cos + i);
                s = _mm256_loadu_ps(sin + i);
            } else {
                a = _mm256_maskload_ps(x + i, part);
                b = _mm256_maskload_ps(x + i + h, part);
                c = _mm256_maskload_ps(cos + i, part);
                s = _mm256_maskload_ps(sin + i, part);
            }
            u = _mm256_fnmadd_ps(b, s, _mm256_mul_ps(a, c));
            v = _mm256_fmadd_ps(a, s, _mm256_mul_ps(b, c));
            if (full) {
                _mm256_storeu_ps(x + i, u);
                _mm256_storeu_ps(x + i + h, v);
            } else {
                _mm256_maskstore_ps(x + i, part, u);
                _mm256_maskstore_ps(x + i + h, part, v);
            }
        }
}

INLINE __m256 swiglu8(__m256 z, __m256 up)
{
    __m256 minus = _mm256_xor_ps(z, _mm256_set1_ps(-0.0f));
    __m256 den = _mm256_add_ps(_mm256_set1_ps(1), exp8(minus));

    return _mm256_mul_ps(_mm256_div_ps(z, den), up);
}

static void k_swiglu_avx2(float *out, const float *gate, const float *up,
                          size_t n)
{
    size_t i = 0;

    for (; n - i >= 8; i += 8)
        _mm256_storeu_ps(out + i, swiglu8(_mm256_loadu_ps(gate + i),
                                          _mm256_loadu_ps(up + i)));
    if (i < n)
        _mm256_maskstore_ps(out + i, first_lanes(n - i),
                            swiglu8(load_f32_part(gate + i, n - i),
                                    load_f32_part(up + i, n - i)));
}

static void k_add_avx2(float *x, const float *y, size_t n)
{
    size_t i = 0;

    for (; n - i >= 8; i += 8)
        _mm256_storeu_ps(x + i, _mm256_add_ps(_mm256_loadu_ps(x + i),
                                              _mm256_loadu_ps(y + i)));
    if (i < n)
        _mm256_maskstore_ps(x + i, first_lanes(n - i),
                            _mm256_add_ps(load_f32_part(x + i, n - i),
                                          load_f32_part(y + i, n - i)));
}

static void k_scale_avx2(float *x, float a, size_t n)
{
    const __m256 av = _mm256_set1_ps(a);
    size_t i = 0;

    for (; n - i >= 8; i += 8)
        _mm256_storeu_ps(x + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), av));
    if (i < n)
        _mm256_maskstore_ps(x + i, first_lanes(n - i),
                            _mm256_mul_ps(load_f32_part(x + i, n - i), av));
}

/* ---- softmax ------------------------------------------------------------ */

static float k_max_avx2(const float *x, size_t n)
{
    const __m256 none = _mm256_set1_ps(-INFINITY);
    __m256 m[4] = {none, none, none, none};
    size_t i = 0;

    /* vmaxps returns its second operand where either is NaN */
    for (; n - i >= 32; i += 32) {
        UNROLL
        for (size_t c = 0; c < 4; c++)
            m[c] = _mm256_max_ps(_mm256_loadu_ps(x + i + 8 * c), m[c]);
    }
    for (; n - i >= 8; i += 8)
        m[0] = _mm256_max_ps(_mm256_loadu_ps(x + i), m[0]);
    if (i < n) {
        __m256i part = first_lanes(n - i);
        __m256 v = _mm256_blendv_ps(none, _mm256_maskload_ps(x + i, part),
                                    _mm256_castsi256_ps(part));

        m[1] = _mm256_max_ps(v, m[1]);
    }
    return max_lanes8(
        _mm256_max_ps(_mm256_max_ps(m[0], m[1]), _mm256_max_ps(m[2], m[3])));
}

/* exp((x - shift) * scale), 0 where x is -INFINITY */
INLINE __m256 shifted_exp8(__m256 x, __m256 shift, __m256 scale)
{
    __m256 none = _mm256_cmp_ps(x, _mm256_set1_ps(-INFINITY), _CMP_EQ_OQ);

    return _mm256_andnot_ps(
        none, exp8(_mm256_mul_ps(_mm256_sub_ps(x, shift), scale)));
}

static double k_exp_sum_avx2(float *out, const float *x, size_t n, float shift,
                             float scale)
{
    const __m256 sh = _mm256_set1_ps(shift), sc = _mm256_set1_ps(scale);
    __m256d lo = _mm256_setzero_pd(), hi = lo;
    size_t i = 0;

    for (; i < n; i += 8) {
        bool full = n - i >= 8;
        __m256i part = first_lanes(full ? 0 : n - i);
        __m256 e =
            full ? _mm256_loadu_ps(x + i) : _mm256_maskload_ps(x + i, part);

        e = shifted_exp8(e, sh, sc);
        if (!full)
            e = _mm256_and_ps(e, _mm256_castsi256_ps(part));
        lo = _mm256_add_pd(lo, _mm256_cvtps_pd(_mm256_castps256_ps128(e)));
        hi = _mm256_add_pd(hi, _mm256_cvtps_pd(_mm256_extractf128_ps(e, 1)));
        if (out && full)
            _mm256_storeu_ps(out + i, e);
        else if (out)
            _mm256_maskstore_ps(out + i, part, e);
    }
    return sum_lanes4_pd(_mm256_add_pd(lo, hi));
}

/* ---- attention ---------------------------------------------------------- */

/* v, with the group's scale where the type has one. */
INLINE __m256 scaled(__m256 v, __m256 scale, enum dtype type)
{
    return type == DT_I8 ? _mm256_mul_ps(v, scale) : v;
}

/* s[t * KV_BLOCK + r] = q_t . k_(j + r) for P positions (4 or 1) and T rows.
 * One accumulator a product: heads are short. */
INLINE void attn_tile(float *s, const float *q, size_t ldq, const char *k,
                      size_t j, size_t d, int P, int T, enum dtype type,
                      struct ahead *ahead)
{
    const size_t bytes = type_bytes(type), row = d * bytes;
    const char *kj = k + j * row;
    struct ahead part = {ahead->at, ahead->step * KV_Q8_GROUP / d,
                         ahead->to_l2};
    __m256 a[3][4], scale[4], qv[3], kv;
    size_t e = 0;

    UNROLL
    for (int t = 0; t < T; t++) {
        UNROLL
        for (int r = 0; r < P; r++)
            a[t][r] = _mm256_setzero_ps();
    }
    while (e < d) {
        const size_t group = d - e < KV_Q8_GROUP ? d : e + KV_Q8_GROUP;

        fetch(&part, (size_t)P);
        if (type == DT_I8) {
            UNROLL
            for (size_t r = 0; r < (size_t)P; r++)
                scale[r] = _mm256_set1_ps(kv_scale(k, d, j + r, e));
        }
        for (; e + 8 <= group; e += 8) {
            UNROLL
            for (int t = 0; t < T; t++)
                qv[t] = _mm256_loadu_ps(q + (size_t)t * ldq + e);
            UNROLL
            for (int r = 0; r < P; r++) {
                kv = scaled(load8(kj + (size_t)r * row + e * bytes, type),
                            scale[r], type);
                UNROLL
                for (int t = 0; t < T; t++)
                    a[t][r] = _mm256_fmadd_ps(kv, qv[t], a[t][r]);
            }
        }
        if (e < group) {
            UNROLL
            for (int t = 0; t < T; t++)
                qv[t] = load_f32_part(q + (size_t)t * ldq + e, d - e);
            UNROLL
            for (int r = 0; r < P; r++) {
                kv = load8_part(kj + (size_t)r * row + e * bytes, d - e, type);
                if (type == DT_I8) /* no -0 beyond the head */
                    kv = _mm256_and_ps(_mm256_mul_ps(kv, scale[r]),
                                       _mm256_castsi256_ps(first_lanes(d - e)));
                UNROLL
                for (int t = 0; t < T; t++)
                    a[t][r] = _mm256_fmadd_ps(kv, qv[t], a[t][r]);
            }
            e = group;
        }
    }
    ahead->at += (size_t)P * ahead->step;
    UNROLL
    for (int t = 0; t < T; t++)
        store_sums(s + t * KV_BLOCK, a[t], P);
}

/* scores[t * KV_BLOCK + j] = q_t . k_j for T rows of q and j in [lo, hi). */
INLINE void attn_scores(float *scores, const float *q, size_t ldq,
                        const char *k, size_t d, int lo, int hi, int T,
                        enum dtype type, struct ahead *ahead)
{
    size_t j = (size_t)lo, end = (size_t)hi;

    for (; j + 4 <= end; j += 4)
        attn_tile(scores + j, q, ldq, k, j, d, 4, T, type, ahead);
    for (; j < end; j++)
        attn_tile(scores + j, q, ldq, k, j, d, 1, T, type, ahead);
}

/* KV_BLOCK scores to s, -INFINITY outside [lo, hi); their maximum. */
INLINE float attn_mask(__m256 *s, const float *scores, int lo, int hi)
{
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i from = _mm256_set1_epi32(lo), to = _mm256_set1_epi32(hi);
    const __m256 none = _mm256_set1_ps(-INFINITY);
    __m256 m = none;

    if (lo == 0 && hi == KV_BLOCK) {
        UNROLL
        for (int c = 0; c < 8; c++) {
            s[c] = _mm256_load_ps(scores + 8 * c);
            m = _mm256_max_ps(s[c], m);
        }
        return max_lanes8(m);
    }
    UNROLL
    for (int c = 0; c < 8; c++) {
        __m256i j = _mm256_add_epi32(lanes, _mm256_set1_epi32(8 * c));
        __m256 in = _mm256_castsi256_ps(_mm256_andnot_si256(
            _mm256_cmpgt_epi32(from, j), _mm256_cmpgt_epi32(to, j)));

        s[c] = _mm256_blendv_ps(none, _mm256_load_ps(scores + 8 * c), in);
        m = _mm256_max_ps(s[c], m); /* skips NaN */
    }
    return max_lanes8(m);
}

/* exp(x) of x <= 0, or NaN: the same in half the instructions, but 0 below
 * -87. */
INLINE __m256 exp8_below(__m256 x)
{
    /* its last bits count from -127 */
    const __m256 shift = _mm256_set1_ps(0x1.8p23f + 127);
    const __m256 least = _mm256_set1_ps(-87);
    const __m256 none = _mm256_cmp_ps(x, least, _CMP_LT_OQ);
    __m256 t, p;

    x = _mm256_max_ps(least, x); /* lets NaN through */
    t = _mm256_fmadd_ps(x, _mm256_set1_ps(0x1.715476p0f), shift);
    p = exp8_rest(x, _mm256_sub_ps(t, shift));
    t = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(t), 23));
    return _mm256_andnot_ps(none, _mm256_mul_ps(p, t));
}

/* scores = exp(s - shift); their sum. */
INLINE float attn_exp(float *scores, __m256 *s, float shift, bool flush)
{
    UNROLL
    for (int c = 0; c < 8; c++) {
        s[c] = _mm256_sub_ps(s[c], _mm256_set1_ps(shift));
        s[c] = flush ? exp8_below(s[c]) : exp8(s[c]);
        _mm256_store_ps(scores + 8 * c, s[c]);
    }
    return sum_lanes(_mm256_add_ps(
        _mm256_add_ps(_mm256_add_ps(s[0], s[1]), _mm256_add_ps(s[2], s[3])),
        _mm256_add_ps(_mm256_add_ps(s[4], s[5]), _mm256_add_ps(s[6], s[7]))));
}

/* acc += sum over j in [lo, hi), ascending, of p_j v_j, for R rows; elements
 * [e, e + 8 NV) of the head, of one group, or the n_part < 8 from e when NV is
 * 1. */
INLINE void attn_values(float *acc, size_t d, const float *p, const char *v,
                        size_t e, int lo, int hi, int R, int NV, size_t n_part,
                        enum dtype type, struct ahead *ahead)
{
    const size_t bytes = type_bytes(type);
    __m256 a[4][4], scale = _mm256_setzero_ps();

    UNROLL
    for (int i = 0; i < R; i++) {
        UNROLL
        for (int u = 0; u < NV; u++) {
            const float *from = acc + (size_t)i * d + e + 8 * (size_t)u;

            a[i][u] =
                n_part ? load_f32_part(from, n_part) : _mm256_loadu_ps(from);
        }
    }
    for (size_t j = (size_t)lo; j < (size_t)hi; j++) {
        const char *vj = v + (j * d + e) * bytes;
        __m256 vv[4];

        if ((j & 3) == 0)
            fetch(ahead, 4);
        if (type == DT_I8)
            scale = _mm256_set1_ps(kv_scale(v, d, j, e));
        UNROLL
        for (int u = 0; u < NV; u++)
            vv[u] = scaled(n_part ? load8_part(vj, n_part, type)
                                  : load8(vj + 8 * (size_t)u * bytes, type),
                           scale, type);
        UNROLL
        for (int i = 0; i < R; i++) {
            __m256 pj = _mm256_broadcast_ss(p + i * KV_BLOCK + j);

            UNROLL
            for (int u = 0; u < NV; u++)
                a[i][u] = _mm256_fmadd_ps(pj, vv[u], a[i][u]);
        }
    }
    UNROLL
    for (int i = 0; i < R; i++) {
        UNROLL
        for (int u = 0; u < NV; u++) {
            float *to = acc + (size_t)i * d + e + 8 * (size_t)u;

            if (n_part)
                _mm256_maskstore_ps(to, first_lanes(n_part), a[i][u]);
            else
                _mm256_storeu_ps(to, a[i][u]);
        }
    }
}

/* The same for whole heads. */
INLINE void attn_value_rows(float *acc, size_t d, const float *p, const char *v,
                            int lo, int hi, int R, enum dtype type,
                            struct ahead *ahead)
{
    struct ahead part = {ahead->at, ahead->step * 32 / d, ahead->to_l2};
    size_t e = 0;

    if (lo >= hi)
        return;
    for (; e + 32 <= d; e += 32)
        attn_values(acc, d, p, v, e, lo, hi, R, 4, 0, type, &part);
    part.step = ahead->step * 8 / d;
    for (; e + 8 <= d; e += 8)
        attn_values(acc, d, p, v, e, lo, hi, R, 1, 0, type, &part);
    if (e < d)
        attn_values(acc, d, p, v, e, lo, hi, R, 1, d - e, type, &part);
    ahead->at = part.at;
}

/* An int8 block to f32. */
static void attn_widen_q8(float *out, const char *block, size_t d)
{
    for (size_t j = 0; j < KV_BLOCK; j++, out += d) {
        const char *from = block + j * d;

        for (size_t e = 0; e < d; e += 8) {
            __m256 scale = _mm256_set1_ps(kv_scale(block, d, j, e));

            if (d - e >= 8)
                _mm256_storeu_ps(out + e,
                                 _mm256_mul_ps(load8(from + e, DT_I8), scale));
            else
                _mm256_maskstore_ps(
                    out + e, first_lanes(d - e),
                    _mm256_mul_ps(load8_part(from + e, d - e, DT_I8), scale));
        }
    }
}

/* ---- measuring ---------------------------------------------------------- */

static unsigned long long k_read_sum_avx2(const void *p, size_t n)
{
    const char *c = p;
    __m256i s[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    uint64_t words[4], last[8] = {0};
    size_t i = 0;

    /* one line at a time: more in a bunch, and memory delivers less */
    for (; n - i >= 64; i += 64) {
        sweep(c + i);
        UNROLL
        for (int j = 0; j < 2; j++)
            s[j] = _mm256_add_epi64(
                s[j], _mm256_loadu_si256(
                          (const __m256i_u *)(const void *)(c + i + 32 * j)));
    }
    memcpy(last, c + i, n - i);
    UNROLL
    for (int j = 0; j < 2; j++)
        s[j] = _mm256_add_epi64(
            s[j], _mm256_loadu_si256((const __m256i_u *)(last + 4 * j)));
    _mm256_storeu_si256((__m256i_u *)words, _mm256_add_epi64(s[0], s[1]));
    return words[0] + words[1] + words[2] + words[3];
}

static double k_peak_flops_avx2(size_t reps, float *sink)
{
    enum { CHAINS = 12, STEPS = 52083 }; /* 16 * CHAINS * STEPS is near 1e7 */
    const __m256 mul = _mm256_set1_ps(0.999f), add = _mm256_set1_ps(0.001f);
    __m256 a[CHAINS];

    UNROLL
    for (int i = 0; i < CHAINS; i++)
        a[i] = _mm256_set1_ps((float)i);
    for (size_t s = 0; s < reps * STEPS; s++) {
        UNROLL
        for (int i = 0; i < CHAINS; i++)
            a[i] = _mm256_fmadd_ps(a[i], mul, add);
    }
    for (int i = 1; i < CHAINS; i++)
        a[0] = _mm256_add_ps(a[0], a[i]);
    *sink = sum_lanes(a[0]);
    return 16.0 * CHAINS * STEPS * (double)reps;
}

#include "kernel/k_tiles.h"

void k_avx2_init(struct kernels *k)
{
    fill_table(k);
}
