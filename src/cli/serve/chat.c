/* /v1/chat/completions: reading requests, and their way through the batch. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/key.h"
#include "cli/answer/openai_body.h"
#include "cli/io/prompt.h"
#include "cli/serve/body.h"
#include "cli/serve/chat_state.h"
#include "cli/serve/endpoints.h"

/* ---- preparation ---- */

/* Set *e to a library's error, and the member at fault. Returns -1. */
static int chat_refuse(struct serve_error *e, const struct qwick_err *why,
                       const char *param)
{
    body_fault(e, param, why);
    /* the library calls the messages "chat" */
    snprintf(e->e.msg, sizeof(e->e.msg), "%s", err_without_name(why, "chat"));
    return -1;
}

/* Write the record that a body stands for to *json. */
static int chat_translate(struct chat_state *s, struct buf *json,
                          struct serve_error *e)
{
    struct openai_reader x = {.warn = &s->c->s->requests,
                              .number = http_number(s->c->http)};
    struct json_writer w = json_writer(json);
    struct json_doc *doc;
    struct qwick_err why;
    size_t n;
    const char *body = http_body(s->c->http, &n);
    if (json_parse(&doc, "body", body, n, QWICK_ERR_USAGE, &why))
        return chat_refuse(e, &why, "");
    int rc = 0;
    if (!json_is(json_root(doc), JSON_OBJECT)) {
        rc = serve_refuse(e, NULL, "body: must be an object, is %s",
                          json_type_name(json_root(doc)));
    } else {
        jw_object(&w, NULL);
        if (openai_read_body(&x, json_root(doc), &w, &why))
            rc = chat_refuse(e, &why, x.fault);
        jw_end_object(&w);
    }
    json_free(doc);
    s->include_usage = x.include_usage;
    s->c->stream = x.stream;
    if (!rc && jw_status(&w)) {
        err_oom(&why, json->len);
        rc = chat_refuse(e, &why, "");
    }
    return rc;
}

/* Refuse what could not be answered. */
static int chat_check(struct chat_state *s, struct serve_error *e)
{
    const struct serve *srv = s->c->s;
    const struct qwick_info *info = qwick_engine_info(srv->g.eng);
    const struct request *r = &s->r;
    struct qwick_err why;
    if (r->tools && !info->call_form)
        return serve_refuse(e, "tools",
                            "tools: the chat template of %s shows no calls in "
                            "a form that qwick knows",
                            srv->id);
    if (r->tools && tools_check(r->tools, "tools", &why))
        return chat_refuse(e, &why, "tools");
    if (r->constraint && (r->o.n_stop || r->o.ignore_eos))
        return serve_refuse(e, r->o.n_stop ? "stop" : "",
                            "%s: cannot be combined with a response format, a "
                            "grammar or a tool choice",
                            r->o.n_stop ? "stop" : "--ignore-eos");
    if (r->n_ids > srv->n_ctx) {
        prompt_too_long(r->n_ids, srv->n_ctx, "", &why);
        return chat_refuse(e, &why, "messages");
    }
    size_t need = r->n_ids * info->kv_token_bytes + info->kv_state_bytes;
    size_t most = (size_t)srv->a->kv_memory;
    if (most && need > most)
        return serve_refuse(e, "messages",
                            "messages: %zu tokens need a KV cache of %zu "
                            "bytes, --kv-memory has %zu",
                            r->n_ids, need, most);
    return 0;
}

/* Read the request, and check everything that can be checked. */
static int chat_read(struct chat_state *s, struct serve_error *e)
{
    struct request_context *context = &s->c->s->requests;
    struct buf json = {0};
    struct qwick_err why;
    int rc = -1;
    if (context->raw) {
        serve_refuse(e, "messages", "messages: %s has no chat template",
                     s->c->s->id);
        return -1;
    }
    if (!chat_translate(s, &json, e)) {
        rc = request_open(&s->r, context, http_number(s->c->http), json.data,
                          json.len, &why) ||
                     request_read(&s->r, &why)
                 ? chat_refuse(e, &why, s->r.fault)
                 : chat_check(s, e);
    }
    buf_free(&json);
    return rc;
}

static void chat_sample_done(struct serve_task *t, struct qwick_result *r,
                             const struct qwick_err *why);

static int chat_make_samples(struct chat_state *s, struct serve_error *e)
{
    struct qwick_err why;
    s->samples = calloc(s->r.n, sizeof(*s->samples));
    if (!s->samples) {
        err_oom(&why, s->r.n * sizeof(*s->samples));
        return chat_refuse(e, &why, "");
    }
    for (size_t i = 0; i < s->r.n; i++)
        s->samples[i] = (struct chat_sample){
            .task.done = chat_sample_done, .chat = s, .index = i};
    s->c->n_streams = s->r.n;
    return 0;
}

static void chat_make_head(struct chat_state *s)
{
    const struct serve *srv = s->c->s;
    struct key k = key_start("chat completion");
    key_add_u64(&k, (uint64_t)srv->created);
    key_add_u64(&k, http_number(s->c->http));
    snprintf(s->id, sizeof(s->id), "chatcmpl-%016llx",
             (unsigned long long)key_u64(&k));
    s->head = (struct openai_head){.id = s->id,
                                   .model = srv->id,
                                   .created = (int64_t)time(NULL),
                                   .live = true,
                                   .null_usage = s->include_usage};
}

int chat_prepare(struct serve_call *c, struct serve_error *e)
{
    struct chat_state *s = calloc(1, sizeof(*s));
    struct qwick_err why;
    if (!s) {
        err_oom(&why, sizeof(*s));
        return chat_refuse(e, &why, "");
    }
    c->state = s;
    s->c = c;
    bool bad = chat_read(s, e) || chat_make_samples(s, e);
    bool stream = c->stream && !bad;
    c->stream = false; /* an error of preparation has its status */
    if (bad)
        return -1;
    chat_make_head(s);
    if (stream)
        serve_stream(c);
    return 0;
}

/* ---- the batch ---- */

void chat_cancel(struct serve_call *c)
{
    struct chat_state *s = c->state;
    for (size_t i = 0; i < s->r.n; i++)
        if (s->samples[i].queued && !s->samples[i].ended)
            qwick_batch_cancel(c->s->batch, &s->samples[i].task, NULL);
}

/* Note why the call ends without an answer. The first reason counts. */
static void chat_set_error(struct chat_state *s, int status, const char *code,
                           const char *message)
{
    if (s->why.status)
        return;
    s->why = (struct serve_error){.status = status, .code = code};
    err_set(&s->why.e, QWICK_ERR_RUNTIME, "%s", message);
}

/* Note an answer that ended without being one. */
static void chat_check_end(struct chat_state *s, const struct chat_sample *x)
{
    if (x->oom)
        chat_set_error(s, 503, NULL, "out of memory");
    else if (x->r.finish == QWICK_FINISH_LOOP)
        chat_set_error(s, 500, "loop_guard",
                       "the model repeats itself without end; --loop-guard "
                       "ended the answer");
    else if (x->r.finish == QWICK_FINISH_TIMEOUT)
        chat_set_error(s, 504, "timeout", "--timeout ended the answer");
    else if (x->r.finish == QWICK_FINISH_INTERRUPTED ||
             x->r.finish == QWICK_FINISH_CANCELLED)
        chat_set_error(s, 503, NULL,
                       atomic_load(&s->c->stop) == SERVE_GONE
                           ? "the client has left"
                           : "the server is shutting down");
}

/* The batch has ended a sample. */
static void chat_sample_done(struct serve_task *t, struct qwick_result *r,
                             const struct qwick_err *why)
{
    struct chat_sample *x = (struct chat_sample *)t;
    struct chat_state *s = x->chat;
    x->ended = true;
    x->r = *r;
    *r = (struct qwick_result){0};
    if (why && !s->why.status)
        s->why = serve_error_of(why);
    if (!why) {
        chat_end_sample(x);
        chat_check_end(s, x);
        if (s->c->stream && !s->why.status)
            chat_send_end(x);
        if (x->oom)
            chat_set_error(s, 503, NULL, "out of memory");
    }
    if (--s->n_open == 0) {
        if (s->why.status)
            serve_fail(s->c, &s->why);
        else
            chat_answer(s);
    } else if (s->why.status) {
        chat_cancel(s->c);
    }
}

/* Queue a sample. */
static int chat_add_sample(struct chat_state *s, size_t i, struct qwick_err *e)
{
    struct chat_sample *x = &s->samples[i];
    struct qwick_sampling sampling;
    struct qwick_generate_options o = request_options(&s->r, i, &sampling);
    request_begin_calls(&s->r, sampling.seed, &x->calls);
    o.on_token = chat_token;
    o.on_token_ctx = x;
    if (qwick_batch_add(s->c->s->batch, s->r.ids, s->r.n_ids, &o, &x->task, e))
        return -1;
    x->queued = true;
    s->n_open++;
    return 0;
}

/* Whether the batch has places for the samples of a call: its stream begins at
 * once. */
static bool chat_has_places(const struct serve *s, size_t n)
{
    struct qwick_batch_stats st = qwick_batch_get_stats(s->batch);
    return st.n_live + st.n_waiting + n <= (size_t)s->a->max_batch;
}

int chat_start(struct serve_call *c, struct serve_error *e)
{
    struct chat_state *s = c->state;
    bool now = chat_has_places(c->s, s->r.n);
    struct qwick_err why;
    for (size_t i = 0; i < s->r.n; i++) {
        if (!chat_add_sample(s, i, &why))
            continue;
        chat_refuse(e, &why, "");
        if (i == 0)
            return -1;
        s->why = *e;
        chat_cancel(c); /* the callback of the last sample ends the call */
        return 0;
    }
    for (size_t i = 0; i < s->r.n && now && c->stream; i++)
        chat_send_role(&s->samples[i]);
    return 0;
}

void chat_free(struct serve_call *c)
{
    struct chat_state *s = c->state;
    for (size_t i = 0; s->samples && i < s->r.n; i++) {
        struct chat_sample *x = &s->samples[i];
        qwick_result_free(&x->r);
        tool_calls_free(&x->calls);
        buf_free(&x->thinking);
        buf_free(&x->logprobs);
    }
    free(s->samples);
    request_free(&s->r);
    free(s);
}
