/* The form of /v1/chat/completions: a completion, or a stream of chunks. */
#include <string.h>

#include "cli/answer/openai_body.h"
#include "cli/serve/chat_state.h"

static int chat_read_body(struct chat_state *s, struct body_reader *x)
{
    int rc = openai_read_body(x);
    s->include_usage = s->head.null_usage = x->include_usage;
    return rc;
}

/* ---- chunks ---- */

static void chat_send(struct chat_sample *x, struct openai_delta d)
{
    struct buf json = {0};
    d.index = x->index;
    if (openai_chunk(&json, &chat_of(x)->head, &d))
        x->sample.oom = true;
    else
        serve_event(chat_of(x)->all.c, NULL, json.data, json.len);
    buf_free(&json);
}

static void chat_send_role(struct chat_sample *x)
{
    if (x->began)
        return;
    x->began = true;
    chat_send(x, (struct openai_delta){.role = true});
}

static void chat_send_thinking(struct chat_sample *x)
{
    size_t n = x->thinking.len - x->sent_thinking;
    if (n == 0)
        return;
    chat_send(x, (struct openai_delta){.thinking =
                                           x->thinking.data + x->sent_thinking,
                                       .n_thinking = n});
    x->sent_thinking += n;
}

/* Send text with its log-probabilities. Those of a token whose text is not
 * certain yet wait for it. */
static void chat_send_text(struct chat_sample *x, bool all)
{
    const struct buf *text = &x->calls.text;
    size_t n = text->len - x->sent_text;
    if (n == 0 && !(all && x->logprobs.len))
        return;
    chat_send(x,
              (struct openai_delta){.text = n ? text->data + x->sent_text : "",
                                    .n_text = n,
                                    .logprobs = &x->logprobs});
    x->sent_text += n;
    x->logprobs.len = 0;
}

static void chat_send_calls(struct chat_sample *x)
{
    struct chat_call_piece p;
    while (chat_next_call(x, &p)) {
        struct openai_delta d = {.calls = &x->calls, .call = p.i};
        if (p.begins)
            chat_send(x, d);
        d.arguments = p.arguments;
        d.n_arguments = p.n;
        if (p.n)
            chat_send(x, d);
    }
}

static void chat_send_all(struct chat_sample *x, bool all)
{
    chat_send_role(x);
    chat_send_thinking(x);
    chat_send_text(x, all);
    chat_send_calls(x);
}

static void chat_send_finish(struct chat_sample *x)
{
    chat_send(x, (struct openai_delta){
                     .finish = openai_finish(x->sample.r.finish, &x->calls)});
}

/* ---- the end of the call ---- */

static int chat_send_usage(struct chat_state *s,
                           const struct openai_usage *usage)
{
    struct buf json = {0};
    int rc = 0;
    if (!s->include_usage)
        return 0;
    if (openai_usage_chunk(&json, &s->head, usage))
        rc = -1;
    else
        serve_event(s->all.c, NULL, json.data, json.len);
    buf_free(&json);
    return rc;
}

static void chat_write(struct chat_state *s, const struct json_answer *a,
                       const struct openai_usage *usage, struct json_writer *w)
{
    openai_completion(w, NULL, &s->head, a, s->r.n, usage);
}

const struct chat_form chat_form_openai = {
    .id_prefix = "chatcmpl-",
    .same_members = true,
    .member_name = openai_member_name,
    .read = chat_read_body,
    .send_begin = chat_send_role,
    .send = chat_send_all,
    .send_end = chat_send_finish,
    .send_last = chat_send_usage,
    .write = chat_write,
};
