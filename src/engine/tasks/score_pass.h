/* Parts that the two judging tasks of the scheduler, score_one.c and
 * choose_one.c, have in common. Judging computes log-probabilities of given
 * tokens. */
#ifndef ENGINE_SCORE_PASS_H
#define ENGINE_SCORE_PASS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/runs/runs.h"
#include "qwick.h"

/* Maximum number of sequences in a pass. */
enum { JUDGE_RUNS = 64 };

struct score_run {
    struct run run; /* first */
    int32_t *own;   /* freed with the run, or NULL */
    void *owner;    /* item or prompt of the task */
    size_t pos;     /* a position or node of the task */
};

/* Create a run of all zeros and put it at the head of the queue. Returns NULL
 * when out of memory. */
struct score_run *score_queue(struct runs *s, struct qwick_err *e);

/* Free a run of these tasks (struct run_task's release). */
void score_release(struct runs *s, struct run *r);

/* Members of struct run_task that both tasks have in common. */
#define JUDGE_TASK \
    .output = QWICK_LOGITS, .rows = QWICK_ROWS_ALL, .release = score_release

/* Apply the options to s, which is open, and let its task queue runs. */
void score_set_options(struct runs *s, const struct qwick_score_options *o);

/* Compute the logarithm of the sum of exp over a row of logits, which turns
 * logits into log-probabilities. QWICK_ERR_RUNTIME if the row is not finite. */
int score_log_sum(const struct qwick_engine *eng, const float *logits,
                  double *log_sum, struct qwick_err *e);

/* Return the log-probability of token id. logits is a row, and log_sum the
 * result of score_log_sum for it. Never above 0. */
double score_logprob(const float *logits, double log_sum, int32_t id);

/* Call fn with the logits f32 [vocab_size] that predict token `at` of item
 * `item`, once for each scored token, after its log-probability is set. Tokens
 * of an item come in order. -1 with *e set fails the scorer. */
typedef int (*score_row_fn)(void *ctx, size_t item, size_t at,
                            const float *logits, struct qwick_err *e);
void scorer_on_row(struct qwick_scorer *s, score_row_fn fn, void *ctx);

#endif
