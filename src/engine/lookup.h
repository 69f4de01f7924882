/* Guesses of what comes next, from the context alone: the tokens that followed
 * when the last few were there before (prompt lookup decoding, Saxena 2023).
 *
 * Whether a guess is worth a place in a pass is decided by what such guesses
 * were worth so far. They are checked against each token that is added, those
 * that nobody asked for as well, which costs nothing: so text that repeats
 * itself is noticed without trying, and other text is left alone. What comes
 * out depends on the tokens and the arguments only, never on a clock. */
#ifndef ENGINE_LOOKUP_H
#define ENGINE_LOOKUP_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Most tokens of a guess. */
#define LOOKUP_MAX 64

struct lookup;

/* max: most tokens of a guess, 1 to LOOKUP_MAX. row_cost: what a token more in
 * a pass takes, as a share of a pass of one token, 0 to 1. */
int lookup_create(struct lookup **out, size_t max, double row_cost,
                  struct qwick_err *e);
void lookup_free(struct lookup *l);

/* Append ids[0..n) to the context. Those after a guess tell how good it was. On
 * failure the context is as it was. */
int lookup_add(struct lookup *l, const int32_t *ids, size_t n,
               struct qwick_err *e);

/* What may follow the context: at most n tokens to drafts, how many of them
 * are worth a place in the next pass. Takes time that does not grow with the
 * context. Allocates nothing. */
size_t lookup_guess(struct lookup *l, int32_t *drafts, size_t n);

#endif
