/* Memory limits of the scheduler. */
#include "engine/cache/prefix.h"
#include "engine/runs/runs.h"

static size_t page_bytes(const struct runs *s)
{
    return s->eng->info.kv_token_bytes * KV_BLOCK;
}

static size_t pages_of(size_t n_tokens)
{
    return n_tokens / KV_BLOCK + (n_tokens % KV_BLOCK != 0);
}

static size_t plus(size_t a, size_t b)
{
    return b > SIZE_MAX - a ? SIZE_MAX : a + b;
}

static size_t times(size_t a, size_t b)
{
    return b && a > SIZE_MAX / b ? SIZE_MAX : a * b;
}

/* The session's share of its pages: a page with n references counts 1/n. */
static size_t session_bytes(const struct qwick_session *s)
{
    size_t sum = 0;
    for (size_t i = 0; s && i < s->kv.n_pages; i++)
        sum += s->kv.page_bytes / s->kv.pages[i]->refs;
    return sum;
}

static size_t used_bytes(const struct runs *s)
{
    size_t sum = 0;
    for (size_t i = 0; i < s->n_live; i++)
        sum += session_bytes(s->live[i]->session);
    return sum;
}

/* Pages that a run will still need, without the pages that it has or can
 * share. */
static size_t growth_of(const struct run *r, size_t shared)
{
    size_t want = pages_of(r->n_final);
    size_t have = r->session ? r->session->kv.n_pages : shared;
    return want > have ? want - have : 0;
}

/* Bytes that the live runs will still need. */
static size_t growth(const struct runs *s)
{
    size_t pages = 0;
    for (size_t i = 0; i < s->n_live; i++)
        pages = plus(pages, growth_of(s->live[i], 0));
    return times(pages, page_bytes(s));
}

/* Bytes that may still be allocated. An eighth of the free memory stays free:
 * for other programs, and because mapped memory counts only when it is
 * touched. */
static size_t room(const struct runs *s, size_t need)
{
    if (s->kv_bytes) {
        size_t used = used_bytes(s);
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
    else if (s->base)
        n = tokens_in_common(r->tokens, r->n - 1, s->base->tokens,
                             s->base->kv.n);
    return n / KV_BLOCK;
}

bool runs_admits(struct runs *s, const struct run *r)
{
    if (s->n_live == 0)
        return true; /* try a run alone in any case; only a failed allocation
                        refuses it */
    do {
        size_t need = times(growth_of(r, shared_pages(s, r)), page_bytes(s));
        need = plus(need, growth(s));
        if (need <= room(s, need))
            return true;
        /* with kv_bytes, the prefix cache has a separate limit */
    } while (!s->kv_bytes && runs_give_back(s));
    return false;
}

int runs_check_memory(struct runs *s, struct qwick_err *e)
{
    if (!s->kv_bytes)
        return 0;
    size_t pages = 0, need;
    for (size_t i = 0; i < s->n_steps; i++) {
        const struct kv_cache *kv = &s->steps[i].session->kv;
        size_t want = pages_of(kv->n + s->steps[i].n);
        pages += want > kv->n_pages ? want - kv->n_pages : 0;
    }
    need = plus(times(pages, page_bytes(s)), used_bytes(s));
    if (need > s->kv_bytes)
        return err_set(e, QWICK_ERR_MEMORY,
                       "out of memory: %zu bytes for the KV cache, which may "
                       "have %zu",
                       need, s->kv_bytes);
    return 0;
}
