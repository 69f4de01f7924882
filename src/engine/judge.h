/* Evaluating many token sequences that are known beforehand, in joint passes
 * over runs: a run is a session and the tokens to append to it. What the rows
 * of logits mean is the business of judge_score.c and judge_choose.c. */
#ifndef ENGINE_JUDGE_H
#define ENGINE_JUDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/engine.h"

/* Most sequences of a pass. */
enum { JUDGE_RUNS = 64 };

struct judge_run {
    struct judge_run *next;        /* in the queue */
    struct qwick_session *session; /* NULL: gets an empty one */
    const int32_t *tokens;         /* [n] */
    size_t n, at;                  /* tokens, and how many are appended */
    size_t first;                  /* rows are wanted from this token on */
    size_t kv_tokens; /* places that it takes in the KV cache at the end */
    int32_t *own;     /* freed with the run, or NULL */
    void *owner;
    size_t pos; /* the owner's */
};

struct judge;

/* What a kind of work does. All return 0, or -1 with *e set. */
struct judge_work {
    /* Queue one or more runs; *more is false when there is nothing left. */
    int (*next)(struct judge *j, bool *more, struct qwick_err *e);
    /* The logits f32 [vocab_size] that follow token i of the run, i >= first,
     * each once and in order. */
    int (*row)(struct judge *j, struct judge_run *r, size_t i,
               const float *logits, struct qwick_err *e);
    /* The session has all of the run's tokens. Taking the session away (NULL)
     * or forking it for other runs is allowed; with *again the run goes on as
     * it was set anew. */
    int (*done)(struct judge *j, struct judge_run *r, bool *again,
                struct qwick_err *e);
};

struct judge {
    struct qwick_engine *eng;
    const struct qwick_judge_options *o;
    const struct judge_work *work;
    void *ctx;               /* the work's */
    size_t n_total, n_done;  /* of the progress; the work counts n_done */
    struct judge_run *queue; /* taken before next is asked */
    struct judge_run *runs[JUDGE_RUNS];
    size_t n_runs;
    struct qwick_step steps[JUDGE_RUNS];     /* of the present pass */
    struct judge_run *who[JUDGE_RUNS];       /* whose they are */
    struct qwick_session *spare[JUDGE_RUNS]; /* to be used again */
    size_t n_spare;
    size_t kv_tokens, kv_limit; /* of all runs; how many memory has room for */
};

/* Most tokens of a sequence: *o's, or the model's. */
int judge_limit(const struct qwick_engine *eng,
                const struct qwick_judge_options *o, size_t *n_ctx,
                struct qwick_err *e);

/* Do all of the work; eng, o, work, ctx and n_total of *j are set, the rest is
 * zero. */
int judge_run_all(struct judge *j, struct qwick_err *e);

/* A new run at the head of the queue, all zero. NULL: out of memory. */
struct judge_run *judge_queue(struct judge *j, struct qwick_err *e);

/* Log of the sum of exp over a row: what turns logits into log-probabilities.
 * A row that is not finite is QWICK_ERR_RUNTIME. */
int judge_log_sum(const struct judge *j, const float *logits, double *log_sum,
                  struct qwick_err *e);

/* Of one token: never above 0. */
double judge_logprob(const float *logits, double log_sum, int32_t id);

#endif
