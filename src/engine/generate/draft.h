/* Guesses of a draft model (Leviathan, Kalman, Matias 2023; Chen et al. 2023):
 * a smaller model with the same tokens says how an answer goes on, and one pass
 * of the target, the model that answers, checks its guesses.
 *
 * The draft model has a session of its own, which follows the target's. It
 * belongs to the target's session and stays there for later answers. It may
 * hold only the end of the context: if the prompt is long, evaluating all of it
 * would cost more than guesses can save. A copy of the target with other
 * weight types (model_is_copy) takes the target's keys and values instead.
 *
 * Answers of a batch guess jointly: their draft sessions share the steps of the
 * draft model.
 *
 * A guess is drawn as the target's sampler would draw it: with the same
 * penalties, filters and constraint. What is accepted depends on the mode:
 *
 *   greedy          the guess is the likeliest token; it is accepted if the
 *   exact           target draws the same token. With exact both draws use the
 *                   same random number, so that answers do not change.
 *   sampled         sampler_draw_guess keeps the target's distribution. The
 *                   number of guesses of a pass may depend on everything but
 *                   the value of the last guess. So a guess that was drawn
 *                   always takes part. */
#ifndef ENGINE_DRAFT_H
#define ENGINE_DRAFT_H

#include "engine/core/engine.h"
#include "engine/generate/draft_budget.h"
#include "engine/generate/generate.h"

/* Guesses for one answer. */
struct draft {
    struct generation *g;     /* the answer */
    struct qwick_engine *eng; /* of the draft model; NULL: it has failed */
    struct draft_budget budget;
    bool shares;   /* takes the target's keys and values */
    size_t agreed; /* tokens of the context that the draft model's session is
                      known to agree with */
    bool settled;  /* budget_settle has been called for the last guesses */
    /* what draft_ask asked for */
    struct qwick_session *target; /* the answer's session */
    int32_t last;                 /* the token after the session's tokens */
    size_t max;                   /* maximum number of guesses */
    size_t behind; /* tokens that the draft model must evaluate first; 0:
                      nothing was asked for */
    bool shared;   /* it takes the other ones from the target */
    /* while draft_run makes guesses */
    bool began; /* the sampler and the guide are ahead of the answer */
    bool going; /* the draft model is at work on guesses */
    bool bad;   /* the last draw failed */
    double sure;            /* see sampler_guess */
    int32_t ids[DRAFT_MAX]; /* the guesses */
    size_t n;               /* how many have a place in the pass */
    size_t n_known;         /* and how many are to be compared with the tokens
                               that are drawn: perhaps one more */
    float *q;         /* [DRAFT_MAX, vocab_size] distributions of the guesses;
                         NULL: draws are compared */
    uint64_t n_draws; /* random numbers used for guesses */
    float *row;       /* [vocab_size] logits in the target's vocabulary; NULL:
                         both vocabularies have the same size */
    int32_t *pending; /* tokens for the draft model's next step */
    size_t n_pending, cap_pending;
    double ms; /* time spent on guesses, if the answer is profiled */
};

/* Prepare guesses for an answer that has begun. eng: the draft model's engine,
 * which the caller has checked (qwick_draft_check). n: tokens of the prompt.
 * Call draft_close also after a failure. */
int draft_open(struct draft *d, struct generation *g, struct qwick_engine *eng,
               size_t n, struct qwick_err *e);
void draft_close(struct draft *d);

/* Ask for guesses after the context of the target's session and token id, which
 * was drawn but is not evaluated. max: maximum number of guesses. The session
 * may be another one than in the last call. */
void draft_ask(struct draft *d, struct qwick_session *target, int32_t id,
               size_t max);

/* Make the guesses of n answers that draft_ask has asked for, in joint steps of
 * their draft model, the same for all. n_pass: answers that the next pass of
 * the target evaluates, at least n. Each d[i]->ids [d[i]->n] then has its
 * guesses, perhaps none. An error of the draft model ends only its guesses: a
 * warning says so. */
void draft_run(struct draft *const *d, size_t n, size_t n_pass);

/* End all guesses of the answer, and free the draft model's session in s, its
 * session (NULL: none). */
void draft_stop(struct draft *d, struct qwick_session *s);

/* Return the bytes of KV cache that a draft model needs for n tokens. */
size_t draft_bytes(const struct qwick_engine *eng, size_t n);

/* Record that the first n_right of the n_known guesses were right. The next
 * one, if there is one, was wrong. */
void draft_settle(struct draft *d, size_t n_right);

/* The distribution from which guess i was drawn. NULL: draws are compared. */
static inline const float *draft_spread(const struct draft *d, size_t i)
{
    return d->q ? d->q + i * d->g->eng->model.config.vocab_size : NULL;
}

#endif
