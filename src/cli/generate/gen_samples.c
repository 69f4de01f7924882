#include "cli/generate/gen_samples.h"

#include <stdlib.h>

#include "base/clock.h"
#include "cli/answer/answer_log.h"
#include "cli/answer/gen_output.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "cli/io/signals.h"

struct sample {
    size_t number;
    struct gen_output out;
    struct qwick_result r;
    bool ended;
};

struct samples {
    struct gen_job *j;
    struct qwick_batch *batch;
    struct sample *v; /* [n] */
    size_t n;
    size_t n_ended;
    size_t front;  /* the first sample whose output is not complete */
    bool in_order; /* false: the lines of --jsonl name their sample */
    int status;    /* exit status of the first failure, whose message is
                      printed */
    double start_ms;
};

static void keep_status(struct samples *all, int status)
{
    if (!all->status)
        all->status = status;
}

/* Show progress while nothing is printed. */
static void samples_show(const struct samples *all)
{
    char text[100];
    double ms = clock_ms() - all->start_ms;
    if (!progress_due())
        return;
    struct qwick_batch_stats s = qwick_batch_get_stats(all->batch);
    progress_format(text, sizeof(text), "answers", all->n_ended, all->n,
                    progress_left(ms / 1000, all->n_ended, 0, all->n));
    progress_show("%s, %zu at once, %.0f tok/s", text, s.n_live,
                  ms > 0 ? (double)s.n_generated * 1000 / ms : 0.0);
}

/* Print the answers whose turn has come. The first one that has not ended is
 * printed while it is generated. */
static void samples_advance(struct samples *all)
{
    while (all->front < all->n && !all->status) {
        struct sample *s = &all->v[all->front];
        if (all->in_order) {
            gen_output_release(&s->out);
            keep_status(all, s->out.status);
        }
        if (!s->ended || all->status)
            return;
        if (all->in_order)
            keep_status(all, gen_output_json(&s->out, &s->r, NULL));
        all->front++;
    }
}

/* The scheduler's callback for a sample that has ended. */
static int sample_done(void *ctx, void *tag, struct qwick_result *r,
                       const struct qwick_err *why)
{
    struct samples *all = ctx;
    struct sample *s = tag;
    s->ended = true;
    all->n_ended++;
    if (all->status)
        return 1; /* one message is enough */
    if (why) {
        progress_stop();
        keep_status(all, msg_fail(why));
        return 1;
    }
    s->r = *r;
    *r = (struct qwick_result){0};
    if (s->r.finish == QWICK_FINISH_CANCELLED) /* by a signal */
        s->r.finish = QWICK_FINISH_INTERRUPTED;
    keep_status(all, gen_output_end(&s->out, &s->r));
    answer_log_job(all->j, &s->out.sampling, &s->r);
    if (!all->in_order && !all->status)
        keep_status(all, gen_output_json(&s->out, &s->r, NULL));
    samples_advance(all);
    return all->status != 0;
}

static int create_batch(struct samples *all, struct qwick_err *e)
{
    struct gen_job *j = all->j;
    struct qwick_batch_options o = {
        .size = sizeof(o),
        .n_ctx = j->limit,
        .common = j->ids,
        .n_common = j->p->a.prefix_cache.on ? j->n_ids : 0,
        .done = sample_done,
        .done_ctx = all,
        .interrupt = signals_flag(),
    };
    qwick_session_free(j->ses); /* only its limit was needed */
    j->ses = NULL;
    return qwick_batch_create(&all->batch, j->eng, &o, e);
}

/* Prepare and queue all samples. */
static int samples_add(struct samples *all,
                       const struct qwick_sampling *sampling,
                       struct qwick_err *e)
{
    struct gen_job *j = all->j;
    for (size_t i = 0; i < all->n; i++) {
        struct sample *s = &all->v[i];
        s->number = i;
        int status = gen_output_begin(
            &s->out, j, sampling, answer_seed(sampling->seed, i), &s->number);
        if (status) {
            keep_status(all, status);
            return -1;
        }
        s->out.hold = all->in_order && i > 0;
        if (qwick_batch_add(all->batch, j->ids, j->n_ids, &s->out.o, s, e))
            return -1;
    }
    return 0;
}

/* After a signal: end all samples with the text that they have. */
static int samples_cancel(struct samples *all, struct qwick_err *e)
{
    for (size_t i = 0; i < all->n; i++)
        if (!all->v[i].ended && qwick_batch_cancel(all->batch, &all->v[i], e))
            return -1;
    if (!qwick_batch_step(all->batch, e) || e->code == QWICK_ERR_INTERRUPTED)
        return 0;
    return -1;
}

static int samples_work(struct samples *all, struct qwick_err *e)
{
    all->start_ms = clock_ms();
    progress_start("answers");
    while (all->n_ended < all->n && !*signals_flag()) {
        samples_show(all);
        if (qwick_batch_step(all->batch, e) && !*signals_flag())
            return -1;
    }
    return all->n_ended < all->n ? samples_cancel(all, e) : 0;
}

static void note_totals(const struct samples *all)
{
    struct qwick_batch_stats s = qwick_batch_get_stats(all->batch);
    double ms = clock_ms() - all->start_ms;
    msg_note("%zu answers: %llu tokens in %.1f s (%.1f tok/s), %llu evaluated, "
             "%llu shared, %llu passes",
             all->n, (unsigned long long)s.n_generated, ms / 1000,
             ms > 0 ? (double)s.n_generated * 1000 / ms : 0.0,
             (unsigned long long)s.n_evaluated, (unsigned long long)s.n_shared,
             (unsigned long long)s.n_passes);
}

/* The first exit status that is not 0, after a message for each answer that is
 * not good enough. */
static int samples_status(const struct samples *all)
{
    int status = 0;
    for (size_t i = 0; i < all->n; i++) {
        int one = gen_output_status(&all->v[i].out, &all->v[i].r);
        status = status ? status : one;
    }
    return status;
}

static int samples_run(struct samples *all,
                       const struct qwick_sampling *sampling)
{
    struct qwick_err e = {0};
    bool bad = create_batch(all, &e) || samples_add(all, sampling, &e);
    if (!bad) {
        signals_catch();
        bad = samples_work(all, &e) != 0;
    }
    progress_stop();
    if (all->status)
        return all->status;
    if (bad)
        return *signals_flag() ? (int)QWICK_ERR_RUNTIME : msg_fail(&e);
    note_totals(all);
    return samples_status(all);
}

int gen_samples(struct gen_job *j, const struct qwick_sampling *sampling)
{
    struct samples all = {
        .j = j, .n = (size_t)j->p->a.samples, .in_order = !j->p->a.jsonl};
    if (sampling->temperature == 0)
        return opt_usage(j->p->verb,
                         "--samples: has no effect, because the "
                         "model's defaults are greedy; --temp turns "
                         "sampling on");
    all.v = calloc(all.n, sizeof(*all.v));
    if (!all.v)
        return msg_oom();
    int status = samples_run(&all, sampling);
    qwick_batch_free(all.batch);
    for (size_t i = 0; i < all.n; i++) {
        gen_output_free(&all.v[i].out);
        qwick_result_free(&all.v[i].r);
    }
    free(all.v);
    return status;
}
