/* The f32 kernels for AVX-512 (F, BW, VL, DQ), with a faster sweep of bf16 rows
 * by one token. */
#include "kernel/x86/simd_avx512.h"

/* ---- bf16 rows by one token --------------------------------------------- */

/* Most elements of x that are rearranged for rows of bf16, and the fewest rows
 * for which that pays off. */
enum { PAIRS_MAX = 32768, PAIRS_MIN_ROWS = 16 };

_Static_assert(PAIRS_MAX <= KERNEL_WORK, "the caller's memory");

/* Rearrange x[0..n) in runs of 32: elements of even index, then of odd index,
 * with zeros up to a whole run. */
static void split_pairs(float *out, const float *x, size_t n)
{
    for (size_t k = 0; k < n; k += 32) {
        const size_t left = n - k;
        __m512 a = _mm512_maskz_loadu_ps(first_lanes(left), x + k);
        __m512 b = left > 16 ? _mm512_maskz_loadu_ps(first_lanes(left - 16),
                                                     x + k + 16)
                             : _mm512_setzero_ps();

        vec_split_pairs(&a, &b, a, b);
        _mm512_store_ps(out + k, a);
        _mm512_store_ps(out + k + 16, b);
    }
}

/* Add the products of 32 elements of a row and x, which is in split_pairs's
 * order. */
INLINE void add_pairs(__m512 *even, __m512 *odd, __m512i w, const float *x)
{
    const __m512i high = _mm512_set1_epi32((int)0xffff0000);
    __m512 e, o;

    __asm__("" : "+v"(w)); /* load w once for both products */
    e = _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
    o = _mm512_castsi512_ps(_mm512_and_si512(w, high));
    *even = _mm512_fmadd_ps(e, _mm512_load_ps(x), *even);
    *odd = _mm512_fmadd_ps(o, _mm512_load_ps(x + 16), *odd);
}

/* dot_row on bf16, with the same bits: each lane of an accumulator sums the
 * same columns modulo 32, only in another place. It needs fewer instructions
 * per line, so the core's instruction window reaches further ahead. */
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

/* Multiply all rows by one token; false if the size does not suit pairs. */
static bool rows_in_pairs(float *y, const char *w, size_t w_bytes,
                          const float *x, size_t n_rows, size_t n, float *pairs)
{
    const size_t ahead = kernel_core.sweep_ahead;

    if (n_rows < PAIRS_MIN_ROWS || n > PAIRS_MAX)
        return false;
    split_pairs(pairs, x, n);
    WITH_FLAG(to_l2, kernel_core.sweep_l2,
              for (size_t r = 0; r < n_rows; r++) y[r] =
                  dot_pairs(w + r * w_bytes, pairs, n, ahead, to_l2));
    return true;
}

#define MATMUL_ROWS_BF16 rows_in_pairs

#include "kernel/k_f32.h"

void k_avx512_init(struct kernels *k)
{
    fill_f32(k);
}
