/* Guesses of draft models for the answers of a batch. */
#include "engine/tasks/batch.h"

void batch_recall(const struct qwick_batch *b, struct seq *q)
{
    if (q->o.draft && b->learned_of == q->o.draft)
        budget_follow(&q->guesses.draft.budget, &b->learned);
}

void batch_learn(struct qwick_batch *b, struct seq *q)
{
    struct draft *d = &q->guesses.draft;
    if (!d->eng)
        return;
    draft_settle(d, q->guesses.n_right);
    b->learned = d->budget;
    b->learned_of = d->eng;
}

/* Forget guesses of a pass that failed, if the run does not decode any more: it
 * was preempted, or an interrupt cost it a recurrent state. */
static void forget(struct seq *q)
{
    q->guessed = false;
    q->run.n_guess = 0;
    speculative_drop(&q->guesses);
}

/* Count the runs that decode, and let others forget their guesses. */
static size_t count_decoding(struct runs *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_live; i++) {
        struct seq *q = (struct seq *)s->live[i];
        if (run_decodes(&q->run))
            n++;
        else if (q->guessed)
            forget(q);
    }
    return n;
}

/* Return how many tokens a run that decodes may have in the next pass. Prompts
 * keep half of the chunk. */
static size_t tokens_of_each(const struct runs *s, size_t n_decoding)
{
    size_t n = s->eng->model.chunk, n_rows = runs_most_rows(s);
    if (n_decoding < s->n_live)
        n /= 2;
    return (n < n_rows ? n : n_rows) / n_decoding;
}

/* Begin the guesses of a request that decodes. */
static void begin(struct seq *q, size_t n_tokens)
{
    size_t n = q->run.n, max;
    if (!q->o.draft || q->guessed || q->failed || q->r.n_tokens == 0)
        return;
    if (!q->guesses.draft.eng)
        q->run.more_bytes = 0;
    max = speculative_max(&q->guesses, q->run.session, n_tokens);
    max = decode_most_guesses(&q->g.rules, q->r.n_tokens, n - 1, max);
    if (max == 0)
        return;
    q->failed = seq_reserve(q, n + max, &q->e) ||
                speculative_begin(&q->guesses, q->run.session, max, &q->e);
    q->guessed = !q->failed;
}

/* Let the draft models guess, each for all answers that asked it. */
static void run_drafts(struct qwick_batch *b, size_t n_decoding)
{
    const struct runs *s = &b->runs;
    size_t n;
    do {
        const struct qwick_engine *eng = NULL;
        n = 0;
        for (size_t i = 0; i < s->n_live; i++) {
            struct draft *d = &((struct seq *)s->live[i])->guesses.draft;
            if (d->behind == 0 || (eng && d->eng != eng))
                continue;
            eng = d->eng;
            b->drafts[n++] = d;
        }
        if (n)
            draft_run(b->drafts, n, n_decoding);
    } while (n);
}

void batch_guess(struct runs *s)
{
    size_t n_decoding = count_decoding(s);
    size_t n_tokens = n_decoding ? tokens_of_each(s, n_decoding) : 0;
    bool asked = false;
    for (size_t i = 0; i < s->n_live; i++)
        asked |= ((struct seq *)s->live[i])->o.draft != NULL;
    if (!asked || n_tokens < 2 || !runs_fit(s))
        return;
    for (size_t i = 0; i < s->n_live; i++)
        if (run_decodes(s->live[i]))
            begin((struct seq *)s->live[i], n_tokens);
    run_drafts(s->ctx, n_decoding);
    for (size_t i = 0; i < s->n_live; i++) {
        struct seq *q = (struct seq *)s->live[i];
        int32_t *ids = q->ids + q->run.n;
        if (q->guessed && q->run.n_guess == 0)
            q->run.n_guess = decode_before_stop(
                &q->g.rules, ids, speculative_take(&q->guesses, ids));
    }
}

bool batch_give_up_guesses(struct runs *s)
{
    struct qwick_batch *b = s->ctx;
    bool any = false;
    for (size_t i = 0; i < s->n_live; i++) {
        struct seq *q = (struct seq *)s->live[i];
        struct qwick_session *session = q->run.session;
        if (!q->run.n_guess && !(session && session->draft))
            continue;
        any = true;
        forget(q);
        draft_stop(&q->guesses.draft, session);
        q->run.more_bytes = 0;
    }
    if (any && !b->told_short)
        engine_warn(s->eng, "draft: memory is short; answers go on without it");
    b->told_short |= any;
    return any;
}
