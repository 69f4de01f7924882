#include "engine/generate/generate.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/flag.h"
#include "engine/core/options.h"
#include "engine/core/template_probe.h"
#include "engine/generate/constraint.h"
#include "engine/generate/speculative.h"

_Static_assert(QWICK_LOOKUP_MAX == LOOKUP_MAX, "the public header says so");

void qwick_sampling_read(const struct qwick_engine *eng, bool thinking,
                         struct qwick_sampling *out, size_t size)
{
    const struct config *c = &eng->model.config;
    struct qwick_sampling o = qwick_sampling_neutral();
    o.repeat_penalty = (float)c->repetition_penalty;
    o.temperature = c->do_sample ? (float)c->temperature : 0;
    if (c->do_sample) {
        o.top_k = (int)c->top_k;
        o.top_p = (float)c->top_p;
        o.min_p = (float)c->min_p;
    }
    /* Qwen3's generation_config.json has the values for thinking. Its model
     * card gives other values for answers without thinking. */
    if (c->do_sample && !thinking && c->temperature == 0.6 &&
        c->top_p == 0.95 && c->top_k == 20) {
        o.temperature = 0.7f;
        o.top_p = 0.8f;
    }
    options_init(out, size, &o, sizeof o);
}

int generation_read_sampling(struct qwick_sampling *o,
                             const struct qwick_sampling *given,
                             struct qwick_err *e)
{
    *o = qwick_sampling_neutral();
    return options_read(o, sizeof *o, given, "sampling", e);
}

int generation_read_options(struct qwick_generate_options *o,
                            struct qwick_sampling *sampling,
                            const struct qwick_generate_options *given,
                            struct qwick_err *e)
{
    *o = qwick_generate_defaults();
    if (options_read(o, sizeof *o, given, "generate", e) ||
        generation_read_sampling(sampling, o->sampling, e))
        return -1;
    o->sampling = sampling;
    return 0;
}

int qwick_check_generation(const struct qwick_engine *eng,
                           const struct qwick_sampling *given,
                           struct qwick_err *e)
{
    const struct config *c = &eng->model.config;
    struct qwick_sampling o;
    if (generation_read_sampling(&o, given, e))
        return -1;
    const char *why = *c->unsupported      ? c->unsupported
                      : o.temperature != 0 ? c->unsupported_draw
                                           : "";
    char path[512];
    checkpoint_path(eng->ck, "generation_config.json", path, sizeof path);
    return *why ? err_set(e, QWICK_ERR_MODEL, "%s: %s", path, why) : 0;
}

const char *qwick_finish_name(enum qwick_finish f)
{
    static const char *const names[] = {
        [QWICK_FINISH_STOP] = "stop",
        [QWICK_FINISH_STOP_STRING] = "stop_string",
        [QWICK_FINISH_LENGTH] = "length",
        [QWICK_FINISH_CONTEXT] = "context",
        [QWICK_FINISH_LOOP] = "loop",
        [QWICK_FINISH_TIMEOUT] = "timeout",
        [QWICK_FINISH_INTERRUPTED] = "interrupted",
        [QWICK_FINISH_CANCELLED] = "cancelled",
    };
    return names[f];
}

/* ---- one answer --------------------------------------------------------- */

/* Whether the last ids of w[0..n) also end one period earlier, for any period
 * that a loop can have. In normal text they rarely do. */
static bool may_loop(const int32_t *w, size_t n)
{
    enum { N_COMPARED = 16 };
    size_t m = n / 3 < N_COMPARED ? n / 3 : N_COMPARED;
    const int32_t *end = w + n - m;
    for (size_t period = 1; period <= n / 3; period++)
        if (end[m - 1] == end[m - 1 - period] &&
            memcmp(end, end - period, m * sizeof *w) == 0)
            return true;
    return false;
}

/* Whether the last n ids repeat one period at least three times: the longest
 * border of the window gives its shortest period (Knuth, Morris, Pratt). */
static bool has_loop(const int32_t *ids, size_t n_ids, size_t n, size_t *border)
{
    if (n == 0 || n_ids < n || !may_loop(ids + n_ids - n, n))
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

int generation_check(const struct qwick_engine *eng, const int32_t *prompt,
                     size_t n, struct qwick_err *e)
{
    size_t vocab_size = eng->model.config.vocab_size;
    for (size_t i = 0; i < n; i++)
        if (prompt[i] < 0 || (size_t)prompt[i] >= vocab_size)
            return err_set(e, QWICK_ERR_USAGE,
                           "prompt: token id %d is out of range, the "
                           "vocabulary has %zu",
                           prompt[i], vocab_size);
    return 0;
}

static int check_options(const struct qwick_generate_options *o,
                         struct qwick_err *e)
{
    for (size_t i = 0; i < o->n_stop; i++)
        if (!*o->stop[i])
            return err_set(e, QWICK_ERR_USAGE, "stop string: is empty");
    if (o->loop_guard && o->loop_guard < 3)
        return err_set(e, QWICK_ERR_USAGE,
                       "loop guard: must be at least 3, is %zu", o->loop_guard);
    if (!(o->timeout_ms >= 0))
        return err_set(e, QWICK_ERR_USAGE,
                       "timeout: must be at least 0 ms, is %g", o->timeout_ms);
    if (o->constraint && o->ignore_eos)
        return err_set(e, QWICK_ERR_USAGE,
                       "constraint: cannot be combined with ignore_eos");
    if (o->limit_thinking && !o->split_thinking)
        return err_set(e, QWICK_ERR_USAGE,
                       "think budget: has no effect without split_thinking");
    if (o->lookup > QWICK_LOOKUP_MAX)
        return err_set(e, QWICK_ERR_USAGE, "lookup: must be at most %d, is %zu",
                       QWICK_LOOKUP_MAX, o->lookup);
    return 0;
}

/* Block the engine's blocked ids, and with ignore_eos also the stop ids. */
static int block_stops(struct generation *g, struct qwick_err *e)
{
    const struct config *c = &g->eng->model.config;
    g->blocked = calloc(c->vocab_size, 1);
    if (!g->blocked)
        return err_oom(e, c->vocab_size);
    if (g->eng->blocked)
        memcpy(g->blocked, g->eng->blocked, c->vocab_size);
    for (size_t i = 0; i < c->n_stop_ids; i++)
        g->blocked[c->stop_ids[i]] = 1;
    return 0;
}

static int allocate(struct generation *g, struct qwick_err *e)
{
    const struct config *c = &g->eng->model.config;
    const struct qwick_generate_options *o = g->o;
    size_t n_bytes;
    if (o->ignore_eos && block_stops(g, e))
        return -1;
    g->n_top = o->logprobs < c->vocab_size ? o->logprobs : c->vocab_size;
    if (g->n_top && !(g->top = malloc(g->n_top * sizeof *g->top)))
        return err_oom(e, g->n_top * sizeof *g->top);
    if (!o->loop_guard)
        return 0;
    if (size_mul(o->loop_guard, sizeof *g->borders, &n_bytes) ||
        !(g->borders = malloc(n_bytes)))
        return err_oom(e, o->loop_guard);
    return 0;
}

/* Begin with the constraint, if there is one. */
static int begin_guide(struct generation *g, struct qwick_err *e)
{
    const struct qwick_generate_options *o = g->o;
    if (!o->constraint)
        return 0;
    enum guide_phase phase = !o->split_thinking ? GUIDE_TEXT
                             : o->in_think      ? GUIDE_THINKING
                             : o->may_think || constraint_is_free(o->constraint)
                                 ? GUIDE_MAY_THINK
                                 : GUIDE_TEXT;
    if (guide_begin(&g->guide, g->eng, o->constraint, phase, &g->channels,
                    o->profile, e))
        return -1;
    sampler_set_allowed(g->sampler, g->guide.allowed);
    return 0;
}

void generation_set_start(const struct qwick_engine *eng, struct sampler *s)
{
    const struct config *c = &eng->model.config;
    const struct sampler_start start = {
        .first = c->n_begin ? c->suppress + c->n_suppress : NULL,
        .n_first = c->n_begin,
        .stops = c->stop_ids,
        .n_stops = c->n_stop_ids,
        .min_new = c->min_new_tokens,
        .min_all = c->min_length};
    sampler_set_start(s, &start);
}

int generation_begin(struct generation *g, const struct qwick_engine *eng,
                     const int32_t *prompt, size_t n,
                     const struct qwick_generate_options *o, size_t limit,
                     struct qwick_result *r, struct qwick_err *e)
{
    const struct config *c = &eng->model.config;
    const size_t turn = model_long_rope_from(&eng->model) - 1;
    *r = (struct qwick_result){.seed = o->sampling->seed, .n_prompt = n};
    *g = (struct generation){.eng = eng, .o = o, .r = r};
    g->rules = (struct decode_rules){.stop_ids = c->stop_ids,
                                     .n_stop_ids = c->n_stop_ids,
                                     .budget = o->max_tokens,
                                     .limit = limit,
                                     .turn = turn};
    if (channels_begin(&g->channels, eng, prompt, n, o->split_thinking, e))
        return -1;
    const bool in_think = g->channels.on ? channels_think(&g->channels)
                                         : o->in_think && o->split_thinking;
    stream_init(&g->stream, o->stop, o->n_stop, in_think, eng->think_label);
    if (check_options(o, e) || qwick_check_generation(eng, o->sampling, e) ||
        allocate(g, e) ||
        sampler_create(&g->sampler, o->sampling, c->vocab_size,
                       g->blocked ? g->blocked : eng->blocked, eng->model.k,
                       e) ||
        sampler_set_bias_list(g->sampler, o->bias, o->n_bias, e) ||
        begin_guide(g, e) ||
        (o->limit_thinking &&
         think_budget_begin(&g->budget, eng, o->think_budget, in_think,
                            !o->constraint, e)))
        return -1;
    generation_set_start(eng, g->sampler);
    g->decoder.goes_on = (!o->split_thinking || o->prefilled) && n > 0 &&
                         eng->bpe && !bpe_is_added(eng->bpe, prompt[n - 1]);
    for (size_t i = 0; i < n; i++)
        sampler_see_prompt(g->sampler, prompt[i]);
    return 0;
}

void generation_free(struct generation *g)
{
    sampler_free(g->sampler);
    guide_free(&g->guide);
    think_budget_free(&g->budget);
    stream_free(&g->stream);
    channels_free(&g->channels);
    bpe_decoder_free(&g->decoder);
    buf_free(&g->piece);
    free(g->blocked);
    free(g->top);
    free(g->borders);
    *g = (struct generation){0};
}

int generation_draw(struct generation *g, const float *logits,
                    const struct guess *guess, int32_t *id, struct qwick_err *e)
{
    struct qwick_result *r = g->r;
    if (ARRAY_RESERVE(r->tokens, g->cap_tokens, r->n_tokens + 1, e))
        return -1;
    if (think_budget_forced(&g->budget, id, 1)) {
        sampler_accept(g->sampler, *id); /* uses a number of the seed's stream,
                                            as a draw does */
        r->n_forced++;
    } else {
        if (!g->guide.forced)
            g->n_chosen = r->n_tokens + 1;
        if (g->guide.matcher)
            guide_look(&g->guide, g->sampler, logits);
        if (guess ? sampler_draw_guess(g->sampler, logits, guess->id, guess->q,
                                       id, e)
                  : sampler_draw(g->sampler, logits, id, e))
            return -1;
    }
    r->tokens[r->n_tokens++] = *id;
    return 0;
}

void generation_weigh(struct generation *g, const float *logits)
{
    if (g->n_top && g->o->on_token)
        sampler_logprobs(g->sampler, logits, g->top, g->n_top,
                         g->r->tokens[g->r->n_tokens - 1], &g->logprob);
}

/* Whether the deadline has passed. Reads no clock if there is no deadline. */
static bool generation_timed_out(const struct generation *g)
{
    return g->deadline_ms > 0 && clock_ms() >= g->deadline_ms;
}

/* Whether the model repeats itself. A constraint that admits only one text may
 * demand a repetition: then the model chose none of its tokens. */
static bool is_looping(const struct generation *g)
{
    const struct qwick_result *r = g->r;
    size_t n = g->o->loop_guard;
    return !g->budget.due && r->n_tokens - g->n_chosen < n &&
           has_loop(r->tokens, r->n_tokens, n, g->borders);
}

/* Whether the generation ends with this token, and why. A stop id has priority,
 * then an interrupt or the callback, then lengths and time. */
static bool ends(struct generation *g, int32_t id, size_t pos,
                 enum qwick_finish *why)
{
    const struct qwick_result *r = g->r;
    if (channels_ends(&g->channels, id)) {
        *why = QWICK_FINISH_STOP;
        return true;
    }
    bool end = decode_ends(&g->rules, id, r->n_tokens, pos, why);
    if (end && *why == QWICK_FINISH_STOP)
        return true;
    if (flag_is_set(g->interrupt))
        *why = QWICK_FINISH_INTERRUPTED;
    else if (is_looping(g))
        *why = QWICK_FINISH_LOOP;
    else if (!end && generation_timed_out(g))
        *why = QWICK_FINISH_TIMEOUT;
    else
        return end;
    return true;
}

/* Whether a special token has text: a tag of a call does. Where calls are
 * messages, only a constraint asks for such a token in a text. */
static bool is_tag_text(const struct generation *g, int32_t id)
{
    return engine_is_call_tag(g->eng, id) &&
           (!g->channels.on || (g->guide.matcher && !g->guide.free));
}

/* Begin the text of a token with what its message begins with. */
static int take_opening(struct generation *g)
{
    struct buf *opening = &g->channels.opening;
    if (!opening->len)
        return 0;
    g->stream.trim = false;
    int rc = buf_append(&g->piece, opening->data, opening->len);
    opening->len = 0;
    return rc;
}

/* Set g->piece to the text of a token; empty for stop ids and special added
 * tokens except the tags of calls. last: add what the decoder holds back. */
static int decode_token(struct generation *g, int32_t id, bool last)
{
    struct bpe *bpe = g->eng->bpe;
    g->piece.len = 0;
    if (take_opening(g) || (bpe && !decode_is_stop(&g->rules, id) &&
                            (!bpe_is_special(bpe, id) || is_tag_text(g, id)) &&
                            bpe_decode(bpe, &g->decoder, id, &g->piece)))
        return -1;
    return last ? bpe_decode_end(&g->decoder, &g->piece) : 0;
}

static int add_piece(struct generation *g, bool last, size_t *from,
                     bool *stopped)
{
    return stream_add(&g->stream, g->piece.len ? g->piece.data : "",
                      g->piece.len, last, from, stopped);
}

/* Open or close the think block. The decoder may hold back bytes, which belong
 * to the old channel. */
static int switch_channel(struct generation *g, enum qwick_channel to,
                          size_t *from, bool *stopped)
{
    size_t held;
    g->piece.len = 0;
    if (bpe_decode_end(&g->decoder, &g->piece) ||
        add_piece(g, false, from, stopped))
        return -1;
    return *stopped ? 0 : stream_switch(&g->stream, to, &held);
}

/* Add a token that is part of a message's header or its end: it has no text. */
static int add_form(struct generation *g, bool last, size_t *from,
                    bool *stopped)
{
    enum qwick_channel to =
        g->channels.kind == HARMONY_IS_THINKING ? QWICK_THINKING : QWICK_TEXT;
    if (g->step == CHANNELS_OPENED && to != g->stream.channel)
        return switch_channel(g, to, from, stopped);
    g->piece.len = 0;
    return bpe_decode_end(&g->decoder, &g->piece) ||
                   add_piece(g, last, from, stopped)
               ? -1
               : 0;
}

/* Add the token's text to the stream. The released text begins at *from in the
 * buffer of its channel. */
static int add_text(struct generation *g, int32_t id, bool last, size_t *from,
                    bool *stopped)
{
    const struct qwick_engine *eng = g->eng;
    g->step = CHANNELS_TEXT;
    if (g->channels.on && channels_accept(&g->channels, id, &g->step))
        return -1;
    if (g->step != CHANNELS_TEXT)
        return add_form(g, last, from, stopped);
    if (!g->channels.on && g->o->split_thinking && id >= 0 &&
        (id == eng->think_open || id == eng->think_close))
        return switch_channel(
            g, id == eng->think_open ? QWICK_THINKING : QWICK_TEXT, from,
            stopped);
    return decode_token(g, id, last) || add_piece(g, last, from, stopped) ? -1
                                                                          : 0;
}

/* Keep the guide at the same place as the answer. */
static int follow_constraint(struct generation *g, int32_t id,
                             struct qwick_err *e)
{
    double before = g->guide.ms;
    if (guide_accept(&g->guide, id, e) || guide_prepare(&g->guide, e))
        return -1;
    if (g->guide.phase == GUIDE_AFTER_THINK && guide_keeps_newlines(&g->guide))
        g->stream.trim = false;
    g->mask_ms = g->guide.ms - before;
    return 0;
}

int generation_forced(struct generation *g, int32_t *ids, size_t max, size_t *n,
                      struct qwick_err *e)
{
    *n = think_budget_forced(&g->budget, ids, max);
    return *n == 0 && g->guide.matcher ? guide_forced(&g->guide, ids, max, n, e)
                                       : 0;
}

/* Count a token of the budget. After its end the answer must not think again.
 */
static void follow_budget(struct generation *g, int32_t id)
{
    if (think_budget_accept(&g->budget, id)) {
        if (g->guide.matcher)
            guide_stop_thinking(&g->guide);
        if (g->budget.open >= 0)
            sampler_block(g->sampler, g->budget.open);
    }
    if (g->step == CHANNELS_OPENED && g->channels.kind == HARMONY_IS_THINKING)
        think_budget_open(&g->budget);
}

int generation_emit(struct generation *g, int32_t id, size_t pos, bool *end,
                    struct qwick_err *e)
{
    struct stream *st = &g->stream;
    struct qwick_token_event ev = {
        .id = id, .channel = st->channel, .forced = g->budget.due};
    size_t from;
    bool stopped = false;
    g->mask_ms = 0;
    *end = ends(g, id, pos, &g->r->finish);
    st->unstopped = g->guide.matcher && guide_in_call(&g->guide);
    if (add_text(g, id, *end, &from, &stopped))
        return err_oom(e, st->held.len + st->text.len + st->thinking.len);
    if (stopped) {
        g->r->finish = QWICK_FINISH_STOP_STRING;
        g->r->stop_index = st->stopped_by;
        *end = true;
    }
    if (g->guide.matcher && !*end && follow_constraint(g, id, e))
        return -1;
    ev.form = g->step != CHANNELS_TEXT;
    follow_budget(g, id);
    if (!g->o->on_token)
        return 0;
    struct buf *out = stream_buf(st, ev.channel);
    ev.text = out->data ? out->data + from : "";
    ev.n_text = out->len - from;
    if (g->n_top) {
        ev.top = g->top;
        ev.n_top = g->n_top;
        ev.logprob = g->logprob;
    }
    if (g->o->on_token(g->o->on_token_ctx, &ev)) {
        g->r->finish = QWICK_FINISH_INTERRUPTED;
        *end = true;
    }
    return 0;
}

int generation_finish(struct generation *g, struct qwick_err *e)
{
    struct stream *st = &g->stream;
    if (buf_reserve(&st->text, 0))
        return err_oom(e, 1);
    g->r->text = buf_take(&st->text, &g->r->n_text);
    if (st->thought)
        g->r->thinking = buf_take(&st->thinking, &g->r->n_thinking);
    return 0;
}

/* ---- one session -------------------------------------------------------- */

/* A generation in a session, with its times. */
struct solo {
    struct generation g;
    struct qwick_session *s;
    const float *logits; /* logits for the next draw */
    double start;
    double step, mid, sampled; /* times of a token; only for profiling */
    double first_mask_ms;      /* of the constraint up to the first token */
    size_t cap_times;
    size_t first_time; /* index of the first time of the current decode step */
    bool begun;        /* the first token was drawn */
    /* with guesses */
    struct speculative guesses;
    int32_t tokens[1 + QWICK_LOOKUP_MAX];
    float *rows; /* [1 + max, vocab_size]; NULL: not needed yet */
    struct decode_draft pass;
};

static double mean(const double *v, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += v[i];
    return sum / (double)n;
}

/* Give all tokens of one step its average time: the first token waited for the
 * whole step, the others for nothing. */
static void share_times(struct solo *o)
{
    struct qwick_result *r = o->g.r;
    size_t first = o->first_time, n = r->n_per_token - first;
    o->first_time = r->n_per_token;
    if (n < 2)
        return;
    double *step = r->per_token_ms + first, *sampling = r->sample_ms + first;
    double a = mean(step, n), b = mean(sampling, n);
    for (size_t i = 0; i < n; i++) {
        step[i] = a;
        sampling[i] = b;
    }
}

static int solo_forward(void *state, int32_t token, size_t pos,
                        const float **logits, struct qwick_err *e)
{
    struct solo *o = state;
    (void)pos;
    share_times(o);
    if (qwick_session_decode(o->s, token, e))
        return -1;
    *logits = o->s->logits;
    return 0;
}

static int solo_forward_all(void *state, const int32_t *tokens, size_t n,
                            size_t pos, const float **rows, struct qwick_err *e)
{
    struct solo *o = state;
    size_t most = 1 + o->pass.max, n_bytes;
    (void)pos;
    share_times(o);
    if (!o->rows) {
        if (size_mul(most * sizeof *o->rows, o->pass.stride, &n_bytes) ||
            !(o->rows = malloc(n_bytes)))
            return err_oom(e, most * o->pass.stride * sizeof *o->rows);
    }
    *rows = o->rows;
    return session_decode_all(o->s, tokens, n, most, o->rows, e);
}

static void solo_keep(void *state, size_t n)
{
    struct solo *o = state;
    session_keep(o->s, n);
}

/* Add the counts of the last guesses to those of their source. */
static void count_guesses(struct solo *o)
{
    const struct decode_draft *now = &o->pass;
    struct speculative *s = &o->guesses;
    const struct qwick_lookup *other = &s->counts[1 - s->source];
    struct qwick_lookup *c = &s->counts[s->source];
    c->n_drafted = now->n_drafted - other->n_drafted;
    c->n_accepted = now->n_accepted - other->n_accepted;
    c->n_passes = now->n_passes - other->n_passes;
}

static int solo_guess(void *ctx, int32_t *drafts, size_t max, size_t *n,
                      struct qwick_err *e)
{
    struct solo *o = ctx;
    struct draft *d = &o->guesses.draft;
    count_guesses(o);
    if (speculative_begin(&o->guesses, o->s, max, e))
        return -1;
    if (o->guesses.asked)
        draft_run(&d, 1, 1);
    *n = speculative_take(&o->guesses, drafts);
    return 0;
}

/* The first draw ends the prefill; later ones read no clock unless profiling.
 */
static int solo_select(void *ctx, const float *logits, int32_t *id,
                       struct qwick_err *e)
{
    struct solo *o = ctx;
    bool profile = o->g.o->profile && o->begun;
    if (profile)
        o->mid = clock_ms();
    o->logits = logits;
    if (speculative_draw(&o->guesses, logits, id, e))
        return -1;
    if (profile)
        o->sampled = clock_ms();
    else if (!o->begun)
        o->g.r->prefill_ms = clock_ms() - o->start;
    return 0;
}

static int note_times(struct solo *o, double step, double sampling,
                      struct qwick_err *e)
{
    struct qwick_result *r = o->g.r;
    size_t need = r->n_per_token + 1, cap = o->cap_times; /* for both arrays */
    if (ARRAY_RESERVE(r->per_token_ms, cap, need, e) ||
        ARRAY_RESERVE(r->sample_ms, o->cap_times, need, e))
        return -1;
    r->per_token_ms[r->n_per_token] = step;
    r->sample_ms[r->n_per_token++] = sampling;
    return 0;
}

static int solo_token(void *ctx, int32_t id, size_t pos, bool *end,
                      enum qwick_finish *why, struct qwick_err *e)
{
    struct solo *o = ctx;
    generation_weigh(&o->g, o->logits);
    if (generation_emit(&o->g, id, pos, end, e))
        return -1;
    *why = o->g.r->finish;
    if (o->g.o->profile) {
        double now = clock_ms();
        double sampling = o->sampled - o->mid + o->g.mask_ms;
        if (!o->begun)
            o->first_mask_ms = o->g.guide.ms;
        else if (note_times(o, now - o->step, sampling, e))
            return -1;
        o->g.r->constraint_ms = o->g.guide.ms - o->first_mask_ms;
        o->step = now;
    }
    o->begun = true;
    return 0;
}

/* Evaluate the prompt. An interrupt or a timeout gives an answer without
 * tokens. */
static int prefill(struct solo *o, const int32_t *prompt, size_t n, bool *end,
                   struct qwick_err *e)
{
    struct qwick_result *r = o->g.r;
    struct qwick_err why;
    o->s->deadline_ms = o->g.deadline_ms;
    int rc = qwick_session_sync(o->s, prompt, n, &why);
    o->s->deadline_ms = 0;
    *end = false;
    r->n_cached = o->s->n_cached;
    if (!rc)
        return 0;
    r->total_ms = r->prefill_ms = clock_ms() - o->start;
    if (why.code == QWICK_ERR_INTERRUPTED) {
        r->finish = session_interrupted(o->s) ? QWICK_FINISH_INTERRUPTED
                                              : QWICK_FINISH_TIMEOUT;
        *end = true;
        return 0;
    }
    if (e)
        *e = why;
    return -1;
}

/* Whether something can guess tokens of this answer. */
static bool may_guess(const struct solo *o)
{
    return o->guesses.lookup || o->guesses.draft.eng ||
           generation_may_force(&o->g);
}

static int prepare_guesses(struct solo *o, const int32_t *prompt, size_t n,
                           struct qwick_err *e)
{
    struct qwick_engine *eng = o->s->eng;
    if (speculative_open(&o->guesses, &o->g, eng, prompt, n, o->g.o->lookup, e))
        return -1;
    o->pass = (struct decode_draft){
        .guess = solo_guess,
        .forward_all = solo_forward_all,
        .keep = solo_keep,
        .stride = eng->model.config.vocab_size,
        .tokens = o->tokens,
        .max = speculative_max(&o->guesses, o->s, eng->model.chunk)};
    return 0;
}

/* Generate from the prompt's logits to the end of the answer. */
static int decode(struct solo *o, struct qwick_err *e)
{
    struct qwick_result *r = o->g.r;
    struct decode_loop l = {.rules = o->g.rules,
                            .forward = solo_forward,
                            .state = o,
                            .select = solo_select,
                            .on_token = solo_token,
                            .ctx = o,
                            .draft = may_guess(o) ? &o->pass : NULL};
    int rc = decode_run(&l, o->s->logits, o->s->kv.n, &r->finish, e);
    session_own_logits(o->s);
    share_times(o);
    count_guesses(o);
    speculative_report(&o->guesses, r);
    return rc;
}

static int run(struct solo *o, const int32_t *prompt, size_t n,
               struct qwick_err *e)
{
    bool end;
    o->start = clock_ms();
    if (o->g.o->timeout_ms > 0)
        o->g.deadline_ms = o->start + o->g.o->timeout_ms;
    if (prefill(o, prompt, n, &end, e))
        return -1;
    if (!end) {
        if (decode(o, e))
            return -1;
        o->g.r->total_ms = clock_ms() - o->start;
    }
    return generation_finish(&o->g, e);
}

int qwick_generate(struct qwick_session *s, const int32_t *prompt, size_t n,
                   const struct qwick_generate_options *given,
                   struct qwick_result *r, struct qwick_err *e)
{
    struct qwick_generate_options all, *o = &all;
    struct qwick_sampling sampling;
    struct solo solo = {.s = s};
    int rc = -1;
    *r = (struct qwick_result){.n_prompt = n};
    if (generation_read_options(o, &sampling, given, e))
        return -1;
    r->seed = sampling.seed;
    if (generation_check(s->eng, prompt, n, e))
        return -1;
    if (!generation_begin(&solo.g, s->eng, prompt, n, o, s->limit, r, e) &&
        !prepare_guesses(&solo, prompt, n, e)) {
        solo.g.interrupt = s->interrupt;
        rc = run(&solo, prompt, n, e);
    }
    speculative_close(&solo.guesses);
    generation_free(&solo.g);
    free(solo.rows);
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
