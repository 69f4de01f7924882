/* How far two rows of logits are apart. */
#ifndef ENGINE_DIVERGENCE_H
#define ENGINE_DIVERGENCE_H

#include <stdbool.h>
#include <stddef.h>

struct par_pool;

struct divergence {
    double kl;     /* KL(R || P) in nats; see struct qwick_token_loss */
    bool same_top; /* both have their first largest logit at the same id */
};

/* Compare the softmax R of r with the softmax P of p, f32 [n], n >= 1, with a
 * finite largest logit each. With p = a, r = b, each minus its largest logit:
 *     KL = sum e^b (b - a) / sum e^b - ln(sum e^b) + ln(sum e^a)
 * Exponentials and sums are double, in an order that depends on n only, so the
 * result does not depend on the pool (NULL: one thread). */
struct divergence divergence(const float *p, const float *r, size_t n,
                             struct par_pool *pool);

#endif
