/* Log-probabilities of given tokens, in windows. */
#include <stdlib.h>

#include "base/buf.h"
#include "engine/core/options.h"
#include "engine/generate/sampler.h"
#include "engine/tasks/score_pass.h"

struct qwick_scorer {
    struct runs runs;
    struct qwick_score_item *items;
    size_t n_items, at; /* the next item */
    size_t window, stride;
    qwick_score_fn on_score; /* NULL: not called */
    void *on_score_ctx;
    score_row_fn on_row; /* NULL: not called */
    void *on_row_ctx;
    struct qwick_logprob *top; /* [n_top] */
    int32_t *ids;              /* [n_top] */
    size_t n_top;
};

size_t qwick_score_first(const struct qwick_score_item *it)
{
    return it->n_given ? it->n_given : 1;
}

/* The window that ends at `end` evaluates tokens [begin, end - 1) of the item,
 * whose rows from `scored - 1` on are the predictions of [scored, end). */
static void set_window(struct score_run *r, size_t window, size_t scored,
                       size_t end)
{
    const struct qwick_score_item *it = r->owner;
    size_t begin = end > window ? end - window : 0;
    r->run.tokens = it->tokens + begin;
    r->run.n = end - 1 - begin;
    r->run.first = scored - 1 - begin;
    r->pos = begin;
    /* the first window is the longest, or as long */
    if (r->run.n > r->run.n_final)
        r->run.n_final = r->run.n;
}

static int next(struct runs *runs, struct qwick_err *e)
{
    struct qwick_scorer *s = runs->ctx;
    while (s->at < s->n_items &&
           s->items[s->at].n <= qwick_score_first(&s->items[s->at]))
        s->at++; /* nothing to score */
    runs->more = s->at < s->n_items;
    if (!runs->more)
        return 0;
    struct qwick_score_item *it = &s->items[s->at++];
    struct score_run *r = score_queue(runs, e);
    if (!r)
        return -1;
    size_t first = qwick_score_first(it);
    /* the first window begins with the context, unless that fills it */
    size_t end = first < s->window           ? s->window
                 : s->stride < it->n - first ? first + s->stride
                                             : it->n;
    r->owner = it;
    set_window(r, s->window, first, end < it->n ? end : it->n);
    it->n_windows = 1;
    return 0;
}

/* Tell the caller about a token that was scored. */
static int tell(struct qwick_scorer *s, const struct qwick_engine *eng,
                const struct qwick_score_item *it, size_t at,
                const float *logits, double log_sum, struct qwick_err *e)
{
    size_t size = eng->model.config.vocab_size;
    struct qwick_score_event ev = {.item = (size_t)(it - s->items),
                                   .index = at,
                                   .logprob = it->logprobs[at],
                                   .rank = 1,
                                   .top = s->top,
                                   .n_top = s->n_top};
    float own = logits[it->tokens[at]];
    for (size_t i = 0; i < size; i++)
        ev.rank += logits[i] > own;
    sampler_top(logits, size, s->ids, s->n_top);
    for (size_t i = 0; i < s->n_top; i++)
        s->top[i] = (struct qwick_logprob){
            s->ids[i], (float)score_logprob(logits, log_sum, s->ids[i])};
    if (s->on_score(s->on_score_ctx, &ev))
        return err_set(e, QWICK_ERR_INTERRUPTED, "score: interrupted");
    return 0;
}

static int row(struct runs *runs, struct run *run, size_t i,
               const float *logits, struct qwick_err *e)
{
    struct qwick_scorer *s = runs->ctx;
    const struct score_run *r = (struct score_run *)run;
    struct qwick_score_item *it = r->owner;
    size_t at = r->pos + i + 1;
    double log_sum;
    if (score_log_sum(runs->eng, logits, &log_sum, e))
        return -1;
    it->logprobs[at] = score_logprob(logits, log_sum, it->tokens[at]);
    runs->n_done++;
    if (s->on_row &&
        s->on_row(s->on_row_ctx, (size_t)(it - s->items), at, logits, e))
        return -1;
    return s->on_score ? tell(s, runs->eng, it, at, logits, log_sum, e) : 0;
}

static int done(struct runs *runs, struct run *run, bool *again,
                struct qwick_err *e)
{
    const struct qwick_scorer *s = runs->ctx;
    struct score_run *r = (struct score_run *)run;
    struct qwick_score_item *it = r->owner;
    size_t scored = r->pos + run->n + 1;
    if (scored == it->n)
        return 0;
    size_t end = s->stride < it->n - scored ? scored + s->stride : it->n;
    set_window(r, s->window, scored, end);
    it->n_windows++;
    *again = true;
    return qwick_session_rollback(run->session, 0, e);
}

static int check_item(const struct qwick_engine *eng, size_t i,
                      const struct qwick_score_item *it, struct qwick_err *e)
{
    size_t vocab_size = eng->model.config.vocab_size;
    if (it->n_given > it->n)
        return err_set(e, QWICK_ERR_USAGE,
                       "text %zu: n_given is %zu, but it has %zu tokens", i,
                       it->n_given, it->n);
    for (size_t k = 0; k < it->n; k++)
        if (it->tokens[k] < 0 || (size_t)it->tokens[k] >= vocab_size)
            return err_set(e, QWICK_ERR_USAGE,
                           "text %zu: token id %d is out of range, the "
                           "vocabulary has %zu",
                           i, it->tokens[k], vocab_size);
    return 0;
}

int qwick_score_windows(const struct qwick_engine *eng,
                        const struct qwick_score_options *given, size_t *window,
                        size_t *stride, struct qwick_err *e)
{
    struct qwick_score_options all = qwick_score_defaults(), *o = &all;
    size_t n_ctx;
    *window = *stride = 0;
    if (options_read(o, sizeof *o, given, "score", e) ||
        engine_context(eng, o->n_ctx, &n_ctx, e))
        return -1;
    *window = o->window ? o->window : n_ctx;
    if (*window > n_ctx)
        return err_set(e, QWICK_ERR_USAGE,
                       "window: %zu tokens, but the context has %zu", *window,
                       n_ctx);
    if (*window < 2)
        return err_set(e, QWICK_ERR_USAGE,
                       "window: must be at least 2 tokens, is %zu", *window);
    *stride = o->stride ? o->stride : *window / 2;
    if (*stride >= *window)
        return err_set(
            e, QWICK_ERR_USAGE,
            "stride: %zu tokens, must be less than the window's %zu: "
            "a token needs one before it",
            *stride, *window);
    return 0;
}

/* Prepare the callback of the options. */
static int set_callback(struct qwick_scorer *s, const struct qwick_engine *eng,
                        const struct qwick_score_options *o,
                        struct qwick_err *e)
{
    size_t vocab_size = eng->model.config.vocab_size;
    if (!o->on_score)
        return 0;
    s->on_score = o->on_score;
    s->on_score_ctx = o->on_score_ctx;
    s->n_top = o->top < vocab_size ? o->top : vocab_size;
    s->top = calloc(s->n_top + 1, sizeof *s->top);
    s->ids = calloc(s->n_top + 1, sizeof *s->ids);
    return s->top && s->ids ? 0 : err_oom(e, s->n_top * sizeof *s->top);
}

static const struct run_task task = {JUDGE_TASK, .by_row = true,
                                     .next = next, .row = row,
                                     .done = done};

/* Set the outputs of all items as if nothing were scored, and count the tokens
 * to score. */
static int clear_items(struct qwick_scorer *s, const struct qwick_engine *eng,
                       size_t *n_total, struct qwick_err *e)
{
    *n_total = 0;
    for (size_t i = 0; i < s->n_items; i++) {
        struct qwick_score_item *it = &s->items[i];
        if (check_item(eng, i, it, e))
            return -1;
        size_t first = qwick_score_first(it);
        it->n_windows = 0;
        for (size_t k = 0; k < it->n && k < first; k++)
            it->logprobs[k] = 0;
        if (it->n > first)
            *n_total += it->n - first;
    }
    return 0;
}

int qwick_scorer_create(struct qwick_scorer **out, struct qwick_engine *eng,
                        struct qwick_score_item *items, size_t n,
                        const struct qwick_score_options *given,
                        struct qwick_err *e)
{
    struct qwick_score_options all = qwick_score_defaults(), *o = &all;
    size_t n_total;
    *out = NULL;
    if (options_read(o, sizeof *o, given, "score", e))
        return -1;
    struct qwick_scorer *s = calloc(1, sizeof *s);
    if (!s)
        return err_oom(e, sizeof *s);
    s->items = items;
    s->n_items = n;
    if (qwick_score_windows(eng, o, &s->window, &s->stride, e) ||
        clear_items(s, eng, &n_total, e) || set_callback(s, eng, o, e) ||
        runs_open(&s->runs, eng, &task, s, o->n_ctx, JUDGE_RUNS, e)) {
        qwick_scorer_free(s);
        return -1;
    }
    s->runs.n_total = n_total;
    score_set_options(&s->runs, o);
    *out = s;
    return 0;
}

void scorer_on_row(struct qwick_scorer *s, score_row_fn fn, void *ctx)
{
    s->on_row = fn;
    s->on_row_ctx = ctx;
}

int qwick_scorer_step(struct qwick_scorer *s, bool *more, struct qwick_err *e)
{
    if (runs_step(&s->runs, e))
        return -1;
    *more = runs_pending(&s->runs);
    return 0;
}

void qwick_scorer_free(struct qwick_scorer *s)
{
    if (!s)
        return;
    runs_close(&s->runs);
    free(s->top);
    free(s->ids);
    free(s);
}

int qwick_score(struct qwick_engine *eng, struct qwick_score_item *items,
                size_t n, const struct qwick_score_options *o,
                struct qwick_err *e)
{
    struct qwick_scorer *s;
    if (qwick_scorer_create(&s, eng, items, n, o, e))
        return -1;
    int rc = runs_all(&s->runs, e);
    qwick_scorer_free(s);
    return rc;
}
