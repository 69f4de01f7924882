/* Judging given tokens by their log-probabilities: what judge_score.c and
 * judge_choose.c, two tasks of the scheduler, have in common. */
#ifndef ENGINE_JUDGE_H
#define ENGINE_JUDGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/runs/runs.h"

/* Most sequences of a pass. */
enum { JUDGE_RUNS = 64 };

struct judge_run {
    struct run run; /* first */
    int32_t *own;   /* freed with the run, or NULL */
    void *owner;    /* item or prompt of the task */
    size_t pos;     /* of the task */
};

/* A new run at the head of the queue, all zero. NULL: out of memory. */
struct judge_run *judge_queue(struct runs *s, struct qwick_err *e);

/* struct run_task's release of these runs. */
void judge_release(struct runs *s, struct run *r);

/* What their tasks have in common. */
#define JUDGE_TASK \
    .output = QWICK_LOGITS, .want = QWICK_WANT_ALL, .release = judge_release

/* Set what the options say of s, which is open, and let its task queue runs. */
void judge_set_options(struct runs *s, const struct qwick_judge_options *o);

/* The logarithm of the sum of exp over a row, which turns logits into
 * log-probabilities. A row that is not finite is QWICK_ERR_RUNTIME. */
int judge_log_sum(const struct qwick_engine *eng, const float *logits,
                  double *log_sum, struct qwick_err *e);

/* Of one token: never above 0. */
double judge_logprob(const float *logits, double log_sum, int32_t id);

#endif
