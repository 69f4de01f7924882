#include "engine/tasks/score_pass.h"

#include <math.h>
#include <stdlib.h>

struct score_run *score_queue(struct runs *s, struct qwick_err *e)
{
    struct score_run *r = calloc(1, sizeof *r);
    if (!r) {
        err_oom(e, sizeof *r);
        return NULL;
    }
    r->run.lora = s->lora;
    runs_push_front(s, &r->run);
    return r;
}

void score_release(struct runs *s, struct run *run)
{
    struct score_run *r = (struct score_run *)run;
    (void)s;
    free(r->own);
    free(r);
}

void score_set_options(struct runs *s, const struct qwick_score_options *o)
{
    s->interrupt = o->interrupt;
    s->progress = o->progress;
    s->progress_ctx = o->progress_ctx;
    s->more = true;
}

int score_log_sum(const struct qwick_engine *eng, const float *logits,
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

double score_logprob(const float *logits, double log_sum, int32_t id)
{
    /* the sum is rounded: the likeliest may come out a hair above */
    return fmin((double)logits[id] - log_sum, 0);
}
