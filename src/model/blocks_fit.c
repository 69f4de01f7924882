#include "model/blocks_fit.h"

#include <string.h>

#include "model/blocks_fit_int.h"

enum { RUN = 32 };

/* ---- the types ----------------------------------------------------------- */

#define PACK(name)                                                             \
    static void pack_one_##name(const struct kernels *k, void *b,              \
                                const struct block_scales *s, const int8_t *q) \
    {                                                                          \
        pack_##name(k, b, s, q);                                               \
    }

PACK(q4_0)
PACK(q5_0)
PACK(q5_1)
PACK(iq4_nl)
PACK(q2_k)
PACK(q3_k)
PACK(q4_k)
PACK(q5_k)
PACK(q6_k)

/* A type whose scales are searched. */
struct kind {
    struct block_codes codes;
    fit_fn fit;
    void (*pack)(const struct kernels *k, void *block,
                 const struct block_scales *s, const int8_t *q);
};

static const struct kind kinds[DT_N_BLOCKS] = {
    [DT_Q4_0 - DT_BLOCKS] = {{32, -8, 7, NULL}, fit_q4_0, pack_one_q4_0},
    [DT_Q5_0 - DT_BLOCKS] = {{32, -16, 15, NULL}, fit_q5_0, pack_one_q5_0},
    [DT_Q5_1 - DT_BLOCKS] = {{32, 0, 31, NULL}, fit_q5_1, pack_one_q5_1},
    [DT_IQ4_NL -
        DT_BLOCKS] = {{32, 0, 15, iq4_values}, fit_iq4_nl, pack_one_iq4_nl},
    [DT_Q2_K - DT_BLOCKS] = {{16, 0, 3, NULL}, fit_q2_k, pack_one_q2_k},
    [DT_Q3_K - DT_BLOCKS] = {{16, -4, 3, NULL}, fit_q3_k, pack_one_q3_k},
    [DT_Q4_K - DT_BLOCKS] = {{32, 0, 15, NULL}, fit_q4_k, pack_one_q4_k},
    [DT_Q5_K - DT_BLOCKS] = {{32, 0, 31, NULL}, fit_q5_k, pack_one_q5_k},
    [DT_Q6_K - DT_BLOCKS] = {{16, -32, 31, NULL}, fit_q6_k, pack_one_q6_k},
};

static const struct kind *kind_of(enum dtype type)
{
    bool in = type >= DT_BLOCKS && type < DT_COUNT;
    return in && kinds[type - DT_BLOCKS].fit ? &kinds[type - DT_BLOCKS] : NULL;
}

bool blocks_fit_has(enum dtype type)
{
    return type == DT_Q8_0 || kind_of(type);
}

const struct block_codes *blocks_codes(enum dtype type)
{
    const struct kind *kind = kind_of(type);
    return kind ? &kind->codes : NULL;
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

int blocks_scales(enum dtype type, const struct kernels *k,
                  struct block_scales *out, const float *x, const float *h,
                  size_t n, size_t *bad)
{
    const struct kind *kind = kind_of(type);
    size_t block = dtype_block(type);
    for (*bad = 0; *bad < n; *bad += block, out++)
        if (!all_finite(x + *bad, block) ||
            kind->fit(k, out, x + *bad, h + *bad))
            return -1;
    return 0;
}

/* ---- codes --------------------------------------------------------------- */

/* Codes of a group of whole numbers from low to high. */
static void encode_group(int8_t *q, const float *x, const struct block_codes *c,
                         float step, float base)
{
    const vec low = lanes_splat((float)c->low),
              high = lanes_splat((float)c->high);
    float inverse = fit_inverse(step);
    for (int i = 0; i < c->group; i += LANES) {
        vec v = (*(const vec *)(x + i) - base) * inverse;
        v = lanes_smaller(lanes_larger(v, low), high);
        v = (v + ROUNDER) - ROUNDER;
        for (int j = 0; j < LANES; j++)
            q[i + j] = (int8_t)v[j];
    }
}

/* Indices of iq4_values. */
static void encode_iq4(int8_t *q, const float *x, float step)
{
    float inverse = fit_inverse(step);
    for (int i = 0; i < RUN; i++) {
        q[i] = 0;
        while (q[i] < 15 && x[i] * inverse > iq4_border(q[i]))
            q[i]++;
    }
}

void blocks_encode(enum dtype type, int8_t *codes, const struct block_scales *s,
                   const float *x, size_t n)
{
    const struct block_codes *c = blocks_codes(type);
    size_t block = dtype_block(type), group = (size_t)c->group;
    for (size_t i = 0; i < n; i += group) {
        const struct block_scales *b = s + i / block;
        size_t g = i % block / group;
        if (c->table)
            encode_iq4(codes + i, x + i, b->d);
        else
            encode_group(codes + i, x + i, c, b->d * (float)b->sc[g],
                         -(b->dmin * (float)b->m[g]));
    }
}

void blocks_pack(enum dtype type, const struct kernels *k, unsigned char *out,
                 const struct block_scales *s, const int8_t *codes, size_t n)
{
    const struct kind *kind = kind_of(type);
    size_t block = dtype_block(type), bytes = dtype_bytes(type);
    for (size_t i = 0; i < n; i += block, out += bytes)
        kind->pack(k, out, s++, codes + i);
}

/* ---- all steps ----------------------------------------------------------- */

static int fit_q8_0(const struct kernels *k, struct q8_0 *b, const float *x)
{
    float most = 0;
    for (int i = 0; i < RUN; i++)
        most = fmaxf(most, fabsf(x[i]));
    float d = most / 127, inverse = fit_inverse(d);
    if (!all_finite(x, RUN) || !isfinite(fit_half(k, d, b->d)))
        return -1;
    for (int i = 0; i < RUN; i++)
        b->q[i] = (int8_t)roundf(x[i] * inverse);
    return 0;
}

/* Round one block. */
static int fit_one(enum dtype type, const struct kernels *k, unsigned char *out,
                   const float *x, const float *ones)
{
    struct block_scales s;
    int8_t codes[SUPER];
    size_t n = dtype_block(type), bad;
    if (type == DT_Q8_0)
        return fit_q8_0(k, (struct q8_0 *)out, x);
    if (blocks_scales(type, k, &s, x, ones, n, &bad))
        return -1;
    blocks_encode(type, codes, &s, x, n);
    blocks_pack(type, k, out, &s, codes, n);
    return 0;
}

int blocks_fit(enum dtype type, const struct kernels *k, unsigned char *out,
               const float *x, size_t n, size_t *bad)
{
    size_t block = dtype_block(type), bytes = dtype_bytes(type);
    _Alignas(16) float ones[SUPER];
    for (size_t i = 0; i < SUPER; i++)
        ones[i] = 1;
    for (*bad = 0; *bad < n; *bad += block, out += bytes)
        if (fit_one(type, k, out, x + *bad, ones))
            return -1;
    return 0;
}
