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
    if (qwick_session_create(&s->draft, d->eng, 0, e))
        return -1;
    s->draft->kv.most_snapshots = s->kv.most_snapshots;
    return 0;
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

int draft_open(struct draft *d, struct generation *g, struct qwick_engine *eng,
               size_t n, struct qwick_err *e)
{
    const struct model *big = &g->eng->model, *small = &eng->model;
    double row = model_row_cost(big);
    double step = model_step_time(small) / model_step_time(big);
    *d = (struct draft){.g = g, .eng = eng, .settled = true};
    if (allocate(d, e))
        return -1;
    d->shares = eng->kv == g->eng->kv && model_is_copy(big, small);
    budget_open(&d->budget, step, row, step * model_row_cost(small),
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

void draft_stop(struct draft *d, struct qwick_session *s)
{
    d->eng = NULL;
    if (!s)
        return;
    qwick_session_free(s->draft);
    s->draft = NULL;
}

/* End all guesses of the answer. It goes on without them. */
static void give_up(struct draft *d, const struct qwick_err *why)
{
    d->going = false;
    d->behind = 0;
    if (why->code == QWICK_ERR_INTERRUPTED)
        return; /* the answer ends by itself */
    engine_warn(d->g->eng, "draft: %s; going on without it", why->msg);
    d->eng = NULL;
}

size_t draft_bytes(const struct qwick_engine *eng, size_t n)
{
    struct kv_cache kv;
    if (kv_init(&kv, eng->kv, &eng->model.config, NULL))
        return 0;
    kv.most_snapshots = KV_SNAPSHOTS_FORWARD;
    size_t bytes = kv_sequence_bytes(&kv, n);
    kv_free(&kv);
    return bytes;
}

/* ---- the context -------------------------------------------------------- */

/* Token i of the context, which ends with the last token. */
static int32_t token_at(const struct draft *d, size_t i)
{
    return i < d->target->kv.n ? d->target->tokens[i] : d->last;
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
    size_t affords = budget_affords(&d->budget);
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
static int set_pending(struct draft *d, size_t from, struct qwick_err *e)
{
    const struct qwick_session *t = d->target;
    size_t end = t->kv.n + 1;
    if (ARRAY_RESERVE(d->pending, d->cap_pending, end - from, e))
        return -1;
    d->n_pending = 0;
    for (size_t i = from; i < end; i++)
        d->pending[d->n_pending++] = token_at(d, i);
    return 0;
}

void draft_ask(struct draft *d, struct qwick_session *target, int32_t id,
               size_t max)
{
    struct qwick_err e;
    size_t n_known;
    d->n = d->n_known = 0;
    d->behind = 0;
    d->going = false;
    d->target = target;
    d->last = id;
    if (!d->eng)
        return;
    if (need_session(d, &e)) {
        give_up(d, &e);
        return;
    }
    d->max = choose_start(d, &n_known) ? max : 0;
    d->behind = target->kv.n + 1 - target->draft_start - n_known;
    d->shared = d->shares && d->behind > MOST_EVALUATED;
    if (d->shared)
        d->behind = 1;
}

/* Begin guesses: let the draft model's session have what it knows of the
 * context, and set the pending tokens. */
static void begin(struct draft *d)
{
    struct qwick_session *t = d->target;
    struct qwick_err e;
    size_t n = known(d);
    session_truncate(t->draft, n);
    d->agreed = n;
    if ((d->shared && share(d, &e)) ||
        set_pending(d, t->draft_start + t->draft->kv.n, &e) ||
        (d->g->guide.matcher && guide_hold(&d->g->guide, &e))) {
        give_up(d, &e);
        return;
    }
    t->draft->interrupt = t->interrupt;
    d->began = d->going = true;
    d->settled = false;
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

/* Draw the next guess from the logits of the draft model. Threads may draw for
 * different answers at the same time. */
static int draw(struct draft *d, struct qwick_err *e)
{
    struct generation *g = d->g;
    size_t i = d->n;
    double u =
        d->q ? rng_uniform(g->o->sampling->seed ^ GUESS_SEED, d->n_draws++)
             : sampler_number(g->sampler);
    return sampler_guess(
        g->sampler, target_row(d, d->target->draft->logits), u, &d->ids[i],
        &d->sure, d->q ? d->q + i * g->eng->model.config.vocab_size : NULL, e);
}

/* Take the guess that was drawn, or refuse it. Returns whether another one is
 * possible. */
static bool take(struct draft *d)
{
    int32_t id = d->ids[d->n];
    if (!budget_take(&d->budget, d->sure)) {
        d->n_known += !d->q;
        return false;
    }
    d->n_known = ++d->n;
    sampler_accept(d->g->sampler, id);
    return !decode_is_stop(&d->g->rules, id) &&
           (size_t)id < d->eng->model.config.vocab_size;
}

/* Let the draft model evaluate the last guess, to make another one. */
static int go_on(struct draft *d, struct qwick_err *e)
{
    int32_t id = d->ids[d->n - 1];
    d->going = budget_more(&d->budget);
    if (!d->going)
        return 0;
    d->pending[0] = id;
    d->n_pending = 1;
    return d->g->guide.matcher ? guide_try(&d->g->guide, id, e) : 0;
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
                                  n < chunk ? n : chunk, QWICK_ROWS_NONE};
        if (qwick_engine_step(d->eng, &step, 1, QWICK_LOGITS, e))
            return -1;
        at += step.n;
    }
    d->n_pending -= at;
    memmove(d->pending, d->pending + at, d->n_pending * sizeof *d->pending);
    return 0;
}

/* Answers that guess jointly. */
struct joint {
    struct draft *const *d; /* [n] */
    size_t n;
    size_t n_pass;             /* answers in the pass of the target */
    struct qwick_engine *eng;  /* of the draft model */
    struct qwick_step *steps;  /* [n] */
};

/* Find out how many answers draft, each because it pays with so many, and set
 * their shares of the costs: of the first step, or of another one. */
static size_t agree(const struct joint *j, bool first)
{
    size_t n = j->n, wanted;
    for (;; n = wanted) {
        wanted = 0;
        for (size_t i = 0; i < j->n; i++) {
            struct draft *d = j->d[i];
            budget_share(&d->budget, j->n_pass, n);
            wanted += first ? d->behind && budget_wants(&d->budget, d->behind,
                                                         d->max)
                            : d->going && budget_pays(&d->budget);
        }
        /* with fewer, the costs are higher, and perhaps still fewer want it */
        if (wanted == n || wanted == 0)
            return wanted;
    }
}

/* Begin the guesses of the answers for which they pay. Returns how many. */
static size_t begin_all(const struct joint *j)
{
    size_t n = 0;
    agree(j, true);
    for (size_t i = 0; i < j->n; i++) {
        struct draft *d = j->d[i];
        if (d->behind && budget_plan(&d->budget, d->behind, d->max))
            begin(d);
        d->behind = 0;
        n += d->going;
    }
    return n;
}

static void draw_body(void *ctx, struct par_team *team, int tid, int n_threads)
{
    const struct joint *j = ctx;
    size_t begin, end;
    (void)tid;
    (void)n_threads;
    while (par_next(team, j->n, 1, &begin, &end)) {
        struct draft *d = j->d[begin];
        if (d->going)
            d->bad = draw(d, NULL) != 0;
    }
}

/* Draw a guess for each of the n_going answers. */
static void draw_all(const struct joint *j, size_t n_going)
{
    if (n_going > 1)
        par_run(j->eng->model.pool, draw_body, (void *)j);
    for (size_t i = 0; i < j->n; i++) {
        struct draft *d = j->d[i];
        struct qwick_err e;
        if (!d->going)
            continue;
        /* an error is rare, so only this thread reads its message */
        if ((n_going == 1 || d->bad) && draw(d, &e))
            give_up(d, &e);
        else
            d->going = take(d);
    }
}

/* A joint step of the draft models that are at work, and their guesses. Returns
 * how many go on. */
static size_t step(const struct joint *j)
{
    struct qwick_err e;
    size_t n_steps = 0, going = 0;
    for (size_t i = 0; i < j->n; i++) {
        const struct draft *d = j->d[i];
        if (d->going)
            j->steps[n_steps++] = (struct qwick_step){
                d->target->draft, d->pending, d->n_pending, QWICK_ROWS_LAST};
    }
    if (!n_steps)
        return 0;
    bool bad =
        qwick_engine_step(j->eng, j->steps, n_steps, QWICK_LOGITS, &e) != 0;
    for (size_t i = 0; bad && i < j->n; i++)
        if (j->d[i]->going)
            give_up(j->d[i], &e);
    if (bad)
        return 0;
    draw_all(j, n_steps);
    agree(j, false);
    for (size_t i = 0; i < j->n; i++) {
        struct draft *d = j->d[i];
        if (d->going && go_on(d, &e))
            give_up(d, &e);
        going += d->going;
    }
    return going;
}

/* Make guesses until no answer wants another one. */
static void run(struct joint *j, size_t n_going)
{
    struct qwick_err e;
    size_t most = j->eng->model.chunk / n_going;
    j->steps = malloc(j->n * sizeof *j->steps);
    for (size_t i = 0; i < j->n; i++) {
        if (!j->d[i]->going)
            continue;
        if (!j->steps)
            err_oom(&e, j->n * sizeof *j->steps);
        if (!j->steps || evaluate_alone(j->d[i], most ? most : 1, &e))
            give_up(j->d[i], &e);
    }
    while (step(j) > 0)
        continue;
    free(j->steps);
    for (size_t i = 0; i < j->n; i++)
        take_back(j->d[i]);
}

void draft_run(struct draft *const *d, size_t n, size_t n_pass)
{
    struct joint j = {.d = d, .n = n, .n_pass = n_pass};
    double start = n && d[0]->g->o->profile ? clock_ms() : 0;
    for (size_t i = 0; i < n; i++)
        j.eng = d[i]->eng ? d[i]->eng : j.eng;
    size_t n_going = begin_all(&j);
    if (n_going) {
        struct par_pool *pool = j.eng->model.pool;
        /* The threads of two pools would disturb each other: they do not sleep
           at once when they are idle. */
        if (par_threads(pool) == par_threads(d[0]->g->eng->pool))
            j.eng->model.pool = d[0]->g->eng->pool;
        run(&j, n_going);
        j.eng->model.pool = pool;
    }
    if (n && d[0]->g->o->profile)
        d[0]->ms += clock_ms() - start;
}

void draft_settle(struct draft *d, size_t n_right)
{
    if (!d->settled)
        budget_settle(&d->budget, n_right, d->n_known > d->n);
    d->settled = true;
}
