/* Answers of /v1/chat/completions: a completion, or a stream of chunks. */
#include <stdlib.h>

#include "cli/answer/answer_opts.h"
#include "cli/serve/chat_state.h"

/* While a client has not taken more bytes than these, text waits for the next
 * event. */
enum { MAX_UNSENT = 4096 };

static struct chat_state *chat_of(const struct chat_sample *x)
{
    return (struct chat_state *)x->sample.all;
}

/* ---- reading tokens ---- */

static int chat_read_text(struct chat_sample *x, const char *s, size_t n)
{
    x->n_text += n;
    if (!chat_of(x)->r.tools)
        return buf_append(&x->calls.text, s, n);
    if (tool_calls_feed(&x->calls, s, n))
        return -1;
    if (chat_of(x)->r.one_call)
        tool_calls_keep(&x->calls, 1);
    return 0;
}

static int chat_read_thinking(struct chat_sample *x, const char *s, size_t n)
{
    x->n_thought += n;
    return buf_append(&x->thinking, s, n);
}

/* Whether the answer is over, because the request allows only one call. */
static bool chat_has_call(const struct chat_sample *x)
{
    return chat_of(x)->r.one_call && x->calls.n > 0;
}

/* ---- chunks ---- */

static void chat_send(struct chat_sample *x, struct openai_delta d)
{
    struct buf json = {0};
    d.index = x->index;
    if (openai_chunk(&json, &chat_of(x)->head, &d))
        x->sample.oom = true;
    else
        serve_event(chat_of(x)->all.c, json.data, json.len);
    buf_free(&json);
}

void chat_send_role(struct chat_sample *x)
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
    for (; x->sent_calls < x->calls.n; x->sent_calls++) {
        struct openai_delta d = {.calls = &x->calls, .call = x->sent_calls};
        chat_send(x, d);
        d.arguments = true;
        chat_send(x, d);
    }
}

/* Send what the sample has. all: it has ended. */
static void chat_send_all(struct chat_sample *x, bool all)
{
    chat_send_role(x);
    chat_send_thinking(x);
    chat_send_text(x, all);
    chat_send_calls(x);
}

/* ---- tokens and the end of a sample ---- */

int chat_token(void *ctx, const struct qwick_token_event *ev)
{
    struct chat_sample *x = ctx;
    struct chat_state *s = chat_of(x);
    struct qwick_token_event shown = *ev;
    bool thinks = ev->channel == QWICK_THINKING;
    x->n_thinking += thinks;
    if (s->r.no_top)
        shown.n_top = 0;
    if ((thinks ? chat_read_thinking(x, ev->text, ev->n_text)
                : chat_read_text(x, ev->text, ev->n_text)) ||
        (s->r.o.logprobs &&
         openai_logprobs(&x->logprobs, s->all.c->s->g.eng, &shown)))
        x->sample.oom = true;
    if (s->all.c->stream && !x->sample.oom && !s->all.why.status &&
        http_unsent(s->all.c->http) <= MAX_UNSENT)
        chat_send_all(x, false);
    return x->sample.oom || s->all.why.status || chat_has_call(x);
}

/* Read what the answer has beyond its tokens: text that was held back, because
 * it could have begun a stop string or a character. */
static int chat_read_rest(struct chat_sample *x)
{
    const struct qwick_result *r = &x->sample.r;
    if (r->n_thinking > x->n_thought &&
        chat_read_thinking(x, r->thinking + x->n_thought,
                           r->n_thinking - x->n_thought))
        return -1;
    if (r->n_text > x->n_text && !chat_has_call(x) &&
        chat_read_text(x, r->text + x->n_text, r->n_text - x->n_text))
        return -1;
    return chat_of(x)->r.tools
               ? tool_calls_end_without_cut(&x->calls, answer_is_cut(r->finish))
               : 0;
}

void chat_end_sample(struct sample *sample)
{
    struct chat_sample *x = (struct chat_sample *)sample;
    struct chat_state *s = chat_of(x);
    if (chat_has_call(x) && x->sample.r.finish == QWICK_FINISH_INTERRUPTED)
        x->sample.r.finish = QWICK_FINISH_STOP; /* chat_token has ended it */
    if (x->sample.oom || chat_read_rest(x))
        x->sample.oom = true;
    if (s->r.one_call)
        tool_calls_keep(&x->calls, 1);
}

void chat_send_end(struct sample *sample)
{
    struct chat_sample *x = (struct chat_sample *)sample;
    chat_send_all(x, true);
    chat_send(x, (struct openai_delta){
                     .finish = openai_finish(x->sample.r.finish, &x->calls)});
}

/* ---- the end of the call ---- */

static struct openai_usage chat_usage(const struct chat_state *s)
{
    struct openai_usage u = {
        .n_prompt = s->r.n_ids, .details = true, .n_cached = SIZE_MAX};
    for (size_t i = 0; i < s->r.n; i++) {
        const struct chat_sample *x = chat_at(s, i);
        u.n_tokens += x->sample.r.n_tokens;
        if (x->thinking.len) /* else these are only the tags */
            u.n_thinking += x->n_thinking;
        /* samples share the prompt, which was evaluated for one of them */
        if (x->sample.r.n_cached < u.n_cached)
            u.n_cached = x->sample.r.n_cached;
    }
    return u;
}

static void chat_end_stream(struct chat_state *s,
                            const struct openai_usage *usage)
{
    struct buf json = {0};
    if (s->include_usage) {
        if (openai_usage_chunk(&json, &s->head, usage))
            s->all.c->broken = true;
        else
            serve_event(s->all.c, json.data, json.len);
        buf_free(&json);
    }
    serve_done(s->all.c);
}

static void chat_reply(struct chat_state *s, const struct openai_usage *usage)
{
    struct serve_error oom = {.status = 503, .e.msg = "out of memory"};
    struct json_answer *a = calloc(s->r.n, sizeof(*a));
    struct buf json = {0};
    struct json_writer w = json_writer(&json);
    if (!a) {
        serve_fail(s->all.c, &oom);
        return;
    }
    for (size_t i = 0; i < s->r.n; i++)
        a[i] = (struct json_answer){
            .r = &samples_at(&s->all, i)->r,
            .info = qwick_engine_info(s->all.c->s->g.eng),
            .logprobs = s->r.o.logprobs ? &chat_at(s, i)->logprobs : NULL,
            .calls = &chat_at(s, i)->calls};
    openai_completion(&w, NULL, &s->head, a, s->r.n, usage);
    free(a);
    if (!jw_status(&w)) {
        serve_reply(s->all.c, &json);
        return;
    }
    buf_free(&json);
    serve_fail(s->all.c, &oom);
}

void chat_answer(struct samples *all)
{
    struct chat_state *s = (struct chat_state *)all;
    const struct openai_usage usage = chat_usage(s);
    if (s->all.c->stream)
        chat_end_stream(s, &usage);
    else
        chat_reply(s, &usage);
}
