/* Prompt lookup decoding (Saxena 2023): guesses the next tokens from the
 * context alone. If the last few tokens occurred earlier, it guesses the tokens
 * that followed them there.
 *
 * How often earlier guesses were right decides whether a guess is worth a place
 * in a pass. Each added token is checked against the guess for its position,
 * even if no caller asked for a guess. This is cheap, and so we notice text
 * that repeats itself before we spend a pass on it. Guesses depend only on the
 * tokens and the arguments, never on a clock. */
#ifndef ENGINE_LOOKUP_H
#define ENGINE_LOOKUP_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Most tokens of a guess. */
#define LOOKUP_MAX 64

struct lookup;

/* max: most tokens of a guess, 1 to LOOKUP_MAX. row_cost: time of one more
 * token in a pass, relative to a pass of one token, 0 to 1. */
int lookup_create(struct lookup **out, size_t max, double row_cost,
                  struct qwick_err *e);
void lookup_free(struct lookup *l);

/* Append ids[0..n) to the context. The new tokens are compared with earlier
 * guesses. On failure the context is unchanged. */
int lookup_add(struct lookup *l, const int32_t *ids, size_t n,
               struct qwick_err *e);

/* Guess what follows the context. Writes at most n tokens to drafts and returns
 * how many of them are worth a place in the next pass. The time does not grow
 * with the context. Does not allocate or fail. */
size_t lookup_guess(struct lookup *l, int32_t *drafts, size_t n);

#endif
