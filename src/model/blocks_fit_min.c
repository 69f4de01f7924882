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

/* The weighted error of a line with the best codes for it, and the weighted
 * sums from which solve() finds a better line. */
struct fit {
    float error;           /* of (q * scale - min - x)^2 */
    float n, q, qq, x, qx; /* of 1, q, q^2, x, q * x */
};

static inline vec codes(vec x, struct line l, float inverse, float top)
{
    vec v = lanes_larger((x + l.min) * inverse, lanes_splat(0));
    return (lanes_smaller(v, lanes_splat(top)) + ROUNDER) - ROUNDER;
}

static inline struct fit measure(const struct form *p, const float *x,
                                 const float *h, struct line l)
{
    const float top = (float)p->top;
    const vec *v = (const vec *)x, *u = (const vec *)h;
    vec error = {0}, n = {0}, sq = {0}, qq = {0}, sx = {0}, qx = {0};
    float inverse = fit_inverse(l.scale);
    for (size_t i = 0; i < (size_t)p->group / LANES; i++) {
        vec q = codes(v[i], l, inverse, top);
        vec d = q * l.scale - l.min - v[i];
        vec uq = u[i] * q;
        error += u[i] * (d * d);
        n += u[i];
        sq += uq;
        qq += uq * q;
        sx += u[i] * v[i];
        qx += uq * v[i];
    }
    return (struct fit){lanes_sum(error), lanes_sum(n),  lanes_sum(sq),
                        lanes_sum(qq),    lanes_sum(sx), lanes_sum(qx)};
}

/* The best line for the codes of f; without a negative min unless `any`. */
static struct line solve(const struct fit *f, bool any)
{
    double n = f->n, q = f->q, qq = f->qq, x = f->x, qx = f->qx;
    double den = n * qq - q * q;
    double scale = den > 1e-5 * n * qq ? (n * qx - q * x) / den : 0;
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
                            const float *x, const float *h, int rounds,
                            bool any)
{
    for (int i = 0; i < rounds; i++) {
        struct line l = solve(&s.f, any);
        struct fit f = measure(p, x, h, l);
        if (!(f.error < s.f.error))
            break;
        s = (struct start){l, f};
    }
    return s;
}

/* A group's best line, before it is rounded for storage. any: its min may be
 * negative. */
static struct line fit_group(const struct form *p, const float *x,
                             const float *h, bool any)
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
        struct start s = {l, measure(p, x, h, l)};
        s = descend(p, s, x, h, FIRST_ROUNDS, any);
        if (s.f.error < best.f.error)
            best = s;
    }
    return descend(p, best, x, h, ROUNDS, any).l;
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
                   const float *h, struct line wanted)
{
    const float most = (float)p->most;
    struct fit best = {.error = INFINITY};
    for (int i = -1; i <= 1; i++)
        for (int j = -1; j <= 1; j++) {
            float sc = near(wanted.scale, s->d, i, most);
            float m = near(wanted.min, s->dmin, j, most);
            struct fit f =
                measure(p, x, h, (struct line){s->d * sc, s->dmin * m});
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
    s->mm += m * m * (double)best.n;
    s->ax += sc * (double)best.qx;
    s->mx += m * (double)best.x;
}

static struct super choose_all(const struct form *p, float d, float dmin,
                               const float *x, const float *h,
                               const struct line *wanted)
{
    struct super s = {.d = d, .dmin = dmin};
    for (int g = 0; g < SUPER / p->group; g++)
        choose(p, &s, g, x + g * p->group, h + g * p->group, wanted[g]);
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

/* The numbers of a superblock. Returns -1 if it has no finite d or dmin. */
static int fit_super(const struct kernels *k, const struct form *p,
                     const float *x, const float *h, struct super *best)
{
    enum { ROUNDS = 4 };
    struct line wanted[MAX_GROUPS];
    unsigned char stored[2];
    float scale = 0, min = 0, most = (float)p->most;
    for (int g = 0; g < SUPER / p->group; g++) {
        wanted[g] = fit_group(p, x + g * p->group, h + g * p->group, false);
        scale = fmaxf(scale, wanted[g].scale);
        min = fmaxf(min, wanted[g].min);
    }
    float d = fit_half(k, scale / most, stored);
    float dmin = fit_half(k, min / most, stored);
    if (!isfinite(d) || !isfinite(dmin))
        return -1;
    *best = choose_all(p, d, dmin, x, h, wanted);
    for (int i = 0; i < ROUNDS && improve(best, &d, &dmin) == 0; i++) {
        struct super s = choose_all(p, fit_half(k, d, stored),
                                    fit_half(k, dmin, stored), x, h, wanted);
        if (!(s.error < best->error))
            break;
        *best = s;
    }
    return 0;
}

static int fit_into(const struct kernels *k, const struct form *p,
                    struct block_scales *s, const float *x, const float *h)
{
    struct super best;
    if (fit_super(k, p, x, h, &best))
        return -1;
    *s = (struct block_scales){.d = best.d, .dmin = best.dmin};
    memcpy(s->sc, best.sc, sizeof best.sc);
    memcpy(s->m, best.m, sizeof best.m);
    return 0;
}

int fit_q2_k(const struct kernels *k, struct block_scales *s, const float *x,
             const float *h)
{
    return fit_into(k, &two, s, x, h);
}

int fit_q4_k(const struct kernels *k, struct block_scales *s, const float *x,
             const float *h)
{
    return fit_into(k, &four, s, x, h);
}

int fit_q5_k(const struct kernels *k, struct block_scales *s, const float *x,
             const float *h)
{
    return fit_into(k, &five, s, x, h);
}

int fit_q5_1(const struct kernels *k, struct block_scales *s, const float *x,
             const float *h)
{
    unsigned char stored[2];
    struct line l = fit_group(&five, x, h, true);
    *s = (struct block_scales){.d = fit_half(k, l.scale, stored),
                               .dmin = fit_half(k, -l.min, stored),
                               .sc = {1},
                               .m = {-1}};
    return isfinite(s->d) && isfinite(s->dmin) ? 0 : -1;
}
