/* The decode loop, knowing no model: select a token from logits, hand it out,
 * evaluate it, until an end. Where somebody guesses what comes next, guesses
 * are evaluated with it, and kept as far as they are what is then selected. */
#ifndef ENGINE_DECODE_H
#define ENGINE_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Evaluate one token at position pos of the state, which holds pos tokens.
 * *logits: of the token, valid until the next call. */
typedef int (*decode_forward_fn)(void *state, int32_t token, size_t pos,
                                 const float **logits, struct qwick_err *e);

/* Choose a token. */
typedef int (*decode_select_fn)(void *ctx, const float *logits, int32_t *id,
                                struct qwick_err *e);

/* A token was chosen, the stop token as well. *end: whether it is the last one
 * and *why, as the rules say; the callback may end it for reasons of its own.
 * pos: tokens before it, which the state holds; with a draft behind them, maybe
 * guesses that are not decided upon. */
typedef int (*decode_token_fn)(void *ctx, int32_t id, size_t pos, bool *end,
                               enum qwick_finish *why, struct qwick_err *e);

/* Evaluate tokens[0..n), n >= 1, jointly at positions pos, pos + 1, … of the
 * state, which holds pos tokens. *rows: logits of each, `stride` floats apart,
 * valid until the next call. */
typedef int (*decode_forward_all_fn)(void *state, const int32_t *tokens,
                                     size_t n, size_t pos, const float **rows,
                                     struct qwick_err *e);

/* Drop all but the first n tokens of the state: some of those that the last
 * pass evaluated, never all. */
typedef void (*decode_keep_fn)(void *state, size_t n);

/* Guess what follows the token chosen last: *n of at most max >= 1 tokens to
 * drafts. */
typedef int (*decode_guess_fn)(void *ctx, int32_t *drafts, size_t max,
                               size_t *n, struct qwick_err *e);

/* Guesses, and what became of them. */
struct decode_draft {
    decode_guess_fn guess; /* its ctx is the loop's */
    decode_forward_all_fn forward_all;
    decode_keep_fn keep;
    size_t stride;
    int32_t *tokens;            /* [1 + max] room for a pass */
    size_t max;                 /* most guesses of a pass */
    size_t n_passes, n_drafted; /* out: passes with guesses; these, */
    size_t n_accepted;          /* and those kept: passes saved */
};

/* What ends a sequence, as far as ids and lengths tell. */
struct decode_rules {
    const int32_t *stop_ids; /* [n_stop_ids] */
    size_t n_stop_ids;
    size_t budget; /* tokens chosen, 0: any number */
    size_t limit;  /* positions that the state can hold */
};

struct decode_loop {
    struct decode_rules rules;
    decode_forward_fn forward;
    void *state;
    decode_select_fn select;
    decode_token_fn on_token;
    void *ctx;                  /* of select and on_token */
    struct decode_draft *draft; /* NULL: one token a pass */
};

bool decode_is_stop(const struct decode_rules *r, int32_t id);

/* Whether id, the n-th token chosen while the state holds pos tokens, is the
 * last: a stop id, the budget, or no place left to evaluate it. */
bool decode_ends(const struct decode_rules *r, int32_t id, size_t n, size_t pos,
                 enum qwick_finish *why);

/* From the logits of the last of pos tokens to the end. The token chosen last
 * is not evaluated. No forward is called at a position from rules.limit on:
 * where on_token would go on all the same, that is QWICK_ERR_CONTEXT.
 *
 * With a draft, select sees the same rows in the same order, one for each token
 * that is chosen; afterwards, on failure too, the state holds what it would
 * without. Nothing is guessed that could not be kept: beyond the limit or the
 * budget, or from a stop id on. */
int decode_run(const struct decode_loop *l, const float *logits, size_t pos,
               enum qwick_finish *why, struct qwick_err *e);

#endif
