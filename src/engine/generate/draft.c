#include "engine/generate/draft.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/par.h"
#include "base/rng.h"

/* A copy of the target takes its keys and values if it lacks more than this
 * number of tokens. Fewer are evaluated, which costs less than copying the last
 * page. */
enum { MOST_EVALUATED = 4 };

/* The least number of tokens at the end of the context that guesses can be
 * based on. */
enum { LEAST_WINDOW = 64 };

/* Guesses are drawn with the random numbers of another seed than the answer's
 * tokens. */
#define GUESS_SEED 0x5be0cd19a54ff53au

/* The logit of an id that the draft model lacks: finite, as the sampler
 * demands, and without any probability. */
#define NO_LOGIT (-1e30f)

/* ---- open and close ----------------------------------------------------- */

/* Get the draft model's session, which the target's session keeps for later
 * answers. */
static int need_session(struct draft *d, struct qwick_err *e)
{
    struct qwick_session *s = d->target;
    if (s->draft && s->draft->eng == d->eng)
        return 0;
    qwick_session_free(s->draft);
    s->draft_start = 0;
    return qwick_session_create(&s->draft, d->eng, 0, e);
}

static int allocate(struct draft *d, struct qwick_err *e)
{
    size_t vocab_size = d->g->eng->model.config.vocab_size, bytes;
    bool compared = d->g->eng->model.exact || sampler_is_greedy(d->g->sampler);
    if (size_mul(vocab_size, sizeof(float), &bytes))
        return err_oom(e, SIZE_MAX);
    if (d->eng->model.config.vocab_size != vocab_size &&
        !(d->row = malloc(bytes)))
        return err_oom(e, bytes);
    if (size_mul(bytes, DRAFT_MAX, &bytes))
        return err_oom(e, SIZE_MAX);
    if (!compared && !(d->q = malloc(bytes)))
        return err_oom(e, bytes);
    return 0;
}

int draft_open(struct draft *d, struct generation *g,
               struct qwick_session *target, struct qwick_engine *eng, size_t n,
               struct qwick_err *e)
{
    const struct model *big = &target->eng->model, *small = &eng->model;
    double row = model_row_cost(big);
    double step = model_step_time(small) / model_step_time(big);
    *d = (struct draft){.g = g, .target = target, .eng = eng, .settled = true};
    if (need_session(d, e) || allocate(d, e))
        return -1;
    d->shares = target->draft->kv.dtype == target->kv.dtype &&
                model_is_copy(big, small);
    account_open(&d->account, step, row, step * model_row_cost(small),
                 1 + row * (double)n);
    return 0;
}

void draft_close(struct draft *d)
{
    free(d->q);
    free(d->row);
    free(d->pending);
    *d = (struct draft){0};
}

/* End all guesses of the answer. It goes on without them. */
static void give_up(struct draft *d, const struct qwick_err *why)
{
    d->going = false;
    if (why->code == QWICK_ERR_INTERRUPTED)
        return; /* the answer ends by itself */
    engine_warn(d->target->eng, "draft: %s; going on without it", why->msg);
    d->eng = NULL;
}

/* ---- the context -------------------------------------------------------- */

/* Token i of the context of `of` tokens; the last one is id. */
static int32_t token_at(const struct draft *d, size_t i, int32_t id)
{
    return i < d->target->kv.n ? d->target->tokens[i] : id;
}

/* How many tokens of the context, from its start on, the draft model's session
 * has and can go on after, without the last one, which gives the logits. */
static size_t known(struct draft *d)
{
    const struct qwick_session *t = d->target, *s = t->draft;
    size_t n = s->kv.n, at = d->agreed;
    if (n > t->kv.n - t->draft_start)
        n = t->kv.n - t->draft_start;
    if (at > n)
        at = n;
    while (at < n && s->tokens[at] == t->tokens[t->draft_start + at])
        at++;
    return kv_usable(&s->kv, at);
}

/* Let the draft model's session begin at another token of the context. */
static void restart(struct draft *d, size_t start)
{
    d->target->draft_start = start;
    d->agreed = 0;
}

/* Choose where the draft model's context begins, and set *n_known to what its
 * session has of it. Returns whether it can guess at all. */
static bool choose_start(struct draft *d, size_t *n_known)
{
    const struct qwick_session *t = d->target;
    size_t n = t->kv.n + 1, limit = t->draft->limit;
    if (t->draft_start > t->kv.n)
        restart(d, 0);
    *n_known = known(d);
    if (d->shares)
        return n + DRAFT_MAX <= limit;
    size_t has = n - t->draft_start; /* tokens of its context */
    size_t affords = account_affords(&d->account);
    if (has + DRAFT_MAX > limit || has - *n_known > affords) {
        /* begin again with the end of the context */
        size_t room = limit / 2 < affords ? limit / 2 : affords;
        if (room < LEAST_WINDOW && room < n)
            return false;
        restart(d, room < n ? n - room : 0);
        *n_known = known(d);
    } else if (t->draft_start && n <= affords && n + DRAFT_MAX <= limit) {
        restart(d, 0); /* by now, the whole context is affordable */
        *n_known = known(d);
    }
    return true;
}

/* Take the keys and values of all tokens that the target has. */
static int share(struct draft *d, struct qwick_err *e)
{
    struct qwick_session *t = d->target, *s = t->draft;
    if (session_reserve_tokens(s, t->kv.n, e) ||
        kv_share(&s->kv, &t->kv, t->kv.n, e))
        return -1;
    memcpy(s->tokens, t->tokens, t->kv.n * sizeof *s->tokens);
    s->logits = NULL;
    s->n_rows = 0;
    restart(d, 0);
    return 0;
}

/* Set the tokens that the draft model must evaluate. */
static int set_pending(struct draft *d, size_t from, int32_t id,
                       struct qwick_err *e)
{
    const struct qwick_session *t = d->target;
    size_t end = t->kv.n + 1;
    if (ARRAY_RESERVE(d->pending, d->cap_pending, end - from, e))
        return -1;
    d->n_pending = 0;
    for (size_t i = from; i < end; i++)
        d->pending[d->n_pending++] = token_at(d, i, id);
    return 0;
}

void draft_begin(struct draft *d, int32_t id, size_t max)
{
    struct qwick_session *t = d->target;
    struct qwick_err e;
    size_t n_known, behind;
    d->n = d->n_known = 0;
    d->going = false;
    if (!d->eng)
        return;
    double start = d->g->o->profile ? clock_ms() : 0;
    bool able = choose_start(d, &n_known);
    behind = t->kv.n + 1 - t->draft_start - n_known;
    bool shared = d->shares && behind > MOST_EVALUATED;
    if (!account_plan(&d->account, shared ? 1 : behind, able ? max : 0))
        return;
    session_truncate(t->draft, n_known);
    d->agreed = n_known;
    if ((shared && share(d, &e)) ||
        set_pending(d, t->draft_start + t->draft->kv.n, id, &e) ||
        (d->g->guide.matcher && guide_hold(&d->g->guide, &e))) {
        give_up(d, &e);
        return;
    }
    t->draft->interrupt = t->interrupt;
    d->began = d->going = true;
    d->settled = false;
    if (d->g->o->profile)
        d->ms += clock_ms() - start;
}

/* ---- guesses ------------------------------------------------------------ */

/* The draft model's logits for the ids of the target. */
static const float *target_row(struct draft *d, const float *logits)
{
    size_t n = d->g->eng->model.config.vocab_size;
    size_t has = d->eng->model.config.vocab_size;
    if (!d->row)
        return logits;
    memcpy(d->row, logits, (has < n ? has : n) * sizeof *d->row);
    for (size_t i = has; i < n; i++)
        d->row[i] = NO_LOGIT;
    return d->row;
}

/* Draw the next guess from the logits of the draft model, and decide whether to
 * make another one. */
static int guess(struct draft *d, const float *logits, struct qwick_err *e)
{
    struct generation *g = d->g;
    struct sampler *s = g->sampler;
    size_t i = d->n;
    double sure, u;
    int32_t id;
    u = d->q ? rng_uniform(g->o->sampling.seed ^ GUESS_SEED, d->n_draws++)
             : sampler_number(s);
    d->going = false;
    if (sampler_guess(s, target_row(d, logits), u, &id, &sure,
                      d->q ? d->q + i * g->eng->model.config.vocab_size : NULL,
                      e))
        return -1;
    d->ids[i] = id;
    if (!account_take(&d->account, sure)) {
        d->n_known += !d->q;
        return 0;
    }
    d->n_known = ++d->n;
    sampler_accept(s, id);
    if (decode_is_stop(&g->rules, id) ||
        (size_t)id >= d->eng->model.config.vocab_size ||
        !account_more(&d->account))
        return 0;
    if (g->guide.matcher && guide_try(&g->guide, id, e))
        return -1;
    d->pending[0] = id;
    d->n_pending = 1;
    d->going = true;
    return 0;
}

/* Go back to the answer as it was before the guesses. */
static void take_back(struct draft *d)
{
    if (!d->began)
        return;
    d->began = false;
    for (size_t i = d->n; i-- > 0;)
        sampler_undo(d->g->sampler, d->ids[i]);
    if (d->g->guide.matcher)
        guide_return(&d->g->guide);
}

/* Evaluate the pending tokens of d, except the last `keep`, alone. */
static int evaluate_alone(struct draft *d, size_t keep, struct qwick_err *e)
{
    size_t chunk = d->eng->model.chunk, at = 0;
    while (d->n_pending - at > keep) {
        size_t n = d->n_pending - at - keep;
        struct qwick_step step = {d->target->draft, d->pending + at,
                                  n < chunk ? n : chunk, QWICK_WANT_NONE};
        if (qwick_engine_step(d->eng, &step, 1, QWICK_LOGITS, e))
            return -1;
        at += step.n;
    }
    d->n_pending -= at;
    memmove(d->pending, d->pending + at, d->n_pending * sizeof *d->pending);
    return 0;
}

/* A joint step of the draft models that are at work, and their guesses. Returns
 * how many go on. */
static size_t step(struct draft *const *d, size_t n, struct qwick_step *steps)
{
    struct qwick_engine *eng = NULL;
    struct qwick_err e;
    size_t n_steps = 0, going = 0;
    for (size_t i = 0; i < n; i++) {
        if (!d[i]->going)
            continue;
        eng = d[i]->eng;
        steps[n_steps++] =
            (struct qwick_step){d[i]->target->draft, d[i]->pending,
                                d[i]->n_pending, QWICK_WANT_LAST};
    }
    if (!n_steps)
        return 0;
    bool bad = qwick_engine_step(eng, steps, n_steps, QWICK_LOGITS, &e) != 0;
    for (size_t i = 0; i < n; i++) {
        if (!d[i]->going)
            continue;
        if (bad || guess(d[i], d[i]->target->draft->logits, &e))
            give_up(d[i], &e);
        going += d[i]->going;
    }
    return going;
}

void draft_run(struct draft *const *d, size_t n)
{
    struct qwick_engine *eng = NULL;
    struct qwick_err e;
    size_t n_going = 0;
    for (size_t i = 0; i < n; i++) {
        if (!d[i]->going)
            continue;
        eng = d[i]->eng;
        n_going++;
    }
    if (!n_going)
        return;
    double start = d[0]->g->o->profile ? clock_ms() : 0;
    struct par_pool *pool = eng->model.pool;
    struct qwick_step *steps = malloc(n * sizeof *steps);
    size_t most = eng->model.chunk / n_going;
    /* The threads of two pools would disturb each other: they do not sleep at
       once when they are idle. */
    if (par_threads(pool) == par_threads(d[0]->target->eng->pool))
        eng->model.pool = d[0]->target->eng->pool;
    for (size_t i = 0; i < n; i++) {
        if (!d[i]->going)
            continue;
        if (!steps)
            err_oom(&e, n * sizeof *steps);
        if (!steps || evaluate_alone(d[i], most ? most : 1, &e))
            give_up(d[i], &e);
    }
    while (step(d, n, steps) > 0)
        continue;
    eng->model.pool = pool;
    free(steps);
    for (size_t i = 0; i < n; i++)
        take_back(d[i]);
    if (d[0]->g->o->profile)
        d[0]->ms += clock_ms() - start;
}

void draft_settle(struct draft *d, size_t n_right)
{
    if (!d->settled)
        account_settle(&d->account, n_right, d->n_known > d->n);
    d->settled = true;
}
