/* The scheduler's task that computes the last hidden states of many sequences;
 * embed.c and rerank.c share it. states.c implements it. A session serves
 * several sequences in turn: the next sequence does not evaluate the tokens
 * that it shares with the beginning of the session. */
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

/* Returns item i of a call. */
typedef struct states_item (*state_item_fn)(void *ctx, size_t i);

/* Receives the hidden state f32 [d_model] of item i's last token, after the
 * last norm. */
typedef int (*state_fn)(void *ctx, size_t i, const float *hidden,
                        struct qwick_err *e);

/* The state of the task. states_close also accepts a struct of all zeros. */
struct states {
    struct runs runs; /* the caller sets the interrupt and the progress */
    /* of states_begin */
    size_t n, at; /* items; index of the next one to queue */
    state_item_fn item;
    state_fn fn;
    void *ctx;
};

/* Prepare the task. n_ctx, max_batch 0: the defaults of qwick.h. Call
 * states_close also after a failure. *st must not move afterwards. */
int states_open(struct states *st, struct qwick_engine *eng, size_t n_ctx,
                size_t max_batch, struct qwick_err *e);
void states_close(struct states *st);

/* Begin to evaluate n items in order. fn gets the state of each item once, in
 * no particular order. Items of an earlier call that are not done are
 * dropped. */
void states_begin(struct states *st, size_t n, state_item_fn item, state_fn fn,
                  void *ctx);
/* Run one pass. *more is set to whether another one is needed. */
int states_step(struct states *st, bool *more, struct qwick_err *e);

#endif
