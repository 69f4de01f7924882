/* Chooses a token from logits: penalties, temperature, top-k, top-p, min-p,
 * draw. */
#ifndef ENGINE_SAMPLER_H
#define ENGINE_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kernel/kernel.h"

struct sampler;

/* Create a sampler. blocked [vocab_size] is nonzero for ids that are never
 * drawn. It is borrowed; NULL blocks no id. QWICK_ERR_USAGE if a value of *o is
 * out of range. */
int sampler_create(struct sampler **out, const struct qwick_sampling *o,
                   size_t vocab_size, const unsigned char *blocked,
                   const struct kernels *k, struct qwick_err *e);
void sampler_free(struct sampler *s);

/* Count a token of the prompt, for the repetition penalty and min_all. */
void sampler_see_prompt(struct sampler *s, int32_t id);

/* Let fn change the logits in each draw; see qwick_bias_fn. NULL: none. */
void sampler_set_bias(struct sampler *s, qwick_bias_fn fn, void *ctx);

/* Add the numbers of a list to the logits of each draw, before a bias function.
 * The list is copied; an id that occurs twice gets both numbers.
 * QWICK_ERR_USAGE if an id is not below vocab_size, or a number is not within
 * QWICK_BIAS_MAX of 0. Call it at most once. */
int sampler_set_bias_list(struct sampler *s, const struct qwick_bias *list,
                          size_t n, struct qwick_err *e);

/* Return the first id whose logit, with its number of the list, is larger than
 * that of `id`; -1: there is none. */
int32_t sampler_find_larger(const struct sampler *s, const float *logits,
                            int32_t id);

/* Let later draws choose only among the ids whose bits are set in allowed: id i
 * is bit i % 64 of word i / 64. Bits up to vocab_size exist. The words are
 * borrowed, and may change between draws. NULL: any id. */
void sampler_set_allowed(struct sampler *s, const uint64_t *allowed);

/* Never draw id from now on. Works for one id of a sampler. */
void sampler_block(struct sampler *s, int32_t id);

/* Ids that may not begin an answer. Those of `first` are not its first token;
 * those of `stops` are not among its first min_new tokens, nor among the first
 * min_all of prompt and answer. Borrowed. */
struct sampler_start {
    const int32_t *first, *stops;
    size_t n_first, n_stops, min_new, min_all;
};
void sampler_set_start(struct sampler *s, const struct sampler_start *start);

/* Draw the next token from logits f32 [vocab_size], which stay unchanged, and
 * accept it. The draw after i accepted tokens uses the i-th number of the
 * seed's random stream. QWICK_ERR_RUNTIME if a logit is NaN or infinite, or if
 * every id is blocked. Takes time linear in vocab_size: the vocabulary is never
 * sorted. */
int sampler_draw(struct sampler *s, const float *logits, int32_t *id,
                 struct qwick_err *e);

/* Draw without accepting: repeating the call gives the same id. */
int sampler_peek(struct sampler *s, const float *logits, int32_t *id,
                 struct qwick_err *e);

/* Count a token of the answer, for the penalties. id must be in range. */
void sampler_accept(struct sampler *s, int32_t id);

/* Undo the last sampler_accept, which had this id. */
void sampler_undo(struct sampler *s, int32_t id);

/* Return whether draws always give the likeliest token. */
bool sampler_is_greedy(const struct sampler *s);

/* Return the random number of the next draw. */
double sampler_number(const struct sampler *s);

/* Guess a token from the logits of another model: draw from them as
 * sampler_peek would, with the number u in [0, 1). *sure is the largest
 * probability in the distribution of the draw; of a greedy draw, in the softmax
 * of the logits. q f32 [vocab_size], unless NULL, receives the distribution. */
int sampler_guess(struct sampler *s, const float *logits, double u, int32_t *id,
                  double *sure, float *q, struct qwick_err *e);

/* Draw the next token as sampler_draw does, given a guess that was drawn from
 * the distribution q. The result has the distribution of sampler_draw, and is
 * the guess as often as possible (speculative sampling: Leviathan, Kalman,
 * Matias 2023). Not for greedy draws. */
int sampler_draw_guess(struct sampler *s, const float *logits, int32_t guess,
                       const float *q, int32_t *id, struct qwick_err *e);

/* Write the n most likely ids with their log-probabilities to top, the most
 * likely first, and the log-probability of `id` to *logprob. Log-probabilities
 * are the log-softmax of the logits before any penalty. Equal ones are in order
 * of ids. */
void sampler_logprobs(const struct sampler *s, const float *logits,
                      struct qwick_logprob *top, size_t n, int32_t id,
                      float *logprob);

/* Write the indices of the n largest values of x[0..size) to ids [n], the index
 * of the largest value first. Indices of equal values ascend. Returns how many
 * indices it wrote: the smaller of n and size. */
size_t sampler_top(const float *x, size_t size, int32_t *ids, size_t n);

#endif
