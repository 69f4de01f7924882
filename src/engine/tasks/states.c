#include <stdlib.h>

#include "engine/tasks/embed.h"

enum { DEFAULT_BATCH = 64 };

struct states_run {
    struct run run; /* first */
    size_t item;
};

static int next(struct runs *s, struct qwick_err *e)
{
    struct states *st = s->ctx;
    s->more = st->at < st->n;
    if (!s->more)
        return 0;
    const struct states_item item = st->item(st->ctx, st->at);
    if (item.n == 0)
        return err_set(e, QWICK_ERR_USAGE, "prompt: has no tokens");
    struct states_run *r = calloc(1, sizeof *r);
    if (!r)
        return err_oom(e, sizeof *r);
    r->run.tokens = item.tokens;
    r->run.n = r->run.n_final = item.n;
    r->item = st->at++;
    runs_push_back(s, &r->run);
    return 0;
}

static int row(struct runs *s, struct run *run, size_t i, const float *hidden,
               struct qwick_err *e)
{
    const struct states *st = s->ctx;
    const struct states_run *r = (struct states_run *)run;
    (void)i;
    s->n_done += run->n;
    return st->fn(st->ctx, r->item, hidden, e);
}

static void release_run(struct runs *s, struct run *run)
{
    (void)s;
    free(run);
}

static const struct run_task task = {.output = QWICK_HIDDEN,
                                     .rows = QWICK_ROWS_LAST,
                                     .reuse = true,
                                     .preempt = true,
                                     .next = next,
                                     .row = row,
                                     .release = release_run};

int states_open(struct states *st, struct qwick_engine *eng, size_t n_ctx,
                size_t max_batch, struct qwick_err *e)
{
    *st = (struct states){0};
    return runs_open(&st->runs, eng, &task, st, n_ctx,
                     max_batch ? max_batch : DEFAULT_BATCH, e);
}

void states_close(struct states *st)
{
    runs_close(&st->runs);
    *st = (struct states){0};
}

void states_begin(struct states *st, size_t n, state_item_fn item, state_fn fn,
                  void *ctx)
{
    struct runs *s = &st->runs;
    runs_drop(s);
    st->n = n;
    st->at = 0;
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
    if (runs_step(&st->runs, e))
        return -1;
    *more = runs_pending(&st->runs);
    return 0;
}
