/* The scheduler's state, shared by its files: batch.c runs passes,
 * batch_prefix.c finds what a sequence need not evaluate and keeps what others
 * will not have to, batch_memory.c keeps all of them within the memory. */
#ifndef ENGINE_BATCH_H
#define ENGINE_BATCH_H

#include "engine/generate.h"

/* One request. What its session has not evaluated yet of ids is to be done: a
 * prompt in pieces, then each newest token; all of it again after its cache was
 * lost. */
struct seq {
    struct seq *next; /* in the queue */
    void *tag;
    struct qwick_generate_options o;
    int32_t *ids; /* [cap] the prompt, then the answer */
    size_t n, n_prompt, cap;
    struct qwick_session *session; /* NULL: not started */
    bool begun;                    /* g is */
    bool cancelled;                /* ends before the next pass */
    struct generation g;
    struct qwick_result r;
    double start_ms; /* 0: no pass yet */
    /* of the running pass */
    size_t n_step;
    bool draws; /* the pass has its last token */
    int32_t drawn;
    bool failed;
    struct qwick_err e;
};

struct qwick_batch {
    struct qwick_engine *eng;
    struct qwick_batch_options o;
    size_t limit;             /* context of each sequence */
    struct seq **live;        /* [n_live] of max_batch, in order of admission */
    struct qwick_step *steps; /* [n_steps] of max_batch */
    struct seq **stepped;
    size_t n_live, n_steps, n_waiting;
    struct seq *first, **last; /* the queue */
    bool hold;                 /* admit nothing until a sequence has ended */
    bool cancelling;           /* a sequence may be cancelled */
    /* What prompts are compared with for what goes to disk: o.common, then
       the first prompt that begins so. NULL: nothing goes there. */
    int32_t *like; /* [n_like] */
    size_t n_like;
    bool like_prompt; /* it is a prompt */
    size_t n_stored;  /* tokens of it that are on disk; SIZE_MAX: no more are
                         to be */
    struct qwick_batch_stats stats;
};

/* Tokens of the sequence that are not evaluated. */
static inline size_t seq_pending(const struct seq *q)
{
    return q->n - (q->session ? q->session->kv.n : 0);
}

/* ---- batch_prefix.c ---- */

/* Tokens at the beginning of q, its last one excluded, whose keys and values
 * are in memory: in the session *from of a live sequence, or, where that has no
 * more, in the engine's prefix cache, *from being NULL. */
size_t prefix_find(const struct qwick_batch *b, const struct seq *q,
                   const struct qwick_session **from);

/* Whether q, live number i, does better to wait: sequences before it are about
 * to evaluate what it would have to. */
bool prefix_worth_waiting(const struct qwick_batch *b, size_t i);

/* A session for q that begins with what is evaluated: by live sequences, in the
 * engine's prefix caches. */
int prefix_start(struct qwick_batch *b, struct seq *q, struct qwick_err *e);

/* A prompt has come, or o.common: the first one is what others are compared
 * with. */
int prefix_like(struct qwick_batch *b, const int32_t *tokens, size_t n,
                struct qwick_err *e);

/* The prompt of q has been evaluated: keep it in the engine's cache in memory,
 * and on disk what others begin with, too. */
void prefix_keep(struct qwick_batch *b, const struct seq *q);

/* A sequence has ended: the cache in memory gets all that its session has, to
 * the token, the answer too: a chat may go on from there. */
void prefix_leave(struct qwick_batch *b, const struct qwick_session *s);

/* ---- batch_memory.c ---- */

/* Whether q may become live beside those that are, by what they all will need
 * as far as that is known. Shrinks the prefix cache for it. */
bool memory_admits(struct qwick_batch *b, const struct seq *q);

/* Give back half of what the engine's prefix cache has in memory. False: it has
 * nothing. */
bool memory_give_back(struct qwick_batch *b);

/* QWICK_ERR_MEMORY when the planned pass needs more than o.kv_bytes. */
int memory_check(struct qwick_batch *b, struct qwick_err *e);

#endif
