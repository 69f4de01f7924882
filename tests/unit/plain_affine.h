/* A plain scalar quantizer in MLX's affine format, and checks against it. */
#ifndef TEST_PLAIN_AFFINE_H
#define TEST_PLAIN_AFFINE_H

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "model/affine.h"
#include "test.h"

static const int all_bits[] = {2, 3, 4, 5, 6, 8};
static const int all_groups[] = {32, 64, 128};
enum { N_BITS = 6, N_GROUPS = 3 };

/* Halves by arithmetic, because clang 14 has no _Float16 on x86-64. Only finite
 * ones are read. */
static inline float half_value(uint16_t h)
{
    double m = h & 1023;
    int e = h >> 10 & 31;
    double v = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return (float)(h >> 15 ? -v : v);
}

/* The nearest one, ties to even. A mantissa that becomes 2048 carries into the
 * exponent. */
static inline uint16_t half_nearest(float f)
{
    double a = fabs((double)f);
    uint16_t sign = signbit(f) ? 0x8000 : 0;
    if (!(a < 65520)) /* infinity, or not a number */
        return sign | (isnan(f) ? 0x7e00 : 0x7c00);
    int e = a < 0x1p-14 ? -14 : ilogb(a);
    unsigned bits = (unsigned)nearbyint(ldexp(a, 10 - e));
    bits += (unsigned)(e + 14) << 10;
    return (uint16_t)(bits | sign);
}

static inline float load(enum dtype type, const unsigned char *p)
{
    uint32_t u = 0;
    float f;
    uint16_t h;
    switch (type) {
    case DT_F16:
        memcpy(&h, p, 2);
        return half_value(h);
    case DT_BF16:
        u = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 24;
        memcpy(&f, &u, 4);
        return f;
    default:
        memcpy(&f, p, 4);
        return f;
    }
}

static inline void store(enum dtype type, unsigned char *p, float f)
{
    uint32_t u;
    uint16_t h;
    switch (type) {
    case DT_F16:
        h = half_nearest(f);
        memcpy(p, &h, 2);
        break;
    case DT_BF16:
        memcpy(&u, &f, 4);
        u += 0x7fff + (u >> 16 & 1); /* to nearest even */
        p[0] = (unsigned char)(u >> 16);
        p[1] = (unsigned char)(u >> 24);
        break;
    default:
        memcpy(p, &f, 4);
    }
}

/* Quantize one group with the steps of mlx.core.quantize. */
static inline void plain_group(int *q, float *scale, float *bias,
                               const float *w, size_t group, int bits)
{
    float n = (float)((1 << bits) - 1), min = w[0], max = w[0];
    for (size_t i = 1; i < group; i++) {
        min = w[i] < min ? w[i] : min;
        max = w[i] > max ? w[i] : max;
    }
    float s = (max - min) / n, edge = max, b = 0;
    if (s < 1e-7f)
        s = 1e-7f;
    if (fabsf(min) > fabsf(max))
        edge = min;
    else
        s = -s;
    float q0 = nearbyintf(edge / s);
    if (q0 != 0) {
        s = edge / q0;
        b = edge;
    }
    for (size_t i = 0; i < group; i++) {
        float v = nearbyintf((w[i] - b) / s);
        q[i] = v < 0 ? 0 : v > n ? (int)n : (int)v;
    }
    *scale = s;
    *bias = b;
}

/* Quantize n elements. Codes are put into the stream bit by bit. */
static inline void plain_quantize(unsigned char *q, unsigned char *scales,
                                  unsigned char *biases, const unsigned char *w,
                                  size_t n, enum dtype type, size_t group,
                                  int bits)
{
    size_t bytes = dtype_bytes(type);
    memset(q, 0, n * (size_t)bits / 8);
    for (size_t g = 0; g < n / group; g++) {
        float x[128] = {0}, s, b;
        int codes[128];
        for (size_t i = 0; i < group; i++)
            x[i] = load(type, w + (g * group + i) * bytes);
        plain_group(codes, &s, &b, x, group, bits);
        store(type, scales + g * bytes, s);
        store(type, biases + g * bytes, b);
        for (size_t i = 0; i < group; i++)
            for (int j = 0; j < bits; j++) {
                size_t at = (g * group + i) * (size_t)bits + (size_t)j;
                q[at / 8] |= (unsigned char)((codes[i] >> j & 1) << at % 8);
            }
    }
}

static inline int code_at(const unsigned char *q, size_t i, int bits)
{
    int v = 0;
    for (int j = 0; j < bits; j++) {
        size_t at = i * (size_t)bits + (size_t)j;
        v |= (q[at / 8] >> at % 8 & 1) << j;
    }
    return v;
}

/* Half of the distance between neighbouring values of a type near v. */
static inline float half_ulp(enum dtype type, float v)
{
    switch (type) {
    case DT_F16: /* subnormal below 2^-14 */
        return fmaxf(ldexpf(fabsf(v), -11), ldexpf(1, -25));
    case DT_BF16:
        return ldexpf(fabsf(v), -8);
    default:
        return ldexpf(fabsf(v), -24);
    }
}

/* Check that the dequantized weights are near the originals, within the bound
 * of affine.h. There s is the unrounded scale; here it is the stored one, which
 * has an error of half_ulp. float32 rounds w - b, the quotient, q * s and the
 * sum: four roundings of 2^-24 of at most (n + 1) * |s| + |b|. */
static inline void check_error(const unsigned char *q,
                               const unsigned char *scales,
                               const unsigned char *biases,
                               const unsigned char *w, size_t n,
                               enum dtype type, size_t group, int bits)
{
    size_t bytes = dtype_bytes(type);
    float n_bins = (float)((1 << bits) - 1);
    for (size_t i = 0; i < n; i++) {
        float s = load(type, scales + i / group * bytes);
        float b = load(type, biases + i / group * bytes);
        int code = code_at(q, i, bits);
        float x = load(type, w + i * bytes);
        float off = half_ulp(type, s), step = fabsf(s) + off;
        float bound = (code == (int)n_bins ? step : step / 2) +
                      (float)code * off +
                      ldexpf((n_bins + 1) * step + fabsf(b), -22);
        if (!(fabsf((float)code * s + b - x) <= bound))
            fail_msg("%d bits, group %zu, %s, element %zu: %g became %g, off "
                     "by more than %g",
                     bits, group, dtype_name(type), i, (double)x,
                     (double)((float)code * s + b), (double)bound);
    }
}

/* Kernels for conversions; main sets it. */
static const struct kernels *kernels;

static inline float normal(uint64_t seed, uint64_t i)
{
    double u = 1 - rng_uniform(seed, 2 * i), v = rng_uniform(seed, 2 * i + 1);
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

#endif
