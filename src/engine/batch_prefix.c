/* What sequences of a batch need not evaluate: beginnings that another one has,
 * or that the engine's prefix caches have. */
#include <stdlib.h>
#include <string.h>

#include "engine/batch.h"
#include "engine/prefix.h"

/* Tokens for which a sequence waits until another one has evaluated them. Fewer
 * are cheaper than the pass by which it would start later, unless they are most
 * of its prompt. */
enum { WORTH_WAITING = 32 };

static size_t common(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b)
{
    size_t n = n_a < n_b ? n_a : n_b, i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

size_t prefix_find(const struct qwick_batch *b, const struct seq *q,
                   const struct qwick_session **from)
{
    struct prefix *p = b->eng->prefix;
    size_t best = p ? prefix_match(p, q->ids, q->n - 1, NULL, NULL) : 0;
    *from = NULL;
    for (size_t i = 0; i < b->n_live; i++) {
        const struct qwick_session *s = b->live[i]->session;
        size_t n = s ? common(q->ids, q->n - 1, s->tokens, s->kv.n) : 0;
        if (n > best) {
            best = n;
            *from = s;
        }
    }
    return best;
}

bool prefix_worth_waiting(const struct qwick_batch *b, size_t i)
{
    const struct seq *q = b->live[i];
    const struct qwick_session *from;
    size_t later = 0;
    for (size_t j = 0; j < i; j++) {
        const struct seq *other = b->live[j];
        size_t n = common(q->ids, q->n - 1, other->ids, other->n);
        later = n > later ? n : later;
    }
    if (later == 0)
        return false;
    size_t now = prefix_find(b, q, &from);
    if (later <= now)
        return false;
    size_t gain = later - now;
    return gain >= WORTH_WAITING || 2 * gain >= q->n - now;
}

/* The context of s, a new session, becomes the first n tokens of another's. */
static int share(struct qwick_session *s, const struct qwick_session *from,
                 size_t n, struct qwick_err *e)
{
    if (session_reserve_tokens(s, n, e) || kv_share(&s->kv, &from->kv, n, e))
        return -1;
    memcpy(s->tokens, from->tokens, n * sizeof *s->tokens);
    return 0;
}

int prefix_start(struct qwick_batch *b, struct seq *q, struct qwick_err *e)
{
    const struct qwick_session *from;
    struct qwick_session *s;
    size_t n = prefix_find(b, q, &from);
    if (qwick_session_create(&s, b->eng, b->limit, e))
        return -1;
    qwick_session_interrupt(s, b->o.interrupt);
    if ((from && share(s, from, n, e)) ||
        qwick_session_reuse(s, q->ids, q->n - 1, e)) {
        qwick_session_free(s);
        return -1;
    }
    q->session = s;
    if (q->r.n_tokens == 0)
        q->r.n_cached = s->kv.n;
    b->stats.n_shared += s->kv.n;
    return 0;
}

/* ---- what is kept ------------------------------------------------------- */

int prefix_like(struct qwick_batch *b, const int32_t *tokens, size_t n,
                struct qwick_err *e)
{
    if (!b->eng->disk || b->like_prompt ||
        common(tokens, n, b->like, b->n_like) < b->n_like)
        return 0;
    int32_t *like = malloc(n * sizeof *like);
    if (!like)
        return err_oom(e, n * sizeof *like);
    memcpy(like, tokens, n * sizeof *like);
    b->like_prompt = b->like || b->o.n_common == 0;
    free(b->like);
    b->like = like;
    b->n_like = n;
    return 0;
}

void prefix_leave(struct qwick_batch *b, const struct qwick_session *s)
{
    if (b->eng->prefix)
        prefix_insert(b->eng->prefix, s->tokens, s->kv.n, &s->kv);
}

/* What goes to disk are beginnings of one sequence of tokens alone, whatever
 * number of requests there is: more is not written than for a single prompt. */
void prefix_keep(struct qwick_batch *b, const struct seq *q)
{
    struct qwick_err why;
    qwick_session_publish(q->session);
    if (!b->like || b->n_stored == SIZE_MAX)
        return;
    size_t n = common(q->ids, q->n_prompt, b->like, b->n_like);
    /* by itself, or once more, it only has what is known to be common */
    if (n == q->n_prompt && n == b->n_like)
        n = b->o.n_common;
    if (n / KV_BLOCK <= b->n_stored / KV_BLOCK)
        return;
    b->n_stored = n;
    if (qwick_session_store(q->session, n, &why)) {
        engine_warn(b->eng, "prefix cache: %s", why.msg);
        b->n_stored = SIZE_MAX;
    }
}
