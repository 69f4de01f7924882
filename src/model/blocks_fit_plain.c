/* Types without mins: blocks of Q4_0, Q5_0 and IQ4_NL, and superblocks of Q3_K
 * and Q6_K. */
#include <string.h>

#include "model/blocks_fit_int.h"

enum { RUN = 32 };

/* ---- symmetric codes: value q * scale -------------------------------------
 */

/* Codes from `low` to `high`. */
struct range {
    int low, high;
};

/* The error of a scale with the best codes for it, and sums for a better
 * scale. */
struct fit {
    float error;  /* of (q * scale - x)^2 */
    float qx, qq; /* of q * x, q^2 */
};

static inline vec codes(vec x, float inverse, struct range r)
{
    vec v = lanes_larger(x * inverse, lanes_splat((float)r.low));
    v = lanes_smaller(v, lanes_splat((float)r.high));
    return (v + ROUNDER) - ROUNDER;
}

static inline struct fit measure(const float *x, const float *h, size_t n,
                                 float scale, struct range r)
{
    const vec *v = (const vec *)x, *u = (const vec *)h;
    vec error = {0}, qx = {0}, qq = {0};
    float inverse = fit_inverse(scale);
    for (size_t i = 0; i < n / LANES; i++) {
        vec q = codes(v[i], inverse, r);
        vec d = q * scale - v[i], uq = u[i] * q;
        error += u[i] * (d * d);
        qx += uq * v[i];
        qq += uq * q;
    }
    return (struct fit){lanes_sum(error), lanes_sum(qx), lanes_sum(qq)};
}

/* The element whose magnitude is largest. */
static float farthest(const float *x, size_t n)
{
    float most = 0;
    for (size_t i = 0; i < n; i++)
        most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
    return most;
}

/* Scales among which the search chooses: they give the farthest element the
 * lowest or the highest code, or a little less or more. */
enum { STEPS = 10, SCALES = 2 * STEPS };

static void candidates(float out[SCALES], float most, struct range r)
{
    for (int i = 0; i < STEPS; i++) {
        /* from half a code inside the range to 1.75 outside */
        float beyond = 0.25f * (float)(i - 2);
        out[2 * i] = most / ((float)r.low - beyond);
        out[2 * i + 1] = most / ((float)r.high + beyond);
    }
}

/* The best of n scales, at least one of which is finite; f gets its fit. */
static float best_of(const float *scales, size_t n_scales, const float *x,
                     const float *h, size_t n, struct range r, struct fit *f)
{
    float best = 0;
    *f = (struct fit){.error = INFINITY};
    for (size_t i = 0; i < n_scales; i++) {
        if (!isfinite(scales[i]))
            continue;
        struct fit next = measure(x, h, n, scales[i], r);
        if (next.error < f->error) {
            *f = next;
            best = scales[i];
        }
    }
    return best;
}

enum { ROUNDS = 6 };

/* ---- blocks of 32 ---------------------------------------------------------
 */

/* The scale of one run of 32 as stored. */
static int fit_run(const struct kernels *k, struct block_scales *s,
                   const float *x, const float *h, struct range r)
{
    float scales[SCALES];
    unsigned char d[2];
    struct fit f;
    float most = farthest(x, RUN);
    if (!isfinite(fit_half(k, most / (float)r.low, d)))
        return -1;
    candidates(scales, most, r);
    fit_halves(k, scales, SCALES);
    float scale = best_of(scales, SCALES, x, h, RUN, r, &f);
    for (int i = 0; i < ROUNDS && f.qq > 0; i++) {
        float next = fit_half(k, f.qx / f.qq, d);
        struct fit g = measure(x, h, RUN, next, r);
        if (!(g.error < f.error))
            break;
        f = g;
        scale = next;
    }
    *s = (struct block_scales){.d = scale, .sc = {1}};
    return 0;
}

int fit_q4_0(const struct kernels *k, struct block_scales *s, const float *x,
             const float *h)
{
    return fit_run(k, s, x, h, (struct range){-8, 7});
}

int fit_q5_0(const struct kernels *k, struct block_scales *s, const float *x,
             const float *h)
{
    return fit_run(k, s, x, h, (struct range){-16, 15});
}

/* ---- IQ4_NL: codes are indices of a table ---------------------------------
 */

/* Values of the codes next to x / scale. */
static inline vec iq4_codes(vec x, float inverse)
{
    vec v = x * inverse, q = lanes_splat(iq4_values[0]);
    for (int i = 0; i < 15; i++) {
        float step = (float)(iq4_values[i + 1] - iq4_values[i]);
        q += lanes_choose((ivec)(v > iq4_border(i)), lanes_splat(step),
                          lanes_splat(0));
    }
    return q;
}

static struct fit measure_iq4(const float *x, const float *h, float scale)
{
    const vec *v = (const vec *)x, *u = (const vec *)h;
    vec error = {0}, qx = {0}, qq = {0};
    float inverse = fit_inverse(scale);
    for (size_t i = 0; i < RUN / LANES; i++) {
        vec q = iq4_codes(v[i], inverse);
        vec d = q * scale - v[i], uq = u[i] * q;
        error += u[i] * (d * d);
        qx += uq * v[i];
        qq += uq * q;
    }
    return (struct fit){lanes_sum(error), lanes_sum(qx), lanes_sum(qq)};
}

/* Scales that give the farthest element a value from 3/4 of an end of the table
 * to 5/4 of it. */
static float search_iq4(const float *x, const float *h, float most)
{
    enum { TRIES = 9 };
    float found = 0;
    struct fit best = {.error = INFINITY};
    for (int i = 0; i < 2 * TRIES; i++) {
        float end = iq4_values[i % 2 ? 15 : 0];
        float scale = most / (end * (0.75f + (float)(i / 2) / 16));
        struct fit f = measure_iq4(x, h, scale);
        if (!(f.error < best.error))
            continue;
        best = f;
        found = scale;
    }
    for (int i = 0; i < ROUNDS && best.qq > 0; i++) {
        struct fit f = measure_iq4(x, h, best.qx / best.qq);
        if (!(f.error < best.error))
            break;
        found = best.qx / best.qq;
        best = f;
    }
    return found;
}

int fit_iq4_nl(const struct kernels *k, struct block_scales *s, const float *x,
               const float *h)
{
    unsigned char d[2];
    float most = farthest(x, RUN);
    if (!isfinite(fit_half(k, most / iq4_values[15], d)) ||
        !isfinite(most / iq4_values[15] * 2))
        return -1;
    *s = (struct block_scales){.d = fit_half(k, search_iq4(x, h, most), d),
                               .sc = {1}};
    return isfinite(s->d) ? 0 : -1;
}

/* ---- Q6_K and Q3_K: superblocks without mins ------------------------------
 */

enum { GROUP6 = 16, GROUPS6 = SUPER / GROUP6 };

/* Codes, and scales of groups. */
struct plain {
    struct range codes, scales;
};

static const struct plain six = {{-32, 31}, {-128, 127}},
                          three = {{-4, 3}, {-32, 31}};

/* A superblock's scales. */
struct scales6 {
    float d;
    int sc[GROUPS6];
    float error, qx, qq; /* of all elements; q: code * sc */
};

/* The best scale of a group for a given d: a neighbour of `wanted` / d. */
static void choose_sc(struct scales6 *s, const struct plain *p, int g,
                      const float *x, const float *h, float wanted)
{
    float at = rintf(wanted * fit_inverse(s->d));
    struct fit best = {.error = INFINITY};
    for (int i = -1; i <= 1; i++) {
        float sc = fminf(fmaxf(at + (float)i, (float)p->scales.low),
                         (float)p->scales.high);
        struct fit f = measure(x + g * GROUP6, h + g * GROUP6, GROUP6,
                               s->d * sc, p->codes);
        if (!(f.error < best.error))
            continue;
        best = f;
        s->sc[g] = (int)sc;
    }
    float sc = (float)s->sc[g];
    s->error += best.error;
    s->qx += sc * best.qx;
    s->qq += sc * sc * best.qq;
}

static struct scales6 choose_all6(const struct plain *p, float d,
                                  const float *x, const float *h,
                                  const float *wanted)
{
    struct scales6 s = {.d = d};
    for (int g = 0; g < GROUPS6; g++)
        choose_sc(&s, p, g, x, h, wanted[g]);
    return s;
}

/* A group's best scale, before it is rounded for storage. */
static float fit_scale(const float *x, const float *h, struct range r)
{
    float scales[SCALES];
    struct fit f;
    candidates(scales, farthest(x, GROUP6), r);
    float scale = best_of(scales, SCALES, x, h, GROUP6, r, &f);
    for (int i = 0; i < ROUNDS && f.qq > 0; i++) {
        struct fit next = measure(x, h, GROUP6, f.qx / f.qq, r);
        if (!(next.error < f.error))
            break;
        scale = f.qx / f.qq;
        f = next;
    }
    return scale;
}

/* The scales of a superblock. Returns -1 if it has no finite d. */
static int fit_plain(const struct kernels *k, const struct plain *p,
                     const float *x, const float *h, struct scales6 *best)
{
    enum { EDGES = 6 };
    float wanted[GROUPS6], d[EDGES];
    unsigned char stored[2];
    for (int g = 0; g < GROUPS6; g++)
        wanted[g] = fit_scale(x + g * GROUP6, h + g * GROUP6, p->codes);
    float most = farthest(wanted, GROUPS6);
    for (int i = 0; i < EDGES; i++) /* which scale the largest one gets */
        d[i] = most /
               (float)(i % 2 ? p->scales.high - i / 2 : p->scales.low + i / 2);
    fit_halves(k, d, EDGES);
    best->error = INFINITY;
    for (int i = 0; i < EDGES; i++) {
        struct scales6 s = choose_all6(p, d[i], x, h, wanted);
        if (isfinite(d[i]) && s.error < best->error)
            *best = s;
    }
    if (!isfinite(d[0]) || !isfinite(best->error))
        return -1;
    for (int i = 0; i < ROUNDS && best->qq > 0; i++) {
        struct scales6 s = choose_all6(
            p, fit_half(k, best->qx / best->qq, stored), x, h, wanted);
        if (!(s.error < best->error))
            break;
        *best = s;
    }
    return 0;
}

static int fit_into(const struct kernels *k, const struct plain *p,
                    struct block_scales *s, const float *x, const float *h)
{
    struct scales6 best;
    if (fit_plain(k, p, x, h, &best))
        return -1;
    *s = (struct block_scales){.d = best.d};
    memcpy(s->sc, best.sc, sizeof best.sc);
    return 0;
}

int fit_q6_k(const struct kernels *k, struct block_scales *s, const float *x,
             const float *h)
{
    return fit_into(k, &six, s, x, h);
}

int fit_q3_k(const struct kernels *k, struct block_scales *s, const float *x,
             const float *h)
{
    return fit_into(k, &three, s, x, h);
}
