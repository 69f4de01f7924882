/* The decode loop. It selects a token from logits, hands it out and evaluates
 * it, until the answer ends. It knows no model: callbacks do the work, on a
 * state that holds the evaluated tokens. With a draft, each pass also evaluates
 * guesses. The loop accepts guesses until the first one that differs from the
 * selected token. */
#ifndef ENGINE_DECODE_H
#define ENGINE_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Evaluates one token at position pos of the state, which holds pos tokens.
 * Sets *logits to the logits of the token, valid until the next call. */
typedef int (*decode_forward_fn)(void *state, int32_t token, size_t pos,
                                 const float **logits, struct qwick_err *e);

/* Selects a token from a row of logits and writes it to *id. */
typedef int (*decode_select_fn)(void *ctx, const float *logits, int32_t *id,
                                struct qwick_err *e);

/* Called after a token was selected, even if it is the stop token. *end and
 * *why say whether the rules make it the last token. The callback may set them
 * to end the answer for its own reasons. pos is the number of tokens before
 * this one. The state holds those tokens and, with a draft, perhaps guesses
 * after them. */
typedef int (*decode_token_fn)(void *ctx, int32_t id, size_t pos, bool *end,
                               enum qwick_finish *why, struct qwick_err *e);

/* Evaluates tokens[0..n), n >= 1, jointly at positions pos, pos + 1, … of the
 * state, which holds pos tokens. Sets *rows to the logits of the tokens, a row
 * every `stride` floats, valid until the next call. */
typedef int (*decode_forward_all_fn)(void *state, const int32_t *tokens,
                                     size_t n, size_t pos, const float **rows,
                                     struct qwick_err *e);

/* Drops all tokens of the state after the first n. At least one token of the
 * last pass stays. */
typedef void (*decode_keep_fn)(void *state, size_t n);

/* Guesses the tokens that follow the last selected one. Writes *n <= max tokens
 * to drafts; max >= 1. */
typedef int (*decode_guess_fn)(void *ctx, int32_t *drafts, size_t max,
                               size_t *n, struct qwick_err *e);

/* Functions that guess, and counts of the guesses. */
struct decode_draft {
    decode_guess_fn guess; /* gets the ctx of the loop */
    decode_forward_all_fn forward_all;
    decode_keep_fn keep;
    size_t stride;     /* floats from row to row of forward_all */
    int32_t *tokens;   /* [1 + max] memory for the tokens of a pass */
    size_t max;        /* maximum number of guesses in a pass */
    size_t n_passes;   /* out: passes with guesses */
    size_t n_drafted;  /* out: guesses evaluated */
    size_t n_accepted; /* out: guesses accepted; each saved a pass */
};

/* Rules that end an answer by ids and lengths. */
struct decode_rules {
    const int32_t *stop_ids; /* [n_stop_ids] */
    size_t n_stop_ids;
    size_t budget; /* maximum number of tokens to select, 0: any number */
    size_t limit;  /* positions that the state can hold */
    size_t turn;   /* the most positions before the keys of all change
                      (model_long_rope_from): no guesses go beyond; 0: never */
};

struct decode_loop {
    struct decode_rules rules;
    decode_forward_fn forward;
    void *state;
    decode_select_fn select;
    decode_token_fn on_token;
    void *ctx;                  /* argument of select and on_token */
    struct decode_draft *draft; /* NULL: one token a pass */
};

bool decode_is_stop(const struct decode_rules *r, int32_t id);

/* Return whether id is the last token, and set *why if so: it is a stop id, the
 * budget is used up, or no position is left to evaluate it. n: tokens selected
 * so far, id included. pos: tokens that the state holds. */
bool decode_ends(const struct decode_rules *r, int32_t id, size_t n, size_t pos,
                 enum qwick_finish *why);

/* Return how many guesses, at most max, can follow a token that is not the last
 * one: guesses beyond the budget or the limit are of no use. n, pos: as for
 * decode_ends; the token is not among the pos tokens. */
size_t decode_most_guesses(const struct decode_rules *r, size_t n, size_t pos,
                           size_t max);

/* Return how many of ids[0..n) come before the first stop id. */
size_t decode_before_stop(const struct decode_rules *r, const int32_t *ids,
                          size_t n);

/* Run the loop until the answer ends. logits belong to the last of the pos
 * tokens that the state holds. The last selected token is not evaluated. The
 * loop never calls forward at position rules.limit or beyond; if on_token goes
 * on there, it fails with QWICK_ERR_CONTEXT.
 *
 * A draft changes neither the rows that select sees, nor their order, nor the
 * tokens that the state holds afterwards, even on failure. The loop never
 * evaluates guesses beyond the limit or the budget, or after a stop id. */
int decode_run(const struct decode_loop *l, const float *logits, size_t pos,
               enum qwick_finish *why, struct qwick_err *e);

#endif
