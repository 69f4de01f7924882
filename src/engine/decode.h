/* The decode loop, knowing no model: select a token from logits, hand it out,
 * evaluate it, until an end. */
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
 * pos: tokens that the state holds. */
typedef int (*decode_token_fn)(void *ctx, int32_t id, size_t pos, bool *end,
                               enum qwick_finish *why, struct qwick_err *e);

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
    void *ctx; /* of select and on_token */
};

bool decode_is_stop(const struct decode_rules *r, int32_t id);

/* Whether id, the n-th token chosen while the state holds pos tokens, is the
 * last: a stop id, the budget, or no place left to evaluate it. */
bool decode_ends(const struct decode_rules *r, int32_t id, size_t n, size_t pos,
                 enum qwick_finish *why);

/* From the logits of the last of pos tokens to the end. The token chosen last
 * is not evaluated. No forward is called at a position from rules.limit on:
 * where on_token would go on all the same, that is QWICK_ERR_CONTEXT. */
int decode_run(const struct decode_loop *l, const float *logits, size_t pos,
               enum qwick_finish *why, struct qwick_err *e);

#endif
