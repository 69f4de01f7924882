/* A task of the scheduler: answers to many prompts. batch.c turns outputs into
 * tokens, batch_keep.c keeps what requests share for later ones. */
#ifndef ENGINE_BATCH_H
#define ENGINE_BATCH_H

#include "engine/generate/generate.h"
#include "engine/runs/runs.h"

/* One request. run.tokens are ids: the prompt, then the answer. */
struct seq {
    struct run run; /* first */
    void *tag;
    struct qwick_generate_options o;
    int32_t *ids; /* [cap], run.n of them in use */
    size_t n_prompt, cap;
    bool begun; /* g is */
    struct generation g;
    struct qwick_result r;
    double start_ms; /* 0: no pass yet */
    int32_t drawn;   /* in the present pass */
    bool failed;     /* e says why */
    struct qwick_err e;
};

struct qwick_batch {
    struct runs runs;
    struct qwick_batch_options o;
    /* Prompts are compared with `like` to find what goes to disk: o.common,
       then the first prompt that begins with it. NULL: nothing goes there. */
    int32_t *like; /* [n_like] */
    size_t n_like;
    bool like_prompt; /* it is a prompt */
    size_t n_stored;  /* tokens of it that are on disk; SIZE_MAX: store no more
                       */
    uint64_t n_generated;
};

/* ---- batch_keep.c ---- */

/* A prompt has come, or o.common: the first one is what others are compared
 * with. */
int batch_note_prompt(struct qwick_batch *b, const int32_t *tokens, size_t n,
                      struct qwick_err *e);

/* The prompt of q has been evaluated: put it into the engine's cache in memory,
 * and the beginning that it shares with other prompts on disk. */
void batch_keep_prompt(struct qwick_batch *b, const struct seq *q);

/* A sequence has ended: put all that its session has into the cache in memory,
 * to the token, because a chat may go on after the answer. */
void batch_keep_answer(struct qwick_batch *b, const struct qwick_session *s);

#endif
