/* Answers of /v1/completions: a completion, or a stream of chunks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "cli/answer/answer_json.h"
#include "cli/serve/completion_state.h"

/* While a client has not taken more bytes than these, text waits for the next
 * event. */
enum { MAX_UNSENT = 4096 };

static struct completion_state *state_of(const struct completion_sample *x)
{
    return (struct completion_state *)x->sample.all;
}

/* ---- log-probabilities ---- */

/* Append the name of a token: its text, or its bytes if they are no complete
 * characters. *n_chars is how many characters begin in it. */
static int token_name(struct buf *out, const struct qwick_engine *eng,
                      int32_t id, size_t *n_chars)
{
    char *text;
    size_t n;
    if (token_text(eng, id, &text, &n))
        return -1;
    bool whole = utf8_valid(text, n) == n;
    int bad = whole ? buf_append(out, text, n) : buf_puts(out, "bytes:");
    *n_chars = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        *n_chars += (c & 0xc0) != 0x80;
        if (!whole)
            bad |= buf_printf(out, "\\x%02x", c);
    }
    free(text);
    return bad;
}

/* Write candidate i, unless an earlier one has the same name: the likelier one
 * counts. names [i + 1] keeps the names. */
static int put_candidate(struct json_writer *w, const struct qwick_engine *eng,
                         struct buf *names, size_t i,
                         const struct qwick_logprob *candidate)
{
    size_t n_chars;
    struct buf *name = &names[i];
    if (token_name(name, eng, candidate->id, &n_chars))
        return -1;
    for (size_t k = 0; k < i; k++)
        if (names[k].len == name->len &&
            memcmp(buf_text(&names[k]), buf_text(name), name->len) == 0)
            return 0;
    jw_key(w, buf_text(name), name->len);
    jw_double(w, NULL, (double)candidate->logprob);
    return 0;
}

/* Append the candidates of a token as an object, the drawn one included. */
static int add_top(struct buf *out, const struct qwick_engine *eng,
                   const struct qwick_logprob *top, size_t n_top,
                   struct qwick_logprob own)
{
    struct buf names[COMPLETION_MAX_TOP + 1] = {0};
    struct json_writer w = json_writer(out);
    bool drawn = false;
    int bad = 0;
    jw_object(&w, NULL);
    for (size_t i = 0; i < n_top && !bad; i++) {
        drawn |= top[i].id == own.id;
        bad = put_candidate(&w, eng, names, i, &top[i]);
    }
    if (!drawn && !bad)
        bad = put_candidate(&w, eng, names, n_top, &own);
    jw_end_object(&w);
    for (size_t i = 0; i <= COMPLETION_MAX_TOP; i++)
        buf_free(&names[i]);
    return bad | jw_status(&w);
}

/* Append a token. top NULL: nothing predicted it. */
static int logprobs_add(struct completion_logprobs *l,
                        const struct qwick_engine *eng, int32_t id,
                        double logprob, const struct qwick_logprob *top,
                        size_t n_top)
{
    struct json_writer tokens = json_writer(&l->tokens);
    struct json_writer values = json_writer(&l->values);
    struct json_writer tops = json_writer(&l->tops);
    struct json_writer offsets = json_writer(&l->offsets);
    struct buf name = {0};
    size_t n_chars;
    int bad = token_name(&name, eng, id, &n_chars);
    jw_buf(&tokens, NULL, &name);
    jw_double(&values, NULL, top ? logprob : NAN);
    jw_uint(&offsets, NULL, l->at);
    l->at += n_chars;
    buf_free(&name);
    if (!top)
        jw_null(&tops, NULL);
    else
        bad |= add_top(&l->tops, eng, top, n_top,
                       (struct qwick_logprob){id, (float)logprob});
    return bad | jw_status(&tokens) | jw_status(&values) | jw_status(&tops) |
           jw_status(&offsets);
}

static void put_logprobs(struct json_writer *w,
                         const struct completion_logprobs *l)
{
    const struct {
        const char *name;
        const struct buf *items;
    } rows[] = {{"tokens", &l->tokens},
                {"token_logprobs", &l->values},
                {"top_logprobs", &l->tops},
                {"text_offset", &l->offsets}};
    jw_object(w, "logprobs");
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        jw_array(w, rows[i].name);
        jw_raw(w, NULL, rows[i].items->data, rows[i].items->len);
        jw_end_array(w);
    }
    jw_end_object(w);
}

void completion_logprobs_free(struct completion_logprobs *l)
{
    buf_free(&l->tokens);
    buf_free(&l->values);
    buf_free(&l->tops);
    buf_free(&l->offsets);
}

/* ---- choices ---- */

/* Write a choice with the text from `from` on. finish NULL: it goes on. */
static void put_choice(struct json_writer *w, const struct completion_sample *x,
                       size_t from, const char *finish)
{
    const struct buf *text = &x->text;
    jw_object(w, NULL);
    jw_string(w, "text", buf_text(text) + from, text->len - from);
    jw_uint(w, "index", x->index);
    if (state_of(x)->with_logprobs)
        put_logprobs(w, &x->logprobs);
    else
        jw_null(w, "logprobs");
    jw_cstr(w, "finish_reason", finish);
    jw_end_object(w);
}

static const char *finish_of(const struct completion_sample *x)
{
    return state_of(x)->empty ? "length"
                              : openai_finish(x->sample.r.finish, NULL);
}

/* Send the text that was not sent yet, with its log-probabilities. */
static void send_text(struct completion_sample *x, const char *finish)
{
    struct completion_state *s = state_of(x);
    struct completion_logprobs *l = &x->logprobs;
    struct buf json = {0};
    struct json_writer w = json_writer(&json);
    if (x->text.len == x->sent && !finish)
        return;
    openai_begin_choices(&w, NULL, &s->head, "text_completion");
    put_choice(&w, x, x->sent, finish);
    jw_end_array(&w);
    if (s->include_usage)
        jw_null(&w, "usage");
    jw_end_object(&w);
    if (jw_status(&w))
        x->sample.oom = true;
    else
        serve_event(s->all.c, NULL, json.data, json.len);
    buf_free(&json);
    x->sent = x->text.len;
    l->tokens.len = l->values.len = l->tops.len = l->offsets.len = 0;
}

/* ---- tokens and the end of a sample ---- */

/* Whether a token is part of the text: a control token, such as the stop token,
 * is none. */
static bool has_text(const struct qwick_engine *eng, int32_t id)
{
    char *text = NULL;
    size_t n = 0;
    bool bad = qwick_token_text(eng, id, true, &text, &n, NULL);
    free(text);
    return bad || n;
}

int completion_token(void *ctx, const struct qwick_token_event *ev)
{
    struct completion_sample *x = ctx;
    struct completion_state *s = state_of(x);
    const struct qwick_engine *eng = s->all.c->s->g.eng;
    x->n_text += ev->n_text;
    if (buf_append(&x->text, ev->text, ev->n_text) ||
        (s->with_logprobs && has_text(eng, ev->id) &&
         logprobs_add(&x->logprobs, eng, ev->id, (double)ev->logprob, ev->top,
                      s->n_top < ev->n_top ? s->n_top : ev->n_top)))
        x->sample.oom = true;
    if (s->all.c->stream && !x->sample.oom && !s->all.why.status &&
        http_unsent(s->all.c->http) <= MAX_UNSENT)
        send_text(x, NULL);
    return x->sample.oom || s->all.why.status;
}

void completion_echo(struct completion_sample *x)
{
    const struct completion_state *s = state_of(x);
    const struct completion_prompt *p = x->prompt;
    int bad = buf_append(&x->text, p->text.data, p->text.len);
    for (size_t i = p->n_hidden; p->logprobs && i < p->r.n_ids && !bad; i++)
        bad = logprobs_add(
            &x->logprobs, s->all.c->s->g.eng, p->r.ids[i], p->logprobs[i],
            i ? p->top + i * COMPLETION_MAX_TOP : NULL, s->n_top);
    x->sample.oom |= bad != 0;
}

void completion_end(struct sample *sample)
{
    struct completion_sample *x = (struct completion_sample *)sample;
    const struct qwick_result *r = &sample->r;
    /* text that was held back, because it could have begun a stop string or a
       character */
    if (r->n_text > x->n_text &&
        buf_append(&x->text, r->text + x->n_text, r->n_text - x->n_text))
        sample->oom = true;
}

void completion_send_end(struct sample *sample)
{
    struct completion_sample *x = (struct completion_sample *)sample;
    send_text(x, finish_of(x));
}

/* ---- the end of the call ---- */

static struct openai_usage usage_of(const struct completion_state *s)
{
    struct openai_usage u = {.details = true};
    size_t i = 0;
    for (size_t p = 0; p < s->n_prompts; p++) {
        size_t n_cached = SIZE_MAX;
        /* samples share the prompt, which was evaluated for one of them */
        for (size_t k = 0; k < s->prompts[p].r.n; k++, i++) {
            const struct qwick_result *r = &samples_at(&s->all, i)->r;
            u.n_tokens += r->n_tokens;
            n_cached = r->n_cached < n_cached ? r->n_cached : n_cached;
        }
        u.n_prompt += s->prompts[p].r.n_ids;
        u.n_cached += n_cached;
    }
    return u;
}

/* Append the answer, or with a stream the chunk that has only the usage. */
static void put_answer(struct json_writer *w, const struct completion_state *s)
{
    const struct openai_usage usage = usage_of(s);
    openai_begin_choices(w, NULL, &s->head, "text_completion");
    for (size_t i = 0; i < s->all.n && !s->all.c->stream; i++) {
        const struct completion_sample *x =
            (struct completion_sample *)samples_at(&s->all, i);
        put_choice(w, x, 0, finish_of(x));
    }
    jw_end_array(w);
    openai_put_usage(w, &usage);
    jw_end_object(w);
}

void completion_answer(struct samples *all)
{
    const struct completion_state *s = (struct completion_state *)all;
    struct buf json = {0};
    struct json_writer w = json_writer(&json);
    if (all->c->stream && !s->include_usage) {
        serve_done(all->c);
        return;
    }
    put_answer(&w, s);
    if (!all->c->stream) {
        serve_reply(all->c, &json);
        return;
    }
    if (jw_status(&w))
        all->c->broken = true;
    else
        serve_event(all->c, NULL, json.data, json.len);
    buf_free(&json);
    serve_done(all->c);
}
