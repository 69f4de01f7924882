/* Exponentials and caps of a vector, over the SIMD shim. Included by
 * k_f32_elements.h, and by the attention kernels in bf16. */
#ifndef KERNEL_K_F32_EXP_H
#define KERNEL_K_F32_EXP_H

#if !defined VEC_LANES || !defined VEC_FLUSH_EXP
#error "include a SIMD shim first: kernel/simd.h lists what it must define"
#endif

/* ---- exp ---------------------------------------------------------------- */

/* Compute exp(x - n ln 2) - 1. n ln 2 is subtracted in two parts (Cody and Waite
 * 1980). A minimax polynomial gives exp(r) for the rest r, |r| <= ln 2 / 2,
 * with a relative error of 2^-28.3 (coefficients by the Remez exchange). */
INLINE vec exp_rest_less1(vec x, vec n)
{
    const vec ln2_hi = vec_set1(0x1.62e4p-1f); /* n * ln2_hi is exact */
    const vec ln2_lo = vec_set1(0x1.7f7d1cp-20f);
    vec r, p;

    r = vec_fnma(n, ln2_hi, x);
    r = vec_fnma(n, ln2_lo, r);
    p = vec_set1(0.00138148398f);
    p = vec_fma(p, r, vec_set1(0.00836859923f));
    p = vec_fma(p, r, vec_set1(0.0416683778f));
    p = vec_fma(p, r, vec_set1(0.166665211f));
    p = vec_fma(p, r, vec_set1(0.49999994f));
    return vec_fma(r * r, p, r);
}

INLINE vec exp_rest(vec x, vec n)
{
    return exp_rest_less1(x, n) + vec_set1(1);
}

/* Compute exp(x) within 1 ulp if the result is normal; subnormal results are
 * rounded once. NaN stays NaN. */
INLINE vec vec_exp(vec x)
{
    vec n;

    /* Outside of these limits the result is 0 or infinity. NaN is the second
     * operand, so vec_min and vec_max return it. */
    x = vec_min(vec_set1(89), x);
    x = vec_max(vec_set1(-104), x);
    n = vec_round(x * vec_set1(0x1.715476p0f));
    return vec_scale2(exp_rest(x, n), n);
}

/* Compute exp(x) for x <= 0 or NaN. The result may be 0 if x < -87. */
INLINE vec vec_exp_flush(vec x)
{
#if VEC_FLUSH_EXP
    /* A number of this size has integral values in its last bits; they start
     * at -127, the bias of an exponent. */
    const vec shift = vec_set1(0x1.8p23f + 127);
    const vec least = vec_set1(-87);
    const vec in = x;
    vec t, p;

    x = vec_max(least, x); /* returns NaN */
    t = vec_fma(x, vec_set1(0x1.715476p0f), shift);
    p = exp_rest(x, t - shift);
    return vec_zero_if_less(p * vec_exponent(t), in, least);
#else
    return vec_exp(x);
#endif
}

INLINE float exp1(float x)
{
    return vec_lane0(vec_exp(vec_set1(x)));
}

/* ---- caps ---------------------------------------------------------------- */

struct cap {
    vec c, by; /* the cap, and 2 / c */
};

INLINE struct cap cap_of(float c)
{
    return (struct cap){vec_set1(c), vec_set1(2 / c)};
}

/* Compute c tanh(x / c) with a relative error of at most 8 u, u = 2^-24, if x
 * and x / c are normal: with e = exp(2 z) - 1,
 *
 *   tanh(z) = e / (e + 2)
 *
 * keeps the relative precision of e, also near 0. From |2 z| = 20 on, this is
 * 1 or -1. NaN and infinities become NaN, by x - x.
 * Roundings: 2 / c and its product with x (2 u, and d tanh / dz never raises a
 * relative error); e where it is 0.41, the rest of its exponential near -0.29
 * (3 u); then e + 2, the quotient and the product with c (3 u). */
INLINE vec vec_cap(vec x, struct cap c)
{
    vec z2, n, two, e;

    z2 = vec_max(vec_set1(-20), vec_min(vec_set1(20), x * c.by));
    n = vec_round(z2 * vec_set1(0x1.715476p0f));
    two = vec_scale2(vec_set1(1), n);
    e = vec_fma(exp_rest_less1(z2, n), two, two - vec_set1(1));
    return c.c * (e / (e + vec_set1(2))) + (x - x);
}

#endif
