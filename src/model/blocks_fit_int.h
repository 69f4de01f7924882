/* Functions that the files of blocks_fit share. */
#ifndef MODEL_BLOCKS_FIT_INT_H
#define MODEL_BLOCKS_FIT_INT_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel/blocks.h"
#include "kernel/kernel.h"
#include "model/blocks_fit.h"
#include "model/lanes.h"

/* Adding and subtracting it rounds |v| < 2^22 to nearest even. */
#define ROUNDER 12582912.0f

/* Round v to f16. Writes it to stored and returns its value. */
static inline float fit_half(const struct kernels *k, float v,
                             unsigned char stored[2])
{
    float f;
    k->from_f32[DT_F16](stored, &v, 1);
    k->to_f32[DT_F16](&f, stored, 1);
    return f;
}

/* Round each value to f16. */
static inline void fit_halves(const struct kernels *k, float *v, size_t n)
{
    uint16_t h[64];
    k->from_f32[DT_F16](h, v, n);
    k->to_f32[DT_F16](v, h, n);
}

/* Return 1 / v, or 0 if the scale v is so small that every element rounds to
 * 0. */
static inline float fit_inverse(float v)
{
    return fabsf(v) > 1e-30f ? 1 / v : 0;
}

/* Find the scales of one superblock or block x. h: the weights of the squared
 * errors. Returns -1 if there is no finite d, dmin or m. The elements are
 * finite. */
typedef int (*fit_fn)(const struct kernels *k, struct block_scales *s,
                      const float *x, const float *h);
int fit_q4_0(const struct kernels *k, struct block_scales *s, const float *x,
             const float *h);
int fit_q5_0(const struct kernels *k, struct block_scales *s, const float *x,
             const float *h);
int fit_iq4_nl(const struct kernels *k, struct block_scales *s, const float *x,
               const float *h);
int fit_q3_k(const struct kernels *k, struct block_scales *s, const float *x,
             const float *h);
int fit_q6_k(const struct kernels *k, struct block_scales *s, const float *x,
             const float *h);
int fit_q5_1(const struct kernels *k, struct block_scales *s, const float *x,
             const float *h);
int fit_q2_k(const struct kernels *k, struct block_scales *s, const float *x,
             const float *h);
int fit_q4_k(const struct kernels *k, struct block_scales *s, const float *x,
             const float *h);
int fit_q5_k(const struct kernels *k, struct block_scales *s, const float *x,
             const float *h);

/* Store the codes of one block. */
void pack_q4_0(const struct kernels *k, struct q4_0 *b,
               const struct block_scales *s, const int8_t *q);
void pack_q5_0(const struct kernels *k, struct q5_0 *b,
               const struct block_scales *s, const int8_t *q);
void pack_q5_1(const struct kernels *k, struct q5_1 *b,
               const struct block_scales *s, const int8_t *q);
void pack_iq4_nl(const struct kernels *k, struct iq4_nl *b,
                 const struct block_scales *s, const int8_t *q);
void pack_q2_k(const struct kernels *k, struct q2_k *b,
               const struct block_scales *s, const int8_t *q);
void pack_q3_k(const struct kernels *k, struct q3_k *b,
               const struct block_scales *s, const int8_t *q);
void pack_q4_k(const struct kernels *k, struct q4_k *b,
               const struct block_scales *s, const int8_t *q);
void pack_q5_k(const struct kernels *k, struct q5_k *b,
               const struct block_scales *s, const int8_t *q);
void pack_q6_k(const struct kernels *k, struct q6_k *b,
               const struct block_scales *s, const int8_t *q);

/* The number between iq4_values[i] and the next one. */
static inline float iq4_border(int i)
{
    return 0.5f * (float)(iq4_values[i] + iq4_values[i + 1]);
}

#endif
