/* The scheduler. It evaluates many sequences of tokens in joint passes over the
 * weights: it admits sequences while memory allows, packs their tokens into
 * passes, shares what several of them begin with, and gives memory back when it
 * is short. A task (struct run_task) interprets the outputs: batch.c,
 * judge_score.c, judge_choose.c, states.c.
 *
 *     runs.c         queue, sessions, passes
 *     runs_memory.c  memory limits
 *     runs_prefix.c  tokens that a run can take from others
 *
 * With exact, the outputs of a run do not depend on the other runs. */
#ifndef ENGINE_RUNS_H
#define ENGINE_RUNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/core/engine.h"

/* A session and the tokens to append to it. Tasks embed it as the first member
 * of their own struct. All zeros is a run that has not started. */
struct run {
    struct run *next; /* in the queue */
    /* NULL: the run has not started, or has lost its cache and starts again. A
       task may set it before the run starts, and take it away when the run is
       done. */
    struct qwick_session *session;
    size_t origin;         /* tokens that the session has before the run's */
    const int32_t *tokens; /* [n], n >= 1 */
    size_t n;
    size_t first;       /* outputs are wanted from this token on; only for tasks
                           with QWICK_WANT_ALL */
    size_t n_final;     /* tokens that the session will probably have at the
                           end */
    double deadline_ms; /* end the run at this time of clock_ms; 0: never */
    bool cancelled;     /* end the run before the next pass; set
                           runs.cancelling, too */
    size_t n_step;      /* tokens in the current pass */
    bool complete;      /* after the current pass the session has all tokens */
};

struct runs;

/* The callbacks of a kind of work. Functions that return int return 0, or -1
 * with *e set, which stops the scheduler. The meaning of NULL is given for each
 * member. */
struct run_task {
    enum qwick_output output; /* QWICK_LOGITS or QWICK_HIDDEN */
    enum qwick_want want;     /* QWICK_WANT_LAST: of a run's last token;
                                 QWICK_WANT_ALL: from run.first on, logits only */
    bool share;   /* runs may take keys and values of their first tokens from
                     other runs and from the engine's prefix caches */
    bool reuse;   /* runs may take them from the session of an earlier run */
    bool preempt; /* a run may lose its cache to others and start again */

    /* The queue is empty: queue at least one run, or set runs->more to false.
     * NULL: runs are only queued from outside. */
    int (*next)(struct runs *s, struct qwick_err *e);
    /* A run leaves the queue. True: it becomes live. False: it has ended. NULL:
     * nothing to do. */
    bool (*admit)(struct runs *s, struct run *r);
    /* The run got a session, for the first time or again. NULL: nothing to
     * do. */
    void (*started)(struct runs *s, struct run *r);
    /* Handle the output of a run's last token. Called on a thread of the pool,
     * in parallel with other runs. NULL: nothing to do. */
    void (*draw)(struct run *r, const float *row);
    /* Handle the output f32 [vocab_size] or [d_model] of token i of the run.
     * Called once per token, in order. NULL: nothing to do. */
    int (*row)(struct runs *s, struct run *r, size_t i, const float *row,
               struct qwick_err *e);
    /* The session has all of the run's tokens. The task may take the session,
     * or fork it for other runs. *again = true: the run goes on with the tokens
     * that the task has set; otherwise it has ended. NULL: it has ended. */
    int (*done)(struct runs *s, struct run *r, bool *again,
                struct qwick_err *e);
    /* The run ends early. why: it does not fit the memory even alone; why NULL:
     * it was cancelled or its deadline has passed. NULL: a run that does not
     * fit stops the scheduler, and runs have no deadlines and are not
     * cancelled. */
    void (*fail)(struct runs *s, struct run *r, const struct qwick_err *why);
    /* The run has ended and is not live any more. May queue other runs. NULL:
     * nothing to do. */
    int (*ended)(struct runs *s, struct run *r, struct qwick_err *e);
    /* Free the run, whose session is gone. When the scheduler stops, runs that
     * have not ended are released as well. */
    void (*release)(struct runs *s, struct run *r);
};

struct runs {
    struct qwick_engine *eng;
    const struct run_task *task;
    void *ctx;       /* context of the task */
    size_t n_ctx;    /* most tokens of a session */
    size_t kv_bytes; /* most memory of all sessions; 0: all available memory */
    const volatile int *interrupt; /* NULL: never */
    qwick_progress_fn progress;    /* called after each pass, or NULL */
    void *progress_ctx;
    size_t n_done, n_total;     /* for the progress; the task counts them */
    struct qwick_session *base; /* see runs_set_base; or NULL */

    struct run *first, **last; /* the queue */
    size_t n_waiting;          /* runs in the queue */
    bool more;                 /* task->next may queue more */
    struct run **live;         /* [n_live] of max_live, in order of admission */
    struct run **stepped;      /* [n_steps] runs of the current pass */
    struct qwick_step *steps;  /* [n_steps] */
    struct qwick_session **spare; /* [n_spare] of max_live, sessions to use
                                     again */
    size_t max_live, n_live, n_steps, n_spare;
    bool hold;       /* admit nothing until a run has ended */
    bool cancelling; /* a run may be cancelled */

    uint64_t n_passes, n_evaluated; /* passes, and tokens in them */
    uint64_t n_shared;              /* tokens that runs did not evaluate */
    uint64_t n_preempted; /* times that a run lost its cache to others */
};

/* n_ctx: 0 for the model's maximum; a larger number: QWICK_ERR_CONTEXT. The
 * caller sets kv_bytes, interrupt, progress and more afterwards. Call
 * runs_close also after a failure. */
int runs_open(struct runs *s, struct qwick_engine *eng,
              const struct run_task *task, void *ctx, size_t n_ctx,
              size_t max_live, struct qwick_err *e);
/* Releases runs that have not ended. */
void runs_close(struct runs *s);

/* Evaluate tokens[0..n), the common beginning of runs, before the first run
 * starts. Runs then take the keys and values of the tokens that they share with
 * it. Set interrupt before. Call it at most once. */
int runs_set_base(struct runs *s, const int32_t *tokens, size_t n,
                  struct qwick_err *e);

/* Put a run at the end (the head) of the queue, which owns it from now on. */
void runs_push_back(struct runs *s, struct run *r);
void runs_push_front(struct runs *s, struct run *r);

/* Whether there is a run that has not ended. */
bool runs_pending(const struct runs *s);

/* Admit runs and evaluate one pass. QWICK_ERR_INTERRUPTED: nothing has changed.
 */
int runs_step(struct runs *s, struct qwick_err *e);

/* Step until no run is left. On failure, runs that have not ended are released.
 */
int runs_all(struct runs *s, struct qwick_err *e);

/* Tokens of the run that are not evaluated. */
static inline size_t run_pending(const struct run *r)
{
    return r->n - (r->session ? r->session->kv.n - r->origin : 0);
}

/* Give the run a session that already has all tokens available elsewhere. */
int runs_start(struct runs *s, struct run *r, struct qwick_err *e);

/* ---- runs_prefix.c ---- */

/* Tokens at the beginning of r, its last one excluded, whose keys and values
 * are in memory: in the session *from of a live run, or in the engine's prefix
 * cache if it has more; then *from is NULL. */
size_t runs_find(const struct runs *s, const struct run *r,
                 const struct qwick_session **from);

/* Whether live run i should wait, because a run before it is about to evaluate
 * the same tokens. */
bool runs_worth_waiting(const struct runs *s, size_t i);

/* Fill the run's new session from the session that runs_find names and from
 * the engine's prefix caches. */
int runs_share(struct runs *s, struct run *r, struct qwick_err *e);

/* Length of the common beginning of a and b. */
size_t tokens_in_common(const int32_t *a, size_t n_a, const int32_t *b,
                        size_t n_b);

/* ---- runs_memory.c ---- */

/* Whether r may become live: whether it and the live runs fit the memory at
 * their probable lengths. Gives memory back to make room. */
bool runs_admits(struct runs *s, const struct run *r);

/* Give memory back: spare sessions, then half of the engine's prefix cache in
 * memory. False: nothing is left to give. */
bool runs_give_back(struct runs *s);

/* QWICK_ERR_MEMORY if the planned pass needs more than kv_bytes. */
int runs_check_memory(struct runs *s, struct qwick_err *e);

#endif
