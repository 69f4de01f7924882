/* The scheduler. It evaluates many sequences of tokens in joint passes over the
 * weights.
 *
 * A run is one sequence to evaluate. It waits in the queue until it is
 * admitted. Then it is live: it has a session, and each pass evaluates some of
 * its tokens. A task (struct run_task) is the kind of work. It supplies the
 * runs and interprets their outputs. There are four: batch.c, score_one.c,
 * choose_one.c, states.c.
 *
 * The scheduler admits runs while memory allows, packs their tokens into
 * passes, evaluates beginnings that runs share only once, and gives memory back
 * when it is short. Then it may also preempt a run: take its cache away and
 * start it again later.
 *
 *     runs.c         queue, sessions, passes
 *     runs_fair.c    which prompts a pass takes, if it is fair
 *     runs_memory.c  memory limits
 *     runs_prefix.c  tokens that a run can take from other runs and from caches
 *
 * A task with QWICK_ROWS_LAST may add guesses to the last token of a run. A
 * pass then gives the outputs of the last token and of its guesses. The run
 * goes on as if each output came from a pass of its own, until a token differs
 * from the guess at its place.
 *
 * With exact, the outputs of a run do not depend on the other runs. */
#ifndef ENGINE_RUNS_H
#define ENGINE_RUNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/core/engine.h"

/* A session and the tokens to append to it. A task embeds this struct as the
 * first member of its own. A struct of all zeros is a run that has not
 * started. */
struct run {
    struct run *next; /* in the queue */
    /* The session that holds the run's cache. NULL before the run starts,
     * unless the task has supplied one, and after the run was preempted. The
     * task may take the session away when the run is done. */
    struct qwick_session *session;
    size_t origin;         /* tokens that the session had before the run's
                              tokens */
    const int32_t *tokens; /* [n], n >= 1, and n_guess guesses after them */
    size_t n, n_guess;
    size_t first;       /* outputs are wanted for tokens[first..n); only in
                           tasks with QWICK_ROWS_ALL */
    size_t n_type0;     /* see struct span */
    size_t lora;        /* adapter + 1; 0: none */
    size_t n_final;     /* number of tokens that the session will probably have
                           when the run ends */
    size_t more_bytes;  /* memory that the caches of a draft model will probably
                           take for the run */
    double deadline_ms; /* end the run when clock_ms reaches this time; 0:
                           never */
    bool cancelled;     /* end the run before the next pass, or in it
                           (runs.poll). Who sets this must also set
                           runs.cancelling */
    bool is_long;       /* it began with many tokens to evaluate; only with
                           runs.fair */
    double rested_ms;   /* time of the passes since the last one with tokens of
                           the run; only with runs.fair */
    size_t n_step;      /* tokens in the current pass */
    bool complete;      /* after the current pass the session has all tokens */
};

struct runs;

/* A kind of work, as callbacks. Callbacks that return int return 0, or -1 with
 * *e set, which stops the scheduler. Each callback says what NULL means. */
struct run_task {
    enum qwick_output output; /* QWICK_LOGITS or QWICK_HIDDEN */
    enum qwick_rows rows;     /* QWICK_ROWS_LAST: the output of a run's last
                                 token; QWICK_ROWS_ALL: of all tokens from
                                 run.first on; QWICK_ROWS_FIRST: of the first
                                 token, only with whole */
    bool whole;   /* all tokens of a run go through one pass: those of a text
                     encoder */
    bool by_row;  /* n_done counts each row, not each run that has ended */
    bool share;   /* runs may take keys and values of their first tokens from
                     other runs and from the engine's prefix caches */
    bool reuse;   /* runs may take over the session of a run that has ended,
                     with the tokens that both begin with */
    bool preempt; /* runs may be preempted */

    /* Called when the queue is empty: queue at least one run, or set runs->more
     * to false. NULL: runs are only queued from outside. */
    int (*next)(struct runs *s, struct qwick_err *e);
    /* Called when a run leaves the queue. Returns true to make it live, false
     * to end it. NULL: it becomes live. */
    bool (*admit)(struct runs *s, struct run *r);
    /* Called when a run got a session, for the first time or after a
     * preemption. NULL: nothing to do. */
    void (*started)(struct runs *s, struct run *r);
    /* Called before a pass is planned: set n_guess of runs that decode
     * (run_decodes), and put guesses after their tokens. Guesses of a pass that
     * failed are still there. NULL: no guesses. */
    void (*guess)(struct runs *s);
    /* Called when memory is short, before a run is preempted or fails: remove
     * guesses, and the caches of the draft models. Returns whether there were
     * any. NULL: no guesses. */
    bool (*give_up_guesses)(struct runs *s);
    /* Handle the outputs of a run: of its last token; with QWICK_ROWS_ALL, of
     * the tokens of the pass. Called on a thread of the pool, at the same time
     * as for other runs. NULL: nothing to do. */
    void (*draw)(struct run *r, const float *row);
    /* Handle the logits f32 [vocab_size] of token i of the run. Called once per
     * token, in order. NULL: nothing to do. */
    int (*row)(struct runs *s, struct run *r, size_t i, const float *row,
               struct qwick_err *e);
    /* Called when the session has all of the run's tokens, and perhaps guesses
     * after them. The task may take the session, or fork it for other runs. It
     * sets *again to true to go on with tokens that it has added; otherwise the
     * run has ended. NULL: the run has ended. */
    int (*done)(struct runs *s, struct run *r, bool *again,
                struct qwick_err *e);
    /* Called when a run ends early. why: the run does not fit memory even
     * alone; why NULL: it was cancelled, or its deadline has passed. NULL in
     * place of this callback: a run that does not fit stops the scheduler, and
     * runs have no deadlines and are never cancelled. */
    void (*fail)(struct runs *s, struct run *r, const struct qwick_err *why);
    /* Called when a run has ended and is not live any more. May queue other
     * runs. NULL: nothing to do. */
    int (*ended)(struct runs *s, struct run *r, struct qwick_err *e);
    /* Free a run, whose session is gone already. When the scheduler stops, runs
     * that have not ended are released as well. */
    void (*release)(struct runs *s, struct run *r);
};

/* How runs share time (runs_fair.c). */
struct fair {
    bool on;               /* off: a pass takes all it can, in order of
                              admission */
    double (*clock)(void); /* clock_ms, or a test's */
    double step_ms;  /* recent time of a pass that only decodes; 0: none */
    double token_ms; /* recent time of a token of a prompt; 0: none */
    double owed_ms;  /* time for passes that only decode */
};

/* A prompt that the next pass may take. */
struct turn {
    size_t live;   /* its number among the live runs */
    size_t n_left; /* tokens that it has left */
    bool is_long;
    size_t n_most; /* maximum number of tokens in the pass */
};

struct runs {
    struct qwick_engine *eng;
    const struct run_task *task;
    void *ctx;             /* context of the task */
    struct kv_cache shape; /* empty; gives the size of a sequence */
    size_t n_ctx;          /* maximum number of tokens in a session */
    size_t lora;           /* of the base, and of runs unless the task has
                              another one for each; see struct run */
    size_t kv_bytes;       /* maximum memory of all sessions; 0: all available
                              memory */
    const volatile int *interrupt; /* NULL: never */
    qwick_progress_fn progress;    /* called after each layer, or NULL */
    void *progress_ctx;
    void (*poll)(void *ctx); /* called after each layer but the last, or NULL.
                                May cancel runs: the pass stops if it is not
                                worth its time without them */
    void *poll_ctx;
    size_t n_done, n_total;     /* for the progress callback; the task counts
                                   them */
    size_t n_reported;          /* of n_done, the callback's last value */
    struct qwick_session *base; /* session with the common beginning (see
                                   runs_set_base), or NULL */

    struct run *first, **last; /* the queue */
    size_t n_waiting;          /* runs in the queue */
    bool more;                 /* task->next may queue more */
    struct run **live;         /* [n_live] of max_live, in order of admission */
    struct run **stepped;      /* [n_steps] runs that the current pass
                                  evaluates */
    struct qwick_step *steps;  /* [n_steps] their steps */
    struct qwick_session **spare; /* [n_spare] of max_live, sessions of ended
                                     runs, to use again */
    struct turn *turns; /* [n_turns] of max_live, in order of preference */
    size_t max_live, n_live, n_steps, n_spare, n_turns;
    size_t n_decoding; /* the first steps of the pass, of runs that decode */
    struct fair fair;
    size_t n_drawn;  /* rows of outputs of the pass that have been drawn from */
    bool hold;       /* admit nothing until a run has ended */
    bool cancelling; /* some run may have cancelled set */
    volatile int stop; /* the current pass must stop; only with poll */
    bool abandoned;    /* the last pass stopped because runs were cancelled */

    uint64_t n_passes, n_evaluated; /* passes, and tokens in them */
    uint64_t n_shared;              /* tokens that runs took from elsewhere */
    uint64_t n_preempted;           /* preemptions */
};

/* Prepare a scheduler. n_ctx: 0 for the model's maximum; QWICK_ERR_CONTEXT if
 * it is larger than that. The caller sets kv_bytes, interrupt, progress and
 * more afterwards. Call runs_close also after a failure. */
int runs_open(struct runs *s, struct qwick_engine *eng,
              const struct run_task *task, void *ctx, size_t n_ctx,
              size_t max_live, struct qwick_err *e);
/* Release runs that have not ended, and all sessions. */
void runs_close(struct runs *s);

/* Return how many rows of outputs a pass may have. If more runs decode, it has
 * more. */
size_t runs_most_rows(const struct runs *s);

/* Evaluate tokens[0..n), a beginning that runs are known to share, before the
 * first run starts. A run that begins with some of these tokens takes their
 * keys and values. Set interrupt before. Call it at most once. */
int runs_set_base(struct runs *s, const int32_t *tokens, size_t n,
                  struct qwick_err *e);

/* runs_set_base in steps: evaluate the next piece of the beginning, at most one
 * chunk. *more is set to whether there is another piece. */
int runs_base_step(struct runs *s, const int32_t *tokens, size_t n, bool *more,
                   struct qwick_err *e);

/* Put a run at the end (back) or the head (front) of the queue, which owns it
 * from now on. */
void runs_push_back(struct runs *s, struct run *r);
void runs_push_front(struct runs *s, struct run *r);

/* Return whether there is a run that has not ended. */
bool runs_pending(const struct runs *s);

/* End cancelled runs, admit runs and evaluate one pass. After
 * QWICK_ERR_INTERRUPTED nothing else has changed, except that sessions with
 * recurrent layers may have lost tokens that the next pass evaluates again. The
 * same holds if the pass stops because runs were cancelled in it; the step then
 * ends these runs and succeeds. */
int runs_step(struct runs *s, struct qwick_err *e);

/* Run steps until no run is left. On failure, runs that have not ended are
 * released. */
int runs_all(struct runs *s, struct qwick_err *e);

/* Release the runs that have not ended, and queue no more. */
void runs_drop(struct runs *s);

/* Return the number of the run's tokens that are not evaluated yet. */
static inline size_t run_pending(const struct run *r)
{
    return r->n - (r->session ? r->session->kv.n - r->origin : 0);
}

/* Return whether the run decodes: only its last token is not evaluated yet. */
static inline bool run_decodes(const struct run *r)
{
    return r->session && run_pending(r) == 1;
}

/* Return whether the run's step belongs to the part of a pass that decodes. */
static inline bool runs_decodes(const struct runs *s, const struct run *r)
{
    return s->task->rows == QWICK_ROWS_LAST && run_decodes(r);
}

/* ---- runs_fair.c ---- */

/* Set the turns to the prompts that the pass takes, and lower *budget, the
 * number of tokens that it may have besides the steps that are planned. */
void fair_plan(struct runs *s, size_t *budget);

/* Take notice of a pass that took ms, before its outputs are used. */
void fair_account(struct runs *s, double ms);

/* ---- runs_prefix.c ---- */

/* Return how many tokens at the beginning of r, its last token excluded, have
 * their keys and values in memory. *from is the session of a live run that has
 * them; it is NULL if the engine's prefix cache in memory has more of them. */
size_t runs_find(const struct runs *s, const struct run *r,
                 const struct qwick_session **from);

/* Return whether live run i should wait in this pass, because a live run before
 * it is about to evaluate the same tokens. */
bool runs_worth_waiting(const struct runs *s, size_t i);

/* Fill the run's new session from the session that runs_find returns in *from,
 * and from the engine's prefix caches. */
int runs_share(struct runs *s, struct run *r, struct qwick_err *e);

/* Return the length of the common beginning of a and b. */
size_t tokens_in_common(const int32_t *a, size_t n_a, const int32_t *b,
                        size_t n_b);

/* ---- runs_memory.c ---- */

/* Return the bytes of the caches of live runs. Pages that runs share count in
 * parts. */
size_t runs_used_bytes(const struct runs *s);

/* Return whether r may become live: whether r and the live runs fit memory at
 * their probable lengths. Gives memory back to make room. */
bool runs_admits(struct runs *s, const struct run *r);

/* Give memory back: first spare sessions, then half of the engine's prefix
 * cache in memory. Returns false if there is nothing left to give back. */
bool runs_give_back(struct runs *s);

/* Return whether all live runs fit memory at their probable lengths. */
bool runs_fit(const struct runs *s);

/* Return -1 with QWICK_ERR_MEMORY if the keys and values of n tokens need more
 * than kv_bytes. */
int runs_check_length(const struct runs *s, size_t n, struct qwick_err *e);

/* Return -1 with QWICK_ERR_MEMORY if the planned pass needs more than
 * kv_bytes. */
int runs_check_memory(struct runs *s, struct qwick_err *e);

#endif
