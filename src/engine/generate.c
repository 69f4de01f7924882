/* The generation loop: sync, sample, decode until something says stop. */
#include "base/buf.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "engine/sampler.h"
#include "engine/stream.h"

#include <stdlib.h>
#include <string.h>

struct qwick_generate_options qwick_generate_defaults(void)
{
    return (struct qwick_generate_options){
        .sampling = qwick_sampling_neutral(),
    };
}

struct qwick_sampling qwick_sampling_neutral(void)
{
    return (struct qwick_sampling){
        .temperature = 1, .top_p = 1, .repeat_penalty = 1};
}

struct qwick_sampling qwick_sampling_defaults(const struct qwick_engine *eng,
                                              bool think_off)
{
    const struct config *c = &eng->model.config;
    struct qwick_sampling o = qwick_sampling_neutral();
    if (!c->do_sample) {
        o.temperature = 0;
        return o;
    }
    o.temperature = (float)c->temperature;
    o.top_k = (int)c->top_k;
    o.top_p = (float)c->top_p;
    o.min_p = (float)c->min_p;
    o.repeat_penalty = (float)c->repetition_penalty;
    /* Qwen3's files carry the values for thinking; its model card gives others
     * for plain answers. */
    if (think_off && c->temperature == 0.6 && c->top_p == 0.95 &&
        c->top_k == 20) {
        o.temperature = 0.7f;
        o.top_p = 0.8f;
    }
    return o;
}

const char *qwick_finish_name(enum qwick_finish f)
{
    static const char *const names[] = {
        [QWICK_FINISH_STOP] = "stop",
        [QWICK_FINISH_STOP_STRING] = "stop_string",
        [QWICK_FINISH_LENGTH] = "length",
        [QWICK_FINISH_CONTEXT] = "context",
        [QWICK_FINISH_LOOP] = "loop",
        [QWICK_FINISH_INTERRUPTED] = "interrupted",
    };
    return names[f];
}

struct generation {
    struct qwick_session *s;
    const struct qwick_generate_options *o;
    struct qwick_result *r;
    struct sampler *sampler;
    struct stream stream;
    unsigned char *blocked;
    struct qwick_logprob *top; /* [n_top] */
    size_t n_top;
    size_t *borders; /* [loop_guard] of has_loop */
    size_t cap_tokens, cap_times;
};

static bool is_stop(const struct qwick_engine *eng, int32_t id)
{
    const struct config *c = &eng->model.config;
    for (size_t i = 0; i < c->n_stop_ids; i++)
        if (c->stop_ids[i] == id)
            return true;
    return false;
}

/* Whether the last n ids repeat one period at least three times: the longest
 * border of the window gives its shortest period (Knuth, Morris, Pratt). */
static bool has_loop(const int32_t *ids, size_t n_ids, size_t n, size_t *border)
{
    if (n == 0 || n_ids < n)
        return false;
    const int32_t *w = ids + n_ids - n;
    size_t k = 0;
    border[0] = 0;
    for (size_t i = 1; i < n; i++) {
        while (k > 0 && w[i] != w[k])
            k = border[k - 1];
        if (w[i] == w[k])
            k++;
        border[i] = k;
    }
    return n - border[n - 1] <= n / 3;
}

static int prepare(struct generation *g, const int32_t *prompt, size_t n,
                   struct qwick_err *e)
{
    const struct qwick_engine *eng = g->s->eng;
    const struct config *c = &eng->model.config;
    for (size_t i = 0; i < g->o->n_stop; i++)
        if (!*g->o->stop[i])
            return err_set(e, QWICK_ERR_USAGE, "stop string: is empty");
    if (g->o->ignore_eos) {
        g->blocked = calloc(c->vocab_size, 1);
        if (!g->blocked)
            return err_oom(e, c->vocab_size);
        if (eng->blocked)
            memcpy(g->blocked, eng->blocked, c->vocab_size);
        for (size_t i = 0; i < c->n_stop_ids; i++)
            g->blocked[c->stop_ids[i]] = 1;
    }
    g->n_top = g->o->logprobs < c->vocab_size ? g->o->logprobs : c->vocab_size;
    if (g->n_top) {
        g->top = malloc(g->n_top * sizeof *g->top);
        if (!g->top)
            return err_oom(e, g->n_top * sizeof *g->top);
    }
    if (g->o->loop_guard) {
        size_t n_bytes;
        if (g->o->loop_guard < 3)
            return err_set(e, QWICK_ERR_USAGE,
                           "loop guard: must be at least 3, is %zu",
                           g->o->loop_guard);
        g->borders = size_mul(g->o->loop_guard, sizeof *g->borders, &n_bytes)
                         ? NULL
                         : malloc(n_bytes);
        if (!g->borders)
            return err_oom(e, g->o->loop_guard);
    }
    if (sampler_create(&g->sampler, &g->o->sampling, c->vocab_size,
                       g->blocked ? g->blocked : eng->blocked, eng->model.k, e))
        return -1;
    for (size_t i = 0; i < n; i++)
        sampler_see_prompt(g->sampler, prompt[i]);
    return 0;
}

/* Room for one more entry, made outside of any timed step where possible. */
static int grow(void **p, size_t *cap, size_t n, size_t elem,
                struct qwick_err *e)
{
    if (n < *cap)
        return 0;
    size_t more = *cap ? *cap * 2 : 256;
    void *q = realloc(*p, more * elem);
    if (!q)
        return err_oom(e, more * elem);
    *p = q;
    *cap = more;
    return 0;
}

/* Draw one token from the session's logits and record it. */
static int sample(struct generation *g, int32_t *id, struct qwick_err *e)
{
    struct qwick_result *r = g->r;
    void *tokens = r->tokens;
    if (grow(&tokens, &g->cap_tokens, r->n_tokens, sizeof *r->tokens, e))
        return -1;
    r->tokens = tokens;
    if (sampler_draw(g->sampler, g->s->logits, id, e))
        return -1;
    r->tokens[r->n_tokens++] = *id;
    return 0;
}

/* Why the generation ends with this token, if it does. */
static bool ends(struct generation *g, int32_t id, enum qwick_finish *why)
{
    const struct qwick_generate_options *o = g->o;
    if (is_stop(g->s->eng, id))
        *why = QWICK_FINISH_STOP;
    else if (session_interrupted(g->s))
        *why = QWICK_FINISH_INTERRUPTED;
    else if (has_loop(g->r->tokens, g->r->n_tokens, o->loop_guard, g->borders))
        *why = QWICK_FINISH_LOOP;
    else if (o->max_tokens && g->r->n_tokens >= o->max_tokens)
        *why = QWICK_FINISH_LENGTH;
    else if (g->s->kv.n >= g->s->limit) /* it could not be evaluated */
        *why = QWICK_FINISH_CONTEXT;
    else
        return false;
    return true;
}

/* Text of a token: nothing for stop ids and special added tokens. */
static const char *visible(const struct qwick_engine *eng, int32_t id,
                           size_t *n)
{
    *n = 0;
    if (!eng->bpe || is_stop(eng, id) || bpe_is_special(eng->bpe, id))
        return "";
    const char *p = bpe_token(eng->bpe, id, n);
    return p ? p : "";
}

/* Split, hold back and hand out one token. *done and r->finish tell whether it
 * was the last. */
static int emit(struct generation *g, int32_t id, bool *done,
                struct qwick_err *e)
{
    const struct qwick_engine *eng = g->s->eng;
    struct stream *st = &g->stream;
    struct qwick_token_event ev = {.id = id, .channel = st->channel};
    *done = ends(g, id, &g->r->finish);
    size_t from, n;
    bool stopped = false;
    bool think = !g->o->no_think && id >= 0;
    int rc;
    if (think && (id == eng->think_open || id == eng->think_close)) {
        rc = stream_switch(
            st, id == eng->think_open ? QWICK_THINKING : QWICK_TEXT, &from);
    } else {
        const char *p = visible(eng, id, &n);
        rc = stream_add(st, p, n, *done, &from, &stopped);
    }
    if (rc)
        return err_oom(e, st->held.len + st->text.len + st->thinking.len);
    if (stopped) {
        g->r->finish = QWICK_FINISH_STOP_STRING;
        *done = true;
    }
    if (!g->o->on_token)
        return 0;
    struct buf *out = stream_buf(st, ev.channel);
    ev.text = out->data ? out->data + from : "";
    ev.n_text = out->len - from;
    if (g->n_top) {
        ev.top = g->top;
        ev.n_top = g->n_top;
        sampler_logprobs(g->sampler, g->s->logits, g->top, ev.n_top, id,
                         &ev.logprob);
    }
    if (g->o->on_token(g->o->on_token_ctx, &ev)) {
        g->r->finish = QWICK_FINISH_INTERRUPTED;
        *done = true;
    }
    return 0;
}

static int note_times(struct generation *g, double step, double sampling,
                      struct qwick_err *e)
{
    struct qwick_result *r = g->r;
    size_t cap = g->cap_times;
    void *a = r->per_token_ms, *b = r->sample_ms;
    if (grow(&a, &cap, r->n_per_token, sizeof(double), e))
        return -1;
    r->per_token_ms = a;
    if (grow(&b, &g->cap_times, r->n_per_token, sizeof(double), e))
        return -1;
    r->sample_ms = b;
    r->per_token_ms[r->n_per_token] = step;
    r->sample_ms[r->n_per_token++] = sampling;
    return 0;
}

/* Decode steps after the first token. Reads no clock unless profiling. */
static int decode(struct generation *g, int32_t id, struct qwick_err *e)
{
    bool done = false, profile = g->o->profile;
    double start = profile ? clock_ms() : 0;
    while (!done) {
        if (qwick_session_decode(g->s, id, e))
            return -1;
        double mid = profile ? clock_ms() : 0;
        if (sample(g, &id, e))
            return -1;
        double sampled = profile ? clock_ms() : 0;
        if (emit(g, id, &done, e))
            return -1;
        if (profile) {
            double end = clock_ms();
            if (note_times(g, end - start, sampled - mid, e))
                return -1;
            start = end;
        }
    }
    return 0;
}

/* What was released becomes the result's; there is always a text. */
static int take_text(struct generation *g, struct qwick_err *e)
{
    struct stream *st = &g->stream;
    if (buf_reserve(&st->text, 0))
        return err_oom(e, 1);
    g->r->text = buf_take(&st->text, &g->r->n_text);
    if (st->thought)
        g->r->thinking = buf_take(&st->thinking, &g->r->n_thinking);
    return 0;
}

static int run(struct generation *g, const int32_t *prompt, size_t n,
               struct qwick_err *e)
{
    struct qwick_result *r = g->r;
    double start = clock_ms();
    struct qwick_err why;
    if (qwick_session_sync(g->s, prompt, n, &why)) {
        r->n_cached = g->s->n_cached;
        r->total_ms = r->prefill_ms = clock_ms() - start;
        if (session_interrupted(g->s) &&
            !strcmp(why.msg, SESSION_INTERRUPTED)) {
            r->finish = QWICK_FINISH_INTERRUPTED;
            return take_text(g, e);
        }
        if (e)
            *e = why;
        return -1;
    }
    r->n_cached = g->s->n_cached;
    int32_t id;
    if (sample(g, &id, e))
        return -1;
    r->prefill_ms = clock_ms() - start;
    bool done;
    if (emit(g, id, &done, e) || (!done && decode(g, id, e)))
        return -1;
    r->total_ms = clock_ms() - start;
    return take_text(g, e);
}

int qwick_generate(struct qwick_session *s, const int32_t *prompt, size_t n,
                   const struct qwick_generate_options *o,
                   struct qwick_result *r, struct qwick_err *e)
{
    *r = (struct qwick_result){.seed = o->sampling.seed, .n_prompt = n};
    struct generation g = {.s = s, .o = o, .r = r};
    stream_init(&g.stream, o->stop, o->n_stop, o->in_think && !o->no_think);
    int rc = -1;
    for (size_t i = 0; i < n; i++) {
        if (prompt[i] < 0 ||
            (size_t)prompt[i] >= s->eng->model.config.vocab_size) {
            err_set(e, QWICK_ERR_USAGE,
                    "prompt: token id %d is out of range, the vocabulary has "
                    "%zu",
                    prompt[i], s->eng->model.config.vocab_size);
            goto done;
        }
    }
    if (!prepare(&g, prompt, n, e))
        rc = run(&g, prompt, n, e);
done:
    sampler_free(g.sampler);
    stream_free(&g.stream);
    free(g.blocked);
    free(g.top);
    free(g.borders);
    return rc;
}

void qwick_result_free(struct qwick_result *r)
{
    free(r->tokens);
    free(r->text);
    free(r->thinking);
    free(r->per_token_ms);
    free(r->sample_ms);
    *r = (struct qwick_result){0};
}
