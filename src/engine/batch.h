/* The scheduler's state, shared by its files: batch.c runs passes,
 * batch_prefix.c finds what a new sequence can take from others,
 * batch_memory.c keeps all of them within the memory. */
#ifndef ENGINE_BATCH_H
#define ENGINE_BATCH_H

#include "engine/generate.h"

/* Sessions of ended sequences that are kept for those to come. */
#define BATCH_KEPT 8

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

struct kept {
    struct qwick_session *session;
    uint64_t used; /* when it last gave something */
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
    struct kept kept[BATCH_KEPT];
    size_t n_kept;
    uint64_t clock; /* of kept.used */
    struct qwick_batch_stats stats;
};

/* Tokens of the sequence that are not evaluated. */
static inline size_t seq_pending(const struct seq *q)
{
    return q->n - (q->session ? q->session->kv.n : 0);
}

/* ---- batch_prefix.c ---- */

/* Tokens at the beginning of q, its last one excluded, that are evaluated in a
 * session; *from is it, NULL for none. */
size_t prefix_find(struct qwick_batch *b, const struct seq *q,
                   struct qwick_session **from);

/* Whether q, live number i, does better to wait: sequences before it are about
 * to evaluate what it would have to. */
bool prefix_worth_waiting(struct qwick_batch *b, size_t i);

/* A session for q that begins with what others have evaluated. */
int prefix_start(struct qwick_batch *b, struct seq *q, struct qwick_err *e);

/* Take the session of an ended sequence. */
void prefix_keep(struct qwick_batch *b, struct qwick_session *s);

/* Free the session that has been of no use for longest. False: there is none.
 */
bool prefix_drop(struct qwick_batch *b);

/* ---- batch_memory.c ---- */

/* Whether q may become live beside those that are, by what they all will need
 * as far as that is known. Gives up kept sessions for it. */
bool memory_admits(struct qwick_batch *b, const struct seq *q);

/* QWICK_ERR_MEMORY when the planned pass needs more than o.kv_bytes. */
int memory_check(struct qwick_batch *b, struct qwick_err *e);

#endif
