/* The SIMD shim: the operations that the f32 kernels (k_f32.h) need from an
 * instruction set.
 *
 * The kernels are written once, in k_f32.h and the headers it includes. A level
 * has a shim, a header with the macros and functions below, and a C file that
 * includes the shim and then k_f32.h: x86/simd_avx2.h and x86/k_avx2.c, for
 * example. A new instruction set needs these two files.
 *
 * This header has the contract of a shim, and the macros and small functions
 * that all kernels share; it includes kernel/specialise.h. It uses no
 * instructions of its own.
 *
 * Macros of a shim
 *
 *   KERNEL(name)        the level's name of a kernel, such as k_##name##_avx2
 *   VEC_LANES           floats in a vector, at most 16
 *   VEC_MASKS           1 if loads and stores of a part of a vector are as fast
 *                       as those of a whole vector
 *   VEC_FLUSH_EXP       1 if vec_exponent and vec_zero_if_less exist: they make
 *                       an exponential that flushes small results cheaper
 *   MATMUL_CHAINS       accumulators of one row and token that a tile of
 *                       matmul_f32 keeps in registers at once; divides
 *                       32 / VEC_LANES. A tile has up to 12 rows times tokens.
 *   GEMM_MR, GEMM_MID   rows of the left operand that gemm_f32 multiplies by a
 *                       panel at once: GEMM_MR rows, and for the rest GEMM_MID.
 *                       A tile needs 2 * GEMM_MR accumulators.
 *   ATTN_ROWS           query rows that attention takes at once: 3, or more
 *                       than 4
 *   ATTN_VALUES         vectors of a row of values that attention handles at
 *                       once, for at most two query rows: 4 or more
 *   ATTN_PREFETCH       positions whose prefetches attention issues together
 *   DELTA_TOKENS, DELTA_VALUES
 *                       tokens, and vectors of their values, that Gated
 *                       DeltaNet multiplies by the state at once. A tile needs
 *                       2 * DELTA_TOKENS * DELTA_VALUES accumulators, or
 *                       4 * DELTA_VALUES.
 *   PEAK_CHAINS         independent multiply-adds that keep the units busy
 *
 * Types: vec (VEC_LANES floats), vec_ints (as many bits of integers), struct
 * vec_f64 (VEC_LANES doubles), vec_words (a cache line of 64-bit integers). vec
 * is a vector type of the compiler, so the operators + - * / work on it lane by
 * lane.
 *
 * Loads and stores accept any address. "The first n" means all lanes if
 * n >= VEC_LANES; otherwise memory behind element n is neither read nor
 * written, and lanes from n on are 0. All of them are inline, so a constant n
 * costs nothing.
 *
 *   vec_load(p, n)            the first n floats
 *   vec_load_or(p, n, other)  the first n floats, and `other` in the lanes from
 *                             n on
 *   vec_load_as(p, n, type)   the first n elements of a type (F32, F16, BF16,
 * I8 or F8_E4M3), widened exactly vec_load_range(v, p, lo, hi) KV_BLOCK floats
 * to KV_BLOCK / VEC_LANES vectors, -INFINITY outside [lo, hi) vec_store(p, v,
 * n)        the first n lanes vec_store_as(p, v, n, type) like vec_store,
 * rounded to F16 or BF16 as from_f32 does
 *
 *   vec_load_fp8(v, p, flags) 4 VEC_LANES elements of F8_E4M3, divided by
 *                             FP8_UNIT: the even ones of the first half to
 * v[0], its odd ones to v[1], those of the second half to v[2] and v[3]. NaN
 * become numbers, and set a bit of *flags vec_e8m0_halves(p)        halves of
 * VEC_LANES E8M0 numbers: e8m0_half of kernel/blocks.h vec_fp8_has_nan(flags)
 * whether vec_load_fp8 saw NaN since flags were 0 vec_split_pairs(even, odd, a,
 * b) the even and the odd elements of a and b, which follow each other
 *
 *   vec_spread(p, n)          p[i / n] in lane i, for n that divides VEC_LANES;
 *                             may read all VEC_LANES floats at p
 *
 *   vec_zero(), vec_set1(x), vec_lane0(v)
 *   vec_fma(a, b, c)          a * b + c, rounded once
 *   vec_fnma(a, b, c)         c - a * b, rounded once
 *   vec_min(a, b), vec_max(a, b)
 *                             b in lanes where either is NaN
 *   vec_reciprocal(x)         1 / x within 2 u, for normal x and results
 *   vec_round(x)              to an integral value, ties to even
 *   vec_scale2(p, n)          p * 2^n for integral n in [-151, 129], rounded
 *                             once
 *   vec_exponent(t)           the low bits of t's representation moved up to be
 *                             an exponent
 *   vec_zero_if_equal(v, x, y), vec_zero_if_less(v, x, y)
 *                             v, or 0 in the lanes where x == y or x < y
 *   vec_first(v, n)           v, or 0 in the lanes from n on
 *   vec_butterfly(v, h)       lane i: v[i] + v[i ^ h] if i & h is 0, otherwise
 *                             v[i ^ h] - v[i]; h is 1, 2, … VEC_LANES / 2
 *   vec_any_nan(v)            whether any lane is NaN
 *
 * vec_ints has VEC_LANES int32, or 2 VEC_LANES int16.
 *
 *   vec_load_i16(p)           2 VEC_LANES int16
 *   vec_store_i16(p, a, b)    the lanes of a and b, rounded to int16, ties to
 *                             even; the results must fit
 *   vec_widen_i8(p)           2 VEC_LANES int8, widened to int16
 *   vec_mul_pairs(a, b)       lane i: a[2 i] b[2 i] + a[2 i + 1] b[2 i + 1] of
 *                             their int16
 *   vec_ints_add(a, b)        a + b of int32
 *   vec_from_ints(v)          int32 to f32
 *   vec_ints_zero()
 *   vec_max_size(a, v)        the maximum of a and the representation of |v|,
 *                             as int32, so that NaN is the largest
 *   vec_exponents(a)          the exponent fields of floats in a, as f32
 *
 * The order of sums is the same at every level: lanes l and l + 8 are added
 * first, then l and l + 4, l and l + 2, l and l + 1.
 *
 *   vec_sum(v), vec_max_lane(v)
 *                             over the lanes; the maximum skips NaN
 *   vec_sum_chains(y, a, R)   for R = 4 or 1 rows, y[r] = the sum of the row's
 *                             32 partial sums. Partial sum i is in lane
 *                             i % VEC_LANES of a[r][i / VEC_LANES]. Partial
 *                             sums i and i + 8 are added first, then these
 *                             sums for i and i + 16, then as in vec_sum.
 *   vec_store_dots(s, v, P, T)
 *                             s[t * KV_BLOCK + r] = vec_sum(v[t * P + r]) for P
 *                             positions of T rows
 *   vec_dots_at_once(T)       the P for which vec_store_dots is the fastest: 4,
 *                             or more with P * T <= 16
 *   vec_f64_zero(), vec_f64_add(acc, v), vec_f64_add_squares(acc, v),
 *   vec_f64_sum(acc)          sums in double, lane by lane
 *   vec_words_zero(), vec_words_add(acc, p), vec_words_sum(acc)
 *                             sums of 64-bit integers, a cache line at a time
 *
 *   pack_8x8(out, ldo, p, stride, n_rows, n_cols, type)
 *                             transpose the first n_rows of eight rows, stride
 *                             bytes apart, and their first n_cols elements of
 *                             the type, at most 8: out[c * ldo + r] for
 *                             c < n_cols and r < 8, zeros for missing rows.
 *                             out is 32-byte aligned, ldo a multiple of 8.
 *   pack_8x16_bf16(out, ldo, p, stride)
 *                             like pack_8x8 for eight whole rows of 16 bf16
 *
 *   prefetch_near(p)          fetch the line of p into L1
 *   sweep(p)                  prefetch for a sweep over weights that has come
 *                             to p
 *   sweep_by(p, ahead, to_l2) fetch the line at p + ahead into L2, or into L1.
 *                             The compiler must not move this prefetch. */
#ifndef KERNEL_SIMD_H
#define KERNEL_SIMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/dtype.h"
#include "kernel/specialise.h"

#define INLINE      static inline __attribute__((always_inline))
#define OUTLINE     static __attribute__((noinline))
#define UNROLL      _Pragma("GCC unroll 16")
#define UNROLL_SOME _Pragma("GCC unroll 4")

/* Return the positive float whose exponent field is `exponent` and whose
 * mantissa is 0. */
INLINE float power_of_two(uint32_t exponent)
{
    const uint32_t u = exponent << 23;
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

INLINE size_t type_bytes(enum dtype type)
{
    return type == DT_F32                                            ? 4
           : type == DT_I8 || type == DT_U8 || type == DT_F8_E4M3 ? 1
                                                                  : 2;
}

/* What vec_load_fp8 divides by: exponents of f16 have a bias that is 8 larger
 * than that of F8_E4M3. */
#define FP8_UNIT 0x1p8f

/* Load a float from any address. */
INLINE float load_float(const char *p)
{
    float f;

    memcpy(&f, p, sizeof f);
    return f;
}

#endif
