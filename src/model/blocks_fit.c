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

/* ---- IQ4_NL: codes are indices of a table ---------------------------------
 */

/* The number between iq4_values[i] and the next one. */
static inline float iq4_border(int i)
{
    return 0.5f * (float)(iq4_values[i] + iq4_values[i + 1]);
}

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

static struct fit measure_iq4(const float *x, float scale)
{
    const vec *v = (const vec *)x;
    vec error = {0}, qx = {0}, qq = {0};
    float inverse = fit_inverse(scale);
    for (size_t i = 0; i < RUN / LANES; i++) {
        vec q = iq4_codes(v[i], inverse);
        vec d = q * scale - v[i];
        error += d * d;
        qx += q * v[i];
        qq += q * q;
    }
    return (struct fit){lanes_sum(error), lanes_sum(qx), lanes_sum(qq)};
}

/* Scales that give the farthest element a value from 3/4 of an end of the table
 * to 5/4 of it. */
static float search_iq4(const float *x, float most)
{
    enum { TRIES = 9 };
    float found = 0;
    struct fit best = {.error = INFINITY};
    for (int i = 0; i < 2 * TRIES; i++) {
        float end = iq4_values[i % 2 ? 15 : 0];
        float scale = most / (end * (0.75f + (float)(i / 2) / 16));
        struct fit f = measure_iq4(x, scale);
        if (!(f.error < best.error))
            continue;
        best = f;
        found = scale;
    }
    for (int i = 0; i < ROUNDS && best.qq > 0; i++) {
        struct fit f = measure_iq4(x, best.qx / best.qq);
        if (!(f.error < best.error))
            break;
        found = best.qx / best.qq;
        best = f;
    }
    return found;
}

static int fit_iq4_nl(const struct kernels *k, struct iq4_nl *b, const float *x)
{
    unsigned char q[RUN];
    float most = farthest(x, RUN);
    if (!isfinite(fit_half(k, most / iq4_values[15], b->d)) ||
        !isfinite(most / iq4_values[15] * 2))
        return -1;
    float scale = fit_half(k, search_iq4(x, most), b->d);
    float inverse = fit_inverse(scale);
    for (int i = 0; i < RUN; i++) {
        q[i] = 0;
        while (q[i] < 15 && x[i] * inverse > iq4_border(q[i]))
            q[i]++;
    }
    for (int i = 0; i < RUN / 2; i++)
        b->q[i] = (unsigned char)(q[i] | q[i + RUN / 2] << 4);
    return isfinite(scale) ? 0 : -1;
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
                      const float *x, float wanted)
{
    float at = rintf(wanted * fit_inverse(s->d));
    struct fit best = {.error = INFINITY};
    for (int i = -1; i <= 1; i++) {
        float sc = fminf(fmaxf(at + (float)i, (float)p->scales.low),
                         (float)p->scales.high);
        struct fit f = measure(x + g * GROUP6, GROUP6, s->d * sc, p->codes);
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
                                  const float *x, const float *wanted)
{
    struct scales6 s = {.d = d};
    for (int g = 0; g < GROUPS6; g++)
        choose_sc(&s, p, g, x, wanted[g]);
    return s;
}

/* The best codes of a superblock. */
static void encode_all6(int8_t q[SUPER], const struct plain *p, const float *x,
                        const struct scales6 *s)
{
    for (int g = 0; g < GROUPS6; g++)
        encode(q + g * GROUP6, x + g * GROUP6, GROUP6, s->d * (float)s->sc[g],
               p->codes);
}

static void pack_q6_k(struct q6_k *b, const float *x, const struct scales6 *s)
{
    int8_t q[SUPER];
    memset(b->l, 0, sizeof b->l);
    memset(b->h, 0, sizeof b->h);
    encode_all6(q, &six, x, s);
    for (int g = 0; g < GROUPS6; g++)
        b->sc[g] = (int8_t)s->sc[g];
    for (int i = 0; i < SUPER; i++) {
        int code = q[i] + 32, half = i / 128, r = i % 128 / 32, j = i % 32;
        b->l[half * 64 + r % 2 * 32 + j] |=
            (unsigned char)((code & 15) << r / 2 * 4);
        b->h[half * 32 + j] |= (unsigned char)(code >> 4 << 2 * r);
    }
}

static void pack_q3_k(struct q3_k *b, const float *x, const struct scales6 *s)
{
    int8_t q[SUPER];
    memset(b->h, 0, sizeof b->h);
    memset(b->q, 0, sizeof b->q);
    memset(b->sc, 0, sizeof b->sc);
    encode_all6(q, &three, x, s);
    for (int g = 0; g < GROUPS6; g++) {
        int sc = s->sc[g] + 32;
        b->sc[g % 8] |= (unsigned char)((sc & 15) << g / 8 * 4);
        b->sc[8 + g % 4] |= (unsigned char)(sc >> 4 << g / 4 * 2);
    }
    for (int i = 0; i < SUPER; i++) {
        int code = q[i] + 4, j = i % 32;
        b->q[i / 128 * 32 + j] |=
            (unsigned char)((code & 3) << i % 128 / 32 * 2);
        b->h[j] |= (unsigned char)(code >> 2 << i / 32);
    }
}

/* A group's best scale, before it is rounded for storage. */
static float fit_scale(const float *x, struct range r)
{
    float scales[SCALES];
    struct fit f;
    candidates(scales, farthest(x, GROUP6), r);
    float scale = best_of(scales, SCALES, x, GROUP6, r, &f);
    for (int i = 0; i < ROUNDS && f.qq > 0; i++) {
        struct fit next = measure(x, GROUP6, f.qx / f.qq, r);
        if (!(next.error < f.error))
            break;
        scale = f.qx / f.qq;
        f = next;
    }
    return scale;
}

/* The scales of a superblock. Returns -1 if it has no finite d. */
static int fit_plain(const struct kernels *k, const struct plain *p,
                     const float *x, struct scales6 *best)
{
    enum { EDGES = 6 };
    float wanted[GROUPS6], d[EDGES];
    unsigned char stored[2];
    for (int g = 0; g < GROUPS6; g++)
        wanted[g] = fit_scale(x + g * GROUP6, p->codes);
    float most = farthest(wanted, GROUPS6);
    for (int i = 0; i < EDGES; i++) /* which scale the largest one gets */
        d[i] = most / (float)(i % 2 ? p->scales.high - i / 2
                                    : p->scales.low + i / 2);
    fit_halves(k, d, EDGES);
    best->error = INFINITY;
    for (int i = 0; i < EDGES; i++) {
        struct scales6 s = choose_all6(p, d[i], x, wanted);
        if (isfinite(d[i]) && s.error < best->error)
            *best = s;
    }
    if (!isfinite(d[0]) || !isfinite(best->error))
        return -1;
    for (int i = 0; i < ROUNDS && best->qq > 0; i++) {
        struct scales6 s = choose_all6(
            p, fit_half(k, best->qx / best->qq, stored), x, wanted);
        if (!(s.error < best->error))
            break;
        *best = s;
    }
    return 0;
}

static int fit_q6_k(const struct kernels *k, struct q6_k *b, const float *x)
{
    struct scales6 s;
    if (fit_plain(k, &six, x, &s))
        return -1;
    (void)fit_half(k, s.d, b->d);
    pack_q6_k(b, x, &s);
    return 0;
}

static int fit_q3_k(const struct kernels *k, struct q3_k *b, const float *x)
{
    struct scales6 s;
    if (fit_plain(k, &three, x, &s))
        return -1;
    (void)fit_half(k, s.d, b->d);
    pack_q3_k(b, x, &s);
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
FIT(q5_1)
FIT(iq4_nl)
FIT(q2_k)
FIT(q3_k)
FIT(q4_k)
FIT(q5_k)
FIT(q6_k)

static int (*const fits[DT_N_BLOCKS])(const struct kernels *k, void *block,
                                      const float *x) = {
    [DT_Q8_0 - DT_BLOCKS] = fit_one_q8_0,
    [DT_Q4_0 - DT_BLOCKS] = fit_one_q4_0,
    [DT_Q5_0 - DT_BLOCKS] = fit_one_q5_0,
    [DT_Q5_1 - DT_BLOCKS] = fit_one_q5_1,
    [DT_IQ4_NL - DT_BLOCKS] = fit_one_iq4_nl,
    [DT_Q2_K - DT_BLOCKS] = fit_one_q2_k,
    [DT_Q3_K - DT_BLOCKS] = fit_one_q3_k,
    [DT_Q4_K - DT_BLOCKS] = fit_one_q4_k,
    [DT_Q5_K - DT_BLOCKS] = fit_one_q5_k,
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
