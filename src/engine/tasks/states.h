/* The scheduler's task that makes one vector of the hidden states of each of
 * many sequences; embed.c and rerank.c share it.
 *
 * If only the last token of a decoder counts, a session serves several sequences
 * in turn: the next sequence does not evaluate the tokens that it shares with
 * the beginning of the session. An encoder takes whole sequences: as many of
 * them share a pass as fit, of any lengths. */
#ifndef ENGINE_STATES_H
#define ENGINE_STATES_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/runs/runs.h"
#include "model/pooling.h"

struct states_item {
    const int32_t *tokens; /* [n], n >= 1, else QWICK_ERR_USAGE */
    size_t n;
    size_t n_type0; /* see struct span */
    size_t n_skip;  /* see struct pooled */
};

/* Returns item i of a call. */
typedef struct states_item (*state_item_fn)(void *ctx, size_t i);

/* Receives the pooled states f32 [n, modes.n * d_model], after the last norm, of
 * n items, whose indices are items[0..n). */
typedef int (*state_fn)(void *ctx, const size_t *items, size_t n,
                        const float *vectors, struct qwick_err *e);

/* The state of the task. states_close also accepts a struct of all zeros. */
struct states {
    struct runs runs; /* the caller sets the interrupt and the progress */
    struct run_task task;
    struct pooling_modes modes;
    size_t width;    /* of a vector: modes.n * d_model */
    size_t *ready;   /* [n_ready] of max_live, items that the pass has ended */
    float *vectors;  /* [n_ready, width] */
    size_t n_ready;
    /* of states_begin */
    size_t n, at; /* items; index of the next one to queue */
    state_item_fn item;
    state_fn fn;
    void *ctx;
};

/* Prepare the task. n_ctx, max_batch 0: the defaults of qwick.h. Call
 * states_close also after a failure. *st must not move afterwards. */
int states_open(struct states *st, struct qwick_engine *eng,
                const struct pooling_modes *modes, size_t n_ctx,
                size_t max_batch, struct qwick_err *e);
void states_close(struct states *st);

/* Begin to evaluate n items in order. fn gets the vector of each item once, in
 * no particular order. Items of an earlier call that are not done are
 * dropped. */
void states_begin(struct states *st, size_t n, state_item_fn item, state_fn fn,
                  void *ctx);
/* Run one pass. *more is set to whether another one is needed. */
int states_step(struct states *st, bool *more, struct qwick_err *e);

#endif
