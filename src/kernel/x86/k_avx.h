/* What k_avx2.c and k_avx512.c share below k_tiles.h: the last steps of their
 * sums, and a transposition, in vectors of eight floats. Each compiles its own
 * copy, with its own instruction set. */
#ifndef KERNEL_X86_K_AVX_H
#define KERNEL_X86_K_AVX_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/dtype.h"
#include "kernel/kernel.h"

#define INLINE      static inline __attribute__((always_inline))
#define UNROLL      _Pragma("GCC unroll 16")
#define UNROLL_SOME _Pragma("GCC unroll 4")

INLINE size_t type_bytes(enum dtype type)
{
    return type == DT_F32 ? 4 : type == DT_I8 ? 1 : 2;
}

/* Fetch a line that is used soon, as this CPU does it best. */
INLINE void fetch_line(const void *p)
{
    if (kernel_sweep.to_l2)
        _mm_prefetch(p, _MM_HINT_T1);
    else
        _mm_prefetch(p, _MM_HINT_T0);
}

/* Fetch for a sweep over weights that is at p. */
INLINE void sweep(const void *p)
{
    fetch_line((const char *)p + kernel_sweep.ahead);
}

/* The same where the hint is known, and stays where it is written: gcc would
 * gather those of several lines, and memory delivers less then. */
INLINE void sweep_by(const void *p, size_t ahead, bool to_l2)
{
    const char *line = (const char *)p + ahead;

    if (to_l2)
        __asm__ volatile("prefetcht1 %0" ::"m"(*line));
    else
        __asm__ volatile("prefetcht0 %0" ::"m"(*line));
}

/* What a sweep over keys or values fetches for the next one: step bytes for
 * each of its positions, from at on; none where they come from scratch. */
struct ahead {
    const char *at;
    size_t step;
    bool to_l2; /* known to the compiler where it matters */
};

/* For n more positions. */
INLINE void fetch(struct ahead *a, size_t n)
{
    for (size_t i = 0; i < n * a->step; i += 64)
        sweep_by(a->at + i, 0, a->to_l2);
    a->at += n * a->step;
}

/* Number at any address. */
INLINE float load_float(const char *p)
{
    float f;

    memcpy(&f, p, sizeof f);
    return f;
}

/* Scale of the group with element e of position j of an int8 block. */
INLINE float kv_scale(const char *block, size_t d, size_t j, size_t e)
{
    size_t at = j * kv_q8_groups(d) + e / KV_Q8_GROUP;

    return load_float(block + KV_BLOCK * d + at * sizeof(float));
}

/* ---- reductions, in one order ------------------------------------------ */

/* Lanes l and l + 4, then l and l + 2, then l and l + 1. */
INLINE __m128 fold8(__m256 v)
{
    return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
}

INLINE float sum_lanes(__m256 v)
{
    __m128 s = fold8(v);

    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

/* Four of them at once. */
INLINE __m128 sum_lanes4(__m256 a, __m256 b, __m256 c, __m256 d)
{
    __m128 fa = fold8(a), fb = fold8(b), fc = fold8(c), fd = fold8(d);
    __m128 ab = _mm_add_ps(_mm_unpacklo_ps(fa, fb), _mm_unpackhi_ps(fa, fb));
    __m128 cd = _mm_add_ps(_mm_unpacklo_ps(fc, fd), _mm_unpackhi_ps(fc, fd));

    return _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab));
}

INLINE float max_lanes8(__m256 v)
{
    __m128 m =
        _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

INLINE double sum_lanes4_pd(__m256d v)
{
    __m128d s =
        _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));

    return _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)));
}

/* Sums of four rows of a tile, or of one, to y. */
INLINE void store_sums(float *y, const __m256 *v, int R)
{
    if (R == 4) {
        _mm_storeu_ps(y, sum_lanes4(v[0], v[1], v[2], v[3]));
    } else {
        UNROLL
        for (int r = 0; r < R; r++)
            y[r] = sum_lanes(v[r]);
    }
}

/* ---- transposition ------------------------------------------------------ */

/* v[p][j] = v[j][p]: pairs, quadruples, halves. */
INLINE void transpose8(__m256 v[8])
{
    __m256 s[8], t[8];

    UNROLL
    for (int j = 0; j < 8; j += 2) {
        s[j] = _mm256_unpacklo_ps(v[j], v[j + 1]);
        s[j + 1] = _mm256_unpackhi_ps(v[j], v[j + 1]);
    }
    UNROLL
    for (int j = 0; j < 8; j += 4) {
        t[j] = _mm256_shuffle_ps(s[j], s[j + 2], 0x44);
        t[j + 1] = _mm256_shuffle_ps(s[j], s[j + 2], 0xee);
        t[j + 2] = _mm256_shuffle_ps(s[j + 1], s[j + 3], 0x44);
        t[j + 3] = _mm256_shuffle_ps(s[j + 1], s[j + 3], 0xee);
    }
    UNROLL
    for (int j = 0; j < 4; j++) {
        v[j] = _mm256_permute2f128_ps(t[j], t[j + 4], 0x20);
        v[j + 4] = _mm256_permute2f128_ps(t[j], t[j + 4], 0x31);
    }
}

/* out[p * ldo + j] = v[j][p] for p < n; out is aligned. v is lost. */
INLINE void store_transposed8(float *out, size_t ldo, __m256 v[8], size_t n)
{
    transpose8(v);
    UNROLL
    for (size_t p = 0; p < 8; p++)
        if (p < n)
            _mm256_store_ps(out + p * ldo, v[p]);
}

#endif
