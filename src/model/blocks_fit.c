#include "model/blocks_fit.h"

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

static inline struct fit measure(const float *x, size_t n, float scale,
                                 struct range r)
{
    const vec *v = (const vec *)x;
    vec error = {0}, qx = {0}, qq = {0};
    float inverse = fit_inverse(scale);
    for (size_t i = 0; i < n / LANES; i++) {
        vec q = codes(v[i], inverse, r);
        vec d = q * scale - v[i];
        error += d * d;
        qx += q * v[i];
        qq += q * q;
    }
    return (struct fit){lanes_sum(error), lanes_sum(qx), lanes_sum(qq)};
}

static void encode(int8_t *q, const float *x, size_t n, float scale,
                   struct range r)
{
    float inverse = fit_inverse(scale);
    for (size_t i = 0; i < n; i += LANES) {
        vec v = codes(*(const vec *)(x + i), inverse, r);
        for (size_t j = 0; j < LANES; j++)
            q[i + j] = (int8_t)v[j];
    }
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
                     size_t n, struct range r, struct fit *f)
{
    float best = 0;
    *f = (struct fit){.error = INFINITY};
    for (size_t i = 0; i < n_scales; i++) {
        if (!isfinite(scales[i]))
            continue;
        struct fit next = measure(x, n, scales[i], r);
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

static int fit_q8_0(const struct kernels *k, struct q8_0 *b, const float *x)
{
    float d = fabsf(farthest(x, RUN)) / 127, inverse = fit_inverse(d);
    if (!isfinite(fit_half(k, d, b->d)))
        return -1;
    for (int i = 0; i < RUN; i++)
        b->q[i] = (int8_t)roundf(x[i] * inverse);
    return 0;
}

/* Codes of one run of 32 and their scale as stored. */
static int fit_run(const struct kernels *k, int8_t q[RUN], unsigned char d[2],
                   const float *x, struct range r)
{
    float scales[SCALES];
    struct fit f;
    float most = farthest(x, RUN);
    if (!isfinite(fit_half(k, most / (float)r.low, d)))
        return -1;
    candidates(scales, most, r);
    fit_halves(k, scales, SCALES);
    float scale = best_of(scales, SCALES, x, RUN, r, &f);
    for (int i = 0; i < ROUNDS && f.qq > 0; i++) {
        float next = fit_half(k, f.qx / f.qq, d);
        struct fit g = measure(x, RUN, next, r);
        if (!(g.error < f.error))
            break;
        f = g;
        scale = next;
    }
    (void)fit_half(k, scale, d);
    encode(q, x, RUN, scale, r);
    return 0;
}

static int fit_q4_0(const struct kernels *k, struct q4_0 *b, const float *x)
{
    int8_t q[RUN];
    if (fit_run(k, q, b->d, x, (struct range){-8, 7}))
        return -1;
    for (int i = 0; i < RUN / 2; i++)
        b->q[i] = (unsigned char)((q[i] + 8) | (q[i + 16] + 8) << 4);
    return 0;
}

static int fit_q5_0(const struct kernels *k, struct q5_0 *b, const float *x)
{
    int8_t q[RUN];
    if (fit_run(k, q, b->d, x, (struct range){-16, 15}))
        return -1;
    memset(b->h, 0, sizeof b->h);
    for (int i = 0; i < RUN; i++)
        b->h[i / 8] |= (unsigned char)((q[i] + 16) >> 4 << i % 8);
    for (int i = 0; i < RUN / 2; i++)
        b->q[i] = (unsigned char)(((q[i] + 16) & 15) | (q[i + 16] & 15) << 4);
    return 0;
}

/* ---- Q6_K: superblocks without mins ---------------------------------------
 */

enum { GROUP6 = 16, GROUPS6 = SUPER / GROUP6 };

static const struct range six = {-32, 31};

/* A superblock's scales. */
struct scales6 {
    float d;
    int sc[GROUPS6];
    float error, qx, qq; /* of all elements; q: code * sc */
};

/* The best scale of a group for a given d: a neighbour of `wanted` / d. */
static void choose_sc(struct scales6 *s, int g, const float *x, float wanted)
{
    float at = rintf(wanted * fit_inverse(s->d));
    struct fit best = {.error = INFINITY};
    for (int i = -1; i <= 1; i++) {
        float sc = fminf(fmaxf(at + (float)i, -128), 127);
        struct fit f = measure(x + g * GROUP6, GROUP6, s->d * sc, six);
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

static struct scales6 choose_all6(float d, const float *x, const float *wanted)
{
    struct scales6 s = {.d = d};
    for (int g = 0; g < GROUPS6; g++)
        choose_sc(&s, g, x, wanted[g]);
    return s;
}

static void pack_q6_k(struct q6_k *b, const float *x, const struct scales6 *s)
{
    int8_t q[SUPER];
    memset(b->l, 0, sizeof b->l);
    memset(b->h, 0, sizeof b->h);
    for (int g = 0; g < GROUPS6; g++) {
        encode(q + g * GROUP6, x + g * GROUP6, GROUP6, s->d * (float)s->sc[g],
               six);
        b->sc[g] = (int8_t)s->sc[g];
    }
    for (int i = 0; i < SUPER; i++) {
        int code = q[i] + 32, half = i / 128, r = i % 128 / 32, j = i % 32;
        b->l[half * 64 + r % 2 * 32 + j] |=
            (unsigned char)((code & 15) << r / 2 * 4);
        b->h[half * 32 + j] |= (unsigned char)(code >> 4 << 2 * r);
    }
}

static int fit_q6_k(const struct kernels *k, struct q6_k *b, const float *x)
{
    /* which code the group with the largest scale gets */
    static const float edges[] = {-128, 127, -127, 126, -126, 125};
    enum { EDGES = sizeof edges / sizeof *edges };
    float wanted[GROUPS6], d[EDGES];
    struct fit f;
    for (int g = 0; g < GROUPS6; g++) {
        const float *of = x + g * GROUP6;
        float scales[SCALES];
        candidates(scales, farthest(of, GROUP6), six);
        wanted[g] = best_of(scales, SCALES, of, GROUP6, six, &f);
        for (int i = 0; i < ROUNDS && f.qq > 0; i++) {
            struct fit next = measure(of, GROUP6, f.qx / f.qq, six);
            if (!(next.error < f.error))
                break;
            wanted[g] = f.qx / f.qq;
            f = next;
        }
    }
    float most = farthest(wanted, GROUPS6);
    for (int i = 0; i < EDGES; i++)
        d[i] = most / edges[i];
    fit_halves(k, d, EDGES);
    struct scales6 best = {.error = INFINITY};
    for (int i = 0; i < EDGES; i++) {
        struct scales6 s = choose_all6(d[i], x, wanted);
        if (isfinite(d[i]) && s.error < best.error)
            best = s;
    }
    if (!isfinite(d[0]) || !isfinite(best.error))
        return -1;
    for (int i = 0; i < ROUNDS && best.qq > 0; i++) {
        struct scales6 s =
            choose_all6(fit_half(k, best.qx / best.qq, b->d), x, wanted);
        if (!(s.error < best.error))
            break;
        best = s;
    }
    (void)fit_half(k, best.d, b->d);
    pack_q6_k(b, x, &best);
    return 0;
}

/* ---- all types ------------------------------------------------------------
 */

#define FIT(name)                                                   \
    static int fit_one_##name(const struct kernels *k, void *block, \
                              const float *x)                       \
    {                                                               \
        return fit_##name(k, block, x);                             \
    }

FIT(q8_0)
FIT(q4_0)
FIT(q5_0)
FIT(q4_k)
FIT(q6_k)

static int (*const fits[DT_N_BLOCKS])(const struct kernels *k, void *block,
                                      const float *x) = {
    [DT_Q8_0 - DT_BLOCKS] = fit_one_q8_0, [DT_Q4_0 - DT_BLOCKS] = fit_one_q4_0,
    [DT_Q5_0 - DT_BLOCKS] = fit_one_q5_0, [DT_Q4_K - DT_BLOCKS] = fit_one_q4_k,
    [DT_Q6_K - DT_BLOCKS] = fit_one_q6_k,
};

bool blocks_fit_has(enum dtype type)
{
    return type >= DT_BLOCKS && type < DT_COUNT && fits[type - DT_BLOCKS];
}

static bool all_finite(const float *x, size_t n)
{
    uint32_t odd = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, x + i, sizeof u);
        odd |= (u & 0x7fffffff) >= 0x7f800000;
    }
    return !odd;
}

int blocks_fit(enum dtype type, const struct kernels *k, unsigned char *out,
               const float *x, size_t n, size_t *bad)
{
    size_t block = dtype_block(type), bytes = dtype_bytes(type);
    for (size_t i = 0; i < n; i += block, out += bytes) {
        if (all_finite(x + i, block) && !fits[type - DT_BLOCKS](k, out, x + i))
            continue;
        *bad = i;
        return -1;
    }
    return 0;
}
