#include "cli/serve/samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/key.h"
#include "cli/answer/answer_opts.h"
#include "cli/io/prompt.h"
#include "cli/serve/body.h"

/* ---- before the batch ---- */

static void sample_done(struct serve_task *t, struct qwick_result *r,
                        const struct qwick_err *why);

int samples_create(struct samples *s, size_t n, size_t size,
                   struct serve_error *e)
{
    struct qwick_err why;
    s->v = calloc(n, size);
    if (!s->v) {
        err_oom(&why, n * size);
        return body_fault(e, NULL, &why);
    }
    s->n = n;
    s->size = size;
    s->c->n_streams = n;
    for (size_t i = 0; i < n; i++)
        *samples_at(s, i) = (struct sample){.task.done = sample_done, .all = s};
    return 0;
}

void samples_free(struct samples *s)
{
    for (size_t i = 0; i < s->n; i++)
        qwick_result_free(&samples_at(s, i)->r);
    free(s->v);
}

int samples_check(const struct serve *s, const struct request *r,
                  const char *param, struct serve_error *e)
{
    const struct qwick_info *info = qwick_engine_info(s->g.eng);
    size_t need = r->n_ids * info->kv_token_bytes + info->kv_state_bytes;
    size_t most = (size_t)s->a->kv_memory;
    struct qwick_err why;
    if (r->constraint && r->constraint->kind != QWICK_CONSTRAINT_TOOLS_AUTO &&
        r->o.ignore_eos)
        return serve_refuse(e, NULL,
                            "--ignore-eos: cannot be combined with a response "
                            "format, a grammar or a tool choice");
    if (r->n_ids > s->n_ctx) {
        prompt_too_long(r->n_ids, s->n_ctx, "", &why);
        return body_fault(e, param, &why);
    }
    return !most || need <= most
               ? 0
               : serve_refuse(e, param,
                              "%s: %zu tokens need a KV cache of %zu bytes, "
                              "--kv-memory has %zu",
                              param, r->n_ids, need, most);
}

bool samples_have_places(const struct serve *s, size_t n)
{
    struct qwick_batch_stats st = qwick_batch_get_stats(s->batch);
    return st.n_live + st.n_waiting + n <= (size_t)s->a->max_batch;
}

void samples_make_head(const struct serve_call *c, const char *prefix,
                       char id[SAMPLES_ID], struct openai_head *h)
{
    struct key k = key_start(prefix);
    key_add_u64(&k, (uint64_t)c->s->created);
    key_add_u64(&k, http_number(c->http));
    snprintf(id, SAMPLES_ID, "%s%016llx", prefix,
             (unsigned long long)key_u64(&k));
    *h = (struct openai_head){.id = id,
                              .model = serve_id(c->s, c->lora),
                              .created = (int64_t)time(NULL),
                              .live = true};
}

/* ---- metrics ---- */

/* Count a token, and pass it on. */
static int sample_token(void *ctx, const struct qwick_token_event *ev)
{
    struct sample *x = ctx;
    struct serve_call *c = x->all->c;
    struct metrics *m = &c->s->metrics;
    double now = clock_ms();
    if (!x->all->began)
        metrics_time(m, METRIC_FIRST_TOKEN, now - http_received_ms(c->http));
    x->all->began = true;
    if (x->n_drawn) {
        metrics_time(m, METRIC_INTER_TOKEN, now - x->last_ms);
    } else {
        x->first_ms = now;
        metric_add(&m->v[METRIC_PROMPT_TOKENS], x->n_prompt);
    }
    metric_add(&m->v[METRIC_GENERATION_TOKENS], 1);
    x->n_drawn++;
    x->last_ms = now;
    return x->on_token(x, ev);
}

/* Count an answer that has ended. */
static void sample_count(const struct sample *x, bool failed)
{
    struct metrics *m = &x->all->c->s->metrics;
    if (failed)
        metric_add(&m->ends[METRIC_ERROR], 1);
    else
        metrics_end(m, x->r.finish);
    if (x->n_drawn > 1)
        metrics_time(m, METRIC_PER_TOKEN,
                     (x->last_ms - x->first_ms) / (double)(x->n_drawn - 1));
    if (x->n_drawn && x->n_prompt) {
        metric_add(&m->v[METRIC_CACHE_QUERIES], x->n_prompt);
        metric_add(&m->v[METRIC_CACHE_HITS], x->r.n_cached);
    }
}

/* ---- in the batch ---- */

int samples_queue(struct samples *s, size_t i, const struct request *r,
                  size_t k, qwick_token_fn fn, struct serve_error *e)
{
    struct sample *x = samples_at(s, i);
    struct qwick_sampling sampling;
    struct qwick_generate_options o = request_options(r, k, &sampling);
    struct qwick_err why;
    x->constraint = o.constraint;
    x->is_text = r->constraint && constraint_is_text(r->constraint->kind);
    o.on_token = sample_token;
    o.on_token_ctx = x;
    x->on_token = fn;
    x->n_prompt = k ? 0 : r->n_ids;
    if (!qwick_batch_add(s->c->s->batch, r->ids, r->n_ids, &o, &x->task,
                         &why)) {
        x->queued = true;
        s->n_open++;
        return 0;
    }
    body_fault(e, NULL, &why);
    if (s->n_open == 0)
        return -1;
    s->why = *e;
    samples_cancel(s);
    return 1;
}

bool samples_wait(const struct samples *s)
{
    bool any = false;
    for (size_t i = 0; i < s->n; i++) {
        const struct sample *x = samples_at(s, i);
        if (!x->queued)
            continue;
        if (x->ended || !qwick_batch_waits(s->c->s->batch, &x->task))
            return false;
        any = true;
    }
    return any;
}

void samples_cancel(struct samples *s)
{
    for (size_t i = 0; i < s->n; i++) {
        struct sample *x = samples_at(s, i);
        if (x->queued && !x->ended)
            qwick_batch_cancel(s->c->s->batch, &x->task, NULL);
    }
}

/* Note why the call ends without an answer. The first reason counts. */
static void samples_fail(struct samples *s, int status, const char *code,
                         const char *message)
{
    if (s->why.status)
        return;
    s->why = (struct serve_error){.status = status, .code = code};
    err_set(&s->why.e, QWICK_ERR_RUNTIME, "%s", message);
}

static void sample_check_memory(struct sample *x)
{
    if (x->oom)
        samples_fail(x->all, 503, NULL, "out of memory");
}

/* Note an answer that does not satisfy a schema that is lenient. */
static void sample_check_schema(struct sample *x)
{
    enum schema_verdict verdict;
    struct qwick_err e;
    if (x->all->why.status)
        return;
    if (constraint_verdict(x->constraint, x->is_text, &x->r, &verdict, &e))
        x->all->why = serve_error_of(&e);
    else if (verdict == SCHEMA_INVALID)
        samples_fail(x->all, 500, "schema_invalid", e.msg);
}

/* Note an answer that ended without being one. */
static void sample_check_end(struct sample *x)
{
    struct samples *s = x->all;
    sample_check_memory(x);
    if (x->r.finish == QWICK_FINISH_LOOP)
        samples_fail(s, 500, "loop_guard",
                     "the model repeats itself without end; --loop-guard "
                     "ended the answer");
    else if (x->r.finish == QWICK_FINISH_TIMEOUT)
        samples_fail(s, 504, "timeout", "--timeout ended the answer");
    else if (x->r.finish == QWICK_FINISH_INTERRUPTED ||
             x->r.finish == QWICK_FINISH_CANCELLED)
        samples_fail(s, 503, NULL,
                     atomic_load(&s->c->stop) == SERVE_GONE
                         ? "the client has left"
                         : "the server is shutting down");
    else
        sample_check_schema(x);
}

/* The batch has ended a sample. */
static void sample_done(struct serve_task *t, struct qwick_result *r,
                        const struct qwick_err *why)
{
    struct sample *x = (struct sample *)t;
    struct samples *s = x->all;
    x->ended = true;
    x->r = *r;
    *r = (struct qwick_result){0};
    if (why && !s->why.status)
        s->why = serve_error_of(why);
    if (!why) {
        s->end(x);
        sample_check_end(x);
        if (s->c->stream && !s->why.status)
            s->send_end(x);
        sample_check_memory(x);
    }
    sample_count(x, why);
    if (--s->n_open == 0) {
        if (s->why.status)
            serve_fail(s->c, &s->why);
        else
            s->answer(s);
    } else if (s->why.status) {
        samples_cancel(s);
    }
}
