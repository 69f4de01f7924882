/* From logits to a token: penalties, temperature, top-k, top-p, min-p, draw. */
#ifndef ENGINE_SAMPLER_H
#define ENGINE_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kernel/kernel.h"

struct sampler;

/* blocked [vocab_size]: nonzero for ids that are never drawn. It is borrowed;
 * NULL blocks none. A value of *o that is out of range: QWICK_ERR_USAGE. */
int sampler_create(struct sampler **out, const struct qwick_sampling *o,
                   size_t vocab_size, const unsigned char *blocked,
                   const struct kernels *k, struct qwick_err *e);
void sampler_free(struct sampler *s);

/* Count a token of the prompt for the repetition penalty. */
void sampler_see_prompt(struct sampler *s, int32_t id);

/* fn may change the logits of each draw; see qwick.h. NULL: none. */
void sampler_set_bias(struct sampler *s, qwick_bias_fn fn, void *ctx);

/* Draw the next token from logits f32 [vocab_size], which stay unchanged, and
 * accept it. The draw after i accepted tokens uses the i-th number of the
 * seed's stream. QWICK_ERR_RUNTIME: a logit is NaN or infinite, or every id is
 * blocked. Takes linear time: the vocabulary is never sorted. */
int sampler_draw(struct sampler *s, const float *logits, int32_t *id,
                 struct qwick_err *e);

/* Draw without accepting: the same call again gives the same id. */
int sampler_peek(struct sampler *s, const float *logits, int32_t *id,
                 struct qwick_err *e);

/* Count a token of the answer, an id in range, for the penalties. */
void sampler_accept(struct sampler *s, int32_t id);

/* Write the n likeliest ids with their log-probabilities to top, best first,
 * and the log-probability of `id` to *logprob. They are the log-softmax of the
 * logits before any penalty. Equal values are in order of their ids. */
void sampler_logprobs(const struct sampler *s, const float *logits,
                      struct qwick_logprob *top, size_t n, int32_t id,
                      float *logprob);

/* Write the indices of the n largest values of x[0..size) to ids [n], the
 * largest first, equal ones in order of their indices. Returns their number:
 * the smaller of n and size. */
size_t sampler_top(const float *x, size_t size, int32_t *ids, size_t n);

#endif
