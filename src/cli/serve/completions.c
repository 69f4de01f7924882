/* /v1/completions: reading requests, and their way through the batch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/answer/answer_json.h"
#include "cli/answer/fill_in.h"
#include "cli/answer/openai_body.h"
#include "cli/serve/body.h"
#include "cli/serve/completion_state.h"
#include "cli/serve/endpoints.h"

/* Tokens of an answer, unless the request says how many. */
enum { DEFAULT_MAX_TOKENS = 16 };

/* ---- the body ---- */

/* What all prompts of a body share. */
struct completion_body {
    const struct json_value *v;
    struct body_inputs prompts;
    const struct json_value *suffix; /* NULL: none */
    int64_t max_tokens, logprobs;    /* logprobs -1: none */
    struct buf shared;               /* members of each record */
};

/* Read the members that only this endpoint has. */
static int read_members(struct completion_state *s, struct completion_body *b,
                        struct serve_error *e)
{
    int64_t best_of = 1;
    b->max_tokens = DEFAULT_MAX_TOKENS;
    b->logprobs = -1;
    b->suffix = json_member(b->v, "suffix");
    if (body_inputs(b->v, "prompt", &b->prompts, e) ||
        body_bool(b->v, "echo", &s->echo, e) ||
        body_int(b->v, "max_tokens", 0, INT32_MAX, &b->max_tokens, e) ||
        body_int(b->v, "logprobs", 0, COMPLETION_MAX_TOP, &b->logprobs, e) ||
        body_int(b->v, "best_of", 1, INT32_MAX, &best_of, e))
        return -1;
    if (best_of != 1)
        return serve_refuse(e, "best_of", "best_of: only 1 is supported");
    if (b->suffix && !json_is(b->suffix, JSON_STRING))
        return serve_refuse(e, "suffix", "suffix: must be a string, is %s",
                            json_type_name(b->suffix));
    if (b->suffix && !b->suffix->len)
        b->suffix = NULL;
    if (b->suffix && s->echo && b->logprobs >= 0)
        return serve_refuse(e, "suffix",
                            "suffix: cannot be combined with echo "
                            "and logprobs");
    s->empty = b->max_tokens == 0;
    s->with_logprobs = b->logprobs >= 0;
    s->n_top = s->with_logprobs ? (size_t)b->logprobs : 0;
    return 0;
}

/* Read the members that chat completions have as well. */
static int read_shared(struct completion_state *s, struct completion_body *b,
                       struct serve_error *e)
{
    static const char *const others[] = {
        "prompt", "suffix", "echo", "logprobs", "best_of", "max_tokens", NULL};
    struct serve_call *c = s->all.c;
    struct body_reader x = {.warn = &c->s->requests,
                            .number = http_number(c->http)};
    struct json_writer w = json_writer(&b->shared);
    struct qwick_err why;
    c->s->requests.member_name = openai_member_name;
    body_begin(&x, b->v, &w, &why);
    if (openai_read_completion(&x, others))
        return body_fault(e, x.fault, &why);
    if (!s->empty)
        jw_int(&w, "max_tokens", b->max_tokens);
    if (s->with_logprobs)
        jw_int(&w, "logprobs", b->logprobs);
    s->include_usage = x.include_usage;
    c->stream = x.stream;
    if (!jw_status(&w))
        return 0;
    err_oom(&why, b->shared.len);
    return body_fault(e, NULL, &why);
}

/* ---- texts to fill in ---- */

/* Write a prompt that asks for the text between a prefix and a suffix. */
static int put_fill_in(struct json_writer *w, const struct qwick_engine *eng,
                       const struct json_value *prefix,
                       const struct json_value *suffix, struct serve_error *e)
{
    struct qwick_err why;
    int32_t *ids;
    size_t n;
    if (fill_in_encode(eng, "suffix", prefix->str, prefix->len, suffix->str,
                       suffix->len, false, &ids, &n, &why))
        return body_fault(e, "suffix", &why);
    json_ids(w, "prompt_ids", ids, n);
    free(ids);
    return 0;
}

/* ---- prompts ---- */

/* Write the record of prompt i. */
static int write_record(const struct completion_state *s,
                        const struct completion_body *b, size_t i,
                        struct buf *out, struct serve_error *e)
{
    const struct json_value *prompt = &b->prompts.items[i];
    bool is_text = json_is(prompt, JSON_STRING);
    struct json_writer w = json_writer(out);
    struct qwick_err why;
    jw_object(&w, NULL);
    if (b->suffix && !is_text)
        return serve_refuse(e, "suffix",
                            "suffix: needs a prompt that is a text");
    if (!b->suffix)
        jw_value(&w, is_text ? "prompt" : "prompt_ids", prompt);
    else if (put_fill_in(&w, s->all.c->s->g.eng, prompt, b->suffix, e))
        return -1;
    jw_raw(&w, NULL, b->shared.data, b->shared.len);
    jw_end_object(&w);
    if (!jw_status(&w))
        return 0;
    err_oom(&why, out->len);
    return body_fault(e, NULL, &why);
}

/* Set the text of a prompt for the echo. A text has no BOS, unless it begins
 * with it. */
static int read_echo(struct completion_prompt *p,
                     const struct qwick_engine *eng,
                     const struct json_value *prompt, struct serve_error *e)
{
    const struct request *r = &p->r;
    int32_t bos = qwick_engine_info(eng)->bos_id;
    struct qwick_err why;
    char *text;
    size_t n;
    int bad;
    if (json_is(prompt, JSON_STRING)) {
        bad = buf_append(&p->text, prompt->str, prompt->len);
    } else {
        if (qwick_detokenize(eng, r->ids, r->n_ids, false, &text, &n, &why))
            return body_fault(e, "prompt", &why);
        bad = buf_append(&p->text, text, n);
        free(text);
    }
    if (!bad && json_is(prompt, JSON_STRING) && bos >= 0 && r->ids[0] == bos) {
        if (qwick_token_text(eng, bos, false, &text, &n, &why))
            return body_fault(e, "prompt", &why);
        p->n_hidden = prompt->len < n || memcmp(prompt->str, text, n) != 0;
        free(text);
    }
    if (!bad)
        return 0;
    err_oom(&why, prompt->len);
    return body_fault(e, NULL, &why);
}

static int read_prompt(struct completion_state *s,
                       const struct completion_body *b, size_t i,
                       struct serve_error *e)
{
    struct completion_prompt *p = &s->prompts[i];
    struct serve_call *c = s->all.c;
    /* prompts of a call have numbers, and so random seeds, of their own */
    uint64_t number = http_number(c->http) + ((uint64_t)i << 40);
    struct buf record = {0};
    struct qwick_err why;
    int rc = write_record(s, b, i, &record, e);
    if (!rc) {
        rc = request_open(&p->r, &c->s->requests, number, record.data,
                          record.len, &why);
        p->r.raw = true;
        if (rc || (rc = request_read(&p->r, &why)) != 0)
            body_fault(e, p->r.fault, &why);
    }
    buf_free(&record);
    if (rc || samples_check(c->s, &p->r, "prompt", e))
        return -1;
    return s->echo ? read_echo(p, c->s->g.eng, &b->prompts.items[i], e) : 0;
}

/* Make room for the log-probabilities of the prompts. */
static int make_items(struct completion_state *s, struct serve_error *e)
{
    struct qwick_err why;
    s->items = calloc(s->n_prompts, sizeof(*s->items));
    for (size_t i = 0; s->items && i < s->n_prompts; i++) {
        struct completion_prompt *p = &s->prompts[i];
        p->logprobs = calloc(p->r.n_ids, sizeof(*p->logprobs));
        p->top = calloc(p->r.n_ids, COMPLETION_MAX_TOP * sizeof(*p->top));
        s->items[i] = (struct qwick_score_item){
            .tokens = p->r.ids, .n = p->r.n_ids, .logprobs = p->logprobs};
        if (!p->logprobs || !p->top) {
            free(s->items);
            s->items = NULL;
        }
    }
    if (s->items)
        return 0;
    err_oom(&why, s->n_prompts * sizeof(*s->items));
    return body_fault(e, NULL, &why);
}

static int read_prompts(struct completion_state *s,
                        const struct completion_body *b, struct serve_error *e)
{
    struct qwick_err why;
    s->prompts = calloc(b->prompts.n, sizeof(*s->prompts));
    if (!s->prompts) {
        err_oom(&why, b->prompts.n * sizeof(*s->prompts));
        return body_fault(e, NULL, &why);
    }
    for (; s->n_prompts < b->prompts.n; s->n_prompts++)
        if (read_prompt(s, b, s->n_prompts, e)) {
            s->n_prompts++; /* it may have memory */
            return -1;
        }
    return s->echo && s->with_logprobs ? make_items(s, e) : 0;
}

static int make_samples(struct completion_state *s, struct serve_error *e)
{
    size_t n = s->prompts[0].r.n; /* of each prompt */
    if (samples_create(&s->all, s->n_prompts * n,
                       sizeof(struct completion_sample), e))
        return -1;
    for (size_t i = 0; i < s->all.n; i++) {
        struct completion_sample *x =
            (struct completion_sample *)samples_at(&s->all, i);
        x->prompt = &s->prompts[i / n];
        x->index = i;
    }
    return 0;
}

static int read_body(struct completion_state *s, struct json_doc **doc,
                     struct completion_body *b, struct serve_error *e)
{
    if (body_read(s->all.c, NULL, doc, e))
        return -1;
    b->v = json_root(*doc);
    return read_members(s, b, e) || read_shared(s, b, e) ||
                   read_prompts(s, b, e) || make_samples(s, e)
               ? -1
               : 0;
}

int completion_prepare(struct serve_call *c, struct serve_error *e)
{
    struct completion_state *s = body_state(c, sizeof(*s), e);
    struct completion_body b = {0};
    struct json_doc *doc = NULL;
    if (!s)
        return -1;
    s->all = (struct samples){.c = c,
                              .end = completion_end,
                              .send_end = completion_send_end,
                              .answer = completion_answer};
    bool bad = read_body(s, &doc, &b, e);
    bool stream = c->stream && !bad;
    c->stream = false; /* an error of preparation has its status */
    json_free(doc);
    buf_free(&b.shared);
    if (bad)
        return -1;
    samples_make_head(c, "cmpl-", s->id, &s->head);
    if (stream)
        serve_stream(c);
    return 0;
}

/* ---- the batch ---- */

/* Queue all samples. An answer of no tokens needs none. */
static int queue_samples(struct completion_state *s, struct serve_error *e)
{
    struct qwick_err why;
    int rc = 0;
    for (size_t i = 0; i < s->all.n; i++) {
        struct sample *x = samples_at(&s->all, i);
        if (s->echo)
            completion_echo((struct completion_sample *)x);
        if (x->oom) {
            err_oom(&why, 0);
            return body_fault(e, NULL, &why);
        }
        if (s->empty && s->all.c->stream)
            completion_send_end(x);
    }
    if (s->empty) {
        completion_answer(&s->all);
        return 0;
    }
    for (size_t i = 0; i < s->all.n && !rc; i++) {
        const struct request *r =
            &((struct completion_sample *)samples_at(&s->all, i))->prompt->r;
        rc = samples_queue(&s->all, i, r, i % r->n, completion_token, e);
    }
    return rc < 0 ? -1 : 0;
}

/* A token of a prompt has been scored. */
static int prompt_token(void *ctx, const struct qwick_score_event *ev)
{
    struct completion_state *s = ctx;
    memcpy(s->prompts[ev->item].top + ev->index * COMPLETION_MAX_TOP, ev->top,
           ev->n_top * sizeof(*ev->top));
    return 0;
}

int completion_start(struct serve_call *c, struct serve_error *e)
{
    struct completion_state *s = c->state;
    const struct qwick_score_options o = {.size = sizeof(o),
                                          .n_ctx = (size_t)c->s->a->ctx,
                                          .progress = slice_layer,
                                          .progress_ctx = c->s,
                                          .interrupt = slice_interrupt(c),
                                          .on_score = prompt_token,
                                          .on_score_ctx = s,
                                          .top = s->n_top};
    struct qwick_err why;
    if (!s->items)
        return queue_samples(s, e);
    return qwick_scorer_create(&s->scorer, c->s->g.eng, s->items, s->n_prompts,
                               &o, &why)
               ? body_fault(e, "prompt", &why)
               : 1;
}

/* Score prompts, before their answers. */
int completion_slice(struct serve_call *c, struct serve_error *e)
{
    struct completion_state *s = c->state;
    struct qwick_err why;
    bool more;
    if (qwick_scorer_step(s->scorer, &more, &why))
        return slice_fault(e, &why);
    /* samples that are queued now would not be cancelled */
    if (more || atomic_load(&c->stop))
        return 1;
    qwick_scorer_free(s->scorer);
    s->scorer = NULL;
    return queue_samples(s, e);
}

void completion_cancel(struct serve_call *c)
{
    struct completion_state *s = c->state;
    samples_cancel(&s->all);
}

bool completion_waits(const struct serve_call *c)
{
    const struct completion_state *s = c->state;
    return samples_wait(&s->all);
}

void completion_free(struct serve_call *c)
{
    struct completion_state *s = c->state;
    qwick_scorer_free(s->scorer);
    for (size_t i = 0; i < s->all.n; i++) {
        struct completion_sample *x =
            (struct completion_sample *)samples_at(&s->all, i);
        buf_free(&x->text);
        completion_logprobs_free(&x->logprobs);
    }
    samples_free(&s->all);
    for (size_t i = 0; i < s->n_prompts; i++) {
        request_free(&s->prompts[i].r);
        buf_free(&s->prompts[i].text);
        free(s->prompts[i].logprobs);
        free(s->prompts[i].top);
    }
    free(s->prompts);
    free(s->items);
    free(s);
}
