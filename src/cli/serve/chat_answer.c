/* Answers of conversations, whatever their form: reading tokens, and the ends
 * of samples and of the call. */
#include <stdlib.h>

#include "cli/answer/answer_opts.h"
#include "cli/serve/chat_state.h"

/* While a client has not taken more bytes than these, text waits for the next
 * event. */
enum { MAX_UNSENT = 4096 };

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

/* ---- calls ---- */

bool chat_next_call(struct chat_sample *x, struct chat_call_piece *out)
{
    const struct tool_call *call =
        tool_calls_at(&x->calls, x->sent_calls, &out->ends);
    if (!call)
        return false;
    out->i = x->sent_calls;
    out->call = call;
    out->begins = !x->call_open;
    out->arguments = buf_text(&call->arguments) + x->sent_arguments;
    out->n = call->arguments.len - x->sent_arguments;
    if (!out->begins && !out->ends && !out->n)
        return false;
    x->call_open = !out->ends;
    x->sent_arguments = out->ends ? 0 : call->arguments.len;
    x->sent_calls += out->ends;
    return true;
}

/* ---- tokens and the end of a sample ---- */

int chat_token(void *ctx, const struct qwick_token_event *ev)
{
    struct chat_sample *x = ctx;
    struct chat_state *s = chat_of(x);
    struct qwick_token_event shown = *ev;
    bool thinks = ev->channel == QWICK_THINKING;
    if (s->warm)
        return 0;
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
        s->form->send(x, false);
    return x->sample.oom || s->all.why.status || chat_has_call(x);
}

/* Read what the answer has beyond its tokens: text that was held back, because
 * it could have begun a stop string or a character. */
static int chat_read_rest(struct chat_sample *x)
{
    const struct qwick_result *r = &x->sample.r;
    if (chat_of(x)->warm)
        return 0;
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
    const struct chat_form *form = chat_of(x)->form;
    form->send_begin(x);
    form->send(x, true);
    form->send_end(x);
}

/* ---- the end of the call ---- */

static struct openai_usage chat_usage(const struct chat_state *s)
{
    struct openai_usage u = {
        .n_prompt = s->r.n_ids, .details = true, .n_cached = SIZE_MAX};
    for (size_t i = 0; i < s->r.n; i++) {
        const struct chat_sample *x = chat_at(s, i);
        u.n_tokens += s->warm ? 0 : x->sample.r.n_tokens;
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
    if (s->form->send_last(s, usage))
        s->all.c->broken = true;
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
    s->form->write(s, a, usage, &w);
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
