#include "model/affine.h"

#include <math.h>
#include <string.h>

#include "model/lanes.h"

/* Elements widened at a time: whole groups of any size, far inside L1. */
enum { BLOCK = 1024 };

/* Adding it to 0 <= v < 2^22 rounds v to nearest even into the low bits. */
#define ROUNDER 8388608.0f

bool affine_valid(int bits, size_t group)
{
    return bits >= 2 && bits <= 8 && bits != 7 &&
           (group == 32 || group == 64 || group == 128);
}

struct affine_pair {
    float scale, bias;
};

/* Smallest and largest of the group; -1 when something is not finite. */
static int range(const vec *x, size_t group, float *min, float *max)
{
    vec lo = x[0], hi = x[0];
    ivec odd = {0};
    for (size_t i = 0; i < group / LANES; i++) {
        odd |= ((ivec)x[i] & 0x7fffffff) >= 0x7f800000;
        lo = lanes_smaller(x[i], lo);
        hi = lanes_larger(x[i], hi);
    }
    *min = lo[0];
    *max = hi[0];
    for (int i = 1; i < LANES; i++) {
        *min = lo[i] < *min ? lo[i] : *min;
        *max = hi[i] > *max ? hi[i] : *max;
    }
    return odd[0] | odd[1] | odd[2] | odd[3] ? -1 : 0;
}

static int choose_mlx(struct affine_pair *p, float min, float max, float n_bins)
{
    bool low = fabsf(min) > fabsf(max);
    float scale = fmaxf((max - min) / n_bins, 1e-7f);
    float edge = low ? min : max;
    p->bias = 0;
    p->scale = low ? scale : -scale;
    float q0 = rintf(edge / p->scale);
    if (q0 != 0) {
        p->scale = edge / q0;
        p->bias = edge;
    }
    return isfinite(p->scale) && p->scale != 0 ? 0 : -1;
}

/* (x - bias) / scale within [0, n_bins], plus ROUNDER. Clipping before rounding
 * gives what clipping after it does, the bounds being integers. */
static inline vec rounded(vec x, struct affine_pair p, float n_bins)
{
    vec v = (x - p.bias) / p.scale;
    return lanes_smaller(lanes_larger(v, lanes_splat(0)), lanes_splat(n_bins)) +
           ROUNDER;
}

static void encode(uint8_t *restrict codes, const vec *restrict x, size_t group,
                   struct affine_pair p, float n_bins)
{
    for (size_t at = 0; at < group; at += 32) {
        uint32_t t[32];
        for (size_t i = 0; i < 32 / LANES; i++) {
            ivec v = (ivec)rounded(x[at / LANES + i], p, n_bins);
            memcpy(t + i * LANES, &v, sizeof v);
        }
        for (size_t i = 0; i < 32; i++)
            codes[at + i] = (uint8_t)t[i];
    }
}

/* ---- least squares ------------------------------------------------------- */

/* How well a pair fits, and the sums for a better one, all of them weighted. */
struct fit {
    float error;           /* of (q * scale + bias - x)^2 */
    float n, q, qq, x, qx; /* of 1, q, q^2, x - x0, q * (x - x0) */
};

/* x0: any value near x, for sums without cancellation. Codes may differ from
 * encode's where both are equally far, as a division costs more than it tells
 * here. */
static struct fit measure(const vec *x, const vec *h, size_t group,
                          struct affine_pair p, float n_bins, float x0)
{
    vec error = {0}, n = {0}, q = {0}, qq = {0}, sx = {0}, qx = {0};
    float inverse = 1 / p.scale;
    for (size_t i = 0; i < group / LANES; i++) {
        vec v = lanes_smaller(
            lanes_larger((x[i] - p.bias) * inverse, lanes_splat(0)),
            lanes_splat(n_bins));
        vec code = (v + ROUNDER) - ROUNDER;
        vec d = code * p.scale + p.bias - x[i];
        vec rel = x[i] - x0, hq = h[i] * code;
        error += h[i] * (d * d);
        n += h[i];
        q += hq;
        qq += hq * code;
        sx += h[i] * rel;
        qx += hq * rel;
    }
    return (struct fit){lanes_sum(error), lanes_sum(n),  lanes_sum(q),
                        lanes_sum(qq),    lanes_sum(sx), lanes_sum(qx)};
}

/* As it will be stored and read. */
static int store(struct affine_pair *p, enum dtype type,
                 const struct kernels *k)
{
    unsigned char stored[2 * sizeof(float)];
    float v[2] = {p->scale, p->bias};
    k->from_f32[type](stored, v, 2);
    k->to_f32[type](v, stored, 2);
    *p = (struct affine_pair){v[0], v[1]};
    return isfinite(v[0]) && isfinite(v[1]) && v[0] != 0 ? 0 : -1;
}

/* The pair that fits the codes of f best; -1 when they are all the same. */
static int solve(struct affine_pair *p, const struct fit *f, float x0)
{
    double n = f->n, q = f->q, x = f->x;
    double den = n * (double)f->qq - q * q;
    /* 128 codes of 8 bits that are not all the same have 1.2e-7 */
    if (!(den > 1e-7 * n * (double)f->qq))
        return -1;
    double scale = (n * (double)f->qx - q * x) / den;
    p->scale = (float)scale;
    p->bias = (float)((x - scale * q) / n + (double)x0);
    return 0;
}

/* A pair as stored, and its fit. */
struct start {
    struct affine_pair p;
    struct fit fit; /* error INFINITY: cannot be stored */
};

static struct start try(struct affine_pair p, const vec *x, const vec *h,
                        const struct affine_format *f, float n_bins, float x0)
{
    struct start s = {p, {.error = INFINITY}};
    if (store(&s.p, f->type, f->k) == 0)
        s.fit = measure(x, h, f->group, s.p, n_bins, x0);
    return s;
}

/* Improve the codes and the pair in turn while that helps. */
static struct start descend(struct start s, const vec *x, const vec *h,
                            const struct affine_format *f, float n_bins,
                            float x0)
{
    enum { ROUNDS = 6 };
    struct affine_pair p;
    for (int i = 0; i < ROUNDS && solve(&p, &s.fit, x0) == 0; i++) {
        struct start next = try(p, x, h, f, n_bins, x0);
        if (!(next.fit.error < s.fit.error))
            break;
        s = next;
    }
    return s;
}

/* p holds MLX's pair; min and max may have been found to be equal. */
static void search(struct affine_pair *p, const vec *x, const vec *h,
                   const struct affine_format *f, float min, float max,
                   float n_bins)
{
    enum { CUTS = 8 };
    float x0 = min + (max - min) / 2;
    struct start mlx = try(*p, x, h, f, n_bins, x0), cut = mlx;
    for (int i = 0; i <= CUTS && max > min; i++) {
        float width = (max - min) * (1 - 1.5f * (float)i / CUTS / n_bins);
        struct affine_pair q = {width / n_bins, x0 - width / 2};
        struct start s = try(q, x, h, f, n_bins, x0);
        if (i == 0 || s.fit.error < cut.fit.error)
            cut = s;
    }
    mlx = descend(mlx, x, h, f, n_bins, x0);
    cut = descend(cut, x, h, f, n_bins, x0);
    *p = cut.fit.error < mlx.fit.error ? cut.p : mlx.p;
}

/* ---- packing ------------------------------------------------------------- */

/* Eight codes, a byte each, become 8 * bits bits: neighbours are pushed
 * together, then pairs, then fours. */
static inline uint64_t squeeze(uint64_t v, int bits)
{
    const uint64_t ones = ~(uint64_t)0;
    const uint64_t one = ones / 0xffff * ((1u << bits) - 1);
    const uint64_t two = ones / 0xffffffff * ((1u << 2 * bits) - 1);
    const uint64_t four = ((uint64_t)1 << 4 * bits) - 1;
    v = (v & one) | (v >> (8 - bits) & one << bits);
    v = (v & two) | (v >> 2 * (8 - bits) & two << 2 * bits);
    return (v & four) | (v >> 4 * (8 - bits) & four << 4 * bits);
}

static inline void pack_bits(unsigned char *q, const uint8_t *codes, size_t n,
                             int bits)
{
    for (size_t i = 0; i < n; i += 8) {
        uint64_t v = 0;
        for (int j = 0; j < 8; j++)
            v |= (uint64_t)codes[i + (size_t)j] << 8 * j;
        v = squeeze(v, bits);
        for (int j = 0; j < bits; j++)
            *q++ = (unsigned char)(v >> 8 * j);
    }
}

/* The constants make each a loop of its own. */
void affine_pack(unsigned char *q, const uint8_t *codes, size_t n, int bits)
{
    switch (bits) {
    case 2:
        pack_bits(q, codes, n, 2);
        break;
    case 3:
        pack_bits(q, codes, n, 3);
        break;
    case 4:
        pack_bits(q, codes, n, 4);
        break;
    case 5:
        pack_bits(q, codes, n, 5);
        break;
    case 6:
        pack_bits(q, codes, n, 6);
        break;
    default:
        memcpy(q, codes, n);
    }
}

/* ---- */

/* The pair of a group; -1: it has none. h: the weights of its errors. */
static int fit_group(struct affine_pair *p, const struct affine_format *f,
                     const vec *x, const vec *h)
{
    const float n_bins = (float)((1 << f->bits) - 1);
    float min, max;
    if (range(x, f->group, &min, &max) || choose_mlx(p, min, max, n_bins))
        return -1;
    if (f->search == AFFINE_LSQ)
        search(p, x, h, f, min, max, n_bins);
    return 0;
}

int affine_scales(const struct affine_format *f, float *scales, float *biases,
                  const float *x, const float *h, size_t n, size_t *bad)
{
    struct affine_pair p;
    for (*bad = 0; *bad < n; *bad += f->group) {
        if (fit_group(&p, f, (const vec *)(x + *bad), (const vec *)(h + *bad)) ||
            store(&p, f->type, f->k))
            return -1;
        *scales++ = p.scale;
        *biases++ = p.bias;
    }
    return 0;
}

int affine_quantize(const struct affine_format *f, unsigned char *q,
                    unsigned char *scales, unsigned char *biases,
                    const unsigned char *w, size_t n, size_t *bad)
{
    const struct kernels *k = f->k;
    const size_t bytes = dtype_bytes(f->type), group = f->group;
    const float n_bins = (float)((1 << f->bits) - 1);
    _Alignas(64) float x[BLOCK];
    float s[BLOCK / 32], b[BLOCK / 32];
    _Alignas(16) float ones[128];
    uint8_t codes[BLOCK];

    for (size_t i = 0; i < group; i++)
        ones[i] = 1;
    for (size_t at = 0; at < n;) {
        size_t m = n - at < BLOCK ? n - at : BLOCK, n_groups = m / group;
        k->to_f32[f->type](x, w + at * bytes, m);
        for (size_t g = 0; g < n_groups; g++) {
            const vec *v = (const vec *)(x + g * group);
            struct affine_pair p;
            if (fit_group(&p, f, v, (const vec *)ones)) {
                *bad = at + g * group;
                return -1;
            }
            encode(codes + g * group, v, group, p, n_bins);
            s[g] = p.scale;
            b[g] = p.bias;
        }
        affine_pack(q, codes, m, f->bits);
        k->from_f32[f->type](scales, s, n_groups);
        k->from_f32[f->type](biases, b, n_groups);
        q += m / 8 * (size_t)f->bits;
        scales += n_groups * bytes;
        biases += n_groups * bytes;
        at += m;
    }
    return 0;
}
