/* The life of a call: queues, answers, errors, events. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/flag.h"
#include "cli/io/out.h"
#include "cli/serve/serve.h"

static const char json_type[] = "application/json";

/* ---- queues ---- */

void serve_push(struct serve_queue *q, struct serve_call *c)
{
    c->next = NULL;
    if (!q->first)
        q->last = &q->first;
    *q->last = c;
    q->last = &c->next;
}

struct serve_call *serve_pop(struct serve_queue *q)
{
    struct serve_call *c = q->first;
    if (c)
        q->first = c->next;
    return c;
}

void serve_wake(struct serve *s)
{
    const uint64_t one = 1;
    flag_set(&s->woken, 1);
    ssize_t r = write(s->wake, &one, sizeof(one)); /* full: it is awake */
    (void)r;
}

/* ---- begin and end ---- */

void serve_begin(struct serve *s, struct http_call *http,
                 const struct endpoint *ep)
{
    struct serve_call *c = calloc(1, sizeof(*c));
    struct buf body = {0};
    if (!c) {
        serve_error_json(ep->protocol, &body, &(struct serve_error){
                                    .status = 503, .e.msg = "out of memory"});
        serve_count(s, ep, 503);
        http_reply(http, 503, json_type, &body);
        return;
    }
    *c = (struct serve_call){
        .s = s, .http = http, .endpoint = ep, .n_streams = !ep->reply};
    http_set_tag(http, c);
    pthread_mutex_lock(&s->mutex);
    c->next_all = s->all;
    c->at_all = &s->all;
    if (s->all)
        s->all->at_all = &c->next_all;
    s->all = c;
    s->n_calls++;
    s->n_streams += c->n_streams;
    serve_push(&s->unprepared, c);
    pthread_cond_signal(&s->to_prepare);
    pthread_mutex_unlock(&s->mutex);
}

/* Give the places of a call to others. Before the last byte of its answer goes
 * out: a client that has the whole answer can use the places at once. */
static void call_release(struct serve_call *c)
{
    pthread_mutex_lock(&c->s->mutex);
    c->s->n_streams -= c->n_streams;
    c->n_streams = 0;
    pthread_mutex_unlock(&c->s->mutex);
}

/* Free a call whose answer has ended. */
static void call_free(struct serve_call *c)
{
    struct serve *s = c->s;
    pthread_mutex_lock(&s->mutex);
    *c->at_all = c->next_all;
    if (c->next_all)
        c->next_all->at_all = c->at_all;
    s->n_calls--;
    if (s->n_calls == 0)
        s->idle_ms = clock_ms();
    pthread_mutex_unlock(&s->mutex);
    if (c->state && c->endpoint->free)
        c->endpoint->free(c);
    free(c);
}

void serve_count(struct serve *s, const struct endpoint *ep, int status)
{
    size_t i = ep ? (size_t)(ep - serve_endpoints) : METRICS_ENDPOINTS;
    metrics_request(&s->metrics, i, status);
}

/* Note and count a request that has been answered: no word of the client but
 * its path, which is that of a row. */
static void call_note(const struct serve_call *c, int status)
{
    bool gone = atomic_load(&c->stop) == SERVE_GONE;
    double ms = clock_ms() - http_received_ms(c->http);
    msg_note("%s %s: %d%s, %.0f ms", c->endpoint->method, c->endpoint->path,
             status, gone ? ", the client has left" : "", ms);
    serve_count(c->s, c->endpoint, gone ? METRICS_GONE : status);
    if (status == 200 && c->endpoint->start)
        metrics_time(&c->s->metrics, METRIC_END_TO_END, ms);
}

/* ---- OpenAI's errors ---- */

/* OpenAI's words for statuses. */
static const struct {
    int status;
    const char *type;
} error_types[] = {
    {401, "authentication_error"}, {403, "permission_error"},
    {404, "not_found_error"},      {429, "rate_limit_error"},
    {500, "server_error"},         {503, "server_error"},
    {504, "server_error"},
};

const char *serve_error_type(int status)
{
    for (size_t i = 0; i < sizeof(error_types) / sizeof(*error_types); i++)
        if (error_types[i].status == status)
            return error_types[i].type;
    return status >= 500 ? "server_error" : "invalid_request_error";
}

void serve_openai_error(struct buf *out, const struct serve_error *e)
{
    struct json_writer w = json_writer(out);
    jw_object(&w, NULL);
    jw_object(&w, "error");
    jw_cstr(&w, "message", e->e.msg);
    jw_cstr(&w, "type", serve_error_type(e->status));
    jw_cstr(&w, "param", e->param[0] ? e->param : NULL);
    jw_cstr(&w, "code", e->code);
    jw_end_object(&w);
    jw_end_object(&w);
}

static const struct protocol *call_protocol(const struct protocol *p)
{
    static const struct protocol openai = {.put_error = serve_openai_error,
                                           .done = true};
    return p ? p : &openai;
}

/* ---- answers ---- */

void serve_stream(struct serve_call *c)
{
    c->stream = true;
    http_stream(c->http);
}

void serve_reply_late(struct serve_call *c)
{
    c->endpoint->reply(c->s, c->endpoint, c->http);
    call_free(c);
}

void serve_reply(struct serve_call *c, struct buf *json)
{
    if (json->failed) {
        struct serve_error e = {.status = 503, .e.msg = "out of memory"};
        buf_free(json);
        serve_fail(c, &e);
        return;
    }
    call_note(c, 200);
    call_release(c);
    http_reply(c->http, 200, json_type, json);
    call_free(c);
}

void serve_event(struct serve_call *c, const char *name, const char *json,
                 size_t n)
{
    struct buf b = {0};
    if (c->broken)
        return; /* a stream that lacks an event must not end as if it were whole */
    buf_reserve(&b, n + (name ? strlen(name) : 0) + 16);
    if (name)
        buf_printf(&b, "event: %s\n", name);
    buf_puts(&b, "data: ");
    buf_append(&b, json, n);
    buf_puts(&b, "\n\n");
    if (b.failed || http_write(c->http, b.data, b.len))
        c->broken = true;
    buf_free(&b);
}

void serve_done(struct serve_call *c)
{
    static const char end[] = "data: [DONE]\n\n";
    call_release(c);
    if (!c->broken && call_protocol(c->endpoint->protocol)->done)
        http_write(c->http, end, sizeof(end) - 1);
    call_note(c, c->broken ? 503 : 200);
    http_end(c->http);
    call_free(c);
}

/* The error without the model's path, which is none of the client's
 * business. */
static struct serve_error call_error(const struct serve_call *c,
                                     const struct serve_error *e)
{
    const struct qwick_engine *eng = c->s->g.eng;
    struct serve_error shown = *e;
    if (eng) /* else it could not be loaded */
        snprintf(shown.e.msg, sizeof(shown.e.msg), "%s",
                 err_without_name(&e->e, qwick_engine_info(eng)->path));
    return shown;
}

/* Write the end of a stream that has an error, whose JSON is in body. */
static void call_send_error(struct serve_call *c, const struct serve_error *e,
                            const struct buf *body)
{
    const struct protocol *p = call_protocol(c->endpoint->protocol);
    if (p->send_error)
        p->send_error(c, e);
    else
        serve_event(c, p->error_event, buf_text(body), body->len);
    http_end(c->http);
}

void serve_fail(struct serve_call *c, const struct serve_error *e)
{
    const struct serve_error shown = call_error(c, e);
    struct buf body = {0};
    serve_error_json(c->endpoint->protocol, &body, &shown);
    call_note(c, e->status);
    call_release(c);
    if (e->status == 429)
        http_add_field(c->http, "Retry-After", "1");
    if (!c->stream) {
        http_reply(c->http, e->status, json_type, &body);
    } else if (!http_refuse(c->http, e->status, json_type, &body)) {
        call_send_error(c, &shown, &body);
        buf_free(&body);
    }
    call_free(c);
}

/* ---- errors ---- */

void serve_error_json(const struct protocol *p, struct buf *out,
                      const struct serve_error *e)
{
    call_protocol(p)->put_error(out, e);
}

struct serve_error serve_error_of(const struct qwick_err *why)
{
    struct serve_error e = {.e = *why};
    switch (why->code) {
    case QWICK_ERR_CONTEXT:
        e.code = "context_length_exceeded";
        e.status = 400;
        break;
    case QWICK_ERR_USAGE:
        e.status = 400;
        break;
    case QWICK_ERR_MEMORY: /* waiting does not help against a limit */
        e.status = why->kind == QWICK_KIND_LIMIT ? 400 : 503;
        break;
    default:
        e.status = 500;
    }
    return e;
}

const char *serve_id(const struct serve *s, size_t i)
{
    struct qwick_lora_info l;
    return i < s->n_loras && !qwick_engine_lora_at(s->g.eng, i, &l, NULL)
               ? l.name
               : s->id;
}

void serve_choose_lora(struct serve_call *c, const char *id)
{
    c->lora = 0;
    while (c->lora < c->s->n_loras &&
           (!id || strcmp(id, serve_id(c->s, c->lora)) != 0))
        c->lora++;
}

int serve_refuse(struct serve_error *e, const char *param, const char *fmt, ...)
{
    va_list ap;
    *e = (struct serve_error){.status = 400, .e.code = QWICK_ERR_USAGE};
    if (param)
        snprintf(e->param, sizeof(e->param), "%s", param);
    va_start(ap, fmt);
    vsnprintf(e->e.msg, sizeof(e->e.msg), fmt, ap);
    va_end(ap);
    return -1;
}
