/* Last hidden states of many token sequences that are known beforehand, in
 * joint passes: what embed.c and rerank.c share; see states.c.
 *
 * Each sequence gets a slot with a session. Sessions are used again: what a new
 * sequence has in common with what is in its slot is not evaluated again. */
#ifndef ENGINE_EMBED_H
#define ENGINE_EMBED_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/engine.h"

struct states_item {
    const int32_t *tokens; /* [n], n >= 1 */
    size_t n;
};

struct states_slot {
    struct qwick_session *session; /* NULL: none so far */
    bool live;
    size_t item;
};

struct states {
    struct qwick_engine *eng;
    size_t n_ctx;               /* resolved */
    struct qwick_session *base; /* sessions begin as forks of it; or NULL */
    struct states_slot *slots;  /* [n_slots] */
    struct qwick_step *steps;   /* [n_slots] */
    size_t *who;                /* [n_slots] slot of each step */
    size_t n_slots;
    size_t kv_limit; /* bytes that all slots may hold; one may have more */
    qwick_progress_fn progress;
    void *progress_ctx;
    const volatile int *interrupt;
};

/* The hidden state f32 [d_model] of item i's last token, after the last norm.
 */
typedef int (*state_fn)(void *ctx, size_t i, const float *hidden,
                        struct qwick_err *e);

/* n_ctx, n_slots 0: the defaults of the public header. The progress and the
 * interrupt are the caller's to set. states_close also after a failure. */
int states_open(struct states *st, struct qwick_engine *eng, size_t n_ctx,
                size_t n_slots, struct qwick_err *e);
void states_close(struct states *st);

/* Have all sessions begin with these tokens, so that they are evaluated now and
 * never again. */
int states_set_base(struct states *st, const int32_t *tokens, size_t n,
                    struct qwick_err *e);

/* Evaluate the items in order; each one's state is handed out once, in no
 * particular order. */
int states_run(struct states *st, const struct states_item *items, size_t n,
               state_fn fn, void *ctx, struct qwick_err *e);

#endif
