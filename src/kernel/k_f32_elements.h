/* Kernels in f32 that map element by element, conversions, parts of the
 * softmax, and measurements, over the SIMD shim. Included by k_f32.h.
 *
 * A kernel that maps elements has a function that handles one vector of n
 * lanes. The last elements of a call go through the same vector operations as
 * all others, so the value of an element does not depend on its place in the
 * call. */
#ifndef KERNEL_K_F32_ELEMENTS_H
#define KERNEL_K_F32_ELEMENTS_H

#if !defined KERNEL || !defined VEC_LANES || !defined PEAK_CHAINS
#error "include a SIMD shim first: kernel/simd.h lists what it must define"
#endif

#include "kernel/k_f32_exp.h"

/* ---- conversions -------------------------------------------------------- */

INLINE void to_f32(float *out, const char *in, size_t n, enum dtype type)
{
    size_t i = 0;

    for (; n - i >= VEC_LANES; i += VEC_LANES)
        vec_store(out + i, vec_load_as(in + 2 * i, VEC_LANES, type), VEC_LANES);
    if (i < n)
        vec_store(out + i, vec_load_as(in + 2 * i, n - i, type), n - i);
}

INLINE void from_f32(char *out, const float *in, size_t n, enum dtype type)
{
    size_t i = 0;

    for (; n - i >= VEC_LANES; i += VEC_LANES)
        vec_store_as(out + 2 * i, vec_load(in + i, VEC_LANES), VEC_LANES, type);
    if (i < n)
        vec_store_as(out + 2 * i, vec_load(in + i, n - i), n - i, type);
}

/* ---- element-wise ------------------------------------------------------- */

INLINE void norm_vec(float *out, const float *x, const float *w, vec scale,
                     size_t n)
{
    vec_store(out, vec_load(w, n) * (vec_load(x, n) * scale), n);
}

/* Cannot overflow. */
INLINE double sum_squares(const float *x, size_t n)
{
    struct vec_f64 sum = vec_f64_zero();
    size_t i = 0;

    for (; n - i >= VEC_LANES; i += VEC_LANES)
        sum = vec_f64_add_squares(sum, vec_load(x + i, VEC_LANES));
    if (i < n)
        sum = vec_f64_add_squares(sum, vec_load(x + i, n - i));
    return vec_f64_sum(sum);
}

static void KERNEL(rmsnorm)(float *out, const float *x, const float *w,
                            size_t n_rows, size_t d, float eps)
{
    for (size_t r = 0; r < n_rows; r++, x += d, out += d) {
        const double mean = sum_squares(x, d) / (double)d;
        const vec scale = vec_set1((float)(1 / sqrt(mean + (double)eps)));
        size_t i = 0;

        for (; d - i >= VEC_LANES; i += VEC_LANES)
            norm_vec(out + i, x + i, w + i, scale, VEC_LANES);
        if (i < d)
            norm_vec(out + i, x + i, w + i, scale, d - i);
    }
}

/* The mean of a row, and what rows are multiplied by after its subtraction. */
struct moments {
    vec mean, scale;
};

/* The variance is that of x - m, with the mean m rounded to f32: about the true
 * mean it is less by the square of the rounding. */
INLINE struct moments moments_of(const float *x, size_t d, float eps)
{
    struct vec_f64 sum = vec_f64_zero(), squares = vec_f64_zero();
    size_t i = 0;

    for (; d - i >= VEC_LANES; i += VEC_LANES)
        sum = vec_f64_add(sum, vec_load(x + i, VEC_LANES));
    if (i < d)
        sum = vec_f64_add(sum, vec_load(x + i, d - i));
    const double mean = vec_f64_sum(sum) / (double)d;
    const double rest = mean - (double)(float)mean;
    const vec m = vec_set1((float)mean);
    for (i = 0; d - i >= VEC_LANES; i += VEC_LANES)
        squares = vec_f64_add_squares(squares, vec_load(x + i, VEC_LANES) - m);
    if (i < d)
        squares = vec_f64_add_squares(
            squares, vec_first(vec_load(x + i, d - i) - m, d - i));
    const double var = vec_f64_sum(squares) / (double)d - rest * rest;
    return (struct moments){m, vec_set1((float)(1 / sqrt(var + (double)eps)))};
}

INLINE void layernorm_vec(float *out, const float *x, const float *w,
                          const float *b, struct moments m, size_t n)
{
    vec_store(out,
              vec_fma(vec_load(w, n), (vec_load(x, n) - m.mean) * m.scale,
                      vec_load(b, n)),
              n);
}

static void KERNEL(layernorm)(float *out, const float *x, const float *wb,
                              size_t n_rows, size_t d, float eps)
{
    const float *w = wb, *b = wb + d;

    for (size_t r = 0; r < n_rows; r++, x += d, out += d) {
        const struct moments m = moments_of(x, d, eps);
        size_t i = 0;

        for (; d - i >= VEC_LANES; i += VEC_LANES)
            layernorm_vec(out + i, x + i, w + i, b + i, m, VEC_LANES);
        if (i < d)
            layernorm_vec(out + i, x + i, w + i, b + i, m, d - i);
    }
}

/* Rotate n elements, starting at x, with their partners h elements further
 * on. */
INLINE void rope_vec(float *x, size_t h, const float *cos, const float *sin,
                     size_t n)
{
    const vec a = vec_load(x, n), b = vec_load(x + h, n);
    const vec c = vec_load(cos, n), s = vec_load(sin, n);

    vec_store(x, vec_fnma(b, s, a * c), n);
    vec_store(x + h, vec_fma(a, s, b * c), n);
}

static void KERNEL(rope)(float *x, size_t n_rows, size_t d, const float *cos,
                         const float *sin)
{
    const size_t h = d / 2;

    for (size_t r = 0; r < n_rows; r++, x += d) {
        size_t i = 0;

        for (; h - i >= VEC_LANES; i += VEC_LANES)
            rope_vec(x + i, h, cos + i, sin + i, VEC_LANES);
        if (i < h)
            rope_vec(x + i, h, cos + i, sin + i, h - i);
    }
}

/* The compiler does this with the level's own instructions. A pass spends less
 * than a hundredth of its time here. */
static void KERNEL(rope_pairs)(float *x, size_t n_rows, size_t d,
                               const float *cos, const float *sin)
{
    for (size_t r = 0; r < n_rows; r++, x += d)
        for (size_t i = 0; i < d / 2; i++) {
            const float a = x[2 * i], b = x[2 * i + 1];

            x[2 * i] = a * cos[i] - b * sin[i];
            x[2 * i + 1] = b * cos[i] + a * sin[i];
        }
}

/* The sums of a Hadamard transform within a vector of n elements, whose parts
 * do not cross its end. */
INLINE void hadamard_vec(float *x, size_t part, vec scale, size_t n)
{
    vec v = vec_load(x, n);

    UNROLL
    for (size_t h = 1; h < VEC_LANES; h *= 2)
        if (h < part)
            v = vec_butterfly(v, h);
    vec_store(x, v * scale, n);
}

/* Add and subtract elements that are h apart, whole vectors. */
INLINE void hadamard_far(float *x, size_t part, size_t h, vec scale)
{
    for (size_t i = 0; i < part; i += 2 * h)
        for (float *a = x + i; a < x + i + h; a += VEC_LANES) {
            const vec low = vec_load(a, VEC_LANES);
            const vec high = vec_load(a + h, VEC_LANES);

            vec_store(a, (low + high) * scale, VEC_LANES);
            vec_store(a + h, (low - high) * scale, VEC_LANES);
        }
}

static void KERNEL(hadamard)(float *x, size_t n_rows, size_t d)
{
    const size_t part = d & (~d + 1), step = part > VEC_LANES ? part : d;
    const vec one = vec_set1(1), scale = vec_set1(1 / sqrtf((float)part));
    const vec near = part > VEC_LANES ? one : scale;

    for (float *end = x + n_rows * d; x < end; x += step) {
        size_t i = 0;

        for (; step - i >= VEC_LANES; i += VEC_LANES)
            hadamard_vec(x + i, part, near, VEC_LANES);
        if (i < step)
            hadamard_vec(x + i, part, near, step - i);
        for (size_t h = VEC_LANES; h < part; h *= 2)
            hadamard_far(x, part, h, 2 * h == part ? scale : one);
    }
}

INLINE void swiglu_vec(float *out, const float *gate, const float *up, size_t n)
{
    const vec z = vec_load(gate, n);
    const vec den = vec_set1(1) + vec_exp(-z);

    vec_store(out, z / den * vec_load(up, n), n);
}

static void KERNEL(swiglu)(float *out, const float *gate, const float *up,
                           size_t n)
{
    size_t i = 0;

    for (; n - i >= VEC_LANES; i += VEC_LANES)
        swiglu_vec(out + i, gate + i, up + i, VEC_LANES);
    if (i < n)
        swiglu_vec(out + i, gate + i, up + i, n - i);
}

/* Compute geglu for one vector. 2 u in kernel.h is z (a + b z^2). */
INLINE void geglu_vec(float *out, const float *gate, const float *up, size_t n)
{
    const vec a = vec_set1((float)(2 * GELU_SCALE));
    const vec b = vec_set1((float)(2 * GELU_SCALE * GELU_CUBE));
    const vec z = vec_load(gate, n);
    const vec den = vec_set1(1) + vec_exp(-z * vec_fma(z * z, b, a));

    vec_store(out, z / den * vec_load(up, n), n);
}

static void KERNEL(geglu)(float *out, const float *gate, const float *up,
                          size_t n)
{
    size_t i = 0;

    for (; n - i >= VEC_LANES; i += VEC_LANES)
        geglu_vec(out + i, gate + i, up + i, VEC_LANES);
    if (i < n)
        geglu_vec(out + i, gate + i, up + i, n - i);
}

/* Compute a Phi(-a) for a in [0, 14.4] or NaN; it is 0 at 14.4. With
 * t = 1 / (1 + 0.4 a), exp(a^2 / 2) Phi(-a) is a polynomial of t with a relative
 * error of 2^-23.8 up to 13.4, beyond which the result is subnormal
 * (coefficients by the Remez exchange). */
INLINE vec gelu_tail(vec a)
{
    const vec t = vec_reciprocal(vec_fma(a, vec_set1(0.4f), vec_set1(1)));
    const vec x = a * (a * vec_set1(-0.5f));
    const vec n = vec_round(x * vec_set1(0x1.715476p0f));
    const vec e = vec_scale2(exp_rest(x, n), n);
    vec p = vec_set1(-0.040075101f);

    p = vec_fma(p, t, vec_set1(0.202647507f));
    p = vec_fma(p, t, vec_set1(-0.377396107f));
    p = vec_fma(p, t, vec_set1(0.254658908f));
    p = vec_fma(p, t, vec_set1(-0.0145665901f));
    p = vec_fma(p, t, vec_set1(0.159201518f));
    p = vec_fma(p, t, vec_set1(0.155619293f));
    p = vec_fma(p, t, vec_set1(0.159923464f));
    p = vec_fma(p, t, vec_set1(-1.2905306e-05f));
    return (a * p) * e;
}

/* z Phi(z) is -|z| Phi(-|z|) below 0 and z - |z| Phi(-|z|) above. NaN stays. */
INLINE vec gelu_erf(vec z)
{
    const vec a = vec_min(vec_set1(14.4f), vec_max(-z, z));

    return vec_max(vec_zero(), z) - gelu_tail(a);
}

INLINE void geglu_erf_vec(float *out, const float *gate, const float *up,
                          size_t n)
{
    vec y = gelu_erf(vec_load(gate, n));

    if (up)
        y = y * vec_load(up, n);
    vec_store(out, y, n);
}

INLINE void geglu_erf_all(float *out, const float *gate, const float *up,
                          size_t n)
{
    size_t i = 0;

    for (; n - i >= VEC_LANES; i += VEC_LANES)
        geglu_erf_vec(out + i, gate + i, up ? up + i : NULL, VEC_LANES);
    if (i < n)
        geglu_erf_vec(out + i, gate + i, up ? up + i : NULL, n - i);
}

static void KERNEL(geglu_erf)(float *out, const float *gate, const float *up,
                              size_t n)
{
    if (up)
        geglu_erf_all(out, gate, up, n);
    else
        geglu_erf_all(out, gate, NULL, n);
}

/* vec_min and vec_max return the second operand if one is NaN. */
INLINE void clamped_swiglu_vec(float *out, const float *gate, const float *up,
                               size_t n)
{
    const vec most = vec_set1(CLAMPED_LIMIT), least = vec_set1(-CLAMPED_LIMIT);
    const vec g = vec_min(most, vec_load(gate, n));
    const vec u = vec_max(least, vec_min(most, vec_load(up, n)));
    const vec den = vec_set1(1) + vec_exp(g * vec_set1((float)-CLAMPED_ALPHA));

    vec_store(out, g / den * (u + vec_set1(1)), n);
}

static void KERNEL(clamped_swiglu)(float *out, const float *gate,
                                   const float *up, size_t n)
{
    size_t i = 0;

    for (; n - i >= VEC_LANES; i += VEC_LANES)
        clamped_swiglu_vec(out + i, gate + i, up + i, VEC_LANES);
    if (i < n)
        clamped_swiglu_vec(out + i, gate + i, up + i, n - i);
}

INLINE void glu_vec(float *out, const float *gate, const float *up, size_t n)
{
    const vec den = vec_set1(1) + vec_exp(-vec_load(gate, n));

    vec_store(out, vec_load(up, n) / den, n);
}

static void KERNEL(glu)(float *out, const float *gate, const float *up,
                        size_t n)
{
    size_t i = 0;

    for (; n - i >= VEC_LANES; i += VEC_LANES)
        glu_vec(out + i, gate + i, up + i, VEC_LANES);
    if (i < n)
        glu_vec(out + i, gate + i, up + i, n - i);
}

INLINE void add_vec(float *x, const float *y, size_t n)
{
    vec_store(x, vec_load(x, n) + vec_load(y, n), n);
}

static void KERNEL(add)(float *x, const float *y, size_t n)
{
    size_t i = 0;

    for (; n - i >= VEC_LANES; i += VEC_LANES)
        add_vec(x + i, y + i, VEC_LANES);
    if (i < n)
        add_vec(x + i, y + i, n - i);
}

INLINE void mul_vec(float *x, const float *y, size_t n)
{
    vec_store(x, vec_load(x, n) * vec_load(y, n), n);
}

static void KERNEL(mul)(float *x, const float *y, size_t n)
{
    size_t i = 0;

    for (; n - i >= VEC_LANES; i += VEC_LANES)
        mul_vec(x + i, y + i, VEC_LANES);
    if (i < n)
        mul_vec(x + i, y + i, n - i);
}

INLINE void cap_vec(float *x, struct cap c, size_t n)
{
    vec_store(x, vec_cap(vec_load(x, n), c), n);
}

static void KERNEL(cap)(float *x, float c, size_t n)
{
    const struct cap cap = cap_of(c);
    size_t i = 0;

    for (; n - i >= VEC_LANES; i += VEC_LANES)
        cap_vec(x + i, cap, VEC_LANES);
    if (i < n)
        cap_vec(x + i, cap, n - i);
}

static void KERNEL(scale)(float *x, float a, size_t n)
{
    const vec by = vec_set1(a);
    size_t i = 0;

    for (; n - i >= VEC_LANES; i += VEC_LANES)
        vec_store(x + i, vec_load(x + i, VEC_LANES) * by, VEC_LANES);
    if (i < n)
        vec_store(x + i, vec_load(x + i, n - i) * by, n - i);
}

/* ---- softmax ------------------------------------------------------------ */

static float KERNEL(max)(const float *x, size_t n)
{
    const vec none = vec_set1(-INFINITY);
    vec m[4] = {none, none, none, none};
    size_t i = 0;

    /* of a NaN and a maximum, vec_max returns the second operand */
    for (; n - i >= 4 * VEC_LANES; i += 4 * VEC_LANES) {
        UNROLL
        for (size_t c = 0; c < 4; c++)
            m[c] = vec_max(vec_load(x + i + VEC_LANES * c, VEC_LANES), m[c]);
    }
    for (; n - i >= VEC_LANES; i += VEC_LANES)
        m[0] = vec_max(vec_load(x + i, VEC_LANES), m[0]);
    if (i < n)
        m[0] = vec_max(vec_load_or(x + i, n - i, -INFINITY), m[0]);
    return vec_max_lane(vec_max(vec_max(m[0], m[1]), vec_max(m[2], m[3])));
}

/* Return the exponentials of n values, and 0 in the lanes from n on. Stores
 * them in out unless it is NULL. */
INLINE vec exp_vec(float *out, const float *x, vec shift, vec scale, size_t n)
{
    const vec v = vec_load_or(x, n, -INFINITY);
    vec e = vec_exp((v - shift) * scale);

    /* -INFINITY times a scale of 0 would be NaN */
    e = vec_zero_if_equal(e, v, vec_set1(-INFINITY));
    if (out)
        vec_store(out, e, n);
    return e;
}

static double KERNEL(exp_sum)(float *out, const float *x, size_t n, float shift,
                              float scale)
{
    const vec sh = vec_set1(shift), sc = vec_set1(scale);
    struct vec_f64 sum = vec_f64_zero();
    size_t i = 0;

    for (; n - i >= VEC_LANES; i += VEC_LANES)
        sum = vec_f64_add(
            sum, exp_vec(out ? out + i : NULL, x + i, sh, sc, VEC_LANES));
    if (i < n)
        sum = vec_f64_add(sum,
                          exp_vec(out ? out + i : NULL, x + i, sh, sc, n - i));
    return vec_f64_sum(sum);
}

/* ---- measurements ------------------------------------------------------- */

static unsigned long long KERNEL(read_sum)(const void *p, size_t n, bool to_l2)
{
    enum { LINE = 64 };
    const size_t ahead = kernel_core.sweep_ahead;
    const char *c = p;
    vec_words sum = vec_words_zero();
    char last[LINE] = {0};
    size_t i = 0;

    /* fetch one line at a time: grouped prefetches give less bandwidth */
    for (; n - i >= LINE; i += LINE) {
        sweep_by(c + i, ahead, to_l2);
        sum = vec_words_add(sum, c + i);
    }
    memcpy(last, c + i, n - i);
    return vec_words_sum(vec_words_add(sum, last));
}

static double KERNEL(peak_flops)(size_t reps, float *sink)
{
    /* about 1e7 operations per repetition */
    enum { STEPS = 10000000 / (2 * VEC_LANES * PEAK_CHAINS) };
    const vec mul = vec_set1(0.999f), add = vec_set1(0.001f);
    vec a[PEAK_CHAINS];

    UNROLL
    for (int i = 0; i < PEAK_CHAINS; i++)
        a[i] = vec_set1((float)i);
    for (size_t s = 0; s < reps * STEPS; s++) {
        UNROLL
        for (int i = 0; i < PEAK_CHAINS; i++)
            a[i] = vec_fma(a[i], mul, add);
    }
    for (int i = 1; i < PEAK_CHAINS; i++)
        a[0] += a[i];
    *sink = vec_sum(a[0]);
    return 2.0 * VEC_LANES * PEAK_CHAINS * STEPS * (double)reps;
}

#endif
