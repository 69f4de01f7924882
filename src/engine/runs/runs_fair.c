/* How runs share time, for users who wait for several answers at once.
 *
 * Beside a long prompt, runs that decode get as much time as the prompt: after
 * a pass with a piece of it, passes follow that only decode. A short prompt
 * goes before long ones, in the next pass. No long prompt rests longer than
 * REST_MS for this. Without long prompts, passes take all they can.
 *
 * The ratio of the time of a prompt's token to that of a pass that decodes
 * differs by factors between machines, weights and lengths of contexts. So both
 * are measured. */
#include "engine/runs/runs.h"

/* A prompt with at most this many tokens left when it begins is short. */
enum { SHORT_PROMPT = 512 };

/* Fewest tokens of a long prompt in a pass. With fewer, reading the weights
 * takes much of the time. */
enum { MIN_PIECE = 64 };

/* Longest time that a long prompt rests, and longest pass with a long prompt
 * beside other runs, if MIN_PIECE allows it. */
#define REST_MS  900
#define PIECE_MS 800

/* Rate of runs that decode beside a long prompt, as a share of their rate
 * without it. More than half, because a prompt ends with a pass after which they
 * are owed nothing, and because a pass that decodes takes longer beside a
 * prompt, whose keys have taken the place of its own in the caches. */
#define DECODE_SHARE 0.6

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Return how many tokens of a live run must still be evaluated. */
static size_t tokens_left(const struct runs *s, const struct run *r)
{
    const struct qwick_session *from;
    if (r->session || !s->task->share)
        return run_pending(r);
    return r->n - runs_find(s, r, &from);
}

/* Whether a goes before b. */
static bool goes_before(const struct turn *a, const struct turn *b)
{
    return a->is_long != b->is_long ? b->is_long : a->n_left < b->n_left;
}

/* Make a list of all prompts: short ones, then long ones, those with fewest
 * tokens left first. Prompts that wait for the tokens of others are at its end.
 * Returns how many are not. */
static size_t sort_turns(struct runs *s)
{
    size_t n = 0, n_ready = 0;
    for (size_t i = 0; i < s->n_live; i++) {
        struct run *r = s->live[i];
        if (runs_decodes(s, r))
            continue;
        struct turn t = {.live = i, .n_left = tokens_left(s, r)};
        t.n_most = SIZE_MAX;
        if (!r->session)
            r->is_long = t.n_left > SHORT_PROMPT;
        t.is_long = r->is_long;
        size_t at = n++;
        if (r->session || !s->task->share || !runs_worth_waiting(s, i)) {
            for (; at > n_ready; at--)
                s->turns[at] = s->turns[at - 1];
            for (n_ready++; at > 0 && goes_before(&t, &s->turns[at - 1]); at--)
                s->turns[at] = s->turns[at - 1];
        }
        s->turns[at] = t;
    }
    s->n_turns = n;
    return n_ready;
}

/* Move turns[from] to the head of the list. */
static void move_first(struct runs *s, size_t from)
{
    struct turn t = s->turns[from];
    for (; from > 0; from--)
        s->turns[from] = s->turns[from - 1];
    s->turns[0] = t;
}

/* Return the long prompt that has rested longest, of turns [begin, end). */
static size_t most_rested(const struct runs *s, size_t begin, size_t end)
{
    size_t best = begin;
    for (size_t i = begin; i < end; i++)
        if (s->live[s->turns[i].live]->rested_ms >
            s->live[s->turns[best].live]->rested_ms)
            best = i;
    return best;
}

/* Remove turns [begin, end) from the list. */
static void remove_turns(struct runs *s, size_t begin, size_t end)
{
    for (size_t i = end; i < s->n_turns; i++)
        s->turns[begin++] = s->turns[i];
    s->n_turns = begin;
}

/* Return how many tokens of prompts a pass of this time has, besides those of
 * runs that decode. */
static size_t tokens_in(const struct fair *f, double ms)
{
    ms -= f->step_ms;
    if (ms <= 0)
        return 0;
    return f->token_ms > 0 ? (size_t)(ms / f->token_ms) : SIZE_MAX;
}

/* Return how many tokens a pass with a long prompt beside other runs should
 * have. */
static size_t piece(const struct fair *f)
{
    size_t n = tokens_in(f, PIECE_MS) / MIN_PIECE * MIN_PIECE;
    return n > MIN_PIECE ? n : MIN_PIECE;
}

/* Take a long prompt beside short ones of n tokens. It must not rest longer,
 * but the short ones should not take twice as long for it. */
static void take_beside(struct runs *s, size_t long_prompt, size_t n,
                        size_t budget)
{
    move_first(s, long_prompt);
    const struct run *r = s->live[s->turns[0].live];
    size_t wanted = r->rested_ms > REST_MS / 2 ? piece(&s->fair) : n / 8 + 1;
    s->turns[0].n_most = least(wanted, budget - least(n, budget - budget / 8));
}

void fair_plan(struct runs *s, size_t *budget)
{
    const struct fair *f = &s->fair;
    size_t n_ready = sort_turns(s), n_short = 0, n_tokens = 0;
    for (; n_short < n_ready && !s->turns[n_short].is_long; n_short++)
        n_tokens += s->turns[n_short].n_left;
    if (n_short == n_ready)
        return;
    bool decodes = s->n_steps > 0;
    if (n_short == 0 && (decodes || n_ready > 1))
        *budget = least(*budget, piece(f));
    /* May the next pass leave out the prompt that has rested longest? It
     * decodes, or it takes short prompts or another long one. */
    bool owed = decodes && !n_short && f->owed_ms > f->step_ms / 2;
    size_t wanted = owed ? 0 : n_short ? least(n_tokens, *budget) : *budget;
    size_t rested = most_rested(s, n_short, n_ready);
    double ms = REST_MS - s->live[s->turns[rested].live]->rested_ms;
    bool due = ms < f->step_ms || tokens_in(f, ms) < wanted;
    if (owed && !due)
        s->n_turns = 0;
    else if (due && n_short)
        take_beside(s, rested, n_tokens, *budget);
    else if (due)
        move_first(s, rested);
    if (n_short)
        remove_turns(s, n_short + due, n_ready);
}

static void learn(double *ms, double now)
{
    *ms = *ms > 0 ? (*ms + now) / 2 : now;
}

void fair_account(struct runs *s, double ms)
{
    struct fair *f = &s->fair;
    size_t n_tokens = 0;
    for (size_t i = 0; i < s->n_live; i++)
        s->live[i]->rested_ms += ms;
    for (size_t i = 0; i < s->n_steps; i++) {
        s->stepped[i]->rested_ms = 0;
        if (i >= s->n_decoding)
            n_tokens += s->stepped[i]->n_step;
    }
    if (n_tokens == 0) {
        learn(&f->step_ms, ms);
        f->owed_ms = f->owed_ms > ms ? f->owed_ms - ms : 0;
        return;
    }
    if (n_tokens >= MIN_PIECE) {
        double own = ms - f->step_ms; /* reading the weights takes the rest */
        learn(&f->token_ms, (own > ms / 4 ? own : ms / 4) / (double)n_tokens);
    }
    /* k passes that decode come after this one, so that k + 1 tokens of each
     * run take k * step_ms / DECODE_SHARE */
    f->owed_ms += (DECODE_SHARE * ms - f->step_ms) / (1 - DECODE_SHARE);
    if (s->n_decoding == 0 || f->owed_ms < 0)
        f->owed_ms = 0;
    if (f->owed_ms > REST_MS)
        f->owed_ms = REST_MS;
}
