/* Prompt beginnings that runs share with other runs or with the engine's prefix
 * caches, so that they need not evaluate them. */
#include <string.h>

#include "engine/cache/prefix.h"
#include "engine/runs/runs.h"

/* Fewest shared tokens for which a run waits until another run has evaluated
 * them. For fewer, the wait costs more than it saves, unless they are most of
 * the run's tokens. */
enum { WORTH_WAITING = 32 };

size_t tokens_in_common(const int32_t *a, size_t n_a, const int32_t *b,
                        size_t n_b)
{
    size_t n = n_a < n_b ? n_a : n_b, i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

static bool run_needs_long_rope(const struct runs *s, const struct run *r)
{
    return r->origin + r->n >= model_long_rope_from(&s->eng->model);
}

size_t runs_find(const struct runs *s, const struct run *r,
                 const struct qwick_session **from)
{
    struct prefix *p = s->eng->prefix;
    bool is_long = run_needs_long_rope(s, r);
    size_t best =
        p && !is_long ? prefix_match(p, r->lora, r->tokens, r->n - 1, NULL, NULL) : 0;
    *from = NULL;
    for (size_t i = 0; i < s->n_live; i++) {
        const struct qwick_session *other = s->live[i]->session;
        if (!other || other->lora != r->lora ||
            other->kv.long_rope != is_long)
            continue;
        size_t n =
            tokens_in_common(r->tokens, r->n - 1, other->tokens, other->kv.n);
        n = kv_usable(&other->kv, n);
        if (n > best) {
            best = n;
            *from = other;
        }
    }
    return best;
}

/* Recurrent layers go on only where there is a snapshot, so the other run is
 * asked to make one. */
bool runs_worth_waiting(const struct runs *s, size_t i)
{
    const struct run *r = s->live[i];
    const struct qwick_session *from;
    bool is_long = run_needs_long_rope(s, r);
    size_t later = 0;
    for (size_t j = 0; j < i; j++) {
        const struct run *other = s->live[j];
        if (other->lora != r->lora ||
            run_needs_long_rope(s, other) != is_long)
            continue;
        size_t n =
            tokens_in_common(r->tokens, r->n - 1, other->tokens, other->n);
        struct kv_cache none = s->shape;
        n = kv_request_snapshot(other->session ? &other->session->kv : &none,
                                n);
        later = n > later ? n : later;
    }
    if (later == 0)
        return false;
    size_t now = runs_find(s, r, &from);
    if (later <= now)
        return false;
    size_t gain = later - now;
    return gain >= WORTH_WAITING || 2 * gain >= r->n - now;
}

/* Make the first n tokens of another session the context of s, a new
 * session. */
static int copy_context(struct qwick_session *s,
                        const struct qwick_session *from, size_t n,
                        struct qwick_err *e)
{
    if (session_reserve_tokens(s, n, e) || kv_share(&s->kv, &from->kv, n, e))
        return -1;
    memcpy(s->tokens, from->tokens, n * sizeof *s->tokens);
    return 0;
}

int runs_share(struct runs *s, struct run *r, struct qwick_err *e)
{
    const struct qwick_session *from;
    size_t n = runs_find(s, r, &from);
    if (from && copy_context(r->session, from, n, e))
        return -1;
    return qwick_session_reuse(r->session, r->tokens, r->n - 1, e);
}
