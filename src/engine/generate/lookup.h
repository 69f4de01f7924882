/* Prompt lookup decoding (Saxena 2023): guesses the next tokens from the
 * context alone. If the last few tokens occurred earlier, it guesses the tokens
 * that followed them there.
 *
 * How often earlier guesses were right decides whether a guess is worth a place
 * in a pass. So every token that is added is compared with the guess for its
 * position, even if no caller asked for that guess. This is cheap, and it
 * detects text that repeats itself before a pass is spent on it. Guesses depend
 * only on the tokens and the arguments, never on a clock. */
#ifndef ENGINE_LOOKUP_H
#define ENGINE_LOOKUP_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Maximum number of tokens in a guess. */
#define LOOKUP_MAX 64

struct lookup;

/* Create a lookup with an empty context. max: maximum number of tokens in a
 * guess, 1 to LOOKUP_MAX. row_cost: time that one more token adds to a pass,
 * relative to a pass of one token, 0 to 1. */
int lookup_create(struct lookup **out, size_t max, double row_cost,
                  struct qwick_err *e);
void lookup_free(struct lookup *l);

/* Append ids[0..n) to the context and compare them with the guesses for their
 * positions. On failure the context is unchanged. */
int lookup_add(struct lookup *l, const int32_t *ids, size_t n,
               struct qwick_err *e);

/* Guess the tokens that follow the context. Writes at most n tokens to drafts
 * and returns how many of them are worth a place in the next pass. The time
 * does not grow with the context. Does not allocate or fail. */
size_t lookup_guess(struct lookup *l, int32_t *drafts, size_t n);

/* Guess as lookup_guess does, but only if that gives more than `least` tokens
 * in the time of a pass with one token, as expected. */
size_t lookup_guess_above(struct lookup *l, int32_t *drafts, size_t n,
                          double least);

#endif
