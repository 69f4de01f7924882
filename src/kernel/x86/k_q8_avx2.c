/* Kernels for quantized weights on AVX2, FMA and F16C: widening, products in
 * f32, rounding of activations. k_q8_avx.h has the integer products. */
#include <math.h>

#define KERNEL(name) k_##name##_avx2
#define VNNI         0

#include "kernel/x86/k_q8_avx.h"

/* ---- widening ----------------------------------------------------------- */

/* Widen 16 codes of one group: code * scale + bias. E2M1's numbers are exact
 * without the bias. */
INLINE void widen16(float *out, const unsigned char *codes, float scale,
                    float bias, int bits)
{
    const __m256 s = _mm256_set1_ps(scale), b = _mm256_set1_ps(bias);

    UNROLL
    for (int i = 0; i < 16; i += 8) {
        __m256i q = _mm256_cvtepu8_epi32(
            _mm_loadl_epi64((const __m128i_u *)(const void *)(codes + i)));

        if (bits == E2M1)
            q = _mm256_sub_epi32(q, _mm256_set1_epi32(E2M1_OFFSET));
        __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(q), s);
        _mm256_storeu_ps(out + i, bits == E2M1 ? v : _mm256_add_ps(v, b));
    }
}

/* Widen columns [from, from + n) of row r. from and n are multiples of the
 * group. */
INLINE void widen_row(float *out, const struct affine *w, size_t r, size_t from,
                      size_t n, int bits)
{
    const struct row_numbers row = numbers_at(w, r, from / w->group);
    const unsigned char *q =
        w->q + r * w->q_stride + from * width_bits(bits) / 8;
    unsigned char room[UNIT], codes[UNIT];
    float s[8], b[8];

    for (size_t k = 0; k < n; k += UNIT) {
        const unsigned char *p = q + k * width_bits(bits) / 8;
        const size_t half = n - k < UNIT ? 32 : UNIT;
        __m256i v[2];

        unit_codes_in_order(v, half == 32 ? half_unit(room, p, bits) : p, bits);
        _mm256_storeu_si256((__m256i_u *)codes, v[0]);
        _mm256_storeu_si256((__m256i_u *)(codes + 32), v[1]);
        for (size_t i = 0; i < half; i += 16) {
            const size_t g = (k + i) / w->group, groups = n / w->group;

            if (g % 8 == 0 && (k + i) % w->group == 0) {
                __m256 scales = group_scales(&row, g, groups - g);

                _mm256_storeu_ps(s, scales);
                _mm256_storeu_ps(b, group_biases(&row, g, groups - g, scales));
            }
            widen16(out + k + i, codes + i, s[g % 8], b[g % 8], bits);
        }
    }
}

static void widen_rows(float *out, size_t ldo, const struct affine *w,
                       size_t row, size_t n_rows, size_t from, size_t n)
{
    for (size_t r = row; r < row + n_rows; r++, out += ldo)
        WITH_BITS(code_width(w), widen_row(out, w, r, from, n, BITS));
}

static void k_affine_to_f32_avx2(float *out, const struct affine *w,
                                 size_t n_rows, size_t n_cols)
{
    widen_rows(out, n_cols, w, 0, n_rows, 0, n_cols);
}

/* ---- products in f32 ---------------------------------------------------- */

/* Order of sums: runs of WIDE_COLS columns are added one after another. Within
 * a run the order is that of the dense product. */
enum { WIDE_COLS = 1024, WIDE_ROWS = 32, WIDE_SMALL_M = 4, WIDE_TOKENS = 64 };

/* Layout of the caller's work memory. The dense product in f32 does not use
 * it. */
struct wide {
    float rows[WIDE_ROWS * WIDE_COLS];
    float more[WIDE_TOKENS * WIDE_ROWS]; /* sums of all runs but the first */
};

_Static_assert(sizeof(struct wide) <= KERNEL_WORK * sizeof(float),
               "the caller's memory");

static void k_matmul_f32_affine_avx2(float *y, size_t ldy,
                                     const struct affine *w, const float *x,
                                     size_t ldx, size_t n_rows, size_t n_cols,
                                     size_t n_tokens, float *work)
{
    const struct kernels *k = kernels_get(ISA_AVX2);
    struct wide *const m = (struct wide *)(void *)work;
    /* rows of a block: it stays in L1 for a few tokens, in L2 for many */
    const size_t block = n_tokens > 8 ? WIDE_ROWS : WIDE_SMALL_M;
    size_t nr, nk, nt;

    for (size_t r = 0; r < n_rows; r += nr) {
        nr = n_rows - r < block ? n_rows - r : block;
        nk = n_cols < WIDE_COLS ? n_cols : WIDE_COLS;
        widen_rows(m->rows, nk, w, r, nr, 0, nk);
        k->matmul_f32[DT_F32](y + r, ldy, m->rows, nk, x, ldx, nr, nk, n_tokens,
                              NULL);
        for (size_t k0 = nk; k0 < n_cols; k0 += nk) {
            nk = n_cols - k0 < WIDE_COLS ? n_cols - k0 : WIDE_COLS;
            widen_rows(m->rows, nk, w, r, nr, k0, nk);
            for (size_t t = 0; t < n_tokens; t += nt) {
                nt = n_tokens - t < WIDE_TOKENS ? n_tokens - t : WIDE_TOKENS;
                k->matmul_f32[DT_F32](m->more, nr, m->rows, nk,
                                      x + t * ldx + k0, ldx, nr, nk, nt, NULL);
                for (size_t i = 0; i < nt * nr; i++)
                    y[(t + i / nr) * ldy + r + i % nr] += m->more[i];
            }
        }
    }
}

/* ---- rounding to int8 --------------------------------------------------- */

INLINE __m256i round8(const float *x, __m256 by)
{
    __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x), by);

    /* min and max return a NaN in their second operand; it becomes 0 */
    v = _mm256_min_ps(_mm256_set1_ps(127), v);
    v = _mm256_max_ps(_mm256_set1_ps(-127), v);
    v = _mm256_and_ps(v, _mm256_cmp_ps(v, v, _CMP_ORD_Q));
    return _mm256_cvtps_epi32(v);
}

/* The largest magnitude of n values, a multiple of 16. */
INLINE float largest(const float *x, size_t n)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i m[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    __m128i four;

    /* as integers: NaN are the largest, so that none is lost */
    for (size_t i = 0; i < n; i += 16)
        for (size_t j = 0; j < 2; j++)
            m[j] = _mm256_max_epi32(
                _mm256_and_si256(magnitude, _mm256_loadu_si256(
                                                (const void *)(x + i + 8 * j))),
                m[j]);
    m[0] = _mm256_max_epi32(m[0], m[1]);
    four = _mm_max_epi32(_mm256_castsi256_si128(m[0]),
                         _mm256_extracti128_si256(m[0], 1));
    four = _mm_max_epi32(four, _mm_unpackhi_epi64(four, four));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 1));
    return _mm_cvtss_f32(_mm_castsi128_ps(four));
}

/* Round one group of n values, 16 or a multiple of 32, whose largest magnitude,
 * or that of the group paired with it, is top. Sets its scale, and scale times
 * the sum of the rounded values. */
INLINE void round_group(int8_t *q, float *scale, float *sum, const float *x,
                        size_t n, float top)
{
    const __m256 by = _mm256_set1_ps(top > 0 ? 127 / top : 0);
    __m256i total = _mm256_setzero_si256();
    __m128i four;

    for (size_t i = 0; i + 16 == n; i += 16) { /* a group of 16 */
        __m256i a = round8(x, by), b = round8(x + 8, by);
        __m256i words =
            _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);

        total = _mm256_add_epi32(a, b);
        _mm_storeu_si128((__m128i_u *)(void *)q,
                         _mm_packs_epi16(_mm256_castsi256_si128(words),
                                         _mm256_extracti128_si256(words, 1)));
    }
    for (size_t i = 0; i + 32 <= n; i += 32) {
        __m256i v[4], bytes;

        UNROLL
        for (size_t j = 0; j < 4; j++)
            v[j] = round8(x + i + 8 * j, by);
        total = _mm256_add_epi32(
            total, _mm256_add_epi32(_mm256_add_epi32(v[0], v[1]),
                                    _mm256_add_epi32(v[2], v[3])));
        bytes = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]),
                                   _mm256_packs_epi32(v[2], v[3]));
        bytes = _mm256_permutevar8x32_epi32(
            bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        _mm256_storeu_si256((__m256i_u *)(void *)(q + i), bytes);
    }
    four = _mm_add_epi32(_mm256_castsi256_si128(total),
                         _mm256_extracti128_si256(total, 1));
    four = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 1));
    *scale = top / 127;
    *sum = *scale * (float)_mm_cvtsi128_si32(four);
}

#include "kernel/k_round_q8.h"

/* ---- measuring ---------------------------------------------------------- */

/* Products of bytes, added in words, as for weights of up to four bits. */
static double k_peak_q8_avx2(size_t reps, float *sink)
{
    enum { CHAINS = 12, STEPS = 13020 }; /* 64 * CHAINS * STEPS is near 1e7 */
    const __m256i x = _mm256_set1_epi8(-3);
    __m256i w = _mm256_set1_epi8(5), a[CHAINS], out[CHAINS];

    UNROLL
    for (int i = 0; i < CHAINS; i++)
        a[i] = _mm256_set1_epi16((short)i);
    for (size_t s = 0; s < reps * STEPS; s++) {
        UNROLL
        for (int i = 0; i < CHAINS; i++) {
            __asm__(""
                    : "+x"(w)); /* otherwise gcc hoists the multiplication
                                   out of the loop */
            a[i] = _mm256_add_epi16(a[i], _mm256_maddubs_epi16(w, x));
        }
    }
    UNROLL
    for (int i = 0; i < CHAINS; i++) {
        out[i] = a[i];
        __asm__("" : "+m"(out[i])); /* as in panel_group */
    }
    for (int i = 1; i < CHAINS; i++)
        out[0] = _mm256_xor_si256(out[0], out[i]);
    *sink = sum_lanes(_mm256_cvtepi32_ps(out[0]));
    return 64.0 * CHAINS * STEPS * (double)reps;
}

void k_q8_avx2_init(struct kernels *k)
{
    k->affine_to_f32 = k_affine_to_f32_avx2;
    k->matmul_f32_affine = k_matmul_f32_affine_avx2;
    k->to_q8 = k_to_q8_avx2;
    k->to_kv_i8 = k_to_kv_i8_avx2;
    k->gemm_q8_affine = k_gemm_q8_affine_avx2;
    k->peak_q8 = k_peak_q8_avx2;
}
