/* to_q8 and to_kv_i8 (kernel.h) by two functions that a level defines before it
 * includes this once, with KERNEL(name):
 *
 *   float largest(const float *x, size_t n)      the largest magnitude
 *   void round_group(int8_t *q, float *scale, float *sum, const float *x,
 *                    size_t n, float top)        round one group; top: the
 *                                                magnitude that becomes 127 */
#ifndef KERNEL_K_ROUND_Q8_H
#define KERNEL_K_ROUND_Q8_H

#include <string.h>

#include "kernel/kernel.h"

static void KERNEL(to_q8)(const struct q8 *out, const float *x, size_t ldx,
                          size_t n_cols, size_t n_tokens)
{
    for (size_t t = 0; t < n_tokens; t++) {
        int8_t *q = out->q + t * out->ldq;
        float *scale = out->scale + t * out->ldg;
        float *sum = out->sum + t * out->ldg;
        const float *xt = x + t * ldx;
        const size_t unit = q8_unit(out);

        for (size_t k = 0; k < n_cols;) {
            const size_t end = k + (n_cols - k < unit ? n_cols - k : unit);
            const float top = largest(xt + k, end - k);

            for (; k < end; k += out->group)
                round_group(q + k, scale++, sum++, xt + k, out->group, top);
        }
        memset(q + n_cols, 0, out->ldq - n_cols);
    }
}

static void KERNEL(to_kv_i8)(int8_t *q, float *scales, const float *x,
                             size_t n)
{
    float part[KV_I8_GROUP] = {0}, sum;
    int8_t part_q[KV_I8_GROUP];
    size_t i = 0;

    for (; n - i >= KV_I8_GROUP; i += KV_I8_GROUP)
        round_group(q + i, scales++, &sum, x + i, KV_I8_GROUP,
                    largest(x + i, KV_I8_GROUP));
    if (i < n) {
        memcpy(part, x + i, (n - i) * sizeof *x);
        round_group(part_q, scales, &sum, part, KV_I8_GROUP,
                    largest(part, KV_I8_GROUP));
        memcpy(q + i, part_q, n - i);
    }
}

#endif
