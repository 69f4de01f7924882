/* Types with mins: superblocks of Q2_K, Q4_K and Q5_K, and blocks of Q5_1. */
#include <string.h>

#include "model/blocks_fit_int.h"

/* Elements of a group, the highest code, and the highest scale and min of a
 * group. */
struct form {
    int group, top, most;
};

static const struct form two = {16, 3, 15}, four = {32, 15, 63},
                         five = {32, 31, 63};
enum { MAX_GROUPS = SUPER / 16 };

/* The value of code q is q * scale - min. Both are at least 0. */
struct line {
    float scale, min;
};

/* The error of a line with the best codes for it, and the sums from which
 * solve() finds a better line. */
struct fit {
    float error;        /* of (q * scale - min - x)^2 */
    float q, qq, x, qx; /* of q, q^2, x, q * x */
};

static inline vec codes(vec x, struct line l, float inverse, float top)
{
    vec v = lanes_larger((x + l.min) * inverse, lanes_splat(0));
    return (lanes_smaller(v, lanes_splat(top)) + ROUNDER) - ROUNDER;
}

static inline struct fit measure(const struct form *p, const float *x,
                                 struct line l)
{
    const float top = (float)p->top;
    const vec *v = (const vec *)x;
    vec error = {0}, sq = {0}, qq = {0}, sx = {0}, qx = {0};
    float inverse = fit_inverse(l.scale);
    for (size_t i = 0; i < (size_t)p->group / LANES; i++) {
        vec q = codes(v[i], l, inverse, top);
        vec d = q * l.scale - l.min - v[i];
        error += d * d;
        sq += q;
        qq += q * q;
        sx += v[i];
        qx += q * v[i];
    }
    return (struct fit){lanes_sum(error), lanes_sum(sq), lanes_sum(qq),
                        lanes_sum(sx), lanes_sum(qx)};
}

/* The best line for the codes of f; without a negative min unless `any`. */
static struct line solve(const struct form *p, const struct fit *f, bool any)
{
    double n = p->group, q = f->q, qq = f->qq, x = f->x, qx = f->qx;
    double den = n * qq - q * q;
    double scale = den > 0.5 ? (n * qx - q * x) / den : 0;
    double min = (scale * q - x) / n;
    if ((min < 0 && !any) || scale < 0) {
        min = 0;
        scale = qq > 0 ? qx / qq : 0;
    }
    return (struct line){(float)fmax(scale, 0), (float)min};
}

/* A line and its fit. */
struct start {
    struct line l;
    struct fit f;
};

static struct start descend(const struct form *p, struct start s,
                            const float *x, int rounds, bool any)
{
    for (int i = 0; i < rounds; i++) {
        struct line l = solve(p, &s.f, any);
        struct fit f = measure(p, x, l);
        if (!(f.error < s.f.error))
            break;
        s = (struct start){l, f};
    }
    return s;
}

/* A group's best line, before it is rounded for storage. any: its min may be
 * negative. */
static struct line fit_group(const struct form *p, const float *x, bool any)
{
    enum { WIDTHS = 14, FIRST_ROUNDS = 1, ROUNDS = 6 };
    const float top = (float)p->top;
    float low = any ? x[0] : 0, high = x[0];
    for (int i = 0; i < p->group; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    /* stays if no error is finite, and cannot be stored then */
    struct start best = {{INFINITY, INFINITY}, {.error = INFINITY}};
    for (int i = 0; i < WIDTHS; i++) {
        /* from one step more than the range to two steps less */
        float steps = top - 1 + 0.25f * (float)i;
        struct line l = {(high - low) / steps, -low};
        if (low < 0 || any)
            l.min = (l.scale * top - high - low) / 2;
        l.min = l.min > 0 || any ? l.min : 0;
        struct start s = {l, measure(p, x, l)};
        s = descend(p, s, x, FIRST_ROUNDS, any);
        if (s.f.error < best.f.error)
            best = s;
    }
    return descend(p, best, x, ROUNDS, any).l;
}

/* A superblock's numbers, and sums over its elements for better d and dmin. The
 * value of an element is d * a - dmin * m, where a = q * sc. */
struct super {
    float d, dmin;
    int sc[MAX_GROUPS], m[MAX_GROUPS];
    float error;
    double aa, am, mm, ax, mx;
};

static float near(float wanted, float unit, int step, float most)
{
    float v = rintf(wanted * fit_inverse(unit)) + (float)step;
    return fminf(fmaxf(v, 0), most);
}

/* Choose the integers of a group near a line. */
static void choose(const struct form *p, struct super *s, int g, const float *x,
                   struct line wanted)
{
    const float most = (float)p->most;
    struct fit best = {.error = INFINITY};
    for (int i = -1; i <= 1; i++)
        for (int j = -1; j <= 1; j++) {
            float sc = near(wanted.scale, s->d, i, most);
            float m = near(wanted.min, s->dmin, j, most);
            struct fit f =
                measure(p, x, (struct line){s->d * sc, s->dmin * m});
            if (!(f.error < best.error))
                continue;
            best = f;
            s->sc[g] = (int)sc;
            s->m[g] = (int)m;
        }
    double sc = s->sc[g], m = s->m[g];
    s->error += best.error;
    s->aa += sc * sc * (double)best.qq;
    s->am += sc * m * (double)best.q;
    s->mm += m * m * p->group;
    s->ax += sc * (double)best.qx;
    s->mx += m * (double)best.x;
}

static struct super choose_all(const struct form *p, float d, float dmin,
                               const float *x, const struct line *wanted)
{
    struct super s = {.d = d, .dmin = dmin};
    for (int g = 0; g < SUPER / p->group; g++)
        choose(p, &s, g, x + g * p->group, wanted[g]);
    return s;
}

/* The best d and dmin for the codes and integers of s: least squares of
 * d * a - dmin * m - x. -1: not determined, or negative. */
static int improve(const struct super *s, float *d, float *dmin)
{
    double den = s->aa * s->mm - s->am * s->am;
    if (s->mm == 0 && s->aa > 0) {
        *d = (float)(s->ax / s->aa);
        *dmin = s->dmin;
        return *d >= 0 ? 0 : -1;
    }
    if (!(den > 1e-9 * s->aa * s->mm))
        return -1;
    *d = (float)((s->ax * s->mm - s->am * s->mx) / den);
    *dmin = (float)((s->am * s->ax - s->aa * s->mx) / den);
    return *d >= 0 && *dmin >= 0 ? 0 : -1;
}

static void pack_scales(unsigned char sc[12], const int *scales,
                        const int *mins)
{
    for (int j = 0; j < 4; j++) {
        sc[j] = (unsigned char)(scales[j] | scales[j + 4] >> 4 << 6);
        sc[j + 4] = (unsigned char)(mins[j] | mins[j + 4] >> 4 << 6);
        sc[j + 8] =
            (unsigned char)((scales[j + 4] & 15) | (mins[j + 4] & 15) << 4);
    }
}

/* The best codes of a superblock. */
static void encode_all(const struct form *p, uint8_t q[SUPER], const float *x,
                       const struct super *s)
{
    for (int i = 0; i < SUPER; i += LANES) {
        int g = i / p->group;
        struct line l = {s->d * (float)s->sc[g], s->dmin * (float)s->m[g]};
        vec v = codes(*(const vec *)(x + i), l, fit_inverse(l.scale),
                      (float)p->top);
        for (int j = 0; j < LANES; j++)
            q[i + j] = (uint8_t)v[j];
    }
}

/* The numbers of a superblock. Returns -1 if it has no finite d or dmin. */
static int fit_super(const struct kernels *k, const struct form *p,
                     const float *x, struct super *best)
{
    enum { ROUNDS = 4 };
    struct line wanted[MAX_GROUPS];
    unsigned char stored[2];
    float scale = 0, min = 0, most = (float)p->most;
    for (int g = 0; g < SUPER / p->group; g++) {
        wanted[g] = fit_group(p, x + g * p->group, false);
        scale = fmaxf(scale, wanted[g].scale);
        min = fmaxf(min, wanted[g].min);
    }
    float d = fit_half(k, scale / most, stored);
    float dmin = fit_half(k, min / most, stored);
    if (!isfinite(d) || !isfinite(dmin))
        return -1;
    *best = choose_all(p, d, dmin, x, wanted);
    for (int i = 0; i < ROUNDS && improve(best, &d, &dmin) == 0; i++) {
        struct super s = choose_all(p, fit_half(k, d, stored),
                                    fit_half(k, dmin, stored), x, wanted);
        if (!(s.error < best->error))
            break;
        *best = s;
    }
    return 0;
}

/* Low nibbles of codes, as in q4_k and q5_k. */
static void pack_nibbles(unsigned char out[SUPER / 2], const uint8_t *q)
{
    for (int i = 0; i < SUPER / 2; i++) {
        int at = i / 32 * 64 + i % 32;
        out[i] = (unsigned char)((q[at] & 15) | (q[at + 32] & 15) << 4);
    }
}

int fit_q4_k(const struct kernels *k, struct q4_k *b, const float *x)
{
    uint8_t q[SUPER];
    struct super s;
    if (fit_super(k, &four, x, &s))
        return -1;
    (void)fit_half(k, s.d, b->d);
    (void)fit_half(k, s.dmin, b->dmin);
    pack_scales(b->sc, s.sc, s.m);
    encode_all(&four, q, x, &s);
    pack_nibbles(b->q, q);
    return 0;
}

int fit_q5_k(const struct kernels *k, struct q5_k *b, const float *x)
{
    uint8_t q[SUPER];
    struct super s;
    if (fit_super(k, &five, x, &s))
        return -1;
    (void)fit_half(k, s.d, b->d);
    (void)fit_half(k, s.dmin, b->dmin);
    pack_scales(b->sc, s.sc, s.m);
    encode_all(&five, q, x, &s);
    pack_nibbles(b->q, q);
    memset(b->h, 0, sizeof b->h);
    for (int i = 0; i < SUPER; i++)
        b->h[i % 32] |= (unsigned char)(q[i] >> 4 << i / 32);
    return 0;
}

int fit_q2_k(const struct kernels *k, struct q2_k *b, const float *x)
{
    uint8_t q[SUPER];
    struct super s;
    if (fit_super(k, &two, x, &s))
        return -1;
    (void)fit_half(k, s.d, b->d);
    (void)fit_half(k, s.dmin, b->dmin);
    for (int g = 0; g < MAX_GROUPS; g++)
        b->sc[g] = (unsigned char)(s.sc[g] | s.m[g] << 4);
    encode_all(&two, q, x, &s);
    memset(b->q, 0, sizeof b->q);
    for (int i = 0; i < SUPER; i++)
        b->q[i / 128 * 32 + i % 32] |=
            (unsigned char)(q[i] << i % 128 / 32 * 2);
    return 0;
}

int fit_q5_1(const struct kernels *k, struct q5_1 *b, const float *x)
{
    uint8_t q[32];
    struct line l = fit_group(&five, x, true);
    l.scale = fit_half(k, l.scale, b->d);
    l.min = -fit_half(k, -l.min, b->m);
    if (!isfinite(l.scale) || !isfinite(l.min))
        return -1;
    for (int i = 0; i < 32; i += LANES) {
        vec v = codes(*(const vec *)(x + i), l, fit_inverse(l.scale),
                      (float)five.top);
        for (int j = 0; j < LANES; j++)
            q[i + j] = (uint8_t)v[j];
    }
    memset(b->h, 0, sizeof b->h);
    for (int i = 0; i < 32; i++)
        b->h[i / 8] |= (unsigned char)(q[i] >> 4 << i % 8);
    for (int i = 0; i < 16; i++)
        b->q[i] = (unsigned char)((q[i] & 15) | (q[i + 16] & 15) << 4);
    return 0;
}
