/* What sequences of a batch share: beginnings that another one has evaluated.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/batch.h"

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

static size_t common_with(const struct seq *q, const struct qwick_session *s)
{
    return s ? common(q->ids, q->n - 1, s->tokens, s->kv.n) : 0;
}

size_t prefix_find(struct qwick_batch *b, const struct seq *q,
                   struct qwick_session **from)
{
    size_t best = 0;
    struct kept *kept = NULL;
    *from = NULL;
    for (size_t i = 0; i < b->n_kept; i++) {
        size_t n = common_with(q, b->kept[i].session);
        if (n > best) {
            best = n;
            kept = &b->kept[i];
        }
    }
    if (kept) {
        *from = kept->session;
        kept->used = ++b->clock;
    }
    for (size_t i = 0; i < b->n_live; i++) {
        size_t n = common_with(q, b->live[i]->session);
        if (n > best) {
            best = n;
            *from = b->live[i]->session;
        }
    }
    return best;
}

bool prefix_worth_waiting(struct qwick_batch *b, size_t i)
{
    const struct seq *q = b->live[i];
    struct qwick_session *from;
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

/* A session whose context is the first n tokens of another's. */
static int fork_at(struct qwick_session **out, const struct qwick_session *s,
                   size_t n, struct qwick_err *e)
{
    struct qwick_session *f;
    *out = NULL;
    if (qwick_session_create(&f, s->eng, s->limit, e))
        return -1;
    f->tokens = malloc(n * sizeof *f->tokens);
    if (!f->tokens) {
        err_oom(e, n * sizeof *f->tokens);
        goto fail;
    }
    f->cap = n;
    if (kv_share(&f->kv, &s->kv, n, e))
        goto fail;
    memcpy(f->tokens, s->tokens, n * sizeof *f->tokens);
    *out = f;
    return 0;
fail:
    qwick_session_free(f);
    return -1;
}

int prefix_start(struct qwick_batch *b, struct seq *q, struct qwick_err *e)
{
    struct qwick_session *from;
    size_t n = prefix_find(b, q, &from);
    int rc = from ? fork_at(&q->session, from, n, e)
                  : qwick_session_create(&q->session, b->eng, b->limit, e);
    if (rc)
        return -1;
    qwick_session_interrupt(q->session, b->o.interrupt);
    if (q->r.n_tokens == 0)
        q->r.n_cached = n;
    b->stats.n_shared += n;
    return 0;
}

static void drop(struct qwick_batch *b, size_t i)
{
    qwick_session_free(b->kept[i].session);
    b->kept[i] = b->kept[--b->n_kept];
}

bool prefix_drop(struct qwick_batch *b)
{
    size_t oldest = 0;
    for (size_t i = 1; i < b->n_kept; i++)
        if (b->kept[i].used < b->kept[oldest].used)
            oldest = i;
    if (b->n_kept == 0)
        return false;
    drop(b, oldest);
    return true;
}

void prefix_keep(struct qwick_batch *b, struct qwick_session *s)
{
    for (size_t i = b->n_kept; i-- > 0;) {
        const struct qwick_session *k = b->kept[i].session;
        size_t n = common(s->tokens, s->kv.n, k->tokens, k->kv.n);
        if (n == s->kv.n) { /* all that it has is there */
            b->kept[i].used = ++b->clock;
            qwick_session_free(s);
            return;
        }
        if (n == k->kv.n)
            drop(b, i);
    }
    if (b->n_kept == BATCH_KEPT)
        prefix_drop(b);
    b->kept[b->n_kept++] = (struct kept){s, ++b->clock};
}
