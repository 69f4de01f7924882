#include "engine/tasks/batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "engine/core/options.h"

enum { DEFAULT_MAX_BATCH = 16 };

/* Tokens that an answer without a limit is expected to have. One that grows
 * beyond may cost another sequence its cache. */
enum { EXPECTED_TOKENS = 512 };

/* ---- requests ----------------------------------------------------------- */

static void seq_free(struct seq *q)
{
    if (!q)
        return;
    speculative_close(&q->guesses);
    generation_free(&q->g);
    qwick_result_free(&q->r);
    free(q->ids);
    free(q);
}

int seq_reserve(struct seq *q, size_t n, struct qwick_err *e)
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
    q->run.tokens = ids;
    q->cap = cap;
    return 0;
}

static int check_prompt(const struct qwick_batch *b, const int32_t *prompt,
                        size_t n, struct qwick_err *e)
{
    if (n == 0)
        return err_set(e, QWICK_ERR_USAGE, "prompt: has no tokens");
    if (generation_check(b->runs.eng, prompt, n, e))
        return -1;
    if (n > b->runs.n_ctx)
        return err_set(e, QWICK_ERR_CONTEXT,
                       "prompt: %zu tokens do not fit the context of %zu", n,
                       b->runs.n_ctx);
    return runs_check_length(&b->runs, n, e);
}

/* The tokens that the sequence will probably have, one more than now at least.
 */
static void expect_tokens(const struct qwick_batch *b, struct seq *q)
{
    size_t more = q->o.max_tokens ? q->o.max_tokens : EXPECTED_TOKENS, n;
    if (size_add(q->n_prompt, more, &n))
        n = SIZE_MAX;
    if (n < q->run.n + 1)
        n = q->run.n + 1;
    q->run.n_final = n < b->runs.n_ctx ? n : b->runs.n_ctx;
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
    q->run.n = q->n_prompt = n;
    q->run.lora = b->runs.eng->own_lora;
    q->tag = tag;
    if (generation_read_options(&q->o, &q->sampling, o, e) ||
        batch_note_prompt(b, prompt, n, e)) {
        seq_free(q);
        return -1;
    }
    expect_tokens(b, q);
    if (q->o.draft)
        q->run.more_bytes = draft_bytes(q->o.draft, q->run.n_final);
    runs_push_back(&b->runs, &q->run);
    return 0;
}

static bool cancel(struct runs *s, struct run *run, const void *tag)
{
    const struct seq *q = (struct seq *)run;
    if (q->tag != tag)
        return false;
    run->cancelled = s->cancelling = true;
    return true;
}

int qwick_batch_cancel(struct qwick_batch *b, const void *tag,
                       struct qwick_err *e)
{
    bool found = false;
    for (struct run *r = b->runs.first; r; r = r->next)
        found |= cancel(&b->runs, r, tag);
    for (size_t i = 0; i < b->runs.n_live; i++)
        found |= cancel(&b->runs, b->runs.live[i], tag);
    return found ? 0
                 : err_set(e, QWICK_ERR_USAGE,
                           "batch: no request has the tag to cancel");
}

bool qwick_batch_waits(const struct qwick_batch *b, const void *tag)
{
    bool found = false;
    for (size_t i = 0; i < b->runs.n_live; i++)
        if (((const struct seq *)b->runs.live[i])->tag == tag)
            return false;
    for (const struct run *r = b->runs.first; r; r = r->next) {
        const struct seq *q = (const struct seq *)r;
        if (q->tag == tag && q->begun)
            return false; /* it was preempted */
        found |= q->tag == tag;
    }
    return found;
}

/* ---- the task ----------------------------------------------------------- */

static bool admit(struct runs *s, struct run *run)
{
    struct seq *q = (struct seq *)run;
    if (!q->begun)
        q->failed = generation_begin(&q->g, s->eng, q->ids, q->n_prompt, &q->o,
                                     s->n_ctx, &q->r, &q->e) ||
                    speculative_open(&q->guesses, &q->g, s->eng, q->ids,
                                 q->n_prompt, 0, &q->e);
    if (!q->begun && !q->failed)
        batch_recall(s->ctx, q);
    q->begun = true;
    return !q->failed;
}

static void started(struct runs *s, struct run *run)
{
    struct seq *q = (struct seq *)run;
    batch_request_snapshots(s->ctx, q);
    if (q->r.n_tokens == 0)
        q->r.n_cached = run->session->kv.n;
    if (q->start_ms > 0)
        return;
    q->start_ms = clock_ms();
    if (q->o.timeout_ms > 0)
        run->deadline_ms = q->g.deadline_ms = q->start_ms + q->o.timeout_ms;
}

/* Before the first draw of a pass: count its guesses. */
static void count_guesses(struct seq *q)
{
    struct qwick_lookup *c = &q->guesses.counts[q->guesses.source];
    if (q->run.n_guess) {
        c->n_passes++;
        c->n_drafted += q->run.n_guess;
    }
    q->guessed = false;
}

/* Each sequence draws from its own row with its own sampler. */
static void draw(struct run *run, const float *logits)
{
    struct seq *q = (struct seq *)run;
    if (q->guessed)
        count_guesses(q);
    if (!q->failed)
        q->failed = speculative_draw(&q->guesses, logits, &q->drawn, &q->e) != 0;
    if (!q->failed)
        generation_weigh(&q->g, logits);
}

/* Hand out the token just drawn; it is the next one to be evaluated. */
static int take_token(struct qwick_batch *b, struct seq *q, bool *last)
{
    double now = clock_ms();
    b->n_generated++;
    if (q->r.n_tokens == 1) {
        q->r.prefill_ms = now - q->start_ms;
        /* later it ends itself after a token, so that no text is held back */
        q->run.deadline_ms = 0;
        batch_keep_prompt(b, q);
    }
    q->r.total_ms = now - q->start_ms;
    if (seq_reserve(q, q->run.n + 1, &q->e) ||
        generation_emit(&q->g, q->drawn, q->run.n, last, &q->e))
        return -1;
    if (q->run.n_guess && !*last && q->ids[q->run.n] == q->drawn)
        q->guesses.counts[q->guesses.source].n_accepted++;
    q->ids[q->run.n++] = q->drawn;
    expect_tokens(b, q);
    return *last ? generation_finish(&q->g, &q->e) : 0;
}

static int done(struct runs *s, struct run *run, bool *again,
                struct qwick_err *e)
{
    struct seq *q = (struct seq *)run;
    bool last = false;
    (void)e;
    if (!q->failed)
        q->failed = take_token(s->ctx, q, &last) != 0;
    *again = !q->failed && !last;
    return 0;
}

static void fail(struct runs *s, struct run *run, const struct qwick_err *why)
{
    struct seq *q = (struct seq *)run;
    (void)s;
    if (why) {
        q->failed = true;
        q->e = *why;
        return;
    }
    if (!q->begun) {
        q->g.r = &q->r;
        q->r = (struct qwick_result){.seed = q->sampling.seed,
                                     .n_prompt = q->n_prompt,
                                     .draft.on = q->o.draft != NULL};
    }
    q->r.finish =
        run->cancelled ? QWICK_FINISH_CANCELLED : QWICK_FINISH_TIMEOUT;
    if (q->start_ms > 0)
        q->r.total_ms = clock_ms() - q->start_ms;
    if (q->r.n_tokens == 0)
        q->r.prefill_ms = q->r.total_ms;
    q->failed = generation_finish(&q->g, &q->e) != 0;
}

/* Say what became of a sequence. */
static int ended(struct runs *s, struct run *run, struct qwick_err *e)
{
    struct qwick_batch *b = s->ctx;
    struct seq *q = (struct seq *)run;
    if (!q->failed && run->session)
        batch_keep_answer(b, run->session);
    speculative_report(&q->guesses, &q->r);
    batch_learn(b, q);
    /* releases what the callback does not need before it adds more */
    speculative_close(&q->guesses);
    generation_free(&q->g);
    if (b->o.done &&
        b->o.done(b->o.done_ctx, q->tag, &q->r, q->failed ? &q->e : NULL))
        return err_set(e, QWICK_ERR_RUNTIME, "batch: stopped");
    return 0;
}

static void release_seq(struct runs *s, struct run *run)
{
    (void)s;
    seq_free((struct seq *)run);
}

static const struct run_task task = {.output = QWICK_LOGITS,
                                     .rows = QWICK_ROWS_LAST,
                                     .share = true,
                                     .preempt = true,
                                     .admit = admit,
                                     .started = started,
                                     .guess = batch_guess,
                                     .give_up_guesses = batch_give_up_guesses,
                                     .draw = draw,
                                     .done = done,
                                     .fail = fail,
                                     .ended = ended,
                                     .release = release_seq};

/* ---- the batch ---------------------------------------------------------- */

int qwick_batch_create(struct qwick_batch **out, struct qwick_engine *eng,
                       const struct qwick_batch_options *given,
                       struct qwick_err *e)
{
    struct qwick_batch_options all = qwick_batch_defaults(), *o = &all;
    *out = NULL;
    if (options_read(o, sizeof *o, given, "batch", e))
        return -1;
    struct qwick_batch *b = calloc(1, sizeof *b);
    if (!b)
        return err_oom(e, sizeof *b);
    b->o = *o;
    if (runs_open(&b->runs, eng, &task, b, o->n_ctx,
                  o->max_batch ? o->max_batch : DEFAULT_MAX_BATCH, e))
        goto fail;
    b->drafts = calloc(b->runs.max_live, sizeof *b->drafts);
    if (!b->drafts) {
        err_oom(e, b->runs.max_live * sizeof *b->drafts);
        goto fail;
    }
    b->runs.kv_bytes = o->kv_bytes;
    b->runs.interrupt = o->interrupt;
    b->runs.fair.on = o->fair;
    b->runs.poll = o->on_layer;
    b->runs.poll_ctx = o->on_layer_ctx;
    if (o->n_common && batch_note_prompt(b, o->common, o->n_common, e))
        goto fail;
    *out = b;
    return 0;
fail:
    qwick_batch_free(b);
    return -1;
}

void qwick_batch_free(struct qwick_batch *b)
{
    if (!b)
        return;
    runs_close(&b->runs);
    free(b->like);
    free(b->drafts);
    free(b);
}

void qwick_batch_stats_read(const struct qwick_batch *b,
                            struct qwick_batch_stats *out, size_t size)
{
    const struct runs *s = &b->runs;
    const struct qwick_batch_stats now = {.n_waiting = s->n_waiting,
                                          .n_live = s->n_live,
                                          .n_passes = s->n_passes,
                                          .n_evaluated = s->n_evaluated,
                                          .n_shared = s->n_shared,
                                          .n_generated = b->n_generated,
                                          .n_preempted = s->n_preempted};
    memset(out, 0, size);
    memcpy(out, &now, size < sizeof now ? size : sizeof now);
}

size_t qwick_batch_kv_bytes(const struct qwick_batch *b)
{
    return runs_used_bytes(&b->runs);
}

int qwick_batch_step(struct qwick_batch *b, struct qwick_err *e)
{
    return runs_step(&b->runs, e);
}

int qwick_batch_run(struct qwick_batch *b, struct qwick_err *e)
{
    while (runs_pending(&b->runs))
        if (runs_step(&b->runs, e))
            return -1;
    return 0;
}
