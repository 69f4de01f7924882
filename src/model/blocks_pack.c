/* Storing codes and scales as GGUF's blocks. */
#include <string.h>

#include "model/blocks_fit_int.h"

static void store_half(const struct kernels *k, unsigned char out[2], float v)
{
    k->from_f32[DT_F16](out, &v, 1);
}

/* Low nibbles of 32 codes from 0 on, as in q4_0. */
static void pack_run(unsigned char out[16], const int8_t *q, int add)
{
    for (int i = 0; i < 16; i++)
        out[i] = (unsigned char)(((q[i] + add) & 15) | ((q[i + 16] + add) & 15)
                                                           << 4);
}

/* The fifth bits of 32 codes. */
static void pack_fifth(unsigned char out[4], const int8_t *q, int add)
{
    memset(out, 0, 4);
    for (int i = 0; i < 32; i++)
        out[i / 8] |= (unsigned char)((q[i] + add) >> 4 << i % 8);
}

void pack_q4_0(const struct kernels *k, struct q4_0 *b,
               const struct block_scales *s, const int8_t *q)
{
    store_half(k, b->d, s->d);
    pack_run(b->q, q, 8);
}

void pack_q5_0(const struct kernels *k, struct q5_0 *b,
               const struct block_scales *s, const int8_t *q)
{
    store_half(k, b->d, s->d);
    pack_fifth(b->h, q, 16);
    pack_run(b->q, q, 16);
}

void pack_q5_1(const struct kernels *k, struct q5_1 *b,
               const struct block_scales *s, const int8_t *q)
{
    store_half(k, b->d, s->d);
    store_half(k, b->m, s->dmin);
    pack_fifth(b->h, q, 0);
    pack_run(b->q, q, 0);
}

void pack_iq4_nl(const struct kernels *k, struct iq4_nl *b,
                 const struct block_scales *s, const int8_t *q)
{
    store_half(k, b->d, s->d);
    pack_run(b->q, q, 0);
}

void pack_q6_k(const struct kernels *k, struct q6_k *b,
               const struct block_scales *s, const int8_t *q)
{
    store_half(k, b->d, s->d);
    memset(b->l, 0, sizeof b->l);
    memset(b->h, 0, sizeof b->h);
    for (int g = 0; g < BLOCKS_GROUPS; g++)
        b->sc[g] = (int8_t)s->sc[g];
    for (int i = 0; i < SUPER; i++) {
        int code = q[i] + 32, half = i / 128, r = i % 128 / 32, j = i % 32;
        b->l[half * 64 + r % 2 * 32 + j] |=
            (unsigned char)((code & 15) << r / 2 * 4);
        b->h[half * 32 + j] |= (unsigned char)(code >> 4 << 2 * r);
    }
}

void pack_q3_k(const struct kernels *k, struct q3_k *b,
               const struct block_scales *s, const int8_t *q)
{
    store_half(k, b->d, s->d);
    memset(b->h, 0, sizeof b->h);
    memset(b->q, 0, sizeof b->q);
    memset(b->sc, 0, sizeof b->sc);
    for (int g = 0; g < BLOCKS_GROUPS; g++) {
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

/* Low nibbles of codes, as in q4_k and q5_k. */
static void pack_nibbles(unsigned char out[SUPER / 2], const int8_t *q)
{
    for (int i = 0; i < SUPER / 2; i++) {
        int at = i / 32 * 64 + i % 32;
        out[i] = (unsigned char)((q[at] & 15) | (q[at + 32] & 15) << 4);
    }
}

void pack_q4_k(const struct kernels *k, struct q4_k *b,
               const struct block_scales *s, const int8_t *q)
{
    store_half(k, b->d, s->d);
    store_half(k, b->dmin, s->dmin);
    pack_scales(b->sc, s->sc, s->m);
    pack_nibbles(b->q, q);
}

void pack_q5_k(const struct kernels *k, struct q5_k *b,
               const struct block_scales *s, const int8_t *q)
{
    store_half(k, b->d, s->d);
    store_half(k, b->dmin, s->dmin);
    pack_scales(b->sc, s->sc, s->m);
    pack_nibbles(b->q, q);
    memset(b->h, 0, sizeof b->h);
    for (int i = 0; i < SUPER; i++)
        b->h[i % 32] |= (unsigned char)(q[i] >> 4 << i / 32);
}

void pack_q2_k(const struct kernels *k, struct q2_k *b,
               const struct block_scales *s, const int8_t *q)
{
    store_half(k, b->d, s->d);
    store_half(k, b->dmin, s->dmin);
    for (int g = 0; g < BLOCKS_GROUPS; g++)
        b->sc[g] = (unsigned char)(s->sc[g] | s->m[g] << 4);
    memset(b->q, 0, sizeof b->q);
    for (int i = 0; i < SUPER; i++)
        b->q[i / 128 * 32 + i % 32] |=
            (unsigned char)(q[i] << i % 128 / 32 * 2);
}
