/* Memory limits of the scheduler. */
#include "engine/cache/prefix.h"
#include "engine/runs/runs.h"

static size_t plus(size_t a, size_t b)
{
    return b > SIZE_MAX - a ? SIZE_MAX : a + b;
}

/* Bytes of a session's caches, that of its draft model included. */
static size_t fair_bytes(const struct qwick_session *s)
{
    return s ? kv_fair_bytes(&s->kv) + fair_bytes(s->draft) : 0;
}

size_t runs_used_bytes(const struct runs *s)
{
    size_t sum = 0;
    for (size_t i = 0; i < s->n_live; i++)
        sum += fair_bytes(s->live[i]->session);
    return sum;
}

/* Bytes that the draft model will still need for a run. */
static size_t draft_growth(const struct run *r)
{
    size_t has = r->session ? fair_bytes(r->session->draft) : 0;
    return r->more_bytes > has ? r->more_bytes - has : 0;
}

/* Bytes that a run will still need, without the pages that it has or can
 * share: the first n_shared. */
static size_t growth_of(const struct runs *s, const struct run *r,
                        size_t n_shared)
{
    size_t more = draft_growth(r);
    if (r->session)
        return plus(kv_missing_bytes(&r->session->kv, r->n_final), more);
    size_t all = kv_sequence_bytes(&s->shape, r->n_final);
    size_t shared = n_shared * s->shape.page_bytes;
    return plus(all > shared ? all - shared : 0, more);
}

/* Bytes that the live runs will still need. */
static size_t growth(const struct runs *s)
{
    size_t bytes = 0;
    for (size_t i = 0; i < s->n_live; i++)
        bytes = plus(bytes, growth_of(s, s->live[i], 0));
    return bytes;
}

/* Bytes that may still be allocated. An eighth of the free memory stays free:
 * for other programs, and because mapped memory counts only when it is
 * touched. */
static size_t room(const struct runs *s, size_t need)
{
    if (s->kv_bytes) {
        size_t used = runs_used_bytes(s);
        return used < s->kv_bytes ? s->kv_bytes - used : 0;
    }
    size_t free_bytes = memory_available(&s->eng->memory, need);
    return free_bytes == SIZE_MAX ? SIZE_MAX : free_bytes - free_bytes / 8;
}

bool runs_give_back(struct runs *s)
{
    struct prefix *p = s->eng->prefix;
    if (s->n_spare) {
        qwick_session_free(s->spare[--s->n_spare]);
        return true;
    }
    if (!p || prefix_bytes(p) == 0)
        return false;
    prefix_shrink(p, prefix_bytes(p) / 2);
    return true;
}

/* Pages that a run can share with others. */
static size_t shared_pages(const struct runs *s, const struct run *r)
{
    const struct qwick_session *from;
    size_t n = 0;
    if (s->task->share)
        n = runs_find(s, r, &from);
    else if (s->base && s->base->lora == r->lora)
        n = kv_usable(&s->base->kv,
                      tokens_in_common(r->tokens, r->n - 1, s->base->tokens,
                                       s->base->kv.n));
    return n / KV_BLOCK;
}

bool runs_admits(struct runs *s, const struct run *r)
{
    if (s->n_live == 0)
        return true; /* try a run alone in any case; only a failed allocation
                        refuses it */
    do {
        size_t need = plus(growth_of(s, r, shared_pages(s, r)), growth(s));
        if (need <= room(s, need))
            return true;
        /* with kv_bytes, the prefix cache has a separate limit */
    } while (!s->kv_bytes && runs_give_back(s));
    return false;
}

bool runs_fit(const struct runs *s)
{
    size_t need = growth(s);
    return need <= room(s, need);
}

int runs_check_length(const struct runs *s, size_t n, struct qwick_err *e)
{
    size_t need = kv_sequence_bytes(&s->shape, n);
    if (!s->kv_bytes || need <= s->kv_bytes)
        return 0;
    err_set(e, QWICK_ERR_MEMORY,
            "prompt: the KV cache of %zu tokens needs %zu bytes, all caches "
            "may have %zu",
            n, need, s->kv_bytes);
    if (e)
        e->kind = QWICK_KIND_LIMIT;
    return -1;
}

int runs_check_memory(struct runs *s, struct qwick_err *e)
{
    if (!s->kv_bytes)
        return 0;
    size_t need = runs_used_bytes(s);
    for (size_t i = 0; i < s->n_steps; i++) {
        const struct kv_cache *kv = &s->steps[i].session->kv;
        need = plus(need, kv_missing_bytes(kv, kv->n + s->steps[i].n));
    }
    if (need > s->kv_bytes)
        return err_set(e, QWICK_ERR_MEMORY,
                       "out of memory: %zu bytes for the KV cache, which may "
                       "have %zu",
                       need, s->kv_bytes);
    return 0;
}
