/* Continuous batching: which sequences are alive, what each pass does, and what
 * becomes of its logits. */
#include "engine/batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/par.h"
#include "engine/options.h"

enum { DEFAULT_MAX_BATCH = 16 };

/* ---- requests ----------------------------------------------------------- */

static void seq_free(struct seq *q)
{
    if (!q)
        return;
    qwick_session_free(q->session);
    generation_free(&q->g);
    qwick_result_free(&q->r);
    free(q->ids);
    free(q);
}

static int seq_reserve(struct seq *q, size_t n, struct qwick_err *e)
{
    size_t cap, bytes;
    if (n <= q->cap)
        return 0;
    if (size_add(n, n / 2 + 64, &cap) || size_mul(cap, sizeof *q->ids, &bytes))
        return err_oom(e, SIZE_MAX);
    int32_t *ids = realloc(q->ids, bytes);
    if (!ids)
        return err_oom(e, bytes);
    q->ids = ids;
    q->cap = cap;
    return 0;
}

static void push_back(struct qwick_batch *b, struct seq *q)
{
    q->next = NULL;
    *b->last = q;
    b->last = &q->next;
    b->n_waiting++;
}

static void push_front(struct qwick_batch *b, struct seq *q)
{
    q->next = b->first;
    b->first = q;
    if (!q->next)
        b->last = &q->next;
    b->n_waiting++;
}

static struct seq *pop(struct qwick_batch *b)
{
    struct seq *q = b->first;
    b->first = q->next;
    if (!b->first)
        b->last = &b->first;
    b->n_waiting--;
    return q;
}

static int check_prompt(const struct qwick_batch *b, const int32_t *prompt,
                        size_t n, struct qwick_err *e)
{
    if (n == 0)
        return err_set(e, QWICK_ERR_USAGE, "prompt: has no tokens");
    if (generation_check(b->eng, prompt, n, e))
        return -1;
    if (n > b->limit)
        return err_set(e, QWICK_ERR_CONTEXT,
                       "prompt: %zu tokens do not fit the context of %zu", n,
                       b->limit);
    return 0;
}

int qwick_batch_add(struct qwick_batch *b, const int32_t *prompt, size_t n,
                    const struct qwick_generate_options *o, void *tag,
                    struct qwick_err *e)
{
    if (check_prompt(b, prompt, n, e))
        return -1;
    struct seq *q = calloc(1, sizeof *q);
    if (!q)
        return err_oom(e, sizeof *q);
    if (seq_reserve(q, n, e)) {
        seq_free(q);
        return -1;
    }
    memcpy(q->ids, prompt, n * sizeof *prompt);
    q->n = q->n_prompt = n;
    q->o = qwick_generate_defaults();
    q->tag = tag;
    if (options_read(&q->o, sizeof q->o, o, "generate", e) ||
        prefix_like(b, prompt, n, e)) {
        seq_free(q);
        return -1;
    }
    push_back(b, q);
    return 0;
}

int qwick_batch_cancel(struct qwick_batch *b, const void *tag,
                       struct qwick_err *e)
{
    bool found = false;
    for (struct seq *q = b->first; q; q = q->next)
        if (q->tag == tag)
            q->cancelled = found = true;
    for (size_t i = 0; i < b->n_live; i++)
        if (b->live[i]->tag == tag)
            b->live[i]->cancelled = found = true;
    b->cancelling |= found;
    return found ? 0
                 : err_set(e, QWICK_ERR_USAGE,
                           "batch: no request has the tag to cancel");
}

/* ---- the batch ---------------------------------------------------------- */

int qwick_batch_create(struct qwick_batch **out, struct qwick_engine *eng,
                       const struct qwick_batch_options *given,
                       struct qwick_err *e)
{
    struct qwick_batch_options all = qwick_batch_defaults(), *o = &all;
    struct qwick_session *probe;
    *out = NULL;
    if (options_read(o, sizeof *o, given, "batch", e))
        return -1;
    /* says what is wrong with the engine or the context */
    if (qwick_session_create(&probe, eng, o->n_ctx, e))
        return -1;
    size_t limit = probe->limit;
    qwick_session_free(probe);
    struct qwick_batch *b = calloc(1, sizeof *b);
    if (!b)
        return err_oom(e, sizeof *b);
    b->eng = eng;
    b->o = *o;
    b->limit = limit;
    b->last = &b->first;
    if (!b->o.max_batch)
        b->o.max_batch = DEFAULT_MAX_BATCH;
    b->live = calloc(b->o.max_batch, sizeof *b->live);
    b->steps = calloc(b->o.max_batch, sizeof *b->steps);
    b->stepped = calloc(b->o.max_batch, sizeof *b->stepped);
    if (!b->live || !b->steps || !b->stepped) {
        size_t n = b->o.max_batch;
        qwick_batch_free(b);
        return err_oom(e, n);
    }
    if (o->n_common && prefix_like(b, o->common, o->n_common, e)) {
        qwick_batch_free(b);
        return -1;
    }
    *out = b;
    return 0;
}

void qwick_batch_free(struct qwick_batch *b)
{
    if (!b)
        return;
    while (b->first)
        seq_free(pop(b));
    for (size_t i = 0; i < b->n_live; i++)
        seq_free(b->live[i]);
    free(b->like);
    free(b->live);
    free(b->steps);
    free(b->stepped);
    free(b);
}

void qwick_batch_stats_read(const struct qwick_batch *b,
                            struct qwick_batch_stats *out, size_t size)
{
    struct qwick_batch_stats s = b->stats;
    s.n_waiting = b->n_waiting;
    s.n_live = b->n_live;
    memset(out, 0, size);
    memcpy(out, &s, size < sizeof s ? size : sizeof s);
}

static void unlive(struct qwick_batch *b, const struct seq *q)
{
    size_t i = 0;
    while (b->live[i] != q)
        i++;
    b->n_live--;
    memmove(b->live + i, b->live + i + 1, (b->n_live - i) * sizeof(*b->live));
}

/* Tell what became of a sequence that is no longer live. -1: the callback asked
 * to stop. */
static int end(struct qwick_batch *b, struct seq *q,
               const struct qwick_err *why, struct qwick_err *e)
{
    b->hold = false;
    if (!why && q->session)
        prefix_leave(b, q->session);
    /* releases what the callback does not need before it adds more */
    generation_free(&q->g);
    int stop = b->o.done ? b->o.done(b->o.done_ctx, q->tag, &q->r, why) : 0;
    seq_free(q);
    return stop ? err_set(e, QWICK_ERR_RUNTIME, "batch: stopped") : 0;
}

/* ---- before a pass ------------------------------------------------------ */

/* From the queue to the living, as long as there is place. A sequence that
 * cannot begin has ended. */
static int admit(struct qwick_batch *b, struct qwick_err *e)
{
    while (b->first && b->n_live < b->o.max_batch &&
           !(b->hold && b->n_live > 0) && memory_admits(b, b->first)) {
        struct seq *q = pop(b);
        struct qwick_err why;
        if (!q->begun && generation_begin(&q->g, b->eng, q->ids, q->n_prompt,
                                          &q->o, b->limit, &q->r, &why)) {
            if (end(b, q, &why, e))
                return -1;
            continue;
        }
        q->begun = true;
        b->live[b->n_live++] = q;
    }
    return 0;
}

/* Take a cancelled sequence out of the queue or from the living. */
static struct seq *take_cancelled(struct qwick_batch *b)
{
    for (struct seq **at = &b->first; *at; at = &(*at)->next) {
        struct seq *q = *at;
        if (!q->cancelled)
            continue;
        *at = q->next;
        if (!q->next)
            b->last = at;
        b->n_waiting--;
        return q;
    }
    for (size_t i = 0; i < b->n_live; i++) {
        struct seq *q = b->live[i];
        if (!q->cancelled)
            continue;
        unlive(b, q);
        return q;
    }
    return NULL;
}

/* End cancelled sequences. Looks anew after each: its callback may have added
 * or cancelled others. */
static int end_cancelled(struct qwick_batch *b, struct qwick_err *e)
{
    struct seq *q;
    while (b->cancelling && (q = take_cancelled(b))) {
        struct qwick_err why;
        if (!q->begun) {
            q->g.r = &q->r;
            q->r = (struct qwick_result){.seed = q->o.sampling.seed,
                                         .n_prompt = q->n_prompt};
        }
        q->r.finish = QWICK_FINISH_CANCELLED;
        if (q->start_ms > 0)
            q->r.total_ms = clock_ms() - q->start_ms;
        if (q->r.n_tokens == 0)
            q->r.prefill_ms = q->r.total_ms;
        int failed = generation_finish(&q->g, &why);
        if (end(b, q, failed ? &why : NULL, e))
            return -1;
    }
    b->cancelling = false;
    return 0;
}

/* End sequences whose time is over before their first token. Later, a sequence
 * ends itself after its next token, so that no text is held back. */
static int expire(struct qwick_batch *b, struct qwick_err *e)
{
    for (size_t i = 0; i < b->n_live;) {
        struct seq *q = b->live[i];
        struct qwick_err why;
        if (q->r.n_tokens > 0 || !generation_timed_out(&q->g)) {
            i++;
            continue;
        }
        q->r.finish = QWICK_FINISH_TIMEOUT;
        q->r.total_ms = q->r.prefill_ms = clock_ms() - q->start_ms;
        int failed = generation_finish(&q->g, &why);
        unlive(b, q);
        if (end(b, q, failed ? &why : NULL, e))
            return -1;
    }
    return 0;
}

static void plan_step(struct qwick_batch *b, struct seq *q, size_t n)
{
    size_t at = q->session->kv.n;
    q->n_step = n;
    q->draws = at + n == q->n;
    b->stepped[b->n_steps] = q;
    b->steps[b->n_steps++] =
        (struct qwick_step){q->session, q->ids + at, n,
                            q->draws ? QWICK_WANT_LAST : QWICK_WANT_NONE};
}

/* One token of every sequence that decodes, and pieces of prompts, in order of
 * admission, up to the engine's chunk: so no token waits for a long prompt. */
static int plan(struct qwick_batch *b, struct qwick_err *e)
{
    size_t chunk = b->eng->model.chunk, budget;
    b->n_steps = 0;
    for (size_t i = 0; i < b->n_live; i++)
        if (b->live[i]->session && seq_pending(b->live[i]) == 1)
            plan_step(b, b->live[i], 1);
    /* prompts go on however small the chunk is */
    budget = chunk > b->n_steps ? chunk - b->n_steps : 1;
    for (size_t i = 0; i < b->n_live && budget > 0; i++) {
        struct seq *q = b->live[i];
        if (q->session && seq_pending(q) == 1)
            continue;
        if (!q->session) {
            if (prefix_worth_waiting(b, i))
                continue;
            if (prefix_start(b, q, e))
                return -1;
        }
        if (q->start_ms == 0) {
            q->start_ms = clock_ms();
            if (q->o.timeout_ms > 0)
                q->g.deadline_ms = q->start_ms + q->o.timeout_ms;
        }
        size_t n = seq_pending(q) < budget ? seq_pending(q) : budget;
        plan_step(b, q, n);
        budget -= n;
    }
    return 0;
}

/* Take the cache of the youngest sequence, which starts again when another one
 * has ended. What it has drawn stays. */
static void preempt(struct qwick_batch *b)
{
    struct seq *q = b->live[--b->n_live];
    qwick_session_free(q->session);
    q->session = NULL;
    push_front(b, q);
    b->hold = true;
    b->stats.n_preempted++;
}

/* Evaluate a pass. Where memory is short, with less: the prefix cache goes
 * first, then the youngest sequences. The last one left fails by itself:
 * *failed. */
static int evaluate(struct qwick_batch *b, struct seq **failed,
                    struct qwick_err *e)
{
    *failed = NULL;
    for (;;) {
        struct qwick_err why;
        bool beyond = false; /* o.kv_bytes, which the prefix cache is not of */
        if (!plan(b, &why) && !(beyond = memory_check(b, &why) != 0) &&
            !qwick_engine_step(b->eng, b->steps, b->n_steps, QWICK_LOGITS,
                               &why))
            return 0;
        if (why.code != QWICK_ERR_MEMORY) {
            if (e)
                *e = why;
            return -1;
        }
        if (!beyond && memory_give_back(b))
            continue;
        if (b->n_live > 1) {
            preempt(b);
            continue;
        }
        *failed = b->live[0];
        (*failed)->e = why;
        return 0;
    }
}

/* ---- after a pass ------------------------------------------------------- */

/* Each sequence draws from its own row with its own sampler. */
static void draw_rows(void *ctx, struct par_team *team, int tid, int n_threads)
{
    struct qwick_batch *b = ctx;
    size_t begin, stop;
    (void)tid;
    (void)n_threads;
    while (par_next(team, b->n_steps, 1, &begin, &stop)) {
        struct seq *q = b->stepped[begin];
        if (!q->draws)
            continue;
        q->failed =
            generation_draw(&q->g, q->session->logits, &q->drawn, &q->e) != 0;
        if (!q->failed)
            generation_weigh(&q->g, q->session->logits);
    }
}

static size_t count_rows(const struct qwick_batch *b)
{
    size_t n = 0;
    for (size_t i = 0; i < b->n_steps; i++)
        n += b->stepped[i]->draws;
    return n;
}

/* Hand out the token just drawn; it is the next one to be evaluated. */
static int take_token(struct qwick_batch *b, struct seq *q, bool *last)
{
    double now = clock_ms();
    b->stats.n_generated++;
    if (q->r.n_tokens == 1) {
        q->r.prefill_ms = now - q->start_ms;
        prefix_keep(b, q);
    }
    q->r.total_ms = now - q->start_ms;
    if (seq_reserve(q, q->n + 1, &q->e) ||
        generation_emit(&q->g, q->drawn, q->session->kv.n, last, &q->e))
        return -1;
    q->ids[q->n++] = q->drawn;
    return *last ? generation_finish(&q->g, &q->e) : 0;
}

/* All tokens of the pass are handed out even when a callback asks to stop. */
static int take_rows(struct qwick_batch *b, struct qwick_err *e)
{
    int rc = 0;
    for (size_t i = 0; i < b->n_steps; i++) {
        struct seq *q = b->stepped[i];
        bool last = false;
        b->stats.n_evaluated += q->n_step;
        if (!q->draws)
            continue;
        if (!q->failed)
            q->failed = take_token(b, q, &last) != 0;
        if (!q->failed && !last)
            continue;
        unlive(b, q);
        if (end(b, q, q->failed ? &q->e : NULL, e))
            rc = -1;
    }
    b->n_steps = 0;
    return rc;
}

int qwick_batch_step(struct qwick_batch *b, struct qwick_err *e)
{
    struct seq *failed;
    if (b->o.interrupt && *b->o.interrupt)
        return err_set(e, QWICK_ERR_INTERRUPTED, "interrupted");
    if (end_cancelled(b, e) || expire(b, e) || admit(b, e))
        return -1;
    if (b->n_live == 0)
        return 0;
    if (evaluate(b, &failed, e))
        return -1;
    if (failed) {
        struct qwick_err why = failed->e;
        unlive(b, failed);
        return end(b, failed, &why, e);
    }
    b->stats.n_passes++;
    size_t rows = count_rows(b);
    if (rows > 0)
        par_run(rows > 1 ? b->eng->pool : NULL, draw_rows, b);
    return take_rows(b, e);
}

int qwick_batch_run(struct qwick_batch *b, struct qwick_err *e)
{
    while (b->n_waiting > 0 || b->n_live > 0)
        if (qwick_batch_step(b, e))
            return -1;
    return 0;
}
