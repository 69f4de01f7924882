#include "engine/generate/decode.h"

bool decode_is_stop(const struct decode_rules *r, int32_t id)
{
    for (size_t i = 0; i < r->n_stop_ids; i++)
        if (r->stop_ids[i] == id)
            return true;
    return false;
}

bool decode_ends(const struct decode_rules *r, int32_t id, size_t n, size_t pos,
                 enum qwick_finish *why)
{
    if (decode_is_stop(r, id))
        *why = QWICK_FINISH_STOP;
    else if (r->budget && n >= r->budget)
        *why = QWICK_FINISH_LENGTH;
    else if (pos >= r->limit)
        *why = QWICK_FINISH_CONTEXT;
    else
        return false;
    return true;
}

size_t decode_most_guesses(const struct decode_rules *r, size_t n, size_t pos,
                           size_t max)
{
    size_t room = r->limit - pos - 1;
    if (max > room)
        max = room;
    if (pos < r->turn && max > r->turn - pos - 1)
        max = r->turn - pos - 1;
    /* the last chosen token is not evaluated */
    room = r->budget > n ? r->budget - n - 1 : SIZE_MAX;
    return max < room ? max : room;
}

size_t decode_before_stop(const struct decode_rules *r, const int32_t *ids,
                          size_t n)
{
    size_t i = 0;
    while (i < n && !decode_is_stop(r, ids[i]))
        i++;
    return i;
}

/* State of the loop. */
struct loop_state {
    const float *row;     /* logits to choose from */
    size_t pos;           /* tokens before the one to choose */
    size_t n;             /* tokens chosen so far */
    const int32_t *guess; /* [n_guess] guesses neither accepted nor dropped yet;
                             the state holds them after its pos tokens */
    size_t n_guess;
};

/* Drop the guesses that were not accepted. */
static void drop(const struct decode_loop *l, struct loop_state *r)
{
    if (r->n_guess)
        l->draft->keep(l->state, r->pos);
    r->n_guess = 0;
}

/* Accept id if it was guessed: then it is already evaluated, and the next row
 * has its logits. */
static bool accept(const struct decode_loop *l, struct loop_state *r,
                   int32_t id)
{
    if (r->n_guess == 0 || *r->guess != id)
        return false;
    r->guess++;
    r->n_guess--;
    r->row += l->draft->stride;
    r->pos++;
    l->draft->n_accepted++;
    return true;
}

/* Make *n guesses to evaluate after the last chosen token. */
static int guess(const struct decode_loop *l, const struct loop_state *r,
                 size_t *n, struct qwick_err *e)
{
    const struct decode_draft *d = l->draft;
    size_t max = decode_most_guesses(&l->rules, r->n, r->pos, d->max), made;
    *n = 0;
    if (max == 0)
        return 0;
    if (d->guess(l->ctx, d->tokens + 1, max, &made, e))
        return -1;
    *n = decode_before_stop(&l->rules, d->tokens + 1, made);
    return 0;
}

/* Evaluate id, the last chosen token, together with guesses. */
static int advance(const struct decode_loop *l, struct loop_state *r,
                   int32_t id, struct qwick_err *e)
{
    struct decode_draft *d = l->draft;
    size_t n = 0;
    if (r->pos >= l->rules.limit)
        return err_set(e, QWICK_ERR_CONTEXT, "context: is full with %zu tokens",
                       r->pos);
    if (d && guess(l, r, &n, e))
        return -1;
    if (n == 0) {
        if (l->forward(l->state, id, r->pos, &r->row, e))
            return -1;
    } else {
        d->tokens[0] = id;
        if (d->forward_all(l->state, d->tokens, 1 + n, r->pos, &r->row, e))
            return -1;
        d->n_passes++;
        d->n_drafted += n;
        r->guess = d->tokens + 1;
        r->n_guess = n;
    }
    r->pos++;
    return 0;
}

int decode_run(const struct decode_loop *l, const float *logits, size_t pos,
               enum qwick_finish *why, struct qwick_err *e)
{
    struct loop_state r = {.row = logits, .pos = pos};
    int rc = -1;
    for (;;) {
        int32_t id;
        bool end;
        r.n++;
        if (l->select(l->ctx, r.row, &id, e))
            break;
        end = decode_ends(&l->rules, id, r.n, r.pos, why);
        if (l->on_token(l->ctx, id, r.pos, &end, why, e))
            break;
        if (end) {
            rc = 0;
            break;
        }
        if (accept(l, &r, id))
            continue;
        drop(l, &r);
        if (advance(l, &r, id, e))
            break;
    }
    drop(l, &r);
    return rc;
}
