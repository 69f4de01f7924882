#include "engine/runs/runs.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/flag.h"
#include "base/par.h"

/* Most bytes of outputs in a pass; enough rows to make good use of the
 * weights. */
enum { ROWS_BYTES = 64 << 20 };

/* A session with a larger cache of its own is freed, not kept for another
 * run. */
enum { SPARE_BYTES = 16 << 20 };

/* A pass takes at least about as long as one over so many tokens, because it
 * reads the weights. */
enum { WEIGHTS_TOKENS = 32 };

/* Passes of whole runs take this many chunks: short texts should share them,
 * and no other run waits for their end. */
enum { WHOLE_CHUNKS = 4 };

int runs_open(struct runs *s, struct qwick_engine *eng,
              const struct run_task *task, void *ctx, size_t n_ctx,
              size_t max_live, struct qwick_err *e)
{
    *s = (struct runs){.eng = eng,
                       .task = task,
                       .ctx = ctx,
                       .max_live = max_live,
                       .lora = eng->own_lora,
                       .fair.clock = clock_ms};
    s->last = &s->first;
    if ((task->output & QWICK_LOGITS && engine_need_head(eng, e)) ||
        engine_context(eng, n_ctx, &s->n_ctx, e) ||
        kv_init(&s->shape, eng->kv, &eng->model.config, e))
        return -1;
    s->shape.most_snapshots = KV_SNAPSHOTS_FORWARD;
    s->live = calloc(max_live, sizeof *s->live);
    s->stepped = calloc(max_live, sizeof *s->stepped);
    s->steps = calloc(max_live, sizeof *s->steps);
    s->spare = calloc(max_live, sizeof *s->spare);
    s->turns = calloc(max_live, sizeof *s->turns);
    if (!s->live || !s->stepped || !s->steps || !s->spare || !s->turns)
        return err_oom(e, max_live);
    return 0;
}

/* Numbers of a row of outputs. */
static size_t row_width(const struct runs *s)
{
    const struct config *c = &s->eng->model.config;
    return s->task->output == QWICK_HIDDEN ? c->d_model : c->vocab_size;
}

size_t runs_most_rows(const struct runs *s)
{
    return ROWS_BYTES / (row_width(s) * sizeof(float)) + 1;
}

/* Report the tokens that are done: those that the task has counted, those of
 * live runs, and `part` others. Never less than before, though runs that are
 * preempted begin again. */
static void report(struct runs *s, size_t part)
{
    size_t n = s->n_done + part;
    for (size_t i = 0; i < s->n_live && !s->task->by_row; i++)
        n += s->live[i]->n - run_pending(s->live[i]);
    n = n < s->n_total ? n : s->n_total;
    if (n > s->n_reported)
        s->n_reported = n;
    s->progress(s->progress_ctx, s->n_reported, s->n_total);
}

/* A pass that runs: it evaluates n tokens; `before` ones belong to no run. */
struct running {
    struct runs *s;
    size_t before, n;
};

/* Tokens that a run loses if the current pass stops. A recurrent state goes
 * back to a snapshot. */
static size_t lost_tokens(const struct run *r)
{
    struct kv_cache stopped = r->session->kv;
    kv_stop(&stopped, r->n_step);
    return r->session->kv.n - stopped.n;
}

/* Whether to stop the pass after n_done of n_layers layers, because runs were
 * cancelled: if what is left to do for them is no less work than what the
 * others would do again. Work is counted in tokens times layers. */
static bool is_worth_stopping(const struct runs *s, size_t n_done,
                              size_t n_layers)
{
    size_t useless = 0, useful = 0, lost = 0;
    for (size_t i = 0; i < s->n_steps; i++) {
        const struct run *r = s->stepped[i];
        if (!r->cancelled) {
            useful += r->n_step;
            lost += lost_tokens(r);
        } else if (!runs_decodes(s, r)) {
            useless += r->n_step; /* a token that decodes costs next to nothing
                                     beside others */
        }
    }
    if (useful && useful < WEIGHTS_TOKENS)
        useful = WEIGHTS_TOKENS;
    return useless * (n_layers - n_done) >= useful * n_done + lost * n_layers;
}

static void pass_layer(void *ctx, size_t n_done, size_t n_layers)
{
    const struct running *r = ctx;
    struct runs *s = r->s;
    if (s->progress)
        report(s, r->before + r->n * n_done / n_layers);
    if (!s->poll || s->stop)
        return;
    s->poll(s->poll_ctx);
    s->abandoned = s->cancelling && is_worth_stopping(s, n_done, n_layers);
    if (s->abandoned || flag_is_set(s->interrupt))
        flag_set(&s->stop, 1);
}

/* Evaluate steps in one pass, and report its layers. */
static int evaluate_steps(struct runs *s, const struct qwick_step *steps,
                          size_t n, struct qwick_err *e)
{
    struct running r = {.s = s};
    if (n && steps[0].session == s->base)
        r.before = s->base->kv.n;
    for (size_t i = 0; i < n; i++)
        r.n += steps[i].n;
    flag_set(&s->stop, 0);
    s->abandoned = false;
    s->eng->on_layer = s->progress || s->poll ? pass_layer : NULL;
    s->eng->on_layer_ctx = &r;
    s->eng->stop = s->poll ? &s->stop : NULL;
    int rc = qwick_engine_step(s->eng, steps, n, s->task->output, e);
    s->eng->on_layer = NULL;
    s->eng->stop = NULL;
    return rc;
}

static int create_base(struct runs *s, const int32_t *tokens, size_t n,
                       struct qwick_err *e)
{
    if (session_create(&s->base, s->eng, s->n_ctx, e))
        return -1;
    s->base->lora = s->lora;
    qwick_session_interrupt(s->base, s->interrupt);
    return qwick_session_reuse(s->base, tokens, n, e);
}

int runs_base_step(struct runs *s, const int32_t *tokens, size_t n, bool *more,
                   struct qwick_err *e)
{
    if (!s->base && create_base(s, tokens, n, e))
        return -1;
    size_t chunk = s->eng->model.chunk, at = s->base->kv.n;
    size_t m = n - at < chunk ? n - at : chunk;
    /* a step without output, so that forks copy no logits */
    struct qwick_step step = {s->base, tokens + at, m, QWICK_ROWS_NONE};
    if (m && evaluate_steps(s, &step, 1, e))
        return -1;
    s->n_passes += m > 0;
    s->n_evaluated += m;
    *more = at + m < n;
    if (!*more)
        qwick_session_publish(s->base);
    return 0;
}

int runs_set_base(struct runs *s, const int32_t *tokens, size_t n,
                  struct qwick_err *e)
{
    bool more = true;
    while (more)
        if (runs_base_step(s, tokens, n, &more, e))
            return -1;
    return 0;
}

/* ---- queue and sessions ------------------------------------------------- */

void runs_push_back(struct runs *s, struct run *r)
{
    r->next = NULL;
    *s->last = r;
    s->last = &r->next;
    s->n_waiting++;
}

void runs_push_front(struct runs *s, struct run *r)
{
    r->next = s->first;
    s->first = r;
    if (!r->next)
        s->last = &r->next;
    s->n_waiting++;
}

static struct run *pop(struct runs *s)
{
    struct run *r = s->first;
    s->first = r->next;
    if (!s->first)
        s->last = &s->first;
    s->n_waiting--;
    return r;
}

bool runs_pending(const struct runs *s)
{
    return s->n_waiting || s->n_live || s->more;
}

/* Keep or free a session that no run uses any more. Sessions that share pages
 * are not kept, since they would keep these pages alive. */
static void put_session(struct runs *s, struct qwick_session *session)
{
    size_t own = s->base ? qwick_session_kv_bytes(s->base) : 0;
    if (!session)
        return;
    if (!s->task->share && s->n_spare < s->max_live &&
        qwick_session_kv_bytes(session) <= own + SPARE_BYTES)
        s->spare[s->n_spare++] = session;
    else
        qwick_session_free(session);
}

static void release(struct runs *s, struct run *r)
{
    put_session(s, r->session);
    r->session = NULL;
    s->task->release(s, r);
}

static void leave(struct runs *s, const struct run *r)
{
    size_t i = 0;
    while (s->live[i] != r)
        i++;
    s->n_live--;
    memmove(s->live + i, s->live + i + 1, (s->n_live - i) * sizeof *s->live);
}

/* End a run that is no longer live. */
static int end_run(struct runs *s, struct run *r, struct qwick_err *e)
{
    s->hold = false;
    int rc = s->task->ended ? s->task->ended(s, r, e) : 0;
    release(s, r);
    return rc;
}

void runs_drop(struct runs *s)
{
    while (s->n_live)
        release(s, s->live[--s->n_live]);
    while (s->first)
        release(s, pop(s));
    s->more = false;
    s->hold = false;
}

void runs_close(struct runs *s)
{
    runs_drop(s);
    while (s->n_spare)
        qwick_session_free(s->spare[--s->n_spare]);
    qwick_session_free(s->base);
    kv_free(&s->shape);
    free(s->live);
    free(s->stepped);
    free(s->steps);
    free(s->spare);
    free(s->turns);
    *s = (struct runs){0};
}

/* How many tokens of r a session has and can continue from. r's last token does
 * not count: its output is wanted. */
static size_t known_tokens(const struct run *r, const struct qwick_session *had)
{
    if (had->lora != r->lora ||
        session_needs_long_rope(had, r->origin + r->n) != had->kv.long_rope)
        return 0;
    size_t n = tokens_in_common(r->tokens, r->n - 1, had->tokens, had->kv.n);
    return kv_usable(&had->kv, n);
}

/* Give the run a session that already has its first tokens: a spare session, or
 * a fork of the base if that has more of them. */
static int take_session(struct runs *s, struct run *r, struct qwick_err *e)
{
    size_t best = s->n_spare - 1, most = 0;
    for (size_t i = 0; s->task->reuse && i < s->n_spare; i++) {
        size_t n = known_tokens(r, s->spare[i]);
        if (n > most) {
            most = n;
            best = i;
        }
    }
    size_t in_base = s->base ? known_tokens(r, s->base) : 0;
    if (in_base > most) {
        most = in_base;
        if (qwick_session_fork(&r->session, s->base, e))
            return -1;
    } else if (s->n_spare) {
        r->session = s->spare[best];
        s->spare[best] = s->spare[--s->n_spare];
    } else if (session_create(&r->session, s->eng, s->n_ctx, e)) {
        return -1;
    }
    session_truncate(r->session, most);
    r->session->lora = r->lora;
    return 0;
}

/* Give the run a session. It gets the keys and values of the run's first tokens
 * from other runs and from caches, as many as they have. */
static int runs_start(struct runs *s, struct run *r, struct qwick_err *e)
{
    if (take_session(s, r, e))
        return -1;
    qwick_session_interrupt(r->session, s->interrupt);
    /* a run does not go back, and only shares */
    r->session->kv.most_snapshots = KV_SNAPSHOTS_FORWARD;
    /* those of the session's last run */
    memset(r->session->kv.requested, 0, sizeof r->session->kv.requested);
    if (s->task->share && runs_share(s, r, e)) {
        qwick_session_free(r->session);
        r->session = NULL;
        return -1;
    }
    s->n_shared += r->session->kv.n;
    if (s->task->started)
        s->task->started(s, r);
    return 0;
}

/* ---- before a pass ------------------------------------------------------ */

/* Move runs from the queue to the live runs, while there is a place and
 * memory. */
static int admit(struct runs *s, struct qwick_err *e)
{
    while (s->n_live < s->max_live && !(s->hold && s->n_live)) {
        if (!s->first && s->more && s->task->next(s, e))
            return -1;
        if (!s->first || !runs_admits(s, s->first))
            return 0;
        struct run *r = pop(s);
        if (!s->task->admit || s->task->admit(s, r))
            s->live[s->n_live++] = r;
        else if (end_run(s, r, e))
            return -1;
    }
    return 0;
}

/* Remove a cancelled run from the queue or from the live runs. */
static struct run *take_cancelled(struct runs *s)
{
    for (struct run **at = &s->first; *at; at = &(*at)->next) {
        struct run *r = *at;
        if (!r->cancelled)
            continue;
        *at = r->next;
        if (!r->next)
            s->last = at;
        s->n_waiting--;
        return r;
    }
    for (size_t i = 0; i < s->n_live; i++) {
        struct run *r = s->live[i];
        if (!r->cancelled)
            continue;
        leave(s, r);
        return r;
    }
    return NULL;
}

/* End cancelled runs. Searches again after each: its end may have queued or
 * cancelled others. */
static int end_cancelled(struct runs *s, struct qwick_err *e)
{
    struct run *r;
    while (s->cancelling && (r = take_cancelled(s))) {
        s->task->fail(s, r, NULL);
        if (end_run(s, r, e))
            return -1;
    }
    s->cancelling = false;
    return 0;
}

/* End runs whose deadline has passed. */
static int expire(struct runs *s, struct qwick_err *e)
{
    for (size_t i = 0; i < s->n_live;) {
        struct run *r = s->live[i];
        if (!(r->deadline_ms > 0 && clock_ms() >= r->deadline_ms)) {
            i++;
            continue;
        }
        s->task->fail(s, r, NULL);
        leave(s, r);
        if (end_run(s, r, e))
            return -1;
    }
    return 0;
}

/* Add the next tokens of a run to the pass, at most *budget of them and *rows
 * rows of outputs. A step has one row of output, or one per token. So with
 * QWICK_ROWS_ALL, a step ends before the first token whose output is wanted. */
static void plan_step(struct runs *s, struct run *r, size_t *budget,
                      size_t *rows)
{
    size_t at = r->n - run_pending(r), n = r->n - at;
    bool all = s->task->rows == QWICK_ROWS_ALL && at >= r->first;
    if (s->task->rows == QWICK_ROWS_ALL && !all)
        n = r->first - at;
    if (n > *budget)
        n = *budget;
    if (all && n > *rows && !s->task->whole)
        n = *rows;
    if (n == 0)
        return;
    *rows -= !all ? 0 : n < *rows ? n : *rows;
    r->complete = at + n == r->n;
    if (r->n_guess) {
        assert(n == 1 && r->complete && *budget > r->n_guess);
        n += r->n_guess;
        all = true;
    }
    *budget -= n;
    r->n_step = n;
    bool one = s->task->rows != QWICK_ROWS_ALL && r->complete;
    enum qwick_rows which = all   ? QWICK_ROWS_ALL
                            : one ? s->task->rows
                                  : QWICK_ROWS_NONE;
    r->session->n_expected = r->origin + r->n;
    r->session->n_type0 = r->n_type0;
    s->stepped[s->n_steps] = r;
    s->steps[s->n_steps++] =
        (struct qwick_step){r->session, r->tokens + at, n, which};
}

/* Set the turns to all prompts in order of admission. */
static void plan_in_order(struct runs *s)
{
    s->n_turns = 0;
    for (size_t i = 0; i < s->n_live; i++)
        if (!runs_decodes(s, s->live[i]))
            s->turns[s->n_turns++] =
                (struct turn){.live = i, .n_most = SIZE_MAX};
}

/* Whether a whole run must wait for the next pass. */
static bool is_too_long(const struct runs *s, const struct run *r,
                        size_t budget, size_t rows)
{
    return s->task->whole && s->n_steps > 0 &&
           (r->n > budget || (s->task->rows == QWICK_ROWS_ALL && r->n > rows));
}

/* Add tokens of a prompt to the pass. It may wait for another one instead. */
static int plan_prompt(struct runs *s, const struct turn *t, size_t *budget,
                       size_t *rows, struct qwick_err *e)
{
    struct run *r = s->live[t->live];
    size_t most = t->n_most < *budget ? t->n_most : *budget, left;
    if (is_too_long(s, r, *budget, *rows))
        return 0;
    if (s->task->whole && most < r->n)
        most = *budget = r->n;
    left = most;
    if (!r->session) {
        if (s->task->share && runs_worth_waiting(s, t->live))
            return 0;
        if (runs_start(s, r, e))
            return -1;
    }
    plan_step(s, r, &left, rows);
    *budget -= most - left;
    return 0;
}

/* Plan a pass: one token of every run that decodes, with its guesses, and
 * pieces of the other runs, up to the engine's chunk. So a decoding run never
 * waits for a long prompt, and prompts make progress even if the chunk is
 * small. */
static int plan(struct runs *s, struct qwick_err *e)
{
    size_t chunk = s->eng->model.chunk, budget = SIZE_MAX, n = 0;
    size_t rows = runs_most_rows(s);
    s->n_steps = 0;
    for (size_t i = 0; i < s->n_live; i++)
        if (runs_decodes(s, s->live[i]))
            plan_step(s, s->live[i], &budget, &rows);
    s->n_decoding = s->n_steps;
    for (size_t i = 0; i < s->n_steps; i++)
        n += s->stepped[i]->n_step;
    budget = s->task->whole ? chunk * WHOLE_CHUNKS : chunk > n ? chunk - n : 1;
    if (s->fair.on)
        fair_plan(s, &budget);
    else
        plan_in_order(s);
    for (size_t i = 0; i < s->n_turns && budget > 0; i++)
        if (plan_prompt(s, &s->turns[i], &budget, &rows, e))
            return -1;
    return 0;
}

/* Preempt the youngest run: drop its cache. It starts again when another run
 * has ended. */
static void preempt(struct runs *s)
{
    struct run *r = s->live[--s->n_live];
    qwick_session_free(r->session);
    r->session = NULL;
    r->n_guess = 0;
    runs_push_front(s, r);
    s->hold = true;
    s->n_preempted++;
}

/* Evaluate a pass. If memory is short, first free caches kept for later, then
 * preempt the youngest runs. If the only run left does not fit, it fails:
 * *failed, with *why. */
static int evaluate(struct runs *s, struct run **failed, struct qwick_err *why)
{
    *failed = NULL;
    for (;;) {
        bool beyond = false; /* beyond kv_bytes, which do not include the prefix
                                cache */
        if (!plan(s, why) && !(beyond = runs_check_memory(s, why) != 0) &&
            !evaluate_steps(s, s->steps, s->n_steps, why))
            return 0;
        if (why->code != QWICK_ERR_MEMORY)
            return -1;
        if (!beyond && runs_give_back(s))
            continue;
        if (s->task->give_up_guesses && s->task->give_up_guesses(s))
            continue;
        if (s->task->preempt && s->n_live > 1) {
            preempt(s);
            continue;
        }
        if (!s->task->fail)
            return -1;
        *failed = s->live[0];
        return 0;
    }
}

/* ---- after a pass ------------------------------------------------------- */

/* The rows of output of step i. The last row belongs to the last token. */
static const float *rows_of(const struct runs *s, size_t i, size_t *n)
{
    const struct qwick_session *session = s->steps[i].session;
    if (s->task->output != QWICK_HIDDEN)
        return qwick_session_rows(session, n);
    *n = session->hidden ? session->n_rows : 0;
    return *n ? session->hidden - (*n - 1) * row_width(s) : NULL;
}

static void draw_body(void *ctx, struct par_team *team, int tid, int n_threads)
{
    struct runs *s = ctx;
    size_t begin, end, n;
    (void)tid;
    (void)n_threads;
    while (par_next(team, s->n_steps, 1, &begin, &end)) {
        const float *rows = rows_of(s, begin, &n);
        if (n)
            s->task->draw(s->stepped[begin], rows + s->n_drawn * row_width(s));
    }
}

static void draw(struct runs *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_steps; i++)
        n += s->steps[i].rows != QWICK_ROWS_NONE;
    if (n)
        par_run(n > 1 ? s->eng->pool : NULL, draw_body, s);
}

static int hand_out_rows(struct runs *s, struct qwick_err *e)
{
    size_t width = row_width(s);
    for (size_t i = 0; i < s->n_steps; i++) {
        struct run *r = s->stepped[i];
        size_t n, end = r->n - run_pending(r);
        const float *rows = rows_of(s, i, &n);
        for (size_t k = 0; k < n; k++)
            if (s->task->row(s, r, end - n + k, rows + k * width, e))
                return -1;
    }
    return 0;
}

/* Whether the token that a run has added was guessed: then its output is there
 * already. */
static bool accept_guess(struct run *r, size_t n_before)
{
    if (r->n_guess == 0 || r->n != n_before + 1 ||
        r->session->tokens[r->origin + n_before] != r->tokens[n_before])
        return false;
    r->n_guess--;
    return true;
}

/* Drop guesses that no token has confirmed, and their keys and values. */
static void drop_guesses(struct run *r, size_t n)
{
    if (r->n_guess == 0)
        return;
    r->n_guess = 0;
    session_truncate(r->session, r->origin + n);
    assert(r->session->kv.n == r->origin + n);
}

/* Finish the complete runs of the pass. All outputs are used, even if the end
 * of a run fails and stops the scheduler. The steps of runs with further
 * outputs stay. */
static int finish_runs(struct runs *s, struct qwick_err *e)
{
    size_t n_left = 0;
    int rc = 0;
    for (size_t i = 0; i < s->n_steps; i++) {
        struct run *r = s->stepped[i];
        size_t n = r->n;
        bool again = false;
        if (!r->complete)
            continue;
        if (s->task->done && s->task->done(s, r, &again, e)) {
            s->n_steps = 0;
            return -1;
        }
        if (again && accept_guess(r, n)) {
            s->stepped[n_left] = r;
            s->steps[n_left++] = s->steps[i];
            continue;
        }
        drop_guesses(r, n);
        if (again)
            continue;
        leave(s, r);
        if (end_run(s, r, e))
            rc = -1;
    }
    s->n_steps = n_left;
    return rc;
}

/* Draw tokens and finish runs, for each row of outputs. */
static int use_outputs(struct runs *s, struct qwick_err *e)
{
    int rc = 0;
    for (s->n_drawn = 0; s->n_steps > 0; s->n_drawn++) {
        if (s->task->draw)
            draw(s);
        if (finish_runs(s, e))
            rc = -1;
    }
    return rc;
}

int runs_step(struct runs *s, struct qwick_err *e)
{
    struct run *failed;
    struct qwick_err why;
    if (end_cancelled(s, e))
        return -1;
    if (flag_is_set(s->interrupt))
        return err_set(e, QWICK_ERR_INTERRUPTED, "interrupted");
    if (expire(s, e) || admit(s, e))
        return -1;
    if (s->n_live == 0)
        return 0;
    if (s->task->guess)
        s->task->guess(s);
    double start = s->fair.on ? s->fair.clock() : 0;
    if (evaluate(s, &failed, &why)) {
        if (s->abandoned) {
            s->abandoned = false;
            return end_cancelled(s, e);
        }
        if (e)
            *e = why;
        return -1;
    }
    if (failed) {
        s->task->fail(s, failed, &why);
        leave(s, failed);
        return end_run(s, failed, e);
    }
    assert(s->n_steps > 0);
    if (s->fair.on)
        fair_account(s, s->fair.clock() - start);
    s->n_passes++;
    for (size_t i = 0; i < s->n_steps; i++)
        s->n_evaluated += s->stepped[i]->n_step;
    if ((s->task->row && hand_out_rows(s, e)) || use_outputs(s, e))
        return -1;
    if (s->progress)
        report(s, 0);
    return 0;
}

int runs_all(struct runs *s, struct qwick_err *e)
{
    while (runs_pending(s)) {
        if (runs_step(s, e)) {
            runs_drop(s);
            return -1;
        }
    }
    return 0;
}
