#include "engine/tasks/states.h"

#include <stdlib.h>
#include <string.h>

enum { DEFAULT_BATCH = 64 };

struct states_run {
    struct run run; /* first */
    const struct states *st;
    size_t item;
    size_t at; /* tokens whose states have been added */
    struct pooled sums;
    double acc[]; /* of sums: [width] */
};

static int states_next(struct runs *s, struct qwick_err *e)
{
    struct states *st = s->ctx;
    s->more = st->at < st->n;
    if (!s->more)
        return 0;
    const struct states_item item = st->item(st->ctx, st->at);
    if (item.n == 0)
        return err_set(e, QWICK_ERR_USAGE, "prompt: has no tokens");
    struct states_run *r = calloc(1, sizeof *r + st->width * sizeof *r->acc);
    if (!r)
        return err_oom(e, sizeof *r + st->width * sizeof *r->acc);
    r->run.tokens = item.tokens;
    r->run.n = r->run.n_final = item.n;
    r->run.n_type0 = item.n_type0;
    r->run.lora = s->lora;
    r->sums = (struct pooled){item.n, item.n_skip, r->acc};
    r->st = st;
    r->item = st->at++;
    runs_push_back(s, &r->run);
    return 0;
}

/* A run that was preempted begins again. */
static void states_started(struct runs *s, struct run *run)
{
    struct states_run *r = (struct states_run *)run;
    (void)s;
    r->at = 0;
    memset(r->acc, 0, r->st->width * sizeof *r->acc);
}

/* Add the states of a pass. After a pass that was stopped, a recurrent layer
 * may have gone back, so that some tokens come again. */
static void states_draw(struct run *run, const float *rows)
{
    struct states_run *r = (struct states_run *)run;
    const struct states *st = r->st;
    size_t d = st->width / st->modes.n, at = r->at, n = 1;
    size_t end = run->n - run_pending(run), first = end - run->n_step;
    if (st->task.rows == QWICK_ROWS_LAST)
        at = end - 1;
    else if (st->task.rows == QWICK_ROWS_ALL)
        n = end - at;
    if (st->task.rows == QWICK_ROWS_ALL)
        rows += (at - first) * d;
    pooling_add(&st->modes, &r->sums, d, rows, at, n);
    r->at = end;
}

static int states_done(struct runs *s, struct run *run, bool *again,
                       struct qwick_err *e)
{
    struct states *st = s->ctx;
    const struct states_run *r = (struct states_run *)run;
    (void)again;
    (void)e;
    s->n_done += run->n;
    pooling_finish(&st->modes, &r->sums, st->width / st->modes.n,
                   st->vectors + st->n_ready * st->width);
    st->ready[st->n_ready++] = r->item;
    return 0;
}

static void states_release(struct runs *s, struct run *run)
{
    (void)s;
    free(run);
}

static const enum qwick_rows rows_of[] = {[ROWS_NONE] = QWICK_ROWS_NONE,
                                          [ROWS_FIRST] = QWICK_ROWS_FIRST,
                                          [ROWS_LAST] = QWICK_ROWS_LAST,
                                          [ROWS_ALL] = QWICK_ROWS_ALL};

int states_open(struct states *st, struct qwick_engine *eng,
                const struct pooling_modes *modes, size_t n_ctx,
                size_t max_batch, struct qwick_err *e)
{
    const struct config *c = &eng->model.config;
    enum span_rows rows = pooling_rows(modes, c->bidirectional);
    size_t most = max_batch ? max_batch : DEFAULT_BATCH;
    *st = (struct states){.modes = *modes, .width = modes->n * c->d_model};
    st->task =
        (struct run_task){.output = QWICK_HIDDEN,
                          .rows = rows_of[rows],
                          .whole = c->bidirectional,
                          .reuse = rows == ROWS_LAST && !c->bidirectional,
                          .preempt = true,
                          .next = states_next,
                          .started = states_started,
                          .draw = states_draw,
                          .done = states_done,
                          .release = states_release};
    if (runs_open(&st->runs, eng, &st->task, st, n_ctx, most, e))
        return -1;
    st->ready = calloc(most, sizeof *st->ready);
    st->vectors = calloc(most, st->width * sizeof *st->vectors);
    return st->ready && st->vectors
               ? 0
               : err_oom(e, most * st->width * sizeof *st->vectors);
}

void states_close(struct states *st)
{
    runs_close(&st->runs);
    free(st->ready);
    free(st->vectors);
    *st = (struct states){0};
}

void states_begin(struct states *st, size_t n, state_item_fn item, state_fn fn,
                  void *ctx)
{
    struct runs *s = &st->runs;
    runs_drop(s);
    s->lora = s->eng->own_lora;
    st->n = n;
    st->at = st->n_ready = 0;
    st->item = item;
    st->fn = fn;
    st->ctx = ctx;
    s->n_done = s->n_total = s->n_reported = 0;
    for (size_t i = 0; i < n; i++)
        s->n_total += item(ctx, i).n;
    s->more = true;
}

int states_step(struct states *st, bool *more, struct qwick_err *e)
{
    st->n_ready = 0;
    if (runs_step(&st->runs, e) ||
        (st->n_ready &&
         st->fn(st->ctx, st->ready, st->n_ready, st->vectors, e)))
        return -1;
    *more = runs_pending(&st->runs);
    return 0;
}
