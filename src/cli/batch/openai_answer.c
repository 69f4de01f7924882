/* Answers in OpenAI's batch format. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/answer/answer_opts.h"
#include "cli/batch/batch_form.h"

/* The beginning of "id", which holds what a later run must know: the number of
 * the record's line, and its key. */
static const char id_head[] = "batch_req_";

static void openai_begin(struct json_writer *w, const struct batch_line *l)
{
    char id[64];
    int n = snprintf(id, sizeof(id), "%s%llu_%s", id_head,
                     (unsigned long long)l->line, l->key);
    jw_object(w, NULL);
    jw_string(w, "id", id, (size_t)n);
    if (l->id->len)
        jw_raw(w, "custom_id", l->id->data, l->id->len);
    else
        jw_null(w, "custom_id");
}

/* OpenAI's word for the end of an answer. Every cut is "length". */
static const char *openai_finish(const struct json_answer *a)
{
    if (answer_is_cut(a->r->finish))
        return "length";
    return a->calls && a->calls->n ? "tool_calls" : "stop";
}

static void openai_message(struct json_writer *w, const struct json_answer *a)
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
        jw_string(w, "reasoning_content", r->thinking, r->n_thinking);
    jw_null(w, "refusal");
    if (c && c->n) {
        jw_array(w, "tool_calls");
        for (size_t i = 0; i < c->n; i++)
            tool_calls_write(w, NULL, c, i);
        jw_end_array(w);
    }
    jw_end_object(w);
}

static void openai_choice(struct json_writer *w, const struct json_answer *a)
{
    jw_object(w, NULL);
    jw_int(w, "index", 0);
    openai_message(w, a);
    if (a->logprobs) {
        jw_object(w, "logprobs");
        jw_array(w, "content");
        jw_raw(w, NULL, a->logprobs->data, a->logprobs->len);
        jw_end_array(w);
        jw_null(w, "refusal");
        jw_end_object(w);
    } else {
        jw_null(w, "logprobs");
    }
    jw_cstr(w, "finish_reason", openai_finish(a));
    jw_end_object(w);
}

/* "created" is 0, so that equal runs write equal bytes. */
static void openai_completion(struct json_writer *w, const struct batch_line *l,
                              const struct json_answer *a)
{
    char id[64];
    int n = snprintf(id, sizeof(id), "chatcmpl-%s-%llu", l->key + 9,
                     (unsigned long long)l->line);
    jw_object(w, "body");
    jw_string(w, "id", id, (size_t)n);
    jw_cstr(w, "object", "chat.completion");
    jw_int(w, "created", 0);
    jw_cstr(w, "model", a->info->model);
    jw_array(w, "choices");
    openai_choice(w, a);
    jw_end_array(w);
    jw_object(w, "usage");
    jw_uint(w, "prompt_tokens", a->r->n_prompt);
    jw_uint(w, "completion_tokens", a->r->n_tokens);
    jw_uint(w, "total_tokens", a->r->n_prompt + a->r->n_tokens);
    jw_end_object(w);
    jw_end_object(w);
}

static void openai_answer(struct json_writer *w, const struct batch_line *l,
                          const struct batch_answer *a)
{
    char id[64];
    int n = snprintf(id, sizeof(id), "req_%s_%llu", l->key + 9,
                     (unsigned long long)l->line);
    openai_begin(w, l);
    jw_object(w, "response");
    jw_int(w, "status_code", 200);
    jw_string(w, "request_id", id, (size_t)n);
    openai_completion(w, l, &a->a);
    jw_end_object(w);
    jw_null(w, "error");
    if (a->incomplete)
        jw_bool(w, "incomplete", true);
    jw_end_object(w);
}

static const char *openai_error_code(enum qwick_err_code code)
{
    switch (code) {
    case QWICK_ERR_USAGE:
        return "invalid_request";
    case QWICK_ERR_CONTEXT:
        return "context_length_exceeded";
    default:
        return "server_error";
    }
}

static void openai_error(struct json_writer *w, const struct batch_line *l,
                         const struct qwick_err *why)
{
    openai_begin(w, l);
    jw_null(w, "response");
    jw_object(w, "error");
    jw_cstr(w, "code", openai_error_code(why->code));
    jw_cstr(w, "message", why->msg);
    jw_end_object(w);
    jw_end_object(w);
}

/* ---- logprobs ----------------------------------------------------------- */

static void openai_put_token(struct json_writer *w, const char *text, size_t n,
                             double logprob)
{
    jw_string(w, "token", text, n);
    jw_double(w, "logprob", logprob);
    jw_array(w, "bytes");
    for (size_t i = 0; i < n; i++)
        jw_int(w, NULL, (unsigned char)text[i]);
    jw_end_array(w);
}

static void openai_put_id(struct json_writer *w, const struct qwick_engine *eng,
                          int32_t id, float logprob)
{
    char *text;
    size_t n;
    if (token_text(eng, id, &text, &n))
        w->failed = true;
    openai_put_token(w, text ? text : "", n, (double)logprob);
    free(text);
}

/* Whether a token is part of the message's content. */
static bool openai_is_content(const struct qwick_engine *eng,
                              const struct qwick_token_event *ev)
{
    const struct qwick_info *i = qwick_engine_info(eng);
    char *text = NULL;
    size_t n = 0;
    if (ev->channel != QWICK_TEXT || ev->id == i->think_open_id ||
        ev->id == i->think_close_id || !i->has_tokenizer)
        return false;
    /* a control token, such as the stop token, has no text here */
    bool bad = qwick_token_text(eng, ev->id, true, &text, &n, NULL);
    free(text);
    return bad || n;
}

static int openai_token(struct buf *items, const struct qwick_engine *eng,
                        const struct qwick_token_event *ev)
{
    struct json_writer w = json_writer(items);
    if (!openai_is_content(eng, ev))
        return 0;
    jw_object(&w, NULL);
    openai_put_id(&w, eng, ev->id, ev->logprob);
    jw_array(&w, "top_logprobs");
    for (size_t i = 0; i < ev->n_top; i++) {
        jw_object(&w, NULL);
        openai_put_id(&w, eng, ev->top[i].id, ev->top[i].logprob);
        jw_end_object(&w);
    }
    jw_end_array(&w);
    jw_end_object(&w);
    return jw_status(&w);
}

/* ---- reading ------------------------------------------------------------ */

/* Read the number of the line and the key from "id". */
static bool openai_read_id(const char *id, struct batch_read *r)
{
    size_t skip = sizeof(id_head) - 1;
    if (strncmp(id, id_head, skip) != 0)
        return false;
    for (id += skip; *id >= '0' && *id <= '9'; id++) {
        r->line = r->line * 10 + (*id - '0');
        if (r->line > (int64_t)1 << 53)
            return false;
    }
    r->key = id + 1;
    return r->line > 0 && *id == '_' && strlen(r->key) == BATCH_KEY_LEN;
}

static bool openai_read(const struct json_value *v, struct batch_read *r)
{
    const struct json_value *id = json_get(v, "id");
    const struct json_value *choices =
        json_get(json_get(json_get(v, "response"), "body"), "choices");
    const struct json_value *choice =
        json_is(choices, JSON_ARRAY) && choices->len ? choices->items : NULL;
    const struct json_value *message = json_get(choice, "message");
    const struct json_value *why = json_get(choice, "finish_reason");
    *r = (struct batch_read){
        .id = json_get(v, "custom_id"),
        .error = json_is(json_get(v, "error"), JSON_OBJECT),
        .incomplete = json_get(v, "incomplete"),
        .finish = json_equals(why, "tool_calls") ? "stop"
                  : json_is(why, JSON_STRING)    ? why->str
                                                 : NULL,
        .text = json_get(message, "content"),
        .calls = json_get(message, "tool_calls"),
    };
    return json_is(id, JSON_STRING) && openai_read_id(id->str, r) &&
           (r->error || r->finish);
}

const struct output_form form_openai = {
    .name = "OpenAI's batch format",
    .head = "{\"id\":\"batch_req_",
    .max_samples = 1,
    .answer = openai_answer,
    .error = openai_error,
    .token = openai_token,
    .read = openai_read,
};
