#include "cli/answer/answer_json.h"

#include <math.h>
#include <stdlib.h>

#include "base/utf8.h"

void json_ids(struct json_writer *w, const char *key, const int32_t *ids,
              size_t n)
{
    jw_array(w, key);
    for (size_t i = 0; i < n; i++)
        jw_int(w, NULL, ids[i]);
    jw_end_array(w);
}

int token_text(const struct qwick_engine *eng, int32_t id, char **text,
               size_t *n)
{
    *text = NULL;
    *n = 0;
    if (!qwick_engine_info(eng)->has_tokenizer)
        return 0;
    /* the id is valid, so the only possible failure is a lack of memory */
    return qwick_token_text(eng, id, false, text, n, NULL);
}

void json_text(struct json_writer *w, const char *s, size_t n)
{
    jw_string(w, "text", s, n);
    if (utf8_valid(s, n) == n)
        return;
    jw_array(w, "bytes");
    for (size_t i = 0; i < n; i++)
        jw_int(w, NULL, (unsigned char)s[i]);
    jw_end_array(w);
}

void json_token(struct json_writer *w, const struct qwick_engine *eng,
                int32_t id)
{
    char *text;
    size_t n;
    if (token_text(eng, id, &text, &n))
        w->failed = true;
    jw_int(w, "id", id);
    json_text(w, text ? text : "", n);
    free(text);
}

void json_logprob(struct json_writer *w, const struct qwick_engine *eng,
                  const struct qwick_token_event *ev)
{
    jw_double(w, "logprob", (double)ev->logprob);
    jw_array(w, "top");
    for (size_t i = 0; i < ev->n_top; i++) {
        jw_object(w, NULL);
        json_token(w, eng, ev->top[i].id);
        jw_double(w, "logprob", (double)ev->top[i].logprob);
        jw_end_object(w);
    }
    jw_end_array(w);
}

int json_logprobs(struct buf *items, const struct qwick_engine *eng,
                  const struct qwick_token_event *ev)
{
    struct json_writer w = json_writer(items);
    jw_object(&w, NULL);
    json_token(&w, eng, ev->id);
    json_logprob(&w, eng, ev);
    jw_end_object(&w);
    return jw_status(&w);
}

/* Write milliseconds, rounded to microseconds. */
static void json_ms(struct json_writer *w, const char *key, double ms)
{
    jw_double(w, key, round(ms * 1e3) / 1e3);
}

void json_timing(struct json_writer *w, const struct json_answer *a)
{
    const struct qwick_result *r = a->r;
    jw_object(w, "timing");
    json_ms(w, "load_ms", a->info->load_ms);
    json_ms(w, "tokenize_ms", a->tokenize_ms);
    json_ms(w, "prefill_ms", r->prefill_ms);
    jw_array(w, "per_token_ms");
    for (size_t i = 0; i < r->n_per_token; i++)
        json_ms(w, NULL, r->per_token_ms[i]);
    jw_end_array(w);
    json_ms(w, "total_ms", r->total_ms);
    if (a->profile)
        profile_json(w, "summary", a->profile);
    jw_end_object(w);
}

static void json_calls(struct json_writer *w, const struct tool_calls *c)
{
    jw_array(w, "tool_calls");
    for (size_t i = 0; i < c->n; i++)
        tool_calls_write(w, NULL, c, i);
    jw_end_array(w);
    if (c->error.len)
        jw_buf(w, "tool_calls_error", &c->error);
}

static void json_guesses(struct json_writer *w, const char *key,
                         size_t n_drafted, size_t n_accepted, size_t n_passes)
{
    jw_object(w, key);
    jw_uint(w, "drafted", n_drafted);
    jw_uint(w, "accepted", n_accepted);
    jw_uint(w, "passes", n_passes);
    jw_end_object(w);
}

void json_answer(struct json_writer *w, const struct json_answer *a)
{
    const struct qwick_result *r = a->r;
    const struct tool_calls *c = a->calls;
    if (c)
        jw_buf(w, "text", &c->text);
    else
        jw_string(w, "text", r->text ? r->text : "", r->n_text);
    if (r->thinking)
        jw_string(w, "thinking", r->thinking, r->n_thinking);
    else
        jw_null(w, "thinking");
    if (c)
        json_calls(w, c);
    if (a->block && a->block->state == CODE_BLOCK_CLOSED)
        jw_buf(w, "code", &a->block->content);
    else if (a->block)
        jw_null(w, "code");
    if (a->prompt)
        json_ids(w, "prompt_ids", a->prompt, a->n_prompt);
    json_ids(w, "tokens", r->tokens, r->n_tokens);
    jw_cstr(w, "finish_reason", qwick_finish_name(r->finish));
    if (a->schema != SCHEMA_UNCHECKED)
        jw_bool(w, "schema_valid", a->schema == SCHEMA_VALID);
    jw_object(w, "usage");
    jw_uint(w, "prompt_tokens", r->n_prompt);
    jw_uint(w, "completion_tokens", r->n_tokens);
    jw_uint(w, "cached_tokens", r->n_cached);
    if (a->show_dropped)
        jw_uint(w, "dropped_tokens", a->n_dropped);
    if (a->show_forced)
        jw_uint(w, "forced_tokens", r->n_forced);
    jw_end_object(w);
    jw_uint(w, "seed", r->seed);
    jw_cstr(w, "model", a->info->model);
    if (a->logprobs) {
        jw_array(w, "logprobs");
        jw_raw(w, NULL, a->logprobs->data, a->logprobs->len);
        jw_end_array(w);
    }
    if (r->lookup.max)
        json_guesses(w, "lookup", r->lookup.n_drafted, r->lookup.n_accepted,
                     r->lookup.n_passes);
    if (r->draft.on)
        json_guesses(w, "draft", r->draft.n_drafted, r->draft.n_accepted,
                     r->draft.n_passes);
    json_timing(w, a);
}
