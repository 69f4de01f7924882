/* Q4_K: superblocks with mins. */
#include <string.h>

#include "model/blocks_fit_int.h"

enum { GROUP = 32, GROUPS = SUPER / GROUP, TOP = 15, MOST = 63 };

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

static inline vec codes(vec x, struct line l, float inverse)
{
    vec v = lanes_larger((x + l.min) * inverse, lanes_splat(0));
    return (lanes_smaller(v, lanes_splat(TOP)) + ROUNDER) - ROUNDER;
}

static struct fit measure(const float *x, struct line l)
{
    const vec *v = (const vec *)x;
    vec error = {0}, sq = {0}, qq = {0}, sx = {0}, qx = {0};
    float inverse = fit_inverse(l.scale);
    for (size_t i = 0; i < GROUP / LANES; i++) {
        vec q = codes(v[i], l, inverse);
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

/* The best line for the codes of f, without a negative min. */
static struct line solve(const struct fit *f)
{
    double n = GROUP, q = f->q, qq = f->qq, x = f->x, qx = f->qx;
    double den = n * qq - q * q;
    double scale = den > 0.5 ? (n * qx - q * x) / den : 0;
    double min = (scale * q - x) / n;
    if (min < 0 || scale < 0) {
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

static struct start descend(struct start s, const float *x, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        struct line l = solve(&s.f);
        struct fit f = measure(x, l);
        if (!(f.error < s.f.error))
            break;
        s = (struct start){l, f};
    }
    return s;
}

/* A group's best line, before it is rounded for storage. */
static struct line fit_group(const float *x)
{
    enum { WIDTHS = 14, FIRST_ROUNDS = 1, ROUNDS = 6 };
    float low = 0, high = x[0];
    for (int i = 0; i < GROUP; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    struct start best = {.f.error = INFINITY};
    for (int i = 0; i < WIDTHS; i++) {
        /* from one step more than the range to two steps less */
        float steps = TOP - 1 + 0.25f * (float)i;
        struct line l = {(high - low) / steps, -low};
        if (low < 0)
            l.min = (l.scale * TOP - high - low) / 2;
        l.min = l.min > 0 ? l.min : 0;
        struct start s = {l, measure(x, l)};
        s = descend(s, x, FIRST_ROUNDS);
        if (s.f.error < best.f.error)
            best = s;
    }
    return descend(best, x, ROUNDS).l;
}

/* A superblock's numbers, and sums over its elements for better d and dmin. The
 * value of an element is d * a - dmin * m, where a = q * sc. */
struct super {
    float d, dmin;
    int sc[GROUPS], m[GROUPS];
    float error;
    double aa, am, mm, ax, mx;
};

static float near(float wanted, float unit, int step)
{
    float v = rintf(wanted * fit_inverse(unit)) + (float)step;
    return fminf(fmaxf(v, 0), MOST);
}

/* Choose the integers of a group near a line. */
static void choose(struct super *s, int g, const float *x, struct line wanted)
{
    struct fit best = {.error = INFINITY};
    for (int i = -1; i <= 1; i++)
        for (int j = -1; j <= 1; j++) {
            float sc = near(wanted.scale, s->d, i);
            float m = near(wanted.min, s->dmin, j);
            struct fit f = measure(x, (struct line){s->d * sc, s->dmin * m});
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
    s->mm += m * m * GROUP;
    s->ax += sc * (double)best.qx;
    s->mx += m * (double)best.x;
}

static struct super choose_all(float d, float dmin, const float *x,
                               const struct line *wanted)
{
    struct super s = {.d = d, .dmin = dmin};
    for (int g = 0; g < GROUPS; g++)
        choose(&s, g, x + g * GROUP, wanted[g]);
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

static void pack(struct q4_k *b, const float *x, const struct super *s)
{
    pack_scales(b->sc, s->sc, s->m);
    memset(b->q, 0, sizeof b->q);
    for (int i = 0; i < SUPER; i += LANES) {
        int g = i / GROUP;
        struct line l = {s->d * (float)s->sc[g], s->dmin * (float)s->m[g]};
        vec q = codes(*(const vec *)(x + i), l, fit_inverse(l.scale));
        for (int j = 0; j < LANES; j++)
            b->q[g / 2 * GROUP + i % GROUP + j] |=
                (unsigned char)((unsigned)q[j] << g % 2 * 4);
    }
}

int fit_q4_k(const struct kernels *k, struct q4_k *b, const float *x)
{
    enum { ROUNDS = 4 };
    struct line wanted[GROUPS];
    float scale = 0, min = 0;
    for (int g = 0; g < GROUPS; g++) {
        wanted[g] = fit_group(x + g * GROUP);
        scale = fmaxf(scale, wanted[g].scale);
        min = fmaxf(min, wanted[g].min);
    }
    float d = fit_half(k, scale / MOST, b->d);
    float dmin = fit_half(k, min / MOST, b->dmin);
    if (!isfinite(d) || !isfinite(dmin))
        return -1;
    struct super best = choose_all(d, dmin, x, wanted);
    for (int i = 0; i < ROUNDS && improve(&best, &d, &dmin) == 0; i++) {
        struct super s = choose_all(fit_half(k, d, b->d),
                                    fit_half(k, dmin, b->dmin), x, wanted);
        if (!(s.error < best.error))
            break;
        best = s;
    }
    (void)fit_half(k, best.d, b->d);
    (void)fit_half(k, best.dmin, b->dmin);
    pack(b, x, &best);
    return 0;
}
