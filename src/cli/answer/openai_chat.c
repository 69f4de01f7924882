#include "cli/answer/openai_chat.h"

#include <stdlib.h>

#include "cli/answer/answer_opts.h"

const char *openai_finish(enum qwick_finish why, const struct tool_calls *calls)
{
    if (answer_is_cut(why) || (calls && calls->cut))
        return "length";
    return calls && calls->n ? "tool_calls" : "stop";
}

/* ---- completions ---- */

static void openai_put_thinking(struct json_writer *w,
                                const struct openai_head *h, const char *text,
                                size_t n)
{
    jw_string(w, "reasoning_content", text, n);
    if (h->live)
        jw_string(w, "reasoning", text, n);
}

static void openai_put_logprobs(struct json_writer *w, const struct buf *items)
{
    jw_object(w, "logprobs");
    jw_array(w, "content");
    jw_raw(w, NULL, items->data, items->len);
    jw_end_array(w);
    jw_null(w, "refusal");
    jw_end_object(w);
}

static void openai_message(struct json_writer *w, const struct openai_head *h,
                           const struct json_answer *a)
{
    const struct qwick_result *r = a->r;
    const struct tool_calls *c = a->calls;
    const char *text = c ? c->text.data : r->text;
    size_t n = c ? c->text.len : r->n_text;
    jw_object(w, "message");
    jw_cstr(w, "role", "assistant");
    if (c && c->n && !n)
        jw_null(w, "content");
    else
        jw_string(w, "content", n ? text : "", n);
    if (r->thinking)
        openai_put_thinking(w, h, r->thinking, r->n_thinking);
    jw_null(w, "refusal");
    if (c && c->n) {
        jw_array(w, "tool_calls");
        for (size_t i = 0; i < c->n; i++)
            tool_calls_write(w, NULL, c, i);
        jw_end_array(w);
    }
    jw_end_object(w);
}

static void openai_choice(struct json_writer *w, const struct openai_head *h,
                          const struct json_answer *a, size_t index)
{
    jw_object(w, NULL);
    jw_uint(w, "index", index);
    openai_message(w, h, a);
    if (a->logprobs)
        openai_put_logprobs(w, a->logprobs);
    else
        jw_null(w, "logprobs");
    jw_cstr(w, "finish_reason", openai_finish(a->r->finish, a->calls));
    jw_end_object(w);
}

void openai_put_usage(struct json_writer *w, const struct openai_usage *u)
{
    jw_object(w, "usage");
    jw_uint(w, "prompt_tokens", u->n_prompt);
    jw_uint(w, "completion_tokens", u->n_tokens);
    jw_uint(w, "total_tokens", u->n_prompt + u->n_tokens);
    if (u->details) {
        jw_object(w, "prompt_tokens_details");
        jw_uint(w, "cached_tokens", u->n_cached);
        jw_end_object(w);
        jw_object(w, "completion_tokens_details");
        jw_uint(w, "reasoning_tokens", u->n_thinking);
        jw_end_object(w);
    }
    jw_end_object(w);
}

void openai_begin_choices(struct json_writer *w, const char *key,
                          const struct openai_head *h, const char *object)
{
    jw_object(w, key);
    jw_cstr(w, "id", h->id);
    jw_cstr(w, "object", object);
    jw_int(w, "created", h->created);
    jw_cstr(w, "model", h->model);
    if (h->live)
        jw_cstr(w, "system_fingerprint", "qwick-" QWICK_VERSION);
    jw_array(w, "choices");
}

void openai_completion(struct json_writer *w, const char *key,
                       const struct openai_head *h, const struct json_answer *a,
                       size_t n, const struct openai_usage *usage)
{
    openai_begin_choices(w, key, h, "chat.completion");
    for (size_t i = 0; i < n; i++)
        openai_choice(w, h, &a[i], i);
    jw_end_array(w);
    openai_put_usage(w, usage);
    jw_end_object(w);
}

/* ---- chunks ---- */

static const char chunk_object[] = "chat.completion.chunk";

/* Clients join the pieces of a call by its index; only the first one has its id
 * and name. */
static void openai_delta_call(struct json_writer *w,
                              const struct openai_delta *d)
{
    bool whole;
    jw_array(w, "tool_calls");
    jw_object(w, NULL);
    jw_uint(w, "index", d->call);
    if (!d->arguments) {
        tool_calls_write_id(w, d->calls, d->call);
        jw_cstr(w, "type", "function");
    }
    jw_object(w, "function");
    if (!d->arguments)
        jw_cstr(w, "name", tool_calls_at(d->calls, d->call, &whole)->name);
    jw_string(w, "arguments", d->arguments ? d->arguments : "", d->n_arguments);
    jw_end_object(w);
    jw_end_object(w);
    jw_end_array(w);
}

int openai_chunk(struct buf *out, const struct openai_head *h,
                 const struct openai_delta *d)
{
    struct json_writer w = json_writer(out);
    openai_begin_choices(&w, NULL, h, chunk_object);
    jw_object(&w, NULL);
    jw_uint(&w, "index", d->index);
    jw_object(&w, "delta");
    if (d->role) {
        jw_cstr(&w, "role", "assistant");
        jw_cstr(&w, "content", "");
    }
    if (d->thinking)
        openai_put_thinking(&w, h, d->thinking, d->n_thinking);
    if (d->text)
        jw_string(&w, "content", d->text, d->n_text);
    if (d->calls)
        openai_delta_call(&w, d);
    jw_end_object(&w);
    if (d->logprobs && d->logprobs->len)
        openai_put_logprobs(&w, d->logprobs);
    else
        jw_null(&w, "logprobs");
    jw_cstr(&w, "finish_reason", d->finish);
    jw_end_object(&w);
    jw_end_array(&w);
    if (h->null_usage)
        jw_null(&w, "usage");
    jw_end_object(&w);
    return jw_status(&w);
}

int openai_usage_chunk(struct buf *out, const struct openai_head *h,
                       const struct openai_usage *usage)
{
    struct json_writer w = json_writer(out);
    openai_begin_choices(&w, NULL, h, chunk_object);
    jw_end_array(&w);
    openai_put_usage(&w, usage);
    jw_end_object(&w);
    return jw_status(&w);
}

/* ---- logprobs ---- */

static void logprob_put_token(struct json_writer *w, const char *text, size_t n,
                              double logprob)
{
    jw_string(w, "token", text, n);
    jw_double(w, "logprob", logprob);
    jw_array(w, "bytes");
    for (size_t i = 0; i < n; i++)
        jw_int(w, NULL, (unsigned char)text[i]);
    jw_end_array(w);
}

static void logprob_put_id(struct json_writer *w,
                           const struct qwick_engine *eng, int32_t id,
                           float logprob)
{
    char *text;
    size_t n;
    if (token_text(eng, id, &text, &n))
        w->failed = true;
    logprob_put_token(w, text ? text : "", n, (double)logprob);
    free(text);
}

/* Whether a token is part of the message's content. */
static bool token_is_content(const struct qwick_engine *eng,
                             const struct qwick_token_event *ev)
{
    const struct qwick_info *i = qwick_engine_info(eng);
    char *text = NULL;
    size_t n = 0;
    if (ev->channel != QWICK_TEXT || ev->form || ev->id == i->think_open_id ||
        ev->id == i->think_close_id || !i->has_tokenizer)
        return false;
    /* a control token, such as the stop token, has no text here */
    bool bad = qwick_token_text(eng, ev->id, true, &text, &n, NULL);
    free(text);
    return bad || n;
}

int openai_logprobs(struct buf *items, const struct qwick_engine *eng,
                    const struct qwick_token_event *ev)
{
    struct json_writer w = json_writer(items);
    if (!token_is_content(eng, ev))
        return 0;
    jw_object(&w, NULL);
    logprob_put_id(&w, eng, ev->id, ev->logprob);
    jw_array(&w, "top_logprobs");
    for (size_t i = 0; i < ev->n_top; i++) {
        jw_object(&w, NULL);
        logprob_put_id(&w, eng, ev->top[i].id, ev->top[i].logprob);
        jw_end_object(&w);
    }
    jw_end_array(&w);
    jw_end_object(&w);
    return jw_status(&w);
}
