/* Conversations, whatever their form: reading requests, and their way through
 * the batch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/key.h"
#include "cli/answer/body_members.h"
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

/* Where the message begins with a path in the member at fault, take this for
 * it: messages[3].content. */
static void chat_refine(const struct chat_state *s, struct serve_error *e)
{
    size_t n = strlen(e->param), path = strcspn(e->e.msg, ": ");
    bool longer = n && path > n && path < sizeof(e->param) &&
                  e->e.msg[path] == ':' &&
                  strncmp(e->e.msg, e->param, n) == 0 && e->e.msg[n] == '[';
    /* --system-file moves the messages */
    if (longer && s->form->same_members && !s->all.c->s->g.system.data)
        snprintf(e->param, sizeof(e->param), "%.*s", (int)path, e->e.msg);
}

/* Write the record that a body stands for to *json. */
static int chat_translate(struct chat_state *s, struct buf *json,
                          struct serve_error *e)
{
    struct body_reader x = {.warn = &s->all.c->s->requests,
                            .number = http_number(s->all.c->http)};
    struct json_writer w = json_writer(json);
    struct json_doc *doc = NULL;
    struct qwick_err why;
    int rc = body_read(s->all.c, NULL, &doc, e);
    if (!rc) {
        body_begin(&x, json_root(doc), &w, &why);
        jw_object(&w, NULL);
        if (s->form->read(s, &x))
            rc = chat_refuse(e, &why, x.fault);
        else
            jw_end_object(&w);
    }
    json_free(doc);
    s->all.c->stream = x.stream;
    if (!rc && jw_status(&w)) {
        err_oom(&why, json->len);
        rc = chat_refuse(e, &why, "");
    }
    return rc;
}

/* Refuse tools whose calls could not be read. */
static int chat_check_tools(struct chat_state *s, struct serve_error *e)
{
    const struct serve *srv = s->all.c->s;
    const struct qwick_info *info = qwick_engine_info(srv->g.eng);
    const struct request *r = &s->r;
    struct qwick_err why;
    if (r->tools && !info->call_form)
        return serve_refuse(e, "tools",
                            "tools: the chat template of %s shows no calls in "
                            "a form that qwick knows",
                            srv->id);
    return r->tools && tools_check(r->tools, "", &why)
               ? chat_refuse(e, &why, "tools")
               : 0;
}

static int chat_read(struct chat_state *s, struct serve_error *e)
{
    struct request_context *context = &s->all.c->s->requests;
    struct buf json = {0};
    struct qwick_err why;
    int rc = -1;
    context->member_name = s->form->member_name;
    if (context->raw) {
        const char *name = s->form->member_name("messages");
        return serve_refuse(e, name, "%s: %s has no chat template", name,
                            s->all.c->s->id);
    }
    if (!chat_translate(s, &json, e)) {
        rc = request_open(&s->r, context, http_number(s->all.c->http),
                          json.data, json.len, &why) ||
                     request_read(&s->r, &why)
                 ? chat_refuse(e, &why, s->r.fault)
                 : 0;
    }
    buf_free(&json);
    return rc;
}

struct chat_state *chat_open(struct serve_call *c, struct serve_error *e)
{
    struct chat_state *s = body_state(c, sizeof(*s), e);
    if (!s)
        return NULL;
    s->form = c->endpoint->form;
    s->all = (struct samples){.c = c,
                              .end = chat_end_sample,
                              .send_end = chat_send_end,
                              .answer = chat_answer};
    samples_make_head(c, s->form->id_prefix, s->id, &s->head);
    if (!chat_read(s, e) && !chat_check_tools(s, e)) {
        s->head.model = serve_id(c->s, c->lora);
        return s;
    }
    chat_refine(s, e);
    return NULL;
}

int chat_prepare(struct serve_call *c, struct serve_error *e)
{
    struct chat_state *s = chat_open(c, e);
    bool bad =
        !s || samples_check(c->s, &s->r, s->form->member_name("messages"), e) ||
        samples_create(&s->all, s->r.n, sizeof(struct chat_sample), e);
    bool stream = c->stream && !bad;
    c->stream = false; /* an error of preparation has its status */
    if (bad)
        return -1;
    for (size_t i = 0; i < s->r.n; i++)
        chat_at(s, i)->index = i;
    if (stream)
        serve_stream(c);
    return 0;
}

/* ---- the batch ---- */

void chat_cancel(struct serve_call *c)
{
    struct chat_state *s = c->state;
    samples_cancel(&s->all);
}

bool chat_waits(const struct serve_call *c)
{
    const struct chat_state *s = c->state;
    return samples_wait(&s->all);
}

/* Whether a constraint holds calls to their form. */
static bool chat_holds_calls(const struct request *r)
{
    return r->constraint &&
           (r->constraint->kind == QWICK_CONSTRAINT_TOOLS ||
            r->constraint->kind == QWICK_CONSTRAINT_TOOLS_AUTO);
}

int chat_start(struct serve_call *c, struct serve_error *e)
{
    struct chat_state *s = c->state;
    bool now = samples_have_places(c->s, s->r.n);
    int rc = 0;
    for (size_t i = 0; i < s->r.n && !rc; i++) {
        request_begin_calls(&s->r, i, &chat_at(s, i)->calls);
        chat_at(s, i)->calls.id_prefix = s->form->call_prefix;
        chat_at(s, i)->calls.certain = chat_holds_calls(&s->r);
        chat_at(s, i)->calls.one = s->r.one_call;
        rc = samples_queue(&s->all, i, &s->r, i, chat_token, e);
    }
    for (size_t i = 0; i < s->r.n && now && c->stream && !rc; i++)
        s->form->send_begin(chat_at(s, i));
    return rc < 0 ? -1 : 0;
}

void chat_free(struct serve_call *c)
{
    struct chat_state *s = c->state;
    for (size_t i = 0; i < s->all.n; i++) {
        struct chat_sample *x = chat_at(s, i);
        tool_calls_free(&x->calls);
        buf_free(&x->thinking);
        buf_free(&x->logprobs);
    }
    if (s->form->free)
        s->form->free(s);
    samples_free(&s->all);
    request_free(&s->r);
    free(s);
}
