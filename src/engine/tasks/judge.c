#include "engine/tasks/judge.h"

#include <math.h>
#include <stdlib.h>

struct judge_run *judge_queue(struct runs *s, struct qwick_err *e)
{
    struct judge_run *r = calloc(1, sizeof *r);
    if (!r) {
        err_oom(e, sizeof *r);
        return NULL;
    }
    runs_push_front(s, &r->run);
    return r;
}

void judge_release(struct runs *s, struct run *run)
{
    struct judge_run *r = (struct judge_run *)run;
    (void)s;
    free(r->own);
    free(r);
}

void judge_set_options(struct runs *s, const struct qwick_judge_options *o)
{
    s->interrupt = o->interrupt;
    s->progress = o->progress;
    s->progress_ctx = o->progress_ctx;
    s->more = true;
}

int judge_log_sum(const struct qwick_engine *eng, const float *logits,
                  double *log_sum, struct qwick_err *e)
{
    const struct kernels *k = eng->model.k;
    size_t n = eng->model.config.vocab_size;
    float max = k->max(logits, n);
    *log_sum = (double)max + log(k->exp_sum(NULL, logits, n, max, 1.0f));
    if (!isfinite(*log_sum))
        return err_set(e, QWICK_ERR_RUNTIME,
                       "logits: not finite: the weights hold NaN, infinities "
                       "or values too large");
    return 0;
}

double judge_logprob(const float *logits, double log_sum, int32_t id)
{
    /* the sum is rounded: the likeliest may come out a hair above */
    return fmin((double)logits[id] - log_sum, 0);
}
