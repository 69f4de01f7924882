#include "engine/generate/speculative.h"

#include <string.h>

int speculative_open(struct speculative *s, struct generation *g,
                 struct qwick_engine *eng, const int32_t *prompt, size_t n,
                 size_t lookup, struct qwick_err *e)
{
    struct qwick_engine *draft = g->o->draft;
    *s = (struct speculative){.g = g, .prompt = prompt};
    g->r->lookup.max = lookup;
    g->r->draft.on = draft != NULL;
    if (lookup &&
        lookup_create(&s->lookup, lookup, model_row_cost(&eng->model), e))
        return -1;
    return draft && (qwick_draft_check(eng, draft, e) ||
                     draft_open(&s->draft, g, draft, n, e))
               ? -1
               : 0;
}

void speculative_close(struct speculative *s)
{
    draft_close(&s->draft);
    lookup_free(s->lookup);
    s->lookup = NULL;
}

size_t speculative_max(const struct speculative *s, const struct qwick_session *session,
                   size_t n_tokens)
{
    size_t max = s->g->r->lookup.max, most = n_tokens - 1;
    if (s->g->r->draft.on && max < DRAFT_MAX)
        max = DRAFT_MAX;
    if (max == 0)
        max = QWICK_LOOKUP_MAX;
    if (session->kv.state.n_layers && most > DELTA_BLOCK)
        most = DELTA_BLOCK; /* a recurrent state forgets no more at once */
    return max < most ? max : most;
}

/* Guess tokens that the text gives: those that must follow, or what followed
 * earlier, if that is worth more than `least` (lookup_guess_above). */
static int guess_from_text(struct speculative *s, size_t max, double least,
                           struct qwick_err *e)
{
    const struct qwick_result *r = s->g->r;
    if (generation_forced(s->g, s->ids, max, &s->n, e))
        return -1;
    if (s->n || !s->lookup)
        return 0;
    if (s->n_known == 0 && lookup_add(s->lookup, s->prompt, r->n_prompt, e))
        return -1;
    if (lookup_add(s->lookup, r->tokens + s->n_known, r->n_tokens - s->n_known,
                   e))
        return -1;
    s->n_known = r->n_tokens;
    s->n = lookup_guess_above(s->lookup, s->ids, max, least);
    return 0;
}

int speculative_begin(struct speculative *s, struct qwick_session *session, size_t max,
                  struct qwick_err *e)
{
    struct draft *d = &s->draft;
    const struct qwick_result *r = s->g->r;
    s->source = FROM_TEXT;
    s->asked = s->drafting = false;
    s->n = 0;
    if (d->eng)
        draft_settle(d, s->n_right);
    double least = d->eng ? budget_expects(&d->budget, max) : 1;
    if (guess_from_text(s, max, least, e))
        return -1;
    if (s->n || !d->eng)
        return 0;
    draft_ask(d, session, r->tokens[r->n_tokens - 1], max);
    s->asked = true;
    return 0;
}

size_t speculative_take(struct speculative *s, int32_t *ids)
{
    const struct draft *d = &s->draft;
    if (!s->asked) {
        memcpy(ids, s->ids, s->n * sizeof *ids);
        return s->n;
    }
    s->asked = false;
    s->source = FROM_DRAFT;
    s->drafting = d->n_known > 0;
    s->n_right = 0;
    memcpy(ids, d->ids, d->n * sizeof *ids);
    return d->n;
}

void speculative_drop(struct speculative *s)
{
    s->drafting = false;
    s->draft.settled = true;
}

int speculative_draw(struct speculative *s, const float *logits, int32_t *id,
                 struct qwick_err *e)
{
    const struct draft *d = &s->draft;
    struct guess guess;
    if (!s->drafting)
        return generation_draw(s->g, logits, NULL, id, e);
    guess = (struct guess){d->ids[s->n_right], draft_spread(d, s->n_right)};
    if (generation_draw(s->g, logits, guess.q ? &guess : NULL, id, e))
        return -1;
    s->n_right += *id == guess.id;
    s->drafting = *id == guess.id && s->n_right < d->n_known;
    return 0;
}

void speculative_report(const struct speculative *s, struct qwick_result *r)
{
    const struct qwick_lookup *text = &s->counts[FROM_TEXT];
    const struct qwick_lookup *model = &s->counts[FROM_DRAFT];
    r->lookup.n_drafted = text->n_drafted;
    r->lookup.n_accepted = text->n_accepted;
    r->lookup.n_passes = text->n_passes;
    r->draft.n_drafted = model->n_drafted;
    r->draft.n_accepted = model->n_accepted;
    r->draft.n_passes = model->n_passes;
    r->draft.ms = s->draft.ms;
}
