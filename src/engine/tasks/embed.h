/* Last hidden states of many token sequences, in joint passes: a task of the
 * scheduler that embed.c and rerank.c share; see states.c. Sessions are used
 * again: a new sequence does not evaluate the tokens that it has in common with
 * what an earlier one left. */
#ifndef ENGINE_EMBED_H
#define ENGINE_EMBED_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/runs/runs.h"

struct states_item {
    const int32_t *tokens; /* [n], n >= 1, else QWICK_ERR_USAGE */
    size_t n;
};

/* Item i of a call. */
typedef struct states_item (*state_item_fn)(void *ctx, size_t i);

/* The hidden state f32 [d_model] of item i's last token, after the last norm.
 */
typedef int (*state_fn)(void *ctx, size_t i, const float *hidden,
                        struct qwick_err *e);

/* Zeros: states_close may be called. */
struct states {
    struct runs runs; /* the caller sets the interrupt and the progress */
    /* of the present call of states_run */
    size_t n, at; /* items; the next one to queue */
    state_item_fn item;
    state_fn fn;
    void *ctx;
};

/* n_ctx, max_batch 0: the defaults of the public header. Call states_close also
 * after a failure. st does not move afterwards. */
int states_open(struct states *st, struct qwick_engine *eng, size_t n_ctx,
                size_t max_batch, struct qwick_err *e);
void states_close(struct states *st);

/* Evaluate n items in order. fn gets the state of each item once, in no
 * particular order. */
int states_run(struct states *st, size_t n, state_item_fn item, state_fn fn,
               void *ctx, struct qwick_err *e);

#endif
